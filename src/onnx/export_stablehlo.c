/* onnx/export_stablehlo.c - tc_export_stablehlo: writes a graph as the text of a StableHLO module.
 *
 * In: tensors, as tc_compile_fn takes them, and the values of symbolic sizes. Out: the text of a
 * module with one function, @main, as XLA's PJRT plugins compile it.
 *
 * Design: every op is exported as given by the table TCI_HLO_WAY_..., which covers every op.
 * Elementwise ops, casts and random bits become the scalar operations of their kernel form
 * (export_stablehlo_scalar.c); movement ops, reductions, contractions, sorts and loops the
 * StableHLO op of the same meaning; composites their expansion, which XLA's own passes fuse. */
#include "export_stablehlo.h"
#include "../graph/contraction_descriptor.h"

#include <string.h>

/* Memory of the graph: its bytes as hexadecimal digits; of bool as bytes that are compared. */
static const char *tci_hlo_memory(tci_hlo *h, tci_node *n)
{
    static const char digits[] = "0123456789ABCDEF";
    int64_t bytes;
    const unsigned char *data = (const unsigned char *)tci_ox_memory_of(h->walk, n, &bytes);
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->dtype, as = t == TC_BOOL ? TC_U8 : t;
    if (!bytes) {
        return tci_hlo_whole(h, &shape, t, 0);
    }
    const char *name = tci_hlo_name(h);
    char *text = tci_scratch_get(h->walk->s, (size_t)bytes * 2 + 1);
    for (int64_t i = 0; i < bytes; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    tci_str_printf(&h->out, "  %s = stablehlo.constant dense<\"0x", name);
    tci_str_add_n(&h->out, text, (size_t)bytes * 2);
    tci_str_printf(&h->out, "\"> : %s\n", tci_hlo_type(h, as, &shape));
    return as == t ? name
                   : tci_hlo_compare(h, "NE", &shape, as, name, tci_hlo_whole(h, &shape, as, 0));
}

/* ---- movement ---- */

static const char *tci_hlo_slice_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    int64_t *start = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1), n_back = 0;
    int64_t *step = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    int64_t *back = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        start[i] = tci_hlo_size(h, tci_node_dims(n)[2 * i]);
        step[i] = tci_hlo_size(h, tci_node_dims(n)[2 * i + 1]);
        if (step[i] < 0) { /* the axis is turned first */
            start[i] = from.sizes[i] - 1 - start[i];
            step[i] = -step[i];
            back[n_back++] = i;
        }
    }
    if (n_back) {
        x = tci_hlo_let(h, "stablehlo.reverse %s, dims = %s : %s", x,
                        tci_hlo_list(h, (int)n_back, back), tci_hlo_node_type(h, n->in[0]));
    }
    return tci_hlo_slice(h, (tc_dtype)n->dtype, &from, &to, start, step, x);
}

static const char *tci_hlo_pad_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    int64_t *before = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        before[i] = tci_hlo_size(h, tci_node_dims(n)[i]);
    }
    return tci_hlo_pad(h, (tc_dtype)n->dtype, &from, &to, before, in[1], in[0]);
}

static const char *tci_hlo_cat_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    const char **types = TCI_NEW_ARRAY(h->walk->s, const char *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        types[i] = tci_hlo_node_type(h, n->in[i]);
    }
    return tci_hlo_join(h, (int)n->attr[0], n->n_in, in, types, tci_hlo_node_type(h, n));
}

/* The elements of x that an index names along an axis: gathered, with all other axes whole. index:
 * i64 of one axis; its axis takes the place of x's. */
static const char *tci_hlo_take(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from, int axis,
                                const char *index, int64_t count, const char *x)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1), n = 0;
    int64_t *whole = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    int64_t *offsets = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    for (int i = 0; i < from->rank; i++) {
        sizes[i] = i == axis ? count : from->sizes[i];
        whole[i] = i == axis ? 1 : from->sizes[i];
        if (i != axis) {
            offsets[n++] = i;
        }
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, from->rank, sizes);
    return tci_hlo_let(h,
                       "\"stablehlo.gather\"(%s, %s) <{dimension_numbers = #stablehlo.gather<"
                       "offset_dims = %s, collapsed_slice_dims = [%d], start_index_map = [%d], "
                       "index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = %s}> : "
                       "(%s, tensor<%lldxi64>) -> %s",
                       x, index, tci_hlo_list(h, (int)n, offsets), axis, axis,
                       tci_hlo_array(h, from->rank, whole), tci_hlo_type(h, t, from),
                       (long long)count, tci_hlo_type(h, t, &to));
}

/* Windows along an axis: its elements are taken in the order of the windows, and the axis of
 * positions within a window then moves to the end. */
static const char *tci_hlo_window_out(tci_hlo *h, const tci_node *n, const char *x)
{
    tci_scratch *s = h->walk->s;
    int windows = n->n_attr / 4, rank = n->in[0]->rank;
    tci_hlo_shape at = tci_hlo_shape_of(h, rank, n->in[0]->shape);
    tc_dtype t = (tc_dtype)n->dtype;
    for (int i = 0; i < windows; i++, rank++) {
        const tci_dim *a = tci_node_dims(n) + 4 * i;
        int axis = (int)n->attr[4 * i];
        int64_t k = tci_hlo_size(h, a[1]), steps = tci_hlo_size(h, n->shape[axis]);
        int64_t stride = tci_hlo_size(h, a[2]), dilation = tci_hlo_size(h, a[3]);
        int64_t *places = TCI_NEW_ARRAY(s, int64_t, steps *k + 1);
        int64_t *flat = TCI_NEW_ARRAY(s, int64_t, rank + 2),
                *split = TCI_NEW_ARRAY(s, int64_t, rank + 2);
        int64_t *order = TCI_NEW_ARRAY(s, int64_t, rank + 1),
                *last = TCI_NEW_ARRAY(s, int64_t, rank + 2);
        for (int64_t j = 0; j < steps * k; j++) {
            places[j] = j / k * stride + j % k * dilation;
        }
        for (int d = 0; d <= rank; d++) {
            flat[d] = d == axis ? steps * k : d < rank ? at.sizes[d] : 0;
            split[d] = d == axis ? steps : d == axis + 1 ? k : at.sizes[d - (d > axis)];
            order[d] = d <= axis ? d : d < rank ? d + 1 : axis + 1;
        }
        for (int d = 0; d <= rank; d++) {
            last[d] = split[order[d]];
        }
        const tci_hlo_shape list = tci_hlo_shape_known(h, 1, (const int64_t[]){steps * k});
        const char *index = steps * k > 0 ? tci_hlo_ints(h, &list, places, (int)(steps * k))
                                          : tci_hlo_whole(h, &list, TC_I64, 0);
        x = tci_hlo_take(h, t, &at, axis, index, steps * k, x);
        const tci_hlo_shape taken = tci_hlo_shape_known(h, rank, flat);
        const tci_hlo_shape parted = tci_hlo_shape_known(h, rank + 1, split);
        x = tci_hlo_reshape(h, t, &taken, &parted, x);
        x = tci_hlo_transpose(h, t, &parted, order, x);
        at = tci_hlo_shape_known(h, rank + 1, last);
    }
    return x;
}

/* ---- reductions ---- */

/* The shape without the axes. */
static tci_hlo_shape tci_hlo_without(tci_hlo *h, const tci_hlo_shape *x, int n, const int64_t *axes)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, x->rank + 1);
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        bool drops = false;
        for (int a = 0; a < n; a++) {
            drops = drops || axes[a] == i;
        }
        if (!drops) {
            sizes[rank++] = x->sizes[i];
        }
    }
    return tci_hlo_shape_known(h, rank, sizes);
}

static const char *tci_hlo_reduce(tci_hlo *h, int op, tc_dtype t, const tci_hlo_shape *shape, int n,
                                  const int64_t *axes, const char *x)
{
    const tci_hlo_shape point = {0, NULL, ""}, to = tci_hlo_without(h, shape, n, axes);
    if (!n) {
        return x;
    }
    const char *start = tci_hlo_splat(h, &point, t, tci_hlo_identity(op, t));
    return tci_hlo_let(h,
                       "stablehlo.reduce(%s init: %s) applies stablehlo.%s across dimensions = "
                       "%s : (%s, tensor<%s>) -> %s",
                       x, start, tci_hlo_joins(op, t), tci_hlo_list(h, n, axes),
                       tci_hlo_type(h, t, shape), tci_hlo_dtype(t), tci_hlo_type(h, t, &to));
}

/* Sums of integers are of a wider dtype, those of f16 and bf16 are in f32, rounded once. */
static const char *tci_hlo_fold_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->dtype, in = t;
    bool adds = n->op == TCI_OP_SUM || n->op == TCI_OP_PROD || n->op == TCI_OP_DEVSQ;
    in = adds && tci_dtype_is_half(t) ? TC_F32 : t;
    if (n->op == TCI_OP_ANY || n->op == TCI_OP_ALL) {
        x = n->in[0]->dtype == TC_BOOL
                ? x
                : tci_hlo_compare(h, "NE", &shape, (tc_dtype)n->in[0]->dtype, x,
                                  tci_hlo_whole(h, &shape, (tc_dtype)n->in[0]->dtype, 0));
    } else {
        x = tci_hlo_convert(h, &shape, (tc_dtype)n->in[0]->dtype, in, x);
    }
    x = tci_hlo_reduce(h, n->op, in, &shape, n->n_attr, n->attr, x);
    return tci_hlo_convert(h, &to, in, t, x);
}

/* Axes that stay when n axes of x are reduced: the positions of the result's axes in x. */
static const int64_t *tci_hlo_kept(tci_hlo *h, int rank, int n, const int64_t *axes)
{
    int64_t *kept = TCI_NEW_ARRAY(h->walk->s, int64_t, rank + 1);
    int k = 0;
    for (int i = 0; i < rank; i++) {
        bool drops = false;
        for (int a = 0; a < n; a++) {
            drops = drops || axes[a] == i;
        }
        if (!drops) {
            kept[k++] = i;
        }
    }
    return kept;
}

/* Two passes: the mean, then the squares of what differs from it. */
static const char *tci_hlo_devsq_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = tci_dtype_is_half((tc_dtype)n->dtype) ? TC_F32 : (tc_dtype)n->dtype;
    double count = 1;
    for (int i = 0; i < n->n_attr; i++) {
        count *= (double)shape.sizes[n->attr[i]];
    }
    x = tci_hlo_convert(h, &shape, (tc_dtype)n->in[0]->dtype, t, x);
    const char *mean = tci_hlo_reduce(h, TCI_OP_SUM, t, &shape, n->n_attr, n->attr, x);
    mean = tci_hlo_binary(h, "divide", &to, t, mean, tci_hlo_float(h, &to, t, count));
    mean = tci_hlo_broadcast(h, t, &to, &shape, tci_hlo_kept(h, shape.rank, n->n_attr, n->attr),
                             mean);
    x = tci_hlo_binary(h, "subtract", &shape, t, x, mean);
    x = tci_hlo_binary(h, "multiply", &shape, t, x, x);
    x = tci_hlo_reduce(h, TCI_OP_SUM, t, &shape, n->n_attr, n->attr, x);
    return tci_hlo_convert(h, &to, t, (tc_dtype)n->dtype, x);
}

/* The first of the largest or smallest elements: values and positions reduced together. */
static const char *tci_hlo_arg_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
    const tci_hlo_shape point = {0, NULL, ""};
    tc_dtype t = (tc_dtype)n->in[0]->dtype;
    bool most = n->op == TCI_OP_ARGMAX;
    const char *dtype = tci_hlo_dtype(t);
    const char *at = tci_hlo_let(h, "stablehlo.iota dim = %lld : %s", (long long)n->attr[0],
                                 tci_hlo_type(h, TC_I64, &shape));
    const char *none = tci_hlo_splat(h, &point, t,
                                     tci_hlo_identity(most ? TCI_OP_MAX : TCI_OP_MIN, t));
    const char *last = tci_hlo_whole(h, &point, TC_I64, INT64_MAX);
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *i = tci_hlo_name(h);
    const char *b = tci_hlo_name(h), *j = tci_hlo_name(h);
    tci_str_printf(&h->out,
                   "  %s:2 = \"stablehlo.reduce\"(%s, %s, %s, %s) <{dimensions = "
                   "array<i64: %lld>}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<i64>, %s: tensor<%s>, "
                   "%s: tensor<i64>):\n",
                   r, x, at, none, last, (long long)n->attr[0], a, dtype, i, b, dtype, j);
    const char *first = tci_hlo_before(h, &point, t, most, true, a, b);
    const char *second = tci_hlo_before(h, &point, t, most, true, b, a);
    const char *level = tci_hlo_binary(h, "or", &point, TC_BOOL, first, second);
    level = tci_hlo_let(h, "stablehlo.not %s : tensor<i1>", level);
    const char *lower = tci_hlo_compare(h, "LT", &point, TC_I64, i, j);
    level = tci_hlo_binary(h, "and", &point, TC_BOOL, level, lower);
    first = tci_hlo_binary(h, "or", &point, TC_BOOL, first, level);
    const char *value = tci_hlo_select(h, &point, t, first, a, b);
    const char *place = tci_hlo_select(h, &point, TC_I64, first, i, j);
    tci_str_printf(&h->out,
                   "  stablehlo.return %s, %s : tensor<%s>, tensor<i64>\n  }) : (%s, %s, "
                   "tensor<%s>, tensor<i64>) -> (",
                   value, place, dtype, tci_hlo_type(h, t, &shape), tci_hlo_type(h, TC_I64, &shape),
                   dtype);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_str_printf(&h->out, "%s, %s)\n", tci_hlo_type(h, t, &to), tci_hlo_type(h, TC_I64, &to));
    return tci_scratch_printf(h->walk->s, "%s#1", r);
}

static const char *tci_hlo_reduction_out(tci_hlo *h, const tci_node *n, const char *x)
{
    tci_ox_sliding w;
    if (tci_ox_find_pool(n, &w)) {
        return tci_hlo_pool_out(h, &w, n, x);
    }
    switch ((int)n->op) {
    case TCI_OP_SUM:
    case TCI_OP_PROD:
    case TCI_OP_MAX:
    case TCI_OP_MIN:
    case TCI_OP_ANY:
    case TCI_OP_ALL: return tci_hlo_fold_out(h, n, x);
    case TCI_OP_DEVSQ: return tci_hlo_devsq_out(h, n, x);
    case TCI_OP_ARGMAX:
    case TCI_OP_ARGMIN: return tci_hlo_arg_out(h, n, x);
    default: return NULL; /* a row without a form */
    }
}

/* ---- contractions ---- */

/* An operand as dot_general takes it: summed over the axes that the other and the result lack. */
static const char *tci_hlo_factor(tci_hlo *h, const tci_contraction *c, int which, const char *x,
                                  tci_hlo_shape *shape, int *at)
{
    const tci_node *n = c->in[which].node;
    int64_t *alone = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    tc_dtype t = (tc_dtype)n->dtype;
    int n_alone = 0;
    *shape = tci_hlo_shape_of(h, n->rank, n->shape);
    for (int d = 0; d < n->rank; d++) {
        for (int i = 0; i < c->n_axes; i++) {
            if (c->axes[i].group == TCI_AXES_ALONE && c->axes[i].at[which] == d) {
                alone[n_alone++] = d;
            }
        }
    }
    const tci_hlo_shape left = tci_hlo_without(h, shape, n_alone, alone);
    for (int i = 0; i < c->n_axes; i++) {
        at[i] = c->axes[i].at[which];
        for (int a = n_alone - 1; a >= 0; a--) {
            at[i] -= c->axes[i].at[which] > alone[a];
        }
    }
    x = tci_hlo_reduce(h, TCI_OP_SUM, t, shape, n_alone, alone, x);
    *shape = left;
    return x;
}

/* dot_general gives batch axes, then those of a, then those of b. */
static const char *tci_hlo_contract_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    tci_ox_conv conv;
    if (tci_ox_find_conv(s, n, &conv)) {
        return tci_hlo_conv_out(h, &conv, n, in);
    }
    const tci_contraction *c = tci_contraction_of(s, n);
    tci_hlo_shape shapes[2];
    int *at[2], n_of[TCI_AXES_COUNT] = {0}, made = 0;
    const char *x[2];
    int64_t *lists[TCI_AXES_COUNT][2], *sizes = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    int64_t *order = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    tc_dtype from = (tc_dtype)n->in[0]->dtype;
    for (int i = 0; i < 2; i++) {
        at[i] = TCI_NEW_ARRAY(s, int, c->n_axes + 1);
        x[i] = tci_hlo_factor(h, c, i, in[i], &shapes[i], at[i]);
        for (int g = 0; g < TCI_AXES_COUNT; g++) {
            lists[g][i] = TCI_NEW_ARRAY(s, int64_t, c->n_axes + 1);
        }
    }
    for (int i = 0; i < c->n_axes; i++) {
        int g = c->axes[i].group;
        lists[g][0][n_of[g]] = at[0][i];
        lists[g][1][n_of[g]++] = at[1][i];
    }
    for (int g = TCI_AXES_BATCH; g <= TCI_AXES_N; g++) { /* axes of M and N in their own order */
        int which = g == TCI_AXES_N, rank = shapes[which].rank;
        for (int d = 0; d < (g == TCI_AXES_BATCH ? c->n_axes : rank); d++) {
            for (int i = 0; i < c->n_axes; i++) {
                bool is = c->axes[i].group == g &&
                          (g == TCI_AXES_BATCH ? i == d : at[which][i] == d);
                if (is) {
                    sizes[made] = tci_hlo_size(h, c->axes[i].size);
                    order[c->axes[i].at[2]] = made++;
                }
            }
        }
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, n->rank, sizes);
    bool is_f32 = from == TC_F32;
    const char *y = tci_hlo_let(
        h,
        "stablehlo.dot_general %s, %s, batching_dims = %s x %s, contracting_dims = %s x %s, "
        "precision = [%s, %s] : (%s, %s) -> %s",
        x[0], x[1], tci_hlo_list(h, n_of[TCI_AXES_BATCH], lists[TCI_AXES_BATCH][0]),
        tci_hlo_list(h, n_of[TCI_AXES_BATCH], lists[TCI_AXES_BATCH][1]),
        tci_hlo_list(h, n_of[TCI_AXES_K], lists[TCI_AXES_K][0]),
        tci_hlo_list(h, n_of[TCI_AXES_K], lists[TCI_AXES_K][1]), is_f32 ? "HIGHEST" : "DEFAULT",
        is_f32 ? "HIGHEST" : "DEFAULT", tci_hlo_type(h, from, &shapes[0]),
        tci_hlo_type(h, from, &shapes[1]), tci_hlo_type(h, (tc_dtype)n->dtype, &to));
    bool in_order = true;
    for (int i = 0; i < n->rank; i++) {
        in_order = in_order && order[i] == i;
    }
    return in_order ? y : tci_hlo_transpose(h, (tc_dtype)n->dtype, &to, order, y);
}

/* ---- all ops ---- */

/* Export form of each special and composite op: "": as StableHLO ops, in tci_hlo_special_out;
 * TCI_HLO_EXPANDS: as its expansion; otherwise the reason why it cannot be exported. A row of
 * ops/table.h that is missing here does not compile. */
#define TCI_HLO_EXPANDS "expands"
#define TCI_HLO_WAY_INPUT "an input that is not among those given"
#define TCI_HLO_WAY_DATA ""
#define TCI_HLO_WAY_LITERAL ""
#define TCI_HLO_WAY_CONST ""
#define TCI_HLO_WAY_IOTA ""
#define TCI_HLO_WAY_RANDOM ""
#define TCI_HLO_WAY_WHERE ""
#define TCI_HLO_WAY_CAST ""
#define TCI_HLO_WAY_BITCAST ""
#define TCI_HLO_WAY_RESHAPE ""
#define TCI_HLO_WAY_PERMUTE ""
#define TCI_HLO_WAY_EXPAND ""
#define TCI_HLO_WAY_SLICE ""
#define TCI_HLO_WAY_PAD ""
#define TCI_HLO_WAY_CAT ""
#define TCI_HLO_WAY_WINDOW ""
#define TCI_HLO_WAY_GATHER ""
#define TCI_HLO_WAY_SCAN ""
#define TCI_HLO_WAY_TOPK ""
#define TCI_HLO_WAY_SCATTER ""
#define TCI_HLO_WAY_SEGMENT "only plans have it"
#define TCI_HLO_WAY_CONTRACT ""
#define TCI_HLO_WAY_BOUND ""
#define TCI_HLO_WAY_REPEAT ""
#define TCI_HLO_WAY_RESULT ""
#define TCI_HLO_WAY_CUSTOM "an op of the user's own"
#define TCI_HLO_WAY_COLLECTIVE "collectives have a communicator of the process"
#define TCI_HLO_WAY_BARRIER ""
#define TCI_HLO_WAY_ASSIGN "an effect"
#define TCI_HLO_WAY_SOFTMAX TCI_HLO_EXPANDS
#define TCI_HLO_WAY_LOG_SOFTMAX TCI_HLO_EXPANDS
#define TCI_HLO_WAY_MEAN TCI_HLO_EXPANDS
#define TCI_HLO_WAY_LAYER_NORM TCI_HLO_EXPANDS
#define TCI_HLO_WAY_CROSS_ENTROPY TCI_HLO_EXPANDS
#define TCI_HLO_WAY_LU TCI_HLO_EXPANDS
#define TCI_HLO_WAY_SOLVE TCI_HLO_EXPANDS
#define TCI_HLO_WAY_SOLVE_TRIANGULAR TCI_HLO_EXPANDS
#define TCI_HLO_WAY_CHOLESKY TCI_HLO_EXPANDS
#define TCI_HLO_WAY_STOP_GRADIENT TCI_HLO_EXPANDS
#define TCI_HLO_WAY_SHARD TCI_HLO_EXPANDS
#define TCI_HLO_WAY_WITH_DERIVATIVE TCI_HLO_EXPANDS
#define TCI_HLO_WAY_NAMED TCI_HLO_EXPANDS
#define TCI_HLO_WAY_CONV_TRANSPOSE TCI_HLO_EXPANDS

/* Of a special or composite op. */
static const char *tci_hlo_way_of(int op)
{
    static const char *const ways[] = {
#define TCI_ROW(id, ...) [TCI_OP_##id - TCI_OP_REDUCE_END] = TCI_HLO_WAY_##id,
        TCI_SPECIAL_OPS(TCI_ROW) TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
    };
    return ways[op - TCI_OP_REDUCE_END];
}

static const char *tci_hlo_special_out(tci_hlo *h, tci_node *n, const char *const *in)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->dtype;
    switch ((int)n->op) {
    case TCI_OP_LITERAL:
    case TCI_OP_CONST: return tci_hlo_splat(h, &shape, t, n->value);
    case TCI_OP_IOTA:
        return tci_hlo_let(h, "stablehlo.iota dim = 0 : %s", tci_hlo_type(h, t, &shape));
    case TCI_OP_RANDOM:
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_BITCAST: return tci_hlo_scalar_out(h, n, in);
    case TCI_OP_RESHAPE: {
        const tci_hlo_shape from = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
        return tci_hlo_reshape(h, t, &from, &shape, in[0]);
    }
    case TCI_OP_PERMUTE: {
        const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
        return tci_hlo_transpose(h, t, &from, n->attr, in[0]);
    }
    case TCI_OP_EXPAND: {
        const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
        return tci_hlo_broadcast(h, t, &from, &shape, NULL, in[0]);
    }
    case TCI_OP_SLICE: return tci_hlo_slice_out(h, n, in[0]);
    case TCI_OP_PAD: return tci_hlo_pad_out(h, n, in);
    case TCI_OP_CAT: return tci_hlo_cat_out(h, n, in);
    case TCI_OP_WINDOW: return tci_hlo_window_out(h, n, in[0]);
    case TCI_OP_CONTRACT: return tci_hlo_contract_out(h, n, in);
    case TCI_OP_GATHER: return tci_hlo_gather_out(h, n, in);
    case TCI_OP_SCATTER: return tci_hlo_scatter_out(h, n, in);
    case TCI_OP_TOPK: return tci_hlo_topk_out(h, n, in[0]);
    case TCI_OP_SCAN: return tci_hlo_scan_out(h, n, in[0]);
    case TCI_OP_REPEAT: return tci_hlo_repeat_out(h, n, in);
    case TCI_OP_RESULT: return tci_hlo_result_out(h, n);
    case TCI_OP_BARRIER: return in[0];
    default: return NULL;
    }
}

/* ---- the module ---- */

static const char *tci_hlo_leave(tci_ox_walk *w, tci_node *n, const char *const *in)
{
    tci_hlo *h = (tci_hlo *)w->to;
    const char *way = n->op >= TCI_OP_REDUCE_END ? tci_hlo_way_of(n->op) : "";
    if (tci_node_is_value(n)) {
        return tci_hlo_memory(h, n);
    } else if (*way && strcmp(way, TCI_HLO_EXPANDS)) {
        tci_ox_refuse(w, n, way);
    } else if (tci_op_is_ew(n->op)) {
        return tci_hlo_scalar_out(h, n, in);
    } else if (tci_op_is_reduce(n->op)) {
        return tci_hlo_reduction_out(h, n, in[0]);
    }
    return tci_op_is_composite(n->op) ? NULL : tci_hlo_special_out(h, n, in);
}

static int tci_hlo_needs(tci_ox_walk *w, tci_node *n, tci_node *const **list)
{
    return tci_hlo_conv_needs((tci_hlo *)w->to, n, list);
}

/* Values of the symbols in the sizes of the inputs. */
static void tci_hlo_tell_sizes(tci_hlo *h, const tc_stablehlo_export *how)
{
    int n = how ? how->n_sizes : 0;
    h->symbols = TCI_NEW_ARRAY(h->walk->s, tci_dim, n + 1);
    h->values = TCI_NEW_ARRAY(h->walk->s, tci_dim, n + 1);
#ifdef TC_DYNAMIC_SHAPES
    for (int i = 0; i < h->walk->n_inputs; i++) {
        const tci_node *x = h->walk->inputs[i];
        for (int a = 0; a < x->rank; a++) {
            tci_dim list[16];
            int count = 0;
            tci_dim_symbols(x->shape[a], list, &count, 16);
            for (int k = 0; k < count; k++) {
                for (int j = 0; j < n; j++) {
                    if (!strcmp(tci_dim_name(list[k]), how->sizes[j].name)) {
                        h->symbols[j] = list[k];
                        h->values[j] = (tci_dim)how->sizes[j].size;
                    }
                }
            }
        }
    }
    h->n_symbols = n;
#endif
}

static void tci_hlo_signature(tci_hlo *h, tci_str *text, tci_node *const *outputs, int n)
{
    tci_ox_walk *w = h->walk;
    for (int i = 0; i < w->n_inputs; i++) {
        tci_str_printf(text, "// %%arg%d: %s\n", i, tci_ox_input_name(w, i));
    }
    tci_str_add(text, "module @tc {\n  func.func public @main(");
    for (int i = 0; i < w->n_inputs; i++) {
        const char *name = tci_scratch_printf(w->s, "%%arg%d", i);
        tci_str_printf(text, "%s%s: %s", i ? ", " : "", name, tci_hlo_node_type(h, w->inputs[i]));
        tci_ox_set_name(w, w->inputs[i], name);
    }
    tci_str_add(text, ") -> (");
    for (int i = 0; i < n; i++) {
        tci_str_printf(text, "%s%s", i ? ", " : "", tci_hlo_node_type(h, outputs[i]));
    }
    tci_str_add(text, ") {\n");
}

TCI_FN void tci_ox_write_stablehlo(tci_ox_walk *w, tci_node *const *outputs, int n,
                                   const tc_stablehlo_export *how, tci_str *text)
{
    tci_hlo h = {.walk = w, .out = {.s = w->s}};
    tci_str names = {.s = w->s}, types = {.s = w->s};
    w->to = &h;
    w->leave = tci_hlo_leave;
    w->needs = tci_hlo_needs;
    tci_hlo_tell_sizes(&h, how);
    tci_hlo_signature(&h, text, outputs, n);
    for (int i = 0; i < n; i++) {
        tci_str_printf(&names, "%s%s", i ? ", " : "", tci_ox_walk_to(w, outputs[i]));
        tci_str_printf(&types, "%s%s", i ? ", " : "", tci_hlo_node_type(&h, outputs[i]));
    }
    tci_str_add_n(text, tci_str_text(&h.out), h.out.n);
    tci_str_printf(text, "  return %s : %s\n  }\n}\n", tci_str_text(&names), tci_str_text(&types));
}

static void tci_hlo_export_file(tci_ox_walk *w, tci_node *const *outputs, int n,
                                const tci_ox_export *e)
{
    tci_str text = {.s = w->s};
    if (!e->to) {
        tci_scratch_fail(w->s, TC_ERR_ARGUMENT, "the path is NULL");
    }
    tci_ox_write_stablehlo(w, outputs, n, (const tc_stablehlo_export *)e->how, &text);
    tci_ox_put_file(w, (const char *)e->to, &text);
}

TC_API tc_status tc_export_stablehlo_at(tc_tensors inputs, tc_tensors outputs,
                                        const tc_stablehlo_export *how, const char *path,
                                        tc_site here)
{
    const tci_ox_export e = {"tc_export_stablehlo", "StableHLO",        inputs, outputs, how,
                             (void *)path,          tci_hlo_export_file};
    return tci_ox_export_call(&e, here);
}
