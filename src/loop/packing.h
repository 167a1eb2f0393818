/* loop/packing.h - declares packed panels of GEMM operands, and the loops that fill them. */
#ifndef TCI_LOOP_PACKING_H
#define TCI_LOOP_PACKING_H

#include "gemm.h"

enum { TCI_GEMM_LEFT = -1 /* columns of the last tile, where their number is not known */ };
enum { TCI_DOT_PACK_MOST = 4 /* points of an element */ };

/* State while the statements of a block are emitted. */
typedef struct tci_gemm_state {
    tci_build *b;
    const tci_gemm *p;
    tci_lkeep *row, *vec; /* row: NULL where the row factor is a row that is kept */
    /* local arrays, -1 none: sums so far, and where a block is no part, of the parts before */
    tci_stage_tuple partial, total;
    int64_t tile;      /* columns of a tile */
    int64_t tile_step; /* elements of the vector panel between tiles */
    int64_t row_step;  /* elements of the row panel between rows or inner points */
    int64_t steps;     /* of a block at most: inner points or elements (loop/dot_packing.h), */
    int vec_pairs, row_pairs; /* whose panels are these, */
    tci_lin row_base; /* that of the rows at hand from here on; and while one is filled or */
    tci_lin step;     /* multiplied the number of an element, the positions of its points, and */
    const tci_bind *places[TCI_DOT_PACK_MOST]; /* the vectors and sums of the tile */
    const tci_bind *const *vecs;
    int n_vecs;
    const tci_stage_tuple *acc;
    int begin;              /* number of the group's first row tile: lx */
    tci_lin tile_row;       /* on a unit: the number of the row tile in the group */
    int block;              /* number of the depth block: lx */
    tci_lin before;         /* products of a point before the block */
    const tci_bind **fixed; /* the block's position on the inner axes before the cut one */
    tci_lin first, depth;   /* of the cut inner axis */
    const tci_bind *zero;
    tci_lin zero_from, zero_to; /* points of the block, not of depth: all row factors are +0 */
    tci_stage_tuple zeros;      /* local array: sums of the products of +0 at these; -1 none */
    tci_lin column;             /* first of the block */
    int chunk;                  /* number of the block of columns: lx */
    int first_row;              /* of the group: lx */
    int64_t row_elements;       /* of a row panel */
    tci_tile at;                /* rows of the current tile */
    tci_lin number;             /* fused: the current tile of columns, */
    int64_t count;              /* its columns */
    bool packs;                 /* this tile packs the vector factor while it multiplies */
} tci_gemm_state;

/* Local arrays of work memory: the panels, and sums of `group` row tiles. */
TCI_FN void tci_gemm_make_panels(tci_gemm_state *s, int64_t group);
/* The axes of a side but for the last one at `bind`. */
TCI_FN void tci_gemm_set_others(tci_gemm_state *s, const tci_gemm_side *side, const tci_bind *bind);

/* The vectors of the panel that are multiplied a few inner points after `inner`. */
TCI_FN void tci_gemm_fetch_panel(tci_gemm_state *s, int n, tci_lin inner);
/* Prefetches the operands of vectors that are used `inner` inner points later, or `columns`
 * further. */
TCI_FN void tci_gemm_fetch_vectors(tci_gemm_state *s, int n, const tci_bind *const *vecs,
                                   int64_t inner, int64_t columns);
/* Each tile of columns fetches some of the rows that are packed after its own. */
TCI_FN void tci_gemm_fetch_rows(tci_gemm_state *s, const tci_tile *tile, tci_lin number);
/* The partial sums that the next tile of columns continues or begins. */
TCI_FN void tci_gemm_fetch_partial(tci_gemm_state *s, tci_lin at, int n);
/* Where the tile's results will be written. */
TCI_FN void tci_gemm_fetch_results(tci_gemm_state *s, const tci_tile *tile);

/* The vectors of tile number `tile` of the block, which exist up to `count` columns. */
TCI_FN const tci_bind **tci_gemm_bind_column_vectors(tci_gemm_state *s, tci_lin tile, int64_t count,
                                                     int *n);
/* Whole tiles of the block, and (if this is the last one) what is left of the axis; body(s, tile,
 * columns). Of an unknown number of columns what is left is TCI_GEMM_LEFT where it is packed,
 * and a whole tile after that. */
TCI_FN void tci_gemm_columns(tci_gemm_state *s, int chunk,
                             void (*body)(tci_gemm_state *, tci_lin, int64_t));
/* The vector factor of block `chunk` of columns, and the row factor of the rows at hand (s->at). */
TCI_FN void tci_gemm_pack_vec(tci_gemm_state *s, int chunk);
TCI_FN void tci_gemm_pack_rows(tci_gemm_state *s);

#endif
