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

/* Grouping of gradients into collective operations. */
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

/* ---- tensors in parts: tensor parallel, data parallel and sharded parameters from marks ----
 *
 *     tc_mesh mesh = {.comms = (tc_comm *[]){comm}, .n = 1};
 *     tc_tensor up = tc_shard(w1, &mesh, TC_OVER(TC_WHOLE, 0));       // columns
 *     tc_tensor down = tc_shard(w2, &mesh, TC_OVER(0, TC_WHOLE));     // rows
 *     tc_tensor y = tc_matmul(tc_gelu(tc_matmul(x, up)), down);       // over whole tensors
 *     tc_partition(&y, 1, &y);                                        // one all_reduce, in y
 *
 * A program is written over whole tensors, gradients and updates included, and runs as it is on one
 * process. tc_partition makes each rank's program of it. */

/* Communicators as the axes of a grid of ranks: of a grid of 2 x 4 ranks each has one of 2 and one
 * of 4 (tc_comm_split). */
typedef struct tc_mesh {
    tc_comm *const *comms;
    int n;
} tc_mesh;
enum { TC_WHOLE = -1 }; /* an axis that is not cut */
#define TC_OVER(...) ((const int[]){__VA_ARGS__})

/* x, marked: axis d is cut in equal parts over communicator axes[d] of the mesh, or not (TC_WHOLE);
 * rank r has part r. axes has an entry for each axis of x. Of an input or a parameter the mark says
 * what a rank has, of another tensor how it is kept. Its gradient has the same mark. Without
 * tc_partition it is x. TC_ERR_SHAPE: a size is no multiple of the ranks; TC_ERR_ARGUMENT: no such
 * communicator, or one for two axes. */
TC_API tc_tensor tc_shard_at(tc_tensor x, const tc_mesh *mesh, const int *axes, tc_site here);
#define tc_shard(x, mesh, axes) tc_shard_at((x), (mesh), (axes), TC_HERE)

/* out[i]: tensors[i] as this rank computes it. A marked input is one of its part's shape, to be
 * given to tc_compile_fn; a marked parameter is a parameter with a copy of its part (the same in
 * each call; the whole one is no longer needed), and an update assigns to that; a marked tensor is
 * its part; any other is whole, on every rank. Marks propagate from operands to results; a
 * parameter without a mark is cut as in an earlier call, else as what is assigned to it: partition
 * the program that trains first. Collectives are put in where a value is needed with another cut
 * than it has. All ranks partition the same tensors in the same order; out may be tensors. The
 * communicators of the marks then compare collectives alone (options.may_differ). A collective of
 * the user's, a custom op or a loop takes its operands whole. Errors: those of the handles;
 * TC_ERR_COMM: a communicator was freed; TC_ERR_ARGUMENT: a parameter was trained in parts with
 * another cut, from which tc does not make these (tc_error(out[0]) tells). */
TC_API tc_status tc_partition_at(const tc_tensor *tensors, int n, tc_tensor *out, tc_site here);
#define tc_partition(tensors, n, out) tc_partition_at((tensors), (n), (out), TC_HERE)

/* Sharded parameters that are whole only while they are used (FSDP): out[i] has the value of
 * tensors[i], but an all_gather of a parameter whose uses are far apart, as in a layer's forward
 * and backward pass, is made for each of them, so that the whole parameter is free in between, and
 * it starts when the values of the gather `ahead` + 1 places before it are first used: 1 gathers
 * one parameter ahead of its layer. Apply it to all outputs of a program at once, after
 * tc_partition, or where gathers were written with tc_comm_all_gather. Errors: those of the
 * handles. */
TC_API tc_status tc_prefetch_at(const tc_tensor *tensors, int n, int ahead, tc_tensor *out,
                                tc_site here);
#define tc_prefetch(tensors, n, ahead, out) tc_prefetch_at((tensors), (n), (ahead), (out), TC_HERE)

/* ---- larger machines ---- */

/* The link of a rank of the communicator, measured: all_reduces of 8 bytes and of 16 MiB, and on a
 * device matrix products with and without all_reduces at the same time. A collective call, of a
 * second or less; tc_explain's model uses it from then on. backend: whose
 * memory is reduced ("cuda", ..); NULL: the default one. TC_ERR_COMM, TC_ERR_HANDLE,
 * TC_ERR_BACKEND, TC_ERR_MEMORY. */
TC_API tc_status tc_comm_measure(tc_comm *comm, const char *backend, tc_link *link);

/* A run of a program by the model: kernels by the cost model of the machine that it was compiled
 * for, collectives by the alpha-beta model. */
typedef struct tc_simulation {
    double step_us;    /* of a run */
    double compute_us; /* of kernels */
    double comm_us;    /* of collectives, without overlap */
    double exposed_us; /* of the run: kernels wait for collectives, or are slower next to them */
    double slowed_us;  /* of these, slower */
    int collectives;
} tc_simulation;

/* Predicts the time of a run of f if communicator `scaled` has so many ranks and all other
 * communicators keep theirs; scaled NULL: all communicators. Each rank computes what it computes in
 * f. An all_gather is assumed to join the same whole from more and smaller parts. machine NULL: the
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
