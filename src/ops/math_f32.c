/* ops/math_f32.c - expansions of math functions (exp, log, sin, erf, ...) in f32 into scalar
 * primitives.
 *
 * In: the expansion being built. Out: its instructions, the last one the result (ops/math.c states
 * the conventions). Design: range reduction, a polynomial in explicit FMAs, and exact scaling
 * through the exponent field, without branches; rare cases (a huge argument) call a LANE1 helper
 * under a mask. Coefficients: minimax fits (iteratively reweighted least squares on Chebyshev
 * nodes, coefficients rounded to f32 one after the other, the rest refitted each time); each list
 * states interval and error. */
#include <math.h>

#include "math_constants.h"
#include "math_expansion.h"

/* ---- constants ---- */

static const double tci_math_magic = 12582912.0;
/* The same for relative error of e^r - 1 (2^-26.1), then moved by a random search over rounded
 * coefficients until the worst tanh over all floats was 2.47 ulp. */
static const double tci_math_tanh_c[] = {0x1.5e0db2p-10, 0x1.11f1dap-7, 0x1.55619p-5, 0x1.5554d8p-3,
                                         0x1.fffffcp-2};
/* sin(r) / r - 1 over s = r^2, |r| <= pi/2 * 1.0001: s^3 .. s^0. A minimax fit (2^-27) moved by a
 * random search over rounded coefficients that ran all floats: 1.72 ulp, and no result above 1. */
static const double tci_math_sin_c[] = {0x1.5e16d6p-19, -0x1.9f7ceap-13, 0x1.110f4ap-7,
                                        -0x1.55555p-3};
/* pi in three parts, each cut (not rounded) to 24 bits, negated */
static const double tci_math_minus_pi[] = {-0x1.921fb4p+1, -0x1.4442dp-23, -0x1.846988p-47};
/* Beyond this the three parts no longer keep the relative accuracy next to multiples of pi. */
static const double tci_math_trig_bound = 131072.0;
/* 2^r on |r| <= 0.5, relative error 2^-28.3: r^6 .. 1 */
static const double tci_math_exp2_c[] = {
    0x1.417284p-13, 0x1.5f0976p-10, 0x1.3b2ddap-7, 0x1.c6af7ap-5, 0x1.ebfbdcp-3, 0x1.62e43p-1, 1.0};
/* -(2^r) on |r| <= 0.5, relative error 2^-23.2: r^5 .. 1 */
static const double tci_math_minus_exp2_c[] = {-0x1.5ca96ep-10, -0x1.3cdbdcp-7, -0x1.c6b3aap-5,
                                               -0x1.ebf9fp-3,   -0x1.62e43p-1,  -1.0};
/* erf(x) / x - 1 in x^2, |x| <= 0.9, relative error of erf 2^-26 */
static const double tci_math_erf_small_c[] = {-0x1.3ba9cep-11, 0x1.479c9ep-8,  -0x1.b69b96p-6,
                                              0x1.ce1b86p-4,   -0x1.8126ecp-2, 0x1.06eba6p-3};
/* log2(erfc(x)), 0.9 <= x <= 4, error of erf 2^-26.4 (loose where erfc is small) */
static const double tci_math_erf_large_c[] = {-0x1.bcdbfp-16, 0x1.0f1f64p-11, -0x1.587282p-8,
                                              0x1.1516b2p-5,  -0x1.37883ep-3, -0x1.d5cca4p-1,
                                              -0x1.a0ae66p+0, -0x1.00e388p-13};
/* Phi(-a) e^(a^2/2) = N(a) / D(a), 0 <= a <= 14.5, relative error 2^-29 at 0, 2^-26 past 4 */
static const double tci_math_mills_n[] = {0x1.de177ap-9, 0x1.335faep-5, 0x1.64895cp-3,
                                          0x1.b4552ep-2, 0.5};
static const double tci_math_mills_d[] = {0x1.2b97d8p-7, 0x1.8146acp-4, 0x1.c7ff9ep-2,
                                          0x1.2a2e1ap+0, 0x1.a66cc2p+0, 1.0};
/* (a + 3) e^(a^2/2) Phi(-a) over t = (a - 3) / (a + 3), 0 <= a <= 14.4, relative error 2^-28.9:
 * t^10 .. t */
static const double tci_math_tail_c[] = {0x1.b2af7ap-15,  0x1.09ec2ep-13, -0x1.fe2d4ep-13,
                                         -0x1.0d6874p-10, 0x1.0ca772p-10, 0x1.c89f36p-8,
                                         -0x1.56d6ccp-7,  -0x1.832c8p-5,  0x1.d71386p-3,
                                         -0x1.04c72ap-1};
/* (a + 2) e^(a^2) erfc(a) over t = (a - 2) / (a + 2), 0.465 <= a <= 10.2, relative error 2^-26.6:
 * t^8 .. t */
static const double tci_math_erfcx_c[] = {-0x1.ffb054p-12, -0x1.a1417ap-11, 0x1.8af53cp-9,
                                          0x1.a7cda2p-8,   -0x1.603484p-6,  -0x1.2a8614p-5,
                                          0x1.1e2db6p-2,   -0x1.5fd388p-1};
/* tan(r) / r - 1 over s = r^2, |r| <= pi/4 * 1.0002, error of the tangent 2^-25.6: s^5 .. s^0 */
static const double tci_math_tan_c[] = {0x1.361e4ap-7, 0x1.864fbep-9, 0x1.91d374p-6,
                                        0x1.b54ebep-5, 0x1.112fbcp-3, 0x1.5554d4p-2};

/* ---- expansions ---- */

/* e^r of x = n ln 2 + r; the low bits of *sum hold n + bias. */
static int tci_math_exp_rest(tci_math *m, int x, int bias, int *sum)
{
    int magic = tci_math_k(m, tci_math_magic + bias);
    *sum = tci_math_fma(m, x, tci_math_k(m, tci_math_log2e), magic);
    int n = tci_math_2(m, TCI_P_SUB, *sum, magic);
    int r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2), x);
    r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2_rest), r);
    int p = tci_math_poly(m, r, tci_math_exp_c, TCI_COUNT(tci_math_exp_c));
    p = tci_math_fma(m, p, r, tci_math_k(m, 1.0));
    return tci_math_fma(m, p, r, tci_math_k(m, 1.0));
}

/* e^x = 2^n e^r. The scale is applied as 2^(n/2) twice: both factors are normal for every n in
 * [-150, 128], the first product is exact, so subnormal results are rounded once and 2^128
 * overflows to infinity. The bias 254 = 2 * 127 rides on the magic sum. The least n is -254, whose
 * first factor has all bits 0: what a mask has taken out (-infinity, -1e9) is 0 without an
 * underflow, and each of those takes a processor as long as ten exponentials. */
TCI_FN void tci_math_exp_f32(tci_math *m)
{
    int sum, x = tci_math_arg(m, 0);
    x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -176.0), x);
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 89.0), x);
    int p = tci_math_exp_rest(m, x, 2 * 127, &sum);
    tci_math_scale(m, p, tci_math_to_bits(m, sum));
}

/* The bits of exp for x <= 0, where 2^(n + 64) is a factor, and 2^-64 another: where the result is
 * not 0 the first product is exact, as there. The least n is -191, whose factor is 0. */
TCI_FN void tci_math_expn_f32(tci_math *m)
{
    int sum, x = tci_math_arg(m, 0);
    x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -132.5), x);
    int p = tci_math_exp_rest(m, x, 127 + 64, &sum);
    p = tci_math_2(m, TCI_P_MUL, p, tci_math_exp2i(m, sum));
    tci_math_2(m, TCI_P_MUL, p, tci_math_k(m, 0x1p-64));
}

/* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)): log x = k ln 2 + f + f^2 P(f). The float ln 2 is
 * good to 2^-28 relative, so k needs no second part. A subnormal x is scaled by 2^23, and the
 * integer that k is read from moves along. Of what is not a finite number above 0, the bits less 1
 * are beyond those of the largest float. */
TCI_FN void tci_math_log_f32(tci_math *m)
{
    const int64_t sqrt_half = 0x3f3504f3;
    int x = tci_math_arg(m, 0);
    int tiny = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0x1p-126));
    int scaled = tci_math_2(m, TCI_P_MUL, x, tci_math_k(m, 0x1p23));
    int base = tci_math_ki(m, sqrt_half);
    base = tci_math_select(m, tiny, tci_math_ki(m, sqrt_half + (23 << 23)), base);
    int bits = tci_math_to_bits(m, tci_math_select(m, tiny, scaled, x));
    int offset = tci_math_2(m, TCI_P_SUB, bits, base);
    int k = tci_math_2(m, TCI_P_SHR, offset, tci_math_ki(m, 23));
    k = tci_math_prim(m, TCI_P_CAST, m->t, 1, k, 0, 0);
    int mantissa = tci_math_2(m, TCI_P_AND, offset, tci_math_ki(m, 0x7fffff));
    mantissa = tci_math_2(m, TCI_P_ADD, mantissa, tci_math_ki(m, sqrt_half));
    int f = tci_math_2(m, TCI_P_SUB, tci_math_from_bits(m, mantissa), tci_math_k(m, 1.0));
    int p = tci_math_poly(m, f, tci_math_log_c, TCI_COUNT(tci_math_log_c));
    int y = tci_math_fma(m, p, tci_math_2(m, TCI_P_MUL, f, f), f);
    y = tci_math_fma(m, k, tci_math_k(m, tci_math_ln2), y);
    tci_value one = {.i = 1}, last = {.i = 0x7f7ffffe};
    int place = tci_math_prim(m, TCI_P_CAST, TC_U32, 1, tci_math_to_bits(m, x), 0, 0);
    place = tci_math_2(m, TCI_P_SUB, place, tci_math_const(m, TC_U32, one));
    int edge = tci_math_compare(m, TCI_P_LT, tci_math_const(m, TC_U32, last), place);
    tci_math_select(m, edge, tci_math_lane1(m, TCI_H_LOG_EDGE_F32, x, edge), y);
}

/* sin(x) = (-1)^n sin(r), r = x - q pi. sin: q = n. cos: q = n - 1/2, as cos(x) = sin(x + pi/2).
 * r^3 comes from an FMA that adds +0 where a MUL would do, so that r = -0 keeps its sign. */
TCI_FN void tci_math_trig_f32(tci_math *m, bool cosine)
{
    int x = tci_math_arg(m, 0);
    int magic = tci_math_k(m, tci_math_magic);
    int turns = tci_math_k(m, 0x1.45f306p-2); /* 1 / pi */
    int sum;
    int q;
    if (cosine) {
        int half = tci_math_k(m, 0.5);
        sum = tci_math_2(m, TCI_P_ADD, tci_math_fma(m, x, turns, half), magic);
        q = tci_math_2(m, TCI_P_SUB, tci_math_2(m, TCI_P_SUB, sum, magic), half);
    } else {
        sum = tci_math_fma(m, x, turns, magic);
        q = tci_math_2(m, TCI_P_SUB, sum, magic);
    }
    int r = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[0]), x);
    r = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[1]), r);
    r = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[2]), r);
    int s = tci_math_2(m, TCI_P_MUL, r, r);
    int p = tci_math_poly(m, s, tci_math_sin_c, TCI_COUNT(tci_math_sin_c));
    int y = tci_math_fma(m, p, tci_math_fma(m, r, s, tci_math_k(m, 0.0)), r);
    int sign = tci_math_2(m, TCI_P_SHL, tci_math_to_bits(m, sum), tci_math_ki(m, 31));
    y = tci_math_from_bits(m, tci_math_2(m, TCI_P_XOR, tci_math_to_bits(m, y), sign));
    int size = tci_math_1(m, TCI_P_ABS, x);
    int big = tci_math_compare(m, TCI_P_LT, tci_math_k(m, tci_math_trig_bound), size);
    int slow = tci_math_lane1(m, cosine ? TCI_H_COS_SLOW_F32 : TCI_H_SIN_SLOW_F32, x, big);
    tci_math_select(m, big, slow, y);
}

/* tanh|x| = E / (E + 2) with E = e^(2|x|) - 1 = 2^n (e^r - 1) + (2^n - 1). One part of ln 2 is
 * enough: an error of t counts less the larger n is. */
TCI_FN void tci_math_tanh_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int t = tci_math_1(m, TCI_P_ABS, tci_math_2(m, TCI_P_ADD, x, x));
    t = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 20.0), t);
    int magic = tci_math_k(m, tci_math_magic + 127.0);
    int sum = tci_math_fma(m, t, tci_math_k(m, tci_math_log2e), magic);
    int n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2), t);
    int p = tci_math_poly(m, r, tci_math_tanh_c, TCI_COUNT(tci_math_tanh_c));
    p = tci_math_fma(m, p, tci_math_2(m, TCI_P_MUL, r, r), r);
    int scale = tci_math_exp2i(m, sum);
    int less = tci_math_2(m, TCI_P_SUB, scale, tci_math_k(m, 1.0));
    int e = tci_math_fma(m, p, scale, less);
    int y = tci_math_quotient(m, e, tci_math_2(m, TCI_P_ADD, e, tci_math_k(m, 2.0)));
    tci_math_copy_sign(m, y, x);
}

/* With E = e^-|x|: E / (1 + E) for x < 0, else 1 / (1 + E). E is scaled by 2^(n + 64), and what is
 * divided by 2^64, until it is divided, so that a subnormal result is rounded once; of the least n
 * the first factor is 0, as in exp. The polynomial runs in -r, hence the signs. */
TCI_FN void tci_math_sigmoid_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int one = tci_math_k(m, 1.0);
    int t = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 132.5), tci_math_1(m, TCI_P_ABS, x));
    int magic = tci_math_k(m, tci_math_magic + 127.0 + 64.0);
    int sum = tci_math_fma(m, t, tci_math_k(m, -tci_math_log2e), magic);
    int n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int r = tci_math_fma(m, n, tci_math_k(m, tci_math_ln2), t);
    r = tci_math_fma(m, n, tci_math_k(m, tci_math_ln2_rest), r);
    double c[TCI_COUNT(tci_math_exp_c) + 2];
    for (int i = 0; i < TCI_COUNT(tci_math_exp_c); i++) {
        c[i] = i % 2 == 0 ? tci_math_exp_c[i] : -tci_math_exp_c[i]; /* r^6, r^5, ... */
    }
    c[TCI_COUNT(tci_math_exp_c)] = -1.0;
    c[TCI_COUNT(tci_math_exp_c) + 1] = 1.0;
    int p = tci_math_poly(m, r, c, TCI_COUNT(c));
    int e = tci_math_2(m, TCI_P_MUL, p, tci_math_exp2i(m, sum));
    int back = tci_math_k(m, 0x1p-64);
    int negative = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0.0));
    int top = tci_math_select(m, negative, e, tci_math_k(m, 0x1p64));
    int y = tci_math_quotient(m, top, tci_math_fma(m, e, back, one));
    tci_math_2(m, TCI_P_MUL, y, back);
}

/* Below 0.9: x + x P(x^2). Above: 1 - 2^q(|x|), q = log2(erfc), where 2^q = 2^n 2^r without further
 * reduction. */
TCI_FN void tci_math_erf_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 4.0), tci_math_1(m, TCI_P_ABS, x));
    int q = tci_math_poly(m, a, tci_math_erf_large_c, TCI_COUNT(tci_math_erf_large_c));
    int magic = tci_math_k(m, tci_math_magic + 127.0);
    int sum = tci_math_2(m, TCI_P_ADD, q, magic);
    int r = tci_math_2(m, TCI_P_SUB, q, tci_math_2(m, TCI_P_SUB, sum, magic));
    int p = tci_math_poly(m, r, tci_math_minus_exp2_c, TCI_COUNT(tci_math_minus_exp2_c));
    int large = tci_math_fma(m, p, tci_math_exp2i(m, sum), tci_math_k(m, 1.0));
    int s = tci_math_2(m, TCI_P_MUL, a, a);
    int g = tci_math_poly(m, s, tci_math_erf_small_c, TCI_COUNT(tci_math_erf_small_c));
    int small = tci_math_fma(m, g, a, a);
    int is_small = tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 0.9f));
    tci_math_copy_sign(m, tci_math_select(m, is_small, small, large), x);
}

/* Phi(-a) 2^64 = e^(-(a^2/2)) N(a) / D(a) 2^64, a in [0, 16.27]: (nu - e) / 2 is that exponent,
 * exactly, which keeps the tail to a few ulp. Where it is scaled back a subnormal result is rounded
 * once. Of a = 16.27 the scale is 0, as in exp. */
static int tci_math_phi_f32(tci_math *m, int nu, int e, int a)
{
    int magic = tci_math_k(m, tci_math_magic + 127.0 + 64.0);
    int factor = tci_math_k(m, 0x1.715476p-1);
    int sum = tci_math_fma(m, nu, factor, magic);
    int r = tci_math_fma(m, nu, factor, tci_math_2(m, TCI_P_SUB, magic, sum));
    r = tci_math_fma(m, nu, tci_math_k(m, 0x1.4ae0cp-27), r);
    r = tci_math_fma(m, e, tci_math_k(m, -0x1.715476p-1), r);
    int p = tci_math_poly(m, r, tci_math_exp2_c, TCI_COUNT(tci_math_exp2_c));
    p = tci_math_2(m, TCI_P_MUL, p, tci_math_exp2i(m, sum));
    int top = tci_math_poly(m, a, tci_math_mills_n, TCI_COUNT(tci_math_mills_n));
    int bottom = tci_math_poly(m, a, tci_math_mills_d, TCI_COUNT(tci_math_mills_d));
    return tci_math_quotient(m, tci_math_2(m, TCI_P_MUL, p, top), bottom);
}

TCI_FN const double *tci_math_mills(bool below, int *n)
{
    *n = below ? TCI_COUNT(tci_math_mills_d) : TCI_COUNT(tci_math_mills_n);
    return below ? tci_math_mills_d : tci_math_mills_n;
}

/* A function G(t) / (a + c), t = (a - c) / (a + c), c a small integer. */
typedef struct tci_math_ratio {
    double c;
    const double *coefs; /* of G but its constant, first + rest */
    int n;
    double first, rest;
    double slope[2]; /* (a + c) times minus the derivative of the logarithm, over t, about */
} tci_math_ratio;

static const tci_math_ratio tci_math_tail = {
    3.0,           tci_math_tail_c, TCI_COUNT(tci_math_tail_c),
    0x1.754a76p-1, -0x1.c747ep-26,  {-0x1.8cp-1, 0x1.b18p+0}};
static const tci_math_ratio tci_math_erfcx = {
    2.0,           tci_math_erfcx_c, TCI_COUNT(tci_math_erfcx_c),
    0x1.058672p+0, -0x1.1481p-27,    {-0x1.75p-1, 0x1.aabp+0}};

/* Its value at a, in two parts. The rounded quotient b = 1 / (a + c) belongs to a point next to a,
 * where t = 1 - 2 c b: what is left, 1 - (a + c) b, times the slope puts the value back. */
static tci_math_pair tci_math_ratio_at(tci_math *m, const tci_math_ratio *f, int a)
{
    int one = tci_math_k(m, 1.0), shift = tci_math_k(m, f->c);
    int d = tci_math_2(m, TCI_P_ADD, a, shift);
    int d_rest = tci_math_2(m, TCI_P_SUB, a, tci_math_2(m, TCI_P_SUB, d, shift));
    int b = tci_math_quotient(m, one, d), minus_b = tci_math_1(m, TCI_P_NEG, b);
    int t = tci_math_fma(m, tci_math_k(m, -2 * f->c), b, one);
    int off = tci_math_fma(m, minus_b, d_rest, tci_math_fma(m, minus_b, d, one));
    off = tci_math_2(m, TCI_P_MUL, off, tci_math_poly(m, t, f->slope, 2));
    int top = tci_math_fma(m, tci_math_poly(m, t, f->coefs, f->n), t, tci_math_k(m, f->rest));
    int base = tci_math_k(m, f->first), g = tci_math_2(m, TCI_P_ADD, base, top);
    int g_rest = tci_math_2(m, TCI_P_SUB, top, tci_math_2(m, TCI_P_SUB, g, base));
    tci_math_pair y;
    y.hi = tci_math_2(m, TCI_P_MUL, g, b);
    y.lo = tci_math_fma(m, g, b, tci_math_1(m, TCI_P_NEG, y.hi));
    y.lo = tci_math_fma(m, g_rest, b, tci_math_fma(m, y.hi, off, y.lo));
    return y;
}

/* (y.hi + y.lo) e^(s (nu + e)) = *scale 2^-64 (hi + lo), s = 1 or 1/2; nu - e is the exponent,
 * exactly, and of 2^r only 2^r - 1 is rounded. */
static tci_math_pair tci_math_times_power(tci_math *m, tci_math_pair y, int nu, int e, double s,
                                          int *scale)
{
    int magic = tci_math_k(m, tci_math_magic + 127.0 + 64.0);
    int factor = tci_math_k(m, s * tci_math_log2e);
    int sum = tci_math_fma(m, nu, factor, magic);
    int r = tci_math_fma(m, nu, factor, tci_math_2(m, TCI_P_SUB, magic, sum));
    r = tci_math_fma(m, nu, tci_math_k(m, s * 0x1.4ae0cp-26), r);
    r = tci_math_fma(m, e, tci_math_k(m, -s * tci_math_log2e), r);
    int q = tci_math_poly(m, r, tci_math_exp2_c, TCI_COUNT(tci_math_exp2_c) - 1);
    q = tci_math_2(m, TCI_P_MUL, q, r); /* 2^r - 1 */
    y.lo = tci_math_fma(m, q, y.hi, tci_math_fma(m, q, y.lo, y.lo));
    *scale = tci_math_exp2i(m, sum);
    return y;
}

/* The first steps of gelu's expansions. From a = |x| = 14.36 on a Phi(-a) is less than half of the
 * least subnormal: there a is 16.27, whose scale 2^n is 0, as an underflow takes some processors as
 * long as several of these. nu - e is -(a^2), exactly. */
typedef struct tci_math_gelu {
    int x, a, nu, e;
} tci_math_gelu;

static tci_math_gelu tci_math_gelu_begin(tci_math *m)
{
    tci_math_gelu g = {.x = tci_math_arg(m, 0)};
    g.a = tci_math_1(m, TCI_P_ABS, g.x);
    int gone = tci_math_compare(m, TCI_P_LT, tci_math_k(m, 14.36f), g.a);
    g.a = tci_math_select(m, gone, tci_math_k(m, 16.27f), g.a);
    g.nu = tci_math_2(m, TCI_P_MUL, g.a, tci_math_1(m, TCI_P_NEG, g.a));
    g.e = tci_math_fma(m, g.a, g.a, g.nu);
    return g;
}

/* gelu(x) = max(x, 0) - a Phi(-a), the second term times 2^64: the negative side does not cancel. A
 * maximum of -0 keeps the sign. */
static void tci_math_gelu_end(tci_math *m, const tci_math_gelu *g, int term)
{
    int relu = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -0.0), g->x);
    tci_math_fma(m, term, tci_math_k(m, -0x1p-64), relu);
}

/* Phi(-a) = e^-(a^2/2) G(t) / (a + 3), in two parts until it is multiplied by a: within 2 ulp. */
TCI_FN void tci_math_gelu_f32(tci_math *m)
{
    int scale;
    tci_math_gelu g = tci_math_gelu_begin(m);
    tci_math_pair y = tci_math_ratio_at(m, &tci_math_tail, g.a);
    y = tci_math_times_power(m, y, g.nu, g.e, 0.5, &scale);
    scale = tci_math_2(m, TCI_P_MUL, scale, g.a);
    y.lo = tci_math_2(m, TCI_P_MUL, y.lo, scale);
    tci_math_gelu_end(m, &g, tci_math_fma(m, y.hi, scale, y.lo));
}

/* Within 8 ulp of f32. */
TCI_FN void tci_math_geluh_f32(tci_math *m)
{
    tci_math_gelu g = tci_math_gelu_begin(m);
    int phi = tci_math_phi_f32(m, g.nu, g.e, g.a);
    tci_math_gelu_end(m, &g, tci_math_2(m, TCI_P_MUL, phi, g.a));
}

/* erfc a = e^-(a^2) G(t) / (a + 2) from a = 0.46875 on, 1 - erf a below that; 2 less it for -a. A
 * subnormal result is rounded once. */
TCI_FN void tci_math_erfc_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0), one = tci_math_k(m, 1.0);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 10.2f), tci_math_1(m, TCI_P_ABS, x));
    int nu = tci_math_2(m, TCI_P_MUL, a, tci_math_1(m, TCI_P_NEG, a));
    int e = tci_math_fma(m, a, a, nu);
    tci_math_pair y = tci_math_ratio_at(m, &tci_math_erfcx, a);
    int power;
    y = tci_math_times_power(m, y, nu, e, 1.0, &power);
    int tail = tci_math_2(m, TCI_P_ADD, y.lo, y.hi);
    tail = tci_math_2(m, TCI_P_MUL, tail, power);
    int below = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0.0));
    int scale = tci_math_select(m, below, tci_math_k(m, -0x1p-64), tci_math_k(m, 0x1p-64));
    int base = tci_math_select(m, below, tci_math_k(m, 2.0), tci_math_k(m, 0.0));
    int far = tci_math_fma(m, tail, scale, base);
    int s = tci_math_2(m, TCI_P_MUL, a, a);
    int g = tci_math_poly(m, s, tci_math_erf_small_c, TCI_COUNT(tci_math_erf_small_c));
    int near = tci_math_fma(m, tci_math_1(m, TCI_P_NEG, x), g, tci_math_2(m, TCI_P_SUB, one, x));
    tci_math_select(m, tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 0.46875)), near, far);
}

/* tan(x): r = x - q pi/2 as for sin; -1 / tan(r) where q is odd. The last roundings of r and tan(r)
 * are kept next to them until the quotient is rounded. */
TCI_FN void tci_math_tan_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0), magic = tci_math_k(m, tci_math_magic);
    int sum = tci_math_fma(m, x, tci_math_k(m, 0x1.45f306p-1), magic); /* 2 / pi */
    int q = tci_math_2(m, TCI_P_SUB, sum, magic);
    int first = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[0] / 2), x);
    tci_math_pair second = tci_math_product(m, q, tci_math_k(m, tci_math_minus_pi[1] / 2));
    int r = tci_math_2(m, TCI_P_ADD, first, second.hi);
    int added = tci_math_2(m, TCI_P_SUB, r, first);
    int low = tci_math_2(m, TCI_P_SUB, first, tci_math_2(m, TCI_P_SUB, r, added));
    low = tci_math_2(m, TCI_P_ADD, low, tci_math_2(m, TCI_P_SUB, second.hi, added));
    low = tci_math_2(m, TCI_P_ADD, low, second.lo);
    low = tci_math_fma(m, q, tci_math_k(m, tci_math_minus_pi[2] / 2), low);
    tci_math_pair angle = tci_math_sum(m, r, low);
    r = angle.hi;
    int s = tci_math_2(m, TCI_P_MUL, r, r);
    int p = tci_math_poly(m, s, tci_math_tan_c, TCI_COUNT(tci_math_tan_c));
    low = tci_math_fma(m, s, angle.lo, angle.lo); /* tan'(r) is about 1 + r^2 */
    tci_math_pair t = tci_math_sum(m, r, tci_math_fma(m, p, tci_math_2(m, TCI_P_MUL, r, s), low));
    int one = tci_math_k(m, 1.0);
    int back = tci_math_2(m, TCI_P_DIV, tci_math_k(m, -1.0), t.hi);
    int off = tci_math_fma(m, back, t.lo, tci_math_fma(m, back, t.hi, one));
    back = tci_math_fma(m, back, off, back);
    int odd = tci_math_2(m, TCI_P_AND, tci_math_to_bits(m, sum), tci_math_ki(m, 1));
    odd = tci_math_compare(m, TCI_P_EQ, odd, tci_math_ki(m, 1));
    int y = tci_math_keep_zero(m, x, tci_math_select(m, odd, back, t.hi));
    int size = tci_math_1(m, TCI_P_ABS, x);
    int big = tci_math_compare(m, TCI_P_LT, tci_math_k(m, tci_math_trig_bound), size);
    tci_math_select(m, big, tci_math_lane1(m, TCI_H_TAN_SLOW_F32, x, big), y);
}
