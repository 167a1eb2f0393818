/* api/context.h - declares contexts, symbolic sizes, scopes, leaf tensors, queries of tensors. */
#ifndef TC_API_CONTEXT_H
#define TC_API_CONTEXT_H

#include "types.h"

#ifdef __cplusplus
#ifdef __GNUC__ /* C and C++ share the inline functions below */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#endif
extern "C" {
#endif

#define TC_HERE (tci_here(__FILE__, __LINE__))
static inline tc_site tci_here(const char *file, int line)
{
    tc_site site;
    site.file = file;
    site.line = line;
    return site;
}

/* ---- operands: TC_ARG(v) makes a tc_arg of a tensor or of any C number ---- */
static inline tc_arg tci_arg_tensor(tc_tensor t)
{
    tc_arg a = {t, 0, 0, 0.0};
    return a;
}
static inline tc_arg tci_arg_bool(bool v)
{
    tc_arg a = {{0, 0, 0}, 1, 0, 0.0};
    a.i = v;
    return a;
}
static inline tc_arg tci_arg_int(long long v)
{
    tc_arg a = {{0, 0, 0}, 2, 0, 0.0};
    a.i = v;
    a.f = (double)v;
    return a;
}
static inline tc_arg tci_arg_uint(unsigned long long v)
{
    tc_arg a = {{0, 0, 0}, 2, 0, 0.0};
    a.i = (int64_t)v;
    a.f = (double)v;
    return a;
}
static inline tc_arg tci_arg_float(double v)
{
    tc_arg a = {{0, 0, 0}, 3, 0, 0.0};
    a.f = v;
    return a;
}
static inline tc_arg tci_arg_long_double(long double v)
{
    return tci_arg_float((double)v);
}

/* ---- sizes ---- */
#ifdef TC_DYNAMIC_SHAPES
/* TC_DIM("batch", 0, 4096): a symbolic size, whose value in [least, most] is given by each run. It
 * is passed wherever sizes are: tc_input(ctx, "x", TC_F32, batch, 512). The same name and range are
 * the same size, and a symbolic size is equal only to itself. If the name is missing, or not 0 <=
 * least <= most <= 2^40, calls that get it fail with TC_ERR_SHAPE. Use tc_dim_add and similar calls
 * for arithmetic: results of C arithmetic on it are invalid, and calls that get them fail where
 * they can detect it. tc_shutdown invalidates it. Define TC_DYNAMIC_SHAPES wherever tc.h is
 * included in a program, or nowhere: a mixture does not link, since tc_ctx_make_dynamic_shapes or
 * tc_ctx_make_fixed_shapes is undefined. */
TC_API int64_t tc_dim_make(const char *name, int64_t least, int64_t most);
#define TC_DIM(name, least, most) (tc_dim_make((name), (least), (most)))
#define tc_ctx_make tc_ctx_make_dynamic_shapes
#else
#define TC_DIM(name, least, most) TC_DIM_needs_TC_DYNAMIC_SHAPES_before_tc_h
#define tc_ctx_make tc_ctx_make_fixed_shapes
#endif
/* a + b, a - b, a * b, floor(a / b), minimum, maximum: of sizes (TC_DIM, tc_size, tc_count, these
 * calls) and numbers, symbolic or not, also without TC_DYNAMIC_SHAPES. The result may be passed as
 * a size, a bound or a count of elements, and as an operand, where it is its value in a run:
 * tc_slice(x, 0, tc_dim_div(tc_size(x, 0), 2), TC_END, 1). Equal results are equal sizes. These
 * calls do not fail themselves; the call that gets an invalid result fails and reports the cause:
 * TC_ERR_ARGUMENT or, for a size, TC_ERR_SHAPE (an operand is no size, b of tc_dim_div is or may be
 * less than 1), TC_ERR_LIMIT (a number above 2^60, or an expression of more than 64 terms),
 * TC_ERR_MEMORY. */
TC_API int64_t tc_dim_add(int64_t a, int64_t b);
TC_API int64_t tc_dim_sub(int64_t a, int64_t b);
TC_API int64_t tc_dim_mul(int64_t a, int64_t b);
TC_API int64_t tc_dim_div(int64_t a, int64_t b);
TC_API int64_t tc_dim_min(int64_t a, int64_t b);
TC_API int64_t tc_dim_max(int64_t a, int64_t b);

/* ---- context ---- */
/* Makes a context, which the caller frees. options NULL: defaults; their strings are copied. On
 * failure *ctx is NULL: TC_ERR_MEMORY; TC_ERR_ARGUMENT: ctx is NULL, or options.threads or
 * options.vector_bits has no meaning; TC_ERR_BACKEND: there is no backend of that name. The log
 * says why (options.log; TC_LOG=compile). */
TC_API tc_status tc_ctx_make(tc_ctx **ctx, const tc_options *options);
/* Frees the context and all of its tensors; programs made from it stay usable. NULL, or a context
 * that was already freed, is ignored. A user function that is called by a call on the context (the
 * body of a tc_scan) must not free it: the context stays, and that call fails with
 * TC_ERR_ARGUMENT. */
TC_API void tc_ctx_free(tc_ctx *ctx);
/* Joins the workers and unloads cached code that no program uses. For plugins: existing contexts,
 * tensors, programs and calls must not be used afterwards; new contexts may be made. */
TC_API void tc_shutdown(void);
/* tc_stats(ctx, &stats) fills in the counts. TC_ERR_HANDLE: the context is NULL or freed;
 * TC_ERR_ARGUMENT: stats is NULL. */
TC_API tc_status tc_stats_get(tc_ctx *ctx, tc_stats *stats);
#define tc_stats(ctx, stats) tc_stats_get((ctx), (stats))
/* Sets the stance of later compiles of the context, also those of tc_eval and tc_read.
 * TC_ERR_HANDLE: the context is NULL or freed; TC_ERR_ARGUMENT: not a tc_stance. */
TC_API tc_status tc_ctx_stance(tc_ctx *ctx, tc_stance stance);
/* Text of a status: "shapes do not fit". Never NULL. */
TC_API const char *tc_status_text(tc_status status);
/* "major.minor.patch" of the linked implementation: equal to TC_VERSION if the object was built
 * from this header. Never freed. */
TC_API const char *tc_version(void);

/* Opens and closes a scope: tensors made inside are freed at its end. TC_ERR_HANDLE: the context is
 * NULL or freed; TC_ERR_MEMORY; at the end TC_ERR_ARGUMENT: no scope is open. Scopes left open end
 * with the context. */
TC_API tc_status tc_scope_begin_at(tc_ctx *ctx, tc_site here);
#define tc_scope_begin(ctx) tc_scope_begin_at((ctx), TC_HERE)
TC_API tc_status tc_scope_end_at(tc_ctx *ctx, tc_site here);
#define tc_scope_end(ctx) tc_scope_end_at((ctx), TC_HERE)
/* Evaluates t (as tc_eval, with its errors) and moves the value, of the same shape and dtype, to
 * the scope outside the current one; outside of all scopes t itself is returned. A value kept at
 * the same call site (file and line) replaces the value kept there two iterations earlier if its
 * computation used that one, so `for (...) { scope; x = tc_keep(f(x)); }` runs in constant memory.
 * Of `h[i] = tc_keep(f(h[i - 1]))` therefore only the last two stay alive; tc_retain(tc_keep(...))
 * exempts a value. */
TC_API tc_tensor tc_keep_at(tc_tensor t, tc_site here);
#define tc_keep(t) tc_keep_at((t), TC_HERE)
/* Returns t; a kept value then stays alive until its scope ends. */
TC_API tc_tensor tc_retain(tc_tensor t);

/* ---- leaves ----
 * On failure poisoned: TC_ERR_DTYPE (not a dtype, or memory of another), TC_ERR_SHAPE (a size is
 * negative, no valid TC_DIM, or symbolic where there is memory), TC_ERR_LIMIT (more elements than
 * memory can address), TC_ERR_ARGUMENT (NULL where there are elements), TC_ERR_HANDLE (the context
 * is NULL or freed), TC_ERR_MEMORY. */
/* tc_input(ctx, "x", TC_F32, 10, 20): a placeholder, bound by tc_run. No sizes: 0-d. The name is
 * copied; it is used in messages and need not be unique. */
TC_API tc_tensor tc_input_at(tc_ctx *ctx, const char *name, int n, const int64_t *dtype_and_sizes,
                             tc_site here);
/* tc_borrow(ctx, data, TC_F32, 10, 20): zero-copy, reads the user's memory at each run (on a
 * device, and for values that depend on it and on no input of the run: at the first run, and at the
 * first run after tc_touch); the memory must stay valid while tensors, or programs that captured
 * it, use it. tc_borrow_strided(ctx, data, TC_F32, rank, sizes, strides): strides in elements, NULL
 * = dense row-major; may be 0 or negative (data then points at element 0...0). */
TC_API tc_tensor tc_borrow_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank,
                              const int64_t *sizes, const int64_t *strides, tc_site here);
/* tc_copy_in(ctx, data, TC_F32, 10, 20) copies the elements immediately; strides as above. */
TC_API tc_tensor tc_copy_in_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank,
                               const int64_t *sizes, const int64_t *strides, tc_site here);
/* The same for memory whose type is known (TC_BUF; its count is ignored): TC_ERR_DTYPE if the type
 * is not that of dtype. uint16_t also holds f16 and bf16; void *, char * and unsigned char * any
 * dtype. */
TC_API tc_tensor tc_borrow_as_at(tc_ctx *ctx, tc_buf data, tc_dtype dtype, int rank,
                                 const int64_t *sizes, const int64_t *strides, tc_site here);
TC_API tc_tensor tc_copy_in_as_at(tc_ctx *ctx, tc_buf data, tc_dtype dtype, int rank,
                                  const int64_t *sizes, const int64_t *strides, tc_site here);
/* tc_borrow(ctx, p, TC_F32, 10, 20), tc_copy_in alike: dtype, then sizes (none: 0-d). p is a
 * pointer to the elements, or an array of up to three dimensions, of the dtype's C type. */
static inline tc_tensor tci_borrow_list(tc_ctx *ctx, tc_buf data, int n, const int64_t *list,
                                        tc_site here)
{
    return tc_borrow_as_at(ctx, data, (tc_dtype)list[0], n - 1, list + 1, 0, here);
}
static inline tc_tensor tci_copy_in_list(tc_ctx *ctx, tc_buf data, int n, const int64_t *list,
                                         tc_site here)
{
    return tc_copy_in_as_at(ctx, data, (tc_dtype)list[0], n - 1, list + 1, 0, here);
}
#define tc_borrow(ctx, data, ...)                                                                  \
    tci_borrow_list((ctx), TC_BUF((data), 0), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__),    \
                    TC_HERE)
#define tc_copy_in(ctx, data, ...)                                                                 \
    tci_copy_in_list((ctx), TC_BUF((data), 0), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__),   \
                     TC_HERE)
#define tc_borrow_strided(ctx, data, dtype, rank, sizes, strides)                                  \
    tc_borrow_as_at((ctx), TC_BUF((data), 0), (dtype), (rank), (sizes), (strides), TC_HERE)
/* Marks the memory of a borrowed tensor as changed: values that were evaluated from it are stale.
 * TC_ERR_ARGUMENT: t is no leaf with memory; TC_ERR_HANDLE; TC_ERR_MEMORY. */
TC_API tc_status tc_touch_at(tc_tensor t, tc_site here);
#define tc_touch(t) tc_touch_at((t), TC_HERE)

/* ---- queries: answered without evaluating; -1 (or TC_DTYPE_COUNT) on a poisoned or dead handle
 * ---- */
TC_API int tc_rank(tc_tensor t);
/* -1 also for an axis out of range. A symbolic size may be passed to calls that take sizes, or used
 * as an operand, where it is its value in a run. */
TC_API int64_t tc_size(tc_tensor t, int axis);
TC_API tc_dtype tc_dtype_of(tc_tensor t);
TC_API int64_t tc_count(tc_tensor t);  /* number of elements; symbolic if a size is */
TC_API int64_t tc_nbytes(tc_tensor t); /* -1 also if a size is symbolic */
/* Bytes of an element, and name of a dtype: 4 and "f32"; 0 and "none" if it is not a dtype. */
TC_API int tc_dtype_size(tc_dtype dtype);
TC_API const char *tc_dtype_name(tc_dtype dtype);
/* The live parameter of ctx with this name. Poisoned: TC_ERR_ARGUMENT (none or several have it;
 * NULL). Takes time linear in the number of tensors of ctx.
 *     tc_read(tc_param_find(ctx, "fc1.weight"), w, 784 * 128); */
TC_API tc_tensor tc_param_find_at(tc_ctx *ctx, const char *name, tc_site here);
#define tc_param_find(ctx, name) tc_param_find_at((ctx), (name), TC_HERE)
/* Name of a parameter (tc_named) or a tc_input, borrowed until it is renamed or freed; "": none. */
TC_API const char *tc_name_of(tc_tensor t);
/* TC_OK, the status of the first cause, or TC_ERR_HANDLE for a dead or null handle. */
TC_API tc_status tc_status_of(tc_tensor t);

#ifdef __cplusplus
} /* extern "C" */
#endif

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
