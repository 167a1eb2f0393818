/* plan/shapes.c - facts of shapes that several passes ask: multiplications of a contraction, axes
 * across a reshape.
 *
 * In: a node. Out: numbers; nothing is changed. */
#include "group.h"

static bool tci_shapes_has_label(const int64_t *labels, int64_t n, int64_t label)
{
    bool found = false;
    for (int i = 0; i < n; i++) {
        found = found || labels[i] == label;
    }
    return found;
}

TCI_FN double tci_plan_products(const tci_node *n)
{
    double products = 1;
    const int64_t *labels = n->attr + 3, *out = labels + n->attr[0] + n->attr[1];
    for (int i = 0; i < n->rank; i++) {
        products *= tci_dim_is_known(n->shape[i]) ? (double)tci_dim_known(n->shape[i]) : -1;
    }
    for (int k = 0; k < 2; labels += n->attr[k++]) {
        const tci_node *x = n->in[k];
        for (int i = 0; i < x->rank; i++) {
            if (!tci_dim_is_known(x->shape[i])) {
                return -1;
            }
            bool kept = tci_shapes_has_label(out, n->rank, labels[i]);
            products *= k == 0 && !kept ? (double)tci_dim_known(x->shape[i]) : 1;
        }
    }
    return products;
}

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
