/* plan/remat.c - values that are computed again behind the peak of memory instead of waiting there,
 * and the report of those that a user's regions compute again (grad/repeat.c).
 *
 * In: a plan with its order of steps. Out: the outputs over a graph in which, behind the step with
 * the most bytes alive, values that are only kept for later steps are computed from others that are
 * kept too.
 *
 * The one idea: at the peak a value that was computed before and is read behind it takes memory
 * and does nothing. If what lies between it and other values that wait anyway is cheap, its late
 * readers get a copy of that expression. A copy must not be the node it is a copy of: it reads what
 * is kept through a RESHAPE to the same shape, which no builder makes, and groups keep apart what
 * comes before the peak and what comes behind it, so that no kernel computes both. The copy has the
 * same nodes over the same values, so it has the same bits. */
#include "group.h"

enum {
    TCI_REMAT_BYTES = 1 << 16,  /* least size of a value that is worth it */
    TCI_REMAT_SMALL = 16,       /* what has so many times fewer bytes may be kept for it */
    TCI_REMAT_NODES = 64        /* of an expression */
};

typedef struct tci_remat {
    tci_scratch *s;
    tci_graph *g;
    const tci_plan *p;
    const tci_fusion *f;
    bool all;               /* reductions and contractions may be done again */
    int peak;               /* a step */
    const int32_t *step_of; /* per group */
    bool *chosen;           /* per root: is computed again */
    tci_table now;          /* of tci_node *: what late steps read in place of a node */
} tci_remat;

/* The step of a run with the most bytes of temporaries alive. */
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

/* Can v be computed from what is kept anyway? Small values are kept for it. */
static bool tci_remat_pays(const tci_remat *m, const tci_root *v)
{
    tci_node *stack[2 * TCI_REMAT_NODES + 1];
    int n = 0, walked = 0;
    bool reads_large = false;
    double small = tci_node_value_bytes(v->node) / TCI_REMAT_SMALL;
    stack[n++] = v->node;
    while (n > 0) {
        tci_node *u = stack[--n];
        int root = tci_remat_is_leaf(u) || u == v->node ? -1 : tci_pnode_of(m->f, u)->root;
        if (root >= 0) {
            bool large = tci_node_value_bytes(u) > small;
            if (large && (m->chosen[root] || !tci_remat_waits(m, &m->f->roots[root]))) {
                return false;
            }
            reads_large = reads_large || large;
        } else if (!tci_remat_is_leaf(u)) {
            if (!tci_remat_may_redo(m, u) || ++walked > TCI_REMAT_NODES ||
                n + u->n_in > 2 * TCI_REMAT_NODES) {
                return false;
            }
            for (int i = 0; i < u->n_in; i++) {
                stack[n++] = u->in[i];
            }
        }
    }
    return reads_large;
}

static tci_node *tci_remat_made(const tci_remat *m, tci_node *like, int op, int n_in, tci_node **in)
{
    bool copy = op == like->op;
    return tci_graph_node(m->g, op, (tc_dtype)like->dtype, like->rank, like->shape, n_in, in,
                          copy ? like->n_attr : 0, copy ? like->attr : NULL);
}

/* The expression of u over what is kept. Not deeper than TCI_REMAT_NODES. */
static tci_node *tci_remat_copy(const tci_remat *m, tci_node *u, bool top)
{
    if (tci_remat_is_leaf(u)) {
        return u;
    }
    if (!top && tci_pnode_of(m->f, u)->root >= 0) {
        return tci_remat_made(m, u, TCI_OP_RESHAPE, 1, &u);
    }
    tci_node **in = TCI_NEW_ARRAY(m->s, tci_node *, u->n_in);
    for (int i = 0; i < u->n_in; i++) {
        in[i] = tci_remat_copy(m, u->in[i], false);
    }
    return tci_remat_made(m, u, u->op, u->n_in, in);
}

/* Bytes of what is chosen. */
static double tci_remat_choose(tci_remat *m, int *n)
{
    double bytes = 0;
    for (int r = 0; r < m->f->n_roots; r++) {
        const tci_root *v = &m->f->roots[r];
        bool kind = v->kind == TCI_ROOT_VALUE ||
                    (m->all && (v->kind == TCI_ROOT_REDUCE || v->kind == TCI_ROOT_CONTRACT));
        double own = tci_node_value_bytes(v->node);
        m->chosen[r] = kind && own >= TCI_REMAT_BYTES && !tci_remat_is_late(m, v) &&
                       tci_remat_waits(m, v) && tci_remat_pays(m, v);
        *n += m->chosen[r];
        bytes += m->chosen[r] ? own : 0;
    }
    return bytes;
}

/* What late steps read in place of u. */
static tci_node *tci_remat_now(tci_remat *m, tci_node *u, tci_table *late)
{
    int root = tci_pnode_of(m->f, u)->root;
    if (root >= 0 && m->chosen[root]) {
        tci_node *copy = tci_remat_copy(m, u, true);
        tci_table_add(late, copy);
        return copy;
    }
    if (tci_remat_is_leaf(u) || (root >= 0 && !tci_remat_is_late(m, &m->f->roots[root]))) {
        return u;
    }
    tci_node *now = tci_graph_rebuild(m->s, m->g, u, &m->now);
    if (root >= 0) {
        tci_table_add(late, now);
    }
    return now;
}

/* `now` is of the kernel of pairs that u is of. */
static void tci_remat_keep_kernel(const tci_fusion *f, const tci_node *u, tci_node *now,
                                  tci_pairs_kernels *pairs)
{
    int kernel = tci_pnode_of(f, u)->kernel;
    if (kernel > 0) {
        *(int32_t *)tci_table_at(&pairs->of, now) = kernel;
        tci_pairs_kernel *k = &pairs->items[kernel - 1];
        k->product = k->product == u ? now : k->product;
    }
}

TCI_FN tci_remat_result tci_plan_remat(tci_scratch *s, tci_graph *g, const tci_plan *p, bool all,
                                       tci_node **outputs, int n_outputs, tci_table *forced,
                                       tci_pairs_kernels *pairs, tci_table *late)
{
    const tci_fusion *f = p->fusion;
    const int32_t *step_of = tci_plan_steps_of_groups(s, p);
    tci_remat m = {s, g, p, f, all, tci_remat_peak(s, p), step_of,
                   TCI_NEW_ARRAY(s, bool, f->n_roots + 1), tci_table_in(s, sizeof(tci_node *))};
    tci_remat_result r = {0};
    r.bytes = tci_remat_choose(&m, &r.n);
    for (int i = 0; i < f->nodes.n && r.n; i++) {
        tci_node *u = f->nodes.items[i], *now = tci_remat_now(&m, u, late);
        int root = tci_pnode_of(f, u)->root;
        tci_table_put(&m.now, u, now);
        tci_remat_keep_kernel(f, u, now, pairs);
        if (tci_pnode_of(f, u)->forced) { /* what had memory has it again */
            tci_table_add(forced, u);
            tci_table_add(forced, now);
        }
        if (root >= 0 && m.chosen[root]) {
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
