/* loop/column_reduction.h - declares column reductions over a long range of the vector axis, with
 * accumulators in memory. */
#ifndef TCI_LOOP_COLUMN_REDUCTION_H
#define TCI_LOOP_COLUMN_REDUCTION_H

#include "emit_stages.h"

/* A reduction over one inner axis for a long range of the vector axis: the accumulators are in
 * local arrays and a few rows are taken in at a time, so that memory is read in long runs. Then the
 * later stages. The range is [first, end), both in [lo, hi + 1], of at most `chunk` elements. */
typedef struct tci_panel {
    int vec_axis, rows, unroll;
    tci_lin first;
    int end; /* index expression */
    tci_dim lo, hi;
    int64_t chunk;
} tci_panel;
TCI_FN void tci_stage_panel(tci_build *b, const tci_panel *panel);

#endif
