/* base/hash.c - 128-bit non-cryptographic hash of bytes.
 *
 * In: bytes. Out: two 64-bit words, the same on all machines of one byte order.
 *
 * Design: the folded product of two 64-bit words (high half xor low half of 128 bits) mixes all
 * bits of both in one multiplication. Both words of the state see all input, 16 bytes per step,
 * through different constants; the two multiplications of a step are independent. The rotated old
 * state is added, so a factor that happens to be zero does not erase it. */
#include <string.h>

#include "hash.h"

/* Odd words with random-looking bits: fractional parts of the square roots of 2, 3, 5 and 7. */
#define TCI_HASH_K0 0x6a09e667f3bcc909u
#define TCI_HASH_K1 0xbb67ae8584caa73bu
#define TCI_HASH_K2 0x3c6ef372fe94f82bu
#define TCI_HASH_K3 0xa54ff53a5f1d36f1u

TCI_INLINE uint64_t tci_hash_fold(uint64_t a, uint64_t b)
{
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 tci_hash_u128;
    tci_hash_u128 product = (tci_hash_u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    uint64_t low = al * bl, mid = ah * bl + (low >> 32), mid2 = al * bh + (mid & 0xffffffffu);
    uint64_t high = ah * bh + (mid >> 32) + (mid2 >> 32);
    return high ^ ((mid2 << 32) | (low & 0xffffffffu));
#endif
}

TCI_INLINE uint64_t tci_hash_rotate(uint64_t v, int by)
{
    return (v << by) | (v >> (64 - by));
}

TCI_INLINE tci_hash tci_hash_step(tci_hash h, uint64_t a, uint64_t b)
{
    tci_hash next;
    next.lo = tci_hash_fold(h.lo ^ a, b ^ TCI_HASH_K0) + tci_hash_rotate(h.lo, 23);
    next.hi = tci_hash_fold(h.hi ^ b, a ^ TCI_HASH_K1) + tci_hash_rotate(h.hi, 41);
    return next;
}

TCI_FN tci_hash tci_hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    tci_hash h = {TCI_HASH_K2 ^ n, TCI_HASH_K3 + n};
    uint64_t w[2];
    size_t left = n;
    for (; left >= 16; left -= 16, p += 16) {
        memcpy(w, p, 16);
        h = tci_hash_step(h, w[0], w[1]);
    }
    if (left) {
        w[0] = w[1] = 0;
        memcpy(w, p, left);
        h = tci_hash_step(h, w[0], w[1]);
    }
    tci_hash r;
    r.lo = tci_hash_fold(h.lo ^ TCI_HASH_K1, tci_hash_rotate(h.hi, 32) ^ TCI_HASH_K2);
    r.hi = tci_hash_fold(h.hi ^ TCI_HASH_K0, tci_hash_rotate(h.lo, 17) ^ TCI_HASH_K3);
    r.lo ^= h.hi;
    r.hi ^= h.lo;
    return r;
}

TCI_FN uint64_t tci_hash_mix(uint64_t seed, uint64_t value)
{
    return tci_hash_fold(seed ^ TCI_HASH_K0, value ^ TCI_HASH_K1) + tci_hash_rotate(seed, 29);
}

TCI_FN void tci_hash_hex(tci_hash h, char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digits[(h.hi >> (60 - 4 * i)) & 15];
        out[16 + i] = digits[(h.lo >> (60 - 4 * i)) & 15];
    }
    out[32] = 0;
}

#undef TCI_HASH_K0
#undef TCI_HASH_K1
#undef TCI_HASH_K2
#undef TCI_HASH_K3
