/* tests/judge.h - what each elementwise row is, by definitions of its own: C's operators, libm in
 * long double, sums of bits. Nothing here reads the value column of ops/table.h, nor tc's
 * arithmetic or rounding; judge_row has a case for each row, and a test fails where one is missing.
 *
 * An exact row has one right value: of floats that of IEEE's operations in the compute dtype (f32
 * for f16 and bf16), rounded once more to the dtype; NaN is any NaN, a zero has its sign. Another
 * row has a bound in units of the last place of the compute dtype, to which f16 and bf16 add the
 * half unit of their rounding; a product of a value that was rounded has its error so often.
 * Include behind inside.h and tc_test.h. */
#ifndef TC_TEST_JUDGE_H
#define TC_TEST_JUDGE_H

#include <float.h>
#include <math.h>

typedef struct judge_value {
    bool known;   /* there is a case */
    bool is_real; /* `real`; else `whole`, wrapped to the dtype */
    long double real;
    uint64_t whole;
    double ulps;  /* 0: exact, `real` is the value in the compute dtype */
    double least; /* and so many units of the least number above 0 */
} judge_value;

/* ---- dtypes ---- */

static bool judge_is_float(tc_dtype t)
{
    return t == TC_F16 || t == TC_BF16 || t == TC_F32 || t == TC_F64;
}

static bool judge_is_signed(tc_dtype t)
{
    return t == TC_I8 || t == TC_I16 || t == TC_I32 || t == TC_I64;
}

static int judge_bits(tc_dtype t)
{
    switch (t) {
    case TC_U8:
    case TC_I8: return 8;
    case TC_U16:
    case TC_I16:
    case TC_F16:
    case TC_BF16: return 16;
    case TC_U32:
    case TC_I32:
    case TC_F32: return 32;
    case TC_BOOL: return 1;
    default: return 64;
    }
}

/* Cut to the dtype's width, and extended by its sign to 64 bits. */
static uint64_t judge_wrap(tc_dtype t, uint64_t v)
{
    int rest = 64 - judge_bits(t);
    v <<= rest;
    return judge_is_signed(t) && v >> 63 ? ~(~v >> rest) : v >> rest;
}

static int judge_digits(tc_dtype t)
{
    return t == TC_F64 ? 53 : t == TC_F32 ? 24 : t == TC_F16 ? 11 : 8;
}

/* The exponent of the least number above 0. */
static int judge_lowest(tc_dtype t)
{
    return t == TC_F64 ? -1074 : t == TC_F32 ? -149 : t == TC_F16 ? -24 : -133;
}

static long double judge_limit(tc_dtype t)
{
    return ldexpl(1, t == TC_F64 ? 1024 : t == TC_F16 ? 16 : 128);
}

/* The exponent of a unit in the last place of v. */
static int judge_unit(tc_dtype t, long double v)
{
    int exponent, lowest = judge_lowest(t);
    if (v == 0 || isnan(v) || isinf(v)) {
        return lowest;
    }
    frexpl(v, &exponent);
    return exponent - judge_digits(t) < lowest ? lowest : exponent - judge_digits(t);
}

/* The nearest number of the dtype, ties to even. */
static double judge_round(tc_dtype t, double v)
{
    if (t == TC_F64 || isnan(v) || isinf(v) || v == 0) {
        return v;
    }
    int unit = judge_unit(t, (long double)v);
    double near = ldexp(nearbyint(ldexp(v, -unit)), unit);
    return fabs(near) >= (double)judge_limit(t) ? copysign(INFINITY, v) : near;
}

/* ---- integers ---- */

static uint64_t judge_magnitude(bool is_signed, uint64_t v)
{
    return is_signed && v >> 63 ? 0 - v : v;
}

/* The upper half of the product of two numbers of 64 bits: 128 bits as long multiplication. */
static uint64_t judge_high_64(uint64_t a, uint64_t b)
{
    uint64_t high = 0, low = 0;
    for (int i = 63; i >= 0; i--) {
        high = high << 1 | low >> 63;
        low <<= 1;
        if (b >> i & 1) {
            low += a;
            high += low < a;
        }
    }
    return high;
}

/* floor(a * b / 2^bits): that of the magnitudes, or minus its ceiling. */
static uint64_t judge_high(tc_dtype t, uint64_t a, uint64_t b)
{
    bool is_signed = judge_is_signed(t), minus = is_signed && (a ^ b) >> 63;
    uint64_t x = judge_magnitude(is_signed, a), y = judge_magnitude(is_signed, b);
    int bits = judge_bits(t);
    uint64_t high = bits < 64 ? x * y >> bits : judge_high_64(x, y);
    bool rest = (bits < 64 ? x * y << (64 - bits) : x * y) != 0;
    return minus ? 0 - high - rest : high;
}

static uint64_t judge_power(tc_dtype t, uint64_t a, uint64_t b)
{
    uint64_t y = 1;
    if (judge_is_signed(t) && b >> 63) {
        return a == 1 ? 1 : a == UINT64_MAX ? (b & 1 ? a : 1) : 0;
    }
    for (; b; b >>= 1, a *= a) {
        y *= b & 1 ? a : 1;
    }
    return y;
}

/* Python's // and %, with a // 0 = a % 0 = 0. */
static void judge_divide(tc_dtype t, uint64_t a, uint64_t b, uint64_t *quotient, uint64_t *rest)
{
    bool is_signed = judge_is_signed(t);
    uint64_t x = judge_magnitude(is_signed, a), y = judge_magnitude(is_signed, b);
    bool minus = is_signed && (a ^ b) >> 63;
    *quotient = y ? x / y : 0;
    *rest = y ? x % y : 0;
    if (minus && *rest) {
        *quotient += 1;
        *rest = y - *rest;
    }
    *quotient = minus ? 0 - *quotient : *quotient;
    *rest = is_signed && b >> 63 ? 0 - *rest : *rest;
}

static bool judge_less(tc_dtype t, uint64_t a, uint64_t b)
{
    return judge_is_signed(t) ? (int64_t)a < (int64_t)b : a < b;
}

/* a >> b of 64 bits, arithmetic where signed. */
static uint64_t judge_shift_right(tc_dtype t, uint64_t a, uint64_t b)
{
    bool minus = judge_is_signed(t) && a >> 63;
    uint64_t n = b >= (uint64_t)judge_bits(t) ? 63 : b;
    uint64_t v = (minus ? ~a : a) >> n;
    return b >= (uint64_t)judge_bits(t) ? (minus ? UINT64_MAX : 0) : minus ? ~v : v;
}

static judge_value judge_whole(uint64_t v)
{
    judge_value j = {true, false, 0, v, 0, 0};
    return j;
}

/* ---- floats ---- */

static judge_value judge_exact(long double v)
{
    judge_value j = {true, true, v, 0, 0, 0};
    return j;
}

static judge_value judge_near(long double v, double ulps)
{
    judge_value j = {true, true, v, 0, ulps, 0};
    return j;
}

/* a times the sigmoid of a, which far below 0 has few digits left. */
static judge_value judge_silu(bool wide, long double a)
{
    judge_value j = judge_near(a / (1 + expl(-a)), wide ? 2.5 : 3.5);
    j.least = (double)fabsl(a) * (wide ? 1.5 : 2.5);
    return j;
}

/* x * erfc(-x / sqrt 2) / 2, whose tail magnifies an error of the quotient: it is taken out. */
static long double judge_gelu(long double x)
{
    const long double root = sqrtl(0.5L);
    long double z = -x * root, lost = fmal(-x, root, -z) - x * ((0.5L - root * root) / (2 * root));
    long double tail = erfcl(z) - 2 / sqrtl(acosl(-1)) * expl(-z * z) * lost;
    return isinf(x) ? (x > 0 ? x : -0.0L) : x * 0.5L * tail;
}

static double judge_modulo(tc_dtype t, double a, double b)
{
    double r = fmod(a, b);
    return r == 0 ? copysign(0.0, b) : (r < 0) != (b < 0) ? judge_round(t, r + b) : r;
}

/* floor of the exact a / b, of f16 to f64: (a - r) / b is whole, so the nearest whole number. */
static judge_value judge_floor_divide(double a, double b)
{
    double r = fmod(a, b), plain = a / b;
    if (isnan(plain) || b == 0 || isinf(a)) {
        return judge_exact(isinf(a) && b != 0 ? (long double)NAN : (long double)plain);
    }
    if (isinf(b)) {
        return judge_exact(a != 0 && (a < 0) != (b < 0) ? -1 : (long double)plain);
    }
    long double q = rintl(((long double)a - r) / b) - (r != 0 && (r < 0) != (b < 0));
    return q == 0 ? judge_exact(copysignl(0, (long double)plain)) : judge_near(q, 1);
}

/* A bound on a value whose terms are as large as `terms`. */
static judge_value judge_sum(long double v, long double terms, double ulps)
{
    return judge_near(v, v == 0 || isinf(v) ? ulps : ulps * (double)(1 + fabsl(terms / v)));
}

/* log|sin(pi x)| has large terms next to where it is 0. */
static judge_value judge_lgamma(long double x)
{
    long double v = lgammal(x), off = fabsl(x - nearbyintl(x));
    judge_value j = judge_sum(v, x < 0 ? fabsl(logl(off)) + fabsl(x * logl(-x)) : 0, 4);
    j.least = 1;
    return isinf(x) || (x <= 0 && off == 0) ? judge_near(INFINITY, 0.5) : j;
}

/* Of order 0 the derivative of log|Gamma|, of order 1 that of it: the recurrence far up, then
 * the leading terms. */
static long double judge_psi(int order, long double x)
{
    const long double pi = acosl(-1);
    long double v = 0, r = x - nearbyintl(x);
    if (x < 0.5L) {
        long double s = sinl(pi * r);
        return order ? pi * pi / (s * s) - judge_psi(1, 1 - x)
                     : judge_psi(0, 1 - x) - pi * cosl(pi * r) / s;
    }
    for (; x < 2000; x++) {
        v += order ? 1 / (x * x) : -1 / x;
    }
    long double w = 1 / (x * x);
    return order ? v + 1 / x + w / 2 + w / x / 6 - w * w / x / 30
                 : v + logl(x) - 1 / (2 * x) - w / 12 + w * w / 120;
}

static judge_value judge_digamma(int order, long double x)
{
    bool whole = x <= 0 && x == nearbyintl(x);
    if (isinf(x) || whole) {
        return order    ? judge_near(x > 0 ? 0 : INFINITY, 0.5)
               : x == 0 ? judge_near(signbit(x) ? INFINITY : -INFINITY, 0.5)
                        : judge_near(x > 0 ? INFINITY : (long double)NAN, 0.5);
    }
    return judge_sum(judge_psi(order, x), 2 + fabsl(logl(fabsl(x))), 4);
}

/* By halves. */
static long double judge_erfinv(long double x)
{
    long double low = 0, high = 10, a = fabsl(x);
    for (int i = 0; i < 120; i++) {
        long double y = (low + high) / 2;
        if (a < 0.5L ? erfl(y) < a : erfcl(y) > 1 - a) {
            low = y;
        } else {
            high = y;
        }
    }
    return !(a <= 1)   ? (long double)NAN
           : a == 1    ? x * INFINITY
           : a < 1e-8L ? x * sqrtl(acosl(-1)) / 2
                       : copysignl(low, x);
}

/* sin(pi a) / (pi a) by a less the nearest even number. */
static judge_value judge_sinc(long double a)
{
    const long double pi = acosl(-1);
    long double r = a - 2 * nearbyintl(a / 2);
    r = fabsl(r) > 0.5L ? copysignl(1, r) - r : r;
    return a == 0 ? judge_near(1, 0.5) : judge_near(sinl(pi * r) / (pi * a), 2);
}

/* Also where it is nearly 0: to what the judge itself can tell of f64, and f32 in two parts. */
static judge_value judge_logaddexp(bool wide, long double a, long double b, long double base)
{
    long double top = fmaxl(a, b), d = fabsl(a - b);
    if (isnan(a) || isnan(b)) {
        return judge_near((long double)NAN, 0.5);
    }
    long double v = isinf(top) ? top : top + log1pl(powl(base, -d)) / logl(base);
    return judge_sum(v, fabsl(v) + (wide ? 0x1p-9L : 0x1p-22L), 5);
}

static uint64_t judge_gcd(uint64_t a, uint64_t b)
{
    return b ? judge_gcd(b, a % b) : a;
}

static long double judge_larger(bool largest, long double a, long double b)
{
    return isnan(a) || (largest ? a > b : a < b) ? a : b;
}

/* Over floats: t the compute dtype. An exact value is rounded to t by whoever asks. */
static judge_value judge_float(tci_op op, tc_dtype t, long double a, long double b, long double c)
{
    double x = (double)a, y = (double)b, z = (double)c; /* they hold it */
    bool wide = t == TC_F64;
    switch (op) {
    case TCI_OP_NEG: return judge_exact(-a);
    case TCI_OP_ABS: return judge_exact(fabsl(a));
    case TCI_OP_EXP: return judge_near(expl(a), 1);
    case TCI_OP_LOG: return judge_near(logl(a), 1);
    case TCI_OP_SQRT: return judge_exact((long double)sqrt(x));
    case TCI_OP_RSQRT: return judge_near(1 / sqrtl(a), 1.5);
    case TCI_OP_RECIPROCAL: return judge_exact((long double)(1 / x));
    case TCI_OP_SQUARE: return judge_exact((long double)(x * x));
    case TCI_OP_SIN: return judge_near(sinl(a), wide ? 1 : 2);
    case TCI_OP_COS: return judge_near(cosl(a), wide ? 1 : 2);
    case TCI_OP_TANH: return judge_near(tanhl(a), wide ? 1.5 : 2.5);
    case TCI_OP_SIGMOID: return judge_near(1 / (1 + expl(-a)), wide ? 1.5 : 2.5);
    case TCI_OP_SILU: return judge_silu(wide, a);
    case TCI_OP_ERF: return judge_near(erfl(a), wide ? 1.5 : 1.6);
    case TCI_OP_GELU: return judge_near(judge_gelu(a), wide ? 2 : 8);
    case TCI_OP_RELU: return judge_exact(judge_larger(true, a, 0));
    case TCI_OP_FLOOR: return judge_exact(floorl(a));
    case TCI_OP_CEIL: return judge_exact(ceill(a));
    case TCI_OP_TRUNC: return judge_exact(truncl(a));
    case TCI_OP_ROUND: return judge_exact(nearbyintl(a));
    case TCI_OP_ISNAN: return judge_whole(isnan(a));
    case TCI_OP_ISINF: return judge_whole(isinf(a) != 0);
    case TCI_OP_ISFINITE: return judge_whole(isfinite(a) != 0);
    case TCI_OP_SIGNBIT: return judge_whole(signbit(a) != 0);
    case TCI_OP_SIGN: return judge_exact(a > 0 ? 1 : a < 0 ? -1 : 0);
    case TCI_OP_FRAC: return judge_exact((long double)(x - trunc(x)));
    case TCI_OP_TAN: return judge_near(tanl(a), 1.6);
    case TCI_OP_ASIN: return judge_near(asinl(a), 2.1);
    case TCI_OP_ACOS: return judge_near(acosl(a), 1.6);
    case TCI_OP_ATAN: return judge_near(atanl(a), 2);
    case TCI_OP_SINH: return judge_near(sinhl(a), 2.2);
    case TCI_OP_COSH: return judge_near(coshl(a), 1.6);
    case TCI_OP_ASINH: return judge_near(asinhl(a), 2.5);
    case TCI_OP_ACOSH: return judge_near(acoshl(a), 2.5);
    case TCI_OP_ATANH: return judge_near(atanhl(a), 2.5);
    case TCI_OP_EXPM1: return judge_near(expm1l(a), 1.8);
    case TCI_OP_EXP2: return judge_near(exp2l(a), 1.1);
    case TCI_OP_LOG1P: return judge_near(log1pl(a), 1);
    case TCI_OP_LOG2: return judge_near(log2l(a), 1);
    case TCI_OP_LOG10: return judge_near(log10l(a), 1);
    case TCI_OP_ERFC: return judge_near(erfcl(a), 2);
    case TCI_OP_ERFINV: return judge_near(judge_erfinv(a), 2.5);
    case TCI_OP_LGAMMA: return judge_lgamma(a);
    case TCI_OP_DIGAMMA: return judge_digamma(0, a);
    case TCI_OP_TRIGAMMA: return judge_digamma(1, a);
    case TCI_OP_SINC: return judge_sinc(a);
    case TCI_OP_LOGICAL_NOT: return judge_whole(a == 0);
    case TCI_OP_LOGICAL_XOR: return judge_whole((a != 0) != (b != 0));
    case TCI_OP_FMAX: return judge_exact(isnan(b) || a >= b ? a : b);
    case TCI_OP_FMIN: return judge_exact(isnan(b) || a <= b ? a : b);
    case TCI_OP_FMOD: return judge_exact((long double)fmod(x, y));
    case TCI_OP_ATAN2: return judge_near(atan2l(a, b), 2);
    case TCI_OP_HYPOT: return judge_near(hypotl(a, b), 2);
    case TCI_OP_COPYSIGN: return judge_exact(copysignl(a, b));
    case TCI_OP_HEAVISIDE: return judge_exact(a == 0 ? b : a > 0);
    case TCI_OP_LDEXP: return judge_near(a == 0 ? a : a * exp2l(b), 2);
    case TCI_OP_LOG1PEXP: return judge_logaddexp(wide, a, 0, expl(1));
    case TCI_OP_LOGADDEXP: return judge_logaddexp(wide, a, b, expl(1));
    case TCI_OP_LOGADDEXP2: return judge_logaddexp(wide, a, b, 2);
    case TCI_OP_XLOGY: return judge_near(a == 0 && !isnan(b) ? 0 : isnan(a) ? a : a * logl(b), 2.5);
    case TCI_OP_ADD: return judge_exact((long double)(x + y));
    case TCI_OP_SUB: return judge_exact((long double)(x - y));
    case TCI_OP_MUL: return judge_exact((long double)(x * y));
    case TCI_OP_DIV: return judge_exact((long double)(x / y));
    case TCI_OP_POW: return judge_near(powl(a, b), 1);
    case TCI_OP_FMA:
        return judge_exact(
            (long double)(wide ? fma(x, y, z) : (double)fmaf((float)x, (float)y, (float)z)));
    case TCI_OP_MAXIMUM: return judge_exact(isnan(b) ? b : judge_larger(true, a, b));
    case TCI_OP_MINIMUM: return judge_exact(isnan(b) ? b : judge_larger(false, a, b));
    case TCI_OP_REMAINDER: return judge_exact((long double)judge_modulo(t, x, y));
    case TCI_OP_FLOOR_DIVIDE: return judge_floor_divide(x, y);
    case TCI_OP_EQ: return judge_whole(a == b);
    case TCI_OP_NE: return judge_whole(a != b);
    case TCI_OP_LT: return judge_whole(a < b);
    case TCI_OP_LE: return judge_whole(a <= b);
    case TCI_OP_GT: return judge_whole(a > b);
    case TCI_OP_GE: return judge_whole(a >= b);
    case TCI_OP_LOGICAL_AND:
    case TCI_OP_LOGICAL_OR:
    case TCI_OP_GCD:
    case TCI_OP_LCM:
    case TCI_OP_BITWISE_NOT:
    case TCI_OP_BITWISE_AND:
    case TCI_OP_BITWISE_OR:
    case TCI_OP_BITWISE_XOR:
    case TCI_OP_BITWISE_LEFT_SHIFT:
    case TCI_OP_BITWISE_RIGHT_SHIFT:
    case TCI_OP_MUL_HIGH:
        break; /* never of floats */
        TCI_REDUCE_OPS(TCI_OP_CASE)
        TCI_SPECIAL_OPS(TCI_OP_CASE)
        TCI_COMPOSITE_OPS(TCI_OP_CASE) break;
    }
    judge_value none = {false, false, 0, 0, 0, 0};
    return none;
}

/* Over bool, as 0 and 1, and integers, as 64 bits of their value. */
static judge_value judge_int(tci_op op, tc_dtype t, uint64_t a, uint64_t b, uint64_t c)
{
    bool is_bool = t == TC_BOOL, less = judge_less(t, a, b);
    uint64_t quotient, rest;
    judge_divide(t, a, b, &quotient, &rest);
    uint64_t x = judge_magnitude(judge_is_signed(t), a), y = judge_magnitude(judge_is_signed(t), b);
    uint64_t rest_of = y ? x % y : 0, divisor = judge_gcd(x, y);
    uint64_t multiple = judge_wrap(t, divisor ? x / divisor * y : 0);
    switch (op) {
    case TCI_OP_NEG: return judge_whole(0 - a);
    case TCI_OP_ABS: return judge_whole(judge_magnitude(judge_is_signed(t), a));
    case TCI_OP_SQUARE: return judge_whole(a * a);
    case TCI_OP_RELU: return judge_whole(judge_is_signed(t) && a >> 63 ? 0 : a);
    case TCI_OP_FLOOR:
    case TCI_OP_CEIL:
    case TCI_OP_TRUNC:
    case TCI_OP_ROUND: return judge_whole(a);
    case TCI_OP_ISNAN:
    case TCI_OP_ISINF:
    case TCI_OP_FRAC: return judge_whole(0);
    case TCI_OP_ISFINITE: return judge_whole(1);
    case TCI_OP_SIGNBIT: return judge_whole(judge_is_signed(t) && a >> 63);
    case TCI_OP_SIGN: return judge_whole(judge_is_signed(t) && a >> 63 ? UINT64_MAX : a != 0);
    case TCI_OP_LOGICAL_XOR: return judge_whole(!a != !b);
    case TCI_OP_FMAX: return judge_whole(less ? b : a);
    case TCI_OP_FMIN: return judge_whole(less ? a : b);
    case TCI_OP_FMOD: return judge_whole(judge_is_signed(t) && a >> 63 ? 0 - rest_of : rest_of);
    case TCI_OP_HEAVISIDE: return judge_whole(a == 0 ? b : !(judge_is_signed(t) && a >> 63));
    case TCI_OP_GCD: return judge_whole(divisor);
    case TCI_OP_LCM: return judge_whole(judge_magnitude(judge_is_signed(t), multiple));
    case TCI_OP_LOGICAL_NOT: return judge_whole(a == 0);
    case TCI_OP_ADD: return judge_whole(is_bool ? a | b : a + b);
    case TCI_OP_SUB: return judge_whole(a - b);
    case TCI_OP_MUL: return judge_whole(a * b);
    case TCI_OP_POW: return judge_whole(judge_power(t, a, b));
    case TCI_OP_FMA: return judge_whole(a * b + c);
    case TCI_OP_MAXIMUM: return judge_whole(less ? b : a);
    case TCI_OP_MINIMUM: return judge_whole(less ? a : b);
    case TCI_OP_REMAINDER: return judge_whole(rest);
    case TCI_OP_FLOOR_DIVIDE: return judge_whole(quotient);
    case TCI_OP_EQ: return judge_whole(a == b);
    case TCI_OP_NE: return judge_whole(a != b);
    case TCI_OP_LT: return judge_whole(less);
    case TCI_OP_LE: return judge_whole(less || a == b);
    case TCI_OP_GT: return judge_whole(!less && a != b);
    case TCI_OP_GE: return judge_whole(!less);
    case TCI_OP_LOGICAL_AND: return judge_whole(a && b);
    case TCI_OP_LOGICAL_OR: return judge_whole(a || b);
    case TCI_OP_BITWISE_NOT: return judge_whole(~a);
    case TCI_OP_BITWISE_AND: return judge_whole(a & b);
    case TCI_OP_BITWISE_OR: return judge_whole(a | b);
    case TCI_OP_BITWISE_XOR: return judge_whole(a ^ b);
    case TCI_OP_BITWISE_LEFT_SHIFT: return judge_whole(b >= (uint64_t)judge_bits(t) ? 0 : a << b);
    case TCI_OP_BITWISE_RIGHT_SHIFT: return judge_whole(judge_shift_right(t, a, b));
    case TCI_OP_MUL_HIGH: return judge_whole(judge_high(t, a, b));
    case TCI_OP_EXP:
    case TCI_OP_LOG:
    case TCI_OP_SQRT:
    case TCI_OP_RSQRT:
    case TCI_OP_RECIPROCAL:
    case TCI_OP_SIN:
    case TCI_OP_COS:
    case TCI_OP_TANH:
    case TCI_OP_SIGMOID:
    case TCI_OP_SILU:
    case TCI_OP_ERF:
    case TCI_OP_GELU:
    case TCI_OP_TAN:
    case TCI_OP_ASIN:
    case TCI_OP_ACOS:
    case TCI_OP_ATAN:
    case TCI_OP_SINH:
    case TCI_OP_COSH:
    case TCI_OP_ASINH:
    case TCI_OP_ACOSH:
    case TCI_OP_ATANH:
    case TCI_OP_EXPM1:
    case TCI_OP_EXP2:
    case TCI_OP_LOG1P:
    case TCI_OP_LOG1PEXP:
    case TCI_OP_LOG2:
    case TCI_OP_LOG10:
    case TCI_OP_ERFC:
    case TCI_OP_ERFINV:
    case TCI_OP_LGAMMA:
    case TCI_OP_DIGAMMA:
    case TCI_OP_TRIGAMMA:
    case TCI_OP_SINC:
    case TCI_OP_ATAN2:
    case TCI_OP_HYPOT:
    case TCI_OP_COPYSIGN:
    case TCI_OP_LDEXP:
    case TCI_OP_LOGADDEXP:
    case TCI_OP_LOGADDEXP2:
    case TCI_OP_XLOGY:
    case TCI_OP_DIV:
        break; /* in floats, always */
        TCI_REDUCE_OPS(TCI_OP_CASE)
        TCI_SPECIAL_OPS(TCI_OP_CASE)
        TCI_COMPOSITE_OPS(TCI_OP_CASE) break;
    }
    judge_value none = {false, false, 0, 0, 0, 0};
    return none;
}

/* The row over the first operands, as many as it takes, of dtype t. */
TCT_UNUSED static judge_value judge_row(int op, tc_dtype t, tci_value a, tci_value b, tci_value c)
{
    if (!judge_is_float(t)) {
        return judge_int((tci_op)op, t, a.u, b.u, c.u);
    }
    tc_dtype math = t == TC_F64 ? TC_F64 : TC_F32;
    judge_value j = judge_float((tci_op)op, math, (long double)a.f, (long double)b.f,
                                (long double)c.f);
    if (j.is_real && j.ulps == 0) {
        j.real = (long double)judge_round(math, (double)j.real);
    }
    return j;
}

/* Whether a result of dtype t may be `got`. */
TCT_UNUSED static bool judge_accepts(const judge_value *j, tc_dtype t, tci_value got)
{
    if (!j->is_real) {
        return got.u == judge_wrap(t, j->whole);
    }
    if (isnan(j->real) || isnan(got.f)) {
        return isnan(j->real) && isnan(got.f);
    }
    if (j->ulps == 0) {
        double want = judge_round(t, (double)j->real);
        return got.f == want && signbit(got.f) == signbit(want);
    }
    /* next to overflow a result may round either way: infinity stands for the limit */
    long double limit = judge_limit(t), v = isinf(got.f) ? copysignl(limit, got.f) : got.f;
    long double want = fabsl(j->real) > limit ? copysignl(limit, j->real) : j->real;
    tc_dtype math = t == TC_F64 ? TC_F64 : TC_F32;
    long double room = ldexpl((long double)j->ulps, judge_unit(math, want));
    room += ldexpl((long double)j->least, judge_lowest(math));
    room += t == math ? 0 : ldexpl(0.5L, judge_unit(t, want));
    return fabsl(v - want) <= room;
}

#endif
