/* loop/emit_stages.h - emits one, all, or the remaining stages of a kernel (map, reduction, scan,
 * scatter) for one register tile. */
#ifndef TCI_LOOP_EMIT_STAGES_H
#define TCI_LOOP_EMIT_STAGES_H

#include "reduction_step.h"
#include "stage_op_count.h"
#include "causal_bound.h"
#include "stage_tile.h"
#include "vectorize.h"

TCI_FN void tci_stage_one(tci_build *b, const tci_tile *tile, int stage);
/* All stages in order. */
TCI_FN void tci_stage_all(tci_build *b, const tci_tile *tile);
/* The stages from `first` on. */
TCI_FN void tci_stage_from(tci_build *b, const tci_tile *tile, int first);

#endif
