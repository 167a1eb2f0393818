/* ops/pow_constant_exponent.c - expansion of pow(x, c) for a constant c, a small integer or half-
 * integer, into multiplications in double-word (hi + lo) arithmetic.
 *
 * In: an exponent that is a small integer, or such an integer and a half. Out: an expansion in x
 * alone, which lower_graph.c inlines into a kernel and rewrite.c uses for folding. Products of
 * double-word values, hi + lo, round a few multiplications once, as pow itself does: within 0.51
 * ulp (1.5 where a part is below the normal range), and exactly if the result is a float.
 *
 * The parts are meaningless where hi is infinite, or 0 after underflow: then hi is the result. */
#include <math.h>

#include "math_expansion.h"

enum { TCI_POWER_MOST = 8 };

/* A value in two parts; lo -1: hi is all of it. */
static tci_math_pair tci_power_exact(int hi)
{
    tci_math_pair y = {hi, -1};
    return y;
}

/* a b of parts. */
static tci_math_pair tci_power_times(tci_math *m, tci_math_pair a, tci_math_pair b)
{
    tci_math_pair y = tci_math_product(m, a.hi, b.hi);
    y.lo = a.lo < 0 ? y.lo : tci_math_fma(m, a.lo, b.hi, y.lo);
    y.lo = b.lo < 0 ? y.lo : tci_math_fma(m, a.hi, b.lo, y.lo);
    return y;
}

/* sqrt x; of -infinity infinity and of -0 0, as pow has them. */
static tci_math_pair tci_power_root(tci_math *m, int x)
{
    int inf = tci_math_k(m, (double)INFINITY);
    int least = tci_math_compare(m, TCI_P_EQ, x, tci_math_k(m, -(double)INFINITY));
    x = tci_math_2(m, TCI_P_ADD, tci_math_select(m, least, inf, x), tci_math_k(m, 0.0));
    int s = tci_math_1(m, TCI_P_SQRT, x);
    int rest = tci_math_fma(m, tci_math_1(m, TCI_P_NEG, s), s, x);
    tci_math_pair y = {s, tci_math_2(m, TCI_P_DIV, rest, tci_math_2(m, TCI_P_ADD, s, s))};
    return y;
}

/* 1 / a. */
static tci_math_pair tci_power_inverse(tci_math *m, tci_math_pair a)
{
    int one = tci_math_k(m, 1.0), r = tci_math_2(m, TCI_P_DIV, one, a.hi);
    int minus = tci_math_1(m, TCI_P_NEG, r), rest = tci_math_fma(m, minus, a.hi, one);
    rest = a.lo < 0 ? rest : tci_math_fma(m, minus, a.lo, rest);
    tci_math_pair y = {r, tci_math_2(m, TCI_P_MUL, r, rest)};
    return y;
}

/* a to the n, n > 0: each digit of n after the first a square, and a product where it is 1. */
static tci_math_pair tci_power_whole(tci_math *m, tci_math_pair a, int n)
{
    if (n == 1) {
        return a;
    }
    tci_math_pair half = tci_power_whole(m, a, n / 2), y = tci_power_times(m, half, half);
    return n % 2 ? tci_power_times(m, y, a) : y;
}

/* hi + lo; hi where that is NaN, and where it is 0, whose sign hi has. */
static void tci_power_sum_of_pair(tci_math *m, tci_math_pair a)
{
    int y = tci_math_2(m, TCI_P_ADD, a.hi, a.lo), size = tci_math_1(m, TCI_P_ABS, y);
    int is = tci_math_compare(m, TCI_P_LT, tci_math_k(m, 0.0), size);
    tci_math_select(m, is, y, a.hi);
}

TCI_FN bool tci_power_is_plain(double b)
{
    return fabs(b) <= TCI_POWER_MOST && 2 * b == trunc(2 * b);
}

TCI_FN tci_recipe tci_power_recipe(tci_step_inst *insts, tc_dtype t, double b)
{
    tci_math m = {.insts = insts, .t = t, .bits = t == TC_F64 ? TC_I64 : TC_I32};
    bool whole = b == trunc(b);
    int x = tci_math_arg(&m, 0), n = (int)fabs(whole ? b : 2 * b);
    if (n == 0) {
        tci_math_k(&m, 1.0);
    } else if (b == 2.0) {
        tci_math_2(&m, TCI_P_MUL, x, x);
    } else {
        tci_math_pair a = whole ? tci_power_exact(x) : tci_power_root(&m, x);
        a = b < 0 ? tci_power_inverse(&m, a) : a;
        a = tci_power_whole(&m, a, n);
        if (a.lo >= 0) {
            tci_power_sum_of_pair(&m, a);
        }
    }
    tci_recipe r = {insts, m.n};
    return r;
}
