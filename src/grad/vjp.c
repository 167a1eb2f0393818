/* grad/vjp.c - builds the vector-Jacobian product of a node for one operand, from the gradient
 * formula of its op in ops/table.h or from a rule of its own.
 *
 * In: a node, one of its operands, the gradient of the result. Out: the gradient of the operand.
 *
 * Design: the gradient column of the op table is an expression (ops/formula_bytecode.h); evaluating
 * it builds the gradient graph, one node per operator name.
 *
 * Operands and result have the same shape (builders made broadcasting explicit), so no formula here
 * sums over axes; the rule of EXPAND does (rules.c). f16 and bf16 operands are widened first, and
 * the result is rounded once. */
#include "grad.h"

TCI_FN tci_node *tci_vjp_built(const tci_vjp *v, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(v->s, v->g->error ? v->g->error : TC_ERR_INTERNAL, "%s", v->g->message);
    }
    return n;
}

/* ---- what the words of a column mean ---- */

typedef struct tci_vjp_row {
    const tci_vjp *v;
    tci_graph *g;
    const tci_node *n;
    tci_node *a, *b, *c, *y, *grad;
    tc_dtype t; /* they are computed in */
} tci_vjp_row;

static tci_node *tci_vjp_k(const tci_vjp_row *v, double x)
{
    tci_value f = {.f = x};
    return tci_graph_const(v->g, v->t, f);
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
    tci_dim *shape = tci_words_dims(v->g, &w, x->rank);
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
    int *list = t ? tci_words_ints(v->g, &w, v->n->n_attr) : NULL;
    if (!list) {
        return NULL;
    }
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
    tci_node *value = tci_vjp_where(v, is_zero, tci_vjp_spread(v, of_zero),
                                    tci_vjp_2(v, TCI_OP_DIV, tci_vjp_spread(v, v->y), safe));
    return tci_product_others(v->v, tci_vjp_built(v->v, v->a), tci_vjp_built(v->v, value));
}

static tci_node *tci_vjp_centred(const tci_vjp_row *v)
{
    tci_dim count = 1;
    for (int i = 0; i < v->n->n_attr; i++) {
        count = tci_dim_mul(count, v->n->in[0]->shape[v->n->attr[i]]);
    }
    tci_node *mean = tci_vjp_2(v, TCI_OP_DIV, tci_vjp_fold(v, TCI_OP_SUM, v->a),
                               tci_build_size_value(v->g, count, v->t));
    return tci_vjp_2(v, TCI_OP_SUB, v->a, tci_vjp_spread(v, mean));
}

/* One word of a gradient column over the nodes it takes. */
static tci_node *tci_vjp_word(const tci_vjp_row *v, int word, tci_node *const *args)
{
    switch (word) {
    case TCI_W_A: return v->a;
    case TCI_W_B: return v->b;
    case TCI_W_C: return v->c;
    case TCI_W_Y: return v->y;
    case TCI_W_G: return v->grad;
    case TCI_W_SPREAD: return tci_vjp_spread(v, args[0]);
    case TCI_W_TALLY: return tci_vjp_tally(v, args[0]);
    case TCI_W_OTHERS: return tci_vjp_others(v);
    case TCI_W_CENTRED: return tci_vjp_centred(v);
    case TCI_W_TETRAGAMMA: return tci_slope_of_trigamma(v->g, args[0]);
    case TCI_W_SINC_SLOPE: return tci_slope_of_sinc(v->g, args[0], v->y);
    case TCI_W_GELU_SLOPE: return tci_slope_of_gelu(v->g, args[0], (tc_dtype)v->n->dtype);
    case TCI_OP_WHERE: return tci_vjp_where(v, args[0], args[1], args[2]);
    default: break;
    }
    return word >= TCI_W_K ? tci_vjp_k(v, tci_formula_number(word))
                           : tci_build_ew(v->g, word, args);
}

static tci_node *tci_vjp_formula(const tci_vjp_row *v, int which)
{
    tci_node *stack[TCI_FORMULA_DEPTH] = {NULL};
    int n = 0;
    for (const uint8_t *w = tci_formula_gradient(v->n->op, which); *w != TCI_W_END; w++) {
        n -= tci_formula_gradient_operands(*w);
        stack[n] = tci_vjp_word(v, *w, stack + n);
        n++;
    }
    return stack[0];
}

TCI_FN tci_node *tci_vjp_operand(const tci_vjp *v)
{
    tci_node *n = v->n, *x = n->in[v->which];
    if (tci_formula_gradient_kind(n->op) == TCI_GRADIENT_OWN) {
        return tci_vjp_own(v);
    }
    tci_node *pool = n->op == TCI_OP_MAX && x->op == TCI_OP_WINDOW ? tci_vjp_pool(v) : NULL;
    if (pool) {
        return pool;
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    tci_vjp_row row = {.v = v, .g = v->g, .n = n, .t = t};
    row.a = tci_build_cast(v->g, n->in[0], t);
    row.b = n->n_in > 1 ? tci_build_cast(v->g, n->in[1], t) : NULL;
    row.c = n->n_in > 2 ? tci_build_cast(v->g, n->in[2], t) : NULL;
    row.y = tci_build_cast(v->g, n, t);
    row.grad = tci_build_cast(v->g, v->grad, t);
    tci_node *r = tci_build_cast(v->g, tci_vjp_formula(&row, v->which), (tc_dtype)x->dtype);
    /* A formula of constants alone is 0-d. */
    return tci_vjp_built(v, r ? tci_build_broadcast(v->g, r, x->rank, x->shape) : NULL);
}
