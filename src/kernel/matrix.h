/* kernel/matrix.h - contractions that a matrix unit takes, as kernels. */
#ifndef TCI_KERNEL_MATRIX_H
#define TCI_KERNEL_MATRIX_H

#include "ir.h"
#include "machine.h"

enum {
    TCI_MATRIX_BATCH = 3,         /* batch axes at most: a box has five axes */
    TCI_MATRIX_REGISTER = 64,     /* bytes of a row of a CPU's unit, and of the vectors beside it */
    TCI_MATRIX_TILE_ROWS = 128,   /* of a tile that any product may have on a GPU */
    TCI_MATRIX_TILE_COLUMNS = 64
};

/* A or B in memory, strides in elements. */
typedef struct tci_matrix_side {
    int32_t operand;
    bool along_k;       /* k is the axis of stride 1; else the side's own axis (m or n) is */
    int64_t offset;     /* of element 0 */
    int64_t pitch;      /* of the other one of the two axes */
    int64_t batch_pitch[TCI_MATRIX_BATCH]; /* 0: it does not depend on that axis */
} tci_matrix_side;

typedef struct tci_matrix {
    int8_t dtype;       /* of A and B: TC_BF16 or TC_F16 */
    int32_t m_axis, n_axis;
    int64_t m, n, k;
    int32_t n_batch, batch_axis[TCI_MATRIX_BATCH];
    int64_t batch[TCI_MATRIX_BATCH];
    tci_matrix_side side[2]; /* A, B */
    int32_t value;      /* the instruction that is left in shared memory */
    int8_t staged;      /* as this dtype */
    int32_t consumers, sub_rows, rows, columns; /* rows = 64 * consumers * sub_rows */
    int32_t stages, group_rows, row_threads;
    int32_t buffers;      /* for staged sums, of one consumer each: 1 or consumers */
    int64_t staged_pitch; /* elements between rows of the staged sums */
    int64_t tiles_m, tiles_n, tiles; /* tiles: over all of the batch */
} tci_matrix;

/* Does the machine's unit take the kernel's contraction, and is it worth it? */
TCI_FN bool tci_matrix_fits(const tci_kernel *k, tci_machine machine);
/* Everything but the tile (consumers .. tiles), from *x as zeros or anything; false: no matrix unit
 * takes the kernel. */
TCI_FN bool tci_matrix_find(const tci_kernel *k, tci_matrix *x);

#endif
