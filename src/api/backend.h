/* api/backend.h - backend interface: the table of functions by which a backend (CPU, CUDA, the
 * user's) compiles and runs generated kernels.
 *
 * The built-in "cpu" backend uses it; tests/null_backend.c is the smallest example and the model to
 * copy. A backend describes its target, turns source text into object files, loads them, and runs
 * kernels. "interp" needs none of this and is always available.
 *
 * Rules for every function: `user` is the struct's own pointer; calls come from any thread, several
 * at once; nothing may abort, exit or print; arguments are borrowed for the call. A function that
 * fails returns a status, and last_error returns the reason as text. */
#ifndef TC_API_BACKEND_H
#define TC_API_BACKEND_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A language like C: generated source is scalar C99 (64-bit integers, double, unions, arrays of
 * known size, no library, no function pointers) except for these members. Placeholders in `head`:
 * $n the function's name, $w the number of words at `lits`, $(text$) the text repeated per operand;
 * there and in `operand`, # is the operand's number. Strings are borrowed for the rest of the
 * process. */
struct tci_scratch;
struct tci_dialect;
typedef struct tc_dialect {
    const char *prelude;   /* at the top of the source: macros for names that differ from C */
    const char *space;     /* before the type that an operand's pointer points to: "__global " */
    bool long_has_64_bits; /* then long is used instead of long long, which has another size
                            * there */
    const char *operand;   /* expression for an operand's memory, any pointer type: "b#" */
    /* The function's signature and the begin of its body. It must put in scope: operands as above,
     * `lits`, a pointer to the 64-bit words of the literals; `fault`, a pointer to a word;
     * task_begin and task_end, 64-bit. The body ends with a closing brace. */
    const char *head;
    /* NULL; only tc's own dialects with vectors or thread blocks set it. */
    struct tci_dialect *(*make)(struct tci_scratch *s, int vector_bytes);
} tc_dialect;

/* Hardware description for the cost model. No result depends on it. A "processor" is a core that
 * the process may use, or a multiprocessor (SM) of a device. 0 in a field: unknown; a conservative
 * value is used instead. */
typedef struct tc_machine {
    int processors;
    double ghz;             /* clock rate */
    int ports;              /* multiply-adds issued per cycle and processor: vectors; blocks: f32 */
    int registers;          /* vector registers; blocks: 32-bit registers per processor */
    int64_t cache_bytes[3]; /* L1 first, per processor; the last is shared by all */
    double near_bytes;      /* bytes per cycle of one processor from its own cache, */
    double far_bytes;       /* from the shared one, */
    double all_bytes;       /* and of all together */
    double one_gbs;         /* GB/s of one processor alone to memory, */
    double memory_gbs;      /* and all together */
    int subgroup;           /* blocks: threads that exchange values in registers (a warp) */
    int64_t shared_bytes;   /* blocks: static shared memory of a block, */
    int64_t shared_most;    /* and the opt-in maximum */
    double matrix_flops;    /* of its matrix unit, per cycle */
    double launch_ns;       /* launch latency */
    double wake_ns;         /* to wake a sleeping thread */
} tc_machine;

/* With block_threads: operand types of the warp-level tensor-core instructions (mma.sync,
 * loop/mma_gemm.c), as bits. */
typedef enum tc_warp_unit {
    TC_WARP_NONE = 0,
    TC_WARP_HALVES = 1,  /* f16 (sm_75) */
    TC_WARP_SINGLES = 2, /* bf16, and f32 rounded to tf32 (sm_80) */
    TC_WARP_BYTES = 4,   /* i8 and u8, accumulated in i32 (sm_75) */
    TC_WARP_DOUBLES = 8  /* f64 (sm_80), if faster than FMAs of threads */
} tc_warp_unit;

/* Features that generated source may use. */
typedef struct tc_backend_target {
    char features[128]; /* all features that generated code depends on; part of each cache key */
    int vector_bytes;   /* of the vectors in generated source: 64, 32, 16, or 0: scalar source */
    /* 0: one thread runs a task. Else a thread block of up to this many threads (a power of two)
     * does: together they are one vector, vector_bytes of it in each thread. This backend has
     * device memory, and needs TC_BLOCKS where TC_IMPLEMENTATION is defined (GPU schedules). */
    int block_threads;
    /* 0: none. With block_threads: the number of processors with WGMMA and TMA as on Hopper
     * (cuda/wgmma_gemm.c), each running one such block at a time; else 1: AMX: code of dialect "c"
     * uses its instructions if TC_AMX is defined, and equivalent plain C otherwise. */
    int matrix_units;
    /* integer products that a CPU adds per i32 lane and instruction: 0: one; 2: of 16-bit integers
     * (VPMADDWD); 4: also of 8-bit integers, one unsigned and one signed (VPDPBUSD, if TC_FOURS is
     * defined; equivalent plain C otherwise) */
    int int_points;
    /* the CPU multiplies pairs of bf16 (VDPBF16PS) twice as fast as f32: code of dialect "c" uses
     * the instruction if TC_PAIRS is defined, and equivalent plain C otherwise */
    bool has_pairs;
    bool unit_bytes;    /* the CPU's matrix unit also multiplies 8-bit integers of any sign in
                         * i32 */
    int warp_unit;      /* tc_warp_unit; used for kernels that matrix_units cannot compute */
    tc_machine machine; /* as detected; zero: nothing is known */
    bool usable;        /* false: not usable here; the interpreter is used instead */
    char why[128];      /* !usable: the reason, for the user */
} tc_backend_target;

/* One request to compile: sources, preferably concurrently, each to its own object file. */
typedef struct tc_build {
    int n;
    const char *const *sources; /* source texts, NUL-terminated */
    const char *const *outputs; /* paths that do not exist yet: where the object files go */
    const char *directory;      /* private, for other files */
    const char *features;       /* of the target, as `target` set it */
    const char *compiler;       /* tc_options.cc or TC_CC, or NULL */
    int timeout_ms;             /* of CPU time, for each process started */
    bool keep;                  /* debugging: keep intermediate files */
    bool quick;                 /* optimize less, with the same arithmetic */
    int processes;              /* out: processes started, for tc_stats */
    int refused;                /* out: the first source that the compiler rejected; initially -1 */
    void (*say)(void *say_arg, const char *text); /* command lines, messages for the user */
    void *say_arg;
    void (*built)(void *built_arg); /* a file is done; on any thread. NULL: not needed */
    void *built_arg;
    const int *cancel; /* atomic: end with TC_ERR_COMPILER once it is not 0; or NULL */
} tc_build;

/* Identity of the compiler that made an object, so that a replaced compiler invalidates it. */
typedef struct tc_backend_compiler {
    char path[512];
    int64_t bytes, mtime_ns;
    int vector_bytes; /* of vectors it knows: 0 for one without vector types */
    bool has_quick;   /* supports tc_build.quick, which is faster */
} tc_backend_compiler;

/* One launch: tasks [task_begin, task_end) of a kernel. They are independent, except in a chained
 * scan, which only tc's CUDA dialect generates: there a block waits for results of blocks of lower
 * index, so the device must dispatch blocks in index order. */
struct tc_comm_job;
typedef struct tc_launch {
    void *function;          /* from `module_find` */
    void *const *buffers;    /* device memory of each operand */
    const int64_t *literals; /* host memory: one word each */
    /* Host memory (from queues->host_alloc if there are queues) or NULL: set when an index is out
     * of range. */
    int64_t *fault;
    int n_buffers, n_literals;
    int64_t task_begin, task_end;
    /* For `record`: numbers of earlier launches of the sequence that must be done before this one;
     * it may run concurrently with all others. */
    const int32_t *after;
    int n_after;
    /* For `record`, NULL elsewhere: a step of a collective, which itself adds a node to the
     * device's graph after those of `after` (api/comm.h). job NULL: a wait. */
    tc_status (*node)(void *comm, struct tc_comm_job *job, void *graph, void *const *after,
                      size_t n_after, void **node);
    void *comm;
    struct tc_comm_job *job;
} tc_launch;

/* A loop whose exit condition is tested on the device. The launches of an iteration are sequential
 * (`after` is not set); iterations 0, 2, ... have the operands of rounds[0], others those of
 * rounds[1]. */
typedef struct tc_backend_loop {
    const tc_launch *rounds[2];
    int n;             /* launches per iteration */
    const void *go[2]; /* device memory, a byte: whether there is another such iteration */
    int64_t most;      /* maximum number of iterations */
    void *done;        /* device memory, 8 bytes: number of executed iterations */
} tc_backend_loop;

/* Queues in addition to the one that `launch`, `sync` and the other members of tc_backend use,
 * which is queue NULL here. Work of a queue executes in order, and concurrently with that of other
 * queues. Only sync and event_sync block. A queue, an event and host memory belong to the caller,
 * who frees them only when they are not in use. */
typedef struct tc_backend_queues {
    tc_status (*make)(void *user, void **queue);
    void (*free)(void *user, void *queue);
    tc_status (*launch)(void *user, void *queue, const tc_launch *launch);
    /* A recorded sequence. It is not replayed while it still executes on another queue. */
    tc_status (*replay)(void *user, void *queue, void *sequence);
    /* Between any two of device memory, host memory and memory of host_alloc. May block while other
     * host memory is copied. */
    tc_status (*copy)(void *user, void *queue, void *to, const void *from, int64_t bytes);
    tc_status (*sync)(void *user, void *queue);
    tc_status (*event_make)(void *user, void **event);
    void (*event_free)(void *user, void *event);
    /* The event completes when all work submitted to the queue so far is done. */
    tc_status (*event_record)(void *user, void *queue, void *event);
    /* Everything submitted to the queue after this call waits for the last recording of the event.
     */
    tc_status (*event_wait)(void *user, void *queue, void *event);
    tc_status (*event_sync)(void *user, void *event);
    /* Milliseconds between two completed events. */
    tc_status (*event_elapsed)(void *user, void *from, void *to, double *ms);
    /* Pinned host memory, which asynchronous copies can use and kernels can write. */
    void *(*host_alloc)(void *user, int64_t bytes);
    void (*host_free)(void *user, void *memory);
} tc_backend_queues;

typedef struct tc_backend {
    const char *name;    /* required: the value of tc_options.backend; under 16 characters */
    const char *dialect; /* required: the language of generated source: "c", or own_dialect's */
    const tc_dialect *own_dialect; /* NULL: C */
    void *user;

    /* Required. Fills *target. Called once per process and vector width; does not block. */
    tc_status (*target)(void *user, int vector_bits, tc_backend_target *target);
    /* Required. The compiler that `compile` would use now; `wanted` is tc_options.cc or TC_CC,
     * or NULL. TC_ERR_COMPILER: none was found. */
    tc_status (*compiler)(void *user, const char *wanted, tc_backend_compiler *compiler);
    /* Required. Compiles every source to its object file. May block until the compiler is done. */
    tc_status (*compile)(void *user, tc_build *build);
    /* Required. Loads an object file, given as its n bytes (a NUL follows), which were validated:
     * exactly these bytes must be loaded. path: a file with the same bytes, for debuggers. *module
     * belongs to the caller until module_free. */
    tc_status (*module_load)(void *user, const void *bytes, size_t n, const char *path,
                             void **module);
    /* Required. The kernel of that name, owned by the module; NULL: not in it. */
    void *(*module_find)(void *user, void *module, const char *symbol);
    /* Required. No kernel of the module is running any more. */
    void (*module_free)(void *user, void *module);

    /* Launch. NULL: `module_find` returns host functions that the caller's threads call
     * themselves, and memory is host memory; then the members below are not used. Does not
     * block. */
    tc_status (*launch)(void *user, const tc_launch *launch);
    /* Required with launch. Blocks until all earlier launches are done. */
    tc_status (*sync)(void *user);

    /* Device memory. All four or none; none: kernels work on host memory. */
    /* 64-byte aligned; NULL: out of memory */
    void *(*alloc)(void *user, int64_t bytes);
    void (*free)(void *user, void *memory);
    /* Both block until the copy is complete. */
    tc_status (*upload)(void *user, void *to_device, const void *from, int64_t bytes);
    tc_status (*download)(void *user, void *to, const void *from_device, int64_t bytes);

    /* Optional, all three or none. A sequence of launches with fixed arguments, recorded once and
     * submitted repeatedly by one call. `replay` does not block; `fault` of every launch is written
     * when `sync` returns. */
    tc_status (*record)(void *user, const tc_launch *launches, int n, void **sequence);
    tc_status (*replay)(void *user, void *sequence);
    void (*sequence_free)(void *user, void *sequence);
    /* Optional, with these and device memory. Records such a loop as a sequence.
     * TC_ERR_UNSUPPORTED: the host tests the condition after each iteration. */
    tc_status (*record_loop)(void *user, const tc_backend_loop *loop, void **sequence);

    /* Optional. Within the device, in order with the launches. NULL: through host memory. */
    tc_status (*copy)(void *user, void *to_device, const void *from_device, int64_t bytes);

    /* Optional. True if kernels can access this user memory directly. */
    bool (*is_device)(void *user, const void *memory);

    /* Optional. Text of this thread's last failure, borrowed until the next. */
    const char *(*last_error)(void *user);

    /* Optional, with device memory: all members. NULL: asynchronous runs execute on a thread of the
     * host, one after the other. */
    const tc_backend_queues *queues;
    /* Optional. The backend of device `index` of this kind (tc_options.device), with a name and a
     * `user` of its own; index 0 is this one. NULL: there can be none. */
    const struct tc_backend *(*device)(void *user, int index);
    /* Optional. True if the address is device memory that the host cannot read: runs of programs on
     * the host, and copies, then return TC_ERR_BUFFER. Called from any thread, for any address,
     * after `target` reported that the backend is usable. */
    bool (*is_hidden)(void *user, const void *memory);
    /* Optional, with device memory. Free and total bytes of the device, for the message of
     * TC_ERR_MEMORY. */
    tc_status (*memory_left)(void *user, int64_t *free_bytes, int64_t *all_bytes);
    /* Optional. True if code for a target with these features, compiled on another machine, runs
     * here. NULL: only code for exactly the features that `target` returns. */
    bool (*runs)(void *user, const char *features);
} tc_backend;

/* ---- backends of kernels: docs/backends.md ---- */

/* Writes a description of the machine that these options compile for (NULL: defaults, so this
 * machine) as text: the backend, the features that generated code relies on (instruction set,
 * widths), and the parameters of the cost model (tc_machine: cores, caches, rates). options.machine
 * of another process names the file. TC_ERR_ARGUMENT: out is NULL; TC_ERR_BACKEND: nothing is
 * compiled here; TC_ERR_IO. */
TC_API tc_status tc_machine_write(const tc_options *options, FILE *out);
/* Registers a backend under its name; the struct is borrowed for the rest of the process.
 * TC_ERR_ARGUMENT: a required member is missing, or the name is taken; TC_ERR_LIMIT: there are 16
 * already. */
TC_API tc_status tc_register_backend(const tc_backend *backend);
/* Names of all backends, "interp" first, into names[0..room); returns how many there are. */
TC_API int tc_list_backends(const char **names, int room);
/* Backend number i, as tc_list_backends orders them; NULL: there are fewer. Detects the machine at
 * the first call for each, as a compile does. Borrowed for the rest of the process.
 *     const tc_backend_entry *e;
 *     for (int i = 0; (e = tc_backend_at(i)); i++)
 *         printf("%s: %s\n", e->name, e->usable ? e->found : e->why); */
typedef struct tc_backend_entry {
    const char *name;
    bool usable;
    const char *found; /* what code is made for, and the compiler; "" where it is not usable */
    const char *why;   /* why it is not; "" where it is */
} tc_backend_entry;
TC_API const tc_backend_entry *tc_backend_at(int i);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
