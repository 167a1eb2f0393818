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
#include "build.h"

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
                           i);
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
                           i, TCI_BUILD_SHAPE(x), TCI_BUILD_SHAPE(*first), *at);
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
