/* ops/math_expansion.h - instruction builder for math functions (exp, sin, ...) that are expanded
 * into scalar primitives: each function appends instructions and returns the index of the result.
 */
#ifndef TCI_OPS_MATH_EXPANSION_H
#define TCI_OPS_MATH_EXPANSION_H

#include "math.h"

typedef struct tci_math {
    tci_step_inst *insts;
    int n;
    tc_dtype t;    /* f32 or f64 */
    tc_dtype bits; /* the signed integer of the same width */
} tci_math;

/* A value as hi + lo. */
typedef struct tci_math_pair {
    int hi, lo;
} tci_math_pair;

/* ---- building blocks: each appends one instruction and returns its index ---- */

static inline int tci_math_add_inst(tci_math *m, tci_step_inst inst)
{
    m->insts[m->n] = inst;
    return m->n++;
}

static inline int tci_math_arg(tci_math *m, int which)
{
    tci_step_inst inst = {.kind = TCI_RECIPE_ARG, .dtype = (int8_t)m->t, .imm = (int16_t)which};
    return tci_math_add_inst(m, inst);
}

static inline int tci_math_const(tci_math *m, tc_dtype t, tci_value v)
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

static inline int tci_math_k(tci_math *m, double x)
{
    tci_value v = {.f = x};
    return tci_math_const(m, m->t, v);
}

static inline int tci_math_ki(tci_math *m, int64_t x)
{
    tci_value v = {.i = x};
    return tci_math_const(m, m->bits, v);
}

static inline int tci_math_prim(tci_math *m, tci_prim p, tc_dtype t, int n, int a, int b, int c)
{
    tci_step_inst inst = {.kind = TCI_RECIPE_PRIM,
                          .prim = (uint8_t)p,
                          .dtype = (int8_t)t,
                          .n_args = (uint8_t)n,
                          .args = {(int16_t)a, (int16_t)b, (int16_t)c}};
    return tci_math_add_inst(m, inst);
}

static inline int tci_math_1(tci_math *m, tci_prim p, int a)
{
    return tci_math_prim(m, p, (tc_dtype)m->insts[a].dtype, 1, a, 0, 0);
}

static inline int tci_math_2(tci_math *m, tci_prim p, int a, int b)
{
    return tci_math_prim(m, p, (tc_dtype)m->insts[a].dtype, 2, a, b, 0);
}

static inline int tci_math_fma(tci_math *m, int a, int b, int c)
{
    return tci_math_prim(m, TCI_P_FMA, m->t, 3, a, b, c);
}

/* a / b of normal numbers with a normal quotient, or of a = 0. Of a subnormal a too where b is a
 * power of 2. */
static inline int tci_math_quotient(tci_math *m, int a, int b)
{
    int q = tci_math_2(m, TCI_P_DIV, a, b);
    m->insts[q].imm = TCI_DIV_NORMAL;
    return q;
}

static inline int tci_math_compare(tci_math *m, tci_prim p, int a, int b)
{
    return tci_math_prim(m, p, TC_BOOL, 2, a, b, 0);
}

static inline int tci_math_select(tci_math *m, int mask, int a, int b)
{
    return tci_math_prim(m, TCI_P_SELECT, (tc_dtype)m->insts[a].dtype, 3, mask, a, b);
}

static inline int tci_math_to_bits(tci_math *m, int a)
{
    return tci_math_prim(m, TCI_P_BITS, m->bits, 1, a, 0, 0);
}

static inline int tci_math_from_bits(tci_math *m, int a)
{
    return tci_math_prim(m, TCI_P_BITS, m->t, 1, a, 0, 0);
}

/* Horner's rule by FMA: c[0] x^(n-1) + ... + c[n-1]. */
static inline int tci_math_poly(tci_math *m, int x, const double *c, int n)
{
    int y = tci_math_k(m, c[0]);
    for (int i = 1; i < n; i++) {
        y = tci_math_fma(m, y, x, tci_math_k(m, c[i]));
    }
    return y;
}

static inline int tci_math_lane1(tci_math *m, tci_helper_id id, int a, int mask)
{
    int call = tci_math_prim(m, TCI_P_LANE1, m->t, 2, a, mask, 0);
    m->insts[call].imm = (int16_t)id;
    return call;
}

/* 2^n as a float, from the sum `shifted` whose low bits hold n + 127 (f64: 1023). */
static inline int tci_math_exp2i(tci_math *m, int shifted)
{
    int digits = tci_math_ki(m, m->t == TC_F64 ? 52 : 23);
    int field = tci_math_2(m, TCI_P_SHL, tci_math_to_bits(m, shifted), digits);
    return tci_math_from_bits(m, field);
}

/* p 2^n, from bits that hold n + 2 * 127 (f64: 2 * 1023): both halves of n give normal factors, and
 * the first product is exact. */
static inline int tci_math_scale(tci_math *m, int p, int bits)
{
    int half = tci_math_2(m, TCI_P_SHR, bits, tci_math_ki(m, 1));
    int rest = tci_math_2(m, TCI_P_SUB, bits, half);
    int digits = tci_math_ki(m, m->t == TC_F64 ? 52 : 23);
    int low = tci_math_2(m, TCI_P_SHL, half, digits);
    int high = tci_math_2(m, TCI_P_SHL, rest, digits);
    p = tci_math_2(m, TCI_P_MUL, p, tci_math_from_bits(m, low));
    return tci_math_2(m, TCI_P_MUL, p, tci_math_from_bits(m, high));
}

/* The sign bit of x put on a result that is >= 0. */
static inline int tci_math_copy_sign(tci_math *m, int y, int x)
{
    int bit = tci_math_ki(m, m->t == TC_F64 ? INT64_MIN : INT32_MIN);
    int sign = tci_math_2(m, TCI_P_AND, tci_math_to_bits(m, x), bit);
    return tci_math_from_bits(m, tci_math_2(m, TCI_P_OR, tci_math_to_bits(m, y), sign));
}

/* x itself where it is a zero of either sign, else y: for odd functions. */
static inline int tci_math_keep_zero(tci_math *m, int x, int y)
{
    return tci_math_select(m, tci_math_compare(m, TCI_P_EQ, x, tci_math_k(m, 0.0)), x, y);
}

/* ---- the two widths ---- */

static inline bool tci_math_is_wide(const tci_math *m)
{
    return m->t == TC_F64;
}

/* The constant of this width. */
static inline int tci_math_k_of(tci_math *m, double narrow, double wide)
{
    return tci_math_k(m, tci_math_is_wide(m) ? wide : narrow);
}

static inline int tci_math_digits(const tci_math *m)
{
    return tci_math_is_wide(m) ? 52 : 23;
}

static inline int tci_math_magic_of(tci_math *m, int bias)
{
    return tci_math_k_of(m, 12582912.0 + bias, 0x1.8p52 + bias);
}

static inline int tci_math_bias(const tci_math *m)
{
    return tci_math_is_wide(m) ? 1023 : 127;
}

/* ---- values in two parts ---- */

/* a and b as one: a + b rounded, and what that lost; |a| >= |b|, or a is 0. */
static inline tci_math_pair tci_math_sum(tci_math *m, int a, int b)
{
    int hi = tci_math_2(m, TCI_P_ADD, a, b);
    tci_math_pair y = {hi, tci_math_2(m, TCI_P_SUB, b, tci_math_2(m, TCI_P_SUB, hi, a))};
    return y;
}

/* a b, and what rounding that lost. */
static inline tci_math_pair tci_math_product(tci_math *m, int a, int b)
{
    int hi = tci_math_2(m, TCI_P_MUL, a, b);
    tci_math_pair y = {hi, tci_math_fma(m, a, b, tci_math_1(m, TCI_P_NEG, hi))};
    return y;
}

/* ---- ops/math_f32.c ---- */
TCI_FN void tci_math_exp_f32(tci_math *m);
TCI_FN void tci_math_expn_f32(tci_math *m);
TCI_FN void tci_math_log_f32(tci_math *m);
TCI_FN void tci_math_trig_f32(tci_math *m, bool cosine);
TCI_FN void tci_math_tanh_f32(tci_math *m);
TCI_FN void tci_math_sigmoid_f32(tci_math *m);
TCI_FN void tci_math_erf_f32(tci_math *m);
TCI_FN void tci_math_gelu_f32(tci_math *m);
TCI_FN void tci_math_geluh_f32(tci_math *m);
TCI_FN void tci_math_erfc_f32(tci_math *m);
TCI_FN void tci_math_tan_f32(tci_math *m);

/* ---- ops/math_f64.c: of both widths, then of f64 ---- */
TCI_FN void tci_math_expm1(tci_math *m);
TCI_FN void tci_math_exp2(tci_math *m);
TCI_FN void tci_math_sinh(tci_math *m);
TCI_FN void tci_math_cosh(tci_math *m);
TCI_FN void tci_math_log2(tci_math *m);
TCI_FN void tci_math_log10(tci_math *m);
TCI_FN void tci_math_log1p(tci_math *m);
TCI_FN void tci_math_sinc(tci_math *m);
TCI_FN void tci_math_pow(tci_math *m);
TCI_FN void tci_math_log_low(tci_math *m, bool base2);
TCI_FN void tci_math_copysign(tci_math *m);
TCI_FN void tci_math_exp_f64(tci_math *m);
TCI_FN void tci_math_expn_f64(tci_math *m);
TCI_FN void tci_math_log_f64(tci_math *m);
TCI_FN void tci_math_trig_f64(tci_math *m, bool cosine);
TCI_FN void tci_math_tan_f64(tci_math *m);
TCI_FN void tci_math_tanh_f64(tci_math *m);
TCI_FN void tci_math_sigmoid_f64(tci_math *m);
TCI_FN void tci_math_erf_f64(tci_math *m);
TCI_FN void tci_math_erfc_f64(tci_math *m);
TCI_FN void tci_math_gelu_f64(tci_math *m);
TCI_FN int tci_math_log_f32_of(tci_math *m, int x); /* log x, x finite and above 0 */
/* log x in f64, x finite and above 0; lost, if not NULL: what its last roundings took. */
TCI_FN int tci_math_log_of(tci_math *m, int x, int *lost);
/* sin(pi r) / (pi r) - 1, |r| <= 1/2. */
TCI_FN int tci_math_half_turn(tci_math *m, int r);

/* ---- ops/inverse_trig.c ---- */
TCI_FN void tci_math_atan2(tci_math *m);
TCI_FN void tci_math_asin(tci_math *m);
TCI_FN void tci_math_acos(tci_math *m);

/* ---- ops/special_functions.c ---- */
TCI_FN void tci_math_erfinv(tci_math *m);
TCI_FN void tci_math_lgamma(tci_math *m);
TCI_FN void tci_math_digamma(tci_math *m);
TCI_FN void tci_math_trigamma(tci_math *m);

#endif
