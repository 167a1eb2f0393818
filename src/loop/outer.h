/* loop/outer.h - stages whose vectors lie along the last outer axis. */
#ifndef TCI_LOOP_OUTER_H
#define TCI_LOOP_OUTER_H

#include "combine.h"
#include "point.h"

TCI_FN void tci_stage_map_outer(tci_build *b, int stage, const tci_tile *tile);
/* Also of a SCAN. */
TCI_FN void tci_stage_reduce_outer(tci_build *b, int stage, const tci_tile *tile);

#endif
