/* plan/attention_recompute.c - recomputes attention scores in every kernel that consumes them, so
 * that no [queries, keys] array is stored (as in FlashAttention, arXiv 2205.14135).
 *
 * In: the graph after plan/decompose.c. Out: the graph with copies, and the sets of nodes that are
 * to be one kernel each.
 *
 *     s = contract(q, k)      a pair: a score-shaped value ([queries, keys]), which is a
 *                             contraction, or pointwise over such values
 *     m, l of s               folds: row reductions of pairs (max, sum), all along the same axes
 *     p = exp(s - m) / l      a pair
 *     contract(p, v)          a taker: a consumer, a contraction that reduces axes of a pair
 *
 * Attention and its gradients consist of these. Pairs have many more elements than their operands,
 * so storing them costs more than recomputing them, and a kernel that has a strip of rows or
 * columns of them has all that its takers sum. Takers that sum the same axes are one kernel, with
 * the pairs that they need; folds are part of a kernel that sums their axes, and other kernels
 * read their results. The first kernel that needs a pair has the node itself, every other a copy.
 * A copy must be another node than its original: its contraction reads an operand through RESHAPEs
 * to the same shape, as in plan/remat.c. Copies are the same ops over the same values and have the
 * same bits.
 *
 * On a GPU fused attention has a class of its own (STEPS), so it must not depend on who else reads
 * the scores. A taker of exponentials whose set is not eligible, because a pair is an output or has
 * other users, gets copies of everything that its weights are computed from, if these form an
 * eligible set.
 *
 * On a matrix unit of a GPU, registers hold the sums of all takers of a kernel. If they do not
 * fit, as for keys and values in wide heads, each taker is a kernel of its own.
 *
 * GPUs have no schedule for folds together with takers of another level. There the one sum over
 * pairs in a softmax's gradient becomes a sum over rows: the sum of w (g v) over pairs is that of
 * g (w v) over the axes of v, and w v is what attention stores.
 *
 * The kernels store rows of the pair's axes, so takers have these axes in their order, followed by
 * a PERMUTE.
 *
 * No schedule exists for takers over several axes that do not merge into one, as for keys and
 * values that heads of queries share under a mask that distinguishes queries. Where that was found
 * (tci_scores_refused), the taker sums the longest of the axes, and a SUM of its own, over rows
 * that are not in half precision, the others.
 *
 * A kernel comes after those whose takers' results it needs: `level` is the length of that chain.
 * plan/fusion_patterns.c, which sees what the nodes of a kernel read, decides if they become one
 * group; if not, plan/plan.c plans again without the copies. */
#include "../graph/build.h"
#include "../kernel/match_attention.h"
#include "attention_recompute.h"

enum {
    TCI_SCORES_DEPTH = 256, /* products of a pair, which are computed again */
    TCI_SCORES_LEVELS = 4,
    TCI_SCORES_ROW = 8,      /* operations between a fold and what pairs read of it */
    TCI_SCORES_BUSY = 16,    /* rows for each processor: fewer have time for an array of pairs */
    TCI_SCORES_SHORT = 64,   /* numbers of a short head */
    TCI_SCORES_REFUSALS = 2, /* of a taker, until it has no copies of scores */
    TCI_SCORES_MORE = 1      /* times as many elements as what their contraction reads */
};

/* ---- the graph ---- */

/* Sets fact->is_made and has_powers of n. On a GPU a contraction that takes powers is no pair, so
 * that what is attention follows from what a taker is made of: no set's taker is a pair of another
 * set. */
static void tci_scores_find_made(const tci_scores *p, const tci_node *n, tci_scores_fact *fact)
{
    const bool blocks = !p->bands && p->a->machine.block_threads > 0;
    fact->is_made = n->op == TCI_OP_CONTRACT && n->rank >= 2;
    for (int i = 0; i < n->n_in; i++) {
        const tci_scores_fact *in = tci_scores_of(p, n->in[i]);
        if (tci_op_is(n->op, TCI_IS_POINTWISE) && tci_scores_same_shape(n, n->in[i])) {
            fact->is_made = fact->is_made || in->is_made;
            fact->has_powers = fact->has_powers || in->has_powers ||
                               (n->op == TCI_OP_EXP && in->is_made);
        } else if (n->op == TCI_OP_CONTRACT) {
            fact->is_made = fact->is_made && !(blocks && in->has_powers);
        }
    }
}

static void tci_scores_read_graph(tci_scores *p, tci_node *const *roots, int n_roots)
{
    tci_scratch *s = p->a->s;
    p->list = tci_graph_sort(s, roots, n_roots);
    p->facts = tci_table_in(s, sizeof(tci_scores_fact));
    p->first_user = TCI_NEW_ARRAY(s, int32_t, p->list.n + 2);
    for (int i = 0; i < p->list.n; i++) {
        const tci_node *n = p->list.items[i];
        tci_scores_fact *fact = tci_table_at(&p->facts, n);
        fact->at = i;
        tci_scores_find_made(p, n, fact);
        for (int j = 0; j < n->n_in; j++) {
            p->first_user[tci_scores_of(p, n->in[j])->at + 2]++;
        }
    }
    for (int i = 0; i < n_roots; i++) {
        tci_scores_of(p, roots[i])->is_output = true;
    }
    for (int i = 0; i <= p->list.n; i++) {
        p->first_user[i + 1] += p->first_user[i];
    }
    p->users = TCI_NEW_ARRAY(s, int32_t, p->first_user[p->list.n + 1] + 1);
    for (int i = 0; i < p->list.n; i++) {
        for (int j = 0; j < p->list.items[i]->n_in; j++) {
            p->users[p->first_user[tci_scores_of(p, p->list.items[i]->in[j])->at + 1]++] = i;
        }
    }
}

/* ---- a set of pairs ---- */

/* True if recomputing pays. On a GPU, where memory is slower than arithmetic, it always does, but
 * the forms need known sizes. */
static bool tci_scores_is_cheap(const tci_scores *p, const tci_node *n)
{
    const tci_machine machine = p->a->machine;
    if (n->op != TCI_OP_CONTRACT || (p->bands && !tci_scores_is_known(n))) {
        return n->op != TCI_OP_CONTRACT || tci_scores_depth(n) <= TCI_SCORES_DEPTH;
    }
    bool fits = machine.block_threads > 0
                    ? tci_scores_is_known(n) && tci_scores_is_known(n->in[0]) &&
                          tci_scores_is_known(n->in[1])
                    : tci_scores_count(n) > TCI_SCORES_MORE * (tci_scores_count(n->in[0]) +
                                                               tci_scores_count(n->in[1]));
    return fits && n->rank < 64 && tci_scores_depth(n) <= TCI_SCORES_DEPTH;
}

/* A GPU has forms for products of f32 and of f16 or bf16 values; a CPU's matrix unit for those of
 * bf16. */
static bool tci_scores_is_for(const tci_scores *p, const tci_node *n)
{
    const tci_machine machine = p->a->machine;
    if (p->bands) {
        return true;
    }
    if (machine.block_threads == 0) {
        return n->dtype != TC_F16 || machine.matrix_units == 0;
    }
    return n->op != TCI_OP_CONTRACT || n->dtype == TC_F32 || tci_dtype_is_half((tc_dtype)n->dtype);
}

static void tci_scores_add(tci_scores *p, tci_scores_set *set, tci_node *n)
{
    tci_scores_fact *fact = tci_scores_of(p, n);
    if (fact->set != set->number) {
        set->fits = set->fits && fact->set == 0 && !fact->is_output && tci_scores_is_for(p, n) &&
                    tci_scores_is_cheap(p, n);
        fact->set = set->number;
        TCI_PUSH(p->a->s, set->pairs, set->n_pairs, set->cap_pairs, n);
    }
}

/* A user of pair n: another pair, a taker, a fold, or what asks for the pairs in memory. */
static void tci_scores_use(tci_scores *p, tci_scores_set *set, tci_node *n, tci_node *user)
{
    tci_scores_end end = {.node = user};
    if (user->op == TCI_OP_CONTRACT) {
        set->fits = set->fits && user->in[0] != user->in[1];
        end.summed = tci_scores_summed(user, user->in[1] == n);
    } else if (tci_op_is_reduce(user->op) && !tci_op_is(user->op, TCI_IS_ARG)) {
        end.folds = true;
        for (int i = 0; i < user->n_attr; i++) {
            end.summed |= (uint64_t)1 << user->attr[i];
        }
    } else if (tci_op_is(user->op, TCI_IS_POINTWISE)) {
        tci_scores_add(p, set, user);
        return;
    }
    set->fits = set->fits && end.summed != 0;
    TCI_PUSH(p->a->s, set->ends, set->n_ends, set->cap_ends, end);
}

/* The node that n was before the rules were applied, of a taker also before it had scores of its
 * own. What was refused is told by it. */
static const tci_node *tci_scores_origin(const tci_scores *p, const tci_node *n)
{
    const tci_node *const *found = p->origins ? tci_table_find(p->origins, n) : NULL;
    return found && *found ? *found : n;
}

static void tci_scores_set_origin(const tci_scores *p, const tci_node *made, const tci_node *n)
{
    if (p->origins) {
        *(const tci_node **)tci_table_at(p->origins, made) = n;
    }
}

/* Everything that hangs together with `first`, a value that a contraction takes. */
static void tci_scores_flood(tci_scores *p, tci_scores_set *set, tci_node *first)
{
    tci_scores_add(p, set, first);
    for (int at = 0; at < set->n_pairs && set->fits && at < TCI_SCORES_NODES; at++) {
        tci_node *n = set->pairs[at];
        int place = tci_scores_of(p, n)->at;
        for (int i = 0; i < n->n_in && n->op != TCI_OP_CONTRACT; i++) {
            if (tci_scores_of(p, n->in[i])->is_made && tci_scores_same_shape(n, n->in[i])) {
                tci_scores_add(p, set, n->in[i]);
            }
        }
        for (int u = p->first_user[place]; u < p->first_user[place + 1]; u++) {
            tci_scores_use(p, set, n, p->list.items[p->users[u]]);
        }
    }
    set->fits = set->fits && set->n_pairs <= TCI_SCORES_NODES;
}

/* In the order of the list, each end once, with the pair that it reads. */
static void tci_scores_order(const tci_scores *p, tci_scores_set *set)
{
    int n_ends = 0;
    for (int i = 0; i < set->n_pairs; i++) {
        tci_node *n = set->pairs[i];
        int to = i;
        for (; to > 0 && tci_scores_of(p, set->pairs[to - 1])->at > tci_scores_of(p, n)->at; to--) {
            set->pairs[to] = set->pairs[to - 1];
        }
        set->pairs[to] = n;
    }
    for (int i = 0; i < set->n_pairs; i++) {
        tci_scores_of(p, set->pairs[i])->index = i;
    }
    for (int e = 0; e < set->n_ends; e++) {
        tci_scores_end *end = &set->ends[e];
        int read = 0, times = 0;
        for (int i = 0; i < end->node->n_in; i++) {
            const tci_scores_fact *fact = tci_scores_of(p, end->node->in[i]);
            bool reads = fact->set == set->number;
            times += reads;
            read = reads ? fact->index : read;
        }
        end->pair = read;
        set->fits = set->fits && times == 1 && tci_scores_of(p, end->node)->set != set->number;
        set->ends[n_ends++] = *end;
    }
}

/* ---- kernels ---- */

/* An end that no other one needs comes as late as the last one that sums the same axes: they are
 * one kernel then. */
static void tci_scores_delay(const tci_scores *p, tci_scores_set *set, int begin, int last)
{
    bool *needed = TCI_NEW_ARRAY(p->a->s, bool, p->list.n + 1);
    for (int i = last; i >= begin; i--) {
        const tci_node *n = p->list.items[i];
        bool is_end = false;
        for (int e = 0; e < set->n_ends; e++) {
            is_end = is_end || set->ends[e].node == n;
        }
        for (int j = 0; j < n->n_in && (is_end || needed[i]); j++) {
            needed[tci_scores_of(p, n->in[j])->at] = true;
        }
    }
    for (int e = 0; e < set->n_ends; e++) {
        bool is_needed = needed[tci_scores_of(p, set->ends[e].node)->at];
        for (int o = 0; o < set->n_ends && !is_needed; o++) {
            bool same = set->ends[o].summed == set->ends[e].summed;
            set->ends[e].level = TCI_MAX(set->ends[e].level, same ? set->ends[o].level : 0);
        }
    }
}

/* Computes the longest chain of takers below each end and score. */
static void tci_scores_levels(const tci_scores *p, tci_scores_set *set, int32_t *level)
{
    int begin = tci_scores_of(p, set->pairs[0])->at, last = begin;
    bool *takes = TCI_NEW_ARRAY(p->a->s, bool, p->list.n + 1);
    for (int e = 0; e < set->n_ends; e++) {
        int at = tci_scores_of(p, set->ends[e].node)->at;
        takes[at] = !set->ends[e].folds;
        last = TCI_MAX(last, at);
    }
    for (int i = begin; i <= last; i++) {
        const tci_node *n = p->list.items[i];
        level[i] = 0;
        for (int j = 0; j < n->n_in; j++) {
            int in = tci_scores_of(p, n->in[j])->at;
            level[i] = in >= begin ? TCI_MAX(level[i], level[in] + takes[in]) : level[i];
        }
    }
    for (int e = 0; e < set->n_ends; e++) {
        set->ends[e].level = level[tci_scores_of(p, set->ends[e].node)->at];
        set->fits = set->fits && set->ends[e].level < TCI_SCORES_LEVELS;
    }
    tci_scores_delay(p, set, begin, last);
}

/* Elements that a taker stores for each row of its pair: of the axes that the pair has not. */
static int64_t tci_scores_width(const tci_scores_set *set, const tci_scores_end *end)
{
    const tci_node *n = end->node, *pair = set->pairs[end->pair];
    int64_t width = 1;
    for (int i = 0; i < n->rank; i++) {
        bool own = tci_contract_place(n, 2, i, n->in[1] == pair) < 0;
        width *= own ? TCI_MAX(tci_dim_hint(n->shape[i]), 1) : 1;
    }
    return width;
}

/* True if end is one of several takers whose sums do not all fit into a matrix unit's registers, or
 * for which there is no form as one kernel. */
static bool tci_scores_is_apart(const tci_scores *p, const tci_scores_set *set,
                                const tci_scores_end *end)
{
    const tci_machine *m = &p->a->machine;
    bool halves = tci_dtype_is_half((tc_dtype)end->node->in[0]->dtype);
    int64_t columns = 0;
    int n = 0;
    for (int e = 0; e < set->n_ends; e++) {
        const tci_scores_end *of = &set->ends[e];
        if (!of->folds && of->summed == end->summed && of->level == end->level) {
            columns += tci_attention_columns_of(tci_scores_width(set, of));
            n++;
        }
    }
    bool refused = tci_table_has(&p->refused->joint, tci_scores_origin(p, set->pairs[0]));
    bool wide = m->matrix_units > 0 && halves && columns > TCI_ATTENTION_SUMS;
    return !p->bands && m->block_threads > 0 && !end->folds && n > 1 && (refused || wide);
}

/* The number of the kernel that sums those axes on that level. */
static int tci_scores_kernel_of(const tci_scores *p, tci_scores_set *set, const tci_scores_end *end)
{
    bool apart = tci_scores_is_apart(p, set, end);
    for (int k = 0; k < set->n_kernels; k++) {
        bool same = set->kernels[k].summed == end->summed && set->kernels[k].level == end->level;
        if (same && (!apart || !set->kernels[k].takes)) { /* folds have a form with a taker */
            set->kernels[k].takes = set->kernels[k].takes || !end->folds;
            return k;
        }
    }
    set->fits = set->fits && set->n_kernels < TCI_SCORES_KERNELS;
    if (set->fits) {
        set->kernels[set->n_kernels].summed = end->summed;
        set->kernels[set->n_kernels].level = end->level;
        set->kernels[set->n_kernels].takes = !end->folds;
        set->n_kernels++;
    }
    return set->n_kernels - 1;
}

/* Kernels in their order: by level, first that of the folds, which all sum the same axes. */
static void tci_scores_find_kernels(const tci_scores *p, tci_scores_set *set)
{
    uint64_t folded = 0;
    for (int e = 0; e < set->n_ends; e++) {
        uint64_t summed = set->ends[e].folds ? set->ends[e].summed : 0;
        set->fits = set->fits && (summed == 0 || folded == 0 || folded == summed);
        folded = summed ? summed : folded;
    }
    set->fits = set->fits && folded != 0;
    for (int level = 0; level < TCI_SCORES_LEVELS; level++) {
        for (int pass = 0; pass < 2; pass++) {
            for (int e = 0; e < set->n_ends && set->fits; e++) {
                bool first = set->ends[e].summed == folded;
                if (set->ends[e].level == level && first == (pass == 0)) {
                    set->ends[e].kernel = tci_scores_kernel_of(p, set, &set->ends[e]);
                }
            }
        }
    }
}

/* The pairs that an end needs: its own, and those from which that is computed. */
static uint64_t tci_scores_needs_of(const tci_scores *p, const tci_scores_set *set,
                                    const tci_scores_end *end)
{
    uint64_t needs = (uint64_t)1 << end->pair;
    for (int i = end->pair; i >= 0; i--) {
        const tci_node *n = set->pairs[i];
        bool through = (needs >> i & 1) && n->op != TCI_OP_CONTRACT;
        for (int j = 0; j < n->n_in && through; j++) {
            const tci_scores_fact *in = tci_scores_of(p, n->in[j]);
            needs |= in->set == set->number ? (uint64_t)1 << in->index : 0;
        }
    }
    return needs;
}

static void tci_scores_find_needs(const tci_scores *p, tci_scores_set *set)
{
    for (int e = 0; e < set->n_ends; e++) {
        set->kernels[set->ends[e].kernel].needs |= tci_scores_needs_of(p, set, &set->ends[e]);
    }
    for (int k = 0; k < set->n_kernels; k++) {
        set->kernels[k].own = TCI_NEW_ARRAY(p->a->s, tci_node *, set->n_pairs);
    }
}

/* Two contractions of pairs, or two kernels: a kernel with one of each needs no help. On a GPU
 * exponentials too: fused attention has a class of its own, so its form follows from the graph, not
 * from the other members of its groups. There are no forms for anything else. */
static bool tci_scores_is_worth(const tci_scores *p, const tci_scores_set *set)
{
    int products = 0;
    bool powers = false;
    for (int i = 0; i < set->n_pairs; i++) {
        products += set->pairs[i]->op == TCI_OP_CONTRACT;
        powers = powers || set->pairs[i]->op == TCI_OP_EXP;
    }
    return p->bands || p->a->machine.block_threads == 0 ? set->n_kernels > 1 || products > 1
                                                        : powers;
}

TCI_FN const tci_scores_end *tci_scores_end_of(const tci_scores *p, const tci_node *n,
                                               const tci_scores_set **set)
{
    for (int i = 0; i < n->n_in; i++) {
        int number = tci_scores_of(p, n->in[i])->set;
        bool found = number > 0 && number <= p->n_sets && p->sets[number - 1].fits;
        *set = found ? &p->sets[number - 1] : NULL;
        for (int e = 0; found && e < (*set)->n_ends; e++) {
            if ((*set)->ends[e].node == n) {
                return &(*set)->ends[e];
            }
        }
    }
    return NULL;
}

/* True if its scores are not ends of an earlier set, and its ends are not scores of one. */
static bool tci_scores_is_alone(const tci_scores *p, const tci_scores_set *set)
{
    const tci_scores_set *other;
    bool alone = true;
    for (int i = 0; i < set->n_pairs; i++) {
        alone = alone && !tci_scores_end_of(p, set->pairs[i], &other);
    }
    for (int e = 0; e < set->n_ends; e++) {
        int number = tci_scores_of(p, set->ends[e].node)->set;
        alone = alone && (number == 0 || !p->sets[number - 1].fits);
    }
    return alone;
}

static void tci_scores_find(tci_scores *p)
{
    int32_t *level = TCI_NEW_ARRAY(p->a->s, int32_t, p->list.n + 1);
    for (int i = 0; i < 2 * p->list.n; i++) {
        tci_node *n = p->list.items[i / 2], *pair = n->n_in == 2 ? n->in[i % 2] : n;
        const tci_scores_fact *fact = tci_scores_of(p, pair);
        if (n->op != TCI_OP_CONTRACT || !fact->is_made || fact->set != 0) {
            continue;
        }
        tci_scores_set set = {.number = p->n_sets + 1, .fits = true};
        tci_scores_flood(p, &set, pair);
        tci_scores_order(p, &set);
        set.fits = set.fits &&
                   !tci_table_has(&p->refused->whole, tci_scores_origin(p, set.pairs[0])) &&
                   tci_scores_is_alone(p, &set);
        if (set.fits) {
            tci_scores_levels(p, &set, level);
            tci_scores_find_kernels(p, &set);
        }
        set.fits = set.fits && (!p->out || tci_scores_is_worth(p, &set));
        if (set.fits) {
            tci_scores_find_needs(p, &set);
        }
        TCI_PUSH(p->a->s, p->sets, p->n_sets, p->cap_sets, set);
    }
}

/* ---- sums of rows ---- */

/* `made` stands for n: on the same line of the user, and in memory where n is, if in another order
 * of axes. */
static tci_node *tci_scores_like(const tci_scores *p, const tci_node *n, tci_node *made)
{
    tci_node *stored = made;
    made->site = made->site.file ? made->site : n->site;
    while (stored->op == TCI_OP_PERMUTE && n->op != TCI_OP_PERMUTE) {
        stored = stored->in[0];
    }
    if (tci_table_has(p->a->forced, n)) {
        tci_algo_force(p->a, stored);
    }
    return made;
}

/* Number and origin of a copy of a contraction; number 0: it is none. */
static tci_scores_copied tci_scores_copy_of(const tci_scores *p, const tci_node *n)
{
    const tci_scores_copied none = {NULL, NULL, 0},
                            *found = p->own ? tci_table_find(p->own, n) : NULL;
    return found ? *found : none;
}

static tci_node *tci_scores_without_casts(tci_node *n)
{
    while (n->op == TCI_OP_CAST) {
        n = n->in[0];
    }
    return n;
}

static bool tci_scores_has_label(const int *labels, int n, int label)
{
    bool has = false;
    for (int i = 0; i < n; i++) {
        has = has || labels[i] == label;
    }
    return has;
}

/* The sum over pairs of w (g v), where g and v are contracted to pairs, is that of g (w v) over the
 * axes of g that are none of pairs: what is stored of w v, one row for each, serves. `fold` is
 * such a sum, else NULL; nodes are those of `now`. */
static tci_node *tci_scores_row_sum(const tci_scores *p, const tci_node *fold, const tci_table *now)
{
    tci_graph *g = p->a->g;
    const tci_node *product = fold->op == TCI_OP_SUM ? fold->in[0] : fold;
    tci_node *change = NULL, *w = NULL;
    for (int i = 0; i < 2 && product->op == TCI_OP_MUL; i++) {
        tci_node *in = tci_scores_without_casts(product->in[i]);
        bool found = in->op == TCI_OP_CONTRACT && tci_scores_same_shape(in, product);
        change = found ? in : change;
        w = found ? tci_scores_without_casts(product->in[1 - i]) : w;
    }
    if (!change || !tci_scores_same_shape(w, change)) {
        return NULL;
    }
    int *labels[3], rank[3], axes[64], n_axes = 0, at = 3;
    for (int i = 0; i < 3; i++) {
        rank[i] = (int)change->attr[i];
        labels[i] = TCI_NEW_ARRAY(p->a->s, int, rank[i] + 1);
        for (int j = 0; j < rank[i]; j++) {
            labels[i][j] = (int)change->attr[at++];
        }
    }
    int own = -1, kept = 0; /* own: the operand without what is summed */
    for (int i = 0; i < fold->n_attr; i++) {
        for (int k = 0; k < 2; k++) {
            bool has = tci_scores_has_label(labels[k], rank[k], labels[2][fold->attr[i]]);
            own = has ? own : own < 0 || own == k ? k : 2;
        }
    }
    if (own != 0 && own != 1) {
        return NULL;
    }
    for (int i = 0, out = 0; i < rank[own]; i++) {
        if (!tci_scores_has_label(labels[2], rank[2], labels[own][i])) {
            axes[n_axes++] = i;
            continue;
        }
        while (out < rank[2] && !tci_scores_has_label(labels[own], rank[own], labels[2][out])) {
            out++;
        }
        kept += out < rank[2] && labels[2][out++] == labels[own][i];
    }
    if (kept != rank[2] - fold->n_attr || kept + n_axes != rank[own] || n_axes == 0) {
        return NULL;
    }
    tci_node *x = tci_table_get(now, change->in[own]), *v = tci_table_get(now, change->in[1 - own]);
    tci_node **with = own == 1 ? &x : &v;
    for (int i = tci_scores_copy_of(p, change).n; i > 0; i--) {
        *with = (*with)->in[0]; /* attention has the operand itself */
    }
    w = tci_build_cast(g, tci_table_get(now, w), (tc_dtype)x->dtype);
    tci_algo_force(p->a, w); /* as routes do with operands */
    tci_node *o = tci_build_contract(g, w, labels[2], v, labels[1 - own], rank[own], labels[own]);
    tci_node *both[2] = {tci_build_cast(g, x, (tc_dtype)fold->dtype),
                         tci_build_cast(g, o, (tc_dtype)fold->dtype)};
    const tc_axes list = {axes, n_axes, false};
    return tci_build_reduce(g, TCI_OP_SUM, tci_build_ew(g, TCI_OP_MUL, both), list, false);
}

/* A product of f16 or bf16 values that is a pair and taken as f32 is not rounded on the way: a
 * unit's sums are f32, and rounding them costs as much as the power of a weight. NULL: n is no such
 * cast. */
static tci_node *tci_scores_wide(const tci_scores *p, const tci_node *n, const tci_table *now)
{
    const tci_node *in = n->op == TCI_OP_CAST && n->dtype == TC_F32 ? n->in[0] : NULL;
    int number = in && in->op == TCI_OP_CONTRACT ? tci_scores_of(p, in)->set : 0;
    if (number == 0 || !p->sets[number - 1].fits || !tci_dtype_is_half((tc_dtype)in->dtype)) {
        return NULL;
    }
    tci_node *of[2] = {tci_table_get(now, in->in[0]), tci_table_get(now, in->in[1])};
    return tci_contract_of(p->a->g, in, TC_F32, of);
}

/* The axes of what a taker sums, in the order of the pair's axes. */
typedef struct tci_scores_lines {
    int64_t *labels;
    tci_dim *shape;
    int rank;
    int *more, n_more; /* axes that are summed then */
    bool is_other;     /* than the taker's */
} tci_scores_lines;

/* cut: it sums the longest axis alone. */
static tci_scores_lines tci_scores_lines_of(const tci_scores *p, const tci_scores_set *set,
                                            const tci_scores_end *end, bool cut)
{
    const tci_node *n = end->node, *pair = set->pairs[end->pair];
    const tci_contract_form f = tci_contract_form_of(n);
    const int64_t *labels = f.labels[n->in[1] == pair], *out = f.labels[2];
    const int most = n->rank + pair->rank;
    tci_scores_lines l = {.labels = TCI_NEW_ARRAY(p->a->s, int64_t, most),
                          .shape = TCI_NEW_ARRAY(p->a->s, tci_dim, most),
                          .more = TCI_NEW_ARRAY(p->a->s, int, most)};
    int longest = -1;
    for (int i = 0; i < pair->rank; i++) {
        bool longer = longest < 0 ||
                      tci_dim_hint(pair->shape[i]) > tci_dim_hint(pair->shape[longest]);
        longest = end->summed >> i & 1 && longer ? i : longest;
    }
    for (int i = 0; i < pair->rank; i++) {
        bool more = cut && end->summed >> i & 1 && i != longest;
        if (more || tci_build_label(out, n->rank, labels[i]) >= 0) {
            l.more[l.n_more] = l.rank;
            l.n_more += more;
            l.labels[l.rank] = labels[i];
            l.shape[l.rank++] = pair->shape[i];
        }
    }
    for (int i = 0; i < n->rank; i++) {
        if (tci_build_label(l.labels, l.rank, out[i]) < 0) {
            l.labels[l.rank] = out[i];
            l.shape[l.rank++] = n->shape[i];
        }
    }
    l.is_other = l.n_more > 0;
    for (int i = 0; i < n->rank; i++) {
        l.is_other = l.is_other || l.labels[i] != out[i];
    }
    return l;
}

/* A taker of a set with rows in the pair's order, so that a row is contiguous. Where kernels cannot
 * sum several axes it sums the longest one, half precision in f32, and a SUM the others. NULL: it
 * already has that form. */
static tci_node *tci_scores_by_line(const tci_scores *p, const tci_scores_set *set,
                                    const tci_scores_end *end, const tci_table *now)
{
    tci_graph *g = p->a->g;
    const tci_node *n = end->node;
    tci_scores_lines l = tci_scores_lines_of(
        p, set, end, tci_table_has(&p->refused->lines, tci_scores_origin(p, set->pairs[0])));
    int *order = TCI_NEW_ARRAY(p->a->s, int, n->rank), left = 0;
    if (!l.is_other) {
        return NULL;
    }
    tci_contract_form f = tci_contract_form_of(n);
    f.labels[2] = l.labels;
    f.rank[2] = l.rank;
    f.in[0] = tci_table_get(now, n->in[0]);
    f.in[1] = tci_table_get(now, n->in[1]);
    bool widens = l.n_more > 0 && tci_dtype_is_half((tc_dtype)n->dtype);
    tc_dtype t = widens ? TC_F32 : (tc_dtype)n->dtype;
    tci_node *lines = tci_contract_make(p->a->s, g, &f, t, l.shape);
    if (l.n_more > 0) {
        const tc_axes more = {l.more, l.n_more, false};
        lines = tci_build_cast(g, tci_build_reduce(g, TCI_OP_SUM, lines, more, false),
                               (tc_dtype)n->dtype);
    }
    for (int i = 0; i < l.rank; i++) { /* the labels that are left, and where each is to be */
        int at = tci_contract_axis(n, 2, l.labels[i]);
        if (at >= 0) {
            order[at] = left++;
        }
    }
    return tci_build_permute(g, lines, n->rank, order);
}

/* The replacement of n; NULL: n stays. */
typedef tci_node *(*tci_scores_rule)(const tci_scores *p, const tci_node *n, const tci_table *now);

static tci_node *tci_scores_of_rows(const tci_scores *p, const tci_node *n, const tci_table *now)
{
    const tci_scores_set *set;
    const tci_scores_end *end = tci_scores_end_of(p, n, &set);
    bool folds = end && end->folds;
    return folds ? tci_scores_row_sum(p, n, now) : tci_scores_wide(p, n, now);
}

/* A CPU's rows are in any order, as their own are packed. */
static tci_node *tci_scores_of_lines(const tci_scores *p, const tci_node *n, const tci_table *now)
{
    const tci_scores_set *set;
    const tci_scores_end *end = tci_scores_end_of(p, n, &set);
    bool takes = end && !end->folds &&
                 (p->a->machine.block_threads > 0 ||
                  tci_table_has(&p->refused->lines, tci_scores_origin(p, set->pairs[0])));
    return takes ? tci_scores_by_line(p, set, end, now) : NULL;
}

/* The graph by such a rule. */
static bool tci_scores_rewrite(tci_scores *p, tci_scores_rule rule, tci_node **roots, int n_roots)
{
    tci_table now = tci_table_in(p->a->s, sizeof(tci_node *));
    bool any = false;
    for (int i = 0; i < p->list.n; i++) {
        tci_node *n = p->list.items[i], *made = rule(p, n, &now);
        any = any || made;
        made = made ? made : tci_graph_rebuild(p->a->s, p->a->g, n, &now);
        tci_table_put(&now, n, made == n ? n : tci_scores_like(p, n, made));
        while (n->op == TCI_OP_CONTRACT && made->op != TCI_OP_CONTRACT) { /* as by lines */
            made = made->in[0];
        }
        if (made != n && tci_scores_origin(p, made) == made) {
            tci_scores_set_origin(p, made, tci_scores_origin(p, n));
        }
    }
    for (int i = 0; i < n_roots && any; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
    return any;
}

/* ---- scores of one taker ---- */

/* Arguments for the copies of the pairs of a set. */
typedef struct tci_scores_own {
    const tci_scores *p;
    const tci_node *like; /* one of the pairs, which have its shape */
    const tci_table *now; /* what stands for nodes that are not copied */
    tci_table *made;      /* of a node its copy, or what stands for it */
    tci_scores_copied copied;
} tci_scores_own;

/* Pair n, a contraction, over an operand seen through RESHAPEs to its shape, as many as the number
 * of the copy. */
static tci_node *tci_scores_own_product(tci_scores_own *o, tci_node *n)
{
    tci_graph *g = o->p->a->g;
    tci_node *in[2] = {tci_table_get(o->now, n->in[0]), tci_table_get(o->now, n->in[1])};
    for (int i = 0; i < o->copied.n; i++) {
        in[1] = tci_graph_node(g, TCI_OP_RESHAPE, (tc_dtype)in[1]->dtype, in[1]->rank, in[1]->shape,
                               1, &in[1], 0, NULL);
    }
    tci_node *made = tci_contract_of(g, n, (tc_dtype)n->dtype, in);
    o->copied.of = n;
    *(tci_scores_copied *)tci_table_at(o->p->own, made) = o->copied;
    return made;
}

/* The copy of n, which weights are made of: of pairs, folds of pairs, and what is made of folds in
 * few steps; of anything else what stands for it. */
static tci_node *tci_scores_own_of(tci_scores_own *o, tci_node *n, int depth)
{
    tci_node *const *found = tci_table_find(o->made, n);
    if (found && *found) {
        return *found;
    }
    const tci_scores *p = o->p;
    const tci_node *x = n->n_in > 0 ? n->in[0] : n;
    bool pair = tci_scores_of(p, n)->is_made && tci_scores_same_shape(n, o->like);
    bool fold = tci_op_is_reduce(n->op) && tci_scores_of(p, x)->is_made &&
                tci_scores_same_shape(x, o->like);
    bool row = !pair && !fold && depth < TCI_SCORES_ROW &&
               tci_op_is(n->op, TCI_IS_VIEW | TCI_IS_POINTWISE);
    tci_node *made = tci_table_get(o->now, n);
    if (pair && n->op == TCI_OP_CONTRACT) {
        made = tci_scores_own_product(o, n);
    } else if ((pair || fold || row) && depth < TCI_SCORES_NODES) {
        tci_table in = tci_table_in(p->a->s, sizeof(tci_node *));
        bool other = false;
        for (int i = 0; i < n->n_in; i++) {
            tci_node *of = tci_scores_own_of(o, n->in[i], row ? depth + 1 : 0);
            other = other || of != tci_table_get(o->now, n->in[i]);
            tci_table_put(&in, n->in[i], of);
        }
        made = other ? tci_scores_like(p, n, tci_graph_rebuild(p->a->s, p->a->g, n, &in)) : made;
    }
    tci_table_put(o->made, n, made);
    return made;
}

/* True if a set that does not fit has operand x of a contraction as a pair. */
static bool tci_scores_is_refused(const tci_scores *p, const tci_node *x)
{
    const int number = tci_scores_of(p, x)->set;
    return tci_scores_of(p, x)->is_made && number > 0 && !p->sets[number - 1].fits;
}

/* The copies of the scores x that a taker is to have: those of all takers of a set, or, where these
 * have no form together, of this taker alone. */
static tci_scores_own tci_scores_own_for(const tci_scores *p, const tci_node *x,
                                         const tci_table *now, bool alone)
{
    const int number = tci_scores_of(p, x)->set;
    const tci_node *set = p->sets[number - 1].pairs[0];
    tci_scores_own own = {p, x, now, &p->copies[number], {set, NULL, 1}};
    if (alone || tci_table_has(&p->refused->shared, set)) {
        own.copied.n = ++*p->n_copies;
        own.made = TCI_NEW(p->a->s, tci_table);
        *own.made = tci_table_in(p->a->s, sizeof(tci_node *));
    }
    return own;
}

/* A taker of powers over copies of what they are made of. NULL: it keeps those that it has. */
static tci_node *tci_scores_of_taker(const tci_scores *p, const tci_node *n, const tci_table *now)
{
    const int refusals = *(int32_t *)tci_table_at(p->parted, n);
    bool may = n->op == TCI_OP_CONTRACT && refusals < TCI_SCORES_REFUSALS &&
               !tci_table_has(&p->refused->takers, n);
    for (int i = 0; i < 2 && may; i++) {
        if (n->in[i]->op == TCI_OP_CONTRACT || !tci_scores_is_refused(p, n->in[i]) ||
            !tci_scores_of(p, n->in[i])->has_powers) {
            continue;
        }
        tci_scores_own own = tci_scores_own_for(p, n->in[i], now, refusals > 0);
        tci_node *in[2] = {tci_table_get(now, n->in[0]), tci_table_get(now, n->in[1])};
        in[i] = tci_scores_own_of(&own, n->in[i], 0);
        tci_node *taker = tci_contract_of(p->a->g, n, (tc_dtype)n->dtype, in);
        tci_table_put(p->copied, n, taker);
        tci_scores_set_origin(p, taker, n);
        return taker;
    }
    return NULL;
}

/* Counts a refusal of each taker in `list` whose copies are no set that fits. True: there is none.
 */
static bool tci_scores_part_fits(const tci_scores *p, tci_node_list list)
{
    const tci_scores_set *set;
    bool all = true;
    for (int i = 0; i < list.n; i++) {
        tci_node *const *found = tci_table_find(p->copied, list.items[i]);
        const tci_node *made = found ? *found : NULL;
        const tci_scores_fact *fact = made ? tci_table_find(&p->facts, made) : NULL;
        bool there = fact && p->list.items[fact->at] == made;
        bool fits = !made || (there && tci_scores_end_of(p, made, &set));
        *(int32_t *)tci_table_at(p->parted, list.items[i]) += !fits;
        all = all && fits;
    }
    return all;
}

/* Gives the takers of attention scores of their own where others read them too: the same copies to
 * all of a set, to each its own where these do not fit, none where its own do not. */
static void tci_scores_part(tci_scores *p, tci_node **roots, int n_roots)
{
    tci_scratch *s = p->a->s;
    const tci_node_list list = p->list;
    tci_node **before = tci_scratch_copy(s, roots, sizeof(*roots) * (size_t)n_roots);
    p->parted = TCI_NEW(s, tci_table);
    *p->parted = tci_table_in(s, sizeof(int32_t));
    for (bool all = false; !all;) {
        p->copied = TCI_NEW(s, tci_table);
        *p->copied = tci_table_in(s, sizeof(tci_node *));
        p->n_copies = TCI_NEW(s, int32_t);
        *p->n_copies = 1; /* the first is that which takers share */
        p->copies = TCI_NEW_ARRAY(s, tci_table, p->n_sets + 1);
        for (int i = 0; i <= p->n_sets; i++) {
            p->copies[i] = tci_table_in(s, sizeof(tci_node *));
        }
        if (!tci_scores_rewrite(p, tci_scores_of_taker, roots, n_roots)) {
            return;
        }
        tci_scores_look(p, roots, n_roots);
        all = tci_scores_part_fits(p, list);
        for (int i = 0; i < n_roots && !all; i++) {
            roots[i] = before[i];
        }
        if (!all) {
            tci_scores_look(p, roots, n_roots);
        }
    }
}

/* ---- the graph with copies ---- */

/* True if n is computed from folds and has one value for each of their rows. */
static bool tci_scores_is_row(const tci_scores *p, const tci_node *n, int depth)
{
    const tci_scores_set *set;
    const tci_scores_end *end = tci_scores_end_of(p, n, &set);
    bool row = end && end->folds;
    for (int i = 0; i < n->n_in && !row && depth < TCI_SCORES_ROW; i++) {
        row = tci_op_is(n->op, TCI_IS_POINTWISE | TCI_IS_VIEW) &&
              tci_scores_is_row(p, n->in[i], depth + 1);
    }
    return row;
}

/* Materializes values per row that a kernel reads from another: they are computed there, once. */
static void tci_scores_store_row(const tci_scores *p, const tci_node *n, const tci_table *now)
{
    while (tci_op_is(n->op, TCI_IS_VIEW)) {
        n = n->in[0];
    }
    if (tci_scores_is_row(p, n, 0)) {
        tci_algo_force(p->a, tci_table_get(now, n));
    }
}

/* Node n in kernel k of a set: pairs are those of the kernel. Copy number `copy` of a contraction
 * reads its first operand through this many RESHAPEs. */
static tci_node *tci_scores_in_kernel(const tci_scores *p, const tci_scores_set *set, int k,
                                      const tci_node *n, const tci_table *now, int copy)
{
    tci_node **in = TCI_NEW_ARRAY(p->a->s, tci_node *, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++) {
        const tci_scores_fact *fact = tci_scores_of(p, n->in[i]);
        bool pair = fact->set == set->number;
        in[i] = pair ? set->kernels[k].own[fact->index] : tci_table_get(now, n->in[i]);
        if (!pair && copy > 0 && p->a->machine.block_threads == 0) { /* blocks hide a division */
            tci_scores_store_row(p, n->in[i], now);
        }
    }
    for (int i = 0; i < copy && n->op == TCI_OP_CONTRACT; i++) {
        in[0] = tci_graph_node(p->a->g, TCI_OP_RESHAPE, (tc_dtype)in[0]->dtype, in[0]->rank,
                               in[0]->shape, 1, &in[0], 0, NULL);
    }
    tci_node *made = tci_graph_node(p->a->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, n->n_in,
                                    in, n->n_attr, n->attr);
    tci_scores_like(p, n, made);
    *(int32_t *)tci_table_at(&p->out->of, made) = set->first_kernel + k + 1;
    return made;
}

/* Pair n in each kernel that needs it; the first of them for whoever else reads it. */
static tci_node *tci_scores_copy(const tci_scores *p, const tci_scores_set *set, const tci_node *n,
                                 const tci_table *now)
{
    int index = tci_scores_of(p, n)->index, copy = 0;
    tci_node *first = NULL;
    for (int k = 0; k < set->n_kernels; k++) {
        if (set->kernels[k].needs >> index & 1) {
            set->kernels[k].own[index] = tci_scores_in_kernel(p, set, k, n, now, copy++);
            first = first ? first : set->kernels[k].own[index];
        }
    }
    return first;
}

/* The takers in kernel k of a set that has scores of its own; of a set of one taker that one. */
static void tci_scores_note_takers(const tci_scores *p, const tci_scores_set *set, int k,
                                   tci_scores_kernel *kernel)
{
    kernel->takers = TCI_NEW_ARRAY(p->a->s, const tci_node *, set->n_ends + 1);
    for (int e = 0; e < set->n_ends; e++) {
        const tci_node *taker = tci_scores_origin(p, set->ends[e].node);
        bool here = set->ends[e].kernel == k || !kernel->shares;
        if (here && !set->ends[e].folds && taker != set->ends[e].node) {
            kernel->takers[kernel->n_takers++] = taker;
        }
    }
}

/* Columns of the widest taker of a set. */
static int32_t tci_scores_columns(const tci_scores_set *set)
{
    int64_t columns = 0;
    for (int e = 0; e < set->n_ends; e++) {
        int64_t width = set->ends[e].folds ? 0 : tci_scores_width(set, &set->ends[e]);
        columns = TCI_MAX(columns, width);
    }
    return (int32_t)TCI_MIN(columns, INT32_MAX);
}

static void tci_scores_add_kernels(tci_scores *p, tci_scores_set *set)
{
    const tci_node *first = tci_scores_origin(p, set->pairs[0]);
    set->first_kernel = p->out->n;
    for (int k = 0; k < set->n_kernels; k++) {
        tci_scores_kernel kernel = {.set = first,
                                    .summed = set->kernels[k].summed,
                                    .alone = tci_table_has(&p->refused->alone, first),
                                    .apart = tci_table_has(&p->refused->joint, first),
                                    .copied = tci_scores_copy_of(p, first).set};
        kernel.value_columns = set->kernels[k].takes ? 0 : tci_scores_columns(set);
        kernel.shares = kernel.copied && !tci_table_has(&p->refused->shared, kernel.copied);
        if (kernel.copied) {
            tci_scores_note_takers(p, set, k, &kernel);
        }
        TCI_PUSH(p->a->s, p->out->items, p->out->n, p->out->cap, kernel);
    }
}

/* Each kernel knows a contraction among its pairs, by which its outer axes are found. */
static void tci_scores_set_kernel_gemm(const tci_scores *p, const tci_scores_set *set)
{
    for (int k = 0; k < set->n_kernels; k++) {
        for (int i = set->n_pairs - 1; i >= 0; i--) {
            bool product = set->pairs[i]->op == TCI_OP_CONTRACT;
            if (product && set->kernels[k].needs >> i & 1) {
                p->out->items[set->first_kernel + k].product = set->kernels[k].own[i];
            }
        }
    }
}

/* The node that represents n; for a score or an end that of its kernel. */
static tci_node *tci_scores_now(const tci_scores *p, tci_node *n, const tci_table *now)
{
    int number = tci_scores_of(p, n)->set;
    const tci_scores_set *set = number > 0 ? &p->sets[number - 1] : NULL;
    if (set && set->fits) {
        return tci_scores_copy(p, set, n, now);
    }
    const tci_scores_end *end = tci_scores_end_of(p, n, &set);
    if (end) {
        return tci_scores_in_kernel(p, set, end->kernel, n, now, 0);
    }
    tci_node *made = tci_graph_rebuild(p->a->s, p->a->g, n, now);
    return made == n ? n : tci_scores_like(p, n, made);
}

static void tci_scores_build(tci_scores *p, tci_node **roots, int n_roots)
{
    tci_table now = tci_table_in(p->a->s, sizeof(tci_node *));
    for (int i = 0; i < p->n_sets; i++) {
        if (p->sets[i].fits) {
            tci_scores_add_kernels(p, &p->sets[i]);
        }
    }
    for (int i = 0; i < p->list.n; i++) {
        tci_table_put(&now, p->list.items[i], tci_scores_now(p, p->list.items[i], &now));
    }
    for (int i = 0; i < p->n_sets; i++) {
        if (p->sets[i].fits) {
            tci_scores_set_kernel_gemm(p, &p->sets[i]);
        }
    }
    for (int i = 0; i < n_roots; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}

TCI_FN void tci_scores_look(tci_scores *p, tci_node *const *roots, int n_roots)
{
    p->n_sets = 0;
    tci_scores_read_graph(p, roots, n_roots);
    tci_scores_find(p);
}

/* ---- what is left whole ---- */

/* Rows of a taker's pairs, if it sums the longest axis that it may. */
static double tci_scores_rows(const tci_node *pair, uint64_t summed)
{
    int64_t longest = 1;
    for (int i = 0; i < pair->rank; i++) {
        longest = TCI_MAX(longest, summed >> i & 1 ? tci_dim_known(pair->shape[i]) : 1);
    }
    return tci_scores_count(pair) / (double)longest;
}

/* True if pairs that a taker needs are normalized by folds, as the weights of a softmax are. A
 * hidden layer behind gelu or silu has exponentials and sums (its bias's gradient), but reads none
 * of the sums. */
static bool tci_scores_are_normalized(const tci_scores *p, const tci_scores_set *set,
                                      uint64_t needs)
{
    bool reads = false;
    for (int i = 0; i < set->n_pairs; i++) {
        const tci_node *pair = set->pairs[i];
        bool has = (needs >> i & 1) && pair->op != TCI_OP_CONTRACT;
        for (int j = 0; j < pair->n_in && has && !reads; j++) {
            bool own = tci_scores_of(p, pair->in[j])->set == set->number;
            reads = !own && tci_scores_is_row(p, pair->in[j], 0);
        }
    }
    return reads;
}

/* True if a GPU has rows enough for a taker and for the folds of its set. */
static bool tci_scores_are_busy(const tci_scores_set *set, const tci_scores_end *taker,
                                tci_machine machine)
{
    bool busy = true;
    for (int e = 0; e < set->n_ends; e++) {
        const tci_scores_end *end = &set->ends[e];
        bool counts = end == taker || end->folds;
        busy = busy && (!counts || tci_scores_rows(set->pairs[end->pair], end->summed) >=
                                       (double)TCI_SCORES_BUSY * machine.facts.processors);
    }
    return busy;
}

/* True if a taker is attention or part of its gradient: exponentials of scores, which are
 * normalized, and contracted with an operand other than those of the scores, unless they hold
 * another product, as changes of scores do. */
static bool tci_scores_is_attention(const tci_scores *p, const tci_scores_set *set,
                                    const tci_scores_end *end, uint64_t needs)
{
    const tci_node *first = NULL, *pair = set->pairs[end->pair];
    const tci_node *with = end->node->in[end->node->in[0] == pair];
    bool powers = false, other = false;
    for (int i = 0; i < set->n_pairs; i++) {
        const tci_node *n = needs >> i & 1 ? set->pairs[i] : NULL;
        powers = powers || (n && n->op == TCI_OP_EXP);
        if (n && n->op == TCI_OP_CONTRACT) {
            const tci_node *of = tci_scores_copy_of(p, n).of;
            other = other || first;
            first = first ? first : of ? of : n;
        }
    }
    other = other || (first && with != first->in[0] && with != first->in[1]);
    return powers && other && tci_scores_are_normalized(p, set, needs);
}

/* Attention alone in short heads: by threads it takes no longer than products of f16 or bf16 values
 * do, which leave an array of pairs. */
static bool tci_scores_is_short(const tci_scores_set *set, const tci_scores_end *end,
                                uint64_t needs)
{
    int products = 0;
    double rows = tci_scores_rows(set->pairs[end->pair], end->summed);
    bool fits = tci_scores_is_known(end->node) &&
                tci_scores_count(end->node) <= TCI_SCORES_SHORT * rows;
    for (int i = 0; i < set->n_pairs; i++) {
        bool is_product = (needs >> i & 1) && set->pairs[i]->op == TCI_OP_CONTRACT;
        products += is_product;
        fits = fits && (!is_product || tci_scores_depth(set->pairs[i]) <= TCI_SCORES_SHORT);
    }
    return fits && products == 1;
}

/* Marks a taker, and the products that it needs, as contractions that no route cuts. */
static void tci_scores_mark_whole(const tci_scores *p, const tci_scores_set *set,
                                  const tci_scores_end *end, uint64_t needs)
{
    tci_table_add(p->a->whole, tci_scores_origin(p, end->node));
    for (int i = 0; i < set->n_pairs; i++) {
        if ((needs >> i & 1) && set->pairs[i]->op == TCI_OP_CONTRACT) {
            const tci_node *of = tci_scores_copy_of(p, set->pairs[i]).of;
            tci_table_add(p->a->whole, of ? of : set->pairs[i]);
        }
    }
}

TCI_FN void tci_scores_keep_whole(const tci_algo *a, tci_node *const *roots, int n_roots)
{
    tci_scores_refused none = tci_scores_none(a->s);
    if (a->machine.block_threads == 0 || !tci_scores_taken(a->machine)) {
        return;
    }
    const tci_machine machine = tci_machine_complete(a->machine);
    const bool by_halves = machine.is_fast && machine.matrix_units > 0;
    tci_table origins = tci_table_in(a->s, sizeof(const tci_node *));
    tci_table own = tci_table_in(a->s, sizeof(tci_scores_copied));
    tci_scores p = {.a = a, .refused = &none, .origins = &origins, .own = &own};
    tci_scores_look(&p, roots, n_roots);
    tci_scores_part(&p, tci_scratch_copy(a->s, roots, sizeof(*roots) * (size_t)n_roots), n_roots);
    for (int i = 0; i < p.n_sets; i++) {
        const tci_scores_set *set = &p.sets[i];
        for (int e = 0; e < set->n_ends && set->fits; e++) {
            const tci_scores_end *end = &set->ends[e];
            const uint64_t needs = tci_scores_needs_of(&p, set, end);
            if (!end->folds && tci_scores_are_busy(set, end, machine) &&
                tci_scores_is_attention(&p, set, end, needs) &&
                (!by_halves || tci_scores_is_short(set, end, needs))) {
                tci_scores_mark_whole(&p, set, end, needs);
            }
        }
    }
}

/* ---- the pass ---- */

TCI_FN bool tci_scores_taken(tci_machine m)
{
    bool processor = (m.thread_scratch || m.vector_bytes == 0) && !m.no_fusion;
    return (m.block_threads > 0 ? !m.no_shared_memory : processor) && !m.reproducible;
}

TCI_FN void tci_plan_pairs(const tci_algo *a, tci_node **roots, int n_roots,
                           const tci_scores_refused *refused, tci_scores_kernels *out)
{
    static const tci_scores_rule rules[] = {tci_scores_of_rows, tci_scores_of_lines};
    out->of = tci_table_in(a->s, sizeof(int32_t));
    if (!tci_scores_taken(a->machine)) {
        return;
    }
    tci_scores p = {.a = a, .refused = refused, .out = out};
    tci_table origins = tci_table_in(a->s, sizeof(const tci_node *));
    tci_table own = tci_table_in(a->s, sizeof(tci_scores_copied));
    p.origins = &origins;
    p.own = &own;
    tci_scores_look(&p, roots, n_roots);
    if (a->machine.block_threads > 0) {
        tci_scores_part(&p, roots, n_roots);
    }
    for (int i = a->machine.block_threads > 0 ? 0 : 1; i < TCI_COUNT(rules); i++) {
        if (tci_scores_rewrite(&p, rules[i], roots, n_roots)) {
            tci_scores_look(&p, roots, n_roots);
        }
    }
    tci_scores_build(&p, roots, n_roots);
}
