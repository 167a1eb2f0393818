/* graph/move.c - constructors of movement: the same elements elsewhere, once, several times, or
 * not at all.
 *
 * In: nodes, axes and sizes as a user gives them. Out: RESHAPE, PERMUTE, EXPAND, SLICE, PAD, CAT,
 * GATHER, WINDOW and IOTA nodes with normalized attributes (graph/node.h).
 * The one idea: one node per kind of movement, whatever the call was named: squeeze and unsqueeze
 * are reshapes, transpose is a permutation, flip is a slice with step -1, index_select a gather. */
#include "build.h"

#include <inttypes.h>
#include <string.h>

/* ---- reshape, permute, expand ---- */

/* Copies `shape` to `out` with its one -1, if any, replaced by what is left of x's elements. */
static bool tci_move_infer_shape(tci_graph *g, const tci_node *x, int rank, const tci_dim *shape,
                                 tci_dim *out)
{
    int unknown = -1;
    for (int i = 0; i < rank; i++) {
        out[i] = shape[i];
        if (shape[i] != -1) {
            continue;
        }
        if (unknown >= 0) {
            tci_graph_fail(g, TC_ERR_SHAPE, "only one size may be -1: axes %d and %d of %s are",
                           unknown, i, tci_shape_text_of(rank, shape).text);
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
    tci_graph_fail(g, TC_ERR_SHAPE, "%" PRId64 " elements of shape %s do not fit shape %s", have,
                   TCI_SHAPE_TEXT(x), tci_shape_text_of(rank, shape).text);
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
    if (tci_move_infer_shape(g, x, rank, shape, out)) {
        bool same = tci_build_same_shape(x->rank, x->shape, rank, out);
        r = same ? x
                 : tci_build_node(g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, rank, out, 1, &x, 0, NULL);
    }
    return tci_words_put(g, &w, r);
}

TCI_FN tci_node *tci_build_permute(tci_graph *g, tci_node *x, int n, const int *axes)
{
    if (!x) {
        return NULL;
    }
    if (n != x->rank) {
        tci_graph_fail(g, TC_ERR_AXIS, "%d axes are given for shape %s of rank %d", n,
                       TCI_SHAPE_TEXT(x), x->rank);
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
            tci_graph_fail(g, TC_ERR_AXIS,
                           "axis %d is given twice: expected each of the %d axes once", axis, n);
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
    return tci_words_put(
        g, &w, tci_graph_node(g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, n, shape, 1, &x, n, order));
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
    return tci_words_put(g, &w,
                         tci_graph_node(g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1,
                                        &x, x->rank, order));
}

TCI_FN tci_node *tci_build_expand(tci_graph *g, tci_node *x, int rank, const tci_dim *shape)
{
    tci_words w;
    tci_dim *out = x ? tci_words_get(g, &w, rank) : NULL;
    if (!out) {
        return NULL;
    }
    if (rank < x->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "shape %s has more axes than the wanted %s",
                       TCI_SHAPE_TEXT(x), tci_shape_text_of(rank, shape).text);
        return tci_words_put(g, &w, NULL);
    }
    for (int i = 0; i < rank; i++) {
        int from = i - (rank - x->rank);
        tci_dim have = from < 0 ? 1 : x->shape[from];
        out[i] = shape[i] == -1 && from >= 0 ? have : shape[i];
        if (out[i] != have && have != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "shape %s does not expand to %s: axis %d is %" PRId64 ", only size 1 "
                                                                                 "repeats",
                           TCI_SHAPE_TEXT(x), tci_shape_text_of(rank, shape).text, from, have);
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

/* ---- slice, flip, pad ---- */

/* One axis walked from start, n elements, by step. */
static tci_node *tci_move_slice_axis(tci_graph *g, tci_node *x, int axis, int64_t start, int64_t n,
                                     int64_t step)
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
    return tci_words_put(g, &w,
                         tci_graph_node(g, TCI_OP_SLICE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                                        2 * x->rank, attr));
}

/* A bound of a slice as Python takes it: from the end when negative, then held within [lo, hi]. */
static int64_t tci_move_bound(int64_t v, int64_t n, int64_t lo, int64_t hi)
{
    v = v < 0 ? (v < -n ? lo : v + n) : v;
    return TCI_MIN(TCI_MAX(v, lo), hi);
}

TCI_FN tci_node *tci_build_slice(tci_graph *g, tci_node *x, int axis, int64_t start, int64_t stop,
                                 int64_t step)
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
        int64_t from = tci_move_bound(start, n, 0, n), to = tci_move_bound(stop, n, 0, n);
        count = to > from ? (to - from - 1) / step + 1 : 0;
        return tci_move_slice_axis(g, x, at, from, count, step);
    }
    bool open = stop == INT64_MAX || stop == INT64_MIN;
    int64_t from = tci_move_bound(start, n, -1, n - 1),
            to = open ? -1 : tci_move_bound(stop, n, -1, n - 1);
    if (from > to) {
        int64_t stride = step == INT64_MIN ? INT64_MAX : -step;
        count = (from - to - 1) / stride + 1;
    }
    return tci_move_slice_axis(g, x, at, from, count, step);
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
    return tci_move_slice_axis(g, x, at, x->shape[at] - 1, x->shape[at], -1);
}

TCI_FN tci_node *tci_build_pad_axes(tci_graph *g, tci_node *x, const int64_t *before,
                                    const int64_t *after, tci_node *fill)
{
    if (!x || !fill) {
        return NULL;
    }
    if (fill->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "the pad value has shape %s: expected a number or a 0-d tensor",
                       TCI_SHAPE_TEXT(fill));
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
        bool huge =
            before[i] > limit || before[i] < -limit || after[i] > limit || after[i] < -limit;
        shape[i] = huge ? -1 : x->shape[i] + before[i] + after[i];
        nothing = nothing && !before[i] && !after[i];
        if (shape[i] < 0) {
            tci_graph_fail(g, huge ? TC_ERR_LIMIT : TC_ERR_SHAPE,
                           "padding axis %d of size %" PRId64 " by %" PRId64 " before and %" PRId64
                           " after leaves no valid size",
                           i, x->shape[i], before[i], after[i]);
            return tci_words_put(g, &w, NULL);
        }
    }
    tci_node *in[2] = {x, tci_build_cast(g, fill, (tc_dtype)x->dtype)};
    tci_node *r = x;
    if (!nothing && in[1]) {
        r = tci_build_node(g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, shape, 2, in, x->rank,
                           before);
    }
    return tci_words_put(g, &w, in[1] ? r : NULL);
}

TCI_FN tci_node *tci_build_pad(tci_graph *g, tci_node *x, int axis, int64_t before, int64_t after,
                               tci_node *fill)
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
static bool tci_move_cat_skips(const tci_node *x)
{
    return x->rank == 1 && x->shape[0] == 0;
}

/* Checks the shapes; the first operand that counts in *first (NULL: none), the joined size in
 * *size. */
static bool tci_move_cat_check(tci_graph *g, tci_node *const *xs, int n, int axis, int *at,
                               const tci_node **first, int64_t *size)
{
    *first = NULL;
    *size = 0;
    for (int i = 0; i < n; i++) {
        const tci_node *x = xs[i];
        if (!x->rank) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "operand %d is 0-d and cannot be concatenated (tc_unsqueeze adds an "
                           "axis)",
                           i + 1);
            return false;
        }
        if (tci_move_cat_skips(x)) {
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
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "operand %d of shape %s does not fit shape %s: sizes off axis %d must "
                           "be equal",
                           i + 1, TCI_SHAPE_TEXT(x), TCI_SHAPE_TEXT(*first), *at);
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

static tci_node *tci_move_cat_join(tci_graph *g, tci_node *const *xs, int n, int at,
                                   const tci_node *first, int64_t size)
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
        if (!tci_move_cat_skips(xs[i])) {
            in[n_in] = tci_build_cast(g, xs[i], dtype);
            if (!in[n_in++]) {
                tci_words_put(g, &parts, NULL);
                return tci_words_put(g, &w, NULL);
            }
        }
    }
    int64_t attr = at;
    r = n_in == 1 ? in[0]
                  : tci_build_node(g, TCI_OP_CAT, dtype, first->rank, shape, n_in, in, 1, &attr);
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
    if (!tci_move_cat_check(g, xs, n, axis, &at, &first, &size)) {
        return NULL;
    }
    return tci_move_cat_join(g, xs, n, at, first, size);
}

/* ---- gather ---- */

static bool tci_move_check_index(tci_graph *g, const tci_node *index)
{
    if (!tci_dtype_is_int((tc_dtype)index->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "the index has dtype %s: expected an integer dtype",
                       tci_dtype_get((tc_dtype)index->dtype)->name);
        return false;
    }
    return true;
}

TCI_FN tci_node *tci_build_gather(tci_graph *g, tci_node *x, int axis, tci_node *index)
{
    int at;
    if (!x || !index || !tci_move_check_index(g, index) || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank || !index->rank) {
        /* 0-d counts as one axis of one element; the result has the index's shape. */
        tci_dim one = 1;
        tci_node *x1 = x->rank ? x : tci_build_reshape(g, x, 1, &one);
        tci_node *i1 = index->rank ? index : tci_build_reshape(g, index, 1, &one);
        if (!x1 || !i1 || x1->rank != i1->rank) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "x of shape %s and index of shape %s: expected equal ranks",
                           TCI_SHAPE_TEXT(x), TCI_SHAPE_TEXT(index));
            return NULL;
        }
        return tci_build_reshape(g, tci_build_gather(g, x1, 0, i1), index->rank, index->shape);
    }
    bool fits = x->rank == index->rank;
    for (int i = 0; fits && i < x->rank; i++) {
        fits = i == at || index->shape[i] <= x->shape[i];
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "index of shape %s does not fit x of shape %s: expected equal ranks and, "
                       "off "
                       "axis %d, sizes no larger than x's",
                       TCI_SHAPE_TEXT(index), TCI_SHAPE_TEXT(x), at);
        return NULL;
    }
    if (!x->shape[at] && tci_node_count(index)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "axis %d of x has size 0: nothing can be read from it", at);
        return NULL;
    }
    tci_node *in[2] = {x, index};
    int64_t attr = at;
    return tci_build_node(g, TCI_OP_GATHER, (tc_dtype)x->dtype, index->rank, index->shape, 2, in, 1,
                          &attr);
}

TCI_FN tci_node *tci_build_index_select(tci_graph *g, tci_node *x, int axis, tci_node *index)
{
    int at;
    if (!x || !index || !tci_move_check_index(g, index) || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (index->rank > 1) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the index has shape %s: expected one axis",
                       TCI_SHAPE_TEXT(index));
        return NULL;
    }
    if (!x->rank) {
        if (tci_node_count(index) != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE, "a 0-d tensor takes one index: given %" PRId64,
                           tci_node_count(index));
            return NULL;
        }
        tci_dim one = 1;
        tci_node *line = tci_build_gather(g, tci_build_reshape(g, x, 1, &one), 0,
                                          tci_build_reshape(g, index, 1, &one));
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
    tci_node *spread =
        tci_build_expand(g, tci_build_reshape(g, index, x->rank, shape), x->rank, full);
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
        int64_t axis = spec[4 * i], kernel = spec[4 * i + 1], stride = spec[4 * i + 2],
                dilation = spec[4 * i + 3];
        int64_t size = x->shape[axis];
        bool valid = kernel >= 1 && stride >= 1 && dilation >= 1;
        if (!valid || (kernel > 1 && dilation > (INT64_MAX - 1) / (kernel - 1)) ||
            dilation * (kernel - 1) + 1 > size) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "a window of %" PRId64 " elements (dilation %" PRId64 ", stride %" PRId64
                           ") does not fit axis %" PRId64 " of size %" PRId64 " (padding included)",
                           kernel, dilation, stride, axis, size);
            return tci_words_put(g, &w, NULL);
        }
        shape[axis] = (size - dilation * (kernel - 1) - 1) / stride + 1;
        shape[x->rank + i] = kernel;
    }
    return tci_words_put(g, &w,
                         tci_build_node(g, TCI_OP_WINDOW, (tc_dtype)x->dtype, x->rank + n, shape, 1,
                                        &x, 4 * n, spec));
}

TCI_FN tci_node *tci_build_iota(tci_graph *g, tci_dim n)
{
    return tci_build_node(g, TCI_OP_IOTA, TC_I64, 1, &n, 0, NULL, 0, NULL);
}
