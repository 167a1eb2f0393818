/* api/reflectors_rotations.h - building blocks of matrix factorizations: reflectors, QR, Jacobi
 * rotations.
 *
 * In: matrices [..., m, n], within a call between tci_made_begin and its end. Out: tensors that
 * api/qr_svd_eig.c and api/eig_divide_conquer.c put together. */
#ifndef TCI_API_REFLECTORS_ROTATIONS_H
#define TCI_API_REFLECTORS_ROTATIONS_H

#include "composite_helpers.h"

enum { TCI_FACTOR_PANEL = 32 }; /* columns whose reflectors are applied at once */

/* Arguments for the body of a loop. */
typedef struct tci_factor {
    const tci_made *m;
    int64_t length; /* elements of a row that enter dot products; for columns all */
    double small;   /* cosine of rows that are orthogonal but for rounding */
    double least;   /* products below it have lost digits: of elements up to 2 they count as zero */
    tc_tensor done; /* bool [..., 1, 1]: matrices whose rows stay as they are */
    /* [..., 1, 1]: squared norm up to which a column is rounding error and gets no reflector; all
     * zero: only `least` counts */
    tc_tensor noise;
} tci_factor;

/* Products of elements up to 2 that have lost digits. */
TCI_FN double tci_factor_least(tc_tensor x);
TCI_FN tc_tensor tci_factor_turned(tc_tensor x, tc_site here);
/* 0, 1, ... n - 1 as a column. */
TCI_FN tc_tensor tci_factor_places(const tci_made *m, int64_t n);
/* Ones on the diagonal of matrices like x. */
TCI_FN tc_tensor tci_factor_one(const tci_made *m, tc_tensor x);
/* The power of two [..., 1, 1] below the largest element of each of matrices x: what is divided by
 * it has the same digits, and squares that neither overflow nor vanish. 1 of a matrix that is zero
 * or not finite. */
TCI_FN tc_tensor tci_factor_scale(const tci_made *m, tc_tensor x);
/* The reflector of a column [..., m, 1] that leaves in the rows from `own` on only one element, at
 * own: y[0] its vector, 1 at own and 0 above, y[1] its weight [..., 1, 1], 0 if there is nothing to
 * do. Returns that element. own, below: bool masks of rows. */
TCI_FN tc_tensor tci_factor_reflector(const tci_factor *f, tc_tensor column, tc_tensor own,
                                      tc_tensor below, tc_tensor *y);
/* Reflectors of a step, [panel, ..., any, 1], as the columns of a matrix [..., any, panel]. */
TCI_FN tc_tensor tci_factor_columns(tc_tensor of_steps, tc_site here);
/* The triangle t of reflectors in the compact WY form, from their vectors v [..., m, panel] and
 * weights tau [..., 1, panel]: the first reflector times the second and so on is 1 - v t^T v^T
 * (Schreiber and Van Loan, SIAM J. Sci. Stat. Comput. 10, 1989). */
TCI_FN tc_tensor tci_factor_compact(const tci_made *m, tc_tensor v, tc_tensor tau);
/* a [..., m, n] as q [..., m, k] and r [..., k, n], k the lesser. Columns are taken one after the
 * other, or in panels, each of which changes all others by products of matrices. */
TCI_FN void tci_factor_qr(const tci_made *m, tc_tensor a, tc_tensor *q, tc_tensor *r);
/* The body of a scan over panels of reflectors, x[0] = v, x[1] = t: applies them to carry[0]. */
TCI_FN tc_status tci_factor_gather_block(void *user, const tc_tensor *carry, const tc_tensor *x,
                                         tc_tensor *next, tc_tensor *y);
/* Rows [..., n, any] turned among each other until the first `length` elements of one are
 * orthogonal to those of all others. */
TCI_FN tc_tensor tci_factor_orthogonal(const tci_made *m, tc_tensor rows, int64_t length);
/* The rows by an order of their positions. */
TCI_FN tc_tensor tci_factor_ordered(tc_tensor rows, tc_tensor order, tc_site here);
/* Eigenvectors of symmetric matrices a, scaled so that squares neither overflow nor vanish, as
 * rows, in any order, without derivatives, by rotations. */
TCI_FN tc_tensor tci_factor_rotated(const tci_made *m, tc_tensor a);
/* The same by divide and conquer (api/eig_divide_conquer.c), for matrices of at least
 * TCI_FACTOR_PANEL rows. */
TCI_FN tc_tensor tci_eigen_vectors(const tci_made *m, tc_tensor a);

#endif
