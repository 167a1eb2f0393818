/* kernel/random.h - random bits as prims of a kernel (kernel/random.c). */
#ifndef TCI_KERNEL_RANDOM_H
#define TCI_KERNEL_RANDOM_H

#include "ir.h"

/* Where an element of a RANDOM node stands: values of the kernel. */
typedef struct tci_random_place {
    int key, stream; /* u64; stream -1: it is 0 */
    int index;       /* row-major, from 0 on: u32 if narrow, else i64 */
    bool narrow;     /* every index fits 32 bits */
} tci_random_place;

/* Four words of u32, low ones first; -1: a word that is 0. */
typedef struct tci_random_block {
    int w[4];
} tci_random_block;

/* The block of a counter. */
TCI_FN tci_random_block tci_random_mix(tci_kernel *k, tci_random_block counter, int key);
/* The bits of an element, of dtype u32 or u64. */
TCI_FN int tci_random_bits(tci_kernel *k, const tci_random_place *at, tc_dtype dtype);

#endif
