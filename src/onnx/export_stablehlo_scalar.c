/* onnx/export_stablehlo_scalar.c - exports elementwise nodes as StableHLO.
 *
 * In: a node and the names of its operands. Out: statements, and the name of the result.
 *
 * Design: kernel/lower_graph.c expresses a node in the scalar operations of ops/prim.h, corner
 * cases included (saturating casts, rounding of f16 and bf16, the sign of a remainder, Philox).
 * Each of these becomes one or a few StableHLO ops on whole tensors. A function without an op in
 * StableHLO becomes tc's own expansion (ops/math.h). Differences from tc's bits: StableHLO has no
 * fused multiply-add, so FMA rounds twice; exp, sin and other functions are the engine's own. */
#include "export_stablehlo.h"
#include "../graph/contraction_descriptor.h"
#include "../kernel/lower_graph.h"
#include "../ops/math.h"

#include <string.h>

/* ---- single operations ---- */

static const char *tci_hlo_unary(tci_hlo *h, const char *op, const tci_hlo_shape *shape, tc_dtype t,
                                 const char *a)
{
    return tci_hlo_let(h, "stablehlo.%s %s : %s", op, a, tci_hlo_type(h, t, shape));
}

static const char *tci_hlo_bits(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from, tc_dtype to,
                                const char *a)
{
    return tci_hlo_let(h, "stablehlo.bitcast_convert %s : (%s) -> %s", a,
                       tci_hlo_type(h, from, shape), tci_hlo_type(h, to, shape));
}

/* Truncates, saturates, NaN gives 0. */
static const char *tci_hlo_float_to_int(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from,
                                        tc_dtype to, const char *a)
{
    bool is_signed = tci_dtype_is_signed(to);
    int bits = 8 * tci_dtype_get(to)->bytes - is_signed;
    double above = (double)((uint64_t)1 << (bits - 1)) * 2, least = is_signed ? -above : 0;
    uint64_t most = ~(uint64_t)0 >> (64 - bits);
    const char *zero = tci_hlo_whole(h, shape, to, 0);
    const char *low = tci_hlo_whole(h, shape, to, is_signed ? (int64_t)~most : 0);
    const char *high = tci_hlo_whole(h, shape, to, (int64_t)most);
    const char *is_nan = tci_hlo_compare(h, "NE", shape, from, a, a);
    const char *is_low = tci_hlo_compare(h, "LE", shape, from, a,
                                         tci_hlo_float(h, shape, from, least));
    const char *is_high = tci_hlo_compare(h, "GE", shape, from, a,
                                          tci_hlo_float(h, shape, from, above));
    const char *y = tci_hlo_convert(h, shape, from, to, a);
    y = tci_hlo_select(h, shape, to, is_high, high, y);
    y = tci_hlo_select(h, shape, to, is_low, low, y);
    return tci_hlo_select(h, shape, to, is_nan, zero, y);
}

static const char *tci_hlo_cast(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from, tc_dtype to,
                                const char *a)
{
    if (to == TC_BOOL) {
        return tci_hlo_compare(h, "NE", shape, from, a, tci_hlo_whole(h, shape, from, 0));
    }
    bool cuts = tci_dtype_is_float(from) && !tci_dtype_is_float(to);
    return cuts ? tci_hlo_float_to_int(h, shape, from, to, a)
                : tci_hlo_convert(h, shape, from, to, a);
}

/* DIV and REM of integers: 0 by 0; MIN by -1 without overflow. */
static const char *tci_hlo_divide(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, bool rest,
                                  const char *a, const char *b)
{
    const char *zero = tci_hlo_whole(h, shape, t, 0), *one = tci_hlo_whole(h, shape, t, 1);
    const char *by_zero = tci_hlo_compare(h, "EQ", shape, t, b, zero), *y;
    const char *by = tci_hlo_select(h, shape, t, by_zero, one, b);
    if (!tci_dtype_is_signed(t)) {
        y = tci_hlo_binary(h, rest ? "remainder" : "divide", shape, t, a, by);
        return tci_hlo_select(h, shape, t, by_zero, zero, y);
    }
    const char *negates = tci_hlo_compare(h, "EQ", shape, t, b, tci_hlo_whole(h, shape, t, -1));
    by = tci_hlo_select(h, shape, t, negates, one, by);
    y = tci_hlo_binary(h, rest ? "remainder" : "divide", shape, t, a, by);
    y = tci_hlo_select(h, shape, t, negates, rest ? zero : tci_hlo_unary(h, "negate", shape, t, a),
                       y);
    return tci_hlo_select(h, shape, t, by_zero, zero, y);
}

/* A right shift of any integers by a number of bits below the width. */
static const char *tci_hlo_shift_right(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t,
                                       const char *a, int by)
{
    return tci_hlo_binary(h,
                          tci_dtype_is_signed(t) ? "shift_right_arithmetic" : "shift_right_logical",
                          shape, t, a, tci_hlo_whole(h, shape, t, by));
}

/* The high half of the product of two u64, from those of their halves. */
static const char *tci_hlo_high_u64(tci_hlo *h, const tci_hlo_shape *shape, const char *a,
                                    const char *b)
{
    const tc_dtype t = TC_U64;
    const char *half = tci_hlo_whole(h, shape, t, 0xffffffff);
    const char *al = tci_hlo_binary(h, "and", shape, t, a, half);
    const char *bl = tci_hlo_binary(h, "and", shape, t, b, half);
    const char *ah = tci_hlo_shift_right(h, shape, t, a, 32);
    const char *bh = tci_hlo_shift_right(h, shape, t, b, 32);
    const char *low = tci_hlo_binary(h, "multiply", shape, t, al, bl);
    const char *cross = tci_hlo_binary(h, "multiply", shape, t, ah, bl);
    cross = tci_hlo_binary(h, "add", shape, t, cross, tci_hlo_shift_right(h, shape, t, low, 32));
    const char *other = tci_hlo_binary(h, "multiply", shape, t, al, bh);
    other = tci_hlo_binary(h, "add", shape, t, other,
                           tci_hlo_binary(h, "and", shape, t, cross, half));
    const char *high = tci_hlo_binary(h, "multiply", shape, t, ah, bh);
    high = tci_hlo_binary(h, "add", shape, t, high, tci_hlo_shift_right(h, shape, t, cross, 32));
    return tci_hlo_binary(h, "add", shape, t, high, tci_hlo_shift_right(h, shape, t, other, 32));
}

/* Correction of the high half of the unsigned product where a is negative. */
static const char *tci_hlo_sign_part(tci_hlo *h, const tci_hlo_shape *shape, const char *a,
                                     const char *b)
{
    const char *zero = tci_hlo_whole(h, shape, TC_I64, 0);
    const char *is = tci_hlo_compare(h, "LT", shape, TC_I64, a, zero);
    return tci_hlo_select(h, shape, TC_I64, is, b, zero);
}

static const char *tci_hlo_mulhi(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a,
                                 const char *b)
{
    int bits = 8 * tci_dtype_get(t)->bytes;
    tc_dtype wide = tci_dtype_is_signed(t) ? TC_I64 : TC_U64;
    if (t == TC_BOOL) {
        return tci_hlo_whole(h, shape, t, 0);
    } else if (bits < 64) {
        a = tci_hlo_binary(h, "multiply", shape, wide, tci_hlo_convert(h, shape, t, wide, a),
                           tci_hlo_convert(h, shape, t, wide, b));
        return tci_hlo_convert(h, shape, wide, t, tci_hlo_shift_right(h, shape, wide, a, bits));
    } else if (t == TC_U64) {
        return tci_hlo_high_u64(h, shape, a, b);
    }
    const char *high = tci_hlo_high_u64(h, shape, tci_hlo_bits(h, shape, t, TC_U64, a),
                                        tci_hlo_bits(h, shape, t, TC_U64, b));
    high = tci_hlo_bits(h, shape, TC_U64, t, high);
    high = tci_hlo_binary(h, "subtract", shape, t, high, tci_hlo_sign_part(h, shape, a, b));
    return tci_hlo_binary(h, "subtract", shape, t, high, tci_hlo_sign_part(h, shape, b, a));
}

/* a to the b of integers by repeated squaring; of b < 0 the integer part of 1 / a^-b, 0 of 0. */
static const char *tci_hlo_powi(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a,
                                const char *b)
{
    const char *zero = tci_hlo_whole(h, shape, t, 0), *one = tci_hlo_whole(h, shape, t, 1);
    const char *y = one, *square = a, *rest = b;
    for (int bits = 8 * tci_dtype_get(t)->bytes - tci_dtype_is_signed(t), i = 0; i < bits; i++) {
        const char *odd = tci_hlo_binary(h, "and", shape, t, rest, one);
        odd = tci_hlo_compare(h, "NE", shape, t, odd, zero);
        y = tci_hlo_select(h, shape, t, odd, tci_hlo_binary(h, "multiply", shape, t, y, square), y);
        square = tci_hlo_binary(h, "multiply", shape, t, square, square);
        rest = tci_hlo_shift_right(h, shape, t, rest, 1);
    }
    if (!tci_dtype_is_signed(t)) {
        return y;
    }
    const char *minus = tci_hlo_whole(h, shape, t, -1);
    const char *odd = tci_hlo_compare(h, "NE", shape, t, tci_hlo_binary(h, "and", shape, t, b, one),
                                      zero);
    const char *below = tci_hlo_select(h, shape, t, odd, minus, one);
    below = tci_hlo_select(h, shape, t, tci_hlo_compare(h, "EQ", shape, t, a, minus), below, zero);
    below = tci_hlo_select(h, shape, t, tci_hlo_compare(h, "EQ", shape, t, a, one), one, below);
    return tci_hlo_select(h, shape, t, tci_hlo_compare(h, "LT", shape, t, b, zero), below, y);
}

/* Euclid's algorithm on the magnitudes, for all elements until each has come to its end. */
static const char *tci_hlo_gcd(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a,
                               const char *b)
{
    static const tc_dtype unsigned_of[] = {TC_U8, TC_U16, TC_U32, TC_U64};
    const tci_hlo_shape point = {0, NULL, ""};
    int bytes = tci_dtype_get(t)->bytes;
    tc_dtype u = unsigned_of[bytes == 8 ? 3 : bytes / 2];
    const char *type = tci_hlo_type(h, u, shape), *bits = tci_hlo_type(h, TC_BOOL, shape);
    const char *list = tci_hlo_list(h, shape->rank, NULL);
    if (tci_dtype_is_signed(t)) {
        a = tci_hlo_bits(h, shape, t, u, tci_hlo_unary(h, "abs", shape, t, a));
        b = tci_hlo_bits(h, shape, t, u, tci_hlo_unary(h, "abs", shape, t, b));
    }
    const char *x = tci_hlo_name(h), *y = tci_hlo_name(h), *r = tci_hlo_name(h);
    tci_str_printf(&h->out, "  %s:2 = stablehlo.while(%s = %s, %s = %s) : %s, %s\n  cond {\n", r, x,
                   a, y, b, type, type);
    const char *more = tci_hlo_compare(h, "NE", shape, u, y, tci_hlo_whole(h, shape, u, 0));
    const char *none = tci_hlo_whole(h, &point, TC_BOOL, 0);
    more = tci_hlo_let(h,
                       "stablehlo.reduce(%s init: %s) applies stablehlo.or across dimensions = "
                       "%s : (%s, tensor<i1>) -> tensor<i1>",
                       more, none, list, bits);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<i1>\n  } do {\n", more);
    const char *zero = tci_hlo_whole(h, shape, u, 0);
    const char *ended = tci_hlo_compare(h, "EQ", shape, u, y, zero);
    const char *rest = tci_hlo_divide(h, shape, u, true, x, y);
    const char *next = tci_hlo_select(h, shape, u, ended, x, y);
    tci_str_printf(&h->out, "  stablehlo.return %s, %s : %s, %s\n  }\n", next, rest, type, type);
    const char *first = tci_scratch_printf(h->walk->s, "%s#0", r);
    return tci_dtype_is_signed(t) ? tci_hlo_bits(h, shape, u, t, first) : first;
}

/* Towards zero. */
static const char *tci_hlo_trunc(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a)
{
    const char *below = tci_hlo_compare(h, "LT", shape, t, a, tci_hlo_whole(h, shape, t, 0));
    return tci_hlo_select(h, shape, t, below, tci_hlo_unary(h, "ceil", shape, t, a),
                          tci_hlo_unary(h, "floor", shape, t, a));
}

/* To the nearest f16 or bf16, and back. */
static const char *tci_hlo_round(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype half,
                                 const char *a)
{
    return tci_hlo_convert(h, shape, half, TC_F32, tci_hlo_convert(h, shape, TC_F32, half, a));
}

/* The StableHLO op of a MATH prim; NULL: its expansion. */
static const char *tci_hlo_math_op(tci_prim p)
{
    switch ((int)p) {
    case TCI_P_EXP:
    case TCI_P_EXPN: return "exponential";
    case TCI_P_LOG: return "log";
    case TCI_P_SIN: return "sine";
    case TCI_P_COS: return "cosine";
    case TCI_P_TAN: return "tan";
    case TCI_P_TANH: return "tanh";
    case TCI_P_SIGMOID: return "logistic";
    case TCI_P_EXPM1: return "exponential_minus_one";
    case TCI_P_LOG1P: return "log_plus_one";
    default: return NULL;
    }
}

static const char *tci_hlo_prim(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                tc_dtype to, const char *const *x);

/* True if a step adds a constant so large that the sum is a whole number, as expansions round. XLA
 * takes (x + c) - c for x, so what is added to must be rounded before. */
static bool tci_hlo_rounds(const tci_recipe *r, const tci_step_inst *s)
{
    int last = s->args[s->n_args - 1];
    double most = r->insts[last].dtype == TC_F32 ? 8388608.0 : 4503599627370496.0;
    return (s->prim == TCI_P_ADD || s->prim == TCI_P_FMA) &&
           r->insts[last].kind == TCI_RECIPE_CONST && r->insts[last].value.f >= most &&
           r->insts[last].value.f < 2 * most;
}

/* One step of an expansion. */
static const char *tci_hlo_step(tci_hlo *h, const tci_hlo_shape *shape, const tci_recipe *r,
                                const tci_step_inst *s, const char **x)
{
    tc_dtype t = (tc_dtype)r->insts[s->args[s->prim == TCI_P_SELECT]].dtype;
    if (!tci_hlo_rounds(r, s)) {
        return tci_hlo_prim(h, shape, (tci_prim)s->prim, t, (tc_dtype)s->dtype, x);
    }
    const char *y = s->prim == TCI_P_FMA ? tci_hlo_binary(h, "multiply", shape, t, x[0], x[1])
                                         : x[0];
    y = tci_hlo_unary(h, "round_nearest_even", shape, t, y);
    return tci_hlo_binary(h, "add", shape, t, y, x[s->n_args - 1]);
}

/* The expansion of a MATH prim, step by step. */
static const char *tci_hlo_recipe(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                  const char *const *x)
{
    const tci_recipe *r = tci_math_recipe(p, t);
    const char **at = TCI_NEW_ARRAY(h->walk->s, const char *, r->n);
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *s = &r->insts[i];
        const char *args[3] = {NULL, NULL, NULL};
        for (int a = 0; a < s->n_args && s->kind == TCI_RECIPE_PRIM; a++) {
            args[a] = at[s->args[a]];
        }
        if (s->kind == TCI_RECIPE_ARG) {
            at[i] = x[s->imm];
        } else if (s->kind == TCI_RECIPE_CONST) {
            at[i] = tci_hlo_splat(h, shape, (tc_dtype)s->dtype, s->value);
        } else {
            at[i] = tci_hlo_step(h, shape, r, s, args);
        }
    }
    return at[r->n - 1];
}

static const char *tci_hlo_math(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                const char *const *x)
{
    const char *op = tci_hlo_math_op(p);
    if (op) {
        return tci_hlo_unary(h, op, shape, t, x[0]);
    } else if (p == TCI_P_POW || p == TCI_P_ATAN2) {
        return tci_hlo_binary(h, p == TCI_P_POW ? "power" : "atan2", shape, t, x[0], x[1]);
    } else if (p == TCI_P_LOG_LOW || p == TCI_P_LOG2_LOW) {
        return tci_hlo_whole(h, shape, t, 0); /* a correction below the engine's own error */
    }
    return tci_hlo_recipe(h, shape, p, t, x);
}

/* One scalar operation on operands of dtype t, with a result of dtype `to` where that is another
 * one. */
static const char *tci_hlo_prim(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                tc_dtype to, const char *const *x)
{
    bool whole = !tci_dtype_is_float(t);
    switch (p) {
    case TCI_P_ADD: return tci_hlo_binary(h, "add", shape, t, x[0], x[1]);
    case TCI_P_SUB: return tci_hlo_binary(h, "subtract", shape, t, x[0], x[1]);
    case TCI_P_MUL: return tci_hlo_binary(h, "multiply", shape, t, x[0], x[1]);
    case TCI_P_DIV:
    case TCI_P_REM:
        return whole ? tci_hlo_divide(h, shape, t, p == TCI_P_REM, x[0], x[1])
                     : tci_hlo_binary(h, p == TCI_P_REM ? "remainder" : "divide", shape, t, x[0],
                                      x[1]);
    case TCI_P_FMA:
        return tci_hlo_binary(h, "add", shape, t,
                              tci_hlo_binary(h, "multiply", shape, t, x[0], x[1]), x[2]);
    case TCI_P_NEG: return tci_hlo_unary(h, "negate", shape, t, x[0]);
    case TCI_P_ABS: return tci_hlo_unary(h, "abs", shape, t, x[0]);
    case TCI_P_SQRT: return tci_hlo_unary(h, "sqrt", shape, t, x[0]);
    case TCI_P_PMIN:
    case TCI_P_PMAX:
        return tci_hlo_select(
            h, shape, t, tci_hlo_compare(h, p == TCI_P_PMIN ? "LT" : "GT", shape, t, x[0], x[1]),
            x[0], x[1]);
    case TCI_P_FLOOR: return tci_hlo_unary(h, "floor", shape, t, x[0]);
    case TCI_P_CEIL: return tci_hlo_unary(h, "ceil", shape, t, x[0]);
    case TCI_P_TRUNC: return tci_hlo_trunc(h, shape, t, x[0]);
    case TCI_P_RINT: return tci_hlo_unary(h, "round_nearest_even", shape, t, x[0]);
    case TCI_P_EQ: return tci_hlo_compare(h, "EQ", shape, t, x[0], x[1]);
    case TCI_P_LT: return tci_hlo_compare(h, "LT", shape, t, x[0], x[1]);
    case TCI_P_LE: return tci_hlo_compare(h, "LE", shape, t, x[0], x[1]);
    case TCI_P_AND: return tci_hlo_binary(h, "and", shape, t, x[0], x[1]);
    case TCI_P_OR: return tci_hlo_binary(h, "or", shape, t, x[0], x[1]);
    case TCI_P_XOR: return tci_hlo_binary(h, "xor", shape, t, x[0], x[1]);
    case TCI_P_NOT: return tci_hlo_unary(h, "not", shape, t, x[0]);
    case TCI_P_SHL: return tci_hlo_binary(h, "shift_left", shape, t, x[0], x[1]);
    case TCI_P_SHR:
        return tci_hlo_binary(h,
                              tci_dtype_is_signed(t) ? "shift_right_arithmetic"
                                                     : "shift_right_logical",
                              shape, t, x[0], x[1]);
    case TCI_P_MULHI: return tci_hlo_mulhi(h, shape, t, x[0], x[1]);
    case TCI_P_POWI: return tci_hlo_powi(h, shape, t, x[0], x[1]);
    case TCI_P_GCD: return tci_hlo_gcd(h, shape, t, x[0], x[1]);
    case TCI_P_SELECT: return tci_hlo_select(h, shape, t, x[0], x[1], x[2]);
    case TCI_P_CAST: return tci_hlo_cast(h, shape, t, to, x[0]);
    case TCI_P_BITS: return tci_hlo_bits(h, shape, t, to, x[0]);
    case TCI_P_ROUND16: return tci_hlo_round(h, shape, TC_F16, x[0]);
    case TCI_P_ROUNDB16: return tci_hlo_round(h, shape, TC_BF16, x[0]);
    case TCI_P_TOINT:
        return tci_hlo_convert(h, shape, t, to, x[0]);
        TCI_MATH_PRIMS(TCI_PRIM_CASE) return tci_hlo_math(h, shape, p, t, x);
    case TCI_P_LANE1: /* slow paths of expansions that have an op: sine, cosine, tan, log */
    case TCI_P_COUNT: break;
    }
    TCI_ASSERT(h->walk->s, false);
    return "";
}

/* ---- the instructions of a node ---- */

typedef struct tci_hlo_lowering {
    const tci_node *n;
    tci_kernel *k;
} tci_hlo_lowering;

/* Operands are loads, one each; numbers that tc knows stay constants, which prims are chosen by. */
static int tci_hlo_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    const tci_hlo_lowering *of = (const tci_hlo_lowering *)l->user;
    (void)idx;
    for (int i = 0; i < of->n->n_in; i++) {
        if (of->n->in[i] == n && tci_below(n, TCI_THROUGH_VIEWS, NULL)->op != TCI_OP_CONST) {
            return tci_lower_load(l, i, (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute,
                                  tci_kx_const(l->k, 0), guard);
        }
    }
    return -1;
}

/* An index expression, in i64. */
static const char *tci_hlo_index(tci_hlo *h, const tci_hlo_shape *shape, const tci_kernel *k, int x)
{
    const tci_kx *e = &k->kx[x];
    const char *a = e->a >= 0 ? tci_hlo_index(h, shape, k, e->a) : NULL;
    const char *c = e->op == TCI_KX_AXIS || e->op == TCI_KX_ADD
                        ? NULL
                        : tci_hlo_whole(h, shape, TC_I64, tci_hlo_size(h, e->c));
    switch (e->op) {
    case TCI_KX_CONST: return c;
    case TCI_KX_AXIS:
        return tci_hlo_let(h, "stablehlo.iota dim = %d : %s", tci_kx_number(e),
                           tci_hlo_type(h, TC_I64, shape));
    case TCI_KX_ADD:
        return tci_hlo_binary(h, "add", shape, TC_I64, a, tci_hlo_index(h, shape, k, e->b));
    case TCI_KX_MUL: return tci_hlo_binary(h, "multiply", shape, TC_I64, a, c);
    case TCI_KX_DIV: return tci_hlo_binary(h, "divide", shape, TC_I64, a, c);
    case TCI_KX_MOD: return tci_hlo_binary(h, "remainder", shape, TC_I64, a, c);
    default: TCI_ASSERT(h->walk->s, false); /* BOUND and VALUE stand in no index of these nodes */
    }
    return "";
}

/* Operand i in the compute dtype and the shape of the result. */
static const char *tci_hlo_loaded(tci_hlo *h, const tci_hlo_shape *shape, const tci_node *x,
                                  tc_dtype t, const char *name)
{
    tci_hlo_shape own = tci_hlo_shape_of(h, x->rank, x->shape);
    name = x->dtype == t ? name : tci_hlo_convert(h, &own, (tc_dtype)x->dtype, t, name);
    return x->rank == shape->rank ? name : tci_hlo_broadcast(h, t, &own, shape, NULL, name);
}

static const char *tci_hlo_inst(tci_hlo *h, const tci_hlo_shape *shape, const tci_kernel *k,
                                const tci_kinst *i, const tci_node *n, const char *const *in,
                                const char *const *values)
{
    const char *args[3];
    switch (i->op) {
    case TCI_K_CONST: return tci_hlo_splat(h, shape, (tc_dtype)i->dtype, i->value);
    case TCI_K_LOAD: {
        int operand = tci_kinst_number(i);
        return tci_hlo_loaded(h, shape, n->in[operand], (tc_dtype)i->dtype, in[operand]);
    }
    case TCI_K_INDEX:
        return tci_hlo_convert(h, shape, TC_I64, (tc_dtype)i->dtype,
                               tci_hlo_index(h, shape, k, i->x));
    case TCI_K_PRIM:
        for (int a = 0; a < i->n_args; a++) {
            args[a] = values[i->args[a]];
        }
        return tci_hlo_prim(h, shape, (tci_prim)i->prim,
                            (tc_dtype)k->insts[i->args[i->prim == TCI_P_SELECT]].dtype,
                            (tc_dtype)i->dtype, args);
    default: TCI_ASSERT(h->walk->s, false); /* no guards, reductions or literal slots in here */
    }
    return "";
}

/* Marks what the last instruction needs. */
static bool *tci_hlo_live(tci_hlo *h, const tci_kernel *k, int root)
{
    bool *live = TCI_NEW_ARRAY(h->walk->s, bool, k->n_insts);
    live[root] = true;
    for (int i = root; i >= 0; i--) {
        for (int a = 0; live[i] && a < k->insts[i].n_args; a++) {
            live[k->insts[i].args[a]] = true;
        }
    }
    return live;
}

TCI_FN const char *tci_hlo_scalar_out(tci_hlo *h, tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_kernel *k = tci_kernel_make(s);
    tci_hlo_lowering of = {n, k};
    tci_lower l;
    int *idx = TCI_NEW_ARRAY(s, int, n->rank + 1);
    tci_lower_init(&l, s, k);
    l.user = &of;
    l.access = tci_hlo_access;
    for (int i = 0; i < n->rank; i++) {
        idx[i] = tci_kx_axis(k, tci_kernel_axis(k, n->shape[i], false));
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_kernel_operand(k, (tc_dtype)n->in[i]->dtype, false, tci_node_count(n->in[i]));
    }
    int root = tci_lower_value(&l, n, idx, 0);
    const bool *live = tci_hlo_live(h, k, root);
    const char **values = TCI_NEW_ARRAY(s, const char *, k->n_insts + 1);
    for (int i = 0; i <= root; i++) {
        values[i] = live[i] ? tci_hlo_inst(h, &shape, k, &k->insts[i], n, in, values) : NULL;
    }
    tc_dtype made = (tc_dtype)k->insts[root].dtype, to = (tc_dtype)n->dtype;
    return made == to ? values[root] : tci_hlo_convert(h, &shape, made, to, values[root]);
}
