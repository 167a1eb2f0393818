/* loop/simt_row_block.h - declares register-resident rows on GPUs: a row per block, warp or part
 * of a warp. */
#ifndef TCI_LOOP_SIMT_ROW_BLOCK_H
#define TCI_LOOP_SIMT_ROW_BLOCK_H

#include "stage_lowering.h"

/* How many vectors the longest row takes, of l->lanes on l->threads, l->rows of them in a block; 0:
 * a stage walks several axes, or a row is too long, or cannot be held so. */
TCI_FN int tci_row_vectors(const tci_kernel *k, const tci_loop *l);
/* All stages for one outer point. */
TCI_FN void tci_row_emit(tci_build *b);

#endif
