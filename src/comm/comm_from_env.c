/* comm/comm_from_env.c - tc_comm_from_env: creates a communicator over the processes that a
 * launcher (mpirun, Slurm, torchrun) started, by MPI or shared memory. */
#include "../base/env.h"
#include "api.h"
#include "launcher_env.h"
#include "mpi.h"
#include "shm.h"

#include <stdio.h>
#include <string.h>

enum { TCI_COMM_JOIN_MS = 60000 };

static tc_status tci_environment_shm(const tci_launch_group *g, const tc_comm_options *o,
                                     tc_comm **out, char *why)
{
    const int64_t limit = o && o->timeout_ms > 0 ? o->timeout_ms : TCI_COMM_TIMEOUT_MS;
    const tci_shm_group group = {g->group, g->rank, g->size,
                                 TCI_MIN(limit, (int64_t)TCI_COMM_JOIN_MS), limit};
    if (!g->is_local) {
        snprintf(why, TC_COMM_WHY,
                 "%d ranks, of which %d are on this host: shared memory is for "
                 "one host, expected mpirun with MPI for several",
                 g->size, g->local_size);
        return TC_ERR_COMM;
    }
    tci_shm *s = tci_shm_join(&group, why);
    if (!s) {
        return TC_ERR_COMM;
    }
    const tc_comm_engine *engine = tci_shm_engine(g->size);
    tc_status status = tc_comm_of_engine(engine, s, g->rank, g->size, o, out);
    if (status) {
        engine->free(s);
    }
    return status;
}

TC_API tc_status tc_comm_from_env_with(const tc_comm_options *options, tc_comm **out)
{
    char why[TC_COMM_WHY] = "";
    tci_launch_group g;
    const char *wanted = tci_env_get(TCI_ENV_COMM);
    tc_status status = TC_ERR_ARGUMENT;
    if (!out) {
        return status;
    }
    *out = NULL;
    if (!tci_launch_read(&g, why)) {
        tci_comm_tell(why);
        return status;
    }
    bool tries_mpi = wanted ? !strcmp(wanted, "mpi") : g.is_mpi && g.size > 1;
    status = TC_ERR_COMM;
    if (tries_mpi) {
        status = tci_mpi_world(options, out, why);
    }
    if (status && (wanted ? !strcmp(wanted, "shm") : g.is_local || !tries_mpi)) {
        status = tci_environment_shm(&g, options, out, why);
    } else if (status && !tries_mpi) {
        snprintf(why, sizeof(why), "TC_COMM is '%.60s', expected shm or mpi", wanted);
    }
    tci_comm_tell(status ? why : "");
    return status;
}

TC_API tc_status tc_comm_from_env(tc_comm **out)
{
    return tc_comm_from_env_with(NULL, out);
}
