/* comm/api.h - the public half of tc_comm.h: communicators from the environment, MPI and NCCL; data
 * parallel training. The collectives themselves are in tc.h (api/comm.h). */
#ifndef TC_COMM_API_H
#define TC_COMM_API_H

#include "../api/comm.h"
#include "../api/ops.h"

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

/* A communicator of GPUs over NCCL (libnccl.so.2, opened at run time): the ranks of base, which
 * tells them of each other and compares their programs, each with the GPU of that number (as
 * backends "cuda", "cuda:1" .. are numbered; with CUDA_VISIBLE_DEVICES of one GPU, 0). A collective
 * call. Programs for that GPU run its collectives on a stream of their own, next to kernels; the
 * order of a sum is NCCL's, but under options.reproducible, where tc sums in the order of ranks.
 * base may be freed before. Without TC_CUDA: TC_ERR_UNSUPPORTED. TC_ERR_COMM: no NCCL, no GPU, or
 * it failed. */
TC_API tc_status tc_comm_nccl(tc_comm *base, int device, const tc_comm_options *options,
                              tc_comm **out);
/* The same with an ncclComm_t of the user's, whose ranks are those of base, in that order: it is
 * neither ended nor freed here. */
TC_API tc_status tc_comm_of_nccl(void *nccl_comm, tc_comm *base, int device,
                                 const tc_comm_options *options, tc_comm **out);

/* ---- data parallel training ---- */

/* How gradients travel: several as one operation. */
typedef struct tc_buckets {
    int64_t bytes; /* of a bucket, about; 0: 25 MiB */
    bool sum;      /* of all ranks, in the place of the mean */
} tc_buckets;

/* tc_all_reduce_grads(comm, grads, n, &buckets, out): out[i] is the mean of grads[i] over all
 * ranks; float dtypes. Gradients that are ready one after the other travel together, and their
 * operation starts as soon as the last of them is computed, while the others still are. out may be
 * grads. buckets NULL: defaults. TC_ERR_ARGUMENT: NULL or n < 1; the first error of a gradient, or
 * of a collective (tc_error(out[0]) tells). */
TC_API tc_status tc_all_reduce_grads_at(tc_comm *comm, const tc_tensor *grads, int n,
                                        const tc_buckets *buckets, tc_tensor *out, tc_site here);
#define tc_all_reduce_grads(comm, grads, n, buckets, out)                                          \
    tc_all_reduce_grads_at((comm), (grads), (n), (buckets), (out), TC_HERE)

/* Sharded optimizer state (ZeRO stages 1 and 2, arXiv 1910.02054): each rank updates its part of
 * every parameter, and has what the optimizer remembers for that part alone.
 *
 *     tc_zero_shards(comm, params, n, shards);                        // once: this rank's parts
 *     tc_zero_grads(comm, grads, n, NULL, shard_grads);               // a reduce_scatter
 *     tc_adamw(shards, shard_grads, n, rate, NULL, effects, &k);      // any optimizer
 *     tc_zero_effects(comm, params, shards, n, NULL, effects, &k);    // an all_gather
 *
 * shards[i] is a parameter of the ceil(count / ranks) elements of params[i] that this rank has, in
 * row-major order, the last filled up with zeros. All ranks must have equal parameters when the
 * shards are made. Optimizers that look at whole matrices (tc_muon), or at the norm of all
 * gradients, see only a part. Errors as above, and of tc_param; TC_ERR_ARGUMENT too where
 * tc_zero_effects finds a shard that no effect assigns. */
TC_API tc_status tc_zero_shards_at(tc_comm *comm, const tc_tensor *params, int n, tc_tensor *shards,
                                   tc_site here);
#define tc_zero_shards(comm, params, n, shards)                                                    \
    tc_zero_shards_at((comm), (params), (n), (shards), TC_HERE)
TC_API tc_status tc_zero_grads_at(tc_comm *comm, const tc_tensor *grads, int n,
                                  const tc_buckets *buckets, tc_tensor *shard_grads, tc_site here);
#define tc_zero_grads(comm, grads, n, buckets, shard_grads)                                        \
    tc_zero_grads_at((comm), (grads), (n), (buckets), (shard_grads), TC_HERE)
/* Adds an effect for each parameter: effects has room for TC_EFFECTS(n) + n. */
TC_API tc_status tc_zero_effects_at(tc_comm *comm, const tc_tensor *params, const tc_tensor *shards,
                                    int n, const tc_buckets *buckets, tc_tensor *effects,
                                    int *n_effects, tc_site here);
#define tc_zero_effects(comm, params, shards, n, buckets, effects, n_effects)                      \
    tc_zero_effects_at((comm), (params), (shards), (n), (buckets), (effects), (n_effects), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
