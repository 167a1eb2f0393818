/* graph/movement.c - node constructors of movement ops, which rearrange, repeat or select elements
 * (reshape, permute, slice, pad, windows).
 *
 * In: nodes, axes and sizes as a user gives them. Out: RESHAPE, PERMUTE, EXPAND, SLICE, PAD, CAT,
 * GATHER, WINDOW and IOTA nodes with normalized attributes (graph/node.h).
 *
 * Each kind of movement is one op, whichever public call made it: squeeze and unsqueeze are
 * reshapes, transpose is a permutation, flip is a slice with step -1, index_select is a gather. */
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
    tci_dim count = 1, have = tci_node_count(x);
    for (int i = 0; i < rank; i++) {
        count = tci_dim_mul(count, out[i]);
    }
    if (!tci_build_check_dim(g, "the number of elements", count, TC_ERR_SHAPE) ||
        !tci_build_check_dim(g, "the number of elements", have, TC_ERR_SHAPE)) {
        return false;
    }
    if (unknown >= 0 && count != 0 && tci_dim_divides(count, have)) {
        out[unknown] = tci_dim_div(have, count);
        return true;
    }
    if (unknown < 0 && count == have) {
        return true;
    }
    bool known = tci_dim_is_known(count) && tci_dim_is_known(have);
    tci_graph_fail(g, TC_ERR_SHAPE, "%s elements of shape %s do not fit shape %s%s",
                   TCI_DIM_TEXT(have), TCI_SHAPE_TEXT(x), tci_shape_text_of(rank, shape).text,
                   known ? "" : " at every value of its symbolic sizes");
    return false;
}

TCI_FN tci_node *tci_build_reshape(tci_graph *g, tci_node *x, int rank, const tci_dim *shape)
{
    tci_words w;
    tci_dim *out = x ? tci_words_dims(g, &w, rank) : NULL;
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
    tci_dim *shape = (tci_dim *)(seen + n);
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
    tci_dim *shape = (tci_dim *)(order + x->rank);
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
    tci_dim *out = x ? tci_words_dims(g, &w, rank) : NULL;
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
        if (!tci_build_check_dim(g, "a size", out[i], TC_ERR_SHAPE)) {
            return tci_words_put(g, &w, NULL);
        }
        if (out[i] != have && have != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "shape %s does not expand to %s: axis %d is %s, only size 1 repeats%s",
                           TCI_SHAPE_TEXT(x), tci_shape_text_of(rank, shape).text, from,
                           TCI_DIM_TEXT(have), TCI_UNEQUAL_NOTE(have, out[i]));
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
    tci_dim *shape = tci_words_dims(g, &w, x->rank);
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
    tci_dim *shape = tci_words_dims(g, &w, x->rank + 1);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i <= x->rank; i++) {
        shape[i] = i == at ? 1 : x->shape[i - (i > at)];
    }
    return tci_words_put(g, &w, tci_build_reshape(g, x, x->rank + 1, shape));
}

/* ---- slice, flip, pad ---- */

/* One axis traversed from start, n elements, by step. */
static tci_node *tci_move_slice_axis(tci_graph *g, tci_node *x, int axis, tci_dim start, tci_dim n,
                                     tci_dim step)
{
    if (start == 0 && step == 1 && n == x->shape[axis]) {
        return x;
    }
    tci_words w;
    int64_t *attr = tci_words_get(g, &w, 3 * x->rank);
    if (!attr || !tci_build_check_dim(g, "the first element of a slice", start, TC_ERR_SHAPE)) {
        return attr ? tci_words_put(g, &w, NULL) : NULL;
    }
    tci_dim *shape = (tci_dim *)(attr + 2 * x->rank);
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[i];
        attr[2 * i] = 0;
        attr[2 * i + 1] = 1;
    }
    shape[axis] = n;
    if (n != 0) {
        attr[2 * axis] = (int64_t)start;
        attr[2 * axis + 1] = n != 1 ? (int64_t)step : 1;
    }
    return tci_words_put(g, &w,
                         tci_build_node(g, TCI_OP_SLICE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                                        2 * x->rank, attr));
}

/* A bound of a slice as Python takes it: from the end when negative; where it is surely before or
 * behind the axis, there. A symbolic one is a size, so never from the end. */
static tci_dim tci_move_bound(tci_dim v, tci_dim n, tci_dim before, tci_dim behind)
{
    if (!tci_dim_is_known(v)) {
        return v;
    }
    int64_t at = tci_dim_known(v);
    if (at < 0) {
        return at < -tci_dim_most(n) ? before : tci_dim_add(v, n);
    }
    return at > tci_dim_most(n) ? behind : v;
}

/* Number of elements 0, stride, 2 * stride, ... below `way`. */
static tci_dim tci_move_steps(tci_dim way, tci_dim stride)
{
    return tci_dim_max(tci_dim_add(tci_dim_div(tci_dim_sub(way, 1), stride), 1), 0);
}

/* From the greater of `from` and `lo` to the lesser of `to` and `hi`. The four differences rather
 * than one of the two: then x[1:] and x[:-1] have the same size, max(n - 1, 0). */
static tci_dim tci_move_way(tci_dim from, tci_dim to, tci_dim lo, tci_dim hi)
{
    tci_dim inside = tci_dim_min(tci_dim_sub(to, from), tci_dim_sub(to, lo));
    tci_dim across = tci_dim_min(tci_dim_sub(hi, from), tci_dim_sub(hi, lo));
    return tci_dim_min(inside, across);
}

static tci_node *tci_move_slice_back(tci_graph *g, tci_node *x, int at, tci_dim start, tci_dim stop,
                                     int64_t step)
{
    tci_dim n = x->shape[at], last = tci_dim_sub(n, 1);
    bool open = stop == INT64_MAX || stop == INT64_MIN;
    tci_dim from = tci_move_bound(start, n, -1, last);
    tci_dim to = open ? -1 : tci_move_bound(stop, n, -1, last);
    tci_dim way = tci_move_way(to, from, -1, last);
    return tci_move_slice_axis(g, x, at, tci_dim_min(tci_dim_max(from, -1), last),
                               tci_move_steps(way, step == INT64_MIN ? INT64_MAX : -step), step);
}

TCI_FN tci_node *tci_build_slice(tci_graph *g, tci_node *x, int axis, tci_dim start, tci_dim stop,
                                 tci_dim step)
{
    int at;
    if (!x) {
        return NULL;
    }
    if (!x->rank) {
        tci_graph_fail(g, TC_ERR_AXIS, "a 0-d tensor has no axis %d to slice", axis);
        return NULL;
    }
    if (!tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_dim(g, "the start", start, TC_ERR_ARGUMENT) ||
        !tci_build_check_dim(g, "the stop", stop, TC_ERR_ARGUMENT) ||
        !tci_build_check_dim(g, "the step", step, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    if (step == 0) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "the step of a slice cannot be 0");
        return NULL;
    }
    if (tci_dim_is_known(step) && tci_dim_lt(step, 0)) {
        return tci_move_slice_back(g, x, at, start, stop, tci_dim_known(step));
    }
    if (!tci_dim_lt(0, step)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "the step of a slice, %s, may be 0%s",
                       TCI_DIM_TEXT(step), TCI_LEAST_NOTE(step, 1));
        return NULL;
    }
    tci_dim n = x->shape[at];
    tci_dim from = tci_move_bound(start, n, 0, n), to = tci_move_bound(stop, n, 0, n);
    tci_dim count = tci_move_steps(tci_move_way(from, to, 0, n), step);
    return tci_move_slice_axis(g, x, at, tci_dim_min(tci_dim_max(from, 0), n), count, step);
}

TCI_FN tci_node *tci_build_flip(tci_graph *g, tci_node *x, int axis)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank || tci_dim_lt(x->shape[at], 2)) {
        return x;
    }
    return tci_move_slice_axis(g, x, at, tci_dim_sub(x->shape[at], 1), x->shape[at], -1);
}

/* A count of a PAD that no sum with a size takes out of int64. */
static bool tci_move_pad_fits(tci_dim count)
{
    const int64_t limit = INT64_MAX / 8;
    return !tci_dim_is_known(count) || (tci_dim_le(count, limit) && tci_dim_le(-limit, count));
}

TCI_FN tci_node *tci_build_pad_axes(tci_graph *g, tci_node *x, const tci_dim *before,
                                    const tci_dim *after, tci_node *fill)
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
    tci_dim *shape = tci_words_dims(g, &w, x->rank);
    if (!shape) {
        return NULL;
    }
    bool nothing = true;
    for (int i = 0; i < x->rank; i++) {
        if (!tci_build_check_dim(g, "the padding before", before[i], TC_ERR_ARGUMENT) ||
            !tci_build_check_dim(g, "the padding after", after[i], TC_ERR_ARGUMENT)) {
            return tci_words_put(g, &w, NULL);
        }
        bool huge = !tci_move_pad_fits(before[i]) || !tci_move_pad_fits(after[i]);
        shape[i] = huge ? -1 : tci_dim_add(tci_dim_add(x->shape[i], before[i]), after[i]);
        nothing = nothing && before[i] == 0 && after[i] == 0;
        if (!tci_build_check_dim(g, "the padded size", shape[i], TC_ERR_SHAPE)) {
            return tci_words_put(g, &w, NULL);
        }
        if (!tci_dim_le(0, shape[i])) {
            tci_graph_fail(g, huge ? TC_ERR_LIMIT : TC_ERR_SHAPE,
                           "padding axis %d of size %s by %s before and %s after leaves no valid "
                           "size%s",
                           i, TCI_DIM_TEXT(x->shape[i]), TCI_DIM_TEXT(before[i]),
                           TCI_DIM_TEXT(after[i]), TCI_LEAST_NOTE(shape[i], 0));
            return tci_words_put(g, &w, NULL);
        }
    }
    tci_node *in[2] = {x, tci_build_cast(g, fill, (tc_dtype)x->dtype)};
    tci_node *r = x;
    if (!nothing && in[1]) {
        r = tci_build_node(g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, shape, 2, in, x->rank,
                           tci_dim_words(before));
    }
    return tci_words_put(g, &w, in[1] ? r : NULL);
}

TCI_FN tci_node *tci_build_pad(tci_graph *g, tci_node *x, int axis, tci_dim before, tci_dim after,
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
    bool is_axis = tci_build_axis(g, axis, x->rank, &at);
    tci_dim *sizes = is_axis ? tci_words_dims(g, &w, 2 * x->rank) : NULL;
    if (!sizes) {
        return NULL;
    }
    sizes[at] = before;
    sizes[x->rank + at] = after;
    return tci_words_put(g, &w, tci_build_pad_axes(g, x, sizes, sizes + x->rank, fill));
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
                               const tci_node **first, tci_dim *size)
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
        if (tci_dim_most(x->shape[*at]) > INT64_MAX - tci_dim_most(*size)) {
            tci_graph_fail(g, TC_ERR_LIMIT, "the joined axis is too long");
            return false;
        }
        *size = tci_dim_add(*size, x->shape[*at]);
    }
    return *first || tci_build_axis(g, axis, 1, at);
}

static tci_node *tci_move_cat_join(tci_graph *g, tci_node *const *xs, int n, int at,
                                   const tci_node *first, tci_dim size)
{
    tc_dtype dtype = (tc_dtype)xs[0]->dtype;
    for (int i = 1; i < n; i++) {
        dtype = tci_dtype_promote(g->promotion, dtype, (tc_dtype)xs[i]->dtype);
    }
    if (!first) {
        return tci_build_cast(g, xs[0], dtype);
    }
    tci_words w, parts;
    tci_dim *shape = tci_words_dims(g, &w, first->rank);
    if (!shape) {
        return NULL;
    }
    tci_node **in = tci_words_nodes(g, &parts, n);
    if (!in) {
        return tci_words_put(g, &w, NULL);
    }
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
    tci_dim size;
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

TCI_FN bool tci_build_check_index(tci_graph *g, const tci_node *index)
{
    if (!tci_dtype_is_int((tc_dtype)index->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "the index has dtype %s: expected an integer dtype",
                       tci_dtype_get((tc_dtype)index->dtype)->name);
        return false;
    }
    return true;
}

/* Nothing can be read from an axis without elements, so it has some wherever there are reads. */
TCI_FN bool tci_build_can_read(tci_graph *g, const char *what, const tci_node *x, int axis,
                               tci_dim reads)
{
    tci_dim size = x->shape[axis];
    if (reads == 0 || tci_dim_le(1, size) || (size != 0 && tci_dim_divides(size, reads))) {
        return true;
    }
    if (tci_dim_is_known(size)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "axis %d of %s has size 0: nothing can be read from it",
                       axis, what);
    } else {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "axis %d of %s is %s, which may be 0: nothing can be read from it then%s",
                       axis, what, TCI_DIM_TEXT(size), TCI_LEAST_NOTE(size, 1));
    }
    return false;
}

TCI_FN tci_node *tci_build_readable(tci_graph *g, tci_node *x, int axis)
{
    if (!x || tci_dim_le(1, x->shape[axis])) {
        return x;
    }
    tci_node *zero = tci_graph_const(g, (tc_dtype)x->dtype, (tci_value){.i = 0});
    return tci_build_pad(g, x, axis, 0, 1, zero);
}

TCI_FN tci_node *tci_build_gather(tci_graph *g, tci_node *x, int axis, tci_node *index)
{
    int at;
    if (!x || !index || !tci_build_check_index(g, index) ||
        !tci_build_axis(g, axis, x->rank, &at)) {
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
        fits = i == at || tci_dim_le(index->shape[i], x->shape[i]);
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "index of shape %s does not fit x of shape %s: expected equal ranks and, "
                       "off "
                       "axis %d, sizes no larger than x's",
                       TCI_SHAPE_TEXT(index), TCI_SHAPE_TEXT(x), at);
        return NULL;
    }
    if (!tci_build_can_read(g, "x", x, at, tci_node_count(index))) {
        return NULL;
    }
    tci_node *in[2] = {x, index};
    int64_t attr = at;
    tci_node *r = tci_build_node(g, TCI_OP_GATHER, (tc_dtype)x->dtype, index->rank, index->shape, 2,
                                 in, 1, &attr);
    return tci_graph_claim(g, r);
}

TCI_FN tci_node *tci_build_index_select(tci_graph *g, tci_node *x, int axis, tci_node *index)
{
    int at;
    if (!x || !index || !tci_build_check_index(g, index) ||
        !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (index->rank > 1) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the index has shape %s: expected one axis",
                       TCI_SHAPE_TEXT(index));
        return NULL;
    }
    if (!x->rank) {
        if (tci_node_count(index) != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE, "a 0-d tensor takes one index: given %s",
                           TCI_DIM_TEXT(tci_node_count(index)));
            return NULL;
        }
        tci_dim one = 1;
        tci_node *line = tci_build_gather(g, tci_build_reshape(g, x, 1, &one), 0,
                                          tci_build_reshape(g, index, 1, &one));
        return tci_build_reshape(g, line, 0, NULL);
    }
    tci_words w;
    tci_dim *shape = tci_words_dims(g, &w, 2 * x->rank);
    if (!shape) {
        return NULL;
    }
    tci_dim *full = shape + x->rank;
    for (int i = 0; i < x->rank; i++) {
        shape[i] = i == at ? tci_node_count(index) : 1;
        full[i] = i == at ? shape[i] : x->shape[i];
    }
    tci_node *spread = tci_build_expand(g, tci_build_reshape(g, index, x->rank, shape), x->rank,
                                        full);
    return tci_words_put(g, &w, tci_build_gather(g, x, at, spread));
}

/* ---- windows, ramps ---- */

/* Number of windows along an axis: floor((size - span) / stride) + 1. At least one must fit, for
 * every value of a symbolic size. */
static bool tci_move_windows(tci_graph *g, int64_t axis, tci_dim size, const tci_dim *spec,
                             tci_dim *count)
{
    tci_dim kernel = spec[0], stride = spec[1], dilation = spec[2];
    bool valid = tci_dim_le(1, kernel) && tci_dim_le(1, stride) && tci_dim_le(1, dilation);
    int64_t most = tci_dim_most(kernel);
    if (valid && (most <= 1 || tci_dim_most(dilation) <= (INT64_MAX - 1) / (most - 1))) {
        tci_dim span = tci_dim_add(tci_dim_mul(dilation, tci_dim_sub(kernel, 1)), 1);
        tci_dim room = tci_dim_sub(size, span);
        *count = tci_dim_add(tci_dim_div(room, stride), 1);
        if (!tci_build_check_dim(g, "the number of windows", *count, TC_ERR_SHAPE)) {
            return false;
        }
        valid = tci_dim_le(0, room);
        if (!valid && !tci_dim_is_known(room)) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "axis %d is %s, which may be %" PRId64 ": a window of %s elements "
                           "(dilation %s) needs at least %s%s",
                           (int)axis, TCI_DIM_TEXT(size), tci_dim_least(size), TCI_DIM_TEXT(kernel),
                           TCI_DIM_TEXT(dilation), TCI_DIM_TEXT(span), TCI_LEAST_NOTE(room, 0));
            return false;
        }
    } else {
        valid = false;
    }
    if (!valid) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "a window of %s elements (dilation %s, stride %s) does not fit axis "
                       "%" PRId64 " of size %s (padding included)",
                       TCI_DIM_TEXT(kernel), TCI_DIM_TEXT(dilation), TCI_DIM_TEXT(stride), axis,
                       TCI_DIM_TEXT(size));
    }
    return valid;
}

TCI_FN tci_node *tci_build_window(tci_graph *g, tci_node *x, int n, const tci_dim *spec)
{
    tci_words w;
    tci_dim *shape = x ? tci_words_dims(g, &w, x->rank + n) : NULL;
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[i];
    }
    for (int i = 0; i < n; i++) {
        int64_t axis = tci_dim_known(spec[4 * i]);
        if (!tci_move_windows(g, axis, x->shape[axis], spec + 4 * i + 1, &shape[axis])) {
            return tci_words_put(g, &w, NULL);
        }
        shape[x->rank + i] = spec[4 * i + 1];
    }
    return tci_words_put(g, &w,
                         tci_build_node(g, TCI_OP_WINDOW, (tc_dtype)x->dtype, x->rank + n, shape, 1,
                                        &x, 4 * n, tci_dim_words(spec)));
}

TCI_FN tci_node *tci_build_iota(tci_graph *g, tci_dim n)
{
    return tci_build_node(g, TCI_OP_IOTA, TC_I64, 1, &n, 0, NULL, 0, NULL);
}
