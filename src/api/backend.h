/* api/backend.h - backend interface: a struct of functions that compile and run generated kernels.
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
 * known size, no library, no function pointers) but for what stands here. Letters of `head`: $n the
 * function's name, $w the number of words at `lits`, $(text$) the text for each operand; there and
 * in `operand`, # is the operand's number. Texts are borrowed for the rest of the process. */
struct tci_scratch;
struct tci_dialect;
typedef struct tc_dialect {
    const char *prelude;   /* before everything: macros for what the language spells otherwise */
    const char *space;     /* before the type that an operand's pointer points to: "__global " */
    bool long_has_64_bits; /* and takes the place of long long, which is something else there */
    const char *operand;   /* an operand's memory, as a pointer to anything: "b#" */
    /* From the function's signature to where its body begins. In scope there: operands as above,
     * `lits`, a pointer to the literals' 64-bit words; `fault`, one to a word; task_begin and
     * task_end, 64-bit. The body ends with a closing brace. */
    const char *head;
    /* NULL. Not so in tc's own dialects that have vectors or blocks of threads. */
    struct tci_dialect *(*make)(struct tci_scratch *s, int vector_bytes);
} tc_dialect;

/* Hardware description: features and speeds by which schedules are chosen. No result depends on it.
 * A "processor" is a core that the process may use, or a multiprocessor of a device. 0 in a field:
 * unknown; a conservative value is used instead. */
typedef struct tc_machine {
    int processors;
    double ghz;             /* their clock */
    int ports;              /* multiply-adds that one begins in a cycle: vectors; blocks: of f32 */
    int registers;          /* vectors that code can name; blocks: 32-bit ones of a processor */
    int64_t cache_bytes[3]; /* nearest first, of one processor; the last is shared by all */
    double near_bytes;      /* in a cycle, that one processor can draw from a cache of its own, */
    double far_bytes;       /* from the shared one, */
    double all_bytes;       /* and that all together can */
    double one_gbs;         /* in a nanosecond, that one processor alone can move to memory, */
    double memory_gbs;      /* and all together */
    int subgroup;           /* blocks: threads that exchange values without memory (a warp) */
    int64_t shared_bytes;   /* blocks: of the memory that a block shares, by declaration alone, */
    int64_t shared_most;    /* and for code that asks for it */
    double matrix_flops;    /* of its matrix unit in a cycle */
    double launch_ns;       /* until a launch begins */
    double wake_ns;         /* until a sleeping thread works */
} tc_machine;

/* With block_threads: bits for what the matrix unit multiplies that each warp has for itself
 * (loop/mma_gemm.h). */
typedef enum tc_warp_unit {
    TC_WARP_NONE = 0,
    TC_WARP_HALVES = 1,  /* f16 (sm_75) */
    TC_WARP_SINGLES = 2, /* bf16, and f32 rounded to tf32 (sm_80) */
    TC_WARP_BYTES = 4,   /* i8 and u8, in sums of 32 bits (sm_75) */
    TC_WARP_DOUBLES = 8  /* f64 (sm_80), where that is faster than threads are */
} tc_warp_unit;

/* Features that generated source may use. */
typedef struct tc_backend_target {
    char features[128]; /* all that generated code depends on, as text; part of each cache key */
    int vector_bytes;   /* of the vectors in generated source: 64, 32, 16, or 0: scalar source */
    /* 0: one thread runs a task. Else a block of up to so many (a power of two) does, together
     * one vector, of which each thread holds vector_bytes; such a backend has device memory, and
     * needs TC_BLOCKS where TC_IMPLEMENTATION is defined (schedules of blocks of threads). */
    int block_threads;
    /* 0: none. With block_threads the processors that multiply matrices as Hopper's do
     * (cuda/wgmma.c), each running one such block at a time; else 1: code of dialect "c" may use
     * the unit's instructions where TC_AMX is defined, and plain C that does the same elsewhere. */
    int matrix_units;
    /* the products of integers that each lane of i32 of a processor sums at once: 0 one, 2 of 16
     * bits (VPMADDWD), 4 also of bytes, of which one is unsigned and one not (VPDPBUSD, where
     * TC_FOURS is defined; plain C that does the same elsewhere) */
    int int_points;
    /* a processor that multiplies pairs of bf16 (VDPBF16PS) twice as fast as it does f32: code of
     * dialect "c" may where TC_PAIRS is defined, and is plain C that does the same elsewhere */
    bool has_pairs;
    bool unit_bytes;    /* a processor's matrix unit takes bytes too, of any signs, in i32 */
    int warp_unit;      /* tc_warp_unit, of a device with matrix_units what these do not take */
    tc_machine machine; /* as asked of the device; zero: nothing is known */
    bool usable;        /* false: cannot work here; the interpreter takes over */
    char why[128];      /* !usable: the reason, for the user */
} tc_backend_target;

/* One request to compile: sources, best side by side, each to its own object file. */
typedef struct tc_build {
    int n;
    const char *const *sources; /* source texts, NUL-terminated */
    const char *const *outputs; /* paths that do not exist yet: where the object files go */
    const char *directory;      /* private, for other files */
    const char *features;       /* of the target, as `target` gave it */
    const char *compiler;       /* tc_options.cc or TC_CC, or NULL */
    int timeout_ms;             /* of processor time, for each process started */
    bool keep;                  /* the user wants to debug: keep what helps */
    bool quick;                 /* compile fast rather than well, with the same arithmetic */
    int processes;              /* out: processes started, for tc_stats */
    int refused;                /* out: the first source that the compiler refused; -1 so far */
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
    bool has_quick;   /* a build may be quick (tc_build.quick), and takes less then */
} tc_backend_compiler;

/* One launch: tasks [task_begin, task_end) of a kernel. They are independent, but in a linked scan,
 * which only tc's CUDA dialect makes: there a block waits for results of blocks of lower index,
 * so the device must start blocks in the order of their indices. */
struct tc_comm_job;
typedef struct tc_launch {
    void *function;          /* from `module_find` */
    void *const *buffers;    /* device memory of each operand */
    const int64_t *literals; /* host memory: one word each */
    /* Host memory (of queues->host_alloc, where there is that) or NULL: set when an index is
     * outside its axis. */
    int64_t *fault;
    int n_buffers, n_literals;
    int64_t task_begin, task_end;
    /* For `record`: numbers of earlier launches of the sequence that must be done before this one;
     * it may run at the same time as all others. */
    const int32_t *after;
    int n_after;
    /* For `record`, NULL elsewhere: a step of a collective, which adds a node to the device's graph
     * behind those of `after` itself (api/comm.h). job NULL: one that waits. */
    tc_status (*node)(void *comm, struct tc_comm_job *job, void *graph, void *const *after,
                      size_t n_after, void **node);
    void *comm;
    struct tc_comm_job *job;
} tc_launch;

/* A loop whose end the device finds. Launches of a round come each after the one before (`after` is
 * not set); rounds 0, 2, ... have the operands of rounds[0], others those of rounds[1]. */
typedef struct tc_backend_loop {
    const tc_launch *rounds[2];
    int n;             /* launches of each */
    const void *go[2]; /* device memory, a byte: whether there is such a round */
    int64_t most;      /* rounds, at most */
    void *done;        /* device memory, 8 bytes: how many there were */
} tc_backend_loop;

/* Queues other than the one that `launch`, `sync` and the other members of tc_backend use, which is
 * queue NULL here. What is given to a queue is done in order, and side by side with what others
 * have. Only queue_sync and event_sync block. A queue, an event and host memory belong to the
 * caller until they are freed; nothing uses them any more then. */
typedef struct tc_backend_queues {
    tc_status (*make)(void *user, void **queue);
    void (*free)(void *user, void *queue);
    tc_status (*launch)(void *user, void *queue, const tc_launch *launch);
    /* A recorded sequence. One that is under way on another queue is not replayed meanwhile. */
    tc_status (*replay)(void *user, void *queue, void *sequence);
    /* Between any two of device memory, host memory and that of host_alloc. May block as long as
     * host memory of another kind is copied. */
    tc_status (*copy)(void *user, void *queue, void *to, const void *from, int64_t bytes);
    tc_status (*sync)(void *user, void *queue);
    tc_status (*event_make)(void *user, void **event);
    void (*event_free)(void *user, void *event);
    /* The event is reached when all that the queue was given so far is done. */
    tc_status (*event_record)(void *user, void *queue, void *event);
    /* Everything submitted to the queue after this call waits for the last recording of the event.
     */
    tc_status (*event_wait)(void *user, void *queue, void *event);
    tc_status (*event_sync)(void *user, void *event);
    /* Milliseconds between two events that were reached. */
    tc_status (*event_elapsed)(void *user, void *from, void *to, double *ms);
    /* Host memory that copies need not wait for, and that kernels can write. */
    void *(*host_alloc)(void *user, int64_t bytes);
    void (*host_free)(void *user, void *memory);
} tc_backend_queues;

typedef struct tc_backend {
    const char *name;    /* required: what tc_options.backend says; under 16 characters */
    const char *dialect; /* required: the language of generated source: "c", or own_dialect's */
    const tc_dialect *own_dialect; /* NULL: C */
    void *user;

    /* Required. Fills *target. Called once a process and vector width; does not block. */
    tc_status (*target)(void *user, int vector_bits, tc_backend_target *target);
    /* Required. The compiler that `compile` would use now; `wanted` is tc_options.cc or TC_CC,
     * or NULL. TC_ERR_COMPILER: there is none. */
    tc_status (*compiler)(void *user, const char *wanted, tc_backend_compiler *compiler);
    /* Required. Compiles every source to its object file. May block until the compiler is done. */
    tc_status (*compile)(void *user, tc_build *build);
    /* Required. Loads an object file, given as its n bytes (a NUL follows), which were checked:
     * what runs must be made of them. path: a file that has them too, for debuggers. *module
     * belongs to the caller until module_free. */
    tc_status (*module_load)(void *user, const void *bytes, size_t n, const char *path,
                             void **module);
    /* Required. The kernel of that name, owned by the module; NULL: not in it. */
    void *(*module_find)(void *user, void *module, const char *symbol);
    /* Required. No kernel of the module is running any more. */
    void (*module_free)(void *user, void *module);

    /* Launch. NULL: `module_find` returns host functions that the caller's threads call
     * themselves, and memory is host memory; then none of what follows is used. Does not block. */
    tc_status (*launch)(void *user, const tc_launch *launch);
    /* Required with launch. Blocks until all that was launched before is done. */
    tc_status (*sync)(void *user);

    /* Device memory. All four or none; none: kernels work on host memory. */
    /* 64-byte aligned; NULL: out of memory */
    void *(*alloc)(void *user, int64_t bytes);
    void (*free)(void *user, void *memory);
    /* Both block until the bytes are there. */
    tc_status (*upload)(void *user, void *to_device, const void *from, int64_t bytes);
    tc_status (*download)(void *user, void *to, const void *from_device, int64_t bytes);

    /* Optional, all three or none. A sequence of launches whose arguments stay as they are, made
     * once and queued again and again by one call. `replay` does not block; `fault` of every launch
     * is written by the time `sync` returns. */
    tc_status (*record)(void *user, const tc_launch *launches, int n, void **sequence);
    tc_status (*replay)(void *user, void *sequence);
    void (*sequence_free)(void *user, void *sequence);
    /* Optional, with these and device memory. A sequence that is such a loop. TC_ERR_UNSUPPORTED:
     * not here, and the host looks after each round. */
    tc_status (*record_loop)(void *user, const tc_backend_loop *loop, void **sequence);

    /* Optional. Within the device, in order with the launches. NULL: through host memory. */
    tc_status (*copy)(void *user, void *to_device, const void *from_device, int64_t bytes);

    /* Optional. Whether kernels can use the user's memory where it is. */
    bool (*is_device)(void *user, const void *memory);

    /* Optional. Text of this thread's last failure, borrowed until the next. */
    const char *(*last_error)(void *user);

    /* Optional, with device memory: all members. NULL: asynchronous runs take a thread of the host,
     * and go one after the other. */
    const tc_backend_queues *queues;
    /* Optional. The backend of device `index` of this kind (tc_options.device), with a name and a
     * `user` of its own; index 0 is this one. NULL: there can be none. */
    const struct tc_backend *(*device)(void *user, int index);
    /* Optional. Whether the address is memory of a device that the host cannot read: runs of
     * programs on the host, and copies, refuse it then with TC_ERR_BUFFER. Asked from any thread,
     * of any address, once target said that the backend is usable. */
    bool (*is_hidden)(void *user, const void *memory);
    /* Optional, with device memory. Bytes that are free, and all that the device has: for the text
     * of TC_ERR_MEMORY. */
    tc_status (*memory_left)(void *user, int64_t *free_bytes, int64_t *all_bytes);
    /* Optional. Whether code that was made for a target of these features, on another machine, runs
     * here. NULL: only code of the very features that target gives. */
    bool (*runs)(void *user, const char *features);
} tc_backend;

/* Writes the record of the machine that these options compile for (NULL: defaults, so this machine)
 * as text: the backend, what generated code relies on (instruction set, widths), and the facts that
 * schedules go by (tc_machine: cores, caches, rates). options.machine of another process names the
 * file. TC_ERR_ARGUMENT: out is NULL; TC_ERR_BACKEND: nothing is compiled here; TC_ERR_IO. */
TC_API tc_status tc_machine_write(const tc_options *options, FILE *out);
/* Makes a backend known under its name; the struct is borrowed for the rest of the process.
 * TC_ERR_ARGUMENT: a required member is missing, or the name is taken; TC_ERR_LIMIT: there are 16
 * already. */
TC_API tc_status tc_register_backend(const tc_backend *backend);
/* Names of all backends, "interp" first, into names[0..room); returns how many there are. */
TC_API int tc_list_backends(const char **names, int room);
/* Backend number i, as tc_list_backends orders them; NULL: there are fewer. Asks the machine at the
 * first call for each, as a compile does. Borrowed for the rest of the process.
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
