/* grad/vmap.h - tc_vmap: a graph for one example as the same graph for a batch (grad/vmap.c). */
#ifndef TCI_GRAD_VMAP_H
#define TCI_GRAD_VMAP_H

#include "../graph/build.h"

/* For each of n roots the node that has `count` examples of it along an axis in front: examples[i]
 * has them of leaf leaves[i]. many[i] NULL: the root depends on none of these leaves, so all
 * examples of it are equal. Linear in the nodes. Longjmps on failure, and with TC_ERR_UNSUPPORTED
 * at an op that has no such form. */
TCI_FN void tci_vmap_build(tci_scratch *s, tci_graph *g, tci_dim count, tci_node *const *leaves,
                           tci_node *const *examples, int n_leaves, tci_node *const *roots, int n,
                           tci_node **many);

#endif
