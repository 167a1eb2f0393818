/* onnx/import_control_flow.c - imports the ONNX control flow operators If, Loop and Scan.
 *
 * A known condition or count selects a branch or unrolls the loop; otherwise the bodies become
 * those of tc_cond, tc_scan and tc_while. Bodies see the values of the outer graph. */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <string.h>

enum { TCI_OX_UNROLL = 64, TCI_OX_CAPTURED = 4096 };

static void tci_ox_give(const tci_ox_op *o, int i, const tci_ox_value *v)
{
    if (tci_ox_wants(o, i)) {
        const char *name = o->out[i]->name;
        *o->out[i] = *v;
        o->out[i]->name = name;
    }
}

/* ---- If ---- */

typedef struct tci_ox_branch {
    const tci_onnx_graph *g;
    tci_ox_op *o;
    tci_ox_value **captured; /* of values around, whose tensors are the operands */
    int n_captured;
    const tc_tensor *x;
    tc_tensor *y;
} tci_ox_branch;

static void tci_ox_branch_build(tci_ox_op *o, void *user)
{
    tci_ox_branch *b = user;
    tci_ox_value **results = TCI_NEW_ARRAY(o->s, tci_ox_value *, b->g->n_outputs + 1);
    tc_tensor *outer = TCI_NEW_ARRAY(o->s, tc_tensor, b->n_captured + 1);
    for (int i = 0; i < b->n_captured; i++) {
        outer[i] = b->captured[i]->t;
        b->captured[i]->t = b->x[i];
    }
    o->m->build(o, b->g, NULL, 0, results);
    for (int i = 0; i < b->g->n_outputs; i++) {
        b->y[i] = tci_ox_tensor(o, results[i]);
    }
    for (int i = 0; i < b->n_captured; i++) {
        b->captured[i]->t = outer[i];
    }
}

static tc_status tci_ox_branch_call(tci_ox_branch *b, const tc_tensor *x, tc_tensor *y)
{
    tc_tensor *outer = TCI_NEW_ARRAY(b->o->s, tc_tensor, b->n_captured + 1);
    for (int i = 0; i < b->n_captured; i++) {
        outer[i] = b->captured[i]->t;
    }
    b->x = x;
    b->y = y;
    tc_status status = tci_ox_within(b->o, tci_ox_branch_build, b);
    for (int i = 0; i < b->n_captured; i++) { /* also after a failure */
        b->captured[i]->t = outer[i];
    }
    return status;
}

static tc_status tci_ox_then(void *user, const tc_tensor *x, tc_tensor *y)
{
    return tci_ox_branch_call((tci_ox_branch *)user, x, y);
}

static tc_status tci_ox_otherwise(void *user, const tc_tensor *x, tc_tensor *y)
{
    return tci_ox_branch_call((tci_ox_branch *)user + 1, x, y);
}

/* Values around that the nodes of a graph read, which are tensors of their own. */
static void tci_ox_captures(const tci_ox_op *o, const tci_onnx_graph *g, tci_ox_branch *b)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const tci_onnx_node *n = &g->nodes[i];
        for (int j = 0; j < n->n_in; j++) {
            tci_ox_value *v = *n->in[j] ? tci_ox_lookup(o, n->in[j]) : NULL;
            bool seen = !v || !v->is_made || v->is_cut || !v->depends;
            for (int k = 0; k < b->n_captured && !seen; k++) {
                seen = b->captured[k] == v;
            }
            if (!seen && b->n_captured < TCI_OX_CAPTURED) {
                b->captured[b->n_captured++] = v;
            }
        }
        for (int j = 0; j < n->n_attrs; j++) {
            if (n->attrs[j].g) {
                tci_ox_captures(o, n->attrs[j].g, b);
            }
        }
    }
}

TCI_OX_MAKE(if)
{
    tci_ox_branch both[2] = {{.g = tci_ox_body(o, "then_branch"), .o = o},
                             {.g = tci_ox_body(o, "else_branch"), .o = o}};
    if (!tci_ox_has(o, 0)) {
        tci_ox_fail(o, TC_ERR_IO, "the condition is left out");
    }
    if (tci_ox_can_know(o, o->in[0])) {
        const tci_ox_known *k = tci_ox_need(o, 0, "the condition");
        const tci_onnx_graph *g = k->n > 0 && k->cells[0].i ? both[0].g : both[1].g;
        tci_ox_value **results = TCI_NEW_ARRAY(o->s, tci_ox_value *, g->n_outputs + 1);
        o->m->build(o, g, NULL, 0, results);
        for (int i = 0; i < g->n_outputs; i++) {
            tci_ox_give(o, i, results[i]);
        }
        return;
    }
    int n = both[0].g->n_outputs;
    if (n != both[1].g->n_outputs || n < o->n_out) {
        tci_ox_fail(o, TC_ERR_IO, "the branches have %d and %d outputs", n, both[1].g->n_outputs);
    }
    both[0].captured = TCI_NEW_ARRAY(o->s, tci_ox_value *, TCI_OX_CAPTURED);
    tci_ox_captures(o, both[0].g, &both[0]);
    tci_ox_captures(o, both[1].g, &both[0]);
    both[1].captured = both[0].captured;
    both[1].n_captured = both[0].n_captured;
    tc_tensor *xs = TCI_NEW_ARRAY(o->s, tc_tensor, both[0].n_captured + 1);
    tc_tensor *ys = TCI_NEW_ARRAY(o->s, tc_tensor, n + 1);
    for (int i = 0; i < both[0].n_captured; i++) {
        xs[i] = both[0].captured[i]->t;
    }
    tc_tensor condition = tc_reshape_at(tci_ox_in(o, 0), 0, NULL, o->here);
    tci_ox_rethrow(o, tc_cond(condition, TC_TENSORS_N(xs, both[0].n_captured), tci_ox_then,
                              tci_ox_otherwise, both, ys, n));
    for (int i = 0; i < n; i++) {
        tci_ox_out(o, i, ys[i]);
    }
}

/* ---- bodies of loops ---- */

typedef struct tci_ox_loop {
    tci_ox_op *o;
    const tci_onnx_graph *g;
    int n_carry, n_x, n_y; /* states; what a step reads; what it adds to results */
    bool counts;           /* Loop: the body begins with count and condition, and ends with one */
    const tc_tensor *carry, *x;
    tc_tensor *next, *y;
} tci_ox_loop;

/* An input of a body. */
static tci_ox_value tci_ox_bound_value(tc_tensor t)
{
    return (tci_ox_value){.name = "",
                          .t = t,
                          .is_made = true,
                          .depends = TCI_OX_UNKNOWABLE,
                          .count = TC_NONE};
}

static tci_ox_value tci_ox_known_value(const tci_ox_known *k)
{
    return (tci_ox_value){.name = "", .t = TC_NONE, .known = k, .count = TC_NONE};
}

static const tci_ox_known *tci_ox_scalar_known(const tci_ox_op *o, tc_dtype d, int64_t v)
{
    tci_ox_known *k = tci_ox_known_new(o->s, d, 0, NULL);
    k->cells[0].i = v;
    return k;
}

static void tci_ox_check_body(const tci_ox_op *o, const tci_onnx_graph *g, int in, int out)
{
    if (g->n_inputs != in || g->n_outputs != out || o->n_out > out) {
        tci_ox_fail(o, TC_ERR_IO, "its body has %d inputs and %d outputs: expected %d and %d",
                    g->n_inputs, g->n_outputs, in, out);
    }
}

/* A step of tc_scan: carries, then what each step reads. A Loop's step reads its count. */
static void tci_ox_loop_build(tci_ox_op *o, void *user)
{
    tci_ox_loop *l = user;
    int n = l->g->n_inputs, at = 0, skip = l->counts ? 1 : 0;
    tci_ox_value *in = TCI_NEW_ARRAY(o->s, tci_ox_value, n + 1);
    tci_ox_value **out = TCI_NEW_ARRAY(o->s, tci_ox_value *, l->g->n_outputs + 1);
    if (l->counts) {
        in[at++] = tci_ox_bound_value(l->x[0]);
        in[at++] = tci_ox_known_value(tci_ox_scalar_known(o, TC_BOOL, 1));
    }
    for (int i = 0; i < l->n_carry; i++) {
        in[at++] = tci_ox_bound_value(l->carry[i]);
    }
    for (int i = 0; i < l->n_x && !l->counts; i++) {
        in[at++] = tci_ox_bound_value(l->x[i]);
    }
    o->m->build(o, l->g, in, n, out);
    for (int i = 0; i < l->n_carry; i++) {
        l->next[i] = tci_ox_tensor(o, out[skip + i]);
    }
    for (int i = 0; i < l->n_y; i++) {
        l->y[i] = tci_ox_tensor(o, out[skip + l->n_carry + i]);
    }
}

static tc_status tci_ox_scan_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                  tc_tensor *next, tc_tensor *y)
{
    tci_ox_loop *l = user;
    l->carry = carry;
    l->x = x;
    l->next = next;
    l->y = y;
    return tci_ox_within(l->o, tci_ox_loop_build, l);
}

/* ---- Scan ---- */

/* xs have the axis of steps first; ys too. */
static void tci_ox_scan_run(tci_ox_op *o, tci_ox_loop *l, tc_tensor *init, tc_tensor *xs,
                            tc_tensor *last, tc_tensor *ys)
{
    tci_ox_rethrow(o, tc_scan(TC_TENSORS_N(init, l->n_carry), TC_TENSORS_N(xs, l->n_x), 0, false,
                              tci_ox_scan_step, l, last, ys, l->n_y));
}

static int64_t tci_ox_each(const tci_ox_op *o, const char *name, int i)
{
    int n;
    const int64_t *list = tci_ox_ints(o, name, &n);
    return list && i < n ? list[i] : 0;
}

/* Opset 8: operand 0 has lengths, and all others a batch as their first axis. */
static void tci_ox_scan_batches(tci_ox_op *o, tci_ox_loop *l)
{
    int n = l->n_carry + l->n_x, results = l->n_carry + l->n_y;
    int64_t batch = tc_size(tci_ox_in(o, 1), 0);
    if (tci_ox_has(o, 0) || !tci_dim_is_known(batch) || batch < 1 || batch > TCI_OX_UNROLL) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "lengths, or a batch of more than %d", TCI_OX_UNROLL);
    }
    tc_tensor *all = TCI_NEW_ARRAY(o->s, tc_tensor, batch * (results + 1));
    for (int64_t b = 0; b < batch; b++) {
        tc_tensor *in = TCI_NEW_ARRAY(o->s, tc_tensor, n + 1);
        tc_tensor *out = TCI_NEW_ARRAY(o->s, tc_tensor, results + 1);
        for (int i = 0; i < n; i++) {
            in[i] = tc_select(tci_ox_in(o, i + 1), 0, b);
            bool back = i >= l->n_carry && tci_ox_each(o, "directions", i - l->n_carry);
            in[i] = back ? tc_flip(in[i], 0) : in[i];
        }
        tci_ox_scan_run(o, l, in, in + l->n_carry, out, out + l->n_carry);
        for (int i = 0; i < results; i++) {
            all[i * batch + b] = out[i];
        }
    }
    for (int i = 0; i < results; i++) {
        tci_ox_out(o, i, tc_stack(TC_TENSORS_N(all + i * batch, (int)batch), 0));
    }
}

TCI_OX_MAKE(scan)
{
    tci_ox_loop l = {.o = o, .g = tci_ox_body(o, "body")};
    int first = o->opset < 9 ? 1 : 0;
    int64_t scanned = tci_ox_int(o, "num_scan_inputs", 0);
    if (scanned < 1 || scanned > o->n_in - first ||
        l.g->n_outputs < o->n_in - first - (int)scanned) {
        tci_ox_fail(o, TC_ERR_IO, "%d operands, %" PRId64 " of them scanned", o->n_in, scanned);
    }
    l.n_x = (int)scanned;
    l.n_carry = o->n_in - first - l.n_x;
    l.n_y = l.g->n_outputs - l.n_carry;
    tci_ox_check_body(o, l.g, l.n_carry + l.n_x, l.n_carry + l.n_y);
    if (first) {
        tci_ox_scan_batches(o, &l);
        return;
    }
    tc_tensor *in = TCI_NEW_ARRAY(o->s, tc_tensor, o->n_in + 1);
    tc_tensor *out = TCI_NEW_ARRAY(o->s, tc_tensor, l.g->n_outputs + 1);
    for (int i = 0; i < o->n_in; i++) {
        int j = i - l.n_carry;
        in[i] = tci_ox_in(o, i);
        if (j >= 0) {
            int axis = tci_ox_axis(o, tci_ox_each(o, "scan_input_axes", j), tc_rank(in[i]));
            for (; axis > 0; axis--) {
                in[i] = tc_transpose(in[i], axis, axis - 1);
            }
            in[i] = tci_ox_each(o, "scan_input_directions", j) ? tc_flip(in[i], 0) : in[i];
        }
    }
    tci_ox_scan_run(o, &l, in, in + l.n_carry, out, out + l.n_carry);
    for (int i = 0; i < l.n_carry + l.n_y; i++) {
        int j = i - l.n_carry;
        if (j >= 0) {
            int to = tci_ox_axis(o, tci_ox_each(o, "scan_output_axes", j), tc_rank(out[i]));
            out[i] = tci_ox_each(o, "scan_output_directions", j) ? tc_flip(out[i], 0) : out[i];
            for (int axis = 0; axis < to; axis++) {
                out[i] = tc_transpose(out[i], axis, axis + 1);
            }
        }
        tci_ox_out(o, i, out[i]);
    }
}

/* ---- Loop ---- */

/* A step whose count and condition are known; *goes: the condition after it, if that is known. */
static tci_ox_value **tci_ox_loop_step(const tci_ox_op *o, const tci_ox_loop *l, int64_t i,
                                       tci_ox_value *const *carry, const tci_ox_known **goes)
{
    int n = l->g->n_inputs;
    tci_ox_value *in = TCI_NEW_ARRAY(o->s, tci_ox_value, n + 1);
    tci_ox_value **out = TCI_NEW_ARRAY(o->s, tci_ox_value *, l->g->n_outputs + 1);
    in[0] = tci_ox_known_value(tci_ox_scalar_known(o, TC_I64, i));
    in[1] = tci_ox_known_value(tci_ox_scalar_known(o, TC_BOOL, 1));
    for (int j = 0; j < l->n_carry; j++) {
        in[j + 2] = *carry[j];
        in[j + 2].next = NULL;
    }
    o->m->build(o, l->g, in, n, out);
    *goes = tci_ox_known_of(o, out[0]);
    return out;
}

static void tci_ox_loop_unrolled(tci_ox_op *o, tci_ox_loop *l, int64_t most)
{
    tci_ox_value **carry = o->in + 2, **out;
    tc_tensor *ys = TCI_NEW_ARRAY(o->s, tc_tensor, (most + 1) * (l->n_y + 1));
    int64_t done = 0;
    const tci_ox_known *goes = tci_ox_scalar_known(o, TC_BOOL, 1);
    for (; done < most && goes && goes->cells[0].i; done++) {
        out = tci_ox_loop_step(o, l, done, carry, &goes);
        carry = out + 1;
        for (int i = 0; i < l->n_y; i++) {
            ys[i * most + done] = tci_ox_tensor(o, out[1 + l->n_carry + i]);
        }
        if (!goes && done + 1 < most) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "the number of steps follows from values");
        }
    }
    for (int i = 0; i < l->n_carry; i++) {
        tci_ox_give(o, i, carry[i]);
    }
    for (int i = 0; i < l->n_y && tci_ox_wants(o, l->n_carry + i); i++) {
        if (!done) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "results of no step have no shape");
        }
        tci_ox_out(o, l->n_carry + i, tc_stack(TC_TENSORS_N(ys + i * most, (int)done), 0));
    }
}

/* carry[0] the count, carry[1] whether it goes on, then the states. */
typedef struct tci_ox_while {
    tci_ox_loop l;
    tc_tensor most;
} tci_ox_while;

static tc_status tci_ox_while_test(void *user, const tc_tensor *carry, tc_tensor *go)
{
    const tci_ox_while *w = user;
    const tci_ox_op *o = w->l.o;
    *go = tci_ox_given(w->most) ? tc_logical_and(carry[1], tc_lt(carry[0], w->most)) : carry[1];
    return TC_OK;
}

static void tci_ox_while_build(tci_ox_op *o, void *user)
{
    tci_ox_loop *l = user;
    tci_ox_value *in = TCI_NEW_ARRAY(o->s, tci_ox_value, l->n_carry + 2);
    tci_ox_value **out = TCI_NEW_ARRAY(o->s, tci_ox_value *, l->n_carry + 2);
    for (int i = 0; i < l->n_carry + 2; i++) {
        in[i] = tci_ox_bound_value(l->carry[i]);
    }
    o->m->build(o, l->g, in, l->n_carry + 2, out);
    l->next[0] = tc_add(l->carry[0], 1);
    for (int i = 0; i < l->n_carry + 1; i++) {
        l->next[i + 1] = tci_ox_tensor(o, out[i]);
    }
    l->next[1] = tc_reshape_at(l->next[1], 0, NULL, o->here);
}

static tc_status tci_ox_while_step(void *user, const tc_tensor *carry, tc_tensor *next)
{
    tci_ox_while *w = user;
    w->l.carry = carry;
    w->l.next = next;
    return tci_ox_within(w->l.o, tci_ox_while_build, &w->l);
}

static void tci_ox_loop_while(tci_ox_op *o, tci_ox_loop *l)
{
    tci_ox_while w = {*l, TC_NONE};
    int n = l->n_carry + 2;
    tc_tensor *init = TCI_NEW_ARRAY(o->s, tc_tensor, n), *last = TCI_NEW_ARRAY(o->s, tc_tensor, n);
    for (int i = 0; i < l->n_y; i++) {
        if (tci_ox_wants(o, l->n_carry + i)) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "output %d has as many steps as values say",
                        l->n_carry + i);
        }
    }
    if (tci_ox_has(o, 0)) {
        w.most = tc_cast(tc_reshape_at(tci_ox_in(o, 0), 0, NULL, o->here), TC_I64);
    }
    init[0] = tc_full(o->ctx, 0, TC_I64);
    init[1] = tci_ox_has(o, 1) ? tc_reshape_at(tci_ox_in(o, 1), 0, NULL, o->here)
                               : tc_full(o->ctx, 1, TC_BOOL);
    for (int i = 0; i < l->n_carry; i++) {
        init[i + 2] = tci_ox_in(o, i + 2);
    }
    tci_ox_rethrow(o, tc_while(TC_TENSORS_N(init, n), 0, tci_ox_while_test, tci_ox_while_step, &w,
                               last));
    for (int i = 0; i < l->n_carry; i++) {
        tci_ox_out(o, i, last[i + 2]);
    }
}

/* `steps` times, a number or symbolic: its condition never ends it. */
static void tci_ox_loop_scan(tci_ox_op *o, tci_ox_loop *l, int64_t steps)
{
    tc_tensor *init = TCI_NEW_ARRAY(o->s, tc_tensor, l->n_carry + 1), count;
    tc_tensor *out = TCI_NEW_ARRAY(o->s, tc_tensor, l->n_carry + l->n_y + 1);
    for (int i = 0; i < l->n_carry; i++) {
        init[i] = tci_ox_in(o, i + 2);
    }
    count = tc_arange(o->ctx, 0, steps, 1, TC_I64);
    l->n_x = 1;
    l->counts = true;
    tci_ox_scan_run(o, l, init, &count, out, out + l->n_carry);
    for (int i = 0; i < l->n_carry + l->n_y; i++) {
        tci_ox_out(o, i, out[i]);
    }
}

static bool tci_ox_is_true(const tci_onnx_tensor *t)
{
    return t->count == 1 && t->bytes == 1 && t->data && t->data[0];
}

/* True if the body returns the condition that it is given, or one that is known to be true: of its
 * own constant, or of a value of the graph around it. */
static bool tci_ox_goes_on(const tci_ox_op *o, const tci_onnx_graph *g)
{
    const char *name = g->n_outputs > 0 ? g->outputs[0].name : "";
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const tci_onnx_node *n = &g->nodes[i];
        bool makes = n->n_out > 0 && !strcmp(n->out[0], name);
        if (makes && !strcmp(n->op, "Identity") && n->n_in == 1) {
            name = n->in[0];
        } else if (makes) {
            return !strcmp(n->op, "Constant") && n->n_attrs == 1 && n->attrs[0].t &&
                   tci_ox_is_true(n->attrs[0].t);
        }
    }
    for (int i = 0; i < g->n_tensors; i++) {
        if (!strcmp(g->tensors[i].name, name)) {
            return tci_ox_is_true(&g->tensors[i]);
        }
    }
    if (g->n_inputs > 1 && !strcmp(name, g->inputs[1].name)) {
        return true;
    }
    tci_ox_value *around = *name ? tci_ox_lookup(o, name) : NULL;
    const tci_ox_known *test = around ? tci_ox_known_of(o, around) : NULL;
    return test && test->n == 1 && test->cells[0].i;
}

TCI_OX_MAKE(loop)
{
    tci_ox_loop l = {.o = o, .g = tci_ox_body(o, "body")};
    bool counted = tci_ox_has(o, 0), tested = tci_ox_has(o, 1);
    const tci_ox_known *test = NULL;
    l.n_carry = TCI_MAX(o->n_in - 2, 0);
    l.n_y = l.g->n_outputs - 1 - l.n_carry;
    if (l.n_y < 0) {
        tci_ox_fail(o, TC_ERR_IO, "its body has %d outputs", l.g->n_outputs);
    }
    tci_ox_check_body(o, l.g, l.n_carry + 2, l.n_carry + l.n_y + 1);
    if (tested && tci_ox_can_know(o, o->in[1])) {
        test = tci_ox_need(o, 1, "the condition");
    }
    bool starts = !tested || (test && test->n > 0 && test->cells[0].i);
    bool endless = starts && tci_ox_goes_on(o, l.g);
    if (counted && starts && tci_ox_can_know(o, o->in[0])) {
        int64_t steps = tci_ox_need_int(o, 0, "the trip count");
        if (tci_dim_is_known(steps) && steps <= TCI_OX_UNROLL && (endless || l.n_y > 0)) {
            tci_ox_loop_unrolled(o, &l, TCI_MAX(steps, 0));
            return;
        }
        if (endless) {
            tci_ox_loop_scan(o, &l, steps);
            return;
        }
    }
    tci_ox_loop_while(o, &l);
}
