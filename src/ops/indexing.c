/* ops/indexing.c - builds data-dependent indexing ops: searchsorted, nonzero, masked_select,
 * masked_scatter, index and index_put, repeat_interleave.
 *
 * In: values, masks, indices. Out: reads and writes at indices (graph/movement.c, scatter.c).
 * Results of data-dependent size have a size that the caller gives, and a count. A true element
 * goes to the position given by the cumulative count (ops/rank_selection.c), and a value is located
 * in a sorted list by binary search, for all results in parallel. */
#include "composite.h"

/* ---- in a sorted list ---- */

/* Steps of halving that find a position among n, n known or not. */
static int tci_search_steps(tci_dim n)
{
    int steps = 0;
    while (steps < 62 && ((int64_t)1 << steps) <= tci_dim_most(n)) {
        steps++;
    }
    return steps;
}

/* True if the element at a position of the sorted list comes before the value; NaN comes after all
 * else. */
static tci_node *tci_search_before(tci_graph *g, tci_node *sorted, tci_node *place,
                                   tci_node *values, bool right)
{
    tci_node *read = tci_build_gather(g, sorted, sorted->rank - 1, place);
    bool floats = values && tci_dtype_is_float((tc_dtype)values->dtype);
    tci_node *r = tci_composite_binary(g, right ? TCI_OP_LE : TCI_OP_GE, read, values);
    if (floats) {
        tci_node *last = tci_composite_unary(g, TCI_OP_ISNAN, right ? values : read);
        r = tci_composite_binary(g, TCI_OP_LOGICAL_OR, r, last);
    }
    return right ? r : tci_composite_unary(g, TCI_OP_LOGICAL_NOT, r);
}

/* The first `at` are before the value, and those from at + left on are not: of a known number
 * halves stay inside. */
static tci_node *tci_search_halves(tci_graph *g, tci_node *sorted, tci_node *values, bool right,
                                   tci_node *at)
{
    for (int64_t left = tci_dim_known(sorted->shape[sorted->rank - 1]); left > 0;) {
        int64_t half = (left + 1) / 2;
        tci_node *last = tci_composite_binary(g, TCI_OP_ADD, at, tci_composite_whole(g, half - 1));
        tci_node *past = tci_composite_binary(g, TCI_OP_ADD, at, tci_composite_whole(g, half));
        at = tci_build_where(g, tci_search_before(g, sorted, last, values, right), past, at);
        left -= half;
    }
    return at;
}

/* sorted and values: [..., n] and [..., m], of equal axes before the last. */
static tci_node *tci_search_rows(tci_graph *g, tci_node *sorted, tci_node *values, bool right)
{
    const int last = sorted->rank - 1;
    tci_dim n = sorted->shape[last];
    tci_node *at = tci_build_broadcast(g, tci_composite_whole(g, 0), values->rank, values->shape);
    if (n == 0) {
        return at;
    }
    tci_node *size = tci_build_size_value(g, n, TC_I64);
    sorted = tci_build_readable(g, sorted, last);
    if (tci_dim_is_known(n)) {
        return tci_search_halves(g, sorted, values, right, at);
    }
    for (int i = tci_search_steps(n) - 1; i >= 0; i--) { /* the first `at` are before the value */
        tci_node *past = tci_composite_binary(g, TCI_OP_ADD, at,
                                              tci_composite_whole(g, (int64_t)1 << i));
        tci_node *fits = tci_composite_binary(g, TCI_OP_LE, past, size);
        tci_node *place = tci_composite_binary(g, TCI_OP_MINIMUM, past, size);
        place = tci_composite_binary(g, TCI_OP_SUB, place, tci_composite_whole(g, 1));
        if (!tci_dim_le(1, n)) {
            place = tci_composite_binary(g, TCI_OP_MAXIMUM, place, tci_composite_whole(g, 0));
        }
        fits = tci_composite_binary(g, TCI_OP_LOGICAL_AND, fits,
                                    tci_search_before(g, sorted, place, values, right));
        at = tci_build_where(g, fits, past, at);
    }
    return at;
}

TCI_FN tci_node *tci_build_searchsorted(tci_graph *g, tci_node *sorted, tci_node *values,
                                        bool right)
{
    if (!sorted || !values) {
        return NULL;
    }
    bool fits = sorted->rank == 1 || (sorted->rank > 1 && sorted->rank == values->rank);
    for (int i = 0; fits && sorted->rank > 1 && i + 1 < sorted->rank; i++) {
        fits = sorted->shape[i] == values->shape[i];
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "the sorted list has shape %s, the values %s: expected one axis, or equal "
                       "axes but for the last",
                       TCI_SHAPE_TEXT(sorted), TCI_SHAPE_TEXT(values));
        return NULL;
    }
    if (sorted->rank > 1) {
        return tci_search_rows(g, sorted, values, right);
    }
    tci_dim all = tci_node_count(values);
    tci_node *r = tci_build_reshape(g, values, 1, &all);
    r = r ? tci_search_rows(g, sorted, r, right) : NULL;
    return tci_build_reshape(g, r, values->rank, values->shape);
}

/* ---- what is true ---- */

/* The running count of what is true through all of x, [elements]. */
static tci_node *tci_search_running(tci_graph *g, tci_node *x)
{
    tci_dim all = x ? tci_node_count(x) : 0;
    tci_node *flat = tci_build_cast(g, tci_build_reshape(g, x, 1, &all), TC_BOOL);
    return tci_build_scan(g, flat, 0, false, TCI_MODE_ADD);
}

TCI_FN tci_node *tci_build_true_count(tci_graph *g, tci_node *x)
{
    tc_axes all = {NULL, 0, true};
    return x ? tci_build_reduce(g, TCI_OP_SUM, tci_build_cast(g, x, TC_BOOL), all, false) : NULL;
}

/* Row-major positions of the first `size` true elements of x, and whether there are this many. */
static tci_node *tci_search_true(tci_graph *g, tci_node *x, tci_dim size, tci_node **found)
{
    if (!tci_build_check_shape(g, 1, &size, TC_I64)) {
        return NULL;
    }
    tci_dim all = tci_node_count(x);
    tci_node *flat = tci_build_cast(g, tci_build_reshape(g, x, 1, &all), TC_BOOL);
    *found = tci_composite_binary(g, TCI_OP_LT, tci_build_iota(g, size),
                                  tci_build_true_count(g, x));
    tci_node *at = tci_build_true_first(g, flat, 0);
    return tci_build_pad(g, at, 0, 0, tci_dim_sub(size, all), tci_composite_whole(g, 0));
}

/* Of whole numbers below 2^52, none negative, by way of f64, which vectors divide: a quotient is
 * never rounded up to the next number. */
static tci_node *tci_search_quotient(tci_graph *g, tci_node *a, tci_node *b)
{
    tci_node *q = tci_composite_binary(g, TCI_OP_DIV, tci_build_cast(g, a, TC_F64),
                                       tci_build_cast(g, b, TC_F64));
    return tci_build_cast(g, q, TC_I64);
}

TCI_FN tci_node *tci_build_nonzero(tci_graph *g, tci_node *x, tci_dim size)
{
    tci_node *found;
    tci_node *at = x ? tci_search_true(g, x, size, &found) : NULL;
    if (!at || !x->rank) {
        tci_dim none[2] = {size, 0};
        return at ? tci_build_broadcast(g, tci_composite_whole(g, 0), 2, none) : NULL;
    }
    at = tci_build_where(g, found, at, tci_composite_whole(g, 0));
    tci_words w;
    tci_node **columns = tci_words_nodes(g, &w, x->rank);
    if (!columns) {
        return NULL;
    }
    for (int i = x->rank - 1; i >= 0; i--) { /* 0 rather than a division where nothing is found */
        tci_node *own = at;
        if (i > 0) {
            tci_node *size_i = tci_build_size_value(g, x->shape[i], TC_I64);
            at = tci_search_quotient(g, at, size_i);
            own = tci_composite_binary(g, TCI_OP_SUB, own,
                                       tci_composite_binary(g, TCI_OP_MUL, at, size_i));
        }
        columns[i] = tci_build_unsqueeze(g, own, 1);
        if (!columns[i]) {
            return tci_words_put(g, &w, NULL);
        }
    }
    return tci_words_put(g, &w, tci_build_cat(g, columns, x->rank, 1));
}

/* Both in the shape in which they meet. */
static bool tci_search_meet(tci_graph *g, tci_node **x, tci_node **mask)
{
    if (!*x || !*mask) {
        return false;
    }
    if ((*mask)->dtype != TC_BOOL) {
        tci_graph_fail(g, TC_ERR_DTYPE, "the mask is %s: expected bool",
                       tci_dtype_get((tc_dtype)(*mask)->dtype)->name);
        return false;
    }
    tci_node *both = tci_build_where(g, *mask, *x, *x); /* for its shape */
    if (!both) {
        return false;
    }
    *x = tci_build_broadcast(g, *x, both->rank, both->shape);
    *mask = tci_build_broadcast(g, *mask, both->rank, both->shape);
    return *x && *mask;
}

TCI_FN tci_node *tci_build_masked_select(tci_graph *g, tci_node *x, tci_node *mask, tci_dim size)
{
    tci_node *found;
    if (!tci_search_meet(g, &x, &mask)) {
        return NULL;
    }
    tci_dim all = tci_node_count(x);
    tci_node *at = tci_search_true(g, mask, size, &found);
    if (!at || all == 0) {
        return at ? tci_build_broadcast(g, tci_composite_number(g, (tc_dtype)x->dtype, 0), 1, &size)
                  : NULL;
    }
    at = tci_build_where(g, found, at, tci_composite_whole(g, 0));
    x = tci_build_readable(g, tci_build_reshape(g, x, 1, &all), 0);
    tci_node *read = tci_build_gather(g, x, 0, at);
    return tci_build_where(g, found, read, tci_composite_number(g, (tc_dtype)x->dtype, 0));
}

/* x with rows of src where the mask, over x's first axes, is true: its first true element takes the
 * first row, and so on, or all the one row that there is. */
static tci_node *tci_search_put_rows(tci_graph *g, tci_node *x, tci_node *mask, tci_node *src,
                                     bool add)
{
    tci_dim all = mask ? tci_node_count(mask) : 0, rows = src ? src->shape[0] : 0;
    if (!x || !mask || !src || all == 0) {
        return src ? x : NULL;
    }
    tci_words w;
    tci_dim *shape = tci_words_dims(g, &w, x->rank);
    if (!shape) {
        return NULL;
    }
    tci_node *nth = tci_composite_binary(g, TCI_OP_SUB, tci_search_running(g, mask),
                                         tci_composite_whole(g, 1));
    tci_node *last = tci_build_size_value(g, tci_dim_max(tci_dim_sub(rows, 1), 0), TC_I64);
    nth = tci_composite_binary(g, TCI_OP_MAXIMUM, nth, tci_composite_whole(g, 0));
    nth = tci_composite_binary(g, TCI_OP_MINIMUM, nth, last);
    if (!tci_dim_le(1, rows)) { /* of no rows the first is outside, if an element is to take it */
        tci_node *none = tci_build_size_value(g, tci_dim_sub(1, tci_dim_min(rows, 1)), TC_I64);
        tci_node *taken = tci_build_cast(g, tci_build_reshape(g, mask, 1, &all), TC_I64);
        nth = tci_composite_binary(g, TCI_OP_ADD, nth,
                                   tci_composite_binary(g, TCI_OP_MUL, none, taken));
    }
    tci_node *read = tci_build_index_select(g, tci_build_readable(g, src, 0), 0, nth);
    read = tci_build_reshape(g, read, x->rank, x->shape);
    for (int i = 0; i < x->rank; i++) {
        shape[i] = i < mask->rank ? mask->shape[i] : 1;
    }
    mask = tci_build_reshape(g, mask, x->rank, shape);
    read = add ? tci_composite_binary(g, TCI_OP_ADD, x, read) : read;
    return tci_words_put(g, &w, tci_build_where(g, mask, read, x));
}

static bool tci_search_one_dtype(tci_graph *g, const tci_node *x, const tci_node *src)
{
    if (src->dtype != x->dtype) {
        tci_graph_fail(g, TC_ERR_DTYPE, "x is %s and src %s: expected one dtype (tc_cast converts)",
                       tci_dtype_get((tc_dtype)x->dtype)->name,
                       tci_dtype_get((tc_dtype)src->dtype)->name);
    }
    return src->dtype == x->dtype;
}

TCI_FN tci_node *tci_build_masked_scatter(tci_graph *g, tci_node *x, tci_node *mask, tci_node *src)
{
    if (!src || !tci_search_meet(g, &x, &mask)) {
        return NULL;
    }
    if (!tci_search_one_dtype(g, x, src)) {
        return NULL;
    }
    tci_dim all = tci_node_count(src);
    return tci_search_put_rows(g, x, mask, tci_build_reshape(g, src, 1, &all), false);
}

TCI_FN tci_node *tci_build_repeat_interleave(tci_graph *g, tci_node *x, tci_node *repeats, int axis,
                                             tci_dim size)
{
    int at;
    if (!x || !repeats || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_index(g, repeats) || !tci_build_check_shape(g, 1, &size, TC_I64)) {
        return NULL;
    }
    const tci_dim n = x->rank ? x->shape[at] : 1;
    if (repeats->rank > 1 || (tci_node_count(repeats) != n && tci_node_count(repeats) != 1)) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "the repeats have shape %s: expected one for each of %s elements of axis %d",
                       TCI_SHAPE_TEXT(repeats), TCI_DIM_TEXT(n), at);
        return NULL;
    }
    repeats = tci_build_reshape(g, repeats, repeats->rank ? 1 : 0, repeats->shape);
    repeats = tci_build_broadcast(g, tci_build_cast(g, repeats, TC_I64), 1, &n);
    tci_node *ends = tci_build_scan(g, repeats, 0, false, TCI_MODE_ADD);
    tci_node *from = tci_build_searchsorted(g, ends, tci_build_iota(g, size), true);
    tci_node *last = tci_build_size_value(g, tci_dim_sub(n, 1), TC_I64);
    from = tci_composite_binary(g, TCI_OP_MINIMUM, from, last);
    return tci_build_index_select(g, x, at, from);
}

/* ---- several indices ---- */

typedef struct tci_places {
    tci_graph *g;
    int rank, n, first; /* of x; indices; the axis at which their axes are in the result */
    int *order, *back;  /* x's axes with those that have an index in front; and back */
    tci_dim *sizes;     /* of the indices' axes, and after them of x's others */
    int n_index;        /* how many axes the indices have */
    tci_dim all, count; /* elements of the axes with an index; of the indices */
    tci_node *flat;     /* one index through these axes, [count] */
    tci_words words, ints;
} tci_places;

/* An index through axes of x before, `flat`, and through one more; where an index is outside its
 * axis, so is the whole: `all` elements on. */
static tci_node *tci_places_step(tci_places *p, tci_node *flat, tci_node *index, tci_dim size,
                                 tci_node **outside)
{
    tci_graph *g = p->g;
    tci_node *n = tci_build_size_value(g, size, TC_I64), *zero = tci_composite_whole(g, 0);
    index = tci_build_cast(g, index, TC_I64);
    tci_node *below = tci_composite_binary(g, TCI_OP_LT, index, zero);
    index = tci_build_where(g, below, tci_composite_binary(g, TCI_OP_ADD, index, n), index);
    tci_node *wrong = tci_composite_binary(g, TCI_OP_LOGICAL_OR,
                                           tci_composite_binary(g, TCI_OP_LT, index, zero),
                                           tci_composite_binary(g, TCI_OP_GE, index, n));
    *outside = *outside ? tci_composite_binary(g, TCI_OP_LOGICAL_OR, *outside, wrong) : wrong;
    return flat ? tci_composite_binary(g, TCI_OP_ADD, tci_composite_binary(g, TCI_OP_MUL, flat, n),
                                       index)
                : index;
}

/* How many are given; 0: they are wrong. */
static int tci_places_check(tci_graph *g, const tci_node *x, tci_node *const *indices, int n)
{
    int given = 0;
    for (int i = 0; i < n; i++) {
        if (indices[i] && !tci_build_check_index(g, indices[i])) {
            return 0;
        }
        given += indices[i] != NULL;
    }
    if (n > x->rank || !given) {
        tci_graph_fail(g, TC_ERR_SHAPE, "%d indices, %d of them left out, for shape %s", n,
                       n - given, TCI_SHAPE_TEXT(x));
    }
    return n <= x->rank ? given : 0;
}

/* The axes of x and of the result; p->flat is in the shape of the indices. */
static bool tci_places_axes(tci_places *p, const tci_node *x, tci_node *const *indices, int n)
{
    const int rank = x->rank;
    p->order = tci_words_ints(p->g, &p->ints, 2 * rank);
    p->sizes = p->order ? tci_words_dims(p->g, &p->words, rank + p->flat->rank) : NULL;
    if (!p->sizes) {
        return false;
    }
    bool together = true;
    int at = 0, last = -1;
    p->back = p->order + rank;
    p->rank = rank;
    p->n_index = p->flat->rank;
    p->all = 1;
    for (int i = 0; i < n; i++) {
        if (indices[i]) {
            together = together && (last < 0 || last == i - 1);
            p->first = last < 0 ? i : p->first;
            last = i;
            p->all = tci_dim_mul(p->all, x->shape[i]);
            p->order[at++] = i;
        }
    }
    p->n = at;
    p->first = together ? p->first : 0;
    for (int i = 0; i < p->n_index; i++) {
        p->sizes[i] = p->flat->shape[i];
    }
    for (int i = 0, k = p->n_index; i < rank; i++) {
        if (i >= n || !indices[i]) {
            p->order[at++] = i;
            p->sizes[k++] = x->shape[i];
        }
    }
    for (int i = 0; i < rank; i++) {
        p->back[p->order[i]] = i;
    }
    p->count = tci_node_count(p->flat);
    return true;
}

/* A single index is used as it is, so that an error can name it. */
static bool tci_places_of(tci_graph *g, const tci_node *x, tci_node *const *indices, int n,
                          tci_places *p)
{
    tci_node *outside = NULL;
    *p = (tci_places){.g = g};
    const int given = tci_places_check(g, x, indices, n);
    for (int i = 0; i < n && given; i++) {
        if (indices[i] && given == 1) {
            p->flat = indices[i];
        } else if (indices[i]) {
            p->flat = tci_places_step(p, p->flat, indices[i], x->shape[i], &outside);
            if (!p->flat || !outside) {
                return false;
            }
        }
    }
    if (!given || !tci_places_axes(p, x, indices, n)) {
        return false;
    }
    if (given > 1) {
        p->flat = tci_build_where(g, outside, tci_build_size_value(g, p->all, TC_I64), p->flat);
    }
    p->flat = tci_build_reshape(g, p->flat, 1, &p->count);
    return p->flat != NULL;
}

static tci_node *tci_places_end(tci_places *p, tci_node *r)
{
    if (p->order) {
        tci_words_put(p->g, &p->ints, NULL);
    }
    if (p->sizes) {
        tci_words_put(p->g, &p->words, NULL);
    }
    return r;
}

/* x as [elements of the axes with an index, others]. */
static tci_node *tci_places_front(const tci_places *p, tci_node *x)
{
    tci_words w;
    tci_node *r = tci_build_permute(p->g, x, p->rank, p->order);
    tci_dim *shape = r ? tci_words_dims(p->g, &w, p->rank + 1) : NULL;
    if (!shape) {
        return NULL;
    }
    shape[0] = p->all;
    for (int i = p->n; i < p->rank; i++) {
        shape[1 + i - p->n] = r->shape[i];
    }
    return tci_words_put(p->g, &w, tci_build_reshape(p->g, r, p->rank - p->n + 1, shape));
}

/* The result's axes, those of the indices in front, in their order; or, back, in front again. */
static tci_node *tci_places_turn(const tci_places *p, tci_node *x, bool back)
{
    tci_words w;
    int rank = p->n_index + p->rank - p->n;
    int *order = x && p->first ? tci_words_ints(p->g, &w, rank) : NULL;
    if (!order) {
        return p->first ? NULL : x;
    }
    for (int i = 0; i < rank; i++) {
        if (back) {
            order[i] = i < p->n_index              ? p->first + i
                       : i - p->n_index < p->first ? i - p->n_index
                                                   : i;
        } else {
            order[i] = i < p->first ? p->n_index + i : i < p->first + p->n_index ? i - p->first : i;
        }
    }
    return tci_words_put(p->g, &w, tci_build_permute(p->g, x, rank, order));
}

/* x, reshaped or expanded to the result's shape. */
static tci_node *tci_places_shaped(const tci_places *p, tci_node *x,
                                   tci_node *(*to)(tci_graph *, tci_node *, int, const tci_dim *))
{
    tci_words w;
    const int rank = p->n_index + p->rank - p->n;
    tci_dim *shape = x ? tci_words_dims(p->g, &w, rank) : NULL;
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        bool before = i < p->first, indexed = !before && i < p->first + p->n_index;
        shape[i] = p->sizes[before ? p->n_index + i : indexed ? i - p->first : i];
    }
    return tci_words_put(p->g, &w, to(p->g, x, rank, shape));
}

TCI_FN tci_node *tci_build_index(tci_graph *g, tci_node *x, tci_node *const *indices, int n)
{
    tci_places p;
    if (!x) {
        return NULL;
    }
    if (!tci_places_of(g, x, indices, n, &p)) {
        return tci_places_end(&p, NULL);
    }
    if (p.n == 1) {
        tci_node *own = tci_build_index_select(g, x, p.order[0], p.flat);
        return tci_places_end(&p, tci_places_shaped(&p, own, tci_build_reshape));
    }
    tci_node *r = tci_build_index_select(g, tci_places_front(&p, x), 0, p.flat);
    r = tci_build_reshape(g, r, p.n_index + p.rank - p.n, p.sizes);
    return tci_places_end(&p, tci_places_turn(&p, r, false));
}

/* src, of the result's shape, like x but along the axis of its single index as long as that. */
static tci_node *tci_places_along(const tci_places *p, const tci_node *x, tci_node *src)
{
    tci_words w;
    tci_dim *shape = src ? tci_words_dims(p->g, &w, p->rank) : NULL;
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < p->rank; i++) {
        shape[i] = i == p->order[0] ? p->count : x->shape[i];
    }
    return tci_words_put(p->g, &w, tci_build_reshape(p->g, src, p->rank, shape));
}

/* src, of the result's shape, in the order of x[indices], as [count, others]. */
static tci_node *tci_places_source(const tci_places *p, tci_node *src)
{
    tci_words w;
    tci_node *r = tci_places_turn(p, src, true);
    tci_dim *shape = r ? tci_words_dims(p->g, &w, p->rank + 1) : NULL;
    if (!shape) {
        return NULL;
    }
    shape[0] = p->count;
    for (int i = 0; i < p->rank - p->n; i++) {
        shape[1 + i] = p->sizes[p->n_index + i];
    }
    return tci_words_put(p->g, &w, tci_build_reshape(p->g, r, p->rank - p->n + 1, shape));
}

/* Under one mask, over x's first axes. */
static tci_node *tci_places_masked(tci_graph *g, tci_node *x, tci_node *mask, tci_node *src,
                                   bool accumulate)
{
    tci_words w;
    bool fits = mask->rank <= x->rank;
    for (int i = 0; fits && i < mask->rank; i++) {
        fits = mask->shape[i] == x->shape[i];
    }
    const int rest = fits ? x->rank - mask->rank : 0;
    if (!fits || src->rank > rest + 1) {
        tci_graph_fail(g, TC_ERR_SHAPE, "mask of shape %s and src of shape %s for x of shape %s",
                       TCI_SHAPE_TEXT(mask), TCI_SHAPE_TEXT(src), TCI_SHAPE_TEXT(x));
        return NULL;
    }
    tci_dim *shape = tci_words_dims(g, &w, rest + 1);
    if (!shape) {
        return NULL;
    }
    shape[0] = src->rank == rest + 1 ? src->shape[0] : 1;
    for (int i = 0; i < rest; i++) {
        shape[1 + i] = x->shape[mask->rank + i];
    }
    src = tci_build_expand(g, src, rest + 1, shape);
    return tci_words_put(g, &w, tci_search_put_rows(g, x, mask, src, accumulate));
}

TCI_FN tci_node *tci_build_index_put_many(tci_graph *g, tci_node *x, tci_node *const *indices,
                                          int n, tci_node *src, bool accumulate)
{
    tci_places p;
    if (!x || !src) {
        return NULL;
    }
    if (!tci_search_one_dtype(g, x, src)) {
        return NULL;
    }
    if (n == 1 && indices[0] && indices[0]->dtype == TC_BOOL) {
        return tci_places_masked(g, x, indices[0], src, accumulate);
    }
    if (!tci_places_of(g, x, indices, n, &p)) {
        return tci_places_end(&p, NULL);
    }
    const tci_mode mode = accumulate ? TCI_MODE_ADD : TCI_MODE_SET;
    src = tci_places_shaped(&p, src, tci_build_expand);
    if (p.n == 1) {
        src = tci_places_along(&p, x, src);
        return tci_places_end(&p, tci_build_index_put(g, x, p.order[0], p.flat, src, mode));
    }
    tci_node *front = tci_places_front(&p, x), *rows = tci_places_source(&p, src);
    tci_node *r = tci_build_index_put(g, front, 0, p.flat, rows, mode);
    tci_words w;
    tci_dim *shape = r ? tci_words_dims(g, &w, p.rank) : NULL;
    if (!shape) {
        return tci_places_end(&p, NULL);
    }
    for (int i = 0; i < p.rank; i++) {
        shape[i] = x->shape[p.order[i]];
    }
    r = tci_build_permute(g, tci_build_reshape(g, r, p.rank, shape), p.rank, p.back);
    return tci_places_end(&p, tci_words_put(g, &w, r));
}

TCI_FN tci_node *tci_build_index_fill(tci_graph *g, tci_node *x, int axis, tci_node *index,
                                      tci_node *value)
{
    int at;
    tci_words w;
    if (!x || !index || !value || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (value->rank || index->rank > 1) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "the index has shape %s, the value %s: expected one axis, and a number",
                       TCI_SHAPE_TEXT(index), TCI_SHAPE_TEXT(value));
        return NULL;
    }
    tci_dim *shape = tci_words_dims(g, &w, x->rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = i == at ? tci_node_count(index) : x->shape[i];
    }
    value = tci_build_cast(g, value, (tc_dtype)x->dtype);
    value = tci_build_broadcast(g, value, x->rank, shape);
    return tci_words_put(g, &w, tci_build_index_put(g, x, at, index, value, TCI_MODE_SET));
}

TCI_FN tci_node *tci_build_take_along_dim(tci_graph *g, tci_node *x, tci_node *index, int axis)
{
    int at;
    tci_words w;
    if (!x || !index || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (x->rank != index->rank || !x->rank) {
        return tci_build_gather(g, x, axis, index); /* which tells what is wrong, if it is */
    }
    tci_dim *shape = tci_words_dims(g, &w, 2 * x->rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        const tci_dim a = x->shape[i], b = index->shape[i];
        shape[i] = i == at || b == 1 ? a : b;
        shape[x->rank + i] = i == at || a == 1 ? b : a;
    }
    x = tci_build_expand(g, x, x->rank, shape);
    index = x ? tci_build_expand(g, index, x->rank, shape + x->rank) : NULL;
    return tci_words_put(g, &w, tci_build_gather(g, x, at, index));
}
