/* graph/named.h - nodes made by the name of their op, with attributes by name: what reads graphs
 * from elsewhere builds through this. The ops and their attributes are those of ops/table.h. */
#ifndef TCI_GRAPH_NAMED_H
#define TCI_GRAPH_NAMED_H

#include "node.h"

/* One attribute: a word for each time it stands (an entry per axis of `start`, all of `axes`). */
typedef struct tci_named_attr {
    const char *name;
    int n;
    const tci_dim *words;
} tci_named_attr;

/* The op over n_in inputs, in the order of graph/node.h; what is left out has its default. Shapes
 * broadcast and dtypes meet as in the constructors of graph/build.h, axes may count from the end.
 * NULL with g->error and g->message (TC_ERR_ARGUMENT: no such op or attribute, or a wrong number of
 * inputs or words; else what the constructor says). Leaves with memory or a number have no name to
 * be made by. */
TCI_FN tci_node *tci_build_named(tci_graph *g, const char *op, int n_in, tci_node *const *in,
                                 int n_attrs, const tci_named_attr *attrs);

#endif
