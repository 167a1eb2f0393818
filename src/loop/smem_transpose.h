/* loop/smem_transpose.h - declares the transpose through shared memory, padded by one column
 * against bank conflicts. */
#ifndef TCI_LOOP_SMEM_TRANSPOSE_H
#define TCI_LOOP_SMEM_TRANSPOSE_H

#include "emit_stages.h"

enum { TCI_SQUARE = 64, TCI_SMEM_TRANSPOSE_THREADS = 256 }; /* side; a multiple of it in threads */

/* A pointwise kernel traversed in square tiles of `row_axis` x `vec_axis`. */
typedef struct tci_smem_transpose {
    int row_axis, vec_axis;
    int32_t *loads;
    int n_loads; /* instructions that run along row_axis: transposed */
} tci_smem_transpose;

/* False: nothing to transpose, or too little to fill square tiles. */
TCI_FN bool tci_smem_transpose_plan(const tci_kernel *k, int row_axis, int vec_axis,
                                    tci_smem_transpose *q);
/* The square with these numbers along the two axes; the other outer axes are bound. */
TCI_FN void tci_smem_transpose_emit(tci_build *b, const tci_smem_transpose *q, tci_lin row,
                                    tci_lin vec);

#endif
