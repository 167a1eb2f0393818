/* api/program.h - declares the calls that compile, run, evaluate and inspect programs. */
#ifndef TC_API_PROGRAM_H
#define TC_API_PROGRAM_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- compile: graph -> program; memoized by canonical graph, options and target ----
 * On failure *f is NULL, and tc_error() of the output and of its context has the message: the
 * status of a poisoned tensor; TC_ERR_HANDLE (dead, null, of two contexts); TC_ERR_ARGUMENT (an
 * input that is missing, given twice or no tc_input; no outputs); TC_ERR_BACKEND (unknown);
 * TC_ERR_COMPILER and TC_ERR_BACKEND (where options.fallback refuses the interpreter); TC_ERR_LIMIT
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
/* NULL is ignored. Call it once per program; it does not wait: no run may be in progress. Calls
 * (tc_call) made from it stay usable. */
TC_API void tc_program_free(tc_program *f);

/* ---- run ---- */
/* tc_run(f, inputs, outputs) runs with these, in order: tc_run(f, TC_BUFS(TC_BUF(in, 10)),
 * TC_BUFS(TC_BUF(out, 10))). Any thread, any number at once; no allocation in steady state.
 * TC_ERR_BUFFER: number, dtype, count, NULL, const or overlap are wrong; TC_ERR_ARGUMENT: f is
 * NULL; TC_ERR_MEMORY: no workspace for one more concurrent run; TC_ERR_BUSY: another run changes a
 * parameter that f changes. After these nothing was written. TC_ERR_INDEX: an index is out of
 * range: outputs are invalid, parameters are unchanged; the message names the call that read the
 * index, and the index itself if it is in host memory. TC_ERR_BACKEND: a device failed: neither
 * outputs nor parameters that f changes are valid. TC_ERR_CANCELLED: by options.cancel; outputs are
 * invalid, parameters are unchanged. tc_error(f) has the message (per thread: of its last failing
 * run of f; valid until the next one, or until the thread ends). Symbolic sizes (TC_DIM) are
 * inferred from the numbers of elements: TC_ERR_BUFFER if no sizes in their ranges fit, or several
 * do; TC_BUF_ND gives the sizes explicitly. */
TC_API tc_status tc_run_at(tc_program *f, tc_bufs inputs, tc_bufs outputs, tc_site here);
#define tc_run(f, ...) tc_run_at((f), __VA_ARGS__, TC_HERE)
/* Full control: a call owns its workspace and its last error; one thread at a time. The caller
 * frees it, before or after the program. TC_ERR_ARGUMENT: NULL; TC_ERR_MEMORY; *call is then
 * NULL. */
TC_API tc_status tc_call_make_at(tc_program *f, tc_call **call, tc_site here);
#define tc_call_make(f, call) tc_call_make_at((f), (call), TC_HERE)
/* As tc_run; tc_error(call) has the message. */
TC_API tc_status tc_run_call_at(tc_call *call, tc_bufs inputs, tc_bufs outputs, tc_site here);
#define tc_run_call(call, ...) tc_run_call_at((call), __VA_ARGS__, TC_HERE)
TC_API void tc_call_free(tc_call *call); /* NULL is ignored */
/* Cancels the run of this call that is in progress, or if there is none the next one, before an
 * iteration of a loop (tc_scan, tc_while, tc_cond): the run returns TC_ERR_CANCELLED, its outputs
 * are invalid, and parameters are unchanged. In a loop that runs as one launch the request is
 * checked about once per millisecond. Does not wait for the end of the run. A run that executes no
 * further iteration of a loop completes, and the request is consumed. May be called from any thread
 * and from a signal handler, until tc_call_free; NULL is ignored. tc_run, tc_run_async and lazy
 * evaluation are cancelled by options.cancel. */
TC_API void tc_call_cancel(tc_call *call);
#ifdef TC_DYNAMIC_SHAPES
/* tc_output_size(f, inputs, output, axis): the size of an axis of an output (-1: the last one) of a
 * run with such inputs; tc_output_count(f, inputs, output): its number of elements. Only counts,
 * types and sizes of the buffers are used, pointers may be NULL. -1: f is NULL, there is no such
 * output or axis, the inputs do not match or do not determine it; tc_error(f) has the message. */
TC_API int64_t tc_output_size_at(tc_program *f, tc_bufs inputs, int output, int axis, tc_site here);
TC_API int64_t tc_output_count_at(tc_program *f, tc_bufs inputs, int output, tc_site here);
#define tc_output_size(f, ...) tc_output_size_at((f), __VA_ARGS__, TC_HERE)
#define tc_output_count(f, ...) tc_output_count_at((f), __VA_ARGS__, TC_HERE)
#endif

/* ---- asynchronous compile: programs made under TC_STANCE_LATER ----
 * Each is interpreted until the background thread of the process, or a thread of the host
 * (options.background), has compiled it, in the order of the requests; later runs are native. If
 * the compile fails, the interpreter remains in use, and the log reports it once. tc's thread and
 * its compilers have a lower priority. A tc_call follows its program. */
/* Waits until no compile of f is in progress, at most `milliseconds` (-1: no limit). TC_OK: f does
 * not wait for a compile; TC_ERR_BUSY: it is still being compiled; TC_ERR_CANCELLED, or the status
 * of a failed compile: tc_error(f) has the message. TC_ERR_ARGUMENT: f is NULL. */
TC_API tc_status tc_program_wait(tc_program *f, int64_t milliseconds);
TC_API bool tc_program_ready(const tc_program *f); /* no compile is in progress; does not block */
/* f stays interpreted. The compile ends if no other program waits for the same code. */
TC_API void tc_program_cancel(tc_program *f);

/* ---- caches for other machines ----
 * tc_cache_export(ctx, "deploy/cache"): copies the entries of ctx's disk cache that this build of
 * tc can use to a directory, which another machine without a compiler reads through
 * options.cache_dir and cache_read_only. The directory may have programs for several machines
 * (options.machine): each uses those for itself, else those for the most capable one whose
 * instruction set it has. It is created if missing, and existing entries stay; like any cache it
 * must not be writable by other users. TC_ERR_ARGUMENT: NULL; TC_ERR_IO: there is no cache, or dir
 * cannot be written or is writable by others: tc_error(ctx) has the message. */
TC_API tc_status tc_cache_export_at(tc_ctx *ctx, const char *dir, tc_site here);
#define tc_cache_export(ctx, dir) tc_cache_export_at((ctx), (dir), TC_HERE)

/* ---- asynchronous runs ----
 * Runs of a queue execute in the order of their calls, runs of different queues concurrently. On a
 * CPU (and in the interpreter) a thread of the queue executes them, with the worker pool; on a GPU
 * the queue has streams of its own, so that uploads of one run and downloads of another overlap
 * with kernels; tc_run_async waits there for an earlier run of the queue that writes host memory
 * which this one reads (GPU memory needs no wait). A queue accepts programs of any backend, and
 * calls from any thread. After a fork the child cannot use queues of
 * its parent: TC_ERR_BACKEND. */
/* The caller frees the queue. TC_ERR_MEMORY: no memory, or no thread. */
TC_API tc_status tc_queue_make(tc_queue **queue);
/* Waits for all runs of the queue. NULL is ignored. No other call on it may be in progress. */
TC_API void tc_queue_free(tc_queue *queue);
/* tc_run_async(f, queue, inputs, outputs, &event): checks as tc_run does, whose errors it returns,
 * and submits the run to the queue; tc_error(f) has the message. *event (freed by the caller; event
 * may be NULL) completes when the run has ended. Until then inputs and memory that the program
 * borrowed must not change, and outputs must not be read; the lists of buffers are copied, and f
 * may be freed. Later errors are the status of tc_event_wait: TC_ERR_INDEX, TC_ERR_BACKEND,
 * TC_ERR_MEMORY, TC_ERR_CANCELLED (options.cancel), and TC_ERR_BUSY, if a run that is not on this
 * queue changes a parameter that f changes. Blocks while 8 runs are queued. */
TC_API tc_status tc_run_async_at(tc_program *f, tc_queue *queue, tc_bufs inputs, tc_bufs outputs,
                                 tc_event **event, tc_site here);
#define tc_run_async(f, ...) tc_run_async_at((f), __VA_ARGS__, TC_HERE)
/* Makes an event that completes when all runs submitted to the queue so far are done; its status is
 * that of the first of these runs that failed and had no event of its own. The caller frees it.
 * TC_ERR_ARGUMENT: NULL; TC_ERR_MEMORY; TC_ERR_BACKEND. */
TC_API tc_status tc_event_record(tc_queue *queue, tc_event **event);
/* Blocks until the event completes; returns the status of its run; tc_error(event) has the message.
 * From any thread, any number of times. */
TC_API tc_status tc_event_wait(tc_event *event);
TC_API bool tc_event_done(const tc_event *event); /* true if it completed; does not block */
/* Milliseconds between two events, by the device's clock if both are of one device.
 * TC_ERR_ARGUMENT: NULL, or one is not complete yet. */
TC_API tc_status tc_event_elapsed(tc_event *from, tc_event *to, double *ms);
/* NULL is ignored. May be called before or after the run ends and the queue and program are freed;
 * does not wait. */
TC_API void tc_event_free(tc_event *event);

/* ---- lazy form: the errors of compile and run; tc_error(t) has the message ---- */
/* Computes t (compiled on demand, memoized) and stores its value at the node. TC_ERR_ARGUMENT: it
 * needs a tc_input. */
TC_API tc_status tc_eval_at(tc_tensor t, tc_site here);
#define tc_eval(...) tc_eval_at(__VA_ARGS__, TC_HERE)
TC_API tc_status tc_eval_many_at(tc_tensors ts, tc_site here); /* as one program; may be empty */
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
 * Builds y and its gradients with respect to the inputs in f64, from their values, and compares the
 * gradients of sum(y * w), for fixed weights w of either sign, with central differences, element by
 * element. y has any shape; the inputs and all leaves of y must have values (TC_ERR_ARGUMENT: y
 * needs a tc_input). TC_ERR_GRADIENT: they differ by more than the tolerance: the rule of an op is
 * wrong, or the op is not differentiable there; report and tc_error(y) give the element, and the
 * first op whose rule does not hold. TC_ERR_DTYPE: y or an input is not a float; TC_ERR_SHAPE: a
 * symbolic size. */
typedef struct tc_gradcheck_options {
    double step;      /* times an element's size, at least 1; 0: 1e-5 */
    double tolerance; /* of |gradient - difference| / (1 + |difference|); 0: 1e-6 */
    int64_t most;     /* elements of each input that are checked, spread evenly; 0: 200 */
} tc_gradcheck_options;
typedef struct tc_gradcheck_report {
    double error;    /* the largest error, */
    int input;       /* the input and */
    int64_t element; /* element (row-major) where it is, */
    double gradient, difference;
    int64_t checked; /* elements */
    const char *op;  /* the call whose rule is wrong, and its location; "": none was found */
    const char *file;
    int line;
} tc_gradcheck_report;
/* options and report may be NULL. */
TC_API tc_status tc_gradcheck_at(tc_tensor y, tc_tensors inputs,
                                 const tc_gradcheck_options *options, tc_gradcheck_report *report,
                                 tc_site here);
#define tc_gradcheck(y, ...) tc_gradcheck_at((y), __VA_ARGS__, TC_HERE)

/* ---- errors ----
 * A message states the given and the expected value, and the user's file and line.
 * tc_error(x) calls one of these functions, or tc_jit_error, by the type of x. The text is "" when
 * there is no error, never NULL. Borrowed: until the next failing call on that object. */
/* Poisoned tensor: the first cause, until its scope ends. Dead or null handle: the reason. Live
 * tensor: the error of its last failing compile, evaluation or read, until another on the same
 * context fails. */
TC_API const char *tc_tensor_error(tc_tensor t);
/* The last failure recorded on the context: of a failed call, or of a compile, evaluation or read
 * that returned a status. A call on a poisoned tensor returns that handle and is no new failure. */
TC_API const char *tc_ctx_error(const tc_ctx *ctx);
/* The last failing tc_run (or tc_call_make) of the calling thread. */
TC_API const char *tc_program_error(const tc_program *f);
TC_API const char *tc_call_error(const tc_call *call);
TC_API const char *tc_event_error(const tc_event *event); /* "" until it completes */
/* The last failing call of the calling thread on the profile. */
TC_API const char *tc_profile_error(const tc_profile *profile);

/* ---- look inside ---- */
/* Prints one screen: totals, inputs, outputs and parameters by name, the 20 kernels with the
 * longest estimated times and the user's line and region of each, the reasons why values were not
 * fused with the bytes that fusion would save, and the phases of the compile. TC_EXPLAIN=FILE
 * writes it for each program that the process makes ("-": to stderr). TC_ERR_ARGUMENT: NULL;
 * TC_ERR_IO. */
TC_API tc_status tc_explain(const tc_program *f, FILE *out);
/* Sort order of the kernels, largest first; TC_BY_ORDER: in launch order. */
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
    /* > 0: times and rates are measured: the kernels run on separate memory filled with zeros, for
     * this many milliseconds in total */
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
    int n_steps; /* launches of one run, and of the init section */
    /* of one run, as planned; with symbolic sizes (TC_DIM): of the last run, 0 before it */
    int64_t bytes_read, bytes_written, flops;
    int64_t arena_bytes;         /* workspace of one call; likewise */
    const char *backend;         /* that runs it: "interp", "cpu", ... */
    bool from_memory, from_disk; /* found in a cache instead of compiled */
    /* Launches of the init section, executed once and again when captured memory changed (tc_touch,
     * or a run of another program); the bytes of their results, kept for all calls of the program,
     * and shared with programs that compute the same from the same memory. */
    int n_once;
    int64_t kept_bytes;
    /* TC_STANCE_LATER: native code is being compiled, the interpreter is used meanwhile; and
     * whether results may differ in bits afterwards: on a device, with math = FAST, or with bf16
     * and f16 on a matrix unit. Elsewhere, and with options.reproducible, they do not. All other
     * fields describe the code that is used now. */
    bool is_compiling, may_differ;
} tc_program_info;
/* TC_ERR_ARGUMENT: NULL. */
TC_API tc_status tc_program_get_info(const tc_program *f, tc_program_info *info);
/* Prints the programs that were compiled or found on disk, by line of the compiling call, the
 * newest 256 of the process: milliseconds, memory cache hits of later compiles, the difference from
 * the nearest earlier program, and the TC_DIM that would make one program of them; and at how many
 * lines tc_read, tc_eval, tc_keep and tc_print split the graph of the lazy form, and which of these
 * parts recompute most of another one (values that depend on parameters are not stored). ctx: only
 * calls of this context (for a tc_jit: tc_jit_ctx); NULL: all. TC_ERR_ARGUMENT: out is NULL;
 * TC_ERR_IO. */
TC_API tc_status tc_recompile_report(const tc_ctx *ctx, FILE *out);
/* The same as a JSON object: {"lines": [{"file", "line", "call", "ms", "hits", "programs":
 * [{"name", "from", "ms", "hits", "near", "equal", "lines", "is", "was", "hot", "speed"}], "write":
 * [{"input", "axis", "least", "most"}]}]}. */
TC_API tc_status tc_recompile_report_json(const tc_ctx *ctx, FILE *out);
/* An input or output of a program; owned by the program, valid until tc_program_free. */
typedef struct tc_port {
    const char *name; /* of a tc_input; "" if there is none, as for most outputs */
    tc_dtype dtype;
    int rank;
    const int64_t *sizes; /* as tc_size returns them: one from TC_DIM is symbolic */
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
static inline const char *tc_error(const tc_profile *p)
{
    return tc_profile_error(p);
}
#else
#define tc_error(x)                                                                                \
    _Generic((x),                                                                                  \
        tc_tensor: tc_tensor_error,                                                                \
        tc_ctx *: tc_ctx_error, const tc_ctx *: tc_ctx_error,                                      \
        tc_program *: tc_program_error, const tc_program *: tc_program_error,                      \
        tc_call *: tc_call_error, const tc_call *: tc_call_error,                                  \
        tc_event *: tc_event_error, const tc_event *: tc_event_error,                              \
        tc_jit *: tc_jit_error,                                                                    \
        tc_profile *: tc_profile_error, const tc_profile *: tc_profile_error)(x)
#endif
#endif
