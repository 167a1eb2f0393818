/* loop/vectorize.h - declares vectorized loops: peeled at guards, whole vectors, remainder. */
#ifndef TCI_LOOP_VECTORIZE_H
#define TCI_LOOP_VECTORIZE_H

#include "lower_expr.h"

enum { TCI_MAX_UNROLL = 64 };
typedef void (*tci_vec_body)(tci_build *b, void *arg, int n, const tci_bind **vecs);

/* A vector (n: elements that exist, index expression; -1 all) at a position in [lo, hi]. */
TCI_FN const tci_bind *tci_stage_vector(tci_build *b, tci_lin at, tci_dim lo, tci_dim hi, int n);
/* Calls body for [begin, end) of an axis, `unroll` vectors at a time, the rest in one shorter call
 * whose last vector may be partial. The axis itself is bound by the body. */
TCI_FN void tci_stage_vectors(tci_build *b, tci_dim begin, tci_dim end, int unroll,
                              tci_vec_body body, void *arg);
/* As above for bounds that are index expressions in [lo, hi]; `head` (lx, -1 none) elements go
 * first. */
TCI_FN void tci_stage_vectors_dynamic(tci_build *b, int begin, int end, int head, tci_dim lo,
                                      tci_dim hi, int unroll, tci_vec_body body, void *arg);
/* Inner positions of [0, size) where a guard on `axis` changes, rounded to `align`, ascending; at
 * most max, else none. Unknown positions are left out: elements there are masked. */
TCI_FN int tci_stage_cuts(tci_build *b, int axis, int64_t align, tci_dim *cuts, int max);
/* The rows after the last whole tile of `base` rows, of `size` in all, where that is not known:
 * body for 8, 4, 2 and 1 rows from `first` on, each where it is there. */
typedef void (*tci_rest_body)(tci_build *b, void *arg, tci_dim first, int rows);
TCI_FN void tci_stage_rest_rows(tci_build *b, tci_dim size, int64_t base, tci_rest_body body,
                                void *arg);

#endif
