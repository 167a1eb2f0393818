/* grad/grad.c - reverse-mode differentiation: the traversal from roots back to the nodes whose
 * gradients are requested.
 *
 * In: roots with their gradients, and nodes of the same graph. Out: a gradient node for each of
 * these nodes.
 *
 * Design: one pass over the nodes in reverse post-order. Each node passes its finished gradient to
 * its operands, where contributions are added. Nodes that are not between the requested nodes and
 * the roots are not visited. The order follows from the graph alone, so the same graph gives the
 * same gradients, bit for bit.
 *
 * A composite without a gradient rule is expanded in place and differentiated by the same
 * traversal, which then ends at the inputs of the composite.
 *
 * Traversals share the table of node positions. A nested traversal restores the entries that it
 * changes, at a cost proportional to the nodes that it visits. */
#include "../graph/loop_node.h"
#include "grad.h"

#include <string.h>

typedef struct tci_grad_place {
    tci_node *node;
    tci_node *grad; /* the sum so far; NULL: nothing yet */
    int32_t old_at;
    tci_node **results; /* of a REPEAT: the sum so far for each of its results */
    bool asked;         /* its gradient is a result */
    bool leads;         /* an asked-for node is at or below it, along floats */
    bool passes;        /* one is below it: its operands take their part */
} tci_grad_place;

typedef struct tci_grad_walk {
    tci_scratch *s;
    tci_graph *g;
    tci_grad_place *places;
    int n, cap;
    tci_table *at; /* of int32_t: the position of a node, if that is where it is */
} tci_grad_walk;

/* ---- the list ---- */

static tci_grad_place *tci_grad_find(const tci_grad_walk *w, const tci_node *n)
{
    const int32_t *at = tci_table_find(w->at, n);
    return at && *at < w->n && w->places[*at].node == n ? &w->places[*at] : NULL;
}

/* Of one that is listed. */
static inline tci_grad_place *tci_grad_place_of(const tci_grad_walk *w, const tci_node *n)
{
    return &w->places[*(const int32_t *)tci_table_item(w->at, n)];
}

static void tci_grad_add_place(tci_grad_walk *w, tci_node *n)
{
    int32_t *at = tci_table_at(w->at, n);
    tci_grad_place p = {.node = n, .old_at = *at};
    *at = w->n;
    TCI_PUSH(w->s, w->places, w->n, w->cap, p);
}

typedef struct tci_grad_frame {
    tci_node *node;
    int next_in;
} tci_grad_frame;

/* Inputs before users; does not go behind nodes that are already listed. */
static void tci_grad_list(tci_grad_walk *w, tci_node *root)
{
    tci_grad_frame *stack = NULL, first = {root, 0};
    int n = 0, cap = 0;
    if (tci_grad_find(w, root)) {
        return;
    }
    TCI_PUSH(w->s, stack, n, cap, first);
    while (n) {
        tci_grad_frame *top = &stack[n - 1];
        if (top->next_in == tci_node_n_outside(top->node)) {
            tci_grad_add_place(w, top->node);
            n--;
            continue;
        }
        tci_grad_frame in = {top->node->in[top->next_in++], 0};
        if (!tci_grad_find(w, in.node)) {
            TCI_PUSH(w->s, stack, n, cap, in);
        }
    }
}

/* Number of operands of n that get a gradient: not those that a BARRIER waits for, nor the value of
 * a WITH_DERIVATIVE, nor the operands of the call of a NAMED. */
static int tci_grad_n_taking(const tci_node *n)
{
    bool one = n->op == TCI_OP_BARRIER || n->op == TCI_OP_WITH_DERIVATIVE || n->op == TCI_OP_NAMED;
    return one ? 1 : tci_node_n_outside(n);
}

/* first: nodes below it are ends of the traversal, they lead nowhere but to themselves. */
static void tci_grad_find_ways(tci_grad_walk *w, int first)
{
    for (int i = 0; i < w->n; i++) {
        tci_grad_place *p = &w->places[i];
        tci_node *n = p->node;
        bool floats = tci_dtype_is_float((tc_dtype)n->dtype) || n->op == TCI_OP_REPEAT;
        bool may = i >= first && floats && tci_formula_gradient_kind(n->op) != TCI_GRADIENT_FLAT;
        for (int k = 0; may && !p->passes && k < tci_grad_n_taking(n); k++) {
            p->passes = tci_grad_place_of(w, n->in[k])->leads;
        }
        p->leads = p->asked || p->passes;
    }
}

/* ---- contributions ---- */

static void tci_grad_add(tci_grad_walk *w, const tci_vjp *v, tci_node *to, tci_node *grad)
{
    tci_grad_place *p = tci_grad_find(w, to);
    TCI_ASSERT(w->s, p && grad->dtype == to->dtype &&
                         tci_build_same_shape(grad->rank, grad->shape, to->rank, to->shape));
    tci_node *both[2] = {p->grad, grad};
    p->grad = p->grad ? tci_vjp_built(v, tci_build_ew(w->g, TCI_OP_ADD, both)) : grad;
}

static void tci_grad_run(tci_grad_walk w, tci_grad_pairs roots, tci_node *const *wanted, int n,
                         bool ends, tci_node **grads);

static bool tci_grad_leads(const tci_grad_walk *w, const tci_node *n)
{
    return tci_grad_place_of(w, n)->leads;
}

/* Operands of a composite that lead nowhere are given to the inner traversal too, as ends; what it
 * finds for them is left aside. */
static void tci_grad_expand(tci_grad_walk *w, tci_vjp *v)
{
    tci_node *n = v->n;
    tci_node *inner = tci_vjp_built(v, tci_expand_composite(w->g, n));
    tci_node **grads = TCI_NEW_ARRAY(w->s, tci_node *, n->n_in);
    tci_grad_walk walk = {.s = w->s, .g = w->g, .at = w->at};
    tci_grad_run(walk, (tci_grad_pairs){&inner, &v->grad, 1}, n->in, n->n_in, true, grads);
    for (int i = 0; i < n->n_in; i++) {
        bool again = false; /* one that is listed twice has all of its gradient at both positions */
        for (int k = 0; k < i; k++) {
            again = again || n->in[k] == n->in[i];
        }
        if (grads[i] && !again && tci_grad_leads(w, n->in[i])) {
            tci_grad_add(w, v, n->in[i], grads[i]);
        }
    }
}

/* n is a RESULT: its gradient waits at the REPEAT for those of the others. */
static void tci_grad_result(tci_grad_walk *w, const tci_grad_place *p)
{
    tci_grad_place *to = tci_grad_place_of(w, p->node->in[0]);
    tci_repeat r = tci_repeat_of(to->node);
    if (!to->results) {
        to->results = TCI_NEW_ARRAY(w->s, tci_node *, tci_repeat_n_results(&r));
    }
    to->results[p->node->attr[0]] = p->grad;
    to->grad = p->grad; /* any: it has one */
}

/* The node of the fewest elements that n is movement of, not past one that was asked for. Which
 * one it is follows from the movement and not from sizes, so that programs of symbolic and of fixed
 * sizes add in one order. */
static tci_node *tci_grad_taker(const tci_grad_walk *w, tci_node *n)
{
    while (tci_op_is(n->op, TCI_IS_VIEW) && !tci_grad_place_of(w, n)->asked &&
           (n->op != TCI_OP_SLICE || tci_node_count(n->in[0]) == tci_node_count(n))) {
        n = n->in[0];
    }
    return n;
}

static void tci_grad_repetition(tci_grad_walk *w, const tci_grad_place *p)
{
    const tci_vjp v = {.s = w->s, .g = w->g, .n = p->node};
    const tci_repeat r = tci_repeat_of(p->node);
    int n_outside = tci_node_n_outside(p->node);
    bool *leads = TCI_NEW_ARRAY(w->s, bool, n_outside + 1);
    tci_node **takers = TCI_NEW_ARRAY(w->s, tci_node *, n_outside + 1);
    tci_node **given = TCI_NEW_ARRAY(w->s, tci_node *, n_outside + 1);
    for (int i = 0; i < n_outside; i++) {
        bool held = i >= r.n_carry + r.n_x;
        leads[i] = tci_grad_leads(w, r.init[i]);
        takers[i] = held && leads[i] ? tci_grad_taker(w, r.init[i]) : r.init[i];
    }
    tci_grad_of_repeat(&v, leads, takers, p->results, given);
    for (int i = 0; i < n_outside; i++) {
        if (leads[i] && given[i]) {
            tci_grad_add(w, &v, takers[i], given[i]);
        }
    }
}

static void tci_grad_node(tci_grad_walk *w, tci_grad_place *p)
{
    tci_node *n = p->node;
    tci_vjp v = {.s = w->s, .g = w->g, .n = n, .grad = p->grad};
    if (n->op == TCI_OP_RESULT || n->op == TCI_OP_REPEAT) {
        (n->op == TCI_OP_RESULT ? tci_grad_result : tci_grad_repetition)(w, p);
        return;
    }
    tci_gradient kind = tci_formula_gradient_kind(n->op);
    if (kind == TCI_GRADIENT_EXPANSION) {
        tci_grad_expand(w, &v);
        return;
    }
    for (int i = 0; i < tci_grad_n_taking(n); i++) {
        tci_node *x = n->in[i], *grad = NULL;
        if (!tci_grad_leads(w, x)) {
            continue;
        }
        if (kind == TCI_GRADIENT_NONE) {
            tci_scratch_fail(w->s, TC_ERR_UNSUPPORTED, "%s has no gradient", TCI_MAKER(n));
        }
        v.which = i;
        if (n->op == TCI_OP_CONTRACT && x->op == TCI_OP_WINDOW && !tci_grad_place_of(w, x)->asked) {
            grad = tci_vjp_through_window(&v);
        }
        tci_grad_add(w, &v, grad ? x->in[0] : x, grad ? grad : tci_vjp_operand(&v));
    }
}

/* A traversal that has listed nothing yet. ends: the wanted nodes are its ends. */
static void tci_grad_run(tci_grad_walk w, tci_grad_pairs roots, tci_node *const *wanted, int n,
                         bool ends, tci_node **grads)
{
    const tci_vjp v = {.s = w.s, .g = w.g};
    for (int i = 0; ends && i < n; i++) {
        if (!tci_grad_find(&w, wanted[i])) {
            tci_grad_add_place(&w, wanted[i]);
        }
    }
    int first = w.n;
    for (int i = 0; i < roots.n; i++) {
        tci_grad_list(&w, roots.nodes[i]);
    }
    for (int i = 0; i < n; i++) {
        tci_grad_place *p = tci_grad_find(&w, wanted[i]);
        if (p) {
            p->asked = true;
        }
    }
    tci_grad_find_ways(&w, first);
    for (int i = 0; i < roots.n; i++) {
        tci_grad_add(&w, &v, roots.nodes[i], roots.with[i]);
    }
    for (int i = w.n - 1; i >= first; i--) {
        if (w.places[i].grad && w.places[i].passes) {
            tci_stamp stamp = tci_graph_stamp_as(w.g, w.places[i].node);
            w.g->region |= TCI_REGION_BACKWARD;
            tci_grad_node(&w, &w.places[i]);
            tci_graph_restamp(w.g, stamp);
        }
    }
    for (int i = 0; i < n; i++) {
        const tci_grad_place *p = tci_grad_find(&w, wanted[i]);
        grads[i] = p ? p->grad : NULL;
    }
    for (int i = w.n - 1; i >= 0; i--) {
        *(int32_t *)tci_table_item(w.at, w.places[i].node) = w.places[i].old_at;
    }
}

TCI_FN void tci_grad_build(tci_scratch *s, tci_graph *g, tci_grad_pairs roots,
                           tci_node *const *wanted, int n, tci_node **grads)
{
    tci_table at = tci_table_in(s, sizeof(int32_t));
    tci_grad_walk walk = {.s = s, .g = g, .at = &at};
    tci_grad_run(walk, roots, wanted, n, false, grads);
}

TCI_FN void tci_grad_of_operands(tci_scratch *s, tci_graph *g, tci_node *n, tci_node *grad,
                                 tci_node **grads)
{
    tci_table at = tci_table_in(s, sizeof(int32_t));
    tci_grad_walk walk = {.s = s, .g = g, .at = &at};
    tci_grad_run(walk, (tci_grad_pairs){&n, &grad, 1}, n->in, n->n_in, true, grads);
}
