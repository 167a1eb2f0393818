/* api/compile.h - compile, run, evaluate, look inside. */
#ifndef TC_API_COMPILE_H
#define TC_API_COMPILE_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- compile: graph -> program; memoized by canonical graph, options and target ---- */
/* Inputs are the tc_input leaves that y needs, in order of their creation. On failure *f is NULL
 * and tc_error(y) tells. The caller frees the program. */
TC_API tc_status tc_compile(tc_tensor y, tc_program **f);
/* Inputs and outputs in the given order; outputs 1..n. options NULL: the context's. */
TC_API tc_status tc_compile_fn(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                               tc_program **f);
/* Many programs with one compiler run. Each job's *program is set, or NULL with its own status;
 * returns the first failure. */
typedef struct tc_job {
    tc_tensors inputs, outputs;
    tc_program **program;
    tc_status status; /* out */
} tc_job;
TC_API tc_status tc_compile_many(tc_job *jobs, int n, const tc_options *options);
/* NULL is fine; waits for nobody: no run may be under way */
TC_API void tc_program_free(tc_program *f);

/* ---- run ---- */
/* Runs with these inputs and outputs, in order. Any thread, any number at once. dtype, count and
 * overlap are checked; no allocation in steady state. On failure nothing was written unless it is
 * TC_ERR_INDEX (an index was outside its axis), and tc_error(f) tells (per thread: of its last
 * failing run). */
TC_API tc_status tc_run(tc_program *f, tc_bufs inputs, tc_bufs outputs);
/* Full control: a call owns its workspace and its last error; one thread at a time. */
TC_API tc_status tc_call_make(tc_program *f, tc_call **call);
TC_API tc_status tc_run_call(tc_call *call, tc_bufs inputs, tc_bufs outputs);
TC_API void tc_call_free(tc_call *call);

/* ---- lazy form ---- */
/* Computes t (compile on demand, memoized) and holds its value at the node. */
TC_API tc_status tc_eval(tc_tensor t);
TC_API tc_status tc_eval_many(tc_tensors ts);
/* Evaluates if needed and copies the n elements, row-major, to p. n must be tc_count(t). */
TC_API tc_status tc_read_as(tc_tensor t, tc_buf to);
#define tc_read(t, pointer, n) tc_read_as((t), TC_BUF((pointer), (n)))
/* Prints the value as NumPy does. */
TC_API tc_status tc_print(FILE *out, tc_tensor t);

/* ---- errors: the first cause: what was given, what was expected, the user's file and line ---- */
/* "" when there is none. Borrowed: until the next failing call on that object. */
TC_API const char *tc_tensor_error(tc_tensor t);
TC_API const char *tc_ctx_error(const tc_ctx *ctx);
TC_API const char *tc_program_error(const tc_program *f);
TC_API const char *tc_call_error(const tc_call *call);

/* ---- look inside ---- */
/* Kernels, traffic, flops, memory, phases of the compile, and why what was not fused was not. */
TC_API tc_status tc_explain(const tc_program *f, FILE *out);
/* The generated source. Borrowed from the program. "" when interpreted without a compiler. */
TC_API const char *tc_source(const tc_program *f);
typedef struct tc_program_info {
    int n_inputs, n_outputs, n_kernels, n_steps;
    int64_t bytes_read, bytes_written, flops;  /* of one run, as planned */
    int64_t arena_bytes;                       /* workspace of one call */
    const char *backend;                       /* that runs it: "interp", "cpu", ... */
    bool from_memory, from_disk;               /* found in a cache instead of compiled */
} tc_program_info;
TC_API tc_status tc_program_get_info(const tc_program *f, tc_program_info *info);
/* Nanoseconds of each phase of the compile that made this program (0 when it came from a cache). */
typedef struct tc_times {
    int64_t key, rewrite, plan, lower, emit, compiler, load, total;
} tc_times;
TC_API tc_status tc_compile_times(const tc_program *f, tc_times *times);

#ifdef __cplusplus
} /* extern "C" */
static inline const char *tc_error(tc_tensor t) { return tc_tensor_error(t); }
static inline const char *tc_error(const tc_ctx *c) { return tc_ctx_error(c); }
static inline const char *tc_error(const tc_program *f) { return tc_program_error(f); }
static inline const char *tc_error(const tc_call *c) { return tc_call_error(c); }
#else
#define tc_error(x)                                                                                \
    _Generic((x),                                                                                  \
        tc_tensor: tc_tensor_error,                                                                \
        tc_ctx *: tc_ctx_error, const tc_ctx *: tc_ctx_error,                                      \
        tc_program *: tc_program_error, const tc_program *: tc_program_error,                      \
        tc_call *: tc_call_error, const tc_call *: tc_call_error)(x)
#endif
#endif
