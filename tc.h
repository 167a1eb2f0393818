/* tc.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
#define TCI_BUILD "ca92e0006e31309f"
/* ---- src/tc.h ---- */
/* src/tc.h - root of the joined header: the rooms in data-flow order, and nothing else.
 * tools/amalgamate.c turns this file into the shipped tc.h. */
#ifndef TC_H
#define TC_H

/* ---- src/api/manual.h ---- */
/* ---- src/api/types.h ---- */
/* api/types.h - handles, status codes, dtypes, options. */
#ifndef TC_API_TYPES_H
#define TC_API_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Linkage of the public functions: TC_STATIC makes everything static, TC_API decorates. */
#ifndef TC_API
#ifdef TC_STATIC
#define TC_API static
#else
#define TC_API extern
#endif
#endif

/* Every function that can fail returns one of these, or a poisoned tensor whose tc_error() tells it. */
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
    X(TC_ERR_IO, "file cannot be read or written")                                                 \
    X(TC_ERR_INTERNAL, "broken invariant inside tc: please report")
typedef enum tc_status {
#define X(id, text) id,
    TCI_STATUS_ROWS(X)
#undef X
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
typedef enum tc_dtype {
#define X(id, name, ctype, bytes, kind, compute) id,
    TCI_DTYPE_ROWS(X)
#undef X
        TC_DTYPE_COUNT
} tc_dtype;

/* 16-bit floats as a C program holds them. */
typedef struct tc_f16 { uint16_t bits; } tc_f16;
typedef struct tc_bf16 { uint16_t bits; } tc_bf16;

typedef struct tc_ctx tc_ctx;         /* owns graphs; used by one thread at a time */
typedef struct tc_program tc_program; /* compiled; used by any number of threads; outlives its context */
typedef struct tc_call tc_call;       /* one caller's bindings and workspace */

/* A tensor handle: a small value, copied freely, never freed singly. It names a node of its context's
 * graph and dies with the scope it was made in. A poisoned handle carries the first error. */
typedef struct tc_tensor {
    tc_ctx *ctx;
    uint32_t id, generation;
} tc_tensor;

typedef struct tc_tensors { const tc_tensor *items; int n; } tc_tensors;
typedef struct tc_axes { const int *items; int n; bool all; } tc_axes;

/* Where in the user's program a call stands; every public call takes one through TC_HERE. */
typedef struct tc_site { const char *file; int line; } tc_site;

/* An operand: a tensor, or a C number. Numbers are weak as in NEP 50 (they take the tensor's dtype
 * where its kind allows). kind: 0 tensor, 1 bool, 2 integer, 3 floating. */
typedef struct tc_arg {
    tc_tensor tensor;
    int kind;
    int64_t i;
    double f;
} tc_arg;

/* Memory the user owns, passed to tc_run: n elements of dtype at data, dense and in row-major order. */
typedef struct tc_buf {
    void *data;
    int64_t n;
    int dtype;     /* a tc_dtype, or -1: untyped bytes (from void *), only the size is checked */
    bool is_const; /* made from a pointer to const: refused as an output */
} tc_buf;
typedef struct tc_bufs { const tc_buf *items; int n; } tc_bufs;

/* realloc-like: p NULL and old_bytes 0 to get, new_bytes 0 to free. Returns NULL when out of memory. */
typedef struct tc_allocator {
    void *(*resize)(void *user, void *p, size_t old_bytes, size_t new_bytes);
    void *user;
} tc_allocator;

typedef enum tc_math { TC_MATH_EXACT, TC_MATH_FAST } tc_math;             /* FAST may use approximations */
typedef enum tc_fallback { TC_FALLBACK_ALLOW, TC_FALLBACK_REFUSE } tc_fallback; /* to the interpreter */

/* Options of a context or of one compile. Zero in every field = good defaults; NULL = all defaults.
 * A compile's options override its context's field by field. Strings are copied. */
typedef struct tc_options {
    const char *backend;      /* "interp", "cpu", ... NULL: the best that works here */
    tc_math math;
    tc_fallback fallback;     /* REFUSE: TC_ERR_COMPILER instead of running interpreted */
    int threads;              /* 0: as many as this process may use; 1: no lock, no system call in a run */
    int vector_bits;          /* 0: the machine's; 256, 512; -1: scalar code */
    int spin_us;              /* how long idle workers spin before they sleep; 0: 50; -1: not at all */
    const char *cc;           /* the C compiler; NULL: TC_CC, else cc, gcc, clang, tcc from PATH */
    int cc_timeout_s;         /* 0: 120 */
    const char *cache_dir;    /* NULL: TC_CACHE_DIR, else $XDG_CACHE_HOME/tc, else ~/.cache/tc */
    int64_t cache_bytes;      /* size cap of that directory; 0: 256 MiB */
    bool no_disk_cache;
    bool cache_read_only;     /* a pre-seeded cache: entries are loaded, none written */
    bool verify;              /* check every IR after every stage */
    const char *dump;         /* as TC_DUMP */
    const char *dump_dir;
    const char *trace;        /* as TC_TRACE */
    int64_t memory_limit;     /* bytes a program's arena may take; 0: no limit */
    tc_allocator allocator;   /* context only: graph memory. Zero: libc or TC_MALLOC */
    void (*log)(void *user, const char *topic, const char *text);
    void *log_user;
    /* The host's own job system: must call task(arg, i) for every i in [0, n), in any order and on any
     * threads, and return when all are done. NULL: tc's own pool. */
    void (*parallel_for)(void *user, int n, void (*task)(void *arg, int i), void *arg);
    void *parallel_user;
} tc_options;

typedef struct tc_stats {
    int64_t nodes, scopes;          /* alive in the context's graph */
    int64_t graph_bytes;            /* memory of the graph and its data */
    int64_t compiles;               /* programs made by running the pipeline (process-wide) */
    int64_t compiler_runs;          /* processes started (process-wide) */
    int64_t kernels_built;          /* kernels that such a process compiled */
    int64_t memory_hits, disk_hits, misses;  /* of the program cache */
    int64_t kernel_hits;            /* kernels found in the cache while their program was not */
    int64_t evictions, cache_rejects;        /* entries dropped by the cap; refused as foreign or corrupt */
    int64_t interpreted;            /* programs that fell back to the interpreter */
} tc_stats;

#ifdef __cplusplus
}
#endif
#endif
/* ---- src/api/tensor.h ---- */
/* api/tensor.h - contexts, scopes, leaves, and the macros that turn C values into operands and lists. */
#ifndef TC_API_TENSOR_H
#define TC_API_TENSOR_H


#ifdef __cplusplus
#include <initializer_list>
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

/* ---- context ---- */
/* Makes a context. options NULL: defaults. On failure *ctx is NULL and a status says why. */
TC_API tc_status tc_ctx_make(tc_ctx **ctx, const tc_options *options);
/* Ends it and every tensor of it; programs made from it stay usable. NULL is fine. */
TC_API void tc_ctx_free(tc_ctx *ctx);
/* Joins the workers and unloads cached code that no program uses. For plugins, after the last use. */
TC_API void tc_shutdown(void);
TC_API tc_status tc_stats_get(tc_ctx *ctx, tc_stats *stats);
#define tc_stats(ctx, stats) tc_stats_get((ctx), (stats))
/* Text of a status: "shapes do not fit". Never NULL. */
TC_API const char *tc_status_text(tc_status status);

/* Opens and closes a scope: tensors made inside die at its end. */
TC_API tc_status tc_scope_begin(tc_ctx *ctx);
TC_API tc_status tc_scope_end(tc_ctx *ctx);
/* Evaluates t and moves the value to the scope outside the current one. A value kept at the same place of
 * the program whose computation used the value kept there two keeps ago replaces it, so
 * `for (...) { scope; x = tc_keep(f(x)); }` runs in flat memory; tc_retain(t) exempts a value. */
TC_API tc_tensor tc_keep_at(tc_tensor t, tc_site here);
#define tc_keep(t) tc_keep_at((t), TC_HERE)
TC_API tc_tensor tc_retain(tc_tensor t);

/* ---- leaves ---- */
/* tc_input(ctx, "x", TC_F32, 10, 20): a placeholder, bound by tc_run. No sizes: 0-d. */
TC_API tc_tensor tc_input_at(tc_ctx *ctx, const char *name, int n, const int64_t *dtype_and_sizes, tc_site here);
/* Zero-copy: reads the user's memory at each run; it must outlive the use. strides in elements, NULL =
 * dense row-major; may be 0 or negative (data then points at element 0...0). */
TC_API tc_tensor tc_borrow_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank, const int64_t *sizes,
                              const int64_t *strides, tc_site here);
TC_API tc_tensor tc_copy_in_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank, const int64_t *sizes,
                               const int64_t *strides, tc_site here);
/* tc_borrow(ctx, p, TC_F32, 10, 20), tc_copy_in alike: dtype, then sizes (none: 0-d). */
static inline tc_tensor tci_borrow_list(tc_ctx *ctx, const void *data, int n, const int64_t *list, tc_site here)
{
    return tc_borrow_at(ctx, data, (tc_dtype)list[0], n - 1, list + 1, 0, here);
}
static inline tc_tensor tci_copy_in_list(tc_ctx *ctx, const void *data, int n, const int64_t *list, tc_site here)
{
    return tc_copy_in_at(ctx, data, (tc_dtype)list[0], n - 1, list + 1, 0, here);
}
#define tc_borrow(ctx, data, ...)                                                                  \
    tci_borrow_list((ctx), (data), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
#define tc_copy_in(ctx, data, ...)                                                                 \
    tci_copy_in_list((ctx), (data), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
#define tc_borrow_strided(ctx, data, dtype, rank, sizes, strides)                                  \
    tc_borrow_at((ctx), (data), (dtype), (rank), (sizes), (strides), TC_HERE)
/* Says that the memory of a borrowed tensor changed: what was evaluated from it is stale. */
TC_API tc_status tc_touch(tc_tensor t);

/* ---- queries: answered without evaluating; -1 (or TC_DTYPE_COUNT) on a poisoned or dead handle ---- */
TC_API int tc_rank(tc_tensor t);
TC_API int64_t tc_size(tc_tensor t, int axis);
TC_API tc_dtype tc_dtype_of(tc_tensor t);
TC_API int64_t tc_count(tc_tensor t);
TC_API int64_t tc_nbytes(tc_tensor t);
TC_API tc_status tc_status_of(tc_tensor t);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* TC_NONE stands where an optional tensor is left out. */
static inline tc_tensor tci_none(void)
{
    tc_tensor t = {0, UINT32_MAX, 0};
    return t;
}
#define TC_NONE (tci_none())
#define TC_END INT64_MAX /* an open end of tc_slice */

#ifdef __cplusplus

static inline tc_arg tci_arg(tc_tensor v) { return tci_arg_tensor(v); }
static inline tc_arg tci_arg(bool v) { return tci_arg_bool(v); }
static inline tc_arg tci_arg(signed char v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(short v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(int v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(long v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(long long v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(char v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(unsigned char v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(unsigned short v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(unsigned v) { return tci_arg_int(v); }
static inline tc_arg tci_arg(unsigned long v) { return tci_arg_uint(v); }
static inline tc_arg tci_arg(unsigned long long v) { return tci_arg_uint(v); }
static inline tc_arg tci_arg(float v) { return tci_arg_float(static_cast<double>(v)); }
static inline tc_arg tci_arg(double v) { return tci_arg_float(v); }
#define TC_ARG(v) tci_arg(v)

/* Lists live until the end of the full expression they stand in, as in C. */
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
static inline tc_bufs tci_buf_list(std::initializer_list<tc_buf> l)
{
    tc_bufs r = {l.begin(), static_cast<int>(l.size())};
    return r;
}
/* Sizes of any integer type: a temporary array that lives as long as the full expression. */
template <int N> struct tci_size_array {
    int64_t items[N ? N : 1];
    const int64_t *get() const { return items; }
};
template <class... T> static inline tci_size_array<static_cast<int>(sizeof...(T))> tci_size_list(T... v)
{
    tci_size_array<static_cast<int>(sizeof...(T))> r = {{static_cast<int64_t>(v)...}};
    return r;
}
template <class... T> static inline int tci_size_count(T...) { return static_cast<int>(sizeof...(T)); }
#define TC_TENSORS(...) (tci_tensor_list({__VA_ARGS__}))
#define TC_AXES(...) (tci_axis_list({__VA_ARGS__}))
#define TC_BUFS(...) (tci_buf_list({__VA_ARGS__}))
#define TCI_SIZES(...) (tci_size_list(__VA_ARGS__).get())
#define TCI_SIZES_N(...) (tci_size_count(__VA_ARGS__))
static inline tc_axes tci_axes_all(void)
{
    tc_axes r = {0, 0, true};
    return r;
}
#define TC_ALL (tci_axes_all())

template <class T> struct tci_dtype_of_type { enum { value = -1 }; };
#define TCI_CXX_DTYPE(type, id) template <> struct tci_dtype_of_type<type> { enum { value = id }; };
TCI_CXX_DTYPE(bool, TC_BOOL) TCI_CXX_DTYPE(unsigned char, TC_U8) TCI_CXX_DTYPE(unsigned short, TC_U16)
TCI_CXX_DTYPE(unsigned, TC_U32) TCI_CXX_DTYPE(unsigned long, TC_U64) TCI_CXX_DTYPE(unsigned long long, TC_U64)
TCI_CXX_DTYPE(signed char, TC_I8) TCI_CXX_DTYPE(short, TC_I16) TCI_CXX_DTYPE(int, TC_I32)
TCI_CXX_DTYPE(long, TC_I64) TCI_CXX_DTYPE(long long, TC_I64) TCI_CXX_DTYPE(tc_f16, TC_F16)
TCI_CXX_DTYPE(tc_bf16, TC_BF16) TCI_CXX_DTYPE(float, TC_F32) TCI_CXX_DTYPE(double, TC_F64)
#undef TCI_CXX_DTYPE
template <class T> static inline tc_buf tci_buf(const T *p, int64_t n, bool is_const)
{
    tc_buf b = {const_cast<T *>(p), n, tci_dtype_of_type<T>::value, is_const};
    return b;
}
static inline tc_buf tci_buf(const void *p, int64_t n, bool is_const)
{
    tc_buf b = {const_cast<void *>(p), n, -1, is_const};
    return b;
}
template <class T> static inline tc_buf tci_buf_of(T *p, int64_t n) { return tci_buf(p, n, false); }
template <class T> static inline tc_buf tci_buf_of(const T *p, int64_t n) { return tci_buf(p, n, true); }
#define TC_BUF(pointer, n) (tci_buf_of((pointer), (n)))

#else /* C */

/* The operand is named once under GNU C: _Generic alone would double the text at each nesting level. */
#define TCI_ARG_FN(v)                                                                              \
    _Generic((v), tc_tensor: tci_arg_tensor, bool: tci_arg_bool, float: tci_arg_float,             \
        double: tci_arg_float, unsigned long: tci_arg_uint, unsigned long long: tci_arg_uint,      \
        default: tci_arg_int)
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

/* Lists of tensors name their items once, as a list within a list within a list ... would double its text
 * at each level. The array has room for every item the text can hold (no item is shorter than a
 * character); a never-used first item makes the empty list legal. The count is that of the text's
 * top-level commas; items behind it that are not null (from a macro that stands for several) count too. */
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
#define TC_TENSORS(...)                                                                            \
    (tci_tensor_list((const tc_tensor[sizeof(#__VA_ARGS__) + 1]){{0, 0, 0}, __VA_ARGS__},         \
                     sizeof(#__VA_ARGS__) + 1, #__VA_ARGS__))
#define TC_AXES(...)                                                                               \
    ((tc_axes){(const int[]){0, __VA_ARGS__} + 1,                                                  \
               (int)(sizeof((const int[]){0, __VA_ARGS__}) / sizeof(int)) - 1, false})
#define TC_ALL ((tc_axes){NULL, 0, true})
#ifdef __TINYC__ /* takes no structs from function calls in an array whose size it must count itself */
#define TC_BUFS(...)                                                                               \
    ((tc_bufs){(const tc_buf[sizeof(#__VA_ARGS__) + 1]){{0, 0, 0, 0}, __VA_ARGS__} + 1,           \
               tci_list_count(#__VA_ARGS__)})
#else
#define TC_BUFS(...)                                                                               \
    ((tc_bufs){(const tc_buf[]){{0, 0, 0, 0}, __VA_ARGS__} + 1,                                   \
               (int)(sizeof((const tc_buf[]){{0, 0, 0, 0}, __VA_ARGS__}) / sizeof(tc_buf)) - 1})
#endif
#define TCI_SIZES(...) ((const int64_t[sizeof(#__VA_ARGS__) + 1]){0, __VA_ARGS__} + 1)
#define TCI_SIZES_N(...)                                                                           \
    ((int)(sizeof((const int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t)) - 1)

#define TC_BUF(pointer, n)                                                                         \
    (tci_buf((const void *)(pointer), (n),                                                         \
             _Generic((pointer), bool *: TC_BOOL, const bool *: TC_BOOL, unsigned char *: TC_U8,  \
                 const unsigned char *: TC_U8, unsigned short *: TC_U16,                           \
                 const unsigned short *: TC_U16, unsigned *: TC_U32, const unsigned *: TC_U32,     \
                 unsigned long *: TC_U64, const unsigned long *: TC_U64,                           \
                 unsigned long long *: TC_U64, const unsigned long long *: TC_U64,                 \
                 signed char *: TC_I8, const signed char *: TC_I8, short *: TC_I16,                \
                 const short *: TC_I16, int *: TC_I32, const int *: TC_I32, long *: TC_I64,        \
                 const long *: TC_I64, long long *: TC_I64, const long long *: TC_I64,             \
                 tc_f16 *: TC_F16, const tc_f16 *: TC_F16, tc_bf16 *: TC_BF16,                     \
                 const tc_bf16 *: TC_BF16, float *: TC_F32, const float *: TC_F32,                 \
                 double *: TC_F64, const double *: TC_F64, default: -1),                           \
             _Generic((pointer), const bool *: 1, const unsigned char *: 1,                        \
                 const unsigned short *: 1, const unsigned *: 1, const unsigned long *: 1,         \
                 const unsigned long long *: 1, const signed char *: 1, const short *: 1,          \
                 const int *: 1, const long *: 1, const long long *: 1, const tc_f16 *: 1,         \
                 const tc_bf16 *: 1, const float *: 1, const double *: 1, const void *: 1,         \
                 default: 0)))
static inline tc_buf tci_buf(const void *data, int64_t n, int dtype, int is_const)
{
    union { const void *from; void *to; } p;
    p.from = data;
    tc_buf b = {p.to, n, dtype, is_const != 0};
    return b;
}

#endif /* C */

#define tc_input(ctx, name, ...)                                                                   \
    tc_input_at((ctx), (name), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)

#endif
/* ---- src/api/ops.h ---- */
/* api/ops.h - the operations: every call makes a node of the graph and returns its handle at once.
 *
 * Nothing is computed here: shapes and dtypes are checked, a mistake makes a poisoned handle whose
 * tc_error() says what was given, what was expected and where. Operands come first, attributes after;
 * negative axes count from the end. Where a call takes an operand, a C number will do as well; it is weak
 * (it takes the tensors' dtype where its kind allows). Each macro tc_xxx(...) is the function
 * tc_xxx_at(..., tc_site here) with the caller's file and line. */
#ifndef TC_API_OPS_H
#define TC_API_OPS_H


#ifdef __cplusplus
extern "C" {
#endif

/* ---- src/api/ops.gen.h ---- */
/* api/ops.gen.h - generated from the rows of ops/table.h by tools/amalgamate.c: edit the rows.
 * Included by api/ops.h. */

/* ---- elementwise: operands are tensors or C numbers, and broadcast ---- */
/* -a */
TC_API tc_tensor tc_neg_at(tc_arg a, tc_site here);
#define tc_neg(a) tc_neg_at(TC_ARG(a), TC_HERE)
/* |a| */
TC_API tc_tensor tc_abs_at(tc_arg a, tc_site here);
#define tc_abs(a) tc_abs_at(TC_ARG(a), TC_HERE)
/* e to the a */
TC_API tc_tensor tc_exp_at(tc_arg a, tc_site here);
#define tc_exp(a) tc_exp_at(TC_ARG(a), TC_HERE)
/* natural logarithm */
TC_API tc_tensor tc_log_at(tc_arg a, tc_site here);
#define tc_log(a) tc_log_at(TC_ARG(a), TC_HERE)
/* square root */
TC_API tc_tensor tc_sqrt_at(tc_arg a, tc_site here);
#define tc_sqrt(a) tc_sqrt_at(TC_ARG(a), TC_HERE)
/* 1 / sqrt(a) */
TC_API tc_tensor tc_rsqrt_at(tc_arg a, tc_site here);
#define tc_rsqrt(a) tc_rsqrt_at(TC_ARG(a), TC_HERE)
/* 1 / a */
TC_API tc_tensor tc_reciprocal_at(tc_arg a, tc_site here);
#define tc_reciprocal(a) tc_reciprocal_at(TC_ARG(a), TC_HERE)
/* a * a */
TC_API tc_tensor tc_square_at(tc_arg a, tc_site here);
#define tc_square(a) tc_square_at(TC_ARG(a), TC_HERE)
/* sine of a in radians */
TC_API tc_tensor tc_sin_at(tc_arg a, tc_site here);
#define tc_sin(a) tc_sin_at(TC_ARG(a), TC_HERE)
/* cosine of a in radians */
TC_API tc_tensor tc_cos_at(tc_arg a, tc_site here);
#define tc_cos(a) tc_cos_at(TC_ARG(a), TC_HERE)
/* hyperbolic tangent */
TC_API tc_tensor tc_tanh_at(tc_arg a, tc_site here);
#define tc_tanh(a) tc_tanh_at(TC_ARG(a), TC_HERE)
/* 1 / (1 + exp(-a)) */
TC_API tc_tensor tc_sigmoid_at(tc_arg a, tc_site here);
#define tc_sigmoid(a) tc_sigmoid_at(TC_ARG(a), TC_HERE)
/* a * sigmoid(a) */
TC_API tc_tensor tc_silu_at(tc_arg a, tc_site here);
#define tc_silu(a) tc_silu_at(TC_ARG(a), TC_HERE)
/* error function */
TC_API tc_tensor tc_erf_at(tc_arg a, tc_site here);
#define tc_erf(a) tc_erf_at(TC_ARG(a), TC_HERE)
/* a * (1 + erf(a / sqrt 2)) / 2 */
TC_API tc_tensor tc_gelu_at(tc_arg a, tc_site here);
#define tc_gelu(a) tc_gelu_at(TC_ARG(a), TC_HERE)
/* max(a, 0), NaN stays */
TC_API tc_tensor tc_relu_at(tc_arg a, tc_site here);
#define tc_relu(a) tc_relu_at(TC_ARG(a), TC_HERE)
/* largest integer not above */
TC_API tc_tensor tc_floor_at(tc_arg a, tc_site here);
#define tc_floor(a) tc_floor_at(TC_ARG(a), TC_HERE)
/* smallest integer not below */
TC_API tc_tensor tc_ceil_at(tc_arg a, tc_site here);
#define tc_ceil(a) tc_ceil_at(TC_ARG(a), TC_HERE)
/* towards zero */
TC_API tc_tensor tc_trunc_at(tc_arg a, tc_site here);
#define tc_trunc(a) tc_trunc_at(TC_ARG(a), TC_HERE)
/* nearest integer, ties to even */
TC_API tc_tensor tc_round_at(tc_arg a, tc_site here);
#define tc_round(a) tc_round_at(TC_ARG(a), TC_HERE)
/* a is NaN */
TC_API tc_tensor tc_isnan_at(tc_arg a, tc_site here);
#define tc_isnan(a) tc_isnan_at(TC_ARG(a), TC_HERE)
/* a == 0 */
TC_API tc_tensor tc_logical_not_at(tc_arg a, tc_site here);
#define tc_logical_not(a) tc_logical_not_at(TC_ARG(a), TC_HERE)
/* a + b */
TC_API tc_tensor tc_add_at(tc_arg a, tc_arg b, tc_site here);
#define tc_add(a, b) tc_add_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a - b */
TC_API tc_tensor tc_sub_at(tc_arg a, tc_arg b, tc_site here);
#define tc_sub(a, b) tc_sub_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a * b */
TC_API tc_tensor tc_mul_at(tc_arg a, tc_arg b, tc_site here);
#define tc_mul(a, b) tc_mul_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a / b, always in floats */
TC_API tc_tensor tc_div_at(tc_arg a, tc_arg b, tc_site here);
#define tc_div(a, b) tc_div_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a to the b */
TC_API tc_tensor tc_pow_at(tc_arg a, tc_arg b, tc_site here);
#define tc_pow(a, b) tc_pow_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* the larger; NaN if either is */
TC_API tc_tensor tc_maximum_at(tc_arg a, tc_arg b, tc_site here);
#define tc_maximum(a, b) tc_maximum_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* the smaller; NaN if either is */
TC_API tc_tensor tc_minimum_at(tc_arg a, tc_arg b, tc_site here);
#define tc_minimum(a, b) tc_minimum_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a - b * floor(a / b), sign of b */
TC_API tc_tensor tc_remainder_at(tc_arg a, tc_arg b, tc_site here);
#define tc_remainder(a, b) tc_remainder_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a == b */
TC_API tc_tensor tc_eq_at(tc_arg a, tc_arg b, tc_site here);
#define tc_eq(a, b) tc_eq_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a != b */
TC_API tc_tensor tc_ne_at(tc_arg a, tc_arg b, tc_site here);
#define tc_ne(a, b) tc_ne_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a < b */
TC_API tc_tensor tc_lt_at(tc_arg a, tc_arg b, tc_site here);
#define tc_lt(a, b) tc_lt_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a <= b */
TC_API tc_tensor tc_le_at(tc_arg a, tc_arg b, tc_site here);
#define tc_le(a, b) tc_le_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a > b */
TC_API tc_tensor tc_gt_at(tc_arg a, tc_arg b, tc_site here);
#define tc_gt(a, b) tc_gt_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* a >= b */
TC_API tc_tensor tc_ge_at(tc_arg a, tc_arg b, tc_site here);
#define tc_ge(a, b) tc_ge_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* both nonzero */
TC_API tc_tensor tc_logical_and_at(tc_arg a, tc_arg b, tc_site here);
#define tc_logical_and(a, b) tc_logical_and_at(TC_ARG(a), TC_ARG(b), TC_HERE)
/* either nonzero */
TC_API tc_tensor tc_logical_or_at(tc_arg a, tc_arg b, tc_site here);
#define tc_logical_or(a, b) tc_logical_or_at(TC_ARG(a), TC_ARG(b), TC_HERE)

/* ---- reductions: axes is TC_AXES(...) or TC_ALL; negative axes count from the end ---- */
/* sum over the axes */
TC_API tc_tensor tc_sum_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_sum(x, axes, keepdims) tc_sum_at((x), (axes), (keepdims), TC_HERE)
/* product over the axes */
TC_API tc_tensor tc_prod_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_prod(x, axes, keepdims) tc_prod_at((x), (axes), (keepdims), TC_HERE)
/* largest over the axes; NaN if any is */
TC_API tc_tensor tc_max_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_max(x, axes, keepdims) tc_max_at((x), (axes), (keepdims), TC_HERE)
/* smallest over the axes; NaN if any is */
TC_API tc_tensor tc_min_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_min(x, axes, keepdims) tc_min_at((x), (axes), (keepdims), TC_HERE)
/* any nonzero */
TC_API tc_tensor tc_any_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_any(x, axes, keepdims) tc_any_at((x), (axes), (keepdims), TC_HERE)
/* all nonzero */
TC_API tc_tensor tc_all_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_all(x, axes, keepdims) tc_all_at((x), (axes), (keepdims), TC_HERE)
/* index of the first largest (first NaN wins) */
TC_API tc_tensor tc_argmax_at(tc_tensor x, int axis, bool keepdims, tc_site here);
#define tc_argmax(x, axis, keepdims) tc_argmax_at((x), (axis), (keepdims), TC_HERE)
/* index of the first smallest (first NaN wins) */
TC_API tc_tensor tc_argmin_at(tc_tensor x, int axis, bool keepdims, tc_site here);
#define tc_argmin(x, axis, keepdims) tc_argmin_at((x), (axis), (keepdims), TC_HERE)

/* ---- src/api/ops.h, continued ---- */
/* ---- choice and conversion ---- */
/* c ? a : b, element by element; c counts as true where it is not 0. */
TC_API tc_tensor tc_where_at(tc_arg c, tc_arg a, tc_arg b, tc_site here);
#define tc_where(c, a, b) tc_where_at(TC_ARG(c), TC_ARG(a), TC_ARG(b), TC_HERE)
/* float -> int truncates, saturates, NaN gives 0; int -> int wraps; to bool: not 0; else to nearest even. */
TC_API tc_tensor tc_cast_at(tc_tensor x, tc_dtype dtype, tc_site here);
#define tc_cast(x, dtype) tc_cast_at((x), (dtype), TC_HERE)

/* ---- made from nothing ---- */
/* tc_full(ctx, 0.1, TC_F32, 3, 4): value is a number or a 0-d tensor. */
TC_API tc_tensor tc_full_at(tc_ctx *ctx, tc_arg value, int n, const int64_t *dtype_and_sizes, tc_site here);
#define tc_full(ctx, value, ...)                                                                   \
    tc_full_at((ctx), TC_ARG(value), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* start, start + step, ... before stop. Floats are computed in f64 and rounded once. */
TC_API tc_tensor tc_arange_at(tc_ctx *ctx, tc_arg start, tc_arg stop, tc_arg step, tc_dtype dtype, tc_site here);
#define tc_arange(ctx, start, stop, step, dtype)                                                   \
    tc_arange_at((ctx), TC_ARG(start), TC_ARG(stop), TC_ARG(step), (dtype), TC_HERE)

/* ---- over axes ---- */
/* Sum / count; integers and bool in f32. */
TC_API tc_tensor tc_mean_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_mean(x, axes, keepdims) tc_mean_at((x), (axes), (keepdims), TC_HERE)
/* Running sum along an axis, in order; integers and bool in i64. */
TC_API tc_tensor tc_cumsum_at(tc_tensor x, int axis, tc_site here);
#define tc_cumsum(x, axis) tc_cumsum_at((x), (axis), TC_HERE)
TC_API tc_tensor tc_softmax_at(tc_tensor x, int axis, tc_site here);
#define tc_softmax(x, axis) tc_softmax_at((x), (axis), TC_HERE)
TC_API tc_tensor tc_log_softmax_at(tc_tensor x, int axis, tc_site here);
#define tc_log_softmax(x, axis) tc_log_softmax_at((x), (axis), TC_HERE)
/* (x - mean) / sqrt(variance + eps) * weight + bias; the variance divides by the count. weight and bias have
 * the sizes of the axes, or are TC_NONE. */
TC_API tc_tensor tc_layer_norm_at(tc_tensor x, tc_axes axes, tc_tensor weight, tc_tensor bias, tc_arg eps,
                                  tc_site here);
#define tc_layer_norm(x, axes, weight, bias, eps)                                                  \
    tc_layer_norm_at((x), (axes), (weight), (bias), TC_ARG(eps), TC_HERE)
/* Mean of -log_softmax(logits)[target] over the targets. logits [N, C], [N, C, ...] or [C]; target holds class
 * indices: [N], [N, ...] or 0-d. A class outside 0..C-1 (-C..-1 count from the end) fails the run. */
TC_API tc_tensor tc_cross_entropy_at(tc_tensor logits, tc_tensor target, tc_site here);
#define tc_cross_entropy(logits, target) tc_cross_entropy_at((logits), (target), TC_HERE)

/* ---- movement: no element changes its value, and nothing is copied ---- */
/* Same elements in row-major order under another shape; one size may be -1. */
TC_API tc_tensor tc_reshape_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here);
#define tc_reshape(x, ...) tc_reshape_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Axis i of the result is axis order[i] of x. */
TC_API tc_tensor tc_permute_at(tc_tensor x, int n, const int64_t *order, tc_site here);
#define tc_permute(x, ...) tc_permute_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_transpose_at(tc_tensor x, int axis_a, int axis_b, tc_site here);
#define tc_transpose(x, axis_a, axis_b) tc_transpose_at((x), (axis_a), (axis_b), TC_HERE)
/* Repeats axes of size 1, and adds axes in front; -1 keeps a size. */
TC_API tc_tensor tc_expand_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here);
#define tc_expand(x, ...) tc_expand_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Removes the axis if its size is 1. */
TC_API tc_tensor tc_squeeze_at(tc_tensor x, int axis, tc_site here);
#define tc_squeeze(x, axis) tc_squeeze_at((x), (axis), TC_HERE)
/* Adds an axis of size 1, which becomes axis `axis` of the result. */
TC_API tc_tensor tc_unsqueeze_at(tc_tensor x, int axis, tc_site here);
#define tc_unsqueeze(x, axis) tc_unsqueeze_at((x), (axis), TC_HERE)
/* x[start:stop:step] along an axis by Python's rules: bounds count from the end when negative, and are cut
 * to the axis; TC_END is an open end. With a negative step, TC_END as stop means down to element 0. */
TC_API tc_tensor tc_slice_at(tc_tensor x, int axis, int64_t start, int64_t stop, int64_t step, tc_site here);
#define tc_slice(x, axis, start, stop, step) tc_slice_at((x), (axis), (start), (stop), (step), TC_HERE)
TC_API tc_tensor tc_flip_at(tc_tensor x, int axis, tc_site here);
#define tc_flip(x, axis) tc_flip_at((x), (axis), TC_HERE)
/* So many elements of value before and after along an axis; negative counts cut off. */
TC_API tc_tensor tc_pad_at(tc_tensor x, int axis, int64_t before, int64_t after, tc_arg value, tc_site here);
#define tc_pad(x, axis, before, after, value)                                                      \
    tc_pad_at((x), (axis), (before), (after), TC_ARG(value), TC_HERE)
/* tc_cat(TC_TENSORS(a, b), 0): joined along an axis; the other sizes are equal. */
TC_API tc_tensor tc_cat_at(tc_tensors xs, int axis, tc_site here);
#define tc_cat(xs, axis) tc_cat_at((xs), (axis), TC_HERE)

/* ---- reading at indices: -n..-1 count from the end; outside of that the run fails with TC_ERR_INDEX ---- */
/* result[i, j, ...] = x[i, index[i, j, ...], ...] for axis 1; shape of index. */
TC_API tc_tensor tc_gather_at(tc_tensor x, int axis, tc_tensor index, tc_site here);
#define tc_gather(x, axis, index) tc_gather_at((x), (axis), (index), TC_HERE)
/* Whole slices of x along an axis, chosen by a 1-d index. */
TC_API tc_tensor tc_index_select_at(tc_tensor x, int axis, tc_tensor index, tc_site here);
#define tc_index_select(x, axis, index) tc_index_select_at((x), (axis), (index), TC_HERE)

/* ---- contractions: products accumulate in f32 for f16, bf16 and f32, in f64 for f64; integers wrap ---- */
/* As NumPy: 1-d operands count as a row and a column and lose that axis; leading axes broadcast. */
TC_API tc_tensor tc_matmul_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_matmul(a, b) tc_matmul_at((a), (b), TC_HERE)
/* [n, i, k] times [n, k, j]. */
TC_API tc_tensor tc_bmm_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_bmm(a, b) tc_bmm_at((a), (b), TC_HERE)
/* tc_einsum("bij,bjk->bik", TC_TENSORS(a, b)): one letter an axis, a repeated letter is a diagonal, letters
 * that the result lacks are summed, "..." stands for leading axes; without "->" the result has the letters
 * that stand once, in alphabetical order. Any number of operands, taken from left to right. */
TC_API tc_tensor tc_einsum_at(const char *spec, tc_tensors xs, tc_site here);
#define tc_einsum(spec, xs) tc_einsum_at((spec), (xs), TC_HERE)

/* Zero fields mean 1 (padding: 0). */
typedef struct tc_conv {
    int64_t stride[2], padding[2], dilation[2]; /* rows, columns; padding on both sides */
    int64_t groups;
} tc_conv;
/* x [N, C, H, W] (or [C, H, W]), weight [O, C / groups, kh, kw], bias [O] or TC_NONE; options NULL: defaults.
 * tc_conv2d(x, w, b, &(tc_conv){.stride = {2, 2}, .padding = {1, 1}}) */
TC_API tc_tensor tc_conv2d_at(tc_tensor x, tc_tensor weight, tc_tensor bias, const tc_conv *options, tc_site here);
#define tc_conv2d(x, weight, bias, ...) tc_conv2d_at((x), (weight), (bias), (__VA_ARGS__), TC_HERE)

/* stride 0: the kernel's size; dilation 0: 1. */
typedef struct tc_pool {
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode; /* a last window may hang over the edge */
} tc_pool;
/* x [N, C, H, W] or [C, H, W]; padding never wins and is at most half of the kernel. */
TC_API tc_tensor tc_max_pool2d_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_max_pool2d(x, ...) tc_max_pool2d_at((x), (__VA_ARGS__), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
/* ---- src/api/compile.h ---- */
/* api/compile.h - compile, run, evaluate, look inside. */
#ifndef TC_API_COMPILE_H
#define TC_API_COMPILE_H


#ifdef __cplusplus
extern "C" {
#endif

/* ---- compile: graph -> program; memoized by canonical graph, options and target ---- */
/* Inputs are the tc_input leaves that y needs, in order of their creation. On failure *f is NULL and
 * tc_error(y) tells. The caller frees the program. */
TC_API tc_status tc_compile(tc_tensor y, tc_program **f);
/* Inputs and outputs in the given order; outputs 1..n. options NULL: the context's. */
TC_API tc_status tc_compile_fn(tc_tensors inputs, tc_tensors outputs, const tc_options *options, tc_program **f);
/* Many programs with one compiler run. Each job's *program is set, or NULL with its own status; returns the
 * first failure. */
typedef struct tc_job {
    tc_tensors inputs, outputs;
    tc_program **program;
    tc_status status; /* out */
} tc_job;
TC_API tc_status tc_compile_many(tc_job *jobs, int n, const tc_options *options);
TC_API void tc_program_free(tc_program *f); /* NULL is fine; waits for nobody: no run may be under way */

/* ---- run ---- */
/* Runs with these inputs and outputs, in order. Any thread, any number at once. dtype, count and overlap
 * are checked; no allocation in steady state. On failure nothing was written unless it is TC_ERR_INDEX
 * (an index was outside its axis), and tc_error(f) tells (per thread: of its last failing run). */
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
    _Generic((x), tc_tensor: tc_tensor_error, tc_ctx *: tc_ctx_error, const tc_ctx *: tc_ctx_error, \
        tc_program *: tc_program_error, const tc_program *: tc_program_error,                      \
        tc_call *: tc_call_error, const tc_call *: tc_call_error)(x)
#endif
#endif
/* ---- src/api/backend.h ---- */
/* api/backend.h - the backend seam: what runs generated kernels, as one struct of functions.
 *
 * tc's own "cpu" is the first; tests/null_backend.c is the smallest one and the model to copy. A backend
 * states its target, turns source text into object files, loads them, and runs kernels. "interp" needs
 * none of this and is always there.
 *
 * Rules for every function: `user` is the struct's own pointer; calls come from any thread, several at
 * once; nothing may abort, exit or print; arguments are borrowed for the call. A function that fails says
 * so by its status and tells why through last_error. */
#ifndef TC_API_BACKEND_H
#define TC_API_BACKEND_H


#ifdef __cplusplus
extern "C" {
#endif

/* What generated source may rely on. */
typedef struct tc_backend_target {
    char features[128];  /* canonical text of everything that generated code depends on; part of each cache key */
    int vector_bytes;    /* of the vectors in generated source: 64, 32, 16, or 0: scalar source */
    bool usable;         /* false: cannot work here; the interpreter takes over */
    char why[128];       /* !usable: the reason, for the user */
} tc_backend_target;

/* One request to compile: at most two sources, each to its own object file. */
typedef struct tc_build {
    int n;
    const char *const *sources;     /* source texts, NUL-terminated */
    const char *const *outputs;     /* paths that do not exist yet: where the object files go */
    const char *directory;          /* private, for other files */
    const char *features;           /* of the target, as `target` gave it */
    const char *compiler;           /* tc_options.cc or TC_CC, or NULL */
    int timeout_ms;                 /* for each process started */
    bool keep;                      /* the user wants to debug: keep what helps */
    int processes;                  /* out: processes started, for tc_stats */
    void (*say)(void *say_arg, const char *text);  /* never NULL: command lines and messages, for the user */
    void *say_arg;
} tc_build;

/* Identity of the compiler that made an object, so that a replaced compiler invalidates it. */
typedef struct tc_backend_compiler {
    char path[512];
    int64_t bytes, mtime_ns;
    int vector_bytes;               /* at most the target's: 0 for a compiler without vector types */
} tc_backend_compiler;

/* One launch: tasks [task_begin, task_end) of a kernel (they are independent). */
typedef struct tc_launch {
    void *function;                 /* from `find` */
    void *const *buffers;           /* device memory of each operand */
    const int64_t *literals;        /* host memory: one word each */
    int64_t *fault;                 /* host memory, or NULL: set when an index was outside its axis */
    int n_buffers, n_literals;
    int64_t task_begin, task_end;
} tc_launch;

typedef struct tc_backend {
    const char *name;     /* required: what tc_options.backend says; under 16 characters */
    const char *dialect;  /* required: the language of generated source: "c" */
    void *user;

    /* Required. Fills *target. Called once a process and vector width; does not block. */
    tc_status (*target)(void *user, int vector_bits, tc_backend_target *target);
    /* Required. The compiler that `compile` would use now; `wanted` is tc_options.cc or TC_CC, or NULL.
     * TC_ERR_COMPILER: there is none. */
    tc_status (*compiler)(void *user, const char *wanted, tc_backend_compiler *compiler);
    /* Required. Compiles every source to its object file. May block until the compiler is done. */
    tc_status (*compile)(void *user, tc_build *build);
    /* Required. Loads an object file; *module belongs to the caller until module_free. */
    tc_status (*module_load)(void *user, const char *path, void **module);
    /* Required. The kernel of that name, owned by the module; NULL: not in it. */
    void *(*module_find)(void *user, void *module, const char *symbol);
    /* Required. No kernel of the module is running any more. */
    void (*module_free)(void *user, void *module);

    /* Launch. NULL: `module_find` returns host functions that the caller's threads call themselves, and
     * memory is host memory; then none of what follows is used. Does not block. */
    tc_status (*launch)(void *user, const tc_launch *launch);
    /* Required with launch. Blocks until all that was launched before is done. */
    tc_status (*sync)(void *user);

    /* Device memory. All four or none; none: kernels work on host memory. */
    void *(*alloc)(void *user, int64_t bytes);    /* 64-byte aligned; NULL: out of memory; freed by free */
    void (*free)(void *user, void *memory);
    tc_status (*upload)(void *user, void *to_device, const void *from, int64_t bytes);   /* blocks */
    tc_status (*download)(void *user, void *to, const void *from_device, int64_t bytes); /* blocks */

    /* Optional. Text of this thread's last failure, borrowed until the next. */
    const char *(*last_error)(void *user);
} tc_backend;

/* Makes a backend known under its name; the struct is borrowed for the rest of the process.
 * TC_ERR_ARGUMENT: a required member is missing, or the name is taken. */
TC_API tc_status tc_register_backend(const tc_backend *backend);
/* Names of all backends, "interp" first, into names[0..room); returns how many there are. */
TC_API int tc_list_backends(const char **names, int room);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif

#endif

#if defined(TC_IMPLEMENTATION) && !defined(TC_IMPLEMENTED)
#define TC_IMPLEMENTED
#if !defined(TC_NO_CPU) && defined(__has_include)
#if __has_include("tc_cpu.h")
#define TCI_HAS_CPU
#endif
#endif

/* ---- src/base/protect.h ---- */
/* base/protect.h - opens the implementation half. Closed by base/unprotect.h.
 *
 * In: whatever flags, warnings and feature macros the user's file is compiled with. Out: a region
 * in which floating point is strict, warnings are quiet and POSIX is declared.
 *
 * Bit-identical results need strict floating point whatever the user's flags are. GCC: the region
 * gets its own optimize options (also O2: the interpreter stays quick in a debug build). Clang:
 * pragmas; they cannot undo -ffast-math, so that is refused. Machines that keep excess precision
 * are refused. System headers (base/posix.h) come before the options change, so that their inline
 * functions keep the user's options and may still be inlined into the user's code. */

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#elif defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Waggregate-return"
#pragma GCC diagnostic ignored "-Warith-conversion"
#pragma GCC diagnostic ignored "-Wbad-function-cast"
#pragma GCC diagnostic ignored "-Wc++-compat"
#pragma GCC diagnostic ignored "-Wcast-align"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wclobbered"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wdate-time"
#pragma GCC diagnostic ignored "-Wdeclaration-after-statement"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wfloat-equal"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-truncation"
#pragma GCC diagnostic ignored "-Winline"
#pragma GCC diagnostic ignored "-Wjump-misses-init"
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wnull-dereference"
#pragma GCC diagnostic ignored "-Woverlength-strings"
#pragma GCC diagnostic ignored "-Wpadded"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=const"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=noreturn"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=pure"
#pragma GCC diagnostic ignored "-Wswitch-default"
#pragma GCC diagnostic ignored "-Wswitch-enum"
#pragma GCC diagnostic ignored "-Wtraditional-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wunsuffixed-float-constants"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-macros"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wvla"
#endif

/* ---- src/base/posix.h ---- */
/* base/posix.h - the system headers of the implementation half, and what they may hide.
 *
 * Under -std=c11 the libc declares no POSIX. Asking for it here widens the headers that nobody has
 * included yet (glibc decides once, in features.h, so it is asked again). What headers that the
 * user's file included earlier still hide is declared below: function by function, constant by
 * constant, with the types and values of the Linux libcs. Redeclaring what is visible is legal and
 * changes nothing. */
#ifndef TCI_BASE_POSIX_H
#define TCI_BASE_POSIX_H

#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#if defined(__GLIBC__) && !defined(__USE_MISC)
#undef _FEATURES_H
#include <features.h>
#endif
#endif

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#ifdef __linux__
#include <sys/syscall.h>

extern char *secure_getenv(const char *name);
extern char *realpath(const char *path, char *resolved);
extern int clock_gettime(int clock, struct timespec *now);
extern int dirfd(DIR *dir);
extern int fstatat(int dir, const char *path, struct stat *st, int flags);
extern int kill(pid_t pid, int sig);
extern int lstat(const char *path, struct stat *st);
extern int madvise(void *start, size_t bytes, int advice);
extern int nanosleep(const struct timespec *wanted, struct timespec *left);
extern int pipe2(int ends[2], int flags);
extern int pthread_condattr_setclock(pthread_condattr_t *attributes, int clock);
extern int pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
extern int sigdelset(sigset_t *set, int sig);
extern int sigemptyset(sigset_t *set);
extern int sigfillset(sigset_t *set);
extern int utimensat(int dir, const char *path, const struct timespec times[2], int flags);
extern long syscall(long number, ...);

#ifndef AT_FDCWD
#define AT_FDCWD (-100)
#endif
#ifndef AT_SYMLINK_NOFOLLOW
#define AT_SYMLINK_NOFOLLOW 0x100
#endif
#ifndef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC 1
#endif
#ifndef F_DUPFD_CLOEXEC
#define F_DUPFD_CLOEXEC 1030
#endif
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#ifndef O_CLOEXEC
#define O_CLOEXEC __O_CLOEXEC
#endif
#ifndef O_NOFOLLOW
#define O_NOFOLLOW __O_NOFOLLOW
#endif
#ifndef S_ISVTX
#define S_ISVTX 01000
#endif
#ifndef SIG_SETMASK
#define SIG_BLOCK 0
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
#endif
#ifndef ST_NOEXEC /* glibc hides it behind _GNU_SOURCE */
#define ST_NOEXEC 8
#endif
#ifndef WNOHANG /* a stdlib.h included earlier can keep sys/wait.h from defining these */
#define WNOHANG 1
#endif
#ifndef WIFEXITED
#define WTERMSIG(status) ((status) & 0x7f)
#define WEXITSTATUS(status) (((status) >> 8) & 0xff)
#define WIFEXITED(status) (WTERMSIG(status) == 0)
#define WIFSIGNALED(status) (WTERMSIG(status) != 0 && WTERMSIG(status) != 0x7f)
#endif
#endif

#endif

/* ---- src/base/protect.h, continued ---- */
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "tc: results need FLT_EVAL_METHOD == 0 (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#if defined(__clang__)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "tc: compile the file with TC_IMPLEMENTATION without -ffast-math and -ffinite-math-only"
#endif
#pragma float_control(precise, on, push)
#pragma STDC FP_CONTRACT OFF

#elif defined(__GNUC__)
#pragma GCC push_options
#ifndef TCI_KEEP_OPTIMIZE /* defined by tests that compile much and run little */
#pragma GCC optimize("O2")
#endif
#pragma GCC optimize("fp-contract=off,no-fast-math,no-unsafe-math-optimizations")
#pragma GCC optimize("no-finite-math-only,no-associative-math,no-reciprocal-math,signed-zeros")
#pragma GCC optimize("trapping-math,no-cx-limited-range,wrapv,no-strict-aliasing")
#pragma GCC optimize("no-single-precision-constant")
#endif

/* ---- src/base/alloc.c ---- */
/* base/alloc.c - memory: the heap, the user's allocator, and the scratch arena of one compile.
 *
 * In: sizes. Out: memory, NULL (heap) or an escape by longjmp (scratch) when there is none.
 * The one idea: everything comes through tci_heap_resize (or the user's resize), so TC_MALLOC
 * replaces libc in one place, and a test can make the n-th request fail.
 *
 * An aligned block carries the pointer to free just below its data. A scratch is a list of chunks,
 * newest first, each twice the last up to TCI_ALLOC_CHUNK_MAX; data is zeroed when handed out, not
 * when the chunk is made, so an unused rest costs nothing. */
/* ---- src/base/alloc.h ---- */
/* base/alloc.h - memory: the allocator hook, and the scratch arena of one compile.
 *
 * tci_scratch: a bump arena that never returns NULL. When memory runs out, or an internal invariant
 * fails, it jumps back to the one setjmp of its owner (compile/compile.c), which drops the arena
 * and returns a status. Therefore the rule for every room that takes a tci_scratch: own nothing
 * that is not in the scratch. Rooms that outlive a compile use tci_alloc and check for NULL. */
#ifndef TCI_BASE_ALLOC_H
#define TCI_BASE_ALLOC_H

#include <setjmp.h>

/* ---- src/base/platform.h ---- */
/* base/platform.h - compiler and platform facts every room may use.
 *
 * Linkage: TCI_FN marks a function shared between rooms. Joined into one file (the shipped form and
 * src/tc.h) it is static; with TCI_SEPARATE (make rooms: each .c compiled alone) it is extern.
 * File-local helpers are plain `static` and carry their room's prefix, as names meet once
 * joined. */
#ifndef TCI_BASE_PLATFORM_H
#define TCI_BASE_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef TCI_SEPARATE
#define TCI_FN
#else
#define TCI_FN static
#endif

#if defined(__GNUC__) || defined(__clang__)
#define TCI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TCI_INLINE static inline __attribute__((always_inline)) /* also in a build at -O0 */
#define TCI_LIKELY(x) __builtin_expect(!!(x), 1)
#define TCI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define TCI_PRINTF(fmt, args)
#define TCI_INLINE static inline
#define TCI_LIKELY(x) (x)
#define TCI_UNLIKELY(x) (x)
#endif

/* Hash of all rooms, stamped by tools/amalgamate.c into the shipped header: part of every cache
 * key. */
#ifndef TCI_BUILD
#define TCI_BUILD "rooms"
#endif

#define TCI_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define TCI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TCI_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif

/* ---- src/base/alloc.h, continued ---- */
/* Process-wide memory (code cache, worker pool, programs): TC_MALLOC family or libc. */
TCI_FN void *tci_heap_resize(void *p, size_t new_bytes); /* p NULL: get; 0 bytes: free -> NULL */
TCI_FN void *tci_heap_get(size_t bytes);                 /* zeroed, or NULL */
TCI_FN void tci_heap_free(void *p);
/* Tensor data: aligned to 64 bytes, huge pages advised past 2 MiB; NULL when out of memory. */
TCI_FN void *tci_heap_get_aligned(size_t bytes);
TCI_FN void tci_heap_free_aligned(void *p);

/* A context's memory: the user's tc_allocator, or the heap. */
TCI_FN void *tci_alloc_resize(const tc_allocator *a, void *p, size_t old_bytes, size_t new_bytes);

typedef struct tci_chunk tci_chunk;
typedef struct tci_scratch {
    tci_chunk *chunks;     /* newest first */
    char *next, *end;      /* free part of the newest chunk */
    size_t bytes;          /* given out in all */
    jmp_buf escape;        /* set by the owner before first use */
    tc_status why;         /* status that escape carries */
    char message[256];     /* text for it */
} tci_scratch;

TCI_FN void tci_scratch_init(tci_scratch *s); /* the owner then does: if (setjmp(s->escape)) ... */
TCI_FN void tci_scratch_free(tci_scratch *s);
TCI_FN void *tci_scratch_get(tci_scratch *s, size_t bytes); /* zeroed, 16-aligned, never NULL */
TCI_FN void *tci_scratch_copy(tci_scratch *s, const void *p, size_t bytes);
TCI_FN char *tci_scratch_printf(tci_scratch *s, const char *format, ...) TCI_PRINTF(2, 3);
/* Grow an array kept in scratch: returns room for cap' >= need elements (old contents copied). */
TCI_FN void *tci_scratch_grow(tci_scratch *s, void *p, int n, int *cap, int need,
                              size_t elem_bytes);
/* Leaves the compile with a status and text; never returns. */
TCI_FN void tci_scratch_fail(tci_scratch *s, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);

#define TCI_NEW(s, type) ((type *)tci_scratch_get((s), sizeof(type)))
#define TCI_NEW_ARRAY(s, type, n) ((type *)tci_scratch_get((s), sizeof(type) * (size_t)(n)))
/* Appends to struct { type *items; int n, cap; } kept in scratch: TCI_PUSH(s, list.items, list.n,
 * list.cap, v) */
#define TCI_PUSH(s, items, n, cap, value)                                                          \
    do {                                                                                           \
        if ((n) == (cap)) {                                                                        \
            (items) = tci_scratch_grow((s), (items), (n), &(cap), (n) + 1, sizeof(*(items)));      \
        }                                                                                          \
        (items)[(n)++] = (value);                                                                  \
    } while (0)
/* Our own invariants: becomes TC_ERR_INTERNAL, never a signal. */
#define TCI_ASSERT(s, condition)                                                                   \
    do {                                                                                           \
        if (TCI_UNLIKELY(!(condition))) {                                                          \
            tci_scratch_fail((s), TC_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #condition);   \
        }                                                                                          \
    } while (0)

#endif

/* ---- src/base/alloc.c, continued ---- */
/* TC_MALLOC, TC_REALLOC and TC_FREE come together. */
#ifndef TC_MALLOC
#define TC_MALLOC(bytes) malloc(bytes)
#define TC_REALLOC(p, bytes) realloc((p), (bytes))
#define TC_FREE(p) free(p)
#elif !defined(TC_REALLOC) || !defined(TC_FREE)
#error "tc: define TC_MALLOC, TC_REALLOC and TC_FREE together"
#endif

#define TCI_ALLOC_ALIGN ((size_t)64)
#define TCI_ALLOC_HUGE ((size_t)2 << 20)
#define TCI_ALLOC_CHUNK_MIN ((size_t)32 << 10)
#define TCI_ALLOC_CHUNK_MAX ((size_t)4 << 20)

/* Tests: the request number tci_test_alloc_fail_at (counted from 1 since the count was cleared)
 * finds no memory, and with `sticky` every later one too. live counts the blocks not yet freed. */
#ifdef TCI_TEST_ALLOC
static _Atomic long tci_test_alloc_count, tci_test_alloc_fail_at, tci_test_alloc_live;
static _Atomic bool tci_test_alloc_sticky;

static bool tci_alloc_test_fails(void)
{
    long at = tci_test_alloc_fail_at;
    long n = ++tci_test_alloc_count;
    return at > 0 && (n == at || (n > at && tci_test_alloc_sticky));
}
#define TCI_ALLOC_TEST_FAILS() tci_alloc_test_fails()
#define TCI_ALLOC_TEST_LIVE(delta) (tci_test_alloc_live += (delta))
#else
#define TCI_ALLOC_TEST_FAILS() false
#define TCI_ALLOC_TEST_LIVE(delta) ((void)0)
#endif

TCI_FN void tci_heap_free(void *p)
{
    if (p) {
        TCI_ALLOC_TEST_LIVE(-1);
        TC_FREE(p);
    }
}

TCI_FN void *tci_heap_resize(void *p, size_t new_bytes)
{
    if (!new_bytes) {
        tci_heap_free(p);
        return NULL;
    }
    if (TCI_ALLOC_TEST_FAILS()) {
        return NULL;
    }
    void *fresh = p ? TC_REALLOC(p, new_bytes) : TC_MALLOC(new_bytes);
    if (fresh && !p) {
        TCI_ALLOC_TEST_LIVE(1);
    }
    return fresh;
}

TCI_FN void *tci_heap_get(size_t bytes)
{
    void *p = tci_heap_resize(NULL, bytes ? bytes : 1);
    if (p) {
        memset(p, 0, bytes);
    }
    return p;
}

TCI_FN void *tci_heap_get_aligned(size_t bytes)
{
    size_t room = TCI_ALLOC_ALIGN + sizeof(void *);
    if (bytes > SIZE_MAX - room) {
        return NULL;
    }
    char *base = tci_heap_resize(NULL, bytes + room);
    if (!base) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)base + sizeof(void *);
    uintptr_t skip = (TCI_ALLOC_ALIGN - first % TCI_ALLOC_ALIGN) % TCI_ALLOC_ALIGN;
    char *data = base + sizeof(void *) + skip;
    memcpy(data - sizeof(void *), &base, sizeof(void *));
#ifdef MADV_HUGEPAGE
    if (bytes >= TCI_ALLOC_HUGE) {
        /* Only advice, and only for the huge pages that lie wholly inside. */
        uintptr_t from = ((uintptr_t)data + TCI_ALLOC_HUGE - 1) / TCI_ALLOC_HUGE * TCI_ALLOC_HUGE;
        uintptr_t to = ((uintptr_t)data + bytes) / TCI_ALLOC_HUGE * TCI_ALLOC_HUGE;
        if (to > from) {
            (void)madvise(data + (from - (uintptr_t)data), to - from, MADV_HUGEPAGE);
        }
    }
#endif
    return data;
}

TCI_FN void tci_heap_free_aligned(void *p)
{
    if (p) {
        char *base;
        memcpy(&base, (char *)p - sizeof(void *), sizeof(void *));
        tci_heap_free(base);
    }
}

TCI_FN void *tci_alloc_resize(const tc_allocator *a, void *p, size_t old_bytes, size_t new_bytes)
{
    if (!a || !a->resize) {
        return tci_heap_resize(p, new_bytes);
    }
    if (new_bytes && TCI_ALLOC_TEST_FAILS()) {
        return NULL;
    }
    return a->resize(a->user, p, old_bytes, new_bytes);
}

/* ---- scratch ---- */

struct tci_chunk {
    tci_chunk *older;
    size_t bytes; /* of the data that follows, which is 16-aligned */
};
_Static_assert(sizeof(struct tci_chunk) % 16 == 0, "chunk data must stay 16-aligned");

TCI_FN void tci_scratch_init(tci_scratch *s)
{
    s->chunks = NULL;
    s->next = s->end = NULL;
    s->bytes = 0;
    s->why = TC_OK;
    s->message[0] = 0;
}

TCI_FN void tci_scratch_free(tci_scratch *s)
{
    while (s->chunks) {
        tci_chunk *older = s->chunks->older;
        tci_heap_free(s->chunks);
        s->chunks = older;
    }
    s->next = s->end = NULL;
    s->bytes = 0;
}

TCI_FN void tci_scratch_fail(tci_scratch *s, tc_status why, const char *format, ...)
{
    va_list args;
    s->why = why;
    va_start(args, format);
    vsnprintf(s->message, sizeof(s->message), format, args);
    va_end(args);
    longjmp(s->escape, 1);
}

/* Makes room for `bytes` (a multiple of 16) in a fresh chunk. */
static void tci_scratch_add_chunk(tci_scratch *s, size_t bytes)
{
    size_t size = s->chunks ? s->chunks->bytes * 2 : TCI_ALLOC_CHUNK_MIN;
    size = TCI_MIN(size, TCI_ALLOC_CHUNK_MAX);
    size = TCI_MAX(size, bytes);
    tci_chunk *chunk = tci_heap_resize(NULL, sizeof(tci_chunk) + size);
    if (!chunk) {
        tci_scratch_fail(s, TC_ERR_MEMORY, "out of memory: %zu bytes for a compile", size);
    }
    chunk->older = s->chunks;
    chunk->bytes = size;
    s->chunks = chunk;
    s->next = (char *)(chunk + 1);
    s->end = s->next + size;
}

TCI_FN void *tci_scratch_get(tci_scratch *s, size_t bytes)
{
    if (TCI_UNLIKELY(bytes > SIZE_MAX / 4)) {
        tci_scratch_fail(s, TC_ERR_LIMIT, "a request of %zu bytes is too large", bytes);
    }
    bytes = (bytes + 15) & ~(size_t)15;
    if (TCI_UNLIKELY((size_t)(s->end - s->next) < bytes)) {
        tci_scratch_add_chunk(s, bytes);
    }
    void *p = s->next;
    s->next += bytes;
    s->bytes += bytes;
    if (bytes) {
        memset(p, 0, bytes);
    }
    return p;
}

TCI_FN void *tci_scratch_copy(tci_scratch *s, const void *p, size_t bytes)
{
    void *copy = tci_scratch_get(s, bytes);
    if (bytes) {
        memcpy(copy, p, bytes);
    }
    return copy;
}

TCI_FN char *tci_scratch_printf(tci_scratch *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        tci_scratch_fail(s, TC_ERR_INTERNAL, "text cannot be formatted: %s", format);
    }
    char *text = tci_scratch_get(s, (size_t)n + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

TCI_FN void *tci_scratch_grow(tci_scratch *s, void *p, int n, int *cap, int need, size_t elem_bytes)
{
    if (need <= *cap) {
        return p;
    }
    int grown = *cap > INT32_MAX / 2 ? INT32_MAX : TCI_MAX(*cap * 2, 8);
    grown = TCI_MAX(grown, need);
    if (need < 0 || (size_t)grown > SIZE_MAX / 4 / elem_bytes) {
        tci_scratch_fail(s, TC_ERR_LIMIT, "a list of %d items is too long", grown);
    }
    void *fresh = tci_scratch_get(s, (size_t)grown * elem_bytes);
    if (n > 0) {
        memcpy(fresh, p, (size_t)n * elem_bytes);
    }
    *cap = grown;
    return fresh;
}

#undef TCI_ALLOC_ALIGN
#undef TCI_ALLOC_HUGE
#undef TCI_ALLOC_CHUNK_MIN
#undef TCI_ALLOC_CHUNK_MAX
#undef TCI_ALLOC_TEST_FAILS
#undef TCI_ALLOC_TEST_LIVE
/* ---- src/base/str.c ---- */
/* base/str.c - growing text buffer.
 *
 * In: pieces of text or bytes. Out: one NUL-terminated block, in scratch (escapes when memory runs
 * out) or on the heap (`failed` sticks). Capacity doubles; the NUL is always inside cap. */
/* ---- src/base/str.h ---- */
/* base/str.h - growing text buffer. On out-of-memory `failed` sticks and further writes do nothing;
 * with a scratch given it escapes instead (base/alloc.h). */
#ifndef TCI_BASE_STR_H
#define TCI_BASE_STR_H


typedef struct tci_str {
    char *text;       /* always NUL-terminated once anything was written; NULL before */
    size_t n, cap;    /* bytes, without the NUL */
    tci_scratch *s;   /* NULL: heap, release with tci_str_free */
    bool failed;
} tci_str;

TCI_FN void tci_str_free(tci_str *b);
TCI_FN void tci_str_add(tci_str *b, const char *text);
TCI_FN void tci_str_add_n(tci_str *b, const void *bytes, size_t n);
TCI_FN void tci_str_printf(tci_str *b, const char *format, ...) TCI_PRINTF(2, 3);
TCI_FN const char *tci_str_text(const tci_str *b); /* never NULL */

#endif

/* ---- src/base/str.c, continued ---- */
TCI_FN void tci_str_free(tci_str *b)
{
    if (!b->s) {
        tci_heap_free(b->text);
    }
    b->text = NULL;
    b->n = b->cap = 0;
    b->failed = false;
}

/* Room for `more` bytes and the NUL. False when there is none. */
static bool tci_str_reserve(tci_str *b, size_t more)
{
    if (b->failed) {
        return false;
    }
    if (more < b->cap - b->n) {
        return true;
    }
    if (more > SIZE_MAX / 4 - b->n) {
        b->failed = true;
        return false;
    }
    size_t cap = TCI_MAX(b->cap * 2, b->n + more + 1);
    cap = TCI_MAX(cap, (size_t)64);
    char *text;
    if (b->s) {
        text = tci_scratch_get(b->s, cap);
        if (b->n) {
            memcpy(text, b->text, b->n);
        }
    } else {
        text = tci_heap_resize(b->text, cap);
    }
    if (!text) {
        b->failed = true;
        return false;
    }
    b->text = text;
    b->cap = cap;
    return true;
}

TCI_FN void tci_str_add_n(tci_str *b, const void *bytes, size_t n)
{
    if (!tci_str_reserve(b, n)) {
        return;
    }
    if (n) {
        memcpy(b->text + b->n, bytes, n);
    }
    b->n += n;
    b->text[b->n] = 0;
}

TCI_FN void tci_str_add(tci_str *b, const char *text)
{
    tci_str_add_n(b, text, strlen(text));
}

TCI_FN void tci_str_printf(tci_str *b, const char *format, ...)
{
    if (!tci_str_reserve(b, 64)) {
        return;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(b->text + b->n, b->cap - b->n, format, args);
    va_end(args);
    if (n < 0) {
        b->text[b->n] = 0;
        b->failed = true;
        return;
    }
    if ((size_t)n >= b->cap - b->n) {
        b->text[b->n] = 0;
        if (!tci_str_reserve(b, (size_t)n)) {
            return;
        }
        va_start(args, format);
        vsnprintf(b->text + b->n, b->cap - b->n, format, args);
        va_end(args);
    }
    b->n += (size_t)n;
}

TCI_FN const char *tci_str_text(const tci_str *b)
{
    return b->text ? b->text : "";
}
/* ---- src/base/hash.c ---- */
/* base/hash.c - 128-bit non-cryptographic hash of bytes.
 *
 * In: bytes. Out: two 64-bit words, the same on every machine of one byte order. The one idea: the
 * folded product of two 64-bit words (high half xor low half of 128 bits) mixes every bit of both
 * in one multiply. Both words of the state see all input, 16 bytes a step, through different
 * constants; the two multiplies of a step are independent. The rotated old state is added, so a
 * factor that happens to be zero cannot wipe it out. */
#include <string.h>

/* ---- src/base/hash.h ---- */
/* base/hash.h - 128-bit non-cryptographic hash. Keys are always compared in full as well, so a
 * collision costs time, never a wrong result. */
#ifndef TCI_BASE_HASH_H
#define TCI_BASE_HASH_H


typedef struct tci_hash { uint64_t lo, hi; } tci_hash;

TCI_FN tci_hash tci_hash_bytes(const void *bytes, size_t n);
TCI_FN uint64_t tci_hash_mix(uint64_t seed, uint64_t value); /* one step; for small structs */
TCI_FN void tci_hash_hex(tci_hash h, char out[33]);          /* 32 lower-case digits and NUL */

#endif

/* ---- src/base/hash.c, continued ---- */
/* Odd words with random-looking bits: fractional parts of the square roots of 2, 3, 5 and 7. */
#define TCI_HASH_K0 0x6a09e667f3bcc909u
#define TCI_HASH_K1 0xbb67ae8584caa73bu
#define TCI_HASH_K2 0x3c6ef372fe94f82bu
#define TCI_HASH_K3 0xa54ff53a5f1d36f1u

TCI_INLINE uint64_t tci_hash_fold(uint64_t a, uint64_t b)
{
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 tci_hash_u128;
    tci_hash_u128 product = (tci_hash_u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    uint64_t low = al * bl, mid = ah * bl + (low >> 32), mid2 = al * bh + (mid & 0xffffffffu);
    uint64_t high = ah * bh + (mid >> 32) + (mid2 >> 32);
    return high ^ ((mid2 << 32) | (low & 0xffffffffu));
#endif
}

TCI_INLINE uint64_t tci_hash_rotate(uint64_t v, int by)
{
    return (v << by) | (v >> (64 - by));
}

TCI_INLINE tci_hash tci_hash_step(tci_hash h, uint64_t a, uint64_t b)
{
    tci_hash next;
    next.lo = tci_hash_fold(h.lo ^ a, b ^ TCI_HASH_K0) + tci_hash_rotate(h.lo, 23);
    next.hi = tci_hash_fold(h.hi ^ b, a ^ TCI_HASH_K1) + tci_hash_rotate(h.hi, 41);
    return next;
}

TCI_FN tci_hash tci_hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    tci_hash h = {TCI_HASH_K2 ^ n, TCI_HASH_K3 + n};
    uint64_t w[2];
    size_t left = n;
    for (; left >= 16; left -= 16, p += 16) {
        memcpy(w, p, 16);
        h = tci_hash_step(h, w[0], w[1]);
    }
    if (left) {
        w[0] = w[1] = 0;
        memcpy(w, p, left);
        h = tci_hash_step(h, w[0], w[1]);
    }
    tci_hash r;
    r.lo = tci_hash_fold(h.lo ^ TCI_HASH_K1, tci_hash_rotate(h.hi, 32) ^ TCI_HASH_K2);
    r.hi = tci_hash_fold(h.hi ^ TCI_HASH_K0, tci_hash_rotate(h.lo, 17) ^ TCI_HASH_K3);
    r.lo ^= h.hi;
    r.hi ^= h.lo;
    return r;
}

TCI_FN uint64_t tci_hash_mix(uint64_t seed, uint64_t value)
{
    return tci_hash_fold(seed ^ TCI_HASH_K0, value ^ TCI_HASH_K1) + tci_hash_rotate(seed, 29);
}

TCI_FN void tci_hash_hex(tci_hash h, char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digits[(h.hi >> (60 - 4 * i)) & 15];
        out[16 + i] = digits[(h.lo >> (60 - 4 * i)) & 15];
    }
    out[32] = 0;
}

#undef TCI_HASH_K0
#undef TCI_HASH_K1
#undef TCI_HASH_K2
#undef TCI_HASH_K3
/* ---- src/base/env.c ---- */
/* base/env.c - reads the environment variables of base/env.h.
 *
 * In: the rows. Out: their values, as text, number or list of words. Nothing is kept: a context
 * asks once and copies. In a setuid process every variable reads as unset. */
/* ---- src/base/env.h ---- */
/* base/env.h - every environment variable tc reads is one row. The same settings exist as fields of
 * tc_options; a field that is set wins over the variable. Values are read once a context. */
#ifndef TCI_BASE_ENV_H
#define TCI_BASE_ENV_H


/* X(id, name, doc) */
#define TCI_ENV_ROWS(X)                                                                            \
    X(HELP, "TC_HELP", "1: print this list once to stderr")                                        \
    X(BACKEND, "TC_BACKEND", "interp, cpu, cuda or a registered name")                             \
    X(CC, "TC_CC", "the C compiler: a name on PATH or a path (default cc, gcc, clang, tcc)")      \
    X(CC_TIMEOUT, "TC_CC_TIMEOUT", "seconds before a compiler run is killed (default 120)")        \
    X(CACHE_DIR, "TC_CACHE_DIR", "disk cache (default $XDG_CACHE_HOME/tc or ~/.cache/tc)")         \
    X(CACHE_MB, "TC_CACHE_MB", "disk cache size cap in MiB (default 256)")                         \
    X(NO_CACHE, "TC_NO_CACHE", "1: do not read or write the disk cache")                           \
    X(KEEP, "TC_KEEP", "1: keep generated sources and objects, and compile with -g")               \
    X(THREADS, "TC_THREADS", "worker threads (default: affinity mask and cgroup quota)")           \
    X(VECTOR, "TC_VECTOR", "vector width in bits: 0 (scalar), 256 or 512")                         \
    X(DUMP, "TC_DUMP", "stages to dump: graph,rewrite,plan,kernel,loop,source,dot or all")         \
    X(DUMP_DIR, "TC_DUMP_DIR", "where dumps go (default ./tc_dump)")                               \
    X(LOG, "TC_LOG", "topics logged to stderr: compile,cache,fusion,recompiles,source or all")    \
    X(VERIFY, "TC_VERIFY", "1: verify every IR after every stage")                                 \
    X(TRACE, "TC_TRACE", "file: chrome trace of compiles, runs and kernels")                       \
    X(HOME_CACHE, "XDG_CACHE_HOME", "base of the default cache directory")                         \
    X(HOME, "HOME", "base of the default cache directory when XDG_CACHE_HOME is unset")            \
    X(TMPDIR, "TMPDIR", "where private build directories are made (default /tmp)")

typedef enum tci_env {
#define X(id, name, doc) TCI_ENV_##id,
    TCI_ENV_ROWS(X)
#undef X
        TCI_ENV_COUNT
} tci_env;

TCI_FN const char *tci_env_get(tci_env id);                      /* NULL when unset or empty */
TCI_FN int64_t tci_env_int(tci_env id, int64_t fallback);
TCI_FN bool tci_env_has_word(tci_env id, const char *word); /* in "a,b,c"; "all" has every word */
TCI_FN void tci_env_help_once(void); /* TC_HELP=1: prints the rows to stderr, once a process */

#endif
/* ---- src/base/os.h ---- */
/* base/os.h - the operating system: files, processes, shared objects, clock, locks, threads.
 * Nothing here knows tensors. Every function reports failure by its result; none prints. */
#ifndef TCI_BASE_OS_H
#define TCI_BASE_OS_H


TCI_FN int64_t tci_os_now_ns(void); /* monotonic */

/* Locks: a small static-initialisable mutex and condition (pthread underneath). */
#include <pthread.h>
typedef pthread_mutex_t tci_mutex;
typedef pthread_cond_t tci_cond;
#define TCI_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define TCI_COND_INIT PTHREAD_COND_INITIALIZER

/* Environment variable by name through secure_getenv where there is one; NULL when unset or the
 * process is setuid. base/env.c is the only caller. */
TCI_FN const char *tci_os_getenv(const char *name);
TCI_FN bool tci_os_is_setuid(void);

/* Reads a whole regular file, refusing links (O_NOFOLLOW), owners other than us and root, and
 * group/other-writable files. False: errno-like code in *why. Text is heap memory in out. */
TCI_FN bool tci_os_read_private(const char *path, tci_str *out, int *why);
TCI_FN bool tci_os_read_file(const char *path, tci_str *out, int *why); /* any readable file */
/* Writes bytes to a fresh O_EXCL temporary beside `path` (mode 0600) and renames it into place:
 * readers see all or nothing. Not fsynced: after a crash of the machine the file may be torn
 * (readers check sums). */
TCI_FN bool tci_os_publish(const char *path, const void *bytes, size_t n, int *why);
TCI_FN bool tci_os_rename(const char *from, const char *to);
TCI_FN bool tci_os_remove(const char *path);
/* Makes `path` and its parents (0700); true only if it is then a directory of ours or root's that
 * nobody else can write or swap, and not on a noexec mount. *writable: we may write it. */
TCI_FN bool tci_os_private_dir(const char *path, bool *writable);
/* A new private directory with an unpredictable name under $TMPDIR or /tmp; heap text in out. */
TCI_FN bool tci_os_temp_dir(tci_str *out);
typedef struct tci_os_file { char name[256]; int64_t bytes, mtime_ns; } tci_os_file;
/* Regular files of a directory into a heap array (*files, free with tci_heap_free); -1 on
 * failure. */
TCI_FN int tci_os_list(const char *dir, tci_os_file **files);
TCI_FN bool tci_os_stat(const char *path, int64_t *bytes, int64_t *mtime_ns);
TCI_FN void tci_os_touch(const char *path); /* mtime = now, for LRU; failures are ignored */
TCI_FN bool tci_os_find_program(const char *name, tci_str *path); /* on PATH, or a given path */

/* Runs argv[0] (a path or a name on PATH) without a shell: posix_spawn, signals reset to default,
 * own process group, stdin from /dev/null, stdout and stderr into `log` (cut at log_limit bytes;
 * the rest is read and dropped), descriptors closed, killed as a group after timeout_ms. OK: it
 * ended with code 0; FAILED: any other end (code, 128 + signal) or not started (-1). Tolerates a
 * host that reaps children itself (SIGCHLD ignored): then success is judged by the caller from the
 * output file. */
typedef enum tci_spawn {
    TCI_SPAWN_OK,
    TCI_SPAWN_MISSING,
    TCI_SPAWN_FAILED,
    TCI_SPAWN_TIMEOUT
} tci_spawn;
TCI_FN tci_spawn tci_os_run(const char *const argv[], int64_t timeout_ms, size_t log_limit,
                            tci_str *log, int *exit_code);

/* Shared objects. Handles stay open for the process (symbols stay valid in reports) unless
 * closed. */
TCI_FN void *tci_os_dlopen(const char *path, char why[256]);
TCI_FN void *tci_os_dlsym(void *handle, const char *name);
TCI_FN void tci_os_dlclose(void *handle);

/* Threads the process may use: affinity mask and cgroup CPU quota, at least 1. */
TCI_FN int tci_os_cpu_count(void);

#endif

/* ---- src/base/env.c, continued ---- */
static const char *const tci_env_names[] = {
#define X(id, name, doc) name,
    TCI_ENV_ROWS(X)
#undef X
};

TCI_FN const char *tci_env_get(tci_env id)
{
    const char *value = tci_os_getenv(tci_env_names[id]);
    return value && *value ? value : NULL;
}

TCI_FN int64_t tci_env_int(tci_env id, int64_t fallback)
{
    const char *text = tci_env_get(id);
    if (!text) {
        return fallback;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    return errno || *end ? fallback : (int64_t)value;
}

TCI_FN bool tci_env_has_word(tci_env id, const char *word)
{
    const char *at = tci_env_get(id);
    size_t n = strlen(word);
    while (at) {
        size_t length = strcspn(at, ",");
        if ((length == n && !memcmp(at, word, n)) || (length == 3 && !memcmp(at, "all", 3))) {
            return true;
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

TCI_FN void tci_env_help_once(void)
{
    static atomic_flag printed = ATOMIC_FLAG_INIT;
    if (!tci_env_int(TCI_ENV_HELP, 0) || atomic_flag_test_and_set(&printed)) {
        return;
    }
    fprintf(stderr, "tc: environment variables (fields of tc_options win over them)\n");
#define X(id, name, doc) fprintf(stderr, "  %-16s %s\n", name, doc);
    TCI_ENV_ROWS(X)
#undef X
}
/* ---- src/base/os.c ---- */
/* base/os.c - the operating system: clock, environment, files, shared objects, processor count.
 * Processes are in base/spawn.c.
 *
 * In: paths and names. Out: results and errno codes; nothing is printed and errno means nothing
 * after. The one idea of the file functions: whoever can write where we read could plant code. So a
 * private file or directory is trusted only when its owner is this user or root, when nobody else
 * may write it, and when it is no link; and a file appears under its name only complete (rename of
 * a fresh file). */

#define TCI_OS_OTHERS_WRITE (S_IWGRP | S_IWOTH)

TCI_FN int64_t tci_os_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

TCI_FN bool tci_os_is_setuid(void)
{
    return getuid() != geteuid() || getgid() != getegid();
}

TCI_FN const char *tci_os_getenv(const char *name)
{
#ifdef __linux__
    return secure_getenv(name);
#else
    return tci_os_is_setuid() ? NULL : getenv(name);
#endif
}

/* ---- files ---- */

static bool tci_os_why(int *why, int code)
{
    if (why) {
        *why = code;
    }
    return false;
}

static int64_t tci_os_mtime_ns(const struct stat *st)
{
#if defined(__APPLE__)
    return (int64_t)st->st_mtimespec.tv_sec * 1000000000 + st->st_mtimespec.tv_nsec;
#elif defined(st_mtime)
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
#else
    return (int64_t)st->st_mtime * 1000000000;
#endif
}

static bool tci_os_is_ours(const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == 0;
}

/* Reads what is left of fd and closes it. */
static bool tci_os_read_rest(int fd, tci_str *out, int *why)
{
    char block[16384];
    int code = 0;
    tci_str_add_n(out, "", 0); /* an empty file gives "" */
    for (;;) {
        ssize_t got = read(fd, block, sizeof(block));
        if (got > 0) {
            tci_str_add_n(out, block, (size_t)got);
            code = out->failed ? ENOMEM : 0;
        } else if (got < 0 && errno != EINTR) {
            code = errno;
        }
        if (code || got == 0) {
            break;
        }
    }
    close(fd);
    return code ? tci_os_why(why, code) : true;
}

static bool tci_os_read(const char *path, bool private_file, tci_str *out, int *why)
{
    struct stat st;
    /* O_NONBLOCK: opening a planted FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (private_file ? O_NOFOLLOW : 0));
    if (fd < 0) {
        return tci_os_why(why, errno);
    }
    int code = 0;
    if (fstat(fd, &st)) {
        code = errno;
    } else if (S_ISDIR(st.st_mode)) {
        code = EISDIR;
    } else if (private_file && !S_ISREG(st.st_mode)) {
        code = EINVAL;
    } else if (private_file && (!tci_os_is_ours(&st) || (st.st_mode & TCI_OS_OTHERS_WRITE))) {
        code = EPERM;
    }
    if (code) {
        close(fd);
        return tci_os_why(why, code);
    }
    return tci_os_read_rest(fd, out, why);
}

TCI_FN bool tci_os_read_private(const char *path, tci_str *out, int *why)
{
    return tci_os_read(path, true, out, why);
}

TCI_FN bool tci_os_read_file(const char *path, tci_str *out, int *why)
{
    return tci_os_read(path, false, out, why);
}

/* 64 bits that nobody can guess; when the system has none to give, at least no two are equal. */
static uint64_t tci_os_random(void)
{
    uint64_t bits = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &bits, sizeof(bits)) != (ssize_t)sizeof(bits)) {
            bits = 0;
        }
        close(fd);
    }
    if (!bits) {
        static _Atomic uint64_t count;
        bits = (uint64_t)tci_os_now_ns() ^ (uint64_t)getpid() << 40 ^ ++count << 24;
    }
    return bits;
}

/* No fsync: it takes milliseconds, and the reader's checksum refuses what a crash has torn. */
static int tci_os_write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t put = write(fd, bytes, n);
        if (put < 0 && errno != EINTR) {
            return errno;
        }
        if (put > 0) {
            bytes += put;
            n -= (size_t)put;
        }
    }
    return 0;
}

TCI_FN bool tci_os_publish(const char *path, const void *bytes, size_t n, int *why)
{
    tci_str temporary = {0};
    tci_str_printf(&temporary, "%s.%ld.%016llx.tmp", path, (long)getpid(),
                   (unsigned long long)tci_os_random());
    if (temporary.failed) {
        tci_str_free(&temporary);
        return tci_os_why(why, ENOMEM);
    }
    int code = 0;
    int fd = open(temporary.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        code = errno;
    } else {
        code = tci_os_write_all(fd, bytes, n);
        if (close(fd) && !code) {
            code = errno;
        }
        if (!code && rename(temporary.text, path)) {
            code = errno;
        }
        if (code) {
            unlink(temporary.text);
        }
    }
    tci_str_free(&temporary);
    return code ? tci_os_why(why, code) : true;
}

TCI_FN bool tci_os_rename(const char *from, const char *to)
{
    return rename(from, to) == 0;
}

TCI_FN bool tci_os_remove(const char *path)
{
    return remove(path) == 0;
}

/* A directory on the way to ours: where everybody may write without the sticky bit, everybody could
 * swap ours for another between two looks at it. */
static bool tci_os_parent_is_safe(const char *path)
{
    struct stat st;
    (void)mkdir(path, 0700); /* what matters is what is there then */
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode)
           && (!(st.st_mode & S_IWOTH) || (st.st_mode & S_ISVTX));
}

TCI_FN bool tci_os_private_dir(const char *path, bool *writable)
{
    tci_str part = {0};
    bool good = path[0] != 0;
    for (const char *at = path; good && *at; at++) {
        if (*at == '/' && at != path && at[1]) {
            part.n = 0;
            tci_str_add_n(&part, path, (size_t)(at - path));
            good = !part.failed && tci_os_parent_is_safe(part.text);
        }
    }
    tci_str_free(&part);
    *writable = false;
    struct stat st;
    if (!good) {
        return false;
    }
    (void)mkdir(path, 0700);
    if (stat(path, &st) || !S_ISDIR(st.st_mode) || !tci_os_is_ours(&st)
        || (st.st_mode & TCI_OS_OTHERS_WRITE)) {
        return false;
    }
    struct statvfs fs;
#if defined(ST_NOEXEC)
    const unsigned long noexec = ST_NOEXEC;
#else
    const unsigned long noexec = 0; /* not known here: dlopen will tell */
#endif
    if (statvfs(path, &fs) || (fs.f_flag & noexec)) {
        return false;
    }
    *writable = access(path, W_OK | X_OK) == 0;
    return true;
}

TCI_FN bool tci_os_temp_dir(tci_str *out)
{
    const char *base = tci_os_getenv("TMPDIR");
    for (int attempt = 0; attempt < 16; attempt++) {
        if (!base || !*base) {
            base = "/tmp";
        }
        out->n = 0;
        tci_str_printf(out, "%s/tc-%016llx", base, (unsigned long long)tci_os_random());
        if (out->failed) {
            return false;
        }
        if (mkdir(out->text, 0700) == 0) {
            return true;
        }
        if (errno != EEXIST) {
            if (!strcmp(base, "/tmp")) {
                return false;
            }
            base = NULL; /* $TMPDIR does not work: try /tmp */
        }
    }
    return false;
}

TCI_FN int tci_os_list(const char *dir, tci_os_file **files)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    struct stat st;
    int n = 0, cap = 0;
    *files = NULL;
    if (!d) {
        return -1;
    }
    while ((entry = readdir(d)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length >= sizeof((*files)->name)
            || fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) {
            continue;
        }
        if (n == cap) {
            int grown = cap ? cap * 2 : 32;
            tci_os_file *fresh = tci_heap_resize(*files, (size_t)grown * sizeof(**files));
            if (!fresh) {
                tci_heap_free(*files);
                *files = NULL;
                closedir(d);
                return -1;
            }
            *files = fresh;
            cap = grown;
        }
        tci_os_file *f = &(*files)[n++];
        memcpy(f->name, entry->d_name, length + 1);
        f->bytes = st.st_size;
        f->mtime_ns = tci_os_mtime_ns(&st);
    }
    closedir(d);
    return n;
}

TCI_FN bool tci_os_stat(const char *path, int64_t *bytes, int64_t *mtime_ns)
{
    struct stat st;
    if (stat(path, &st)) {
        return false;
    }
    if (bytes) {
        *bytes = st.st_size;
    }
    if (mtime_ns) {
        *mtime_ns = tci_os_mtime_ns(&st);
    }
    return true;
}

TCI_FN void tci_os_touch(const char *path)
{
    (void)utimensat(AT_FDCWD, path, NULL, 0);
}

static bool tci_os_is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

TCI_FN bool tci_os_find_program(const char *name, tci_str *path)
{
    path->n = 0;
    if (!*name) {
        return false;
    }
    if (strchr(name, '/')) {
        tci_str_add(path, name);
        return !path->failed && tci_os_is_program(path->text);
    }
    const char *at = tci_os_getenv("PATH");
    if (!at) {
        at = "/usr/local/bin:/usr/bin:/bin";
    }
    while (at) {
        size_t length = strcspn(at, ":");
        if (length) { /* an empty entry would mean the current directory: anybody's */
            path->n = 0;
            tci_str_add_n(path, at, length);
            tci_str_printf(path, "/%s", name);
            if (!path->failed && tci_os_is_program(path->text)) {
                return true;
            }
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

/* ---- shared objects ---- */

TCI_FN void *tci_os_dlopen(const char *path, char why[256])
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    why[0] = 0;
    if (!handle) {
        const char *text = dlerror();
        snprintf(why, 256, "%s", text ? text : "unknown dlopen failure");
    }
    return handle;
}

TCI_FN void *tci_os_dlsym(void *handle, const char *name)
{
    return dlsym(handle, name);
}

TCI_FN void tci_os_dlclose(void *handle)
{
    if (handle) {
        dlclose(handle);
    }
}

/* ---- processors ---- */

static int tci_os_affinity_count(void)
{
#if defined(__linux__) && defined(SYS_sched_getaffinity)
    unsigned long mask[1024]; /* 65,536 processors */
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
    int n = 0;
    for (size_t i = 0; bytes > 0 && i < (size_t)bytes / sizeof(mask[0]); i++) {
        for (unsigned long bits = mask[i]; bits; bits &= bits - 1) {
            n++;
        }
    }
    if (n) {
        return n;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static bool tci_os_read_number(const char *path, double *value)
{
    tci_str text = {0};
    char *end = NULL;
    bool good = tci_os_read_file(path, &text, NULL) && text.n;
    if (good) {
        *value = strtod(text.text, &end);
        good = end != text.text;
    }
    tci_str_free(&text);
    return good;
}

/* Processors' worth of time that one cgroup v2 directory grants; 0 when it sets no limit. */
static double tci_os_quota_of(const char *dir)
{
    tci_str path = {0}, text = {0};
    double quota = 0, period = 0;
    tci_str_printf(&path, "%s/cpu.max", dir);
    if (!path.failed && tci_os_read_file(path.text, &text, NULL) && text.n
        && sscanf(text.text, "%lf %lf", &quota, &period) != 2) {
        quota = 0;
    }
    tci_str_free(&path);
    tci_str_free(&text);
    return period > 0 ? quota / period : 0;
}

/* The tightest quota of this process's cgroup and its parents; 0 when there is none. */
static double tci_os_cgroup_quota(void)
{
    double least = 0, quota, period;
    tci_str groups = {0}, dir = {0};
    if (tci_os_read_file("/proc/self/cgroup", &groups, NULL) && groups.n) {
        const char *line = strstr(groups.text, "0::/");
        if (line && (line == groups.text || line[-1] == '\n')) {
            tci_str_add(&dir, "/sys/fs/cgroup");
            size_t root = dir.n;
            tci_str_add_n(&dir, line + 3, strcspn(line + 3, "\n"));
            while (!dir.failed && dir.n >= root) {
                double here = tci_os_quota_of(dir.text);
                least = here > 0 && (least == 0 || here < least) ? here : least;
                do {
                    dir.text[--dir.n] = 0;
                } while (dir.n >= root && dir.text[dir.n - 1] != '/');
            }
        }
    }
    tci_str_free(&groups);
    tci_str_free(&dir);
    if (least == 0 && tci_os_read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota)
        && tci_os_read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period) && quota > 0
        && period > 0) {
        least = quota / period;
    }
    return least;
}

TCI_FN int tci_os_cpu_count(void)
{
    int n = tci_os_affinity_count();
    double quota = tci_os_cgroup_quota();
    if (quota > 0 && quota < n) {
        n = (int)quota; /* rounded down: a thread too many is stopped by the quota in mid-run */
    }
    return TCI_MAX(n, 1);
}

#undef TCI_OS_OTHERS_WRITE
/* ---- src/base/spawn.c ---- */
/* base/spawn.c - runs another program and collects what it prints. See tci_os_run in base/os.h.
 *
 * In: an argument vector, a time limit, a size limit. Out: the text, the exit code, and one of four
 * results: OK (ended with code 0), FAILED (ended otherwise: its code, or 128 + signal; -1 when it
 * could not be started), MISSING, TIMEOUT. The one idea: the child leads its own process group and
 * writes into one pipe. We read until the pipe ends or the child does, whichever is first, so
 * neither a child that closes its output nor a grandchild that keeps it open can hold us; past the
 * time limit the whole group is killed.
 *
 * A host that reaps all children itself (SIGCHLD ignored, or a handler that waits for any) takes
 * the exit code from us. Such a run counts as OK with code 0: the caller looks at the output
 * file. */

#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
#define TCI_SPAWN_CLOSEFROM
extern int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from);
#endif
#endif

enum { TCI_SPAWN_SLICE_MS = 20 }; /* how often a child that prints nothing is looked at */

typedef struct tci_spawn_child {
    pid_t pid;
    int from;         /* our end of the pipe; -1 once it ended */
    bool ended;
    bool code_known;  /* false: the host reaped it */
    int code;
} tci_spawn_child;

/* A close-on-exec pipe whose ends are not 0, 1 or 2, even in a host that closed those. */
static bool tci_spawn_pipe(int ends[2])
{
    int raw[2];
#if defined(__linux__)
    if (pipe2(raw, O_CLOEXEC)) {
        return false;
    }
#else
    if (pipe(raw)) {
        return false;
    }
#endif
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(raw[i], F_DUPFD_CLOEXEC, 3);
    }
    close(raw[0]);
    close(raw[1]);
    if (ends[0] < 0 || ends[1] < 0) {
        close(TCI_MAX(ends[0], ends[1]));
        return false;
    }
    return true;
}

/* Where the libc cannot close "all from 3", closes what is open now. */
static bool tci_spawn_close_rest(posix_spawn_file_actions_t *actions)
{
#ifdef TCI_SPAWN_CLOSEFROM
    return posix_spawn_file_actions_addclosefrom_np(actions, 3) == 0;
#else
    long limit = sysconf(_SC_OPEN_MAX);
    limit = limit < 0 || limit > 4096 ? 4096 : limit;
    for (int fd = 3; fd < (int)limit; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC) && posix_spawn_file_actions_addclose(actions, fd)) {
            return false;
        }
    }
    return true;
#endif
}

static bool tci_spawn_actions(posix_spawn_file_actions_t *actions, int to)
{
    return posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0) == 0
           && posix_spawn_file_actions_adddup2(actions, to, 1) == 0
           && posix_spawn_file_actions_adddup2(actions, to, 2) == 0
           && tci_spawn_close_rest(actions);
}

/* Own process group, no signal blocked, every signal at its default. */
static bool tci_spawn_attributes(posix_spawnattr_t *attributes)
{
    sigset_t all, none;
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    sigemptyset(&none);
    short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP;
    return posix_spawnattr_setsigdefault(attributes, &all) == 0
           && posix_spawnattr_setsigmask(attributes, &none) == 0
           && posix_spawnattr_setpgroup(attributes, 0) == 0
           && posix_spawnattr_setflags(attributes, flags) == 0;
}

static int tci_spawn_start(const char *path, const char *const argv[], int to, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int code = posix_spawn_file_actions_init(&actions);
    if (code) {
        return code;
    }
    code = posix_spawnattr_init(&attributes);
    if (!code) {
        code = ENOMEM;
        if (tci_spawn_actions(&actions, to) && tci_spawn_attributes(&attributes)) {
            code = posix_spawn(pid, path, &actions, &attributes, (char *const *)argv, environ);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Learns whether the child ended; `block` waits for it. */
static void tci_spawn_look(tci_spawn_child *c, bool block)
{
    int status = 0;
    pid_t got;
    if (c->ended) {
        return;
    }
    do {
        got = waitpid(c->pid, &status, block ? 0 : WNOHANG);
    } while (got < 0 && errno == EINTR);
    if (got == c->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
        c->ended = true;
        c->code_known = true;
        c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (got < 0) {
        c->ended = true; /* ECHILD: the host has reaped it */
    }
}

/* One read of the pipe; keeps at most log_limit bytes in all. */
static void tci_spawn_read(tci_spawn_child *c, size_t log_limit, tci_str *log)
{
    char block[8192];
    ssize_t got = read(c->from, block, sizeof(block));
    if (got > 0 && log && log->n < log_limit) {
        tci_str_add_n(log, block, TCI_MIN((size_t)got, log_limit - log->n));
    } else if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
        close(c->from);
        c->from = -1;
    }
}

/* Waits up to wait_ms for output and takes one block of it. False: there was none. */
static bool tci_spawn_poll(tci_spawn_child *c, int wait_ms, size_t log_limit, tci_str *log)
{
    struct pollfd p = {c->from, POLLIN, 0};
    if (c->from < 0 || poll(&p, 1, wait_ms) <= 0) {
        return false;
    }
    tci_spawn_read(c, log_limit, log);
    return true;
}

/* Until the child has ended, or false at the deadline. */
static bool tci_spawn_wait(tci_spawn_child *c, int64_t deadline_ns, size_t log_limit, tci_str *log)
{
    long pause_ns = 50000;
    while (!c->ended) {
        int64_t left_ns = deadline_ns - tci_os_now_ns();
        if (left_ns <= 0) {
            return false;
        }
        if (c->from >= 0) {
            int slice_ms = (int)TCI_MIN(left_ns / 1000000 + 1, (int64_t)TCI_SPAWN_SLICE_MS);
            if (!tci_spawn_poll(c, slice_ms, log_limit, log) || c->from < 0) {
                tci_spawn_look(c, false);
            }
        } else {
            struct timespec pause = {0, pause_ns};
            nanosleep(&pause, NULL);
            pause_ns = TCI_MIN(pause_ns * 2, 10000000L);
            tci_spawn_look(c, false);
        }
    }
    return true;
}

TCI_FN tci_spawn tci_os_run(const char *const argv[], int64_t timeout_ms, size_t log_limit,
                            tci_str *log, int *exit_code)
{
    tci_str path = {0};
    tci_spawn_child c = {-1, -1, false, false, 0};
    int ends[2];
    *exit_code = -1;
    if (!tci_os_find_program(argv[0], &path)) {
        tci_str_free(&path);
        return TCI_SPAWN_MISSING;
    }
    if (!tci_spawn_pipe(ends)) {
        tci_str_free(&path);
        return TCI_SPAWN_FAILED;
    }
    int code = tci_spawn_start(path.text, argv, ends[1], &c.pid);
    tci_str_free(&path);
    close(ends[1]);
    c.from = ends[0];
    if (code) {
        close(c.from);
        return code == ENOENT ? TCI_SPAWN_MISSING : TCI_SPAWN_FAILED;
    }
    bool in_time = tci_spawn_wait(&c, tci_os_now_ns() + timeout_ms * 1000000, log_limit, log);
    if (!in_time) {
        kill(-c.pid, SIGKILL);
        kill(c.pid, SIGKILL); /* in case it left its group */
        tci_spawn_look(&c, true);
    }
    /* What the child wrote before it ended; a grandchild that goes on writing is left behind. */
    int64_t drain_end_ns = tci_os_now_ns() + 1000000000;
    while (tci_spawn_poll(&c, 0, log_limit, log) && tci_os_now_ns() < drain_end_ns) {
    }
    if (c.from >= 0) {
        close(c.from);
    }
    if (!in_time) {
        return TCI_SPAWN_TIMEOUT;
    }
    *exit_code = c.code_known ? c.code : 0;
    return *exit_code ? TCI_SPAWN_FAILED : TCI_SPAWN_OK;
}

#undef TCI_SPAWN_CLOSEFROM

/* ---- src/ops/dtype.c ---- */
/* ops/dtype.c - the element types: facts of each row, promotion, and values of any type.
 *
 * In: dtype rows (api/types.h). Out: tci_dtype_get, tci_dtype_promote, and the moves between
 * storage and tci_value, the 64-bit carrier in which literals, fills and constants travel.
 * The one idea: a tci_value is the exact number, never a rounded one of its own: floats of every
 * width are held as double (exact for f16, bf16, f32), integers as 64 bits. Rounding happens in
 * exactly two places, tci_value_store and tci_value_cast, and always to nearest even with
 * subnormals kept. f16 and bf16 are rounded through f32, as kernels do (CAST to f32, then ROUND16
 * or ROUNDB16).
 * Invariant: a value of an integer dtype narrower than 64 bits is already wrapped to its range. */
#include <string.h>

/* ---- src/ops/dtype.h ---- */
/* ops/dtype.h - element types, one row each. The public enum (api/types.h) is made from these rows. */
#ifndef TCI_OPS_DTYPE_H
#define TCI_OPS_DTYPE_H


typedef enum tci_kind { TCI_KIND_BOOL, TCI_KIND_UINT, TCI_KIND_INT, TCI_KIND_FLOAT } tci_kind;

typedef struct tci_dtype_info {
    const char *name;   /* "f32" */
    const char *ctype;  /* storage type in generated C: "float" */
    uint8_t bytes;
    uint8_t kind;       /* tci_kind */
    uint8_t compute;    /* tc_dtype in which kernels compute: itself, except f16 and bf16 -> f32 */
} tci_dtype_info;

TCI_FN const tci_dtype_info *tci_dtype_get(tc_dtype t);
static inline bool tci_dtype_is_float(tc_dtype t) { return t >= TC_F16 && t <= TC_F64; }
static inline bool tci_dtype_is_int(tc_dtype t) { return t >= TC_U8 && t <= TC_I64; }
static inline bool tci_dtype_is_signed(tc_dtype t) { return t >= TC_I8 && t <= TC_F64; }
static inline bool tci_dtype_is_half(tc_dtype t) { return t == TC_F16 || t == TC_BF16; }
TCI_FN tc_dtype tci_dtype_promote(tc_dtype a, tc_dtype b);      /* tensor with tensor (torch's table) */

/* A value of any dtype in 64 bits, as literal slots, fills and constants carry it: floats as double
 * bits (also f32, f16, bf16), ints as int64 (u64 reinterpreted), bool as 0 or 1. */
typedef union tci_value { int64_t i; uint64_t u; double f; } tci_value;
TCI_FN tci_value tci_value_load(tc_dtype t, const void *p);          /* storage -> value */
TCI_FN void tci_value_store(tc_dtype t, void *p, tci_value v);       /* value -> storage, rounding */
TCI_FN tci_value tci_value_cast(tci_value v, tc_dtype from, tc_dtype to); /* tc's defined corners */
TCI_FN float tci_round_bf16(float x);
TCI_FN float tci_round_f16(float x);
TCI_FN uint16_t tci_f32_to_f16_bits(float x);
TCI_FN float tci_f16_bits_to_f32(uint16_t h);

#endif

/* ---- src/ops/dtype.c, continued ---- */
static const tci_dtype_info tci_dtype_rows[TC_DTYPE_COUNT] = {
#define X(id, name, ctype, bytes, kind, compute) {name, ctype, bytes, TCI_KIND_##kind, compute},
    TCI_DTYPE_ROWS(X)
#undef X
};

TCI_FN const tci_dtype_info *tci_dtype_get(tc_dtype t)
{
    return &tci_dtype_rows[t];
}

/* Torch's table; torch leaves u16, u32 and u64 beside another integer undefined, there NumPy's
 * answer. */
TCI_FN tc_dtype tci_dtype_promote(tc_dtype a, tc_dtype b)
{
    static const tc_dtype signed_of_bytes[9] = {
        [1] = TC_I8, [2] = TC_I16, [4] = TC_I32, [8] = TC_I64};
    if (a > b) { /* ORDER dtype: bool, unsigned, signed, floats, each by width */
        tc_dtype t = a;
        a = b;
        b = t;
    }
    if (a == b || a == TC_BOOL) {
        return b;
    }
    if (tci_dtype_is_float(b)) {
        return a == TC_F16 && b == TC_BF16 ? TC_F32 : b;
    }
    const tci_dtype_info *low = tci_dtype_get(a);
    const tci_dtype_info *high = tci_dtype_get(b);
    if (low->kind == high->kind) {
        return b;
    }
    /* Unsigned with signed: the narrowest signed type that holds both; u64 has none. */
    if (high->bytes > low->bytes) {
        return b;
    }
    return low->bytes == 8 ? TC_F64 : signed_of_bytes[2 * low->bytes];
}

/* ---- 16-bit floats ---- */

static uint32_t tci_dtype_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float tci_dtype_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint16_t tci_dtype_f32_to_bf16_bits(float x)
{
    uint32_t u = tci_dtype_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u); /* quiet: a cut payload must not become infinity */
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

TCI_FN float tci_round_bf16(float x)
{
    return tci_dtype_f32_from_bits((uint32_t)tci_dtype_f32_to_bf16_bits(x) << 16);
}

TCI_FN uint16_t tci_f32_to_f16_bits(float x)
{
    uint32_t u = tci_dtype_f32_bits(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((mag >> 13) & 0x1ffu));
    }
    if (mag >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (mag >= 0x38800000u) { /* 2^-14: normal; exponent bias 127 -> 15 */
        uint32_t h = mag - ((127u - 15u) << 23);
        return (uint16_t)(sign | ((h + 0xfffu + ((h >> 13) & 1u)) >> 13));
    }
    if (mag < 0x33000000u) { /* below 2^-25, half the smallest subnormal */
        return (uint16_t)sign;
    }
    /* Subnormal: the mantissa with its hidden bit, in units of 2^-24. */
    uint32_t exponent = mag >> 23;
    uint32_t mantissa = (mag & 0x7fffffu) | 0x800000u;
    uint32_t shift = 126u - exponent; /* 14 .. 24 */
    uint32_t kept = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1u);
    uint32_t half = 1u << (shift - 1u);
    kept += rest > half || (rest == half && (kept & 1u)) ? 1u : 0u;
    return (uint16_t)(sign | kept);
}

TCI_FN float tci_f16_bits_to_f32(uint16_t h)
{
    uint32_t sign = ((uint32_t)h & 0x8000u) << 16;
    uint32_t mag = (uint32_t)h & 0x7fffu;
    if (mag >= 0x7c00u) {
        return tci_dtype_f32_from_bits(sign | 0x7f800000u | ((mag & 0x3ffu) << 13));
    }
    if (mag >= 0x400u) {
        return tci_dtype_f32_from_bits(sign | ((mag << 13) + ((127u - 15u) << 23)));
    }
    float x = (float)mag * 0x1p-24f;
    return sign ? -x : x;
}

TCI_FN float tci_round_f16(float x)
{
    return tci_f16_bits_to_f32(tci_f32_to_f16_bits(x));
}

/* ---- values ---- */

static int64_t tci_dtype_load_int(tc_dtype t, const void *p)
{
    switch (t) {
    case TC_U8: {
        uint8_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_U16: {
        uint16_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_U32: {
        uint32_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_I8: {
        int8_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_I16: {
        int16_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_I32: {
        int32_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    default: {
        int64_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    }
}

TCI_FN tci_value tci_value_load(tc_dtype t, const void *p)
{
    tci_value v = {0};
    switch (t) {
    case TC_BOOL:
        v.i = *(const unsigned char *)p != 0;
        break;
    case TC_F16: {
        uint16_t bits;
        memcpy(&bits, p, sizeof bits);
        v.f = (double)tci_f16_bits_to_f32(bits);
        break;
    }
    case TC_BF16: {
        uint16_t bits;
        memcpy(&bits, p, sizeof bits);
        v.f = (double)tci_dtype_f32_from_bits((uint32_t)bits << 16);
        break;
    }
    case TC_F32: {
        float x;
        memcpy(&x, p, sizeof x);
        v.f = (double)x;
        break;
    }
    case TC_F64:
        memcpy(&v.f, p, sizeof v.f);
        break;
    default:
        v.i = tci_dtype_load_int(t, p);
        break;
    }
    return v;
}

TCI_FN void tci_value_store(tc_dtype t, void *p, tci_value v)
{
    switch (t) {
    case TC_BOOL:
        *(unsigned char *)p = v.i != 0;
        break;
    case TC_F16: {
        uint16_t bits = tci_f32_to_f16_bits((float)v.f);
        memcpy(p, &bits, sizeof bits);
        break;
    }
    case TC_BF16: {
        uint16_t bits = tci_dtype_f32_to_bf16_bits((float)v.f);
        memcpy(p, &bits, sizeof bits);
        break;
    }
    case TC_F32: {
        float x = (float)v.f;
        memcpy(p, &x, sizeof x);
        break;
    }
    case TC_F64:
        memcpy(p, &v.f, sizeof v.f);
        break;
    default: {
        int bytes = tci_dtype_get(t)->bytes;
        uint8_t x8 = (uint8_t)v.u;
        uint16_t x16 = (uint16_t)v.u;
        uint32_t x32 = (uint32_t)v.u;
        const void *from = bytes == 1 ? (const void *)&x8 : bytes == 2 ? (const void *)&x16
                           : bytes == 4 ? (const void *)&x32 : (const void *)&v.u;
        memcpy(p, from, (size_t)bytes);
        break;
    }
    }
}

/* Truncates, saturates to the range of integer dtype t, NaN gives 0. */
static int64_t tci_dtype_float_to_int(tc_dtype t, double x)
{
    int bits = 8 * tci_dtype_get(t)->bytes;
    if (x != x) {
        return 0;
    }
    if (tci_dtype_is_signed(t)) {
        int64_t max = (int64_t)(UINT64_MAX >> (65 - bits));
        double bound = (double)((uint64_t)1 << (bits - 1)); /* 2^(bits-1), exact */
        if (x >= bound) {
            return max;
        }
        return x <= -bound ? -max - 1 : (int64_t)x;
    }
    uint64_t max = UINT64_MAX >> (64 - bits);
    double bound = 2.0 * (double)((uint64_t)1 << (bits - 1));
    if (x >= bound) {
        return (int64_t)max;
    }
    return x <= -1.0 ? 0 : (int64_t)(uint64_t)x;
}

static double tci_dtype_int_to_float(tc_dtype from, tc_dtype to, tci_value v)
{
    bool is_u64 = from == TC_U64;
    if (to == TC_F64) {
        return is_u64 ? (double)v.u : (double)v.i;
    }
    return is_u64 ? (double)(float)v.u : (double)(float)v.i; /* one rounding: not through double */
}

static double tci_dtype_round_float(tc_dtype to, double x)
{
    switch (to) {
    case TC_F16:
        return (double)tci_round_f16((float)x);
    case TC_BF16:
        return (double)tci_round_bf16((float)x);
    case TC_F32:
        return (double)(float)x;
    default:
        return x;
    }
}

TCI_FN tci_value tci_value_cast(tci_value v, tc_dtype from, tc_dtype to)
{
    tci_value out = {0};
    bool from_float = tci_dtype_is_float(from);
    if (to == TC_BOOL) {
        out.i = from_float ? v.f != 0.0 : v.i != 0;
    } else if (tci_dtype_is_float(to)) {
        double x = from_float ? v.f : tci_dtype_int_to_float(from, to, v);
        out.f = tci_dtype_round_float(to, x);
    } else if (from_float) {
        out.i = tci_dtype_float_to_int(to, v.f);
    } else {
        uint64_t storage = 0;
        tci_value_store(to, &storage, v);
        out.i = tci_dtype_load_int(to, &storage);
    }
    return out;
}
/* ---- src/ops/prim.c ---- */
/* ops/prim.c - the neutral calls: their rows, and the value of each on scalars.
 *
 * In: a prim, the dtype of its operands, operand values. Out: the value of the result. Callers:
 * constant folding, the reference evaluator, tests that judge the dialects.
 * The one idea: every case below is the plain C meaning of one line of ops/prim.h. f32 prims are
 * computed in float, not in double and rounded. Integers are computed in 64 bits and wrapped to
 * their dtype afterwards, which is the same for everything but DIV, REM, SHR and compares; those
 * work on operands that are in range already. MATH prims run their recipe (ops/math.c), one step at
 * a time. */
#include <math.h>
#include <string.h>

/* ---- src/ops/math.h ---- */
/* ops/math.h - recipes of the MATH prims: straight-line programs over BASE prims, one list of
 * instructions per (prim, dtype). The one definition from which the scalar evaluator, the block
 * interpreter and every dialect's function text are made. */
#ifndef TCI_OPS_MATH_H
#define TCI_OPS_MATH_H

/* ---- src/ops/prim.h ---- */
/* ops/prim.h - the neutral calls: the scalar operations of a kernel's DAG.
 *
 * A kernel value has a compute dtype: bool, any integer, f32 or f64 (f16 and bf16 values travel as f32
 * that ROUND has made representable). The interpreter, the scalar C, the vector C and the CUDA
 * dialect each give every row a meaning, and all give the same bits. Two classes:
 *   BASE rows are what a dialect must spell. MATH rows have a recipe (ops/math.h) over BASE rows,
 *   written once; a dialect prints the recipe as a function, the interpreter runs it block-wise.
 *
 * Exact meaning of BASE rows (T = the operands' dtype):
 *   ADD SUB MUL        IEEE for floats, wrapping for integers
 *   DIV                IEEE; integers truncate, x/0 = 0, MIN/-1 = MIN
 *   REM                integers: C's % with x%0 = 0 and x%-1 = 0; floats: exact fmod
 *   FMA(a,b,c)         floats: one rounding
 *   NEG ABS SQRT       NEG flips the sign bit; ABS clears it; integers wrap; SQRT correctly rounded
 *   PMIN(a,b)          a < b ? a : b   (one instruction; b when either is NaN)
 *   PMAX(a,b)          a > b ? a : b
 *   FLOOR CEIL TRUNC RINT   to an integral float; RINT ties to even
 *   EQ LT LE           -> bool; false when either is NaN
 *   AND OR XOR NOT     bitwise on integers, logical on bool
 *   SHL SHR            by b: b >= width (as unsigned) gives 0, for signed SHR the sign
 *   SELECT(m,a,b)      m ? a : b, m bool
 *   CAST               dtype to dtype with tc's corners: float -> int truncates, saturates, NaN -> 0;
 *                      int -> int wraps; anything -> bool is != 0; bool -> x is 0 or 1; to nearest even
 *   BITS               reinterpret between float and the integer of the same width
 *   ROUND16 ROUNDB16   f32 -> the nearest f32 that f16 / bf16 holds, ties to even, subnormals kept
 *   TOINT              float -> signed int of the same width for values known in range (truncates)
 *   LANE1(a[,b],m)     calls a scalar helper function (imm = tci_helper id, ops/math.h) for each lane whose
 *                      mask m (bool, always the LAST operand) is true; other lanes give 0. n_args = the
 *                      helper's arity + 1. Lazy: when no lane is active the call costs one test, which is
 *                      how slow paths are written: SELECT(big, LANE1(x, big), fast) */
#ifndef TCI_OPS_PRIM_H
#define TCI_OPS_PRIM_H


/* X(ID, name, arity, result: S same as operands, B bool, O given separately, cost in flops) */
#define TCI_BASE_PRIMS(X)                                                                          \
    X(ADD, "add", 2, S, 1) X(SUB, "sub", 2, S, 1) X(MUL, "mul", 2, S, 1) X(DIV, "div", 2, S, 4)     \
    X(REM, "rem", 2, S, 20) X(FMA, "fma", 3, S, 2) X(NEG, "neg", 1, S, 1) X(ABS, "abs", 1, S, 1)    \
    X(SQRT, "sqrt", 1, S, 4) X(PMIN, "pmin", 2, S, 1) X(PMAX, "pmax", 2, S, 1)                      \
    X(FLOOR, "floor", 1, S, 1) X(CEIL, "ceil", 1, S, 1) X(TRUNC, "trunc", 1, S, 1)                  \
    X(RINT, "rint", 1, S, 1) X(EQ, "eq", 2, B, 1) X(LT, "lt", 2, B, 1) X(LE, "le", 2, B, 1)         \
    X(AND, "and", 2, S, 1) X(OR, "or", 2, S, 1) X(XOR, "xor", 2, S, 1) X(NOT, "not", 1, S, 1)       \
    X(SHL, "shl", 2, S, 1) X(SHR, "shr", 2, S, 1) X(SELECT, "select", 3, S, 1)                      \
    X(CAST, "cast", 1, O, 1) X(BITS, "bits", 1, O, 0) X(ROUND16, "round16", 1, S, 4)                \
    X(ROUNDB16, "roundb16", 1, S, 3) X(TOINT, "toint", 1, O, 1) X(LANE1, "lane1", 2, S, 40)
/* MATH rows: f32 and f64 only (integer POW is LANE1 of TCI_H_POW_I64 / _U64). Same columns. Bounds in
 * ulp: tests/unit/test_math.c. */
#define TCI_MATH_PRIMS(X)                                                                          \
    X(EXP, "exp", 1, S, 12) X(LOG, "log", 1, S, 16) X(SIN, "sin", 1, S, 14) X(COS, "cos", 1, S, 14) \
    X(TANH, "tanh", 1, S, 20) X(ERF, "erf", 1, S, 24) X(SIGMOID, "sigmoid", 1, S, 18)               \
    X(GELU, "gelu", 1, S, 30) X(POW, "pow", 2, S, 80)

typedef enum tci_prim {
#define X(id, name, arity, result, cost) TCI_P_##id,
    TCI_BASE_PRIMS(X) TCI_P_BASE_COUNT,
    TCI_P_MATH_FIRST = TCI_P_BASE_COUNT - 1,
    TCI_MATH_PRIMS(X)
#undef X
        TCI_P_COUNT
} tci_prim;

typedef struct tci_prim_info {
    const char *name;
    uint8_t arity;
    char result;   /* 'S', 'B' or 'O' */
    uint8_t cost;  /* flops, for the cost model */
} tci_prim_info;
TCI_FN const tci_prim_info *tci_prim_get(tci_prim p);
static inline bool tci_prim_is_math(tci_prim p) { return p > TCI_P_MATH_FIRST; }

#endif

/* ---- src/ops/math.h, continued ---- */
enum { TCI_RECIPE_MAX = 80 }; /* longest recipe, in instructions */
enum { TCI_RECIPE_ARG = 0, TCI_RECIPE_CONST = 1, TCI_RECIPE_PRIM = 2 };

/* One value of a recipe; operands are indices of earlier values. Invariant: args[i] < own index. */
typedef struct tci_step_inst {
    uint8_t kind;      /* TCI_RECIPE_* */
    uint8_t prim;      /* BASE prim when kind is PRIM */
    uint8_t dtype;     /* compute dtype of the value */
    uint8_t n_args;
    int16_t args[3];
    int16_t imm;       /* ARG: which argument; LANE1: tci_helper_id */
    tci_value value;   /* CONST */
} tci_step_inst;

typedef struct tci_recipe {
    const tci_step_inst *insts; /* the last one is the result */
    int n;
} tci_recipe;

/* Recipe of a MATH prim for f32 or f64. Built once at first use, thread-safe, process lifetime. */
TCI_FN const tci_recipe *tci_math_recipe(tci_prim p, tc_dtype t);

/* Scalar helpers (slow paths, f64 functions): C text that is both compiled here and printed into
 * generated code. A text is ONE static function `T name(T a)` or `T name(T a, T b)` over + - * / fma,
 * integer operations, local unions and static const arrays; it starts with "static ", so attributes may
 * be put before it. It may call the helpers named in needs[]: their texts (and what those need) come
 * first, each once. dtype TC_U64 helpers take long long in the text (same bits). */
typedef enum tci_helper_id {
    TCI_H_NONE, /* 0: no helper */
    TCI_H_TRIG_SLOW_F32, TCI_H_SIN_SLOW_F32, TCI_H_COS_SLOW_F32, TCI_H_POW_F32,
    TCI_H_EXP_CORE_F64, TCI_H_EXP_F64, TCI_H_LOG_F64, TCI_H_TRIG_F64, TCI_H_SIN_F64,
    TCI_H_COS_F64, TCI_H_TANH_F64, TCI_H_TAIL_F64, TCI_H_ERF_F64, TCI_H_SIGMOID_F64, TCI_H_GELU_F64, TCI_H_POW_F64,
    TCI_H_POW_I64, TCI_H_POW_U64,
    TCI_H_COUNT
} tci_helper_id;

typedef struct tci_helper {
    const char *name;      /* as in its text, e.g. "tc_h_sin_slow_f32" */
    uint8_t dtype, arity;  /* arity 0: only called by other helpers, never by LANE1 */
    uint8_t needs[2];      /* tci_helper_id, TCI_H_NONE when unused */
    const char *text;      /* calls fma as TC_FMA_F64(a, b, c), a macro that the surrounding text defines */
    float (*f32_1)(float); /* the compiled form: the one that fits dtype and arity, others NULL */
    float (*f32_2)(float, float);
    double (*f64_1)(double);
    double (*f64_2)(double, double);
    long long (*i64_2)(long long, long long); /* also TC_U64, reinterpreted */
} tci_helper;
TCI_FN const tci_helper *tci_helper_get(int id);
TCI_FN int tci_helper_count(void);

/* Value of any prim (BASE or MATH) on scalars: constant folding, the reference and the judge of
 * dialects. dtype = operands' compute dtype (for SELECT: of a and b), to = result dtype (CAST, BITS,
 * TOINT); imm as in tci_step_inst. */
TCI_FN tci_value tci_prim_eval(tci_prim p, tc_dtype dtype, tc_dtype to, int imm, const tci_value *args);

#endif

/* ---- src/ops/prim.c, continued ---- */
static const tci_prim_info tci_prim_rows[TCI_P_COUNT] = {
#define X(id, name, arity, result, cost) {name, arity, #result[0], cost},
    TCI_BASE_PRIMS(X) TCI_MATH_PRIMS(X)
#undef X
};

TCI_FN const tci_prim_info *tci_prim_get(tci_prim p)
{
    return &tci_prim_rows[p];
}

static tci_value tci_prim_bool(bool b)
{
    tci_value v = {0};
    v.i = b;
    return v;
}

static tci_value tci_prim_f32(float x)
{
    tci_value v = {0};
    v.f = (double)x;
    return v;
}

static tci_value tci_prim_f64(double x)
{
    tci_value v = {0};
    v.f = x;
    return v;
}

/* NEG and ABS of floats work on the sign bit alone; a float and the double that carries it share
 * it. */
static tci_value tci_prim_sign(tci_prim p, tci_value v)
{
    const uint64_t sign = (uint64_t)1 << 63;
    v.u = p == TCI_P_NEG ? v.u ^ sign : v.u & ~sign;
    return v;
}

static tci_value tci_prim_eval_f32(tci_prim p, const tci_value *args)
{
    float a = (float)args[0].f;
    float b = tci_prim_get(p)->arity > 1 ? (float)args[1].f : 0.0f;
    switch (p) {
    case TCI_P_ADD:
        return tci_prim_f32(a + b);
    case TCI_P_SUB:
        return tci_prim_f32(a - b);
    case TCI_P_MUL:
        return tci_prim_f32(a * b);
    case TCI_P_DIV:
        return tci_prim_f32(a / b);
    case TCI_P_REM:
        return tci_prim_f32(fmodf(a, b));
    case TCI_P_FMA:
        return tci_prim_f32(fmaf(a, b, (float)args[2].f));
    case TCI_P_SQRT:
        return tci_prim_f32(sqrtf(a));
    case TCI_P_PMIN:
        return tci_prim_f32(a < b ? a : b);
    case TCI_P_PMAX:
        return tci_prim_f32(a > b ? a : b);
    case TCI_P_FLOOR:
        return tci_prim_f32(floorf(a));
    case TCI_P_CEIL:
        return tci_prim_f32(ceilf(a));
    case TCI_P_TRUNC:
        return tci_prim_f32(truncf(a));
    case TCI_P_RINT:
        return tci_prim_f32(rintf(a));
    case TCI_P_EQ:
        return tci_prim_bool(a == b);
    case TCI_P_LT:
        return tci_prim_bool(a < b);
    case TCI_P_LE:
        return tci_prim_bool(a <= b);
    case TCI_P_ROUND16:
        return tci_prim_f32(tci_round_f16(a));
    case TCI_P_ROUNDB16:
        return tci_prim_f32(tci_round_bf16(a));
    default:
        return args[0];
    }
}

static tci_value tci_prim_eval_f64(tci_prim p, const tci_value *args)
{
    double a = args[0].f;
    double b = tci_prim_get(p)->arity > 1 ? args[1].f : 0.0;
    switch (p) {
    case TCI_P_ADD:
        return tci_prim_f64(a + b);
    case TCI_P_SUB:
        return tci_prim_f64(a - b);
    case TCI_P_MUL:
        return tci_prim_f64(a * b);
    case TCI_P_DIV:
        return tci_prim_f64(a / b);
    case TCI_P_REM:
        return tci_prim_f64(fmod(a, b));
    case TCI_P_FMA:
        return tci_prim_f64(fma(a, b, args[2].f));
    case TCI_P_SQRT:
        return tci_prim_f64(sqrt(a));
    case TCI_P_PMIN:
        return tci_prim_f64(a < b ? a : b);
    case TCI_P_PMAX:
        return tci_prim_f64(a > b ? a : b);
    case TCI_P_FLOOR:
        return tci_prim_f64(floor(a));
    case TCI_P_CEIL:
        return tci_prim_f64(ceil(a));
    case TCI_P_TRUNC:
        return tci_prim_f64(trunc(a));
    case TCI_P_RINT:
        return tci_prim_f64(rint(a));
    case TCI_P_EQ:
        return tci_prim_bool(a == b);
    case TCI_P_LT:
        return tci_prim_bool(a < b);
    case TCI_P_LE:
        return tci_prim_bool(a <= b);
    default:
        return args[0];
    }
}

/* DIV (or REM) with x / 0 = x % 0 = 0 and MIN / -1 = MIN. Operands are in the range of t. */
static uint64_t tci_prim_divide(tc_dtype t, bool want_rem, tci_value a, tci_value b)
{
    if (b.u == 0) {
        return 0;
    }
    if (!tci_dtype_is_signed(t)) {
        return want_rem ? a.u % b.u : a.u / b.u;
    }
    if (b.i == -1) {
        return want_rem ? 0 : 0 - a.u;
    }
    return (uint64_t)(want_rem ? a.i % b.i : a.i / b.i);
}

/* SHL or SHR by b as an unsigned number; b >= width gives 0, for signed SHR the sign. */
static uint64_t tci_prim_shift(tc_dtype t, bool left, tci_value a, tci_value b)
{
    uint64_t width = 8u * (uint64_t)tci_dtype_get(t)->bytes;
    bool too_far = b.u >= width; /* a negative b of a signed type is huge in 64 bits too */
    if (left) {
        return too_far ? 0 : a.u << b.u;
    }
    if (!tci_dtype_is_signed(t)) {
        return too_far ? 0 : a.u >> b.u;
    }
    uint64_t n = too_far ? 63 : b.u;
    return a.i < 0 ? ~(~a.u >> n) : a.u >> n;
}

static bool tci_prim_less(tc_dtype t, tci_value a, tci_value b)
{
    return tci_dtype_is_signed(t) ? a.i < b.i : a.u < b.u;
}

static uint64_t tci_prim_int_bits(tci_prim p, tc_dtype t, tci_value a, tci_value b, tci_value c)
{
    switch (p) {
    case TCI_P_ADD:
        return a.u + b.u;
    case TCI_P_SUB:
        return a.u - b.u;
    case TCI_P_MUL:
        return a.u * b.u;
    case TCI_P_FMA:
        return a.u * b.u + c.u;
    case TCI_P_DIV:
        return tci_prim_divide(t, false, a, b);
    case TCI_P_REM:
        return tci_prim_divide(t, true, a, b);
    case TCI_P_NEG:
        return 0 - a.u;
    case TCI_P_ABS:
        return tci_dtype_is_signed(t) && a.i < 0 ? 0 - a.u : a.u;
    case TCI_P_PMIN:
        return tci_prim_less(t, a, b) ? a.u : b.u;
    case TCI_P_PMAX:
        return tci_prim_less(t, b, a) ? a.u : b.u;
    case TCI_P_AND:
        return a.u & b.u;
    case TCI_P_OR:
        return a.u | b.u;
    case TCI_P_XOR:
        return a.u ^ b.u;
    case TCI_P_NOT:
        return t == TC_BOOL ? !a.u : ~a.u;
    case TCI_P_SHL:
        return tci_prim_shift(t, true, a, b);
    case TCI_P_SHR:
        return tci_prim_shift(t, false, a, b);
    default:
        return a.u; /* FLOOR, CEIL, TRUNC, RINT: already integral */
    }
}

static tci_value tci_prim_eval_int(tci_prim p, tc_dtype t, const tci_value *args)
{
    int arity = tci_prim_get(p)->arity;
    tci_value zero = {0};
    tci_value a = args[0];
    tci_value b = arity > 1 ? args[1] : zero;
    tci_value c = arity > 2 ? args[2] : zero;
    if (p == TCI_P_EQ) {
        return tci_prim_bool(a.u == b.u);
    }
    if (p == TCI_P_LT) {
        return tci_prim_bool(tci_prim_less(t, a, b));
    }
    if (p == TCI_P_LE) {
        return tci_prim_bool(!tci_prim_less(t, b, a));
    }
    tci_value out;
    out.u = tci_prim_int_bits(p, t, a, b, c);
    return tci_value_cast(out, TC_I64, t); /* wraps */
}

/* Float and integer of one width share a storage, so BITS is a store and a load. */
static tci_value tci_prim_bits(tc_dtype from, tc_dtype to, tci_value v)
{
    uint64_t storage = 0;
    tci_value_store(from, &storage, v);
    return tci_value_load(to, &storage);
}

static tci_value tci_prim_lane1(int id, const tci_value *args)
{
    const tci_helper *h = tci_helper_get(id);
    tci_value out = {0};
    if (!args[h->arity].i) {
        return out; /* lane not active */
    }
    switch (h->dtype) {
    case TC_F32:
        return tci_prim_f32(h->arity == 1 ? h->f32_1((float)args[0].f)
                                          : h->f32_2((float)args[0].f, (float)args[1].f));
    case TC_F64:
        return tci_prim_f64(h->arity == 1 ? h->f64_1(args[0].f) : h->f64_2(args[0].f, args[1].f));
    default:
        out.i = h->i64_2(args[0].i, args[1].i);
        return out;
    }
}

static tci_value tci_prim_eval_recipe(tci_prim p, tc_dtype t, const tci_value *args)
{
    const tci_recipe *r = tci_math_recipe(p, t);
    tci_value values[TCI_RECIPE_MAX];
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *s = &r->insts[i];
        if (s->kind == TCI_RECIPE_ARG) {
            values[i] = args[s->imm];
        } else if (s->kind == TCI_RECIPE_CONST) {
            values[i] = s->value;
        } else {
            tci_value operands[3] = {{0}};
            for (int k = 0; k < s->n_args; k++) {
                operands[k] = values[s->args[k]];
            }
            int typed = s->prim == TCI_P_SELECT ? 1 : 0; /* the operand whose dtype is the prim's */
            tc_dtype dtype = (tc_dtype)r->insts[s->args[typed]].dtype;
            tc_dtype to = (tc_dtype)s->dtype;
            values[i] = tci_prim_eval((tci_prim)s->prim, dtype, to, s->imm, operands);
        }
    }
    return values[r->n - 1];
}

TCI_FN tci_value tci_prim_eval(tci_prim p, tc_dtype dtype, tc_dtype to, int imm,
                               const tci_value *args)
{
    if (tci_prim_is_math(p)) {
        return tci_prim_eval_recipe(p, dtype, args);
    }
    bool is_float = tci_dtype_is_float(dtype);
    switch (p) {
    case TCI_P_SELECT:
        return args[0].i ? args[1] : args[2];
    case TCI_P_CAST:
    case TCI_P_TOINT:
        return tci_value_cast(args[0], dtype, to);
    case TCI_P_BITS:
        return tci_prim_bits(dtype, to, args[0]);
    case TCI_P_LANE1:
        return tci_prim_lane1(imm, args);
    case TCI_P_NEG:
    case TCI_P_ABS:
        if (is_float) {
            return tci_prim_sign(p, args[0]);
        }
        break;
    default:
        break;
    }
    if (!is_float) {
        return tci_prim_eval_int(p, dtype, args);
    }
    return dtype == TC_F64 ? tci_prim_eval_f64(p, args) : tci_prim_eval_f32(p, args);
}
/* ---- src/ops/helpers.c ---- */
/* ops/helpers.c - the scalar helpers of the math library: slow paths of f32 recipes, POW, and all
 * of f64.
 *
 * In: nothing but the arguments. Out: tci_helper_get: the compiled function and its own C text, so
 * the interpreter and generated code run the same operations in the same order.
 * The one idea: TCI_HELPER compiles its argument and keeps it as a string. A text therefore holds
 * no comment, no #, no libm call, and every fused multiply-add is spelled TC_FMA_F64; contraction
 * is off wherever it is compiled, so the bits agree. What a helper does is said in the comment
 * above it.
 * Words used below: "hi + lo" is an unevaluated sum of two doubles; the "magic" number 1.5 * 2^52
 * added and taken away rounds to the nearest integer. Coefficients are minimax fits (Remez, in 50
 * digits, then rounded to double); the largest relative error of each is named.
 * Invariant: one static function a text, and texts stay below 4096 characters (the C11 minimum). */
#include <math.h>


#define TCI_HELPER(name, ...)                                                                      \
    __VA_ARGS__                                                                                    \
    static const char tci_text_##name[] = #__VA_ARGS__;
#define TC_FMA_F64(a, b, c) fma((a), (b), (c))

/* sin(x + quarter * pi/2) of a large float. |x| = m * 2^s; the 96 bits of 2/pi whose product with m
 * has weights 2^1 .. 2^-94 are cut out of the table (one zero word, then 2/pi), so p holds the
 * quadrant in two bits and the fraction of it in 62. Polynomials on |r| <= pi/4: 2^-35 (sin), 2^-30
 * (cos). */
TCI_HELPER(trig_slow_f32,
static double tc_h_trig_slow_f32(float x, int quarter) {
    static const unsigned int table[8] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                          0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
    union { float f; unsigned int u; } v;
    v.f = x;
    unsigned int exponent = (v.u >> 23) & 255u;
    if (exponent == 255u) {
        return (double)(x - x);
    }
    unsigned long long m = (v.u & 0x7fffffu) | 0x800000u;
    int at = (int)exponent - 150 + 30;
    int word = at >> 5;
    int shift = at & 31;
    unsigned long long w[3];
    for (int i = 0; i < 3; i++) {
        unsigned long long two = table[word + i];
        two = (two << 32) | table[word + i + 1];
        w[i] = ((two << shift) >> 32) & 0xffffffffu;
    }
    unsigned long long low = m * w[2];
    unsigned long long mid = m * w[1] + (low >> 32);
    unsigned long long p = ((m * w[0] + (mid >> 32)) << 32) | (mid & 0xffffffffu);
    long long fraction = (long long)(p << 2);
    int q = (int)(p >> 62) + (fraction < 0);
    double r = (double)fraction * 0x1.921fb54442d18p-64;
    if (v.u >> 31) {
        r = -r;
        q = -q;
    }
    q += quarter;
    double z = r * r;
    double y;
    if (q & 1) {
        y = 1.0 - z * 0.5 + z * z * (0x1.555554414a8p-5
            + z * (-0x1.6c12d1f958cd2p-10 + z * 0x1.9bd7f2cfcb972p-16));
    } else {
        y = r + r * z * (-0x1.555555545d8b7p-3 + z * (0x1.11110dedac4c2p-7
            + z * (-0x1.a013a54cfcbep-13 + z * 0x1.6dbd3e089ac88p-19)));
    }
    return q & 2 ? -y : y;
})

TCI_HELPER(sin_slow_f32,
static float tc_h_sin_slow_f32(float x) {
    return (float)tc_h_trig_slow_f32(x, 0);
})

TCI_HELPER(cos_slow_f32,
static float tc_h_cos_slow_f32(float x) {
    return (float)tc_h_trig_slow_f32(x, 1);
})

/* e^(hi + lo) * 2^k, rounded once (within 0.52 ulp), |k| <= 128. Polynomial of (e^r - 1 - r) / r^2:
 * 2^-58. The scale goes in two halves, so results below the normal range are rounded once. */
TCI_HELPER(exp_core_f64,
static double tc_h_exp_core_f64(double hi, double lo, int k) {
    if (hi != hi) {
        return hi;
    }
    if (hi > 720.0) {
        hi = 720.0;
        lo = 0.0;
    }
    if (hi < -900.0) {
        hi = -900.0;
        lo = 0.0;
    }
    double n = TC_FMA_F64(hi, 0x1.71547652b82fep+0, 0x1.8p52) - 0x1.8p52;
    double rh = TC_FMA_F64(n, -0x1.62e42fefa38p-1, hi);
    double c = TC_FMA_F64(n, -0x1.ef35793c7673p-45, lo);
    double r = rh + c;
    double rl = c - (r - rh);
    static const double q[11] = {
        0x1.1f8b6cc288d1ap-29, 0x1.af4e1aef0b2dap-26, 0x1.27e4ccbac8897p-22,
        0x1.71de0219b8b01p-19, 0x1.a01a01ad02b86p-16, 0x1.a01a01abef8f3p-13,
        0x1.6c16c16c151e7p-10, 0x1.11111111100cep-7, 0x1.5555555555558p-5,
        0x1.5555555555557p-3, 0.5};
    double p = q[0];
    for (int i = 1; i < 11; i++) {
        p = TC_FMA_F64(p, r, q[i]);
    }
    double tail = TC_FMA_F64(r * r, p, TC_FMA_F64(r, rl, rl));
    double y = 1.0 + r;
    y = y + (((1.0 - y) + r) + tail);
    long long e = (long long)n + k;
    long long half = e / 2;
    union { unsigned long long u; double f; } a;
    union { unsigned long long u; double f; } b;
    a.u = (unsigned long long)(half + 1023) << 52;
    b.u = (unsigned long long)(e - half + 1023) << 52;
    return y * a.f * b.f;
})

TCI_HELPER(exp_f64,
static double tc_h_exp_f64(double x) {
    return tc_h_exp_core_f64(x, 0.0, 0);
})

/* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), s = f / (2 + f): log(1 + f) = 2 atanh(s)
 * = f - (f^2/2 - s (f^2/2 + R(s^2))). R: 2^-58 of the result. */
TCI_HELPER(log_f64,
static double tc_h_log_f64(double x) {
    union { double f; unsigned long long u; } v;
    v.f = x;
    if (!(x > 0.0)) {
        v.u = x == 0.0 ? 0xfff0000000000000u : 0x7ff8000000000000u;
        return v.f;
    }
    if (v.u >= 0x7ff0000000000000u) {
        return x;
    }
    int k = 0;
    if (x < 0x1p-1022) {
        v.f = x * 0x1p54;
        k = -54;
    }
    unsigned long long offset = v.u - 0x3fe6a09e667f3bcdu;
    k += (int)((long long)offset >> 52);
    v.u = (offset & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu;
    double f = v.f - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    static const double q[7] = {
        0x1.2b5fc0c21e681p-3, 0x1.39fdb9220a5a8p-3, 0x1.7462ba2906aa5p-3,
        0x1.c71c62d03b34dp-3, 0x1.2492492e03e54p-2, 0x1.9999999995223p-2,
        0x1.5555555555558p-1};
    double p = q[0];
    for (int i = 1; i < 7; i++) {
        p = TC_FMA_F64(p, z, q[i]);
    }
    double half = 0.5 * f * f;
    double low = TC_FMA_F64((double)k, 0x1.ef35793c7673p-45, s * TC_FMA_F64(p, z, half));
    return TC_FMA_F64((double)k, 0x1.62e42fefa38p-1, f - (half - low));
})

/* sin(x + quarter * pi/2). x - n pi/2 = r + rl: as it is below pi/4; with pi/2 in three parts up to
 * 2^28; beyond from 192 bits of 2/pi cut out of the table, as in trig_slow_f32 but with a 53-bit m
 * in two words. */
TCI_HELPER(trig_f64,
static double tc_h_trig_f64(double x, int quarter) {
    static const unsigned int table[38] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
        0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea,
        0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
        0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b,
        0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
        0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046};
    union { double f; unsigned long long u; } v;
    v.f = x;
    double size = x < 0.0 ? -x : x;
    double r = x;
    double rl = 0.0;
    int q = 0;
    if (size < 0x1p-27) {
        return quarter ? 1.0 : x;
    }
    if (((v.u >> 52) & 2047u) == 2047u) {
        return x - x;
    }
    if (size > 0x1p28) {
        unsigned long long m = (v.u & 0xfffffffffffffu) | 0x10000000000000u;
        int at = (int)((v.u >> 52) & 2047u) - 1075 + 30;
        int word = at >> 5;
        int shift = at & 31;
        unsigned long long w[6];
        unsigned int f[6];
        unsigned long long carry = 0;
        for (int i = 5; i >= 0; i--) {
            unsigned long long two = table[word + i];
            two = (two << 32) | table[word + i + 1];
            w[i] = ((two << shift) >> 32) & 0xffffffffu;
            carry += (m & 0xffffffffu) * w[i];
            f[i] = (unsigned int)carry;
            carry >>= 32;
        }
        carry = 0;
        for (int i = 4; i >= 0; i--) {
            carry += (m >> 32) * w[i + 1] + f[i];
            f[i] = (unsigned int)carry;
            carry >>= 32;
        }
        q = (int)(f[0] >> 30);
        int negative = (int)((f[0] >> 29) & 1u);
        q += negative;
        for (int i = 0; i < 6; i++) {
            f[i] = (f[i] << 2) | (i < 5 ? f[i + 1] >> 30 : 0u);
            f[i] = negative ? ~f[i] : f[i];
        }
        double t0 = (double)f[0] * 0x1p-32;
        double t1 = (double)f[1] * 0x1p-64;
        double t2 = (double)f[2] * 0x1p-96;
        double t3 = (double)f[3] * 0x1p-128 + (double)f[4] * 0x1p-160;
        double high = t0 + t1;
        double low = ((t0 - high) + t1) + (t2 + t3);
        double sum = high + low;
        low = low - (sum - high);
        r = sum * 0x1.921fb54442d18p+0;
        rl = TC_FMA_F64(sum, 0x1.921fb54442d18p+0, -r)
            + TC_FMA_F64(sum, 0x1.1a62633145c06p-54, low * 0x1.921fb54442d18p+0);
        if (negative != (int)(v.u >> 63)) {
            r = -r;
            rl = -rl;
        }
        if (v.u >> 63) {
            q = -q;
        }
    } else if (size > 0x1.921fb54442d18p-1) {
        double n = TC_FMA_F64(x, 0x1.45f306dc9c883p-1, 0x1.8p52) - 0x1.8p52;
        double t = TC_FMA_F64(-n, 0x1.921fb54442d18p+0, x);
        double ph = n * 0x1.1a62633145c06p-54;
        double pl = TC_FMA_F64(n, 0x1.1a62633145c06p-54, -ph);
        double rh = t - ph;
        double back = rh - t;
        double c = (((t - (rh - back)) - (ph + back)) - pl) - n * 0x1.c1cd129024e08p-107;
        r = rh + c;
        rl = c - (r - rh);
        q = (int)(long long)n;
    }
    q += quarter;
    double z = r * r;
    double y;
    if (q & 1) {
        double half = 0.5 * z;
        double w = 1.0 - half;
        double p = 0x1.5555555555555p-5 + z * (-0x1.6c16c16c16964p-10 + z * (0x1.a01a019f4df8fp-16
            + z * (-0x1.27e4fa16e89fap-22 + z * (0x1.1eeb67ea7a35cp-29
            + z * -0x1.907cea0cf7363p-37))));
        y = w + (((1.0 - w) - half) + TC_FMA_F64(z * z, p, -(r * rl)));
    } else {
        double p = -0x1.5555555555555p-3 + z * (0x1.1111111110badp-7 + z * (-0x1.a01a019e82435p-13
            + z * (0x1.71de3794aecd1p-19 + z * (-0x1.ae60090c44cc4p-26
            + z * 0x1.5e0a62ed2b3p-33))));
        y = r + TC_FMA_F64(r * z, p, TC_FMA_F64(-0.5 * z, rl, rl));
    }
    return q & 2 ? -y : y;
})

TCI_HELPER(sin_f64,
static double tc_h_sin_f64(double x) {
    return tc_h_trig_f64(x, 0);
})

TCI_HELPER(cos_f64,
static double tc_h_cos_f64(double x) {
    return tc_h_trig_f64(x, 1);
})

/* Below 0.55 x + x^3 P(x^2) (2^-56); else 1 - 2 / (e^2|x| + 1). */
TCI_HELPER(tanh_f64,
static double tc_h_tanh_f64(double x) {
    double a = x < 0.0 ? -x : x;
    if (a < 0.55) {
        if (x == 0.0) {
            return x;
        }
        static const double q[11] = {
            -0x1.5a2a4b095d71ap-16, 0x1.652f1c7b19fbbp-14, -0x1.ec20a08978a7fp-13,
            0x1.34c719563af8ap-11, -0x1.7d97f7c689403p-10, 0x1.d6d33be171b09p-9,
            -0x1.226e32fe0fdf5p-7, 0x1.664f48776758bp-6, -0x1.ba1ba1b9ffc8bp-5,
            0x1.111111111103cp-3, -0x1.5555555555555p-2};
        double z = x * x;
        double p = q[0];
        for (int i = 1; i < 11; i++) {
            p = TC_FMA_F64(p, z, q[i]);
        }
        return TC_FMA_F64(x * z, p, x);
    }
    double y = 1.0 - 2.0 / (tc_h_exp_core_f64(2.0 * a, 0.0, 0) + 1.0);
    return x < 0.0 ? -y : y;
})

/* factor * Phi(-a) * 2^128, a >= 0, Phi the normal distribution. (1 + a) Phi(-a) e^(a^2/2) is a
 * polynomial in t = (a - 4) / (a + 4) (2^-55); its constant term, the division and a^2 are done in
 * hi + lo. */
TCI_HELPER(tail_f64,
static double tc_h_tail_f64(double a, double factor) {
    if (a > 39.0) {
        a = 39.0;
    }
    double t = (a - 4.0) / (a + 4.0);
    static const double q[23] = {
        -0x1.a53f19bf500f9p-31, -0x1.9a626f3e48c33p-30, 0x1.a95aa4e0389d2p-28,
        0x1.2c06493301c98p-26, -0x1.55b3d1e833929p-26, -0x1.db742b7ea6187p-24,
        0x1.a4b9ee6cb862fp-30, 0x1.2833c6127bf27p-21, 0x1.b2350dd4bb5f4p-22,
        -0x1.5ead54a0910afp-19, -0x1.cca7333e019e5p-19, 0x1.c93d6d33fde2dp-17,
        0x1.648428543ac15p-16, -0x1.707b9fb5c35c4p-14, -0x1.8c11b4eb2c1b7p-14,
        0x1.6c5382a4e895ap-11, -0x1.2b7f5de428ff6p-12, -0x1.47d5fc733b4eap-8,
        0x1.25dd7205f8dbep-6, -0x1.07c3c2582db4dp-5, 0x1.d4969f10e03e2p-6,
        0x1.cabd72a60fae6p-7, -0x1.8c18f2086e34cp-4};
    double p = q[0];
    for (int i = 1; i < 23; i++) {
        p = TC_FMA_F64(p, t, q[i]);
    }
    double top = t * p;
    double q0 = 0x1.e361ea6fba141p-2;
    double qh = q0 + top;
    double ql = (top - (qh - q0)) + TC_FMA_F64(t, p, -top);
    double d = 1.0 + a;
    double dl = a > 1.0 ? 1.0 - (d - a) : a - (d - 1.0);
    double m = qh / d;
    double ml = (TC_FMA_F64(-m, d, qh) + (ql - m * dl)) / d;
    double uh = m * factor;
    double ul = TC_FMA_F64(m, factor, -uh) + ml * factor;
    double s = a * a;
    double e = tc_h_exp_core_f64(-0.5 * s, -0.5 * TC_FMA_F64(a, a, -s), 128);
    return TC_FMA_F64(e, uh, e * ul);
})

/* Below 0.84 x + x P(x^2) (2^-56); else 1 - 2 Phi(-|x| sqrt 2). */
TCI_HELPER(erf_f64,
static double tc_h_erf_f64(double x) {
    double a = x < 0.0 ? -x : x;
    if (a < 0.84) {
        static const double q[12] = {
            -0x1.e9b59b822fe78p-31, 0x1.e8760edbee426p-27, -0x1.5e248468c6b0bp-23,
            0x1.b9cafbe17b1c9p-20, -0x1.f4d0d4900f012p-17, 0x1.f9a3188d414a2p-14,
            -0x1.c02db3a6927a3p-11, 0x1.565bcd0d086fbp-8, -0x1.b82ce3128244p-6,
            0x1.ce2f21a042ae9p-4, -0x1.812746b0379e6p-2, 0x1.06eba8214db69p-3};
        double z = x * x;
        double p = q[0];
        for (int i = 1; i < 12; i++) {
            p = TC_FMA_F64(p, z, q[i]);
        }
        return TC_FMA_F64(x, p, x);
    }
    double y = TC_FMA_F64(tc_h_tail_f64(a * 0x1.6a09e667f3bcdp+0, 1.0), -0x1p-127, 1.0);
    return x < 0.0 ? -y : y;
})

TCI_HELPER(sigmoid_f64,
static double tc_h_sigmoid_f64(double x) {
    double e = tc_h_exp_core_f64(x < 0.0 ? x : -x, 0.0, 0);
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
})

/* max(x, 0) - |x| Phi(-|x|) */
TCI_HELPER(gelu_f64,
static double tc_h_gelu_f64(double x) {
    if (x != x) {
        return x;
    }
    double a = x < 0.0 ? -x : x;
    a = a > 39.0 ? 39.0 : a;
    return TC_FMA_F64(tc_h_tail_f64(a, a), -0x1p-128, x < 0.0 ? 0.0 : x);
})

/* |x|^y = e^(y log|x|) with the logarithm in hi + lo (2^-64 relative): m = 2^k (1 + f), s = f / (2
 * + f), log = k ln 2 + 2 s + s (2/3 s^2 + s^4 P(s^2)), all but P in two parts; P: 2^-55 of a term
 * below 2^-11. Special cases as in C99 annex F. */
TCI_HELPER(pow_f64,
static double tc_h_pow_f64(double x, double y) {
    if (y == 0.0 || x == 1.0) {
        return 1.0;
    }
    if (x != x || y != y) {
        return x + y;
    }
    union { double f; unsigned long long u; } v;
    v.f = x;
    double ay = y < 0.0 ? -y : y;
    int whole = 1;
    int odd = 0;
    if (ay < 0x1p53) {
        long long t = (long long)y;
        whole = (double)t == y;
        odd = whole && (t & 1);
    }
    double sign = odd && v.u >> 63 ? -1.0 : 1.0;
    v.u &= 0x7fffffffffffffffu;
    double ax = v.f;
    if (ax == 1.0) {
        return whole ? sign : 0.0 / (y - y);
    }
    if (ax == 0.0) {
        return y < 0.0 ? sign / ax : sign * 0.0;
    }
    if (v.u >= 0x7ff0000000000000u) {
        return y < 0.0 ? sign * 0.0 : sign * ax;
    }
    if (x < 0.0 && !whole) {
        return (x - x) / (x - x);
    }
    int k = 0;
    if (ax < 0x1p-1022) {
        v.f = ax * 0x1p54;
        k = -54;
    }
    unsigned long long offset = v.u - 0x3fe6a09e667f3bcdu;
    k += (int)((long long)offset >> 52);
    v.u = (offset & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu;
    double f = v.f - 1.0;
    double d = 2.0 + f;
    double dl = f - (d - 2.0);
    double s = f / d;
    double sl = (TC_FMA_F64(-s, d, f) - s * dl) / d;
    double z = s * s;
    double zl = TC_FMA_F64(s, s, -z) + 2.0 * s * sl;
    static const double q[8] = {
        0x1.e039c40bcae8cp-4, 0x1.df7b9e38ce30ap-4, 0x1.1118cdef6094bp-3,
        0x1.3b1395b312ae4p-3, 0x1.745d177ae7ca5p-3, 0x1.c71c71c6ea3a7p-3,
        0x1.2492492492523p-2, 0x1.999999999999ap-2};
    double p = q[0];
    for (int i = 1; i < 8; i++) {
        p = TC_FMA_F64(p, z, q[i]);
    }
    double c = 0x1.5555555555555p-1;
    double w = c * z;
    double wl = TC_FMA_F64(c, z, -w) + (c * zl + (0x1.5555555555555p-55 * z + z * z * p));
    double u = s * w;
    double ul = TC_FMA_F64(s, w, -u) + (s * wl + sl * w);
    double h0 = (double)k * 0x1.62e42fefa38p-1;
    double h1 = h0 + 2.0 * s;
    double h2 = h1 + u;
    double low = (2.0 * s - (h1 - h0)) + (u - (h2 - h1));
    low += TC_FMA_F64((double)k, 0x1.ef35793c7673p-45, 2.0 * sl + ul);
    double lh = h2 + low;
    double ll = low - (lh - h2);
    double b = ay > 1e20 ? (y < 0.0 ? -1e20 : 1e20) : y;
    double ph = b * lh;
    double pl = TC_FMA_F64(b, lh, -ph) + b * ll;
    return sign * tc_h_exp_core_f64(ph, pl, 0);
})

/* Through double: y log|x| is good to 2^-45 of the result. Special cases as in pow_f64. */
TCI_HELPER(pow_f32,
static float tc_h_pow_f32(float x, float y) {
    if (y == 0.0f || x == 1.0f) {
        return 1.0f;
    }
    if (x != x || y != y) {
        return x + y;
    }
    union { float f; unsigned int u; } v;
    v.f = x;
    float ay = y < 0.0f ? -y : y;
    int whole = 1;
    int odd = 0;
    if (ay < 0x1p24f) {
        int t = (int)y;
        whole = (float)t == y;
        odd = whole && (t & 1);
    }
    double sign = odd && v.u >> 31 ? -1.0 : 1.0;
    v.u &= 0x7fffffffu;
    if (v.f == 1.0f) {
        return (float)sign + (whole ? 0.0f : (y - y) / (y - y));
    }
    if (x < 0.0f && !whole && v.u < 0x7f800000u) {
        return (x - x) / (x - x);
    }
    return (float)(sign * tc_h_exp_core_f64((double)y * tc_h_log_f64((double)v.f), 0.0, 0));
})

/* Repeated squaring, wrapping. A negative exponent gives the integer part of 1 / x^|y|, and 0 for x
 * = 0. */
TCI_HELPER(pow_i64,
static long long tc_h_pow_i64(long long x, long long y) {
    if (y < 0) {
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    }
    unsigned long long result = 1;
    unsigned long long square = (unsigned long long)x;
    for (unsigned long long n = (unsigned long long)y; n; n >>= 1) {
        result = n & 1 ? result * square : result;
        square *= square;
    }
    return (long long)result;
})

TCI_HELPER(pow_u64,
static long long tc_h_pow_u64(long long x, long long y) {
    unsigned long long result = 1;
    unsigned long long square = (unsigned long long)x;
    for (unsigned long long n = (unsigned long long)y; n; n >>= 1) {
        result = n & 1 ? result * square : result;
        square *= square;
    }
    return (long long)result;
})

/* id, name, dtype, arity, the two helpers it needs */
#define TCI_HELPER_ROW(id, word, type, n, first, second)                                           \
    [TCI_H_##id].name = "tc_h_" #word, [TCI_H_##id].dtype = TC_##type, [TCI_H_##id].arity = n,     \
    [TCI_H_##id].needs = {TCI_H_##first, TCI_H_##second}, [TCI_H_##id].text = tci_text_##word

static const tci_helper tci_helpers[TCI_H_COUNT] = {
    TCI_HELPER_ROW(TRIG_SLOW_F32, trig_slow_f32, F32, 0, NONE, NONE),
    TCI_HELPER_ROW(SIN_SLOW_F32, sin_slow_f32, F32, 1, TRIG_SLOW_F32, NONE),
    TCI_HELPER_ROW(COS_SLOW_F32, cos_slow_f32, F32, 1, TRIG_SLOW_F32, NONE),
    TCI_HELPER_ROW(POW_F32, pow_f32, F32, 2, EXP_CORE_F64, LOG_F64),
    TCI_HELPER_ROW(EXP_CORE_F64, exp_core_f64, F64, 0, NONE, NONE),
    TCI_HELPER_ROW(EXP_F64, exp_f64, F64, 1, EXP_CORE_F64, NONE),
    TCI_HELPER_ROW(LOG_F64, log_f64, F64, 1, NONE, NONE),
    TCI_HELPER_ROW(TRIG_F64, trig_f64, F64, 0, NONE, NONE),
    TCI_HELPER_ROW(SIN_F64, sin_f64, F64, 1, TRIG_F64, NONE),
    TCI_HELPER_ROW(COS_F64, cos_f64, F64, 1, TRIG_F64, NONE),
    TCI_HELPER_ROW(TANH_F64, tanh_f64, F64, 1, EXP_CORE_F64, NONE),
    TCI_HELPER_ROW(TAIL_F64, tail_f64, F64, 0, EXP_CORE_F64, NONE),
    TCI_HELPER_ROW(ERF_F64, erf_f64, F64, 1, TAIL_F64, NONE),
    TCI_HELPER_ROW(SIGMOID_F64, sigmoid_f64, F64, 1, EXP_CORE_F64, NONE),
    TCI_HELPER_ROW(GELU_F64, gelu_f64, F64, 1, TAIL_F64, NONE),
    TCI_HELPER_ROW(POW_F64, pow_f64, F64, 2, EXP_CORE_F64, NONE),
    TCI_HELPER_ROW(POW_I64, pow_i64, I64, 2, NONE, NONE),
    TCI_HELPER_ROW(POW_U64, pow_u64, U64, 2, NONE, NONE),
    [TCI_H_SIN_SLOW_F32].f32_1 = tc_h_sin_slow_f32,
    [TCI_H_COS_SLOW_F32].f32_1 = tc_h_cos_slow_f32,
    [TCI_H_POW_F32].f32_2 = tc_h_pow_f32,
    [TCI_H_EXP_F64].f64_1 = tc_h_exp_f64,
    [TCI_H_LOG_F64].f64_1 = tc_h_log_f64,
    [TCI_H_SIN_F64].f64_1 = tc_h_sin_f64,
    [TCI_H_COS_F64].f64_1 = tc_h_cos_f64,
    [TCI_H_TANH_F64].f64_1 = tc_h_tanh_f64,
    [TCI_H_ERF_F64].f64_1 = tc_h_erf_f64,
    [TCI_H_SIGMOID_F64].f64_1 = tc_h_sigmoid_f64,
    [TCI_H_GELU_F64].f64_1 = tc_h_gelu_f64,
    [TCI_H_POW_F64].f64_2 = tc_h_pow_f64,
    [TCI_H_POW_I64].i64_2 = tc_h_pow_i64,
    [TCI_H_POW_U64].i64_2 = tc_h_pow_u64,
};

TCI_FN const tci_helper *tci_helper_get(int id)
{
    return &tci_helpers[id];
}

TCI_FN int tci_helper_count(void)
{
    return TCI_H_COUNT;
}

#undef TC_FMA_F64
#undef TCI_HELPER
#undef TCI_HELPER_ROW
/* ---- src/ops/math.c ---- */
/* ops/math.c - the recipes of the MATH prims.
 *
 * In: a MATH prim and f32 or f64. Out: a straight-line program over BASE prims, the same for the
 * block interpreter, the scalar evaluator and every dialect, so all give the same bits.
 * The one idea: f32 functions are range reduction + a polynomial in explicit FMAs + exact scaling
 * through the exponent field, without branches; what is rare (a huge angle) is a LANE1 helper under
 * a mask. f64 functions and POW are helpers altogether (ops/helpers.c).
 * Conventions: clamps put the constant first, because PMAX(c, x) and PMIN(c, x) give x when x is
 * NaN.
 * "Magic" rounding adds 1.5 * 2^23, which leaves the nearest integer in the low bits of the sum; a
 * bias for the exponent field can ride along. -0 stays -0 wherever the function is odd.
 * Coefficients: minimax fits (iteratively reweighted least squares on Chebyshev nodes, coefficients
 * rounded to f32 one after the other, the rest refitted each time); each list states interval and
 * error.
 * Invariant: a recipe has at most TCI_RECIPE_MAX instructions and its last one is the result. */
#include <pthread.h>


typedef struct tci_math {
    tci_step_inst *insts;
    int n;
    tc_dtype t;      /* f32 or f64 */
    tc_dtype bits;   /* the signed integer of the same width */
} tci_math;

static tci_step_inst tci_math_insts[TCI_P_COUNT - TCI_P_BASE_COUNT][2][TCI_RECIPE_MAX];
static tci_recipe tci_math_recipes[TCI_P_COUNT - TCI_P_BASE_COUNT][2];
static pthread_once_t tci_math_once = PTHREAD_ONCE_INIT;

/* ---- building blocks: each appends one instruction and returns its index ---- */

static int tci_math_add_inst(tci_math *m, tci_step_inst inst)
{
    m->insts[m->n] = inst;
    return m->n++;
}

static int tci_math_arg(tci_math *m, int which)
{
    tci_step_inst inst = {.kind = TCI_RECIPE_ARG, .dtype = (uint8_t)m->t, .imm = (int16_t)which};
    return tci_math_add_inst(m, inst);
}

static int tci_math_const(tci_math *m, tc_dtype t, tci_value v)
{
    for (int i = 0; i < m->n; i++) {
        const tci_step_inst *old = &m->insts[i];
        if (old->kind == TCI_RECIPE_CONST && old->dtype == t && old->value.u == v.u) {
            return i;
        }
    }
    tci_step_inst inst = {.kind = TCI_RECIPE_CONST, .dtype = (uint8_t)t, .value = v};
    return tci_math_add_inst(m, inst);
}

static int tci_math_k(tci_math *m, double x)
{
    tci_value v = {.f = x};
    return tci_math_const(m, m->t, v);
}

static int tci_math_ki(tci_math *m, int64_t x)
{
    tci_value v = {.i = x};
    return tci_math_const(m, m->bits, v);
}

static int tci_math_prim(tci_math *m, tci_prim p, tc_dtype t, int n, int a, int b, int c)
{
    tci_step_inst inst = {.kind = TCI_RECIPE_PRIM,
                          .prim = (uint8_t)p,
                          .dtype = (uint8_t)t,
                          .n_args = (uint8_t)n,
                          .args = {(int16_t)a, (int16_t)b, (int16_t)c}};
    return tci_math_add_inst(m, inst);
}

static int tci_math_1(tci_math *m, tci_prim p, int a)
{
    return tci_math_prim(m, p, (tc_dtype)m->insts[a].dtype, 1, a, 0, 0);
}

static int tci_math_2(tci_math *m, tci_prim p, int a, int b)
{
    return tci_math_prim(m, p, (tc_dtype)m->insts[a].dtype, 2, a, b, 0);
}

static int tci_math_fma(tci_math *m, int a, int b, int c)
{
    return tci_math_prim(m, TCI_P_FMA, m->t, 3, a, b, c);
}

static int tci_math_compare(tci_math *m, tci_prim p, int a, int b)
{
    return tci_math_prim(m, p, TC_BOOL, 2, a, b, 0);
}

static int tci_math_select(tci_math *m, int mask, int a, int b)
{
    return tci_math_prim(m, TCI_P_SELECT, (tc_dtype)m->insts[a].dtype, 3, mask, a, b);
}

static int tci_math_to_bits(tci_math *m, int a)
{
    return tci_math_prim(m, TCI_P_BITS, m->bits, 1, a, 0, 0);
}

static int tci_math_from_bits(tci_math *m, int a)
{
    return tci_math_prim(m, TCI_P_BITS, m->t, 1, a, 0, 0);
}

/* Horner's rule by FMA: c[0] x^(n-1) + ... + c[n-1]. */
static int tci_math_poly(tci_math *m, int x, const double *c, int n)
{
    int y = tci_math_k(m, c[0]);
    for (int i = 1; i < n; i++) {
        y = tci_math_fma(m, y, x, tci_math_k(m, c[i]));
    }
    return y;
}

static int tci_math_lane1(tci_math *m, tci_helper_id id, int a, int b, int mask)
{
    bool two = tci_helper_get(id)->arity == 2;
    int call = tci_math_prim(m, TCI_P_LANE1, m->t, two ? 3 : 2, a, two ? b : mask, mask);
    m->insts[call].imm = (int16_t)id;
    return call;
}

/* 2^n as a float, from the sum `shifted` whose low bits hold n + 127. */
static int tci_math_exp2i(tci_math *m, int shifted)
{
    int field = tci_math_2(m, TCI_P_SHL, tci_math_to_bits(m, shifted), tci_math_ki(m, 23));
    return tci_math_from_bits(m, field);
}

/* The sign bit of x put on a result that is >= 0. */
static int tci_math_copy_sign(tci_math *m, int y, int x)
{
    int sign = tci_math_2(m, TCI_P_AND, tci_math_to_bits(m, x), tci_math_ki(m, INT32_MIN));
    return tci_math_from_bits(m, tci_math_2(m, TCI_P_OR, tci_math_to_bits(m, y), sign));
}

/* ---- f32 constants ---- */

static const double tci_math_magic = 12582912.0; /* 1.5 * 2^23 */
static const double tci_math_log2e = 0x1.715476p+0;
static const double tci_math_ln2 = 0x1.62e43p-1;       /* ln 2 - 1.9e-9 */
static const double tci_math_ln2_rest = -0x1.05c61p-29;

/* e^r on |r| <= 0.347 without the leading 1 + r, relative error 2^-28.2: coefficients of r^6 ..
 * r^2 */
static const double tci_math_exp_c[] = {0x1.6a4508p-10, 0x1.1239aap-7, 0x1.5558b8p-5,
                                        0x1.555492p-3, 0x1.fffffcp-2};
/* The same for relative error of e^r - 1: 2^-26.1 */
static const double tci_math_expm1_c[] = {0x1.6b9ce8p-10, 0x1.12256cp-7, 0x1.5556f2p-5,
                                          0x1.5554b4p-3, 0x1.fffffep-2};
/* log(1 + f) - f over f^2, f in [sqrt(1/2) - 1, sqrt(2) - 1], error of the log 2^-27.8: f^8 ..
 * f^0 */
static const double tci_math_log_c[] = {-0x1.39c1f4p-4, 0x1.08ceeep-3, -0x1.0f277cp-3,
                                        0x1.225a62p-3,  -0x1.542652p-3, 0x1.99a52cp-3,
                                        -0x1.000434p-2, 0x1.55554ep-2, -0x1.fffff8p-2};
/* sin(r) / r - 1 over s = r^2, |r| <= pi/2 * 1.003, relative error of the sine 2^-27: s^3 .. s^0 */
static const double tci_math_sin_c[] = {0x1.5e2c2ep-19, -0x1.9f798cp-13, 0x1.110f16p-7,
                                        -0x1.55554ep-3};
/* pi in three parts, each cut (not rounded) to 24 bits, negated */
static const double tci_math_minus_pi[] = {-0x1.921fb4p+1, -0x1.4442dp-23, -0x1.846988p-47};
/* Beyond this the three parts no longer keep the relative accuracy next to multiples of pi. */
static const double tci_math_trig_bound = 131072.0;
/* 2^r on |r| <= 0.5, relative error 2^-28.3: r^6 .. 1 */
static const double tci_math_exp2_c[] = {0x1.417284p-13, 0x1.5f0976p-10, 0x1.3b2ddap-7,
                                         0x1.c6af7ap-5,  0x1.ebfbdcp-3,  0x1.62e43p-1, 1.0};
/* -(2^r) on |r| <= 0.5, relative error 2^-23.2: r^5 .. 1 */
static const double tci_math_minus_exp2_c[] = {-0x1.5ca96ep-10, -0x1.3cdbdcp-7, -0x1.c6b3aap-5,
                                               -0x1.ebf9fp-3,   -0x1.62e43p-1,  -1.0};
/* erf(x) / x - 1 in x^2, |x| <= 0.9, relative error of erf 2^-26 */
static const double tci_math_erf_small_c[] = {-0x1.3ba9cep-11, 0x1.479c9ep-8,  -0x1.b69b96p-6,
                                              0x1.ce1b86p-4,   -0x1.8126ecp-2, 0x1.06eba6p-3};
/* log2(erfc(x)), 0.9 <= x <= 4, error of erf 2^-26.4 (loose where erfc is small) */
static const double tci_math_erf_large_c[] = {-0x1.bcdbfp-16, 0x1.0f1f64p-11, -0x1.587282p-8,
                                              0x1.1516b2p-5,  -0x1.37883ep-3, -0x1.d5cca4p-1,
                                              -0x1.a0ae66p+0, -0x1.00e388p-13};
/* Phi(-a) e^(a^2/2) = N(a) / D(a), 0 <= a <= 14.5, relative error 2^-29 at 0, 2^-26 past 4 */
static const double tci_math_mills_n[] = {0x1.de177ap-9, 0x1.335faep-5, 0x1.64895cp-3,
                                          0x1.b4552ep-2, 0.5};
static const double tci_math_mills_d[] = {0x1.2b97d8p-7, 0x1.8146acp-4, 0x1.c7ff9ep-2,
                                          0x1.2a2e1ap+0, 0x1.a66cc2p+0, 1.0};

/* ---- f32 recipes ---- */

/* e^x = 2^n e^r. The scale is applied as 2^(n/2) twice: both factors are normal for every n in
 * [-150, 128], the first product is exact, so subnormal results are rounded once and 2^128
 * overflows to infinity. The bias 254 = 2 * 127 rides on the magic sum. */
static void tci_math_exp_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -104.0), x);
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 89.0), x);
    int magic = tci_math_k(m, tci_math_magic + 254.0);
    int sum = tci_math_fma(m, x, tci_math_k(m, tci_math_log2e), magic);
    int n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2), x);
    r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2_rest), r);
    int p = tci_math_poly(m, r, tci_math_exp_c, TCI_COUNT(tci_math_exp_c));
    p = tci_math_fma(m, p, r, tci_math_k(m, 1.0));
    p = tci_math_fma(m, p, r, tci_math_k(m, 1.0));
    int bits = tci_math_to_bits(m, sum);
    int half = tci_math_2(m, TCI_P_SHR, bits, tci_math_ki(m, 1));
    int rest = tci_math_2(m, TCI_P_SUB, bits, half);
    int low = tci_math_2(m, TCI_P_SHL, half, tci_math_ki(m, 23));
    int high = tci_math_2(m, TCI_P_SHL, rest, tci_math_ki(m, 23));
    p = tci_math_2(m, TCI_P_MUL, p, tci_math_from_bits(m, low));
    tci_math_2(m, TCI_P_MUL, p, tci_math_from_bits(m, high));
}

/* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)): log x = k ln 2 + f + f^2 P(f). The float ln 2 is
 * good to 2^-28 relative, so k needs no second part. A subnormal x is scaled by 2^23, and the
 * integer that k is read from moves along. */
static void tci_math_log_f32(tci_math *m)
{
    const int64_t sqrt_half = 0x3f3504f3;
    int x = tci_math_arg(m, 0);
    int tiny = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0x1p-126));
    int scaled = tci_math_2(m, TCI_P_MUL, x, tci_math_k(m, 0x1p23));
    int base = tci_math_ki(m, sqrt_half);
    base = tci_math_select(m, tiny, tci_math_ki(m, sqrt_half + (23 << 23)), base);
    int bits = tci_math_to_bits(m, tci_math_select(m, tiny, scaled, x));
    int offset = tci_math_2(m, TCI_P_SUB, bits, base);
    int k = tci_math_2(m, TCI_P_SHR, offset, tci_math_ki(m, 23));
    k = tci_math_prim(m, TCI_P_CAST, m->t, 1, k, 0, 0);
    int mantissa = tci_math_2(m, TCI_P_AND, offset, tci_math_ki(m, 0x7fffff));
    mantissa = tci_math_2(m, TCI_P_ADD, mantissa, tci_math_ki(m, sqrt_half));
    int f = tci_math_2(m, TCI_P_SUB, tci_math_from_bits(m, mantissa), tci_math_k(m, 1.0));
    int p = tci_math_poly(m, f, tci_math_log_c, TCI_COUNT(tci_math_log_c));
    int y = tci_math_fma(m, p, tci_math_2(m, TCI_P_MUL, f, f), f);
    y = tci_math_fma(m, k, tci_math_k(m, tci_math_ln2), y);
    int infinity = tci_math_k(m, (double)INFINITY);
    y = tci_math_select(m, tci_math_compare(m, TCI_P_LT, x, infinity), y, x); /* inf and NaN pass */
    int zero = tci_math_k(m, 0.0);
    int is_zero = tci_math_compare(m, TCI_P_EQ, x, zero);
    int pole = tci_math_k(m, -(double)INFINITY);
    int bad = tci_math_select(m, is_zero, pole, tci_math_k(m, (double)NAN));
    tci_math_select(m, tci_math_compare(m, TCI_P_LT, zero, x), y, bad);
}

/* sin(x) = (-1)^n sin(r), r = x - q pi. sin: q = n. cos: q = n - 1/2, as cos(x) = sin(x + pi/2).
 * The last FMA before the result adds +0 where a MUL would do, so that r = -0 keeps its sign. */
static void tci_math_trig_f32(tci_math *m, bool cosine)
{
    int x = tci_math_arg(m, 0);
    int magic = tci_math_k(m, tci_math_magic);
    int turns = tci_math_k(m, 0x1.45f306p-2); /* 1 / pi */
    int sum;
    int q;
    if (cosine) {
        int half = tci_math_k(m, 0.5);
        sum = tci_math_2(m, TCI_P_ADD, tci_math_fma(m, x, turns, half), magic);
        q = tci_math_2(m, TCI_P_SUB, tci_math_2(m, TCI_P_SUB, sum, magic), half);
    } else {
        sum = tci_math_fma(m, x, turns, magic);
        q = tci_math_2(m, TCI_P_SUB, sum, magic);
    }
    int r = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[0]), x);
    r = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[1]), r);
    r = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[2]), r);
    int s = tci_math_2(m, TCI_P_MUL, r, r);
    int p = tci_math_poly(m, s, tci_math_sin_c, TCI_COUNT(tci_math_sin_c));
    p = tci_math_fma(m, p, s, tci_math_k(m, 0.0));
    int y = tci_math_fma(m, p, r, r);
    int sign = tci_math_2(m, TCI_P_SHL, tci_math_to_bits(m, sum), tci_math_ki(m, 31));
    y = tci_math_from_bits(m, tci_math_2(m, TCI_P_XOR, tci_math_to_bits(m, y), sign));
    int size = tci_math_1(m, TCI_P_ABS, x);
    int big = tci_math_compare(m, TCI_P_LT, tci_math_k(m, tci_math_trig_bound), size);
    int slow = tci_math_lane1(m, cosine ? TCI_H_COS_SLOW_F32 : TCI_H_SIN_SLOW_F32, x, 0, big);
    tci_math_select(m, big, slow, y);
}

/* tanh|x| = E / (E + 2) with E = e^(2|x|) - 1 = 2^n (e^r - 1) + (2^n - 1). One part of ln 2 is
 * enough: an error of t counts less the larger n is. */
static void tci_math_tanh_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int t = tci_math_1(m, TCI_P_ABS, tci_math_2(m, TCI_P_ADD, x, x));
    t = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 20.0), t);
    int magic = tci_math_k(m, tci_math_magic + 127.0);
    int sum = tci_math_fma(m, t, tci_math_k(m, tci_math_log2e), magic);
    int n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2), t);
    int p = tci_math_poly(m, r, tci_math_expm1_c, TCI_COUNT(tci_math_expm1_c));
    p = tci_math_fma(m, p, tci_math_2(m, TCI_P_MUL, r, r), r);
    int scale = tci_math_exp2i(m, sum);
    int less = tci_math_2(m, TCI_P_SUB, scale, tci_math_k(m, 1.0));
    int e = tci_math_fma(m, p, scale, less);
    int y = tci_math_2(m, TCI_P_DIV, e, tci_math_2(m, TCI_P_ADD, e, tci_math_k(m, 2.0)));
    tci_math_copy_sign(m, y, x);
}

/* With E = e^-|x|: E / (1 + E) for x < 0, else 1 / (1 + E). E is scaled by 2^(n + 64) and then by
 * 2^-64, so that a subnormal E is rounded once. The polynomial runs in -r, hence the signs. */
static void tci_math_sigmoid_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int one = tci_math_k(m, 1.0);
    int t = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 104.0), tci_math_1(m, TCI_P_ABS, x));
    int magic = tci_math_k(m, tci_math_magic + 127.0 + 64.0);
    int sum = tci_math_fma(m, t, tci_math_k(m, -tci_math_log2e), magic);
    int n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int r = tci_math_fma(m, n, tci_math_k(m, tci_math_ln2), t);
    r = tci_math_fma(m, n, tci_math_k(m, tci_math_ln2_rest), r);
    double c[TCI_COUNT(tci_math_exp_c) + 2];
    for (int i = 0; i < TCI_COUNT(tci_math_exp_c); i++) {
        c[i] = i % 2 == 0 ? tci_math_exp_c[i] : -tci_math_exp_c[i]; /* r^6, r^5, ... */
    }
    c[TCI_COUNT(tci_math_exp_c)] = -1.0;
    c[TCI_COUNT(tci_math_exp_c) + 1] = 1.0;
    int p = tci_math_poly(m, r, c, TCI_COUNT(c));
    int e = tci_math_2(m, TCI_P_MUL, p, tci_math_exp2i(m, sum));
    e = tci_math_2(m, TCI_P_MUL, e, tci_math_k(m, 0x1p-64));
    int negative = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0.0));
    int top = tci_math_select(m, negative, e, one);
    tci_math_2(m, TCI_P_DIV, top, tci_math_2(m, TCI_P_ADD, one, e));
}

/* Below 0.9: x + x P(x^2). Above: 1 - 2^q(|x|), q = log2(erfc), where 2^q = 2^n 2^r without further
 * reduction. */
static void tci_math_erf_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 4.0), tci_math_1(m, TCI_P_ABS, x));
    int q = tci_math_poly(m, a, tci_math_erf_large_c, TCI_COUNT(tci_math_erf_large_c));
    int magic = tci_math_k(m, tci_math_magic + 127.0);
    int sum = tci_math_2(m, TCI_P_ADD, q, magic);
    int r = tci_math_2(m, TCI_P_SUB, q, tci_math_2(m, TCI_P_SUB, sum, magic));
    int p = tci_math_poly(m, r, tci_math_minus_exp2_c, TCI_COUNT(tci_math_minus_exp2_c));
    int large = tci_math_fma(m, p, tci_math_exp2i(m, sum), tci_math_k(m, 1.0));
    int s = tci_math_2(m, TCI_P_MUL, a, a);
    int g = tci_math_poly(m, s, tci_math_erf_small_c, TCI_COUNT(tci_math_erf_small_c));
    int small = tci_math_fma(m, g, a, a);
    int is_small = tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 0.9f));
    tci_math_copy_sign(m, tci_math_select(m, is_small, small, large), x);
}

/* gelu(x) = max(x, 0) - a Phi(-a), a = |x|: no cancellation on the negative side. Phi(-a) =
 * e^(-a^2/2) N(a)/D(a); a^2 is carried as nu + e (exactly) into the exponent, which keeps the tail
 * to a few ulp. All is scaled by 2^64 until the last FMA, so that a subnormal result is rounded
 * once. */
static void tci_math_gelu_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 14.5), tci_math_1(m, TCI_P_ABS, x));
    int minus_a = tci_math_1(m, TCI_P_NEG, a);
    int nu = tci_math_2(m, TCI_P_MUL, a, minus_a);
    int e = tci_math_fma(m, a, a, nu); /* a^2 + nu, exact */
    int magic = tci_math_k(m, tci_math_magic + 127.0 + 64.0);
    int half_log2e = tci_math_k(m, 0x1.715476p-1);
    int sum = tci_math_fma(m, nu, half_log2e, magic);
    int r = tci_math_fma(m, nu, half_log2e, tci_math_2(m, TCI_P_SUB, magic, sum));
    r = tci_math_fma(m, nu, tci_math_k(m, 0x1.4ae0cp-27), r);
    r = tci_math_fma(m, e, tci_math_k(m, -0x1.715476p-1), r);
    int p = tci_math_poly(m, r, tci_math_exp2_c, TCI_COUNT(tci_math_exp2_c));
    p = tci_math_2(m, TCI_P_MUL, p, tci_math_exp2i(m, sum));
    int top = tci_math_poly(m, a, tci_math_mills_n, TCI_COUNT(tci_math_mills_n));
    int bottom = tci_math_poly(m, a, tci_math_mills_d, TCI_COUNT(tci_math_mills_d));
    int phi = tci_math_2(m, TCI_P_DIV, tci_math_2(m, TCI_P_MUL, p, top), bottom);
    int relu = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, 0.0), x);
    tci_math_fma(m, tci_math_2(m, TCI_P_MUL, phi, minus_a), tci_math_k(m, 0x1p-64), relu);
}

/* A helper for every lane. */
static void tci_math_whole(tci_math *m, tci_helper_id id)
{
    tci_value yes = {.i = 1};
    int a = tci_math_arg(m, 0);
    int b = tci_helper_get(id)->arity == 2 ? tci_math_arg(m, 1) : 0;
    tci_math_lane1(m, id, a, b, tci_math_const(m, TC_BOOL, yes));
}

/* ---- the table ---- */

static void tci_math_build_f32(tci_math *m, tci_prim p)
{
    switch (p) {
    case TCI_P_EXP:
        tci_math_exp_f32(m);
        break;
    case TCI_P_LOG:
        tci_math_log_f32(m);
        break;
    case TCI_P_SIN:
        tci_math_trig_f32(m, false);
        break;
    case TCI_P_COS:
        tci_math_trig_f32(m, true);
        break;
    case TCI_P_TANH:
        tci_math_tanh_f32(m);
        break;
    case TCI_P_ERF:
        tci_math_erf_f32(m);
        break;
    case TCI_P_SIGMOID:
        tci_math_sigmoid_f32(m);
        break;
    case TCI_P_GELU:
        tci_math_gelu_f32(m);
        break;
    default:
        tci_math_whole(m, TCI_H_POW_F32);
        break;
    }
}

#define TCI_MATH_ROW(id, name, arity, result, cost) TCI_H_##id##_F64,
static const tci_helper_id tci_math_f64_helper[] = {TCI_MATH_PRIMS(TCI_MATH_ROW)};
#undef TCI_MATH_ROW

static void tci_math_build(void)
{
    for (int row = 0; row < TCI_P_COUNT - TCI_P_BASE_COUNT; row++) {
        for (int wide = 0; wide < 2; wide++) {
            tci_math m = {.insts = tci_math_insts[row][wide],
                          .t = wide ? TC_F64 : TC_F32,
                          .bits = wide ? TC_I64 : TC_I32};
            if (wide) {
                tci_math_whole(&m, tci_math_f64_helper[row]);
            } else {
                tci_math_build_f32(&m, (tci_prim)(TCI_P_BASE_COUNT + row));
            }
            tci_math_recipes[row][wide].insts = m.insts;
            tci_math_recipes[row][wide].n = m.n;
        }
    }
}

TCI_FN const tci_recipe *tci_math_recipe(tci_prim p, tc_dtype t)
{
    pthread_once(&tci_math_once, tci_math_build);
    return &tci_math_recipes[p - TCI_P_BASE_COUNT][t == TC_F64];
}

/* ---- src/graph/node.c ---- */
/* graph/node.c - nodes: made, found again, ordered, forgotten.
 *
 * In: an op with its inputs, shape and attributes. Out: the one node that stands for them.
 * The one idea: building is hash-consing, so an expression built twice is one node, and comparing nodes is
 * comparing pointers. INPUT, DATA and LITERAL are never merged: each is a thing of its own.
 *
 * Memory: a node and its lists are one block. In a context's graph, blocks come from free lists by size
 * (multiples of TCI_NODE_GRAIN bytes, cut from slabs), so that a loop over scopes reuses the same memory;
 * larger blocks come straight from the allocator. In a compile's graph all is scratch.
 * Ids: a slot is reused after its node was dropped, under a higher generation; a handle that still
 * holds the old generation reads as dead. */
/* ---- src/graph/node.h ---- */
/* graph/node.h - the graph: a hash-consed SSA DAG of ops.
 *
 * Invariants (checked by graph/verify.c):
 *  - inputs precede users; shapes have no negative size; element counts fit int64
 *  - equal (op, dtype, inputs, attributes, shape) is one node, except LITERAL, INPUT and DATA
 *  - elementwise operands have one dtype (builders insert CAST) and one shape (builders insert
 *    RESHAPE + EXPAND); movement nodes keep their input's dtype
 *  - REDUCE, ARG and SCAN nodes drop or keep exactly the axes their attributes say
 *
 * Attributes by op (int64 words, all part of every key):
 *   REDUCE rows      the reduced axes, ascending; result drops them (keepdims is a RESHAPE on top).
 *                    ARGMAX, ARGMIN: one axis
 *   IOTA             none; shape [n], i64
 *   RESHAPE, EXPAND  none (the shape says it; EXPAND keeps the rank)
 *   PERMUTE          rank words: output axis i is input axis attr[i]
 *   SLICE            2 * rank words: start, step per axis (flip: start n-1, step -1)
 *   PAD              rank words: how many before each axis (negative crops); input 1 is the 0-d fill
 *   CAT              axis          GATHER  axis; inputs x, index (any integer dtype); shape of index;
 *                    index.shape[d] <= x.shape[d] off the axis. -n..-1 count from the end; an index
 *                    outside makes the run return TC_ERR_INDEX (the element is then 0)
 *   WINDOW           4 words per windowed axis: axis, kernel, stride, dilation. Output: input axes with
 *                    the windowed sizes replaced by floor((n - d*(k-1) - 1)/s) + 1, then one axis of
 *                    size kernel per entry, appended in order: out[.., o, .., k] = in[.., o*s + k*d, ..]
 *   SCAN             axis          (running sum, inclusive)
 *   CONTRACT         rank_a, rank_b, rank_out, then a label per axis of a, b and out. Labels are small
 *                    ints; equal labels have equal sizes; a label missing from out is summed. Result
 *                    dtype = operand dtype; accumulates in its compute dtype (integers wrap)
 *   SOFTMAX, LOG_SOFTMAX   axis     MEAN  axes ascending
 *   LAYER_NORM       n_axes, axes, has_weight, has_bias; inputs x, eps (0-d f64 literal), weight?, bias?
 *   CROSS_ENTROPY    none; logits [N, C] or [N, C, ...] or [C]; target of class indices */
#ifndef TCI_GRAPH_NODE_H
#define TCI_GRAPH_NODE_H

/* ---- src/ops/table.h ---- */
/* ops/table.h - THE op rows. From them come the enum, prototypes and macros of the public calls, checks,
 * lowering, the interpreter, gradients, tests, the fuzz list and the README's op table.
 *
 * Elementwise row: X(ID, name, arity, rule, flags, value, doc)
 *   rule   dtype of operands and result after promotion P of the operands:
 *          SAME  P -> P          FLOAT  P, integers and bool become f32 -> same
 *          COMPARE  P -> bool    LOGIC  each operand to bool -> bool
 *          NUMERIC  like SAME but bool is refused
 *   flags  C commutes, Z maps zero to zero, M monotone, - none
 *   value  nested neutral calls over A, B, C: op(...) names a prim; K(x) is the constant x in the
 *          operands' dtype. Nothing else: no operator, no literal, no ?:. The whole value is computed
 *          in the compute dtype and rounded once to the result dtype.
 * Reduce row: X(ID, name, result rule, identity, doc)
 *   rule   SAME; SUM (bool and integers -> i64, f16 and bf16 accumulate in f32); INDEX (-> i64); BOOL
 * Special rows: X(ID, name, doc): movement and the ops with their own functions; tci_shape_ID etc. are
 *   pasted from the id, so a missing one does not compile.
 * Composite rows: X(ID, name, doc): expanded into rows above by tci_expand_ID (ops/composite). */
#ifndef TCI_OPS_TABLE_H
#define TCI_OPS_TABLE_H

#define TCI_EW_OPS(X)                                                                              \
    X(NEG, neg, 1, NUMERIC, Z, NEG(A), "-a")                                                       \
    X(ABS, abs, 1, NUMERIC, Z, ABS(A), "|a|")                                                      \
    X(EXP, exp, 1, FLOAT, M, EXP(A), "e to the a")                                                 \
    X(LOG, log, 1, FLOAT, M, LOG(A), "natural logarithm")                                          \
    X(SQRT, sqrt, 1, FLOAT, M, SQRT(A), "square root")                                             \
    X(RSQRT, rsqrt, 1, FLOAT, M, DIV(K(1), SQRT(A)), "1 / sqrt(a)")                                \
    X(RECIPROCAL, reciprocal, 1, FLOAT, M, DIV(K(1), A), "1 / a")                                  \
    X(SQUARE, square, 1, SAME, Z, MUL(A, A), "a * a")                                              \
    X(SIN, sin, 1, FLOAT, Z, SIN(A), "sine of a in radians")                                       \
    X(COS, cos, 1, FLOAT, -, COS(A), "cosine of a in radians")                                     \
    X(TANH, tanh, 1, FLOAT, Z, TANH(A), "hyperbolic tangent")                                      \
    X(SIGMOID, sigmoid, 1, FLOAT, M, SIGMOID(A), "1 / (1 + exp(-a))")                              \
    X(SILU, silu, 1, FLOAT, Z, MUL(A, SIGMOID(A)), "a * sigmoid(a)")                               \
    X(ERF, erf, 1, FLOAT, Z, ERF(A), "error function")                                             \
    X(GELU, gelu, 1, FLOAT, Z, GELU(A), "a * (1 + erf(a / sqrt 2)) / 2")                           \
    X(RELU, relu, 1, NUMERIC, Z, MAX(A, K(0)), "max(a, 0), NaN stays")                             \
    X(FLOOR, floor, 1, NUMERIC, M, FLOOR(A), "largest integer not above")                          \
    X(CEIL, ceil, 1, NUMERIC, M, CEIL(A), "smallest integer not below")                            \
    X(TRUNC, trunc, 1, NUMERIC, M, TRUNC(A), "towards zero")                                       \
    X(ROUND, round, 1, NUMERIC, M, RINT(A), "nearest integer, ties to even")                       \
    X(ISNAN, isnan, 1, COMPARE, -, NE(A, A), "a is NaN")                                           \
    X(LOGICAL_NOT, logical_not, 1, LOGIC, -, NOT(A), "a == 0")                                     \
    X(ADD, add, 2, SAME, C, ADD(A, B), "a + b")                                                    \
    X(SUB, sub, 2, NUMERIC, -, SUB(A, B), "a - b")                                                 \
    X(MUL, mul, 2, SAME, C, MUL(A, B), "a * b")                                                    \
    X(DIV, div, 2, FLOAT, -, DIV(A, B), "a / b, always in floats")                                 \
    X(POW, pow, 2, NUMERIC, -, POW(A, B), "a to the b")                                            \
    X(MAXIMUM, maximum, 2, SAME, C, MAX(A, B), "the larger; NaN if either is")                     \
    X(MINIMUM, minimum, 2, SAME, C, MIN(A, B), "the smaller; NaN if either is")                    \
    X(REMAINDER, remainder, 2, NUMERIC, -, MODULO(A, B), "a - b * floor(a / b), sign of b")        \
    X(EQ, eq, 2, COMPARE, C, EQ(A, B), "a == b")                                                   \
    X(NE, ne, 2, COMPARE, C, NE(A, B), "a != b")                                                   \
    X(LT, lt, 2, COMPARE, -, LT(A, B), "a < b")                                                    \
    X(LE, le, 2, COMPARE, -, LE(A, B), "a <= b")                                                   \
    X(GT, gt, 2, COMPARE, -, LT(B, A), "a > b")                                                    \
    X(GE, ge, 2, COMPARE, -, LE(B, A), "a >= b")                                                   \
    X(LOGICAL_AND, logical_and, 2, LOGIC, C, AND(A, B), "both nonzero")                            \
    X(LOGICAL_OR, logical_or, 2, LOGIC, C, OR(A, B), "either nonzero")

#define TCI_REDUCE_OPS(X)                                                                          \
    X(SUM, sum, SUM, 0, "sum over the axes")                                                       \
    X(PROD, prod, SUM, 1, "product over the axes")                                                 \
    X(MAX, max, SAME, LOWEST, "largest over the axes; NaN if any is")                              \
    X(MIN, min, SAME, HIGHEST, "smallest over the axes; NaN if any is")                            \
    X(ANY, any, BOOL, 0, "any nonzero")                                                            \
    X(ALL, all, BOOL, 1, "all nonzero")                                                            \
    X(ARGMAX, argmax, INDEX, LOWEST, "index of the first largest (first NaN wins)")                \
    X(ARGMIN, argmin, INDEX, HIGHEST, "index of the first smallest (first NaN wins)")

/* Shapes and attributes as graph/node.h describes. */
#define TCI_SPECIAL_OPS(X)                                                                         \
    X(INPUT, input, "named placeholder, bound at run")                                             \
    X(DATA, data, "leaf with memory: borrowed, copied or an evaluated value")                      \
    X(LITERAL, literal, "0-d number given in C: a slot filled at run time")                        \
    X(CONST, const, "0-d number known to the compiler: 0, 1, -1, 2, 0.5 and fills made by tc")     \
    X(IOTA, iota, "0, 1, 2 ... along one axis, i64")                                               \
    X(WHERE, where, "c ? a : b")                                                                   \
    X(CAST, cast, "dtype conversion with tc's defined corners")                                    \
    X(RESHAPE, reshape, "same elements, row-major order, other shape")                             \
    X(PERMUTE, permute, "axes in another order")                                                   \
    X(EXPAND, expand, "axes of size 1 repeated, without a copy")                                   \
    X(SLICE, slice, "start and step per axis; negative steps walk backwards")                      \
    X(PAD, pad, "fill around, or crop where negative")                                             \
    X(CAT, cat, "joined along an axis")                                                            \
    X(WINDOW, window, "sliding windows along axes as extra axes")                                  \
    X(GATHER, gather, "x read at an index tensor along an axis")                                   \
    X(SCAN, scan, "running sum along an axis")                                                     \
    X(CONTRACT, contract, "sum of products over labelled axes (einsum of two operands)")

#define TCI_COMPOSITE_OPS(X)                                                                       \
    X(SOFTMAX, softmax, "exp(x - max) / sum along an axis")                                        \
    X(LOG_SOFTMAX, log_softmax, "x - max - log(sum(exp(x - max))) along an axis")                  \
    X(MEAN, mean, "sum / count over axes")                                                         \
    X(LAYER_NORM, layer_norm, "(x - mean) / sqrt(var + eps) * weight + bias over axes")            \
    X(CROSS_ENTROPY, cross_entropy, "mean of -log_softmax(logits)[target]")

#endif

/* ---- src/graph/node.h, continued ---- */
typedef int64_t tci_dim; /* one size; a value or a symbol once sizes may be symbolic */

typedef enum tci_op {
#define X(id, ...) TCI_OP_##id,
    TCI_EW_OPS(X) TCI_OP_EW_END,
    TCI_OP_REDUCE_FIRST_ = TCI_OP_EW_END - 1,
    TCI_REDUCE_OPS(X) TCI_OP_REDUCE_END,
    TCI_OP_SPECIAL_FIRST_ = TCI_OP_REDUCE_END - 1,
    TCI_SPECIAL_OPS(X) TCI_OP_SPECIAL_END,
    TCI_OP_COMPOSITE_FIRST_ = TCI_OP_SPECIAL_END - 1,
    TCI_COMPOSITE_OPS(X)
#undef X
        TCI_OP_COUNT
} tci_op;
static inline bool tci_op_is_ew(int op) { return op < TCI_OP_EW_END; }
static inline bool tci_op_is_reduce(int op) { return op >= TCI_OP_EW_END && op < TCI_OP_REDUCE_END; }
static inline bool tci_op_is_composite(int op) { return op >= TCI_OP_SPECIAL_END; }
TCI_FN const char *tci_op_name(int op);

/* Tensor memory, counted. Borrowed memory belongs to the user. */
typedef struct tci_storage {
    int32_t refs;      /* changed only under the rules of run/buffer.c */
    bool borrowed;
    void *data;
    int64_t bytes;
    uint64_t version;  /* raised by tc_touch */
} tci_storage;

typedef struct tci_node {
    uint16_t op;
    uint8_t dtype;            /* tc_dtype */
    uint8_t mark;             /* free for the pass that runs; 0 between passes */
    int32_t rank, n_in, n_attr;
    struct tci_node **in;
    tci_dim *shape;
    int64_t *attr;
    uint32_t id;              /* slot in its graph; ascending in creation order inside a compile's graph */
    uint32_t generation, scope;
    uint32_t n_users;         /* nodes of this graph that have it as an input, counted per operand */
    uint64_t hash;            /* of (op, dtype, shape, inputs, attributes) */
    struct tci_node *next;    /* hash bucket chain */
    struct tci_node *scope_next;
    tci_value value;          /* LITERAL, CONST: the number in `dtype`; INPUT: counts up with each one made */
    tci_storage *storage;     /* DATA, and any node once evaluated; else NULL */
    tci_dim *strides;         /* DATA: elements per axis, may be 0 or negative; NULL = dense */
    int64_t offset;           /* DATA: elements from storage->data to element 0...0 */
    const char *name;         /* INPUT */
    tc_site site;             /* the user's line that made it */
    void *pass;               /* free for the pass that runs */
} tci_node;

static inline int64_t tci_node_count(const tci_node *n)
{
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) {
        count *= n->shape[i];
    }
    return count;
}

/* A graph: nodes, their hash table, and where memory comes from. A context owns one with scopes; a
 * compile makes one in its scratch (scratch != NULL: allocation cannot fail, scopes are unused). */
typedef struct tci_graph {
    tci_scratch *scratch;
    const tc_allocator *alloc;   /* when scratch is NULL */
    tci_node **slots;            /* by id; NULL where free */
    uint32_t *generations;       /* by id */
    uint32_t n_slots, cap_slots, free_slot; /* free_slot: head of the free list, UINT32_MAX: none */
    uint32_t *free_next;
    tci_node **buckets;
    uint32_t n_buckets, n_nodes;
    tci_node **scope_heads;      /* nodes of each open scope, newest first */
    int n_scopes, cap_scopes;
    void *pools[24];             /* free lists of node memory by size class */
    void *slabs;                 /* memory those lists are cut from, newest first */
    char *slab_next, *slab_end;  /* uncut part of the newest slab */
    uint32_t first_generation;   /* of a fresh slot: tells handles of a reused context apart */
    tc_site site;                /* stamped on new nodes: the public call that is under way */
    uint64_t n_inputs_made;      /* INPUT nodes so far: their order of creation */
    int64_t bytes;
    tc_status error;             /* of the last builder that returned NULL */
    char message[512];
} tci_graph;

/* Finds or makes a node. in, shape, attr are copied. NULL: out of memory (g->error set). */
TCI_FN tci_node *tci_graph_node(tci_graph *g, int op, tc_dtype dtype, int rank, const tci_dim *shape, int n_in,
                                tci_node *const *in, int n_attr, const int64_t *attr);
TCI_FN tci_node *tci_graph_literal(tci_graph *g, tc_dtype dtype, tci_value v); /* folds the five values */
TCI_FN tci_node *tci_graph_const(tci_graph *g, tc_dtype dtype, tci_value v);
TCI_FN void tci_graph_init(tci_graph *g, tci_scratch *scratch, const tc_allocator *alloc);
TCI_FN void tci_graph_deinit(tci_graph *g);
TCI_FN void tci_graph_drop(tci_graph *g, tci_node *n);    /* forget one node (scope end, replaced keep) */
TCI_FN bool tci_graph_open_scope(tci_graph *g);           /* false: out of memory. Closing: api/scope.c */
TCI_FN void *tci_graph_resize(tci_graph *g, void *p, size_t old_bytes, size_t new_bytes); /* its memory */
TCI_FN tc_status tci_graph_fail(tci_graph *g, tc_status why, const char *format, ...) TCI_PRINTF(3, 4);

/* Visits every node that `roots` need, inputs first. List in scratch. */
typedef struct tci_node_list { tci_node **items; int n, cap; } tci_node_list;
TCI_FN tci_node_list tci_graph_sort(tci_scratch *s, tci_node *const *roots, int n_roots);

/* graph/print.c: text of the nodes a set of roots needs, in a stable form; graph/verify.c. */
TCI_FN void tci_graph_print(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots);
TCI_FN void tci_graph_print_dot(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots);
TCI_FN void tci_graph_print_shape(char *text, size_t room, int rank, const tci_dim *shape); /* "[3, 4]" */
TCI_FN void tci_graph_verify(tci_scratch *s, tci_node *const *roots, int n_roots); /* escapes on a breach */

#endif

/* ---- src/graph/node.c, continued ---- */
#include <stdarg.h>
#include <string.h>

enum {
    TCI_NODE_GRAIN = 32,
    TCI_NODE_SLAB_BYTES = 1 << 16,
    TCI_NODE_FIRST_BUCKETS = 64,
    TCI_NODE_FIRST_SLOTS = 64
};
#define TCI_NODE_LAST_ID 0xBFFFFFF0u /* above lie the ids of poisoned handles (run/context.h) */

typedef struct tci_node_slab {
    struct tci_node_slab *next;
    size_t bytes;
} tci_node_slab;

/* What a node is looked up by. */
typedef struct tci_node_want {
    int op, rank, n_in, n_attr;
    tc_dtype dtype;
    const tci_dim *shape;
    tci_node *const *in;
    const int64_t *attr;
    tci_value value;
    uint64_t hash;
} tci_node_want;

TCI_FN const char *tci_op_name(int op)
{
    static const char *const names[] = {
#define X(id, name, ...) [TCI_OP_##id] = #name,
        TCI_EW_OPS(X) TCI_REDUCE_OPS(X) TCI_SPECIAL_OPS(X) TCI_COMPOSITE_OPS(X)
#undef X
    };
    return op >= 0 && op < TCI_OP_COUNT ? names[op] : "?";
}

TCI_FN tc_status tci_graph_fail(tci_graph *g, tc_status why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(g->message, sizeof(g->message), format, args);
    va_end(args);
    g->error = why;
    return why;
}

/* ---- memory ---- */

TCI_FN void *tci_graph_resize(tci_graph *g, void *p, size_t old_bytes, size_t new_bytes)
{
    if (!p && !new_bytes) {
        return NULL;
    }
    if (g->scratch) {
        void *r = new_bytes ? tci_scratch_get(g->scratch, new_bytes) : NULL;
        if (r && old_bytes) {
            memcpy(r, p, TCI_MIN(old_bytes, new_bytes));
        }
        return r;
    }
    void *r = tci_alloc_resize(g->alloc, p, old_bytes, new_bytes);
    if (!r && new_bytes) {
        tci_graph_fail(g, TC_ERR_MEMORY, "out of memory: %zu bytes for the graph", new_bytes);
        return NULL;
    }
    g->bytes += (int64_t)new_bytes - (int64_t)old_bytes;
    return r;
}

static size_t tci_node_bytes(int rank, int n_in, int n_attr)
{
    size_t words = (size_t)rank + (size_t)n_in + (size_t)n_attr;
    size_t bytes = sizeof(tci_node) + words * sizeof(int64_t);
    return (bytes + TCI_NODE_GRAIN - 1) / TCI_NODE_GRAIN * TCI_NODE_GRAIN;
}

/* The free list of a block size, or NULL for one that the allocator serves. */
static void **tci_node_pool(tci_graph *g, size_t bytes)
{
    size_t first = sizeof(tci_node) / TCI_NODE_GRAIN;
    size_t class = bytes / TCI_NODE_GRAIN - first;
    return class < TCI_COUNT(g->pools) ? &g->pools[class] : NULL;
}

static void *tci_node_cut(tci_graph *g, size_t bytes)
{
    if ((size_t)(g->slab_end - g->slab_next) < bytes) {
        tci_node_slab *slab = tci_graph_resize(g, NULL, 0, TCI_NODE_SLAB_BYTES);
        if (!slab) {
            return NULL;
        }
        slab->next = g->slabs;
        slab->bytes = TCI_NODE_SLAB_BYTES;
        g->slabs = slab;
        g->slab_next = (char *)slab + TCI_NODE_GRAIN;
        g->slab_end = (char *)slab + TCI_NODE_SLAB_BYTES;
    }
    void *p = g->slab_next;
    g->slab_next += bytes;
    return p;
}

static tci_node *tci_node_get_block(tci_graph *g, size_t bytes)
{
    if (g->scratch) {
        return tci_scratch_get(g->scratch, bytes);
    }
    void **pool = tci_node_pool(g, bytes);
    if (!pool) {
        return tci_graph_resize(g, NULL, 0, bytes);
    }
    if (*pool) {
        void *p = *pool;
        memcpy(pool, p, sizeof(*pool)); /* a free block begins with the link to the next one */
        return p;
    }
    return tci_node_cut(g, bytes);
}

static void tci_node_free_block(tci_graph *g, tci_node *n)
{
    size_t bytes = tci_node_bytes(n->rank, n->n_in, n->n_attr);
    void **pool = tci_node_pool(g, bytes);
    if (g->scratch) {
        return;
    }
    if (!pool) {
        tci_graph_resize(g, n, bytes, 0);
        return;
    }
    memcpy(n, pool, sizeof(*pool));
    *pool = n;
}

/* ---- slots: id -> node ---- */

static void *tci_node_regrow(tci_graph *g, const void *old, size_t old_bytes, size_t new_bytes)
{
    void *p = tci_graph_resize(g, NULL, 0, new_bytes);
    if (p && old_bytes) {
        memcpy(p, old, old_bytes);
    }
    return p;
}

/* The three arrays grow together or not at all. */
static bool tci_node_grow_slots(tci_graph *g)
{
    size_t from = g->cap_slots, to = from ? from * 2 : TCI_NODE_FIRST_SLOTS;
    if (to > TCI_NODE_LAST_ID) {
        tci_graph_fail(g, TC_ERR_LIMIT, "too many tensors are alive: %u", g->n_nodes);
        return false;
    }
    tci_node **slots = tci_node_regrow(g, g->slots, from * sizeof(*slots), to * sizeof(*slots));
    uint32_t *generations = tci_node_regrow(g, g->generations, from * sizeof(*generations),
                                            to * sizeof(*generations));
    uint32_t *next = tci_node_regrow(g, g->free_next, from * sizeof(*next), to * sizeof(*next));
    bool ok = slots && generations && next;
    size_t unused = ok ? from : to;
    void *lists[3] = {slots, generations, next};
    if (ok) {
        lists[0] = g->slots;
        lists[1] = g->generations;
        lists[2] = g->free_next;
        g->slots = slots;
        g->generations = generations;
        g->free_next = next;
        g->cap_slots = (uint32_t)to;
    }
    const size_t elem_bytes[3] = {sizeof(*slots), sizeof(*generations), sizeof(*next)};
    for (int i = 0; i < 3; i++) {
        if (lists[i]) {
            tci_graph_resize(g, lists[i], unused * elem_bytes[i], 0);
        }
    }
    return ok;
}

static bool tci_node_take_slot(tci_graph *g, uint32_t *id)
{
    if (g->free_slot != UINT32_MAX) {
        *id = g->free_slot;
        g->free_slot = g->free_next[*id];
        return true;
    }
    if (g->n_slots == g->cap_slots && !tci_node_grow_slots(g)) {
        return false;
    }
    *id = g->n_slots++;
    g->generations[*id] = g->first_generation;
    return true;
}

/* ---- hash-consing ---- */

static bool tci_node_is_unique(int op)
{
    return op == TCI_OP_INPUT || op == TCI_OP_DATA || op == TCI_OP_LITERAL;
}

static uint64_t tci_node_hash(const tci_node_want *w)
{
    uint64_t h = tci_hash_mix((uint64_t)w->op << 8 | (uint64_t)w->dtype, (uint64_t)w->rank);
    for (int i = 0; i < w->rank; i++) {
        h = tci_hash_mix(h, (uint64_t)w->shape[i]);
    }
    for (int i = 0; i < w->n_in; i++) {
        h = tci_hash_mix(h, w->in[i]->hash);
    }
    for (int i = 0; i < w->n_attr; i++) {
        h = tci_hash_mix(h, (uint64_t)w->attr[i]);
    }
    return tci_hash_mix(h, w->value.u);
}

static bool tci_node_equal(const tci_node *n, const tci_node_want *w)
{
    if (n->hash != w->hash || n->op != w->op || n->dtype != w->dtype || n->rank != w->rank ||
        n->n_in != w->n_in || n->n_attr != w->n_attr || n->value.u != w->value.u) {
        return false;
    }
    for (int i = 0; i < w->n_in; i++) {
        if (n->in[i] != w->in[i]) {
            return false;
        }
    }
    for (int i = 0; i < w->rank; i++) {
        if (n->shape[i] != w->shape[i]) {
            return false;
        }
    }
    for (int i = 0; i < w->n_attr; i++) {
        if (n->attr[i] != w->attr[i]) {
            return false;
        }
    }
    return true;
}

static bool tci_node_grow_buckets(tci_graph *g)
{
    uint32_t old = g->n_buckets, now = old ? old * 2 : TCI_NODE_FIRST_BUCKETS;
    tci_node **buckets = tci_graph_resize(g, NULL, 0, now * sizeof(*buckets));
    if (!buckets) {
        return false;
    }
    memset(buckets, 0, now * sizeof(*buckets));
    for (uint32_t i = 0; i < old; i++) {
        for (tci_node *n = g->buckets[i], *next; n; n = next) {
            next = n->next;
            n->next = buckets[n->hash & (now - 1)];
            buckets[n->hash & (now - 1)] = n;
        }
    }
    if (g->buckets) {
        tci_graph_resize(g, g->buckets, old * sizeof(*buckets), 0);
    }
    g->buckets = buckets;
    g->n_buckets = now;
    return true;
}

static tci_node *tci_node_find(const tci_graph *g, const tci_node_want *w)
{
    if (!g->n_buckets) {
        return NULL;
    }
    tci_node *n = g->buckets[w->hash & (g->n_buckets - 1)];
    while (n && !tci_node_equal(n, w)) {
        n = n->next;
    }
    return n;
}

/* ---- nodes ---- */

static void tci_node_fill(tci_node *n, const tci_node_want *w)
{
    memset(n, 0, sizeof(*n));
    n->op = (uint16_t)w->op;
    n->dtype = (uint8_t)w->dtype;
    n->rank = w->rank;
    n->n_in = w->n_in;
    n->n_attr = w->n_attr;
    n->value = w->value;
    n->hash = w->hash;
    n->shape = (tci_dim *)(n + 1);
    n->attr = n->shape + w->rank;
    n->in = (tci_node **)(n->attr + w->n_attr);
    for (int i = 0; i < w->n_in; i++) {
        n->in[i] = w->in[i];
        n->in[i]->n_users++;
    }
    if (w->rank) {
        memcpy(n->shape, w->shape, (size_t)w->rank * sizeof(*n->shape));
    }
    if (w->n_attr) {
        memcpy(n->attr, w->attr, (size_t)w->n_attr * sizeof(*n->attr));
    }
}

static tci_node *tci_node_make(tci_graph *g, tci_node_want *w)
{
    bool unique = tci_node_is_unique(w->op);
    if (g->n_nodes >= g->n_buckets && !tci_node_grow_buckets(g)) {
        return NULL;
    }
    if (!g->scratch && !g->n_scopes && !tci_graph_open_scope(g)) {
        return NULL;
    }
    uint32_t id;
    if (!tci_node_take_slot(g, &id)) {
        return NULL;
    }
    tci_node *n = tci_node_get_block(g, tci_node_bytes(w->rank, w->n_in, w->n_attr));
    if (!n) {
        g->free_next[id] = g->free_slot;
        g->free_slot = id;
        g->slots[id] = NULL;
        return NULL;
    }
    if (unique) {
        w->hash = tci_hash_mix(tci_hash_mix(w->hash, id), g->generations[id]);
        w->value.u = w->op == TCI_OP_INPUT ? ++g->n_inputs_made : w->value.u;
    }
    tci_node_fill(n, w);
    n->id = id;
    n->generation = g->generations[id];
    n->site = g->site;
    g->slots[id] = n;
    g->n_nodes++;
    if (!unique) {
        n->next = g->buckets[n->hash & (g->n_buckets - 1)];
        g->buckets[n->hash & (g->n_buckets - 1)] = n;
    }
    if (!g->scratch) {
        n->scope = (uint32_t)(g->n_scopes - 1);
        n->scope_next = g->scope_heads[n->scope];
        g->scope_heads[n->scope] = n;
    }
    return n;
}

static tci_node *tci_node_find_or_make(tci_graph *g, tci_node_want *w)
{
    w->hash = tci_node_hash(w);
    tci_node *n = tci_node_is_unique(w->op) ? NULL : tci_node_find(g, w);
    return n ? n : tci_node_make(g, w);
}

TCI_FN tci_node *tci_graph_node(tci_graph *g, int op, tc_dtype dtype, int rank, const tci_dim *shape, int n_in,
                                tci_node *const *in, int n_attr, const int64_t *attr)
{
    tci_node_want w = {.op = op, .dtype = dtype, .rank = rank, .shape = shape, .n_in = n_in, .in = in,
                       .n_attr = n_attr, .attr = attr};
    return tci_node_find_or_make(g, &w);
}

TCI_FN tci_node *tci_graph_const(tci_graph *g, tc_dtype dtype, tci_value v)
{
    tci_node_want w = {.op = TCI_OP_CONST, .dtype = dtype, .value = v};
    return tci_node_find_or_make(g, &w);
}

TCI_FN tci_node *tci_graph_literal(tci_graph *g, tc_dtype dtype, tci_value v)
{
    bool folds;
    if (tci_dtype_is_float(dtype)) {
        tci_value zero = {.f = 0.0};
        folds = v.u == zero.u || v.f == 1.0 || v.f == -1.0 || v.f == 2.0 || v.f == 0.5;
    } else {
        folds = v.i >= -1 && v.i <= 2;
    }
    if (folds) {
        return tci_graph_const(g, dtype, v);
    }
    tci_node *n = tci_graph_node(g, TCI_OP_LITERAL, dtype, 0, NULL, 0, NULL, 0, NULL);
    if (n) {
        n->value = v;
    }
    return n;
}

/* ---- life of a graph ---- */

TCI_FN void tci_graph_init(tci_graph *g, tci_scratch *scratch, const tc_allocator *alloc)
{
    memset(g, 0, sizeof(*g));
    g->scratch = scratch;
    g->alloc = alloc;
    g->free_slot = UINT32_MAX;
    g->first_generation = 1;
}

TCI_FN bool tci_graph_open_scope(tci_graph *g)
{
    if (g->n_scopes == g->cap_scopes) {
        int cap = g->cap_scopes ? g->cap_scopes * 2 : 8;
        size_t from = (size_t)g->cap_scopes * sizeof(*g->scope_heads);
        tci_node **heads = tci_graph_resize(g, g->scope_heads, from, (size_t)cap * sizeof(*heads));
        if (!heads) {
            return false;
        }
        g->scope_heads = heads;
        g->cap_scopes = cap;
    }
    g->scope_heads[g->n_scopes++] = NULL;
    return true;
}

static void tci_node_unlink(tci_graph *g, tci_node *n)
{
    if (!tci_node_is_unique(n->op)) {
        tci_node **at = &g->buckets[n->hash & (g->n_buckets - 1)];
        while (*at != n) {
            at = &(*at)->next;
        }
        *at = n->next;
    }
    if (!g->scratch) {
        tci_node **at = &g->scope_heads[n->scope];
        while (*at != n) {
            at = &(*at)->scope_next;
        }
        *at = n->scope_next;
    }
    for (int i = 0; i < n->n_in; i++) {
        n->in[i]->n_users--;
    }
}

/* Name and strides are the graph's own copies (api/leaf.c). */
static void tci_node_free_leaf(tci_graph *g, tci_node *n)
{
    if (n->name) {
        tci_graph_resize(g, (void *)(uintptr_t)n->name, strlen(n->name) + 1, 0);
    }
    if (n->strides) {
        tci_graph_resize(g, n->strides, (size_t)n->rank * sizeof(*n->strides), 0);
    }
}

TCI_FN void tci_graph_drop(tci_graph *g, tci_node *n)
{
    uint32_t id = n->id;
    tci_node_unlink(g, n);
    tci_node_free_leaf(g, n);
    tci_node_free_block(g, n);
    g->slots[id] = NULL;
    g->generations[id]++;
    g->free_next[id] = g->free_slot;
    g->free_slot = id;
    g->n_nodes--;
}

TCI_FN void tci_graph_deinit(tci_graph *g)
{
    if (g->scratch) {
        return;
    }
    for (uint32_t i = 0; i < g->n_slots; i++) {
        tci_node *n = g->slots[i];
        if (n) {
            tci_node_free_leaf(g, n);
            size_t bytes = tci_node_bytes(n->rank, n->n_in, n->n_attr);
            if (!tci_node_pool(g, bytes)) {
                tci_graph_resize(g, n, bytes, 0);
            }
        }
    }
    for (tci_node_slab *slab = g->slabs, *next; slab; slab = next) {
        next = slab->next;
        tci_graph_resize(g, slab, slab->bytes, 0);
    }
    tci_graph_resize(g, g->slots, g->cap_slots * sizeof(*g->slots), 0);
    tci_graph_resize(g, g->generations, g->cap_slots * sizeof(*g->generations), 0);
    tci_graph_resize(g, g->free_next, g->cap_slots * sizeof(*g->free_next), 0);
    tci_graph_resize(g, g->buckets, g->n_buckets * sizeof(*g->buckets), 0);
    tci_graph_resize(g, g->scope_heads, (size_t)g->cap_scopes * sizeof(*g->scope_heads), 0);
    tci_graph_init(g, NULL, g->alloc);
}

/* ---- order ---- */

typedef struct tci_node_frame {
    tci_node *node;
    int next_in;
} tci_node_frame;

/* One bit per id, grown on demand. */
typedef struct tci_node_seen {
    uint64_t *words;
    int n, cap;
} tci_node_seen;

static bool tci_node_see(tci_scratch *s, tci_node_seen *seen, uint32_t id)
{
    int word = (int)(id / 64);
    if (word >= seen->cap) {
        int old = seen->cap;
        seen->words = tci_scratch_grow(s, seen->words, old, &seen->cap, word + 1, sizeof(uint64_t));
        memset(seen->words + old, 0, (size_t)(seen->cap - old) * sizeof(uint64_t));
    }
    uint64_t bit = (uint64_t)1 << (id % 64);
    bool was = (seen->words[word] & bit) != 0;
    seen->words[word] |= bit;
    return !was;
}

/* Depth first with its own stack: a chain may be tens of thousands of nodes long. */
TCI_FN tci_node_list tci_graph_sort(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_node_list list = {NULL, 0, 0};
    tci_node_seen seen = {NULL, 0, 0};
    tci_node_frame *stack = NULL;
    int n_stack = 0, cap_stack = 0;
    for (int r = 0; r < n_roots; r++) {
        tci_node_frame first = {roots[r], 0};
        if (!tci_node_see(s, &seen, roots[r]->id)) {
            continue;
        }
        TCI_PUSH(s, stack, n_stack, cap_stack, first);
        while (n_stack) {
            tci_node_frame *top = &stack[n_stack - 1];
            if (top->next_in == top->node->n_in) {
                TCI_PUSH(s, list.items, list.n, list.cap, top->node);
                n_stack--;
                continue;
            }
            tci_node_frame in = {top->node->in[top->next_in++], 0};
            if (tci_node_see(s, &seen, in.node->id)) {
                TCI_PUSH(s, stack, n_stack, cap_stack, in);
            }
        }
    }
    return list;
}
#undef TCI_NODE_LAST_ID
/* ---- src/graph/build.c ---- */
/* graph/build.c - constructors of nodes, with the shape and dtype rules.
 *
 * In: nodes and attributes as a user gives them (negative axes, one -1 in a shape, mixed dtypes, shapes
 * that broadcast). Out: nodes as graph/node.h describes them, with every CAST, RESHAPE and EXPAND that
 * the rules imply made explicit, or NULL with g->error and g->message.
 * The one idea: after this room nothing is implicit; no later room knows what broadcasting is.
 *
 * Contractions (matmul, einsum) are in graph/contract.c, composites in ops/composite.c. Identities
 * that cost nothing to see (a reshape to the same shape) return their input; the rest is left to
 * rewrite/. Shape texts in messages are cut at TCI_BUILD_TEXT characters. */
/* ---- src/graph/build.h ---- */
/* graph/build.h - constructors on a tci_graph with the shape and dtype rules: one function per op or
 * family. The public calls (api), composites and rewrites all build through these.
 * NULL in, NULL out. On a mistake: g->error and g->message are set (what was given, what was expected;
 * the caller adds op name, file and line) and NULL is returned. Movement and reduction ops take a 0-d tensor's
 * axis 0 or -1 as a request about its one element, as torch does. */
#ifndef TCI_GRAPH_BUILD_H
#define TCI_GRAPH_BUILD_H


/* Working memory of a builder: on the stack for ordinary ranks, from the graph's memory beyond. */
typedef struct tci_words {
    int64_t own[48];
    int64_t *items;
    int n;
} tci_words;
TCI_FN int64_t *tci_words_get(tci_graph *g, tci_words *w, int n); /* zeroed; NULL: out of memory */
TCI_FN tci_node *tci_words_put(tci_graph *g, tci_words *w, tci_node *result); /* gives it back */
struct tc_conv;
struct tc_pool;

TCI_FN tci_node *tci_build_ew(tci_graph *g, int op, tci_node *const *operands); /* promotes, broadcasts */
TCI_FN tci_node *tci_build_where(tci_graph *g, tci_node *c, tci_node *a, tci_node *b);
TCI_FN tci_node *tci_build_cast(tci_graph *g, tci_node *x, tc_dtype to);
/* n_axes 0 with all = true: every axis. Negative axes count from the end. */
TCI_FN tci_node *tci_build_reduce(tci_graph *g, int op, tci_node *x, tc_axes axes, bool keepdims);
TCI_FN tci_node *tci_build_scan(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_reshape(tci_graph *g, tci_node *x, int rank, const tci_dim *shape); /* one -1 */
TCI_FN tci_node *tci_build_permute(tci_graph *g, tci_node *x, int n, const int *axes);
TCI_FN tci_node *tci_build_transpose(tci_graph *g, tci_node *x, int axis_a, int axis_b);
TCI_FN tci_node *tci_build_expand(tci_graph *g, tci_node *x, int rank, const tci_dim *shape); /* -1 keeps */
TCI_FN tci_node *tci_build_squeeze(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_unsqueeze(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_slice(tci_graph *g, tci_node *x, int axis, int64_t start, int64_t stop, int64_t step);
TCI_FN tci_node *tci_build_flip(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_pad(tci_graph *g, tci_node *x, int axis, int64_t before, int64_t after, tci_node *fill);
TCI_FN tci_node *tci_build_cat(tci_graph *g, tci_node *const *xs, int n, int axis);
TCI_FN tci_node *tci_build_gather(tci_graph *g, tci_node *x, int axis, tci_node *index);
TCI_FN tci_node *tci_build_index_select(tci_graph *g, tci_node *x, int axis, tci_node *index);
TCI_FN tci_node *tci_build_window(tci_graph *g, tci_node *x, int n, const int64_t *axis_kernel_stride_dilation);
TCI_FN tci_node *tci_build_contract(tci_graph *g, tci_node *a, const int *labels_a, tci_node *b,
                                    const int *labels_b, int rank_out, const int *labels_out);
TCI_FN tci_node *tci_build_matmul(tci_graph *g, tci_node *a, tci_node *b);
TCI_FN tci_node *tci_build_einsum(tci_graph *g, const char *spec, tci_node *const *xs, int n);
TCI_FN tci_node *tci_build_iota(tci_graph *g, tci_dim n);
TCI_FN tci_node *tci_build_pad_axes(tci_graph *g, tci_node *x, const int64_t *before, const int64_t *after,
                                    tci_node *fill); /* rank entries each */

/* The dtype that elementwise operands meet in: tensors among each other, then 0-d ones as torch's table says
 * (a 0-d tensor counts only where its kind is higher). */
TCI_FN tc_dtype tci_build_common_dtype(tci_node *const *operands, int n);
/* By the op's rule: the dtype of its operands and of its result when they meet in `common`. */
TCI_FN int tci_build_ew_arity(int op);
TCI_FN void tci_build_ew_dtypes(int op, tc_dtype common, tc_dtype *operands, tc_dtype *result);
TCI_FN tc_dtype tci_build_sum_dtype(tc_dtype x); /* of SUM, PROD and SCAN */
TCI_FN bool tci_build_axis(tci_graph *g, int axis, int rank, int *out); /* rank 0 counts as 1 */
TCI_FN bool tci_build_check_shape(tci_graph *g, int rank, const tci_dim *shape, tc_dtype dtype);
TCI_FN tci_node *tci_build_broadcast(tci_graph *g, tci_node *x, int rank, const tci_dim *shape);

/* ---- ops/composite.c ---- */
TCI_FN tci_node *tci_build_softmax(tci_graph *g, tci_node *x, int axis, bool log);
TCI_FN tci_node *tci_build_mean(tci_graph *g, tci_node *x, tc_axes axes, bool keepdims);
TCI_FN tci_node *tci_build_layer_norm(tci_graph *g, tci_node *x, tc_axes axes, tci_node *weight, tci_node *bias,
                                      tci_node *eps); /* weight, bias: NULL where left out */
TCI_FN tci_node *tci_build_cross_entropy(tci_graph *g, tci_node *logits, tci_node *target);
TCI_FN tci_node *tci_build_conv2d(tci_graph *g, tci_node *x, tci_node *w, tci_node *bias, const struct tc_conv *o);
TCI_FN tci_node *tci_build_max_pool2d(tci_graph *g, tci_node *x, const struct tc_pool *o);
/* Expansion of a composite node into rows of the table (in the same graph). */
TCI_FN tci_node *tci_expand_composite(tci_graph *g, tci_node *n);

#endif

/* ---- src/graph/build.c, continued ---- */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TCI_BUILD_TEXT = 120 };

typedef enum tci_build_rule {
    TCI_BUILD_SAME,
    TCI_BUILD_FLOAT,
    TCI_BUILD_COMPARE,
    TCI_BUILD_LOGIC,
    TCI_BUILD_NUMERIC
} tci_build_rule;

typedef struct tci_build_row {
    uint8_t arity, rule;
} tci_build_row;

static const tci_build_row tci_build_rows[] = {
#define X(id, name, arity, rule, flags, value, doc) {arity, TCI_BUILD_##rule},
    TCI_EW_OPS(X)
#undef X
};

/* ---- working memory, texts ---- */

TCI_FN int64_t *tci_words_get(tci_graph *g, tci_words *w, int n)
{
    w->n = n;
    w->items = w->own;
    if (n > TCI_COUNT(w->own)) {
        w->items = tci_graph_resize(g, NULL, 0, (size_t)n * sizeof(*w->items));
    }
    if (w->items && n > 0) {
        memset(w->items, 0, (size_t)n * sizeof(*w->items));
    }
    return w->items;
}

TCI_FN tci_node *tci_words_put(tci_graph *g, tci_words *w, tci_node *result)
{
    if (w->items && w->items != w->own) {
        tci_graph_resize(g, w->items, (size_t)w->n * sizeof(*w->items), 0);
    }
    return result;
}

TCI_FN void tci_graph_print_shape(char *text, size_t room, int rank, const tci_dim *shape)
{
    size_t n = 0;
    int i = 0;
    text[n++] = '[';
    for (; i < rank && n + 28 < room; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    }
    snprintf(text + n, room - n, "%s]", i < rank ? ", ..." : "");
}

typedef struct tci_build_text {
    char text[TCI_BUILD_TEXT];
} tci_build_text;

static tci_build_text tci_build_shape_text(int rank, const tci_dim *shape)
{
    tci_build_text t;
    tci_graph_print_shape(t.text, sizeof(t.text), rank, shape);
    return t;
}
#define TCI_BUILD_SHAPE(x) (tci_build_shape_text((x)->rank, (x)->shape).text)

static const char *tci_build_dtype_name(tc_dtype t)
{
    return tci_dtype_get(t)->name;
}

/* ---- checks ---- */

TCI_FN bool tci_build_axis(tci_graph *g, int axis, int rank, int *out)
{
    int n = rank ? rank : 1;
    if (axis < -n || axis >= n) {
        tci_graph_fail(g, TC_ERR_AXIS, "axis %d is out of range for rank %d: allowed are %d to %d", axis, rank,
                       -n, n - 1);
        return false;
    }
    *out = axis < 0 ? axis + n : axis;
    return true;
}

/* Zero sizes are left out of the product: then no stride computed from the shape overflows either. */
TCI_FN bool tci_build_check_shape(tci_graph *g, int rank, const tci_dim *shape, tc_dtype dtype)
{
    int64_t limit = INT64_MAX / TCI_MAX(tci_dtype_get(dtype)->bytes, 8);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) {
            tci_graph_fail(g, TC_ERR_SHAPE, "size %" PRId64 " of axis %d is negative in shape %s", shape[i], i,
                           tci_build_shape_text(rank, shape).text);
            return false;
        }
        int64_t size = TCI_MAX(shape[i], 1);
        if (count > limit / size) {
            tci_graph_fail(g, TC_ERR_LIMIT, "shape %s has more elements than memory can address",
                           tci_build_shape_text(rank, shape).text);
            return false;
        }
        count *= size;
    }
    return true;
}

static tci_node *tci_build_node(tci_graph *g, int op, tc_dtype dtype, int rank, const tci_dim *shape, int n_in,
                                tci_node *const *in, int n_attr, const int64_t *attr)
{
    if (!tci_build_check_shape(g, rank, shape, dtype)) {
        return NULL;
    }
    return tci_graph_node(g, op, dtype, rank, shape, n_in, in, n_attr, attr);
}

static bool tci_build_same_shape(int rank_a, const tci_dim *a, int rank_b, const tci_dim *b)
{
    return rank_a == rank_b && (!rank_a || !memcmp(a, b, (size_t)rank_a * sizeof(*a)));
}

/* ---- dtypes ---- */

static int tci_build_kind(tc_dtype t)
{
    return tci_dtype_is_float(t) ? 2 : t == TC_BOOL ? 0 : 1;
}

TCI_FN tc_dtype tci_build_common_dtype(tci_node *const *operands, int n)
{
    tc_dtype sized = TC_DTYPE_COUNT, scalar = TC_DTYPE_COUNT;
    for (int i = 0; i < n; i++) {
        tc_dtype *to = operands[i]->rank ? &sized : &scalar;
        tc_dtype t = (tc_dtype)operands[i]->dtype;
        *to = *to == TC_DTYPE_COUNT ? t : tci_dtype_promote(*to, t);
    }
    if (sized == TC_DTYPE_COUNT || scalar == TC_DTYPE_COUNT) {
        return sized == TC_DTYPE_COUNT ? scalar : sized;
    }
    return tci_build_kind(sized) >= tci_build_kind(scalar) ? sized : tci_dtype_promote(sized, scalar);
}

TCI_FN int tci_build_ew_arity(int op)
{
    return tci_build_rows[op].arity;
}

TCI_FN void tci_build_ew_dtypes(int op, tc_dtype common, tc_dtype *operands, tc_dtype *result)
{
    int rule = tci_build_rows[op].rule;
    *operands = common;
    if (rule == TCI_BUILD_FLOAT && !tci_dtype_is_float(common)) {
        *operands = TC_F32;
    } else if (rule == TCI_BUILD_LOGIC) {
        *operands = TC_BOOL;
    }
    *result = rule == TCI_BUILD_COMPARE || rule == TCI_BUILD_LOGIC ? TC_BOOL : *operands;
}

TCI_FN tc_dtype tci_build_sum_dtype(tc_dtype x)
{
    if (tci_dtype_is_float(x)) {
        return x;
    }
    return x == TC_U16 || x == TC_U32 || x == TC_U64 ? TC_U64 : TC_I64;
}

TCI_FN tci_node *tci_build_cast(tci_graph *g, tci_node *x, tc_dtype to)
{
    if (!x) {
        return NULL;
    }
    if ((unsigned)to >= TC_DTYPE_COUNT) {
        tci_graph_fail(g, TC_ERR_DTYPE, "%d is not a dtype", (int)to);
        return NULL;
    }
    if (x->dtype == to) {
        return x;
    }
    if (x->op == TCI_OP_CONST) {
        return tci_graph_const(g, to, tci_value_cast(x->value, (tc_dtype)x->dtype, to));
    }
    return tci_graph_node(g, TCI_OP_CAST, to, x->rank, x->shape, 1, &x, 0, NULL);
}

/* ---- elementwise ---- */

/* Merges x's shape into the broadcast shape (right-aligned, `rank` axes, 1 where nothing is known yet). */
static bool tci_build_merge(tci_graph *g, int rank, tci_dim *shape, const tci_node *x, const tci_node *first)
{
    for (int i = 0; i < x->rank; i++) {
        tci_dim *have = &shape[rank - x->rank + i];
        tci_dim size = x->shape[i];
        if (*have != size && *have != 1 && size != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "shapes %s and %s do not broadcast: axis %d is %" PRId64 " against %" PRId64,
                           TCI_BUILD_SHAPE(first), TCI_BUILD_SHAPE(x), rank - x->rank + i, *have, size);
            return false;
        }
        *have = *have == 1 ? size : *have;
    }
    return true;
}

TCI_FN tci_node *tci_build_broadcast(tci_graph *g, tci_node *x, int rank, const tci_dim *shape)
{
    if (!x || tci_build_same_shape(x->rank, x->shape, rank, shape)) {
        return x;
    }
    if (x->rank < rank) {
        tci_words w;
        tci_dim *ones = tci_words_get(g, &w, rank);
        if (!ones) {
            return NULL;
        }
        for (int i = 0; i < rank; i++) {
            int from = i - (rank - x->rank);
            ones[i] = from < 0 ? 1 : x->shape[from];
        }
        x = tci_words_put(g, &w, tci_graph_node(g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, rank, ones, 1, &x, 0, NULL));
        if (!x || tci_build_same_shape(x->rank, x->shape, rank, shape)) {
            return x;
        }
    }
    return tci_build_node(g, TCI_OP_EXPAND, (tc_dtype)x->dtype, rank, shape, 1, &x, 0, NULL);
}

/* The broadcast node of `op` over n operands that already have their dtypes. */
static tci_node *tci_build_aligned(tci_graph *g, int op, tc_dtype dtype, int n, tci_node *const *operands)
{
    tci_node *in[3];
    const tci_node *first = operands[0];
    tci_words w;
    int rank = 0;
    for (int i = 0; i < n; i++) {
        rank = TCI_MAX(rank, operands[i]->rank);
        first = operands[i]->rank > first->rank ? operands[i] : first;
    }
    tci_dim *shape = tci_words_get(g, &w, rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        shape[i] = 1;
    }
    for (int i = 0; i < n; i++) {
        const tci_node *against = i == 1 ? operands[0] : first;
        if (!tci_build_merge(g, rank, shape, operands[i], against)) {
            return tci_words_put(g, &w, NULL);
        }
    }
    for (int i = 0; i < n; i++) {
        in[i] = tci_build_broadcast(g, operands[i], rank, shape);
        if (!in[i]) {
            return tci_words_put(g, &w, NULL);
        }
    }
    return tci_words_put(g, &w, tci_graph_node(g, op, dtype, rank, shape, n, in, 0, NULL));
}

/* Rounding an integer to an integer, and powers that are exact in other words. NULL: no such case. */
static tci_node *tci_build_ew_special(tci_graph *g, int op, tc_dtype operands, tci_node *const *in)
{
    bool is_float = tci_dtype_is_float(operands);
    if (!is_float && (op == TCI_OP_FLOOR || op == TCI_OP_CEIL || op == TCI_OP_TRUNC || op == TCI_OP_ROUND)) {
        return in[0];
    }
    if (op != TCI_OP_POW || in[1]->op != TCI_OP_CONST) {
        return NULL;
    }
    double power = is_float ? in[1]->value.f : (double)in[1]->value.i;
    if (power == 2.0) {
        return tci_build_aligned(g, TCI_OP_SQUARE, operands, 1, in);
    }
    if (power == -1.0 && is_float) {
        return tci_build_aligned(g, TCI_OP_RECIPROCAL, operands, 1, in);
    }
    return power == 1.0 ? in[0] : NULL;
}

TCI_FN tci_node *tci_build_ew(tci_graph *g, int op, tci_node *const *operands)
{
    int n = tci_build_rows[op].arity;
    tci_node *in[3];
    for (int i = 0; i < n; i++) {
        if (!operands[i]) {
            return NULL;
        }
    }
    tc_dtype dtype, result;
    tc_dtype common = tci_build_common_dtype(operands, n);
    tci_build_ew_dtypes(op, common, &dtype, &result);
    if (common == TC_BOOL && tci_build_rows[op].rule == TCI_BUILD_NUMERIC) {
        tci_graph_fail(g, TC_ERR_DTYPE, "bool has no %s: given bool, expected integers or floats (tc_cast makes them)",
                       tci_op_name(op));
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        in[i] = tci_build_cast(g, operands[i], dtype);
        if (!in[i]) {
            return NULL;
        }
    }
    tci_node *special = tci_build_ew_special(g, op, dtype, in);
    return special ? special : tci_build_aligned(g, op, result, n, in);
}

TCI_FN tci_node *tci_build_where(tci_graph *g, tci_node *c, tci_node *a, tci_node *b)
{
    if (!c || !a || !b) {
        return NULL;
    }
    tci_node *values[2] = {a, b};
    tc_dtype dtype = tci_build_common_dtype(values, 2);
    tci_node *in[3] = {tci_build_cast(g, c, TC_BOOL), tci_build_cast(g, a, dtype), tci_build_cast(g, b, dtype)};
    if (!in[0] || !in[1] || !in[2]) {
        return NULL;
    }
    return tci_build_aligned(g, TCI_OP_WHERE, dtype, 3, in);
}

/* ---- reductions and scans ---- */

/* Marks the chosen axes in picked[rank]; the count of them, or -1. */
static int tci_build_pick_axes(tci_graph *g, const tci_node *x, tc_axes axes, int64_t *picked)
{
    int n = 0;
    if (axes.all) {
        for (int i = 0; i < x->rank; i++) {
            picked[i] = 1;
        }
        return x->rank;
    }
    for (int i = 0; i < axes.n; i++) {
        int axis;
        if (!tci_build_axis(g, axes.items[i], x->rank, &axis)) {
            return -1;
        }
        if (i && !x->rank) {
            tci_graph_fail(g, TC_ERR_AXIS, "axis %d is given twice", axes.items[i]);
            return -1;
        }
        if (x->rank && picked[axis]) {
            tci_graph_fail(g, TC_ERR_AXIS, "axis %d is given twice (as %d)", axis, axes.items[i]);
            return -1;
        }
        if (x->rank) {
            picked[axis] = 1;
            n++;
        }
    }
    return n;
}

/* The node of a reducing op: drops the picked axes; attributes are those axes, ascending. */
static tci_node *tci_build_drop_axes(tci_graph *g, int op, tc_dtype dtype, tci_node *x, const int64_t *picked,
                                     int n_picked)
{
    tci_words w;
    int64_t *kept = tci_words_get(g, &w, x->rank);
    if (!kept) {
        return NULL;
    }
    int64_t *dropped = kept + (x->rank - n_picked);
    int n_kept = 0, n_dropped = 0;
    for (int i = 0; i < x->rank; i++) {
        if (picked[i]) {
            dropped[n_dropped++] = i;
        } else {
            kept[n_kept++] = x->shape[i];
        }
    }
    return tci_words_put(g, &w, tci_build_node(g, op, dtype, n_kept, kept, 1, &x, n_dropped, dropped));
}

static tci_node *tci_build_keepdims(tci_graph *g, tci_node *r, const tci_node *x, const int64_t *picked)
{
    tci_words w;
    tci_dim *shape = tci_words_get(g, &w, x->rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = picked[i] ? 1 : x->shape[i];
    }
    return tci_words_put(g, &w, tci_build_reshape(g, r, x->rank, shape));
}

static bool tci_build_is_arg(int op)
{
    return op == TCI_OP_ARGMAX || op == TCI_OP_ARGMIN;
}

/* max, min, argmax and argmin have no value over nothing. */
static bool tci_build_has_identity(tci_graph *g, int op, const tci_node *x, const int64_t *picked)
{
    int64_t results = 1, empty = -1;
    for (int i = 0; i < x->rank; i++) {
        if (!picked[i]) {
            results *= x->shape[i];
        } else if (!x->shape[i]) {
            empty = i;
        }
    }
    if (empty < 0 || !results) {
        return true;
    }
    tci_graph_fail(g, TC_ERR_SHAPE, "%s over axis %d of shape %s, which has size 0, has no value",
                   tci_op_name(op), (int)empty, TCI_BUILD_SHAPE(x));
    return false;
}

static tci_node *tci_build_reduce_picked(tci_graph *g, int op, tci_node *x, const int64_t *picked, int n_picked)
{
    bool needs_one = op == TCI_OP_MAX || op == TCI_OP_MIN || tci_build_is_arg(op);
    if (needs_one && !tci_build_has_identity(g, op, x, picked)) {
        return NULL;
    }
    if (tci_build_is_arg(op)) {
        return tci_build_drop_axes(g, op, TC_I64, x, picked, n_picked);
    }
    if (op == TCI_OP_SUM || op == TCI_OP_PROD) {
        x = tci_build_cast(g, x, tci_build_sum_dtype((tc_dtype)x->dtype));
    } else if (op == TCI_OP_ANY || op == TCI_OP_ALL) {
        x = tci_build_cast(g, x, TC_BOOL);
    }
    if (!x || !n_picked) {
        return x;
    }
    return tci_build_drop_axes(g, op, (tc_dtype)x->dtype, x, picked, n_picked);
}

/* argmax and argmin take one axis: over all of x they are those of the flat x. */
static tci_node *tci_build_arg(tci_graph *g, int op, tci_node *x, tc_axes axes, bool keepdims)
{
    const int first[1] = {0};
    tc_axes axis = {first, 1, false};
    tci_dim flat = -1;
    int rank = keepdims ? x->rank : 0;
    if (!axes.all && axes.n != 1) {
        tci_graph_fail(g, TC_ERR_AXIS, "%s takes one axis: given %d", tci_op_name(op), axes.n);
        return NULL;
    }
    int checked;
    if (!axes.all && !tci_build_axis(g, axes.items[0], x->rank, &checked)) {
        return NULL;
    }
    tci_words w;
    tci_dim *ones = tci_words_get(g, &w, rank);
    if (!ones) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        ones[i] = 1;
    }
    tci_node *line = tci_build_reshape(g, x, 1, tci_node_count(x) ? &flat : (tci_dim[1]){0});
    tci_node *r = tci_build_reduce(g, op, line, axis, false);
    return tci_words_put(g, &w, tci_build_reshape(g, r, rank, ones));
}

TCI_FN tci_node *tci_build_reduce(tci_graph *g, int op, tci_node *x, tc_axes axes, bool keepdims)
{
    if (!x) {
        return NULL;
    }
    if (tci_build_is_arg(op) && (axes.all || !x->rank || axes.n != 1)) {
        return tci_build_arg(g, op, x, axes, keepdims);
    }
    tci_words w;
    int64_t *picked = tci_words_get(g, &w, x->rank);
    if (!picked) {
        return NULL;
    }
    int n_picked = tci_build_pick_axes(g, x, axes, picked);
    tci_node *r = n_picked < 0 ? NULL : tci_build_reduce_picked(g, op, x, picked, n_picked);
    if (r && keepdims) {
        r = tci_build_keepdims(g, r, x, picked);
    }
    return tci_words_put(g, &w, r);
}

TCI_FN tci_node *tci_build_mean(tci_graph *g, tci_node *x, tc_axes axes, bool keepdims)
{
    tci_words w;
    if (!x) {
        return NULL;
    }
    x = tci_dtype_is_float((tc_dtype)x->dtype) ? x : tci_build_cast(g, x, TC_F32);
    int64_t *picked = x ? tci_words_get(g, &w, x->rank) : NULL;
    if (!picked) {
        return NULL;
    }
    int n = tci_build_pick_axes(g, x, axes, picked);
    tci_node *r = n < 0 ? NULL : n == 0 ? x : tci_build_drop_axes(g, TCI_OP_MEAN, (tc_dtype)x->dtype, x, picked, n);
    if (r && keepdims) {
        r = tci_build_keepdims(g, r, x, picked);
    }
    return tci_words_put(g, &w, r);
}

TCI_FN tci_node *tci_build_scan(tci_graph *g, tci_node *x, int axis)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    x = tci_build_cast(g, x, tci_build_sum_dtype((tc_dtype)x->dtype));
    if (!x || !x->rank) {
        return x;
    }
    int64_t attr = at;
    return tci_graph_node(g, TCI_OP_SCAN, (tc_dtype)x->dtype, x->rank, x->shape, 1, &x, 1, &attr);
}

/* ---- movement ---- */

/* Copies `shape` to `out` with its one -1, if any, replaced by what is left of x's elements. */
static bool tci_build_infer_shape(tci_graph *g, const tci_node *x, int rank, const tci_dim *shape, tci_dim *out)
{
    int unknown = -1;
    for (int i = 0; i < rank; i++) {
        out[i] = shape[i];
        if (shape[i] != -1) {
            continue;
        }
        if (unknown >= 0) {
            tci_graph_fail(g, TC_ERR_SHAPE, "only one size may be -1: axes %d and %d of %s are", unknown, i,
                           tci_build_shape_text(rank, shape).text);
            return false;
        }
        unknown = i;
        out[i] = 1;
    }
    if (!tci_build_check_shape(g, rank, out, (tc_dtype)x->dtype)) {
        return false;
    }
    int64_t count = 1, have = tci_node_count(x);
    for (int i = 0; i < rank; i++) {
        count *= out[i];
    }
    if (unknown >= 0 && count && have % count == 0) {
        out[unknown] = have / count;
        return true;
    }
    if (unknown < 0 && count == have) {
        return true;
    }
    tci_graph_fail(g, TC_ERR_SHAPE, "%" PRId64 " elements of shape %s do not fit shape %s", have, TCI_BUILD_SHAPE(x),
                   tci_build_shape_text(rank, shape).text);
    return false;
}

TCI_FN tci_node *tci_build_reshape(tci_graph *g, tci_node *x, int rank, const tci_dim *shape)
{
    tci_words w;
    tci_dim *out = x ? tci_words_get(g, &w, rank) : NULL;
    if (!out) {
        return NULL;
    }
    tci_node *r = NULL;
    if (tci_build_infer_shape(g, x, rank, shape, out)) {
        bool same = tci_build_same_shape(x->rank, x->shape, rank, out);
        r = same ? x : tci_build_node(g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, rank, out, 1, &x, 0, NULL);
    }
    return tci_words_put(g, &w, r);
}

TCI_FN tci_node *tci_build_permute(tci_graph *g, tci_node *x, int n, const int *axes)
{
    if (!x) {
        return NULL;
    }
    if (n != x->rank) {
        tci_graph_fail(g, TC_ERR_AXIS, "%d axes are given for shape %s of rank %d", n, TCI_BUILD_SHAPE(x), x->rank);
        return NULL;
    }
    tci_words w;
    int64_t *order = tci_words_get(g, &w, 3 * n);
    if (!order) {
        return NULL;
    }
    int64_t *seen = order + n;
    tci_dim *shape = seen + n;
    bool identity = true;
    for (int i = 0; i < n; i++) {
        int axis;
        if (!tci_build_axis(g, axes[i], n, &axis)) {
            return tci_words_put(g, &w, NULL);
        }
        if (seen[axis]) {
            tci_graph_fail(g, TC_ERR_AXIS, "axis %d is given twice: expected each of the %d axes once", axis, n);
            return tci_words_put(g, &w, NULL);
        }
        seen[axis] = 1;
        order[i] = axis;
        shape[i] = x->shape[axis];
        identity = identity && axis == i;
    }
    if (identity) {
        return tci_words_put(g, &w, x);
    }
    return tci_words_put(g, &w, tci_graph_node(g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, n, shape, 1, &x, n, order));
}

TCI_FN tci_node *tci_build_transpose(tci_graph *g, tci_node *x, int axis_a, int axis_b)
{
    int a, b;
    if (!x || !tci_build_axis(g, axis_a, x->rank, &a) || !tci_build_axis(g, axis_b, x->rank, &b)) {
        return NULL;
    }
    if (a == b) {
        return x;
    }
    tci_words w;
    int64_t *order = tci_words_get(g, &w, 2 * x->rank);
    if (!order) {
        return NULL;
    }
    tci_dim *shape = order + x->rank;
    for (int i = 0; i < x->rank; i++) {
        order[i] = i == a ? b : i == b ? a : i;
        shape[i] = x->shape[order[i]];
    }
    return tci_words_put(g, &w, tci_graph_node(g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                                               x->rank, order));
}

TCI_FN tci_node *tci_build_expand(tci_graph *g, tci_node *x, int rank, const tci_dim *shape)
{
    tci_words w;
    tci_dim *out = x ? tci_words_get(g, &w, rank) : NULL;
    if (!out) {
        return NULL;
    }
    if (rank < x->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "shape %s has more axes than the wanted %s", TCI_BUILD_SHAPE(x),
                       tci_build_shape_text(rank, shape).text);
        return tci_words_put(g, &w, NULL);
    }
    for (int i = 0; i < rank; i++) {
        int from = i - (rank - x->rank);
        tci_dim have = from < 0 ? 1 : x->shape[from];
        out[i] = shape[i] == -1 && from >= 0 ? have : shape[i];
        if (out[i] != have && have != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE, "shape %s does not expand to %s: axis %d is %" PRId64
                           ", only size 1 repeats", TCI_BUILD_SHAPE(x), tci_build_shape_text(rank, shape).text,
                           from, have);
            return tci_words_put(g, &w, NULL);
        }
    }
    if (!tci_build_check_shape(g, rank, out, (tc_dtype)x->dtype)) {
        return tci_words_put(g, &w, NULL);
    }
    return tci_words_put(g, &w, tci_build_broadcast(g, x, rank, out));
}

TCI_FN tci_node *tci_build_squeeze(tci_graph *g, tci_node *x, int axis)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank || x->shape[at] != 1) {
        return x;
    }
    tci_words w;
    tci_dim *shape = tci_words_get(g, &w, x->rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i - (i > at)] = x->shape[i];
    }
    return tci_words_put(g, &w, tci_build_reshape(g, x, x->rank - 1, shape));
}

TCI_FN tci_node *tci_build_unsqueeze(tci_graph *g, tci_node *x, int axis)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank + 1, &at)) {
        return NULL;
    }
    tci_words w;
    tci_dim *shape = tci_words_get(g, &w, x->rank + 1);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i <= x->rank; i++) {
        shape[i] = i == at ? 1 : x->shape[i - (i > at)];
    }
    return tci_words_put(g, &w, tci_build_reshape(g, x, x->rank + 1, shape));
}

/* One axis walked from start, n elements, by step. */
static tci_node *tci_build_slice_axis(tci_graph *g, tci_node *x, int axis, int64_t start, int64_t n, int64_t step)
{
    if (start == 0 && step == 1 && n == x->shape[axis]) {
        return x;
    }
    tci_words w;
    int64_t *attr = tci_words_get(g, &w, 3 * x->rank);
    if (!attr) {
        return NULL;
    }
    tci_dim *shape = attr + 2 * x->rank;
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[i];
        attr[2 * i] = 0;
        attr[2 * i + 1] = 1;
    }
    shape[axis] = n;
    if (n > 0) {
        attr[2 * axis] = start;
        attr[2 * axis + 1] = n > 1 ? step : 1;
    }
    return tci_words_put(g, &w, tci_graph_node(g, TCI_OP_SLICE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                                               2 * x->rank, attr));
}

/* A bound of a slice as Python takes it: from the end when negative, then held within [lo, hi]. */
static int64_t tci_build_bound(int64_t v, int64_t n, int64_t lo, int64_t hi)
{
    v = v < 0 ? (v < -n ? lo : v + n) : v;
    return TCI_MIN(TCI_MAX(v, lo), hi);
}

TCI_FN tci_node *tci_build_slice(tci_graph *g, tci_node *x, int axis, int64_t start, int64_t stop, int64_t step)
{
    int at;
    if (!x) {
        return NULL;
    }
    if (!x->rank) {
        tci_graph_fail(g, TC_ERR_AXIS, "a 0-d tensor has no axis %d to slice", axis);
        return NULL;
    }
    if (!tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (step == 0) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "the step of a slice cannot be 0");
        return NULL;
    }
    int64_t n = x->shape[at], count = 0;
    if (step > 0) {
        int64_t from = tci_build_bound(start, n, 0, n), to = tci_build_bound(stop, n, 0, n);
        count = to > from ? (to - from - 1) / step + 1 : 0;
        return tci_build_slice_axis(g, x, at, from, count, step);
    }
    bool open = stop == INT64_MAX || stop == INT64_MIN;
    int64_t from = tci_build_bound(start, n, -1, n - 1), to = open ? -1 : tci_build_bound(stop, n, -1, n - 1);
    if (from > to) {
        int64_t stride = step == INT64_MIN ? INT64_MAX : -step;
        count = (from - to - 1) / stride + 1;
    }
    return tci_build_slice_axis(g, x, at, from, count, step);
}

TCI_FN tci_node *tci_build_flip(tci_graph *g, tci_node *x, int axis)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank || x->shape[at] < 2) {
        return x;
    }
    return tci_build_slice_axis(g, x, at, x->shape[at] - 1, x->shape[at], -1);
}

TCI_FN tci_node *tci_build_pad_axes(tci_graph *g, tci_node *x, const int64_t *before, const int64_t *after,
                                    tci_node *fill)
{
    if (!x || !fill) {
        return NULL;
    }
    if (fill->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the pad value has shape %s: expected a number or a 0-d tensor",
                       TCI_BUILD_SHAPE(fill));
        return NULL;
    }
    tci_words w;
    tci_dim *shape = tci_words_get(g, &w, x->rank);
    if (!shape) {
        return NULL;
    }
    bool nothing = true;
    for (int i = 0; i < x->rank; i++) {
        const int64_t limit = INT64_MAX / 8;
        bool huge = before[i] > limit || before[i] < -limit || after[i] > limit || after[i] < -limit;
        shape[i] = huge ? -1 : x->shape[i] + before[i] + after[i];
        nothing = nothing && !before[i] && !after[i];
        if (shape[i] < 0) {
            tci_graph_fail(g, huge ? TC_ERR_LIMIT : TC_ERR_SHAPE, "padding axis %d of size %" PRId64 " by %" PRId64
                           " before and %" PRId64 " after leaves no valid size", i, x->shape[i], before[i], after[i]);
            return tci_words_put(g, &w, NULL);
        }
    }
    tci_node *in[2] = {x, tci_build_cast(g, fill, (tc_dtype)x->dtype)};
    tci_node *r = x;
    if (!nothing && in[1]) {
        r = tci_build_node(g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, shape, 2, in, x->rank, before);
    }
    return tci_words_put(g, &w, in[1] ? r : NULL);
}

TCI_FN tci_node *tci_build_pad(tci_graph *g, tci_node *x, int axis, int64_t before, int64_t after, tci_node *fill)
{
    int at;
    if (!x) {
        return NULL;
    }
    if (!x->rank) {
        tci_graph_fail(g, TC_ERR_AXIS, "a 0-d tensor has no axis %d to pad", axis);
        return NULL;
    }
    tci_words w;
    if (!tci_build_axis(g, axis, x->rank, &at) || !tci_words_get(g, &w, 2 * x->rank)) {
        return NULL;
    }
    w.items[at] = before;
    w.items[x->rank + at] = after;
    return tci_words_put(g, &w, tci_build_pad_axes(g, x, w.items, w.items + x->rank, fill));
}

/* ---- cat ---- */

/* A 1-d tensor without elements joins anything and adds nothing. */
static bool tci_build_cat_skips(const tci_node *x)
{
    return x->rank == 1 && x->shape[0] == 0;
}

/* Checks the shapes; the first operand that counts in *first (NULL: none), the joined size in *size. */
static bool tci_build_cat_check(tci_graph *g, tci_node *const *xs, int n, int axis, int *at, const tci_node **first,
                                int64_t *size)
{
    *first = NULL;
    *size = 0;
    for (int i = 0; i < n; i++) {
        const tci_node *x = xs[i];
        if (!x->rank) {
            tci_graph_fail(g, TC_ERR_SHAPE, "operand %d is 0-d and cannot be concatenated (tc_unsqueeze adds an axis)",
                           i + 1);
            return false;
        }
        if (tci_build_cat_skips(x)) {
            continue;
        }
        if (!*first) {
            *first = x;
            if (!tci_build_axis(g, axis, x->rank, at)) {
                return false;
            }
        }
        bool fits = x->rank == (*first)->rank;
        for (int d = 0; fits && d < x->rank; d++) {
            fits = d == *at || x->shape[d] == (*first)->shape[d];
        }
        if (!fits) {
            tci_graph_fail(g, TC_ERR_SHAPE, "operand %d of shape %s does not fit shape %s: sizes off axis %d must be equal",
                           i + 1, TCI_BUILD_SHAPE(x), TCI_BUILD_SHAPE(*first), *at);
            return false;
        }
        if (x->shape[*at] > INT64_MAX - *size) {
            tci_graph_fail(g, TC_ERR_LIMIT, "the joined axis is too long");
            return false;
        }
        *size += x->shape[*at];
    }
    return *first || tci_build_axis(g, axis, 1, at);
}

static tci_node *tci_build_cat_join(tci_graph *g, tci_node *const *xs, int n, int at, const tci_node *first,
                                    int64_t size)
{
    tc_dtype dtype = (tc_dtype)xs[0]->dtype;
    for (int i = 1; i < n; i++) {
        dtype = tci_dtype_promote(dtype, (tc_dtype)xs[i]->dtype);
    }
    if (!first) {
        return tci_build_cast(g, xs[0], dtype);
    }
    tci_words w, parts;
    tci_dim *shape = tci_words_get(g, &w, first->rank);
    if (!shape) {
        return NULL;
    }
    if (!tci_words_get(g, &parts, n)) {
        return tci_words_put(g, &w, NULL);
    }
    _Static_assert(sizeof(tci_node *) <= sizeof(int64_t), "nodes fit words");
    tci_node **in = (tci_node **)(void *)parts.items;
    memcpy(shape, first->shape, (size_t)first->rank * sizeof(*shape));
    shape[at] = size;
    int n_in = 0;
    tci_node *r = NULL;
    for (int i = 0; i < n; i++) {
        if (!tci_build_cat_skips(xs[i])) {
            in[n_in] = tci_build_cast(g, xs[i], dtype);
            if (!in[n_in++]) {
                tci_words_put(g, &parts, NULL);
                return tci_words_put(g, &w, NULL);
            }
        }
    }
    int64_t attr = at;
    r = n_in == 1 ? in[0] : tci_build_node(g, TCI_OP_CAT, dtype, first->rank, shape, n_in, in, 1, &attr);
    tci_words_put(g, &parts, NULL);
    return tci_words_put(g, &w, r);
}

TCI_FN tci_node *tci_build_cat(tci_graph *g, tci_node *const *xs, int n, int axis)
{
    int at;
    const tci_node *first;
    int64_t size;
    if (n < 1) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "nothing to concatenate: expected at least one tensor");
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        if (!xs[i]) {
            return NULL;
        }
    }
    if (!tci_build_cat_check(g, xs, n, axis, &at, &first, &size)) {
        return NULL;
    }
    return tci_build_cat_join(g, xs, n, at, first, size);
}

/* ---- gather ---- */

static bool tci_build_check_index(tci_graph *g, const tci_node *index)
{
    if (!tci_dtype_is_int((tc_dtype)index->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "the index has dtype %s: expected an integer dtype",
                       tci_build_dtype_name((tc_dtype)index->dtype));
        return false;
    }
    return true;
}

TCI_FN tci_node *tci_build_gather(tci_graph *g, tci_node *x, int axis, tci_node *index)
{
    int at;
    if (!x || !index || !tci_build_check_index(g, index) || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank || !index->rank) {
        /* 0-d counts as one axis of one element; the result has the index's shape. */
        tci_dim one = 1;
        tci_node *x1 = x->rank ? x : tci_build_reshape(g, x, 1, &one);
        tci_node *i1 = index->rank ? index : tci_build_reshape(g, index, 1, &one);
        if (!x1 || !i1 || x1->rank != i1->rank) {
            tci_graph_fail(g, TC_ERR_SHAPE, "x of shape %s and index of shape %s: expected equal ranks",
                           TCI_BUILD_SHAPE(x), TCI_BUILD_SHAPE(index));
            return NULL;
        }
        return tci_build_reshape(g, tci_build_gather(g, x1, 0, i1), index->rank, index->shape);
    }
    bool fits = x->rank == index->rank;
    for (int i = 0; fits && i < x->rank; i++) {
        fits = i == at || index->shape[i] <= x->shape[i];
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE, "index of shape %s does not fit x of shape %s: expected equal ranks and, off "
                       "axis %d, sizes no larger than x's", TCI_BUILD_SHAPE(index), TCI_BUILD_SHAPE(x), at);
        return NULL;
    }
    if (!x->shape[at] && tci_node_count(index)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "axis %d of x has size 0: nothing can be read from it", at);
        return NULL;
    }
    tci_node *in[2] = {x, index};
    int64_t attr = at;
    return tci_build_node(g, TCI_OP_GATHER, (tc_dtype)x->dtype, index->rank, index->shape, 2, in, 1, &attr);
}

TCI_FN tci_node *tci_build_index_select(tci_graph *g, tci_node *x, int axis, tci_node *index)
{
    int at;
    if (!x || !index || !tci_build_check_index(g, index) || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (index->rank > 1) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the index has shape %s: expected one axis", TCI_BUILD_SHAPE(index));
        return NULL;
    }
    if (!x->rank) {
        if (tci_node_count(index) != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE, "a 0-d tensor takes one index: given %" PRId64, tci_node_count(index));
            return NULL;
        }
        tci_dim one = 1;
        tci_node *line = tci_build_gather(g, tci_build_reshape(g, x, 1, &one), 0, tci_build_reshape(g, index, 1, &one));
        return tci_build_reshape(g, line, 0, NULL);
    }
    tci_words w;
    tci_dim *shape = tci_words_get(g, &w, 2 * x->rank);
    if (!shape) {
        return NULL;
    }
    tci_dim *full = shape + x->rank;
    for (int i = 0; i < x->rank; i++) {
        shape[i] = i == at ? tci_node_count(index) : 1;
        full[i] = i == at ? shape[i] : x->shape[i];
    }
    tci_node *spread = tci_build_expand(g, tci_build_reshape(g, index, x->rank, shape), x->rank, full);
    return tci_words_put(g, &w, tci_build_gather(g, x, at, spread));
}

/* ---- windows, ramps ---- */

TCI_FN tci_node *tci_build_window(tci_graph *g, tci_node *x, int n, const int64_t *spec)
{
    tci_words w;
    tci_dim *shape = x ? tci_words_get(g, &w, x->rank + n) : NULL;
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[i];
    }
    for (int i = 0; i < n; i++) {
        int64_t axis = spec[4 * i], kernel = spec[4 * i + 1], stride = spec[4 * i + 2], dilation = spec[4 * i + 3];
        int64_t size = x->shape[axis];
        bool valid = kernel >= 1 && stride >= 1 && dilation >= 1;
        if (!valid || (kernel > 1 && dilation > (INT64_MAX - 1) / (kernel - 1)) ||
            dilation * (kernel - 1) + 1 > size) {
            tci_graph_fail(g, TC_ERR_SHAPE, "a window of %" PRId64 " elements (dilation %" PRId64 ", stride %" PRId64
                           ") does not fit axis %" PRId64 " of size %" PRId64 " (padding included)", kernel, dilation,
                           stride, axis, size);
            return tci_words_put(g, &w, NULL);
        }
        shape[axis] = (size - dilation * (kernel - 1) - 1) / stride + 1;
        shape[x->rank + i] = kernel;
    }
    return tci_words_put(g, &w, tci_build_node(g, TCI_OP_WINDOW, (tc_dtype)x->dtype, x->rank + n, shape, 1, &x,
                                               4 * n, spec));
}

TCI_FN tci_node *tci_build_iota(tci_graph *g, tci_dim n)
{
    return tci_build_node(g, TCI_OP_IOTA, TC_I64, 1, &n, 0, NULL, 0, NULL);
}
#undef TCI_BUILD_SHAPE
/* ---- src/graph/contract.c ---- */
/* graph/contract.c - contractions: matmul and einsum in terms of the one CONTRACT node.
 *
 * In: operands and who shares which axis. Out: CONTRACT nodes (graph/node.h) with the movement around them.
 * The one idea: every axis carries a label, a small int. Axes of size 1 that another operand has longer
 * lose their label (a reshape), so broadcasting needs no copy and CONTRACT sees equal sizes only. A
 * repeated label within one operand (a diagonal) is a reshape and a strided slice. An axis that only one
 * operand has and the result lacks is summed before the product.
 *
 * Operands of einsum are taken left to right. Several roundings would show in f16 and bf16, so whatever
 * needs more than one node computes in f32 and rounds once. */

#include <inttypes.h>
#include <string.h>

enum { TCI_CONTRACT_LETTERS = 52, TCI_CONTRACT_TEXT = 120 };

/* A tensor with a label per axis; labels is kept by the caller and changes as axes go. */
typedef struct tci_contract_term {
    tci_node *node;
    int64_t *labels;
    int n; /* equals node->rank once the node is known */
} tci_contract_term;

static int tci_contract_find(const int64_t *labels, int n, int64_t label)
{
    for (int i = 0; i < n; i++) {
        if (labels[i] == label) {
            return i;
        }
    }
    return -1;
}

/* ---- the node ---- */

static bool tci_contract_sizes(tci_graph *g, const tci_contract_term *a, const tci_contract_term *b, int rank_out,
                               const int64_t *labels_out, tci_dim *shape)
{
    for (int i = 0; i < a->n; i++) {
        int j = tci_contract_find(b->labels, b->n, a->labels[i]);
        if (j >= 0 && a->node->shape[i] != b->node->shape[j]) {
            char text_a[TCI_CONTRACT_TEXT], text_b[TCI_CONTRACT_TEXT];
            tci_graph_print_shape(text_a, sizeof(text_a), a->node->rank, a->node->shape);
            tci_graph_print_shape(text_b, sizeof(text_b), b->node->rank, b->node->shape);
            tci_graph_fail(g, TC_ERR_SHAPE, "shapes %s and %s do not fit: axis %d of the first is %" PRId64
                           ", axis %d of the second is %" PRId64, text_a, text_b, i, a->node->shape[i], j,
                           b->node->shape[j]);
            return false;
        }
    }
    for (int i = 0; i < rank_out; i++) {
        int in_a = tci_contract_find(a->labels, a->n, labels_out[i]);
        int in_b = tci_contract_find(b->labels, b->n, labels_out[i]);
        if (in_a < 0 && in_b < 0) {
            tci_graph_fail(g, TC_ERR_ARGUMENT, "axis %d of the result stands in neither operand", i);
            return false;
        }
        shape[i] = in_a >= 0 ? a->node->shape[in_a] : b->node->shape[in_b];
    }
    return true;
}

/* Writes the attributes: labels renumbered in the order of their first use, so equal contractions are
 * one node whatever letters they were written with. */
static void tci_contract_attr(const tci_contract_term *a, const tci_contract_term *b, int rank_out,
                              const int64_t *labels_out, int64_t *attr, int64_t *names)
{
    int n_names = 0, at = 3;
    const int64_t *lists[3] = {a->labels, b->labels, labels_out};
    const int counts[3] = {a->n, b->n, rank_out};
    for (int k = 0; k < 3; k++) {
        attr[k] = counts[k];
        for (int i = 0; i < counts[k]; i++) {
            int label = tci_contract_find(names, n_names, lists[k][i]);
            if (label < 0) {
                label = n_names;
                names[n_names++] = lists[k][i];
            }
            attr[at++] = label;
        }
    }
}

static tci_node *tci_contract_pair(tci_graph *g, const tci_contract_term *a, const tci_contract_term *b, int rank_out,
                                   const int64_t *labels_out)
{
    int total = a->n + b->n + rank_out;
    tci_words w;
    int64_t *attr = tci_words_get(g, &w, 3 + 2 * total + rank_out);
    if (!attr) {
        return NULL;
    }
    int64_t *names = attr + 3 + total;
    tci_dim *shape = names + total;
    tci_node *in[2] = {a->node, b->node};
    tc_dtype dtype = tci_dtype_promote((tc_dtype)a->node->dtype, (tc_dtype)b->node->dtype);
    if (!tci_contract_sizes(g, a, b, rank_out, labels_out, shape)) {
        return tci_words_put(g, &w, NULL);
    }
    if (dtype == TC_BOOL) {
        tci_graph_fail(g, TC_ERR_DTYPE, "bool has no products of sums: expected integers or floats (tc_cast makes them)");
        return tci_words_put(g, &w, NULL);
    }
    tci_contract_attr(a, b, rank_out, labels_out, attr, names);
    in[0] = tci_build_cast(g, in[0], dtype);
    in[1] = tci_build_cast(g, in[1], dtype);
    if (!in[0] || !in[1] || !tci_build_check_shape(g, rank_out, shape, dtype)) {
        return tci_words_put(g, &w, NULL);
    }
    return tci_words_put(g, &w, tci_graph_node(g, TCI_OP_CONTRACT, dtype, rank_out, shape, 2, in, 3 + total, attr));
}

TCI_FN tci_node *tci_build_contract(tci_graph *g, tci_node *a, const int *labels_a, tci_node *b, const int *labels_b,
                                    int rank_out, const int *labels_out)
{
    if (!a || !b) {
        return NULL;
    }
    tci_words w;
    int64_t *labels = tci_words_get(g, &w, a->rank + b->rank + rank_out);
    if (!labels) {
        return NULL;
    }
    tci_contract_term ta = {a, labels, a->rank}, tb = {b, labels + a->rank, b->rank};
    int64_t *out = tb.labels + b->rank;
    for (int i = 0; i < a->rank; i++) {
        ta.labels[i] = labels_a[i];
    }
    for (int i = 0; i < b->rank; i++) {
        tb.labels[i] = labels_b[i];
    }
    for (int i = 0; i < rank_out; i++) {
        out[i] = labels_out[i];
    }
    return tci_words_put(g, &w, tci_contract_pair(g, &ta, &tb, rank_out, out));
}

/* ---- terms ---- */

/* Takes away axis `at`, which has size 1. */
static bool tci_contract_drop_axis(tci_graph *g, tci_contract_term *t, int at)
{
    t->node = tci_build_squeeze(g, t->node, at);
    t->n--;
    memmove(t->labels + at, t->labels + at + 1, (size_t)(t->n - at) * sizeof(*t->labels));
    return t->node != NULL;
}

/* Axes of size 1 that meet a longer one under the same label in `other` go. */
static bool tci_contract_broadcast(tci_graph *g, tci_contract_term *t, const tci_contract_term *other)
{
    for (int i = t->n - 1; i >= 0; i--) {
        int j = tci_contract_find(other->labels, other->n, t->labels[i]);
        if (j >= 0 && t->node->shape[i] == 1 && other->node->shape[j] != 1 && !tci_contract_drop_axis(g, t, i)) {
            return false;
        }
    }
    return true;
}

/* Sums the axes that `keep` says false for. */
static bool tci_contract_sum(tci_graph *g, tci_contract_term *t, const bool *drop, int n_drop)
{
    tc_dtype dtype = (tc_dtype)t->node->dtype;
    if (!n_drop) {
        return true;
    }
    if (dtype == TC_BOOL) {
        tci_graph_fail(g, TC_ERR_DTYPE, "bool has no sums here: expected integers or floats (tc_cast makes them)");
        return false;
    }
    tci_words w;
    if (!tci_words_get(g, &w, n_drop)) {
        return false;
    }
    int *axes = (int *)(void *)w.items;
    int n_axes = 0, n_kept = 0;
    for (int i = 0; i < t->n; i++) {
        if (drop[i]) {
            axes[n_axes++] = i;
        } else {
            t->labels[n_kept++] = t->labels[i];
        }
    }
    tc_axes list = {axes, n_axes, false};
    t->n = n_kept;
    t->node = tci_build_cast(g, tci_build_reduce(g, TCI_OP_SUM, t->node, list, false), dtype);
    return tci_words_put(g, &w, t->node) != NULL;
}

/* Axes i < j of one label become their diagonal, as the last axis. */
static bool tci_contract_diagonal(tci_graph *g, tci_contract_term *t, int i, int j)
{
    tci_dim size = t->node->shape[i];
    int64_t label = t->labels[i];
    int n = t->n;
    if (size != t->node->shape[j]) {
        tci_graph_fail(g, TC_ERR_SHAPE, "a repeated label needs equal sizes: axis %d is %" PRId64 ", axis %d is %" PRId64,
                       i, size, j, t->node->shape[j]);
        return false;
    }
    tci_words w;
    if (!tci_words_get(g, &w, 2 * n)) {
        return false;
    }
    int *order = (int *)(void *)w.items;
    tci_dim *shape = w.items + n;
    int at = 0;
    for (int d = 0; d < n; d++) {
        if (d != i && d != j) {
            t->labels[at] = t->labels[d];
            shape[at] = t->node->shape[d];
            order[at++] = d;
        }
    }
    order[n - 2] = i;
    order[n - 1] = j;
    shape[n - 2] = size * size;
    t->labels[n - 2] = label;
    t->n = n - 1;
    tci_node *flat = tci_build_reshape(g, tci_build_permute(g, t->node, n, order), n - 1, shape);
    t->node = tci_build_slice(g, flat, -1, 0, INT64_MAX, size + 1);
    return tci_words_put(g, &w, t->node) != NULL;
}

static bool tci_contract_diagonals(tci_graph *g, tci_contract_term *t)
{
    for (int i = 0; i < t->n; i++) {
        int j = tci_contract_find(t->labels + i + 1, t->n - i - 1, t->labels[i]);
        if (j >= 0) {
            if (!tci_contract_diagonal(g, t, i, i + 1 + j)) {
                return false;
            }
            i = -1;
        }
    }
    return true;
}

/* ---- matmul ---- */

/* Labels: batch axes count from the right as 3, 4, ...; 0 the rows of a, 1 the summed axis, 2 the columns of b. */
static void tci_contract_matmul_labels(tci_contract_term *t, int64_t row, int64_t column)
{
    int n = t->n;
    for (int i = 0; i + 2 < n; i++) {
        t->labels[i] = 3 + (n - 3 - i);
    }
    t->labels[n - 1] = n > 1 ? column : 1;
    if (n > 1) {
        t->labels[n - 2] = row;
    }
}

TCI_FN tci_node *tci_build_matmul(tci_graph *g, tci_node *a, tci_node *b)
{
    if (!a || !b) {
        return NULL;
    }
    if (!a->rank || !b->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the %s operand is 0-d: expected at least one axis", a->rank ? "second" : "first");
        return NULL;
    }
    tci_words w;
    int64_t *labels = tci_words_get(g, &w, a->rank + b->rank + a->rank + b->rank);
    if (!labels) {
        return NULL;
    }
    tci_contract_term ta = {a, labels, a->rank}, tb = {b, labels + a->rank, b->rank};
    int64_t *out = tb.labels + b->rank;
    tci_contract_matmul_labels(&ta, 0, 1);
    tci_contract_matmul_labels(&tb, 1, 2);
    tci_dim inner_a = a->shape[a->rank - 1], inner_b = b->shape[b->rank > 1 ? b->rank - 2 : 0];
    if (inner_a != inner_b) {
        char text_a[TCI_CONTRACT_TEXT], text_b[TCI_CONTRACT_TEXT];
        tci_graph_print_shape(text_a, sizeof(text_a), a->rank, a->shape);
        tci_graph_print_shape(text_b, sizeof(text_b), b->rank, b->shape);
        tci_graph_fail(g, TC_ERR_SHAPE, "shapes %s and %s do not fit: axis %d of the first is %" PRId64
                       ", axis %d of the second is %" PRId64, text_a, text_b, a->rank - 1, inner_a,
                       b->rank > 1 ? b->rank - 2 : 0, inner_b);
        return tci_words_put(g, &w, NULL);
    }
    int rank = 0;
    for (int i = TCI_MAX(a->rank, b->rank) - 3; i >= 0; i--) {
        out[rank++] = 3 + i;
    }
    if (a->rank > 1) {
        out[rank++] = 0;
    }
    if (b->rank > 1) {
        out[rank++] = 2;
    }
    /* The summed axes are equal, so size 1 is never dropped there. */
    if (!tci_contract_broadcast(g, &ta, &tb) || !tci_contract_broadcast(g, &tb, &ta)) {
        return tci_words_put(g, &w, NULL);
    }
    return tci_words_put(g, &w, tci_contract_pair(g, &ta, &tb, rank, out));
}

/* ---- einsum ---- */

typedef struct tci_contract_parse {
    tci_graph *g;
    const char *spec;
    const char *next;
} tci_contract_parse;

static bool tci_contract_bad_spec(const tci_contract_parse *p, const char *why)
{
    tci_graph_fail(p->g, TC_ERR_ARGUMENT, "\"%.80s\": %s at character %d", p->spec, why, (int)(p->next - p->spec) + 1);
    return false;
}

static int tci_contract_letter(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    return c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

static bool tci_contract_is_dots(const char *p)
{
    return p[0] == '.' && p[1] == '.' && p[2] == '.';
}

/* Reads one operand's or the result's labels: letters, spaces, at most one "...", which stands for
 * `n_dots` axes labelled TCI_CONTRACT_LETTERS + distance from the right. Stops at ',', '-' or the end.
 * labels NULL: only counts the letters and says whether there are dots. */
static bool tci_contract_labels(tci_contract_parse *p, int n_dots, int64_t *labels, int *n_letters, bool *dots)
{
    int n = 0;
    *n_letters = 0;
    *dots = false;
    for (; *p->next && *p->next != ',' && *p->next != '-'; p->next++) {
        int letter = tci_contract_letter(*p->next);
        if (*p->next == ' ') {
            continue;
        }
        if (letter >= 0) {
            if (labels) {
                labels[n] = letter;
            }
            n++;
            (*n_letters)++;
            continue;
        }
        if (!tci_contract_is_dots(p->next) || *dots) {
            return tci_contract_bad_spec(p, "expected a letter, \"...\" once, ',' or \"->\"");
        }
        *dots = true;
        p->next += 2;
        for (int i = 0; labels && i < n_dots; i++) {
            labels[n++] = TCI_CONTRACT_LETTERS + n_dots - 1 - i;
        }
    }
    return true;
}

/* The result's labels where the spec has no "->": the dots, then in alphabetical order every letter that
 * stands once in all. */
static int tci_contract_implicit(const tci_contract_term *terms, int n_terms, int max_dots, int64_t *out)
{
    int n = 0;
    for (int i = max_dots - 1; i >= 0; i--) {
        out[n++] = TCI_CONTRACT_LETTERS + i;
    }
    for (int64_t letter = 0; letter < TCI_CONTRACT_LETTERS; letter++) {
        int uses = 0;
        for (int t = 0; t < n_terms; t++) {
            for (int i = 0; i < terms[t].n; i++) {
                uses += terms[t].labels[i] == letter;
            }
        }
        if (uses == 1) {
            out[n++] = letter;
        }
    }
    return n;
}

static bool tci_contract_parse_inputs(tci_contract_parse *p, tci_contract_term *terms, int n, int *max_dots)
{
    *max_dots = 0;
    for (int t = 0; t < n; t++) {
        int n_letters;
        bool dots;
        const char *start = p->next;
        if (!tci_contract_labels(p, 0, NULL, &n_letters, &dots)) {
            return false;
        }
        int n_dots = terms[t].node->rank - n_letters;
        if (n_dots < 0 || (n_dots && !dots)) {
            tci_graph_fail(p->g, TC_ERR_SHAPE, "\"%.80s\": operand %d has rank %d, its labels say %s%d", p->spec, t + 1,
                           terms[t].node->rank, dots ? "at least " : "", n_letters);
            return false;
        }
        p->next = start;
        if (!tci_contract_labels(p, n_dots, terms[t].labels, &n_letters, &dots)) {
            return false;
        }
        *max_dots = TCI_MAX(*max_dots, n_dots);
        if (t + 1 < n && *p->next != ',') {
            tci_graph_fail(p->g, TC_ERR_ARGUMENT, "\"%.80s\" names %d operands: given %d", p->spec, t + 1, n);
            return false;
        }
        p->next += t + 1 < n;
    }
    return *p->next != ',' || tci_contract_bad_spec(p, "more operands are named than given");
}

static bool tci_contract_parse_output(tci_contract_parse *p, const tci_contract_term *terms, int n, int max_dots,
                                      int64_t *out, int *rank)
{
    if (!*p->next) {
        *rank = tci_contract_implicit(terms, n, max_dots, out);
        return true;
    }
    if (p->next[0] != '-' || p->next[1] != '>') {
        return tci_contract_bad_spec(p, "expected \"->\"");
    }
    p->next += 2;
    int n_letters;
    bool dots;
    const char *start = p->next;
    if (!tci_contract_labels(p, max_dots, NULL, &n_letters, &dots)) {
        return false;
    }
    if (*p->next) {
        return tci_contract_bad_spec(p, "unexpected text after the result");
    }
    if (n_letters > TCI_CONTRACT_LETTERS) {
        return tci_contract_bad_spec(p, "a label stands twice in the result");
    }
    p->next = start;
    *rank = n_letters + (dots ? max_dots : 0);
    tci_contract_labels(p, max_dots, out, &n_letters, &dots);
    for (int i = 0; i < *rank; i++) {
        bool known = false;
        for (int t = 0; t < n && !known; t++) {
            known = tci_contract_find(terms[t].labels, terms[t].n, out[i]) >= 0;
        }
        if (!known || tci_contract_find(out, i, out[i]) >= 0) {
            tci_graph_fail(p->g, TC_ERR_ARGUMENT, "\"%.80s\": label %d of the result stands %s", p->spec, i + 1,
                           known ? "there twice" : "in no operand");
            return false;
        }
    }
    return true;
}

/* Sums those axes of t that nobody else needs: not the result, and none of terms[0, n) but t itself. */
static bool tci_contract_sum_own(tci_graph *g, tci_contract_term *t, const tci_contract_term *terms, int n,
                                 const int64_t *out, int rank)
{
    tci_words w;
    if (!tci_words_get(g, &w, t->n)) {
        return false;
    }
    bool *drop = (bool *)(void *)w.items;
    int n_drop = 0;
    for (int i = 0; i < t->n; i++) {
        bool needed = tci_contract_find(out, rank, t->labels[i]) >= 0;
        for (int k = 0; k < n && !needed; k++) {
            needed = &terms[k] != t && tci_contract_find(terms[k].labels, terms[k].n, t->labels[i]) >= 0;
        }
        drop[i] = !needed;
        n_drop += !needed;
    }
    bool ok = tci_contract_sum(g, t, drop, n_drop);
    tci_words_put(g, &w, NULL);
    return ok;
}

/* The single remaining term in the result's axis order. */
static tci_node *tci_contract_finish(tci_graph *g, tci_contract_term *t, const int64_t *out, int rank)
{
    if (!tci_contract_sum_own(g, t, NULL, 0, out, rank)) {
        return NULL;
    }
    tci_words w;
    if (!tci_words_get(g, &w, rank)) {
        return NULL;
    }
    int *order = (int *)(void *)w.items;
    for (int i = 0; i < rank; i++) {
        order[i] = tci_contract_find(t->labels, t->n, out[i]);
    }
    return tci_words_put(g, &w, tci_build_permute(g, t->node, rank, order));
}

/* terms[0] = terms[0] * terms[1], keeping what the result or terms[2, n) need. room: labels for the
 * product, used in turn with terms[0]'s own. */
static bool tci_contract_step(tci_graph *g, tci_contract_term *terms, int n, const int64_t *out, int rank,
                              int64_t *room)
{
    tci_contract_term *a = &terms[0], *b = &terms[1];
    if (!tci_contract_broadcast(g, a, b) || !tci_contract_broadcast(g, b, a) ||
        !tci_contract_sum_own(g, a, terms, n, out, rank) || !tci_contract_sum_own(g, b, terms, n, out, rank)) {
        return false;
    }
    int n_labels = 0;
    if (n == 2) {
        memcpy(room, out, (size_t)rank * sizeof(*out));
        n_labels = rank;
    }
    for (int s = 0; n > 2 && s < 2; s++) {
        for (int i = 0; i < terms[s].n; i++) {
            int64_t label = terms[s].labels[i];
            bool needed = tci_contract_find(out, rank, label) >= 0;
            for (int k = 2; k < n && !needed; k++) {
                needed = tci_contract_find(terms[k].labels, terms[k].n, label) >= 0;
            }
            if (needed && tci_contract_find(room, n_labels, label) < 0) {
                room[n_labels++] = label;
            }
        }
    }
    tci_node *product = tci_contract_pair(g, a, b, n_labels, room);
    memcpy(a->labels, room, (size_t)n_labels * sizeof(*room));
    a->node = product;
    a->n = n_labels;
    for (int i = 1; i + 1 < n; i++) {
        terms[i] = terms[i + 1];
    }
    return product != NULL;
}

/* Whether more than one node will round: several products, or a sum before the product. */
static bool tci_contract_rounds_twice(const tci_contract_term *terms, int n, const int64_t *out, int rank)
{
    for (int t = 0; n == 2 && t < n; t++) {
        const tci_contract_term *own = &terms[t], *other = &terms[1 - t];
        for (int i = 0; i < own->n; i++) {
            int j = tci_contract_find(other->labels, other->n, own->labels[i]);
            bool shared = j >= 0 && other->node->shape[j] == own->node->shape[i];
            if (!shared && tci_contract_find(out, rank, own->labels[i]) < 0) {
                return true;
            }
        }
    }
    return n > 2;
}

static bool tci_contract_widen(tci_graph *g, tci_contract_term *terms, int n, tc_dtype dtype, bool twice)
{
    tc_dtype wide = tci_dtype_is_half(dtype) && twice ? TC_F32 : dtype;
    for (int t = 0; t < n; t++) {
        terms[t].node = tci_build_cast(g, terms[t].node, wide);
        if (!terms[t].node || !tci_contract_diagonals(g, &terms[t])) {
            return false;
        }
    }
    return true;
}

static tci_node *tci_contract_einsum(tci_graph *g, const char *spec, tci_contract_term *terms, int n, int64_t *out,
                                     int64_t *room)
{
    tci_contract_parse p = {g, spec, spec};
    int max_dots, rank;
    if (!tci_contract_parse_inputs(&p, terms, n, &max_dots) ||
        !tci_contract_parse_output(&p, terms, n, max_dots, out, &rank)) {
        return NULL;
    }
    tc_dtype dtype = (tc_dtype)terms[0].node->dtype;
    for (int t = 1; t < n; t++) {
        dtype = tci_dtype_promote(dtype, (tc_dtype)terms[t].node->dtype);
    }
    bool twice = tci_contract_rounds_twice(terms, n, out, rank);
    if (!tci_contract_widen(g, terms, n, dtype, twice)) {
        return NULL;
    }
    for (; n > 1; n--) {
        if (!tci_contract_step(g, terms, n, out, rank, room)) {
            return NULL;
        }
    }
    return tci_build_cast(g, tci_contract_finish(g, &terms[0], out, rank), dtype);
}

TCI_FN tci_node *tci_build_einsum(tci_graph *g, const char *spec, tci_node *const *xs, int n)
{
    if (!spec || n < 1) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "%s", spec ? "no operands are given" : "the specification is NULL");
        return NULL;
    }
    int total = 0, max_rank = 0;
    for (int t = 0; t < n; t++) {
        if (!xs[t]) {
            return NULL;
        }
        max_rank = TCI_MAX(max_rank, xs[t]->rank);
        total += xs[t]->rank;
    }
    /* The product of two terms never has more labels than letters and dots. */
    int most = TCI_CONTRACT_LETTERS + max_rank;
    const int term_words = (int)((sizeof(tci_contract_term) + sizeof(int64_t) - 1) / sizeof(int64_t));
    tci_words w;
    if (!tci_words_get(g, &w, n * term_words + total + 3 * most)) {
        return NULL;
    }
    tci_contract_term *terms = (tci_contract_term *)(void *)w.items;
    int64_t *labels = w.items + n * term_words;
    int64_t *out = labels, *room = labels + most, *rest = labels + 2 * most;
    for (int t = 0; t < n; t++) {
        terms[t] = (tci_contract_term){xs[t], rest, xs[t]->rank};
        rest += t ? xs[t]->rank : most;
    }
    return tci_words_put(g, &w, tci_contract_einsum(g, spec, terms, n, out, room));
}
/* ---- src/graph/print.c ---- */
/* graph/print.c - the text of a graph: for dumps, golden tests and error reports.
 *
 * In: roots. Out: one line a node, inputs first, numbered in that order; the same graph gives the same text
 * in every process (no address, no id). A line reads
 *     %2 = reduce-row f32 [3] (%1) {1}
 * with the inputs in parentheses and the attributes in braces; the last line names the roots. The
 * other form is Graphviz. */

#include <inttypes.h>

enum { TCI_PRINT_SHAPE_TEXT = 400 };

/* Position in the sorted list by node id. */
static int *tci_print_numbers(tci_scratch *s, const tci_node_list *list)
{
    uint32_t max_id = 0;
    for (int i = 0; i < list->n; i++) {
        max_id = TCI_MAX(max_id, list->items[i]->id);
    }
    int *numbers = TCI_NEW_ARRAY(s, int, (size_t)max_id + 1);
    for (int i = 0; i < list->n; i++) {
        numbers[list->items[i]->id] = i;
    }
    return numbers;
}

static void tci_print_value(tci_str *out, const tci_node *n)
{
    if (tci_dtype_is_float((tc_dtype)n->dtype)) {
        tci_str_printf(out, " = %.17g", n->value.f);
    } else if (n->dtype == TC_U64) {
        tci_str_printf(out, " = %" PRIu64, n->value.u);
    } else {
        tci_str_printf(out, " = %" PRId64, n->value.i);
    }
}

/* Names are the user's: everything but plain characters is printed as an octal escape. */
static void tci_print_name(tci_str *out, const char *name)
{
    tci_str_add(out, " \"");
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c >= ' ' && c < 127 && c != '"' && c != '\\') {
            tci_str_add_n(out, name, 1);
        } else {
            tci_str_printf(out, "\\%03o", c);
        }
    }
    tci_str_add(out, "\"");
}

static void tci_print_words(tci_str *out, const char *open, const int64_t *words, int n, const char *close)
{
    tci_str_add(out, open);
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%" PRId64, i ? ", " : "", words[i]);
    }
    tci_str_add(out, close);
}

/* What a node is, without its inputs. */
static void tci_print_facts(tci_str *out, const tci_node *n)
{
    char shape[TCI_PRINT_SHAPE_TEXT];
    tci_graph_print_shape(shape, sizeof(shape), n->rank, n->shape);
    tci_str_printf(out, "%s %s %s", tci_op_name(n->op), tci_dtype_get((tc_dtype)n->dtype)->name, shape);
}

static void tci_print_details(tci_str *out, const tci_node *n)
{
    if (n->n_attr) {
        tci_print_words(out, " {", n->attr, n->n_attr, "}");
    }
    if (n->op == TCI_OP_CONST || n->op == TCI_OP_LITERAL) {
        tci_print_value(out, n);
    }
    if (n->name) {
        tci_print_name(out, n->name);
    }
    if (n->strides) {
        tci_print_words(out, " strides (", n->strides, n->rank, ")");
        tci_str_printf(out, " offset %" PRId64, n->offset);
    }
}

TCI_FN void tci_graph_print(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_node_list list = tci_graph_sort(s, roots, n_roots);
    const int *numbers = tci_print_numbers(s, &list);
    for (int i = 0; i < list.n; i++) {
        const tci_node *n = list.items[i];
        tci_str_printf(out, "%%%d = ", i);
        tci_print_facts(out, n);
        for (int k = 0; k < n->n_in; k++) {
            tci_str_printf(out, "%s%%%d", k ? ", " : " (", numbers[n->in[k]->id]);
        }
        tci_str_add(out, n->n_in ? ")" : "");
        tci_print_details(out, n);
        tci_str_add(out, "\n");
    }
    tci_str_add(out, "out");
    for (int i = 0; i < n_roots; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : " ", numbers[roots[i]->id]);
    }
    tci_str_add(out, "\n");
}

TCI_FN void tci_graph_print_dot(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_node_list list = tci_graph_sort(s, roots, n_roots);
    const int *numbers = tci_print_numbers(s, &list);
    tci_str_add(out, "digraph tc {\n    node [shape=box, fontname=monospace];\n");
    for (int i = 0; i < list.n; i++) {
        const tci_node *n = list.items[i];
        tci_str_printf(out, "    n%d [label=\"", i);
        tci_print_facts(out, n);
        if (n->n_attr) {
            tci_print_words(out, "\\n{", n->attr, n->n_attr, "}");
        }
        tci_str_add(out, "\"];\n");
        for (int k = 0; k < n->n_in; k++) {
            tci_str_printf(out, "    n%d -> n%d;\n", numbers[n->in[k]->id], i);
        }
    }
    for (int i = 0; i < n_roots; i++) {
        tci_str_printf(out, "    out%d [shape=plaintext];\n    n%d -> out%d;\n", i, numbers[roots[i]->id], i);
    }
    tci_str_add(out, "}\n");
}
/* ---- src/graph/verify.c ---- */
/* graph/verify.c - checks the invariants of graph/node.h on everything that a set of roots needs.
 *
 * In: roots. Out: nothing, or an escape with TC_ERR_INTERNAL that names the node and the breach. Runs
 * after each stage when options.verify (TC_VERIFY) asks for it. One function checks what holds for
 * every node; one a family what holds for its attributes and shapes. */

#include <inttypes.h>
#include <string.h>

typedef struct tci_verify {
    tci_scratch *s;
    const tci_node *n;
} tci_verify;

static void tci_verify_that(const tci_verify *v, bool holds, const char *what)
{
    if (!holds) {
        char shape[120];
        tci_graph_print_shape(shape, sizeof(shape), v->n->rank, v->n->shape);
        tci_scratch_fail(v->s, TC_ERR_INTERNAL, "graph: %s %s %s: %s", tci_op_name(v->n->op),
                         v->n->dtype < TC_DTYPE_COUNT ? tci_dtype_get((tc_dtype)v->n->dtype)->name : "?", shape, what);
    }
}

static bool tci_verify_same_shape(const tci_node *a, const tci_node *b)
{
    return a->rank == b->rank && (!a->rank || !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof(*a->shape)));
}

static void tci_verify_counts(const tci_verify *v, int n_in, int n_attr)
{
    tci_verify_that(v, v->n->n_in == n_in, "wrong number of inputs");
    tci_verify_that(v, v->n->n_attr == n_attr, "wrong number of attributes");
}

static void tci_verify_every(const tci_verify *v)
{
    const tci_node *n = v->n;
    int64_t count = 1;
    tci_verify_that(v, n->op < TCI_OP_COUNT && n->op != TCI_OP_EW_END && n->op != TCI_OP_REDUCE_END, "no such op");
    tci_verify_that(v, n->dtype < TC_DTYPE_COUNT, "no such dtype");
    tci_verify_that(v, n->rank >= 0 && n->n_in >= 0 && n->n_attr >= 0, "negative counts");
    for (int i = 0; i < n->rank; i++) {
        tci_verify_that(v, n->shape[i] >= 0, "a negative size");
        int64_t size = TCI_MAX(n->shape[i], 1);
        tci_verify_that(v, count <= INT64_MAX / size, "the element count overflows");
        count *= size;
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_verify_that(v, n->in[i] != NULL, "a NULL input");
    }
}

static void tci_verify_ew(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_counts(v, tci_build_ew_arity(n->op), 0);
    tc_dtype operands = (tc_dtype)n->in[0]->dtype, want_operands, want;
    tci_build_ew_dtypes(n->op, operands, &want_operands, &want);
    tci_verify_that(v, want_operands == operands && want == n->dtype, "dtypes against the op's rule");
    for (int i = 0; i < n->n_in; i++) {
        tci_verify_that(v, n->in[i]->dtype == operands, "operands of several dtypes");
        tci_verify_that(v, tci_verify_same_shape(n->in[i], n), "operands of another shape");
    }
}

/* Attributes [first, first + n_axes) are the reduced axes; the rest of x's axes is the result. */
static void tci_verify_dropped(const tci_verify *v, int first, int n_axes)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->rank == x->rank - n_axes, "rank against the reduced axes");
    int at = 0, out = 0;
    for (int i = 0; i < x->rank; i++) {
        if (at < n_axes && n->attr[first + at] == i) {
            at++;
        } else {
            tci_verify_that(v, out < n->rank && n->shape[out] == x->shape[i], "a kept axis has another size");
            out++;
        }
    }
    tci_verify_that(v, at == n_axes, "reduced axes not ascending or out of range");
}

static void tci_verify_reduce(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_counts(v, 1, n->n_attr);
    tci_verify_that(v, n->n_attr >= 1, "reduces no axis");
    if (n->op == TCI_OP_ARGMAX || n->op == TCI_OP_ARGMIN) {
        tci_verify_that(v, n->n_attr == 1 && n->dtype == TC_I64, "an index of one axis is i64");
    } else {
        tci_verify_that(v, n->in[0]->dtype == n->dtype, "changes the dtype");
    }
    tci_verify_dropped(v, 0, n->n_attr);
}

static void tci_verify_leaf(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_counts(v, 0, 0);
    if (n->op == TCI_OP_IOTA) {
        tci_verify_that(v, n->rank == 1 && n->dtype == TC_I64, "a ramp is 1-d and i64");
    } else if (n->op == TCI_OP_LITERAL || n->op == TCI_OP_CONST) {
        tci_verify_that(v, n->rank == 0, "a number is 0-d");
    }
}

static void tci_verify_permute(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->n_attr == n->rank && n->rank == x->rank, "an entry per axis");
    for (int i = 0; i < n->rank; i++) {
        tci_verify_that(v, n->attr[i] >= 0 && n->attr[i] < x->rank, "axis out of range");
        tci_verify_that(v, n->shape[i] == x->shape[n->attr[i]], "size of a moved axis");
        for (int k = 0; k < i; k++) {
            tci_verify_that(v, n->attr[k] != n->attr[i], "an axis twice");
        }
    }
}

static void tci_verify_slice(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->n_attr == 2 * n->rank && n->rank == x->rank, "start and step per axis");
    for (int i = 0; i < n->rank; i++) {
        int64_t start = n->attr[2 * i], step = n->attr[2 * i + 1];
        if (n->shape[i]) {
            int64_t last = start + (n->shape[i] - 1) * step;
            bool inside = start >= 0 && start < x->shape[i] && last >= 0 && last < x->shape[i];
            tci_verify_that(v, inside, "reaches outside of its input");
        }
    }
}

static void tci_verify_expand(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->rank == x->rank && !n->n_attr, "keeps the rank");
    for (int i = 0; i < n->rank && i < x->rank; i++) {
        tci_verify_that(v, x->shape[i] == n->shape[i] || x->shape[i] == 1, "repeats an axis longer than 1");
    }
}

static void tci_verify_window(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    int n_windows = n->rank - x->rank;
    tci_verify_that(v, n_windows >= 0 && n->n_attr == 4 * n_windows, "four words per window");
    for (int i = 0; i < n_windows; i++) {
        const int64_t *a = n->attr + 4 * i;
        tci_verify_that(v, a[0] >= 0 && a[0] < x->rank && a[1] >= 1 && a[2] >= 1 && a[3] >= 1, "window out of range");
        tci_verify_that(v, n->shape[x->rank + i] == a[1], "size of a window's axis");
        int64_t last = (n->shape[a[0]] - 1) * a[2] + (a[1] - 1) * a[3];
        tci_verify_that(v, !n->shape[a[0]] || last < x->shape[a[0]], "reaches outside of its input");
    }
}

static void tci_verify_movement(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->n_in == (n->op == TCI_OP_PAD ? 2 : 1), "wrong number of inputs");
    tci_verify_that(v, n->dtype == n->in[0]->dtype, "changes the dtype");
    switch (n->op) {
    case TCI_OP_RESHAPE:
        tci_verify_that(v, tci_node_count(n) == tci_node_count(n->in[0]) && !n->n_attr, "changes the element count");
        break;
    case TCI_OP_PERMUTE:
        tci_verify_permute(v);
        break;
    case TCI_OP_EXPAND:
        tci_verify_expand(v);
        break;
    case TCI_OP_SLICE:
        tci_verify_slice(v);
        break;
    case TCI_OP_WINDOW:
        tci_verify_window(v);
        break;
    default:
        tci_verify_that(v, n->n_attr == n->rank && n->rank == n->in[0]->rank, "a count per axis");
        tci_verify_that(v, !n->in[1]->rank && n->in[1]->dtype == n->dtype, "the fill is 0-d and of the same dtype");
        break;
    }
}

static void tci_verify_cat(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->n_in >= 1 && n->n_attr == 1 && n->attr[0] >= 0 && n->attr[0] < n->rank, "axis out of range");
    int64_t size = 0;
    for (int i = 0; i < n->n_in; i++) {
        const tci_node *x = n->in[i];
        tci_verify_that(v, x->rank == n->rank && x->dtype == n->dtype, "operands of another rank or dtype");
        for (int d = 0; d < n->rank; d++) {
            tci_verify_that(v, d == n->attr[0] || x->shape[d] == n->shape[d], "operands of other sizes");
        }
        size += x->shape[n->attr[0]];
    }
    tci_verify_that(v, size == n->shape[n->attr[0]], "size of the joined axis");
}

static void tci_verify_gather(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_counts(v, 2, 1);
    const tci_node *x = n->in[0], *index = n->in[1];
    tci_verify_that(v, n->dtype == x->dtype && tci_dtype_is_int((tc_dtype)index->dtype), "dtypes");
    tci_verify_that(v, tci_verify_same_shape(n, index) && x->rank == n->rank, "has the shape of the index");
    tci_verify_that(v, n->attr[0] >= 0 && n->attr[0] < n->rank, "axis out of range");
    for (int d = 0; d < n->rank; d++) {
        tci_verify_that(v, d == n->attr[0] || n->shape[d] <= x->shape[d], "index longer than x");
    }
}

/* The size that a label of the result or of an operand has, or -1. */
static int64_t tci_verify_label_size(const tci_node *x, const int64_t *labels, int64_t label)
{
    for (int i = 0; i < x->rank; i++) {
        if (labels[i] == label) {
            return x->shape[i];
        }
    }
    return -1;
}

static void tci_verify_contract(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->n_in == 2 && n->n_attr >= 3, "two operands");
    const tci_node *a = n->in[0], *b = n->in[1];
    bool ranks = n->attr[0] == a->rank && n->attr[1] == b->rank && n->attr[2] == n->rank;
    tci_verify_that(v, ranks && n->n_attr == 3 + a->rank + b->rank + n->rank, "ranks against the attributes");
    tci_verify_that(v, a->dtype == n->dtype && b->dtype == n->dtype && n->dtype != TC_BOOL, "one dtype, not bool");
    const int64_t *la = n->attr + 3, *lb = la + a->rank, *out = lb + b->rank;
    for (int i = 0; i < a->rank; i++) {
        int64_t size = tci_verify_label_size(b, lb, la[i]);
        tci_verify_that(v, size < 0 || size == a->shape[i], "a label of two sizes");
        for (int k = 0; k < i; k++) {
            tci_verify_that(v, la[k] != la[i], "a label twice in one operand");
        }
    }
    for (int i = 0; i < n->rank; i++) {
        int64_t in_a = tci_verify_label_size(a, la, out[i]), in_b = tci_verify_label_size(b, lb, out[i]);
        tci_verify_that(v, in_a == n->shape[i] || (in_a < 0 && in_b == n->shape[i]), "size of a result's label");
    }
}

static void tci_verify_same_as_input(const tci_verify *v, int n_attr)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->n_in >= 1 && n->n_attr == n_attr, "wrong number of inputs or attributes");
    tci_verify_that(v, n->dtype == n->in[0]->dtype && tci_verify_same_shape(n, n->in[0]), "unlike its input");
}

static void tci_verify_axis(const tci_verify *v)
{
    tci_verify_same_as_input(v, 1);
    tci_verify_that(v, v->n->attr[0] >= 0 && v->n->attr[0] < v->n->rank, "axis out of range");
}

static void tci_verify_where(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_counts(v, 3, 0);
    tci_verify_that(v, n->in[0]->dtype == TC_BOOL && n->in[1]->dtype == n->dtype && n->in[2]->dtype == n->dtype,
                    "dtypes");
    for (int i = 0; i < 3; i++) {
        tci_verify_that(v, tci_verify_same_shape(n->in[i], n), "operands of another shape");
    }
}

static void tci_verify_composite(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, tci_dtype_is_float((tc_dtype)n->dtype) && n->dtype == n->in[0]->dtype, "float, as its input");
    switch (n->op) {
    case TCI_OP_MEAN:
        tci_verify_counts(v, 1, n->n_attr);
        tci_verify_dropped(v, 0, n->n_attr);
        break;
    case TCI_OP_LAYER_NORM:
        tci_verify_that(v, n->n_attr >= 3 && n->n_attr == 3 + n->attr[0], "axes against their count");
        tci_verify_that(v, n->n_in == 2 + (n->attr[n->n_attr - 2] != 0) + (n->attr[n->n_attr - 1] != 0), "inputs");
        tci_verify_same_as_input(v, n->n_attr);
        break;
    case TCI_OP_CROSS_ENTROPY:
        tci_verify_counts(v, 2, 0);
        tci_verify_that(v, !n->rank, "the loss is 0-d");
        break;
    default:
        tci_verify_axis(v);
        break;
    }
}

static void tci_verify_node(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_every(v);
    if (tci_op_is_ew(n->op)) {
        tci_verify_ew(v);
        return;
    }
    if (tci_op_is_reduce(n->op)) {
        tci_verify_reduce(v);
        return;
    }
    if (tci_op_is_composite(n->op)) {
        tci_verify_composite(v);
        return;
    }
    switch (n->op) {
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA:
        tci_verify_leaf(v);
        break;
    case TCI_OP_WHERE:
        tci_verify_where(v);
        break;
    case TCI_OP_CAST:
        tci_verify_counts(v, 1, 0);
        tci_verify_that(v, tci_verify_same_shape(n, n->in[0]), "changes the shape");
        break;
    case TCI_OP_CAT:
        tci_verify_cat(v);
        break;
    case TCI_OP_GATHER:
        tci_verify_gather(v);
        break;
    case TCI_OP_SCAN:
        tci_verify_axis(v);
        break;
    case TCI_OP_CONTRACT:
        tci_verify_contract(v);
        break;
    default:
        tci_verify_movement(v);
        break;
    }
}

/* tci_graph_sort lists inputs first by construction, and would not end on a cycle it cannot meet: nodes are
 * made after their inputs and never changed. */
TCI_FN void tci_graph_verify(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_node_list list = tci_graph_sort(s, roots, n_roots);
    for (int i = 0; i < list.n; i++) {
        tci_verify v = {s, list.items[i]};
        tci_verify_node(&v);
    }
}
/* ---- src/ops/composite.c ---- */
/* ops/composite.c - ops that are made of other ops.
 *
 * Two kinds. Composite rows (softmax, log_softmax, mean, layer_norm, cross_entropy) stay one node until the
 * compile, where tci_expand_composite replaces them: the planner or a backend may know them whole. conv2d and
 * max_pool2d are expanded as they are built: a contraction and a reduction over windows.
 * The one idea: an op written here is fused, printed and differentiated by what it is made of.
 *
 * A composite computes in the op-math dtype (f32 for f16 and bf16) and rounds once, at its end. */

#include <inttypes.h>
#include <math.h>

enum { TCI_COMPOSITE_TEXT = 120 };

/* ---- helpers ---- */

static tc_dtype tci_composite_math(const tci_node *n)
{
    return (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
}

static tci_node *tci_composite_unary(tci_graph *g, int op, tci_node *a)
{
    return tci_build_ew(g, op, &a);
}

static tci_node *tci_composite_binary(tci_graph *g, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_build_ew(g, op, in);
}

static tci_node *tci_composite_number(tci_graph *g, tc_dtype dtype, double v)
{
    tci_value f = {.f = v}, i = {.i = (int64_t)v};
    return tci_graph_const(g, dtype, tci_dtype_is_float(dtype) ? f : i);
}

/* Reduces over axes given as attributes; the axes stay, with size 1. */
static tci_node *tci_composite_reduce(tci_graph *g, int op, tci_node *x, const int64_t *axes, int n)
{
    tci_words w;
    if (!x || !tci_words_get(g, &w, n)) {
        return NULL;
    }
    int *list = (int *)(void *)w.items;
    for (int i = 0; i < n; i++) {
        list[i] = (int)axes[i];
    }
    tc_axes a = {list, n, false};
    return tci_words_put(g, &w, tci_build_reduce(g, op, x, a, true));
}

static int64_t tci_composite_count(const tci_node *x, const int64_t *axes, int n)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++) {
        count *= x->shape[axes[i]];
    }
    return count;
}

static tci_node *tci_composite_mean(tci_graph *g, tci_node *x, const int64_t *axes, int n)
{
    if (!x) {
        return NULL;
    }
    tci_node *count = tci_composite_number(g, (tc_dtype)x->dtype, (double)tci_composite_count(x, axes, n));
    return tci_composite_binary(g, TCI_OP_DIV, tci_composite_reduce(g, TCI_OP_SUM, x, axes, n), count);
}

/* The log-softmax, or the softmax, of x in x's dtype. */
static tci_node *tci_composite_softmax(tci_graph *g, tci_node *x, int64_t axis, bool log)
{
    if (!x) {
        return NULL;
    }
    if (!tci_node_count(x)) {
        return tci_build_broadcast(g, tci_composite_number(g, (tc_dtype)x->dtype, 0.0), x->rank, x->shape);
    }
    tci_node *shifted = tci_composite_binary(g, TCI_OP_SUB, x, tci_composite_reduce(g, TCI_OP_MAX, x, &axis, 1));
    tci_node *powers = tci_composite_unary(g, TCI_OP_EXP, shifted);
    tci_node *sum = tci_composite_reduce(g, TCI_OP_SUM, powers, &axis, 1);
    if (log) {
        return tci_composite_binary(g, TCI_OP_SUB, shifted, tci_composite_unary(g, TCI_OP_LOG, sum));
    }
    return tci_composite_binary(g, TCI_OP_DIV, powers, sum);
}

/* ---- builders of composite nodes ---- */

TCI_FN tci_node *tci_build_softmax(tci_graph *g, tci_node *x, int axis, bool log)
{
    int at;
    int op = log ? TCI_OP_LOG_SOFTMAX : TCI_OP_SOFTMAX;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!tci_dtype_is_float((tc_dtype)x->dtype)) {
        x = tci_build_cast(g, x, TC_F32);
    }
    tci_dim one = 1;
    tci_node *line = x && !x->rank ? tci_build_reshape(g, x, 1, &one) : x;
    if (!line) {
        return NULL;
    }
    int64_t attr = at;
    tci_node *r = tci_graph_node(g, op, (tc_dtype)line->dtype, line->rank, line->shape, 1, &line, 1, &attr);
    return tci_build_reshape(g, r, x->rank, x->shape);
}

/* weight or bias: its sizes must be those of the normalized axes. */
static bool tci_composite_norm_check(tci_graph *g, const char *what, const tci_node *p, const tci_node *x,
                                     const int64_t *axes, int n)
{
    bool fits = !p || p->rank == n;
    for (int i = 0; p && fits && i < n; i++) {
        fits = p->shape[i] == x->shape[axes[i]];
    }
    if (!fits) {
        char given[TCI_COMPOSITE_TEXT], wanted[TCI_COMPOSITE_TEXT];
        tci_words w;
        tci_dim *sizes = tci_words_get(g, &w, n);
        for (int i = 0; sizes && i < n; i++) {
            sizes[i] = x->shape[axes[i]];
        }
        tci_graph_print_shape(given, sizeof(given), p->rank, p->shape);
        tci_graph_print_shape(wanted, sizeof(wanted), sizes ? n : 0, sizes);
        tci_words_put(g, &w, NULL);
        tci_graph_fail(g, TC_ERR_SHAPE, "the %s has shape %s: expected %s, the sizes of the normalized axes", what,
                       given, wanted);
    }
    return fits;
}

/* Normalizes the axes to ascending order without doubles: attr = n, axes, has_weight, has_bias. */
static bool tci_composite_norm_axes(tci_graph *g, const tci_node *x, tc_axes axes, int64_t *attr)
{
    int n = 0;
    for (int d = 0; d < x->rank; d++) {
        int uses = axes.all;
        for (int i = 0; !axes.all && i < axes.n; i++) {
            int at;
            if (!tci_build_axis(g, axes.items[i], x->rank, &at)) {
                return false;
            }
            uses += at == d;
        }
        if (uses > 1) {
            tci_graph_fail(g, TC_ERR_AXIS, "axis %d is given twice", d);
            return false;
        }
        if (uses) {
            attr[1 + n++] = d;
        }
    }
    attr[0] = n;
    if (!n) {
        tci_graph_fail(g, TC_ERR_AXIS, "no axes to normalize over: expected at least one");
    }
    return n > 0;
}

TCI_FN tci_node *tci_build_layer_norm(tci_graph *g, tci_node *x, tc_axes axes, tci_node *weight, tci_node *bias,
                                      tci_node *eps)
{
    if (!x || !eps) {
        return NULL;
    }
    if (eps->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "eps has rank %d: expected a number or a 0-d tensor", eps->rank);
        return NULL;
    }
    if (!tci_dtype_is_float((tc_dtype)x->dtype)) {
        x = tci_build_cast(g, x, TC_F32);
    }
    tci_words w;
    if (!x || !tci_words_get(g, &w, x->rank + 3)) {
        return NULL;
    }
    int64_t *attr = w.items;
    tci_node *in[4] = {x, tci_build_cast(g, eps, TC_F64), NULL, NULL};
    int n_in = 2;
    bool fits = in[1] && tci_composite_norm_axes(g, x, axes, attr);
    int n = (int)attr[0];
    fits = fits && tci_composite_norm_check(g, "weight", weight, x, attr + 1, n) &&
           tci_composite_norm_check(g, "bias", bias, x, attr + 1, n);
    if (!fits) {
        return tci_words_put(g, &w, NULL);
    }
    attr[1 + n] = weight != NULL;
    attr[2 + n] = bias != NULL;
    if (weight) {
        in[n_in++] = weight;
    }
    if (bias) {
        in[n_in++] = bias;
    }
    return tci_words_put(g, &w, tci_graph_node(g, TCI_OP_LAYER_NORM, (tc_dtype)x->dtype, x->rank, x->shape, n_in, in,
                                               3 + n, attr));
}

TCI_FN tci_node *tci_build_cross_entropy(tci_graph *g, tci_node *logits, tci_node *target)
{
    if (!logits || !target) {
        return NULL;
    }
    int axis = logits->rank > 1 ? 1 : 0;
    bool fits = logits->rank >= 1 && target->rank == logits->rank - 1;
    for (int i = 0; fits && i < target->rank; i++) {
        fits = target->shape[i] == logits->shape[i + (i >= axis)];
    }
    if (!fits) {
        char given[2][TCI_COMPOSITE_TEXT];
        tci_graph_print_shape(given[0], sizeof(given[0]), logits->rank, logits->shape);
        tci_graph_print_shape(given[1], sizeof(given[1]), target->rank, target->shape);
        tci_graph_fail(g, TC_ERR_SHAPE, "logits have shape %s, target %s: expected the target to have the logits' sizes "
                       "without axis %d, the classes", given[0], given[1], axis);
        return NULL;
    }
    if (!tci_dtype_is_int((tc_dtype)target->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "the target has dtype %s: expected class indices of an integer dtype",
                       tci_dtype_get((tc_dtype)target->dtype)->name);
        return NULL;
    }
    if (!logits->shape[axis] && tci_node_count(target)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the logits have no classes: axis %d has size 0", axis);
        return NULL;
    }
    tci_node *in[2] = {logits, target};
    if (!tci_dtype_is_float((tc_dtype)logits->dtype)) {
        in[0] = tci_build_cast(g, logits, TC_F32);
    }
    if (!in[0]) {
        return NULL;
    }
    return tci_graph_node(g, TCI_OP_CROSS_ENTROPY, (tc_dtype)in[0]->dtype, 0, NULL, 2, in, 0, NULL);
}

/* ---- expansions: one function a row, pasted from its id ---- */

static tci_node *tci_expand_SOFTMAX(tci_graph *g, tci_node *n)
{
    tci_node *x = tci_build_cast(g, n->in[0], tci_composite_math(n));
    return tci_composite_softmax(g, x, n->attr[0], false);
}

static tci_node *tci_expand_LOG_SOFTMAX(tci_graph *g, tci_node *n)
{
    tci_node *x = tci_build_cast(g, n->in[0], tci_composite_math(n));
    return tci_composite_softmax(g, x, n->attr[0], true);
}

static tci_node *tci_expand_MEAN(tci_graph *g, tci_node *n)
{
    tci_node *x = tci_build_cast(g, n->in[0], tci_composite_math(n));
    return tci_build_reshape(g, tci_composite_mean(g, x, n->attr, n->n_attr), n->rank, n->shape);
}

/* Two passes: the mean, then the mean square of what is left. */
static tci_node *tci_expand_LAYER_NORM(tci_graph *g, tci_node *n)
{
    int n_axes = (int)n->attr[0];
    const int64_t *axes = n->attr + 1;
    bool has_weight = n->attr[1 + n_axes] != 0, has_bias = n->attr[2 + n_axes] != 0;
    tc_dtype math = tci_composite_math(n);
    tci_node *x = tci_build_cast(g, n->in[0], math), *eps = tci_build_cast(g, n->in[1], math);
    tci_node *centred = tci_composite_binary(g, TCI_OP_SUB, x, tci_composite_mean(g, x, axes, n_axes));
    tci_node *squares = tci_composite_unary(g, TCI_OP_SQUARE, centred);
    tci_node *variance = tci_composite_mean(g, squares, axes, n_axes);
    tci_node *scale = tci_composite_unary(g, TCI_OP_RSQRT, tci_composite_binary(g, TCI_OP_ADD, variance, eps));
    tci_node *r = tci_composite_binary(g, TCI_OP_MUL, centred, scale);
    tci_words w;
    tci_dim *shape = tci_words_get(g, &w, n->rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < n->rank; i++) {
        shape[i] = 1;
    }
    for (int i = 0; i < n_axes; i++) {
        shape[axes[i]] = n->shape[axes[i]];
    }
    for (int k = 0; k < 2; k++) {
        if (k ? has_bias : has_weight) {
            tci_node *p = tci_build_cast(g, n->in[2 + (k && has_weight)], math);
            r = tci_composite_binary(g, k ? TCI_OP_ADD : TCI_OP_MUL, r, tci_build_reshape(g, p, n->rank, shape));
        }
    }
    return tci_words_put(g, &w, r);
}

static tci_node *tci_expand_CROSS_ENTROPY(tci_graph *g, tci_node *n)
{
    tci_node *logits = tci_build_cast(g, n->in[0], tci_composite_math(n)), *target = n->in[1];
    int axis = n->in[0]->rank > 1 ? 1 : 0;
    tci_node *logs = tci_composite_softmax(g, logits, axis, true);
    tci_node *picked = tci_build_gather(g, logs, axis, tci_build_unsqueeze(g, target, axis));
    tc_axes all = {NULL, 0, true};
    tci_node *sum = tci_build_reduce(g, TCI_OP_SUM, picked, all, false);
    if (!sum) {
        return NULL;
    }
    tci_node *count = tci_composite_number(g, (tc_dtype)sum->dtype, (double)tci_node_count(target));
    return tci_composite_unary(g, TCI_OP_NEG, tci_composite_binary(g, TCI_OP_DIV, sum, count));
}

TCI_FN tci_node *tci_expand_composite(tci_graph *g, tci_node *n)
{
    tc_site site = g->site;
    tci_node *r = n;
    g->site = n->site;
    switch (n->op) {
#define X(id, name, doc)                                                                           \
    case TCI_OP_##id:                                                                              \
        r = tci_expand_##id(g, n);                                                                 \
        break;
        TCI_COMPOSITE_OPS(X)
#undef X
    default:
        break;
    }
    r = tci_build_cast(g, r, (tc_dtype)n->dtype);
    g->site = site;
    return r;
}

/* ---- conv2d ---- */

typedef struct tci_composite_image {
    bool batched;
    int64_t n, c, h, w;
} tci_composite_image;

/* [N, C, H, W], or [C, H, W] taken as one image. */
static bool tci_composite_image_of(tci_graph *g, const tci_node *x, tci_composite_image *image)
{
    if (x->rank != 3 && x->rank != 4) {
        char text[TCI_COMPOSITE_TEXT];
        tci_graph_print_shape(text, sizeof(text), x->rank, x->shape);
        tci_graph_fail(g, TC_ERR_SHAPE, "x has shape %s: expected [N, C, H, W] or [C, H, W]", text);
        return false;
    }
    const tci_dim *d = x->shape + (x->rank - 3);
    image->batched = x->rank == 4;
    image->n = image->batched ? x->shape[0] : 1;
    image->c = d[0];
    image->h = d[1];
    image->w = d[2];
    return true;
}

/* Fills in the defaults; negative fields are refused. */
static bool tci_composite_fields(tci_graph *g, const char *name, int64_t v[2], const int64_t *given, int64_t zero0,
                                 int64_t zero1)
{
    v[0] = given && given[0] ? given[0] : zero0;
    v[1] = given && given[1] ? given[1] : zero1;
    if (v[0] < 0 || v[1] < 0 || v[0] > INT64_MAX / 16 || v[1] > INT64_MAX / 16) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "%s is {%" PRId64 ", %" PRId64 "}: expected small positive numbers", name,
                       v[0], v[1]);
        return false;
    }
    return true;
}

static bool tci_composite_conv_check(tci_graph *g, const tci_node *x, const tci_composite_image *image,
                                     const tci_node *w, const tci_node *bias, int64_t groups)
{
    char text[TCI_COMPOSITE_TEXT];
    tci_graph_print_shape(text, sizeof(text), w->rank, w->shape);
    if (w->rank != 4) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the weight has shape %s: expected [O, C / groups, kh, kw]", text);
        return false;
    }
    if (w->dtype != x->dtype || (bias && bias->dtype != x->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "x is %s, the weight %s, the bias %s: expected one dtype (tc_cast converts)",
                       tci_dtype_get((tc_dtype)x->dtype)->name, tci_dtype_get((tc_dtype)w->dtype)->name,
                       bias ? tci_dtype_get((tc_dtype)bias->dtype)->name : "absent");
        return false;
    }
    if (groups < 1 || image->c % groups || w->shape[0] % groups) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "groups is %" PRId64 ": expected a divisor of %" PRId64 " channels in and %"
                       PRId64 " out", groups, image->c, w->shape[0]);
        return false;
    }
    if (w->shape[1] != image->c / groups) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the weight of shape %s reads %" PRId64 " channels a group: x has %" PRId64
                       " channels in %" PRId64 " groups", text, w->shape[1], image->c, groups);
        return false;
    }
    if (bias && (bias->rank != 1 || bias->shape[0] != w->shape[0])) {
        tci_graph_print_shape(text, sizeof(text), bias->rank, bias->shape);
        tci_graph_fail(g, TC_ERR_SHAPE, "the bias has shape %s: expected [%" PRId64 "]", text, w->shape[0]);
        return false;
    }
    return true;
}

/* Pads the last two axes of a 4-d x, and appends the kernel's axes: [N, C, oh, ow, kh, kw]. */
static tci_node *tci_composite_windows(tci_graph *g, tci_node *x, const int64_t before[2], const int64_t after[2],
                                       tci_node *fill, const int64_t kernel[2], const int64_t stride[2],
                                       const int64_t dilation[2])
{
    const int64_t lo[4] = {0, 0, before[0], before[1]}, hi[4] = {0, 0, after[0], after[1]};
    const int64_t spec[8] = {2, kernel[0], stride[0], dilation[0], 3, kernel[1], stride[1], dilation[1]};
    return tci_build_window(g, tci_build_pad_axes(g, x, lo, hi, fill), 2, spec);
}

/* x [n, c, h, w] and w [o, c/groups, kh, kw], windows over x: the sum over (c, kh, kw) inside each group. */
static tci_node *tci_composite_conv(tci_graph *g, tci_node *windows, tci_node *w, int64_t groups)
{
    if (!windows) {
        return NULL;
    }
    enum { N, G, C, H, W, P, Q, O };
    const tci_dim *d = windows->shape;
    int64_t o = w->shape[0];
    const tci_dim result[4] = {d[0], o, d[2], d[3]};
    if (groups == 1) {
        const int lx[6] = {N, C, H, W, P, Q}, lw[4] = {O, C, P, Q}, out[4] = {N, O, H, W};
        return tci_build_contract(g, windows, lx, w, lw, 4, out);
    }
    const tci_dim sx[7] = {d[0], groups, d[1] / groups, d[2], d[3], d[4], d[5]};
    const tci_dim sw[5] = {groups, o / groups, w->shape[1], w->shape[2], w->shape[3]};
    const int lx[7] = {N, G, C, H, W, P, Q}, lw[5] = {G, O, C, P, Q}, out[5] = {N, G, O, H, W};
    tci_node *r = tci_build_contract(g, tci_build_reshape(g, windows, 7, sx), lx, tci_build_reshape(g, w, 5, sw), lw,
                                     5, out);
    return tci_build_reshape(g, r, 4, result);
}

TCI_FN tci_node *tci_build_conv2d(tci_graph *g, tci_node *x, tci_node *w, tci_node *bias, const struct tc_conv *o)
{
    tci_composite_image image;
    int64_t stride[2], padding[2], dilation[2];
    int64_t groups = o && o->groups ? o->groups : 1;
    if (!x || !w || !tci_composite_image_of(g, x, &image) || !tci_composite_conv_check(g, x, &image, w, bias, groups) ||
        !tci_composite_fields(g, "stride", stride, o ? o->stride : NULL, 1, 1) ||
        !tci_composite_fields(g, "padding", padding, o ? o->padding : NULL, 0, 0) ||
        !tci_composite_fields(g, "dilation", dilation, o ? o->dilation : NULL, 1, 1)) {
        return NULL;
    }
    tc_dtype dtype = (tc_dtype)x->dtype;
    tc_dtype math = bias ? tci_composite_math(x) : dtype; /* without a bias the contraction rounds once itself */
    const tci_dim shape[4] = {image.n, image.c, image.h, image.w};
    tci_node *image4 = tci_build_reshape(g, tci_build_cast(g, x, math), 4, shape);
    tci_node *kernel = tci_build_cast(g, w, math);
    tci_node *zero = tci_composite_number(g, math, 0.0);
    tci_node *windows = tci_composite_windows(g, image4, padding, padding, zero, w->shape + 2, stride, dilation);
    tci_node *r = kernel ? tci_composite_conv(g, windows, kernel, groups) : NULL;
    if (bias) {
        const tci_dim channel[3] = {bias->shape[0], 1, 1};
        tci_node *add = tci_build_reshape(g, tci_build_cast(g, bias, math), 3, channel);
        r = tci_build_cast(g, tci_composite_binary(g, TCI_OP_ADD, r, add), dtype);
    }
    return r && !image.batched ? tci_build_reshape(g, r, 3, r->shape + 1) : r;
}

/* ---- max_pool2d ---- */

/* The value that loses against every other. */
static tci_node *tci_composite_lowest(tci_graph *g, tc_dtype t)
{
    tci_value v = {.i = 0};
    if (tci_dtype_is_float(t)) {
        v.f = -(double)INFINITY;
    } else if (tci_dtype_is_signed(t)) {
        v.i = -((int64_t)1 << (8 * tci_dtype_get(t)->bytes - 2)) * 2;
    }
    return tci_graph_const(g, t, v);
}

/* Windows along one axis: how many, hence how much padding the far side needs. False: none fits. */
static bool tci_composite_pool_axis(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t padding,
                                    bool ceil_mode, int64_t *after)
{
    if (kernel > 1 && dilation > INT64_MAX / 16 / (kernel - 1)) {
        return false;
    }
    int64_t span = dilation * (kernel - 1) + 1, room = size + 2 * padding - span;
    if (room < 0) {
        return false;
    }
    int64_t count = room / stride + 1;
    if (ceil_mode && room % stride && count * stride < size + padding) {
        count++; /* it starts inside x or its near padding */
    }
    *after = (count - 1) * stride + span - size - padding;
    return true;
}

TCI_FN tci_node *tci_build_max_pool2d(tci_graph *g, tci_node *x, const struct tc_pool *o)
{
    tci_composite_image image;
    int64_t stride[2], padding[2], dilation[2], after[2];
    if (!x || !tci_composite_image_of(g, x, &image)) {
        return NULL;
    }
    if (!o || o->kernel[0] < 1 || o->kernel[1] < 1) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "the kernel's size is missing or not positive: expected &(tc_pool){.kernel = "
                       "{rows, columns}}");
        return NULL;
    }
    if (!tci_composite_fields(g, "stride", stride, o->stride, o->kernel[0], o->kernel[1]) ||
        !tci_composite_fields(g, "padding", padding, o->padding, 0, 0) ||
        !tci_composite_fields(g, "dilation", dilation, o->dilation, 1, 1)) {
        return NULL;
    }
    if (!image.c || !image.h || !image.w) {
        tci_graph_fail(g, TC_ERR_SHAPE, "x has an empty image: only the batch axis may have size 0");
        return NULL;
    }
    const int64_t size[2] = {image.h, image.w};
    for (int i = 0; i < 2; i++) {
        if (padding[i] > o->kernel[i] / 2) {
            tci_graph_fail(g, TC_ERR_ARGUMENT, "padding %" PRId64 " is more than half of the kernel's %" PRId64,
                           padding[i], o->kernel[i]);
            return NULL;
        }
        if (!tci_composite_pool_axis(size[i], o->kernel[i], stride[i], dilation[i], padding[i], o->ceil_mode,
                                     &after[i])) {
            tci_graph_fail(g, TC_ERR_SHAPE, "a window of %" PRId64 " (dilation %" PRId64 ") does not fit %" PRId64
                           " elements and padding %" PRId64, o->kernel[i], dilation[i], size[i], padding[i]);
            return NULL;
        }
    }
    const tci_dim shape[4] = {image.n, image.c, image.h, image.w};
    tci_node *image4 = tci_build_reshape(g, x, 4, shape);
    tci_node *fill = tci_composite_lowest(g, (tc_dtype)x->dtype);
    tci_node *windows = tci_composite_windows(g, image4, padding, after, fill, o->kernel, stride, dilation);
    const int last[2] = {4, 5};
    tc_axes axes = {last, 2, false};
    tci_node *r = tci_build_reduce(g, TCI_OP_MAX, windows, axes, false);
    return r && !image.batched ? tci_build_reshape(g, r, 3, r->shape + 1) : r;
}

/* ---- src/rewrite/rewrite.c ---- */

/* ---- src/kernel/ir.c ---- */
/* kernel/ir.c - constructors of the kernel IR (kernel/ir.h). Everything is hash-consed on the way, so
 * equal values and equal index expressions have equal numbers.
 *
 * An index expression is kept as a sum of terms in canonical order: atoms (AXIS, DIV, MOD, VALUE)
 * ascending, each times its coefficient, the constant last. tci_kx_linear takes it apart, tci_kx_join
 * puts it together again; div and mod pull out what divides and drop what the ranges prove away, so
 * that the maps of reshapes become affine wherever the sizes allow. */
/* ---- src/kernel/ir.h ---- */
/* kernel/ir.h - the kernel IR: what is computed, free of any target.
 *
 * A kernel runs over `outer` axes (independent, any order, any thread) and, for each outer point, through
 * its stages in order. A stage iterates its own inner axes and does one of
 *   MAP     evaluates values and stores them
 *   REDUCE  folds values into accumulators; each result is a scalar of the outer point for later stages
 *   SCAN    like REDUCE over one axis in order; the running value may be stored at every step
 * softmax is one kernel: outer rows; stages max, sum(exp(x - max)), map. A pointwise kernel has one MAP
 * stage without inner axes. A matmul has outer (m, n) and one REDUCE of an FMA over k.
 *
 * Values form one hash-consed scalar DAG (tci_kinst). Where a value is evaluated follows from what it
 * depends on: an instruction that depends on no inner axis is evaluated once per outer point, at its
 * first use; others in each stage that uses them. Guards make loads total.
 *
 * Index expressions (tci_kx) are quasi-affine over axes, hash-consed and kept simplified; each knows its
 * range [lo, hi] over the domain.
 *
 * The order of a reduction is part of the kernel, the same for every executor:
 *   vector == TCI_VEC_INNER: 64 virtual lanes on the LAST inner axis of each REDUCE stage: element j of that
 *       axis goes to lane j % 64, lanes go on over the other inner axes (in order); at the end lane
 *       i takes in lane i + 32 (i < 32), then i + 16, 8, 4, 2, 1: acc[i] = combine(acc[i], acc[i + h]).
 *       Lanes start at the identity; an element that does not exist changes nothing.
 *   vector == TCI_VEC_OUTER: one lane; elements in row-major order of the inner axes.
 *   DOT (contraction): always one FMA chain in row-major order of the inner axes.
 *   SCAN: in order.
 * (INNER kernels never hold a DOT or a SCAN.)  combine(acc, v): SUM ADD, PROD MUL, MAX/MIN as maximum
 * and minimum (MAX: select(acc > v or acc is NaN, acc, v)), ANY OR, ALL AND; ARG: keep (value, index):
 * take v if v beats acc strictly, or v is NaN and acc is not; equal values keep the lower index.
 *
 * Invariants (kernel/verify.c): args[i] < own index; guards' and offsets' axes are the kernel's; a load
 * without guard stays inside its operand for the whole domain; stage axes are inner axes; a RED value is used
 * only in stages after its own (SCAN: also in its own) or by outer-level values. */
#ifndef TCI_KERNEL_IR_H
#define TCI_KERNEL_IR_H


enum { TCI_VLANES = 64 }; /* virtual lanes of an INNER reduction */

/* ---- index expressions ---- */
typedef enum tci_kx_op {
    TCI_KX_CONST, /* c */
    TCI_KX_AXIS,  /* axis number c */
    TCI_KX_ADD,   /* a + b */
    TCI_KX_MUL,   /* a * c */
    TCI_KX_DIV,   /* floor(a / c), c > 0 */
    TCI_KX_MOD,   /* a - c * floor(a / c), c > 0 */
    TCI_KX_VALUE  /* the integer value of instruction c, already inside [lo, hi] */
} tci_kx_op;
typedef struct tci_kx {
    uint8_t op;
    int32_t a, b;     /* indices of kx nodes; -1 unused */
    int64_t c;
    int64_t lo, hi;   /* range, inclusive */
} tci_kx;

/* ---- instructions ---- */
typedef enum tci_kop {
    TCI_K_CONST,  /* value, in the compute dtype */
    TCI_K_LIT,    /* literal slot imm: read from the call's literal words, converted to dtype */
    TCI_K_LOAD,   /* operand imm at offset x (elements); guard set: 0 / fill where it fails */
    TCI_K_INDEX,  /* the value of index expression x, as i64 */
    TCI_K_GUARD,  /* bool: guard set holds */
    TCI_K_PRIM,   /* prim over args */
    TCI_K_RED,    /* result of reduction imm (SCAN: the running value) */
    TCI_K_FAULT   /* args[0] an index, lo..hi allowed (x = size): passes it on clamped, counts from the
                   * end when negative, and sets the call's fault word to imm + 1 when outside */
} tci_kop;
typedef struct tci_kinst {
    uint8_t op;       /* tci_kop */
    uint8_t prim;     /* PRIM */
    uint8_t dtype;    /* compute dtype of the value (tc_dtype; never f16 or bf16) */
    uint8_t n_args;
    int32_t args[3];
    int32_t x;        /* LOAD, INDEX: kx; FAULT: unused */
    int32_t guard;    /* LOAD, GUARD: first entry in guards; n_guards entries; -1 = none */
    int32_t n_guards;
    int64_t imm;      /* see tci_kop; FAULT: the size n of the indexed axis */
    tci_value value;  /* CONST; LOAD: fill where a guard fails */
    uint64_t axes;    /* derived: bit i set = depends on axis i (axes >= 63 share bit 63) */
    int32_t stage;    /* derived: latest stage whose reduction it depends on, -1 none */
} tci_kinst;
/* One guard: lo <= x <= hi (inclusive). A set is a conjunction. */
typedef struct tci_kguard { int32_t x; int64_t lo, hi; } tci_kguard;

/* ---- reductions, stores, stages ---- */
typedef enum tci_kred_op {
    TCI_RED_SUM, TCI_RED_PROD, TCI_RED_MAX, TCI_RED_MIN, TCI_RED_ANY, TCI_RED_ALL,
    TCI_RED_ARGMAX, TCI_RED_ARGMIN, TCI_RED_DOT
} tci_kred_op;
typedef struct tci_kred {
    uint8_t op;      /* tci_kred_op */
    uint8_t dtype;   /* of the accumulator (ARG: of the compared value; the result is i64) */
    int32_t stage;
    int32_t a, b;    /* values folded; b: DOT's second factor, ARG's index value (i64), else -1 */
    int32_t inst;    /* the RED instruction that stands for the result */
} tci_kred;
typedef struct tci_kstore {
    int32_t stage;
    int32_t operand; /* output operand */
    int32_t x;       /* offset in elements: injective over outer and stage axes */
    int32_t value;   /* stored after narrowing to the operand's dtype */
} tci_kstore;
typedef enum tci_kstage_kind { TCI_STAGE_MAP, TCI_STAGE_REDUCE, TCI_STAGE_SCAN } tci_kstage_kind;
typedef struct tci_kstage {
    uint8_t kind;
    int32_t n_axes;
    int32_t *axes;   /* inner axes in loop order, the last one fastest */
} tci_kstage;

/* ---- operands and the kernel ---- */
typedef struct tci_koperand {
    uint8_t dtype;      /* storage dtype */
    bool is_output;     /* written by this kernel (never also read through another operand) */
    int64_t n;          /* elements that may be touched: offsets lie in [0, n) */
} tci_koperand;
typedef struct tci_kaxis {
    int64_t size;
    bool inner;
} tci_kaxis;
typedef enum tci_kvec { TCI_VEC_OUTER, TCI_VEC_INNER } tci_kvec;

typedef struct tci_kernel {
    tci_scratch *s;
    tci_kaxis *axes; int n_axes, cap_axes;   /* outer axes first, in loop order; then inner axes */
    int n_outer;
    uint8_t vector;                          /* tci_kvec: the LAST outer axis, or each stage's last inner axis */
    tci_kx *kx; int n_kx, cap_kx;
    tci_kinst *insts; int n_insts, cap_insts;
    tci_kguard *guards; int n_guards, cap_guards;
    tci_kred *reds; int n_reds, cap_reds;
    tci_kstore *stores; int n_stores, cap_stores;
    tci_kstage *stages; int n_stages, cap_stages;
    tci_koperand *operands; int n_operands, cap_operands;
    int n_literals;                          /* literal slots are 0 .. n_literals-1 of THIS kernel */
    bool faults;                             /* holds a FAULT instruction */
    int64_t flops, bytes;                    /* of one whole run, for cost and explain */
    char name[64];                           /* tc_k_<ops>: C identifier without hash */
    int32_t *kx_hash, *inst_hash; int n_kx_hash, n_inst_hash; /* hash-consing tables */
} tci_kernel;

/* kernel/ir.c: hash-consing constructors (simplify on the way). */
TCI_FN tci_kernel *tci_kernel_make(tci_scratch *s);
TCI_FN int tci_kernel_axis(tci_kernel *k, int64_t size, bool inner);
TCI_FN int tci_kx_const(tci_kernel *k, int64_t c);
TCI_FN int tci_kx_axis(tci_kernel *k, int axis);
TCI_FN int tci_kx_add(tci_kernel *k, int a, int b);
TCI_FN int tci_kx_mul(tci_kernel *k, int a, int64_t c);
TCI_FN int tci_kx_div(tci_kernel *k, int a, int64_t c);
TCI_FN int tci_kx_mod(tci_kernel *k, int a, int64_t c);
TCI_FN int tci_kx_value(tci_kernel *k, int inst, int64_t lo, int64_t hi);
/* If x = base + sum coef[i] * axis i over the kernel's axes: fills coef[n_axes], *base and says true. */
TCI_FN bool tci_kx_affine(const tci_kernel *k, int x, int64_t *coef, int64_t *base);
TCI_FN uint64_t tci_kx_axes(const tci_kernel *k, int x);   /* axes it depends on, as tci_kinst.axes */
TCI_FN int tci_kernel_inst(tci_kernel *k, tci_kinst inst); /* finds or adds; derives axes and stage */
TCI_FN int tci_kernel_prim(tci_kernel *k, tci_prim p, tc_dtype dtype, int n, int a, int b, int c);
TCI_FN int tci_kernel_const(tci_kernel *k, tc_dtype dtype, tci_value v);
TCI_FN int tci_kernel_operand(tci_kernel *k, tc_dtype dtype, bool is_output, int64_t n);

/* kernel/print.c (the canonical text: equal text = equal kernel), kernel/verify.c. */
TCI_FN void tci_kernel_print(tci_str *out, const tci_kernel *k);
TCI_FN void tci_kernel_verify(tci_scratch *s, const tci_kernel *k);

/* ---- the executable form, shared by every backend ----
 * A built kernel is called for a range of tasks: task t in [0, n_tasks) covers outer points
 * [t * grain, (t + 1) * grain) of the flattened outer domain as the schedule says; every task is
 * independent. bufs[i] is operand i. lits[i] is literal slot i as tci_value in the literal's dtype class
 * (float kinds: double bits; integers: int64). fault: where FAULT writes imm + 1; NULL when !faults. */
typedef void (*tci_kernel_fn)(void *const *bufs, const int64_t *lits, int64_t *fault, int64_t task_begin,
                              int64_t task_end);

#endif

/* ---- src/kernel/ir.c, continued ---- */
typedef struct tci_kx_term { int32_t atom; int64_t coef; } tci_kx_term;
typedef struct tci_kx_sum {
    tci_kx_term *terms;
    int n, cap;
    int64_t base;
} tci_kx_sum;

TCI_FN tci_kernel *tci_kernel_make(tci_scratch *s)
{
    tci_kernel *k = TCI_NEW(s, tci_kernel);
    k->s = s;
    return k;
}

TCI_FN int tci_kernel_axis(tci_kernel *k, int64_t size, bool inner)
{
    tci_kaxis axis = {size, inner};
    TCI_PUSH(k->s, k->axes, k->n_axes, k->cap_axes, axis);
    if (!inner) {
        k->n_outer++;
    }
    return k->n_axes - 1;
}

/* ---- hash tables: open addressing over indices + 1, at most half full ---- */

static uint64_t tci_kernel_hash_words(const int64_t *words, int n)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < n; i++) {
        h = tci_hash_mix(h, (uint64_t)words[i]);
    }
    return h;
}

static uint64_t tci_kx_hash_of(const tci_kx *x)
{
    int64_t words[4] = {x->op, x->a, x->b, x->c};
    return tci_kernel_hash_words(words, 4);
}

static uint64_t tci_kernel_inst_hash_of(const tci_kinst *i)
{
    int64_t words[12] = {i->op, i->prim, i->dtype, i->n_args, i->args[0], i->args[1], i->args[2],
                         i->x,  i->guard, i->n_guards, i->imm, i->value.i};
    return tci_kernel_hash_words(words, 12);
}

static bool tci_kernel_inst_same(const tci_kinst *a, const tci_kinst *b)
{
    return a->op == b->op && a->prim == b->prim && a->dtype == b->dtype && a->n_args == b->n_args &&
           a->args[0] == b->args[0] && a->args[1] == b->args[1] && a->args[2] == b->args[2] && a->x == b->x &&
           a->guard == b->guard && a->n_guards == b->n_guards && a->imm == b->imm && a->value.i == b->value.i;
}

static void tci_kernel_table_put(int32_t *table, int n_table, uint64_t hash, int index)
{
    uint64_t at = hash & (uint64_t)(n_table - 1);
    while (table[at]) {
        at = (at + 1) & (uint64_t)(n_table - 1);
    }
    table[at] = index + 1;
}

/* Adds x (without canonicalising) or finds its equal. */
static int tci_kx_intern(tci_kernel *k, tci_kx x)
{
    if (k->n_kx * 2 >= k->n_kx_hash) {
        k->n_kx_hash = k->n_kx_hash ? k->n_kx_hash * 2 : 64;
        k->kx_hash = TCI_NEW_ARRAY(k->s, int32_t, k->n_kx_hash);
        for (int i = 0; i < k->n_kx; i++) {
            tci_kernel_table_put(k->kx_hash, k->n_kx_hash, tci_kx_hash_of(&k->kx[i]), i);
        }
    }
    uint64_t hash = tci_kx_hash_of(&x);
    uint64_t mask = (uint64_t)(k->n_kx_hash - 1);
    for (uint64_t at = hash & mask; k->kx_hash[at]; at = (at + 1) & mask) {
        const tci_kx *y = &k->kx[k->kx_hash[at] - 1];
        if (y->op == x.op && y->a == x.a && y->b == x.b && y->c == x.c) {
            return k->kx_hash[at] - 1;
        }
    }
    TCI_PUSH(k->s, k->kx, k->n_kx, k->cap_kx, x);
    tci_kernel_table_put(k->kx_hash, k->n_kx_hash, hash, k->n_kx - 1);
    return k->n_kx - 1;
}

/* ---- index expressions ---- */

static int64_t tci_kx_floor_div(int64_t a, int64_t c)
{
    int64_t q = a / c;
    return a % c < 0 ? q - 1 : q;
}

static int64_t tci_kx_gcd(int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

TCI_FN int tci_kx_const(tci_kernel *k, int64_t c)
{
    tci_kx x = {TCI_KX_CONST, -1, -1, c, c, c};
    return tci_kx_intern(k, x);
}

/* An axis of size 1 is the constant 0, so that index maps compare equal whatever axis stands there. */
TCI_FN int tci_kx_axis(tci_kernel *k, int axis)
{
    int64_t size = k->axes[axis].size;
    if (size == 1) {
        return tci_kx_const(k, 0);
    }
    tci_kx x = {TCI_KX_AXIS, -1, -1, axis, 0, size > 0 ? size - 1 : 0};
    return tci_kx_intern(k, x);
}

static void tci_kx_sum_add(tci_kernel *k, tci_kx_sum *sum, int atom, int64_t coef)
{
    int at = 0;
    while (at < sum->n && sum->terms[at].atom < atom) {
        at++;
    }
    if (at < sum->n && sum->terms[at].atom == atom) {
        sum->terms[at].coef += coef;
        if (sum->terms[at].coef == 0) {
            sum->n--;
            for (int i = at; i < sum->n; i++) {
                sum->terms[i] = sum->terms[i + 1];
            }
        }
        return;
    }
    tci_kx_term none = {0, 0};
    TCI_PUSH(k->s, sum->terms, sum->n, sum->cap, none);
    for (int i = sum->n - 1; i > at; i--) {
        sum->terms[i] = sum->terms[i - 1];
    }
    sum->terms[at].atom = atom;
    sum->terms[at].coef = coef;
}

/* sum += scale * x */
static void tci_kx_linear(tci_kernel *k, int x, int64_t scale, tci_kx_sum *sum)
{
    while (k->kx[x].op == TCI_KX_ADD) {
        tci_kx_linear(k, k->kx[x].b, scale, sum);
        x = k->kx[x].a;
    }
    tci_kx e = k->kx[x];
    if (e.op == TCI_KX_CONST) {
        sum->base += scale * e.c;
    } else if (e.op == TCI_KX_MUL) {
        tci_kx_sum_add(k, sum, e.a, scale * e.c);
    } else {
        tci_kx_sum_add(k, sum, x, scale);
    }
}

static int tci_kx_join(tci_kernel *k, const tci_kx_sum *sum)
{
    int all = -1;
    for (int i = 0; i < sum->n; i++) {
        int atom = sum->terms[i].atom;
        int64_t c = sum->terms[i].coef;
        int term = atom;
        if (c != 1) {
            int64_t lo = k->kx[atom].lo * c, hi = k->kx[atom].hi * c;
            tci_kx x = {TCI_KX_MUL, atom, -1, c, TCI_MIN(lo, hi), TCI_MAX(lo, hi)};
            term = tci_kx_intern(k, x);
        }
        if (all < 0) {
            all = term;
        } else {
            tci_kx x = {TCI_KX_ADD, all, term, 0, k->kx[all].lo + k->kx[term].lo,
                        k->kx[all].hi + k->kx[term].hi};
            all = tci_kx_intern(k, x);
        }
    }
    if (all < 0 || sum->base == 0) {
        return all < 0 ? tci_kx_const(k, sum->base) : all;
    }
    int base = tci_kx_const(k, sum->base);
    tci_kx x = {TCI_KX_ADD, all, base, 0, k->kx[all].lo + sum->base, k->kx[all].hi + sum->base};
    return tci_kx_intern(k, x);
}

TCI_FN int tci_kx_add(tci_kernel *k, int a, int b)
{
    tci_kx_sum sum = {0};
    tci_kx_linear(k, a, 1, &sum);
    tci_kx_linear(k, b, 1, &sum);
    return tci_kx_join(k, &sum);
}

TCI_FN int tci_kx_mul(tci_kernel *k, int a, int64_t c)
{
    tci_kx_sum sum = {0};
    if (c != 0) {
        tci_kx_linear(k, a, c, &sum);
    }
    return tci_kx_join(k, &sum);
}

/* Splits x into out * c + rest: the terms that c divides, and the others. */
static void tci_kx_divide(tci_kernel *k, int x, int64_t c, tci_kx_sum *out, tci_kx_sum *rest)
{
    tci_kx_sum sum = {0};
    tci_kx_linear(k, x, 1, &sum);
    for (int i = 0; i < sum.n; i++) {
        if (sum.terms[i].coef % c == 0) {
            tci_kx_sum_add(k, out, sum.terms[i].atom, sum.terms[i].coef / c);
        } else {
            tci_kx_sum_add(k, rest, sum.terms[i].atom, sum.terms[i].coef);
        }
    }
    out->base = tci_kx_floor_div(sum.base, c);
    rest->base = sum.base - out->base * c;
}

static int64_t tci_kx_sum_gcd(const tci_kx_sum *sum, int64_t c)
{
    for (int i = 0; i < sum->n; i++) {
        c = tci_kx_gcd(c, sum->terms[i].coef);
    }
    return c;
}

static void tci_kx_sum_scale_down(tci_kx_sum *sum, int64_t g)
{
    for (int i = 0; i < sum->n; i++) {
        sum->terms[i].coef /= g;
    }
    sum->base = tci_kx_floor_div(sum->base, g);
}

/* floor((g r + b) / (g c)) = floor((r + floor(b / g)) / c) for integers r, so a common factor goes. */
TCI_FN int tci_kx_div(tci_kernel *k, int a, int64_t c)
{
    if (c == 1) {
        return a;
    }
    tci_kx_sum out = {0}, rest = {0};
    tci_kx_divide(k, a, c, &out, &rest);
    int64_t g = tci_kx_sum_gcd(&rest, c);
    tci_kx_sum_scale_down(&rest, g);
    c /= g;
    int r = tci_kx_join(k, &rest);
    int64_t lo = tci_kx_floor_div(k->kx[r].lo, c), hi = tci_kx_floor_div(k->kx[r].hi, c);
    if (lo == hi) {
        out.base += lo;
        return tci_kx_join(k, &out);
    }
    if (k->kx[r].op == TCI_KX_DIV) {
        c *= k->kx[r].c;
        r = k->kx[r].a;
    }
    if (c == 1) {
        tci_kx_linear(k, r, 1, &out);
        return tci_kx_join(k, &out);
    }
    tci_kx x = {TCI_KX_DIV, r, -1, c, lo, hi};
    tci_kx_sum_add(k, &out, tci_kx_intern(k, x), 1);
    return tci_kx_join(k, &out);
}

TCI_FN int tci_kx_mod(tci_kernel *k, int a, int64_t c)
{
    if (c == 1) {
        return tci_kx_const(k, 0);
    }
    tci_kx_sum out = {0}, rest = {0};
    tci_kx_divide(k, a, c, &out, &rest);
    int r = tci_kx_join(k, &rest);
    int64_t q = tci_kx_floor_div(k->kx[r].lo, c);
    if (q == tci_kx_floor_div(k->kx[r].hi, c)) {
        return tci_kx_add(k, r, tci_kx_const(k, -q * c));
    }
    int64_t g = tci_kx_sum_gcd(&rest, c);
    if (g > 1 && rest.base % g == 0) { /* mod(g r, g c) = g mod(r, c) */
        tci_kx_sum_scale_down(&rest, g);
        return tci_kx_mul(k, tci_kx_mod(k, tci_kx_join(k, &rest), c / g), g);
    }
    if (k->kx[r].op == TCI_KX_MOD && k->kx[r].c % c == 0) {
        return tci_kx_mod(k, k->kx[r].a, c);
    }
    tci_kx x = {TCI_KX_MOD, r, -1, c, 0, c - 1};
    return tci_kx_intern(k, x);
}

TCI_FN int tci_kx_value(tci_kernel *k, int inst, int64_t lo, int64_t hi)
{
    tci_kx x = {TCI_KX_VALUE, -1, -1, inst, lo, hi};
    return tci_kx_intern(k, x);
}

TCI_FN bool tci_kx_affine(const tci_kernel *k, int x, int64_t *coef, int64_t *base)
{
    for (int i = 0; i < k->n_axes; i++) {
        coef[i] = 0;
    }
    *base = 0;
    for (;;) {
        tci_kx e = k->kx[x];
        int rest = -1;
        if (e.op == TCI_KX_ADD) {
            rest = e.a;
            e = k->kx[e.b];
        }
        int64_t c = 1;
        if (e.op == TCI_KX_MUL) {
            c = e.c;
            e = k->kx[e.a];
        }
        if (e.op == TCI_KX_CONST) {
            *base += c * e.c;
        } else if (e.op == TCI_KX_AXIS) {
            coef[e.c] += c;
        } else {
            return false;
        }
        if (rest < 0) {
            return true;
        }
        x = rest;
    }
}

static uint64_t tci_kernel_axis_bit(int64_t axis)
{
    return (uint64_t)1 << TCI_MIN(axis, 63);
}

TCI_FN uint64_t tci_kx_axes(const tci_kernel *k, int x)
{
    tci_kx e = k->kx[x];
    switch (e.op) {
    case TCI_KX_AXIS: return tci_kernel_axis_bit(e.c);
    case TCI_KX_ADD: return tci_kx_axes(k, e.a) | tci_kx_axes(k, e.b);
    case TCI_KX_MUL:
    case TCI_KX_DIV:
    case TCI_KX_MOD: return tci_kx_axes(k, e.a);
    case TCI_KX_VALUE: return k->insts[e.c].axes;
    default: return 0;
    }
}

/* The latest stage whose reduction an index depends on (through a loaded index). */
static int32_t tci_kx_stage(const tci_kernel *k, int x)
{
    tci_kx e = k->kx[x];
    switch (e.op) {
    case TCI_KX_ADD: return TCI_MAX(tci_kx_stage(k, e.a), tci_kx_stage(k, e.b));
    case TCI_KX_MUL:
    case TCI_KX_DIV:
    case TCI_KX_MOD: return tci_kx_stage(k, e.a);
    case TCI_KX_VALUE: return k->insts[e.c].stage;
    default: return -1;
    }
}

/* ---- instructions ---- */

static void tci_kernel_inst_derive(const tci_kernel *k, tci_kinst *i)
{
    i->axes = 0;
    i->stage = -1;
    for (int a = 0; a < i->n_args; a++) {
        i->axes |= k->insts[i->args[a]].axes;
        i->stage = TCI_MAX(i->stage, k->insts[i->args[a]].stage);
    }
    if (i->x >= 0) {
        i->axes |= tci_kx_axes(k, i->x);
        i->stage = TCI_MAX(i->stage, tci_kx_stage(k, i->x));
    }
    for (int g = 0; g < i->n_guards; g++) {
        i->axes |= tci_kx_axes(k, k->guards[i->guard + g].x);
        i->stage = TCI_MAX(i->stage, tci_kx_stage(k, k->guards[i->guard + g].x));
    }
    if (i->op == TCI_K_RED) { /* a function of the outer point; a SCAN's value of the step as well */
        int32_t stage = k->reds[i->imm].stage;
        for (int a = 0; a < k->n_outer; a++) {
            i->axes |= tci_kernel_axis_bit(a);
        }
        for (int a = 0; k->stages[stage].kind == TCI_STAGE_SCAN && a < k->stages[stage].n_axes; a++) {
            i->axes |= tci_kernel_axis_bit(k->stages[stage].axes[a]);
        }
        i->stage = stage;
    }
}

TCI_FN int tci_kernel_inst(tci_kernel *k, tci_kinst inst)
{
    if (k->n_insts * 2 >= k->n_inst_hash) {
        k->n_inst_hash = k->n_inst_hash ? k->n_inst_hash * 2 : 64;
        k->inst_hash = TCI_NEW_ARRAY(k->s, int32_t, k->n_inst_hash);
        for (int i = 0; i < k->n_insts; i++) {
            tci_kernel_table_put(k->inst_hash, k->n_inst_hash, tci_kernel_inst_hash_of(&k->insts[i]), i);
        }
    }
    for (int i = inst.n_args; i < 3; i++) {
        inst.args[i] = -1;
    }
    uint64_t hash = tci_kernel_inst_hash_of(&inst);
    uint64_t mask = (uint64_t)(k->n_inst_hash - 1);
    for (uint64_t at = hash & mask; k->inst_hash[at]; at = (at + 1) & mask) {
        if (tci_kernel_inst_same(&k->insts[k->inst_hash[at] - 1], &inst)) {
            return k->inst_hash[at] - 1;
        }
    }
    tci_kernel_inst_derive(k, &inst);
    TCI_PUSH(k->s, k->insts, k->n_insts, k->cap_insts, inst);
    tci_kernel_table_put(k->inst_hash, k->n_inst_hash, hash, k->n_insts - 1);
    return k->n_insts - 1;
}

/* dtype: of the operands, or of the result for the rows whose result is given separately (CAST, BITS,
 * TOINT); compares give bool. */
TCI_FN int tci_kernel_prim(tci_kernel *k, tci_prim p, tc_dtype dtype, int n, int a, int b, int c)
{
    tci_kinst i = {0};
    i.op = TCI_K_PRIM;
    i.prim = (uint8_t)p;
    i.dtype = (uint8_t)(tci_prim_get(p)->result == 'B' ? TC_BOOL : dtype);
    i.n_args = (uint8_t)n;
    i.args[0] = a;
    i.args[1] = b;
    i.args[2] = c;
    i.x = -1;
    i.guard = -1;
    return tci_kernel_inst(k, i);
}

TCI_FN int tci_kernel_const(tci_kernel *k, tc_dtype dtype, tci_value v)
{
    tci_kinst i = {0};
    i.op = TCI_K_CONST;
    i.dtype = (uint8_t)dtype;
    i.x = -1;
    i.guard = -1;
    i.value = v;
    return tci_kernel_inst(k, i);
}

TCI_FN int tci_kernel_operand(tci_kernel *k, tc_dtype dtype, bool is_output, int64_t n)
{
    tci_koperand o = {(uint8_t)dtype, is_output, n};
    TCI_PUSH(k->s, k->operands, k->n_operands, k->cap_operands, o);
    return k->n_operands - 1;
}
/* ---- src/kernel/print.c ---- */
/* kernel/print.c - the canonical text of a kernel: equal text means equal kernel (names apart), so it
 * serves as the kernel's cache key as well as for dumps and golden tests. Deterministic: only numbers that
 * tci_kernel constructors assign in order of first use. */

static const char *const tci_kernel_red_names[] = {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin",
                                                   "dot"};

static void tci_kernel_print_kx(tci_str *out, const tci_kernel *k, int x)
{
    const tci_kx *e = &k->kx[x];
    switch (e->op) {
    case TCI_KX_CONST: tci_str_printf(out, "%lld", (long long)e->c); break;
    case TCI_KX_AXIS: tci_str_printf(out, "a%lld", (long long)e->c); break;
    case TCI_KX_ADD:
        tci_kernel_print_kx(out, k, e->a);
        tci_str_add(out, " + ");
        tci_kernel_print_kx(out, k, e->b);
        break;
    case TCI_KX_MUL:
        tci_kernel_print_kx(out, k, e->a);
        tci_str_printf(out, "*%lld", (long long)e->c);
        break;
    case TCI_KX_VALUE:
        tci_str_printf(out, "[v%lld in %lld..%lld]", (long long)e->c, (long long)e->lo, (long long)e->hi);
        break;
    default:
        tci_str_add(out, "(");
        tci_kernel_print_kx(out, k, e->a);
        tci_str_printf(out, ")%s%lld", e->op == TCI_KX_DIV ? "//" : "%", (long long)e->c);
        break;
    }
}

static void tci_kernel_print_guards(tci_str *out, const tci_kernel *k, const tci_kinst *i)
{
    for (int g = 0; g < i->n_guards; g++) {
        const tci_kguard *guard = &k->guards[i->guard + g];
        tci_str_printf(out, "%s%lld <= ", g ? " and " : "", (long long)guard->lo);
        tci_kernel_print_kx(out, k, guard->x);
        tci_str_printf(out, " <= %lld", (long long)guard->hi);
    }
}

static void tci_kernel_print_value(tci_str *out, tc_dtype t, tci_value v)
{
    if (tci_dtype_is_float(t)) {
        tci_str_printf(out, "%a", v.f);
    } else {
        tci_str_printf(out, "%lld", (long long)v.i);
    }
}

static void tci_kernel_print_inst(tci_str *out, const tci_kernel *k, int index)
{
    const tci_kinst *i = &k->insts[index];
    tci_str_printf(out, "  v%d: %s = ", index, tci_dtype_get((tc_dtype)i->dtype)->name);
    switch (i->op) {
    case TCI_K_CONST:
        tci_str_add(out, "const ");
        tci_kernel_print_value(out, (tc_dtype)i->dtype, i->value);
        break;
    case TCI_K_LIT: tci_str_printf(out, "literal %lld", (long long)i->imm); break;
    case TCI_K_LOAD:
        tci_str_printf(out, "load p%lld[", (long long)i->imm);
        tci_kernel_print_kx(out, k, i->x);
        tci_str_add(out, "]");
        if (i->n_guards > 0) {
            tci_str_add(out, " if ");
            tci_kernel_print_guards(out, k, i);
            tci_str_add(out, " else ");
            tci_kernel_print_value(out, (tc_dtype)i->dtype, i->value);
        }
        break;
    case TCI_K_INDEX:
        tci_str_add(out, "index ");
        tci_kernel_print_kx(out, k, i->x);
        break;
    case TCI_K_GUARD:
        tci_str_add(out, "guard ");
        tci_kernel_print_guards(out, k, i);
        break;
    case TCI_K_RED: tci_str_printf(out, "red %lld", (long long)i->imm); break;
    case TCI_K_FAULT: tci_str_printf(out, "checked v%d of %lld", i->args[0], (long long)i->imm); break;
    default:
        tci_str_add(out, tci_prim_get((tci_prim)i->prim)->name);
        for (int a = 0; a < i->n_args; a++) {
            tci_str_printf(out, "%s v%d", a ? "," : "", i->args[a]);
        }
        if (i->prim == TCI_P_LANE1) {
            tci_str_printf(out, " helper %lld", (long long)i->imm);
        }
        break;
    }
    tci_str_add(out, "\n");
}

static void tci_kernel_print_stage(tci_str *out, const tci_kernel *k, int index)
{
    static const char *const kinds[] = {"map", "reduce", "scan"};
    const tci_kstage *stage = &k->stages[index];
    tci_str_printf(out, "  stage %d: %s over", index, kinds[stage->kind]);
    for (int a = 0; a < stage->n_axes; a++) {
        tci_str_printf(out, " a%d", stage->axes[a]);
    }
    tci_str_add(out, "\n");
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        if (red->stage == index) {
            tci_str_printf(out, "    red %d: %s = %s v%d", r, tci_dtype_get((tc_dtype)red->dtype)->name,
                           tci_kernel_red_names[red->op], red->a);
            tci_str_printf(out, red->b >= 0 ? ", v%d\n" : "\n", red->b);
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        const tci_kstore *store = &k->stores[w];
        if (store->stage == index) {
            tci_str_printf(out, "    store p%d[", store->operand);
            tci_kernel_print_kx(out, k, store->x);
            tci_str_printf(out, "] = v%d\n", store->value);
        }
    }
}

TCI_FN void tci_kernel_print(tci_str *out, const tci_kernel *k)
{
    tci_str_add(out, "kernel outer");
    for (int a = 0; a < k->n_axes; a++) {
        tci_str_printf(out, "%s a%d:%lld", a == k->n_outer ? " inner" : "", a, (long long)k->axes[a].size);
    }
    tci_str_printf(out, " vector %s literals %d\n", k->vector == TCI_VEC_INNER ? "inner" : "outer", k->n_literals);
    for (int p = 0; p < k->n_operands; p++) {
        tci_str_printf(out, "  p%d: %s %s[%lld]\n", p, k->operands[p].is_output ? "out" : "in",
                       tci_dtype_get((tc_dtype)k->operands[p].dtype)->name, (long long)k->operands[p].n);
    }
    for (int i = 0; i < k->n_insts; i++) {
        tci_kernel_print_inst(out, k, i);
    }
    for (int s = 0; s < k->n_stages; s++) {
        tci_kernel_print_stage(out, k, s);
    }
}
/* ---- src/kernel/verify.c ---- */
/* kernel/verify.c - checks the invariants written in kernel/ir.h; escapes with TC_ERR_INTERNAL. */

static void tci_kernel_verify_load(tci_scratch *s, const tci_kernel *k, const tci_kinst *i)
{
    TCI_ASSERT(s, i->imm >= 0 && i->imm < k->n_operands);
    TCI_ASSERT(s, !k->operands[i->imm].is_output);
    TCI_ASSERT(s, i->x >= 0 && i->x < k->n_kx);
    bool empty = false;
    for (int a = 0; a < k->n_axes; a++) {
        empty |= k->axes[a].size == 0;
    }
    if (i->n_guards == 0 && !empty) {
        TCI_ASSERT(s, k->kx[i->x].lo >= 0 && k->kx[i->x].hi < k->operands[i->imm].n);
    }
}

static void tci_kernel_verify_insts(tci_scratch *s, const tci_kernel *k)
{
    for (int n = 0; n < k->n_insts; n++) {
        const tci_kinst *i = &k->insts[n];
        TCI_ASSERT(s, i->dtype < TC_DTYPE_COUNT && !tci_dtype_is_half((tc_dtype)i->dtype));
        for (int a = 0; a < i->n_args; a++) {
            TCI_ASSERT(s, i->args[a] >= 0 && i->args[a] < n);
        }
        TCI_ASSERT(s, i->n_guards == 0 || (i->guard >= 0 && i->guard + i->n_guards <= k->n_guards));
        if (i->op == TCI_K_LOAD) {
            tci_kernel_verify_load(s, k, i);
        }
        if (i->op == TCI_K_LIT) {
            TCI_ASSERT(s, i->imm >= 0 && i->imm < k->n_literals);
        }
        if (i->op == TCI_K_RED) {
            TCI_ASSERT(s, i->imm >= 0 && i->imm < k->n_reds);
        }
    }
}

TCI_FN void tci_kernel_verify(tci_scratch *s, const tci_kernel *k)
{
    for (int a = 0; a < k->n_axes; a++) {
        TCI_ASSERT(s, k->axes[a].inner == (a >= k->n_outer));
    }
    tci_kernel_verify_insts(s, k);
    for (int t = 0; t < k->n_stages; t++) {
        for (int a = 0; a < k->stages[t].n_axes; a++) {
            TCI_ASSERT(s, k->stages[t].axes[a] >= k->n_outer && k->stages[t].axes[a] < k->n_axes);
        }
    }
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        TCI_ASSERT(s, red->stage >= 0 && red->stage < k->n_stages);
        TCI_ASSERT(s, k->stages[red->stage].kind != TCI_STAGE_MAP);
        TCI_ASSERT(s, k->insts[red->a].stage < red->stage);
        TCI_ASSERT(s, k->vector == TCI_VEC_OUTER || red->op != TCI_RED_DOT);
    }
    for (int w = 0; w < k->n_stores; w++) {
        const tci_kstore *store = &k->stores[w];
        TCI_ASSERT(s, store->stage >= 0 && store->stage < k->n_stages);
        TCI_ASSERT(s, k->operands[store->operand].is_output);
        bool scan = k->stages[store->stage].kind == TCI_STAGE_SCAN;
        TCI_ASSERT(s, k->insts[store->value].stage < store->stage + (scan ? 1 : 0));
    }
}
/* ---- src/kernel/lower.c ---- */
/* kernel/lower.c - evaluates graph nodes at symbolic indices into a kernel's scalar DAG.
 *
 * In: nodes, index expressions, guards. Out: instruction numbers. The walk keeps its own stack, as chains
 * may be tens of thousands of nodes long. A value is memoized by (node, index, guard); a node read at
 * two different indices is two values. */
/* ---- src/kernel/lower.h ---- */
/* kernel/lower.h - from graph nodes to kernel IR.
 *
 * Evaluation: the value of a node at an index (one index expression per axis) under a guard is an
 * instruction. Movement ops only change the index; elementwise ops become prims; what a node is to this
 * kernel (a buffer to load, a reduction of this kernel, or a value to inline) is the caller's decision. */
#ifndef TCI_KERNEL_LOWER_H
#define TCI_KERNEL_LOWER_H


typedef struct tci_lower tci_lower;
struct tci_lower {
    tci_scratch *s;
    tci_kernel *k;
    void *user;
    /* The instruction for node at idx when it is an access of this kernel; -1: inline it. guard: a guard set
     * of this lowering, to be put on loads (tci_lower_load does). */
    int (*access)(tci_lower *l, tci_node *n, const int *idx, int guard);
    int (*literal)(tci_lower *l, tci_node *n); /* the kernel's slot of a LITERAL node */
    /* private: memo of evaluated values, and guard sets */
    struct tci_lower_memo *memo; int n_memo, cap_memo;
    int32_t *table; int n_table;
    struct tci_lower_set { int32_t first, n; } *sets; int n_sets, cap_sets;
    struct tci_lower_frame *frames; int n_frames, cap_frames;
    struct tci_lower_frame *deps; int n_deps, cap_deps;
    int *dep_insts; int n_dep_insts, cap_dep_insts;
};

TCI_FN void tci_lower_init(tci_lower *l, tci_scratch *s, tci_kernel *k);
/* The value of n at idx[n->rank], under guard set `guard` (0 = none). */
TCI_FN int tci_lower_value(tci_lower *l, tci_node *n, const int *idx, int guard);
/* The nodes evaluated so far, one entry per distinct (node, index). Array in scratch; returns the count. */
TCI_FN int tci_lower_visited(tci_lower *l, tci_node ***nodes);
/* A load of operand p (compute dtype t) at element offset x under a guard set. */
TCI_FN int tci_lower_load(tci_lower *l, int operand, tc_dtype t, int x, int guard);
/* Offset of idx in a tensor with these sizes, dense row-major, or with element strides (base: the lowest
 * address is element 0, so that offsets are never negative). */
TCI_FN int tci_lower_offset(tci_lower *l, int rank, const tci_dim *shape, const tci_dim *strides, const int *idx);
/* Rounds a compute value to a node's dtype (f16 and bf16 travel as f32). */
TCI_FN int tci_lower_round(tci_kernel *k, int value, tc_dtype to);
/* Converts between compute dtypes. */
TCI_FN int tci_lower_convert(tci_kernel *k, int value, tc_dtype to);

/* Flops of one evaluation of an elementwise row. */
TCI_FN int tci_lower_cost(int op);

#endif

/* ---- src/kernel/lower.c, continued ---- */
typedef struct tci_lower_frame {
    tci_node *node;
    const int *idx;   /* node->rank index expressions */
    int guard;
} tci_lower_frame;

typedef struct tci_lower_memo {
    tci_lower_frame key;
    int inst;
} tci_lower_memo;

/* ---- memo ---- */

static uint64_t tci_lower_hash(const tci_lower_frame *f)
{
    uint64_t h = tci_hash_mix((uint64_t)(uintptr_t)f->node, (uint64_t)f->guard);
    for (int i = 0; i < f->node->rank; i++) {
        h = tci_hash_mix(h, (uint64_t)f->idx[i]);
    }
    return h;
}

static bool tci_lower_same(const tci_lower_frame *a, const tci_lower_frame *b)
{
    if (a->node != b->node || a->guard != b->guard) {
        return false;
    }
    for (int i = 0; i < a->node->rank && a->idx != b->idx; i++) {
        if (a->idx[i] != b->idx[i]) {
            return false;
        }
    }
    return true;
}

static int tci_lower_find(const tci_lower *l, const tci_lower_frame *f)
{
    uint64_t mask = (uint64_t)(l->n_table - 1);
    for (uint64_t at = tci_lower_hash(f) & mask; l->table[at]; at = (at + 1) & mask) {
        if (tci_lower_same(&l->memo[l->table[at] - 1].key, f)) {
            return l->memo[l->table[at] - 1].inst;
        }
    }
    return -1;
}

static void tci_lower_put(tci_lower *l, int memo)
{
    uint64_t mask = (uint64_t)(l->n_table - 1);
    uint64_t at = tci_lower_hash(&l->memo[memo].key) & mask;
    while (l->table[at]) {
        at = (at + 1) & mask;
    }
    l->table[at] = memo + 1;
}

static void tci_lower_remember(tci_lower *l, const tci_lower_frame *f, int inst)
{
    tci_lower_memo m = {*f, inst};
    TCI_PUSH(l->s, l->memo, l->n_memo, l->cap_memo, m);
    if (l->n_memo * 2 < l->n_table) {
        tci_lower_put(l, l->n_memo - 1);
        return;
    }
    l->n_table *= 2;
    l->table = TCI_NEW_ARRAY(l->s, int32_t, l->n_table);
    for (int i = 0; i < l->n_memo; i++) {
        tci_lower_put(l, i);
    }
}

TCI_FN void tci_lower_init(tci_lower *l, tci_scratch *s, tci_kernel *k)
{
    *l = (tci_lower){.s = s, .k = k, .n_table = 64};
    l->table = TCI_NEW_ARRAY(s, int32_t, l->n_table);
    struct tci_lower_set none = {0, 0};
    TCI_PUSH(s, l->sets, l->n_sets, l->cap_sets, none);
}

/* ---- guards: set 0 is "always"; -1 stands for "never" ---- */

static int tci_lower_set_find(tci_lower *l, const tci_kguard *list, int n)
{
    for (int i = 0; i < l->n_sets; i++) {
        bool same = l->sets[i].n == n;
        for (int g = 0; same && g < n; g++) {
            const tci_kguard *have = &l->k->guards[l->sets[i].first + g];
            same = have->x == list[g].x && have->lo == list[g].lo && have->hi == list[g].hi;
        }
        if (same) {
            return i;
        }
    }
    struct tci_lower_set set = {l->k->n_guards, n};
    for (int g = 0; g < n; g++) {
        TCI_PUSH(l->s, l->k->guards, l->k->n_guards, l->k->cap_guards, list[g]);
    }
    TCI_PUSH(l->s, l->sets, l->n_sets, l->cap_sets, set);
    return l->n_sets - 1;
}

/* guard and lo <= x <= hi. */
static int tci_lower_guard_and(tci_lower *l, int guard, int x, int64_t lo, int64_t hi)
{
    const tci_kx *e = &l->k->kx[x];
    if (guard < 0 || e->lo > hi || e->hi < lo || lo > hi) {
        return -1;
    }
    if (e->lo >= lo && e->hi <= hi) {
        return guard;
    }
    int n = l->sets[guard].n;
    tci_kguard *list = TCI_NEW_ARRAY(l->s, tci_kguard, n + 1);
    bool merged = false;
    for (int i = 0; i < n; i++) {
        list[i] = l->k->guards[l->sets[guard].first + i];
        if (list[i].x == x) {
            list[i].lo = TCI_MAX(list[i].lo, lo);
            list[i].hi = TCI_MIN(list[i].hi, hi);
            merged = true;
            if (list[i].lo > list[i].hi) {
                return -1;
            }
        }
    }
    if (!merged) {
        tci_kguard g = {x, lo, hi};
        list[n++] = g;
    }
    return tci_lower_set_find(l, list, n);
}

static int tci_lower_guard_value(tci_lower *l, int guard)
{
    tci_kinst i = {0};
    i.op = TCI_K_GUARD;
    i.dtype = TC_BOOL;
    i.x = -1;
    i.guard = l->sets[guard].first;
    i.n_guards = l->sets[guard].n;
    return tci_kernel_inst(l->k, i);
}

/* ---- conversions ---- */

TCI_FN int tci_lower_convert(tci_kernel *k, int value, tc_dtype to)
{
    return k->insts[value].dtype == to ? value : tci_kernel_prim(k, TCI_P_CAST, to, 1, value, -1, -1);
}

TCI_FN int tci_lower_round(tci_kernel *k, int value, tc_dtype to)
{
    value = tci_lower_convert(k, value, (tc_dtype)tci_dtype_get(to)->compute);
    if (to == TC_BF16) {
        return tci_kernel_prim(k, TCI_P_ROUNDB16, TC_F32, 1, value, -1, -1);
    }
    return to == TC_F16 ? tci_kernel_prim(k, TCI_P_ROUND16, TC_F32, 1, value, -1, -1) : value;
}

/* ---- elementwise rows: one expansion of the value column ---- */

typedef struct tci_lower_ew {
    tci_kernel *k;
    tc_dtype t;      /* compute dtype of the operands */
    int a, b;
} tci_lower_ew;

static int tci_lower_p1(const tci_lower_ew *e, tci_prim p, int a)
{
    tc_dtype t = (tc_dtype)e->k->insts[a].dtype;
    bool rounds = p == TCI_P_FLOOR || p == TCI_P_CEIL || p == TCI_P_TRUNC || p == TCI_P_RINT;
    if (rounds && !tci_dtype_is_float(t)) {
        return a;
    }
    bool sign = p == TCI_P_ABS && !tci_dtype_is_signed(t);
    return sign ? a : tci_kernel_prim(e->k, p, t, 1, a, -1, -1);
}

/* Arithmetic on bool is its logic: + is or, * is and. */
static int tci_lower_p2(const tci_lower_ew *e, tci_prim p, int a, int b)
{
    tc_dtype t = (tc_dtype)e->k->insts[a].dtype;
    if (t == TC_BOOL) {
        p = p == TCI_P_ADD ? TCI_P_OR : p == TCI_P_MUL ? TCI_P_AND : p == TCI_P_SUB ? TCI_P_XOR : p;
    }
    return tci_kernel_prim(e->k, p, t, 2, a, b, -1);
}

static int tci_lower_select(tci_kernel *k, int mask, int a, int b)
{
    return tci_kernel_prim(k, TCI_P_SELECT, (tc_dtype)k->insts[a].dtype, 3, mask, a, b);
}

static int tci_lower_not(const tci_lower_ew *e, int a)
{
    return tci_kernel_prim(e->k, TCI_P_NOT, TC_BOOL, 1, a, -1, -1);
}

/* max(a, b) = a where a > b or a is NaN, else b; min likewise. */
static int tci_lower_extreme(const tci_lower_ew *e, bool max, int a, int b)
{
    tc_dtype t = (tc_dtype)e->k->insts[a].dtype;
    if (t == TC_BOOL) {
        return tci_kernel_prim(e->k, max ? TCI_P_OR : TCI_P_AND, t, 2, a, b, -1);
    }
    int best = tci_kernel_prim(e->k, max ? TCI_P_PMAX : TCI_P_PMIN, t, 2, a, b, -1);
    if (!tci_dtype_is_float(t) || e->k->insts[a].op == TCI_K_CONST) {
        return best;
    }
    return tci_lower_select(e->k, tci_kernel_prim(e->k, TCI_P_EQ, t, 2, a, a, -1), best, a);
}

static int tci_lower_constant(const tci_lower_ew *e, double x)
{
    tci_value v;
    if (tci_dtype_is_float(e->t)) {
        v.f = x;
    } else {
        v.i = (int64_t)x;
    }
    return tci_kernel_const(e->k, e->t, v);
}

/* Python's remainder: the sign of b. */
static int tci_lower_modulo(const tci_lower_ew *e, int a, int b)
{
    int r = tci_lower_p2(e, TCI_P_REM, a, b);
    if (!tci_dtype_is_signed(e->t)) {
        return r;
    }
    int zero = tci_lower_constant(e, 0);
    int nonzero = tci_lower_not(e, tci_lower_p2(e, TCI_P_EQ, r, zero));
    int r_negative = tci_lower_p2(e, TCI_P_LT, r, zero);
    int b_negative = tci_lower_p2(e, TCI_P_LT, b, zero);
    int differ = tci_kernel_prim(e->k, TCI_P_XOR, TC_BOOL, 2, r_negative, b_negative, -1);
    int fix = tci_kernel_prim(e->k, TCI_P_AND, TC_BOOL, 2, nonzero, differ, -1);
    return tci_lower_select(e->k, fix, tci_lower_p2(e, TCI_P_ADD, r, b), r);
}

static int tci_lower_pow(const tci_lower_ew *e, int a, int b)
{
    if (tci_dtype_is_float(e->t)) {
        return tci_lower_p2(e, TCI_P_POW, a, b);
    }
    tci_kinst i = {0};
    i.op = TCI_K_PRIM;
    i.prim = TCI_P_LANE1;
    i.dtype = tci_dtype_is_signed(e->t) ? TC_I64 : TC_U64;
    i.n_args = 3;
    i.args[0] = tci_lower_convert(e->k, a, (tc_dtype)i.dtype);
    i.args[1] = tci_lower_convert(e->k, b, (tc_dtype)i.dtype);
    tci_value yes = {.i = 1};
    i.args[2] = tci_kernel_const(e->k, TC_BOOL, yes);
    i.x = -1;
    i.guard = -1;
    i.imm = tci_dtype_is_signed(e->t) ? TCI_H_POW_I64 : TCI_H_POW_U64;
    return tci_lower_convert(e->k, tci_kernel_inst(e->k, i), e->t);
}

static int tci_lower_row(const tci_lower_ew *e, int op)
{
#define A (e->a)
#define B (e->b)
#define K(x) tci_lower_constant(e, (double)(x))
#define NEG(a) tci_lower_p1(e, TCI_P_NEG, a)
#define ABS(a) tci_lower_p1(e, TCI_P_ABS, a)
#define EXP(a) tci_lower_p1(e, TCI_P_EXP, a)
#define LOG(a) tci_lower_p1(e, TCI_P_LOG, a)
#define SQRT(a) tci_lower_p1(e, TCI_P_SQRT, a)
#define SIN(a) tci_lower_p1(e, TCI_P_SIN, a)
#define COS(a) tci_lower_p1(e, TCI_P_COS, a)
#define TANH(a) tci_lower_p1(e, TCI_P_TANH, a)
#define ERF(a) tci_lower_p1(e, TCI_P_ERF, a)
#define SIGMOID(a) tci_lower_p1(e, TCI_P_SIGMOID, a)
#define GELU(a) tci_lower_p1(e, TCI_P_GELU, a)
#define FLOOR(a) tci_lower_p1(e, TCI_P_FLOOR, a)
#define CEIL(a) tci_lower_p1(e, TCI_P_CEIL, a)
#define TRUNC(a) tci_lower_p1(e, TCI_P_TRUNC, a)
#define RINT(a) tci_lower_p1(e, TCI_P_RINT, a)
#define NOT(a) tci_lower_p1(e, TCI_P_NOT, a)
#define ADD(a, b) tci_lower_p2(e, TCI_P_ADD, a, b)
#define SUB(a, b) tci_lower_p2(e, TCI_P_SUB, a, b)
#define MUL(a, b) tci_lower_p2(e, TCI_P_MUL, a, b)
#define DIV(a, b) tci_lower_p2(e, TCI_P_DIV, a, b)
#define EQ(a, b) tci_lower_p2(e, TCI_P_EQ, a, b)
#define NE(a, b) tci_lower_not(e, EQ(a, b))
#define LT(a, b) tci_lower_p2(e, TCI_P_LT, a, b)
#define LE(a, b) tci_lower_p2(e, TCI_P_LE, a, b)
#define AND(a, b) tci_lower_p2(e, TCI_P_AND, a, b)
#define OR(a, b) tci_lower_p2(e, TCI_P_OR, a, b)
#define POW(a, b) tci_lower_pow(e, a, b)
#define MAX(a, b) tci_lower_extreme(e, true, a, b)
#define MIN(a, b) tci_lower_extreme(e, false, a, b)
#define MODULO(a, b) tci_lower_modulo(e, a, b)
    switch (op) {
#define X(id, name, arity, rule, flags, value, doc)                                                \
    case TCI_OP_##id: return value;
        TCI_EW_OPS(X)
#undef X
    default: return -1;
    }
#undef A
#undef B
#undef K
#undef NEG
#undef ABS
#undef EXP
#undef LOG
#undef SQRT
#undef SIN
#undef COS
#undef TANH
#undef ERF
#undef SIGMOID
#undef GELU
#undef FLOOR
#undef CEIL
#undef TRUNC
#undef RINT
#undef NOT
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef EQ
#undef NE
#undef LT
#undef LE
#undef AND
#undef OR
#undef POW
#undef MAX
#undef MIN
#undef MODULO
}

/* Rows whose value is always one of the operands (or its exact negation): no rounding needed. */
static bool tci_lower_is_exact(int op)
{
    return op == TCI_OP_NEG || op == TCI_OP_ABS || op == TCI_OP_RELU || op == TCI_OP_MAXIMUM ||
           op == TCI_OP_MINIMUM || op == TCI_OP_FLOOR || op == TCI_OP_CEIL || op == TCI_OP_TRUNC ||
           op == TCI_OP_ROUND;
}

static int tci_lower_elementwise(tci_lower *l, const tci_node *n, const int *in)
{
    tci_lower_ew e = {l->k, (tc_dtype)tci_dtype_get((tc_dtype)n->in[0]->dtype)->compute, in[0],
                      n->n_in > 1 ? in[1] : -1};
    int value = tci_lower_row(&e, n->op);
    return tci_lower_is_exact(n->op) ? value : tci_lower_round(l->k, value, (tc_dtype)n->dtype);
}

/* The cost of a row is counted on a kernel of its own, with two loads for the operands. */
TCI_FN int tci_lower_cost(int op)
{
    static const uint8_t heavy[] = {TCI_OP_EXP, TCI_OP_LOG, TCI_OP_SIN, TCI_OP_COS, TCI_OP_TANH, TCI_OP_SIGMOID,
                                    TCI_OP_SILU, TCI_OP_ERF, TCI_OP_GELU, TCI_OP_POW, TCI_OP_REMAINDER};
    for (int i = 0; i < TCI_COUNT(heavy); i++) {
        if (heavy[i] == op) {
            return 20;
        }
    }
    return op == TCI_OP_DIV || op == TCI_OP_SQRT || op == TCI_OP_RSQRT || op == TCI_OP_RECIPROCAL ? 4 : 1;
}

/* ---- index maps of the movement ops ---- */

TCI_FN int tci_lower_offset(tci_lower *l, int rank, const tci_dim *shape, const tci_dim *strides, const int *idx)
{
    int64_t dense = 1, lowest = 0;
    int x = tci_kx_const(l->k, 0);
    for (int i = rank - 1; i >= 0; i--) {
        int64_t stride = strides ? strides[i] : dense;
        x = tci_kx_add(l->k, x, tci_kx_mul(l->k, idx[i], stride));
        lowest += stride < 0 && shape[i] > 0 ? stride * (shape[i] - 1) : 0;
        dense *= TCI_MAX(shape[i], 1);
    }
    return tci_kx_add(l->k, x, tci_kx_const(l->k, -lowest));
}

static void tci_lower_unflatten(tci_lower *l, const tci_node *in, int flat, int *idx)
{
    int64_t stride = 1;
    for (int i = in->rank - 1; i >= 0; i--) {
        int64_t size = TCI_MAX(in->shape[i], 1);
        idx[i] = tci_kx_mod(l->k, tci_kx_div(l->k, flat, stride), size);
        stride *= size;
    }
}

static const int *tci_lower_move(tci_lower *l, const tci_node *n, const int *idx)
{
    const tci_node *in = n->in[0];
    int *to = TCI_NEW_ARRAY(l->s, int, in->rank + 1);
    if (n->op == TCI_OP_RESHAPE) {
        tci_lower_unflatten(l, in, tci_lower_offset(l, n->rank, n->shape, NULL, idx), to);
        return to;
    }
    for (int i = 0; i < in->rank; i++) {
        switch (n->op) {
        case TCI_OP_PERMUTE: to[n->attr[i]] = idx[i]; break;
        case TCI_OP_EXPAND: to[i] = in->shape[i] == 1 ? tci_kx_const(l->k, 0) : idx[i]; break;
        case TCI_OP_SLICE:
            to[i] = tci_kx_add(l->k, tci_kx_mul(l->k, idx[i], n->attr[2 * i + 1]),
                               tci_kx_const(l->k, n->attr[2 * i]));
            break;
        case TCI_OP_PAD: to[i] = tci_kx_add(l->k, idx[i], tci_kx_const(l->k, -n->attr[i])); break;
        default: to[i] = idx[i]; break; /* WINDOW: windowed axes below */
        }
    }
    for (int w = 0; n->op == TCI_OP_WINDOW && w < n->n_attr / 4; w++) {
        const int64_t *a = n->attr + 4 * w; /* axis, kernel, stride, dilation */
        to[a[0]] = tci_kx_add(l->k, tci_kx_mul(l->k, idx[a[0]], a[2]), tci_kx_mul(l->k, idx[in->rank + w], a[3]));
    }
    return to;
}

/* ---- the walk ---- */

static void tci_lower_dep(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_lower_frame f = {n, idx, guard};
    TCI_PUSH(l->s, l->deps, l->n_deps, l->cap_deps, f);
}

static int tci_lower_pad_guard(tci_lower *l, const tci_node *n, const int *inner_idx, int guard)
{
    for (int i = 0; i < n->rank; i++) {
        guard = tci_lower_guard_and(l, guard, inner_idx[i], 0, n->in[0]->shape[i] - 1);
    }
    return guard;
}

/* Guard of the part of CAT's axis that input i covers. */
static int tci_lower_cat_guard(tci_lower *l, const tci_node *n, int i, const int *idx, int guard, int64_t *start)
{
    int axis = (int)n->attr[0];
    *start = 0;
    for (int j = 0; j < i; j++) {
        *start += n->in[j]->shape[axis];
    }
    return tci_lower_guard_and(l, guard, idx[axis], *start, *start + n->in[i]->shape[axis] - 1);
}

/* Lists in l->deps the values that n at idx is made of. Deterministic: asked twice for one frame. */
static void tci_lower_list_deps(tci_lower *l, const tci_lower_frame *f)
{
    const tci_node *n = f->node;
    l->n_deps = 0;
    if (tci_op_is_ew(n->op) || n->op == TCI_OP_WHERE || n->op == TCI_OP_CAST) {
        for (int i = 0; i < n->n_in; i++) {
            tci_lower_dep(l, n->in[i], f->idx, f->guard);
        }
        return;
    }
    if (n->op == TCI_OP_PAD) {
        const int *to = tci_lower_move(l, n, f->idx);
        int guard = tci_lower_pad_guard(l, n, to, f->guard);
        if (guard >= 0) {
            tci_lower_dep(l, n->in[0], to, guard);
        }
        tci_lower_dep(l, n->in[1], f->idx, 0);
        return;
    }
    if (n->op == TCI_OP_CAT) {
        for (int i = 0; i < n->n_in; i++) {
            int64_t start;
            int guard = tci_lower_cat_guard(l, n, i, f->idx, f->guard, &start);
            if (guard >= 0) {
                int *to = tci_scratch_copy(l->s, f->idx, sizeof(int) * (size_t)n->rank);
                to[n->attr[0]] = tci_kx_add(l->k, to[n->attr[0]], tci_kx_const(l->k, -start));
                tci_lower_dep(l, n->in[i], to, guard);
            }
        }
        return;
    }
    if (n->op == TCI_OP_GATHER) { /* x itself follows once its index is a value */
        tci_lower_dep(l, n->in[1], f->idx, f->guard);
        return;
    }
    if (n->op != TCI_OP_LITERAL && n->op != TCI_OP_CONST && n->op != TCI_OP_IOTA) {
        tci_lower_dep(l, n->in[0], tci_lower_move(l, n, f->idx), f->guard);
    }
}

static int tci_lower_index(tci_lower *l, int x)
{
    tci_kinst i = {0};
    i.op = TCI_K_INDEX;
    i.dtype = TC_I64;
    i.x = x;
    i.guard = -1;
    return tci_kernel_inst(l->k, i);
}

static int tci_lower_literal(tci_lower *l, tci_node *n)
{
    tci_kinst i = {0};
    i.op = TCI_K_LIT;
    i.dtype = tci_dtype_get((tc_dtype)n->dtype)->compute;
    i.x = -1;
    i.guard = -1;
    i.imm = l->literal(l, n);
    return tci_lower_round(l->k, tci_kernel_inst(l->k, i), (tc_dtype)n->dtype);
}

static int tci_lower_pad_value(tci_lower *l, const tci_lower_frame *f, const int *in)
{
    const int *to = tci_lower_move(l, f->node, f->idx);
    int guard = tci_lower_pad_guard(l, f->node, to, f->guard);
    if (guard < 0 || guard == f->guard) {
        return in[0]; /* all fill (then the only dependency), or nothing padded */
    }
    int value = in[0], fill = in[1];
    const tci_kinst *v = &l->k->insts[value];
    bool plain = v->op == TCI_K_LOAD && v->guard == l->sets[guard].first && v->n_guards == l->sets[guard].n;
    if (plain && f->guard == 0 && l->k->insts[fill].op == TCI_K_CONST) {
        tci_kinst load = *v;
        load.value = l->k->insts[fill].value;
        return tci_kernel_inst(l->k, load);
    }
    return tci_lower_select(l->k, tci_lower_guard_value(l, guard), value, fill);
}

static int tci_lower_cat_value(tci_lower *l, const tci_lower_frame *f, const int *in)
{
    int value = -1, at = l->n_deps;
    for (int i = f->node->n_in - 1; i >= 0; i--) {
        int64_t start;
        int guard = tci_lower_cat_guard(l, f->node, i, f->idx, f->guard, &start);
        if (guard >= 0) {
            int part = in[--at];
            value = value < 0 || guard == f->guard
                        ? part
                        : tci_lower_select(l->k, tci_lower_guard_value(l, guard), part, value);
        }
    }
    tci_value zero = {.i = 0};
    return value >= 0 ? value
                      : tci_kernel_const(l->k, (tc_dtype)tci_dtype_get((tc_dtype)f->node->dtype)->compute, zero);
}

/* x at the loaded index: a frame of its own, so that the walk evaluates it. -1: pushed, come back. */
static int tci_lower_gather_value(tci_lower *l, const tci_lower_frame *f, int index)
{
    const tci_node *x = f->node->in[0];
    int axis = (int)f->node->attr[0];
    int64_t size = x->shape[axis];
    index = tci_lower_convert(l->k, index, TC_I64);
    if (f->guard > 0) { /* where the guard fails the index means nothing: it must not be a fault */
        tci_value zero = {.i = 0};
        index = tci_lower_select(l->k, tci_lower_guard_value(l, f->guard), index,
                                 tci_kernel_const(l->k, TC_I64, zero));
    }
    tci_kinst i = {0};
    i.op = TCI_K_FAULT;
    i.dtype = TC_I64;
    i.n_args = 1;
    i.args[0] = index;
    i.x = -1;
    i.guard = -1;
    i.imm = size;
    int checked = tci_kernel_inst(l->k, i);
    l->k->faults = true;
    int *to = tci_scratch_copy(l->s, f->idx, sizeof(int) * (size_t)x->rank);
    to[axis] = tci_kx_value(l->k, checked, 0, TCI_MAX(size - 1, 0));
    tci_lower_frame inner = {f->node->in[0], to, f->guard};
    int value = tci_lower_find(l, &inner);
    if (value < 0) {
        TCI_PUSH(l->s, l->frames, l->n_frames, l->cap_frames, inner);
    }
    return value;
}

static int tci_lower_combine(tci_lower *l, const tci_lower_frame *f, const int *in)
{
    tci_node *n = f->node;
    if (tci_op_is_ew(n->op)) {
        return tci_lower_elementwise(l, n, in);
    }
    switch (n->op) {
    case TCI_OP_LITERAL: return tci_lower_literal(l, n);
    case TCI_OP_CONST:
        return tci_kernel_const(l->k, (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute, n->value);
    case TCI_OP_IOTA: return tci_lower_index(l, f->idx[0]);
    case TCI_OP_WHERE: return tci_lower_select(l->k, in[0], in[1], in[2]);
    case TCI_OP_CAST: return tci_lower_round(l->k, in[0], (tc_dtype)n->dtype);
    case TCI_OP_PAD: return tci_lower_pad_value(l, f, in);
    case TCI_OP_CAT: return tci_lower_cat_value(l, f, in);
    case TCI_OP_GATHER: return tci_lower_gather_value(l, f, in[0]);
    default: return in[0]; /* RESHAPE PERMUTE EXPAND SLICE WINDOW */
    }
}

/* Works on the frame on top: finishes it (true) or pushes what it still needs (false). */
static bool tci_lower_step(tci_lower *l, tci_lower_frame f, int *inst)
{
    *inst = l->access(l, f.node, f.idx, f.guard);
    if (*inst >= 0) {
        return true;
    }
    tci_lower_list_deps(l, &f);
    bool ready = true;
    l->n_dep_insts = 0;
    for (int i = 0; i < l->n_deps; i++) {
        int value = tci_lower_find(l, &l->deps[i]);
        if (value < 0) {
            TCI_PUSH(l->s, l->frames, l->n_frames, l->cap_frames, l->deps[i]);
            ready = false;
        }
        TCI_PUSH(l->s, l->dep_insts, l->n_dep_insts, l->cap_dep_insts, value);
    }
    if (ready) {
        *inst = tci_lower_combine(l, &f, l->dep_insts);
    }
    return ready && *inst >= 0;
}

TCI_FN int tci_lower_value(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_lower_frame root = {n, tci_scratch_copy(l->s, idx, sizeof(int) * (size_t)(n->rank + 1)), guard};
    int base = l->n_frames;
    int inst = tci_lower_find(l, &root);
    if (inst >= 0) {
        return inst;
    }
    TCI_PUSH(l->s, l->frames, l->n_frames, l->cap_frames, root);
    while (l->n_frames > base) {
        int top = l->n_frames - 1;
        tci_lower_frame f = l->frames[top];
        if (tci_lower_find(l, &f) >= 0) {
            l->n_frames = top;
        } else if (tci_lower_step(l, f, &inst)) {
            tci_lower_remember(l, &f, inst);
            l->n_frames = top;
        }
    }
    return tci_lower_find(l, &root);
}

TCI_FN int tci_lower_load(tci_lower *l, int operand, tc_dtype t, int x, int guard)
{
    tci_kinst i = {0};
    i.op = TCI_K_LOAD;
    i.dtype = (uint8_t)t;
    i.x = x;
    i.imm = operand;
    i.guard = guard > 0 ? l->sets[guard].first : -1;
    i.n_guards = guard > 0 ? l->sets[guard].n : 0;
    return tci_kernel_inst(l->k, i);
}

TCI_FN int tci_lower_visited(tci_lower *l, tci_node ***nodes)
{
    *nodes = TCI_NEW_ARRAY(l->s, tci_node *, l->n_memo + 1);
    for (int i = 0; i < l->n_memo; i++) {
        (*nodes)[i] = l->memo[i].key.node;
    }
    return l->n_memo;
}
/* ---- src/kernel/simplify.c ---- */
/* kernel/simplify.c - gives a freshly lowered kernel its final form.
 *
 * tci_kernel_split_find  names an axis whose split makes a floor-division or remainder affine.
 * tci_kernel_finish      copies the live part of a kernel in canonical order (stage by stage, operands
 *                        first), merging neighbouring axes that every index walks as one.
 * The copy makes the text of a kernel independent of how its lowering happened to number things. */
/* ---- src/kernel/simplify.h ---- */
/* kernel/simplify.h - the final form of a kernel. */
#ifndef TCI_KERNEL_SIMPLIFY_H
#define TCI_KERNEL_SIMPLIFY_H


/* An axis and a factor of its size such that splitting the axis (slow part, fast part of that size) makes
 * some floor-division or remainder affine; false when there is none. */
TCI_FN bool tci_kernel_split_find(const tci_kernel *k, int *axis, int64_t *factor);
/* A copy in canonical order without dead values, neighbouring axes merged where every access allows. */
TCI_FN tci_kernel *tci_kernel_finish(const tci_kernel *k);

#endif

/* ---- src/kernel/simplify.c, continued ---- */
/* ---- splitting ---- */

static int64_t tci_kernel_term_split(const tci_kernel *k, int x, int64_t c, int *axis)
{
    int64_t factor = 0;
    for (;;) {
        tci_kx e = k->kx[x];
        int rest = e.op == TCI_KX_ADD ? e.a : -1;
        e = e.op == TCI_KX_ADD ? k->kx[e.b] : e;
        int64_t coef = 1;
        if (e.op == TCI_KX_MUL) {
            coef = e.c;
            e = k->kx[e.a];
        }
        if (e.op == TCI_KX_AXIS && coef > 0 && c % coef == 0) {
            int64_t f = c / coef, size = k->axes[e.c].size;
            if (f > 1 && f < size && size % f == 0 && f > factor) {
                factor = f;
                *axis = (int)e.c;
            }
        }
        if (rest < 0) {
            return factor;
        }
        x = rest;
    }
}

TCI_FN bool tci_kernel_split_find(const tci_kernel *k, int *axis, int64_t *factor)
{
    for (int x = 0; x < k->n_kx; x++) {
        if (k->kx[x].op == TCI_KX_DIV || k->kx[x].op == TCI_KX_MOD) {
            *factor = tci_kernel_term_split(k, k->kx[x].a, k->kx[x].c, axis);
            if (*factor > 1) {
                return true;
            }
        }
    }
    return false;
}

/* ---- merging neighbouring axes ---- */

/* The coefficient of `axis` in the sum x, looking only at the terms of this sum. */
static int64_t tci_kernel_coef(const tci_kernel *k, int x, int axis)
{
    for (;;) {
        tci_kx e = k->kx[x];
        int rest = e.op == TCI_KX_ADD ? e.a : -1;
        e = e.op == TCI_KX_ADD ? k->kx[e.b] : e;
        int64_t coef = 1;
        if (e.op == TCI_KX_MUL) {
            coef = e.c;
            e = k->kx[e.a];
        }
        if (e.op == TCI_KX_AXIS && e.c == axis) {
            return coef;
        }
        if (rest < 0) {
            return 0;
        }
        x = rest;
    }
}

/* Every sum under x walks axes a and b (b the faster) as one: coef a = coef b * size b. */
static bool tci_kernel_walks_as_one(const tci_kernel *k, int x, int a, int b)
{
    if (tci_kernel_coef(k, x, a) != tci_kernel_coef(k, x, b) * k->axes[b].size) {
        return false;
    }
    for (;;) {
        tci_kx e = k->kx[x];
        int rest = e.op == TCI_KX_ADD ? e.a : -1;
        e = e.op == TCI_KX_ADD ? k->kx[e.b] : e;
        e = e.op == TCI_KX_MUL ? k->kx[e.a] : e;
        bool nested = e.op == TCI_KX_DIV || e.op == TCI_KX_MOD;
        if (nested && !tci_kernel_walks_as_one(k, e.a, a, b)) {
            return false;
        }
        if (rest < 0) {
            return true;
        }
        x = rest;
    }
}

/* Both axes belong to the same loop nests, b right after a. */
static bool tci_kernel_are_neighbours(const tci_kernel *k, int a, int b)
{
    if (k->axes[a].inner != k->axes[b].inner) {
        return false;
    }
    for (int t = 0; t < k->n_stages; t++) {
        int at_a = -2, at_b = -1;
        for (int i = 0; i < k->stages[t].n_axes; i++) {
            at_a = k->stages[t].axes[i] == a ? i : at_a;
            at_b = k->stages[t].axes[i] == b ? i : at_b;
        }
        if (k->axes[a].inner && at_a + 1 != at_b) { /* in neither: -2 + 1 == -1 */
            return false;
        }
    }
    return true;
}

static bool tci_kernel_can_merge(const tci_kernel *k, const bool *live, int a, int b)
{
    if (!tci_kernel_are_neighbours(k, a, b)) {
        return false;
    }
    for (int n = 0; n < k->n_insts; n++) {
        const tci_kinst *i = &k->insts[n];
        if (!live[n]) {
            continue;
        }
        if (i->x >= 0 && !tci_kernel_walks_as_one(k, i->x, a, b)) {
            return false;
        }
        for (int g = 0; g < i->n_guards; g++) {
            if (!tci_kernel_walks_as_one(k, k->guards[i->guard + g].x, a, b)) {
                return false;
            }
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        if (!tci_kernel_walks_as_one(k, k->stores[w].x, a, b)) {
            return false;
        }
    }
    return true;
}

/* ---- the copy ---- */

typedef struct tci_kernel_copy {
    const tci_kernel *from;
    tci_kernel *to;
    int *axis_to;     /* new axis; -1: merged into a faster one, contributes nothing */
    int *inst_to;     /* new instruction; -1: not copied yet */
    int *stack;
    int n_stack, cap_stack;
} tci_kernel_copy;

static int tci_kernel_copy_kx(tci_kernel_copy *c, int x)
{
    tci_kx e = c->from->kx[x];
    switch (e.op) {
    case TCI_KX_AXIS: return c->axis_to[e.c] < 0 ? tci_kx_const(c->to, 0) : tci_kx_axis(c->to, c->axis_to[e.c]);
    case TCI_KX_ADD: {
        int a = tci_kernel_copy_kx(c, e.a);
        return tci_kx_add(c->to, a, tci_kernel_copy_kx(c, e.b));
    }
    case TCI_KX_MUL: return tci_kx_mul(c->to, tci_kernel_copy_kx(c, e.a), e.c);
    case TCI_KX_DIV: return tci_kx_div(c->to, tci_kernel_copy_kx(c, e.a), e.c);
    case TCI_KX_MOD: return tci_kx_mod(c->to, tci_kernel_copy_kx(c, e.a), e.c);
    case TCI_KX_VALUE: return tci_kx_value(c->to, c->inst_to[e.c], e.lo, e.hi);
    default: return tci_kx_const(c->to, e.c);
    }
}

/* Pushes the instructions inside an index expression that are not copied yet. */
static void tci_kernel_copy_need_kx(tci_kernel_copy *c, int x)
{
    tci_kx e = c->from->kx[x];
    if (e.op == TCI_KX_VALUE && c->inst_to[e.c] < 0) {
        TCI_PUSH(c->to->s, c->stack, c->n_stack, c->cap_stack, (int)e.c);
    }
    if (e.a >= 0) {
        tci_kernel_copy_need_kx(c, e.a);
    }
    if (e.b >= 0) {
        tci_kernel_copy_need_kx(c, e.b);
    }
}

static void tci_kernel_copy_need(tci_kernel_copy *c, const tci_kinst *i)
{
    for (int a = i->n_args - 1; a >= 0; a--) { /* pushed last, copied first */
        if (c->inst_to[i->args[a]] < 0) {
            TCI_PUSH(c->to->s, c->stack, c->n_stack, c->cap_stack, i->args[a]);
        }
    }
    if (i->x >= 0) {
        tci_kernel_copy_need_kx(c, i->x);
    }
    for (int g = 0; g < i->n_guards; g++) {
        tci_kernel_copy_need_kx(c, c->from->guards[i->guard + g].x);
    }
}

/* Guards of one instruction, sharing an equal run that is already there. */
static int tci_kernel_copy_guards(tci_kernel_copy *c, const tci_kinst *i)
{
    if (i->n_guards == 0) {
        return -1;
    }
    tci_kernel *k = c->to;
    tci_kguard *list = TCI_NEW_ARRAY(k->s, tci_kguard, i->n_guards);
    for (int g = 0; g < i->n_guards; g++) {
        list[g] = c->from->guards[i->guard + g];
        list[g].x = tci_kernel_copy_kx(c, list[g].x);
    }
    for (int first = 0; first + i->n_guards <= k->n_guards; first++) {
        bool same = true;
        for (int g = 0; same && g < i->n_guards; g++) {
            const tci_kguard *have = &k->guards[first + g];
            same = have->x == list[g].x && have->lo == list[g].lo && have->hi == list[g].hi;
        }
        if (same) {
            return first;
        }
    }
    int first = k->n_guards;
    for (int g = 0; g < i->n_guards; g++) {
        TCI_PUSH(k->s, k->guards, k->n_guards, k->cap_guards, list[g]);
    }
    return first;
}

static int tci_kernel_copy_inst(tci_kernel_copy *c, int root)
{
    if (c->inst_to[root] >= 0) {
        return c->inst_to[root];
    }
    TCI_PUSH(c->to->s, c->stack, c->n_stack, c->cap_stack, root);
    while (c->n_stack > 0) {
        int n = c->stack[c->n_stack - 1];
        int before = c->n_stack;
        if (c->inst_to[n] < 0) {
            tci_kernel_copy_need(c, &c->from->insts[n]);
        }
        if (c->n_stack > before) {
            continue;
        }
        c->n_stack--;
        if (c->inst_to[n] < 0) {
            tci_kinst i = c->from->insts[n];
            for (int a = 0; a < i.n_args; a++) {
                i.args[a] = c->inst_to[i.args[a]];
            }
            i.x = i.x >= 0 ? tci_kernel_copy_kx(c, i.x) : -1;
            i.guard = tci_kernel_copy_guards(c, &i);
            c->inst_to[n] = tci_kernel_inst(c->to, i);
        }
    }
    return c->inst_to[root];
}

static void tci_kernel_copy_stage(tci_kernel_copy *c, int t)
{
    const tci_kernel *from = c->from;
    tci_kernel *to = c->to;
    tci_kstage stage = {from->stages[t].kind, 0, TCI_NEW_ARRAY(to->s, int32_t, from->stages[t].n_axes + 1)};
    for (int a = 0; a < from->stages[t].n_axes; a++) {
        int axis = c->axis_to[from->stages[t].axes[a]];
        if (axis >= 0) {
            stage.axes[stage.n_axes++] = axis;
        }
    }
    TCI_PUSH(to->s, to->stages, to->n_stages, to->cap_stages, stage);
    for (int r = 0; r < from->n_reds; r++) {
        tci_kred red = from->reds[r];
        if (red.stage != t) {
            continue;
        }
        red.a = tci_kernel_copy_inst(c, red.a);
        red.b = red.b >= 0 ? tci_kernel_copy_inst(c, red.b) : -1;
        TCI_PUSH(to->s, to->reds, to->n_reds, to->cap_reds, red);
        tci_kinst i = from->insts[red.inst];
        i.imm = to->n_reds - 1;
        c->inst_to[red.inst] = tci_kernel_inst(to, i);
        to->reds[to->n_reds - 1].inst = c->inst_to[red.inst];
    }
    for (int w = 0; w < from->n_stores; w++) {
        tci_kstore store = from->stores[w];
        if (store.stage == t) {
            store.value = tci_kernel_copy_inst(c, store.value);
            store.x = tci_kernel_copy_kx(c, store.x);
            TCI_PUSH(to->s, to->stores, to->n_stores, to->cap_stores, store);
        }
    }
}

static tci_kernel *tci_kernel_copy_mapped(const tci_kernel *k, int *axis_to, const int64_t *sizes)
{
    tci_scratch *s = k->s;
    tci_kernel *to = tci_kernel_make(s);
    for (int a = 0; a < k->n_axes; a++) {
        if (axis_to[a] >= 0) {
            axis_to[a] = tci_kernel_axis(to, sizes[a], k->axes[a].inner);
        }
    }
    for (int a = 0; a < to->n_axes; a++) { /* axes first: the order of terms follows their numbers */
        tci_kx_axis(to, a);
    }
    to->vector = k->vector;
    to->operands = k->operands;
    to->n_operands = k->n_operands;
    to->n_literals = k->n_literals;
    to->faults = k->faults;
    tci_kernel_copy c = {k, to, axis_to, TCI_NEW_ARRAY(s, int, k->n_insts + 1), NULL, 0, 0};
    for (int i = 0; i < k->n_insts; i++) {
        c.inst_to[i] = -1;
    }
    for (int t = 0; t < k->n_stages; t++) {
        tci_kernel_copy_stage(&c, t);
    }
    return to;
}

/* Instructions that a store or reduction needs. */
static bool *tci_kernel_live(const tci_kernel *k)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    for (int r = 0; r < k->n_reds; r++) {
        live[k->reds[r].a] = true;
        if (k->reds[r].b >= 0) {
            live[k->reds[r].b] = true;
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        live[k->stores[w].value] = true;
    }
    for (int i = k->n_insts - 1; i >= 0; i--) { /* indices inside kx are loads' FAULTs: kept as well */
        for (int a = 0; a < k->insts[i].n_args && (live[i] || k->insts[i].op == TCI_K_FAULT); a++) {
            live[k->insts[i].args[a]] = true;
        }
    }
    return live;
}

TCI_FN tci_kernel *tci_kernel_finish(const tci_kernel *k)
{
    bool *live = tci_kernel_live(k);
    int *axis_to = TCI_NEW_ARRAY(k->s, int, k->n_axes + 1);
    int64_t *sizes = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes + 1);
    for (int a = 0; a < k->n_axes; a++) {
        sizes[a] = k->axes[a].size;
        axis_to[a] = a;
    }
    for (int a = 0; a + 1 < k->n_axes; a++) {
        if (tci_kernel_can_merge(k, live, a, a + 1)) { /* pairwise along a run: a into a+1, that into a+2 ... */
            sizes[a + 1] *= sizes[a];
            axis_to[a] = -1;
        }
    }
    return tci_kernel_copy_mapped(k, axis_to, sizes);
}

/* ---- src/plan/algorithm.c ---- */
/* plan/algorithm.c - one node into several, where that is how it should be computed.
 *
 *   large reductions   few results from many elements: cut along one reduced axis into chunks whose partial
 *                      results a second reduction combines, so that there is parallel work and the order is fixed
 *                      by the shape alone
 *   wide CAT           more than eight parts: a tree of CATs of eight, each in memory
 *   CONTRACT operands  a computed operand, or one whose vector axis is strided, goes to memory first (it is
 *                      read many times)
 * Works on the rewritten graph in place: the replaced node's users are pointed to the new one. */
/* ---- src/plan/group.h ---- */
/* plan/group.h - fusion: which values get memory (roots), and which roots share a kernel (groups).
 *
 * Root: a node whose value is computed by a stage: every reduction, contraction and scan, every program
 * output, and whatever the cost rules force into memory. All other nodes are inlined where they are
 * used. A root has a domain: for a VALUE its axes; for a REDUCE or CONTRACT its output axes, then the
 * summed ones; for a SCAN its other axes, then the scanned one.
 *
 * Probe: each root is lowered once on its own to learn what it reads, at which index, and what that costs. A read is
 * `pure` when every axis of what is read is an axis of the reader's domain (or has size 1).
 *
 * Group: roots over one outer space. A reader joins the group of what it reads when the read is pure and
 * keeps the outer index; siblings join when their spaces are equal. Invariants: groups form a DAG; within
 * a group roots are in topological order; a group with a CONTRACT or SCAN holds no other reduction. */
#ifndef TCI_PLAN_GROUP_H
#define TCI_PLAN_GROUP_H

/* ---- src/plan/plan.h ---- */
/* plan/plan.h - the plan of a program: kernels, buffers and the order of launches.
 *
 * plan/group.c cuts the rewritten graph into kernels, kernel/lower.c writes each as kernel IR,
 * plan/memory.c places temporaries. Invariants: steps are in execution order; a buffer is written (by
 * one or several steps, to disjoint elements) before it is read; temporaries whose lifetimes overlap do
 * not overlap in the arena; offsets are multiples of 64. */
#ifndef TCI_PLAN_PLAN_H
#define TCI_PLAN_PLAN_H


typedef enum tci_buffer_kind {
    TCI_BUF_INPUT,  /* index: which program input (leaf of the compiled graph) */
    TCI_BUF_OUTPUT, /* index: which program output */
    TCI_BUF_TEMP    /* offset: bytes from the arena's start */
} tci_buffer_kind;
typedef struct tci_buffer {
    uint8_t kind, dtype;
    int32_t index;
    int64_t n;              /* elements */
    int64_t bytes, offset;
    int32_t first, last;    /* steps between which it lives (derived) */
    const tci_node *node;   /* whose value it holds; only valid during the compile */
} tci_buffer;

typedef struct tci_step {
    int32_t kernel;         /* index in kernels: equal kernels are one */
    int32_t *operands;      /* buffer of each operand of the kernel */
    int32_t *literals;      /* program literal slot of each literal of the kernel */
} tci_step;

/* Which inputs an output may share memory with exactly (same address, same bytes): every kernel that
 * writes the output reads the input only at the element it writes, and nothing reads it later. */
typedef struct tci_alias { int32_t output, input; } tci_alias;

typedef struct tci_plan {
    tci_kernel **kernels; int n_kernels, cap_kernels;
    tci_step *steps; int n_steps, cap_steps;
    tci_buffer *buffers; int n_buffers, cap_buffers;
    tci_alias *aliases; int n_aliases, cap_aliases;
    int64_t arena_bytes;
    tci_str why;            /* one line a refused fusion: reason (plan/why.h), the two sides */
    int32_t *red_of;        /* while lowering: per root, the RED value of the kernel being made */
} tci_plan;

/* The whole planning pass over a rewritten graph. inputs and literals give the numbering of program
 * inputs and literal slots; roots the outputs in order. Escapes on failure. */
TCI_FN tci_plan *tci_plan_make(tci_scratch *s, tci_graph *g, tci_node *const *inputs, int n_inputs,
                               tci_node *const *literals, int n_literals, tci_node *const *roots, int n_roots);
TCI_FN void tci_plan_print(tci_str *out, const tci_plan *p);
TCI_FN void tci_plan_verify(tci_scratch *s, const tci_plan *p);

#endif

/* ---- src/plan/group.h, continued ---- */
typedef enum tci_root_kind { TCI_ROOT_VALUE, TCI_ROOT_REDUCE, TCI_ROOT_CONTRACT, TCI_ROOT_SCAN } tci_root_kind;

typedef struct tci_read {
    int32_t root;    /* what is read */
    bool pure;
    int32_t *axes;   /* per axis of what is read: the reader's domain axis, -1 where the size is 1 */
} tci_read;

typedef struct tci_root {
    tci_node *node;
    uint8_t kind;
    bool is_output;
    int32_t group;
    int32_t n_domain, n_out;      /* domain axes; the first n_out index the output */
    tci_dim *domain;
    int32_t *out_axis;            /* per axis of the node: its domain axis */
    int32_t *outer_of;            /* per domain axis: the group's outer axis, -1 inner */
    tci_read *reads; int32_t n_reads, cap_reads;
    tci_node **leaves; int32_t n_leaves, cap_leaves;   /* distinct leaves read */
    tci_node **inlined; int32_t n_inlined;             /* nodes evaluated, once per distinct index */
    int32_t n_insts;
    int32_t buffer;               /* where its value is kept; -1: nowhere */
    int32_t *outputs; int32_t n_outputs, cap_outputs;  /* buffers that also get it (program outputs) */
} tci_root;

typedef struct tci_group {
    int32_t n_outer;
    tci_dim *outer;
    int32_t *roots; int32_t n_roots, cap_roots;
    int32_t *deps; int32_t n_deps, cap_deps;           /* groups it reads from */
    bool has_reduce, has_contract, has_scan;
    int32_t n_insts;
    int32_t stamp;                                     /* of the last graph walk */
} tci_group;

typedef struct tci_fusion {
    tci_scratch *s;
    tci_node_list nodes;          /* everything the outputs need, inputs first */
    tci_root *roots; int32_t n_roots, cap_roots;
    tci_group *groups; int32_t n_groups, cap_groups;
    int32_t *order;               /* groups in execution order */
    int32_t stamp;
    tci_str *why;
} tci_fusion;

/* node->pass of every node while a plan is made. */
typedef struct tci_pnode {
    int32_t root;        /* its index, or -1 */
    bool forced;         /* must be a root */
    int32_t cost;        /* flops of one evaluation with everything inlined, capped */
    int32_t n_uses, depth, moves; /* of the depth rule */
    int32_t seen_group, n_groups; /* scratch of the sharing rule */
    int32_t seen_root, n_here;    /* scratch of the re-evaluation rule */
} tci_pnode;
static inline tci_pnode *tci_pnode_of(const tci_node *n) { return (tci_pnode *)n->pass; }

/* plan/algorithm.c: rewrites one node into several where that is how it should be computed (split of
 * large reductions, wide concatenations, operands of contractions) and forces roots (node->mark = 1). */
TCI_FN void tci_plan_algorithm(tci_scratch *s, tci_graph *g, tci_node **roots, int n_roots);
/* plan/group.c */
TCI_FN tci_fusion *tci_plan_fuse(tci_scratch *s, tci_node *const *outputs, int n_outputs, tci_str *why);
/* Index of input `input` of a REDUCE, CONTRACT or SCAN root, given that of each domain axis. */
TCI_FN const int *tci_plan_input_index(tci_lower *l, const tci_root *r, int input, const int *domain);
/* plan/kernel.c: one group as a kernel. operands_out: buffer or leaf behind each operand; literals_out: the
 * LITERAL node of each slot. */
typedef struct tci_lowered {
    tci_kernel *kernel;
    int32_t *operand_buffers;    /* buffer index in the plan */
    tci_node **literals;
} tci_lowered;
TCI_FN tci_lowered tci_plan_lower(tci_scratch *s, const tci_fusion *f, const tci_group *g, tci_plan *plan);
/* Buffer of a leaf, made on demand by plan/plan.c. */
TCI_FN int tci_plan_leaf_buffer(const tci_plan *p, const tci_node *leaf);
/* plan/memory.c: lifetimes, arena offsets and input/output aliases of a finished step list. */
TCI_FN void tci_plan_memory(tci_scratch *s, tci_plan *p);

#endif
/* ---- src/plan/why.h ---- */
/* plan/why.h - the reasons why two values were not computed by one kernel, one row each. */
#ifndef TCI_PLAN_WHY_H
#define TCI_PLAN_WHY_H

#define TCI_WHY_ROWS(X)                                                                            \
    X(INDEX, "it is read at another index than it is computed at")                                 \
    X(SPACE, "the iteration spaces differ")                                                        \
    X(CONTRACTION, "a contraction takes only elementwise work over its own output axes")           \
    X(SCAN, "a running sum is stored before it is read")                                           \
    X(CYCLE, "another kernel lies between them")                                                   \
    X(SIZE, "the joined kernel would be too large")                                                \
    X(SHARED, "several kernels read it and computing it again costs more than memory")             \
    X(AGAIN, "it would be computed again for many elements")                                       \
    X(SPLIT, "a large reduction is cut in chunks, combined by a second kernel")                    \
    X(OPERAND, "the operand of a contraction is stored in the order the contraction reads it")
typedef enum tci_why {
#define X(id, text) TCI_WHY_##id,
    TCI_WHY_ROWS(X)
#undef X
        TCI_WHY_COUNT
} tci_why;

#endif

/* ---- src/plan/algorithm.c, continued ---- */
enum {
    TCI_ALGO_FEW = 64,            /* results up to which a reduction is cut */
    TCI_ALGO_MANY = 65536,        /* reduced elements from which it is cut */
    TCI_ALGO_CHUNK = 32768,       /* elements a chunk aims at */
    TCI_ALGO_CAT = 8,
    TCI_ALGO_REUSE = 4            /* times an operand is read before it is worth a copy */
};

/* ---- reductions ---- */

static int64_t tci_algo_identity(int op, tc_dtype t, tci_value *v)
{
    bool f = tci_dtype_is_float(t);
    v->i = 0;
    switch (op) {
    case TCI_OP_SUM:
    case TCI_OP_ANY: v->i = 0; return 1;
    case TCI_OP_PROD:
    case TCI_OP_ALL:
        if (f) {
            v->f = 1;
        } else {
            v->i = 1;
        }
        return 1;
    default: return 0; /* MAX, MIN: cut only where the chunk divides the axis */
    }
}

/* The divisor of n nearest to want (by ratio) within a factor of four; 0 when there is none. */
static int64_t tci_algo_divisor(int64_t n, int64_t want)
{
    for (int64_t d = 0; d < want; d++) {
        if (want + d <= n && n % (want + d) == 0 && want + d <= 4 * want) {
            return want + d;
        }
        if (want - d > 0 && n % (want - d) == 0 && 4 * (want - d) >= want) {
            return want - d;
        }
    }
    return 0;
}

static tci_node *tci_algo_pad_axis(tci_scratch *s, tci_graph *g, tci_node *x, int axis, int64_t size, tci_node *fill)
{
    tci_dim *shape = tci_scratch_copy(s, x->shape, sizeof(tci_dim) * (size_t)x->rank);
    int64_t *before = TCI_NEW_ARRAY(s, int64_t, x->rank);
    shape[axis] = size;
    tci_node *in[2] = {x, fill};
    return tci_graph_node(g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, shape, 2, in, x->rank, before);
}

/* Cuts reduction n; NULL when it is better left alone. */
static tci_node *tci_algo_split(tci_scratch *s, tci_graph *g, tci_node *n)
{
    tci_node *x = n->in[0];
    int64_t results = tci_node_count(n), all = tci_node_count(x);
    if (n->op == TCI_OP_ARGMAX || n->op == TCI_OP_ARGMIN || results == 0 || results > TCI_ALGO_FEW ||
        all / results < TCI_ALGO_MANY) {
        return NULL;
    }
    int at = 0; /* the largest of the reduced axes that is not the fastest, unless it is the only long one */
    for (int i = 1; i < n->n_attr; i++) {
        bool larger = x->shape[n->attr[i]] > x->shape[n->attr[at]] * (i == n->n_attr - 1 ? 64 : 1);
        at = larger ? i : at;
    }
    int axis = (int)n->attr[at];
    int64_t size = x->shape[axis], others = all / size;
    int64_t chunk = TCI_MAX(1, TCI_ALGO_CHUNK / others);
    if (size / chunk < 2) {
        return NULL;
    }
    int64_t even = tci_algo_divisor(size, chunk);
    tci_value identity;
    bool half = tci_dtype_is_half((tc_dtype)x->dtype);
    tc_dtype t = half ? TC_F32 : (tc_dtype)n->dtype;
    if (!even && !tci_algo_identity(n->op, t, &identity)) {
        return NULL;
    }
    if (x->dtype != t) {
        x = tci_graph_node(g, TCI_OP_CAST, t, x->rank, x->shape, 1, &x, 0, NULL);
    }
    if (even) {
        chunk = even;
    } else {
        size = (size + chunk - 1) / chunk * chunk;
        x = tci_algo_pad_axis(s, g, x, axis, size, tci_graph_const(g, t, identity));
    }
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, x->rank + 1);
    for (int i = 0; i <= x->rank; i++) {
        shape[i] = i == axis ? size / chunk : i == axis + 1 ? chunk : x->shape[i - (i > axis)];
    }
    x = tci_graph_node(g, TCI_OP_RESHAPE, t, x->rank + 1, shape, 1, &x, 0, NULL);
    int64_t *axes = TCI_NEW_ARRAY(s, int64_t, n->n_attr);
    for (int i = 0; i < n->n_attr; i++) {
        axes[i] = n->attr[i] + (i >= at);
    }
    tci_dim *kept = TCI_NEW_ARRAY(s, tci_dim, x->rank);
    int n_kept = 0, chunk_axis = 0;
    for (int i = 0; i < x->rank; i++) {
        bool reduced = false;
        for (int j = 0; j < n->n_attr; j++) {
            reduced |= axes[j] == i;
        }
        chunk_axis = i == axis ? n_kept : chunk_axis;
        if (!reduced) {
            kept[n_kept++] = shape[i];
        }
    }
    tci_node *part = tci_graph_node(g, n->op, t, n_kept, kept, 1, &x, n->n_attr, axes);
    int64_t last = chunk_axis;
    tci_node *whole = tci_graph_node(g, n->op, t, n->rank, n->shape, 1, &part, 1, &last);
    return t == (tc_dtype)n->dtype
               ? whole
               : tci_graph_node(g, TCI_OP_CAST, (tc_dtype)n->dtype, n->rank, n->shape, 1, &whole, 0, NULL);
}

/* ---- concatenations ---- */

static tci_node *tci_algo_cat(tci_scratch *s, tci_graph *g, tci_node *n)
{
    int axis = (int)n->attr[0], parts = n->n_in;
    tci_node **list = tci_scratch_copy(s, n->in, sizeof(tci_node *) * (size_t)parts);
    while (parts > TCI_ALGO_CAT) {
        int made = 0;
        for (int i = 0; i < parts; i += TCI_ALGO_CAT) {
            int take = TCI_MIN(TCI_ALGO_CAT, parts - i);
            tci_dim *shape = tci_scratch_copy(s, n->shape, sizeof(tci_dim) * (size_t)n->rank);
            shape[axis] = 0;
            for (int j = 0; j < take; j++) {
                shape[axis] += list[i + j]->shape[axis];
            }
            tci_node *part = list[i];
            if (take > 1) {
                part = tci_graph_node(g, TCI_OP_CAT, (tc_dtype)n->dtype, n->rank, shape, take, list + i, 1, n->attr);
                part->mark = 1;
            }
            list[made++] = part;
        }
        parts = made;
    }
    return tci_graph_node(g, TCI_OP_CAT, (tc_dtype)n->dtype, n->rank, n->shape, parts, list, 1, n->attr);
}

/* ---- contractions ---- */

static bool tci_algo_is_view(const tci_node *n)
{
    return n->op == TCI_OP_RESHAPE || n->op == TCI_OP_PERMUTE || n->op == TCI_OP_EXPAND || n->op == TCI_OP_SLICE ||
           n->op == TCI_OP_WINDOW || n->op == TCI_OP_CAST;
}

/* Forces what an operand computes into memory: the first value below its views. */
static void tci_algo_store_operand(tci_node *n)
{
    while (tci_algo_is_view(n)) {
        n = n->in[0];
    }
    bool leaf = n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA || n->op == TCI_OP_LITERAL || n->op == TCI_OP_CONST;
    if (!leaf) {
        n->mark = 1;
    }
}

/* The axis of n's source that lies fastest in memory, seen through permutations: as an axis of n. */
static int tci_algo_fastest_axis(const tci_node *n)
{
    int axis = n->rank - 1;
    const tci_node *chain[16];
    int depth = 0;
    while (n->op == TCI_OP_PERMUTE && depth < TCI_COUNT(chain)) {
        chain[depth++] = n;
        n = n->in[0];
    }
    axis = n->rank - 1;
    while (depth > 0) {
        const tci_node *p = chain[--depth];
        for (int i = 0; i < p->rank; i++) {
            if (p->attr[i] == axis) {
                axis = i;
                break;
            }
        }
    }
    return axis;
}

/* Operand `which` with its vector axis (the contraction's last output axis) made the fastest, as a stored
 * permutation; the labels follow. Unchanged when it already is, or is read too few times. */
static tci_node *tci_algo_operand_order(tci_scratch *s, tci_graph *g, const tci_node *n, int which, int64_t *labels)
{
    tci_node *x = n->in[which];
    int64_t last = n->attr[n->n_attr - 1];
    int at = -1;
    for (int i = 0; i < x->rank; i++) {
        at = labels[i] == last ? i : at;
    }
    if (n->rank == 0 || at < 0 || at == tci_algo_fastest_axis(x) || x->op == TCI_OP_WINDOW || x->op == TCI_OP_EXPAND ||
        n->shape[n->rank - 1] == 1 ||
        tci_node_count(n) / TCI_MAX(n->shape[n->rank - 1], 1) < TCI_ALGO_REUSE) {
        return x;
    }
    int64_t *perm = TCI_NEW_ARRAY(s, int64_t, x->rank), *moved = TCI_NEW_ARRAY(s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, x->rank);
    int to = 0;
    for (int i = 0; i < x->rank; i++) {
        if (i != at) {
            perm[to++] = i;
        }
    }
    perm[to] = at;
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[perm[i]];
        moved[i] = labels[perm[i]];
    }
    for (int i = 0; i < x->rank; i++) {
        labels[i] = moved[i];
    }
    x = tci_graph_node(g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x, x->rank, perm);
    x->mark = 1;
    return x;
}

static tci_node *tci_algo_contract(tci_scratch *s, tci_graph *g, tci_node *n)
{
    int64_t *attr = tci_scratch_copy(s, n->attr, sizeof(int64_t) * (size_t)n->n_attr);
    tci_node *in[2];
    tci_algo_store_operand(n->in[0]);
    tci_algo_store_operand(n->in[1]);
    in[0] = tci_algo_operand_order(s, g, n, 0, attr + 3);
    in[1] = tci_algo_operand_order(s, g, n, 1, attr + 3 + attr[0]);
    if (in[0] == n->in[0] && in[1] == n->in[1]) {
        return n;
    }
    return tci_graph_node(g, TCI_OP_CONTRACT, (tc_dtype)n->dtype, n->rank, n->shape, 2, in, n->n_attr, attr);
}

/* ---- the pass ---- */

static tci_node *tci_algo_node(tci_scratch *s, tci_graph *g, tci_node *n)
{
    tci_node *made = NULL;
    if (tci_op_is_reduce(n->op)) {
        made = tci_algo_split(s, g, n);
    } else if (n->op == TCI_OP_CAT && n->n_in > TCI_ALGO_CAT) {
        made = tci_algo_cat(s, g, n);
    } else if (n->op == TCI_OP_CONTRACT) {
        made = tci_algo_contract(s, g, n);
    }
    return made ? made : n;
}

TCI_FN void tci_plan_algorithm(tci_scratch *s, tci_graph *g, tci_node **roots, int n_roots)
{
    tci_node_list list = tci_graph_sort(s, roots, n_roots);
    for (int i = 0; i < list.n; i++) {
        list.items[i]->pass = NULL;
    }
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i], *fresh = n;
        bool changed = false;
        tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in + 1);
        for (int j = 0; j < n->n_in; j++) {
            in[j] = n->in[j]->pass;
            changed |= in[j] != n->in[j];
        }
        if (changed) {
            fresh = tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, n->n_in, in, n->n_attr, n->attr);
            fresh->mark = n->mark;
            fresh->site = n->site;
        }
        n->pass = tci_algo_node(s, g, fresh);
    }
    for (int i = 0; i < n_roots; i++) {
        roots[i] = roots[i]->pass;
    }
}
/* ---- src/plan/group.c ---- */
/* plan/group.c - fusion. See plan/group.h for roots, probes and groups.
 *
 * The walk: mark roots; probe each; put each, in topological order, into the first group that takes it (groups
 * it reads from, newest first, then recent siblings) or a new one; then look for values that were
 * inlined into several kernels or many times into one at a cost above memory's, force those into
 * memory and start over (at most four rounds). Every refusal leaves a line in `why`. */

enum {
    TCI_GROUP_MAX_INSTS = 20000,  /* of one kernel made by joining roots */
    TCI_GROUP_MAX_STREAMS = 24,   /* leaves and reads of one kernel made by joining siblings */
    TCI_GROUP_SIBLINGS = 8,       /* how many recent groups a sibling looks at */
    TCI_GROUP_SMALL = 16384,      /* elements up to which unrelated siblings join */
    TCI_GROUP_WALK = 512,         /* groups visited before a cycle is assumed */
    TCI_GROUP_SHARED_COST = 12,   /* flops above which a shared value is stored instead of repeated */
    TCI_GROUP_AGAIN_COST = 64,    /* flops x repetitions in one kernel above which it is stored */
    TCI_GROUP_DEPTH = 6,          /* reductions, or moves, inlined on one path before a shared value is stored */
    TCI_GROUP_ROUNDS = 4
};

static const char *const tci_why_texts[] = {
#define X(id, text) text,
    TCI_WHY_ROWS(X)
#undef X
};

static void tci_group_refuse(tci_fusion *f, const tci_node *reader, const tci_node *source, tci_why why)
{
    tci_str_printf(f->why, "%s is not computed with %s: %s\n", tci_op_name(reader->op), tci_op_name(source->op),
                   tci_why_texts[why]);
}

/* ---- roots ---- */

static bool tci_group_is_leaf(const tci_node *n)
{
    return n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA || n->storage != NULL;
}

static uint8_t tci_group_kind(const tci_node *n)
{
    if (tci_group_is_leaf(n)) {
        return TCI_ROOT_VALUE;
    }
    return tci_op_is_reduce(n->op)     ? TCI_ROOT_REDUCE
           : n->op == TCI_OP_CONTRACT ? TCI_ROOT_CONTRACT
           : n->op == TCI_OP_SCAN     ? TCI_ROOT_SCAN
                                      : TCI_ROOT_VALUE;
}

static bool tci_group_has(const int64_t *list, int n, int64_t v)
{
    for (int i = 0; i < n; i++) {
        if (list[i] == v) {
            return true;
        }
    }
    return false;
}

/* Domain of a contraction: a size per output label, then per summed label in order of first use. */
static void tci_group_contract_domain(tci_scratch *s, tci_root *r)
{
    const tci_node *n = r->node;
    int rank_a = (int)n->attr[0], rank_b = (int)n->attr[1], rank_out = (int)n->attr[2];
    const int64_t *labels = n->attr + 3, *out = labels + rank_a + rank_b;
    r->domain = TCI_NEW_ARRAY(s, tci_dim, rank_a + rank_b + rank_out + 1);
    int64_t *summed = TCI_NEW_ARRAY(s, int64_t, rank_a + rank_b + 1);
    int n_summed = 0;
    for (int i = 0; i < rank_out; i++) {
        r->domain[i] = n->shape[i];
    }
    for (int i = 0; i < rank_a + rank_b; i++) {
        if (!tci_group_has(out, rank_out, labels[i]) && !tci_group_has(summed, n_summed, labels[i])) {
            r->domain[rank_out + n_summed] = i < rank_a ? n->in[0]->shape[i] : n->in[1]->shape[i - rank_a];
            summed[n_summed++] = labels[i];
        }
    }
    r->n_domain = rank_out + n_summed;
}

static void tci_group_domain(tci_scratch *s, tci_root *r)
{
    const tci_node *n = r->node;
    r->out_axis = TCI_NEW_ARRAY(s, int32_t, n->rank + 1);
    r->n_out = n->rank;
    for (int i = 0; i < n->rank; i++) {
        r->out_axis[i] = i;
    }
    if (r->kind == TCI_ROOT_CONTRACT) {
        tci_group_contract_domain(s, r);
    } else if (r->kind == TCI_ROOT_REDUCE) {
        const tci_node *in = n->in[0];
        r->domain = TCI_NEW_ARRAY(s, tci_dim, in->rank + 1);
        r->n_domain = in->rank;
        int kept = 0, reduced = n->rank;
        for (int i = 0; i < in->rank; i++) {
            r->domain[tci_group_has(n->attr, n->n_attr, i) ? reduced++ : kept++] = in->shape[i];
        }
    } else {
        r->domain = TCI_NEW_ARRAY(s, tci_dim, n->rank + 1);
        r->n_domain = n->rank;
        for (int i = 0; i < n->rank; i++) {
            int at = i;
            if (r->kind == TCI_ROOT_SCAN) { /* the scanned axis comes last */
                at = i == n->attr[0] ? n->rank - 1 : i > n->attr[0] ? i - 1 : i;
                r->out_axis[i] = at;
            }
            r->domain[at] = n->shape[i];
        }
        r->n_out = r->kind == TCI_ROOT_SCAN ? n->rank - 1 : n->rank;
    }
    r->outer_of = TCI_NEW_ARRAY(s, int32_t, r->n_domain + 1);
}

static void tci_group_add_root(tci_fusion *f, tci_node *n)
{
    if (tci_pnode_of(n)->root >= 0) {
        return;
    }
    tci_root r = {0};
    r.node = n;
    r.kind = tci_group_kind(n);
    r.group = -1;
    r.buffer = -1;
    tci_group_domain(f->s, &r);
    TCI_PUSH(f->s, f->roots, f->n_roots, f->cap_roots, r);
    tci_pnode_of(n)->root = f->n_roots - 1;
}

static void tci_group_find_roots(tci_fusion *f, tci_node *const *outputs, int n_outputs)
{
    f->n_roots = f->n_groups = 0;
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode_of(f->nodes.items[i])->root = -1;
    }
    for (int i = 0; i < n_outputs; i++) {
        tci_pnode_of(outputs[i])->forced = true;
    }
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        if (tci_pnode_of(n)->forced || tci_group_kind(n) != TCI_ROOT_VALUE) {
            tci_group_add_root(f, n);
        }
    }
    for (int i = 0; i < n_outputs; i++) {
        f->roots[tci_pnode_of(outputs[i])->root].is_output = true;
    }
}

/* ---- probes ---- */

typedef struct tci_group_probe {
    tci_fusion *f;
    tci_root *r;
    int self;
} tci_group_probe;

static tci_read tci_group_make_read(tci_lower *l, int root, const tci_node *n, const int *idx)
{
    tci_read read = {root, true, TCI_NEW_ARRAY(l->s, int32_t, n->rank + 1)};
    for (int i = 0; i < n->rank; i++) {
        const tci_kx *x = &l->k->kx[idx[i]];
        read.axes[i] = x->op == TCI_KX_AXIS ? (int32_t)x->c : -1;
        read.pure &= x->op == TCI_KX_AXIS ? l->k->axes[x->c].size == n->shape[i] : n->shape[i] == 1;
        for (int j = 0; j < i; j++) {
            read.pure &= read.axes[i] < 0 || read.axes[j] != read.axes[i];
        }
    }
    return read;
}

static int tci_group_probe_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_group_probe *p = l->user;
    int root = tci_pnode_of(n)->root;
    bool leaf = tci_group_is_leaf(n);
    if (!leaf && (root < 0 || root == p->self)) {
        return -1;
    }
    if (root >= 0 && root != p->self && !leaf) {
        tci_read read = tci_group_make_read(l, root, n, idx);
        TCI_PUSH(l->s, p->r->reads, p->r->n_reads, p->r->cap_reads, read);
    } else {
        bool have = false;
        for (int i = 0; i < p->r->n_leaves; i++) {
            have |= p->r->leaves[i] == n;
        }
        if (!have) {
            TCI_PUSH(l->s, p->r->leaves, p->r->n_leaves, p->r->cap_leaves, n);
        }
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    int x = tci_lower_offset(l, n->rank, n->shape, NULL, idx);
    return tci_lower_load(l, (int)n->id, t, x, guard);
}

static int tci_group_probe_literal(tci_lower *l, tci_node *n)
{
    (void)l;
    return (int)n->id;
}

/* The inputs of a root that its stage evaluates, with their indices over the root's domain. */
TCI_FN const int *tci_plan_input_index(tci_lower *l, const tci_root *r, int input, const int *domain)
{
    const tci_node *n = r->node, *in = n->in[input];
    int *idx = TCI_NEW_ARRAY(l->s, int, in->rank + 1);
    if (r->kind == TCI_ROOT_SCAN) {
        for (int i = 0; i < in->rank; i++) {
            idx[i] = domain[r->out_axis[i]];
        }
        return idx;
    }
    if (r->kind == TCI_ROOT_REDUCE) {
        int kept = 0, reduced = n->rank;
        for (int i = 0; i < in->rank; i++) {
            idx[i] = domain[tci_group_has(n->attr, n->n_attr, i) ? reduced++ : kept++];
        }
        return idx;
    }
    int rank_a = (int)n->attr[0], rank_b = (int)n->attr[1], rank_out = (int)n->attr[2];
    const int64_t *labels = n->attr + 3, *out = labels + rank_a + rank_b;
    int64_t *of = TCI_NEW_ARRAY(l->s, int64_t, rank_out + rank_a + rank_b + 1);
    int n_of = 0;
    for (int i = 0; i < rank_out; i++) {
        of[n_of++] = out[i];
    }
    for (int i = 0; i < rank_a + rank_b; i++) {
        if (!tci_group_has(of, n_of, labels[i])) {
            of[n_of++] = labels[i];
        }
    }
    for (int i = 0; i < in->rank; i++) {
        int64_t label = labels[input * rank_a + i];
        for (int d = 0; d < n_of; d++) {
            if (of[d] == label) {
                idx[i] = domain[d];
            }
        }
    }
    return idx;
}

static void tci_group_probe_root(tci_fusion *f, int self)
{
    tci_root *r = &f->roots[self];
    tci_kernel *k = tci_kernel_make(f->s);
    tci_lower l;
    tci_lower_init(&l, f->s, k);
    tci_group_probe p = {f, r, self};
    l.user = &p;
    l.access = tci_group_probe_access;
    l.literal = tci_group_probe_literal;
    int *domain = TCI_NEW_ARRAY(f->s, int, r->n_domain + 1);
    for (int i = 0; i < r->n_domain; i++) {
        int axis = tci_kernel_axis(k, r->domain[i], false);
        domain[i] = tci_kx_axis(k, axis);
    }
    if (r->kind == TCI_ROOT_VALUE) {
        tci_lower_value(&l, r->node, domain, 0);
    } else {
        for (int i = 0; i < r->node->n_in; i++) {
            tci_lower_value(&l, r->node->in[i], tci_plan_input_index(&l, r, i, domain), 0);
        }
    }
    r->n_insts = k->n_insts;
    r->n_inlined = tci_lower_visited(&l, &r->inlined);
}

/* ---- joining ---- */

static int tci_group_new(tci_fusion *f, int root)
{
    tci_root *r = &f->roots[root];
    tci_group g = {0};
    g.n_outer = r->n_out;
    g.outer = TCI_NEW_ARRAY(f->s, tci_dim, r->n_out + 1);
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = i < r->n_out ? i : -1;
        if (i < r->n_out) {
            g.outer[i] = r->domain[i];
        }
    }
    TCI_PUSH(f->s, f->groups, f->n_groups, f->cap_groups, g);
    return f->n_groups - 1;
}

static void tci_group_add_dep(tci_fusion *f, tci_group *g, int dep)
{
    for (int i = 0; i < g->n_deps; i++) {
        if (g->deps[i] == dep) {
            return;
        }
    }
    TCI_PUSH(f->s, g->deps, g->n_deps, g->cap_deps, dep);
}

static void tci_group_put(tci_fusion *f, int group, int root)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    r->group = group;
    TCI_PUSH(f->s, g->roots, g->n_roots, g->cap_roots, root);
    g->has_reduce |= r->kind == TCI_ROOT_REDUCE;
    g->has_contract |= r->kind == TCI_ROOT_CONTRACT;
    g->has_scan |= r->kind == TCI_ROOT_SCAN;
    g->n_insts += r->n_insts;
    for (int i = 0; i < r->n_reads; i++) {
        if (f->roots[r->reads[i].root].group != group) {
            tci_group_add_dep(f, g, f->roots[r->reads[i].root].group);
        }
    }
}

/* Does `from` depend on `target`? Assumes so when the walk gets long. A group all of whose roots come before
 * the target's first cannot, as roots are in topological order. */
static bool tci_group_depends(tci_fusion *f, int from, int target)
{
    int32_t *stack = NULL;
    int n = 0, cap = 0, visited = 0;
    f->stamp++;
    TCI_PUSH(f->s, stack, n, cap, from);
    while (n > 0) {
        tci_group *g = &f->groups[stack[--n]];
        if (g == &f->groups[target] || ++visited > TCI_GROUP_WALK) {
            return true;
        }
        for (int i = 0; i < g->n_deps; i++) {
            const tci_group *dep = &f->groups[g->deps[i]];
            if (dep->stamp != f->stamp && dep->roots[dep->n_roots - 1] >= f->groups[target].roots[0]) {
                f->groups[g->deps[i]].stamp = f->stamp;
                TCI_PUSH(f->s, stack, n, cap, g->deps[i]);
            }
        }
    }
    return false;
}

/* Would root r, put into g, wait for a group that waits for g? */
static bool tci_group_makes_cycle(tci_fusion *f, const tci_root *r, int group)
{
    for (int i = 0; i < r->n_reads; i++) {
        int other = f->roots[r->reads[i].root].group;
        if (other != group && tci_group_depends(f, other, group)) {
            return true;
        }
    }
    return false;
}

/* Fills `outer_of` for r over g's outer space from its reads of members of g. */
static bool tci_group_map_reads(const tci_fusion *f, const tci_root *r, int group, int32_t *outer_of, tci_why *why)
{
    const tci_group *g = &f->groups[group];
    for (int i = 0; i < r->n_domain; i++) {
        outer_of[i] = -1;
    }
    for (int i = 0; i < r->n_reads; i++) {
        const tci_read *read = &r->reads[i];
        const tci_root *q = &f->roots[read->root];
        if (q->group != group) {
            continue;
        }
        if (q->kind == TCI_ROOT_SCAN) {
            *why = TCI_WHY_SCAN;
            return false;
        }
        for (int a = 0; a < q->node->rank; a++) {
            int outer = q->outer_of[q->out_axis[a]];
            if (!read->pure) {
                *why = TCI_WHY_INDEX;
                return false;
            }
            if (outer < 0 || read->axes[a] < 0) {
                continue;
            }
            if (outer_of[read->axes[a]] >= 0 && outer_of[read->axes[a]] != outer) {
                *why = TCI_WHY_INDEX;
                return false;
            }
            outer_of[read->axes[a]] = outer;
        }
    }
    for (int o = 0; o < g->n_outer; o++) { /* each outer axis is walked by one axis of r, in order */
        int found = 0;
        for (int i = 0; i < r->n_domain; i++) {
            found += outer_of[i] == o && r->domain[i] == g->outer[o];
        }
        if (found != 1 && g->outer[o] != 1) {
            *why = TCI_WHY_SPACE;
            return false;
        }
    }
    int last = -1;
    for (int i = 0; i < r->n_domain; i++) {
        if (outer_of[i] >= 0) {
            *why = TCI_WHY_INDEX;
            if (outer_of[i] < last) {
                return false;
            }
            last = outer_of[i];
        }
    }
    return true;
}

/* A group of plain values becomes a row group of reduction r that reads it: the axes r reduces turn inner. */
static bool tci_group_turn_rows(tci_fusion *f, const tci_root *r, int group)
{
    tci_group *g = &f->groups[group];
    int32_t *outer_of = TCI_NEW_ARRAY(f->s, int32_t, g->n_outer + 1);
    for (int i = 0; i < r->n_reads; i++) {
        const tci_read *read = &r->reads[i];
        const tci_root *q = &f->roots[read->root];
        if (q->group != group) {
            continue;
        }
        if (!read->pure || q->node->rank != r->n_domain) {
            return false;
        }
        for (int a = 0; a < q->node->rank; a++) {
            int axis = read->axes[a];
            if (axis < 0 || (a > 0 && axis < r->n_out && read->axes[a - 1] >= r->n_out)) {
                return false;
            }
            outer_of[a] = axis < r->n_out ? axis : -1;
        }
    }
    for (int m = 0; m < g->n_roots; m++) {
        tci_root *q = &f->roots[g->roots[m]];
        for (int a = 0; a < q->n_domain; a++) {
            if (q->outer_of[a] != a || q->domain[a] != g->outer[a]) {
                return false;
            }
        }
    }
    for (int m = 0; m < g->n_roots; m++) {
        tci_root *q = &f->roots[g->roots[m]];
        for (int a = 0; a < q->n_domain; a++) {
            q->outer_of[a] = outer_of[a];
        }
    }
    g->n_outer = r->n_out;
    for (int o = 0; o < r->n_out; o++) {
        g->outer[o] = r->domain[o];
    }
    return true;
}

static bool tci_group_identity_rows(const tci_root *r, const int32_t *outer_of)
{
    for (int i = 0; i < r->n_domain; i++) {
        int want = i < r->n_out ? i : -1;
        if (outer_of[i] != want && r->domain[i] != 1) {
            return false;
        }
    }
    return true;
}

static bool tci_group_fits(tci_fusion *f, int root, int group, tci_why *why)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    if (g->n_insts + r->n_insts > TCI_GROUP_MAX_INSTS) {
        *why = TCI_WHY_SIZE;
        return false;
    }
    if (r->kind == TCI_ROOT_CONTRACT || r->kind == TCI_ROOT_SCAN) {
        *why = r->kind == TCI_ROOT_SCAN ? TCI_WHY_SCAN : TCI_WHY_CONTRACTION;
        return false;
    }
    if (r->kind == TCI_ROOT_REDUCE && (g->has_contract || g->has_scan)) {
        *why = TCI_WHY_CONTRACTION;
        return false;
    }
    if (tci_group_makes_cycle(f, r, group)) {
        *why = TCI_WHY_CYCLE;
        return false;
    }
    return true;
}

/* Puts root into a group it reads from, if one takes it. */
static bool tci_group_join_source(tci_fusion *f, int root, int group)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    const tci_node *source = f->roots[g->roots[0]].node;
    int32_t *outer_of = TCI_NEW_ARRAY(f->s, int32_t, r->n_domain + 1);
    tci_why why = TCI_WHY_SPACE;
    if (!tci_group_fits(f, root, group, &why)) {
        tci_group_refuse(f, r->node, source, why);
        return false;
    }
    bool plain = !g->has_reduce && !g->has_contract && !g->has_scan;
    if (r->kind == TCI_ROOT_REDUCE && plain && tci_group_turn_rows(f, r, group)) {
        for (int i = 0; i < r->n_domain; i++) {
            r->outer_of[i] = i < r->n_out ? i : -1;
        }
        tci_group_put(f, group, root);
        return true;
    }
    bool fits = tci_group_map_reads(f, r, group, outer_of, &why);
    if (fits && r->kind == TCI_ROOT_REDUCE && (!tci_group_identity_rows(r, outer_of) || plain)) {
        fits = false;
        why = TCI_WHY_SPACE;
    }
    for (int i = 0; fits && (g->has_contract || plain) && i < r->n_domain; i++) {
        if (outer_of[i] < 0 && r->domain[i] != 1) {
            fits = false;
            why = plain ? TCI_WHY_SPACE : TCI_WHY_CONTRACTION;
        }
    }
    if (!fits) {
        tci_group_refuse(f, r->node, source, why);
        return false;
    }
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = outer_of[i];
    }
    tci_group_put(f, group, root);
    return true;
}

static bool tci_group_shares_source(const tci_fusion *f, const tci_root *a, const tci_root *b)
{
    for (int i = 0; i < a->n_leaves; i++) {
        for (int j = 0; j < b->n_leaves; j++) {
            if (a->leaves[i] == b->leaves[j]) {
                return true;
            }
        }
    }
    for (int i = 0; i < a->n_reads; i++) {
        for (int j = 0; j < b->n_reads; j++) {
            if (f->roots[a->reads[i].root].node == f->roots[b->reads[j].root].node) {
                return true;
            }
        }
    }
    return false;
}

/* Siblings: the same kind of loops over the same sizes, and a source in common (or small anyway). */
static bool tci_group_join_sibling(tci_fusion *f, int root, int group)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    const tci_root *first = &f->roots[g->roots[0]];
    if (r->kind != first->kind || r->kind == TCI_ROOT_CONTRACT || r->kind == TCI_ROOT_SCAN ||
        r->n_domain != first->n_domain || r->n_out != first->n_out || g->n_outer != r->n_out) {
        return false;
    }
    int64_t count = 1;
    for (int i = 0; i < r->n_domain; i++) {
        count *= r->domain[i];
        int want = i < r->n_out ? i : -1;
        if (r->domain[i] != first->domain[i] || first->outer_of[i] != want) {
            return false;
        }
    }
    for (int i = 0; i < r->n_reads; i++) { /* what reads a member is no sibling */
        if (f->roots[r->reads[i].root].group == group) {
            return false;
        }
    }
    int streams = 0;
    for (int i = 0; i < g->n_roots; i++) {
        const tci_root *q = &f->roots[g->roots[i]];
        streams += q->n_leaves + q->n_reads + 1;
    }
    if (streams > TCI_GROUP_MAX_STREAMS || (count > TCI_GROUP_SMALL && !tci_group_shares_source(f, r, first))) {
        return false;
    }
    tci_why why;
    if (!tci_group_fits(f, root, group, &why)) {
        return false;
    }
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = i < r->n_out ? i : -1;
    }
    tci_group_put(f, group, root);
    return true;
}

static void tci_group_place(tci_fusion *f, int root)
{
    tci_root *r = &f->roots[root];
    int tried = f->n_groups;
    for (;;) { /* groups it reads from, newest first */
        int best = -1;
        for (int i = 0; i < r->n_reads; i++) {
            int g = f->roots[r->reads[i].root].group;
            best = g < tried && g > best ? g : best;
        }
        if (best < 0) {
            break;
        }
        if (tci_group_join_source(f, root, best)) {
            return;
        }
        tried = best;
    }
    int last = TCI_MAX(0, f->n_groups - TCI_GROUP_SIBLINGS);
    for (int g = f->n_groups - 1; g >= last; g--) {
        if (tci_group_join_sibling(f, root, g)) {
            return;
        }
    }
    tci_group_put(f, tci_group_new(f, root), root);
}

/* ---- what inlining repeats ---- */

static void tci_group_costs(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        int64_t cost = tci_op_is_ew(n->op) ? tci_lower_cost(n->op) : n->op == TCI_OP_CAT ? 2 * n->n_in : 0;
        for (int j = 0; j < n->n_in; j++) {
            tci_pnode *p = tci_pnode_of(n->in[j]);
            cost += p->root >= 0 ? 0 : p->cost;
        }
        tci_pnode_of(n)->cost = (int32_t)TCI_MIN(cost, 1 << 20);
    }
}

static bool tci_group_may_store(const tci_node *n)
{
    return tci_op_is_ew(n->op) || n->op == TCI_OP_WHERE || n->op == TCI_OP_CAST || n->op == TCI_OP_CAT ||
           n->op == TCI_OP_GATHER;
}

/* Counts in how many groups, and how often in one root, each inlined node was evaluated. */
static void tci_group_count_repeats(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode *p = tci_pnode_of(f->nodes.items[i]);
        p->seen_group = p->seen_root = -1;
        p->n_groups = p->n_here = 0;
    }
    for (int g = 0; g < f->n_groups; g++) {
        for (int m = 0; m < f->groups[g].n_roots; m++) {
            int root = f->groups[g].roots[m];
            int here = 0;
            for (int i = 0; i < f->roots[root].n_inlined; i++) {
                tci_pnode *p = tci_pnode_of(f->roots[root].inlined[i]);
                p->n_groups += p->seen_group != g;
                p->seen_group = g;
                here = p->seen_root == root ? here + 1 : 1;
                p->seen_root = root;
                p->n_here = TCI_MAX(p->n_here, here);
            }
        }
    }
}

/* Forces the topmost repeated values into memory; true when there were any. */
static bool tci_group_force_repeats(tci_fusion *f)
{
    tci_group_count_repeats(f);
    bool any = false;
    for (int i = f->nodes.n - 1; i >= 0; i--) {
        tci_node *n = f->nodes.items[i];
        tci_pnode *p = tci_pnode_of(n);
        if (p->forced || p->root >= 0 || tci_group_is_leaf(n)) {
            continue;
        }
        bool shared = p->n_groups > 1 && p->cost >= TCI_GROUP_SHARED_COST;
        bool again = p->n_here > 1 && (int64_t)p->n_here * p->cost >= TCI_GROUP_AGAIN_COST;
        if ((shared || again) && tci_group_may_store(n)) {
            p->forced = any = true;
            tci_str_printf(f->why, "%s gets memory: %s\n", tci_op_name(n->op),
                           tci_why_texts[shared ? TCI_WHY_SHARED : TCI_WHY_AGAIN]);
            for (int j = 0; j < n->n_in; j++) { /* what feeds only it is no longer repeated */
                tci_pnode_of(n->in[j])->n_groups = 0;
                tci_pnode_of(n->in[j])->n_here = 0;
            }
        } else if (p->n_groups == 0) {
            for (int j = 0; j < n->n_in; j++) {
                tci_pnode_of(n->in[j])->n_groups = 0;
                tci_pnode_of(n->in[j])->n_here = 0;
            }
        }
    }
    return any;
}

static bool tci_group_moves(const tci_node *n)
{
    return n->op == TCI_OP_SLICE || n->op == TCI_OP_PAD || n->op == TCI_OP_WINDOW || n->op == TCI_OP_GATHER;
}

/* Bounds what a probe can inline: along one path at most TCI_GROUP_DEPTH reductions or index changes under a
 * value with several users, else evaluation would repeat without end. */
static void tci_group_cut_depth(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        for (int j = 0; j < f->nodes.items[i]->n_in; j++) {
            tci_pnode_of(f->nodes.items[i]->in[j])->n_uses++;
        }
    }
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        tci_pnode *p = tci_pnode_of(n);
        for (int j = 0; j < n->n_in; j++) {
            p->depth = TCI_MAX(p->depth, tci_pnode_of(n->in[j])->depth);
            p->moves = TCI_MAX(p->moves, tci_pnode_of(n->in[j])->moves);
        }
        p->depth += tci_op_is_reduce(n->op);
        p->moves += tci_group_moves(n);
        bool deep = p->depth >= TCI_GROUP_DEPTH || p->moves >= TCI_GROUP_DEPTH;
        p->forced |= deep && p->n_uses > 1 && tci_group_may_store(n);
        if (p->forced || n->op == TCI_OP_CONTRACT || n->op == TCI_OP_SCAN) {
            p->depth = p->moves = 0;
        }
    }
}

/* ---- order ---- */

static void tci_group_sort(tci_fusion *f)
{
    f->order = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1);
    int32_t *state = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1); /* 0 new, 1 open, 2 done */
    int32_t *stack = NULL;
    int n_order = 0, n = 0, cap = 0;
    for (int start = 0; start < f->n_groups; start++) {
        TCI_PUSH(f->s, stack, n, cap, start);
        while (n > 0) {
            int g = stack[n - 1];
            if (state[g] != 0) {
                n--;
                if (state[g] == 1) {
                    f->order[n_order++] = g;
                    state[g] = 2;
                }
                continue;
            }
            state[g] = 1;
            for (int i = f->groups[g].n_deps - 1; i >= 0; i--) {
                int dep = f->groups[g].deps[i];
                TCI_ASSERT(f->s, state[dep] != 1);
                if (state[dep] == 0) {
                    TCI_PUSH(f->s, stack, n, cap, dep);
                }
            }
        }
    }
}

TCI_FN tci_fusion *tci_plan_fuse(tci_scratch *s, tci_node *const *outputs, int n_outputs, tci_str *why)
{
    tci_fusion *f = TCI_NEW(s, tci_fusion);
    f->s = s;
    f->why = why;
    f->nodes = tci_graph_sort(s, outputs, n_outputs);
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode *p = TCI_NEW(s, tci_pnode);
        p->forced = f->nodes.items[i]->mark == 1;
        f->nodes.items[i]->pass = p;
    }
    tci_group_cut_depth(f);
    for (int round = 0; round < TCI_GROUP_ROUNDS; round++) {
        size_t keep = why->n;
        tci_group_find_roots(f, outputs, n_outputs);
        for (int r = 0; r < f->n_roots; r++) {
            tci_group_probe_root(f, r);
            tci_group_place(f, r);
        }
        tci_group_costs(f);
        if (round + 1 == TCI_GROUP_ROUNDS || !tci_group_force_repeats(f)) {
            break;
        }
        why->n = TCI_MIN(why->n, keep);
    }
    tci_group_sort(f);
    return f;
}
/* ---- src/plan/kernel.c ---- */
/* plan/kernel.c - writes one group of roots as a kernel.
 *
 * Slots: the group's outer axes, and for each distinct list of inner sizes a family of inner axes. A slot
 * starts as one kernel axis and is split into factors when that makes the map of a reshape affine
 * (kernel/simplify.c finds the split; the lowering then starts over). Stages are made in root order:
 * a reduction joins the earliest stage after everything it depends on that walks the same family,
 * stores of values come last. Then the vector axis is chosen and the kernel brought into final form. */

enum { TCI_PK_SPLITS = 64, TCI_PK_SHORT_ROW = 16, TCI_PK_WIDE = 16 };

typedef struct tci_pk_slot {
    int64_t size;
    int64_t *factors;  /* product = size, slowest first */
    int32_t n_factors;
    int32_t first_axis; /* of this attempt's kernel; sizes of 1 have no axis */
    int32_t kx;
} tci_pk_slot;

typedef struct tci_pk_family {
    int32_t n;
    tci_pk_slot *slots;
    int32_t n_axes, *axes; /* kernel axes in loop order */
} tci_pk_family;

typedef struct tci_pk {
    tci_scratch *s;
    const tci_fusion *f;
    const tci_group *g;
    tci_plan *plan;
    tci_kernel *k;
    tci_lower l;
    tci_pk_family outer;
    tci_pk_family *families; int32_t n_families, cap_families;
    int32_t *family_of;       /* per member root */
    int32_t *red_of;          /* per root of the fusion: its reduction's RED instruction, -1 */
    int32_t *operand_buffers; int32_t n_operand_buffers, cap_operand_buffers;
    tci_node **literals; int32_t n_literals, cap_literals;
} tci_pk;

/* ---- slots and families ---- */

static tci_pk_family tci_pk_make_family(tci_scratch *s, int n, const int64_t *sizes)
{
    tci_pk_family f = {n, TCI_NEW_ARRAY(s, tci_pk_slot, n + 1), 0, NULL};
    for (int i = 0; i < n; i++) {
        f.slots[i].size = sizes[i];
        f.slots[i].n_factors = 1;
        f.slots[i].factors = TCI_NEW_ARRAY(s, int64_t, 1);
        f.slots[i].factors[0] = sizes[i];
    }
    return f;
}

static int tci_pk_family_find(tci_pk *p, int n, const int64_t *sizes)
{
    for (int f = 0; f < p->n_families; f++) {
        bool same = p->families[f].n == n;
        for (int i = 0; same && i < n; i++) {
            same = p->families[f].slots[i].size == sizes[i];
        }
        if (same) {
            return f;
        }
    }
    tci_pk_family family = tci_pk_make_family(p->s, n, sizes);
    TCI_PUSH(p->s, p->families, p->n_families, p->cap_families, family);
    return p->n_families - 1;
}

/* Inner sizes of a root, without those of size 1. */
static int tci_pk_inner_sizes(tci_pk *p, const tci_root *r, int64_t *sizes)
{
    (void)p;
    int n = 0;
    for (int i = 0; i < r->n_domain; i++) {
        if (r->outer_of[i] < 0 && r->domain[i] != 1) {
            sizes[n++] = r->domain[i];
        }
    }
    return n;
}

static void tci_pk_make_axes(tci_pk *p, tci_pk_family *f, bool inner)
{
    f->n_axes = 0;
    int room = 0;
    for (int i = 0; i < f->n; i++) {
        room += f->slots[i].n_factors;
    }
    f->axes = TCI_NEW_ARRAY(p->s, int32_t, room + 1);
    for (int i = 0; i < f->n; i++) {
        tci_pk_slot *slot = &f->slots[i];
        slot->kx = tci_kx_const(p->k, 0);
        slot->first_axis = p->k->n_axes;
        if (slot->size == 1) {
            continue;
        }
        for (int a = 0; a < slot->n_factors; a++) {
            int axis = tci_kernel_axis(p->k, slot->factors[a], inner);
            slot->kx = tci_kx_add(p->k, tci_kx_mul(p->k, slot->kx, slot->factors[a]), tci_kx_axis(p->k, axis));
            f->axes[f->n_axes++] = axis;
        }
    }
}

/* Splits the factor behind a kernel axis in two; false when the axis is not in this family. */
static bool tci_pk_split(tci_pk *p, tci_pk_family *f, int axis, int64_t factor)
{
    for (int i = 0; i < f->n; i++) {
        tci_pk_slot *slot = &f->slots[i];
        int at = axis - slot->first_axis;
        if (slot->size == 1 || at < 0 || at >= slot->n_factors) {
            continue;
        }
        int64_t *factors = TCI_NEW_ARRAY(p->s, int64_t, slot->n_factors + 1);
        for (int a = 0; a < slot->n_factors; a++) {
            factors[a + (a > at)] = slot->factors[a];
        }
        factors[at] = slot->factors[at] / factor;
        factors[at + 1] = factor;
        slot->factors = factors;
        slot->n_factors++;
        return true;
    }
    return false;
}

/* ---- what nodes are to this kernel ---- */

static int tci_pk_operand(tci_pk *p, int buffer, bool is_output)
{
    for (int i = 0; i < p->n_operand_buffers; i++) {
        if (p->operand_buffers[i] == buffer && p->k->operands[i].is_output == is_output) {
            return i;
        }
    }
    const tci_buffer *b = &p->plan->buffers[buffer];
    TCI_PUSH(p->s, p->operand_buffers, p->n_operand_buffers, p->cap_operand_buffers, buffer);
    return tci_kernel_operand(p->k, (tc_dtype)b->dtype, is_output, b->n);
}

static int tci_pk_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_pk *p = l->user;
    int root = tci_pnode_of(n)->root;
    bool leaf = n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA || n->storage != NULL;
    const tci_root *r = root >= 0 ? &p->f->roots[root] : NULL;
    if (!leaf && (!r || (r->group == (int)(p->g - p->f->groups) && r->kind == TCI_ROOT_VALUE))) {
        return -1;
    }
    if (!leaf && p->red_of[root] >= 0) {
        return p->red_of[root];
    }
    TCI_ASSERT(p->s, leaf || r->buffer >= 0);
    int buffer = leaf ? tci_plan_leaf_buffer(p->plan, n) : r->buffer;
    int x = tci_lower_offset(l, n->rank, n->shape, leaf ? n->strides : NULL, idx);
    return tci_lower_load(l, tci_pk_operand(p, buffer, false), (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute,
                          x, guard);
}

static int tci_pk_literal(tci_lower *l, tci_node *n)
{
    tci_pk *p = l->user;
    for (int i = 0; i < p->n_literals; i++) {
        if (p->literals[i] == n) {
            return i;
        }
    }
    TCI_PUSH(p->s, p->literals, p->n_literals, p->cap_literals, n);
    return p->n_literals - 1;
}

/* ---- stages ---- */

static int tci_pk_stage(tci_pk *p, uint8_t kind, int family, int after)
{
    tci_pk_family *f = &p->families[family];
    for (int t = after + 1; t < p->k->n_stages; t++) {
        bool same = p->k->stages[t].kind == kind && p->k->stages[t].n_axes == f->n_axes;
        for (int a = 0; same && a < f->n_axes; a++) {
            same = p->k->stages[t].axes[a] == f->axes[a];
        }
        if (same && kind != TCI_STAGE_SCAN) {
            return t;
        }
    }
    tci_kstage stage = {kind, f->n_axes, f->axes};
    TCI_PUSH(p->s, p->k->stages, p->k->n_stages, p->k->cap_stages, stage);
    return p->k->n_stages - 1;
}

/* The index expression of each domain axis of a root. */
static int *tci_pk_domain(tci_pk *p, int member)
{
    const tci_root *r = &p->f->roots[p->g->roots[member]];
    int *domain = TCI_NEW_ARRAY(p->s, int, r->n_domain + 1);
    int inner = 0;
    for (int i = 0; i < r->n_domain; i++) {
        if (r->domain[i] == 1) {
            domain[i] = tci_kx_const(p->k, 0);
        } else if (r->outer_of[i] >= 0) {
            domain[i] = p->outer.slots[r->outer_of[i]].kx;
        } else {
            domain[i] = p->families[p->family_of[member]].slots[inner++].kx;
        }
    }
    return domain;
}

static void tci_pk_store(tci_pk *p, const tci_root *r, const int *domain, int value, int stage)
{
    const tci_node *n = r->node;
    int *idx = TCI_NEW_ARRAY(p->s, int, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        idx[i] = domain[r->out_axis[i]];
    }
    int x = tci_lower_offset(&p->l, n->rank, n->shape, NULL, idx);
    for (int o = -1; o < r->n_outputs; o++) {
        int buffer = o < 0 ? r->buffer : r->outputs[o];
        if (buffer >= 0) {
            tci_kstore store = {stage, tci_pk_operand(p, buffer, true), x, value};
            TCI_PUSH(p->s, p->k->stores, p->k->n_stores, p->k->cap_stores, store);
        }
    }
}

static uint8_t tci_pk_red_op(int op)
{
    switch (op) {
    case TCI_OP_PROD: return TCI_RED_PROD;
    case TCI_OP_MAX: return TCI_RED_MAX;
    case TCI_OP_MIN: return TCI_RED_MIN;
    case TCI_OP_ANY: return TCI_RED_ANY;
    case TCI_OP_ALL: return TCI_RED_ALL;
    case TCI_OP_ARGMAX: return TCI_RED_ARGMAX;
    case TCI_OP_ARGMIN: return TCI_RED_ARGMIN;
    case TCI_OP_CONTRACT: return TCI_RED_DOT;
    default: return TCI_RED_SUM;
    }
}

/* Adds the reduction of a REDUCE, CONTRACT or SCAN root; its RED value rounds to the node's dtype. */
static void tci_pk_reduce(tci_pk *p, int member)
{
    int root = p->g->roots[member];
    const tci_root *r = &p->f->roots[root];
    const tci_node *n = r->node;
    int *domain = tci_pk_domain(p, member);
    bool arg = n->op == TCI_OP_ARGMAX || n->op == TCI_OP_ARGMIN;
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)(arg ? n->in[0]->dtype : n->dtype))->compute;
    tci_kred red = {tci_pk_red_op(n->op), (uint8_t)t, 0, -1, -1, -1};
    red.a = tci_lower_value(&p->l, n->in[0], tci_plan_input_index(&p->l, r, 0, domain), 0);
    red.a = tci_lower_convert(p->k, red.a, t);
    int after = p->k->insts[red.a].stage;
    if (n->op == TCI_OP_CONTRACT) {
        red.b = tci_lower_value(&p->l, n->in[1], tci_plan_input_index(&p->l, r, 1, domain), 0);
        red.b = tci_lower_convert(p->k, red.b, t);
        after = TCI_MAX(after, p->k->insts[red.b].stage);
    }
    tci_kinst inst = {0};
    inst.x = inst.guard = -1;
    if (arg) {
        inst.op = TCI_K_INDEX;
        inst.dtype = TC_I64;
        inst.x = domain[r->n_domain - 1];
        red.b = tci_kernel_inst(p->k, inst);
        inst.x = -1;
    }
    bool scan = r->kind == TCI_ROOT_SCAN;
    red.stage = tci_pk_stage(p, scan ? TCI_STAGE_SCAN : TCI_STAGE_REDUCE, p->family_of[member], after);
    TCI_PUSH(p->s, p->k->reds, p->k->n_reds, p->k->cap_reds, red);
    inst.op = TCI_K_RED;
    inst.dtype = (uint8_t)(arg ? TC_I64 : t);
    inst.imm = p->k->n_reds - 1;
    inst.x = -1;
    int value = tci_kernel_inst(p->k, inst);
    p->k->reds[inst.imm].inst = value;
    p->red_of[root] = tci_lower_round(p->k, value, (tc_dtype)n->dtype);
    if (scan) {
        tci_pk_store(p, r, domain, p->red_of[root], red.stage);
    }
}

static void tci_pk_store_member(tci_pk *p, int member)
{
    int root = p->g->roots[member];
    const tci_root *r = &p->f->roots[root];
    if (r->kind == TCI_ROOT_SCAN || (r->buffer < 0 && r->n_outputs == 0)) {
        return;
    }
    int *domain = tci_pk_domain(p, member);
    int value = r->kind == TCI_ROOT_VALUE ? tci_lower_value(&p->l, r->node, domain, 0) : p->red_of[root];
    int64_t none = 0;
    int family = r->kind == TCI_ROOT_VALUE ? p->family_of[member] : tci_pk_family_find(p, 0, &none);
    int stage = tci_pk_stage(p, TCI_STAGE_MAP, family, p->k->insts[value].stage);
    tci_pk_store(p, r, domain, value, stage);
}

/* ---- the vector axis ---- */

/* How many loads walk `axis` with stride 1, and how many with another stride. */
static void tci_pk_count_loads(const tci_kernel *k, int axis, int *unit, int *strided)
{
    int64_t base, *coef = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes + 1);
    *unit = *strided = 0;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->insts[i].op != TCI_K_LOAD || axis < 0) {
            continue;
        }
        if (!tci_kx_affine(k, k->insts[i].x, coef, &base)) {
            *strided += 1;
        } else if (coef[axis] == 1) {
            *unit += 1;
        } else if (coef[axis] != 0) {
            *strided += 1;
        }
    }
}

/* A function of shape and layout alone: the order of the reductions depends on it. */
static uint8_t tci_pk_vector(const tci_kernel *k)
{
    int inner = -1;
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kstage *stage = &k->stages[k->reds[r].stage];
        if (k->reds[r].op == TCI_RED_DOT || stage->kind == TCI_STAGE_SCAN) {
            return TCI_VEC_OUTER;
        }
        if (stage->n_axes == 0) {
            return TCI_VEC_OUTER;
        }
        inner = stage->axes[stage->n_axes - 1];
    }
    if (inner < 0) {
        return TCI_VEC_OUTER;
    }
    int outer = k->n_outer - 1;
    if (outer < 0) {
        return TCI_VEC_INNER;
    }
    int inner_unit, inner_strided, outer_unit, outer_strided;
    tci_pk_count_loads(k, inner, &inner_unit, &inner_strided);
    tci_pk_count_loads(k, outer, &outer_unit, &outer_strided);
    bool short_row = k->axes[inner].size < TCI_PK_SHORT_ROW && k->axes[outer].size >= TCI_PK_WIDE;
    if (short_row && outer_strided <= inner_unit) {
        return TCI_VEC_OUTER;
    }
    return outer_unit > inner_unit && k->axes[outer].size >= TCI_PK_WIDE ? TCI_VEC_OUTER : TCI_VEC_INNER;
}

/* ---- cost and name ---- */

static double tci_pk_points(const tci_kernel *k, uint64_t axes)
{
    double points = 1;
    for (int a = 0; a < k->n_axes; a++) {
        if (axes >> TCI_MIN(a, 63) & 1) {
            points *= (double)k->axes[a].size;
        }
    }
    return points;
}

static int64_t tci_pk_clamp(double x)
{
    return x < 9e18 ? (int64_t)x : INT64_MAX;
}

static void tci_pk_measure(tci_kernel *k)
{
    double flops = 0, bytes = 0;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->insts[i].op == TCI_K_PRIM) {
            flops += tci_prim_get((tci_prim)k->insts[i].prim)->cost * tci_pk_points(k, k->insts[i].axes);
        }
    }
    for (int r = 0; r < k->n_reds; r++) {
        uint64_t axes = k->insts[k->reds[r].a].axes;
        axes |= k->reds[r].b >= 0 ? k->insts[k->reds[r].b].axes : 0;
        flops += (k->reds[r].op == TCI_RED_DOT ? 2 : 1) * tci_pk_points(k, axes);
    }
    for (int p = 0; p < k->n_operands; p++) {
        double points = 0;
        for (int i = 0; i < k->n_insts; i++) {
            if (k->insts[i].op == TCI_K_LOAD && k->insts[i].imm == p) {
                points += tci_pk_points(k, tci_kx_axes(k, k->insts[i].x));
            }
        }
        points = k->operands[p].is_output ? (double)k->operands[p].n : TCI_MIN(points, (double)k->operands[p].n);
        bytes += points * tci_dtype_get((tc_dtype)k->operands[p].dtype)->bytes;
    }
    k->flops = tci_pk_clamp(flops);
    k->bytes = tci_pk_clamp(bytes);
}

/* tc_k_<ops>: the ops of the group's roots and of what they inline, the first few distinct ones. */
static void tci_pk_name(const tci_pk *p, tci_kernel *k)
{
    const char *seen[4];
    int n_seen = 0;
    size_t at = 4;
    for (int i = 0; i < 4; i++) {
        k->name[i] = "tc_k"[i];
    }
    for (int m = p->g->n_roots - 1; m >= 0; m--) {
        const tci_root *r = &p->f->roots[p->g->roots[m]];
        for (int v = r->n_inlined; v >= 0 && n_seen < TCI_COUNT(seen); v--) {
            int op = v == r->n_inlined ? r->node->op : r->inlined[v]->op;
            bool plain = op == TCI_OP_RESHAPE || op == TCI_OP_EXPAND || op == TCI_OP_CONST || op == TCI_OP_LITERAL ||
                         op == TCI_OP_INPUT || op == TCI_OP_DATA;
            const char *name = plain ? NULL : tci_op_name(op);
            for (int s = 0; name && s < n_seen; s++) {
                name = seen[s] == name ? NULL : name;
            }
            if (name) {
                seen[n_seen++] = name;
                k->name[at++] = '_';
                for (const char *c = name; *c && at + 2 < sizeof(k->name); c++) {
                    k->name[at++] = *c;
                }
            }
        }
    }
    k->name[at] = 0;
}

/* ---- one attempt ---- */

static void tci_pk_attempt(tci_pk *p)
{
    p->k = tci_kernel_make(p->s);
    p->n_operand_buffers = p->n_literals = 0;
    tci_lower_init(&p->l, p->s, p->k);
    p->l.user = p;
    p->l.access = tci_pk_access;
    p->l.literal = tci_pk_literal;
    tci_pk_make_axes(p, &p->outer, false);
    for (int f = 0; f < p->n_families; f++) {
        tci_pk_make_axes(p, &p->families[f], true);
    }
    for (int r = 0; r < p->f->n_roots; r++) {
        if (p->f->roots[r].group == (int)(p->g - p->f->groups)) {
            p->red_of[r] = -1;
        }
    }
    for (int m = 0; m < p->g->n_roots; m++) {
        if (p->f->roots[p->g->roots[m]].kind != TCI_ROOT_VALUE) {
            tci_pk_reduce(p, m);
        }
    }
    for (int m = 0; m < p->g->n_roots; m++) {
        tci_pk_store_member(p, m);
    }
    p->k->n_literals = p->n_literals;
}

static bool tci_pk_split_any(tci_pk *p)
{
    int axis;
    int64_t factor;
    if (!tci_kernel_split_find(p->k, &axis, &factor)) {
        return false;
    }
    bool done = tci_pk_split(p, &p->outer, axis, factor);
    for (int f = 0; f < p->n_families && !done; f++) {
        done = tci_pk_split(p, &p->families[f], axis, factor);
    }
    return done;
}

TCI_FN tci_lowered tci_plan_lower(tci_scratch *s, const tci_fusion *f, const tci_group *g, tci_plan *plan)
{
    tci_pk p = {.s = s, .f = f, .g = g, .plan = plan};
    p.outer = tci_pk_make_family(s, g->n_outer, g->outer);
    p.family_of = TCI_NEW_ARRAY(s, int32_t, g->n_roots + 1);
    p.red_of = plan->red_of;
    for (int m = 0; m < g->n_roots; m++) {
        const tci_root *r = &f->roots[g->roots[m]];
        int64_t *sizes = TCI_NEW_ARRAY(s, int64_t, r->n_domain + 1);
        int n = tci_pk_inner_sizes(&p, r, sizes);
        p.family_of[m] = tci_pk_family_find(&p, n, sizes);
    }
    int64_t none = 0;
    tci_pk_family_find(&p, 0, &none);
    for (int tries = 0; tries < TCI_PK_SPLITS; tries++) {
        tci_pk_attempt(&p);
        if (!tci_pk_split_any(&p)) {
            break;
        }
    }
    p.k->vector = tci_pk_vector(p.k);
    tci_lowered out = {tci_kernel_finish(p.k), p.operand_buffers, p.literals};
    tci_pk_measure(out.kernel);
    tci_pk_name(&p, out.kernel);
    return out;
}
/* ---- src/plan/memory.c ---- */
/* plan/memory.c - lifetimes of buffers, their place in the arena, and which outputs may lie on an input.
 *
 * Placement: a sweep over the steps with a list of free gaps, first fit; a temporary is placed at the step
 * that first writes it and its room is free again after the step that last reads it. Offsets are
 * multiples of 64. */

typedef struct tci_memory_gap { int64_t begin, end; } tci_memory_gap;
typedef struct tci_memory {
    tci_scratch *s;
    tci_memory_gap *gaps; int n, cap; /* ascending, disjoint, not touching; the last one is endless */
    int64_t top;
} tci_memory;

static int64_t tci_memory_take(tci_memory *m, int64_t bytes)
{
    for (int i = 0; i < m->n; i++) {
        tci_memory_gap *gap = &m->gaps[i];
        if (gap->end - gap->begin >= bytes) {
            int64_t at = gap->begin;
            gap->begin += bytes;
            m->top = TCI_MAX(m->top, at + bytes);
            if (gap->begin == gap->end) {
                m->n--;
                for (int j = i; j < m->n; j++) {
                    m->gaps[j] = m->gaps[j + 1];
                }
            }
            return at;
        }
    }
    tci_scratch_fail(m->s, TC_ERR_LIMIT, "temporaries need more than %lld bytes", (long long)INT64_MAX);
    return 0;
}

static void tci_memory_give(tci_memory *m, int64_t begin, int64_t bytes)
{
    if (bytes == 0) {
        return;
    }
    int at = 0;
    while (at < m->n && m->gaps[at].begin < begin) {
        at++;
    }
    tci_memory_gap gap = {begin, begin + bytes};
    TCI_PUSH(m->s, m->gaps, m->n, m->cap, gap);
    for (int i = m->n - 1; i > at; i--) {
        m->gaps[i] = m->gaps[i - 1];
    }
    m->gaps[at] = gap;
    for (int i = TCI_MAX(at - 1, 0); i + 1 < m->n && i <= at + 1;) { /* join what touches */
        if (m->gaps[i].end == m->gaps[i + 1].begin) {
            m->gaps[i].end = m->gaps[i + 1].end;
            m->n--;
            for (int j = i + 1; j < m->n; j++) {
                m->gaps[j] = m->gaps[j + 1];
            }
        } else {
            i++;
        }
    }
}

static void tci_memory_lifetimes(tci_plan *p)
{
    for (int b = 0; b < p->n_buffers; b++) {
        p->buffers[b].first = p->n_steps;
        p->buffers[b].last = -1;
    }
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int o = 0; o < k->n_operands; o++) {
            tci_buffer *b = &p->buffers[p->steps[t].operands[o]];
            b->first = TCI_MIN(b->first, t);
            b->last = TCI_MAX(b->last, t);
        }
    }
}

static void tci_memory_place(tci_scratch *s, tci_plan *p)
{
    tci_memory m = {.s = s};
    tci_memory_gap all = {0, INT64_MAX / 2};
    TCI_PUSH(s, m.gaps, m.n, m.cap, all);
    int32_t *head = TCI_NEW_ARRAY(s, int32_t, 2 * (p->n_steps + 1));
    int32_t *next = TCI_NEW_ARRAY(s, int32_t, 2 * (p->n_buffers + 1));
    for (int t = 0; t < 2 * (p->n_steps + 1); t++) {
        head[t] = -1;
    }
    for (int b = p->n_buffers - 1; b >= 0; b--) { /* lists of what begins and ends at each step */
        const tci_buffer *buffer = &p->buffers[b];
        if (buffer->kind == TCI_BUF_TEMP && buffer->last >= 0) {
            next[2 * b] = head[2 * buffer->first];
            head[2 * buffer->first] = b;
            next[2 * b + 1] = head[2 * buffer->last + 1];
            head[2 * buffer->last + 1] = b;
        }
    }
    for (int t = 0; t < p->n_steps; t++) {
        for (int b = head[2 * t]; b >= 0; b = next[2 * b]) {
            p->buffers[b].offset = tci_memory_take(&m, (p->buffers[b].bytes + 63) / 64 * 64);
        }
        for (int b = head[2 * t + 1]; b >= 0; b = next[2 * b + 1]) {
            tci_memory_give(&m, p->buffers[b].offset, (p->buffers[b].bytes + 63) / 64 * 64);
        }
    }
    p->arena_bytes = m.top;
}

/* ---- outputs on top of inputs ---- */

/* The latest stage in which instruction i may be evaluated: that of its last user. */
static int32_t *tci_memory_last_use(tci_scratch *s, const tci_kernel *k)
{
    int32_t *last = TCI_NEW_ARRAY(s, int32_t, k->n_insts + 1);
    for (int r = 0; r < k->n_reds; r++) {
        last[k->reds[r].a] = TCI_MAX(last[k->reds[r].a], k->reds[r].stage);
        if (k->reds[r].b >= 0) {
            last[k->reds[r].b] = TCI_MAX(last[k->reds[r].b], k->reds[r].stage);
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        last[k->stores[w].value] = TCI_MAX(last[k->stores[w].value], k->stores[w].stage);
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        for (int a = 0; a < k->insts[i].n_args; a++) {
            last[k->insts[i].args[a]] = TCI_MAX(last[k->insts[i].args[a]], last[i]);
        }
    }
    return last;
}

static bool tci_memory_elementwise(tci_scratch *s, const tci_kernel *k, int out, int in)
{
    int store = -1;
    for (int w = 0; w < k->n_stores; w++) {
        if (k->stores[w].operand == out) {
            if (store >= 0) {
                return false;
            }
            store = w;
        }
    }
    int32_t *last = tci_memory_last_use(s, k);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *load = &k->insts[i];
        bool reads = load->op == TCI_K_LOAD && load->imm == in;
        if (reads && (store < 0 || load->x != k->stores[store].x || load->n_guards > 0 ||
                      last[i] > k->stores[store].stage || k->faults)) {
            return false;
        }
        /* a rolled row or tile: every point must be read before it is written, by its own store alone */
        if (reads && k->n_stages > 1) {
            uint64_t all = k->n_axes >= 63 ? ~(uint64_t)0 : ((uint64_t)1 << k->n_axes) - 1;
            if ((load->axes & all) != all) {
                return false;
            }
        }
    }
    return true;
}

static bool tci_memory_may_alias(tci_scratch *s, const tci_plan *p, int out, int in)
{
    bool written = false;
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        int writes = -1, reads = -1;
        for (int o = 0; o < k->n_operands; o++) {
            int b = p->steps[t].operands[o];
            writes = b == out && k->operands[o].is_output ? o : writes;
            reads = b == in ? o : reads;
        }
        if (reads >= 0 && (written || (writes >= 0 && !tci_memory_elementwise(s, k, writes, reads)))) {
            return false;
        }
        written |= writes >= 0;
    }
    return true;
}

static void tci_memory_aliases(tci_scratch *s, tci_plan *p)
{
    for (int o = 0; o < p->n_buffers; o++) {
        for (int i = 0; i < p->n_buffers && p->buffers[o].kind == TCI_BUF_OUTPUT; i++) {
            const tci_buffer *out = &p->buffers[o], *in = &p->buffers[i];
            if (in->kind == TCI_BUF_INPUT && in->bytes == out->bytes && in->dtype == out->dtype &&
                p->n_buffers < 256 && tci_memory_may_alias(s, p, o, i)) {
                tci_alias alias = {out->index, in->index};
                TCI_PUSH(s, p->aliases, p->n_aliases, p->cap_aliases, alias);
            }
        }
    }
}

TCI_FN void tci_plan_memory(tci_scratch *s, tci_plan *p)
{
    tci_memory_lifetimes(p);
    tci_memory_place(s, p);
    tci_memory_aliases(s, p);
}
/* ---- src/plan/plan.c ---- */
/* plan/plan.c - the planning pass: algorithm, fusion, one kernel a group, buffers, memory.
 *
 * In: the rewritten graph with its inputs, literals and outputs in order. Out: a tci_plan. Kernels with
 * equal text are one kernel launched several times. */

/* ---- buffers ---- */

static int tci_plan_add_buffer(tci_scratch *s, tci_plan *p, uint8_t kind, const tci_node *n, int index, int64_t elems)
{
    tci_buffer b = {0};
    b.kind = kind;
    b.dtype = n->dtype;
    b.index = index;
    b.n = elems;
    b.bytes = elems * tci_dtype_get((tc_dtype)n->dtype)->bytes;
    b.node = n;
    TCI_PUSH(s, p->buffers, p->n_buffers, p->cap_buffers, b);
    return p->n_buffers - 1;
}

/* Elements from the lowest to the highest that a leaf's strides reach. */
static int64_t tci_plan_leaf_extent(const tci_node *n)
{
    if (tci_node_count(n) == 0 || !n->strides) {
        return tci_node_count(n);
    }
    int64_t extent = 1;
    for (int i = 0; i < n->rank; i++) {
        int64_t stride = n->strides[i] < 0 ? -n->strides[i] : n->strides[i];
        extent += stride * (n->shape[i] - 1);
    }
    return extent;
}

TCI_FN int tci_plan_leaf_buffer(const tci_plan *p, const tci_node *leaf)
{
    for (int b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].kind == TCI_BUF_INPUT && p->buffers[b].node == leaf) {
            return b;
        }
    }
    return -1;
}

/* Memory of roots: outputs get the program's buffers, others a temporary if any other group reads them. */
static void tci_plan_root_buffers(tci_scratch *s, tci_plan *p, tci_fusion *f, tci_node *const *outputs, int n_outputs)
{
    for (int i = 0; i < n_outputs; i++) {
        tci_root *r = &f->roots[tci_pnode_of(outputs[i])->root];
        int b = tci_plan_add_buffer(s, p, TCI_BUF_OUTPUT, outputs[i], i, tci_node_count(outputs[i]));
        if (r->buffer < 0) {
            r->buffer = b;
        } else { /* the same value twice: stored twice */
            TCI_PUSH(s, r->outputs, r->n_outputs, r->cap_outputs, b);
        }
    }
    for (int i = 0; i < f->n_roots; i++) {
        for (int j = 0; j < f->roots[i].n_reads; j++) {
            tci_root *q = &f->roots[f->roots[i].reads[j].root];
            bool stored = q->group != f->roots[i].group || q->kind == TCI_ROOT_SCAN;
            if (stored && q->buffer < 0) {
                q->buffer = tci_plan_add_buffer(s, p, TCI_BUF_TEMP, q->node, -1, tci_node_count(q->node));
            }
        }
    }
}

/* ---- kernels ---- */

typedef struct tci_plan_texts {
    char **items;
    uint64_t *hashes;
    int n, cap, cap_hashes, n_hashes;
} tci_plan_texts;

static int tci_plan_kernel_index(tci_scratch *s, tci_plan *p, tci_plan_texts *texts, tci_kernel *k)
{
    tci_str text = {.s = s};
    tci_kernel_print(&text, k);
    uint64_t hash = tci_hash_bytes(text.text, text.n).lo;
    for (int i = 0; i < p->n_kernels; i++) {
        const char *have = texts->items[i], *want = text.text;
        if (texts->hashes[i] == hash) {
            while (*have && *have == *want) {
                have++;
                want++;
            }
            if (*have == *want) {
                return i;
            }
        }
    }
    TCI_PUSH(s, texts->items, texts->n, texts->cap, text.text);
    TCI_PUSH(s, texts->hashes, texts->n_hashes, texts->cap_hashes, hash);
    TCI_PUSH(s, p->kernels, p->n_kernels, p->cap_kernels, k);
    return p->n_kernels - 1;
}

static void tci_plan_steps(tci_scratch *s, tci_plan *p, tci_fusion *f, tci_node *const *literals, int n_literals)
{
    tci_plan_texts texts = {0};
    p->red_of = TCI_NEW_ARRAY(s, int32_t, f->n_roots + 1);
    for (int i = 0; i < f->n_roots; i++) {
        p->red_of[i] = -1;
    }
    for (int i = 0; i < n_literals; i++) {
        literals[i]->id = (uint32_t)i; /* a LITERAL's number is its program slot from here on */
    }
    for (int i = 0; i < f->n_groups; i++) {
        const tci_group *g = &f->groups[f->order[i]];
        tci_lowered low = tci_plan_lower(s, f, g, p);
        tci_step step = {tci_plan_kernel_index(s, p, &texts, low.kernel), low.operand_buffers,
                         TCI_NEW_ARRAY(s, int32_t, low.kernel->n_literals + 1)};
        for (int j = 0; j < low.kernel->n_literals; j++) {
            step.literals[j] = (int32_t)low.literals[j]->id;
        }
        TCI_PUSH(s, p->steps, p->n_steps, p->cap_steps, step);
        for (int m = 0; m < g->n_roots; m++) {
            p->red_of[g->roots[m]] = -1;
        }
    }
}

TCI_FN tci_plan *tci_plan_make(tci_scratch *s, tci_graph *g, tci_node *const *inputs, int n_inputs,
                               tci_node *const *literals, int n_literals, tci_node *const *roots, int n_roots)
{
    tci_plan *p = TCI_NEW(s, tci_plan);
    p->why.s = s;
    tci_node **outputs = tci_scratch_copy(s, roots, sizeof(tci_node *) * (size_t)n_roots);
    tci_plan_algorithm(s, g, outputs, n_roots);
    for (int i = 0; i < n_inputs; i++) {
        tci_plan_add_buffer(s, p, TCI_BUF_INPUT, inputs[i], i, tci_plan_leaf_extent(inputs[i]));
    }
    tci_fusion *f = tci_plan_fuse(s, outputs, n_roots, &p->why);
    tci_plan_root_buffers(s, p, f, outputs, n_roots);
    tci_plan_steps(s, p, f, literals, n_literals);
    tci_plan_memory(s, p);
    return p;
}

/* ---- print and verify ---- */

TCI_FN void tci_plan_print(tci_str *out, const tci_plan *p)
{
    static const char *const kinds[] = {"input", "output", "temp"};
    for (int t = 0; t < p->n_steps; t++) {
        const tci_step *step = &p->steps[t];
        const tci_kernel *k = p->kernels[step->kernel];
        tci_str_printf(out, "step %d: kernel %d %s (", t, step->kernel, k->name);
        for (int o = 0; o < k->n_operands; o++) {
            const tci_buffer *b = &p->buffers[step->operands[o]];
            tci_str_printf(out, "%s%s %s%d", o ? ", " : "", k->operands[o].is_output ? "write" : "read",
                           kinds[b->kind], b->kind == TCI_BUF_TEMP ? step->operands[o] : b->index);
        }
        tci_str_printf(out, ") flops %lld bytes %lld\n", (long long)k->flops, (long long)k->bytes);
    }
    for (int b = 0; b < p->n_buffers; b++) {
        const tci_buffer *buffer = &p->buffers[b];
        if (buffer->kind == TCI_BUF_TEMP) {
            tci_str_printf(out, "temp%d: %lld bytes at %lld, steps %d to %d\n", b, (long long)buffer->bytes,
                           (long long)buffer->offset, buffer->first, buffer->last);
        }
    }
    for (int a = 0; a < p->n_aliases; a++) {
        tci_str_printf(out, "output %d may lie on input %d\n", p->aliases[a].output, p->aliases[a].input);
    }
    tci_str_printf(out, "arena %lld bytes\n%s", (long long)p->arena_bytes, tci_str_text(&p->why));
}

TCI_FN void tci_plan_verify(tci_scratch *s, const tci_plan *p)
{
    bool *written = TCI_NEW_ARRAY(s, bool, p->n_buffers + 1);
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        tci_kernel_verify(s, k);
        for (int o = 0; o < k->n_operands; o++) {
            int b = p->steps[t].operands[o];
            TCI_ASSERT(s, b >= 0 && b < p->n_buffers && p->buffers[b].n == k->operands[o].n);
            TCI_ASSERT(s, k->operands[o].is_output || p->buffers[b].kind == TCI_BUF_INPUT || written[b]);
            TCI_ASSERT(s, !k->operands[o].is_output || p->buffers[b].kind != TCI_BUF_INPUT);
        }
        for (int o = 0; o < k->n_operands; o++) {
            written[p->steps[t].operands[o]] |= k->operands[o].is_output;
        }
    }
    for (int a = 0; a < p->n_buffers; a++) { /* live at once means apart */
        for (int b = 0; b < a && p->buffers[a].kind == TCI_BUF_TEMP; b++) {
            const tci_buffer *x = &p->buffers[a], *y = &p->buffers[b];
            bool together = y->kind == TCI_BUF_TEMP && x->first <= y->last && y->first <= x->last;
            TCI_ASSERT(s, !together || x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset ||
                              x->bytes == 0 || y->bytes == 0);
        }
    }
}

/* ---- src/loop/schedule.c ---- */
/* loop/schedule.c - decides how a kernel runs and builds the loop nest.
 *
 * In: a kernel and the width of the machine's vectors. Out: its loop IR and what the run must know
 * (tci_launch). The outer domain is cut into units: one point of the outer axes that are neither
 * vectorized nor tiled, times one chunk of the vector axis, times one group of row tiles; a task is
 * `grain` neighbouring units. Inside a unit the vector axis is walked in tiles of `unroll` vectors, and
 * for each of them the rows. Which elements fall into a tile never changes a result.
 *   pointwise     the vector axis only; long outputs that nothing reads soon bypass the caches
 *   transposing   small blocks of two axes, so that every cache line is used whole
 *   contraction   rows x vectors of accumulators in registers, loads shared along both sides
 *   rows          (VEC_INNER) one unit is one outer point; the stages run along their inner axes */
#include <stdio.h>

/* ---- src/loop/stage.h ---- */
/* loop/stage.h - emits the stages of a kernel for a tile of outer points. */
#ifndef TCI_LOOP_STAGE_H
#define TCI_LOOP_STAGE_H

/* ---- src/loop/build.h ---- */
/* loop/build.h - evaluates the values of a kernel inside a loop nest that is being built.
 *
 * A binding says what an axis is at this point of the nest: a linear form over index variables, its
 * range, and whether it stands for a vector of neighbouring values. Bindings are numbered; a value is
 * memoized by (instruction, bindings of the axes it depends on), so unrolled copies and register tiles
 * share whatever does not differ between them. A value is emitted in the deepest block that one of its
 * parts needs: what is invariant moves out of a loop by itself. */
#ifndef TCI_LOOP_BUILD_H
#define TCI_LOOP_BUILD_H

/* ---- src/loop/ir.h ---- */
/* loop/ir.h - the loop IR: how one kernel runs, as a small tree of statements.
 *
 * A function body is a block (block 0) of statements; FOR and IF own further blocks. Three kinds of names:
 *   values   v12: typed (compute dtype, lanes), written once, or mutable (VAR and SET, for accumulators)
 *   indices  x7:  64-bit loop variables and index lets, written once
 *   locals   m3:  arrays on the stack
 * An index expression (tci_lx) is a hash-consed tree over indices; it is printed inline.
 * Memory is a base (operand or local) plus an offset in elements; the access kinds are the dialect's
 * (tci_mem), so a printer only asks for names.
 *
 * Invariants (loop/verify.c): a name is defined before its use, in the same or an enclosing block; lanes
 * of a PRIM's arguments agree with its result; DIV and MOD only see values that are not negative; an
 * output operand is never loaded; SET names a mutable value of the same type. */
#ifndef TCI_LOOP_IR_H
#define TCI_LOOP_IR_H

/* ---- src/loop/loop.h ---- */
/* loop/loop.h - the way from a kernel to source text: schedule (loop/schedule.c) makes the loop IR of one
 * kernel, emit/c_like.c prints it in a dialect. The loop IR itself is loop/ir.h. */
#ifndef TCI_LOOP_LOOP_H
#define TCI_LOOP_LOOP_H

/* ---- src/emit/dialect.h ---- */
/* emit/dialect.h - what differs between target languages: how types, prims and memory accesses are
 * spelled. The printer (emit/c_like.c) asks for names; the dialect records which were asked for and
 * prints their definitions as the file's prelude, dependencies first.
 *
 * Naming: a value type is tc_<dtype> (lanes 1) or tc_<dtype>x<lanes>, e.g. tc_f32, tc_f32x16; a mask
 * (bool) with lanes > 1 is an integer vector of 0 / -1 whose lane width is the target's vector width
 * divided by the lanes (tc_boolx16 is 16 x i32 on a 64-byte target); with lanes 1 it is tc_bool (int 0/1).
 * A function is tc_<name>_<type>[_<type2>]. Everything is `static inline` or a macro. */
#ifndef TCI_EMIT_DIALECT_H
#define TCI_EMIT_DIALECT_H


typedef enum tci_mem {
    TCI_MEM_LOAD,        /* T f(const S *p): lanes consecutive elements of storage dtype S as compute T */
    TCI_MEM_LOAD_MASK,   /* T f(const S *p, B m): lanes with m false are not touched and read as 0 */
    TCI_MEM_LOAD_N,      /* T f(const S *p, long n): first n lanes, 0 < n < lanes; the rest read as 0 */
    TCI_MEM_LOAD_STRIDED,/* T f(const S *p, long stride): element i at p[i * stride] */
    TCI_MEM_LOAD_STRIDED_N, /* T f(const S *p, long stride, long n) */
    TCI_MEM_LOAD_ONE,    /* T1 f(const S *p): one element, scalar */
    TCI_MEM_STORE,       /* void f(S *p, T v): narrows and stores */
    TCI_MEM_STORE_N,     /* void f(S *p, T v, long n) */
    TCI_MEM_STORE_STREAM,/* void f(S *p, T v): bypasses the caches; p is aligned to the vector */
    TCI_MEM_STORE_STRIDED,   /* void f(S *p, long stride, T v) */
    TCI_MEM_STORE_STRIDED_N, /* void f(S *p, long stride, T v, long n) */
    TCI_MEM_STORE_ONE,   /* void f(S *p, T1 v) */
    TCI_MEM_SPLAT,       /* T f(T1 v): every lane */
    TCI_MEM_IOTA,        /* T f(T1 first): first, first + 1, ... */
    TCI_MEM_FIRST_N,     /* B f(long n): lanes < n */
    TCI_MEM_LANE,        /* T1 f(T v, int i) */
    TCI_MEM_SET_LANE,    /* T f(T v, int i, T1 x) */
    TCI_MEM_HIGH_HALF,   /* T f(T v, int h): lane i takes lane i + h (i < h), the rest unspecified */
    TCI_MEM_PREFETCH,    /* void f(const void *p) */
    TCI_MEM_FENCE,       /* void f(void): after streaming stores */
    TCI_MEM_COUNT
} tci_mem;

typedef struct tci_dialect tci_dialect;
struct tci_dialect {
    const char *name;                 /* "c", "cuda" */
    const char *restrict_word;        /* "__restrict__" */
    int vector_bytes;
    tci_scratch *s;
    void *state;                      /* the requests made so far */
    /* Name of a prim (BASE or MATH) on dtype `t` giving `to` (= t unless CAST, BITS, TOINT; masks of
     * compares follow the lanes); requests it and what it needs. imm: helper id for LANE1. */
    const char *(*prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm);
    const char *(*mem)(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage, int lanes);
    const char *(*type)(tci_dialect *d, tc_dtype t, int lanes);
    /* A constant as source text of the scalar compute type: exact bits (hex floats or bit casts). */
    const char *(*constant)(tci_dialect *d, tc_dtype t, tci_value v);
    /* Everything requested, in an order that compiles. No #include. */
    void (*prelude)(tci_dialect *d, tci_str *out);
};

#endif

/* ---- src/loop/loop.h, continued ---- */
typedef struct tci_loop tci_loop; /* loop/ir.h */

/* What the schedule decided that the run needs to know. */
typedef struct tci_launch {
    int64_t n_tasks;      /* independent tasks; see tci_kernel_fn */
    double task_ns;       /* estimated time of one task, for choosing serial or threads */
    int lanes;            /* for explain */
    char note[96];        /* one line for explain: "vector 16 x f32, tile 4x2, stream" */
} tci_launch;

/* vector_bytes 0: scalar code. Never fails but by escape. */
TCI_FN tci_loop *tci_loop_schedule(tci_scratch *s, const tci_kernel *k, int vector_bytes, tci_launch *launch);
TCI_FN void tci_loop_print(tci_str *out, const tci_loop *l);
TCI_FN void tci_loop_verify(tci_scratch *s, const tci_loop *l);

/* Prints the function `symbol` (signature tci_kernel_fn) for one kernel; names come from d. */
TCI_FN void tci_emit_kernel(tci_str *out, tci_dialect *d, const tci_kernel *k, const tci_loop *l, const char *symbol);
TCI_FN tci_dialect *tci_dialect_c(tci_scratch *s, int vector_bytes); /* cpu/dialect.c */

#endif

/* ---- src/loop/ir.h, continued ---- */
typedef enum tci_lx_op {
    TCI_LX_CONST,      /* c */
    TCI_LX_VAR,        /* index a */
    TCI_LX_ADD,        /* a + b */
    TCI_LX_MUL,        /* a * c */
    TCI_LX_DIV,        /* a / c, a >= 0, c > 0 */
    TCI_LX_MOD,        /* a % c, likewise */
    TCI_LX_MIN,        /* smaller of a and b */
    TCI_LX_MAX,        /* larger of a and b */
    TCI_LX_TASK_BEGIN, /* parameters of the function */
    TCI_LX_TASK_END,
    TCI_LX_HEAD        /* elements from offset a of operand b up to an address that is a multiple of c bytes */
} tci_lx_op;
typedef struct tci_lx {
    uint8_t op;
    int32_t a, b;
    int64_t c;
} tci_lx;

typedef enum tci_lop {
    TCI_L_FOR,       /* for index dst = x; < n; += imm: body */
    TCI_L_IF,        /* if value args[0]: body */
    TCI_L_INDEX,     /* index dst = x */
    TCI_L_FROM_VALUE,/* index dst = integer value args[0] */
    TCI_L_LOCAL,     /* declares local dst */
    TCI_L_CONST,     /* value dst = value */
    TCI_L_LITERAL,   /* value dst (i64) = word imm of the literals */
    TCI_L_PRIM,      /* value dst = prim(args) */
    TCI_L_MEM,       /* mem: a load, a store or a lane operation; see tci_lmem_uses */
    TCI_L_IN_RANGE,  /* bool dst = value.i <= x <= imm */
    TCI_L_TO_VALUE,  /* i64 dst = x */
    TCI_L_COPY,      /* value dst = args[0] as it is now */
    TCI_L_FAULT,     /* i64 dst = args[0] as an index of an axis of size imm; see TCI_K_FAULT */
    TCI_L_VAR,       /* mutable dst, first value args[0] */
    TCI_L_SET,       /* mutable dst = args[0] */
    TCI_L_NOTE       /* text for the reader */
} tci_lop;

typedef struct tci_lstmt {
    uint8_t op;       /* tci_lop */
    uint8_t mem;      /* MEM: tci_mem */
    uint8_t prim;     /* PRIM: tci_prim */
    int32_t dst;      /* value, index or local that is defined or set; -1 none */
    int32_t args[3];  /* values; -1 unused */
    int32_t base;     /* MEM: operand, or ~local */
    int32_t x;        /* index expression: offset, first value, lower bound */
    int32_t n;        /* index expression: count of lanes, upper bound */
    int64_t imm;      /* stride, lane, step, size */
    tci_value value;  /* CONST, IN_RANGE */
    int32_t body;     /* block */
    const char *text; /* NOTE */
} tci_lstmt;

typedef struct tci_lvalue {
    uint8_t dtype;
    bool is_mutable;
    int32_t lanes;
    int32_t block;    /* where it is defined */
    int32_t splat;    /* derived: the same in every lane, -1 not made yet */
    int32_t index;    /* derived: the same as an index, -1 not made yet */
} tci_lvalue;
typedef struct tci_lindex {
    int32_t block;
    bool is_loop;
} tci_lindex;
typedef struct tci_llocal {
    uint8_t dtype;    /* storage dtype */
    int64_t n;
} tci_llocal;
typedef struct tci_lblock {
    tci_lstmt *stmts; int n, cap;
    int32_t parent;   /* -1: the body of the function */
    int32_t depth;
} tci_lblock;

struct tci_loop {
    tci_scratch *s;
    int lanes;
    const char *note;
    tci_koperand *operands; int n_operands;
    tci_lx *lx; int n_lx, cap_lx;
    int32_t *lx_hash; int n_lx_hash;
    int32_t *lx_index; int cap_lx_index;      /* derived: latest index let of an expression, -1 none */
    tci_lvalue *values; int n_values, cap_values;
    tci_lindex *indices; int n_indices, cap_indices;
    tci_llocal *locals; int n_locals, cap_locals;
    tci_lblock *blocks; int n_blocks, cap_blocks;
    bool faults;
};

/* What a tci_mem needs of its statement; the printer and the verifier go by this. */
enum {
    TCI_LMEM_DST = 1,     /* gives a value */
    TCI_LMEM_ADDRESS = 2, /* base and x */
    TCI_LMEM_STRIDE = 4,  /* imm as stride */
    TCI_LMEM_VALUE = 8,   /* args[0] as the value stored or transformed */
    TCI_LMEM_MASK = 16,   /* args[0] as mask */
    TCI_LMEM_COUNT = 32,  /* n */
    TCI_LMEM_FIRST = 64,  /* x as first value */
    TCI_LMEM_LANE = 128,  /* imm as a lane number */
    TCI_LMEM_WRITES = 256
};

/* loop/ir.c */
TCI_FN tci_loop *tci_loop_make(tci_scratch *s, const tci_kernel *k);
TCI_FN int tci_loop_block(tci_loop *l, int parent);
TCI_FN bool tci_loop_encloses(const tci_loop *l, int outer, int inner); /* same block counts */
TCI_FN int tci_loop_value(tci_loop *l, tc_dtype t, int lanes, int block);
TCI_FN int tci_loop_index(tci_loop *l, int block, bool is_loop);
TCI_FN int tci_loop_local(tci_loop *l, tc_dtype storage, int64_t n);
TCI_FN tci_lstmt tci_loop_stmt(tci_lop op);       /* every reference -1 */
TCI_FN void tci_loop_append(tci_loop *l, int block, tci_lstmt st);
/* Index expressions: hash-consed, constants folded. */
TCI_FN int tci_lx_const(tci_loop *l, int64_t c);
TCI_FN int tci_lx_var(tci_loop *l, int index);
TCI_FN int tci_lx_make(tci_loop *l, tci_lx_op op, int a, int b, int64_t c);
TCI_FN bool tci_lx_is_const(const tci_loop *l, int x, int64_t *c);
TCI_FN int tci_lx_block(const tci_loop *l, int x); /* deepest block of the indices in it */
TCI_FN unsigned tci_lmem_uses(tci_mem m);

#endif

/* ---- src/loop/build.h, continued ---- */
/* c + sum coef[i] * index var[i]; immutable once made. */
typedef struct tci_lin {
    int64_t c;
    int32_t n;
    const int32_t *var;
    const int64_t *coef;
} tci_lin;

typedef struct tci_bind {
    int32_t id;
    bool is_vector;     /* lane i of the axis is at + i */
    tci_lin at;
    int64_t lo, hi;     /* range of every (existing) lane, inclusive */
    int32_t n;          /* index expression: lanes that exist; -1: all */
    int32_t block;      /* what is loaded at this place stays in this block: a branch's, else 0 */
} tci_bind;

typedef struct tci_lmemo {
    int32_t value, next;
    int32_t n_sig;
    const int32_t *sig; /* binding ids of the axes the instruction depends on */
} tci_lmemo;

/* An instruction kept in a local array by the stage that computes it first. */
typedef struct tci_lkeep {
    int32_t inst, local;
    int32_t stage;      /* the stage that fills it */
} tci_lkeep;

typedef struct tci_build {
    tci_scratch *s;
    const tci_kernel *k;
    tci_loop *l;
    int cur;                      /* block under construction */
    int floor;                    /* innermost open branch, or 0 */
    int stage;                    /* stage being emitted */
    const tci_bind **bind;        /* per axis, NULL: not bound here */
    int vec_axis;                 /* axis with a vector binding, -1 none */
    int n_bind_ids;
    tci_lmemo *memo; int n_memo, cap_memo;
    int32_t *memo_first;          /* per instruction */
    tci_lkeep *keeps; int n_keeps, cap_keeps;
    int32_t *todo; int n_todo, cap_todo;
    /* inside a loop over the lanes of a vector binding: that binding, its axis, the lane, the block before */
    const tci_bind *lane_bind;
    int lane_axis, lane_index, lane_parent;
} tci_build;

/* Blocks. tci_build_for opens a loop and returns its index; tci_build_close appends it to its parent. */
typedef struct tci_lopen { tci_lstmt st; int parent, floor; } tci_lopen;
TCI_FN int tci_build_for(tci_build *b, int begin, int end, int64_t step, tci_lopen *open);
TCI_FN void tci_build_if(tci_build *b, int condition, tci_lopen *open);
TCI_FN void tci_build_close(tci_build *b, const tci_lopen *open);
TCI_FN void tci_build_note(tci_build *b, const char *text);

/* Linear forms and index expressions. */
TCI_FN tci_lin tci_lin_const(int64_t c);
TCI_FN tci_lin tci_lin_var(tci_build *b, int index);
TCI_FN tci_lin tci_lin_add(tci_build *b, tci_lin x, tci_lin y);
TCI_FN tci_lin tci_lin_mul(tci_build *b, tci_lin x, int64_t c);
TCI_FN tci_lin tci_lin_plus(tci_lin x, int64_t c);
TCI_FN int tci_build_lx(tci_build *b, tci_lin x);            /* hoists what is invariant */
TCI_FN tci_lin tci_build_let(tci_build *b, int lx);          /* an index holding lx, in its own block */
TCI_FN tci_lin tci_build_kx(tci_build *b, int kx);           /* under the current bindings, lane 0 */
TCI_FN void tci_build_range(const tci_build *b, int kx, int64_t *lo, int64_t *hi);
/* kx = *coef * axis + something that does not depend on it */
TCI_FN bool tci_build_coef(const tci_kernel *k, int kx, int axis, int64_t *coef);
TCI_FN bool tci_build_depends(uint64_t axes, int axis);
TCI_FN int64_t tci_build_floor_div(int64_t a, int64_t c);

/* Bindings. */
TCI_FN const tci_bind *tci_build_bind(tci_build *b, tci_lin at, int64_t lo, int64_t hi, bool is_vector, int n);
TCI_FN void tci_build_set(tci_build *b, int axis, const tci_bind *bind);

/* Statements that give values, in the deepest block that a part of them needs, at least `block`; what
 * reads a mutable value stays in the current block. */
TCI_FN int tci_build_const(tci_build *b, tc_dtype t, tci_value v);
TCI_FN int tci_build_prim(tci_build *b, tci_prim p, tc_dtype result, int n, const int *args, int imm);
TCI_FN int tci_build_splat(tci_build *b, int value);
TCI_FN int tci_build_widen(tci_build *b, int value, int lanes);
TCI_FN int tci_build_mem(tci_build *b, tci_lstmt st, tc_dtype t, int lanes, int block);
TCI_FN int tci_build_floor(const tci_build *b, uint64_t axes); /* deepest branch among their bindings */
TCI_FN int tci_build_mutable(tci_build *b, int first);
TCI_FN void tci_build_assign(tci_build *b, int mutable_value, int value);
TCI_FN int tci_build_local(tci_build *b, tc_dtype t, int64_t n, int block); /* declares an array */
TCI_FN int tci_build_copy(tci_build *b, int value);

/* Kernel values, loop/build.c; loads, guards and indices, loop/access.c. */
TCI_FN tci_build *tci_build_make(tci_scratch *s, const tci_kernel *k, tci_loop *l);
TCI_FN int tci_build_value(tci_build *b, int inst);
TCI_FN int tci_build_recall(tci_build *b, int inst);   /* -1: not known here */
TCI_FN void tci_build_remember(tci_build *b, int inst, int value);
TCI_FN void tci_build_store(tci_build *b, const tci_kstore *st, int value, bool stream);
TCI_FN int tci_build_access(tci_build *b, int inst);  /* LOAD, INDEX, GUARD, FAULT, RED */
typedef enum tci_truth { TCI_NEVER, TCI_ALWAYS, TCI_SOMETIMES } tci_truth;
TCI_FN tci_truth tci_build_guard_truth(const tci_build *b, const tci_kinst *inst);
TCI_FN int tci_build_vector_lanes(const tci_build *b);  /* lanes of the vector axis' binding, else 1 */
TCI_FN bool tci_build_is_vector(const tci_build *b, uint64_t axes);

#endif

/* ---- src/loop/stage.h, continued ---- */
/* The outer points worked on together: n_rows values of one outer axis times n_vecs vectors of the
 * vector axis. row_axis -1: one row and no binding; vec_axis -1: likewise. */
typedef struct tci_tile {
    int row_axis, n_rows;
    const tci_bind **rows;
    int vec_axis, n_vecs;
    const tci_bind **vecs;
    bool stream;          /* contiguous stores bypass the caches */
    int64_t prefetch;     /* bytes ahead along the vector axis; 0 none */
} tci_tile;

enum { TCI_MAX_UNROLL = 64 };
typedef void (*tci_vec_body)(tci_build *b, void *arg, int n, const tci_bind **vecs);

/* Calls body for [begin, end) of an axis, `unroll` vectors at a time, the rest in one shorter call whose
 * last vector may be partial. The axis itself is bound by the body. */
TCI_FN void tci_stage_vectors(tci_build *b, int64_t begin, int64_t end, int unroll, tci_vec_body body, void *arg);
/* As above for bounds that are index expressions in [lo, hi]; `head` (lx, -1 none) elements go first. */
TCI_FN void tci_stage_vectors_dynamic(tci_build *b, int begin, int end, int head, int64_t lo, int64_t hi,
                                      int unroll, tci_vec_body body, void *arg);
/* Inner places of [0, size) where a guard on `axis` changes, rounded to `align`, ascending; at most max,
 * else none. */
TCI_FN int tci_stage_cuts(tci_build *b, int axis, int64_t align, int64_t *cuts, int max);
/* All stages in order. */
TCI_FN void tci_stage_all(tci_build *b, const tci_tile *tile);
/* Prefetches for the loads that are contiguous along the tile's vector axis. */
TCI_FN void tci_stage_prefetch(tci_build *b, const tci_tile *tile);
TCI_FN int tci_stage_unroll(const tci_kernel *k, int stage, int lanes); /* of a MAP stage's vector loop */
TCI_FN int64_t tci_stage_cost(const tci_kernel *k, int stage);          /* flops of one point */

#endif

/* ---- src/loop/schedule.c, continued ---- */
enum {
    TCI_SCHED_MAX_CUTS = 12,
    TCI_SCHED_BLOCK = 32,            /* rows of a transposing block */
    TCI_SCHED_BLOCK_VECTOR = 64,     /* its elements along the vector axis */
    TCI_SCHED_MIN_CHUNK = 1024,      /* elements of a pointwise chunk */
    TCI_SCHED_KEEP_BYTES = 65536,    /* a row kept on the stack */
    TCI_SCHED_PREFETCH_BYTES = 2048, /* how far ahead streaming kernels read */
    TCI_SCHED_MAX_BODY = 800         /* flops written out in one tile */
};
static const int64_t tci_sched_stream_bytes = (int64_t)32 << 20;
static const double tci_sched_task_ns = 20000, tci_sched_min_task_ns = 1000;

typedef struct tci_sched {
    const tci_kernel *k;
    tci_loop *l;
    tci_build *b;
    int vector_bytes;
    bool *live;             /* instructions reached from a stage's roots; scratch for the decisions */
    int vec_axis, row_axis; /* -1 none */
    int64_t n_vec;          /* size of the vector axis */
    int unroll;             /* vectors of a tile */
    int64_t chunk, n_chunks;
    int rows;               /* rows of a tile, at most */
    int64_t n_tiles, base, extra; /* the first `extra` tiles have base + 1 rows, the others base */
    int64_t group, n_groups;      /* row tiles of a unit */
    int *others; int n_others;    /* outer axes that a unit fixes */
    int64_t points, units, grain;
    bool transposing, stream;
    int stream_store;
    int64_t cuts[TCI_SCHED_MAX_CUTS + 1]; int n_cuts;
    double total_ns;
} tci_sched;

/* ---- what a stage computes ---- */

static void tci_sched_reach(const tci_kernel *k, int inst, bool through_index, bool *live);

static void tci_sched_reach_kx(const tci_kernel *k, int kx, bool *live)
{
    tci_kx e = k->kx[kx];
    if (e.op == TCI_KX_VALUE) {
        tci_sched_reach(k, (int)e.c, true, live);
    }
    if (e.op == TCI_KX_ADD) {
        tci_sched_reach_kx(k, e.b, live);
    }
    if (e.op == TCI_KX_ADD || e.op == TCI_KX_MUL || e.op == TCI_KX_DIV || e.op == TCI_KX_MOD) {
        tci_sched_reach_kx(k, e.a, live);
    }
}

/* Marks what `inst` needs. Arguments have lower numbers, so one sweep downwards is enough. */
static void tci_sched_reach(const tci_kernel *k, int inst, bool through_index, bool *live)
{
    if (live[inst]) {
        return;
    }
    live[inst] = true;
    for (int i = inst; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        if (!live[i] || (in->op == TCI_K_FAULT && !through_index)) {
            continue;
        }
        for (int a = 0; a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        if (through_index && in->op == TCI_K_LOAD) {
            tci_sched_reach_kx(k, in->x, live);
        }
    }
}

/* Marks the values of one stage. through_index: also those that only make up offsets. */
static void tci_sched_mark(const tci_kernel *k, int stage, bool through_index, bool *live)
{
    for (int i = 0; i < k->n_stores; i++) {
        if (k->stores[i].stage == stage) {
            tci_sched_reach(k, k->stores[i].value, through_index, live);
        }
    }
    for (int i = 0; i < k->n_reds; i++) {
        if (k->reds[i].stage == stage) {
            tci_sched_reach(k, k->reds[i].a, through_index, live);
            if (k->reds[i].b >= 0) {
                tci_sched_reach(k, k->reds[i].b, through_index, live);
            }
        }
    }
}

static uint64_t tci_sched_stage_axes(const tci_kernel *k, int stage)
{
    uint64_t axes = 0;
    for (int i = 0; i < k->stages[stage].n_axes; i++) {
        axes |= (uint64_t)1 << TCI_MIN(k->stages[stage].axes[i], 63);
    }
    return axes;
}

TCI_FN int64_t tci_stage_cost(const tci_kernel *k, int stage)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    uint64_t axes = tci_sched_stage_axes(k, stage);
    bool all = axes == 0; /* no inner axes: every value of the point counts */
    int64_t cost = 0;
    tci_sched_mark(k, stage, false, live);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        if (live[i] && (all || (in->axes & axes))) {
            cost += in->op == TCI_K_PRIM ? tci_prim_get((tci_prim)in->prim)->cost : in->op == TCI_K_LOAD;
        }
    }
    for (int i = 0; i < k->n_reds; i++) {
        cost += k->reds[i].stage == stage ? 2 : 0;
    }
    return cost;
}

TCI_FN int tci_stage_unroll(const tci_kernel *k, int stage, int lanes)
{
    int64_t cost = tci_stage_cost(k, stage);
    int unroll = cost <= 6 ? 4 : cost <= 24 ? 2 : 1;
    return TCI_MIN(unroll, TCI_MAX(1, TCI_VLANES / lanes));
}

/* ---- lanes ---- */

static int tci_sched_widest(const tci_kernel *k)
{
    int widest = 0;
    for (int t = 0; t < k->n_stages; t++) {
        bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
        const tci_kstage *st = &k->stages[t];
        int axis = k->n_outer - 1;
        if (k->vector == TCI_VEC_INNER) {
            axis = st->n_axes > 0 ? st->axes[st->n_axes - 1] : -1;
        }
        tci_sched_mark(k, t, false, live);
        for (int i = 0; i < k->n_insts; i++) {
            const tci_kinst *in = &k->insts[i];
            if (live[i] && in->dtype != TC_BOOL && tci_build_depends(in->axes, axis)) {
                widest = TCI_MAX(widest, tci_dtype_get((tc_dtype)in->dtype)->bytes);
            }
        }
        for (int r = 0; r < k->n_reds && axis >= 0; r++) {
            bool arg = k->reds[r].op == TCI_RED_ARGMAX || k->reds[r].op == TCI_RED_ARGMIN;
            if (k->reds[r].stage == t && k->reds[r].dtype != TC_BOOL) {
                int bytes = arg ? 8 : tci_dtype_get((tc_dtype)k->reds[r].dtype)->bytes;
                widest = TCI_MAX(widest, bytes);
            }
        }
    }
    return TCI_MAX(widest, 1);
}

static int tci_sched_lanes(const tci_kernel *k, int vector_bytes)
{
    bool outer = k->vector == TCI_VEC_OUTER;
    if (outer && (k->n_outer == 0 || k->axes[k->n_outer - 1].size < 2)) {
        return 1;
    }
    int lanes = vector_bytes / tci_sched_widest(k);
    return TCI_MAX(TCI_MIN(lanes, TCI_VLANES), 1);
}

/* ---- tiles ---- */

/* Does any load of a REDUCE stage run along the vector axis without depending on `axis`? */
static bool tci_sched_is_shared(const tci_sched *s, int axis)
{
    const tci_kernel *k = s->k;
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        if (s->live[i] && in->op == TCI_K_LOAD && tci_build_depends(in->axes, s->vec_axis) &&
            !tci_build_depends(in->axes, axis)) {
            return true;
        }
    }
    return false;
}

static void tci_sched_split_rows(tci_sched *s, int max_rows)
{
    int64_t n = s->k->axes[s->row_axis].size;
    for (int t = max_rows; t > 1 && t * 5 >= max_rows * 3; t--) {
        if (n % t == 0) {
            max_rows = t;
            break;
        }
    }
    s->n_tiles = (n + max_rows - 1) / max_rows;
    s->base = n / s->n_tiles;
    s->extra = n % s->n_tiles;
    s->rows = (int)(s->base + (s->extra > 0));
}

static void tci_sched_reduce_tile(tci_sched *s, int64_t cost)
{
    const tci_kernel *k = s->k;
    bool dot = false, scan = false;
    int n_accs = 1, n_registers = s->vector_bytes == 64 ? 32 : 16;
    int64_t n_vecs = (s->n_vec + s->l->lanes - 1) / s->l->lanes;
    for (int t = 0; t < k->n_stages; t++) {
        int n = 0;
        for (int r = 0; r < k->n_reds; r++) {
            dot = dot || k->reds[r].op == TCI_RED_DOT;
            n += k->reds[r].stage == t ? (k->reds[r].b >= 0 && k->reds[r].op != TCI_RED_DOT ? 2 : 1) : 0;
        }
        n_accs = TCI_MAX(n_accs, n);
        scan = scan || k->stages[t].kind == TCI_STAGE_SCAN;
        if (k->stages[t].kind == TCI_STAGE_REDUCE) {
            tci_sched_mark(k, t, false, s->live);
        }
    }
    for (int a = k->n_outer - 2; a >= 0 && s->row_axis < 0 && !scan; a--) {
        s->row_axis = k->axes[a].size > 1 && tci_sched_is_shared(s, a) ? a : -1;
    }
    int64_t most = TCI_MAX(TCI_SCHED_MAX_BODY / TCI_MAX(cost, 1), 1);
    if (s->row_axis < 0) {
        s->unroll = (int)TCI_MIN(TCI_MIN(n_registers / 2 / n_accs, most), n_vecs);
    } else {
        bool thirds = n_vecs == 3 || (n_vecs % 2 != 0 && n_vecs % 3 == 0);
        s->unroll = (int)TCI_MIN(n_vecs, thirds ? 3 : 2);
        int rows = dot ? TCI_MIN((n_registers - 1 - s->unroll) / s->unroll, 14) : 4;
        rows = (int)TCI_MIN(rows / n_accs, most / s->unroll);
        tci_sched_split_rows(s, TCI_MAX(rows, 1));
    }
    s->unroll = TCI_MAX(s->unroll, 1);
}

/* An access that strides along the vector axis but is contiguous along another outer axis: the last such
 * axis, else -1. */
static int tci_sched_other_axis(const tci_sched *s, int kx, tc_dtype storage)
{
    const tci_kernel *k = s->k;
    int64_t c;
    if (!tci_build_coef(k, kx, s->vec_axis, &c) || (c < 0 ? -c : c) * tci_dtype_get(storage)->bytes < 64) {
        return -1;
    }
    for (int a = k->n_outer - 2; a >= 0; a--) {
        if (k->axes[a].size >= 4 && tci_build_coef(k, kx, a, &c) && (c == 1 || c == -1)) {
            return a;
        }
    }
    return -1;
}

static void tci_sched_map_tile(tci_sched *s)
{
    const tci_kernel *k = s->k;
    int64_t n_vecs = (s->n_vec + s->l->lanes - 1) / s->l->lanes;
    for (int i = 0; i < k->n_insts && s->row_axis < 0; i++) {
        if (k->insts[i].op == TCI_K_LOAD) {
            s->row_axis = tci_sched_other_axis(s, k->insts[i].x, (tc_dtype)k->operands[k->insts[i].imm].dtype);
        }
    }
    for (int i = 0; i < k->n_stores && s->row_axis < 0; i++) {
        s->row_axis = tci_sched_other_axis(s, k->stores[i].x, (tc_dtype)k->operands[k->stores[i].operand].dtype);
    }
    s->transposing = s->row_axis >= 0;
    s->unroll = tci_stage_unroll(k, 0, s->l->lanes);
    if (s->transposing) {
        s->unroll = TCI_MAX(TCI_SCHED_BLOCK_VECTOR / s->l->lanes, 1);
        s->unroll = tci_stage_cost(k, 0) > 24 ? 1 : TCI_MIN(s->unroll, 8);
        tci_sched_split_rows(s, 1);
    }
    s->unroll = (int)TCI_MAX(TCI_MIN(s->unroll, n_vecs), 1);
}

/* ---- streaming ---- */

/* Large outputs of a pointwise kernel, written in long contiguous runs. The first of them is aligned. */
static bool tci_sched_can_stream(tci_sched *s)
{
    const tci_kernel *k = s->k;
    s->stream_store = -1;
    if (s->l->lanes < 2 || s->transposing) {
        return false;
    }
    for (int i = 0; i < k->n_stores; i++) {
        const tci_koperand *o = &k->operands[k->stores[i].operand];
        int bytes = tci_dtype_get((tc_dtype)o->dtype)->bytes;
        int64_t coef;
        bool runs = tci_build_coef(k, k->stores[i].x, s->vec_axis, &coef) && coef == 1;
        if (runs && o->n * bytes > tci_sched_stream_bytes && s->n_vec * bytes >= 4096 &&
            o->dtype != TC_BOOL && s->l->lanes * bytes >= 16) {
            s->stream_store = i;
            return true;
        }
    }
    return false;
}

/* ---- units and tasks ---- */

static double tci_sched_total_ns(const tci_kernel *k, int lanes)
{
    double bytes = (double)k->bytes;
    double bandwidth = bytes < 1 << 20 ? 40 : bytes < (double)tci_sched_stream_bytes ? 25 : 12;
    double flops_ns = (double)k->flops / (4.0 * lanes);
    double bytes_ns = bytes / bandwidth;
    return TCI_MAX(TCI_MAX(flops_ns, bytes_ns), 1.0);
}

static int64_t tci_sched_ceil_div(int64_t a, int64_t c)
{
    return (a + c - 1) / c;
}

static void tci_sched_units(tci_sched *s)
{
    const tci_kernel *k = s->k;
    s->others = TCI_NEW_ARRAY(k->s, int, k->n_outer + 1);
    s->points = 1;
    for (int a = 0; a < k->n_outer; a++) {
        if (a != s->vec_axis && a != s->row_axis) {
            s->others[s->n_others++] = a;
            s->points *= k->axes[a].size;
        }
    }
    double target = TCI_MAX(TCI_MIN(s->total_ns / 64, tci_sched_task_ns), tci_sched_min_task_ns);
    int64_t step = (int64_t)s->unroll * s->l->lanes;
    int64_t pieces = s->points > 0 ? (int64_t)(s->total_ns / (double)s->points / target) : 1;
    int64_t least = s->row_axis < 0 && k->n_reds == 0 ? TCI_MAX(step, TCI_SCHED_MIN_CHUNK) : step;
    int64_t want = tci_sched_ceil_div(s->n_vec, TCI_MAX(pieces, 1));
    s->chunk = s->transposing ? step : TCI_MIN(TCI_MAX(want, least), TCI_MAX(s->n_vec, 1));
    s->chunk = tci_sched_ceil_div(s->chunk, step) * step;
    s->n_chunks = tci_sched_ceil_div(s->n_vec, s->chunk);
    s->group = s->n_tiles;
    if (s->transposing) {
        s->group = TCI_SCHED_BLOCK;
    } else if (s->n_chunks > 0 && pieces > s->n_chunks) {
        s->group = TCI_MAX(s->n_tiles / tci_sched_ceil_div(pieces, s->n_chunks), 1);
    }
    s->n_groups = tci_sched_ceil_div(s->n_tiles, TCI_MAX(s->group, 1));
    s->units = s->points * s->n_chunks * s->n_groups;
    double unit_ns = s->total_ns / (double)TCI_MAX(s->units, 1);
    s->grain = TCI_MAX((int64_t)(target / unit_ns), 1);
    s->grain = TCI_MIN(s->grain, TCI_MAX(s->units, 1));
}

/* ---- keeping costly values of a row ---- */

static bool tci_sched_same_axes(const tci_kernel *k, int a, int b)
{
    const tci_kstage *x = &k->stages[a], *y = &k->stages[b];
    bool same = x->n_axes == y->n_axes && x->n_axes > 0;
    for (int i = 0; same && i < x->n_axes; i++) {
        same = x->axes[i] == y->axes[i];
    }
    return same;
}

/* Cost of the prims that `inst` alone stands for along the row, given what is kept already. */
static int64_t tci_sched_row_cost(const tci_kernel *k, int inst, uint64_t axes)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    int64_t cost = 0;
    tci_sched_reach(k, inst, false, live);
    for (int i = 0; i <= inst; i++) {
        const tci_kinst *in = &k->insts[i];
        cost += live[i] && in->op == TCI_K_PRIM && (in->axes & axes) ? tci_prim_get((tci_prim)in->prim)->cost : 0;
    }
    return cost;
}

/* Instructions that stages `first` and `later` both evaluate along the same row: the topmost of them that
 * cost more than a pass through the cache are kept in a local array. */
static void tci_sched_keep_between(tci_sched *s, int first, int later, int64_t *room)
{
    const tci_kernel *k = s->k;
    uint64_t axes = tci_sched_stage_axes(k, first);
    bool *early = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    bool *late = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    int64_t extent = 1;
    for (int i = 0; i < k->stages[first].n_axes; i++) {
        extent *= k->axes[k->stages[first].axes[i]].size;
    }
    tci_sched_mark(k, first, false, early);
    for (int i = 0; i < k->n_stores; i++) {
        late[k->stores[i].value] |= k->stores[i].stage == later;
    }
    for (int i = 0; i < k->n_reds; i++) {
        late[k->reds[i].a] |= k->reds[i].stage == later;
        if (k->reds[i].b >= 0) {
            late[k->reds[i].b] |= k->reds[i].stage == later;
        }
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        bool kept = false;
        for (int j = 0; late[i] && j < s->b->n_keeps; j++) {
            kept = kept || s->b->keeps[j].inst == i;
        }
        if (!late[i] || kept) {
            continue;
        }
        int64_t bytes = extent * tci_dtype_get((tc_dtype)in->dtype)->bytes;
        bool row = in->op == TCI_K_PRIM && in->dtype != TC_BOOL && (in->axes & axes);
        if (row && early[i] && bytes <= *room && tci_sched_row_cost(k, i, axes) >= 8) {
            tci_lkeep keep = {i, tci_build_local(s->b, (tc_dtype)in->dtype, extent, 0), first};
            TCI_PUSH(k->s, s->b->keeps, s->b->n_keeps, s->b->cap_keeps, keep);
            *room -= bytes;
            continue;
        }
        for (int a = 0; a < in->n_args; a++) {
            late[in->args[a]] = true;
        }
    }
}

static void tci_sched_keep_rows(tci_sched *s)
{
    int64_t room = TCI_SCHED_KEEP_BYTES;
    for (int later = 1; later < s->k->n_stages; later++) {
        for (int first = 0; first < later; first++) {
            if (tci_sched_same_axes(s->k, first, later)) {
                tci_sched_keep_between(s, first, later, &room);
            }
        }
    }
}

/* ---- the nest ---- */

typedef struct tci_sched_place { tci_sched *s; int group; bool is_main; } tci_sched_place;

static void tci_sched_tile(tci_sched *s, const tci_tile *tile)
{
    if (tile->stream && tile->prefetch > 0) {
        tci_stage_prefetch(s->b, tile);
    }
    tci_stage_all(s->b, tile);
}

/* Tiles [begin, end) of `rows` rows each; the first row of tile t is t * rows + skip. */
static void tci_sched_row_loop(tci_sched *s, tci_tile *tile, int begin, int end, int rows, int64_t skip)
{
    tci_build *b = s->b;
    int64_t last = s->k->axes[s->row_axis].size - 1, fixed = 0, fixed_end = 0;
    const tci_bind **binds = TCI_NEW_ARRAY(s->k->s, const tci_bind *, rows);
    bool single = tci_lx_is_const(s->l, begin, &fixed) && tci_lx_is_const(s->l, end, &fixed_end) &&
                  fixed_end - fixed == 1;
    tci_lopen open;
    tci_lin at = single ? tci_lin_const(fixed) : tci_lin_var(b, tci_build_for(b, begin, end, 1, &open));
    at = tci_lin_plus(tci_lin_mul(b, at, rows), skip);
    for (int r = 0; r < rows; r++) {
        binds[r] = single ? tci_build_bind(b, tci_lin_plus(at, r), at.c + r, at.c + r, false, -1)
                          : tci_build_bind(b, tci_lin_plus(at, r), r, last - (rows - 1 - r), false, -1);
    }
    tile->n_rows = rows;
    tile->rows = binds;
    tci_sched_tile(s, tile);
    if (!single) {
        tci_build_close(b, &open);
    }
}

static void tci_sched_rows(tci_sched *s, tci_tile *tile, int group)
{
    tci_loop *l = s->l;
    if (s->row_axis < 0) {
        tile->n_rows = 1;
        tci_sched_tile(s, tile);
        return;
    }
    tile->row_axis = s->row_axis;
    int begin = tci_lx_const(l, 0), end = tci_lx_const(l, s->n_tiles);
    int extra = tci_lx_const(l, s->extra);
    if (s->n_groups > 1) {
        begin = tci_lx_make(l, TCI_LX_MUL, group, -1, s->group);
        int next = tci_lx_make(l, TCI_LX_ADD, begin, tci_lx_const(l, s->group), 0);
        end = tci_lx_make(l, TCI_LX_MIN, next, end, 0);
    }
    if (s->extra > 0) {
        int stop = s->n_groups > 1 ? tci_lx_make(l, TCI_LX_MIN, end, extra, 0) : extra;
        tci_sched_row_loop(s, tile, begin, stop, (int)s->base + 1, 0);
        begin = s->n_groups > 1 ? tci_lx_make(l, TCI_LX_MAX, begin, extra, 0) : extra;
    }
    tci_sched_row_loop(s, tile, begin, end, (int)s->base, s->extra);
}

static void tci_sched_body(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    tci_sched_place *place = arg;
    tci_sched *s = place->s;
    tci_tile tile = {0};
    tile.row_axis = -1;
    tile.vec_axis = s->vec_axis;
    tile.n_vecs = n;
    tile.vecs = vecs;
    tile.stream = s->stream && n == s->unroll;
    tile.prefetch = tile.stream ? TCI_SCHED_PREFETCH_BYTES : 0;
    (void)b;
    tci_sched_rows(s, &tile, place->group);
}

/* The chunk's share of [begin, end), bounds known only at run time; streaming aligns the store first. */
static void tci_sched_dynamic(tci_sched *s, tci_sched_place *place, tci_lin chunk, int64_t begin, int64_t end)
{
    tci_loop *l = s->l;
    tci_build *b = s->b;
    int head = -1, from = tci_lx_const(l, begin), to = tci_lx_const(l, end);
    if (s->n_chunks > 1) {
        tci_lin at = tci_lin_mul(b, chunk, s->chunk);
        from = tci_lx_make(l, TCI_LX_MAX, tci_build_lx(b, at), from, 0);
        to = tci_lx_make(l, TCI_LX_MIN, tci_build_lx(b, tci_lin_plus(at, s->chunk)), to, 0);
    }
    if (s->stream) {
        const tci_kstore *st = &s->k->stores[s->stream_store];
        tci_lin start = tci_build_let(b, from);
        tci_build_set(b, s->vec_axis, tci_build_bind(b, start, begin, end - 1, false, -1));
        int x = tci_build_lx(b, tci_build_kx(b, st->x));
        tci_build_set(b, s->vec_axis, NULL);
        int bytes = tci_dtype_get((tc_dtype)s->k->operands[st->operand].dtype)->bytes;
        head = tci_lx_make(l, TCI_LX_HEAD, x, st->operand, (int64_t)l->lanes * bytes);
        int minus = tci_build_lx(b, tci_lin_mul(b, start, -1));
        int room = tci_lx_make(l, TCI_LX_MAX, tci_lx_make(l, TCI_LX_ADD, to, minus, 0), tci_lx_const(l, 0), 0);
        head = tci_lx_make(l, TCI_LX_MIN, head, room, 0);
        from = tci_build_lx(b, start);
    }
    tci_stage_vectors_dynamic(b, from, to, head, begin, end - 1, s->unroll, tci_sched_body, place);
}

/* One chunk of an axis that no guard cuts: whole tiles, and after the last chunk what is left of the axis. */
static void tci_sched_chunk(tci_sched *s, tci_sched_place *place, tci_lin chunk)
{
    tci_loop *l = s->l;
    tci_build *b = s->b;
    int64_t step = (int64_t)s->unroll * l->lanes, whole = s->n_vec / step * step;
    const tci_bind **vecs = TCI_NEW_ARRAY(s->k->s, const tci_bind *, s->unroll);
    tci_lopen open;
    tci_lin first = tci_lin_mul(b, chunk, s->chunk);
    int to = tci_build_lx(b, tci_lin_plus(first, s->chunk));
    if (s->n_chunks * s->chunk > whole) {
        to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, whole), 0);
    }
    tci_lin at = tci_lin_var(b, tci_build_for(b, tci_build_lx(b, first), to, step, &open));
    for (int u = 0; u < s->unroll; u++) {
        int64_t lo = (int64_t)u * l->lanes, hi = whole - step + lo + l->lanes - 1;
        vecs[u] = tci_build_bind(b, tci_lin_plus(at, lo), lo, hi, l->lanes > 1, -1);
    }
    tci_sched_body(b, place, s->unroll, vecs);
    tci_build_close(b, &open);
    if (whole < s->n_vec) {
        tci_lstmt last = tci_loop_stmt(TCI_L_IN_RANGE);
        last.x = tci_build_lx(b, chunk);
        last.value.i = last.imm = s->n_chunks - 1;
        last.dst = tci_loop_value(l, TC_BOOL, 1, b->cur);
        tci_loop_append(l, b->cur, last);
        tci_build_if(b, last.dst, &open);
        tci_stage_vectors(b, whole, s->n_vec, s->unroll, tci_sched_body, place);
        tci_build_close(b, &open);
    }
}

static void tci_sched_vectors(tci_sched *s, tci_lin chunk, int group)
{
    tci_sched_place place = {s, group, true};
    int64_t begin = 0;
    if (s->vec_axis < 0) {
        tci_tile tile = {0};
        tile.row_axis = tile.vec_axis = -1;
        tile.n_vecs = 1;
        tci_sched_rows(s, &tile, group);
        return;
    }
    if (s->n_cuts == 0 && !s->stream && s->n_chunks > 1) {
        tci_sched_chunk(s, &place, chunk);
        return;
    }
    s->cuts[s->n_cuts] = s->n_vec;
    for (int i = 0; i <= s->n_cuts; i++) {
        if (s->stream || s->n_chunks > 1) {
            tci_sched_dynamic(s, &place, chunk, begin, s->cuts[i]);
        } else {
            tci_stage_vectors(s->b, begin, s->cuts[i], s->unroll, tci_sched_body, &place);
        }
        begin = s->cuts[i];
    }
}

/* Takes x apart: the remainder by size is returned, x becomes the quotient. */
static tci_lin tci_sched_digit(tci_sched *s, tci_lin *x, int64_t size, bool top)
{
    tci_build *b = s->b;
    if (size == 1) {
        return tci_lin_const(0);
    }
    tci_lin digit = *x;
    if (!top) {
        int lx = tci_build_lx(b, *x);
        digit = tci_build_let(b, tci_lx_make(s->l, TCI_LX_MOD, lx, -1, size));
        *x = tci_build_let(b, tci_lx_make(s->l, TCI_LX_DIV, lx, -1, size));
    }
    return digit;
}

static void tci_sched_nest(tci_sched *s)
{
    tci_build *b = s->b;
    tci_loop *l = s->l;
    tci_lopen open;
    tci_lin u = tci_lin_const(0);
    bool loops = s->units > 1;
    if (loops) {
        int begin = tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_TASK_BEGIN, -1, -1, 0), -1, s->grain);
        int end = tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_TASK_END, -1, -1, 0), -1, s->grain);
        end = tci_lx_make(l, TCI_LX_MIN, end, tci_lx_const(l, s->units), 0);
        u = tci_lin_var(b, tci_build_for(b, begin, end, 1, &open));
    }
    int64_t above = s->n_chunks * s->points;
    tci_lin group = tci_sched_digit(s, &u, s->n_groups, above == 1);
    tci_lin chunk = tci_sched_digit(s, &u, s->n_chunks, s->points == 1);
    int64_t left = s->points;
    for (int i = s->n_others - 1; i >= 0; i--) {
        int64_t size = s->k->axes[s->others[i]].size;
        left /= size;
        tci_lin at = tci_sched_digit(s, &u, size, left == 1);
        tci_build_set(b, s->others[i], tci_build_bind(b, at, 0, size - 1, false, -1));
    }
    tci_sched_vectors(s, chunk, tci_build_lx(b, group));
    if (loops) {
        tci_build_close(b, &open);
    }
    if (s->stream) {
        tci_lstmt fence = tci_loop_stmt(TCI_L_MEM);
        fence.mem = TCI_MEM_FENCE;
        tci_loop_append(l, 0, fence);
    }
}

/* ---- the whole ---- */

static const char *tci_sched_note(const tci_sched *s, char *note, size_t n)
{
    char tile[40] = "";
    const char *form = s->k->vector == TCI_VEC_INNER ? ", rows" : "";
    if (s->transposing) {
        snprintf(tile, sizeof(tile), ", block %dx%d", TCI_SCHED_BLOCK, s->unroll * s->l->lanes);
    } else if (s->k->n_reds > 0 && s->vec_axis >= 0) {
        snprintf(tile, sizeof(tile), ", tile %dx%d", s->rows, s->unroll);
    }
    snprintf(note, n, "%s%d lane%s%s%s%s%s", s->l->lanes > 1 ? "vector " : "scalar ", s->l->lanes,
             s->l->lanes > 1 ? "s" : "", form, tile, s->stream ? ", stream" : "",
             s->b->n_keeps > 0 ? ", row kept" : "");
    return note;
}

static void tci_sched_decide(tci_sched *s)
{
    const tci_kernel *k = s->k;
    s->vec_axis = s->row_axis = -1;
    s->n_vec = s->n_tiles = s->base = 1;
    s->unroll = s->rows = 1;
    s->live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    s->total_ns = tci_sched_total_ns(k, s->l->lanes);
    if (k->vector == TCI_VEC_INNER) {
        tci_sched_keep_rows(s);
    } else if (k->n_outer > 0) {
        bool plain = k->n_stages == 1 && k->stages[0].kind == TCI_STAGE_MAP && k->stages[0].n_axes == 0;
        int64_t cost = 0;
        for (int t = 0; t < k->n_stages; t++) {
            cost += tci_stage_cost(k, t);
        }
        s->vec_axis = k->n_outer - 1;
        s->n_vec = k->axes[s->vec_axis].size;
        if (plain) {
            tci_sched_map_tile(s);
            s->stream = tci_sched_can_stream(s);
        } else {
            tci_sched_reduce_tile(s, cost);
        }
        int most = plain && cost <= 60 ? TCI_SCHED_MAX_CUTS : 4;
        s->n_cuts = s->n_vec > 1 ? tci_stage_cuts(s->b, s->vec_axis, 1, s->cuts, most) : 0;
    }
    tci_sched_units(s);
}

TCI_FN tci_loop *tci_loop_schedule(tci_scratch *scratch, const tci_kernel *k, int vector_bytes, tci_launch *launch)
{
    tci_sched s = {0};
    s.k = k;
    s.l = tci_loop_make(scratch, k);
    s.l->lanes = tci_sched_lanes(k, vector_bytes);
    s.b = tci_build_make(scratch, k, s.l);
    s.vector_bytes = vector_bytes;
    tci_sched_decide(&s);
    if (s.units > 0) {
        tci_sched_nest(&s);
    }
    launch->n_tasks = s.units > 0 ? tci_sched_ceil_div(s.units, s.grain) : 0;
    launch->task_ns = s.total_ns / (double)TCI_MAX(launch->n_tasks, 1);
    launch->lanes = s.l->lanes;
    tci_sched_note(&s, launch->note, sizeof(launch->note));
    s.l->note = tci_scratch_printf(scratch, "%s", launch->note);
    return s.l;
}
/* ---- src/loop/print.c ---- */
/* loop/print.c - the loop IR as stable text, for dumps and golden tests.
 *
 * One statement a line, blocks indented:
 *   for i0 = 0 to 96 step 32
 *     v4 f32x16 = load p0[i0 + 16]
 *     store p1[i0], v4
 * Operands are p, locals m, loop variables i, index lets x, values v, mutable values a. */

static void tci_lprint_lx(tci_str *out, const tci_loop *l, int x, bool nested)
{
    static const char *const signs[] = {[TCI_LX_ADD] = " + ", [TCI_LX_MUL] = " * ",
                                        [TCI_LX_DIV] = " / ", [TCI_LX_MOD] = " % "};
    const tci_lx *e = &l->lx[x];
    switch (e->op) {
    case TCI_LX_CONST: tci_str_printf(out, "%lld", (long long)e->c); return;
    case TCI_LX_VAR: tci_str_printf(out, "%c%d", l->indices[e->a].is_loop ? 'i' : 'x', e->a); return;
    case TCI_LX_TASK_BEGIN: tci_str_add(out, "task_begin"); return;
    case TCI_LX_TASK_END: tci_str_add(out, "task_end"); return;
    case TCI_LX_MIN:
    case TCI_LX_MAX:
        tci_str_add(out, e->op == TCI_LX_MIN ? "min(" : "max(");
        tci_lprint_lx(out, l, e->a, false);
        tci_str_add(out, ", ");
        tci_lprint_lx(out, l, e->b, false);
        tci_str_add(out, ")");
        return;
    case TCI_LX_HEAD:
        tci_str_printf(out, "head(p%d[", e->b);
        tci_lprint_lx(out, l, e->a, false);
        tci_str_printf(out, "], %lld)", (long long)e->c);
        return;
    default: break;
    }
    tci_str_add(out, nested ? "(" : "");
    tci_lprint_lx(out, l, e->a, true);
    tci_str_add(out, signs[e->op]);
    if (e->op == TCI_LX_ADD) {
        tci_lprint_lx(out, l, e->b, true);
    } else {
        tci_str_printf(out, "%lld", (long long)e->c);
    }
    tci_str_add(out, nested ? ")" : "");
}

static void tci_lprint_value(tci_str *out, const tci_loop *l, int v)
{
    tci_str_printf(out, "%c%d", l->values[v].is_mutable ? 'a' : 'v', v);
}

static void tci_lprint_define(tci_str *out, const tci_loop *l, int v)
{
    const tci_lvalue *value = &l->values[v];
    tci_lprint_value(out, l, v);
    tci_str_printf(out, " %s", tci_dtype_get((tc_dtype)value->dtype)->name);
    if (value->lanes > 1) {
        tci_str_printf(out, "x%d", value->lanes);
    }
    tci_str_add(out, " = ");
}

static void tci_lprint_mem(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    static const char *const names[TCI_MEM_COUNT] = {
        "load", "load_mask", "load_n", "load_strided", "load_strided_n", "load_one", "store", "store_n",
        "store_stream", "store_strided", "store_strided_n", "store_one", "splat", "iota", "first_n", "lane",
        "set_lane", "high_half", "prefetch", "fence"};
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    if (uses & TCI_LMEM_DST) {
        tci_lprint_define(out, l, st->dst);
    }
    tci_str_add(out, names[st->mem]);
    if (uses & TCI_LMEM_ADDRESS) {
        tci_str_printf(out, " %c%d[", st->base < 0 ? 'm' : 'p', st->base < 0 ? ~st->base : st->base);
        tci_lprint_lx(out, l, st->x, false);
        tci_str_add(out, "]");
    }
    if (uses & TCI_LMEM_FIRST) {
        tci_str_add(out, " ");
        tci_lprint_lx(out, l, st->x, false);
    }
    if (uses & TCI_LMEM_STRIDE) {
        tci_str_printf(out, ", stride %lld", (long long)st->imm);
    }
    if (uses & (TCI_LMEM_VALUE | TCI_LMEM_MASK)) {
        tci_str_add(out, (uses & TCI_LMEM_ADDRESS) ? ", " : " ");
        tci_lprint_value(out, l, st->args[0]);
    }
    if (uses & TCI_LMEM_COUNT) {
        tci_str_add(out, ", n ");
        tci_lprint_lx(out, l, st->n, false);
    }
    if (uses & TCI_LMEM_LANE) {
        tci_str_printf(out, ", %lld", (long long)st->imm);
    }
}

static void tci_lprint_args(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    for (int i = 0; i < 3 && st->args[i] >= 0; i++) {
        tci_str_add(out, i > 0 ? ", " : "");
        tci_lprint_value(out, l, st->args[i]);
    }
}

static void tci_lprint_block(tci_str *out, const tci_loop *l, int block, int depth);

static void tci_lprint_for(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    tci_str_printf(out, "for i%d = ", st->dst);
    tci_lprint_lx(out, l, st->x, false);
    tci_str_add(out, " to ");
    tci_lprint_lx(out, l, st->n, false);
    tci_str_printf(out, " step %lld", (long long)st->imm);
}

/* Statements that define a value from values. */
static void tci_lprint_let(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    tci_lprint_define(out, l, st->dst);
    switch (st->op) {
    case TCI_L_CONST:
        if (tci_dtype_is_float((tc_dtype)l->values[st->dst].dtype)) {
            tci_str_printf(out, "%a", st->value.f);
        } else {
            tci_str_printf(out, "%lld", (long long)st->value.i);
        }
        break;
    case TCI_L_LITERAL: tci_str_printf(out, "literal %lld", (long long)st->imm); break;
    case TCI_L_PRIM: tci_str_printf(out, "%s ", tci_prim_get((tci_prim)st->prim)->name); break;
    case TCI_L_IN_RANGE:
        tci_lprint_lx(out, l, st->x, false);
        tci_str_printf(out, " in [%lld, %lld]", (long long)st->value.i, (long long)st->imm);
        break;
    case TCI_L_TO_VALUE: tci_lprint_lx(out, l, st->x, false); break;
    case TCI_L_FAULT: tci_str_printf(out, "index of %lld: ", (long long)st->imm); break;
    default: break;
    }
    tci_lprint_args(out, l, st);
}

static void tci_lprint_stmt(tci_str *out, const tci_loop *l, const tci_lstmt *st, int depth)
{
    tci_str_printf(out, "%*s", 2 * depth, "");
    switch (st->op) {
    case TCI_L_FOR: tci_lprint_for(out, l, st); break;
    case TCI_L_IF:
        tci_str_add(out, "if ");
        tci_lprint_args(out, l, st);
        break;
    case TCI_L_INDEX:
        tci_str_printf(out, "x%d = ", st->dst);
        tci_lprint_lx(out, l, st->x, false);
        break;
    case TCI_L_FROM_VALUE:
        tci_str_printf(out, "x%d = ", st->dst);
        tci_lprint_args(out, l, st);
        break;
    case TCI_L_LOCAL:
        tci_str_printf(out, "local m%d %s[%lld]", st->dst,
                       tci_dtype_get((tc_dtype)l->locals[st->dst].dtype)->name, (long long)l->locals[st->dst].n);
        break;
    case TCI_L_MEM: tci_lprint_mem(out, l, st); break;
    case TCI_L_SET:
        tci_lprint_value(out, l, st->dst);
        tci_str_add(out, " := ");
        tci_lprint_args(out, l, st);
        break;
    case TCI_L_NOTE: tci_str_printf(out, "# %s", st->text); break;
    default: tci_lprint_let(out, l, st); break;
    }
    tci_str_add(out, "\n");
    if (st->body >= 0) {
        tci_lprint_block(out, l, st->body, depth + 1);
    }
}

static void tci_lprint_block(tci_str *out, const tci_loop *l, int block, int depth)
{
    const tci_lblock *b = &l->blocks[block];
    for (int i = 0; i < b->n; i++) {
        tci_lprint_stmt(out, l, &b->stmts[i], depth);
    }
}

TCI_FN void tci_loop_print(tci_str *out, const tci_loop *l)
{
    tci_str_printf(out, "loop: %s\n", l->note);
    for (int i = 0; i < l->n_operands; i++) {
        const tci_koperand *o = &l->operands[i];
        tci_str_printf(out, "  p%d %s[%lld]%s\n", i, tci_dtype_get((tc_dtype)o->dtype)->name, (long long)o->n,
                       o->is_output ? " output" : "");
    }
    tci_lprint_block(out, l, 0, 1);
}
/* ---- src/loop/verify.c ---- */
/* loop/verify.c - checks the invariants of loop/ir.h; a broken one escapes as an internal error.
 *
 * One walk in execution order. A name counts as defined from its statement to the end of its block:
 * `state` is 0 before, 1 inside, 2 after. */

typedef struct tci_lverify {
    tci_scratch *s;
    const tci_loop *l;
    uint8_t *values, *indices, *locals;
} tci_lverify;

static void tci_lverify_lx(const tci_lverify *v, int x)
{
    TCI_ASSERT(v->s, x >= 0 && x < v->l->n_lx);
    const tci_lx *e = &v->l->lx[x];
    if (e->op == TCI_LX_VAR) {
        TCI_ASSERT(v->s, e->a >= 0 && e->a < v->l->n_indices && v->indices[e->a] == 1);
        return;
    }
    if (e->a >= 0) {
        tci_lverify_lx(v, e->a);
    }
    if (e->op == TCI_LX_ADD || e->op == TCI_LX_MIN || e->op == TCI_LX_MAX) {
        tci_lverify_lx(v, e->b);
    }
    bool divides = e->op == TCI_LX_DIV || e->op == TCI_LX_MOD;
    TCI_ASSERT(v->s, !divides || e->c > 0);
    TCI_ASSERT(v->s, e->op != TCI_LX_HEAD || (e->b >= 0 && e->b < v->l->n_operands));
}

static const tci_lvalue *tci_lverify_use(const tci_lverify *v, int value)
{
    TCI_ASSERT(v->s, value >= 0 && value < v->l->n_values);
    TCI_ASSERT(v->s, v->values[value] == 1);
    return &v->l->values[value];
}

static void tci_lverify_define(tci_lverify *v, int value)
{
    TCI_ASSERT(v->s, value >= 0 && value < v->l->n_values && v->values[value] == 0);
    v->values[value] = 1;
}

static void tci_lverify_prim(tci_lverify *v, const tci_lstmt *st)
{
    const tci_prim_info *p = tci_prim_get((tci_prim)st->prim);
    const tci_lvalue *to = &v->l->values[st->dst];
    for (int i = 0; i < 3; i++) {
        bool present = st->args[i] >= 0;
        TCI_ASSERT(v->s, present || i > 0);
        if (!present) {
            continue;
        }
        const tci_lvalue *arg = tci_lverify_use(v, st->args[i]);
        TCI_ASSERT(v->s, i < p->arity && arg->lanes == to->lanes);
        bool condition = st->prim == TCI_P_SELECT && i == 0;
        const tci_lvalue *like = &v->l->values[st->args[st->prim == TCI_P_SELECT ? 1 : 0]];
        TCI_ASSERT(v->s, arg->dtype == (condition ? TC_BOOL : like->dtype));
        TCI_ASSERT(v->s, p->result != 'S' || condition || arg->dtype == to->dtype);
    }
    TCI_ASSERT(v->s, p->result != 'B' || to->dtype == TC_BOOL);
    tci_lverify_define(v, st->dst);
}

static void tci_lverify_address(const tci_lverify *v, const tci_lstmt *st, unsigned uses)
{
    bool writes = (uses & TCI_LMEM_WRITES) != 0;
    if (st->base < 0) {
        TCI_ASSERT(v->s, ~st->base < v->l->n_locals && v->locals[~st->base] == 1);
    } else {
        TCI_ASSERT(v->s, st->base < v->l->n_operands);
        TCI_ASSERT(v->s, st->mem == TCI_MEM_PREFETCH || v->l->operands[st->base].is_output == writes);
    }
    tci_lverify_lx(v, st->x);
}

static void tci_lverify_mem(tci_lverify *v, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    int lanes = v->l->lanes;
    if (uses & TCI_LMEM_ADDRESS) {
        tci_lverify_address(v, st, uses);
    }
    if (uses & TCI_LMEM_FIRST) {
        tci_lverify_lx(v, st->x);
    }
    if (uses & TCI_LMEM_COUNT) {
        tci_lverify_lx(v, st->n);
    }
    if (uses & (TCI_LMEM_VALUE | TCI_LMEM_MASK)) {
        const tci_lvalue *value = tci_lverify_use(v, st->args[0]);
        bool one = st->mem == TCI_MEM_STORE_ONE || st->mem == TCI_MEM_SPLAT;
        TCI_ASSERT(v->s, value->lanes == (one ? 1 : lanes));
        TCI_ASSERT(v->s, !(uses & TCI_LMEM_MASK) || value->dtype == TC_BOOL);
    }
    if (uses & TCI_LMEM_DST) {
        bool one = st->mem == TCI_MEM_LOAD_ONE || st->mem == TCI_MEM_LANE;
        tci_lverify_define(v, st->dst);
        TCI_ASSERT(v->s, v->l->values[st->dst].lanes == (one ? 1 : lanes));
    }
}

/* dst and args[0] have one type. */
static void tci_lverify_same(const tci_lverify *v, const tci_lstmt *st)
{
    const tci_lvalue *from = tci_lverify_use(v, st->args[0]), *to = &v->l->values[st->dst];
    TCI_ASSERT(v->s, from->dtype == to->dtype && from->lanes == to->lanes);
    TCI_ASSERT(v->s, to->is_mutable == (st->op != TCI_L_COPY));
}

static void tci_lverify_block(tci_lverify *v, int block, int loop_index);

static void tci_lverify_index(tci_lverify *v, const tci_lstmt *st, int block)
{
    TCI_ASSERT(v->s, v->indices[st->dst] == 0 && v->l->indices[st->dst].block == block);
    v->indices[st->dst] = 1;
}

static void tci_lverify_stmt(tci_lverify *v, const tci_lstmt *st, int block)
{
    bool leaf = st->op == TCI_L_CONST || st->op == TCI_L_LITERAL || st->op == TCI_L_IN_RANGE ||
                st->op == TCI_L_TO_VALUE;
    switch (st->op) {
    case TCI_L_FOR:
        tci_lverify_lx(v, st->x);
        tci_lverify_lx(v, st->n);
        TCI_ASSERT(v->s, st->imm > 0);
        tci_lverify_block(v, st->body, st->dst);
        break;
    case TCI_L_IF: {
        const tci_lvalue *condition = tci_lverify_use(v, st->args[0]);
        TCI_ASSERT(v->s, condition->dtype == TC_BOOL && condition->lanes == 1);
        tci_lverify_block(v, st->body, -1);
        break;
    }
    case TCI_L_INDEX:
        tci_lverify_lx(v, st->x);
        tci_lverify_index(v, st, block);
        break;
    case TCI_L_FROM_VALUE: {
        const tci_lvalue *from = tci_lverify_use(v, st->args[0]);
        TCI_ASSERT(v->s, tci_dtype_is_int((tc_dtype)from->dtype) && from->lanes == 1);
        tci_lverify_index(v, st, block);
        break;
    }
    case TCI_L_LOCAL: v->locals[st->dst] = 1; break;
    case TCI_L_PRIM: tci_lverify_prim(v, st); break;
    case TCI_L_MEM: tci_lverify_mem(v, st); break;
    case TCI_L_VAR:
    case TCI_L_COPY:
        tci_lverify_same(v, st);
        tci_lverify_define(v, st->dst);
        break;
    case TCI_L_SET:
        tci_lverify_same(v, st);
        tci_lverify_use(v, st->dst);
        break;
    case TCI_L_FAULT:
        TCI_ASSERT(v->s, v->l->faults && tci_lverify_use(v, st->args[0])->lanes == 1);
        tci_lverify_define(v, st->dst);
        break;
    default: break;
    }
    if (st->op == TCI_L_IN_RANGE || st->op == TCI_L_TO_VALUE) {
        tci_lverify_lx(v, st->x);
    }
    if (leaf) {
        tci_lverify_define(v, st->dst);
    }
}

static void tci_lverify_block(tci_lverify *v, int block, int loop_index)
{
    const tci_loop *l = v->l;
    TCI_ASSERT(v->s, block > -1 && block < l->n_blocks);
    if (loop_index >= 0) {
        TCI_ASSERT(v->s, l->indices[loop_index].block == block && l->indices[loop_index].is_loop);
        v->indices[loop_index] = 1;
    }
    const tci_lblock *b = &l->blocks[block];
    for (int i = 0; i < b->n; i++) {
        tci_lverify_stmt(v, &b->stmts[i], block);
    }
    for (int i = 0; i < b->n; i++) { /* its names end here */
        const tci_lstmt *st = &b->stmts[i];
        bool index = st->op == TCI_L_INDEX || st->op == TCI_L_FROM_VALUE;
        if (index) {
            v->indices[st->dst] = 2;
        } else if (st->op == TCI_L_LOCAL) {
            v->locals[st->dst] = 2;
        } else if (st->dst >= 0 && st->op != TCI_L_SET && st->op != TCI_L_FOR) {
            v->values[st->dst] = 2;
        }
    }
    if (loop_index >= 0) {
        v->indices[loop_index] = 2;
    }
}

TCI_FN void tci_loop_verify(tci_scratch *s, const tci_loop *l)
{
    tci_lverify v = {s, l, NULL, NULL, NULL};
    v.values = TCI_NEW_ARRAY(s, uint8_t, l->n_values + 1);
    v.indices = TCI_NEW_ARRAY(s, uint8_t, l->n_indices + 1);
    v.locals = TCI_NEW_ARRAY(s, uint8_t, l->n_locals + 1);
    tci_lverify_block(&v, 0, -1);
}
/* ---- src/emit/c_like.c ---- */
/* emit/c_like.c - prints loop IR as a function in a C-like language.
 *
 * In: loop IR, a dialect that names types, prims and accesses. Out: the text of one function with the
 * signature of tci_kernel_fn. Statement by statement; nothing is decided or reordered here.
 * Names: p2 operand, i5 loop variable, x7 index, v12 value, a3 mutable value, m1 local array. */

typedef struct tci_c_like {
    tci_str *out;
    tci_dialect *d;
    const tci_loop *l;
} tci_c_like;

static void tci_c_indent(tci_c_like *c, int depth)
{
    for (int i = 0; i < depth; i++) {
        tci_str_add(c->out, "    ");
    }
}

static const char *tci_c_type(tci_c_like *c, tc_dtype t, int lanes)
{
    return c->d->type(c->d, t, lanes);
}

static void tci_c_value(tci_c_like *c, int v)
{
    tci_str_printf(c->out, "%c%d", c->l->values[v].is_mutable ? 'a' : 'v', v);
}

static void tci_c_index(tci_c_like *c, int x)
{
    tci_str_printf(c->out, "%c%d", c->l->indices[x].is_loop ? 'i' : 'x', x);
}

static void tci_c_base(tci_c_like *c, int base)
{
    tci_str_printf(c->out, "%c%d", base < 0 ? 'm' : 'p', base < 0 ? ~base : base);
}

static void tci_c_lx(tci_c_like *c, int x);

static void tci_c_infix(tci_c_like *c, int a, const char *operator, int b, int64_t constant)
{
    tci_str_add(c->out, "(");
    tci_c_lx(c, a);
    tci_str_add(c->out, operator);
    if (b >= 0) {
        tci_c_lx(c, b);
    } else {
        tci_str_printf(c->out, "%lld", (long long)constant);
    }
    tci_str_add(c->out, ")");
}

static void tci_c_smaller(tci_c_like *c, int a, const char *operator, int b)
{
    tci_str_add(c->out, "(");
    tci_c_lx(c, a);
    tci_str_add(c->out, operator);
    tci_c_lx(c, b);
    tci_str_add(c->out, " ? ");
    tci_c_lx(c, a);
    tci_str_add(c->out, " : ");
    tci_c_lx(c, b);
    tci_str_add(c->out, ")");
}

/* Elements up to the next aligned address. */
static void tci_c_head(tci_c_like *c, const tci_lx *e)
{
    int bytes = tci_dtype_get((tc_dtype)c->l->operands[e->b].dtype)->bytes;
    const char *word = tci_c_type(c, TC_I64, 1);
    tci_str_printf(c->out, "((-(%s)(p%d + ", word, e->b);
    tci_c_lx(c, e->a);
    tci_str_printf(c->out, ") & %lld) / %d)", (long long)(e->c - 1), bytes);
}

static void tci_c_lx(tci_c_like *c, int x)
{
    const tci_lx *e = &c->l->lx[x];
    switch (e->op) {
    case TCI_LX_CONST: tci_str_printf(c->out, "%lld", (long long)e->c); break;
    case TCI_LX_VAR: tci_c_index(c, e->a); break;
    case TCI_LX_ADD: {
        const tci_lx *b = &c->l->lx[e->b];
        if (b->op == TCI_LX_CONST && b->c < 0 && b->c > INT64_MIN) {
            tci_c_infix(c, e->a, " - ", -1, -b->c);
        } else {
            tci_c_infix(c, e->a, " + ", e->b, 0);
        }
        break;
    }
    case TCI_LX_MUL: tci_c_infix(c, e->a, " * ", -1, e->c); break;
    case TCI_LX_DIV: tci_c_infix(c, e->a, " / ", -1, e->c); break;
    case TCI_LX_MOD: tci_c_infix(c, e->a, " % ", -1, e->c); break;
    case TCI_LX_MIN: tci_c_smaller(c, e->a, " < ", e->b); break;
    case TCI_LX_MAX: tci_c_smaller(c, e->a, " > ", e->b); break;
    case TCI_LX_TASK_BEGIN: tci_str_add(c->out, "task_begin"); break;
    case TCI_LX_TASK_END: tci_str_add(c->out, "task_end"); break;
    default: tci_c_head(c, e); break;
    }
}

/* ---- statements ---- */

static void tci_c_define(tci_c_like *c, int v)
{
    const tci_lvalue *value = &c->l->values[v];
    const char *type = tci_c_type(c, (tc_dtype)value->dtype, value->lanes);
    tci_str_printf(c->out, "%s%s ", value->is_mutable ? "" : "const ", type);
    tci_c_value(c, v);
    tci_str_add(c->out, " = ");
}

static void tci_c_prim(tci_c_like *c, const tci_lstmt *st)
{
    const tci_lvalue *values = c->l->values;
    int shape = st->prim == TCI_P_SELECT ? st->args[1] : st->args[0];
    tc_dtype t = (tc_dtype)values[shape].dtype, to = (tc_dtype)values[st->dst].dtype;
    bool converts = tci_prim_get((tci_prim)st->prim)->result == 'O';
    tci_c_define(c, st->dst);
    tci_str_printf(c->out, "%s(", c->d->prim(c->d, (tci_prim)st->prim, t, converts ? to : t,
                                             values[st->dst].lanes, (int)st->imm));
    for (int i = 0; i < 3 && st->args[i] >= 0; i++) {
        tci_str_add(c->out, i > 0 ? ", " : "");
        tci_c_value(c, st->args[i]);
    }
    tci_str_add(c->out, ");\n");
}

static const char *tci_c_mem_name(tci_c_like *c, const tci_lstmt *st, unsigned uses)
{
    const tci_lvalue *values = c->l->values;
    tc_dtype compute = TC_F32;
    int lanes = 1;
    if (st->mem == TCI_MEM_LANE || (uses & TCI_LMEM_WRITES)) {
        compute = (tc_dtype)values[st->args[0]].dtype;
        lanes = values[st->args[0]].lanes;
    } else if (uses & TCI_LMEM_DST) {
        compute = (tc_dtype)values[st->dst].dtype;
        lanes = values[st->dst].lanes;
    }
    tc_dtype storage = compute;
    if ((uses & TCI_LMEM_ADDRESS) && st->mem != TCI_MEM_PREFETCH) {
        storage = (tc_dtype)(st->base < 0 ? c->l->locals[~st->base].dtype : c->l->operands[st->base].dtype);
    }
    return c->d->mem(c->d, (tci_mem)st->mem, compute, storage, lanes);
}

static void tci_c_mem(tci_c_like *c, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    const char *comma = "";
    if (uses & TCI_LMEM_DST) {
        tci_c_define(c, st->dst);
    }
    tci_str_printf(c->out, "%s(", tci_c_mem_name(c, st, uses));
    if (uses & TCI_LMEM_ADDRESS) {
        tci_c_base(c, st->base);
        tci_str_add(c->out, " + ");
        tci_c_lx(c, st->x);
        comma = ", ";
    }
    if (uses & TCI_LMEM_FIRST) {
        tci_c_lx(c, st->x);
    }
    if (uses & TCI_LMEM_STRIDE) {
        tci_str_printf(c->out, "%s%lld", comma, (long long)st->imm);
    }
    if (uses & (TCI_LMEM_VALUE | TCI_LMEM_MASK)) {
        tci_str_add(c->out, comma);
        tci_c_value(c, st->args[0]);
        comma = ", ";
    }
    if (uses & TCI_LMEM_COUNT) {
        tci_str_add(c->out, comma);
        tci_c_lx(c, st->n);
    }
    if (uses & TCI_LMEM_LANE) {
        tci_str_printf(c->out, ", %lld", (long long)st->imm);
    }
    tci_str_add(c->out, ");\n");
}

static void tci_c_in_range(tci_c_like *c, const tci_lstmt *st)
{
    tci_c_define(c, st->dst);
    if (st->value.i == st->imm) {
        tci_c_infix(c, st->x, " == ", -1, st->imm);
    } else {
        tci_c_infix(c, st->x, " >= ", -1, st->value.i);
        tci_str_add(c->out, " & ");
        tci_c_infix(c, st->x, " <= ", -1, st->imm);
    }
    tci_str_add(c->out, ";\n");
}

/* An index: from the end when negative; outside it is brought inside and recorded. */
static void tci_c_fault(tci_c_like *c, const tci_lstmt *st, int depth)
{
    const char *type = tci_c_type(c, TC_I64, 1);
    long long n = (long long)st->imm;
    int v = st->dst, from = st->args[0];
    char letter = c->l->values[from].is_mutable ? 'a' : 'v';
    tci_str_printf(c->out, "%s v%d = %c%d < 0 ? %c%d + %lld : %c%d;\n", type, v, letter, from, letter, from, n,
                   letter, from);
    tci_c_indent(c, depth);
    tci_str_printf(c->out, "if (v%d < 0 || v%d >= %lld) {\n", v, v, n);
    tci_c_indent(c, depth + 1);
    tci_str_printf(c->out, "*fault = %lld;\n", n + 1);
    tci_c_indent(c, depth + 1);
    tci_str_printf(c->out, "v%d = v%d < 0 ? 0 : %lld;\n", v, v, n > 0 ? n - 1 : 0);
    tci_c_indent(c, depth);
    tci_str_add(c->out, "}\n");
}

static void tci_c_block(tci_c_like *c, int block, int depth);

static void tci_c_for(tci_c_like *c, const tci_lstmt *st, int depth)
{
    tci_str_printf(c->out, "for (%s ", tci_c_type(c, TC_I64, 1));
    tci_c_index(c, st->dst);
    tci_str_add(c->out, " = ");
    tci_c_lx(c, st->x);
    tci_str_add(c->out, "; ");
    tci_c_index(c, st->dst);
    tci_str_add(c->out, " < ");
    tci_c_lx(c, st->n);
    tci_str_add(c->out, "; ");
    tci_c_index(c, st->dst);
    tci_str_printf(c->out, " += %lld) {\n", (long long)st->imm);
    tci_c_block(c, st->body, depth + 1);
    tci_c_indent(c, depth);
    tci_str_add(c->out, "}\n");
}

static void tci_c_local(tci_c_like *c, const tci_lstmt *st)
{
    const tci_llocal *m = &c->l->locals[st->dst];
    tci_str_printf(c->out, "%s m%d[%lld] __attribute__((aligned(64)));\n",
                   tci_dtype_get((tc_dtype)m->dtype)->ctype, st->dst, (long long)m->n);
}

/* name = args[0]; */
static void tci_c_assign(tci_c_like *c, const tci_lstmt *st)
{
    if (st->op == TCI_L_SET) {
        tci_c_value(c, st->dst);
        tci_str_add(c->out, " = ");
    } else {
        tci_c_define(c, st->dst);
    }
    tci_c_value(c, st->args[0]);
    tci_str_add(c->out, ";\n");
}

static void tci_c_index_let(tci_c_like *c, const tci_lstmt *st)
{
    tci_str_printf(c->out, "const %s ", tci_c_type(c, TC_I64, 1));
    tci_c_index(c, st->dst);
    tci_str_add(c->out, " = ");
    if (st->op == TCI_L_INDEX) {
        tci_c_lx(c, st->x);
    } else {
        tci_str_printf(c->out, "(%s)", tci_c_type(c, TC_I64, 1));
        tci_c_value(c, st->args[0]);
    }
    tci_str_add(c->out, ";\n");
}

static void tci_c_stmt(tci_c_like *c, const tci_lstmt *st, int depth)
{
    tci_c_indent(c, depth);
    switch (st->op) {
    case TCI_L_FOR: tci_c_for(c, st, depth); break;
    case TCI_L_IF:
        tci_str_add(c->out, "if (");
        tci_c_value(c, st->args[0]);
        tci_str_add(c->out, ") {\n");
        tci_c_block(c, st->body, depth + 1);
        tci_c_indent(c, depth);
        tci_str_add(c->out, "}\n");
        break;
    case TCI_L_INDEX:
    case TCI_L_FROM_VALUE: tci_c_index_let(c, st); break;
    case TCI_L_LOCAL: tci_c_local(c, st); break;
    case TCI_L_CONST:
        tci_c_define(c, st->dst);
        tci_str_printf(c->out, "%s;\n",
                       c->d->constant(c->d, (tc_dtype)c->l->values[st->dst].dtype, st->value));
        break;
    case TCI_L_LITERAL:
        tci_c_define(c, st->dst);
        tci_str_printf(c->out, "lits[%lld];\n", (long long)st->imm);
        break;
    case TCI_L_PRIM: tci_c_prim(c, st); break;
    case TCI_L_MEM: tci_c_mem(c, st); break;
    case TCI_L_IN_RANGE: tci_c_in_range(c, st); break;
    case TCI_L_TO_VALUE:
        tci_c_define(c, st->dst);
        tci_c_lx(c, st->x);
        tci_str_add(c->out, ";\n");
        break;
    case TCI_L_FAULT: tci_c_fault(c, st, depth); break;
    case TCI_L_NOTE: tci_str_printf(c->out, "/* %s */\n", st->text); break;
    default: tci_c_assign(c, st); break;
    }
}

static void tci_c_block(tci_c_like *c, int block, int depth)
{
    const tci_lblock *b = &c->l->blocks[block];
    for (int i = 0; i < b->n; i++) {
        tci_c_stmt(c, &b->stmts[i], depth);
    }
}

TCI_FN void tci_emit_kernel(tci_str *out, tci_dialect *d, const tci_kernel *k, const tci_loop *l, const char *symbol)
{
    tci_c_like c = {out, d, l};
    const char *word = tci_c_type(&c, TC_I64, 1);
    tci_str_printf(out, "/* %s: %s */\n", k->name, l->note);
    tci_str_printf(out,
                   "__attribute__((visibility(\"default\")))\n"
                   "void %s(void *const *bufs, const %s *lits, %s *fault, %s task_begin, %s task_end)\n{\n",
                   symbol, word, word, word, word);
    for (int i = 0; i < l->n_operands; i++) {
        const tci_koperand *o = &l->operands[i];
        const char *type = tci_dtype_get((tc_dtype)o->dtype)->ctype;
        const char *qualifier = o->is_output ? "" : "const ";
        tci_str_printf(out, "    %s%s *const p%d = (%s%s *)bufs[%d];\n", qualifier, type, i, qualifier, type, i);
    }
    tci_c_block(&c, 0, 1);
    tci_str_add(out, "}\n");
}

/* ---- src/interp/loops.c ---- */
/* interp/loops.c - the block loops of the interpreter: one loop per BASE prim and dtype.
 *
 * In: arrays of one block. Out: an array. An operand that is the same for the whole block is one 64-byte
 * group of equal elements and advances by nothing, so each loop exists once, not once per mix.
 * Two classes. GROUP loops work on whole 64-byte groups (arrays are padded to 64 bytes; lanes past the
 * end compute garbage that nobody reads); all operands have the same element size. ELEM loops work on
 * the exact count of elements.
 *
 * bool values are lane masks: 0 or all ones, in elements as wide as the values they were compared from.
 *
 * The hot loops are compiled twice: for the baseline of the build, and on x86-64 for AVX2 + FMA, chosen
 * at run time. Each prim is a single rounding in both, so the bits agree. Compilers without GNU vector
 * types get no loops: the interpreter then evaluates element by element with tci_prim_eval. */
#include <math.h>

/* ---- src/interp/steps.h ---- */
/* interp/steps.h - the prepared form of a kernel, between interp/prepare.c (makes it) and
 * interp/kernels.c (runs it); and the block loops (interp/loops.c). Private to this room.
 *
 * A kernel becomes sections of steps. A section runs once per call (constants), once per outer block
 * (before a stage), or once per iteration of a stage's axis nest at some depth. A step computes one value
 * for the lanes of the current block from values computed before it.
 *
 * Lanes lie along the section's vector axis: the last outer axis (TCI_VEC_OUTER), or in the innermost
 * sections of TCI_VEC_INNER kernels the stage's last axis. A value that does not vary along it is
 * uniform: one 64-byte group of equal elements. A varying value is an array of one block.
 * bool values are lane masks, 0 or all ones, as wide as what they were compared from.
 *
 * Invariants: a step reads only values of its own or enclosing sections; values used outside their own
 * section have memory of their own, others share it by liveness. */
#ifndef TCI_INTERP_STEPS_H
#define TCI_INTERP_STEPS_H

/* ---- src/interp/interp.h ---- */
/* interp/interp.h - runs kernels without a compiler, in blocks over the kernel's vector axis, with the
 * same bits as generated code. Always there. */
#ifndef TCI_INTERP_INTERP_H
#define TCI_INTERP_INTERP_H


/* A kernel made ready for interpretation: owns copies of everything it needs, on the heap; immutable
 * afterwards and used from any thread. NULL: out of memory. */
typedef struct tci_interp tci_interp;
TCI_FN tci_interp *tci_interp_make(const tci_kernel *k);
TCI_FN void tci_interp_free(tci_interp *p);
TCI_FN int64_t tci_interp_tasks(const tci_interp *p);       /* n_tasks */
TCI_FN size_t tci_interp_workspace(const tci_interp *p);    /* bytes one caller needs, 64-aligned */
/* As tci_kernel_fn, with the caller's workspace; allocates nothing. */
TCI_FN void tci_interp_run(const tci_interp *p, void *workspace, void *const *bufs, const int64_t *lits,
                           int64_t *fault, int64_t task_begin, int64_t task_end);

#endif

/* ---- src/interp/steps.h, continued ---- */
enum {
    TCI_INTERP_GROUP = 64,      /* bytes of a group: arrays are padded to it */
    TCI_INTERP_BLOCK = 512      /* most lanes of a block; a multiple of TCI_VLANES */
};

/* ---- block loops ---- */

/* vary[i]: 1 when operand i has an element per lane, 0 when one group stands for all. count: groups or
 * elements, as the row says. out may be the same array as an operand of equal element size. */
typedef void (*tci_interp_loop)(void *out, const void *const *in, const uint8_t *vary, int64_t count);

/* Prims of the interpreter alone, numbered after the BASE and MATH ones. */
enum {
    TCI_IP_MAXIMUM = TCI_P_COUNT, /* select(a > b or a is NaN, a, b): MAX reductions, a the accumulator */
    TCI_IP_MINIMUM,
    TCI_IP_MULADD,                /* integers: a * b + c, wrapping */
    TCI_IP_FROM_F16,              /* u16 bits -> f32 */
    TCI_IP_TO_F16                 /* f32 -> u16 bits */
};

typedef struct tci_interp_loop_row {
    uint8_t prim, dtype, to;   /* to: CAST only, else equal to dtype */
    bool group;                /* counts groups; operands and result have one element size */
    tci_interp_loop base, best; /* best: AVX2 + FMA, or base again */
} tci_interp_loop_row;

/* The row of prim over operands of dtype t (CAST: to `to`), or NULL: evaluate element by element. */
TCI_FN const tci_interp_loop_row *tci_interp_loop_find(int prim, tc_dtype t, tc_dtype to);
TCI_FN bool tci_interp_has_avx2(void);

/* One elementwise operation: its loop, or what to evaluate element by element where there is none. */
typedef struct tci_interp_op {
    tci_interp_loop loop;      /* NULL: tci_prim_eval */
    uint8_t prim, dtype, to;   /* dtype of the operands, dtype of the result */
    uint8_t n_in, bytes;       /* operands; element size of the result */
    uint8_t in_bytes[3];
    bool group;
    bool mask;                 /* the result is a lane mask */
} tci_interp_op;

/* ---- addresses: base + sum of coef * axis + sum of coef * atom ---- */

typedef struct tci_interp_term { int32_t axis; int64_t coef; } tci_interp_term;
typedef struct tci_interp_atom {
    uint8_t op;                /* tci_kx_op: DIV, MOD or VALUE */
    int32_t value;             /* VALUE: an i64 value */
    int64_t coef, c;
    struct tci_interp_addr *arg; /* DIV, MOD */
} tci_interp_atom;
typedef struct tci_interp_addr {
    int64_t base;
    int64_t stride;            /* per lane, when linear */
    bool linear;               /* no atom varies along the vector axis */
    int n_terms, n_atoms;
    tci_interp_term *terms;
    tci_interp_atom *atoms;
} tci_interp_addr;
typedef struct tci_interp_guard {
    const tci_interp_addr *x;
    int64_t lo, hi;
    int32_t block;             /* value that holds x for each lane; -1: x is linear */
} tci_interp_guard;

/* ---- steps ---- */

typedef enum tci_interp_kind {
    TCI_STEP_CONST,   /* out = bits */
    TCI_STEP_LIT,     /* literal slot ref */
    TCI_STEP_OP,      /* op over in */
    TCI_STEP_LANE,    /* helper ref for the lanes that the last operand marks */
    TCI_STEP_INDEX,   /* x for each lane (x is linear), i64 */
    TCI_STEP_DIVIDE,  /* floor(x / c), or with flag x mod c, for each lane; x is linear */
    TCI_STEP_FLOOR,   /* the same over in[0] */
    TCI_STEP_GUARD,   /* mask: the guards hold */
    TCI_STEP_LOAD,    /* elements of operand ref at x, or at in[0] when x is not linear; bits where guards fail */
    TCI_STEP_FAULT,   /* in[0] checked against size c */
    TCI_STEP_FOLD,    /* one block into reduction ref */
    TCI_STEP_STORE    /* in[0] to operand ref at x, or at in[1] when x is not linear */
} tci_interp_kind;

typedef struct tci_interp_step {
    uint8_t kind;
    uint8_t bytes;          /* element size of out (STORE: of in[0]) */
    bool varies;            /* of out (STORE, FOLD: of the section) */
    bool flag;              /* DIVIDE, FLOOR: the remainder; LOAD: may point into the operand */
    uint8_t vary[3];
    int32_t out, in[3];     /* values; -1 none */
    int32_t ref;
    int32_t n_guards;
    int64_t c;
    uint64_t bits;
    tci_interp_op op;
    const tci_interp_addr *x;
    const tci_interp_guard *guards;
} tci_interp_step;

typedef struct tci_interp_section {
    tci_interp_step *steps;
    int n, cap;
    int32_t vec;            /* vector axis, -1: one lane */
} tci_interp_section;

typedef struct tci_interp_value {
    uint8_t bytes;
    bool varies;
    bool own;               /* memory of its own: used outside its section, or written more than once */
    bool stored;            /* read by a STORE */
    int32_t section, first, last; /* where it lives, while preparing */
    int32_t lanes;          /* at least so many elements, whatever the block */
    int64_t offset;         /* in the workspace */
} tci_interp_value;

/* One reduction. Accumulators start at identity in each outer block; result holds the value after the
 * stage (for one lane per outer point the accumulator itself). */
typedef struct tci_interp_red {
    uint8_t op, dtype, bytes;
    bool inner;             /* TCI_VLANES lanes, joined at the end of the stage */
    bool arg, max;
    uint64_t identity;
    int32_t acc, at;        /* values: accumulator; ARG: its index */
    int32_t result;
    tci_interp_op combine;  /* acc, value [, second factor] -> acc */
} tci_interp_red;

typedef struct tci_interp_stage {
    uint8_t kind;
    int n_axes;
    int32_t *axes;
    int n_reds;
    int32_t *reds;
    tci_interp_section *sections; /* n_axes + 1: run once; per first axis; ... ; per last axis */
} tci_interp_stage;

struct tci_interp {
    tci_scratch s;          /* owns all of it */
    bool inner;             /* TCI_VEC_INNER */
    int n_outer, n_axes, n_stages, n_values, n_reds, n_operands;
    int64_t *sizes;         /* of the axes */
    int64_t points, grain;
    int block;              /* most lanes of a block here */
    int64_t *operand_n;     /* elements of each operand */
    tci_interp_value *values;
    tci_interp_red *reds;
    tci_interp_section constants;
    tci_interp_section *before; /* n_stages: at the outer level, before each stage */
    tci_interp_stage *stages;
    /* workspace: pointers of the values, positions on the axes, lane flags, spare lanes, values */
    int64_t axes_offset, flags_offset, spare_offset, workspace_bytes;
};

/* interp/prepare.c: fills p (p->s is ready; escapes on failure). */
TCI_FN void tci_interp_prepare(tci_interp *p, const tci_kernel *k);

#endif

/* ---- src/interp/loops.c, continued ---- */
#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)

/* ---- types: 32-byte vectors, 8-lane vectors for conversions, and scalars, all free to alias ---- */

#define TCI_IP_TYPE(name, type, bytes)                                                             \
    typedef type tci_v_##name __attribute__((vector_size(32), aligned(1), may_alias));             \
    typedef type tci_w_##name __attribute__((vector_size(8 * bytes), aligned(1), may_alias));      \
    typedef type tci_s_##name __attribute__((may_alias));
TCI_IP_TYPE(f32, float, 4)
TCI_IP_TYPE(f64, double, 8)
TCI_IP_TYPE(u8, uint8_t, 1)
TCI_IP_TYPE(u16, uint16_t, 2)
TCI_IP_TYPE(u32, uint32_t, 4)
TCI_IP_TYPE(u64, uint64_t, 8)
TCI_IP_TYPE(i8, int8_t, 1)
TCI_IP_TYPE(i16, int16_t, 2)
TCI_IP_TYPE(i32, int32_t, 4)
TCI_IP_TYPE(i64, int64_t, 8)
#undef TCI_IP_TYPE

#define TCI_IP_DT_f32 TC_F32
#define TCI_IP_DT_f64 TC_F64
#define TCI_IP_DT_u8 TC_U8
#define TCI_IP_DT_u16 TC_U16
#define TCI_IP_DT_u32 TC_U32
#define TCI_IP_DT_u64 TC_U64
#define TCI_IP_DT_i8 TC_I8
#define TCI_IP_DT_i16 TC_I16
#define TCI_IP_DT_i32 TC_I32
#define TCI_IP_DT_i64 TC_I64

#if defined(__x86_64__)
#define TCI_IP_HAS_AVX2
#define TCI_IP_ATTR_avx2 __attribute__((target("avx2,fma")))
#endif
#define TCI_IP_ATTR_base

/* ---- loop shapes; the expression is over x, y, z ---- */

#define TCI_IP_LOOP(isa, prim, T)                                                                  \
    TCI_IP_ATTR_##isa static void tci_interp_##prim##_##T##_##isa(                                 \
        void *out, const void *const *in, const uint8_t *vary, int64_t count)
#define TCI_IP_STEP(T, i) const tci_v_##T *p##i = in[i]; const int step##i = 2 * vary[i]

#define TCI_IP_unary(isa, prim, T, expr)                                                           \
    TCI_IP_LOOP(isa, prim, T)                                                                      \
    {                                                                                              \
        tci_v_##T *r = out;                                                                        \
        TCI_IP_STEP(T, 0);                                                                         \
        for (int64_t g = 0; g < count; g++, r += 2, p0 += step0) {                                 \
            tci_v_##T x = p0[0];                                                                   \
            r[0] = (tci_v_##T)(expr);                                                              \
            x = p0[1];                                                                             \
            r[1] = (tci_v_##T)(expr);                                                              \
        }                                                                                          \
    }
#define TCI_IP_binary(isa, prim, T, expr)                                                          \
    TCI_IP_LOOP(isa, prim, T)                                                                      \
    {                                                                                              \
        tci_v_##T *r = out;                                                                        \
        TCI_IP_STEP(T, 0);                                                                         \
        TCI_IP_STEP(T, 1);                                                                         \
        for (int64_t g = 0; g < count; g++, r += 2, p0 += step0, p1 += step1) {                    \
            tci_v_##T x = p0[0], y = p1[0];                                                        \
            r[0] = (tci_v_##T)(expr);                                                              \
            x = p0[1];                                                                             \
            y = p1[1];                                                                             \
            r[1] = (tci_v_##T)(expr);                                                              \
        }                                                                                          \
    }
#define TCI_IP_ternary(isa, prim, T, expr)                                                         \
    TCI_IP_LOOP(isa, prim, T)                                                                      \
    {                                                                                              \
        tci_v_##T *r = out;                                                                        \
        TCI_IP_STEP(T, 0);                                                                         \
        TCI_IP_STEP(T, 1);                                                                         \
        TCI_IP_STEP(T, 2);                                                                         \
        for (int64_t g = 0; g < count; g++, r += 2, p0 += step0, p1 += step1, p2 += step2) {       \
            tci_v_##T x = p0[0], y = p1[0], z = p2[0];                                             \
            r[0] = (tci_v_##T)(expr);                                                              \
            x = p0[1];                                                                             \
            y = p1[1];                                                                             \
            z = p2[1];                                                                             \
            r[1] = (tci_v_##T)(expr);                                                              \
        }                                                                                          \
    }
/* One lane at a time, where the build's baseline has no instruction. Operands first copied: out may be
 * an operand. */
#define TCI_IP_lanes(isa, prim, T, expr)                                                           \
    TCI_IP_LOOP(isa, prim, T)                                                                      \
    {                                                                                              \
        tci_s_##T *r = out;                                                                        \
        const tci_s_##T *p0 = in[0], *p1 = in[1], *p2 = in[2];                                     \
        const int64_t lanes = 64 / (int64_t)sizeof(*r);                                            \
        for (int64_t i = 0; i < count * lanes; i++) {                                              \
            const tci_s_##T x = p0[vary[0] ? i : i % lanes];                                       \
            const tci_s_##T y = p1 ? p1[vary[1] ? i : i % lanes] : x;                              \
            const tci_s_##T z = p2 ? p2[vary[2] ? i : i % lanes] : x;                              \
            (void)y;                                                                               \
            (void)z;                                                                               \
            r[i] = (tci_s_##T)(expr);                                                              \
        }                                                                                          \
    }

/* ---- rows of GROUP loops: X(prim, shape, T, expression) ---- */

#define TCI_IP_PICK(T, m, a, b) (((T)(m) & (T)(a)) | (~(T)(m) & (T)(b)))
/* Loops that serve both signednesses are listed for the unsigned type (tci_interp_loop_find maps). */
#define TCI_IP_COMMON_ROWS(X)                                                                      \
    X(ADD, binary, f32, x + y) X(ADD, binary, f64, x + y) X(ADD, binary, u32, x + y)               \
    X(ADD, binary, u64, x + y) X(SUB, binary, f32, x - y) X(SUB, binary, f64, x - y)               \
    X(SUB, binary, u32, x - y) X(SUB, binary, u64, x - y) X(MUL, binary, f32, x * y)               \
    X(MUL, binary, f64, x * y) X(MUL, binary, u32, x * y) X(MUL, binary, u64, x * y)               \
    X(DIV, binary, f32, x / y) X(DIV, binary, f64, x / y) X(MULADD, ternary, u32, x * y + z)       \
    X(MULADD, ternary, u64, x * y + z) X(AND, binary, u64, x & y) X(OR, binary, u64, x | y)        \
    X(XOR, binary, u64, x ^ y) X(SELECT, ternary, u64, (x & y) | (~x & z))                         \
    X(EQ, binary, f32, x == y) X(EQ, binary, f64, x == y) X(EQ, binary, u32, x == y)               \
    X(EQ, binary, u64, x == y) X(LT, binary, f32, x < y) X(LT, binary, f64, x < y)                 \
    X(LT, binary, i32, x < y) X(LT, binary, i64, x < y) X(LT, binary, u32, x < y)                  \
    X(LT, binary, u64, x < y) X(LE, binary, f32, x <= y) X(LE, binary, f64, x <= y)                \
    X(LE, binary, i32, x <= y) X(LE, binary, i64, x <= y) X(LE, binary, u32, x <= y)               \
    X(LE, binary, u64, x <= y) X(PMIN, binary, i32, TCI_IP_PICK(tci_v_i32, x < y, x, y))           \
    X(PMIN, binary, i64, TCI_IP_PICK(tci_v_i64, x < y, x, y))                                      \
    X(PMAX, binary, i32, TCI_IP_PICK(tci_v_i32, x > y, x, y))                                      \
    X(PMAX, binary, i64, TCI_IP_PICK(tci_v_i64, x > y, x, y))                                      \
    X(SHL, binary, u32, (x << (y & 31)) & (tci_v_u32)(y < 32))                                     \
    X(SHL, binary, u64, (x << (y & 63)) & (tci_v_u64)(y < 64))                                     \
    X(SHR, binary, u32, (x >> (y & 31)) & (tci_v_u32)(y < 32))                                     \
    X(SHR, binary, u64, (x >> (y & 63)) & (tci_v_u64)(y < 64))                                     \
    X(SHR, binary, i32, x >> (((y | (tci_v_i32)((tci_v_u32)y > 31)) & 31)))                        \
    X(SHR, binary, i64, x >> (((y | (tci_v_i64)((tci_v_u64)y > 63)) & 63)))                        \
    X(ROUNDB16, unary, u32, TCI_IP_ROUNDB16(x)) X(ROUND16, unary, u32, TCI_IP_ROUND16(x))

/* bf16: add half of the last kept bit (ties to even) and cut; NaN stays a quiet NaN. */
#define TCI_IP_ROUNDB16(x)                                                                         \
    TCI_IP_PICK(tci_v_u32, (tci_v_u32)((x & 0x7fffffffu) > 0x7f800000u), (x & 0xffff0000u) | 0x400000u, \
                (x + 0x7fffu + ((x >> 16) & 1u)) & 0xffff0000u)
/* f16: the same at bit 13, 65520 and above to infinity; below 2^-14 the spacing is 2^-24, which is that
 * of f32 at 0.5: adding and taking away 0.5 rounds there. */
#define TCI_IP_ROUND16(x)                                                                          \
    ((x & 0x80000000u) |                                                                           \
     TCI_IP_PICK(tci_v_u32, (tci_v_u32)((x & 0x7fffffffu) > 0x7f800000u), (x & 0x7fffe000u) | 0x400000u, \
                 TCI_IP_PICK(tci_v_u32, (tci_v_u32)((x & 0x7fffffffu) >= 0x477ff000u), (x & 0u) + 0x7f800000u, \
                             TCI_IP_PICK(tci_v_u32, (tci_v_u32)((x & 0x7fffffffu) < 0x38800000u),  \
                                         TCI_IP_ROUND16_TINY(x & 0x7fffffffu),                     \
                                         ((x & 0x7fffffffu) + 0xfffu + ((x >> 13) & 1u)) & 0x7fffe000u))))
#define TCI_IP_ROUND16_TINY(x) ((tci_v_u32)((((tci_v_f32)(x)) + 0.5f) - 0.5f))

/* Where x86 has an instruction that GNU C cannot spell. */
#define TCI_IP_AVX2_ROWS(X)                                                                        \
    X(FMA, ternary, f32, __builtin_ia32_vfmaddps256(x, y, z))                                      \
    X(FMA, ternary, f64, __builtin_ia32_vfmaddpd256(x, y, z))                                      \
    X(SQRT, unary, f32, __builtin_ia32_sqrtps256(x)) X(SQRT, unary, f64, __builtin_ia32_sqrtpd256(x)) \
    X(FLOOR, unary, f32, __builtin_ia32_roundps256(x, 9))                                          \
    X(FLOOR, unary, f64, __builtin_ia32_roundpd256(x, 9))                                          \
    X(CEIL, unary, f32, __builtin_ia32_roundps256(x, 10))                                          \
    X(CEIL, unary, f64, __builtin_ia32_roundpd256(x, 10))                                          \
    X(TRUNC, unary, f32, __builtin_ia32_roundps256(x, 11))                                         \
    X(TRUNC, unary, f64, __builtin_ia32_roundpd256(x, 11))                                         \
    X(RINT, unary, f32, __builtin_ia32_roundps256(x, 8))                                           \
    X(RINT, unary, f64, __builtin_ia32_roundpd256(x, 8))                                           \
    X(PMIN, binary, f32, __builtin_ia32_minps256(x, y))                                            \
    X(PMIN, binary, f64, __builtin_ia32_minpd256(x, y))                                            \
    X(PMAX, binary, f32, __builtin_ia32_maxps256(x, y))                                            \
    X(PMAX, binary, f64, __builtin_ia32_maxpd256(x, y))
#define TCI_IP_BASE_ROWS(X)                                                                        \
    X(FMA, lanes, f32, fmaf(x, y, z)) X(FMA, lanes, f64, fma(x, y, z))                             \
    X(SQRT, lanes, f32, sqrtf(x)) X(SQRT, lanes, f64, sqrt(x))                                     \
    X(FLOOR, lanes, f32, floorf(x)) X(FLOOR, lanes, f64, floor(x))                                 \
    X(CEIL, lanes, f32, ceilf(x)) X(CEIL, lanes, f64, ceil(x))                                     \
    X(TRUNC, lanes, f32, truncf(x)) X(TRUNC, lanes, f64, trunc(x))                                 \
    X(RINT, lanes, f32, rintf(x)) X(RINT, lanes, f64, rint(x))                                     \
    X(PMIN, lanes, f32, x < y ? x : y) X(PMIN, lanes, f64, x < y ? x : y)                          \
    X(PMAX, lanes, f32, x > y ? x : y) X(PMAX, lanes, f64, x > y ? x : y)

/* Reductions' maximum and minimum: the accumulator stays when it is NaN. */
#define TCI_IP_EXTREME(T, I, cmp) ((tci_v_##T)TCI_IP_PICK(tci_v_##I, (x cmp y) | (x != x), (tci_v_##I)x, (tci_v_##I)y))
#define TCI_IP_EXTREME_ROWS(X)                                                                     \
    X(MAXIMUM, binary, f32, TCI_IP_EXTREME(f32, i32, >)) X(MAXIMUM, binary, f64, TCI_IP_EXTREME(f64, i64, >)) \
    X(MINIMUM, binary, f32, TCI_IP_EXTREME(f32, i32, <)) X(MINIMUM, binary, f64, TCI_IP_EXTREME(f64, i64, <))

/* Small and rare types: baseline code only. */
#define TCI_IP_SMALL_ROWS(X, U, I, bits)                                                           \
    X(ADD, binary, U, x + y) X(SUB, binary, U, x - y) X(MUL, binary, U, x * y)                     \
    X(MULADD, ternary, U, x * y + z) X(EQ, binary, U, x == y) X(LT, binary, U, x < y)              \
    X(LT, binary, I, x < y) X(LE, binary, U, x <= y) X(LE, binary, I, x <= y)                      \
    X(PMIN, lanes, I, x < y ? x : y) X(PMAX, lanes, I, x > y ? x : y)                              \
    X(SHL, lanes, U, y < bits ? (unsigned)x << y : 0)                                              \
    X(SHR, lanes, U, y < bits ? x >> y : 0)                                                        \
    X(SHR, lanes, I, x >> ((y & ~(bits - 1)) ? bits - 1 : y))
#define TCI_IP_RARE_ROWS(X)                                                                        \
    TCI_IP_SMALL_ROWS(X, u8, i8, 8) TCI_IP_SMALL_ROWS(X, u16, i16, 16)                             \
    X(PMIN, lanes, u8, x < y ? x : y) X(PMAX, lanes, u8, x > y ? x : y)                            \
    X(PMIN, lanes, u16, x < y ? x : y) X(PMAX, lanes, u16, x > y ? x : y)                          \
    X(PMIN, lanes, u32, x < y ? x : y) X(PMAX, lanes, u32, x > y ? x : y)                          \
    X(PMIN, lanes, u64, x < y ? x : y) X(PMAX, lanes, u64, x > y ? x : y)

#define X(prim, shape, T, expr) TCI_IP_##shape(base, prim, T, expr)
TCI_IP_COMMON_ROWS(X)
TCI_IP_EXTREME_ROWS(X)
TCI_IP_BASE_ROWS(X)
TCI_IP_RARE_ROWS(X)
#undef X
#ifdef TCI_IP_HAS_AVX2
#define X(prim, shape, T, expr) TCI_IP_##shape(avx2, prim, T, expr)
TCI_IP_COMMON_ROWS(X)
TCI_IP_EXTREME_ROWS(X)
TCI_IP_AVX2_ROWS(X)
#undef X
#endif

/* ---- ELEM loops ---- */

/* Conversions that wrap, extend, or round to nearest: eight lanes at a time (arrays are padded). Their one
 * operand varies whenever the result does. */
#define TCI_IP_convert(isa, from, to)                                                              \
    TCI_IP_LOOP(isa, CAST_##from, to)                                                              \
    {                                                                                              \
        tci_w_##to *r = out;                                                                       \
        const tci_w_##from *p = in[0];                                                             \
        (void)vary;                                                                                \
        for (int64_t i = 0; i < count; i += 8) {                                                   \
            *r++ = __builtin_convertvector(*p++, tci_w_##to);                                      \
        }                                                                                          \
    }
#define TCI_IP_HOT_CONVERT_ROWS(X)                                                                 \
    X(i32, f32) X(f32, f64) X(f64, f32) X(i32, i64) X(i64, i32) X(u32, u64) X(u8, u32) X(u8, f32)  \
    X(u16, u32) X(i8, i32) X(i8, i64) X(i32, i8) X(i64, i8)
#define TCI_IP_CONVERT_ROWS(X)                                                                     \
    X(u8, u16) X(u8, u64) X(u8, f64) X(u16, u64) X(u16, f32) X(u16, f64) X(u32, f32)               \
    X(u32, f64) X(u64, f32) X(u64, f64) X(i8, i16) X(i8, f32) X(i8, f64) X(i16, i8)                \
    X(i16, i32) X(i16, i64) X(i16, f32) X(i16, f64) X(i32, i16) X(i32, f64) X(i64, i16)            \
    X(i64, f32) X(i64, f64)
#define X(from, to) TCI_IP_convert(base, from, to)
TCI_IP_HOT_CONVERT_ROWS(X)
TCI_IP_CONVERT_ROWS(X)
#undef X
#ifdef TCI_IP_HAS_AVX2
#define X(from, to) TCI_IP_convert(avx2, from, to)
TCI_IP_HOT_CONVERT_ROWS(X)
#undef X
#endif

/* Truncating conversions: CAST saturates and maps NaN to 0, TOINT knows its values in range. */
#define TCI_IP_saturate(from, to, min, past_max)                                                   \
    TCI_IP_LOOP(base, CAST_##from, to)                                                             \
    {                                                                                              \
        tci_s_##to *r = out;                                                                       \
        const tci_s_##from *p = in[0];                                                             \
        (void)vary;                                                                                \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const tci_s_##from x = p[i];                                                           \
            r[i] = x >= (past_max) ? (tci_s_##to)((min) == 0 ? ~(uint64_t)0 : ~(uint64_t)(min))    \
                   : x > (min)     ? (tci_s_##to)x                                                 \
                   : x <= (min)    ? (tci_s_##to)(min)                                             \
                                   : (tci_s_##to)0;                                                \
        }                                                                                          \
    }
#define TCI_IP_SATURATE_ROWS(X)                                                                    \
    X(f32, u8, 0, 256.0f) X(f32, u16, 0, 65536.0f) X(f32, u32, 0, 4294967296.0f)                   \
    X(f32, u64, 0, 18446744073709551616.0f) X(f32, i8, INT8_MIN, 128.0f)                           \
    X(f32, i16, INT16_MIN, 32768.0f) X(f32, i32, INT32_MIN, 2147483648.0f)                         \
    X(f32, i64, INT64_MIN, 9223372036854775808.0f) X(f64, u8, 0, 256.0) X(f64, u16, 0, 65536.0)    \
    X(f64, u32, 0, 4294967296.0) X(f64, u64, 0, 18446744073709551616.0)                            \
    X(f64, i8, INT8_MIN, 128.0) X(f64, i16, INT16_MIN, 32768.0)                                    \
    X(f64, i32, INT32_MIN, 2147483648.0) X(f64, i64, INT64_MIN, 9223372036854775808.0)
#define X(from, to, min, past_max) TCI_IP_saturate(from, to, min, past_max)
TCI_IP_SATURATE_ROWS(X)
#undef X

#define TCI_IP_toint(isa, from, to)                                                                \
    TCI_IP_LOOP(isa, TOINT, from)                                                                  \
    {                                                                                              \
        tci_w_##to *r = out;                                                                       \
        const tci_w_##from *p = in[0];                                                             \
        (void)vary;                                                                                \
        for (int64_t i = 0; i < count; i += 8) {                                                   \
            *r++ = __builtin_convertvector(*p++, tci_w_##to);                                      \
        }                                                                                          \
    }
TCI_IP_toint(base, f32, i32)
TCI_IP_toint(base, f64, i64)
#ifdef TCI_IP_HAS_AVX2
TCI_IP_toint(avx2, f32, i32)
TCI_IP_toint(avx2, f64, i64)
#endif

/* Scalar loops over two operands. */
#define TCI_IP_pairs(prim, T, expr)                                                                \
    TCI_IP_LOOP(base, prim, T)                                                                     \
    {                                                                                              \
        tci_s_##T *r = out;                                                                        \
        const tci_s_##T *p0 = in[0], *p1 = in[1];                                                  \
        const int step0 = vary[0], step1 = vary[1];                                                \
        for (int64_t i = 0; i < count; i++, p0 += step0, p1 += step1) {                            \
            const tci_s_##T x = *p0, y = *p1;                                                      \
            r[i] = (tci_s_##T)(expr);                                                              \
        }                                                                                          \
    }
#define TCI_IP_UNSIGNED_DIV_ROWS(X, T) X(DIV, T, y == 0 ? 0 : x / y) X(REM, T, y == 0 ? 0 : x % y)
#define TCI_IP_SIGNED_DIV_ROWS(X, T, U)                                                            \
    X(DIV, T, y == 0 ? 0 : y == -1 ? (tci_s_##T)(0 - (tci_s_##U)x) : x / y)                        \
    X(REM, T, y == 0 || y == -1 ? 0 : x % y)
#define TCI_IP_PAIR_ROWS(X)                                                                        \
    TCI_IP_UNSIGNED_DIV_ROWS(X, u8) TCI_IP_UNSIGNED_DIV_ROWS(X, u16) TCI_IP_UNSIGNED_DIV_ROWS(X, u32) \
    TCI_IP_UNSIGNED_DIV_ROWS(X, u64) TCI_IP_SIGNED_DIV_ROWS(X, i8, u8)                             \
    TCI_IP_SIGNED_DIV_ROWS(X, i16, u16) TCI_IP_SIGNED_DIV_ROWS(X, i32, u32)                        \
    TCI_IP_SIGNED_DIV_ROWS(X, i64, u64) X(REM, f32, fmodf(x, y)) X(REM, f64, fmod(x, y))
#define X(prim, T, expr) TCI_IP_pairs(prim, T, expr)
TCI_IP_PAIR_ROWS(X)
#undef X

TCI_IP_LOOP(base, FROM_F16, u16)
{
    tci_s_f32 *r = out;
    const tci_s_u16 *p = in[0];
    (void)vary;
    for (int64_t i = 0; i < count; i++) {
        r[i] = tci_f16_bits_to_f32(p[i]);
    }
}

TCI_IP_LOOP(base, TO_F16, f32)
{
    tci_s_u16 *r = out;
    const tci_s_f32 *p = in[0];
    (void)vary;
    for (int64_t i = 0; i < count; i++) {
        r[i] = tci_f32_to_f16_bits(p[i]);
    }
}

/* ---- the table ---- */

#define TCI_P_MAXIMUM TCI_IP_MAXIMUM
#define TCI_P_MINIMUM TCI_IP_MINIMUM
#define TCI_P_MULADD TCI_IP_MULADD
#ifdef TCI_IP_HAS_AVX2
#define TCI_IP_BEST(name) tci_interp_##name##_avx2
#else
#define TCI_IP_BEST(name) tci_interp_##name##_base
#endif
#define TCI_IP_ROW(prim, T, to, group, base, best) {prim, TCI_IP_DT_##T, TCI_IP_DT_##to, group, base, best},

static const tci_interp_loop_row tci_interp_loop_rows[] = {
#define X(prim, shape, T, expr)                                                                    \
    TCI_IP_ROW(TCI_P_##prim, T, T, true, tci_interp_##prim##_##T##_base, TCI_IP_BEST(prim##_##T))
    TCI_IP_COMMON_ROWS(X) TCI_IP_EXTREME_ROWS(X) TCI_IP_BASE_ROWS(X)
#undef X
#define X(prim, shape, T, expr)                                                                    \
    TCI_IP_ROW(TCI_P_##prim, T, T, true, tci_interp_##prim##_##T##_base, tci_interp_##prim##_##T##_base)
    TCI_IP_RARE_ROWS(X)
#undef X
#define X(from, to)                                                                                \
    TCI_IP_ROW(TCI_P_CAST, from, to, false, tci_interp_CAST_##from##_##to##_base,                  \
               TCI_IP_BEST(CAST_##from##_##to))
    TCI_IP_HOT_CONVERT_ROWS(X)
#undef X
#define X(from, to)                                                                                \
    TCI_IP_ROW(TCI_P_CAST, from, to, false, tci_interp_CAST_##from##_##to##_base,                  \
               tci_interp_CAST_##from##_##to##_base)
    TCI_IP_CONVERT_ROWS(X)
#undef X
#define X(from, to, min, past_max)                                                                 \
    TCI_IP_ROW(TCI_P_CAST, from, to, false, tci_interp_CAST_##from##_##to##_base,                  \
               tci_interp_CAST_##from##_##to##_base)
    TCI_IP_SATURATE_ROWS(X)
#undef X
#define X(prim, T, expr)                                                                           \
    TCI_IP_ROW(TCI_P_##prim, T, T, false, tci_interp_##prim##_##T##_base, tci_interp_##prim##_##T##_base)
    TCI_IP_PAIR_ROWS(X)
#undef X
    TCI_IP_ROW(TCI_P_TOINT, f32, i32, false, tci_interp_TOINT_f32_base, TCI_IP_BEST(TOINT_f32))
    TCI_IP_ROW(TCI_P_TOINT, f64, i64, false, tci_interp_TOINT_f64_base, TCI_IP_BEST(TOINT_f64))
    TCI_IP_ROW(TCI_IP_FROM_F16, u16, f32, false, tci_interp_FROM_F16_u16_base, tci_interp_FROM_F16_u16_base)
    TCI_IP_ROW(TCI_IP_TO_F16, f32, u16, false, tci_interp_TO_F16_f32_base, tci_interp_TO_F16_f32_base)
};

#ifdef TCI_IP_HAS_AVX2
TCI_FN bool tci_interp_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
TCI_FN bool tci_interp_has_avx2(void)
{
    return false;
}
#endif

static const tci_interp_loop_row *tci_interp_loop_table(int *n)
{
    *n = TCI_COUNT(tci_interp_loop_rows);
    return tci_interp_loop_rows;
}

#undef TCI_IP_DT_f32
#undef TCI_IP_DT_f64
#undef TCI_IP_DT_u8
#undef TCI_IP_DT_u16
#undef TCI_IP_DT_u32
#undef TCI_IP_DT_u64
#undef TCI_IP_DT_i8
#undef TCI_IP_DT_i16
#undef TCI_IP_DT_i32
#undef TCI_IP_DT_i64
#undef TCI_IP_HAS_AVX2
#undef TCI_IP_ATTR_avx2
#undef TCI_IP_ATTR_base
#undef TCI_IP_LOOP
#undef TCI_IP_STEP
#undef TCI_IP_unary
#undef TCI_IP_binary
#undef TCI_IP_ternary
#undef TCI_IP_lanes
#undef TCI_IP_PICK
#undef TCI_IP_COMMON_ROWS
#undef TCI_IP_ROUNDB16
#undef TCI_IP_ROUND16
#undef TCI_IP_ROUND16_TINY
#undef TCI_IP_AVX2_ROWS
#undef TCI_IP_BASE_ROWS
#undef TCI_IP_EXTREME
#undef TCI_IP_EXTREME_ROWS
#undef TCI_IP_SMALL_ROWS
#undef TCI_IP_RARE_ROWS
#undef TCI_IP_convert
#undef TCI_IP_HOT_CONVERT_ROWS
#undef TCI_IP_CONVERT_ROWS
#undef TCI_IP_saturate
#undef TCI_IP_SATURATE_ROWS
#undef TCI_IP_toint
#undef TCI_IP_pairs
#undef TCI_IP_UNSIGNED_DIV_ROWS
#undef TCI_IP_SIGNED_DIV_ROWS
#undef TCI_IP_PAIR_ROWS
#undef TCI_P_MAXIMUM
#undef TCI_P_MINIMUM
#undef TCI_P_MULADD
#undef TCI_IP_BEST
#undef TCI_IP_ROW

#else /* no vector types */

TCI_FN bool tci_interp_has_avx2(void)
{
    return false;
}

static const tci_interp_loop_row *tci_interp_loop_table(int *n)
{
    *n = 0;
    return NULL;
}

#endif

/* The dtype under which a row that serves both signednesses, or any bits, is listed. */
static tc_dtype tci_interp_loop_dtype(int prim, tc_dtype t)
{
    switch (prim) {
    case TCI_P_AND:
    case TCI_P_OR:
    case TCI_P_XOR:
    case TCI_P_SELECT: return TC_U64;
    case TCI_P_ROUND16:
    case TCI_P_ROUNDB16: return TC_U32;
    case TCI_P_ADD:
    case TCI_P_SUB:
    case TCI_P_MUL:
    case TCI_P_EQ:
    case TCI_P_SHL:
    case TCI_IP_MULADD: return t >= TC_I8 && t <= TC_I64 ? (tc_dtype)(t - TC_I8 + TC_U8) : t;
    default: return t;
    }
}

TCI_FN const tci_interp_loop_row *tci_interp_loop_find(int prim, tc_dtype t, tc_dtype to)
{
    int n;
    const tci_interp_loop_row *rows = tci_interp_loop_table(&n);
    t = tci_interp_loop_dtype(prim, t);
    for (int i = 0; i < n; i++) {
        if (rows[i].prim == prim && rows[i].dtype == t && (prim != TCI_P_CAST || rows[i].to == to)) {
            return &rows[i];
        }
    }
    return NULL;
}
/* ---- src/interp/prepare.c ---- */
/* interp/prepare.c - makes a kernel ready for interpretation.
 *
 * In: kernel IR. Out: struct tci_interp (interp/steps.h): sections of steps and the workspace layout.
 * Three walks: (1) instructions become nodes: MATH prims are replaced by their recipe, storage
 * conversions, bool masks and sign tricks are spelled out, equal nodes are one; (2) from what each node
 * depends on follows the section (or sections) that evaluates it; (3) each section's nodes become steps,
 * and values get memory by liveness. */
#include <math.h>
#include <string.h>


/* ---- nodes ---- */

typedef enum tci_prep_kind {
    TCI_PREP_CONST, TCI_PREP_LIT, TCI_PREP_LOAD, TCI_PREP_INDEX, TCI_PREP_GUARD, TCI_PREP_OP, TCI_PREP_LANE,
    TCI_PREP_RED, TCI_PREP_FAULT
} tci_prep_kind;

/* Zeroed before it is filled, so that equal nodes have equal bytes. */
typedef struct tci_prep_node {
    uint8_t kind, prim, dtype, to; /* OP: dtype of operands and result */
    uint8_t bytes, n_args, unused[2];
    int32_t args[3];
    int32_t ref;                   /* operand, literal slot, helper, reduction */
    int32_t x, guard, n_guards;
    int32_t chain;                 /* next node of the hash bucket, + 1 */
    int64_t c;
    uint64_t bits;
} tci_prep_node;

typedef struct tci_prep_store {
    int32_t node, stage, operand, x;
} tci_prep_store;

enum { TCI_PREP_BUCKETS = 1024 };

typedef struct tci_prep {
    tci_scratch *s;
    const tci_kernel *k;
    tci_interp *p;
    tci_prep_node *nodes; int n_nodes, cap_nodes;
    int32_t buckets[TCI_PREP_BUCKETS];
    int32_t *inst_node;        /* node of each instruction */
    int32_t *index_node;       /* instruction used by a KX_VALUE: its value as i64, else -1 */
    int32_t *red_a, *red_b;    /* nodes folded by each reduction */
    tci_prep_store *stores;
    /* Dependence: row of n_axes + n_stages flags a node or kx: axes, then stages whose results it uses. */
    int width;
    uint8_t *deps, *kx_deps, *kx_done;
    int32_t *kx_seen, stamp;   /* marks of one walk over index expressions */
    uint8_t *need_outer, *need_stage; /* by node; by stage * n_nodes + node */
    int32_t *outer_value, *stage_value; /* value of each node: at the outer level; in the stage at hand */
    tci_interp_value *values; int n_values, cap_values;
    int n_sections;
    /* the section being filled */
    tci_interp_section *section;
    int section_id, stage;     /* stage: -1 at the outer level */
    tci_interp_addr **addr;    /* by kx, in this section */
    int32_t *block;            /* by kx: value with x per lane, -1 none yet */
} tci_prep;

static uint64_t tci_prep_hash(const tci_prep_node *n)
{
    uint64_t words[sizeof(*n) / sizeof(uint64_t)];
    memcpy(words, n, sizeof words);
    uint64_t h = 0;
    for (int i = 0; i < TCI_COUNT(words); i++) {
        h = tci_hash_mix(h, words[i]);
    }
    return h;
}

static int tci_prep_add(tci_prep *b, tci_prep_node n)
{
    n.chain = 0;
    int32_t *head = &b->buckets[tci_prep_hash(&n) % TCI_PREP_BUCKETS];
    for (int32_t i = *head; i > 0; i = b->nodes[i - 1].chain) {
        tci_prep_node have = b->nodes[i - 1];
        have.chain = 0;
        if (memcmp(&have, &n, sizeof n) == 0) {
            return i - 1;
        }
    }
    n.chain = *head;
    TCI_PUSH(b->s, b->nodes, b->n_nodes, b->cap_nodes, n);
    *head = b->n_nodes;
    return b->n_nodes - 1;
}

static tci_prep_node tci_prep_blank(tci_prep_kind kind, int bytes)
{
    tci_prep_node n;
    memset(&n, 0, sizeof n);
    n.kind = (uint8_t)kind;
    n.bytes = (uint8_t)bytes;
    n.args[0] = n.args[1] = n.args[2] = n.x = n.guard = -1;
    return n;
}

static int tci_prep_bytes(tc_dtype t)
{
    return tci_dtype_get(t)->bytes;
}

static tc_dtype tci_prep_uint(int bytes)
{
    return bytes == 1 ? TC_U8 : bytes == 2 ? TC_U16 : bytes == 4 ? TC_U32 : TC_U64;
}

static tc_dtype tci_prep_sint(int bytes)
{
    return bytes == 1 ? TC_I8 : bytes == 2 ? TC_I16 : bytes == 4 ? TC_I32 : TC_I64;
}

static int tci_prep_const(tci_prep *b, uint64_t bits, int bytes)
{
    tci_prep_node n = tci_prep_blank(TCI_PREP_CONST, bytes);
    n.bits = bytes == 8 ? bits : bits & (((uint64_t)1 << (8 * bytes)) - 1);
    return tci_prep_add(b, n);
}

/* A number as its storage bits; bool as a mask. */
static uint64_t tci_prep_bits(tc_dtype t, tci_value v)
{
    if (t == TC_BOOL) {
        return v.i != 0 ? 0xff : 0;
    }
    uint64_t bits = 0;
    tci_value_store(t, &bits, v);
    return bits;
}

static int tci_prep_op(tci_prep *b, int prim, tc_dtype dtype, tc_dtype to, int bytes, int a0, int a1, int a2)
{
    tci_prep_node n = tci_prep_blank(TCI_PREP_OP, bytes);
    n.prim = (uint8_t)prim;
    n.dtype = (uint8_t)dtype;
    n.to = (uint8_t)to;
    n.args[0] = a0;
    n.args[1] = a1;
    n.args[2] = a2;
    n.n_args = (uint8_t)(1 + (a1 >= 0) + (a2 >= 0));
    return tci_prep_add(b, n);
}

/* Integer width change: extension by the signedness of `from`, or cutting. */
static int tci_prep_resize(tci_prep *b, int a, tc_dtype from, int bytes)
{
    int have = tci_prep_bytes(from);
    if (have == bytes) {
        return a;
    }
    bool zero_extends = have < bytes && !tci_dtype_is_signed(from);
    tc_dtype t = zero_extends ? from : tci_prep_sint(have);
    return tci_prep_op(b, TCI_P_CAST, t, zero_extends ? tci_prep_uint(bytes) : tci_prep_sint(bytes), bytes, a, -1, -1);
}

static int tci_prep_mask(tci_prep *b, int a, int bytes)
{
    return tci_prep_resize(b, a, tci_prep_sint(b->nodes[a].bytes), bytes);
}

static int tci_prep_bitwise(tci_prep *b, int prim, int a0, int a1)
{
    int bytes = b->nodes[a0].bytes;
    return tci_prep_op(b, prim, tci_prep_uint(bytes), tci_prep_uint(bytes), bytes, a0, a1, -1);
}

static int tci_prep_not(tci_prep *b, int a)
{
    return tci_prep_bitwise(b, TCI_P_XOR, a, tci_prep_const(b, ~(uint64_t)0, b->nodes[a].bytes));
}

static int tci_prep_bool(tci_prep *b, int prim, int a0, int a1)
{
    a1 = a1 < 0 ? -1 : tci_prep_mask(b, a1, b->nodes[a0].bytes);
    switch (prim) {
    case TCI_P_NOT: return tci_prep_not(b, a0);
    case TCI_P_OR:
    case TCI_P_ADD:
    case TCI_P_PMAX: return tci_prep_bitwise(b, TCI_P_OR, a0, a1);
    case TCI_P_XOR:
    case TCI_P_SUB: return tci_prep_bitwise(b, TCI_P_XOR, a0, a1);
    case TCI_P_EQ: return tci_prep_not(b, tci_prep_bitwise(b, TCI_P_XOR, a0, a1));
    case TCI_P_LT: return tci_prep_bitwise(b, TCI_P_AND, tci_prep_not(b, a0), a1);
    case TCI_P_LE: return tci_prep_bitwise(b, TCI_P_OR, tci_prep_not(b, a0), a1);
    case TCI_P_AND:
    case TCI_P_MUL:
    case TCI_P_PMIN: return tci_prep_bitwise(b, TCI_P_AND, a0, a1);
    default: return a0; /* NEG, ABS and rounding leave a bool alone */
    }
}

static int tci_prep_cast(tci_prep *b, int a, tc_dtype from, tc_dtype to)
{
    int bytes = tci_prep_bytes(to);
    if (from == to) {
        return a;
    }
    if (to == TC_BOOL) {
        int zero = tci_prep_const(b, 0, tci_prep_bytes(from));
        return tci_prep_not(b, tci_prep_op(b, TCI_P_EQ, from, TC_BOOL, tci_prep_bytes(from), a, zero, -1));
    }
    if (from == TC_BOOL) {
        tci_value one = {.i = 1};
        if (tci_dtype_is_float(to)) {
            one.f = 1.0;
        }
        return tci_prep_bitwise(b, TCI_P_AND, tci_prep_mask(b, a, bytes),
                                tci_prep_const(b, tci_prep_bits(to, one), bytes));
    }
    if (tci_dtype_is_int(from) && tci_dtype_is_int(to)) {
        return tci_prep_resize(b, a, from, bytes);
    }
    return tci_prep_op(b, TCI_P_CAST, from, to, bytes, a, -1, -1);
}

static int tci_prep_select(tci_prep *b, tc_dtype t, int mask, int a0, int a1)
{
    int bytes = b->nodes[a0].bytes;
    a1 = t == TC_BOOL ? tci_prep_mask(b, a1, bytes) : a1;
    tc_dtype u = tci_prep_uint(bytes);
    return tci_prep_op(b, TCI_P_SELECT, u, u, bytes, tci_prep_mask(b, mask, bytes), a0, a1);
}

/* NEG, ABS and NOT are other operations with a constant. */
static int tci_prep_sign(tci_prep *b, int prim, tc_dtype t, int a)
{
    int bytes = tci_prep_bytes(t);
    uint64_t top = (uint64_t)1 << (8 * bytes - 1);
    if (prim == TCI_P_NOT) {
        return tci_prep_not(b, a);
    }
    if (tci_dtype_is_float(t)) {
        return prim == TCI_P_NEG ? tci_prep_bitwise(b, TCI_P_XOR, a, tci_prep_const(b, top, bytes))
                                 : tci_prep_bitwise(b, TCI_P_AND, a, tci_prep_const(b, top - 1, bytes));
    }
    if (prim == TCI_P_ABS && !tci_dtype_is_signed(t)) {
        return a;
    }
    int minus = tci_prep_op(b, TCI_P_SUB, t, t, bytes, tci_prep_const(b, 0, bytes), a, -1);
    return prim == TCI_P_NEG ? minus : tci_prep_op(b, TCI_P_PMAX, t, t, bytes, a, minus, -1);
}

static int tci_prep_lane(tci_prep *b, int helper, const int *a, int n)
{
    tc_dtype t = (tc_dtype)tci_helper_get(helper)->dtype;
    tci_prep_node node = tci_prep_blank(TCI_PREP_LANE, tci_prep_bytes(t));
    node.ref = helper;
    node.dtype = (uint8_t)t;
    node.n_args = (uint8_t)n;
    for (int i = 0; i < n - 1; i++) {
        node.args[i] = a[i];
    }
    node.args[n - 1] = tci_prep_mask(b, a[n - 1], node.bytes);
    return tci_prep_add(b, node);
}

/* A BASE prim over operands of dtype t with result dtype `to`. */
static int tci_prep_base(tci_prep *b, int prim, tc_dtype t, tc_dtype to, int imm, const int *a, int n)
{
    int bytes = tci_prep_bytes(t);
    switch (prim) {
    case TCI_P_LANE1: return tci_prep_lane(b, imm, a, n);
    case TCI_P_SELECT: return tci_prep_select(b, t, a[0], a[1], a[2]);
    case TCI_P_CAST: return tci_prep_cast(b, a[0], t, to);
    case TCI_P_BITS: return a[0];
    case TCI_P_TOINT: return tci_prep_op(b, prim, t, to, bytes, a[0], -1, -1);
    default: break;
    }
    if (t == TC_BOOL) {
        return tci_prep_bool(b, prim, a[0], n > 1 ? a[1] : -1);
    }
    switch (prim) {
    case TCI_P_NEG:
    case TCI_P_ABS:
    case TCI_P_NOT: return tci_prep_sign(b, prim, t, a[0]);
    case TCI_P_AND:
    case TCI_P_OR:
    case TCI_P_XOR: return tci_prep_bitwise(b, prim, a[0], a[1]);
    case TCI_P_FLOOR:
    case TCI_P_CEIL:
    case TCI_P_TRUNC:
    case TCI_P_RINT:
        if (tci_dtype_is_int(t)) {
            return a[0];
        }
        break;
    case TCI_P_FMA: prim = tci_dtype_is_int(t) ? TCI_IP_MULADD : prim; break;
    default: break;
    }
    return tci_prep_op(b, prim, t, to, bytes, a[0], n > 1 ? a[1] : -1, n > 2 ? a[2] : -1);
}

static int tci_prep_recipe(tci_prep *b, int prim, tc_dtype t, const int *a)
{
    const tci_recipe *r = tci_math_recipe((tci_prim)prim, t);
    TCI_ASSERT(b->s, r && r->n > 0);
    int *node = TCI_NEW_ARRAY(b->s, int, r->n);
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *e = &r->insts[i];
        if (e->kind == TCI_RECIPE_ARG) {
            node[i] = a[e->imm];
        } else if (e->kind == TCI_RECIPE_CONST) {
            tc_dtype ct = (tc_dtype)e->dtype;
            node[i] = tci_prep_const(b, tci_prep_bits(ct, e->value), tci_prep_bytes(ct));
        } else {
            int args[3] = {-1, -1, -1};
            for (int j = 0; j < e->n_args; j++) {
                args[j] = node[e->args[j]];
            }
            tc_dtype operands = (tc_dtype)r->insts[e->args[e->prim == TCI_P_SELECT ? 1 : 0]].dtype;
            node[i] = tci_prep_base(b, e->prim, operands, (tc_dtype)e->dtype, e->imm, args, e->n_args);
        }
    }
    return node[r->n - 1];
}

/* ---- walk 1: instructions to nodes ---- */

static int tci_prep_load(tci_prep *b, const tci_kinst *i)
{
    tc_dtype t = (tc_dtype)b->k->operands[i->imm].dtype;
    tci_prep_node n = tci_prep_blank(TCI_PREP_LOAD, tci_prep_bytes(t));
    n.ref = (int32_t)i->imm;
    n.x = i->x;
    n.guard = i->n_guards > 0 ? i->guard : -1;
    n.n_guards = i->n_guards;
    if (t == TC_BOOL) {
        n.bits = i->value.i != 0;
    } else {
        tci_value_store(t, &n.bits, i->value);
    }
    int raw = tci_prep_add(b, n);
    tc_dtype have = (tc_dtype)tci_dtype_get(t)->compute;
    if (t == TC_BOOL) {
        raw = tci_prep_cast(b, raw, TC_U8, TC_BOOL);
    } else if (t == TC_F16) {
        raw = tci_prep_op(b, TCI_IP_FROM_F16, TC_U16, TC_F32, 4, raw, -1, -1);
    } else if (t == TC_BF16) {
        raw = tci_prep_op(b, TCI_P_SHL, TC_U32, TC_U32, 4, tci_prep_resize(b, raw, TC_U16, 4),
                          tci_prep_const(b, 16, 4), -1);
    }
    return tci_prep_cast(b, raw, have, (tc_dtype)i->dtype);
}

static int tci_prep_prim(tci_prep *b, const tci_kinst *i)
{
    const tci_kinst *insts = b->k->insts;
    tc_dtype t = (tc_dtype)insts[i->args[i->prim == TCI_P_SELECT ? 1 : 0]].dtype;
    int a[3] = {-1, -1, -1};
    for (int j = 0; j < i->n_args; j++) {
        a[j] = b->inst_node[i->args[j]];
    }
    if (tci_prim_is_math((tci_prim)i->prim)) {
        return tci_prep_recipe(b, i->prim, t, a);
    }
    return tci_prep_base(b, i->prim, t, (tc_dtype)i->dtype, (int)i->imm, a, i->n_args);
}

static bool tci_prep_is_arg(const tci_kred *r)
{
    return r->op == TCI_RED_ARGMAX || r->op == TCI_RED_ARGMIN;
}

static int tci_prep_red(tci_prep *b, int red)
{
    const tci_kred *r = &b->k->reds[red];
    tc_dtype t = (tc_dtype)r->dtype;
    int a = tci_prep_cast(b, b->inst_node[r->a], (tc_dtype)b->k->insts[r->a].dtype, t);
    int other = r->b >= 0 ? b->inst_node[r->b] : -1;
    if (other >= 0) {
        other = tci_prep_cast(b, other, (tc_dtype)b->k->insts[r->b].dtype, tci_prep_is_arg(r) ? TC_I64 : t);
    }
    if (t == TC_BOOL) {
        a = tci_prep_mask(b, a, 1);
        if (r->op == TCI_RED_DOT) { /* any(a and b) */
            a = tci_prep_bitwise(b, TCI_P_AND, a, tci_prep_mask(b, other, 1));
            other = -1;
        }
    }
    b->red_a[red] = a;
    b->red_b[red] = other;
    tci_prep_node n = tci_prep_blank(TCI_PREP_RED, tci_prep_is_arg(r) ? 8 : tci_prep_bytes(t));
    n.ref = red;
    n.dtype = (uint8_t)t;
    return tci_prep_add(b, n);
}

static int tci_prep_inst(tci_prep *b, const tci_kinst *i)
{
    tc_dtype t = (tc_dtype)i->dtype;
    tci_prep_node n;
    switch (i->op) {
    case TCI_K_CONST: return tci_prep_const(b, tci_prep_bits(t, i->value), tci_prep_bytes(t));
    case TCI_K_LIT:
        n = tci_prep_blank(TCI_PREP_LIT, tci_prep_bytes(t));
        n.ref = (int32_t)i->imm;
        n.dtype = i->dtype;
        return tci_prep_add(b, n);
    case TCI_K_LOAD: return tci_prep_load(b, i);
    case TCI_K_INDEX:
        n = tci_prep_blank(TCI_PREP_INDEX, 8);
        n.x = i->x;
        return tci_prep_cast(b, tci_prep_add(b, n), TC_I64, t);
    case TCI_K_GUARD:
        n = tci_prep_blank(TCI_PREP_GUARD, 1);
        n.guard = i->guard;
        n.n_guards = i->n_guards;
        return tci_prep_add(b, n);
    case TCI_K_PRIM: return tci_prep_prim(b, i);
    case TCI_K_RED: return tci_prep_red(b, (int)i->imm);
    default:
        n = tci_prep_blank(TCI_PREP_FAULT, 8);
        n.n_args = 1;
        n.args[0] = tci_prep_cast(b, b->inst_node[i->args[0]], (tc_dtype)b->k->insts[i->args[0]].dtype, TC_I64);
        n.c = i->imm;
        return tci_prep_cast(b, tci_prep_add(b, n), TC_I64, t);
    }
}

/* The node whose elements are the storage bits of a stored value. */
static int tci_prep_narrow(tci_prep *b, const tci_kstore *st)
{
    tc_dtype t = (tc_dtype)b->k->operands[st->operand].dtype;
    const tci_kinst *i = &b->k->insts[st->value];
    int a = tci_prep_cast(b, b->inst_node[st->value], (tc_dtype)i->dtype, (tc_dtype)tci_dtype_get(t)->compute);
    if (t == TC_BOOL) {
        return tci_prep_bitwise(b, TCI_P_AND, tci_prep_mask(b, a, 1), tci_prep_const(b, 1, 1));
    }
    if (t == TC_F16) {
        return tci_prep_op(b, TCI_IP_TO_F16, TC_F32, TC_U16, 2, a, -1, -1);
    }
    if (t == TC_BF16) {
        bool rounded = i->op == TCI_K_PRIM && i->prim == TCI_P_ROUNDB16;
        a = rounded ? a : tci_prep_op(b, TCI_P_ROUNDB16, TC_F32, TC_F32, 4, a, -1, -1);
        a = tci_prep_op(b, TCI_P_SHR, TC_U32, TC_U32, 4, a, tci_prep_const(b, 16, 4), -1);
        return tci_prep_resize(b, a, TC_U32, 2);
    }
    return a;
}

static void tci_prep_nodes(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->inst_node = TCI_NEW_ARRAY(b->s, int32_t, k->n_insts + 1);
    b->index_node = TCI_NEW_ARRAY(b->s, int32_t, k->n_insts + 1);
    b->red_a = TCI_NEW_ARRAY(b->s, int32_t, k->n_reds + 1);
    b->red_b = TCI_NEW_ARRAY(b->s, int32_t, k->n_reds + 1);
    b->stores = TCI_NEW_ARRAY(b->s, tci_prep_store, k->n_stores + 1);
    for (int i = 0; i < k->n_insts; i++) {
        b->index_node[i] = -1;
    }
    for (int x = 0; x < k->n_kx; x++) {
        if (k->kx[x].op == TCI_KX_VALUE) {
            b->index_node[k->kx[x].c] = 0;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        b->inst_node[i] = tci_prep_inst(b, &k->insts[i]);
        if (b->index_node[i] == 0) {
            b->index_node[i] = tci_prep_cast(b, b->inst_node[i], (tc_dtype)k->insts[i].dtype, TC_I64);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *st = &k->stores[i];
        tci_prep_store to = {tci_prep_narrow(b, st), st->stage, st->operand, st->x};
        b->stores[i] = to;
    }
}

/* ---- walk 2: dependence and need ---- */

static void tci_prep_merge(tci_prep *b, uint8_t *row, const uint8_t *from)
{
    for (int i = 0; i < b->width; i++) {
        row[i] |= from[i];
    }
}

static uint8_t *tci_prep_row(const tci_prep *b, int node)
{
    return b->deps + (size_t)node * (size_t)b->width;
}

static const uint8_t *tci_prep_kx_row(tci_prep *b, int x)
{
    uint8_t *row = b->kx_deps + (size_t)x * (size_t)b->width;
    const tci_kx *e = &b->k->kx[x];
    if (b->kx_done[x]) {
        return row;
    }
    b->kx_done[x] = 1;
    if (e->op == TCI_KX_AXIS) {
        row[e->c] = 1;
    } else if (e->op == TCI_KX_VALUE) {
        tci_prep_merge(b, row, tci_prep_row(b, b->index_node[e->c]));
    } else if (e->op != TCI_KX_CONST) {
        tci_prep_merge(b, row, tci_prep_kx_row(b, e->a));
        if (e->op == TCI_KX_ADD) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, e->b));
        }
    }
    return row;
}

static void tci_prep_derive_red(tci_prep *b, uint8_t *row, int red)
{
    const int32_t from[2] = {b->red_a[red], b->red_b[red]};
    for (int j = 0; j < 2; j++) {
        for (int axis = 0; from[j] >= 0 && axis < b->k->n_outer; axis++) {
            row[axis] |= tci_prep_row(b, from[j])[axis];
        }
    }
    row[b->k->n_axes + b->k->reds[red].stage] = 1;
}

static void tci_prep_derive(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->width = k->n_axes + k->n_stages;
    b->deps = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)b->n_nodes * (size_t)b->width + 1);
    b->kx_deps = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)k->n_kx * (size_t)b->width + 1);
    b->kx_done = TCI_NEW_ARRAY(b->s, uint8_t, k->n_kx + 1);
    b->kx_seen = TCI_NEW_ARRAY(b->s, int32_t, k->n_kx + 1);
    for (int i = 0; i < b->n_nodes; i++) {
        const tci_prep_node *n = &b->nodes[i];
        uint8_t *row = tci_prep_row(b, i);
        for (int j = 0; j < n->n_args; j++) {
            tci_prep_merge(b, row, tci_prep_row(b, n->args[j]));
        }
        if (n->x >= 0) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, n->x));
        }
        for (int g = 0; g < n->n_guards; g++) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, k->guards[n->guard + g].x));
        }
        if (n->kind == TCI_PREP_RED) {
            tci_prep_derive_red(b, row, n->ref);
        }
    }
}

/* Does stage s evaluate the node itself (or take it from the outer level)? */
static bool tci_prep_in_stage(const tci_prep *b, int node, int s)
{
    const uint8_t *row = tci_prep_row(b, node);
    if (s < 0) {
        return false;
    }
    for (int axis = b->k->n_outer; axis < b->k->n_axes; axis++) {
        if (row[axis]) {
            return true;
        }
    }
    return b->k->stages[s].kind == TCI_STAGE_SCAN && row[b->k->n_axes + s];
}

static void tci_prep_need(tci_prep *b, int node, int s)
{
    if (node < 0) {
        return;
    }
    if (tci_prep_in_stage(b, node, s)) {
        b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node] = 1;
    } else {
        b->need_outer[node] = 1;
    }
}

/* Needs every loaded index inside x. */
static void tci_prep_need_kx(tci_prep *b, int x, int s)
{
    const tci_kx *e = &b->k->kx[x];
    if (b->kx_seen[x] == b->stamp) {
        return;
    }
    b->kx_seen[x] = b->stamp;
    if (e->op == TCI_KX_VALUE) {
        tci_prep_need(b, b->index_node[e->c], s);
    } else if (e->op != TCI_KX_CONST && e->op != TCI_KX_AXIS) {
        tci_prep_need_kx(b, e->a, s);
        if (e->op == TCI_KX_ADD) {
            tci_prep_need_kx(b, e->b, s);
        }
    }
}

static void tci_prep_need_inputs(tci_prep *b, int node, int s)
{
    const tci_prep_node *n = &b->nodes[node];
    for (int j = 0; j < n->n_args; j++) {
        tci_prep_need(b, n->args[j], s);
    }
    b->stamp++;
    if (n->x >= 0) {
        tci_prep_need_kx(b, n->x, s);
    }
    for (int g = 0; g < n->n_guards; g++) {
        tci_prep_need_kx(b, b->k->guards[n->guard + g].x, s);
    }
}

static void tci_prep_needs(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->need_outer = TCI_NEW_ARRAY(b->s, uint8_t, b->n_nodes + 1);
    b->need_stage = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)b->n_nodes * (size_t)k->n_stages + 1);
    for (int r = 0; r < k->n_reds; r++) {
        tci_prep_need(b, b->red_a[r], k->reds[r].stage);
        tci_prep_need(b, b->red_b[r], k->reds[r].stage);
        tci_prep_need(b, b->inst_node[k->reds[r].inst], k->reds[r].stage);
    }
    for (int i = 0; i < k->n_stores; i++) {
        b->stamp++;
        tci_prep_need(b, b->stores[i].node, b->stores[i].stage);
        tci_prep_need_kx(b, b->stores[i].x, b->stores[i].stage);
    }
    for (int node = b->n_nodes - 1; node >= 0; node--) {
        for (int s = 0; s < k->n_stages; s++) {
            if (b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node]) {
                tci_prep_need_inputs(b, node, s);
            }
        }
        if (b->need_outer[node]) {
            tci_prep_need_inputs(b, node, -1);
        }
    }
}

/* ---- walk 3: steps ---- */

static int tci_prep_value(tci_prep *b, int bytes, bool varies)
{
    tci_interp_value v = {(uint8_t)bytes, varies, false, false, b->section_id, b->section ? b->section->n : 0, 0, 0, 0};
    v.last = v.first;
    TCI_PUSH(b->s, b->values, b->n_values, b->cap_values, v);
    return b->n_values - 1;
}

static void tci_prep_use(tci_prep *b, int value, bool stored)
{
    tci_interp_value *v = &b->values[value];
    v->own |= v->section != b->section_id;
    v->last = b->section->n;
    v->stored |= stored;
}

static void tci_prep_use_addr(tci_prep *b, const tci_interp_addr *a, bool stored)
{
    for (int i = 0; i < a->n_atoms; i++) {
        if (a->atoms[i].op == TCI_KX_VALUE) {
            tci_prep_use(b, a->atoms[i].value, stored);
        } else {
            tci_prep_use_addr(b, a->atoms[i].arg, stored);
        }
    }
}

/* Appends a step; notes what it reads. */
static void tci_prep_step(tci_prep *b, tci_interp_step st)
{
    bool stored = st.kind == TCI_STEP_STORE;
    for (int i = 0; i < 3; i++) {
        if (st.in[i] >= 0) {
            st.vary[i] = b->values[st.in[i]].varies;
            tci_prep_use(b, st.in[i], stored);
        }
    }
    if (st.x) {
        tci_prep_use_addr(b, st.x, stored);
    }
    for (int g = 0; g < st.n_guards; g++) {
        if (st.guards[g].block >= 0) {
            tci_prep_use(b, st.guards[g].block, stored);
        } else {
            tci_prep_use_addr(b, st.guards[g].x, stored);
        }
    }
    TCI_PUSH(b->s, b->section->steps, b->section->n, b->section->cap, st);
}

static tci_interp_step tci_prep_blank_step(tci_interp_kind kind)
{
    tci_interp_step st;
    memset(&st, 0, sizeof st);
    st.kind = (uint8_t)kind;
    st.out = st.in[0] = st.in[1] = st.in[2] = -1;
    return st;
}

static int tci_prep_step_value(tci_prep *b, tci_interp_step st, int bytes, bool varies)
{
    st.bytes = (uint8_t)bytes;
    st.varies = varies;
    st.out = tci_prep_value(b, bytes, varies);
    tci_prep_step(b, st);
    return st.out;
}

static tci_interp_op tci_prep_make_op(int prim, tc_dtype dtype, tc_dtype to, int bytes, int n_in)
{
    tci_interp_op op;
    memset(&op, 0, sizeof op);
    const tci_interp_loop_row *row = tci_interp_loop_find(prim, dtype, to);
    if (row) {
        op.loop = tci_interp_has_avx2() ? row->best : row->base;
        op.group = row->group;
    }
    op.prim = (uint8_t)prim;
    op.dtype = (uint8_t)dtype;
    op.to = (uint8_t)to;
    op.bytes = (uint8_t)bytes;
    op.n_in = (uint8_t)n_in;
    for (int i = 0; i < 3; i++) {
        op.in_bytes[i] = (uint8_t)tci_prep_bytes(dtype);
    }
    op.mask = prim == TCI_P_EQ || prim == TCI_P_LT || prim == TCI_P_LE;
    return op;
}

static int tci_prep_value_of(const tci_prep *b, int node)
{
    int value = tci_prep_in_stage(b, node, b->stage) ? b->stage_value[node] : b->outer_value[node];
    TCI_ASSERT(b->s, value >= 0);
    return value;
}

static bool tci_prep_varies(const tci_prep *b, const uint8_t *row)
{
    return b->section->vec >= 0 && row[b->section->vec];
}

static tci_interp_addr *tci_prep_addr(tci_prep *b, int x);

/* a += coef * x */
static void tci_prep_addr_add(tci_prep *b, tci_interp_addr *a, int x, int64_t coef, int *cap_terms, int *cap_atoms)
{
    const tci_kx *e = &b->k->kx[x];
    if (e->op == TCI_KX_CONST) {
        a->base += coef * e->c;
    } else if (e->op == TCI_KX_AXIS) {
        tci_interp_term t = {(int32_t)e->c, coef};
        TCI_PUSH(b->s, a->terms, a->n_terms, *cap_terms, t);
        a->stride += e->c == b->section->vec ? coef : 0;
    } else if (e->op == TCI_KX_ADD) {
        tci_prep_addr_add(b, a, e->a, coef, cap_terms, cap_atoms);
        tci_prep_addr_add(b, a, e->b, coef, cap_terms, cap_atoms);
    } else if (e->op == TCI_KX_MUL) {
        tci_prep_addr_add(b, a, e->a, coef * e->c, cap_terms, cap_atoms);
    } else {
        tci_interp_atom atom = {e->op, -1, coef, e->c, NULL};
        if (e->op == TCI_KX_VALUE) {
            atom.value = tci_prep_value_of(b, b->index_node[e->c]);
        } else {
            atom.arg = tci_prep_addr(b, e->a);
        }
        a->linear &= !tci_prep_varies(b, tci_prep_kx_row(b, x));
        TCI_PUSH(b->s, a->atoms, a->n_atoms, *cap_atoms, atom);
    }
}

static tci_interp_addr *tci_prep_addr(tci_prep *b, int x)
{
    if (!b->addr[x]) {
        tci_interp_addr *a = TCI_NEW(b->s, tci_interp_addr);
        int cap_terms = 0, cap_atoms = 0;
        a->linear = true;
        tci_prep_addr_add(b, a, x, 1, &cap_terms, &cap_atoms);
        b->addr[x] = a;
    }
    return b->addr[x];
}

static int tci_prep_step_op(tci_prep *b, int prim, tc_dtype t, int in0, int in1)
{
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_OP);
    st.op = tci_prep_make_op(prim, t, t, tci_prep_bytes(t), 2);
    st.in[0] = in0;
    st.in[1] = in1;
    return tci_prep_step_value(b, st, tci_prep_bytes(t), b->values[in0].varies || b->values[in1].varies);
}

/* A value that holds x for each lane (i64). */
static int tci_prep_block(tci_prep *b, int x)
{
    const tci_kx *e = &b->k->kx[x];
    if (b->block[x] >= 0) {
        return b->block[x];
    }
    const tci_interp_addr *a = tci_prep_addr(b, x);
    bool varies = tci_prep_varies(b, tci_prep_kx_row(b, x));
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_INDEX);
    int value;
    if (a->linear) {
        st.x = a;
        value = tci_prep_step_value(b, st, 8, varies);
    } else if (e->op == TCI_KX_VALUE) {
        value = tci_prep_value_of(b, b->index_node[e->c]);
    } else if (e->op == TCI_KX_ADD) {
        int left = tci_prep_block(b, e->a);
        value = tci_prep_step_op(b, TCI_P_ADD, TC_I64, left, tci_prep_block(b, e->b));
    } else if (e->op == TCI_KX_MUL) {
        tci_interp_step c = tci_prep_blank_step(TCI_STEP_CONST);
        c.bits = (uint64_t)e->c;
        int left = tci_prep_block(b, e->a);
        value = tci_prep_step_op(b, TCI_P_MUL, TC_I64, left, tci_prep_step_value(b, c, 8, false));
    } else {
        st.c = e->c;
        st.flag = e->op == TCI_KX_MOD;
        if (tci_prep_addr(b, e->a)->linear) {
            st.kind = TCI_STEP_DIVIDE;
            st.x = tci_prep_addr(b, e->a);
        } else {
            st.kind = TCI_STEP_FLOOR;
            st.in[0] = tci_prep_block(b, e->a);
        }
        value = tci_prep_step_value(b, st, 8, varies);
    }
    b->block[x] = value;
    return value;
}

static void tci_prep_step_guards(tci_prep *b, tci_interp_step *st, int first, int n)
{
    tci_interp_guard *list = TCI_NEW_ARRAY(b->s, tci_interp_guard, n + 1);
    for (int g = 0; g < n; g++) {
        const tci_kguard *from = &b->k->guards[first + g];
        list[g].x = tci_prep_addr(b, from->x);
        list[g].lo = from->lo;
        list[g].hi = from->hi;
        list[g].block = list[g].x->linear ? -1 : tci_prep_block(b, from->x);
    }
    st->guards = list;
    st->n_guards = n;
}

/* x of a LOAD or STORE; a non-linear x becomes a block of offsets in in[slot]. */
static void tci_prep_step_x(tci_prep *b, tci_interp_step *st, int x, int slot)
{
    st->x = tci_prep_addr(b, x);
    if (!st->x->linear) {
        st->x = NULL;
        st->in[slot] = tci_prep_block(b, x);
    }
}

static void tci_prep_emit_fold(tci_prep *b, int red)
{
    const tci_interp_red *r = &b->p->reds[red];
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_FOLD);
    st.ref = red;
    st.out = -1;
    st.in[0] = tci_prep_value_of(b, b->red_a[red]);
    st.in[1] = b->red_b[red] >= 0 ? tci_prep_value_of(b, b->red_b[red]) : -1;
    st.bytes = r->bytes;
    st.varies = b->values[r->acc].varies;
    tci_prep_step(b, st);
}

/* The step of one node in the section at hand; gives its value. */
static int tci_prep_emit(tci_prep *b, int node)
{
    const tci_prep_node *n = &b->nodes[node];
    bool varies = tci_prep_varies(b, tci_prep_row(b, node));
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_CONST);
    st.bits = n->bits;
    st.ref = n->ref;
    st.c = n->c;
    for (int i = 0; i < n->n_args; i++) {
        st.in[i] = tci_prep_value_of(b, n->args[i]);
    }
    switch (n->kind) {
    case TCI_PREP_CONST: break;
    case TCI_PREP_LIT:
        st.kind = TCI_STEP_LIT;
        st.op.dtype = n->dtype;
        break;
    case TCI_PREP_LOAD:
        st.kind = TCI_STEP_LOAD;
        tci_prep_step_x(b, &st, n->x, 0);
        tci_prep_step_guards(b, &st, n->guard, n->n_guards);
        break;
    case TCI_PREP_INDEX: return tci_prep_block(b, n->x);
    case TCI_PREP_GUARD:
        st.kind = TCI_STEP_GUARD;
        tci_prep_step_guards(b, &st, n->guard, n->n_guards);
        break;
    case TCI_PREP_OP:
        st.kind = TCI_STEP_OP;
        st.op = tci_prep_make_op(n->prim, (tc_dtype)n->dtype, (tc_dtype)n->to, n->bytes, n->n_args);
        break;
    case TCI_PREP_LANE:
        st.kind = TCI_STEP_LANE;
        break;
    case TCI_PREP_FAULT:
        st.kind = TCI_STEP_FAULT;
        break;
    default: /* RED: folded here by a SCAN; its value is the accumulator */
        tci_prep_emit_fold(b, n->ref);
        return b->p->reds[n->ref].result;
    }
    return tci_prep_step_value(b, st, n->bytes, varies);
}

static void tci_prep_begin(tci_prep *b, tci_interp_section *section, int stage, int vec)
{
    section->vec = vec;
    b->section = section;
    b->section_id = b->n_sections++;
    b->stage = stage;
    for (int x = 0; x < b->k->n_kx; x++) {
        b->addr[x] = NULL;
        b->block[x] = -1;
    }
}

static int tci_prep_outer_vec(const tci_prep *b)
{
    return b->k->vector == TCI_VEC_OUTER ? b->k->n_outer - 1 : -1;
}

/* The outer-level section of a node: -1 constants, else before that stage. */
static int tci_prep_outer_section(const tci_prep *b, int node)
{
    const uint8_t *row = tci_prep_row(b, node);
    int at = -1;
    for (int i = 0; i < b->width; i++) {
        if (row[i]) {
            at = TCI_MAX(at, i < b->k->n_axes ? 0 : i - b->k->n_axes + 1);
        }
    }
    return at;
}

static void tci_prep_outer(tci_prep *b, tci_interp_section *section, int which)
{
    tci_prep_begin(b, section, -1, which < 0 ? -1 : tci_prep_outer_vec(b));
    for (int node = 0; node < b->n_nodes; node++) {
        bool here = b->need_outer[node] && b->nodes[node].kind != TCI_PREP_RED;
        if (here && tci_prep_outer_section(b, node) == which) {
            b->outer_value[node] = tci_prep_emit(b, node);
        }
    }
}

/* How deep in the stage's axis nest a node is evaluated: 0 outside, n_axes innermost. */
static int tci_prep_depth(const tci_prep *b, int node, int s)
{
    const tci_kstage *st = &b->k->stages[s];
    const uint8_t *row = tci_prep_row(b, node);
    if (st->kind == TCI_STAGE_SCAN && row[b->k->n_axes + s]) {
        return st->n_axes;
    }
    int depth = 0;
    for (int i = 0; i < st->n_axes; i++) {
        depth = row[st->axes[i]] ? i + 1 : depth;
    }
    return depth;
}

static void tci_prep_emit_stores(tci_prep *b, int s)
{
    for (int i = 0; i < b->k->n_stores; i++) {
        const tci_prep_store *to = &b->stores[i];
        if (to->stage != s) {
            continue;
        }
        tci_interp_step st = tci_prep_blank_step(TCI_STEP_STORE);
        st.ref = to->operand;
        st.in[0] = tci_prep_value_of(b, to->node);
        st.bytes = b->nodes[to->node].bytes;
        tci_prep_step_x(b, &st, to->x, 1);
        bool moves = tci_prep_varies(b, tci_prep_kx_row(b, to->x));
        st.varies = b->values[st.in[0]].varies || moves;
        tci_prep_step(b, st);
    }
}

static void tci_prep_stage(tci_prep *b, int s)
{
    const tci_kstage *st = &b->k->stages[s];
    tci_interp_stage *to = &b->p->stages[s];
    for (int node = 0; node < b->n_nodes; node++) {
        b->stage_value[node] = -1;
    }
    for (int depth = 0; depth <= st->n_axes; depth++) {
        bool last = depth == st->n_axes;
        int inner_vec = last && st->n_axes > 0 ? st->axes[st->n_axes - 1] : -1;
        tci_prep_begin(b, &to->sections[depth], s, b->p->inner ? inner_vec : tci_prep_outer_vec(b));
        for (int node = 0; node < b->n_nodes; node++) {
            bool here = b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node];
            if (here && tci_prep_depth(b, node, s) == depth) {
                b->stage_value[node] = tci_prep_emit(b, node);
            }
        }
    }
    for (int r = 0; r < to->n_reds && st->kind != TCI_STAGE_SCAN; r++) {
        tci_prep_emit_fold(b, to->reds[r]);
    }
    tci_prep_emit_stores(b, s);
}

/* ---- reductions ---- */

static uint64_t tci_prep_identity(int op, tc_dtype t)
{
    tci_value v = {.i = 0};
    bool is_float = tci_dtype_is_float(t);
    int bits = 8 * tci_prep_bytes(t);
    switch (op) {
    case TCI_RED_PROD:
        if (is_float) {
            v.f = 1.0;
        } else {
            v.i = 1;
        }
        break;
    case TCI_RED_ALL: v.i = 1; break;
    case TCI_RED_MAX:
    case TCI_RED_ARGMAX:
        if (is_float) {
            v.f = -HUGE_VAL;
        } else {
            v.u = tci_dtype_is_signed(t) ? ~(uint64_t)0 << (bits - 1) : 0;
        }
        break;
    case TCI_RED_MIN:
    case TCI_RED_ARGMIN:
        if (is_float) {
            v.f = HUGE_VAL;
        } else {
            v.u = t == TC_BOOL ? 1 : ~(uint64_t)0 >> (64 - bits + tci_dtype_is_signed(t));
        }
        break;
    default: break;
    }
    return tci_prep_bits(t, v);
}

static int tci_prep_combine(int op, tc_dtype t)
{
    bool is_float = tci_dtype_is_float(t);
    if (t == TC_BOOL) { /* masks */
        return op == TCI_RED_PROD || op == TCI_RED_MIN || op == TCI_RED_ALL ? TCI_P_AND : TCI_P_OR;
    }
    switch (op) {
    case TCI_RED_PROD: return TCI_P_MUL;
    case TCI_RED_MAX: return is_float ? TCI_IP_MAXIMUM : TCI_P_PMAX;
    case TCI_RED_MIN: return is_float ? TCI_IP_MINIMUM : TCI_P_PMIN;
    case TCI_RED_ANY: return TCI_P_OR;
    case TCI_RED_ALL: return TCI_P_AND;
    case TCI_RED_DOT: return is_float ? TCI_P_FMA : TCI_IP_MULADD;
    default: return TCI_P_ADD;
    }
}

static void tci_prep_make_red(tci_prep *b, int red)
{
    const tci_kred *from = &b->k->reds[red];
    tci_interp_red *r = &b->p->reds[red];
    tc_dtype t = (tc_dtype)from->dtype;
    int node = b->inst_node[from->inst];
    int vec = tci_prep_outer_vec(b);
    bool varies = vec >= 0 && tci_prep_row(b, node)[vec];
    r->op = from->op;
    r->dtype = from->dtype;
    r->bytes = (uint8_t)tci_prep_bytes(t);
    r->inner = b->p->inner;
    r->arg = tci_prep_is_arg(from);
    r->max = from->op == TCI_RED_ARGMAX;
    r->identity = tci_prep_identity(from->op, t);
    r->combine = tci_prep_make_op(tci_prep_combine(from->op, t), t == TC_BOOL ? TC_U8 : t, t == TC_BOOL ? TC_U8 : t,
                                  r->bytes, b->red_b[red] >= 0 && !r->arg ? 3 : 2);
    r->acc = tci_prep_value(b, r->bytes, varies);
    r->at = r->arg ? tci_prep_value(b, 8, varies) : -1;
    r->result = r->inner ? tci_prep_value(b, r->arg ? 8 : r->bytes, false) : r->arg ? r->at : r->acc;
    b->values[r->acc].own = true;
    b->values[r->result].own = true;
    if (r->arg) {
        b->values[r->at].own = true;
    }
    if (r->inner) {
        b->values[r->acc].lanes = TCI_VLANES;
        if (r->arg) {
            b->values[r->at].lanes = TCI_VLANES;
        }
    }
    b->outer_value[node] = r->result;
}

static void tci_prep_reds(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->section_id = -1;
    for (int r = 0; r < k->n_reds; r++) {
        tci_prep_make_red(b, r);
    }
    for (int s = 0; s < k->n_stages; s++) {
        tci_interp_stage *st = &b->p->stages[s];
        st->reds = TCI_NEW_ARRAY(b->s, int32_t, k->n_reds + 1);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == s) {
                st->reds[st->n_reds++] = r;
            }
        }
    }
}

/* ---- memory ---- */

typedef struct tci_prep_pool {
    int64_t *items;
    int n, cap;
} tci_prep_pool;

static int64_t tci_prep_size(const tci_prep *b, const tci_interp_value *v)
{
    int64_t lanes = TCI_MAX(v->varies ? b->p->block : 0, v->lanes);
    int64_t size = lanes * v->bytes;
    /* A group more than needed: neighbours do not start at the same place of a cache way. */
    return size == 0 ? TCI_INTERP_GROUP : size + TCI_INTERP_GROUP;
}

static int64_t tci_prep_take(tci_prep *b, const tci_interp_value *v, tci_prep_pool *pool, int64_t *end)
{
    if (pool && pool->n > 0) {
        return pool->items[--pool->n];
    }
    int64_t at = *end;
    *end += tci_prep_size(b, v);
    return at;
}

/* Gives memory to the varying values that live inside one section; the pools are shared by all. */
static void tci_prep_place(tci_prep *b, const tci_interp_section *section, int id, tci_prep_pool pools[9], int64_t *end)
{
    int32_t *by_last = TCI_NEW_ARRAY(b->s, int32_t, section->n + 2);
    int32_t *next = TCI_NEW_ARRAY(b->s, int32_t, b->n_values + 1);
    for (int v = 0; v < b->n_values; v++) {
        const tci_interp_value *value = &b->values[v];
        if (value->section == id && !value->own && value->varies) {
            next[v] = by_last[value->last];
            by_last[value->last] = v + 1;
        }
    }
    for (int i = 0; i < section->n; i++) {
        const tci_interp_step *st = &section->steps[i];
        tci_interp_value *out = st->out >= 0 ? &b->values[st->out] : NULL;
        bool in_place = st->kind == TCI_STEP_OP;
        bool placed = !out || out->own || !out->varies;
        if (!in_place && !placed) {
            out->offset = tci_prep_take(b, out, &pools[out->bytes], end);
        }
        for (int32_t v = by_last[i]; v > 0; v = next[v - 1]) {
            tci_prep_pool *pool = &pools[b->values[v - 1].bytes];
            if (v - 1 != st->out) {
                TCI_PUSH(b->s, pool->items, pool->n, pool->cap, b->values[v - 1].offset);
            }
        }
        if (in_place && !placed) {
            out->offset = tci_prep_take(b, out, &pools[out->bytes], end);
        }
        if (!placed && out->last == i) { /* never read: a FAULT */
            tci_prep_pool *pool = &pools[out->bytes];
            TCI_PUSH(b->s, pool->items, pool->n, pool->cap, out->offset);
        }
    }
}

static int64_t tci_prep_layout(tci_prep *b)
{
    tci_interp *p = b->p;
    int64_t end = (int64_t)sizeof(char *) * b->n_values;
    end = (end + 63) / 64 * 64;
    p->axes_offset = end;
    end += ((int64_t)sizeof(int64_t) * p->n_axes + 63) / 64 * 64;
    p->flags_offset = end;
    end += p->block + 64;
    end = (end + 63) / 64 * 64;
    p->spare_offset = end;
    end += TCI_VLANES * 8;
    for (int v = 0; v < b->n_values; v++) {
        if (b->values[v].own || !b->values[v].varies) {
            b->values[v].offset = tci_prep_take(b, &b->values[v], NULL, &end);
        }
    }
    tci_prep_pool pools[9] = {{0}};
    int id = 0;
    tci_prep_place(b, &p->constants, id++, pools, &end);
    for (int s = 0; s < p->n_stages; s++) {
        tci_prep_place(b, &p->before[s], id++, pools, &end);
        for (int depth = 0; depth <= p->stages[s].n_axes; depth++) {
            tci_prep_place(b, &p->stages[s].sections[depth], id++, pools, &end);
        }
    }
    return end;
}

/* Block length: as long as the axis needs, and short enough that the block's values stay near. */
static void tci_prep_memory(tci_prep *b)
{
    tci_interp *p = b->p;
    int64_t longest = 1;
    if (p->inner) {
        for (int s = 0; s < p->n_stages; s++) {
            const tci_interp_stage *st = &p->stages[s];
            longest = st->n_axes > 0 ? TCI_MAX(longest, p->sizes[st->axes[st->n_axes - 1]]) : longest;
        }
    } else if (p->n_outer > 0) {
        longest = p->sizes[p->n_outer - 1];
    }
    longest = (TCI_MIN(longest, TCI_INTERP_BLOCK) + TCI_VLANES - 1) / TCI_VLANES * TCI_VLANES;
    p->block = (int)TCI_MAX(longest, TCI_VLANES);
    p->workspace_bytes = tci_prep_layout(b);
    while (p->workspace_bytes > 128 * 1024 && p->block >= 2 * 128) {
        p->block /= 2;
        p->block = p->block / TCI_VLANES * TCI_VLANES;
        p->workspace_bytes = tci_prep_layout(b);
    }
}

/* A load may use the operand's memory instead of a copy when nothing is written before all is read. */
static void tci_prep_mark_direct(tci_prep *b, tci_interp_section *section)
{
    bool last_only = true;
    for (int i = 0; i < b->k->n_stores; i++) {
        last_only &= b->stores[i].stage == b->k->n_stages - 1;
    }
    for (int i = 0; i < section->n; i++) {
        tci_interp_step *st = &section->steps[i];
        if (st->kind == TCI_STEP_LOAD && st->x && st->x->stride == 1 && st->varies) {
            st->flag = last_only && (b->k->n_stores < 2 || !b->values[st->out].stored);
        }
    }
}

static void tci_prep_mark_all(tci_prep *b)
{
    tci_interp *p = b->p;
    for (int s = 0; s < p->n_stages; s++) {
        tci_prep_mark_direct(b, &p->before[s]);
        for (int depth = 0; depth <= p->stages[s].n_axes; depth++) {
            tci_prep_mark_direct(b, &p->stages[s].sections[depth]);
        }
    }
}

/* ---- the whole ---- */

static void tci_prep_shape(tci_prep *b)
{
    const tci_kernel *k = b->k;
    tci_interp *p = b->p;
    p->inner = k->vector == TCI_VEC_INNER;
    p->n_axes = k->n_axes;
    p->n_outer = k->n_outer;
    p->n_stages = k->n_stages;
    p->n_reds = k->n_reds;
    p->n_operands = k->n_operands;
    p->sizes = TCI_NEW_ARRAY(b->s, int64_t, k->n_axes + 1);
    p->operand_n = TCI_NEW_ARRAY(b->s, int64_t, k->n_operands + 1);
    p->reds = TCI_NEW_ARRAY(b->s, tci_interp_red, k->n_reds + 1);
    p->stages = TCI_NEW_ARRAY(b->s, tci_interp_stage, k->n_stages + 1);
    p->before = TCI_NEW_ARRAY(b->s, tci_interp_section, k->n_stages + 1);
    p->points = 1;
    for (int i = 0; i < k->n_axes; i++) {
        p->sizes[i] = k->axes[i].size;
        p->points *= i < k->n_outer ? k->axes[i].size : 1;
    }
    for (int i = 0; i < k->n_operands; i++) {
        p->operand_n[i] = k->operands[i].n;
    }
    for (int s = 0; s < k->n_stages; s++) {
        const tci_kstage *from = &k->stages[s];
        tci_interp_stage *st = &p->stages[s];
        st->kind = from->kind;
        st->n_axes = from->n_axes;
        st->axes = tci_scratch_copy(b->s, from->axes, sizeof(int32_t) * (size_t)from->n_axes);
        st->sections = TCI_NEW_ARRAY(b->s, tci_interp_section, from->n_axes + 1);
    }
}

/* Points per task: some thousand elements, and whole blocks where that leaves enough tasks. */
static void tci_prep_grain(tci_interp *p)
{
    int64_t work = 1;
    for (int s = 0; s < p->n_stages; s++) {
        int64_t size = 1;
        for (int i = 0; i < p->stages[s].n_axes && size < ((int64_t)1 << 40); i++) {
            size *= TCI_MAX(p->sizes[p->stages[s].axes[i]], 1);
        }
        work = TCI_MAX(work, size);
    }
    int64_t grain = TCI_MAX(4096 / work, 1);
    if (!p->inner && p->n_outer > 0) {
        int64_t whole = TCI_MIN(p->sizes[p->n_outer - 1], (int64_t)p->block);
        int64_t least = p->points / TCI_MAX(whole, 1) >= 16 ? whole : TCI_MIN(whole, TCI_MAX(p->points / 16, 32));
        grain = TCI_MAX(grain, least);
    }
    p->grain = TCI_MAX(grain, 1);
}

TCI_FN void tci_interp_prepare(tci_interp *p, const tci_kernel *k)
{
    tci_prep *b = TCI_NEW(&p->s, tci_prep);
    b->s = &p->s;
    b->k = k;
    b->p = p;
    tci_prep_shape(b);
    tci_prep_nodes(b);
    tci_prep_derive(b);
    tci_prep_needs(b);
    b->outer_value = TCI_NEW_ARRAY(b->s, int32_t, b->n_nodes + 1);
    b->stage_value = TCI_NEW_ARRAY(b->s, int32_t, b->n_nodes + 1);
    b->addr = TCI_NEW_ARRAY(b->s, tci_interp_addr *, k->n_kx + 1);
    b->block = TCI_NEW_ARRAY(b->s, int32_t, k->n_kx + 1);
    for (int node = 0; node < b->n_nodes; node++) {
        b->outer_value[node] = -1;
    }
    tci_prep_reds(b);
    tci_prep_outer(b, &p->constants, -1);
    for (int s = 0; s < k->n_stages; s++) {
        tci_prep_outer(b, &p->before[s], s);
        tci_prep_stage(b, s);
    }
    tci_prep_mark_all(b);
    p->n_values = b->n_values;
    p->values = b->values;
    tci_prep_memory(b);
    p->values = b->values;
    tci_prep_grain(p);
}
/* ---- src/interp/kernels.c ---- */
/* interp/kernels.c - runs prepared kernels (interp/steps.h) in blocks.
 *
 * In: a prepared kernel, operand memory, literals, a range of tasks. Out: the outputs' elements.
 * The outer points of the range are walked in row-major order, in blocks along the last outer axis
 * (TCI_VEC_OUTER) or one at a time (TCI_VEC_INNER: then each stage's last axis is walked in blocks). All
 * state is in the caller's workspace; nothing is allocated or locked.
 *
 * Reduction order: TCI_VEC_OUTER folds one element per lane of the block and step, so each outer point
 * sees its elements in row-major order. TCI_VEC_INNER blocks start at multiples of TCI_VLANES, so element j of
 * a block folds into lane j % TCI_VLANES; lanes are joined at the end of the stage. */
#include <string.h>


#if defined(__GNUC__) || defined(__clang__)
#define TCI_EXEC_ALIAS __attribute__((may_alias))
#else
#define TCI_EXEC_ALIAS
#endif
typedef uint8_t tci_exec_b1;
typedef uint16_t TCI_EXEC_ALIAS tci_exec_b2;
typedef uint32_t TCI_EXEC_ALIAS tci_exec_b4;
typedef uint64_t TCI_EXEC_ALIAS tci_exec_b8;
typedef int64_t TCI_EXEC_ALIAS tci_exec_i64;
#undef TCI_EXEC_ALIAS

typedef struct tci_exec {
    const tci_interp *p;
    char *workspace;
    char **ptr;            /* memory of each value: its place in the workspace, or an operand */
    int64_t *axes;         /* positions; the vector axis stands at the block's first lane */
    uint8_t *flags;        /* per lane: all guards hold */
    char *spare;           /* TCI_VLANES elements */
    void *const *bufs;
    const int64_t *lits;
    int64_t *fault;
    int64_t n;             /* lanes of the block at hand in the section at hand */
    int64_t outer_n;       /* lanes of the outer block */
} tci_exec;

/* ---- small things over element sizes ---- */

static void tci_exec_fill(void *out, int bytes, uint64_t bits, int64_t n)
{
    switch (bytes) {
    case 1: memset(out, (int)(bits & 0xff), (size_t)n); break;
    case 2:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b2 *)out)[i] = (uint16_t)bits;
        }
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b4 *)out)[i] = (uint32_t)bits;
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b8 *)out)[i] = bits;
        }
        break;
    }
}

static uint64_t tci_exec_peek(const void *p, int bytes)
{
    switch (bytes) {
    case 1: return *(const tci_exec_b1 *)p;
    case 2: return *(const tci_exec_b2 *)p;
    case 4: return *(const tci_exec_b4 *)p;
    default: return *(const tci_exec_b8 *)p;
    }
}

/* A group of one element. */
static void tci_exec_splat(void *out, int bytes, uint64_t bits)
{
    tci_exec_fill(out, bytes, bits, TCI_INTERP_GROUP / bytes);
}

/* out[i] = from[i * stride] for i < n. */
static void tci_exec_gather_strided(char *out, const char *from, int bytes, int64_t stride, int64_t n)
{
    if (stride == 1) {
        memcpy(out, from, (size_t)(n * bytes));
        return;
    }
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b1 *)out)[i] = ((const tci_exec_b1 *)from)[i * stride];
        }
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b2 *)out)[i] = ((const tci_exec_b2 *)from)[i * stride];
        }
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b4 *)out)[i] = ((const tci_exec_b4 *)from)[i * stride];
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b8 *)out)[i] = ((const tci_exec_b8 *)from)[i * stride];
        }
        break;
    }
}

/* to[i * stride] = from[i], or from[0] where from does not vary. */
static void tci_exec_scatter_strided(char *to, const char *from, int bytes, int64_t stride, bool vary, int64_t n)
{
    if (stride == 1 && vary) {
        memcpy(to, from, (size_t)(n * bytes));
        return;
    }
    if (stride == 1) {
        tci_exec_fill(to, bytes, tci_exec_peek(from, bytes), n);
        return;
    }
    const int64_t step = vary;
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b1 *)to)[i * stride] = ((const tci_exec_b1 *)from)[i * step];
        }
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b2 *)to)[i * stride] = ((const tci_exec_b2 *)from)[i * step];
        }
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b4 *)to)[i * stride] = ((const tci_exec_b4 *)from)[i * step];
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b8 *)to)[i * stride] = ((const tci_exec_b8 *)from)[i * step];
        }
        break;
    }
}

static int64_t tci_exec_floor_div(int64_t a, int64_t c)
{
    int64_t q = a / c;
    return a % c < 0 ? q - 1 : q;
}

/* ---- addresses and guards ---- */

static int64_t tci_exec_addr(const tci_exec *e, const tci_interp_addr *a)
{
    int64_t x = a->base;
    for (int i = 0; i < a->n_terms; i++) {
        x += a->terms[i].coef * e->axes[a->terms[i].axis];
    }
    for (int i = 0; i < a->n_atoms; i++) {
        const tci_interp_atom *atom = &a->atoms[i];
        if (atom->op == TCI_KX_VALUE) {
            x += atom->coef * *(const tci_exec_i64 *)e->ptr[atom->value];
            continue;
        }
        int64_t y = tci_exec_addr(e, atom->arg);
        int64_t q = tci_exec_floor_div(y, atom->c);
        x += atom->coef * (atom->op == TCI_KX_DIV ? q : y - q * atom->c);
    }
    return x;
}

/* Lanes [*from, *to) of n where lo <= x + i * stride <= hi. */
static void tci_exec_interval(int64_t x, int64_t stride, int64_t lo, int64_t hi, int64_t *from, int64_t *to)
{
    if (stride == 0) {
        if (x < lo || x > hi) {
            *to = *from;
        }
        return;
    }
    /* Mirrored for a negative stride: -hi <= -x + i * -stride <= -lo. */
    int64_t low = stride > 0 ? lo - x : x - hi;
    int64_t high = stride > 0 ? hi - x : x - lo;
    int64_t step = stride > 0 ? stride : -stride;
    int64_t first = -tci_exec_floor_div(-low, step);
    int64_t past = tci_exec_floor_div(high, step) + 1;
    *from = TCI_MAX(*from, first);
    *to = TCI_MAX(TCI_MIN(*to, past), *from);
}

/* Lanes [*from, *to) outside of which some guard fails. True: there, flags[] tells lane by lane. */
static bool tci_exec_guards(tci_exec *e, const tci_interp_step *st, int64_t n, int64_t *from, int64_t *to)
{
    bool blocks = false;
    *from = 0;
    *to = n;
    for (int g = 0; g < st->n_guards; g++) {
        const tci_interp_guard *guard = &st->guards[g];
        if (guard->block < 0) {
            tci_exec_interval(tci_exec_addr(e, guard->x), st->varies ? guard->x->stride : 0, guard->lo, guard->hi,
                              from, to);
        }
    }
    for (int g = 0; g < st->n_guards; g++) {
        const tci_interp_guard *guard = &st->guards[g];
        if (guard->block < 0) {
            continue;
        }
        const tci_exec_i64 *x = (const tci_exec_i64 *)e->ptr[guard->block];
        for (int64_t i = *from; i < *to; i++) {
            bool holds = x[i] >= guard->lo && x[i] <= guard->hi;
            e->flags[i] = holds && (!blocks || e->flags[i]);
        }
        blocks = true;
    }
    return blocks;
}

/* ---- steps ---- */

/* Where no loop exists: element by element through the scalar evaluator. */
static tci_value tci_exec_operand(const tci_interp_op *op, const void *const *in, const uint8_t *vary, int j, int64_t i)
{
    const char *p = (const char *)in[j] + (vary[j] ? i * op->in_bytes[j] : 0);
    if (op->prim == TCI_P_SELECT && j == 0) {
        tci_value mask = {.i = tci_exec_peek(p, op->in_bytes[0]) != 0};
        return mask;
    }
    return tci_value_load((tc_dtype)op->dtype, p);
}

static tci_value tci_exec_scalar(const tci_interp_op *op, const tci_value *a)
{
    tc_dtype t = (tc_dtype)op->dtype;
    tci_value v;
    switch (op->prim) {
    case TCI_IP_MAXIMUM: return a[0].f > a[1].f || a[0].f != a[0].f ? a[0] : a[1];
    case TCI_IP_MINIMUM: return a[0].f < a[1].f || a[0].f != a[0].f ? a[0] : a[1];
    case TCI_IP_MULADD: {
        tci_value sum[2] = {tci_prim_eval(TCI_P_MUL, t, t, 0, a), a[2]};
        return tci_prim_eval(TCI_P_ADD, t, t, 0, sum);
    }
    case TCI_IP_FROM_F16: v.f = tci_f16_bits_to_f32((uint16_t)a[0].u); return v;
    case TCI_IP_TO_F16: v.i = tci_f32_to_f16_bits((float)a[0].f); return v;
    default: return tci_prim_eval((tci_prim)op->prim, t, (tc_dtype)op->to, 0, a);
    }
}

static void tci_exec_eval(const tci_interp_op *op, void *out, const void *const *in, const uint8_t *vary, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        tci_value a[3] = {{0}};
        for (int j = 0; j < op->n_in; j++) {
            a[j] = tci_exec_operand(op, in, vary, j, i);
        }
        tci_value v = tci_exec_scalar(op, a);
        char *to = (char *)out + i * op->bytes;
        if (op->mask) {
            tci_exec_fill(to, op->bytes, v.i != 0 ? ~(uint64_t)0 : 0, 1);
        } else {
            tci_value_store((tc_dtype)op->to, to, v);
        }
    }
}

/* n lanes of an operation; a uniform result (n = 1) becomes a whole group. */
static void tci_exec_apply(const tci_interp_op *op, void *out, const void *const *in, const uint8_t *vary, int64_t n,
                           bool varies)
{
    if (op->loop && op->group) {
        op->loop(out, in, vary, (n * op->bytes + TCI_INTERP_GROUP - 1) / TCI_INTERP_GROUP);
        return;
    }
    if (op->loop) {
        op->loop(out, in, vary, n);
    } else {
        tci_exec_eval(op, out, in, vary, n);
    }
    if (!varies) {
        tci_exec_splat(out, op->bytes, tci_exec_peek(out, op->bytes));
    }
}

static void tci_exec_op(tci_exec *e, const tci_interp_step *st)
{
    const void *in[3] = {NULL, NULL, NULL};
    for (int i = 0; i < st->op.n_in; i++) {
        in[i] = e->ptr[st->in[i]];
    }
    tci_exec_apply(&st->op, e->ptr[st->out], in, st->vary, st->varies ? e->n : 1, st->varies);
}

static uint64_t tci_exec_lane_value(const tci_helper *h, const char *a, const char *b)
{
    uint64_t bits = 0;
    tci_value x = tci_value_load((tc_dtype)h->dtype, a);
    tci_value y = b ? tci_value_load((tc_dtype)h->dtype, b) : x;
    tci_value v = x;
    if (h->f32_1) {
        v.f = h->f32_1((float)x.f);
    } else if (h->f32_2) {
        v.f = h->f32_2((float)x.f, (float)y.f);
    } else if (h->f64_1) {
        v.f = h->f64_1(x.f);
    } else if (h->f64_2) {
        v.f = h->f64_2(x.f, y.f);
    } else if (h->i64_2) {
        v.i = h->i64_2(x.i, y.i);
    }
    tci_value_store((tc_dtype)h->dtype, &bits, v);
    return bits;
}

static void tci_exec_lane(tci_exec *e, const tci_interp_step *st)
{
    const tci_helper *h = tci_helper_get(st->ref);
    const int last = h->arity, bytes = st->bytes;
    const char *mask = e->ptr[st->in[last]];
    const int64_t n = st->varies ? e->n : 1;
    const int64_t mask_step = st->vary[last] ? bytes : 0;
    char *out = e->ptr[st->out];
    memset(out, 0, (size_t)(st->varies ? n * bytes : TCI_INTERP_GROUP));
    for (int64_t i = 0; i < n; i++) {
        if (mask[i * mask_step] == 0) {
            continue;
        }
        const char *a = e->ptr[st->in[0]] + (st->vary[0] ? i * bytes : 0);
        const char *b = last > 1 ? e->ptr[st->in[1]] + (st->vary[1] ? i * bytes : 0) : NULL;
        tci_exec_fill(out + i * bytes, bytes, tci_exec_lane_value(h, a, b), 1);
    }
    if (!st->varies) {
        tci_exec_splat(out, bytes, tci_exec_peek(out, bytes));
    }
}

static void tci_exec_index(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const int64_t x = tci_exec_addr(e, st->x), stride = st->x->stride;
    if (!st->varies) {
        tci_exec_splat(out, 8, (uint64_t)x);
        return;
    }
    for (int64_t i = 0; i < e->n; i++) {
        out[i] = x + i * stride;
    }
}

/* Quotient and remainder of x + i * stride by c, carried from lane to lane without a division. */
static void tci_exec_divide(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const int64_t x = tci_exec_addr(e, st->x), stride = st->x->stride, c = st->c;
    const int64_t q_step = tci_exec_floor_div(stride, c), r_step = stride - q_step * c;
    int64_t q = tci_exec_floor_div(x, c), r = x - q * c;
    for (int64_t i = 0; i < e->n; i++) {
        out[i] = st->flag ? r : q;
        q += q_step;
        r += r_step;
        if (r >= c) {
            r -= c;
            q++;
        }
    }
}

static void tci_exec_floor(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const tci_exec_i64 *in = (const tci_exec_i64 *)e->ptr[st->in[0]];
    for (int64_t i = 0; i < e->n; i++) {
        int64_t q = tci_exec_floor_div(in[i], st->c);
        out[i] = st->flag ? in[i] - q * st->c : q;
    }
}

static void tci_exec_guard(tci_exec *e, const tci_interp_step *st)
{
    char *out = e->ptr[st->out];
    int64_t from, to, n = st->varies ? e->n : 1;
    bool blocks = tci_exec_guards(e, st, n, &from, &to);
    if (!st->varies) {
        tci_exec_splat(out, 1, from < to && (!blocks || e->flags[0]) ? 0xff : 0);
        return;
    }
    memset(out, 0, (size_t)n);
    memset(out + from, 0xff, (size_t)(to - from));
    for (int64_t i = from; blocks && i < to; i++) {
        out[i] = e->flags[i] ? (char)-1 : 0;
    }
}

/* Lanes whose guard fails, or whose offset is not linear: one at a time. */
static void tci_exec_load_lanes(tci_exec *e, const tci_interp_step *st, bool flags, int64_t from, int64_t to)
{
    char *out = e->ptr[st->out];
    const char *memory = e->bufs[st->ref];
    const int bytes = st->bytes;
    const tci_exec_i64 *at = st->x ? NULL : (const tci_exec_i64 *)e->ptr[st->in[0]];
    const int64_t x = st->x ? tci_exec_addr(e, st->x) : 0, stride = st->x ? st->x->stride : 0;
    if (at && !flags && bytes == 4) {
        for (int64_t i = from; i < to; i++) {
            ((tci_exec_b4 *)out)[i] = ((const tci_exec_b4 *)memory)[at[i]];
        }
        return;
    }
    for (int64_t i = from; i < to; i++) {
        int64_t offset = at ? at[i] : x + i * stride;
        bool holds = !flags || e->flags[i];
        tci_exec_fill(out + i * bytes, bytes, holds ? tci_exec_peek(memory + offset * bytes, bytes) : st->bits, 1);
    }
}

static void tci_exec_load(tci_exec *e, const tci_interp_step *st)
{
    const int bytes = st->bytes;
    const int64_t n = st->varies ? e->n : 1;
    const char *memory = e->bufs[st->ref];
    char *own = e->workspace + e->p->values[st->out].offset;
    int64_t from, to;
    bool flags = tci_exec_guards(e, st, n, &from, &to);
    if (e->p->operand_n[st->ref] == 0) {
        to = from; /* an empty operand: an index into it was reported as a fault */
    }
    e->ptr[st->out] = own;
    if (st->flag && !flags && from == 0 && to == n && n % TCI_INTERP_GROUP == 0) {
        e->ptr[st->out] = (char *)(uintptr_t)(memory + tci_exec_addr(e, st->x) * bytes);
        return;
    }
    if (!st->varies) {
        bool holds = from < to && (!flags || e->flags[0]);
        tci_exec_splat(own, bytes, holds ? tci_exec_peek(memory + tci_exec_addr(e, st->x) * bytes, bytes) : st->bits);
        return;
    }
    tci_exec_fill(own, bytes, st->bits, from);
    tci_exec_fill(own + to * bytes, bytes, st->bits, n - to);
    if (flags || !st->x) {
        tci_exec_load_lanes(e, st, flags, from, to);
    } else if (from < to) {
        int64_t x = tci_exec_addr(e, st->x) + from * st->x->stride;
        tci_exec_gather_strided(own + from * bytes, memory + x * bytes, bytes, st->x->stride, to - from);
    }
}

static void tci_exec_store(tci_exec *e, const tci_interp_step *st)
{
    const int bytes = st->bytes;
    const char *from = e->ptr[st->in[0]];
    char *memory = e->bufs[st->ref];
    const int64_t n = st->varies ? e->n : 1;
    if (st->x) {
        char *to = memory + tci_exec_addr(e, st->x) * bytes;
        tci_exec_scatter_strided(to, from, bytes, st->x->stride, st->vary[0], n);
        return;
    }
    const tci_exec_i64 *at = (const tci_exec_i64 *)e->ptr[st->in[1]];
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = tci_exec_peek(from + (st->vary[0] ? i * bytes : 0), bytes);
        tci_exec_fill(memory + at[i] * bytes, bytes, bits, 1);
    }
}

static void tci_exec_fault(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const tci_exec_i64 *in = (const tci_exec_i64 *)e->ptr[st->in[0]];
    bool outside = false;
    for (int64_t i = 0; i < (st->varies ? e->n : 1); i++) {
        int64_t x = in[i] < 0 ? in[i] + st->c : in[i];
        if (x < 0 || x >= st->c) {
            x = x < 0 || st->c == 0 ? 0 : st->c - 1;
            outside = true;
        }
        out[i] = x;
    }
    if (!st->varies) {
        tci_exec_splat(out, 8, (uint64_t)out[0]);
    }
    if (outside && e->fault) { /* tasks of other threads may write it too; any one will do */
#if defined(__GNUC__) || defined(__clang__)
        __atomic_store_n(e->fault, st->c + 1, __ATOMIC_RELAXED);
#else
        *e->fault = st->c + 1;
#endif
    }
}

/* ---- reductions ---- */

/* ARG: candidate (v, at) against the best so far; see kernel/ir.h. Each position of acc takes the candidate of
 * its own position; steps of 0 repeat one value. */
#define TCI_EXEC_ARG(name, type)                                                                   \
    static void tci_exec_arg_##name(bool max, void *acc_at, tci_exec_i64 *best, const void *from,  \
                                    const tci_exec_i64 *index, int step, int index_step, int64_t n) \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type acc, v;                                                                           \
            memcpy(&acc, (char *)acc_at + i * (int64_t)sizeof acc, sizeof acc);                    \
            memcpy(&v, (const char *)from + i * step * (int64_t)sizeof v, sizeof v);               \
            const int64_t at = index[i * index_step];                                              \
            const bool nan = v != v;                                                               \
            bool takes = max ? v > acc : v < acc;                                                  \
            takes |= nan && acc == acc;                                                            \
            takes |= (v == acc || (nan && acc != acc)) && at < best[i];                            \
            if (takes) {                                                                           \
                memcpy((char *)acc_at + i * (int64_t)sizeof acc, &v, sizeof v);                    \
                best[i] = at;                                                                      \
            }                                                                                      \
        }                                                                                          \
    }
TCI_EXEC_ARG(f32, float)
TCI_EXEC_ARG(f64, double)
TCI_EXEC_ARG(u8, uint8_t)
TCI_EXEC_ARG(u16, uint16_t)
TCI_EXEC_ARG(u32, uint32_t)
TCI_EXEC_ARG(u64, uint64_t)
TCI_EXEC_ARG(i8, int8_t)
TCI_EXEC_ARG(i16, int16_t)
TCI_EXEC_ARG(i32, int32_t)
TCI_EXEC_ARG(i64, int64_t)
#undef TCI_EXEC_ARG

static void tci_exec_arg(const tci_interp_red *r, void *acc, void *best, const void *v, const void *index, int step,
                         int index_step, int64_t n)
{
    tci_exec_i64 *b = best;
    const tci_exec_i64 *x = index;
    switch (r->dtype) {
    case TC_F32: tci_exec_arg_f32(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_F64: tci_exec_arg_f64(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_U16: tci_exec_arg_u16(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_U32: tci_exec_arg_u32(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_U64: tci_exec_arg_u64(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_I8: tci_exec_arg_i8(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_I16: tci_exec_arg_i16(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_I32: tci_exec_arg_i32(r->max, acc, b, v, x, step, index_step, n); break;
    case TC_I64: tci_exec_arg_i64(r->max, acc, b, v, x, step, index_step, n); break;
    default: tci_exec_arg_u8(r->max, acc, b, v, x, step, index_step, n); break; /* masks order as bool */
    }
}

/* The first m lanes of acc = combine(acc, v); group loops write past m, so through the spare lanes. */
static void tci_exec_combine(tci_exec *e, const tci_interp_red *r, char *acc, const char *v, bool vary, int64_t m)
{
    const void *in[3] = {acc, v, NULL};
    const uint8_t varies[3] = {1, vary, 0};
    char *out = m == TCI_VLANES ? acc : e->spare;
    tci_exec_apply(&r->combine, out, in, varies, m, true);
    if (out != acc) {
        memcpy(acc, out, (size_t)(m * r->bytes));
    }
}

static void tci_exec_fold_lanes(tci_exec *e, const tci_interp_step *st, const tci_interp_red *r)
{
    char *acc = e->ptr[r->acc];
    const char *v = e->ptr[st->in[0]];
    for (int64_t j = 0; j < e->n; j += TCI_VLANES) {
        int64_t m = TCI_MIN(e->n - j, (int64_t)TCI_VLANES);
        const char *from = v + (st->vary[0] ? j * r->bytes : 0);
        if (r->arg) {
            const char *index = e->ptr[st->in[1]] + (st->vary[1] ? 8 * j : 0);
            tci_exec_arg(r, acc, e->ptr[r->at], from, index, st->vary[0], st->vary[1], m);
        } else {
            tci_exec_combine(e, r, acc, from, st->vary[0], m);
        }
    }
}

static void tci_exec_fold(tci_exec *e, const tci_interp_step *st)
{
    const tci_interp_red *r = &e->p->reds[st->ref];
    if (r->inner) {
        tci_exec_fold_lanes(e, st, r);
        return;
    }
    const int64_t n = st->varies ? e->n : 1;
    char *acc = e->ptr[r->acc];
    if (r->arg) {
        tci_exec_arg(r, acc, e->ptr[r->at], e->ptr[st->in[0]], e->ptr[st->in[1]], st->vary[0], st->vary[1], n);
        if (!st->varies) {
            tci_exec_splat(acc, r->bytes, tci_exec_peek(acc, r->bytes));
            tci_exec_splat(e->ptr[r->at], 8, tci_exec_peek(e->ptr[r->at], 8));
        }
        return;
    }
    if (st->in[1] >= 0) { /* DOT: a * b + acc */
        const void *in[3] = {e->ptr[st->in[0]], e->ptr[st->in[1]], acc};
        const uint8_t vary[3] = {st->vary[0], st->vary[1], st->varies};
        tci_exec_apply(&r->combine, acc, in, vary, n, st->varies);
        return;
    }
    const void *in[3] = {acc, e->ptr[st->in[0]], NULL};
    const uint8_t vary[3] = {st->varies, st->vary[0], 0};
    tci_exec_apply(&r->combine, acc, in, vary, n, st->varies);
}

static void tci_exec_red_begin(tci_exec *e, const tci_interp_red *r)
{
    bool varies = e->p->values[r->acc].varies;
    int64_t lanes = r->inner ? TCI_VLANES : varies ? e->outer_n : TCI_INTERP_GROUP / r->bytes;
    tci_exec_fill(e->ptr[r->acc], r->bytes, r->identity, lanes);
    if (r->arg) {
        int64_t index_lanes = r->inner || varies ? lanes : TCI_INTERP_GROUP / 8;
        tci_exec_fill(e->ptr[r->at], 8, (uint64_t)INT64_MAX, index_lanes);
    }
}

static void tci_exec_red_end(tci_exec *e, const tci_interp_red *r)
{
    char *acc = e->ptr[r->acc];
    if (r->inner) {
        for (int h = TCI_VLANES / 2; h > 0; h /= 2) {
            if (r->arg) {
                char *at = e->ptr[r->at];
                tci_exec_arg(r, acc, at, acc + h * r->bytes, at + h * 8, 1, 1, h);
            } else {
                tci_exec_combine(e, r, acc, acc + h * r->bytes, true, h);
            }
        }
        tci_exec_splat(e->ptr[r->result], r->arg ? 8 : r->bytes, tci_exec_peek(r->arg ? e->ptr[r->at] : acc,
                                                                               r->arg ? 8 : r->bytes));
    }
    if (r->arg) { /* nothing folded at all: index 0 */
        tci_exec_i64 *at = (tci_exec_i64 *)e->ptr[r->result];
        int64_t lanes = e->p->values[r->result].varies ? e->outer_n : TCI_INTERP_GROUP / 8;
        for (int64_t i = 0; i < lanes; i++) {
            at[i] = at[i] == INT64_MAX ? 0 : at[i];
        }
    }
}

/* ---- sections and stages ---- */

static void tci_exec_section(tci_exec *e, const tci_interp_section *section)
{
    for (int i = 0; i < section->n; i++) {
        const tci_interp_step *st = &section->steps[i];
        switch (st->kind) {
        case TCI_STEP_OP: tci_exec_op(e, st); break;
        case TCI_STEP_LOAD: tci_exec_load(e, st); break;
        case TCI_STEP_STORE: tci_exec_store(e, st); break;
        case TCI_STEP_FOLD: tci_exec_fold(e, st); break;
        case TCI_STEP_CONST: tci_exec_splat(e->ptr[st->out], st->bytes, st->bits); break;
        case TCI_STEP_LIT: {
            tci_value v = {.i = e->lits[st->ref]};
            uint64_t bits = 0;
            tci_value_store((tc_dtype)st->op.dtype, &bits, v);
            bits = st->op.dtype == TC_BOOL && v.i != 0 ? 0xff : bits;
            tci_exec_splat(e->ptr[st->out], st->bytes, bits);
            break;
        }
        case TCI_STEP_LANE: tci_exec_lane(e, st); break;
        case TCI_STEP_INDEX: tci_exec_index(e, st); break;
        case TCI_STEP_DIVIDE: tci_exec_divide(e, st); break;
        case TCI_STEP_FLOOR: tci_exec_floor(e, st); break;
        case TCI_STEP_GUARD: tci_exec_guard(e, st); break;
        default: tci_exec_fault(e, st); break;
        }
    }
}

/* Axis number `depth` of the stage, and all below it. */
static void tci_exec_nest(tci_exec *e, const tci_interp_stage *st, int depth)
{
    const int32_t axis = st->axes[depth];
    const int64_t size = e->p->sizes[axis];
    const bool last = depth == st->n_axes - 1;
    const bool blocks = last && e->p->inner;
    const int64_t step = blocks ? e->p->block : 1;
    for (int64_t j = 0; j < size; j += step) {
        e->axes[axis] = j;
        e->n = blocks ? TCI_MIN(step, size - j) : e->outer_n;
        tci_exec_section(e, &st->sections[depth + 1]);
        if (!last) {
            tci_exec_nest(e, st, depth + 1);
        }
    }
    e->n = e->outer_n;
}

static void tci_exec_stage(tci_exec *e, const tci_interp_stage *st)
{
    for (int r = 0; r < st->n_reds; r++) {
        tci_exec_red_begin(e, &e->p->reds[st->reds[r]]);
    }
    tci_exec_section(e, &st->sections[0]);
    if (st->n_axes > 0) {
        tci_exec_nest(e, st, 0);
    }
    for (int r = 0; r < st->n_reds; r++) {
        tci_exec_red_end(e, &e->p->reds[st->reds[r]]);
    }
}

static void tci_exec_block(tci_exec *e, int64_t n)
{
    e->n = e->outer_n = n;
    for (int s = 0; s < e->p->n_stages; s++) {
        tci_exec_section(e, &e->p->before[s]);
        tci_exec_stage(e, &e->p->stages[s]);
    }
}

static void tci_exec_points(tci_exec *e, int64_t begin, int64_t end)
{
    const tci_interp *p = e->p;
    while (begin < end) {
        int64_t rest = begin, n = 1;
        for (int i = p->n_outer - 1; i >= 0; i--) {
            e->axes[i] = rest % p->sizes[i];
            rest /= p->sizes[i];
        }
        if (!p->inner && p->n_outer > 0) {
            int last = p->n_outer - 1;
            n = TCI_MIN(TCI_MIN(p->sizes[last] - e->axes[last], end - begin), (int64_t)p->block);
        }
        tci_exec_block(e, n);
        begin += n;
    }
}

/* ---- the interface ---- */

TCI_FN tci_interp *tci_interp_make(const tci_kernel *k)
{
    tci_interp *p = tci_heap_get(sizeof *p);
    if (!p) {
        return NULL;
    }
    tci_scratch_init(&p->s);
    if (setjmp(p->s.escape)) {
        tci_interp_free(p);
        return NULL;
    }
    tci_interp_prepare(p, k);
    return p;
}

TCI_FN void tci_interp_free(tci_interp *p)
{
    if (p) {
        tci_scratch_free(&p->s);
        tci_heap_free(p);
    }
}

TCI_FN int64_t tci_interp_tasks(const tci_interp *p)
{
    return (p->points + p->grain - 1) / p->grain;
}

TCI_FN size_t tci_interp_workspace(const tci_interp *p)
{
    return ((size_t)p->workspace_bytes + 63) / 64 * 64;
}

TCI_FN void tci_interp_run(const tci_interp *p, void *workspace, void *const *bufs, const int64_t *lits,
                           int64_t *fault, int64_t task_begin, int64_t task_end)
{
    tci_exec e = {.p = p, .workspace = workspace, .bufs = bufs, .lits = lits, .fault = fault, .n = 1, .outer_n = 1};
    e.ptr = workspace;
    e.axes = (int64_t *)(void *)(e.workspace + p->axes_offset);
    e.flags = (uint8_t *)e.workspace + p->flags_offset;
    e.spare = e.workspace + p->spare_offset;
    for (int i = 0; i < p->n_values; i++) {
        e.ptr[i] = e.workspace + p->values[i].offset;
    }
    for (int i = 0; i < p->n_axes; i++) {
        e.axes[i] = 0;
    }
    tci_exec_section(&e, &p->constants);
    tci_exec_points(&e, task_begin * p->grain, TCI_MIN(task_end * p->grain, p->points));
}
/* ---- src/interp/reference.c ---- */

/* ---- src/compile/backend.c ---- */
/* compile/backend.c - the registry of backends, and which of them serves a set of options.
 *
 * In: structs of functions (api/backend.h) and options. Out: a tci_backend: name, functions and target.
 * The one idea: what a backend says about the machine is asked once a process and vector width, so that
 * picking one costs a lock and a comparison. "interp" is not registered: it is the absence of a struct.
 * Nothing is ever removed, so what is handed out lives as long as the process. */
#include <string.h>

/* ---- src/compile/backend.h ---- */
/* compile/backend.h - the registry behind api/backend.h, for the compile rooms. */
#ifndef TCI_COMPILE_BACKEND_H
#define TCI_COMPILE_BACKEND_H

/* ---- src/compile/code.h ---- */
/* compile/code.h - code: what one compile produced, shared and memoized; and the ways to it.
 *
 * Code is immutable once published, counted, and free of any context. It is what the disk cache stores
 * (compile/cache.c) and what a tc_program runs (run/program.c). It holds no literal values and no user
 * memory: those belong to the program that captured them. */
#ifndef TCI_COMPILE_CODE_H
#define TCI_COMPILE_CODE_H

/* ---- src/emit/target.h ---- */
/* emit/target.h - what the processor of this process can do, as the process itself sees it (under
 * valgrind or an emulator that is less than the machine). The compiler's flags follow from it. */
#ifndef TCI_EMIT_TARGET_H
#define TCI_EMIT_TARGET_H


typedef struct tci_target {
    char arch[16];        /* "x86-64", "aarch64", or "c" (scalar code only) */
    int vector_bytes;     /* 64, 32, 16, or 0: scalar code */
    bool has_fma;         /* without it generated code is refused (fma must be exact and fast) */
    bool avx2, avx512;    /* avx512: f, bw, dq, vl together */
    char features[128];   /* canonical text, part of every cache key */
    const char *flags[24]; int n_flags;  /* -m options for gcc and clang */
} tci_target;

/* cpu/target.c. vector_bits as in tc_options. */
TCI_FN void tci_target_detect(tci_target *t, int vector_bits);

#endif

/* ---- src/compile/code.h, continued ---- */
typedef struct tci_code_port { /* a program input or output */
    uint8_t dtype;
    int32_t rank;
    int64_t *shape;
    int64_t n;         /* elements */
    int64_t bytes;     /* of the memory that is touched: outputs and plain inputs dense; captured leaves may be strided */
} tci_code_port;

typedef struct tci_code_kernel {
    char *symbol;          /* C name; also in traces */
    char *note;            /* schedule, for explain */
    tci_kernel_fn fn;      /* native code; NULL: interpreted */
    tci_interp *interp;    /* set when interpreted */
    int32_t module;        /* index in modules, when not interpreted */
    void *function;        /* set when a device runs it (tci_code.device): what its launch takes */
    int64_t n_tasks;
    double task_ns;
    int64_t flops, bytes;
    int32_t n_operands, n_literals;
    bool faults;
} tci_code_kernel;

typedef struct tci_code_step {
    int32_t kernel;
    int32_t *operands;     /* buffer indices, kernel's n_operands */
    int32_t *literals;     /* program literal slots, kernel's n_literals */
} tci_code_step;

typedef struct tci_code_buffer {
    uint8_t kind;          /* tci_buffer_kind */
    int32_t index;         /* input or output number */
    int64_t offset;        /* TEMP: from the arena's start */
} tci_code_buffer;

typedef struct tci_module tci_module; /* one loaded object file; counted, process-wide (compile/cache.h) */

typedef struct tci_code {
    int32_t refs;              /* atomic */
    uint8_t *key; size_t key_bytes; tci_hash hash;
    char backend[16];          /* that runs it: "cpu", "interp" */
    const tc_backend *device;  /* launches go through it; NULL: the host runs kernels' fn or interp */
    tci_code_port *inputs; int32_t n_inputs;    /* user inputs first, then captured leaves */
    tci_code_port *outputs; int32_t n_outputs;
    int32_t n_literals;
    uint8_t *literal_dtypes;
    tci_code_kernel *kernels; int32_t n_kernels;
    tci_code_step *steps; int32_t n_steps;
    tci_code_buffer *buffers; int32_t n_buffers;
    tci_alias *aliases; int32_t n_aliases;
    int64_t arena_bytes, interp_bytes;          /* workspace of one call; interp_bytes per thread */
    char *explain;             /* text made at compile time */
    char *source;              /* generated source or NULL: ask tci_code_source */
    char *source_path;         /* where tci_code_source finds it when source is NULL */
    char *late_source;         /* atomic; heap: what it found */
    tci_module **modules; int32_t n_modules;
    tc_times times;
    bool from_disk;
    bool fallback;             /* interpreted although a native backend was asked for */
    bool used;                 /* since the memory cache last looked for what to drop */
    struct tci_code *next;     /* bucket chain of the memory cache */
    struct tci_code_chunk *chunks; /* memory of all arrays above: tci_code_get */
    char *chunk_next, *chunk_end;
} tci_code;

/* ---- compile/backend.c ---- */
/* Who compiles and where it runs. Process lifetime; detecting the target is done once a process. */
typedef struct tci_backend {
    const char *name;          /* "interp", "cpu", ... */
    const tc_backend *calls;   /* NULL: the interpreter */
    tci_target target;
    bool fallback;             /* the interpreter, though it was not asked for by name */
    char why[128];             /* fallback: the reason */
} tci_backend;
/* The backend that `o` asks for, else the best that works here. NULL: no such backend. */
TCI_FN const tci_backend *tci_backend_pick(const tc_options *o);

/* ---- compile/key.c ---- */
typedef enum tci_found { TCI_FOUND_NOWHERE, TCI_FOUND_MEMORY, TCI_FOUND_DISK } tci_found;
/* One compile request: the part of the user's graph that the roots need, in canonical order (a post-order
 * walk from the roots, inputs first), and its key. Making one copies no node, so that asking for what is
 * in the memory cache is cheap; it is valid while the user's graph does not change. */
typedef struct tci_request {
    tci_node **nodes; int n_nodes;          /* the USER graph's nodes, inputs before users */
    tci_node **inputs; int n_inputs;        /* user inputs, then captured leaves in first-use order */
    int n_user_inputs;
    tci_node **captured; int n_captured;    /* inputs + n_user_inputs: DATA and evaluated nodes */
    tci_node **literals; int n_literals;    /* LITERAL nodes, first-use order: program slot i */
    tci_node **roots; int n_roots;
    const uint8_t *key; size_t key_bytes;   /* canonical: graph, options that matter, backend, target, build */
    tci_hash hash;
    tci_found found;                        /* set by tci_compile_requests */
} tci_request;
/* Collects what `roots` need and makes the key. user_inputs NULL: the INPUT leaves in use, by creation
 * order. A node that holds an evaluated value (storage) is a leaf. Leaf strides are keyed; literal
 * values and names are not. backend and target NULL: those of tci_backend_pick(o). */
TCI_FN tci_request *tci_request_make(tci_scratch *s, tci_node *const *user_inputs, int n_inputs,
                                     tci_node *const *roots, int n_roots, const tc_options *o,
                                     const char *backend, const tci_target *target);
/* The same program as nodes of a graph in `s`, for the stages that follow; the user's graph is left alone.
 * Arrays correspond to the request's. Captured leaves become DATA nodes without storage whose offset
 * counts from the lowest address that the leaf touches. */
typedef struct tci_request_copy {
    tci_graph *graph;
    tci_node **inputs, **literals, **roots;
} tci_request_copy;
TCI_FN tci_request_copy tci_request_copy_graph(tci_scratch *s, const tci_request *r);

/* ---- compile/compile.c: THE SPINE ---- */
/* Finds (memory, disk) or makes the code of n requests, with at most two compiler processes in all. codes[i]
 * is a counted reference or NULL with statuses[i] set; returns the first failure. `log` receives text for
 * the user on failure. Escapes nothing: `s` only lends memory. */
TCI_FN tc_status tci_compile_requests(tci_scratch *s, tci_request **requests, int n, const tc_options *o,
                                      tci_code **codes, tc_status *statuses, tci_str *log);
/* Memory of an unpublished code (zeroed, freed with it); NULL: out of memory. */
TCI_FN void *tci_code_get(tci_code *c, size_t bytes);
TCI_FN void tci_code_retain(tci_code *c);
TCI_FN void tci_code_release(tci_code *c);
/* The generated source ("" when there is none): read from the disk cache at first use when the code came
 * from there. Borrowed from c. */
TCI_FN const char *tci_code_source(tci_code *c);
/* tc_shutdown's part: drops cached code that no program uses. */
TCI_FN void tci_cache_trim(void);

/* ---- process-wide counters behind tc_stats ---- */
typedef struct tci_counters {
    int64_t compiles, compiler_runs, kernels_built, memory_hits, disk_hits, misses, kernel_hits, evictions,
        cache_rejects, interpreted;
} tci_counters;
TCI_FN tci_counters *tci_counters_get(void); /* fields are changed atomically */

#endif

/* ---- src/compile/backend.h, continued ---- */
/* cpu/backend.c. */
#ifdef TCI_HAS_CPU
TCI_FN const tc_backend *tci_cpu_backend(void);
#endif

/* The dialect of that name for vectors of this width; NULL: this build does not have it. */
TCI_FN tci_dialect *tci_backend_dialect(tci_scratch *s, const char *name, int vector_bytes);

#endif

/* ---- src/compile/backend.c, continued ---- */
#define TCI_BACKEND_MAX 16
#define TCI_BACKEND_WIDTHS 5

typedef struct tci_backend_row {
    const tc_backend *calls;
    bool known[TCI_BACKEND_WIDTHS];
    tci_backend picks[TCI_BACKEND_WIDTHS];
} tci_backend_row;

static struct {
    tci_mutex lock;
    int n;
    tci_backend_row rows[TCI_BACKEND_MAX];
    bool started;
} tci_backends = {.lock = TCI_MUTEX_INIT};

static const tci_backend tci_backend_interp = {.name = "interp", .target = {.arch = "c", .features = "interp"}};
static const tci_backend tci_backend_interp_only = {
    .name = "interp", .target = {.arch = "c", .features = "interp"}, .fallback = true,
    .why = "this build has no backend that compiles (tc_cpu.h is not beside tc.h)"};

/* Caller holds the lock. */
static tci_backend_row *tci_backend_find(const char *name)
{
    if (!tci_backends.started) {
        tci_backends.started = true;
#ifdef TCI_HAS_CPU
        tci_backends.rows[tci_backends.n++].calls = tci_cpu_backend();
#endif
    }
    for (int i = 0; i < tci_backends.n; i++) {
        if (!name || !strcmp(tci_backends.rows[i].calls->name, name)) {
            return &tci_backends.rows[i];
        }
    }
    return NULL;
}

static int tci_backend_width_index(int vector_bits)
{
    static const int widths[TCI_BACKEND_WIDTHS] = {0, -1, 128, 256, 512};
    for (int i = 1; i < TCI_BACKEND_WIDTHS; i++) {
        if (vector_bits == widths[i]) {
            return i;
        }
    }
    return vector_bits < 0 ? 1 : 0;
}

static void tci_backend_ask(tci_backend *b, const tc_backend *calls, int vector_bits)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    tc_status status = calls->target(calls->user, vector_bits, &target);
    target.features[sizeof(target.features) - 1] = 0;
    target.why[sizeof(target.why) - 1] = 0;
    const char *why = NULL;
    if (tci_os_is_setuid()) {
        why = "the process runs with more rights than its user";
    } else if (status != TC_OK || !target.usable) {
        why = target.why[0] ? target.why : "the backend cannot work on this machine";
    }
    if (why) {
        *b = tci_backend_interp;
        b->fallback = true;
        memcpy(b->why, why, strlen(why) + 1);
        return;
    }
    b->name = calls->name;
    b->calls = calls;
    memcpy(b->target.arch, "c", 2);
    b->target.vector_bytes = target.vector_bytes;
    b->target.has_fma = true;
    memcpy(b->target.features, target.features, sizeof(b->target.features));
}

TCI_FN const tci_backend *tci_backend_pick(const tc_options *o)
{
    const char *name = o->backend;
    if (name && !strcmp(name, "interp")) {
        return &tci_backend_interp;
    }
    pthread_mutex_lock(&tci_backends.lock);
    tci_backend_row *row = tci_backend_find(name);
    const tci_backend *picked = row || name ? NULL : &tci_backend_interp_only;
    if (row) {
        int i = tci_backend_width_index(o->vector_bits);
        if (!row->known[i]) {
            tci_backend_ask(&row->picks[i], row->calls, o->vector_bits);
            row->known[i] = true;
        }
        picked = &row->picks[i];
    }
    pthread_mutex_unlock(&tci_backends.lock);
    return picked;
}

TCI_FN tci_dialect *tci_backend_dialect(tci_scratch *s, const char *name, int vector_bytes)
{
#ifdef TCI_HAS_CPU
    if (!strcmp(name, "c")) {
        return tci_dialect_c(s, vector_bytes);
    }
#endif
    (void)s;
    (void)name;
    (void)vector_bytes;
    return NULL;
}

static bool tci_backend_is_complete(const tc_backend *b)
{
    if (!b || !b->name || !b->name[0] || strlen(b->name) > 15 || !b->dialect) {
        return false;
    }
    if (!b->target || !b->compiler || !b->compile || !b->module_load || !b->module_find || !b->module_free) {
        return false;
    }
    bool memory = b->alloc && b->free && b->upload && b->download;
    bool no_memory = !b->alloc && !b->free && !b->upload && !b->download;
    return b->launch ? b->sync && (memory || no_memory) : no_memory;
}

TC_API tc_status tc_register_backend(const tc_backend *backend)
{
    if (!tci_backend_is_complete(backend) || !strcmp(backend->name, "interp")) {
        return TC_ERR_ARGUMENT;
    }
    tc_status status = TC_OK;
    pthread_mutex_lock(&tci_backends.lock);
    if (tci_backend_find(backend->name)) {
        status = TC_ERR_ARGUMENT;
    } else if (tci_backends.n == TCI_BACKEND_MAX) {
        status = TC_ERR_LIMIT;
    } else {
        tci_backends.rows[tci_backends.n++].calls = backend;
    }
    pthread_mutex_unlock(&tci_backends.lock);
    return status;
}

TC_API int tc_list_backends(const char **names, int room)
{
    pthread_mutex_lock(&tci_backends.lock);
    (void)tci_backend_find("");
    int n = tci_backends.n + 1;
    for (int i = 0; names && i < TCI_MIN(n, room); i++) {
        names[i] = i ? tci_backends.rows[i - 1].calls->name : "interp";
    }
    pthread_mutex_unlock(&tci_backends.lock);
    return n;
}

#undef TCI_BACKEND_MAX
#undef TCI_BACKEND_WIDTHS
/* ---- src/compile/key.c ---- */
/* compile/key.c - a compile request: what the roots need, in canonical order, and its key.
 *
 * In: roots in the user's graph, options, backend, target. Out: the nodes in a post-order walk from the
 * roots, the numbering of inputs, captured leaves and literal slots, key bytes and their hash; and, only
 * for a request that no cache knows, a copy of it in a scratch graph.
 *
 * The one idea: the walk depends on structure alone, so neither names, pointers, ids nor the order of
 * creation reach the key; and the key is written straight from the user's nodes, because most requests
 * end in the memory cache and never need the copy.
 *
 * A visited node's `pass` holds twice its place in nodes, or twice its place in inputs plus one. A node
 * counts as visited only if that place really holds it, so stale values need no clearing and an escape
 * in the middle harms nothing. Key numbers: user input i is i, nodes[j] is n_user_inputs + j. */
#include <string.h>


#ifndef TCI_BUILD
#define TCI_BUILD "rooms"
#endif

/* ---- the walk ---- */

typedef struct tci_key_frame {
    tci_node *node;
    int32_t next; /* input to look at next */
} tci_key_frame;

typedef struct tci_key_walk {
    tci_scratch *s;
    tci_request *r;
    int cap_nodes, cap_inputs, cap_literals, cap_captured;
    tci_node **captured; int n_captured;
    tci_key_frame *frames; int n_frames, cap_frames;
    bool inputs_given;
} tci_key_walk;

/* The node's number in the key, or -1 when the walk has not met it. */
static inline int tci_key_place(const tci_request *r, const tci_node *n)
{
    uintptr_t code = (uintptr_t)n->pass;
    uintptr_t at = code >> 1;
    if (code & 1) {
        return at < (uintptr_t)r->n_user_inputs && r->inputs[at] == n ? (int)at : -1;
    }
    return at < (uintptr_t)r->n_nodes && r->nodes[at] == n ? r->n_user_inputs + (int)at : -1;
}

static void tci_key_add_input(tci_key_walk *w, tci_node *n)
{
    tci_request *r = w->r;
    n->pass = (void *)((uintptr_t)r->n_user_inputs * 2 + 1);
    TCI_PUSH(w->s, r->inputs, r->n_user_inputs, w->cap_inputs, n);
}

static inline bool tci_key_is_leaf(const tci_node *n)
{
    return n->storage || n->n_in == 0;
}

/* All inputs of n have been met. */
static void tci_key_add_node(tci_key_walk *w, tci_node *n)
{
    tci_request *r = w->r;
    if (n->storage || n->op == TCI_OP_DATA) {
        TCI_PUSH(w->s, w->captured, w->n_captured, w->cap_captured, n);
    } else if (n->op == TCI_OP_LITERAL) {
        TCI_PUSH(w->s, r->literals, r->n_literals, w->cap_literals, n);
    } else if (n->op == TCI_OP_INPUT) {
        if (w->inputs_given) {
            tci_scratch_fail(w->s, TC_ERR_ARGUMENT,
                             "the outputs need input '%.60s', which is not in the list of inputs",
                             n->name ? n->name : "");
        }
        tci_key_add_input(w, n);
        return;
    }
    n->pass = (void *)((uintptr_t)r->n_nodes * 2);
    TCI_PUSH(w->s, r->nodes, r->n_nodes, w->cap_nodes, n);
}

static void tci_key_visit(tci_key_walk *w, tci_node *root)
{
    tci_key_frame start = {root, 0};
    if (tci_key_place(w->r, root) >= 0) {
        return;
    }
    TCI_PUSH(w->s, w->frames, w->n_frames, w->cap_frames, start);
    while (w->n_frames) {
        tci_key_frame *top = &w->frames[w->n_frames - 1];
        tci_node *n = top->node;
        if (tci_key_is_leaf(n) || top->next == n->n_in) {
            w->n_frames--;
            if (tci_key_place(w->r, n) < 0) {
                tci_key_add_node(w, n);
            }
            continue;
        }
        tci_node *in = n->in[top->next++];
        if (tci_key_place(w->r, in) < 0) {
            tci_key_frame frame = {in, 0};
            TCI_PUSH(w->s, w->frames, w->n_frames, w->cap_frames, frame);
        }
    }
}

/* Heap sort: no recursion, no worst case, few inputs anyway. */
static void tci_key_sift(tci_node **a, int i, int n)
{
    for (int child = 2 * i + 1; child < n; i = child, child = 2 * i + 1) {
        if (child + 1 < n && a[child + 1]->value.u > a[child]->value.u) {
            child++;
        }
        if (a[i]->value.u >= a[child]->value.u) {
            return;
        }
        tci_node *t = a[i];
        a[i] = a[child];
        a[child] = t;
    }
}

/* Inputs that the walk found go by creation: an INPUT's value counts up with each one made. */
static void tci_key_sort_inputs(tci_request *r)
{
    tci_node **a = r->inputs;
    int n = r->n_user_inputs;
    for (int i = n / 2 - 1; i >= 0; i--) {
        tci_key_sift(a, i, n);
    }
    for (int last = n - 1; last > 0; last--) {
        tci_node *t = a[0];
        a[0] = a[last];
        a[last] = t;
        tci_key_sift(a, 0, last);
    }
    for (int i = 0; i < n; i++) {
        a[i]->pass = (void *)((uintptr_t)i * 2 + 1);
    }
}

static void tci_key_walk_all(tci_key_walk *w, tci_node *const *user_inputs, int n_inputs)
{
    tci_request *r = w->r;
    w->inputs_given = user_inputs != NULL;
    for (int i = 0; user_inputs && i < n_inputs; i++) {
        if (tci_key_place(r, user_inputs[i]) >= 0) {
            tci_scratch_fail(w->s, TC_ERR_ARGUMENT, "input %d is listed twice", i);
        }
        tci_key_add_input(w, user_inputs[i]);
    }
    for (int i = 0; i < r->n_roots; i++) {
        tci_key_visit(w, r->roots[i]);
    }
    if (!user_inputs) {
        tci_key_sort_inputs(r);
    }
    r->n_inputs = r->n_user_inputs;
    for (int i = 0; i < w->n_captured; i++) {
        TCI_PUSH(w->s, r->inputs, r->n_inputs, w->cap_inputs, w->captured[i]);
    }
    r->captured = r->inputs + r->n_user_inputs;
    r->n_captured = w->n_captured;
}

/* ---- the key ---- */

typedef struct tci_key_bytes {
    tci_scratch *s;
    uint8_t *at, *end, *begin;
} tci_key_bytes;

static void tci_key_reserve(tci_key_bytes *k, size_t more)
{
    if (TCI_LIKELY((size_t)(k->end - k->at) >= more)) {
        return;
    }
    size_t n = (size_t)(k->at - k->begin);
    size_t cap = TCI_MAX(2 * n + more, (size_t)768);
    uint8_t *fresh = tci_scratch_get(k->s, cap);
    if (n) {
        memcpy(fresh, k->begin, n);
    }
    k->begin = fresh;
    k->at = fresh + n;
    k->end = fresh + cap;
}

/* Seven bits a byte, low first: small numbers, by far the most, take one byte. At most 10 bytes. */
static inline void tci_key_number(tci_key_bytes *k, uint64_t v)
{
    while (v >= 128) {
        *k->at++ = (uint8_t)(v | 128);
        v >>= 7;
    }
    *k->at++ = (uint8_t)v;
}

/* Signed: 0, -1, 1, -2 ... become 0, 1, 2, 3 ... */
static inline void tci_key_signed(tci_key_bytes *k, int64_t v)
{
    tci_key_number(k, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));
}

static void tci_key_text(tci_key_bytes *k, const char *text)
{
    size_t n = strlen(text) + 1;
    tci_key_reserve(k, n);
    memcpy(k->at, text, n);
    k->at += n;
}

static inline void tci_key_type(tci_key_bytes *k, const tci_node *n)
{
    *k->at++ = n->dtype;
    tci_key_number(k, (uint64_t)n->rank);
    for (int i = 0; i < n->rank; i++) {
        tci_key_number(k, (uint64_t)n->shape[i]);
    }
}

static bool tci_key_is_dense(const tci_node *n)
{
    int64_t stride = 1;
    for (int i = n->rank - 1; n->strides && i >= 0; i--) {
        if (n->shape[i] != 1 && n->strides[i] != stride) {
            return false;
        }
        stride *= n->shape[i];
    }
    return true;
}

static void tci_key_leaf(tci_key_bytes *k, const tci_node *n)
{
    bool dense = tci_key_is_dense(n);
    tci_key_number(k, TCI_OP_DATA);
    tci_key_type(k, n);
    *k->at++ = dense;
    for (int i = 0; !dense && i < n->rank; i++) {
        tci_key_signed(k, n->strides[i]);
    }
}

static void tci_key_node(tci_key_bytes *k, const tci_request *r, const tci_node *n)
{
    tci_key_reserve(k, 64 + 10 * ((size_t)n->rank * 2 + (size_t)n->n_in + (size_t)n->n_attr));
    if (n->storage || n->op == TCI_OP_DATA) {
        tci_key_leaf(k, n);
        return;
    }
    tci_key_number(k, n->op);
    tci_key_type(k, n);
    if (n->op == TCI_OP_CONST) {
        memcpy(k->at, &n->value, sizeof(n->value));
        k->at += sizeof(n->value);
    }
    tci_key_number(k, (uint64_t)n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        tci_key_number(k, (uint64_t)tci_key_place(r, n->in[i]));
    }
    tci_key_number(k, (uint64_t)n->n_attr);
    for (int i = 0; i < n->n_attr; i++) {
        tci_key_signed(k, n->attr[i]);
    }
}

/* Options that change what is generated. threads, limits and logs do not. */
static void tci_key_options(tci_key_bytes *k, const tc_options *o, const char *backend, const tci_target *target)
{
    tci_key_text(k, TCI_BUILD);
    tci_key_text(k, backend);
    tci_key_text(k, target->features);
    tci_key_text(k, o->cc ? o->cc : "");
    tci_key_text(k, o->dump ? o->dump : "");
    tci_key_reserve(k, 2);
    *k->at++ = (uint8_t)o->math;
    *k->at++ = (uint8_t)sizeof(void *);
}

static void tci_key_write(tci_scratch *s, tci_request *r, const tc_options *o, const char *backend,
                          const tci_target *target)
{
    tci_key_bytes k = {s, NULL, NULL, NULL};
    tci_key_options(&k, o, backend, target);
    tci_key_reserve(&k, 30);
    tci_key_number(&k, (uint64_t)r->n_user_inputs);
    tci_key_number(&k, (uint64_t)r->n_nodes);
    tci_key_number(&k, (uint64_t)r->n_roots);
    for (int i = 0; i < r->n_user_inputs; i++) {
        tci_key_reserve(&k, 16 + 10 * (size_t)r->inputs[i]->rank);
        tci_key_type(&k, r->inputs[i]);
    }
    for (int i = 0; i < r->n_nodes; i++) {
        tci_key_node(&k, r, r->nodes[i]);
    }
    tci_key_reserve(&k, 10 * (size_t)r->n_roots);
    for (int i = 0; i < r->n_roots; i++) {
        tci_key_number(&k, (uint64_t)tci_key_place(r, r->roots[i]));
    }
    r->key = k.begin;
    r->key_bytes = (size_t)(k.at - k.begin);
    r->hash = tci_hash_bytes(r->key, r->key_bytes);
}

TCI_FN tci_request *tci_request_make(tci_scratch *s, tci_node *const *user_inputs, int n_inputs,
                                     tci_node *const *roots, int n_roots, const tc_options *o,
                                     const char *backend, const tci_target *target)
{
    if (!backend || !target) {
        const tci_backend *b = tci_backend_pick(o);
        if (!b) {
            tci_scratch_fail(s, TC_ERR_BACKEND, "there is no backend '%.40s'", o->backend);
        }
        backend = b->name;
        target = &b->target;
    }
    tci_request *r = TCI_NEW(s, tci_request);
    r->roots = tci_scratch_copy(s, roots, sizeof(*roots) * (size_t)n_roots);
    r->n_roots = n_roots;
    tci_key_walk w;
    memset(&w, 0, sizeof(w));
    w.s = s;
    w.r = r;
    tci_key_walk_all(&w, user_inputs, n_inputs);
    tci_key_write(s, r, o, backend, target);
    return r;
}

/* ---- the copy ---- */

static tci_node *tci_key_copy_leaf(tci_scratch *s, tci_graph *g, const tci_node *n)
{
    tci_node *leaf = tci_graph_node(g, TCI_OP_DATA, (tc_dtype)n->dtype, n->rank, n->shape, 0, NULL, 0, NULL);
    if (!tci_key_is_dense(n) && tci_node_count(n) > 0) {
        leaf->strides = tci_scratch_copy(s, n->strides, sizeof(tci_dim) * (size_t)n->rank);
        for (int i = 0; i < n->rank; i++) {
            leaf->offset -= n->strides[i] < 0 ? (n->shape[i] - 1) * n->strides[i] : 0;
        }
    }
    return leaf;
}

static tci_node *tci_key_copy_node(tci_scratch *s, tci_graph *g, const tci_request *r, const tci_node *n,
                                   tci_node **places)
{
    if (n->storage || n->op == TCI_OP_DATA) {
        return tci_key_copy_leaf(s, g, n);
    }
    if (n->op == TCI_OP_CONST) {
        return tci_graph_const(g, (tc_dtype)n->dtype, n->value);
    }
    tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = places[tci_key_place(r, n->in[i])];
    }
    return tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, n->n_in, in, n->n_attr, n->attr);
}

/* Values of literals stay behind: a stage that looked at one would make code that is wrong for the next. */
TCI_FN tci_request_copy tci_request_copy_graph(tci_scratch *s, const tci_request *r)
{
    tci_request_copy c;
    c.graph = TCI_NEW(s, tci_graph);
    tci_graph_init(c.graph, s, NULL);
    c.inputs = TCI_NEW_ARRAY(s, tci_node *, r->n_inputs);
    c.literals = TCI_NEW_ARRAY(s, tci_node *, r->n_literals);
    c.roots = TCI_NEW_ARRAY(s, tci_node *, r->n_roots);
    tci_node **places = TCI_NEW_ARRAY(s, tci_node *, r->n_user_inputs + r->n_nodes);
    for (int i = 0; i < r->n_user_inputs; i++) {
        const tci_node *n = r->inputs[i];
        c.inputs[i] = tci_graph_node(c.graph, TCI_OP_INPUT, (tc_dtype)n->dtype, n->rank, n->shape, 0, NULL, 0, NULL);
        c.inputs[i]->name = tci_scratch_printf(s, "in%d", i);
        places[i] = c.inputs[i];
    }
    int n_captured = 0, n_literals = 0;
    for (int i = 0; i < r->n_nodes; i++) {
        const tci_node *n = r->nodes[i];
        tci_node *copy = tci_key_copy_node(s, c.graph, r, n, places);
        places[r->n_user_inputs + i] = copy;
        if (n->storage || n->op == TCI_OP_DATA) {
            c.inputs[r->n_user_inputs + n_captured++] = copy;
        } else if (n->op == TCI_OP_LITERAL) {
            c.literals[n_literals++] = copy;
        }
    }
    for (int i = 0; i < r->n_roots; i++) {
        c.roots[i] = places[tci_key_place(r, r->roots[i])];
    }
    return c;
}
/* ---- src/compile/cache.c ---- */
/* compile/cache.c - the memory cache: code by program key, kernels by kernel key, and who compiles what.
 *
 * In: keys. Out: counted references to code that any thread may run.
 * The one idea: one lock guards four small tables and is held for look-ups and list surgery only. A key
 * that is being compiled stands in the list of claims; whoever else wants it waits on the condition and
 * looks again, so the same key is compiled once however many threads ask, and a failure leaves no trace.
 *
 * Invariants: the cache holds one reference of each code in its table, a code one of each of its modules.
 * A code that left the table lives on with its programs. Module counts change under the lock only; a
 * module that nobody holds leaves the list before it is unloaded. Full keys are compared, never hashes alone. */
/* ---- src/compile/cache.h ---- */
/* compile/cache.h - what compiles share inside the process: code, loaded modules, kernels in them, and
 * which keys are being compiled right now. One lock, never held across a compile or a file access. */
#ifndef TCI_COMPILE_CACHE_H
#define TCI_COMPILE_CACHE_H


/* ---- code ---- */
TCI_FN tci_code *tci_code_make(void);                       /* unpublished, refs 1; NULL: out of memory */
/* What runs kernel k: a host function, or a device's handle. */
TCI_FN void tci_code_set_function(tci_code *c, tci_code_kernel *k, const tc_backend *calls, void *function);
TCI_FN char *tci_code_copy_text(tci_code *c, const char *text); /* NULL: out of memory */

typedef enum tci_claim_result { TCI_CLAIM_FOUND, TCI_CLAIM_OURS, TCI_CLAIM_BUSY } tci_claim_result;
/* A key being compiled; lives with its owner between claim and settle. */
typedef struct tci_claim {
    const tci_request *request;
    struct tci_claim *next;
} tci_claim;

/* Counted reference to the code of that key, or NULL. native: interpreted fallbacks do not count. */
TCI_FN tci_code *tci_cache_find(const tci_request *r, bool native);
/* Finds it, or makes this caller the only one to compile that key (until tci_cache_settle), or says that
 * somebody else is at it. */
TCI_FN tci_claim_result tci_cache_claim(tci_claim *claim, const tci_request *r, bool native, tci_code **code);
/* Ends a claim and wakes who waits. code: published in place of what has the same key; the cache takes a
 * reference of its own. NULL: the compile failed. */
TCI_FN void tci_cache_settle(tci_claim *claim, tci_code *code);
/* Waits until nobody is compiling that key. */
TCI_FN void tci_cache_wait(const tci_request *r);

/* ---- modules and the kernels in them ---- */
/* What a launch needs to know of a built kernel; texts belong to whoever holds the record. */
typedef struct tci_kernel_record {
    const char *symbol, *note;
    int64_t n_tasks;
    double task_ns;
} tci_kernel_record;

/* A kernel that a loaded module offers to later compiles. */
typedef struct tci_module_kernel {
    tci_hash hash;
    const uint8_t *key; size_t key_bytes;
    tci_kernel_record record;
    void *function;
    struct tci_module *module;
    struct tci_module_kernel *next; /* bucket chain */
} tci_module_kernel;

struct tci_module {
    int32_t refs;              /* under the cache's lock */
    const tc_backend *calls;   /* that loaded it */
    void *handle;
    char *path;                /* never used for another file in this process: dlopen goes by path */
    int64_t bytes;             /* of the file, with its hash: compared before it is loaded again */
    tci_hash sum;
    int n_kernels;             /* that it offers */
    bool stored;               /* the file lies in a disk cache */
    tci_code *memory;          /* owns this struct, path, kernels and their texts */
    struct tci_module *next;
};

/* The loaded module of that path, retained, or NULL. */
TCI_FN tci_module *tci_module_find(const char *path);
/* Loads a file. NULL: it cannot be loaded (why says so) or out of memory. Somebody who loaded the same
 * path meanwhile wins. The module comes retained. */
TCI_FN tci_module *tci_module_load(const tc_backend *calls, const char *path, int64_t bytes, tci_hash sum,
                                   char why[256]);
TCI_FN void tci_module_retain(tci_module *m);
TCI_FN void tci_module_release(tci_module *m);
/* Offers a kernel of m to later compiles; copies everything. Out of memory: it is not offered. */
TCI_FN void tci_module_offer(tci_module *m, const void *key, size_t key_bytes, tci_hash hash,
                             const tci_kernel_record *record, void *function);
/* A kernel of that key in some loaded module of that backend; its module is retained. False: none. */
TCI_FN bool tci_module_find_kernel(const tc_backend *calls, const void *key, size_t key_bytes, tci_hash hash,
                                   tci_module_kernel *found);

#endif

/* ---- src/compile/cache.c, continued ---- */
#include <string.h>


enum {
    TCI_CACHE_FIRST_CAP = 4096,  /* codes kept before unused ones are dropped */
    TCI_CACHE_BUCKETS = 1024,
    TCI_CACHE_CHUNK_BYTES = 4096
};

static struct {
    tci_mutex lock;
    tci_cond settled;
    tci_code *codes[TCI_CACHE_BUCKETS];
    int n_codes, cap_codes;
    tci_claim *claims;
    tci_module *modules;
    tci_module_kernel *kernels[TCI_CACHE_BUCKETS];
} tci_cache = {.lock = TCI_MUTEX_INIT, .settled = TCI_COND_INIT, .cap_codes = TCI_CACHE_FIRST_CAP};

TCI_FN tci_counters *tci_counters_get(void)
{
    static tci_counters counters;
    return &counters;
}

#define TCI_CACHE_COUNT(field) __atomic_add_fetch(&tci_counters_get()->field, 1, __ATOMIC_RELAXED)

/* ---- code ---- */

struct tci_code_chunk {
    struct tci_code_chunk *older;
    size_t bytes;
};

TCI_FN void *tci_code_get(tci_code *c, size_t bytes)
{
    if (bytes > SIZE_MAX / 4) {
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    if ((size_t)(c->chunk_end - c->chunk_next) < bytes) {
        size_t size = TCI_MAX(bytes, (size_t)TCI_CACHE_CHUNK_BYTES);
        struct tci_code_chunk *chunk = tci_heap_get(sizeof(*chunk) + size);
        if (!chunk) {
            return NULL;
        }
        chunk->older = c->chunks;
        chunk->bytes = size;
        c->chunks = chunk;
        c->chunk_next = (char *)(chunk + 1);
        c->chunk_end = c->chunk_next + size;
    }
    void *p = c->chunk_next;
    c->chunk_next += bytes;
    return p;
}

TCI_FN char *tci_code_copy_text(tci_code *c, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = tci_code_get(c, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

TCI_FN tci_code *tci_code_make(void)
{
    tci_code *c = tci_heap_get(sizeof(*c));
    if (c) {
        c->refs = 1;
    }
    return c;
}

TCI_FN void tci_code_set_function(tci_code *c, tci_code_kernel *k, const tc_backend *calls, void *function)
{
    if (calls->launch) {
        c->device = calls;
        k->function = function;
    } else {
        /* An object pointer that holds a function's address, as dlsym gives it. */
        memcpy(&k->fn, &function, sizeof(k->fn));
    }
}

TCI_FN void tci_code_retain(tci_code *c)
{
    __atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_code_release(tci_code *c)
{
    if (!c || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    for (int i = 0; i < c->n_kernels; i++) {
        if (c->kernels[i].interp) {
            tci_interp_free(c->kernels[i].interp);
        }
    }
    for (int i = 0; i < c->n_modules; i++) {
        tci_module_release(c->modules[i]);
    }
    tci_heap_free(c->late_source);
    while (c->chunks) {
        struct tci_code_chunk *older = c->chunks->older;
        tci_heap_free(c->chunks);
        c->chunks = older;
    }
    tci_heap_free(c);
}

/* Two threads may read the file at once; the first text stays, as pointers to it may be out. */
TCI_FN const char *tci_code_source(tci_code *c)
{
    if (c->source) {
        return c->source;
    }
    char *text = __atomic_load_n(&c->late_source, __ATOMIC_ACQUIRE);
    tci_str file = {0};
    if (text || !c->source_path || !tci_os_read_private(c->source_path, &file, NULL)) {
        tci_str_free(&file);
        return text ? text : "";
    }
    char *none = NULL;
    if (__atomic_compare_exchange_n(&c->late_source, &none, file.text, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        return file.text;
    }
    tci_str_free(&file);
    return none;
}

/* ---- the table of code; the caller holds the lock ---- */

static tci_code **tci_cache_slot(const tci_request *r)
{
    tci_code **at = &tci_cache.codes[r->hash.lo % TCI_CACHE_BUCKETS];
    while (*at) {
        tci_code *c = *at;
        if (c->hash.lo == r->hash.lo && c->hash.hi == r->hash.hi && c->key_bytes == r->key_bytes
            && !memcmp(c->key, r->key, r->key_bytes)) {
            break;
        }
        at = &c->next;
    }
    return at;
}

static tci_code *tci_cache_look_up(const tci_request *r, bool native)
{
    tci_code *c = *tci_cache_slot(r);
    if (!c || (native && c->fallback)) {
        return NULL;
    }
    c->used = true;
    tci_code_retain(c);
    return c;
}

/* Unlinks what only the table holds, or (all false) of that what was not used since the last time. The
 * caller releases the chain after it has let go of the lock. */
static tci_code *tci_cache_collect(bool all)
{
    tci_code *dropped = NULL;
    for (int i = 0; i < TCI_CACHE_BUCKETS; i++) {
        tci_code **at = &tci_cache.codes[i];
        while (*at) {
            tci_code *c = *at;
            bool used = c->used && !all;
            c->used = false;
            if (used || __atomic_load_n(&c->refs, __ATOMIC_ACQUIRE) > 1) {
                at = &c->next;
                continue;
            }
            *at = c->next;
            c->next = dropped;
            dropped = c;
            tci_cache.n_codes--;
        }
    }
    return dropped;
}

static void tci_cache_release_chain(tci_code *c)
{
    while (c) {
        tci_code *next = c->next;
        tci_code_release(c);
        c = next;
    }
}

TCI_FN void tci_cache_trim(void)
{
    pthread_mutex_lock(&tci_cache.lock);
    tci_code *dropped = tci_cache_collect(true);
    tci_cache.cap_codes = TCI_CACHE_FIRST_CAP;
    pthread_mutex_unlock(&tci_cache.lock);
    tci_cache_release_chain(dropped);
}

TCI_FN tci_code *tci_cache_find(const tci_request *r, bool native)
{
    pthread_mutex_lock(&tci_cache.lock);
    tci_code *c = tci_cache_look_up(r, native);
    pthread_mutex_unlock(&tci_cache.lock);
    return c;
}

/* ---- claims ---- */

static bool tci_cache_is_claimed(const tci_request *r)
{
    for (const tci_claim *c = tci_cache.claims; c; c = c->next) {
        const tci_request *other = c->request;
        if (other->hash.lo == r->hash.lo && other->key_bytes == r->key_bytes
            && !memcmp(other->key, r->key, r->key_bytes)) {
            return true;
        }
    }
    return false;
}

TCI_FN tci_claim_result tci_cache_claim(tci_claim *claim, const tci_request *r, bool native, tci_code **code)
{
    tci_claim_result result = TCI_CLAIM_FOUND;
    pthread_mutex_lock(&tci_cache.lock);
    *code = tci_cache_look_up(r, native);
    if (!*code && tci_cache_is_claimed(r)) {
        result = TCI_CLAIM_BUSY;
    } else if (!*code) {
        result = TCI_CLAIM_OURS;
        claim->request = r;
        claim->next = tci_cache.claims;
        tci_cache.claims = claim;
    }
    pthread_mutex_unlock(&tci_cache.lock);
    return result;
}

TCI_FN void tci_cache_settle(tci_claim *claim, tci_code *code)
{
    tci_code *dropped = NULL;
    tci_code *replaced = NULL;
    pthread_mutex_lock(&tci_cache.lock);
    tci_claim **at = &tci_cache.claims;
    while (*at != claim) {
        at = &(*at)->next;
    }
    *at = claim->next;
    if (code) {
        if (tci_cache.n_codes >= tci_cache.cap_codes) {
            dropped = tci_cache_collect(false);
            tci_cache.cap_codes = TCI_MAX((int)TCI_CACHE_FIRST_CAP, 2 * tci_cache.n_codes);
        }
        tci_code **slot = tci_cache_slot(claim->request);
        replaced = *slot;
        if (replaced) {
            *slot = replaced->next;
            replaced->next = NULL;
            tci_cache.n_codes--;
        }
        tci_code_retain(code);
        code->used = true;
        code->next = tci_cache.codes[code->hash.lo % TCI_CACHE_BUCKETS];
        tci_cache.codes[code->hash.lo % TCI_CACHE_BUCKETS] = code;
        tci_cache.n_codes++;
    }
    pthread_cond_broadcast(&tci_cache.settled);
    pthread_mutex_unlock(&tci_cache.lock);
    for (const tci_code *c = dropped; c; c = c->next) {
        TCI_CACHE_COUNT(evictions);
    }
    tci_cache_release_chain(dropped);
    tci_code_release(replaced);
}

TCI_FN void tci_cache_wait(const tci_request *r)
{
    pthread_mutex_lock(&tci_cache.lock);
    while (tci_cache_is_claimed(r)) {
        pthread_cond_wait(&tci_cache.settled, &tci_cache.lock);
    }
    pthread_mutex_unlock(&tci_cache.lock);
}

/* ---- modules ---- */

/* The caller holds the lock. */
static tci_module *tci_module_look_up(const char *path)
{
    tci_module *m = tci_cache.modules;
    while (m && strcmp(m->path, path)) {
        m = m->next;
    }
    if (m) {
        m->refs++;
    }
    return m;
}

TCI_FN tci_module *tci_module_find(const char *path)
{
    pthread_mutex_lock(&tci_cache.lock);
    tci_module *m = tci_module_look_up(path);
    pthread_mutex_unlock(&tci_cache.lock);
    return m;
}

static void tci_module_free(tci_module *m)
{
    if (m->handle) {
        m->calls->module_free(m->calls->user, m->handle);
    }
    tci_code_release(m->memory);
}

static tci_module *tci_module_open(const tc_backend *calls, const char *path, char why[256])
{
    tci_code *memory = tci_code_make();
    tci_module *m = memory ? tci_code_get(memory, sizeof(*m)) : NULL;
    char *copy = m ? tci_code_copy_text(memory, path) : NULL;
    if (!copy) {
        tci_code_release(memory);
        strcpy(why, "out of memory");
        return NULL;
    }
    m->refs = 1;
    m->calls = calls;
    m->path = copy;
    m->memory = memory;
    if (calls->module_load(calls->user, path, &m->handle) != TC_OK) {
        const char *text = calls->last_error ? calls->last_error(calls->user) : "";
        snprintf(why, 256, "%s", text[0] ? text : "the module cannot be loaded");
        m->handle = NULL;
        tci_module_free(m);
        return NULL;
    }
    return m;
}

TCI_FN tci_module *tci_module_load(const tc_backend *calls, const char *path, int64_t bytes, tci_hash sum,
                                   char why[256])
{
    tci_module *m = tci_module_find(path);
    if (m) {
        return m;
    }
    m = tci_module_open(calls, path, why);
    if (!m) {
        return NULL;
    }
    m->bytes = bytes;
    m->sum = sum;
    pthread_mutex_lock(&tci_cache.lock);
    tci_module *other = tci_module_look_up(path);
    if (!other) {
        m->next = tci_cache.modules;
        tci_cache.modules = m;
    }
    pthread_mutex_unlock(&tci_cache.lock);
    if (other) {
        tci_module_free(m);
        return other;
    }
    return m;
}

TCI_FN void tci_module_retain(tci_module *m)
{
    pthread_mutex_lock(&tci_cache.lock);
    m->refs++;
    pthread_mutex_unlock(&tci_cache.lock);
}

/* The caller holds the lock. */
static void tci_module_unlink(tci_module *m)
{
    tci_module **at = &tci_cache.modules;
    while (*at != m) {
        at = &(*at)->next;
    }
    *at = m->next;
    for (int i = 0; i < TCI_CACHE_BUCKETS && m->n_kernels; i++) {
        tci_module_kernel **k = &tci_cache.kernels[i];
        while (*k) {
            if ((*k)->module == m) {
                *k = (*k)->next;
                m->n_kernels--;
            } else {
                k = &(*k)->next;
            }
        }
    }
}

TCI_FN void tci_module_release(tci_module *m)
{
    pthread_mutex_lock(&tci_cache.lock);
    bool last = --m->refs == 0;
    if (last) {
        tci_module_unlink(m);
    }
    pthread_mutex_unlock(&tci_cache.lock);
    if (last) {
        tci_module_free(m);
    }
}

/* ---- kernels ---- */

/* The caller holds the lock. */
static tci_module_kernel *tci_module_look_up_kernel(const tc_backend *calls, const void *key, size_t key_bytes,
                                                    tci_hash hash)
{
    tci_module_kernel *k = tci_cache.kernels[hash.lo % TCI_CACHE_BUCKETS];
    while (k && (k->hash.lo != hash.lo || k->hash.hi != hash.hi || k->module->calls != calls
                 || k->key_bytes != key_bytes || memcmp(k->key, key, key_bytes))) {
        k = k->next;
    }
    return k;
}

TCI_FN void tci_module_offer(tci_module *m, const void *key, size_t key_bytes, tci_hash hash,
                             const tci_kernel_record *record, void *function)
{
    pthread_mutex_lock(&tci_cache.lock);
    if (!tci_module_look_up_kernel(m->calls, key, key_bytes, hash)) {
        tci_module_kernel *k = tci_code_get(m->memory, sizeof(*k));
        uint8_t *key_copy = k ? tci_code_get(m->memory, key_bytes) : NULL;
        char *symbol = key_copy ? tci_code_copy_text(m->memory, record->symbol) : NULL;
        char *note = symbol ? tci_code_copy_text(m->memory, record->note) : NULL;
        if (note) {
            memcpy(key_copy, key, key_bytes);
            k->hash = hash;
            k->key = key_copy;
            k->key_bytes = key_bytes;
            k->record = *record;
            k->record.symbol = symbol;
            k->record.note = note;
            k->function = function;
            k->module = m;
            k->next = tci_cache.kernels[hash.lo % TCI_CACHE_BUCKETS];
            tci_cache.kernels[hash.lo % TCI_CACHE_BUCKETS] = k;
            m->n_kernels++;
        }
    }
    pthread_mutex_unlock(&tci_cache.lock);
}

TCI_FN bool tci_module_find_kernel(const tc_backend *calls, const void *key, size_t key_bytes, tci_hash hash,
                                   tci_module_kernel *found)
{
    pthread_mutex_lock(&tci_cache.lock);
    tci_module_kernel *k = tci_module_look_up_kernel(calls, key, key_bytes, hash);
    if (k) {
        *found = *k;
        k->module->refs++;
    }
    pthread_mutex_unlock(&tci_cache.lock);
    return k != NULL;
}

#undef TCI_CACHE_COUNT
/* ---- src/compile/disk.c ---- */
/* compile/disk.c - the disk cache: entries, their checks, and the size cap.
 *
 * In: code and kernels just built, or keys wanted. Out: files, or loaded code. A directory holds
 *   tc-p-HASH.bin   one program: its whole key and the code, but for machine code
 *   tc-k-HASH.bin   one kernel: its whole key and in which object file it is
 *   tc-m-HASH.so    an object file;  tc-m-HASH.c its source. HASH is new for every build: the loader goes
 *                   by path, and racing processes must never write the same file
 *
 * The one idea: nothing read is believed. Directory and files must be ours (base/os.c), an entry's header
 * must be exactly what we would have written, its payload must have the recorded hash, the full key must
 * be the one asked for, and an object file must have the size and hash its entry says. What fails is
 * counted, removed, and compiled again. Files appear by rename, so a reader sees all of one or none;
 * an entry whose object was evicted is a miss. Every failure to write is harmless: the code stays in memory.
 *
 * One function describes an entry both ways (tci_wire): what is written is what is read. */
/* ---- src/compile/disk.h ---- */
/* compile/disk.h - the disk cache: programs, kernels and object files that outlive the process. */
#ifndef TCI_COMPILE_DISK_H
#define TCI_COMPILE_DISK_H


/* The cache directory of one compile, judged when it is opened. */
typedef struct tci_disk {
    const tc_options *options;
    tci_str dir;               /* heap */
    bool readable, writable;   /* writable only when readable */
    int64_t cap_bytes;
} tci_disk;

TCI_FN void tci_disk_open(tci_disk *d, const tc_options *o);
TCI_FN void tci_disk_close(tci_disk *d);

/* The code of that key with all its kernels loaded, or NULL. */
TCI_FN tci_code *tci_disk_load_code(const tci_disk *d, const tci_request *r, const tc_backend *calls);
TCI_FN void tci_disk_store_code(const tci_disk *d, tci_code *c, const tc_backend_compiler *compiler);

/* A kernel of that key in an object file of this cache; its module is retained. */
TCI_FN bool tci_disk_load_kernel(const tci_disk *d, const tc_backend *calls, const void *key, size_t key_bytes,
                                 tci_hash hash, tci_module_kernel *found);
TCI_FN void tci_disk_store_kernel(const tci_disk *d, const tci_module_kernel *k,
                                  const tc_backend_compiler *compiler);

/* Puts an object file and its source under a new name into the cache. False: it could not be written.
 * path (heap) is then where the object lies. */
TCI_FN bool tci_disk_store_object(const tci_disk *d, tci_hash name, const tci_str *object, const tci_str *source,
                                  tci_str *path);
/* Brings the directory under its cap, oldest use first. Cheap when little was written since. */
TCI_FN void tci_disk_evict(const tci_disk *d, int64_t written_bytes);

#endif

/* ---- src/compile/disk.c, continued ---- */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- src/debug/dump.h ---- */
/* debug/dump.h - what the compile shows on request: log lines by topic, and files of each stage. */
#ifndef TCI_DEBUG_DUMP_H
#define TCI_DEBUG_DUMP_H


/* Topics: compile, cache, fusion, recompiles, source. True when somebody listens (options.log or TC_LOG). */
TCI_FN bool tci_log_wants(const tc_options *o, const char *topic);
/* One text to the user's callback and, with TC_LOG, a line to stderr. */
TCI_FN void tci_log(const tc_options *o, const char *topic, const char *format, ...) TCI_PRINTF(3, 4);

/* Where the dumps of one compile go. */
typedef struct tci_dump {
    const char *stages; /* "graph,plan" or "all"; NULL: nothing is dumped */
    tci_str dir;        /* heap */
} tci_dump;
/* The first program of a process goes to the dump directory itself, the n-th into its folder n. */
TCI_FN void tci_dump_begin(tci_dump *d, const tc_options *o);
TCI_FN void tci_dump_end(tci_dump *d);
TCI_FN bool tci_dump_wants(const tci_dump *d, const char *stage);
/* Writes the text to DIR/file. Failures are ignored: a dump never makes a compile fail. */
TCI_FN void tci_dump_file(const tci_dump *d, const char *file, const tci_str *text);

#endif

/* ---- src/compile/disk.c, continued ---- */
#define TCI_DISK_FORMAT 0x0000000104030201u /* format 1; also tells the byte order */
#define TCI_DISK_PROGRAM 0x31676f72702d6374u /* "tc-prog1" */
#define TCI_DISK_KERNEL 0x316e72656b2d6374u  /* "tc-kern1" */
#define TCI_DISK_COUNT(field) __atomic_add_fetch(&tci_counters_get()->field, 1, __ATOMIC_RELAXED)

enum { TCI_DISK_HEADER_BYTES = 64, TCI_DISK_DEFAULT_MB = 256, TCI_DISK_NAME_BYTES = 64 };

/* ---- the directory ---- */

static bool tci_disk_choose_dir(const tc_options *o, tci_str *dir)
{
    const char *given = o->cache_dir ? o->cache_dir : tci_env_get(TCI_ENV_CACHE_DIR);
    const char *cache_home = tci_env_get(TCI_ENV_HOME_CACHE);
    const char *home = tci_env_get(TCI_ENV_HOME);
    if (given && given[0]) {
        tci_str_add(dir, given);
    } else if (cache_home && cache_home[0] == '/') {
        tci_str_printf(dir, "%s/tc", cache_home);
    } else if (home && home[0] == '/') {
        tci_str_printf(dir, "%s/.cache/tc", home);
    }
    return dir->n > 0 && !dir->failed;
}

TCI_FN void tci_disk_open(tci_disk *d, const tc_options *o)
{
    memset(d, 0, sizeof(*d));
    d->options = o;
    if (o->no_disk_cache || tci_env_int(TCI_ENV_NO_CACHE, 0)) {
        return;
    }
    if (!tci_disk_choose_dir(o, &d->dir)) {
        tci_log(o, "cache", "no disk cache: neither a directory nor HOME is set");
        return;
    }
    d->readable = tci_os_private_dir(d->dir.text, &d->writable);
    if (!d->readable) {
        d->writable = false;
        tci_log(o, "cache", "no disk cache: '%s' is not a directory of this user alone that may hold code",
                d->dir.text);
    }
    d->writable = d->writable && !o->cache_read_only;
    int64_t mb = tci_env_int(TCI_ENV_CACHE_MB, TCI_DISK_DEFAULT_MB);
    d->cap_bytes = o->cache_bytes > 0 ? o->cache_bytes : TCI_MAX(mb, (int64_t)1) << 20;
}

TCI_FN void tci_disk_close(tci_disk *d)
{
    tci_str_free(&d->dir);
    d->readable = d->writable = false;
}

/* kind 'p', 'k' or 'm'. */
static void tci_disk_name(char name[TCI_DISK_NAME_BYTES], char kind, tci_hash hash, const char *end)
{
    char hex[33];
    tci_hash_hex(hash, hex);
    snprintf(name, TCI_DISK_NAME_BYTES, "tc-%c-%s.%s", kind, hex, end);
}

static void tci_disk_path(const tci_disk *d, const char *name, tci_str *path)
{
    path->n = 0;
    tci_str_printf(path, "%s/%s", d->dir.text, name);
}

static void tci_disk_reject(const tci_disk *d, const char *path, const char *why)
{
    TCI_DISK_COUNT(cache_rejects);
    tci_log(d->options, "cache", "refused '%s': %s", path, why);
    if (d->writable) {
        tci_os_remove(path);
    }
}

/* ---- wire: one description for both directions ---- */

typedef struct tci_wire {
    tci_str *out;                /* writing; NULL: reading */
    const uint8_t *at, *end;     /* reading */
    tci_code *memory;            /* reading: what arrays and texts come from */
    bool bad;                    /* a breach or no memory: all that follows is void */
} tci_wire;

static void tci_wire_bytes(tci_wire *w, void *bytes, size_t n)
{
    if (w->out) {
        tci_str_add_n(w->out, bytes, n);
    } else if (w->bad || (size_t)(w->end - w->at) < n) {
        w->bad = true;
        memset(bytes, 0, n);
    } else {
        memcpy(bytes, w->at, n);
        w->at += n;
    }
}

static int64_t tci_wire_word(tci_wire *w, int64_t v)
{
    tci_wire_bytes(w, &v, sizeof(v));
    return v;
}

/* A number that must lie in [lo, hi]. */
static int64_t tci_wire_range(tci_wire *w, int64_t v, int64_t lo, int64_t hi)
{
    v = tci_wire_word(w, v);
    if (v < lo || v > hi) {
        w->bad = true;
        return lo;
    }
    return v;
}

/* A count of items that take at least item_bytes each in the entry, so that a damaged count cannot ask
 * for more memory than the entry has bytes. */
static int32_t tci_wire_count(tci_wire *w, int64_t n, size_t item_bytes)
{
    int64_t most = w->out ? INT32_MAX : (int64_t)((size_t)(w->end - w->at) / item_bytes);
    return (int32_t)tci_wire_range(w, n, 0, TCI_MIN(most, (int64_t)INT32_MAX));
}

/* The array of a list: the one given when writing, a fresh one when reading. */
static void *tci_wire_array(tci_wire *w, void *items, int32_t n, size_t item_bytes)
{
    if (w->out) {
        return items;
    }
    void *fresh = tci_code_get(w->memory, (size_t)n * item_bytes);
    w->bad |= !fresh;
    return fresh;
}

static char *tci_wire_text(tci_wire *w, char *text)
{
    int32_t n = tci_wire_count(w, text ? (int64_t)strlen(text) : 0, 1);
    text = w->out ? (text ? text : (char *)"") : tci_code_get(w->memory, (size_t)n + 1);
    w->bad |= !text;
    if (!w->bad) {
        tci_wire_bytes(w, text, (size_t)n);
    }
    return text;
}

static int32_t *tci_wire_indices(tci_wire *w, int32_t *items, int32_t n, int32_t below)
{
    items = tci_wire_array(w, items, n, sizeof(*items));
    for (int32_t i = 0; i < n && !w->bad; i++) {
        items[i] = (int32_t)tci_wire_range(w, items[i], 0, (int64_t)below - 1);
    }
    return items;
}

static void tci_wire_hash(tci_wire *w, tci_hash *h)
{
    tci_wire_bytes(w, h, sizeof(*h));
}

/* Compares (reading) or writes the key. */
static bool tci_wire_key(tci_wire *w, const void *key, size_t n)
{
    int32_t stored = tci_wire_count(w, (int64_t)n, 1);
    if (w->out) {
        tci_str_add_n(w->out, key, n);
        return true;
    }
    if (w->bad || (size_t)stored != n || memcmp(w->at, key, n)) {
        return false;
    }
    w->at += n;
    return true;
}

/* The compiler that built it. When it is gone the entry serves; when it was replaced it does not. */
static bool tci_wire_compiler(tci_wire *w, const tc_backend_compiler *compiler)
{
    tc_backend_compiler c;
    memset(&c, 0, sizeof(c));
    if (compiler) {
        c = *compiler;
    }
    char *path = tci_wire_text(w, c.path);
    c.bytes = tci_wire_word(w, c.bytes);
    c.mtime_ns = tci_wire_word(w, c.mtime_ns);
    if (w->out || w->bad || !path[0]) {
        return true;
    }
    int64_t bytes, mtime_ns;
    return !tci_os_stat(path, &bytes, &mtime_ns) || (bytes == c.bytes && mtime_ns == c.mtime_ns);
}

/* ---- frames: header and checksum around a payload ---- */

static void tci_disk_seal(uint64_t header[8], uint64_t magic, const void *payload, size_t n)
{
    tci_hash sum = tci_hash_bytes(payload, n);
    memset(header, 0, TCI_DISK_HEADER_BYTES);
    header[0] = magic;
    header[1] = TCI_DISK_FORMAT;
    header[2] = n;
    header[3] = sum.lo;
    header[4] = sum.hi;
}

static bool tci_disk_write(const tci_disk *d, const char *name, uint64_t magic, const tci_str *payload)
{
    uint64_t header[8];
    tci_str file = {0}, path = {0};
    tci_disk_seal(header, magic, tci_str_text(payload), payload->n);
    tci_str_add_n(&file, header, sizeof(header));
    tci_str_add_n(&file, tci_str_text(payload), payload->n);
    tci_disk_path(d, name, &path);
    int why = 0;
    bool good = !payload->failed && !file.failed && !path.failed
                && tci_os_publish(path.text, file.text, file.n, &why);
    if (!good) {
        tci_log(d->options, "cache", "'%s' is not written: %s", tci_str_text(&path), strerror(why));
    }
    tci_str_free(&file);
    tci_str_free(&path);
    return good;
}

/* Reads an entry and checks its frame. path keeps its path, for touching and rejecting. */
static bool tci_disk_read(const tci_disk *d, const char *name, uint64_t magic, tci_str *file, tci_str *path)
{
    uint64_t expected[8];
    int why = 0;
    tci_disk_path(d, name, path);
    if (path->failed || !tci_os_read_private(path->text, file, &why)) {
        if (!path->failed && why != ENOENT && why != ENOMEM) {
            tci_disk_reject(d, path->text, strerror(why));
        }
        return false;
    }
    if (file->n >= TCI_DISK_HEADER_BYTES) {
        tci_disk_seal(expected, magic, file->text + TCI_DISK_HEADER_BYTES, file->n - TCI_DISK_HEADER_BYTES);
        if (!memcmp(expected, file->text, sizeof(expected))) {
            return true;
        }
    }
    tci_disk_reject(d, path->text, "it is damaged");
    return false;
}

/* ---- object files ---- */

static const char *tci_disk_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Only names that we make: an entry must not lead out of the directory. */
static bool tci_disk_is_object_name(const char *name)
{
    return !strncmp(name, "tc-m-", 5) && strlen(name) == 5 + 32 + 3 && !strchr(name, '/')
           && !strcmp(name + 37, ".so");
}

TCI_FN bool tci_disk_store_object(const tci_disk *d, tci_hash name, const tci_str *object, const tci_str *source,
                                  tci_str *path)
{
    char file[TCI_DISK_NAME_BYTES];
    int why = 0;
    if (!d->writable) {
        return false;
    }
    tci_disk_name(file, 'm', name, "c");
    tci_disk_path(d, file, path);
    bool good = !path->failed && tci_os_publish(path->text, tci_str_text(source), source->n, &why);
    if (good) {
        tci_disk_name(file, 'm', name, "so");
        tci_disk_path(d, file, path);
        good = !path->failed && tci_os_publish(path->text, tci_str_text(object), object->n, &why);
    }
    if (!good) {
        tci_log(d->options, "cache", "'%s' is not written: %s", tci_str_text(path), strerror(why));
    }
    return good;
}

/* Loads an object file that an entry names, if it still is what the entry says. NULL: it is not. */
static tci_module *tci_disk_load_object(const tci_disk *d, const tc_backend *calls, const char *name,
                                        int64_t bytes, tci_hash sum)
{
    tci_str path = {0}, file = {0};
    tci_disk_path(d, name, &path);
    tci_module *m = path.failed ? NULL : tci_module_find(path.text);
    int why = 0;
    char text[256] = "its object file is not the one it was built with";
    bool good = m && m->bytes == bytes && m->sum.lo == sum.lo && m->sum.hi == sum.hi && m->calls == calls;
    if (m && !good) {
        tci_module_release(m);
        m = NULL;
    } else if (!m && !path.failed && tci_os_read_private(path.text, &file, &why)) {
        tci_hash is = tci_hash_bytes(file.text, file.n);
        if ((int64_t)file.n == bytes && is.lo == sum.lo && is.hi == sum.hi) {
            m = tci_module_load(calls, path.text, bytes, sum, text);
            good = m != NULL;
        }
    }
    if (good) {
        m->stored = true;
        tci_os_touch(path.text);
    } else if (why != ENOENT && why != ENOMEM && !path.failed) {
        tci_disk_reject(d, path.text, why ? strerror(why) : text);
    }
    tci_str_free(&path);
    tci_str_free(&file);
    return m;
}

/* Makes sure that the module's file lies in this directory too. */
static bool tci_disk_has_object(const tci_disk *d, const tci_module *m)
{
    tci_str path = {0}, file = {0};
    int64_t bytes, mtime_ns;
    if (!m->stored) {
        return false;
    }
    tci_disk_path(d, tci_disk_base_name(m->path), &path);
    bool good = !path.failed && tci_os_stat(path.text, &bytes, &mtime_ns) && bytes == m->bytes;
    if (!good && !path.failed && tci_os_read_private(m->path, &file, NULL)) {
        tci_hash sum = tci_hash_bytes(file.text, file.n);
        good = sum.lo == m->sum.lo && sum.hi == m->sum.hi && tci_os_publish(path.text, file.text, file.n, NULL);
    }
    tci_str_free(&path);
    tci_str_free(&file);
    return good;
}

/* ---- programs ---- */

static void tci_wire_ports(tci_wire *w, tci_code_port **ports, int32_t *n)
{
    *n = tci_wire_count(w, *n, 32);
    *ports = tci_wire_array(w, *ports, *n, sizeof(**ports));
    for (int32_t i = 0; i < *n && !w->bad; i++) {
        tci_code_port *p = &(*ports)[i];
        p->dtype = (uint8_t)tci_wire_range(w, p->dtype, 0, TC_DTYPE_COUNT - 1);
        p->rank = tci_wire_count(w, p->rank, 8);
        p->shape = tci_wire_array(w, p->shape, p->rank, sizeof(*p->shape));
        for (int32_t j = 0; j < p->rank && !w->bad; j++) {
            p->shape[j] = tci_wire_range(w, p->shape[j], 0, INT64_MAX);
        }
        p->n = tci_wire_range(w, p->n, 0, INT64_MAX);
        p->bytes = tci_wire_range(w, p->bytes, 0, INT64_MAX);
    }
}

static void tci_wire_buffers(tci_wire *w, tci_code *c)
{
    c->n_buffers = tci_wire_count(w, c->n_buffers, 24);
    c->buffers = tci_wire_array(w, c->buffers, c->n_buffers, sizeof(*c->buffers));
    for (int32_t i = 0; i < c->n_buffers && !w->bad; i++) {
        tci_code_buffer *b = &c->buffers[i];
        b->kind = (uint8_t)tci_wire_range(w, b->kind, TCI_BUF_INPUT, TCI_BUF_TEMP);
        int64_t below = b->kind == TCI_BUF_INPUT ? c->n_inputs : b->kind == TCI_BUF_OUTPUT ? c->n_outputs : INT32_MAX;
        b->index = (int32_t)tci_wire_range(w, b->index, b->kind == TCI_BUF_TEMP ? INT32_MIN : 0, below - 1);
        b->offset = tci_wire_range(w, b->offset, 0, INT64_MAX);
        w->bad |= b->kind == TCI_BUF_TEMP && b->offset > c->arena_bytes;
    }
    c->n_aliases = tci_wire_count(w, c->n_aliases, 16);
    c->aliases = tci_wire_array(w, c->aliases, c->n_aliases, sizeof(*c->aliases));
    for (int32_t i = 0; i < c->n_aliases && !w->bad; i++) {
        c->aliases[i].output = (int32_t)tci_wire_range(w, c->aliases[i].output, 0, (int64_t)c->n_outputs - 1);
        c->aliases[i].input = (int32_t)tci_wire_range(w, c->aliases[i].input, 0, (int64_t)c->n_inputs - 1);
    }
}

static void tci_wire_kernel(tci_wire *w, tci_code_kernel *k, int32_t n_modules)
{
    k->symbol = tci_wire_text(w, k->symbol);
    k->note = tci_wire_text(w, k->note);
    k->module = (int32_t)tci_wire_range(w, k->module, 0, (int64_t)n_modules - 1);
    k->n_tasks = tci_wire_range(w, k->n_tasks, 0, INT64_MAX);
    tci_wire_bytes(w, &k->task_ns, sizeof(k->task_ns));
    k->flops = tci_wire_word(w, k->flops);
    k->bytes = tci_wire_word(w, k->bytes);
    k->n_operands = (int32_t)tci_wire_range(w, k->n_operands, 0, INT32_MAX);
    k->n_literals = (int32_t)tci_wire_range(w, k->n_literals, 0, INT32_MAX);
    k->faults = tci_wire_range(w, k->faults, 0, 1) != 0;
}

static void tci_wire_steps(tci_wire *w, tci_code *c, int32_t n_modules)
{
    c->n_kernels = tci_wire_count(w, c->n_kernels, 80);
    c->kernels = tci_wire_array(w, c->kernels, c->n_kernels, sizeof(*c->kernels));
    for (int32_t i = 0; i < c->n_kernels && !w->bad; i++) {
        tci_wire_kernel(w, &c->kernels[i], n_modules);
    }
    c->n_steps = tci_wire_count(w, c->n_steps, 8);
    c->steps = tci_wire_array(w, c->steps, c->n_steps, sizeof(*c->steps));
    for (int32_t i = 0; i < c->n_steps && !w->bad; i++) {
        tci_code_step *s = &c->steps[i];
        s->kernel = (int32_t)tci_wire_range(w, s->kernel, 0, (int64_t)c->n_kernels - 1);
        if (w->bad) {
            return;
        }
        const tci_code_kernel *k = &c->kernels[s->kernel];
        if (!w->out && (int64_t)k->n_operands + k->n_literals > (w->end - w->at) / 8) {
            w->bad = true;
            return;
        }
        s->operands = tci_wire_indices(w, s->operands, k->n_operands, c->n_buffers);
        s->literals = tci_wire_indices(w, s->literals, k->n_literals, c->n_literals);
    }
}

/* The whole of a code but its key and modules. */
static void tci_wire_code(tci_wire *w, tci_code *c, int32_t n_modules)
{
    tci_wire_ports(w, &c->inputs, &c->n_inputs);
    tci_wire_ports(w, &c->outputs, &c->n_outputs);
    c->n_literals = tci_wire_count(w, c->n_literals, 1);
    c->literal_dtypes = tci_wire_array(w, c->literal_dtypes, c->n_literals, 1);
    if (!w->bad) {
        tci_wire_bytes(w, c->literal_dtypes, (size_t)c->n_literals);
    }
    c->arena_bytes = tci_wire_range(w, c->arena_bytes, 0, INT64_MAX);
    tci_wire_buffers(w, c);
    tci_wire_steps(w, c, n_modules);
    c->explain = tci_wire_text(w, c->explain);
}

/* Reads the list of modules and loads each. False: one is gone or not what it was. */
static bool tci_disk_load_modules(const tci_disk *d, tci_wire *w, tci_code *c, const tc_backend *calls)
{
    int32_t n = tci_wire_count(w, 0, 32);
    c->modules = tci_wire_array(w, NULL, n, sizeof(*c->modules));
    for (int32_t i = 0; i < n && !w->bad; i++) {
        tci_hash sum;
        char *name = tci_wire_text(w, NULL);
        int64_t bytes = tci_wire_word(w, 0);
        tci_wire_hash(w, &sum);
        if (w->bad || !tci_disk_is_object_name(name)) {
            w->bad = true;
            return false;
        }
        tci_module *m = tci_disk_load_object(d, calls, name, bytes, sum);
        if (!m) {
            return false;
        }
        c->modules[c->n_modules++] = m;
    }
    return !w->bad;
}

/* Finds the functions of the kernels. */
static bool tci_disk_bind(tci_code *c, const tc_backend *calls)
{
    for (int32_t i = 0; i < c->n_kernels; i++) {
        tci_code_kernel *k = &c->kernels[i];
        void *function = calls->module_find(calls->user, c->modules[k->module]->handle, k->symbol);
        if (!function) {
            return false;
        }
        tci_code_set_function(c, k, calls, function);
    }
    return true;
}

static bool tci_disk_read_code(const tci_disk *d, tci_wire *w, const tci_request *r, const tc_backend *calls)
{
    tci_code *c = w->memory;
    uint8_t *key = tci_code_get(c, r->key_bytes);
    if (!key || !tci_wire_key(w, r->key, r->key_bytes)) {
        return false;
    }
    memcpy(key, r->key, r->key_bytes);
    c->key = key;
    c->key_bytes = r->key_bytes;
    c->hash = r->hash;
    snprintf(c->backend, sizeof(c->backend), "%s", calls->name);
    if (!tci_wire_compiler(w, NULL)) {
        tci_log(d->options, "cache", "the compiler of an entry was replaced: compiling again");
        return false;
    }
    if (!tci_disk_load_modules(d, w, c, calls)) {
        return false;
    }
    tci_wire_code(w, c, c->n_modules);
    if (c->n_modules && !w->bad) {
        c->source_path = tci_code_copy_text(c, c->modules[0]->path);
        if (c->source_path) {
            memcpy(c->source_path + strlen(c->source_path) - 2, "c", 2); /* .so -> .c */
        }
    }
    w->bad |= w->at != w->end || c->n_inputs != r->n_inputs || c->n_outputs != r->n_roots
              || c->n_literals != r->n_literals;
    w->bad = w->bad || !tci_disk_bind(c, calls);
    return !w->bad;
}

TCI_FN tci_code *tci_disk_load_code(const tci_disk *d, const tci_request *r, const tc_backend *calls)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_str file = {0}, path = {0};
    tci_code *c = NULL;
    if (!d->readable) {
        return NULL;
    }
    tci_disk_name(name, 'p', r->hash, "bin");
    if (tci_disk_read(d, name, TCI_DISK_PROGRAM, &file, &path)) {
        c = tci_code_make();
        const uint8_t *payload = (const uint8_t *)file.text + TCI_DISK_HEADER_BYTES;
        tci_wire w = {NULL, payload, (const uint8_t *)file.text + file.n, c, false};
        if (c && tci_disk_read_code(d, &w, r, calls)) {
            c->from_disk = true;
            tci_os_touch(path.text);
        } else {
            if (c && w.bad) {
                tci_disk_reject(d, path.text, "it does not make sense");
            }
            tci_code_release(c);
            c = NULL;
        }
    }
    tci_str_free(&file);
    tci_str_free(&path);
    return c;
}

TCI_FN void tci_disk_store_code(const tci_disk *d, tci_code *c, const tc_backend_compiler *compiler)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_str payload = {0};
    tci_wire w = {&payload, NULL, NULL, NULL, false};
    if (!d->writable || !c->n_modules) {
        return;
    }
    tci_wire_key(&w, c->key, c->key_bytes);
    tci_wire_compiler(&w, compiler);
    tci_wire_count(&w, c->n_modules, 1);
    for (int32_t i = 0; i < c->n_modules; i++) {
        tci_module *m = c->modules[i];
        if (!tci_disk_has_object(d, m)) {
            tci_str_free(&payload);
            return;
        }
        char base[TCI_DISK_NAME_BYTES];
        snprintf(base, sizeof(base), "%s", tci_disk_base_name(m->path));
        tci_wire_text(&w, base);
        tci_wire_word(&w, m->bytes);
        tci_wire_hash(&w, &m->sum);
    }
    tci_wire_code(&w, c, c->n_modules);
    tci_disk_name(name, 'p', c->hash, "bin");
    tci_disk_write(d, name, TCI_DISK_PROGRAM, &payload);
    tci_str_free(&payload);
}

/* ---- kernels ---- */

static bool tci_disk_read_kernel(const tci_disk *d, tci_wire *w, const tc_backend *calls, const void *key,
                                 size_t key_bytes, tci_module_kernel *k)
{
    if (!tci_wire_key(w, key, key_bytes) || !tci_wire_compiler(w, NULL)) {
        return false;
    }
    k->record.symbol = tci_wire_text(w, NULL);
    k->record.note = tci_wire_text(w, NULL);
    k->record.n_tasks = tci_wire_range(w, 0, 0, INT64_MAX);
    tci_wire_bytes(w, &k->record.task_ns, sizeof(k->record.task_ns));
    char *name = tci_wire_text(w, NULL);
    int64_t bytes = tci_wire_word(w, 0);
    tci_hash sum;
    tci_wire_hash(w, &sum);
    if (w->bad || w->at != w->end || !tci_disk_is_object_name(name)) {
        w->bad = true;
        return false;
    }
    tci_module *m = tci_disk_load_object(d, calls, name, bytes, sum);
    if (!m) {
        return false;
    }
    k->function = calls->module_find(calls->user, m->handle, k->record.symbol);
    if (!k->function) {
        tci_module_release(m);
        w->bad = true;
        return false;
    }
    k->module = m;
    return true;
}

TCI_FN bool tci_disk_load_kernel(const tci_disk *d, const tc_backend *calls, const void *key, size_t key_bytes,
                                 tci_hash hash, tci_module_kernel *found)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_str file = {0}, path = {0};
    bool good = false;
    if (!d->readable) {
        return false;
    }
    tci_disk_name(name, 'k', hash, "bin");
    if (tci_disk_read(d, name, TCI_DISK_KERNEL, &file, &path)) {
        tci_code *memory = tci_code_make();
        const uint8_t *payload = (const uint8_t *)file.text + TCI_DISK_HEADER_BYTES;
        tci_wire w = {NULL, payload, (const uint8_t *)file.text + file.n, memory, false};
        tci_module_kernel k;
        memset(&k, 0, sizeof(k));
        good = memory && tci_disk_read_kernel(d, &w, calls, key, key_bytes, &k);
        if (good) {
            tci_os_touch(path.text);
            tci_module_offer(k.module, key, key_bytes, hash, &k.record, k.function);
            good = tci_module_find_kernel(calls, key, key_bytes, hash, found); /* its texts live on */
            tci_module_release(k.module);
        } else if (w.bad && memory) {
            tci_disk_reject(d, path.text, "it does not make sense");
        }
        tci_code_release(memory);
    }
    tci_str_free(&file);
    tci_str_free(&path);
    return good;
}

TCI_FN void tci_disk_store_kernel(const tci_disk *d, const tci_module_kernel *k,
                                  const tc_backend_compiler *compiler)
{
    char name[TCI_DISK_NAME_BYTES], base[TCI_DISK_NAME_BYTES];
    tci_str payload = {0};
    tci_wire w = {&payload, NULL, NULL, NULL, false};
    tci_module_kernel copy = *k;
    if (!d->writable || !k->module->stored) {
        return;
    }
    tci_wire_key(&w, k->key, k->key_bytes);
    tci_wire_compiler(&w, compiler);
    tci_str symbol = {0}, note = {0};
    tci_str_add(&symbol, k->record.symbol);
    tci_str_add(&note, k->record.note);
    tci_wire_text(&w, symbol.text);
    tci_wire_text(&w, note.text);
    tci_wire_word(&w, k->record.n_tasks);
    tci_wire_bytes(&w, &copy.record.task_ns, sizeof(copy.record.task_ns));
    snprintf(base, sizeof(base), "%s", tci_disk_base_name(k->module->path));
    tci_wire_text(&w, base);
    tci_wire_word(&w, k->module->bytes);
    tci_wire_hash(&w, &k->module->sum);
    tci_disk_name(name, 'k', k->hash, "bin");
    tci_disk_write(d, name, TCI_DISK_KERNEL, &payload);
    tci_str_free(&symbol);
    tci_str_free(&note);
    tci_str_free(&payload);
}

/* ---- the size cap ---- */

/* Files that a cache makes, their temporaries included; a directory may hold other things too. */
static bool tci_disk_is_ours(const char *name)
{
    return !strncmp(name, "tc-p-", 5) || !strncmp(name, "tc-k-", 5) || !strncmp(name, "tc-m-", 5);
}

static int tci_disk_compare_age(const void *a, const void *b)
{
    const tci_os_file *x = a;
    const tci_os_file *y = b;
    return (x->mtime_ns > y->mtime_ns) - (x->mtime_ns < y->mtime_ns);
}

/* Returns the bytes that are left. */
static int64_t tci_disk_drop_oldest(const tci_disk *d)
{
    tci_os_file *files;
    int n = tci_os_list(d->dir.text, &files);
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        total += tci_disk_is_ours(files[i].name) ? files[i].bytes : 0;
    }
    if (n > 0 && total > d->cap_bytes) {
        qsort(files, (size_t)n, sizeof(*files), tci_disk_compare_age);
    }
    /* Down to nine tenths, so that the next few entries need no second round. */
    int64_t goal = total > d->cap_bytes ? d->cap_bytes / 10 * 9 : total;
    tci_str path = {0};
    for (int i = 0; i < n && total > goal; i++) {
        if (tci_disk_is_ours(files[i].name)) {
            tci_disk_path(d, files[i].name, &path);
            if (!path.failed && tci_os_remove(path.text)) {
                total -= files[i].bytes;
                TCI_DISK_COUNT(evictions);
            }
        }
    }
    tci_str_free(&path);
    tci_heap_free(files);
    return total;
}

TCI_FN void tci_disk_evict(const tci_disk *d, int64_t written_bytes)
{
    /* What the directory last looked at holds, by this process's reckoning. */
    static struct {
        tci_mutex lock;
        tci_hash dir;
        int64_t bytes;
    } last = {.lock = TCI_MUTEX_INIT};
    if (!d->writable) {
        return;
    }
    tci_hash dir = tci_hash_bytes(d->dir.text, d->dir.n);
    pthread_mutex_lock(&last.lock);
    bool known = last.dir.lo == dir.lo && last.dir.hi == dir.hi;
    last.bytes += written_bytes;
    bool look = !known || last.bytes > d->cap_bytes;
    pthread_mutex_unlock(&last.lock);
    if (look) {
        int64_t left = tci_disk_drop_oldest(d);
        pthread_mutex_lock(&last.lock);
        last.dir = dir;
        last.bytes = left;
        pthread_mutex_unlock(&last.lock);
    }
}

#undef TCI_DISK_FORMAT
#undef TCI_DISK_PROGRAM
#undef TCI_DISK_KERNEL
#undef TCI_DISK_COUNT
/* ---- src/compile/jit.c ---- */
/* compile/jit.c - kernels to functions: one source file, one compiler process, one object file.
 *
 * In: the kernels of all programs of a batch. Out: for each a function in a loaded module.
 * The one idea: a kernel's canonical text is its identity. Equal kernels are compiled once, kernels that
 * any program before had compiled are found again (in this process or on disk), and only the rest
 * go into new source: one file, or two compiled side by side when there are many.
 *
 * Invariants: is_found or loop is set once the kernel is scheduled; after tci_jit_compile all are found. A
 * file's prelude is printed after its kernels, because printing them says what they need. */
/* ---- src/compile/jit.h ---- */
/* compile/jit.h - from the distinct kernels of a batch of programs to functions. The stages are called in
 * this order by compile/compile.c. */
#ifndef TCI_COMPILE_JIT_H
#define TCI_COMPILE_JIT_H


typedef struct tci_jit_kernel {
    const tci_kernel *kernel;
    const char *key; size_t key_bytes;  /* canonical text, target, compiler wanted, build */
    tci_hash hash;
    bool is_found;
    tci_module_kernel found;            /* is_found: the function; its module is retained until tci_jit_end */
    tci_loop *loop;                     /* !is_found: as scheduled, to be compiled */
    tci_launch launch;
    char *symbol;
    int file;                           /* which source holds it */
} tci_jit_kernel;

typedef struct tci_jit {
    tci_scratch *s;
    const tc_options *options;
    const tci_backend *backend;
    const tci_disk *disk;
    tci_jit_kernel *kernels; int n_kernels, cap_kernels;
    int32_t *table; int table_size;     /* kernels by hash: index + 1, 0 = free; a power of two */
    int n_missing;
    tc_backend_compiler compiler;       /* path "": none was looked for, or none found */
    tci_str sources[2]; int n_sources;  /* scratch */
    tci_str said;                       /* heap: command lines and compiler output */
    int64_t written_bytes;
} tci_jit;

TCI_FN void tci_jit_begin(tci_jit *j, tci_scratch *s, const tc_options *o, const tci_backend *backend,
                          const tci_disk *disk);
TCI_FN int tci_jit_add(tci_jit *j, const tci_kernel *k);      /* its number; equal kernels share one */
TCI_FN void tci_jit_find(tci_jit *j);                         /* in loaded modules, then on disk */
TCI_FN tc_status tci_jit_find_compiler(tci_jit *j, tci_str *log);
TCI_FN void tci_jit_schedule(tci_jit *j, bool verify);
TCI_FN void tci_jit_emit(tci_jit *j);
TCI_FN tc_status tci_jit_compile(tci_jit *j, tci_str *log);   /* log: why it failed, for the user */
TCI_FN void tci_jit_end(tci_jit *j);

#endif

/* ---- src/compile/jit.c, continued ---- */
#include <string.h>


#ifndef TCI_BUILD
#define TCI_BUILD "rooms"
#endif

enum { TCI_JIT_SPLIT_FROM = 25, TCI_JIT_DEFAULT_TIMEOUT_S = 120, TCI_JIT_LOG_BYTES = 3000 };

#define TCI_JIT_COUNT(field, n) __atomic_add_fetch(&tci_counters_get()->field, (n), __ATOMIC_RELAXED)

TCI_FN void tci_jit_begin(tci_jit *j, tci_scratch *s, const tc_options *o, const tci_backend *backend,
                          const tci_disk *disk)
{
    memset(j, 0, sizeof(*j));
    j->s = s;
    j->options = o;
    j->backend = backend;
    j->disk = disk;
}

TCI_FN void tci_jit_end(tci_jit *j)
{
    for (int i = 0; i < j->n_kernels; i++) {
        if (j->kernels[i].is_found) {
            tci_module_release(j->kernels[i].found.module);
        }
    }
    j->n_kernels = 0;
    tci_str_free(&j->said);
}

/* ---- identity ---- */

/* The slot of that key in the table: its entry, or the free slot where it belongs. */
static int32_t *tci_jit_slot(const tci_jit *j, tci_hash hash, const char *key, size_t key_bytes)
{
    uint32_t mask = (uint32_t)j->table_size - 1;
    for (uint32_t at = (uint32_t)hash.lo & mask;; at = (at + 1) & mask) {
        int32_t *slot = &j->table[at];
        if (!*slot) {
            return slot;
        }
        const tci_jit_kernel *k = &j->kernels[*slot - 1];
        if (k->hash.lo == hash.lo && k->hash.hi == hash.hi && k->key_bytes == key_bytes
            && !memcmp(k->key, key, key_bytes)) {
            return slot;
        }
    }
}

static void tci_jit_grow_table(tci_jit *j)
{
    j->table_size = TCI_MAX(2 * j->table_size, 32);
    j->table = TCI_NEW_ARRAY(j->s, int32_t, j->table_size);
    for (int i = 0; i < j->n_kernels; i++) {
        const tci_jit_kernel *k = &j->kernels[i];
        *tci_jit_slot(j, k->hash, k->key, k->key_bytes) = i + 1;
    }
}

TCI_FN int tci_jit_add(tci_jit *j, const tci_kernel *kernel)
{
    if (2 * (j->n_kernels + 1) > j->table_size) {
        tci_jit_grow_table(j);
    }
    tci_str text = {.s = j->s};
    tci_kernel_print(&text, kernel);
    tci_str_printf(&text, "\n%s\n%s\n%s\n%s\n", j->backend->name, j->backend->target.features,
                   j->options->cc ? j->options->cc : "", TCI_BUILD);
    tci_hash hash = tci_hash_bytes(text.text, text.n);
    int32_t *slot = tci_jit_slot(j, hash, text.text, text.n);
    if (!*slot) {
        tci_jit_kernel k;
        memset(&k, 0, sizeof(k));
        k.kernel = kernel;
        k.key = text.text;
        k.key_bytes = text.n;
        k.hash = hash;
        TCI_PUSH(j->s, j->kernels, j->n_kernels, j->cap_kernels, k);
        *slot = j->n_kernels;
    }
    return *slot - 1;
}

/* A dump of loops or source shows all of a program, so nothing may be missing from it. */
static bool tci_jit_must_show_all(const tci_jit *j)
{
    const char *dump = j->options->dump;
    return dump && (strstr(dump, "loop") || strstr(dump, "source") || strstr(dump, "all"));
}

TCI_FN void tci_jit_find(tci_jit *j)
{
    bool look = !tci_jit_must_show_all(j);
    const tc_backend *calls = j->backend->calls;
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        k->is_found = look && tci_module_find_kernel(calls, k->key, k->key_bytes, k->hash, &k->found);
        /* A module without a file cannot become part of an entry on disk. */
        if (k->is_found && j->disk->writable && !k->found.module->stored) {
            tci_module_release(k->found.module);
            k->is_found = false;
        }
        if (look && !k->is_found) {
            k->is_found = tci_disk_load_kernel(j->disk, calls, k->key, k->key_bytes, k->hash, &k->found);
        }
        j->n_missing += !k->is_found;
    }
    TCI_JIT_COUNT(kernel_hits, j->n_kernels - j->n_missing);
}

/* ---- source ---- */

TCI_FN tc_status tci_jit_find_compiler(tci_jit *j, tci_str *log)
{
    const tc_backend *calls = j->backend->calls;
    const char *wanted = j->options->cc ? j->options->cc : tci_env_get(TCI_ENV_CC);
    tc_status status = calls->compiler(calls->user, wanted, &j->compiler);
    if (status != TC_OK) {
        const char *why = calls->last_error ? calls->last_error(calls->user) : "";
        tci_str_printf(log, "%s", why[0] ? why : "there is no compiler");
    }
    return status;
}

/* Names of kernels end in eight digits of their hash; two that agree in all get more digits. */
static void tci_jit_name_kernels(tci_jit *j)
{
    int size = 32;
    while (size < 2 * j->n_kernels) {
        size *= 2;
    }
    int32_t *seen = TCI_NEW_ARRAY(j->s, int32_t, size);
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        char hex[33];
        if (k->is_found) {
            continue;
        }
        tci_hash_hex(k->hash, hex);
        uint32_t at = (uint32_t)(k->hash.hi >> 32) & (uint32_t)(size - 1);
        bool clash = false;
        for (; seen[at]; at = (at + 1) & (uint32_t)(size - 1)) {
            clash |= j->kernels[seen[at] - 1].hash.hi >> 32 == k->hash.hi >> 32;
        }
        seen[at] = i + 1;
        hex[clash ? 32 : 8] = 0;
        k->symbol = tci_scratch_printf(j->s, "%s_%s", k->kernel->name, hex);
    }
}

TCI_FN void tci_jit_schedule(tci_jit *j, bool verify)
{
    int vector_bytes = TCI_MIN(j->backend->target.vector_bytes, j->compiler.vector_bytes);
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        if (!k->is_found) {
            k->loop = tci_loop_schedule(j->s, k->kernel, vector_bytes, &k->launch);
            if (verify) {
                tci_loop_verify(j->s, k->loop);
            }
        }
    }
    tci_jit_name_kernels(j);
    bool split = j->n_missing >= TCI_JIT_SPLIT_FROM && tci_os_cpu_count() >= 2;
    j->n_sources = j->n_missing ? (split ? 2 : 1) : 0;
    int nth = 0;
    for (int i = 0; i < j->n_kernels; i++) {
        if (!j->kernels[i].is_found) {
            j->kernels[i].file = nth++ % j->n_sources;
        }
    }
}

TCI_FN void tci_jit_emit(tci_jit *j)
{
    const char *name = j->backend->calls->dialect;
    int vector_bytes = TCI_MIN(j->backend->target.vector_bytes, j->compiler.vector_bytes);
    for (int file = 0; file < j->n_sources; file++) {
        tci_dialect *d = tci_backend_dialect(j->s, name, vector_bytes);
        if (!d) {
            tci_scratch_fail(j->s, TC_ERR_BACKEND, "this build has no dialect '%.20s'", name);
        }
        tci_str body = {.s = j->s};
        for (int i = 0; i < j->n_kernels; i++) {
            const tci_jit_kernel *k = &j->kernels[i];
            if (!k->is_found && k->file == file) {
                tci_emit_kernel(&body, d, k->kernel, k->loop, k->symbol);
            }
        }
        tci_str *source = &j->sources[file];
        memset(source, 0, sizeof(*source));
        source->s = j->s;
        tci_str_printf(source, "/* Generated by tc for %s. */\n", j->backend->target.features);
        d->prelude(d, source);
        tci_str_add_n(source, body.text, body.n);
    }
}

/* ---- building ---- */

/* One run of the backend's compiler. All heap, as nothing here may escape. */
typedef struct tci_jit_build {
    tci_str dir;
    tci_str outputs[2];
    tci_str objects[2];
    tci_module *modules[2];
} tci_jit_build;

static void tci_jit_say(void *arg, const char *text)
{
    tci_str *said = arg;
    tci_str_add(said, text);
    if (said->n && said->text[said->n - 1] != '\n') {
        tci_str_add(said, "\n");
    }
}

/* $TMPDIR or /tmp; where neither can be written, a folder in the cache. */
static bool tci_jit_make_dir(const tci_jit *j, tci_str *dir)
{
    bool writable;
    if (tci_os_temp_dir(dir)) {
        return true;
    }
    if (!j->disk->writable) {
        return false;
    }
    tci_hash name = tci_hash_bytes(j->kernels[0].key, j->kernels[0].key_bytes);
    dir->n = 0;
    tci_str_printf(dir, "%s/tc-b-%016llx-%016llx", j->disk->dir.text, (unsigned long long)name.lo,
                   (unsigned long long)tci_os_now_ns());
    return !dir->failed && tci_os_private_dir(dir->text, &writable) && writable;
}

static void tci_jit_remove_dir(const char *dir)
{
    tci_os_file *files;
    int n = tci_os_list(dir, &files);
    for (int i = 0; i < n; i++) {
        tci_str path = {0};
        tci_str_printf(&path, "%s/%s", dir, files[i].name);
        if (!path.failed) {
            tci_os_remove(path.text);
        }
        tci_str_free(&path);
    }
    tci_heap_free(files);
    tci_os_remove(dir);
}

static tc_status tci_jit_run_compiler(tci_jit *j, tci_jit_build *b)
{
    const tc_backend *calls = j->backend->calls;
    const char *sources[2], *outputs[2];
    for (int i = 0; i < j->n_sources; i++) {
        tci_str_printf(&b->outputs[i], "%s/tc_%d.so", b->dir.text, i);
        if (b->outputs[i].failed) {
            return TC_ERR_MEMORY;
        }
        sources[i] = j->sources[i].text;
        outputs[i] = b->outputs[i].text;
    }
    tc_build build;
    memset(&build, 0, sizeof(build));
    build.n = j->n_sources;
    build.sources = sources;
    build.outputs = outputs;
    build.directory = b->dir.text;
    build.features = j->backend->target.features;
    build.compiler = j->compiler.path;
    build.timeout_ms = (int)TCI_MIN((int64_t)INT32_MAX / 2, 1000 * (j->options->cc_timeout_s > 0
                           ? (int64_t)j->options->cc_timeout_s
                           : TCI_MAX(tci_env_int(TCI_ENV_CC_TIMEOUT, TCI_JIT_DEFAULT_TIMEOUT_S), (int64_t)1)));
    build.keep = tci_env_int(TCI_ENV_KEEP, 0) != 0;
    build.say = tci_jit_say;
    build.say_arg = &j->said;
    tc_status status = calls->compile(calls->user, &build);
    TCI_JIT_COUNT(compiler_runs, build.processes);
    return status;
}

/* Object file i into the cache, and from there (else from where it is) into the process. */
static tc_status tci_jit_load(tci_jit *j, tci_jit_build *b, int i)
{
    char why[256] = "";
    int code = 0;
    tci_str path = {0};
    if (!tci_os_read_file(b->outputs[i].text, &b->objects[i], &code)) {
        tci_str_printf(&j->said, "the compiler left no object file: %s\n", strerror(code));
        return TC_ERR_COMPILER;
    }
    const tci_str *object = &b->objects[i];
    tci_hash sum = tci_hash_bytes(object->text, object->n);
    tci_hash name = tci_hash_bytes(b->outputs[i].text, b->outputs[i].n); /* holds a random part */
    name.lo ^= sum.lo;
    bool stored = tci_disk_store_object(j->disk, name, object, &j->sources[i], &path);
    const char *from = stored ? path.text : b->outputs[i].text;
    b->modules[i] = tci_module_load(j->backend->calls, from, (int64_t)object->n, sum, why);
    if (b->modules[i]) {
        b->modules[i]->stored = stored;
        j->written_bytes += stored ? (int64_t)(object->n + j->sources[i].n) : 0;
    } else {
        tci_str_printf(&j->said, "'%s' cannot be loaded: %s\n", from, why);
    }
    tci_str_free(&path);
    return b->modules[i] ? TC_OK : TC_ERR_COMPILER;
}

/* Finds the functions of file i's kernels and offers them to later compiles. */
static tc_status tci_jit_bind(tci_jit *j, tci_module *m, int file)
{
    const tc_backend *calls = j->backend->calls;
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        if (k->is_found || k->file != file) {
            continue;
        }
        void *function = calls->module_find(calls->user, m->handle, k->symbol);
        if (!function) {
            tci_str_printf(&j->said, "'%s' is not in its object file\n", k->symbol);
            return TC_ERR_COMPILER;
        }
        tci_kernel_record record = {k->symbol, k->launch.note, k->launch.n_tasks, k->launch.task_ns};
        tci_module_offer(m, k->key, k->key_bytes, k->hash, &record, function);
        tci_module_kernel built = {k->hash, (const uint8_t *)k->key, k->key_bytes, record, function, m, NULL};
        tci_module_retain(m);
        k->found = built;
        k->is_found = true;
        tci_disk_store_kernel(j->disk, &built, &j->compiler);
        TCI_JIT_COUNT(kernels_built, 1);
    }
    return TC_OK;
}

static void tci_jit_tell(const tci_jit *j, const tci_jit_build *b, tci_str *log)
{
    size_t n = j->said.n;
    tci_str_add(log, "compiling the generated code failed:\n");
    tci_str_add_n(log, tci_str_text(&j->said), TCI_MIN(n, (size_t)TCI_JIT_LOG_BYTES));
    if (n > TCI_JIT_LOG_BYTES) {
        tci_str_printf(log, "\n... %zu more bytes\n", n - TCI_JIT_LOG_BYTES);
    }
    if (b->dir.n) {
        tci_str path = {0};
        tci_str_printf(&path, "%s/build.log", b->dir.text);
        if (!path.failed) {
            tci_os_publish(path.text, tci_str_text(&j->said), n, NULL);
        }
        tci_str_free(&path);
        tci_str_printf(log, "source and log are kept in %s", b->dir.text);
    }
}

static tc_status tci_jit_build_all(tci_jit *j, tci_jit_build *b)
{
    if (!tci_jit_make_dir(j, &b->dir)) {
        b->dir.n = 0;
        tci_str_add(&j->said, "no private directory can be made under $TMPDIR or /tmp\n");
        return TC_ERR_IO;
    }
    tc_status status = tci_jit_run_compiler(j, b);
    for (int i = 0; i < j->n_sources && status == TC_OK; i++) {
        status = tci_jit_load(j, b, i);
    }
    for (int i = 0; i < j->n_sources && status == TC_OK; i++) {
        status = tci_jit_bind(j, b->modules[i], i);
    }
    return status;
}

TCI_FN tc_status tci_jit_compile(tci_jit *j, tci_str *log)
{
    tci_jit_build b;
    memset(&b, 0, sizeof(b));
    if (!j->n_missing) {
        return TC_OK;
    }
    tc_status status = tci_jit_build_all(j, &b);
    if (status != TC_OK) {
        tci_jit_tell(j, &b, log);
    } else if (tci_env_int(TCI_ENV_KEEP, 0)) {
        tci_log(j->options, "compile", "kept: %s", b.dir.text);
    } else {
        tci_jit_remove_dir(b.dir.text);
    }
    for (int i = 0; i < 2; i++) {
        if (b.modules[i]) {
            tci_module_release(b.modules[i]);
        }
        tci_str_free(&b.outputs[i]);
        tci_str_free(&b.objects[i]);
    }
    tci_str_free(&b.dir);
    return status;
}

#undef TCI_JIT_COUNT
/* ---- src/compile/compile.c ---- */
/* compile/compile.c - THE SPINE: requests to code.
 *
 * In: requests (compile/key.c). Out: counted code for each, from memory, from disk, or made here.
 * The one idea: tci_compile_batch calls every stage by name, in order, and nothing else sequences:
 *
 *   graph -> rewrite -> plan (with its kernels) -> loop -> source -> compiler -> module -> code
 *
 * After each stage the spine verifies its IR (options.verify), dumps it (options.dump) and adds its time.
 * A stage leaves by tci_scratch_fail when memory or an invariant fails; the one setjmp is tci_compile_guard.
 * Stages own nothing outside the batch's scratch, so after an escape the batch is dropped whole.
 *
 * Where native code cannot be had (no compiler, a failed build, a machine that does not qualify) the plan's
 * kernels are interpreted instead, unless the options refuse that. Such code is kept in memory only.
 *
 * Threads: a key is claimed (compile/cache.c) before it is compiled. A caller first makes what it claimed,
 * then waits for what others are making, so no two callers wait for each other. */

#include <string.h>

/* ---- src/debug/explain.h ---- */
/* debug/explain.h - the text of tc_explain, made at compile time while the plan is still there. */
#ifndef TCI_DEBUG_EXPLAIN_H
#define TCI_DEBUG_EXPLAIN_H


/* Kernels, traffic, flops, memory, and why what was not fused was not. `code` is complete but for its
 * explain text. */
TCI_FN void tci_explain_text(tci_str *out, const tci_plan *plan, const tci_code *code);

#endif
/* ---- src/debug/trace.h ---- */
/* debug/trace.h - a chrome trace (chrome://tracing, Perfetto) of compiles, runs and kernels.
 *
 * Process-wide and off until the first context with options.trace opens it. Off, a span costs one load. */
#ifndef TCI_DEBUG_TRACE_H
#define TCI_DEBUG_TRACE_H


/* False: the file cannot be written. A second call while a trace is open keeps the first file. */
TCI_FN bool tci_trace_open(const char *path);
TCI_FN void tci_trace_close(void);
TCI_FN bool tci_trace_is_on(void);
/* One finished span of this thread, in tci_os_now_ns time. category: "compile", "run", "kernel". */
TCI_FN void tci_trace_span(const char *category, const char *name, int64_t begin_ns, int64_t end_ns);

#endif
/* ---- src/rewrite/rewrite.h ---- */
/* rewrite/rewrite.h - the graph in simpler terms: composites expanded, constants folded, duplicates and
 * dead nodes gone. */
#ifndef TCI_REWRITE_REWRITE_H
#define TCI_REWRITE_REWRITE_H


/* The same values as nodes of g that later stages know; one for each root, in scratch. */
TCI_FN tci_node **tci_rewrite(tci_scratch *s, tci_graph *g, tci_node **roots, int n);

#endif

/* ---- src/compile/compile.c, continued ---- */
#define TCI_COMPILE_COUNT(field) __atomic_add_fetch(&tci_counters_get()->field, 1, __ATOMIC_RELAXED)

typedef enum tci_compile_state { TCI_COMPILE_OPEN, TCI_COMPILE_CLAIMED, TCI_COMPILE_DONE } tci_compile_state;

/* One request on its way. */
typedef struct tci_compile_job {
    tci_request *request;
    tci_compile_state state;
    tci_claim claim;
    tc_status status;
    tci_code *code;
    tci_request_copy copy;    /* in the batch's scratch, as are the next four */
    tci_node **roots;         /* after rewriting */
    tci_plan *plan;
    int *units;               /* plan kernel -> number in the batch's jit */
    tci_dump dump;
    tc_times times;
} tci_compile_job;

typedef struct tci_compile_batch_state {
    tci_scratch scratch;
    const tc_options *options;
    const tci_backend *backend;
    tci_compile_job *jobs; int n_jobs;
    tci_disk disk;
    tci_jit jit;
    tci_str *log;
    bool verify;
    bool native;              /* kernels go through the jit; false: interpreted */
} tci_compile_batch_state;

typedef tc_status (*tci_compile_stage)(tci_compile_batch_state *b, tci_compile_job *job);

/* Runs a stage; what it escapes with becomes its status. */
static tc_status tci_compile_guard(tci_compile_batch_state *b, tci_compile_stage stage, tci_compile_job *job)
{
    if (setjmp(b->scratch.escape)) {
        tci_str_printf(b->log, "%s", b->scratch.message);
        return b->scratch.why;
    }
    return stage(b, job);
}

/* Ends one timed phase and begins the next. */
static int64_t tci_compile_lap(int64_t *since_ns, const char *phase)
{
    int64_t now_ns = tci_os_now_ns();
    int64_t lap_ns = now_ns - *since_ns;
    tci_trace_span("compile", phase, *since_ns, now_ns);
    *since_ns = now_ns;
    return lap_ns;
}

/* ---- dumps ---- */

static void tci_compile_dump_graph(tci_compile_batch_state *b, tci_compile_job *job, const char *stage,
                                   const char *file, tci_node **roots)
{
    tci_str text = {.s = &b->scratch};
    if (tci_dump_wants(&job->dump, stage)) {
        tci_graph_print(&text, &b->scratch, roots, job->request->n_roots);
        tci_dump_file(&job->dump, file, &text);
    }
}

static void tci_compile_dump_dot(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_str text = {.s = &b->scratch};
    if (tci_dump_wants(&job->dump, "dot")) {
        tci_graph_print_dot(&text, &b->scratch, job->copy.roots, job->request->n_roots);
        tci_dump_file(&job->dump, "graph.dot", &text);
    }
}

static void tci_compile_dump_plan(tci_compile_batch_state *b, tci_compile_job *job)
{
    if (tci_dump_wants(&job->dump, "plan")) {
        tci_str text = {.s = &b->scratch};
        tci_plan_print(&text, job->plan);
        tci_dump_file(&job->dump, "plan.txt", &text);
    }
    if (tci_dump_wants(&job->dump, "kernel")) {
        tci_str text = {.s = &b->scratch};
        for (int i = 0; i < job->plan->n_kernels; i++) {
            tci_str_printf(&text, "%s\n", job->plan->kernels[i]->name);
            tci_kernel_print(&text, job->plan->kernels[i]);
            tci_str_add(&text, "\n");
        }
        tci_dump_file(&job->dump, "kernel.txt", &text);
    }
    if (job->plan->why.n) {
        tci_log(b->options, "fusion", "%s", job->plan->why.text);
    }
}

/* Kernels are shared between the jobs of a batch: the first job's folder shows them. */
static void tci_compile_dump_loops(tci_compile_batch_state *b)
{
    tci_str text = {.s = &b->scratch};
    if (tci_dump_wants(&b->jobs[0].dump, "loop")) {
        for (int i = 0; i < b->jit.n_kernels; i++) {
            const tci_jit_kernel *k = &b->jit.kernels[i];
            if (k->loop) {
                tci_str_printf(&text, "%s: %s\n", k->symbol, k->launch.note);
                tci_loop_print(&text, k->loop);
                tci_str_add(&text, "\n");
            }
        }
        tci_dump_file(&b->jobs[0].dump, "loop.txt", &text);
    }
}

static void tci_compile_dump_source(tci_compile_batch_state *b)
{
    static const char *const files[2] = {"source.c", "source2.c"};
    for (int i = 0; i < b->jit.n_sources; i++) {
        if (tci_dump_wants(&b->jobs[0].dump, "source")) {
            tci_dump_file(&b->jobs[0].dump, files[i], &b->jit.sources[i]);
        }
        tci_log(b->options, "source", "%s", b->jit.sources[i].text);
    }
}

/* ---- stages of one request ---- */

static tc_status tci_compile_front(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_scratch *s = &b->scratch;
    tci_request *r = job->request;
    int64_t at = tci_os_now_ns();

    job->copy = tci_request_copy_graph(s, r);
    if (b->verify) {
        tci_graph_verify(s, job->copy.roots, r->n_roots);
    }
    tci_compile_dump_graph(b, job, "graph", "graph.txt", job->copy.roots);
    tci_compile_dump_dot(b, job);
    job->times.key = tci_compile_lap(&at, "graph");

    job->roots = tci_rewrite(s, job->copy.graph, job->copy.roots, r->n_roots);
    if (b->verify) {
        tci_graph_verify(s, job->roots, r->n_roots);
    }
    tci_compile_dump_graph(b, job, "rewrite", "rewrite.txt", job->roots);
    job->times.rewrite = tci_compile_lap(&at, "rewrite");

    job->plan = tci_plan_make(s, job->copy.graph, job->copy.inputs, r->n_inputs, job->copy.literals, r->n_literals,
                              job->roots, r->n_roots);
    if (b->verify) {
        tci_plan_verify(s, job->plan);
        for (int i = 0; i < job->plan->n_kernels; i++) {
            tci_kernel_verify(s, job->plan->kernels[i]);
        }
    }
    tci_compile_dump_plan(b, job);
    job->times.plan = tci_compile_lap(&at, "plan");
    return TC_OK;
}

/* ---- stages of all requests of a batch together ---- */

static tc_status tci_compile_back(tci_compile_batch_state *b, tci_compile_job *unused)
{
    tci_jit *jit = &b->jit;
    tc_times times = {0};
    int64_t at = tci_os_now_ns();
    (void)unused;

    for (int i = 0; i < b->n_jobs; i++) {
        tci_compile_job *job = &b->jobs[i];
        int n = job->plan ? job->plan->n_kernels : 0;
        job->units = TCI_NEW_ARRAY(&b->scratch, int, n);
        for (int k = 0; k < n; k++) {
            job->units[k] = tci_jit_add(jit, job->plan->kernels[k]);
        }
    }
    tci_jit_find(jit);
    times.load = tci_compile_lap(&at, "kernels");

    tc_status status = jit->n_missing ? tci_jit_find_compiler(jit, b->log) : TC_OK;
    if (status != TC_OK) {
        return status;
    }
    tci_jit_schedule(jit, b->verify);
    tci_compile_dump_loops(b);
    times.lower = tci_compile_lap(&at, "loop");

    tci_jit_emit(jit);
    tci_compile_dump_source(b);
    times.emit = tci_compile_lap(&at, "source");

    if (!jit->n_missing && b->disk.writable) { /* entries say which compiler is behind them */
        tci_str nobody = {.s = &b->scratch};
        (void)tci_jit_find_compiler(jit, &nobody);
    }
    status = tci_jit_compile(jit, b->log);
    if (tci_dump_wants(&b->jobs[0].dump, "source")) {
        tci_dump_file(&b->jobs[0].dump, "build.log", &jit->said);
    }
    times.compiler = tci_compile_lap(&at, "compiler");
    for (int i = 0; i < b->n_jobs; i++) {
        tc_times *t = &b->jobs[i].times;
        t->load = times.load;
        t->lower = times.lower;
        t->emit = times.emit;
        t->compiler = times.compiler;
    }
    return status;
}

/* ---- plan to code ---- */

/* Bytes from the lowest to past the highest element that a strided leaf touches. */
static int64_t tci_compile_extent(const tci_node *n)
{
    int64_t elements = 1;
    for (int i = 0; i < n->rank; i++) {
        if (!n->shape[i]) {
            return 0;
        }
        int64_t stride = n->strides ? n->strides[i] : 0;
        elements += n->strides ? (n->shape[i] - 1) * (stride < 0 ? -stride : stride) : 0;
    }
    elements = n->strides ? elements : tci_node_count(n);
    return elements * tci_dtype_get((tc_dtype)n->dtype)->bytes;
}

/* Memory of a code under construction escapes like scratch; the code itself is dropped by the batch. */
static void *tci_compile_get(tci_compile_batch_state *b, tci_code *c, int64_t n, size_t item_bytes)
{
    void *p = tci_code_get(c, (size_t)n * item_bytes);
    if (!p) {
        tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory: %lld bytes for a program",
                         (long long)n * (long long)item_bytes);
    }
    return p;
}

static char *tci_compile_text(tci_compile_batch_state *b, tci_code *c, const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(tci_compile_get(b, c, (int64_t)n, 1), text, n);
}

static void tci_compile_port(tci_compile_batch_state *b, tci_code *c, tci_code_port *p, const tci_node *n)
{
    p->dtype = n->dtype;
    p->rank = n->rank;
    p->shape = tci_compile_get(b, c, n->rank, sizeof(*p->shape));
    for (int i = 0; i < n->rank; i++) {
        p->shape[i] = n->shape[i];
    }
    p->n = tci_node_count(n);
    p->bytes = p->n * tci_dtype_get((tc_dtype)n->dtype)->bytes;
}

static void tci_compile_fill_ports(tci_compile_batch_state *b, const tci_compile_job *job, tci_code *c)
{
    const tci_request *r = job->request;
    c->n_inputs = r->n_inputs;
    c->inputs = tci_compile_get(b, c, r->n_inputs, sizeof(*c->inputs));
    for (int i = 0; i < r->n_inputs; i++) {
        tci_compile_port(b, c, &c->inputs[i], job->copy.inputs[i]);
        c->inputs[i].bytes = tci_compile_extent(job->copy.inputs[i]);
    }
    c->n_outputs = r->n_roots;
    c->outputs = tci_compile_get(b, c, r->n_roots, sizeof(*c->outputs));
    for (int i = 0; i < r->n_roots; i++) {
        tci_compile_port(b, c, &c->outputs[i], r->roots[i]);
    }
    c->n_literals = r->n_literals;
    c->literal_dtypes = tci_compile_get(b, c, r->n_literals, 1);
    for (int i = 0; i < r->n_literals; i++) {
        c->literal_dtypes[i] = r->literals[i]->dtype;
    }
}

static void tci_compile_fill_plan(tci_compile_batch_state *b, const tci_plan *p, tci_code *c)
{
    c->arena_bytes = p->arena_bytes;
    c->n_buffers = p->n_buffers;
    c->buffers = tci_compile_get(b, c, p->n_buffers, sizeof(*c->buffers));
    for (int i = 0; i < p->n_buffers; i++) {
        c->buffers[i].kind = p->buffers[i].kind;
        c->buffers[i].index = p->buffers[i].index;
        c->buffers[i].offset = p->buffers[i].kind == TCI_BUF_TEMP ? p->buffers[i].offset : 0;
    }
    c->n_aliases = p->n_aliases;
    c->aliases = tci_compile_get(b, c, p->n_aliases, sizeof(*c->aliases));
    for (int i = 0; i < p->n_aliases; i++) {
        c->aliases[i] = p->aliases[i];
    }
    c->n_steps = p->n_steps;
    c->steps = tci_compile_get(b, c, p->n_steps, sizeof(*c->steps));
    for (int i = 0; i < p->n_steps; i++) {
        const tci_step *from = &p->steps[i];
        const tci_kernel *k = p->kernels[from->kernel];
        tci_code_step *to = &c->steps[i];
        to->kernel = from->kernel;
        to->operands = tci_compile_get(b, c, k->n_operands, sizeof(*to->operands));
        to->literals = tci_compile_get(b, c, k->n_literals, sizeof(*to->literals));
        for (int j = 0; j < k->n_operands; j++) {
            to->operands[j] = from->operands[j];
        }
        for (int j = 0; j < k->n_literals; j++) {
            to->literals[j] = from->literals[j];
        }
    }
}

/* Index of m in the code's modules; takes a reference the first time. */
static int32_t tci_compile_module_index(tci_code *c, tci_module *m)
{
    for (int32_t i = 0; i < c->n_modules; i++) {
        if (c->modules[i] == m) {
            return i;
        }
    }
    tci_module_retain(m);
    c->modules[c->n_modules] = m;
    return c->n_modules++;
}

static void tci_compile_fill_native(tci_compile_batch_state *b, const tci_compile_job *job, tci_code *c)
{
    const tc_backend *calls = b->backend->calls;
    c->modules = tci_compile_get(b, c, job->plan->n_kernels, sizeof(tci_module *));
    for (int i = 0; i < c->n_kernels; i++) {
        const tci_module_kernel *found = &b->jit.kernels[job->units[i]].found;
        tci_code_kernel *k = &c->kernels[i];
        k->symbol = tci_compile_text(b, c, found->record.symbol);
        k->note = tci_compile_text(b, c, found->record.note);
        k->n_tasks = found->record.n_tasks;
        k->task_ns = found->record.task_ns;
        k->module = tci_compile_module_index(c, found->module);
        tci_code_set_function(c, k, calls, found->function);
    }
}

static void tci_compile_fill_interp(tci_compile_batch_state *b, const tci_compile_job *job, tci_code *c)
{
    for (int i = 0; i < c->n_kernels; i++) {
        const tci_kernel *from = job->plan->kernels[i];
        tci_code_kernel *k = &c->kernels[i];
        k->symbol = tci_compile_text(b, c, from->name);
        k->note = tci_compile_text(b, c, "interpreted");
        k->interp = tci_interp_make(from);
        if (!k->interp) {
            tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for an interpreted kernel");
        }
        k->n_tasks = tci_interp_tasks(k->interp);
        k->task_ns = k->n_tasks ? (double)TCI_MAX(from->flops, from->bytes) / (double)k->n_tasks : 0;
        c->interp_bytes = TCI_MAX(c->interp_bytes, (int64_t)tci_interp_workspace(k->interp));
    }
}

/* Source of a program: what this batch compiled, and where the kernels that were found come from. */
static void tci_compile_fill_source(tci_compile_batch_state *b, tci_code *c)
{
    tci_str text = {.s = &b->scratch};
    for (int i = 0; i < b->jit.n_sources; i++) {
        tci_str_add_n(&text, b->jit.sources[i].text, b->jit.sources[i].n);
    }
    for (int i = 0; i < c->n_kernels && b->native; i++) {
        const tci_module *m = c->modules[c->kernels[i].module];
        if (!strstr(tci_str_text(&text), c->kernels[i].symbol)) {
            tci_str_printf(&text, "/* %s: compiled before, in %s */\n", c->kernels[i].symbol, m->path);
        }
    }
    c->source = tci_compile_text(b, c, tci_str_text(&text));
}

static tc_status tci_compile_finish(tci_compile_batch_state *b, tci_compile_job *job)
{
    const tci_request *r = job->request;
    job->code = tci_code_make();
    tci_code *c = job->code;
    if (!c) {
        tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for a program");
    }
    c->key = tci_compile_get(b, c, (int64_t)r->key_bytes, 1);
    memcpy(c->key, r->key, r->key_bytes);
    c->key_bytes = r->key_bytes;
    c->hash = r->hash;
    c->fallback = !b->native && (b->backend->calls || b->backend->fallback);
    snprintf(c->backend, sizeof(c->backend), "%s", b->native ? b->backend->name : "interp");
    tci_compile_fill_ports(b, job, c);
    tci_compile_fill_plan(b, job->plan, c);
    c->kernels = tci_compile_get(b, c, job->plan->n_kernels, sizeof(*c->kernels));
    c->n_kernels = job->plan->n_kernels;
    for (int i = 0; i < c->n_kernels; i++) {
        const tci_kernel *from = job->plan->kernels[i];
        c->kernels[i].flops = from->flops;
        c->kernels[i].bytes = from->bytes;
        c->kernels[i].n_operands = from->n_operands;
        c->kernels[i].n_literals = from->n_literals;
        c->kernels[i].faults = from->faults;
    }
    if (b->native) {
        tci_compile_fill_native(b, job, c);
    } else {
        tci_compile_fill_interp(b, job, c);
    }
    tci_compile_fill_source(b, c);
    c->times = job->times;
    tci_str explain = {.s = &b->scratch};
    tci_explain_text(&explain, job->plan, c);
    c->explain = tci_compile_text(b, c, tci_str_text(&explain));
    return TC_OK;
}

/* ---- the spine ---- */

/* Why native code was not had is known: interpret instead, or refuse. */
static tc_status tci_compile_fall_back(tci_compile_batch_state *b, tc_status why)
{
    bool about_compiler = why == TC_ERR_COMPILER || why == TC_ERR_IO || why == TC_ERR_BACKEND;
    if (!about_compiler || b->options->fallback == TC_FALLBACK_REFUSE) {
        return why == TC_ERR_IO ? TC_ERR_COMPILER : why;
    }
    tci_log(b->options, "compile", "interpreting instead of compiling: %s", tci_str_text(b->log));
    b->log->n = 0;
    if (b->log->text) {
        b->log->text[0] = 0;
    }
    b->native = false;
    return TC_OK;
}

static void tci_compile_report(tci_compile_batch_state *b, const tci_compile_job *job)
{
    char hex[33];
    tci_hash_hex(job->request->hash, hex);
    const tci_code *c = job->code;
    tci_log(b->options, "compile", "%.8s: %d kernels for %s in %.2f ms (plan %.2f, source %.2f, compiler %.2f)", hex,
            c->n_kernels, c->backend, (double)c->times.total / 1e6, (double)c->times.plan / 1e6,
            (double)(c->times.lower + c->times.emit) / 1e6, (double)c->times.compiler / 1e6);
}

/* Compiles jobs whose code is in no cache. */
static void tci_compile_batch(tci_compile_batch_state *b)
{
    int64_t begin_ns = tci_os_now_ns();
    tc_status back = TC_OK;
    for (int i = 0; i < b->n_jobs; i++) {
        tci_dump_begin(&b->jobs[i].dump, b->options);
        b->jobs[i].status = tci_compile_guard(b, tci_compile_front, &b->jobs[i]);
        if (b->jobs[i].status != TC_OK) {
            b->jobs[i].plan = NULL;
        }
    }
    b->native = b->backend->calls != NULL;
    if (b->native) {
        back = tci_compile_guard(b, tci_compile_back, NULL);
    } else if (b->backend->fallback) {
        tci_str_printf(b->log, "%s", b->backend->why);
        back = TC_ERR_COMPILER;
    }
    if (back != TC_OK) {
        back = tci_compile_fall_back(b, back);
    }
    for (int i = 0; i < b->n_jobs; i++) {
        tci_compile_job *job = &b->jobs[i];
        job->status = job->status != TC_OK ? job->status : back;
        if (job->status == TC_OK) {
            job->status = tci_compile_guard(b, tci_compile_finish, job);
        }
        if (job->status != TC_OK) {
            tci_code_release(job->code);
            job->code = NULL;
        } else {
            job->code->times.total = tci_os_now_ns() - begin_ns;
            TCI_COMPILE_COUNT(compiles);
            if (job->code->fallback) {
                TCI_COMPILE_COUNT(interpreted);
            }
            if (b->native) {
                tci_disk_store_code(&b->disk, job->code, &b->jit.compiler);
            }
            tci_compile_report(b, job);
        }
        tci_dump_end(&job->dump);
    }
    tci_disk_evict(&b->disk, b->jit.written_bytes);
}

/* ---- requests ---- */

/* Claims what nobody else is compiling. Returns how many jobs are ours now. */
static int tci_compile_claim(tci_compile_job *jobs, int n, bool native)
{
    int ours = 0;
    for (int i = 0; i < n; i++) {
        tci_compile_job *job = &jobs[i];
        if (job->state != TCI_COMPILE_OPEN) {
            continue;
        }
        tci_claim_result result = tci_cache_claim(&job->claim, job->request, native, &job->code);
        if (result == TCI_CLAIM_FOUND) {
            job->state = TCI_COMPILE_DONE;
            job->request->found = TCI_FOUND_MEMORY;
            TCI_COMPILE_COUNT(memory_hits);
        } else if (result == TCI_CLAIM_OURS) {
            job->state = TCI_COMPILE_CLAIMED;
            ours++;
        }
    }
    return ours;
}

static void tci_compile_settle(tci_compile_job *job)
{
    tci_cache_settle(&job->claim, job->status == TC_OK ? job->code : NULL);
    job->state = TCI_COMPILE_DONE;
}

/* Disk first, then the spine, for all jobs that are claimed. */
static void tci_compile_claimed(const tc_options *o, const tci_backend *backend, tci_compile_job *jobs, int n,
                                tci_compile_job *misses, tci_str *log)
{
    tci_compile_batch_state *b = tci_heap_get(sizeof(*b));
    int n_misses = 0;
    if (b) {
        tci_scratch_init(&b->scratch);
        b->options = o;
        b->backend = backend;
        b->log = log;
        b->verify = o->verify || tci_env_int(TCI_ENV_VERIFY, 0);
        tci_disk_open(&b->disk, o);
    }
    for (int i = 0; i < n; i++) {
        tci_compile_job *job = &jobs[i];
        if (job->state != TCI_COMPILE_CLAIMED) {
            continue;
        }
        bool look = b && backend->calls && !(o->dump && o->dump[0]);
        job->code = look ? tci_disk_load_code(&b->disk, job->request, backend->calls) : NULL;
        job->status = b ? TC_OK : TC_ERR_MEMORY;
        if (job->code) {
            job->request->found = TCI_FOUND_DISK;
            TCI_COMPILE_COUNT(disk_hits);
        }
        if (job->code || !b) {
            tci_compile_settle(job);
        } else {
            TCI_COMPILE_COUNT(misses);
            misses[n_misses++].request = job->request;
        }
    }
    if (!b) {
        return;
    }
    if (n_misses) {
        tci_jit_begin(&b->jit, &b->scratch, o, backend, &b->disk);
        b->jobs = misses;
        b->n_jobs = n_misses;
        tci_compile_batch(b);
        tci_jit_end(&b->jit);
    }
    for (int i = 0, m = 0; i < n; i++) {
        if (jobs[i].state == TCI_COMPILE_CLAIMED) {
            jobs[i].status = misses[m].status;
            jobs[i].code = misses[m++].code;
            tci_compile_settle(&jobs[i]);
        }
    }
    tci_disk_close(&b->disk);
    tci_scratch_free(&b->scratch);
    tci_heap_free(b);
}

/* Some of the requests are not in memory. */
static tc_status tci_compile_missing(tci_compile_job *jobs, tci_compile_job *misses, int n, const tc_options *o,
                                     const tci_backend *backend, tci_str *log)
{
    bool native = o->fallback == TC_FALLBACK_REFUSE;
    for (;;) {
        if (tci_compile_claim(jobs, n, native)) {
            memset(misses, 0, sizeof(*misses) * (size_t)n);
            tci_compile_claimed(o, backend, jobs, n, misses, log);
        }
        int open = 0;
        while (open < n && jobs[open].state == TCI_COMPILE_DONE) {
            open++;
        }
        if (open == n) {
            break;
        }
        tci_cache_wait(jobs[open].request);
    }
    tc_status first = TC_OK;
    for (int i = 0; i < n; i++) {
        first = first != TC_OK ? first : jobs[i].status;
    }
    return first;
}

static tc_status tci_compile_fail_all(int n, tc_status *statuses, tc_status why)
{
    for (int i = 0; i < n; i++) {
        statuses[i] = why;
    }
    return why;
}

TCI_FN tc_status tci_compile_requests(tci_scratch *s, tci_request **requests, int n, const tc_options *o,
                                      tci_code **codes, tc_status *statuses, tci_str *log)
{
    bool native = o->fallback == TC_FALLBACK_REFUSE;
    int n_found = 0;
    (void)s;
    for (int i = 0; i < n; i++) {
        codes[i] = tci_cache_find(requests[i], native);
        requests[i]->found = codes[i] ? TCI_FOUND_MEMORY : TCI_FOUND_NOWHERE;
        statuses[i] = TC_OK;
        n_found += codes[i] != NULL;
    }
    __atomic_add_fetch(&tci_counters_get()->memory_hits, n_found, __ATOMIC_RELAXED);
    if (n_found == n) {
        return TC_OK;
    }
    const tci_backend *backend = tci_backend_pick(o);
    tci_compile_job *jobs = backend ? tci_heap_get(sizeof(*jobs) * 2 * (size_t)n) : NULL;
    if (!jobs) {
        for (int i = 0; i < n; i++) {
            tci_code_release(codes[i]);
            codes[i] = NULL;
        }
        if (!backend) {
            tci_str_printf(log, "there is no backend '%.40s'", o->backend);
        }
        return tci_compile_fail_all(n, statuses, backend ? TC_ERR_MEMORY : TC_ERR_BACKEND);
    }
    int n_jobs = 0;
    for (int i = 0; i < n; i++) {
        if (!codes[i]) {
            jobs[n_jobs++].request = requests[i];
        }
    }
    tc_status status = tci_compile_missing(jobs, jobs + n, n_jobs, o, backend, log);
    for (int i = 0, j = 0; i < n; i++) {
        if (!codes[i]) {
            codes[i] = jobs[j].status == TC_OK ? jobs[j].code : NULL;
            statuses[i] = jobs[j++].status;
        }
    }
    tci_heap_free(jobs);
    return status;
}

#undef TCI_COMPILE_COUNT

/* ---- src/run/pool.c ---- */
/* run/pool.c - the worker pool: fork-join over independent tasks, and the floating-point environment.
 *
 * In: a body and a range of tasks. Out: every task done, once. The range is cut into `threads` equal
 * parts by arithmetic alone; the caller does part 0 and worker i part i.
 *
 * The one idea: a run is announced by one 64-bit ticket (generation, number of parts). A worker whose
 * index is not below that number reads nothing else, and the caller waits for all others, so the job's
 * plain fields never change under a reader. `busy` makes one caller the owner at a time; whoever finds
 * the pool busy (another caller, or a body that calls back) does all its parts alone: same results.
 *
 * Sleeping: a worker sets `asleep` under the lock, then looks at the ticket again; the owner writes the
 * ticket, then looks at `asleep` (both sequentially consistent), so no wake-up is lost. The owner's own
 * wait for the last worker works the same way round. Workers block all signals. In a child made by
 * fork the workers do not exist: the child works alone. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>

/* ---- src/run/pool.h ---- */
/* run/pool.h - the process-wide worker pool: fork-join over independent tasks.
 *
 * Created at the first parallel run, joined when the last context and program are gone (or at
 * tc_shutdown). Workers spin for a bounded time after work, then sleep on a futex-like wait. A run that
 * finds the workers busy does its tasks alone. With OpenMP enabled by the user's compiler flags, its
 * threads are used instead. The host's own parallel_for (tc_options) replaces both. */
#ifndef TCI_RUN_POOL_H
#define TCI_RUN_POOL_H


/* body(arg, worker, begin, end): tasks [begin, end); worker in [0, threads) numbers the caller's slots
 * (0 is the calling thread), for per-thread workspace. */
typedef void (*tci_pool_body)(void *arg, int worker, int64_t begin, int64_t end);

/* Splits [0, n) into at most `threads` static ranges and returns when all are done. threads <= 1: calls
 * body directly, without a lock or system call. Sets the default floating-point environment around
 * body on every thread and restores it. */
TCI_FN void tci_pool_run(const tc_options *o, int threads, int64_t n, tci_pool_body body, void *arg);
TCI_FN int tci_pool_threads(const tc_options *o); /* how many a run with these options may use */
TCI_FN void tci_pool_retain(void);                /* a context or program exists */
TCI_FN void tci_pool_release(void);               /* the last one gone joins the workers */
TCI_FN void tci_pool_shutdown(void);

/* Floating-point environment: default (no FTZ/DAZ, round to nearest, exceptions masked). */
typedef struct tci_fpenv { uint64_t state; } tci_fpenv;
TCI_FN tci_fpenv tci_fpenv_enter(void);
TCI_FN void tci_fpenv_leave(tci_fpenv saved);

#endif

/* ---- src/run/pool.c, continued ---- */
#define TCI_POOL_SPIN_NS 50000

/* ---- floating-point environment ---- */

#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE__))
/* MXCSR: all exceptions masked, to nearest, no FTZ and DAZ. The low six bits are sticky flags, not modes. */
#define TCI_POOL_MXCSR_DEFAULT 0x1f80u
#define TCI_POOL_MXCSR_FLAGS 0x3fu

TCI_FN tci_fpenv tci_fpenv_enter(void)
{
    uint32_t csr;
    __asm__ __volatile__("stmxcsr %0" : "=m"(csr) : : "memory");
    if (TCI_UNLIKELY((csr & ~TCI_POOL_MXCSR_FLAGS) != TCI_POOL_MXCSR_DEFAULT)) {
        uint32_t standard = TCI_POOL_MXCSR_DEFAULT;
        __asm__ __volatile__("ldmxcsr %0" : : "m"(standard) : "memory");
    }
    tci_fpenv saved = {csr};
    return saved;
}

TCI_FN void tci_fpenv_leave(tci_fpenv saved)
{
    uint32_t csr = (uint32_t)saved.state;
    if (TCI_UNLIKELY((csr & ~TCI_POOL_MXCSR_FLAGS) != TCI_POOL_MXCSR_DEFAULT)) {
        __asm__ __volatile__("ldmxcsr %0" : : "m"(csr) : "memory");
    }
}

#elif defined(__aarch64__)
/* FPCR: 0 is to nearest, no flushing, exceptions not trapped. */
TCI_FN tci_fpenv tci_fpenv_enter(void)
{
    uint64_t control;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control) : : "memory");
    if (TCI_UNLIKELY(control != 0)) {
        uint64_t standard = 0;
        __asm__ __volatile__("msr fpcr, %0" : : "r"(standard) : "memory");
    }
    tci_fpenv saved = {control};
    return saved;
}

TCI_FN void tci_fpenv_leave(tci_fpenv saved)
{
    if (TCI_UNLIKELY(saved.state != 0)) {
        __asm__ __volatile__("msr fpcr, %0" : : "r"(saved.state) : "memory");
    }
}

#else
#include <fenv.h>
TCI_FN tci_fpenv tci_fpenv_enter(void)
{
    tci_fpenv saved = {(uint64_t)fegetround()};
    if (saved.state != FE_TONEAREST) {
        fesetround(FE_TONEAREST);
    }
    return saved;
}

TCI_FN void tci_fpenv_leave(tci_fpenv saved)
{
    if (saved.state != FE_TONEAREST) {
        fesetround((int)saved.state);
    }
}
#endif

/* ---- one job ---- */

typedef struct tci_pool_job {
    tci_pool_body body;
    void *arg;
    int64_t n;
    int threads;
} tci_pool_job;

/* First task of part i: the parts differ by one task at most, and no product can overflow. */
static int64_t tci_pool_cut(const tci_pool_job *job, int i)
{
    int64_t share = job->n / job->threads;
    int64_t rest = job->n % job->threads;
    return share * i + TCI_MIN(i, rest);
}

static void tci_pool_do_part(const tci_pool_job *job, int i)
{
    tci_fpenv saved = tci_fpenv_enter();
    job->body(job->arg, i, tci_pool_cut(job, i), tci_pool_cut(job, i + 1));
    tci_fpenv_leave(saved);
}

static void tci_pool_do_alone(const tci_pool_job *job)
{
    for (int i = 0; i < job->threads; i++) {
        tci_pool_do_part(job, i);
    }
}

/* The shape of a task in tc_options.parallel_for. */
static void tci_pool_host_task(void *arg, int i)
{
    tci_pool_do_part(arg, i);
}

/* ---- the pool ---- */

typedef struct tci_pool_worker {
    pthread_t thread;
    int index;        /* its part; >= 1 */
    uint64_t seen;    /* ticket that was current when it was made */
    int32_t asleep;   /* atomic; written by the worker under the lock */
    tci_cond wake;
} tci_pool_worker;

static struct {
    tci_mutex lock;             /* of the sleeping only; the fast path takes none */
    tci_cond done;              /* the owner sleeps here */
    int32_t users;              /* atomic: contexts and programs */
    int32_t busy;               /* atomic: 1 while somebody owns the fields below */
    int32_t alone;              /* atomic: 1 in a forked child for ever */
    int32_t cpus;               /* atomic: threads this process may use; 0 = not asked yet */
    tci_pool_worker **workers;  /* workers[i] does part i + 1 */
    int n_workers, cap_workers;
    tci_pool_job job;
    uint64_t ticket;            /* atomic: generation << 32 | parts; 0 parts: workers leave */
    int32_t pending;            /* atomic: workers that have not finished the job */
    int32_t owner_asleep;       /* atomic */
    int64_t spin_ns;            /* atomic */
} tci_pool = {.lock = TCI_MUTEX_INIT, .done = TCI_COND_INIT, .spin_ns = TCI_POOL_SPIN_NS};

static pthread_once_t tci_pool_fork_once = PTHREAD_ONCE_INIT;

static void tci_pool_after_fork(void)
{
    __atomic_store_n(&tci_pool.alone, 1, __ATOMIC_RELAXED);
}

static void tci_pool_watch_fork(void)
{
    if (pthread_atfork(NULL, NULL, tci_pool_after_fork) != 0) {
        tci_pool_after_fork(); /* no way to notice a fork: never make workers */
    }
}

static bool tci_pool_take(void)
{
    int32_t free_state = 0;
    return __atomic_compare_exchange_n(&tci_pool.busy, &free_state, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void tci_pool_give(void)
{
    __atomic_store_n(&tci_pool.busy, 0, __ATOMIC_RELEASE);
}

static void tci_pool_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ __volatile__("pause");
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* True while a spin that began at *since (0: now) may go on; the clock is read every 32nd round. */
static bool tci_pool_may_spin(int *round, int64_t *since, int64_t spin_ns)
{
    if (spin_ns <= 0) {
        return false;
    }
    tci_pool_relax();
    if (++*round & 31) {
        return true;
    }
    int64_t now = tci_os_now_ns();
    if (!*since) {
        *since = now;
    }
    return now - *since < spin_ns;
}

/* Returns the next ticket after `seen`. */
static uint64_t tci_pool_wait_ticket(tci_pool_worker *w, uint64_t seen)
{
    int64_t spin_ns = __atomic_load_n(&tci_pool.spin_ns, __ATOMIC_RELAXED);
    int64_t since = 0;
    int round = 0;
    uint64_t ticket;
    do {
        ticket = __atomic_load_n(&tci_pool.ticket, __ATOMIC_ACQUIRE);
        if (ticket != seen) {
            return ticket;
        }
    } while (tci_pool_may_spin(&round, &since, spin_ns));
    pthread_mutex_lock(&tci_pool.lock);
    __atomic_store_n(&w->asleep, 1, __ATOMIC_SEQ_CST);
    while ((ticket = __atomic_load_n(&tci_pool.ticket, __ATOMIC_SEQ_CST)) == seen) {
        pthread_cond_wait(&w->wake, &tci_pool.lock);
    }
    __atomic_store_n(&w->asleep, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&tci_pool.lock);
    return ticket;
}

static void *tci_pool_worker_main(void *arg)
{
    tci_pool_worker *w = arg;
    uint64_t seen = w->seen;
    for (;;) {
        seen = tci_pool_wait_ticket(w, seen);
        uint32_t parts = (uint32_t)seen;
        if (!parts) {
            return NULL;
        }
        if ((uint32_t)w->index >= parts) {
            continue;
        }
        tci_pool_do_part(&tci_pool.job, w->index);
        if (__atomic_sub_fetch(&tci_pool.pending, 1, __ATOMIC_SEQ_CST) == 0 &&
            __atomic_load_n(&tci_pool.owner_asleep, __ATOMIC_SEQ_CST)) {
            pthread_mutex_lock(&tci_pool.lock);
            pthread_cond_signal(&tci_pool.done);
            pthread_mutex_unlock(&tci_pool.lock);
        }
    }
}

/* Announces a job of `parts` parts (0: leave) and wakes those workers it concerns. */
static void tci_pool_announce(uint32_t parts, int n_concerned)
{
    uint64_t generation = (tci_pool.ticket >> 32) + 1;
    __atomic_store_n(&tci_pool.ticket, generation << 32 | parts, __ATOMIC_SEQ_CST);
    for (int i = 0; i < n_concerned; i++) {
        tci_pool_worker *w = tci_pool.workers[i];
        if (__atomic_load_n(&w->asleep, __ATOMIC_SEQ_CST)) {
            pthread_mutex_lock(&tci_pool.lock);
            pthread_cond_signal(&w->wake);
            pthread_mutex_unlock(&tci_pool.lock);
        }
    }
}

static void tci_pool_wait_done(int64_t spin_ns)
{
    int64_t since = 0;
    int round = 0;
    do {
        if (__atomic_load_n(&tci_pool.pending, __ATOMIC_ACQUIRE) == 0) {
            return;
        }
    } while (tci_pool_may_spin(&round, &since, spin_ns));
    pthread_mutex_lock(&tci_pool.lock);
    __atomic_store_n(&tci_pool.owner_asleep, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&tci_pool.pending, __ATOMIC_SEQ_CST) != 0) {
        pthread_cond_wait(&tci_pool.done, &tci_pool.lock);
    }
    __atomic_store_n(&tci_pool.owner_asleep, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&tci_pool.lock);
}

static bool tci_pool_add_worker(void)
{
    if (tci_pool.n_workers == tci_pool.cap_workers) {
        int cap = TCI_MAX(8, tci_pool.cap_workers * 2);
        void *grown = tci_heap_resize(tci_pool.workers, (size_t)cap * sizeof(*tci_pool.workers));
        if (!grown) {
            return false;
        }
        tci_pool.workers = grown;
        tci_pool.cap_workers = cap;
    }
    tci_pool_worker *w = tci_heap_get(sizeof(*w));
    if (!w) {
        return false;
    }
    w->index = tci_pool.n_workers + 1;
    w->seen = tci_pool.ticket;
    pthread_cond_init(&w->wake, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&w->thread, NULL, tci_pool_worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        pthread_cond_destroy(&w->wake);
        tci_heap_free(w);
        return false;
    }
    tci_pool.workers[tci_pool.n_workers++] = w;
    return true;
}

/* The caller owns the pool. Returns how many workers of the `wanted` there are; makes missing ones. */
static int tci_pool_staff(int wanted)
{
    pthread_once(&tci_pool_fork_once, tci_pool_watch_fork);
    if (__atomic_load_n(&tci_pool.alone, __ATOMIC_RELAXED)) {
        return 0;
    }
    while (tci_pool.n_workers < wanted && tci_pool_add_worker()) {
    }
    return TCI_MIN(wanted, tci_pool.n_workers);
}

static int64_t tci_pool_spin_ns(const tc_options *o)
{
    if (!o || !o->spin_us) {
        return TCI_POOL_SPIN_NS;
    }
    return o->spin_us < 0 ? 0 : (int64_t)o->spin_us * 1000;
}

static void tci_pool_run_own(const tc_options *o, const tci_pool_job *job)
{
    if (__atomic_load_n(&tci_pool.alone, __ATOMIC_RELAXED) || !tci_pool_take()) {
        tci_pool_do_alone(job);
        return;
    }
    int staff = tci_pool_staff(job->threads - 1);
    tci_pool_job mine = *job;
    mine.threads = staff + 1; /* fewer workers than wanted: fewer, larger parts */
    if (staff) {
        int64_t spin_ns = tci_pool_spin_ns(o);
        tci_pool.job = mine;
        __atomic_store_n(&tci_pool.spin_ns, spin_ns, __ATOMIC_RELAXED);
        __atomic_store_n(&tci_pool.pending, staff, __ATOMIC_RELAXED);
        tci_pool_announce((uint32_t)mine.threads, staff);
        tci_pool_do_part(&mine, 0);
        tci_pool_wait_done(spin_ns);
        tci_pool_give();
    } else {
        tci_pool_give();
        tci_pool_do_part(&mine, 0);
    }
}

TCI_FN void tci_pool_run(const tc_options *o, int threads, int64_t n, tci_pool_body body, void *arg)
{
    tci_pool_job job = {body, arg, n, (int)TCI_MAX(1, TCI_MIN((int64_t)threads, n))};
    if (n <= 0) {
        return;
    }
    if (job.threads == 1) {
        tci_pool_do_part(&job, 0);
        return;
    }
    if (o && o->parallel_for) {
        o->parallel_for(o->parallel_user, job.threads, tci_pool_host_task, &job);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(job.threads) schedule(static, 1)
    for (int i = 0; i < job.threads; i++) {
        tci_pool_do_part(&job, i);
    }
#else
    tci_pool_run_own(o, &job);
#endif
}

TCI_FN int tci_pool_threads(const tc_options *o)
{
    if (o && o->threads > 0) {
        return o->threads;
    }
    int32_t cpus = __atomic_load_n(&tci_pool.cpus, __ATOMIC_RELAXED);
    if (!cpus) {
        int64_t asked = tci_env_int(TCI_ENV_THREADS, 0);
        cpus = asked > 0 && asked < 65536 ? (int32_t)asked : tci_os_cpu_count();
        __atomic_store_n(&tci_pool.cpus, cpus, __ATOMIC_RELAXED);
    }
    return cpus;
}

/* ---- life ---- */

TCI_FN void tci_pool_retain(void)
{
    __atomic_add_fetch(&tci_pool.users, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_pool_release(void)
{
    if (__atomic_sub_fetch(&tci_pool.users, 1, __ATOMIC_ACQ_REL) == 0) {
        tci_pool_shutdown();
    }
}

/* Runs meanwhile find the pool busy and work alone; a later run makes new workers. */
TCI_FN void tci_pool_shutdown(void)
{
    if (__atomic_load_n(&tci_pool.alone, __ATOMIC_RELAXED)) {
        return;
    }
    while (!tci_pool_take()) {
        sched_yield();
    }
    if (tci_pool.n_workers) {
        tci_pool_announce(0, tci_pool.n_workers);
    }
    for (int i = 0; i < tci_pool.n_workers; i++) {
        pthread_join(tci_pool.workers[i]->thread, NULL);
        pthread_cond_destroy(&tci_pool.workers[i]->wake);
        tci_heap_free(tci_pool.workers[i]);
    }
    tci_heap_free(tci_pool.workers);
    tci_pool.workers = NULL;
    tci_pool.n_workers = tci_pool.cap_workers = 0;
    tci_pool_give();
}

#undef TCI_POOL_SPIN_NS
#undef TCI_POOL_MXCSR_DEFAULT
#undef TCI_POOL_MXCSR_FLAGS
/* ---- src/run/buffer.c ---- */
/* run/buffer.c - counted tensor memory.
 *
 * In: sizes, or memory of the user. Out: tci_storage, shared by graph nodes and programs.
 * The one idea: whoever keeps a storage holds one count, and counts are atomic, because a program that
 * captured a leaf may be freed on another thread than its context's. Everything else in a storage is
 * changed by the context's thread alone (version by tc_touch).
 *
 * Own memory is one aligned block: the header in its first 64 bytes, the data right behind it, so data
 * is 64-byte aligned and never NULL, also for zero bytes. Borrowed memory is only pointed at. */
/* ---- src/run/context.h ---- */
/* run/context.h - the inside of tc_ctx, tc_program and tc_call, and how handles map to nodes. */
#ifndef TCI_RUN_CONTEXT_H
#define TCI_RUN_CONTEXT_H


/* The error of a poisoned tensor: kept in the context until the scope it was made in ends. */
typedef struct tci_error {
    tc_status status;
    char text[1024];           /* "app.c:12: tc_add: ... given ..., expected ..." */
} tci_error;

struct tc_ctx {
    uint64_t magic;            /* tells a live context from a dangling or foreign pointer (best effort) */
    tc_options options;        /* with environment applied; strings owned */
    tci_graph graph;
    tci_error last;            /* of the last failing call on this context */
    tc_tensor last_on;         /* the handle it concerns */
    /* Poisoned handles: id - TCI_POISON_FIRST indexes this array; entries of ended scopes are NULL. */
    struct tci_poison_entry **poisons; int n_poisons, cap_poisons;
    uint32_t next_poison;      /* generation of the next one */
    struct tci_keep *keeps; uint32_t cap_keeps; /* what tc_keep knows, by node id (api/scope.c) */
    uint32_t keep_serial;
    struct tc_ctx *next_retired; /* freed contexts wait for reuse: a late handle reads a dead one, not freed memory */
};
#define TCI_CTX_MAGIC 0x74635f6374783031u
#define TCI_POISON_FIRST 0xC0000000u

/* One launch of a program, as the run loop wants it. */
typedef struct tci_run_step {
    tci_kernel_fn fn;          /* NULL: interp runs it */
    const tci_interp *interp;
    const int64_t *literals;   /* words of this kernel's literal slots, in the program's block */
    int64_t n_tasks;
    int32_t first_slot;        /* of its operands among tc_call.slots */
    int32_t threads;           /* parts it is cut into; 1: serial */
    bool faults;
} tci_run_step;
/* slots[slot] of a call is the memory of user buffer `arg`: inputs first, then outputs. */
typedef struct tci_run_bind { int32_t arg, slot; } tci_run_bind;

/* The last failing tc_run of one thread. Only that thread writes the text. */
typedef struct tci_thread_error {
    struct tci_thread_error *next;
    pthread_t thread;
    tci_error error;
} tci_thread_error;

/* One heap block: the arrays lie behind the struct. Immutable but for the last group. */
struct tc_program {
    tci_code *code;
    tc_options options;        /* threads, parallel_for, spin: what a run needs; no strings */
    int64_t *literals;         /* values this compile captured, by program slot (tci_value words) */
    tci_storage **captured;    /* memory of the captured leaves, counted */
    void **captured_data;      /* lowest address of each */
    int n_captured;
    int n_inputs;              /* user inputs: code->n_inputs without the captured leaves */
    tci_run_step *steps;       /* code->n_steps */
    tci_run_bind *binds; int n_binds;
    tci_alias *aliases;        /* code->aliases, ascending by (output, input) */
    int n_slots;               /* operand pointers of all steps */
    int max_threads;           /* of any step: how many fault words and workspaces a call has */
    bool faults, from_memory, from_disk;
    int32_t refs;              /* atomic: the user's, and one for each tc_call_make */
    tc_call *spare;            /* atomic: one idle call, taken and given back without the lock */
    tci_mutex lock;            /* guards the two lists */
    tc_call *idle;
    tci_thread_error *errors;
};

/* A piece of memory in a run, for the search for overlaps. */
typedef struct tci_run_span {
    uintptr_t begin, end, max_end, max_out_end; /* max_*: over all spans up to here, once sorted */
    int32_t index;             /* outputs first, then user inputs, then captured leaves */
} tci_run_span;

/* One heap block, and one aligned block of workspace. */
struct tc_call {
    tc_program *program;
    tc_call *next;             /* in the program's idle list */
    void **slots;              /* operand pointers of all steps; user memory is patched in at each run */
    int64_t *faults;           /* max_threads words */
    char *workspace;           /* temporaries, then the interpreter's part of each thread */
    char *interp;
    tci_run_span *spans;       /* NULL when there are few buffers */
    void **device;             /* memory of a device (run/device.c), or NULL */
    tci_error last;
};

/* ---- api/handle.c ---- */
/* The live node behind a handle; NULL when it is dead, null, foreign to ctx or poisoned. */
TCI_FN tci_node *tci_handle_node(tc_tensor t);
TCI_FN tc_tensor tci_handle_make(tc_ctx *ctx, tci_node *n, tc_site here); /* n NULL: poison from graph.error */
/* Poison with this status and text; op and site are put in front. */
TCI_FN tc_tensor tci_poison(tc_ctx *ctx, const char *op, tc_site here, tc_status why, const char *format, ...)
    TCI_PRINTF(5, 6);
/* The error behind a handle that has no node; explains dead, null and foreign ones too. */
TCI_FN tc_status tci_handle_error(tc_tensor t, char *text, size_t room);
/* Records a failure that concerns a live tensor (its compile, run or read): tc_error(t) and the context's error
 * tell it until the next one. On a handle without a node the handle's own error stays the answer. Returns why. */
TCI_FN tc_status tci_fail(tc_tensor t, tc_status why, const char *format, ...) TCI_PRINTF(3, 4);
TCI_FN bool tci_ctx_is_live(const tc_ctx *ctx);

/* ---- api/scope.c ---- */
TCI_FN void tci_scope_free_all(tc_ctx *ctx); /* values, poisons and keeps of every scope, at the context's end */

/* ---- run/buffer.c: storage ---- */
TCI_FN tci_storage *tci_storage_make(int64_t bytes);                 /* heap, aligned; NULL: no memory */
TCI_FN tci_storage *tci_storage_borrow(const void *data, int64_t bytes);
TCI_FN void tci_storage_retain(tci_storage *s);
TCI_FN void tci_storage_release(tci_storage *s);

/* ---- run/program.c ---- */
/* A program from code and the request that led to it: captures literal values and leaf memory. Keeps its own
 * count of the code. TC_ERR_LIMIT: the arena is larger than options.memory_limit. */
TCI_FN tc_status tci_program_make(tci_code *code, const tci_request *r, const tc_options *o, tc_program **f);
TCI_FN void tci_program_retain(tc_program *f);
TCI_FN void tci_program_release(tc_program *f);
/* Keeps the text for tc_program_error on this thread. */
TCI_FN void tci_program_record(tc_program *f, tc_status why, const char *op, const char *text);
TCI_FN const char *tci_program_error_text(tc_program *f);

/* ---- run/device.c ---- */
TCI_FN bool tci_device_make(tc_call *c);
TCI_FN void tci_device_free(tc_call *c);
TCI_FN tc_status tci_device_run(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs);

/* ---- run/call.c ---- */
TCI_FN tc_call *tci_call_make(tc_program *f);                  /* NULL: no memory */
TCI_FN void tci_call_free(tc_call *c);
TCI_FN tc_call *tci_call_take(tc_program *f);                  /* an idle one or a new one */
TCI_FN void tci_call_give(tc_program *f, tc_call *c);
/* Checks the buffers and runs; the text of a failure is in c->last. */
TCI_FN tc_status tci_call_run(tc_call *c, tc_bufs inputs, tc_bufs outputs);

#endif

/* ---- src/run/buffer.c, continued ---- */
#define TCI_BUFFER_HEADER ((size_t)64)
_Static_assert(sizeof(tci_storage) <= 64, "the header must fit in front of the data");

TCI_FN tci_storage *tci_storage_make(int64_t bytes)
{
    if (bytes < 0 || (uint64_t)bytes > SIZE_MAX / 2) {
        return NULL;
    }
    tci_storage *s = tci_heap_get_aligned(TCI_BUFFER_HEADER + (size_t)bytes);
    if (s) {
        *s = (tci_storage){.refs = 1, .data = (char *)s + TCI_BUFFER_HEADER, .bytes = bytes};
    }
    return s;
}

TCI_FN tci_storage *tci_storage_borrow(const void *data, int64_t bytes)
{
    tci_storage *s = tci_heap_get(sizeof(*s));
    if (s) {
        *s = (tci_storage){.refs = 1, .borrowed = true, .data = (void *)(uintptr_t)data, .bytes = bytes};
    }
    return s;
}

TCI_FN void tci_storage_retain(tci_storage *s)
{
    __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_storage_release(tci_storage *s)
{
    if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    if (s->borrowed) {
        tci_heap_free(s);
    } else {
        tci_heap_free_aligned(s);
    }
}

#undef TCI_BUFFER_HEADER
/* ---- src/run/program.c ---- */
/* run/program.c - programs: code plus what one compile captured.
 *
 * In: code (shared, immutable) and the request that led to it. Out: a tc_program, used from any thread and
 * independent of the context it came from.
 *
 * The one idea: everything a run needs is worked out here, once. The literal words of every kernel are
 * laid out as the kernel reads them, each launch knows whether it is worth threads, and the operand
 * pointers of a call fall into those that never change (temporaries, captured leaves) and those listed
 * in `binds`, which each run patches. A program is one heap block, so the lazy form makes and drops one
 * for the price of a malloc.
 *
 * Lifetime: counted. tc_program_free drops the user's count, a tc_call holds another. */
#include <pthread.h>
#include <stdio.h>


/* A part below this is not worth a thread of its own; an interpreted task takes about so many times the
 * estimate, which is made for native code. */
#define TCI_PROGRAM_PART_NS 10000.0
#define TCI_PROGRAM_INTERP_FACTOR 8.0

/* ---- layout of the block ---- */

typedef struct tci_program_sizes {
    size_t n_slots, n_literal_words, n_binds;
} tci_program_sizes;

static bool tci_program_is_user_buffer(const tci_code *code, int n_inputs, int buffer)
{
    const tci_code_buffer *b = &code->buffers[buffer];
    return b->kind == TCI_BUF_OUTPUT || (b->kind == TCI_BUF_INPUT && b->index < n_inputs);
}

static tci_program_sizes tci_program_measure(const tci_code *code, int n_inputs)
{
    tci_program_sizes sizes = {0, 0, 0};
    for (int i = 0; i < code->n_steps; i++) {
        const tci_code_step *step = &code->steps[i];
        const tci_code_kernel *kernel = &code->kernels[step->kernel];
        sizes.n_slots += (size_t)kernel->n_operands;
        sizes.n_literal_words += (size_t)kernel->n_literals;
        for (int j = 0; j < kernel->n_operands; j++) {
            sizes.n_binds += tci_program_is_user_buffer(code, n_inputs, step->operands[j]);
        }
    }
    return sizes;
}

/* Takes n items from the block at *at; with block NULL only counts the bytes. */
static void *tci_program_carve(char *block, size_t *at, size_t n, size_t item_bytes)
{
    void *p = block ? block + *at : NULL;
    *at += (n * item_bytes + 15) & ~(size_t)15;
    return p;
}

static size_t tci_program_lay_out(tc_program *f, const tci_code *code, int n_captured,
                                  const tci_program_sizes *sizes, int64_t **literal_words)
{
    char *block = (char *)f;
    tc_program unused;
    tc_program *p = f ? f : &unused;
    size_t at = 0;
    tci_program_carve(block, &at, 1, sizeof(tc_program));
    p->steps = tci_program_carve(block, &at, (size_t)code->n_steps, sizeof(tci_run_step));
    p->binds = tci_program_carve(block, &at, sizes->n_binds, sizeof(tci_run_bind));
    p->aliases = tci_program_carve(block, &at, (size_t)code->n_aliases, sizeof(tci_alias));
    p->literals = tci_program_carve(block, &at, (size_t)code->n_literals, sizeof(int64_t));
    *literal_words = tci_program_carve(block, &at, sizes->n_literal_words, sizeof(int64_t));
    p->captured = tci_program_carve(block, &at, (size_t)n_captured, sizeof(tci_storage *));
    p->captured_data = tci_program_carve(block, &at, (size_t)n_captured, sizeof(void *));
    return at;
}

/* ---- what was captured ---- */

/* Lowest address that the elements of a leaf take: negative strides reach below element 0...0. */
static void *tci_program_lowest(const tci_node *n)
{
    if (!n->storage->data) {
        return NULL;
    }
    int64_t lowest = n->offset;
    for (int i = 0; n->strides && i < n->rank; i++) {
        if (n->strides[i] < 0 && n->shape[i] > 1) {
            lowest += n->strides[i] * (n->shape[i] - 1);
        }
    }
    return (char *)n->storage->data + lowest * tci_dtype_get(n->dtype)->bytes;
}

static void tci_program_capture(tc_program *f, const tci_request *r)
{
    for (int i = 0; i < r->n_literals; i++) {
        f->literals[i] = r->literals[i]->value.i;
    }
    for (int i = 0; i < r->n_captured; i++) {
        f->captured[i] = r->captured[i]->storage;
        f->captured_data[i] = tci_program_lowest(r->captured[i]);
        tci_storage_retain(f->captured[i]);
    }
}

/* ---- what a run does ---- */

static int tci_program_choose_threads(const tci_code_kernel *kernel, int64_t n_tasks, int available)
{
    double ns = (double)kernel->n_tasks * kernel->task_ns;
    if (!kernel->fn) {
        ns *= TCI_PROGRAM_INTERP_FACTOR;
    }
    if (available <= 1 || n_tasks <= 1 || !(ns > 2 * TCI_PROGRAM_PART_NS)) {
        return 1;
    }
    double parts = ns / TCI_PROGRAM_PART_NS;
    int64_t most = TCI_MIN((int64_t)available, n_tasks);
    return parts < (double)most ? (int)parts : (int)most;
}

static void tci_program_fill_steps(tc_program *f, int64_t *literal_words)
{
    const tci_code *code = f->code;
    int available = code->device ? 1 : tci_pool_threads(&f->options);
    f->max_threads = 1;
    for (int i = 0; i < code->n_steps; i++) {
        const tci_code_step *from = &code->steps[i];
        const tci_code_kernel *kernel = &code->kernels[from->kernel];
        tci_run_step *step = &f->steps[i];
        step->fn = kernel->fn;
        step->interp = kernel->interp;
        step->n_tasks = kernel->interp && !kernel->fn ? tci_interp_tasks(kernel->interp) : kernel->n_tasks;
        step->threads = tci_program_choose_threads(kernel, step->n_tasks, available);
        step->faults = kernel->faults;
        step->literals = literal_words;
        step->first_slot = f->n_slots;
        for (int j = 0; j < kernel->n_literals; j++) {
            *literal_words++ = f->literals[from->literals[j]];
        }
        for (int j = 0; j < kernel->n_operands; j++) {
            const tci_code_buffer *b = &code->buffers[from->operands[j]];
            if (tci_program_is_user_buffer(code, f->n_inputs, from->operands[j])) {
                int32_t arg = b->kind == TCI_BUF_INPUT ? b->index : f->n_inputs + b->index;
                f->binds[f->n_binds++] = (tci_run_bind){arg, f->n_slots};
            }
            f->n_slots++;
        }
        f->max_threads = TCI_MAX(f->max_threads, step->threads);
        f->faults |= kernel->faults;
    }
}

/* Insertion sort: the plan lists them nearly in order. */
static void tci_program_sort_aliases(tc_program *f)
{
    for (int i = 0; i < f->code->n_aliases; i++) {
        tci_alias a = f->code->aliases[i];
        int j = i;
        for (; j > 0; j--) {
            tci_alias b = f->aliases[j - 1];
            if (b.output < a.output || (b.output == a.output && b.input <= a.input)) {
                break;
            }
            f->aliases[j] = b;
        }
        f->aliases[j] = a;
    }
}

/* The strings of the options belong to somebody who may go first, and no run reads them. */
static tc_options tci_program_options(const tc_options *o)
{
    tc_options kept = *o;
    kept.backend = kept.cc = kept.cache_dir = kept.dump = kept.dump_dir = kept.trace = NULL;
    return kept;
}

TCI_FN tc_status tci_program_make(tci_code *code, const tci_request *r, const tc_options *o, tc_program **f)
{
    *f = NULL;
    if (o->memory_limit > 0 && code->arena_bytes > o->memory_limit) {
        return TC_ERR_LIMIT;
    }
    int n_inputs = r->n_user_inputs;
    tci_program_sizes sizes = tci_program_measure(code, n_inputs);
    if (sizes.n_slots > INT32_MAX) {
        return TC_ERR_LIMIT;
    }
    int64_t *literal_words = NULL;
    size_t bytes = tci_program_lay_out(NULL, code, r->n_captured, &sizes, &literal_words);
    tc_program *p = tci_heap_get(bytes);
    if (!p) {
        return TC_ERR_MEMORY;
    }
    tci_program_lay_out(p, code, r->n_captured, &sizes, &literal_words);
    p->code = code;
    p->options = tci_program_options(o);
    p->from_memory = r->found == TCI_FOUND_MEMORY;
    p->from_disk = r->found == TCI_FOUND_DISK;
    p->n_inputs = n_inputs;
    p->n_captured = r->n_captured;
    p->refs = 1;
    pthread_mutex_init(&p->lock, NULL);
    tci_program_capture(p, r);
    tci_program_fill_steps(p, literal_words);
    tci_program_sort_aliases(p);
    tci_code_retain(code);
    tci_pool_retain();
    *f = p;
    return TC_OK;
}

/* ---- lifetime ---- */

TCI_FN void tci_program_retain(tc_program *f)
{
    __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_program_release(tc_program *f)
{
    if (!f || __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    tci_call_free(f->spare);
    while (f->idle) {
        tc_call *next = f->idle->next;
        tci_call_free(f->idle);
        f->idle = next;
    }
    while (f->errors) {
        tci_thread_error *next = f->errors->next;
        tci_heap_free(f->errors);
        f->errors = next;
    }
    for (int i = 0; i < f->n_captured; i++) {
        tci_storage_release(f->captured[i]);
    }
    tci_code_release(f->code);
    pthread_mutex_destroy(&f->lock);
    tci_heap_free(f);
    tci_pool_release();
}

/* ---- errors of tc_run, by thread ---- */

static tci_thread_error *tci_program_find_error(tc_program *f)
{
    pthread_t me = pthread_self();
    pthread_mutex_lock(&f->lock);
    tci_thread_error *e = f->errors;
    while (e && !pthread_equal(e->thread, me)) {
        e = e->next;
    }
    pthread_mutex_unlock(&f->lock);
    return e;
}

TCI_FN void tci_program_record(tc_program *f, tc_status why, const char *op, const char *text)
{
    tci_thread_error *e = tci_program_find_error(f);
    if (!e) {
        e = tci_heap_get(sizeof(*e));
        if (!e) {
            return; /* the status still tells */
        }
        e->thread = pthread_self();
        pthread_mutex_lock(&f->lock);
        e->next = f->errors;
        f->errors = e;
        pthread_mutex_unlock(&f->lock);
    }
    e->error.status = why;
    snprintf(e->error.text, sizeof(e->error.text), "%s: %s", op, text);
}

TCI_FN const char *tci_program_error_text(tc_program *f)
{
    tci_thread_error *e = tci_program_find_error(f);
    return e ? e->error.text : "";
}

#undef TCI_PROGRAM_PART_NS
#undef TCI_PROGRAM_INTERP_FACTOR
/* ---- src/run/device.c ---- */
/* run/device.c - runs whose kernels a registered backend launches (tci_code.device).
 *
 * In: a checked call. Out: the outputs in the user's memory. Backends that work on host memory get the
 * call's operand pointers as they are. For the others the call owns a device copy of every input,
 * captured leaf and output, and of the arena; inputs go up before, outputs come down after.
 *
 * tc_call.device: [0] the arena, then inputs (captured leaves too), then outputs; NULL without device memory. */

static int64_t tci_device_bytes(const tci_code *code, int i)
{
    if (i == 0) {
        return code->arena_bytes;
    }
    return i <= code->n_inputs ? code->inputs[i - 1].bytes : code->outputs[i - 1 - code->n_inputs].bytes;
}

TCI_FN void tci_device_free(tc_call *c)
{
    const tci_code *code = c->program->code;
    for (int i = 0; c->device && i < 1 + code->n_inputs + code->n_outputs; i++) {
        if (c->device[i]) {
            code->device->free(code->device->user, c->device[i]);
        }
    }
    tci_heap_free(c->device);
    c->device = NULL;
}

/* Fills c->slots with device memory. False: there is none left. */
TCI_FN bool tci_device_make(tc_call *c)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    int n = 1 + code->n_inputs + code->n_outputs;
    c->device = tci_heap_get((size_t)n * sizeof(void *));
    for (int i = 0; c->device && i < n; i++) {
        int64_t bytes = tci_device_bytes(code, i);
        c->device[i] = bytes ? device->alloc(device->user, bytes) : NULL;
        if (bytes && !c->device[i]) {
            tci_device_free(c);
        }
    }
    if (!c->device) {
        return false;
    }
    int slot = 0;
    for (int i = 0; i < code->n_steps; i++) {
        int n_operands = code->kernels[code->steps[i].kernel].n_operands;
        for (int j = 0; j < n_operands; j++, slot++) {
            const tci_code_buffer *b = &code->buffers[code->steps[i].operands[j]];
            if (b->kind == TCI_BUF_TEMP) {
                c->slots[slot] = c->device[0] ? (char *)c->device[0] + b->offset : NULL;
            } else {
                c->slots[slot] = c->device[1 + (b->kind == TCI_BUF_OUTPUT ? code->n_inputs : 0) + b->index];
            }
        }
    }
    return true;
}

static tc_status tci_device_upload(tc_call *c, const tc_bufs *inputs)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    tc_status status = TC_OK;
    for (int i = 0; i < f->code->n_inputs && !status; i++) {
        const void *from = i < f->n_inputs ? inputs->items[i].data : f->captured_data[i - f->n_inputs];
        int64_t bytes = f->code->inputs[i].bytes;
        if (bytes) {
            status = device->upload(device->user, c->device[1 + i], from, bytes);
        }
    }
    return status;
}

static tc_status tci_device_download(tc_call *c, const tc_bufs *outputs)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    tc_status status = TC_OK;
    for (int i = 0; i < code->n_outputs && !status; i++) {
        int64_t bytes = code->outputs[i].bytes;
        if (bytes) {
            status = device->download(device->user, outputs->items[i].data, c->device[1 + code->n_inputs + i], bytes);
        }
    }
    return status;
}

static tc_status tci_device_launch(tc_call *c, int i)
{
    const tci_code *code = c->program->code;
    const tci_run_step *step = &c->program->steps[i];
    const tci_code_kernel *kernel = &code->kernels[code->steps[i].kernel];
    tc_launch launch = {.function = kernel->function,
                        .buffers = c->slots + step->first_slot,
                        .literals = step->literals,
                        .fault = step->faults ? c->faults : NULL,
                        .n_buffers = kernel->n_operands,
                        .n_literals = kernel->n_literals,
                        .task_begin = 0,
                        .task_end = step->n_tasks};
    return code->device->launch(code->device->user, &launch);
}

/* The backend's own status; why it failed is asked of the backend by the caller. */
TCI_FN tc_status tci_device_run(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tci_code *code = c->program->code;
    tc_status status = c->device ? tci_device_upload(c, inputs) : TC_OK;
    for (int i = 0; i < code->n_steps && !status; i++) {
        status = tci_device_launch(c, i);
    }
    if (!status) {
        status = code->device->sync(code->device->user);
    }
    return status || !c->device ? status : tci_device_download(c, outputs);
}
/* ---- src/run/call.c ---- */
/* run/call.c - one run: buffers are checked, operand pointers patched, kernels launched.
 *
 * In: a program, the user's buffers. Out: the outputs are written, or nothing is and c->last says why
 * (TC_ERR_INDEX alone is found after the fact).
 *
 * The one idea: a call is everything one run needs besides the user's buffers, so a run allocates
 * nothing. The common case takes an idle call by one atomic exchange (no ABA: the whole call changes
 * hands), checks a few numbers, writes a few pointers and jumps; no lock, no system call.
 *
 * Overlaps: an output may be exactly an input's memory where the plan allows that pair; any other
 * meeting of an output with anything is refused. Few buffers are compared pair by pair; many are
 * sorted by address, and each span looks back only as far as an earlier span still reaches. */
#include <stdarg.h>
#include <stdio.h>


#define TCI_CALL_PAIRWISE 16 /* buffers up to which pairs are compared */

/* ---- making ---- */

static void tci_call_fill_slots(tc_call *c)
{
    const tc_program *f = c->program;
    const tci_code *code = f->code;
    int slot = 0;
    for (int i = 0; i < code->n_steps; i++) {
        int n = code->kernels[code->steps[i].kernel].n_operands;
        for (int j = 0; j < n; j++, slot++) {
            const tci_code_buffer *b = &code->buffers[code->steps[i].operands[j]];
            if (b->kind == TCI_BUF_TEMP && c->workspace) {
                c->slots[slot] = c->workspace + b->offset;
            } else if (b->kind == TCI_BUF_INPUT && b->index >= f->n_inputs) {
                c->slots[slot] = f->captured_data[b->index - f->n_inputs];
            }
        }
    }
}

TCI_FN tc_call *tci_call_make(tc_program *f)
{
    const tci_code *code = f->code;
    size_t n_buffers = (size_t)code->n_inputs + (size_t)code->n_outputs;
    size_t slots_at = (sizeof(tc_call) + 15) & ~(size_t)15;
    size_t faults_at = slots_at + (size_t)f->n_slots * sizeof(void *);
    size_t spans_at = faults_at + (size_t)f->max_threads * sizeof(int64_t);
    size_t bytes = spans_at + (n_buffers > TCI_CALL_PAIRWISE ? n_buffers * sizeof(tci_run_span) : 0);
    tc_call *c = tci_heap_get(bytes);
    if (!c) {
        return NULL;
    }
    bool on_device = code->device && code->device->alloc;
    size_t arena_bytes = on_device ? 0 : ((size_t)code->arena_bytes + 63) & ~(size_t)63;
    size_t interp_bytes = code->device ? 0 : (size_t)code->interp_bytes * (size_t)f->max_threads;
    size_t workspace_bytes = arena_bytes + interp_bytes;
    if (workspace_bytes) {
        c->workspace = tci_heap_get_aligned(workspace_bytes);
        if (!c->workspace) {
            tci_heap_free(c);
            return NULL;
        }
        c->interp = c->workspace + arena_bytes;
    }
    c->program = f;
    c->slots = (void **)((char *)c + slots_at);
    c->faults = (int64_t *)((char *)c + faults_at);
    c->spans = n_buffers > TCI_CALL_PAIRWISE ? (tci_run_span *)((char *)c + spans_at) : NULL;
    if (!on_device) {
        tci_call_fill_slots(c);
    } else if (!tci_device_make(c)) {
        tci_heap_free(c);
        return NULL;
    }
    return c;
}

TCI_FN void tci_call_free(tc_call *c)
{
    if (c) {
        tci_device_free(c);
        tci_heap_free_aligned(c->workspace);
        tci_heap_free(c);
    }
}

TCI_FN tc_call *tci_call_take(tc_program *f)
{
    tc_call *c = __atomic_exchange_n(&f->spare, NULL, __ATOMIC_ACQUIRE);
    if (TCI_LIKELY(c != NULL)) {
        return c;
    }
    pthread_mutex_lock(&f->lock);
    c = f->idle;
    if (c) {
        f->idle = c->next;
    }
    pthread_mutex_unlock(&f->lock);
    return c ? c : tci_call_make(f);
}

TCI_FN void tci_call_give(tc_program *f, tc_call *c)
{
    tc_call *none = NULL;
    if (TCI_LIKELY(__atomic_compare_exchange_n(&f->spare, &none, c, false, __ATOMIC_RELEASE,
                                               __ATOMIC_RELAXED))) {
        return;
    }
    pthread_mutex_lock(&f->lock);
    c->next = f->idle;
    f->idle = c;
    pthread_mutex_unlock(&f->lock);
}

/* ---- texts of refusals: never on the fast path ---- */

static const char *tci_call_dtype_name(int dtype)
{
    if (dtype < 0 || dtype >= TC_DTYPE_COUNT) {
        return "untyped";
    }
    return tci_dtype_get((tc_dtype)dtype)->name;
}

static tc_status tci_call_refuse(tc_call *c, tc_status why, const char *format, ...) TCI_PRINTF(3, 4);
static tc_status tci_call_refuse(tc_call *c, tc_status why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->last.text, sizeof(c->last.text), format, args);
    va_end(args);
    c->last.status = why;
    return why;
}

static tc_status tci_call_refuse_buffer(tc_call *c, bool is_output, int i, const tc_buf *b,
                                        const tci_code_port *port)
{
    const char *side = is_output ? "output" : "input";
    const char *dtype = tci_call_dtype_name(port->dtype);
    char shape[256];
    tci_graph_print_shape(shape, sizeof(shape), port->rank, port->shape);
    if (is_output && b->is_const) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given a pointer to const, expected writable memory of"
                               " %lld %s", side, i, (long long)port->n, dtype);
    }
    if (!b->data && port->n) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given NULL, expected %lld %s, shape %s", side, i,
                               (long long)port->n, dtype, shape);
    }
    if (b->dtype != port->dtype && b->dtype != -1) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given %s, expected %s", side, i,
                               tci_call_dtype_name(b->dtype), dtype);
    }
    return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given %lld elements, expected %lld of %s, shape %s", side, i,
                           (long long)b->n, (long long)port->n, dtype, shape);
}

/* Name of buffer `index` in the order of tci_run_span. */
static void tci_call_name_buffer(const tc_program *f, int index, char *text, size_t room)
{
    int n_outputs = f->code->n_outputs;
    if (index < n_outputs) {
        snprintf(text, room, "output %d", index);
    } else if (index - n_outputs < f->n_inputs) {
        snprintf(text, room, "input %d", index - n_outputs);
    } else {
        snprintf(text, room, "the captured tensor %d", index - n_outputs - f->n_inputs);
    }
}

/* ---- overlaps ---- */

static tci_run_span tci_call_span(const tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs, int index)
{
    const tc_program *f = c->program;
    const tci_code *code = f->code;
    int input = index - code->n_outputs;
    const void *data;
    int64_t bytes;
    if (input < 0) {
        data = outputs->items[index].data;
        bytes = code->outputs[index].bytes;
    } else {
        data = input < f->n_inputs ? inputs->items[input].data : f->captured_data[input - f->n_inputs];
        bytes = code->inputs[input].bytes;
    }
    tci_run_span span = {(uintptr_t)data, (uintptr_t)data + (uintptr_t)bytes, 0, 0, index};
    return span;
}

static bool tci_call_may_alias(const tc_program *f, int output, int input)
{
    int low = 0;
    int high = f->code->n_aliases;
    while (low < high) {
        int middle = low + (high - low) / 2;
        tci_alias a = f->aliases[middle];
        if (a.output == output && a.input == input) {
            return true;
        }
        if (a.output < output || (a.output == output && a.input < input)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

/* The spans a and b meet and one of them is an output: is that allowed? */
static tc_status tci_call_judge(tc_call *c, const tci_run_span *a, const tci_run_span *b)
{
    const tc_program *f = c->program;
    const tci_run_span *out = a->index < b->index ? a : b; /* outputs have the lower numbers */
    const tci_run_span *other = out == a ? b : a;
    int input = other->index - f->code->n_outputs;
    bool exact = a->begin == b->begin && a->end == b->end;
    if (exact && input >= 0 && tci_call_may_alias(f, out->index, input)) {
        return TC_OK;
    }
    char name[64];
    char other_name[64];
    tci_call_name_buffer(f, out->index, name, sizeof(name));
    tci_call_name_buffer(f, other->index, other_name, sizeof(other_name));
    const char *expected = input < 0 ? "separate memory"
                           : exact   ? "separate memory (this program reads it after or beside what it writes)"
                                     : "separate memory, or exactly the same where the program works in place";
    return tci_call_refuse(c, TC_ERR_BUFFER, "%s: given memory [%p, %p) that overlaps %s [%p, %p), expected %s", name,
                           (void *)out->begin, (void *)out->end, other_name, (void *)other->begin,
                           (void *)other->end, expected);
}

static tc_status tci_call_check_pairs(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    int n = c->program->code->n_inputs + outputs->n;
    for (int i = 0; i < outputs->n; i++) {
        tci_run_span out = tci_call_span(c, inputs, outputs, i);
        for (int j = i + 1; j < n; j++) {
            tci_run_span other = tci_call_span(c, inputs, outputs, j);
            bool meet = other.begin < out.end && out.begin < other.end && other.begin < other.end;
            if (TCI_UNLIKELY(meet && out.begin < out.end)) {
                tc_status status = tci_call_judge(c, &out, &other);
                if (status) {
                    return status;
                }
            }
        }
    }
    return TC_OK;
}

static void tci_call_sift(tci_run_span *spans, int i, int n)
{
    tci_run_span moved = spans[i];
    for (int child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && spans[child].begin < spans[child + 1].begin) {
            child++;
        }
        if (spans[child].begin <= moved.begin) {
            break;
        }
        spans[i] = spans[child];
        i = child;
    }
    spans[i] = moved;
}

/* Heap sort by address: in place, unlike qsort. */
static void tci_call_sort(tci_run_span *spans, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--) {
        tci_call_sift(spans, i, n);
    }
    for (int last = n - 1; last > 0; last--) {
        tci_run_span top = spans[0];
        spans[0] = spans[last];
        spans[last] = top;
        tci_call_sift(spans, 0, last);
    }
}

static tc_status tci_call_check_sorted(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tci_run_span *spans = c->spans;
    int n_all = c->program->code->n_inputs + outputs->n;
    int n = 0;
    for (int i = 0; i < n_all; i++) {
        spans[n] = tci_call_span(c, inputs, outputs, i);
        n += spans[n].begin < spans[n].end;
    }
    tci_call_sort(spans, n);
    for (int i = 0; i < n; i++) {
        tci_run_span *s = &spans[i];
        bool is_output = s->index < outputs->n;
        for (int j = i - 1; j >= 0; j--) {
            if ((is_output ? spans[j].max_end : spans[j].max_out_end) <= s->begin) {
                break;
            }
            if (spans[j].end > s->begin && (is_output || spans[j].index < outputs->n)) {
                tc_status status = tci_call_judge(c, &spans[j], s);
                if (status) {
                    return status;
                }
            }
        }
        uintptr_t max_end = i ? spans[i - 1].max_end : 0;
        uintptr_t max_out_end = i ? spans[i - 1].max_out_end : 0;
        s->max_end = TCI_MAX(max_end, s->end);
        s->max_out_end = is_output ? TCI_MAX(max_out_end, s->end) : max_out_end;
    }
    return TC_OK;
}

/* ---- checks ---- */

/* Untyped memory is counted in elements or in bytes. */
static inline bool tci_call_fits(const tc_buf *b, const tci_code_port *port)
{
    bool typed = b->dtype == port->dtype && b->n == port->n;
    bool untyped = b->dtype == -1 && (b->n == port->n || b->n == port->bytes);
    return (typed || untyped) && (b->data || !port->n);
}

static tc_status tci_call_check(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_program *f = c->program;
    const tci_code *code = f->code;
    if (TCI_UNLIKELY(inputs->n != f->n_inputs || outputs->n != code->n_outputs)) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "given %d inputs and %d outputs, expected %d and %d", inputs->n,
                               outputs->n, f->n_inputs, code->n_outputs);
    }
    if (TCI_UNLIKELY((!inputs->items && inputs->n) || !outputs->items)) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "given a NULL list of buffers");
    }
    for (int i = 0; i < inputs->n; i++) {
        if (TCI_UNLIKELY(!tci_call_fits(&inputs->items[i], &code->inputs[i]))) {
            return tci_call_refuse_buffer(c, false, i, &inputs->items[i], &code->inputs[i]);
        }
    }
    for (int i = 0; i < outputs->n; i++) {
        const tc_buf *b = &outputs->items[i];
        if (TCI_UNLIKELY(!tci_call_fits(b, &code->outputs[i]) || b->is_const)) {
            return tci_call_refuse_buffer(c, true, i, b, &code->outputs[i]);
        }
    }
    return c->spans ? tci_call_check_sorted(c, inputs, outputs) : tci_call_check_pairs(c, inputs, outputs);
}

/* ---- running ---- */

typedef struct tci_call_part { tc_call *call; const tci_run_step *step; } tci_call_part;

/* A tci_pool_body. Every part has a fault word and a workspace of its own. */
static void tci_call_do_part(void *arg, int worker, int64_t begin, int64_t end)
{
    const tci_call_part *part = arg;
    const tci_run_step *step = part->step;
    tc_call *c = part->call;
    void *const *slots = c->slots + step->first_slot;
    int64_t *fault = step->faults ? &c->faults[worker] : NULL;
    if (step->fn) {
        step->fn(slots, step->literals, fault, begin, end);
    } else {
        char *workspace = c->interp + (size_t)c->program->code->interp_bytes * (size_t)worker;
        tci_interp_run(step->interp, workspace, slots, step->literals, fault, begin, end);
    }
}

static void tci_call_launch_step(tc_call *c, const tci_run_step *step)
{
    tci_call_part part = {c, step};
    if (step->threads == 1) {
        tci_call_do_part(&part, 0, 0, step->n_tasks);
    } else {
        tci_pool_run(&c->program->options, step->threads, step->n_tasks, tci_call_do_part, &part);
    }
}

static void tci_call_launch(tc_call *c)
{
    const tc_program *f = c->program;
    int n_steps = f->code->n_steps;
    for (int i = 0; i < n_steps; i++) {
        const tci_run_step *step = &f->steps[i];
        if (TCI_LIKELY(step->threads == 1 && step->fn)) {
            step->fn(c->slots + step->first_slot, step->literals, step->faults ? c->faults : NULL, 0,
                     step->n_tasks);
        } else {
            tci_call_launch_step(c, step);
        }
    }
}

static void tci_call_launch_traced(tc_call *c)
{
    const tci_code *code = c->program->code;
    int64_t begin = tci_os_now_ns();
    int64_t step_begin = begin;
    for (int i = 0; i < code->n_steps; i++) {
        tci_call_launch_step(c, &c->program->steps[i]);
        int64_t end = tci_os_now_ns();
        tci_trace_span("kernel", code->kernels[code->steps[i].kernel].symbol, step_begin, end);
        step_begin = end;
    }
    tci_trace_span("run", "tc_run", begin, step_begin);
}

static tc_status tci_call_launch_device(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_backend *device = c->program->code->device;
    tc_status status = tci_device_run(c, inputs, outputs);
    if (status) {
        const char *why = device->last_error ? device->last_error(device->user) : NULL;
        return tci_call_refuse(c, status, "the backend %s failed: %s", device->name, why ? why : "no reason given");
    }
    return TC_OK;
}

static tc_status tci_call_find_fault(tc_call *c)
{
    for (int i = 0; i < c->program->max_threads; i++) {
        if (c->faults[i]) {
            long long n = (long long)(c->faults[i] - 1);
            return tci_call_refuse(c, TC_ERR_INDEX, "an index tensor holds an element outside its axis: the axis"
                                   " has size %lld, expected indices in [%lld, %lld)", n, -n, n);
        }
    }
    return TC_OK;
}

static void tci_call_patch(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_binds; i++) {
        tci_run_bind bind = f->binds[i];
        const tc_buf *b = bind.arg < f->n_inputs ? &inputs->items[bind.arg] : &outputs->items[bind.arg - f->n_inputs];
        c->slots[bind.slot] = b->data;
    }
}

TCI_FN tc_status tci_call_run(tc_call *c, tc_bufs inputs, tc_bufs outputs)
{
    const tc_program *f = c->program;
    tc_status status = tci_call_check(c, &inputs, &outputs);
    if (TCI_UNLIKELY(status != TC_OK)) {
        return status;
    }
    for (int i = 0; f->faults && i < f->max_threads; i++) {
        c->faults[i] = 0;
    }
    if (TCI_LIKELY(!c->device)) {
        tci_call_patch(c, &inputs, &outputs);
    }
    tci_fpenv saved = tci_fpenv_enter();
    if (TCI_UNLIKELY(f->code->device != NULL)) {
        status = tci_call_launch_device(c, &inputs, &outputs);
    } else if (TCI_UNLIKELY(tci_trace_is_on())) {
        tci_call_launch_traced(c);
    } else {
        tci_call_launch(c);
    }
    tci_fpenv_leave(saved);
    return TCI_UNLIKELY(f->faults && !status) ? tci_call_find_fault(c) : status;
}

#undef TCI_CALL_PAIRWISE

/* ---- src/debug/dump.c ---- */
/* debug/dump.c - log lines and stage dumps.
 *
 * In: topics and texts from the compile rooms. Out: the user's log callback, lines on stderr when TC_LOG
 * asks for them, and files in the dump directory when TC_DUMP or options.dump does. Nothing is written
 * that was not asked for, and no failure here reaches the compile. */

#include <stdarg.h>
#include <string.h>


TCI_FN bool tci_log_wants(const tc_options *o, const char *topic)
{
    return o->log || tci_env_has_word(TCI_ENV_LOG, topic);
}

TCI_FN void tci_log(const tc_options *o, const char *topic, const char *format, ...)
{
    if (!tci_log_wants(o, topic)) {
        return;
    }
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n >= 0 ? tci_heap_resize(NULL, (size_t)n + 1) : NULL;
    if (text) {
        vsnprintf(text, (size_t)n + 1, format, again);
        if (o->log) {
            o->log(o->log_user, topic, text);
        }
        if (tci_env_has_word(TCI_ENV_LOG, topic)) {
            fprintf(stderr, "tc %s: %s\n", topic, text);
        }
        tci_heap_free(text);
    }
    va_end(again);
}

/* ---- dumps ---- */

/* "graph,plan" has "plan"; "all" has everything. */
static bool tci_dump_list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    while (list) {
        size_t length = strcspn(list, ",");
        if ((length == n && !memcmp(list, word, n)) || (length == 3 && !memcmp(list, "all", 3))) {
            return true;
        }
        list = list[length] ? list + length + 1 : NULL;
    }
    return false;
}

TCI_FN bool tci_dump_wants(const tci_dump *d, const char *stage)
{
    return d->stages && tci_dump_list_has(d->stages, stage);
}

TCI_FN void tci_dump_begin(tci_dump *d, const tc_options *o)
{
    static int count;
    memset(d, 0, sizeof(*d));
    d->stages = o->dump && o->dump[0] ? o->dump : NULL;
    if (!d->stages) {
        return;
    }
    const char *base = o->dump_dir && o->dump_dir[0] ? o->dump_dir : "./tc_dump";
    int number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    tci_str_add(&d->dir, base);
    if (number > 1) {
        tci_str_printf(&d->dir, "/%d", number);
    }
    bool writable;
    if (d->dir.failed || !tci_os_private_dir(d->dir.text, &writable)) {
        tci_log(o, "compile", "no dump: '%s' cannot be made a private directory", base);
        d->stages = NULL;
    }
}

TCI_FN void tci_dump_end(tci_dump *d)
{
    tci_str_free(&d->dir);
    d->stages = NULL;
}

TCI_FN void tci_dump_file(const tci_dump *d, const char *file, const tci_str *text)
{
    tci_str path = {0};
    tci_str_printf(&path, "%s/%s", tci_str_text(&d->dir), file);
    if (!path.failed && !text->failed) {
        tci_os_publish(path.text, tci_str_text(text), text->n, NULL);
    }
    tci_str_free(&path);
}
/* ---- src/debug/explain.c ---- */
/* debug/explain.c - the text of tc_explain: what one run of the program does, kernel by kernel, and why it is
 * not fewer kernels. Written while the plan exists; kept with the code, also on disk. */

static void tci_explain_bytes(tci_str *out, int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int u = 0;
    while (x >= 10240 && u + 1 < TCI_COUNT(units)) {
        x /= 1024;
        u++;
    }
    tci_str_printf(out, u ? "%.1f %s" : "%.0f %s", x, units[u]);
}

static void tci_explain_port(tci_str *out, const char *what, int index, const tci_code_port *port)
{
    tci_str_printf(out, "  %s %d: %s [", what, index, tci_dtype_get((tc_dtype)port->dtype)->name);
    for (int i = 0; i < port->rank; i++) {
        tci_str_printf(out, "%s%lld", i ? ", " : "", (long long)port->shape[i]);
    }
    tci_str_add(out, "]\n");
}

static void tci_explain_step(tci_str *out, const tci_plan *p, const tci_code *code, int t)
{
    const tci_step *step = &p->steps[t];
    const tci_kernel *k = p->kernels[step->kernel];
    int reads = 0, writes = 0;
    for (int o = 0; o < k->n_operands; o++) {
        writes += k->operands[o].is_output;
        reads += !k->operands[o].is_output;
    }
    tci_str_printf(out, "  %d. %s: %d stage%s, reads %d, writes %d, ", t + 1, k->name, k->n_stages,
                   k->n_stages == 1 ? "" : "s", reads, writes);
    tci_explain_bytes(out, k->bytes);
    tci_str_printf(out, ", %.3g flops", (double)k->flops);
    if (code->kernels[step->kernel].note && code->kernels[step->kernel].note[0]) {
        tci_str_printf(out, "; %s", code->kernels[step->kernel].note);
    }
    tci_str_add(out, "\n");
}

TCI_FN void tci_explain_text(tci_str *out, const tci_plan *plan, const tci_code *code)
{
    int64_t bytes = 0, flops = 0;
    for (int t = 0; t < plan->n_steps; t++) {
        bytes += plan->kernels[plan->steps[t].kernel]->bytes;
        flops += plan->kernels[plan->steps[t].kernel]->flops;
    }
    tci_str_printf(out, "%d launch%s of %d kernel%s on %s; ", plan->n_steps, plan->n_steps == 1 ? "" : "es",
                   plan->n_kernels, plan->n_kernels == 1 ? "" : "s", code->backend);
    tci_explain_bytes(out, bytes);
    tci_str_printf(out, " moved, %.3g flops, ", (double)flops);
    tci_explain_bytes(out, plan->arena_bytes);
    tci_str_add(out, " of workspace\n");
    for (int i = 0; i < code->n_inputs; i++) {
        tci_explain_port(out, "input", i, &code->inputs[i]);
    }
    for (int i = 0; i < code->n_outputs; i++) {
        tci_explain_port(out, "output", i, &code->outputs[i]);
    }
    tci_str_add(out, "launches:\n");
    for (int t = 0; t < plan->n_steps; t++) {
        tci_explain_step(out, plan, code, t);
    }
    if (plan->why.n > 0) {
        tci_str_printf(out, "not fused, and why:\n%s", tci_str_text(&plan->why));
    }
}
/* ---- src/debug/trace.c ---- */
/* debug/trace.c - writes the chrome trace.
 *
 * In: finished spans. Out: a JSON array of complete events ("ph":"X"), one a line, times in microseconds.
 * The one idea: after every event the closing bracket is written too, and the next event begins over it, so
 * the file is valid JSON at any moment, also when the host never says goodbye or crashes.
 *
 * Threads are numbered by first appearance. One lock guards the file. */

#include <stdio.h>
#include <string.h>


#define TCI_TRACE_THREADS 256

static struct {
    tci_mutex lock;
    int on; /* atomic */
    FILE *file;
    bool any;
    int64_t origin_ns;
    int n_threads;
    pthread_t threads[TCI_TRACE_THREADS];
} tci_trace = {.lock = TCI_MUTEX_INIT};

TCI_FN bool tci_trace_is_on(void)
{
    return __atomic_load_n(&tci_trace.on, __ATOMIC_RELAXED) != 0;
}

TCI_FN bool tci_trace_open(const char *path)
{
    pthread_mutex_lock(&tci_trace.lock);
    if (!tci_trace.file) {
        tci_trace.file = fopen(path, "w");
        if (tci_trace.file) {
            fputs("[\n]\n", tci_trace.file);
            fflush(tci_trace.file);
            tci_trace.any = false;
            tci_trace.origin_ns = tci_os_now_ns();
            __atomic_store_n(&tci_trace.on, 1, __ATOMIC_RELAXED);
        }
    }
    bool open = tci_trace.file != NULL;
    pthread_mutex_unlock(&tci_trace.lock);
    return open;
}

TCI_FN void tci_trace_close(void)
{
    pthread_mutex_lock(&tci_trace.lock);
    __atomic_store_n(&tci_trace.on, 0, __ATOMIC_RELAXED);
    if (tci_trace.file) {
        fclose(tci_trace.file);
        tci_trace.file = NULL;
    }
    pthread_mutex_unlock(&tci_trace.lock);
}

/* Caller holds the lock. Threads past the table share the last number. */
static int tci_trace_thread(void)
{
    pthread_t me = pthread_self();
    for (int i = 0; i < tci_trace.n_threads; i++) {
        if (pthread_equal(tci_trace.threads[i], me)) {
            return i;
        }
    }
    if (tci_trace.n_threads < TCI_TRACE_THREADS) {
        tci_trace.threads[tci_trace.n_threads++] = me;
    }
    return tci_trace.n_threads - 1;
}

/* Names come from ops and kernels; anything that JSON would have to escape becomes a dot. */
static void tci_trace_clean(char *out, size_t room, const char *name)
{
    size_t n = 0;
    for (; name[n] && n + 1 < room; n++) {
        char c = name[n];
        out[n] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '.' : c;
    }
    out[n] = 0;
}

TCI_FN void tci_trace_span(const char *category, const char *name, int64_t begin_ns, int64_t end_ns)
{
    if (!tci_trace_is_on()) {
        return;
    }
    char clean[128];
    tci_trace_clean(clean, sizeof(clean), name);
    pthread_mutex_lock(&tci_trace.lock);
    FILE *f = tci_trace.file;
    if (f && fseek(f, -2, SEEK_END) == 0) {
        fprintf(f, "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}\n]\n",
                tci_trace.any ? "," : "", clean, category, tci_trace_thread(),
                (double)(begin_ns - tci_trace.origin_ns) / 1000, (double)(end_ns - begin_ns) / 1000);
        fflush(f);
        tci_trace.any = true;
    }
    pthread_mutex_unlock(&tci_trace.lock);
}

#undef TCI_TRACE_THREADS

/* ---- src/api/handle.c ---- */
/* api/handle.c - handles: which node they name, or why they name none.
 *
 * In: tc_tensor values as users hold them (live, poisoned, dead, zeroed, of another or a freed context).
 * Out: nodes, and error texts.
 * The one idea: a call that fails returns a poisoned handle, whose id lies above every node's and
 * names the record of the error; a call that is given a poisoned handle returns that same handle, so the
 * first cause travels along the graph without further memory. Handles without a context say the reason
 * in their id (api/frame.h).
 *
 * A record lives as long as the scope its call was made in. An equal error in the same scope shares its
 * record, so a loop that fails for ever does not grow. */
/* ---- src/api/frame.h ---- */
/* api/frame.h - one public call under way: its name and place, its context, and how it went so far.
 *
 * A call names its operands twice: tci_frame_use for each (finds the context), then tci_frame_node for
 * each (finds the node, or fails the frame once: the first cause wins). tci_frame_end makes the handle. */
#ifndef TCI_API_FRAME_H
#define TCI_API_FRAME_H


typedef struct tci_frame {
    const char *op;
    tc_site here;
    tc_ctx *ctx;       /* NULL until an operand has a live one */
    tc_tensor bad;     /* result when failed */
    bool failed;
} tci_frame;

/* Handles without a context carry the reason in their id. */
enum {
    TCI_NULL_ZERO = 0,    /* zeroed by the user */
    TCI_NULL_NUMBERS = 1, /* a call whose operands are all numbers */
    TCI_NULL_CTX = 2,     /* made on a NULL context */
    TCI_NULL_FREED = 3,   /* its context was freed */
    TCI_NULL_MEMORY = 4,  /* out of memory while the error was to be kept */
    TCI_NULL_EMPTY = 5    /* a list of tensors without any */
};

TCI_FN tci_frame tci_frame_begin(const char *op, tc_site here);
TCI_FN tci_frame tci_frame_on(tc_ctx *ctx, const char *op, tc_site here); /* for calls that name the context */
TCI_FN void tci_frame_use(tci_frame *f, tc_tensor t);
/* what: "operand 1", "the weight". Fails the frame on a handle that has no node. */
TCI_FN tci_node *tci_frame_node(tci_frame *f, tc_tensor t, const char *what);
TCI_FN tci_node *tci_frame_optional(tci_frame *f, tc_tensor t, const char *what); /* TC_NONE: NULL, no failure */
TCI_FN void tci_frame_fail(tci_frame *f, tc_status why, const char *format, ...) TCI_PRINTF(3, 4);
/* The call's result: a handle to n, or the poison of the first failure. */
TCI_FN tc_tensor tci_frame_end(tci_frame *f, tci_node *n);
static inline bool tci_is_none(tc_tensor t) { return !t.ctx && t.id == UINT32_MAX; }

#endif

/* ---- src/api/handle.c, continued ---- */
#include <stdarg.h>
#include <string.h>

typedef struct tci_poison_entry {
    tci_error error;
    uint32_t generation;
    int scope;
} tci_poison_entry;

#define TCI_HANDLE_DEAD "the handle is dead: its scope has ended, or a later tc_keep replaced the value (tc_retain)"

TC_API const char *tc_status_text(tc_status status)
{
    static const char *const texts[] = {
#define X(id, text) text,
        TCI_STATUS_ROWS(X)
#undef X
    };
    return (unsigned)status < TC_STATUS_COUNT ? texts[status] : "unknown status";
}

TCI_FN bool tci_ctx_is_live(const tc_ctx *ctx)
{
    return ctx && ctx->magic == TCI_CTX_MAGIC;
}

TCI_FN tci_node *tci_handle_node(tc_tensor t)
{
    if (!tci_ctx_is_live(t.ctx) || t.id >= t.ctx->graph.n_slots) {
        return NULL;
    }
    tci_node *n = t.ctx->graph.slots[t.id];
    return n && n->generation == t.generation ? n : NULL;
}

static const tci_poison_entry *tci_handle_poison(tc_tensor t)
{
    if (!tci_ctx_is_live(t.ctx) || t.id < TCI_POISON_FIRST) {
        return NULL;
    }
    uint32_t at = t.id - TCI_POISON_FIRST;
    const tci_poison_entry *p = at < (uint32_t)t.ctx->n_poisons ? t.ctx->poisons[at] : NULL;
    return p && p->generation == t.generation ? p : NULL;
}

/* Why a handle without a node and without a record names nothing. */
static const char *tci_handle_reason(tc_tensor t)
{
    if (t.ctx) {
        return tci_ctx_is_live(t.ctx) ? TCI_HANDLE_DEAD : "the handle is dead: its context was freed";
    }
    switch (t.id) {
    case TCI_NULL_NUMBERS:
        return "all operands were numbers: expected at least one tensor";
    case TCI_NULL_CTX:
        return "the handle was made on a NULL or freed context";
    case TCI_NULL_FREED:
        return "the handle is dead: its context was freed";
    case TCI_NULL_MEMORY:
        return "out of memory while an error was to be recorded";
    case TCI_NULL_EMPTY:
        return "the list of tensors is empty: expected at least one";
    case UINT32_MAX:
        return "TC_NONE stands where a tensor is needed";
    default:
        return "the handle is null (zeroed, never made by a call)";
    }
}

/* ---- poison ---- */

static void tci_handle_text(tci_error *e, const char *op, tc_site here, tc_status why, const char *format,
                            va_list args)
{
    e->status = why;
    e->text[0] = 0;
    int n = 0;
    if (here.file) {
        n = snprintf(e->text, sizeof(e->text), "%.400s:%d: ", here.file, here.line);
    }
    if (op) {
        n += snprintf(e->text + n, sizeof(e->text) - (size_t)n, "%s: ", op);
    }
    vsnprintf(e->text + n, sizeof(e->text) - (size_t)n, format, args);
}

static bool tci_handle_grow_poisons(tc_ctx *ctx)
{
    if (ctx->n_poisons < ctx->cap_poisons) {
        return true;
    }
    size_t entry_bytes = sizeof(*ctx->poisons);
    size_t from = (size_t)ctx->cap_poisons, to = from ? from * 2 : 8;
    struct tci_poison_entry **list =
        tci_graph_resize(&ctx->graph, ctx->poisons, from * entry_bytes, to * entry_bytes);
    if (!list) {
        return false;
    }
    ctx->poisons = list;
    ctx->cap_poisons = (int)to;
    return true;
}

/* Keeps the error in the scope numbered `scope`. */
static tc_tensor tci_handle_keep_error(tc_ctx *ctx, const tci_error *e, int scope)
{
    tc_tensor none = {NULL, TCI_NULL_MEMORY, 0};
    for (int i = ctx->n_poisons - 1; i >= 0 && i >= ctx->n_poisons - 8; i--) {
        const tci_poison_entry *p = ctx->poisons[i];
        if (p && p->scope == scope && p->error.status == e->status && !strcmp(p->error.text, e->text)) {
            tc_tensor same = {ctx, TCI_POISON_FIRST + (uint32_t)i, p->generation};
            return same;
        }
    }
    if (!tci_handle_grow_poisons(ctx)) {
        return none;
    }
    tci_poison_entry *p = tci_graph_resize(&ctx->graph, NULL, 0, sizeof(*p));
    if (!p) {
        return none;
    }
    p->error = *e;
    p->generation = ++ctx->next_poison;
    p->scope = scope;
    tc_tensor t = {ctx, TCI_POISON_FIRST + (uint32_t)ctx->n_poisons, p->generation};
    ctx->poisons[ctx->n_poisons++] = p;
    return t;
}

static int tci_handle_scope(const tc_ctx *ctx)
{
    return ctx->graph.n_scopes ? ctx->graph.n_scopes - 1 : 0;
}

static tc_tensor tci_handle_poison_v(tc_ctx *ctx, const char *op, tc_site here, tc_status why, const char *format,
                                     va_list args)
{
    if (!tci_ctx_is_live(ctx)) {
        tc_tensor none = {NULL, TCI_NULL_CTX, 0};
        return none;
    }
    tci_handle_text(&ctx->last, op, here, why, format, args);
    ctx->last_on = tci_handle_keep_error(ctx, &ctx->last, tci_handle_scope(ctx));
    return ctx->last_on;
}

TCI_FN tc_tensor tci_poison(tc_ctx *ctx, const char *op, tc_site here, tc_status why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tc_tensor t = tci_handle_poison_v(ctx, op, here, why, format, args);
    va_end(args);
    return t;
}

/* Forgets the records of scopes from `scope` on. */
static void tci_handle_drop_poisons(tc_ctx *ctx, int scope)
{
    for (int i = 0; i < ctx->n_poisons; i++) {
        if (ctx->poisons[i] && ctx->poisons[i]->scope >= scope) {
            tci_graph_resize(&ctx->graph, ctx->poisons[i], sizeof(tci_poison_entry), 0);
            ctx->poisons[i] = NULL;
        }
    }
    while (ctx->n_poisons && !ctx->poisons[ctx->n_poisons - 1]) {
        ctx->n_poisons--;
    }
}

/* The same error in the scope outside of the current one, for tc_keep. */
static tc_tensor tci_handle_move_poison(tc_tensor t)
{
    const tci_poison_entry *p = tci_handle_poison(t);
    int scope = p ? TCI_MAX(tci_handle_scope(t.ctx) - 1, 0) : 0;
    return !p || p->scope <= scope ? t : tci_handle_keep_error(t.ctx, &p->error, scope);
}

TCI_FN tc_tensor tci_handle_make(tc_ctx *ctx, tci_node *n, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, NULL, here);
    return tci_frame_end(&f, n);
}

/* ---- errors ---- */

TCI_FN tc_status tci_handle_error(tc_tensor t, char *text, size_t room)
{
    const tci_poison_entry *p = tci_handle_poison(t);
    if (tci_handle_node(t)) {
        snprintf(text, room, "%s", "");
        return TC_OK;
    }
    snprintf(text, room, "%s", p ? p->error.text : tci_handle_reason(t));
    return p ? p->error.status : TC_ERR_HANDLE;
}

TCI_FN tc_status tci_fail(tc_tensor t, tc_status why, const char *format, ...)
{
    if (tci_ctx_is_live(t.ctx) && !tci_handle_poison(t)) {
        static const tc_site nowhere;
        va_list args;
        va_start(args, format);
        tci_handle_text(&t.ctx->last, NULL, nowhere, why, format, args);
        va_end(args);
        t.ctx->last_on = t;
    }
    return why;
}

TC_API tc_status tc_status_of(tc_tensor t)
{
    const tci_poison_entry *p = tci_handle_poison(t);
    if (p) {
        return p->error.status;
    }
    return tci_handle_node(t) ? TC_OK : TC_ERR_HANDLE;
}

TC_API const char *tc_tensor_error(tc_tensor t)
{
    const tci_poison_entry *p = tci_handle_poison(t);
    if (p) {
        return p->error.text;
    }
    if (!tci_handle_node(t)) {
        return tci_handle_reason(t);
    }
    bool mine = t.ctx->last.status != TC_OK && t.ctx->last_on.id == t.id &&
                t.ctx->last_on.generation == t.generation;
    return mine ? t.ctx->last.text : "";
}

TC_API const char *tc_ctx_error(const tc_ctx *ctx)
{
    if (!tci_ctx_is_live(ctx)) {
        return ctx ? "the context was freed" : "the context is NULL";
    }
    return ctx->last.text;
}

/* ---- queries ---- */

TC_API int tc_rank(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n ? n->rank : -1;
}

TC_API int64_t tc_size(tc_tensor t, int axis)
{
    const tci_node *n = tci_handle_node(t);
    if (!n || axis < -n->rank || axis >= n->rank) {
        return -1;
    }
    return n->shape[axis < 0 ? axis + n->rank : axis];
}

TC_API tc_dtype tc_dtype_of(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n ? (tc_dtype)n->dtype : TC_DTYPE_COUNT;
}

TC_API int64_t tc_count(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n ? tci_node_count(n) : -1;
}

TC_API int64_t tc_nbytes(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n ? tci_node_count(n) * tci_dtype_get((tc_dtype)n->dtype)->bytes : -1;
}

/* ---- frames ---- */

TCI_FN tci_frame tci_frame_begin(const char *op, tc_site here)
{
    tci_frame f = {.op = op, .here = here};
    return f;
}

TCI_FN tci_frame tci_frame_on(tc_ctx *ctx, const char *op, tc_site here)
{
    tci_frame f = {.op = op, .here = here};
    if (tci_ctx_is_live(ctx)) {
        f.ctx = ctx;
        ctx->graph.site = here;
    } else {
        f.failed = true;
        f.bad.id = TCI_NULL_CTX;
    }
    return f;
}

TCI_FN void tci_frame_use(tci_frame *f, tc_tensor t)
{
    if (!f->ctx && tci_ctx_is_live(t.ctx)) {
        f->ctx = t.ctx;
        t.ctx->graph.site = f->here;
    }
}

TCI_FN void tci_frame_fail(tci_frame *f, tc_status why, const char *format, ...)
{
    if (f->failed) {
        return;
    }
    va_list args;
    va_start(args, format);
    f->bad = tci_handle_poison_v(f->ctx, f->op, f->here, why, format, args);
    f->failed = true;
    va_end(args);
}

TCI_FN tci_node *tci_frame_node(tci_frame *f, tc_tensor t, const char *what)
{
    tci_node *n = tci_handle_node(t);
    if (f->failed || (n && t.ctx == f->ctx)) {
        return f->failed ? NULL : n;
    }
    if (!f->ctx) {
        /* No live context to keep an error in: the handle's own reason goes on. */
        tc_tensor freed = {NULL, TCI_NULL_FREED, 0};
        f->bad = t.ctx ? freed : t;
        f->failed = true;
    } else if (tci_ctx_is_live(t.ctx) && t.ctx != f->ctx) {
        tci_frame_fail(f, TC_ERR_HANDLE, "%s is foreign: it belongs to another context than the operands before it",
                       what);
    } else if (tci_handle_poison(t)) {
        f->bad = t;
        f->failed = true;
    } else {
        tci_frame_fail(f, TC_ERR_HANDLE, "%s: %s", what, tci_handle_reason(t));
    }
    return NULL;
}

TCI_FN tci_node *tci_frame_optional(tci_frame *f, tc_tensor t, const char *what)
{
    return tci_is_none(t) ? NULL : tci_frame_node(f, t, what);
}

TCI_FN tc_tensor tci_frame_end(tci_frame *f, tci_node *n)
{
    if (!f->failed && n) {
        tc_tensor t = {f->ctx, n->id, n->generation};
        return t;
    }
    if (!f->failed) {
        tci_graph *g = &f->ctx->graph;
        tc_status why = g->error ? g->error : TC_ERR_INTERNAL;
        tci_frame_fail(f, why, "%s", g->error ? g->message : "failed without a reason");
        g->error = TC_OK;
    }
    return f->bad;
}
#undef TCI_HANDLE_DEAD
/* ---- src/api/context.c ---- */
/* api/context.c - contexts: made with their options, ended, counted.
 *
 * In: tc_options of the user, zero = default. Out: a tc_ctx whose options have the environment applied (a
 * field that is set wins over its variable) and own their strings.
 * The one idea: a freed context's struct is retired, not given back: a late handle to it reads a dead mark
 * instead of freed memory. The next tc_ctx_make takes it over; its nodes then start at generations
 * far from the old ones, so old handles stay dead. */

#include <stdio.h>
#include <string.h>

/* The options that are strings. */
#define TCI_CONTEXT_STRINGS(X)                                                                     \
    X(backend, BACKEND)                                                                            \
    X(cc, CC)                                                                                      \
    X(cache_dir, CACHE_DIR)                                                                        \
    X(dump, DUMP)                                                                                  \
    X(dump_dir, DUMP_DIR)                                                                          \
    X(trace, TRACE)

static struct tci_context_process {
    tci_mutex lock;
    tc_ctx *retired;
    uint32_t made;       /* contexts so far: seeds their generations */
    bool help_printed;
} tci_context_process = {.lock = TCI_MUTEX_INIT};

static void tci_context_print_help(void)
{
    if (tci_env_int(TCI_ENV_HELP, 0) != 1 || tci_context_process.help_printed) {
        return;
    }
    tci_context_process.help_printed = true;
    fputs("tc reads these environment variables:\n", stderr);
#define X(id, name, doc) fprintf(stderr, "  %-16s %s\n", name, doc);
    TCI_ENV_ROWS(X)
#undef X
}

static char *tci_context_copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = tci_heap_get(n);
    if (copy) {
        memcpy(copy, text, n);
    }
    return copy;
}

static void tci_context_free_strings(tc_options *o)
{
#define X(field, variable)                                                                         \
    tci_heap_free((void *)(uintptr_t)o->field);                                                    \
    o->field = NULL;
    TCI_CONTEXT_STRINGS(X)
#undef X
}

/* Replaces each string by a copy of it, or of its variable. False: out of memory, all freed. */
static bool tci_context_own_strings(tc_options *o)
{
    tc_options given = *o;
    bool ok = true;
#define X(field, variable)                                                                         \
    {                                                                                              \
        const char *text = given.field ? given.field : tci_env_get(TCI_ENV_##variable);           \
        o->field = text ? tci_context_copy_text(text) : NULL;                                      \
        ok = ok && (!text || o->field);                                                            \
    }
    TCI_CONTEXT_STRINGS(X)
#undef X
    if (!ok) {
        tci_context_free_strings(o);
    }
    return ok;
}

static void tci_context_apply_env(tc_options *o)
{
    if (!o->cc_timeout_s) {
        o->cc_timeout_s = (int)tci_env_int(TCI_ENV_CC_TIMEOUT, 0);
    }
    if (!o->cache_bytes) {
        int64_t mb = tci_env_int(TCI_ENV_CACHE_MB, 0);
        o->cache_bytes = mb > 0 && mb < (INT64_MAX >> 20) ? mb << 20 : 0;
    }
    if (!o->threads) {
        int64_t threads = tci_env_int(TCI_ENV_THREADS, 0);
        o->threads = threads > 0 && threads < 65536 ? (int)threads : 0;
    }
    if (!o->vector_bits && tci_env_get(TCI_ENV_VECTOR)) {
        int64_t bits = tci_env_int(TCI_ENV_VECTOR, 0);
        o->vector_bits = bits <= 0 ? -1 : (int)TCI_MIN(bits, 4096);
    }
    o->no_disk_cache = o->no_disk_cache || tci_env_int(TCI_ENV_NO_CACHE, 0) == 1;
    o->verify = o->verify || tci_env_int(TCI_ENV_VERIFY, 0) == 1;
}

TC_API tc_status tc_ctx_make(tc_ctx **ctx, const tc_options *options)
{
    static const tc_options defaults;
    if (!ctx) {
        return TC_ERR_ARGUMENT;
    }
    *ctx = NULL;
    tc_options o = options ? *options : defaults;
    tci_context_apply_env(&o);
    if (!tci_context_own_strings(&o)) {
        return TC_ERR_MEMORY;
    }
    pthread_mutex_lock(&tci_context_process.lock);
    tci_context_print_help();
    tc_ctx *c = tci_context_process.retired;
    tci_context_process.retired = c ? c->next_retired : NULL;
    uint32_t seed = ++tci_context_process.made;
    pthread_mutex_unlock(&tci_context_process.lock);
    if (!c) {
        c = tci_heap_get(sizeof(*c));
    }
    if (!c) {
        tci_context_free_strings(&o);
        return TC_ERR_MEMORY;
    }
    memset(c, 0, sizeof(*c));
    c->options = o;
    tci_graph_init(&c->graph, NULL, &c->options.allocator);
    c->graph.first_generation = seed * 0x9E3779B1u | 1u;
    c->next_poison = c->graph.first_generation;
    c->magic = TCI_CTX_MAGIC;
    tci_pool_retain();
    *ctx = c;
    return TC_OK;
}

TC_API void tc_ctx_free(tc_ctx *ctx)
{
    if (!tci_ctx_is_live(ctx)) {
        return;
    }
    tci_scope_free_all(ctx);
    tci_graph_deinit(&ctx->graph);
    tci_context_free_strings(&ctx->options);
    ctx->magic = 0;
    pthread_mutex_lock(&tci_context_process.lock);
    ctx->next_retired = tci_context_process.retired;
    tci_context_process.retired = ctx;
    pthread_mutex_unlock(&tci_context_process.lock);
    tci_pool_release();
}

TC_API void tc_shutdown(void)
{
    tci_pool_shutdown();
    tci_cache_trim();
    pthread_mutex_lock(&tci_context_process.lock);
    while (tci_context_process.retired) {
        tc_ctx *next = tci_context_process.retired->next_retired;
        tci_heap_free(tci_context_process.retired);
        tci_context_process.retired = next;
    }
    pthread_mutex_unlock(&tci_context_process.lock);
}

/* Memory that the context's nodes hold; memory of the user is not counted. */
static int64_t tci_context_data_bytes(const tc_ctx *ctx)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < ctx->graph.n_slots; i++) {
        const tci_node *n = ctx->graph.slots[i];
        if (n && n->storage && !n->storage->borrowed) {
            bytes += n->storage->bytes;
        }
    }
    return bytes;
}

TC_API tc_status tc_stats_get(tc_ctx *ctx, tc_stats *stats)
{
    if (!stats || !tci_ctx_is_live(ctx)) {
        return stats ? TC_ERR_HANDLE : TC_ERR_ARGUMENT;
    }
    const tci_counters *n = tci_counters_get();
    *stats = (tc_stats){
        .nodes = ctx->graph.n_nodes,
        .scopes = TCI_MAX(ctx->graph.n_scopes, 1),
        .graph_bytes = ctx->graph.bytes + tci_context_data_bytes(ctx),
        .compiles = __atomic_load_n(&n->compiles, __ATOMIC_RELAXED),
        .compiler_runs = __atomic_load_n(&n->compiler_runs, __ATOMIC_RELAXED),
        .kernels_built = __atomic_load_n(&n->kernels_built, __ATOMIC_RELAXED),
        .memory_hits = __atomic_load_n(&n->memory_hits, __ATOMIC_RELAXED),
        .disk_hits = __atomic_load_n(&n->disk_hits, __ATOMIC_RELAXED),
        .misses = __atomic_load_n(&n->misses, __ATOMIC_RELAXED),
        .kernel_hits = __atomic_load_n(&n->kernel_hits, __ATOMIC_RELAXED),
        .evictions = __atomic_load_n(&n->evictions, __ATOMIC_RELAXED),
        .cache_rejects = __atomic_load_n(&n->cache_rejects, __ATOMIC_RELAXED),
        .interpreted = __atomic_load_n(&n->interpreted, __ATOMIC_RELAXED),
    };
    return TC_OK;
}
#undef TCI_CONTEXT_STRINGS
/* ---- src/api/scope.c ---- */
/* api/scope.c - scopes, and the values that leave them.
 *
 * In: tc_scope_begin/end, tc_keep, tc_retain. Out: dropped nodes; DATA nodes in the scope outside.
 * The one idea: a node belongs to the scope it was made in and can only be used by nodes of that scope or
 * deeper ones, so a scope ends by dropping its list, newest first. Only values leave: tc_keep evaluates a
 * node and puts a DATA node with the same storage into the scope outside.
 *
 * Replacement, so that `x = tc_keep(f(x))` in a loop of scopes runs in flat memory: when a value is kept, the
 * kept values of the same place (file, line, scope) that its computation used are its predecessors, and
 * the predecessor of a predecessor is dropped: it is two keeps old and its successor has used it. A value
 * that still has users, or that tc_retain exempts, stays until its scope ends.
 * Invariant: keeps[id] describes node id only while its generation is that node's. */

#include <string.h>

typedef struct tci_keep {
    uint32_t generation;
    uint32_t serial;             /* order of keeping; 0: never kept */
    uint32_t previous_id, previous_generation; /* the newest value of this place that its computation used */
    tc_site site;
    bool retained, has_previous;
} tci_keep;

/* ---- dropping ---- */

static void tci_scope_drop_node(tc_ctx *ctx, tci_node *n)
{
    tci_storage_release(n->storage);
    n->storage = NULL;
    tci_graph_drop(&ctx->graph, n);
}

TC_API tc_status tc_scope_begin(tc_ctx *ctx)
{
    if (!tci_ctx_is_live(ctx)) {
        return TC_ERR_HANDLE;
    }
    tci_graph *g = &ctx->graph;
    if ((!g->n_scopes && !tci_graph_open_scope(g)) || !tci_graph_open_scope(g)) {
        static const tc_site nowhere;
        tci_poison(ctx, "tc_scope_begin", nowhere, TC_ERR_MEMORY, "out of memory");
        return TC_ERR_MEMORY;
    }
    return TC_OK;
}

TC_API tc_status tc_scope_end(tc_ctx *ctx)
{
    static const tc_site nowhere;
    if (!tci_ctx_is_live(ctx)) {
        return TC_ERR_HANDLE;
    }
    tci_graph *g = &ctx->graph;
    if (g->n_scopes < 2) {
        tci_poison(ctx, "tc_scope_end", nowhere, TC_ERR_ARGUMENT, "no scope is open: expected a tc_scope_begin before");
        return TC_ERR_ARGUMENT;
    }
    int scope = g->n_scopes - 1;
    while (g->scope_heads[scope]) {
        tci_scope_drop_node(ctx, g->scope_heads[scope]);
    }
    g->n_scopes--;
    if (ctx->n_poisons) {
        tci_handle_drop_poisons(ctx, scope);
    }
    return TC_OK;
}

TCI_FN void tci_scope_free_all(tc_ctx *ctx)
{
    tci_graph *g = &ctx->graph;
    for (uint32_t i = 0; i < g->n_slots; i++) {
        if (g->slots[i]) {
            tci_storage_release(g->slots[i]->storage);
            g->slots[i]->storage = NULL;
        }
    }
    tci_handle_drop_poisons(ctx, 0);
    tci_graph_resize(g, ctx->poisons, (size_t)ctx->cap_poisons * sizeof(*ctx->poisons), 0);
    tci_graph_resize(g, ctx->keeps, (size_t)ctx->cap_keeps * sizeof(*ctx->keeps), 0);
    ctx->poisons = NULL;
    ctx->keeps = NULL;
    ctx->cap_poisons = 0;
    ctx->cap_keeps = 0;
}

/* ---- keeping ---- */

/* What is known of node n as a kept value; NULL when it is none. */
static tci_keep *tci_scope_find_keep(const tc_ctx *ctx, const tci_node *n)
{
    tci_keep *k = n->id < ctx->cap_keeps ? &ctx->keeps[n->id] : NULL;
    return k && k->serial && k->generation == n->generation ? k : NULL;
}

static tci_keep *tci_scope_make_keep(tc_ctx *ctx, const tci_node *n)
{
    if (n->id >= ctx->cap_keeps) {
        size_t from = ctx->cap_keeps, to = TCI_MAX(from * 2, (size_t)n->id + 16);
        tci_keep *keeps = tci_graph_resize(&ctx->graph, ctx->keeps, from * sizeof(*keeps), to * sizeof(*keeps));
        if (!keeps) {
            return NULL;
        }
        memset(keeps + from, 0, (to - from) * sizeof(*keeps));
        ctx->keeps = keeps;
        ctx->cap_keeps = (uint32_t)to;
    }
    tci_keep *k = &ctx->keeps[n->id];
    memset(k, 0, sizeof(*k));
    k->generation = n->generation;
    k->serial = ++ctx->keep_serial;
    return k;
}

/* Kept values that a computation used: a heap list, owned by the caller. */
typedef struct tci_scope_uses {
    tci_node **items;
    size_t n, cap;
} tci_scope_uses;

static bool tci_scope_push(tci_graph *g, tci_scope_uses *list, tci_node *n)
{
    if (list->n == list->cap) {
        size_t cap = TCI_MAX(list->cap * 2, 32), bytes = sizeof(*list->items);
        tci_node **items = tci_graph_resize(g, list->items, list->cap * bytes, cap * bytes);
        if (!items) {
            return false;
        }
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = n;
    return true;
}

/* Lists root and what it needs of its own scope, and of the scope outside what was kept at `site`. Nodes are
 * marked while they are listed. False: out of memory, the list is cut. */
static bool tci_scope_list_needs(tc_ctx *ctx, tci_node *root, tc_site site, tci_scope_uses *list)
{
    bool ok = tci_scope_push(&ctx->graph, list, root);
    root->mark = ok;
    for (size_t at = 0; ok && at < list->n; at++) {
        const tci_node *n = list->items[at];
        for (int i = 0; ok && i < n->n_in; i++) {
            tci_node *in = n->in[i];
            const tci_keep *k = tci_scope_find_keep(ctx, in);
            bool kept_here = k && k->site.line == site.line && k->site.file == site.file && in->scope + 1 == root->scope;
            if (!in->mark && (kept_here || in->scope == root->scope)) {
                ok = tci_scope_push(&ctx->graph, list, in);
                in->mark = ok;
            }
        }
    }
    for (size_t i = 0; i < list->n; i++) {
        list->items[i]->mark = 0;
    }
    return ok;
}

static void tci_scope_drop_previous(tc_ctx *ctx, const tci_keep *k)
{
    tc_tensor t = {ctx, k->previous_id, k->previous_generation};
    tci_node *old = k->has_previous ? tci_handle_node(t) : NULL;
    const tci_keep *known = old ? tci_scope_find_keep(ctx, old) : NULL;
    if (known && !known->retained && !old->n_users) {
        tci_scope_drop_node(ctx, old);
    }
}

/* Links the kept value to the values of the same place that `from` used, and drops theirs. */
static void tci_scope_replace(tc_ctx *ctx, const tci_node *kept, tci_node *from, tc_site site)
{
    tci_graph *g = &ctx->graph;
    tci_scope_uses list = {NULL, 0, 0};
    uint32_t newest = 0;
    bool complete = tci_scope_list_needs(ctx, from, site, &list);
    tci_keep *k = complete ? tci_scope_make_keep(ctx, kept) : NULL;
    for (size_t i = 0; k && i < list.n; i++) {
        const tci_node *used = list.items[i];
        const tci_keep *u = used->scope < from->scope ? tci_scope_find_keep(ctx, used) : NULL;
        if (u && u->serial > newest) {
            newest = u->serial;
            k->has_previous = true;
            k->previous_id = used->id;
            k->previous_generation = used->generation;
        }
    }
    if (k) {
        k->site = site;
    }
    for (size_t i = 0; k && i < list.n; i++) {
        /* Whatever is listed has users, so no item of the list is dropped here. */
        const tci_node *used = list.items[i];
        const tci_keep *u = used->scope < from->scope ? tci_scope_find_keep(ctx, used) : NULL;
        if (u) {
            tci_scope_drop_previous(ctx, u);
        }
    }
    tci_graph_resize(g, list.items, list.cap * sizeof(*list.items), 0);
    g->error = TC_OK;
}

/* A DATA node in the scope outside that shares n's value. */
static tci_node *tci_scope_move_out(tc_ctx *ctx, const tci_node *n)
{
    tci_graph *g = &ctx->graph;
    size_t bytes = n->strides ? (size_t)n->rank * sizeof(*n->strides) : 0;
    tci_dim *strides = bytes ? tci_graph_resize(g, NULL, 0, bytes) : NULL;
    if (bytes && !strides) {
        return NULL;
    }
    g->n_scopes--; /* new nodes belong to the innermost scope */
    tci_node *kept = tci_graph_node(g, TCI_OP_DATA, (tc_dtype)n->dtype, n->rank, n->shape, 0, NULL, 0, NULL);
    g->n_scopes++;
    if (!kept) {
        tci_graph_resize(g, strides, bytes, 0);
        return NULL;
    }
    if (bytes) {
        memcpy(strides, n->strides, bytes);
    }
    tci_storage_retain(n->storage);
    kept->storage = n->storage;
    kept->strides = strides;
    kept->offset = n->offset;
    return kept;
}

/* The error of t, kept where a kept value would be. */
static tc_tensor tci_scope_keep_failure(tci_frame *f, tc_tensor t, tc_status why)
{
    tci_frame_fail(f, why, "%s", tc_tensor_error(t));
    return tci_handle_move_poison(f->bad);
}

TC_API tc_tensor tc_keep_at(tc_tensor t, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_keep", here);
    tci_frame_use(&f, t);
    tci_node *n = tci_frame_node(&f, t, "the tensor");
    if (!n) {
        return tci_handle_move_poison(tci_frame_end(&f, NULL));
    }
    tc_status status = tc_eval(t);
    if (status) {
        return tci_scope_keep_failure(&f, t, status);
    }
    int innermost = f.ctx->graph.n_scopes - 1;
    if ((int)n->scope < innermost || !innermost) {
        return t; /* already outside, or there is no outside */
    }
    if (!n->storage) {
        tci_frame_fail(&f, TC_ERR_INTERNAL, "the evaluated tensor has no value");
        return tci_handle_move_poison(f.bad);
    }
    tci_node *kept = tci_scope_move_out(f.ctx, n);
    if (!kept) {
        return tci_handle_move_poison(tci_frame_end(&f, NULL));
    }
    tci_scope_replace(f.ctx, kept, n, here);
    return tci_frame_end(&f, kept);
}

TC_API tc_tensor tc_retain(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    tci_keep *k = n ? tci_scope_find_keep(t.ctx, n) : NULL;
    if (k) {
        k->retained = true;
    }
    return t;
}
/* ---- src/api/leaf.c ---- */
/* api/leaf.c - leaves: named inputs, memory of the user, copies of it.
 *
 * In: pointers, dtypes, sizes, strides. Out: INPUT and DATA nodes.
 * The one idea: a DATA node is storage + element strides + the offset of element 0...0, so that borrowed
 * memory of any layout (broadcast, reversed, a window of a larger array) is read in place. The storage
 * begins at the lowest address that the strides reach. */

#include <inttypes.h>
#include <string.h>

/* Which elements a strided view touches, relative to element 0...0. */
typedef struct tci_leaf_span {
    int64_t lo, hi; /* hi exclusive; both 0 when there are no elements */
} tci_leaf_span;

static bool tci_leaf_check_dtype(tci_frame *f, int64_t dtype)
{
    if (dtype < 0 || dtype >= TC_DTYPE_COUNT) {
        tci_frame_fail(f, TC_ERR_DTYPE, "%" PRId64 " is not a dtype: expected TC_F32 or another, then the sizes", dtype);
        return false;
    }
    return true;
}

static bool tci_leaf_check(tci_frame *f, int64_t dtype, int rank, const int64_t *sizes)
{
    if (f->failed || !tci_leaf_check_dtype(f, dtype)) {
        return false;
    }
    if (rank < 0 || (rank > 0 && !sizes)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "the sizes are NULL or fewer than none (rank %d)", rank);
        return false;
    }
    return tci_build_check_shape(&f->ctx->graph, rank, sizes, (tc_dtype)dtype);
}

TC_API tc_tensor tc_input_at(tc_ctx *ctx, const char *name, int n, const int64_t *dtype_and_sizes, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_input", here);
    if (!f.failed && (!name || n < 1)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "%s", name ? "the dtype is missing" : "the name is NULL");
    }
    if (f.failed || !tci_leaf_check(&f, dtype_and_sizes[0], n - 1, dtype_and_sizes + 1)) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &ctx->graph;
    size_t bytes = strlen(name) + 1;
    char *copy = tci_graph_resize(g, NULL, 0, bytes);
    if (!copy) {
        return tci_frame_end(&f, NULL);
    }
    memcpy(copy, name, bytes);
    tci_node *x = tci_graph_node(g, TCI_OP_INPUT, (tc_dtype)dtype_and_sizes[0], n - 1, dtype_and_sizes + 1, 0, NULL, 0,
                                 NULL);
    if (x) {
        x->name = copy;
    } else {
        tci_graph_resize(g, copy, bytes, 0);
    }
    return tci_frame_end(&f, x);
}

/* False: the extent overflows. */
static bool tci_leaf_span_of(int rank, const int64_t *sizes, const int64_t *strides, int bytes, tci_leaf_span *span)
{
    const int64_t limit = INT64_MAX / 4 / bytes;
    span->lo = span->hi = 0;
    for (int i = 0; i < rank; i++) {
        if (!sizes[i]) {
            span->lo = span->hi = 0;
            return true;
        }
        int64_t steps = sizes[i] - 1, stride = strides[i];
        if (steps && (stride > limit / steps || stride < -(limit / steps))) {
            return false;
        }
        int64_t reach = steps * stride;
        *(reach < 0 ? &span->lo : &span->hi) += reach;
        if (span->lo < -limit || span->hi > limit) {
            return false;
        }
    }
    span->hi++;
    return true;
}

/* Row-major strides of the sizes; shapes were checked, so nothing overflows. */
static void tci_leaf_dense(int rank, const int64_t *sizes, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= TCI_MAX(sizes[i], 1);
    }
}

/* Copies the elements of a strided view to dense memory, the last axis in one run where it is dense. */
static void tci_leaf_copy(char *to, const char *from, size_t bytes, int rank, const int64_t *sizes,
                          const int64_t *strides, int64_t *index)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        count *= sizes[i];
        index[i] = 0;
    }
    bool dense = rank > 0 && strides[rank - 1] == 1;
    int64_t run = dense ? sizes[rank - 1] : 1;
    int top = dense ? rank - 1 : rank;
    for (int64_t done = 0; done < count; done += run) {
        int64_t at = 0;
        for (int i = 0; i < top; i++) {
            at += index[i] * strides[i];
        }
        memcpy(to, from + at * (int64_t)bytes, bytes * (size_t)run);
        to += bytes * (size_t)run;
        for (int i = top - 1; i >= 0 && ++index[i] == sizes[i]; i--) {
            index[i] = 0;
        }
    }
}

/* A DATA node that takes over the storage (released on failure). strides NULL: dense. */
static tci_node *tci_leaf_data(tci_graph *g, tc_dtype dtype, int rank, const int64_t *sizes, tci_storage *storage,
                               const int64_t *strides, int64_t offset)
{
    size_t bytes = (size_t)rank * sizeof(*strides);
    int64_t *own = strides && rank ? tci_graph_resize(g, NULL, 0, bytes) : NULL;
    bool ok = storage && (own || !strides || !rank);
    tci_node *x = ok ? tci_graph_node(g, TCI_OP_DATA, dtype, rank, sizes, 0, NULL, 0, NULL) : NULL;
    if (!x) {
        if (own) {
            tci_graph_resize(g, own, bytes, 0);
        }
        tci_storage_release(storage);
        if (!storage) {
            tci_graph_fail(g, TC_ERR_MEMORY, "out of memory for the tensor's data");
        }
        return NULL;
    }
    if (own) {
        memcpy(own, strides, bytes);
    }
    x->storage = storage;
    x->strides = own;
    x->offset = offset;
    return x;
}

/* What tc_borrow and tc_copy_in share: checks, and the extent of the view. False: failed. */
static bool tci_leaf_view(tci_frame *f, const void *data, tc_dtype dtype, int rank, const int64_t *sizes,
                          const int64_t *strides, tci_words *dense, tci_leaf_span *span)
{
    if (!tci_leaf_check(f, dtype, rank, sizes)) {
        return false;
    }
    int64_t *own = tci_words_get(&f->ctx->graph, dense, 2 * rank); /* dense strides, and room for an index */
    if (!own) {
        return false;
    }
    tci_leaf_dense(rank, sizes, own);
    bool fits = tci_leaf_span_of(rank, sizes, strides ? strides : own, tci_dtype_get(dtype)->bytes, span);
    if (!fits) {
        tci_frame_fail(f, TC_ERR_LIMIT, "the strides reach beyond what memory can address");
    } else if (!data && span->hi > span->lo) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "the data pointer is NULL: expected %" PRId64 " elements of %s",
                       span->hi - span->lo, tci_dtype_get(dtype)->name);
    }
    if (f->failed) {
        tci_words_put(&f->ctx->graph, dense, NULL);
    }
    return !f->failed;
}

TC_API tc_tensor tc_borrow_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank, const int64_t *sizes,
                              const int64_t *strides, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_borrow", here);
    tci_words dense;
    tci_leaf_span span;
    if (!tci_leaf_view(&f, data, dtype, rank, sizes, strides, &dense, &span)) {
        return tci_frame_end(&f, NULL);
    }
    bool is_dense = !strides || !rank || !memcmp(strides, dense.items, (size_t)rank * sizeof(*strides));
    int bytes = tci_dtype_get(dtype)->bytes;
    const char *lowest = data ? (const char *)data + span.lo * bytes : NULL;
    tci_storage *storage = tci_storage_borrow(lowest, (span.hi - span.lo) * bytes);
    tci_node *x = tci_leaf_data(&ctx->graph, dtype, rank, sizes, storage, is_dense ? NULL : strides, -span.lo);
    return tci_frame_end(&f, tci_words_put(&ctx->graph, &dense, x));
}

TC_API tc_tensor tc_copy_in_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank, const int64_t *sizes,
                               const int64_t *strides, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_copy_in", here);
    tci_words dense;
    tci_leaf_span span;
    if (!tci_leaf_view(&f, data, dtype, rank, sizes, strides, &dense, &span)) {
        return tci_frame_end(&f, NULL);
    }
    size_t bytes = tci_dtype_get(dtype)->bytes;
    int64_t count = span.hi > span.lo;
    for (int i = 0; i < rank; i++) {
        count *= sizes[i];
    }
    tci_storage *storage = tci_storage_make(count * (int64_t)bytes);
    if (storage && count) {
        tci_leaf_copy(storage->data, data, bytes, rank, sizes, strides ? strides : dense.items, dense.items + rank);
    }
    tci_node *x = tci_leaf_data(&ctx->graph, dtype, rank, sizes, storage, NULL, 0);
    return tci_frame_end(&f, tci_words_put(&ctx->graph, &dense, x));
}

/* ---- tc_touch ---- */

/* Forgets the values that were computed from x. Inputs are older than their users and outer scopes older than
 * inner ones, so one walk from the oldest node to the newest sees every input before its users. */
static bool tci_leaf_forget(tci_graph *g, tci_node *x)
{
    size_t bytes = (size_t)g->n_nodes * sizeof(tci_node *);
    tci_node **newest_first = tci_graph_resize(g, NULL, 0, bytes);
    if (!newest_first) {
        return false;
    }
    uint32_t n = 0;
    for (int s = g->n_scopes - 1; s >= 0; s--) {
        for (tci_node *at = g->scope_heads[s]; at; at = at->scope_next) {
            newest_first[n++] = at;
        }
    }
    x->mark = 1;
    for (uint32_t k = n; k-- > 0;) {
        tci_node *at = newest_first[k];
        for (int i = 0; i < at->n_in && !at->mark; i++) {
            at->mark = at->in[i]->mark;
        }
        if (at->mark && at != x && at->storage) {
            tci_storage_release(at->storage);
            at->storage = NULL;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        newest_first[k]->mark = 0;
    }
    tci_graph_resize(g, newest_first, bytes, 0);
    return true;
}

TC_API tc_status tc_touch(tc_tensor t)
{
    tci_node *x = tci_handle_node(t);
    if (!x) {
        return tc_status_of(t);
    }
    if (x->op != TCI_OP_DATA) {
        return tci_fail(t, TC_ERR_ARGUMENT, "tc_touch: expected a tensor of tc_borrow or tc_copy_in: given one made by %s",
                        tci_op_name(x->op));
    }
    x->storage->version++;
    return tci_leaf_forget(&t.ctx->graph, x) ? TC_OK : tci_fail(t, TC_ERR_MEMORY, "tc_touch: out of memory");
}
/* ---- src/api/ops.c ---- */
/* api/ops.c - the public operations: operands and attributes of the user to nodes.
 *
 * In: handles, C numbers, attributes, the caller's place. Out: a handle to the node, or a poisoned one.
 * The one idea: every call is a frame (api/frame.h) around one function of graph/build.h; elementwise and
 * reducing calls are expanded from the op rows. Only here do numbers exist beside tensors: they are weak
 * (NEP 50), so their dtype follows from the tensors'; below this room they are 0-d nodes. */


#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { TCI_OPS_BOOL = 1, TCI_OPS_INT = 2, TCI_OPS_FLOAT = 3 }; /* tc_arg.kind */

static const char *const tci_ops_nth[] = {"operand 1", "operand 2", "operand 3"};

/* ---- numbers ---- */

/* The dtype in which tensors of dtype t (TC_DTYPE_COUNT: there are none) meet a number of this kind. */
static tc_dtype tci_ops_weak(tc_dtype t, int kind)
{
    static const tc_dtype alone[] = {TC_DTYPE_COUNT, TC_BOOL, TC_I64, TC_F32};
    if (t == TC_DTYPE_COUNT || kind == 0) {
        return kind ? alone[kind] : t;
    }
    if (kind == TCI_OPS_FLOAT && !tci_dtype_is_float(t)) {
        return TC_F32;
    }
    return kind == TCI_OPS_INT && t == TC_BOOL ? TC_I64 : t;
}

/* tc_arg.i of an unsigned number above INT64_MAX reads negative; its f does not. */
static bool tci_ops_is_huge(const tc_arg *a)
{
    return a->kind == TCI_OPS_INT && a->i < 0 && a->f > 0;
}

static tci_value tci_ops_value(const tc_arg *a, tc_dtype to)
{
    tci_value f = {.f = a->f}, i = {.i = a->i};
    if (a->kind == TCI_OPS_FLOAT) {
        return tci_value_cast(f, TC_F64, to);
    }
    return tci_value_cast(i, tci_ops_is_huge(a) ? TC_U64 : TC_I64, to);
}

static tci_node *tci_ops_number(tci_frame *f, const tc_arg *a, tc_dtype to)
{
    return tci_graph_literal(&f->ctx->graph, to, tci_ops_value(a, to));
}

/* Whether the number is exact in an integer dtype. */
static bool tci_ops_fits(const tc_arg *a, tc_dtype t)
{
    tc_dtype wide = tci_ops_is_huge(a) ? TC_U64 : TC_I64;
    bool same_sign = t == TC_U64 ? wide == TC_U64 || a->i >= 0 : wide == TC_I64;
    return same_sign && tci_value_cast(tci_ops_value(a, t), t, wide).i == a->i;
}

/* ---- elementwise ---- */

/* Comparing with a number that the dtype cannot hold is exact all the same: both sides go to a wider one. */
static tc_dtype tci_ops_compare_dtype(tc_dtype t, const tc_arg *args, int n)
{
    for (int i = 0; i < n; i++) {
        if (args[i].kind == TCI_OPS_INT && tci_dtype_is_int(t) && !tci_ops_fits(&args[i], t)) {
            return t == TC_U64 || tci_ops_is_huge(&args[i]) ? TC_F64 : TC_I64;
        }
    }
    return t;
}

/* Nodes of the operands: tensors as they are, numbers in their weak dtype. op < 0: no op's rule. */
static bool tci_ops_operands(tci_frame *f, int op, const tc_arg *args, int n, tci_node **nodes)
{
    tci_node *tensors[3];
    int n_tensors = 0, kind = 0;
    for (int i = 0; i < n; i++) {
        if (args[i].kind) {
            kind = TCI_MAX(kind, args[i].kind);
        } else {
            nodes[i] = tci_frame_node(f, args[i].tensor, tci_ops_nth[i]);
            tensors[n_tensors++] = nodes[i];
        }
    }
    if (f->failed || !kind) {
        return !f->failed;
    }
    tc_dtype common = n_tensors ? tci_build_common_dtype(tensors, n_tensors) : TC_DTYPE_COUNT;
    tc_dtype dtype = tci_ops_weak(common, kind), result;
    if (op >= 0) {
        tci_build_ew_dtypes(op, dtype, &dtype, &result);
        tc_dtype wider = result == TC_BOOL ? tci_ops_compare_dtype(dtype, args, n) : dtype;
        for (int i = 0; wider != dtype && i < n; i++) {
            nodes[i] = args[i].kind ? NULL : tci_build_cast(&f->ctx->graph, nodes[i], wider);
        }
        dtype = wider;
    }
    for (int i = 0; i < n; i++) {
        if (args[i].kind) {
            nodes[i] = tci_ops_number(f, &args[i], dtype);
        }
        if (!nodes[i]) {
            return false;
        }
    }
    return true;
}

/* Finds the context among the operands; numbers alone have none. */
static tci_frame tci_ops_begin(const char *name, const tc_arg *args, int n, tc_site here)
{
    tci_frame f = tci_frame_begin(name, here);
    bool numbers = true;
    for (int i = 0; i < n; i++) {
        numbers = numbers && args[i].kind;
        if (!args[i].kind) {
            tci_frame_use(&f, args[i].tensor);
        }
    }
    if (numbers) {
        f.failed = true;
        f.bad.id = TCI_NULL_NUMBERS;
    }
    return f;
}

static tc_tensor tci_ops_ew(int op, const char *name, const tc_arg *args, int n, tc_site here)
{
    tci_frame f = tci_ops_begin(name, args, n, here);
    tci_node *nodes[3];
    bool ok = tci_ops_operands(&f, op, args, n, nodes);
    return tci_frame_end(&f, ok ? tci_build_ew(&f.ctx->graph, op, nodes) : NULL);
}

#define TCI_OPS_EW_1(ID, name)                                                                     \
    TC_API tc_tensor tc_##name##_at(tc_arg a, tc_site here)                                        \
    {                                                                                              \
        return tci_ops_ew(TCI_OP_##ID, "tc_" #name, &a, 1, here);                                  \
    }
#define TCI_OPS_EW_2(ID, name)                                                                     \
    TC_API tc_tensor tc_##name##_at(tc_arg a, tc_arg b, tc_site here)                              \
    {                                                                                              \
        const tc_arg args[2] = {a, b};                                                             \
        return tci_ops_ew(TCI_OP_##ID, "tc_" #name, args, 2, here);                                \
    }
#define X(id, name, arity, rule, flags, value, doc) TCI_OPS_EW_##arity(id, name)
TCI_EW_OPS(X)
#undef X
#undef TCI_OPS_EW_1
#undef TCI_OPS_EW_2

TC_API tc_tensor tc_where_at(tc_arg c, tc_arg a, tc_arg b, tc_site here)
{
    const tc_arg all[3] = {c, a, b};
    tci_frame f = tci_ops_begin("tc_where", all, 3, here);
    tci_node *nodes[3] = {NULL, NULL, NULL};
    bool ok = !f.failed;
    if (ok) {
        nodes[0] = c.kind ? tci_ops_number(&f, &c, TC_BOOL) : tci_frame_node(&f, c.tensor, tci_ops_nth[0]);
        ok = nodes[0] && tci_ops_operands(&f, -1, all + 1, 2, nodes + 1);
    }
    return tci_frame_end(&f, ok ? tci_build_where(&f.ctx->graph, nodes[0], nodes[1], nodes[2]) : NULL);
}

/* ---- calls of one tensor ---- */

/* Begins a frame and finds the node of its one tensor; NULL when it failed. */
static tci_node *tci_ops_one(tci_frame *f, const char *name, tc_tensor x, tc_site here)
{
    *f = tci_frame_begin(name, here);
    tci_frame_use(f, x);
    return tci_frame_node(f, x, tci_ops_nth[0]);
}

#define TCI_OPS_REDUCE_AXES(ID, name)                                                              \
    TC_API tc_tensor tc_##name##_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)        \
    {                                                                                              \
        tci_frame f;                                                                               \
        tci_node *n = tci_ops_one(&f, "tc_" #name, x, here);                                       \
        return tci_frame_end(&f, n ? tci_build_reduce(&f.ctx->graph, TCI_OP_##ID, n, axes, keepdims) : NULL); \
    }
#define TCI_OPS_REDUCE_SAME TCI_OPS_REDUCE_AXES
#define TCI_OPS_REDUCE_SUM TCI_OPS_REDUCE_AXES
#define TCI_OPS_REDUCE_BOOL TCI_OPS_REDUCE_AXES
#define TCI_OPS_REDUCE_INDEX(ID, name)                                                             \
    TC_API tc_tensor tc_##name##_at(tc_tensor x, int axis, bool keepdims, tc_site here)            \
    {                                                                                              \
        tci_frame f;                                                                               \
        tci_node *n = tci_ops_one(&f, "tc_" #name, x, here);                                       \
        tc_axes axes = {&axis, 1, false};                                                          \
        return tci_frame_end(&f, n ? tci_build_reduce(&f.ctx->graph, TCI_OP_##ID, n, axes, keepdims) : NULL); \
    }
#define X(id, name, rule, identity, doc) TCI_OPS_REDUCE_##rule(id, name)
TCI_REDUCE_OPS(X)
#undef X
#undef TCI_OPS_REDUCE_AXES
#undef TCI_OPS_REDUCE_SAME
#undef TCI_OPS_REDUCE_SUM
#undef TCI_OPS_REDUCE_BOOL
#undef TCI_OPS_REDUCE_INDEX

TC_API tc_tensor tc_cast_at(tc_tensor x, tc_dtype dtype, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_cast", x, here);
    return tci_frame_end(&f, n ? tci_build_cast(&f.ctx->graph, n, dtype) : NULL);
}

TC_API tc_tensor tc_mean_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_mean", x, here);
    return tci_frame_end(&f, n ? tci_build_mean(&f.ctx->graph, n, axes, keepdims) : NULL);
}

TC_API tc_tensor tc_cumsum_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_cumsum", x, here);
    return tci_frame_end(&f, n ? tci_build_scan(&f.ctx->graph, n, axis) : NULL);
}

TC_API tc_tensor tc_softmax_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_softmax", x, here);
    return tci_frame_end(&f, n ? tci_build_softmax(&f.ctx->graph, n, axis, false) : NULL);
}

TC_API tc_tensor tc_log_softmax_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_log_softmax", x, here);
    return tci_frame_end(&f, n ? tci_build_softmax(&f.ctx->graph, n, axis, true) : NULL);
}

TC_API tc_tensor tc_reshape_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_reshape", x, here);
    return tci_frame_end(&f, n ? tci_build_reshape(&f.ctx->graph, n, rank, sizes) : NULL);
}

TC_API tc_tensor tc_permute_at(tc_tensor x, int n, const int64_t *order, tc_site here)
{
    tci_frame f;
    tci_words w;
    tci_node *node = tci_ops_one(&f, "tc_permute", x, here);
    if (!node || !tci_words_get(&f.ctx->graph, &w, n)) {
        return tci_frame_end(&f, NULL);
    }
    int *axes = (int *)(void *)w.items;
    for (int i = 0; i < n; i++) {
        /* No tensor has so many axes: the builder refuses it with the others that are out of range. */
        axes[i] = order[i] < INT_MIN || order[i] > INT_MAX ? INT_MAX : (int)order[i];
    }
    tci_node *r = tci_build_permute(&f.ctx->graph, node, n, axes);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

TC_API tc_tensor tc_transpose_at(tc_tensor x, int axis_a, int axis_b, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_transpose", x, here);
    return tci_frame_end(&f, n ? tci_build_transpose(&f.ctx->graph, n, axis_a, axis_b) : NULL);
}

TC_API tc_tensor tc_expand_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_expand", x, here);
    return tci_frame_end(&f, n ? tci_build_expand(&f.ctx->graph, n, rank, sizes) : NULL);
}

TC_API tc_tensor tc_squeeze_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_squeeze", x, here);
    return tci_frame_end(&f, n ? tci_build_squeeze(&f.ctx->graph, n, axis) : NULL);
}

TC_API tc_tensor tc_unsqueeze_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_unsqueeze", x, here);
    return tci_frame_end(&f, n ? tci_build_unsqueeze(&f.ctx->graph, n, axis) : NULL);
}

TC_API tc_tensor tc_slice_at(tc_tensor x, int axis, int64_t start, int64_t stop, int64_t step, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_slice", x, here);
    return tci_frame_end(&f, n ? tci_build_slice(&f.ctx->graph, n, axis, start, stop, step) : NULL);
}

TC_API tc_tensor tc_flip_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_flip", x, here);
    return tci_frame_end(&f, n ? tci_build_flip(&f.ctx->graph, n, axis) : NULL);
}

/* ---- calls of several operands ---- */

/* The node of an operand that may be a number, which then takes dtype `to`. */
static tci_node *tci_ops_either(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what)
{
    if (f->failed) {
        return NULL;
    }
    return a->kind ? tci_ops_number(f, a, to) : tci_frame_node(f, a->tensor, what);
}

TC_API tc_tensor tc_pad_at(tc_tensor x, int axis, int64_t before, int64_t after, tc_arg value, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_pad", x, here);
    tci_node *fill = n ? tci_ops_either(&f, &value, (tc_dtype)n->dtype, "the pad value") : NULL;
    return tci_frame_end(&f, fill ? tci_build_pad(&f.ctx->graph, n, axis, before, after, fill) : NULL);
}

TC_API tc_tensor tc_layer_norm_at(tc_tensor x, tc_axes axes, tc_tensor weight, tc_tensor bias, tc_arg eps,
                                  tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_layer_norm", x, here);
    tci_node *w = tci_frame_optional(&f, weight, "the weight");
    tci_node *b = tci_frame_optional(&f, bias, "the bias");
    tci_node *e = tci_ops_either(&f, &eps, TC_F64, "eps");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_layer_norm(&f.ctx->graph, n, axes, w, b, e));
}

/* Two tensors and a builder of two nodes. */
static tc_tensor tci_ops_pair(const char *name, tc_tensor a, tc_tensor b, tc_site here,
                              tci_node *(*build)(tci_graph *g, tci_node *a, tci_node *b))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, a);
    tci_frame_use(&f, b);
    tci_node *na = tci_frame_node(&f, a, tci_ops_nth[0]);
    tci_node *nb = tci_frame_node(&f, b, tci_ops_nth[1]);
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, na, nb));
}

TC_API tc_tensor tc_cross_entropy_at(tc_tensor logits, tc_tensor target, tc_site here)
{
    return tci_ops_pair("tc_cross_entropy", logits, target, here, tci_build_cross_entropy);
}

TC_API tc_tensor tc_matmul_at(tc_tensor a, tc_tensor b, tc_site here)
{
    return tci_ops_pair("tc_matmul", a, b, here, tci_build_matmul);
}

static tci_node *tci_ops_build_bmm(tci_graph *g, tci_node *a, tci_node *b)
{
    if (a->rank != 3 || b->rank != 3 || a->shape[0] != b->shape[0]) {
        char text_a[120], text_b[120];
        tci_graph_print_shape(text_a, sizeof(text_a), a->rank, a->shape);
        tci_graph_print_shape(text_b, sizeof(text_b), b->rank, b->shape);
        tci_graph_fail(g, TC_ERR_SHAPE, "shapes %s and %s: expected [n, i, k] and [n, k, j]", text_a, text_b);
        return NULL;
    }
    return tci_build_matmul(g, a, b);
}

TC_API tc_tensor tc_bmm_at(tc_tensor a, tc_tensor b, tc_site here)
{
    return tci_ops_pair("tc_bmm", a, b, here, tci_ops_build_bmm);
}

/* x and an index along an axis. */
static tc_tensor tci_ops_indexed(const char *name, tc_tensor x, int axis, tc_tensor index, tc_site here,
                                 tci_node *(*build)(tci_graph *g, tci_node *x, int axis, tci_node *index))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, index);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *ni = tci_frame_node(&f, index, "the index");
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, nx, axis, ni));
}

TC_API tc_tensor tc_gather_at(tc_tensor x, int axis, tc_tensor index, tc_site here)
{
    return tci_ops_indexed("tc_gather", x, axis, index, here, tci_build_gather);
}

TC_API tc_tensor tc_index_select_at(tc_tensor x, int axis, tc_tensor index, tc_site here)
{
    return tci_ops_indexed("tc_index_select", x, axis, index, here, tci_build_index_select);
}

TC_API tc_tensor tc_conv2d_at(tc_tensor x, tc_tensor weight, tc_tensor bias, const tc_conv *options, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_conv2d", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, weight);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *nw = tci_frame_node(&f, weight, "the weight");
    tci_node *nb = tci_frame_optional(&f, bias, "the bias");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_conv2d(&f.ctx->graph, nx, nw, nb, options));
}

TC_API tc_tensor tc_max_pool2d_at(tc_tensor x, const tc_pool *options, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_max_pool2d", x, here);
    return tci_frame_end(&f, n ? tci_build_max_pool2d(&f.ctx->graph, n, options) : NULL);
}

/* ---- lists ---- */

/* The nodes of a list, in w (freed by tci_words_put); NULL when the frame failed. */
static tci_node **tci_ops_list(tci_frame *f, tc_tensors xs, tci_words *w)
{
    w->items = NULL;
    for (int i = 0; i < xs.n; i++) {
        tci_frame_use(f, xs.items[i]);
    }
    if (xs.n < 1 || !xs.items) {
        f->failed = true;
        f->bad.id = TCI_NULL_EMPTY;
        return NULL;
    }
    for (int i = 0; i < xs.n; i++) {
        char what[32];
        snprintf(what, sizeof(what), "operand %d", i + 1);
        if (!tci_frame_node(f, xs.items[i], what)) {
            return NULL;
        }
    }
    if (!tci_words_get(&f->ctx->graph, w, xs.n)) {
        return NULL;
    }
    tci_node **nodes = (tci_node **)(void *)w->items;
    for (int i = 0; i < xs.n; i++) {
        nodes[i] = tci_handle_node(xs.items[i]);
    }
    return nodes;
}

TC_API tc_tensor tc_cat_at(tc_tensors xs, int axis, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_cat", here);
    tci_words w;
    tci_node **nodes = tci_ops_list(&f, xs, &w);
    if (!nodes) {
        return tci_frame_end(&f, NULL);
    }
    tci_node *r = tci_build_cat(&f.ctx->graph, nodes, xs.n, axis);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

TC_API tc_tensor tc_einsum_at(const char *spec, tc_tensors xs, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_einsum", here);
    tci_words w;
    tci_node **nodes = tci_ops_list(&f, xs, &w);
    if (!nodes) {
        return tci_frame_end(&f, NULL);
    }
    tci_node *r = tci_build_einsum(&f.ctx->graph, spec, nodes, xs.n);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

/* ---- made from nothing ---- */

TC_API tc_tensor tc_full_at(tc_ctx *ctx, tc_arg value, int n, const int64_t *dtype_and_sizes, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_full", here);
    if (!f.failed && (n < 1 || dtype_and_sizes[0] < 0 || dtype_and_sizes[0] >= TC_DTYPE_COUNT)) {
        tci_frame_fail(&f, TC_ERR_DTYPE, "expected a dtype after the value, then the sizes");
    }
    if (f.failed) {
        return tci_frame_end(&f, NULL);
    }
    tc_dtype dtype = (tc_dtype)dtype_and_sizes[0];
    tci_node *fill = tci_ops_either(&f, &value, dtype, "the value");
    if (fill && fill->rank) {
        tci_frame_fail(&f, TC_ERR_SHAPE, "the value has rank %d: expected a number or a 0-d tensor", fill->rank);
    }
    bool ok = fill && !f.failed && tci_build_check_shape(&ctx->graph, n - 1, dtype_and_sizes + 1, dtype);
    tci_node *r = ok ? tci_build_cast(&ctx->graph, fill, dtype) : NULL;
    return tci_frame_end(&f, r ? tci_build_broadcast(&ctx->graph, r, n - 1, dtype_and_sizes + 1) : NULL);
}

/* How many of start, start + step, ... lie before stop; -1: too many, or not finite. */
static int64_t tci_ops_arange_count(const tc_arg *start, const tc_arg *stop, const tc_arg *step)
{
    bool whole = start->kind == TCI_OPS_INT && stop->kind == TCI_OPS_INT && step->kind == TCI_OPS_INT;
    if (whole) {
        bool up = step->i > 0;
        if (up ? stop->i <= start->i : stop->i >= start->i) {
            return 0;
        }
        uint64_t way = up ? (uint64_t)stop->i - (uint64_t)start->i : (uint64_t)start->i - (uint64_t)stop->i;
        uint64_t stride = up ? (uint64_t)step->i : 0 - (uint64_t)step->i;
        uint64_t n = (way - 1) / stride + 1;
        return n > INT64_MAX ? -1 : (int64_t)n;
    }
    double n = ceil((stop->f - start->f) / step->f);
    if (!(n < 4.0e18) || !isfinite(start->f) || !isfinite(step->f)) {
        return -1;
    }
    return n > 0 ? (int64_t)n : 0;
}

/* A bool counts as the integer it is. */
static tc_arg tci_ops_arange_number(tc_arg a)
{
    return a.kind == TCI_OPS_BOOL ? tci_arg_int(a.i) : a;
}

TC_API tc_tensor tc_arange_at(tc_ctx *ctx, tc_arg start, tc_arg stop, tc_arg step, tc_dtype dtype, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_arange", here);
    start = tci_ops_arange_number(start);
    stop = tci_ops_arange_number(stop);
    step = tci_ops_arange_number(step);
    if (!start.kind || !stop.kind || !step.kind) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "start, stop and step are numbers: a tensor was given");
    } else if ((unsigned)dtype >= TC_DTYPE_COUNT || dtype == TC_BOOL) {
        tci_frame_fail(&f, TC_ERR_DTYPE, "expected an integer or float dtype");
    } else if (step.f == 0.0) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the step is 0");
    }
    int64_t n = f.failed ? 0 : tci_ops_arange_count(&start, &stop, &step);
    if (n < 0) {
        tci_frame_fail(&f, TC_ERR_LIMIT, "from %g to %g by %g are too many elements", start.f, stop.f, step.f);
    }
    if (f.failed) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &ctx->graph;
    bool whole = start.kind == TCI_OPS_INT && step.kind == TCI_OPS_INT && tci_dtype_is_int(dtype);
    tc_dtype math = whole ? TC_I64 : TC_F64;
    tci_node *steps[2] = {tci_build_cast(g, tci_build_iota(g, n), math), tci_ops_number(&f, &step, math)};
    tci_node *sum[2] = {tci_build_ew(g, TCI_OP_MUL, steps), tci_ops_number(&f, &start, math)};
    return tci_frame_end(&f, tci_build_cast(g, tci_build_ew(g, TCI_OP_ADD, sum), dtype));
}
/* ---- src/api/eval.c ---- */
/* api/eval.c - compile, run, evaluate, read, look inside: the public calls of api/compile.h.
 *
 * In: handles, buffers. Out: programs, values at nodes; statuses, with the text in ctx->last (for a run:
 * in the program or the call).
 *
 * The one idea: every compile is a batch of jobs that goes through the same steps: make a request of
 * each (which finds mistakes), have all of them compiled at once, make a program of each. The lazy form
 * is a batch of one job without inputs, whose program runs once, into new memory that the nodes then hold.
 *
 * Requests live in the batch's scratch. Every function that takes scratch memory is called through
 * tci_eval_armed, which sets the escape anew; nothing is taken outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>


/* ---- errors ---- */

/* Sets the context's error, "app.c:12: tc_compile: ...", so that tc_error(about) tells it too. site: the
 * line it names, or NULL. */
static tc_status tci_eval_fail(tc_tensor about, const char *op, const tc_site *site, tc_status why,
                               const char *format, ...) TCI_PRINTF(5, 6);
static tc_status tci_eval_fail(tc_tensor about, const char *op, const tc_site *site, tc_status why,
                               const char *format, ...)
{
    tc_ctx *ctx = about.ctx;
    char *text = ctx->last.text;
    size_t room = sizeof(ctx->last.text);
    int n = 0;
    if (site && site->file) {
        n = snprintf(text, room, "%s:%d: ", site->file, site->line);
        n = TCI_MIN(n, (int)room / 2);
    }
    n += snprintf(text + n, room - (size_t)n, "%s: ", op);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, room - (size_t)n, format, args);
    va_end(args);
    ctx->last.status = why;
    ctx->last_on = about;
    return why;
}

/* The live node of t. NULL: *status says why, as does the error of `about`, or of t where that has no context. */
static tci_node *tci_eval_node(tc_tensor about, const char *op, tc_tensor t, tc_status *status)
{
    tci_node *n = tci_handle_node(t);
    if (TCI_LIKELY(n != NULL)) {
        return n;
    }
    tci_error e;
    *status = tci_handle_error(t, e.text, sizeof(e.text));
    tc_tensor on = about.ctx ? about : t;
    if (on.ctx && on.ctx->magic == TCI_CTX_MAGIC) {
        tci_eval_fail(on, op, NULL, *status, "%s", e.text);
    }
    return NULL;
}

/* ---- options ---- */

/* Zero fields of `over` leave the context's choice. */
static tc_options tci_eval_options(const tc_ctx *ctx, const tc_options *over)
{
    tc_options o = ctx->options;
    if (!over) {
        return o;
    }
#define TCI_EVAL_TAKE(field)                                                                       \
    if (over->field) {                                                                             \
        o.field = over->field;                                                                     \
    }
    TCI_EVAL_TAKE(backend)
    TCI_EVAL_TAKE(math)
    TCI_EVAL_TAKE(fallback)
    TCI_EVAL_TAKE(threads)
    TCI_EVAL_TAKE(vector_bits)
    TCI_EVAL_TAKE(spin_us)
    TCI_EVAL_TAKE(cc)
    TCI_EVAL_TAKE(cc_timeout_s)
    TCI_EVAL_TAKE(cache_dir)
    TCI_EVAL_TAKE(cache_bytes)
    TCI_EVAL_TAKE(no_disk_cache)
    TCI_EVAL_TAKE(cache_read_only)
    TCI_EVAL_TAKE(verify)
    TCI_EVAL_TAKE(dump)
    TCI_EVAL_TAKE(dump_dir)
    TCI_EVAL_TAKE(trace)
    TCI_EVAL_TAKE(memory_limit)
#undef TCI_EVAL_TAKE
    if (over->log) {
        o.log = over->log;
        o.log_user = over->log_user;
    }
    if (over->parallel_for) {
        o.parallel_for = over->parallel_for;
        o.parallel_user = over->parallel_user;
    }
    return o;
}

/* ---- batches ---- */

typedef struct tci_eval_job {
    tc_tensors inputs, outputs;
    bool find_inputs;          /* inputs are the INPUT leaves in use, by creation */
    tc_program **program;
    tc_status status;
    tc_tensor about;           /* its first output */
    tc_site site;              /* where that was made */
    tci_request *request;
    tci_code *code;            /* counted */
} tci_eval_job;

typedef struct tci_eval_batch {
    const char *op;
    tc_tensor about;           /* live: of its context, and what errors without a job concern */
    const tc_options *options;
    tci_eval_job *jobs;
    int n;
    tci_scratch s;
    tci_request **requests;    /* of the jobs that have one, as tci_compile_requests takes them */
    tci_code **codes;
    tc_status *statuses;
    int n_requests;
    tc_status first;           /* of the first job that failed, */
    tc_tensor first_on;        /* what it concerned */
    tci_error first_error;     /* and its text; both set when `first` is */
} tci_eval_batch;

typedef tc_status (*tci_eval_body)(tci_eval_batch *b, tci_eval_job *job);

/* Runs `body` with the scratch armed; an escape becomes a status and a text. */
static tc_status tci_eval_armed(tci_eval_batch *b, tci_eval_job *job, tci_eval_body body)
{
    if (setjmp(b->s.escape)) {
        return tci_eval_fail(job ? job->about : b->about, b->op, job ? &job->site : NULL, b->s.why, "%s",
                             b->s.message);
    }
    return body(b, job);
}

/* The job failed and ctx->last tells why. Of many, the first keeps the last word. */
static void tci_eval_settle(tci_eval_batch *b, tci_eval_job *job, tc_status status)
{
    job->status = status;
    if (status && !b->first) {
        b->first = status;
        b->first_error = b->about.ctx->last;
        b->first_on = b->about.ctx->last_on;
    }
}

static tc_status tci_eval_get_lists(tci_eval_batch *b, tci_eval_job *none)
{
    (void)none;
    b->requests = TCI_NEW_ARRAY(&b->s, tci_request *, b->n);
    b->codes = TCI_NEW_ARRAY(&b->s, tci_code *, b->n);
    b->statuses = TCI_NEW_ARRAY(&b->s, tc_status, b->n);
    return TC_OK;
}

/* Nodes of a list of handles, all of the batch's context. */
static tc_status tci_eval_nodes(tci_eval_batch *b, const tci_eval_job *job, const tc_tensors *list, tci_node **nodes)
{
    tc_status status = TC_OK;
    for (int i = 0; i < list->n && !status; i++) {
        nodes[i] = tci_eval_node(job->about, b->op, list->items[i], &status);
        if (nodes[i] && list->items[i].ctx != b->about.ctx) {
            status = tci_eval_fail(job->about, b->op, &nodes[i]->site, TC_ERR_HANDLE,
                                   "given tensors of two contexts, expected all from one");
        }
    }
    return status;
}

static tc_status tci_eval_check_job(tci_eval_batch *b, const tci_eval_job *job)
{
    if (!job->program) {
        return tci_eval_fail(job->about, b->op, NULL, TC_ERR_ARGUMENT, "given NULL, expected a place for the program");
    }
    if (job->outputs.n < 1 || !job->outputs.items) {
        return tci_eval_fail(job->about, b->op, NULL, TC_ERR_ARGUMENT, "given no outputs, expected at least one");
    }
    if (job->inputs.n < 0 || (job->inputs.n && !job->inputs.items)) {
        return tci_eval_fail(job->about, b->op, NULL, TC_ERR_ARGUMENT, "given a list of %d inputs at %p", job->inputs.n,
                             (const void *)job->inputs.items);
    }
    return TC_OK;
}

static tc_status tci_eval_check_inputs(tci_eval_batch *b, const tci_eval_job *job, tci_node *const *inputs)
{
    for (int i = 0; i < job->inputs.n; i++) {
        if (inputs[i]->op != TCI_OP_INPUT) {
            return tci_eval_fail(job->about, b->op, &inputs[i]->site, TC_ERR_ARGUMENT,
                                 "input %d: given a tensor made by %s, expected a tc_input placeholder", i,
                                 tci_op_name(inputs[i]->op));
        }
    }
    return TC_OK;
}

/* Checks one job and makes its request. */
static tc_status tci_eval_request(tci_eval_batch *b, tci_eval_job *job)
{
    tc_status status = tci_eval_check_job(b, job);
    if (status) {
        return status;
    }
    tci_node **outputs = TCI_NEW_ARRAY(&b->s, tci_node *, job->outputs.n);
    status = tci_eval_nodes(b, job, &job->outputs, outputs);
    if (status) {
        return status;
    }
    job->site = outputs[0]->site;
    tci_node **inputs = NULL;
    if (!job->find_inputs) {
        inputs = TCI_NEW_ARRAY(&b->s, tci_node *, TCI_MAX(1, job->inputs.n));
        status = tci_eval_nodes(b, job, &job->inputs, inputs);
        if (!status) {
            status = tci_eval_check_inputs(b, job, inputs);
        }
        if (status) {
            return status;
        }
    }
    job->request = tci_request_make(&b->s, inputs, job->inputs.n, outputs, job->outputs.n, b->options, NULL, NULL);
    return TC_OK;
}

/* Compiles every job that has a request; each gets its code, counted, or its status. */
static void tci_eval_compile(tci_eval_batch *b)
{
    b->n_requests = 0;
    for (int i = 0; i < b->n; i++) {
        if (b->jobs[i].request) {
            b->requests[b->n_requests++] = b->jobs[i].request;
        }
    }
    if (!b->n_requests) {
        return;
    }
    tci_str log = {0};
    tci_compile_requests(&b->s, b->requests, b->n_requests, b->options, b->codes, b->statuses, &log);
    for (int i = 0, r = 0; i < b->n; i++) {
        tci_eval_job *job = &b->jobs[i];
        if (!job->request) {
            continue;
        }
        tc_status status = b->statuses[r];
        job->code = b->codes[r++];
        if (!job->code) {
            const char *text = tci_str_text(&log);
            status = status ? status : TC_ERR_INTERNAL;
            tci_eval_fail(job->about, b->op, &job->site, status, "%s%s%s", tc_status_text(status), *text ? ": " : "", text);
            tci_eval_settle(b, job, status);
        }
    }
    tci_str_free(&log);
}

static tc_status tci_eval_make_program(tci_eval_batch *b, tci_eval_job *job)
{
    tc_status status = tci_program_make(job->code, job->request, b->options, job->program);
    if (status == TC_ERR_LIMIT) {
        tci_eval_fail(job->about, b->op, &job->site, status,
                      "the program needs %lld bytes of workspace, expected at most memory_limit = %lld",
                      (long long)job->code->arena_bytes, (long long)b->options->memory_limit);
    } else if (status) {
        tci_eval_fail(job->about, b->op, &job->site, status, "%s", tc_status_text(status));
    }
    return status;
}

/* From checked handles to programs. */
static tc_status tci_eval_make_programs(tci_eval_batch *b)
{
    tci_scratch_init(&b->s);
    b->first = tci_eval_armed(b, NULL, tci_eval_get_lists);
    if (b->first) {
        for (int i = 0; i < b->n; i++) {
            b->jobs[i].status = b->first;
        }
        tci_scratch_free(&b->s);
        return b->first;
    }
    for (int i = 0; i < b->n; i++) {
        tci_eval_settle(b, &b->jobs[i], tci_eval_armed(b, &b->jobs[i], tci_eval_request));
    }
    tci_eval_compile(b);
    for (int i = 0; i < b->n; i++) {
        if (b->jobs[i].code) {
            tci_eval_settle(b, &b->jobs[i], tci_eval_make_program(b, &b->jobs[i]));
            tci_code_release(b->jobs[i].code);
        }
    }
    tci_scratch_free(&b->s);
    if (b->first) {
        b->about.ctx->last = b->first_error;
        b->about.ctx->last_on = b->first_on;
    }
    return b->first;
}

/* ---- compile ---- */

/* The first live output of all jobs. False: there is none, *status says why. */
static bool tci_eval_find_live(const tci_eval_job *jobs, int n, const char *op, tc_tensor *live, tc_status *status)
{
    static const tc_tensor nothing;
    *status = TC_ERR_ARGUMENT;
    for (int pass = 0; pass < 2; pass++) { /* only when none is live are the others asked why */
        for (int i = 0; i < n; i++) {
            const tc_tensors *out = &jobs[i].outputs;
            for (int j = 0; out->items && j < out->n; j++) {
                *live = out->items[j];
                if (pass == 0 && tci_handle_node(*live)) {
                    return true;
                }
                if (pass == 1) {
                    tci_eval_node(nothing, op, *live, status);
                    return false;
                }
            }
        }
    }
    return false;
}

static tc_status tci_eval_compile_jobs(const char *op, tci_eval_job *jobs, int n, const tc_options *options)
{
    tc_status status;
    tci_eval_batch b;
    for (int i = 0; i < n; i++) {
        if (jobs[i].program) {
            *jobs[i].program = NULL;
        }
    }
    if (!tci_eval_find_live(jobs, n, op, &b.about, &status)) {
        for (int i = 0; i < n; i++) {
            jobs[i].status = status;
        }
        return status;
    }
    tc_options merged = tci_eval_options(b.about.ctx, options);
    for (int i = 0; i < n; i++) {
        bool has_first = jobs[i].outputs.n > 0 && jobs[i].outputs.items;
        bool usable = has_first && jobs[i].outputs.items[0].ctx == b.about.ctx;
        jobs[i].about = usable ? jobs[i].outputs.items[0] : b.about;
    }
    b.op = op;
    b.options = &merged;
    b.jobs = jobs;
    b.n = n;
    return tci_eval_make_programs(&b);
}

TC_API tc_status tc_compile(tc_tensor y, tc_program **f)
{
    tci_eval_job job = {.outputs = {&y, 1}, .find_inputs = true, .program = f};
    return tci_eval_compile_jobs("tc_compile", &job, 1, NULL);
}

TC_API tc_status tc_compile_fn(tc_tensors inputs, tc_tensors outputs, const tc_options *options, tc_program **f)
{
    tci_eval_job job = {.inputs = inputs, .outputs = outputs, .program = f};
    return tci_eval_compile_jobs("tc_compile_fn", &job, 1, options);
}

TC_API tc_status tc_compile_many(tc_job *jobs, int n, const tc_options *options)
{
    if (n < 0 || (n && !jobs)) {
        return TC_ERR_ARGUMENT;
    }
    tci_eval_job *work = tci_heap_get(sizeof(*work) * (size_t)TCI_MAX(n, 1));
    for (int i = 0; i < n; i++) {
        jobs[i].status = TC_ERR_MEMORY;
        if (work) {
            work[i] = (tci_eval_job){.inputs = jobs[i].inputs, .outputs = jobs[i].outputs, .program = jobs[i].program};
        } else if (jobs[i].program) {
            *jobs[i].program = NULL;
        }
    }
    if (!work) {
        return TC_ERR_MEMORY;
    }
    tc_status status = n ? tci_eval_compile_jobs("tc_compile_many", work, n, options) : TC_OK;
    for (int i = 0; i < n; i++) {
        jobs[i].status = work[i].status;
    }
    tci_heap_free(work);
    return status;
}

TC_API void tc_program_free(tc_program *f)
{
    tci_program_release(f);
}

/* ---- run ---- */

TC_API tc_status tc_run(tc_program *f, tc_bufs inputs, tc_bufs outputs)
{
    if (TCI_UNLIKELY(!f)) {
        return TC_ERR_ARGUMENT;
    }
    tc_call *c = tci_call_take(f);
    if (TCI_UNLIKELY(!c)) {
        tci_program_record(f, TC_ERR_MEMORY, "tc_run", "out of memory: no workspace for one more call");
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_call_run(c, inputs, outputs);
    if (TCI_UNLIKELY(status != TC_OK)) {
        tci_program_record(f, status, "tc_run", c->last.text);
    }
    tci_call_give(f, c);
    return status;
}

TC_API tc_status tc_call_make(tc_program *f, tc_call **call)
{
    if (call) {
        *call = NULL;
    }
    if (!f || !call) {
        return TC_ERR_ARGUMENT;
    }
    tc_call *c = tci_call_make(f);
    if (!c) {
        tci_program_record(f, TC_ERR_MEMORY, "tc_call_make", "out of memory");
        return TC_ERR_MEMORY;
    }
    tci_program_retain(f);
    *call = c;
    return TC_OK;
}

TC_API tc_status tc_run_call(tc_call *call, tc_bufs inputs, tc_bufs outputs)
{
    return TCI_LIKELY(call != NULL) ? tci_call_run(call, inputs, outputs) : TC_ERR_ARGUMENT;
}

TC_API void tc_call_free(tc_call *call)
{
    if (call) {
        tc_program *f = call->program;
        tci_call_free(call);
        tci_program_release(f);
    }
}

/* ---- the lazy form ---- */

/* What one evaluation needs; the arrays are in the batch's scratch. */
typedef struct tci_eval_lazy {
    tci_eval_batch b;
    tci_eval_job job;
    tci_node **nodes;          /* of job.outputs, without those that hold a value and without repeats */
    int n_nodes;
    tci_storage **values;      /* their new memory */
    tc_buf *bufs;
} tci_eval_lazy;

/* Marks keep a node from being listed twice; nothing can escape between setting and clearing them. */
static void tci_eval_list_missing(tci_eval_lazy *w, tci_node *const *all, int n)
{
    for (int i = 0; i < n; i++) {
        if (!all[i]->storage && !all[i]->mark) {
            all[i]->mark = 1;
            w->nodes[w->n_nodes++] = all[i];
        }
    }
    for (int i = 0; i < w->n_nodes; i++) {
        w->nodes[i]->mark = 0;
    }
}

/* A tci_eval_body: b is the first member of the tci_eval_lazy. */
static tc_status tci_eval_lazy_request(tci_eval_batch *b, tci_eval_job *job)
{
    tci_eval_lazy *w = (tci_eval_lazy *)(void *)b;
    int n = job->outputs.n;
    tci_node **all = TCI_NEW_ARRAY(&b->s, tci_node *, n);
    w->nodes = TCI_NEW_ARRAY(&b->s, tci_node *, n);
    w->values = TCI_NEW_ARRAY(&b->s, tci_storage *, n);
    w->bufs = TCI_NEW_ARRAY(&b->s, tc_buf, n);
    tc_status status = tci_eval_nodes(b, job, &job->outputs, all);
    if (status) {
        return status;
    }
    tci_eval_list_missing(w, all, n);
    if (!w->n_nodes) {
        return TC_OK;
    }
    job->site = w->nodes[0]->site;
    b->requests = TCI_NEW_ARRAY(&b->s, tci_request *, 1);
    b->codes = TCI_NEW_ARRAY(&b->s, tci_code *, 1);
    b->statuses = TCI_NEW_ARRAY(&b->s, tc_status, 1);
    tci_request *r = tci_request_make(&b->s, NULL, 0, w->nodes, w->n_nodes, b->options, NULL, NULL);
    if (r->n_user_inputs) {
        const tci_node *input = r->inputs[0];
        return tci_eval_fail(job->about, b->op, &job->site, TC_ERR_ARGUMENT,
                             "the value needs '%.60s', a tc_input placeholder%s%.200s%s: compile it and bind the input"
                             " with tc_run, or use tc_borrow or tc_copy_in",
                             input->name ? input->name : "", input->site.file ? " (made in " : "",
                             input->site.file ? input->site.file : "", input->site.file ? ")" : "");
    }
    job->request = r;
    return TC_OK;
}

static tc_status tci_eval_lazy_memory(tci_eval_lazy *w)
{
    const tci_code *code = w->job.code;
    for (int i = 0; i < w->n_nodes; i++) {
        w->values[i] = tci_storage_make(code->outputs[i].bytes);
        if (!w->values[i]) {
            return tci_eval_fail(w->job.about, w->b.op, &w->nodes[i]->site, TC_ERR_MEMORY,
                                 "out of memory: %lld bytes for the value", (long long)code->outputs[i].bytes);
        }
        w->bufs[i] = (tc_buf){w->values[i]->data, code->outputs[i].n, code->outputs[i].dtype, false};
    }
    return TC_OK;
}

static tc_status tci_eval_lazy_run(tci_eval_lazy *w, tc_program *f)
{
    tc_status status = tci_eval_lazy_memory(w);
    tc_call *c = status ? NULL : tci_call_make(f);
    if (!status && !c) {
        status = tci_eval_fail(w->job.about, w->b.op, &w->job.site, TC_ERR_MEMORY, "out of memory: workspace of a run");
    }
    if (!status) {
        tc_bufs none = {NULL, 0};
        tc_bufs outputs = {w->bufs, w->n_nodes};
        status = tci_call_run(c, none, outputs);
        if (status) {
            tci_eval_fail(w->job.about, w->b.op, &w->job.site, status, "%s", c->last.text);
        }
    }
    tci_call_free(c);
    for (int i = 0; i < w->n_nodes; i++) {
        if (status) {
            tci_storage_release(w->values[i]);
        } else {
            w->nodes[i]->storage = w->values[i];
        }
    }
    return status;
}

/* The first of ts is live. */
static tc_status tci_eval_lazily(const char *op, tc_tensors ts)
{
    tci_eval_lazy w;
    tc_program *f = NULL;
    w.b.op = op;
    w.b.about = ts.items[0];
    w.b.options = &ts.items[0].ctx->options;
    w.b.jobs = &w.job;
    w.b.n = 1;
    w.b.first = TC_OK;
    w.job = (tci_eval_job){.outputs = ts, .about = ts.items[0], .find_inputs = true, .program = &f};
    w.n_nodes = 0;
    tci_scratch_init(&w.b.s);
    tc_status status = tci_eval_armed(&w.b, &w.job, tci_eval_lazy_request);
    if (!status && w.job.request) {
        tci_eval_compile(&w.b);
        status = w.job.status;
        if (!status) {
            status = tci_eval_make_program(&w.b, &w.job);
            tci_code_release(w.job.code); /* the program holds its own count */
        }
        if (!status) {
            status = tci_eval_lazy_run(&w, f);
            tci_program_release(f);
        }
    }
    tci_scratch_free(&w.b.s);
    return status;
}

static tc_status tci_eval_value(const char *op, tc_tensor t, tci_node **node)
{
    tc_status status = TC_OK;
    tci_node *n = tci_eval_node(t, op, t, &status);
    *node = n;
    if (!n || n->storage) {
        return status;
    }
    tc_tensors ts = {&t, 1};
    return tci_eval_lazily(op, ts);
}

TC_API tc_status tc_eval(tc_tensor t)
{
    tci_node *n;
    return tci_eval_value("tc_eval", t, &n);
}

TC_API tc_status tc_eval_many(tc_tensors ts)
{
    tc_status status = TC_OK;
    if (ts.n < 0 || (ts.n && !ts.items)) {
        return TC_ERR_ARGUMENT;
    }
    for (int i = 0; i < ts.n; i++) {
        if (!tci_eval_node(ts.items[i], "tc_eval_many", ts.items[i], &status)) {
            return status;
        }
    }
    return ts.n ? tci_eval_lazily("tc_eval_many", ts) : TC_OK;
}

/* ---- reading ---- */

/* Copies axes [axis, rank) of a value to dense memory; returns the end of what was written. */
static char *tci_eval_copy_out(const tci_node *n, int axis, const char *from, char *to)
{
    size_t bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    if (axis == n->rank) {
        memcpy(to, from, bytes);
        return to + bytes;
    }
    if (axis == n->rank - 1 && n->strides[axis] == 1) {
        size_t row = bytes * (size_t)n->shape[axis];
        memcpy(to, from, row);
        return to + row;
    }
    for (int64_t i = 0; i < n->shape[axis]; i++) {
        to = tci_eval_copy_out(n, axis + 1, from + i * n->strides[axis] * (int64_t)bytes, to);
    }
    return to;
}

static tc_status tci_eval_check_read(tc_tensor t, const tci_node *n, const tc_buf *to)
{
    int64_t count = tci_node_count(n);
    const tci_dtype_info *info = tci_dtype_get((tc_dtype)n->dtype);
    if (to->is_const || (!to->data && count)) {
        return tci_eval_fail(t, "tc_read", &n->site, TC_ERR_BUFFER, "given %s, expected memory for %lld %s",
                             to->data ? "a pointer to const" : "NULL", (long long)count, info->name);
    }
    if (to->dtype != n->dtype && to->dtype != -1) {
        bool known = to->dtype >= 0 && to->dtype < TC_DTYPE_COUNT;
        return tci_eval_fail(t, "tc_read", &n->site, TC_ERR_BUFFER, "given memory of %s, expected %s",
                             known ? tci_dtype_get((tc_dtype)to->dtype)->name : "no known dtype", info->name);
    }
    bool as_bytes = to->dtype == -1 && to->n == count * info->bytes;
    if (to->n != count && !as_bytes) {
        return tci_eval_fail(t, "tc_read", &n->site, TC_ERR_BUFFER, "given room for %lld elements, expected %lld",
                             (long long)to->n, (long long)count);
    }
    return TC_OK;
}

TC_API tc_status tc_read_as(tc_tensor t, tc_buf to)
{
    tci_node *n;
    tc_status status = tci_eval_value("tc_read", t, &n);
    if (!status) {
        status = tci_eval_check_read(t, n, &to);
    }
    if (status || tci_node_count(n) == 0) {
        return status;
    }
    int64_t bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    const char *from = (const char *)n->storage->data + n->offset * bytes;
    if (n->strides) {
        tci_eval_copy_out(n, 0, from, to.data);
    } else {
        memmove(to.data, from, (size_t)(bytes * tci_node_count(n)));
    }
    return TC_OK;
}

/* ---- look inside ---- */

TC_API const char *tc_program_error(const tc_program *f)
{
    return f ? tci_program_error_text((tc_program *)(uintptr_t)f) : "";
}

TC_API const char *tc_call_error(const tc_call *call)
{
    return call ? call->last.text : "";
}

TC_API const char *tc_source(const tc_program *f)
{
    return f ? tci_code_source(f->code) : "";
}

static void tci_eval_explain_times(const tc_program *f, FILE *out)
{
    const tc_times *t = &f->code->times;
    const char *found = f->from_memory ? "memory" : f->from_disk ? "disk" : NULL;
    if (found) {
        fprintf(out, "compile: found in the %s cache\n", found);
        return;
    }
    fprintf(out,
            "compile: %.2f ms = key %.2f + rewrite %.2f + plan %.2f + lower %.2f + emit %.2f + compiler %.2f"
            " + load %.2f\n",
            (double)t->total / 1e6, (double)t->key / 1e6, (double)t->rewrite / 1e6, (double)t->plan / 1e6,
            (double)t->lower / 1e6, (double)t->emit / 1e6, (double)t->compiler / 1e6, (double)t->load / 1e6);
}

TC_API tc_status tc_explain(const tc_program *f, FILE *out)
{
    if (!f || !out) {
        return TC_ERR_ARGUMENT;
    }
    fputs(f->code->explain ? f->code->explain : "", out);
    tci_eval_explain_times(f, out);
    return ferror(out) ? TC_ERR_IO : TC_OK;
}

TC_API tc_status tc_program_get_info(const tc_program *f, tc_program_info *info)
{
    if (!f || !info) {
        return TC_ERR_ARGUMENT;
    }
    const tci_code *code = f->code;
    *info = (tc_program_info){.n_inputs = f->n_inputs,
                              .n_outputs = code->n_outputs,
                              .n_kernels = code->n_kernels,
                              .n_steps = code->n_steps,
                              .arena_bytes = code->arena_bytes,
                              .backend = code->backend,
                              .from_memory = f->from_memory,
                              .from_disk = f->from_disk};
    int64_t moved = 0;
    for (int i = 0; i < code->n_steps; i++) {
        moved += code->kernels[code->steps[i].kernel].bytes;
        info->flops += code->kernels[code->steps[i].kernel].flops;
    }
    for (int i = 0; i < code->n_outputs; i++) {
        info->bytes_written += code->outputs[i].bytes;
    }
    info->bytes_read = TCI_MAX(0, moved - info->bytes_written);
    return TC_OK;
}

TC_API tc_status tc_compile_times(const tc_program *f, tc_times *times)
{
    if (!f || !times) {
        return TC_ERR_ARGUMENT;
    }
    *times = f->from_memory || f->from_disk ? (tc_times){0} : f->code->times;
    return TC_OK;
}
/* ---- src/api/print.c ---- */
/* api/print.c - tc_print: a tensor's value as NumPy 2 prints it.
 *
 * In: a tensor. Out: text like that of Python's print(numpy_array), in the default print options:
 * precision 8, threshold 1000, three edge items, lines of 75 characters.
 *
 * The one idea: the layout is a walk over the elements that will be shown, made twice. The first walk
 * collects what all elements need (range, signs, widths) into a tci_print_format, the second writes.
 * Both see the same elements, as past 1000 elements only the corners count.
 *
 * A float is written with the fewest digits that name it among the values of its dtype, at most 8 after
 * the point. Digits come from the C library's exact conversion and are laid out here, so the host's
 * locale has no say. bf16 is printed as the f32 it stands for. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define TCI_PRINT_EDGE 3
#define TCI_PRINT_THRESHOLD 1000
#define TCI_PRINT_WIDTH 75
#define TCI_PRINT_PRECISION 8
#define TCI_PRINT_PART 32  /* room for a part of an element: without exponent, values are in [1e-4, 1e16) */
#define TCI_PRINT_WORD 128 /* room for an element */

/* ---- decimal digits of one float ---- */

/* |x| = 0.d1 d2 d3 ... * 10^point; no digits: zero. */
typedef struct tci_print_decimal {
    char digits[32];
    int n, point;
} tci_print_decimal;

/* The first n digits of x > 0, correctly rounded (a tie to even). Returns the value of that text. */
static double tci_print_digits(tci_print_decimal *d, double x, int n)
{
    char text[64];
    snprintf(text, sizeof(text), "%.*e", n - 1, x);
    const char *c = text;
    d->n = 0;
    for (; *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') { /* whatever else stands there is the locale's decimal point */
            d->digits[d->n++] = *c;
        }
    }
    d->point = (int)strtol(c + 1, NULL, 10) + 1;
    return strtod(text, NULL);
}

static void tci_print_trim(tci_print_decimal *d)
{
    while (d->n > 0 && d->digits[d->n - 1] == '0') {
        d->n--;
    }
}

/* The interval of reals that round to x > 0 in f16 or f32, and whether its ends belong to it. */
typedef struct tci_print_interval {
    double low, high;
    bool closed;
} tci_print_interval;

static tci_print_interval tci_print_rounds_to(double x, tc_dtype t)
{
    int mantissa_bits = t == TC_F16 ? 11 : 24;
    int min_exponent = t == TC_F16 ? -14 : -126;
    int exponent;
    frexp(x, &exponent);
    exponent--;
    double ulp = ldexp(1.0, TCI_MAX(exponent, min_exponent) - (mantissa_bits - 1));
    bool is_power = exponent > min_exponent && x == ldexp(1.0, exponent);
    tci_print_interval r = {x - (is_power ? ulp / 4 : ulp / 2), x + ulp / 2, fmod(x / ulp, 2.0) == 0.0};
    return r;
}

static bool tci_print_reads_back(double text_value, double x, tc_dtype t, const tci_print_interval *in)
{
    if (t == TC_F64) {
        return text_value == x;
    }
    bool on_edge = text_value == in->low || text_value == in->high;
    return (text_value > in->low && text_value < in->high) || (in->closed && on_edge);
}

/* Adds one to the last digit and returns the value of the digits. */
static double tci_print_next_up(tci_print_decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digits[i] == '9') {
        d->digits[i--] = '0';
    }
    if (i < 0) {
        d->digits[0] = '1';
        d->point++;
    } else {
        d->digits[i]++;
    }
    char text[64]; /* an integer with an exponent: no decimal point, hence no locale */
    snprintf(text, sizeof(text), "%.*se%d", d->n, d->digits, d->point - d->n);
    return strtod(text, NULL);
}

/* The fewest digits that read back as x > 0. A power of two has twice the room above that it has below,
 * so there the nearest decimal may miss where the one above it does not. */
static void tci_print_shortest(tci_print_decimal *d, double x, tc_dtype t)
{
    tci_print_interval in = {0, 0, false};
    if (t != TC_F64) {
        in = tci_print_rounds_to(x, t);
    }
    int exponent;
    bool is_power = frexp(x, &exponent) == 0.5;
    for (int n = 1; n <= DBL_DECIMAL_DIG; n++) {
        double nearest = tci_print_digits(d, x, n);
        if (tci_print_reads_back(nearest, x, t, &in)) {
            break;
        }
        if (is_power && nearest < x && tci_print_reads_back(tci_print_next_up(d), x, t, &in)) {
            break;
        }
    }
    tci_print_trim(d);
}

/* The digits of x: the shortest that name it, but at most `precision` after the point (-1: no limit);
 * exactly so many when `fixed`. */
static void tci_print_decimal_of(tci_print_decimal *d, double x, tc_dtype t, bool exponential, int precision,
                                 bool fixed)
{
    d->n = 0;
    d->point = 1;
    x = fabs(x);
    if (x == 0) {
        return;
    }
    tci_print_shortest(d, x, t);
    if (fixed) {
        if (d->n != precision + 1) {
            tci_print_digits(d, x, precision + 1);
        }
        return;
    }
    if (precision < 0) {
        return;
    }
    int most = exponential ? precision + 1 : d->point + precision;
    if (d->n > most && most > 0) {
        tci_print_digits(d, x, most);
        tci_print_trim(d);
    }
}

/* ---- the common format of all elements ---- */

typedef struct tci_print_format {
    tc_dtype dtype;              /* in which floats are shortened: bf16 counts as f32 */
    bool exponential;
    int precision;               /* digits after the point at most; -1: no limit */
    bool fixed;                  /* exactly `precision` digits: exponential, once widths are known */
    int pad_left, pad_right;     /* width before and after the point */
    int exponent_digits;
    double smallest, largest;    /* nonzero finite magnitudes; smallest is infinite while there are none */
    bool any_finite, any_special, any_negative_inf;
    int width;                   /* integers */
} tci_print_format;

typedef struct tci_print_parts { /* one float in pieces: sign and integer part, fraction, exponent */
    char whole[TCI_PRINT_PART];
    char fraction[TCI_PRINT_PART];
    char exponent[16];
} tci_print_parts;

static int tci_print_digit_run(char *to, const tci_print_decimal *d, int from, int until)
{
    int n = 0;
    for (int i = from; i < until && n < TCI_PRINT_PART - 2; i++) {
        to[n++] = i >= 0 && i < d->n ? d->digits[i] : '0';
    }
    to[n] = 0;
    return n;
}

static void tci_print_split(tci_print_parts *p, const tci_print_format *f, double x)
{
    tci_print_decimal d;
    tci_print_decimal_of(&d, x, f->dtype, f->exponential, f->precision, f->fixed);
    char *whole = p->whole;
    if (signbit(x)) {
        *whole++ = '-';
    }
    int point = f->exponential ? 1 : d.point; /* digits before the point */
    if (d.n == 0 || point <= 0) {
        strcpy(whole, "0");
    } else {
        tci_print_digit_run(whole, &d, 0, point);
    }
    tci_print_digit_run(p->fraction, &d, d.n ? point : 0, d.n);
    p->exponent[0] = 0;
    if (f->exponential) {
        int exponent = d.n ? d.point - 1 : 0;
        const char *format = f->exponent_digits > 2 ? "e%c%03d" : "e%c%02d";
        snprintf(p->exponent, sizeof(p->exponent), format, exponent < 0 ? '-' : '+', abs(exponent));
    }
}

/* ---- the walk ---- */

typedef struct tci_print_view { /* a value in memory */
    const char *data;            /* element 0...0 */
    tc_dtype dtype;
    int rank;
    const int64_t *shape, *strides; /* in elements; strides NULL: dense */
    bool summary;                /* only corners are shown */
} tci_print_view;

static int64_t tci_print_stride(const tci_print_view *v, int axis)
{
    if (v->strides) {
        return v->strides[axis];
    }
    int64_t stride = 1;
    for (int i = axis + 1; i < v->rank; i++) {
        stride *= v->shape[i];
    }
    return stride;
}

static bool tci_print_is_cut(const tci_print_view *v, int axis)
{
    return v->summary && v->shape[axis] > 2 * TCI_PRINT_EDGE;
}

/* Calls `see` for each element that will be shown below `axis`. */
static void tci_print_visit(const tci_print_view *v, int axis, int64_t at,
                            void (*see)(tci_print_format *f, const tci_print_view *v, int64_t at),
                            tci_print_format *f)
{
    if (axis == v->rank) {
        see(f, v, at);
        return;
    }
    int64_t stride = tci_print_stride(v, axis);
    int64_t n = v->shape[axis];
    for (int64_t i = 0; i < n; i++) {
        if (i == TCI_PRINT_EDGE && tci_print_is_cut(v, axis)) {
            i = n - TCI_PRINT_EDGE;
        }
        tci_print_visit(v, axis + 1, at + i * stride, see, f);
    }
}

static tci_value tci_print_value(const tci_print_view *v, int64_t at)
{
    return tci_value_load(v->dtype, v->data + at * tci_dtype_get(v->dtype)->bytes);
}

static void tci_print_see_range(tci_print_format *f, const tci_print_view *v, int64_t at)
{
    double x = tci_print_value(v, at).f;
    if (!isfinite(x)) {
        f->any_special = true;
        f->any_negative_inf |= x < 0;
        return;
    }
    f->any_finite = true;
    if (x != 0) {
        f->smallest = fmin(f->smallest, fabs(x));
        f->largest = fmax(f->largest, fabs(x));
    }
}

static void tci_print_see_widths(tci_print_format *f, const tci_print_view *v, int64_t at)
{
    double x = tci_print_value(v, at).f;
    if (!isfinite(x)) {
        return;
    }
    tci_print_parts p;
    tci_print_split(&p, f, x);
    f->pad_left = TCI_MAX(f->pad_left, (int)strlen(p.whole));
    f->pad_right = TCI_MAX(f->pad_right, (int)strlen(p.fraction));
    f->exponent_digits = TCI_MAX(f->exponent_digits, (int)strlen(p.exponent) - 2);
}

static int tci_print_integer(char *text, size_t room, tc_dtype t, tci_value v)
{
    if (t == TC_U64) {
        return snprintf(text, room, "%llu", (unsigned long long)v.u);
    }
    return snprintf(text, room, "%lld", (long long)v.i);
}

static void tci_print_see_integer(tci_print_format *f, const tci_print_view *v, int64_t at)
{
    char text[32];
    f->width = TCI_MAX(f->width, tci_print_integer(text, sizeof(text), v->dtype, tci_print_value(v, at)));
}

/* x as the dtype holds it: NumPy compares in the array's own type. */
static double tci_print_rounded(double x, tc_dtype t)
{
    return t == TC_F64 ? x : t == TC_F16 ? tci_round_f16((float)x) : (double)(float)x;
}

static void tci_print_plan_floats(tci_print_format *f, const tci_print_view *v)
{
    f->dtype = v->dtype == TC_BF16 ? TC_F32 : v->dtype;
    f->precision = TCI_PRINT_PRECISION;
    f->smallest = INFINITY;
    tci_print_visit(v, 0, 0, tci_print_see_range, f);
    double limit = f->dtype == TC_F64 ? 1e8 : f->dtype == TC_F32 ? 1e6 : 1e3;
    f->exponential = f->largest > 0 &&
                     (f->largest >= limit || f->smallest < tci_print_rounded(0.0001, f->dtype) ||
                      tci_print_rounded(f->largest / f->smallest, f->dtype) > 1000.0);
    tci_print_visit(v, 0, 0, tci_print_see_widths, f);
    int after_whole = f->pad_right;
    if (f->exponential) {
        f->precision = f->pad_right;
        f->fixed = true;
        after_whole += f->exponent_digits + 2;
    }
    if (f->any_special) {
        int longest = f->any_negative_inf ? 4 : 3;
        f->pad_left = TCI_MAX(f->pad_left, longest - (after_whole + 1));
    }
}

/* ---- writing ---- */

static void tci_print_spaces(tci_str *out, int n)
{
    for (int i = 0; i < n; i++) {
        tci_str_add_n(out, " ", 1);
    }
}

static void tci_print_float(char *text, const tci_print_format *f, double x)
{
    tci_print_parts p;
    if (!isfinite(x)) {
        int width = f->pad_left + f->pad_right + 1 + (f->exponential ? f->exponent_digits + 2 : 0);
        snprintf(text, TCI_PRINT_WORD, "%*s", width, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    tci_print_split(&p, f, x);
    int n = (int)strlen(p.fraction);
    for (; n < f->pad_right && n < TCI_PRINT_PART - 1; n++) {
        p.fraction[n] = f->exponential ? '0' : ' ';
    }
    p.fraction[n] = 0;
    snprintf(text, TCI_PRINT_WORD, "%*s.%s%s", f->pad_left, p.whole, p.fraction, p.exponent);
}

static void tci_print_word(char *text, const tci_print_format *f, const tci_print_view *v, int64_t at)
{
    tci_value x = tci_print_value(v, at);
    if (tci_dtype_is_float(v->dtype)) {
        tci_print_float(text, f, x.f);
    } else if (v->dtype == TC_BOOL) {
        strcpy(text, x.i ? " True" : "False");
    } else {
        char digits[32];
        tci_print_integer(digits, sizeof(digits), v->dtype, x);
        snprintf(text, TCI_PRINT_WORD, "%*s", f->width, digits);
    }
}

/* Ends a line: blanks before the break go, and the next one is indented. */
static void tci_print_break(tci_str *out, int n_lines, int indent)
{
    while (out->n && out->text[out->n - 1] == ' ') {
        out->text[--out->n] = 0;
    }
    for (int i = 0; i < n_lines; i++) {
        tci_str_add_n(out, "\n", 1);
    }
    tci_print_spaces(out, indent);
}

/* The innermost axis: words with a blank between, wrapped where a line would pass its width. */
static void tci_print_row(tci_str *out, const tci_print_format *f, const tci_print_view *v, int64_t at)
{
    int axis = v->rank - 1;
    int indent = axis + 1;
    int width = TCI_PRINT_WIDTH - axis - 1;
    int column = indent;
    int64_t stride = tci_print_stride(v, axis);
    int64_t n = v->shape[axis];
    char word[TCI_PRINT_WORD];
    for (int64_t i = 0; i < n; i++) {
        bool gap = i == TCI_PRINT_EDGE && tci_print_is_cut(v, axis);
        if (gap) {
            strcpy(word, "...");
            i = n - TCI_PRINT_EDGE - 1;
        } else {
            tci_print_word(word, f, v, at + i * stride);
        }
        int length = (int)strlen(word);
        if (column + length > width && column > indent) {
            tci_print_break(out, 1, indent);
            column = indent;
        }
        tci_str_add(out, word);
        column += length;
        if (i + 1 < n) {
            tci_str_add_n(out, " ", 1);
            column++;
        }
    }
}

static void tci_print_axis(tci_str *out, const tci_print_format *f, const tci_print_view *v, int axis, int64_t at)
{
    tci_str_add_n(out, "[", 1);
    if (axis == v->rank - 1) {
        tci_print_row(out, f, v, at);
        tci_str_add_n(out, "]", 1);
        return;
    }
    int64_t stride = tci_print_stride(v, axis);
    int64_t n = v->shape[axis];
    for (int64_t i = 0; i < n; i++) {
        if (i) {
            tci_print_break(out, v->rank - 1 - axis, axis + 1);
        }
        if (i == TCI_PRINT_EDGE && tci_print_is_cut(v, axis)) {
            tci_str_add(out, "...");
            i = n - TCI_PRINT_EDGE - 1;
        } else {
            tci_print_axis(out, f, v, axis + 1, at + i * stride);
        }
    }
    tci_str_add_n(out, "]", 1);
}

/* A 0-d value is printed as NumPy prints a scalar: all its digits, at least one after the point. */
static void tci_print_scalar(tci_str *out, const tci_print_view *v)
{
    tci_value x = tci_print_value(v, 0);
    if (v->dtype == TC_BOOL) {
        tci_str_add(out, x.i ? "True" : "False");
        return;
    }
    if (!tci_dtype_is_float(v->dtype)) {
        char text[32];
        tci_print_integer(text, sizeof(text), v->dtype, x);
        tci_str_add(out, text);
        return;
    }
    if (!isfinite(x.f)) {
        tci_str_add(out, isnan(x.f) ? "nan" : x.f < 0 ? "-inf" : "inf");
        return;
    }
    tci_print_format f = {.dtype = v->dtype == TC_BF16 ? TC_F32 : v->dtype, .precision = -1};
    double limit = f.dtype == TC_F64 ? 1e16 : f.dtype == TC_F32 ? 1e6 : 1e3;
    f.exponential = x.f != 0 && (fabs(x.f) >= limit || fabs(x.f) < 0.0001);
    tci_print_parts p;
    tci_print_split(&p, &f, x.f);
    const char *fraction = p.fraction[0] || f.exponential ? p.fraction : "0";
    tci_str_printf(out, "%s%s%s%s", p.whole, *fraction ? "." : "", fraction, p.exponent);
}

static void tci_print_text(tci_str *out, tci_print_view *v)
{
    double count = 1; /* a product of sizes that cannot overflow */
    for (int i = 0; i < v->rank; i++) {
        count *= (double)v->shape[i];
    }
    v->summary = count > TCI_PRINT_THRESHOLD;
    tci_print_format f = {.dtype = v->dtype};
    if (count == 0) {
        tci_str_add(out, "[]");
    } else if (v->rank == 0) {
        tci_print_scalar(out, v);
    } else {
        if (tci_dtype_is_float(v->dtype)) {
            tci_print_plan_floats(&f, v);
        } else if (v->dtype != TC_BOOL) {
            tci_print_visit(v, 0, 0, tci_print_see_integer, &f);
        }
        tci_print_axis(out, &f, v, 0, 0);
    }
    tci_str_add_n(out, "\n", 1);
}

TC_API tc_status tc_print(FILE *out, tc_tensor t)
{
    tc_status status = tc_eval(t);
    if (status) {
        return status;
    }
    if (!out) {
        return TC_ERR_ARGUMENT;
    }
    const tci_node *n = tci_handle_node(t);
    const tci_dtype_info *info = tci_dtype_get(n->dtype);
    tci_print_view v = {.data = (const char *)n->storage->data + n->offset * info->bytes,
                        .dtype = n->dtype,
                        .rank = n->rank,
                        .shape = n->shape,
                        .strides = n->strides};
    tci_str text = {0};
    tci_print_text(&text, &v);
    if (text.failed) {
        status = TC_ERR_MEMORY;
    } else if (fwrite(text.text, 1, text.n, out) != text.n) {
        status = TC_ERR_IO;
    }
    tci_str_free(&text);
    return status;
}

#undef TCI_PRINT_EDGE
#undef TCI_PRINT_THRESHOLD
#undef TCI_PRINT_WIDTH
#undef TCI_PRINT_PRECISION
#undef TCI_PRINT_PART
#undef TCI_PRINT_WORD

#ifdef TCI_HAS_CPU
#include "tc_cpu.h"
#endif

/* ---- src/base/unprotect.h ---- */
/* base/unprotect.h - closes what base/protect.h opened: the user's options and warnings are
 * back. */
#if defined(__clang__)
#pragma float_control(pop)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif
