/* compile/verify.c - verifies the invariants of compile/compiled_code.h on finished code; a
 * violation aborts the compile with TC_ERR_INTERNAL. Sizes of a family are unknown and not checked.
 */
#include "compiled_code.h"

#include <string.h>

static void tci_code_verify_port(tci_scratch *s, const tci_code_port *p)
{
    tci_dim n = 1;
    bool known = true;
    TCI_ASSERT(s, tci_dtype_is_valid(p->dtype) && p->rank >= 0);
    for (int a = 0; a < p->rank; a++) {
        known = known && tci_dim_is_known(p->shape[a]);
        n = tci_dim_mul(n, p->shape[a]);
    }
    TCI_ASSERT(s, !known || (p->n == n && tci_dim_le(0, n) && tci_dim_le(0, p->bytes)));
}

static void tci_code_verify_kernel(tci_scratch *s, const tci_code *c, const tci_code_kernel *k)
{
    bool native = k->fn || k->function; /* a check compares it with the interpreter */
    int ways = (k->fn != NULL) + (k->interp != NULL && !(native && k->check)) +
               (k->function != NULL) + (k->kernel != NULL && !native) + (k->call != NULL);
    int expected = c->exports ? k->call != NULL : 1;
    TCI_ASSERT(s, ways == expected && k->n_operands >= 0 && k->n_literals >= 0 && k->n_dims >= 0);
    TCI_ASSERT(s, !k->function || c->device);
    TCI_ASSERT(s, !native || c->family || (k->module >= 0 && k->module < c->n_modules));
    TCI_ASSERT(s, !tci_dim_is_known(k->n_tasks) || tci_dim_le(0, k->n_tasks));
    TCI_ASSERT(s, k->is_loop ? k->go < k->n_operands && !k->call : k->go < 0 && k->rounds == 0);
    TCI_ASSERT(s, !tci_dim_is_known(k->work_bytes) || tci_dim_le(0, k->work_bytes));
}

static void tci_code_verify_buffer(tci_scratch *s, const tci_code *c, const tci_code_buffer *b)
{
    int ports = b->kind == TCI_BUF_INPUT ? c->n_inputs : c->n_outputs;
    bool is_port = b->kind == TCI_BUF_INPUT || b->kind == TCI_BUF_OUTPUT;
    TCI_ASSERT(s, b->kind <= TCI_BUF_KEPT);
    TCI_ASSERT(s, !is_port || (b->index >= 0 && b->index < ports));
    TCI_ASSERT(s, b->kind != TCI_BUF_KEPT || (b->offset >= 0 && b->offset % 64 == 0));
    TCI_ASSERT(s, b->kind != TCI_BUF_KEPT || b->offset + tci_dim_known(b->bytes) <= c->kept_bytes);
    if (b->kind == TCI_BUF_TEMP && c->n_symbols == 0 && b->last >= 0) {
        TCI_ASSERT(s, b->offset >= 0 && b->offset % 64 == 0);
        TCI_ASSERT(s, tci_dim_le(tci_dim_add(b->offset, b->bytes), c->arena_bytes));
    }
}

static bool tci_code_is_repeated(const tci_code *c, int t)
{
    bool repeated = false;
    for (int i = 0; i < c->n_repeats; i++) {
        repeated = repeated || (c->repeats[i].enter <= t && t < c->repeats[i].last);
    }
    return repeated;
}

/* Nested, of the launches of a run, moving operands that are there. */
static void tci_code_verify_repeat(tci_scratch *s, const tci_code *c, int i)
{
    const tci_code_repeat *r = &c->repeats[i];
    TCI_ASSERT(s, r->enter >= c->n_init && r->first >= r->enter && r->last >= r->first);
    TCI_ASSERT(s, r->last <= c->n_steps && tci_dim_le(0, r->rounds) && r->n_within >= 0);
    TCI_ASSERT(s, r->n_within < c->n_repeats - i);
    for (int k = i + 1; k < c->n_repeats; k++) {
        const tci_code_repeat *other = &c->repeats[k];
        TCI_ASSERT(s, k <= i + r->n_within ? r->first <= other->enter && other->last <= r->last
                                           : r->last <= other->enter);
    }
    TCI_ASSERT(s, r->stops < TCI_MAX(r->n_turns, 1));
    for (int k = 0; k < r->n_turns; k++) {
        const tci_turn *turn = &r->turns[k];
        TCI_ASSERT(s, r->enter <= turn->step && turn->step < r->first && turn->operand >= 0);
        TCI_ASSERT(s, turn->operand < c->kernels[c->steps[turn->step].kernel].n_operands);
    }
    for (int m = 0; m < r->n_moves; m++) {
        const tci_move *move = &r->moves[m];
        TCI_ASSERT(s, r->first <= move->step && move->step < r->last && move->operand >= 0);
        TCI_ASSERT(s, move->operand < c->kernels[c->steps[move->step].kernel].n_operands);
    }
}

/* Buffers, within their lives, and literals. */
static void tci_code_verify_step(tci_scratch *s, const tci_code *c, int t)
{
    const tci_code_step *step = &c->steps[t];
    TCI_ASSERT(s, step->kernel >= 0 && step->kernel < c->n_kernels);
    const tci_code_kernel *k = &c->kernels[step->kernel];
    for (int o = 0; o < k->n_operands; o++) {
        TCI_ASSERT(s, step->operands[o] >= 0 && step->operands[o] < c->n_buffers);
        const tci_code_buffer *b = &c->buffers[step->operands[o]];
        TCI_ASSERT(s, b->kind != TCI_BUF_TEMP || (b->first <= t && t <= b->last));
        bool part = tci_code_is_repeated(c, t);
        TCI_ASSERT(s, tci_dim_le(0, step->offsets[o]));
        TCI_ASSERT(s, !k->writes[o] || part || step->offsets[o] == 0);
    }
    for (int l = 0; l < k->n_literals; l++) {
        TCI_ASSERT(s, step->literals[l] >= 0 && step->literals[l] < c->n_literals);
    }
}

static void tci_code_verify_alias(tci_scratch *s, const tci_code *c, const tci_alias *a)
{
    TCI_ASSERT(s, a->output >= 0 && a->output < c->n_outputs);
    TCI_ASSERT(s, a->input >= 0 && a->input < c->n_inputs);
    TCI_ASSERT(s, c->inputs[a->input].bytes == c->outputs[a->output].bytes);
    TCI_ASSERT(s, c->inputs[a->input].dtype == c->outputs[a->output].dtype);
}

/* ---- the list ---- */

/* Progress of each queue, its knowledge of the progress of the others, and the writer of each
 * buffer. */
typedef struct tci_list_walk {
    tci_scratch *s;
    const tci_code *c;
    int32_t at[TCI_QUEUES];
    int32_t knows[TCI_QUEUES][TCI_QUEUES];
    int32_t signalled[TCI_LIST_EVENTS][TCI_QUEUES]; /* -1: not yet */
    int32_t *wrote, *wrote_on; /* per buffer: place in its queue, and the queue; 0: nowhere */
    int32_t launched;
    bool faults, unchecked; /* something may have faulted; anything was launched, since then */
} tci_list_walk;

static void tci_list_learn(int32_t *mine, const int32_t *others)
{
    for (int q = 0; q < TCI_QUEUES; q++) {
        mine[q] = TCI_MAX(mine[q], others[q]);
    }
}

static void tci_list_write(tci_list_walk *w, int queue, int32_t buffer)
{
    w->wrote[buffer] = w->at[queue];
    w->wrote_on[buffer] = queue;
}

static void tci_list_read(tci_list_walk *w, int queue, int32_t buffer)
{
    int32_t at = w->wrote[buffer];
    TCI_ASSERT(w->s, at == 0 || w->knows[queue][w->wrote_on[buffer]] >= at);
}

static void tci_list_verify_launch(tci_list_walk *w, const tci_list_step *row, bool is_init)
{
    const tci_code *c = w->c;
    TCI_ASSERT(w->s, row->begin == w->launched && row->end > row->begin);
    TCI_ASSERT(w->s, is_init ? row->end <= c->n_init : row->begin >= c->n_init);
    w->launched = row->end;
    for (int32_t t = row->begin; t < row->end; t++) {
        const tci_code_step *step = &c->steps[t];
        const tci_code_kernel *k = &c->kernels[step->kernel];
        w->faults |= k->faults;
        w->unchecked = true;
        TCI_ASSERT(w->s, !is_init || !k->faults);
        for (int o = 0; o < k->n_operands; o++) {
            const tci_code_buffer *b = &c->buffers[step->operands[o]];
            bool given = b->kind == TCI_BUF_OUTPUT ||
                         (b->kind == TCI_BUF_INPUT && b->index < c->n_user_inputs);
            bool keeps = b->kind == TCI_BUF_KEPT && k->writes[o];
            TCI_ASSERT(w->s, b->kind != TCI_BUF_INPUT || !k->writes[o]);
            TCI_ASSERT(w->s, is_init ? !given : !keeps);
            bool there = b->kind == TCI_BUF_KEPT ? !is_init || w->wrote[step->operands[o]]
                         : b->kind == TCI_BUF_INPUT && !(c->device && c->device->alloc)
                             ? true
                             : w->wrote[step->operands[o]] != 0;
            TCI_ASSERT(w->s, k->writes[o] || there);
            tci_list_read(w, row->queue, step->operands[o]); /* also before it is written over */
            if (k->writes[o]) {
                tci_list_write(w, row->queue, step->operands[o]);
            }
        }
    }
}

/* Uploads write, downloads and what sets parameters read. */
static void tci_list_verify_ports(tci_list_walk *w, const tci_list_step *row, int kind,
                                  int32_t first, bool writes)
{
    const tci_code *c = w->c;
    TCI_ASSERT(w->s, c->device && c->device->alloc && row->begin < row->end);
    for (int32_t b = 0; b < c->n_buffers; b++) {
        int32_t i = c->buffers[b].index - first;
        if (c->buffers[b].kind != kind || i < row->begin || i >= row->end) {
            continue;
        }
        TCI_ASSERT(w->s, !writes || w->wrote[b] == 0);
        if (writes) {
            tci_list_write(w, row->queue, b);
        } else {
            tci_list_read(w, row->queue, b);
        }
    }
}

static void tci_list_verify_row(tci_list_walk *w, const tci_list_step *row, bool is_init)
{
    const tci_code *c = w->c;
    TCI_ASSERT(w->s, row->queue < TCI_QUEUES && row->begin >= 0);
    TCI_ASSERT(w->s, !is_init || row->kind == TCI_LIST_LAUNCH || row->kind == TCI_LIST_UPLOAD);
    w->knows[row->queue][row->queue] = ++w->at[row->queue];
    switch ((tci_list_kind)row->kind) {
    case TCI_LIST_LAUNCH:
        TCI_ASSERT(w->s, row->end <= c->n_steps);
        tci_list_verify_launch(w, row, is_init);
        break;
    case TCI_LIST_CHECK: /* the host gives what follows to its queues later */
        w->faults = w->unchecked = false;
        for (int q = 0; q < TCI_QUEUES; q++) {
            tci_list_learn(w->knows[q], w->knows[row->queue]);
        }
        break;
    case TCI_LIST_UPLOAD:
        TCI_ASSERT(w->s, row->end <= c->n_inputs && (!is_init || row->begin >= c->n_user_inputs));
        tci_list_verify_ports(w, row, TCI_BUF_INPUT, 0, true);
        break;
    case TCI_LIST_DOWNLOAD:
        TCI_ASSERT(w->s, row->end <= c->n_user_outputs && !w->faults);
        tci_list_verify_ports(w, row, TCI_BUF_OUTPUT, 0, false);
        break;
    case TCI_LIST_SET:
        TCI_ASSERT(w->s, row->end <= c->n_outputs - c->n_user_outputs && !w->unchecked);
        tci_list_verify_ports(w, row, TCI_BUF_OUTPUT, c->n_user_outputs, false);
        break;
    case TCI_LIST_SIGNAL:
        TCI_ASSERT(w->s, row->end == row->begin + 1 && row->begin < TCI_LIST_EVENTS);
        memcpy(w->signalled[row->begin], w->knows[row->queue], sizeof(w->signalled[0]));
        break;
    case TCI_LIST_WAIT:
        TCI_ASSERT(w->s, row->end == row->begin + 1 && row->begin < TCI_LIST_EVENTS);
        TCI_ASSERT(w->s, w->signalled[row->begin][0] >= 0);
        tci_list_learn(w->knows[row->queue], w->signalled[row->begin]);
        break;
    case TCI_LIST_COUNT: TCI_ASSERT(w->s, false); break;
    }
}

/* Number of items that the rows of a kind count in the list of each run. */
static int32_t tci_list_items(const tci_code *c, tci_list_kind kind)
{
    int32_t n = 0;
    for (int32_t i = c->n_init_section; i < c->n_list; i++) {
        n += c->list[i].kind == kind ? c->list[i].end - c->list[i].begin : 0;
    }
    return n;
}

static void tci_list_verify(tci_scratch *s, const tci_code *c)
{
    bool moves = c->device && c->device->alloc;
    tci_list_walk w = {.s = s, .c = c};
    w.wrote = TCI_NEW_ARRAY(s, int32_t, c->n_buffers + 1);
    w.wrote_on = TCI_NEW_ARRAY(s, int32_t, c->n_buffers + 1);
    memset(w.signalled, 0xff, sizeof(w.signalled));
    TCI_ASSERT(s, c->n_init_section >= 0 && c->n_init_section <= c->n_list);
    for (int32_t i = 0; i < c->n_list; i++) {
        if (i == c->n_init_section) { /* a run waits for the whole init section */
            memset(w.wrote, 0, sizeof(*w.wrote) * (size_t)c->n_buffers);
            w.unchecked = false;
            TCI_ASSERT(s, w.launched == c->n_init);
        }
        tci_list_verify_row(&w, &c->list[i], i < c->n_init_section);
    }
    TCI_ASSERT(s, w.launched == c->n_steps && !w.faults);
    TCI_ASSERT(s, tci_list_items(c, TCI_LIST_UPLOAD) == (moves ? c->n_inputs : 0));
    TCI_ASSERT(s, tci_list_items(c, TCI_LIST_DOWNLOAD) == (moves ? c->n_user_outputs : 0));
    int32_t n_effects = c->n_outputs - c->n_user_outputs;
    TCI_ASSERT(s, tci_list_items(c, TCI_LIST_SET) == (moves ? n_effects : 0));
}

TCI_FN void tci_code_verify(tci_scratch *s, const tci_code *c)
{
    TCI_ASSERT(s, c->n_symbols > 0 || c->arena_bytes >= 0);
    for (int i = 0; i < c->n_inputs; i++) {
        tci_code_verify_port(s, &c->inputs[i]);
    }
    for (int i = 0; i < c->n_outputs; i++) {
        tci_code_verify_port(s, &c->outputs[i]);
    }
    for (int i = 0; i < c->n_kernels; i++) {
        tci_code_verify_kernel(s, c, &c->kernels[i]);
    }
    for (int i = 0; i < c->n_buffers; i++) {
        tci_code_verify_buffer(s, c, &c->buffers[i]);
    }
    for (int t = 0; t < c->n_steps; t++) {
        tci_code_verify_step(s, c, t);
    }
    for (int i = 0; i < c->n_repeats; i++) {
        tci_code_verify_repeat(s, c, i);
    }
    for (int i = 0; i < c->n_aliases; i++) {
        tci_code_verify_alias(s, c, &c->aliases[i]);
    }
    tci_list_verify(s, c);
}
