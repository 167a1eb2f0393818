/* rewrite/rewrite.h - declares bit-exact graph simplification: expands composites, folds constants,
 * removes duplicate and dead nodes. */
#ifndef TCI_REWRITE_REWRITE_H
#define TCI_REWRITE_REWRITE_H

#include "../graph/side_table.h"

/* The same values as nodes of g that later stages know; one for each root, in scratch. */
TCI_FN tci_node **tci_rewrite(tci_scratch *s, tci_graph *g, tci_node **roots, int n);
/* rewrite/slice_pushdown.c, the last pass of tci_rewrite: changes roots. */
TCI_FN void tci_rewrite_crop(tci_scratch *s, tci_graph *g, tci_node **roots, int n);
/* rewrite/guarded_update.c: roots may become others; true: no effect changes what its parameter
 * holds in a run that meets an index outside its axis. */
TCI_FN bool tci_rewrite_intact(tci_scratch *s, tci_graph *g, tci_node **roots, int n);

#endif
