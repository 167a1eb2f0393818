/* loop/interleaved_stores.h - declares interleaved stores of the phases of a strided convolution's
 * data gradient, shuffled together in registers. */
#ifndef TCI_LOOP_INTERLEAVED_STORES_H
#define TCI_LOOP_INTERLEAVED_STORES_H

#include "stage_tile.h"

enum { TCI_INTERLEAVE_MOST = 4 /* phases; a power of two */ };

/* The short outer axis whose elements are between those of vec_axis wherever a pointwise kernel
 * stores; -1: none. */
TCI_FN int tci_interleave_axis(const tci_kernel *k, int vec_axis);
/* The stores of a stage for all points of a tile, whose rows are all elements of that axis. */
TCI_FN void tci_interleave_stores(tci_build *b, int stage, const tci_tile *tile);

#endif
