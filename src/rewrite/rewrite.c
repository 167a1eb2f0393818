/* rewrite/rewrite.c - bit-exact graph rewriting: expansion of composites, constant folding, merging
 * of data-movement (view) ops.
 *
 * In: roots in a graph. Out: nodes of the same graph with the same values, bit for bit (any NaN
 * equals any NaN), in fewer and simpler ops: composites expanded, loops of one iteration inlined,
 * constants folded, consecutive movement (view) ops merged, identities removed. Equal nodes are
 * merged by hash-consing; dead nodes are left behind.
 *
 * Design: nodes are visited inputs first, so a rule sees inputs in their final form, and one visit
 * per pass suffices. There are four passes (expand, sink movement ops into bodies, simplify,
 * rewrite/slice_pushdown.c), each linear in the graph.
 *
 * Rules must be exact in IEEE arithmetic; otherwise results would depend on what the compiler sees.
 * Excluded are x + 0 for floats (it turns -0 into 0), x * 0, x - x, and any reordering of sums.
 *
 * A broadcast scalar has one canonical form, EXPAND of RESHAPE of the 0-d node, so rules find
 * constants at a depth of two nodes. node->pass holds the replacement of a visited node. */
#include "rewrite.h"

#include <math.h>
#include <string.h>

#include "../graph/build.h"
#include "../graph/loop_node.h"
#include "../ops/formula_bytecode.h"
#include "../ops/math.h"

typedef struct tci_rewrite_pass {
    tci_scratch *s;
    tci_graph *g;
    tci_table inlined; /* of tci_node **: the results of a REPEAT of one step */
} tci_rewrite_pass;

enum { TCI_REWRITE_MOVES = 64 }; /* nested, below which a BARRIER goes */

/* A builder that fails here had no memory, or was given a graph that was valid before: our own
 * mistake. */
static tci_node *tci_rewrite_built(tci_rewrite_pass *p, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(p->s, tci_graph_why_again(p->g), "rewrite: %s", p->g->message);
    }
    return n;
}

static bool tci_rewrite_same_shape(const tci_node *a, const tci_node *b)
{
    return tci_build_same_shape(a->rank, a->shape, b->rank, b->shape);
}

/* ---- constants ---- */

/* The 0-d node whose broadcast n is, or NULL. */
static tci_node *tci_rewrite_scalar(tci_node *n)
{
    if (n->op == TCI_OP_EXPAND) {
        n = n->in[0];
    }
    if (n->op == TCI_OP_RESHAPE) {
        n = n->in[0];
    }
    return n->rank ? NULL : n;
}

static const tci_node *tci_rewrite_const(tci_node *n)
{
    const tci_node *scalar = tci_rewrite_scalar(n);
    return scalar && scalar->op == TCI_OP_CONST ? scalar : NULL;
}

static double tci_rewrite_number(const tci_node *c)
{
    return tci_dtype_is_float((tc_dtype)c->dtype) ? c->value.f : (double)c->value.i;
}

/* n is a constant equal to v, and not -0. */
static bool tci_rewrite_is(tci_node *n, double v)
{
    const tci_node *c = tci_rewrite_const(n);
    if (!c || tci_rewrite_number(c) != v) {
        return false;
    }
    return v != 0.0 || !tci_dtype_is_float((tc_dtype)c->dtype) || !signbit(c->value.f);
}

/* A value of the value column over constants. */
typedef struct tci_rewrite_typed {
    tci_value v;
    tc_dtype t; /* a compute dtype */
} tci_rewrite_typed;

static tci_value tci_rewrite_prim(tci_prim p, tc_dtype t, tci_value a, tci_value b)
{
    const tci_value args[3] = {a, b, b};
    return tci_prim_eval(p, t, t, 0, args);
}

static tci_value tci_rewrite_pow(tc_dtype t, tci_value a, tci_value b)
{
    if (!tci_dtype_is_float(t) || !tci_power_is_plain(b.f)) {
        return tci_rewrite_prim(tci_dtype_is_float(t) ? TCI_P_POW : TCI_P_POWI, t, a, b);
    }
    tci_step_inst insts[TCI_POWER_MAX];
    tci_recipe r = tci_power_recipe(insts, t, b.f);
    return tci_recipe_eval(&r, &a);
}

static tci_value tci_rewrite_k(tc_dtype t, double v)
{
    tci_value f = {.f = v};
    return tci_value_cast(f, TC_F64, t);
}

static tci_value tci_rewrite_extreme(tc_dtype t, bool max, tci_value a, tci_value b)
{
    if (t == TC_BOOL) {
        return tci_rewrite_prim(max ? TCI_P_OR : TCI_P_AND, t, a, b);
    }
    bool is_nan = tci_dtype_is_float(t) && a.f != a.f;
    return is_nan ? a : tci_rewrite_prim(max ? TCI_P_PMAX : TCI_P_PMIN, t, a, b);
}

static bool tci_rewrite_is_less(tc_dtype t, tci_value a, double b)
{
    return tci_rewrite_prim(TCI_P_LT, t, a, tci_rewrite_k(t, b)).i;
}

static bool tci_rewrite_is_zero(tc_dtype t, tci_value a)
{
    return tci_rewrite_prim(TCI_P_EQ, t, a, tci_rewrite_k(t, 0)).i;
}

/* Whether the remainder r by b is not 0 and has the other sign. */
static bool tci_rewrite_opposed(tc_dtype t, tci_value r, tci_value b)
{
    return tci_dtype_is_signed(t) && !tci_rewrite_is_zero(t, r) &&
           tci_rewrite_is_less(t, r, 0) != tci_rewrite_is_less(t, b, 0);
}

static tci_value tci_rewrite_modulo(tc_dtype t, tci_value a, tci_value b)
{
    tci_value r = tci_rewrite_prim(TCI_P_REM, t, a, b);
    if (tci_rewrite_is_zero(t, r)) {
        return tci_rewrite_k(t, tci_rewrite_is_less(t, b, 0) ? -0.0 : 0.0);
    }
    return tci_rewrite_opposed(t, r, b) ? tci_rewrite_prim(TCI_P_ADD, t, r, b) : r;
}

static tci_value tci_rewrite_floor_divide(tc_dtype t, tci_value a, tci_value b)
{
    tci_value plain = tci_rewrite_prim(TCI_P_DIV, t, a, b);
    tci_value r = tci_rewrite_prim(TCI_P_REM, t, a, b);
    tci_value one = tci_rewrite_k(t, 1), q = plain;
    if (tci_rewrite_is_zero(t, b)) {
        return plain;
    }
    if (tci_dtype_is_float(t)) {
        q = tci_rewrite_prim(TCI_P_DIV, t, tci_rewrite_prim(TCI_P_SUB, t, a, r), b);
    }
    q = tci_rewrite_opposed(t, r, b) ? tci_rewrite_prim(TCI_P_SUB, t, q, one) : q;
    if (tci_dtype_is_float(t) && tci_rewrite_is_zero(t, q)) {
        return tci_rewrite_prim(TCI_P_MUL, t, plain, tci_rewrite_k(t, 0));
    }
    tci_value y = tci_rewrite_prim(TCI_P_FLOOR, t, q, q);
    bool below = tci_dtype_is_float(t) && q.f - y.f > 0.5;
    return below ? tci_rewrite_prim(TCI_P_ADD, t, y, one) : y;
}

static tci_value tci_rewrite_minus(tc_dtype t, tci_value a)
{
    bool is_float = tci_dtype_is_float(t);
    a = is_float ? tci_rewrite_prim(TCI_P_COPYSIGN, t, tci_rewrite_k(t, 1), a) : a;
    return tci_rewrite_prim(TCI_P_LT, t, a, tci_rewrite_k(t, 0));
}

/* One word of the column over the values it takes; operands[] are the row's. */
static tci_rewrite_typed tci_rewrite_word(int word, const tci_rewrite_typed *operands,
                                          const tci_rewrite_typed *args)
{
    tci_rewrite_typed r = {.t = operands[0].t};
    int n = tci_formula_value_operands(word);
    if (word >= TCI_W_A && word <= TCI_W_C) {
        return operands[word - TCI_W_A];
    }
    if (n == 0) {
        r.v = tci_rewrite_k(r.t, tci_formula_number(word));
        return r;
    }
    tci_value a = args[0].v, b = args[n - 1].v;
    r.t = args[0].t;
    switch (word) {
    case TCI_W_MAX: r.v = tci_rewrite_extreme(r.t, true, a, b); break;
    case TCI_W_MIN: r.v = tci_rewrite_extreme(r.t, false, a, b); break;
    case TCI_W_MODULO: r.v = tci_rewrite_modulo(r.t, a, b); break;
    case TCI_W_FLOOR_DIVIDE: r.v = tci_rewrite_floor_divide(r.t, a, b); break;
    case TCI_W_MINUS:
        r.v = tci_rewrite_minus(r.t, a);
        r.t = TC_BOOL;
        break;
    case TCI_P_SELECT: return args[a.i ? 1 : 2];
    case TCI_P_FMA: {
        const tci_value all[3] = {a, args[1].v, b};
        r.v = tci_prim_eval(TCI_P_FMA, r.t, r.t, 0, all);
        break;
    }
    case TCI_P_POW: r.v = tci_rewrite_pow(r.t, a, b); break;
    default:
        r.v = tci_rewrite_prim((tci_prim)word, r.t, a, b);
        r.t = tci_prim_get((tci_prim)word)->result == 'B' ? TC_BOOL : r.t;
    }
    return r;
}

static tci_value tci_rewrite_row(int op, const tci_rewrite_typed *operands)
{
    tci_rewrite_typed stack[TCI_FORMULA_DEPTH];
    int n = 0;
    for (const uint8_t *w = tci_formula_value(op); *w != TCI_W_END; w++) {
        n -= tci_formula_value_operands(*w);
        stack[n] = tci_rewrite_word(*w, operands, stack + n);
        n++;
    }
    return stack[0].v;
}

/* An elementwise node of constants; NULL when an operand is none. */
static tci_node *tci_rewrite_fold(tci_rewrite_pass *p, tci_node *n)
{
    tc_dtype operands = (tc_dtype)n->in[0]->dtype, result = (tc_dtype)n->dtype;
    tc_dtype t = (tc_dtype)tci_dtype_get(operands)->compute;
    tci_rewrite_typed values[3];
    for (int i = 0; i < n->n_in; i++) {
        const tci_node *c = tci_rewrite_const(n->in[i]);
        if (!c) {
            return NULL;
        }
        values[i].v = c->value;
        values[i].t = t;
    }
    tci_value v = tci_rewrite_row(n->op, values);
    if (result == operands) {
        v = tci_value_cast(v, t, result);
    }
    return tci_build_broadcast(p->g, tci_graph_const(p->g, result, v), n->rank, n->shape);
}

/* ---- elementwise rules ---- */

/* 1 / c where that is exact and division by c is multiplication by it; else 0. */
static double tci_rewrite_inverse(tci_node *n)
{
    const tci_node *c = tci_rewrite_const(n);
    int exponent;
    if (!c || !tci_dtype_is_float((tc_dtype)c->dtype) || !isfinite(c->value.f)) {
        return 0.0;
    }
    double fraction = frexp(c->value.f, &exponent);
    bool exact = fabs(fraction) == 0.5 && exponent > -13 && exponent < 13; /* also in f16 */
    return exact ? 1.0 / c->value.f : 0.0;
}

static tci_node *tci_rewrite_binary(tci_rewrite_pass *p, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_build_ew(p->g, op, in);
}

static tci_node *tci_rewrite_mul(tci_rewrite_pass *p, tci_node *n)
{
    for (int i = 0; i < 2; i++) {
        if (tci_rewrite_is(n->in[i], 1.0)) {
            return n->in[1 - i];
        }
        if (tci_rewrite_is(n->in[i], -1.0) && tci_dtype_is_float((tc_dtype)n->dtype)) {
            return tci_build_ew(p->g, TCI_OP_NEG, &n->in[1 - i]);
        }
    }
    return n;
}

static tci_node *tci_rewrite_div(tci_rewrite_pass *p, tci_node *n)
{
    double inverse = tci_rewrite_inverse(n->in[1]);
    if (inverse == 1.0) {
        return n->in[0];
    }
    if (inverse == 0.0) {
        return n;
    }
    tci_value v = {.f = inverse};
    return tci_rewrite_binary(p, TCI_OP_MUL, n->in[0],
                              tci_graph_const(p->g, (tc_dtype)n->dtype, v));
}

static tci_node *tci_rewrite_ew(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *folded = tci_rewrite_fold(p, n);
    bool is_int = tci_dtype_is_int((tc_dtype)n->dtype);
    if (folded) {
        return folded;
    }
    switch (n->op) {
    case TCI_OP_MUL: return tci_rewrite_mul(p, n);
    case TCI_OP_DIV: return tci_rewrite_div(p, n);
    case TCI_OP_SUB: return tci_rewrite_is(n->in[1], 0.0) ? n->in[0] : n;
    case TCI_OP_ADD:
        if (is_int && tci_rewrite_is(n->in[0], 0.0)) {
            return n->in[1];
        }
        return is_int && tci_rewrite_is(n->in[1], 0.0) ? n->in[0] : n;
    case TCI_OP_NEG: return n->in[0]->op == TCI_OP_NEG ? n->in[0]->in[0] : n;
    case TCI_OP_ABS:
    case TCI_OP_RELU: return n->in[0]->op == n->op ? n->in[0] : n;
    default: return n;
    }
}

/* Whether every value of `from` is a value of `to`. */
static bool tci_rewrite_is_wider(tc_dtype from, tc_dtype to)
{
    const tci_dtype_info *f = tci_dtype_get(from), *t = tci_dtype_get(to);
    if (from == to || from == TC_BOOL) {
        return true;
    }
    if (f->kind == TCI_KIND_FLOAT) {
        return t->kind == TCI_KIND_FLOAT && t->bytes > f->bytes;
    }
    if (t->kind == TCI_KIND_FLOAT) {
        return t->bytes > f->bytes || (f->bytes == 1 && t->bytes == 2);
    }
    return (t->kind == f->kind || t->kind == TCI_KIND_INT) && t->bytes > f->bytes;
}

static tci_node *tci_rewrite_cast(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *x = n->in[0];
    const tci_node *c = tci_rewrite_const(x);
    if (c) {
        tci_value v = tci_value_cast(c->value, (tc_dtype)c->dtype, (tc_dtype)n->dtype);
        return tci_build_broadcast(p->g, tci_graph_const(p->g, (tc_dtype)n->dtype, v), n->rank,
                                   n->shape);
    }
    if (x->op == TCI_OP_CAST &&
        tci_rewrite_is_wider((tc_dtype)x->in[0]->dtype, (tc_dtype)x->dtype)) {
        return tci_build_cast(p->g, x->in[0], (tc_dtype)n->dtype);
    }
    return x->dtype == n->dtype ? x : n;
}

static tci_node *tci_rewrite_where(tci_node *n)
{
    const tci_node *c = tci_rewrite_const(n->in[0]);
    if (n->in[1] == n->in[2]) {
        return n->in[1];
    }
    return c ? n->in[c->value.i ? 1 : 2] : n;
}

/* ---- movement rules ---- */

static tci_node *tci_rewrite_permute(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *x = n->in[0];
    bool merge = x->op == TCI_OP_PERMUTE, identity = true;
    int64_t *order = TCI_NEW_ARRAY(p->s, int64_t, n->rank);
    for (int i = 0; i < n->rank; i++) {
        order[i] = merge ? x->attr[n->attr[i]] : n->attr[i];
        identity = identity && order[i] == i;
    }
    tci_node *from = merge ? x->in[0] : x;
    if (identity) {
        return from;
    }
    return merge ? tci_graph_node(p->g, TCI_OP_PERMUTE, (tc_dtype)n->dtype, n->rank, n->shape, 1,
                                  &from, n->rank, order)
                 : n;
}

/* True if n reverses its elements along one axis and keeps all others. */
static bool tci_rewrite_is_flip(const tci_node *n, int axis)
{
    bool flip = n->op == TCI_OP_SLICE && tci_rewrite_same_shape(n, n->in[0]);
    for (int i = 0; flip && i < n->rank; i++) {
        flip = n->attr[2 * i] == (i == axis ? (int64_t)tci_dim_add(n->shape[i], -1) : 0) &&
               n->attr[2 * i + 1] == (i == axis ? -1 : 1);
    }
    return flip;
}

/* Running values of what is backwards, the other way round again, begin at the other end. */
static tci_node *tci_rewrite_turned_scan(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *scan = n->in[0];
    int axis = (int)tci_dim_known(scan->attr[0]);
    bool turned = tci_rewrite_is_flip(n, axis) && tci_rewrite_is_flip(scan->in[0], axis);
    return turned ? tci_build_scan(p->g, scan->in[0]->in[0], axis, !scan->attr[1],
                                   (tci_mode)scan->attr[2])
                  : n;
}

static tci_node *tci_rewrite_slice(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *x = n->in[0];
    if (x->op == TCI_OP_SCAN) {
        return tci_rewrite_turned_scan(p, n);
    }
    bool merge = x->op == TCI_OP_SLICE && tci_node_count(n) != 0, whole = true;
    int64_t *attr = TCI_NEW_ARRAY(p->s, int64_t, 2 * n->rank);
    tci_node *from = merge ? x->in[0] : x;
    for (int i = 0; i < n->rank; i++) {
        tci_dim start = n->attr[2 * i], step = n->attr[2 * i + 1];
        tci_dim by = merge ? x->attr[2 * i + 1] : 1;
        start = merge ? tci_dim_add(x->attr[2 * i], tci_dim_mul(by, start)) : start;
        attr[2 * i] = (int64_t)start;
        attr[2 * i + 1] = n->shape[i] == 1 ? 1 : (int64_t)tci_dim_mul(by, step);
        whole = whole && attr[2 * i] == 0 && attr[2 * i + 1] == 1 && n->shape[i] == from->shape[i];
    }
    if (whole) {
        return from;
    }
    return merge ? tci_graph_node(p->g, TCI_OP_SLICE, (tc_dtype)n->dtype, n->rank, n->shape, 1,
                                  &from, 2 * n->rank, attr)
                 : n;
}

/* RESHAPE and EXPAND say all in their shape: of two in a row the first is not seen. */
static tci_node *tci_rewrite_reshaped(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *x = n->in[0];
    tci_node *from = x->op == n->op ? x->in[0] : x;
    if (tci_rewrite_same_shape(from, n)) {
        return from;
    }
    return from == x ? n
                     : tci_graph_node(p->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, 1, &from,
                                      0, NULL);
}

/* Of two PADs with one fill, where the outer one adds nothing that the inner one cut off: one. */
static tci_node *tci_rewrite_pads(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *x = n->in[0];
    bool merge = x->op == TCI_OP_PAD && x->in[1] == n->in[1];
    tci_dim *before = TCI_NEW_ARRAY(p->s, tci_dim, n->rank + 1);
    for (int i = 0; i < n->rank && merge; i++) {
        tci_dim after = tci_dim_sub(tci_dim_sub(n->shape[i], x->shape[i]), n->attr[i]);
        tci_dim inner = tci_dim_sub(tci_dim_sub(x->shape[i], x->in[0]->shape[i]), x->attr[i]);
        merge = (tci_dim_le(0, x->attr[i]) || tci_dim_le(n->attr[i], 0)) &&
                (tci_dim_le(0, inner) || tci_dim_le(after, 0));
        before[i] = tci_dim_add(n->attr[i], x->attr[i]);
    }
    return merge ? tci_graph_node(p->g, TCI_OP_PAD, (tc_dtype)n->dtype, n->rank, n->shape, 2, x->in,
                                  n->rank, tci_dim_words(before))
                 : n;
}

static tci_node *tci_rewrite_pad(tci_rewrite_pass *p, tci_node *n)
{
    n = tci_rewrite_pads(p, n);
    bool nothing = tci_rewrite_same_shape(n, n->in[0]);
    for (int i = 0; nothing && i < n->rank; i++) {
        nothing = n->attr[i] == 0;
    }
    return nothing ? n->in[0] : n;
}

static tci_node *tci_rewrite_movement(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *scalar = tci_rewrite_scalar(n->in[0]);
    if (scalar) {
        return tci_build_broadcast(p->g, scalar, n->rank, n->shape);
    }
    switch (n->op) {
    case TCI_OP_PERMUTE: return tci_rewrite_permute(p, n);
    case TCI_OP_SLICE: return tci_rewrite_slice(p, n);
    default: return tci_rewrite_reshaped(p, n);
    }
}

/* ---- nothing to compute ---- */

static bool tci_rewrite_has_empty_operand(const tci_node *n)
{
    bool empty = false;
    for (int i = 0; i < n->n_in; i++) {
        empty = empty || tci_node_count(n->in[i]) == 0;
    }
    return empty;
}

/* A value without elements, or a sum over none, is a constant: no kernel runs over an empty domain,
 * where work moved out of its loops (the check of an index) would run all the same. That is decided
 * where sizes are known; a symbolic one is not 0. */
static tci_node *tci_rewrite_empty(tci_rewrite_pass *p, tci_node *n)
{
    bool empty = tci_node_count(n) == 0 ||
                 (tci_op_is(n->op, TCI_IS_FOLD) && tci_rewrite_has_empty_operand(n));
    if (!empty || tci_op_is(n->op, TCI_IS_LEAF | TCI_IS_EFFECT) || tci_op_is_composite(n->op)) {
        return NULL;
    }
    bool one = tci_op_get(n->op)->identity == TCI_IDENTITY_1;
    tci_value v = tci_rewrite_k((tc_dtype)n->dtype, one ? 1 : 0);
    return tci_build_broadcast(p->g, tci_graph_const(p->g, (tc_dtype)n->dtype, v), n->rank,
                               n->shape);
}

/* A fold over axes of one element each is that element; a sum of it begins at 0, so -0 becomes 0.
 */
static tci_node *tci_rewrite_fold_of_one(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *x = n->in[0];
    bool one = x->dtype == n->dtype;
    for (int i = 0; i < n->n_attr; i++) {
        one = one && x->shape[n->attr[i]] == 1;
    }
    if (!one) {
        return n;
    }
    if (n->op == TCI_OP_SUM && tci_dtype_is_float((tc_dtype)n->dtype)) {
        tci_node *zero = tci_graph_const(p->g, (tc_dtype)n->dtype,
                                         tci_rewrite_k((tc_dtype)n->dtype, 0));
        x = tci_rewrite_binary(p, TCI_OP_ADD, x, zero);
    }
    return tci_build_reshape(p->g, x, n->rank, n->shape);
}

/* ---- the passes ---- */

static tci_node *tci_rewrite_simplify(tci_rewrite_pass *p, tci_node *n)
{
    tci_node *nothing = tci_rewrite_empty(p, n);
    if (nothing) {
        return nothing;
    }
    if (tci_op_is_ew(n->op)) {
        return tci_rewrite_ew(p, n);
    }
    switch (n->op) {
    case TCI_OP_CAST: return tci_rewrite_cast(p, n);
    case TCI_OP_WHERE: return tci_rewrite_where(n);
    case TCI_OP_RESHAPE:
    case TCI_OP_PERMUTE:
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE: return tci_rewrite_movement(p, n);
    case TCI_OP_PAD: return tci_rewrite_pad(p, n);
    case TCI_OP_CAT: return n->n_in == 1 ? n->in[0] : n;
    case TCI_OP_SCATTER: return tci_node_count(n->in[1]) == 0 ? n->in[0] : n;
    case TCI_OP_SUM:
    case TCI_OP_PROD:
    case TCI_OP_MAX:
    case TCI_OP_MIN: return tci_rewrite_fold_of_one(p, n);
    default: return n;
    }
}

static void tci_rewrite_run(tci_rewrite_pass *p, tci_node **roots, int n,
                            tci_node *(*rule)(tci_rewrite_pass *p, tci_node *n))
{
    tci_node_list list = tci_graph_sort(p->s, roots, n);
    tci_table now = tci_table_in(p->s, sizeof(tci_node *));
    for (int i = 0; i < list.n; i++) {
        tci_node *old = list.items[i];
        tci_stamp stamp = tci_graph_stamp_as(p->g, old);
        tci_node *over = tci_rewrite_built(p, tci_graph_rebuild(p->s, p->g, old, &now));
        tci_table_put(&now, old, tci_rewrite_built(p, rule(p, over)));
        tci_graph_restamp(p->g, stamp);
    }
    for (int i = 0; i < n; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}

/* A result of a loop of one iteration: its body is among the nodes that were expanded before. */
static tci_node *tci_rewrite_result(tci_rewrite_pass *p, tci_node *n)
{
    const tci_repeat r = tci_repeat_of(n->in[0]);
    if (!tci_repeat_is_once(&r)) {
        return n;
    }
    tci_node ***results = (tci_node ***)tci_table_at(&p->inlined, n->in[0]);
    *results = *results ? *results : tci_repeat_results(p->s, p->g, n->in[0]);
    return (*results)[n->attr[0]];
}

/* True if a BARRIER that sinks goes below n: n is movement that keeps all elements, or movement of
 * what is in memory anyway, or random bits. */
static bool tci_rewrite_is_passed(const tci_node *n)
{
    const tci_node *x = n->n_in ? n->in[0] : NULL;
    if (n->op != TCI_OP_SLICE && n->op != TCI_OP_WINDOW) {
        return tci_op_is(n->op, TCI_IS_VIEW | TCI_IS_DRAWN);
    }
    while (tci_op_is(x->op, TCI_IS_VIEW)) {
        x = x->in[0];
    }
    return tci_op_is(x->op, TCI_IS_MEMORY) || x->op == TCI_OP_RESULT;
}

/* x, which the BARRIER n is to keep apart: the movement over its source after the BARRIER. */
static tci_node *tci_rewrite_behind(tci_rewrite_pass *p, const tci_node *n, tci_node *x, int depth)
{
    if (x->op == TCI_OP_IOTA) {
        return x;
    }
    if (depth == TCI_REWRITE_MOVES || !tci_rewrite_is_passed(x)) {
        return tci_rewrite_built(p, tci_build_barrier(p->g, x, n->in + 1, n->n_in - 1, false));
    }
    tci_node **in = TCI_NEW_ARRAY(p->s, tci_node *, x->n_in);
    for (int i = 0; i < x->n_in; i++) {
        in[i] = tci_rewrite_behind(p, n, x->in[i], depth + 1);
    }
    return tci_graph_node(p->g, x->op, (tc_dtype)x->dtype, x->rank, x->shape, x->n_in, in,
                          x->n_attr, x->attr);
}

static tci_node *tci_rewrite_expand(tci_rewrite_pass *p, tci_node *n)
{
    if (n->op == TCI_OP_RESULT) {
        return tci_rewrite_result(p, n);
    }
    if (n->op == TCI_OP_BARRIER && n->attr[0]) {
        return tci_rewrite_behind(p, n, n->in[0], 0);
    }
    return tci_op_is_composite(n->op) ? tci_expand_composite(p->g, n) : n;
}

/* Numbers and movement go into the bodies that hold them. */
static void tci_rewrite_sink(tci_rewrite_pass *p, tci_node **roots, int n)
{
    tci_node_list list = tci_graph_sort_outside(p->s, roots, n);
    tci_table now = tci_table_in(p->s, sizeof(tci_node *));
    for (int i = 0; i < list.n; i++) {
        tci_node *old = list.items[i];
        for (int k = tci_node_n_outside(old); k < old->n_in; k++) {
            tci_table_put(&now, old->in[k], old->in[k]);
        }
        tci_node *over = tci_graph_rebuild(p->s, p->g, old, &now);
        tci_table_put(&now, old,
                      over->op == TCI_OP_REPEAT ? tci_repeat_sink(p->s, p->g, over) : over);
    }
    for (int i = 0; i < n; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}

TCI_FN tci_node **tci_rewrite(tci_scratch *s, tci_graph *g, tci_node **roots, int n)
{
    tci_rewrite_pass p = {s, g, tci_table_in(s, sizeof(tci_node **))};
    tci_node **now = tci_scratch_copy(s, roots, (size_t)n * sizeof(*roots));
    tci_rewrite_run(&p, now, n, tci_rewrite_expand);
    tci_rewrite_sink(&p, now, n);
    tci_rewrite_run(&p, now, n, tci_rewrite_simplify);
    tci_rewrite_crop(s, g, now, n);
    return now;
}
