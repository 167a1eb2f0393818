/* api/loops.c - repetitions: tc_scan.
 *
 * In: handles and the user's body. Out: the results of a REPEAT (graph/repeat.h), or poison.
 * The one idea: the body is called once, on BOUND nodes; what it makes of them are ordinary nodes
 * of the context's graph, which graph/repeat.c closes. */
#include "frame.h"

#include <stdio.h>

#include "../graph/repeat.h"
#include "loops.h"

typedef struct tci_loops_call {
    tci_frame *f;
    tci_scratch s;
    tc_tensors init, xs;
    int64_t length;
    bool reverse;
    tc_scan_body body;
    void *user;
    int n_ys;
    tci_node **results; /* per carry, then per output */
} tci_loops_call;

static tci_node *tci_loops_built(tci_loops_call *c, tci_node *n)
{
    tci_graph *g = &c->f->ctx->graph;
    if (!n) {
        tci_scratch_fail(&c->s, g->error, "%s", g->message);
    }
    return n;
}

/* The nodes of a list, "carry 2" and so on. False: the frame is failed. */
static bool tci_loops_take(tci_loops_call *c, const tc_tensor *items, int n, const char *what,
                          tci_node **nodes)
{
    for (int i = 0; i < n && !c->f->failed; i++) {
        char text[48];
        snprintf(text, sizeof(text), "%s %d", what, i);
        nodes[i] = tci_frame_node(c->f, items[i], text);
    }
    return !c->f->failed;
}

/* As many steps as the xs have, or as the caller says. */
static bool tci_loops_find_length(tci_loops_call *c, tci_node *const *xs)
{
    for (int i = 0; i < c->xs.n; i++) {
        const tci_node *x = xs[i];
        if (!x->rank || !tci_dim_is_known(x->shape[0])) {
            tci_frame_fail(c->f, x->rank ? TC_ERR_UNSUPPORTED : TC_ERR_SHAPE,
                           "x %d has shape %s: expected a first axis, of a known size, to walk "
                           "along",
                           i, TCI_SHAPE_TEXT(x));
            return false;
        }
        int64_t n = tci_dim_known(x->shape[0]);
        bool first = i == 0 && !c->length;
        if (!first && n != c->length) {
            tci_frame_fail(c->f, TC_ERR_ARGUMENT,
                           "x %d has shape %s: expected %lld steps along its first axis", i,
                           TCI_SHAPE_TEXT(x), (long long)c->length);
            return false;
        }
        c->length = n;
    }
    if (c->length < 0 || (!c->length && !c->xs.n)) {
        tci_frame_fail(c->f, TC_ERR_ARGUMENT,
                       "given a length of %lld and %d xs: expected a length, or xs that have one",
                       (long long)c->length, c->xs.n);
    }
    return !c->f->failed;
}

/* BOUND nodes, of one element along the first axis of an x. */
static void tci_loops_bind(tci_loops_call *c, tci_node *const *of, int n, int skipped,
                          tci_node **bound, tc_tensor *handles)
{
    tci_graph *g = &c->f->ctx->graph;
    for (int i = 0; i < n; i++) {
        bound[i] = tci_loops_built(c, tci_build_bound(g, (tc_dtype)of[i]->dtype,
                                                     of[i]->rank - skipped,
                                                     of[i]->shape + skipped));
        handles[i] = tci_handle_make(c->f->ctx, bound[i], c->f->here);
    }
}

/* Calls the body. The frame's own name and place are set again behind it. */
static bool tci_loops_trace(tci_loops_call *c, const tc_tensor *carry, const tc_tensor *x,
                           tci_node **next, tci_node **y)
{
    tci_graph *g = &c->f->ctx->graph;
    tc_site site = g->site;
    const char *call = g->call, *within = c->f->ctx->within;
    tc_tensor *made = TCI_NEW_ARRAY(&c->s, tc_tensor, c->init.n + c->n_ys + 1);
    c->f->ctx->within = NULL;
    tci_fpenv_leave(c->f->caller);
    tc_status status = c->body(c->user, carry, x, made, made + c->init.n);
    c->f->caller = tci_fpenv_enter();
    c->f->ctx->within = within;
    g->site = site;
    g->call = call;
    if (status) {
        tci_frame_fail(c->f, status, "the body gave up: %s", tc_status_text(status));
    }
    return tci_loops_take(c, made, c->init.n, "the next carry", next) &&
           tci_loops_take(c, made + c->init.n, c->n_ys, "output", y);
}

/* No step: the carries stay, the outputs are empty. */
static void tci_loops_empty(tci_loops_call *c, const tci_repeat *r)
{
    tci_graph *g = &c->f->ctx->graph;
    tci_value zero = {.u = 0};
    for (int i = 0; i < r->n_carry; i++) {
        c->results[i] = r->init[i];
    }
    for (int i = 0; i < r->n_y; i++) {
        const tci_node *y = r->y[i];
        tci_dim *shape = TCI_NEW_ARRAY(&c->s, tci_dim, y->rank + 1);
        for (int a = 0; a < y->rank; a++) {
            shape[a + 1] = y->shape[a];
        }
        tci_node *none = tci_loops_built(c, tci_graph_const(g, (tc_dtype)y->dtype, zero));
        c->results[r->n_carry + i] =
            tci_loops_built(c, tci_build_broadcast(g, none, y->rank + 1, shape));
    }
}

static void tci_loops_make(tci_loops_call *c)
{
    tci_graph *g = &c->f->ctx->graph;
    int n_carry = c->init.n, n_x = c->xs.n, n = n_carry + n_x + c->n_ys + 1;
    tci_node **init = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    tci_node **xs = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    tci_node **carry = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    tci_node **x = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    tci_node **next = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    tci_node **y = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    tc_tensor *carries = TCI_NEW_ARRAY(&c->s, tc_tensor, n);
    tc_tensor *inputs = TCI_NEW_ARRAY(&c->s, tc_tensor, n);
    c->results = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    if (!tci_loops_take(c, c->init.items, n_carry, "carry", init) ||
        !tci_loops_take(c, c->xs.items, n_x, "x", xs) || !tci_loops_find_length(c, xs)) {
        return;
    }
    tci_loops_bind(c, init, n_carry, 0, carry, carries);
    tci_loops_bind(c, xs, n_x, 1, x, inputs);
    if (!tci_loops_trace(c, carries, inputs, next, y)) {
        return;
    }
    tci_repeat r = {.n_carry = n_carry, .n_x = n_x, .n_y = c->n_ys, .length = c->length,
                    .reverse = c->reverse, .init = init, .xs = xs, .carry = carry, .x = x,
                    .next = next, .y = y};
    if (!c->length) {
        tci_loops_empty(c, &r);
        return;
    }
    tci_node *repeat = tci_loops_built(c, tci_build_repeat(&c->s, g, &r));
    for (int i = 0; i < n_carry + c->n_ys; i++) {
        c->results[i] = tci_loops_built(c, tci_build_result(g, repeat, i));
    }
}

/* The frame is failed, or c->results are made. */
static void tci_loops_run(tci_loops_call *c)
{
    if (setjmp(c->s.escape)) {
        tci_frame_fail(c->f, c->s.why, "%s", c->s.message);
        c->f->ctx->graph.error = TC_OK;
        return;
    }
    tci_loops_make(c);
}

TC_API tc_status tc_scan_at(tc_tensors init, tc_tensors xs, int64_t length, bool reverse,
                            tc_scan_body body, void *user, tc_tensor *last, tc_tensor *ys, int n_ys,
                            tc_site here)
{
    tci_frame f = tci_frame_begin("tc_scan", here);
    tci_loops_call c = {.f = &f, .init = init, .xs = xs, .length = length, .reverse = reverse,
                       .body = body, .user = user, .n_ys = n_ys};
    for (int i = 0; i < init.n + xs.n && init.n >= 0 && xs.n >= 0; i++) {
        tci_frame_use(&f, i < init.n ? init.items[i] : xs.items[i - init.n]);
    }
    if (init.n < 0 || xs.n < 0 || n_ys < 0 || (n_ys && !ys) || !f.ctx || !body) {
        if (f.ctx) {
            tci_frame_fail(&f, TC_ERR_ARGUMENT,
                           "given %d carries, %d xs, %d outputs and %s body: expected lists, and "
                           "a function",
                           init.n, xs.n, n_ys, body ? "a" : "no");
        } else {
            tc_tensor none = {NULL, TCI_NULL_EMPTY, 0};
            f.failed = true;
            f.bad = init.n > 0 ? init.items[0] : xs.n > 0 ? xs.items[0] : none;
        }
    }
    tci_scratch_init(&c.s);
    if (!f.failed) {
        tci_loops_run(&c);
    }
    for (int i = 0; i < init.n && last; i++) {
        last[i] = tci_frame_end(&f, f.failed ? NULL : c.results[i]);
    }
    for (int i = 0; i < n_ys && ys; i++) {
        ys[i] = tci_frame_end(&f, f.failed ? NULL : c.results[init.n + i]);
    }
    tci_scratch_free(&c.s);
    tci_frame_leave(&f);
    return f.failed ? tc_status_of(f.bad) : TC_OK;
}
