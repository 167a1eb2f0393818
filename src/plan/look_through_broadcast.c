/* plan/look_through_broadcast.c - finds the value below a chain of broadcasts, transposes and
 * reshapes.
 *
 * In: a value made by EXPAND, PERMUTE and RESHAPE. Out: the value that they move, and for each
 * axis of the result the axis of that value, if any. */
#include "fusion_groups.h"

/* One step of a traversal down: where the axes of x, at[i], are in what x reshapes; -1: they have
 * one element. False: it is more than axes of one element that come and go. */
static bool tci_broadcast_below_reshape(tci_scratch *s, const tci_node *x, int n, int *at)
{
    const tci_node *in = x->in[0];
    int *to = TCI_NEW_ARRAY(s, int, x->rank + 1), from = 0;
    for (int i = 0; i < x->rank; i++) {
        while (x->shape[i] != 1 && from < in->rank && in->shape[from] == 1) {
            from++;
        }
        to[i] = x->shape[i] == 1 ? -1 : from;
        if (x->shape[i] != 1 && (from == in->rank || in->shape[from++] != x->shape[i])) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        at[i] = at[i] < 0 ? -1 : to[at[i]];
    }
    return true;
}

TCI_FN const tci_node *tci_broadcast_source(tci_scratch *s, const tci_node *x, int *at)
{
    const int rank = x->rank;
    for (int i = 0; i < rank; i++) {
        at[i] = x->shape[i] == 1 ? -1 : i;
    }
    while (x->op == TCI_OP_EXPAND || x->op == TCI_OP_PERMUTE ||
           (x->op == TCI_OP_RESHAPE && tci_broadcast_below_reshape(s, x, rank, at))) {
        for (int i = 0; i < rank && x->op != TCI_OP_RESHAPE; i++) {
            const bool gone = at[i] < 0 || (x->op == TCI_OP_EXPAND && x->in[0]->shape[at[i]] == 1);
            at[i] = gone ? -1 : x->op == TCI_OP_PERMUTE ? (int)x->attr[at[i]] : at[i];
        }
        x = x->in[0];
    }
    return x;
}
