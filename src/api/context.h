/* api/context.h - declares contexts, scopes and leaf tensors, and the macros that turn C values
 * into operands and lists. */
#ifndef TC_API_CONTEXT_H
#define TC_API_CONTEXT_H

#include "types.h"

#ifdef __cplusplus
#include <initializer_list>
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
 * failure *ctx is NULL: TC_ERR_MEMORY, or TC_ERR_ARGUMENT when ctx is NULL. */
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
/* Zero-copy: reads the user's memory at each run (on a device, and for values that depend on it and
 * on no input of the run: at the first run, and at the first run after tc_touch); the memory must
 * stay valid while tensors, or programs that captured it, use it. strides in elements, NULL = dense
 * row-major; may be 0 or negative (data then points at element 0...0). */
TC_API tc_tensor tc_borrow_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank,
                              const int64_t *sizes, const int64_t *strides, tc_site here);
/* Copies the elements immediately; strides as above. */
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

/* TC_NONE is passed for an optional tensor that is left out. */
static inline tc_tensor tci_none(void)
{
    tc_tensor t = {0, UINT32_MAX, 0};
    return t;
}
#define TC_NONE (tci_none())
#define TC_END INT64_MAX /* an open end of tc_slice */

#ifdef __cplusplus

#define TCI_ARG_OF(type, make)                                                                     \
    static inline tc_arg tci_arg(type v)                                                           \
    {                                                                                              \
        return make(v);                                                                            \
    }
TCI_ARG_OF(tc_tensor, tci_arg_tensor)
TCI_ARG_OF(bool, tci_arg_bool)
TCI_ARG_OF(signed char, tci_arg_int)
TCI_ARG_OF(short, tci_arg_int)
TCI_ARG_OF(int, tci_arg_int)
TCI_ARG_OF(long, tci_arg_int)
TCI_ARG_OF(long long, tci_arg_int)
TCI_ARG_OF(char, tci_arg_int)
TCI_ARG_OF(unsigned char, tci_arg_int)
TCI_ARG_OF(unsigned short, tci_arg_int)
TCI_ARG_OF(unsigned, tci_arg_int)
TCI_ARG_OF(unsigned long, tci_arg_uint)
TCI_ARG_OF(unsigned long long, tci_arg_uint)
TCI_ARG_OF(float, tci_arg_float)
TCI_ARG_OF(double, tci_arg_float)
TCI_ARG_OF(long double, tci_arg_long_double)
#undef TCI_ARG_OF
/* A pointer would be taken for a bool. */
template <class tci_t> tc_arg tci_arg(tci_t *tci_arg_is_a_tensor_or_a_number) = delete;
#define TC_ARG(v) tci_arg(v)

/* Lists live until the end of the full expression that contains them, as in C. */
static inline tc_tensors tci_tensor_list(std::initializer_list<tc_tensor> l)
{
    tc_tensors r = {l.begin(), static_cast<int>(l.size())};
    return r;
}
static inline tc_axes tci_axis_list(std::initializer_list<int> l)
{
    tc_axes r = {l.begin(), static_cast<int>(l.size()), false};
    return r;
}
static inline tc_attrs tci_attr_list(std::initializer_list<tc_attr> l)
{
    tc_attrs r = {l.begin(), static_cast<int>(l.size())};
    return r;
}
static inline tc_bufs tci_buf_list(std::initializer_list<tc_buf> l)
{
    tc_bufs r = {l.begin(), static_cast<int>(l.size())};
    return r;
}
/* Sizes of any integer type: a temporary array that lives as long as the full expression. */
template <size_t tci_n> struct tci_size_array {
    int64_t items[tci_n + 1]; /* one more than needed: an empty list is legal */
    const int64_t *get() const
    {
        return items;
    }
};
template <class tci_t> static inline int64_t tci_size_of(tci_t v)
{
    static_assert(static_cast<tci_t>(1) / 2 == 0, "a size is an integer");
    return static_cast<int64_t>(v);
}
template <class... tci_t> static inline tci_size_array<sizeof...(tci_t)> tci_size_list(tci_t... v)
{
    tci_size_array<sizeof...(tci_t)> r = {{tci_size_of(v)..., 0}};
    return r;
}
template <class... tci_t> static inline int tci_size_count(tci_t...)
{
    return static_cast<int>(sizeof...(tci_t));
}
#define TC_TENSORS(...) (tci_tensor_list({__VA_ARGS__}))
#define TC_AXES(...) (tci_axis_list({__VA_ARGS__}))
#define TC_ATTRS(...) (tci_attr_list({__VA_ARGS__}))
#define TC_BUFS(...) (tci_buf_list({__VA_ARGS__}))
#define TCI_SIZES(...) (tci_size_list(__VA_ARGS__).get())
#define TCI_SIZES_N(...) (tci_size_count(__VA_ARGS__))
static inline tc_axes tci_axes_all(void)
{
    tc_axes r = {0, 0, true};
    return r;
}
#define TC_ALL (tci_axes_all())

template <class tci_t> struct tci_dtype_of_type {
    enum { value = -1 };
};
#define TCI_CXX_DTYPE(type, id) \
    template <> struct tci_dtype_of_type<type> { enum { value = id }; }
TCI_CXX_DTYPE(bool, TC_BOOL);
TCI_CXX_DTYPE(unsigned char, TC_U8);
TCI_CXX_DTYPE(unsigned short, TC_U16);
TCI_CXX_DTYPE(unsigned, TC_U32);
TCI_CXX_DTYPE(unsigned long, sizeof(long) == 8 ? TC_U64 : TC_U32);
TCI_CXX_DTYPE(unsigned long long, TC_U64);
TCI_CXX_DTYPE(signed char, TC_I8);
TCI_CXX_DTYPE(short, TC_I16);
TCI_CXX_DTYPE(int, TC_I32);
TCI_CXX_DTYPE(long, sizeof(long) == 8 ? TC_I64 : TC_I32);
TCI_CXX_DTYPE(long long, TC_I64);
TCI_CXX_DTYPE(tc_f16, TC_F16);
TCI_CXX_DTYPE(tc_bf16, TC_BF16);
TCI_CXX_DTYPE(float, TC_F32);
TCI_CXX_DTYPE(double, TC_F64);
#undef TCI_CXX_DTYPE
/* An array of arrays has the type of its elements. */
template <class tci_t, size_t tci_n> struct tci_dtype_of_type<tci_t[tci_n]> {
    enum { value = tci_dtype_of_type<tci_t>::value };
};
static inline tc_buf tci_buf(uintptr_t data, int64_t n, int dtype, bool is_const)
{
    tc_buf b = {reinterpret_cast<void *>(data), n, dtype, is_const, 0, 0, 0};
    return b;
}
template <class tci_t> static inline tc_buf tci_buf_of(tci_t *p, int64_t n)
{
    return tci_buf(reinterpret_cast<uintptr_t>(p), n, tci_dtype_of_type<tci_t>::value, false);
}
template <class tci_t> static inline tc_buf tci_buf_of(const tci_t *p, int64_t n)
{
    return tci_buf(reinterpret_cast<uintptr_t>(p), n, tci_dtype_of_type<tci_t>::value, true);
}
static inline tc_buf tci_buf_of(const void *p, int64_t n) /* NULL has no type of its own */
{
    return tci_buf(reinterpret_cast<uintptr_t>(p), n, -1, p != 0);
}
#define TC_BUF(pointer, n) (tci_buf_of((pointer), (n)))

#else /* C */

/* The operand is named once under GNU C: _Generic alone would double the text at each nesting
 * level. */
#define TCI_ARG_FN(v)                                                                              \
    _Generic((v), tc_tensor: tci_arg_tensor, bool: tci_arg_bool, float: tci_arg_float,             \
        double: tci_arg_float, long double: tci_arg_long_double, char: tci_arg_int,                \
        signed char: tci_arg_int, unsigned char: tci_arg_int, short: tci_arg_int,                  \
        unsigned short: tci_arg_int, int: tci_arg_int, unsigned: tci_arg_int, long: tci_arg_int,   \
        long long: tci_arg_int, unsigned long: tci_arg_uint, unsigned long long: tci_arg_uint,     \
        default: tci_arg_is_a_tensor_or_a_number)
/* Nothing can be given to it: a pointer as an operand does not compile, and its name says why. */
struct tci_arg_nothing {
    char unused;
};
static inline tc_arg tci_arg_is_a_tensor_or_a_number(struct tci_arg_nothing v)
{
    tc_arg a = {{0, 0, 0}, -1, v.unused, 0.0};
    return a;
}
#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
#define TC_ARG(v) TCI_ARG_1(v, __COUNTER__)
#define TCI_ARG_1(v, n) TCI_ARG_2(v, n)
#define TCI_ARG_2(v, n)                                                                            \
    __extension__({                                                                                \
        __auto_type tci_v##n = (v);                                                                \
        TCI_ARG_FN(tci_v##n)(tci_v##n);                                                            \
    })
#else
#define TC_ARG(v) TCI_ARG_FN(v)(v)
#endif

/* Lists of tensors name their items once, as a list within a list within a list ... would double
 * its text at each level. The first item passes through a function, which takes nothing but a
 * tensor: the pointer that an array becomes does not compile. The array has room for every item
 * the text can hold (no item is shorter than a character); a never-used first item makes the empty
 * list legal. The count is that of the text's top-level commas; items after it that are not null
 * (from a macro that expands to several) count too. */
static inline int tci_list_count(const char *text)
{
    int n = 0, depth = 0;
    bool blank = true;
    for (; *text; text++) {
        if (*text == '"' || *text == '\'') {
            char quote = *text;
            for (text++; *text && *text != quote; text++) {
                text += *text == '\\' && text[1];
            }
            if (!*text) {
                break;
            }
        }
        depth += *text == '(' || *text == '{' || *text == '[';
        depth -= *text == ')' || *text == '}' || *text == ']';
        n += *text == ',' && depth == 0;
        blank = blank && *text == ' ';
    }
    return blank ? 0 : n + 1;
}
static inline tc_tensors tci_tensor_list(const tc_tensor *items, size_t room, const char *text)
{
    tc_tensors r = {items + 1, tci_list_count(text)};
    for (size_t i = (size_t)r.n + 1; i < room; i++) {
        if (items[i].ctx || items[i].id) {
            r.n = (int)i;
        }
    }
    return r;
}
static inline tc_tensor tci_TC_TENSORS_takes_tensors_and_TC_TENSORS_N_an_array(tc_tensor t)
{
    return t;
}
#define TCI_FIRST_TENSOR_0(a, ...)                                                                 \
    tci_TC_TENSORS_takes_tensors_and_TC_TENSORS_N_an_array(a), __VA_ARGS__
#define TCI_FIRST_TENSOR_1(...)
#define TCI_FIRST_TENSOR(...)                                                                      \
    TCI_PP_JOIN(TCI_FIRST_TENSOR_, TCI_PP_EMPTY(TCI_PP_FIRST(__VA_ARGS__, 0)))(__VA_ARGS__, )
#define TC_TENSORS(...)                                                                            \
    (tci_tensor_list(                                                                              \
        (const tc_tensor[sizeof(#__VA_ARGS__) + 1]){{0, 0, 0}, TCI_FIRST_TENSOR(__VA_ARGS__)},     \
        sizeof(#__VA_ARGS__) + 1, #__VA_ARGS__))
#define TC_AXES(...)                                                                               \
    ((tc_axes){(const int[]){0, __VA_ARGS__} + 1,                                                  \
               (int)(sizeof((const int[]){0, __VA_ARGS__}) / sizeof(int)) - 1, false})
#define TC_ALL ((tc_axes){NULL, 0, true})
#ifdef __TINYC__ /* takes no structs from function calls in an array whose size it must count \
                    itself */
#define TC_ATTRS(...)                                                                              \
    ((tc_attrs){(const tc_attr[sizeof(#__VA_ARGS__) + 1]){TCI_NO_ATTR, __VA_ARGS__} + 1,           \
                tci_list_count(#__VA_ARGS__)})
#define TC_BUFS(...)                                                                               \
    ((tc_bufs){(const tc_buf[sizeof(#__VA_ARGS__) + 1]){TCI_NO_BUF, __VA_ARGS__} + 1,              \
               tci_list_count(#__VA_ARGS__)})
#else
#define TC_ATTRS(...)                                                                              \
    ((tc_attrs){(const tc_attr[]){TCI_NO_ATTR, __VA_ARGS__} + 1,                                   \
                (int)(sizeof((const tc_attr[]){TCI_NO_ATTR, __VA_ARGS__}) / sizeof(tc_attr)) - 1})
#define TC_BUFS(...)                                                                               \
    ((tc_bufs){(const tc_buf[]){TCI_NO_BUF, __VA_ARGS__} + 1,                                      \
               (int)(sizeof((const tc_buf[]){TCI_NO_BUF, __VA_ARGS__}) / sizeof(tc_buf)) - 1 +     \
                   0 * TCI_MADE(__VA_ARGS__)})
#endif
/* 0 if the first six items are made by TC_BUF or the like; else this does not compile, and the
 * type's name says why: braces could be left out around a pointer. */
#define TCI_MADE(...)                                                                              \
    TCI_PP_JOIN(TCI_MADE_, TCI_PP_EMPTY(TCI_PP_FIRST(__VA_ARGS__, 0)))                             \
    (__VA_ARGS__, tci_a_buf(), tci_a_buf(), tci_a_buf(), tci_a_buf(), tci_a_buf(), 0)
#define TCI_MADE_1(...) 0
#define TCI_MADE_0(a, b, c, d, e, f, ...)                                                          \
    (TCI_IS_BUF(a) + TCI_IS_BUF(b) + TCI_IS_BUF(c) + TCI_IS_BUF(d) + TCI_IS_BUF(e) + TCI_IS_BUF(f))
#define TCI_IS_BUF(v) _Generic((v), tc_buf: 0, default: tci_no_buf())
typedef struct tci_TC_BUFS_takes_TC_BUF {
    char unused;
} tci_TC_BUFS_takes_TC_BUF;
static inline tci_TC_BUFS_takes_TC_BUF tci_no_buf(void)
{
    tci_TC_BUFS_takes_TC_BUF none = {0};
    return none;
}
static inline tc_buf tci_a_buf(void)
{
    tc_buf b = {0};
    return b;
}
#define TCI_NO_BUF {NULL, 0, 0, false, 0, NULL, NULL}
#define TCI_NO_ATTR {NULL, {{0, 0, 0}, 0, 0, 0.0}, 0, NULL, NULL}
#define TCI_SIZES(...) ((const int64_t[sizeof(#__VA_ARGS__) + 1]){0, __VA_ARGS__} + 1)
#define TCI_SIZES_N(...)                                                                           \
    ((int)(sizeof((const int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t)) - 1 +                      \
     0 * TCI_WHOLE(__VA_ARGS__))
/* 0 if the first six are of integer types: a fraction would be cut off silently. Else this does not
 * compile, and the type's name says why. An empty list is fine; that is what the rest is for. */
#define TCI_WHOLE(...)                                                                             \
    TCI_PP_JOIN(TCI_WHOLE_, TCI_PP_EMPTY(TCI_PP_FIRST(__VA_ARGS__, 0)))                            \
    (__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define TCI_WHOLE_1(...) 0
#define TCI_WHOLE_0(a, b, c, d, e, f, ...)                                                         \
    _Generic(0 * (a) + 0 * (b) + 0 * (c) + 0 * (d) + 0 * (e) + 0 * (f), float: tci_no_size(),      \
        double: tci_no_size(), default: 0)
typedef struct tci_a_size_is_an_integer {
    char unused;
} tci_a_size_is_an_integer;
static inline tci_a_size_is_an_integer tci_no_size(void)
{
    tci_a_size_is_an_integer none = {0};
    return none;
}
#define TCI_PP_FIRST(a, ...) a
#define TCI_PP_THIRD(a, b, c, ...) c
#define TCI_PP_JOIN(a, b) TCI_PP_JOIN_NOW(a, b)
#define TCI_PP_JOIN_NOW(a, b) a##b
#define TCI_PP_COMMA(...) ,
#define TCI_PP_HAS_COMMA(...) TCI_PP_THIRD(__VA_ARGS__, 1, 0, 0)
/* 1 if there is nothing: then only the last of these has a comma. */
#define TCI_PP_EMPTY(a)                                                                            \
    TCI_PP_EMPTY_BY(TCI_PP_HAS_COMMA(a), TCI_PP_HAS_COMMA(TCI_PP_COMMA a),                         \
                    TCI_PP_HAS_COMMA(a()), TCI_PP_HAS_COMMA(TCI_PP_COMMA a()))
#define TCI_PP_EMPTY_BY(a, b, c, d) TCI_PP_EMPTY_JOIN(a, b, c, d)
#define TCI_PP_EMPTY_JOIN(a, b, c, d) TCI_PP_HAS_COMMA(TCI_PP_EMPTY_##a##b##c##d)
#define TCI_PP_EMPTY_0001 ,

/* X(type, dtype): the types that TC_BUF knows. TCI_BUF_AS(type) names its associations in _Generic,
 * for pointers and arrays of arrays, TCI_BUF_ROWS those of the first row of such an array. */
#define TCI_BUF_TYPES(X)                                                                           \
    X(bool, TC_BOOL), X(unsigned char, TC_U8), X(unsigned short, TC_U16), X(unsigned, TC_U32),     \
        X(unsigned long, sizeof(long) == 8 ? TC_U64 : TC_U32), X(unsigned long long, TC_U64),      \
        X(signed char, TC_I8), X(short, TC_I16), X(int, TC_I32),                                   \
        X(long, sizeof(long) == 8 ? TC_I64 : TC_I32), X(long long, TC_I64), X(tc_f16, TC_F16),     \
        X(tc_bf16, TC_BF16), X(float, TC_F32), X(double, TC_F64)
#define TCI_BUF_ROW_TYPE(type, id) type (*)[]: id, const type (*)[]: id
#define TCI_BUF_TYPE(type, id) type *: id, const type *: id, TCI_BUF_ROW_TYPE(type, id)
#define TCI_BUF_ROW_CONST(type, id) const type (*)[]: 1
#define TCI_BUF_CONST(type, id) const type *: 1, TCI_BUF_ROW_CONST(type, id)
/* The first row of an array of arrays of arrays, or something else: what the pointer points to. */
#define TCI_BUF_ROW(pointer)                                                                       \
    (_Generic((pointer), void *: (char *)NULL, const void *: (char *)NULL, int: (char *)NULL,      \
         default: (pointer))[0])
/* The address travels as a number: gcc would warn that memory passed to be written is not set. */
#define TC_BUF(pointer, n)                                                                         \
    (tci_buf((uintptr_t)(const void *)(pointer), (n),                                              \
             _Generic((pointer), TCI_BUF_TYPES(TCI_BUF_TYPE),                                      \
                 default: _Generic(TCI_BUF_ROW(pointer), TCI_BUF_TYPES(TCI_BUF_ROW_TYPE),          \
                     default: -1)),                                                                \
             _Generic((pointer), TCI_BUF_TYPES(TCI_BUF_CONST), TCI_BUF_CONST(char, 0),             \
                 const void *: 1,                                                                  \
                 default: _Generic(TCI_BUF_ROW(pointer), TCI_BUF_TYPES(TCI_BUF_ROW_CONST),         \
                     TCI_BUF_ROW_CONST(char, 0), default: 0))))
static inline tc_buf tci_buf(uintptr_t data, int64_t n, int dtype, int is_const)
{
    tc_buf b = {(void *)data, n, dtype, is_const != 0, 0, NULL, NULL};
    return b;
}

#endif /* C */

/* Calls of f, of one to three operands. */
#define TCI_WITH_1(f, a) f(TC_ARG(a), TC_HERE)
#define TCI_WITH_2(f, a, b) f(TC_ARG(a), TC_ARG(b), TC_HERE)
#define TCI_WITH_3(f, a, b, c) f(TC_ARG(a), TC_ARG(b), TC_ARG(c), TC_HERE)

/* Lists stored in arrays: n items from an address, borrowed for the call. */
static inline tc_tensors tci_tensors_n(const tc_tensor *items, int n)
{
    tc_tensors r = {items, n};
    return r;
}
static inline tc_axes tci_axes_n(const int *items, int n)
{
    tc_axes r = {items, n, false};
    return r;
}
static inline tc_attrs tci_attrs_n(const tc_attr *items, int n)
{
    tc_attrs r = {items, n};
    return r;
}
static inline tc_bufs tci_bufs_n(const tc_buf *items, int n)
{
    tc_bufs r = {items, n};
    return r;
}
#define TC_TENSORS_N(items, n) (tci_tensors_n((items), (n)))
#define TC_AXES_N(items, n) (tci_axes_n((items), (n)))
#define TC_ATTRS_N(items, n) (tci_attrs_n((items), (n)))
#define TC_BUFS_N(items, n) (tci_bufs_n((items), (n)))

/* Parameters of tc_op: a tensor or any C number (also a dtype, true and false); integers; a
 * string. */
static inline tc_attr tci_attr_value(const char *name, tc_arg value)
{
    tc_attr a = {name, value, 0, NULL, NULL};
    return a;
}
static inline tc_attr tci_attr_ints(const char *name, int n, const int64_t *items)
{
    tc_attr a = {name, {{0, 0, 0}, 0, 0, 0.0}, n, items, NULL};
    return a;
}
static inline tc_attr tci_attr_text(const char *name, const char *text)
{
    tc_attr a = {name, {{0, 0, 0}, 0, 0, 0.0}, 0, NULL, text};
    return a;
}
#define TC_ATTR(name, v) (tci_attr_value((name), TC_ARG(v)))
#define TC_ATTR_LIST(name, ...)                                                                    \
    (tci_attr_ints((name), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__)))
#define TC_ATTR_TEXT(name, text) (tci_attr_text((name), (text)))

/* TC_BUF with the size of each axis: TC_BUF_ND(pointer, 3, 4). The sizes must be those that the
 * program expects there. */
static inline tc_buf tci_buf_sized(tc_buf b, int rank, const int64_t *sizes)
{
    b.n = 1;
    b.rank = rank;
    b.sizes = sizes;
    for (int i = 0; i < rank; i++) {
        bool fits = sizes[i] >= 0 && (sizes[i] == 0 || b.n <= INT64_MAX / sizes[i]);
        b.n = fits && b.n >= 0 ? b.n * sizes[i] : -1;
    }
    return b;
}
#define TC_BUF_ND(pointer, ...)                                                                    \
    (tci_buf_sized(TC_BUF((pointer), 0), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__)))
/* Strided memory: TC_BUF_STRIDED(pointer, rank, sizes, strides), where the address is that of
 * element 0 ... 0 and strides count elements, of any sign. Sizes and strides are read during the
 * call. The memory must be host memory; tc_run and tc_run_call copy it to dense memory of the call,
 * or back, so an output may share elements with an input, but not with another output or within
 * itself (TC_ERR_BUFFER; exact except for strides of three axes or more that interleave in so many
 * ways that a bounded search gives up, which are accepted). tc_run_async rejects it. */
static inline tc_buf tci_buf_strided(tc_buf b, int rank, const int64_t *sizes,
                                     const int64_t *strides)
{
    b = tci_buf_sized(b, rank, sizes);
    b.strides = strides;
    return b;
}
#define TC_BUF_STRIDED(pointer, rank, sizes, strides)                                              \
    (tci_buf_strided(TC_BUF((pointer), 0), (rank), (sizes), (strides)))

#define tc_input(ctx, name, ...)                                                                   \
    tc_input_at((ctx), (name), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
