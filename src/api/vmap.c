/* api/vmap.c - tc_vmap: applies a function of one example to a batch.
 *
 * In: a function that builds a graph, tensors with a batch axis. Out: tensors with a batch axis.
 * The function is called once, on leaves that represent one example; the nodes that it builds are
 * rebuilt with the batch axis (grad/vmap.c). The leaves are unused afterwards. */
#include "api_call.h"

#include <setjmp.h>
#include <stdio.h>

#include "../grad/vmap.h"
#include "ops.h"

typedef struct tci_vmap_call {
    tci_frame f;
    tci_scratch s;
    tc_function function;
    void *user;
    tc_tensors inputs;
    const int *in_axes, *out_axes;
    int n_out;
    tci_dim count; /* of examples */
    int n_leaves;
    tci_node **leaves, **examples;
    tc_tensor *given;   /* to the function: leaves, and what is for all examples */
    tc_tensor *outputs; /* what it built */
    tci_node **made;
} tci_vmap_call;

typedef void (*tci_vmap_part)(tci_vmap_call *c);

/* Runs a part with the scratch armed; a longjmp fails the frame. */
static void tci_vmap_armed(tci_vmap_call *c, tci_vmap_part part)
{
    if (c->f.failed) {
        return;
    }
    if (setjmp(c->s.escape)) {
        tci_frame_fail(&c->f, c->s.why, "%s", c->s.message);
        c->f.ctx->graph.error = TC_OK;
        return;
    }
    part(c);
}

static tci_node *tci_vmap_call_built(tci_vmap_call *c, tci_node *n)
{
    tci_graph *g = &c->f.ctx->graph;
    if (!n) {
        tci_scratch_fail(&c->s, g->error ? g->error : TC_ERR_INTERNAL, "%s", g->message);
    }
    return n;
}

/* Axis `from` to position `to`, the others in their order. */
static tci_node *tci_vmap_move(tci_vmap_call *c, tci_node *x, int from, int to)
{
    int *order = TCI_NEW_ARRAY(&c->s, int, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int rest = i - (i > to);
        order[i] = i == to ? from : rest + (rest >= from);
    }
    return tci_vmap_call_built(c, tci_build_permute(&c->f.ctx->graph, x, x->rank, order));
}

static bool tci_vmap_axis(tci_vmap_call *c, int axis, int rank, const char *what, int *at)
{
    *at = axis < 0 ? axis + rank : axis;
    if (*at < 0 || *at >= rank) {
        tci_frame_fail(&c->f, TC_ERR_AXIS, "axis %d of %s, which has rank %d", axis, what, rank);
    }
    return !c->f.failed;
}

/* Input i as the function sees it. */
static void tci_vmap_take(tci_vmap_call *c, int i)
{
    char what[32];
    int axis = c->in_axes ? c->in_axes[i] : 0, at;
    snprintf(what, sizeof(what), "input %d", i);
    tci_node *x = tci_frame_node(&c->f, c->inputs.items[i], what);
    c->given[i] = c->inputs.items[i];
    if (!x || axis == TC_UNMAPPED || !tci_vmap_axis(c, axis, x->rank, what, &at)) {
        return;
    }
    if (c->n_leaves && x->shape[at] != c->count) {
        tci_frame_fail(&c->f, TC_ERR_SHAPE, "axis %d of %s has %s elements, the inputs before %s",
                       axis, what, TCI_DIM_TEXT(x->shape[at]), TCI_DIM_TEXT(c->count));
        return;
    }
    c->count = x->shape[at];
    tci_node *examples = tci_vmap_move(c, x, at, 0);
    tci_node *leaf = tci_vmap_call_built(c, tci_graph_node(&c->f.ctx->graph, TCI_OP_INPUT,
                                                           (tc_dtype)x->dtype, x->rank - 1,
                                                           examples->shape + 1, 0, NULL, 0, NULL));
    c->examples[c->n_leaves] = examples;
    c->leaves[c->n_leaves++] = leaf;
    c->given[i] = (tc_tensor){c->f.ctx->handle, leaf->id, leaf->generation};
}

static void tci_vmap_begin(tci_vmap_call *c)
{
    int n = c->inputs.n + 1;
    c->leaves = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    c->examples = TCI_NEW_ARRAY(&c->s, tci_node *, n);
    c->given = TCI_NEW_ARRAY(&c->s, tc_tensor, n);
    for (int i = 0; i < c->inputs.n && !c->f.failed; i++) {
        tci_vmap_take(c, i);
    }
    if (!c->f.failed && !c->n_leaves) {
        tci_frame_fail(&c->f, TC_ERR_ARGUMENT, "no input has an axis of examples: expected one");
    }
}

/* Output i with its axis where it is wanted. */
static tci_node *tci_vmap_result(tci_vmap_call *c, int i, tci_node *one, tci_node *many)
{
    tci_graph *g = &c->f.ctx->graph;
    char what[32];
    int axis = c->out_axes ? c->out_axes[i] : 0, at;
    snprintf(what, sizeof(what), "output %d", i);
    if (axis == TC_UNMAPPED) {
        if (many) {
            tci_frame_fail(&c->f, TC_ERR_ARGUMENT,
                           "%s differs between examples: expected an axis for them, not "
                           "TC_UNMAPPED",
                           what);
        }
        return one;
    }
    if (!tci_vmap_axis(c, axis, one->rank + 1, what, &at)) {
        return NULL;
    }
    if (!many) {
        tci_dim *shape = TCI_NEW_ARRAY(&c->s, tci_dim, one->rank + 1);
        shape[0] = c->count;
        for (int k = 0; k < one->rank; k++) {
            shape[1 + k] = one->shape[k];
        }
        many = tci_vmap_call_built(c, tci_build_broadcast(g, one, one->rank + 1, shape));
    }
    return tci_vmap_move(c, many, 0, at);
}

static void tci_vmap_end(tci_vmap_call *c)
{
    tci_node **roots = TCI_NEW_ARRAY(&c->s, tci_node *, c->n_out + 1);
    c->made = TCI_NEW_ARRAY(&c->s, tci_node *, c->n_out + 1);
    for (int i = 0; i < c->inputs.n; i++) {
        tci_frame_node(&c->f, c->given[i], "an input, behind the function,");
    }
    for (int i = 0; i < c->n_out; i++) {
        char what[64];
        snprintf(what, sizeof(what), "output %d of the function", i);
        roots[i] = tci_frame_node(&c->f, c->outputs[i], what);
    }
    if (c->f.failed) {
        return;
    }
    tci_vmap_build(&c->s, &c->f.ctx->graph, c->count, c->leaves, c->examples, c->n_leaves, roots,
                   c->n_out, c->made);
    for (int i = 0; i < c->n_out && !c->f.failed; i++) {
        c->made[i] = tci_vmap_result(c, i, roots[i], c->made[i]);
    }
}

/* The function's calls are the user's own: no frame is open while it runs. */
static void tci_vmap_call_function(tci_vmap_call *c)
{
    if (!c->f.failed) {
        tci_lent lent = tci_frame_lend(&c->f);
        c->function(c->given, c->outputs, c->user);
        tci_frame_take_back(&c->f, lent);
    }
}

TC_API tc_status tc_vmap_at(tc_function function, void *user, tc_tensors inputs, const int *in_axes,
                            tc_tensor *outputs, const int *out_axes, int n, tc_site here)
{
    const bool listed = inputs.n > 0 && inputs.items;
    if (n < 1 || !outputs) {
        return TC_ERR_ARGUMENT;
    }
    tci_vmap_call c = {.f = tci_frame_begin("tc_vmap", here),
                       .function = function,
                       .user = user,
                       .inputs = inputs,
                       .in_axes = in_axes,
                       .out_axes = out_axes,
                       .n_out = n,
                       .outputs = outputs};
    for (int i = 0; i < inputs.n && listed; i++) {
        tci_frame_use(&c.f, inputs.items[i]);
    }
    for (int i = 0; i < n; i++) {
        outputs[i] = (tc_tensor){0}; /* one that the function leaves out is no tensor */
    }
    if (!c.f.ctx) {
        const tc_tensor none = {NULL, TCI_NULL_EMPTY, 0};
        tci_frame_node(&c.f, listed ? inputs.items[0] : none, "input 0");
    } else if (!function) {
        tci_frame_fail(&c.f, TC_ERR_ARGUMENT, "given no function");
    }
    tci_scratch_init(&c.s);
    tci_vmap_armed(&c, tci_vmap_begin);
    tci_vmap_call_function(&c);
    tci_vmap_armed(&c, tci_vmap_end);
    for (int i = 0; i < n; i++) {
        outputs[i] = tci_frame_end(&c.f, c.f.failed ? NULL : c.made[i]);
    }
    tci_scratch_free(&c.s);
    return !listed ? TC_ERR_ARGUMENT : c.f.failed ? tc_status_of(c.f.bad) : TC_OK;
}
