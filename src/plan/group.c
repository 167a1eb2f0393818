/* plan/group.c - fusion. See plan/group.h for roots, probes and groups.
 *
 * The walk: mark roots; probe each; put each, in topological order, into the first group that takes
 * it (groups it reads from, newest first, then recent siblings) or a new one; then look for values
 * that were inlined into several kernels or many times into one at a cost above memory's, force
 * those into memory and start over (at most four rounds). Every refusal leaves a line in `why`. */
#include "group.h"
#include "why.h"

enum {
    TCI_GROUP_MAX_INSTS = 20000,  /* of one kernel made by joining roots */
    TCI_GROUP_MAX_ROOTS = 32,     /* of one kernel: each is a stage that looks at all values */
    TCI_GROUP_MAX_STREAMS = 24,   /* leaves and reads of one kernel made by joining siblings */
    TCI_GROUP_SIBLINGS = 8,       /* how many recent groups a sibling looks at */
    TCI_GROUP_SMALL = 16384,      /* elements up to which unrelated siblings join */
    TCI_GROUP_WALK = 512,         /* groups visited before a cycle is assumed */
    /* flops above which a shared value is stored instead of repeated */
    TCI_GROUP_SHARED_COST = 12,
    TCI_GROUP_AGAIN_COST = 64,    /* flops x repetitions in one kernel above which it is stored */
    /* reductions, or moves, inlined on one path before a shared value is stored */
    TCI_GROUP_DEPTH = 6,
    TCI_GROUP_ROUNDS = 4
};

static const char *const tci_why_texts[] = {
#define TCI_ROW(id, text) text,
    TCI_WHY_ROWS(TCI_ROW)
#undef TCI_ROW
};

static void tci_group_refuse(tci_fusion *f, const tci_node *reader, const tci_node *source,
                             tci_why why)
{
    tci_str_printf(f->why, "%s is not computed with %s: %s\n", tci_op_name(reader->op),
                   tci_op_name(source->op), tci_why_texts[why]);
}

/* ---- roots ---- */

static bool tci_group_is_leaf(const tci_node *n)
{
    return n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA || n->storage != NULL;
}

static uint8_t tci_group_kind(const tci_node *n)
{
    if (tci_group_is_leaf(n)) {
        return TCI_ROOT_VALUE;
    }
    return tci_op_is_reduce(n->op)     ? TCI_ROOT_REDUCE
           : n->op == TCI_OP_CONTRACT ? TCI_ROOT_CONTRACT
           : n->op == TCI_OP_SCAN     ? TCI_ROOT_SCAN
                                      : TCI_ROOT_VALUE;
}

static bool tci_group_has(const int64_t *list, int n, int64_t v)
{
    for (int i = 0; i < n; i++) {
        if (list[i] == v) {
            return true;
        }
    }
    return false;
}

/* Domain of a contraction: a size per output label, then per summed label in order of first use. */
static void tci_group_contract_domain(tci_scratch *s, tci_root *r)
{
    const tci_node *n = r->node;
    int rank_a = (int)n->attr[0], rank_b = (int)n->attr[1], rank_out = (int)n->attr[2];
    const int64_t *labels = n->attr + 3, *out = labels + rank_a + rank_b;
    r->domain = TCI_NEW_ARRAY(s, tci_dim, rank_a + rank_b + rank_out + 1);
    int64_t *summed = TCI_NEW_ARRAY(s, int64_t, rank_a + rank_b + 1);
    int n_summed = 0;
    for (int i = 0; i < rank_out; i++) {
        r->domain[i] = n->shape[i];
    }
    for (int i = 0; i < rank_a + rank_b; i++) {
        if (!tci_group_has(out, rank_out, labels[i]) &&
            !tci_group_has(summed, n_summed, labels[i])) {
            r->domain[rank_out + n_summed] = i < rank_a ? n->in[0]->shape[i]
                                                        : n->in[1]->shape[i - rank_a];
            summed[n_summed++] = labels[i];
        }
    }
    r->n_domain = rank_out + n_summed;
}

static void tci_group_domain(tci_scratch *s, tci_root *r)
{
    const tci_node *n = r->node;
    r->out_axis = TCI_NEW_ARRAY(s, int32_t, n->rank + 1);
    r->n_out = n->rank;
    for (int i = 0; i < n->rank; i++) {
        r->out_axis[i] = i;
    }
    if (r->kind == TCI_ROOT_CONTRACT) {
        tci_group_contract_domain(s, r);
    } else if (r->kind == TCI_ROOT_REDUCE) {
        const tci_node *in = n->in[0];
        r->domain = TCI_NEW_ARRAY(s, tci_dim, in->rank + 1);
        r->n_domain = in->rank;
        int kept = 0, reduced = n->rank;
        for (int i = 0; i < in->rank; i++) {
            r->domain[tci_group_has(n->attr, n->n_attr, i) ? reduced++ : kept++] = in->shape[i];
        }
    } else {
        r->domain = TCI_NEW_ARRAY(s, tci_dim, n->rank + 1);
        r->n_domain = n->rank;
        for (int i = 0; i < n->rank; i++) {
            int at = i;
            if (r->kind == TCI_ROOT_SCAN) { /* the scanned axis comes last */
                at = i == n->attr[0] ? n->rank - 1 : i > n->attr[0] ? i - 1 : i;
                r->out_axis[i] = at;
            }
            r->domain[at] = n->shape[i];
        }
        r->n_out = r->kind == TCI_ROOT_SCAN ? n->rank - 1 : n->rank;
    }
    r->outer_of = TCI_NEW_ARRAY(s, int32_t, r->n_domain + 1);
}

static void tci_group_add_root(tci_fusion *f, tci_node *n)
{
    if (tci_pnode_of(n)->root >= 0) {
        return;
    }
    tci_root r = {0};
    r.node = n;
    r.kind = tci_group_kind(n);
    r.group = -1;
    r.buffer = -1;
    tci_group_domain(f->s, &r);
    TCI_PUSH(f->s, f->roots, f->n_roots, f->cap_roots, r);
    tci_pnode_of(n)->root = f->n_roots - 1;
}

static void tci_group_find_roots(tci_fusion *f, tci_node *const *outputs, int n_outputs)
{
    f->n_roots = f->n_groups = 0;
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode_of(f->nodes.items[i])->root = -1;
    }
    for (int i = 0; i < n_outputs; i++) {
        tci_pnode_of(outputs[i])->forced = true;
    }
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        if (tci_pnode_of(n)->forced || tci_group_kind(n) != TCI_ROOT_VALUE) {
            tci_group_add_root(f, n);
        }
    }
    for (int i = 0; i < n_outputs; i++) {
        f->roots[tci_pnode_of(outputs[i])->root].is_output = true;
    }
}

/* ---- probes ---- */

typedef struct tci_group_probe {
    tci_fusion *f;
    tci_root *r;
    int self;
} tci_group_probe;

static tci_read tci_group_make_read(tci_lower *l, int root, const tci_node *n, const int *idx)
{
    tci_read read = {root, true, TCI_NEW_ARRAY(l->s, int32_t, n->rank + 1)};
    for (int i = 0; i < n->rank; i++) {
        const tci_kx *x = &l->k->kx[idx[i]];
        read.axes[i] = x->op == TCI_KX_AXIS ? (int32_t)x->c : -1;
        read.pure &= x->op == TCI_KX_AXIS ? l->k->axes[x->c].size == n->shape[i] : n->shape[i] == 1;
        for (int j = 0; j < i; j++) {
            read.pure &= read.axes[i] < 0 || read.axes[j] != read.axes[i];
        }
    }
    return read;
}

static int tci_group_probe_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_group_probe *p = l->user;
    int root = tci_pnode_of(n)->root;
    bool leaf = tci_group_is_leaf(n);
    if (!leaf && (root < 0 || root == p->self)) {
        return -1;
    }
    if (root >= 0 && root != p->self && !leaf) {
        tci_read read = tci_group_make_read(l, root, n, idx);
        TCI_PUSH(l->s, p->r->reads, p->r->n_reads, p->r->cap_reads, read);
    } else {
        bool have = false;
        for (int i = 0; i < p->r->n_leaves; i++) {
            have |= p->r->leaves[i] == n;
        }
        if (!have) {
            TCI_PUSH(l->s, p->r->leaves, p->r->n_leaves, p->r->cap_leaves, n);
        }
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    int x = tci_lower_offset(l, n->rank, n->shape, NULL, idx);
    return tci_lower_load(l, (int)n->id, t, x, guard);
}

static int tci_group_probe_literal(tci_lower *l, tci_node *n)
{
    (void)l;
    return (int)n->id;
}

/* The inputs of a root that its stage evaluates, with their indices over the root's domain. */
TCI_FN const int *tci_plan_input_index(tci_lower *l, const tci_root *r, int input,
                                       const int *domain)
{
    const tci_node *n = r->node, *in = n->in[input];
    int *idx = TCI_NEW_ARRAY(l->s, int, in->rank + 1);
    if (r->kind == TCI_ROOT_SCAN) {
        for (int i = 0; i < in->rank; i++) {
            idx[i] = domain[r->out_axis[i]];
        }
        return idx;
    }
    if (r->kind == TCI_ROOT_REDUCE) {
        int kept = 0, reduced = n->rank;
        for (int i = 0; i < in->rank; i++) {
            idx[i] = domain[tci_group_has(n->attr, n->n_attr, i) ? reduced++ : kept++];
        }
        return idx;
    }
    int rank_a = (int)n->attr[0], rank_b = (int)n->attr[1], rank_out = (int)n->attr[2];
    const int64_t *labels = n->attr + 3, *out = labels + rank_a + rank_b;
    int64_t *of = TCI_NEW_ARRAY(l->s, int64_t, rank_out + rank_a + rank_b + 1);
    int n_of = 0;
    for (int i = 0; i < rank_out; i++) {
        of[n_of++] = out[i];
    }
    for (int i = 0; i < rank_a + rank_b; i++) {
        if (!tci_group_has(of, n_of, labels[i])) {
            of[n_of++] = labels[i];
        }
    }
    for (int i = 0; i < in->rank; i++) {
        int64_t label = labels[input * rank_a + i];
        for (int d = 0; d < n_of; d++) {
            if (of[d] == label) {
                idx[i] = domain[d];
            }
        }
    }
    return idx;
}

static void tci_group_probe_root(tci_fusion *f, int self)
{
    tci_root *r = &f->roots[self];
    tci_kernel *k = tci_kernel_make(f->s);
    tci_lower l;
    tci_lower_init(&l, f->s, k);
    tci_group_probe p = {f, r, self};
    l.user = &p;
    l.access = tci_group_probe_access;
    l.literal = tci_group_probe_literal;
    int *domain = TCI_NEW_ARRAY(f->s, int, r->n_domain + 1);
    for (int i = 0; i < r->n_domain; i++) {
        int axis = tci_kernel_axis(k, r->domain[i], false);
        domain[i] = tci_kx_axis(k, axis);
    }
    if (r->kind == TCI_ROOT_VALUE) {
        tci_lower_value(&l, r->node, domain, 0);
    } else {
        for (int i = 0; i < r->node->n_in; i++) {
            tci_lower_value(&l, r->node->in[i], tci_plan_input_index(&l, r, i, domain), 0);
        }
    }
    r->n_insts = k->n_insts;
    r->n_inlined = tci_lower_visited(&l, &r->inlined);
}

/* ---- joining ---- */

static int tci_group_new(tci_fusion *f, int root)
{
    tci_root *r = &f->roots[root];
    tci_group g = {0};
    g.n_outer = r->n_out;
    g.outer = TCI_NEW_ARRAY(f->s, tci_dim, r->n_out + 1);
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = i < r->n_out ? i : -1;
        if (i < r->n_out) {
            g.outer[i] = r->domain[i];
        }
    }
    TCI_PUSH(f->s, f->groups, f->n_groups, f->cap_groups, g);
    return f->n_groups - 1;
}

static void tci_group_add_dep(tci_fusion *f, tci_group *g, int dep)
{
    for (int i = 0; i < g->n_deps; i++) {
        if (g->deps[i] == dep) {
            return;
        }
    }
    TCI_PUSH(f->s, g->deps, g->n_deps, g->cap_deps, dep);
}

static void tci_group_put(tci_fusion *f, int group, int root)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    r->group = group;
    TCI_PUSH(f->s, g->roots, g->n_roots, g->cap_roots, root);
    g->has_reduce |= r->kind == TCI_ROOT_REDUCE;
    g->has_contract |= r->kind == TCI_ROOT_CONTRACT;
    g->has_scan |= r->kind == TCI_ROOT_SCAN;
    g->n_insts += r->n_insts;
    for (int i = 0; i < r->n_reads; i++) {
        if (f->roots[r->reads[i].root].group != group) {
            tci_group_add_dep(f, g, f->roots[r->reads[i].root].group);
        }
    }
}

/* Does `from` depend on `target`? Assumes so when the walk gets long. A group all of whose roots
 * come before the target's first cannot, as roots are in topological order. */
static bool tci_group_depends(tci_fusion *f, int from, int target)
{
    int32_t *stack = NULL;
    int n = 0, cap = 0, visited = 0;
    f->stamp++;
    TCI_PUSH(f->s, stack, n, cap, from);
    while (n > 0) {
        tci_group *g = &f->groups[stack[--n]];
        if (g == &f->groups[target] || ++visited > TCI_GROUP_WALK) {
            return true;
        }
        for (int i = 0; i < g->n_deps; i++) {
            const tci_group *dep = &f->groups[g->deps[i]];
            if (dep->stamp != f->stamp &&
                dep->roots[dep->n_roots - 1] >= f->groups[target].roots[0]) {
                f->groups[g->deps[i]].stamp = f->stamp;
                TCI_PUSH(f->s, stack, n, cap, g->deps[i]);
            }
        }
    }
    return false;
}

/* Would root r, put into g, wait for a group that waits for g? */
static bool tci_group_makes_cycle(tci_fusion *f, const tci_root *r, int group)
{
    for (int i = 0; i < r->n_reads; i++) {
        int other = f->roots[r->reads[i].root].group;
        if (other != group && tci_group_depends(f, other, group)) {
            return true;
        }
    }
    return false;
}

/* Fills `outer_of` for r over g's outer space from its reads of members of g. */
static bool tci_group_map_reads(const tci_fusion *f, const tci_root *r, int group,
                                int32_t *outer_of, tci_why *why)
{
    const tci_group *g = &f->groups[group];
    for (int i = 0; i < r->n_domain; i++) {
        outer_of[i] = -1;
    }
    for (int i = 0; i < r->n_reads; i++) {
        const tci_read *read = &r->reads[i];
        const tci_root *q = &f->roots[read->root];
        if (q->group != group) {
            continue;
        }
        if (q->kind == TCI_ROOT_SCAN) {
            *why = TCI_WHY_SCAN;
            return false;
        }
        for (int a = 0; a < q->node->rank; a++) {
            int outer = q->outer_of[q->out_axis[a]];
            if (!read->pure) {
                *why = TCI_WHY_INDEX;
                return false;
            }
            if (outer < 0 || read->axes[a] < 0) {
                continue;
            }
            if (outer_of[read->axes[a]] >= 0 && outer_of[read->axes[a]] != outer) {
                *why = TCI_WHY_INDEX;
                return false;
            }
            outer_of[read->axes[a]] = outer;
        }
    }
    /* each outer axis is walked by one axis of r, in order */
    for (int o = 0; o < g->n_outer; o++) {
        int found = 0;
        for (int i = 0; i < r->n_domain; i++) {
            found += outer_of[i] == o && r->domain[i] == g->outer[o];
        }
        if (found != 1 && g->outer[o] != 1) {
            *why = TCI_WHY_SPACE;
            return false;
        }
    }
    int last = -1;
    for (int i = 0; i < r->n_domain; i++) {
        if (outer_of[i] >= 0) {
            *why = TCI_WHY_INDEX;
            if (outer_of[i] < last) {
                return false;
            }
            last = outer_of[i];
        }
    }
    return true;
}

/* A group of plain values becomes a row group of reduction r that reads it: the axes r reduces turn
 * inner. */
static bool tci_group_turn_rows(tci_fusion *f, const tci_root *r, int group)
{
    tci_group *g = &f->groups[group];
    int32_t *outer_of = TCI_NEW_ARRAY(f->s, int32_t, g->n_outer + 1);
    for (int i = 0; i < r->n_reads; i++) {
        const tci_read *read = &r->reads[i];
        const tci_root *q = &f->roots[read->root];
        if (q->group != group) {
            continue;
        }
        if (!read->pure || q->node->rank != r->n_domain) {
            return false;
        }
        for (int a = 0; a < q->node->rank; a++) {
            int axis = read->axes[a];
            if (axis < 0 || (a > 0 && axis < r->n_out && read->axes[a - 1] >= r->n_out)) {
                return false;
            }
            outer_of[a] = axis < r->n_out ? axis : -1;
        }
    }
    for (int m = 0; m < g->n_roots; m++) {
        tci_root *q = &f->roots[g->roots[m]];
        for (int a = 0; a < q->n_domain; a++) {
            if (q->outer_of[a] != a || q->domain[a] != g->outer[a]) {
                return false;
            }
        }
    }
    for (int m = 0; m < g->n_roots; m++) {
        tci_root *q = &f->roots[g->roots[m]];
        for (int a = 0; a < q->n_domain; a++) {
            q->outer_of[a] = outer_of[a];
        }
    }
    g->n_outer = r->n_out;
    for (int o = 0; o < r->n_out; o++) {
        g->outer[o] = r->domain[o];
    }
    return true;
}

static bool tci_group_identity_rows(const tci_root *r, const int32_t *outer_of)
{
    for (int i = 0; i < r->n_domain; i++) {
        int want = i < r->n_out ? i : -1;
        if (outer_of[i] != want && r->domain[i] != 1) {
            return false;
        }
    }
    return true;
}

static bool tci_group_fits(tci_fusion *f, int root, int group, tci_why *why)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    if (g->n_insts + r->n_insts > TCI_GROUP_MAX_INSTS || g->n_roots >= TCI_GROUP_MAX_ROOTS) {
        *why = TCI_WHY_SIZE;
        return false;
    }
    if (r->kind == TCI_ROOT_CONTRACT || r->kind == TCI_ROOT_SCAN) {
        *why = r->kind == TCI_ROOT_SCAN ? TCI_WHY_SCAN : TCI_WHY_CONTRACTION;
        return false;
    }
    if (r->kind == TCI_ROOT_REDUCE && (g->has_contract || g->has_scan)) {
        *why = TCI_WHY_CONTRACTION;
        return false;
    }
    if (tci_group_makes_cycle(f, r, group)) {
        *why = TCI_WHY_CYCLE;
        return false;
    }
    return true;
}

/* Puts root into a group it reads from, if one takes it. */
static bool tci_group_join_source(tci_fusion *f, int root, int group)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    const tci_node *source = f->roots[g->roots[0]].node;
    int32_t *outer_of = TCI_NEW_ARRAY(f->s, int32_t, r->n_domain + 1);
    tci_why why = TCI_WHY_SPACE;
    if (!tci_group_fits(f, root, group, &why)) {
        tci_group_refuse(f, r->node, source, why);
        return false;
    }
    bool plain = !g->has_reduce && !g->has_contract && !g->has_scan;
    if (r->kind == TCI_ROOT_REDUCE && plain && tci_group_turn_rows(f, r, group)) {
        for (int i = 0; i < r->n_domain; i++) {
            r->outer_of[i] = i < r->n_out ? i : -1;
        }
        tci_group_put(f, group, root);
        return true;
    }
    bool fits = tci_group_map_reads(f, r, group, outer_of, &why);
    if (fits && r->kind == TCI_ROOT_REDUCE && (!tci_group_identity_rows(r, outer_of) || plain)) {
        fits = false;
        why = TCI_WHY_SPACE;
    }
    for (int i = 0; fits && (g->has_contract || plain) && i < r->n_domain; i++) {
        if (outer_of[i] < 0 && r->domain[i] != 1) {
            fits = false;
            why = plain ? TCI_WHY_SPACE : TCI_WHY_CONTRACTION;
        }
    }
    if (!fits) {
        tci_group_refuse(f, r->node, source, why);
        return false;
    }
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = outer_of[i];
    }
    tci_group_put(f, group, root);
    return true;
}

static bool tci_group_shares_source(const tci_fusion *f, const tci_root *a, const tci_root *b)
{
    for (int i = 0; i < a->n_leaves; i++) {
        for (int j = 0; j < b->n_leaves; j++) {
            if (a->leaves[i] == b->leaves[j]) {
                return true;
            }
        }
    }
    for (int i = 0; i < a->n_reads; i++) {
        for (int j = 0; j < b->n_reads; j++) {
            if (f->roots[a->reads[i].root].node == f->roots[b->reads[j].root].node) {
                return true;
            }
        }
    }
    return false;
}

/* Siblings: the same kind of loops over the same sizes, and a source in common (or small
 * anyway). */
static bool tci_group_join_sibling(tci_fusion *f, int root, int group)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    const tci_root *first = &f->roots[g->roots[0]];
    if (r->kind != first->kind || r->kind == TCI_ROOT_CONTRACT || r->kind == TCI_ROOT_SCAN ||
        r->n_domain != first->n_domain || r->n_out != first->n_out || g->n_outer != r->n_out) {
        return false;
    }
    int64_t count = 1;
    for (int i = 0; i < r->n_domain; i++) {
        count *= tci_dim_hint(r->domain[i]);
        int want = i < r->n_out ? i : -1;
        if (r->domain[i] != first->domain[i] || first->outer_of[i] != want) {
            return false;
        }
    }
    for (int i = 0; i < r->n_reads; i++) { /* what reads a member is no sibling */
        if (f->roots[r->reads[i].root].group == group) {
            return false;
        }
    }
    int streams = 0;
    for (int i = 0; i < g->n_roots; i++) {
        const tci_root *q = &f->roots[g->roots[i]];
        streams += q->n_leaves + q->n_reads + 1;
    }
    if (streams > TCI_GROUP_MAX_STREAMS ||
        (count > TCI_GROUP_SMALL && !tci_group_shares_source(f, r, first))) {
        return false;
    }
    tci_why why;
    if (!tci_group_fits(f, root, group, &why)) {
        return false;
    }
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = i < r->n_out ? i : -1;
    }
    tci_group_put(f, group, root);
    return true;
}

/* It joined one group: what it reads from others, older ones that were not tried, is in memory. */
static void tci_group_refuse_others(tci_fusion *f, const tci_root *r)
{
    for (int i = 0; i < r->n_reads; i++) {
        const tci_root *source = &f->roots[r->reads[i].root];
        if (source->group < r->group) {
            tci_group_refuse(f, r->node, source->node,
                             source->kind == TCI_ROOT_SCAN       ? TCI_WHY_SCAN
                             : source->kind == TCI_ROOT_CONTRACT ? TCI_WHY_CONTRACTION
                                                                 : TCI_WHY_SPACE);
        }
    }
}

/* It starts a group of its own: says why not with the nearest group that reads what it reads. */
static void tci_group_refuse_sibling(tci_fusion *f, int root, int last)
{
    const tci_root *r = &f->roots[root];
    for (int g = f->n_groups - 1; g >= last && r->n_reads == 0; g--) {
        const tci_root *first = &f->roots[f->groups[g].roots[0]];
        if (tci_group_shares_source(f, r, first)) {
            bool same = r->kind == first->kind && r->n_domain == first->n_domain;
            for (int i = 0; same && i < r->n_domain; i++) {
                same = r->domain[i] == first->domain[i];
            }
            tci_group_refuse(f, r->node, first->node, same ? TCI_WHY_SIZE : TCI_WHY_SPACE);
            return;
        }
    }
}

static void tci_group_place(tci_fusion *f, int root)
{
    tci_root *r = &f->roots[root];
    int tried = f->n_groups;
    for (;;) { /* groups it reads from, newest first */
        int best = -1;
        for (int i = 0; i < r->n_reads; i++) {
            int g = f->roots[r->reads[i].root].group;
            best = g < tried && g > best ? g : best;
        }
        if (best < 0) {
            break;
        }
        if (tci_group_join_source(f, root, best)) {
            tci_group_refuse_others(f, r);
            return;
        }
        tried = best;
    }
    int last = TCI_MAX(0, f->n_groups - TCI_GROUP_SIBLINGS);
    for (int g = f->n_groups - 1; g >= last; g--) {
        if (tci_group_join_sibling(f, root, g)) {
            return;
        }
    }
    tci_group_refuse_sibling(f, root, last);
    tci_group_put(f, tci_group_new(f, root), root);
}

/* ---- what inlining repeats ---- */

static void tci_group_costs(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        int64_t cost = tci_op_is_ew(n->op)   ? tci_lower_cost(n->op)
                       : n->op == TCI_OP_CAT ? 2 * n->n_in
                                             : 0;
        for (int j = 0; j < n->n_in; j++) {
            tci_pnode *p = tci_pnode_of(n->in[j]);
            cost += p->root >= 0 ? 0 : p->cost;
        }
        tci_pnode_of(n)->cost = (int32_t)TCI_MIN(cost, 1 << 20);
    }
}

static bool tci_group_may_store(const tci_node *n)
{
    return tci_op_is_ew(n->op) || n->op == TCI_OP_WHERE || n->op == TCI_OP_CAST ||
           n->op == TCI_OP_CAT || n->op == TCI_OP_GATHER;
}

/* Counts in how many groups, and how often in one root, each inlined node was evaluated. */
static void tci_group_count_repeats(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode *p = tci_pnode_of(f->nodes.items[i]);
        p->seen_group = p->seen_root = -1;
        p->n_groups = p->n_here = 0;
    }
    for (int g = 0; g < f->n_groups; g++) {
        for (int m = 0; m < f->groups[g].n_roots; m++) {
            int root = f->groups[g].roots[m];
            int here = 0;
            for (int i = 0; i < f->roots[root].n_inlined; i++) {
                tci_pnode *p = tci_pnode_of(f->roots[root].inlined[i]);
                p->n_groups += p->seen_group != g;
                p->seen_group = g;
                here = p->seen_root == root ? here + 1 : 1;
                p->seen_root = root;
                p->n_here = TCI_MAX(p->n_here, here);
            }
        }
    }
}

/* Forces the topmost repeated values into memory; true when there were any. */
static bool tci_group_force_repeats(tci_fusion *f)
{
    tci_group_count_repeats(f);
    bool any = false;
    for (int i = f->nodes.n - 1; i >= 0; i--) {
        tci_node *n = f->nodes.items[i];
        tci_pnode *p = tci_pnode_of(n);
        if (p->forced || p->root >= 0 || tci_group_is_leaf(n)) {
            continue;
        }
        bool shared = p->n_groups > 1 && p->cost >= TCI_GROUP_SHARED_COST;
        bool again = p->n_here > 1 && (int64_t)p->n_here * p->cost >= TCI_GROUP_AGAIN_COST;
        if ((shared || again) && tci_group_may_store(n)) {
            p->forced = any = true;
            tci_str_printf(f->why, "%s gets memory: %s\n", tci_op_name(n->op),
                           tci_why_texts[shared ? TCI_WHY_SHARED : TCI_WHY_AGAIN]);
            for (int j = 0; j < n->n_in; j++) { /* what feeds only it is no longer repeated */
                tci_pnode_of(n->in[j])->n_groups = 0;
                tci_pnode_of(n->in[j])->n_here = 0;
            }
        } else if (p->n_groups == 0) {
            for (int j = 0; j < n->n_in; j++) {
                tci_pnode_of(n->in[j])->n_groups = 0;
                tci_pnode_of(n->in[j])->n_here = 0;
            }
        }
    }
    return any;
}

static bool tci_group_moves(const tci_node *n)
{
    return n->op == TCI_OP_SLICE || n->op == TCI_OP_PAD || n->op == TCI_OP_WINDOW ||
           n->op == TCI_OP_GATHER;
}

/* Bounds what a probe can inline: along one path at most TCI_GROUP_DEPTH reductions or index
 * changes under a value with several users, else evaluation would repeat without end. */
static void tci_group_cut_depth(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        for (int j = 0; j < f->nodes.items[i]->n_in; j++) {
            tci_pnode_of(f->nodes.items[i]->in[j])->n_uses++;
        }
    }
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        tci_pnode *p = tci_pnode_of(n);
        for (int j = 0; j < n->n_in; j++) {
            p->depth = TCI_MAX(p->depth, tci_pnode_of(n->in[j])->depth);
            p->moves = TCI_MAX(p->moves, tci_pnode_of(n->in[j])->moves);
        }
        p->depth += tci_op_is_reduce(n->op);
        p->moves += tci_group_moves(n);
        bool deep = p->depth >= TCI_GROUP_DEPTH || p->moves >= TCI_GROUP_DEPTH;
        p->forced |= deep && p->n_uses > 1 && tci_group_may_store(n);
        if (p->forced || n->op == TCI_OP_CONTRACT || n->op == TCI_OP_SCAN) {
            p->depth = p->moves = 0;
        }
    }
}

/* ---- order ---- */

static void tci_group_sort(tci_fusion *f)
{
    f->order = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1);
    int32_t *state = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1); /* 0 new, 1 open, 2 done */
    int32_t *stack = NULL;
    int n_order = 0, n = 0, cap = 0;
    for (int start = 0; start < f->n_groups; start++) {
        TCI_PUSH(f->s, stack, n, cap, start);
        while (n > 0) {
            int g = stack[n - 1];
            if (state[g] != 0) {
                n--;
                if (state[g] == 1) {
                    f->order[n_order++] = g;
                    state[g] = 2;
                }
                continue;
            }
            state[g] = 1;
            for (int i = f->groups[g].n_deps - 1; i >= 0; i--) {
                int dep = f->groups[g].deps[i];
                TCI_ASSERT(f->s, state[dep] != 1);
                if (state[dep] == 0) {
                    TCI_PUSH(f->s, stack, n, cap, dep);
                }
            }
        }
    }
}

TCI_FN tci_fusion *tci_plan_fuse(tci_scratch *s, tci_node *const *outputs, int n_outputs,
                                 tci_str *why)
{
    tci_fusion *f = TCI_NEW(s, tci_fusion);
    f->s = s;
    f->why = why;
    f->nodes = tci_graph_sort(s, outputs, n_outputs);
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode *p = TCI_NEW(s, tci_pnode);
        p->forced = f->nodes.items[i]->mark == 1;
        f->nodes.items[i]->pass = p;
    }
    tci_group_cut_depth(f);
    for (int round = 0; round < TCI_GROUP_ROUNDS; round++) {
        size_t keep = why->n;
        tci_group_find_roots(f, outputs, n_outputs);
        for (int r = 0; r < f->n_roots; r++) {
            tci_group_probe_root(f, r);
            tci_group_place(f, r);
        }
        tci_group_costs(f);
        if (round + 1 == TCI_GROUP_ROUNDS || !tci_group_force_repeats(f)) {
            break;
        }
        why->n = TCI_MIN(why->n, keep);
    }
    tci_group_sort(f);
    return f;
}
