/* loop/scatter.h - declares scatter stages: stores at data-dependent indices. */
#ifndef TCI_LOOP_SCATTER_H
#define TCI_LOOP_SCATTER_H

#include "stage_tile.h"

TCI_FN void tci_stage_scatter(tci_build *b, int stage, const tci_tile *tile);

#endif
