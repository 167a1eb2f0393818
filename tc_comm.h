/* tc_comm.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_comm.h ---- */
/* src/tc_comm.h - amalgamation root of the optional header tc_comm.h: collectives over shared
 * memory, MPI and NCCL, and distributed training. Includes tc.h; the implementation is compiled
 * where TC_IMPLEMENTATION is defined. */
#ifndef TC_COMM_H
#define TC_COMM_H

#include "tc.h"

/* ---- src/comm/api.h ---- */
/* comm/api.h - public declarations of tc_comm.h: communicators from a launcher's environment, MPI
 * or NCCL; data parallel training, sharded parameters (ZeRO, FSDP), tensor parallel partitioning,
 * scaling prediction. The collectives themselves are in tc.h (api/comm.h). */
#ifndef TC_COMM_API_H
#define TC_COMM_API_H


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

#endif

#if defined(TC_IMPLEMENTATION) && !defined(TC_COMM_IMPLEMENTED)
#define TC_COMM_IMPLEMENTED

/* ---- src/base/impl_begin.h ---- */
/* base/impl_begin.h - opens the implementation section of an amalgamated header: strict floating
 * point, silenced warnings, POSIX declarations. Closed by base/impl_end.h.
 *
 * In: any compiler flags and warnings of the user's file. Out: a region with strict floating point,
 * without warnings, and with POSIX declared. The user's macros cannot collide: words in capitals
 * that the library uses begin with TC_ or TCI_, or are only pasted or stringized.
 *
 * Bit-identical results need strict floating point under all flags. GCC: the region has its own
 * optimize options. Clang: pragmas, which cannot undo -ffast-math, so that flag is refused.
 * Machines with excess precision are refused. Clang has no pragma for -fwrapv and
 * -fno-strict-aliasing, so the code relies on neither: signed sums do not overflow (the unit tests
 * are clean under Clang's UBSan; GCC's shows nothing, since -fwrapv turns its check off), and user
 * data of any type is moved by memcpy.
 *
 * The library is compiled again with each edit of the user's file, so compile time matters, and its
 * size is the user's. At -O0 the flags stay as they are. Otherwise it is optimised for size,
 * without those passes of GCC that take long and gain little; TCI_QUICK_BEGIN marks code that works
 * on elements and is optimised further. System headers (base/system_headers.h) come before the
 * change of options, so that their inline functions keep the user's options and can still be
 * inlined into the user's code. */

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#elif defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Waggregate-return"
#pragma GCC diagnostic ignored "-Warith-conversion"
#pragma GCC diagnostic ignored "-Wbad-function-cast"
#pragma GCC diagnostic ignored "-Wc++-compat"
#pragma GCC diagnostic ignored "-Wcast-align"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wclobbered"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wdate-time"
#pragma GCC diagnostic ignored "-Wdeclaration-after-statement"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wfloat-equal"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-truncation"
#pragma GCC diagnostic ignored "-Winline"
#pragma GCC diagnostic ignored "-Wjump-misses-init"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wnull-dereference"
#pragma GCC diagnostic ignored "-Woverlength-strings"
#pragma GCC diagnostic ignored "-Wpadded"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=const"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=noreturn"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=pure"
#pragma GCC diagnostic ignored "-Wswitch-default"
#pragma GCC diagnostic ignored "-Wswitch-enum"
#pragma GCC diagnostic ignored "-Wtraditional-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wunsuffixed-float-constants"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-macros"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wvla"
#endif


/* 16 and 32 widen only what is narrower than that many bits: _Float16, where a processor has it. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16 &&       \
    __FLT_EVAL_METHOD__ != 32
#error "tc: float and double must be evaluated in their own type (32-bit x86: -msse2 -mfpmath=sse)"
#endif

#if defined(__clang__)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "tc: compile the file with TC_IMPLEMENTATION without -ffast-math and -ffinite-math-only"
#endif
#pragma float_control(precise, on, push)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#endif
#pragma STDC FP_CONTRACT OFF

#elif defined(__GNUC__)
#pragma GCC push_options
#if defined(__OPTIMIZE__) && !defined(TCI_KEEP_OPTIMIZE)
#pragma GCC optimize("Os")
#pragma GCC optimize("no-tree-pre,no-code-hoisting,no-tree-vrp,no-tree-dominator-opts")
#pragma GCC optimize("no-tree-pta,no-ivopts,no-expensive-optimizations")
#pragma GCC optimize("no-schedule-insns2,no-rerun-cse-after-loop,no-cse-follow-jumps")
#pragma GCC optimize("no-ipa-cp,no-ipa-modref,no-ipa-sra,no-ipa-icf")
#pragma GCC optimize("no-tree-loop-optimize,no-tree-reassoc,no-tree-slsr,no-tree-sink,no-dse")
#pragma GCC optimize("no-if-conversion,no-if-conversion2,no-cprop-registers,no-shrink-wrap")
#endif
#pragma GCC optimize("fp-contract=off,no-fast-math,no-unsafe-math-optimizations")
#pragma GCC optimize("no-finite-math-only,no-associative-math,no-reciprocal-math,signed-zeros")
#pragma GCC optimize("trapping-math,no-cx-limited-range,wrapv,no-strict-aliasing")
#pragma GCC optimize("no-single-precision-constant")
#endif

/* ---- src/comm/host_reduce.c ---- */
/* comm/host_reduce.c - combines the operands of a reduction over ranks in host memory. Elements are
 * taken in blocks that stay in the nearest cache.
 *
 * min and max have the meaning of tc's own: a NaN wins. Integers wrap; bool is 0 or 1. */
/* ---- src/comm/host_reduce.h ---- */
/* comm/host_reduce.h - declares reductions over ranks whose operands are in host memory, for
 * communication engines. */
#ifndef TCI_COMM_HOST_REDUCE_H
#define TCI_COMM_HOST_REDUCE_H


/* n elements of each rank, in the order of ranks; those of a rank begin `stride` bytes after those
 * of the one before. f16 and bf16 in f32, rounded once. out may be one of the operands. */
TCI_FN void tci_comm_combine(tc_comm_how how, tc_dtype dtype, void *out, const void *in,
                             int64_t stride, int ranks, int64_t n);

#endif

/* ---- src/comm/host_reduce.c, continued ---- */
#include <string.h>

enum { TCI_COMBINE_BLOCK = 512 };

#define TCI_COMBINE_FUNCTION(name, T, SUM)                                                         \
    static void tci_combine_##name(tc_comm_how how, T *to, const T *from, int64_t n)               \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T a = to[i], b = from[i];                                                              \
            bool keeps = how == TC_COMM_MAX ? a > b || a != a : a < b || a != a;                   \
            to[i] = how == TC_COMM_SUM ? (T)(SUM) : keeps ? a : b;                                 \
        }                                                                                          \
    }
TCI_COMBINE_FUNCTION(f64, double, a + b)
TCI_COMBINE_FUNCTION(f32, float, a + b)
TCI_COMBINE_FUNCTION(u8, uint8_t, a + b)
TCI_COMBINE_FUNCTION(i8, int8_t, (uint8_t)a + (uint8_t)b)
TCI_COMBINE_FUNCTION(u16, uint16_t, a + b)
TCI_COMBINE_FUNCTION(i16, int16_t, (uint16_t)a + (uint16_t)b)
TCI_COMBINE_FUNCTION(u32, uint32_t, a + b)
TCI_COMBINE_FUNCTION(i32, int32_t, (uint32_t)a + (uint32_t)b)
TCI_COMBINE_FUNCTION(u64, uint64_t, a + b)
TCI_COMBINE_FUNCTION(i64, int64_t, (uint64_t)a + (uint64_t)b)
#undef TCI_COMBINE_FUNCTION

static void tci_combine_block(tc_comm_how how, tc_dtype t, void *to, const void *from, int64_t n)
{
    switch (t) {
#define TCI_CASE(id, name) case id: tci_combine_##name(how, to, from, n); break;
        TCI_CASE(TC_BOOL, u8)
        TCI_CASE(TC_U8, u8)
        TCI_CASE(TC_I8, i8)
        TCI_CASE(TC_U16, u16)
        TCI_CASE(TC_I16, i16)
        TCI_CASE(TC_U32, u32)
        TCI_CASE(TC_I32, i32)
        TCI_CASE(TC_U64, u64)
        TCI_CASE(TC_I64, i64)
        TCI_CASE(TC_F32, f32)
        TCI_CASE(TC_F64, f64)
#undef TCI_CASE
    case TC_F16: /* f32 here */
    case TC_BF16:
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
}

/* n elements of dtype t as `wide`, which is t or f32. */
static void tci_combine_load(tc_dtype t, tc_dtype wide, void *to, const char *from, int64_t n)
{
    if (t == wide) {
        memcpy(to, from, (size_t)(n * tc_dtype_size(t)));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        tci_value v = tci_value_load(t, from + i * tc_dtype_size(t));
        tci_value_store(wide, (char *)to + i * tc_dtype_size(wide), tci_value_cast(v, t, wide));
    }
}

TCI_FN void tci_comm_combine(tc_comm_how how, tc_dtype dtype, void *out, const void *in,
                             int64_t stride, int ranks, int64_t n)
{
    double sums[TCI_COMBINE_BLOCK], next[TCI_COMBINE_BLOCK]; /* of any dtype */
    const tc_dtype wide = tci_dtype_is_half(dtype) ? TC_F32 : dtype;
    const int64_t bytes = tc_dtype_size(dtype);
    for (int64_t at = 0; at < n; at += TCI_COMBINE_BLOCK) {
        int64_t m = TCI_MIN(n - at, (int64_t)TCI_COMBINE_BLOCK);
        tci_combine_load(dtype, wide, sums, (const char *)in + at * bytes, m);
        for (int r = 1; r < ranks; r++) {
            const char *from = (const char *)in + r * stride + at * bytes;
            if (wide != dtype) {
                tci_combine_load(dtype, wide, next, from, m);
                from = (const char *)next;
            }
            tci_combine_block(how, wide, sums, from, m);
        }
        tci_combine_load(wide, dtype, (char *)out + at * bytes, (const char *)sums, m);
    }
}
/* ---- src/comm/shm.c ---- */
/* comm/shm.c - collectives of processes on one host, over a mapped file.
 *
 * In: operations in the order that all ranks give them. Out: the results, or which rank failed.
 *
 * Design: each rank has two chunks of memory that all others can read and a counter of how
 * many it has filled (`posted`). An operation fills a chunk, raises the counter, waits until all
 * counters are as high, and reads. A rank that has raised its counter again has read what it needed
 * before, so a chunk may be filled when all counters have passed the one after it: with double
 * buffering one wait per chunk is enough. Sends have channels of their own, one for each ordered
 * pair of ranks.
 *
 * Reductions go in the order of ranks: each rank reduces its segment of a chunk, in place, and all
 * read the segments, so results have the same bits on all ranks, in each run.
 *
 * A thread of the communicator executes operations while kernels run; it exists from the first
 * start to the end of the communicator.
 *
 * Faults: each rank holds a record lock on its byte of the file, which the kernel drops when the
 * process dies, for whatever reason; a rank that waits for another checks its lock. The first rank
 * that finds a fault writes the reason into the file, where all others find it while they wait.
 * A descriptor of the current operation (tag, text) is stored next to the counters, so mismatched
 * collectives are detected.
 *
 * The file: rank 0 makes it under a name of its own and renames it to the one that follows from the
 * group; the others open that, check that rank 0 is alive, and take their slots; when all are there
 * it is removed. So a file that a killed group left behind is replaced, and never joined. */
/* ---- src/comm/shm.h ---- */
/* comm/shm.h - declares collectives of processes on one host through shared memory, without another
 * library. */
#ifndef TCI_COMM_SHM_H
#define TCI_COMM_SHM_H


typedef struct tci_shm tci_shm;

/* Identity of the ranks: `group` is a text that all of them, and no other processes at this time,
 * pass. */
typedef struct tci_shm_group {
    const char *group;
    int rank, size;
    int64_t join_ms, timeout_ms; /* until all have joined; of an operation */
} tci_shm_group;

/* Waits until all ranks are there. NULL: `why` has the reason (TC_COMM_WHY bytes). */
TCI_FN tci_shm *tci_shm_join(const tci_shm_group *g, char *why);
/* State: tci_shm. Size 1 is named "self". */
TCI_FN const tc_comm_engine *tci_shm_engine(int size);

#endif

/* ---- src/comm/shm.c, continued ---- */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>


enum {
    TCI_SHM_CHUNK = 256 << 10, /* bytes of one of a rank's two */
    TCI_SHM_PACKET = 32 << 10, /* bytes of one of a channel's two */
    TCI_SHM_WHAT = 120,
    TCI_SHM_LINE = 64,
    TCI_SHM_SPINS = 200,       /* looks before a rank sleeps */
    TCI_SHM_LOOK_NS = 5000000, /* between two looks whether others live */
    TCI_SHM_RANKS = 64
};
#define TCI_SHM_MAGIC 0x31306d6d6f636374u /* "tccomm01" */

typedef struct tci_shm_what {
    uint64_t sequence, tag;
    char text[TCI_SHM_WHAT]; /* "all_reduce at net.c:12" */
} tci_shm_what;

typedef struct tci_shm_slot { /* of a rank */
    uint64_t posted;          /* atomic: chunks */
    uint32_t joined;          /* atomic */
    tci_shm_what what[2];     /* of operations in turns */
} tci_shm_slot;

typedef struct tci_shm_packet {
    int64_t bytes; /* of the whole message */
    int32_t dtype;
    char text[TCI_SHM_WHAT];
    char data[TCI_SHM_PACKET];
} tci_shm_packet;

typedef struct tci_shm_channel { /* from one rank to another */
    uint64_t written, read;      /* atomic: packets */
    tci_shm_packet packets[2];
} tci_shm_channel;

typedef struct tci_shm_head {
    uint64_t magic, nonce;
    int32_t size;
    uint32_t joined; /* atomic: ranks */
    uint32_t broken; /* atomic: 0, 1 while `why` is written, 2 */
    char why[TC_COMM_WHY];
} tci_shm_head;

struct tci_shm {
    int rank, size, fd;
    int64_t timeout_ms;
    char *base;
    size_t bytes;
    uint64_t posted, chunks, sequence; /* counters of this rank */
    uint64_t sends, receives;          /* ranks (bits) to and from which channels have memory */
    tci_shm_head *head;
    uint32_t stopped;      /* atomic: abort was called here */
    char why[TC_COMM_WHY]; /* ... for this reason */
    tci_mutex lock;        /* of what follows */
    tci_cond changed;
    pthread_t thread;
    bool has_thread, ends, works;
    tc_comm_job *jobs[2 * TCI_SHM_RANKS]; /* started, in order, not done */
    int n_jobs;
    tc_status status; /* of the first that failed */
    char failed[TC_COMM_WHY];
};

/* ---- places in the file ---- */

static size_t tci_shm_round(size_t n)
{
    return (n + 4095) & ~(size_t)4095;
}

static size_t tci_shm_slots_at(void)
{
    return tci_shm_round(sizeof(tci_shm_head));
}
static size_t tci_shm_chunks_at(int size)
{
    return tci_shm_slots_at() + tci_shm_round((sizeof(tci_shm_slot) + TCI_SHM_LINE) * (size_t)size);
}
static size_t tci_shm_channels_at(int size)
{
    return tci_shm_chunks_at(size) + 2 * (size_t)TCI_SHM_CHUNK * (size_t)size;
}
static size_t tci_shm_bytes(int size)
{
    return tci_shm_channels_at(size) +
           tci_shm_round(sizeof(tci_shm_channel)) * (size_t)size * (size_t)size;
}

static tci_shm_slot *tci_shm_slot_of(const tci_shm *s, int rank)
{
    size_t line = (sizeof(tci_shm_slot) + TCI_SHM_LINE) / TCI_SHM_LINE * TCI_SHM_LINE;
    return (tci_shm_slot *)(void *)(s->base + tci_shm_slots_at() + line * (size_t)rank);
}

/* The chunk that a rank fills now. */
static char *tci_shm_chunk(const tci_shm *s, int rank)
{
    size_t at = 2 * (size_t)rank + (size_t)(s->chunks % 2);
    return s->base + tci_shm_chunks_at(s->size) + at * (size_t)TCI_SHM_CHUNK;
}

static tci_shm_channel *tci_shm_channel_of(const tci_shm *s, int from, int to)
{
    size_t at = (size_t)from * (size_t)s->size + (size_t)to;
    return (tci_shm_channel *)(void *)(s->base + tci_shm_channels_at(s->size) +
                                       at * tci_shm_round(sizeof(tci_shm_channel)));
}

/* ---- faults ---- */

/* Reports to all ranks; the first reason stays, and is what the caller fails with. */
static tc_status tci_shm_break(tci_shm *s, char *why)
{
    uint32_t whole = 0;
    if (__atomic_compare_exchange_n(&s->head->broken, &whole, 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        snprintf(s->head->why, sizeof(s->head->why), "%s", why);
        __atomic_store_n(&s->head->broken, 2, __ATOMIC_RELEASE);
    }
    return TC_ERR_COMM;
}

static bool tci_shm_is_broken(const tci_shm *s, char *why)
{
    if (__atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE)) {
        snprintf(why, TC_COMM_WHY, "%s", s->why);
        return true;
    }
    uint32_t broken = __atomic_load_n(&s->head->broken, __ATOMIC_ACQUIRE);
    for (int i = 0; broken == 1 && i < TCI_SHM_SPINS; i++) { /* unless its writer was killed */
        const struct timespec t = {0, 50000};
        nanosleep(&t, NULL);
        broken = __atomic_load_n(&s->head->broken, __ATOMIC_ACQUIRE);
    }
    if (broken == 2) {
        snprintf(why, TC_COMM_WHY, "%s", s->head->why);
    } else if (broken) {
        snprintf(why, TC_COMM_WHY, "another rank broke off");
    }
    return broken != 0;
}

/* True if a rank's process still holds its lock. */
static bool tci_shm_lives(const tci_shm *s, int rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return rank == s->rank || fcntl(s->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* ---- waiting ---- */

typedef struct tci_shm_waiter {
    int64_t begin_ns, limit_ms, look_ns;
    int looks, turn; /* turn: looks whether others live */
} tci_shm_waiter;

static tci_shm_waiter tci_shm_wait_begin(int64_t limit_ms)
{
    int64_t now = tci_os_now_ns();
    return (tci_shm_waiter){now, limit_ms, now + TCI_SHM_LOOK_NS, 0, 0};
}

static void tci_shm_pause(tci_shm_waiter *w)
{
    w->looks++;
    if (w->looks < TCI_SHM_SPINS) {
        sched_yield();
    } else {
        struct timespec t = {0, w->looks < 2 * TCI_SHM_SPINS ? 20000 : 200000};
        nanosleep(&t, NULL);
    }
}

/* Text of the last known operation of a rank. */
static const char *tci_shm_doing(const tci_shm *s, int rank, char text[TCI_SHM_WHAT])
{
    const tci_shm_slot *slot = tci_shm_slot_of(s, rank);
    const tci_shm_what *last = &slot->what[slot->what[1].sequence > slot->what[0].sequence];
    snprintf(text, TCI_SHM_WHAT, "%.100s", last->text[0] ? last->text : "no operation yet");
    return text;
}

/* One look of a rank that waits for another. TC_OK: go on waiting; else the caller looks once more
 * for what it waits for, which came before a process ended, and breaks. */
static tc_status tci_shm_look(tci_shm *s, tci_shm_waiter *w, int rank, char *why)
{
    char doing[TCI_SHM_WHAT];
    if (tci_shm_is_broken(s, why)) {
        return TC_ERR_COMM;
    }
    int64_t now = tci_os_now_ns();
    if (now < w->look_ns) {
        return TC_OK;
    }
    w->look_ns = now + TCI_SHM_LOOK_NS;
    w->turn++;
    if (!tci_shm_lives(s, rank)) {
        snprintf(why, TC_COMM_WHY,
                 "rank %d ended (its process exited or was killed); it was last "
                 "in %s",
                 rank, tci_shm_doing(s, rank, doing));
        return TC_ERR_COMM;
    }
    if (now - w->begin_ns > tci_comm_limit_ns(w->limit_ms)) {
        snprintf(why, TC_COMM_WHY, "rank %d did not come within %lld ms; it was last in %s", rank,
                 (long long)w->limit_ms, tci_shm_doing(s, rank, doing));
        return TC_ERR_COMM;
    }
    return TC_OK;
}

/* This rank's chunk is filled. Returns when those of all are. */
static tc_status tci_shm_post(tci_shm *s, int64_t limit_ms, char *why)
{
    s->posted++;
    __atomic_store_n(&tci_shm_slot_of(s, s->rank)->posted, s->posted, __ATOMIC_RELEASE);
    tci_shm_waiter w = tci_shm_wait_begin(limit_ms);
    for (int r = 0; r < s->size; r++) {
        const tci_shm_slot *slot = tci_shm_slot_of(s, r);
        while (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) < s->posted) {
            tc_status status = tci_shm_look(s, &w, r, why);
            bool late = __atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) >= s->posted;
            if (status && !late) {
                return tci_shm_break(s, why);
            }
            tci_shm_pause(&w);
        }
    }
    return TC_OK;
}

/* ---- operations of all ranks ---- */

/* An operation under way. */
typedef struct tci_shm_op {
    const tc_comm_job *job;
    int64_t limit_ms;
    uint64_t tag;
    bool compared;
} tci_shm_op;

static void tci_shm_begin(tci_shm *s, tci_shm_op *op)
{
    tci_shm_what *what = &tci_shm_slot_of(s, s->rank)->what[++s->sequence % 2];
    const tc_comm_job *j = op->job;
    op->tag = tci_hash_mix(tci_hash_mix((uint64_t)j->verb, (uint64_t)j->how),
                           tci_hash_mix((uint64_t)j->n, (uint64_t)j->dtype + 1000u) +
                               (uint64_t)j->peer);
    what->tag = op->tag;
    snprintf(what->text, sizeof(what->text), "%s of %lld %s at %s:%d", j->name, (long long)j->n,
             tc_dtype_name(j->dtype), j->site.file ? j->site.file : "?", j->site.line);
    __atomic_store_n(&what->sequence, s->sequence, __ATOMIC_RELEASE);
}

/* Fills, waits for all, and at the first time compares what the others do. */
static tc_status tci_shm_meet(tci_shm *s, tci_shm_op *op, char *why)
{
    tc_status status = tci_shm_post(s, op->limit_ms, why);
    for (int r = 0; r < s->size && !status && !op->compared; r++) {
        const tci_shm_what *what = &tci_shm_slot_of(s, r)->what[s->sequence % 2];
        if (what->tag != op->tag) {
            snprintf(why, TC_COMM_WHY, "rank %d is in %s, rank %d in %s", s->rank,
                     tci_shm_slot_of(s, s->rank)->what[s->sequence % 2].text, r, what->text);
            status = tci_shm_break(s, why);
        }
    }
    op->compared = true;
    return status;
}

/* [0, n) of a chunk in one segment for each rank. */
static int64_t tci_shm_cut(const tci_shm *s, int64_t n, int rank)
{
    return n * rank / s->size;
}

/* Segment [from, to) of elements of this chunk, which all ranks have filled, reduced to `out`. */
static void tci_shm_fold(const tci_shm *s, const tc_comm_job *j, int64_t from, int64_t n, void *out)
{
    tci_comm_combine(j->how, j->dtype, out, tci_shm_chunk(s, 0) + from * tc_dtype_size(j->dtype),
                     2 * (int64_t)TCI_SHM_CHUNK, s->size, n);
}

static tc_status tci_shm_all_reduce(tci_shm *s, tci_shm_op *op, char *why)
{
    const tc_comm_job *j = op->job;
    const int64_t bytes = tc_dtype_size(j->dtype), most = TCI_SHM_CHUNK / bytes;
    tc_status status = TC_OK;
    for (int64_t at = 0; at < j->n && !status; at += most) {
        int64_t n = TCI_MIN(most, j->n - at);
        char *own = tci_shm_chunk(s, s->rank);
        memcpy(own, (const char *)j->in + at * bytes, (size_t)(n * bytes));
        status = tci_shm_meet(s, op, why);
        int64_t from = tci_shm_cut(s, n, s->rank), to = tci_shm_cut(s, n, s->rank + 1);
        if (!status) {
            tci_shm_fold(s, j, from, to - from, own + from * bytes);
            status = tci_shm_meet(s, op, why);
        }
        for (int r = 0; r < s->size && !status; r++) {
            from = tci_shm_cut(s, n, r);
            to = tci_shm_cut(s, n, r + 1);
            memcpy((char *)j->out + (at + from) * bytes, tci_shm_chunk(s, r) + from * bytes,
                   (size_t)((to - from) * bytes));
        }
        s->chunks++;
    }
    return status;
}

/* Rank r's bytes to out + r * stride of all; of a broadcast only the root's, to out. */
static tc_status tci_shm_spread(tci_shm *s, tci_shm_op *op, int64_t bytes, int root, char *why)
{
    const tc_comm_job *j = op->job;
    tc_status status = TC_OK;
    for (int64_t at = 0; at < bytes && !status; at += TCI_SHM_CHUNK) {
        size_t n = (size_t)TCI_MIN((int64_t)TCI_SHM_CHUNK, bytes - at);
        if (root < 0 || root == s->rank) {
            memcpy(tci_shm_chunk(s, s->rank), (const char *)j->in + at, n);
        }
        status = tci_shm_meet(s, op, why);
        for (int r = 0; r < s->size && !status; r++) {
            char *to = (char *)j->out + (root < 0 ? r * bytes : 0) + at;
            if (root < 0 || root == r) {
                memcpy(to, tci_shm_chunk(s, r), n);
            }
        }
        s->chunks++;
    }
    return status;
}

/* A part for each rank: reduced, or as they are. */
static tc_status tci_shm_parts(tci_shm *s, tci_shm_op *op, char *why)
{
    const tc_comm_job *j = op->job;
    const int64_t bytes = tc_dtype_size(j->dtype), part = j->n / s->size;
    const int64_t most = TCI_SHM_CHUNK / bytes / s->size;
    tc_status status = TC_OK;
    for (int64_t at = 0; at < part && !status; at += most) {
        int64_t n = TCI_MIN(most, part - at);
        for (int r = 0; r < s->size; r++) {
            memcpy(tci_shm_chunk(s, s->rank) + r * n * bytes,
                   (const char *)j->in + (r * part + at) * bytes, (size_t)(n * bytes));
        }
        status = tci_shm_meet(s, op, why);
        if (!status && j->verb == TC_COMM_REDUCE_SCATTER) {
            tci_shm_fold(s, j, s->rank * n, n, (char *)j->out + at * bytes);
        }
        for (int r = 0; r < s->size && !status && j->verb == TC_COMM_ALL_TO_ALL; r++) {
            memcpy((char *)j->out + (r * part + at) * bytes,
                   tci_shm_chunk(s, r) + s->rank * n * bytes, (size_t)(n * bytes));
        }
        s->chunks++;
    }
    return status;
}

static tc_status tci_shm_all(tci_shm *s, const tc_comm_job *j, int64_t limit_ms, char *why)
{
    tci_shm_op op = {.job = j, .limit_ms = limit_ms};
    tc_status status = TC_OK;
    tci_shm_begin(s, &op);
    switch (j->verb) {
    case TC_COMM_ALL_REDUCE: status = tci_shm_all_reduce(s, &op, why); break;
    case TC_COMM_ALL_GATHER:
        status = tci_shm_spread(s, &op, j->n * tc_dtype_size(j->dtype), -1, why);
        break;
    case TC_COMM_BROADCAST:
        status = tci_shm_spread(s, &op, j->n * tc_dtype_size(j->dtype), j->peer, why);
        break;
    case TC_COMM_REDUCE_SCATTER:
    case TC_COMM_ALL_TO_ALL: status = tci_shm_parts(s, &op, why); break;
    case TC_COMM_BARRIER:
    case TC_COMM_SEND:
    case TC_COMM_RECV:
    case TC_COMM_VERB_COUNT: break;
    }
    if (!status && !op.compared) { /* a barrier, and what has no elements */
        status = tci_shm_meet(s, &op, why);
        s->chunks++;
    }
    return status;
}

/* ---- sends ---- */

/* Allocates a range of the file: a full file system is an error here, not a SIGBUS later. */
static int tci_shm_reserve(int fd, size_t at, size_t bytes)
{
    int code = 0;
#ifdef __linux__
    do {
        code = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    } while (code == EINTR);
#else
    (void)fd, (void)at, (void)bytes;
#endif
    return code;
}

/* Channels get memory when they are used first, as few are. */
static bool tci_shm_need_channel(tci_shm *s, const tc_comm_job *j, const tci_shm_channel *c,
                                 char *why)
{
    uint64_t *had = j->verb == TC_COMM_SEND ? &s->sends : &s->receives;
    const uint64_t peer = (uint64_t)1 << j->peer;
    const size_t at = (size_t)((const char *)c - s->base);
    int code = *had & peer ? 0 : tci_shm_reserve(s->fd, at, sizeof(*c));
    if (code) {
        snprintf(why, TC_COMM_WHY, "%zu bytes of shared memory for messages of ranks %d and %d: %s",
                 sizeof(*c), s->rank, j->peer, strerror(code));
    }
    *had |= code ? 0 : peer;
    return code == 0;
}

static bool tci_shm_fits(const tci_shm *s, const tc_comm_job *j, const tci_shm_packet *p, char *why)
{
    const int64_t bytes = j->n * tc_dtype_size(j->dtype);
    bool fits = p->bytes == bytes && p->dtype == (int32_t)j->dtype;
    if (!fits) {
        snprintf(why, TC_COMM_WHY, "rank %d sends %s, rank %d receives %lld bytes (%s)", j->peer,
                 p->text, s->rank, (long long)bytes, tc_dtype_name(j->dtype));
    }
    return fits;
}

static void tci_shm_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0) { /* else there may be no memory */
        memcpy(to, from, (size_t)bytes);
    }
}

/* Advances a send or receive, whose progress in bytes is in job->engine_data. Returns whether
 * anything was done. */
static bool tci_shm_pair_step(tci_shm *s, tc_comm_job *j, tc_status *status, char *why)
{
    bool sends = j->verb == TC_COMM_SEND;
    tci_shm_channel *c = sends ? tci_shm_channel_of(s, s->rank, j->peer)
                               : tci_shm_channel_of(s, j->peer, s->rank);
    int64_t bytes = j->n * tc_dtype_size(j->dtype), at = (int64_t)(intptr_t)j->engine_data;
    if (!tci_shm_need_channel(s, j, c, why)) {
        *status = tci_shm_break(s, why);
        return false;
    }
    uint64_t written = __atomic_load_n(&c->written, __ATOMIC_ACQUIRE);
    uint64_t read = __atomic_load_n(&c->read, __ATOMIC_ACQUIRE);
    if (sends ? written - read == 2 : written == read) {
        return false;
    }
    tci_shm_packet *p = &c->packets[(sends ? written : read) % 2];
    int64_t n = TCI_MIN((int64_t)TCI_SHM_PACKET, bytes - at);
    if (sends) {
        p->bytes = bytes;
        p->dtype = (int32_t)j->dtype;
        snprintf(p->text, sizeof(p->text), "%lld bytes (%s) at %s:%d", (long long)bytes,
                 tc_dtype_name(j->dtype), j->site.file ? j->site.file : "?", j->site.line);
        tci_shm_copy(p->data, (const char *)j->in + at, n);
        __atomic_store_n(&c->written, written + 1, __ATOMIC_RELEASE);
    } else if (!tci_shm_fits(s, j, p, why)) {
        *status = tci_shm_break(s, why);
        return false;
    } else {
        tci_shm_copy((char *)j->out + at, p->data, n);
        __atomic_store_n(&c->read, read + 1, __ATOMIC_RELEASE);
    }
    j->engine_data = (void *)(intptr_t)(at + n);
    j->done = at + n == bytes;
    if (j->done && sends) {
        tci_shm_copy(j->out, j->in, bytes);
    }
    return true;
}

/* Takes a job off the list: its memory is the caller's again. The lock is held. */
static void tci_shm_drop(tci_shm *s, const tc_comm_job *job)
{
    int at = 0;
    while (at < s->n_jobs && s->jobs[at] != job) {
        at++;
    }
    if (at < s->n_jobs) {
        s->n_jobs--;
        memmove(s->jobs + at, s->jobs + at + 1, sizeof(*s->jobs) * (size_t)(s->n_jobs - at));
    }
    pthread_cond_broadcast(&s->changed);
}

/* The sends and receives that were begun before any other operation: more may come at any time. */
static int tci_shm_take_pairs(tci_shm *s, tc_comm_job **jobs)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    while (n < s->n_jobs && tci_comm_verb_is_pair(s->jobs[n]->verb)) {
        jobs[n] = s->jobs[n];
        n++;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* True if none of the jobs before i is of the same channel: messages keep their order. */
static bool tci_shm_is_next(tc_comm_job *const *jobs, int i)
{
    for (int k = 0; k < i; k++) {
        if (jobs[k]->verb == jobs[i]->verb && jobs[k]->peer == jobs[i]->peer) {
            return false;
        }
    }
    return true;
}

/* These side by side until one of them is done, in any order: a rank may wait for a send while a
 * receive that was begun before it is not due. */
static tc_status tci_shm_pairs(tci_shm *s, char *why)
{
    tci_shm_waiter w = tci_shm_wait_begin(s->timeout_ms);
    tc_comm_job *jobs[2 * TCI_SHM_RANKS], *done = NULL;
    tc_status status = TC_OK, last = TC_OK;
    while (!done && !status) {
        const int n = tci_shm_take_pairs(s, jobs);
        bool moved = false;
        for (int i = 0; i < n && !status && !done; i++) {
            moved |= tci_shm_is_next(jobs, i) && tci_shm_pair_step(s, jobs[i], &status, why);
            done = jobs[i]->done ? jobs[i] : NULL;
        }
        if (moved) {
            w = tci_shm_wait_begin(s->timeout_ms);
        } else if (last) {
            status = tci_shm_break(s, why);
        } else if (!status) {
            last = tci_shm_look(s, &w, jobs[w.turn % n]->peer, why);
            tci_shm_pause(&w);
        }
        last = moved ? TC_OK : last;
    }
    pthread_mutex_lock(&s->lock);
    tci_shm_drop(s, done);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- jobs ---- */

/* Executes the first job, or one of the sends and receives at the front, and drops it. The lock is
 * held except during the execution, in which no other thread touches the job. */
static void tci_shm_do_first(tci_shm *s)
{
    tc_comm_job *job = s->jobs[0];
    const bool pair = tci_comm_verb_is_pair(job->verb);
    char why[TC_COMM_WHY] = "";
    s->works = true;
    pthread_mutex_unlock(&s->lock);
    tc_status status = pair ? tci_shm_pairs(s, why) : tci_shm_all(s, job, s->timeout_ms, why);
    pthread_mutex_lock(&s->lock);
    s->works = false;
    if (!pair) {
        job->done = true;
        tci_shm_drop(s, job);
    }
    if (status && !s->status) {
        s->status = status;
        snprintf(s->failed, sizeof(s->failed), "%s", why);
    }
    pthread_cond_broadcast(&s->changed);
}

static void *tci_shm_work(void *state)
{
    tci_shm *s = state;
    pthread_mutex_lock(&s->lock);
    while (!s->ends) {
        if (s->n_jobs && !s->status) {
            tci_shm_do_first(s);
        } else {
            pthread_cond_wait(&s->changed, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals of the process go to other threads. Without a thread, who waits does the work. */
static void tci_shm_need_thread(tci_shm *s)
{
    sigset_t all, before;
    if (s->has_thread || s->size == 1) {
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->has_thread = pthread_create(&s->thread, NULL, tci_shm_work, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- the engine ---- */

static tc_status tci_shm_start(void *state, tc_comm_job *job, char *why)
{
    tci_shm *s = state;
    pthread_mutex_lock(&s->lock);
    tci_shm_need_thread(s);
    while (s->n_jobs == (int)TCI_COUNT(s->jobs) && !s->status && s->has_thread) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    while (s->n_jobs == (int)TCI_COUNT(s->jobs) && !s->status) {
        tci_shm_do_first(s);
    }
    tc_status status = s->status;
    if (status) {
        snprintf(why, TC_COMM_WHY, "%s", s->failed);
    } else {
        s->jobs[s->n_jobs++] = job;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static tc_status tci_shm_wait(void *state, tc_comm_job *job, char *why)
{
    tci_shm *s = state;
    pthread_mutex_lock(&s->lock);
    bool waits = true;
    while (waits && !s->status) {
        waits = false;
        for (int i = 0; i < s->n_jobs; i++) {
            waits = waits || s->jobs[i] == job;
        }
        if (waits && s->has_thread) {
            pthread_cond_wait(&s->changed, &s->lock);
        } else if (waits) {
            tci_shm_do_first(s);
        }
    }
    tc_status status = s->status;
    if (status) {
        snprintf(why, TC_COMM_WHY, "%s", s->failed);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static tc_status tci_shm_exchange(void *state, const void *mine, void *all, int64_t bytes,
                                  int64_t limit_ms, const char *what, char *why)
{
    tci_shm *s = state;
    tc_comm_job job = {.verb = TC_COMM_ALL_GATHER,
                       .dtype = TC_U8,
                       .n = bytes,
                       .in = mine,
                       .out = all,
                       .name = what,
                       .number = -1};
    return tci_shm_all(s, &job, limit_ms, why); /* no job is under way between runs */
}

static void tci_shm_abort(void *state, const char *why)
{
    tci_shm *s = state;
    char text[TC_COMM_WHY];
    snprintf(text, sizeof(text), "rank %d ended it: %.180s", s->rank, why);
    tci_shm_break(s, text);
    snprintf(s->why, sizeof(s->why), "%.250s", why);
    __atomic_store_n(&s->stopped, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&s->lock);
    if (!s->status) {
        s->status = TC_ERR_COMM;
        snprintf(s->failed, sizeof(s->failed), "%s", s->why);
    }
    pthread_cond_broadcast(&s->changed); /* a job that no thread began is waited for no longer */
    while (s->works) {                   /* until the memory of its job is left alone */
        pthread_cond_wait(&s->changed, &s->lock);
    }
    s->n_jobs = 0;
    pthread_mutex_unlock(&s->lock);
}

static tc_status tci_shm_look_around(void *state, char *why)
{
    tci_shm *s = state;
    char doing[TCI_SHM_WHAT];
    for (int r = 0; r < s->size; r++) {
        if (!tci_shm_lives(s, r)) {
            snprintf(why, TC_COMM_WHY, "rank %d ended; it was last in %s", r,
                     tci_shm_doing(s, r, doing));
            return TC_ERR_COMM;
        }
    }
    return tci_shm_is_broken(s, why) ? TC_ERR_COMM : TC_OK;
}

static void tci_shm_free(void *state)
{
    tci_shm *s = state;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->ends = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    if (s->base) {
        munmap(s->base, s->bytes);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    tci_heap_free(s);
}

/* ---- joining ---- */

enum { TCI_SHM_PATH = 256 };

static bool tci_shm_lock(const tci_shm *s)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = s->rank, .l_len = 1};
    return fcntl(s->fd, F_SETLK, &lock) == 0;
}

static bool tci_shm_map(tci_shm *s)
{
    void *memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    s->base = memory == MAP_FAILED ? NULL : memory;
    s->head = (tci_shm_head *)memory;
    return s->base != NULL;
}

/* Where files go that are memory. */
static const char *tci_shm_folder(void)
{
    const char *other = tci_os_getenv("TMPDIR");
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : other && other[0] == '/' ? other : "/tmp";
}

/* False: the folder's name is too long. */
static bool tci_shm_name(char path[TCI_SHM_PATH], const char *group, char *why)
{
    tci_hash h = tci_hash_bytes(group, strlen(group));
    int n = snprintf(path, TCI_SHM_PATH, "%s/tc-comm-%ld-%016llx", tci_shm_folder(),
                     (long)geteuid(), (unsigned long long)h.lo);
    if (n >= TCI_SHM_PATH) {
        snprintf(why, TC_COMM_WHY, "TMPDIR is longer than %d bytes", TCI_SHM_PATH - 64);
    }
    return n < TCI_SHM_PATH;
}

/* Rank 0's: a new file, complete and locked before others can see it. */
static bool tci_shm_make(tci_shm *s, const char *path, char *why)
{
    char own[TCI_SHM_PATH + 32];
    snprintf(own, sizeof(own), "%s.%016llx", path, (unsigned long long)tci_os_random());
    s->fd = open(own, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int code = s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes) ? errno : 0;
    code = code ? code : tci_shm_reserve(s->fd, 0, tci_shm_channels_at(s->size));
    bool made = s->fd >= 0 && !code && tci_shm_map(s) && tci_shm_lock(s);
    if (made) {
        s->head->nonce = tci_os_random();
        s->head->size = s->size;
        tci_shm_slot_of(s, 0)->joined = 1;
        s->head->joined = 1;
        __atomic_store_n(&s->head->magic, TCI_SHM_MAGIC, __ATOMIC_RELEASE);
        made = rename(own, path) == 0;
    }
    if (!made) {
        code = code ? code : errno;
        snprintf(why, TC_COMM_WHY, "%zu bytes of shared memory at %.120s: %s", s->bytes, own,
                 strerror(code));
        if (s->fd >= 0) {
            unlink(own);
        }
    }
    return made;
}

/* Lets go of a file that was not the group's. */
static void tci_shm_let_go(tci_shm *s)
{
    if (s->base) {
        munmap(s->base, s->bytes);
    }
    close(s->fd);
    s->base = NULL;
    s->fd = -1;
}

/* For ranks other than 0: true if the file is of a group that lives and whose place is free. */
static bool tci_shm_open(tci_shm *s, const char *path)
{
    struct stat st;
    s->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0) {
        return false;
    }
    bool fits = fstat(s->fd, &st) == 0 && st.st_uid == geteuid() &&
                (size_t)st.st_size == s->bytes && tci_shm_map(s) &&
                __atomic_load_n(&s->head->magic, __ATOMIC_ACQUIRE) == TCI_SHM_MAGIC &&
                s->head->size == s->size && tci_shm_lives(s, 0) && tci_shm_lock(s);
    uint32_t free = 0;
    fits = fits && __atomic_compare_exchange_n(&tci_shm_slot_of(s, s->rank)->joined, &free, 1,
                                               false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    if (!fits) {
        tci_shm_let_go(s);
        return false;
    }
    __atomic_add_fetch(&s->head->joined, 1, __ATOMIC_ACQ_REL);
    return true;
}

static void tci_shm_missing(const tci_shm *s, int64_t ms, char *why)
{
    int r = 1;
    while (s->base && r < s->size - 1 && tci_shm_slot_of(s, r)->joined) {
        r++;
    }
    r = s->base ? r : 0;
    snprintf(why, TC_COMM_WHY, "rank %d did not join within %lld ms (rank %d of %d waited)", r,
             (long long)ms, s->rank, s->size);
}

/* Waits until all are there. */
static bool tci_shm_gather(tci_shm *s, const char *path, int64_t limit_ms, char *why)
{
    tci_shm_waiter w = tci_shm_wait_begin(limit_ms);
    while (s->fd < 0 || __atomic_load_n(&s->head->joined, __ATOMIC_ACQUIRE) < (uint32_t)s->size) {
        if (tci_os_now_ns() - w.begin_ns > tci_comm_limit_ns(limit_ms)) {
            tci_shm_missing(s, limit_ms, why);
            return false;
        }
        if (s->fd < 0) {
            tci_shm_open(s, path);
        } else if (!tci_shm_lives(s, 0)) { /* it was about to end: its successor comes */
            tci_shm_let_go(s);
        }
        tci_shm_pause(&w);
    }
    return true;
}

static tci_shm *tci_shm_new(const tci_shm_group *g)
{
    tci_shm *s = tci_heap_get(sizeof(*s));
    if (s) {
        *s = (tci_shm){.rank = g->rank, .size = g->size, .fd = -1, .timeout_ms = g->timeout_ms};
        s->bytes = tci_shm_bytes(g->size);
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->changed, NULL);
    }
    return s;
}

/* One rank has the same memory to itself. */
static bool tci_shm_alone(tci_shm *s, char *why)
{
    void *memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->base = memory == MAP_FAILED ? NULL : memory;
    s->head = (tci_shm_head *)memory;
    if (!s->base) {
        snprintf(why, TC_COMM_WHY, "out of memory");
    }
    return s->base != NULL;
}

TCI_FN tci_shm *tci_shm_join(const tci_shm_group *g, char *why)
{
    char path[TCI_SHM_PATH];
    if (g->size > TCI_SHM_RANKS) {
        snprintf(why, TC_COMM_WHY, "%d ranks in shared memory, expected at most %d: use MPI",
                 g->size, (int)TCI_SHM_RANKS);
        return NULL;
    }
    tci_shm *s = tci_shm_new(g);
    if (!s) {
        snprintf(why, TC_COMM_WHY, "out of memory");
        return NULL;
    }
    bool joined = s->size == 1                         ? tci_shm_alone(s, why)
                  : !tci_shm_name(path, g->group, why) ? false
                  : s->rank == 0                       ? tci_shm_make(s, path, why)
                                                       : true;
    if (joined && s->size > 1) {
        joined = tci_shm_gather(s, path, g->join_ms, why);
        if (s->rank == 0) {
            unlink(path);
        }
    }
    if (!joined) {
        tci_shm_free(s);
        return NULL;
    }
    return s;
}

/* ---- split ---- */

typedef struct tci_shm_choice {
    int32_t color, key;
    uint64_t nonce;
} tci_shm_choice;

/* A group of its own for each color, named by what its first rank chose at random. */
static tc_status tci_shm_split(void *state, int color, int key, void **out, int *rank, int *size,
                               char *why)
{
    tci_shm *s = state;
    tci_shm_choice mine = {color, key, tci_os_random()}, all[TCI_SHM_RANKS];
    tc_status status = tci_shm_exchange(s, &mine, all, sizeof(mine), s->timeout_ms, "tc_comm_split",
                                        why);
    int first = -1;
    *out = NULL;
    *rank = *size = 0;
    if (status || color < 0) {
        return status;
    }
    for (int r = 0; r < s->size; r++) {
        if (all[r].color == color) {
            first = first < 0 ? r : first;
            ++*size;
            *rank += all[r].key < key || (all[r].key == key && r < s->rank);
        }
    }
    char group[64];
    snprintf(group, sizeof(group), "split %016llx", (unsigned long long)all[first].nonce);
    const tci_shm_group g = {group, *rank, *size, s->timeout_ms, s->timeout_ms};
    *out = tci_shm_join(&g, why);
    return *out ? TC_OK : TC_ERR_COMM;
}

TCI_FN const tc_comm_engine *tci_shm_engine(int size)
{
#define TCI_SHM_ENGINE(name)                                                                       \
    {name,          NULL,         tci_shm_start, tci_shm_wait, tci_shm_exchange,    tci_shm_split, \
     tci_shm_abort, tci_shm_free, NULL,          NULL,         tci_shm_look_around, false}
    static const tc_comm_engine many = TCI_SHM_ENGINE("shm"), one = TCI_SHM_ENGINE("self");
#undef TCI_SHM_ENGINE
    return size == 1 ? &one : &many;
}
/* ---- src/comm/launcher_env.c ---- */
/* comm/launcher_env.c - reads rank, world size and local rank from the environment variables of
 * launchers: one row per launcher, the first whose rank variable is set applies. */
/* ---- src/comm/launcher_env.h ---- */
/* comm/launcher_env.h - rank, world size and local rank from the environment variables of
 * launchers (Open MPI, MPICH and Slurm, torchrun). */
#ifndef TCI_COMM_LAUNCHER_ENV_H
#define TCI_COMM_LAUNCHER_ENV_H


enum { TCI_LAUNCH_TEXT = 256 };
typedef struct tci_launch_group {
    int rank, size, local_rank;
    int local_size;              /* ranks on this host; 0: not known */
    bool is_mpi;                 /* a launcher of MPI started the process */
    bool is_local;               /* all ranks are on this host */
    char group[TCI_LAUNCH_TEXT]; /* the same for all ranks, and no other group at this time */
} tci_launch_group;

/* False: a variable is not what it should be, `why` (TC_COMM_WHY bytes) says which. */
TCI_FN bool tci_launch_read(tci_launch_group *g, char *why);

#endif


/* ---- src/comm/launcher_env.c, continued ---- */
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
/* ---- src/comm/mpi.c ---- */
/* comm/mpi.c - collectives through MPI, whose library is opened at run time.
 *
 * In: operations. Out: nonblocking MPI calls, and tests of their requests until the time limit.
 *
 * One binary serves three binary interfaces: Open MPI, whose handles are addresses of symbols of
 * the library; MPICH, whose handles are ints; and the standard ABI of MPI 5. An int handle is
 * passed in place of a pointer, which is the same register or stack slot in the calling
 * conventions of 64-bit Linux; where MPI writes a handle there is room for a pointer that was zero.
 * MPI has no f16 and bf16: these are gathered and summed here, in f32, in the order of ranks. For
 * all other dtypes MPI chooses the reduction order.
 *
 * MPI makes progress inside its calls, so a started operation progresses while the program waits in
 * MPI, otherwise only if the library has asynchronous progress. If a rank dies, mpirun terminates
 * all ranks.
 *
 * MPI cannot cancel a collective. After a timeout its buffers may be reused, so MPI is never called
 * again, for any communicator: any call could progress the pending operation. */
/* ---- src/comm/mpi.h ---- */
/* comm/mpi.h - declares collectives through MPI, whose library is opened at run time. */
#ifndef TCI_COMM_MPI_H
#define TCI_COMM_MPI_H


/* All ranks that mpirun started; initializes MPI unless the process did. */
TCI_FN tc_status tci_mpi_world(const tc_comm_options *options, tc_comm **out, char *why);

#endif

/* ---- src/comm/mpi.c, continued ---- */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>


typedef void *tci_mpi_handle;

/* X(result, name, arguments) */
#define TCI_MPI_FUNCTIONS(X)                                                                       \
    X(Init_thread, (int *, char ***, int, int *))                                                  \
    X(Initialized, (int *))                                                                        \
    X(Finalized, (int *))                                                                          \
    X(Finalize, (void))                                                                            \
    X(Comm_rank, (tci_mpi_handle, int *))                                                          \
    X(Comm_size, (tci_mpi_handle, int *))                                                          \
    X(Comm_dup, (tci_mpi_handle, tci_mpi_handle *))                                                \
    X(Comm_split, (tci_mpi_handle, int, int, tci_mpi_handle *))                                    \
    X(Comm_free, (tci_mpi_handle *))                                                               \
    X(Comm_set_errhandler, (tci_mpi_handle, tci_mpi_handle))                                       \
    X(Error_string, (int, char *, int *))                                                          \
    X(Test, (tci_mpi_handle *, int *, void *))                                                     \
    X(Ibarrier, (tci_mpi_handle, tci_mpi_handle *))                                                \
    X(Ibcast, (void *, int, tci_mpi_handle, int, tci_mpi_handle, tci_mpi_handle *))                \
    X(Iallreduce, (const void *, void *, int, tci_mpi_handle, tci_mpi_handle, tci_mpi_handle,      \
                   tci_mpi_handle *))                                                              \
    X(Ireduce_scatter_block, (const void *, void *, int, tci_mpi_handle, tci_mpi_handle,           \
                              tci_mpi_handle, tci_mpi_handle *))                                   \
    X(Iallgather, (const void *, int, tci_mpi_handle, void *, int, tci_mpi_handle,                 \
                   tci_mpi_handle, tci_mpi_handle *))                                              \
    X(Ialltoall, (const void *, int, tci_mpi_handle, void *, int, tci_mpi_handle, tci_mpi_handle,  \
                  tci_mpi_handle *))                                                               \
    X(Isend, (const void *, int, tci_mpi_handle, int, int, tci_mpi_handle, tci_mpi_handle *))      \
    X(Irecv, (void *, int, tci_mpi_handle, int, int, tci_mpi_handle, tci_mpi_handle *))

/* The kinds of interface, and in which column of the handles below they are. */
typedef enum tci_mpi_kind { TCI_MPI_OPEN, TCI_MPI_MPICH, TCI_MPI_STANDARD } tci_mpi_kind;

/* X(id, Open MPI's symbol, MPICH's handle, that of the standard) */
#define TCI_MPI_HANDLES(X)                                                                         \
    X(WORLD, "ompi_mpi_comm_world", 0x44000000, 0x101)                                             \
    X(ERRORS_RETURN, "ompi_mpi_errors_return", 0x54000001, 0x143)                                  \
    X(SUM, "ompi_mpi_op_sum", 0x58000003, 0x21)                                                    \
    X(MIN, "ompi_mpi_op_min", 0x58000002, 0x22)                                                    \
    X(MAX, "ompi_mpi_op_max", 0x58000001, 0x23)                                                    \
    X(BYTE, "ompi_mpi_byte", 0x4c00010d, 0x247)                                                    \
    X(U8, "ompi_mpi_uint8_t", 0x4c00013b, 0x241)                                                   \
    X(U16, "ompi_mpi_uint16_t", 0x4c00023c, 0x249)                                                 \
    X(U32, "ompi_mpi_uint32_t", 0x4c00043d, 0x251)                                                 \
    X(U64, "ompi_mpi_uint64_t", 0x4c00083e, 0x259)                                                 \
    X(I8, "ompi_mpi_int8_t", 0x4c000137, 0x240)                                                    \
    X(I16, "ompi_mpi_int16_t", 0x4c000238, 0x248)                                                  \
    X(I32, "ompi_mpi_int32_t", 0x4c000439, 0x250)                                                  \
    X(I64, "ompi_mpi_int64_t", 0x4c00083a, 0x258)                                                  \
    X(F32, "ompi_mpi_float", 0x4c00040a, 0x210)                                                    \
    X(F64, "ompi_mpi_double", 0x4c00080b, 0x214)
typedef enum tci_mpi_named {
#define TCI_ROW(id, symbol, mpich, standard) TCI_MPI_##id,
    TCI_MPI_HANDLES(TCI_ROW)
#undef TCI_ROW
        TCI_MPI_NAMED
} tci_mpi_named;

typedef struct tci_mpi_api {
    bool is_open, is_ours; /* this process's MPI was initialized here */
    int users;             /* communicators */
    bool is_stuck;         /* atomic: an operation was given up that MPI still has */
    void *left;            /* memory of an exchange that was given up */
    tci_mpi_kind kind;
    tci_mpi_handle named[TCI_MPI_NAMED];
#define TCI_ROW(name, arguments) int (*name) arguments;
    TCI_MPI_FUNCTIONS(TCI_ROW)
#undef TCI_ROW
} tci_mpi_api;

static tci_mpi_api tci_mpi; /* guarded by the lock until it is open */
static tci_mutex tci_mpi_lock = TCI_MUTEX_INIT;

typedef struct tci_mpi_state {
    tci_mpi_handle comm;
    int rank, size;
    int n_pending; /* operations that were started and not waited for */
    int64_t timeout_ms;
} tci_mpi_state;

/* An operation under way. */
typedef struct tci_mpi_request {
    tci_mpi_handle handle;
    char *parts; /* of all ranks, which are summed at the end; or NULL */
} tci_mpi_request;

/* ---- the library ---- */

static bool tci_mpi_load(void *library, const char *name, char *why)
{
    static const struct {
        const char *symbol;
        intptr_t mpich, standard;
    } rows[] = {
#define TCI_ROW(id, symbol, mpich, standard) {symbol, mpich, standard},
        TCI_MPI_HANDLES(TCI_ROW)
#undef TCI_ROW
    };
    tci_mpi.kind = tci_os_dlsym(library, "ompi_mpi_comm_world") ? TCI_MPI_OPEN
                   : strstr(name, "mpi_abi")                    ? TCI_MPI_STANDARD
                                                                : TCI_MPI_MPICH;
    bool whole = true;
    for (int i = 0; i < (int)TCI_MPI_NAMED; i++) {
        tci_mpi.named[i] = tci_mpi.kind == TCI_MPI_OPEN    ? tci_os_dlsym(library, rows[i].symbol)
                           : tci_mpi.kind == TCI_MPI_MPICH ? (void *)rows[i].mpich
                                                           : (void *)rows[i].standard;
        whole = whole && tci_mpi.named[i];
    }
#define TCI_ROW(function, arguments)                                                               \
    *(void **)&tci_mpi.function = tci_os_dlsym(library, "MPI_" #function);                         \
    whole = whole && tci_mpi.function;
    TCI_MPI_FUNCTIONS(TCI_ROW)
#undef TCI_ROW
    if (!whole) {
        snprintf(why, TC_COMM_WHY, "%s lacks functions of MPI 3", name);
    }
    return whole;
}

/* The library that the launcher wants comes first: of two that are installed only that one can find
 * the other ranks. */
static bool tci_mpi_find(char *why)
{
    const char *names[3] = {"libmpi.so.40", "libmpich.so.12", "libmpi_abi.so"};
    char reason[256] = "";
    void *library = NULL;
    int i = 0;
    if (!tci_os_getenv("OMPI_COMM_WORLD_RANK")) {
        names[0] = "libmpich.so.12";
        names[1] = "libmpi_abi.so";
        names[2] = "libmpi.so.40";
    }
    for (int k = 0; k < 3 && !library; k++) { /* what the process has already */
        library = tci_os_dlopen_loaded(names[k]);
        i = library ? k : i;
    }
    for (int k = 0; k < 3 && !library; k++) { /* its plugins look for its symbols: global */
        library = dlopen(names[k], RTLD_NOW | RTLD_GLOBAL);
        i = library ? k : i;
    }
    if (!library) {
        snprintf(reason, sizeof(reason), "%s", dlerror());
        snprintf(why, TC_COMM_WHY,
                 "MPI is not installed: none of libmpi.so.40, libmpich.so.12 and "
                 "libmpi_abi.so can be opened (%.120s)",
                 reason);
        return false;
    }
    return tci_mpi_load(library, names[i], why);
}

/* Opens the library once. */
static bool tci_mpi_open(char *why)
{
    pthread_mutex_lock(&tci_mpi_lock);
    tci_mpi.is_open = tci_mpi.is_open || tci_mpi_find(why);
    bool open = tci_mpi.is_open;
    pthread_mutex_unlock(&tci_mpi_lock);
    return open;
}

static tc_status tci_mpi_judge(int code, const char *what, char *why)
{
    char text[8192] = "";
    int n = 0;
    if (code == 0) {
        return TC_OK;
    }
    tci_mpi.Error_string(code, text, &n);
    snprintf(why, TC_COMM_WHY, "%s: %.180s", what, text);
    return TC_ERR_COMM;
}

static void tci_mpi_give_up(void)
{
    __atomic_store_n(&tci_mpi.is_stuck, true, __ATOMIC_RELEASE);
}

/* May MPI be called? */
static tc_status tci_mpi_may_go(char *why)
{
    if (!__atomic_load_n(&tci_mpi.is_stuck, __ATOMIC_ACQUIRE)) {
        return TC_OK;
    }
    snprintf(why, TC_COMM_WHY,
             "MPI still has an operation that failed before, which it cannot "
             "take back: expected that this process ends");
    return TC_ERR_COMM;
}

/* ---- operations ---- */

static tci_mpi_handle tci_mpi_dtype(tc_dtype t)
{
    switch (t) {
#define TCI_CASE(id) case TC_##id: return tci_mpi.named[TCI_MPI_##id];
        TCI_CASE(U8)
        TCI_CASE(U16)
        TCI_CASE(U32)
        TCI_CASE(U64)
        TCI_CASE(I8)
        TCI_CASE(I16)
        TCI_CASE(I32)
        TCI_CASE(I64)
        TCI_CASE(F32)
        TCI_CASE(F64)
#undef TCI_CASE
    case TC_BOOL: return tci_mpi.named[TCI_MPI_U8];
    case TC_F16:
    case TC_BF16:
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return NULL;
}

static tci_mpi_handle tci_mpi_op(tc_comm_how how)
{
    return tci_mpi.named[how == TC_COMM_SUM   ? TCI_MPI_SUM
                         : how == TC_COMM_MIN ? TCI_MPI_MIN
                                              : TCI_MPI_MAX];
}

/* Halves: those of all ranks. */
static int tci_mpi_gather_parts(const tci_mpi_state *s, const tc_comm_job *j, tci_mpi_request *r)
{
    const tci_mpi_handle byte = tci_mpi.named[TCI_MPI_BYTE];
    bool all = j->verb == TC_COMM_ALL_REDUCE;
    int bytes = (int)(j->n * tc_dtype_size(j->dtype)), part = all ? bytes : bytes / s->size;
    return all ? tci_mpi.Iallgather(j->in, part, byte, r->parts, part, byte, s->comm, &r->handle)
               : tci_mpi.Ialltoall(j->in, part, byte, r->parts, part, byte, s->comm, &r->handle);
}

static int tci_mpi_call(const tci_mpi_state *s, const tc_comm_job *j, tci_mpi_request *r)
{
    const tci_mpi_handle byte = tci_mpi.named[TCI_MPI_BYTE], t = tci_mpi_dtype(j->dtype);
    const int n = (int)j->n, bytes = (int)(j->n * tc_dtype_size(j->dtype)), part = bytes / s->size;
    switch (j->verb) {
    case TC_COMM_ALL_REDUCE:
        return r->parts ? tci_mpi_gather_parts(s, j, r)
                        : tci_mpi.Iallreduce(j->in, j->out, n, t, tci_mpi_op(j->how), s->comm,
                                             &r->handle);
    case TC_COMM_REDUCE_SCATTER:
        return r->parts ? tci_mpi_gather_parts(s, j, r)
                        : tci_mpi.Ireduce_scatter_block(j->in, j->out, n / s->size, t,
                                                        tci_mpi_op(j->how), s->comm, &r->handle);
    case TC_COMM_ALL_GATHER:
        return tci_mpi.Iallgather(j->in, bytes, byte, j->out, bytes, byte, s->comm, &r->handle);
    case TC_COMM_ALL_TO_ALL:
        return tci_mpi.Ialltoall(j->in, part, byte, j->out, part, byte, s->comm, &r->handle);
    case TC_COMM_BROADCAST:
        if (s->rank == j->peer) {
            memcpy(j->out, j->in, (size_t)bytes);
        }
        return tci_mpi.Ibcast(j->out, bytes, byte, j->peer, s->comm, &r->handle);
    case TC_COMM_SEND:
        memcpy(j->out, j->in, (size_t)bytes);
        return tci_mpi.Isend(j->in, bytes, byte, j->peer, 1, s->comm, &r->handle);
    case TC_COMM_RECV: return tci_mpi.Irecv(j->out, bytes, byte, j->peer, 1, s->comm, &r->handle);
    case TC_COMM_BARRIER:
    case TC_COMM_VERB_COUNT: break;
    }
    return tci_mpi.Ibarrier(s->comm, &r->handle);
}

static tc_status tci_mpi_start(void *state, tc_comm_job *job, char *why)
{
    tci_mpi_state *s = state;
    int64_t bytes = job->n * tc_dtype_size(job->dtype);
    bool sums = tci_comm_verb_reduces(job->verb) && tci_dtype_is_half(job->dtype);
    int64_t parts = job->verb == TC_COMM_ALL_REDUCE ? bytes * s->size : bytes;
    tc_status status = tci_mpi_may_go(why);
    if (status) {
        return status;
    }
    if (bytes > INT32_MAX) {
        snprintf(why, TC_COMM_WHY,
                 "%lld bytes in one operation, expected less than 2 GiB: MPI "
                 "counts in int",
                 (long long)bytes);
        return TC_ERR_COMM;
    }
    tci_mpi_request *r = tci_heap_get(sizeof(*r));
    if (r) {
        *r = (tci_mpi_request){.parts = sums ? tci_heap_get((size_t)parts + 1) : NULL};
    }
    if (!r || (sums && !r->parts)) {
        tci_heap_free(r);
        snprintf(why, TC_COMM_WHY, "out of memory");
        return TC_ERR_COMM;
    }
    status = tci_mpi_judge(tci_mpi_call(s, job, r), "MPI refused the operation", why);
    if (status) {
        tci_heap_free(r->parts);
        tci_heap_free(r);
        return status;
    }
    job->engine_data = r;
    s->n_pending++;
    return TC_OK;
}

/* The sums of f16 and bf16. */
static void tci_mpi_finish(const tci_mpi_state *s, const tc_comm_job *j, const tci_mpi_request *r)
{
    const int64_t n = j->verb == TC_COMM_ALL_REDUCE ? j->n : j->n / s->size;
    if (r->parts) {
        tci_comm_combine(j->how, j->dtype, j->out, r->parts, n * tc_dtype_size(j->dtype), s->size,
                         n);
    }
}

/* Until the request is done or the time is over. */
static tc_status tci_mpi_until(tci_mpi_request *r, int64_t limit_ms, char *why)
{
    char mpi_status[256]; /* larger than any MPI's */
    int64_t begin = tci_os_now_ns();
    int done = 0, looks = 0;
    while (!done) {
        tc_status status = tci_mpi_judge(tci_mpi.Test(&r->handle, &done, mpi_status), "MPI failed",
                                         why);
        if (status) {
            return status;
        }
        if (!done && tci_os_now_ns() - begin > tci_comm_limit_ns(limit_ms)) {
            snprintf(why, TC_COMM_WHY,
                     "another rank did not come within %lld ms (MPI does not "
                     "tell which)",
                     (long long)limit_ms);
            return TC_ERR_COMM;
        }
        if (!done && ++looks > 1000) {
            struct timespec t = {0, 50000};
            nanosleep(&t, NULL);
        }
    }
    return TC_OK;
}

static tc_status tci_mpi_wait(void *state, tc_comm_job *job, char *why)
{
    tci_mpi_state *s = state;
    tci_mpi_request *r = job->engine_data;
    tc_status status = tci_mpi_until(r, s->timeout_ms, why);
    if (!status) { /* else MPI may still write there */
        s->n_pending--;
        tci_mpi_finish(s, job, r);
        tci_heap_free(r->parts);
        tci_heap_free(r);
        job->engine_data = NULL;
    }
    return status;
}

/* In memory of its own, which MPI keeps if the time is over. */
static tc_status tci_mpi_exchange(void *state, const void *mine, void *all, int64_t bytes,
                                  int64_t limit_ms, const char *what, char *why)
{
    tci_mpi_state *s = state;
    const tci_mpi_handle byte = tci_mpi.named[TCI_MPI_BYTE];
    const size_t whole = (size_t)bytes * (size_t)s->size;
    tci_mpi_request r = {NULL, NULL};
    tc_status status = tci_mpi_may_go(why);
    if (status) {
        return status;
    }
    char *copy = bytes > INT32_MAX ? NULL : tci_heap_get(whole + (size_t)bytes + 1);
    if (!copy) {
        snprintf(why, TC_COMM_WHY, "no memory for %lld bytes of each of %d ranks, or above 2 GiB",
                 (long long)bytes, s->size);
        return TC_ERR_COMM;
    }
    memcpy(copy + whole, mine, (size_t)bytes);
    status = tci_mpi_judge(tci_mpi.Iallgather(copy + whole, (int)bytes, byte, copy, (int)bytes,
                                              byte, s->comm, &r.handle),
                           what, why);
    if (!status && tci_mpi_until(&r, limit_ms, why)) {
        tci_mpi.left = copy;
        tci_mpi_give_up();
        return TC_ERR_COMM;
    }
    if (!status) {
        memcpy(all, copy, whole);
    }
    tci_heap_free(copy);
    return status;
}

/* ---- communicators ---- */

/* Takes over `comm`, which is freed on failure. */
static tci_mpi_state *tci_mpi_state_of(tci_mpi_handle comm, int64_t timeout_ms)
{
    tci_mpi_state *s = tci_heap_get(sizeof(*s));
    if (!s) {
        tci_mpi.Comm_free(&comm);
        return NULL;
    }
    *s = (tci_mpi_state){.comm = comm, .timeout_ms = timeout_ms};
    tci_mpi.Comm_set_errhandler(comm, tci_mpi.named[TCI_MPI_ERRORS_RETURN]);
    tci_mpi.Comm_rank(comm, &s->rank);
    tci_mpi.Comm_size(comm, &s->size);
    pthread_mutex_lock(&tci_mpi_lock);
    tci_mpi.users++;
    pthread_mutex_unlock(&tci_mpi_lock);
    return s;
}

static tc_status tci_mpi_split(void *state, int color, int key, void **out, int *rank, int *size,
                               char *why)
{
    tci_mpi_state *s = state, *made;
    tci_mpi_handle comm = NULL;
    tc_status status = tci_mpi_may_go(why);
    status = status ? status
                    : tci_mpi_judge(tci_mpi.Comm_split(s->comm, color < 0 ? -32766 : color, key,
                                                       &comm),
                                    "MPI_Comm_split", why);
    *out = NULL;
    if (status || color < 0) {
        return status;
    }
    made = tci_mpi_state_of(comm, s->timeout_ms);
    if (!made) {
        snprintf(why, TC_COMM_WHY, "out of memory");
        return TC_ERR_COMM;
    }
    *out = made;
    *rank = made->rank;
    *size = made->size;
    return TC_OK;
}

static void tci_mpi_abort(void *state, const char *why)
{
    tci_mpi_state *s = state;
    (void)why;
    if (s->n_pending) {
        tci_mpi_give_up();
    }
    s->timeout_ms = 0;
}

/* The last communicator of an MPI that was initialized here ends it. */
static void tci_mpi_free(void *state)
{
    tci_mpi_state *s = state;
    char why[TC_COMM_WHY];
    int over = 0;
    tci_mpi.Finalized(&over);
    over = over || tci_mpi_may_go(why);
    pthread_mutex_lock(&tci_mpi_lock);
    bool last = --tci_mpi.users == 0 && tci_mpi.is_ours;
    pthread_mutex_unlock(&tci_mpi_lock);
    if (!over && s->timeout_ms > 0) {
        tci_mpi.Comm_free(&s->comm);
        if (last) {
            tci_mpi.Finalize();
        }
    }
    tci_heap_free(s);
}

static const tc_comm_engine tci_mpi_engine = {
    "mpi",         NULL,          tci_mpi_start, tci_mpi_wait, tci_mpi_exchange,
    tci_mpi_split, tci_mpi_abort, tci_mpi_free,  NULL,         NULL,
    NULL,          false};

static tc_status tci_mpi_make(tci_mpi_handle of, const tc_comm_options *options, tc_comm **out,
                              char *why)
{
    tci_mpi_handle comm = NULL;
    int64_t limit = options && options->timeout_ms > 0 ? options->timeout_ms : TCI_COMM_TIMEOUT_MS;
    tc_status status = tci_mpi_may_go(why);
    status = status ? status : tci_mpi_judge(tci_mpi.Comm_dup(of, &comm), "MPI_Comm_dup", why);
    if (status) {
        return status;
    }
    tci_mpi_state *s = tci_mpi_state_of(comm, limit);
    status = s ? tc_comm_of_engine(&tci_mpi_engine, s, s->rank, s->size, options, out)
               : TC_ERR_MEMORY;
    if (status && s) {
        tci_mpi_free(s);
    }
    if (status) {
        snprintf(why, TC_COMM_WHY, "out of memory");
    }
    return status;
}

static bool tci_mpi_is_up(char *why)
{
    int up = 0, over = 0;
    tci_mpi.Initialized(&up);
    tci_mpi.Finalized(&over);
    if (over) {
        snprintf(why, TC_COMM_WHY, "MPI was finalized, and cannot be initialized again");
    } else if (!up) {
        snprintf(why, TC_COMM_WHY, "MPI is not initialized: expected MPI_Init_thread before");
    }
    return up && !over;
}

TCI_FN tc_status tci_mpi_world(const tc_comm_options *options, tc_comm **out, char *why)
{
    int up = 0, given = 0;
    tc_status status = TC_OK;
    if (!tci_mpi_open(why)) {
        return TC_ERR_COMM;
    }
    pthread_mutex_lock(&tci_mpi_lock);
    tci_mpi.Initialized(&up);
    if (!up) {
        status = tci_mpi_judge(tci_mpi.Init_thread(NULL, NULL, 3, &given), "MPI_Init_thread", why);
        tci_mpi.is_ours = !status;
    }
    pthread_mutex_unlock(&tci_mpi_lock);
    if (status) {
        return status;
    }
    return tci_mpi_is_up(why) ? tci_mpi_make(tci_mpi.named[TCI_MPI_WORLD], options, out, why)
                              : TC_ERR_COMM;
}

TC_API tc_status tc_comm_of_mpi(const void *mpi_comm, const tc_comm_options *options, tc_comm **out)
{
    char why[TC_COMM_WHY] = "";
    tci_mpi_handle comm = NULL;
    if (!mpi_comm || !out) {
        return TC_ERR_ARGUMENT;
    }
    *out = NULL;
    tc_status status = TC_ERR_COMM;
    if (tci_mpi_open(why) && tci_mpi_is_up(why)) {
        memcpy(&comm, mpi_comm, tci_mpi.kind == TCI_MPI_MPICH ? sizeof(int) : sizeof(comm));
        status = tci_mpi_make(comm, options, out, why);
    }
    tci_comm_tell(status ? why : "");
    return status;
}
/* ---- src/comm/nccl.c ---- */
/* comm/nccl.c - collectives on GPUs through NCCL.
 *
 * In: operations on device memory. Out: NCCL's calls on a stream of the communicator.
 *
 * A start makes that stream wait for the work submitted to the device's own queue so far; a wait
 * makes the queue wait for the operation. So kernels between the two overlap with it, and no host
 * thread waits until the end of a run (finish). There the host checks whether the stream is done,
 * whether NCCL or a rank failed, and whether the timeout has expired; then the communicator is
 * aborted, so that the stream ends. ncclCommAbort terminates all kernels of the communicator at
 * once, but returns only when no CUDA graph references it; programs still hold such graphs, so a
 * separate thread calls it, which ends when the last program with the communicator is freed.
 *
 * Where a program is recorded, an operation is captured from the stream and becomes a node of the
 * program's CUDA graph; the wait for it is an empty node.
 *
 * Sends and receives that follow one another are one group, as each alone would wait for the other
 * side. Host-side exchanges go through the base communicator.
 *
 * Communicators that are made here are nonblocking: NCCL connects ranks in a thread of its own, at
 * creation and at the first operation of each kind, and a call that returns "in progress" is polled
 * until it is done. So the base communicator detects a rank that dies during connection setup. */
/* ---- src/comm/nccl.h ---- */
/* comm/nccl.h - declares NCCL as a table of functions, opened at run time. Values: nccl.h of 2.28.
 */
#ifndef TCI_COMM_NCCL_H
#define TCI_COMM_NCCL_H


typedef struct tci_nccl_id {
    char bytes[128];
} tci_nccl_id; /* ncclUniqueId, passed by value */

/* ncclConfig_t as of 2.17; later versions take it by its size and version. */
enum {
    TCI_NCCL_MAGIC = (int)0xcafebeef,
    TCI_NCCL_CONFIG_VERSION = 21700,
    TCI_NCCL_UNDEFINED = INT32_MIN
};
typedef struct tci_nccl_config {
    size_t size;
    int magic, version, blocking, cluster, min_blocks, max_blocks;
    const char *network;
} tci_nccl_config;

/* X(field, symbol, arguments) */
#define TCI_NCCL_ROWS(X)                                                                           \
    X(get_id, "ncclGetUniqueId", (tci_nccl_id *))                                                  \
    X(init, "ncclCommInitRank", (void **, int, tci_nccl_id, int))                                  \
    X(destroy, "ncclCommDestroy", (void *))                                                        \
    X(cancel, "ncclCommAbort", (void *))                                                           \
    X(async_error, "ncclCommGetAsyncError", (void *, int *))                                       \
    X(group_start, "ncclGroupStart", (void))                                                       \
    X(group_end, "ncclGroupEnd", (void))                                                           \
    X(all_reduce, "ncclAllReduce", (const void *, void *, size_t, int, int, void *, void *))       \
    X(reduce_scatter, "ncclReduceScatter",                                                         \
      (const void *, void *, size_t, int, int, void *, void *))                                    \
    X(all_gather, "ncclAllGather", (const void *, void *, size_t, int, void *, void *))            \
    X(broadcast, "ncclBroadcast", (const void *, void *, size_t, int, int, void *, void *))        \
    X(send, "ncclSend", (const void *, size_t, int, int, void *, void *))                          \
    X(recv, "ncclRecv", (void *, size_t, int, int, void *, void *))

typedef struct tci_nccl_api {
#define TCI_ROW(field, symbol, arguments) int (*field) arguments;
    TCI_NCCL_ROWS(TCI_ROW)
#undef TCI_ROW
    const char *(*error)(int code);
    /* NULL before 2.17 */
    int (*init_config)(void **comm, int ranks, tci_nccl_id id, int rank,
                       const tci_nccl_config *config);
    /* of the driver */
    int (*stream_query)(void *stream);
    int (*stream_make)(void **stream, unsigned flags, int priority);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_add_child)(void **node, void *graph, void *const *after, size_t n, void *child);
    int (*graph_add_empty)(void **node, void *graph, void *const *after, size_t n);
    int (*graph_free)(void *graph);
} tci_nccl_api;

#ifdef TCI_HAS_CUDA
/* Opens it at the first call. NULL: `why` has the reason (TC_COMM_WHY bytes). */
TCI_FN const tci_nccl_api *tci_nccl_open(char *why);
/* For tests: what tci_nccl_open gives from now on. */
TCI_FN void tci_nccl_use(const tci_nccl_api *api);
#endif

#endif

/* ---- src/comm/nccl.c, continued ---- */
#include <stdio.h>
#include <string.h>
#include <time.h>


#ifdef TCI_HAS_CUDA

enum {
    TCI_NCCL_PAIRS = 32,
    TCI_NCCL_BYTE = 1,
    TCI_NCCL_IN_PROGRESS = 7,
    TCI_NCCL_LINGER_MS = 500,  /* NCCL's error may come before the base sees which rank died */
    TCI_NCCL_DRAIN_MS = 10000, /* of an aborted communicator's stream */
    TCI_NCCL_SPIN_MS = 100,    /* that the end of a run is looked for without a pause */
    TCI_NCCL_PRIORITY = -1000,
    TCI_NCCL_PROCESSORS = 16, /* tc_comm_options.processors */
    TCI_CU_NOT_READY = 600,
    TCI_CU_CAPTURE_RELAXED = 2
};

/* A captured operation, which its node in a recorded graph was made of; newest first. */
typedef struct tci_nccl_child {
    struct tci_nccl_child *next;
    void *graph;
} tci_nccl_child;

typedef struct tci_nccl {
    const tci_nccl_api *api;
    void *comm;
    bool is_ours;  /* else the user's */
    tc_comm *base; /* counted */
    tci_cuda_device *device;
    void *stream, *before, *after; /* after: what was started last */
    int64_t timeout_ms;
    int processors;
    const tc_comm_job *pairs[TCI_NCCL_PAIRS]; /* started, not given to NCCL yet */
    int n_pairs;
    bool has_canceller;
    int aborted;         /* atomic: 1 once */
    bool is_stuck;       /* aborted, but its kernels do not end */
    pthread_t canceller; /* in ncclCommAbort */
    tci_nccl_child *children;
} tci_nccl;

static tci_mutex tci_nccl_lock = TCI_MUTEX_INIT;
static tci_nccl_api tci_nccl_table;
static const tci_nccl_api *tci_nccl_found;

/* ---- the library ---- */

TCI_FN void tci_nccl_use(const tci_nccl_api *api)
{
    pthread_mutex_lock(&tci_nccl_lock);
    tci_nccl_found = api;
    pthread_mutex_unlock(&tci_nccl_lock);
}

static bool tci_nccl_load_driver(void *driver)
{
    const struct {
        void *at;
        const char *symbol;
    } rows[] = {{&tci_nccl_table.stream_query, "cuStreamQuery"},
                {&tci_nccl_table.stream_make, "cuStreamCreateWithPriority"},
                {&tci_nccl_table.capture_begin, "cuStreamBeginCapture_v2"},
                {&tci_nccl_table.capture_end, "cuStreamEndCapture"},
                {&tci_nccl_table.graph_add_child, "cuGraphAddChildGraphNode"},
                {&tci_nccl_table.graph_add_empty, "cuGraphAddEmptyNode"},
                {&tci_nccl_table.graph_free, "cuGraphDestroy"}};
    bool whole = true;
    for (size_t i = 0; i < TCI_COUNT(rows); i++) {
        void *symbol = tci_os_dlsym(driver, rows[i].symbol);
        memcpy(rows[i].at, &symbol, sizeof(symbol));
        whole = whole && symbol;
    }
    return whole;
}

static bool tci_nccl_load(char *why)
{
    char reason[256] = "";
    void *library = tci_os_dlopen("libnccl.so.2", reason);
    void *driver = library ? tci_os_dlopen("libcuda.so.1", reason) : NULL;
    if (!driver) {
        snprintf(why, TC_COMM_WHY, "NCCL cannot be opened: %.200s", reason);
        return false;
    }
    bool whole = true;
#define TCI_ROW(field, symbol, arguments)                                                          \
    *(void **)&tci_nccl_table.field = tci_os_dlsym(library, symbol);                               \
    whole = whole && tci_nccl_table.field;
    TCI_NCCL_ROWS(TCI_ROW)
#undef TCI_ROW
    *(void **)&tci_nccl_table.init_config = tci_os_dlsym(library, "ncclCommInitRankConfig");
    *(void **)&tci_nccl_table.error = tci_os_dlsym(library, "ncclGetErrorString");
    whole = whole && tci_nccl_table.error && tci_nccl_load_driver(driver);
    if (!whole) {
        snprintf(why, TC_COMM_WHY, "libnccl.so.2 lacks functions of NCCL 2.7");
    }
    return whole;
}

TCI_FN const tci_nccl_api *tci_nccl_open(char *why)
{
    pthread_mutex_lock(&tci_nccl_lock);
    if (!tci_nccl_found && tci_nccl_load(why)) {
        tci_nccl_found = &tci_nccl_table;
    }
    const tci_nccl_api *api = tci_nccl_found;
    pthread_mutex_unlock(&tci_nccl_lock);
    return api;
}

static tc_status tci_nccl_check(const tci_nccl *s, int code, const char *what, char *why)
{
    if (code) {
        snprintf(why, TC_COMM_WHY, "%s: %.150s", what, s->api->error(code));
    }
    return code ? TC_ERR_COMM : TC_OK;
}

static tc_status tci_nccl_device(tc_status status, char *why)
{
    if (status) {
        snprintf(why, TC_COMM_WHY, "the GPU failed: %.150s", tci_cuda_last_error(NULL));
    }
    return status ? TC_ERR_COMM : TC_OK;
}

/* ---- operations ---- */

static int tci_nccl_dtype(tc_dtype t)
{
    switch (t) {
    case TC_I8: return 0;
    case TC_BOOL:
    case TC_U8: return TCI_NCCL_BYTE;
    case TC_I32: return 2;
    case TC_U32: return 3;
    case TC_I64: return 4;
    case TC_U64: return 5;
    case TC_F16: return 6;
    case TC_F32: return 7;
    case TC_F64: return 8;
    case TC_BF16: return 9;
    case TC_U16:
    case TC_I16:
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return -1;
}

static int tci_nccl_op(tc_comm_how how)
{
    return how == TC_COMM_SUM ? 0 : how == TC_COMM_MAX ? 2 : 3;
}

/* Each part to its rank. */
static int tci_nccl_parts(const tci_nccl *s, const tc_comm_job *j)
{
    size_t part = (size_t)(j->n * tc_dtype_size(j->dtype) / s->base->size);
    int code = s->api->group_start();
    for (int r = 0; r < s->base->size && !code; r++) {
        code = s->api->send((const char *)j->in + (size_t)r * part, part, TCI_NCCL_BYTE, r, s->comm,
                            s->stream);
        code = code ? code
                    : s->api->recv((char *)j->out + (size_t)r * part, part, TCI_NCCL_BYTE, r,
                                   s->comm, s->stream);
    }
    int end = s->api->group_end();
    return code ? code : end;
}

static int tci_nccl_call_one(const tci_nccl *s, const tc_comm_job *j)
{
    static const uint8_t one = 1;
    const tc_backend_queues *q = j->device->queues;
    const int t = tci_nccl_dtype(j->dtype), op = tci_nccl_op(j->how);
    const size_t n = (size_t)j->n, bytes = n * (size_t)tc_dtype_size(j->dtype);
    switch (j->verb) {
    case TC_COMM_ALL_REDUCE: return s->api->all_reduce(j->in, j->out, n, t, op, s->comm, s->stream);
    case TC_COMM_REDUCE_SCATTER:
        return s->api->reduce_scatter(j->in, j->out, n / (size_t)s->base->size, t, op, s->comm,
                                      s->stream);
    case TC_COMM_ALL_GATHER:
        return s->api->all_gather(j->in, j->out, bytes, TCI_NCCL_BYTE, s->comm, s->stream);
    case TC_COMM_BROADCAST:
        return s->api->broadcast(j->in, j->out, bytes, TCI_NCCL_BYTE, j->peer, s->comm, s->stream);
    case TC_COMM_ALL_TO_ALL: return tci_nccl_parts(s, j);
    case TC_COMM_SEND:
        q->copy(j->device->user, s->stream, j->out, j->in, (int64_t)bytes);
        return s->api->send(j->in, bytes, TCI_NCCL_BYTE, j->peer, s->comm, s->stream);
    case TC_COMM_RECV:
        return s->api->recv(j->out, bytes, TCI_NCCL_BYTE, j->peer, s->comm, s->stream);
    case TC_COMM_BARRIER:
    case TC_COMM_VERB_COUNT: break;
    }
    q->copy(j->device->user, s->stream, j->out, &one, 1); /* of a barrier: true */
    return s->api->all_reduce(j->out, j->out, 1, TCI_NCCL_BYTE, 2, s->comm, s->stream);
}

/* The operation and those that begin with it, as one group. Returns NCCL's code. */
static int tci_nccl_call(const tci_nccl *s, const tc_comm_job *job)
{
    int code = job->with ? s->api->group_start() : 0;
    for (const tc_comm_job *j = job; j && !code; j = j->with) {
        code = tci_nccl_call_one(s, j);
    }
    int end = job->with ? s->api->group_end() : 0;
    return code ? code : end;
}

static void tci_nccl_nap(void)
{
    struct timespec t = {0, 20000};
    nanosleep(&t, NULL);
}

/* NCCL failed: the base's reason, which names a rank, if it comes soon; else NCCL's. */
static tc_status tci_nccl_explain(const tci_nccl *s, int code, const char *what, char *why)
{
    const tc_comm_engine *base = s->base->engine;
    const int64_t begin = tci_os_now_ns();
    while (base->look && tci_os_now_ns() - begin < TCI_NCCL_LINGER_MS * (int64_t)1000000) {
        if (base->look(s->base->state, why)) {
            return TC_ERR_COMM;
        }
        tci_nccl_nap();
    }
    return tci_nccl_check(s, code, what, why);
}

/* True, with the reason: a rank is gone, or the time from begin_ns on is over. */
static bool tci_nccl_is_over(const tci_nccl *s, int64_t begin_ns, char *why)
{
    const tc_comm_engine *base = s->base->engine;
    if (base->look && base->look(s->base->state, why)) {
        return true;
    }
    bool over = tci_os_now_ns() - begin_ns > tci_comm_limit_ns(s->timeout_ms);
    if (over) {
        snprintf(why, TC_COMM_WHY,
                 "another rank did not come within %lld ms (NCCL does not tell which)",
                 (long long)s->timeout_ms);
    }
    return over;
}

/* A call of NCCL returned `code`: waits until it is no longer in progress. */
static tc_status tci_nccl_settle(const tci_nccl *s, int code, const char *what, char *why)
{
    const int64_t begin = tci_os_now_ns();
    while (code == TCI_NCCL_IN_PROGRESS) {
        if (tci_nccl_is_over(s, begin, why)) {
            return TC_ERR_COMM;
        }
        tci_nccl_nap();
        int failed = s->api->async_error(s->comm, &code);
        code = failed ? failed : code;
    }
    return code ? tci_nccl_explain(s, code, what, why) : TC_OK;
}

/* Kernels before it come first. */
static tc_status tci_nccl_behind(const tci_nccl *s, const tc_comm_job *j, char *why)
{
    const tc_backend_queues *q = j->device->queues;
    tc_status status = q->event_record(j->device->user, NULL, s->before);
    status = status ? status : q->event_wait(j->device->user, s->stream, s->before);
    return tci_nccl_device(status, why);
}

static tc_status tci_nccl_give_pairs(tci_nccl *s, char *why)
{
    if (!s->n_pairs) {
        return TC_OK;
    }
    int code = s->api->group_start();
    for (int i = 0; i < s->n_pairs && !code; i++) {
        code = tci_nccl_call(s, s->pairs[i]);
    }
    int end = s->api->group_end();
    s->n_pairs = 0;
    return tci_nccl_settle(s, code ? code : end, "ncclSend and ncclRecv", why);
}

static tc_status tci_nccl_begin(tci_nccl *s, tc_comm_job *job, char *why)
{
    bool pair = tci_comm_verb_is_pair(job->verb);
    tc_status status = TC_OK;
    for (const tc_comm_job *j = job; j; j = j->with) {
        if (tci_comm_verb_reduces(j->verb) && tci_nccl_dtype(j->dtype) < 0) {
            snprintf(why, TC_COMM_WHY, "NCCL has no %s, expected another dtype (tc_cast)",
                     tc_dtype_name(j->dtype));
            return TC_ERR_COMM;
        }
    }
    if (!pair || s->n_pairs == TCI_NCCL_PAIRS) {
        status = tci_nccl_give_pairs(s, why);
    }
    status = status ? status : tci_nccl_behind(s, job, why);
    if (!status && pair) {
        s->pairs[s->n_pairs++] = job;
    } else if (!status) {
        status = tci_nccl_settle(s, tci_nccl_call(s, job), "NCCL refused the operation", why);
    }
    return status;
}

/* The context of the GPU is the thread's meanwhile. */
static tc_status tci_nccl_start(void *state, tc_comm_job *job, char *why)
{
    tci_nccl *s = state;
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tc_status status = in.status ? tci_nccl_device(in.status, why) : tci_nccl_begin(s, job, why);
    tci_cuda_leave(&in, TC_OK);
    return status;
}

static tc_status tci_nccl_wait(void *state, tc_comm_job *job, char *why)
{
    tci_nccl *s = state;
    const tc_backend_queues *q = job->device->queues;
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tc_status status = in.status ? tci_nccl_device(in.status, why) : tci_nccl_give_pairs(s, why);
    tci_cuda_leave(&in, TC_OK);
    if (!status) {
        status = q->event_record(job->device->user, s->stream, s->after);
        status = status ? status : q->event_wait(job->device->user, NULL, s->after);
        status = tci_nccl_device(status, why);
    }
    return status;
}

/* The operation as a graph of its own. */
static tc_status tci_nccl_capture(tci_nccl *s, const tc_comm_job *j, void **graph)
{
    int code = s->api->capture_begin(s->stream, TCI_CU_CAPTURE_RELAXED);
    if (code) {
        return tci_cuda_check(code, "cuStreamBeginCapture");
    }
    char why[TC_COMM_WHY] = "";
    tc_status status = tci_nccl_settle(s, tci_nccl_call(s, j), "NCCL refused to be captured", why);
    code = s->api->capture_end(s->stream, graph);
    if (status) {
        char text[2 * TC_COMM_WHY];
        snprintf(text, sizeof(text), "%s at %s:%d on rank %d of %d: %s", j->name,
                 j->site.file ? j->site.file : "?", j->site.line, s->base->rank, s->base->size,
                 why);
        tci_cuda_say(text, "");
        return TC_ERR_COMM;
    }
    return tci_cuda_check(code, "cuStreamEndCapture");
}

static tc_status tci_nccl_add_child(tci_nccl *s, const tc_comm_job *j, void *graph,
                                    void *const *after, size_t n_after, void **node)
{
    tci_nccl_child *child = tci_heap_get(sizeof(*child));
    if (!child) {
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_nccl_capture(s, j, &child->graph);
    if (!status) {
        status = tci_cuda_check(s->api->graph_add_child(node, graph, after, n_after, child->graph),
                                "cuGraphAddChildGraphNode");
    }
    if (!child->graph) {
        tci_heap_free(child);
        return status;
    }
    child->next = s->children;
    s->children = child;
    return status;
}

/* A member of tc_comm_engine; the context is the thread's. */
static tc_status tci_nccl_node(void *state, tc_comm_job *job, void *graph, void *const *after,
                               size_t n_after, void **node)
{
    tci_nccl *s = state;
    return job ? tci_nccl_add_child(s, job, graph, after, n_after, node)
               : tci_cuda_check(s->api->graph_add_empty(node, graph, after, n_after),
                                "cuGraphAddEmptyNode");
}

/* One look at the device's own queue, which waits for all that was started. TC_OK with *done
 * false: it goes on. */
static tc_status tci_nccl_look(const tci_nccl *s, bool *done, char *why)
{
    int code = 0, query = s->api->stream_query(s->device->stream);
    *done = query == 0;
    if (query != 0 && query != TCI_CU_NOT_READY) {
        snprintf(why, TC_COMM_WHY, "the GPU failed: driver error %d", query);
        return TC_ERR_COMM;
    }
    if (__atomic_load_n(&s->aborted, __ATOMIC_ACQUIRE)) {
        snprintf(why, TC_COMM_WHY, "the communicator was aborted");
        return TC_ERR_COMM;
    }
    tc_status status = tci_nccl_check(s, s->api->async_error(s->comm, &code), "NCCL", why);
    bool failed = !status && code != 0 && code != TCI_NCCL_IN_PROGRESS;
    return failed ? tci_nccl_explain(s, code, "NCCL failed", why) : status;
}

/* A rank is gone, but it may have ended after the last operation while kernels still run here. */
static bool tci_nccl_ends_soon(const tci_nccl *s)
{
    const int64_t begin = tci_os_now_ns();
    int query = TCI_CU_NOT_READY;
    while (query == TCI_CU_NOT_READY &&
           tci_os_now_ns() - begin < TCI_NCCL_LINGER_MS * (int64_t)1000000) {
        tci_nccl_nap();
        query = s->api->stream_query(s->device->stream);
    }
    return query == 0;
}

static tc_status tci_nccl_finish(void *state, char *why)
{
    tci_nccl *s = state;
    const int64_t begin = tci_os_now_ns();
    bool done = false;
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tc_status status = tci_nccl_device(in.status, why);
    while (!done && !status) {
        status = tci_nccl_look(s, &done, why);
        if (!status && !done && tci_nccl_is_over(s, begin, why)) {
            done = tci_nccl_ends_soon(s);
            status = done ? TC_OK : TC_ERR_COMM;
        }
        if (!done && tci_os_now_ns() - begin > TCI_NCCL_SPIN_MS * (int64_t)1000000) {
            tci_nccl_nap();
        }
    }
    tci_cuda_leave(&in, TC_OK);
    return status;
}

static tc_status tci_nccl_exchange(void *state, const void *mine, void *all, int64_t bytes,
                                   int64_t limit_ms, const char *what, char *why)
{
    tci_nccl *s = state;
    char text[512];
    tc_status status = tci_comm_claim_engine(s->base, text);
    if (status) {
        snprintf(why, TC_COMM_WHY, "%.250s", text);
        return status;
    }
    status = s->base->engine->exchange(s->base->state, mine, all, bytes, limit_ms, what, why);
    tci_comm_unclaim(s->base);
    return status;
}

static void *tci_nccl_cancel(void *state)
{
    tci_nccl *s = state;
    s->api->cancel(s->comm);
    return NULL;
}

/* Until both streams are done, so that no later call blocks on them. */
static void tci_nccl_drain(tci_nccl *s)
{
    const int64_t begin = tci_os_now_ns();
    s->is_stuck = true;
    while (s->is_stuck && tci_os_now_ns() - begin < TCI_NCCL_DRAIN_MS * (int64_t)1000000) {
        s->is_stuck = s->api->stream_query(s->device->stream) == TCI_CU_NOT_READY ||
                      s->api->stream_query(s->stream) == TCI_CU_NOT_READY;
        if (s->is_stuck) {
            tci_nccl_nap();
        }
    }
}

/* Kernels of NCCL that wait for a rank end, and so does the stream. */
static void tci_nccl_abort(void *state, const char *why)
{
    tci_nccl *s = state;
    tci_comm_fail(s->base, why);
    tci_cuda_stay in = tci_cuda_enter(s->device);
    const bool first = !__atomic_exchange_n(&s->aborted, 1, __ATOMIC_ACQ_REL);
    if (!in.status && s->is_ours && first) {
        s->has_canceller = pthread_create(&s->canceller, NULL, tci_nccl_cancel, s) == 0;
        if (!s->has_canceller) {
            s->api->cancel(s->comm);
        }
        tci_nccl_drain(s);
    }
    s->n_pairs = 0;
    tci_cuda_leave(&in, TC_OK);
}

static void tci_nccl_free_children(tci_nccl *s, bool frees)
{
    while (s->children) {
        tci_nccl_child *next = s->children->next;
        if (frees) {
            s->api->graph_free(s->children->graph);
        }
        tci_heap_free(s->children);
        s->children = next;
    }
}

/* ncclCommDestroy waits for the other ranks of the host, ncclCommAbort for none. */
static void tci_nccl_end(tci_nccl *s)
{
    const tc_comm_engine *base = s->base->engine;
    char why[TC_COMM_WHY];
    if (base->look && base->look(s->base->state, why)) {
        s->api->cancel(s->comm);
    } else {
        s->api->destroy(s->comm);
    }
}

static void tci_nccl_free(void *state)
{
    tci_nccl *s = state;
    const tc_backend_queues *q = tci_cuda_queues();
    if (!s->device) {
        tci_comm_release(s->base);
        tci_heap_free(s);
        return;
    }
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tci_nccl_free_children(s, !in.status); /* graphs before the communicator that they are of */
    if (!in.status && s->comm && s->is_ours && !s->aborted) {
        tci_nccl_end(s);
    }
    tci_cuda_leave(&in, TC_OK);
    if (s->has_canceller && s->is_stuck) { /* it and its stream are given up */
        pthread_detach(s->canceller);
        tci_comm_release(s->base);
        return;
    }
    if (s->has_canceller) {
        pthread_join(s->canceller, NULL);
    }
    if (s->before) {
        q->event_free(s->device, s->before);
    }
    if (s->after) {
        q->event_free(s->device, s->after);
    }
    if (s->stream) {
        q->free(s->device, s->stream);
    }
    tci_comm_release(s->base);
    tci_heap_free(s);
}

static const tc_comm_engine tci_nccl_engine = {"nccl",
                                               "cuda",
                                               tci_nccl_start,
                                               tci_nccl_wait,
                                               tci_nccl_exchange,
                                               NULL,
                                               tci_nccl_abort,
                                               tci_nccl_free,
                                               tci_nccl_finish,
                                               tci_nccl_node,
                                               NULL,
                                               true};

/* ---- communicators ---- */

/* With few blocks, as kernels lose an SM to each, and these not in clusters, which wait until
 * several neighbouring SMs are free. */
static int tci_nccl_call_init(tci_nccl *s, tci_nccl_id id)
{
    const tci_nccl_config config = {.size = sizeof(config),
                                    .magic = TCI_NCCL_MAGIC,
                                    .version = TCI_NCCL_CONFIG_VERSION,
                                    .blocking = 0,
                                    .cluster = 0,
                                    .min_blocks = TCI_NCCL_UNDEFINED,
                                    .max_blocks = s->processors};
    const tc_comm *base = s->base;
    return s->api->init_config ? s->api->init_config(&s->comm, base->size, id, base->rank, &config)
                               : s->api->init(&s->comm, base->size, id, base->rank);
}

/* A rank, as the others are told of it. */
typedef struct tci_nccl_hello {
    tci_nccl_id id; /* rank 0's counts */
    tc_status status;
    char why[108]; /* where it cannot take part */
} tci_nccl_hello;

/* All ranks report whether they can take part, so that one without a GPU or NCCL is no hang. */
static tc_status tci_nccl_meet(tc_comm *base, tci_nccl_hello *mine, char *why)
{
    tci_nccl_hello *all = tci_heap_get(sizeof(*all) * (size_t)base->size);
    tc_status status = all ? base->engine->exchange(base->state, mine, all, sizeof(*mine),
                                                    base->options.timeout_ms, "tc_comm_nccl", why)
                           : TC_ERR_MEMORY;
    if (status) { /* ranks are out of step */
        tci_comm_fail(base, all ? why : "out of memory");
    }
    for (int r = 0; r < base->size && !status; r++) {
        status = all[r].status;
        if (status) {
            snprintf(why, TC_COMM_WHY, "rank %d: %.100s", r, all[r].why);
        }
    }
    mine->id = all ? all[0].id : mine->id;
    tci_heap_free(all);
    return status;
}

/* NCCL's communicator of the ranks of base. */
static tc_status tci_nccl_init(tci_nccl *s, tci_nccl_id id, char *why)
{
    tc_status status = tci_nccl_settle(s, tci_nccl_call_init(s, id), "ncclCommInitRank", why);
    if (status && s->comm) {
        s->aborted = 1;
        s->api->cancel(s->comm);
    }
    return status;
}

static tc_status tci_nccl_open_device(tci_nccl *s, int device, char *why)
{
    tc_backend_target target;
    const tc_backend_queues *q = tci_cuda_queues();
    s->device = tci_cuda_get(device);
    if (!s->device) {
        snprintf(why, TC_COMM_WHY, "there is no GPU %d", device);
        return TC_ERR_COMM;
    }
    tc_status status = tci_cuda_target(s->device, 0, &target);
    tci_cuda_stay in = tci_cuda_enter(s->device); /* the driver takes the highest for a lower one */
    status = tci_cuda_leave(&in, status || in.status
                                     ? status
                                     : tci_cuda_check(s->api->stream_make(&s->stream, 1,
                                                                          TCI_NCCL_PRIORITY),
                                                      "cuStreamCreateWithPriority"));
    status = status ? status : q->event_make(s->device, &s->before);
    status = status ? status : q->event_make(s->device, &s->after);
    return tci_nccl_device(status, why);
}

/* NULL: no NCCL, or no memory. */
static tci_nccl *tci_nccl_new(tc_comm *base, const tc_comm_options *o, char *why)
{
    const tci_nccl_api *api = tci_nccl_open(why);
    tci_nccl *s = api ? tci_heap_get(sizeof(*s)) : NULL;
    if (s) {
        *s = (tci_nccl){.api = api,
                        .base = tci_comm_retain(base->number),
                        .timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : TCI_COMM_TIMEOUT_MS,
                        .processors = o->processors};
    } else if (api) {
        snprintf(why, TC_COMM_WHY, "out of memory");
    }
    return s;
}

/* This rank's part before it meets the others; comm NULL: NCCL's communicator is made here. */
static tc_status tci_nccl_set_up(tci_nccl *s, void *comm, int device, tci_nccl_hello *mine,
                                 char *why)
{
    tc_status status = tci_nccl_open_device(s, device, why);
    s->is_ours = !comm;
    s->comm = comm;
    if (!status && !comm && s->base->rank == 0) {
        status = tci_nccl_check(s, s->api->get_id(&mine->id), "ncclGetUniqueId", why);
    }
    return status;
}

static tc_status tci_nccl_make(tc_comm *base, void *comm, int device,
                               const tc_comm_options *options, tc_comm **out, char *why)
{
    tc_comm_options o = options ? *options : (tc_comm_options){.timeout_ms = 0};
    o.processors = o.processors > 0 ? o.processors : TCI_NCCL_PROCESSORS;
    tci_nccl_hello mine = {.status = TC_ERR_COMM};
    tci_nccl *s = tci_nccl_new(base, &o, why);
    mine.status = s ? tci_nccl_set_up(s, comm, device, &mine, why) : TC_ERR_COMM;
    snprintf(mine.why, sizeof(mine.why), "%.100s", why);
    tc_status status = tci_nccl_meet(base, &mine, why);
    if (!status && !comm) {
        tci_cuda_stay in = tci_cuda_enter(s->device);
        status = in.status ? in.status : tci_nccl_init(s, mine.id, why);
        tci_cuda_leave(&in, TC_OK);
    }
    if (!status) {
        status = tc_comm_of_engine(&tci_nccl_engine, s, base->rank, base->size, &o, out);
    }
    if (status && s) {
        tci_nccl_free(s);
    }
    return status;
}
#endif

TC_API tc_status tc_comm_of_nccl(void *nccl_comm, tc_comm *base, int device,
                                 const tc_comm_options *options, tc_comm **out)
{
    char why[512] = "";
    tc_comm *own = tci_comm_of(base);
    if (!out || !own) {
        return !out ? TC_ERR_ARGUMENT : TC_ERR_HANDLE;
    }
    *out = NULL;
#ifdef TCI_HAS_CUDA
    tc_status status = tci_comm_claim(own, why);
    if (!status) {
        status = tci_nccl_make(own, nccl_comm, device, options, out, why);
        tci_comm_unclaim(own);
    }
#else
    (void)nccl_comm, (void)device, (void)options;
    tc_status status = TC_ERR_UNSUPPORTED;
    snprintf(why, sizeof(why), "NCCL needs TC_CUDA, which is not defined");
#endif
    tci_comm_tell(status ? why : "");
    return status;
}

TC_API tc_status tc_comm_nccl(tc_comm *base, int device, const tc_comm_options *options,
                              tc_comm **out)
{
    return tc_comm_of_nccl(NULL, base, device, options, out);
}
/* ---- src/comm/comm_from_env.c ---- */
/* comm/comm_from_env.c - tc_comm_from_env: creates a communicator over the processes that a
 * launcher (mpirun, Slurm, torchrun) started, by MPI or shared memory. */

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
/* ---- src/comm/data_parallel.c ---- */
/* comm/data_parallel.c - data parallel training: bucketed gradient all-reduce, and optimizer states
 * sharded over the ranks (ZeRO).
 *
 * In: gradients of one graph. Out: the same over all ranks, as ordinary nodes: a bucket is a CAT of
 * flat gradients, one collective, and slices of its result, which are views; or, where the engine
 * supports grouped operations (ncclGroupStart), a collective for each gradient after a barrier of
 * all.
 *
 * Buckets hold gradients that are ready one after the other: they are in the order of the longest
 * path from a leaf to each gradient, which in a backward pass grows from the last layer to the
 * first. The collectives are made in that order, and plan/step_order.c schedules the steps between
 * them by the deadlines that follow. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>


enum { TCI_GRADS_BYTES = 25 << 20 };

typedef struct tci_grads {
    tc_comm *comm;
    tc_site here;
    const tc_tensor *grads; /* or new values of shards */
    tc_tensor *out;
    int n, ranks;
    int64_t most; /* bytes of a bucket */
    bool sum;
    const tc_tensor *params; /* of new values of shards: what they are parts of */
    int32_t *order;          /* by readiness */
    tc_tensor *parts;        /* of the bucket being made */
} tci_grads;

/* ---- readiness ---- */

/* Per gradient the longest way from a leaf. False: out of memory. */
static bool tci_grads_depths(const tci_grads *b, int32_t *depths)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_scratch_free(&s);
        return false;
    }
    tci_node **roots = TCI_NEW_ARRAY(&s, tci_node *, b->n);
    for (int i = 0; i < b->n; i++) {
        roots[i] = tci_handle_node(b->grads[i]);
    }
    tci_node_list list = tci_graph_sort(&s, roots, b->n);
    tci_table depth = tci_table_in(&s, sizeof(int32_t));
    for (int i = 0; i < list.n; i++) {
        int32_t d = 0;
        for (int k = 0; k < list.items[i]->n_in; k++) {
            d = TCI_MAX(d, *(int32_t *)tci_table_at(&depth, list.items[i]->in[k]) + 1);
        }
        *(int32_t *)tci_table_at(&depth, list.items[i]) = d;
    }
    for (int i = 0; i < b->n; i++) {
        depths[i] = *(int32_t *)tci_table_at(&depth, roots[i]);
    }
    tci_scratch_free(&s);
    return true;
}

/* Insertion sort, stable: of equal ones the last parameter first, as backward passes go. */
static bool tci_grads_sort(tci_grads *b)
{
    int32_t *depths = tci_heap_get(sizeof(*depths) * (size_t)b->n);
    bool known = depths && tci_grads_depths(b, depths);
    for (int i = 0; i < b->n && known; i++) {
        int32_t which = b->n - 1 - i;
        int at = i;
        for (; at > 0 && depths[b->order[at - 1]] > depths[which]; at--) {
            b->order[at] = b->order[at - 1];
        }
        b->order[at] = which;
    }
    tci_heap_free(depths);
    return known;
}

/* A gradient larger than a bucket that is ready late, as that of an embedding, goes before those of
 * up to a bucket that are ready before it: they are computed while it travels. */
static void tci_grads_large_first(tci_grads *b)
{
    for (int i = 1; i < b->n; i++) {
        const int32_t large = b->order[i];
        int64_t passed = 0;
        int at = i;
        while (tc_nbytes(b->grads[large]) > b->most && at > 0 && passed <= b->most) {
            passed += tc_nbytes(b->grads[b->order[at - 1]]);
            if (passed <= b->most) {
                b->order[at] = b->order[at - 1];
                at--;
            }
        }
        b->order[at] = large;
    }
}

/* ---- a call ---- */

/* The status of the first that failed; it is put into out[0], for tc_error. */
static tc_status tci_grads_judge(tc_tensor *out, int n)
{
    char text[8];
    for (int i = 0; i < n; i++) {
        tc_status status = tci_handle_error(out[i], text, sizeof(text));
        if (status) {
            out[0] = out[i];
            return status;
        }
    }
    return TC_OK;
}

static tc_status tci_grads_begin(tci_grads *b, tc_comm *comm, const tc_tensor *grads, int n,
                                 const tc_buckets *o, tc_tensor *out, tc_site here)
{
    char text[8];
    *b = (tci_grads){.comm = comm,
                     .here = here,
                     .grads = grads,
                     .out = out,
                     .n = n,
                     .ranks = tc_comm_size(comm),
                     .sum = o && o->sum,
                     .most = o && o->bytes > 0 ? o->bytes : TCI_GRADS_BYTES};
    if (!grads || !out || n < 1 || b->ranks < 1) {
        return b->ranks < 1 ? TC_ERR_HANDLE : TC_ERR_ARGUMENT;
    }
    for (int i = 0; i < n; i++) {
        tc_status status = tci_handle_error(grads[i], text, sizeof(text));
        if (status || !tci_dtype_is_float(tc_dtype_of(grads[i]))) {
            out[0] = grads[i];
            return status ? status : TC_ERR_DTYPE;
        }
    }
    b->order = tci_heap_get(sizeof(*b->order) * (size_t)n);
    b->parts = tci_heap_get(sizeof(*b->parts) * (size_t)n);
    if (!b->order || !b->parts || !tci_grads_sort(b)) {
        return TC_ERR_MEMORY;
    }
    tci_grads_large_first(b);
    return TC_OK;
}

static void tci_grads_end(tci_grads *b)
{
    tci_heap_free(b->order);
    tci_heap_free(b->parts);
}

static int64_t tci_grads_count(tc_tensor x)
{
    return tc_nbytes(x) / tc_dtype_size(tc_dtype_of(x));
}

/* Elements of one rank's part. */
static int64_t tci_grads_part(const tci_grads *b, tc_tensor x)
{
    return (tci_grads_count(x) + b->ranks - 1) / b->ranks;
}

static const tc_tensor *tci_grads_at(const tci_grads *b, int place)
{
    return &b->grads[b->order[place]];
}

/* Bytes that a bucket from position `begin` on may have. Nothing is left to compute while the very
 * last one travels, so where buckets cost no copies the last bucket becomes several smaller. */
static int64_t tci_grads_most(const tci_grads *b, int begin)
{
    enum { TCI_GRADS_LAST = 4 }; /* buckets in place of the last one */
    int64_t left = 0;
    for (int i = begin; i < b->n; i++) {
        left += tc_nbytes(*tci_grads_at(b, i));
    }
    bool last = b->comm->engine->groups && begin > 0 && left <= b->most;
    return last ? b->most / TCI_GRADS_LAST : b->most;
}

/* One bucket from position `begin` on: where it ends. */
static int tci_grads_bucket(const tci_grads *b, int begin)
{
    const int64_t most = tci_grads_most(b, begin);
    int64_t bytes = 0;
    int end = begin;
    bool more = true;
    while (more) {
        bytes += tc_nbytes(*tci_grads_at(b, end));
        end++;
        more = end < b->n && bytes < most && tc_nbytes(*tci_grads_at(b, end)) <= b->most &&
               tc_dtype_of(*tci_grads_at(b, end)) == tc_dtype_of(*tci_grads_at(b, begin));
    }
    return end;
}

static tc_tensor tci_grads_flat(const tci_grads *b, tc_tensor x)
{
    const int64_t n = tci_grads_count(x);
    return tc_reshape_at(x, 1, &n, b->here);
}

static tc_tensor tci_grads_like(const tci_grads *b, tc_tensor flat, tc_tensor like)
{
    int64_t sizes[64];
    int rank = tc_rank(like);
    for (int d = 0; d < rank && d < 64; d++) {
        sizes[d] = tc_size(like, d);
    }
    return tc_reshape_at(flat, rank, sizes, b->here);
}

static tc_tensor tci_grads_joined(const tci_grads *b, int n, int axis)
{
    return n == 1 ? b->parts[0] : tc_cat_at((tc_tensors){b->parts, n}, axis, b->here);
}

/* Makes the nodes of all buckets, unless status is an error; ends the call. */
static tc_status tci_grads_make(tci_grads *b, tc_status status,
                                void (*make)(tci_grads *b, int begin, int end))
{
    for (int begin = 0, end; begin < b->n && !status; begin = end) {
        end = tci_grads_bucket(b, begin);
        make(b, begin, end);
    }
    tci_grads_end(b);
    return status ? status : tci_grads_judge(b->out, b->n);
}

/* ---- all_reduce ---- */

/* Where the engine takes several operations as one: an all_reduce for each gradient of the bucket,
 * which all begin when the last one is computed, and no copies. */
static void tci_grads_reduce_each(tci_grads *b, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        b->parts[i - begin] = b->grads[b->order[i]];
    }
    tc_barrier_at((tc_tensors){b->parts, end - begin}, b->parts, b->here);
    for (int i = begin; i < end; i++) {
        b->out[b->order[i]] = tc_comm_all_reduce_at(b->comm, b->parts[i - begin],
                                                    b->sum ? TC_COMM_SUM : TC_COMM_MEAN, b->here);
    }
}

static void tci_grads_reduce_joined(tci_grads *b, int begin, int end)
{
    int64_t at = 0;
    for (int i = begin; i < end; i++) {
        tc_tensor g = b->grads[b->order[i]];
        b->parts[i - begin] = end - begin > 1 ? tci_grads_flat(b, g) : g;
    }
    tc_tensor all = tc_comm_all_reduce_at(b->comm, tci_grads_joined(b, end - begin, 0),
                                          b->sum ? TC_COMM_SUM : TC_COMM_MEAN, b->here);
    for (int i = begin; i < end; i++) {
        tc_tensor g = b->grads[b->order[i]];
        int64_t n = tci_grads_count(g);
        b->out[b->order[i]] = end - begin == 1
                                  ? all
                                  : tci_grads_like(b, tc_slice_at(all, 0, at, at + n, 1, b->here),
                                                   g);
        at += n;
    }
}

static void tci_grads_reduce(tci_grads *b, int begin, int end)
{
    if (b->comm->engine->groups && end - begin > 1) {
        tci_grads_reduce_each(b, begin, end);
    } else {
        tci_grads_reduce_joined(b, begin, end);
    }
}

TC_API tc_status tc_all_reduce_grads_at(tc_comm *comm, const tc_tensor *grads, int n,
                                        const tc_buckets *buckets, tc_tensor *out, tc_site here)
{
    tci_grads b;
    tc_status status = tci_grads_begin(&b, comm, grads, n, buckets, out, here);
    return tci_grads_make(&b, status, tci_grads_reduce);
}

/* ---- parts of ranks ---- */

/* [ranks, part] of x, filled up with zeros. */
static tc_tensor tci_grads_parted(const tci_grads *b, tc_tensor x)
{
    const int64_t sizes[2] = {b->ranks, tci_grads_part(b, x)};
    const int64_t more = sizes[0] * sizes[1] - tci_grads_count(x);
    tc_tensor flat = tci_grads_flat(b, x);
    if (more) {
        flat = tc_pad_at(flat, 0, 0, more, TC_ARG(0), b->here);
    }
    return tc_reshape_at(flat, 2, sizes, b->here);
}

TC_API tc_status tc_zero_shards_at(tc_comm *comm, const tc_tensor *params, int n, tc_tensor *shards,
                                   tc_site here)
{
    tci_grads b;
    tc_status status = tci_grads_begin(&b, comm, params, n, NULL, shards, here);
    for (int i = 0; i < n && !status; i++) {
        int64_t part = tci_grads_part(&b, params[i]), rank = tc_comm_rank(comm);
        tc_tensor own = tc_slice_at(tci_grads_parted(&b, params[i]), 0, rank, rank + 1, 1, here);
        shards[i] = tc_param_from_at(tc_reshape_at(own, 1, &part, here), here);
        status = tci_grads_judge(&shards[i], 1);
    }
    tci_grads_end(&b);
    return status;
}

static void tci_grads_scatter(tci_grads *b, int begin, int end)
{
    int64_t at = 0;
    for (int i = begin; i < end; i++) {
        b->parts[i - begin] = tci_grads_parted(b, b->grads[b->order[i]]);
    }
    tc_tensor own = tc_comm_reduce_scatter_at(b->comm, tci_grads_joined(b, end - begin, 1), 0,
                                              b->sum ? TC_COMM_SUM : TC_COMM_MEAN, b->here);
    for (int i = begin; i < end; i++) {
        int64_t part = tci_grads_part(b, b->grads[b->order[i]]);
        tc_tensor mine = tc_slice_at(own, 1, at, at + part, 1, b->here);
        b->out[b->order[i]] = tc_reshape_at(mine, 1, &part, b->here);
        at += part;
    }
}

TC_API tc_status tc_zero_grads_at(tc_comm *comm, const tc_tensor *grads, int n,
                                  const tc_buckets *buckets, tc_tensor *shard_grads, tc_site here)
{
    tci_grads b;
    tc_status status = tci_grads_begin(&b, comm, grads, n, buckets, shard_grads, here);
    return tci_grads_make(&b, status, tci_grads_scatter);
}

/* The value that the effects assign to a parameter. TC_NONE: none does. */
static tc_tensor tci_grads_assigned(tc_tensor param, const tc_tensor *effects, int n, tc_site here)
{
    const tci_node *p = tci_handle_node(param);
    for (int i = 0; p && i < n; i++) {
        const tci_node *e = tci_handle_node(effects[i]);
        if (e && e->op == TCI_OP_ASSIGN && e->in[0]->storage == p->storage) {
            return tci_handle_make(tci_ctx_of(param.ctx), e->in[1], here);
        }
    }
    return TC_NONE;
}

/* New values of shards to whole parameters: the effects of bucket [begin, end). */
static void tci_grads_gather(tci_grads *b, int begin, int end)
{
    int64_t at = 0;
    for (int i = begin; i < end; i++) {
        const int64_t sizes[2] = {1, tci_grads_count(b->grads[b->order[i]])};
        b->parts[i - begin] = tc_reshape_at(b->grads[b->order[i]], 2, sizes, b->here);
    }
    tc_tensor all = tc_comm_all_gather_at(b->comm, tci_grads_joined(b, end - begin, 1), 0, b->here);
    for (int i = begin; i < end; i++) {
        tc_tensor param = b->params[b->order[i]];
        int64_t part = tci_grads_part(b, param);
        tc_tensor own = tc_slice_at(all, 1, at, at + part, 1, b->here);
        tc_tensor flat = tc_slice_at(tci_grads_flat(b, own), 0, 0, tci_grads_count(param), 1,
                                     b->here);
        b->out[b->order[i]] = tc_assign_at(param, tci_grads_like(b, flat, param), b->here);
        at += part;
    }
}

TC_API tc_status tc_zero_effects_at(tc_comm *comm, const tc_tensor *params, const tc_tensor *shards,
                                    int n, const tc_buckets *buckets, tc_tensor *effects,
                                    int *n_effects, tc_site here)
{
    tci_grads b;
    if (!params || !shards || !effects || !n_effects || n < 1) {
        return TC_ERR_ARGUMENT;
    }
    tc_tensor *values = tci_heap_get(sizeof(*values) * (size_t)n);
    tc_status status = values ? TC_OK : TC_ERR_MEMORY;
    for (int i = 0; i < n && !status; i++) {
        values[i] = tci_grads_assigned(shards[i], effects, *n_effects, here);
        status = tci_is_none(values[i]) ? TC_ERR_ARGUMENT : TC_OK;
    }
    if (!status) {
        status = tci_grads_begin(&b, comm, values, n, buckets, effects + *n_effects, here);
        b.params = params;
        status = tci_grads_make(&b, status, tci_grads_gather);
        *n_effects += status ? 0 : n;
    }
    tci_heap_free(values);
    return status;
}
/* ---- src/comm/partition.c ---- */
/* comm/partition.c - tc_shard and tc_partition: SPMD partitioning of a graph by sharding
 * annotations (comm/partition.h).
 *
 * In: tensors over global (unsharded) inputs and parameters, some of them marked. Out: the tensors
 * of one rank, over its shards.
 *
 * Design: one traversal from leaves to roots. The rule of each op gives the sharding of its result
 * (partition_rules.c); where a consumer needs another sharding, collectives are inserted:
 * all_reduce for a partial sum (reduce_scatter if the consumer wants shards), all_gather for shards
 * (all_to_all to reshard along another axis). A replicated value is sharded by a slice.
 *
 * A parameter without a mark is sharded as in an earlier call, else as the value that is assigned
 * to it: the state of optimizers follows their gradients. Dry runs of the traversal find that
 * first. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* ---- src/comm/partition.h ---- */
/* comm/partition.h - SPMD partitioning (as in GSPMD, arXiv 2105.04663): rewrites a graph over
 * global tensors into the graph of one rank over its shards.
 *
 * A sharding (split) gives, for each axis of a value, the communicator over which it is split into
 * equal shards: rank r has shard r. 0: not sharded; c + 1: over communicator c of the traversal. An
 * axis is sharded over one communicator, and a communicator shards one axis of a value. A value may
 * in addition be partial over communicators: the sum over their ranks is the value. */
#ifndef TCI_COMM_PARTITION_H
#define TCI_COMM_PARTITION_H


enum { TCI_PART_COMMS = 16 };

typedef struct tci_part_form { /* a value with another split */
    struct tci_part_form *next;
    const int8_t *split;
    tci_node *node;
} tci_part_form;

typedef struct tci_part_value {
    tci_node *node; /* this rank's part; NULL: not met yet. In a dry traversal the whole */
    int8_t *split;
    uint32_t partial;          /* bits of communicators */
    bool in_body;              /* computed in the body of a loop */
    struct tci_part_value *as; /* the value of another node; NULL: its own */
    tci_part_form *forms;      /* whole sums among them: never partial */
} tci_part_value;

typedef struct tci_part {
    tci_scratch *s;
    tci_graph *g;
    tci_ctx *ctx;
    tc_comm *comms[TCI_PART_COMMS]; /* counted */
    int n_comms;
    bool dry;         /* splits are found, no node is made */
    tci_table values; /* tci_part_value by node of the whole graph */
    tci_table leaves; /* of INPUT and DATA: int8_t *, the split that was marked or found */
} tci_part;

/* ---- partition.c ---- */
/* n; longjmps with the graph's error where it is NULL. */
TCI_FN tci_node *tci_part_built(tci_part *v, tci_node *n);
TCI_FN tci_part_value *tci_part_of(tci_part *v, const tci_node *n);
/* The whole operand's part with that split, no longer partial: collectives and slices make it. */
TCI_FN tci_node *tci_part_want(tci_part *v, tci_node *n, const int8_t *split);
/* True if the size is a multiple of the communicator's ranks. */
TCI_FN bool tci_part_fits(const tci_part *v, tci_dim size, int split);
TCI_FN int8_t *tci_part_none(tci_part *v, int rank);
/* True if an axis of the split is cut over that communicator. */
TCI_FN bool tci_part_uses(const int8_t *split, int rank, int comm);
/* The shape of n cut by a split. */
TCI_FN tci_dim *tci_part_shape(tci_part *v, const tci_node *n, const int8_t *split);
/* Meets n's operands, then n. */
TCI_FN void tci_part_reach(tci_part *v, tci_node *n);
/* A reduction over the ranks of a communicator. */
TCI_FN tci_node *tci_part_reduce(tci_part *v, tci_node *n, int comm, tc_comm_how how, tc_site site);

/* ---- partition_rules.c ---- */
/* Fills in the value of n, whose operands were met. */
TCI_FN void tci_part_visit(tci_part *v, tci_node *n);

/* A call that makes n tensors of n others: `body` makes out of the roots that stand for them; where
 * it longjmps or fails the frame, the status and out[0] have the error. */
typedef void (*tci_part_body)(void *walk, tci_frame *f, tci_scratch *s, tci_node **roots, int n,
                              tc_tensor *out);
TCI_FN tc_status tci_part_call(const char *name, tc_site here, tci_part_body body, void *walk,
                               const tc_tensor *tensors, int n, tc_tensor *out);

#endif

/* ---- src/comm/partition.c, continued ---- */
enum { TCI_PART_WALKS = 8 };

/* This rank's part of a parameter, made once for all calls. */
typedef struct tci_part_param {
    struct tci_part_param *next;
    tc_tensor whole, own;
    uint64_t versions[2]; /* of both when the part was made */
    int rank;
    int64_t comms[]; /* numbers, per axis */
} tci_part_param;

static tci_mutex tci_part_lock = TCI_MUTEX_INIT;
static tci_part_param *tci_part_params;

/* ---- splits ---- */

TCI_FN tci_node *tci_part_built(tci_part *v, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(v->s, v->g->error ? v->g->error : TC_ERR_INTERNAL, "%s", v->g->message);
    }
    return n;
}

TCI_FN tci_part_value *tci_part_of(tci_part *v, const tci_node *n)
{
    tci_part_value *value = tci_table_at(&v->values, n);
    return value->as ? value->as : value;
}

TCI_FN int8_t *tci_part_none(tci_part *v, int rank)
{
    return TCI_NEW_ARRAY(v->s, int8_t, rank + 1);
}

TCI_FN bool tci_part_uses(const int8_t *split, int rank, int comm)
{
    for (int d = 0; d < rank; d++) {
        if (split[d] == comm + 1) {
            return true;
        }
    }
    return false;
}

TCI_FN bool tci_part_fits(const tci_part *v, tci_dim size, int split)
{
    return tci_dim_divides(v->comms[split - 1]->size, size);
}

TCI_FN tci_dim *tci_part_shape(tci_part *v, const tci_node *n, const int8_t *split)
{
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, n->rank + 1);
    for (int d = 0; d < n->rank; d++) {
        shape[d] = split[d] ? tci_dim_div(n->shape[d], v->comms[split[d] - 1]->size) : n->shape[d];
    }
    return shape;
}

/* ---- collectives ---- */

/* The node of a public call's result. */
static tci_node *tci_part_taken(tci_part *v, tc_tensor made)
{
    char text[512];
    tci_node *n = tci_handle_node(made);
    if (!n) {
        tc_status status = tci_handle_error(made, text, sizeof(text));
        tci_scratch_fail(v->s, status ? status : TC_ERR_INTERNAL, "%s", text);
    }
    return n;
}

TCI_FN tci_node *tci_part_reduce(tci_part *v, tci_node *n, int comm, tc_comm_how how, tc_site site)
{
    tc_tensor x = tci_handle_make(v->ctx, n, site);
    return tci_part_taken(v, tc_comm_all_reduce_at(v->comms[comm], x, how, site));
}

/* A partial sum becomes a sum, in parts where they are wanted. */
static tci_node *tci_part_summed(tci_part *v, tci_node *n, uint32_t partial, int8_t *split,
                                 const int8_t *want, tc_site site)
{
    for (int c = 0; c < v->n_comms; c++) {
        int at = -1;
        for (int d = 0; d < n->rank && partial >> c & 1; d++) {
            at = want[d] == c + 1 && !split[d] ? d : at;
        }
        if (at >= 0) {
            tc_tensor x = tci_handle_make(v->ctx, n, site);
            n = tci_part_taken(v, tc_comm_reduce_scatter_at(v->comms[c], x, at, TC_COMM_SUM, site));
            split[at] = (int8_t)(c + 1);
        } else if (partial >> c & 1) {
            n = tci_part_reduce(v, n, c, TC_COMM_SUM, site);
        }
    }
    return n;
}

/* Cuts that are not wanted are undone, or moved to the axis where they are. */
static tci_node *tci_part_joined(tci_part *v, tci_node *n, int8_t *split, const int8_t *want,
                                 tc_site site)
{
    for (int d = 0; d < n->rank; d++) {
        int c = split[d] - 1, to = -1;
        if (c < 0 || split[d] == want[d]) {
            continue;
        }
        for (int k = 0; k < n->rank; k++) {
            to = want[k] == c + 1 && !split[k] ? k : to;
        }
        tc_tensor x = tci_handle_make(v->ctx, n, site);
        x = to >= 0 ? tc_comm_all_to_all_at(v->comms[c], x, to, d, site)
                    : tc_comm_all_gather_at(v->comms[c], x, d, site);
        n = tci_part_taken(v, x);
        split[d] = 0;
        if (to >= 0) {
            split[to] = (int8_t)(c + 1);
        }
    }
    return n;
}

static tci_node *tci_part_cut(tci_part *v, tci_node *n, const int8_t *split, const int8_t *want)
{
    for (int d = 0; d < n->rank; d++) {
        if (want[d] && !split[d]) {
            const tc_comm *c = v->comms[want[d] - 1];
            tci_dim part = tci_dim_div(n->shape[d], c->size);
            n = tci_part_built(v, tci_build_slice(v->g, n, d, tci_dim_mul(part, c->rank),
                                                  tci_dim_mul(part, c->rank + 1), 1));
        }
    }
    return n;
}

/* True if slices alone make `want` of `split`. */
static bool tci_part_is_coarser(const int8_t *split, const int8_t *want, int rank)
{
    bool coarser = true;
    for (int d = 0; d < rank; d++) {
        coarser = coarser && (!split[d] || split[d] == want[d]);
    }
    return coarser;
}

TCI_FN tci_node *tci_part_want(tci_part *v, tci_node *n, const int8_t *want)
{
    tci_part_value *value = tci_part_of(v, n);
    if (v->dry) {
        return n;
    }
    tci_node *made = value->node;
    int8_t *split = tci_part_none(v, n->rank);
    uint32_t partial = value->partial;
    memcpy(split, value->split, (size_t)n->rank);
    for (const tci_part_form *f = value->forms; f; f = f->next) {
        if (!memcmp(f->split, want, (size_t)n->rank)) {
            return f->node;
        }
        if (tci_part_is_coarser(f->split, want, n->rank)) {
            made = f->node;
            partial = 0;
            memcpy(split, f->split, (size_t)n->rank);
        }
    }
    bool moves = partial || !tci_part_is_coarser(split, want, n->rank);
    made = tci_part_summed(v, made, partial, split, want, n->site);
    made = tci_part_joined(v, made, split, want, n->site);
    made = tci_part_cut(v, made, split, want);
    if (moves) {
        tci_part_form *form = TCI_NEW_ARRAY(v->s, tci_part_form, 1);
        int8_t *kept = tci_part_none(v, n->rank);
        memcpy(kept, want, (size_t)n->rank);
        *form = (tci_part_form){value->forms, kept, made};
        value->forms = form;
    }
    return made;
}

/* ---- traversal ---- */

TCI_FN void tci_part_reach(tci_part *v, tci_node *n)
{
    tci_node_list list = tci_graph_sort(v->s, &n, 1);
    for (int i = 0; i < list.n; i++) {
        if (!tci_part_of(v, list.items[i])->split) {
            tci_stamp before = tci_graph_stamp_as(v->g, list.items[i]);
            tci_part_visit(v, list.items[i]);
            tci_graph_restamp(v->g, before);
        }
    }
}

static void tci_part_add_comm(tci_part *v, int64_t number)
{
    for (int c = 0; c < v->n_comms; c++) {
        if (v->comms[c]->number == number) {
            return;
        }
    }
    tc_comm *comm = v->n_comms < TCI_PART_COMMS ? tci_comm_retain(number) : NULL;
    if (!comm) {
        tci_scratch_fail(v->s, v->n_comms < TCI_PART_COMMS ? TC_ERR_COMM : TC_ERR_LIMIT,
                         "communicator %d of a mark was freed, or the marks have more than %d",
                         (int)number, TCI_PART_COMMS);
    }
    v->comms[v->n_comms++] = comm;
}

/* ---- parts of parameters ---- */

static bool tci_part_is_param(const tci_node *n)
{
    return n->op == TCI_OP_DATA && n->storage->param;
}

static uint64_t tci_part_version(const tci_node *n)
{
    return __atomic_load_n(&n->storage->version, __ATOMIC_ACQUIRE);
}

/* Forgets the parts whose parameters are gone. Called under the lock. */
static void tci_part_forget(void)
{
    for (tci_part_param **at = &tci_part_params; *at;) {
        tci_part_param *p = *at;
        if (tci_handle_node(p->whole) && tci_handle_node(p->own)) {
            at = &p->next;
        } else {
            *at = p->next;
            tci_heap_free(p);
        }
    }
}

static tc_tensor tci_part_known(const tci_part *v, const tci_node *n, const int8_t *split)
{
    tc_tensor found = TC_NONE;
    pthread_mutex_lock(&tci_part_lock);
    tci_part_forget();
    for (const tci_part_param *p = tci_part_params; p; p = p->next) {
        bool same = tci_handle_node(p->whole)->storage == n->storage && p->rank == n->rank;
        for (int d = 0; d < n->rank && same; d++) {
            same = p->comms[d] == (split[d] ? v->comms[split[d] - 1]->number : 0);
        }
        found = same ? p->own : found;
    }
    pthread_mutex_unlock(&tci_part_lock);
    return found;
}

/* The communicators, per axis, over which an earlier call cut the parameter last. False: none
 * did. */
static bool tci_part_cut_before(const tci_node *n, int64_t *comms)
{
    const tci_part_param *p = NULL;
    pthread_mutex_lock(&tci_part_lock);
    tci_part_forget();
    for (p = tci_part_params; p; p = p->next) {
        if (tci_handle_node(p->whole)->storage == n->storage && p->rank == n->rank) {
            memcpy(comms, p->comms, sizeof(*comms) * (size_t)n->rank);
            break;
        }
    }
    pthread_mutex_unlock(&tci_part_lock);
    return p != NULL;
}

/* Fails where the parameter's newest value is in another part than `own`. */
static void tci_part_check_stale(tci_part *v, const tci_node *n, const tci_node *own)
{
    bool stale = false;
    pthread_mutex_lock(&tci_part_lock);
    tci_part_forget();
    for (const tci_part_param *p = tci_part_params; p; p = p->next) {
        const tci_node *whole = tci_handle_node(p->whole), *part = tci_handle_node(p->own);
        stale = stale || (whole->storage == n->storage && part != own &&
                          tci_part_version(whole) == p->versions[0] &&
                          tci_part_version(part) != p->versions[1]);
    }
    pthread_mutex_unlock(&tci_part_lock);
    if (stale) {
        tci_scratch_fail(v->s, TC_ERR_ARGUMENT,
                         "a parameter %s was trained in parts that an earlier tc_partition cut "
                         "otherwise; expected the same marks and communicators, or a parameter "
                         "that was given the value since (tc_assign)",
                         TCI_SHAPE_TEXT(n));
    }
}

/* 1 + the position of a communicator of the traversal; 0: it has none. */
static int8_t tci_part_split_of(const tci_part *v, int64_t number)
{
    int8_t split = 0;
    for (int c = 0; c < v->n_comms; c++) {
        split = v->comms[c]->number == number ? (int8_t)(c + 1) : split;
    }
    return split;
}

static int8_t **tci_part_leaf_split(tci_part *v, const tci_node *leaf)
{
    return tci_table_at(&v->leaves, leaf);
}

/* The split that a parameter without a mark has from an earlier call. */
static void tci_part_inherit(tci_part *v, const tci_node *n)
{
    int64_t *numbers = TCI_NEW_ARRAY(v->s, int64_t, n->rank + 1);
    int8_t *split = tci_part_none(v, n->rank);
    bool is = tci_part_cut_before(n, numbers);
    for (int d = 0; d < n->rank && is; d++) {
        tc_comm *c = numbers[d] ? tci_comm_retain(numbers[d]) : NULL;
        is = !numbers[d] || c;
        if (c) {
            tci_comm_release(c);
            tci_part_add_comm(v, numbers[d]);
            split[d] = tci_part_split_of(v, numbers[d]);
        }
    }
    if (is) {
        *tci_part_leaf_split(v, n) = split;
    }
}

/* The communicators of all marks, and the splits of leaves that have one. */
static void tci_part_find_marks(tci_part *v, const tci_node_list *list)
{
    for (int i = 0; i < list->n; i++) {
        const tci_node *n = list->items[i];
        for (int d = 0; n->op == TCI_OP_SHARD && d < n->n_attr; d++) {
            if (n->attr[d]) {
                tci_part_add_comm(v, n->attr[d]);
            }
        }
    }
    for (int i = 0; i < list->n; i++) {
        const tci_node *n = list->items[i];
        bool leaf = n->op == TCI_OP_SHARD &&
                    (n->in[0]->op == TCI_OP_INPUT || n->in[0]->op == TCI_OP_DATA);
        if (!leaf || *tci_part_leaf_split(v, n->in[0])) {
            continue;
        }
        int8_t *split = tci_part_none(v, n->rank);
        for (int d = 0; d < n->rank; d++) {
            split[d] = tci_part_split_of(v, n->attr[d]);
        }
        *tci_part_leaf_split(v, n->in[0]) = split;
    }
    for (int i = 0; i < list->n; i++) {
        const tci_node *n = list->items[i];
        if (tci_part_is_param(n) && !*tci_part_leaf_split(v, n)) {
            tci_part_inherit(v, n);
        }
    }
}

static bool tci_part_is_cut(const int8_t *split, int rank)
{
    for (int d = 0; d < rank; d++) {
        if (split[d]) {
            return true;
        }
    }
    return false;
}

static void tci_part_begin_walk(tci_part *v, bool dry)
{
    v->values = tci_table_in(v->s, sizeof(tci_part_value));
    v->dry = dry;
}

/* One dry traversal. True if an unmarked parameter got the split of the value assigned to it. */
static bool tci_part_infer(tci_part *v, const tci_node_list *list)
{
    bool found = false;
    tci_part_begin_walk(v, true);
    for (int i = 0; i < list->n; i++) {
        tci_node *n = list->items[i];
        int8_t *split = (n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA) ? *tci_part_leaf_split(v, n)
                                                                        : NULL;
        if (split) {
            *tci_part_of(v, n) = (tci_part_value){.node = n, .split = split};
        } else if (!tci_part_of(v, n)->split) {
            tci_part_visit(v, n);
        }
        if (n->op == TCI_OP_ASSIGN && !*tci_part_leaf_split(v, n->in[0]) &&
            n->in[1]->rank == n->rank &&
            tci_part_is_cut(tci_part_of(v, n->in[1])->split, n->rank)) {
            *tci_part_leaf_split(v, n->in[0]) = tci_part_of(v, n->in[1])->split;
            found = true;
        }
    }
    return found;
}

/* ---- leaves ---- */

static tci_node *tci_part_input(tci_part *v, const tci_node *n, const int8_t *split)
{
    int64_t *words = TCI_NEW_ARRAY(v->s, int64_t, n->rank + 1);
    const tci_dim *shape = tci_part_shape(v, n, split);
    words[0] = n->dtype;
    for (int d = 0; d < n->rank; d++) {
        words[d + 1] = tci_dim_words(shape)[d];
    }
    return tci_part_taken(v, tc_input_at(v->ctx->handle, n->name, n->rank + 1, words, n->site));
}

static tc_status tci_part_remember(tci_part *v, tci_node *n, const int8_t *split, tc_tensor own)
{
    tci_part_param *p = tci_heap_get(sizeof(*p) + sizeof(int64_t) * (size_t)n->rank);
    if (!p) {
        return TC_ERR_MEMORY;
    }
    p->whole = tci_handle_make(v->ctx, n, n->site);
    p->own = own;
    p->versions[0] = tci_part_version(n);
    p->versions[1] = tci_part_version(tci_handle_node(own));
    p->rank = n->rank;
    for (int d = 0; d < n->rank; d++) {
        p->comms[d] = split[d] ? v->comms[split[d] - 1]->number : 0;
    }
    pthread_mutex_lock(&tci_part_lock);
    p->next = tci_part_params;
    tci_part_params = p;
    pthread_mutex_unlock(&tci_part_lock);
    return TC_OK;
}

/* A parameter's part is a parameter; of other memory it is a view. */
static tci_node *tci_part_data(tci_part *v, tci_node *n, const int8_t *split)
{
    tci_node *own = tci_part_cut(v, n, tci_part_none(v, n->rank), split);
    if (!tci_part_is_param(n)) {
        return own;
    }
    tc_tensor known = tci_part_known(v, n, split);
    tci_node *part = tci_is_none(known) ? NULL : tci_handle_node(known);
    tci_part_check_stale(v, n, part);
    if (part) {
        return part;
    }
    tc_tensor made = tc_param_from_at(tci_handle_make(v->ctx, own, n->site), n->site);
    const char *name = tci_param_name_of(n->storage);
    part = tci_part_taken(v, made);
    if ((name && !tci_param_name(part->storage, name)) || tci_part_remember(v, n, split, made)) {
        tci_scratch_fail(v->s, TC_ERR_MEMORY, "out of memory for the part of a parameter");
    }
    return part;
}

/* All ranks make the parts of all marked leaves in the same order. */
static void tci_part_make_leaves(tci_part *v, const tci_node_list *list)
{
    for (int i = 0; i < list->n; i++) {
        tci_node *n = list->items[i];
        int8_t *split = (n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA) ? *tci_part_leaf_split(v, n)
                                                                        : NULL;
        if (split && tci_part_is_cut(split, n->rank)) {
            tci_part_value *value = tci_part_of(v, n);
            value->node = n->op == TCI_OP_INPUT ? tci_part_input(v, n, split)
                                                : tci_part_data(v, n, split);
            value->split = split;
        } else if (tci_part_is_param(n)) {
            tci_part_check_stale(v, n, NULL);
        }
    }
}

/* ---- calls ---- */

static void tci_part_walk(tci_part *v, tci_node *const *roots, int n)
{
    tci_node_list list = tci_graph_sort(v->s, roots, n);
    v->leaves = tci_table_in(v->s, sizeof(int8_t *));
    tci_part_find_marks(v, &list);
    for (int i = 0; i < TCI_PART_WALKS && tci_part_infer(v, &list); i++) {
    }
    tci_part_begin_walk(v, false);
    tci_part_make_leaves(v, &list);
    for (int i = 0; i < list.n; i++) {
        tci_part_reach(v, list.items[i]);
    }
}

/* The part of a mark, a leaf or an effect; the whole of any other node. */
static tci_node *tci_part_root(tci_part *v, tci_node *n)
{
    bool own = n->op == TCI_OP_SHARD || n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA ||
               n->op == TCI_OP_ASSIGN;
    return own ? tci_part_of(v, n)->node : tci_part_want(v, n, tci_part_none(v, n->rank));
}

/* A tci_part_body of tc_partition. */
static void tci_part_all(void *walk, tci_frame *f, tci_scratch *s, tci_node **roots, int n,
                         tc_tensor *out)
{
    tci_part *v = walk;
    v->s = s;
    v->g = &f->ctx->graph;
    v->ctx = f->ctx;
    tci_part_walk(v, roots, n);
    for (int i = 0; i < n; i++) {
        out[i] = tci_handle_make(v->ctx, tci_part_root(v, roots[i]), f->here);
        tci_part_taken(v, out[i]);
    }
    for (int c = 0; c < v->n_comms; c++) { /* offsets of parts are numbers of the graph */
        v->comms[c]->options.may_differ = true;
    }
}

static void tci_part_enter(tci_frame *f, tci_scratch *s, tci_part_body body, void *walk,
                           const tc_tensor *tensors, int n, tc_tensor *out)
{
    if (setjmp(s->escape)) {
        tci_frame_fail(f, s->why, "%s", s->message);
        f->ctx->graph.error = TC_OK;
        return;
    }
    tci_node **roots = TCI_NEW_ARRAY(s, tci_node *, n + 1);
    for (int i = 0; i < n; i++) {
        roots[i] = tci_handle_node(tensors[i]);
    }
    body(walk, f, s, roots, n, out);
}

TCI_FN tc_status tci_part_call(const char *name, tc_site here, tci_part_body body, void *walk,
                               const tc_tensor *tensors, int n, tc_tensor *out)
{
    if (!tensors || !out || n < 1) {
        return TC_ERR_ARGUMENT;
    }
    tci_frame f = tci_frame_begin(name, here);
    tci_scratch s;
    tci_scratch_init(&s);
    for (int i = 0; i < n; i++) {
        tci_frame_use(&f, tensors[i]);
    }
    for (int i = 0; i < n; i++) {
        tci_frame_node(&f, tensors[i], "a tensor");
    }
    if (!f.failed) {
        tci_part_enter(&f, &s, body, walk, tensors, n, out);
    }
    tci_scratch_free(&s);
    if (f.failed) {
        out[0] = tci_frame_end(&f, NULL);
        char text[8];
        return tci_handle_error(out[0], text, sizeof(text));
    }
    tci_frame_leave(&f);
    return TC_OK;
}

TC_API tc_status tc_partition_at(const tc_tensor *tensors, int n, tc_tensor *out, tc_site here)
{
    tci_part v = {.n_comms = 0};
    tc_status status = tci_part_call("tc_partition", here, tci_part_all, &v, tensors, n, out);
    for (int c = 0; c < v.n_comms; c++) {
        tci_comm_release(v.comms[c]);
    }
    return status;
}

/* The communicator's number of an axis, 0 for TC_WHOLE; -1: the frame is failed. */
static int64_t tci_part_mark_of(tci_frame *f, const tci_node *n, const tc_mesh *mesh, int d,
                                int axis)
{
    const tc_comm *c = axis >= 0 && axis < mesh->n ? tci_comm_of(mesh->comms[axis]) : NULL;
    if (axis == TC_WHOLE) {
        return 0;
    }
    if (!c) {
        tci_frame_fail(f, axis < 0 || axis >= mesh->n ? TC_ERR_ARGUMENT : TC_ERR_HANDLE,
                       "axis %d is cut over axis %d of a mesh of %d communicators, expected "
                       "TC_WHOLE, or one that was not freed",
                       d, axis, mesh->n);
    } else if (!tci_dim_divides(c->size, n->shape[d])) {
        tci_frame_fail(f, TC_ERR_SHAPE,
                       "axis %d of %s is cut in %d parts, expected a size that is "
                       "a multiple of %d",
                       d, TCI_SHAPE_TEXT(n), c->size, c->size);
    }
    return f->failed ? -1 : c->number;
}

TC_API tc_tensor tc_shard_at(tc_tensor x, const tc_mesh *mesh, const int *axes, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_shard", here);
    tci_words w;
    tci_frame_use(&f, x);
    tci_node *n = tci_frame_node(&f, x, "the tensor");
    if (n && (!mesh || !mesh->comms || !axes)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the mesh, its communicators or the axes are NULL");
    }
    int64_t *words = f.failed ? NULL : tci_words_get(&f.ctx->graph, &w, n->rank + 1);
    for (int d = 0; words && d < n->rank && !f.failed; d++) {
        words[d] = tci_part_mark_of(&f, n, mesh, d, axes[d]);
        for (int k = 0; k < d && !f.failed && words[d]; k++) {
            if (words[k] == words[d]) {
                tci_frame_fail(&f, TC_ERR_ARGUMENT,
                               "axes %d and %d are cut over one communicator, "
                               "expected one for each",
                               k, d);
            }
        }
    }
    tci_node *made = NULL;
    if (words) {
        made = f.failed ? NULL
                        : tci_build_node(&f.ctx->graph, TCI_OP_SHARD, (tc_dtype)n->dtype, n->rank,
                                         n->shape, 1, &n, n->rank, words);
        tci_words_put(&f.ctx->graph, &w, NULL);
    }
    return tci_frame_end(&f, made);
}
/* ---- src/comm/partition_rules.c ---- */
/* comm/partition_rules.c - sharding rules of each op: the split of its result from those of its
 * operands, and the op on shards.
 *
 * In: a node of the global graph, and the shardings of its operands. Out: the sharding of its
 * result, the shardings that it requires of its operands, and the op on shards.
 *
 * Design: sharding of a parallel (elementwise) axis is propagated; sharding of a reduction axis
 * gives a partial sum; operands sharded in any other way are gathered first. A contraction with
 * column-sharded weights needs no communication, one with row-sharded weights gives a partial sum:
 * the layer pairs of Megatron-LM (arXiv 1909.08053) need no rule of their own. */
#include <string.h>


/* Result of a rule. */
typedef struct tci_part_plan {
    int8_t *out;
    int8_t **in;       /* of each operand */
    uint32_t partial;  /* the result's */
    uint32_t extremes; /* communicators over which the result's maximum or minimum is left */
} tci_part_plan;

static tci_part_plan tci_part_plan_of(tci_part *v, const tci_node *n)
{
    tci_part_plan p = {.out = tci_part_none(v, n->rank),
                       .in = TCI_NEW_ARRAY(v->s, int8_t *, n->n_in + 1)};
    for (int i = 0; i < n->n_in; i++) {
        p.in[i] = tci_part_none(v, n->in[i]->rank);
    }
    return p;
}

/* Axis `to` of a split takes a cut, if it has none and no other axis has that. */
static void tci_part_take(int8_t *split, int rank, int to, int8_t cut)
{
    if (cut && !split[to] && !tci_part_uses(split, rank, cut - 1)) {
        split[to] = cut;
    }
}

/* ---- the op on parts ---- */

static bool tci_part_is_same(const tci_node *n, tci_node *const *in, const int8_t *out)
{
    bool same = true;
    for (int i = 0; i < n->rank; i++) {
        same = same && !out[i];
    }
    for (int i = 0; i < n->n_in; i++) {
        same = same && in[i] == n->in[i];
    }
    return same;
}

static void tci_part_give(tci_part *v, const tci_node *n, const tci_part_plan *p, tci_node *made)
{
    tci_part_value *value = tci_part_of(v, n);
    value->node = made;
    value->split = p->out;
    value->partial = p->partial;
}

static void tci_part_make(tci_part *v, tci_node *n, tci_part_plan *p)
{
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in + 1), *made = n;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = tci_part_want(v, n->in[i], p->in[i]);
    }
    if (!v->dry && !tci_part_is_same(n, in, p->out)) {
        made = tci_part_built(v, tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank,
                                                tci_part_shape(v, n, p->out), n->n_in, in,
                                                n->n_attr, n->attr));
    }
    for (int c = 0; c < v->n_comms && !v->dry; c++) {
        if (p->extremes >> c & 1) {
            bool most = n->op == TCI_OP_MAX || n->op == TCI_OP_ANY;
            made = tci_part_reduce(v, made, c, most ? TC_COMM_MAX : TC_COMM_MIN, n->site);
        }
    }
    tci_part_give(v, n, p, made);
}

/* The value of n is that of e, which is made of ops of their own. */
static void tci_part_as(tci_part *v, const tci_node *n, tci_node *e)
{
    tci_part_reach(v, tci_part_built(v, e));
    tci_part_of(v, n)->as = tci_part_of(v, e);
}

/* ---- element by element ---- */

/* A sum or difference of sums that are both partial over the same ranks stays partial: one message
 * for both. */
static bool tci_part_adds_partial(tci_part *v, tci_node *n)
{
    if (n->op != TCI_OP_ADD && n->op != TCI_OP_SUB) {
        return false;
    }
    const tci_part_value *a = tci_part_of(v, n->in[0]), *b = tci_part_of(v, n->in[1]);
    tci_part_plan p = tci_part_plan_of(v, n);
    bool adds = a->partial && a->partial == b->partial && !a->forms && !b->forms &&
                !memcmp(a->split, b->split, (size_t)n->rank);
    if (adds) {
        tci_node *in[2] = {a->node, b->node};
        memcpy(p.out, a->split, (size_t)n->rank);
        p.partial = a->partial;
        tci_part_give(v, n, &p, v->dry ? n : tci_part_built(v, tci_build_ew(v->g, n->op, in)));
    }
    return adds;
}

static void tci_part_pointwise(tci_part *v, tci_node *n, int but)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    if (tci_part_adds_partial(v, n)) {
        return;
    }
    for (int i = 0; i < n->n_in; i++) {
        const int8_t *split = tci_part_of(v, n->in[i])->split;
        for (int d = 0; d < n->rank; d++) {
            if (d != but) {
                tci_part_take(p.out, n->rank, d, split[d]);
            }
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        p.in[i] = p.out;
    }
    tci_part_make(v, n, &p);
}

/* Axis d of the result is axis from(d) of operand 0, cut as that; -1: no axis. A value that is
 * partial stays so if nothing of it must be joined. */
static void tci_part_moved(tci_part *v, tci_node *n, const int *from)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const tci_part_value *x = tci_part_of(v, n->in[0]);
    bool whole = true;
    for (int d = 0; d < n->rank; d++) {
        if (from[d] >= 0) {
            p.out[d] = p.in[0][from[d]] = x->split[from[d]];
        }
    }
    for (int d = 0; d < n->in[0]->rank; d++) {
        whole = whole && p.in[0][d] == x->split[d];
    }
    bool keeps = n->op == TCI_OP_RESHAPE || n->op == TCI_OP_PERMUTE;
    if (!x->partial || !whole || !keeps) {
        tci_part_make(v, n, &p);
        return;
    }
    p.partial = x->partial;
    tci_node *in = x->node, *made = n;
    if (!v->dry) {
        made = tci_part_built(v, tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank,
                                                tci_part_shape(v, n, p.out), 1, &in, n->n_attr,
                                                n->attr));
    }
    tci_part_give(v, n, &p, made);
}

/* ---- movement ---- */

/* The group of axes [*i, i_end) of x has the elements of [*j, j_end) of y; the axes that lead them,
 * the first that are no 1, or -1. Sizes that are symbols end the search: all that is left is one
 * group. */
static void tci_part_group(const tci_node *x, const tci_node *y, int *i, int *j)
{
    tci_dim have = *i < x->rank ? x->shape[(*i)++] : 1, want = *j < y->rank ? y->shape[(*j)++] : 1;
    while (have != want) {
        bool known = tci_dim_is_known(have) && tci_dim_is_known(want);
        bool less = known && tci_dim_lt(have, want);
        if (known && less && *i < x->rank) {
            have = tci_dim_mul(have, x->shape[(*i)++]);
        } else if (known && !less && *j < y->rank) {
            want = tci_dim_mul(want, y->shape[(*j)++]);
        } else {
            *i = x->rank;
            *j = y->rank;
            return;
        }
    }
}

static int tci_part_leading(const tci_node *n, int begin, int end)
{
    while (begin < end && n->shape[begin] == 1) {
        begin++;
    }
    return begin < end ? begin : -1;
}

static void tci_part_reshape(tci_part *v, tci_node *n)
{
    const tci_node *x = n->in[0];
    const int8_t *split = tci_part_of(v, x)->split;
    int *from = TCI_NEW_ARRAY(v->s, int, n->rank + 1), i = 0, j = 0;
    for (int d = 0; d < n->rank; d++) {
        from[d] = -1;
    }
    while (i < x->rank || j < n->rank) {
        int first_i = i, first_j = j;
        tci_part_group(x, n, &i, &j);
        int a = tci_part_leading(x, first_i, i), b = tci_part_leading(n, first_j, j);
        if (a >= 0 && b >= 0 && split[a] && tci_part_fits(v, n->shape[b], split[a])) {
            from[b] = a;
        }
    }
    tci_part_moved(v, n, from);
}

static void tci_part_permute(tci_part *v, tci_node *n)
{
    int *from = TCI_NEW_ARRAY(v->s, int, n->rank + 1);
    for (int d = 0; d < n->rank; d++) {
        from[d] = (int)n->attr[d];
    }
    tci_part_moved(v, n, from);
}

/* EXPAND, SLICE, PAD, WINDOW, SCAN and TOPK: axes that stay as they are keep their cuts. */
static void tci_part_in_place(tci_part *v, tci_node *n)
{
    int *from = TCI_NEW_ARRAY(v->s, int, n->rank + 1), rank = n->in[0]->rank;
    const tci_dim *words = tci_node_dims(n);
    for (int d = 0; d < n->rank; d++) {
        bool stays = d < rank && n->shape[d] == n->in[0]->shape[d];
        if (stays && n->op == TCI_OP_SLICE) {
            stays = words[2 * d] == 0 && words[2 * d + 1] == 1;
        } else if (stays && n->op == TCI_OP_PAD) {
            stays = words[d] == 0;
        } else if (n->op == TCI_OP_SCAN || n->op == TCI_OP_TOPK) {
            stays = stays && d != n->attr[0];
        }
        for (int i = 0; n->op == TCI_OP_WINDOW && i < n->n_attr; i += 4) {
            stays = stays && d != n->attr[i];
        }
        from[d] = stays ? d : -1;
    }
    tci_part_moved(v, n, from);
}

/* ---- reductions and contractions ---- */

/* The sum of squared differences from the mean as two sums. */
static tci_node *tci_part_devsq(tci_part *v, tci_node *n)
{
    int *items = TCI_NEW_ARRAY(v->s, int, n->n_attr + 1);
    const tc_axes axes = {items, n->n_attr, false};
    const tc_dtype math = tci_composite_math(n);
    tci_dim count = 1;
    for (int i = 0; i < n->n_attr; i++) {
        items[i] = (int)n->attr[i];
        count = tci_dim_mul(count, n->in[0]->shape[n->attr[i]]);
    }
    tci_node *x = tci_build_cast(v->g, n->in[0], math);
    tci_node *mean = tci_composite_binary(v->g, TCI_OP_DIV,
                                          tci_build_reduce(v->g, TCI_OP_SUM, x, axes, true),
                                          tci_build_size_value(v->g, count, math));
    x = tci_composite_unary(v->g, TCI_OP_SQUARE, tci_composite_binary(v->g, TCI_OP_SUB, x, mean));
    x = tci_build_reduce(v->g, TCI_OP_SUM, x, axes, false);
    return tci_build_cast(v->g, x, (tc_dtype)n->dtype);
}

static void tci_part_reduction(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const tci_node *x = n->in[0];
    const int8_t *split = tci_part_of(v, x)->split;
    bool adds = n->op == TCI_OP_SUM, cuts = false;
    bool extreme = n->op == TCI_OP_MAX || n->op == TCI_OP_MIN || n->op == TCI_OP_ANY ||
                   n->op == TCI_OP_ALL;
    for (int d = 0, k = 0, at = 0; d < x->rank; d++) {
        bool reduced = k < n->n_attr && n->attr[k] == d;
        k += reduced;
        if (!reduced) {
            p.out[at++] = p.in[0][d] = split[d];
        } else if (split[d] && (adds || extreme)) {
            p.in[0][d] = split[d];
            *(adds ? &p.partial : &p.extremes) |= 1u << (split[d] - 1);
        }
        cuts = cuts || (reduced && split[d]);
    }
    if (n->op == TCI_OP_DEVSQ && cuts) {
        tci_part_as(v, n, tci_part_devsq(v, n));
    } else {
        tci_part_make(v, n, &p);
    }
}

/* The label of operand `which` that communicator c cuts; -1: none. */
static int64_t tci_part_label(tci_part *v, const tci_node *n, int which, int c)
{
    const int8_t *split = tci_part_of(v, n->in[which])->split;
    for (int d = 0; d < n->in[which]->rank; d++) {
        if (split[d] == c + 1) {
            return tci_contract_labels(n, which)[d];
        }
    }
    return -1;
}

/* Of two operands that one communicator cuts along different labels, the one that keeps its cut: a
 * value rather than weights (whose parts are gathered), else the larger. */
static int tci_part_keeper(const tci_node *n)
{
    bool leaf[2];
    for (int i = 0; i < 2; i++) {
        tci_node *below = tci_below(n->in[i], TCI_THROUGH_ALL, NULL);
        while (below->op == TCI_OP_SHARD) {
            below = tci_below(below->in[0], TCI_THROUGH_ALL, NULL);
        }
        leaf[i] = below->op == TCI_OP_DATA;
    }
    if (leaf[0] != leaf[1]) {
        return leaf[0];
    }
    return tci_node_value_bytes(n->in[1]) > tci_node_value_bytes(n->in[0]);
}

static void tci_part_contract(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    for (int c = 0; c < v->n_comms; c++) {
        const int64_t a = tci_part_label(v, n, 0, c), b = tci_part_label(v, n, 1, c);
        const int64_t label = a < 0 ? b : b < 0 ? a : tci_part_keeper(n) ? b : a;
        bool taken = label < 0;
        int at[3];
        for (int i = 0; i < 3 && !taken; i++) {
            at[i] = tci_contract_axis(n, i, label);
            taken = at[i] >= 0 && (i < 2 ? p.in[i] : p.out)[at[i]];
        }
        for (int i = 0; i < 3 && !taken; i++) {
            if (at[i] >= 0) {
                (i < 2 ? p.in[i] : p.out)[at[i]] = (int8_t)(c + 1);
            }
        }
        if (!taken && at[2] < 0) {
            p.partial |= 1u << c;
        }
    }
    tci_part_make(v, n, &p);
}

/* ---- reads and writes at indices ---- */

/* Off the axis, x and index are cut alike where they have one size. */
static void tci_part_off_axis(tci_part *v, const tci_node *n, tci_part_plan *p, int axis)
{
    for (int i = n->n_in - 1; i >= 0; i--) {
        const int8_t *split = tci_part_of(v, n->in[i])->split;
        for (int d = 0; d < n->rank; d++) {
            if (d != axis && n->in[0]->shape[d] == n->in[1]->shape[d]) {
                tci_part_take(p->out, n->rank, d, split[d]);
            }
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        memcpy(p->in[i], p->out, (size_t)n->rank);
    }
}

static tci_node *tci_part_whole(tci_part *v, int64_t number)
{
    return tci_part_built(v, tci_composite_whole(v->g, number));
}

static tci_node *tci_part_binary(tci_part *v, int op, tci_node *a, tci_node *b)
{
    return tci_part_built(v, tci_composite_binary(v->g, op, a, b));
}

/* x cut along the axis that is read: each rank reads the elements that it has, and 0 for the
 * others. An index outside of x is outside of the part too. */
static tci_node *tci_part_own_rows(tci_part *v, tci_node *n, tci_node *x, tci_node *index, int c)
{
    const int axis = (int)n->attr[0];
    const int64_t size = tci_dim_known(n->in[0]->shape[axis]), part = size / v->comms[c]->size;
    tci_node *i = tci_part_built(v, tci_build_cast(v->g, index, TC_I64));
    tci_node *zero = tci_part_whole(v, 0), *last = tci_part_whole(v, size);
    tci_node *below = tci_part_binary(v, TCI_OP_LT, i, zero);
    i = tci_part_built(v, tci_build_where(v->g, below, tci_part_binary(v, TCI_OP_ADD, i, last), i));
    tci_node *j = tci_part_binary(v, TCI_OP_SUB, i, tci_part_whole(v, part * v->comms[c]->rank));
    tci_node *mine = tci_part_binary(v, TCI_OP_LOGICAL_AND, tci_part_binary(v, TCI_OP_GE, j, zero),
                                     tci_part_binary(v, TCI_OP_LT, j, tci_part_whole(v, part)));
    tci_node *within = tci_part_binary(v, TCI_OP_LOGICAL_AND,
                                       tci_part_binary(v, TCI_OP_GE, i, zero),
                                       tci_part_binary(v, TCI_OP_LT, i, last));
    tci_node *other = tci_part_built(v,
                                     tci_build_where(v->g, within, zero, tci_part_whole(v, part)));
    j = tci_part_built(v, tci_build_where(v->g, mine, j, other));
    tci_node *y = tci_part_built(v, tci_build_gather(v->g, x, axis, j));
    tci_node *nothing = tci_part_built(v, tci_composite_number(v->g, (tc_dtype)n->dtype, 0));
    return tci_part_built(v, tci_build_where(v->g, mine, y, nothing));
}

static void tci_part_gather(tci_part *v, tci_node *n)
{
    const int axis = (int)n->attr[0];
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_off_axis(v, n, &p, axis);
    const int8_t *x = tci_part_of(v, n->in[0])->split, *index = tci_part_of(v, n->in[1])->split;
    tci_part_take(p.out, n->rank, axis, index[axis]);
    p.in[1][axis] = p.out[axis];
    int c = x[axis] - 1;
    bool cut = c >= 0 && !tci_part_uses(p.out, n->rank, c) && n->dtype != TC_BOOL &&
               tci_dim_is_known(n->in[0]->shape[axis]);
    if (!cut) {
        tci_part_make(v, n, &p);
        return;
    }
    p.in[0][axis] = (int8_t)(c + 1);
    p.partial = 1u << c;
    tci_node *of[2] = {tci_part_want(v, n->in[0], p.in[0]), tci_part_want(v, n->in[1], p.in[1])};
    tci_part_give(v, n, &p, v->dry ? n : tci_part_own_rows(v, n, of[0], of[1], c));
}

static void tci_part_scatter(tci_part *v, tci_node *n)
{
    const int axis = (int)n->attr[0];
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_off_axis(v, n, &p, axis);
    bool adds = n->attr[1] == TCI_MODE_ADD && n->n_in == 3 &&
                tci_is_zero(tci_below(n->in[0], TCI_THROUGH_VIEWS, NULL));
    for (int i = 1; i < 3 && adds && !p.partial; i++) {
        int8_t cut = tci_part_of(v, n->in[i])->split[axis];
        if (cut && !tci_part_uses(p.out, n->rank, cut - 1)) {
            p.in[1][axis] = p.in[2][axis] = cut;
            p.partial = 1u << (cut - 1);
        }
    }
    tci_part_make(v, n, &p);
}

/* ---- composites ---- */

/* True if an axis that n treats as one is cut. */
static bool tci_part_cuts(tci_part *v, const tci_node *n)
{
    const int8_t *split = tci_part_of(v, n->in[0])->split;
    const int64_t *axes = n->attr + (n->op == TCI_OP_LAYER_NORM);
    int count = n->op == TCI_OP_LAYER_NORM ? (int)n->attr[0] : n->n_attr;
    bool cuts = false;
    for (int i = 0; i < count; i++) {
        cuts = cuts || split[axes[i]];
    }
    for (int d = 0; n->op == TCI_OP_CROSS_ENTROPY && d < n->in[0]->rank; d++) {
        cuts = cuts || split[d] || (d < n->in[1]->rank && tci_part_of(v, n->in[1])->split[d]);
    }
    return cuts;
}

static void tci_part_composite(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const int8_t *split = tci_part_of(v, n->in[0])->split;
    if (tci_part_cuts(v, n)) {
        tci_part_as(v, n, tci_expand_composite(v->g, n));
        return;
    }
    for (int d = 0, k = 0, at = 0; d < n->in[0]->rank && n->rank; d++) {
        bool reduced = n->op == TCI_OP_MEAN && k < n->n_attr && n->attr[k] == d;
        k += reduced;
        p.in[0][d] = split[d];
        if (!reduced) {
            p.out[at++] = split[d];
        }
    }
    tci_part_make(v, n, &p);
}

static void tci_part_mark(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    for (int d = 0; d < n->rank; d++) {
        for (int c = 0; c < v->n_comms; c++) {
            if (n->attr[d] == v->comms[c]->number) {
                p.out[d] = p.in[0][d] = (int8_t)(c + 1);
            }
        }
    }
    tci_part_give(v, n, &p, tci_part_want(v, n->in[0], p.out));
}

/* ---- others ---- */

static void tci_part_leaf(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_value *value = tci_part_of(v, n);
    if (!value->node) { /* else this rank's part was made */
        tci_part_give(v, n, &p, n);
    }
    value->in_body = n->op == TCI_OP_BOUND;
}

static void tci_part_assign(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const int8_t *split = tci_part_of(v, n->in[0])->split;
    tci_node *in[2] = {tci_part_of(v, n->in[0])->node, tci_part_want(v, n->in[1], split)};
    memcpy(p.out, split, (size_t)n->rank);
    bool same = v->dry || (in[0] == n->in[0] && in[1] == n->in[1]);
    tci_part_give(v, n, &p,
                  same ? n : tci_part_built(v, tci_build_param_assign(v->g, in[0], in[1])));
}

/* Operands that are only waited for may have any split. */
static void tci_part_barrier(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    memcpy(p.out, tci_part_of(v, n->in[0])->split, (size_t)n->rank);
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = i ? tci_part_of(v, n->in[i])->node : tci_part_want(v, n->in[0], p.out);
    }
    bool same = v->dry || tci_part_is_same(n, in, p.out);
    tci_part_give(v, n, &p,
                  same ? n
                       : tci_part_built(v, tci_build_barrier(v->g, in[0], in + 1, n->n_in - 1,
                                                             n->attr[0])));
}

/* All operands whole. */
static void tci_part_undone(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_make(v, n, &p);
}

static bool tci_part_visit_body(tci_part *v, tci_node *n)
{
    bool in_body = false;
    for (int i = 0; i < n->n_in && n->op != TCI_OP_REPEAT; i++) {
        in_body = in_body || tci_part_of(v, n->in[i])->in_body;
    }
    if (in_body) {
        tci_part_undone(v, n);
        tci_part_of(v, n)->in_body = true;
    }
    return in_body;
}

TCI_FN void tci_part_visit(tci_part *v, tci_node *n)
{
    if (tci_part_visit_body(v, n)) {
        return;
    }
    switch ((tci_op)n->op) {
        TCI_EW_OPS(TCI_OP_CASE)
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_BITCAST:
    case TCI_OP_STOP_GRADIENT:
    case TCI_OP_WITH_DERIVATIVE:
        tci_part_pointwise(v, n, -1);
        break;
        TCI_REDUCE_OPS(TCI_OP_CASE) tci_part_reduction(v, n);
        break;
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA:
    case TCI_OP_BOUND: tci_part_leaf(v, n); break;
    case TCI_OP_RESHAPE: tci_part_reshape(v, n); break;
    case TCI_OP_PERMUTE: tci_part_permute(v, n); break;
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE:
    case TCI_OP_PAD:
    case TCI_OP_WINDOW:
    case TCI_OP_SCAN:
    case TCI_OP_TOPK: tci_part_in_place(v, n); break;
    case TCI_OP_CAT: tci_part_pointwise(v, n, (int)n->attr[0]); break;
    case TCI_OP_GATHER: tci_part_gather(v, n); break;
    case TCI_OP_SCATTER: tci_part_scatter(v, n); break;
    case TCI_OP_CONTRACT: tci_part_contract(v, n); break;
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
    case TCI_OP_MEAN:
    case TCI_OP_LAYER_NORM:
    case TCI_OP_CROSS_ENTROPY: tci_part_composite(v, n); break;
    case TCI_OP_NAMED:
    case TCI_OP_CONV_TRANSPOSE: tci_part_as(v, n, tci_expand_composite(v->g, n)); break;
    case TCI_OP_SHARD: tci_part_mark(v, n); break;
    case TCI_OP_ASSIGN: tci_part_assign(v, n); break;
    case TCI_OP_BARRIER: tci_part_barrier(v, n); break;
    case TCI_OP_RANDOM:
    case TCI_OP_SEGMENT:
    case TCI_OP_REPEAT:
    case TCI_OP_RESULT:
    case TCI_OP_CUSTOM:
    case TCI_OP_COLLECTIVE:
    case TCI_OP_LU:
    case TCI_OP_SOLVE:
    case TCI_OP_SOLVE_TRIANGULAR:
    case TCI_OP_CHOLESKY: tci_part_undone(v, n); break;
    }
}
/* ---- src/comm/prefetch.c ---- */
/* comm/prefetch.c - tc_prefetch: all-gathers sharded parameters just before each use and drops them
 * after it (FSDP, arXiv 2304.11277).
 *
 * In: a graph with all_gathers of parameters. Out: the same values; a gather whose uses are far
 * apart, as in a layer's forward and backward pass, is made once for each, so that its result is
 * freed between them; and a gather starts when the uses of an earlier one begin. A reduce_scatter
 * starts when an earlier one is done, so that unsharded gradients do not accumulate.
 *
 * Design: uses in the order of their depth (the longest path from a leaf) are the order in which
 * layers run. Each gather serves one contiguous range of uses in that order; a BARRIER delays its
 * operand until the first use of the gather `ahead` + 1 positions earlier. Every edge goes from a
 * lower position to a higher one, so there is no cycle. */
#include <stdio.h>
#include <string.h>


enum { TCI_FETCH_BETWEEN = 2 }; /* uses of other gathers between two of one that are far apart */

/* A node that uses a gather: directly, or through views and casts. */
typedef struct tci_fetch_use {
    tci_node *gather, *user;
    int32_t depth;
    int32_t stretch; /* of the gather's uses: the position of its first in the list */
} tci_fetch_use;

/* A gather of one range of uses. */
typedef struct tci_fetch_event {
    tci_node *gather, *first; /* its first user */
    tci_node *made;
} tci_fetch_event;

typedef struct tci_fetch {
    tci_scratch *s;
    tci_graph *g;
    int ahead;
    tci_table depths;   /* int32_t */
    tci_table gathers;  /* of a gather, its views and their casts: tci_node *, the gather */
    tci_table now;      /* of nodes that were built again */
    tci_node_list list; /* by depth */
    tci_fetch_use *uses;
    int n_uses, cap_uses;
    tci_fetch_event *events;
    int n_events;
    tci_node **scatters;
    int n_scatters, cap_scatters; /* reduce_scatters, by depth */
} tci_fetch;

static int32_t *tci_fetch_depth(tci_fetch *f, const tci_node *n)
{
    return tci_table_at(&f->depths, n);
}

static tci_node **tci_fetch_gather(tci_fetch *f, const tci_node *n)
{
    return tci_table_at(&f->gathers, n);
}

/* ---- uses ---- */

static bool tci_fetch_is(const tci_node *n, tc_comm_verb verb)
{
    return n->op == TCI_OP_COLLECTIVE && n->attr[TCI_COLLECTIVE_VERB] == (int64_t)verb;
}

static bool tci_fetch_is_gather(tci_node *n)
{
    return tci_fetch_is(n, TC_COMM_ALL_GATHER) &&
           tci_below(n->in[0], TCI_THROUGH_ALL, NULL)->op == TCI_OP_DATA;
}

static void tci_fetch_look(tci_fetch *f, tci_node *n)
{
    int32_t depth = 0;
    for (int i = 0; i < n->n_in; i++) {
        depth = TCI_MAX(depth, *tci_fetch_depth(f, n->in[i]) + 1);
    }
    *tci_fetch_depth(f, n) = depth;
    if (tci_fetch_is(n, TC_COMM_REDUCE_SCATTER)) {
        TCI_PUSH(f->s, f->scatters, f->n_scatters, f->cap_scatters, n);
    }
    bool passes = n->n_in && (tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_CAST);
    *tci_fetch_gather(f, n) = tci_fetch_is_gather(n) ? n
                              : passes               ? *tci_fetch_gather(f, n->in[0])
                                                     : NULL;
    for (int i = 0; i < n->n_in && !*tci_fetch_gather(f, n); i++) {
        tci_node *gather = *tci_fetch_gather(f, n->in[i]);
        if (gather) {
            const tci_fetch_use use = {.gather = gather, .user = n, .depth = depth};
            TCI_PUSH(f->s, f->uses, f->n_uses, f->cap_uses, use);
        }
    }
}

/* Counting sort by depth, stable. */
static void tci_fetch_sort(tci_fetch *f)
{
    int32_t most = 0;
    for (int i = 0; i < f->list.n; i++) {
        most = TCI_MAX(most, *tci_fetch_depth(f, f->list.items[i]));
    }
    int32_t *at = TCI_NEW_ARRAY(f->s, int32_t, most + 2);
    tci_node **sorted = TCI_NEW_ARRAY(f->s, tci_node *, f->list.n + 1);
    for (int i = 0; i < f->list.n; i++) {
        at[*tci_fetch_depth(f, f->list.items[i]) + 1]++;
    }
    for (int d = 0; d < most; d++) {
        at[d + 1] += at[d];
    }
    for (int i = 0; i < f->list.n; i++) {
        sorted[at[*tci_fetch_depth(f, f->list.items[i])]++] = f->list.items[i];
    }
    f->list.items = sorted;
}

/* The last use of the gather before use u in the list; -1: u is its first. */
static int tci_fetch_previous(const tci_fetch *f, int u)
{
    int i = u - 1;
    while (i >= 0 && f->uses[i].gather != f->uses[u].gather) {
        i--;
    }
    return i;
}

/* Uses are in the order of depth: the ranges of each gather. */
static void tci_fetch_find_events(tci_fetch *f)
{
    f->events = TCI_NEW_ARRAY(f->s, tci_fetch_event, f->n_uses + 1);
    for (int u = 0; u < f->n_uses; u++) {
        tci_fetch_use *use = &f->uses[u];
        int before = tci_fetch_previous(f, u), between = 0;
        for (int i = before + 1; i < u && before >= 0; i++) {
            between += f->uses[i].depth > f->uses[before].depth && f->uses[i].depth < use->depth;
        }
        if (before >= 0 && between < TCI_FETCH_BETWEEN) {
            use->stretch = f->uses[before].stretch;
        } else {
            use->stretch = f->n_events;
            f->events[f->n_events++] = (tci_fetch_event){use->gather, use->user, NULL};
        }
    }
}

/* ---- the graph once more ---- */

static tci_node *tci_fetch_built(tci_fetch *f, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(f->s, f->g->error ? f->g->error : TC_ERR_INTERNAL, "%s", f->g->message);
    }
    return n;
}

static tci_node *tci_fetch_now(tci_fetch *f, tci_node *n);

/* A node that uses several gathers does not wait for itself, and none waits for a node that has no
 * value: a loop, whose results are other nodes, or an effect. */
static bool tci_fetch_may_wait(const tci_node *user, const tci_node *before)
{
    return before != user && before->op != TCI_OP_REPEAT && !tci_op_is(before->op, TCI_IS_EFFECT);
}

static tci_node *tci_fetch_event_made(tci_fetch *f, int e)
{
    tci_fetch_event *event = &f->events[e];
    if (!event->made) {
        const tci_comm_step step = tci_build_comm_step(event->gather);
        tci_node *x = event->gather->in[0];
        int before = e - 1 - f->ahead;
        while (before >= 0 && !tci_fetch_may_wait(event->first, f->events[before].first)) {
            before--;
        }
        if (before >= 0) {
            tci_node *after = tci_fetch_now(f, f->events[before].first);
            x = tci_fetch_built(f, tci_build_barrier(f->g, x, &after, 1, false));
        }
        event->made = tci_fetch_built(f, tci_build_collective(f->g, &step, x));
    }
    return event->made;
}

/* A gather, or views and casts of it, as range e has it. */
static tci_node *tci_fetch_viewed(tci_fetch *f, tci_node *n, int e)
{
    if (n == f->events[e].gather) {
        return tci_fetch_event_made(f, e);
    }
    tci_table_put(&f->now, n->in[0], tci_fetch_viewed(f, n->in[0], e));
    for (int i = 1; i < n->n_in; i++) {
        tci_table_put(&f->now, n->in[i], n->in[i]);
    }
    return tci_fetch_built(f, tci_graph_rebuild(f->s, f->g, n, &f->now));
}

/* The range in which n uses the gather. */
static int tci_fetch_stretch(const tci_fetch *f, const tci_node *gather, const tci_node *n)
{
    for (int u = 0; u < f->n_uses; u++) {
        if (f->uses[u].gather == gather && f->uses[u].user == n) {
            return f->uses[u].stretch;
        }
    }
    return -1;
}

/* The operand of a reduce_scatter waits for the one `ahead` + 1 positions before it. */
static void tci_fetch_limit(tci_fetch *f, tci_node *n)
{
    int k = 0;
    while (k < f->n_scatters && f->scatters[k] != n) {
        k++;
    }
    if (k > f->ahead && k < f->n_scatters) {
        tci_node *before = tci_fetch_now(f, f->scatters[k - 1 - f->ahead]);
        tci_node *x = tci_table_get(&f->now, n->in[0]);
        tci_table_put(&f->now, n->in[0],
                      tci_fetch_built(f, tci_build_barrier(f->g, x, &before, 1, false)));
    }
}

/* All nodes of less depth were built. */
static tci_node *tci_fetch_now(tci_fetch *f, tci_node *n)
{
    tci_node **made = tci_table_at(&f->now, n);
    if (*made || *tci_fetch_gather(f, n)) {
        return *made;
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_node *gather = *tci_fetch_gather(f, n->in[i]);
        if (gather) {
            tci_node *x = tci_fetch_viewed(f, n->in[i], tci_fetch_stretch(f, gather, n));
            tci_table_put(&f->now, n->in[i], x);
        }
    }
    tci_stamp before = tci_graph_stamp_as(f->g, n);
    if (tci_fetch_is(n, TC_COMM_REDUCE_SCATTER)) {
        tci_fetch_limit(f, n);
    }
    *made = tci_fetch_built(f, tci_graph_rebuild(f->s, f->g, n, &f->now));
    tci_graph_restamp(f->g, before);
    return *made;
}

static void tci_fetch_walk(tci_fetch *f, tci_node *const *roots, int n)
{
    f->depths = tci_table_in(f->s, sizeof(int32_t));
    f->gathers = tci_table_in(f->s, sizeof(tci_node *));
    f->now = tci_table_in(f->s, sizeof(tci_node *));
    f->list = tci_graph_sort(f->s, roots, n);
    for (int i = 0; i < f->list.n; i++) {
        tci_fetch_look(f, f->list.items[i]);
    }
    tci_fetch_sort(f);
    f->n_uses = f->n_scatters = 0;
    for (int i = 0; i < f->list.n; i++) { /* once more, in the order of depth */
        tci_fetch_look(f, f->list.items[i]);
    }
    tci_fetch_find_events(f);
    for (int i = 0; i < f->list.n; i++) {
        tci_fetch_now(f, f->list.items[i]);
    }
}

/* A tci_part_body of tc_prefetch. */
static void tci_fetch_all(void *walk, tci_frame *frame, tci_scratch *s, tci_node **roots, int n,
                          tc_tensor *out)
{
    tci_fetch *f = walk;
    f->s = s;
    f->g = &frame->ctx->graph;
    tci_fetch_walk(f, roots, n);
    for (int i = 0; i < n; i++) { /* a root that is a gather stays that */
        tci_node *made = *tci_fetch_gather(f, roots[i]) ? roots[i] : tci_fetch_now(f, roots[i]);
        out[i] = tci_handle_make(frame->ctx, made, frame->here);
    }
}

TC_API tc_status tc_prefetch_at(const tc_tensor *tensors, int n, int ahead, tc_tensor *out,
                                tc_site here)
{
    tci_fetch walk = {.ahead = ahead};
    return ahead < 0 ? TC_ERR_ARGUMENT
                     : tci_part_call("tc_prefetch", here, tci_fetch_all, &walk, tensors, n, out);
}
/* ---- src/comm/predict_scaling.c ---- */
/* comm/predict_scaling.c - tc_simulate: predicts the time of a program on many ranks, from measured
 * latency and bandwidth of a communicator's links.
 *
 * In: a program; a communicator. Out: times by the model (run/comm_cost_model.c); the constants of
 * its links.
 *
 * The time of an all_reduce is the difference between programs with CHAIN dependent all_reduces and
 * with a single one, over CHAIN - 1, so that launch overhead and host time cancel. The slowdown of
 * kernels is the extra time of a chain of matrix products with one long all_reduce next to it. */
#include <math.h>


enum {
    TCI_LINK_CHAIN = 9,
    TCI_LINK_RUNS = 8,
    TCI_LINK_SMALL = 2,
    TCI_LINK_LARGE = 4 << 20,
    TCI_LINK_LONG = 8,      /* times as many elements, next to kernels */
    TCI_LINK_SIDE = 2048,   /* columns of a product, twice as many rows: two tiles a processor */
    TCI_LINK_PRODUCTS = 512 /* of a chain, at most */
};

/* The program of a run: two chains next to each other. */
typedef struct tci_link_work {
    int64_t elements;
    int reduces, products;
} tci_link_work;

/* The least time of a run, ns. */
static tc_status tci_link_run(tc_comm *comm, const char *backend, tci_link_work w, double *best)
{
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    const tc_options o = {.backend = backend};
    tc_status status = tc_ctx_make(&ctx, &o);
    tc_tensor p = tc_param(ctx, NULL, TC_F32, w.reduces ? w.elements : 1), x = p;
    const int64_t side = w.products ? TCI_LINK_SIDE : 1;
    tc_tensor q = tc_param(ctx, NULL, TC_BF16, side, side);
    tc_tensor z = tc_param(ctx, NULL, TC_BF16, 2 * side, side), y = z;
    for (int i = 0; i < w.reduces; i++) {
        x = tc_comm_all_reduce(comm, x, TC_COMM_MAX);
    }
    for (int i = 0; i < w.products; i++) {
        y = tc_matmul(y, q);
    }
    tc_tensor effects[2] = {tc_assign(p, x), tc_assign(z, y)};
    int first = w.reduces ? 0 : 1, n = (w.reduces > 0) + (w.products > 0);
    status = status
                 ? status
                 : tc_compile_fn((tc_tensors){NULL, 0}, (tc_tensors){effects + first, n}, NULL, &f);
    for (int i = 0; i < TCI_LINK_RUNS && !status; i++) {
        const int64_t begin = tci_os_now_ns();
        status = tc_run(f, (tc_bufs){NULL, 0}, (tc_bufs){NULL, 0});
        const double ns = (double)(tci_os_now_ns() - begin);
        *best = i == 0 || ns < *best ? ns : *best;
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return status;
}

static tc_status tci_link_time(tc_comm *comm, const char *backend, int64_t elements, double *ns)
{
    double one = 0, chain = 0;
    tci_link_work w = {.elements = elements, .reduces = 1};
    tc_status status = tci_link_run(comm, backend, w, &one);
    w.reduces = TCI_LINK_CHAIN;
    status = status ? status : tci_link_run(comm, backend, w, &chain);
    *ns = TCI_MAX((chain - one) / (TCI_LINK_CHAIN - 1), 1);
    return status;
}

/* Rank 0's number. */
static tc_status tci_link_agree(const tc_comm *own, double wanted, int *number)
{
    char why[TC_COMM_WHY] = "";
    double *all = tci_heap_get(sizeof(*all) * (size_t)own->size);
    tc_status status = all ? own->engine->exchange(own->state, &wanted, all, sizeof(wanted),
                                                   own->options.timeout_ms, "tc_comm_measure", why)
                           : TC_ERR_MEMORY;
    *number = status ? 0 : (int)all[0];
    tci_heap_free(all);
    return status;
}

/* The share of their speed that kernels of a device lose next to an all_reduce LONG times as long
 * as one of `ns`: products that take about half as long again, alone and next to it. Ranks may
 * differ in how many products they need, so all take rank 0's number. On the host the steps of a
 * collective take the time, and kernels lose nothing. */
static tc_status tci_link_busy(tc_comm *comm, const char *backend, double ns, double *busy)
{
    tc_comm *own = tci_comm_of(comm);
    tci_link_work w = {.elements = TCI_LINK_LONG * TCI_LINK_LARGE, .products = 1};
    double one = 0, chain = 0, alone = 0, both = 0;
    if (!own->engine->device) {
        *busy = 0;
        return TC_OK;
    }
    tc_status status = tci_link_run(comm, backend, w, &one);
    w.products = TCI_LINK_CHAIN;
    status = status ? status : tci_link_run(comm, backend, w, &chain);
    const double each = TCI_MAX((chain - one) / (TCI_LINK_CHAIN - 1), 1);
    const double most = TCI_LINK_PRODUCTS;
    const double wanted = TCI_MIN(TCI_MAX(1.5 * TCI_LINK_LONG * ns / each, TCI_LINK_CHAIN), most);
    status = status ? status : tci_link_agree(own, wanted, &w.products);
    status = status ? status : tci_link_run(comm, backend, w, &alone);
    w.reduces = 1;
    status = status ? status : tci_link_run(comm, backend, w, &both);
    *busy = TCI_MIN(TCI_MAX((both - alone) / (TCI_LINK_LONG * ns), 0), 1);
    return status;
}

TC_API tc_status tc_comm_measure(tc_comm *comm, const char *backend, tc_link *link)
{
    tc_comm *own = tci_comm_of(comm);
    double small = 0, large = 0, busy = 0;
    if (!own || !link) {
        return own ? TC_ERR_ARGUMENT : TC_ERR_HANDLE;
    }
    tc_status status = tci_link_time(comm, backend, TCI_LINK_SMALL, &small);
    status = status ? status : tci_link_time(comm, backend, TCI_LINK_LARGE, &large);
    status = status ? status : tci_link_busy(comm, backend, large, &busy);
    if (status) {
        return status;
    }
    const double p = own->size, rounds = TCI_MAX(ceil(log2(p)), 1);
    const double bytes = (double)TCI_LINK_LARGE * 4, moved = p > 1 ? (p - 1) / p : 1;
    own->link.latency_us = small / 1e3 / (2 * rounds);
    own->link.gb_per_s = 2 * moved * bytes / TCI_MAX(large - small, 1);
    own->link.busy = busy;
    own->link_measured = true;
    *link = own->link;
    return TC_OK;
}

TC_API tc_status tc_simulate(const tc_program *f, const tc_cluster *machine, const tc_comm *scaled,
                             int ranks, tc_simulation *out)
{
    const tc_comm *of = scaled ? tci_comm_of(scaled) : NULL;
    tci_comm_model m;
    bool rates = !machine || (machine->inner.gb_per_s > 0 &&
                              (!machine->ranks_per_node || machine->outer.gb_per_s > 0));
    if (!f || !out || ranks < 1 || !rates) {
        return TC_ERR_ARGUMENT;
    }
    if (scaled && !of) {
        return TC_ERR_HANDLE;
    }
    if (!tci_comm_model_of(f, machine, of ? of->number : 0, ranks, &m)) {
        return TC_ERR_MEMORY;
    }
    *out = (tc_simulation){m.step_ns / 1e3,    m.compute_ns / 1e3, m.comm_ns / 1e3,
                           m.exposed_ns / 1e3, m.slowed_ns / 1e3,  m.n};
    return TC_OK;
}

/* ---- src/base/impl_end.h ---- */
/* base/impl_end.h - closes the region that base/impl_begin.h opened: restores the user's compiler
 * options and warnings. */

#if defined(__clang__)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute pop
#endif
#pragma float_control(pop)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif
