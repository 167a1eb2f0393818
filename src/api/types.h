/* api/types.h - declares the basic public types: handles, status codes, dtypes, options. */
#ifndef TC_API_TYPES_H
#define TC_API_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header (semver.org; docs/stability.md); tc_version() returns that of the code
 * that the program is linked with. */
#define TC_VERSION_MAJOR 0
#define TC_VERSION_MINOR 9
#define TC_VERSION_PATCH 0
#define TC_VERSION "0.9.0"

/* Linkage of the public functions: TC_STATIC makes everything static, TC_API decorates. */
#ifndef TC_API
#ifdef TC_STATIC
#define TC_API static
#else
#define TC_API extern
#endif
#endif

/* Every function that can fail returns one of these, or a poisoned tensor whose tc_error() tells
 * it. */
#define TCI_STATUS_ROWS(X)                                                                         \
    X(TC_OK, "ok")                                                                                 \
    X(TC_ERR_ARGUMENT, "bad argument")                                                             \
    X(TC_ERR_SHAPE, "shapes do not fit")                                                           \
    X(TC_ERR_DTYPE, "dtypes do not fit")                                                           \
    X(TC_ERR_AXIS, "axis out of range")                                                            \
    X(TC_ERR_HANDLE, "dead, null or foreign handle")                                               \
    X(TC_ERR_BUFFER, "buffer does not fit")                                                        \
    X(TC_ERR_INDEX, "index out of range")                                                          \
    X(TC_ERR_LIMIT, "size too large")                                                              \
    X(TC_ERR_MEMORY, "out of memory")                                                              \
    X(TC_ERR_COMPILER, "the compiler is missing or failed")                                        \
    X(TC_ERR_BACKEND, "no such backend, or it failed")                                             \
    X(TC_ERR_UNSUPPORTED, "not supported here")                                                    \
    X(TC_ERR_BUSY, "in use by another thread")                                                     \
    X(TC_ERR_CANCELLED, "cancelled")                                                               \
    X(TC_ERR_IO, "file cannot be read or written")                                                 \
    X(TC_ERR_COMM, "a communicator failed")                                                        \
    X(TC_ERR_CHECK, "a check of values failed")                                                    \
    X(TC_ERR_GRADIENT, "a gradient is not what differences say")                                   \
    X(TC_ERR_FROZEN, "not compiled, as the stance forbids")                                        \
    X(TC_ERR_INTERNAL, "broken invariant inside tc: please report")
typedef enum tc_status {
#define TCI_ROW(id, text) id,
    TCI_STATUS_ROWS(TCI_ROW)
#undef TCI_ROW
        TC_STATUS_COUNT
} tc_status;

/* X(ID, name, C type of the storage, bytes, kind, dtype it computes in). ORDER dtype: kinds are
 * contiguous and tci_dtype_is_* rely on it. bool is one byte, 0 or 1. */
#define TCI_DTYPE_ROWS(X)                                                                          \
    X(TC_BOOL, "bool", "unsigned char", 1, BOOL, TC_BOOL)                                          \
    X(TC_U8, "u8", "unsigned char", 1, UINT, TC_U8)                                                \
    X(TC_U16, "u16", "unsigned short", 2, UINT, TC_U16)                                            \
    X(TC_U32, "u32", "unsigned int", 4, UINT, TC_U32)                                              \
    X(TC_U64, "u64", "unsigned long long", 8, UINT, TC_U64)                                        \
    X(TC_I8, "i8", "signed char", 1, INT, TC_I8)                                                   \
    X(TC_I16, "i16", "short", 2, INT, TC_I16)                                                      \
    X(TC_I32, "i32", "int", 4, INT, TC_I32)                                                        \
    X(TC_I64, "i64", "long long", 8, INT, TC_I64)                                                  \
    X(TC_F16, "f16", "unsigned short", 2, FLOAT, TC_F32)                                           \
    X(TC_BF16, "bf16", "unsigned short", 2, FLOAT, TC_F32)                                         \
    X(TC_F32, "f32", "float", 4, FLOAT, TC_F32)                                                    \
    X(TC_F64, "f64", "double", 8, FLOAT, TC_F64)
/* Their numbers are no sizes, so that a dtype that was forgotten before some is found. The last one
 * is no dtype, and what tc_dtype_of tells of no tensor. */
typedef enum tc_dtype {
    TCI_DTYPE_BEFORE = -101,
#define TCI_ROW(id, name, ctype, bytes, kind, compute) id,
    TCI_DTYPE_ROWS(TCI_ROW)
#undef TCI_ROW
        TC_DTYPE_COUNT
} tc_dtype;

/* 16-bit floats as a C program holds them. */
typedef struct tc_f16 {
    uint16_t bits;
} tc_f16;
typedef struct tc_bf16 {
    uint16_t bits;
} tc_bf16;

typedef struct tc_ctx tc_ctx; /* owns graphs; used by one thread at a time */
/* compiled; used by any number of threads; outlives its context */
typedef struct tc_program tc_program;
typedef struct tc_call tc_call;   /* one caller's bindings and workspace */
typedef struct tc_queue tc_queue; /* asynchronous runs, done in order */
typedef struct tc_event tc_event; /* tells when one of them ended, and how */
typedef struct tc_jit tc_jit;     /* a C function compiled once for each signature */

/* A tensor handle: a small value, copied freely, never freed singly. It names a node of its
 * context's graph and dies with the scope it was made in. A poisoned handle carries the first
 * error. */
typedef struct tc_tensor {
    tc_ctx *ctx;
    uint32_t id, generation;
} tc_tensor;

typedef struct tc_tensors {
    const tc_tensor *items;
    int n;
} tc_tensors;
typedef struct tc_axes {
    const int *items;
    int n;
    bool all;
} tc_axes;

/* Where in the user's program a call stands; every public call takes one through TC_HERE. */
typedef struct tc_site {
    const char *file;
    int line;
} tc_site;

/* An operand: a tensor, or a C number. Numbers are weak as in NEP 50 (they take the tensor's dtype
 * where its kind allows). kind: 0 tensor, 1 bool, 2 integer, 3 floating. */
typedef struct tc_arg {
    tc_tensor tensor;
    int kind;
    int64_t i;
    double f;
} tc_arg;

/* A parameter of tc_op: its name and a text, n integers, or (where those are NULL) a number or a
 * tensor. */
typedef struct tc_attr {
    const char *name;
    tc_arg value;
    int n;
    const int64_t *items;
    const char *text;
} tc_attr;
typedef struct tc_attrs {
    const tc_attr *items;
    int n;
} tc_attrs;

/* Memory the user owns, passed to tc_run: n elements of dtype at data, dense, in row-major order
 * and aligned as C aligns that type; or with strides between them. */
typedef struct tc_buf {
    void *data;
    int64_t n;
    int dtype;     /* a tc_dtype, or -1: of unknown type (void *, char *); n then counts bytes */
    bool is_const; /* made from a pointer to const: refused as an output */
    int rank;
    const int64_t *sizes;   /* of its axes, `rank` of them, or NULL: any whose product is n */
    const int64_t *strides; /* of its axes, in elements; NULL: it is dense. data: element 0 ... 0 */
} tc_buf;
typedef struct tc_bufs {
    const tc_buf *items;
    int n;
} tc_bufs;

/* realloc-like: p NULL and old_bytes 0 to get, new_bytes 0 to free. Returns NULL when out of
 * memory. */
typedef struct tc_allocator {
    void *(*resize)(void *user, void *p, size_t old_bytes, size_t new_bytes);
    void *user;
} tc_allocator;

/* FAST leaves tc free to approximate: on a GPU with matrix units for that (from Ampere on), large
 * contractions of f32 (products, convolutions, the gradients of both) are made there in f32 sums
 * of rounded factors: TF32, which keeps 11 bits of each, so that a product is within 2^-10 of |a
 * b|; on Hopper gradients to filters of convolutions, and batched products, are made of bf16
 * parts, low high + high low + high high, within 2^-16 of |a b|, where an infinite factor gives
 * NaN. This is what PyTorch's "high" precision allows. On a processor convolutions of f32 by 3 x 3
 * elements, of stride 1, dilation 1 and one group, and their gradients to the image, are made by
 * Winograd's F(2, 3) or F(4, 3) where that pays: within (channels + 32) 2^-18 or 2^-12 of the
 * largest |x| times the sum, over the channels, of the filter's largest |w|, and of numbers that
 * are not made for that some 2^-20; an element that is NaN, infinite or above 2^120 may make NaN
 * of all results up to four places away. tc_explain names all of these. Elsewhere FAST computes
 * what EXACT does */
typedef enum tc_math { TC_MATH_EXACT, TC_MATH_FAST } tc_math;
/* Rematerialization: trades compute for peak memory. NONE stores every value that is needed later,
 * as those of a forward pass for the backward pass. MINCUT recomputes, after the step that needs
 * most memory, values that elementwise ops and movement derive from stored ones (activations,
 * normalizations), chosen by a minimum cut. ALL also recomputes sums and contractions. Values of
 * less than 64 KiB are always stored. Used where the workspace becomes smaller by more than a
 * 64th */
typedef enum tc_remat { TC_REMAT_NONE, TC_REMAT_MINCUT, TC_REMAT_ALL } tc_remat;
/* The dtypes in which operands of several dtypes meet, and integers are computed in. C numbers are
 * weak under both rules: they take the dtype of the tensors where their kind allows.
 * TORCH: torch's table (integers of any width with a float: that float; a tensor of no axes counts
 * only where its kind is higher); u16, u32 and u64, which that table lacks among integers, as
 * NumPy's. Functions and means of integers are f32, sums i64 (of u16, u32, u64: u64).
 * NUMPY: numpy.result_type of NumPy 2 (NEP 50): i32 with f32 is f64, i16 with f16 f32; tensors of
 * no axes count as all others. sin and other elementwise functions of bool and integers of 1 byte
 * are f16, of 2 bytes f32, else f64; divisions, means, variances, norms, transforms, losses, and
 * numbers with a fraction next to integers are f64; sums and products i64, of unsigned integers
 * u64. tc_square, tc_pow, tc_remainder, tc_floor_divide, tc_fmod and shifts of bool are i8.
 * tc_reciprocal of integers is a division (f64), where NumPy truncates. bf16, which NumPy lacks, as
 * in ml_dtypes: itself with bool and integers of 1 byte, f32 with f16 and integers of 2 bytes, f64
 * with wider ones */
typedef enum tc_promotion { TC_TORCH, TC_NUMPY } tc_promotion;
/* Of options.check, to be added: each kernel of a run is done by itself, and TC_ERR_CHECK names the
 * first one whose output has other bits than the interpreter's on the same operands (BITS; where a
 * matrix unit sums in an order of its own, more than its bound apart), has a NaN (NAN) or an
 * infinity (INF) that no operand had, or that crashes (CRASH; a child process runs it first). A
 * small program that shows the same is written to tc_repro_HASH.c in the current folder, or in
 * TC_DUMP_DIR (not with NO_FILE). Not for programs of symbolic sizes */
enum {
    TC_CHECK_BITS = 1,
    TC_CHECK_NAN = 2,
    TC_CHECK_INF = 4,
    TC_CHECK_CRASH = 8,
    TC_CHECK_ALL = 15,
    TC_CHECK_NO_FILE = 16
};
/* to the interpreter */
typedef enum tc_fallback { TC_FALLBACK_ALLOW, TC_FALLBACK_REFUSE } tc_fallback;

/* When a program that no cache has may be compiled. COMPILE: at once, the caller waits. FAIL:
 * never, TC_ERR_FROZEN says what was asked for and how it differs from what there is. INTERPRET:
 * never, the interpreter runs it. LATER: on a background thread, the interpreter runs it until
 * then (tc_program_wait). For a context, a tc_jit and, as TC_STANCE, all contexts that are made */
typedef enum tc_stance {
    TC_STANCE_COMPILE,
    TC_STANCE_FAIL,
    TC_STANCE_INTERPRET,
    TC_STANCE_LATER
} tc_stance;

/* Progress of a compile. */
typedef enum tc_phase {
    TC_PHASE_PLAN,
    TC_PHASE_SOURCE,
    TC_PHASE_COMPILE, /* with files_done of files */
    TC_PHASE_DONE,
    TC_PHASE_FAILED
} tc_phase;
typedef struct tc_progress {
    tc_phase phase;
    int files_done, files; /* that the compiler is given; 0 where all kernels were found */
    int programs;          /* that are compiled together */
} tc_progress;

/* Options of a context or of one compile. Zero in every field = good defaults; NULL = all defaults.
 * A compile's options override its context's field by field. Strings are copied. */
typedef struct tc_options {
    /* "interp", "cpu", "cuda", "onnxrt:cuda", ... (tc_backend_at). NULL: TC_BACKEND, else cpu, also
     * where there is a GPU; where no code can be compiled the interpreter stands in. A GPU that is
     * not there, or an engine that is not or refuses the graph, is replaced by cpu, unless fallback
     * is REFUSE; the log says so under "compile" */
    const char *backend;
    int device; /* of that backend, where there are several: 0 is the first */
    tc_math math;
    tc_stance stance; /* as TC_STANCE; tc_ctx_stance changes a context's later */
    /* REFUSE: TC_ERR_COMPILER, _BACKEND or _UNSUPPORTED instead of another backend */
    tc_fallback fallback;
    tc_promotion promotion; /* context only: the dtypes in which operands meet */
    /* 0: as many as this process may use; 1: no lock, no system call in a run */
    int threads;
    int vector_bits; /* 0: the machine's; 128, 256, 512: at most; -1: scalar code */
    /* 0: contractions of bf16 and f16 use the machine's matrix units (a GPU's, AMX) where that
     * pays; their sums then have the unit's order, not the one that all other executors share. And
     * those of bf16 its instruction for pairs (AVX512_BF16), which keeps that order, but for which
     * numbers below 2^-126 are zero. And those of bytes in i32 AMX, which changes nothing. -1:
     * never */
    int matrix;
    /* sums only in orders that every backend and the interpreter share, and that do not follow from
     * sizes: then all of them, and programs of symbolic and of fixed sizes, agree in every bit.
     * tc_explain says which faster orders that forbids */
    bool reproducible;
    /* 0: ops share a kernel where that pays. -1: each op that computes has a kernel of its own,
     * which shows what fusing is worth; sums may have another order */
    int fusion;
    /* less workspace for more work; values are the same. tc_explain says what is computed again,
     * and the peak with and without. Values of a loop's body (of tc_scan and the like, and of
     * attention in bands of rows), and the carries that its gradient reads, are still stored */
    tc_remat remat;
    /* how long idle workers spin before they sleep, where no run has more threads than there are
     * processors; 0: 100; -1: not at all */
    int spin_us;
    /* 0: on a device that can, a run's launches are recorded once and replayed (CUDA graphs),
     * unless the host must look in between. -1: never */
    int record;
    /* The machine to compile for, where that is not this one: a file that tc_machine_write wrote
     * there, or x86-64-v2, x86-64-v3, x86-64-v4, x86-64-amx, sm_80, sm_90. Its backend counts,
     * and vector_bits does not. A program for a machine that can do more than this one does not
     * run here (a run is TC_ERR_UNSUPPORTED): save it, or export the cache. A file is read once a
     * process. NULL: TC_MACHINE, else this machine */
    const char *machine;
    /* The C compiler of what no cache has; NULL: TC_CC, else cc, gcc, clang, tcc from PATH. */
    const char *cc;
    int cc_timeout_s;      /* of processor time; by the clock five times as much. 0: 120 */
    const char *cache_dir; /* NULL: TC_CACHE_DIR, else $XDG_CACHE_HOME/tc, else ~/.cache/tc */
    int64_t cache_bytes;   /* size cap of that directory; 0: 256 MiB */
    /* what the process may keep of code in memory for later compiles, as this one leaves it; code
     * in use by programs stays, least recently used other code goes. 0: 64 MiB; -1: none is kept */
    int64_t memory_cache_bytes;
    bool no_disk_cache;
    bool cache_read_only; /* a pre-seeded cache: entries are loaded, none written */
    bool verify;          /* check every IR after every stage; part of the cache key */
    int check;            /* TC_CHECK_...; as TC_CHECK. Not stored on disk */
    /* > 0: milliseconds of a compile that are spent on measuring, at most: first competing routes
     * of contractions (half of the time), then the likeliest schedules of the longest kernels, on
     * memory of their own. Choices are kept with the code, and measured routes for other
     * programs too. Results are the same. 0: nothing is measured */
    int tune_ms;
    /* the C compiler works fast rather than well (gcc -Og: a third of its processor time); code is
     * slower, results are the same. Part of the cache key, and not stored on disk. TC_STANCE_LATER
     * builds large programs so first, and again as usual */
    bool quick_build;
    /* processes of the C compiler that one compile has at once, at most. 0: as many as this process
     * may use processors, where the code is worth them */
    int compilers;
    /* a file with lines KERNEL: SCHEDULE, as tc_explain shows both (the name, or eight digits and
     * more of the hash), or CONTRACTION: ROUTE, as "contract_64x64x512: plain"; # begins a remark.
     * Kernels run and contractions are computed as it says where that fits, with the same results;
     * where it does not, the log says so under "compile", or tc_explain of a contraction, and tc
     * chooses */
    const char *schedule;
    /* what the program is called in tc_explain, profiles, traces, logs and folders of dumps; not in
     * the cache key. NULL: the first digits of its key */
    const char *name;
    const char *dump; /* as TC_DUMP */
    const char *dump_dir;
    const char *trace;      /* as TC_TRACE */
    int64_t memory_limit;   /* bytes a program's arena and what it keeps may take; 0: no limit */
    tc_allocator allocator; /* context only: graph memory. Zero: libc or TC_MALLOC */
    void (*log)(void *user, const char *topic, const char *text);
    void *log_user;
    /* Told of each phase of a compile of what no cache has, and of each file that the compiler is
     * done with; one call at a time for a compile. On the thread that compiles or one of its
     * helpers: under TC_STANCE_LATER a background thread, so `progress_user` must live until
     * tc_program_ready or tc_shutdown. Must not call tc. NULL: no call */
    void (*progress)(void *user, const tc_progress *p);
    void *progress_user;
    /* Compiles of TC_STANCE_LATER on threads of the host's: must have work(item) called once, on
     * any thread but one that waits for the program, and return true; or return false, and tc's
     * thread does it. Called by tc_compile and tc_jit_run, and must not call tc. An item may be
     * done after its program is freed or cancelled, and after tc_shutdown, which waits for items
     * that were begun: it does nothing then. Priority is the host's to set. NULL: tc's one
     * thread */
    bool (*background)(void *user, void (*work)(void *item), void *item);
    void *background_user;
    /* The host's own job system: must call task(arg, i) for every i in [0, n), in any order and on
     * any threads, and return when all are done. NULL: tc's own pool. */
    void (*parallel_for)(void *user, int n, void (*task)(void *arg, int i), void *arg);
    void *parallel_user;
    /* The host's flag, which may be set from any thread and from a signal handler. While it is not
     * 0, runs (and tc_read, tc_eval and the like) end with TC_ERR_CANCELLED: they look when they
     * begin and before each step of a loop (tc_scan, tc_while, tc_cond). It outlives the context
     * and its programs. NULL: none. For one call: tc_call_cancel */
    const volatile int *cancel;
} tc_options;

typedef struct tc_stats {
    int64_t nodes, scopes; /* alive in the context's graph */
    int64_t graph_bytes;   /* memory of the graph and its data */
    int64_t compiles;      /* programs made by running the pipeline (process-wide) */
    int64_t compiler_runs; /* processes started (process-wide) */
    int64_t kernels_built; /* kernels that such a process compiled */
    int64_t memory_hits, disk_hits, misses; /* of the program cache */
    int64_t kernel_hits; /* kernels found in the cache while their program was not */
    /* files of the disk cache dropped by its cap; refused as foreign or corrupt */
    int64_t evictions, cache_rejects;
    /* programs in the memory cache, with their code and loaded modules; dropped by its cap */
    int64_t memory_entries, memory_bytes, memory_evictions;
    int64_t interpreted; /* programs that fell back to the interpreter */
    /* what programs compute once and keep, as packed weights: what several share counts once
     * (process-wide) */
    int64_t kept_bytes;
} tc_stats;

#ifdef __cplusplus
}
#endif
#endif
