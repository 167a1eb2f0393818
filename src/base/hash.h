/* base/hash.h - 128-bit non-cryptographic hash. Keys are always compared in full as well, so a
 * collision costs time but never gives a wrong result. */
#ifndef TCI_BASE_HASH_H
#define TCI_BASE_HASH_H

#include "platform.h"

typedef struct tci_hash {
    uint64_t lo, hi;
} tci_hash;

TCI_FN tci_hash tci_hash_bytes(const void *bytes, size_t n);
TCI_FN uint64_t tci_hash_mix(uint64_t seed, uint64_t value); /* one step; for small structs */
TCI_FN void tci_hash_hex(tci_hash h, char out[33]);          /* 32 lower-case digits and NUL */

#endif
