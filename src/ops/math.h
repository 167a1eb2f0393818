/* ops/math.h - declares expansions of math functions: straight-line programs of scalar primitives,
 * one list of instructions per function and dtype. The scalar evaluator, the block interpreter and
 * the function text of every dialect are generated from this one definition. */
#ifndef TCI_OPS_MATH_H
#define TCI_OPS_MATH_H

#include "prim.h"

enum { TCI_RECIPE_MAX = 320, TCI_RECIPES_MAX = 5504 }; /* instructions of the longest, of all */
/* A division of f32 whose operands and quotient are normal, or 0 is divided: the same value, for
 * which a dialect may need no branch. */
enum { TCI_DIV_NORMAL = 1 };
enum { TCI_RECIPE_ARG = 0, TCI_RECIPE_CONST = 1, TCI_RECIPE_PRIM = 2 };

/* One value of an expansion; operands are indices of earlier values. Invariant: args[i] < own
 * index. */
typedef struct tci_step_inst {
    uint8_t kind; /* TCI_RECIPE_* */
    uint8_t prim; /* BASE prim when kind is PRIM */
    int8_t dtype; /* compute dtype of the value */
    uint8_t n_args;
    int16_t args[3];
    int16_t imm;     /* ARG: which argument; LANE1: tci_helper_id; DIV: TCI_DIV_NORMAL or 0 */
    tci_value value; /* CONST */
} tci_step_inst;

typedef struct tci_recipe {
    const tci_step_inst *insts; /* the last one is the result */
    int n;
} tci_recipe;

/* Recipe of a MATH prim for f32 or f64. Built once at first use, thread-safe, process lifetime. */
TCI_FN const tci_recipe *tci_math_recipe(tci_prim p, tc_dtype t);

/* Coefficients of the f32 approximation Phi(-a) e^(a^2/2) = N(a) / D(a), 0 <= a, the highest first:
 * of D (below) or N. Sets *n. */
TCI_FN const double *tci_math_mills(bool below, int *n);

/* Powers of whole and half numbers up to 8 (ops/pow_constant_exponent.c): which exponents, and x to
 * the b of one as an expansion of x in the given memory, for TCI_POWER_MAX. */
enum { TCI_POWER_MAX = 64 };
TCI_FN bool tci_power_is_plain(double b);
TCI_FN tci_recipe tci_power_recipe(tci_step_inst *insts, tc_dtype t, double b);

/* Scalar helpers (slow paths): C source that is both compiled here and printed into generated code.
 * A text is ONE static function, `T name(T a)`, over + - * / fma, integer operations, local unions
 * and static const arrays; it starts with "static ", so attributes may be put before it. It may
 * call the helper named in `needs`: its text (and what that needs) comes first, once. */
typedef enum tci_helper_id {
    TCI_H_NONE, /* 0: no helper */
    TCI_H_TRIG_SLOW_F32,
    TCI_H_SIN_SLOW_F32,
    TCI_H_COS_SLOW_F32,
    TCI_H_LOG_EDGE_F32,
    TCI_H_TAN_SLOW_F32,
    TCI_H_TRIG_F64,
    TCI_H_SIN_F64,
    TCI_H_COS_F64,
    TCI_H_TAN_F64,
    TCI_H_LOG1PEXP,
    TCI_H_LOG1PEXP_F32,
    TCI_H_LOG1PEXP_HI_F32,
    TCI_H_LOG1PEXP_LO_F32,
    TCI_H_LOG1PEXP_HI_F64,
    TCI_H_LOG1PEXP_LO_F64,
    TCI_H_LOG1PEXP2_HI_F32,
    TCI_H_LOG1PEXP2_LO_F32,
    TCI_H_LOG1PEXP2_HI_F64,
    TCI_H_LOG1PEXP2_LO_F64,
    TCI_H_COUNT
} tci_helper_id;

typedef struct tci_helper {
    const char *name; /* as in its text, e.g. "tc_h_sin_slow_f32" */
    int8_t dtype;
    uint8_t needs;       /* tci_helper_id, or TCI_H_NONE */
    const char *text;    /* fma is TC_FMA_F64(a, b, c), a macro the surrounding text defines */
    float (*f32)(float); /* compiled, of its dtype; neither: only other helpers call it */
    double (*f64)(double);
} tci_helper;
TCI_FN const tci_helper *tci_helper_get(int id);
TCI_FN int tci_helper_count(void);

/* Value of any prim (BASE or MATH) on scalars: constant folding, the reference and the judge of
 * dialects. dtype = operands' compute dtype (for SELECT: of a and b), to = result dtype (CAST,
 * BITS, TOINT); imm as in tci_step_inst. Prims in ops/prim.c. */
/* The high half of the exact product; POWI and GCD. */
TCI_FN uint64_t tci_mulhi_u64(uint64_t a, uint64_t b);
TCI_FN uint64_t tci_powi_u64(uint64_t a, uint64_t b);
TCI_FN int64_t tci_powi_i64(int64_t a, int64_t b);
TCI_FN uint64_t tci_gcd_u64(uint64_t a, uint64_t b);
TCI_FN int64_t tci_gcd_i64(int64_t a, int64_t b);
TCI_FN tci_value tci_recipe_eval(const tci_recipe *r, const tci_value *args);
TCI_FN tci_value tci_prim_eval(tci_prim p, tc_dtype dtype, tc_dtype to, int imm,
                               const tci_value *args);

#endif
