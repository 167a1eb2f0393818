/* comm/api.h - public declarations of tc_comm.h: communicators from a launcher's environment, MPI
 * or NCCL; data parallel training, sharded parameters (ZeRO, FSDP), tensor parallel partitioning,
 * scaling prediction. The collectives themselves are in tc.h (api/comm.h). */
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
 * Engine: the value of TC_COMM; else MPI if mpirun started the process and its library can be
 * opened; else shared memory, if all ranks are on this host. Returns when all ranks have joined.
 * Every rank makes its communicators in the same order. Free it with tc_comm_free, after or before
 * the programs that use it. TC_ERR_COMM: a rank did not join within a minute, ranks on several
 * hosts without MPI, no such engine or library (tc_comm_error(NULL) has the message);
 * TC_ERR_ARGUMENT: a variable is not a number; TC_ERR_MEMORY. */
TC_API tc_status tc_comm_from_env(tc_comm **out);
/* The same with timeouts. options NULL: defaults. */
TC_API tc_status tc_comm_from_env_with(const tc_comm_options *options, tc_comm **out);

/* A communicator over an existing MPI_Comm, passed by address (`&mpi_comm`), since its type differs
 * between MPI implementations. It is duplicated, so messages do not interfere; MPI must be
 * initialized, with MPI_THREAD_MULTIPLE or _SERIALIZED if other threads use it, and be finalized
 * after tc_comm_free. TC_ERR_COMM: no MPI in this process, or it failed. */
TC_API tc_status tc_comm_of_mpi(const void *mpi_comm, const tc_comm_options *options,
                                tc_comm **out);

/* A communicator of GPUs over NCCL (libnccl.so.2, opened at run time): the ranks of base, which
 * exchanges their addresses and compares their programs, each with the GPU of that number (as
 * backends "cuda", "cuda:1" .. are numbered; with CUDA_VISIBLE_DEVICES of one GPU, 0). A collective
 * call. Programs for that GPU run its collectives on a separate stream, concurrently with kernels;
 * NCCL chooses the order of sums, except under options.reproducible, where tc sums in the order of
 * ranks. base may be freed earlier. Without TC_CUDA: TC_ERR_UNSUPPORTED. TC_ERR_COMM: no NCCL, no
 * GPU, or it failed. */
TC_API tc_status tc_comm_nccl(tc_comm *base, int device, const tc_comm_options *options,
                              tc_comm **out);
/* The same with an existing ncclComm_t, whose ranks are those of base, in that order: it is neither
 * aborted nor freed here. */
TC_API tc_status tc_comm_of_nccl(void *nccl_comm, tc_comm *base, int device,
                                 const tc_comm_options *options, tc_comm **out);

/* ---- data parallel training ---- */

/* Grouping of gradients into collective operations. */
typedef struct tc_buckets {
    int64_t bytes; /* approximate size of a bucket; 0: 25 MiB */
    bool sum;      /* the sum over all ranks instead of the mean */
} tc_buckets;

/* tc_all_reduce_grads(comm, grads, n, &buckets, out): out[i] is the mean of grads[i] over all
 * ranks; float dtypes. Gradients that become ready consecutively share a bucket, whose operation
 * starts as soon as the last of them is computed, overlapping the rest of the backward pass. out
 * may be grads. buckets NULL: defaults. TC_ERR_ARGUMENT: NULL or n < 1; the first error of a
 * gradient, or of a collective (tc_error(out[0]) has the message). */
TC_API tc_status tc_all_reduce_grads_at(tc_comm *comm, const tc_tensor *grads, int n,
                                        const tc_buckets *buckets, tc_tensor *out, tc_site here);
#define tc_all_reduce_grads(comm, grads, n, buckets, out)                                          \
    tc_all_reduce_grads_at((comm), (grads), (n), (buckets), (out), TC_HERE)

/* Sharded optimizer state (ZeRO stages 1 and 2, arXiv 1910.02054): each rank updates its shard of
 * every parameter, and stores the optimizer state of that shard only.
 *
 *     tc_zero_shards(comm, params, n, shards);                        // once: this rank's parts
 *     tc_zero_grads(comm, grads, n, NULL, shard_grads);               // a reduce_scatter
 *     tc_adamw(shards, shard_grads, n, rate, NULL, effects, &k);      // any optimizer
 *     tc_zero_effects(comm, params, shards, n, NULL, effects, &k);    // an all_gather
 *
 * shards[i] is a parameter with this rank's ceil(count / ranks) elements of params[i], in row-major
 * order, the last one padded with zeros. All ranks must have equal parameters when the shards are
 * made. Optimizers that need whole matrices (tc_muon), or the norm of all gradients, see only a
 * shard. Errors as above, and of tc_param; also TC_ERR_ARGUMENT if tc_zero_effects finds a shard
 * that no effect assigns. */
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

/* ---- sharding: tensor parallel, data parallel and sharded parameters from annotations ----
 *
 *     tc_mesh mesh = {.comms = (tc_comm *[]){comm}, .n = 1};
 *     tc_tensor up = tc_shard(w1, &mesh, TC_OVER(TC_WHOLE, 0));       // columns
 *     tc_tensor down = tc_shard(w2, &mesh, TC_OVER(0, TC_WHOLE));     // rows
 *     tc_tensor y = tc_matmul(tc_gelu(tc_matmul(x, up)), down);       // over whole tensors
 *     tc_partition(&y, 1, &y);                                        // one all_reduce, in y
 *
 * A program is written over global (unsharded) tensors, gradients and updates included, and runs
 * unchanged on one process. tc_partition makes each rank's program from it. */

/* Device mesh: communicators as the axes of a grid of ranks: in a grid of 2 x 4 ranks each rank has
 * one of size 2 and one of size 4 (tc_comm_split). */
typedef struct tc_mesh {
    tc_comm *const *comms;
    int n;
} tc_mesh;
enum { TC_WHOLE = -1 }; /* an axis that is not sharded */
#define TC_OVER(...) ((const int[]){__VA_ARGS__})

/* Annotates x: axis d is split into equal shards over communicator axes[d] of the mesh, or not
 * (TC_WHOLE); rank r has shard r. axes has an entry for each axis of x. For an input or a parameter
 * this is the part that a rank holds, for another tensor the sharding in which it is stored. The
 * gradient has the same sharding. Without tc_partition the result is x. TC_ERR_SHAPE: a size is no
 * multiple of the ranks; TC_ERR_ARGUMENT: no such communicator, or one for two axes. */
TC_API tc_tensor tc_shard_at(tc_tensor x, const tc_mesh *mesh, const int *axes, tc_site here);
#define tc_shard(x, mesh, axes) tc_shard_at((x), (mesh), (axes), TC_HERE)

/* out[i]: tensors[i] as this rank computes it. An annotated input becomes an input of the shard's
 * shape, to be passed to tc_compile_fn; an annotated parameter becomes a parameter with a copy of
 * its shard (the same in each call; the global one is no longer needed), to which updates assign;
 * an annotated tensor is its shard; any other is replicated on every rank. Shardings propagate from
 * operands to results; a parameter without annotation is sharded as in an earlier call, else as the
 * value that is assigned to it: partition the training program first. Collectives are inserted
 * where a value is needed with another sharding. All ranks partition the same tensors in the same
 * order; out may be tensors. The communicators of the mesh then compare collectives only
 * (options.may_differ). Explicit collectives, custom ops and loops get replicated operands. Errors:
 * those of the handles; TC_ERR_COMM: a communicator was freed; TC_ERR_ARGUMENT: a parameter was
 * trained with another sharding, which tc does not convert (tc_error(out[0]) has the message). */
TC_API tc_status tc_partition_at(const tc_tensor *tensors, int n, tc_tensor *out, tc_site here);
#define tc_partition(tensors, n, out) tc_partition_at((tensors), (n), (out), TC_HERE)

/* Gathers sharded parameters only while they are used (FSDP): out[i] has the value of tensors[i],
 * but an all_gather of a parameter whose uses are far apart, as in a layer's forward and backward
 * pass, is repeated for each of them, so that the gathered parameter is freed in between, and it
 * starts when the result of the gather `ahead` + 1 positions earlier is first used: 1 gathers one
 * parameter ahead of its layer. Apply it to all outputs of a program at once, after tc_partition,
 * or to gathers written with tc_comm_all_gather. Errors: those of the
 * handles. */
TC_API tc_status tc_prefetch_at(const tc_tensor *tensors, int n, int ahead, tc_tensor *out,
                                tc_site here);
#define tc_prefetch(tensors, n, ahead, out) tc_prefetch_at((tensors), (n), (ahead), (out), TC_HERE)

/* ---- scaling prediction ---- */

/* Measures the link of a rank of the communicator: all_reduces of 8 bytes and of 16 MiB, and on a
 * device matrix products with and without concurrent all_reduces. A collective call that takes at
 * most a second; the cost model of tc_explain uses the result afterwards. backend: whose memory is
 * reduced ("cuda", ..); NULL: the default one. TC_ERR_COMM, TC_ERR_HANDLE,
 * TC_ERR_BACKEND, TC_ERR_MEMORY. */
TC_API tc_status tc_comm_measure(tc_comm *comm, const char *backend, tc_link *link);

/* Predicted times of a run: kernels by the cost model of the machine that the program was compiled
 * for, collectives by the alpha-beta model. */
typedef struct tc_simulation {
    double step_us;    /* of a run */
    double compute_us; /* of kernels */
    double comm_us;    /* of collectives, without overlap */
    double exposed_us; /* of the run: kernels wait for collectives, or are slower next to them */
    double slowed_us;  /* of these, slower */
    int collectives;
} tc_simulation;

/* Predicts the time of a run of f if communicator `scaled` has `ranks` ranks and all other
 * communicators keep theirs; scaled NULL: all communicators. Each rank computes the same as in f.
 * An all_gather is assumed to have the same result from more and smaller shards. machine NULL: the
 * links that tc_comm_measure found, or assumed ones, and one node.
 *
 *     const tc_cluster m = {.ranks_per_node = 8, .inner = {10, 300}, .outer = {20, 50}};
 *     for (int ranks = 8; ranks <= 1024; ranks *= 8) {
 *         tc_simulate(step, &m, NULL, ranks, &s);
 *         printf("%d ranks: %.0f us, %.0f exposed\n", ranks, s.step_us, s.exposed_us);
 *     }
 * TC_ERR_ARGUMENT: NULL, ranks < 1, or a rate that is not above 0; TC_ERR_HANDLE; TC_ERR_MEMORY. */
TC_API tc_status tc_simulate(const tc_program *f, const tc_cluster *machine, const tc_comm *scaled,
                             int ranks, tc_simulation *out);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
