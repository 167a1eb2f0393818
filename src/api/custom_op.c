/* api/custom_op.c - builds the graph nodes of user-defined ops.
 *
 * In: an op and its operands. Out: a CUSTOM node; the op's rule gives its shape and dtype. The node
 * stores the op's number in the list of ops/custom_op.c. */
#include "custom_op.h"

#include <stddef.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/kernel_check.h"
#include "../ops/custom_op.h"
#include "api_call.h"

/* ---- the op ---- */

static bool tci_custom_is_same(const tc_custom_op *a, const tc_custom_op *b)
{
    bool same_text = !a->cuda == !b->cuda && (!a->cuda || !strcmp(a->cuda, b->cuda));
    return a->user == b->user && a->shape == b->shape && a->run == b->run && a->vjp == b->vjp &&
           a->vmap == b->vmap && same_text && a->cuda_threads == b->cuda_threads &&
           a->cuda_elements == b->cuda_elements;
}

/* The result of a user's rule as a node; NULL: the graph's error has the reason. */
static tci_node *tci_custom_made(const tci_custom *c, tci_ctx *ctx, tci_lent lent, tc_tensor r,
                                 const char *rule)
{
    char text[512];
    const char *why = tci_take_back(ctx, lent);
    tc_status status = why ? TC_ERR_ARGUMENT : tci_handle_error(r, text, sizeof(text));
    if (!status && r.ctx != ctx->handle) {
        status = TC_ERR_HANDLE;
        why = "it is of another context than the inputs";
    }
    if (status) {
        tci_graph_fail(&ctx->graph, status, "the %s of custom op '%.60s': %s", rule, c->op.name,
                       why ? why : text);
    }
    return status ? NULL : tci_handle_node(r);
}

static void tci_custom_show_nodes(tci_ctx *ctx, const tci_node *n, tci_node *const *nodes,
                                  tc_tensor *handles)
{
    for (int i = 0; i < n->n_in; i++) {
        handles[i] = tci_handle_make(ctx, nodes[i], n->site);
    }
}

/* The user's rule over handles; its result as a node. */
static tci_node *tci_custom_vjp(const tci_custom *c, tci_graph *g, tci_node *n, tci_node *grad,
                                int which, bool *none)
{
    tci_ctx *ctx = (tci_ctx *)((char *)g - offsetof(tci_ctx, graph));
    tc_tensor inputs[TC_CUSTOM_MOST];
    tci_custom_show_nodes(ctx, n, n->in, inputs);
    tc_tensor result = tci_handle_make(ctx, n, n->site);
    tc_tensor way = tci_handle_make(ctx, grad, n->site);
    tci_lent lent = tci_lend(ctx);
    tc_tensor r = c->op.vjp(c->op.user, (tc_tensors){inputs, n->n_in}, result, way, which);
    *none = tci_is_none(r);
    if (*none) {
        r = way; /* what else it did is judged all the same */
    }
    tci_node *made = tci_custom_made(c, ctx, lent, r, "gradient");
    const tci_node *x = n->in[which];
    if (made && !*none &&
        (made->dtype != x->dtype ||
         !tci_build_same_shape(made->rank, made->shape, x->rank, x->shape))) {
        tci_graph_fail(g, TC_ERR_SHAPE, "custom op '%.60s' gives input %d, %s %s, a gradient %s %s",
                       c->op.name, which, tc_dtype_name((tc_dtype)x->dtype), TCI_SHAPE_TEXT(x),
                       tc_dtype_name((tc_dtype)made->dtype), TCI_SHAPE_TEXT(made));
        made = NULL;
    }
    *none = *none && made;
    return *none ? NULL : made;
}

/* The user's rule over handles; many: inputs with the axis of examples. */
static tci_node *tci_custom_vmap(const tci_custom *c, tci_graph *g, const tci_node *n,
                                 tci_node *const *many, const tci_dim *shape)
{
    tci_ctx *ctx = (tci_ctx *)((char *)g - offsetof(tci_ctx, graph));
    tc_tensor inputs[TC_CUSTOM_MOST];
    tci_custom_show_nodes(ctx, n, many, inputs);
    tci_lent lent = tci_lend(ctx);
    tc_tensor r = c->op.vmap(c->op.user, (tc_tensors){inputs, n->n_in});
    tci_node *made = tci_custom_made(c, ctx, lent, r, "vmap rule");
    if (made && (made->dtype != n->dtype ||
                 !tci_build_same_shape(made->rank, made->shape, n->rank + 1, shape))) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "the vmap rule of custom op '%.60s' gives %s %s for "
                       "examples of %s %s",
                       c->op.name, tc_dtype_name((tc_dtype)made->dtype), TCI_SHAPE_TEXT(made),
                       tc_dtype_name((tc_dtype)n->dtype), TCI_SHAPE_TEXT(n));
        made = NULL;
    }
    return made;
}

static const tci_custom *tci_custom_make(const tc_custom_op *op)
{
    size_t n = strlen(op->name) + 1, n_text = op->cuda ? strlen(op->cuda) + 1 : 0;
    tci_custom *fresh = tci_heap_get(sizeof(*fresh) + n + n_text);
    if (!fresh) {
        return NULL;
    }
    *fresh = (tci_custom){.op = *op,
                          .asserts = tci_checker_asserts(op),
                          .vjp = op->vjp ? tci_custom_vjp : NULL,
                          .vmap = op->vmap ? tci_custom_vmap : NULL};
    fresh->op.name = memcpy(fresh + 1, op->name, n);
    if (op->cuda) {
        fresh->op.cuda = memcpy((char *)(fresh + 1) + n, op->cuda, n_text);
    }
    const tci_custom *listed = tci_custom_list(fresh);
    if (listed != fresh) {
        tci_heap_free(fresh);
    }
    return listed;
}

/* NULL: the frame failed. */
static const tci_custom *tci_custom_of(tci_frame *f, const tc_custom_op *op)
{
    if (!op || !op->name || !op->name[0] || !op->run) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "an op has a name and a function `run`");
        return NULL;
    }
    if (op->cuda_threads < 0 || op->cuda_threads > 1024 || op->cuda_elements < 0) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "'%.60s' has cuda_threads = %d and cuda_elements = %lld, expected 0 to "
                       "1024 and no negative number",
                       op->name, op->cuda_threads, (long long)op->cuda_elements);
        return NULL;
    }
    const tci_custom *c = tci_custom_find(op->name, op->version);
    c = c ? c : tci_custom_make(op);
    if (!c) {
        tci_frame_fail(f, TC_ERR_MEMORY, "out of memory for an op");
    } else if (!tci_custom_is_same(&c->op, op)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "another op is '%.60s' version %d: give this one a "
                       "version of its own",
                       op->name, op->version);
        c = NULL;
    }
    return c;
}

/* ---- the call ---- */

/* Operands as the shape rule sees them. */
typedef struct tci_custom_rule {
    tc_custom_array arrays[TC_CUSTOM_MOST + 1];
    int64_t sizes[TC_CUSTOM_MOST + 1][TC_CUSTOM_MOST];
} tci_custom_rule;

static bool tci_custom_show(tci_frame *f, tci_custom_rule *rule, int i, const tci_node *x)
{
    tc_custom_array *a = &rule->arrays[i];
    *a = (tc_custom_array){NULL, (tc_dtype)x->dtype, x->rank, rule->sizes[i], 0};
    if (x->rank > TC_CUSTOM_MOST) {
        tci_frame_fail(f, TC_ERR_SHAPE, "input %d has %d axes, expected at most %d", i, x->rank,
                       (int)TC_CUSTOM_MOST);
        return false;
    }
    for (int d = 0; d < x->rank; d++) {
        a->sizes[d] = (int64_t)tci_dim_show(x->shape[d]);
    }
    a->n = (int64_t)tci_dim_show(tci_node_count(x));
    return true;
}

static bool tci_custom_judge(tci_frame *f, const tc_custom_op *op, const tc_custom_array *result)
{
    if (!tci_dtype_is_valid((int)result->dtype) || result->rank < 0 ||
        result->rank > TC_CUSTOM_MOST || (result->rank && !result->sizes)) {
        tci_frame_fail(f, TC_ERR_SHAPE,
                       "the shape rule of '%.60s' gives no valid dtype, rank or sizes", op->name);
        return false;
    }
    return tci_build_check_shape(&f->ctx->graph, result->rank, tci_dim_list(result->sizes),
                                 result->dtype);
}

/* The rule's result follows the inputs; it begins as the first input. */
static bool tci_custom_shape(tci_frame *f, const tc_custom_op *op, tci_custom_rule *rule,
                             tci_node *const *in, int n)
{
    for (int i = 0; i < n; i++) {
        if (!tci_custom_show(f, rule, i, in[i])) {
            return false;
        }
    }
    tc_custom_array *result = &rule->arrays[n];
    tci_custom_show(f, rule, n, in[0]);
    tci_lent lent = tci_frame_lend(f);
    bool takes = !op->shape || op->shape(op->user, rule->arrays, n, result);
    if (!tci_frame_take_back(f, lent)) {
        return false;
    }
    if (!takes) {
        tci_str shapes = {0};
        for (int i = 0; i < n; i++) {
            tci_str_printf(&shapes, "%s%s %s", i ? ", " : "", tc_dtype_name((tc_dtype)in[i]->dtype),
                           TCI_SHAPE_TEXT(in[i]));
        }
        tci_frame_fail(f, TC_ERR_SHAPE, "'%.60s' does not take %s", op->name,
                       tci_str_text(&shapes));
        tci_str_free(&shapes);
        return false;
    }
    return tci_custom_judge(f, op, result);
}

TC_API tc_tensor tc_custom_at(const tc_custom_op *op, tc_tensors inputs, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_custom", here);
    tci_node *in[TC_CUSTOM_MOST] = {NULL};
    tci_custom_rule rule;
    for (int i = 0; i < inputs.n && inputs.items; i++) {
        tci_frame_use(&f, inputs.items[i]);
    }
    if (inputs.n < 1 || !inputs.items) {
        f.failed = true; /* without a tensor there is no context to keep a text in */
        f.bad.id = TCI_NULL_EMPTY;
        return tci_frame_end(&f, NULL);
    }
    const tci_custom *c = tci_custom_of(&f, op);
    if (c && inputs.n > TC_CUSTOM_MOST) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "given %d inputs, expected 1 to %d", inputs.n,
                       (int)TC_CUSTOM_MOST);
    }
    for (int i = 0; i < inputs.n && !f.failed; i++) {
        in[i] = tci_frame_node(&f, inputs.items[i], "an input");
    }
    if (f.failed || !tci_custom_shape(&f, op, &rule, in, inputs.n)) {
        return tci_frame_end(&f, NULL);
    }
    const tc_custom_array *result = &rule.arrays[inputs.n];
    return tci_frame_end(&f,
                         tci_graph_node(&f.ctx->graph, TCI_OP_CUSTOM, result->dtype, result->rank,
                                        tci_dim_list(result->sizes), inputs.n, in, 1, &c->number));
}
