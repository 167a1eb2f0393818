/* loop/vec_output_axis.h - declares the code generation of map, reduction and scan stages that are
 * vectorized along the last outer (non-reduced) axis (VEC_OUTER). */
#ifndef TCI_LOOP_VEC_OUTPUT_AXIS_H
#define TCI_LOOP_VEC_OUTPUT_AXIS_H

#include "reduction_step.h"
#include "stage_tile.h"

TCI_FN void tci_stage_map_outer(tci_build *b, int stage, const tci_tile *tile);
/* Also of a SCAN. */
TCI_FN void tci_stage_reduce_outer(tci_build *b, int stage, const tci_tile *tile);

#endif
