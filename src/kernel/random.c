/* kernel/random.c - generates random bits by scalar primitives: the counter-based generator
 * Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011.
 *
 * In: values of a kernel: a key, a stream, the index of an element. Out: the value of its bits.
 * Design: no state. A block of four words is a function of a key of two words and a counter of
 * four: the number of the block, low and high, then the stream, low and high. An element of u32 is
 * word i % 4 of block i / 4; of u64 it is the words 2 (i % 2), low, and 2 (i % 2) + 1 of block i /
 * 2. It depends on the index alone, wherever and however often it is evaluated: no tile, vector or
 * thread changes it. Words that are known to be 0 are left out. */
#include "random.h"

#include "lower_graph.h"

enum { TCI_RANDOM_ROUNDS = 10 };

static int tci_random_number(tci_kernel *k, tc_dtype t, uint64_t v)
{
    return tci_kernel_const(k, t, (tci_value){.u = v});
}

static int tci_random_by(tci_kernel *k, tci_prim p, tc_dtype t, int a, uint64_t number)
{
    return a < 0 ? a : tci_kernel_prim(k, p, t, 2, a, tci_random_number(k, t, number), -1);
}

static int tci_random_xor(tci_kernel *k, int a, int b)
{
    return a < 0 ? b : b < 0 ? a : tci_kernel_prim(k, TCI_P_XOR, TC_U32, 2, a, b, -1);
}

TCI_FN int tci_random_word(tci_kernel *k, tc_dtype t, int a, int word)
{
    a = word ? tci_random_by(k, TCI_P_SHR, t, a, 32) : a;
    return a < 0 ? a : tci_lower_convert(k, a, TC_U32);
}

/* With the carry: the words of a row's index are numbers, not vectors, where it is the same for all
 * lanes, and no lane is wider than a word. */
TCI_FN void tci_random_put(tci_kernel *k, int row, int column, tci_random_place *at)
{
    int low = tci_random_word(k, TC_I64, row, 0), high = tci_random_word(k, TC_I64, row, 1);
    int one = tci_random_number(k, TC_U32, 1), none = tci_random_number(k, TC_U32, 0);
    at->index = tci_kernel_prim(k, TCI_P_ADD, TC_U32, 2, low, column, -1);
    int wraps = tci_kernel_prim(k, TCI_P_LT, TC_U32, 2, at->index, low, -1);
    int carry = tci_kernel_prim(k, TCI_P_SELECT, TC_U32, 3, wraps, one, none);
    at->high = tci_kernel_prim(k, TCI_P_ADD, TC_U32, 2, high, carry, -1);
}

/* The ten rounds: two products each, whose halves are exchanged and mixed with the key; the key of
 * a round is the first one plus a multiple of two constants. */
TCI_FN tci_random_block tci_random_mix(tci_kernel *k, tci_random_block c, int key)
{
    for (uint32_t round = 0; round < TCI_RANDOM_ROUNDS; round++) {
        int key0 = tci_random_by(k, TCI_P_ADD, TC_U32, tci_random_word(k, TC_U64, key, 0),
                                 (uint32_t)(round * 0x9e3779b9u));
        int key1 = tci_random_by(k, TCI_P_ADD, TC_U32, tci_random_word(k, TC_U64, key, 1),
                                 (uint32_t)(round * 0xbb67ae85u));
        int low0 = tci_random_by(k, TCI_P_MUL, TC_U32, c.w[0], 0xd2511f53u);
        int high0 = tci_random_by(k, TCI_P_MULHI, TC_U32, c.w[0], 0xd2511f53u);
        int low1 = tci_random_by(k, TCI_P_MUL, TC_U32, c.w[2], 0xcd9e8d57u);
        int high1 = tci_random_by(k, TCI_P_MULHI, TC_U32, c.w[2], 0xcd9e8d57u);
        c = (tci_random_block){{tci_random_xor(k, tci_random_xor(k, high1, c.w[1]), key0), low1,
                                tci_random_xor(k, tci_random_xor(k, high0, c.w[3]), key1), low0}};
    }
    return c;
}

/* True if the bit is set in the index. */
static int tci_random_bit(tci_kernel *k, int index, uint64_t bit)
{
    int masked = tci_random_by(k, TCI_P_AND, TC_U32, index, bit);
    return tci_kernel_prim(k, TCI_P_EQ, TC_U32, 2, masked, tci_random_number(k, TC_U32, bit), -1);
}

static int tci_random_select(tci_kernel *k, int bit, int set, int clear)
{
    return tci_kernel_prim(k, TCI_P_SELECT, TC_U32, 3, bit, set, clear);
}

TCI_FN int tci_random_bits(tci_kernel *k, const tci_random_place *at, tc_dtype dtype)
{
    bool wide = dtype == TC_U64;
    int by = wide ? 1 : 2, block = tci_random_by(k, TCI_P_SHR, TC_U32, at->index, (uint64_t)by);
    int above = tci_random_by(k, TCI_P_SHL, TC_U32, at->high, (uint64_t)(32 - by));
    tci_random_block c = {
        {above < 0 ? block : tci_kernel_prim(k, TCI_P_OR, TC_U32, 2, block, above, -1),
         tci_random_by(k, TCI_P_SHR, TC_U32, at->high, (uint64_t)by),
         tci_random_word(k, TC_U64, at->stream, 0), tci_random_word(k, TC_U64, at->stream, 1)}};
    c = tci_random_mix(k, c, at->key);
    int last = tci_random_bit(k, at->index, 1);
    if (!wide) {
        return tci_random_select(k, tci_random_bit(k, at->index, 2),
                                 tci_random_select(k, last, c.w[3], c.w[2]),
                                 tci_random_select(k, last, c.w[1], c.w[0]));
    }
    int low = tci_lower_convert(k, tci_random_select(k, last, c.w[2], c.w[0]), TC_U64);
    int high = tci_lower_convert(k, tci_random_select(k, last, c.w[3], c.w[1]), TC_U64);
    high = tci_random_by(k, TCI_P_SHL, TC_U64, high, 32);
    return tci_kernel_prim(k, TCI_P_OR, TC_U64, 2, low, high, -1);
}
