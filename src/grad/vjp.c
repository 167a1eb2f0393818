/* grad/vjp.c - the gradient columns of the op rows as functions.
 *
 * In: a node, one of its operands, the gradient of its result. Out: what the operand takes from it.
 * The one idea: a column is nested calls of rows; expanded here with every call meaning "build that
 * node", it makes the gradient's part of the graph. Only the asked operand's formula is evaluated.
 *
 * Operands and result have one shape (builders made broadcasting explicit), so no formula here sums
 * over axes; EXPAND does (rules.c). f16 and bf16 are widened before and rounded once after. */
#include "grad.h"

TCI_FN tci_node *tci_vjp_built(const tci_vjp *v, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(v->s, v->g->error ? v->g->error : TC_ERR_INTERNAL, "%s", v->g->message);
    }
    return n;
}

TCI_FN tci_vjp_kind tci_vjp_kind_of(int op)
{
#define DA(a) TCI_VJP_ROW
#define DAB(a, b) TCI_VJP_ROW
#define FLAT TCI_VJP_FLAT
#define NONE TCI_VJP_NONE
    static const uint8_t rows[] = {
#define TCI_ROW(id, name, arity, rule, flags, value, gradient, doc) [TCI_OP_##id] = gradient,
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(id, name, rule, identity, gradient, doc) [TCI_OP_##id] = gradient,
        TCI_REDUCE_OPS(TCI_ROW)
#undef TCI_ROW
#undef NONE
#undef FLAT
#define TCI_ROW(id, name, gradient, doc) [TCI_OP_##id] = TCI_VJP_##gradient,
        TCI_SPECIAL_OPS(TCI_ROW) TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
    };
#undef DA
#undef DAB
    return (tci_vjp_kind)rows[op];
}

/* ---- what the calls of a column mean ---- */

typedef struct tci_vjp_row {
    tci_graph *g;
    const tci_node *n;
    tci_node *a, *b, *y, *grad;
    tc_dtype t; /* they are computed in */
} tci_vjp_row;

static tci_node *tci_vjp_k(const tci_vjp_row *v, double x)
{
    tci_value f = {.f = x};
    return tci_graph_const(v->g, v->t, f);
}

static tci_node *tci_vjp_1(const tci_vjp_row *v, int op, tci_node *a)
{
    return tci_build_ew(v->g, op, &a);
}

static tci_node *tci_vjp_2(const tci_vjp_row *v, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_build_ew(v->g, op, in);
}

static tci_node *tci_vjp_where(const tci_vjp_row *v, tci_node *c, tci_node *a, tci_node *b)
{
    return tci_build_where(v->g, c, a, b);
}

/* t, shaped as the result of the reduction v->n, in the shape of its operand. */
static tci_node *tci_vjp_spread(const tci_vjp_row *v, tci_node *t)
{
    const tci_node *x = v->n->in[0];
    tci_words w;
    tci_dim *shape = tci_words_get(v->g, &w, x->rank);
    if (!shape || !t) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[i];
    }
    for (int i = 0; i < v->n->n_attr; i++) {
        shape[v->n->attr[i]] = 1;
    }
    tci_node *kept = tci_build_reshape(v->g, t, x->rank, shape);
    return tci_words_put(v->g, &w, tci_build_broadcast(v->g, kept, x->rank, x->shape));
}

/* t reduced over the axes of the reduction v->n. */
static tci_node *tci_vjp_fold(const tci_vjp_row *v, int op, tci_node *t)
{
    tci_words w;
    if (!t || !tci_words_get(v->g, &w, v->n->n_attr)) {
        return NULL;
    }
    int *list = (int *)(void *)w.items;
    for (int i = 0; i < v->n->n_attr; i++) {
        list[i] = (int)v->n->attr[i];
    }
    tc_axes axes = {list, v->n->n_attr, false};
    return tci_words_put(v->g, &w, tci_build_reduce(v->g, op, t, axes, false));
}

static tci_node *tci_vjp_tally(const tci_vjp_row *v, tci_node *c)
{
    return tci_vjp_fold(v, TCI_OP_SUM, tci_vjp_where(v, c, tci_vjp_k(v, 1), tci_vjp_k(v, 0)));
}

/* The product of all but one element along the reduced axes: the whole divided by it, where it is
 * not 0; else the product of the rest, unless that holds another 0. */
static tci_node *tci_vjp_others(const tci_vjp_row *v)
{
    tci_node *one = tci_vjp_k(v, 1);
    tci_node *is_zero = tci_vjp_2(v, TCI_OP_EQ, v->a, tci_vjp_k(v, 0));
    tci_node *safe = tci_vjp_where(v, is_zero, one, v->a);
    tci_node *rest = tci_vjp_fold(v, TCI_OP_PROD, safe);
    tci_node *single = tci_vjp_2(v, TCI_OP_EQ, tci_vjp_tally(v, is_zero), one);
    tci_node *of_zero = tci_vjp_where(v, single, rest, tci_vjp_k(v, 0));
    return tci_vjp_where(v, is_zero, tci_vjp_spread(v, of_zero),
                         tci_vjp_2(v, TCI_OP_DIV, tci_vjp_spread(v, v->y), safe));
}

/* ---- the columns ---- */

#define A (v->a)
#define B (v->b)
#define Y (v->y)
#define G (v->grad)
#define K(x) tci_vjp_k(v, (x))
#define NEG(a) tci_vjp_1(v, TCI_OP_NEG, a)
#define EXP(a) tci_vjp_1(v, TCI_OP_EXP, a)
#define LOG(a) tci_vjp_1(v, TCI_OP_LOG, a)
#define SQUARE(a) tci_vjp_1(v, TCI_OP_SQUARE, a)
#define SIN(a) tci_vjp_1(v, TCI_OP_SIN, a)
#define COS(a) tci_vjp_1(v, TCI_OP_COS, a)
#define SIGMOID(a) tci_vjp_1(v, TCI_OP_SIGMOID, a)
#define ERF(a) tci_vjp_1(v, TCI_OP_ERF, a)
#define FLOOR_DIVIDE(a, b) tci_vjp_2(v, TCI_OP_FLOOR_DIVIDE, a, b)
#define ADD(a, b) tci_vjp_2(v, TCI_OP_ADD, a, b)
#define SUB(a, b) tci_vjp_2(v, TCI_OP_SUB, a, b)
#define MUL(a, b) tci_vjp_2(v, TCI_OP_MUL, a, b)
#define DIV(a, b) tci_vjp_2(v, TCI_OP_DIV, a, b)
#define POW(a, b) tci_vjp_2(v, TCI_OP_POW, a, b)
#define EQ(a, b) tci_vjp_2(v, TCI_OP_EQ, a, b)
#define LT(a, b) tci_vjp_2(v, TCI_OP_LT, a, b)
#define LE(a, b) tci_vjp_2(v, TCI_OP_LE, a, b)
#define AND(a, b) tci_vjp_2(v, TCI_OP_LOGICAL_AND, a, b)
#define WHERE(c, a, b) tci_vjp_where(v, c, a, b)
#define SPREAD(t) tci_vjp_spread(v, t)
#define TALLY(c) tci_vjp_tally(v, c)
#define OTHERS() tci_vjp_others(v)
#define DA(a) a
#define DAB(a, b) (which ? b : a)
#define FLAT NULL
#define NONE NULL

static tci_node *tci_vjp_formula(const tci_vjp_row *v, int which)
{
    switch (v->n->op) {
#define TCI_ROW(id, name, arity, rule, flags, value, gradient, doc)                                \
    case TCI_OP_##id:                                                                              \
        return gradient;
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(id, name, rule, identity, gradient, doc)                                           \
    case TCI_OP_##id:                                                                              \
        return gradient;
        TCI_REDUCE_OPS(TCI_ROW)
#undef TCI_ROW
    default:
        return NULL;
    }
}

#undef A
#undef B
#undef Y
#undef G
#undef K
#undef NEG
#undef EXP
#undef LOG
#undef SQUARE
#undef SIN
#undef COS
#undef SIGMOID
#undef ERF
#undef FLOOR_DIVIDE
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef POW
#undef EQ
#undef LT
#undef LE
#undef AND
#undef WHERE
#undef SPREAD
#undef TALLY
#undef OTHERS
#undef DA
#undef DAB
#undef FLAT
#undef NONE

TCI_FN tci_node *tci_vjp_operand(const tci_vjp *v)
{
    tci_node *n = v->n, *x = n->in[v->which];
    if (tci_vjp_kind_of(n->op) == TCI_VJP_OWN) {
        return tci_vjp_own(v);
    }
    tci_node *pool = n->op == TCI_OP_MAX && x->op == TCI_OP_WINDOW ? tci_vjp_pool(v) : NULL;
    if (pool) {
        return pool;
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    tci_vjp_row row = {.g = v->g, .n = n, .t = t};
    row.a = tci_build_cast(v->g, n->in[0], t);
    row.b = n->n_in > 1 ? tci_build_cast(v->g, n->in[1], t) : NULL;
    row.y = tci_build_cast(v->g, n, t);
    row.grad = tci_build_cast(v->g, v->grad, t);
    tci_node *r = tci_build_cast(v->g, tci_vjp_formula(&row, v->which), (tc_dtype)x->dtype);
    /* A formula of constants alone is 0-d. */
    return tci_vjp_built(v, r ? tci_build_broadcast(v->g, r, x->rank, x->shape) : NULL);
}
