/* loop/dot_packing.h - declares packing for dot instructions (VDPBF16PS, VPDPBUSD): groups of two
 * or four K elements per lane. */
#ifndef TCI_LOOP_DOT_PACKING_H
#define TCI_LOOP_DOT_PACKING_H

#include "packing.h"

/* The dtype of a packed group of `points` elements of dtype t. */
TCI_FN tc_dtype tci_dot_pack_dtype(tc_dtype t, int points);
/* True if the points of a group are evaluated together, rather than one by one and merged. */
TCI_FN bool tci_dot_pack_by_two(const tci_gemm *p);
/* True if all points of the inner axes after the split one are packed at once, for a few positions
 * of it. */
TCI_FN bool tci_dot_pack_by_window(const tci_gemm *p);
/* These `n` vectors of columns, at the points of the block. */
TCI_FN void tci_dot_pack_pack_window(tci_gemm_state *s, int n, const tci_bind *const *vecs);
/* body for each element of points [from, to), index expressions of points of the block, which begin
 * with an element: at s->places, NULL where there is no point any more, and for number s->step. */
TCI_FN void tci_dot_pack_walk(tci_gemm_state *s, int from, int to, int unroll,
                              void (*body)(tci_gemm_state *));
/* The vectors s->vecs of columns at these places: into the panel. */
TCI_FN void tci_dot_pack_fill(tci_gemm_state *s);
/* A vector of rows there, from row `skip` of the tile on. */
TCI_FN void tci_dot_pack_pack_rows(tci_gemm_state *s, int64_t skip);
/* The rows that are contiguous, for a unit: each is its pairs. */
TCI_FN void tci_dot_pack_pack_turned_rows(tci_gemm_state *s);
/* True if points are contiguous along the only inner axis, in whole vectors, as this load reads
 * them (-1: no load). A row is then copied to element `at` of the panel, and the vectors s->vecs
 * are transposed as elements. */
TCI_FN bool tci_dot_pack_in_order(const tci_build *b, const tci_gemm *p, int load);
TCI_FN void tci_dot_pack_copy_row(tci_gemm_state *s, tci_lin at);
TCI_FN void tci_dot_pack_pack_turned(tci_gemm_state *s);
/* Transposes a square tile of as many vectors as they have lanes: blocks of two are exchanged. */
TCI_FN void tci_dot_pack_transpose(tci_build *b, int *v);
/* Makes elements of the points of a row, which are contiguous from element `at` of the panel on. */
TCI_FN void tci_dot_pack_finish_row(tci_gemm_state *s, tci_lin at);
/* The products of the points [from, to) of the block. */
TCI_FN void tci_dot_pack_dot(tci_gemm_state *s, const tci_tile *tile, tci_lin number,
                             const tci_stage_tuple *acc, int from, int to);

#endif
