/* grad/loop.c - gradient of a loop (REPEAT node): a loop that runs backward over saved values.
 *
 * In: a REPEAT and the gradients of its results. Out: the gradients of its operands.
 *
 * Design: a backward step is the gradient of the body. Its carries are the gradients of the
 * carries, and for each loop-invariant operand (held) the sum of its gradients over all iterations.
 * Its inputs are the carries before each iteration (stored by the forward loop because this one
 * reads them), the original inputs, and the gradients of the outputs. Both bodies share their BOUND
 * nodes, so the forward values that a backward step needs are the same nodes, recomputed within the
 * iteration.
 *
 * If a loop-invariant operand is the result of a movement op (a broadcast bias), the gradient of
 * the source is summed instead: a backward step ends with the gradient of the movement op, so the
 * sum has the size of the bias and not of the broadcast.
 *
 * Only floats have gradients. Carries of other dtypes are plain inputs of the backward loop.
 *
 * A loop of at most one iteration (a branch) runs backward only if it ran forward, and gets its
 * initial carries. A loop with a data-dependent trip count has no gradient otherwise.
 *
 * A loop of exactly one iteration is a region (tc_checkpoint): the backward pass recomputes the
 * values that it needs from the operands of the region, once the gradients of the results are
 * available. A BARRIER node expresses both: CSE does not merge values after it with those before
 * it. */
#include "../graph/loop_node.h"
#include "grad.h"

#include <string.h>

typedef struct tci_grad_repeat {
    const tci_vjp *v; /* whose node is the REPEAT */
    tci_repeat r;
    const bool *leads;       /* per operand outside: its gradient is asked for */
    tci_node *const *takers; /* per operand outside: the node that is given it */
    tci_node *const *grads;  /* of the results; NULL: none */
    /* the way back, in the order of tci_repeat */
    tci_node **init, **carry, **next, **xs, **x, **y;
    int n_carry, n_x, n_y;
} tci_grad_repeat;

static bool tci_grad_is_float(const tci_node *n)
{
    return tci_dtype_is_float((tc_dtype)n->dtype);
}

static tci_node *tci_grad_zeros(const tci_grad_repeat *w, tc_dtype t, const tci_node *like)
{
    tci_value zero = {.u = 0};
    tci_node *n = tci_vjp_built(w->v, tci_graph_const(w->v->g, t, zero));
    return tci_vjp_built(w->v, tci_build_broadcast(w->v->g, n, like->rank, like->shape));
}

/* a + b, where NULL is 0. */
static tci_node *tci_grad_sum(const tci_grad_repeat *w, tci_node *a, tci_node *b)
{
    tci_node *both[2] = {a, b};
    return !a ? b : !b ? a : tci_vjp_built(w->v, tci_build_ew(w->v->g, TCI_OP_ADD, both));
}

/* True if the gradient of operand i over all steps is that of the only step. */
static bool tci_grad_stays(const tci_repeat *r, int i)
{
    return tci_repeat_is_once(r) || i < r->n_carry + r->n_x;
}

static tci_node *tci_grad_cast(const tci_grad_repeat *w, tci_node *n, int dtype)
{
    return tci_vjp_built(w->v, tci_build_cast(w->v->g, n, (tc_dtype)dtype));
}

static tci_node *tci_grad_bound(const tci_grad_repeat *w, int dtype, const tci_node *like)
{
    return tci_vjp_built(w->v, tci_build_bound(w->v->g, (tc_dtype)dtype, like->rank, like->shape));
}

/* ---- what the way back is given ---- */

/* A carry of the way back that begins as `init`; returns what it is in a step. */
static tci_node *tci_grad_carry(tci_grad_repeat *w, tci_node *init)
{
    w->init[w->n_carry] = init;
    w->carry[w->n_carry] = tci_grad_bound(w, init->dtype, init);
    return w->carry[w->n_carry++];
}

/* An input, with x for an element of it, or NULL where any will do; returns the element. */
static tci_node *tci_grad_input(tci_grad_repeat *w, tci_node *xs, tci_node *like, tci_node *x)
{
    w->xs[w->n_x] = xs;
    w->x[w->n_x] = x ? x : tci_grad_bound(w, xs->dtype, like);
    return w->x[w->n_x++];
}

/* Of the rows of a carry those before each step, where the step's x is. */
static tci_node *tci_grad_before(const tci_grad_repeat *w, tci_node *rows)
{
    int first = w->r.reverse;
    return tci_vjp_built(w->v, tci_build_slice(w->v->g, rows, 0, first,
                                               tci_dim_add(w->r.length, first), 1));
}

/* The gradient of carry i as the last step gave it. */
static tci_node *tci_grad_last(const tci_grad_repeat *w, int i)
{
    const tci_repeat *r = &w->r;
    tci_graph *g = w->v->g;
    const tci_node *one = r->next[i];
    tci_node *last = w->grads[i], *rows = w->grads[r->n_carry + r->n_y + i];
    tci_dim at = tci_repeat_row_at(r, r->length);
    if (rows) {
        rows = tci_vjp_built(w->v, tci_build_slice(g, rows, 0, at, tci_dim_add(at, 1), 1));
        rows = tci_vjp_built(w->v, tci_build_reshape(g, rows, one->rank, one->shape));
    }
    last = tci_grad_sum(w, last, rows);
    return last ? last : tci_grad_zeros(w, (tc_dtype)one->dtype, one);
}

/* Operands of a region after a BARRIER that waits for the gradients of its results, as its body
 * takes them. */
static tci_node **tci_grad_outside(const tci_grad_repeat *w)
{
    const tci_repeat *r = &w->r;
    int n = r->n_carry + r->n_x + r->n_held, n_results = tci_repeat_n_results(r), n_grads = 0;
    tci_node **outside = TCI_NEW_ARRAY(w->v->s, tci_node *, n + 1);
    tci_node **grads = TCI_NEW_ARRAY(w->v->s, tci_node *, n_results + 1);
    for (int i = 0; i < n_results; i++) {
        grads[n_grads] = w->grads[i];
        n_grads += w->grads[i] != NULL;
    }
    for (int i = 0; i < n; i++) {
        const tci_node *one = r->carry[i];
        tci_graph *g = w->v->g;
        outside[i] = tci_build_barrier(g, r->init[i], grads, n_grads, true);
        outside[i] = tci_build_reshape(g, tci_vjp_built(w->v, outside[i]), one->rank, one->shape);
        tci_vjp_built(w->v, outside[i]);
    }
    return outside;
}

static void tci_grad_give(tci_grad_repeat *w)
{
    const tci_repeat *r = &w->r;
    if (r->stops >= 0 || tci_repeat_is_once(r)) { /* of one step at most: it is given all that is
                                                   * outside */
        return;
    }
    int rows = r->n_carry + r->n_y;
    for (int i = 0; i < r->n_carry; i++) {
        tci_node *all = tci_vjp_built(w->v, tci_build_result(w->v->g, w->v->n, rows + i));
        tci_grad_input(w, tci_grad_before(w, all), NULL, r->carry[i]);
    }
    for (int i = 0; i < r->n_x; i++) {
        tci_grad_input(w, r->xs[i], NULL, r->x[i]);
    }
}

/* ---- a step back ---- */

/* Gradients that the backward step starts from: those of the carries and of the outputs. */
static tci_grad_pairs tci_grad_step_roots(tci_grad_repeat *w)
{
    const tci_repeat *r = &w->r;
    int n_most = r->n_carry + r->n_y + 1;
    tci_node **nodes = TCI_NEW_ARRAY(w->v->s, tci_node *, n_most);
    tci_node **with = TCI_NEW_ARRAY(w->v->s, tci_node *, n_most);
    tci_grad_pairs roots = {nodes, with, 0};
    for (int i = 0; i < r->n_carry; i++) {
        if (tci_grad_is_float(r->carry[i])) {
            nodes[roots.n] = r->next[i];
            with[roots.n++] = tci_grad_carry(w, tci_grad_last(w, i));
        }
    }
    for (int i = 0; i < r->n_y; i++) {
        tci_node *grad = w->grads[r->n_carry + i];
        if (grad) {
            nodes[roots.n] = r->y[i];
            with[roots.n++] = tci_grad_input(w, grad, r->y[i], NULL);
        }
    }
    return roots;
}

/* Of BOUND node number i of the way forward: is its gradient a result of a step back? */
static bool tci_grad_step_wants(const tci_grad_repeat *w, int i)
{
    bool is_carry = i < w->r.n_carry;
    return tci_grad_is_float(w->r.carry[i]) && (is_carry || w->leads[i]);
}

/* True if operand i is the first of those that its taker is given a gradient by. */
static bool tci_grad_is_first(const tci_grad_repeat *w, int i)
{
    for (int k = w->r.n_carry + w->r.n_x; k < i; k++) {
        if (tci_grad_step_wants(w, k) && w->takers[k] == w->takers[i]) {
            return false;
        }
    }
    return true;
}

/* The gradient of operand i's taker in a step: of all operands that are movement of it, each of
 * which has its own in grads. NULL: 0. */
static tci_node *tci_grad_of_taker(const tci_grad_repeat *w, int i, tci_node *const *grads)
{
    tci_node *sum = NULL;
    for (int k = i; k < tci_node_n_outside(w->v->n); k++) {
        tci_vjp v = {.s = w->v->s, .g = w->v->g, .n = w->r.init[k], .grad = grads[k]};
        if (!tci_grad_step_wants(w, k) || w->takers[k] != w->takers[i] || !v.grad) {
            continue;
        }
        for (; v.n != w->takers[k]; v.n = v.n->in[0]) {
            v.grad = tci_vjp_operand(&v);
        }
        sum = tci_grad_sum(w, sum, v.grad);
    }
    return sum;
}

static void tci_grad_step(tci_grad_repeat *w)
{
    const tci_repeat *r = &w->r;
    int n_bound = r->n_carry + r->n_x + r->n_held, n = 0, rows = r->n_carry + r->n_y;
    tci_node **wanted = TCI_NEW_ARRAY(w->v->s, tci_node *, n_bound + 1);
    tci_node **found = TCI_NEW_ARRAY(w->v->s, tci_node *, n_bound + 1);
    tci_node **grads = TCI_NEW_ARRAY(w->v->s, tci_node *, n_bound + 1);
    tci_grad_pairs roots = tci_grad_step_roots(w);
    for (int i = 0; i < n_bound; i++) {
        if (tci_grad_step_wants(w, i)) {
            wanted[n++] = r->carry[i];
        }
    }
    tci_grad_build(w->v->s, w->v->g, roots, wanted, n, found);
    n = 0;
    for (int i = 0; i < n_bound; i++) {
        grads[i] = tci_grad_step_wants(w, i) ? found[n++] : NULL;
    }
    int at = 0;
    for (int i = 0; i < n_bound; i++) {
        bool held = i >= r->n_carry + r->n_x;
        if (!tci_grad_step_wants(w, i) || (held && !tci_grad_is_first(w, i))) {
            continue;
        }
        tci_node *one = held ? w->takers[i] : r->carry[i];
        tci_node *grad = held ? tci_grad_of_taker(w, i, grads) : grads[i];
        if (i < r->n_carry) {
            tci_node *row = w->grads[rows + i];
            row = row ? tci_grad_input(w, tci_grad_before(w, row), one, NULL) : NULL;
            grad = tci_grad_sum(w, grad, row);
            w->next[at++] = grad ? grad : tci_grad_zeros(w, (tc_dtype)one->dtype, one);
        } else if (tci_grad_stays(r, i)) {
            w->y[w->n_y++] = grad ? grad : tci_grad_zeros(w, (tc_dtype)one->dtype, one);
        } else { /* summed as it is computed, not as it is stored */
            int dtype = tci_dtype_get((tc_dtype)one->dtype)->compute;
            tci_node *sum = tci_grad_carry(w, tci_grad_zeros(w, (tc_dtype)dtype, one));
            w->next[at++] = grad ? tci_grad_sum(w, sum, tci_grad_cast(w, grad, dtype)) : sum;
        }
    }
}

/* Inputs that no step back reads go: so what a gradient does not need is not an operand of it. */
static void tci_grad_drop_unread(tci_grad_repeat *w)
{
    tci_node **made = TCI_NEW_ARRAY(w->v->s, tci_node *, w->n_carry + w->n_y + 1);
    int n = 0;
    memcpy(made, w->next, sizeof(*made) * (size_t)w->n_carry);
    memcpy(made + w->n_carry, w->y, sizeof(*made) * (size_t)w->n_y);
    tci_table read = tci_table_in(w->v->s, sizeof(bool));
    tci_node_list list = tci_graph_sort(w->v->s, made, w->n_carry + w->n_y);
    for (int i = 0; i < list.n; i++) {
        tci_table_add(&read, list.items[i]);
    }
    for (int i = 0; i < w->n_x; i++) {
        if (tci_table_has(&read, w->x[i])) {
            w->xs[n] = w->xs[i];
            w->x[n++] = w->x[i];
        }
    }
    w->n_x = n;
}

/* A branch goes back if it went forward, once; returns the number of that carry. */
static int tci_grad_stop(tci_grad_repeat *w)
{
    tci_value no = {.u = 0};
    tci_grad_carry(w, w->r.init[w->r.stops]);
    w->next[w->n_carry - 1] = tci_vjp_built(w->v, tci_graph_const(w->v->g, TC_BOOL, no));
    return w->n_carry - 1;
}

/* ---- the whole ---- */

TCI_FN void tci_grad_of_repeat(const tci_vjp *v, const bool *leads, tci_node *const *takers,
                               tci_node *const *grads, tci_node **given)
{
    tci_grad_repeat w = {.v = v,
                         .r = tci_repeat_of(v->n),
                         .leads = leads,
                         .takers = takers,
                         .grads = grads};
    const tci_repeat *r = &w.r;
    int n_outside = tci_node_n_outside(v->n), room = 2 * n_outside + 2 * r->n_y + 1;
    tci_node ***lists[6] = {&w.init, &w.carry, &w.next, &w.xs, &w.x, &w.y};
    for (int i = 0; i < 6; i++) {
        *lists[i] = TCI_NEW_ARRAY(v->s, tci_node *, room);
    }
    bool branch = r->stops >= 0;
    if (branch && r->length != 1) {
        tci_scratch_fail(v->s, TC_ERR_UNSUPPORTED,
                         "%s has no gradient, as it stops by its values (tc_jvp goes through it; "
                         "tc_scan, of a given number of steps, has a gradient)",
                         TCI_MAKER(v->n));
    }
    tci_grad_give(&w);
    tci_grad_step(&w);
    tci_grad_drop_unread(&w);
    int stops = branch ? tci_grad_stop(&w) : -1;
    tci_repeat back = {.n_carry = w.n_carry,
                       .n_x = w.n_x,
                       .n_held = r->n_held,
                       .n_y = w.n_y,
                       .length = r->length,
                       .reverse = !r->reverse,
                       .stops = stops,
                       .init = w.init,
                       .xs = w.xs,
                       .held = r->held,
                       .carry = w.carry,
                       .x = w.x,
                       .inner = r->inner,
                       .next = w.next,
                       .y = w.y};
    if (branch || tci_repeat_is_once(r)) { /* all that is outside */
        back.n_held = n_outside;
        back.held = branch ? r->init : tci_grad_outside(&w);
        back.inner = r->carry;
    }
    tci_node *repeat = tci_vjp_built(v, tci_build_repeat(v->s, v->g, &back));
    int carry = 0, y = w.n_carry;
    for (int i = 0; i < n_outside; i++) {
        bool held = i >= r->n_carry + r->n_x;
        const tci_node *like = held ? takers[i] : r->init[i];
        given[i] = NULL;
        if (tci_grad_step_wants(&w, i) && (!held || tci_grad_is_first(&w, i))) {
            int result = i >= r->n_carry && tci_grad_stays(r, i) ? y++ : carry++;
            given[i] = tci_vjp_built(v, tci_build_result(v->g, repeat, result));
            given[i] = tci_grad_cast(&w, given[i], like->dtype);
            given[i] = tci_vjp_built(v, tci_build_reshape(v->g, given[i], like->rank, like->shape));
        }
    }
}
