/* api/gradcheck.c - tc_gradcheck: compares gradients with finite differences.
 *
 * In: an expression, the inputs whose gradients are checked. Out: the element with the largest
 * deviation between gradient and difference, and the op whose rule causes it.
 *
 * Design: both are computed for the expression in f64 (grad/to_f64.c), where a central difference
 * has ten correct digits, so any deviation is a wrong rule or a kink. The cause is the first op on
 * the way whose own rule does not hold: for fixed weights w of a node n, the change of sum(w * n)
 * along the element equals the rule applied to w, times the change of the operands. The change of
 * the operands comes from forward mode; one program computes these sums for all nodes, another the
 * results of the rules. */
#include "compile.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "../grad/grad.h"
#include "../ops/composite.h"
#include "program.h"

typedef struct tci_check {
    tci_scratch s;
    const tci_frame *f;
    tci_graph *g;
    tc_tensor about; /* y */
    tc_tensors inputs;
    tc_gradcheck_options o;
    tc_gradcheck_report *report;
    tci_table wide;      /* of tci_node *: in f64 */
    tci_node_list list;  /* of y, inputs first */
    tc_tensor *leaves;   /* in place of the inputs */
    tc_buf *bufs;        /* of their values; one more for a program's further input */
    tc_program *program; /* under way; freed at the end */
    tc_status status;
} tci_check;

static tci_node *tci_check_built(tci_check *c, tci_node *n)
{
    const tci_vjp v = {.s = &c->s, .g = c->g};
    return tci_vjp_built(&v, n);
}

static tc_tensor tci_check_handle(const tci_check *c, const tci_node *n)
{
    return (tc_tensor){c->f->ctx->handle, n->id, n->generation};
}

/* A leaf in f64 of a node's shape. */
static tci_node *tci_check_leaf(tci_check *c, const tci_node *like)
{
    return tci_check_built(c, tci_graph_node(c->g, TCI_OP_INPUT, TC_F64, like->rank, like->shape, 0,
                                             NULL, 0, NULL));
}

/* Fixed weights of either sign in a node's shape, so that no error cancels another. */
static tci_node *tci_check_weights(tci_check *c, const tci_node *like)
{
    tci_graph *g = c->g;
    tci_node *i = tci_build_cast(g, tci_build_iota(g, tci_node_count(like)), TC_F64);
    i = tci_composite_binary(g, TCI_OP_MUL, i, tci_composite_number(g, TC_F64, 1.7));
    i = tci_composite_binary(g, TCI_OP_ADD, tci_composite_unary(g, TCI_OP_SIN, i),
                             tci_composite_number(g, TC_F64, 0.4));
    return tci_check_built(c, tci_build_reshape(g, i, like->rank, like->shape));
}

static tci_node *tci_check_dot(tci_check *c, tci_node *a, tci_node *b)
{
    const tc_axes all = {NULL, 0, true};
    tci_node *products = tci_composite_binary(c->g, TCI_OP_MUL, a, b);
    return tci_check_built(c, tci_build_reduce(c->g, TCI_OP_SUM, products, all, false));
}

/* ---- programs ---- */

/* False: c->status has the reason. */
static bool tci_check_did(tci_check *c, tc_status status)
{
    c->status = c->status ? c->status : status;
    return !c->status;
}

/* Of the inputs, and more[0] if there is one. */
static bool tci_check_compile(tci_check *c, const tci_node *more, tci_node *const *outputs, int n)
{
    tc_tensor *in = TCI_NEW_ARRAY(&c->s, tc_tensor, c->inputs.n + 1);
    tc_tensor *out = TCI_NEW_ARRAY(&c->s, tc_tensor, n + 1);
    memcpy(in, c->leaves, sizeof(*in) * (size_t)c->inputs.n);
    in[c->inputs.n] = more ? tci_check_handle(c, more) : in[0];
    for (int i = 0; i < n; i++) {
        out[i] = tci_check_handle(c, outputs[i]);
    }
    tc_program_free(c->program);
    c->program = NULL;
    return tci_check_did(c, tc_compile_fn_at((tc_tensors){in, c->inputs.n + (more ? 1 : 0)},
                                             (tc_tensors){out, n}, NULL, &c->program, c->f->here));
}

static bool tci_check_run(tci_check *c, int n_inputs, tc_buf *out, int n)
{
    tc_status status = tc_run_at(c->program, (tc_bufs){c->bufs, n_inputs}, (tc_bufs){out, n},
                                 c->f->here);
    if (status) {
        tci_batch_fail(c->f, c->about, NULL, status, "%s", tc_program_error(c->program));
    }
    return tci_check_did(c, status);
}

/* Changes of n numbers along an element, divided by twice the step: into `change`. */
static bool tci_check_differ(tci_check *c, int input, int64_t element, double *change, int n)
{
    double *x = (double *)c->bufs[input].data + element, at = *x;
    double step = c->o.step * fmax(1, fabs(at)), *up = TCI_NEW_ARRAY(&c->s, double, n);
    tc_buf *out = TCI_NEW_ARRAY(&c->s, tc_buf, n);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < n; i++) {
            out[i] = (tc_buf){(turn ? change : up) + i, 1, TC_F64, false, 0, NULL, NULL};
        }
        *x = turn ? at - step : at + step;
        bool ran = tci_check_run(c, c->inputs.n, out, n);
        *x = at;
        if (!ran) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        change[i] = (up[i] - change[i]) / (2 * step);
    }
    return true;
}

/* ---- whose fault it is ---- */

/* The sum that the rule of a node gives along the tangents of its operands; NULL: none changes. */
static tci_node *tci_check_rule(tci_check *c, tci_node *n, tci_node *weights, tci_table *changes)
{
    tci_node **grads = TCI_NEW_ARRAY(&c->s, tci_node *, n->n_in + 1), *sum = NULL;
    tci_grad_of_operands(&c->s, c->g, n, weights, grads);
    for (int i = 0; i < n->n_in; i++) {
        tci_node *t = *(tci_node **)tci_table_at(changes, n->in[i]);
        bool again = false; /* one that is listed twice has all of its gradient at both positions */
        for (int k = 0; k < i; k++) {
            again = again || n->in[k] == n->in[i];
        }
        if (t && !again) {
            tci_node *part = grads[i] ? tci_check_dot(c, grads[i], t)
                                      : tci_composite_number(c->g, TC_F64, 0);
            sum = sum ? tci_composite_binary(c->g, TCI_OP_ADD, sum, part) : part;
        }
    }
    return sum;
}

/* The float nodes with an operand that changes with the input, and for each what its rule says. */
static int tci_check_rules(tci_check *c, tci_node *input, tci_node *tangent, tci_node **nodes,
                           tci_node **sums, tci_node **rules)
{
    int n = 0, count = c->list.n;
    tci_node **all = TCI_NEW_ARRAY(&c->s, tci_node *, count + 1);
    tci_node **tangents = TCI_NEW_ARRAY(&c->s, tci_node *, count + 1);
    tci_table changes = tci_table_in(&c->s, sizeof(tci_node *));
    for (int i = 0; i < count; i++) {
        all[i] = tci_table_get(&c->wide, c->list.items[i]);
    }
    tci_jvp_build(&c->s, c->g, (tci_grad_pairs){&input, &tangent, 1}, all, count, tangents);
    for (int i = 0; i < count; i++) {
        tci_table_put(&changes, all[i], tangents[i]);
    }
    for (int i = 0; i < count; i++) {
        if (all[i] != input && tci_dtype_is_float((tc_dtype)all[i]->dtype)) {
            tci_node *weights = tci_check_weights(c, all[i]);
            nodes[n] = c->list.items[i];
            sums[n] = tci_check_dot(c, weights, all[i]);
            rules[n] = tci_check_rule(c, all[i], weights, &changes);
            n += rules[n] != NULL;
        }
    }
    return n;
}

static bool tci_check_is_off(const tci_check *c, double a, double b)
{
    return !(fabs(a - b) <= c->o.tolerance * (1 + fabs(b)));
}

static void tci_check_blame(tci_check *c)
{
    tc_gradcheck_report *r = c->report;
    int most = c->list.n + 1;
    tci_node **nodes = TCI_NEW_ARRAY(&c->s, tci_node *, most);
    tci_node **sums = TCI_NEW_ARRAY(&c->s, tci_node *, most);
    tci_node **rules = TCI_NEW_ARRAY(&c->s, tci_node *, most);
    tci_node *input = tci_handle_node(c->leaves[r->input]), *tangent = tci_check_leaf(c, input);
    int n = tci_check_rules(c, input, tangent, nodes, sums, rules);
    double *change = TCI_NEW_ARRAY(&c->s, double, most), *said = TCI_NEW_ARRAY(&c->s, double, most);
    double *along = TCI_NEW_ARRAY(&c->s, double, c->bufs[r->input].n + 1);
    tc_buf *out = TCI_NEW_ARRAY(&c->s, tc_buf, most);
    along[r->element] = 1;
    c->bufs[c->inputs.n] = c->bufs[r->input];
    c->bufs[c->inputs.n].data = along;
    for (int i = 0; i < n; i++) {
        out[i] = (tc_buf){said + i, 1, TC_F64, false, 0, NULL, NULL};
    }
    if (!n || !tci_check_compile(c, NULL, sums, n) ||
        !tci_check_differ(c, r->input, r->element, change, n) ||
        !tci_check_compile(c, tangent, rules, n) || !tci_check_run(c, c->inputs.n + 1, out, n)) {
        return;
    }
    for (int i = 0; i < n; i++) {
        if (tci_check_is_off(c, said[i], change[i])) {
            r->op = nodes[i]->call ? nodes[i]->call : tci_op_name(nodes[i]->op);
            r->file = nodes[i]->site.file ? nodes[i]->site.file : "";
            r->line = nodes[i]->site.line;
            return;
        }
    }
}

/* ---- the check ---- */

static void tci_check_elements(tci_check *c, int input, const double *grad)
{
    int64_t n = c->bufs[input].n, parts = n < c->o.most ? n : c->o.most;
    tc_gradcheck_report *r = c->report;
    for (int64_t i = 0; i < parts; i++) {
        int64_t element = i * (n / parts) + i * (n % parts) / parts; /* spread evenly */
        double want;
        if (!tci_check_differ(c, input, element, &want, 1)) {
            return;
        }
        double error = fabs(grad[element] - want) / (1 + fabs(want));
        error = error == error ? error : INFINITY; /* NaN on one side, or both: nothing is shown */
        if (!r->checked++ || error > r->error) {
            r->error = error;
            r->input = input;
            r->element = element;
            r->gradient = grad[element];
            r->difference = want;
        }
    }
}

/* Leaves for the inputs, and their values; y in f64. */
static tci_node *tci_check_prepare(tci_check *c, tci_node *y)
{
    int n = c->inputs.n;
    c->leaves = TCI_NEW_ARRAY(&c->s, tc_tensor, n + 1);
    c->bufs = TCI_NEW_ARRAY(&c->s, tc_buf, n + 1);
    c->wide = tci_table_in(&c->s, sizeof(tci_node *));
    for (int i = 0; i < n; i++) {
        tci_node *x = tci_handle_node(c->inputs.items[i]), *leaf = tci_check_leaf(c, x);
        tci_node *value = tci_check_built(c, tci_build_cast(c->g, x, TC_F64));
        int64_t count = tci_dim_known(tci_node_count(x));
        double *data = TCI_NEW_ARRAY(&c->s, double, count + 1);
        c->leaves[i] = tci_check_handle(c, leaf);
        c->bufs[i] = (tc_buf){data, count, TC_F64, false, 0, NULL, NULL};
        tci_table_put(&c->wide, x, leaf);
        if (!tci_check_did(c, tc_read_as_at(tci_check_handle(c, value), c->bufs[i], c->f->here))) {
            return NULL;
        }
    }
    c->list = tci_widen_build(&c->s, c->g, y, &c->wide);
    return tci_table_get(&c->wide, y);
}

static void tci_check_all(tci_check *c, tci_node *y)
{
    int n = c->inputs.n;
    tci_node *wide = tci_check_prepare(c, y);
    if (!wide) {
        return;
    }
    tci_node **leaves = TCI_NEW_ARRAY(&c->s, tci_node *, n), *weights = tci_check_weights(c, wide);
    tci_node **grads = TCI_NEW_ARRAY(&c->s, tci_node *, n), *loss = tci_check_dot(c, weights, wide);
    tc_buf *out = TCI_NEW_ARRAY(&c->s, tc_buf, n);
    for (int i = 0; i < n; i++) {
        leaves[i] = tci_handle_node(c->leaves[i]);
        out[i] = c->bufs[i];
        out[i].data = TCI_NEW_ARRAY(&c->s, double, out[i].n + 1);
    }
    tci_grad_build(&c->s, c->g, (tci_grad_pairs){&wide, &weights, 1}, leaves, n, grads);
    for (int i = 0; i < n; i++) {
        tci_node *zero = tci_composite_number(c->g, TC_F64, 0);
        grads[i] = grads[i] ? grads[i]
                            : tci_check_built(c, tci_build_broadcast(c->g, zero, leaves[i]->rank,
                                                                     leaves[i]->shape));
    }
    if (!tci_check_compile(c, NULL, grads, n) || !tci_check_run(c, n, out, n) ||
        !tci_check_compile(c, NULL, &loss, 1)) {
        return;
    }
    for (int i = 0; i < n && !c->status; i++) {
        tci_check_elements(c, i, (const double *)out[i].data);
    }
    if (!c->status && c->report->error > c->o.tolerance) {
        tci_check_blame(c);
        tci_check_did(c, TC_ERR_GRADIENT);
    }
}

static void tci_check_tell(const tci_check *c)
{
    const tc_gradcheck_report *r = c->report;
    char where[400] = "";
    if (r->op[0]) {
        snprintf(where, sizeof(where), "; the first whose rule does not hold is %s at %.200s:%d",
                 r->op, r->file, r->line);
    }
    tci_batch_fail(c->f, c->about, NULL, TC_ERR_GRADIENT,
                   "element %lld of input %d has the gradient %.12g, differences say %.12g%s",
                   (long long)r->element, r->input, r->gradient, r->difference, where);
}

static tc_status tci_check_float(const tci_check *c, tc_tensor t, const char *what, int i)
{
    tc_status status = TC_OK;
    const tci_node *n = tci_batch_node(c->f, c->about, t, &status);
    if (n && t.ctx != c->about.ctx) {
        return tci_batch_fail(c->f, c->about, NULL, TC_ERR_HANDLE, "%s %d is of another context",
                              what, i);
    }
    if (n && !tci_dtype_is_float((tc_dtype)n->dtype)) {
        return tci_batch_fail(c->f, c->about, NULL, TC_ERR_DTYPE,
                              "%s %d is %s: only floats have gradients", what, i,
                              tci_dtype_get((tc_dtype)n->dtype)->name);
    }
    if (n && !tci_build_is_known(n->rank, n->shape)) {
        return tci_batch_fail(c->f, c->about, NULL, TC_ERR_SHAPE,
                              "%s %d has shape %s: expected known sizes", what, i,
                              TCI_SHAPE_TEXT(n));
    }
    return status;
}

/* With the scratch armed; the calls within bear this one's name. */
static void tci_check_armed(tci_check *c)
{
    const char *outer = c->f->ctx->within;
    c->f->ctx->within = outer ? outer : c->f->op;
    if (setjmp(c->s.escape)) {
        c->status = tci_batch_fail(c->f, c->about, NULL, c->s.why, "%s", c->s.message);
        c->g->error = TC_OK;
    } else {
        tci_check_all(c, tci_handle_node(c->about));
    }
    c->f->ctx->within = outer;
}

TC_API tc_status tc_gradcheck_at(tc_tensor y, tc_tensors inputs,
                                 const tc_gradcheck_options *options, tc_gradcheck_report *report,
                                 tc_site here)
{
    static const tc_gradcheck_options none;
    tc_gradcheck_report own;
    tci_frame f = tci_frame_begin("tc_gradcheck", here);
    tci_check c = {.f = &f,
                   .about = y,
                   .inputs = inputs,
                   .o = options ? *options : none,
                   .report = report ? report : &own};
    *c.report = (tc_gradcheck_report){.op = "", .file = ""};
    c.o.step = c.o.step > 0 ? c.o.step : 1e-5;
    c.o.tolerance = c.o.tolerance > 0 ? c.o.tolerance : 1e-6;
    c.o.most = c.o.most > 0 ? c.o.most : 200;
    tci_frame_use(&f, y);
    if (inputs.n < 1 || !inputs.items) {
        tci_frame_leave(&f);
        return TC_ERR_ARGUMENT;
    }
    c.status = tci_check_float(&c, y, "result", 0);
    for (int i = 0; i < inputs.n && !c.status; i++) {
        c.status = tci_check_float(&c, inputs.items[i], "input", i);
    }
    tci_scratch_init(&c.s);
    if (!c.status) {
        c.g = &f.ctx->graph;
        tci_check_armed(&c);
    }
    if (c.status == TC_ERR_GRADIENT) {
        tci_check_tell(&c);
    }
    tc_program_free(c.program);
    tci_scratch_free(&c.s);
    tci_frame_leave(&f);
    return c.status;
}
