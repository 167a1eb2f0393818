/* rewrite/crop.c - contractions that compute no more than what is read of them.
 *
 * In: roots of a simplified graph. Out: the same values, where a part cut out of a contraction's
 * result, seen through movements, is a contraction of parts of its operands. So the gradient to a
 * padded image is computed at the image's places alone, and lies as it is wanted: nothing is copied
 * afterwards. The one idea: a part goes down through whatever only moves elements, which costs
 * nothing, until it meets the contraction; where it meets none, all stays as it was. A contraction
 * with more than one user stays whole, as the others want it so. Only where all sizes are known. */
#include <string.h>

#include "../graph/build.h"
#include "rewrite.h"

typedef struct tci_crop {
    tci_scratch *s;
    tci_graph *g;
    bool met;       /* a contraction on the way */
    tci_table uses; /* of uint8_t: how often a node is used, 2 for any more */
} tci_crop;

/* Elements start[i] .. start[i] + size[i] - 1 of each axis. */
typedef struct tci_crop_part { tci_dim *start, *size; } tci_crop_part;

static uint8_t *tci_crop_uses(tci_crop *c, const tci_node *n)
{
    return tci_table_at(&c->uses, n);
}

static tci_crop_part tci_crop_whole(tci_scratch *s, const tci_node *x)
{
    tci_crop_part part = {TCI_NEW_ARRAY(s, tci_dim, x->rank + 1),
                          tci_scratch_copy(s, x->shape, sizeof(tci_dim) * (size_t)x->rank)};
    return part;
}

static bool tci_crop_is_whole(const tci_node *x, tci_crop_part part)
{
    bool whole = true;
    for (int i = 0; i < x->rank; i++) {
        whole = whole && part.start[i] == 0 && part.size[i] == x->shape[i];
    }
    return whole;
}

static bool tci_crop_is_known(const tci_node *x)
{
    bool known = true;
    for (int i = 0; i < x->rank; i++) {
        known = known && tci_dim_is_known(x->shape[i]);
    }
    for (int i = 0; i < x->n_attr && tci_op_is(x->op, TCI_IS_VIEW); i++) {
        known = known && tci_dim_is_known(x->attr[i]);
    }
    return known && tci_node_count(x) != 0;
}

static tci_node *tci_crop_of(tci_crop *c, tci_node *x, tci_crop_part part);

/* The part as a node of its own. */
static tci_node *tci_crop_slice(tci_crop *c, tci_node *x, tci_crop_part part)
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

static tci_node *tci_crop_permute(tci_crop *c, tci_node *x, tci_crop_part part)
{
    tci_crop_part in = tci_crop_whole(c->s, x->in[0]);
    for (int i = 0; i < x->rank; i++) {
        in.start[x->attr[i]] = part.start[i];
        in.size[x->attr[i]] = part.size[i];
    }
    tci_node *from = tci_crop_of(c, x->in[0], in);
    return tci_graph_node(c->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, part.size, 1, &from,
                          x->rank, x->attr);
}

/* A reshape that adds or drops axes of one element; NULL: it does more. */
static tci_node *tci_crop_reshape(tci_crop *c, tci_node *x, tci_crop_part part)
{
    tci_node *from = x->in[0];
    tci_crop_part in = tci_crop_whole(c->s, from);
    int at = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->shape[i] == 1) {
            continue;
        }
        while (at < from->rank && from->shape[at] == 1) {
            at++;
        }
        if (at == from->rank || from->shape[at] != x->shape[i]) {
            return NULL;
        }
        in.start[at] = part.start[i];
        in.size[at++] = part.size[i];
    }
    from = tci_crop_of(c, from, in);
    return tci_graph_node(c->g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, x->rank, part.size, 1, &from, 0,
                          NULL);
}

/* What windows at the part's places reach; their elements stay as they are. NULL: some do not. */
static tci_node *tci_crop_window(tci_crop *c, tci_node *x, tci_crop_part part)
{
    tci_node *from = x->in[0];
    tci_crop_part in = {part.start, part.size};
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
    from = tci_crop_of(c, from, in);
    return tci_graph_node(c->g, TCI_OP_WINDOW, (tc_dtype)x->dtype, x->rank, part.size, 1, &from,
                          x->n_attr, x->attr);
}

static tci_node *tci_crop_pad(tci_crop *c, tci_node *x, tci_crop_part part)
{
    tci_dim *before = TCI_NEW_ARRAY(c->s, tci_dim, x->rank + 1);
    bool same = true;
    for (int i = 0; i < x->rank; i++) {
        before[i] = tci_dim_sub(x->attr[i], part.start[i]);
        same = same && before[i] == 0 && part.size[i] == x->in[0]->shape[i];
    }
    return same ? x->in[0]
                : tci_graph_node(c->g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, part.size, 2, x->in,
                                 x->rank, tci_dim_words(before));
}

/* ---- to contractions ---- */

static tci_node *tci_crop_contract(tci_crop *c, tci_node *x, tci_crop_part part)
{
    const int64_t *labels = x->attr + 3, *out = labels + x->attr[0] + x->attr[1];
    tci_node *in[2];
    c->met = true;
    for (int which = 0; which < 2; which++, labels += x->attr[0]) {
        tci_crop_part own = tci_crop_whole(c->s, x->in[which]);
        for (int i = 0; i < x->in[which]->rank; i++) {
            for (int o = 0; o < x->rank; o++) {
                own.start[i] = labels[i] == out[o] ? part.start[o] : own.start[i];
                own.size[i] = labels[i] == out[o] ? part.size[o] : own.size[i];
            }
        }
        in[which] = tci_crop_of(c, x->in[which], own);
    }
    return tci_graph_node(c->g, TCI_OP_CONTRACT, (tc_dtype)x->dtype, x->rank, part.size, 2, in,
                          x->n_attr, x->attr);
}

static tci_node *tci_crop_of(tci_crop *c, tci_node *x, tci_crop_part part)
{
    tci_node *made = NULL;
    if (tci_crop_is_whole(x, part)) {
        return x;
    }
    bool own = c->met || *tci_crop_uses(c, x) <= 1;
    if (own && x->n_in > 0 && tci_crop_is_known(x) && tci_crop_is_known(x->in[0])) {
        made = x->op == TCI_OP_PERMUTE    ? tci_crop_permute(c, x, part)
               : x->op == TCI_OP_RESHAPE  ? tci_crop_reshape(c, x, part)
               : x->op == TCI_OP_WINDOW   ? tci_crop_window(c, x, part)
               : x->op == TCI_OP_PAD      ? tci_crop_pad(c, x, part)
               : x->op == TCI_OP_CONTRACT ? tci_crop_contract(c, x, part)
                                          : NULL;
    }
    return made ? made : tci_crop_slice(c, x, part);
}

/* ---- the pass ---- */

static bool tci_crop_may_cut(const tci_node *n)
{
    return n->op == TCI_OP_PAD || n->op == TCI_OP_SLICE;
}

/* Is n a part of its first input, and nothing else? */
static bool tci_crop_find(const tci_crop *c, const tci_node *n, tci_crop_part *part)
{
    bool found = tci_crop_may_cut(n);
    if (!found || !tci_crop_is_known(n) || !tci_crop_is_known(n->in[0])) {
        return false;
    }
    *part = tci_crop_whole(c->s, n);
    for (int i = 0; i < n->rank; i++) {
        bool slice = n->op == TCI_OP_SLICE;
        part->start[i] = slice ? n->attr[2 * i] : tci_dim_neg(n->attr[i]);
        found = found && (!slice || n->attr[2 * i + 1] == 1) && tci_dim_le(0, part->start[i]) &&
                tci_dim_le(tci_dim_add(part->start[i], n->shape[i]), n->in[0]->shape[i]);
    }
    return found;
}

static tci_node *tci_crop_node(tci_crop *c, tci_node *n)
{
    tci_crop_part part;
    if (!tci_crop_find(c, n, &part)) {
        return n;
    }
    c->met = false;
    tci_node *made = tci_crop_of(c, n->in[0], part);
    return c->met ? made : n;
}

static void tci_crop_count(tci_crop *c, const tci_node *used)
{
    uint8_t *uses = tci_crop_uses(c, used);
    *uses = (uint8_t)TCI_MIN(*uses + 1, 2);
}

TCI_FN void tci_rewrite_crop(tci_scratch *s, tci_graph *g, tci_node **roots, int n)
{
    tc_site site = g->site;
    tci_crop c = {s, g, false, tci_table_in(s, sizeof(uint8_t))};
    tci_table now = tci_table_in(s, sizeof(tci_node *));
    tci_node_list list = tci_graph_sort(s, roots, n);
    bool any = false;
    for (int i = 0; i < list.n; i++) {
        any = any || tci_crop_may_cut(list.items[i]);
    }
    if (!any) {
        return;
    }
    for (int i = 0; i < list.n; i++) {
        for (int k = 0; k < list.items[i]->n_in; k++) {
            tci_crop_count(&c, list.items[i]->in[k]);
        }
    }
    for (int i = 0; i < n; i++) {
        tci_crop_count(&c, roots[i]);
    }
    for (int i = 0; i < list.n; i++) {
        tci_node *old = list.items[i], *over = tci_graph_rebuild(s, g, old, &now);
        g->site = old->site;
        uint8_t *uses = tci_crop_uses(&c, over); /* it may be a node that was there before */
        *uses = TCI_MAX(*uses, *tci_crop_uses(&c, old));
        tci_table_put(&now, old, tci_crop_node(&c, over));
    }
    for (int i = 0; i < n; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
    g->site = site;
}
