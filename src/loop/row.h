/* loop/row.h - a block of threads that holds a whole row in its registers. */
#ifndef TCI_LOOP_ROW_H
#define TCI_LOOP_ROW_H

#include "stage.h"

/* How many vectors the row takes; 0: the kernel has no single row, or it is too long. */
TCI_FN int tci_row_vectors(const tci_kernel *k, const tci_loop *l);
/* All stages for one outer point. */
TCI_FN void tci_row_emit(tci_build *b, int n_vecs);

#endif
