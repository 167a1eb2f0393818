/* plan/memory.c - lifetimes of buffers, their place in the arena, and which outputs may lie on an
 * input.
 *
 * Placement: a sweep over the steps with a list of free gaps, first fit; a temporary is placed at
 * the step that first writes it and its room is free again after the step that last reads it.
 * Offsets are multiples of 64. Where launches that need not wait for each other run side by side,
 * small temporaries have a place of their own, up to a total: memory that is used again would make
 * them wait.
 *
 * Parameters: the new value of one may be written over the old where nothing reads the old later.
 * So a step that only writes such values is put off until the last step that reads them. */
#include "group.h"

enum {
    TCI_MEMORY_SMALL = 4 << 20,  /* bytes of a value that a GPU computes in the time of a launch */
    TCI_MEMORY_APART = 64 << 20
};

typedef struct tci_memory_gap { int64_t begin, end; } tci_memory_gap;
typedef struct tci_memory {
    tci_scratch *s;
    /* ascending, disjoint, not touching; the last one is endless */
    tci_memory_gap *gaps; int n, cap;
    int64_t top;
} tci_memory;

static int64_t tci_memory_take(tci_memory *m, int64_t bytes)
{
    for (int i = 0; i < m->n; i++) {
        tci_memory_gap *gap = &m->gaps[i];
        if (gap->end - gap->begin >= bytes) {
            int64_t at = gap->begin;
            gap->begin += bytes;
            m->top = TCI_MAX(m->top, at + bytes);
            if (gap->begin == gap->end) {
                m->n--;
                for (int j = i; j < m->n; j++) {
                    m->gaps[j] = m->gaps[j + 1];
                }
            }
            return at;
        }
    }
    tci_scratch_fail(m->s, TC_ERR_LIMIT, "temporaries need more than %lld bytes",
                     (long long)INT64_MAX);
    return 0;
}

static void tci_memory_give(tci_memory *m, int64_t begin, int64_t bytes)
{
    if (bytes == 0) {
        return;
    }
    int at = 0;
    while (at < m->n && m->gaps[at].begin < begin) {
        at++;
    }
    tci_memory_gap gap = {begin, begin + bytes};
    TCI_PUSH(m->s, m->gaps, m->n, m->cap, gap);
    for (int i = m->n - 1; i > at; i--) {
        m->gaps[i] = m->gaps[i - 1];
    }
    m->gaps[at] = gap;
    for (int i = TCI_MAX(at - 1, 0); i + 1 < m->n && i <= at + 1;) { /* join what touches */
        if (m->gaps[i].end == m->gaps[i + 1].begin) {
            m->gaps[i].end = m->gaps[i + 1].end;
            m->n--;
            for (int j = i + 1; j < m->n; j++) {
                m->gaps[j] = m->gaps[j + 1];
            }
        } else {
            i++;
        }
    }
}

static void tci_memory_lifetimes(tci_plan *p)
{
    for (int b = 0; b < p->n_buffers; b++) {
        p->buffers[b].first = p->n_steps;
        p->buffers[b].last = -1;
    }
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int o = 0; o < k->n_operands; o++) {
            tci_buffer *b = &p->buffers[p->steps[t].operands[o]];
            b->first = TCI_MIN(b->first, t);
            b->last = TCI_MAX(b->last, t);
        }
    }
}

/* The room of small ones is used by nobody else. */
static void tci_memory_keep_apart(tci_life *lives, int n, int n_steps)
{
    int64_t total = 0;
    for (int b = 0; b < n; b++) {
        if (lives[b].last >= 0 && lives[b].bytes <= TCI_MEMORY_SMALL &&
            total + lives[b].bytes <= TCI_MEMORY_APART) {
            total += lives[b].bytes;
            lives[b].last = n_steps - 1;
        }
    }
}

TCI_FN int64_t tci_plan_place(tci_scratch *s, tci_life *lives, int n, int n_steps, bool apart)
{
    if (apart) {
        tci_memory_keep_apart(lives, n, n_steps);
    }
    tci_memory m = {.s = s};
    tci_memory_gap all = {0, INT64_MAX / 2};
    TCI_PUSH(s, m.gaps, m.n, m.cap, all);
    int32_t *head = TCI_NEW_ARRAY(s, int32_t, 2 * (n_steps + 1));
    int32_t *next = TCI_NEW_ARRAY(s, int32_t, 2 * (n + 1));
    for (int t = 0; t < 2 * (n_steps + 1); t++) {
        head[t] = -1;
    }
    for (int b = n - 1; b >= 0; b--) { /* lists of what begins and ends at each step */
        if (lives[b].last >= 0) {
            next[2 * b] = head[2 * lives[b].first];
            head[2 * lives[b].first] = b;
            next[2 * b + 1] = head[2 * lives[b].last + 1];
            head[2 * lives[b].last + 1] = b;
        }
    }
    for (int t = 0; t < n_steps; t++) {
        for (int b = head[2 * t]; b >= 0; b = next[2 * b]) {
            lives[b].offset = tci_memory_take(&m, (lives[b].bytes + 63) / 64 * 64);
        }
        for (int b = head[2 * t + 1]; b >= 0; b = next[2 * b + 1]) {
            tci_memory_give(&m, lives[b].offset, (lives[b].bytes + 63) / 64 * 64);
        }
    }
    return m.top;
}

/* Where a size is symbolic the places are found anew for the sizes of a run (run/dynamic.c). */
static void tci_memory_place(tci_scratch *s, tci_plan *p, bool apart)
{
    tci_life *lives = TCI_NEW_ARRAY(s, tci_life, p->n_buffers + 1);
    bool known = true;
    for (int b = 0; b < p->n_buffers; b++) {
        const tci_buffer *buffer = &p->buffers[b];
        bool is_temp = buffer->kind == TCI_BUF_TEMP;
        lives[b].first = buffer->first;
        lives[b].last = is_temp ? buffer->last : -1;
        lives[b].bytes = tci_dim_known(buffer->bytes);
        known = known && (!is_temp || tci_dim_is_known(buffer->bytes));
    }
    if (!known) {
        return;
    }
    p->arena_bytes = tci_plan_place(s, lives, p->n_buffers, p->n_steps, apart);
    for (int b = 0; b < p->n_buffers; b++) {
        if (lives[b].last >= 0) {
            p->buffers[b].offset = lives[b].offset;
        }
    }
}

/* ---- outputs on top of inputs ---- */

/* The latest stage in which instruction i may be evaluated: that of its last user. */
static int32_t *tci_memory_last_use(tci_scratch *s, const tci_kernel *k)
{
    int32_t *last = TCI_NEW_ARRAY(s, int32_t, k->n_insts + 1);
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < tci_red_takes(k->reds[r].op); i++) {
            int32_t *at = &last[k->reds[r].in[i]];
            *at = TCI_MAX(*at, k->reds[r].stage);
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        last[k->stores[w].value] = TCI_MAX(last[k->stores[w].value], k->stores[w].stage);
        if (k->stores[w].guard >= 0) {
            last[k->stores[w].guard] = TCI_MAX(last[k->stores[w].guard], k->stores[w].stage);
        }
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        for (int a = 0; a < k->insts[i].n_args; a++) {
            last[k->insts[i].args[a]] = TCI_MAX(last[k->insts[i].args[a]], last[i]);
        }
    }
    return last;
}

/* One that is stored to twice, as a SCATTER's, is not: what is read later was overwritten. */
static bool tci_memory_elementwise(tci_scratch *s, const tci_kernel *k, int out, int in)
{
    int store = -1;
    for (int w = 0; w < k->n_stores; w++) {
        if (k->stores[w].operand == out) {
            if (store >= 0) {
                return false;
            }
            store = w;
        }
    }
    int32_t *last = tci_memory_last_use(s, k);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *load = &k->insts[i];
        bool reads = load->op == TCI_K_LOAD && load->imm == in;
        if (reads && (store < 0 || load->x != k->stores[store].x || load->n_guards > 0 ||
                      last[i] > k->stores[store].stage || k->faults)) {
            return false;
        }
        /* a rolled row or tile: every point must be read before it is written, by its own store
         * alone */
        if (reads && k->n_stages > 1) {
            uint64_t all = k->n_axes >= 63 ? ~(uint64_t)0 : ((uint64_t)1 << k->n_axes) - 1;
            if ((load->axes & all) != all) {
                return false;
            }
        }
    }
    return true;
}

/* ---- parameters ---- */

static bool tci_memory_uses(const tci_plan *p, int step, int buffer, bool as_output)
{
    const tci_kernel *k = p->kernels[p->steps[step].kernel];
    for (int o = 0; o < k->n_operands; o++) {
        if (p->steps[step].operands[o] == buffer && k->operands[o].is_output == as_output) {
            return true;
        }
    }
    return false;
}

/* The output buffer of assign i. */
static int tci_memory_assigned(const tci_plan *p, int i)
{
    for (int b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].kind == TCI_BUF_OUTPUT && p->buffers[b].index == p->assigns[i].output) {
            return b;
        }
    }
    return -1;
}

/* Per step: the step after which it is best run (itself, where it is best left alone). */
static int32_t *tci_memory_put_off(tci_scratch *s, const tci_plan *p)
{
    int32_t *after = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    int32_t *n_outputs = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        after[t] = t;
        for (int o = 0; o < k->n_operands; o++) {
            n_outputs[t] += k->operands[o].is_output;
        }
    }
    for (int i = 0; i < p->n_assigns; i++) {
        int out = tci_memory_assigned(p, i), writer = -1, last = -1;
        bool read = false;
        for (int t = 0; t < p->n_steps; t++) {
            writer = tci_memory_uses(p, t, out, true) ? t : writer;
            last = tci_memory_uses(p, t, p->assigns[i].input, false) ? t : last;
            read = read || tci_memory_uses(p, t, out, false);
        }
        if (writer >= 0 && !read && n_outputs[writer] == 1) {
            after[writer] = TCI_MAX(after[writer], last);
        }
    }
    return after;
}

static void tci_memory_order(tci_scratch *s, tci_plan *p)
{
    if (!p->n_assigns) {
        return;
    }
    int32_t *after = tci_memory_put_off(s, p);
    tci_step *steps = TCI_NEW_ARRAY(s, tci_step, p->n_steps + 1);
    int at = 0;
    for (int t = 0; t < p->n_steps; t++) {
        if (after[t] == t) {
            steps[at++] = p->steps[t];
        }
        for (int late = 0; late < t; late++) {
            if (after[late] == t) {
                steps[at++] = p->steps[late];
            }
        }
    }
    p->steps = steps;
    p->cap_steps = p->n_steps + 1;
}

static bool tci_memory_may_alias(tci_scratch *s, const tci_plan *p, int out, int in)
{
    bool written = false;
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        int writes = -1, reads = -1;
        for (int o = 0; o < k->n_operands; o++) {
            int b = p->steps[t].operands[o];
            writes = b == out && k->operands[o].is_output ? o : writes;
            reads = b == in ? o : reads;
        }
        if (reads >= 0 &&
            (written || (writes >= 0 && !tci_memory_elementwise(s, k, writes, reads)))) {
            return false;
        }
        written |= writes >= 0;
    }
    return true;
}

static bool tci_memory_is_assign(const tci_plan *p, int output, int input)
{
    for (int i = 0; i < p->n_assigns; i++) {
        if (p->assigns[i].output == output && p->assigns[i].input == input) {
            return true;
        }
    }
    return false;
}

static void tci_memory_aliases(tci_scratch *s, tci_plan *p)
{
    for (int o = 0; o < p->n_buffers; o++) {
        for (int i = 0; i < p->n_buffers && p->buffers[o].kind == TCI_BUF_OUTPUT; i++) {
            const tci_buffer *out = &p->buffers[o], *in = &p->buffers[i];
            if (in->kind == TCI_BUF_INPUT && in->bytes == out->bytes && in->dtype == out->dtype &&
                (p->n_buffers < 256 || tci_memory_is_assign(p, out->index, in->index)) &&
                tci_memory_may_alias(s, p, o, i)) {
                tci_alias alias = {out->index, in->index};
                TCI_PUSH(s, p->aliases, p->n_aliases, p->cap_aliases, alias);
            }
        }
    }
}

TCI_FN void tci_plan_memory(tci_scratch *s, tci_plan *p, bool apart)
{
    tci_memory_order(s, p);
    tci_memory_lifetimes(p);
    tci_memory_place(s, p, apart);
    tci_memory_aliases(s, p);
}
