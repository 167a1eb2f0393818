/* rewrite/slice_pushdown.c - slice and transpose pushdown: contractions compute only the part of
 * the result that is read, in the layout in which it is read.
 *
 * In: roots of a simplified graph. Out: the same values; a slice of a contraction's result (seen
 * through view ops: reshape, permute, pad) becomes a contraction of slices of its operands. For
 * example, the gradient of a padded image is computed for the pixels of the image only, in its
 * final layout, without a copy.
 *
 * Design: a slice is pushed down through view ops, which costs nothing, until it reaches a
 * contraction. If there is none, the graph stays as it was. A slice over an axis of interleaved
 * phases (strided convolutions) takes a part of each phase; phases that start inside a stride come
 * first. A contraction with more than one consumer stays whole. So does one that two slices would
 * read, and one whose operand is the weights of attention, which is one kernel only as a whole. The
 * sizes of the cut axes must be known. A matrix that is only read transposed, such as the gradient
 * of weights [out, in], is computed transposed: the update of the weights then uses the results in
 * place. */
#include <string.h>

#include "../graph/contraction_descriptor.h"
#include "rewrite.h"

typedef struct tci_pushdown {
    tci_scratch *s;
    tci_graph *g;
    int round;      /* number of the part */
    bool met;       /* a contraction on the way, */
    bool below;     /* and that is above what is at hand */
    bool split;     /* another part of it was wanted, or it is attention */
    tci_table uses; /* of uint8_t: how often a node is used, 2 for any more */
    tci_table cuts; /* of int: the last round in which a contraction was met */
} tci_pushdown;

/* Elements start[i] .. start[i] + size[i] - 1 of each axis. */
typedef struct tci_pushdown_part {
    tci_dim *start, *size;
} tci_pushdown_part;

static uint8_t *tci_pushdown_uses(tci_pushdown *c, const tci_node *n)
{
    return tci_table_at(&c->uses, n);
}

static tci_pushdown_part tci_pushdown_whole(tci_scratch *s, const tci_node *x)
{
    tci_pushdown_part part = {TCI_NEW_ARRAY(s, tci_dim, x->rank + 1),
                              tci_scratch_copy(s, x->shape, sizeof(tci_dim) * (size_t)x->rank)};
    return part;
}

static bool tci_pushdown_is_whole(const tci_node *x, tci_pushdown_part part)
{
    bool whole = true;
    for (int i = 0; i < x->rank; i++) {
        whole = whole && part.start[i] == 0 && part.size[i] == x->shape[i];
    }
    return whole;
}

static bool tci_pushdown_is_known(const tci_node *x)
{
    bool known = true;
    for (int i = 0; i < x->n_attr && tci_op_is(x->op, TCI_IS_VIEW); i++) {
        known = known && tci_dim_is_known(x->attr[i]);
    }
    return known && tci_node_count(x) != 0;
}

/* True if the position of the part is known along the axes on which it lacks elements.
 */
static bool tci_pushdown_is_part(const tci_node *x, tci_pushdown_part part)
{
    bool known = true;
    for (int i = 0; i < x->rank; i++) {
        bool whole = part.start[i] == 0 && part.size[i] == x->shape[i];
        known = known &&
                (whole || (tci_dim_is_known(part.start[i]) && tci_dim_is_known(part.size[i]) &&
                           tci_dim_is_known(x->shape[i])));
    }
    return known;
}

static tci_node *tci_pushdown_of(tci_pushdown *c, tci_node *x, tci_pushdown_part part);

/* The part as a node of its own. */
static tci_node *tci_pushdown_slice(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    tci_dim *attr = TCI_NEW_ARRAY(c->s, tci_dim, 2 * x->rank + 1);
    for (int i = 0; i < x->rank; i++) {
        attr[2 * i] = part.start[i];
        attr[2 * i + 1] = 1;
    }
    return tci_graph_node(c->g, TCI_OP_SLICE, (tc_dtype)x->dtype, x->rank, part.size, 1, &x,
                          2 * x->rank, tci_dim_words(attr));
}

/* ---- through movements ---- */

static tci_node *tci_pushdown_permute(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    tci_pushdown_part in = tci_pushdown_whole(c->s, x->in[0]);
    for (int i = 0; i < x->rank; i++) {
        in.start[x->attr[i]] = part.start[i];
        in.size[x->attr[i]] = part.size[i];
    }
    tci_node *from = tci_pushdown_of(c, x->in[0], in);
    return tci_graph_node(c->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, part.size, 1, &from,
                          x->rank, x->attr);
}

/* The part of x whose axes in `merged`, each with the next as one, begin at start[axis] and have
 * size[axis] positions: for each of them the phases that begin in the midst of a position, then
 * those before them, a position later. */
static tci_node *tci_pushdown_phases(tci_pushdown *c, tci_node *x, tci_pushdown_part part,
                                     const int *merged, int n)
{
    if (n == 0) {
        return tci_pushdown_of(c, x, part);
    }
    int axis = merged[0];
    int64_t phases = tci_dim_known(x->shape[axis + 1]), start = tci_dim_known(part.start[axis]);
    const int64_t skipped = start % phases, from[2] = {skipped, 0};
    const int64_t size[2] = {phases - skipped, skipped};
    tci_node *parts[2];
    for (int i = 0; i < (skipped ? 2 : 1); i++) {
        tci_pushdown_part one = tci_pushdown_whole(c->s, x);
        memcpy(one.start, part.start, sizeof(tci_dim) * (size_t)x->rank);
        memcpy(one.size, part.size, sizeof(tci_dim) * (size_t)x->rank);
        one.start[axis] = start / phases + i;
        one.size[axis] = tci_dim_div(part.size[axis], phases);
        one.start[axis + 1] = from[i];
        one.size[axis + 1] = size[i];
        parts[i] = tci_pushdown_phases(c, x, one, merged + 1, n - 1);
    }
    return skipped ? tci_build_cat(c->g, parts, 2, axis + 1) : parts[0];
}

/* True if axis i of x, a reshape, has the elements of axis `at` of its input and of the next axis,
 * and the part covers whole positions of them. */
static bool tci_pushdown_merges(const tci_node *x, tci_pushdown_part part, int i, int at)
{
    const tci_node *from = x->in[0];
    return at + 1 < from->rank && tci_dim_is_known(x->shape[i]) &&
           tci_dim_is_known(from->shape[at + 1]) && tci_dim_lt(1, from->shape[at + 1]) &&
           tci_dim_mul(from->shape[at], from->shape[at + 1]) == x->shape[i] &&
           tci_dim_divides(from->shape[at + 1], part.size[i]);
}

/* A reshape that adds or drops axes of one element, or makes two to one; NULL: it does more. */
static tci_node *tci_pushdown_reshape(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    tci_node *from = x->in[0];
    tci_pushdown_part in = tci_pushdown_whole(c->s, from);
    int *merged = TCI_NEW_ARRAY(c->s, int, x->rank + 1), at = 0, n = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->shape[i] == 1) {
            continue;
        }
        while (at < from->rank && from->shape[at] == 1) {
            at++;
        }
        bool merges = tci_pushdown_merges(x, part, i, at);
        if (at == from->rank || (from->shape[at] != x->shape[i] && !merges)) {
            return NULL;
        }
        if (merges && from->shape[at] != x->shape[i]) {
            merged[n++] = at;
        }
        in.start[at] = part.start[i];
        in.size[at] = part.size[i];
        at += from->shape[at] == x->shape[i] ? 1 : 2;
    }
    from = tci_pushdown_phases(c, from, in, merged, n);
    return tci_graph_node(c->g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, x->rank, part.size, 1, &from, 0,
                          NULL);
}

/* Of each input what the part has of it. */
static tci_node *tci_pushdown_cat(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    int axis = (int)x->attr[0], n = 0;
    tci_node **parts = TCI_NEW_ARRAY(c->s, tci_node *, x->n_in);
    tci_dim first = 0, start = part.start[axis], end = tci_dim_add(start, part.size[axis]);
    for (int i = 0; i < x->n_in; i++) {
        tci_dim next = tci_dim_add(first, x->in[i]->shape[axis]);
        tci_dim from = tci_dim_max(first, start), to = tci_dim_min(next, end);
        if (tci_dim_lt(from, to)) {
            tci_pushdown_part one = tci_pushdown_whole(c->s, x->in[i]);
            memcpy(one.start, part.start, sizeof(tci_dim) * (size_t)x->rank);
            memcpy(one.size, part.size, sizeof(tci_dim) * (size_t)x->rank);
            one.start[axis] = tci_dim_sub(from, first);
            one.size[axis] = tci_dim_sub(to, from);
            parts[n++] = tci_pushdown_of(c, x->in[i], one);
        }
        first = next;
    }
    return n == 1 ? parts[0] : tci_build_cat(c->g, parts, n, axis);
}

/* The slice of the input that windows at the part's positions read; their elements stay as they
 * are. NULL: some windows do not fit. */
static tci_node *tci_pushdown_window(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    tci_node *from = x->in[0];
    tci_pushdown_part in = {part.start, part.size};
    in.start = tci_scratch_copy(c->s, part.start, sizeof(tci_dim) * (size_t)x->rank);
    in.size = tci_scratch_copy(c->s, part.size, sizeof(tci_dim) * (size_t)x->rank);
    for (int i = from->rank; i < x->rank; i++) {
        if (part.size[i] != x->shape[i]) {
            return NULL;
        }
    }
    for (int i = 0; i < x->n_attr; i += 4) {
        int axis = (int)x->attr[i];
        tci_dim last = tci_dim_mul(tci_dim_add(part.size[axis], -1), x->attr[i + 2]);
        tci_dim reach = tci_dim_mul(tci_dim_add(x->attr[i + 1], -1), x->attr[i + 3]);
        in.start[axis] = tci_dim_mul(part.start[axis], x->attr[i + 2]);
        in.size[axis] = tci_dim_add(tci_dim_add(last, reach), 1);
    }
    from = tci_pushdown_of(c, from, in);
    return tci_graph_node(c->g, TCI_OP_WINDOW, (tc_dtype)x->dtype, x->rank, part.size, 1, &from,
                          x->n_attr, x->attr);
}

/* Of what is padded above a contraction only what is left of it is computed. NULL: nothing is. */
static tci_node *tci_pushdown_pad(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    tci_dim *before = TCI_NEW_ARRAY(c->s, tci_dim, x->rank + 1);
    tci_pushdown_part in = tci_pushdown_whole(c->s, x->in[0]);
    tci_node *from[2] = {x->in[0], x->in[1]};
    bool same = true;
    for (int i = 0; i < x->rank; i++) {
        before[i] = tci_dim_sub(x->attr[i], part.start[i]);
        if (!c->below && !(before[i] == 0 && part.size[i] == in.size[i])) {
            tci_dim end = tci_dim_sub(part.size[i], before[i]);
            in.start[i] = tci_dim_max(tci_dim_neg(before[i]), 0);
            in.size[i] = tci_dim_sub(tci_dim_min(end, in.size[i]), in.start[i]);
            before[i] = tci_dim_max(before[i], 0);
            if (!tci_dim_lt(0, in.size[i])) {
                return NULL;
            }
        }
        same = same && before[i] == 0 && part.size[i] == in.size[i];
    }
    from[0] = tci_pushdown_of(c, from[0], in);
    return same ? from[0]
                : tci_graph_node(c->g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, part.size, 2, from,
                                 x->rank, tci_dim_words(before));
}

/* ---- to contractions ---- */

static tci_node *tci_pushdown_contract(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    int *cut = tci_table_at(&c->cuts, x);
    tci_node *in[2];
    bool below = c->below;
    c->split = c->split || *cut == c->round;
    *cut = c->round;
    c->met = c->below = true;
    for (int which = 0; which < 2; which++) {
        tci_pushdown_part own = tci_pushdown_whole(c->s, x->in[which]);
        for (int o = 0; o < x->rank; o++) {
            int i = tci_contract_place(x, 2, o, which);
            if (i >= 0) {
                own.start[i] = part.start[o];
                own.size[i] = part.size[o];
            }
        }
        c->split = c->split ||
                   (tci_is_of_weights(x->in[which]) && !tci_pushdown_is_whole(x->in[which], own));
        in[which] = tci_pushdown_of(c, x->in[which], own);
    }
    c->below = below;
    return tci_graph_node(c->g, TCI_OP_CONTRACT, (tc_dtype)x->dtype, x->rank, part.size, 2, in,
                          x->n_attr, x->attr);
}

static tci_node *tci_pushdown_of(tci_pushdown *c, tci_node *x, tci_pushdown_part part)
{
    tci_node *made = NULL;
    if (tci_pushdown_is_whole(x, part)) {
        return x;
    }
    bool own = c->below || *tci_pushdown_uses(c, x) <= 1;
    if (own && x->n_in > 0 && tci_pushdown_is_known(x) && tci_pushdown_is_part(x, part)) {
        made = x->op == TCI_OP_PERMUTE    ? tci_pushdown_permute(c, x, part)
               : x->op == TCI_OP_RESHAPE  ? tci_pushdown_reshape(c, x, part)
               : x->op == TCI_OP_WINDOW   ? tci_pushdown_window(c, x, part)
               : x->op == TCI_OP_PAD      ? tci_pushdown_pad(c, x, part)
               : x->op == TCI_OP_CAT      ? tci_pushdown_cat(c, x, part)
               : x->op == TCI_OP_CONTRACT ? tci_pushdown_contract(c, x, part)
                                          : NULL;
    }
    return made ? made : tci_pushdown_slice(c, x, part);
}

/* ---- the pass ---- */

static bool tci_pushdown_may_cut(const tci_node *n)
{
    return n->op == TCI_OP_PAD || n->op == TCI_OP_SLICE;
}

/* True if n is a slice of its first input, and nothing else. */
static bool tci_pushdown_find(const tci_pushdown *c, const tci_node *n, tci_pushdown_part *part)
{
    bool found = tci_pushdown_may_cut(n);
    if (!found || !tci_pushdown_is_known(n) || tci_node_count(n->in[0]) == 0) {
        return false;
    }
    *part = tci_pushdown_whole(c->s, n);
    for (int i = 0; i < n->rank; i++) {
        bool slice = n->op == TCI_OP_SLICE;
        part->start[i] = slice ? n->attr[2 * i] : tci_dim_neg(n->attr[i]);
        found = found && (!slice || n->attr[2 * i + 1] == 1) && tci_dim_le(0, part->start[i]) &&
                tci_dim_le(tci_dim_add(part->start[i], n->shape[i]), n->in[0]->shape[i]);
    }
    return found && tci_pushdown_is_part(n->in[0], *part);
}

static bool tci_pushdown_may_turn(const tci_node *n)
{
    return n->op == TCI_OP_PERMUTE && n->rank == 2 && n->in[0]->op == TCI_OP_CONTRACT;
}

/* The matrix with its axes in the order of n. */
static tci_node *tci_pushdown_turn(tci_pushdown *c, const tci_node *n)
{
    tci_node *x = n->in[0];
    return tci_contract_in_order(c->s, c->g, x, x->in, n->attr);
}

static tci_node *tci_pushdown_node(tci_pushdown *c, tci_node *n)
{
    tci_pushdown_part part;
    if (tci_pushdown_may_turn(n) && *tci_pushdown_uses(c, n->in[0]) <= 1) {
        return tci_pushdown_turn(c, n);
    }
    if (!tci_pushdown_find(c, n, &part)) {
        return n;
    }
    c->met = c->below = c->split = false;
    c->round++;
    tci_node *made = tci_pushdown_of(c, n->in[0], part);
    return c->met && !c->split ? made : n;
}

static void tci_pushdown_count(tci_pushdown *c, const tci_node *used)
{
    uint8_t *uses = tci_pushdown_uses(c, used);
    *uses = (uint8_t)TCI_MIN(*uses + 1, 2);
}

TCI_FN void tci_rewrite_crop(tci_scratch *s, tci_graph *g, tci_node **roots, int n)
{
    tc_site site = g->site;
    tci_pushdown c = {.s = s, .g = g};
    c.uses = tci_table_in(s, sizeof(uint8_t));
    c.cuts = tci_table_in(s, sizeof(int));
    tci_table now = tci_table_in(s, sizeof(tci_node *));
    tci_node_list list = tci_graph_sort(s, roots, n);
    bool any = false;
    for (int i = 0; i < list.n; i++) {
        any = any || tci_pushdown_may_cut(list.items[i]) || tci_pushdown_may_turn(list.items[i]);
    }
    if (!any) {
        return;
    }
    for (int i = 0; i < list.n; i++) {
        for (int k = 0; k < list.items[i]->n_in; k++) {
            tci_pushdown_count(&c, list.items[i]->in[k]);
        }
    }
    for (int i = 0; i < n; i++) {
        tci_pushdown_count(&c, roots[i]);
    }
    for (int i = 0; i < list.n; i++) {
        tci_node *old = list.items[i], *over = tci_graph_rebuild(s, g, old, &now);
        g->site = old->site;
        uint8_t *uses = tci_pushdown_uses(&c, over); /* it may be a node that was there before */
        *uses = TCI_MAX(*uses, *tci_pushdown_uses(&c, old));
        tci_table_put(&now, old, tci_pushdown_node(&c, over));
    }
    for (int i = 0; i < n; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
    g->site = site;
}
