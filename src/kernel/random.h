/* kernel/random.h - declares Philox random bits, lowered to primitives of a kernel. */
#ifndef TCI_KERNEL_RANDOM_H
#define TCI_KERNEL_RANDOM_H

#include "ir.h"

/* Position of an element of a RANDOM node: values of the kernel. */
typedef struct tci_random_place {
    int key, stream; /* u64; stream -1: it is 0 */
    int index, high; /* row-major, from 0 on: the low word, u32, and the high one; -1: it is 0 */
} tci_random_place;

/* Four words of u32, low ones first; -1: a word that is 0. */
typedef struct tci_random_block {
    int w[4];
} tci_random_block;

/* Word 0, the low one, or 1 of a value of u64 or i64; -1 of -1. */
TCI_FN int tci_random_word(tci_kernel *k, tc_dtype t, int a, int word);
/* The position where `column`, u32, is added to the index `row`, i64. */
TCI_FN void tci_random_put(tci_kernel *k, int row, int column, tci_random_place *at);
/* The block of a counter. */
TCI_FN tci_random_block tci_random_mix(tci_kernel *k, tci_random_block counter, int key);
/* The bits of an element, of dtype u32 or u64. */
TCI_FN int tci_random_bits(tci_kernel *k, const tci_random_place *at, tc_dtype dtype);

#endif
