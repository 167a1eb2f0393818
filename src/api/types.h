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

/* The version of this header (semver.org; docs/stability.md); tc_version() returns that of the
 * implementation that the program is linked with. */
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

/* Every function that can fail returns one of these, or a poisoned tensor, whose tc_error() has the
 * message. */
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
/* The values are negative, which no size is, so a list of sizes without the leading dtype is
 * detected. The last value is no dtype: tc_dtype_of returns it for an invalid tensor. */
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
typedef struct tc_call tc_call;       /* one caller's bindings and workspace */
typedef struct tc_queue tc_queue;     /* asynchronous runs, executed in order */
typedef struct tc_event tc_event;     /* completion and status of an asynchronous run */
typedef struct tc_jit tc_jit;         /* a C function compiled once for each signature */
typedef struct tc_profile tc_profile; /* what ran, and when */

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

/* Source location of a call in the user's program; every public call takes one through TC_HERE. */
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

/* A parameter of tc_op: its name and a string, n integers, or (if both are NULL) a number or a
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

/* FAST allows approximations. On GPUs with TF32 tensor cores (Ampere and newer), large f32
 * contractions (matrix products, convolutions and the gradients of both) accumulate in f32 with
 * factors rounded to TF32, which keeps 11 bits of each: a product is within 2^-10 of |a b|. On
 * Hopper, weight gradients of convolutions and batched products use bf16 parts (low high + high low
 * + high high, BF16x3), within 2^-16 of |a b|; an infinite factor gives NaN. This is what PyTorch's
 * "high" precision allows. On CPUs, 3 x 3 convolutions in f32 of stride 1, dilation 1 and one
 * group, and their data gradients, use Winograd's F(2, 3) or F(4, 3) where the cost model predicts
 * a gain: within (channels + 32) 2^-18 or 2^-12 of the largest |x| times the sum over the channels
 * of the filter's largest |w| in the worst case, and about 2^-20 for typical values; an element
 * that is NaN, infinite or above 2^120 may make all results up to four positions away NaN.
 * tc_explain names all of these. Everything else is computed as under EXACT */
typedef enum tc_math { TC_MATH_EXACT, TC_MATH_FAST } tc_math;
/* Rematerialization: trades compute for peak memory. NONE stores every value that is needed later,
 * such as the activations for the backward pass. MINCUT recomputes, after the step of peak memory,
 * values that elementwise and movement ops derive from stored ones (activations, normalizations),
 * chosen by a minimum cut. ALL also recomputes reductions and contractions. Values of less than 64
 * KiB are always stored. Applied only if it reduces the workspace by more than 1/64 */
typedef enum tc_remat { TC_REMAT_NONE, TC_REMAT_MINCUT, TC_REMAT_ALL } tc_remat;
/* Type promotion: the common dtype of operands of several dtypes, and the dtype in which functions
 * of integers are computed. C numbers are weakly typed under both rules: they take the dtype of the
 * tensors where their kind allows.
 * TORCH: PyTorch's rules (integers of any width with a float: that float; a 0-d tensor counts only
 * if its kind is higher); u16, u32 and u64, which PyTorch lacks among integers, as in NumPy.
 * Functions and means of integers are f32, sums i64 (of u16, u32, u64: u64).
 * NUMPY: numpy.result_type of NumPy 2 (NEP 50): i32 with f32 is f64, i16 with f16 f32; 0-d tensors
 * count as all others. sin and other elementwise functions of bool and
 * integers of 1 byte are f16, of 2 bytes f32, else f64; divisions, means, variances, norms,
 * transforms, losses, and numbers with a fraction next to integers are f64; sums and products i64,
 * of unsigned integers u64. tc_square, tc_pow, tc_remainder, tc_floor_divide, tc_fmod and shifts of
 * bool are i8. tc_reciprocal of integers is a division (f64), where NumPy truncates. bf16, which
 * NumPy lacks, as in ml_dtypes: itself with bool and integers of 1 byte, f32 with f16 and integers
 * of 2 bytes, f64 with wider ones */
typedef enum tc_promotion { TC_TORCH, TC_NUMPY } tc_promotion;
/* Flags of options.check, combined with |: each kernel of a run is executed separately, and
 * TC_ERR_CHECK names the first one whose output differs from the interpreter's on the same operands
 * (BITS: in any bit; where a matrix unit adds in an order of its own, by more than its error
 * bound), has a NaN (NAN) or an infinity (INF) that no operand has, or that crashes (CRASH: a child
 * process runs it first). A small program that reproduces the failure is written to tc_repro_HASH.c
 * in the current directory or in options.dump_dir (not with NO_FILE, and not of programs of
 * symbolic sizes, whose kernels are checked at the sizes of each run) */
enum {
    TC_CHECK_BITS = 1,
    TC_CHECK_NAN = 2,
    TC_CHECK_INF = 4,
    TC_CHECK_CRASH = 8,
    TC_CHECK_ALL = 15,
    TC_CHECK_NO_FILE = 16
};
/* Fallback to another backend, such as the interpreter. */
typedef enum tc_fallback { TC_FALLBACK_ALLOW, TC_FALLBACK_REFUSE } tc_fallback;

/* When a program that is in no cache may be compiled. COMPILE: immediately, the caller waits. FAIL:
 * never; TC_ERR_FROZEN names the request and its difference from cached programs. INTERPRET: never,
 * the interpreter runs it. LATER: on a background thread, the interpreter runs it until then
 * (tc_program_wait). Set per context or tc_jit, or by TC_STANCE for all new contexts */
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
    int files_done, files; /* that the compiler is given; 0 if all kernels were in a cache */
    int programs;          /* that are compiled together */
} tc_progress;

/* Options of a context or of one compile. Zero in every field = the default; NULL = all defaults.
 * A compile's options override its context's field by field. Strings are copied. */
typedef struct tc_options {
    /* "interp", "cpu", "cuda", "onnxrt:cuda", ... (tc_backend_at). NULL: TC_BACKEND, else cpu, even
     * if there is a GPU; the interpreter is used if no code can be compiled. If a GPU or an engine
     * is missing, or the engine rejects the graph, cpu is used instead, unless fallback is REFUSE;
     * the log reports it under "compile" */
    const char *backend;
    int device; /* index of the backend's device: 0 is the first */
    tc_math math;
    tc_stance stance; /* as TC_STANCE; tc_ctx_stance changes a context's later */
    /* REFUSE: TC_ERR_COMPILER, _BACKEND or _UNSUPPORTED instead of another backend */
    tc_fallback fallback;
    tc_promotion promotion; /* context only: type promotion of operands */
    /* 0: as many as the CPUs that this process may use; 1: no lock, no system call in a run */
    int threads;
    int vector_bits; /* 0: the machine's; 128, 256, 512: at most; -1: scalar code */
    /* 0: contractions of bf16 and f16 use matrix units (tensor cores, AMX) where that is faster;
     * their sums then have the order of the unit, not the one that all other executors share. On
     * CPUs bf16 contractions also use dot-product instructions (AVX512_BF16), which keep that order
     * but flush values below 2^-126 to zero, and 8-bit integer contractions in i32 use AMX, whose
     * results are exact. -1: never */
    int matrix;
    /* restricts sums to orders that every backend and the interpreter share and that do not depend
     * on sizes: all backends, and programs of symbolic and of fixed sizes, then agree in every bit.
     * tc_explain lists the faster orders that this excludes */
    bool reproducible;
    /* 0: ops are fused into one kernel where that is faster. -1: each op that computes has a kernel
     * of its own, which shows the gain of fusion; sums may have another order */
    int fusion;
    /* less workspace for more computation; values are the same. tc_explain lists the recomputed
     * values, and the peak memory with and without. Values in the body of a loop (tc_scan,
     * tc_while, chunked attention), and the carries that its gradient reads, are still stored */
    tc_remat remat;
    /* microseconds that idle workers spin before they sleep, unless a run has more threads than
     * there are CPUs; 0: 100; -1: not at all */
    int spin_us;
    /* 0: if the device supports it, the launches of a run are recorded once and replayed (CUDA
     * graphs), unless the host must synchronize in between. -1: never */
    int record;
    /* Cross compilation: the machine to compile for, if it is not this one: a file that
     * tc_machine_write wrote there, or x86-64-v2, x86-64-v3, x86-64-v4, x86-64-amx, sm_80, sm_90.
     * It determines the backend, and vector_bits is ignored. A program for a machine with features
     * that this one lacks does not run here (tc_run returns TC_ERR_UNSUPPORTED): save it, or export
     * the cache. A file is read once per process. NULL: TC_MACHINE, else this machine */
    const char *machine;
    /* The C compiler; NULL: TC_CC, else cc, gcc, clang, tcc from PATH. */
    const char *cc;
    int cc_timeout_s;      /* seconds of CPU time; five times that of wall time. 0: 120 */
    const char *cache_dir; /* NULL: TC_CACHE_DIR, else $XDG_CACHE_HOME/tc, else ~/.cache/tc */
    int64_t cache_bytes;   /* size cap of that directory; 0: 256 MiB */
    /* size cap of the memory cache of compiled code, for the whole process, in bytes; code in use
     * by programs stays, other code is evicted least recently used first. 0: 64 MiB; -1: none is
     * kept */
    int64_t memory_cache_bytes;
    bool no_disk_cache;
    bool cache_read_only; /* a pre-seeded cache: entries are loaded, none written */
    bool verify;          /* check every IR after every stage; part of the cache key */
    int check;            /* TC_CHECK_...; as TC_CHECK. Not stored on disk */
    /* > 0: autotuning: at most this many milliseconds of a compile are spent on measurements: first
     * of alternative algorithms of contractions (half of the time), then of the highest-ranked
     * schedules of the longest kernels, on separate memory. Choices are stored with the compiled
     * code, measured algorithms also for other programs. Results are the same. 0: nothing is
     * measured */
    int tune_ms;
    /* the C compiler optimizes less (gcc -Og: a third of the CPU time); the code is slower, results
     * are the same. Part of the cache key, and not stored on disk. TC_STANCE_LATER builds large
     * programs this way first, and then fully optimized */
    bool quick_build;
    /* maximum number of concurrent compiler processes of one compile. 0: up to the number of CPUs
     * that this process may use, if there is enough code */
    int compilers;
    /* a file with lines KERNEL: SCHEDULE, as tc_explain shows both (the name, or at least eight
     * digits of the hash), or CONTRACTION: ALGORITHM, such as "contract_64x64x512: plain"; # begins
     * a comment. Forces these schedules and algorithms where they are valid, with the same results;
     * an invalid line is reported in the log under "compile" (for contractions in tc_explain) and
     * ignored */
    const char *schedule;
    /* name of the program in tc_explain, profiles, traces, logs and dump directories; not in the
     * cache key. NULL: the first digits of its key */
    const char *name;
    const char *dump;       /* as TC_DUMP */
    const char *dump_dir;   /* as TC_DUMP_DIR */
    const char *trace;      /* as TC_TRACE */
    int64_t memory_limit;   /* bytes of a program's arena and kept values; 0: no limit */
    tc_allocator allocator; /* context only: graph memory. Zero: libc or TC_MALLOC */
    void (*log)(void *user, const char *topic, const char *text);
    void *log_user;
    /* Called at each phase of a compile that misses the caches, and for each file that the compiler
     * has finished; never concurrently for one compile. On the thread that compiles or one of its
     * helpers: under TC_STANCE_LATER a background thread, so `progress_user` must stay valid until
     * tc_program_ready or tc_shutdown. Must not call tc. NULL: no call */
    void (*progress)(void *user, const tc_progress *p);
    void *progress_user;
    /* Runs compiles of TC_STANCE_LATER on the host's threads: must arrange that work(item) is
     * called once, on any thread except one that waits for the program, and return true; or return
     * false, and tc's own thread does it. Called by tc_compile and tc_jit_run, and must not call
     * tc. work(item) may still be called after the program was freed or cancelled, and after
     * tc_shutdown (which waits for items that were started): it does nothing then. The host sets
     * the priority. NULL: tc's one background thread */
    bool (*background)(void *user, void (*work)(void *item), void *item);
    void *background_user;
    /* The host's own job system: must call task(arg, i) for every i in [0, n), in any order and on
     * any threads, and return when all have returned. NULL: tc's own pool. */
    void (*parallel_for)(void *user, int n, void (*task)(void *arg, int i), void *arg);
    void *parallel_user;
    /* The host's flag, which may be set from any thread and from a signal handler. While it is not
     * 0, runs (also those of tc_read and tc_eval) end with TC_ERR_CANCELLED: it is read at the
     * start of a run and before each iteration of a loop (tc_scan, tc_while, tc_cond). It must
     * outlive the context and its programs. NULL: none. For one call: tc_call_cancel */
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
    /* files of the disk cache evicted by its cap; rejected as foreign or corrupt */
    int64_t evictions, cache_rejects;
    /* programs in the memory cache, with their code and loaded modules; evicted by its cap */
    int64_t memory_entries, memory_bytes, memory_evictions;
    int64_t interpreted; /* programs that fell back to the interpreter */
    /* bytes of values that programs compute once and keep, such as packed weights; shared ones
     * count once (process-wide) */
    int64_t kept_bytes;
} tc_stats;

#ifdef __cplusplus
}
#endif
#endif
