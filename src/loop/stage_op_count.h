/* loop/stage_op_count.h - declares the work counts of a kernel's stages: flops per iteration,
 * widest vectorized value, unroll factor, live instructions. */
#ifndef TCI_LOOP_STAGE_OP_COUNT_H
#define TCI_LOOP_STAGE_OP_COUNT_H

#include "lower_expr.h"

/* Flops of one point of a stage. */
TCI_FN int64_t tci_stage_cost(const tci_kernel *k, int stage);
/* Vectors that a MAP stage's vector loop takes at once. */
TCI_FN int tci_stage_unroll(const tci_kernel *k, int stage, int lanes);
/* The stage's axes as a set of bits; those from 63 on share the last one. */
TCI_FN uint64_t tci_cost_stage_axes(const tci_kernel *k, int stage);
/* Marks the values of one stage in live[n_insts]. through_index: also those that only make up
 * offsets. */
TCI_FN void tci_cost_mark(const tci_kernel *k, int stage, bool through_index, bool *live);
/* Bytes of the widest value held in vectors; through_index as above. */
TCI_FN int tci_cost_widest(const tci_kernel *k, bool through_index);
/* Cost of the prims that `inst` alone stands for along a row of these axes. */
TCI_FN int64_t tci_cost_row(const tci_kernel *k, int inst, uint64_t axes);

#endif
