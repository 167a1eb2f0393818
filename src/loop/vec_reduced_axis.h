/* loop/vec_reduced_axis.h - declares the code generation of stages that are vectorized along their
 * last inner, usually reduced, axis (VEC_INNER). */
#ifndef TCI_LOOP_VEC_REDUCED_AXIS_H
#define TCI_LOOP_VEC_REDUCED_AXIS_H

#include "reduction_step.h"
#include "stage_op_count.h"
#include "causal_bound.h"
#include "stage_tile.h"
#include "vectorize.h"

/* next_axis: as in tci_tile, for this stage; -1 none. */
TCI_FN void tci_stage_map_inner(tci_build *b, int stage, const tci_tile *tile, int next_axis);
TCI_FN void tci_stage_reduce_inner(tci_build *b, int stage, int next_axis);
/* The lanes of an accumulator, joined as class LANES says: neighbours that come first, .. */
TCI_FN tci_stage_tuple tci_stage_join_near(tci_build *b, const tci_kred *red, tci_stage_tuple v);
/* .. and after them lane i and i + h, for h = from, from / 2 ...: the result is in lane 0. */
TCI_FN tci_stage_tuple tci_stage_join_halves(tci_build *b, const tci_kred *red, tci_stage_tuple v,
                                             int from);

#endif
