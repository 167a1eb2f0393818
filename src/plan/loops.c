/* plan/loops.c - plans loops (REPEAT): each body as a program of its own, whose steps are spliced
 * into the outer list of steps.
 *
 * In: nodes with REPEATs among them (graph/loop_node.h). Out: nodes without, in which a RESULT
 * stands for memory that a loop writes; and, once everything else is planned, a plan whose steps
 * include those of all bodies, with their ranges and moves (plan/plan.h).
 *
 * Design: a body is closed, so it is a program: its inputs are its BOUND nodes, its outputs the
 * results of an iteration, and tci_plan_make plans it. To the outer plan a loop is one step that
 * reads its operands and writes its results and some scratch memory, so order, lifetimes and arena
 * do not depend on bodies. At the end the steps of the body replace that step; their operands are
 * inside its operands, or move along them.
 *
 * Memory is in rows. A carry is double-buffered: its two rows alternate (it has one row more than
 * there are iterations if all are read), so an iteration never writes what it reads. Each slice
 * read or written by an iteration is a row of an operand. On GPUs memory starts at multiples of
 * TCI_ALIGNED_BYTES, so rows do too: they are padded there, and cropped where read. The temporaries
 * of a body become the plan's and live within an iteration; all other memory of its steps lives as
 * long as the one step did, hence through all iterations. */
#include "../graph/build.h"
#include "../graph/loop_node.h"
#include "fusion_groups.h"

enum { TCI_REPEAT_TURNS = 2 }; /* rows of a carry */

/* The memory of an operand of a body: buffer and byte; moves as a tci_move. */
typedef struct tci_repeat_spot {
    int32_t buffer;
    tci_dim offset, by;
    bool back;
} tci_repeat_spot;

typedef struct tci_plan_repeat {
    tci_repeat r;
    tci_node **outside;       /* operands as they are in memory, before plan/decompose.c; */
    tci_node **stored;        /* per carry, then per output: RESULT of its rows, NULL: not read */
    tci_dim *pitch;           /* bytes of a row: of each carry, input and output */
    bool *keeps;              /* of each carry: all rows, not two that alternate */
    tci_dim *skipped;         /* of each input, rows before the first in its memory */
    tci_plan *enter, *body;   /* made when first needed */
    const tci_kernel *kernel; /* that stands for it */
} tci_plan_repeat;

TCI_FN int64_t tci_plan_rounds(const tci_plan *p, int t)
{
    int64_t rounds = 1;
    for (int i = 0; i < p->n_spans; i++) {
        bool within = p->spans[i].first <= t && t < p->spans[i].last;
        rounds *= within && p->spans[i].stops < 0 ? tci_dim_hint(p->spans[i].rounds) : 1;
    }
    return rounds;
}

static tci_dim tci_repeat_n_rows(const tci_plan_repeat *x, int carry)
{
    return x->keeps[carry] ? tci_dim_add(x->r.length, 1) : TCI_REPEAT_TURNS;
}

/* Where the number of rounds is not known, what a carry is in the end goes to its first row. */
static bool tci_repeat_settles(const tci_repeat *r)
{
    return r->stops >= 0 || !tci_dim_is_known(r->length);
}

/* ---- nodes ---- */

typedef struct tci_repeat_finder {
    tci_scratch *s;
    tci_plan *p;
    tci_graph *g;
    tci_machine machine;
    tci_table *forced;
    tci_table now, number; /* of nodes; of int: a REPEAT's among p->repeats, and 1 */
} tci_repeat_finder;

static tci_node *tci_repeat_made(const tci_repeat_finder *c, tci_node *n)
{
    TCI_ASSERT(c->s, n != NULL);
    return n;
}

/* Elements along the axes from that one on. */
static tci_dim tci_repeat_count(const tci_node *n, int first_axis)
{
    tci_dim count = 1;
    for (int i = first_axis; i < n->rank; i++) {
        count = tci_dim_mul(count, n->shape[i]);
    }
    return count;
}

static int tci_repeat_bytes(const tci_node *n)
{
    return tci_dtype_get((tc_dtype)n->dtype)->bytes;
}

/* Elements from row to row, of rows like n. */
static tci_dim tci_repeat_row(const tci_repeat_finder *c, const tci_node *n)
{
    int unit = c->machine.block_threads > 0 ? TCI_ALIGNED_BYTES / tci_repeat_bytes(n) : 1;
    return tci_dim_mul(tci_dim_ceil_div(tci_node_count(n), unit), unit);
}

/* n as memory, dense. */
static tci_node *tci_repeat_in_memory(const tci_repeat_finder *c, tci_node *n)
{
    const tci_node *source = tci_plan_source(n);
    bool leaf = tci_op_is(source->op, TCI_IS_LEAF);
    if (leaf ? tci_plan_is_leaf(source) && !source->strides : source != n) {
        return n;
    }
    if (leaf) { /* a copy */
        n = tci_graph_node(c->g, TCI_OP_RESHAPE, (tc_dtype)n->dtype, n->rank, n->shape, 1, &n, 0,
                           NULL);
    }
    tci_table_add(c->forced, n);
    return n;
}

/* Where xs is some rows of a result, which are in memory anyway: that result, and how many of
 * its rows are skipped. */
static tci_node *tci_repeat_unsliced(tci_node *xs, tci_dim *skipped)
{
    bool rows = xs->op == TCI_OP_SLICE && xs->in[0]->op == TCI_OP_RESULT && xs->attr[1] == 1;
    for (int i = 1; i < xs->rank && rows; i++) {
        rows = xs->shape[i] == xs->in[0]->shape[i] && xs->attr[2 * i + 1] == 1;
    }
    *skipped = rows ? tci_node_dims(xs)[0] : 0;
    return rows ? xs->in[0] : xs;
}

/* The rows of xs, `row` elements from one to the next. */
static tci_node *tci_repeat_rows_of(const tci_repeat_finder *c, tci_node *xs, tci_dim row)
{
    const tci_dim flat[2] = {xs->shape[0], tci_repeat_count(xs, 1)};
    tci_value zero = {.u = 0};
    if (flat[1] == row) {
        return xs;
    }
    tci_node *fill = tci_repeat_made(c, tci_graph_const(c->g, (tc_dtype)xs->dtype, zero));
    xs = tci_repeat_made(c, tci_build_reshape(c->g, xs, 2, flat));
    return tci_repeat_made(c, tci_build_pad(c->g, xs, 1, 0, tci_dim_sub(row, flat[1]), fill));
}

/* Rows [from, to) of a stored result, in this shape; each of this many elements. */
static tci_node *tci_repeat_cut(const tci_repeat_finder *c, tci_node *rows, tci_dim from,
                                tci_dim to, tci_dim count, const tci_node *like)
{
    rows = tci_repeat_made(c, tci_build_slice(c->g, rows, 0, from, to, 1));
    if (tci_repeat_count(rows, 1) != count) {
        rows = tci_repeat_made(c, tci_build_slice(c->g, rows, 1, 0, count, 1));
    }
    return tci_repeat_made(c, tci_build_reshape(c->g, rows, like->rank, like->shape));
}

/* The memory of carry, or output n_carry + k, `which`: its rows, or where these are longer than
 * they should be, [rows, elements of a row]. */
static tci_node *tci_repeat_store(const tci_repeat_finder *c, int number, int which)
{
    tci_plan_repeat *x = &c->p->repeats[number];
    const tci_node *one = x->r.next[which]; /* outputs follow */
    bool is_carry = which < x->r.n_carry;
    bool whole = tci_node_count(one) == tci_repeat_row(c, one);
    tci_dim *shape = TCI_NEW_ARRAY(c->s, tci_dim, one->rank + 2);
    const int64_t attr[2] = {which, number};
    int n_in = x->r.n_carry + x->r.n_x + x->r.n_held;
    shape[0] = is_carry ? tci_repeat_n_rows(x, which) : x->r.length;
    shape[1] = tci_repeat_row(c, one);
    for (int i = 0; i < one->rank && whole; i++) {
        shape[i + 1] = one->shape[i];
    }
    if (!x->stored[which]) {
        x->stored[which] = tci_graph_node(c->g, TCI_OP_RESULT, (tc_dtype)one->dtype,
                                          whole ? one->rank + 1 : 2, shape, n_in, x->outside, 2,
                                          attr);
    }
    return x->stored[which];
}

/* Of a REPEAT that is listed. */
static int tci_repeat_number(const tci_repeat_finder *c, const tci_node *n)
{
    return *(const int *)tci_table_item(&c->number, n) - 1;
}

static tci_node *tci_repeat_result(const tci_repeat_finder *c, const tci_node *n)
{
    int number = tci_repeat_number(c, n->in[0]);
    const tci_plan_repeat *x = &c->p->repeats[number];
    const tci_repeat *r = &x->r;
    int result = (int)n->attr[0], rows = result - r->n_carry - r->n_y;
    bool is_last = result < r->n_carry;
    tci_node *stored = tci_repeat_store(c, number, rows < 0 ? result : rows);
    if (tci_build_same_shape(stored->rank, stored->shape, n->rank, n->shape)) {
        return stored;
    }
    tci_dim from = !is_last                ? 0
                   : x->keeps[result]      ? tci_repeat_row_at(r, r->length)
                   : tci_repeat_settles(r) ? 0
                                           : tci_dim_mod(r->length, stored->shape[0]);
    tci_dim to = is_last ? tci_dim_add(from, 1) : stored->shape[0];
    return tci_repeat_cut(c, stored, from, to, tci_repeat_count(n, !is_last), n);
}

static void tci_repeat_list(tci_repeat_finder *c, tci_node *n)
{
    tci_plan_repeat x = {.r = tci_repeat_of(n)};
    const tci_repeat *r = &x.r;
    int n_body = r->n_carry + r->n_y, n_outside = tci_node_n_outside(n);
    x.outside = TCI_NEW_ARRAY(c->s, tci_node *, n_outside + 1);
    x.stored = TCI_NEW_ARRAY(c->s, tci_node *, n_body + 1);
    x.pitch = TCI_NEW_ARRAY(c->s, tci_dim, n_body + r->n_x + 1);
    x.keeps = TCI_NEW_ARRAY(c->s, bool, r->n_carry + 1);
    x.skipped = TCI_NEW_ARRAY(c->s, tci_dim, r->n_x + 1);
    for (int i = 0; i < r->n_carry + r->n_x + r->n_y; i++) {
        const tci_node *one = i < r->n_carry + r->n_x ? r->carry[i] : r->y[i - r->n_carry - r->n_x];
        x.pitch[i] = tci_dim_mul(tci_repeat_row(c, one), tci_repeat_bytes(one));
    }
    TCI_PUSH(c->s, c->p->repeats, c->p->n_repeats, c->p->cap_repeats, x);
    *(int *)tci_table_at(&c->number, n) = c->p->n_repeats;
}

/* Counts the rows that the carries need. This depends on all results and comes before any is made.
 */
static void tci_repeat_list_all(tci_repeat_finder *c, tci_node_list list)
{
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i];
        if (n->op == TCI_OP_REPEAT) {
            tci_repeat_list(c, n);
        } else if (n->op == TCI_OP_RESULT) {
            tci_plan_repeat *x = &c->p->repeats[tci_repeat_number(c, n->in[0])];
            int rows = (int)n->attr[0] - x->r.n_carry - x->r.n_y;
            if (rows >= 0) {
                x->keeps[rows] = true;
            }
        }
    }
}

static void tci_repeat_take_operands(tci_repeat_finder *c, const tci_node *n)
{
    tci_plan_repeat *x = &c->p->repeats[tci_repeat_number(c, n)];
    for (int i = 0; i < tci_node_n_outside(n); i++) {
        tci_node *in = tci_table_get(&c->now, n->in[i]);
        int k = i - x->r.n_carry;
        if (k >= 0 && k < x->r.n_x) {
            in = tci_repeat_rows_of(c, tci_repeat_unsliced(in, &x->skipped[k]),
                                    tci_repeat_row(c, x->r.x[k]));
        }
        x->outside[i] = tci_repeat_in_memory(c, in);
    }
}

/* A BOUND node that is none of the inputs was taken out of its body. */
static void tci_repeat_check(tci_scratch *s, tci_node_list list, tci_node *const *inputs,
                             int n_inputs)
{
    for (int i = 0; i < list.n; i++) {
        bool known = list.items[i]->op != TCI_OP_BOUND;
        for (int k = 0; k < n_inputs && !known; k++) {
            known = inputs[k] == list.items[i];
        }
        if (!known) {
            tci_scratch_fail(s, TC_ERR_ARGUMENT,
                             "a tensor that was made in the body of a repetition is used outside "
                             "of it: a body only builds; what it makes leaves it as the next carry "
                             "or an output, to be read after the loop");
        }
    }
}

/* A result may be an output of the program once: another one is a copy. */
static tci_node *tci_repeat_root(const tci_repeat_finder *c, tci_node *n, tci_node *const *before,
                                 int n_before)
{
    for (int i = 0; i < n_before; i++) {
        if (before[i] == n && n->op == TCI_OP_RESULT) {
            return tci_graph_node(c->g, TCI_OP_RESHAPE, (tc_dtype)n->dtype, n->rank, n->shape, 1,
                                  &n, 0, NULL);
        }
    }
    return n;
}

TCI_FN void tci_repeat_find(tci_scratch *s, tci_plan *p, tci_graph *g, tci_node **roots, int n,
                            tci_node *const *inputs, int n_inputs, tci_table *forced,
                            tci_machine machine)
{
    tci_repeat_finder c = {s,
                           p,
                           g,
                           machine,
                           forced,
                           tci_table_in(s, sizeof(tci_node *)),
                           tci_table_in(s, sizeof(int))};
    tci_node_list list = tci_graph_sort_outside(s, roots, n);
    tci_repeat_check(s, list, inputs, n_inputs);
    tci_repeat_list_all(&c, list);
    for (int i = 0; i < list.n && p->n_repeats; i++) {
        tci_node *old = list.items[i], *now = old;
        if (old->op == TCI_OP_REPEAT) {
            tci_repeat_take_operands(&c, old);
        } else if (old->op == TCI_OP_RESULT) {
            now = tci_repeat_result(&c, old);
        } else {
            now = tci_graph_rebuild(s, g, old, &c.now);
        }
        now->site = now->site.file ? now->site : old->site;
        tci_table_put(&c.now, old, now);
    }
    for (int i = 0; i < n && p->n_repeats; i++) {
        roots[i] = tci_repeat_root(&c, tci_table_get(&c.now, roots[i]), roots, i);
    }
}

/* ---- the step that stands for a body ---- */

/* The body and what it begins with. */
static void tci_repeat_plan(const tci_repeat_maker *m, tci_plan_repeat *x)
{
    const tci_repeat *r = &x->r;
    int n_bound = r->n_carry + r->n_x + r->n_held, n = 0;
    tci_node **given = TCI_NEW_ARRAY(m->s, tci_node *, r->n_carry + r->n_y + 1);
    for (int i = 0; i < r->n_carry + r->n_y; i++) {
        if (i < r->n_carry || x->stored[i]) {
            given[n++] = r->next[i];
        }
    }
    x->enter = tci_plan_make(m->s, m->g, r->carry, r->n_carry, m->literals, m->n_literals, r->carry,
                             r->n_carry, m->machine);
    x->body = tci_plan_make(m->s, m->g, r->carry, n_bound, m->literals, m->n_literals, given, n,
                            m->machine);
}

static void tci_repeat_operand(const tci_repeat_maker *m, tci_plan *p, tci_kernel *k,
                               tci_step *step, int buffer, bool writes)
{
    tci_koperand o = {p->buffers[buffer].dtype, writes, false, p->buffers[buffer].n, 0};
    step->operands[k->n_operands] = buffer;
    TCI_PUSH(m->s, k->operands, k->n_operands, k->cap_operands, o);
}

/* The buffer of what group g stores as `which`. plan/decompose.c may have made the node anew. */
static int tci_repeat_stored(tci_scratch *s, const tci_fusion *f, const tci_group *g, int which)
{
    int buffer = -1;
    for (int i = 0; i < g->n_roots; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        buffer = r->node->attr[0] == which ? r->buffer : buffer;
    }
    TCI_ASSERT(s, buffer >= 0);
    return buffer;
}

/* The rows of a carry that is not stored. */
static int tci_repeat_own(const tci_repeat_maker *m, tci_plan *p, const tci_plan_repeat *x, int i)
{
    tci_dim bytes = tci_dim_mul(tci_repeat_n_rows(x, i), x->pitch[i]);
    tci_buffer b = {.kind = TCI_BUF_TEMP,
                    .dtype = x->r.carry[i]->dtype,
                    .index = -1,
                    .n = tci_dim_div(bytes, tci_repeat_bytes(x->r.carry[i])),
                    .bytes = bytes};
    tci_dim_need(m->s, bytes, "the memory of a carry");
    TCI_PUSH(m->s, p->buffers, p->n_buffers, p->cap_buffers, b);
    return p->n_buffers - 1;
}

/* Operands: those outside; the carries; the outputs that are stored. */
TCI_FN tci_step tci_repeat_step(const tci_repeat_maker *m, tci_plan *p, const tci_fusion *f,
                                const tci_group *g, tci_kernel *k)
{
    const tci_node *first = f->roots[g->roots[0]].node;
    tci_plan_repeat *x = &p->repeats[first->attr[1]];
    int n_outside = first->n_in, n_stored = x->r.n_carry + x->r.n_y;
    tci_step step = {.operands = TCI_NEW_ARRAY(m->s, int32_t, n_outside + n_stored + 1),
                     .offsets = TCI_NEW_ARRAY(m->s, tci_dim, n_outside + n_stored + 1)};
    for (int i = 0; i < g->n_roots; i++) { /* as they are after algorithms were chosen */
        tci_node *now = f->roots[g->roots[i]].node;
        x->stored[now->attr[0]] = now;
    }
    if (!x->body) {
        tci_repeat_plan(m, x);
    }
    k->is_repeat = true;
    x->kernel = k;
    for (int i = 0; i < n_outside; i++) {
        tci_repeat_operand(m, p, k, &step, tci_root_buffer_of(f, first->in[i]), false);
    }
    for (int i = 0; i < n_stored; i++) {
        if (x->stored[i] || i < x->r.n_carry) {
            int buffer = x->stored[i] ? tci_repeat_stored(m->s, f, g, i)
                                      : tci_repeat_own(m, p, x, i);
            tci_repeat_operand(m, p, k, &step, buffer, true);
        }
    }
    return step;
}

/* ---- bodies in place ---- */

typedef struct tci_repeat_placer {
    tci_scratch *s;
    const tci_plan *from;
    tci_plan to;              /* steps, kernels, spans, moves; and temporaries, from n_buffers */
    const tci_plan_repeat *x; /* at hand; the memory of its operands: */
    tci_repeat_spot *init;    /* the carries as they are outside, */
    tci_repeat_spot *inputs, *outputs; /* the ports of its body */
} tci_repeat_placer;

static const tci_plan_repeat *tci_repeat_of_kernel(const tci_plan *p, const tci_kernel *k)
{
    const tci_plan_repeat *x = p->repeats;
    while (x->kernel != k) {
        x++;
    }
    return x;
}

/* Row by row, the other way round where the loop is reversed. */
static tci_repeat_spot tci_repeat_walk(const tci_repeat *r, int32_t buffer, tci_dim pitch)
{
    tci_dim last = tci_dim_max(tci_dim_sub(r->length, 1), 0); /* there may be no step */
    tci_repeat_spot spot = {buffer, r->reverse ? tci_dim_mul(last, pitch) : 0,
                            r->reverse ? tci_dim_neg(pitch) : pitch, false};
    return spot;
}

/* The rows of a carry that all stay: what a step reads, or what it writes. */
static tci_repeat_spot tci_repeat_walk_carry(const tci_repeat *r, int32_t buffer, tci_dim pitch,
                                             bool writes)
{
    tci_repeat_spot spot = tci_repeat_walk(r, buffer, pitch);
    if (writes != r->reverse) { /* one row further than the elements */
        spot.offset = r->reverse ? tci_dim_mul(r->length, pitch) : pitch;
    }
    return spot;
}

static void tci_repeat_find_spots(tci_repeat_placer *c, const tci_step *step)
{
    const tci_plan_repeat *x = c->x;
    const tci_repeat *r = &x->r;
    int n_outside = r->n_carry + r->n_x + r->n_held, at = n_outside + r->n_carry, n = r->n_carry;
    c->init = TCI_NEW_ARRAY(c->s, tci_repeat_spot, r->n_carry + 1);
    c->inputs = TCI_NEW_ARRAY(c->s, tci_repeat_spot, n_outside + 1);
    c->outputs = TCI_NEW_ARRAY(c->s, tci_repeat_spot, r->n_carry + r->n_y + 1);
    for (int i = 0; i < r->n_carry; i++) {
        int32_t buffer = step->operands[n_outside + i];
        tci_dim pitch = x->pitch[i];
        c->init[i] = (tci_repeat_spot){step->operands[i], 0, 0, false};
        c->inputs[i] = (tci_repeat_spot){buffer, 0, pitch, true};
        c->outputs[i] = (tci_repeat_spot){buffer, pitch, tci_dim_neg(pitch), true};
        if (x->keeps[i]) {
            c->inputs[i] = tci_repeat_walk_carry(r, buffer, pitch, false);
            c->outputs[i] = tci_repeat_walk_carry(r, buffer, pitch, true);
        }
    }
    for (int i = 0; i < r->n_x; i++) {
        int k = r->n_carry + i;
        c->inputs[k] = tci_repeat_walk(r, step->operands[k], x->pitch[k]);
        tci_dim skipped = tci_dim_mul(x->skipped[i], x->pitch[k]);
        c->inputs[k].offset = tci_dim_add(c->inputs[k].offset, skipped);
    }
    for (int i = r->n_carry + r->n_x; i < n_outside; i++) {
        c->inputs[i] = (tci_repeat_spot){step->operands[i], 0, 0, false};
    }
    for (int i = 0; i < r->n_y; i++) {
        if (x->stored[r->n_carry + i]) {
            tci_dim pitch = x->pitch[r->n_carry + r->n_x + i];
            c->outputs[n++] = tci_repeat_walk(r, step->operands[at++], pitch);
        }
    }
}

/* Of buffer b of the body, or of what it begins with, whose temporaries are ours at `temps`. */
static tci_repeat_spot tci_repeat_spot_of(const tci_repeat_placer *c, const tci_plan *body, int b,
                                          const int32_t *temps, bool enters)
{
    const tci_buffer *buffer = &body->buffers[b];
    tci_repeat_spot temp = {temps[b], 0, 0, false};
    if (enters) { /* a carry goes to where the body reads it first */
        return buffer->kind == TCI_BUF_INPUT    ? c->init[buffer->index]
               : buffer->kind == TCI_BUF_OUTPUT ? c->inputs[buffer->index]
                                                : temp;
    }
    return buffer->kind == TCI_BUF_INPUT    ? c->inputs[buffer->index]
           : buffer->kind == TCI_BUF_OUTPUT ? c->outputs[buffer->index]
                                            : temp;
}

/* The temporaries of a plan whose steps come next become ours; where each is, by its number. */
static int32_t *tci_repeat_add_temps(tci_repeat_placer *c, const tci_plan *body)
{
    int32_t *temps = TCI_NEW_ARRAY(c->s, int32_t, body->n_buffers + 1);
    for (int b = 0; b < body->n_buffers; b++) {
        tci_buffer buffer = body->buffers[b];
        if (buffer.kind == TCI_BUF_TEMP) {
            temps[b] = c->to.n_buffers;
            buffer.first += c->to.n_steps;
            buffer.last += buffer.last < 0 ? 0 : c->to.n_steps;
            TCI_PUSH(c->s, c->to.buffers, c->to.n_buffers, c->to.cap_buffers, buffer);
        }
    }
    return temps;
}

/* Carries that settle, whose first rows the last steps that were added write. */
static void tci_repeat_add_turns(tci_repeat_placer *c, tci_span *span)
{
    const tci_plan *enter = c->x->enter;
    span->first_turn = c->to.n_turns;
    span->stops = c->x->r.stops;
    for (int i = 0; i < c->x->r.n_carry; i++) {
        if (c->x->keeps[i] || !tci_repeat_settles(&c->x->r)) {
            continue;
        }
        tci_turn turn = {-1, 0, c->x->pitch[i]};
        for (int t = 0; t < enter->n_steps; t++) {
            const tci_step *step = &enter->steps[t];
            for (int o = 0; o < enter->kernels[step->kernel]->n_operands; o++) {
                const tci_buffer *b = &enter->buffers[step->operands[o]];
                if (b->kind == TCI_BUF_OUTPUT && b->index == i) {
                    turn.step = span->enter + t;
                    turn.operand = o;
                }
            }
        }
        TCI_ASSERT(c->s, turn.step >= 0);
        TCI_PUSH(c->s, c->to.turns, c->to.n_turns, c->to.cap_turns, turn);
    }
    span->n_turns = c->to.n_turns - span->first_turn;
}

/* Operand o of step t of the body is in a row of a carry. */
static void tci_repeat_note_carried(tci_repeat_placer *c, tci_span *span, const tci_buffer *b,
                                    int t, int o)
{
    bool next = b->kind == TCI_BUF_OUTPUT;
    if ((next || b->kind == TCI_BUF_INPUT) && b->index < c->x->r.n_carry) {
        tci_carried carried = {t, o, b->index, next};
        TCI_PUSH(c->s, span->carried, span->n_carried, span->cap_carried, carried);
    }
}

static void tci_repeat_add_carries(tci_repeat_placer *c, tci_span *span)
{
    const tci_repeat *r = &c->x->r;
    span->n_carries = r->n_carry;
    span->carries = TCI_NEW_ARRAY(c->s, tci_span_carry, r->n_carry + 1);
    for (int i = 0; i < r->n_carry; i++) {
        const tci_repeat_spot *from = &c->inputs[i], *to = &c->outputs[i];
        tci_dim bytes = tci_dim_mul(tci_node_count(r->carry[i]), tci_repeat_bytes(r->carry[i]));
        span->carries[i] = (tci_span_carry){from->buffer, from->offset,
                                            to->offset,   from->by,
                                            from->back,   from->back && tci_repeat_settles(r),
                                            bytes};
    }
}

/* The steps and kernels of a plan become ours; span NULL: of that which is done once, before all
 * rounds. */
static void tci_repeat_add_steps(tci_repeat_placer *c, const tci_plan *body, tci_span *span)
{
    const bool enters = !span;
    int32_t first = c->to.n_kernels, *temps = tci_repeat_add_temps(c, body);
    for (int i = 0; i < body->n_kernels; i++) {
        TCI_PUSH(c->s, c->to.kernels, c->to.n_kernels, c->to.cap_kernels, body->kernels[i]);
    }
    for (int t = 0; t < body->n_steps; t++) {
        const tci_step *from = &body->steps[t];
        int n = body->kernels[from->kernel]->n_operands;
        tci_step step = {first + from->kernel,
                         TCI_NEW_ARRAY(c->s, int32_t, n + 1),
                         TCI_NEW_ARRAY(c->s, tci_dim, n + 1),
                         from->literals,
                         -1,
                         NULL,
                         from->origins,
                         from->n_origins};
        for (int o = 0; o < n; o++) {
            tci_repeat_spot spot = tci_repeat_spot_of(c, body, from->operands[o], temps, enters);
            tci_move move = {c->to.n_steps, o, spot.by, spot.back};
            step.operands[o] = spot.buffer;
            step.offsets[o] = tci_dim_add(spot.offset, from->offsets[o]);
            if (span && spot.by != 0) {
                TCI_PUSH(c->s, c->to.moves, c->to.n_moves, c->to.cap_moves, move);
            }
            if (span) {
                tci_repeat_note_carried(c, span, &body->buffers[from->operands[o]], c->to.n_steps,
                                        o);
            }
        }
        TCI_PUSH(c->s, c->to.steps, c->to.n_steps, c->to.cap_steps, step);
    }
}

static void tci_repeat_add_body(tci_repeat_placer *c, const tci_step *step)
{
    const tci_plan *body = c->x->body;
    tci_span span = {.enter = c->to.n_steps,
                     .rounds = c->x->r.length,
                     .n_within = body->n_spans,
                     .group = step->group};
    tci_repeat_find_spots(c, step);
    tci_repeat_add_steps(c, c->x->enter, NULL);
    tci_repeat_add_turns(c, &span);
    tci_repeat_add_carries(c, &span);
    span.first = c->to.n_steps;
    span.first_move = c->to.n_moves;
    tci_repeat_add_steps(c, body, &span);
    span.last = c->to.n_steps;
    span.n_moves = c->to.n_moves - span.first_move;
    TCI_PUSH(c->s, c->to.spans, c->to.n_spans, c->to.cap_spans, span);
    for (int i = 0; i < body->n_spans; i++) {
        tci_span within = body->spans[i];
        within.group = -1;
        within.enter += span.first;
        within.first += span.first;
        within.last += span.first;
        within.first_move += span.first_move + span.n_moves;
        within.first_turn += span.first_turn + span.n_turns;
        TCI_PUSH(c->s, c->to.spans, c->to.n_spans, c->to.cap_spans, within);
    }
    for (int i = 0; i < body->n_turns; i++) {
        tci_turn turn = body->turns[i];
        turn.step += span.first;
        TCI_PUSH(c->s, c->to.turns, c->to.n_turns, c->to.cap_turns, turn);
    }
    for (int i = 0; i < body->n_moves; i++) {
        tci_move move = body->moves[i];
        move.step += span.first;
        TCI_PUSH(c->s, c->to.moves, c->to.n_moves, c->to.cap_moves, move);
    }
}

static void tci_repeat_add(tci_repeat_placer *c, int t)
{
    tci_step step = c->from->steps[t];
    const tci_kernel *k = c->from->kernels[step.kernel];
    if (k->is_repeat) {
        c->x = tci_repeat_of_kernel(c->from, k);
        tci_repeat_add_body(c, &step);
        return;
    }
    int at = 0;
    while (at < c->to.n_kernels && c->to.kernels[at] != k) {
        at++;
    }
    if (at == c->to.n_kernels) {
        TCI_PUSH(c->s, c->to.kernels, c->to.n_kernels, c->to.cap_kernels,
                 c->from->kernels[step.kernel]);
    }
    step.kernel = at;
    TCI_PUSH(c->s, c->to.steps, c->to.n_steps, c->to.cap_steps, step);
}

static void tci_repeat_add_texts(tci_scratch *s, tci_plan *p)
{
    for (int i = 0; i < p->n_repeats; i++) {
        const tci_plan *body = p->repeats[i].body;
        tci_str_add(&p->again, tci_str_text(&body->again));
        tci_str_add(&p->why, tci_str_text(&body->why));
        tci_str_add(&p->orders, tci_str_text(&body->orders));
        tci_str_add(&p->routes, tci_str_text(&body->routes));
        for (int c = 0; c < body->contests.n; c++) {
            TCI_PUSH(s, p->contests.items, p->contests.n, p->contests.cap, body->contests.items[c]);
        }
    }
}

TCI_FN void tci_repeat_place(tci_scratch *s, tci_plan *p)
{
    tci_repeat_placer c = {
        .s = s,
        .from = p,
        .to = {.buffers = p->buffers, .n_buffers = p->n_buffers, .cap_buffers = p->cap_buffers}};
    int32_t *begins = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    if (!p->n_repeats) {
        return;
    }
    for (int t = 0; t < p->n_steps; t++) {
        begins[t] = c.to.n_steps;
        tci_repeat_add(&c, t);
    }
    begins[p->n_steps] = c.to.n_steps;
    for (int b = 0; b < p->n_buffers; b++) {
        c.to.buffers[b].first = begins[c.to.buffers[b].first];
        c.to.buffers[b].last = begins[c.to.buffers[b].last + 1] - 1;
    }
    p->buffers = c.to.buffers;
    p->n_buffers = c.to.n_buffers;
    p->cap_buffers = c.to.cap_buffers;
    p->steps = c.to.steps;
    p->n_steps = c.to.n_steps;
    p->cap_steps = c.to.cap_steps;
    p->kernels = c.to.kernels;
    p->n_kernels = c.to.n_kernels;
    p->cap_kernels = c.to.cap_kernels;
    p->spans = c.to.spans;
    p->n_spans = c.to.n_spans;
    p->moves = c.to.moves;
    p->n_moves = c.to.n_moves;
    p->turns = c.to.turns;
    p->n_turns = c.to.n_turns;
    tci_repeat_add_texts(s, p);
}
