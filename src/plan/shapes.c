/* plan/shapes.c - facts of shapes that several passes ask: axes across a reshape.
 *
 * In: a node. Out: numbers; nothing is changed. */
#include "group.h"

TCI_FN int tci_plan_image_reshaped(const tci_node *n, int a)
{
    const tci_node *from = n->in[0];
    tci_dim before = 1, there = 1;
    for (int i = 0; i < a; i++) {
        before = tci_dim_mul(before, n->shape[i]);
    }
    for (int i = 0; i < from->rank; i++) {
        if (there == before && from->shape[i] == n->shape[a] && n->shape[a] != 1) {
            return i;
        }
        there = tci_dim_mul(there, from->shape[i]);
    }
    return -1;
}
