/* interp/reference.c - evaluates a graph node by node, without fusion: the reference evaluator
 * (test oracle).
 *
 * In: nodes, memory of the INPUT nodes. Out: dense values of the roots. Every node becomes a dense
 * array of tci_value, in row-major order, by the naive loop; a multi-index iterates over the output
 * and gives the input element to read. No fusion, no index algebra, and nothing shared
 * with the kernel path except the scalar primitives and the dtype conversions.
 *
 * wide: values of float nodes stay doubles between nodes, and the math functions are libm's.
 * Composites are direct formulas in double in both modes, since they guarantee an error bound, not
 * an order of operations. */
#include <math.h>
#include <string.h>

#include "../graph/loop_node.h"
#include "../ops/communicator.h"
#include "../ops/custom_op.h"
#include "../ops/formula_bytecode.h"
#include "../ops/math.h"
#include "reference_values.h"

/* ---- elementwise rows: the value column as scalar calls ---- */

typedef struct tci_ref_scalar {
    tci_value v;
    tc_dtype t;
    bool wide;
} tci_ref_scalar;

/* Functions that libm lacks, or has only without thread safety. */
static double tci_ref_own(tci_prim p, double a)
{
    const tci_value args[3] = {tci_ref_float(a)};
    return tci_prim_eval(p, TC_F64, TC_F64, 0, args).f;
}

/* The angle less whole turns, and folded to where it is small. */
static double tci_ref_sinc(double a)
{
    const double pi = 3.14159265358979323846, r = remainder(a, 2.0);
    const double f = r > 0.5 ? 1.0 - r : r < -0.5 ? -1.0 - r : r;
    return a == 0.0 ? 1.0 : sin(pi * f) / (pi * a);
}

static double tci_ref_libm(tci_prim p, double a, double b)
{
    switch (p) {
    case TCI_P_EXP:
    case TCI_P_EXPN: return exp(a);
    case TCI_P_LOG: return log(a);
    case TCI_P_SIN: return sin(a);
    case TCI_P_COS: return cos(a);
    case TCI_P_TANH: return tanh(a);
    case TCI_P_ERF: return erf(a);
    case TCI_P_SIGMOID: return 1.0 / (1.0 + exp(-a));
    case TCI_P_GELU:
    case TCI_P_GELUH: return a < -40.0 ? a * 0.0 : a * 0.5 * erfc(-a * 0.70710678118654752440);
    case TCI_P_POW: return pow(a, b);
    case TCI_P_TAN: return tan(a);
    case TCI_P_ERFC: return erfc(a);
    case TCI_P_ERFINV:
    case TCI_P_LGAMMA:
    case TCI_P_DIGAMMA:
    case TCI_P_TRIGAMMA: return tci_ref_own(p, a);
    case TCI_P_EXPM1: return expm1(a);
    case TCI_P_EXP2: return exp2(a);
    case TCI_P_SINH: return sinh(a);
    case TCI_P_COSH: return cosh(a);
    case TCI_P_LOG1P: return log1p(a);
    case TCI_P_LOG2: return log2(a);
    case TCI_P_LOG10: return log10(a);
    case TCI_P_ATAN2: return atan2(a, b);
    case TCI_P_ASIN: return asin(a);
    case TCI_P_ACOS: return acos(a);
    case TCI_P_LOG_LOW: return b > 0x1p-100 ? (double)(log1pl(expl(-a)) - b) : 0.0;
    case TCI_P_LOG2_LOW: return b > 0x1p-100 ? (double)(log1pl(exp2l(-a)) / logl(2.0L) - b) : 0.0;
    case TCI_P_SINC: return tci_ref_sinc(a);
    case TCI_P_COPYSIGN:
        return copysign(a, b);
        /* clang-format off */
    TCI_BASE_PRIMS(TCI_PRIM_CASE)
        /* clang-format on */
    case TCI_P_COUNT: break; /* never: no math prim */
    }
    return (double)NAN;
}

static tci_ref_scalar tci_ref_2(tci_prim p, tci_ref_scalar a, tci_ref_scalar b)
{
    tci_ref_scalar r = {{0}, tci_prim_get(p)->result == 'B' ? TC_BOOL : a.t, a.wide};
    tci_value args[3] = {a.v, b.v, tci_ref_int(1)};
    p = p == TCI_P_POW && !tci_dtype_is_float(a.t) ? TCI_P_POWI : p;
    if (a.wide && tci_prim_is_math(p)) {
        r.v.f = tci_ref_libm(p, a.v.f, b.v.f);
    } else {
        r.v = tci_prim_eval(p, a.t, r.t, 0, args);
    }
    return r;
}

static tci_ref_scalar tci_ref_1(tci_prim p, tci_ref_scalar a)
{
    return tci_ref_2(p, a, a);
}

static tci_ref_scalar tci_ref_number(tci_ref_scalar like, double x)
{
    like.v = tci_value_cast(tci_ref_float(x), TC_F64, like.t);
    return like;
}

/* a where a > b (MIN: a < b) or a is NaN, else b. */
static tci_ref_scalar tci_ref_extreme(bool max, tci_ref_scalar a, tci_ref_scalar b)
{
    bool beats = max ? tci_ref_2(TCI_P_LT, b, a).v.i : tci_ref_2(TCI_P_LT, a, b).v.i;
    bool is_nan = !tci_ref_2(TCI_P_EQ, a, a).v.i;
    return beats || is_nan ? a : b;
}

static bool tci_ref_is_negative(tci_ref_scalar a)
{
    return tci_ref_2(TCI_P_LT, a, tci_ref_number(a, 0)).v.i;
}

static bool tci_ref_is_zero(tci_ref_scalar a)
{
    return tci_ref_2(TCI_P_EQ, a, tci_ref_number(a, 0)).v.i;
}

/* Python's remainder: b's sign, also of a zero. */
static tci_ref_scalar tci_ref_modulo(tci_ref_scalar a, tci_ref_scalar b)
{
    tci_ref_scalar r = tci_ref_2(TCI_P_REM, a, b);
    if (tci_ref_is_zero(r)) {
        return tci_ref_number(a, tci_ref_is_negative(b) ? -0.0 : 0.0);
    }
    return tci_ref_is_negative(r) != tci_ref_is_negative(b) ? tci_ref_2(TCI_P_ADD, r, b) : r;
}

/* Python's //, with a / 0 = 0 for integers. */
static tci_ref_scalar tci_ref_floor_divide(tci_ref_scalar a, tci_ref_scalar b)
{
    bool is_float = tci_dtype_is_float(a.t);
    tci_ref_scalar r = tci_ref_2(TCI_P_REM, a, b), q = tci_ref_2(TCI_P_DIV, a, b), plain = q;
    if (tci_ref_is_zero(b)) {
        return q;
    }
    if (is_float) {
        q = tci_ref_2(TCI_P_DIV, tci_ref_2(TCI_P_SUB, a, r), b);
    }
    if (!tci_ref_is_zero(r) && tci_ref_is_negative(r) != tci_ref_is_negative(b)) {
        q = tci_ref_2(TCI_P_SUB, q, tci_ref_number(a, 1));
    }
    if (is_float && tci_ref_is_zero(q)) {
        return tci_ref_number(a, signbit(plain.v.f) ? -0.0 : 0.0);
    }
    tci_ref_scalar y = tci_ref_1(TCI_P_FLOOR, q);
    bool below = is_float && q.v.f - y.v.f > 0.5;
    return below ? tci_ref_2(TCI_P_ADD, y, tci_ref_number(a, 1)) : y;
}

/* The sign bit. */
static tci_ref_scalar tci_ref_minus(tci_ref_scalar a)
{
    bool minus = tci_dtype_is_float(a.t) ? signbit(a.v.f) != 0 : tci_ref_is_negative(a);
    tci_ref_scalar r = {tci_ref_int(minus), TC_BOOL, a.wide};
    return r;
}

static tci_ref_scalar tci_ref_fma(tci_ref_scalar a, tci_ref_scalar b, tci_ref_scalar c)
{
    const tci_value args[3] = {a.v, b.v, c.v};
    a.v = tci_prim_eval(TCI_P_FMA, a.t, a.t, 0, args);
    return a;
}

/* One word of a value column over the values it takes. */
static tci_ref_scalar tci_ref_word(int word, const tci_ref_scalar *operands,
                                   const tci_ref_scalar *args)
{
    switch (word) {
    case TCI_W_A: return operands[0];
    case TCI_W_B: return operands[1];
    case TCI_W_C: return operands[2];
    case TCI_W_MAX: return tci_ref_extreme(true, args[0], args[1]);
    case TCI_W_MIN: return tci_ref_extreme(false, args[0], args[1]);
    case TCI_W_MODULO: return tci_ref_modulo(args[0], args[1]);
    case TCI_W_FLOOR_DIVIDE: return tci_ref_floor_divide(args[0], args[1]);
    case TCI_W_MINUS: return tci_ref_minus(args[0]);
    case TCI_P_SELECT: return args[args[0].v.i ? 1 : 2];
    case TCI_P_FMA: return tci_ref_fma(args[0], args[1], args[2]);
    default: break;
    }
    if (word >= TCI_W_K) {
        return tci_ref_number(operands[0], tci_formula_number(word));
    }
    return tci_ref_2((tci_prim)word, args[0], args[tci_formula_value_operands(word) - 1]);
}

static tci_ref_scalar tci_ref_row(int op, const tci_ref_scalar *operands)
{
    tci_ref_scalar stack[TCI_FORMULA_DEPTH];
    int n = 0;
    for (const uint8_t *w = tci_formula_value(op); *w != TCI_W_END; w++) {
        n -= tci_formula_value_operands(*w);
        stack[n] = tci_ref_word(*w, operands, stack + n);
        n++;
    }
    return stack[0];
}

static void tci_ref_elementwise(const tci_ref *r, const tci_node *n, tci_value *out)
{
    tc_dtype t = tci_ref_compute(r, (tc_dtype)n->in[0]->dtype);
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        tci_ref_scalar operands[3];
        for (int k = 0; k < n->n_in; k++) {
            const tci_ref_scalar operand = {tci_ref_of(r, n->in[k])[i], t, r->wide};
            operands[k] = operand;
        }
        tci_ref_scalar y = tci_ref_row(n->op, operands);
        out[i] = tci_ref_round(r, y.v, y.t, (tc_dtype)n->dtype);
    }
}

/* ---- leaves ---- */

static void tci_ref_leaf(tci_ref *r, const tci_node *n, tci_value *out)
{
    const int64_t count = tci_ref_count(n);
    const tc_dtype t = (tc_dtype)n->dtype;
    const void *memory = n->storage ? n->storage->data : NULL;
    for (int j = 0; n->op == TCI_OP_INPUT && j < r->n_inputs; j++) {
        memory = r->inputs[j] == n ? r->memory[j] : memory;
    }
    if (!memory && count > 0) {
        tci_scratch_fail(&r->s, TC_ERR_ARGUMENT, "a leaf of the graph has no memory");
    }
    tci_ref_index at = tci_ref_walk(r, n->rank, n->shape);
    const bool strided = n->op == TCI_OP_DATA && n->strides;
    for (int64_t i = 0; i < count; i++, tci_ref_next(&at)) {
        int64_t from = i;
        if (strided) {
            from = 0;
            for (int d = 0; d < n->rank; d++) {
                from += at.at[d] * tci_dim_known(n->strides[d]);
            }
        }
        from += n->op == TCI_OP_DATA ? n->offset : 0;
        out[i] = tci_value_load(t, (const char *)memory + from * tci_dtype_get(t)->bytes);
    }
}

/* ---- layout ops: which input element does an output element come from? ---- */

/* False: none (PAD's fill). `at` has the rank of the output, `to` that of the input. */
static bool tci_ref_source(tci_ref *r, const tci_node *n, const int64_t *at, int64_t *to)
{
    const tci_node *in = n->in[0];
    for (int d = 0; d < in->rank; d++) {
        switch (n->op) {
        case TCI_OP_PERMUTE: to[n->attr[d]] = at[d]; break;
        case TCI_OP_EXPAND: to[d] = in->shape[d] == 1 ? 0 : at[d]; break;
        case TCI_OP_SLICE: to[d] = n->attr[2 * d] + at[d] * n->attr[2 * d + 1]; break;
        case TCI_OP_PAD:
            to[d] = at[d] - n->attr[d];
            if (to[d] < 0 || to[d] >= tci_dim_known(in->shape[d])) {
                return false;
            }
            break;
        case TCI_OP_WINDOW: to[d] = at[d]; break; /* windowed axes below */
        default: TCI_ASSERT(&r->s, false);
        }
    }
    for (int w = 0; n->op == TCI_OP_WINDOW && w < n->n_attr / 4; w++) {
        const int64_t *a = n->attr + 4 * w; /* axis, kernel, stride, dilation */
        to[a[0]] = at[a[0]] * a[2] + at[in->rank + w] * a[3];
    }
    return true;
}

static void tci_ref_move(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *in = n->in[0];
    tci_ref_index at = tci_ref_walk(r, n->rank, n->shape);
    int64_t *to = TCI_NEW_ARRAY(&r->s, int64_t, in->rank + 1);
    for (int64_t i = 0; i < tci_ref_count(n); i++, tci_ref_next(&at)) {
        bool inside = tci_ref_source(r, n, at.at, to);
        out[i] = inside ? tci_ref_of(r, in)[tci_ref_flat(in->rank, in->shape, to)]
                        : tci_ref_of(r, n->in[1])[0];
    }
}

static void tci_ref_cat(tci_ref *r, const tci_node *n, tci_value *out)
{
    const int axis = (int)n->attr[0];
    tci_ref_index at = tci_ref_walk(r, n->rank, n->shape);
    for (int64_t i = 0; i < tci_ref_count(n); i++, tci_ref_next(&at)) {
        int64_t whole = at.at[axis];
        int part = 0;
        while (at.at[axis] >= tci_dim_known(n->in[part]->shape[axis])) {
            at.at[axis] -= tci_dim_known(n->in[part++]->shape[axis]);
        }
        out[i] = tci_ref_of(r, n->in[part])[tci_ref_flat(n->rank, n->in[part]->shape, at.at)];
        at.at[axis] = whole;
    }
}

static void tci_ref_gather(tci_ref *r, const tci_node *n, tci_value *out)
{
    const int axis = (int)n->attr[0];
    const tci_node *x = n->in[0];
    tci_ref_index at = tci_ref_walk(r, n->rank, n->shape);
    for (int64_t i = 0; i < tci_ref_count(n); i++, tci_ref_next(&at)) {
        int64_t whole = at.at[axis];
        int64_t index =
            tci_value_cast(tci_ref_of(r, n->in[1])[i], (tc_dtype)n->in[1]->dtype, TC_I64).i;
        at.at[axis] = tci_ref_check(r, index, tci_dim_known(x->shape[axis]));
        out[i] = at.at[axis] < 0 ? tci_ref_int(0)
                                 : tci_ref_of(r, x)[tci_ref_flat(x->rank, x->shape, at.at)];
        at.at[axis] = whole;
    }
}

/* ---- reductions ---- */

static tci_ref_scalar tci_ref_combine(tci_ref *r, int op, tci_ref_scalar acc, tci_ref_scalar v)
{
    switch (op) {
    case TCI_OP_SUM: return tci_ref_2(TCI_P_ADD, acc, v);
    case TCI_OP_PROD: return tci_ref_2(TCI_P_MUL, acc, v);
    case TCI_OP_MAX: return tci_ref_extreme(true, acc, v);
    case TCI_OP_MIN: return tci_ref_extreme(false, acc, v);
    case TCI_OP_ANY: return tci_ref_2(TCI_P_OR, acc, v);
    case TCI_OP_ALL: return tci_ref_2(TCI_P_AND, acc, v);
    }
    TCI_ASSERT(&r->s, false);
    return acc;
}

/* Row-major over the input is row-major over the reduced axes for each output element. */
static void tci_ref_reduce(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *in = n->in[0];
    const tc_dtype from = tci_ref_compute(r, (tc_dtype)in->dtype),
                   t = tci_ref_compute(r, (tc_dtype)n->dtype);
    tci_ref_index at = tci_ref_walk(r, in->rank, in->shape);
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        out[i] = tci_op_identity(n->op, t);
    }
    for (int64_t i = 0; i < tci_ref_count(in); i++, tci_ref_next(&at)) {
        tci_value *o = &out[tci_ref_kept(n, in, at.at)];
        tci_ref_scalar acc = {*o, t, r->wide},
                       v = {tci_value_cast(tci_ref_of(r, in)[i], from, t), t, r->wide};
        *o = tci_ref_combine(r, n->op, acc, v).v;
    }
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        out[i] = tci_ref_round(r, out[i], t, (tc_dtype)n->dtype);
    }
}

static tci_value tci_ref_merge(tci_ref *r, int mode, tci_ref_scalar old, tci_ref_scalar v)
{
    switch ((tci_mode)mode) {
    case TCI_MODE_SET: break;
    case TCI_MODE_ADD: return tci_ref_combine(r, TCI_OP_SUM, old, v).v;
    case TCI_MODE_MIN: return tci_ref_combine(r, TCI_OP_MIN, old, v).v;
    case TCI_MODE_MAX: return tci_ref_combine(r, TCI_OP_MAX, old, v).v;
    case TCI_MODE_MUL: return tci_ref_combine(r, TCI_OP_PROD, old, v).v;
    case TCI_MODE_COUNT: TCI_ASSERT(&r->s, false);
    }
    return v.v;
}

/* In row-major order of src, which is in order along the axis. */
static void tci_ref_scatter(tci_ref *r, const tci_node *n, tci_value *out)
{
    const int axis = (int)n->attr[0];
    const tci_node *index = n->in[1];
    const tc_dtype t = tci_ref_compute(r, (tc_dtype)n->dtype);
    tci_ref_index at = tci_ref_walk(r, n->rank, index->shape);
    const bool stores = n->n_in == 3 || tci_ref_of(r, n->in[3])->i;
    memcpy(out, tci_ref_of(r, n->in[0]), sizeof(*out) * (size_t)tci_ref_count(n));
    for (int64_t i = 0; i < tci_ref_count(index) && stores; i++, tci_ref_next(&at)) {
        int64_t whole = at.at[axis];
        int64_t to = tci_value_cast(tci_ref_of(r, index)[i], (tc_dtype)index->dtype, TC_I64).i;
        at.at[axis] = tci_ref_check(r, to, tci_dim_known(n->shape[axis]));
        if (at.at[axis] >= 0) {
            tci_value *o = &out[tci_ref_flat(n->rank, n->shape, at.at)];
            tci_ref_scalar old = {*o, t, r->wide}, v = {tci_ref_of(r, n->in[2])[i], t, r->wide};
            *o = tci_ref_round(r, tci_ref_merge(r, (int)n->attr[1], old, v), t, (tc_dtype)n->dtype);
        }
        at.at[axis] = whole;
    }
}

static void tci_ref_arg(const tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *in = n->in[0];
    const tc_dtype t = tci_ref_compute(r, (tc_dtype)in->dtype);
    const tci_ref_axis a = tci_ref_along(in, n->attr[0]);
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        const tci_value *x = tci_ref_of(r, in) + tci_ref_start(&a, line);
        int64_t best = 0;
        for (int64_t j = 1; j < a.size; j++) {
            tci_ref_scalar have = {x[best * a.inner], t, r->wide}, v = {x[j * a.inner], t, r->wide};
            bool beats = n->op == TCI_OP_ARGMAX ? tci_ref_2(TCI_P_LT, have, v).v.i
                                                : tci_ref_2(TCI_P_LT, v, have).v.i;
            bool first_nan = !tci_ref_2(TCI_P_EQ, v, v).v.i && tci_ref_2(TCI_P_EQ, have, have).v.i;
            best = beats || first_nan ? j : best;
        }
        out[line] = tci_ref_int(best);
    }
}

/* Two passes: the mean, then the squared differences from it. */
static void tci_ref_devsq(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *in = n->in[0];
    const tc_dtype t = tci_ref_compute(r, (tc_dtype)n->dtype);
    const int64_t results = tci_ref_count(n), count = results ? tci_ref_count(in) / results : 0;
    double *mean = TCI_NEW_ARRAY(&r->s, double, results + 1);
    for (int64_t i = 0; i < results; i++) {
        out[i].f = 0;
    }
    for (int pass = 0; pass < 2; pass++) {
        tci_ref_index at = tci_ref_walk(r, in->rank, in->shape);
        for (int64_t i = 0; i < tci_ref_count(in); i++, tci_ref_next(&at)) {
            int64_t o = tci_ref_kept(n, in, at.at);
            double x = tci_ref_of(r, in)[i].f;
            *(pass ? &out[o].f : &mean[o]) += pass ? (x - mean[o]) * (x - mean[o])
                                                   : x / (double)count;
        }
    }
    for (int64_t i = 0; i < results; i++) {
        out[i] = tci_ref_round(r, out[i], t, (tc_dtype)n->dtype);
    }
}

static void tci_ref_scan(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tc_dtype t = tci_ref_compute(r, (tc_dtype)n->dtype);
    const tci_ref_axis a = tci_ref_along(n, n->attr[0]);
    const int mode = (int)n->attr[2];
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        const int64_t start = tci_ref_start(&a, line);
        tci_ref_scalar acc = {tci_op_identity(TCI_OP_SUM, t), t, r->wide};
        for (int64_t j = 0; j < a.size; j++) {
            const int64_t at = start + (n->attr[1] ? a.size - 1 - j : j) * a.inner;
            tci_ref_scalar v = {tci_ref_of(r, n->in[0])[at], t, r->wide};
            bool begins = j == 0 && mode != TCI_MODE_ADD; /* 0 + -0 is 0 */
            acc.v = begins ? v.v : tci_ref_merge(r, mode, acc, v);
            out[at] = tci_ref_round(r, acc.v, t, (tc_dtype)n->dtype);
        }
    }
}

/* ---- contraction ---- */

typedef struct tci_ref_contract {
    /* distinct labels: the output's first, then the summed ones as they appear */
    int n_labels, n_kept;
    int64_t *label;
    tci_dim *size;
    int rank[2];
    int *place[2]; /* of each axis of a and b: which of the labels */
} tci_ref_contract;

static int tci_ref_label(tci_ref_contract *c, int64_t label)
{
    for (int i = 0; i < c->n_labels; i++) {
        if (c->label[i] == label) {
            return i;
        }
    }
    c->label[c->n_labels] = label;
    return c->n_labels++;
}

static tci_ref_contract tci_ref_contract_of(tci_ref *r, const tci_node *n)
{
    tci_ref_contract c = {0};
    const int64_t *labels = n->attr + 3;
    const int n_out = (int)n->attr[2];
    c.rank[0] = (int)n->attr[0];
    c.rank[1] = (int)n->attr[1];
    const int all = c.rank[0] + c.rank[1] + n_out;
    c.label = TCI_NEW_ARRAY(&r->s, int64_t, all + 1);
    c.size = TCI_NEW_ARRAY(&r->s, tci_dim, all + 1);
    for (int i = 0; i < n_out; i++) {
        tci_ref_label(&c, labels[c.rank[0] + c.rank[1] + i]);
    }
    c.n_kept = c.n_labels;
    for (int k = 0; k < 2; k++) {
        c.place[k] = TCI_NEW_ARRAY(&r->s, int, c.rank[k] + 1);
        for (int i = 0; i < c.rank[k]; i++) {
            c.place[k][i] = tci_ref_label(&c, labels[(k ? c.rank[0] : 0) + i]);
            c.size[c.place[k][i]] = n->in[k]->shape[i];
        }
    }
    return c;
}

static tci_value tci_ref_factor(const tci_ref *r, const tci_ref_contract *c, const tci_node *n,
                                int k, const int64_t *at)
{
    const tci_node *in = n->in[k];
    int64_t flat = 0;
    for (int i = 0; i < c->rank[k]; i++) {
        flat = flat * tci_dim_known(in->shape[i]) + at[c->place[k][i]];
    }
    return tci_value_cast(tci_ref_of(r, in)[flat], tci_ref_compute(r, (tc_dtype)in->dtype),
                          tci_ref_compute(r, (tc_dtype)n->dtype));
}

/* One FMA chain over the summed labels, the first of them slowest. */
static void tci_ref_contraction(tci_ref *r, const tci_node *n, tci_value *out)
{
    tci_ref_contract c = tci_ref_contract_of(r, n);
    const tc_dtype t = tci_ref_compute(r, (tc_dtype)n->dtype);
    tci_ref_index at = tci_ref_walk(r, c.n_labels, c.size);
    const int64_t summed = tci_ref_product(c.size, c.n_kept, c.n_labels);
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        tci_value acc = tci_op_identity(TCI_OP_SUM, t);
        for (int64_t j = 0; j < summed; j++, tci_ref_next(&at)) {
            tci_value args[3] = {tci_ref_factor(r, &c, n, 0, at.at),
                                 tci_ref_factor(r, &c, n, 1, at.at), acc};
            acc = tci_prim_eval(TCI_P_FMA, t, t, 0, args);
        }
        out[i] = tci_ref_round(r, acc, t, (tc_dtype)n->dtype);
    }
}

/* Whether an element comes before another of a later place. */
static bool tci_ref_leads(tc_dtype t, tci_value a, tci_value b, bool largest)
{
    bool nan_a = tci_dtype_is_float(t) && a.f != a.f, nan_b = tci_dtype_is_float(t) && b.f != b.f;
    bool above = tci_dtype_is_float(t) ? a.f > b.f : tci_dtype_is_signed(t) ? a.i > b.i : a.u > b.u;
    bool equal = nan_a || nan_b ? nan_a && nan_b : tci_dtype_is_float(t) ? a.f == b.f : a.i == b.i;
    return equal || (nan_a || (!nan_b && above)) == largest;
}

/* The rank of each element is how many lead it. */
static void tci_ref_topk(const tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *x = n->in[0];
    const tci_ref_axis from = tci_ref_along(x, n->attr[0]), to = tci_ref_along(n, n->attr[0]);
    for (int64_t line = 0; line < from.outer * from.inner; line++) {
        const tci_value *v = tci_ref_of(r, x) + tci_ref_start(&from, line);
        for (int64_t i = 0; i < from.size; i++) {
            int64_t rank = 0;
            for (int64_t j = 0; j < from.size; j++) {
                const tci_value *front = &v[TCI_MIN(i, j) * from.inner];
                const tci_value *back = &v[TCI_MAX(i, j) * from.inner];
                bool leads = tci_ref_leads((tc_dtype)x->dtype, *front, *back, n->attr[1] != 0);
                rank += i != j && leads == (j < i);
            }
            if (rank < to.size) {
                out[tci_ref_start(&to, line) + rank * to.inner] = tci_ref_int(i);
            }
        }
    }
}

/* ---- other nodes ---- */

static void tci_ref_numbers(const tci_node *n, tci_value *out)
{
    const bool counts = n->op == TCI_OP_IOTA;
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        out[i] = counts ? tci_ref_int(i) : n->value;
    }
}

/* Ten rounds of Philox4x32 as its authors write them: counter and key in place. */
static void tci_ref_philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    for (int i = 0; i < 10; i++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)a;
    }
}

static void tci_ref_random(const tci_ref *r, const tci_node *n, tci_value *out)
{
    const uint64_t key = tci_ref_of(r, n->in[0])->u, stream = tci_ref_of(r, n->in[1])->u;
    const int words = n->dtype == TC_U64 ? 2 : 1;
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        const uint64_t block = (uint64_t)i * (uint64_t)words / 4;
        const int at = (int)(i % (4 / words)) * words;
        uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                         (uint32_t)(stream >> 32)};
        tci_ref_philox(c, (uint32_t)key, (uint32_t)(key >> 32));
        out[i].u = words == 1 ? c[at] : c[at] | (uint64_t)c[at + 1] << 32;
    }
}

static void tci_ref_where(const tci_ref *r, const tci_node *n, tci_value *out)
{
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        out[i] = tci_ref_of(r, n->in[tci_ref_of(r, n->in[0])[i].i ? 1 : 2])[i];
    }
}

static void tci_ref_cast(const tci_ref *r, const tci_node *n, tci_value *out)
{
    const tc_dtype from = tci_ref_compute(r, (tc_dtype)n->in[0]->dtype);
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        out[i] = tci_ref_round(r, tci_ref_of(r, n->in[0])[i], from, (tc_dtype)n->dtype);
    }
}

static void tci_ref_bitcast(const tci_ref *r, const tci_node *n, tci_value *out)
{
    const tc_dtype from = (tc_dtype)n->in[0]->dtype;
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        uint64_t bits = 0;
        tci_value v = tci_ref_of(r, n->in[0])[i];
        v = r->wide && tci_dtype_is_float(from) ? tci_value_cast(v, TC_F64, from) : v;
        tci_value_store(from, &bits, v);
        out[i] = tci_value_load((tc_dtype)n->dtype, &bits);
    }
}

/* ---- loops ---- */

static void tci_ref_node(tci_ref *r, const tci_node *n);

static tci_value **tci_ref_slot(tci_ref *r, const tci_node *n)
{
    return tci_table_at(&r->values, n);
}

/* False for BOUND nodes and all nodes that depend on one, since they have no value outside of a
 * step. */
static bool tci_ref_has_value(tci_ref *r, const tci_node *n)
{
    bool has = n->op != TCI_OP_BOUND || *tci_ref_slot(r, n);
    for (int i = 0; i < tci_node_n_outside(n); i++) {
        has = has && *tci_ref_slot(r, n->in[i]);
    }
    return has;
}

/* Every node of the list that can have a value. */
static void tci_ref_nodes(tci_ref *r, tci_node_list list, const tci_reference_watch *watch)
{
    for (int i = 0; i < list.n; i++) {
        const tci_node *n = list.items[i];
        if (n->op == TCI_OP_BOUND || !tci_ref_has_value(r, n)) {
            continue;
        }
        tci_ref_node(r, n);
        if (watch) {
            watch->see(watch->user, n, &r->values);
        }
    }
}

/* The elements of a REPEAT's results, consecutive in memory. */
static int64_t tci_ref_result_at(const tci_repeat *p, int result)
{
    int64_t at = 0, length = tci_dim_known(p->length);
    for (int i = 0; i < result && (p->stops < 0 || i < p->n_carry); i++) {
        int y = i - p->n_carry, rows = y - p->n_y;
        at += y < 0      ? tci_ref_count(p->next[i])
              : rows < 0 ? length * tci_ref_count(p->y[y])
                         : (length + 1) * tci_ref_count(p->next[rows]);
    }
    return at;
}

/* Carry i as it is after this many steps. */
static void tci_ref_keep_carry(tci_ref *r, const tci_repeat *p, tci_value *out, int i,
                               int64_t steps)
{
    int64_t n = tci_ref_count(p->next[i]);
    tci_value *rows = out + tci_ref_result_at(p, p->n_carry + p->n_y + i);
    memcpy(rows + tci_dim_known(tci_repeat_row_at(p, steps)) * n, tci_ref_of(r, p->carry[i]),
           sizeof(*rows) * (size_t)n);
    if (steps == tci_dim_known(p->length)) {
        memcpy(out + tci_ref_result_at(p, i), tci_ref_of(r, p->carry[i]), sizeof(*out) * (size_t)n);
    }
}

static void tci_ref_step(tci_ref *r, const tci_repeat *p, tci_node_list body, tci_value *out,
                         int64_t step)
{
    int64_t at = p->reverse ? tci_dim_known(p->length) - 1 - step : step;
    for (int i = 0; i < p->n_x; i++) {
        tci_value *xs = *tci_ref_slot(r, p->xs[i]);
        *tci_ref_slot(r, p->x[i]) = xs + at * tci_ref_count(p->x[i]);
    }
    tci_ref_nodes(r, body, NULL);
    for (int i = 0; i < p->n_y; i++) {
        int64_t n = tci_ref_count(p->y[i]);
        memcpy(out + tci_ref_result_at(p, p->n_carry + i) + at * n, tci_ref_of(r, p->y[i]),
               sizeof(*out) * (size_t)n);
    }
    tci_value **next = TCI_NEW_ARRAY(&r->s, tci_value *, p->n_carry + 1);
    for (int i = 0; i < p->n_carry; i++) {
        next[i] = *tci_ref_slot(r, p->next[i]);
    }
    for (int i = 0; i < p->n_carry; i++) {
        *tci_ref_slot(r, p->carry[i]) = next[i];
    }
}

static void tci_ref_repeat(tci_ref *r, const tci_node *n)
{
    tci_repeat p = tci_repeat_of(n);
    int n_bound = p.n_carry + p.n_x + p.n_held;
    tci_value *out = TCI_NEW_ARRAY(&r->s, tci_value,
                                   tci_ref_result_at(&p, tci_repeat_n_results(&p)) + 1);
    tci_node_list body = tci_graph_sort_outside(&r->s, p.next, p.n_carry + p.n_y);
    for (int i = 0; i < n_bound; i++) {
        *tci_ref_slot(r, p.carry[i]) = *tci_ref_slot(r, p.init[i]);
    }
    bool stops = p.stops >= 0;
    for (int64_t step = 0; step < tci_dim_known(p.length); step++) {
        for (int i = 0; i < p.n_carry && !stops; i++) {
            tci_ref_keep_carry(r, &p, out, i, step);
        }
        if (stops && !tci_ref_of(r, p.carry[p.stops])->i) {
            break;
        }
        tci_ref_step(r, &p, body, out, step);
    }
    for (int i = 0; i < p.n_carry && !stops; i++) {
        tci_ref_keep_carry(r, &p, out, i, tci_dim_known(p.length));
    }
    for (int i = 0; i < p.n_carry && stops; i++) {
        memcpy(out + tci_ref_result_at(&p, i), tci_ref_of(r, p.carry[i]),
               sizeof(*out) * (size_t)tci_ref_count(p.next[i]));
    }
    for (int i = 0; i < n_bound; i++) {
        *tci_ref_slot(r, p.carry[i]) = NULL;
    }
    *tci_ref_slot(r, n) = out;
}

static void tci_ref_result(tci_ref *r, const tci_node *n, tci_value *out)
{
    tci_repeat p = tci_repeat_of(n->in[0]);
    memcpy(out, tci_ref_of(r, n->in[0]) + tci_ref_result_at(&p, (int)n->attr[0]),
           sizeof(*out) * (size_t)tci_ref_count(n));
}

/* The op's function, on dense memory. */
static void tci_ref_custom(tci_ref *r, const tci_node *n, tci_value *out)
{
    void *memory[TC_CUSTOM_MOST + 1];
    tc_custom_array arrays[TC_CUSTOM_MOST + 1];
    const tci_custom *op = tci_custom_get(n->attr[0]);
    tci_custom_call call = {.op = op, .n_inputs = n->n_in, .arrays = arrays};
    for (int i = 0; i <= n->n_in; i++) {
        const tci_node *x = i < n->n_in ? n->in[i] : n;
        const tc_dtype t = (tc_dtype)x->dtype;
        const int64_t count = tci_ref_count(x), bytes = tci_dtype_get(t)->bytes;
        arrays[i] = (tc_custom_array){NULL, t, x->rank, TCI_NEW_ARRAY(&r->s, int64_t, x->rank + 1),
                                      count};
        for (int d = 0; d < x->rank; d++) {
            arrays[i].sizes[d] = tci_dim_known(x->shape[d]);
        }
        memory[i] = TCI_NEW_ARRAY(&r->s, char, count *bytes + 1);
        for (int64_t e = 0; x != n && e < count; e++) {
            tci_value v = tci_ref_of(r, x)[e];
            v = r->wide && tci_dtype_is_float(t) ? tci_value_cast(v, TC_F64, t) : v;
            tci_value_store(t, (char *)memory[i] + e * bytes, v);
        }
    }
    tci_custom_run(&call, memory, 1);
    const tc_dtype t = (tc_dtype)n->dtype;
    for (int64_t e = 0; e < tci_ref_count(n); e++) {
        const char *at = (const char *)memory[n->n_in] + e * tci_dtype_get(t)->bytes;
        out[e] = tci_ref_round(r, tci_value_load(t, at), t, t);
    }
}

/* Of one rank, which has what it gives. */
static void tci_ref_collective(tci_ref *r, const tci_node *n, tci_value *out)
{
    if (n->attr[TCI_COLLECTIVE_RANKS] != 1) {
        tci_scratch_fail(&r->s, TC_ERR_UNSUPPORTED, "a collective of several ranks");
    }
    for (int64_t e = 0; e < tci_ref_count(n); e++) {
        out[e] = n->attr[TCI_COLLECTIVE_VERB] == TC_COMM_BARRIER ? (tci_value){.u = 1}
                                                                 : tci_ref_of(r, n->in[0])[e];
    }
}

/* Effects and parameters are of programs, segments of plans: the judge sees values alone. */
static void tci_ref_node(tci_ref *r, const tci_node *n)
{
    tci_value *out = TCI_NEW_ARRAY(&r->s, tci_value, tci_ref_count(n) + 1);
    *(tci_value **)tci_table_at(&r->values, n) = out;
    switch ((tci_op)n->op) {
        TCI_EW_OPS(TCI_OP_CASE) tci_ref_elementwise(r, n, out);
        break;
    case TCI_OP_SUM:
    case TCI_OP_PROD:
    case TCI_OP_MAX:
    case TCI_OP_MIN:
    case TCI_OP_ANY:
    case TCI_OP_ALL: tci_ref_reduce(r, n, out); break;
    case TCI_OP_ARGMAX:
    case TCI_OP_ARGMIN: tci_ref_arg(r, n, out); break;
    case TCI_OP_DEVSQ: tci_ref_devsq(r, n, out); break;
    case TCI_OP_INPUT:
    case TCI_OP_DATA: tci_ref_leaf(r, n, out); break;
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA: tci_ref_numbers(n, out); break;
    case TCI_OP_RANDOM: tci_ref_random(r, n, out); break;
    case TCI_OP_WHERE: tci_ref_where(r, n, out); break;
    case TCI_OP_CAST: tci_ref_cast(r, n, out); break;
    case TCI_OP_BITCAST: tci_ref_bitcast(r, n, out); break;
    case TCI_OP_WITH_DERIVATIVE:
        memcpy(out, tci_ref_of(r, n->in[1]), sizeof(*out) * (size_t)tci_node_count(n));
        break;
    case TCI_OP_STOP_GRADIENT:
    case TCI_OP_SHARD:
    case TCI_OP_NAMED:
    case TCI_OP_BARRIER:
    case TCI_OP_RESHAPE:
        memcpy(out, tci_ref_of(r, n->in[0]), sizeof(*out) * (size_t)tci_node_count(n));
        break;
    case TCI_OP_PERMUTE:
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE:
    case TCI_OP_PAD:
    case TCI_OP_WINDOW: tci_ref_move(r, n, out); break;
    case TCI_OP_CAT: tci_ref_cat(r, n, out); break;
    case TCI_OP_GATHER: tci_ref_gather(r, n, out); break;
    case TCI_OP_SCAN:
        TCI_ASSERT(&r->s, n->n_in == 1);
        tci_ref_scan(r, n, out);
        break;
    case TCI_OP_SCATTER: tci_ref_scatter(r, n, out); break;
    case TCI_OP_CONTRACT: tci_ref_contraction(r, n, out); break;
    case TCI_OP_REPEAT: tci_ref_repeat(r, n); break;
    case TCI_OP_RESULT: tci_ref_result(r, n, out); break;
    case TCI_OP_BOUND:
    case TCI_OP_ASSIGN:
    case TCI_OP_SEGMENT: TCI_ASSERT(&r->s, false); break;
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX: tci_ref_softmax(r, n, out); break;
    case TCI_OP_MEAN: tci_ref_mean(r, n, out); break;
    case TCI_OP_LAYER_NORM: tci_ref_layer_norm(r, n, out); break;
    case TCI_OP_CROSS_ENTROPY: tci_ref_cross_entropy(r, n, out); break;
    case TCI_OP_CONV_TRANSPOSE: tci_ref_conv_transpose(r, n, out); break;
    case TCI_OP_LU:
    case TCI_OP_SOLVE:
    case TCI_OP_SOLVE_TRIANGULAR:
    case TCI_OP_CHOLESKY: tci_ref_linear(r, n, out); break;
    case TCI_OP_TOPK: tci_ref_topk(r, n, out); break;
    case TCI_OP_CUSTOM: tci_ref_custom(r, n, out); break;
    case TCI_OP_COLLECTIVE: tci_ref_collective(r, n, out); break;
    }
}

static void tci_ref_store(const tci_ref *r, const tci_node *n, void *output)
{
    const tc_dtype t = (tc_dtype)n->dtype;
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        tci_value v = tci_ref_of(r, n)[i];
        v = r->wide && tci_dtype_is_float(t) ? tci_value_cast(v, TC_F64, t) : v;
        tci_value_store(t, (char *)output + i * tci_dtype_get(t)->bytes, v);
    }
}

static tc_status tci_ref_eval(tci_node *const *input_nodes, const void *const *inputs, int n_inputs,
                              tci_node *const *roots, void *const *outputs, int n_roots, bool wide,
                              const tci_reference_watch *watch)
{
    tci_ref *r = tci_heap_get(sizeof *r);
    if (!r) {
        return TC_ERR_MEMORY;
    }
    r->wide = wide;
    r->status = TC_OK;
    r->inputs = input_nodes;
    r->memory = inputs;
    r->n_inputs = n_inputs;
    tci_scratch_init(&r->s);
    r->values = tci_table_in(&r->s, sizeof(tci_value *));
    tc_status status;
    if (setjmp(r->s.escape)) {
        status = r->s.why;
    } else {
        tci_ref_nodes(r, tci_graph_sort_outside(&r->s, roots, n_roots), watch);
        for (int i = 0; i < n_roots; i++) {
            tci_ref_store(r, roots[i], outputs[i]);
        }
        status = r->status;
    }
    tci_scratch_free(&r->s);
    tci_heap_free(r);
    return status;
}

TCI_FN tc_status tci_reference_eval(tci_node *const *input_nodes, const void *const *inputs,
                                    int n_inputs, tci_node *const *roots, void *const *outputs,
                                    int n_roots, bool wide)
{
    return tci_ref_eval(input_nodes, inputs, n_inputs, roots, outputs, n_roots, wide, NULL);
}

TCI_FN tc_status tci_reference_eval_watched(tci_node *const *input_nodes, const void *const *inputs,
                                            int n_inputs, tci_node *const *roots,
                                            void *const *outputs, int n_roots,
                                            const tci_reference_watch *watch)
{
    return tci_ref_eval(input_nodes, inputs, n_inputs, roots, outputs, n_roots, false, watch);
}
