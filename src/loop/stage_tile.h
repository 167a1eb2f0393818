/* loop/stage_tile.h - declares the register tile of a stage (rows x vectors of its non-reduced
 * axes) and the functions that emit its loops, index bindings, stores and prefetches. */
#ifndef TCI_LOOP_STAGE_TILE_H
#define TCI_LOOP_STAGE_TILE_H

#include "../kernel/window_overlap.h"
#include "lower_expr.h"

/* The outer points worked on together: n_rows values of one outer axis times n_vecs vectors of the
 * vector axis. row_axis -1: one row and no binding; vec_axis -1: likewise. */
typedef struct tci_tile {
    int row_axis, n_rows;
    const tci_bind **rows;
    int vec_axis, n_vecs;
    const tci_bind **vecs;
    const tci_kstore *stream; /* whose whole vectors, aligned, bypass the caches; NULL none */
    int64_t prefetch;         /* bytes ahead along the vector axis; 0 none */
    bool turn;                /* loads that run along the rows are transposed in registers */
    bool weave;               /* stores of all rows are interleaved (loop/interleaved_stores.h) */
    bool written;            /* the last axis of a reduction, and what is met again there read once;
                           * of a map, what all points read before the first of them is stored */
    tci_window_overlap skew; /* row > 0: a reduction's last axis is written out by what rows meet */
    int next_axis;           /* rows: the outer axis whose next row is fetched ahead, -1 none */
} tci_tile;

/* Opens loops over n inner axes and binds them; close undoes both. */
TCI_FN tci_lopen *tci_stage_open(tci_build *b, const int32_t *axes, int n);
TCI_FN void tci_stage_close(tci_build *b, const int32_t *axes, int n, const tci_lopen *open);
/* Binds point i of the tile. */
TCI_FN void tci_stage_point(tci_build *b, const tci_tile *tile, int i);
/* Computes the values that the stage stores at the current point, without storing them; emits its
 * stores. */
TCI_FN void tci_stage_values(tci_build *b, int stage);
TCI_FN void tci_stage_stores(tci_build *b, int stage, const tci_kstore *stream);
/* Elements of `store` from the position where `axis` is `at` up to an aligned address; the axis is
 * left unbound. */
TCI_FN int tci_stage_head(tci_build *b, const tci_kstore *store, int axis, tci_lin at, tci_dim lo,
                          tci_dim hi);
/* Prefetches for the loads that are contiguous along the tile's vector axis. */
TCI_FN void tci_stage_prefetch(tci_build *b, const tci_tile *tile);
/* At the first point of a row: the lines that the next tile of this row stores to by the caches,
 * which no machine fetches by itself where a tile has as many rows as lanes. */
TCI_FN void tci_stage_fetch_stores(tci_build *b, int stage, const tci_tile *tile);
/* For the next row along next_axis (-1: nothing), at the current position of `axis`, which is
 * `skip` elements after a cache line. */
TCI_FN void tci_stage_fetch_next(tci_build *b, int axis, int next_axis, int64_t skip);
/* The stage that has time to fetch the next row for the first one: -1 none. */
TCI_FN int tci_stage_ahead(const tci_kernel *k);

#endif
