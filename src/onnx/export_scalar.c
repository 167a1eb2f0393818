/* onnx/export_scalar.c - exports scalar operations as ONNX nodes: prims, math expansions, random
 * bits.
 *
 * In: operands by name. Out: nodes that compute the same for integers, and for floats by an
 * operator or by the expansion of ops/math.c, instruction by instruction; a fused multiply-add
 * becomes a product and a sum. */
#include "../ops/formula_bytecode.h"
#include "../ops/math.h"
#include "import.h"
#include "export_state.h"

/* ---- constants ---- */

TCI_FN const char *tci_ox_number(tci_ox_out_graph *g, tc_dtype dtype, tci_value v)
{
    char bytes[8];
    tci_value_store(dtype, bytes, v);
    return tci_ow_tensor(&g->w, NULL, dtype, 0, NULL, bytes);
}

TCI_FN const char *tci_ox_float(tci_ox_out_graph *g, tc_dtype dtype, double v)
{
    return tci_ox_number(g, dtype, tci_value_cast((tci_value){.f = v}, TC_F64, dtype));
}

/* Engines compute with i64 where they lack unsigned integers. A number, 0-d. */
static const char *tci_ox_i64(tci_ox_out_graph *g, int64_t v)
{
    return tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &v);
}

/* ---- random bits ---- */

enum { TCI_OX_WORD_BITS = 32 };

/* A number of 64 bits as two words, each in an i64. */
typedef struct tci_ox_words {
    const char *low, *high;
} tci_ox_words;

static const char *tci_ox_divided(tci_ox_out_graph *g, const char *x, int64_t by)
{
    return TCI_OW(&g->w, "Div", x, tci_ox_i64(g, by));
}

static const char *tci_ox_rest(tci_ox_out_graph *g, const char *x, int64_t of)
{
    return TCI_OW(&g->w, "Mod", x, tci_ox_i64(g, of));
}

/* The product of two words. c is cut in halves, so that no sum reaches 2^50. */
static tci_ox_words tci_ox_word_product(tci_ox_out_graph *g, const char *c, const char *f)
{
    enum { TCI_OX_HALF = 1 << 16 };
    tci_ow *w = &g->w;
    const char *below = TCI_OW(w, "Mul", tci_ox_rest(g, c, TCI_OX_HALF), f);
    const char *above = TCI_OW(w, "Mul", tci_ox_divided(g, c, TCI_OX_HALF), f);
    const char *sum = TCI_OW(w, "Add", above, tci_ox_divided(g, below, TCI_OX_HALF));
    const char *middle = TCI_OW(w, "Mul", tci_ox_rest(g, sum, TCI_OX_HALF),
                                tci_ox_i64(g, TCI_OX_HALF));
    return (tci_ox_words){TCI_OW(w, "Add", middle, tci_ox_rest(g, below, TCI_OX_HALF)),
                          tci_ox_divided(g, sum, TCI_OX_HALF)};
}

/* The words of a u64. */
static tci_ox_words tci_ox_cut(tci_ox_out_graph *g, const char *x)
{
    tci_ow *w = &g->w;
    const tci_ow_attr way = TCI_OW_TEXT("direction", "RIGHT");
    const uint64_t by = TCI_OX_WORD_BITS, mask = 0xffffffff;
    const char *in[] = {x, tci_ow_tensor(w, NULL, TC_U64, 0, NULL, &by)};
    const char *low = TCI_OW(w, "BitwiseAnd", x, tci_ow_tensor(w, NULL, TC_U64, 0, NULL, &mask));
    return (tci_ox_words){tci_ox_to_dtype(g, low, TC_I64),
                          tci_ox_to_dtype(g, tci_ow_op(w, "BitShift", 2, in, 1, &way), TC_I64)};
}

/* And back: low and high are u64. */
static const char *tci_ox_joined(tci_ox_out_graph *g, const char *low, const char *high)
{
    const tci_ow_attr way = TCI_OW_TEXT("direction", "LEFT");
    const uint64_t by = TCI_OX_WORD_BITS;
    const char *in[] = {high, tci_ow_tensor(&g->w, NULL, TC_U64, 0, NULL, &by)};
    return TCI_OW(&g->w, "BitwiseOr", low, tci_ow_op(&g->w, "BitShift", 2, in, 1, &way));
}

/* The four words of the blocks c, by Philox4x32-10 (kernel/random.c). */
static void tci_ox_philox(tci_ox_out_graph *g, const char *c[4], tci_ox_words key)
{
    const int64_t word = (int64_t)1 << TCI_OX_WORD_BITS;
    tci_ow *w = &g->w;
    for (int64_t round = 0; round < 10; round++) {
        const char *step0 = tci_ox_i64(g, round * 0x9e3779b9 % word);
        const char *step1 = tci_ox_i64(g, round * 0xbb67ae85 % word);
        const char *key0 = tci_ox_rest(g, TCI_OW(w, "Add", key.low, step0), word);
        const char *key1 = tci_ox_rest(g, TCI_OW(w, "Add", key.high, step1), word);
        tci_ox_words p = tci_ox_word_product(g, c[0], tci_ox_i64(g, 0xd2511f53));
        tci_ox_words q = tci_ox_word_product(g, c[2], tci_ox_i64(g, 0xcd9e8d57));
        c[0] = TCI_OW(w, "BitwiseXor", TCI_OW(w, "BitwiseXor", q.high, c[1]), key0);
        c[2] = TCI_OW(w, "BitwiseXor", TCI_OW(w, "BitwiseXor", p.high, c[3]), key1);
        c[1] = q.low;
        c[3] = p.low;
    }
}

TCI_FN const char *tci_ox_random_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const int64_t word = (int64_t)1 << TCI_OX_WORD_BITS, last = 1;
    tci_ow *w = &g->w;
    const bool wide = n->dtype == TC_U64;
    const int each = wide ? 2 : 4; /* elements of a block */
    if (!tci_dim_is_known(tci_node_count(n))) {
        tci_ox_refuse(g->walk, n, "random numbers of a symbolic size");
    }
    int64_t count = tci_dim_known(tci_node_count(n)), blocks = (count + each - 1) / each;
    tci_ox_words key = tci_ox_cut(g, in[0]), stream = tci_ox_cut(g, in[1]);
    const char *block = TCI_OW(w, "Range", tci_ox_i64(g, 0), tci_ox_i64(g, blocks),
                               tci_ox_i64(g, 1));
    const char *c[4] = {tci_ox_rest(g, block, word), tci_ox_divided(g, block, word), stream.low,
                        stream.high};
    tci_ox_philox(g, c, key);
    const char *axes = tci_ow_ints(w, 1, &last), *parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = tci_ox_to_dtype(g, TCI_OW(w, "Unsqueeze", c[i], axes), (tc_dtype)n->dtype);
    }
    for (int i = 0; i < 2 && wide; i++) {
        parts[i] = tci_ox_joined(g, parts[2 * i], parts[2 * i + 1]);
    }
    const tci_ow_attr axis = TCI_OW_INT("axis", 1);
    const int64_t minus = -1, zero = 0;
    const char *all = TCI_OW(w, "Reshape", tci_ow_op(w, "Concat", each, parts, 1, &axis),
                             tci_ow_ints(w, 1, &minus));
    all = TCI_OW(w, "Slice", all, tci_ow_ints(w, 1, &zero), tci_ow_ints(w, 1, &count));
    return TCI_OW(w, "Reshape", all, tci_ow_ints(w, n->rank, tci_dim_words(n->shape)));
}

static const char *tci_ox_mulhi_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    const int64_t word = (int64_t)1 << TCI_OX_WORD_BITS;
    tci_ow *w = &g->w;
    if (d == TC_U32) {
        const char *a = tci_ox_to_dtype(g, x[0], TC_I64), *b = tci_ox_to_dtype(g, x[1], TC_I64);
        return tci_ox_to_dtype(g, tci_ox_word_product(g, a, b).high, d);
    } else if (d != TC_U64) {
        return NULL;
    }
    tci_ox_words a = tci_ox_cut(g, x[0]), b = tci_ox_cut(g, x[1]);
    tci_ox_words ll = tci_ox_word_product(g, a.low, b.low),
                 hl = tci_ox_word_product(g, a.high, b.low);
    tci_ox_words lh = tci_ox_word_product(g, a.low, b.high),
                 hh = tci_ox_word_product(g, a.high, b.high);
    const char *middle = TCI_OW(w, "Add", ll.high, TCI_OW(w, "Add", hl.low, lh.low));
    const char *above = TCI_OW(w, "Add", hh.low, TCI_OW(w, "Add", hl.high, lh.high));
    above = TCI_OW(w, "Add", above, tci_ox_divided(g, middle, word));
    const char *top = TCI_OW(w, "Add", hh.high, tci_ox_divided(g, above, word));
    return tci_ox_joined(g, tci_ox_to_dtype(g, tci_ox_rest(g, above, word), d),
                         tci_ox_to_dtype(g, top, d));
}

/* ---- expansions ---- */

static const char *tci_ox_step(tci_ox_out_graph *g, const tci_recipe *r, const tci_step_inst *s,
                               const char *const *x)
{
    tc_dtype t = (tc_dtype)r->insts[s->args[s->prim == TCI_P_SELECT]].dtype;
    tc_dtype to = (tc_dtype)s->dtype;
    const tci_ow_attr type = TCI_OW_INT("to", tci_onnx_type_of(to));
    switch ((int)s->prim) {
    case TCI_P_CAST: return tci_ox_to_dtype(g, x[0], to);
    case TCI_P_BITS:
        g->opset = TCI_OX_OPSET_BITCAST;
        return tci_ow_op(&g->w, "BitCast", 1, x, 1, &type);
    case TCI_P_PMIN:
    case TCI_P_PMAX:
        return TCI_OW(&g->w, "Where",
                      TCI_OW(&g->w, s->prim == TCI_P_PMAX ? "Greater" : "Less", x[0], x[1]), x[0],
                      x[1]);
    default: return tci_ox_word(g, t, s->prim, x);
    }
}

static const char *tci_ox_recipe_out(tci_ox_out_graph *g, tc_dtype d, int prim,
                                     const char *const *x)
{
    const tci_recipe *r = tci_math_recipe((tci_prim)prim, d);
    const char **at = TCI_NEW_ARRAY(g->walk->s, const char *, r->n), *made = "";
    for (int i = 0; i < r->n && made; i++) {
        const tci_step_inst *s = &r->insts[i];
        const char *args[3] = {NULL, NULL, NULL};
        for (int a = 0; a < s->n_args && s->kind == TCI_RECIPE_PRIM; a++) {
            args[a] = at[s->args[a]];
        }
        made = s->kind == TCI_RECIPE_ARG     ? x[s->imm]
               : s->kind == TCI_RECIPE_CONST ? tci_ox_number(g, (tc_dtype)s->dtype, s->value)
                                             : tci_ox_step(g, r, s, args);
        at[i] = made;
    }
    return made ? at[r->n - 1] : NULL;
}

/* ---- greatest common divisors ---- */

/* Euclid's steps in i64, as many as numbers of the dtype can need: each two halve the greater. */
static const char *tci_ox_gcd_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    const char *zero = tci_ox_i64(g, 0), *one = tci_ox_i64(g, 1);
    const char *a = TCI_OW(w, "Abs", tci_ox_to_dtype(g, x[0], TC_I64));
    const char *b = TCI_OW(w, "Abs", tci_ox_to_dtype(g, x[1], TC_I64));
    for (int i = 0, bits = 8 * (int)tc_dtype_size(d); i < bits + bits / 2; i++) {
        const char *ends = TCI_OW(w, "Equal", b, zero);
        const char *rest = TCI_OW(w, "Mod", a, TCI_OW(w, "Where", ends, one, b));
        a = TCI_OW(w, "Where", ends, a, b);
        b = TCI_OW(w, "Where", ends, zero, rest);
    }
    return d == TC_U64 ? NULL : tci_ox_to_dtype(g, a, d);
}

/* ---- prims ---- */

/* Of bool by its logic, which more engines have than Where of bool. */
TCI_FN const char *tci_ox_where_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    return d != TC_BOOL ? TCI_OW(w, "Where", x[0], x[1], x[2])
                        : TCI_OW(w, "Or", TCI_OW(w, "And", x[0], x[1]),
                                 TCI_OW(w, "And", TCI_OW(w, "Not", x[0]), x[2]));
}

/* An order of two values: bool has one in tc, but not in ONNX. */
static const char *tci_ox_ordered_out(tci_ox_out_graph *g, const char *op, tc_dtype d,
                                      const char *const *x)
{
    const char *in[] = {x[0], x[1]};
    for (int i = 0; i < 2 && d == TC_BOOL; i++) {
        in[i] = tci_ox_to_dtype(g, x[i], TC_I32);
    }
    return tci_ow_op(&g->w, op, 2, in, 0, NULL);
}

/* BitShift is of unsigned integers and by less than their width: in u64, and the rest in i64, which
 * engines have of Where. A negative value goes right by way of its complement; too far a shift
 * gives 0, or then -1. */
static const char *tci_ox_shift_out(tci_ox_out_graph *g, tc_dtype d, bool left,
                                    const char *const *x)
{
    tci_ow *w = &g->w;
    const tci_ow_attr way = TCI_OW_TEXT("direction", left ? "LEFT" : "RIGHT");
    const char *zero = tci_ox_float(g, TC_I64, 0), *negative = NULL;
    const char *width = tci_ox_float(g, TC_I64, 8 * tc_dtype_size(d));
    const char *a = tci_ox_to_dtype(g, x[0], TC_I64), *by = tci_ox_to_dtype(g, x[1], TC_I64);
    const char *inside = TCI_OW(w, "And", TCI_OW(w, "Less", by, width),
                                TCI_OW(w, "GreaterOrEqual", by, zero));
    if (d >= TC_I8 && !left) {
        negative = TCI_OW(w, "Less", a, zero);
        a = TCI_OW(w, "Where", negative, TCI_OW(w, "BitwiseNot", a), a);
    }
    by = TCI_OW(w, "Where", inside, by, zero);
    const char *in[] = {tci_ox_to_dtype(g, a, TC_U64), tci_ox_to_dtype(g, by, TC_U64)};
    const char *y = tci_ox_to_dtype(g, tci_ow_op(w, "BitShift", 2, in, 1, &way), TC_I64);
    y = TCI_OW(w, "Where", inside, y, zero);
    y = negative ? TCI_OW(w, "Where", negative, TCI_OW(w, "BitwiseNot", y), y) : y;
    return tci_ox_to_dtype(g, y, d);
}

/* Of integers by repeated squaring in i64, since Pow of an engine may go through floats; of a
 * negative b the integer part of 1 / a^-b, 0 of 0. */
static const char *tci_ox_powi_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    const char *zero = tci_ox_i64(g, 0), *one = tci_ox_i64(g, 1), *two = tci_ox_i64(g, 2);
    const char *minus = tci_ox_i64(g, -1), *a = tci_ox_to_dtype(g, x[0], TC_I64);
    const char *b = tci_ox_to_dtype(g, x[1], TC_I64), *y = one, *square = a, *first_odd = NULL;
    const char *rest = TCI_OW(w, "Abs", b);
    for (int bits = 8 * tc_dtype_size(d) - (d >= TC_I8), i = 0; i < bits; i++) {
        const char *odd = TCI_OW(w, "Equal", TCI_OW(w, "Mod", rest, two), one);
        first_odd = first_odd ? first_odd : odd;
        y = TCI_OW(w, "Where", odd, TCI_OW(w, "Mul", y, square), y);
        square = TCI_OW(w, "Mul", square, square);
        rest = TCI_OW(w, "Div", rest, two);
    }
    const char *below = TCI_OW(w, "Where", first_odd, minus, one);
    below = TCI_OW(w, "Where", TCI_OW(w, "Equal", a, minus), below, zero);
    below = TCI_OW(w, "Where", TCI_OW(w, "Equal", a, one), one, below);
    y = d < TC_I8 ? y : TCI_OW(w, "Where", TCI_OW(w, "Less", b, zero), below, y);
    return tci_ox_to_dtype(g, y, d);
}

/* Of integers, 0 where the divisor is 0: engines are killed by that, also in a branch that a Where
 * does not take. */
static const char *tci_ox_divide_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    const char *zero = tci_ox_float(g, d, 0), *none = TCI_OW(w, "Equal", x[1], zero);
    const char *safe = TCI_OW(w, "Where", none, tci_ox_float(g, d, 1), x[1]);
    return TCI_OW(w, "Where", none, zero, TCI_OW(w, "Div", x[0], safe));
}

/* The sign bit, also of -0 and NaN. */
static const char *tci_ox_minus_out(tci_ox_out_graph *g, tc_dtype d, const char *x)
{
    if (tci_ox_is_float(d)) {
        tc_dtype whole = d == TC_F64 ? TC_I64 : d == TC_F32 ? TC_I32 : TC_I16;
        const tci_ow_attr to = TCI_OW_INT("to", tci_onnx_type_of(whole));
        g->opset = TCI_OX_OPSET_BITCAST;
        x = tci_ow_op(&g->w, "BitCast", 1, &x, 1, &to);
        d = whole;
    }
    return d < TC_I8 ? TCI_OW(&g->w, "Not", TCI_OW(&g->w, "Equal", x, x))
                     : TCI_OW(&g->w, "Less", x, tci_ox_float(g, d, 0));
}

TCI_FN const char *tci_ox_word(tci_ox_out_graph *g, tc_dtype d, int word, const char *const *x)
{
    tci_ow *w = &g->w;
    bool is_bool = d == TC_BOOL, floats = tci_ox_is_float(d);
    switch (word) {
    case TCI_P_ADD: return TCI_OW(w, is_bool ? "Or" : "Add", x[0], x[1]);
    case TCI_P_SUB: return TCI_OW(w, is_bool ? "Xor" : "Sub", x[0], x[1]);
    case TCI_P_MUL: return TCI_OW(w, is_bool ? "And" : "Mul", x[0], x[1]);
    case TCI_P_DIV: return floats ? TCI_OW(w, "Div", x[0], x[1]) : tci_ox_divide_out(g, d, x);
    case TCI_P_FMA: return TCI_OW(w, "Add", TCI_OW(w, "Mul", x[0], x[1]), x[2]);
    case TCI_P_NEG: return TCI_OW(w, "Neg", x[0]);
    case TCI_P_ABS: return TCI_OW(w, "Abs", x[0]);
    case TCI_P_SQRT: return TCI_OW(w, "Sqrt", x[0]);
    case TCI_P_FLOOR: return floats ? TCI_OW(w, "Floor", x[0]) : x[0];
    case TCI_P_CEIL: return floats ? TCI_OW(w, "Ceil", x[0]) : x[0];
    case TCI_P_RINT: return floats ? TCI_OW(w, "Round", x[0]) : x[0];
    case TCI_P_TRUNC: {
        const char *down = TCI_OW(w, "Floor", TCI_OW(w, "Abs", x[0]));
        return floats ? TCI_OW(w, "Mul", TCI_OW(w, "Sign", x[0]), down) : x[0];
    }
    case TCI_P_EQ: return TCI_OW(w, "Equal", x[0], x[1]);
    case TCI_P_LT: return tci_ox_ordered_out(g, "Less", d, x);
    case TCI_P_LE: return tci_ox_ordered_out(g, "LessOrEqual", d, x);
    case TCI_P_AND: return TCI_OW(w, is_bool ? "And" : "BitwiseAnd", x[0], x[1]);
    case TCI_P_OR: return TCI_OW(w, is_bool ? "Or" : "BitwiseOr", x[0], x[1]);
    case TCI_P_XOR: return TCI_OW(w, is_bool ? "Xor" : "BitwiseXor", x[0], x[1]);
    case TCI_P_NOT: return TCI_OW(w, is_bool ? "Not" : "BitwiseNot", x[0]);
    case TCI_P_SELECT: return tci_ox_where_out(g, d, x);
    case TCI_P_EXP: return TCI_OW(w, "Exp", x[0]);
    case TCI_P_LOG: return TCI_OW(w, "Log", x[0]);
    case TCI_P_SIN: return TCI_OW(w, "Sin", x[0]);
    case TCI_P_COS: return TCI_OW(w, "Cos", x[0]);
    case TCI_P_TAN: return TCI_OW(w, "Tan", x[0]);
    case TCI_P_TANH: return TCI_OW(w, "Tanh", x[0]);
    case TCI_P_SINH: return TCI_OW(w, "Sinh", x[0]);
    case TCI_P_COSH: return TCI_OW(w, "Cosh", x[0]);
    case TCI_P_ERF: return TCI_OW(w, "Erf", x[0]);
    case TCI_P_SIGMOID: return TCI_OW(w, "Sigmoid", x[0]);
    case TCI_P_GELU: return TCI_OW(w, "Gelu", x[0]);
    case TCI_P_POW: return floats ? TCI_OW(w, "Pow", x[0], x[1]) : tci_ox_powi_out(g, d, x);
    case TCI_P_EXP2: return TCI_OW(w, "Pow", tci_ox_float(g, d, 2), x[0]);
    case TCI_P_EXPM1: { /* (e^x + 1) tanh(x / 2), exact to some units where x is small */
        const char *one = tci_ox_float(g, d, 1), *half = tci_ox_float(g, d, 0.5);
        return TCI_OW(w, "Mul", TCI_OW(w, "Add", TCI_OW(w, "Exp", x[0]), one),
                      TCI_OW(w, "Tanh", TCI_OW(w, "Mul", x[0], half)));
    }
    case TCI_P_LOG1P: { /* 2 atanh(x / (x + 2)) where x is small */
        const char *one = tci_ox_float(g, d, 1), *two = tci_ox_float(g, d, 2);
        const char *small = TCI_OW(w, "Less", TCI_OW(w, "Abs", x[0]), tci_ox_float(g, d, 0.5));
        const char *ratio = TCI_OW(w, "Div", x[0], TCI_OW(w, "Add", x[0], two));
        return TCI_OW(w, "Where", small, TCI_OW(w, "Mul", TCI_OW(w, "Atanh", ratio), two),
                      TCI_OW(w, "Log", TCI_OW(w, "Add", x[0], one)));
    }
    case TCI_P_SHL:
    case TCI_P_SHR: return tci_ox_shift_out(g, d, word == TCI_P_SHL, x);
    case TCI_P_LOG2:
        return TCI_OW(w, "Mul", TCI_OW(w, "Log", x[0]), tci_ox_float(g, d, 1.4426950408889634));
    case TCI_P_LOG10:
        return TCI_OW(w, "Mul", TCI_OW(w, "Log", x[0]), tci_ox_float(g, d, 0.4342944819032518));
    case TCI_W_MAX:
    case TCI_W_MIN: {
        bool most = word == TCI_W_MAX;
        return is_bool ? TCI_OW(w, most ? "Or" : "And", x[0], x[1])
                       : TCI_OW(w, "Where", TCI_OW(w, most ? "Greater" : "Less", x[0], x[1]), x[0],
                                x[1]);
    }
    case TCI_W_MINUS: return tci_ox_minus_out(g, d, x[0]);
    case TCI_P_LOG_LOW: /* corrections below an engine's own error */
    case TCI_P_LOG2_LOW: return tci_ox_float(g, d, 0);
    case TCI_P_GCD: return tci_ox_gcd_out(g, d, x);
    case TCI_P_MULHI: return tci_ox_mulhi_out(g, d, x);
    default: {
        bool is_math = floats && word < TCI_P_COUNT && tci_prim_is_math((tci_prim)word);
        return is_math ? tci_ox_recipe_out(g, d, word, x) : NULL;
    }
    }
}
