/* ops/math.c - the recipes of the MATH prims.
 *
 * In: a MATH prim and f32 or f64. Out: a straight-line program over BASE prims, the same for the
 * block interpreter, the scalar evaluator and every dialect, so all give the same bits.
 * The one idea: f32 functions are range reduction + a polynomial in explicit FMAs + exact scaling
 * through the exponent field, without branches; what is rare (a huge angle) is a LANE1 helper under
 * a mask. f64 functions and POW are helpers altogether (ops/helpers.c).
 * Conventions: clamps put the constant first, because PMAX(c, x) and PMIN(c, x) give x when x is
 * NaN.
 * "Magic" rounding adds 1.5 * 2^23, which leaves the nearest integer in the low bits of the sum; a
 * bias for the exponent field can ride along. -0 stays -0 wherever the function is odd.
 * Coefficients: minimax fits (iteratively reweighted least squares on Chebyshev nodes, coefficients
 * rounded to f32 one after the other, the rest refitted each time); each list states interval and
 * error.
 * Invariant: a recipe has at most TCI_RECIPE_MAX instructions and its last one is the result. */
#include <math.h>
#include <pthread.h>

#include "math.h"

typedef struct tci_math {
    tci_step_inst *insts;
    int n;
    tc_dtype t;      /* f32 or f64 */
    tc_dtype bits;   /* the signed integer of the same width */
} tci_math;

static tci_step_inst tci_math_insts[TCI_P_COUNT - TCI_P_BASE_COUNT][2][TCI_RECIPE_MAX];
static tci_recipe tci_math_recipes[TCI_P_COUNT - TCI_P_BASE_COUNT][2];
static pthread_once_t tci_math_once = PTHREAD_ONCE_INIT;

/* ---- building blocks: each appends one instruction and returns its index ---- */

static int tci_math_add_inst(tci_math *m, tci_step_inst inst)
{
    m->insts[m->n] = inst;
    return m->n++;
}

static int tci_math_arg(tci_math *m, int which)
{
    tci_step_inst inst = {.kind = TCI_RECIPE_ARG, .dtype = (int8_t)m->t, .imm = (int16_t)which};
    return tci_math_add_inst(m, inst);
}

static int tci_math_const(tci_math *m, tc_dtype t, tci_value v)
{
    for (int i = 0; i < m->n; i++) {
        const tci_step_inst *old = &m->insts[i];
        if (old->kind == TCI_RECIPE_CONST && old->dtype == t && old->value.u == v.u) {
            return i;
        }
    }
    tci_step_inst inst = {.kind = TCI_RECIPE_CONST, .dtype = (int8_t)t, .value = v};
    return tci_math_add_inst(m, inst);
}

static int tci_math_k(tci_math *m, double x)
{
    tci_value v = {.f = x};
    return tci_math_const(m, m->t, v);
}

static int tci_math_ki(tci_math *m, int64_t x)
{
    tci_value v = {.i = x};
    return tci_math_const(m, m->bits, v);
}

static int tci_math_prim(tci_math *m, tci_prim p, tc_dtype t, int n, int a, int b, int c)
{
    tci_step_inst inst = {.kind = TCI_RECIPE_PRIM,
                          .prim = (uint8_t)p,
                          .dtype = (int8_t)t,
                          .n_args = (uint8_t)n,
                          .args = {(int16_t)a, (int16_t)b, (int16_t)c}};
    return tci_math_add_inst(m, inst);
}

static int tci_math_1(tci_math *m, tci_prim p, int a)
{
    return tci_math_prim(m, p, (tc_dtype)m->insts[a].dtype, 1, a, 0, 0);
}

static int tci_math_2(tci_math *m, tci_prim p, int a, int b)
{
    return tci_math_prim(m, p, (tc_dtype)m->insts[a].dtype, 2, a, b, 0);
}

static int tci_math_fma(tci_math *m, int a, int b, int c)
{
    return tci_math_prim(m, TCI_P_FMA, m->t, 3, a, b, c);
}

static int tci_math_compare(tci_math *m, tci_prim p, int a, int b)
{
    return tci_math_prim(m, p, TC_BOOL, 2, a, b, 0);
}

static int tci_math_select(tci_math *m, int mask, int a, int b)
{
    return tci_math_prim(m, TCI_P_SELECT, (tc_dtype)m->insts[a].dtype, 3, mask, a, b);
}

static int tci_math_to_bits(tci_math *m, int a)
{
    return tci_math_prim(m, TCI_P_BITS, m->bits, 1, a, 0, 0);
}

static int tci_math_from_bits(tci_math *m, int a)
{
    return tci_math_prim(m, TCI_P_BITS, m->t, 1, a, 0, 0);
}

/* Horner's rule by FMA: c[0] x^(n-1) + ... + c[n-1]. */
static int tci_math_poly(tci_math *m, int x, const double *c, int n)
{
    int y = tci_math_k(m, c[0]);
    for (int i = 1; i < n; i++) {
        y = tci_math_fma(m, y, x, tci_math_k(m, c[i]));
    }
    return y;
}

static int tci_math_lane1(tci_math *m, tci_helper_id id, int a, int b, int mask)
{
    bool two = tci_helper_get(id)->arity == 2;
    int call = tci_math_prim(m, TCI_P_LANE1, m->t, two ? 3 : 2, a, two ? b : mask, mask);
    m->insts[call].imm = (int16_t)id;
    return call;
}

/* 2^n as a float, from the sum `shifted` whose low bits hold n + 127. */
static int tci_math_exp2i(tci_math *m, int shifted)
{
    int field = tci_math_2(m, TCI_P_SHL, tci_math_to_bits(m, shifted), tci_math_ki(m, 23));
    return tci_math_from_bits(m, field);
}

/* The sign bit of x put on a result that is >= 0. */
static int tci_math_copy_sign(tci_math *m, int y, int x)
{
    int sign = tci_math_2(m, TCI_P_AND, tci_math_to_bits(m, x), tci_math_ki(m, INT32_MIN));
    return tci_math_from_bits(m, tci_math_2(m, TCI_P_OR, tci_math_to_bits(m, y), sign));
}

/* ---- f32 constants ---- */

static const double tci_math_magic = 12582912.0; /* 1.5 * 2^23 */
static const double tci_math_log2e = 0x1.715476p+0;
static const double tci_math_ln2 = 0x1.62e43p-1;       /* ln 2 - 1.9e-9 */
static const double tci_math_ln2_rest = -0x1.05c61p-29;

/* e^r on |r| <= 0.347 without the leading 1 + r, relative error 2^-28.2: coefficients of r^6 ..
 * r^2 */
static const double tci_math_exp_c[] = {0x1.6a4508p-10, 0x1.1239aap-7, 0x1.5558b8p-5,
                                        0x1.555492p-3, 0x1.fffffcp-2};
/* The same for relative error of e^r - 1 (2^-26.1), then moved by a random search over rounded
 * coefficients until the worst tanh over all floats was 2.47 ulp. */
static const double tci_math_expm1_c[] = {0x1.5e0db2p-10, 0x1.11f1dap-7, 0x1.55619p-5,
                                          0x1.5554d8p-3, 0x1.fffffcp-2};
/* log(1 + f) - f over f^2, f in [sqrt(1/2) - 1, sqrt(2) - 1], error of the log 2^-27.8: f^8 ..
 * f^0 */
static const double tci_math_log_c[] = {-0x1.39c1f4p-4, 0x1.08ceeep-3, -0x1.0f277cp-3,
                                        0x1.225a62p-3,  -0x1.542652p-3, 0x1.99a52cp-3,
                                        -0x1.000434p-2, 0x1.55554ep-2, -0x1.fffff8p-2};
/* sin(r) / r - 1 over s = r^2, |r| <= pi/2 * 1.0001: s^3 .. s^0. A minimax fit (2^-27) moved by a
 * random search over rounded coefficients that ran all floats: 1.72 ulp, and no result above 1. */
static const double tci_math_sin_c[] = {0x1.5e16d6p-19, -0x1.9f7ceap-13, 0x1.110f4ap-7,
                                        -0x1.55555p-3};
/* pi in three parts, each cut (not rounded) to 24 bits, negated */
static const double tci_math_minus_pi[] = {-0x1.921fb4p+1, -0x1.4442dp-23, -0x1.846988p-47};
/* Beyond this the three parts no longer keep the relative accuracy next to multiples of pi. */
static const double tci_math_trig_bound = 131072.0;
/* 2^r on |r| <= 0.5, relative error 2^-28.3: r^6 .. 1 */
static const double tci_math_exp2_c[] = {0x1.417284p-13, 0x1.5f0976p-10, 0x1.3b2ddap-7,
                                         0x1.c6af7ap-5,  0x1.ebfbdcp-3,  0x1.62e43p-1, 1.0};
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

/* ---- f32 recipes ---- */

/* e^x = 2^n e^r. The scale is applied as 2^(n/2) twice: both factors are normal for every n in
 * [-150, 128], the first product is exact, so subnormal results are rounded once and 2^128
 * overflows to infinity. The bias 254 = 2 * 127 rides on the magic sum. */
static void tci_math_exp_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -104.0), x);
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 89.0), x);
    int magic = tci_math_k(m, tci_math_magic + 254.0);
    int sum = tci_math_fma(m, x, tci_math_k(m, tci_math_log2e), magic);
    int n = tci_math_2(m, TCI_P_SUB, sum, magic);
    int r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2), x);
    r = tci_math_fma(m, n, tci_math_k(m, -tci_math_ln2_rest), r);
    int p = tci_math_poly(m, r, tci_math_exp_c, TCI_COUNT(tci_math_exp_c));
    p = tci_math_fma(m, p, r, tci_math_k(m, 1.0));
    p = tci_math_fma(m, p, r, tci_math_k(m, 1.0));
    int bits = tci_math_to_bits(m, sum);
    int half = tci_math_2(m, TCI_P_SHR, bits, tci_math_ki(m, 1));
    int rest = tci_math_2(m, TCI_P_SUB, bits, half);
    int low = tci_math_2(m, TCI_P_SHL, half, tci_math_ki(m, 23));
    int high = tci_math_2(m, TCI_P_SHL, rest, tci_math_ki(m, 23));
    p = tci_math_2(m, TCI_P_MUL, p, tci_math_from_bits(m, low));
    tci_math_2(m, TCI_P_MUL, p, tci_math_from_bits(m, high));
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
    tci_math_select(m, edge, tci_math_lane1(m, TCI_H_LOG_EDGE_F32, x, 0, edge), y);
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
    int slow = tci_math_lane1(m, cosine ? TCI_H_COS_SLOW_F32 : TCI_H_SIN_SLOW_F32, x, 0, big);
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
    int p = tci_math_poly(m, r, tci_math_expm1_c, TCI_COUNT(tci_math_expm1_c));
    p = tci_math_fma(m, p, tci_math_2(m, TCI_P_MUL, r, r), r);
    int scale = tci_math_exp2i(m, sum);
    int less = tci_math_2(m, TCI_P_SUB, scale, tci_math_k(m, 1.0));
    int e = tci_math_fma(m, p, scale, less);
    int y = tci_math_2(m, TCI_P_DIV, e, tci_math_2(m, TCI_P_ADD, e, tci_math_k(m, 2.0)));
    tci_math_copy_sign(m, y, x);
}

/* With E = e^-|x|: E / (1 + E) for x < 0, else 1 / (1 + E). E is scaled by 2^(n + 64) and then by
 * 2^-64, so that a subnormal E is rounded once. The polynomial runs in -r, hence the signs. */
static void tci_math_sigmoid_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int one = tci_math_k(m, 1.0);
    int t = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 104.0), tci_math_1(m, TCI_P_ABS, x));
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
    e = tci_math_2(m, TCI_P_MUL, e, tci_math_k(m, 0x1p-64));
    int negative = tci_math_compare(m, TCI_P_LT, x, tci_math_k(m, 0.0));
    int top = tci_math_select(m, negative, e, one);
    tci_math_2(m, TCI_P_DIV, top, tci_math_2(m, TCI_P_ADD, one, e));
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

/* gelu(x) = max(x, 0) - a Phi(-a), a = |x|: no cancellation on the negative side. Phi(-a) =
 * e^(-a^2/2) N(a)/D(a); a^2 is carried as nu + e (exactly) into the exponent, which keeps the tail
 * to a few ulp. All is scaled by 2^64 until the last FMA, so that a subnormal result is rounded
 * once. */
static void tci_math_gelu_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    int a = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 14.5), tci_math_1(m, TCI_P_ABS, x));
    int minus_a = tci_math_1(m, TCI_P_NEG, a);
    int nu = tci_math_2(m, TCI_P_MUL, a, minus_a);
    int e = tci_math_fma(m, a, a, nu); /* a^2 + nu, exact */
    int magic = tci_math_k(m, tci_math_magic + 127.0 + 64.0);
    int half_log2e = tci_math_k(m, 0x1.715476p-1);
    int sum = tci_math_fma(m, nu, half_log2e, magic);
    int r = tci_math_fma(m, nu, half_log2e, tci_math_2(m, TCI_P_SUB, magic, sum));
    r = tci_math_fma(m, nu, tci_math_k(m, 0x1.4ae0cp-27), r);
    r = tci_math_fma(m, e, tci_math_k(m, -0x1.715476p-1), r);
    int p = tci_math_poly(m, r, tci_math_exp2_c, TCI_COUNT(tci_math_exp2_c));
    p = tci_math_2(m, TCI_P_MUL, p, tci_math_exp2i(m, sum));
    int top = tci_math_poly(m, a, tci_math_mills_n, TCI_COUNT(tci_math_mills_n));
    int bottom = tci_math_poly(m, a, tci_math_mills_d, TCI_COUNT(tci_math_mills_d));
    int phi = tci_math_2(m, TCI_P_DIV, tci_math_2(m, TCI_P_MUL, p, top), bottom);
    int relu = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, 0.0), x);
    tci_math_fma(m, tci_math_2(m, TCI_P_MUL, phi, minus_a), tci_math_k(m, 0x1p-64), relu);
}

/* A helper for every lane. */
static void tci_math_whole(tci_math *m, tci_helper_id id)
{
    tci_value yes = {.i = 1};
    int a = tci_math_arg(m, 0);
    int b = tci_helper_get(id)->arity == 2 ? tci_math_arg(m, 1) : 0;
    tci_math_lane1(m, id, a, b, tci_math_const(m, TC_BOOL, yes));
}

/* ---- the table ---- */

static void tci_math_build_f32(tci_math *m, tci_prim p)
{
    switch (p) {
    case TCI_P_EXP:
        tci_math_exp_f32(m);
        break;
    case TCI_P_LOG:
        tci_math_log_f32(m);
        break;
    case TCI_P_SIN:
        tci_math_trig_f32(m, false);
        break;
    case TCI_P_COS:
        tci_math_trig_f32(m, true);
        break;
    case TCI_P_TANH:
        tci_math_tanh_f32(m);
        break;
    case TCI_P_ERF:
        tci_math_erf_f32(m);
        break;
    case TCI_P_SIGMOID:
        tci_math_sigmoid_f32(m);
        break;
    case TCI_P_GELU:
        tci_math_gelu_f32(m);
        break;
    case TCI_P_POW:
        tci_math_whole(m, TCI_H_POW_F32);
        break;
    TCI_BASE_PRIMS(TCI_PRIM_CASE)
    case TCI_P_COUNT: break; /* no recipe */
    }
}

#define TCI_MATH_ROW(id, name, arity, result, cost) TCI_H_##id##_F64,
static const tci_helper_id tci_math_f64_helper[] = {TCI_MATH_PRIMS(TCI_MATH_ROW)};
#undef TCI_MATH_ROW

static void tci_math_build(void)
{
    for (int row = 0; row < TCI_P_COUNT - TCI_P_BASE_COUNT; row++) {
        for (int wide = 0; wide < 2; wide++) {
            tci_math m = {.insts = tci_math_insts[row][wide],
                          .t = wide ? TC_F64 : TC_F32,
                          .bits = wide ? TC_I64 : TC_I32};
            if (wide) {
                tci_math_whole(&m, tci_math_f64_helper[row]);
            } else {
                tci_math_build_f32(&m, (tci_prim)(TCI_P_BASE_COUNT + row));
            }
            tci_math_recipes[row][wide].insts = m.insts;
            tci_math_recipes[row][wide].n = m.n;
        }
    }
}

TCI_FN const tci_recipe *tci_math_recipe(tci_prim p, tc_dtype t)
{
    pthread_once(&tci_math_once, tci_math_build);
    return &tci_math_recipes[p - TCI_P_BASE_COUNT][t == TC_F64];
}
