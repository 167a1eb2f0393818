/* onnx/import_indexing.c - imports ONNX gather and scatter operators, and those whose output size
 * depends on values. */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <string.h>

/* One axis of all elements. */
static tc_tensor tci_ox_flat(const tci_ox_op *o, tc_tensor x)
{
    return tc_reshape(x, tc_count(x));
}

static int64_t tci_ox_product(const int64_t *sizes, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) {
        n = tc_dim_mul(n, sizes[i]);
    }
    return n;
}

TCI_OX_MAKE(gather)
{
    int rank, rank_at, n = 0;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *places = tci_ox_sizes(o, at, &rank_at);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + rank_at);
    for (int i = 0; i < rank; i++) {
        for (int j = 0; j < rank_at && i == axis; j++) {
            to[n++] = places[j];
        }
        if (i != axis) {
            to[n++] = sizes[i];
        }
    }
    const tci_ox_known *known = tci_ox_known_of(o, o->in[1]);
    if (known && known->n == 1 && tci_dim_is_known(known->cells[0].i)) {
        int64_t i = known->cells[0].i;
        i = i < 0 ? tc_dim_add(sizes[axis], i) : i;
        x = tc_slice(x, axis, i, tc_dim_add(i, 1), 1);
    } else {
        x = tc_index_select(x, axis, tci_ox_flat(o, at));
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, n, to));
}

TCI_OX_MAKE(gather_elements)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    tci_ox_out(o, 0, tc_gather(x, tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank), tci_ox_in(o, 1)));
}

/* Indices [..., k] into the axes of x from `first` on as one index into them as one axis. */
static tc_tensor tci_ox_flat_index(const tci_ox_op *o, tc_tensor at, const int64_t *sizes,
                                   int first, int k)
{
    tc_tensor sum = TC_NONE;
    for (int i = 0; i < k; i++) {
        tc_tensor one = tc_cast(tc_select(at, -1, i), TC_I64);
        one = tc_where(tc_lt(one, 0), tc_add(one, sizes[first + i]), one);
        one = tc_mul(one, tci_ox_product(sizes, first + i + 1, first + k));
        sum = i ? tc_add(sum, one) : one;
    }
    return sum;
}

/* How many axes an element of `at` indexes, at most `most`. */
static int tci_ox_index_size(const tci_ox_op *o, int rank_at, const int64_t *at, int most)
{
    int64_t k = rank_at > 0 ? at[rank_at - 1] : 0;
    if (!tci_dim_is_known(k) || k < 1 || k > most) {
        tci_ox_fail(o, TC_ERR_SHAPE, "indices do not fit the axes of operand 0");
    }
    return (int)k;
}

TCI_OX_MAKE(gather_nd)
{
    int rank, rank_at, n = 0;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *places = tci_ox_sizes(o, at, &rank_at);
    int64_t batches = tci_ox_int(o, "batch_dims", 0);
    if (batches < 0 || batches >= rank_at) {
        tci_ox_fail(o, TC_ERR_SHAPE, "batch_dims %" PRId64 " of indices of %d axes", batches,
                    rank_at);
    }
    int b = (int)batches, k = tci_ox_index_size(o, rank_at, places, rank - b);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + rank_at);
    int64_t batch = tci_ox_product(sizes, 0, b), each = tci_ox_product(sizes, b, b + k);
    for (int i = 0; i < rank_at - 1; i++) {
        to[n++] = places[i];
    }
    for (int i = b + k; i < rank; i++) {
        to[n++] = sizes[i];
    }
    tc_tensor flat = tci_ox_flat_index(o, at, sizes, b, k);
    if (b) {
        flat = tc_reshape(flat, batch, -1);
        flat = tc_add(flat, tc_mul(tci_ox_places(o, batch, 2, 0), each));
    }
    x = tc_reshape(x, tc_dim_mul(batch, each), tci_ox_product(sizes, b + k, rank));
    tci_ox_out(o, 0, tci_ox_shape_as(o, tc_index_select(x, 0, tci_ox_flat(o, flat)), n, to));
}

static tc_tensor tci_ox_scatter_by(const tci_ox_op *o, tc_tensor x, int axis, tc_tensor at,
                                   tc_tensor src)
{
    const char *how = tci_ox_text(o, "reduction", "none");
    src = tc_cast(src, tc_dtype_of(x));
    return !strcmp(how, "add")   ? tc_scatter_add(x, axis, at, src)
           : !strcmp(how, "mul") ? tc_scatter_prod(x, axis, at, src)
           : !strcmp(how, "min") ? tc_scatter_min(x, axis, at, src)
           : !strcmp(how, "max") ? tc_scatter_max(x, axis, at, src)
                                 : tc_scatter(x, axis, at, src);
}

TCI_OX_MAKE(scatter_elements)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    tci_ox_out(o, 0, tci_ox_scatter_by(o, x, axis, tci_ox_in(o, 1), tci_ox_in(o, 2)));
}

TCI_OX_MAKE(scatter_nd)
{
    int rank, rank_at;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1), src = tci_ox_in(o, 2);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *places = tci_ox_sizes(o, at, &rank_at);
    int k = tci_ox_index_size(o, rank_at, places, rank);
    int64_t rows = tci_ox_product(places, 0, rank_at - 1), rest = tci_ox_product(sizes, k, rank);
    tc_tensor flat = tc_reshape(tci_ox_flat_index(o, at, sizes, 0, k), rows, 1);
    flat = tc_expand(flat, rows, rest);
    x = tc_reshape(x, tci_ox_product(sizes, 0, k), rest);
    x = tci_ox_scatter_by(o, x, 0, flat, tc_reshape(src, rows, rest));
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, rank, sizes));
}

/* A cache with an update written along an axis, from an index of each batch on. */
TCI_OX_MAKE(tensor_scatter)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), src = tci_ox_in(o, 1), from = tci_ox_maybe(o, 2);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -2), rank);
    const int64_t *sizes = tci_ox_sizes(o, src, &rank);
    tc_tensor at = tci_ox_places(o, sizes[axis], rank, axis);
    if (tci_ox_given(from)) {
        int64_t *batch = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int i = 0; i < rank; i++) {
            batch[i] = i ? 1 : sizes[0];
        }
        at = tc_add(at, tci_ox_shape_as(o, tc_cast(from, TC_I64), rank, batch));
    }
    if (!strcmp(tci_ox_text(o, "mode", "linear"), "circular")) {
        at = tc_remainder(at, tc_size(x, axis));
    }
    tci_ox_out(o, 0, tc_scatter(x, axis, tc_expand_at(at, rank, sizes, o->here), src));
}

TCI_OX_MAKE(one_hot)
{
    int rank;
    tc_tensor at = tc_cast(tci_ox_in(o, 0), TC_I64), values = tci_ox_in(o, 2);
    int64_t depth = (int64_t)tci_ox_need_real(o, 1, "depth");
    tci_ox_sizes(o, at, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank + 1);
    at = tc_unsqueeze(tc_where(tc_lt(at, 0), tc_add(at, depth), at), axis);
    tc_tensor on = tc_eq(at, tci_ox_places(o, depth, rank + 1, axis));
    tci_ox_out(o, 0, tc_where(on, tc_select(values, 0, 1), tc_select(values, 0, 0)));
}

TCI_OX_MAKE(reverse_sequence)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), lengths = tc_cast(tci_ox_in(o, 1), TC_I64);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int batch = tci_ox_axis(o, tci_ox_int(o, "batch_axis", 1), rank);
    int time = tci_ox_axis(o, tci_ox_int(o, "time_axis", 0), rank);
    int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank);
    for (int i = 0; i < rank; i++) {
        wide[i] = i == batch ? sizes[i] : 1;
    }
    lengths = tci_ox_shape_as(o, lengths, rank, wide);
    tc_tensor t = tci_ox_places(o, sizes[time], rank, time);
    t = tc_where(tc_lt(t, lengths), tc_sub(tc_sub(lengths, 1), t), t);
    tci_ox_out(o, 0, tc_take_along_dim(x, t, time));
}

/* ---- sizes that follow from values ---- */

TCI_OX_MAKE(non_zero)
{
    tc_tensor x = tci_ox_in(o, 0), at, count;
    tc_nonzero(x, tc_count(x), &at, &count);
    tci_ox_out_counted(o, 0, tc_transpose(at, 0, 1), count, 1);
}

TCI_OX_MAKE(compress)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), condition = tci_ox_in(o, 1), at, count;
    tci_ox_sizes(o, x, &rank);
    bool flat = !tci_ox_attr(o, "axis");
    x = flat ? tci_ox_flat(o, x) : x;
    int axis = flat ? 0 : tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    tc_nonzero(condition, tc_count(condition), &at, &count);
    tci_ox_out_counted(o, 0, tc_index_select(x, axis, tci_ox_flat(o, at)), count, axis);
}

/* Unsorted: in the order in which the first of equal ones come. */
TCI_OX_MAKE(unique)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), values, inverse, counts, count;
    tci_ox_sizes(o, x, &rank);
    bool flat = !tci_ox_attr(o, "axis");
    x = flat ? tci_ox_flat(o, x) : x;
    int axis = flat ? 0 : tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    int64_t n = tc_size(x, axis);
    tc_unique(x, axis, n, &values, &inverse, &counts, &count);
    tc_tensor first = tc_expand(tc_full(o->ctx, n, TC_I64), n);
    first = tc_scatter_min(first, 0, inverse, tci_ox_places(o, n, 1, 0));
    if (!tci_ox_int(o, "sorted", 1)) {
        tc_tensor order = tc_argsort(first, 0, false);
        values = tc_index_select(values, axis, order);
        counts = tc_index_select(counts, 0, order);
        first = tc_index_select(first, 0, order);
        inverse = tc_index_select(tc_argsort(order, 0, false), 0, inverse);
    }
    tci_ox_out_counted(o, 0, values, count, axis);
    tci_ox_out_counted(o, 1, first, count, 0);
    tci_ox_out(o, 2, inverse);
    tci_ox_out_counted(o, 3, counts, count, 0);
}
