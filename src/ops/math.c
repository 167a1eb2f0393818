/* ops/math.c - expansions of math functions (exp, log, sin, erf, ...) into straight-line programs
 * of scalar primitives.
 *
 * In: a MATH prim and f32 or f64. Out: a straight-line program over BASE prims, the same for the
 * block interpreter, the scalar evaluator and every dialect, so all compute the same bits.
 *
 * Design: f32 functions are range reduction, a polynomial in explicit FMAs, and exact scaling
 * through the exponent field, without branches; rare cases (a huge angle) call a LANE1 helper under
 * a mask. Some expansions serve f64 too, with longer polynomials; the other f64 functions compute
 * in double-double arithmetic.
 *
 * Conventions: clamps put the constant first, because PMAX(c, x) and PMIN(c, x) give x when x is
 * NaN. "Magic" rounding adds 1.5 * 2^23, which leaves the nearest integer in the low bits of the
 * sum; a bias for the exponent field can be added at the same time. -0 stays -0 wherever the
 * function is odd. Coefficients: minimax fits (iteratively reweighted least squares on Chebyshev
 * nodes, coefficients rounded to f32 one after the other, the rest refitted each time); each list
 * states interval and error. Invariant: an expansion has at most TCI_RECIPE_MAX instructions and
 * its last one is the result. */
#include <math.h>
#include <pthread.h>

#include "math_expansion.h"

static tci_step_inst tci_math_insts[TCI_RECIPES_MAX];
static tci_recipe tci_math_recipes[TCI_P_COUNT - TCI_P_BASE_COUNT][2];
static pthread_once_t tci_math_once = PTHREAD_ONCE_INIT;

/* ---- f32 constants ---- */

static const double tci_math_magic = 12582912.0; /* 1.5 * 2^23 */
static const double tci_math_log2e = 0x1.715476p+0;
static const double tci_math_ln2 = 0x1.62e43p-1; /* ln 2 - 1.9e-9 */
static const double tci_math_ln2_rest = -0x1.05c61p-29;

/* e^r on |r| <= 0.347 without the leading 1 + r, relative error 2^-28.2: coefficients of r^6 ..
 * r^2 */
static const double tci_math_exp_c[] = {0x1.6a4508p-10, 0x1.1239aap-7, 0x1.5558b8p-5, 0x1.555492p-3,
                                        0x1.fffffcp-2};
/* The same for relative error of e^r - 1 (2^-26.1), then moved by a random search over rounded
 * coefficients until the worst tanh over all floats was 2.47 ulp. */
static const double tci_math_tanh_c[] = {0x1.5e0db2p-10, 0x1.11f1dap-7, 0x1.55619p-5, 0x1.5554d8p-3,
                                         0x1.fffffcp-2};
/* log(1 + f) - f over f^2, f in [sqrt(1/2) - 1, sqrt(2) - 1], error of the log 2^-27.8: f^8 ..
 * f^0 */
static const double tci_math_log_c[] = {-0x1.39c1f4p-4, 0x1.08ceeep-3,  -0x1.0f277cp-3,
                                        0x1.225a62p-3,  -0x1.542652p-3, 0x1.99a52cp-3,
                                        -0x1.000434p-2, 0x1.55554ep-2,  -0x1.fffff8p-2};
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

/* ---- f64 constants of recipes of both widths ---- */

/* (e^r - 1 - r) / r^2, |r| <= 0.347, relative error of e^r - 1 2^-61.6: r^12 .. r^2 */
static const double tci_math_exp_wide_c[] = {0x1.1f199062262bbp-29,
                                             0x1.af5f39ea86203p-26,
                                             0x1.27e513a240c35p-22,
                                             0x1.71ddf808f8573p-19,
                                             0x1.a01a018de343dp-16,
                                             0x1.a01a01b00568cp-13,
                                             0x1.6c16c16c1ab6p-10,
                                             0x1.111111110f652p-7,
                                             0x1.555555555554dp-5,
                                             0x1.5555555555559p-3,
                                             0.5};
/* (log((1 + s) / (1 - s)) / s - 2 - 2/3 s^2) / s^4 over s^2, |s| <= 0.1716: s^4 .. s^0, error of
 * the log 2^-36.7; for f64 s^14 .. s^0, 2^-55 of a term below 2^-11 */
static const double tci_math_pow_c[] = {0x1.dfa302p-3, 0x1.24527ap-2, 0x1.999a00p-2};
static const double tci_math_pow_wide_c[] = {0x1.e039c40bcae8cp-4, 0x1.df7b9e38ce30ap-4,
                                             0x1.1118cdef6094bp-3, 0x1.3b1395b312ae4p-3,
                                             0x1.745d177ae7ca5p-3, 0x1.c71c71c6ea3a7p-3,
                                             0x1.2492492492523p-2, 0x1.999999999999ap-2};
/* (sinh(x) - x) / x^3 over x^2, |x| <= 1, relative error of sinh 2^-31.6 and 2^-63: x^6 .. x^0 and
 * x^14 .. x^0 */
static const double tci_math_sinh_c[] = {0x1.756ca6p-19, 0x1.a022bap-13, 0x1.1110ep-7,
                                         0x1.555556p-3};
static const double tci_math_sinh_wide_c[] = {0x1.d446ef19ee2d8p-48, 0x1.a65b21a15ea09p-41,
                                              0x1.613159333ed3ap-33, 0x1.ae6441159a1ccp-26,
                                              0x1.71de3a68d6c00p-19, 0x1.a01a01a007335p-13,
                                              0x1.111111111119bp-7,  0x1.5555555555555p-3};
/* (2 atanh(z) - 2 z) / z^3 over z^2, |z| <= 0.1716, error of the log 2^-59.5: z^12 .. z^0 */
static const double tci_math_log_wide_c[] = {0x1.2f0406edc4768p-3, 0x1.39a1e27490475p-3,
                                             0x1.74663d1dfb70bp-3, 0x1.c71c5213a92d4p-3,
                                             0x1.24924941e1e5cp-2, 0x1.999999997ff1p-2,
                                             0x1.5555555555592p-1};

/* ---- f64 constants: minimax fits (Remez, in 50 digits, then rounded), with their errors ---- */

/* (e^r - 1 - r) / r^2, 2^-58 */
static const double tci_math_exp_f64_c[] = {0x1.1f8b6cc288d1ap-29,
                                            0x1.af4e1aef0b2dap-26,
                                            0x1.27e4ccbac8897p-22,
                                            0x1.71de0219b8b01p-19,
                                            0x1.a01a01ad02b86p-16,
                                            0x1.a01a01abef8f3p-13,
                                            0x1.6c16c16c151e7p-10,
                                            0x1.11111111100cep-7,
                                            0x1.5555555555558p-5,
                                            0x1.5555555555557p-3,
                                            0.5};
/* R(s^2) of log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2))), s = f / (2 + f), 2^-58 of the log */
static const double tci_math_log_f64_c[] = {0x1.2b5fc0c21e681p-3, 0x1.39fdb9220a5a8p-3,
                                            0x1.7462ba2906aa5p-3, 0x1.c71c62d03b34dp-3,
                                            0x1.2492492e03e54p-2, 0x1.9999999995223p-2,
                                            0x1.5555555555558p-1};
/* (sin(r) - r) / r^3, and (cos(r) - 1 + r^2/2) / r^4, |r| <= pi/4 */
static const double tci_math_sin_f64_c[] = {0x1.5e0a62ed2b3p-33,   -0x1.ae60090c44cc4p-26,
                                            0x1.71de3794aecd1p-19, -0x1.a01a019e82435p-13,
                                            0x1.1111111110badp-7,  -0x1.5555555555555p-3};
static const double tci_math_cos_f64_c[] = {-0x1.907cea0cf7363p-37, 0x1.1eeb67ea7a35cp-29,
                                            -0x1.27e4fa16e89fap-22, 0x1.a01a019f4df8fp-16,
                                            -0x1.6c16c16c16964p-10, 0x1.5555555555555p-5};
/* (tanh(x) - x) / x^3 over x^2, |x| < 0.55, relative error of tanh 2^-56: x^20 .. x^0 */
static const double tci_math_tanh_f64_c[] = {
    -0x1.5a2a4b095d71ap-16, 0x1.652f1c7b19fbbp-14, -0x1.ec20a08978a7fp-13, 0x1.34c719563af8ap-11,
    -0x1.7d97f7c689403p-10, 0x1.d6d33be171b09p-9,  -0x1.226e32fe0fdf5p-7,  0x1.664f48776758bp-6,
    -0x1.ba1ba1b9ffc8bp-5,  0x1.111111111103cp-3,  -0x1.5555555555555p-2};
/* (1 + a) Phi(-a) e^(a^2/2) over t = (a - 4) / (a + 4), 2^-55, all but its constant term */
static const double tci_math_tail_f64_c[] = {
    -0x1.a53f19bf500f9p-31, -0x1.9a626f3e48c33p-30, 0x1.a95aa4e0389d2p-28,  0x1.2c06493301c98p-26,
    -0x1.55b3d1e833929p-26, -0x1.db742b7ea6187p-24, 0x1.a4b9ee6cb862fp-30,  0x1.2833c6127bf27p-21,
    0x1.b2350dd4bb5f4p-22,  -0x1.5ead54a0910afp-19, -0x1.cca7333e019e5p-19, 0x1.c93d6d33fde2dp-17,
    0x1.648428543ac15p-16,  -0x1.707b9fb5c35c4p-14, -0x1.8c11b4eb2c1b7p-14, 0x1.6c5382a4e895ap-11,
    -0x1.2b7f5de428ff6p-12, -0x1.47d5fc733b4eap-8,  0x1.25dd7205f8dbep-6,   -0x1.07c3c2582db4dp-5,
    0x1.d4969f10e03e2p-6,   0x1.cabd72a60fae6p-7,   -0x1.8c18f2086e34cp-4};
/* (erf(x) - x) / x over x^2, |x| < 0.84, 2^-56 */
static const double tci_math_erf_f64_c[] = {
    -0x1.e9b59b822fe78p-31, 0x1.e8760edbee426p-27, -0x1.5e248468c6b0bp-23, 0x1.b9cafbe17b1c9p-20,
    -0x1.f4d0d4900f012p-17, 0x1.f9a3188d414a2p-14, -0x1.c02db3a6927a3p-11, 0x1.565bcd0d086fbp-8,
    -0x1.b82ce3128244p-6,   0x1.ce2f21a042ae9p-4,  -0x1.812746b0379e6p-2,  0x1.06eba8214db69p-3};

/* ---- f32 recipes ---- */

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
static void tci_math_exp_f32(tci_math *m)
{
    int sum, x = tci_math_arg(m, 0);
    x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -176.0), x);
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 89.0), x);
    int p = tci_math_exp_rest(m, x, 2 * 127, &sum);
    tci_math_scale(m, p, tci_math_to_bits(m, sum));
}

/* The bits of exp for x <= 0, where 2^(n + 64) is a factor, and 2^-64 another: where the result is
 * not 0 the first product is exact, as there. The least n is -191, whose factor is 0. */
static void tci_math_expn_f32(tci_math *m)
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
static void tci_math_log_f32(tci_math *m)
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
static void tci_math_trig_f32(tci_math *m, bool cosine)
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
static void tci_math_tanh_f32(tci_math *m)
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
static void tci_math_sigmoid_f32(tci_math *m)
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
static void tci_math_erf_f32(tci_math *m)
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

/* The first steps of gelu's recipes. From a = |x| = 14.36 on a Phi(-a) is less than half of the
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
static void tci_math_gelu_f32(tci_math *m)
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
static void tci_math_geluh_f32(tci_math *m)
{
    tci_math_gelu g = tci_math_gelu_begin(m);
    int phi = tci_math_phi_f32(m, g.nu, g.e, g.a);
    tci_math_gelu_end(m, &g, tci_math_2(m, TCI_P_MUL, phi, g.a));
}

/* erfc a = e^-(a^2) G(t) / (a + 2) from a = 0.46875 on, 1 - erf a below that; 2 less it for -a. A
 * subnormal result is rounded once. */
static void tci_math_erfc_f32(tci_math *m)
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
static void tci_math_tan_f32(tci_math *m)
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

/* ---- recipes of both widths: the same steps, with longer polynomials for f64 ---- */

/* (e^r - 1 - r) / r^2, |r| <= 0.347 */
static int tci_math_exp_poly(tci_math *m, int r)
{
    return tci_math_is_wide(m)
               ? tci_math_poly(m, r, tci_math_exp_wide_c, TCI_COUNT(tci_math_exp_wide_c))
               : tci_math_poly(m, r, tci_math_exp_c, TCI_COUNT(tci_math_exp_c));
}

/* e^x = (1 + t) 2^n */
typedef struct tci_math_power {
    int n, t, quarter; /* n as a float, t, and 2^(n - 2) */
} tci_math_power;

static tci_math_power tci_math_power_of(tci_math *m, int x)
{
    tci_math_power p;
    int magic = tci_math_magic_of(m, tci_math_bias(m) - 2);
    int sum = tci_math_fma(m, x, tci_math_k_of(m, tci_math_log2e, 0x1.71547652b82fep+0), magic);
    p.n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int r = tci_math_fma(m, p.n, tci_math_k_of(m, -tci_math_ln2, -0x1.62e42fefa39efp-1), x);
    r = tci_math_fma(m, p.n, tci_math_k_of(m, -tci_math_ln2_rest, -0x1.abc9e3b39803fp-56), r);
    p.t = tci_math_fma(m, tci_math_exp_poly(m, r), tci_math_2(m, TCI_P_MUL, r, r), r);
    p.quarter = tci_math_exp2i(m, sum);
    return p;
}

/* e^x - 1 = 4 (t 2^(n-2) + (2^(n-2) - 1/4)), which overflows only where the result does; t where n
 * is 0. */
static int tci_math_expm1_quarter(tci_math *m, const tci_math_power *p)
{
    int rest = tci_math_2(m, TCI_P_SUB, p->quarter, tci_math_k(m, 0.25));
    return tci_math_fma(m, p->t, p->quarter, rest);
}

static void tci_math_expm1(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int near = tci_math_2(m, TCI_P_PMAX, tci_math_k_of(m, -18.0, -38.0), x);
    near = tci_math_2(m, TCI_P_PMIN, tci_math_k_of(m, 89.0, 710.0), near);
    tci_math_power p = tci_math_power_of(m, near);
    int y = tci_math_2(m, TCI_P_MUL, tci_math_expm1_quarter(m, &p), tci_math_k(m, 4.0));
    int small = tci_math_compare(m, TCI_P_EQ, p.n, tci_math_k(m, 0.0));
    tci_math_keep_zero(m, x, tci_math_select(m, small, p.t, y));
}

/* 2^x = 2^n e^((x - n) ln 2), scaled in two halves as in exp. */
static void tci_math_exp2(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    x = tci_math_2(m, TCI_P_PMAX, tci_math_k_of(m, -151.0, -1076.0), x);
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k_of(m, 129.0, 1025.0), x);
    int magic = tci_math_magic_of(m, 2 * tci_math_bias(m));
    int sum = tci_math_2(m, TCI_P_ADD, x, magic);
    int rest = tci_math_2(m, TCI_P_SUB, x, tci_math_2(m, TCI_P_SUB, sum, magic));
    int r = tci_math_2(m, TCI_P_MUL, rest, tci_math_k_of(m, tci_math_ln2, 0x1.62e42fefa39efp-1));
    int one = tci_math_k(m, 1.0);
    int p = tci_math_fma(m, tci_math_fma(m, tci_math_exp_poly(m, r), r, one), r, one);
    tci_math_scale(m, p, tci_math_to_bits(m, sum));
}

/* Below 1 x + x^3 P(x^2); else, with E = e^|x| - 1, (E + E / (E + 1)) / 2 in quarters of E. */
static void tci_math_sinh(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int a = tci_math_1(m, TCI_P_ABS, x);
    int near = tci_math_2(m, TCI_P_PMIN, tci_math_k_of(m, 89.5, 710.5), a);
    tci_math_power p = tci_math_power_of(m, near);
    int quarter = tci_math_expm1_quarter(m, &p);
    int whole = tci_math_fma(m, quarter, tci_math_k(m, 4.0), tci_math_k(m, 1.0));
    int y = tci_math_2(m, TCI_P_ADD, quarter, tci_math_2(m, TCI_P_DIV, quarter, whole));
    y = tci_math_2(m, TCI_P_MUL, y, tci_math_k(m, 2.0));
    int s = tci_math_2(m, TCI_P_MUL, a, a);
    int c = tci_math_is_wide(m)
                ? tci_math_poly(m, s, tci_math_sinh_wide_c, TCI_COUNT(tci_math_sinh_wide_c))
                : tci_math_poly(m, s, tci_math_sinh_c, TCI_COUNT(tci_math_sinh_c));
    int cubic = tci_math_fma(m, tci_math_2(m, TCI_P_MUL, a, s), c, a);
    int small = tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 1.0));
    tci_math_copy_sign(m, tci_math_select(m, small, cubic, y), x);
}

/* With S = e^|x| / 4: 2 (S + 1 / (16 S)). */
static void tci_math_cosh(tci_math *m)
{
    int a = tci_math_1(m, TCI_P_ABS, tci_math_arg(m, 0));
    a = tci_math_2(m, TCI_P_PMIN, tci_math_k_of(m, 89.5, 710.5), a);
    tci_math_power p = tci_math_power_of(m, a);
    int s = tci_math_fma(m, p.t, p.quarter, p.quarter);
    int back = tci_math_2(m, TCI_P_DIV, tci_math_k(m, 0.0625), s);
    tci_math_2(m, TCI_P_MUL, tci_math_2(m, TCI_P_ADD, s, back), tci_math_k(m, 2.0));
}

/* u = 2^k (1 + f), and log(1 + f) = f + s: as in log, for f64 through z = f / (2 + f). */
typedef struct tci_math_parts {
    int k, f, s; /* k as a float */
} tci_math_parts;

/* k and f of u. */
static tci_math_parts tci_math_split(tci_math *m, int u)
{
    tci_math_parts p = {0};
    bool wide = tci_math_is_wide(m);
    const int digits = tci_math_digits(m);
    const int64_t sqrt_half = wide ? INT64_C(0x3fe6a09e667f3bcd) : 0x3f3504f3;
    int tiny = tci_math_compare(m, TCI_P_LT, u, tci_math_k_of(m, 0x1p-126, 0x1p-1022));
    int scaled = tci_math_2(m, TCI_P_MUL, u, tci_math_k_of(m, 0x1p23, 0x1p52));
    int base = tci_math_select(m, tiny, tci_math_ki(m, sqrt_half + ((int64_t)digits << digits)),
                               tci_math_ki(m, sqrt_half));
    int bits = tci_math_to_bits(m, tci_math_select(m, tiny, scaled, u));
    int offset = tci_math_2(m, TCI_P_SUB, bits, base);
    int k = tci_math_2(m, TCI_P_SHR, offset, tci_math_ki(m, digits));
    int magic = tci_math_magic_of(m, 0);
    k = tci_math_2(m, TCI_P_ADD, k, tci_math_to_bits(m, magic));
    p.k = tci_math_2(m, TCI_P_SUB, tci_math_from_bits(m, k), magic);
    int mantissa = tci_math_2(m, TCI_P_AND, offset, tci_math_ki(m, ((int64_t)1 << digits) - 1));
    mantissa = tci_math_2(m, TCI_P_ADD, mantissa, tci_math_ki(m, sqrt_half));
    p.f = tci_math_2(m, TCI_P_SUB, tci_math_from_bits(m, mantissa), tci_math_k(m, 1.0));
    return p;
}

/* For f64, log(1 + f) = f - (half - tail), half = f^2 / 2; c: of R(z^2). */
static int tci_math_log_tail(tci_math *m, int f, const double *c, int n, int *half)
{
    int square = tci_math_2(m, TCI_P_MUL, f, f);
    int z = tci_math_2(m, TCI_P_ADD, tci_math_k(m, 2.0), f);
    z = tci_math_2(m, TCI_P_DIV, f, z);
    int zz = tci_math_2(m, TCI_P_MUL, z, z);
    int q = tci_math_poly(m, zz, c, n);
    *half = tci_math_2(m, TCI_P_MUL, tci_math_k(m, 0.5), square);
    return tci_math_2(m, TCI_P_MUL, z, tci_math_fma(m, q, zz, *half));
}

static tci_math_parts tci_math_parts_of(tci_math *m, int u)
{
    tci_math_parts p = tci_math_split(m, u);
    if (!tci_math_is_wide(m)) {
        int square = tci_math_2(m, TCI_P_MUL, p.f, p.f);
        int q = tci_math_poly(m, p.f, tci_math_log_c, TCI_COUNT(tci_math_log_c));
        p.s = tci_math_2(m, TCI_P_MUL, q, square);
        return p;
    }
    int half;
    int tail = tci_math_log_tail(m, p.f, tci_math_log_wide_c, TCI_COUNT(tci_math_log_wide_c),
                                 &half);
    p.s = tci_math_2(m, TCI_P_SUB, tail, half);
    return p;
}

/* log u, by its parts y, where u is a finite number above 0; as in C99 elsewhere. */
static int tci_math_log_edges(tci_math *m, int u, int y)
{
    int zero = tci_math_k(m, 0.0);
    int edge = tci_math_select(m, tci_math_compare(m, TCI_P_EQ, u, zero),
                               tci_math_k(m, -(double)INFINITY), tci_math_k(m, (double)NAN));
    y = tci_math_select(m, tci_math_compare(m, TCI_P_LE, u, zero), edge, y);
    int finite = tci_math_compare(m, TCI_P_LT, u, tci_math_k(m, (double)INFINITY));
    return tci_math_select(m, finite, y, u);
}

/* c log(1 + f) + k c', both constants in two parts. */
static void tci_math_log_of_base(tci_math *m, int c, int c_rest, int step, int step_rest)
{
    int u = tci_math_arg(m, 0);
    tci_math_parts p = tci_math_parts_of(m, u);
    int low = tci_math_2(m, TCI_P_MUL, p.k, step_rest);
    low = tci_math_fma(m, p.s, c, tci_math_fma(m, p.f, c_rest, low));
    int y = tci_math_fma(m, p.k, step, tci_math_fma(m, p.f, c, low));
    tci_math_log_edges(m, u, y);
}

static void tci_math_log2(tci_math *m)
{
    tci_math_log_of_base(m, tci_math_k_of(m, tci_math_log2e, 0x1.71547652b82fep+0),
                         tci_math_k_of(m, 0x1.4ae0cp-26, 0x1.777d0ffda0d24p-56), tci_math_k(m, 1.0),
                         tci_math_k(m, 0.0));
}

static void tci_math_log10(tci_math *m)
{
    tci_math_log_of_base(m, tci_math_k_of(m, 0x1.bcb7b2p-2, 0x1.bcb7b1526e50ep-2),
                         tci_math_k_of(m, -0x1.5b235ep-27, 0x1.95355baaafad3p-57),
                         tci_math_k_of(m, 0x1.344136p-2, 0x1.34413509f79ffp-2),
                         tci_math_k_of(m, -0x1.ec10cp-27, -0x1.9dc1da994fd21p-59));
}

/* log u + c / u, u + c = 1 + x exactly. */
static void tci_math_log1p(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int one = tci_math_k(m, 1.0);
    int u = tci_math_2(m, TCI_P_ADD, one, x);
    int of_x = tci_math_2(m, TCI_P_SUB, x, tci_math_2(m, TCI_P_SUB, u, one));
    int of_one = tci_math_2(m, TCI_P_SUB, one, tci_math_2(m, TCI_P_SUB, u, x));
    int c = tci_math_select(m, tci_math_compare(m, TCI_P_LT, one, x), of_one, of_x);
    tci_math_parts p = tci_math_parts_of(m, u);
    int low = tci_math_2(m, TCI_P_ADD, p.s, tci_math_2(m, TCI_P_DIV, c, u));
    low = tci_math_fma(m, p.k, tci_math_k_of(m, tci_math_ln2_rest, 0x1.abc9e3b39803fp-56), low);
    int y = tci_math_2(m, TCI_P_ADD, p.f, low);
    y = tci_math_fma(m, p.k, tci_math_k_of(m, tci_math_ln2, 0x1.62e42fefa39efp-1), y);
    tci_math_keep_zero(m, x, tci_math_log_edges(m, u, y));
}

/* sin(pi r) / (pi r) - 1 over s = r^2, |r| <= 1/2, error of the sine 2^-28.5, 2^-56.7: s^4 .. s^0
 * and s^8 .. s^0 */
static const double tci_math_sinc_c[] = {-0x1.2790f4p-9, 0x1.ac14e4p-6, -0x1.86a7f8p-3,
                                         0x1.9f9cb2p-1, -0x1.a51a66p+0};
static const double tci_math_sinc_wide_c[] = {-0x1.e8dd177821e5ap-28, 0x1.0fb1129c15c02p-22,
                                              -0x1.d42435d9931bcp-18, 0x1.374719861aaeep-13,
                                              -0x1.33816aa3bf072p-9,  0x1.ac6805cf340f3p-6,
                                              -0x1.86a8e4720db5bp-3,  0x1.9f9cb402bc46cp-1,
                                              -0x1.a51a6625307d3p+0};

TCI_FN int tci_math_half_turn(tci_math *m, int r)
{
    int s = tci_math_2(m, TCI_P_MUL, r, r);
    int p = tci_math_is_wide(m)
                ? tci_math_poly(m, s, tci_math_sinc_wide_c, TCI_COUNT(tci_math_sinc_wide_c))
                : tci_math_poly(m, s, tci_math_sinc_c, TCI_COUNT(tci_math_sinc_c));
    return tci_math_2(m, TCI_P_MUL, s, p);
}

/* sin(pi x) / (pi x): the angle less whole turns and folded to at most a quarter of one is f pi,
 * f exact, and pi is in the polynomial alone. */
static void tci_math_sinc(tci_math *m)
{
    int a = tci_math_1(m, TCI_P_ABS, tci_math_arg(m, 0)), half = tci_math_k(m, 0.5);
    int turns = tci_math_1(m, TCI_P_RINT, tci_math_2(m, TCI_P_MUL, a, half));
    int f = tci_math_fma(m, turns, tci_math_k(m, -2.0), a);
    int side = tci_math_copy_sign(m, tci_math_k(m, 1.0), f);
    int past = tci_math_compare(m, TCI_P_LT, half, tci_math_1(m, TCI_P_ABS, f));
    f = tci_math_select(m, past, tci_math_2(m, TCI_P_SUB, side, f), f);
    int y = tci_math_fma(m, tci_math_half_turn(m, f), f, f);
    int zero = tci_math_compare(m, TCI_P_EQ, a, tci_math_k(m, 0.0));
    tci_math_select(m, zero, tci_math_k(m, 1.0), tci_math_2(m, TCI_P_DIV, y, a));
}

/* e^r of hi + lo = n ln 2 + r, within 0.52 ulp; the low bits of *sum hold n + bias. */
static int tci_math_exp_rest_of(tci_math *m, int hi, int lo, int bias, int *sum)
{
    int magic = tci_math_magic_of(m, bias);
    *sum = tci_math_fma(m, hi, tci_math_k_of(m, tci_math_log2e, 0x1.71547652b82fep+0), magic);
    int n = tci_math_2(m, TCI_P_SUB, *sum, magic);
    int rh = tci_math_fma(m, n, tci_math_k_of(m, -tci_math_ln2, -0x1.62e42fefa38p-1), hi);
    int c = tci_math_fma(m, n, tci_math_k_of(m, -tci_math_ln2_rest, -0x1.ef35793c7673p-45), lo);
    int r = tci_math_2(m, TCI_P_ADD, rh, c);
    int rl = tci_math_2(m, TCI_P_SUB, c, tci_math_2(m, TCI_P_SUB, r, rh));
    int p = tci_math_is_wide(m)
                ? tci_math_poly(m, r, tci_math_exp_f64_c, TCI_COUNT(tci_math_exp_f64_c))
                : tci_math_poly(m, r, tci_math_exp_c, TCI_COUNT(tci_math_exp_c));
    int tail = tci_math_fma(m, tci_math_2(m, TCI_P_MUL, r, r), p, tci_math_fma(m, r, rl, rl));
    int one = tci_math_k(m, 1.0);
    int y = tci_math_2(m, TCI_P_ADD, one, r);
    int lost = tci_math_2(m, TCI_P_ADD, tci_math_2(m, TCI_P_SUB, one, y), r);
    return tci_math_2(m, TCI_P_ADD, y, tci_math_2(m, TCI_P_ADD, lost, tail));
}

/* e^(hi + lo) 2^k, rounded once (within 0.52 ulp), |k| <= 128: of f64 for hi in [-900, 720], of f32
 * in [-176, 89]. The scale goes in two halves: results below the normal range are rounded once. */
static int tci_math_exp_core(tci_math *m, int hi, int lo, int k)
{
    int sum, y = tci_math_exp_rest_of(m, hi, lo, 2 * tci_math_bias(m) + k, &sum);
    return tci_math_scale(m, y, tci_math_to_bits(m, sum));
}

/* log u, u finite and above 0, to 2^-36 or 2^-64 of it: u = 2^k (1 + f), s = f / (2 + f), log u =
 * k ln 2 + 2 s + s (2/3 s^2 + s^4 P(s^2)), all but P in two parts. */
static tci_math_pair tci_math_log_pair(tci_math *m, int u)
{
    bool wide = tci_math_is_wide(m);
    tci_math_parts of = tci_math_split(m, u);
    int two = tci_math_k(m, 2.0), d = tci_math_2(m, TCI_P_ADD, two, of.f);
    int d_rest = tci_math_2(m, TCI_P_SUB, of.f, tci_math_2(m, TCI_P_SUB, d, two));
    int back = tci_math_2(m, TCI_P_DIV, tci_math_k(m, 1.0), d);
    int s = tci_math_2(m, TCI_P_MUL, of.f, back), minus_s = tci_math_1(m, TCI_P_NEG, s);
    int off = tci_math_fma(m, minus_s, d_rest, tci_math_fma(m, minus_s, d, of.f));
    int s_rest = tci_math_2(m, TCI_P_MUL, off, back);
    tci_math_pair z = tci_math_product(m, s, s);
    int twice = tci_math_2(m, TCI_P_ADD, s, s);
    int z_rest = tci_math_fma(m, twice, s_rest, z.lo);
    int p = wide ? tci_math_poly(m, z.hi, tci_math_pow_wide_c, TCI_COUNT(tci_math_pow_wide_c))
                 : tci_math_poly(m, z.hi, tci_math_pow_c, TCI_COUNT(tci_math_pow_c));
    p = tci_math_fma(m, p, z.hi, tci_math_k_of(m, -0x1.555556p-26, 0x1.5555555555555p-55));
    int third = tci_math_k_of(m, 0x1.555556p-1, 0x1.5555555555555p-1); /* 2/3, the rest is in p */
    tci_math_pair w = tci_math_product(m, third, z.hi);
    int slope = tci_math_fma(m, p, two, third);
    int w_rest = tci_math_fma(m, slope, z_rest, tci_math_fma(m, p, z.hi, w.lo));
    tci_math_pair t = tci_math_product(m, s, w.hi);
    int t_rest = tci_math_fma(m, s_rest, w.hi, tci_math_fma(m, s, w_rest, t.lo));
    t_rest = tci_math_2(m, TCI_P_ADD, tci_math_2(m, TCI_P_ADD, s_rest, s_rest), t_rest);
    int ln2 = tci_math_2(m, TCI_P_MUL, of.k, tci_math_k_of(m, 0x1.62e4p-1, 0x1.62e42fefa38p-1));
    tci_math_pair first = tci_math_sum(m, ln2, twice), y = tci_math_sum(m, first.hi, t.hi);
    int low = tci_math_2(m, TCI_P_ADD, first.lo, y.lo);
    t_rest = tci_math_fma(m, of.k, tci_math_k_of(m, 0x1.7f7d1cp-20, 0x1.ef35793c7673p-45), t_rest);
    return tci_math_sum(m, y.hi, tci_math_2(m, TCI_P_ADD, low, t_rest));
}

/* |x|^y for x zero or infinite and y not 0, else `core`. */
static int tci_math_pow_edges(tci_math *m, int size, int y, int core)
{
    int zero = tci_math_k(m, 0.0), inf = tci_math_k(m, (double)INFINITY);
    int is_zero = tci_math_compare(m, TCI_P_EQ, size, zero);
    int edge = tci_math_2(m, TCI_P_OR, is_zero, tci_math_compare(m, TCI_P_EQ, size, inf));
    int up = tci_math_2(m, TCI_P_XOR, is_zero, tci_math_compare(m, TCI_P_LT, zero, y));
    return tci_math_select(m, edge, tci_math_select(m, up, inf, zero), core);
}

/* |x|^y = e^(y log|x|), negative where x is and y odd. Special cases as in C99 annex F. */
static void tci_math_pow(tci_math *m)
{
    int x = tci_math_arg(m, 0), y = tci_math_arg(m, 1);
    int zero = tci_math_k(m, 0.0), one = tci_math_k(m, 1.0);
    int size = tci_math_1(m, TCI_P_ABS, x);
    tci_math_pair log = tci_math_log_pair(m, size);
    int b = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -0x1p66), y);
    b = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 0x1p66), b);
    tci_math_pair e = tci_math_product(m, b, log.hi);
    int rest = tci_math_fma(m, b, log.lo, e.lo);
    int hi = tci_math_2(m, TCI_P_PMAX, tci_math_k_of(m, -176.0, -900.0), e.hi);
    hi = tci_math_2(m, TCI_P_PMIN, tci_math_k_of(m, 89.0, 720.0), hi);
    int inside = tci_math_compare(m, TCI_P_EQ, hi, e.hi);
    int r = tci_math_exp_core(m, hi, tci_math_select(m, inside, rest, zero), 0);
    r = tci_math_pow_edges(m, size, y, r);
    int half = tci_math_2(m, TCI_P_MUL, y, tci_math_k(m, 0.5));
    int whole = tci_math_compare(m, TCI_P_EQ, tci_math_1(m, TCI_P_TRUNC, y), y);
    int even = tci_math_compare(m, TCI_P_EQ, tci_math_1(m, TCI_P_TRUNC, half), half);
    int odd = tci_math_2(m, TCI_P_AND, whole, tci_math_1(m, TCI_P_NOT, even));
    r = tci_math_copy_sign(m, r, tci_math_select(m, odd, x, zero));
    int finite = tci_math_compare(m, TCI_P_LT, size, tci_math_k(m, (double)INFINITY));
    int none = tci_math_2(m, TCI_P_AND, finite, tci_math_compare(m, TCI_P_LT, x, zero));
    none = tci_math_2(m, TCI_P_AND, none, tci_math_1(m, TCI_P_NOT, whole));
    int known = tci_math_2(m, TCI_P_AND, tci_math_compare(m, TCI_P_EQ, x, x),
                           tci_math_compare(m, TCI_P_EQ, y, y));
    none = tci_math_2(m, TCI_P_OR, none, tci_math_1(m, TCI_P_NOT, known));
    r = tci_math_select(m, none, tci_math_k(m, (double)NAN), r);
    int is_one = tci_math_2(m, TCI_P_OR, tci_math_compare(m, TCI_P_EQ, x, one),
                            tci_math_compare(m, TCI_P_EQ, y, zero));
    tci_math_select(m, is_one, one, r);
}

/* By helpers in two parts: rare, where a sum with l cancels. */
static void tci_math_log_low(tci_math *m, bool base2)
{
    static const tci_helper_id ids[2][2] = {{TCI_H_LOG1PEXP_HI_F32, TCI_H_LOG1PEXP_HI_F64},
                                            {TCI_H_LOG1PEXP2_HI_F32, TCI_H_LOG1PEXP2_HI_F64}};
    int d = tci_math_arg(m, 0), l = tci_math_arg(m, 1), zero = tci_math_k(m, 0.0);
    tci_helper_id hi = ids[base2][tci_math_is_wide(m)], lo = (tci_helper_id)(hi + 1);
    int asked = tci_math_compare(m, TCI_P_LT, tci_math_k(m, 0x1p-100), l);
    int off = tci_math_2(m, TCI_P_SUB, tci_math_lane1(m, hi, d, asked), l);
    off = tci_math_2(m, TCI_P_ADD, off, tci_math_lane1(m, lo, d, asked));
    tci_math_select(m, asked, off, zero);
}

static void tci_math_copysign(tci_math *m)
{
    int x = tci_math_arg(m, 0), y = tci_math_arg(m, 1);
    tci_math_copy_sign(m, tci_math_1(m, TCI_P_ABS, x), y);
}

/* ---- f64 recipes ---- */

static void tci_math_exp_f64(tci_math *m)
{
    int x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -900.0), tci_math_arg(m, 0));
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 720.0), x);
    tci_math_exp_core(m, x, tci_math_k(m, 0.0), 0);
}

/* As of f32; the least n is -1535. */
static void tci_math_expn_f64(tci_math *m)
{
    int sum, x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -1064.0), tci_math_arg(m, 0));
    int y = tci_math_exp_rest_of(m, x, tci_math_k(m, 0.0), tci_math_bias(m) + 512, &sum);
    y = tci_math_2(m, TCI_P_MUL, y, tci_math_exp2i(m, sum));
    tci_math_2(m, TCI_P_MUL, y, tci_math_k(m, 0x1p-512));
}

TCI_FN int tci_math_log_f32_of(tci_math *m, int x)
{
    tci_math_parts p = tci_math_parts_of(m, x);
    int low = tci_math_fma(m, p.k, tci_math_k(m, tci_math_ln2_rest), p.s);
    int y = tci_math_2(m, TCI_P_ADD, p.f, low);
    return tci_math_fma(m, p.k, tci_math_k(m, tci_math_ln2), y);
}

TCI_FN int tci_math_log_of(tci_math *m, int x, int *lost)
{
    int half;
    tci_math_parts p = tci_math_split(m, x);
    int tail = tci_math_log_tail(m, p.f, tci_math_log_f64_c, TCI_COUNT(tci_math_log_f64_c), &half);
    int low = tci_math_fma(m, p.k, tci_math_k(m, 0x1.ef35793c7673p-45), tail);
    int less = tci_math_2(m, TCI_P_SUB, half, low), step = tci_math_k(m, 0x1.62e42fefa38p-1);
    int near = tci_math_2(m, TCI_P_SUB, p.f, less), y = tci_math_fma(m, p.k, step, near);
    if (lost) {
        *lost = tci_math_fma(m, p.k, step, tci_math_1(m, TCI_P_NEG, y));
        *lost = tci_math_2(m, TCI_P_ADD, *lost, near);
        near = tci_math_2(m, TCI_P_SUB, tci_math_2(m, TCI_P_SUB, p.f, near), less);
        *lost = tci_math_2(m, TCI_P_ADD, *lost, near);
    }
    return y;
}

static void tci_math_log_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    tci_math_log_edges(m, x, tci_math_log_of(m, x, NULL));
}

/* x - n pi/2 = r + rl, pi/2 in three parts; n in the low bits. */
typedef struct tci_math_turn {
    int x, size, bits, r, rl;
} tci_math_turn;

static tci_math_turn tci_math_turn_of(tci_math *m)
{
    tci_math_turn t = {.x = tci_math_arg(m, 0)};
    t.size = tci_math_1(m, TCI_P_ABS, t.x);
    int magic = tci_math_magic_of(m, 0), high = tci_math_k(m, 0x1.921fb54442d18p+0);
    int past = tci_math_compare(m, TCI_P_LT, tci_math_k(m, 0x1.921fb54442d18p-1), t.size);
    int sum = tci_math_fma(m, t.x, tci_math_k(m, 0x1.45f306dc9c883p-1), magic);
    sum = tci_math_select(m, past, sum, magic);
    t.bits = tci_math_to_bits(m, sum);
    int n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int rest = tci_math_fma(m, tci_math_1(m, TCI_P_NEG, n), high, t.x);
    int low = tci_math_k(m, 0x1.1a62633145c06p-54);
    int ph = tci_math_2(m, TCI_P_MUL, n, low);
    int pl = tci_math_fma(m, n, low, tci_math_1(m, TCI_P_NEG, ph));
    int rh = tci_math_2(m, TCI_P_SUB, rest, ph);
    int back = tci_math_2(m, TCI_P_SUB, rh, rest);
    int c = tci_math_2(m, TCI_P_SUB, rest, tci_math_2(m, TCI_P_SUB, rh, back));
    c = tci_math_2(m, TCI_P_SUB, c, tci_math_2(m, TCI_P_ADD, ph, back));
    c = tci_math_2(m, TCI_P_SUB, c, pl);
    int last = tci_math_2(m, TCI_P_MUL, n, tci_math_k(m, 0x1.c1cd129024e08p-107));
    c = tci_math_2(m, TCI_P_SUB, c, last);
    t.r = tci_math_2(m, TCI_P_ADD, rh, c);
    t.rl = tci_math_2(m, TCI_P_SUB, c, tci_math_2(m, TCI_P_SUB, t.r, rh));
    return t;
}

/* Horner's rule, products and sums rounded apart. */
static int tci_math_poly_apart(tci_math *m, int x, const double *c, int n)
{
    int y = tci_math_k(m, c[0]);
    for (int i = 1; i < n; i++) {
        y = tci_math_2(m, TCI_P_ADD, tci_math_k(m, c[i]), tci_math_2(m, TCI_P_MUL, x, y));
    }
    return y;
}

/* a + b, |a| >= |b|; lost, if not NULL: what rounding took. */
static int tci_math_sum_of(tci_math *m, int a, int b, int *lost)
{
    if (!lost) {
        return tci_math_2(m, TCI_P_ADD, a, b);
    }
    tci_math_pair sum = tci_math_sum(m, a, b);
    *lost = sum.lo;
    return sum.hi;
}

/* sin(r + rl) and cos(r + rl); lost, if not NULL: what the last rounding took. */
static int tci_math_sin_near(tci_math *m, const tci_math_turn *t, int z, int *lost)
{
    int p = tci_math_poly_apart(m, z, tci_math_sin_f64_c, TCI_COUNT(tci_math_sin_f64_c));
    int low = tci_math_2(m, TCI_P_MUL, tci_math_k(m, -0.5), z);
    low = tci_math_fma(m, low, t->rl, t->rl);
    low = tci_math_fma(m, tci_math_2(m, TCI_P_MUL, t->r, z), p, low);
    return tci_math_sum_of(m, t->r, low, lost);
}

static int tci_math_cos_near(tci_math *m, const tci_math_turn *t, int z, int *lost)
{
    int one = tci_math_k(m, 1.0);
    int p = tci_math_poly_apart(m, z, tci_math_cos_f64_c, TCI_COUNT(tci_math_cos_f64_c));
    int half = tci_math_2(m, TCI_P_MUL, tci_math_k(m, 0.5), z);
    int w = tci_math_2(m, TCI_P_SUB, one, half);
    int rest = tci_math_2(m, TCI_P_SUB, tci_math_2(m, TCI_P_SUB, one, w), half);
    int minus = tci_math_1(m, TCI_P_NEG, tci_math_2(m, TCI_P_MUL, t->r, t->rl));
    int low = tci_math_fma(m, tci_math_2(m, TCI_P_MUL, z, z), p, minus);
    return tci_math_sum_of(m, w, tci_math_2(m, TCI_P_ADD, rest, low), lost);
}

static int tci_math_has_bit(tci_math *m, int bits, int64_t bit)
{
    int only = tci_math_2(m, TCI_P_AND, bits, tci_math_ki(m, bit));
    return tci_math_compare(m, TCI_P_EQ, only, tci_math_ki(m, bit));
}

/* y, `tiny` where x is so small, and what the helper says where it is large. */
static void tci_math_turn_edges(tci_math *m, const tci_math_turn *t, int tiny, int y,
                                tci_helper_id id)
{
    int small = tci_math_compare(m, TCI_P_LT, t->size, tci_math_k(m, 0x1p-27));
    y = tci_math_select(m, small, tiny, y);
    int big = tci_math_compare(m, TCI_P_LT, tci_math_k(m, 0x1p28), t->size);
    tci_math_select(m, big, tci_math_lane1(m, id, t->x, big), y);
}

static void tci_math_trig_f64(tci_math *m, bool cosine)
{
    tci_math_turn t = tci_math_turn_of(m);
    int z = tci_math_2(m, TCI_P_MUL, t.r, t.r);
    int sine = tci_math_sin_near(m, &t, z, NULL), other = tci_math_cos_near(m, &t, z, NULL);
    int quarters = cosine ? tci_math_2(m, TCI_P_ADD, t.bits, tci_math_ki(m, 1)) : t.bits;
    int y = tci_math_select(m, tci_math_has_bit(m, quarters, 1), other, sine);
    int back = tci_math_has_bit(m, quarters, 2);
    y = tci_math_select(m, back, tci_math_1(m, TCI_P_NEG, y), y);
    tci_math_turn_edges(m, &t, cosine ? tci_math_k(m, 1.0) : t.x, y,
                        cosine ? TCI_H_COS_F64 : TCI_H_SIN_F64);
}

static void tci_math_tan_f64(tci_math *m)
{
    tci_math_turn t = tci_math_turn_of(m);
    int z = tci_math_2(m, TCI_P_MUL, t.r, t.r);
    int sine_rest, other_rest, sine = tci_math_sin_near(m, &t, z, &sine_rest);
    int other = tci_math_cos_near(m, &t, z, &other_rest);
    int odd = tci_math_has_bit(m, t.bits, 1);
    int top = tci_math_select(m, odd, other, sine);
    int top_rest = tci_math_select(m, odd, other_rest, sine_rest);
    int bottom = tci_math_select(m, odd, sine, other);
    int bottom_rest = tci_math_select(m, odd, sine_rest, other_rest);
    int back = tci_math_2(m, TCI_P_DIV, tci_math_k(m, 1.0), bottom);
    int y = tci_math_2(m, TCI_P_MUL, top, back), minus = tci_math_1(m, TCI_P_NEG, y);
    int off = tci_math_fma(m, minus, bottom_rest, top_rest);
    off = tci_math_2(m, TCI_P_ADD, off, tci_math_fma(m, minus, bottom, top));
    y = tci_math_fma(m, off, back, y);
    y = tci_math_select(m, odd, tci_math_1(m, TCI_P_NEG, y), y);
    tci_math_turn_edges(m, &t, t.x, y, TCI_H_TAN_F64);
}

/* Below 0.55 x + x^3 P(x^2); else 1 - 2 / (e^2|x| + 1). */
static void tci_math_tanh_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0), one = tci_math_k(m, 1.0);
    int a = tci_math_1(m, TCI_P_ABS, x), z = tci_math_2(m, TCI_P_MUL, x, x);
    int p = tci_math_poly(m, z, tci_math_tanh_f64_c, TCI_COUNT(tci_math_tanh_f64_c));
    int small = tci_math_fma(m, tci_math_2(m, TCI_P_MUL, x, z), p, x);
    int twice = tci_math_2(m, TCI_P_MUL, tci_math_k(m, 2.0), a);
    twice = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 720.0), twice);
    int e = tci_math_exp_core(m, twice, tci_math_k(m, 0.0), 0);
    e = tci_math_2(m, TCI_P_DIV, tci_math_k(m, 2.0), tci_math_2(m, TCI_P_ADD, e, one));
    int large = tci_math_copy_sign(m, tci_math_2(m, TCI_P_SUB, one, e), x);
    int is_small = tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 0.55));
    tci_math_keep_zero(m, x, tci_math_select(m, is_small, small, large));
}

/* With e = e^-|x|: 1 / (1 + e), or e / (1 + e) for x < 0; the roundings of 1 + e and of the
 * division are taken out. */
static void tci_math_sigmoid_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0), one = tci_math_k(m, 1.0);
    int minus = tci_math_1(m, TCI_P_NEG, tci_math_1(m, TCI_P_ABS, x));
    minus = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -900.0), minus);
    int e = tci_math_exp_core(m, minus, tci_math_k(m, 0.0), 0);
    int below = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0.0));
    int top = tci_math_select(m, below, e, one);
    int d = tci_math_2(m, TCI_P_ADD, one, e);
    int y = tci_math_2(m, TCI_P_DIV, top, d);
    int lost = tci_math_2(m, TCI_P_SUB, e, tci_math_2(m, TCI_P_SUB, d, one));
    lost = tci_math_2(m, TCI_P_MUL, y, lost);
    int rest = tci_math_fma(m, tci_math_1(m, TCI_P_NEG, y), d, top);
    rest = tci_math_2(m, TCI_P_DIV, tci_math_2(m, TCI_P_SUB, rest, lost), d);
    tci_math_2(m, TCI_P_ADD, y, rest);
}

/* factor * Phi(-(a + off)) * 2^128, a >= 0, Phi the normal distribution, where (a + off)^2 / 2 is
 * hi + lo exactly, at most 900. The polynomial knows a, and the derivative puts off back; its
 * constant term and the division are done in two parts. */
static int tci_math_tail_f64(tci_math *m, int a, int off, int factor, int hi, int lo)
{
    int one = tci_math_k(m, 1.0), four = tci_math_k(m, 4.0);
    int q0 = tci_math_k(m, 0x1.e361ea6fba141p-2);
    a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 39.0), a);
    int t = tci_math_2(m, TCI_P_DIV, tci_math_2(m, TCI_P_SUB, a, four),
                       tci_math_2(m, TCI_P_ADD, a, four));
    int p = tci_math_poly(m, t, tci_math_tail_f64_c, TCI_COUNT(tci_math_tail_f64_c));
    int top = tci_math_2(m, TCI_P_MUL, t, p);
    int qh = tci_math_2(m, TCI_P_ADD, q0, top);
    int ql = tci_math_2(m, TCI_P_SUB, top, tci_math_2(m, TCI_P_SUB, qh, q0));
    int rest = tci_math_fma(m, t, p, tci_math_1(m, TCI_P_NEG, top));
    ql = tci_math_2(m, TCI_P_ADD, ql, rest);
    int d = tci_math_2(m, TCI_P_ADD, one, a);
    int above = tci_math_2(m, TCI_P_SUB, one, tci_math_2(m, TCI_P_SUB, d, a));
    int below = tci_math_2(m, TCI_P_SUB, a, tci_math_2(m, TCI_P_SUB, d, one));
    int dl = tci_math_select(m, tci_math_compare(m, TCI_P_LT, one, a), above, below);
    int y = tci_math_2(m, TCI_P_DIV, qh, d);
    int yl = tci_math_fma(m, tci_math_1(m, TCI_P_NEG, y), d, qh);
    dl = tci_math_2(m, TCI_P_SUB, ql, tci_math_2(m, TCI_P_MUL, y, dl));
    yl = tci_math_2(m, TCI_P_DIV, tci_math_2(m, TCI_P_ADD, yl, dl), d);
    int slope = tci_math_2(m, TCI_P_MUL, a, y);
    slope = tci_math_2(m, TCI_P_SUB, slope, tci_math_k(m, 0.39894228040143268));
    yl = tci_math_2(m, TCI_P_ADD, yl, tci_math_2(m, TCI_P_MUL, off, slope));
    int uh = tci_math_2(m, TCI_P_MUL, y, factor);
    int ul = tci_math_fma(m, y, factor, tci_math_1(m, TCI_P_NEG, uh));
    ul = tci_math_2(m, TCI_P_ADD, ul, tci_math_2(m, TCI_P_MUL, yl, factor));
    int e = tci_math_exp_core(m, tci_math_1(m, TCI_P_NEG, hi), tci_math_1(m, TCI_P_NEG, lo), 128);
    return tci_math_fma(m, e, uh, tci_math_2(m, TCI_P_MUL, e, ul));
}

/* Phi(-a sqrt 2) * 2^128 */
static int tci_math_half_erfc_f64(tci_math *m, int a)
{
    int s = tci_math_2(m, TCI_P_MUL, a, a);
    int lo = tci_math_fma(m, a, a, tci_math_1(m, TCI_P_NEG, s));
    int wide = tci_math_2(m, TCI_P_MUL, a, tci_math_k(m, 0x1.6a09e667f3bcdp+0));
    int off = tci_math_fma(m, a, tci_math_k(m, 0x1.6a09e667f3bcdp+0),
                           tci_math_1(m, TCI_P_NEG, wide));
    int root = tci_math_2(m, TCI_P_MUL, a, tci_math_k(m, -0x1.bdd3413b26456p-54));
    off = tci_math_2(m, TCI_P_ADD, off, root);
    return tci_math_tail_f64(m, wide, off, tci_math_k(m, 1.0), s, lo);
}

/* x + x P(x^2) */
static int tci_math_erf_near(tci_math *m, int x)
{
    int z = tci_math_2(m, TCI_P_MUL, x, x);
    int p = tci_math_poly(m, z, tci_math_erf_f64_c, TCI_COUNT(tci_math_erf_f64_c));
    return tci_math_fma(m, x, p, x);
}

/* From 30 on the tail is negligible compared with 1. */
static void tci_math_erf_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 30.0), tci_math_1(m, TCI_P_ABS, x));
    int near = tci_math_erf_near(m, x), tail = tci_math_half_erfc_f64(m, a);
    int far = tci_math_fma(m, tail, tci_math_k(m, -0x1p-127), tci_math_k(m, 1.0));
    int is_near = tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 0.84));
    tci_math_select(m, is_near, near, tci_math_copy_sign(m, far, x));
}

static void tci_math_erfc_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0), half = tci_math_k(m, 0x1p-127);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 28.0), tci_math_1(m, TCI_P_ABS, x));
    int near = tci_math_2(m, TCI_P_SUB, tci_math_k(m, 1.0), tci_math_erf_near(m, x));
    int tail = tci_math_half_erfc_f64(m, a);
    int minus = tci_math_fma(m, tail, tci_math_k(m, -0x1p-127), tci_math_k(m, 2.0));
    int below = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0.0));
    int far = tci_math_select(m, below, minus, tci_math_2(m, TCI_P_MUL, tail, half));
    int is_near = tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 0.5));
    tci_math_select(m, is_near, near, far);
}

/* max(x, 0) - |x| Phi(-|x|) */
static void tci_math_gelu_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0), half = tci_math_k(m, 0.5);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 39.0), tci_math_1(m, TCI_P_ABS, x));
    int s = tci_math_2(m, TCI_P_MUL, a, a);
    int lo = tci_math_fma(m, a, a, tci_math_1(m, TCI_P_NEG, s));
    int y = tci_math_tail_f64(m, a, tci_math_k(m, 0.0), a, tci_math_2(m, TCI_P_MUL, half, s),
                              tci_math_2(m, TCI_P_MUL, half, lo));
    int relu = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, 0.0), x);
    tci_math_fma(m, y, tci_math_k(m, -0x1p-128), relu);
}

/* ---- the table ---- */

static void tci_math_build_recipe(tci_math *m, tci_prim p)
{
    bool wide = tci_math_is_wide(m);
    switch (p) {
    case TCI_P_EXP: wide ? tci_math_exp_f64(m) : tci_math_exp_f32(m); break;
    case TCI_P_EXPN: wide ? tci_math_expn_f64(m) : tci_math_expn_f32(m); break;
    case TCI_P_LOG: wide ? tci_math_log_f64(m) : tci_math_log_f32(m); break;
    case TCI_P_SIN: wide ? tci_math_trig_f64(m, false) : tci_math_trig_f32(m, false); break;
    case TCI_P_COS: wide ? tci_math_trig_f64(m, true) : tci_math_trig_f32(m, true); break;
    case TCI_P_TANH: wide ? tci_math_tanh_f64(m) : tci_math_tanh_f32(m); break;
    case TCI_P_ERF: wide ? tci_math_erf_f64(m) : tci_math_erf_f32(m); break;
    case TCI_P_SIGMOID: wide ? tci_math_sigmoid_f64(m) : tci_math_sigmoid_f32(m); break;
    case TCI_P_GELU: wide ? tci_math_gelu_f64(m) : tci_math_gelu_f32(m); break;
    case TCI_P_GELUH: wide ? tci_math_gelu_f64(m) : tci_math_geluh_f32(m); break;
    case TCI_P_POW: tci_math_pow(m); break;
    case TCI_P_TAN: wide ? tci_math_tan_f64(m) : tci_math_tan_f32(m); break;
    case TCI_P_ERFC: wide ? tci_math_erfc_f64(m) : tci_math_erfc_f32(m); break;
    case TCI_P_ERFINV: tci_math_erfinv(m); break;
    case TCI_P_LGAMMA: tci_math_lgamma(m); break;
    case TCI_P_DIGAMMA: tci_math_digamma(m); break;
    case TCI_P_TRIGAMMA: tci_math_trigamma(m); break;
    case TCI_P_EXPM1: tci_math_expm1(m); break;
    case TCI_P_EXP2: tci_math_exp2(m); break;
    case TCI_P_SINH: tci_math_sinh(m); break;
    case TCI_P_COSH: tci_math_cosh(m); break;
    case TCI_P_LOG1P: tci_math_log1p(m); break;
    case TCI_P_LOG2: tci_math_log2(m); break;
    case TCI_P_LOG10: tci_math_log10(m); break;
    case TCI_P_ATAN2: tci_math_atan2(m); break;
    case TCI_P_ASIN: tci_math_asin(m); break;
    case TCI_P_ACOS: tci_math_acos(m); break;
    case TCI_P_COPYSIGN: tci_math_copysign(m); break;
    case TCI_P_SINC: tci_math_sinc(m); break;
    case TCI_P_LOG_LOW: tci_math_log_low(m, false); break;
    case TCI_P_LOG2_LOW:
        tci_math_log_low(m, true);
        break;
        TCI_BASE_PRIMS(TCI_PRIM_CASE)
    case TCI_P_COUNT: break; /* no recipe */
    }
}

static void tci_math_build(void)
{
    tci_step_inst *next = tci_math_insts;
    for (int row = 0; row < TCI_P_COUNT - TCI_P_BASE_COUNT; row++) {
        for (int wide = 0; wide < 2; wide++) {
            tci_math m = {.insts = next,
                          .t = wide ? TC_F64 : TC_F32,
                          .bits = wide ? TC_I64 : TC_I32};
            tci_math_build_recipe(&m, (tci_prim)(TCI_P_BASE_COUNT + row));
            tci_math_recipes[row][wide].insts = m.insts;
            tci_math_recipes[row][wide].n = m.n;
            next += m.n;
        }
    }
}

TCI_FN const tci_recipe *tci_math_recipe(tci_prim p, tc_dtype t)
{
    pthread_once(&tci_math_once, tci_math_build);
    return &tci_math_recipes[p - TCI_P_BASE_COUNT][t == TC_F64];
}
