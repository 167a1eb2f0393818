/* compile/compiled_code.h - compiled code (tci_code): the shared, cached result of one compile,
 * with kernels, launches, buffers and the list of steps of a run.
 *
 * Code is immutable once published, reference-counted, and independent of any context. The disk
 * cache stores it (compile/disk_cache.c) and tc_program runs it (run/program.c). It has no literal
 * values and no user memory; those belong to the program that captured them.
 *
 * Code with symbolic sizes is a template (family): its tci_dims are expressions over the symbols
 * (base/dim.h). It does not run; run/shape_instances.c instantiates it for the sizes of a run.
 *
 * A program is a list of steps (tci_list_step), rows of the kinds below: first the init section,
 * executed once per program and again when its operands changed; then the steps of each run. A step
 * is submitted to a queue. Steps of one queue execute in order (launches of a loop body once per
 * iteration); steps of different queues execute concurrently, except for SIGNAL and WAIT.
 *
 * Invariants (compile/verify.c): each launch is in the list once, in the order of their numbers; a
 * reader of a buffer comes after all writers, in its own queue or after a WAIT for a SIGNAL that
 * follows them; a run uploads each input and downloads each output of the user if the code runs on
 * a device with its own memory, and otherwise none; steps that may fault are checked before an
 * output is downloaded, and all of them before a parameter is set. */
#ifndef TCI_COMPILE_COMPILED_CODE_H
#define TCI_COMPILE_COMPILED_CODE_H

#include "../api/backend.h"
#include "../api/program.h"
#include "../emit/target_features.h"
#include "../interp/interp.h"
#include "../loop/schedule.h"
#include "../plan/plan.h"

typedef struct tci_code_port { /* a program input or output */
    int8_t dtype;
    int32_t rank;
    tci_dim *shape;
    tci_dim n;     /* elements */
    tci_dim bytes; /* of the memory that is touched: dense, but for captured leaves */
} tci_code_port;

/* X(id, name, what begin and end count): the kinds of steps. */
#define TCI_LIST_ROWS(X)                                                                           \
    X(LAUNCH, "launch", "steps")       /* of tci_code.steps, in order */                           \
    X(CHECK, "check", NULL)            /* the host waits, and looks for faults */                  \
    X(UPLOAD, "upload", "inputs")      /* where the device cannot read the memory in place */      \
    X(DOWNLOAD, "download", "outputs") /* of the user, likewise */                                 \
    X(SET, "set", "effects")           /* parameters to the values that were computed for them */  \
    X(SIGNAL, "signal", "event")       /* when all before it on its queue is done */               \
    X(WAIT, "wait", "event")           /* its queue does, for a signal earlier in the list */
typedef enum tci_list_kind {
#define TCI_ROW(id, name, counts) TCI_LIST_##id,
    TCI_LIST_ROWS(TCI_ROW)
#undef TCI_ROW
        TCI_LIST_COUNT
} tci_list_kind;
/* The queues of a run: host memory to the device, kernels, and back. */
typedef enum tci_queue_role {
    TCI_QUEUE_UP,
    TCI_QUEUE_WORK,
    TCI_QUEUE_DOWN,
    TCI_QUEUES
} tci_queue_role;
typedef struct tci_list_step {
    uint8_t kind, queue; /* tci_list_kind, tci_queue_role */
    int32_t begin, end;  /* items [begin, end); an event is one */
} tci_list_step;
enum { TCI_LIST_EVENTS = 2 }; /* events of a list */

typedef struct tci_code_kernel {
    char *symbol;                /* C name; also in traces */
    char *note;                  /* schedule, for explain */
    tci_kernel_fn fn;            /* native code; NULL: interpreted */
    tci_interp *interp;          /* set when interpreted, or checked against that */
    int32_t module;              /* index in modules, when not interpreted */
    const tci_custom_call *call; /* set when it is a user function */
    void *function; /* set when a device runs it (tci_code.device): what its launch takes */
    tci_dim n_tasks;
    double task_ns, call_ns;
    tci_dim work_bytes; /* of native code, for each thread or step: see tci_launch */
    tci_dim flops, bytes;
    int32_t n_operands, n_literals;
    uint8_t *writes; /* per operand: whether it is written */
    bool faults;
    /* Of an in-kernel loop: its tasks (on blocks its rounds) are done in order; 0: of no loop. */
    bool is_loop;
    tci_dim rounds;
    /* the operand whose first byte says whether there is another round, or -1: see tci_kloop */
    int32_t go;
    struct tci_checker_info *check; /* of a checked program (debug/kernel_check.h), or NULL */
    /* Identity of a kernel of the init section: its text and target; 0 bytes: not known */
    char *identity;
    int32_t n_identity;
    /* of a family */
    tci_dim *dims;
    int32_t n_dims;     /* whose values are words after the literals: native code */
    tci_kernel *kernel; /* to be interpreted, or checked, at the sizes of a run; or NULL */
} tci_code_kernel;

typedef struct tci_code_step {
    int32_t kernel;
    int32_t *operands; /* buffer indices, kernel's n_operands, */
    tci_dim *offsets;  /* and at which byte of the buffer each begins */
    int32_t *literals; /* program literal slots, kernel's n_literals */
    /* nodes of the request that it computes, by their numbers in the key: what costs most first */
    int32_t *origins;
    int32_t n_origins;
} tci_code_step;

/* Steps that are done again and again, as plan/plan.h says of spans and moves. */
typedef struct tci_code_repeat {
    int32_t enter, first, last, n_within;
    tci_dim rounds;
    tci_move *moves;
    int32_t n_moves;
    tci_turn *turns;
    int32_t n_turns;
    int32_t stops;
} tci_code_repeat;

typedef struct tci_code_buffer {
    uint8_t kind;   /* tci_buffer_kind */
    int32_t index;  /* input or output number */
    int64_t offset; /* TEMP: from the arena's start; KEPT: from that of what is kept */
    tci_dim bytes;
    /* of a family: what a memory plan is made from */
    int32_t first, last; /* steps between which it lives */
    int8_t dtype;        /* of the value that it holds, and its shape: to be shown */
    int32_t rank;
    tci_dim *shape;
    int32_t origin; /* 1 + the number, in the key, of the request's node with that value; 0: none */
} tci_code_buffer;

/* Launches of the init section that hang together by the buffers they share
 * (compile/split_init_section.c). Their results follow from the identity, the memory of the leaves
 * and the numbers. */
typedef struct tci_code_unit {
    int32_t *steps, n_steps;
    int32_t *buffers, n_buffers;   /* temporary ones and KEPT ones, in order of first use; */
    int32_t *leaves, n_leaves;     /* captured leaves, likewise; */
    int32_t *literals, n_literals; /* and slots of numbers */
    int64_t bytes;                 /* of its KEPT buffers, in lines of 64 */
    char *identity;
    int32_t n_identity;
    bool is_shared; /* programs that have the same unit over the same memory may share it */
} tci_code_unit;
/* Where a KEPT buffer is: a unit, and the byte in its memory. */
typedef struct tci_init_cache_place {
    int32_t unit;
    int64_t offset;
} tci_init_cache_place;

typedef struct tci_graph_program tci_graph_program; /* compile/graph_backend_program.h */
typedef struct tci_module tci_module; /* a loaded object file; counted (compile/memory_cache.h) */

typedef struct tci_code {
    int32_t refs; /* atomic */
    uint8_t *key;
    size_t key_bytes;
    tci_hash hash;
    char backend[32];         /* that runs it: "cpu", "interp", "onnxrt:cuda" */
    const tc_backend *device; /* launches; NULL: the host runs kernels' fn or interp */
    tci_code_port *inputs;
    int32_t n_inputs; /* user inputs first, then captured leaves */
    tci_code_port *outputs;
    int32_t n_outputs;
    int32_t n_literals;
    int8_t *literal_dtypes;
    tci_code_kernel *kernels;
    int32_t n_kernels;
    tci_code_step *steps;
    int32_t n_steps; /* launches; */
    int32_t n_init;  /* this many at the start are of the init section */
    tci_code_repeat *repeats;
    int32_t n_repeats; /* of launches, each before those within it */
    tci_list_step *list;
    int32_t n_list;                        /* what the program does; */
    int32_t n_init_section;                /* this many rows at the start are the init section */
    int32_t n_user_inputs, n_user_outputs; /* without captured leaves, without effects */
    tci_code_buffer *buffers;
    int32_t n_buffers;
    tci_code_unit *units; /* of the init section */
    int32_t n_units;
    tci_init_cache_place *kept_places; /* of each buffer; NULL: there is no init section */
    tci_alias *aliases;
    int32_t n_aliases;
    int64_t arena_bytes, interp_bytes; /* workspace of one call; interp_bytes per thread */
    int64_t kept_bytes;                /* of a program: what its init section computes */
    char *explain;                     /* text made at compile time */
    char *source;                      /* generated source or NULL: ask tci_code_source */
    char *source_path;                 /* where tci_code_source finds it when source is NULL */
    char *late_source;                 /* atomic; heap: what it found */
    tci_module **modules;
    int32_t n_modules;
    tc_times times;
    bool from_disk;
    bool intact;               /* a run that faults writes old values over old ones */
    bool calls;                /* the host calls functions of this process, by name and version */
    bool exports;              /* for others: its kernels are source alone */
    bool fallback;             /* interpreted although a native backend was asked for */
    uint64_t compiler;         /* as in the request; matters where fallback is true */
    tci_graph_program *engine; /* owned: what graph-level backends made of it, or NULL */
    tci_dim *symbols;
    int32_t n_symbols;       /* number i is symbols[i]; a family has some */
    struct tci_code *family; /* counted: that this code was made of, whose arrays it may share */
    struct tci_code *next;   /* bucket chain of the memory cache */
    struct tci_code *newer, *older; /* its neighbours by use, there */
    int64_t bytes;                  /* of memory, as the memory cache counts it */
    struct tci_code_chunk *chunks;  /* memory of all arrays above: tci_code_get */
    char *chunk_next, *chunk_end;
} tci_code;

/* ---- compile/backend_registry.c ---- */
/* Backend and target of a compile. Lives as long as the process; the target is detected once per
 * process. */
typedef struct tci_backend {
    const char *name;                    /* "interp", "cpu", ... */
    const tc_backend *calls;             /* NULL: the interpreter, or an engine: */
    const struct tci_graph_entry *graph; /* runs whole graphs (graph_backend_registry.h); or NULL */
    tci_target target;
    bool fallback; /* the interpreter, though it was not asked for by name */
    char why[128]; /* fallback: the reason */
} tci_backend;
/* The backend that `o` asks for, else the best that works here. NULL: no such backend. */
TCI_FN const tci_backend *tci_backend_pick(const tc_options *o);
/* Why another backend than the one that was asked for is picked; NULL: none is. */
TCI_FN const char *tci_backend_replaced(const tc_options *o);
/* Whether code of that backend, made for a target of these features, runs here. */
TCI_FN bool tci_backend_runs(const tci_backend *b, const char *features);
/* Whether this build has such a backend, usable here or not. NULL is known. */
TCI_FN bool tci_backend_is_known(const char *name);
/* Whether a device was found whose memory the host may not be able to read; one load. */
TCI_FN bool tci_backend_hides_any(void);
/* The name of the backend that has the address in memory which the host cannot read; NULL: none
 * has. */
TCI_FN const char *tci_backend_hides(const void *memory);
/* Where that is NULL: says so, and which there are. */
TCI_FN void tci_backend_missing(tci_str *out, const tc_options *o);

/* ---- compile/cache_key.c ---- */
typedef enum tci_found { TCI_FOUND_NOWHERE, TCI_FOUND_MEMORY, TCI_FOUND_DISK } tci_found;
/* One compile request: the part of the user's graph that the roots need, in canonical order (a
 * post-order traversal from the roots, inputs first), and its key. Making one copies no node, so
 * that asking for what is in the memory cache is cheap; it is valid while the user's graph does not
 * change. */
typedef struct tci_request {
    tci_node **nodes;
    int n_nodes; /* the USER graph's nodes, inputs before users */
    tci_node **inputs;
    int n_inputs; /* user inputs, then captured leaves as first used */
    int n_user_inputs;
    tci_node **captured;
    int n_captured; /* inputs + n_user_inputs: DATA and evaluated nodes */
    tci_node **literals;
    int n_literals; /* LITERAL nodes, first-use order: program slot i */
    tci_node **roots;
    int n_roots; /* as given, but ASSIGN nodes last */
    int32_t *effects;
    int n_effects; /* captured leaf that each of those changes */
    tci_node **collectives;
    int n_collectives; /* COLLECTIVE nodes in the order of creation */
    tci_hash *marks;   /* if there are any: of each node's part of the key */
    tci_table places;  /* of int32_t, where a node is (compile/cache_key.c) */
    const uint8_t *key;
    size_t key_bytes; /* options that matter, backend, target, build; and */
    size_t key_graph; /* from this byte on the graph (debug/captured_program.c) */
    tci_hash hash;
    uint64_t compiler; /* hash of options.cc, not of the key; 0: none given */
    tci_found found;   /* set by tci_compile_requests */
    const char *call;
    tc_site site;      /* the public call that asks, or NULL */
    const tc_ctx *ctx; /* whose call it is */
    /* a graph-level backend that runs the parts of the graph which it takes, or NULL */
    const struct tci_backend *engine;
    const int *cancel; /* atomic: ends its compile when it is not 0; or NULL */
    bool anew;         /* it is compiled even if a cache has it */
    /* symbols of the program by number, and those of the user that they stand for */
    tci_dim *symbols, *user_symbols;
    int n_symbols;
} tci_request;
/* Collects what `roots` need and makes the key. user_inputs NULL: the INPUT leaves in use, by
 * creation order. A node that holds an evaluated value (storage) is a leaf. Leaf strides are
 * keyed; literal values and names are not. backend and target NULL: those of
 * tci_backend_pick(o). */
TCI_FN tci_request *tci_request_make(tci_scratch *s, tci_node *const *user_inputs, int n_inputs,
                                     tci_node *const *roots, int n_roots, const tc_options *o,
                                     const char *backend, const tci_target *target);
/* The same program as nodes of a graph in `s`, for the stages that follow; the user's graph is
 * left alone. Arrays correspond to the request's. Captured leaves become DATA nodes without
 * storage whose offset counts from the lowest address that the leaf touches. cut NULL: all nodes,
 * in their order. */
typedef struct tci_request_copy {
    tci_graph *graph;
    tci_node **inputs, **literals, **roots;
} tci_request_copy;
/* The order in which nodes are copied, operands first: i, r->nodes[i]; or -1 - k: `make` puts what
 * stands for others into places, which has a node for each number. */
typedef struct tci_request_cut {
    const int32_t *order;
    int n;
    void (*make)(void *user, tci_graph *g, int k, tci_node **places);
    void *user;
} tci_request_cut;
TCI_FN tci_request_copy tci_request_copy_graph(tci_scratch *s, const tci_request *r,
                                               const tci_request_cut *cut);
/* Sizes of a node with the program's own symbols. */
TCI_FN const tci_dim *tci_request_own_shape(tci_scratch *s, const tci_request *r,
                                            const tci_node *n);
/* The number of a node of the request: the user's inputs first, then `nodes`. */
TCI_INLINE int tci_request_number(const tci_request *r, const tci_node *n)
{
    int32_t place = *(const int32_t *)tci_table_item(&r->places, n);
    return place < 0 ? -place - 1 : r->n_user_inputs + place - 1;
}
/* Makes the request one of a graph that is split between the engine and r's own backend; its key
 * has the engine and what is part of its models. */
TCI_FN void tci_request_split(tci_scratch *s, tci_request *r, const tc_options *o,
                              const tci_backend *engine);
/* The same request, with the key that it has where the target has those texts. */
TCI_FN tci_request *tci_request_for_target(tci_scratch *s, const tci_request *r,
                                           const tc_options *o, const char *backend,
                                           const char *features, const char *record);
/* Build identification at the start of every key. */
TCI_FN const char *tci_key_build(void);

/* ---- compile/cache_key_decode.c ---- */
/* The graph of a key: nodes by their canonical numbers, the user's inputs first. */
typedef struct tci_key_graph {
    tci_graph *graph;
    tci_node **nodes;
    int n, n_inputs;
    tci_node **roots;
    int n_roots;
    tci_dim *symbols;
    int n_symbols;       /* with names, as a user has them */
    const char *missing; /* where reading failed: a custom op that is not known */
} tci_key_graph;
/* Reads the graph part of a key, which begins at byte `at`. symbols: names of the n_symbols there
 * are, by number; NULL: s0, s1, ... Leaves have no storage, inputs no name, literals no value.
 * False: it is not understood. */
TCI_FN bool tci_key_read(tci_scratch *s, const uint8_t *key, size_t n, size_t at,
                         const char *const *symbols, int n_symbols, tci_key_graph *g);

/* ---- compile/compile.c: THE SPINE ---- */
/* Finds (memory, disk) or makes the code of n requests, with one build by the compiler for all.
 * codes[i] is a counted reference or NULL with statuses[i] set; returns the first failure.
 * `log` receives text for the user on failure. Never longjmps: `s` only lends memory. */
TCI_FN tc_status tci_compile_requests(tci_scratch *s, tci_request **requests, int n,
                                      const tc_options *o, tci_code **codes, tc_status *statuses,
                                      tci_str *log);
/* The code of one request, with all its source in one text of static functions, and without any
 * function to run. In no cache. A counted reference, or NULL with the status. */
TCI_FN tc_status tci_compile_export(tci_request *request, const tc_options *o, tci_code **code,
                                    tci_str *log);
/* Texts of a program, made again from the graph in its key: of kernel i of its code kernels[i]
 * (what is computed) and loops[i] (how it runs; "" where nothing is compiled), and the source.
 * Both have room for code->n_kernels texts on the heap. False: they cannot be made. Kernels whose
 * schedule was measured or forced are shown as scheduled by the model. */
TCI_FN bool tci_compile_show(const tci_code *code, size_t key_graph, const tc_options *o,
                             tci_str *kernels, tci_str *loops, tci_str *source);
/* Memory of an unpublished code (zeroed, freed with it); NULL: out of memory. */
TCI_FN void *tci_code_get(tci_code *c, size_t bytes);
/* compile/port_descriptors.c: n items of it; longjmps where there is no memory. */
TCI_FN void *tci_code_need(tci_scratch *s, tci_code *c, int64_t n, size_t item_bytes);
/* Fills the ports and literals of a code under construction. */
TCI_FN void tci_code_fill_ports(tci_scratch *s, tci_code *c, const tci_request *r,
                                const tci_request_copy *copy);
/* compile/step_list.c: the list of a code that is otherwise complete. False: out of memory. */
TCI_FN bool tci_code_list(tci_code *c);
/* compile/split_init_section.c: its units. False: out of memory. */
TCI_FN bool tci_code_split_init(tci_code *c);
/* Bytes of each call: temporaries, and after them, in order, what the steps of code without
 * symbols have for themselves on a device, in lines of 64 bytes; those of one step. */
TCI_FN int64_t tci_code_workspace(const tci_code *c);
TCI_FN int64_t tci_code_own(const tci_code *c, const tci_code_step *step);
/* Number of executions of launch t in a run, within loops of known trip count. */
TCI_FN int64_t tci_code_rounds(const tci_code *c, int t);
/* The text of what it does: the list, its launches with their buffers. */
TCI_FN void tci_code_print(tci_str *out, const tci_code *c);
/* compile/verify.c */
TCI_FN void tci_code_verify(tci_scratch *s, const tci_code *c);
TCI_FN void tci_code_retain(tci_code *c);
TCI_FN void tci_code_release(tci_code *c);
/* The generated source ("" when there is none): read from the disk cache at first use when the
 * code came from there. Borrowed from c. */
TCI_FN const char *tci_code_source(tci_code *c);
/* tc_shutdown's part: drops cached code that no program uses. */
TCI_FN void tci_cache_trim(void);

/* ---- process-wide counters behind tc_stats ---- */
typedef struct tci_counters {
    int64_t compiles, compiler_runs, kernels_built, memory_hits, disk_hits, misses, kernel_hits,
        evictions, memory_evictions, memory_entries, memory_bytes, cache_rejects, interpreted;
} tci_counters;
TCI_FN tci_counters *tci_counters_get(void); /* fields are changed atomically */

#endif
