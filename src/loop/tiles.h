/* loop/tiles.h - contractions on a CPU's matrix unit: registers of 16 rows of 64 bytes. */
#ifndef TCI_LOOP_TILES_H
#define TCI_LOOP_TILES_H

#include "blocked.h"

/* Fills *p: how the kernel is cut into blocks of columns and row tiles. */
TCI_FN void tci_tiles_plan(const tci_kernel *k, tci_blocked *p);
/* As tci_blocked_emit. */
TCI_FN void tci_tiles_emit(tci_build *b, const tci_blocked *p, tci_lin chunk, int begin, int end);

#endif
