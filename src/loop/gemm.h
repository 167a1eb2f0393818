/* loop/gemm.h - declares the packed GEMM (Goto, BLIS): operands packed into panels, cache block by
 * cache block. */
#ifndef TCI_LOOP_GEMM_H
#define TCI_LOOP_GEMM_H

#include "emit_stages.h"

enum { TCI_GEMM_AXES = 4 /* of a side, at most */ };

/* Outer axes that one factor has and the other lacks, counted as one in row-major order: what the
 * later stages access is as if they were. Only one that is alone may have an unknown size. */
typedef struct tci_gemm_side {
    int n_axes;
    int32_t axes[TCI_GEMM_AXES];
    tci_dim size;
} tci_gemm_side;

/* Blocking of a GEMM. Vectors run along columns (N). */
typedef struct tci_gemm {
    int stage, red;     /* the DOT */
    int n_inner;        /* axes of its stage that it sums */
    bool keeps;         /* its results are a row that the kernel keeps */
    bool is_row_there;  /* the row factor is such a row, or is in memory as it is read */
    bool is_vec_there;  /* the vector factor is in panels of a tile's columns already, */
    bool is_vec_paired; /* several points in each element */
    tci_gemm_side of_rows, of_columns;
    int vec_axis, row_axis; /* the last ones of the two */
    int unroll;             /* vectors of a tile */
    int64_t columns;        /* of a block, a multiple of a tile's; if the size is symbolic, all
                             * tiles are whole, and kept rows are padded to them */
    /* Row tiles: the first `extra` have base + 1 rows. Where the number of rows is not known, all
     * have base rows but the last, which is cut into smaller ones. */
    tci_dim n_tiles;
    int64_t base, extra;
    int64_t group;    /* row tiles that share a block of packed columns, at most */
    int64_t share;    /* of them that two threads may part at */
    int cut;          /* the inner axis that blocks cut: one point of those before it each */
    int64_t depth;    /* of that axis, in a block; its size is known but of rows of a kernel
                               that keeps them (tci_gemm_plan_row) */
    tci_dim n_depths; /* 1 or more */
    int64_t part;     /* products of a part of the sums (class SPLIT), 0: they are chains */
    bool is_part;     /* every block is a part */
    bool on_unit;     /* tiles are a CPU's matrix unit's (class MATRIX, loop/amx_packed.h) */
    bool in_order;    /* of a pair the even point is the lower half, as in memory */
    int points;       /* that an element of the panels holds (loop/dot_packing.h), 1: one */
    /* derived */
    int row_inst, vec_inst;    /* factors of the DOT: along the rows, along the vector axis, */
    int row_load, vec_load;    /* and the loads that they are, -1: computed; */
    bool row_flips, vec_flips; /* bytes whose highest bit changes (loop/gemm_operands.c) */
    bool row_unsigned, vec_unsigned; /* four points: such bytes; of vectors one of the two */
    int64_t inner;                   /* points of the inner axes after the cut one, */
    int64_t run;                     /* of the axes of the flat loop over them, */
    int steps;                       /* and those of it that are written out */
    int row_run;        /* last inner axes along which the row factor is packed as one */
    int nest;           /* inner axes from the cut one on that are loops of their own where rows
                         * are read in their layout; 0: all inner points are one loop */
    bool row_in_place;  /* the row factor could be read as it is in memory */
    bool row_by_vector; /* the row factor is packed along the rows, else along the last axis */
    bool by_rows;       /* the later stages are a loop over the rows of a tile */
    bool fused;         /* the first row tile packs the vector factor while it multiplies */
    bool fetch_vectors; /* the vector factor is fetched a few inner points ahead of its use */
    bool fetch_rows;    /* the row factor of the next row tile is */
    bool squares;       /* the vector factor is packed by transposing square tiles */
    bool vec_by_vector; /* the other one is contiguous along the vector axis */
    bool pays;          /* reading the operands in place is slower */
    bool is_turned;     /* vectors run along an axis where results are mostly not contiguous */
    double overhead;    /* time of packing and storing over that of multiplying */
    double lost;        /* lanes that vectors of columns have, for each column */
    /* Rows that are masked on one side of a position, NULL: there is none. `cut_at` is an index
     * expression that who emits sets, */
    const tci_causal *masked;
    bool hides_columns; /* of the columns that the rows see, else */
    int cut_at;         /* of the inner points at which a row factor is not +0 */
} tci_gemm;

/* Fills the sides, axes and factors of *p; false where the kernel is no such contraction. */
TCI_FN bool tci_gemm_sides(const tci_kernel *k, tci_machine machine, int lanes, tci_gemm *p);
/* True if the outer axis belongs to M or N. */
TCI_FN bool tci_gemm_has(const tci_gemm *p, int axis);
/* Fills the rest of *p from what the register tile is (unroll, n_tiles, base, extra) and the depth
 * and columns wished for, 0: those that have served best. False: the kernel does not fit. */
TCI_FN bool tci_gemm_plan(const tci_kernel *k, tci_machine machine, int lanes, tci_gemm *p);
/* True if all blocks are multiples of the matrix unit's step. */
TCI_FN bool tci_gemm_is_whole(const tci_kernel *k, const tci_gemm *p);
/* The same for a DOT that keeps one axis: from stage, red, row_axis, unroll, the row tiles and
 * their group. */
TCI_FN bool tci_gemm_plan_row(const tci_kernel *k, int lanes, tci_gemm *p);
/* Time of packing this many columns, in all their depth. */
TCI_FN double tci_gemm_pack_ns(const tci_kernel *k, tci_machine machine, int lanes,
                               const tci_gemm *p, double columns);
/* The columns of block `chunk` for row tiles [begin, end), index expressions. */
TCI_FN void tci_gemm_emit(tci_build *b, const tci_gemm *p, tci_lin chunk, int begin, int end);

#endif
