/* kernel/value_range.h - declares the value-range analysis of a kernel's instructions. */
#ifndef TCI_KERNEL_VALUE_RANGE_H
#define TCI_KERNEL_VALUE_RANGE_H

#include "ir.h"

/* Whether the integer instruction `inst` is never below 0 and below n at all sizes that symbols
 * may take. Scratch: s. */
TCI_FN bool tci_kernel_is_below(tci_scratch *s, const tci_kernel *k, int inst, tci_dim n);
/* Whether the float instruction `inst` is sure not to be above 0; NaN is not. */
TCI_FN bool tci_kernel_is_never_above_0(const tci_kernel *k, int inst);

#endif
