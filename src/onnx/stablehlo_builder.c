/* onnx/stablehlo_builder.c - helpers that emit StableHLO text: types, constants, and one statement
 * for each common op, shared by the export_stablehlo_* files. */
#include "export_stablehlo.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- text ---- */

TCI_FN const char *tci_hlo_dtype(tc_dtype t)
{
    static const char *const names[TCI_DTYPE_N] = {
        [TC_BOOL - TC_BOOL] = "i1",  [TC_U8 - TC_BOOL] = "ui8",    [TC_U16 - TC_BOOL] = "ui16",
        [TC_U32 - TC_BOOL] = "ui32", [TC_U64 - TC_BOOL] = "ui64",  [TC_I8 - TC_BOOL] = "i8",
        [TC_I16 - TC_BOOL] = "i16",  [TC_I32 - TC_BOOL] = "i32",   [TC_I64 - TC_BOOL] = "i64",
        [TC_F16 - TC_BOOL] = "f16",  [TC_BF16 - TC_BOOL] = "bf16", [TC_F32 - TC_BOOL] = "f32",
        [TC_F64 - TC_BOOL] = "f64"};
    return names[t - TC_BOOL];
}

TCI_FN int64_t tci_hlo_size(const tci_hlo *h, tci_dim d)
{
#ifdef TC_DYNAMIC_SHAPES
    if (!tci_dim_is_known(d)) {
        d = tci_dim_replace(d, h->n_symbols, h->symbols, h->values);
    }
    if (!tci_dim_is_known(d)) {
        const bool engine = h->walk->known != NULL; /* which is given no sizes */
        tci_scratch_fail(h->walk->s, engine ? TC_ERR_UNSUPPORTED : TC_ERR_ARGUMENT,
                         "the size %s is symbolic: StableHLO is exported for known sizes%s",
                         tci_dim_text_of(d).text,
                         engine ? "" : " (tc_stablehlo_export.sizes says what each TC_DIM is)");
    }
#endif
    (void)h;
    return tci_dim_known(d);
}

TCI_FN tci_hlo_shape tci_hlo_shape_known(const tci_hlo *h, int rank, const int64_t *sizes)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < rank; i++) {
        tci_str_printf(&text, "%lldx", (long long)sizes[i]);
    }
    return (tci_hlo_shape){rank, sizes, tci_str_text(&text)};
}

TCI_FN tci_hlo_shape tci_hlo_shape_of(const tci_hlo *h, int rank, const tci_dim *sizes)
{
    int64_t *known = TCI_NEW_ARRAY(h->walk->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        known[i] = tci_hlo_size(h, sizes[i]);
    }
    return tci_hlo_shape_known(h, rank, known);
}

TCI_FN const char *tci_hlo_type(const tci_hlo *h, tc_dtype dtype, const tci_hlo_shape *shape)
{
    return tci_scratch_printf(h->walk->s, "tensor<%s%s>", shape->text, tci_hlo_dtype(dtype));
}

TCI_FN const char *tci_hlo_node_type(const tci_hlo *h, const tci_node *n)
{
    tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    return tci_hlo_type(h, (tc_dtype)n->dtype, &shape);
}

TCI_FN const char *tci_hlo_list(const tci_hlo *h, int n, const int64_t *items)
{
    tci_str text = {.s = h->walk->s};
    tci_str_add(&text, "[");
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s%lld", i ? ", " : "", (long long)(items ? items[i] : i));
    }
    tci_str_add(&text, "]");
    return tci_str_text(&text);
}

TCI_FN const char *tci_hlo_array(const tci_hlo *h, int n, const int64_t *items)
{
    tci_str text = {.s = h->walk->s};
    tci_str_add(&text, "array<i64");
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s %lld", i ? "," : ":", (long long)items[i]);
    }
    tci_str_add(&text, ">");
    return tci_str_text(&text);
}

TCI_FN const char *tci_hlo_name(tci_hlo *h)
{
    return tci_scratch_printf(h->walk->s, "%%%d", h->n_values++);
}

TCI_FN const char *tci_hlo_let(tci_hlo *h, const char *format, ...)
{
    const char *name = tci_hlo_name(h);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = tci_scratch_get(h->walk->s, (size_t)n + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    tci_str_printf(&h->out, "  %s = ", name);
    tci_str_add_n(&h->out, text, (size_t)n);
    tci_str_add(&h->out, "\n");
    return name;
}

/* ---- constants ---- */

TCI_FN const char *tci_hlo_splat(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, tci_value v)
{
    const char *type = tci_hlo_type(h, t, shape);
    uint64_t bits = 0;
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        count *= shape->sizes[i];
    }
    if (!count) {
        return tci_hlo_let(h, "stablehlo.constant dense<> : %s", type);
    } else if (t == TC_BOOL) {
        return tci_hlo_let(h, "stablehlo.constant dense<%s> : %s", v.u ? "true" : "false", type);
    } else if (t == TC_U64) {
        return tci_hlo_let(h, "stablehlo.constant dense<%llu> : %s", (unsigned long long)v.u, type);
    } else if (!tci_dtype_is_float(t)) {
        return tci_hlo_let(h, "stablehlo.constant dense<%lld> : %s", (long long)v.i, type);
    }
    tci_value_store(t, &bits, v); /* floats by their bits */
    return tci_hlo_let(h, "stablehlo.constant dense<0x%0*llX> : %s", 2 * tci_dtype_get(t)->bytes,
                       (unsigned long long)bits, type);
}

TCI_FN const char *tci_hlo_float(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, double v)
{
    return tci_hlo_splat(h, shape, t, tci_value_cast((tci_value){.f = v}, TC_F64, t));
}

TCI_FN const char *tci_hlo_whole(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, int64_t v)
{
    return tci_hlo_splat(h, shape, t, tci_value_cast((tci_value){.i = v}, TC_I64, t));
}

TCI_FN const char *tci_hlo_ints(tci_hlo *h, const tci_hlo_shape *shape, const int64_t *items, int n)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s%lld", i ? ", " : "", (long long)items[i]);
    }
    const tci_hlo_shape list = tci_hlo_shape_known(h, 1, (const int64_t[]){n});
    const char *x = tci_hlo_let(h, "stablehlo.constant dense<[%s]> : %s", tci_str_text(&text),
                                tci_hlo_type(h, TC_I64, &list));
    return tci_hlo_let(h, "stablehlo.reshape %s : (%s) -> %s", x, tci_hlo_type(h, TC_I64, &list),
                       tci_hlo_type(h, TC_I64, shape));
}

/* ---- ops on whole tensors ---- */

TCI_FN const char *tci_hlo_convert(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from,
                                   tc_dtype to, const char *x)
{
    return from == to ? x
                      : tci_hlo_let(h, "stablehlo.convert %s : (%s) -> %s", x,
                                    tci_hlo_type(h, from, shape), tci_hlo_type(h, to, shape));
}

TCI_FN const char *tci_hlo_binary(tci_hlo *h, const char *op, const tci_hlo_shape *shape,
                                  tc_dtype t, const char *a, const char *b)
{
    return tci_hlo_let(h, "stablehlo.%s %s, %s : %s", op, a, b, tci_hlo_type(h, t, shape));
}

TCI_FN const char *tci_hlo_compare(tci_hlo *h, const char *how, const tci_hlo_shape *shape,
                                   tc_dtype t, const char *a, const char *b)
{
    const char *kind = tci_dtype_is_float(t)    ? "FLOAT"
                       : tci_dtype_is_signed(t) ? "SIGNED"
                                                : "UNSIGNED";
    const char *type = tci_hlo_type(h, t, shape);
    return tci_hlo_let(h, "stablehlo.compare %s, %s, %s, %s : (%s, %s) -> %s", how, a, b, kind,
                       type, type, tci_hlo_type(h, TC_BOOL, shape));
}

TCI_FN const char *tci_hlo_select(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *c,
                                  const char *a, const char *b)
{
    return tci_hlo_let(h, "stablehlo.select %s, %s, %s : %s, %s", c, a, b,
                       tci_hlo_type(h, TC_BOOL, shape), tci_hlo_type(h, t, shape));
}

TCI_FN const char *tci_hlo_broadcast(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                     const tci_hlo_shape *to, const int64_t *axes, const char *x)
{
    return tci_hlo_let(h, "stablehlo.broadcast_in_dim %s, dims = %s : (%s) -> %s", x,
                       tci_hlo_list(h, from->rank, axes), tci_hlo_type(h, t, from),
                       tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_reshape(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                   const tci_hlo_shape *to, const char *x)
{
    return tci_hlo_let(h, "stablehlo.reshape %s : (%s) -> %s", x, tci_hlo_type(h, t, from),
                       tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_transpose(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                     const int64_t *order, const char *x)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    for (int i = 0; i < from->rank; i++) {
        sizes[i] = from->sizes[order[i]];
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, from->rank, sizes);
    return tci_hlo_let(h, "stablehlo.transpose %s, dims = %s : (%s) -> %s", x,
                       tci_hlo_list(h, from->rank, order), tci_hlo_type(h, t, from),
                       tci_hlo_type(h, t, &to));
}

TCI_FN const char *tci_hlo_arrange(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                   const int64_t *order, const tci_hlo_shape *to, const char *x)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    bool in_order = true;
    for (int i = 0; i < from->rank; i++) {
        sizes[i] = from->sizes[order[i]];
        in_order = in_order && order[i] == i;
    }
    const tci_hlo_shape moved = tci_hlo_shape_known(h, from->rank, sizes);
    x = in_order ? x : tci_hlo_transpose(h, t, from, order, x);
    bool same = moved.rank == to->rank && !strcmp(moved.text, to->text);
    return same ? x : tci_hlo_reshape(h, t, &moved, to, x);
}

/* ---- movement and orders ---- */

TCI_FN const char *tci_hlo_slice(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                 const tci_hlo_shape *to, const int64_t *start, const int64_t *step,
                                 const char *x)
{
    tci_str bounds = {.s = h->walk->s};
    tci_str_add(&bounds, "[");
    for (int i = 0; i < from->rank; i++) {
        int64_t at = to->sizes[i] ? start[i] : 0;
        int64_t end = to->sizes[i] ? at + (to->sizes[i] - 1) * step[i] + 1 : 0;
        tci_str_printf(&bounds, "%s%lld:%lld:%lld", i ? ", " : "", (long long)at, (long long)end,
                       (long long)step[i]);
    }
    return tci_hlo_let(h, "stablehlo.slice %s %s] : (%s) -> %s", x, tci_str_text(&bounds),
                       tci_hlo_type(h, t, from), tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_pad(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                               const tci_hlo_shape *to, const int64_t *before, const char *fill,
                               const char *x)
{
    int64_t *after = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    int64_t *none = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    for (int i = 0; i < from->rank; i++) {
        after[i] = to->sizes[i] - from->sizes[i] - before[i];
    }
    return tci_hlo_let(h,
                       "stablehlo.pad %s, %s, low = %s, high = %s, interior = %s : (%s, "
                       "tensor<%s>) -> %s",
                       x, fill, tci_hlo_list(h, from->rank, before),
                       tci_hlo_list(h, from->rank, after), tci_hlo_list(h, from->rank, none),
                       tci_hlo_type(h, t, from), tci_hlo_dtype(t), tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_join(tci_hlo *h, int axis, int n, const char *const *parts,
                                const char *const *types, const char *type)
{
    tci_str names = {.s = h->walk->s}, of = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&names, "%s%s", i ? ", " : "", parts[i]);
        tci_str_printf(&of, "%s%s", i ? ", " : "", types[i]);
    }
    return tci_hlo_let(h, "stablehlo.concatenate %s, dim = %d : (%s) -> %s", tci_str_text(&names),
                       axis, tci_str_text(&of), type);
}

TCI_FN const char *tci_hlo_joins(int op, tc_dtype t)
{
    bool is_bool = t == TC_BOOL;
    switch (op) {
    case TCI_OP_SUM: return is_bool ? "or" : "add";
    case TCI_OP_PROD: return is_bool ? "and" : "multiply";
    case TCI_OP_MAX: return is_bool ? "or" : "maximum";
    case TCI_OP_MIN: return is_bool ? "and" : "minimum";
    case TCI_OP_ANY: return "or";
    case TCI_OP_ALL: return "and";
    default: return NULL;
    }
}

TCI_FN tci_value tci_hlo_identity(int op, tc_dtype t)
{
    bool is_signed = tci_dtype_is_signed(t);
    int bits = 8 * tci_dtype_get(t)->bytes;
    uint64_t most = ~(uint64_t)0 >> (64 - bits + is_signed);
    tci_value one = tci_value_cast((tci_value){.i = 1}, TC_I64, t), v = {.i = 0};
    if (op == TCI_OP_PROD || op == TCI_OP_ALL) {
        return one;
    } else if (op != TCI_OP_MAX && op != TCI_OP_MIN) {
        return v;
    } else if (t == TC_BOOL) {
        return op == TCI_OP_MIN ? one : v;
    } else if (tci_dtype_is_float(t)) {
        return (tci_value){.f = op == TCI_OP_MIN ? (double)INFINITY : -(double)INFINITY};
    }
    return (tci_value){.u = op == TCI_OP_MIN ? most : is_signed ? ~most : 0};
}

TCI_FN const char *tci_hlo_before(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, bool largest,
                                  bool nan_first, const char *a, const char *b)
{
    const char *is = tci_hlo_compare(h, largest ? "GT" : "LT", shape, t, a, b);
    if (!tci_dtype_is_float(t)) {
        return is;
    }
    const char *first = nan_first ? a : b, *other = nan_first ? b : a;
    const char *is_nan = tci_hlo_compare(h, "NE", shape, t, first, first);
    const char *number = tci_hlo_compare(h, "EQ", shape, t, other, other);
    is_nan = tci_hlo_binary(h, "and", shape, TC_BOOL, is_nan, number);
    return tci_hlo_binary(h, "or", shape, TC_BOOL, is, is_nan);
}
