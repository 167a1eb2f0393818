/* onnx/import_reduce.c - imports ONNX reductions along axes: ReduceSum and its like, ArgMax,
 * CumSum, TopK. */
#include "operator_table.h"
#include "user_call_site.h"

#include <math.h>
#include <string.h>

/* Axes of a reduction in operand 1 or, before it was one, attribute `axes`. *all: of all axes. */
static const int *tci_ox_axes(const tci_ox_op *o, int rank, int *n, bool *all)
{
    const int64_t *list = tci_ox_has(o, 1) ? tci_ox_need_ints(o, 1, "the axes", n)
                                           : tci_ox_ints(o, "axes", n);
    *n = list ? *n : 0;
    *all = *n == 0 && !tci_ox_int(o, "noop_with_empty_axes", 0);
    int *axes = TCI_NEW_ARRAY(o->s, int, *n + 1);
    for (int i = 0; i < *n; i++) {
        axes[i] = tci_ox_axis(o, list[i], rank);
    }
    return axes;
}

/* Max and Min over nothing: the least and the largest number. */
static tc_tensor tci_ox_extreme(const tci_ox_op *o, tc_tensor x, tc_axes axes, bool keeps, bool max)
{
    tc_dtype d = tc_dtype_of(x);
    int64_t n = tc_count(x);
    if (n != 0) {
        return max ? tc_max(x, axes, keeps) : tc_min(x, axes, keeps);
    }
    tc_tensor ends = tc_full(o->ctx, max ? -HUGE_VAL : HUGE_VAL, TC_F64); /* the cast saturates */
    tc_tensor shape = tc_sum(tc_cast(x, TC_F64), axes, keeps);
    return d == TC_BOOL ? tc_eq(shape, max ? 1 : 0) : tc_cast(tc_add(shape, ends), d);
}

static tc_tensor tci_ox_reduce_by(const tci_ox_op *o, const char *call, tc_tensor x, tc_axes axes,
                                  bool keeps)
{
    bool floats = tci_ox_is_float(tc_dtype_of(x));
    if (!strcmp(call, "max") || !strcmp(call, "min")) {
        return tci_ox_extreme(o, x, axes, keeps, !strcmp(call, "max"));
    } else if (!strcmp(call, "prod")) {
        return tc_prod(x, axes, keeps);
    } else if (!strcmp(call, "mean")) {
        return floats ? tc_mean(x, axes, keeps)
                      : tc_trunc(tc_mean(tc_cast(x, TC_F64), axes, keeps));
    } else if (!strcmp(call, "logsumexp")) {
        return tc_logsumexp(floats ? x : tc_cast(x, TC_F64), axes, keeps);
    } else if (!strcmp(call, "l1")) {
        return tc_sum(tc_abs(x), axes, keeps);
    } else if (!strcmp(call, "l2")) {
        return tc_sqrt(tc_sum(tc_square(floats ? x : tc_cast(x, TC_F64)), axes, keeps));
    } else if (!strcmp(call, "sum_square")) {
        return tc_sum(tc_square(x), axes, keeps);
    }
    x = tc_sum(x, axes, keeps);
    return strcmp(call, "log_sum") ? x : tc_log(floats ? x : tc_cast(x, TC_F64));
}

TCI_OX_MAKE(reduce)
{
    int n, rank;
    bool all;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    const int *list = tci_ox_axes(o, rank, &n, &all);
    tc_axes axes = all ? TC_ALL : TC_AXES_N(list, n);
    bool keeps = tci_ox_int(o, "keepdims", 1) != 0;
    tci_ox_out(o, 0, tc_cast(tci_ox_reduce_by(o, o->row->call, x, axes, keeps), tc_dtype_of(x)));
}

TCI_OX_MAKE(arg)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    bool keeps = tci_ox_int(o, "keepdims", 1) != 0, max = !strcmp(o->row->call, "argmax");
    bool last = tci_ox_int(o, "select_last_index", 0) != 0;
    x = last ? tc_flip(x, axis) : x;
    tc_tensor at = max ? tc_argmax(x, axis, keeps) : tc_argmin(x, axis, keeps);
    tci_ox_out(o, 0, last ? tc_sub(tc_dim_sub(tc_size(x, axis), 1), at) : at);
}

TCI_OX_MAKE(cumulative)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tc_dtype d = tc_dtype_of(x);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_need_int(o, 1, "the axis"), rank);
    bool back = tci_ox_int(o, "reverse", 0) != 0, sum = !strcmp(o->row->call, "cumsum");
    x = back ? tc_flip(x, axis) : x;
    if (tci_ox_int(o, "exclusive", 0)) {
        x = tc_slice(x, axis, 0, tc_dim_sub(tc_size(x, axis), 1), 1);
        x = tc_pad(x, axis, 1, 0, sum ? 0 : 1);
    }
    x = sum ? tc_cumsum(x, axis) : tc_cumprod(x, axis);
    tci_ox_out(o, 0, tc_cast(back ? tc_flip(x, axis) : x, d));
}

TCI_OX_MAKE(top_k)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), values, places;
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank);
    int64_t k = tci_ox_has(o, 1) ? tci_ox_need_int(o, 1, "k") : tci_ox_int(o, "k", 1);
    tc_topk(x, axis, k, tci_ox_int(o, "largest", 1) != 0, &values, &places);
    tci_ox_out(o, 0, values);
    tci_ox_out(o, 1, places);
}
