/* ops/median_histogram_unique.c - builds median, mode, kth value, histogram, bincount, unique and
 * isin from sorts, gathers and scatters.
 *
 * In: x. Out: argsorts (TOPK), gathers by rank (ops/indexing.c) and scatters. Design: in sorted
 * order equal elements are neighbours, so that a set is where an element differs from the one
 * before. */
#include "composite.h"

enum { TCI_SETS_SORTED = 64 }; /* elements of an axis that is sorted for one of them, at most */

/* ---- the k-th in order ---- */

/* x at one place along an axis, [..., 1, ...], or without the axis. */
static tci_node *tci_sets_at(tci_graph *g, tci_node *x, int axis, tci_node *place, bool keepdims)
{
    tci_node *r = x ? tci_build_gather(g, x, axis, place) : place;
    return keepdims ? r : tci_build_squeeze(g, r, axis);
}

/* Position of the element that has `rank` others before it in order, k - 1 at most (NULL:
 * k - 1), [..., 1, ...]: short axes are sorted. */
static tci_node *tci_sets_ranked(tci_graph *g, tci_node *x, int at, tci_dim k, tci_node *rank)
{
    if (x->rank && !tci_dim_le(x->shape[at], TCI_SETS_SORTED)) {
        rank = rank ? rank : tci_build_size_value(g, tci_dim_sub(k, 1), TC_I64);
        return tci_build_place_of_rank(g, tci_build_order_words(g, x, false), at, rank);
    }
    tci_node *first = tci_build_topk(g, x, at, k, false);
    return rank                   ? tci_build_gather(g, first, at, rank)
           : first && first->rank ? tci_build_slice(g, first, at, tci_dim_sub(k, 1), k, 1)
                                  : first;
}

/* Position of the k-th smallest along the axis, which has size 1 then. */
static tci_node *tci_sets_kth(tci_graph *g, tci_node *x, int at, tci_dim k)
{
    tci_dim n = x->rank ? x->shape[at] : 1;
    if (!tci_dim_le(1, k) || !tci_dim_le(k, n)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "k is %s: expected 1 to %s, the size of axis %d of %s%s",
                       TCI_DIM_TEXT(k), TCI_DIM_TEXT(n), at, TCI_SHAPE_TEXT(x),
                       TCI_LEAST_NOTE(k, 1));
        return NULL;
    }
    return tci_sets_ranked(g, x, at, k, NULL);
}

TCI_FN tci_node *tci_build_kthvalue(tci_graph *g, tci_node *x, int axis, tci_dim k, bool keepdims,
                                    bool values)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    return tci_sets_at(g, values ? x : NULL, at, tci_sets_kth(g, x, at, k), keepdims);
}

/* The lower of the two in the middle; the first NaN, if there is one. */
TCI_FN tci_node *tci_build_median(tci_graph *g, tci_node *x, int axis, bool keepdims, bool values)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    tci_dim n = x->rank ? x->shape[at] : 1;
    if (x->rank && !tci_build_can_read(g, "x", x, at, 1)) {
        return NULL;
    }
    tci_node *place = tci_sets_kth(g, x, at, tci_dim_div(tci_dim_add(n, 1), 2));
    if (place && tci_dtype_is_float((tc_dtype)x->dtype)) {
        tc_axes one = {&at, 1, false};
        tci_node *nan = tci_composite_unary(g, TCI_OP_ISNAN, x);
        tci_node *first = tci_build_reduce(g, TCI_OP_ARGMAX, tci_build_cast(g, nan, TC_I32), one,
                                           true);
        nan = tci_build_reduce(g, TCI_OP_ANY, nan, one, true);
        place = tci_build_where(g, nan, first, place);
    }
    return tci_sets_at(g, values ? x : NULL, at, place, keepdims);
}

/* The same of the elements that are no NaN; the first NaN where none is. */
TCI_FN tci_node *tci_build_nanmedian(tci_graph *g, tci_node *x, int axis, bool keepdims,
                                     bool values)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank || !tci_dtype_is_float((tc_dtype)x->dtype)) {
        return tci_build_median(g, x, axis, keepdims, values);
    }
    if (!tci_build_can_read(g, "x", x, at, 1)) {
        return NULL;
    }
    tc_axes one = {&at, 1, false};
    tci_node *seen = tci_composite_binary(g, TCI_OP_EQ, x, x); /* NaN comes last */
    seen = tci_build_reduce(g, TCI_OP_SUM, tci_build_cast(g, seen, TC_I64), one, true);
    seen = tci_composite_binary(g, TCI_OP_SUB, seen, tci_composite_whole(g, 1));
    seen = tci_composite_binary(g, TCI_OP_MAXIMUM, seen, tci_composite_whole(g, 0));
    tci_node *middle = tci_composite_binary(g, TCI_OP_FLOOR_DIVIDE, seen,
                                            tci_composite_whole(g, 2));
    tci_node *place = middle ? tci_sets_ranked(g, x, at, x->shape[at], middle) : NULL;
    return tci_sets_at(g, values ? x : NULL, at, place, keepdims);
}

/* In order equal elements are runs; the first of the longest runs ends where it has grown longest,
 * and there, as the order is stable, stands the last of its elements. */
TCI_FN tci_node *tci_build_mode(tci_graph *g, tci_node *x, int axis, bool keepdims, bool values)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank) {
        return values ? x : tci_composite_whole(g, 0);
    }
    if (!tci_build_can_read(g, "x", x, at, 1)) {
        return NULL;
    }
    tc_axes one = {&at, 1, false};
    tci_node *order = tci_build_topk(g, x, at, x->shape[at], false);
    tci_node *sorted = tci_build_gather(g, x, at, order);
    tci_node *zero = tci_composite_number(g, (tc_dtype)x->dtype, 0);
    tci_node *differs = tci_composite_binary(g, TCI_OP_NE, sorted,
                                             tci_build_pad(g, sorted, at, 1, -1, zero));
    tci_node *step = tci_composite_ramp(g, x->shape[at], x->rank, at);
    tci_node *start = tci_build_where(g, differs, step, tci_composite_whole(g, 0));
    start = tci_build_scan(g, start, at, false, TCI_MODE_MAX);
    tci_node *length = tci_composite_binary(g, TCI_OP_SUB, step, start);
    tci_node *end = tci_build_reduce(g, TCI_OP_ARGMAX, length, one, true);
    return tci_sets_at(g, values ? x : NULL, at, tci_build_gather(g, order, at, end), keepdims);
}

/* ---- how often ---- */

/* Zeros [size] with `weights` added where `index` says; what is outside is left out. */
static tci_node *tci_sets_count(tci_graph *g, tci_node *index, tci_node *weights, tci_dim size)
{
    tci_dim all = index ? tci_node_count(index) : 0, room = tci_dim_add(size, 1);
    if (!index || !weights || !tci_build_check_shape(g, 1, &room, TC_I64)) {
        return NULL;
    }
    tci_node *last = tci_build_size_value(g, size, TC_I64);
    tci_node *below = tci_composite_binary(g, TCI_OP_LT, index, tci_composite_whole(g, 0));
    index = tci_composite_binary(g, TCI_OP_MINIMUM, index, last);
    index = tci_build_reshape(g, tci_build_where(g, below, last, index), 1, &all);
    weights = tci_build_reshape(g, weights, 1, &all);
    tci_node *zeros = tci_composite_number(g, (tc_dtype)weights->dtype, 0);
    zeros = tci_build_broadcast(g, zeros, 1, &room);
    tci_node *r = tci_build_scatter(g, zeros, 0, index, weights, TCI_MODE_ADD);
    return tci_build_slice(g, r, 0, 0, size, 1);
}

TCI_FN tci_node *tci_build_bincount(tci_graph *g, tci_node *x, tci_node *weights, tci_dim size)
{
    if (!x || !tci_build_check_index(g, x) || !tci_build_check_shape(g, 1, &size, TC_I64)) {
        return NULL;
    }
    if (weights && !tci_build_same_shape(x->rank, x->shape, weights->rank, weights->shape)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "x has shape %s, the weights %s: expected equal shapes",
                       TCI_SHAPE_TEXT(x), TCI_SHAPE_TEXT(weights));
        return NULL;
    }
    tci_node *ones = tci_build_broadcast(g, tci_composite_whole(g, 1), x->rank, x->shape);
    return tci_sets_count(g, tci_build_cast(g, x, TC_I64), weights ? weights : ones, size);
}

/* Ends of the range of bins: as given, or where they are equal those of x, one apart if they are
 * equal too. */
static void tci_sets_ends(tci_graph *g, tci_node *x, double low, double high, tci_node **ends)
{
    tc_axes all = {NULL, 0, true};
    tc_dtype t = (tc_dtype)x->dtype;
    if (low != high || tci_node_count(x) == 0) {
        ends[0] = tci_composite_number(g, t, low);
        ends[1] = tci_composite_number(g, t, high == low ? low + 1 : high);
        return;
    }
    tci_node *least = tci_build_reduce(g, TCI_OP_MIN, x, all, false);
    tci_node *most = tci_build_reduce(g, TCI_OP_MAX, x, all, false);
    tci_node *same = tci_composite_binary(g, TCI_OP_EQ, least, most);
    tci_node *more = tci_build_cast(g, same, t);
    ends[0] = tci_composite_binary(g, TCI_OP_SUB, least, more);
    ends[1] = tci_composite_binary(g, TCI_OP_ADD, most, more);
}

TCI_FN tci_node *tci_build_histc(tci_graph *g, tci_node *x, tci_dim bins, double low, double high)
{
    tci_node *ends[2];
    if (!x || !tci_build_check_dim(g, "the number of bins", bins, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    if (!tci_dtype_is_float((tc_dtype)x->dtype) || !(low <= high) || !tci_dim_le(1, bins)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "x is %s, and there are %s bins from %g to %g: expected floats, at least "
                       "one bin, and ends in order",
                       tci_dtype_get((tc_dtype)x->dtype)->name, TCI_DIM_TEXT(bins), low, high);
        return NULL;
    }
    tc_dtype t = (tc_dtype)x->dtype;
    bool fits = tci_build_check_shape(g, 1, &bins, t);
    x = fits ? tci_build_cast(g, x, tci_composite_math(x)) : NULL;
    if (!x) {
        return NULL;
    }
    tci_sets_ends(g, x, low, high, ends);
    tci_node *count = tci_build_size_value(g, bins, (tc_dtype)x->dtype);
    tci_node *at = tci_composite_binary(g, TCI_OP_SUB, x, ends[0]);
    at = tci_composite_binary(g, TCI_OP_MUL, at, count);
    at = tci_composite_binary(g, TCI_OP_DIV, at,
                              tci_composite_binary(g, TCI_OP_SUB, ends[1], ends[0]));
    at = tci_build_cast(g, tci_composite_unary(g, TCI_OP_FLOOR, at), TC_I64);
    tci_node *last = tci_build_size_value(g, tci_dim_sub(bins, 1), TC_I64);
    at = tci_composite_binary(g, TCI_OP_MINIMUM, at, last); /* the upper end belongs to the last */
    tci_node *inside = tci_composite_binary(g, TCI_OP_LOGICAL_AND,
                                            tci_composite_binary(g, TCI_OP_LE, ends[0], x),
                                            tci_composite_binary(g, TCI_OP_LE, x, ends[1]));
    at = tci_build_where(g, inside, at, tci_composite_whole(g, -1));
    tci_node *ones = tci_composite_number(g, (tc_dtype)x->dtype, 1);
    ones = tci_build_broadcast(g, ones, x->rank, x->shape);
    return tci_build_cast(g, tci_sets_count(g, at, ones, bins), t);
}

/* ---- which ---- */

TCI_FN tci_node *tci_build_isin(tci_graph *g, tci_node *x, tci_node *list)
{
    if (!x || !list) {
        return NULL;
    }
    tci_node *both[2] = {x, list};
    tc_dtype t = tci_build_common_dtype(g, both, 2);
    tci_dim n = tci_node_count(list);
    x = tci_build_cast(g, x, t);
    if (n == 0 || !x) {
        tci_node *no = tci_graph_const(g, TC_BOOL, (tci_value){.i = 0});
        return x ? tci_build_broadcast(g, no, x->rank, x->shape) : NULL;
    }
    list = tci_build_reshape(g, tci_build_cast(g, list, t), 1, &n);
    if (!list) {
        return NULL;
    }
    list = tci_build_gather(g, list, 0, tci_build_topk(g, list, 0, n, false));
    tci_node *at = tci_build_searchsorted(g, list, x, false);
    tci_node *last = tci_build_size_value(g, tci_dim_max(tci_dim_sub(n, 1), 0), TC_I64);
    tci_node *some = tci_composite_binary(g, TCI_OP_LT, at, tci_build_size_value(g, n, TC_I64));
    at = tci_composite_binary(g, TCI_OP_MINIMUM, at, last);
    tci_dim all = tci_node_count(x);
    tci_node *read = tci_build_gather(g, tci_build_readable(g, list, 0), 0,
                                      tci_build_reshape(g, at, 1, &all));
    read = tci_composite_binary(g, TCI_OP_EQ, tci_build_reshape(g, read, x->rank, x->shape), x);
    return tci_dim_le(1, n) ? read : tci_composite_binary(g, TCI_OP_LOGICAL_AND, some, read);
}

/* Rows [n, columns] in order, as places: by the last column, then stably by those before it. */
static tci_node *tci_sets_order(tci_graph *g, tci_node *rows)
{
    enum { TCI_SETS_COLUMNS = 256 };
    tci_node *order = NULL;
    if (!tci_dim_is_known(rows->shape[1]) || !tci_dim_le(rows->shape[1], TCI_SETS_COLUMNS)) {
        tci_graph_fail(g, TC_ERR_LIMIT, "slices of %s elements: expected at most %d to order them",
                       TCI_DIM_TEXT(rows->shape[1]), TCI_SETS_COLUMNS);
        return NULL;
    }
    for (int64_t i = tci_dim_known(rows->shape[1]) - 1; i >= 0; i--) {
        tci_node *column = tci_build_squeeze(g, tci_build_slice(g, rows, 1, i, i + 1, 1), 1);
        column = order ? tci_build_gather(g, column, 0, order) : column;
        tci_node *own = tci_build_topk(g, column, 0, rows->shape[0], false);
        order = order ? tci_build_gather(g, order, 0, own) : own;
        if (!order) {
            return NULL;
        }
    }
    return order;
}

/* Whether each of rows [n, columns] differs from the one before; the first does. */
static tci_node *tci_sets_starts(tci_graph *g, tci_node *rows)
{
    int columns = 1;
    tc_axes axis = {&columns, 1, false};
    tci_node *zero = tci_composite_number(g, (tc_dtype)rows->dtype, 0);
    tci_node *before = tci_build_pad(g, rows, 0, 1, -1, zero);
    tci_node *differ = tci_composite_binary(g, TCI_OP_NE, rows, before);
    differ = tci_build_reduce(g, TCI_OP_ANY, differ, axis, false);
    tci_node *first = tci_composite_binary(g, TCI_OP_EQ, tci_build_iota(g, rows->shape[0]),
                                           tci_composite_whole(g, 0));
    return tci_composite_binary(g, TCI_OP_LOGICAL_OR, first, differ);
}

/* x along `at` as rows [n, columns]. */
static tci_node *tci_sets_rows(tci_graph *g, tci_node *x, int at)
{
    tci_words w;
    int *order = tci_words_ints(g, &w, x->rank);
    if (!order) {
        return NULL;
    }
    tci_dim shape[2] = {x->shape[at], 1};
    for (int i = 0; i < x->rank; i++) {
        order[i] = i == 0 ? at : i - (i <= at);
        shape[1] = i == at ? shape[1] : tci_dim_mul(shape[1], x->shape[i]);
    }
    tci_node *r = tci_build_permute(g, x, x->rank, order);
    return tci_words_put(g, &w, tci_build_reshape(g, r, 2, shape));
}

TCI_FN tci_node *tci_build_unique(tci_graph *g, tci_node *x, int axis, tci_dim size,
                                  bool consecutive, int which)
{
    int at;
    tci_dim one = 1;
    if (x && !x->rank) {
        x = tci_build_reshape(g, x, 1, &one);
    }
    if (!x || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_shape(g, 1, &size, TC_I64)) {
        return NULL;
    }
    tci_node *rows = tci_sets_rows(g, x, at);
    tci_node *order = rows && !consecutive ? tci_sets_order(g, rows) : NULL;
    if (!rows || (!consecutive && !order && rows->shape[1] != 0)) {
        return NULL;
    }
    tci_node *sorted = order ? tci_build_index_select(g, rows, 0, order) : rows;
    tci_node *starts = sorted ? tci_sets_starts(g, sorted) : NULL;
    if (which == 3) {
        return tci_build_true_count(g, starts);
    }
    if (which == 1) { /* the number of an element's set, at its position in x */
        tci_node *number = tci_build_scan(g, starts, 0, false, TCI_MODE_ADD);
        number = tci_composite_binary(g, TCI_OP_SUB, number, tci_composite_whole(g, 1));
        return order ? tci_build_scatter(g, number, 0, order, number, TCI_MODE_SET) : number;
    }
    tci_dim room = which == 2 ? tci_dim_add(size, 1) : size;
    tci_node *first = tci_build_nonzero(g, starts, room), *count = tci_build_true_count(g, starts);
    first = first && starts->rank ? tci_build_squeeze(g, first, 1) : first;
    tci_node *there = tci_composite_binary(g, TCI_OP_LT, tci_build_iota(g, room), count);
    if (which == 2) { /* from the first of a set to that of the next */
        first = tci_build_where(g, there, first, tci_build_size_value(g, x->shape[at], TC_I64));
        return tci_composite_binary(g, TCI_OP_SUB, tci_build_slice(g, first, 0, 1, INT64_MAX, 1),
                                    tci_build_slice(g, first, 0, 0, size, 1));
    }
    tci_dim all = x->shape[at];
    if (all == 0) {
        tci_node *zero = tci_composite_number(g, (tc_dtype)x->dtype, 0);
        return tci_build_pad(g, x, at, 0, size, zero);
    }
    first = order ? tci_build_gather(g, tci_build_readable(g, order, 0), 0, first) : first;
    tci_node *values = tci_build_index_select(g, tci_build_readable(g, x, at), at, first);
    tci_words w;
    tci_dim *line = tci_words_dims(g, &w, x->rank);
    if (!line) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        line[i] = i == at ? size : 1;
    }
    there = tci_build_reshape(g, there, x->rank, line);
    return tci_words_put(
        g, &w, tci_build_where(g, there, values, tci_composite_number(g, (tc_dtype)x->dtype, 0)));
}
