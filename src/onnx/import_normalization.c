/* onnx/import_normalization.c - imports ONNX normalization layers: batch, instance, layer, RMS,
 * group and local response normalization. */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>

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
        tci_ox_fail(o, TC_ERR_SHAPE, "%d axes in %" PRId64 " groups", rank, groups);
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
        tci_ox_fail(o, TC_ERR_ARGUMENT, "size %" PRId64, size);
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
