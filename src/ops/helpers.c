/* ops/helpers.c - the scalar helpers of the math library: slow paths of recipes, and ERFINV, LGAMMA
 * and its derivatives with what they stand on, POW and GCD of integers.
 *
 * In: nothing but the arguments. Out: tci_helper_get: the compiled function and its own C text, so
 * the interpreter and generated code run the same operations in the same order.
 * The one idea: TCI_HELPER compiles its argument and keeps it as a string. A text therefore holds
 * no comment, no #, no libm call, and every fused multiply-add is spelled TC_FMA_F64; contraction
 * is off wherever it is compiled, so the bits agree. What a helper does is said in the comment
 * above it.
 * Words used below: "hi + lo" is an unevaluated sum of two doubles; the "magic" number 1.5 * 2^52
 * added and taken away rounds to the nearest integer. Coefficients are minimax fits (Remez, in 50
 * digits, then rounded to double); the largest relative error of each is named.
 * Invariant: one static function a text, and texts stay below 4096 characters (the C11 minimum). */
#include <math.h>

#include "math.h"

TCI_QUICK_BEGIN

#define TCI_HELPER(name, ...)                                                                      \
    __VA_ARGS__                                                                                    \
    static const char tci_text_##name[] = #__VA_ARGS__;
#define TC_FMA_F64(a, b, c) fma((a), (b), (c))

/* sin(x + quarter * pi/2) of a large float. |x| = m * 2^s; the 96 bits of 2/pi whose product with m
 * has weights 2^1 .. 2^-94 are cut out of the table (one zero word, then 2/pi), so p holds the
 * quadrant in two bits and the fraction of it in 62. Polynomials on |r| <= pi/4: 2^-35 (sin), 2^-30
 * (cos). */
TCI_HELPER(trig_slow_f32,
static double tc_h_trig_slow_f32(float x, int quarter) {
    static const unsigned int table[8] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                          0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
    union { float f; unsigned int u; } v;
    v.f = x;
    unsigned int exponent = (v.u >> 23) & 255u;
    if (exponent == 255u) {
        return (double)(x - x);
    }
    unsigned long long m = (v.u & 0x7fffffu) | 0x800000u;
    int at = (int)exponent - 150 + 30;
    int word = at >> 5;
    int shift = at & 31;
    unsigned long long w[3];
    for (int i = 0; i < 3; i++) {
        unsigned long long two = table[word + i];
        two = (two << 32) | table[word + i + 1];
        w[i] = ((two << shift) >> 32) & 0xffffffffu;
    }
    unsigned long long low = m * w[2];
    unsigned long long mid = m * w[1] + (low >> 32);
    unsigned long long p = ((m * w[0] + (mid >> 32)) << 32) | (mid & 0xffffffffu);
    long long fraction = (long long)(p << 2);
    int q = (int)(p >> 62) + (fraction < 0);
    double r = (double)fraction * 0x1.921fb54442d18p-64;
    if (v.u >> 31) {
        r = -r;
        q = -q;
    }
    q += quarter;
    double z = r * r;
    double y;
    if (q & 1) {
        y = 1.0 - z * 0.5 + z * z * (0x1.555554414a8p-5
            + z * (-0x1.6c12d1f958cd2p-10 + z * 0x1.9bd7f2cfcb972p-16));
    } else {
        y = r + r * z * (-0x1.555555545d8b7p-3 + z * (0x1.11110dedac4c2p-7
            + z * (-0x1.a013a54cfcbep-13 + z * 0x1.6dbd3e089ac88p-19)));
    }
    return q & 2 ? -y : y;
})

TCI_HELPER(sin_slow_f32,
static float tc_h_sin_slow_f32(float x) {
    return (float)tc_h_trig_slow_f32(x, 0);
})

TCI_HELPER(cos_slow_f32,
static float tc_h_cos_slow_f32(float x) {
    return (float)tc_h_trig_slow_f32(x, 1);
})

TCI_HELPER(tan_slow_f32,
static float tc_h_tan_slow_f32(float x) {
    return (float)(tc_h_trig_slow_f32(x, 0) / tc_h_trig_slow_f32(x, 1));
})

/* e^(hi + lo) * 2^k, rounded once (within 0.52 ulp), |k| <= 128. Polynomial of (e^r - 1 - r) / r^2:
 * 2^-58. The scale goes in two halves, so results below the normal range are rounded once. */
TCI_HELPER(exp_core_f64,
static double tc_h_exp_core_f64(double hi, double lo, int k) {
    if (hi != hi) {
        return hi;
    }
    if (hi > 720.0) {
        hi = 720.0;
        lo = 0.0;
    }
    if (hi < -900.0) {
        hi = -900.0;
        lo = 0.0;
    }
    double n = TC_FMA_F64(hi, 0x1.71547652b82fep+0, 0x1.8p52) - 0x1.8p52;
    double rh = TC_FMA_F64(n, -0x1.62e42fefa38p-1, hi);
    double c = TC_FMA_F64(n, -0x1.ef35793c7673p-45, lo);
    double r = rh + c;
    double rl = c - (r - rh);
    static const double q[11] = {
        0x1.1f8b6cc288d1ap-29, 0x1.af4e1aef0b2dap-26, 0x1.27e4ccbac8897p-22,
        0x1.71de0219b8b01p-19, 0x1.a01a01ad02b86p-16, 0x1.a01a01abef8f3p-13,
        0x1.6c16c16c151e7p-10, 0x1.11111111100cep-7, 0x1.5555555555558p-5,
        0x1.5555555555557p-3, 0.5};
    double p = q[0];
    for (int i = 1; i < 11; i++) {
        p = TC_FMA_F64(p, r, q[i]);
    }
    double tail = TC_FMA_F64(r * r, p, TC_FMA_F64(r, rl, rl));
    double y = 1.0 + r;
    y = y + (((1.0 - y) + r) + tail);
    long long e = (long long)n + k;
    long long half = e / 2;
    union { unsigned long long u; double f; } a;
    union { unsigned long long u; double f; } b;
    a.u = (unsigned long long)(half + 1023) << 52;
    b.u = (unsigned long long)(e - half + 1023) << 52;
    return y * a.f * b.f;
})

/* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), s = f / (2 + f): log(1 + f) = 2 atanh(s)
 * = f - (f^2/2 - s (f^2/2 + R(s^2))). R: 2^-58 of the result. */
TCI_HELPER(log_f64,
static double tc_h_log_f64(double x) {
    union { double f; unsigned long long u; } v;
    v.f = x;
    if (!(x > 0.0)) {
        v.u = x == 0.0 ? 0xfff0000000000000u : 0x7ff8000000000000u;
        return v.f;
    }
    if (v.u >= 0x7ff0000000000000u) {
        return x;
    }
    int k = 0;
    if (x < 0x1p-1022) {
        v.f = x * 0x1p54;
        k = -54;
    }
    unsigned long long offset = v.u - 0x3fe6a09e667f3bcdu;
    k += (int)((long long)offset >> 52);
    v.u = (offset & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu;
    double f = v.f - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    static const double q[7] = {
        0x1.2b5fc0c21e681p-3, 0x1.39fdb9220a5a8p-3, 0x1.7462ba2906aa5p-3,
        0x1.c71c62d03b34dp-3, 0x1.2492492e03e54p-2, 0x1.9999999995223p-2,
        0x1.5555555555558p-1};
    double p = q[0];
    for (int i = 1; i < 7; i++) {
        p = TC_FMA_F64(p, z, q[i]);
    }
    double half = 0.5 * f * f;
    double low = TC_FMA_F64((double)k, 0x1.ef35793c7673p-45, s * TC_FMA_F64(p, z, half));
    return TC_FMA_F64((double)k, 0x1.62e42fefa38p-1, f - (half - low));
})

/* sin(x + quarter * pi/2). x - n pi/2 = r + rl: as it is below pi/4; with pi/2 in three parts up to
 * 2^28; beyond from 192 bits of 2/pi cut out of the table, as in trig_slow_f32 but with a 53-bit m
 * in two words. */
TCI_HELPER(trig_f64,
static double tc_h_trig_f64(double x, int quarter) {
    static const unsigned int table[38] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
        0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea,
        0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
        0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b,
        0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
        0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046};
    union { double f; unsigned long long u; } v;
    v.f = x;
    double size = x < 0.0 ? -x : x;
    double r = x;
    double rl = 0.0;
    int q = 0;
    if (size < 0x1p-27) {
        return quarter ? 1.0 : x;
    }
    if (((v.u >> 52) & 2047u) == 2047u) {
        return x - x;
    }
    if (size > 0x1p28) {
        unsigned long long m = (v.u & 0xfffffffffffffu) | 0x10000000000000u;
        int at = (int)((v.u >> 52) & 2047u) - 1075 + 30;
        int word = at >> 5;
        int shift = at & 31;
        unsigned long long w[6];
        unsigned int f[6];
        unsigned long long carry = 0;
        for (int i = 5; i >= 0; i--) {
            unsigned long long two = table[word + i];
            two = (two << 32) | table[word + i + 1];
            w[i] = ((two << shift) >> 32) & 0xffffffffu;
            carry += (m & 0xffffffffu) * w[i];
            f[i] = (unsigned int)carry;
            carry >>= 32;
        }
        carry = 0;
        for (int i = 4; i >= 0; i--) {
            carry += (m >> 32) * w[i + 1] + f[i];
            f[i] = (unsigned int)carry;
            carry >>= 32;
        }
        q = (int)(f[0] >> 30);
        int negative = (int)((f[0] >> 29) & 1u);
        q += negative;
        for (int i = 0; i < 6; i++) {
            f[i] = (f[i] << 2) | (i < 5 ? f[i + 1] >> 30 : 0u);
            f[i] = negative ? ~f[i] : f[i];
        }
        double t0 = (double)f[0] * 0x1p-32;
        double t1 = (double)f[1] * 0x1p-64;
        double t2 = (double)f[2] * 0x1p-96;
        double t3 = (double)f[3] * 0x1p-128 + (double)f[4] * 0x1p-160;
        double high = t0 + t1;
        double low = ((t0 - high) + t1) + (t2 + t3);
        double sum = high + low;
        low = low - (sum - high);
        r = sum * 0x1.921fb54442d18p+0;
        rl = TC_FMA_F64(sum, 0x1.921fb54442d18p+0, -r)
            + TC_FMA_F64(sum, 0x1.1a62633145c06p-54, low * 0x1.921fb54442d18p+0);
        if (negative != (int)(v.u >> 63)) {
            r = -r;
            rl = -rl;
        }
        if (v.u >> 63) {
            q = -q;
        }
    } else if (size > 0x1.921fb54442d18p-1) {
        double n = TC_FMA_F64(x, 0x1.45f306dc9c883p-1, 0x1.8p52) - 0x1.8p52;
        double t = TC_FMA_F64(-n, 0x1.921fb54442d18p+0, x);
        double ph = n * 0x1.1a62633145c06p-54;
        double pl = TC_FMA_F64(n, 0x1.1a62633145c06p-54, -ph);
        double rh = t - ph;
        double back = rh - t;
        double c = (((t - (rh - back)) - (ph + back)) - pl) - n * 0x1.c1cd129024e08p-107;
        r = rh + c;
        rl = c - (r - rh);
        q = (int)(long long)n;
    }
    q += quarter;
    double z = r * r;
    double y;
    if (q & 1) {
        double half = 0.5 * z;
        double w = 1.0 - half;
        double p = 0x1.5555555555555p-5 + z * (-0x1.6c16c16c16964p-10 + z * (0x1.a01a019f4df8fp-16
            + z * (-0x1.27e4fa16e89fap-22 + z * (0x1.1eeb67ea7a35cp-29
            + z * -0x1.907cea0cf7363p-37))));
        y = w + (((1.0 - w) - half) + TC_FMA_F64(z * z, p, -(r * rl)));
    } else {
        double p = -0x1.5555555555555p-3 + z * (0x1.1111111110badp-7 + z * (-0x1.a01a019e82435p-13
            + z * (0x1.71de3794aecd1p-19 + z * (-0x1.ae60090c44cc4p-26
            + z * 0x1.5e0a62ed2b3p-33))));
        y = r + TC_FMA_F64(r * z, p, TC_FMA_F64(-0.5 * z, rl, rl));
    }
    return q & 2 ? -y : y;
})

TCI_HELPER(sin_f64,
static double tc_h_sin_f64(double x) {
    return tc_h_trig_f64(x, 0);
})

TCI_HELPER(cos_f64,
static double tc_h_cos_f64(double x) {
    return tc_h_trig_f64(x, 1);
})

TCI_HELPER(tan_f64,
static double tc_h_tan_f64(double x) {
    return tc_h_trig_f64(x, 0) / tc_h_trig_f64(x, 1);
})

/* factor * Phi(-b) * 2^128, b = a + rest >= 0, Phi the normal distribution, where b^2 / 2 is hi +
 * lo exactly. In what follows a stands for b; the derivative puts the rest back.
 * (1 + a) Phi(-a) e^(a^2/2) is a polynomial in t = (a - 4) / (a + 4) (2^-55); its constant term and
 * the division are done in hi + lo. */
TCI_HELPER(tail_f64,
static double tc_h_tail_f64(double a, double rest, double factor, double hi, double lo) {
    if (a > 39.0) {
        a = 39.0;
    }
    double t = (a - 4.0) / (a + 4.0);
    static const double q[23] = {
        -0x1.a53f19bf500f9p-31, -0x1.9a626f3e48c33p-30, 0x1.a95aa4e0389d2p-28,
        0x1.2c06493301c98p-26, -0x1.55b3d1e833929p-26, -0x1.db742b7ea6187p-24,
        0x1.a4b9ee6cb862fp-30, 0x1.2833c6127bf27p-21, 0x1.b2350dd4bb5f4p-22,
        -0x1.5ead54a0910afp-19, -0x1.cca7333e019e5p-19, 0x1.c93d6d33fde2dp-17,
        0x1.648428543ac15p-16, -0x1.707b9fb5c35c4p-14, -0x1.8c11b4eb2c1b7p-14,
        0x1.6c5382a4e895ap-11, -0x1.2b7f5de428ff6p-12, -0x1.47d5fc733b4eap-8,
        0x1.25dd7205f8dbep-6, -0x1.07c3c2582db4dp-5, 0x1.d4969f10e03e2p-6,
        0x1.cabd72a60fae6p-7, -0x1.8c18f2086e34cp-4};
    double p = q[0];
    for (int i = 1; i < 23; i++) {
        p = TC_FMA_F64(p, t, q[i]);
    }
    double top = t * p;
    double q0 = 0x1.e361ea6fba141p-2;
    double qh = q0 + top;
    double ql = (top - (qh - q0)) + TC_FMA_F64(t, p, -top);
    double d = 1.0 + a;
    double dl = a > 1.0 ? 1.0 - (d - a) : a - (d - 1.0);
    double m = qh / d;
    double ml = (TC_FMA_F64(-m, d, qh) + (ql - m * dl)) / d
        + rest * (a * m - 0.39894228040143268);
    double uh = m * factor;
    double ul = TC_FMA_F64(m, factor, -uh) + ml * factor;
    double e = tc_h_exp_core_f64(-hi, -lo, 128);
    return TC_FMA_F64(e, uh, e * ul);
})

/* Below 0.84 x + x P(x^2) (2^-56); else 1 - 2 Phi(-|x| sqrt 2), whose exponent is x^2. */
TCI_HELPER(erf_f64,
static double tc_h_erf_f64(double x) {
    double a = x < 0.0 ? -x : x;
    if (a < 0.84) {
        static const double q[12] = {
            -0x1.e9b59b822fe78p-31, 0x1.e8760edbee426p-27, -0x1.5e248468c6b0bp-23,
            0x1.b9cafbe17b1c9p-20, -0x1.f4d0d4900f012p-17, 0x1.f9a3188d414a2p-14,
            -0x1.c02db3a6927a3p-11, 0x1.565bcd0d086fbp-8, -0x1.b82ce3128244p-6,
            0x1.ce2f21a042ae9p-4, -0x1.812746b0379e6p-2, 0x1.06eba8214db69p-3};
        double z = x * x;
        double p = q[0];
        for (int i = 1; i < 12; i++) {
            p = TC_FMA_F64(p, z, q[i]);
        }
        return TC_FMA_F64(x, p, x);
    }
    a = a > 30.0 ? 30.0 : a;
    double s = a * a;
    double wide = a * 0x1.6a09e667f3bcdp+0;
    double rest = TC_FMA_F64(a, 0x1.6a09e667f3bcdp+0, -wide) + a * -0x1.bdd3413b26456p-54;
    double y = tc_h_tail_f64(wide, rest, 1.0, s, TC_FMA_F64(a, a, -s));
    y = TC_FMA_F64(y, -0x1p-127, 1.0);
    return x < 0.0 ? -y : y;
})

TCI_HELPER(erfc_f64,
static double tc_h_erfc_f64(double x) {
    double a = x < 0.0 ? -x : x;
    if (a < 0.5) {
        return 1.0 - tc_h_erf_f64(x);
    }
    a = a > 28.0 ? 28.0 : a;
    double s = a * a;
    double wide = a * 0x1.6a09e667f3bcdp+0;
    double rest = TC_FMA_F64(a, 0x1.6a09e667f3bcdp+0, -wide) + a * -0x1.bdd3413b26456p-54;
    double y = tc_h_tail_f64(wide, rest, 1.0, s, TC_FMA_F64(a, a, -s));
    return x < 0.0 ? TC_FMA_F64(y, -0x1p-127, 2.0) : y * 0x1p-127;
})

/* Two steps of Halley's method on erf(y) = a, from a half on on erfc(y) = 1 - a, from a series, or
 * Winitzki's formula (A handy approximation for the error function and its inverse, 2008), whose
 * roots are powers. */
TCI_HELPER(erfinv_f64,
static double tc_h_erfinv_f64(double x) {
    double a = x < 0.0 ? -x : x;
    if (!(a < 1.0)) {
        return a == 1.0 ? x / 0.0 : (x - x) / (x - x);
    }
    double y = a * 0.88622692545275801 * (1.0 + 0.2617993877991494 * a * a);
    if (a > 0.5) {
        double l = tc_h_log_f64((1.0 - a) * (1.0 + a));
        double t = 4.330746750799873 + 0.5 * l;
        t = tc_h_exp_core_f64(0.5 * tc_h_log_f64(t * t - l / 0.147), 0.0, 0) - t;
        y = tc_h_exp_core_f64(0.5 * tc_h_log_f64(t), 0.0, 0);
    }
    for (int i = 0; i < 2; i++) {
        double off = a > 0.5 ? (1.0 - a) - tc_h_erfc_f64(y) : tc_h_erf_f64(y) - a;
        double d = off / (1.1283791670955126 * tc_h_exp_core_f64(-y * y, 0.0, 0));
        y -= d / (1.0 + y * d);
    }
    return x < 0.0 ? -y : x == 0.0 ? x : y;
})

TCI_HELPER(erfinv_f32,
static float tc_h_erfinv_f32(float x) {
    return (float)tc_h_erfinv_f64((double)x);
})

/* log where x is not a finite number above 0: -inf at 0, inf at inf, else NaN. */
TCI_HELPER(log_edge_f32,
static float tc_h_log_edge_f32(float x) {
    union { float f; unsigned int u; } v;
    v.f = x;
    if (v.u != 0x7f800000u) {
        v.u = x == 0.0f ? 0xff800000u : 0x7fc00000u;
    }
    return v.f;
})

/* Repeated squaring, wrapping. A negative exponent gives the integer part of 1 / x^|y|, and 0 for x
 * = 0. */
TCI_HELPER(pow_i64,
static long long tc_h_pow_i64(long long x, long long y) {
    if (y < 0) {
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    }
    unsigned long long result = 1;
    unsigned long long square = (unsigned long long)x;
    for (unsigned long long n = (unsigned long long)y; n; n >>= 1) {
        result = n & 1 ? result * square : result;
        square *= square;
    }
    return (long long)result;
})

TCI_HELPER(pow_u64,
static long long tc_h_pow_u64(long long x, long long y) {
    unsigned long long result = 1;
    unsigned long long square = (unsigned long long)x;
    for (unsigned long long n = (unsigned long long)y; n; n >>= 1) {
        result = n & 1 ? result * square : result;
        square *= square;
    }
    return (long long)result;
})

/* Euclid's. The divisor of the least integer, which has no magnitude of its own, wraps. */
TCI_HELPER(gcd_u64,
static long long tc_h_gcd_u64(long long x, long long y) {
    unsigned long long a = (unsigned long long)x;
    unsigned long long b = (unsigned long long)y;
    while (b) {
        unsigned long long rest = a % b;
        a = b;
        b = rest;
    }
    return (long long)a;
})

TCI_HELPER(gcd_i64,
static long long tc_h_gcd_i64(long long x, long long y) {
    unsigned long long a = (unsigned long long)x;
    unsigned long long b = (unsigned long long)y;
    return tc_h_gcd_u64((long long)(x < 0 ? 0 - a : a), (long long)(y < 0 ? 0 - b : b));
})

/* log|Gamma|. From 0.704 to 2.3 (x - 1) (x - 2) R(x - 3/2); below and above that
 * x Gamma(x) = Gamma(x + 1), from 8 on Stirling's series, below 0 the reflection
 * pi / (x sin(pi x)). */
TCI_HELPER(lgamma_f64,
static double tc_h_lgamma_f64(double x) {
    double y = x < 0.0 ? -x : x;
    double more = 0.0;
    double sign = 1.0;
    if (!(y < 0x1p1023)) {
        return x * x;
    }
    if (y < 0x1p-60) {
        return -tc_h_log_f64(y);
    }
    if (x < 0.0) {
        double r = y < 0x1p51 ? x - ((x + 0x1.8p52) - 0x1.8p52) : 0.0;
        r = tc_h_trig_f64(r * 3.14159265358979312, 0) * y;
        more = 1.14472988584940017 - tc_h_log_f64(r < 0.0 ? -r : r);
        sign = -1.0;
    }
    if (y < 0.704) {
        more -= sign * tc_h_log_f64(y);
        y += 1.0;
    } else if (y >= 8.0) {
        static const double q[8] = {
            -0.029550653594771242, 0.00641025641025641, -0.0019175269175269176,
            0.00084175084175084175, -0.00059523809523809524, 0.00079365079365079365,
            -0.0027777777777777778, 0.083333333333333333};
        double w = 1.0 / (y * y);
        double p = q[0];
        for (int i = 1; i < 8; i++) {
            p = TC_FMA_F64(p, w, q[i]);
        }
        p = TC_FMA_F64(y - 0.5, tc_h_log_f64(y) - 1.0, 0.41893853320467274 + p / y);
        return more + sign * p;
    }
    double product = 1.0;
    while (y >= 2.3) {
        y -= 1.0;
        product *= y;
    }
    static const double c[30] = {
        -0x1.402e726382ef5p-20, 0x1.ee00a35f2eccdp-20, 0x1.8305fed6bbba9p-19,
        -0x1.2a0f35446b00cp-18, -0x1.727d25f8a3347p-18, 0x1.1de338c931237p-17,
        0x1.6cbf500bcc115p-19, -0x1.168df60023c01p-18, -0x1.df7cce5b2e925p-18,
        0x1.75473da848682p-17, -0x1.3a902045b8dbcp-17, 0x1.f09c7b54d9285p-17,
        -0x1.c185749fc9a8fp-16, 0x1.638a7dca915acp-15, -0x1.15c4ec0a082b5p-14,
        0x1.ba729ac8e6dfbp-14, -0x1.6239e4c6c265dp-13, 0x1.1c7a2029984ebp-12,
        -0x1.cb45055df537ap-12, 0x1.750a97f015623p-11, -0x1.313e8a1efe7e7p-10,
        0x1.f814ba7bfbfd3p-10, -0x1.a5035230c6867p-9, 0x1.64f0664aef208p-8,
        -0x1.34dbda149c8f9p-7, 0x1.13342352833dap-6, -0x1.007aa83cee16ap-5,
        0x1.01af62a29298dp-4, -0x1.2aed059bd608ap-3, 0x1.eeb95b094c191p-2};
    double t = y - 1.5;
    double p = c[0];
    for (int i = 1; i < 29; i++) {
        p = TC_FMA_F64(p, t, c[i]);
    }
    double top = p * t;
    double d = y - 1.0;
    d = TC_FMA_F64(d, d, -d);
    p = c[29] + top;
    p = TC_FMA_F64(d, p, d * (top - (p - c[29]))) + (product > 1.0 ? tc_h_log_f64(product) : 0.0);
    return more + sign * p;
})

TCI_HELPER(lgamma_f32,
static float tc_h_lgamma_f32(float x) {
    return (float)tc_h_lgamma_f64((double)x);
})

/* The derivative of that: from 1 to 2 (x - root) P(x - 3/2), the root in two parts; the recurrence
 * up to 10, whose sum is more + low; the asymptotic series from there on, below 0 the reflection.
 * At 0 it is -inf of the zero's sign, at the integers below it NaN. */
TCI_HELPER(digamma_f64,
static double tc_h_digamma_f64(double x) {
    double more = 0.0;
    double low = 0.0;
    double off = 0.0;
    if (x < 0x1p-60 && x > -0x1p-60) {
        return -1.0 / x;
    }
    if (x < 0.0) {
        double r = x > -0x1p51 ? x - ((x + 0x1.8p52) - 0x1.8p52) : 0.0;
        if (r == 0.0) {
            return r / r;
        }
        r *= 3.14159265358979312;
        more = -3.14159265358979312 * tc_h_trig_f64(r, 1) / tc_h_trig_f64(r, 0);
        x = 1.0 - x;
    }
    if (!(x < 10.0)) {
        double w = 1.0 / (x * x);
        static const double q[7] = {
            0.083333333333333333, -0.021092796092796093, 0.0075757575757575758,
            -0.0041666666666666667, 0.003968253968253968, -0.0083333333333333333,
            0.083333333333333333};
        double p = q[0];
        for (int i = 1; i < 7; i++) {
            p = TC_FMA_F64(p, w, q[i]);
        }
        return more + (tc_h_log_f64(x) - (0.5 / x + w * p));
    }
    while (x < 1.0 || x >= 2.0) {
        double step = x < 1.0 ? -1.0 : 1.0;
        double v = x < 1.0 ? x : x - 1.0;
        off = x < 1.0 ? x - ((x + 1.0) - 1.0) : 0.0;
        x -= step;
        double t = step / v;
        double sum = more + t;
        double back = sum - more;
        low += ((more - (sum - back)) + (t - back)) + TC_FMA_F64(-t, v, step) / v;
        more = sum;
    }
    static const double c[22] = {
        -0x1.6b107f71aa124p-13, 0x1.104c9d0897b58p-12, -0x1.3db05b36d9a48p-13,
        0x1.dc8ae08af0fc4p-13, -0x1.f99f529bd0771p-12, 0x1.7b3b41b0b38cdp-11,
        -0x1.1002aaf6255f5p-10, 0x1.980fc9c9f0be8p-10, -0x1.33661f9073563p-9,
        0x1.cd3e42d157015p-9, -0x1.5a071c746535bp-8, 0x1.03c00801ba958p-7,
        -0x1.86355f6f68797p-7, 0x1.256475e5ac975p-6, -0x1.b9f8b1367959dp-6,
        0x1.4de9aa05d3418p-5, -0x1.fb442029cdbf4p-5, 0x1.8512e5905d180p-4,
        -0x1.2feeeb98a7cd8p-3, 0x1.eca189b8e6da1p-3, -0x1.b1cb63005ee97p-2,
        0x1.e6f0cbb873617p-1};
    double p = c[0];
    for (int i = 1; i < 21; i++) {
        p = TC_FMA_F64(p, x - 1.5, c[i]);
    }
    double top = TC_FMA_F64(p, x - 1.5, -0x1.f789c8f062b61p-55);
    p = c[21] + top;
    top -= p - c[21];
    double d = (x - 0x1.762d86356be3fp+0) + (off - 0x1.b86a722197829p-54);
    double y = d * p;
    low += TC_FMA_F64(d, p, -y) + d * top;
    double sum = more + y;
    double back = sum - more;
    return sum + (((more - (sum - back)) + (y - back)) + low);
})

TCI_HELPER(digamma_f32,
static float tc_h_digamma_f32(float x) {
    return (float)tc_h_digamma_f64((double)x);
})

/* The second derivative: the asymptotic series at x + n, from 12 on, and then the n terms of the
 * recurrence, the largest last. */
TCI_HELPER(trigamma_f64,
static double tc_h_trigamma_f64(double x) {
    double more = 0.0;
    double sign = 1.0;
    if (x < 0x1p-60 && x > -0x1p-60) {
        return (1.0 / x) * (1.0 / x);
    }
    if (x < 0.0) {
        double r = x > -0x1p51 ? x - ((x + 0x1.8p52) - 0x1.8p52) : 0.0;
        double turn = r * 3.14159265358979312;
        double rest = TC_FMA_F64(r, 3.14159265358979312, -turn) + r * 1.2246467991473532e-16;
        double s = tc_h_trig_f64(turn, 0);
        double u = 3.14159265358979312 / s;
        if (s == 0.0) {
            return u * u;
        }
        double ul = (TC_FMA_F64(-u, s, 3.14159265358979312)
            + (1.2246467991473532e-16 - u * rest * tc_h_trig_f64(turn, 1))) / s;
        more = u * u + 2.0 * u * ul;
        sign = -1.0;
        x = 1.0 - x;
    }
    int n = x < 12.0 ? (int)(12.0 - x) + 1 : 0;
    double v = x + (double)n;
    double w = 1.0 / (v * v);
    static const double q[7] = {
        1.1666666666666667, -0.25311355311355311, 0.075757575757575758,
        -0.033333333333333333, 0.023809523809523810, -0.033333333333333333,
        0.16666666666666667};
    double p = q[0];
    for (int i = 1; i < 7; i++) {
        p = TC_FMA_F64(p, w, q[i]);
    }
    double sum = 1.0 / v + w * (0.5 + p / v);
    double low = 0.0;
    while (n > 0) {
        n -= 1;
        v = x + (double)n;
        double t = 1.0 / v;
        double square = t * t;
        double next = sum + square;
        low += (square - (next - sum)) + TC_FMA_F64(t, t, -square)
            + 2.0 * square * TC_FMA_F64(-t, v, 1.0);
        sum = next;
    }
    return more + sign * (sum + low);
})

TCI_HELPER(trigamma_f32,
static float tc_h_trigamma_f32(float x) {
    return (float)tc_h_trigamma_f64((double)x);
})

/* id, name, dtype, arity, the two helpers it needs */
TCI_QUICK_END

#define TCI_HELPER_ROW(id, word, type, n, first, second)                                           \
    [TCI_H_##id].name = "tc_h_" #word, [TCI_H_##id].dtype = TC_##type, [TCI_H_##id].arity = n,     \
    [TCI_H_##id].needs = {TCI_H_##first, TCI_H_##second}, [TCI_H_##id].text = tci_text_##word

static const tci_helper tci_helpers[TCI_H_COUNT] = {
    TCI_HELPER_ROW(TRIG_SLOW_F32, trig_slow_f32, F32, 0, NONE, NONE),
    TCI_HELPER_ROW(SIN_SLOW_F32, sin_slow_f32, F32, 1, TRIG_SLOW_F32, NONE),
    TCI_HELPER_ROW(COS_SLOW_F32, cos_slow_f32, F32, 1, TRIG_SLOW_F32, NONE),
    TCI_HELPER_ROW(LOG_EDGE_F32, log_edge_f32, F32, 1, NONE, NONE),
    TCI_HELPER_ROW(TAN_SLOW_F32, tan_slow_f32, F32, 1, TRIG_SLOW_F32, NONE),
    TCI_HELPER_ROW(ERFINV_F32, erfinv_f32, F32, 1, ERFINV_F64, NONE),
    TCI_HELPER_ROW(LGAMMA_F32, lgamma_f32, F32, 1, LGAMMA_F64, NONE),
    TCI_HELPER_ROW(DIGAMMA_F32, digamma_f32, F32, 1, DIGAMMA_F64, NONE),
    TCI_HELPER_ROW(TRIGAMMA_F32, trigamma_f32, F32, 1, TRIGAMMA_F64, NONE),
    TCI_HELPER_ROW(EXP_CORE_F64, exp_core_f64, F64, 0, NONE, NONE),
    TCI_HELPER_ROW(LOG_F64, log_f64, F64, 1, NONE, NONE),
    TCI_HELPER_ROW(TRIG_F64, trig_f64, F64, 0, NONE, NONE),
    TCI_HELPER_ROW(SIN_F64, sin_f64, F64, 1, TRIG_F64, NONE),
    TCI_HELPER_ROW(COS_F64, cos_f64, F64, 1, TRIG_F64, NONE),
    TCI_HELPER_ROW(TAIL_F64, tail_f64, F64, 0, EXP_CORE_F64, NONE),
    TCI_HELPER_ROW(ERF_F64, erf_f64, F64, 1, TAIL_F64, NONE),
    TCI_HELPER_ROW(TAN_F64, tan_f64, F64, 1, TRIG_F64, NONE),
    TCI_HELPER_ROW(ERFC_F64, erfc_f64, F64, 1, ERF_F64, NONE),
    TCI_HELPER_ROW(ERFINV_F64, erfinv_f64, F64, 1, ERFC_F64, LOG_F64),
    TCI_HELPER_ROW(LGAMMA_F64, lgamma_f64, F64, 1, LOG_F64, TRIG_F64),
    TCI_HELPER_ROW(DIGAMMA_F64, digamma_f64, F64, 1, LOG_F64, TRIG_F64),
    TCI_HELPER_ROW(TRIGAMMA_F64, trigamma_f64, F64, 1, TRIG_F64, NONE),
    TCI_HELPER_ROW(POW_I64, pow_i64, I64, 2, NONE, NONE),
    TCI_HELPER_ROW(POW_U64, pow_u64, U64, 2, NONE, NONE),
    TCI_HELPER_ROW(GCD_U64, gcd_u64, U64, 2, NONE, NONE),
    TCI_HELPER_ROW(GCD_I64, gcd_i64, I64, 2, GCD_U64, NONE),
    [TCI_H_SIN_SLOW_F32].f32_1 = tc_h_sin_slow_f32,
    [TCI_H_COS_SLOW_F32].f32_1 = tc_h_cos_slow_f32,
    [TCI_H_LOG_EDGE_F32].f32_1 = tc_h_log_edge_f32,
    [TCI_H_LOG_F64].f64_1 = tc_h_log_f64,
    [TCI_H_SIN_F64].f64_1 = tc_h_sin_f64,
    [TCI_H_COS_F64].f64_1 = tc_h_cos_f64,
    [TCI_H_ERF_F64].f64_1 = tc_h_erf_f64,
    [TCI_H_TAN_SLOW_F32].f32_1 = tc_h_tan_slow_f32,
    [TCI_H_ERFINV_F32].f32_1 = tc_h_erfinv_f32,
    [TCI_H_LGAMMA_F32].f32_1 = tc_h_lgamma_f32,
    [TCI_H_DIGAMMA_F32].f32_1 = tc_h_digamma_f32,
    [TCI_H_TRIGAMMA_F32].f32_1 = tc_h_trigamma_f32,
    [TCI_H_TAN_F64].f64_1 = tc_h_tan_f64,
    [TCI_H_ERFC_F64].f64_1 = tc_h_erfc_f64,
    [TCI_H_ERFINV_F64].f64_1 = tc_h_erfinv_f64,
    [TCI_H_LGAMMA_F64].f64_1 = tc_h_lgamma_f64,
    [TCI_H_DIGAMMA_F64].f64_1 = tc_h_digamma_f64,
    [TCI_H_TRIGAMMA_F64].f64_1 = tc_h_trigamma_f64,
    [TCI_H_GCD_I64].i64_2 = tc_h_gcd_i64,
    [TCI_H_GCD_U64].i64_2 = tc_h_gcd_u64,
    [TCI_H_POW_I64].i64_2 = tc_h_pow_i64,
    [TCI_H_POW_U64].i64_2 = tc_h_pow_u64,
};

TCI_FN const tci_helper *tci_helper_get(int id)
{
    return &tci_helpers[id];
}

TCI_FN int tci_helper_count(void)
{
    return TCI_H_COUNT;
}

#undef TC_FMA_F64
#undef TCI_HELPER
#undef TCI_HELPER_ROW
