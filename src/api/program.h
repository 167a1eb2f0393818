/* api/program.h - declares the calls that compile, run, evaluate and inspect programs. */
#ifndef TC_API_PROGRAM_H
#define TC_API_PROGRAM_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- compile: graph -> program; memoized by canonical graph, options and target ----
 * On failure *f is NULL, and tc_error() of the output and of its context tell: the status of a
 * poisoned tensor; TC_ERR_HANDLE (dead, null, of two contexts); TC_ERR_ARGUMENT (an input that is
 * missing, given twice or no tc_input; no outputs); TC_ERR_BACKEND (unknown); TC_ERR_COMPILER and
 * TC_ERR_BACKEND (where options.fallback refuses the interpreter); TC_ERR_LIMIT
 * (options.memory_limit); TC_ERR_FROZEN (options.stance); TC_ERR_MEMORY. The caller frees the
 * program. */
/* Inputs are the tc_input leaves that y needs, in order of their creation. */
TC_API tc_status tc_compile_at(tc_tensor y, tc_program **f, tc_site here);
#define tc_compile(...) tc_compile_at(__VA_ARGS__, TC_HERE)
/* Inputs and outputs in the given order; outputs 1..n. options NULL: the context's. */
TC_API tc_status tc_compile_fn_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                  tc_program **f, tc_site here);
#define tc_compile_fn(...) tc_compile_fn_at(__VA_ARGS__, TC_HERE)
/* Many programs with one compiler run. Each job's *program is set, or NULL with its own status;
 * returns the first failure. */
typedef struct tc_job {
    tc_tensors inputs, outputs;
    tc_program **program;
    tc_status status; /* out */
} tc_job;
TC_API tc_status tc_compile_many_at(tc_job *jobs, int n, const tc_options *options, tc_site here);
#define tc_compile_many(...) tc_compile_many_at(__VA_ARGS__, TC_HERE)
/* NULL is fine. Once for each program; does not wait: no run may be under way. Calls made from
 * it stay usable. */
TC_API void tc_program_free(tc_program *f);

/* ---- run ---- */
/* tc_run(f, inputs, outputs) runs with these, in order: tc_run(f, TC_BUFS(TC_BUF(in, 10)),
 * TC_BUFS(TC_BUF(out, 10))). Any thread, any number at once; no allocation in steady state.
 * TC_ERR_BUFFER: number, dtype, count, NULL, const or overlap are wrong; TC_ERR_ARGUMENT: f is
 * NULL; TC_ERR_MEMORY: no workspace for one more call at once; TC_ERR_BUSY: another run changes a
 * parameter that f changes. Nothing was written then. TC_ERR_INDEX: an index was outside its axis:
 * outputs are not valid, parameters are as they were; the text names the call that reads there and,
 * where that takes it from memory that the host can read, the index. TC_ERR_BACKEND: a device
 * failed at work: neither outputs nor parameters that f changes are valid. TC_ERR_CANCELLED: by
 * options.cancel; outputs are not valid, parameters are as they were. tc_error(f) tells (per
 * thread: of its last failing run of f; the text is there until the next one, or the thread ends).
 * Sizes from TC_DIM are those that the numbers of elements make: none in their ranges, or several,
 * are TC_ERR_BUFFER, and TC_BUF_ND says what the numbers leave open. */
TC_API tc_status tc_run_at(tc_program *f, tc_bufs inputs, tc_bufs outputs, tc_site here);
#define tc_run(f, ...) tc_run_at((f), __VA_ARGS__, TC_HERE)
/* Full control: a call owns its workspace and its last error; one thread at a time. The caller
 * frees it, before or after the program. TC_ERR_ARGUMENT: NULL; TC_ERR_MEMORY; *call is then
 * NULL. */
TC_API tc_status tc_call_make_at(tc_program *f, tc_call **call, tc_site here);
#define tc_call_make(f, call) tc_call_make_at((f), (call), TC_HERE)
/* As tc_run; tc_error(call) tells. */
TC_API tc_status tc_run_call_at(tc_call *call, tc_bufs inputs, tc_bufs outputs, tc_site here);
#define tc_run_call(call, ...) tc_run_call_at((call), __VA_ARGS__, TC_HERE)
TC_API void tc_call_free(tc_call *call); /* NULL is fine */
/* Ends the run of this call that is under way, or if there is none the next one, before a step of
 * a loop (tc_scan, tc_while, tc_cond): it returns TC_ERR_CANCELLED, its outputs are not valid, and
 * parameters are as they were. A loop of little work, which is one launch, is looked at about
 * once a millisecond instead. Does not wait for that. A run that does no further step of a loop
 * goes on to its end, and takes the request with it. From any thread and from a signal handler,
 * until tc_call_free; NULL is fine. What tc_run, tc_run_async and values without a run do is ended
 * by options.cancel. */
TC_API void tc_call_cancel(tc_call *call);
#ifdef TC_DYNAMIC_SHAPES
/* tc_output_size(f, inputs, output, axis): the size of an axis of an output (-1 the last one) that
 * runs with such inputs have; tc_output_count(f, inputs, output): of how many elements. Only
 * numbers, types and sizes of the buffers count, pointers may be NULL. -1: f is NULL, there is no
 * such output or axis, the inputs do not fit or leave it open; tc_error(f) tells. */
TC_API int64_t tc_output_size_at(tc_program *f, tc_bufs inputs, int output, int axis, tc_site here);
TC_API int64_t tc_output_count_at(tc_program *f, tc_bufs inputs, int output, tc_site here);
#define tc_output_size(f, ...) tc_output_size_at((f), __VA_ARGS__, TC_HERE)
#define tc_output_count(f, ...) tc_output_count_at((f), __VA_ARGS__, TC_HERE)
#endif

/* ---- asynchronous compile: programs made under TC_STANCE_LATER ----
 * Each is interpreted until one background thread of the process, or a thread of the host's
 * (options.background), has compiled it, in the order in which programs were asked for; the run
 * after that is native. If the compile fails the interpreter goes on, and the log says so once. The
 * thread of tc has a lower priority, and so have its compilers. A tc_call follows its program. */
/* Waits until no compile of f is under way, at most so many milliseconds (-1: any number). TC_OK:
 * f is not interpreted for want of one; TC_ERR_BUSY: it is still compiled; TC_ERR_CANCELLED, or why
 * it failed: tc_error(f) tells. TC_ERR_ARGUMENT: f is NULL. */
TC_API tc_status tc_program_wait(tc_program *f, int64_t milliseconds);
TC_API bool tc_program_ready(const tc_program *f); /* no compile is under way; does not block */
/* f stays interpreted. The compile ends if no other program waits for the same code. */
TC_API void tc_program_cancel(tc_program *f);

/* ---- caches for other machines ----
 * tc_cache_export(ctx, "deploy/cache"): copies the disk cache of ctx, what this build of tc can use
 * of it, to a directory that a fresh machine reads with options.cache_dir and cache_read_only, and
 * needs no compiler for. The directory may have programs for several machines (options.machine):
 * each takes those of its own, else of the most capable one whose instruction set it has. It is
 * made where it is missing, and what it has stays; as any cache it must be closed to others.
 * TC_ERR_ARGUMENT: NULL; TC_ERR_IO: there is no cache, or dir cannot be written or is open to
 * others: tc_error(ctx) tells. */
TC_API tc_status tc_cache_export_at(tc_ctx *ctx, const char *dir, tc_site here);
#define tc_cache_export(ctx, dir) tc_cache_export_at((ctx), (dir), TC_HERE)

/* ---- asynchronous runs ----
 * Runs of a queue are done in the order of their calls, those of different queues side by side. On
 * a processor (and in the interpreter) a thread of the queue does them, with the pool's help; on a
 * GPU the queue has streams of its own, so that the inputs of a run go up and the outputs of
 * another come down while kernels work; tc_run_async waits there for an earlier run of the queue
 * that writes host memory which this one reads (memory of the GPU needs no wait). A queue takes
 * programs of any backend, and calls from any thread. After a fork the child cannot use queues of
 * its parent: TC_ERR_BACKEND. */
/* The caller frees the queue. TC_ERR_MEMORY: no memory, or no thread. */
TC_API tc_status tc_queue_make(tc_queue **queue);
/* Waits for all runs of the queue. NULL is fine. No other call on it may be under way. */
TC_API void tc_queue_free(tc_queue *queue);
/* tc_run_async(f, queue, inputs, outputs, &event): checks as tc_run does, whose errors it returns,
 * and gives the run to the queue; tc_error(f) tells. *event, which the caller frees, or NULL, is
 * reached when the run ended. Until then inputs stay as they are and outputs are not looked at, nor
 * may memory that the program borrowed change; the lists of buffers are copied, and f may be freed.
 * What is found later is the status of tc_event_wait: TC_ERR_INDEX, TC_ERR_BACKEND, TC_ERR_MEMORY,
 * TC_ERR_CANCELLED (options.cancel), and TC_ERR_BUSY, where a run that is not on this queue
 * changes a parameter that f changes. A queue that has 8 runs to do lets the caller wait. */
TC_API tc_status tc_run_async_at(tc_program *f, tc_queue *queue, tc_bufs inputs, tc_bufs outputs,
                                 tc_event **event, tc_site here);
#define tc_run_async(f, ...) tc_run_async_at((f), __VA_ARGS__, TC_HERE)
/* An event that is reached when all that the queue was given so far is done; its status is that of
 * the first of these runs that failed and had no event of its own. The caller frees it.
 * TC_ERR_ARGUMENT: NULL; TC_ERR_MEMORY; TC_ERR_BACKEND. */
TC_API tc_status tc_event_record(tc_queue *queue, tc_event **event);
/* Blocks until the event is reached; returns the status of its run. tc_error(event) tells. From any
 * thread, any number of times. */
TC_API tc_status tc_event_wait(tc_event *event);
TC_API bool tc_event_done(const tc_event *event); /* whether it is reached; does not block */
/* Milliseconds between two events, by the device's clock where both are of one. TC_ERR_ARGUMENT:
 * NULL, or one is not reached yet. */
TC_API tc_status tc_event_elapsed(tc_event *from, tc_event *to, double *ms);
/* NULL is fine. Before or after the run, the queue and the program; does not wait. */
TC_API void tc_event_free(tc_event *event);

/* ---- lazy form: the errors of compile and run; tc_error(t) tells ---- */
/* Computes t (compile on demand, memoized) and holds its value at the node. TC_ERR_ARGUMENT: it
 * needs a tc_input. */
TC_API tc_status tc_eval_at(tc_tensor t, tc_site here);
#define tc_eval(...) tc_eval_at(__VA_ARGS__, TC_HERE)
TC_API tc_status tc_eval_many_at(tc_tensors ts, tc_site here); /* as one program; none is fine */
#define tc_eval_many(...) tc_eval_many_at(__VA_ARGS__, TC_HERE)
/* tc_read(t, p, n): evaluates if needed and copies the n elements, row-major, to p. TC_ERR_BUFFER:
 * n is not tc_count(t), p is NULL or const, or its type is not t's dtype (a void * takes any; n
 * then counts bytes). */
TC_API tc_status tc_read_as_at(tc_tensor t, tc_buf to, tc_site here);
#define tc_read_as(...) tc_read_as_at(__VA_ARGS__, TC_HERE)
#define tc_read(t, pointer, n) tc_read_as_at((t), TC_BUF((pointer), (n)), TC_HERE)
/* Prints the value as NumPy does, evaluated if needed. TC_ERR_ARGUMENT: out is NULL; TC_ERR_IO. */
TC_API tc_status tc_print_at(FILE *out, tc_tensor t, tc_site here);
#define tc_print(...) tc_print_at(__VA_ARGS__, TC_HERE)

/* ---- gradients against differences ----
 * Builds y and its gradients by the inputs in f64, from their values, and compares the gradients of
 * sum(y * w), for fixed weights w of either sign, with central differences, element by element. y
 * is of any shape; the inputs and all that y needs have values (TC_ERR_ARGUMENT: it needs a
 * tc_input). TC_ERR_GRADIENT: they differ by more than the tolerance: the rule of an op is wrong,
 * or it has a kink there; report and tc_error(y) tell where, and the first op on the way whose rule
 * does not hold. TC_ERR_DTYPE: one is no float; TC_ERR_SHAPE: a symbolic size. */
typedef struct tc_gradcheck_options {
    double step;      /* times an element's size, at least 1; 0: 1e-5 */
    double tolerance; /* of |gradient - difference| / (1 + |difference|); 0: 1e-6 */
    int64_t most;     /* elements of each input that are looked at, spread evenly; 0: 200 */
} tc_gradcheck_options;
typedef struct tc_gradcheck_report {
    double error;    /* the largest, */
    int input;       /* where that is, */
    int64_t element; /* row-major, */
    double gradient, difference;
    int64_t checked; /* elements */
    const char *op;  /* the call that is to blame, and its place; "": none was found */
    const char *file;
    int line;
} tc_gradcheck_report;
/* options and report may be NULL. */
TC_API tc_status tc_gradcheck_at(tc_tensor y, tc_tensors inputs,
                                 const tc_gradcheck_options *options, tc_gradcheck_report *report,
                                 tc_site here);
#define tc_gradcheck(y, ...) tc_gradcheck_at((y), __VA_ARGS__, TC_HERE)

/* ---- errors: what was given, what was expected, the user's file and line ----
 * tc_error(x) is one of these, by the type of x. "" when there is none, never NULL. Borrowed: until
 * the next failing call on that object. */
/* A poisoned tensor: the first cause on the way to it, until its scope ends. A dead or null one:
 * why it is. A live one: of its last failing compile, evaluation or reading, until another on the
 * same context fails. */
TC_API const char *tc_tensor_error(tc_tensor t);
/* The last failure recorded on the context: of a call that could not be made, or of a compile,
 * evaluation or reading that returned a status. A call on a poisoned tensor returns its poison and
 * is no new failure. */
TC_API const char *tc_ctx_error(const tc_ctx *ctx);
/* The last failing tc_run (or tc_call_make) of the calling thread. */
TC_API const char *tc_program_error(const tc_program *f);
TC_API const char *tc_call_error(const tc_call *call);
TC_API const char *tc_event_error(const tc_event *event); /* "" until it is reached */

/* ---- look inside ---- */
/* One screen: totals, inputs, outputs and parameters by name, the 20 kernels that take longest by
 * the model with the user's line and region of each, the reasons why values were not computed
 * together with the bytes that this would save, phases of the compile. TC_EXPLAIN=FILE writes it
 * for each program that the process makes ("-": to stderr). TC_ERR_ARGUMENT: NULL; TC_ERR_IO. */
TC_API tc_status tc_explain(const tc_program *f, FILE *out);
/* Rows of kernels in this order, the largest first; TC_BY_ORDER: as they are launched. */
typedef enum tc_sort {
    TC_BY_TIME,
    TC_BY_CALLS,
    TC_BY_BYTES,
    TC_BY_FLOPS,
    TC_BY_NAME,
    TC_BY_ORDER
} tc_sort;
typedef struct tc_explain_options {
    tc_sort sort;
    int most; /* kernels that are listed; 0: 20; -1: all of them */
    /* > 0: each kernel is run on memory of its own, filled with zeros, for this share of so many
     * milliseconds; times and rates are then measured ones */
    int measure_ms;
    bool all;  /* in addition each launch with its schedule, and each reason */
    bool json; /* one JSON object instead, whatever `all` says */
} tc_explain_options;
/* options NULL: as tc_explain. TC_ERR_MEMORY; TC_ERR_UNSUPPORTED: json under TC_NO_DEBUG. */
TC_API tc_status tc_explain_as(const tc_program *f, FILE *out, const tc_explain_options *options);
/* The generated source. Borrowed from the program. "" when interpreted without a compiler. */
TC_API const char *tc_source(const tc_program *f);
typedef struct tc_program_info {
    int n_inputs, n_outputs, n_kernels;
    int n_steps; /* launches of one run, and those done once */
    /* of one run, as planned; of a program with sizes from TC_DIM, of its last run, 0 before */
    int64_t bytes_read, bytes_written, flops;
    int64_t arena_bytes;         /* workspace of one call; the same */
    const char *backend;         /* that runs it: "interp", "cpu", ... */
    bool from_memory, from_disk; /* found in a cache instead of compiled */
    /* Launches that are done once, and again when captured memory changed (tc_touch, or a run of
     * another program); the bytes of what they compute, kept for all calls of the program, and
     * of others that compute the same of the same memory. */
    int n_once;
    int64_t kept_bytes;
    /* TC_STANCE_LATER: its native code is being made, the interpreter runs it meanwhile; and
     * whether results may differ in bits once that is there: on a device, with math = FAST, or
     * with bf16 and f16 on a matrix unit. Elsewhere, and with options.reproducible, they do not.
     * All other fields are of what runs it now. */
    bool is_compiling, may_differ;
} tc_program_info;
/* TC_ERR_ARGUMENT: NULL. */
TC_API tc_status tc_program_get_info(const tc_program *f, tc_program_info *info);
/* Prints the programs that were compiled or found on disk, by line of the compiling call, the
 * newest 256 of the process: milliseconds, memory cache hits of later compiles, the difference from
 * the nearest earlier program, and the TC_DIM that would make one program of them; and at how many
 * lines tc_read, tc_eval, tc_keep and tc_print cut the graph of the lazy form, and which of these
 * pieces recompute most of another one (values that depend on parameters are not stored). ctx: only
 * calls of this context (for a tc_jit: tc_jit_ctx); NULL: all. TC_ERR_ARGUMENT: out is NULL;
 * TC_ERR_IO. */
TC_API tc_status tc_recompile_report(const tc_ctx *ctx, FILE *out);
/* The same as a JSON object: {"lines": [{"file", "line", "call", "ms", "hits", "programs":
 * [{"name", "from", "ms", "hits", "near", "equal", "lines", "is", "was", "hot", "speed"}], "write":
 * [{"input", "axis", "least", "most"}]}]}. */
TC_API tc_status tc_recompile_report_json(const tc_ctx *ctx, FILE *out);
/* An input or output of a program; memory of the program's, until tc_program_free. */
typedef struct tc_port {
    const char *name; /* of a tc_input; "" of what has none, as most outputs */
    tc_dtype dtype;
    int rank;
    const int64_t *sizes; /* as tc_size tells them: one from TC_DIM is symbolic */
} tc_port;
/* Number i, as tc_run takes them. TC_ERR_ARGUMENT: NULL, or there is no such number. */
TC_API tc_status tc_program_get_input(const tc_program *f, int i, tc_port *port);
TC_API tc_status tc_program_get_output(const tc_program *f, int i, tc_port *port);
/* The number of the first input of that name; -1: there is none, or something is NULL. */
TC_API int tc_program_find_input(const tc_program *f, const char *name);
/* Nanoseconds of each phase of the compile that made this program (0 when it came from a cache). */
typedef struct tc_times {
    int64_t key, rewrite, plan, lower, emit, compiler, load, total;
} tc_times;
TC_API tc_status tc_compile_times(const tc_program *f, tc_times *times);

#ifdef __cplusplus
} /* extern "C" */
static inline const char *tc_error(tc_tensor t)
{
    return tc_tensor_error(t);
}
static inline const char *tc_error(const tc_ctx *c)
{
    return tc_ctx_error(c);
}
static inline const char *tc_error(const tc_program *f)
{
    return tc_program_error(f);
}
static inline const char *tc_error(const tc_call *c)
{
    return tc_call_error(c);
}
static inline const char *tc_error(const tc_event *e)
{
    return tc_event_error(e);
}
#else
#define tc_error(x)                                                                                \
    _Generic((x),                                                                                  \
        tc_tensor: tc_tensor_error,                                                                \
        tc_ctx *: tc_ctx_error, const tc_ctx *: tc_ctx_error,                                      \
        tc_program *: tc_program_error, const tc_program *: tc_program_error,                      \
        tc_call *: tc_call_error, const tc_call *: tc_call_error,                                  \
        tc_event *: tc_event_error, const tc_event *: tc_event_error,                              \
        tc_jit *: tc_jit_error)(x)
#endif
#endif
