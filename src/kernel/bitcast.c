/* kernel/bitcast.c - lowers BITCAST to primitives: reinterprets the bits of a value.
 *
 * In: a value of a kernel and its dtype in memory. Out: the value of the same bits in another
 * dtype of that size. Design: unsigned integers are the intermediate form. An f32 or f64 converts
 * by the prim BITS. f16 and bf16 values are computed as f32: the bits of a bf16 are the upper half
 * of those; for an f16 exponent and mantissa are shifted, and subnormals are read off as the last
 * bits of a sum with 1/2, whose unit in the last place is 2^-24, as in f16. */
#include "bitcast.h"

#include "lower_graph.h"

enum {
    TCI_BITS_SIGN = 0x8000, /* of a half; where an f32 has it, 16 bits further up */
    TCI_BITS_DIGITS = 13,   /* more digits in an f32 than in an f16 */
    TCI_BITS_LEAST = 0x400, /* the least normal f16 */
    TCI_BITS_INFINITY = 0x7c00,
    TCI_BITS_BIAS = 127 - 15,  /* of an exponent, f32's less f16's */
    TCI_BITS_BEYOND = 255 - 31 /* the same of infinity and NaN */
};

static int tci_bitcast_number(tci_kernel *k, uint64_t v)
{
    return tci_kernel_const(k, TC_U32, (tci_value){.u = v});
}

static int tci_bitcast_by(tci_kernel *k, tci_prim p, int a, uint32_t number)
{
    return tci_kernel_prim(k, p, TC_U32, 2, a, tci_bitcast_number(k, number), -1);
}

static int tci_bitcast_as(tci_kernel *k, int value, tc_dtype to)
{
    return tci_kernel_prim(k, TCI_P_BITS, to, 1, value, -1, -1);
}

static int tci_bitcast_select(tci_kernel *k, int mask, int a, int b)
{
    return tci_kernel_prim(k, TCI_P_SELECT, TC_U32, 3, mask, a, b);
}

/* A word less than a number ? a : b. */
static int tci_bitcast_below(tci_kernel *k, int word, uint32_t number, int a, int b)
{
    int less = tci_kernel_prim(k, TCI_P_LT, TC_BOOL, 2, word, tci_bitcast_number(k, number), -1);
    return tci_bitcast_select(k, less, a, b);
}

/* By how much the exponents of magnitude `word` differ, in place in f16 or (digits) in f32. */
static int tci_bitcast_shift(tci_kernel *k, int word, uint32_t infinity, int digits)
{
    return tci_bitcast_below(k, word, infinity,
                             tci_bitcast_number(k, (uint64_t)TCI_BITS_BIAS << (10 + digits)),
                             tci_bitcast_number(k, (uint64_t)TCI_BITS_BEYOND << (10 + digits)));
}

/* The bits of an f32 that an f16 holds, as those of the f16: a u32. */
static int tci_bitcast_of_f16(tci_kernel *k, int value)
{
    int half = tci_kernel_const(k, TC_F32, (tci_value){.f = 0.5});
    int size = tci_kernel_prim(k, TCI_P_ABS, TC_F32, 1, value, -1, -1);
    int sign = tci_bitcast_by(k, TCI_P_SHR, tci_bitcast_as(k, value, TC_U32), 16);
    sign = tci_bitcast_by(k, TCI_P_AND, sign, TCI_BITS_SIGN);
    int word = tci_bitcast_as(k, size, TC_U32);
    int small = tci_kernel_prim(k, TCI_P_ADD, TC_F32, 2, size, half, -1);
    small = tci_kernel_prim(k, TCI_P_SUB, TC_U32, 2, tci_bitcast_as(k, small, TC_U32),
                            tci_bitcast_as(k, half, TC_U32), -1);
    int r = tci_bitcast_by(k, TCI_P_SHR, word, TCI_BITS_DIGITS);
    int shift = tci_bitcast_shift(k, word, (uint32_t)255 << 23, 0);
    r = tci_kernel_prim(k, TCI_P_SUB, TC_U32, 2, r, shift, -1);
    r = tci_bitcast_below(k, word, (uint32_t)(TCI_BITS_BIAS + 1) << 23, small, r);
    return tci_kernel_prim(k, TCI_P_OR, TC_U32, 2, r, sign, -1);
}

/* And back: of the bits of an f16 in a u32 an f32. */
static int tci_bitcast_to_f16(tci_kernel *k, int word)
{
    int half = tci_kernel_const(k, TC_F32, (tci_value){.f = 0.5});
    int sign = tci_bitcast_by(k, TCI_P_SHL, tci_bitcast_by(k, TCI_P_AND, word, TCI_BITS_SIGN), 16);
    word = tci_bitcast_by(k, TCI_P_AND, word, TCI_BITS_SIGN - 1);
    int small = tci_kernel_prim(k, TCI_P_OR, TC_U32, 2, word, tci_bitcast_as(k, half, TC_U32), -1);
    small = tci_kernel_prim(k, TCI_P_SUB, TC_F32, 2, tci_bitcast_as(k, small, TC_F32), half, -1);
    int r = tci_bitcast_by(k, TCI_P_SHL, word, TCI_BITS_DIGITS);
    int shift = tci_bitcast_shift(k, word, TCI_BITS_INFINITY, TCI_BITS_DIGITS);
    r = tci_kernel_prim(k, TCI_P_ADD, TC_U32, 2, r, shift, -1);
    r = tci_bitcast_below(k, word, TCI_BITS_LEAST, tci_bitcast_as(k, small, TC_U32), r);
    return tci_bitcast_as(k, tci_kernel_prim(k, TCI_P_OR, TC_U32, 2, r, sign, -1), TC_F32);
}

/* A value's bits as an integer. */
static int tci_bitcast_word(tci_kernel *k, int value, tc_dtype t)
{
    if (t == TC_F16) {
        return tci_bitcast_of_f16(k, value);
    }
    if (t == TC_BF16) {
        return tci_bitcast_by(k, TCI_P_SHR, tci_bitcast_as(k, value, TC_U32), 16);
    }
    return t == TC_F32 || t == TC_F64 ? tci_bitcast_as(k, value, t == TC_F32 ? TC_U32 : TC_U64)
                                      : value;
}

TCI_FN int tci_bitcast_value(tci_kernel *k, int value, tc_dtype from, tc_dtype to)
{
    int word = tci_bitcast_word(k, value, from);
    if (!tci_dtype_is_float(to)) {
        return tci_lower_convert(k, word, to);
    }
    if (to == TC_F64) {
        return tci_bitcast_as(k, tci_lower_convert(k, word, TC_U64), to);
    }
    bool half = tci_dtype_is_half(to);
    word = tci_lower_convert(k, half ? tci_lower_convert(k, word, TC_U16) : word, TC_U32);
    return to == TC_F16
               ? tci_bitcast_to_f16(k, word)
               : tci_bitcast_as(k, half ? tci_bitcast_by(k, TCI_P_SHL, word, 16) : word, TC_F32);
}
