/* loop/stage.h - emits the stages of a kernel for a tile of outer points. */
#ifndef TCI_LOOP_STAGE_H
#define TCI_LOOP_STAGE_H

#include "build.h"

/* The outer points worked on together: n_rows values of one outer axis times n_vecs vectors of the
 * vector axis. row_axis -1: one row and no binding; vec_axis -1: likewise. */
typedef struct tci_tile {
    int row_axis, n_rows;
    const tci_bind **rows;
    int vec_axis, n_vecs;
    const tci_bind **vecs;
    const tci_kstore *stream; /* whose whole vectors, aligned, bypass the caches; NULL none */
    int64_t prefetch;     /* bytes ahead along the vector axis; 0 none */
    bool turn;            /* loads that run along the rows are turned in registers */
    int next_axis;        /* rows: the outer axis whose next row is fetched ahead, -1 none */
} tci_tile;

enum { TCI_MAX_UNROLL = 64 };
typedef void (*tci_vec_body)(tci_build *b, void *arg, int n, const tci_bind **vecs);

/* Calls body for [begin, end) of an axis, `unroll` vectors at a time, the rest in one shorter call
 * whose last vector may be partial. The axis itself is bound by the body. */
TCI_FN void tci_stage_vectors(tci_build *b, tci_dim begin, tci_dim end, int unroll,
                              tci_vec_body body, void *arg);
/* As above for bounds that are index expressions in [lo, hi]; `head` (lx, -1 none) elements go
 * first. */
TCI_FN void tci_stage_vectors_dynamic(tci_build *b, int begin, int end, int head, tci_dim lo,
                                      tci_dim hi, int unroll, tci_vec_body body, void *arg);
/* Inner places of [0, size) where a guard on `axis` changes, rounded to `align`, ascending; at most
 * max, else none. Those that are not known are left out: what lies there is masked. */
TCI_FN int tci_stage_cuts(tci_build *b, int axis, int64_t align, tci_dim *cuts, int max);
/* The rows behind the last whole tile of `base` rows, of `size` in all, where that is not known:
 * body for 8, 4, 2 and 1 rows from `first` on, each where it is there. */
typedef void (*tci_rest_body)(tci_build *b, void *arg, tci_dim first, int rows);
TCI_FN void tci_stage_rest_rows(tci_build *b, tci_dim size, int64_t base, tci_rest_body body,
                                void *arg);
/* All stages in order. */
TCI_FN void tci_stage_all(tci_build *b, const tci_tile *tile);
/* A reduction over one inner axis for a long stretch of the vector axis: the accumulators lie in
 * local arrays and a few rows are taken in at a time, so that memory is read in long runs. Then the
 * later stages. The stretch is [first, end), both in [lo, hi + 1], of at most `chunk` elements. */
typedef struct tci_panel {
    int vec_axis, rows, unroll;
    tci_lin first;
    int end;              /* index expression */
    tci_dim lo, hi;
    int64_t chunk;
} tci_panel;
TCI_FN void tci_stage_panel(tci_build *b, const tci_panel *panel);
/* Prefetches for the loads that are contiguous along the tile's vector axis. */
TCI_FN void tci_stage_prefetch(tci_build *b, const tci_tile *tile);
/* Elements of `store` from the place where `axis` is `at` up to an aligned address; the axis is
 * left unbound. */
TCI_FN int tci_stage_head(tci_build *b, const tci_kstore *store, int axis, tci_lin at, tci_dim lo,
                          tci_dim hi);
/* The stage that has time to fetch the next row for the first one: -1 none. */
TCI_FN int tci_stage_ahead(const tci_kernel *k);
/* loop/schedule.c: of a MAP stage's vector loop; flops of one point. */
TCI_FN int tci_stage_unroll(const tci_kernel *k, int stage, int lanes);
TCI_FN int64_t tci_stage_cost(const tci_kernel *k, int stage);

/* ---- pieces that other schedules share ---- */

/* The stage's stores at the current point. */
TCI_FN void tci_stage_stores(tci_build *b, int stage, const tci_kstore *stream);

/* An accumulator or what it takes in: value and, for ARG, its index (DOT: the second factor). */
typedef struct tci_stage_pair { int value, index; } tci_stage_pair;
TCI_FN tci_stage_pair tci_stage_operands(tci_build *b, const tci_kred *red);
TCI_FN tci_stage_pair tci_stage_combine(tci_build *b, const tci_kred *red, tci_stage_pair acc,
                                        tci_stage_pair v);
/* mutable, at the identity */
TCI_FN tci_stage_pair tci_stage_accumulator(tci_build *b, const tci_kred *red, int lanes);
TCI_FN void tci_stage_assign(tci_build *b, tci_stage_pair acc, tci_stage_pair v);
TCI_FN void tci_stage_remember_result(tci_build *b, const tci_kred *red, tci_stage_pair acc);
/* Accumulators of a vector in local arrays, at index expression x. */
TCI_FN tci_stage_pair tci_stage_array_get(tci_build *b, const tci_kred *red, tci_stage_pair array,
                                          int x);
TCI_FN void tci_stage_array_set(tci_build *b, tci_stage_pair array, int x, tci_stage_pair v);
/* Binds point i of the tile. */
TCI_FN void tci_stage_point(tci_build *b, const tci_tile *tile, int i);
/* The stages from `first` on. */
TCI_FN void tci_stage_from(tci_build *b, const tci_tile *tile, int first);

#endif
