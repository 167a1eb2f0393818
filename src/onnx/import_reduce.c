/* onnx/import_reduce.c - imports ONNX operators that reduce or normalize over axes: reductions,
 * cumulative sums, TopK, normalizations and losses. */
#include "operator_table.h"
#include "call_site.h"

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

/* ---- normalizations ---- */

TCI_OX_MAKE(batch_norm)
{
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), bias = tci_ox_in(o, 2);
    tc_tensor mean = tci_ox_in(o, 3), var = tci_ox_in(o, 4);
    double eps = tci_ox_real(o, "epsilon", 1e-5), momentum = tci_ox_real(o, "momentum", 0.9);
    tc_dtype d = tc_dtype_of(x);
    if (o->opset < 7 && !tci_ox_int(o, "is_test", 0) && tci_ox_wants(o, 1)) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "training before opset 14 is not supported");
    }
    bool training = tci_ox_int(o, "training_mode", 0) != 0;
    tci_ox_out(o, 0,
               tc_batch_norm(x, tc_cast(mean, d), tc_cast(var, d), tc_cast(scale, d),
                             tc_cast(bias, d), training, eps));
    if (training && (tci_ox_wants(o, 1) || tci_ox_wants(o, 2))) {
        int rank, n = 0;
        tc_tensor now_var, now_mean;
        tci_ox_sizes(o, x, &rank);
        int *axes = TCI_NEW_ARRAY(o->s, int, rank);
        for (int i = 0; i < rank; i++) {
            axes[n] = i;
            n += i != 1;
        }
        tc_var_mean(x, TC_AXES_N(axes, n), 0, false, &now_var, &now_mean);
        tci_ox_out(o, 1, tc_add(tc_mul(mean, momentum), tc_mul(now_mean, 1 - momentum)));
        tci_ox_out(o, 2, tc_add(tc_mul(var, momentum), tc_mul(now_var, 1 - momentum)));
    }
}

TCI_OX_MAKE(instance_norm)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_out(o, 0,
               tc_instance_norm(x, tci_ox_in(o, 1), tci_ox_in(o, 2),
                                tci_ox_real(o, "epsilon", 1e-5)));
}

/* Axes from `axis` on. */
static const int *tci_ox_axes_from(const tci_ox_op *o, tc_tensor x, int *n)
{
    int rank;
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank);
    int *axes = TCI_NEW_ARRAY(o->s, int, rank);
    *n = rank - axis;
    for (int i = 0; i < *n; i++) {
        axes[i] = axis + i;
    }
    return axes;
}

TCI_OX_MAKE(layer_norm)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), bias = tci_ox_maybe(o, 2);
    const int *axes = tci_ox_axes_from(o, x, &n);
    double eps = tci_ox_real(o, "epsilon", 1e-5);
    tc_tensor y = tc_layer_norm(x, TC_AXES_N(axes, n), TC_NONE, TC_NONE, eps);
    y = tc_mul(y, scale);
    tci_ox_out(o, 0, tc_cast(tci_ox_given(bias) ? tc_add(y, bias) : y, tc_dtype_of(x)));
    if (tci_ox_wants(o, 1) || tci_ox_wants(o, 2)) {
        tc_tensor var, mean;
        tc_dtype d = tci_ox_dtype(o, tci_ox_int(o, "stash_type", 1));
        tc_var_mean(tc_cast(x, d), TC_AXES_N(axes, n), 0, true, &var, &mean);
        tci_ox_out(o, 1, mean);
        tci_ox_out(o, 2, tc_rsqrt(tc_add(var, eps)));
    }
}

TCI_OX_MAKE(rms_norm)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1);
    const int *axes = tci_ox_axes_from(o, x, &n);
    tc_dtype d = tci_ox_dtype(o, tci_ox_int(o, "stash_type", 1));
    tc_tensor y = tc_rms_norm(tc_cast(x, d), TC_AXES_N(axes, n), TC_NONE,
                              tci_ox_real(o, "epsilon", 1e-5));
    tci_ox_out(o, 0, tc_mul(tc_cast(y, tc_dtype_of(x)), scale));
}

TCI_OX_MAKE(group_norm)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), bias = tci_ox_in(o, 2);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t groups = tci_ox_int(o, "num_groups", 1);
    if (rank < 2 || groups < 1) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d axes in %d groups", rank, (int)groups);
    }
    if (o->opset < 21) { /* one scale for each group */
        int64_t each = tc_dim_div(sizes[1], groups);
        scale = tc_repeat_interleave(scale, each, 0, sizes[1]);
        bias = tc_repeat_interleave(bias, each, 0, sizes[1]);
    }
    tci_ox_out(o, 0, tc_group_norm(x, groups, scale, bias, tci_ox_real(o, "epsilon", 1e-5)));
}

/* A window of channels is size - 1 - (size - 1) / 2 to the right: pools pad so on the left. */
TCI_OX_MAKE(lrn)
{
    tc_tensor x = tci_ox_in(o, 0);
    int64_t size = tci_ox_int(o, "size", 1);
    double alpha = tci_ox_real(o, "alpha", 1e-4), k = tci_ox_real(o, "bias", 1);
    if (size < 1 || size > 4096) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "size %d", (int)size);
    }
    tc_tensor sum = tc_pad(tc_square(x), 1, (size - 1) / 2, size - 1 - (size - 1) / 2, 0);
    sum = tc_sum(tc_unfold(sum, 1, size, 1), TC_AXES(-1), false);
    sum = tc_add(tc_mul(sum, alpha / (double)size), k);
    tci_ox_out(o, 0, tc_div(x, tc_pow(sum, tci_ox_real(o, "beta", 0.75))));
}

TCI_OX_MAKE(lp_norm)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank);
    tc_tensor norm = tc_norm(x, (double)tci_ox_int(o, "p", 2), TC_AXES(axis), true);
    tci_ox_out(o, 0, tc_where(tc_eq(norm, 0), 0, tc_div(x, norm)));
}

TCI_OX_MAKE(mean_variance)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0), var, mean;
    const int64_t *list = tci_ox_ints(o, "axes", &n);
    static const int64_t usual[] = {0, 2, 3};
    tci_ox_sizes(o, x, &rank);
    n = list ? n : 3;
    int *axes = TCI_NEW_ARRAY(o->s, int, n + 1);
    for (int i = 0; i < n; i++) {
        axes[i] = tci_ox_axis(o, (list ? list : usual)[i], rank);
    }
    tc_var_mean(x, TC_AXES_N(axes, n), 0, true, &var, &mean);
    tci_ox_out(o, 0, tc_div(tc_sub(x, mean), tc_add(tc_sqrt(var), 1e-9)));
}

/* ---- losses ---- */

static tc_reduction tci_ox_reduction(const tci_ox_op *o)
{
    const char *r = tci_ox_text(o, "reduction", "mean");
    return !strcmp(r, "none") ? TC_REDUCE_NONE : !strcmp(r, "sum") ? TC_REDUCE_SUM : TC_REDUCE_MEAN;
}

/* Classes that do not count must be indices all the same: they become class 0 with weight 0. */
static tc_tensor tci_ox_loss(const tci_ox_op *o, tc_tensor logs)
{
    tc_tensor target = tc_cast(tci_ox_in(o, 1), TC_I64), weight = tci_ox_maybe(o, 2);
    int64_t ignored = tci_ox_int(o, "ignore_index", INT64_MIN);
    tc_reduction how = tci_ox_reduction(o);
    tc_tensor counts = tc_ne(target, ignored);
    target = tc_where(counts, target, 0);
    tc_tensor at = tc_gather(logs, 1, tc_unsqueeze(target, 1));
    at = tc_neg(tc_squeeze(at, 1));
    tc_tensor w = tc_cast(counts, tc_dtype_of(logs));
    if (tci_ox_given(weight)) {
        int rank;
        const int64_t *sizes = tci_ox_sizes(o, target, &rank);
        tc_tensor each = tc_index_select(weight, 0, tc_reshape(target, tc_count(target)));
        w = tc_mul(w, tci_ox_shape_as(o, each, rank, sizes));
    }
    tc_tensor loss = tc_mul(at, w);
    if (how == TC_REDUCE_NONE) {
        return loss;
    }
    loss = tc_sum(loss, TC_ALL, false);
    return how == TC_REDUCE_SUM ? loss : tc_div(loss, tc_sum(w, TC_ALL, false));
}

TCI_OX_MAKE(nll_loss)
{
    tci_ox_out(o, 0, tci_ox_loss(o, tci_ox_in(o, 0)));
}

TCI_OX_MAKE(cross_entropy)
{
    tc_tensor logs = tc_log_softmax(tci_ox_in(o, 0), 1);
    tci_ox_out(o, 0, tci_ox_loss(o, logs));
    tci_ox_out(o, 1, logs);
}
