/* comm/partition_rules.c - sharding rules of each op: the split of its result from those of its
 * operands, and the op on shards.
 *
 * In: a node of the global graph, and the shardings of its operands. Out: the sharding of its
 * result, the shardings that it requires of its operands, and the op on shards.
 *
 * Design: sharding of a parallel (elementwise) axis is propagated; sharding of a reduction axis
 * gives a partial sum; operands sharded in any other way are gathered first. A contraction with
 * column-sharded weights needs no communication, one with row-sharded weights gives a partial sum:
 * the layer pairs of Megatron-LM (arXiv 1909.08053) need no rule of their own. */
#include <string.h>

#include "../graph/contraction_descriptor.h"
#include "../ops/composite.h"
#include "partition.h"

/* Result of a rule. */
typedef struct tci_part_plan {
    int8_t *out;
    int8_t **in;       /* of each operand */
    uint32_t partial;  /* the result's */
    uint32_t extremes; /* communicators over which the result's maximum or minimum is left */
} tci_part_plan;

static tci_part_plan tci_part_plan_of(tci_part *v, const tci_node *n)
{
    tci_part_plan p = {.out = tci_part_none(v, n->rank),
                       .in = TCI_NEW_ARRAY(v->s, int8_t *, n->n_in + 1)};
    for (int i = 0; i < n->n_in; i++) {
        p.in[i] = tci_part_none(v, n->in[i]->rank);
    }
    return p;
}

/* Axis `to` of a split takes a cut, if it has none and no other axis has that. */
static void tci_part_take(int8_t *split, int rank, int to, int8_t cut)
{
    if (cut && !split[to] && !tci_part_uses(split, rank, cut - 1)) {
        split[to] = cut;
    }
}

/* ---- the op on parts ---- */

static bool tci_part_is_same(const tci_node *n, tci_node *const *in, const int8_t *out)
{
    bool same = true;
    for (int i = 0; i < n->rank; i++) {
        same = same && !out[i];
    }
    for (int i = 0; i < n->n_in; i++) {
        same = same && in[i] == n->in[i];
    }
    return same;
}

static void tci_part_give(tci_part *v, const tci_node *n, const tci_part_plan *p, tci_node *made)
{
    tci_part_value *value = tci_part_of(v, n);
    value->node = made;
    value->split = p->out;
    value->partial = p->partial;
}

static void tci_part_make(tci_part *v, tci_node *n, tci_part_plan *p)
{
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in + 1), *made = n;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = tci_part_want(v, n->in[i], p->in[i]);
    }
    if (!v->dry && !tci_part_is_same(n, in, p->out)) {
        made = tci_part_built(v, tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank,
                                                tci_part_shape(v, n, p->out), n->n_in, in,
                                                n->n_attr, n->attr));
    }
    for (int c = 0; c < v->n_comms && !v->dry; c++) {
        if (p->extremes >> c & 1) {
            bool most = n->op == TCI_OP_MAX || n->op == TCI_OP_ANY;
            made = tci_part_reduce(v, made, c, most ? TC_COMM_MAX : TC_COMM_MIN, n->site);
        }
    }
    tci_part_give(v, n, p, made);
}

/* The value of n is that of e, which is made of ops of their own. */
static void tci_part_as(tci_part *v, const tci_node *n, tci_node *e)
{
    tci_part_reach(v, tci_part_built(v, e));
    tci_part_of(v, n)->as = tci_part_of(v, e);
}

/* ---- element by element ---- */

/* A sum or difference of sums that are both partial over the same ranks stays partial: one message
 * for both. */
static bool tci_part_adds_partial(tci_part *v, tci_node *n)
{
    if (n->op != TCI_OP_ADD && n->op != TCI_OP_SUB) {
        return false;
    }
    const tci_part_value *a = tci_part_of(v, n->in[0]), *b = tci_part_of(v, n->in[1]);
    tci_part_plan p = tci_part_plan_of(v, n);
    bool adds = a->partial && a->partial == b->partial && !a->forms && !b->forms &&
                !memcmp(a->split, b->split, (size_t)n->rank);
    if (adds) {
        tci_node *in[2] = {a->node, b->node};
        memcpy(p.out, a->split, (size_t)n->rank);
        p.partial = a->partial;
        tci_part_give(v, n, &p, v->dry ? n : tci_part_built(v, tci_build_ew(v->g, n->op, in)));
    }
    return adds;
}

static void tci_part_pointwise(tci_part *v, tci_node *n, int but)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    if (tci_part_adds_partial(v, n)) {
        return;
    }
    for (int i = 0; i < n->n_in; i++) {
        const int8_t *split = tci_part_of(v, n->in[i])->split;
        for (int d = 0; d < n->rank; d++) {
            if (d != but) {
                tci_part_take(p.out, n->rank, d, split[d]);
            }
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        p.in[i] = p.out;
    }
    tci_part_make(v, n, &p);
}

/* Axis d of the result is axis from(d) of operand 0, cut as that; -1: no axis. A value that is
 * partial stays so if nothing of it must be joined. */
static void tci_part_moved(tci_part *v, tci_node *n, const int *from)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const tci_part_value *x = tci_part_of(v, n->in[0]);
    bool whole = true;
    for (int d = 0; d < n->rank; d++) {
        if (from[d] >= 0) {
            p.out[d] = p.in[0][from[d]] = x->split[from[d]];
        }
    }
    for (int d = 0; d < n->in[0]->rank; d++) {
        whole = whole && p.in[0][d] == x->split[d];
    }
    bool keeps = n->op == TCI_OP_RESHAPE || n->op == TCI_OP_PERMUTE;
    if (!x->partial || !whole || !keeps) {
        tci_part_make(v, n, &p);
        return;
    }
    p.partial = x->partial;
    tci_node *in = x->node, *made = n;
    if (!v->dry) {
        made = tci_part_built(v, tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank,
                                                tci_part_shape(v, n, p.out), 1, &in, n->n_attr,
                                                n->attr));
    }
    tci_part_give(v, n, &p, made);
}

/* ---- movement ---- */

/* The group of axes [*i, i_end) of x has the elements of [*j, j_end) of y; the axes that lead them,
 * the first that are no 1, or -1. Sizes that are symbols end the search: all that is left is one
 * group. */
static void tci_part_group(const tci_node *x, const tci_node *y, int *i, int *j)
{
    tci_dim have = *i < x->rank ? x->shape[(*i)++] : 1, want = *j < y->rank ? y->shape[(*j)++] : 1;
    while (have != want) {
        bool known = tci_dim_is_known(have) && tci_dim_is_known(want);
        bool less = known && tci_dim_lt(have, want);
        if (known && less && *i < x->rank) {
            have = tci_dim_mul(have, x->shape[(*i)++]);
        } else if (known && !less && *j < y->rank) {
            want = tci_dim_mul(want, y->shape[(*j)++]);
        } else {
            *i = x->rank;
            *j = y->rank;
            return;
        }
    }
}

static int tci_part_leading(const tci_node *n, int begin, int end)
{
    while (begin < end && n->shape[begin] == 1) {
        begin++;
    }
    return begin < end ? begin : -1;
}

static void tci_part_reshape(tci_part *v, tci_node *n)
{
    const tci_node *x = n->in[0];
    const int8_t *split = tci_part_of(v, x)->split;
    int *from = TCI_NEW_ARRAY(v->s, int, n->rank + 1), i = 0, j = 0;
    for (int d = 0; d < n->rank; d++) {
        from[d] = -1;
    }
    while (i < x->rank || j < n->rank) {
        int first_i = i, first_j = j;
        tci_part_group(x, n, &i, &j);
        int a = tci_part_leading(x, first_i, i), b = tci_part_leading(n, first_j, j);
        if (a >= 0 && b >= 0 && split[a] && tci_part_fits(v, n->shape[b], split[a])) {
            from[b] = a;
        }
    }
    tci_part_moved(v, n, from);
}

static void tci_part_permute(tci_part *v, tci_node *n)
{
    int *from = TCI_NEW_ARRAY(v->s, int, n->rank + 1);
    for (int d = 0; d < n->rank; d++) {
        from[d] = (int)n->attr[d];
    }
    tci_part_moved(v, n, from);
}

/* EXPAND, SLICE, PAD, WINDOW, SCAN and TOPK: axes that stay as they are keep their cuts. */
static void tci_part_in_place(tci_part *v, tci_node *n)
{
    int *from = TCI_NEW_ARRAY(v->s, int, n->rank + 1), rank = n->in[0]->rank;
    const tci_dim *words = tci_node_dims(n);
    for (int d = 0; d < n->rank; d++) {
        bool stays = d < rank && n->shape[d] == n->in[0]->shape[d];
        if (stays && n->op == TCI_OP_SLICE) {
            stays = words[2 * d] == 0 && words[2 * d + 1] == 1;
        } else if (stays && n->op == TCI_OP_PAD) {
            stays = words[d] == 0;
        } else if (n->op == TCI_OP_SCAN || n->op == TCI_OP_TOPK) {
            stays = stays && d != n->attr[0];
        }
        for (int i = 0; n->op == TCI_OP_WINDOW && i < n->n_attr; i += 4) {
            stays = stays && d != n->attr[i];
        }
        from[d] = stays ? d : -1;
    }
    tci_part_moved(v, n, from);
}

/* ---- reductions and contractions ---- */

/* The sum of squared differences from the mean as two sums. */
static tci_node *tci_part_devsq(tci_part *v, tci_node *n)
{
    int *items = TCI_NEW_ARRAY(v->s, int, n->n_attr + 1);
    const tc_axes axes = {items, n->n_attr, false};
    const tc_dtype math = tci_composite_math(n);
    tci_dim count = 1;
    for (int i = 0; i < n->n_attr; i++) {
        items[i] = (int)n->attr[i];
        count = tci_dim_mul(count, n->in[0]->shape[n->attr[i]]);
    }
    tci_node *x = tci_build_cast(v->g, n->in[0], math);
    tci_node *mean = tci_composite_binary(v->g, TCI_OP_DIV,
                                          tci_build_reduce(v->g, TCI_OP_SUM, x, axes, true),
                                          tci_build_size_value(v->g, count, math));
    x = tci_composite_unary(v->g, TCI_OP_SQUARE, tci_composite_binary(v->g, TCI_OP_SUB, x, mean));
    x = tci_build_reduce(v->g, TCI_OP_SUM, x, axes, false);
    return tci_build_cast(v->g, x, (tc_dtype)n->dtype);
}

static void tci_part_reduction(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const tci_node *x = n->in[0];
    const int8_t *split = tci_part_of(v, x)->split;
    bool adds = n->op == TCI_OP_SUM, cuts = false;
    bool extreme = n->op == TCI_OP_MAX || n->op == TCI_OP_MIN || n->op == TCI_OP_ANY ||
                   n->op == TCI_OP_ALL;
    for (int d = 0, k = 0, at = 0; d < x->rank; d++) {
        bool reduced = k < n->n_attr && n->attr[k] == d;
        k += reduced;
        if (!reduced) {
            p.out[at++] = p.in[0][d] = split[d];
        } else if (split[d] && (adds || extreme)) {
            p.in[0][d] = split[d];
            *(adds ? &p.partial : &p.extremes) |= 1u << (split[d] - 1);
        }
        cuts = cuts || (reduced && split[d]);
    }
    if (n->op == TCI_OP_DEVSQ && cuts) {
        tci_part_as(v, n, tci_part_devsq(v, n));
    } else {
        tci_part_make(v, n, &p);
    }
}

/* The label of operand `which` that communicator c cuts; -1: none. */
static int64_t tci_part_label(tci_part *v, const tci_node *n, int which, int c)
{
    const int8_t *split = tci_part_of(v, n->in[which])->split;
    for (int d = 0; d < n->in[which]->rank; d++) {
        if (split[d] == c + 1) {
            return tci_contract_labels(n, which)[d];
        }
    }
    return -1;
}

/* Of two operands that one communicator cuts along different labels, the one that keeps its cut: a
 * value rather than weights (whose parts are gathered), else the larger. */
static int tci_part_keeper(const tci_node *n)
{
    bool leaf[2];
    for (int i = 0; i < 2; i++) {
        tci_node *below = tci_below(n->in[i], TCI_THROUGH_ALL, NULL);
        while (below->op == TCI_OP_SHARD) {
            below = tci_below(below->in[0], TCI_THROUGH_ALL, NULL);
        }
        leaf[i] = below->op == TCI_OP_DATA;
    }
    if (leaf[0] != leaf[1]) {
        return leaf[0];
    }
    return tci_node_value_bytes(n->in[1]) > tci_node_value_bytes(n->in[0]);
}

static void tci_part_contract(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    for (int c = 0; c < v->n_comms; c++) {
        const int64_t a = tci_part_label(v, n, 0, c), b = tci_part_label(v, n, 1, c);
        const int64_t label = a < 0 ? b : b < 0 ? a : tci_part_keeper(n) ? b : a;
        bool taken = label < 0;
        int at[3];
        for (int i = 0; i < 3 && !taken; i++) {
            at[i] = tci_contract_axis(n, i, label);
            taken = at[i] >= 0 && (i < 2 ? p.in[i] : p.out)[at[i]];
        }
        for (int i = 0; i < 3 && !taken; i++) {
            if (at[i] >= 0) {
                (i < 2 ? p.in[i] : p.out)[at[i]] = (int8_t)(c + 1);
            }
        }
        if (!taken && at[2] < 0) {
            p.partial |= 1u << c;
        }
    }
    tci_part_make(v, n, &p);
}

/* ---- reads and writes at indices ---- */

/* Off the axis, x and index are cut alike where they have one size. */
static void tci_part_off_axis(tci_part *v, const tci_node *n, tci_part_plan *p, int axis)
{
    for (int i = n->n_in - 1; i >= 0; i--) {
        const int8_t *split = tci_part_of(v, n->in[i])->split;
        for (int d = 0; d < n->rank; d++) {
            if (d != axis && n->in[0]->shape[d] == n->in[1]->shape[d]) {
                tci_part_take(p->out, n->rank, d, split[d]);
            }
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        memcpy(p->in[i], p->out, (size_t)n->rank);
    }
}

static tci_node *tci_part_whole(tci_part *v, int64_t number)
{
    return tci_part_built(v, tci_composite_whole(v->g, number));
}

static tci_node *tci_part_binary(tci_part *v, int op, tci_node *a, tci_node *b)
{
    return tci_part_built(v, tci_composite_binary(v->g, op, a, b));
}

/* x cut along the axis that is read: each rank reads the elements that it has, and 0 for the
 * others. An index outside of x is outside of the part too. */
static tci_node *tci_part_own_rows(tci_part *v, tci_node *n, tci_node *x, tci_node *index, int c)
{
    const int axis = (int)n->attr[0];
    const int64_t size = tci_dim_known(n->in[0]->shape[axis]), part = size / v->comms[c]->size;
    tci_node *i = tci_part_built(v, tci_build_cast(v->g, index, TC_I64));
    tci_node *zero = tci_part_whole(v, 0), *last = tci_part_whole(v, size);
    tci_node *below = tci_part_binary(v, TCI_OP_LT, i, zero);
    i = tci_part_built(v, tci_build_where(v->g, below, tci_part_binary(v, TCI_OP_ADD, i, last), i));
    tci_node *j = tci_part_binary(v, TCI_OP_SUB, i, tci_part_whole(v, part * v->comms[c]->rank));
    tci_node *mine = tci_part_binary(v, TCI_OP_LOGICAL_AND, tci_part_binary(v, TCI_OP_GE, j, zero),
                                     tci_part_binary(v, TCI_OP_LT, j, tci_part_whole(v, part)));
    tci_node *within = tci_part_binary(v, TCI_OP_LOGICAL_AND,
                                       tci_part_binary(v, TCI_OP_GE, i, zero),
                                       tci_part_binary(v, TCI_OP_LT, i, last));
    tci_node *other = tci_part_built(v,
                                     tci_build_where(v->g, within, zero, tci_part_whole(v, part)));
    j = tci_part_built(v, tci_build_where(v->g, mine, j, other));
    tci_node *y = tci_part_built(v, tci_build_gather(v->g, x, axis, j));
    tci_node *nothing = tci_part_built(v, tci_composite_number(v->g, (tc_dtype)n->dtype, 0));
    return tci_part_built(v, tci_build_where(v->g, mine, y, nothing));
}

static void tci_part_gather(tci_part *v, tci_node *n)
{
    const int axis = (int)n->attr[0];
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_off_axis(v, n, &p, axis);
    const int8_t *x = tci_part_of(v, n->in[0])->split, *index = tci_part_of(v, n->in[1])->split;
    tci_part_take(p.out, n->rank, axis, index[axis]);
    p.in[1][axis] = p.out[axis];
    int c = x[axis] - 1;
    bool cut = c >= 0 && !tci_part_uses(p.out, n->rank, c) && n->dtype != TC_BOOL &&
               tci_dim_is_known(n->in[0]->shape[axis]);
    if (!cut) {
        tci_part_make(v, n, &p);
        return;
    }
    p.in[0][axis] = (int8_t)(c + 1);
    p.partial = 1u << c;
    tci_node *of[2] = {tci_part_want(v, n->in[0], p.in[0]), tci_part_want(v, n->in[1], p.in[1])};
    tci_part_give(v, n, &p, v->dry ? n : tci_part_own_rows(v, n, of[0], of[1], c));
}

static void tci_part_scatter(tci_part *v, tci_node *n)
{
    const int axis = (int)n->attr[0];
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_off_axis(v, n, &p, axis);
    bool adds = n->attr[1] == TCI_MODE_ADD && n->n_in == 3 &&
                tci_is_zero(tci_below(n->in[0], TCI_THROUGH_VIEWS, NULL));
    for (int i = 1; i < 3 && adds && !p.partial; i++) {
        int8_t cut = tci_part_of(v, n->in[i])->split[axis];
        if (cut && !tci_part_uses(p.out, n->rank, cut - 1)) {
            p.in[1][axis] = p.in[2][axis] = cut;
            p.partial = 1u << (cut - 1);
        }
    }
    tci_part_make(v, n, &p);
}

/* ---- composites ---- */

/* True if an axis that n treats as one is cut. */
static bool tci_part_cuts(tci_part *v, const tci_node *n)
{
    const int8_t *split = tci_part_of(v, n->in[0])->split;
    const int64_t *axes = n->attr + (n->op == TCI_OP_LAYER_NORM);
    int count = n->op == TCI_OP_LAYER_NORM ? (int)n->attr[0] : n->n_attr;
    bool cuts = false;
    for (int i = 0; i < count; i++) {
        cuts = cuts || split[axes[i]];
    }
    for (int d = 0; n->op == TCI_OP_CROSS_ENTROPY && d < n->in[0]->rank; d++) {
        cuts = cuts || split[d] || (d < n->in[1]->rank && tci_part_of(v, n->in[1])->split[d]);
    }
    return cuts;
}

static void tci_part_composite(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const int8_t *split = tci_part_of(v, n->in[0])->split;
    if (tci_part_cuts(v, n)) {
        tci_part_as(v, n, tci_expand_composite(v->g, n));
        return;
    }
    for (int d = 0, k = 0, at = 0; d < n->in[0]->rank && n->rank; d++) {
        bool reduced = n->op == TCI_OP_MEAN && k < n->n_attr && n->attr[k] == d;
        k += reduced;
        p.in[0][d] = split[d];
        if (!reduced) {
            p.out[at++] = split[d];
        }
    }
    tci_part_make(v, n, &p);
}

static void tci_part_mark(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    for (int d = 0; d < n->rank; d++) {
        for (int c = 0; c < v->n_comms; c++) {
            if (n->attr[d] == v->comms[c]->number) {
                p.out[d] = p.in[0][d] = (int8_t)(c + 1);
            }
        }
    }
    tci_part_give(v, n, &p, tci_part_want(v, n->in[0], p.out));
}

/* ---- others ---- */

static void tci_part_leaf(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_value *value = tci_part_of(v, n);
    if (!value->node) { /* else this rank's part was made */
        tci_part_give(v, n, &p, n);
    }
    value->in_body = n->op == TCI_OP_BOUND;
}

static void tci_part_assign(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    const int8_t *split = tci_part_of(v, n->in[0])->split;
    tci_node *in[2] = {tci_part_of(v, n->in[0])->node, tci_part_want(v, n->in[1], split)};
    memcpy(p.out, split, (size_t)n->rank);
    bool same = v->dry || (in[0] == n->in[0] && in[1] == n->in[1]);
    tci_part_give(v, n, &p,
                  same ? n : tci_part_built(v, tci_build_param_assign(v->g, in[0], in[1])));
}

/* Operands that are only waited for may have any split. */
static void tci_part_barrier(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    memcpy(p.out, tci_part_of(v, n->in[0])->split, (size_t)n->rank);
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = i ? tci_part_of(v, n->in[i])->node : tci_part_want(v, n->in[0], p.out);
    }
    bool same = v->dry || tci_part_is_same(n, in, p.out);
    tci_part_give(v, n, &p,
                  same ? n
                       : tci_part_built(v, tci_build_barrier(v->g, in[0], in + 1, n->n_in - 1,
                                                             n->attr[0])));
}

/* All operands whole. */
static void tci_part_undone(tci_part *v, tci_node *n)
{
    tci_part_plan p = tci_part_plan_of(v, n);
    tci_part_make(v, n, &p);
}

static bool tci_part_visit_body(tci_part *v, tci_node *n)
{
    bool in_body = false;
    for (int i = 0; i < n->n_in && n->op != TCI_OP_REPEAT; i++) {
        in_body = in_body || tci_part_of(v, n->in[i])->in_body;
    }
    if (in_body) {
        tci_part_undone(v, n);
        tci_part_of(v, n)->in_body = true;
    }
    return in_body;
}

TCI_FN void tci_part_visit(tci_part *v, tci_node *n)
{
    if (tci_part_visit_body(v, n)) {
        return;
    }
    switch ((tci_op)n->op) {
        TCI_EW_OPS(TCI_OP_CASE)
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_BITCAST:
    case TCI_OP_STOP_GRADIENT:
    case TCI_OP_WITH_DERIVATIVE:
        tci_part_pointwise(v, n, -1);
        break;
        TCI_REDUCE_OPS(TCI_OP_CASE) tci_part_reduction(v, n);
        break;
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA:
    case TCI_OP_BOUND: tci_part_leaf(v, n); break;
    case TCI_OP_RESHAPE: tci_part_reshape(v, n); break;
    case TCI_OP_PERMUTE: tci_part_permute(v, n); break;
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE:
    case TCI_OP_PAD:
    case TCI_OP_WINDOW:
    case TCI_OP_SCAN:
    case TCI_OP_TOPK: tci_part_in_place(v, n); break;
    case TCI_OP_CAT: tci_part_pointwise(v, n, (int)n->attr[0]); break;
    case TCI_OP_GATHER: tci_part_gather(v, n); break;
    case TCI_OP_SCATTER: tci_part_scatter(v, n); break;
    case TCI_OP_CONTRACT: tci_part_contract(v, n); break;
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
    case TCI_OP_MEAN:
    case TCI_OP_LAYER_NORM:
    case TCI_OP_CROSS_ENTROPY: tci_part_composite(v, n); break;
    case TCI_OP_NAMED:
    case TCI_OP_CONV_TRANSPOSE: tci_part_as(v, n, tci_expand_composite(v->g, n)); break;
    case TCI_OP_SHARD: tci_part_mark(v, n); break;
    case TCI_OP_ASSIGN: tci_part_assign(v, n); break;
    case TCI_OP_BARRIER: tci_part_barrier(v, n); break;
    case TCI_OP_RANDOM:
    case TCI_OP_SEGMENT:
    case TCI_OP_REPEAT:
    case TCI_OP_RESULT:
    case TCI_OP_CUSTOM:
    case TCI_OP_COLLECTIVE:
    case TCI_OP_LU:
    case TCI_OP_SOLVE:
    case TCI_OP_SOLVE_TRIANGULAR:
    case TCI_OP_CHOLESKY: tci_part_undone(v, n); break;
    }
}
