/* grad/jvp.c - forward mode: tangents of results from tangents of inputs (JVP).
 *
 * In: inputs with their tangents, roots in the same graph. Out: a tangent node for each root.
 *
 * Design: no op has a JVP rule of its own. Nodes are visited inputs first
 * (grad/jvp_vmap_walk.h):
 *  - elementwise ops: the op's gradient formula (ops/table.h), with the operand's tangent in place
 *    of the cotangent G, since an element of the result depends on one element of each operand
 *  - ops that are linear in operands: the same op applied to the tangents
 *  - reductions: the sum of the tangents, each times the gradient of its element
 *  - all other ops: the gradient rule is transposed. The rule is linear in the result's gradient u,
 *    so the gradient of u with respect to the tangent is the tangent of the result. Only this part
 *    of the two traversals is read; u itself and the rest are dead code.
 *
 * Composites without a rule are expanded in place. A loop (REPEAT node) carries the tangents as
 * additional loop-carried values. A loop with a data-dependent trip count (a while loop or a
 * branch) stops at the same iteration as the original. */
#include "jvp_vmap_walk.h"
#include "grad.h"

static tci_node *tci_jvp_add(const tci_forward *w, tci_node *a, tci_node *b)
{
    tci_node *both[2] = {a, b};
    return a && b ? tci_forward_built(w, tci_build_ew(w->g, TCI_OP_ADD, both)) : a ? a : b;
}

static tci_node *tci_jvp_fill(const tci_forward *w, const tci_node *like, double x)
{
    tci_node *number = tci_forward_built(w, tci_graph_const(w->g, (tc_dtype)like->dtype,
                                                            (tci_value){.f = x}));
    return tci_forward_built(w, tci_build_broadcast(w->g, number, like->rank, like->shape));
}

/* ---- rules ---- */

/* n over other operands: one that is NULL stays. */
static tci_node *tci_jvp_rebuild(const tci_forward *w, const tci_node *n, tci_node *const *in)
{
    tci_node **all = TCI_NEW_ARRAY(w->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        all[i] = in[i] ? in[i] : n->in[i];
    }
    return tci_forward_built(w, tci_graph_node(w->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape,
                                               n->n_in, all, n->n_attr, n->attr));
}

/* Linear in all its floats at once: zeros for those that do not change. */
static tci_node *tci_jvp_linear(tci_forward *w, const tci_node *n)
{
    tci_node **in = TCI_NEW_ARRAY(w->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        if (tci_dtype_is_float((tc_dtype)n->in[i]->dtype)) {
            tci_node *t = *tci_forward_of(w, n->in[i]);
            in[i] = t ? t : tci_jvp_fill(w, n->in[i], 0);
        }
    }
    return tci_jvp_rebuild(w, n, in);
}

/* Linear in each operand: a part for each that changes. */
static tci_node *tci_jvp_product(tci_forward *w, const tci_node *n)
{
    tci_node *sum = NULL;
    for (int i = 0; i < n->n_in; i++) {
        tci_node *in[2] = {NULL, NULL};
        in[i] = *tci_forward_of(w, n->in[i]);
        sum = in[i] ? tci_jvp_add(w, sum, tci_jvp_rebuild(w, n, in)) : sum;
    }
    return sum;
}

static tci_node *tci_jvp_elementwise(tci_forward *w, tci_node *n)
{
    tci_node *sum = NULL;
    for (int i = 0; i < n->n_in; i++) {
        const tci_vjp v = {w->s, w->g, n, i, *tci_forward_of(w, n->in[i])};
        sum = v.grad ? tci_jvp_add(w, sum, tci_vjp_operand(&v)) : sum;
    }
    return sum;
}

static tci_node *tci_jvp_reduction(tci_forward *w, tci_node *n)
{
    tci_node *t = *tci_forward_of(w, n->in[0]);
    int *list = TCI_NEW_ARRAY(w->s, int, n->n_attr);
    for (int i = 0; i < n->n_attr; i++) {
        list[i] = (int)n->attr[i];
    }
    const tc_axes axes = {list, n->n_attr, false};
    tc_dtype math = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    if (n->op != TCI_OP_SUM) {
        const tci_vjp v = {w->s, w->g, n, 0, tci_jvp_fill(w, n, 1)};
        tci_node *factors[2] = {tci_build_cast(w->g, tci_vjp_operand(&v), math),
                                tci_build_cast(w->g, t, math)};
        t = tci_forward_built(w, tci_build_ew(w->g, TCI_OP_MUL, factors));
    }
    t = tci_forward_built(w, tci_build_reduce(w->g, TCI_OP_SUM, t, axes, false));
    return tci_forward_built(w, tci_build_cast(w->g, t, (tc_dtype)n->dtype));
}

/* The gradient of u under rule, which is linear in it, for the cotangent t; NULL: none. If a rule
 * is computed by one expression and differentiated as another, so is the gradient of u. */
static tci_node *tci_jvp_back(tci_forward *w, tci_node *rule, tci_node *t, tci_node *u)
{
    tci_node *back[2] = {NULL, NULL};
    bool two = rule->op == TCI_OP_WITH_DERIVATIVE;
    for (int i = 0; i <= (int)two; i++) {
        tci_node *root = two ? rule->in[i] : rule;
        tci_grad_build(w->s, w->g, (tci_grad_pairs){&root, &t, 1}, &u, 1, &back[i]);
    }
    return two && back[0] && back[1]
               ? tci_forward_built(w, tci_build_with_derivative(w->g, back[0], back[1]))
               : back[0];
}

/* The gradient rule of n, transposed, operand by operand. */
static tci_node *tci_jvp_transposed(tci_forward *w, tci_node *n)
{
    tci_node *sum = NULL;
    tci_node *u = tci_forward_built(w, tci_graph_node(w->g, TCI_OP_INPUT, (tc_dtype)n->dtype,
                                                      n->rank, n->shape, 0, NULL, 0, NULL));
    for (int i = 0; i < n->n_in; i++) {
        tci_node *t = *tci_forward_of(w, n->in[i]);
        if (t) {
            const tci_vjp v = {w->s, w->g, n, i, u};
            tci_node *back = tci_jvp_back(w, tci_vjp_operand(&v), t, u);
            sum = back ? tci_jvp_add(w, sum, back) : sum;
        }
    }
    return sum;
}

/* Linear but for extremes. */
static tci_node *tci_jvp_collective(tci_forward *w, tci_node *n)
{
    if (n->attr[TCI_COLLECTIVE_HOW] != TC_COMM_SUM) {
        return tci_jvp_transposed(w, n);
    }
    const tc_comm_verb verb = (tc_comm_verb)n->attr[TCI_COLLECTIVE_VERB];
    return tci_forward_built(w, tci_build_collective_like(w->g, n, verb,
                                                          *tci_forward_of(w, n->in[0])));
}

static tci_node *tci_jvp_own(tci_forward *w, tci_node *n)
{
    switch ((tci_op)n->op) {
        TCI_EW_OPS(TCI_OP_CASE) break;
        TCI_REDUCE_OPS(TCI_OP_CASE) break;
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA:
    case TCI_OP_RANDOM:
    case TCI_OP_BITCAST:
    case TCI_OP_TOPK:
    case TCI_OP_SEGMENT:
    case TCI_OP_BOUND:
    case TCI_OP_REPEAT:
    case TCI_OP_RESULT:
    case TCI_OP_ASSIGN:
    case TCI_OP_MEAN:
    case TCI_OP_CONV_TRANSPOSE:
    case TCI_OP_STOP_GRADIENT: break;
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_RESHAPE:
    case TCI_OP_PERMUTE:
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE:
    case TCI_OP_PAD:
    case TCI_OP_CAT:
    case TCI_OP_WINDOW:
    case TCI_OP_GATHER: return tci_jvp_linear(w, n);
    case TCI_OP_SCAN:
        return n->attr[2] == TCI_MODE_ADD ? tci_jvp_linear(w, n) : tci_jvp_transposed(w, n);
    case TCI_OP_SCATTER:
        return n->attr[1] == TCI_MODE_ADD || n->attr[1] == TCI_MODE_SET ? tci_jvp_linear(w, n)
                                                                        : tci_jvp_transposed(w, n);
    case TCI_OP_CONTRACT: return tci_jvp_product(w, n);
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
    case TCI_OP_LAYER_NORM:
    case TCI_OP_CROSS_ENTROPY:
    case TCI_OP_LU:
    case TCI_OP_SOLVE:
    case TCI_OP_SOLVE_TRIANGULAR:
    case TCI_OP_CHOLESKY:
    case TCI_OP_CUSTOM: return tci_jvp_transposed(w, n);
    case TCI_OP_COLLECTIVE: return tci_jvp_collective(w, n);
    case TCI_OP_BARRIER:
    case TCI_OP_WITH_DERIVATIVE:
    case TCI_OP_NAMED:
    case TCI_OP_SHARD: return *tci_forward_of(w, n->in[0]);
    }
    TCI_ASSERT(w->s, false); /* no op whose gradient is a rule of its own */
    return NULL;
}

/* ---- traversal ---- */

static tci_node *tci_jvp_node(tci_forward *w, tci_node *n)
{
    if (n->op == TCI_OP_REPEAT) {
        return tci_forward_repeat(w, n, tci_forward_find_loop(w, n, false));
    }
    if (!tci_dtype_is_float((tc_dtype)n->dtype)) {
        return NULL;
    }
    if (n->op == TCI_OP_RESULT) {
        return tci_forward_result(w, n);
    }
    switch (tci_formula_gradient_kind(n->op)) {
    case TCI_GRADIENT_NONE:
        tci_scratch_fail(w->s, TC_ERR_UNSUPPORTED, "%s has no gradient", TCI_MAKER(n));
        break;
    case TCI_GRADIENT_LEAF:
    case TCI_GRADIENT_FLAT: break;
    case TCI_GRADIENT_FORMULA:
        return tci_op_is_reduce(n->op) ? tci_jvp_reduction(w, n) : tci_jvp_elementwise(w, n);
    case TCI_GRADIENT_OWN: return tci_jvp_own(w, n);
    case TCI_GRADIENT_EXPANSION:
        return tci_forward_visit(w, tci_forward_built(w, tci_expand_composite(w->g, n)));
    }
    return NULL;
}

/* An input that depends on another has its own tangent and what it takes from the other's. */
static tci_node *tci_jvp_rule(tci_forward *w, tci_node *n)
{
    return tci_jvp_add(w, *tci_forward_of(w, n), tci_jvp_node(w, n));
}

static tci_node *tci_jvp_zeros(tci_forward *w, tci_node *n)
{
    return tci_jvp_fill(w, n, 0);
}

static const tci_forward_rules tci_jvp_rules = {tci_jvp_rule, tci_jvp_zeros, 0, false};

TCI_FN void tci_jvp_build(tci_scratch *s, tci_graph *g, tci_grad_pairs inputs,
                          tci_node *const *roots, int n, tci_node **tangents)
{
    tci_forward w = tci_forward_begin(s, g, &tci_jvp_rules, 0);
    for (int i = 0; i < inputs.n; i++) {
        tci_node **t = tci_forward_of(&w, inputs.nodes[i]);
        *t = tci_jvp_add(&w, *t, inputs.with[i]);
    }
    for (int i = 0; i < n; i++) {
        tangents[i] = tci_forward_visit(&w, roots[i]);
    }
}
