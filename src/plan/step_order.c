/* plan/step_order.c - orders the steps of a run by memory-aware list scheduling, to minimize the
 * peak of live bytes.
 *
 * In: steps, each of which reads what earlier ones wrote. Out: the same steps in an order that has
 * fewer live bytes of temporaries, and that writes the new value of a parameter after the last
 * read of the old one, so that both can share memory. The init section stays as it is.
 *
 * Design: a step is ready when everything that it reads is written. Among ready steps the priority
 * is the bytes that a step makes live minus those that die after it (`growth`). Weight
 * gradients and updates that run early free the activations kept for them. No rule is best for all
 * programs: each is tried, and the first with the lowest peak is taken.
 *
 * Collectives: their starts keep the order of the program as far as kernels allow, which is the
 * same on all ranks. A program with collectives uses one rule, a list schedule by deadlines: of
 * the ready steps, one that the earliest start waits for; a start as soon as it is ready; a step
 * that waits for a collective when nothing else is left. So the weight gradient of a layer
 * precedes the data gradients that its bucket does not need, and buckets are sent while those are
 * computed. Updates come last. */
#include "fusion_groups.h"

typedef enum tci_step_order_rule {
    TCI_STEP_ORDER_FIRST,    /* what came first */
    TCI_STEP_ORDER_RELEASE,  /* what adds nothing, the most negative growth before others; FIRST */
    TCI_STEP_ORDER_LEAST,    /* the least growth */
    TCI_STEP_ORDER_AHEAD,    /* RELEASE, with what up to two steps that follow let go */
    TCI_STEP_ORDER_DEADLINES /* what the earliest start of a collective waits for; RELEASE */
} tci_step_order_rule;

enum {
    TCI_STEP_ORDER_MANY = 4096, /* steps from which the first rule has to do */
    TCI_STEP_ORDER_DEPTH = 2    /* steps that AHEAD looks at after one */
};

typedef struct tci_step_order_step {
    int32_t *touches;
    int32_t n_touches; /* buffers, each once */
    int32_t *leads_to;
    int32_t n_leads, cap_leads; /* steps that wait for it, once per reason */
    int32_t n_before;           /* how many such reasons it has itself */
    int32_t waits;              /* ... of steps that are not done yet */
    int32_t met;                /* the last traversal that came here */
    int32_t deadline;           /* the first start that waits for it, or none */
    bool updates;               /* it writes the new value of a parameter */
} tci_step_order_step;

typedef struct tci_step_order_buffer {
    int64_t bytes; /* of a temporary; 0 of others */
    int32_t n_touched, left;
    bool is_alive;
    int32_t *writers;
    int32_t n_writers, cap_writers;
    int32_t *readers;
    int32_t n_readers, cap_readers;
} tci_step_order_buffer;

typedef struct tci_step_order {
    tci_scratch *s;
    const tci_plan *p;
    int first, n; /* of the steps: those from `first` to before n */
    tci_step_order_step *steps;
    tci_step_order_buffer *buffers;
    int32_t *ready;
    int n_ready; /* steps that may be done */
    int32_t *stack;
    int32_t walk;
    bool *was_alive;
    int most_touches; /* of tci_step_order_ahead: one entry per depth */
    int n_starts;     /* of collectives */
} tci_step_order;

/* ---- what waits for what ---- */

static const tci_kernel *tci_step_order_kernel(const tci_step_order *q, int step)
{
    return q->p->kernels[q->p->steps[step].kernel];
}

static void tci_step_order_after(tci_step_order *q, int before, int after)
{
    tci_step_order_step *b = &q->steps[before];
    TCI_PUSH(q->s, b->leads_to, b->n_leads, b->cap_leads, after);
    q->steps[after].n_before++;
}

static void tci_step_order_touch(tci_step_order *q, int step, int buffer)
{
    tci_step_order_step *t = &q->steps[step];
    for (int i = 0; i < t->n_touches; i++) {
        if (t->touches[i] == buffer) {
            return;
        }
    }
    t->touches[t->n_touches++] = buffer;
    q->buffers[buffer].n_touched++;
}

TCI_FN int32_t *tci_plan_steps_of_groups(tci_scratch *s, const tci_plan *p)
{
    int32_t *step_of = TCI_NEW_ARRAY(s, int32_t, p->fusion->n_groups + 1);
    for (int t = 0; t < p->n_steps; t++) {
        const tci_step *step = &p->steps[t], *of = step->members ? step->members : step;
        int n = step->members ? p->kernels[step->kernel]->n_members : 1;
        for (int i = 0; i < n && of[i].group >= 0; i++) { /* a step of a body is of no group */
            step_of[of[i].group] = t;
        }
    }
    for (int i = 0; i < p->n_spans; i += 1 + p->spans[i].n_within) {
        step_of[p->spans[i].group] = p->spans[i].enter;
    }
    return step_of;
}

/* The number of the collective that step t starts; -1: it starts none. */
static int32_t tci_step_order_start(const tci_step_order *q, int t)
{
    const tci_comm_step *c = tci_plan_comm(q->p, t);
    return c && c->phase == TCI_COMM_START ? c->number : -1;
}

/* A step waits for those that its BARRIERs name: of a collective its start does. */
static void tci_step_order_find_waits(tci_step_order *q)
{
    const tci_fusion *f = q->p->fusion;
    const int32_t *step_of = tci_plan_steps_of_groups(q->s, q->p);
    int32_t *begins = tci_scratch_copy(q->s, step_of, sizeof(*begins) * (size_t)(f->n_groups + 1));
    for (int t = q->first; t < q->n; t++) {
        if (tci_step_order_start(q, t) >= 0) {
            begins[q->p->steps[t].group] = t;
        }
    }
    for (int i = 0; i < f->n_roots; i++) {
        const tci_root *r = &f->roots[i];
        for (int k = r->n_reads; k < tci_root_n_before(r); k++) {
            int before = step_of[f->roots[tci_root_before(f, r, k)].group];
            int after = begins[r->group];
            if (before >= q->first && before != after) {
                tci_step_order_after(q, before, after);
            }
        }
    }
}

/* A step waits for all that wrote what it reads; one that writes what was read, for the readers. */
static void tci_step_order_find_order(tci_step_order *q)
{
    for (int t = q->first; t < q->n; t++) {
        const tci_kernel *k = tci_step_order_kernel(q, t);
        q->steps[t].touches = TCI_NEW_ARRAY(q->s, int32_t, k->n_operands + 1);
        for (int o = 0; o < k->n_operands; o++) {
            tci_step_order_buffer *b = &q->buffers[q->p->steps[t].operands[o]];
            bool writes = k->operands[o].is_output;
            const int32_t *others = writes ? b->readers : b->writers;
            for (int i = 0; i < (writes ? b->n_readers : b->n_writers); i++) {
                if (others[i] != t) {
                    tci_step_order_after(q, others[i], t);
                }
            }
            tci_step_order_touch(q, t, q->p->steps[t].operands[o]);
        }
        for (int o = 0; o < k->n_operands; o++) {
            tci_step_order_buffer *b = &q->buffers[q->p->steps[t].operands[o]];
            if (k->operands[o].is_output) {
                TCI_PUSH(q->s, b->writers, b->n_writers, b->cap_writers, t);
            } else {
                TCI_PUSH(q->s, b->readers, b->n_readers, b->cap_readers, t);
            }
        }
    }
}

/* True if a reader of that buffer depends on `step`. */
static bool tci_step_order_leads_to(tci_step_order *q, int step, const tci_step_order_buffer *read)
{
    int n = 0, walk = ++q->walk;
    for (int i = 0; i < read->n_readers; i++) {
        q->steps[read->readers[i]].met = -walk;
    }
    q->steps[step].met = walk;
    q->stack[n++] = step;
    while (n > 0) {
        const tci_step_order_step *t = &q->steps[q->stack[--n]];
        for (int i = 0; i < t->n_leads; i++) {
            tci_step_order_step *next = &q->steps[t->leads_to[i]];
            if (next->met == -walk) {
                return true;
            }
            if (next->met != walk) {
                next->met = walk;
                q->stack[n++] = t->leads_to[i];
            }
        }
    }
    return false;
}

/* The step that overwrites a parameter with its new value waits for those that read the old one,
 * unless one of these waits for it. */
static void tci_step_order_update_last(tci_step_order *q, const tci_alias *assign)
{
    int out = tci_plan_port(q->p, TCI_BUF_OUTPUT, assign->output);
    int in = tci_plan_port(q->p, TCI_BUF_INPUT, assign->input);
    const tci_step_order_buffer *read = &q->buffers[in], *written = &q->buffers[out];
    int writer = written->n_writers == 1 ? written->writers[0] : -1;
    if (writer < 0 || !tci_plan_step_in_place(q->s, q->p, writer, out, in) ||
        tci_step_order_leads_to(q, writer, read)) {
        return;
    }
    for (int i = 0; i < read->n_readers; i++) {
        if (read->readers[i] != writer) {
            tci_step_order_after(q, read->readers[i], writer);
        }
    }
}

/* Of the steps that may be done: one that starts nothing, else the start of the lowest number. */
static int tci_step_order_next_start(const tci_step_order *q)
{
    int best = 0;
    for (int i = 0; i < q->n_ready; i++) {
        if (tci_step_order_start(q, q->ready[i]) < tci_step_order_start(q, q->ready[best])) {
            best = i;
        }
    }
    return best;
}

/* The starts of collectives in the order of their numbers, as far as kernels allow: one that
 * computes an operand of an early start and waits for a later collective moves the early start. The
 * order follows from the steps alone, so it is the same on all ranks. */
static void tci_step_order_order_starts(tci_step_order *q)
{
    int *starts = TCI_NEW_ARRAY(q->s, int, q->n + 1);
    for (int t = q->first; t < q->n; t++) {
        q->steps[t].deadline = INT32_MAX;
        q->steps[t].waits = q->steps[t].n_before;
        q->n_starts += tci_step_order_start(q, t) >= 0;
        if (!q->steps[t].waits) {
            q->ready[q->n_ready++] = t;
        }
    }
    for (int n = 0; q->n_ready && n < q->n_starts;) {
        int at = tci_step_order_next_start(q), t = q->ready[at];
        q->ready[at] = q->ready[--q->n_ready];
        if (tci_step_order_start(q, t) >= 0) {
            starts[n++] = t;
        }
        for (int i = 0; i < q->steps[t].n_leads; i++) {
            if (--q->steps[q->steps[t].leads_to[i]].waits == 0) {
                q->ready[q->n_ready++] = q->steps[t].leads_to[i];
            }
        }
    }
    q->n_ready = 0;
    for (int i = 1; i < q->n_starts; i++) {
        tci_step_order_after(q, starts[i - 1], starts[i]);
    }
}

static tci_step_order tci_step_order_make(tci_scratch *s, const tci_plan *p)
{
    tci_step_order q = {.s = s, .p = p, .first = p->n_init, .n = p->n_steps};
    q.steps = TCI_NEW_ARRAY(s, tci_step_order_step, p->n_steps + 1);
    q.buffers = TCI_NEW_ARRAY(s, tci_step_order_buffer, p->n_buffers + 1);
    q.ready = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    q.stack = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    for (int b = 0; b < p->n_buffers; b++) {
        bool is_temp = p->buffers[b].kind == TCI_BUF_TEMP;
        q.buffers[b].bytes = is_temp ? tci_dim_hint(p->buffers[b].bytes) : 0;
    }
    tci_step_order_find_order(&q);
    tci_step_order_find_waits(&q);
    tci_step_order_order_starts(&q);
    for (int i = 0; i < p->n_assigns; i++) {
        tci_step_order_update_last(&q, &p->assigns[i]);
        const tci_step_order_buffer *out =
            &q.buffers[tci_plan_port(p, TCI_BUF_OUTPUT, p->assigns[i].output)];
        for (int k = 0; k < out->n_writers; k++) {
            q.steps[out->writers[k]].updates = true;
        }
    }
    for (int t = 0; t < p->n_steps; t++) {
        q.most_touches = TCI_MAX(q.most_touches, q.steps[t].n_touches);
    }
    q.was_alive = TCI_NEW_ARRAY(s, bool, (TCI_STEP_ORDER_DEPTH + 1) * q.most_touches + 1);
    return q;
}

/* ---- one order ---- */

/* Bytes that step t begins to need. */
static int64_t tci_step_order_begins(const tci_step_order *q, int t)
{
    int64_t bytes = 0;
    for (int i = 0; i < q->steps[t].n_touches; i++) {
        const tci_step_order_buffer *b = &q->buffers[q->steps[t].touches[i]];
        bytes += b->is_alive ? 0 : b->bytes;
    }
    return bytes;
}

/* Bytes that no later step needs. */
static int64_t tci_step_order_ends(const tci_step_order *q, int t)
{
    int64_t bytes = 0;
    for (int i = 0; i < q->steps[t].n_touches; i++) {
        const tci_step_order_buffer *b = &q->buffers[q->steps[t].touches[i]];
        bytes += b->left == 1 ? b->bytes : 0;
    }
    return bytes;
}

static int64_t tci_step_order_growth(const tci_step_order *q, int t)
{
    return tci_step_order_begins(q, t) - tci_step_order_ends(q, t);
}

static void tci_step_order_done(tci_step_order *q, int t);
static void tci_step_order_undone(tci_step_order *q, int t, int n_ready, const bool *was_alive);

/* The least growth by t and up to `depth` steps that t alone still holds up: where a value is
 * computed again, what follows lets go of it. */
static int64_t tci_step_order_ahead(tci_step_order *q, int t, int depth)
{
    int64_t own = tci_step_order_growth(q, t), best = own;
    int n_ready = q->n_ready;
    if (depth == 0) {
        return own;
    }
    bool *was_alive = q->was_alive + (size_t)depth * (size_t)q->most_touches;
    for (int i = 0; i < q->steps[t].n_touches; i++) {
        was_alive[i] = q->buffers[q->steps[t].touches[i]].is_alive;
    }
    tci_step_order_done(q, t);
    for (int i = n_ready, end = q->n_ready; i < end; i++) {
        int64_t more = own + tci_step_order_ahead(q, q->ready[i], depth - 1);
        best = TCI_MIN(best, more);
    }
    tci_step_order_undone(q, t, n_ready, was_alive);
    return best;
}

/* Lower comes first: starts, then what the earliest of them waits for; what waits itself; last
 * updates that no start waits for: after all waits they may write over parameters, as nothing can
 * fail any more (run/program.c). */
static int64_t tci_step_order_rank(const tci_step_order *q, int t)
{
    const tci_comm_step *c = tci_plan_comm(q->p, t);
    const int64_t none = INT32_MAX, deadline = q->steps[t].deadline;
    if (!c) {
        return q->steps[t].updates && deadline == none ? 3 * none : deadline;
    }
    return c->phase == TCI_COMM_START ? -1 : none + 1 + c->number;
}

/* As tci_step_order_choose, by deadlines. */
static int tci_step_order_choose_due(tci_step_order *q)
{
    int best = -1;
    int64_t rank = 0, least = 0;
    for (int i = 0; i < q->n_ready; i++) {
        int64_t own = tci_step_order_rank(q, q->ready[i]);
        int64_t growth = TCI_MIN(tci_step_order_growth(q, q->ready[i]), 1);
        bool tied = own == rank && growth == least && q->ready[i] < q->ready[best];
        if (best < 0 || own < rank || (own == rank && growth < least) || tied) {
            best = i;
            rank = own;
            least = growth;
        }
    }
    return best;
}

/* The position among those that may be done of the one that is. */
static int tci_step_order_choose(tci_step_order *q, tci_step_order_rule rule)
{
    int best = -1;
    int64_t least = 0;
    if (rule == TCI_STEP_ORDER_DEADLINES) {
        return tci_step_order_choose_due(q);
    }
    for (int i = 0; i < q->n_ready; i++) {
        int64_t growth = rule == TCI_STEP_ORDER_FIRST ? 0
                         : rule == TCI_STEP_ORDER_AHEAD
                             ? tci_step_order_ahead(q, q->ready[i], TCI_STEP_ORDER_DEPTH)
                             : tci_step_order_growth(q, q->ready[i]);
        growth = rule != TCI_STEP_ORDER_LEAST && growth > 0 ? INT64_MAX : growth;
        if (best < 0 || growth < least || (growth == least && q->ready[i] < q->ready[best])) {
            best = i;
            least = growth;
        }
    }
    return best;
}

static void tci_step_order_done(tci_step_order *q, int t)
{
    const tci_step_order_step *step = &q->steps[t];
    for (int i = 0; i < step->n_touches; i++) {
        q->buffers[step->touches[i]].is_alive = true;
        q->buffers[step->touches[i]].left--;
    }
    for (int i = 0; i < step->n_leads; i++) {
        if (--q->steps[step->leads_to[i]].waits == 0) {
            q->ready[q->n_ready++] = step->leads_to[i];
        }
    }
}

/* As it was before t was done. */
static void tci_step_order_undone(tci_step_order *q, int t, int n_ready, const bool *was_alive)
{
    const tci_step_order_step *step = &q->steps[t];
    for (int i = 0; i < step->n_touches; i++) {
        q->buffers[step->touches[i]].is_alive = was_alive[i];
        q->buffers[step->touches[i]].left++;
    }
    for (int i = 0; i < step->n_leads; i++) {
        q->steps[step->leads_to[i]].waits++;
    }
    q->n_ready = n_ready;
}

/* The order by a rule; returns the most bytes that are needed at once. */
static int64_t tci_step_order_by_rule(tci_step_order *q, tci_step_order_rule rule, int32_t *order)
{
    int64_t now = 0, most = 0;
    for (int b = 0; b < q->p->n_buffers; b++) {
        q->buffers[b].left = q->buffers[b].n_touched;
        q->buffers[b].is_alive = false;
    }
    q->n_ready = 0;
    for (int t = q->first; t < q->n; t++) {
        q->steps[t].waits = q->steps[t].n_before;
        if (q->steps[t].waits == 0) {
            q->ready[q->n_ready++] = t;
        }
    }
    for (int at = q->first; at < q->n; at++) {
        TCI_ASSERT(q->s, q->n_ready > 0);
        int place = tci_step_order_choose(q, rule), t = q->ready[place];
        q->ready[place] = q->ready[--q->n_ready];
        int64_t ends = tci_step_order_ends(q, t);
        now += tci_step_order_begins(q, t);
        most = TCI_MAX(most, now);
        now -= ends;
        tci_step_order_done(q, t);
        order[at] = t;
    }
    return most;
}

/* Each step has the number of the first start that it leads to. */
static void tci_step_order_find_deadlines(tci_step_order *q)
{
    int32_t *order = TCI_NEW_ARRAY(q->s, int32_t, q->n + 1);
    if (!q->n_starts) {
        return;
    }
    tci_step_order_by_rule(q, TCI_STEP_ORDER_FIRST, order);
    for (int i = q->n - 1; i >= q->first; i--) {
        tci_step_order_step *step = &q->steps[order[i]];
        const tci_comm_step *c = tci_plan_comm(q->p, order[i]);
        for (int l = 0; l < step->n_leads; l++) {
            step->deadline = TCI_MIN(step->deadline, q->steps[step->leads_to[l]].deadline);
        }
        if (c && c->phase == TCI_COMM_START) {
            step->deadline = TCI_MIN(step->deadline, c->number);
        }
    }
}

/* ---- what others ask ---- */

TCI_FN int64_t tci_plan_sequence(tci_scratch *s, tci_plan *p)
{
    tci_step_order q = tci_step_order_make(s, p);
    int last = p->fusion->late ? TCI_STEP_ORDER_AHEAD : TCI_STEP_ORDER_LEAST;
    int rules = p->n_steps < TCI_STEP_ORDER_MANY ? last + 1 : 1;
    int first = q.n_starts ? TCI_STEP_ORDER_DEADLINES : TCI_STEP_ORDER_FIRST;
    rules = q.n_starts ? first + 1 : rules;
    tci_step_order_find_deadlines(&q);
    int32_t *order = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1), *best = NULL;
    tci_step *steps = TCI_NEW_ARRAY(s, tci_step, p->n_steps + 1);
    int64_t least = 0;
    for (int rule = first; rule < rules; rule++) {
        int64_t most = tci_step_order_by_rule(&q, (tci_step_order_rule)rule, order);
        if (!best || most < least) {
            best = tci_scratch_copy(s, order, sizeof(*order) * (size_t)(p->n_steps + 1));
            least = most;
        }
    }
    for (int t = 0; t < p->n_steps; t++) {
        steps[t] = p->steps[t < q.first ? t : best[t]];
    }
    p->steps = steps;
    p->cap_steps = p->n_steps + 1;
    return least;
}

TCI_FN int32_t *tci_plan_distances(tci_scratch *s, const tci_plan *p)
{
    tci_step_order q = tci_step_order_make(s, p);
    int32_t *distance = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    int32_t *order = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    tci_step_order_by_rule(&q, TCI_STEP_ORDER_FIRST, order);
    for (int i = q.n - 1; i >= q.first; i--) {
        const tci_step_order_step *step = &q.steps[order[i]];
        for (int l = 0; l < step->n_leads; l++) {
            distance[order[i]] = TCI_MAX(distance[order[i]], distance[step->leads_to[l]] + 1);
        }
    }
    return distance;
}

/* A unit while units are put in order, in place of its number; and a step, in that of its. */
typedef struct tci_step_order_unit {
    int32_t waits;  /* reasons to wait for steps of others that are not done yet */
    int32_t last;   /* its last step; -1: no unit has that number */
    int32_t before; /* of a step: that of its unit before it, or -1 */
} tci_step_order_unit;

static tci_step_order_unit *tci_step_order_units(tci_step_order *q, const int32_t *unit)
{
    tci_step_order_unit *units = TCI_NEW_ARRAY(q->s, tci_step_order_unit, q->n + 1);
    for (int t = 0; t < q->n; t++) {
        units[t].last = -1;
    }
    for (int t = q->first; t < q->n; t++) {
        units[t].before = units[unit[t]].last;
        units[unit[t]].last = t;
        for (int l = 0; l < q->steps[t].n_leads; l++) {
            int to = unit[q->steps[t].leads_to[l]];
            units[to].waits += to != unit[t];
        }
    }
    for (int u = q->first; u < q->n; u++) {
        if (units[u].last >= 0 && units[u].waits == 0) {
            q->ready[q->n_ready++] = u;
        }
    }
    return units;
}

/* Of those that may be done, that whose last step comes first; it is no longer among them. */
static int tci_step_order_next_unit(tci_step_order *q, const tci_step_order_unit *units)
{
    int best = 0;
    TCI_ASSERT(q->s, q->n_ready > 0);
    for (int i = 1; i < q->n_ready; i++) {
        best = units[q->ready[i]].last < units[q->ready[best]].last ? i : best;
    }
    int unit = q->ready[best];
    q->ready[best] = q->ready[--q->n_ready];
    return unit;
}

TCI_FN int32_t *tci_plan_unit_order(tci_scratch *s, const tci_plan *p, const int32_t *unit)
{
    tci_step_order q = tci_step_order_make(s, p);
    tci_step_order_unit *units = tci_step_order_units(&q, unit);
    int32_t *order = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    for (int t = 0; t < q.first; t++) {
        order[t] = t;
    }
    for (int end = q.first; end < q.n;) {
        int u = tci_step_order_next_unit(&q, units), n = 0;
        for (int t = units[u].last; t >= 0; t = units[t].before) {
            n++;
        }
        end += n;
        for (int t = units[u].last, at = end; t >= 0; t = units[t].before) {
            order[--at] = t;
            for (int l = 0; l < q.steps[t].n_leads; l++) {
                int to = unit[q.steps[t].leads_to[l]];
                if (to != u && --units[to].waits == 0) {
                    q.ready[q.n_ready++] = to;
                }
            }
        }
    }
    return order;
}
