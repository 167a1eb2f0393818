/* plan/fission.c - cost-guided fission: finds groups whose estimated time is far above their
 * roofline, and decides whether a plan that stores one more of their values is cheaper.
 *
 * In: a finished plan; trial plans of the same program that materialize one more value (a cut).
 * Out: the candidate groups, the values of each that may be stored, and for each trial the model's
 * cost of the same nodes in both plans. plan/plan.c makes the trials and keeps the profitable cuts.
 *
 * A group is a candidate if the cheapest schedule of its kernel (tci_loop_price) costs more than
 * TCI_PRICE_SUSPECT percent of its floor (roofline), and exceeds it by more than the least saving
 * of a cut. The floor is the larger of the times of its memory traffic and of its arithmetic with
 * each value evaluated once. Contractions without packing, repeated arithmetic and accesses without
 * a vector form make a group a candidate; a program without such kernels is planned once. Of
 * candidates that read each other, only the one furthest above its floor is tried in a round,
 * because their trials would be compared together; one for which no cut is profitable is not tried
 * again.
 *
 * A cut is profitable if the trial's kernels that make the same values cost at most 1 / 1.2 of the
 * plan's. The comparison covers the candidate's values, the values that the trial's kernels make
 * with them, and so on until both sets are equal. Costs are the model's for one thread (on a GPU,
 * for all of it) and include launches. bench/results/fusion.md compares model and measurement. */
#include "fusion_groups.h"

enum {
    TCI_PRICE_SUSPECT = 120,   /* percent of its floor; */
    TCI_PRICE_LEAST_NS = 1000, /* that a cut saves at least, */
    TCI_PRICE_PART = 256,      /* of a program's time, too; */
    TCI_PRICE_LAUNCHES = 4,    /* on a device this many launches */
    TCI_PRICE_NEAR = 4,        /* times the floor: a cut that comes so near ends the search */
    TCI_PRICE_GAIN = 12,       /* what a group takes that is cut, over what its parts take, */
    TCI_PRICE_TENTH = 10,      /* in tenths */
    TCI_PRICE_LAUNCH_NS = 300, /* of a kernel on a CPU */
    TCI_PRICE_CALL = 16,       /* flops of an op that is expensive by itself */
    TCI_PRICE_PRIMS = 3,       /* primitive operations that an elementwise op has, about */
    TCI_PRICE_BROADCAST = 8    /* elements for each of its source: a broadcast is not stored */
};

/* ---- prices ---- */

/* The cached data of a kernel with its price, computed once for each text. */
static tci_prices_item *tci_price_item(tci_prices *all, const tci_plan_made *made)
{
    const tci_price nothing = {0, 0, 0};
    for (int i = 0; i < all->n; i++) {
        if (all->items[i].text.lo == made->hash.lo && all->items[i].text.hi == made->hash.hi) {
            return &all->items[i];
        }
    }
    const tci_kernel *k = made->kernel; /* pricing it allocates from its own scratch */
    tci_prices_item item = {made->hash, k ? tci_loop_price(k->s, k, all->machine) : nothing, false};
    TCI_PUSH(all->s, all->items, all->n, all->cap, item);
    return &all->items[all->n - 1];
}

static tci_price tci_price_of(tci_prices *all, const tci_plan_made *made)
{
    return tci_price_item(all, made)->price;
}

static double tci_price_of_group(tci_prices *all, const tci_plan *p, int group)
{
    tci_price price = tci_price_of(all, &p->fusion->made[group]);
    return price.ns + TCI_MAX((double)all->machine.facts.launch_ns, TCI_PRICE_LAUNCH_NS);
}

/* Minimum saving of a cut, in ns: also a fraction of the whole program. */
static double tci_price_least(const tci_prices *all)
{
    double least = TCI_MAX(TCI_PRICE_LAUNCHES * (double)all->machine.facts.launch_ns,
                           TCI_PRICE_LEAST_NS);
    return TCI_MAX(least, all->whole_ns / TCI_PRICE_PART);
}

/* ---- suspects ---- */

static double tci_price_points(const tci_root *r)
{
    double points = 1;
    for (int i = 0; i < r->n_domain; i++) {
        points *= (double)TCI_MAX(tci_dim_hint(r->domain[i]), 1);
    }
    return points;
}

/* Operations of a group that evaluates each of its values once. */
static double tci_price_flops(const tci_fusion *f, const tci_group *g)
{
    tci_table seen = tci_table_in(f->s, sizeof(bool));
    double flops = 0;
    for (int m = 0; m < g->n_roots; m++) {
        const tci_root *r = &f->roots[g->roots[m]];
        for (int i = 0; i < r->n_inlined; i++) {
            const tci_node *n = r->inlined[i];
            int cost = tci_op_get(n->op)->cost * TCI_PRICE_PRIMS;
            flops += tci_table_add(&seen, n) ? cost * (double)tci_dim_hint(tci_node_count(n)) : 0;
        }
        flops += r->kind == TCI_ROOT_VALUE ? 0 : 2 * tci_price_points(r);
    }
    return flops;
}

/* The value that a chain of views reads. */
static const tci_node *tci_price_below(const tci_node *n)
{
    while (tci_op_is(n->op, TCI_IS_VIEW)) {
        n = n->in[0];
    }
    return n;
}

/* True if n is a view of a value that was stored before groups were made: plan/decompose.c gave it
 * the layout that a matrix unit reads, and a copy of the view would have another. */
static bool tci_price_is_laid_out(const tci_fusion *f, const tci_node *n)
{
    const tci_node *below = tci_price_below(n);
    const tci_pnode *p = tci_pnode_of(f, below);
    return f->blocks && below != n && p->forced && p->forced_in == 0;
}

/* True if n is in memory without a cut, or is not worth one: one number, indices, random bits. */
static bool tci_price_is_free(const tci_fusion *f, const tci_suspect *s, const tci_node *n)
{
    const tci_pnode *p = tci_pnode_of(f, n);
    bool there = p->root >= 0 && (f->roots[p->root].group != s->group || p->apart);
    return tci_plan_is_leaf(n) || there || p->drawn || p->guards || p->index > 0 ||
           tci_op_is(n->op, TCI_IS_NUMBER) || n->op == TCI_OP_BARRIER ||
           tci_dim_le(tci_node_count(n), 1) || tci_price_is_laid_out(f, n);
}

/* The order in which cuts are tried: values that roots read of each other, computed values by their
 * bytes, copies of memory in another order. */
static double tci_price_rank(const tci_fusion *f, const tci_suspect *s, const tci_node *n)
{
    double bytes = tci_node_value_bytes(n);
    return tci_pnode_of(f, n)->root >= 0                 ? 0
           : tci_price_is_free(f, s, tci_price_below(n)) ? bytes + 1e18
                                                         : bytes;
}

static void tci_price_add_edge(const tci_fusion *f, tci_suspect *s, tci_node *n)
{
    int at = s->n_edges;
    bool skip = tci_price_is_free(f, s, n);
    for (int i = 0; i < s->n_edges; i++) {
        skip = skip || s->edges[i] == n;
    }
    double rank = skip ? 0 : tci_price_rank(f, s, n);
    while (at > 0 && tci_price_rank(f, s, s->edges[at - 1]) > rank) {
        at--;
    }
    if (skip || at == TCI_PRICE_EDGES) {
        return;
    }
    s->n_edges = TCI_MIN(s->n_edges + 1, TCI_PRICE_EDGES);
    for (int i = s->n_edges - 1; i > at; i--) {
        s->edges[i] = s->edges[i - 1];
    }
    s->edges[at] = n;
}

/* True if n, made of views alone, only repeats far fewer elements. */
static bool tci_price_is_broadcast(const tci_node *n)
{
    double few = (double)tci_dim_hint(tci_node_count(tci_price_below(n)));
    return few * TCI_PRICE_BROADCAST <= (double)tci_dim_hint(tci_node_count(n));
}

/* Edges between roots of the group: what one root reads of another, contractions first. */
static void tci_price_read_edges(const tci_fusion *f, tci_suspect *s)
{
    const tci_group *g = &f->groups[s->group];
    for (int pass = 0; pass < 2; pass++) {
        for (int m = 0; m < g->n_roots; m++) {
            const tci_root *r = &f->roots[g->roots[m]];
            for (int i = 0; i < r->n_reads; i++) {
                const tci_root *q = &f->roots[r->reads[i].root];
                bool first = q->kind == TCI_ROOT_CONTRACT;
                if (q->group == s->group && first == (pass == 0)) {
                    tci_price_add_edge(f, s, q->node);
                }
            }
        }
    }
}

/* Edges at layout ops in the group: its operands and its results. */
static void tci_price_move_edges(const tci_fusion *f, tci_suspect *s)
{
    const tci_group *g = &f->groups[s->group];
    for (int m = 0; m < g->n_roots; m++) {
        const tci_root *r = &f->roots[g->roots[m]];
        for (int i = 0; i < r->n_inlined; i++) {
            tci_node *n = r->inlined[i];
            bool moves = !tci_op_is(n->op, TCI_IS_POINTWISE);
            for (int a = 0; a < tci_plan_n_evaluated(n); a++) {
                tci_node *in = n->in[a];
                bool made = tci_op_is(in->op, TCI_IS_VIEW);
                bool last = made && !tci_op_is(n->op, TCI_IS_VIEW);
                if (last ? !tci_price_is_broadcast(in) : moves && !made) {
                    tci_price_add_edge(f, s, in);
                }
            }
        }
    }
}

/* Values that several roots evaluate, each for itself, at the cost of a call. */
static void tci_price_shared_edges(const tci_fusion *f, tci_suspect *s)
{
    const tci_group *g = &f->groups[s->group];
    tci_table seen = tci_table_in(f->s, sizeof(int32_t));
    for (int m = 0; m < g->n_roots; m++) {
        const tci_root *r = &f->roots[g->roots[m]];
        for (int i = 0; i < r->n_inlined; i++) {
            tci_node *n = r->inlined[i];
            int32_t *last = tci_table_at(&seen, n); /* the member that has it, from 1 on */
            if (*last > 0 && *last != m + 1 && n != r->node &&
                tci_op_get(n->op)->cost >= TCI_PRICE_CALL) {
                tci_price_add_edge(f, s, n);
            }
            *last = m + 1;
        }
    }
}

/* True if the group is priced far above its floor. */
static bool tci_price_is_high(tci_prices *all, const tci_plan *p, tci_suspect *s)
{
    const tci_group *g = &p->fusion->groups[s->group];
    const tci_plan_made *made = &p->fusion->made[s->group];
    tci_price price = tci_price_of(all, made);
    double flops = TCI_MIN((double)made->kernel->flops, tci_price_flops(p->fusion, g));
    s->floor = TCI_MAX(flops * price.flop_ns, price.move_ns);
    s->excess = price.ns - s->floor;
    return 100 * price.ns > TCI_PRICE_SUSPECT * s->floor && s->excess > tci_price_least(all);
}

/* True if one of the two groups depends on the other. */
static bool tci_price_is_near(const tci_fusion *f, int a, int b)
{
    bool near = false;
    for (int i = 0; i < f->groups[a].n_deps; i++) {
        near = near || f->groups[a].deps[i] == b;
    }
    for (int i = 0; i < f->groups[b].n_deps; i++) {
        near = near || f->groups[b].deps[i] == a;
    }
    return near;
}

/* Keeps the suspects next to which there is none that exceeds its floor by more: trials of
 * neighbours would be compared together. Returns how many these are. */
static int tci_price_highest(const tci_fusion *f, tci_suspect *list, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        list[i].waits = false;
        for (int j = 0; j < n && !list[i].waits; j++) {
            bool higher = list[j].excess > list[i].excess ||
                          (list[j].excess == list[i].excess && j < i);
            list[i].waits = j != i && higher && tci_price_is_near(f, list[i].group, list[j].group);
        }
    }
    for (int i = 0; i < n; i++) {
        if (!list[i].waits) {
            list[kept++] = list[i];
        }
    }
    return kept;
}

TCI_FN int tci_price_suspects(tci_prices *all, const tci_plan *p, tci_suspect **list)
{
    const tci_fusion *f = p->fusion;
    int n = 0, cap = 0;
    *list = NULL;
    all->whole_ns = 0;
    for (int i = 0; i < f->n_groups; i++) {
        all->whole_ns += tci_price_of_group(all, p, i);
    }
    for (int i = 0; i < f->n_groups; i++) {
        const tci_group *g = &f->groups[i];
        const tci_plan_made *made = &p->fusion->made[i];
        tci_suspect s = {.group = i, .best = -1, .nearest = -1};
        bool whole = g->has_repeat || g->has_scatter || g->kernel > 0 || !made->kernel ||
                     g->on_unit || /* attention, which keeps its scores out of memory */
                     tci_pnode_of(f, f->roots[g->roots[0]].node)->once;
        if (whole || tci_price_item(all, made)->settled || !tci_price_is_high(all, p, &s)) {
            continue;
        }
        tci_price_read_edges(f, &s);
        tci_price_move_edges(f, &s);
        tci_price_shared_edges(f, &s);
        if (s.n_edges > 0) {
            TCI_PUSH(f->s, *list, n, cap, s);
        }
    }
    return tci_price_highest(f, *list, n);
}

TCI_FN void tci_price_settle(tci_prices *all, const tci_plan *p, const tci_suspect *s)
{
    tci_price_item(all, &p->fusion->made[s->group])->settled = s->best < 0;
}

/* ---- trials ---- */

/* The group of node n in plan p; -1: it has no root there. */
static int tci_price_group(const tci_plan *p, const tci_node *n)
{
    const tci_pnode *known = tci_table_find(&p->fusion->known, n);
    return known && known->root >= 0 ? p->fusion->roots[known->root].group : -1;
}

/* Marks the groups of plan `to` that make what the marked ones of `from` make; true if one is
 * new. */
static bool tci_price_spread(const tci_plan *from, const bool *marks, const tci_plan *to,
                             bool *others)
{
    const tci_fusion *f = from->fusion;
    bool any = false;
    for (int g = 0; g < f->n_groups; g++) {
        for (int m = 0; marks[g] && m < f->groups[g].n_roots; m++) {
            int other = tci_price_group(to, f->roots[f->groups[g].roots[m]].node);
            any = any || (other >= 0 && !others[other]);
            others[TCI_MAX(other, 0)] |= other >= 0;
        }
    }
    return any;
}

static double tci_price_sum(tci_prices *all, const tci_plan *p, const bool *marks)
{
    double ns = 0;
    for (int g = 0; g < p->fusion->n_groups; g++) {
        ns += marks[g] ? tci_price_of_group(all, p, g) : 0;
    }
    return ns;
}

/* True if the contractions of these groups have the orders of matrix units that they have alone. */
static bool tci_price_has_units(const tci_plan *p, const bool *marks)
{
    bool has = true;
    for (int g = 0; g < p->fusion->n_groups; g++) {
        const tci_plan_made *made = marks[g] ? &p->fusion->made[g] : NULL;
        has = has && (!made || !made->kernel || made->kernel->n_reds == 0 ||
                      tci_plan_has_unit(p->fusion, &p->fusion->groups[g], made->kernel));
    }
    return has;
}

TCI_FN void tci_price_try(tci_scratch *of, tci_prices *all, const tci_plan *p,
                          const tci_plan *trial, int edge, tci_suspect *s)
{
    bool *now = TCI_NEW_ARRAY(of, bool, trial->fusion->n_groups + 1);
    bool *was = TCI_NEW_ARRAY(of, bool, p->fusion->n_groups + 1);
    int stored = tci_price_group(trial, s->edges[edge]);
    was[s->group] = true;
    now[TCI_MAX(stored, 0)] = stored >= 0;
    while (tci_price_spread(p, was, trial, now) | tci_price_spread(trial, now, p, was)) {
    }
    double before = tci_price_sum(all, p, was), after = tci_price_sum(all, trial, now);
    bool pays = before * TCI_PRICE_TENTH >= after * TCI_PRICE_GAIN &&
                before >= after + tci_price_least(all) &&
                (tci_price_has_units(trial, now) || !tci_price_has_units(p, was));
    s->n_tried++;
    if (!pays && (s->nearest < 0 || after * s->kept < s->refused * before)) {
        s->nearest = edge;
        s->kept = before;
        s->refused = after;
    }
    if (pays && (s->best < 0 || before - after > s->before - s->after)) {
        s->best = edge;
        s->before = before;
        s->after = after;
        s->n_edges = after <= TCI_PRICE_NEAR * s->floor ? edge + 1 : s->n_edges;
    }
}
