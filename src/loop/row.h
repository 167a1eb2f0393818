/* loop/row.h - a block of threads that holds a whole row in its registers.
 *
 * Here as in square.h and product.h: without TC_CUDA the schedule does without, as a machine of
 * blocks is then at most somebody's own backend, and plain loops are right for it too. */
#ifndef TCI_LOOP_ROW_H
#define TCI_LOOP_ROW_H

#include "stage.h"

#ifdef TC_CUDA
/* How many vectors the row takes; 0: the kernel has no single row, or it is too long. */
TCI_FN int tci_row_vectors(const tci_kernel *k, const tci_loop *l);
/* All stages for one outer point. */
TCI_FN void tci_row_emit(tci_build *b, int n_vecs);
#else
#define tci_row_vectors(k, l) 0
#define tci_row_emit(b, n_vecs) ((void)(n_vecs))
#endif

#endif
