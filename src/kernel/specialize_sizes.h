/* kernel/specialize_sizes.h - declares shape specialization: symbolic sizes of a kernel are
 * replaced by their values. Only under TC_DYNAMIC_SHAPES. */
#ifndef TCI_KERNEL_SPECIALIZE_SIZES_H
#define TCI_KERNEL_SPECIALIZE_SIZES_H

#include "ir.h"

#ifdef TC_DYNAMIC_SHAPES
/* A copy whose memory comes from get(arg, bytes), zeroed; NULL: that gave none. It has no scratch
 * and takes no more instructions. */
TCI_FN tci_kernel *tci_kernel_keep(void *(*get)(void *arg, size_t bytes), void *arg,
                                   const tci_kernel *k);
/* The kernel where symbol number i has values[i]: no number in it is symbolic. Axes, operands,
 * stages and reductions stay what and where they are; index expressions and instructions are made
 * anew, so that ranges are those of these sizes. */
TCI_FN tci_kernel *tci_kernel_at(tci_scratch *s, const tci_kernel *k, const int64_t *values);
#endif

#endif
