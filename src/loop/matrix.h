/* loop/matrix.h - contractions on a matrix unit: what the skeleton's main loop must know.
 *
 * The kernel is C[batch][m][n] = sum over k of A[batch][m][k] * B[batch][n][k], f32 sums of bf16 or
 * f16 products, and after it any elementwise chain. The machine's model: a processor runs one block
 * at a time, whose warps play three parts. One warp loads boxes of A and B, `depth` elements of k
 * at a time, into a ring of `stages` stages of shared memory. The `consumers` groups of four warps
 * multiply, 64 * sub_rows rows of the tile each, into registers, and leave the sums in shared
 * memory (each in a buffer of its own, or all in one, one after the other), rounded as the chain's
 * first step wants them. The last warps, as machines of `row_threads` threads whose vector is a row
 * of the tile, take `group_rows` rows at a time through the rest of the chain while the consumers
 * are at the next tile: that is the skeleton's hole. At the block's last tile the consumers
 * help. */
#ifndef TCI_LOOP_MATRIX_H
#define TCI_LOOP_MATRIX_H

#include "loop.h"

enum {
    TCI_MATRIX_DEPTH_STEP = 64, /* elements of k in a stage: a row of 128 bytes */
    TCI_MATRIX_BATCH = 3,       /* batch axes at most: a box has five axes */
    TCI_MATRIX_STAGES = 12,     /* at most */
    TCI_MATRIX_WARP = 32,
    TCI_MATRIX_SUB = 64,        /* rows that four warps multiply at once */
    TCI_MATRIX_LAST_WARPS = 3   /* warps that run the hole */
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

/* Everything but the tile (consumers .. tiles), from *x as zeros or anything; false: no matrix unit
 * takes the kernel. */
TCI_FN bool tci_matrix_find(const tci_kernel *k, tci_matrix *x);
/* Is the product large enough for a unit? */
TCI_FN bool tci_matrix_pays(const tci_matrix *x);
#ifdef TC_CUDA /* as in row.h */
/* Fills in the tile. False: none fits. */
TCI_FN bool tci_matrix_choose_tile(const tci_kernel *k, tci_matrix *x, int units);
/* Bytes of one stage, of the buffers for sums, and of all shared memory with barriers and the
 * rounding up of its start. */
TCI_FN int64_t tci_matrix_stage_bytes(const tci_matrix *x);
TCI_FN int64_t tci_matrix_staged_bytes(const tci_matrix *x);
TCI_FN int64_t tci_matrix_shared_bytes(const tci_matrix *x);
/* The schedule of a kernel whose contraction has TCI_ORDER_MATRIX. */
TCI_FN tci_loop *tci_matrix_schedule(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                     tci_launch *launch);
#else
#define tci_matrix_choose_tile(k, x, units) false
#define tci_matrix_schedule(s, k, machine, launch) NULL
#endif

#endif
