/* comm/api.h - the public half of tc_comm.h: communicators from the environment, MPI and NCCL; data
 * parallel training. The collectives themselves are in tc.h (api/comm.h). */
#ifndef TC_COMM_API_H
#define TC_COMM_API_H

#include "../api/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The communicator of all processes that a launcher started together, by the variables that it set:
 *     torchrun, or the user   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK,
 *                             LOCAL_WORLD_SIZE, TORCHELASTIC_RUN_ID)
 *     mpirun of Open MPI      OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE
 *     mpirun of MPICH, srun   PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS
 *     none of these           one rank, alone
 * Engine: that of TC_COMM; else MPI if mpirun started the process and its library can be opened;
 * else shared memory, if all ranks are on this host. Returns when all ranks have joined. Every rank
 * makes its communicators in the same order. Free it with tc_comm_free, after or before the
 * programs that use it. TC_ERR_COMM: a rank did not come within a minute, ranks on several hosts
 * without MPI, no such engine or library (tc_comm_error(NULL) tells); TC_ERR_ARGUMENT: a variable
 * is no number; TC_ERR_MEMORY. */
TC_API tc_status tc_comm_from_env(tc_comm **out);
/* The same with time limits. options NULL: defaults. */
TC_API tc_status tc_comm_from_env_with(const tc_comm_options *options, tc_comm **out);

/* A communicator over an MPI_Comm of the user's: its address (`&mpi_comm`), as its type is another
 * one in each MPI. It is duplicated, so messages do not meet; MPI must have been initialized, with
 * MPI_THREAD_MULTIPLE or _SERIALIZED if other threads use it, and be finalized after tc_comm_free.
 * TC_ERR_COMM: no MPI in this process, or it failed. */
TC_API tc_status tc_comm_of_mpi(const void *mpi_comm, const tc_comm_options *options,
                                tc_comm **out);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
