/* api/special_functions.c - special functions composed of other public calls: nextafter and frexp,
 * polygamma, the modified Bessel function of order 0, incomplete gamma functions.
 *
 * In: handles, the user's call site. Out: a handle to the composition of public ops that defines
 * the op. Each region of the argument uses the expansion that converges there, with the argument
 * clamped to the region, so that neither a value nor a gradient of another region is NaN. */
#include "control_flow.h"
#include "composite_helpers.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

/* ---- parts of floats ---- */

/* Bits of a float dtype: the integer dtypes of its size, mantissa bits, and the exponent's bias. */
typedef struct tci_float_bits {
    tc_dtype word;
    int mantissa, bias, most; /* most: the exponent field of inf and NaN */
} tci_float_bits;

static tci_float_bits tci_functions_bits(tc_dtype t)
{
    return t == TC_F16    ? (tci_float_bits){TC_I16, 10, 15, 31}
           : t == TC_BF16 ? (tci_float_bits){TC_I16, 7, 127, 255}
           : t == TC_F32  ? (tci_float_bits){TC_I32, 23, 127, 255}
                          : (tci_float_bits){TC_I64, 52, 1023, 2047};
}

static bool tci_functions_begin(tci_made *m, const char *name, tc_tensor x, tc_site here)
{
    if (!tci_made_begin(m, name, x, here)) {
        return false;
    }
    if (!tci_dtype_is_float(tc_dtype_of(x))) {
        m->bad = tci_made_fail(m, TC_ERR_DTYPE, "x has dtype %s: expected floats",
                               tci_dtype_get(tc_dtype_of(x))->name);
        return false;
    }
    return true;
}

/* As integers, floats of one sign are in order, so that a neighbour is one word away. */
TC_API tc_tensor tc_nextafter_at(tc_tensor x, tc_tensor towards, tc_site here)
{
    tci_made m;
    if (!tci_functions_begin(&m, "tc_nextafter", x, here)) {
        return m.bad;
    }
    if (!tc_status_of(towards) && tc_dtype_of(towards) != tc_dtype_of(x)) {
        return tci_made_fail(&m, TC_ERR_DTYPE,
                             "given %s and %s: expected one float dtype "
                             "(tc_cast converts)",
                             tci_dtype_get(tc_dtype_of(x))->name,
                             tci_dtype_get(tc_dtype_of(towards))->name);
    }
    const tci_float_bits bits = tci_functions_bits(m.dtype);
    tc_tensor up = tc_gt(towards, x), negative = tc_lt(x, 0), zero = tc_eq(x, 0);
    tc_tensor word = tc_bitcast(x, bits.word);
    tc_tensor step = tc_where(tc_ne(up, negative), 1, -1);
    tc_tensor next = tc_bitcast(tc_add(word, tc_cast(step, bits.word)), m.dtype);
    tc_tensor one = tc_bitcast(tc_full(m.ctx->handle, 1, bits.word), m.dtype);
    next = tc_where(zero, tc_where(up, one, tc_neg(one)), next);
    tc_tensor y = tc_where(tc_eq(x, towards), towards, next);
    return tci_made_end(&m, tc_where(tc_logical_or(tc_isnan(x), tc_isnan(towards)),
                                     tc_add(x, towards), y));
}

/* The exponent e of x = mantissa 2^e with a mantissa in [0.5, 1), i32; 0 of 0, inf and NaN. */
static tc_tensor tci_functions_exponent(const tci_made *m, tc_tensor x)
{
    tc_site here = m->here;
    const tci_float_bits bits = tci_functions_bits(tc_dtype_of(x));
    /* subnormal numbers are scaled up, exactly */
    tc_tensor small = tc_lt(tc_abs(x), ldexp(1, 1 - bits.bias));
    tc_tensor scaled = tc_where(small, tc_mul(x, ldexp(1, bits.mantissa)), x);
    tc_tensor word = tc_bitcast(tc_abs(scaled), bits.word);
    tc_tensor field = tc_bitwise_right_shift(word, bits.mantissa);
    tc_tensor e = tc_sub(tc_cast(field, TC_I32),
                         tc_where(small, bits.bias - 1 + bits.mantissa, bits.bias - 1));
    tc_tensor plain = tc_logical_and(tc_ne(x, 0), tc_isfinite(x));
    return tc_cast(tc_where(plain, e, 0), TC_I32);
}

TC_API void tc_frexp_at(tc_tensor x, tc_tensor *mantissa, tc_tensor *exponent, tc_site here)
{
    tci_made m;
    tc_tensor parts[2];
    if (!tci_functions_begin(&m, "tc_frexp", x, here)) {
        parts[0] = parts[1] = m.bad;
    } else {
        tc_tensor wide = tci_made_wide(&m, x);
        parts[1] = tci_functions_exponent(&m, tc_stop_gradient(wide));
        parts[0] = tci_made_round(&m, tc_ldexp(wide, tc_neg(tc_cast(parts[1], tc_dtype_of(wide)))));
    }
    *(mantissa ? mantissa : &parts[0]) = parts[0];
    *(exponent ? exponent : &parts[1]) = parts[1];
}

/* ---- polygamma ---- */

enum { TCI_POLYGAMMA_MOST = 64, TCI_ZETA_TERMS = 12 };

/* Hurwitz's zeta(s, q) of q > 0 by Euler and Maclaurin's formula: the first terms one by one, the
 * rest as an integral with corrections by Bernoulli numbers. */
static tc_tensor tci_functions_zeta(int s, tc_tensor q, tc_site here)
{
    static const double bernoulli[TCI_ZETA_TERMS] = {/* B_2j / (2j)! */
                                                     0x1.5555555555555p-4,  -0x1.6c16c16c16c17p-10,
                                                     0x1.1566abc011567p-15, -0x1.bbd779334ef0bp-21,
                                                     0x1.66a8f2bf70ebep-26, -0x1.22805d644267fp-31,
                                                     0x1.d6db2c4e09162p-37, -0x1.7da4e1f79955cp-42,
                                                     0x1.355871d652e9ep-47, -0x1.f57d968caacf1p-53,
                                                     0x1.967e1f09c376fp-58, -0x1.497d9033a2b5cp-63};
    const int n = TCI_MAX(10, s + 2);
    tc_tensor sum = tc_pow(q, (double)-s), end = tc_add(q, (double)n), rest, factor;
    for (int k = 1; k < n; k++) {
        sum = tc_add(sum, tc_pow(tc_add(q, (double)k), (double)-s));
    }
    rest = tc_pow(end, (double)-s);
    sum = tc_add(sum, tc_add(tc_div(tc_mul(rest, end), (double)(s - 1)), tc_mul(rest, 0.5)));
    factor = tc_mul(tc_div(rest, end), (double)s);
    for (int j = 0; j < TCI_ZETA_TERMS; j++) {
        sum = tc_add(sum, tc_mul(factor, bernoulli[j]));
        factor = tc_mul(tc_div(factor, tc_square(end)),
                        (double)(s + 2 * j + 1) * (double)(s + 2 * j + 2));
    }
    return sum;
}

/* The n-th derivative of cot(pi x), a polynomial in cot(pi x): that of one is -pi (1 + cot^2). */
static tc_tensor tci_functions_cotangent(const tci_made *m, int n, tc_tensor x)
{
    tc_site here = m->here;
    const double pi = 3.14159265358979323846;
    double c[TCI_POLYGAMMA_MOST + 4] = {0, 1};
    for (int i = 0; i < n; i++) {
        double next[TCI_POLYGAMMA_MOST + 4] = {0};
        for (int k = 1; k <= i + 1; k++) {
            next[k - 1] -= pi * k * c[k];
            next[k + 1] -= pi * k * c[k];
        }
        for (int k = 0; k <= i + 2; k++) {
            c[k] = next[k];
        }
    }
    tc_tensor r = tc_mul(tc_sub(x, tc_stop_gradient(tc_round(x))), pi);
    tc_tensor cot = tc_div(tc_cos(r), tc_sin(r)), y;
    y = tc_full(m->ctx->handle, c[n + 1], TC_F64);
    for (int k = n; k >= 0; k--) {
        y = tc_mul(y, cot);
        y = c[k] == 0 ? y : tc_add(y, c[k]);
    }
    return y;
}

TC_API tc_tensor tc_polygamma_at(int64_t n, tc_tensor x, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_polygamma", x, here)) {
        return m.bad;
    }
    if (n < 0 || n > TCI_POLYGAMMA_MOST) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "n is %lld: expected 0 to %d", (long long)n,
                             TCI_POLYGAMMA_MOST);
    }
    if (n < 2) {
        tc_tensor wide = tci_made_wide(&m, x);
        return tci_made_round(&m, n ? tc_trigamma(wide) : tc_digamma(wide));
    }
    double factorial = 1;
    for (int k = 2; k <= n; k++) {
        factorial *= k;
    }
    tc_tensor v = tc_cast(x, TC_F64), mirrored = tc_lt(v, 0.5);
    tc_tensor y = tci_functions_zeta((int)n + 1, tc_where(mirrored, tc_sub(1, v), v), here);
    y = tc_mul(y, n % 2 ? factorial : -factorial);
    tc_tensor turned = tci_functions_cotangent(&m, (int)n, tc_where(mirrored, v, 0.25));
    turned = tc_sub(n % 2 ? tc_neg(y) : y, tc_mul(turned, 3.14159265358979323846));
    return tci_made_round(&m, tc_where(mirrored, turned, y));
}

/* ---- Bessel ---- */

enum { TCI_I0_TERMS = 28, TCI_I0_FAR = 8 };

/* The power series in x^2 / 4, whose terms are all positive: sum of z^k / k!^2. */
static tc_tensor tci_functions_i0_near(tc_tensor x, tc_site here)
{
    double c[TCI_I0_TERMS] = {1};
    for (int k = 1; k < TCI_I0_TERMS; k++) {
        c[k] = c[k - 1] / ((double)k * k);
    }
    tc_tensor z = tc_mul(tc_square(x), 0.25), y = tc_mul(z, c[TCI_I0_TERMS - 1]);
    for (int k = TCI_I0_TERMS - 2; k > 0; k--) {
        y = tc_mul(tc_add(y, c[k]), z);
    }
    return tc_add(y, 1.0);
}

/* sqrt(x) exp(-x) I0(x) of x = 16 / (y + 1) as a sum of Chebyshev polynomials of y (Clenshaw's
 * recurrence), whose coefficients were computed with 60 digits. */
static tc_tensor tci_functions_i0_far(tc_tensor x, tc_site here)
{
    static const double c[] = {
        0.4022452055070544158,     0.00336911647825569409,    0.00006889758346916823984,
        2.891370520834756483e-6,   2.048918589469063742e-7,   2.266668990498178065e-8,
        3.396232025708386345e-9,   4.940602388224969589e-10,  1.188914710784643834e-11,
        -3.149916527963241365e-11, -1.321581184044771312e-11, -1.794178531506806118e-12,
        7.180124451383666234e-13,  3.852778382742142701e-13,  1.540086217521409827e-14,
        -4.150569347287222087e-14, -9.554846698828307649e-15, 3.811680669352622421e-15,
        1.772560133056526384e-15,  -3.425485619677219135e-16, -2.827623980516583485e-16,
        3.461222867697461093e-17,  4.465621420296759999e-17};
    tc_tensor y = tc_sub(tc_div(2.0 * TCI_I0_FAR, x), 1), twice = tc_mul(y, 2.0);
    tc_tensor a = tc_mul(y, 0.0), b = a;
    for (int i = (int)(sizeof(c) / sizeof(*c)) - 1; i > 0; i--) {
        tc_tensor next = tc_add(tc_sub(tc_mul(twice, a), b), c[i]);
        b = a;
        a = next;
    }
    y = tc_add(tc_sub(tc_mul(y, a), b), c[0]);
    /* the exponential in two halves, which overflow no earlier than the result */
    tc_tensor half = tc_exp(tc_mul(x, 0.5));
    return tc_mul(tc_mul(tc_div(y, tc_sqrt(x)), half), half);
}

TC_API tc_tensor tc_i0_at(tc_tensor x, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_i0", x, here)) {
        return m.bad;
    }
    tc_tensor v = tci_made_wide(&m, x), is_far = tc_gt(tc_abs(v), TCI_I0_FAR);
    tc_tensor near = tci_functions_i0_near(tc_where(is_far, 0, v), here);
    tc_tensor far = tci_functions_i0_far(tc_where(is_far, tc_abs(v), TCI_I0_FAR), here);
    return tci_made_round(&m, tc_where(is_far, far, near));
}

/* ---- incomplete gamma functions ---- */

enum { TCI_IGAMMA_STEPS = 512, TCI_IGAMMA_NODES = 12, TCI_IGAMMA_LARGE = 100 };

/* Carries: step number, series term and sum (of P), Lentz's b, c, d and h (of Q), a, x of the
 * series, a of the fraction. */
enum {
    TCI_G_STEP,
    TCI_G_TERM,
    TCI_G_SUM,
    TCI_G_B,
    TCI_G_C,
    TCI_G_D,
    TCI_G_H,
    TCI_G_DELTA,
    TCI_G_A,
    TCI_G_X,
    TCI_G_N
};

static tc_status tci_igamma_goes_on(void *user, const tc_tensor *carry, tc_tensor *go)
{
    const tc_site here = ((const tci_made *)user)->here;
    tc_tensor series = tc_gt(carry[TCI_G_TERM], tc_mul(carry[TCI_G_SUM], 0x1p-54));
    tc_tensor fraction = tc_gt(tc_abs(tc_sub(carry[TCI_G_DELTA], 1)), 0x1p-52);
    *go = tc_any(tc_logical_or(series, fraction), TC_ALL, false);
    return TC_OK;
}

static tc_status tci_igamma_step(void *user, const tc_tensor *carry, tc_tensor *next)
{
    const tc_site here = ((const tci_made *)user)->here;
    tc_tensor k = tc_add(carry[TCI_G_STEP], 1.0);
    next[TCI_G_STEP] = k;
    next[TCI_G_A] = carry[TCI_G_A];
    next[TCI_G_X] = carry[TCI_G_X];
    next[TCI_G_TERM] = tc_div(tc_mul(carry[TCI_G_TERM], carry[TCI_G_X]), tc_add(carry[TCI_G_A], k));
    next[TCI_G_SUM] = tc_add(carry[TCI_G_SUM], next[TCI_G_TERM]);
    tc_tensor numerator = tc_mul(k, tc_sub(carry[TCI_G_A], k));
    next[TCI_G_B] = tc_add(carry[TCI_G_B], 2.0);
    tc_tensor d = tc_add(tc_mul(numerator, carry[TCI_G_D]), next[TCI_G_B]);
    tc_tensor c = tc_add(next[TCI_G_B], tc_div(numerator, carry[TCI_G_C]));
    next[TCI_G_D] = tc_div(1, tc_where(tc_lt(tc_abs(d), 1e-300), 1e-300, d));
    next[TCI_G_C] = tc_where(tc_lt(tc_abs(c), 1e-300), 1e-300, c);
    next[TCI_G_DELTA] = tc_mul(next[TCI_G_D], next[TCI_G_C]);
    next[TCI_G_H] = tc_mul(carry[TCI_G_H], next[TCI_G_DELTA]);
    return TC_OK;
}

/* P of a below TCI_IGAMMA_LARGE by its power series where x < a + 1, else 1 - Q by Legendre's
 * continued fraction; *upper: Q. */
static tc_tensor tci_igamma_small(const tci_made *m, tc_tensor a, tc_tensor x, tc_tensor *upper)
{
    tc_site here = m->here;
    tc_tensor carry[TCI_G_N], last[TCI_G_N], is_series = tc_lt(x, tc_add(a, 1));
    tc_tensor xs = tc_where(is_series, x, 0), xf = tc_where(is_series, tc_add(a, 1), x);
    tc_tensor one = tc_add(tc_mul(tc_add(a, x), 0.0), 1);
    carry[TCI_G_STEP] = tc_full(m->ctx->handle, 0, TC_F64);
    carry[TCI_G_TERM] = carry[TCI_G_SUM] = tc_mul(one, tc_div(1, a));
    carry[TCI_G_B] = tc_mul(one, tc_add(tc_sub(xf, a), 1));
    carry[TCI_G_C] = tc_mul(one, 1e300);
    carry[TCI_G_D] = carry[TCI_G_H] = tc_div(1, carry[TCI_G_B]);
    carry[TCI_G_DELTA] = tc_mul(one, 0.0);
    carry[TCI_G_A] = tc_mul(one, a);
    carry[TCI_G_X] = tc_mul(one, xs);
    tc_while(((tc_tensors){carry, TCI_G_N}), TCI_IGAMMA_STEPS, tci_igamma_goes_on, tci_igamma_step,
             (void *)m, last);
    tc_tensor at = tc_where(is_series, x, xf), safe = tc_where(tc_eq(at, 0), 1, at);
    tc_tensor front = tc_exp(tc_sub(tc_sub(tc_mul(a, tc_log(safe)), at), tc_lgamma(a)));
    front = tc_where(tc_eq(at, 0), 0, front);
    tc_tensor p = tc_mul(front, last[TCI_G_SUM]), q = tc_mul(front, last[TCI_G_H]);
    *upper = tc_where(is_series, tc_sub(1, p), q);
    return tc_where(is_series, p, tc_sub(1, q));
}

/* The same of large a: the integral from x to where nothing is left by Gauss and Legendre, as in
 * Press et al., Numerical Recipes, 6.2. */
static tc_tensor tci_igamma_large(tc_tensor a, tc_tensor x, tc_tensor *upper, tc_site here)
{
    static const double nodes[TCI_IGAMMA_NODES] = {
        0.0640568928626056261, 0.191118867473616309, 0.315042679696163374, 0.433793507626045138,
        0.545421471388839536,  0.648093651936975569, 0.740124191578554364, 0.820001985973902922,
        0.886415527004401034,  0.938274552002732759, 0.974728555971309498, 0.99518721999702136};
    static const double weights[TCI_IGAMMA_NODES] = {
        0.127938195346752157,  0.125837456346828296,  0.121670472927803391,  0.115505668053725601,
        0.107444270115965635,  0.0976186521041138883, 0.0861901615319532759, 0.0733464814110803057,
        0.0592985849154367807, 0.0442774388174198062, 0.0285313886289336632, 0.0123412297999871995};
    tc_tensor top = tc_sub(a, 1), root = tc_sqrt(top);
    tc_tensor is_above = tc_gt(x, top);
    tc_tensor above = tc_maximum(tc_add(top, tc_mul(root, 11.5)), tc_add(x, tc_mul(root, 6.0)));
    tc_tensor below = tc_minimum(tc_sub(top, tc_mul(root, 7.5)), tc_sub(x, tc_mul(root, 5.0)));
    tc_tensor end = tc_where(is_above, above, tc_maximum(below, 0));
    tc_tensor half = tc_mul(tc_sub(end, x), 0.5), middle = tc_add(x, half);
    tc_tensor sum = tc_mul(half, 0.0);
    for (int i = 0; i < 2 * TCI_IGAMMA_NODES; i++) {
        const int k = i / 2;
        tc_tensor t = tc_add(middle, tc_mul(half, i % 2 ? -nodes[k] : nodes[k]));
        tc_tensor from_top = tc_div(tc_sub(t, top), top);
        tc_tensor power = tc_mul(top, tc_sub(tc_log1p(from_top), from_top));
        sum = tc_add(sum, tc_mul(tc_exp(power), weights[k]));
    }
    /* top^top e^-top / Gamma(top + 1) by Stirling's series */
    tc_tensor inverse = tc_div(1, top), square = tc_square(inverse);
    tc_tensor rest = tc_mul(
        inverse, tc_sub(tc_mul(square, tc_sub(tc_mul(square, -1.0 / 1260), -1.0 / 360)), 1.0 / 12));
    tc_tensor front = tc_mul(tc_div(0.39894228040143267794, root), tc_exp(rest));
    tc_tensor part = tc_mul(tc_mul(sum, half), front); /* negative where the end is below x */
    *upper = tc_where(is_above, part, tc_add(1, part));
    return tc_where(is_above, tc_sub(1, part), tc_neg(part));
}

/* x^(a - 1) e^-x / Gamma(a), the derivative of P by x. */
static tc_tensor tci_igamma_density(tc_tensor a, tc_tensor x, tc_site here)
{
    tc_tensor safe = tc_where(tc_gt(x, 0), x, 1);
    tc_tensor y = tc_exp(tc_sub(tc_sub(tc_mul(tc_sub(a, 1), tc_log(safe)), safe), tc_lgamma(a)));
    tc_tensor at_zero = tc_where(tc_lt(a, 1), (double)INFINITY, tc_where(tc_eq(a, 1), 1.0, 0.0));
    return tc_where(tc_gt(x, 0), y, at_zero);
}

static tc_tensor tci_igamma(const char *name, tc_tensor a, tc_tensor x, bool lower, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, name, x, here)) {
        return m.bad;
    }
    /* the gradient by a, which goes through the loop, is refused there */
    tc_tensor v = tc_cast(x, TC_F64), at = tc_stop_gradient(v), fixed = tc_cast(a, TC_F64);
    tc_tensor inside = tc_logical_and(tc_gt(fixed, 0), tc_isfinite(fixed));
    inside = tc_logical_and(inside, tc_logical_and(tc_gt(at, 0), tc_isfinite(at)));
    tc_tensor is_large = tc_ge(fixed, (double)TCI_IGAMMA_LARGE), q[2], p[2];
    tc_tensor ax = tc_where(inside, at, 1.0), aa = tc_where(inside, fixed, 1.0);
    p[0] = tci_igamma_small(&m, tc_where(is_large, 1.0, aa), tc_where(is_large, 1.0, ax), &q[0]);
    p[1] = tci_igamma_large(tc_where(is_large, aa, (double)TCI_IGAMMA_LARGE),
                            tc_where(is_large, ax, (double)TCI_IGAMMA_LARGE), &q[1], here);
    tc_tensor y = lower ? tc_where(is_large, p[1], p[0]) : tc_where(is_large, q[1], q[0]);
    /* at the ends: P(a, 0) = 0 and P(0, x) = 1; NaN below them */
    tc_tensor a_is_size = tc_logical_and(tc_ge(fixed, 0), tc_isfinite(fixed));
    tc_tensor x_is_size = tc_logical_and(tc_ge(at, 0), tc_isfinite(at));
    tc_tensor whole = tc_logical_or(tc_logical_and(tc_eq(at, (double)INFINITY), a_is_size),
                                    tc_logical_and(tc_eq(fixed, 0), tc_gt(at, 0)));
    tc_tensor none = tc_logical_or(tc_logical_and(tc_gt(fixed, 0), tc_eq(at, 0)),
                                   tc_logical_and(tc_eq(fixed, (double)INFINITY), x_is_size));
    tc_tensor edge = tc_where(whole, lower ? 1.0 : 0.0, (double)NAN);
    y = tc_where(inside, y, tc_where(none, lower ? 0.0 : 1.0, edge));
    /* the derivative by x: an integral of the density over (at, v), which is empty, by Gauss's rule
     * of two nodes, whose derivatives are those of the integral up to the fourth */
    tc_tensor width = tc_mul(tc_sub(v, at), 0.5), middle = tc_add(at, width);
    tc_tensor off = tc_mul(width, 0.57735026918962576451);
    tc_tensor sum = tc_add(tci_igamma_density(fixed, tc_sub(middle, off), here),
                           tci_igamma_density(fixed, tc_add(middle, off), here));
    sum = tc_where(tc_logical_and(tc_isfinite(v), tc_isfinite(sum)), tc_mul(width, sum), 0.0);
    return tci_made_round(&m, lower ? tc_add(y, sum) : tc_sub(y, sum));
}

TC_API tc_tensor tc_igamma_at(tc_tensor a, tc_tensor x, tc_site here)
{
    return tci_igamma("tc_igamma", a, x, true, here);
}

TC_API tc_tensor tc_igammac_at(tc_tensor a, tc_tensor x, tc_site here)
{
    return tci_igamma("tc_igammac", a, x, false, here);
}

#pragma pop_macro("TC_HERE")
