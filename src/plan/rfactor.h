/* plan/rfactor.h - splits axes of reductions, scans and contractions into parts, whose partial
 * results a second reduction combines (rfactor).
 *
 * In: a REDUCE, or the operands of a SCAN or CONTRACT and the length of a part. Out: the nodes.
 * The part length fixes the order of accumulation (association class), so each pass has a rule of
 * its own for it; the rule for reductions is in plan/rfactor.c. */
#ifndef TCI_PLAN_RFACTOR_H
#define TCI_PLAN_RFACTOR_H

#include "relayout.h"

/* The nodes that compute reduction n, in parts or whole; tci_plan_split: n in parts, NULL: it stays
 * whole. */
TCI_FN tci_node *tci_rfactor(const tci_algo *a, tci_node *n);
TCI_FN tci_node *tci_plan_split(const tci_algo *a, tci_node *n);
/* True if reduction n is cut in chunks. */
TCI_FN bool tci_rfactor_cuts(const tci_algo *a, const tci_node *n);
/* The divisor of n nearest to want, the larger of two, from a fourth of it to below its double; 0:
 * there is none. */
TCI_FN int64_t tci_plan_divisor(int64_t n, int64_t want);

/* x with that axis as two: parts, and the `length` elements of each. */
TCI_FN tci_node *tci_rfactor_axis(const tci_algo *a, tci_node *x, int axis, int64_t length);

/* How the axis of a label that a CONTRACT sums is cut: elements from `start`, `parts` times
 * `length`. */
typedef struct tci_rfactor_label {
    int64_t label,
        of_parts; /* the axis's, and that of its parts: `label`: each element is a part */
    int64_t start, parts, length;
} tci_rfactor_label;

/* The contraction of that form, whose result has shape `shape` and dtype t, as the SUM of partial
 * results: one for each part of the labels that are cut in several. */
TCI_FN tci_node *tci_rfactor_contract(const tci_algo *a, const tci_contract_form *f, tc_dtype t,
                                      const tci_dim *shape, const tci_rfactor_label *cuts,
                                      int n_cuts);

#endif
