/* ops/math.c - expansions of math functions (exp, log, sin, erf, ...) into straight-line programs
 * of scalar primitives.
 *
 * In: a MATH prim and f32 or f64. Out: a straight-line program over BASE prims, the same for the
 * block interpreter, the scalar evaluator and every dialect, so all compute the same bits.
 *
 * This file has the table; the expansions are in ops/math_f32.c, ops/math_f64.c (f64, and both
 * widths), ops/inverse_trig.c and ops/special_functions.c.
 *
 * Conventions: clamps put the constant first, because PMAX(c, x) and PMIN(c, x) give x when x is
 * NaN. "Magic" rounding adds 1.5 * 2^23, which leaves the nearest integer in the low bits of the
 * sum; a bias for the exponent field can be added at the same time. Odd functions preserve -0.
 * Invariant: an expansion has at most TCI_RECIPE_MAX instructions; its last one is the result. */
#include <pthread.h>

#include "math_expansion.h"

static tci_step_inst tci_math_insts[TCI_RECIPES_MAX];
static tci_recipe tci_math_recipes[TCI_P_COUNT - TCI_P_BASE_COUNT][2];
static pthread_once_t tci_math_once = PTHREAD_ONCE_INIT;

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
    case TCI_P_COUNT: break; /* no expansion */
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
