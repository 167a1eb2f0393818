/* loop/causal_bound.h - declares the trip counts of loops that a triangular (causal) mask shortens.
 */
#ifndef TCI_LOOP_CAUSAL_BOUND_H
#define TCI_LOOP_CAUSAL_BOUND_H

#include "lower_expr.h"

/* Row i of the outer axis `row_axis` sees the elements below base + step * i of the inner axis
 * `axis` alone, or, `low`, those from there on; step 0 or 1. */
typedef struct tci_causal {
    int row_axis, axis;
    bool low; /* the elements below are masked */
    int64_t base, step;
    int guard; /* the GUARD instruction, and its truth where an element is masked */
    int8_t masked;
    /* derived, per instruction: is it one value for all elements of a row that are masked, or, low,
     * for all rows that mask an element? */
    bool *is_one;
    int8_t *truth; /* of a bool there, tci_truth */
} tci_causal;

/* False: there is none. */
TCI_FN bool tci_causal_find(const tci_kernel *k, int row_axis, tci_causal *c);
/* True if the row along the axis is shortened, at a row whose index is bound. */
TCI_FN bool tci_causal_is_bound(const tci_build *b, int axis);
/* True if reductions that read the row which `red` keeps along the shortened axis read its visible
 * part only. leaves: stages that sum such rows and leave out masked elements; NULL: none. */
TCI_FN bool tci_causal_hides(const tci_kernel *k, const tci_causal *c, int red, const bool *leaves);
/* Where row `row` is cut, as an index. */
TCI_FN int tci_causal_at(tci_build *b, const tci_causal *c, tci_lin row);
/* Where all rows of [first, last) are masked, on one side of it; but no elements are where those of
 * `inst`, which is_one, are not +0 there in each row. */
TCI_FN int tci_causal_zeros(tci_build *b, const tci_causal *c, int inst, tci_lin first,
                            tci_lin last);

#endif
