/* api/losses.c - loss functions: cross entropy, margin and embedding losses (CTC is in api/ctc.c).
 *
 * In: inputs, targets, weights. Out: the nodes of the loss's definition, with the requested
 * reduction, rounded to the result dtype once. Purely elementwise losses are built rows of
 * ops/table.h. */
#include "composite_helpers.h"

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

/* x at the class that target names, along axis 1 of [N, C, ...], or of [C]. */
static tc_tensor tci_made_picked(tc_tensor x, tc_tensor target, tc_site here)
{
    int axis = tc_rank(x) > 1 ? 1 : 0;
    return tc_squeeze(tc_gather(x, axis, tc_unsqueeze(target, axis)), axis);
}

/* The weight of each target's class. */
static tc_tensor tci_made_weights(tc_tensor weight, tc_tensor target, tc_site here)
{
    tc_tensor flat = tc_index_select(weight, 0, tc_reshape(target, -1));
    return tci_made_shaped(flat, target, here);
}

/* The share of each target in the mean: the weight of its class, 0 where it does not count. */
static tc_tensor tci_made_shares(tc_tensor weight, tc_tensor counts, tc_tensor target, tc_dtype t,
                                 tc_site here)
{
    tc_tensor share = tc_cast(counts, t);
    return tci_is_none(weight) ? share
                               : tc_where(counts, tci_made_weights(weight, target, here), share);
}

/* -x * share where a target counts; else 0, also where x is infinite or NaN. */
static tc_tensor tci_made_counted(tc_tensor x, tc_tensor share, tc_tensor counts, tc_site here)
{
    return tc_where(counts, tc_neg(tc_mul(x, share)), 0);
}

/* The mean of losses, weighed by shares. Where these are 0 together it is NaN, or infinite, and has
 * no gradient, as in PyTorch 2.15 of a batch whose targets are all ignored. */
static tc_tensor tci_made_shared(const tci_made *m, tc_tensor loss, tc_tensor share)
{
    tc_site here = m->here;
    tc_tensor sum = tc_sum(loss, TC_ALL, false), all = tc_sum(share, TC_ALL, false);
    tc_tensor none = tc_eq(all, 0), mean = tc_div(sum, tc_where(none, 1, all));
    tc_tensor still = tc_div(tc_stop_gradient(sum), tc_stop_gradient(all));
    return tci_made_round(m, tc_where(none, still, mean));
}

TC_API tc_tensor tc_nll_loss_at(tc_tensor input, tc_tensor target, tc_tensor weight,
                                int64_t ignore_index, tc_reduction reduction, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_nll_loss", input, here)) {
        return m.bad;
    }
    if (tc_status_of(target) || tc_rank(input) < 1 || tc_rank(target) != tc_rank(input) - 1) {
        return tc_status_of(target) ? tci_made_end(&m, tc_neg(target))
                                    : tci_made_fail(&m, TC_ERR_SHAPE,
                                                    "input has rank %d, target %d: expected "
                                                    "[N, C, ...] and [N, ...]",
                                                    tc_rank(input), tc_rank(target));
    }
    tc_tensor x = tci_made_wide(&m, input), counts = tc_ne(target, ignore_index);
    tc_tensor safe = tc_where(counts, target, 0);
    tc_tensor share = tci_made_shares(weight, counts, safe, tc_dtype_of(x), here);
    tc_tensor loss = tci_made_counted(tci_made_picked(x, safe, here), share, counts, here);
    if (reduction != TC_REDUCE_MEAN) {
        return tci_made_reduced(&m, loss, reduction);
    }
    return tci_made_shared(&m, loss, share);
}

/* Of targets that are probabilities. */
static tc_tensor tci_made_soft_targets(const tci_made *m, tc_tensor logs, tc_tensor target,
                                       tc_tensor weight, int axis, tc_arg spread,
                                       tc_reduction reduction, double smoothing)
{
    tc_site here = m->here;
    target = tci_made_wide(m, target);
    target = smoothing == 0 ? target
                            : tc_add_at(TC_ARG(tc_mul(target, 1 - smoothing)), spread, here);
    tc_tensor loss = tci_made_affine(tc_mul(target, logs), tci_made_channels(m, weight, logs),
                                     TC_NONE, here);
    return tci_made_reduced(m, tc_neg(tc_sum(loss, TC_AXES(axis), false)), reduction);
}

TC_API tc_tensor tc_cross_entropy_loss_at(tc_tensor input, tc_tensor target, tc_tensor weight,
                                          int64_t ignore_index, tc_reduction reduction,
                                          double label_smoothing, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_cross_entropy_loss", input, here)) {
        return m.bad;
    }
    const int rank = tc_rank(input), axis = rank > 1;
    const bool soft = !tc_status_of(target) && tci_dtype_is_float(tc_dtype_of(target));
    if (tc_status_of(target)) {
        return tci_made_end(&m, tc_neg(target));
    }
    if (rank < 1 || tc_rank(target) != rank - !soft ||
        !(label_smoothing >= 0 && label_smoothing <= 1)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "input has rank %d, target %d, label_smoothing "
                             "is %g: expected [N, C, ...], classes [N, ...] or floats of input's "
                             "shape, and 0 to 1",
                             rank, tc_rank(target), label_smoothing);
    }
    tc_tensor logs = tc_log_softmax(tci_made_wide(&m, input), axis);
    tc_tensor classes = tc_full(m.ctx->handle, tc_size(input, axis), tc_dtype_of(logs));
    tc_arg spread = tci_arg_tensor(tc_div(label_smoothing, classes));
    if (soft) {
        return tci_made_soft_targets(&m, logs, target, weight, axis, spread, reduction,
                                     label_smoothing);
    }
    tc_tensor counts = tc_ne(target, ignore_index), safe = tc_where(counts, target, 0);
    tc_tensor share = tci_made_shares(weight, counts, safe, tc_dtype_of(logs), here);
    tc_tensor loss = tci_made_counted(tci_made_picked(logs, safe, here), share, counts, here);
    if (label_smoothing != 0) {
        tc_tensor all = tci_made_affine(logs, tci_made_channels(&m, weight, logs), TC_NONE, here);
        all = tc_where(counts, tc_sum(all, TC_AXES(axis), false), 0);
        all = tc_mul_at(tci_arg_tensor(all), spread, here);
        loss = tc_sub(tc_mul(loss, 1 - label_smoothing), all);
    }
    if (reduction != TC_REDUCE_MEAN) {
        return tci_made_reduced(&m, loss, reduction);
    }
    return tci_made_shared(&m, loss, share);
}

TC_API tc_tensor tc_kl_div_at(tc_tensor input, tc_tensor target, bool log_target,
                              tc_reduction reduction, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_kl_div", input, here)) {
        return m.bad;
    }
    tc_tensor x = tci_made_wide(&m, input), t = tci_made_wide(&m, target);
    return tci_made_reduced(&m,
                            log_target ? tc_mul(tc_exp(t), tc_sub(t, x))
                                       : tc_sub(tc_xlogy(t, t), tc_mul(t, x)),
                            reduction);
}

TC_API tc_tensor tc_poisson_nll_loss_at(tc_tensor input, tc_tensor target, bool log_input,
                                        bool full, double eps, tc_reduction reduction, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_poisson_nll_loss", input, here)) {
        return m.bad;
    }
    tc_tensor x = tci_made_wide(&m, input), t = tci_made_wide(&m, target);
    tc_tensor loss = log_input ? tc_sub(tc_exp(x), tc_mul(t, x))
                               : tc_sub(x, tc_mul(t, tc_log(tc_add(x, eps))));
    if (full) { /* Stirling's approximation of log(target!) */
        tc_tensor large = tc_gt(t, 1), safe = tc_where(large, t, 1);
        tc_tensor more = tc_sub(tc_mul(safe, tc_log(safe)), safe);
        more = tc_add(more, tc_mul(tc_log(tc_mul(safe, 6.283185307179586)), 0.5));
        loss = tc_add(loss, tc_where(large, more, 0));
    }
    return tci_made_reduced(&m, loss, reduction);
}

/* max(0, x), with the gradient 0 at 0, as in PyTorch 2.15; NaN stays. */
static tc_tensor tci_made_above(tc_tensor x, tc_site here)
{
    return tc_where(tc_le(x, 0), 0, x);
}

TC_API tc_tensor tc_multi_margin_loss_at(tc_tensor input, tc_tensor target, int64_t p,
                                         double margin, tc_tensor weight, tc_reduction reduction,
                                         tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_multi_margin_loss", input, here) ||
        !tci_made_operand(&m, target, "target")) {
        return m.bad;
    }
    int rank = tc_rank(input);
    bool one = rank < 2 && tc_rank(target) < 2; /* sample: [], [C] or [1] of target, as in torch */
    bool fits = (one || (rank == 2 && tc_rank(target) == 1)) && (!one || tc_count(target) == 1) &&
                (tci_is_none(weight) || tc_rank(weight) == 1);
    if (!fits || (p != 1 && p != 2)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "input of rank %d, target of rank %d, p %lld: "
                             "expected [N, C] and [N], or [C] and one class, a weight [C], and 1 "
                             "or 2",
                             rank, tc_rank(target), (long long)p);
    }
    if (one) { /* the result has target's shape */
        input = tc_rank(target) ? tc_reshape(input, 1, -1) : tc_reshape(input, -1);
    }
    tc_tensor x = tci_made_wide(&m, input), own = tc_unsqueeze(target, -1);
    tc_tensor off = tc_add(tc_sub(x, tc_gather(x, -1, own)), margin);
    off = tci_made_above(off, here);
    off = p == 2 ? tc_square(off) : off;
    if (!tci_is_none(weight)) {
        off = tc_mul(off, tc_unsqueeze(tci_made_weights(weight, target, here), -1));
    }
    tc_tensor classes = tc_arange(m.ctx->handle, 0, tc_size(input, -1), 1, TC_I64);
    off = tc_where(tc_eq(classes, own), 0, off);
    return tci_made_reduced(&m, tc_mean(off, TC_AXES(-1), false), reduction);
}

TC_API tc_tensor tc_multilabel_soft_margin_loss_at(tc_tensor input, tc_tensor target,
                                                   tc_tensor weight, tc_reduction reduction,
                                                   tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_multilabel_soft_margin_loss", input, here)) {
        return m.bad;
    }
    tc_tensor x = tci_made_wide(&m, input);
    tc_tensor loss = tc_binary_cross_entropy_with_logits(x, target, 1, 1, TC_REDUCE_NONE);
    loss = tci_made_affine(loss, weight, TC_NONE, here);
    return tci_made_reduced(&m, tc_mean(loss, TC_AXES(-1), false), reduction);
}

TC_API tc_tensor tc_cosine_embedding_loss_at(tc_tensor x1, tc_tensor x2, tc_tensor target,
                                             double margin, tc_reduction reduction, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_cosine_embedding_loss", x1, here) ||
        !tci_made_operand(&m, target, "target")) {
        return m.bad;
    }
    if (tc_rank(target) && tc_rank(target) != tc_rank(x1) - 1) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "x1 has shape %s, target %s: expected a target of each row, x1's axes "
                             "but the last, or a 0-d one (tc_reshape drops axes of size 1)",
                             tci_made_shape(x1).text, tci_made_shape(target).text);
    }
    tc_tensor a = tci_made_wide(&m, x1), b = tci_made_wide(&m, x2);
    tc_tensor sizes = tc_mul(tc_add(tc_sum(tc_square(a), TC_AXES(-1), false), 1e-12),
                             tc_add(tc_sum(tc_square(b), TC_AXES(-1), false), 1e-12));
    tc_tensor near = tc_div(tc_sum(tc_mul(a, b), TC_AXES(-1), false), tc_sqrt(sizes));
    tc_tensor apart = tci_made_above(tc_sub(near, margin), here);
    return tci_made_reduced(&m,
                            tc_add(tc_where(tc_eq(target, 1), tc_sub(1, near), 0),
                                   tc_where(tc_eq(target, -1), apart, 0)),
                            reduction);
}

TC_API tc_tensor tc_triplet_margin_loss_at(tc_tensor anchor, tc_tensor positive, tc_tensor negative,
                                           double margin, double p, double eps, bool swap,
                                           tc_reduction reduction, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_triplet_margin_loss", anchor, here) ||
        !tci_made_operand(&m, positive, "positive") ||
        !tci_made_operand(&m, negative, "negative")) {
        return m.bad;
    }
    bool same = tc_rank(anchor) == tc_rank(positive) && tc_rank(anchor) == tc_rank(negative);
    if (!same || !(margin > 0)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "margin %g, ranks %d, %d and %d: expected a "
                             "margin above 0 and equal ranks",
                             margin, tc_rank(anchor), tc_rank(positive), tc_rank(negative));
    }
    tc_tensor wide = tci_made_wide(&m, anchor);
    tc_tensor near = tc_pairwise_distance(wide, tci_made_wide(&m, positive), p, eps, false);
    tc_tensor far = tc_pairwise_distance(wide, tci_made_wide(&m, negative), p, eps, false);
    if (swap) {
        far = tc_minimum(far, tc_pairwise_distance(tci_made_wide(&m, positive),
                                                   tci_made_wide(&m, negative), p, eps, false));
    }
    tc_tensor loss = tci_made_above(tc_sub(tc_add(near, margin), far), here);
    return tci_made_reduced(&m, loss, reduction);
}

#pragma pop_macro("TC_HERE")
