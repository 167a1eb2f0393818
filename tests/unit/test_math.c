/* Element types, the scalar value of every prim, and the accuracy of the math recipes. The
 * references are libm in long double, never tc's own rows. */
#include "inside.h"

#include "tc_test.h"

#include <fenv.h>
#include <float.h>

static tci_value tct_f(double x)
{
    tci_value v = {.f = x};
    return v;
}

static tci_value tct_i(int64_t x)
{
    tci_value v = {.i = x};
    return v;
}

static float tct_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static double tct_f64_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* A prim on floats (f32 or f64) with at most two operands. */
static double tct_eval(tci_prim p, tc_dtype t, double a, double b)
{
    tci_value args[3] = {tct_f(a), tct_f(b), tct_f(0)};
    return tci_prim_eval(p, t, t, 0, args).f;
}

/* A prim on integers of dtype t; the result as it is carried. */
static int64_t tct_eval_int(tci_prim p, tc_dtype t, int64_t a, int64_t b)
{
    tci_value args[3] = {tct_i(a), tct_i(b), tct_i(0)};
    return tci_prim_eval(p, t, t, 0, args).i;
}

/* ---- accuracy ---- */

static long double tct_sigmoid(long double x)
{
    long double e = expl(-fabsl(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* x Phi(x) = x erfc(-x / sqrt 2) / 2; the rounding of the product is taken out by the derivative,
 * as erfc multiplies it by x^2 in the tail. */
static long double tct_gelu(long double x)
{
    const long double c = 0.707106781186547524400844362104849039L;
    const long double c_rest = 0x1p-1L - c * c; /* = c * (c' - c) * 2, c' the exact root */
    long double z = -x * c;
    long double error = fmal(-x, c, -z) - x * (c_rest / (2 * c));
    long double tail = erfcl(z) - 1.128379167095512573896158903121545172L * expl(-z * z) * error;
    return isinf(x) ? (x > 0 ? x : -0.0L) : x * 0.5L * tail;
}

/* The angle less whole turns, folded to where the sine is accurate. */
static long double tct_sinc(long double x)
{
    const long double pi = acosl(-1), r = remainderl(x, 2);
    return x == 0 ? 1 : sinl(pi * (r > 0.5L ? 1 - r : r < -0.5L ? -1 - r : r)) / (pi * x);
}

/* Bounds in units in the last place of the result, over all arguments, subnormal results
 * included. */
typedef struct tct_row {
    tci_prim prim;
    long double (*wide)(long double);
    double ulp_f32, ulp_f64;
} tct_row;
static const tct_row tct_rows[] = {
    {TCI_P_EXP, expl, 1.0, 1.0},
    {TCI_P_LOG, logl, 1.0, 1.0},
    {TCI_P_SIN, sinl, 2.0, 1.0},
    {TCI_P_COS, cosl, 2.0, 1.0},
    {TCI_P_TANH, tanhl, 2.5, 1.5},
    {TCI_P_ERF, erfl, 1.6, 1.5},
    {TCI_P_SIGMOID, tct_sigmoid, 2.5, 1.5},
    {TCI_P_GELU, tct_gelu, 1.4, 2.0},
    {TCI_P_GELUH, tct_gelu, 6.5, 2.0},
    {TCI_P_TAN, tanl, 1.5, 1.5},
    {TCI_P_ASIN, asinl, 2.0, 2.0},
    {TCI_P_ACOS, acosl, 1.5, 1.5},
    {TCI_P_ERFC, erfcl, 2.1, 2.0},
    {TCI_P_SINC, tct_sinc, 2.0, 2.1}, /* f64: 2.016 at 0x1.4fe1b8477139p+3 */
    {TCI_P_EXPM1, expm1l, 1.5, 1.8},
    {TCI_P_EXP2, exp2l, 0.9, 1.1},
    {TCI_P_SINH, sinhl, 2.0, 2.0},
    {TCI_P_COSH, coshl, 1.6, 1.6},
    {TCI_P_LOG1P, log1pl, 1.0, 1.0},
    {TCI_P_LOG2, log2l, 1.0, 1.0},
    {TCI_P_LOG10, log10l, 1.0, 1.0},
};

/* |got - want| in ulp of want rounded to the type; infinity when one is NaN, infinite or of the
 * wrong sign and the other is not (but a result next to overflow may round either way). */
static double tct_ulps(tc_dtype t, double got, long double want)
{
    int digits = t == TC_F32 ? 24 : 53;
    int lowest = t == TC_F32 ? -149 : -1074;
    long double limit = ldexpl(1, t == TC_F32 ? 128 : 1024);
    if (isnan(got) || isnan(want)) {
        return isnan(got) && isnan(want) ? 0 : (double)INFINITY;
    }
    long double a = isinf(got) ? copysignl(limit, got) : got;
    long double b = fabsl(want) > limit ? copysignl(limit, want) : want;
    if (signbit(a) != signbit(b) && b != 0) {
        return a == 0 && fabsl(b) < ldexpl(1, lowest - 1) ? 0.5 : (double)INFINITY;
    }
    int exponent;
    frexpl(b, &exponent);
    exponent = b == 0 || exponent - digits < lowest ? lowest : exponent - digits;
    return (double)(fabsl(a - b) / ldexpl(1, exponent));
}

typedef struct tct_worst {
    double ulps, at, got;
} tct_worst;

static void tct_judge(tct_worst *w, const tct_row *row, tc_dtype t, double x)
{
    double got = tct_eval(row->prim, t, x, 0);
    long double want = row->wide(x);
    double ulps = tct_ulps(t, got, want);
    if (ulps > w->ulps) {
        w->ulps = ulps;
        w->at = x;
        w->got = got;
    }
}

static const double tct_specials[] = {0.0,
                                      -0.0,
                                      1.0,
                                      -1.0,
                                      0.5,
                                      0.9,
                                      -0.9,
                                      0x1p-24,
                                      0x1p-126,
                                      0x1p-127,
                                      0x1p-149,
                                      -0x1p-149,
                                      4.0,
                                      -4.0,
                                      14.4,
                                      -14.3,
                                      16.0,
                                      88.72283,
                                      88.72284,
                                      -87.33655,
                                      -103.97,
                                      -104.0,
                                      104.0,
                                      131072.0,
                                      131073.0,
                                      0x1.921fb6p+0,
                                      0x1.921fb6p+1,
                                      0x1.921fb6p+20,
                                      0x1.fffffep+127,
                                      -0x1.fffffep+127,
                                      0x1.6ac5b2p+82,
                                      -175.9,
                                      -176.0,
                                      -177.0,
                                      -1e9,
                                      132.4,
                                      132.5,
                                      -132.6,
                                      1e9,
                                      -16.26,
                                      -16.27,
                                      -16.3,
                                      11.5,
                                      11.51,
                                      -11.6};

TEST(f32_functions_within_their_ulp_bounds)
{
    for (int r = 0; r < TCI_COUNT(tct_rows); r++) {
        const tct_row *row = &tct_rows[r];
        tct_worst w = {-1, 0, 0};
        uint32_t step = tct_soak ? 997 : 26513;
        for (uint64_t bits = 0; bits < 0x100000000u; bits += step) {
            tct_judge(&w, row, TC_F32, tct_f32_of_bits((uint32_t)bits));
        }
        for (int i = 0; i < 30000; i++) { /* and densely where the functions do something */
            tct_judge(&w, row, TC_F32, (float)((tct_random_unit() - 0.5) * 40));
        }
        for (int i = 0; i < TCI_COUNT(tct_specials); i++) {
            tct_judge(&w, row, TC_F32, (float)tct_specials[i]);
        }
        CHECK_MSG(w.ulps <= row->ulp_f32, "%s(%a) = %a is %.3f ulp off, bound %.2f",
                  tci_prim_get(row->prim)->name, w.at, w.got, w.ulps, row->ulp_f32);
    }
}

TEST(f64_functions_within_their_ulp_bounds)
{
    if (LDBL_MANT_DIG < 64) {
        SKIP("long double is no wider than double here");
    }
    for (int r = 0; r < TCI_COUNT(tct_rows); r++) {
        const tct_row *row = &tct_rows[r];
        tct_worst w = {-1, 0, 0};
        int n = tct_soak ? 1000000 : 60000;
        for (int i = 0; i < n; i++) {
            tct_judge(&w, row, TC_F64, tct_f64_of_bits(tct_random()));
            tct_judge(&w, row, TC_F64, (tct_random_unit() - 0.5) * 6);
            tct_judge(&w, row, TC_F64, (tct_random_unit() - 0.5) * 80);
            tct_judge(&w, row, TC_F64, (tct_random_unit() - 0.5) * 1500);
        }
        for (int i = 0; i < TCI_COUNT(tct_specials); i++) {
            tct_judge(&w, row, TC_F64, tct_specials[i]);
        }
        for (int i = 0; i < 64; i++) { /* next to multiples of pi/2, and huge */
            tct_judge(&w, row, TC_F64, (double)(1.5707963267948966192313L * ldexpl(1, i)));
        }
        /* the double closest to a multiple of pi/2 */
        tct_judge(&w, row, TC_F64, 0x1.6ac5b262ca1ffp+849);
        tct_judge(&w, row, TC_F64, DBL_MAX);
        CHECK_MSG(w.ulps <= row->ulp_f64, "%s(%a) = %a is %.3f ulp off, bound %.2f",
                  tci_prim_get(row->prim)->name, w.at, w.got, w.ulps, row->ulp_f64);
    }
}

TEST(atan2_within_one_ulp_or_so)
{
    tct_worst w32 = {-1, 0, 0}, w64 = {-1, 0, 0};
    for (int i = 0; i < 200000; i++) {
        int spread = i % 4 == 0 ? 250 : i % 4 == 1 ? 10 : 2;
        double y = ldexp(1 + tct_random_unit(), tct_random_below(spread) - spread / 2);
        double x = ldexp(1 + tct_random_unit(), tct_random_below(spread) - spread / 2);
        y = (float)(i & 8 ? -y : y);
        x = (float)(i & 16 ? -x : x);
        double ulps = tct_ulps(TC_F32, tct_eval(TCI_P_ATAN2, TC_F32, y, x), atan2l(y, x));
        w32 = ulps > w32.ulps ? (tct_worst){ulps, y, x} : w32;
        y = i % 3 ? y * (1 + tct_random_unit()) : ldexp(y, i % 800 - 400);
        ulps = tct_ulps(TC_F64, tct_eval(TCI_P_ATAN2, TC_F64, y, x), atan2l(y, x));
        w64 = ulps > w64.ulps ? (tct_worst){ulps, y, x} : w64;
    }
    CHECK_MSG(w32.ulps <= 2.0, "f32 atan2(%a, %a): %.3f ulp", w32.at, w32.got, w32.ulps);
    if (LDBL_MANT_DIG >= 64) {
        CHECK_MSG(w64.ulps <= 2.0, "f64 atan2(%a, %a): %.3f ulp", w64.at, w64.got, w64.ulps);
    }
}

/* Annex F of C99: libm's answer, to its rounding, on every pair of special values. */
TEST(atan2_special_cases_are_those_of_c99)
{
    static const double values[] = {0.0,
                                    -0.0,
                                    1.0,
                                    -1.0,
                                    0x1p-149,
                                    -0x1p-149,
                                    0x1p-127,
                                    3e38,
                                    -3e38,
                                    (double)INFINITY,
                                    -(double)INFINITY,
                                    (double)NAN};
    for (int i = 0; i < TCI_COUNT(values); i++) {
        for (int j = 0; j < TCI_COUNT(values); j++) {
            double y = (float)values[i], x = (float)values[j];
            for (tc_dtype t = TC_F32; t <= TC_F64; t = (tc_dtype)(t + 1)) {
                double got = tct_eval(TCI_P_ATAN2, t, y, x);
                CHECK_MSG(tct_ulps(t, got, atan2l(y, x)) <= 1 &&
                              (isnan(got) || signbit(got) == signbit(atan2(y, x))),
                          "atan2(%a, %a) = %a", y, x, got);
            }
        }
    }
}

/* The recurrence far up, then the leading terms; the parts of what cancels below 0 are left out. */
static long double tct_psi(int order, long double x)
{
    long double v = 0;
    for (; x < 3000; x++) {
        v += order ? 1 / (x * x) : -1 / x;
    }
    const long double w = 1 / (x * x);
    return order ? v + 1 / x + w / 2 + w / x / 6 - w * w / x / 30
                 : v + logl(x) - 1 / (2 * x) - w / 12 + w * w / 120;
}

static long double tct_digamma(long double x)
{
    return tct_psi(0, x);
}
static long double tct_trigamma(long double x)
{
    const long double pi = acosl(-1), s = sinl(pi * remainderl(x, 1)) / pi;
    return x < 0 ? 1 / (s * s) - tct_psi(1, 1 - x) : tct_psi(1, x);
}

/* Newton's step from the f64 value, which squares its error. */
static long double tct_erfinv(long double x)
{
    const long double a = fabsl(x), y = fabs(tct_eval(TCI_P_ERFINV, TC_F64, (double)x, 0));
    long double off = a < 0.5L ? a - erfl(y) : erfcl(y) - (1 - a);
    return copysignl(y + off * sqrtl(acosl(-1)) / 2 * expl(y * y), x);
}

TEST(erfinv_within_two_ulp)
{
    const tct_row row = {TCI_P_ERFINV, tct_erfinv, 1.4, 1.7};
    tct_worst w32 = {-1, 0, 0}, w64 = {-1, 0, 0};
    for (int i = 0; i < (tct_soak ? 1000000 : 60000); i++) {
        double x = i % 3 ? tct_random_unit() : 1 - ldexp(1 + tct_random_unit(), -1 - i % 53);
        x = i % 5 == 0 ? ldexp(x, -i % 700) : x;
        tct_judge(&w64, &row, TC_F64, i % 2 ? x : -x);
        if (fabs((double)(float)x) < 1) {
            tct_judge(&w32, &row, TC_F32, (float)x);
        }
    }
    CHECK_MSG(w32.ulps <= row.ulp_f32, "f32 erfinv(%a): %.3f ulp", w32.at, w32.ulps);
    CHECK_MSG(w64.ulps <= row.ulp_f64 || LDBL_MANT_DIG < 64, "f64 erfinv(%a): %.3f ulp", w64.at,
              w64.ulps);
}

/* Above 0, trigamma on both sides of it; next to the root of digamma a sum of 3000 terms in long
 * double knows no more than f32 has. */
TEST(gamma_functions_within_two_ulp)
{
    static const tct_row rows[] = {{TCI_P_LGAMMA, lgammal, 0.6, 2.0},
                                   {TCI_P_DIGAMMA, tct_digamma, 0.6, 1.7},
                                   {TCI_P_TRIGAMMA, tct_trigamma, 0.6, 2.0}};
    if (LDBL_MANT_DIG < 64) {
        SKIP("long double is no wider than double here");
    }
    for (int r = 0; r < TCI_COUNT(rows); r++) {
        tct_worst w32 = {-1, 0, 0}, w64 = {-1, 0, 0};
        for (int i = 0; i < (tct_soak ? 100000 : 5000); i++) {
            double x = tct_random_unit() * (i % 3 ? i % 2 ? 3 : 20 : 100) + 0x1p-60;
            if (rows[r].prim != TCI_P_DIGAMMA || fabs(x - 1.4616321449683623) > 0.4) {
                tct_judge(&w64, &rows[r], TC_F64, x);
                tct_judge(&w32, &rows[r], TC_F32, (float)x);
            }
            tct_judge(&w32, &rows[r], TC_F32, (float)(1.46 + tct_random_unit() * 0.01));
            if (rows[r].prim == TCI_P_TRIGAMMA) {
                tct_judge(&w64, &rows[r], TC_F64, -tct_random_unit() * 20);
                tct_judge(&w32, &rows[r], TC_F32, (float)(-tct_random_unit() * 20));
            }
        }
        CHECK_MSG(w32.ulps <= rows[r].ulp_f32 && w64.ulps <= rows[r].ulp_f64,
                  "%s: f32 at %a %.3f ulp, f64 at %a %.3f ulp", tci_prim_get(rows[r].prim)->name,
                  w32.at, w32.ulps, w64.at, w64.ulps);
    }
}

/* Values next to the root and of small arguments, to 25 digits. */
TEST(gamma_functions_at_points)
{
    static const struct {
        tci_prim p;
        double at, want;
    } rows[] = {{TCI_P_DIGAMMA, 0x1.762d86356be3fp+0, -0x1.aa2d9b3ce29e0p-54},
                {TCI_P_DIGAMMA, 0x1.762d86356be40p+0, 0x1.1a5beef0723bbp-53},
                {TCI_P_DIGAMMA, 0x1.762b6ae7d566dp+0, -0x1.04f02a764ee0ap-15},
                {TCI_P_DIGAMMA, 0x1.7851eb851eb85p+0, 0x1.08529d3fa9583p-7},
                {TCI_P_DIGAMMA, 0x1.87e92154ef7acp-665, -0x1.4e718d7d7625ap+664},
                {TCI_P_DIGAMMA, -0x1.87e92154ef7acp-665, 0x1.4e718d7d7625ap+664},
                {TCI_P_TRIGAMMA, 0x1.eb851eb851eb8p-2, 0x1.52af2f54d2a06p+2},
                {TCI_P_TRIGAMMA, -0x1p-2, 0x1.28ab89fe51e18p+4},
                {TCI_P_LGAMMA, -0x1.87e92154ef7acp-665, 0x1.cc845b54b54f2p+8},
                {TCI_P_LGAMMA, 0x1.56e1fc2f8f359p-997, 0x1.5963447f87fb5p+9},
                {TCI_P_LGAMMA, 0x1.8000000000000p-1, 0x1.a051c372609eep-3},
                {TCI_P_LGAMMA, 0x1.000001ad7f29bp+0, -0x1.efd30c8e518b9p-25},
                {TCI_P_LGAMMA, 0x1.fffffe5280d65p+0, -0x1.6b2b405fa85a3p-25}};
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        const double got = tct_eval(rows[i].p, TC_F64, rows[i].at, 0);
        CHECK_MSG(tct_ulps(TC_F64, got, rows[i].want) <= 2.5, "%s(%a) = %a, not %a",
                  tci_prim_get(rows[i].p)->name, rows[i].at, got, rows[i].want);
    }
}

TEST(pow_within_one_ulp)
{
    tct_worst w32 = {-1, 0, 0};
    tct_worst w64 = {-1, 0, 0};
    for (int i = 0; i < 100000; i++) {
        double x = ldexp(1 + tct_random_unit(), tct_random_below(280) - 150);
        double y = (tct_random_unit() - 0.5) * (i % 2 ? 4 : 200);
        float x32 = (float)x;
        float y32 = i % 3 ? (float)y : (float)nearbyint(y);
        x32 = i % 5 ? x32 : (float)(1 + (tct_random_unit() - 0.5) * 1e-3);
        y32 = i % 5 ? y32 : y32 * 1000;
        x32 = i % 3 || i % 2 ? x32 : -x32;
        double got = tct_eval(TCI_P_POW, TC_F32, x32, y32);
        double ulps = tct_ulps(TC_F32, got, powl(x32, y32));
        w32 = ulps > w32.ulps ? (tct_worst){ulps, x32, y32} : w32;
        x = i % 5 ? ldexp(x, i % 7 ? 0 : tct_random_below(800) - 400) : (double)x32;
        y = i % 5 ? y : y * 1e5;
        got = tct_eval(TCI_P_POW, TC_F64, x, y);
        ulps = LDBL_MANT_DIG < 64 ? 0 : tct_ulps(TC_F64, got, powl(x, y));
        w64 = ulps > w64.ulps ? (tct_worst){ulps, x, y} : w64;
    }
    CHECK_MSG(w32.ulps <= 0.8, "f32 pow(%a, %a): %.3f ulp", w32.at, w32.got, w32.ulps);
    CHECK_MSG(w64.ulps <= 0.8, "f64 pow(%a, %a): %.3f ulp", w64.at, w64.got, w64.ulps);
}

static bool tct_same(double a, double b) /* NaN equals NaN, zeros with their sign */
{
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b) : a == b && signbit(a) == signbit(b);
}

/* x to the b by the recipe of b alone. */
static double tct_power(tc_dtype t, double x, double b)
{
    tci_step_inst insts[TCI_POWER_MAX];
    tci_recipe r = tci_power_recipe(insts, t, b);
    tci_value arg = tct_f(x);
    CHECK_MSG(r.n > 0 && r.n <= TCI_POWER_MAX, "pow(x, %g) takes %d", b, r.n);
    return tci_recipe_eval(&r, &arg).f;
}

/* Whole powers of whole numbers, roots of squares. */
TEST(pow_is_exact_where_the_result_is_a_float)
{
    int seen = 0;
    for (int x = -300; x <= 300; x++) {
        for (int y = -12; y <= 12; y++) {
            double want = pow(x, y);
            bool narrow = (double)(float)want == want && (x & (x - 1) || y > 0);
            if (fabs(want) < 9e15 && want == floor(want)) {
                seen++;
                CHECK_MSG(tct_eval(TCI_P_POW, TC_F64, x, y) == want, "f64 pow(%d, %d)", x, y);
                CHECK_MSG(!narrow || tct_eval(TCI_P_POW, TC_F32, x, y) == want, "f32 pow(%d, %d)",
                          x, y);
                bool plain = tci_power_is_plain(y);
                CHECK_MSG(!plain || tct_power(TC_F64, x, y) == want, "f64 %d^%d", x, y);
                CHECK_MSG(!plain || !narrow || tct_power(TC_F32, x, y) == want, "f32 %d^%d", x, y);
            }
        }
        CHECK_MSG(tct_eval(TCI_P_POW, TC_F32, x * x, 0.5) == abs(x), "the root of %d^2", x);
    }
    CHECK(seen > 2000);
}

/* Annex F of C99: libm's answer on every pair of special values. */
TEST(pow_special_cases_are_those_of_c99)
{
    static const double values[] = {0.0,
                                    -0.0,
                                    1.0,
                                    -1.0,
                                    2.0,
                                    -2.0,
                                    0.5,
                                    -0.5,
                                    3.0,
                                    -3.0,
                                    2.5,
                                    -2.5,
                                    16777215.0,
                                    16777216.0,
                                    -16777215.0,
                                    1e30,
                                    -1e30,
                                    0x1p-149,
                                    -0x1p-149,
                                    (double)INFINITY,
                                    -(double)INFINITY,
                                    (double)NAN};
    for (int i = 0; i < TCI_COUNT(values); i++) {
        for (int j = 0; j < TCI_COUNT(values); j++) {
            double x = values[i];
            double y = values[j];
            double f32 = tct_eval(TCI_P_POW, TC_F32, (float)x, (float)y);
            double f64 = tct_eval(TCI_P_POW, TC_F64, x, y);
            double want = (float)pow((float)x, (float)y);
            double ulps = isfinite(want) ? tct_ulps(TC_F32, f32, powl((float)x, (float)y)) : 1;
            CHECK_MSG(tct_same(f32, want) || ulps < 0.8, "f32 pow(%g, %g) = %g", x, y, f32);
            CHECK_MSG(tct_same(f64, pow(x, y)), "f64 pow(%g, %g) = %g", x, y, f64);
            if (tci_power_is_plain(y)) {
                f32 = tct_power(TC_F32, (float)x, y);
                ulps = isfinite(want) ? tct_ulps(TC_F32, f32, powl((float)x, y)) : 1;
                CHECK_MSG(tct_same(f32, want) || ulps < 0.8, "f32 x^%g of %g = %g", y, x, f32);
                f64 = tct_power(TC_F64, x, y);
                CHECK_MSG(tct_same(f64, pow(x, y)), "f64 x^%g of %g = %g", y, x, f64);
            }
        }
    }
}

TEST(powers_that_a_program_knows)
{
    CHECK(tci_power_is_plain(3) && tci_power_is_plain(-0.5) && tci_power_is_plain(8));
    CHECK(!tci_power_is_plain(8.5) && !tci_power_is_plain(0.3) && !tci_power_is_plain((double)NAN));
    double worst[2] = {0, 0};
    for (int i = 0; i < 200000; i++) {
        double b = (i % 33 - 16) / 2.0, range = 210 / fmax(1, fabs(b));
        double x = ldexp(1 + tct_random_unit(), (int)((tct_random_unit() - 0.5) * range));
        float narrow = (float)(i % 3 ? x : -x);
        double wide = ldexp(narrow < 0 ? -x : x, (int)((tct_random_unit() - 0.5) * 3 * range));
        double ulps[] = {tct_ulps(TC_F32, tct_power(TC_F32, narrow, b), powl(narrow, b)),
                         LDBL_MANT_DIG < 64
                             ? 0
                             : tct_ulps(TC_F64, tct_power(TC_F64, wide, b), powl(wide, b))};
        worst[0] = fmax(worst[0], ulps[0]);
        worst[1] = fmax(worst[1], ulps[1]);
    }
    CHECK_MSG(worst[0] <= 0.501 && worst[1] <= 0.501, "%.4f and %.4f ulp", worst[0], worst[1]);
    for (double b = -8; b <= 8; b += 0.5) {
        for (int i = -149; i < 128; i++) { /* subnormal x and results too */
            float x = (float)ldexp(1 + tct_random_unit(), i);
            double ulps = tct_ulps(TC_F32, tct_power(TC_F32, x, b), powl(x, b));
            CHECK_MSG(ulps <= 1.5, "f32 pow(%a, %g): %.3f ulp", x, b, ulps);
        }
    }
}

/* Infinities, NaN and signed zeros of the one-argument functions, from C99 and the definitions. */
TEST(special_values_of_the_functions)
{
    const double inf = (double)INFINITY;
    const double nan = (double)NAN;
    const struct {
        tci_prim p;
        double at, want;
    } rows[] = {
        {TCI_P_EXP, inf, inf},          {TCI_P_EXP, -inf, 0.0},         {TCI_P_EXP, 0.0, 1.0},
        {TCI_P_EXP, -0.0, 1.0},         {TCI_P_EXP, 1000.0, inf},       {TCI_P_EXP, -1000.0, 0.0},
        {TCI_P_EXPN, -inf, 0.0},        {TCI_P_EXPN, 0.0, 1.0},         {TCI_P_EXPN, -0.0, 1.0},
        {TCI_P_EXPN, -1000.0, 0.0},     {TCI_P_EXPN, nan, nan},         {TCI_P_LOG, 0.0, -inf},
        {TCI_P_LOG, -0.0, -inf},        {TCI_P_LOG, -1.0, nan},         {TCI_P_LOG, -inf, nan},
        {TCI_P_LOG, inf, inf},          {TCI_P_LOG, 1.0, 0.0},          {TCI_P_SIN, 0.0, 0.0},
        {TCI_P_SIN, -0.0, -0.0},        {TCI_P_SIN, inf, nan},          {TCI_P_SIN, -inf, nan},
        {TCI_P_COS, 0.0, 1.0},          {TCI_P_COS, inf, nan},          {TCI_P_TANH, 0.0, 0.0},
        {TCI_P_TANH, -0.0, -0.0},       {TCI_P_TANH, inf, 1.0},         {TCI_P_TANH, -inf, -1.0},
        {TCI_P_ERF, 0.0, 0.0},          {TCI_P_ERF, -0.0, -0.0},        {TCI_P_ERF, inf, 1.0},
        {TCI_P_ERF, -inf, -1.0},        {TCI_P_SIGMOID, 0.0, 0.5},      {TCI_P_SIGMOID, inf, 1.0},
        {TCI_P_SIGMOID, -inf, 0.0},     {TCI_P_GELU, 0.0, 0.0},         {TCI_P_GELU, -0.0, -0.0},
        {TCI_P_GELU, inf, inf},         {TCI_P_GELU, -inf, -0.0},       {TCI_P_GELU, 100.0, 100.0},
        {TCI_P_TAN, -0.0, -0.0},        {TCI_P_TAN, inf, nan},          {TCI_P_ERFC, inf, 0.0},
        {TCI_P_ERFC, -inf, 2.0},        {TCI_P_ERFC, -0.0, 1.0},        {TCI_P_EXPM1, -0.0, -0.0},
        {TCI_P_EXPM1, inf, inf},        {TCI_P_EXPM1, -inf, -1.0},      {TCI_P_EXPM1, 1000.0, inf},
        {TCI_P_EXP2, inf, inf},         {TCI_P_EXP2, -inf, 0.0},        {TCI_P_EXP2, -0.0, 1.0},
        {TCI_P_EXP2, 10.0, 1024.0},     {TCI_P_EXP2, -126.0, 0x1p-126}, {TCI_P_SINH, -0.0, -0.0},
        {TCI_P_SINH, inf, inf},         {TCI_P_SINH, -inf, -inf},       {TCI_P_COSH, -0.0, 1.0},
        {TCI_P_COSH, -inf, inf},        {TCI_P_LOG1P, -0.0, -0.0},      {TCI_P_LOG1P, -1.0, -inf},
        {TCI_P_LOG1P, -2.0, nan},       {TCI_P_LOG1P, -inf, nan},       {TCI_P_LOG1P, inf, inf},
        {TCI_P_LOG2, 0.0, -inf},        {TCI_P_LOG2, -0.0, -inf},       {TCI_P_LOG2, -1.0, nan},
        {TCI_P_LOG2, inf, inf},         {TCI_P_LOG2, 1.0, 0.0},         {TCI_P_LOG2, 8.0, 3.0},
        {TCI_P_LOG2, 0x1p-140, -140.0}, {TCI_P_LOG10, 0.0, -inf},       {TCI_P_LOG10, -inf, nan},
        {TCI_P_LOG10, inf, inf},        {TCI_P_LOG10, 1.0, 0.0},        {TCI_P_LOG10, 1000.0, 3.0},
        {TCI_P_ERFINV, 0.0, 0.0},       {TCI_P_ERFINV, -0.0, -0.0},     {TCI_P_ERFINV, 1.0, inf},
        {TCI_P_ERFINV, -1.0, -inf},     {TCI_P_ERFINV, 1.5, nan},       {TCI_P_ERFINV, -inf, nan},
        {TCI_P_LGAMMA, 0.0, inf},       {TCI_P_LGAMMA, -0.0, inf},      {TCI_P_LGAMMA, -3.0, inf},
        {TCI_P_LGAMMA, 1.0, 0.0},       {TCI_P_LGAMMA, 2.0, 0.0},       {TCI_P_LGAMMA, inf, inf},
        {TCI_P_LGAMMA, -inf, inf},      {TCI_P_DIGAMMA, 0.0, -inf},     {TCI_P_DIGAMMA, -0.0, inf},
        {TCI_P_DIGAMMA, -1.0, nan},     {TCI_P_DIGAMMA, inf, inf},      {TCI_P_DIGAMMA, -inf, nan},
        {TCI_P_TRIGAMMA, 0.0, inf},     {TCI_P_TRIGAMMA, -2.0, inf},    {TCI_P_TRIGAMMA, inf, 0.0}};
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        for (tc_dtype t = TC_F32; t <= TC_F64; t = (tc_dtype)(t + 1)) {
            double got = tct_eval(rows[i].p, t, rows[i].at, 0);
            CHECK_MSG(tct_same(got, rows[i].want), "%s %s(%g) = %g", tci_dtype_get(t)->name,
                      tci_prim_get(rows[i].p)->name, rows[i].at, got);
        }
    }
    /* Any NaN gives NaN, whatever its payload (the bits of a NaN run through integer steps). */
    for (int r = 0; r < TCI_COUNT(tct_rows); r++) {
        for (uint32_t payload = 1; payload < 0x800000u; payload += 65533) {
            double x = tct_f32_of_bits(0x7f800000u | payload);
            CHECK(isnan(tct_eval(tct_rows[r].prim, TC_F32, x, 0)));
            CHECK(isnan(tct_eval(tct_rows[r].prim, TC_F32, -x, 0)));
            CHECK(isnan(tct_eval(tct_rows[r].prim, TC_F64, x, 0)));
        }
    }
}

/* ---- EXPN ---- */

enum { TCT_POWERS = 1 << 20 };

/* Whether EXPN, which the second output is made of, has the bits of EXP for n floats at x. */
static void tct_powers_are_exp(tc_program *f, const float *x, int n)
{
    static float exp_of[TCT_POWERS], expn_of[TCT_POWERS];
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, n)), TC_BUFS(TC_BUF(exp_of, n), TC_BUF(expn_of, n))),
                 TC_OK);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(tct_same(exp_of[i], expn_of[i]), "expn(%a) = %a, exp %a", x[i], expn_of[i],
                  exp_of[i]);
    }
}

/* The soak form takes every float. */
TEST(f32_powers_of_what_is_not_above_0_have_the_bits_of_exp)
{
    static float x[TCT_POWERS];
    tc_options o;
    tc_ctx *ctx;
    tc_program *f;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    o.no_disk_cache = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor in = tc_input(ctx, "x", TC_F32, TCT_POWERS);
    REQUIRE(!tc_compile_fn(TC_TENSORS(in), TC_TENSORS(tc_exp(in), tc_exp(tc_neg(tc_abs(in)))), NULL,
                           &f));
    const uint32_t step = tct_soak ? 1 : 307;
    for (uint64_t bits = 0x80000000u; bits < 0x100000000u;) { /* -infinity and NaN too */
        for (int i = 0; i < TCT_POWERS; i++, bits += step) {
            x[i] = bits < 0x100000000u ? tct_f32_of_bits((uint32_t)bits) : -0.0f;
        }
        tct_powers_are_exp(f, x, TCT_POWERS);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(f64_powers_of_what_is_not_above_0_have_the_bits_of_exp)
{
    static const double scales[] = {1e-9, 1, 30, 800, 1100, 1e4};
    for (int i = 0; i < (tct_soak ? 10000000 : 100000); i++) {
        double x = i < TCI_COUNT(tct_specials) ? -fabs(tct_specials[i])
                   : i % 4 == 0 ? -744 - 2 * tct_random_unit() /* subnormal results, and 0 */
                   : i % 4 == 1 ? -fabs(tct_f64_of_bits(tct_random()))
                                : -tct_random_unit() * scales[i % TCI_COUNT(scales)];
        double want = tct_eval(TCI_P_EXP, TC_F64, x, 0), got = tct_eval(TCI_P_EXPN, TC_F64, x, 0);
        CHECK_MSG(tct_same(got, want), "expn(%a) = %a, exp %a", x, got, want);
    }
}

/* The helpers serve huge angles; below that all lanes run the same function. */
TEST(f64_recipes_are_the_helpers_of_their_names)
{
    static const struct {
        tci_prim prim;
        tci_helper_id id;
    } rows[] = {{TCI_P_SIN, TCI_H_SIN_F64}, {TCI_P_COS, TCI_H_COS_F64}, {TCI_P_TAN, TCI_H_TAN_F64}};
    static const double scales[] = {1e-3, 1, 6, 40, 1500, 1e9};
    for (int r = 0; r < TCI_COUNT(rows); r++) {
        for (int i = 0; i < 30000; i++) {
            double x = i < TCI_COUNT(tct_specials) ? tct_specials[i]
                       : i % 4 == 0                ? tct_f64_of_bits(tct_random())
                       : i % 64 == 1 ? (double)(1.5707963267948966192313L * ldexpl(1, i / 64 % 64))
                                     : (tct_random_unit() - 0.5) * scales[i % TCI_COUNT(scales)];
            double got = tct_eval(rows[r].prim, TC_F64, x, 0);
            double want = tci_helper_get(rows[r].id)->f64(x);
            CHECK_MSG(tct_same(got, want), "%s(%a) = %a, the helper says %a",
                      tci_prim_get(rows[r].prim)->name, x, got, want);
        }
    }
}

/* Of what is far below the least subnormal; an underflow takes some processors a hundred cycles. */
TEST(gelu_underflows_only_next_to_its_subnormal_results)
{
    for (double x = -14.37; x > -1e30; x *= 1.03) {
        feclearexcept(FE_ALL_EXCEPT);
        double got = tct_eval(TCI_P_GELU, TC_F32, (float)x, 0);
        CHECK_MSG(!fetestexcept(FE_UNDERFLOW) && tct_same(got, -0.0), "gelu(%a) = %a", x, got);
    }
}

TEST(bounded_functions_stay_in_their_range)
{
    for (int i = 0; i < 200000; i++) {
        double x = (float)((tct_random_unit() - 0.5) * 40);
        CHECK(fabs(tct_eval(TCI_P_SIN, TC_F32, x, 0)) <= 1);
        CHECK(fabs(tct_eval(TCI_P_COS, TC_F32, x, 0)) <= 1);
        CHECK(fabs(tct_eval(TCI_P_TANH, TC_F32, x, 0)) <= 1);
        CHECK(fabs(tct_eval(TCI_P_ERF, TC_F32, x, 0)) <= 1);
        CHECK(tct_eval(TCI_P_SIGMOID, TC_F32, x, 0) <= 1);
    }
}

TEST(recipes_are_well_formed)
{
    int all = 0;
    for (int p = TCI_P_BASE_COUNT; p < TCI_P_COUNT; p++) {
        for (tc_dtype t = TC_F32; t <= TC_F64; t = (tc_dtype)(t + 1)) {
            const tci_recipe *r = tci_math_recipe((tci_prim)p, t);
            all += r->n;
            REQUIRE(r->n > 0 && r->n <= TCI_RECIPE_MAX && all <= TCI_RECIPES_MAX);
            CHECK_EQ_INT(r->insts[r->n - 1].dtype, t);
            for (int i = 0; i < r->n; i++) {
                const tci_step_inst *s = &r->insts[i];
                if (s->kind != TCI_RECIPE_PRIM) {
                    continue;
                }
                CHECK(!tci_prim_is_math((tci_prim)s->prim));
                CHECK_EQ_INT(s->n_args, tci_prim_get((tci_prim)s->prim)->arity);
                for (int k = 0; k < s->n_args; k++) {
                    CHECK(s->args[k] >= 0 && s->args[k] < i);
                }
            }
        }
    }
}

TEST(constants_of_f32_recipes_are_floats)
{
    for (int p = TCI_P_BASE_COUNT; p < TCI_P_COUNT; p++) {
        const tci_recipe *r = tci_math_recipe((tci_prim)p, TC_F32);
        for (int i = 0; i < r->n; i++) {
            if (r->insts[i].kind == TCI_RECIPE_CONST && r->insts[i].dtype == TC_F32) {
                double c = r->insts[i].value.f;
                CHECK_MSG(tct_same(c, (double)(float)c), "%s: %a", tci_prim_get((tci_prim)p)->name,
                          c);
            }
        }
    }
}

TEST(helper_texts_are_one_static_function)
{
    for (int id = 1; id < tci_helper_count(); id++) {
        const tci_helper *h = tci_helper_get(id);
        char start[64];
        snprintf(start, sizeof(start), "%s(", h->name);
        CHECK(!strncmp(h->text, "static ", 7));
        CHECK_HAS(h->text, start);
        CHECK(!strchr(h->text, '#'));
        CHECK(strlen(h->text) < 4096);
        CHECK(h->needs < id || h->dtype == TC_F32);
        CHECK(!h->f32 || h->dtype == TC_F32);
        CHECK(!h->f64 || h->dtype == TC_F64);
    }
}

/* ---- base prims ---- */

TEST(integer_division_corners)
{
    static const tc_dtype types[] = {TC_I8, TC_I16, TC_I32, TC_I64};
    for (int i = 0; i < TCI_COUNT(types); i++) {
        tc_dtype t = types[i];
        int64_t min = -(int64_t)(UINT64_C(1) << (8 * tci_dtype_get(t)->bytes - 2)) * 2;
        CHECK_EQ_INT(tct_eval_int(TCI_P_DIV, t, 7, 0), 0);
        CHECK_EQ_INT(tct_eval_int(TCI_P_REM, t, 7, 0), 0);
        CHECK_EQ_INT(tct_eval_int(TCI_P_DIV, t, min, -1), min);
        CHECK_EQ_INT(tct_eval_int(TCI_P_REM, t, min, -1), 0);
        CHECK_EQ_INT(tct_eval_int(TCI_P_DIV, t, -7, 2), -3);
        CHECK_EQ_INT(tct_eval_int(TCI_P_REM, t, -7, 2), -1);
        CHECK_EQ_INT(tct_eval_int(TCI_P_NEG, t, min, 0), min);
        CHECK_EQ_INT(tct_eval_int(TCI_P_ABS, t, min, 0), min);
        CHECK_EQ_INT(tct_eval_int(TCI_P_SUB, t, min, 1), -(min + 1));
        CHECK_EQ_INT(tct_eval_int(TCI_P_LT, t, min, 0), 1);
    }
    CHECK_EQ_INT(tct_eval_int(TCI_P_DIV, TC_U64, -1, 2), INT64_MAX);
    CHECK_EQ_INT(tct_eval_int(TCI_P_REM, TC_U64, -1, 10), 5);
    CHECK_EQ_INT(tct_eval_int(TCI_P_LT, TC_U64, -1, 1), 0);
    CHECK_EQ_INT(tct_eval_int(TCI_P_ADD, TC_U8, 250, 10), 4);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MUL, TC_I8, 100, 3), 44);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MUL, TC_I64, INT64_MAX, INT64_MAX), 1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_PMAX, TC_U64, -1, 1), -1);
}

TEST(shifts_by_the_width_and_more)
{
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHL, TC_I32, 1, 31), INT32_MIN);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHL, TC_I32, 1, 32), 0);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHL, TC_I32, 1, -1), 0);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHL, TC_U8, 3, 7), 128);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHL, TC_U8, 3, 8), 0);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_I8, -128, 3), -16);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_I8, -128, 8), -1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_I8, 127, 100), 0);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_I64, INT64_MIN, 63), -1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_I64, INT64_MIN, 64), -1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_I64, INT64_MIN, -1), -1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_U64, -1, 63), 1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_SHR, TC_U64, -1, 64), 0);
    CHECK_EQ_INT(tct_eval_int(TCI_P_NOT, TC_U16, 1, 0), 65534);
    CHECK_EQ_INT(tct_eval_int(TCI_P_NOT, TC_BOOL, 1, 0), 0);
    CHECK_EQ_INT(tct_eval_int(TCI_P_XOR, TC_I32, -1, 1), -2);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_U8, 255, 255), 254);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_I8, -128, 127), -64);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_I16, -1, 1), -1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_U32, 0xffffffff, 0xffffffff), 0xfffffffe);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_I32, INT32_MIN, INT32_MIN), 0x40000000);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_U64, -1, -1), -2);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_I64, INT64_MIN, INT64_MIN), (int64_t)1 << 62);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_I64, INT64_MIN, 1), -1);
    CHECK_EQ_INT(tct_eval_int(TCI_P_MULHI, TC_BOOL, 1, 1), 0);
}

TEST(integer_pow_wraps)
{
    const struct {
        int64_t a, b, want;
    } rows[] = {{3, 4, 81},
                {-2, 3, -8},
                {0, 0, 1},
                {7, 0, 1},
                {2, 63, INT64_MIN},
                {2, 64, 0},
                {10, 20, 7766279631452241920},
                {2, -1, 0},
                {0, -1, 0},
                {1, -5, 1},
                {-1, -5, -1},
                {-1, -4, 1},
                {-1, INT64_MAX, -1}};
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        CHECK_EQ_INT(tct_eval_int(TCI_P_POWI, TC_I64, rows[i].a, rows[i].b), rows[i].want);
    }
    /* 3^(2^64 - 1): the inverse of 3 modulo 2^64 */
    CHECK(tct_eval_int(TCI_P_POWI, TC_U64, 3, -1) == (int64_t)UINT64_C(0xaaaaaaaaaaaaaaab));
    CHECK_EQ_INT(tct_eval_int(TCI_P_POWI, TC_I8, 3, 5), -13);
    CHECK_EQ_INT(tct_eval_int(TCI_P_POWI, TC_BOOL, 0, 0), 1);
}

TEST(greatest_common_divisors)
{
    const struct {
        int64_t a, b, want;
    } rows[] = {{0, 0, 0},
                {0, -7, 7},
                {12, 18, 6},
                {-12, 18, 6},
                {17, 5, 1},
                {1 << 20, 3 << 10, 1 << 10},
                {INT64_MIN, 0, INT64_MIN},
                {INT64_MIN, 6, 2},
                {INT64_MAX, INT64_MIN, 1}};
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        CHECK_EQ_INT(tct_eval_int(TCI_P_GCD, TC_I64, rows[i].a, rows[i].b), rows[i].want);
        CHECK_EQ_INT(tct_eval_int(TCI_P_GCD, TC_I64, rows[i].b, rows[i].a), rows[i].want);
    }
    CHECK_EQ_INT(tct_eval_int(TCI_P_GCD, TC_I8, -128, 0), -128);
    CHECK_EQ_INT(tct_eval_int(TCI_P_GCD, TC_U64, -1, 15), 15);
    CHECK_EQ_INT(tct_eval_int(TCI_P_GCD, TC_BOOL, 0, 1), 1);
}

TEST(float_prims_keep_nan_and_zero_signs)
{
    const double nan = (double)NAN;
    for (tc_dtype t = TC_F32; t <= TC_F64; t = (tc_dtype)(t + 1)) {
        CHECK(isnan(tct_eval(TCI_P_PMIN, t, 1, nan)) && tct_eval(TCI_P_PMIN, t, nan, 1) == 1);
        CHECK(isnan(tct_eval(TCI_P_PMAX, t, 1, nan)) && tct_eval(TCI_P_PMAX, t, nan, 1) == 1);
        CHECK(tct_same(tct_eval(TCI_P_PMAX, t, 0.0, -0.0), -0.0));
        CHECK(tct_same(tct_eval(TCI_P_NEG, t, 0.0, 0), -0.0));
        CHECK(tct_same(tct_eval(TCI_P_ABS, t, -0.0, 0), 0.0));
        CHECK(signbit(tct_eval(TCI_P_NEG, t, tct_eval(TCI_P_ABS, t, nan, 0), 0)) != 0);
        CHECK(tct_eval(TCI_P_RINT, t, 2.5, 0) == 2 && tct_eval(TCI_P_RINT, t, 3.5, 0) == 4);
        CHECK(tct_same(tct_eval(TCI_P_RINT, t, -0.25, 0), -0.0));
        CHECK(tct_eval(TCI_P_FLOOR, t, -0.5, 0) == -1 && tct_eval(TCI_P_CEIL, t, 0.5, 0) == 1);
        CHECK(tct_same(tct_eval(TCI_P_TRUNC, t, -0.5, 0), -0.0));
        CHECK(tct_eval(TCI_P_REM, t, -5.5, 2) == -1.5 && isnan(tct_eval(TCI_P_REM, t, 1, 0)));
        tci_value args[3] = {tct_f(nan), tct_f(nan), tct_f(0)};
        CHECK_EQ_INT(tci_prim_eval(TCI_P_EQ, t, TC_BOOL, 0, args).i, 0);
        CHECK_EQ_INT(tci_prim_eval(TCI_P_LE, t, TC_BOOL, 0, args).i, 0);
    }
}

TEST(f32_prims_round_to_float)
{
    tci_value args[3] = {tct_f(1 + 0x1p-23), tct_f(1 - 0x1p-23), tct_f(-1)};
    CHECK(tci_prim_eval(TCI_P_FMA, TC_F32, TC_F32, 0, args).f == -0x1p-46);
    CHECK(tct_eval(TCI_P_MUL, TC_F32, 1 + 0x1p-23, 1 - 0x1p-23) == 1);
    CHECK(tct_eval(TCI_P_ADD, TC_F32, 16777216, 1) == 16777216);
    CHECK(tct_eval(TCI_P_DIV, TC_F32, 1, 3) == (double)(1.0f / 3.0f));
    CHECK(tct_eval(TCI_P_MUL, TC_F32, 0x1p-100, 0x1p-49) == 0x1p-149);
    CHECK(isinf(tct_eval(TCI_P_MUL, TC_F32, 1e30, 1e30)));
    tci_value bits = tct_f(-1.5);
    CHECK_EQ_INT(tci_prim_eval(TCI_P_BITS, TC_F32, TC_I32, 0, &bits).i, (int32_t)0xbfc00000u);
    CHECK(tci_prim_eval(TCI_P_BITS, TC_F64, TC_I64, 0, &bits).u == UINT64_C(0xbff8000000000000));
    tci_value back = tct_i(0x3f800000);
    CHECK(tci_prim_eval(TCI_P_BITS, TC_I32, TC_F32, 0, &back).f == 1);
}

/* ---- element types ---- */

static const tc_dtype tct_types[] = {TC_BOOL, TC_U8,  TC_I8,   TC_I16, TC_I32,
                                     TC_I64,  TC_F16, TC_BF16, TC_F32, TC_F64};

TEST(promotion_is_the_published_table)
{
    /* PyTorch 2.11, torch.promote_types */
    static const char *const table[10][10] = {
        {"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"u8", "u8", "i16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"i8", "i16", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"i16", "i16", "i16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"i32", "i32", "i32", "i32", "i32", "i64", "f16", "bf16", "f32", "f64"},
        {"i64", "i64", "i64", "i64", "i64", "i64", "f16", "bf16", "f32", "f64"},
        {"f16", "f16", "f16", "f16", "f16", "f16", "f16", "f32", "f32", "f64"},
        {"bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "f32", "bf16", "f32", "f64"},
        {"f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f64"},
        {"f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64"}};
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 10; j++) {
            tc_dtype got = tci_dtype_promote(TC_TORCH, tct_types[i], tct_types[j]);
            CHECK_STR(tci_dtype_get(got)->name, table[i][j]);
        }
    }
    /* NumPy 2: unsigned with integers; floats win as in torch */
    static const struct {
        tc_dtype a, b, want;
    } wide[] = {{TC_U16, TC_U8, TC_U16},  {TC_U16, TC_I8, TC_I32},  {TC_U16, TC_I16, TC_I32},
                {TC_U16, TC_I32, TC_I32}, {TC_U32, TC_I8, TC_I64},  {TC_U32, TC_I32, TC_I64},
                {TC_U32, TC_I64, TC_I64}, {TC_U32, TC_U16, TC_U32}, {TC_U64, TC_U32, TC_U64},
                {TC_U64, TC_I8, TC_F64},  {TC_U64, TC_I64, TC_F64}, {TC_U64, TC_BOOL, TC_U64},
                {TC_U64, TC_F32, TC_F32}, {TC_U16, TC_F16, TC_F16}};
    for (int i = 0; i < TCI_COUNT(wide); i++) {
        CHECK_EQ_INT(tci_dtype_promote(TC_TORCH, wide[i].a, wide[i].b), wide[i].want);
        CHECK_EQ_INT(tci_dtype_promote(TC_TORCH, wide[i].b, wide[i].a), wide[i].want);
    }
}

TEST(f16_rounds_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x10000u; h++) {
        float x = tci_f16_bits_to_f32((uint16_t)h);
        uint16_t back = tci_f32_to_f16_bits(x);
        CHECK((h & 0x7fffu) > 0x7c00u ? isnan(x) && (back & 0x7fffu) > 0x7c00u : back == h);
    }
    for (uint32_t h = 0; h < 0x7bffu; h++) { /* between neighbours, up to the largest */
        double low = tci_f16_bits_to_f32((uint16_t)h);
        double high = tci_f16_bits_to_f32((uint16_t)(h + 1));
        float mid = (float)((low + high) / 2); /* exact */
        CHECK_EQ_INT(tci_f32_to_f16_bits(mid), h + (h & 1));
        CHECK_EQ_INT(tci_f32_to_f16_bits(nextafterf(mid, 1e6f)), h + 1);
        CHECK_EQ_INT(tci_f32_to_f16_bits(-nextafterf(mid, 0)), 0x8000u | h);
    }
    CHECK_EQ_INT(tci_f32_to_f16_bits(65519.996f), 0x7bff);
    CHECK_EQ_INT(tci_f32_to_f16_bits(65520.0f), 0x7c00);
    CHECK_EQ_INT(tci_f32_to_f16_bits(INFINITY), 0x7c00);
    CHECK_EQ_INT(tci_f32_to_f16_bits(0x1p-149f), 0);
    CHECK(tci_round_f16(1.0f + 0x1p-11f) == 1.0f);
}

TEST(bf16_rounds_to_nearest_even)
{
    CHECK(tci_round_bf16(1.0f + 0x1p-8f) == 1.0f);
    CHECK(tci_round_bf16(1.0f + 0x1.8p-7f) == 1.0f + 0x1p-6f);
    /* subnormals */
    CHECK(tci_round_bf16(tct_f32_of_bits(0x00018000u)) == tct_f32_of_bits(0x00020000u));
    CHECK(tci_round_bf16(tct_f32_of_bits(0x00008000u)) == 0.0f);
    CHECK(isinf(tci_round_bf16(0x1.ffp+127f)));
    CHECK(isnan(tci_round_bf16(tct_f32_of_bits(0x7f800001u))));
    for (uint32_t b = 0; b < 0x10000u; b += 7) {
        float x = tct_f32_of_bits(b << 16);
        CHECK(isnan(x) ? isnan(tci_round_bf16(x)) : tci_round_bf16(x) == x);
    }
}

/* What a cast must give, in other words than tc's: through long double and 128-bit integers. */
static tci_value tct_cast_wanted(tci_value v, tc_dtype from, tc_dtype to)
{
    tci_value out = {0};
    int bits = 8 * tci_dtype_get(to)->bytes;
    if (to == TC_BOOL) {
        out.i = tci_dtype_is_float(from) ? !(v.f == 0) : v.i != 0;
    } else if (tci_dtype_is_float(to)) {
        long double x = tci_dtype_is_float(from) ? v.f : from == TC_U64 ? (long double)v.u : v.i;
        float f = (float)x;
        out.f = to == TC_F64   ? (double)x
                : to == TC_F32 ? f
                : to == TC_F16 ? tci_round_f16(f)
                               : tci_round_bf16(f);
    } else if (tci_dtype_is_float(from)) {
        long double low = tci_dtype_is_signed(to) ? -ldexpl(1, bits - 1) : 0;
        long double high = ldexpl(1, tci_dtype_is_signed(to) ? bits - 1 : bits) - 1;
        long double x = isnan(v.f) ? 0 : truncl(v.f);
        x = x < low ? low : x > high ? high : x;
        out.u = x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
    } else {
        uint64_t mask = UINT64_MAX >> (64 - bits);
        out.u = v.u & mask;
        if (tci_dtype_is_signed(to) && (out.u >> (bits - 1))) {
            out.u |= ~mask;
        }
    }
    return out;
}

TEST(casts_between_all_types)
{
    if (LDBL_MANT_DIG < 64) {
        SKIP("long double is no wider than double here");
    }
    static const double floats[] = {0,
                                    -0.0,
                                    0.5,
                                    -0.5,
                                    0.999,
                                    -0.999,
                                    1.5,
                                    -1.5,
                                    127.5,
                                    128,
                                    -128.5,
                                    -129,
                                    255.5,
                                    256,
                                    32767.9,
                                    65535.9,
                                    -32769,
                                    2147483647.0,
                                    2147483648.0,
                                    -2147483649.0,
                                    4294967295.5,
                                    4294967296.0,
                                    9223372036854774784.0,
                                    9223372036854775808.0,
                                    -9223372036854775808.0,
                                    18446744073709549568.0,
                                    18446744073709551616.0,
                                    1e30,
                                    -1e30,
                                    65520,
                                    3.4e38,
                                    1e300,
                                    1e-300,
                                    0x1p-149,
                                    0x1p-25,
                                    (double)INFINITY,
                                    -(double)INFINITY,
                                    (double)NAN};
    static const int64_t ints[] = {0,
                                   1,
                                   -1,
                                   2,
                                   127,
                                   128,
                                   -128,
                                   -129,
                                   255,
                                   256,
                                   32767,
                                   32768,
                                   65535,
                                   65536,
                                   65537,
                                   16777217,
                                   33554435,
                                   INT32_MAX,
                                   INT32_MIN,
                                   4294967295,
                                   4294967296,
                                   9007199254740993,
                                   INT64_MAX,
                                   INT64_MIN,
                                   INT64_MAX - 511,
                                   4611686293305294849};
    for (tc_dtype from = TC_BOOL; from < TC_DTYPE_COUNT; from = (tc_dtype)(from + 1)) {
        bool is_float = tci_dtype_is_float(from);
        int n = is_float ? TCI_COUNT(floats) : TCI_COUNT(ints);
        for (int i = 0; i < n; i++) {
            /* The value as `from` can hold it. */
            uint64_t storage = 0;
            tci_value_store(from, &storage, is_float ? tct_f(floats[i]) : tct_i(ints[i]));
            tci_value v = tci_value_load(from, &storage);
            for (tc_dtype to = TC_BOOL; to < TC_DTYPE_COUNT; to = (tc_dtype)(to + 1)) {
                tci_value got = tci_value_cast(v, from, to);
                tci_value want = tct_cast_wanted(v, from, to);
                bool same = tci_dtype_is_float(to) ? tct_same(got.f, want.f) : got.i == want.i;
                CHECK_MSG(same, "cast %s -> %s, value %d", tci_dtype_get(from)->name,
                          tci_dtype_get(to)->name, i);
            }
        }
    }
}

TEST(values_survive_storage)
{
    for (tc_dtype t = TC_BOOL; t < TC_DTYPE_COUNT; t = (tc_dtype)(t + 1)) {
        uint64_t before = UINT64_C(0x8081828384858687);
        uint64_t after = before;
        tci_value v = tci_value_load(t, &before);
        tci_value_store(t, &after, v);
        if (t == TC_BOOL) {
            CHECK(v.i == 1 && *(unsigned char *)&after == 1);
        } else {
            CHECK_MSG(after == before, "%s", tci_dtype_get(t)->name);
        }
    }
}

TEST_MAIN
