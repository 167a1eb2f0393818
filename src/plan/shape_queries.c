/* plan/shape_queries.c - two shape helpers of the planner: the input axis that an axis of a RESHAPE
 * comes from unchanged, and the span in elements of a strided leaf.
 *
 * In: a node. Out: numbers; the graph is not modified. */
#include "fusion_groups.h"

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

/* Elements from the lowest to the highest that a leaf's strides reach. */
TCI_FN tci_dim tci_plan_leaf_extent(const tci_node *n)
{
    if (tci_node_count(n) == 0 || !n->strides) {
        return tci_node_count(n);
    }
    int64_t extent = 1;
    for (int i = 0; i < n->rank; i++) {
        int64_t stride = tci_dim_known(n->strides[i]);
        extent += (stride < 0 ? -stride : stride) * (tci_dim_known(n->shape[i]) - 1);
    }
    return extent;
}
