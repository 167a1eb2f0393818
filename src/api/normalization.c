/* api/normalization.c - normalization layers: RMS, batch, group, instance and local response norm.
 *
 * In: a tensor, weights and biases of its channels. Out: a handle to the composition of public ops
 * that defines the op, computed in at least f32 and rounded once. */
#include "composite_helpers.h"

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

TCI_FN tc_tensor tci_made_channels(const tci_made *m, tc_tensor p, tc_tensor x)
{
    for (int i = 2; !tci_is_none(p) && i < tc_rank(x); i++) {
        p = tc_unsqueeze_at(p, -1, m->here);
    }
    return p;
}

TCI_FN tc_tensor tci_made_affine(tc_tensor x, tc_tensor weight, tc_tensor bias, tc_site here)
{
    x = tci_is_none(weight) ? x : tc_mul(x, weight);
    return tci_is_none(bias) ? x : tc_add(x, bias);
}

/* How many axes that are, where they are the last ones in order; else 0. */
static int64_t tci_made_last_axes(tc_tensor x, tc_axes axes)
{
    const int rank = tc_rank(x);
    bool last = axes.items && axes.n > 0 && axes.n <= rank;
    for (int i = 0; i < axes.n && last; i++) {
        const int axis = axes.items[i] < 0 ? axes.items[i] + rank : axes.items[i];
        last = axis == rank - axes.n + i;
    }
    return last ? axes.n : 0;
}

TC_API tc_tensor tc_rms_norm_at(tc_tensor x, tc_axes axes, tc_tensor weight, double eps,
                                tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_rms_norm", x, here)) {
        return m.bad;
    }
    tc_tensor wide = tci_made_wide(&m, x);
    tc_tensor square = tc_add(tc_mean(tc_square(wide), axes, true), eps);
    const tc_tensor y = tci_made_affine(tc_mul(wide, tc_rsqrt(square)), weight, TC_NONE, here);
    const int64_t n_axes = axes.all ? tc_rank(x) : tci_made_last_axes(x, axes);
    return tci_made_round(&m, n_axes && !tci_is_none(weight)
                                  ? tci_made_named(&m, TCI_NAMED_RMS_NORM, y,
                                                   TC_TENSORS(wide, weight), eps, 1, &n_axes)
                                  : y);
}

TC_API tc_tensor tc_batch_norm_at(tc_tensor x, tc_tensor running_mean, tc_tensor running_var,
                                  tc_tensor weight, tc_tensor bias, bool training, double eps,
                                  tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_batch_norm", x, here)) {
        return m.bad;
    }
    int rank = tc_rank(x);
    if (rank < 1 || (training && rank < 2)) {
        return tci_made_fail(&m, TC_ERR_SHAPE, "x has rank %d: expected [N, C, ...]", rank);
    }
    if (!training && (tci_is_none(running_mean) || tci_is_none(running_var))) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "running_mean or running_var is missing: only "
                             "training does without");
    }
    tc_tensor y = tci_made_wide(&m, x);
    tc_tensor mean = tci_made_channels(&m, running_mean, x);
    tc_tensor var = tci_made_channels(&m, running_var, x);
    if (training) {
        tci_words w;
        int *over = tci_words_ints(&m.ctx->graph, &w, rank);
        if (!over) {
            return tci_made_fail(&m, TC_ERR_MEMORY, "out of memory");
        }
        for (int i = 0; i + 1 < rank; i++) {
            over[i] = i + (i > 0); /* all axes but that of the channels */
        }
        tc_var_mean_at(y, TC_AXES_N(over, rank - 1), 0, true, &var, &mean, here);
        tci_words_put(&m.ctx->graph, &w, NULL);
    }
    const tc_tensor wide = y;
    y = tc_mul(tc_sub(y, mean), tc_rsqrt(tc_add(var, eps)));
    y = tci_made_affine(y, tci_made_channels(&m, weight, x), tci_made_channels(&m, bias, x), here);
    const int64_t has[] = {!tci_is_none(weight), !tci_is_none(bias)};
    return tci_made_round(&m, training ? y
                                       : tci_made_named(&m, TCI_NAMED_BATCH_NORM, y,
                                                        TC_TENSORS(wide, weight, bias, running_mean,
                                                                   running_var),
                                                        eps, 2, has));
}

/* Each group of channels of each image for itself. */
static tc_tensor tci_made_groups(const tci_made *m, tci_call_name call, tc_tensor x, int64_t groups,
                                 tc_tensor weight, tc_tensor bias, double eps)
{
    tc_site here = m->here;
    int64_t rest = tc_dim_div(tci_made_others(x, 0), groups);
    tc_tensor rows = tc_reshape(tci_made_wide(m, x), tc_size(x, 0), groups, rest);
    rows = tc_layer_norm(rows, TC_AXES(2), TC_NONE, TC_NONE, eps);
    rows = tci_made_affine(tci_made_shaped(rows, x, here), tci_made_channels(m, weight, x),
                           tci_made_channels(m, bias, x), here);
    const int64_t words[] = {!tci_is_none(weight), !tci_is_none(bias), groups};
    return tci_made_round(m, tci_dim_is_known(groups)
                                 ? tci_made_named(m, call, rows,
                                                  TC_TENSORS(tci_made_wide(m, x), weight, bias),
                                                  eps, 3, words)
                                 : rows);
}

TC_API tc_tensor tc_group_norm_at(tc_tensor x, int64_t groups, tc_tensor weight, tc_tensor bias,
                                  double eps, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_group_norm", x, here)) {
        return m.bad;
    }
    if (tc_rank(x) < 2 || groups < 1 || !tci_dim_divides(groups, tc_size(x, 1))) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "x has rank %d and %lld groups: expected "
                             "[N, C, ...] and groups that divide C",
                             tc_rank(x), (long long)groups);
    }
    return tci_made_groups(&m, TCI_NAMED_GROUP_NORM, x, groups, weight, bias, eps);
}

TC_API tc_tensor tc_instance_norm_at(tc_tensor x, tc_tensor weight, tc_tensor bias, double eps,
                                     tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_instance_norm", x, here)) {
        return m.bad;
    }
    if (tc_rank(x) < 3) {
        return tci_made_fail(&m, TC_ERR_SHAPE, "x has rank %d: expected [N, C, ...]", tc_rank(x));
    }
    return tci_made_groups(&m, TCI_NAMED_INSTANCE_NORM, x, tc_size(x, 1), weight, bias, eps);
}

TC_API tc_tensor tc_local_response_norm_at(tc_tensor x, int64_t size, double alpha, double beta,
                                           double k, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_local_response_norm", x, here)) {
        return m.bad;
    }
    if (tc_rank(x) < 3 || size < 1 || size > 1024) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "x has rank %d, size is %lld: expected "
                             "[N, C, ...] and 1 to 1024",
                             tc_rank(x), (long long)size);
    }
    tc_tensor wide = tci_made_wide(&m, x), sum = TC_NONE;
    tc_tensor squares = tc_pad(tc_square(wide), 1, size / 2, (size - 1) / 2, 0);
    for (int64_t i = 0; i < size; i++) {
        tc_tensor part = tc_slice(squares, 1, i, tc_dim_add(tc_size(x, 1), i), 1);
        sum = i ? tc_add(sum, part) : part;
    }
    tc_tensor base = tc_add(tc_mul(sum, alpha / (double)size), k);
    return tci_made_round(&m, tc_div(wide, tc_pow(base, beta)));
}

#pragma pop_macro("TC_HERE")
