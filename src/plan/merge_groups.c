/* plan/merge_groups.c - merges several fusion groups into one.
 *
 * In: groups of a finished round, one of which gives the outer space. Out: the axes of all their
 * roots in the new group, computed on copies; then the group, or the reason why it is illegal.
 *
 *     INTO    keeps its outer axes
 *     MAKES   a producer: each axis by which INTO indexes it is outer or inner as in INTO
 *     TAKES   a contraction that reads INTO: shared axes that are outer stay outer, its summed axes
 *             are inner axes of INTO, and its other axes are new inner ones
 *
 * Inner axes of the new group are numbered, so that different roots can name the same one; two
 * axes of equal size may be different. */
#include "merge_groups.h"

#include "fusion_cost.h"

/* An axis of a part, as one of the new group; both -1: not known. */
typedef struct tci_join_axis {
    int32_t outer, inner;
} tci_join_axis;

TCI_FN bool tci_join_is_of(const tci_join *j, int root, tci_join_part part)
{
    return j->f->roots[root].group == j->group[part];
}

static int tci_join_at(const tci_join *j, int root)
{
    for (int i = 0; i < j->n_roots; i++) {
        if (j->roots[i] == root) {
            return i;
        }
    }
    return -1;
}

static int tci_join_new_inner(tci_join *j, tci_dim size)
{
    TCI_PUSH(j->f->s, j->inner, j->n_inner, j->cap_inner, size);
    return j->n_inner - 1;
}

/* ---- roots ---- */

/* The roots of groups in order. */
static void tci_join_sort(tci_join *j, const int32_t *groups, int n_groups)
{
    const tci_fusion *f = j->f;
    int room = 1;
    for (int part = 0; part < n_groups; part++) {
        room += groups[part] >= 0 ? f->groups[groups[part]].n_roots : 0;
    }
    j->roots = TCI_NEW_ARRAY(f->s, int32_t, room);
    j->n_roots = 0;
    for (int part = 0; part < n_groups; part++) {
        const tci_group *g = &f->groups[TCI_MAX(groups[part], 0)];
        for (int i = 0; i < g->n_roots && groups[part] >= 0; i++) {
            int at = j->n_roots++;
            for (; at > 0 && j->roots[at - 1] > g->roots[i]; at--) {
                j->roots[at] = j->roots[at - 1];
            }
            j->roots[at] = g->roots[i];
        }
    }
}

static void tci_join_copy_axes(tci_join *j)
{
    tci_scratch *s = j->f->s;
    const tci_group *into = &j->f->groups[j->group[TCI_JOIN_INTO]];
    j->n_inner = 0;
    j->n_outer = into->n_outer;
    j->outer = into->outer;
    for (int i = 0; i < into->n_inner && into->keeps; i++) {
        TCI_PUSH(s, j->inner, j->n_inner, j->cap_inner, into->inner[i]);
    }
    j->outer_of = TCI_NEW_ARRAY(s, int32_t *, j->n_roots + 1);
    j->inner_of = TCI_NEW_ARRAY(s, int32_t *, j->n_roots + 1);
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        j->outer_of[i] = tci_scratch_copy(s, r->outer_of, sizeof(int32_t) * (size_t)r->n_domain);
        j->inner_of[i] = TCI_NEW_ARRAY(s, int32_t, r->n_domain + 1);
        for (int d = 0; d < r->n_domain; d++) {
            j->inner_of[i][d] = r->inner_of ? r->inner_of[d] : -1;
        }
    }
}

static tci_join_axis *tci_join_axes(const tci_join *j, tci_join_part part)
{
    const tci_group *g = &j->f->groups[j->group[part]];
    tci_join_axis *axes = TCI_NEW_ARRAY(j->f->s, tci_join_axis, g->n_outer + 1);
    for (int o = 0; o < g->n_outer; o++) {
        axes[o].outer = axes[o].inner = -1;
    }
    return axes;
}

/* The roots of a part move: what were its outer axes are `axes` now. */
static void tci_join_move(tci_join *j, tci_join_part part, const tci_join_axis *axes)
{
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int d = 0; d < r->n_domain && tci_join_is_of(j, j->roots[i], part); d++) {
            int o = r->outer_of[d];
            j->outer_of[i][d] = o < 0 ? -1 : axes[o].outer;
            j->inner_of[i][d] = o < 0 ? -1 : axes[o].inner;
        }
    }
}

/* ---- axes ---- */

/* Root i of INTO reads MAKES. */
static void tci_join_read_makes(tci_join *j, int i, const tci_read *read, tci_join_axis *axes)
{
    const tci_root *r = &j->f->roots[j->roots[i]], *q = &j->f->roots[read->root];
    for (int a = 0; a < q->node->rank; a++) {
        int o = q->outer_of[q->out_axis[a]], d = read->axes[a];
        if (o < 0 || d < 0) {
            continue; /* of size 1 */
        }
        int32_t *inner = &j->inner_of[i][d];
        if (r->outer_of[d] >= 0) {
            axes[o].outer = r->outer_of[d];
            continue;
        }
        if (axes[o].inner < 0) {
            axes[o].inner = *inner >= 0 ? *inner : tci_join_new_inner(j, r->domain[d]);
        }
        *inner = *inner < 0 ? axes[o].inner : *inner;
    }
}

static bool tci_join_map_makes(tci_join *j)
{
    tci_join_axis *axes = tci_join_axes(j, TCI_JOIN_MAKES);
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        bool reads = tci_join_is_of(j, j->roots[i], TCI_JOIN_INTO);
        for (int n = 0; n < r->n_reads && reads; n++) {
            if (!tci_join_is_of(j, r->reads[n].root, TCI_JOIN_MAKES)) {
                continue;
            }
            if (!r->reads[n].pure) {
                return false;
            }
            tci_join_read_makes(j, i, &r->reads[n], axes);
        }
    }
    tci_join_move(j, TCI_JOIN_MAKES, axes);
    return true;
}

static void tci_join_map_takes(tci_join *j)
{
    const tci_fusion *f = j->f;
    const tci_group *takes = &f->groups[j->group[TCI_JOIN_TAKES]];
    tci_join_axis *axes = tci_join_axes(j, TCI_JOIN_TAKES);
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &f->roots[j->roots[i]];
        bool is_dot = tci_join_is_of(j, j->roots[i], TCI_JOIN_TAKES) &&
                      r->kind == TCI_ROOT_CONTRACT;
        for (int n = 0; is_dot && n < r->n_reads; n++) {
            const tci_read *read = &r->reads[n];
            const tci_root *q = &f->roots[read->root];
            bool reads = tci_join_is_of(j, read->root, TCI_JOIN_INTO) && read->pure;
            for (int a = 0; reads && a < q->node->rank; a++) {
                int outer = q->outer_of[q->out_axis[a]], d = read->axes[a];
                if (outer >= 0 && d >= 0 && r->outer_of[d] >= 0) {
                    axes[r->outer_of[d]].outer = outer;
                }
            }
        }
    }
    for (int o = 0; o < takes->n_outer; o++) {
        if (axes[o].outer < 0 && takes->outer[o] != 1) {
            axes[o].inner = tci_join_new_inner(j, takes->outer[o]);
        }
    }
    tci_join_move(j, TCI_JOIN_TAKES, axes);
}

/* Inner axes of root i follow from those of what it reads; the rest are new ones. */
static void tci_join_map_inner(tci_join *j, int i)
{
    const tci_root *r = &j->f->roots[j->roots[i]];
    for (int n = 0; n < r->n_reads; n++) {
        int at = tci_join_at(j, r->reads[n].root);
        const tci_root *q = &j->f->roots[r->reads[n].root];
        for (int a = 0; at >= 0 && r->reads[n].pure && a < q->node->rank; a++) {
            int d = r->reads[n].axes[a], inner = j->inner_of[at][q->out_axis[a]];
            if (d >= 0 && inner >= 0 && j->inner_of[i][d] < 0 && j->outer_of[i][d] < 0) {
                j->inner_of[i][d] = inner;
            }
        }
    }
    for (int d = 0; d < r->n_domain; d++) {
        if (j->outer_of[i][d] < 0 && j->inner_of[i][d] < 0 && r->domain[d] != 1) {
            j->inner_of[i][d] = tci_join_new_inner(j, r->domain[d]);
        }
    }
}

/* ---- checks ---- */

/* True if the root's value is evaluated in the group for the roots after it, and not only stored.
 */
static bool tci_join_is_evaluated(const tci_root *r)
{
    return r->kind != TCI_ROOT_SCAN && r->kind != TCI_ROOT_SCATTER && r->kind != TCI_ROOT_REPEAT &&
           r->kind != TCI_ROOT_CUSTOM;
}

/* Every read inside is pure, at the same outer and inner axes. */
static bool tci_join_check_reads(const tci_join *j, int i)
{
    const tci_root *r = &j->f->roots[j->roots[i]];
    for (int n = 0; n < r->n_reads; n++) {
        int at = tci_join_at(j, r->reads[n].root);
        const tci_root *q = &j->f->roots[r->reads[n].root];
        if (at >= 0 && (!r->reads[n].pure || !tci_join_is_evaluated(q))) {
            return false;
        }
        for (int a = 0; at >= 0 && a < q->node->rank; a++) {
            int d = r->reads[n].axes[a], of = q->out_axis[a];
            if (d >= 0 && q->domain[of] != 1 &&
                (j->outer_of[at][of] != j->outer_of[i][d] ||
                 j->inner_of[at][of] != j->inner_of[i][d])) {
                return false;
            }
        }
    }
    return true;
}

/* Outer axes are traversed once, in order, but for values made of pairs, which another order of
 * axes stores elsewhere; no inner axis twice. `rows`: a reduction is among the roots; else a value
 * is computed at outer points alone. */
static bool tci_join_check_walk(const tci_join *j, int i, bool pairs, bool rows)
{
    const tci_root *r = &j->f->roots[j->roots[i]];
    bool any_order = pairs && r->kind == TCI_ROOT_VALUE;
    int last = -1, walked = 0, wanted = 0, kept = 0;
    for (int d = 0; d < r->n_domain; d++) {
        int outer = j->outer_of[i][d];
        if (outer >= 0 && ((outer <= last && !any_order) || j->outer[outer] != r->domain[d])) {
            return false;
        }
        last = outer >= 0 ? outer : last;
        walked += outer >= 0 && r->domain[d] != 1;
        kept += outer < 0 && d < r->n_out && r->domain[d] != 1;
        for (int e = 0; e < d; e++) {
            if ((outer >= 0 && outer == j->outer_of[i][e]) ||
                (j->inner_of[i][d] >= 0 && j->inner_of[i][d] == j->inner_of[i][e])) {
                return false;
            }
        }
    }
    for (int o = 0; o < j->n_outer; o++) {
        wanted += j->outer[o] != 1;
    }
    if (walked != wanted) {
        return false;
    }
    switch ((tci_root_kind)r->kind) {
    case TCI_ROOT_VALUE: return rows || kept == 0;
    case TCI_ROOT_REDUCE: return kept == 0;
    case TCI_ROOT_CONTRACT: return (kept > 0) == j->keeps;
    case TCI_ROOT_SCAN:
    case TCI_ROOT_SCATTER:
    case TCI_ROOT_REPEAT:
    case TCI_ROOT_CUSTOM:
    case TCI_ROOT_KINDS: return false;
    }
    return false;
}

/* Size and operands of the roots together. */
static void tci_join_measure(const tci_join *j, int *weight, int *operands)
{
    int stamp = ++j->f->stamp;
    *weight = *operands = 0;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int n = 0; n < r->n_inlined; n++) {
            tci_pnode *pn = tci_pnode_of(j->f, r->inlined[n]);
            *weight += pn->walked != stamp ? tci_store_weight(j->f, r, r->inlined[n]) : 0;
            pn->walked = stamp;
        }
        for (int n = 0; n < r->n_leaves + r->n_reads; n++) {
            bool leaf = n < r->n_leaves;
            int root = leaf ? -1 : r->reads[n - r->n_leaves].root;
            tci_pnode *pn = tci_pnode_of(j->f, leaf ? r->leaves[n] : j->f->roots[root].node);
            *operands += pn->met != stamp && (leaf || tci_join_at(j, root) < 0);
            pn->met = stamp;
        }
    }
}

/* True if a root reads a value of another one that is kept apart from its readers. */
static bool tci_join_is_cut(const tci_join *j)
{
    bool cut = false;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int n = 0; n < r->n_reads; n++) {
            cut = cut || (tci_pnode_of(j->f, r->reads[n].node)->apart &&
                          tci_join_at(j, r->reads[n].root) >= 0);
        }
    }
    return cut;
}

/* True if all folds have one class. */
static bool tci_join_check_classes(const tci_join *j)
{
    bool same = true;
    for (int i = 0; i < j->n_roots && same; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        if (r->kind == TCI_ROOT_REDUCE || r->kind == TCI_ROOT_SCAN) {
            for (int o = 0; o < i && same; o++) {
                const tci_root *of = &j->f->roots[j->roots[o]];
                bool folds = of->kind == TCI_ROOT_REDUCE || of->kind == TCI_ROOT_SCAN;
                same = !folds || tci_class_is_same(j->f, r->node, of->node);
            }
        }
    }
    return same;
}

/* pairs: values that are kept need no extra row. */
static bool tci_join_check(const tci_join *j, bool pairs, tci_why *why)
{
    int weight, operands, kinds[TCI_ROOT_KINDS] = {0};
    for (int i = 0; i < j->n_roots; i++) {
        kinds[j->f->roots[j->roots[i]].kind]++;
    }
    *why = TCI_WHY_CONTRACTION;
    if (!j->keeps && kinds[TCI_ROOT_REDUCE] > 0 && kinds[TCI_ROOT_CONTRACT] > 0) {
        return false;
    }
    *why = TCI_WHY_PRICE;
    if (tci_join_is_cut(j)) {
        return false;
    }
    *why = TCI_WHY_CLASS;
    if (!tci_join_check_classes(j)) {
        return false;
    }
    *why = TCI_WHY_ONCE;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_node *first = j->f->roots[j->roots[0]].node;
        const tci_node *root = j->f->roots[j->roots[i]].node;
        if (tci_pnode_of(j->f, root)->once != tci_pnode_of(j->f, first)->once) {
            return false;
        }
    }
    *why = TCI_WHY_INDEX;
    for (int i = 0; i < j->n_roots; i++) {
        if (!tci_join_check_reads(j, i) ||
            !tci_join_check_walk(j, i, pairs, pairs || kinds[TCI_ROOT_REDUCE] > 0)) {
            return false;
        }
    }
    tci_join_measure(j, &weight, &operands);
    *why = TCI_WHY_SIZE;
    return j->n_roots <= TCI_GROUP_MAX_ROOTS && weight <= TCI_COST_KERNEL_OPS &&
           operands <= TCI_COST_KERNEL_OPERANDS;
}

TCI_FN bool tci_join_try(tci_join *j, tci_why *why)
{
    *why = TCI_WHY_INDEX;
    tci_join_sort(j, j->group, 3);
    tci_join_copy_axes(j);
    if (!tci_join_map_makes(j)) {
        return false;
    }
    if (j->group[TCI_JOIN_TAKES] >= 0) {
        tci_join_map_takes(j);
    }
    for (int i = 0; i < j->n_roots; i++) {
        tci_join_map_inner(j, i);
    }
    return tci_join_check(j, false, why);
}

/* ---- pairs ---- */

/* Axes of domains that reads say are the same: a forest over all axes of all roots. */
typedef struct tci_join_same {
    int32_t *first; /* per root: where its axes begin */
    int32_t *up;    /* per axis */
} tci_join_same;

static int tci_join_axis_of(const tci_join_same *same, int root, int d)
{
    int at = same->first[root] + d;
    while (same->up[at] != at) {
        at = same->up[at];
    }
    return at;
}

static bool tci_join_find_same(const tci_join *j, tci_join_same *same)
{
    int n = 0;
    same->first = TCI_NEW_ARRAY(j->f->s, int32_t, j->n_roots + 1);
    for (int i = 0; i < j->n_roots; i++) {
        same->first[i] = n;
        n += j->f->roots[j->roots[i]].n_domain;
    }
    same->up = TCI_NEW_ARRAY(j->f->s, int32_t, n + 1);
    for (int a = 0; a < n; a++) {
        same->up[a] = a;
    }
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int k = 0; k < r->n_reads; k++) {
            int at = tci_join_at(j, r->reads[k].root);
            const tci_root *q = &j->f->roots[r->reads[k].root];
            if (at >= 0 && !r->reads[k].pure) {
                return false;
            }
            for (int a = 0; at >= 0 && a < q->node->rank; a++) {
                if (r->reads[k].axes[a] >= 0) {
                    int from = tci_join_axis_of(same, at, q->out_axis[a]);
                    same->up[tci_join_axis_of(same, i, r->reads[k].axes[a])] = from;
                }
            }
        }
    }
    return true;
}

/* The numbers of all axes of the new group. */
static void tci_join_number(tci_join *j, const tci_join_same *same, int product, uint64_t summed)
{
    int at = tci_join_at(j, product),
        n = same->first[j->n_roots - 1] + j->f->roots[j->roots[j->n_roots - 1]].n_domain;
    const tci_root *p = &j->f->roots[product];
    tci_join_axis *axes = TCI_NEW_ARRAY(j->f->s, tci_join_axis, n + 1);
    for (int a = 0; a < n; a++) {
        axes[a].outer = axes[a].inner = -1;
    }
    j->n_outer = 0;
    j->outer = TCI_NEW_ARRAY(j->f->s, tci_dim, p->node->rank + 1);
    for (int a = 0; a < p->node->rank; a++) {
        if (!(summed >> a & 1) && p->node->shape[a] != 1) {
            axes[tci_join_axis_of(same, at, p->out_axis[a])].outer = j->n_outer;
            j->outer[j->n_outer++] = p->node->shape[a];
        }
    }
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int d = 0; d < r->n_domain; d++) {
            tci_join_axis *axis = &axes[tci_join_axis_of(same, i, d)];
            bool is_new = axis->outer < 0 && axis->inner < 0 && r->domain[d] != 1;
            axis->inner = is_new ? tci_join_new_inner(j, r->domain[d]) : axis->inner;
            j->outer_of[i][d] = r->domain[d] != 1 ? axis->outer : -1;
            j->inner_of[i][d] = r->domain[d] != 1 ? axis->inner : -1;
        }
    }
}

TCI_FN bool tci_join_try_pairs(tci_join *j, const int32_t *groups, int n_groups, int product,
                               uint64_t summed, tci_why *why)
{
    tci_join_same same;
    *why = TCI_WHY_INDEX;
    j->keeps = true;
    j->group[TCI_JOIN_INTO] = groups[0];
    j->group[TCI_JOIN_MAKES] = j->group[TCI_JOIN_TAKES] = -1;
    tci_join_sort(j, groups, n_groups);
    tci_join_copy_axes(j);
    if (!tci_join_find_same(j, &same)) {
        return false;
    }
    tci_join_number(j, &same, product, summed);
    return tci_join_check(j, true, why);
}

/* ---- building ---- */

static void tci_join_find_deps(tci_fusion *f, int group)
{
    tci_group *g = &f->groups[group];
    int stamp = ++f->stamp;
    g->n_deps = 0;
    g->stamp = stamp;
    for (int i = 0; i < g->n_roots; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        for (int n = 0; n < tci_root_n_before(r); n++) {
            int dep = f->roots[tci_root_before(f, r, n)].group;
            if (f->groups[dep].stamp != stamp) {
                f->groups[dep].stamp = stamp;
                TCI_PUSH(f->s, g->deps, g->n_deps, g->cap_deps, dep);
            }
        }
    }
}

TCI_FN void tci_join_build(tci_join *j)
{
    tci_fusion *f = j->f;
    tci_group *g = &f->groups[j->group[TCI_JOIN_INTO]];
    for (int i = 0; i < j->n_roots; i++) {
        tci_root *r = &f->roots[j->roots[i]];
        f->groups[r->group].n_roots = 0;
        r->group = j->group[TCI_JOIN_INTO];
        r->outer_of = j->outer_of[i];
        r->inner_of = j->keeps ? j->inner_of[i] : NULL;
        g->has_reduce |= r->kind == TCI_ROOT_REDUCE;
        g->has_contract |= r->kind == TCI_ROOT_CONTRACT;
    }
    g->roots = j->roots;
    g->n_roots = g->cap_roots = j->n_roots;
    g->keeps = j->keeps;
    g->outer = j->outer;
    g->n_outer = j->n_outer;
    if (j->keeps) {
        g->inner = tci_scratch_copy(f->s, j->inner, sizeof(tci_dim) * (size_t)j->n_inner);
        g->n_inner = j->n_inner;
    }
    tci_join_measure(j, &g->weight, &g->n_operands);
    tci_join_find_deps(f, j->group[TCI_JOIN_INTO]);
}

TCI_FN void tci_join_renumber(tci_fusion *f)
{
    int n = 0, kept = 0;
    for (int g = 0; g < f->n_groups; g++) {
        if (f->groups[g].n_roots > 0) {
            f->groups[n] = f->groups[g];
            for (int i = 0; i < f->groups[n].n_roots; i++) {
                f->roots[f->groups[n].roots[i]].group = n;
            }
            n++;
        }
    }
    f->n_groups = n;
    for (int g = 0; g < n; g++) {
        tci_join_find_deps(f, g);
    }
    for (int i = 0; i < f->n_refusals; i++) {
        const tci_refusal r = f->refusals[i];
        int reader = tci_pnode_of(f, r.reader)->root, source = tci_pnode_of(f, r.source)->root;
        if (f->roots[reader].group != f->roots[source].group) {
            f->refusals[kept++] = r;
        }
    }
    f->n_refusals = kept;
}
