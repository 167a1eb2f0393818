/* plan/recompute_or_store.c - decides which values with several consumers are materialized:
 * recompute or store.
 *
 * A node that is no root is evaluated again by every kernel that needs it. It becomes a root
 *   where it repeats   a second kernel evaluates it, or one kernel at several indices, and that is
 *                      more expensive than to write and read it (plan/fusion_cost.h); on GPUs, the
 *                      value one or two cheap ops upstream is stored instead if it is smaller
 *   where it spreads   one value per row, more expensive than a multiplication, is needed for each
 *                      element of the row by a GPU kernel that does not make its operands
 *   where it divides   the kernel that evaluates it is too large, and the fewest bytes cross here
 *                      (random numbers are drawn again instead, and a comparison of indices is a
 *                      guard)
 *   where it is deep   evaluating it unrolls many reductions or views for each of its users, or its
 *                      index went through many RESHAPEs
 *
 * Repetition is found while roots are placed, in topological order. Each node knows its home: the
 * group that evaluated it last. A root whose traversal reaches a node with another home repeats
 * that node and all below it; the topmost expensive one is materialized at once, and later
 * traversals end there. So a value carried from step to step is stored at the step where its
 * repetition begins to cost, and no traversal goes further back: the work is linear in nodes. A
 * materialized value becomes a root in the next round (plan/fusion_groups.c), which begins there.
 *
 * The cost of a node is that of one evaluation with everything inlined into it: flops and sources
 * of the distinct nodes down to memory. The traversal that adds them up ends early, since a few
 * nodes suffice to be expensive. */
#include "fusion_cost.h"
#include "fusion_groups.h"
#include "fusion_refusal.h"

enum { TCI_STORE_NEAR = 4 /* operations, casts too, to a narrower value that is better stored */ };

/* ---- what nodes cost ---- */

/* Read from memory by whoever uses it. */
static bool tci_store_in_memory(const tci_fusion *f, const tci_node *n)
{
    if (tci_plan_is_leaf(n)) {
        return true;
    }
    const tci_pnode *p = tci_pnode_of(f, n);
    return p->root >= 0 || p->forced;
}

/* Flops of one evaluation, times the bytes of what they are done on. */
static int tci_store_work(const tci_node *n)
{
    int cost = tci_op_get(n->op)->cost;
    if (!cost) {
        return 0; /* moves only */
    }
    int flops = n->op == TCI_OP_CAT ? 2 * n->n_in : cost;
    const tci_dtype_info *t = tci_dtype_get((tc_dtype)n->in[n->n_in - 1]->dtype);
    return flops * tci_dtype_get((tc_dtype)t->compute)->bytes;
}

TCI_FN int tci_store_weight(const tci_fusion *f, const tci_root *r, const tci_node *n)
{
    int cost = tci_op_get(n->op)->cost;
    if ((n != r->node && tci_store_in_memory(f, n)) || !cost) {
        return 0;
    }
    if (n->op == TCI_OP_CAT) {
        return r->n_listed > 1 ? 0 : n->n_in;
    }
    return cost < 4 ? 1 : cost < 16 ? 2 : cost < 64 ? TCI_COST_CALL : cost;
}

static double tci_store_count(const tci_node *n)
{
    return (double)TCI_MAX(1, tci_dim_hint(tci_node_count(n)));
}

/* Of evaluating a value once, in whole: work, elements read at indices, and bytes read. The largest
 * source is not counted: who reads the value instead reads as much. All are whole numbers, so that
 * every machine decides alike. */
typedef struct tci_store_cost {
    double work, picked, bytes;
} tci_store_cost;

static tci_store_cost tci_store_measure(tci_fusion *f, tci_node *v)
{
    tci_store_cost cost = {0, 0, 0};
    double all = tci_store_count(v), largest = 0;
    int stamp = ++f->stamp, n = 0, visited = 0;
    TCI_PUSH(f->s, f->walk, n, f->cap_walk, v);
    while (n > 0) {
        tci_node *u = f->walk[--n];
        double count = TCI_MIN(all, tci_store_count(u));
        if (++visited > TCI_COST_WALK) {
            cost.work = TCI_COST_AGAIN * 4 * all;
            break;
        }
        if (u != v && tci_store_in_memory(f, u)) {
            double bytes = count * tci_dtype_get((tc_dtype)u->dtype)->bytes;
            cost.bytes += bytes;
            largest = TCI_MAX(largest, bytes);
            continue;
        }
        cost.work += count * tci_store_work(u);
        cost.picked += u->op == TCI_OP_GATHER ? count : 0;
        for (int i = 0; i < tci_plan_n_evaluated(u); i++) {
            if (tci_pnode_of(f, u->in[i])->walked != stamp) {
                tci_pnode_of(f, u->in[i])->walked = stamp;
                TCI_PUSH(f->s, f->walk, n, f->cap_walk, u->in[i]);
            }
        }
    }
    cost.bytes -= largest;
    return cost;
}

static void tci_store_force(tci_fusion *f, tci_node *n, tci_why why)
{
    tci_pnode *p = tci_pnode_of(f, n);
    p->forced = true;
    p->forced_in = f->round;
    p->why = (uint8_t)why;
    f->first_forced = TCI_MIN(f->first_forced, p->place);
}

/* ---- division of a large kernel ---- */

/* The nodes that a root evaluates, inputs first. Per position: the last one that uses it, its
 * weight, its bytes (0: it is not stored, its users read what it moves), and the bytes of all whose
 * last use it is. */
typedef struct tci_store_list {
    const tci_fusion *f;
    tci_node **nodes;
    int n;
    int32_t *last, *weight;
    double *bytes, *ends;
} tci_store_list;

TCI_FN bool tci_store_is_large(const tci_root *r)
{
    return r->weight > TCI_COST_KERNEL_OPS || r->n_operands > TCI_COST_KERNEL_OPERANDS;
}

static bool tci_store_listed(const tci_store_list *l, const tci_node *n)
{
    int at = tci_pnode_of(l->f, n)->at;
    return at < l->n && l->nodes[at] == n;
}

static void tci_store_last_uses(tci_store_list *l)
{
    for (int i = l->n - 1; i >= 0; i--) {
        const tci_node *n = l->nodes[i];
        int use = l->bytes[i] > 0 || l->last[i] == 0 ? i : l->last[i];
        for (int j = 0; j < n->n_in; j++) {
            if (tci_store_listed(l, n->in[j])) {
                int at = tci_pnode_of(l->f, n->in[j])->at;
                l->last[at] = TCI_MAX(l->last[at], use);
            }
        }
        l->last[i] = l->last[i] > 0 ? l->last[i] : l->n; /* the root */
        l->ends[l->last[i]] += l->bytes[i];
    }
}

static tci_store_list tci_store_make_list(tci_fusion *f, const tci_root *r, int stamp)
{
    int n = r->n_inlined;
    tci_store_list l = {f,
                        TCI_NEW_ARRAY(f->s, tci_node *, n + 1),
                        0,
                        TCI_NEW_ARRAY(f->s, int32_t, n + 1),
                        TCI_NEW_ARRAY(f->s, int32_t, n + 1),
                        TCI_NEW_ARRAY(f->s, double, n + 1),
                        TCI_NEW_ARRAY(f->s, double, n + 1)};
    for (int i = 0; i < n; i++) {
        tci_node *u = r->inlined[i];
        tci_pnode *p = tci_pnode_of(f, u);
        bool here = p->done == stamp && (u == r->node || !p->forced);
        if (here && !tci_store_listed(&l, u)) {
            p->at = l.n;
            l.weight[l.n] = p->n_here * tci_store_weight(f, r, u);
            l.bytes[l.n] = tci_op_is(u->op, TCI_IS_STORABLE)
                               ? tci_store_count(u) * tci_dtype_get((tc_dtype)u->dtype)->bytes
                               : 0;
            l.nodes[l.n++] = u;
        }
    }
    for (int j = 0; r->kind != TCI_ROOT_VALUE && j < r->node->n_in; j++) {
        if (tci_store_listed(&l, r->node->in[j])) { /* the reduction uses them last */
            l.last[tci_pnode_of(f, r->node->in[j])->at] = l.n;
        }
    }
    tci_store_last_uses(&l);
    return l;
}

/* Number of operands that the node at `at` adds to a part of the list. */
static int tci_store_new_operands(const tci_store_list *l, int at, int stamp)
{
    int count = 0;
    for (int j = 0; l->bytes[at] > 0 && j < l->nodes[at]->n_in; j++) {
        const tci_node *n = l->nodes[at]->in[j];
        while (!tci_store_in_memory(l->f, n) && !tci_op_is(n->op, TCI_IS_STORABLE) && n->n_in > 0) {
            n = n->in[0];
        }
        tci_pnode *p = tci_pnode_of(l->f, n);
        count += tci_store_in_memory(l->f, n) && p->met != stamp;
        p->met = stamp;
    }
    return count;
}

/* The position in the later half of [first, end) after which the fewest bytes are still used. */
static int tci_store_cheapest(const tci_store_list *l, int first, int end)
{
    double live = 0, least = -1;
    int best = end - 1;
    for (int i = first; i < end; i++) {
        live += l->bytes[i] - l->ends[i];
        if (i >= first + (end - 1 - first) / 2 && (least < 0 || live <= least)) {
            least = live;
            best = i;
        }
    }
    return best;
}

/* Forces what is made in [first, cut] and used after it. */
static void tci_store_cut(tci_fusion *f, tci_store_list *l, int first, int cut)
{
    for (int i = first; i <= cut; i++) {
        if (l->bytes[i] > 0 && l->last[i] > cut) {
            tci_store_force(f, l->nodes[i], TCI_WHY_LARGE);
            l->ends[l->last[i]] -= l->bytes[i];
        }
    }
}

/* Goes through what root r evaluates and cuts it in parts, none of them too large. A part is
 * looked at again from its cut on, at most half of it, so the work is linear. */
static void tci_store_divide(tci_fusion *f, const tci_root *r, int stamp)
{
    tci_store_list l = tci_store_make_list(f, r, stamp);
    int first = 0, weight = 0, operands = 0, part = ++f->stamp;
    for (int i = 0; i < l.n; i++) {
        weight += l.weight[i];
        operands += tci_store_new_operands(&l, i, part);
        bool large = weight > TCI_COST_KERNEL_OPS || operands > TCI_COST_KERNEL_OPERANDS;
        if (large && i > first) {
            int cut = tci_store_cheapest(&l, first, i);
            tci_store_cut(f, &l, first, cut);
            first = cut + 1;
            weight = operands = 0;
            part = ++f->stamp;
            i = cut;
        }
    }
}

/* ---- repetition ---- */

/* One number, as it is or expanded. */
static bool tci_store_is_number(const tci_node *n)
{
    while (tci_op_is(n->op, TCI_IS_VIEW)) {
        n = n->in[0];
    }
    return tci_node_count(n) == 1;
}

/* Made of random bits and numbers alone, element by element: it is evaluated wherever it is needed,
 * as a mask that every pass draws again takes no memory. */
static bool tci_store_is_drawn(const tci_fusion *f, const tci_node *n)
{
    bool drawn = tci_op_is(n->op, TCI_IS_DRAWN);
    for (int i = 0; i < n->n_in && tci_op_is(n->op, TCI_IS_POINTWISE | TCI_IS_VIEW); i++) {
        bool in = tci_pnode_of(f, n->in[i])->drawn;
        if (!in && !tci_store_is_number(n->in[i])) {
            return false;
        }
        drawn |= in;
    }
    return drawn;
}

/* The depth of n as a sum of indices and numbers, at most what a comparison of them can have; 0: it
 * is none. */
static uint8_t tci_store_index(const tci_fusion *f, const tci_node *n)
{
    bool sum = n->op == TCI_OP_ADD || n->op == TCI_OP_SUB || n->op == TCI_OP_CAST ||
               tci_op_is(n->op, TCI_IS_VIEW);
    bool fits = tci_dtype_is_int((tc_dtype)n->dtype) &&
                (sum || n->op == TCI_OP_IOTA || n->op == TCI_OP_CONST);
    int depth = 0;
    for (int i = 0; i < n->n_in && fits; i++) {
        int in = tci_pnode_of(f, n->in[i])->index;
        fits = in > 0;
        depth = TCI_MAX(depth, in);
    }
    return fits && depth < TCI_KERNEL_INDEX_DEPTH ? (uint8_t)(depth + 1) : 0;
}

static bool tci_store_is_guard(const tci_fusion *f, const tci_node *n)
{
    switch (n->op) {
    case TCI_OP_EQ:
    case TCI_OP_NE:
    case TCI_OP_LT:
    case TCI_OP_LE:
    case TCI_OP_GT:
    case TCI_OP_GE:
        return tci_pnode_of(f, n->in[0])->index > 0 && tci_pnode_of(f, n->in[1])->index > 0;
    default: return false;
    }
}

/* True if n is one operation on folds of scores alone (plan/attention_recompute.h). GPU kernels of
 * scores have forms that take such values from the folds, for example the divisor of a softmax. */
static bool tci_store_is_of_folds(const tci_fusion *f, const tci_node *n)
{
    bool folds = f->blocks && tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < n->n_in && folds; i++) {
        const tci_node *in = n->in[i];
        while (tci_op_is(in->op, TCI_IS_VIEW)) {
            in = in->in[0];
        }
        folds = tci_op_is(in->op, TCI_IS_NUMBER) ||
                (tci_op_is_reduce(in->op) && tci_pnode_of(f, in)->kernel > 0);
    }
    return folds;
}

/* True if n is of no kernel of pairs, nor what such kernels make of folds, and may be stored. */
static bool tci_store_is_apart(const tci_fusion *f, const tci_node *n)
{
    return tci_op_is(n->op, TCI_IS_STORABLE) && !tci_plan_is_leaf(n) &&
           tci_pnode_of(f, n)->kernel == 0 && !tci_store_is_of_folds(f, n);
}

/* Stores what a kernel of pairs that is alone reads of others through its node n. */
static void tci_store_read(tci_fusion *f, tci_node *n)
{
    for (int i = 0; i < tci_plan_n_evaluated(n); i++) {
        tci_node *in = n->in[i];
        if (tci_store_is_apart(f, in)) {
            tci_store_force(f, in, TCI_WHY_PAIRS);
        } else if (tci_pnode_of(f, in)->kernel == 0 && !tci_plan_is_leaf(in)) {
            tci_store_read(f, in);
        }
    }
}

/* True if the elements of x are in memory, or will be, in the order of its axes. */
static bool tci_store_is_line(const tci_fusion *f, const tci_node *x)
{
    while (x->op == TCI_OP_RESHAPE && !tci_pnode_of(f, x)->forced) {
        x = x->in[0];
    }
    return tci_plan_is_leaf(x) ? !x->strides
                               : tci_pnode_of(f, x)->forced || tci_op_is(x->op, TCI_IS_STORABLE);
}

/* True if the axes of x are those of its operand, in another order or repeated. A RESHAPE to the
 * same shape distinguishes copies of scores. */
static bool tci_store_keeps_axes(const tci_node *x)
{
    bool same = x->op == TCI_OP_RESHAPE && x->rank == x->in[0]->rank;
    for (int i = 0; i < x->rank && same; i++) {
        same = x->shape[i] == x->in[0]->shape[i];
    }
    return same || x->op == TCI_OP_PERMUTE || x->op == TCI_OP_EXPAND;
}

/* The same of a contraction: an operand whose axes RESHAPEs make of others is copied unless these
 * are in memory in their order, as each must be one axis there. */
static void tci_store_operands(tci_fusion *f, tci_node *n)
{
    for (int i = 0; i < n->n_in && n->op == TCI_OP_CONTRACT; i++) {
        tci_node *x = n->in[i];
        while (tci_store_keeps_axes(x) && !tci_pnode_of(f, x)->forced) {
            x = x->in[0];
        }
        if (x->op == TCI_OP_RESHAPE && tci_pnode_of(f, x)->kernel == 0 &&
            !tci_store_is_line(f, x) && !tci_pnode_of(f, x)->forced) {
            tci_store_force(f, x, TCI_WHY_PAIRS);
        }
    }
    tci_store_read(f, n);
}

TCI_FN void tci_store_begin(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode *p = tci_pnode_of(f, f->nodes.items[i]);
        tci_node *n = f->nodes.items[i];
        p->home = p->group = p->operand_of = -1;
        p->drawn = tci_store_is_drawn(f, n);
        p->index = tci_store_index(f, n);
        p->guards = tci_store_is_guard(f, n);
        if (f->no_fusion && !p->forced && tci_store_is_apart(f, n)) { /* attention is one kernel */
            tci_store_force(f, n, TCI_WHY_APART);
        }
        if (tci_group_is_alone(f, p->kernel)) {
            tci_store_operands(f, n);
        }
    }
}

/* True if storing n, which another group evaluates too, costs less than that. */
static bool tci_store_is_shared(tci_fusion *f, tci_node *n, int where)
{
    const tci_pnode *p = tci_pnode_of(f, n);
    if (!tci_op_is(n->op, TCI_IS_STORABLE) || p->n_homes == 0 || p->home == where || p->drawn ||
        p->guards || tci_store_is_of_folds(f, n)) {
        return false;
    }
    tci_store_cost cost = tci_store_measure(f, n);
    double bytes = tci_store_count(n) * tci_dtype_get((tc_dtype)n->dtype)->bytes;
    return p->n_homes * (cost.work + TCI_COST_MOVE * cost.bytes) >= 2 * TCI_COST_MOVE * bytes;
}

/* True if n is computed elementwise from reductions of groups other than `group`. */
static bool tci_store_is_of_rows(tci_fusion *f, tci_node *n, int group)
{
    int stamp = ++f->stamp, left = 0, visited = 0;
    bool of_rows = false, fits = true;
    TCI_PUSH(f->s, f->walk, left, f->cap_walk, n);
    while (left > 0 && fits) {
        tci_node *u = f->walk[--left];
        const tci_pnode *p = tci_pnode_of(f, u);
        bool in_memory = u != n && tci_store_in_memory(f, u);
        if (in_memory && p->root >= 0) {
            const tci_root *r = &f->roots[p->root];
            fits = r->group != group;
            of_rows |= r->kind == TCI_ROOT_REDUCE;
        }
        fits = fits && (in_memory || ++visited < TCI_COST_WALK) &&
               (in_memory || tci_op_is(u->op, TCI_IS_POINTWISE | TCI_IS_VIEW | TCI_IS_NUMBER));
        for (int i = 0; i < u->n_in && fits && !in_memory; i++) {
            if (tci_pnode_of(f, u->in[i])->walked != stamp) {
                tci_pnode_of(f, u->in[i])->walked = stamp;
                TCI_PUSH(f->s, f->walk, left, f->cap_walk, u->in[i]);
            }
        }
    }
    return of_rows && fits;
}

/* True if n is more expensive than a multiplication and has one value for each row that root r
 * reduces over many elements, on a GPU. Each of its threads would recompute it; the kernel of the
 * row's reductions computes it once. */
static bool tci_store_is_for_rows(tci_fusion *f, const tci_root *r, tci_node *n)
{
    const tci_pnode *p = tci_pnode_of(f, n);
    const tci_node *of = r->kind == TCI_ROOT_VALUE ? r->node : r->node->in[0];
    double count = tci_store_count(n);
    bool pairs = p->kernel > 0 || f->groups[r->group].kernel > 0;
    bool may = f->blocks && !pairs && !p->drawn && !p->guards && count > 1;
    return may && tci_op_is(n->op, TCI_IS_POINTWISE) &&
           tci_store_count(of) >= TCI_COST_SPREAD * count &&
           tci_store_measure(f, n).work >= TCI_COST_ROOT * count &&
           tci_store_is_of_rows(f, n, r->group);
}

/* n is not evaluated here. What it needs is `covered`; what others need too stays `needed`. */
static void tci_store_cover_inputs(const tci_fusion *f, const tci_node *n, int stamp)
{
    for (int i = 0; i < tci_plan_n_evaluated(n); i++) {
        tci_pnode_of(f, n->in[i])->covered = stamp;
    }
}

/* n is evaluated here. An input `turns` where n evaluates it at other indices than its own. */
static void tci_store_need_inputs(const tci_fusion *f, const tci_node *n, int stamp)
{
    const tci_pnode *p = tci_pnode_of(f, n);
    bool keeps = tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < tci_plan_n_evaluated(n); i++) {
        tci_pnode *in = tci_pnode_of(f, n->in[i]);
        in->needed = stamp;
        in->covered = p->covered == stamp ? stamp : in->covered;
        in->turns = !keeps || p->n_here < in->n_here ? stamp : in->turns;
    }
}

/* Counts the evaluations of each node by root r at distinct indices. */
static void tci_store_count_here(const tci_fusion *f, const tci_root *r, int stamp)
{
    for (int i = 0; i < r->n_inlined; i++) {
        tci_pnode *p = tci_pnode_of(f, r->inlined[i]);
        p->n_here = p->counted == stamp ? p->n_here + 1 : 1;
        p->counted = stamp;
    }
}

/* The one operand of n, made element by element, that is not one value for many; NULL: none is, or
 * several are. */
static tci_node *tci_store_made_of(const tci_node *n)
{
    tci_node *of = NULL;
    for (int i = 0; i < n->n_in && tci_op_is(n->op, TCI_IS_POINTWISE); i++) {
        const tci_node *x = n->in[i];
        while (x->op == TCI_OP_PERMUTE) {
            x = x->in[0];
        }
        bool spread = x->op == TCI_OP_EXPAND || tci_node_count(x) == 1;
        if (!spread && of) {
            return NULL;
        }
        of = spread ? of : n->in[i];
    }
    return of;
}

/* The value to store in place of n on a GPU, where a multiplication costs less than memory
 * traffic: n, or a value of fewer bytes from which n follows by one or two cheap ops, such as one
 * that was rounded and is widened again. NULL: that value is in memory. */
static tci_node *tci_store_narrowest(const tci_fusion *f, tci_node *n)
{
    tci_node *narrow = n, *u = n;
    for (int i = 0; i < TCI_STORE_NEAR && u && f->blocks; i++) {
        u = tci_store_made_of(u);
        bool fewer = u && tci_dtype_get((tc_dtype)u->dtype)->bytes <
                              tci_dtype_get((tc_dtype)narrow->dtype)->bytes;
        if (u && tci_store_in_memory(f, u)) {
            return fewer ? NULL : narrow;
        }
        narrow = fewer && tci_op_is(u->op, TCI_IS_STORABLE) ? u : narrow;
    }
    return narrow;
}

/* From the root down: materializes the topmost expensive values that others evaluated; records who
 * evaluates the rest. Values below a materialized one are decided in the next round, which knows
 * who evaluates them. */
static void tci_store_note_shared(tci_fusion *f, const tci_root *r, int where, tci_store_mode mode,
                                  int stamp)
{
    for (int i = r->n_inlined - 1; i >= 0; i--) {
        tci_node *n = r->inlined[i];
        tci_pnode *p = tci_pnode_of(f, n);
        if (p->needed != stamp || p->done == stamp || (n != r->node && tci_store_in_memory(f, n))) {
            continue;
        }
        bool asks = n != r->node && mode != TCI_STORE_NOTHING &&
                    (p->covered != stamp || mode == TCI_STORE_BY_ROOT);
        p->done = stamp;
        bool for_rows = asks && tci_store_is_for_rows(f, r, n);
        bool shared = asks && !for_rows && tci_store_is_shared(f, n, where);
        tci_node *stored = for_rows ? n : shared ? tci_store_narrowest(f, n) : NULL;
        if (stored) {
            tci_store_force(f, stored, for_rows ? TCI_WHY_AGAIN : TCI_WHY_SHARED);
            tci_store_cover_inputs(f, n, stamp);
            continue;
        }
        tci_undo_node(f, p);
        p->n_homes += p->home != where;
        p->home = where;
        p->group = r->group;
        tci_store_need_inputs(f, n, stamp);
    }
}

/* From the leaves up: materializes a value that root r evaluates at several indices as soon as it
 * is expensive. Only permuted reads count: a value read at its own index alone is stored with its
 * reader. The lanes of a CPU read at consecutive indices. */
static bool tci_store_force_again(tci_fusion *f, const tci_root *r, int stamp)
{
    bool any = false;
    for (int i = 0; i < r->n_inlined; i++) {
        tci_node *n = r->inlined[i];
        const tci_pnode *p = tci_pnode_of(f, n);
        bool part = r->n_listed > 1 && n->op == TCI_OP_CAT; /* another one each time */
        if (n == r->node || part || p->done != stamp || p->covered == stamp || p->turns != stamp ||
            p->n_here == 1 || p->forced || !tci_op_is(n->op, TCI_IS_STORABLE)) {
            continue;
        }
        tci_store_cost cost = tci_store_measure(f, n);
        double work = cost.work + (f->blocks ? 0 : 4 * TCI_COST_PICK * cost.picked);
        if (p->n_here * work >= 4 * TCI_COST_AGAIN * tci_store_count(n)) {
            tci_store_force(f, n, TCI_WHY_AGAIN);
            any = true;
        }
    }
    return any;
}

TCI_FN void tci_store_note(tci_fusion *f, int root, tci_store_mode mode)
{
    tci_root *r = &f->roots[root];
    int stamp = ++f->stamp;
    tci_store_count_here(f, r, stamp);
    tci_pnode_of(f, r->node)->needed = stamp;
    if (r->kind != TCI_ROOT_VALUE) {
        tci_store_need_inputs(f, r->node, stamp);
    }
    tci_store_note_shared(f, r, mode == TCI_STORE_BY_ROOT ? root : r->group, mode, stamp);
    if (mode != TCI_STORE_NOTHING && !tci_store_force_again(f, r, stamp) && tci_store_is_large(r)) {
        tci_store_divide(f, r, stamp);
    }
}

/* ---- depth ---- */

/* True if the RESHAPE does more than add or drop axes of size 1. */
static bool tci_store_reshapes(const tci_node *n)
{
    int i = 0, j = 0;
    if (n->op != TCI_OP_RESHAPE) {
        return false;
    }
    for (const tci_node *in = n->in[0];;) {
        i += i < n->rank && n->shape[i] == 1;
        j += j < in->rank && in->shape[j] == 1;
        bool more_i = i < n->rank, more_j = j < in->rank;
        if (!more_i || !more_j) {
            return more_i || more_j;
        }
        if (n->shape[i] != 1 && in->shape[j] != 1 && n->shape[i++] != in->shape[j++]) {
            return true;
        }
    }
}

/* Its value is in memory, or stays in the one kernel that makes it. */
static bool tci_store_is_root(const tci_node *n)
{
    return n->op == TCI_OP_CONTRACT || n->op == TCI_OP_SCAN || n->op == TCI_OP_SCATTER ||
           n->op == TCI_OP_SEGMENT || n->op == TCI_OP_RESULT;
}

/* An index that goes through many RESHAPEs grows with each: what the next one reads is stored. */
static void tci_store_cut_reshapes(tci_fusion *f, tci_node *n)
{
    tci_pnode *p = tci_pnode_of(f, n);
    for (int j = 0; j < n->n_in; j++) {
        p->reshapes = TCI_MAX(p->reshapes, tci_pnode_of(f, n->in[j])->reshapes);
    }
    if (tci_store_reshapes(n) && ++p->reshapes > TCI_COST_RESHAPES && !tci_plan_is_leaf(n->in[0]) &&
        !tci_pnode_of(f, n->in[0])->forced) {
        tci_store_force(f, n->in[0], TCI_WHY_DIVISION);
        p->reshapes = 1;
    }
    if (p->forced || tci_store_is_root(n) || tci_op_is_reduce(n->op)) {
        p->reshapes = 0;
    }
}

/* Bounds what a probe can inline: along one path at most TCI_COST_DEPTH reductions or index
 * changes under a value with several users, else evaluation would repeat without end. */
TCI_FN void tci_store_cut_depth(tci_fusion *f)
{
    for (int i = 0; i < f->nodes.n; i++) {
        for (int j = 0; j < tci_plan_n_evaluated(f->nodes.items[i]); j++) {
            tci_pnode_of(f, f->nodes.items[i]->in[j])->n_uses++;
        }
    }
    for (int i = 0; i < f->nodes.n; i++) {
        tci_node *n = f->nodes.items[i];
        tci_pnode *p = tci_pnode_of(f, n);
        for (int j = 0; j < tci_plan_n_evaluated(n); j++) {
            p->depth = TCI_MAX(p->depth, tci_pnode_of(f, n->in[j])->depth);
            p->moves = TCI_MAX(p->moves, tci_pnode_of(f, n->in[j])->moves);
        }
        tci_store_cut_reshapes(f, n);
        p->depth += tci_op_is_reduce(n->op);
        p->moves += tci_op_is(n->op, TCI_IS_SHIFT);
        bool deep = p->depth >= TCI_COST_DEPTH || p->moves >= TCI_COST_DEPTH;
        if (deep && p->n_uses > 1 && tci_op_is(n->op, TCI_IS_STORABLE) && !p->forced) {
            tci_store_force(f, n, TCI_WHY_DEEP);
        }
        if (p->forced || tci_store_is_root(n)) {
            p->depth = p->moves = 0;
        }
    }
}

/* ---- report ---- */

/* One line for each value that this file materialized. */
TCI_FN void tci_store_report(tci_fusion *f, tci_str *why)
{
    int stamp = ++f->stamp;
    for (int i = 0; i < f->n_roots; i++) {
        for (int j = 0; j < f->roots[i].n_reads; j++) {
            const tci_root *q = &f->roots[f->roots[i].reads[j].root];
            tci_pnode *p = tci_pnode_of(f, q->node);
            if (q->group != f->roots[i].group && p->why != TCI_WHY_COUNT && p->met != stamp) {
                p->met = stamp;
                tci_str_printf(why, "%s gets memory: %s", tci_op_name(q->node->op),
                               tci_why_text((tci_why)p->why));
                tci_why_end(why, f->roots[i].node, q->node);
            }
        }
    }
}
