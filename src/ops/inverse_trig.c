/* ops/inverse_trig.c - expansions of atan2, asin and acos into scalar primitives, in f32 and f64.
 *
 * In: the expansion being built. Out: its instructions, the last one the result. Each function
 * reduces its argument to one interval on which an odd polynomial gives the angle, and adds
 * multiples of pi/4 in two parts, so that the sum is rounded last. Coefficients: minimax fits,
 * rounded; each list states interval and error. */
#include <math.h>

#include "math_expansion.h"

/* The angle pi/2, in two parts. */
static const double tci_arc_right = 0x1.921fb6p+0, tci_arc_right_rest = -0x1.777a5cp-25;
static const double tci_arc_right_wide = 0x1.921fb54442d18p+0,
                    tci_arc_right_wide_rest = 0x1.1a62633145c07p-54;

/* atan(z) / z - 1 over s = z^2, |z| <= tan(pi/8), error of the angle 2^-30.5: s^4 .. s^0 */
static const double tci_arc_tangent_c[] = {-0x1.f33074p-5, 0x1.b2325ap-4, -0x1.23ba78p-3,
                                           0x1.9991eap-3, -0x1.55554ap-2};
/* as tci_arc_tangent_c, 2^-59.5: s^10 .. s^0 */
static const double tci_arc_tangent_wide_c[] = {
    -0x1.2597cf63e2428p-6, 0x1.37ea9a4c49097p-5, -0x1.9cdb0a716daacp-5, 0x1.df1123b20808ep-5,
    -0x1.10ebd89091441p-4, 0x1.3b111be7791dep-4, -0x1.745cf9033d9f6p-4, 0x1.c71c70e751f3dp-4,
    -0x1.24924922b02acp-3, 0x1.99999999958b9p-3, -0x1.555555555553dp-2};
/* (asin(r) - r) / r^3 over r^2, |r| <= 1/2, relative error of the angle 2^-31.7: r^10 .. r^0 */
static const double tci_arc_sine_c[] = {0x1.33f076p-5, 0x1.d7477ep-7, 0x1.04b3a6p-5,
                                        0x1.6caa44p-5, 0x1.3338ap-4,  0x1.55554cp-3};
/* the same, 2^-59.8: r^24 .. r^0 */
static const double tci_arc_sine_wide_c[] = {
    0x1.0b6f66db2d8c6p-5, -0x1.5879f51659cb5p-6, 0x1.63f04512a9e21p-6, 0x1.e4f04c83aa915p-9,
    0x1.614cd296e5b52p-7, 0x1.7582d46f04a61p-7,  0x1.ca1fdb783963dp-7, 0x1.1c49ed6b2e1bep-6,
    0x1.6e8bdf052cdfcp-6, 0x1.f1c71a93d9037p-6,  0x1.6db6db7214a8bp-5, 0x1.333333332e114p-4,
    0x1.5555555555577p-3};

/* The angle of (x, y), by a quotient in [0, tan(pi/8)]: of a = |y| and b = |x| it is a / b, or pi/4
 * and that of (a - b) / (a + b), or pi/2 and that of -b / a. Two infinities count as 1 and 1, and
 * what could overflow in a + b is made smaller. */
TCI_FN void tci_math_atan2(tci_math *m)
{
    int y = tci_math_arg(m, 0), x = tci_math_arg(m, 1);
    int zero = tci_math_k(m, 0.0), one = tci_math_k(m, 1.0);
    int inf = tci_math_k(m, (double)INFINITY);
    int a = tci_math_1(m, TCI_P_ABS, y), b = tci_math_1(m, TCI_P_ABS, x);
    int both = tci_math_2(m, TCI_P_AND, tci_math_compare(m, TCI_P_EQ, a, inf),
                          tci_math_compare(m, TCI_P_EQ, b, inf));
    int large = tci_math_k_of(m, 0x1p100, 0x1p1000);
    int above = tci_math_2(m, TCI_P_OR, tci_math_compare(m, TCI_P_LT, large, a),
                           tci_math_compare(m, TCI_P_LT, large, b));
    int scale = tci_math_select(m, above, tci_math_k(m, 0.25), one);
    a = tci_math_select(m, both, one, tci_math_2(m, TCI_P_MUL, a, scale));
    b = tci_math_select(m, both, one, tci_math_2(m, TCI_P_MUL, b, scale));
    int limit = tci_math_2(m, TCI_P_MUL, b, tci_math_k(m, 0x1.a8279ap-2)); /* tan(pi/8) */
    int steep = tci_math_2(m, TCI_P_MUL, b, tci_math_k(m, 0x1.3504f4p+1)); /* tan(3pi/8) */
    int past = tci_math_compare(m, TCI_P_LT, limit, a);
    int turned = tci_math_compare(m, TCI_P_LT, steep, a);
    int top = tci_math_select(m, past, tci_math_2(m, TCI_P_SUB, a, b), a);
    int bottom = tci_math_select(m, past, tci_math_2(m, TCI_P_ADD, a, b), b);
    top = tci_math_select(m, turned, tci_math_1(m, TCI_P_NEG, b), top);
    bottom = tci_math_select(m, turned, a, bottom);
    bottom = tci_math_select(m, tci_math_compare(m, TCI_P_EQ, bottom, zero), one, bottom);
    int z = tci_math_2(m, TCI_P_DIV, top, bottom);
    int s = tci_math_2(m, TCI_P_MUL, z, z);
    int p = tci_math_is_wide(m)
                ? tci_math_poly(m, s, tci_arc_tangent_wide_c, TCI_COUNT(tci_arc_tangent_wide_c))
                : tci_math_poly(m, s, tci_arc_tangent_c, TCI_COUNT(tci_arc_tangent_c));
    int tail = tci_math_2(m, TCI_P_MUL, tci_math_2(m, TCI_P_MUL, z, s), p);
    int minus = tci_math_compare(m, TCI_P_LT, tci_math_to_bits(m, x), tci_math_ki(m, 0));
    /* this many eighths of a turn, and to which side of them */
    int eighths = tci_math_select(m, past, one, zero);
    eighths = tci_math_select(m, turned, tci_math_k(m, 2.0), eighths);
    int back = tci_math_2(m, TCI_P_SUB, tci_math_k(m, 4.0), eighths);
    eighths = tci_math_select(m, minus, back, eighths);
    int side = tci_math_select(m, minus, tci_math_k(m, -1.0), one);
    tail = tci_math_fma(m, eighths, tci_math_k_of(m, -0x1.777a5cp-26, 0x1.1a62633145c07p-55),
                        tci_math_2(m, TCI_P_MUL, side, tail));
    tail = tci_math_fma(m, side, z, tail);
    int r = tci_math_fma(m, eighths, tci_math_k_of(m, 0x1.921fb6p-1, 0x1.921fb54442d18p-1), tail);
    tci_math_copy_sign(m, tci_math_1(m, TCI_P_ABS, r), y);
}

/* asin(|x|) is r + tail where |x| <= 1/2 (near), else pi/2 - 2 (r + tail), r = sqrt((1 - |x|) / 2):
 * the same polynomial serves both. */
typedef struct tci_arc {
    int x, near, r, tail;
} tci_arc;

static tci_arc tci_arc_of(tci_math *m)
{
    tci_arc a = {.x = tci_math_arg(m, 0)};
    int size = tci_math_1(m, TCI_P_ABS, a.x), half = tci_math_k(m, 0.5);
    a.near = tci_math_compare(m, TCI_P_LE, size, half);
    int rest = tci_math_fma(m, size, tci_math_k(m, -0.5), half);
    int s = tci_math_select(m, a.near, tci_math_2(m, TCI_P_MUL, size, size), rest);
    a.r = tci_math_select(m, a.near, size, tci_math_1(m, TCI_P_SQRT, rest));
    int p = tci_math_is_wide(m)
                ? tci_math_poly(m, s, tci_arc_sine_wide_c, TCI_COUNT(tci_arc_sine_wide_c))
                : tci_math_poly(m, s, tci_arc_sine_c, TCI_COUNT(tci_arc_sine_c));
    a.tail = tci_math_2(m, TCI_P_MUL, tci_math_2(m, TCI_P_MUL, a.r, s), p);
    return a;
}

/* rights * pi/2 + times * (r + tail) */
static int tci_arc_angle(tci_math *m, const tci_arc *a, int rights, int times)
{
    int right = tci_math_k_of(m, tci_arc_right, tci_arc_right_wide);
    int rest = tci_math_k_of(m, tci_arc_right_rest, tci_arc_right_wide_rest);
    int low = tci_math_fma(m, times, a->tail, tci_math_2(m, TCI_P_MUL, rights, rest));
    int high = tci_math_fma(m, times, a->r, tci_math_2(m, TCI_P_MUL, rights, right));
    return tci_math_2(m, TCI_P_ADD, high, low);
}

TCI_FN void tci_math_asin(tci_math *m)
{
    tci_arc a = tci_arc_of(m);
    int zero = tci_math_k(m, 0.0), one = tci_math_k(m, 1.0);
    int times = tci_math_select(m, a.near, one, tci_math_k(m, -2.0));
    int y = tci_arc_angle(m, &a, tci_math_select(m, a.near, zero, one), times);
    tci_math_copy_sign(m, y, a.x);
}

/* pi/2 - asin(x) near 0, else 2 (r + tail), and pi less that where x < 0. */
TCI_FN void tci_math_acos(tci_math *m)
{
    tci_arc a = tci_arc_of(m);
    int one = tci_math_k(m, 1.0), side = tci_math_copy_sign(m, one, a.x);
    int minus = tci_math_1(m, TCI_P_NEG, side);
    int times = tci_math_select(m, a.near, minus, tci_math_2(m, TCI_P_ADD, side, side));
    int rights = tci_math_select(m, a.near, one, tci_math_2(m, TCI_P_ADD, one, minus));
    tci_arc_angle(m, &a, rights, times);
}
