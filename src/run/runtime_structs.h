/* run/runtime_structs.h - defines the structs behind the opaque types tc_ctx, tc_program and
 * tc_call, and declares the functions of run/. */
#ifndef TCI_RUN_RUNTIME_STRUCTS_H
#define TCI_RUN_RUNTIME_STRUCTS_H

#include "../base/os.h"
#include "../api/jit.h"
#include "../compile/compiled_code.h"
#include "../graph/build.h"
#include "thread_pool.h"

/* The error of a poisoned tensor: kept in the context until the scope it was made in ends. */
typedef struct tci_error {
    tc_status status;
    char text[1024]; /* "app.c:12: tc_add: ... given ..., expected ..." */
} tci_error;

/* The context behind a tc_ctx *: the public pointer is a number that tci_ctx_of looks up. */
typedef struct tci_ctx {
    tc_ctx *handle;
    tc_options options; /* with environment applied; strings owned */
    tci_graph graph;
    const char *within; /* the call that others are made for, which bear its name; NULL: none */
    tci_error last;     /* of the last failing call on this context */
    tc_tensor last_on;  /* the handle it concerns */
    /* Poisoned handles: id - TCI_POISON_FIRST indexes this array; entries of ended scopes are
     * NULL. */
    struct tci_poison_entry **poisons;
    int n_poisons, cap_poisons;
    uint32_t next_poison; /* generation of the next one */
    struct tci_keep *keeps;
    uint32_t cap_keeps;               /* what tc_keep knows, by node id (api/scope.c) */
    uint32_t keep_serial, keep_order; /* values kept so far; since a scope ended */
    uint32_t region;                  /* open now (debug/string_intern.h); */
    uint32_t *regions;
    int n_regions, cap_regions;          /* those around it */
    int n_lent;                          /* user functions that calls under way have called */
    int lent_scopes;                     /* as many of the scopes are of before the last of these */
    bool freed_within;                   /* one of these asked for the context's end */
    bool many_said;                      /* the log said that very many tensors are alive */
    const struct tci_build_trace *trace; /* of a tc_jit whose context it is, or NULL */
} tci_ctx;
/* State of a tc_jit while its function records (api/jit.c). */
typedef struct tci_build_trace {
    const char *name;
    const tc_statics *statics; /* NULL: none, or it does not record now */
} tci_build_trace;
#define TCI_POISON_FIRST 0xC0000000u

/* One launch of a program, as the run loop wants it. */
typedef struct tci_run_step {
    tci_kernel_fn fn; /* NULL: interp runs it, or */
    const tci_interp *interp;
    const tci_custom_call *call; /* a user function is called */
    const int64_t *literals;     /* words of this kernel's literal slots, in the program's block */
    int64_t n_tasks;
    int64_t least;      /* tasks that a thread takes at a time, at least */
    int32_t first_slot; /* of its operands among tc_call.slots */
    int32_t threads;    /* parts it is cut into; 1: serial; 0: see slice */
    bool faults;
    int32_t n_operands;
    int64_t work_bytes; /* a slot after the operands: work memory (here thread 0's) */
    int64_t rounds;     /* of an in-kernel loop; 0: it is none */
    int64_t slice;      /* rounds between two looks whether the run is cancelled; 0: all */
    int32_t go;         /* operand whose first byte ends the loop; -1: none does */
} tci_run_step;
/* A loop of launches [first, last), and those of its moves: slots of a call. */
typedef struct tci_run_move {
    int32_t slot;
    bool back;
    int64_t by;
} tci_run_move;
typedef struct tci_run_repeat {
    int32_t first, last, n_within;
    int64_t rounds;
    tci_run_move *moves;
    int32_t n_moves;
    const tci_code_repeat *code; /* of its turns */
    bool is_plain;               /* each round is calls of functions on one thread, and no more */
} tci_run_repeat;
/* slots[slot] of a call is this many bytes into the memory of user buffer `arg`: inputs first, then
 * outputs. */
typedef struct tci_run_bind {
    int32_t arg, slot;
    int64_t offset;
} tci_run_bind;
/* NULL where there is no memory, or none yet. */
static inline void *tci_run_at(void *memory, int64_t offset)
{
    return memory ? (char *)memory + offset : NULL;
}

typedef struct tci_param_value tci_param_value; /* run/param.c */
/* A captured leaf whose memory is a parameter, and the effect that changes it, or -1. */
typedef struct tci_run_param {
    int32_t captured, effect;
} tci_run_param;
/* A parameter that a run changes: output n_outputs + i of the code. */
typedef struct tci_run_effect {
    int32_t captured;
    int32_t param; /* the same one, in tc_program.params */
    bool over_old; /* may be written over the old value, while no other run reads that */
    int64_t bytes;
} tci_run_effect;

typedef struct tci_collectives tci_collectives; /* run/collective_info.c */

/* Results of a program's init section; reference-counted (run/init_cache.c). */
typedef struct tci_init_cache tci_init_cache;
/* slots[slot] of a call is this many bytes into the memory of a unit. */
typedef struct tci_init_cache_bind {
    int64_t offset;
    int32_t slot, unit; /* of the init section (tci_code.units) */
} tci_init_cache_bind;

/* One reading at indices in a program, as the user wrote it; for the text of TC_ERR_INDEX. */
enum { TCI_INDEX_CASTS = 4 };
typedef struct tci_index_read {
    const char *call; /* "tc_gather" */
    const char *file; /* its location, or NULL */
    int32_t line, axis;
    tci_dim size;          /* of the axis, in the symbols of the program */
    const char *size_text; /* a symbolic one as the user has it, or NULL */
    /* The leaf that holds the indices: a number among the code's inputs; -1: they are computed. */
    int32_t port;
    int8_t casts[TCI_INDEX_CASTS]; /* of its elements, in order */
    int32_t n_casts;
    bool padded;           /* has more elements than the leaf */
    const char *name;      /* of a user's input, or NULL */
    const char *leaf_file; /* where the leaf was made, or NULL */
    int32_t leaf_line;
    const int64_t *strides; /* of a captured leaf; NULL: dense */
} tci_index_read;
/* Memory for them and for what they point to. reads NULL: they are only counted. */
typedef struct tci_index_room {
    tci_index_read *reads;
    int64_t *words;
    char *text;
    int n_reads;
    size_t n_words, n_text;
} tci_index_room;

/* Memory for the ports of a program and for what they point to. ports NULL: they are only
 * counted. */
typedef struct tci_port_room {
    tc_port *ports;
    int64_t *sizes;
    char *text;
    int n_ports;
    size_t n_sizes, n_text;
} tci_port_room;

/* The last failing run of one thread. Only that thread writes and reads the text. */
typedef struct tci_thread_error {
    struct tci_thread_error *next;
    uint64_t thread;       /* tci_os_thread_id */
    int32_t system_thread; /* tci_os_thread, by which it is known to be alive */
    tci_error error;
} tci_thread_error;
/* Error texts of one object per thread, guarded by its lock. */
typedef struct tci_thread_errors {
    tci_thread_error *first;
    int n, most; /* how many there are, and when to look for those of dead threads */
} tci_thread_errors;

typedef struct tci_origin tci_origin; /* debug/source_location.h */

/* One heap block: the arrays follow the struct. Immutable but for the last group. A program
 * with symbols has no steps. */
struct tc_program {
    tci_code *code;
    tc_options options;     /* threads, parallel_for, spin: what a run needs; no strings */
    int64_t *literals;      /* values this compile captured, by program slot (tci_value words) */
    tci_storage **captured; /* memory of the captured leaves, counted */
    void **captured_data;   /* lowest address of each; NULL: a parameter, which moves */
    int n_captured;
    int n_inputs;  /* user inputs: code->n_inputs without the captured leaves */
    int n_outputs; /* user outputs: code->n_outputs without the effects */
    tci_run_param *params;
    int n_params;
    tci_run_effect *effects;
    int n_effects;
    /* operands that a run finds where its parameters are: arg counts params, then effects */
    tci_run_bind *param_binds;
    int n_param_binds;
    int32_t *once;
    int n_once; /* captured leaves that the init section reads */
    tci_init_cache_bind *kept_binds;
    int n_kept_binds;
    struct tc_program *keeper; /* has what the init section computed: itself, or its family */
    struct tci_dynamic
        *dynamic; /* sizes are symbols: runs are of instances (run/shape_instances.c) */
    struct tc_program *next_on_device; /* of the list of those with a device (device_memory.c) */
    struct tci_later *later;           /* interpreted until its native form is made, or NULL */
    tci_run_step *steps;               /* code->n_steps */
    tci_run_repeat *repeats;           /* code->n_repeats; their moves: */
    tci_run_move *moves;
    tci_run_bind *binds;
    int n_binds;
    tci_alias *aliases; /* code->aliases, ascending by (output, input) */
    tci_index_read *reads;
    int n_reads;    /* none in an instance: its family has them */
    tc_port *ports; /* of the user: inputs, then outputs; none in an instance */
    tci_origin *origins;
    int n_origins;                  /* by canonical number; none in an instance */
    uint32_t name;                  /* options.name (debug/string_intern.h), or 0 */
    uint32_t instead;               /* why its code is not of the engine that was asked for, or 0 */
    uint32_t cc, machine, dump_dir; /* of the options, the same way */
    size_t key_graph;               /* as in the request */
    uint32_t profile_epoch, profile_number; /* its number in the profile of that epoch */
    uint32_t profile_shares; /* epoch of the profile that knows the shares of its kernels */
    int n_slots;             /* operand pointers of all steps */
    int64_t work_bytes;      /* work memory of each thread, the most of any step */
    int max_threads;         /* of any step: how many fault words and workspaces a call has */
    bool faults, from_memory, from_disk;
    bool only_launches; /* is all that the list has, and the host does them */
    int commit; /* with collectives: the first step that writes over a parameter. On a device it
                   waits until the host knows that all collectives went well */
    tci_collectives *collectives; /* NULL: none; of an instance, those of its family */
    bool has_collectives;         /* they are its own */
    bool agreed;                  /* all ranks were found to have this program */
    int32_t refs;                 /* atomic: the user's, and one for each tc_call_make */
    tc_call *spare;               /* atomic: one idle call, taken and given back without the lock */
    tci_mutex *lock;              /* guards what follows; shared with other programs */
    tci_init_cache *kept;         /* computed last, or NULL */
    tc_call *idle;
    tci_thread_errors errors;
};

/* A piece of memory in a run, for the search for overlaps. */
typedef struct tci_run_span {
    uintptr_t begin, end, max_end, max_out_end; /* max_*: over all spans up to here, once sorted */
    int32_t index; /* outputs first, then user inputs, then captured leaves */
} tci_run_span;

/* One heap block, and one aligned block of workspace. */
struct tc_call {
    tc_program *program;
    tc_call *next; /* in the program's idle list */
    /* operand pointers of all steps; user memory is patched in at each run */
    void **slots;
    int64_t *faults; /* max_threads words; of a device one, which it can write */
    char *workspace; /* temporaries, then the interpreter's part of each thread */
    char *interp;
    char *work;               /* program->work_bytes for each thread */
    tci_param_value **values; /* during a run: of each parameter, then where each effect goes */
    tci_init_cache *kept;     /* that the slots point into, counted; NULL: none yet */
    uint64_t *versions;       /* of tc_program.once, as this run finds them */
    tci_run_span *spans;      /* NULL when there are few buffers */
    struct tci_device_call *device; /* memory of a device (run/bind_operands.c), or NULL */
    struct tci_dynamic_call
        *dynamic;    /* of a program with symbols (run/shape_instances.c), or NULL */
    tc_call *native; /* of the program's native form, once that is there; or NULL */
    char *strided;   /* copies of buffers that have strides (run/strided_buffers.c), or NULL */
    int64_t strided_bytes;
    void **check_inputs; /* of a checked run, then owned copies (debug/kernel_check.h); or NULL */
    int check_kind, check_step; /* what its check found; 0: nothing */
    bool unclean;               /* `faults` may hold something of an earlier run */
    bool asserted;              /* an assertion of this run failed, and `last` says which */
    int32_t cancelled;          /* atomic: tc_call_cancel was called, and no run ended since */
    tc_status broke;            /* TC_OK, or why a collective or engine of this run failed */
    int32_t *cancel;            /* where runs look: there, or in the call of the program's family */
    tci_error last;
};

/* A loop that was recorded with the test of its end (tc_backend.record_loop). */
typedef struct tci_walk_loop {
    void *sequence; /* NULL: none yet, or refused */
    void *done;     /* device memory: the number of rounds */
    bool refused;
} tci_walk_loop;

/* Ports are numbered inputs first, captured leaves, then outputs. */
struct tci_device_call {
    int n_ports;
    bool is_current; /* the call's slots hold what is bound */
    void *sequence;  /* recorded launches, or NULL */
    void *updates;   /* those from tc_program.commit on, or NULL */
    int runs;        /* with operands where they are now: 0, 1, or 2 for more */
    /* Per loop: one that the device ends itself, NULL so far; NULL: none is */
    struct tci_walk_loop *loops;
    struct tci_walk_tape *tape; /* where launches go while they are recorded, or NULL */
    int64_t *fault;             /* of the backend's queues, or NULL */
    void **bound;               /* what port i was bound to last */
    void **memory;              /* the arena, then a copy for each port or NULL */
    /* Of asynchronous runs: host memory of the backend's for each output, or NULL; events of the
     * list, and two more. */
    void **staging;
    void *events[TCI_LIST_EVENTS + 2];
};

/* One run of a call. */
typedef struct tci_run {
    const tc_bufs *inputs, *outputs;
    bool waited; /* all that was given to the device is done */
    /* Of an asynchronous run: queues of the device, by their role in the list; and how far the list
     * is done. Else all is given to the device's own queue, in order. */
    bool splits, ends;
    void *queues[TCI_QUEUES];
    int at;
} tci_run;

/* ---- api/handle_errors.c ---- */
/* The live node behind a handle; NULL when it is dead, null, foreign to ctx or poisoned. */
TCI_FN tci_node *tci_handle_node(tc_tensor t);
/* n NULL: poison from graph.error */
TCI_FN tc_tensor tci_handle_make(tci_ctx *ctx, tci_node *n, tc_site here);
/* Poison with this status and text; op and site are put in front. */
TCI_FN tc_tensor tci_poison(tci_ctx *ctx, const char *op, tc_site here, tc_status why,
                            const char *format, ...) TCI_PRINTF(5, 6);
/* The error behind a handle that has no node; explains dead, null and foreign ones too. */
TCI_FN tc_status tci_handle_error(tc_tensor t, char *text, size_t room);
/* Records a failure that concerns a live tensor (its compile, run or read): tc_error(t) and the
 * context's error have it until the next one. On a handle without a node the handle's own error
 * stays the answer. Returns why. */
TCI_FN tc_status tci_fail(tc_tensor t, const char *op, tc_site here, tc_status why,
                          const char *format, ...) TCI_PRINTF(5, 6);
/* ---- api/context.c ---- */
/* The context of a handle; NULL: it is NULL, was freed, or never was one. */
TCI_FN tci_ctx *tci_ctx_of(const tc_ctx *handle);

/* ---- api/scope.c ---- */
/* values, poisons and keeps of every scope, at the context's end */
TCI_FN void tci_scope_free_all(tci_ctx *ctx);

/* ---- run/buffer.c: storage ---- */
/* heap, aligned; NULL: no memory */
TCI_FN tci_storage *tci_storage_make(int64_t bytes);
TCI_FN tci_storage *tci_storage_borrow(const void *data, int64_t bytes);
TCI_FN void tci_storage_retain(tci_storage *s);
TCI_FN void tci_storage_release(tci_storage *s);

/* ---- run/param.c: what programs may change ---- */
/* The storage, with its bytes, becomes a parameter of that context. False: no memory. */
TCI_FN bool tci_param_make(tci_storage *s, const tci_ctx *ctx);
TCI_FN void tci_param_free(tci_storage *s);
/* A list of storages of one context, and a value of each. */
typedef struct tci_param_held {
    struct tci_param_held *next;
    tci_storage *storage;
    tci_param_value *value; /* NULL: it is no parameter */
    void *data;             /* of the value */
} tci_param_held;
/* The newest bytes of any storages in host memory, those of parameters as one run left them all:
 * they stay as they are until the drop. */
TCI_FN tc_status tci_param_hold(tci_param_held *list);
TCI_FN void tci_param_drop(tci_param_held *list);
/* Memory for a new value of each, all parameters, which no run sees until they are settled: then
 * all are the newest values, or, where a run changes one of them (TC_ERR_BUSY) or the caller does
 * not want it, none. TC_ERR_MEMORY. */
TCI_FN tc_status tci_param_room(tci_param_held *list);
TCI_FN tc_status tci_param_settle(tci_param_held *list, bool commits);
/* The name is copied. False: no memory. */
TCI_FN bool tci_param_name(tci_storage *s, const char *name);
TCI_FN const char *tci_param_name_of(const tci_storage *s); /* NULL: it has none */
/* The user changed the bytes of any storage. */
TCI_FN tc_status tci_param_touch(tci_storage *s);
/* Around a run of a program with parameters. TC_ERR_BUSY: another run changes one of those that
 * this one would change; TC_ERR_MEMORY; or the status of the device that has one. On the host the
 * call's slots are then bound. commits: the new values are the newest from now on. */
TCI_FN tc_status tci_param_begin(tc_call *c);
TCI_FN void tci_param_end(tc_call *c, bool commits);
/* Between these a run, begun on a device, has its parameters for itself. */
TCI_FN tc_status tci_param_claim(tc_call *c);
TCI_FN void tci_param_unclaim(tc_call *c);
/* The new value of a parameter, claimed, on a device. */
TCI_FN tc_status tci_param_download(tci_storage *s, const tc_backend *device, const void *from);
/* Tells the forks of the locks of this room and of the next. */
TCI_FN void tci_param_start(void);

/* ---- run/device_residency.c ---- */
TCI_FN void tci_copies_announce(void);
/* Memory of the device that holds the storage's newest bytes. TC_ERR_MEMORY: it has none left. */
TCI_FN tc_status tci_copies_bring(tci_storage *s, const tc_backend *device, void **memory);
/* A run changed the bytes: on that device; NULL: in host memory. */
TCI_FN void tci_copies_changed(tci_storage *s, const tc_backend *device);
/* The newest bytes are in host memory from now on. */
TCI_FN tc_status tci_copies_home(tci_storage *s);
TCI_FN void tci_copies_free(tci_storage *s);

/* ---- run/signature.c ---- */
/* Lists the user's inputs and outputs of a request. Strings are copied. */
TCI_FN void tci_port_list(const tci_request *r, tci_port_room *room);

/* ---- run/index_error.c ---- */
/* Lists the readings at indices of a request. Strings are copied: the program outlives theirs. */
TCI_FN void tci_index_list(const tci_request *r, tci_index_room *room);
/* An index was outside an axis of this size in a run of c's program, or of its instance `ran`,
 * whose symbols had these values. Writes c->last and returns TC_ERR_INDEX. */
TCI_FN tc_status tci_index_tell(tc_call *c, const tc_program *ran, const int64_t *values,
                                int64_t size, const tc_bufs *inputs, const tc_bufs *outputs);

/* ---- run/program.c ---- */
/* The lowest address that the elements of a captured leaf take, in bytes from its
 * storage's data: negative strides reach below element 0...0. */
TCI_FN int64_t tci_program_lowest(const tci_node *n);
/* A program from code and the request that led to it: captures literal values and leaf memory.
 * Keeps its own count of the code. TC_ERR_LIMIT: the arena is larger than options.memory_limit. */
TCI_FN tc_status tci_program_make(tci_code *code, const tci_request *r, const tc_options *o,
                                  tc_program **f);
/* The same from other code of the same request, and what a program of it has captured. That one
 * lives as long: its ports and readings serve both. */
TCI_FN tc_status tci_program_make_like(tci_code *code, const tc_program *like, tc_program **f);
#ifdef TC_DYNAMIC_SHAPES
/* The same from code of known sizes and the family of a program: with what that captured, and words
 * for the literals that the family does not have. */
TCI_FN tc_status tci_program_make_instance(tci_code *code, const tc_program *family,
                                           const int64_t *words, tc_program **f);
#endif
TCI_FN void tci_program_retain(tc_program *f);
TCI_FN void tci_program_release(tc_program *f);
/* The calling thread's last failure: "op: text" is recorded, read ("": none), freed with all. */
TCI_FN void tci_errors_record(tci_thread_errors *list, tci_mutex *lock, tc_status why,
                              const char *op, const char *text);
TCI_FN const char *tci_errors_text(tci_thread_errors *list, tci_mutex *lock);
TCI_FN void tci_errors_free(tci_thread_errors *list);
/* Keeps the text for tc_program_error on this thread. */
TCI_FN void tci_program_record(tc_program *f, tc_status why, const char *op, const char *text);
TCI_FN const char *tci_program_error_text(tc_program *f);

/* ---- run/init_cache.c ---- */
/* Notes the versions of what the init section reads. Versions of parameters do not change while the
 * caller has them (run/param.c). */
TCI_FN void tci_init_cache_note(tc_call *c);
/* Whether c->kept was computed from what was noted. */
TCI_FN bool tci_init_cache_is_current(const tc_call *c);
/* c->kept becomes that which was computed from what was noted, if there is such a one: *ready;
 * else memory that this call has for itself, to compute it. TC_ERR_MEMORY. */
TCI_FN tc_status tci_init_cache_take(tc_call *c, bool *ready);
/* Publishes computed results: other calls use them from now on. c->kept may be another, equal one
 * afterwards. */
TCI_FN void tci_init_cache_publish(tc_call *c);
/* The memory of a unit of the init section, and whether this call is to compute it: not before that
 * is published. */
TCI_FN void *tci_init_cache_memory(const tc_call *c, int unit);
TCI_FN bool tci_init_cache_wants(const tc_call *c, int unit);
/* Copies all that is kept, as the code's buffers are placed: kept_bytes. */
TCI_FN void tci_init_cache_copy(const tc_call *c, void *bytes);
/* Bytes of what programs keep, in the process: what several share is counted once. */
TCI_FN int64_t tci_init_cache_total(void);
/* f, which runs on the host and has not run yet, keeps these bytes: what its init section makes of
 * the captured memory, all of which has one version. TC_ERR_IO: another number of bytes;
 * TC_ERR_MEMORY. */
TCI_FN tc_status tci_init_cache_install(tc_program *f, const void *bytes, int64_t n);
TCI_FN void tci_init_cache_drop(tc_call *c); /* c->kept is NULL then */
TCI_FN void tci_init_cache_free(tc_program *f);

/* ---- run/bind_operands.c: operand pointers ---- */
TCI_FN bool tci_bind_make(tc_call *c); /* false: no memory */
TCI_FN void tci_bind_free(tc_call *c);
/* Memory of the host, that of parameters excepted (run/param.c). */
TCI_FN void tci_bind_fixed(tc_call *c);
TCI_FN void tci_bind_kept(tc_call *c);
/* On a device: the ports that are parameters, or all others. The backend's own status. */
TCI_FN tc_status tci_bind_ports(tc_call *c, const tci_run *r, bool params);
/* The slots hold what is bound. */
TCI_FN void tci_bind_refresh(tc_call *c);
/* The copy that port i is bound to, where it has one of the call's; NULL: it has none. */
TCI_FN void *tci_bind_copy(const tc_call *c, int port);
TCI_FN void *tci_bind_user_memory(const tc_call *c, const tci_run *r, int port);
/* Kernels read and write that memory of the user in place. */
TCI_FN bool tci_bind_takes(const tc_backend *device, const void *memory);
TCI_FN int64_t tci_bind_bytes(const tci_code *code, int port);

/* ---- run/launch_deps.c ---- */
/* Fills `after` of the launches of c, which begin at that step, in the scratch. Longjmps. */
TCI_FN void tci_deps_launches(tci_scratch *s, const tc_call *c, int first, tc_launch *launches,
                              int n);

/* ---- run/execute.c: the steps ---- */
/* Executes the steps of the list; an error is in c->last. Waits for the device in any case. */
TCI_FN tc_status tci_walk_run(tc_call *c, tci_run *r);
/* On the host: computes what is computed once, of the captured memory as it is now: c->kept is
 * that. */
TCI_FN tc_status tci_walk_once(tc_call *c);
/* The same in two halves, r->splits: gives the queues what needs no look of the host between, and
 * nothing is under way where that fails; then, when the first half is done, the rest. */
TCI_FN tc_status tci_walk_begin(tc_call *c, tci_run *r);
TCI_FN tc_status tci_walk_end(tc_call *c, tci_run *r);

/* ---- run/check_buffers.c ---- */
/* Checks that the buffers fit the program. */
TCI_FN tc_status tci_call_check(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs);
/* Checks the number of buffers. */
TCI_FN tc_status tci_call_check_lists(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs);
/* Writes c->last and returns why. */
/* run/buffer_overlap.c: whether two elements of a buffer with strides share memory; whether two
 * buffers do, one of them with strides. Sizes, strides and counts were checked. */
TCI_FN bool tci_overlap_itself(const tc_buf *b);
TCI_FN bool tci_overlap_each_other(const tc_buf *a, const tc_buf *b);
/* Whether the host can read the memory of buffer i; what: "input", say. */
TCI_FN tc_status tci_call_check_memory(tc_call *c, const char *what, int i, const void *data);
TCI_FN tc_status tci_call_refuse(tc_call *c, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);
enum { TCI_CHECK_PAIRWISE = 16 }; /* buffers up to which pairs are compared */

/* ---- run/collective_info.c ---- */
/* Collectives of a program of r, which holds its communicators; *out NULL: none. TC_ERR_MEMORY,
 * TC_ERR_COMM. */
TCI_FN tc_status tci_collectives_make(const tci_request *r, const tc_options *o,
                                      tci_collectives **out);
TCI_FN void tci_collectives_free(tci_collectives *l);
/* ---- run/collective_steps.c ---- */
/* Around a run of a program that has collectives: takes the communicators and, before the first
 * run, compares the programs of all ranks; gives them back. The text of a failure is in c->last. */
TCI_FN tc_status tci_collectives_begin(tc_call *c);
TCI_FN void tci_collectives_end(tc_call *c, tc_status status);
/* Whether the steps of all collectives can be recorded on the program's device; and one of them as
 * a launch that is. */
TCI_FN bool tci_collectives_can_record(const tc_program *f);
TCI_FN void tci_collectives_record(const tc_call *c, const tci_run_step *step, tc_launch *launch);
/* TC_ERR_COMM: the device's last error says which operation could not be recorded. */
TCI_FN tc_status tci_collectives_refuse(tc_call *c);
/* Recorded operations come one after the other, in the order of the launches. */
TCI_FN void tci_collectives_chain(tci_scratch *s, tc_launch *launches, int n);
/* Waits until all operations started on a device are done there. */
TCI_FN tc_status tci_collectives_finish(tc_call *c);
/* One of the steps of a collective. */
TCI_FN tc_status tci_collectives_step(tc_call *c, const tci_run_step *step);

/* ---- run/call.c ---- */
TCI_FN tc_call *tci_call_make(tc_program *f); /* NULL: no memory */
TCI_FN void tci_call_free(tc_call *c);
TCI_FN tc_call *tci_call_take(tc_program *f); /* an idle one or a new one */
TCI_FN void tci_call_give(tc_program *f, tc_call *c);
/* Checks the buffers and runs; the text of a failure is in c->last. */
TCI_FN tc_status tci_call_run(tc_call *c, tc_bufs inputs, tc_bufs outputs);
/* run/strided_buffers.c: whether any of them has strides, and then the same through dense copies.
 */
TCI_FN bool tci_strided_any(const tc_bufs *inputs, const tc_bufs *outputs);
TCI_FN tc_status tci_strided_run(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs);
/* For an asynchronous run: only checks. *inner: the call that runs, of an instance or c. */
TCI_FN tc_status tci_call_accept(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                 tc_call **inner);
/* Its halves, on a device with queues: as tci_walk_begin and _end, with parameters. */
TCI_FN tc_status tci_call_begin(tc_call *inner, tci_run *r);
TCI_FN tc_status tci_call_end(tc_call *inner, tci_run *r);
/* The run of the inner call ended so: c->last has the message for the user. */
TCI_FN tc_status tci_call_told(tc_call *c, tc_status status, const tc_bufs *inputs,
                               const tc_bufs *outputs);
/* The size of the axis that an index of the last run was outside of; -1: none was. */
TCI_FN int64_t tci_call_fault(const tc_call *c);

#endif
