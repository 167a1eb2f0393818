/* loop/cut.h - rows of which a comparison of indices masks all elements from one place on. */
#ifndef TCI_LOOP_CUT_H
#define TCI_LOOP_CUT_H

#include "build.h"

/* Row i of the outer axis `row_axis` sees the elements below base + step * i of the inner axis
 * `axis` alone, step 0 or 1. */
typedef struct tci_cut {
    int row_axis, axis;
    int64_t base, step;
    int guard;              /* the GUARD instruction, and its truth where an element is masked */
    int8_t masked;
    /* derived, per instruction: is it one value for all elements of a row that are masked? */
    bool *is_one;
    int8_t *truth;          /* of a bool there, tci_truth */
} tci_cut;

/* False: there is none. */
TCI_FN bool tci_cut_find(const tci_kernel *k, int row_axis, tci_cut *c);
/* Is the row that reduction `red` keeps along the cut axis read where it is seen alone? */
TCI_FN bool tci_cut_hides(const tci_kernel *k, const tci_cut *c, int red);
/* How many elements the rows up to `last` see, as an index. */
TCI_FN int tci_cut_end(tci_build *b, const tci_cut *c, tci_lin last);
/* The same for rows [first, last), but all elements where that of `inst`, which is_one, is not +0
 * behind the cut in each row. */
TCI_FN int tci_cut_zero_end(tci_build *b, const tci_cut *c, int inst, tci_lin first, tci_lin last);

#endif
