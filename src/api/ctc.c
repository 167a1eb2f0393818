/* api/ctc.c - connectionist temporal classification (CTC) loss.
 *
 * In: log-probabilities for each time step. Out: the loss. The sum over all alignments of a label
 * sequence is a recurrence over time: one tc_scan for all sequences and labels at once, whose
 * gradient follows. */
#include "control_flow.h"
#include "composite_helpers.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

#define TCI_CTC_NEVER -1e30 /* the logarithm of 0, which has a gradient */

typedef struct tci_ctc {
    tc_site here;
    tc_tensor jump;    /* whether a label may follow the one before the blank before it */
    tc_tensor lengths; /* [batch, 1] */
} tci_ctc;

/* x [batch, labels] of n labels before, which are never. */
static tc_tensor tci_ctc_before(tc_tensor x, int64_t n, tc_site here)
{
    return tc_pad(x, -1, n, -n, TCI_CTC_NEVER);
}

/* x[0]: what each label emits at this time, x[1]: the time. */
static tc_status tci_ctc_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                              tc_tensor *next, tc_tensor *y)
{
    (void)y;
    const tci_ctc *q = (const tci_ctc *)user;
    tc_site here = q->here;
    tc_tensor far = tc_where(q->jump, tci_ctc_before(carry[0], 2, here), TCI_CTC_NEVER);
    tc_tensor near = tc_logaddexp(carry[0], tci_ctc_before(carry[0], 1, here));
    tc_tensor ways = tc_add(tc_logaddexp(near, far), x[0]);
    next[0] = tc_where(tc_lt(x[1], q->lengths), tc_maximum(ways, TCI_CTC_NEVER), carry[0]);
    return TC_OK;
}

/* [batch, S] as [batch, 2 S + 1]: a blank before each and at the end. */
static tc_tensor tci_ctc_labels(const tci_made *m, tc_tensor targets, int64_t blank)
{
    tc_site here = m->here;
    tc_tensor blanks = tc_full(m->ctx->handle, blank, TC_I64);
    tc_tensor each = tci_made_like(blanks, targets, here);
    tc_tensor pairs = tc_cat(TC_TENSORS(tc_unsqueeze(each, -1), tc_unsqueeze(targets, -1)), -1);
    pairs = tc_reshape(pairs, tc_size(targets, 0), tc_dim_mul(2, tc_size(targets, 1)));
    return tc_pad(pairs, -1, 0, 1, blank);
}

/* -log of all ways that end at the last label or the blank after it. */
static tc_tensor tci_ctc_loss(const tci_made *m, tc_tensor logs, tc_tensor labels,
                              tc_tensor lengths, tc_tensor target_lengths, int64_t blank)
{
    tc_site here = m->here;
    const int64_t batch = tc_size(labels, 0), n = tc_size(labels, 1), times = tc_size(logs, 0);
    tc_tensor twin = tc_pad(labels, -1, 2, -2, blank), last;
    tci_ctc q = {here, tc_logical_and(tc_ne(labels, blank), tc_ne(labels, twin)),
                 tc_unsqueeze(lengths, -1)};
    tc_tensor index = tc_expand(tc_unsqueeze(labels, 0), times, batch, n);
    tc_tensor emitted = tc_gather(logs, -1, index);
    tc_tensor first = tc_eq(tc_arange(m->ctx->handle, 0, n, 1, TC_I64), 0);
    tc_tensor never = tc_full(m->ctx->handle, TCI_CTC_NEVER, tc_dtype_of(logs), batch, n);
    tc_scan(TC_TENSORS(tc_where(first, 0, never)),
            TC_TENSORS(emitted, tc_arange(m->ctx->handle, 0, times, 1, TC_I64)), 0, false,
            tci_ctc_step, &q, &last, NULL, 0);
    tc_tensor end = tc_unsqueeze(tc_mul(target_lengths, 2), -1);
    tc_tensor before = tc_gather(last, -1, tc_maximum(tc_sub(end, 1), 0));
    before = tc_where(tc_eq(end, 0), TCI_CTC_NEVER, before);
    tc_tensor loss = tc_neg(tc_logaddexp(tc_gather(last, -1, end), before));
    return tc_squeeze(loss, -1);
}

TC_API tc_tensor tc_ctc_loss_at(tc_tensor log_probs, tc_tensor targets, tc_tensor input_lengths,
                                tc_tensor target_lengths, int64_t blank, tc_reduction reduction,
                                bool zero_infinity, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_ctc_loss", log_probs, here)) {
        return m.bad;
    }
    const tc_tensor whole[3] = {targets, input_lengths, target_lengths};
    bool fits = tc_rank(log_probs) == 3, known = fits;
    for (int i = 0; i < 3; i++) {
        if (tc_status_of(whole[i])) {
            return tci_made_end(&m, tc_neg(whole[i]));
        }
        fits = fits && tc_rank(whole[i]) == (i ? 1 : 2) &&
               tci_dtype_is_int(tc_dtype_of(whole[i])) &&
               tc_size(whole[i], 0) == tc_size(log_probs, 1);
    }
    known = fits && tci_dim_is_known(tc_size(log_probs, 0)) && tc_size(log_probs, 0) > 0;
    if (!fits || !known) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "log_probs, targets and lengths have ranks %d, %d, "
                             "%d and %d: expected [time, batch, classes], at least one and a known "
                             "number of times, and integers [batch, labels], [batch] and [batch]",
                             tc_rank(log_probs), tc_rank(targets), tc_rank(input_lengths),
                             tc_rank(target_lengths));
    }
    const int64_t classes = tc_size(log_probs, 2);
    if (!tci_dim_is_known(blank) || blank < 0 || !tci_dim_lt(blank, classes)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "blank is %s: expected one of %s classes%s",
                             TCI_DIM_TEXT(blank), TCI_DIM_TEXT(classes),
                             TCI_LEAST_NOTE(classes, blank + 1));
    }
    tc_tensor lengths = tc_cast(target_lengths, TC_I64);
    tc_tensor place = tc_arange(m.ctx->handle, 0, tc_size(targets, 1), 1, TC_I64);
    tc_tensor used = tc_lt(place, tc_unsqueeze(lengths, -1));
    tc_tensor labels = tc_where(used, tc_cast(targets, TC_I64), blank);
    tc_tensor wide = tci_made_wide(&m, log_probs);
    tc_tensor time = tc_unsqueeze(tc_arange(m.ctx->handle, 0, tc_size(wide, 0), 1, TC_I64), -1);
    tc_tensor inside = tc_unsqueeze(tc_lt(time, input_lengths), -1);
    wide = tc_where(inside, wide, -(double)INFINITY); /* later times may be NaN */
    tc_tensor loss = tci_ctc_loss(&m, wide, tci_ctc_labels(&m, labels, blank),
                                  tc_cast(input_lengths, TC_I64), lengths, blank);
    /* as in torch log_probs count as normalized: their sums at each time are 1, with a gradient */
    tc_tensor sums = tc_sum(tc_exp(wide), TC_AXES(0, 2), false);
    loss = tc_add(loss, tc_sub(sums, tc_stop_gradient(sums)));
    tc_tensor none = tc_gt(loss, -0.5 * TCI_CTC_NEVER);
    loss = tc_where(none, zero_infinity ? 0.0 : (double)INFINITY, loss);
    if (reduction == TC_REDUCE_MEAN) {
        loss = tc_div(loss, tc_maximum(lengths, 1));
    }
    return tci_made_reduced(&m, loss, reduction);
}

#pragma pop_macro("TC_HERE")
