/* loop/emit_stages.h - declares the emission of a kernel's stages (map, reduction, scan,
 * scatter) for one register tile, and helpers that schedules share. */
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
