/* plan/fusion_groups.c - implements fusion: groups of nodes that become one kernel.
 * plan/fusion_groups.h defines roots, probes and groups.
 *
 * A round visits the nodes in topological order. It probes each root (plan/trial_lowering.c), puts
 * it into the group that saves most bytes, among the groups that it reads from and recent siblings,
 * or into a new one, and records what it evaluates (plan/recompute_or_store.c), which may
 * materialize values. If a round materialized any, the next one rolls back all placements starting
 * with the first of them (plan/undo_log.c) and continues there. After TCI_GROUP_ROUNDS rounds, one
 * round counts recomputation per root instead of per group, so that nothing expensive is
 * recomputed, and the round after it is the last: both start at the first node. Every refusal is
 * kept with its reason.
 *
 * Undoing at each materialized value instead of once per round would be quadratic: the gradient of
 * a long chain materializes values of its beginning at its end, one after the other. */
#include "fusion_cost.h"
#include "fusion_groups.h"
#include "fusion_refusal.h"

enum {
    TCI_GROUP_MAX_STREAMS = 24, /* leaves and reads of one kernel made by joining siblings */
    TCI_GROUP_SIBLINGS = 8,     /* how many recent groups a sibling looks at */
    TCI_GROUP_SMALL = 16384,    /* elements up to which unrelated siblings join */
    TCI_GROUP_ALONE = 1024,     /* elements of a row from which one thread should not have them */
    TCI_GROUP_WALK = 512,       /* groups visited before a cycle is assumed */
    TCI_GROUP_ROUNDS = 4
};

TCI_FN void tci_group_refuse(tci_fusion *f, const tci_node *reader, const tci_node *source,
                             tci_why why)
{
    tci_refusal refusal = {reader, source, (uint8_t)why};
    TCI_PUSH(f->s, f->refusals, f->n_refusals, f->cap_refusals, refusal);
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

static void tci_group_add_dep(tci_fusion *f, int group, int dep)
{
    tci_group *g = &f->groups[group], *on = &f->groups[dep];
    for (int i = 0; i < g->n_deps; i++) {
        if (g->deps[i] == dep) {
            return;
        }
    }
    TCI_PUSH(f->s, g->deps, g->n_deps, g->cap_deps, dep);
    TCI_PUSH(f->s, on->users, on->n_users, on->cap_users, group);
}

typedef struct tci_group_size {
    int weight, operands;
} tci_group_size;

/* Size that root r adds to a group: nodes that nothing there evaluates, sources that nothing there
 * reads. */
static tci_group_size tci_group_added(tci_fusion *f, const tci_root *r, int group)
{
    tci_group_size size = {0, 0};
    int stamp = ++f->stamp;
    for (int i = 0; i < r->n_inlined; i++) {
        bool there = tci_pnode_of(f, r->inlined[i])->group == group;
        size.weight += there ? 0 : tci_store_weight(f, r, r->inlined[i]);
    }
    for (int i = 0; i < r->n_leaves; i++) {
        size.operands += tci_pnode_of(f, r->leaves[i])->operand_of != group;
    }
    for (int i = 0; i < r->n_reads; i++) {
        const tci_root *q = &f->roots[r->reads[i].root];
        tci_pnode *p = tci_pnode_of(f, q->node);
        size.operands += q->group != group && p->operand_of != group && p->met != stamp;
        p->met = stamp;
    }
    return size;
}

/* True if adding root r to a group may make its kernel too large. The sums are tested first, since
 * they are upper bounds. */
static bool tci_group_is_large(tci_fusion *f, const tci_root *r, int group)
{
    const tci_group *g = &f->groups[group];
    if (g->n_roots >= TCI_GROUP_MAX_ROOTS) {
        return true;
    }
    if (g->weight + r->weight <= TCI_COST_KERNEL_OPS &&
        g->n_operands + r->n_operands <= TCI_COST_KERNEL_OPERANDS) {
        return false;
    }
    tci_group_size more = tci_group_added(f, r, group);
    return (more.weight > 0 && g->weight + more.weight > TCI_COST_KERNEL_OPS) ||
           (more.operands > 0 && g->n_operands + more.operands > TCI_COST_KERNEL_OPERANDS);
}

static void tci_group_read(tci_fusion *f, const tci_node *n, int group)
{
    tci_pnode *p = tci_pnode_of(f, n);
    tci_undo_node(f, p);
    p->operand_of = group;
}

static void tci_group_put(tci_fusion *f, int group, int root)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    tci_undo_group(f, group);
    r->group = group;
    g->kernel = TCI_MAX(g->kernel, tci_pnode_of(f, r->node)->kernel);
    TCI_PUSH(f->s, g->roots, g->n_roots, g->cap_roots, root);
    g->has_reduce |= r->kind == TCI_ROOT_REDUCE;
    g->has_contract |= r->kind == TCI_ROOT_CONTRACT;
    g->has_scan |= r->kind == TCI_ROOT_SCAN;
    g->has_scatter |= r->kind == TCI_ROOT_SCATTER;
    g->has_repeat |= r->kind == TCI_ROOT_REPEAT;
    tci_group_size more = tci_group_added(f, r, group);
    g->weight += more.weight;
    g->n_operands += more.operands;
    for (int i = 0; i < r->n_leaves; i++) {
        tci_group_read(f, r->leaves[i], group);
    }
    for (int i = 0; i < r->n_reads; i++) {
        tci_group_read(f, r->reads[i].node, group);
    }
    for (int i = 0; i < tci_root_n_before(r); i++) {
        int other = f->roots[tci_root_before(f, r, i)].group;
        if (other != group) {
            tci_group_add_dep(f, group, other);
        }
    }
}

/* True if `from` depends on `target` (*why is CYCLE), or if the traversal gets long (FAR). It
 * begins at the target, which came late or is read by what came late, so that little depends on
 * it. */
static bool tci_group_depends(tci_fusion *f, int from, int target, tci_why *why)
{
    int32_t *stack = NULL;
    int n = 0, cap = 0, visited = 0;
    f->stamp++;
    TCI_PUSH(f->s, stack, n, cap, target);
    while (n > 0) {
        const tci_group *g = &f->groups[stack[--n]];
        bool meets = g == &f->groups[from];
        if (meets || ++visited > TCI_GROUP_WALK) {
            *why = meets ? TCI_WHY_CYCLE : TCI_WHY_FAR;
            return true;
        }
        for (int i = 0; i < g->n_users; i++) {
            if (f->groups[g->users[i]].stamp != f->stamp) {
                f->groups[g->users[i]].stamp = f->stamp;
                TCI_PUSH(f->s, stack, n, cap, g->users[i]);
            }
        }
    }
    return false;
}

/* True if root r in g would depend on a group that depends on g. */
static bool tci_group_makes_cycle(tci_fusion *f, const tci_root *r, int group, tci_why *why)
{
    for (int i = 0; i < tci_root_n_before(r); i++) {
        int other = f->roots[tci_root_before(f, r, i)].group;
        if (other != group && tci_group_depends(f, other, group, why)) {
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
        if (q->kind == TCI_ROOT_SCAN || read->barred) {
            *why = read->barred ? TCI_WHY_BARRIER : TCI_WHY_SCAN;
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
    /* each outer axis is traversed by one axis of r, in order */
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
    for (int o = 0; o < g->n_outer; o++) {
        outer_of[o] = -1; /* r may read no root that has an axis of size 1 */
    }
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
            bool in_order = axis >= r->n_out || a == 0 || read->axes[a - 1] < axis;
            if (axis < 0 || !in_order) { /* the outer axes, in order, before the inner ones */
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
    tci_undo_group(f, group);
    for (int m = 0; m < g->n_roots; m++) {
        tci_root *q = &f->roots[g->roots[m]];
        for (int a = 0; a < q->n_domain; a++) {
            q->outer_of[a] = outer_of[a];
        }
    }
    g->n_outer = r->n_out;
    g->outer = tci_scratch_copy(f->s, r->domain, sizeof(tci_dim) * (size_t)r->n_out);
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

/* True if group g reads or computes more than one element of what r reads. */
static bool tci_group_shares_row(const tci_fusion *f, const tci_root *r, const tci_group *g)
{
    bool shares = false;
    for (int m = 0; m < g->n_roots; m++) {
        const tci_root *q = &f->roots[g->roots[m]];
        for (int i = 0; i < r->n_leaves; i++) {
            for (int j = 0; j < q->n_leaves; j++) {
                shares = shares ||
                         (r->leaves[i] == q->leaves[j] && tci_node_count(r->leaves[i]) != 1);
            }
        }
        for (int i = 0; i < r->n_reads; i++) {
            const tci_node *n = r->reads[i].node;
            for (int j = -1; j < q->n_reads; j++) {
                shares = shares ||
                         (n == (j < 0 ? q->node : q->reads[j].node) && tci_node_count(n) != 1);
            }
        }
    }
    return shares;
}

/* True if root r, which has a long row for each outer point of g, would get too few threads. This
 * is so if g has one point that shares no row with r but gives it a number; and, on GPUs, if a
 * reduction of large rows, or of many lines, was split (plan/decompose.c) and g only adds its
 * parts: then g does not read the row, which keeps the whole device busy by itself. */
static bool tci_group_idles(const tci_fusion *f, const tci_root *r, const tci_group *g,
                            const int32_t *outer_of)
{
    tci_dim points = 1, row = 1, line = 1;
    for (int o = 0; o < g->n_outer; o++) {
        points = tci_dim_mul(points, g->outer[o]);
    }
    for (int i = 0; i < r->n_domain; i++) {
        row = outer_of[i] < 0 ? tci_dim_mul(row, r->domain[i]) : row;
        line = outer_of[i] < 0 ? tci_dim_mul(line, r->domain[i]) : 1;
    }
    if (!g->has_reduce || r->kind != TCI_ROOT_VALUE || !tci_dim_is_known(points) ||
        !tci_dim_is_known(row)) {
        return false;
    }
    bool cut = tci_dim_le(points, TCI_CLASS_PIECES / 2) && tci_dim_le(TCI_CLASS_LONG_ROW, row) &&
               !tci_plan_has_rows(points, row, line);
    return (f->blocks && (cut || tci_plan_has_lines(points, row, line))) ||
           (points == 1 && tci_dim_le(TCI_GROUP_ALONE, row) && !tci_group_shares_row(f, r, g));
}

/* True if r reads a value of the group that is kept apart from its readers. */
static bool tci_group_is_cut(const tci_fusion *f, const tci_root *r, int group)
{
    bool cut = false;
    for (int i = 0; i < r->n_reads; i++) {
        cut = cut || (f->roots[r->reads[i].root].group == group &&
                      tci_pnode_of(f, r->reads[i].node)->apart);
    }
    return cut;
}

static bool tci_group_fits(tci_fusion *f, int root, int group, tci_why *why)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    const tci_node *first = f->roots[g->roots[0]].node;
    if (tci_pnode_of(f, r->node)->once != tci_pnode_of(f, first)->once) {
        *why = TCI_WHY_ONCE;
        return false;
    }
    const int kernel = tci_pnode_of(f, r->node)->kernel;
    if (f->no_fusion && (kernel == 0 || kernel != g->kernel)) { /* attention is one kernel */
        *why = TCI_WHY_APART;
        return false;
    }
    if (kernel != g->kernel && tci_group_is_alone(f, g->kernel)) {
        *why = TCI_WHY_PAIRS;
        return false;
    }
    if (f->late && tci_table_has(f->late, r->node) != tci_table_has(f->late, first)) {
        *why = TCI_WHY_LATE;
        return false;
    }
    if (tci_group_is_cut(f, r, group)) {
        *why = TCI_WHY_PRICE;
        return false;
    }
    if (tci_group_is_large(f, r, group)) {
        *why = TCI_WHY_SIZE;
        return false;
    }
    bool behind = g->has_reduce && !g->has_contract && !g->has_scan && !f->reproducible;
    if (r->kind == TCI_ROOT_CONTRACT || (r->kind == TCI_ROOT_SCAN && !behind) ||
        tci_root_is_linked(r->node) || tci_root_is_linked(first)) {
        bool scan = r->kind == TCI_ROOT_SCAN || tci_root_is_linked(first);
        *why = scan ? TCI_WHY_SCAN : TCI_WHY_CONTRACTION;
        return false;
    }
    if (r->kind == TCI_ROOT_SCATTER || g->has_scatter) {
        *why = TCI_WHY_SCATTER;
        return false;
    }
    if (g->has_repeat) {
        *why = TCI_WHY_REPEAT;
        return false;
    }
    if (r->kind == TCI_ROOT_CUSTOM || f->roots[g->roots[0]].kind == TCI_ROOT_CUSTOM) {
        *why = TCI_WHY_CUSTOM;
        return false;
    }
    if (r->kind == TCI_ROOT_REDUCE && (g->has_contract || g->has_scan)) {
        *why = TCI_WHY_CONTRACTION;
        return false;
    }
    if (kernel != 0 && kernel != g->kernel) {
        *why = TCI_WHY_PAIRS;
        return false;
    }
    if (tci_group_makes_cycle(f, r, group, why)) {
        return false;
    }
    return true;
}

/* True if group g has no fold of another class than root r. */
static bool tci_group_has_class(const tci_fusion *f, const tci_root *r, const tci_group *g)
{
    bool same = r->kind != TCI_ROOT_REDUCE && (r->kind != TCI_ROOT_SCAN || f->reproducible);
    for (int i = 0; i < g->n_roots && !same; i++) {
        const tci_root *o = &f->roots[g->roots[i]];
        bool folds = o->kind == TCI_ROOT_REDUCE || o->kind == TCI_ROOT_SCAN;
        if (folds && !tci_class_is_same(f, r->node, o->node)) {
            return false;
        }
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
    bool folds = r->kind == TCI_ROOT_REDUCE || r->kind == TCI_ROOT_SCAN;
    if (fits && folds && (!tci_group_identity_rows(r, outer_of) || plain)) {
        fits = false;
        why = TCI_WHY_SPACE;
    }
    for (int i = 0; fits && (g->has_contract || plain) && i < r->n_domain; i++) {
        if (outer_of[i] < 0 && r->domain[i] != 1) {
            fits = false;
            why = plain ? TCI_WHY_SPACE : TCI_WHY_CONTRACTION;
        }
    }
    if (fits && tci_group_idles(f, r, g, outer_of)) {
        fits = false;
        why = TCI_WHY_FEW;
    }
    if (fits && !tci_group_has_class(f, r, g)) {
        fits = false;
        why = TCI_WHY_CLASS;
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

/* Both read one value; long: of more than one element. */
static bool tci_group_shares_source(const tci_fusion *f, const tci_root *a, const tci_root *b,
                                    bool is_long)
{
    for (int i = 0; i < a->n_leaves; i++) {
        for (int j = 0; j < b->n_leaves; j++) {
            if (a->leaves[i] == b->leaves[j] && !(is_long && tci_node_count(a->leaves[i]) == 1)) {
                return true;
            }
        }
    }
    for (int i = 0; i < a->n_reads; i++) {
        const tci_node *n = f->roots[a->reads[i].root].node;
        for (int j = 0; j < b->n_reads; j++) {
            if (n == f->roots[b->reads[j].root].node && !(is_long && tci_node_count(n) == 1)) {
                return true;
            }
        }
    }
    return false;
}

/* The same kind of loops over the same sizes. */
static bool tci_group_is_like(const tci_fusion *f, const tci_root *r, int group)
{
    const tci_group *g = &f->groups[group];
    const tci_root *first = &f->roots[g->roots[0]];
    if (r->kind != first->kind || r->kind == TCI_ROOT_CONTRACT || r->kind == TCI_ROOT_SCAN ||
        r->n_domain != first->n_domain || r->n_out != first->n_out || g->n_outer != r->n_out) {
        return false;
    }
    for (int i = 0; i < r->n_domain; i++) {
        int want = i < r->n_out ? i : -1;
        if (r->domain[i] != first->domain[i] || first->outer_of[i] != want) {
            return false;
        }
    }
    return true;
}

/* Siblings: groups that are like the root, with a source in common (or small anyway, but where
 * plan/horizontal_fusion.c makes one launch of them, which needs the registers of one alone). */
static bool tci_group_join_sibling(tci_fusion *f, int root, int group)
{
    tci_root *r = &f->roots[root];
    tci_group *g = &f->groups[group];
    const tci_root *first = &f->roots[g->roots[0]];
    int64_t count = 1;
    for (int i = 0; i < r->n_domain; i++) {
        count *= tci_dim_hint(r->domain[i]);
    }
    bool alone = first->kind == TCI_ROOT_CONTRACT && tci_pnode_of(f, first->node)->apart;
    if (alone || tci_store_is_large(r) || tci_pnode_of(f, r->node)->kernel != g->kernel) {
        return false;
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
        (count > TCI_GROUP_SMALL && !tci_group_shares_source(f, r, first, false))) {
        return false;
    }
    if (f->groups_launches && r->kind == TCI_ROOT_VALUE &&
        !tci_group_shares_source(f, r, first, true)) {
        return false;
    }
    tci_why why;
    if (!tci_group_fits(f, root, group, &why) || !tci_group_has_class(f, r, g)) {
        return false;
    }
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = i < r->n_out ? i : -1;
    }
    tci_group_put(f, group, root);
    return true;
}

/* ---- choice ---- */

/* A group that may take a root: one that it reads from, or a recent sibling. */
typedef struct tci_choice {
    int group;
    bool is_source;
    double saved; /* bytes that are read once less, or not at all */
} tci_choice;

/* Bytes that root r reads and group g makes, or reads too, each value once. */
static double tci_group_saves(tci_fusion *f, const tci_root *r, int group)
{
    const tci_group *g = &f->groups[group];
    int stamp = ++f->stamp;
    double saved = 0;
    for (int i = 0; i < r->n_leaves; i++) {
        tci_pnode_of(f, r->leaves[i])->met = stamp;
    }
    for (int i = 0; i < r->n_reads; i++) {
        tci_pnode_of(f, f->roots[r->reads[i].root].node)->met = stamp;
    }
    for (int i = 0; i < g->n_roots; i++) {
        const tci_root *q = &f->roots[g->roots[i]];
        for (int j = -1; j < q->n_leaves + q->n_reads; j++) {
            const tci_node *n = j < 0             ? q->node
                                : j < q->n_leaves ? q->leaves[j]
                                                  : f->roots[q->reads[j - q->n_leaves].root].node;
            bool both = tci_pnode_of(f, n)->met == stamp;
            saved += both ? tci_node_value_bytes(n) : 0;
            tci_pnode_of(f, n)->met = both ? 0 : tci_pnode_of(f, n)->met;
        }
    }
    return saved;
}

/* Before others: what saves more; of those that save as much sources, and of these the newest. */
static bool tci_choice_is_before(const tci_choice *a, const tci_choice *b)
{
    if (a->saved != b->saved) {
        return a->saved > b->saved;
    }
    return a->is_source != b->is_source ? a->is_source : a->group > b->group;
}

/* The groups that may take r, in the order in which they are asked. */
static int tci_group_choices(tci_fusion *f, const tci_root *r, int last, tci_choice **choices)
{
    int n = 0, most = r->n_reads + TCI_GROUP_SIBLINGS, stamp = ++f->stamp;
    *choices = TCI_NEW_ARRAY(f->s, tci_choice, most);
    for (int i = 0; i < most; i++) {
        bool is_source = i < r->n_reads;
        int group = is_source ? f->roots[r->reads[i].root].group : f->n_groups - 1 - i + r->n_reads;
        if (group < (is_source ? 0 : last) || f->groups[group].stamp == stamp ||
            (!is_source && !tci_group_is_like(f, r, group))) {
            continue;
        }
        f->groups[group].stamp = stamp;
        (*choices)[n++] = (tci_choice){group, is_source, 0};
    }
    for (int i = 0; i < n; i++) {
        tci_choice c = (*choices)[i];
        int at = i;
        c.saved = n > 1 ? tci_group_saves(f, r, c.group) : 0;
        for (; at > 0 && tci_choice_is_before(&c, &(*choices)[at - 1]); at--) {
            (*choices)[at] = (*choices)[at - 1];
        }
        (*choices)[at] = c;
    }
    return n;
}

/* After the root joined a group: materializes what it reads from the groups that were not asked. */
static void tci_group_refuse_others(tci_fusion *f, const tci_root *r, const tci_choice *others,
                                    int n)
{
    for (int i = 0; i < r->n_reads; i++) {
        const tci_root *source = &f->roots[r->reads[i].root];
        bool unasked = false;
        for (int j = 0; j < n; j++) {
            unasked = unasked || others[j].group == source->group;
        }
        if (unasked) {
            tci_group_refuse(f, r->node, source->node,
                             source->kind == TCI_ROOT_SCAN       ? TCI_WHY_SCAN
                             : source->kind == TCI_ROOT_SCATTER  ? TCI_WHY_SCATTER
                             : source->kind == TCI_ROOT_REPEAT   ? TCI_WHY_REPEAT
                             : source->kind == TCI_ROOT_CUSTOM   ? TCI_WHY_CUSTOM
                             : source->kind == TCI_ROOT_CONTRACT ? TCI_WHY_CONTRACTION
                                                                 : TCI_WHY_SPACE);
        }
    }
}

/* After the root started its own group: records why it did not join the nearest group that shares
 * an operand. */
static void tci_group_refuse_sibling(tci_fusion *f, int root, int last)
{
    const tci_root *r = &f->roots[root];
    bool tells = r->n_reads == 0 && !tci_store_is_large(r);
    for (int g = f->n_groups - 1; g >= last && tells; g--) {
        const tci_root *first = &f->roots[f->groups[g].roots[0]];
        if (tci_group_shares_source(f, r, first, false)) {
            bool same = r->kind == first->kind && r->n_domain == first->n_domain;
            for (int i = 0; same && i < r->n_domain; i++) {
                same = r->domain[i] == first->domain[i];
            }
            tci_group_refuse(f, r->node, first->node, same ? TCI_WHY_SIZE : TCI_WHY_SPACE);
            return;
        }
    }
}

/* The results of a loop are one group. */
static void tci_group_place_result(tci_fusion *f, int root)
{
    const tci_root *r = &f->roots[root];
    int group = -1;
    for (int i = 0; i < r->n_domain; i++) {
        r->outer_of[i] = -1;
    }
    for (int i = 0; i < root && group < 0; i++) {
        const tci_root *q = &f->roots[i];
        group = q->kind == TCI_ROOT_REPEAT && q->node->attr[1] == r->node->attr[1] ? q->group : -1;
    }
    if (group < 0) {
        tci_group g = {0};
        TCI_PUSH(f->s, f->groups, f->n_groups, f->cap_groups, g);
        group = f->n_groups - 1;
    }
    tci_group_put(f, group, root);
}

static void tci_group_place(tci_fusion *f, int root)
{
    const tci_root *r = &f->roots[root];
    if (r->kind == TCI_ROOT_REPEAT) {
        tci_group_place_result(f, root);
        return;
    }
    int last = TCI_MAX(0, f->n_groups - TCI_GROUP_SIBLINGS);
    tci_choice *choices;
    int n = tci_group_choices(f, r, last, &choices);
    for (int i = 0; i < n; i++) {
        if (choices[i].is_source ? tci_group_join_source(f, root, choices[i].group)
                                 : tci_group_join_sibling(f, root, choices[i].group)) {
            tci_group_refuse_others(f, r, choices + i + 1, n - i - 1);
            return;
        }
    }
    tci_group_refuse_sibling(f, root, last);
    tci_group_put(f, tci_group_new(f, root), root);
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

/* ---- rounds ---- */

/* Materializes the operand of every BARRIER. */
static void tci_group_store_barred(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *source = tci_plan_source(f->nodes.items[i]);
        tci_pnode *p = tci_pnode_of(f, source);
        if (source != f->nodes.items[i] && !tci_plan_is_leaf(source) && !p->forced) {
            p->forced = true;
            p->why = TCI_WHY_BARRIER;
        }
    }
}

static tci_fusion *tci_group_begin(tci_scratch *s, tci_node *const *outputs, int n_outputs,
                                   const tci_table *forced, const tci_table *cuts,
                                   tci_unit_facts *units)
{
    tci_fusion *f = TCI_NEW(s, tci_fusion);
    f->s = s;
    f->units = units;
    f->nodes = tci_graph_sort(s, outputs, n_outputs);
    f->known = tci_table_in(s, sizeof(tci_pnode));
    f->probes = tci_table_in(s, sizeof(tci_found_root *));
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode *p = tci_table_at(&f->known, f->nodes.items[i]);
        p->place = i;
        p->root = -1;
        bool through = units && tci_table_has(&units->through, f->nodes.items[i]);
        p->apart = cuts && tci_table_has(cuts, f->nodes.items[i]);
        p->forced = p->apart || (!through && tci_table_has(forced, f->nodes.items[i]));
        p->why = p->apart ? TCI_WHY_PRICE : TCI_WHY_COUNT;
    }
    tci_group_store_barred(f);
    return f;
}

/* Of each node that pairs are computed with. */
static void tci_group_mark_kernels(const tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        const int32_t *kernel = tci_table_find(&f->pairs->of, f->nodes.items[i]);
        tci_pnode_of(f, f->nodes.items[i])->kernel = kernel ? *kernel : 0;
    }
}

TCI_FN void tci_group_round(tci_fusion *f, int from, tci_store_mode mode)
{
    tci_undo_undo(f, from);
    f->round++;
    f->first_forced = f->nodes.n;
    for (int i = from; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        if (!tci_pnode_of(f, n)->forced && tci_root_kind_of(n) == TCI_ROOT_VALUE) {
            continue;
        }
        int r = tci_root_add(f, n);
        tci_undo_begin(f);
        if (mode != TCI_STORE_NOTHING && tci_store_is_large(&f->roots[r])) {
            tci_group_put(f, tci_group_new(f, r), r); /* it will be divided */
        } else {
            tci_group_place(f, r);
        }
        tci_store_note(f, r, mode);
        f->n_placed++;
    }
}

static void tci_group_report(const tci_fusion *f, tci_str *why)
{
    for (int i = 0; i < f->n_refusals; i++) {
        const tci_refusal *r = &f->refusals[i];
        tci_str_printf(why, "%s is not computed with %s: %s", tci_op_name(r->reader->op),
                       tci_op_name(r->source->op), tci_why_text((tci_why)r->why));
        tci_why_end(why, r->reader, r->source);
    }
}

TCI_FN tci_fusion *tci_plan_fuse(tci_scratch *s, tci_node *const *outputs, int n_outputs,
                                 tci_table *associations, const tci_fusion *like,
                                 const tci_table *forced, const tci_table *cuts,
                                 const tci_table *late, const tci_scores_kernels *pairs,
                                 tci_node *const *changed, int n_changed, tci_machine machine,
                                 tci_unit_facts *units, tci_str *why)
{
    tci_fusion *f = tci_group_begin(s, outputs, n_outputs, forced, cuts, units);
    f->associations = associations;
    f->like = like;
    f->late = late;
    f->pairs = tci_scratch_copy(s, pairs, sizeof(*pairs)); /* the plan outlives its caller */
    f->joined = TCI_NEW_ARRAY(s, bool, pairs->n + 1);
    tci_group_mark_kernels(f);
    f->reproducible = machine.reproducible;
    f->no_fusion = machine.no_fusion;
    f->blocks = machine.block_threads > 0;
    f->groups_launches = f->blocks && machine.groups_launches;
    tci_init_find(f, outputs, n_outputs, changed, n_changed);
    tci_store_cut_depth(f);
    tci_store_begin(f);
    for (int i = 0; i < n_outputs; i++) {
        tci_pnode *p = tci_pnode_of(f, outputs[i]);
        p->forced = p->is_output = true;
    }
    for (int round = 0, from = 0; from < f->nodes.n; round++) {
        tci_group_round(f, round < TCI_GROUP_ROUNDS ? from : 0,
                        round < TCI_GROUP_ROUNDS    ? TCI_STORE_BY_GROUP
                        : round == TCI_GROUP_ROUNDS ? TCI_STORE_BY_ROOT
                                                    : TCI_STORE_NOTHING);
        from = f->first_forced;
    }
    if (!machine.reproducible) { /* a row that is kept has another class */
        tci_pattern_apply(f, machine);
    }
    if (why) {
        tci_group_report(f, why);
        tci_store_report(f, why);
    }
    tci_group_sort(f);
    return f;
}
