/* api/grad.c - gradients in reverse and forward mode: tc_grad, tc_vjp, tc_jvp.
 *
 * In: handles. Out: gradient nodes in the same graph, or poisoned handles. Gradients are built by
 * grad/ in scratch memory; an error raised there (longjmp) fails the call as any other does. */
#include "api_call.h"

#include <stdio.h>

#include "../grad/grad.h"

/* Backward: given are results, each with a cotangent; asked for are gradients of params. Forward:
 * given are inputs, each with a tangent; asked for are tangents of results. */
typedef struct tci_grad_call {
    tci_frame *f;
    tci_scratch s;
    bool forward;
    tc_tensors given, asked;
    tc_tensors seeds; /* of tc_grad none: the gradient of a loss is 1 */
    const char *given_name, *asked_name;
    tci_grad_pairs pairs;
    tci_node **nodes, **made; /* of what is asked */
} tci_grad_call;

static tci_node *tci_grad_built(tci_grad_call *c, tci_node *n)
{
    const tci_vjp v = {.s = &c->s, .g = &c->f->ctx->graph};
    return tci_vjp_built(&v, n);
}

/* A number in the shape and dtype of a node. */
static tci_node *tci_grad_fill(tci_grad_call *c, double x, const tci_node *like)
{
    tci_graph *g = &c->f->ctx->graph;
    tci_value v = {.f = x};
    tci_node *number = tci_grad_built(c, tci_graph_const(g, (tc_dtype)like->dtype, v));
    return tci_grad_built(c, tci_build_broadcast(g, number, like->rank, like->shape));
}

static void tci_grad_check_loss(tci_grad_call *c, const tci_node *n)
{
    if (!tci_dtype_is_float((tc_dtype)n->dtype)) {
        tci_frame_fail(c->f, TC_ERR_DTYPE, "the loss is %s: expected a float dtype",
                       tci_dtype_get((tc_dtype)n->dtype)->name);
    } else if (tci_node_count(n) != 1) {
        tci_frame_fail(c->f, TC_ERR_SHAPE,
                       "the loss has shape %s: expected one element (tc_sum or tc_mean make it "
                       "one)",
                       TCI_SHAPE_TEXT(n));
    }
}

/* Fails the frame at a handle that names no float. */
static tci_node **tci_grad_floats(tci_grad_call *c, tc_tensors list, const char *name)
{
    tci_node **nodes = TCI_NEW_ARRAY(&c->s, tci_node *, list.n + 1);
    for (int i = 0; i < list.n && !c->f->failed; i++) {
        char what[32];
        snprintf(what, sizeof(what), "%s %d", name, i);
        nodes[i] = tci_frame_node(c->f, list.items[i], what);
        if (nodes[i] && !tci_dtype_is_float((tc_dtype)nodes[i]->dtype)) {
            tci_frame_fail(c->f, TC_ERR_DTYPE, "%s is %s: only floats have gradients", what,
                           tci_dtype_get((tc_dtype)nodes[i]->dtype)->name);
        }
    }
    return nodes;
}

/* The cotangent or tangent of a node, in its dtype and shape. */
static tci_node *tci_grad_seed(tci_grad_call *c, int i, const tci_node *of)
{
    tci_graph *g = &c->f->ctx->graph;
    char what[32];
    snprintf(what, sizeof(what), "%s %d", c->forward ? "tangent" : "cotangent", i);
    tci_node *n = tci_frame_node(c->f, c->seeds.items[i], what);
    n = n ? tci_build_cast(g, n, (tc_dtype)of->dtype) : NULL;
    tci_node *fits = n ? tci_build_expand(g, n, of->rank, of->shape) : NULL;
    if (n && !fits && g->error == TC_ERR_SHAPE) {
        tci_frame_fail(c->f, TC_ERR_SHAPE, "%s has shape %s: expected %s, that of %s %d", what,
                       TCI_SHAPE_TEXT(n), TCI_SHAPE_TEXT(of), c->given_name, i);
        g->error = TC_OK;
    }
    return c->f->failed ? NULL : tci_grad_built(c, fits);
}

static void tci_grad_take(tci_grad_call *c)
{
    bool loss = !c->seeds.items;
    tci_node **given, **seeds = TCI_NEW_ARRAY(&c->s, tci_node *, c->given.n + 1);
    if (loss) {
        given = TCI_NEW_ARRAY(&c->s, tci_node *, 1);
        given[0] = tci_frame_node(c->f, c->given.items[0], c->given_name);
        if (!c->f->failed) {
            tci_grad_check_loss(c, given[0]);
        }
    } else {
        given = tci_grad_floats(c, c->given, c->given_name);
    }
    for (int i = 0; i < c->given.n && !c->f->failed; i++) {
        seeds[i] = loss ? tci_grad_fill(c, 1, given[i]) : tci_grad_seed(c, i, given[i]);
    }
    c->nodes = tci_grad_floats(c, c->asked, c->asked_name);
    c->pairs = (tci_grad_pairs){given, seeds, c->given.n};
}

/* The frame is failed, or c->made is made: zeros where nothing depends. */
static void tci_grad_make(tci_grad_call *c)
{
    tci_graph *g = &c->f->ctx->graph;
    if (setjmp(c->s.escape)) {
        tci_frame_fail(c->f, c->s.why, "%s", c->s.message);
        g->error = TC_OK;
        return;
    }
    tci_grad_take(c);
    if (c->f->failed) {
        return;
    }
    c->made = TCI_NEW_ARRAY(&c->s, tci_node *, c->asked.n + 1);
    if (c->forward) {
        tci_jvp_build(&c->s, g, c->pairs, c->nodes, c->asked.n, c->made);
    } else {
        tci_grad_build(&c->s, g, c->pairs, c->nodes, c->asked.n, c->made);
    }
    for (int i = 0; i < c->asked.n; i++) {
        c->made[i] = c->made[i] ? c->made[i] : tci_grad_fill(c, 0, c->nodes[i]);
    }
}

/* A result for each that is asked. */
static tc_status tci_grad_call_run(tci_grad_call *c, tc_tensor *out)
{
    tci_frame *f = c->f;
    if (c->seeds.items && c->seeds.n != c->given.n) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "given %d %s for %d %ss: expected one for each",
                       c->seeds.n, c->forward ? "tangents" : "cotangents", c->given.n,
                       c->given_name);
    }
    tci_scratch_init(&c->s);
    if (f->ctx && !f->failed) {
        tci_grad_make(c);
    } else if (!f->failed && c->given.n) {
        tci_frame_node(f, c->given.items[0], c->given_name);
    } else if (!f->failed && c->asked.n) {
        tci_frame_node(f, c->asked.items[0], c->asked_name);
    }
    for (int i = 0; i < c->asked.n; i++) {
        out[i] = tci_frame_end(f, f->failed ? NULL : c->made[i]);
    }
    tci_scratch_free(&c->s);
    tci_frame_leave(f);
    return f->failed ? tc_status_of(f->bad) : TC_OK;
}

static bool tci_grad_has_list(tci_frame *f, const void *items, int n, const char *what)
{
    if (n >= 0 && (!n || items)) {
        return true;
    }
    if (f->ctx) {
        (void)tci_frame_list(f, items, n, what);
    }
    return false;
}

/* No list is missing; else all of out are poisoned, and the frame is left. */
static bool tci_grad_lists(tci_grad_call *c, tc_tensor *out, int n_out)
{
    tci_frame *f = c->f;
    const tc_tensors *const lists[] = {&c->given, &c->asked, &c->seeds};
    bool listed = true;
    for (int i = 0; i < TCI_COUNT(lists); i++) {
        for (int j = 0; j < lists[i]->n && lists[i]->items; j++) {
            tci_frame_use(f, lists[i]->items[j]);
        }
    }
    for (int i = 0; i < TCI_COUNT(lists) && listed; i++) {
        const char *const names[] = {c->given_name, c->asked_name,
                                     c->forward ? "tangent" : "cotangent"};
        char what[32];
        snprintf(what, sizeof(what), "the %ss", names[i]);
        listed = tci_grad_has_list(f, lists[i]->items, lists[i]->n, what);
    }
    listed = listed && tci_grad_has_list(f, out, n_out, "the results");
    for (int i = 0; i < n_out && out && !listed; i++) {
        out[i] = f->failed ? f->bad : (tc_tensor){NULL, TCI_NULL_EMPTY, 0};
    }
    if (!listed) {
        tci_frame_leave(f);
    }
    return listed;
}

TC_API tc_status tc_grad_at(tc_tensor loss, const tc_tensor *params, int n, tc_tensor *grads,
                            tc_site here)
{
    tci_frame f = tci_frame_begin("tc_grad", here);
    tci_grad_call c = {.f = &f,
                       .given = {&loss, 1},
                       .asked = {params, n},
                       .given_name = "the loss",
                       .asked_name = "parameter"};
    return tci_grad_lists(&c, grads, n) ? tci_grad_call_run(&c, grads) : TC_ERR_ARGUMENT;
}

TC_API tc_status tc_vjp_at(tc_tensors results, tc_tensors cotangents, const tc_tensor *params,
                           int n, tc_tensor *grads, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_vjp", here);
    tci_grad_call c = {.f = &f,
                       .given = results,
                       .seeds = cotangents,
                       .asked = {params, n},
                       .given_name = "result",
                       .asked_name = "parameter"};
    return tci_grad_lists(&c, grads, n) ? tci_grad_call_run(&c, grads) : TC_ERR_ARGUMENT;
}

TC_API tc_status tc_jvp_at(tc_tensors results, tc_tensors inputs, tc_tensors tangents,
                           tc_tensor *out, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_jvp", here);
    tci_grad_call c = {.f = &f,
                       .forward = true,
                       .given = inputs,
                       .seeds = tangents,
                       .asked = results,
                       .given_name = "input",
                       .asked_name = "result"};
    return tci_grad_lists(&c, out, results.n) ? tci_grad_call_run(&c, out) : TC_ERR_ARGUMENT;
}
