/* grad/special_derivatives.c - derivatives of elementwise functions whose formula does not fit the
 * gradient column of ops/table.h.
 *
 * In: x. Out: the derivative at x, as elementwise nodes.
 *
 * Where the closed form cancels or has a pole, a series or a recurrence is used instead. It is
 * accurate there, and so are the derivatives of its nodes. */
#include "grad.h"

#include "../ops/composite.h"
#include "../ops/math.h"

static tci_node *tci_slope_number(tci_graph *g, const tci_node *x, double v)
{
    return x ? tci_composite_number(g, (tc_dtype)x->dtype, v) : NULL;
}

static tci_node *tci_slope_scaled(tci_graph *g, tci_node *x, double by)
{
    return tci_composite_binary(g, TCI_OP_MUL, x, tci_slope_number(g, x, by));
}

static tci_node *tci_slope_more(tci_graph *g, tci_node *x, double by)
{
    return tci_composite_binary(g, TCI_OP_ADD, x, tci_slope_number(g, x, by));
}

/* c[0] + c[1] x + ... of n coefficients. */
static tci_node *tci_slope_poly(tci_graph *g, tci_node *x, const double *c, int n)
{
    tci_node *r = tci_slope_number(g, x, c[n - 1]);
    for (int i = n - 2; i >= 0; i--) {
        r = tci_slope_more(g, tci_composite_binary(g, TCI_OP_MUL, r, x), c[i]);
    }
    return r;
}

static tci_node *tci_slope_cube(tci_graph *g, tci_node *x)
{
    return tci_composite_binary(g, TCI_OP_MUL, tci_composite_unary(g, TCI_OP_SQUARE, x), x);
}

/* ---- the second derivative of digamma ---- */

/* At u > 0: -2 (1 / u^3 + ... + 1 / (u + 11)^3), and from z = u + 12 on the asymptotic series
 * -(1 / z^2 + 1 / z^3 + sum of B(2k) (2k + 1) / z^(2k + 2)) (DLMF 5.15.8, differentiated). */
static tci_node *tci_slope_of_trigamma_above(tci_graph *g, tci_node *u)
{
    enum { TCI_SLOPE_TERMS = 12 };
    static const double bernoulli[] = {0.5,     -1.0 / 6,     1.0 / 6, -0.3,
                                       5.0 / 6, -691.0 / 210, 17.5,    -3617.0 / 30};
    tci_node *back = tci_composite_unary(g, TCI_OP_RECIPROCAL,
                                         tci_slope_more(g, u, TCI_SLOPE_TERMS));
    tci_node *square = tci_composite_unary(g, TCI_OP_SQUARE, back);
    tci_node *tail = tci_slope_poly(g, square, bernoulli, TCI_COUNT(bernoulli));
    tail = tci_composite_binary(g, TCI_OP_MUL, tail, back);
    tail = tci_composite_binary(g, TCI_OP_MUL, tci_slope_more(g, tail, 1), back);
    tail = tci_composite_binary(g, TCI_OP_MUL, tci_slope_more(g, tail, 1), square);
    tci_node *sum = NULL;
    for (int i = TCI_SLOPE_TERMS - 1; i >= 0; i--) { /* the smallest first */
        tci_node *term = i ? tci_slope_more(g, u, i) : u;
        term = tci_slope_cube(g, tci_composite_unary(g, TCI_OP_RECIPROCAL, term));
        sum = sum ? tci_composite_binary(g, TCI_OP_ADD, sum, term) : term;
    }
    sum = tci_composite_binary(g, TCI_OP_ADD, tci_slope_scaled(g, sum, 2), tail);
    return tci_composite_unary(g, TCI_OP_NEG, sum);
}

/* Up to 0 by reflection: that of 1 - x, less 2 pi^3 cos(pi x) / sin(pi x)^3. With s = sinc(x) the
 * sine is pi x s, and the cosine sinc(2 x) / s. */
TCI_FN tci_node *tci_slope_of_trigamma(tci_graph *g, tci_node *x)
{
    tci_node *low = tci_composite_binary(g, TCI_OP_LE, x, tci_slope_number(g, x, 0));
    tci_node *turned = tci_slope_more(g, tci_composite_unary(g, TCI_OP_NEG, x), 1);
    tci_node *above = tci_slope_of_trigamma_above(g, tci_build_where(g, low, turned, x));
    tci_node *at = tci_build_where(g, low, x, tci_slope_number(g, x, 0.5));
    tci_node *s = tci_composite_unary(g, TCI_OP_SINC, at);
    tci_node *cosine = tci_composite_unary(g, TCI_OP_SINC, tci_slope_scaled(g, at, 2));
    cosine = tci_composite_binary(g, TCI_OP_DIV, cosine, s);
    s = tci_slope_cube(g, tci_composite_binary(g, TCI_OP_MUL, at, s));
    tci_node *more = tci_composite_binary(g, TCI_OP_DIV, tci_slope_scaled(g, cosine, 2), s);
    more = tci_composite_binary(g, TCI_OP_SUB, above, more);
    return tci_build_where(g, low, more, above);
}

/* ---- of sinc ---- */

/* (cos(pi x) - sinc(x)) / x, from |x| = 1/4 down its series,
 * x times the sum of (-1)^k pi^(2k) 2k / (2k + 1)! x^(2k - 2). */
TCI_FN tci_node *tci_slope_of_sinc(tci_graph *g, tci_node *x, tci_node *y)
{
    enum { TCI_SLOPE_SINC = 10 };
    const double pi = 3.14159265358979324;
    double c[TCI_SLOPE_SINC], term = 1;
    for (int k = 1; k <= TCI_SLOPE_SINC; k++) {
        term *= -pi * pi / (2 * k * (2 * k + 1));
        c[k - 1] = term * 2 * k;
    }
    tci_node *one = tci_slope_number(g, x, 1);
    tci_node *is_near = tci_composite_binary(g, TCI_OP_LT, tci_composite_unary(g, TCI_OP_ABS, x),
                                             tci_slope_number(g, x, 0.25));
    tci_node *small = tci_build_where(g, is_near, x, tci_slope_number(g, x, 0));
    tci_node *series = tci_slope_poly(g, tci_composite_unary(g, TCI_OP_SQUARE, small), c,
                                      TCI_SLOPE_SINC);
    series = tci_composite_binary(g, TCI_OP_MUL, series, small);
    tci_node *far = tci_build_where(g, is_near, one, x);
    tci_node *cosine = tci_composite_unary(g, TCI_OP_COS, tci_slope_scaled(g, far, pi));
    far = tci_composite_binary(g, TCI_OP_DIV, tci_composite_binary(g, TCI_OP_SUB, cosine, y), far);
    return tci_build_where(g, is_near, series, far);
}

/* ---- of gelu ---- */

static tci_node *tci_slope_fma(tci_graph *g, tci_node *a, tci_node *b, tci_node *c)
{
    tci_node *in[3] = {a, b, c};
    return tci_build_ew(g, TCI_OP_FMA, in);
}

/* e^(-a^2/2), 0 <= a <= 100. The rounding error of a^2, an exponent, is compensated. */
static tci_node *tci_slope_power(tci_graph *g, tci_node *a)
{
    tci_node *minus = tci_slope_number(g, a, -0.5),
             *square = tci_composite_unary(g, TCI_OP_SQUARE, a);
    tci_node *power = tci_composite_unary(g, TCI_OP_EXP,
                                          tci_composite_binary(g, TCI_OP_MUL, minus, square));
    tci_node *off = tci_slope_fma(g, a, a, tci_composite_unary(g, TCI_OP_NEG, square));
    off = tci_slope_fma(g, minus, off, tci_slope_number(g, a, 1));
    return tci_composite_binary(g, TCI_OP_MUL, power, off);
}

/* N(a) or D(a) of tci_math_mills. */
static tci_node *tci_slope_mills(tci_graph *g, tci_node *a, bool below)
{
    int n;
    const double *c = tci_math_mills(below, &n);
    tci_node *r = tci_slope_number(g, a, c[0]);
    for (int i = 1; i < n; i++) {
        r = tci_slope_fma(g, r, a, tci_slope_number(g, a, c[i]));
    }
    return r;
}

/* In f32, where |x| <= a: w = e^(-a^2/2) (N(a) / D(a) - density a) below 0, and 1 - w from 0 on. */
static tci_node *tci_slope_gelu_short(tci_graph *g, tci_node *x, tci_node *a, tci_node *power,
                                      double density)
{
    tci_node *phi = tci_composite_binary(g, TCI_OP_DIV, tci_slope_mills(g, a, false),
                                         tci_slope_mills(g, a, true));
    tci_node *w = tci_slope_fma(g, a, tci_slope_number(g, a, -density), phi);
    w = tci_composite_binary(g, TCI_OP_MUL, w, power);
    tci_node *below = tci_composite_binary(g, TCI_OP_LT, x, tci_slope_number(g, x, 0));
    tci_node *one = tci_slope_number(g, x, 1);
    return tci_build_where(g, below, w, tci_composite_binary(g, TCI_OP_SUB, one, w));
}

/* Phi(x) + x phi(x), phi the density of the normal distribution Phi. Below -2 both terms are small:
 * erfc keeps Phi. |x| counts as 100 at most, whose power is 0. In half precision 1 + erf is
 * accurate enough. In f32 the value takes half of the operations by one power for both terms; it is
 * differentiated as the formula of erfc, which is exact in every derivative. */
TCI_FN tci_node *tci_slope_of_gelu(tci_graph *g, tci_node *x, tc_dtype t)
{
    const bool half = tci_dtype_is_half(t);
    const double root = 0.70710678118654752, density = 0.39894228040143268;
    tci_node *one = tci_slope_number(g, x, 1), *phi, *power, *a = NULL;
    if (half) {
        power = tci_slope_scaled(g, tci_composite_unary(g, TCI_OP_SQUARE, x), -0.5);
        power = tci_composite_unary(g, TCI_OP_EXP, power);
        phi = tci_composite_unary(g, TCI_OP_ERF, tci_slope_scaled(g, x, root));
        phi = tci_slope_scaled(g, tci_composite_binary(g, TCI_OP_ADD, one, phi), 0.5);
    } else {
        a = tci_composite_binary(g, TCI_OP_MINIMUM, tci_composite_unary(g, TCI_OP_ABS, x),
                                 tci_slope_number(g, x, 100));
        power = tci_slope_power(g, a);
        phi = tci_composite_unary(g, TCI_OP_ERFC, tci_slope_scaled(g, x, -root));
        phi = tci_slope_scaled(g, phi, 0.5);
    }
    tci_node *rest = tci_composite_binary(g, TCI_OP_MUL, tci_slope_scaled(g, x, density), power);
    tci_node *slope = tci_composite_binary(g, TCI_OP_ADD, phi, rest);
    return t != TC_F32
               ? slope
               : tci_build_with_derivative(g, slope, tci_slope_gelu_short(g, x, a, power, density));
}
