/* kernel/match_matrix_unit.h - declares the match of GEMM kernels for matrix units (WGMMA, AMX): M
 * x N x K shape and operands. */
#ifndef TCI_KERNEL_MATCH_MATRIX_UNIT_H
#define TCI_KERNEL_MATCH_MATRIX_UNIT_H

#include "ir.h"
#include "machine.h"

enum {
    TCI_MATRIX_BATCH = 4,       /* batch axes at most, */
    TCI_MATRIX_PLAIN_BATCH = 3, /* of matrices, where each is an axis of a box: it has five */
    TCI_MATRIX_REGISTER = 64,   /* bytes of a row of an AMX tile register, and of the CPU's
                                 * vectors */
    TCI_MATRIX_TILE_ROWS = 128, /* of a tile that any product may have on a GPU */
    TCI_MATRIX_TILE_COLUMNS = 64,
    TCI_MATRIX_LINE = 128, /* bytes of k, or of another axis, that a GPU's unit reads */
    TCI_MATRIX_DIMS = 5,   /* of an array that boxes are cut from */
    TCI_MATRIX_AXES = 12,  /* of a kernel with such arrays, and contracted ones of it */
    TCI_MATRIX_K_AXES = 4,
    TCI_MATRIX_PLACES = 4 /* axes of rows that are positions of images */
};

/* An axis of an array (kernel/tma_boxes.c), in elements. Where the axes of the kernel are at a[],
 * its coordinate is base + sum of coef[i] * a[i]; outside of [0, size) there are zeros. */
typedef struct tci_matrix_dim {
    int64_t size, stride, base;
    int32_t coef[TCI_MATRIX_AXES];
    bool is_guarded;
} tci_matrix_dim;

/* A or B in memory, strides in elements. */
typedef struct tci_matrix_side {
    int32_t operand;
    bool is_unsigned;    /* bytes that are */
    bool along_k;        /* k is the axis of stride 1; else the side's own axis (m or n) is */
    int64_t offset;      /* of element 0 */
    int64_t pitch;       /* of the other one of the two axes */
    int64_t own, summed; /* of the side's own axis and of k, whatever they are */
    int64_t batch_pitch[TCI_MATRIX_BATCH]; /* 0: it does not depend on that axis */
    /* of boxes, instead of pitches; ascending strides, the first is 1 */
    tci_matrix_dim dims[TCI_MATRIX_DIMS + 1];
    int32_t n_dims;
} tci_matrix_side;

typedef struct tci_matrix {
    int8_t dtype; /* of A and B: TC_BF16, TC_F16, TC_F32, which are rounded (TF32), or TC_I8:
                           bytes of any signs */
    int32_t m_axis, n_axis;
    int64_t m, n, k;
    int32_t n_batch, batch_axis[TCI_MATRIX_BATCH];
    int64_t batch[TCI_MATRIX_BATCH];
    tci_matrix_side side[2]; /* A, B */
    /* Boxes: m, n and k are products of axes' sizes. The columns may be two axes, y_axis (-1: no)
     * and n_axis, of image_row positions a row; a step of k takes k_block elements of each
     * contracted axis, k_rows together: tci_matrix_depth of them, or fewer that zeros follow.
     * Or the rows are several axes: positions of images, the fastest first (place_axis[0] is
     * m_axis), n_places of them (0: one axis), along A's second axis and those above it. Where
     * one_image, none of them counts images. */
    bool is_boxes;
    int32_t y_axis;
    int64_t image_row;
    int32_t n_places, place_axis[TCI_MATRIX_PLACES];
    int64_t place_sizes[TCI_MATRIX_PLACES];
    bool one_image;
    int32_t n_k, k_axis[TCI_MATRIX_K_AXES], k_block[TCI_MATRIX_K_AXES];
    int64_t k_sizes[TCI_MATRIX_K_AXES];
    int64_t k_steps;
    int32_t k_rows;
    int32_t value; /* the instruction that is left in shared memory */
    int8_t staged; /* as this dtype */
    int32_t consumers, sub_rows, last_warps, rows, columns; /* rows = 64 * consumers * sub_rows */
    int32_t own_columns; /* of the result: columns, or fewer: whole rows of an image */
    int32_t chunks;      /* of its columns that the epilogue takes one by one; 1 where y_axis >=
                          * 0 */
    int32_t lanes;       /* of a chunk: its columns, or the next power of two */
    int32_t stages, group_rows, row_threads;
    int32_t buffers;      /* for staged accumulators, of one consumer each: 1 or consumers */
    int32_t shares;       /* 1 + the side that two blocks load by halves for each other; 0: none */
    int64_t staged_pitch; /* elements between rows of the staged accumulators */
    int64_t tiles_m, tiles_n, tiles; /* tiles: over all of the batch */
} tci_matrix;

/* Elements between the rows of what a unit reads: a multiple of this many. */
static inline int tci_matrix_align(int8_t dtype)
{
    return TCI_ALIGNED_BYTES / tci_dtype_get((tc_dtype)dtype)->bytes;
}

/* Elements of k that a GPU's unit takes in a step, and of another axis side by side. */
static inline int tci_matrix_depth(const tci_matrix *x)
{
    return TCI_MATRIX_LINE / tci_dtype_get((tc_dtype)x->dtype)->bytes;
}

/* Number of blocks that each load a part of that side's boxes. */
static inline int tci_matrix_sharing(const tci_matrix *x, int which)
{
    return x->shares == 1 + which ? 2 : 1;
}

/* The products of the DOT that the machine's lanes may take at once (tci_kred.points). */
TCI_FN int tci_matrix_lane_points(const tci_kernel *k, const tci_kred *red, tci_machine machine);
/* True if all values of an instruction are integers in [lo, hi], whatever is loaded. */
TCI_FN bool tci_matrix_is_within(const tci_kernel *k, int inst, int64_t lo, int64_t hi);
/* True if the machine's matrix unit can run the kernel's contraction, and it is profitable. */
TCI_FN bool tci_matrix_fits(const tci_kernel *k, tci_machine machine);
/* True if a CPU's matrix unit runs it from packed panels (loop/amx_packed.h): any bf16 operands,
 * except those that it reads in place, and bytes accumulated in i32. */
TCI_FN bool tci_matrix_packs(const tci_kernel *k, tci_machine machine);
/* True if the unit runs all products of a kernel that keeps rows (loop/back_to_back_gemm.c). Their
 * operands are bf16 in memory, or kept rows. All or none, since products by vectors take many times
 * as long. */
TCI_FN bool tci_matrix_keeps(const tci_kernel *k, tci_machine machine);
/* Everything but the tile (consumers .. tiles), from *x as zeros or anything; false: no matrix unit
 * takes the kernel. */
TCI_FN bool tci_matrix_find(const tci_kernel *k, tci_matrix *x);
/* The load that factor i of a DOT is, or in i32 what it widens; another instruction: it is none. */
TCI_FN int tci_matrix_factor(const tci_kernel *k, int i);
/* Parts of it. The strides of load `inst`; false where it is no plain box of memory. */
TCI_FN bool tci_matrix_load(const tci_kernel *k, int inst, int64_t *coef, tci_matrix_side *side);
/* Fills a side from its strides: `own` is the m or n axis, `summed` the one of k. False: no unit
 * takes it in its layout. */
TCI_FN bool tci_matrix_side_of(const tci_matrix *x, const int64_t *coef, int own, int summed,
                               tci_matrix_side *side);
/* The value stored in shared memory: the sum, or its rounding if nothing else uses the sum. */
TCI_FN void tci_matrix_value(const tci_kernel *k, int red, tci_matrix *x);
/* True if a matrix unit takes operands of that dtype, with a side of that layout. It transposes
 * 16-bit operands only. */
TCI_FN bool tci_matrix_takes(int8_t dtype);
TCI_FN bool tci_matrix_is_readable(const tci_matrix *x, const tci_matrix_side *side);
/* kernel/tma_boxes.c: the same for arrays of any axes; *x is zeros, the kernel a contraction. */
TCI_FN bool tci_tma_find(const tci_kernel *k, tci_matrix *x);

#endif
