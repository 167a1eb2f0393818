/* kernel/bitcast.h - declares the lowering of BITCAST to primitives of a kernel. */
#ifndef TCI_KERNEL_BITCAST_H
#define TCI_KERNEL_BITCAST_H

#include "ir.h"

/* The value of dtype `to` whose bits are those of a value of `from`; both are of one size, and
 * neither is bool. */
TCI_FN int tci_bitcast_value(tci_kernel *k, int value, tc_dtype from, tc_dtype to);

#endif
