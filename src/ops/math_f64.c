/* ops/math_f64.c - expansions of math functions (exp, log, sin, erf, ...) in f64 into scalar
 * primitives, and expansions that serve f32 and f64.
 *
 * In: the expansion being built. Out: its instructions, the last one the result (ops/math.c states
 * the conventions). Design: expansions of both widths take longer polynomials for f64; the other
 * f64 functions compute in double-double arithmetic. Each list of coefficients states interval and
 * error. */
#include <math.h>

#include "math_constants.h"
#include "math_expansion.h"

/* ---- f64 constants of expansions of both widths ---- */

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

/* ---- expansions of both widths: the same steps, with longer polynomials for f64 ---- */

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

TCI_FN void tci_math_expm1(tci_math *m)
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
TCI_FN void tci_math_exp2(tci_math *m)
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
TCI_FN void tci_math_sinh(tci_math *m)
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
TCI_FN void tci_math_cosh(tci_math *m)
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

TCI_FN void tci_math_log2(tci_math *m)
{
    tci_math_log_of_base(m, tci_math_k_of(m, tci_math_log2e, 0x1.71547652b82fep+0),
                         tci_math_k_of(m, 0x1.4ae0cp-26, 0x1.777d0ffda0d24p-56), tci_math_k(m, 1.0),
                         tci_math_k(m, 0.0));
}

TCI_FN void tci_math_log10(tci_math *m)
{
    tci_math_log_of_base(m, tci_math_k_of(m, 0x1.bcb7b2p-2, 0x1.bcb7b1526e50ep-2),
                         tci_math_k_of(m, -0x1.5b235ep-27, 0x1.95355baaafad3p-57),
                         tci_math_k_of(m, 0x1.344136p-2, 0x1.34413509f79ffp-2),
                         tci_math_k_of(m, -0x1.ec10cp-27, -0x1.9dc1da994fd21p-59));
}

/* log u + c / u, u + c = 1 + x exactly. */
TCI_FN void tci_math_log1p(tci_math *m)
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
TCI_FN void tci_math_sinc(tci_math *m)
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
TCI_FN void tci_math_pow(tci_math *m)
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
TCI_FN void tci_math_log_low(tci_math *m, bool base2)
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

TCI_FN void tci_math_copysign(tci_math *m)
{
    int x = tci_math_arg(m, 0), y = tci_math_arg(m, 1);
    tci_math_copy_sign(m, tci_math_1(m, TCI_P_ABS, x), y);
}

/* ---- f64 expansions ---- */

TCI_FN void tci_math_exp_f64(tci_math *m)
{
    int x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -900.0), tci_math_arg(m, 0));
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 720.0), x);
    tci_math_exp_core(m, x, tci_math_k(m, 0.0), 0);
}

/* As of f32; the least n is -1535. */
TCI_FN void tci_math_expn_f64(tci_math *m)
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

TCI_FN void tci_math_log_f64(tci_math *m)
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

TCI_FN void tci_math_trig_f64(tci_math *m, bool cosine)
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

TCI_FN void tci_math_tan_f64(tci_math *m)
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
TCI_FN void tci_math_tanh_f64(tci_math *m)
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
TCI_FN void tci_math_sigmoid_f64(tci_math *m)
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
TCI_FN void tci_math_erf_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 30.0), tci_math_1(m, TCI_P_ABS, x));
    int near = tci_math_erf_near(m, x), tail = tci_math_half_erfc_f64(m, a);
    int far = tci_math_fma(m, tail, tci_math_k(m, -0x1p-127), tci_math_k(m, 1.0));
    int is_near = tci_math_compare(m, TCI_P_LT, a, tci_math_k(m, 0.84));
    tci_math_select(m, is_near, near, tci_math_copy_sign(m, far, x));
}

TCI_FN void tci_math_erfc_f64(tci_math *m)
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
TCI_FN void tci_math_gelu_f64(tci_math *m)
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
