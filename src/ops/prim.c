/* ops/prim.c - scalar primitives of the kernel IR: the opcode table, and evaluation on constants.
 *
 * In: a prim, the dtype of its operands, operand values. Out: the value of the result. Callers:
 * constant folding, the reference evaluator, tests of the dialects.
 *
 * Every case below is the plain C meaning of one line of ops/prim.h. f32 prims are computed in
 * float, not in double and rounded. Integers are computed in 64 bits and wrapped to their dtype
 * afterwards, which is the same for everything except DIV, REM, SHR, MULHI and compares; those work
 * on operands that are in range already. MATH prims execute their expansion (ops/math.c), one
 * instruction at a time. */
#include <math.h>
#include <string.h>

#include "math.h"

static const tci_prim_info tci_prim_rows[TCI_P_COUNT] = {
#define TCI_ROW(id, name, arity, result, cost) {name, arity, #result[0], cost},
    TCI_BASE_PRIMS(TCI_ROW) TCI_MATH_PRIMS(TCI_ROW)
#undef TCI_ROW
};

TCI_FN const tci_prim_info *tci_prim_get(tci_prim p)
{
    return &tci_prim_rows[p];
}

static tci_value tci_prim_bool(bool b)
{
    tci_value v = {0};
    v.i = b;
    return v;
}

static tci_value tci_prim_f32(float x)
{
    tci_value v = {0};
    v.f = (double)x;
    return v;
}

static tci_value tci_prim_f64(double x)
{
    tci_value v = {0};
    v.f = x;
    return v;
}

/* NEG and ABS of floats work on the sign bit alone; a float and the double that carries it share
 * it. */
static tci_value tci_prim_sign(tci_prim p, tci_value v)
{
    const uint64_t sign = (uint64_t)1 << 63;
    v.u = p == TCI_P_NEG ? v.u ^ sign : v.u & ~sign;
    return v;
}

/* Cases that the functions for one kind of number never see: MATH prims, prims of the other kind,
 * and those that tci_prim_eval handles itself. */
#define TCI_PRIM_OTHER_CASES                                                                       \
    TCI_MATH_PRIMS(TCI_PRIM_CASE)                                                                  \
    case TCI_P_SELECT:                                                                             \
    case TCI_P_CAST:                                                                               \
    case TCI_P_TOINT:                                                                              \
    case TCI_P_BITS:                                                                               \
    case TCI_P_LANE1:                                                                              \
    case TCI_P_COUNT:
#define TCI_PRIM_WHOLE_CASES                                                                       \
    case TCI_P_NEG:                                                                                \
    case TCI_P_ABS:                                                                                \
    case TCI_P_AND:                                                                                \
    case TCI_P_OR:                                                                                 \
    case TCI_P_XOR:                                                                                \
    case TCI_P_NOT:                                                                                \
    case TCI_P_SHL:                                                                                \
    case TCI_P_SHR:                                                                                \
    case TCI_P_POWI:                                                                               \
    case TCI_P_GCD:                                                                                \
    case TCI_P_MULHI:

static tci_value tci_prim_eval_f32(tci_prim p, const tci_value *args)
{
    float a = (float)args[0].f;
    float b = tci_prim_get(p)->arity > 1 ? (float)args[1].f : 0.0f;
    switch (p) {
    case TCI_P_ADD: return tci_prim_f32(a + b);
    case TCI_P_SUB: return tci_prim_f32(a - b);
    case TCI_P_MUL: return tci_prim_f32(a * b);
    case TCI_P_DIV: return tci_prim_f32(a / b);
    case TCI_P_REM: return tci_prim_f32(fmodf(a, b));
    case TCI_P_FMA: return tci_prim_f32(fmaf(a, b, (float)args[2].f));
    case TCI_P_SQRT: return tci_prim_f32(sqrtf(a));
    case TCI_P_PMIN: return tci_prim_f32(a < b ? a : b);
    case TCI_P_PMAX: return tci_prim_f32(a > b ? a : b);
    case TCI_P_FLOOR: return tci_prim_f32(floorf(a));
    case TCI_P_CEIL: return tci_prim_f32(ceilf(a));
    case TCI_P_TRUNC: return tci_prim_f32(truncf(a));
    case TCI_P_RINT: return tci_prim_f32(rintf(a));
    case TCI_P_EQ: return tci_prim_bool(a == b);
    case TCI_P_LT: return tci_prim_bool(a < b);
    case TCI_P_LE: return tci_prim_bool(a <= b);
    case TCI_P_ROUND16: return tci_prim_f32(tci_round_f16(a));
    case TCI_P_ROUNDB16:
        return tci_prim_f32(tci_round_bf16(a));
        TCI_PRIM_WHOLE_CASES
        TCI_PRIM_OTHER_CASES
        break;
    }
    return args[0];
}

static tci_value tci_prim_eval_f64(tci_prim p, const tci_value *args)
{
    double a = args[0].f;
    double b = tci_prim_get(p)->arity > 1 ? args[1].f : 0.0;
    switch (p) {
    case TCI_P_ADD: return tci_prim_f64(a + b);
    case TCI_P_SUB: return tci_prim_f64(a - b);
    case TCI_P_MUL: return tci_prim_f64(a * b);
    case TCI_P_DIV: return tci_prim_f64(a / b);
    case TCI_P_REM: return tci_prim_f64(fmod(a, b));
    case TCI_P_FMA: return tci_prim_f64(fma(a, b, args[2].f));
    case TCI_P_SQRT: return tci_prim_f64(sqrt(a));
    case TCI_P_PMIN: return tci_prim_f64(a < b ? a : b);
    case TCI_P_PMAX: return tci_prim_f64(a > b ? a : b);
    case TCI_P_FLOOR: return tci_prim_f64(floor(a));
    case TCI_P_CEIL: return tci_prim_f64(ceil(a));
    case TCI_P_TRUNC: return tci_prim_f64(trunc(a));
    case TCI_P_RINT: return tci_prim_f64(rint(a));
    case TCI_P_EQ: return tci_prim_bool(a == b);
    case TCI_P_LT: return tci_prim_bool(a < b);
    case TCI_P_LE: return tci_prim_bool(a <= b);
    case TCI_P_ROUND16:
    case TCI_P_ROUNDB16:
        TCI_PRIM_WHOLE_CASES
        TCI_PRIM_OTHER_CASES
        break;
    }
    return args[0];
}

/* DIV (or REM) with x / 0 = x % 0 = 0 and MIN / -1 = MIN. Operands are in the range of t. */
static uint64_t tci_prim_divide(tc_dtype t, bool want_rem, tci_value a, tci_value b)
{
    if (b.u == 0) {
        return 0;
    }
    if (!tci_dtype_is_signed(t)) {
        return want_rem ? a.u % b.u : a.u / b.u;
    }
    if (b.i == -1) {
        return want_rem ? 0 : 0 - a.u;
    }
    return (uint64_t)(want_rem ? a.i % b.i : a.i / b.i);
}

/* SHL or SHR by b as an unsigned number; b >= width gives 0, for signed SHR the sign. */
static uint64_t tci_prim_shift(tc_dtype t, bool left, tci_value a, tci_value b)
{
    uint64_t width = 8u * (uint64_t)tci_dtype_get(t)->bytes;
    bool too_far = b.u >= width; /* a negative b of a signed type is huge in 64 bits too */
    if (left) {
        return too_far ? 0 : a.u << b.u;
    }
    if (!tci_dtype_is_signed(t)) {
        return too_far ? 0 : a.u >> b.u;
    }
    uint64_t n = too_far ? 63 : b.u;
    return a.i < 0 ? ~(~a.u >> n) : a.u >> n;
}

TCI_FN uint64_t tci_mulhi_u64(uint64_t a, uint64_t b)
{
    const uint64_t half = 0xffffffffu;
    uint64_t low = (a & half) * (b & half), cross = (a >> 32) * (b & half) + (low >> 32);
    uint64_t other = (a & half) * (b >> 32) + (cross & half);
    return (a >> 32) * (b >> 32) + (cross >> 32) + (other >> 32);
}

/* Repeated squaring. */
TCI_FN uint64_t tci_powi_u64(uint64_t a, uint64_t b)
{
    uint64_t r = 1;
    for (; b; b >>= 1) {
        r = b & 1 ? r * a : r;
        a *= a;
    }
    return r;
}

TCI_FN int64_t tci_powi_i64(int64_t a, int64_t b)
{
    if (b < 0) {
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    }
    return (int64_t)tci_powi_u64((uint64_t)a, (uint64_t)b);
}

/* Euclid's. */
TCI_FN uint64_t tci_gcd_u64(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

TCI_FN int64_t tci_gcd_i64(int64_t a, int64_t b)
{
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    return (int64_t)tci_gcd_u64(a < 0 ? 0 - x : x, b < 0 ? 0 - y : y);
}

/* Of narrow operands the upper bits of a product in 64 bits; of 64 bits that of unsigned ones, less
 * what the signs counted for. */
static uint64_t tci_prim_high(tc_dtype t, tci_value a, tci_value b)
{
    bool is_signed = tci_dtype_is_signed(t);
    tci_value product = {.u = a.u * b.u}, width = {.i = 8 * tci_dtype_get(t)->bytes};
    if (width.i < 64) {
        return tci_prim_shift(is_signed ? TC_I64 : TC_U64, false, product, width);
    }
    uint64_t high = tci_mulhi_u64(a.u, b.u);
    return high - (is_signed && a.i < 0 ? b.u : 0) - (is_signed && b.i < 0 ? a.u : 0);
}

static bool tci_prim_less(tc_dtype t, tci_value a, tci_value b)
{
    return tci_dtype_is_signed(t) ? a.i < b.i : a.u < b.u;
}

static uint64_t tci_prim_int_bits(tci_prim p, tc_dtype t, tci_value a, tci_value b, tci_value c)
{
    switch (p) {
    case TCI_P_ADD: return a.u + b.u;
    case TCI_P_SUB: return a.u - b.u;
    case TCI_P_MUL: return a.u * b.u;
    case TCI_P_FMA: return a.u * b.u + c.u;
    case TCI_P_DIV: return tci_prim_divide(t, false, a, b);
    case TCI_P_REM: return tci_prim_divide(t, true, a, b);
    case TCI_P_NEG: return 0 - a.u;
    case TCI_P_ABS: return tci_dtype_is_signed(t) && a.i < 0 ? 0 - a.u : a.u;
    case TCI_P_PMIN: return tci_prim_less(t, a, b) ? a.u : b.u;
    case TCI_P_PMAX: return tci_prim_less(t, b, a) ? a.u : b.u;
    case TCI_P_AND: return a.u & b.u;
    case TCI_P_OR: return a.u | b.u;
    case TCI_P_XOR: return a.u ^ b.u;
    case TCI_P_NOT: return t == TC_BOOL ? !a.u : ~a.u;
    case TCI_P_POWI:
        return tci_dtype_is_signed(t) ? (uint64_t)tci_powi_i64(a.i, b.i) : tci_powi_u64(a.u, b.u);
    case TCI_P_GCD:
        return tci_dtype_is_signed(t) ? (uint64_t)tci_gcd_i64(a.i, b.i) : tci_gcd_u64(a.u, b.u);
    case TCI_P_SHL: return tci_prim_shift(t, true, a, b);
    case TCI_P_SHR: return tci_prim_shift(t, false, a, b);
    case TCI_P_MULHI: return t == TC_BOOL ? 0 : tci_prim_high(t, a, b);
    case TCI_P_FLOOR:
    case TCI_P_CEIL:
    case TCI_P_TRUNC:
    case TCI_P_RINT: /* integral as it is */
    case TCI_P_SQRT:
    case TCI_P_EQ:
    case TCI_P_LT:
    case TCI_P_LE:
    case TCI_P_ROUND16:
    case TCI_P_ROUNDB16: TCI_PRIM_OTHER_CASES break;
    }
    return a.u;
}

static tci_value tci_prim_eval_int(tci_prim p, tc_dtype t, const tci_value *args)
{
    int arity = tci_prim_get(p)->arity;
    tci_value zero = {0};
    tci_value a = args[0];
    tci_value b = arity > 1 ? args[1] : zero;
    tci_value c = arity > 2 ? args[2] : zero;
    if (p == TCI_P_EQ) {
        return tci_prim_bool(a.u == b.u);
    }
    if (p == TCI_P_LT) {
        return tci_prim_bool(tci_prim_less(t, a, b));
    }
    if (p == TCI_P_LE) {
        return tci_prim_bool(!tci_prim_less(t, b, a));
    }
    tci_value out;
    out.u = tci_prim_int_bits(p, t, a, b, c);
    return tci_value_cast(out, TC_I64, t); /* wraps */
}

/* Float and integer of one width share a storage, so BITS is a store and a load. */
static tci_value tci_prim_bits(tc_dtype from, tc_dtype to, tci_value v)
{
    uint64_t storage = 0;
    tci_value_store(from, &storage, v);
    return tci_value_load(to, &storage);
}

static tci_value tci_prim_lane1(int id, const tci_value *args)
{
    const tci_helper *h = tci_helper_get(id);
    tci_value none = {0};
    if (!args[1].i) {
        return none; /* lane not active */
    }
    return h->f32 ? tci_prim_f32(h->f32((float)args[0].f)) : tci_prim_f64(h->f64(args[0].f));
}

TCI_FN tci_value tci_recipe_eval(const tci_recipe *r, const tci_value *args)
{
    tci_value values[TCI_RECIPE_MAX];
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *s = &r->insts[i];
        if (s->kind == TCI_RECIPE_ARG) {
            values[i] = args[s->imm];
        } else if (s->kind == TCI_RECIPE_CONST) {
            values[i] = s->value;
        } else {
            tci_value operands[3] = {{0}};
            for (int k = 0; k < s->n_args; k++) {
                operands[k] = values[s->args[k]];
            }
            int typed = s->prim == TCI_P_SELECT ? 1 : 0; /* the operand whose dtype is the prim's */
            tc_dtype dtype = (tc_dtype)r->insts[s->args[typed]].dtype;
            tc_dtype to = (tc_dtype)s->dtype;
            values[i] = tci_prim_eval((tci_prim)s->prim, dtype, to, s->imm, operands);
        }
    }
    return values[r->n - 1];
}

TCI_FN tci_value tci_prim_eval(tci_prim p, tc_dtype dtype, tc_dtype to, int imm,
                               const tci_value *args)
{
    if (tci_prim_is_math(p)) {
        return tci_recipe_eval(tci_math_recipe(p, dtype), args);
    }
    bool is_float = tci_dtype_is_float(dtype);
    if (p == TCI_P_SELECT) {
        return args[0].i ? args[1] : args[2];
    }
    if (p == TCI_P_CAST || p == TCI_P_TOINT) {
        return tci_value_cast(args[0], dtype, to);
    }
    if (p == TCI_P_BITS) {
        return tci_prim_bits(dtype, to, args[0]);
    }
    if (p == TCI_P_LANE1) {
        return tci_prim_lane1(imm, args);
    }
    if (is_float && (p == TCI_P_NEG || p == TCI_P_ABS)) {
        return tci_prim_sign(p, args[0]);
    }
    if (!is_float) {
        return tci_prim_eval_int(p, dtype, args);
    }
    return dtype == TC_F64 ? tci_prim_eval_f64(p, args) : tci_prim_eval_f32(p, args);
}
