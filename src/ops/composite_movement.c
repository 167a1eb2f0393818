/* ops/composite_movement.c - composite movement ops: roll, rot90, unfold, pixel shuffle, diagonals,
 * triangles, repeats.
 *
 * In: nodes, axes, counts. Out: movement nodes of graph/movement.c, so nothing is copied if a
 * consumer can read in place, and gradients are movement ops too. */
#include "composite.h"

#include <string.h>

/* x with axes `at` and at + 1 as one. */
static tci_node *tci_arrange_merge(tci_graph *g, tci_node *x, int at)
{
    tci_words w;
    tci_dim *shape = x ? tci_words_dims(g, &w, x->rank) : NULL;
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i + 1 < x->rank; i++) {
        shape[i] = x->shape[i + (i > at)];
    }
    shape[at] = tci_dim_mul(x->shape[at], x->shape[at + 1]);
    return tci_words_put(g, &w, tci_build_reshape(g, x, x->rank - 1, shape));
}

/* Two axes of x as its last two; or, back, its last two as those. */
static tci_node *tci_arrange_last(tci_graph *g, tci_node *x, int a, int b, bool back)
{
    tci_words w;
    int *order = x ? tci_words_ints(g, &w, 2 * x->rank) : NULL, n = 0;
    if (!order) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        if (i != a && i != b) {
            order[n++] = i;
        }
    }
    order[n++] = a;
    order[n++] = b;
    for (int i = 0; i < n; i++) {
        order[n + order[i]] = i;
    }
    return tci_words_put(g, &w, tci_build_permute(g, x, n, back ? order + n : order));
}

/* ---- repeats ---- */

TCI_FN tci_node *tci_build_repeat_each(tci_graph *g, tci_node *x, int axis, tci_dim times)
{
    int at;
    tci_words w;
    if (!x || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_dim(g, "the number of repeats", times, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    if (!tci_dim_le(0, times)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "%s repeats: expected 0 or more%s", TCI_DIM_TEXT(times),
                       TCI_LEAST_NOTE(times, 0));
        return NULL;
    }
    const int rank = x->rank ? x->rank : 1;
    tci_dim *shape = tci_words_dims(g, &w, rank + 1);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        shape[i + (i > at)] = x->rank ? x->shape[i] : 1;
    }
    shape[at + 1] = 1;
    tci_node *r = tci_build_reshape(g, x, rank + 1, shape);
    shape[at + 1] = times;
    r = tci_build_expand(g, r, rank + 1, shape);
    return tci_words_put(g, &w, tci_arrange_merge(g, r, at));
}

/* ---- turns ---- */

TCI_FN tci_node *tci_build_roll(tci_graph *g, tci_node *x, tci_dim shift, int axis)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_dim(g, "the shift", shift, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    if (!x->rank || x->shape[at] == 0) {
        return x;
    }
    if (!tci_dim_is_known(x->shape[at]) || !tci_dim_is_known(shift)) {
        tci_node *size = tci_build_size_value(g, x->shape[at], TC_I64);
        tci_node *from = tci_composite_binary(g, TCI_OP_SUB, tci_build_iota(g, x->shape[at]),
                                              tci_build_size_value(g, shift, TC_I64));
        from = tci_composite_binary(g, TCI_OP_REMAINDER, from, size);
        return tci_build_index_select(g, x, at, from);
    }
    int64_t size = tci_dim_known(x->shape[at]), back = tci_dim_known(shift) % size;
    int64_t cut = back > 0 ? size - back : -back; /* the element that becomes the first */
    if (cut == 0) {
        return x;
    }
    tci_node *parts[2] = {tci_build_slice(g, x, at, cut, size, 1),
                          tci_build_slice(g, x, at, 0, cut, 1)};
    return tci_build_cat(g, parts, 2, at);
}

TCI_FN tci_node *tci_build_rot90(tci_graph *g, tci_node *x, int64_t k, int axis_a, int axis_b)
{
    int a, b;
    if (!x || !tci_build_axis(g, axis_a, x->rank, &a) || !tci_build_axis(g, axis_b, x->rank, &b)) {
        return NULL;
    }
    if (a == b) {
        tci_graph_fail(g, TC_ERR_AXIS, "axes %d and %d of shape %s are the same: expected two",
                       axis_a, axis_b, TCI_SHAPE_TEXT(x));
        return NULL;
    }
    if (!tci_dim_is_known(k)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "k is %s: expected a number", TCI_DIM_TEXT(k));
        return NULL;
    }
    switch ((k % 4 + 4) % 4) {
    case 1: return tci_build_transpose(g, tci_build_flip(g, x, b), a, b);
    case 2: return tci_build_flip(g, tci_build_flip(g, x, a), b);
    case 3: return tci_build_transpose(g, tci_build_flip(g, x, a), a, b);
    default: return x;
    }
}

/* ---- windows along an axis ---- */

TCI_FN tci_node *tci_build_unfold(tci_graph *g, tci_node *x, int axis, tci_dim size, tci_dim step)
{
    int at;
    tci_dim one = 1;
    if (!x || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_dim(g, "the size", size, TC_ERR_ARGUMENT) ||
        !tci_build_check_dim(g, "the step", step, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    if (!x->rank) {
        tci_node *r = tci_build_unfold(g, tci_build_reshape(g, x, 1, &one), 0, size, step);
        return tci_build_reshape(g, r, 1, &one);
    }
    const tci_dim spec[4] = {at, size, step, 1};
    return tci_build_window(g, x, 1, spec);
}

/* ---- edges ---- */

/* Elements of x from `start` on, this many of them, backwards if `back`. */
static tci_node *tci_arrange_part(tci_graph *g, tci_node *x, int at, tci_dim start, tci_dim count,
                                  bool back)
{
    tci_node *r = tci_build_slice(g, x, at, start, tci_dim_add(start, count), 1);
    return back ? tci_build_flip(g, r, at) : r;
}

/* One element of x, `count` times. */
static tci_node *tci_arrange_same(tci_graph *g, tci_node *x, int at, tci_dim element, tci_dim count)
{
    return tci_build_repeat_each(g, tci_arrange_part(g, x, at, element, 1, false), at, count);
}

typedef enum tci_edge { TCI_EDGE_REFLECT, TCI_EDGE_REPLICATE, TCI_EDGE_CIRCULAR } tci_edge;

static bool tci_arrange_edge(tci_graph *g, const char *mode, tci_edge *edge)
{
    static const char *const modes[3] = {"reflect", "replicate", "circular"};
    for (int i = 0; mode && i < 3; i++) {
        if (!strcmp(mode, modes[i])) {
            *edge = (tci_edge)i;
            return true;
        }
    }
    tci_graph_fail(g, TC_ERR_ARGUMENT,
                   "the mode is \"%.40s\": expected \"reflect\", \"replicate\" or \"circular\"",
                   mode ? mode : "(null)");
    return false;
}

/* The `count` elements before x, or after it. */
static tci_node *tci_arrange_side(tci_graph *g, tci_node *x, int at, tci_dim count, tci_edge edge,
                                  bool behind)
{
    tci_dim n = x->shape[at], last = tci_dim_sub(n, 1);
    switch (edge) {
    case TCI_EDGE_REFLECT:
        return tci_arrange_part(g, x, at, behind ? tci_dim_sub(last, count) : 1, count, true);
    case TCI_EDGE_REPLICATE: return tci_arrange_same(g, x, at, behind ? last : 0, count);
    case TCI_EDGE_CIRCULAR: break;
    }
    return tci_arrange_part(g, x, at, behind ? 0 : tci_dim_sub(n, count), count, false);
}

/* Negative counts cut off. What is added is taken of the whole x all the same, as in torch, but for
 * "circular", of what the cut left. */
TCI_FN tci_node *tci_build_pad_mode(tci_graph *g, tci_node *x, int axis, tci_dim before,
                                    tci_dim after, const char *mode)
{
    int at;
    tci_edge edge;
    if (!x || !tci_build_axis(g, axis, x->rank, &at) || !tci_arrange_edge(g, mode, &edge) ||
        !tci_build_check_dim(g, "the padding before", before, TC_ERR_ARGUMENT) ||
        !tci_build_check_dim(g, "the padding after", after, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    const tci_dim n = x->rank ? x->shape[at] : 1;
    const tci_dim room = edge == TCI_EDGE_REFLECT ? tci_dim_sub(n, 1) : n;
    const tci_dim more = tci_dim_max(before, after);
    if (!x->rank || (edge == TCI_EDGE_REPLICATE ? !tci_dim_le(1, n) : !tci_dim_le(more, room))) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "\"%s\" padding of %s before and %s after does not fit axis %d of shape %s",
                       mode, TCI_DIM_TEXT(before), TCI_DIM_TEXT(after), at, TCI_SHAPE_TEXT(x));
        return NULL;
    }
    tci_dim start = tci_dim_max(tci_dim_neg(before), 0);
    tci_dim stop = tci_dim_max(tci_dim_add(n, tci_dim_min(after, 0)), 0);
    tci_node *left = tci_build_slice(g, x, at, start, stop, 1), *parts[3] = {NULL, NULL, NULL};
    int n_parts = 0;
    if (edge == TCI_EDGE_CIRCULAR && left && left != x) {
        return tci_build_pad_mode(g, left, at, tci_dim_max(before, 0), tci_dim_max(after, 0), mode);
    }
    if (!tci_dim_le(before, 0)) {
        parts[n_parts++] = tci_arrange_side(g, x, at, before, edge, false);
    }
    parts[n_parts++] = left;
    if (!tci_dim_le(after, 0)) {
        parts[n_parts++] = tci_arrange_side(g, x, at, after, edge, true);
    }
    return tci_build_cat(g, parts, n_parts, at);
}

/* ---- channels and positions ---- */

static bool tci_arrange_image(tci_graph *g, const tci_node *x, int64_t factor)
{
    if (x->rank < 3 || !tci_dim_is_known(factor) || factor < 1 || factor > INT32_MAX) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "x has shape %s and the factor is %s: expected [..., C, H, W] and at least "
                       "1",
                       TCI_SHAPE_TEXT(x), TCI_DIM_TEXT(factor));
        return false;
    }
    return true;
}

/* [..., C r r, H, W] as [..., C, H r, W r]; or, back, the other way. */
static tci_node *tci_arrange_pixels(tci_graph *g, tci_node *x, int64_t r, bool back)
{
    const int lead = x->rank - 3;
    tci_words w;
    tci_dim c = x->shape[lead], h = x->shape[lead + 1], v = x->shape[lead + 2];
    if (back ? !tci_dim_divides(r, h) || !tci_dim_divides(r, v) : !tci_dim_divides(r * r, c)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the factor %s does not divide shape %s", TCI_DIM_TEXT(r),
                       TCI_SHAPE_TEXT(x));
        return NULL;
    }
    tci_dim *shape = tci_words_dims(g, &w, x->rank + 3);
    if (!shape) {
        return NULL;
    }
    const tci_dim apart[6] = {tci_dim_div(c, r * r), r, r, h, v, 0};
    const tci_dim packed[6] = {c, tci_dim_div(h, r), r, tci_dim_div(v, r), r, 0};
    static const int forth[5] = {0, 3, 1, 4, 2}, home[5] = {0, 2, 4, 1, 3};
    tci_words o;
    int *order = tci_words_ints(g, &o, lead + 5);
    if (!order) {
        return tci_words_put(g, &w, NULL);
    }
    for (int i = 0; i < lead; i++) {
        shape[i] = x->shape[i];
        order[i] = i;
    }
    for (int i = 0; i < 5; i++) {
        shape[lead + i] = back ? packed[i] : apart[i];
        order[lead + i] = lead + (back ? home[i] : forth[i]);
    }
    tci_node *y = tci_build_permute(g, tci_build_reshape(g, x, lead + 5, shape), lead + 5, order);
    shape[lead] = back ? tci_dim_mul(c, r * r) : apart[0];
    shape[lead + 1] = back ? packed[1] : tci_dim_mul(h, r);
    shape[lead + 2] = back ? packed[3] : tci_dim_mul(v, r);
    y = tci_build_reshape(g, y, x->rank, shape);
    tci_words_put(g, &o, NULL);
    return tci_words_put(g, &w, y);
}

TCI_FN tci_node *tci_build_pixel_shuffle(tci_graph *g, tci_node *x, int64_t factor)
{
    return x && tci_arrange_image(g, x, factor) ? tci_arrange_pixels(g, x, factor, false) : NULL;
}

TCI_FN tci_node *tci_build_pixel_unshuffle(tci_graph *g, tci_node *x, int64_t factor)
{
    return x && tci_arrange_image(g, x, factor) ? tci_arrange_pixels(g, x, factor, true) : NULL;
}

/* ---- diagonals ---- */

/* Of matrices [..., rows, columns] as one axis of rows * columns elements, the diagonal is every
 * (columns + 1)-th from `start` on. */
typedef struct tci_diagonal {
    tci_dim start, stop, step;
} tci_diagonal;

static tci_diagonal tci_diagonal_of(tci_dim rows, tci_dim columns, int64_t offset)
{
    tci_dim right = offset > 0 ? offset : 0, down = offset < 0 ? -offset : 0;
    tci_dim length = tci_dim_min(tci_dim_sub(rows, down), tci_dim_sub(columns, right));
    tci_diagonal d = {.step = tci_dim_add(columns, 1)};
    length = tci_dim_max(length, 0);
    d.start = tci_dim_add(tci_dim_mul(down, columns), right);
    d.stop = tci_dim_max(tci_dim_sub(tci_dim_mul(length, d.step), columns), 0);
    d.stop = tci_dim_add(d.start, d.stop);
    return d;
}

/* The two axes, and a number for the offset. */
static bool tci_diagonal_axes(tci_graph *g, int rank, int64_t offset, int *a, int *b)
{
    if (!tci_build_axis(g, *a, rank, a) || !tci_build_axis(g, *b, rank, b)) {
        return false;
    }
    if (*a == *b || rank < 2 || !tci_dim_is_known(offset) || offset > INT32_MAX ||
        offset < -INT32_MAX) {
        tci_graph_fail(g, TC_ERR_AXIS,
                       "axes %d and %d of rank %d and offset %s: expected two axes and a number",
                       *a, *b, rank, TCI_DIM_TEXT(offset));
        return false;
    }
    return true;
}

TCI_FN tci_node *tci_build_diagonal(tci_graph *g, tci_node *x, int64_t offset, int axis_a,
                                    int axis_b)
{
    if (!x || !tci_diagonal_axes(g, x->rank, offset, &axis_a, &axis_b)) {
        return NULL;
    }
    tci_diagonal d = tci_diagonal_of(x->shape[axis_a], x->shape[axis_b], offset);
    tci_node *flat = tci_arrange_last(g, x, axis_a, axis_b, false);
    flat = tci_arrange_merge(g, flat, x->rank - 2);
    return tci_build_slice(g, flat, -1, d.start, d.stop, d.step);
}

TCI_FN tci_node *tci_build_diagonal_scatter(tci_graph *g, tci_node *x, tci_node *src,
                                            int64_t offset, int axis_a, int axis_b)
{
    if (!x || !src || !tci_diagonal_axes(g, x->rank, offset, &axis_a, &axis_b)) {
        return NULL;
    }
    tci_diagonal d = tci_diagonal_of(x->shape[axis_a], x->shape[axis_b], offset);
    tci_node *apart = tci_arrange_last(g, x, axis_a, axis_b, false);
    tci_node *flat = apart ? tci_arrange_merge(g, apart, x->rank - 2) : NULL;
    flat = tci_build_slice_scatter(g, flat, src, -1, d.start, d.stop, d.step);
    flat = apart ? tci_build_reshape(g, flat, apart->rank, apart->shape) : NULL;
    return tci_arrange_last(g, flat, axis_a, axis_b, true);
}

/* Of n elements, size + 1 apart in a matrix [size, size] that is one axis. */
TCI_FN tci_node *tci_build_diag_embed(tci_graph *g, tci_node *x, int64_t offset, int axis_a,
                                      int axis_b)
{
    tci_words w;
    if (!x || !tci_diagonal_axes(g, x->rank + 1, offset, &axis_a, &axis_b)) {
        return NULL;
    }
    if (!x->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "a 0-d tensor is no diagonal: expected an axis");
        return NULL;
    }
    const int rank = x->rank + 1;
    tci_dim *shape = tci_words_dims(g, &w, rank);
    if (!shape) {
        return NULL;
    }
    const int64_t k = offset < 0 ? -offset : offset;
    const tci_dim n = x->shape[rank - 2], size = tci_dim_add(n, k);
    for (int i = 0; i < rank; i++) {
        shape[i] = i < rank - 2 ? x->shape[i] : size;
    }
    if (!tci_build_check_shape(g, rank, shape, (tc_dtype)x->dtype)) {
        return tci_words_put(g, &w, NULL);
    }
    shape[rank - 2] = n;
    shape[rank - 1] = 1;
    tci_node *zero = tci_composite_number(g, (tc_dtype)x->dtype, 0);
    tci_node *y = tci_build_reshape(g, x, rank, shape);
    y = tci_arrange_merge(g, tci_build_pad(g, y, -1, 0, size, zero), rank - 2);
    const tci_dim before = offset > 0 ? k : tci_dim_mul(k, size);
    const tci_dim after = offset > 0 ? tci_dim_mul(k - 1, size) : tci_dim_neg(n);
    y = tci_build_pad(g, y, -1, before, after, zero);
    shape[rank - 2] = shape[rank - 1] = size;
    y = tci_words_put(g, &w, tci_build_reshape(g, y, rank, shape));
    return tci_arrange_last(g, y, axis_a, axis_b, true);
}

TCI_FN tci_node *tci_build_diag(tci_graph *g, tci_node *x, int64_t offset)
{
    if (x && x->rank != 1 && x->rank != 2) {
        tci_graph_fail(g, TC_ERR_SHAPE, "x has shape %s: expected a diagonal or a matrix",
                       TCI_SHAPE_TEXT(x));
        return NULL;
    }
    return x && x->rank == 1 ? tci_build_diag_embed(g, x, offset, 0, 1)
                             : tci_build_diagonal(g, x, offset, 0, 1);
}

TCI_FN tci_node *tci_build_triangle_mask(tci_graph *g, tci_dim rows, tci_dim columns,
                                         tci_dim offset, bool lower)
{
    tci_node *row = tci_composite_ramp(g, rows, 2, 0);
    tci_node *column = tci_composite_ramp(g, columns, 2, 1);
    row = tci_composite_binary(g, TCI_OP_ADD, row, tci_build_size_value(g, offset, TC_I64));
    return tci_composite_binary(g, lower ? TCI_OP_LE : TCI_OP_GE, column, row);
}

TCI_FN tci_node *tci_build_triangle(tci_graph *g, tci_node *x, tci_dim offset, bool lower)
{
    if (!x || !tci_build_check_dim(g, "the diagonal", offset, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    if (x->rank < 2) {
        tci_graph_fail(g, TC_ERR_SHAPE, "x has shape %s: expected matrices [..., rows, columns]",
                       TCI_SHAPE_TEXT(x));
        return NULL;
    }
    const tci_dim *d = x->shape + (x->rank - 2);
    return tci_build_where(g, tci_build_triangle_mask(g, d[0], d[1], offset, lower), x,
                           tci_composite_number(g, (tc_dtype)x->dtype, 0));
}

/* Where the mask of a triangle is true: [2, n], rows and columns. How many there are follows from
 * the sums of 1 .. m. */
static int64_t tci_arrange_steps(int64_t m)
{
    return m > 0 ? m * (m + 1) / 2 : 0;
}

TCI_FN tci_node *tci_build_triangle_indices(tci_graph *g, tci_dim rows, tci_dim columns,
                                            int64_t offset, bool lower)
{
    const int64_t limit = 1 << 30;
    const bool known = tci_dim_is_known(rows) && tci_dim_is_known(columns);
    if (!known || !tci_dim_le(0, rows) || !tci_dim_le(rows, limit) || !tci_dim_le(0, columns) ||
        !tci_dim_le(columns, limit) || offset > limit || offset < -limit) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "%s rows, %s columns and offset %s: expected numbers, of a size of a matrix",
                       TCI_DIM_TEXT(rows), TCI_DIM_TEXT(columns), TCI_DIM_TEXT(offset));
        return NULL;
    }
    int64_t r = tci_dim_known(rows), c = tci_dim_known(columns), last = lower ? offset : offset - 1;
    const int64_t all = r * c;
    int64_t below = tci_arrange_steps(r + last) - tci_arrange_steps(last) -
                    tci_arrange_steps(r + last - c) + tci_arrange_steps(last - c);
    tci_node *mask = tci_build_triangle_mask(g, rows, columns, offset, lower);
    return tci_build_transpose(g, tci_build_nonzero(g, mask, lower ? below : all - below), 0, 1);
}

/* ---- ramps ---- */

TCI_FN tci_node *tci_build_linspace(tci_graph *g, tci_node *start, tci_node *stop, tci_dim steps,
                                    double base, tc_dtype dtype)
{
    tci_node *ends[2] = {start, stop};
    for (int i = 0; i < 2; i++) {
        if (ends[i] && ends[i]->rank) {
            tci_graph_fail(g, TC_ERR_SHAPE, "an end has shape %s: expected a number",
                           TCI_SHAPE_TEXT(ends[i]));
            return NULL;
        }
        ends[i] = tci_build_cast(g, tci_build_cast(g, ends[i], dtype), TC_F64);
    }
    if (!ends[0] || !ends[1] || !tci_build_check_shape(g, 1, &steps, dtype)) {
        return NULL;
    }
    tci_node *last = tci_build_size_value(g, tci_dim_max(tci_dim_sub(steps, 1), 1), TC_F64);
    tci_node *way = tci_composite_binary(g, TCI_OP_SUB, ends[1], ends[0]);
    tci_node *step = tci_composite_binary(g, TCI_OP_DIV, way, last);
    tci_node *at = tci_build_cast(g, tci_build_iota(g, steps), TC_F64);
    tci_node *left = tci_composite_binary(g, TCI_OP_SUB, last, at);
    tci_node *near = tci_composite_binary(g, TCI_OP_ADD, ends[0],
                                          tci_composite_binary(g, TCI_OP_MUL, at, step));
    tci_node *far = tci_composite_binary(g, TCI_OP_SUB, ends[1],
                                         tci_composite_binary(g, TCI_OP_MUL, left, step));
    /* from both ends, so that both are exact */
    tci_node *first = tci_composite_binary(g, TCI_OP_LE, at, left);
    tci_node *r = tci_build_where(g, first, near, far);
    r = base != 0 ? tci_composite_binary(g, TCI_OP_POW, tci_composite_number(g, TC_F64, base), r)
                  : r;
    return tci_build_cast(g, r, dtype);
}
