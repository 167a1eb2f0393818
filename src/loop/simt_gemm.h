/* loop/simt_gemm.h - declares the SIMT GEMM: shared-memory panels, and register tiles of the
 * threads of a block. */
#ifndef TCI_LOOP_SIMT_GEMM_H
#define TCI_LOOP_SIMT_GEMM_H

#include "../kernel/match_mma_sync.h"
#include "emit_stages.h"

/* One factor of the contraction, along the rows or along the columns of the result: the outer axes
 * that it has and the other factor lacks, counted as one in row-major order. */
typedef struct tci_simt_gemm_side {
    int inst;
    int n_axes, *axes;
    int64_t extent;   /* of a block's tile: */
    int points;       /* of a thread, */
    int places;       /* times threads side by side */
    int64_t size;     /* of all axes */
    bool along_depth; /* memory runs along the contracted axes rather than along these */
} tci_simt_gemm_side;

typedef struct tci_simt_gemm {
    tci_simt_gemm_side rows, columns;
    int64_t depth; /* of the contracted axes, counted as one */
    int threads;   /* of a block */
    int resident;  /* blocks that an SM should hold at once */
} tci_simt_gemm;

/* The tiles that there are, the last one for values wider than 4 bytes alone. */
typedef struct tci_simt_gemm_tile {
    int16_t rows, columns;
    int8_t row_points, column_points;
} tci_simt_gemm_tile;
enum { TCI_PRODUCT_TILES = 8 };
TCI_FN const tci_simt_gemm_tile *tci_simt_gemm_tiles(void);

/* Fills *p but for the tile. False: not such a kernel, or too small for tiles; it may have few rows
 * or few columns. */
TCI_FN bool tci_simt_gemm_plan(const tci_kernel *k, const tci_machine *machine, tci_simt_gemm *p);
/* True if M and N are so large that tiles are faster than any other schedule. */
TCI_FN bool tci_simt_gemm_is_large_enough(const tci_simt_gemm *p);
/* Gives it the tile (rows, columns, row_points, column_points). The time by the model; -1: there is
 * no such tile. */
TCI_FN double tci_simt_gemm_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                               tci_simt_gemm *p);
/* Its sides without a tile. False: it is no such kernel. */
TCI_FN bool tci_simt_gemm_take_sides(const tci_kernel *k, tci_simt_gemm *p);
/* True if the axis belongs to M or N. */
TCI_FN bool tci_simt_gemm_has(const tci_simt_gemm *p, int axis);
/* The tile with these numbers along rows and columns; the other outer axes are bound. */
TCI_FN void tci_simt_gemm_emit(tci_build *b, const tci_simt_gemm *p, tci_lin row, tci_lin column);

/* ---- pieces ---- */

/* Places of a thread's points along a side: first + skip[i]. In pairs: points 2 i and 2 i + 1 of
 * the columns are neighbours, and so may be their stores. */
typedef struct tci_simt_gemm_points {
    const tci_simt_gemm_side *side;
    tci_lin first;
    int n;
    const int64_t *skip;
    bool in_pairs;
} tci_simt_gemm_points;
/* The sum of the point number row of the rows and column of the columns. */
typedef tci_stage_tuple (*tci_product_sum_fn)(tci_build *b, void *arg, int row, int column);
/* The stages after the first for all points of the thread, points[0] of the rows. */
TCI_FN void tci_simt_gemm_finish(tci_build *b, const tci_simt_gemm_points *points,
                                 tci_product_sum_fn sum, void *arg);
/* The thread's number divided by c, or what is left of it (TCI_LX_DIV, TCI_LX_MOD); / before % n */
TCI_FN tci_lin tci_simt_gemm_thread(tci_build *b, tci_lx_op op, int64_t c);
TCI_FN tci_lin tci_simt_gemm_digit(tci_build *b, int64_t before, int64_t n);
/* The smaller of x and the last element of an axis. */
TCI_FN tci_lin tci_simt_gemm_inside(tci_build *b, tci_lin x, int64_t size);
TCI_FN void tci_simt_gemm_set(tci_build *b, int n, const int32_t *axes,
                              const tci_bind *const *binds);
/* The contracted axes and a side's own, bound to one place of a panel after the other: what does
 * not move from one to the next is bound once. Unbound in the end. */
typedef struct tci_simt_gemm_walk {
    const tci_simt_gemm_side *side;
    const tci_bind **depths, **ats;
    bool begun;
} tci_simt_gemm_walk;
TCI_FN tci_simt_gemm_walk tci_simt_gemm_walk_of(tci_build *b, const tci_simt_gemm_side *side);
TCI_FN void tci_simt_gemm_bind(tci_build *b, tci_simt_gemm_walk *walk, tci_lin depth, tci_lin at);
TCI_FN void tci_simt_gemm_unbind(tci_build *b, const tci_simt_gemm_walk *walk);
/* The value waits in *waiting, which is made first. */
TCI_FN void tci_simt_gemm_wait(tci_build *b, int *waiting, int value, bool first);
TCI_FN void tci_simt_gemm_barrier(tci_build *b);

#endif
