/* api/control_flow.c - loops, branches and checkpointed regions: tc_scan, tc_while, tc_cond,
 * tc_checkpoint, tc_barrier.
 *
 * In: handles and the user's body. Out: the results of a REPEAT (graph/loop_node.h), or poison.
 *
 * Design: the body is called once, on placeholder nodes (BOUND); it builds ordinary nodes of the
 * context's graph, which graph/loop_node.c closes. A while loop is a loop (REPEAT node) with early
 * exit, and a branch is a loop of at most one iteration: the second branch of two gets the results
 * of the first, which are zeros if that was not taken. A region is a loop of one iteration, whose
 * gradient recomputes its body (grad/loop.c). */
#include "api_call.h"

#include <stdio.h>

#include "../graph/loop_node.h"
#include "control_flow.h"

typedef struct tci_loops_call tci_loops_call;
struct tci_loops_call {
    tci_frame *f;
    void (*make)(tci_loops_call *c); /* the results */
    tci_scratch s;
    tc_tensors init, xs;
    tci_dim length;
    bool reverse;
    tc_scan_body body;
    tc_while_test test;
    tc_while_body step;
    tc_branch branches[2];
    tc_tensor condition;
    void *user;
    int n_ys;
    tci_node **results; /* per carry, then per output */
};

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

static void tci_loops_check_length(tci_loops_call *c)
{
    tci_graph *g = &c->f->ctx->graph;
    if (!tci_build_check_dim(g, "the length", c->length, TC_ERR_ARGUMENT)) {
        tci_scratch_fail(&c->s, g->error, "%s", g->message);
    }
}

/* As many steps as the xs have, or as the caller says. */
static bool tci_loops_find_length(tci_loops_call *c, tci_node *const *xs)
{
    tci_loops_check_length(c);
    for (int i = 0; i < c->xs.n; i++) {
        const tci_node *x = xs[i];
        if (!x->rank) {
            tci_frame_fail(c->f, TC_ERR_SHAPE,
                           "x %d has shape %s: expected a first axis to walk along", i,
                           TCI_SHAPE_TEXT(x));
            return false;
        }
        bool first = i == 0 && c->length == 0;
        if (!first && x->shape[0] != c->length) {
            tci_frame_fail(c->f, TC_ERR_ARGUMENT,
                           "x %d has shape %s: expected %s steps along its first axis", i,
                           TCI_SHAPE_TEXT(x), TCI_DIM_TEXT(c->length));
            return false;
        }
        c->length = x->shape[0];
    }
    if (!tci_dim_le(0, c->length) || (c->length == 0 && !c->xs.n)) {
        tci_frame_fail(c->f, TC_ERR_ARGUMENT,
                       "given a length of %s and %d xs: expected a length, or xs that have one",
                       TCI_DIM_TEXT(c->length), c->xs.n);
    }
    return !c->f->failed;
}

/* BOUND nodes, of one element along the first axis of an x. */
static void tci_loops_bind(tci_loops_call *c, tci_node *const *of, int n, int skipped,
                           tci_node **bound, tc_tensor *handles)
{
    tci_graph *g = &c->f->ctx->graph;
    for (int i = 0; i < n; i++) {
        bound[i] = tci_loops_built(c,
                                   tci_build_bound(g, (tc_dtype)of[i]->dtype, of[i]->rank - skipped,
                                                   of[i]->shape + skipped));
        handles[i] = tci_handle_make(c->f->ctx, bound[i], c->f->here);
    }
}

/* Status of the user's function; false: the frame has failed. */
static bool tci_loops_take_back(tci_loops_call *c, tci_lent lent, tc_status status)
{
    if (tci_frame_take_back(c->f, lent) && status) {
        tci_frame_fail(c->f, status, "the body gave up: %s", tc_status_text(status));
    }
    return !c->f->failed;
}

static bool tci_loops_trace(tci_loops_call *c, const tc_tensor *carry, const tc_tensor *x,
                            tci_node **next, tci_node **y)
{
    tc_tensor *made = TCI_NEW_ARRAY(&c->s, tc_tensor, c->init.n + c->n_ys + 1);
    tci_lent lent = tci_frame_lend(c->f);
    tc_status status = c->body(c->user, carry, x, made, made + c->init.n);
    return tci_loops_take_back(c, lent, status) &&
           tci_loops_take(c, made, c->init.n, "the next carry", next) &&
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
        c->results[r->n_carry + i] = tci_loops_built(c, tci_build_broadcast(g, none, y->rank + 1,
                                                                            shape));
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
    tci_repeat r = {.n_carry = n_carry,
                    .n_x = n_x,
                    .n_y = c->n_ys,
                    .length = c->length,
                    .reverse = c->reverse,
                    .stops = -1,
                    .init = init,
                    .xs = xs,
                    .carry = carry,
                    .x = x,
                    .next = next,
                    .y = y};
    if (c->length == 0) {
        tci_loops_empty(c, &r);
        return;
    }
    tci_node *repeat = tci_loops_built(c, tci_build_repeat(&c->s, g, &r));
    for (int i = 0; i < n_carry + c->n_ys; i++) {
        c->results[i] = tci_loops_built(c, tci_build_result(g, repeat, i));
    }
}

/* ---- loops with early exit ---- */

enum { TCI_LOOPS_MOST = 59 }; /* steps, as a power of two, of a loop without a bound */

static bool tci_loops_check_go(tci_loops_call *c, const tci_node *go, const char *what)
{
    if (go && (go->dtype != TC_BOOL || go->rank)) {
        tci_frame_fail(c->f, go->rank ? TC_ERR_SHAPE : TC_ERR_DTYPE,
                       "%s is %s %s: expected a bool of shape []", what,
                       tci_dtype_get((tc_dtype)go->dtype)->name, TCI_SHAPE_TEXT(go));
    }
    return !c->f->failed;
}

static bool tci_loops_test(tci_loops_call *c, const tc_tensor *carry, tci_node **go)
{
    tc_tensor made = {NULL, TCI_NULL_ZERO, 0};
    tci_lent lent = tci_frame_lend(c->f);
    tc_status status = c->test(c->user, carry, &made);
    return tci_loops_take_back(c, lent, status) && tci_loops_take(c, &made, 1, "the test", go) &&
           tci_loops_check_go(c, *go, "what the test gives");
}

static void tci_loops_make_while(tci_loops_call *c)
{
    tci_graph *g = &c->f->ctx->graph;
    int n = c->init.n;
    tci_node **init = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_node **carry = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_node **next = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tc_tensor *carries = TCI_NEW_ARRAY(&c->s, tc_tensor, n + 1);
    tc_tensor *made = TCI_NEW_ARRAY(&c->s, tc_tensor, n + 1);
    c->results = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_loops_check_length(c);
    if (!tci_loops_take(c, c->init.items, n, "carry", init) ||
        !tci_loops_test(c, c->init.items, &init[n])) {
        return;
    }
    tci_loops_bind(c, init, n + 1, 0, carry, carries);
    tci_lent lent = tci_frame_lend(c->f);
    tc_status status = c->step(c->user, carries, made);
    if (!tci_loops_take_back(c, lent, status) ||
        !tci_loops_take(c, made, n, "the next carry", next) || !tci_loops_test(c, made, &next[n])) {
        return;
    }
    tci_dim most = c->length != 0 ? c->length : (int64_t)1 << TCI_LOOPS_MOST;
    tci_repeat r =
        {.n_carry = n + 1, .length = most, .stops = n, .init = init, .carry = carry, .next = next};
    tci_node *repeat = tci_loops_built(c, tci_build_repeat(&c->s, g, &r));
    for (int i = 0; i < n; i++) {
        c->results[i] = tci_loops_built(c, tci_build_result(g, repeat, i));
    }
}

/* ---- branches ---- */

/* The results of branch `which` for the operands, y, over BOUND nodes. */
static bool tci_loops_trace_branch(tci_loops_call *c, int which, tci_node *const *operands,
                                   tci_node **bound, tci_node **y)
{
    tc_tensor *handles = TCI_NEW_ARRAY(&c->s, tc_tensor, c->init.n + 1);
    tc_tensor *made = TCI_NEW_ARRAY(&c->s, tc_tensor, c->n_ys + 1);
    tci_loops_bind(c, operands, c->init.n, 0, bound, handles);
    tci_lent lent = tci_frame_lend(c->f);
    tc_status status = c->branches[which](c->user, handles, made);
    return tci_loops_take_back(c, lent, status) && tci_loops_take(c, made, c->n_ys, "result", y);
}

/* If `go`, y in place of `before`: at most one step, whose carries are the results and go. */
static void tci_loops_branch(tci_loops_call *c, tci_node *go, tci_node *const *operands,
                             tci_node *const *bound, tci_node *const *y, tci_node *const *before)
{
    tci_graph *g = &c->f->ctx->graph;
    int n = c->n_ys;
    tci_value no = {.u = 0};
    tci_node **init = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_node **carry = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_node **next = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tc_tensor *unused = TCI_NEW_ARRAY(&c->s, tc_tensor, n + 1);
    for (int i = 0; i < n; i++) {
        init[i] = before[i];
        next[i] = y[i];
    }
    init[n] = go;
    next[n] = tci_loops_built(c, tci_graph_const(g, TC_BOOL, no));
    tci_loops_bind(c, init, n + 1, 0, carry, unused);
    tci_repeat r = {.n_carry = n + 1,
                    .n_held = c->init.n,
                    .length = 1,
                    .stops = n,
                    .init = init,
                    .held = operands,
                    .carry = carry,
                    .inner = bound,
                    .next = next};
    tci_node *repeat = tci_loops_built(c, tci_build_repeat(&c->s, g, &r));
    for (int i = 0; i < n; i++) {
        c->results[i] = tci_loops_built(c, tci_build_result(g, repeat, i));
    }
}

static bool tci_loops_check_alike(tci_loops_call *c, tci_node *const *a, tci_node *const *b)
{
    for (int i = 0; i < c->n_ys; i++) {
        bool same = tci_build_same_shape(a[i]->rank, a[i]->shape, b[i]->rank, b[i]->shape);
        if (!same || a[i]->dtype != b[i]->dtype) {
            tci_frame_fail(c->f, same ? TC_ERR_DTYPE : TC_ERR_SHAPE,
                           "result %d is %s %s of one branch and %s %s of the other: expected the "
                           "same",
                           i, tci_dtype_get((tc_dtype)a[i]->dtype)->name, TCI_SHAPE_TEXT(a[i]),
                           tci_dtype_get((tc_dtype)b[i]->dtype)->name, TCI_SHAPE_TEXT(b[i]));
            return false;
        }
    }
    return true;
}

static void tci_loops_make_cond(tci_loops_call *c)
{
    tci_graph *g = &c->f->ctx->graph;
    int n = c->init.n;
    tci_node *go = tci_frame_node(c->f, c->condition, "the condition");
    tci_node **operands = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_node **bound[2], **y[2];
    tci_value zero = {.u = 0};
    c->results = TCI_NEW_ARRAY(&c->s, tci_node *, c->n_ys + 1);
    if (!go || !tci_loops_check_go(c, go, "the condition") ||
        !tci_loops_take(c, c->init.items, n, "operand", operands)) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        bound[i] = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
        y[i] = TCI_NEW_ARRAY(&c->s, tci_node *, c->n_ys + 1);
        if (!tci_loops_trace_branch(c, i, operands, bound[i], y[i])) {
            return;
        }
    }
    if (!tci_loops_check_alike(c, y[0], y[1])) {
        return;
    }
    for (int i = 0; i < c->n_ys; i++) {
        tci_node *none = tci_graph_const(g, (tc_dtype)y[0][i]->dtype, zero);
        none = tci_build_broadcast(g, tci_loops_built(c, none), y[0][i]->rank, y[0][i]->shape);
        c->results[i] = tci_loops_built(c, none);
    }
    tci_loops_branch(c, go, operands, bound[0], y[0], c->results);
    tci_node *other = tci_loops_built(c, tci_build_ew(g, TCI_OP_LOGICAL_NOT, &go));
    tci_loops_branch(c, other, operands, bound[1], y[1], c->results);
}

/* ---- regions and barriers ---- */

/* A loop of one iteration, which holds the inputs and has the results as outputs. */
static void tci_loops_make_region(tci_loops_call *c)
{
    tci_graph *g = &c->f->ctx->graph;
    int n = c->init.n;
    tci_node **inputs = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_node **bound = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    tci_node **y = TCI_NEW_ARRAY(&c->s, tci_node *, c->n_ys + 1);
    c->results = TCI_NEW_ARRAY(&c->s, tci_node *, c->n_ys + 1);
    if (!tci_loops_take(c, c->init.items, n, "input", inputs) ||
        !tci_loops_trace_branch(c, 0, inputs, bound, y)) {
        return;
    }
    tci_repeat r = {.n_held = n,
                    .n_y = c->n_ys,
                    .length = 1,
                    .stops = -1,
                    .held = inputs,
                    .inner = bound,
                    .y = y};
    tci_node *repeat = tci_loops_built(c, tci_build_repeat(&c->s, g, &r));
    for (int i = 0; i < c->n_ys; i++) {
        tci_node *row = tci_loops_built(c, tci_build_result(g, repeat, i));
        c->results[i] = tci_loops_built(c, tci_build_reshape(g, row, y[i]->rank, y[i]->shape));
    }
}

/* Each tensor of the list after a barrier that waits for the others. */
static void tci_loops_make_barriers(tci_loops_call *c)
{
    int n = c->init.n;
    tci_node **nodes = TCI_NEW_ARRAY(&c->s, tci_node *, 2 * n + 1);
    c->results = TCI_NEW_ARRAY(&c->s, tci_node *, n + 1);
    if (tci_loops_take(c, c->init.items, n, "tensor", nodes)) {
        for (int i = 0; i < n; i++) { /* the others follow it, round the end */
            nodes[n + i] = nodes[i];
            c->results[i] = tci_loops_built(c, tci_build_barrier(&c->f->ctx->graph, nodes[i],
                                                                 nodes + i + 1, n - 1, false));
        }
    }
}

/* ---- the calls ---- */

/* A list at NULL is none, and has no length that fits. */
static tc_tensors tci_loops_list(tc_tensors list)
{
    list.n = list.n > 0 && !list.items ? -1 : list.n;
    return list;
}

static void tci_loops_use(tci_frame *f, tc_tensors list)
{
    for (int i = 0; i < list.n; i++) {
        tci_frame_use(f, list.items[i]);
    }
}

/* Begins the scratch. The frame is failed then, or c->results are made. */
static void tci_loops_run(tci_loops_call *c)
{
    tci_scratch_init(&c->s);
    if (c->f->failed) {
        return;
    }
    if (setjmp(c->s.escape)) {
        tci_frame_fail(c->f, c->s.why, "%s", c->s.message);
        c->f->ctx->graph.error = TC_OK;
        return;
    }
    c->make(c);
}

/* n results, or poison, from the first one on to `to`, which may be NULL. */
static void tci_loops_store(tci_loops_call *c, int first, tc_tensor *to, int n)
{
    for (int i = 0; i < n && to; i++) {
        to[i] = tci_frame_end(c->f, c->f->failed ? NULL : c->results[first + i]);
    }
}

static tc_status tci_loops_leave(tci_loops_call *c)
{
    tci_scratch_free(&c->s);
    tci_frame_leave(c->f);
    return c->f->failed ? tc_status_of(c->f->bad) : TC_OK;
}

TC_API tc_status tc_scan_at(tc_tensors init, tc_tensors xs, int64_t length, bool reverse,
                            tc_scan_body body, void *user, tc_tensor *last, tc_tensor *ys, int n_ys,
                            tc_site here)
{
    tci_frame f = tci_frame_begin("tc_scan", here);
    init = tci_loops_list(init);
    xs = tci_loops_list(xs);
    tci_loops_call c = {.f = &f,
                        .make = tci_loops_make,
                        .init = init,
                        .xs = xs,
                        .length = length,
                        .reverse = reverse,
                        .body = body,
                        .user = user,
                        .n_ys = n_ys};
    tci_loops_use(&f, init);
    tci_loops_use(&f, xs);
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
    tci_loops_run(&c);
    tci_loops_store(&c, 0, last, init.n);
    tci_loops_store(&c, init.n, ys, n_ys);
    return tci_loops_leave(&c);
}

/* Runs a call whose frame is begun; its results, or poison, to `to`. */
static tc_status tci_loops_end(tci_loops_call *c, tc_tensor *to, int n, bool fits)
{
    tci_frame *f = c->f;
    tc_tensor none = {NULL, TCI_NULL_EMPTY, 0};
    if (!f->ctx) { /* then the first tensor says why */
        (void)tci_frame_node(f,
                             c->step && c->init.n < 1 ? none
                             : c->step                ? c->init.items[0]
                                                      : c->condition,
                             "operand 0");
    } else if (!fits) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "given a list without items, or no function");
    }
    tci_loops_run(c);
    tci_loops_store(c, 0, to, n);
    return tci_loops_leave(c);
}

TC_API tc_status tc_while_at(tc_tensors init, int64_t most, tc_while_test test, tc_while_body body,
                             void *user, tc_tensor *last, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_while", here);
    init = tci_loops_list(init);
    tci_loops_call c = {.f = &f,
                        .make = tci_loops_make_while,
                        .init = init,
                        .length = most,
                        .test = test,
                        .step = body,
                        .user = user};
    tci_loops_use(&f, init);
    return tci_loops_end(&c, last, init.n, init.n > 0 && last && test && body && most >= 0);
}

TC_API tc_status tc_cond_at(tc_tensor condition, tc_tensors operands, tc_branch then,
                            tc_branch otherwise, void *user, tc_tensor *results, int n,
                            tc_site here)
{
    tci_frame f = tci_frame_begin("tc_cond", here);
    tci_loops_call c = {.f = &f,
                        .make = tci_loops_make_cond,
                        .init = tci_loops_list(operands),
                        .branches = {then, otherwise},
                        .user = user,
                        .condition = condition,
                        .n_ys = n};
    tci_frame_use(&f, condition);
    return tci_loops_end(&c, results, n, c.init.n >= 0 && n > 0 && results && then && otherwise);
}

/* A call on a list, the first of which says why it has no context. */
static tc_status tci_loops_run_list(tci_loops_call *c, tc_tensor *results, bool fits)
{
    c->init = tci_loops_list(c->init);
    c->condition = c->init.n > 0 ? c->init.items[0] : TC_NONE;
    tci_loops_use(c->f, c->init);
    return tci_loops_end(c, results, c->n_ys, fits && c->init.n > 0 && c->n_ys > 0 && results);
}

TC_API tc_status tc_checkpoint_at(tc_tensors inputs, tc_branch body, void *user, tc_tensor *results,
                                  int n, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_checkpoint", here);
    tci_loops_call c = {.f = &f,
                        .make = tci_loops_make_region,
                        .init = inputs,
                        .branches = {body, NULL},
                        .user = user,
                        .n_ys = n};
    return tci_loops_run_list(&c, results, body != NULL);
}

TC_API tc_status tc_barrier_at(tc_tensors list, tc_tensor *out, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_barrier", here);
    tci_loops_call c = {.f = &f, .make = tci_loops_make_barriers, .init = list, .n_ys = list.n};
    return tci_loops_run_list(&c, out, true);
}
