/* loop/simt_row_block.h - declares the GPU schedule of row-wise kernels (softmax, norms): a block,
 * warp or part of a warp computes a row and keeps it in registers. */
#ifndef TCI_LOOP_SIMT_ROW_BLOCK_H
#define TCI_LOOP_SIMT_ROW_BLOCK_H

#include "emit_stages.h"

/* Number of vectors of the longest row, with l->lanes on l->threads and l->rows of them in a block;
 * 0: a stage has several inner axes, or a row is too long or cannot be kept in registers. */
TCI_FN int tci_row_vectors(const tci_kernel *k, const tci_loop *l);
/* All stages for one outer point. */
TCI_FN void tci_row_emit(tci_build *b);

#endif
