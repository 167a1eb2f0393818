/* plan/remat.c - rematerialization: recomputes values instead of keeping them in memory at the
 * peak, and reports what the user's regions recompute (grad/loop.c).
 *
 * In: a plan with its order of steps. Out: the outputs over a graph in which, after the step with
 * the most live bytes, values kept only for later steps are recomputed from other kept values.
 *
 * Design: later steps need certain values that were computed before the peak. The kept values must
 * separate these from the expensive ones that must not be recomputed (contractions, sums). The set
 * with the fewest bytes that does so is a minimum cut (plan/mincut.h), in which recomputation has
 * a cost too. A value after the cut is recomputed where it is read. A value whose recomputation
 * needs another recomputed value that stays live long is kept (TCI_REMAT_FAR): otherwise the copies
 * of a long chain would stay live as long as the values did.
 *
 * A copy must differ from its original: it reads kept values through a RESHAPE to the same shape,
 * which no builder makes, and groups keep nodes before the peak apart from nodes after it, so that
 * no kernel computes both. The copy has the same ops over the same values, hence the same bits. */
#include <string.h>

#include "mincut.h"
#include "fusion_groups.h"

enum {
    TCI_REMAT_BYTES = 1 << 16, /* least size of a value that is worth it */
    TCI_REMAT_FEE = 128,       /* bytes that are read and written again are worth one kept */
    TCI_REMAT_FAR = 8,         /* launches that a copy may wait for its last reader */
    TCI_REMAT_ROUNDS = 8       /* cuts that are made, each with more values that are kept */
};

/* Of a node before the peak. */
typedef enum tci_remat_fate {
    TCI_REMAT_APART, /* nothing that is read late is made of it */
    TCI_REMAT_KEPT,
    TCI_REMAT_AGAIN /* computed again for late readers */
} tci_remat_fate;

typedef struct tci_remat {
    tci_scratch *s;
    tci_graph *g;
    const tci_plan *p;
    const tci_fusion *f;
    bool all;               /* reductions and contractions may be done again */
    int peak;               /* a step */
    const int32_t *step_of; /* per group */
    int32_t *first, *last;  /* per buffer: the steps after the peak that read it, -1: none */
    bool *held;             /* per node, by its position in f->nodes: kept if it is needed at all */
    uint8_t *fate;          /* tci_remat_fate */
    tci_node **again;       /* AGAIN: its copy */
    tci_table now;          /* of tci_node *: what late steps read in place of a node */
} tci_remat;

/* The step of a run with the most bytes of temporaries alive; of one that is repeated the last step
 * of all rounds. */
static int tci_remat_peak(tci_scratch *s, const tci_plan *p)
{
    int64_t *change = TCI_NEW_ARRAY(s, int64_t, p->n_steps + 2), now = 0, most = -1;
    int at = p->n_init;
    for (int b = 0; b < p->n_buffers; b++) {
        const tci_buffer *x = &p->buffers[b];
        if (x->kind == TCI_BUF_TEMP && x->last >= x->first && x->first >= 0) {
            change[x->first] += tci_dim_hint(x->bytes);
            change[x->last + 1] -= tci_dim_hint(x->bytes);
        }
    }
    for (int t = 0; t < p->n_steps; t++) {
        now += change[t];
        at = t >= p->n_init && now > most ? t : at;
        most = t >= p->n_init ? TCI_MAX(most, now) : most;
    }
    for (int i = 0; i < p->n_spans; i++) {
        at = p->spans[i].enter <= at && at < p->spans[i].last ? p->spans[i].last - 1 : at;
    }
    return at;
}

static bool tci_remat_is_late(const tci_remat *m, const tci_root *r)
{
    return m->step_of[r->group] > m->peak;
}

static bool tci_remat_waits(const tci_remat *m, const tci_root *r)
{
    const tci_buffer *b = r->buffer >= 0 ? &m->p->buffers[r->buffer] : NULL;
    return b && b->kind == TCI_BUF_TEMP && b->first < m->peak && b->last > m->peak;
}

static bool tci_remat_may_redo(const tci_remat *m, const tci_node *n)
{
    bool cheap = tci_op_is(n->op, TCI_IS_POINTWISE | TCI_IS_VIEW) || n->op == TCI_OP_PAD;
    return cheap || (m->all && (tci_op_is_reduce(n->op) || n->op == TCI_OP_CONTRACT));
}

static bool tci_remat_is_leaf(const tci_node *n)
{
    return tci_plan_is_leaf(n) || n->n_in == 0;
}

static int tci_remat_place(const tci_remat *m, const tci_node *n)
{
    return tci_pnode_of(m->f, n)->place;
}

/* The root that n is; NULL: none. */
static const tci_root *tci_remat_root(const tci_remat *m, const tci_node *n)
{
    int root = tci_pnode_of(m->f, n)->root;
    return root >= 0 ? &m->f->roots[root] : NULL;
}

static void tci_remat_find_readers(tci_remat *m)
{
    for (int t = m->peak + 1; t < m->p->n_steps; t++) {
        const tci_step *step = &m->p->steps[t];
        const tci_kernel *k = m->p->kernels[step->kernel];
        for (int o = 0; o < k->n_operands; o++) {
            int32_t b = step->operands[o];
            if (!k->operands[o].is_output) {
                m->first[b] = m->first[b] < 0 ? t : m->first[b];
                m->last[b] = t;
            }
        }
    }
}

/* ---- the cut ---- */

/* Cost of keeping n. A value that has no memory yet is stored for it. */
static int64_t tci_remat_cost(const tci_remat *m, const tci_node *n)
{
    const tci_root *r = tci_remat_root(m, n);
    int64_t bytes = (int64_t)tci_node_value_bytes(n);
    if (r && r->buffer >= 0 && m->p->buffers[r->buffer].kind != TCI_BUF_TEMP) {
        return 0;
    }
    bool moves = !r && tci_op_is(n->op, TCI_IS_VIEW);
    return moves ? TCI_MINCUT_NEVER : r ? bytes : bytes + bytes / 16 + 1;
}

/* Cost of recomputing n. */
static int64_t tci_remat_fee(const tci_node *n)
{
    double bytes = tci_node_value_bytes(n);
    for (int i = 0; i < n->n_in; i++) {
        bytes += tci_node_value_bytes(n->in[i]);
    }
    return (int64_t)(bytes / TCI_REMAT_FEE);
}

/* Nodes by position; those from which waiting values can be made are vertices. */
static tci_mincut *tci_remat_make_cut(tci_remat *m)
{
    int n = m->f->nodes.n;
    tci_mincut *c = tci_mincut_make(m->s, n);
    memset(m->fate, TCI_REMAT_APART, (size_t)n);
    for (int i = n - 1; i >= 0; i--) {
        tci_node *u = m->f->nodes.items[i];
        const tci_root *r = tci_remat_root(m, u);
        if (r && tci_remat_waits(m, r)) {
            tci_mincut_join(c, i, n + 1, TCI_MINCUT_NEVER);
            m->fate[i] = TCI_REMAT_KEPT;
        }
        if (m->fate[i] == TCI_REMAT_APART || tci_remat_is_leaf(u)) {
            continue;
        }
        tci_mincut_cost(c, i, tci_remat_cost(m, u));
        bool held = m->held[i] || !tci_remat_may_redo(m, u);
        tci_mincut_join(c, n, i, held ? TCI_MINCUT_NEVER : tci_remat_fee(u));
        for (int k = 0; k < u->n_in && !held; k++) {
            int in = tci_remat_place(m, u->in[k]);
            m->fate[in] = TCI_REMAT_KEPT;
            tci_mincut_join(c, in, i, TCI_MINCUT_NEVER);
        }
    }
    return c;
}

/* Holds values that would be made again of such as are read long after them. False: of none. */
static bool tci_remat_hold_far(tci_remat *m)
{
    int n = m->f->nodes.n;
    int32_t *until = TCI_NEW_ARRAY(m->s, int32_t, n + 1); /* a copy of what it is made of waits */
    bool any = false;
    for (int i = 0; i < n; i++) {
        const tci_node *u = m->f->nodes.items[i];
        const tci_root *r = tci_remat_root(m, u);
        until[i] = -1;
        if (m->fate[i] != TCI_REMAT_AGAIN) {
            continue;
        }
        for (int k = 0; k < u->n_in; k++) {
            until[i] = TCI_MAX(until[i], until[tci_remat_place(m, u->in[k])]);
        }
        if (r && tci_remat_waits(m, r)) {
            m->held[i] = until[i] > m->first[r->buffer] + TCI_REMAT_FAR;
            until[i] = m->held[i] ? -1 : TCI_MAX(until[i], m->last[r->buffer]);
            m->fate[i] = m->held[i] ? TCI_REMAT_KEPT : TCI_REMAT_AGAIN;
            any = any || m->held[i];
        }
    }
    return any;
}

static void tci_remat_cut(tci_remat *m)
{
    const tci_node_list *nodes = &m->f->nodes;
    for (int i = 0; i < nodes->n; i++) {
        const tci_root *r = tci_remat_root(m, nodes->items[i]);
        m->held[i] = r && tci_node_value_bytes(r->node) < TCI_REMAT_BYTES;
    }
    for (int round = 0; round < TCI_REMAT_ROUNDS; round++) {
        tci_mincut *c = tci_remat_make_cut(m);
        bool cut = tci_mincut_solve(c);
        for (int i = 0; i < nodes->n; i++) {
            bool again = m->fate[i] != TCI_REMAT_APART && cut && !tci_mincut_is_before(c, i);
            bool apart = m->fate[i] != TCI_REMAT_APART && cut && !again && !tci_mincut_is_in(c, i);
            m->fate[i] = again ? TCI_REMAT_AGAIN : apart ? TCI_REMAT_APART : m->fate[i];
        }
        if (!tci_remat_hold_far(m)) {
            break;
        }
    }
}

/* ---- copies ---- */

static tci_node *tci_remat_made(const tci_remat *m, tci_node *like, int op, int n_in, tci_node **in)
{
    bool copy = op == like->op;
    return tci_graph_node(m->g, op, (tc_dtype)like->dtype, like->rank, like->shape, n_in, in,
                          copy ? like->n_attr : 0, copy ? like->attr : NULL);
}

/* A copy that no kept value contains is dropped. */
static void tci_remat_copy(tci_remat *m, tci_table *late)
{
    for (int i = 0; i < m->f->nodes.n; i++) {
        tci_node *u = m->f->nodes.items[i];
        if (m->fate[i] != TCI_REMAT_AGAIN || tci_remat_is_leaf(u)) {
            continue;
        }
        tci_node **in = TCI_NEW_ARRAY(m->s, tci_node *, u->n_in);
        for (int k = 0; k < u->n_in; k++) {
            int place = tci_remat_place(m, u->in[k]);
            bool kept = m->fate[place] == TCI_REMAT_KEPT && !tci_remat_is_leaf(u->in[k]);
            in[k] = m->fate[place] == TCI_REMAT_AGAIN && m->again[place] ? m->again[place]
                    : kept ? tci_remat_made(m, u->in[k], TCI_OP_RESHAPE, 1, &u->in[k])
                           : u->in[k];
        }
        m->again[i] = tci_remat_made(m, u, u->op, u->n_in, in);
        if (m->again[i] == u) {
            m->fate[i] = TCI_REMAT_KEPT;
        } else {
            tci_table_add(late, m->again[i]);
        }
    }
}

/* Bytes of saved values that are recomputed, minus those kept for the recomputation. */
static tci_remat_result tci_remat_count(const tci_remat *m)
{
    tci_remat_result r = {0};
    for (int i = 0; i < m->f->nodes.n; i++) {
        const tci_node *u = m->f->nodes.items[i];
        const tci_root *root = tci_remat_root(m, u);
        bool waits = root && tci_remat_waits(m, root);
        bool more = m->fate[i] == TCI_REMAT_KEPT && !waits && !tci_remat_is_leaf(u) &&
                    tci_remat_cost(m, u) > 0;
        bool again = m->fate[i] == TCI_REMAT_AGAIN && waits;
        r.n += again;
        r.bytes += again ? tci_node_value_bytes(u) : more ? -tci_node_value_bytes(u) : 0;
    }
    return r;
}

/* The node that late steps read instead of u. */
static tci_node *tci_remat_now(tci_remat *m, tci_node *u, tci_table *late)
{
    const tci_root *r = tci_remat_root(m, u);
    int fate = m->fate[tci_remat_place(m, u)];
    if (tci_remat_is_leaf(u) || fate == TCI_REMAT_KEPT) {
        return u;
    }
    if (fate == TCI_REMAT_AGAIN) {
        return m->again[tci_remat_place(m, u)];
    }
    if (r && !tci_remat_is_late(m, r)) {
        return u;
    }
    tci_node *now = tci_graph_rebuild(m->s, m->g, u, &m->now);
    if (r) {
        tci_table_add(late, now);
    }
    return now;
}

/* `now` is of the kernel of pairs that u is of. */
static void tci_remat_keep_kernel(const tci_fusion *f, const tci_node *u, tci_node *now,
                                  tci_scores_kernels *pairs)
{
    int kernel = tci_pnode_of(f, u)->kernel;
    if (kernel > 0) {
        *(int32_t *)tci_table_at(&pairs->of, now) = kernel;
        tci_scores_kernel *k = &pairs->items[kernel - 1];
        k->product = k->product == u ? now : k->product;
    }
}

TCI_FN tci_remat_result tci_plan_remat(tci_scratch *s, tci_graph *g, const tci_plan *p, bool all,
                                       tci_node **outputs, int n_outputs, tci_table *forced,
                                       tci_scores_kernels *pairs, tci_table *late)
{
    const tci_fusion *f = p->fusion;
    const int32_t *step_of = tci_plan_steps_of_groups(s, p);
    int n = f->nodes.n;
    tci_remat m = {.s = s,
                   .g = g,
                   .p = p,
                   .f = f,
                   .all = all,
                   .peak = tci_remat_peak(s, p),
                   .step_of = step_of,
                   .first = TCI_NEW_ARRAY(s, int32_t, p->n_buffers + 1),
                   .last = TCI_NEW_ARRAY(s, int32_t, p->n_buffers + 1),
                   .held = TCI_NEW_ARRAY(s, bool, n + 1),
                   .fate = TCI_NEW_ARRAY(s, uint8_t, n + 1),
                   .again = TCI_NEW_ARRAY(s, tci_node *, n + 1),
                   .now = tci_table_in(s, sizeof(tci_node *))};
    memset(m.first, -1, sizeof(*m.first) * (size_t)p->n_buffers);
    memset(m.last, -1, sizeof(*m.last) * (size_t)p->n_buffers);
    tci_remat_find_readers(&m);
    tci_remat_cut(&m);
    tci_remat_copy(&m, late);
    tci_remat_result r = tci_remat_count(&m);
    for (int i = 0; i < n && r.n; i++) {
        tci_node *u = f->nodes.items[i], *now = tci_remat_now(&m, u, late);
        const tci_root *root = tci_remat_root(&m, u);
        tci_table_put(&m.now, u, now);
        tci_remat_keep_kernel(f, u, now, pairs);
        bool is_kept = m.fate[i] == TCI_REMAT_KEPT && !tci_remat_is_leaf(u);
        if (f->units && tci_table_has(f->units->stored, u)) { /* as in tci_unit_facts */
            tci_table_add(f->units->stored, now);
        }
        if (tci_pnode_of(f, u)->forced || is_kept) { /* what had memory has it again */
            tci_table_add(forced, u);
            tci_table_add(forced, now);
        }
        if (m.fate[i] == TCI_REMAT_AGAIN && root && tci_remat_waits(&m, root)) {
            tci_table_add(forced, now);
        }
    }
    for (int i = 0; i < n_outputs && r.n; i++) {
        if (tci_remat_is_late(&m, &f->roots[tci_pnode_of(f, outputs[i])->root])) {
            outputs[i] = tci_table_get(&m.now, outputs[i]);
        }
    }
    return r;
}

/* ---- regions ---- */

/* n without what is waited for: for a value that is computed again the one that it repeats. */
static tci_node *tci_remat_plain(tci_scratch *s, tci_graph *g, tci_node *n, tci_table *plain)
{
    bool waits = n->op == TCI_OP_BARRIER && n->n_in > 1;
    return waits ? tci_table_get(plain, n->in[0]) : tci_graph_rebuild(s, g, n, plain);
}

TCI_FN void tci_plan_report_regions(tci_scratch *s, tci_graph *g, tci_plan *p)
{
    const tci_fusion *f = p->fusion;
    tci_table plain = tci_table_in(s, sizeof(tci_node *));
    double bytes = 0;
    int values = 0;
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i], *first = tci_remat_plain(s, g, n, &plain);
        tci_table_put(&plain, n, first);
        bool again = first != n && n->op != TCI_OP_BARRIER && tci_table_find(&f->known, first);
        if (again && tci_pnode_of(f, n)->root >= 0) {
            values++;
            bytes += tci_node_value_bytes(n);
        }
    }
    if (values) {
        tci_str_printf(&p->again, "regions: %d values, %.1f kB, not kept for the way back\n",
                       values, bytes / 1e3);
    }
}
