/* rewrite/guarded_update.c - predicated parameter updates: an index out of range leaves parameters
 * unchanged.
 *
 * In: roots of a simplified graph. Out: the same roots, but each ASSIGN whose run may meet such an
 * index takes the new value only if no index is out of range, else the old one. The new value may
 * then overwrite the old one before the host has seen the error (run/program.c): no second copy of
 * each parameter and no copies at the end of a run.
 *
 * Design: a run first computes one bool that says whether all indices are in range. This is
 * possible if the indices are inputs of the run, moved and changed element by element. The bool
 * compares each index with a ramp read at that index: the read is a fault where the index is out of
 * range, and its result then differs from the index. The bool is therefore false only in runs that
 * fail. For a SCATTER into the old value it selects whether elements are stored, so only changed
 * elements are written. Where indices are computed in other ways, or within a loop (REPEAT node),
 * or an assertion may fail the run, the ASSIGN stays as it is, and new values are kept separately
 * until the end of the run. */
#include "../graph/build.h"
#include "../ops/custom_op.h"
#include "rewrite.h"

enum {
    TCI_GUARDED_FEW = 4095
}; /* along the axis: more may go side by side (plan/scatter_sort.c) */

typedef struct tci_guarded {
    tci_scratch *s;
    tci_graph *g;
    tci_node *all; /* that all indices so far are inside; NULL: there is none */
    tci_table met; /* of tci_node *: by index, the axis' ramp that it was compared with */
} tci_guarded;

static tci_node *tci_guarded_built(const tci_guarded *t, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(t->s, tci_graph_why_again(t->g), "rewrite: %s", t->g->message);
    }
    return n;
}

static tci_node *tci_guarded_ew(const tci_guarded *t, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_guarded_built(t, tci_build_ew(t->g, op, in));
}

/* The index without what only repeats and rearranges its elements. */
static tci_node *tci_guarded_own(tci_node *index)
{
    while (index->op == TCI_OP_EXPAND || index->op == TCI_OP_RESHAPE ||
           index->op == TCI_OP_PERMUTE) {
        index = index->in[0];
    }
    return index;
}

static void tci_guarded_add(tci_guarded *t, tci_node *index, tci_dim size)
{
    tci_node *own = tci_guarded_own(index), *ramp = tci_build_iota(t->g, size);
    tci_dim count = tci_node_count(own);
    tci_node **met = (tci_node **)tci_table_at(&t->met, own);
    if (*met == ramp) {
        return;
    }
    *met = tci_guarded_built(t, ramp);
    own = tci_guarded_built(t, tci_build_cast(t->g, own, TC_I64));
    own = tci_guarded_built(t, tci_build_reshape(t->g, own, 1, &count));
    tci_node *end = tci_guarded_built(t, tci_build_size_value(t->g, size, TC_I64));
    tci_value nothing = {.i = 0};
    tci_node *zero = tci_guarded_built(t, tci_graph_const(t->g, TC_I64, nothing));
    tci_node *from_end = tci_guarded_ew(t, TCI_OP_ADD, own, end);
    tci_node *place = tci_build_where(t->g, tci_guarded_ew(t, TCI_OP_LT, own, zero), from_end, own);
    tci_node *read = tci_guarded_built(t, tci_build_gather(t->g, ramp, 0, own));
    tci_node *inside = tci_guarded_ew(t, TCI_OP_EQ, read, tci_guarded_built(t, place));
    inside = tci_build_reduce(t->g, TCI_OP_ALL, inside, (tc_axes){.all = true}, false);
    inside = tci_guarded_built(t, inside);
    t->all = t->all ? tci_guarded_ew(t, TCI_OP_LOGICAL_AND, t->all, inside) : inside;
}

/* Per node, in their order: it is a leaf, or made of such by movement and element by element. */
static void tci_guarded_find_given(tci_table *given, const tci_node_list *list)
{
    for (int i = 0; i < list->n; i++) {
        const tci_node *n = list->items[i];
        bool is = n->op != TCI_OP_BOUND &&
                  tci_op_is(n->op, TCI_IS_LEAF | TCI_IS_VIEW | TCI_IS_POINTWISE);
        for (int j = 0; j < n->n_in; j++) {
            is = is && *(bool *)tci_table_item(given, n->in[j]);
        }
        *(bool *)tci_table_at(given, n) = is;
    }
}

static bool tci_guarded_reads(const tci_node *n)
{
    return (n->op == TCI_OP_GATHER || n->op == TCI_OP_SCATTER) && tci_node_count(n->in[1]) != 0;
}

static bool tci_guarded_asserts(const tci_node *n)
{
    const tci_custom *op = n->op == TCI_OP_CUSTOM ? tci_custom_get(n->attr[0]) : NULL;
    return op && op->asserts;
}

/* True if each index is computed from leaves alone, and nothing but an index fails a run. */
static bool tci_guarded_is_given(tci_scratch *s, const tci_node_list *list)
{
    tci_table given = tci_table_in(s, sizeof(bool));
    bool all = true;
    tci_guarded_find_given(&given, list);
    for (int i = 0; i < list->n && all; i++) {
        const tci_node *n = list->items[i];
        all = tci_guarded_reads(n) ? *(bool *)tci_table_item(&given, n->in[1])
                                   : !tci_guarded_asserts(n);
    }
    return all;
}

/* Few elements of a parameter are set to others. */
static bool tci_guarded_is_update(const tci_node *effect)
{
    const tci_node *now = tci_op_is(effect->op, TCI_IS_EFFECT) ? effect->in[1] : NULL;
    return now && now->op == TCI_OP_SCATTER && now->in[0] == effect->in[0] &&
           tci_dim_le(now->in[1]->shape[now->attr[0]], TCI_GUARDED_FEW);
}

/* The updates, taken all or none. */
static tci_node *tci_guarded_update(const tci_guarded *t, tci_node *all, const tci_node *n)
{
    tci_node *in[4] = {n->in[0], n->in[1], n->in[2], all};
    return tci_guarded_built(t, tci_graph_node(t->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape,
                                               4, in, n->n_attr, n->attr));
}

static tci_node *tci_guarded_effect(const tci_guarded *t, tci_node *all, tci_node *effect)
{
    tci_node *old = effect->in[0];
    tci_node *now = tci_guarded_built(t, tci_build_where(t->g, all, effect->in[1], old));
    tci_node *in[2] = {old, now};
    return tci_guarded_built(t, tci_graph_node(t->g, effect->op, (tc_dtype)effect->dtype,
                                               effect->rank, effect->shape, 2, in, 0, NULL));
}

/* The roots, with updates and effects as they should be; what reads an updated value reads that. */
static void tci_guarded_apply(tci_guarded *t, tci_node *all, const tci_node_list *list,
                              tci_node **roots, int n)
{
    tci_table updates = tci_table_in(t->s, sizeof(bool));
    tci_table now = tci_table_in(t->s, sizeof(tci_node *));
    for (int i = 0; i < n; i++) {
        if (tci_guarded_is_update(roots[i])) {
            *(bool *)tci_table_at(&updates, roots[i]->in[1]) = true;
        }
    }
    for (int i = 0; i < list->n; i++) {
        tci_node *was = list->items[i];
        tci_node *over = tci_guarded_built(t, tci_graph_rebuild(t->s, t->g, was, &now));
        bool effect = tci_op_is(was->op, TCI_IS_EFFECT) && !tci_guarded_is_update(was);
        over = tci_table_has(&updates, was) ? tci_guarded_update(t, all, over)
               : effect                     ? tci_guarded_effect(t, all, over)
                                            : over;
        tci_table_put(&now, was, over);
    }
    for (int i = 0; i < n; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}

TCI_FN bool tci_rewrite_intact(tci_scratch *s, tci_graph *g, tci_node **roots, int n)
{
    tci_guarded t = {s, g, NULL, tci_table_in(s, sizeof(tci_node *))};
    tci_node_list list = tci_graph_sort(s, roots, n);
    bool has_effects = n > 0 && tci_op_is(roots[n - 1]->op, TCI_IS_EFFECT);
    if (!has_effects || !tci_guarded_is_given(s, &list)) {
        return false;
    }
    for (int i = 0; i < list.n; i++) {
        tci_node *reads = list.items[i];
        if (tci_guarded_reads(reads)) {
            tci_guarded_add(&t, reads->in[1], reads->in[0]->shape[reads->attr[0]]);
        }
    }
    if (t.all) {
        tci_node *all = tci_guarded_built(&t, tci_build_barrier(g, t.all, NULL, 0, false));
        tci_guarded_apply(&t, all, &list, roots, n);
    }
    return true;
}
