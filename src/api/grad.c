/* api/grad.c - parameters take values, losses have gradients: tc_assign and tc_grad.
 *
 * In: handles. Out: an ASSIGN node; gradient nodes in the same graph, or poisoned handles.
 * Parameters themselves are leaves with memory (api/leaf.c).
 * The one idea: gradients are built by grad/ with working memory of their own, and an escape from
 * there is a failed call like any other. */
#include "frame.h"

#include <stdio.h>

#include "../grad/grad.h"

TC_API tc_tensor tc_assign_at(tc_tensor param, tc_tensor value, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_assign", here);
    tci_frame_use(&f, param);
    tci_frame_use(&f, value);
    tci_node *p = tci_frame_node(&f, param, "the parameter");
    tci_node *x = tci_frame_node(&f, value, "the value");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_param_assign(&f.ctx->graph, p, x));
}

/* ---- tc_grad ---- */

typedef struct tci_grad_call {
    tci_frame *f;
    tci_scratch s;
    tci_node *loss;
    const tc_tensor *params;
    int n;
    tci_node **wanted, **grads;
} tci_grad_call;

static bool tci_grad_check_loss(tci_grad_call *c)
{
    const tci_node *n = c->loss;
    if (!tci_dtype_is_float((tc_dtype)n->dtype)) {
        tci_frame_fail(c->f, TC_ERR_DTYPE, "the loss is %s: expected a float dtype",
                       tci_dtype_get((tc_dtype)n->dtype)->name);
    } else if (tci_node_count(n) != 1) {
        tci_frame_fail(c->f, TC_ERR_SHAPE,
                       "the loss has shape %s: expected one element (tc_sum or tc_mean make it "
                       "one)",
                       TCI_SHAPE_TEXT(n));
    }
    return !c->f->failed;
}

static bool tci_grad_take_params(tci_grad_call *c)
{
    c->wanted = TCI_NEW_ARRAY(&c->s, tci_node *, c->n);
    c->grads = TCI_NEW_ARRAY(&c->s, tci_node *, c->n);
    for (int i = 0; i < c->n; i++) {
        char what[32];
        snprintf(what, sizeof(what), "parameter %d", i);
        c->wanted[i] = tci_frame_node(c->f, c->params[i], what);
        if (c->wanted[i] && !tci_dtype_is_float((tc_dtype)c->wanted[i]->dtype)) {
            tci_frame_fail(c->f, TC_ERR_DTYPE, "%s is %s: only floats have gradients", what,
                           tci_dtype_get((tc_dtype)c->wanted[i]->dtype)->name);
        }
        if (c->f->failed) {
            return false;
        }
    }
    return true;
}

/* Zeros for what the loss does not depend on. */
static void tci_grad_make(tci_grad_call *c)
{
    tci_graph *g = &c->f->ctx->graph;
    tci_vjp v = {.s = &c->s, .g = g};
    tci_value zero = {.f = 0}, one = {.f = 1};
    tci_node *seed = tci_vjp_built(&v, tci_graph_const(g, (tc_dtype)c->loss->dtype, one));
    seed = tci_vjp_built(&v, tci_build_reshape(g, seed, c->loss->rank, c->loss->shape));
    tci_grad_build(&c->s, g, c->loss, seed, c->wanted, c->n, c->grads);
    for (int i = 0; i < c->n; i++) {
        const tci_node *x = c->wanted[i];
        if (!c->grads[i]) {
            tci_node *none = tci_graph_const(g, (tc_dtype)x->dtype, zero);
            c->grads[i] = tci_vjp_built(&v, tci_build_broadcast(g, none, x->rank, x->shape));
        }
    }
}

/* The frame is failed, or c->grads are made. */
static void tci_grad_run_call(tci_grad_call *c)
{
    if (setjmp(c->s.escape)) {
        tci_frame_fail(c->f, c->s.why, "%s", c->s.message);
        c->f->ctx->graph.error = TC_OK;
        return;
    }
    if (tci_grad_check_loss(c) && tci_grad_take_params(c)) {
        tci_grad_make(c);
    }
}

TC_API tc_status tc_grad_at(tc_tensor loss, const tc_tensor *params, int n, tc_tensor *grads,
                            tc_site here)
{
    tci_frame f = tci_frame_begin("tc_grad", here);
    tci_grad_call c = {.f = &f, .params = params, .n = n};
    if (n < 0 || (n && (!params || !grads))) {
        tci_frame_leave(&f);
        return TC_ERR_ARGUMENT;
    }
    tci_frame_use(&f, loss);
    c.loss = tci_frame_node(&f, loss, "the loss");
    tci_scratch_init(&c.s);
    if (c.loss) {
        tci_grad_run_call(&c);
    }
    for (int i = 0; i < n; i++) {
        grads[i] = tci_frame_end(&f, f.failed ? NULL : c.grads[i]);
    }
    tci_scratch_free(&c.s);
    tci_frame_leave(&f);
    return f.failed ? tc_status_of(f.bad) : TC_OK;
}
