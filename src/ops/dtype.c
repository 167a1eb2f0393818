/* ops/dtype.c - element types: properties of each dtype, promotion, and conversion of values.
 *
 * In: dtype rows (api/types.h). Out: tci_dtype_get, the promotion rules, and loads and stores
 * between storage and tci_value, the 64-bit carrier of literals, fills and constants.
 *
 * Design: a tci_value is the exact number, never a rounded one: floats of every width are held as
 * double (exact for f16, bf16, f32), integers as 64 bits. Rounding happens in exactly two
 * functions, tci_value_store and tci_value_cast, once and to nearest even with subnormals kept.
 * Conversion to f16 and bf16 goes through an f32 rounded to odd, as in kernels
 * (kernel/lower_graph.c), which preserves the side of a tie. Invariant: a value of an integer dtype
 * narrower than 64 bits is already wrapped to its range. */
#include <string.h>

#include "dtype.h"

/* Alignment that C requires of a type of 8 bytes; on some processors less than 8. */
struct tci_dtype_widest {
    char first;
    union {
        double d;
        int64_t i;
    } wide;
};
enum { TCI_DTYPE_ALIGN = offsetof(struct tci_dtype_widest, wide) };

static const tci_dtype_info tci_dtype_rows[TCI_DTYPE_N] = {
#define TCI_ROW(id, name, ctype, bytes, kind, compute)                                             \
    {name, ctype, bytes, bytes < TCI_DTYPE_ALIGN ? bytes : TCI_DTYPE_ALIGN, TCI_KIND_##kind,       \
     compute},
    TCI_DTYPE_ROWS(TCI_ROW)
#undef TCI_ROW
};

TCI_FN const tci_dtype_info *tci_dtype_get(tc_dtype t)
{
    return &tci_dtype_rows[t - TC_BOOL];
}

TC_API const char *tc_status_text(tc_status status)
{
    static const char *const texts[] = {
#define TCI_ROW(id, text) text,
        TCI_STATUS_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    return (unsigned)status < TC_STATUS_COUNT ? texts[status] : "unknown status";
}

TC_API int tc_dtype_size(tc_dtype dtype)
{
    return tci_dtype_is_valid(dtype) ? tci_dtype_get(dtype)->bytes : 0;
}

TC_API const char *tc_dtype_name(tc_dtype dtype)
{
    return tci_dtype_is_valid(dtype) ? tci_dtype_get(dtype)->name : "none";
}

/* ---- promotion ---- */

TCI_FN tc_dtype tci_dtype_real(tc_promotion how, tc_dtype t)
{
    return tci_dtype_is_float(t) ? t : how == TC_NUMPY ? TC_F64 : TC_F32;
}

TCI_FN tc_dtype tci_dtype_function(tc_promotion how, tc_dtype t)
{
    static const tc_dtype of_bytes[9] = {[1] = TC_F16, [2] = TC_F32, [4] = TC_F64, [8] = TC_F64};
    bool by_width = how == TC_NUMPY && !tci_dtype_is_float(t);
    return by_width ? of_bytes[tci_dtype_get(t)->bytes] : tci_dtype_real(how, t);
}

TCI_FN tc_dtype tci_dtype_sum(tc_promotion how, tc_dtype t)
{
    if (tci_dtype_is_float(t)) {
        return t;
    }
    bool is_unsigned = tci_dtype_get(t)->kind == TCI_KIND_UINT;
    return is_unsigned && (how == TC_NUMPY || t != TC_U8) ? TC_U64 : TC_I64;
}

/* An integer with a float. NUMPY: the narrowest float that both convert to exactly, as far as there
 * is one; bf16 holds every integer of one byte. */
static tc_dtype tci_dtype_meet_float(tc_promotion how, tc_dtype whole, tc_dtype real)
{
    tc_dtype least = tci_dtype_function(how, whole);
    return how == TC_TORCH || least == TC_F16 ? real : TCI_MAX(least, real);
}

/* Torch leaves u16, u32 and u64 with another integer undefined: NumPy's answer there. */
TCI_FN tc_dtype tci_dtype_promote(tc_promotion how, tc_dtype a, tc_dtype b)
{
    static const tc_dtype signed_of_bytes[9] =
        {[1] = TC_I8, [2] = TC_I16, [4] = TC_I32, [8] = TC_I64};
    if (a > b) { /* ORDER dtype: bool, unsigned, signed, floats, each by width */
        tc_dtype t = a;
        a = b;
        b = t;
    }
    if (a == b || a == TC_BOOL) {
        return b;
    }
    if (tci_dtype_is_float(b)) {
        return !tci_dtype_is_float(a)        ? tci_dtype_meet_float(how, a, b)
               : a == TC_F16 && b == TC_BF16 ? TC_F32
                                             : b;
    }
    const tci_dtype_info *low = tci_dtype_get(a);
    const tci_dtype_info *high = tci_dtype_get(b);
    if (low->kind == high->kind) {
        return b;
    }
    /* Unsigned with signed: the narrowest signed type that holds both; u64 has none. */
    if (high->bytes > low->bytes) {
        return b;
    }
    return low->bytes == 8 ? TC_F64 : signed_of_bytes[2 * low->bytes];
}

/* ---- 16-bit floats ---- */

static uint32_t tci_dtype_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float tci_dtype_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint16_t tci_dtype_f32_to_bf16_bits(float x)
{
    uint32_t u = tci_dtype_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u); /* quiet: a cut payload must not become infinity */
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

TCI_FN float tci_round_bf16(float x)
{
    return tci_dtype_f32_from_bits((uint32_t)tci_dtype_f32_to_bf16_bits(x) << 16);
}

TCI_FN uint16_t tci_f32_to_f16_bits(float x)
{
    uint32_t u = tci_dtype_f32_bits(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((mag >> 13) & 0x1ffu));
    }
    if (mag >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (mag >= 0x38800000u) { /* 2^-14: normal; exponent bias 127 -> 15 */
        uint32_t h = mag - ((127u - 15u) << 23);
        return (uint16_t)(sign | ((h + 0xfffu + ((h >> 13) & 1u)) >> 13));
    }
    if (mag < 0x33000000u) { /* below 2^-25, half the smallest subnormal */
        return (uint16_t)sign;
    }
    /* Subnormal: the mantissa with its hidden bit, in units of 2^-24. */
    uint32_t exponent = mag >> 23;
    uint32_t mantissa = (mag & 0x7fffffu) | 0x800000u;
    uint32_t shift = 126u - exponent; /* 14 .. 24 */
    uint32_t kept = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1u);
    uint32_t half = 1u << (shift - 1u);
    kept += rest > half || (rest == half && (kept & 1u)) ? 1u : 0u;
    return (uint16_t)(sign | kept);
}

TCI_FN float tci_f16_bits_to_f32(uint16_t h)
{
    uint32_t sign = ((uint32_t)h & 0x8000u) << 16;
    uint32_t mag = (uint32_t)h & 0x7fffu;
    if (mag >= 0x7c00u) {
        return tci_dtype_f32_from_bits(sign | 0x7f800000u | ((mag & 0x3ffu) << 13));
    }
    if (mag >= 0x400u) {
        return tci_dtype_f32_from_bits(sign | ((mag << 13) + ((127u - 15u) << 23)));
    }
    float x = (float)mag * 0x1p-24f;
    return sign ? -x : x;
}

TCI_FN float tci_round_f16(float x)
{
    return tci_f16_bits_to_f32(tci_f32_to_f16_bits(x));
}

/* x as an f32: itself, or else that of its two neighbours whose last bit is 1. Rounding the f32 to
 * 22 bits or fewer is then rounding x. */
static float tci_dtype_odd_f32(double x)
{
    float y = (float)x;
    uint32_t bits = tci_dtype_f32_bits(y);
    if (x != x || (double)y == x) {
        return y;
    }
    double size = x < 0.0 ? -x : x, got = y < 0.0f ? -(double)y : (double)y;
    return tci_dtype_f32_from_bits((got > size ? bits - 1u : bits) | 1u);
}

/* The same of an integer and f64's 53 bits: the bits that would be cut live on in the last one. */
static double tci_dtype_odd_f64(uint64_t size, bool negative)
{
    uint64_t cut = size >> 53 ? size & 0x7ffu : 0;
    double x = (double)((size - cut) | (cut ? 0x800u : 0));
    return negative ? -x : x;
}

/* ---- values ---- */

static int64_t tci_dtype_load_int(tc_dtype t, const void *p)
{
    switch (t) {
    case TC_U8: {
        uint8_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_U16: {
        uint16_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_U32: {
        uint32_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_I8: {
        int8_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_I16: {
        int16_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    case TC_I32: {
        int32_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    default: {
        int64_t x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    }
}

TCI_FN tci_value tci_value_load(tc_dtype t, const void *p)
{
    tci_value v = {0};
    switch (t) {
    case TC_BOOL: v.i = *(const unsigned char *)p != 0; break;
    case TC_F16: {
        uint16_t bits;
        memcpy(&bits, p, sizeof bits);
        v.f = (double)tci_f16_bits_to_f32(bits);
        break;
    }
    case TC_BF16: {
        uint16_t bits;
        memcpy(&bits, p, sizeof bits);
        v.f = (double)tci_dtype_f32_from_bits((uint32_t)bits << 16);
        break;
    }
    case TC_F32: {
        float x;
        memcpy(&x, p, sizeof x);
        v.f = (double)x;
        break;
    }
    case TC_F64: memcpy(&v.f, p, sizeof v.f); break;
    default: v.i = tci_dtype_load_int(t, p); break;
    }
    return v;
}

TCI_FN void tci_value_store(tc_dtype t, void *p, tci_value v)
{
    switch (t) {
    case TC_BOOL: *(unsigned char *)p = v.i != 0; break;
    case TC_F16: {
        uint16_t bits = tci_f32_to_f16_bits(tci_dtype_odd_f32(v.f));
        memcpy(p, &bits, sizeof bits);
        break;
    }
    case TC_BF16: {
        uint16_t bits = tci_dtype_f32_to_bf16_bits(tci_dtype_odd_f32(v.f));
        memcpy(p, &bits, sizeof bits);
        break;
    }
    case TC_F32: {
        float x = (float)v.f;
        memcpy(p, &x, sizeof x);
        break;
    }
    case TC_F64: memcpy(p, &v.f, sizeof v.f); break;
    default: {
        int bytes = tci_dtype_get(t)->bytes;
        uint8_t x8 = (uint8_t)v.u;
        uint16_t x16 = (uint16_t)v.u;
        uint32_t x32 = (uint32_t)v.u;
        const void *from = bytes == 1   ? (const void *)&x8
                           : bytes == 2 ? (const void *)&x16
                           : bytes == 4 ? (const void *)&x32
                                        : (const void *)&v.u;
        memcpy(p, from, (size_t)bytes);
        break;
    }
    }
}

/* Truncates, saturates to the range of integer dtype t, NaN gives 0. */
static int64_t tci_dtype_float_to_int(tc_dtype t, double x)
{
    int bits = 8 * tci_dtype_get(t)->bytes;
    if (x != x) {
        return 0;
    }
    if (tci_dtype_is_signed(t)) {
        int64_t max = (int64_t)(UINT64_MAX >> (65 - bits));
        double bound = (double)((uint64_t)1 << (bits - 1)); /* 2^(bits-1), exact */
        if (x >= bound) {
            return max;
        }
        return x <= -bound ? -max - 1 : (int64_t)x;
    }
    uint64_t max = UINT64_MAX >> (64 - bits);
    double bound = 2.0 * (double)((uint64_t)1 << (bits - 1));
    if (x >= bound) {
        return (int64_t)max;
    }
    return x <= -1.0 ? 0 : (int64_t)(uint64_t)x;
}

static double tci_dtype_int_to_float(tc_dtype from, tc_dtype to, tci_value v)
{
    bool is_u64 = from == TC_U64;
    if (to == TC_F64) {
        return is_u64 ? (double)v.u : (double)v.i;
    }
    if (tci_dtype_is_half(to)) {
        bool negative = !is_u64 && v.i < 0;
        return tci_dtype_odd_f64(negative ? 0 - v.u : v.u, negative);
    }
    return is_u64 ? (double)(float)v.u : (double)(float)v.i; /* one rounding: not through double */
}

static double tci_dtype_round_float(tc_dtype to, double x)
{
    switch (to) {
    case TC_F16: return (double)tci_round_f16(tci_dtype_odd_f32(x));
    case TC_BF16: return (double)tci_round_bf16(tci_dtype_odd_f32(x));
    case TC_F32: return (double)(float)x;
    default: return x;
    }
}

TCI_FN tci_value tci_value_cast(tci_value v, tc_dtype from, tc_dtype to)
{
    tci_value out = {0};
    bool from_float = tci_dtype_is_float(from);
    if (to == TC_BOOL) {
        out.i = from_float ? v.f != 0.0 : v.i != 0;
    } else if (tci_dtype_is_float(to)) {
        double x = from_float ? v.f : tci_dtype_int_to_float(from, to, v);
        out.f = tci_dtype_round_float(to, x);
    } else if (from_float) {
        out.i = tci_dtype_float_to_int(to, v.f);
    } else {
        uint64_t storage = 0;
        tci_value_store(to, &storage, v);
        out.i = tci_dtype_load_int(to, &storage);
    }
    return out;
}
