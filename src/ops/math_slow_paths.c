/* ops/math_slow_paths.c - scalar slow paths of the math expansions (huge arguments, rare cases):
 * functions that generated code calls for single lanes.
 *
 * In: the arguments only. Out: tci_helper_get: the compiled function and its own C source, so the
 * interpreter and generated code execute the same operations in the same order.
 *
 * Design: TCI_HELPER compiles its argument and keeps it as a string. A text therefore has no
 * comment, no #, no libm call, and every fused multiply-add is written as TC_FMA_F64; contraction
 * is off wherever it is compiled, so the bits agree. The comment above a helper describes it.
 *
 * Terms: "hi + lo" is an unevaluated sum of two doubles; adding and subtracting the "magic" number
 * 1.5 * 2^52 rounds to the nearest integer. Coefficients are minimax fits (Remez, in 50 digits,
 * then rounded to double); the largest relative error of each is stated. Invariant: one static
 * function per text, and texts stay below 4096 characters (the C11 minimum). */
#include <math.h>

#include "math.h"

TCI_QUICK_BEGIN

#define TCI_HELPER(name, ...)                                                                      \
    __VA_ARGS__                                                                                    \
    static const char tci_text_##name[] = #__VA_ARGS__;
#define TC_FMA_F64(a, b, c) fma((a), (b), (c))

/* clang-format off: functions as arguments of a macro */

/* sin(x + quarter * pi/2) of a large float. |x| = m * 2^s; the 96 bits of 2/pi whose product with m
 * has weights 2^1 .. 2^-94 are cut out of the table (one zero word, then 2/pi), so p holds the
 * quadrant in two bits and the fraction of it in 62. Polynomials on |r| <= pi/4: 2^-35 (sin), 2^-30
 * (cos). */
TCI_HELPER(
    trig_slow_f32, static double tc_h_trig_slow_f32(float x, int quarter) {
        static const unsigned int table[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                              0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
        union {
            float f;
            unsigned int u;
        } v;
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
            y = 1.0 - z * 0.5 +
                z * z *
                    (0x1.555554414a8p-5 + z * (-0x1.6c12d1f958cd2p-10 + z * 0x1.9bd7f2cfcb972p-16));
        } else {
            y = r + r * z *
                        (-0x1.555555545d8b7p-3 +
                         z * (0x1.11110dedac4c2p-7 +
                              z * (-0x1.a013a54cfcbep-13 + z * 0x1.6dbd3e089ac88p-19)));
        }
        return q & 2 ? -y : y;
    })

TCI_HELPER(
    sin_slow_f32,
    static float tc_h_sin_slow_f32(float x) { return (float)tc_h_trig_slow_f32(x, 0); })

TCI_HELPER(
    cos_slow_f32,
    static float tc_h_cos_slow_f32(float x) { return (float)tc_h_trig_slow_f32(x, 1); })

TCI_HELPER(
    tan_slow_f32, static float tc_h_tan_slow_f32(float x) {
        return (float)(tc_h_trig_slow_f32(x, 0) / tc_h_trig_slow_f32(x, 1));
    })

/* sin(x + quarter * pi/2). x - n pi/2 = r + rl: as it is below pi/4; with pi/2 in three parts up to
 * 2^28; beyond from 192 bits of 2/pi cut out of the table, as in trig_slow_f32 but with a 53-bit m
 * in two words. *lost: what the last rounding of the result took. */
TCI_HELPER(
    trig_f64, static double tc_h_trig_f64(double x, int quarter, double *lost) {
        static const unsigned int table[38] = {
            0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
            0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c,
            0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4,
            0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf,
            0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea,
            0x6bfb5fb1, 0x1f8d5d08, 0x56033046};
        union {
            double f;
            unsigned long long u;
        } v;
        v.f = x;
        double size = x < 0.0 ? -x : x;
        double r = x;
        double rl = 0.0;
        int q = 0;
        *lost = 0.0;
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
            rl = TC_FMA_F64(sum, 0x1.921fb54442d18p+0, -r) +
                 TC_FMA_F64(sum, 0x1.1a62633145c06p-54, low * 0x1.921fb54442d18p+0);
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
        double low;
        if (q & 1) {
            double half = 0.5 * z;
            double w = 1.0 - half;
            double p = 0x1.5555555555555p-5 +
                       z * (-0x1.6c16c16c16964p-10 +
                            z * (0x1.a01a019f4df8fp-16 +
                                 z * (-0x1.27e4fa16e89fap-22 +
                                      z * (0x1.1eeb67ea7a35cp-29 + z * -0x1.907cea0cf7363p-37))));
            low = ((1.0 - w) - half) + TC_FMA_F64(z * z, p, -(r * rl));
            y = w + low;
            low -= y - w;
        } else {
            double p = -0x1.5555555555555p-3 +
                       z * (0x1.1111111110badp-7 +
                            z * (-0x1.a01a019e82435p-13 +
                                 z * (0x1.71de3794aecd1p-19 +
                                      z * (-0x1.ae60090c44cc4p-26 + z * 0x1.5e0a62ed2b3p-33))));
            low = TC_FMA_F64(r * z, p, TC_FMA_F64(-0.5 * z, rl, rl));
            y = r + low;
            low -= y - r;
        }
        *lost = q & 2 ? -low : low;
        return q & 2 ? -y : y;
    })

TCI_HELPER(
    sin_f64, static double tc_h_sin_f64(double x) {
        double lost;
        return tc_h_trig_f64(x, 0, &lost);
    })

TCI_HELPER(
    cos_f64, static double tc_h_cos_f64(double x) {
        double lost;
        return tc_h_trig_f64(x, 1, &lost);
    })

TCI_HELPER(
    tan_f64, static double tc_h_tan_f64(double x) {
        double top_rest;
        double bottom_rest;
        double top = tc_h_trig_f64(x, 0, &top_rest);
        double bottom = tc_h_trig_f64(x, 1, &bottom_rest);
        double back = 1.0 / bottom;
        double y = top * back;
        double off = TC_FMA_F64(-y, bottom_rest, top_rest) + TC_FMA_F64(-y, bottom, top);
        return x == 0.0 ? x : TC_FMA_F64(off, back, y);
    })

/* log where x is not a finite number above 0: -inf at 0, inf at inf, else NaN. */
TCI_HELPER(
    log_edge_f32, static float tc_h_log_edge_f32(float x) {
        union {
            float f;
            unsigned int u;
        } v;
        v.f = x;
        if (v.u != 0x7f800000u) {
            v.u = x == 0.0f ? 0xff800000u : 0x7fc00000u;
        }
        return v.f;
    })

/* log(1 + e^-d), 0 <= d < 700, or log2(1 + 2^-d), as hi + lo: part 0 or 1. Of other d it is 0.
 * e^-d - 1 and then e^-y - 1 by a series of ten terms at 2^-10 of the argument, squared ten
 * times, all in two parts. y is 2 atanh(e / (2 + e)) by its series, and then y + (e + x + e x),
 * x = e^-y - 1 (Newton), which has twice as many digits. */
TCI_HELPER(
    log1pexp, static double tc_h_log1pexp(double d, int base2, int part) {
        static const double c[20] = {0x1.ae64567f544e4p-26,
                                     -0x1.c062e06d1f209p-80,
                                     0x1.27e4fb7789f5cp-22,
                                     0x1.cbbc05b4fa99ap-76,
                                     0x1.71de3a556c734p-19,
                                     -0x1.c154f8ddc6cp-73,
                                     0x1.a01a01a01a01ap-16,
                                     0x1.a01a01a01a01ap-76,
                                     0x1.a01a01a01a01ap-13,
                                     0x1.a01a01a01a01ap-73,
                                     0x1.6c16c16c16c17p-10,
                                     -0x1.f49f49f49f49fp-65,
                                     0x1.1111111111111p-7,
                                     0x1.1111111111111p-63,
                                     0x1.5555555555555p-5,
                                     0x1.5555555555555p-59,
                                     0x1.5555555555555p-3,
                                     0x1.5555555555555p-57,
                                     0x1p-1,
                                     0.0};
        if (!(d >= 0.0 && d < 700.0)) {
            return 0.0;
        }
        double e = 0.0;
        double el = 0.0;
        double y = 0.0;
        double yl = 0.0;
        for (int round = 0; round < 2; round++) {
            double n = 0.0;
            double r = -y;
            double rl = -yl;
            if (round == 0 && base2) {
                n = (0x1.8p52 - d) - 0x1.8p52;
                double t = -d - n;
                r = t * 0x1.62e42fefa39efp-1;
                rl = TC_FMA_F64(t, 0x1.62e42fefa39efp-1, -r) + t * 0x1.abc9e3b39803fp-56;
            } else if (round == 0) {
                n = TC_FMA_F64(-d, 0x1.71547652b82fep+0, 0x1.8p52) - 0x1.8p52;
                double q = TC_FMA_F64(-n, 0x1.62e42fefa38p-1, -d);
                double p = n * 0x1.ef35793c7673p-45;
                double pl = TC_FMA_F64(n, 0x1.ef35793c7673p-45, -p) + n * 0x1.f97b57a079a19p-103;
                r = q - p;
                double b = r - q;
                rl = ((q - (r - b)) - (p + b)) - pl;
            }
            r *= 0x1p-10;
            rl *= 0x1p-10;
            double a = c[0];
            double al = c[1];
            for (int i = 2; i < 20; i += 2) {
                double p = a * r;
                double pl = TC_FMA_F64(a, r, -p) + (a * rl + al * r);
                double s = c[i] + p;
                double t = (p - (s - c[i])) + (pl + c[i + 1]);
                a = s + t;
                al = t - (a - s);
            }
            double z = r * r;
            double zl = TC_FMA_F64(r, r, -z) + 2.0 * r * rl;
            double q = z * a;
            double ql = TC_FMA_F64(z, a, -q) + (z * al + zl * a);
            double w = r + q;
            double wl = (q - (w - r)) + (rl + ql);
            double x = w + wl;
            double xl = wl - (x - w);
            for (int i = 0; i < 10; i++) {
                double p = x * x;
                double pl = TC_FMA_F64(x, x, -p) + 2.0 * x * xl;
                double s = 2.0 * x + p;
                double t = (p - (s - 2.0 * x)) + (2.0 * xl + pl);
                x = s + t;
                xl = t - (x - s);
            }
            if (round == 0) {
                union {
                    double f;
                    unsigned long long u;
                } v;
                v.u = (unsigned long long)((long long)n + 1023) << 52;
                double s = 1.0 + x;
                double t = (x - (s - 1.0)) + xl;
                e = (s + t) * v.f;
                el = (t - ((s + t) - s)) * v.f;
                s = e / (2.0 + e);
                z = s * s;
                y = 1.0 / 33.0;
                for (int i = 31; i > 0; i -= 2) {
                    y = TC_FMA_F64(y, z, 1.0 / (double)i);
                }
                y = 2.0 * s * y;
            } else {
                double s = e + x;
                double b = s - e;
                double sl = ((e - (s - b)) + (x - b)) + (el + xl);
                double p = e * x;
                double pl = TC_FMA_F64(e, x, -p) + (e * xl + el * x);
                double u = s + p;
                b = u - s;
                double ul = ((s - (u - b)) + (p - b)) + (sl + pl);
                s = y + u;
                b = s - y;
                sl = ((y - (s - b)) + (u - b)) + (yl + ul);
                y = s + sl;
                yl = sl - (y - s);
            }
        }
        if (base2) {
            double p = y * 0x1.71547652b82fep+0;
            double pl = TC_FMA_F64(y, 0x1.71547652b82fep+0, -p) +
                        (y * 0x1.777d0ffda0d24p-56 + yl * 0x1.71547652b82fep+0);
            y = p + pl;
            yl = pl - (y - p);
        }
        return part ? yl : y;
    })

/* The same of a float, in double: log(1 + e) = 2 atanh(e / (2 + e)), both by their series. */
TCI_HELPER(
    log1pexp_f32, static double tc_h_log1pexp_f32(float d, int base2) {
        static const double c[12] = {0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29,
                                     0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22,
                                     0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16,
                                     0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10,
                                     0x1.1111111111111p-7,  0x1.5555555555555p-5,
                                     0x1.5555555555555p-3,  0x1p-1};
        union {
            double f;
            unsigned long long u;
        } v;
        if (!(d >= 0.0f && d < 700.0f)) {
            return 0.0;
        }
        double x = base2 ? -(double)d * 0x1.62e42fefa39efp-1 : -(double)d;
        double n = TC_FMA_F64(x, 0x1.71547652b82fep+0, 0x1.8p52) - 0x1.8p52;
        double r = TC_FMA_F64(-n, 0x1.ef35793c7673p-45, TC_FMA_F64(-n, 0x1.62e42fefa38p-1, x));
        double a = c[0];
        for (int i = 1; i < 12; i++) {
            a = TC_FMA_F64(a, r, c[i]);
        }
        v.u = (unsigned long long)((long long)n + 1023) << 52;
        double e = v.f + v.f * TC_FMA_F64(r * r, a, r);
        double s = e / (2.0 + e);
        double z = s * s;
        double y = 1.0 / 33.0;
        for (int i = 31; i > 0; i -= 2) {
            y = TC_FMA_F64(y, z, 1.0 / (double)i);
        }
        y = 2.0 * s * y;
        return base2 ? y * 0x1.71547652b82fep+0 : y;
    })

/* log(1 + exp(d)), by base 2 where `base2`, as the sum of two numbers of the dtype. */
#define TCI_LOG1PEXP_HELPERS(name, base2)                                                          \
    TCI_HELPER(                                                                                    \
        name##_hi_f32,                                                                             \
        static float tc_h_##name##_hi_f32(float d) { return (float)tc_h_log1pexp_f32(d, base2); }) \
    TCI_HELPER(                                                                                    \
        name##_lo_f32, static float tc_h_##name##_lo_f32(float d) {                                \
            double y = tc_h_log1pexp_f32(d, base2);                                                \
            return (float)(y - (double)(float)y);                                                  \
        })                                                                                         \
    TCI_HELPER(                                                                                    \
        name##_hi_f64,                                                                             \
        static double tc_h_##name##_hi_f64(double d) { return tc_h_log1pexp(d, base2, 0); })       \
    TCI_HELPER(                                                                                    \
        name##_lo_f64,                                                                             \
        static double tc_h_##name##_lo_f64(double d) { return tc_h_log1pexp(d, base2, 1); })
TCI_LOG1PEXP_HELPERS(log1pexp, 0)
TCI_LOG1PEXP_HELPERS(log1pexp2, 1)
#undef TCI_LOG1PEXP_HELPERS

TCI_QUICK_END
/* clang-format on */

/* id, name, dtype, the helper it needs */
#define TCI_HELPER_ROW(id, word, type, other)                                                      \
    [TCI_H_##id].name = "tc_h_" #word, [TCI_H_##id].dtype = TC_##type,                             \
    [TCI_H_##id].needs = TCI_H_##other, [TCI_H_##id].text = tci_text_##word

static const tci_helper tci_helpers[TCI_H_COUNT] = {
    TCI_HELPER_ROW(TRIG_SLOW_F32, trig_slow_f32, F32, NONE),
    TCI_HELPER_ROW(SIN_SLOW_F32, sin_slow_f32, F32, TRIG_SLOW_F32),
    TCI_HELPER_ROW(COS_SLOW_F32, cos_slow_f32, F32, TRIG_SLOW_F32),
    TCI_HELPER_ROW(LOG_EDGE_F32, log_edge_f32, F32, NONE),
    TCI_HELPER_ROW(TAN_SLOW_F32, tan_slow_f32, F32, TRIG_SLOW_F32),
    TCI_HELPER_ROW(TRIG_F64, trig_f64, F64, NONE),
    TCI_HELPER_ROW(SIN_F64, sin_f64, F64, TRIG_F64),
    TCI_HELPER_ROW(COS_F64, cos_f64, F64, TRIG_F64),
    TCI_HELPER_ROW(TAN_F64, tan_f64, F64, TRIG_F64),
    TCI_HELPER_ROW(LOG1PEXP, log1pexp, F64, NONE),
    TCI_HELPER_ROW(LOG1PEXP_F32, log1pexp_f32, F32, NONE),
    TCI_HELPER_ROW(LOG1PEXP_HI_F32, log1pexp_hi_f32, F32, LOG1PEXP_F32),
    TCI_HELPER_ROW(LOG1PEXP_LO_F32, log1pexp_lo_f32, F32, LOG1PEXP_F32),
    TCI_HELPER_ROW(LOG1PEXP_HI_F64, log1pexp_hi_f64, F64, LOG1PEXP),
    TCI_HELPER_ROW(LOG1PEXP_LO_F64, log1pexp_lo_f64, F64, LOG1PEXP),
    TCI_HELPER_ROW(LOG1PEXP2_HI_F32, log1pexp2_hi_f32, F32, LOG1PEXP_F32),
    TCI_HELPER_ROW(LOG1PEXP2_LO_F32, log1pexp2_lo_f32, F32, LOG1PEXP_F32),
    TCI_HELPER_ROW(LOG1PEXP2_HI_F64, log1pexp2_hi_f64, F64, LOG1PEXP),
    TCI_HELPER_ROW(LOG1PEXP2_LO_F64, log1pexp2_lo_f64, F64, LOG1PEXP),
    [TCI_H_SIN_SLOW_F32].f32 = tc_h_sin_slow_f32,
    [TCI_H_COS_SLOW_F32].f32 = tc_h_cos_slow_f32,
    [TCI_H_LOG_EDGE_F32].f32 = tc_h_log_edge_f32,
    [TCI_H_SIN_F64].f64 = tc_h_sin_f64,
    [TCI_H_COS_F64].f64 = tc_h_cos_f64,
    [TCI_H_TAN_SLOW_F32].f32 = tc_h_tan_slow_f32,
    [TCI_H_TAN_F64].f64 = tc_h_tan_f64,
    [TCI_H_LOG1PEXP_HI_F32].f32 = tc_h_log1pexp_hi_f32,
    [TCI_H_LOG1PEXP_LO_F32].f32 = tc_h_log1pexp_lo_f32,
    [TCI_H_LOG1PEXP_HI_F64].f64 = tc_h_log1pexp_hi_f64,
    [TCI_H_LOG1PEXP_LO_F64].f64 = tc_h_log1pexp_lo_f64,
    [TCI_H_LOG1PEXP2_HI_F32].f32 = tc_h_log1pexp2_hi_f32,
    [TCI_H_LOG1PEXP2_LO_F32].f32 = tc_h_log1pexp2_lo_f32,
    [TCI_H_LOG1PEXP2_HI_F64].f64 = tc_h_log1pexp2_hi_f64,
    [TCI_H_LOG1PEXP2_LO_F64].f64 = tc_h_log1pexp2_lo_f64,
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
