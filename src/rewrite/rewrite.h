/* rewrite/rewrite.h - the graph in simpler terms: composites expanded, constants folded, duplicates
 * and dead nodes gone. */
#ifndef TCI_REWRITE_REWRITE_H
#define TCI_REWRITE_REWRITE_H

#include "../graph/node.h"

/* The same values as nodes of g that later stages know; one for each root, in scratch. */
TCI_FN tci_node **tci_rewrite(tci_scratch *s, tci_graph *g, tci_node **roots, int n);
/* n over what its inputs' `pass` says. */
TCI_FN tci_node *tci_rewrite_rebuild(tci_scratch *s, tci_graph *g, tci_node *n);
/* rewrite/crop.c, the last pass of tci_rewrite: changes roots. */
TCI_FN void tci_rewrite_crop(tci_scratch *s, tci_graph *g, tci_node **roots, int n);

#endif
