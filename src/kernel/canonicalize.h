/* kernel/canonicalize.h - declares kernel canonicalization: splits and merges axes, crops operands,
 * removes dead code. */
#ifndef TCI_KERNEL_CANONICALIZE_H
#define TCI_KERNEL_CANONICALIZE_H

#include "ir.h"
#include "machine.h"

enum { TCI_KERNEL_SHORT = 4 }; /* elements of an axis that makes poor vectors, at most */

/* Index expressions inside those that a store or reduction needs, by number, with those of loads
 * from panels or without: no axis is split for them. In scratch. */
TCI_FN bool *tci_kernel_live_kx(const tci_kernel *k, bool panels);
/* An axis and a factor of its size such that splitting the axis (slow part, fast part of that size)
 * makes some needed floor-division or remainder affine; false when there is none. */
TCI_FN bool tci_kernel_split_find(const tci_kernel *k, int *axis, tci_dim *factor);
/* True if operands of its contractions are read at an index with a division. */
TCI_FN bool tci_kernel_dots_divide(const tci_kernel *k);
/* A copy in canonical order without dead values, neighbouring axes merged where every access
 * allows. */
TCI_FN tci_kernel *tci_kernel_finish(const tci_kernel *k);
/* The kernel, finished, that has of each operand it reads only the range it reads, where that is
 * known. offsets, one an operand: the byte at which that begins, a multiple of TCI_ALIGNED_BYTES.
 * May change k. */
TCI_FN tci_kernel *tci_kernel_crop(tci_kernel *k, tci_dim *offsets);

#endif
