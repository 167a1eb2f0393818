/* loop/panes.h - tiles of packed pairs on a CPU's matrix unit. */
#ifndef TCI_LOOP_PANES_H
#define TCI_LOOP_PANES_H

#include "packing.h"

/* Local arrays for the sums of tiles: of all of `group` row tiles where there are several blocks of
 * depth. */
TCI_FN void tci_panes_make(tci_blocked_state *s, int64_t group);
/* The block's products of the tile, tile of columns `number`: into its sums, which lie in a row
 * after the other from the element on that is returned. */
TCI_FN tci_lin tci_panes_multiply(tci_blocked_state *s, const tci_tile *tile, tci_lin number);

#endif
