/* onnx/import_losses.c - imports ONNX loss functions: NegativeLogLikelihoodLoss and
 * SoftmaxCrossEntropyLoss. */
#include "operator_table.h"
#include "user_call_site.h"

#include <string.h>

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
