/* api/operand_macros.h - defines the macros that turn C values into operands and argument lists:
 * TC_ARG, TC_TENSORS, TC_AXES, TC_ATTRS, TC_BUF, TC_BUFS and the lists of sizes. */
#ifndef TC_API_OPERAND_MACROS_H
#define TC_API_OPERAND_MACROS_H

#include "context.h"

#ifdef __cplusplus
#include <initializer_list>
#ifdef __GNUC__ /* C and C++ share the inline functions below */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#endif
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
static inline tc_arg tci_arg(float v)
{
    return tci_arg_float(static_cast<double>(v));
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
 * itself (TC_ERR_BUFFER; exact except for strides of three axes or more that interleave in more
 * ways than a bounded search covers, which are accepted). tc_run_async rejects it. */
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
