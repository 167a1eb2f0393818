/* comm/launcher_env.c - reads rank, world size and local rank from the environment variables of
 * launchers: one row per launcher, the first whose rank variable is set applies. */
#include "launcher_env.h"

#include "../base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tci_launcher {
    const char *rank, *size, *local_rank, *local_size;
    const char *job[3]; /* what names the group, as far as it is set */
    bool is_mpi;
} tci_launcher;

static const tci_launcher tci_launchers[] = {
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL},
     true},
    {"PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {"PMI_JOBID", "SLURM_JOB_ID", NULL},
     true},
    {"RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"},
     false},
};

/* A launcher that says how many ranks there are, but not which one this is: only one may be. */
static bool tci_launch_is_alone(char *why)
{
    for (size_t i = 0; i < TCI_COUNT(tci_launchers); i++) {
        const char *size = tci_os_getenv(tci_launchers[i].size);
        if (size && strcmp(size, "1") != 0) {
            snprintf(why, TC_COMM_WHY,
                     "%s is '%.60s', but %s is not set: expected both, or neither",
                     tci_launchers[i].size, size, tci_launchers[i].rank);
            return false;
        }
    }
    return true;
}

/* fallback < 0: the variable must be set. */
static bool tci_launch_number(const char *name, int fallback, int *to, char *why)
{
    const char *text = tci_os_getenv(name);
    char *end = NULL;
    errno = 0;
    long n = text && *text ? strtol(text, &end, 10) : fallback;
    if (n < 0 || n > INT32_MAX || (end && *end) || errno) {
        snprintf(why, TC_COMM_WHY, "%s is %s%.60s%s, expected a number", name, text ? "'" : "",
                 text ? text : "not set", text ? "'" : "");
        return false;
    }
    *to = (int)n;
    return true;
}

/* Launchers of MPI keep one process on each host, whose number names the group where nothing else
 * does. Of other ranks there is one group without a name at a time, for each user. */
static void tci_launch_name(tci_launch_group *g, const tci_launcher *l)
{
    size_t n = 0;
    bool has_name = false;
    for (int i = 0; i < 3; i++) {
        const char *text = l->job[i] ? tci_os_getenv(l->job[i]) : NULL;
        const tci_hash h = tci_hash_bytes(text ? text : "", text ? strlen(text) : 0);
        int more = snprintf(g->group + n, sizeof(g->group) - n, "%016llx|",
                            (unsigned long long)h.lo);
        n += (size_t)TCI_MAX(more, 0);
        has_name = has_name || text;
    }
    if (!has_name && l->is_mpi) {
        snprintf(g->group, sizeof(g->group), "parent %ld", (long)getppid());
    }
}

static bool tci_launch_is_here(const char *address)
{
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    return !address || !strcmp(address, "localhost") || !strncmp(address, "127.", 4) ||
           !strcmp(address, "::1") || !strcmp(address, host);
}

TCI_FN bool tci_launch_read(tci_launch_group *g, char *why)
{
    size_t i = 0;
    while (i < TCI_COUNT(tci_launchers) && !tci_os_getenv(tci_launchers[i].rank)) {
        i++;
    }
    *g = (tci_launch_group){.size = 1, .local_size = 1, .is_local = true, .group = "alone"};
    if (i == TCI_COUNT(tci_launchers)) {
        return tci_launch_is_alone(why);
    }
    const tci_launcher *l = &tci_launchers[i];
    if (!tci_launch_number(l->rank, -1, &g->rank, why) ||
        !tci_launch_number(l->size, -1, &g->size, why) ||
        !tci_launch_number(l->local_rank, g->rank, &g->local_rank, why) ||
        !tci_launch_number(l->local_size, 0, &g->local_size, why)) {
        return false;
    }
    if (g->size < 1 || g->rank >= g->size) {
        snprintf(why, TC_COMM_WHY, "%s is %d and %s is %d, expected a rank below the size", l->rank,
                 g->rank, l->size, g->size);
        return false;
    }
    if (g->local_size > g->size) {
        snprintf(why, TC_COMM_WHY,
                 "%s is %d and %s is %d, expected no more ranks on this host than "
                 "there are",
                 l->local_size, g->local_size, l->size, g->size);
        return false;
    }
    g->is_mpi = l->is_mpi;
    g->is_local = g->local_size ? g->local_size == g->size
                                : l->is_mpi || tci_launch_is_here(tci_os_getenv("MASTER_ADDR"));
    tci_launch_name(g, l);
    return true;
}
