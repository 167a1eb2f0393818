/* plan/conv_layout.c - copies the operands of implicit GEMM convolutions to channels-last (NHWC),
 * the layout required for TMA box loads.
 *
 * In: a CONTRACT of bf16 or f16 values, or of f32 under TC_MATH_FAST, one of which is windows of an
 * image, on a GPU whose tensor cores load TMA boxes. Out: the same CONTRACT over copies with
 * one axis contiguous: the longest summed axis that both operands have (the channels, in a
 * convolution and its data gradient), else for each operand its longest axis that the other lacks
 * (the weight gradient). Windows, padding and other views stay above the
 * copies, so nothing else is stored. NULL: not such a contraction, or too small for the matrix
 * unit.
 *
 * Design: TMA loads need 16 contiguous bytes and aligned rows. A copy serves every window.
 * Tensor cores cannot transpose f32 operands on load, so for f32 the contiguous axis is a summed
 * one. */
#include "../kernel/match_matrix_unit.h"
#include "contraction_route.h"

enum {
    TCI_CONV_LAYOUT_LEAST = 32, /* elements of the axis that is contiguous, */
    TCI_CONV_LAYOUT_GROUP = 24  /* or of the channels of a group: 24 of the 64 of a step exist */
};

typedef struct tci_conv_layout {
    const tci_algo *a;
    tci_scratch *s;
    tci_graph *g;
    const tci_node *n;
    const tci_contraction *c;
    tci_node *source[2];
    bool has_window[2];
    int axes[2];  /* of the operands, to be contiguous */
    int64_t last; /* the label that the result's columns should have; -1: as they are */
} tci_conv_layout;

/* ---- the values behind the operands ---- */

/* The value of operand x below windows, padding, other layout ops and a widening that nothing
 * stores; NULL: sizes are unknown. */
static tci_node *tci_conv_layout_source(const tci_algo *a, tci_node *x)
{
    const int through = TCI_THROUGH_MOVEMENT | TCI_THROUGH_WIDENING | TCI_THROUGH_PADS;
    x = tci_below(x, through | TCI_THROUGH_KNOWN, a->forced);
    return tci_is_known(x) && x->rank > 0 ? x : NULL;
}

TCI_FN tci_node *tci_plan_image(const tci_algo *a, tci_node *x)
{
    tci_node *source = tci_conv_layout_source(a, x);
    return source && tci_dtype_is_half((tc_dtype)source->dtype) ? source : NULL;
}

static bool tci_conv_layout_look(tci_conv_layout *m)
{
    bool windows = false;
    for (int i = 0; i < 2; i++) {
        m->source[i] = tci_conv_layout_source(m->a, m->n->in[i]);
        const tci_node *from = m->source[i];
        if (!from || !(tci_dtype_is_half((tc_dtype)from->dtype) ||
                       (from->dtype == TC_F32 && m->a->machine.is_fast))) {
            return false;
        }
        for (const tci_node *x = m->n->in[i]; x != m->source[i]; x = x->in[0]) {
            m->has_window[i] = m->has_window[i] || x->op == TCI_OP_WINDOW;
        }
        windows = windows || m->has_window[i];
    }
    return windows && tci_is_known(m->n) && m->source[0]->dtype == m->source[1]->dtype;
}

TCI_FN int tci_plan_image_axis(const tci_node *x, const tci_node *source, int a)
{
    for (; x != source && a >= 0; x = x->in[0]) {
        bool windowed = x->op == TCI_OP_WINDOW && a >= x->in[0]->rank;
        for (int i = 0; x->op == TCI_OP_WINDOW && i < x->n_attr; i += 4) {
            windowed = windowed || x->attr[i] == a;
        }
        if (x->op == TCI_OP_PERMUTE) {
            a = (int)x->attr[a];
        } else if (x->op == TCI_OP_RESHAPE) {
            a = tci_plan_image_reshaped(x, a);
        } else if (windowed || x->in[0]->shape[a] != x->shape[a] ||
                   (x->op == TCI_OP_SLICE && x->attr[2 * a] != 0) ||
                   (x->op == TCI_OP_PAD && x->attr[a] != 0)) {
            a = -1;
        }
    }
    return a;
}

/* The axis of RESHAPE n's operand whose inner part is axis a of n; -1: there is none. */
static int tci_conv_layout_split(const tci_node *n, int a)
{
    const tci_node *from = n->in[0];
    tci_dim behind = 1, there = 1;
    int i = from->rank;
    for (int k = a + 1; k < n->rank; k++) {
        behind = tci_dim_mul(behind, n->shape[k]);
    }
    while (i > 0 && there != behind) {
        there = tci_dim_mul(there, from->shape[--i]);
    }
    bool inner = i > 0 && there == behind && tci_dim_divides(n->shape[a], from->shape[i - 1]);
    return inner ? i - 1 : -1;
}

/* The axis of `source` that is axis a of x, or whose inner part that is, as the channels of a group
 * are of all channels: contiguous with it. -1: none. */
static int tci_conv_layout_axis(const tci_node *x, const tci_node *source, int a)
{
    for (; x != source && a >= 0; x = x->in[0]) {
        int axis = tci_plan_image_axis(x, x->in[0], a);
        a = axis < 0 && x->op == TCI_OP_RESHAPE ? tci_conv_layout_split(x, a) : axis;
    }
    return a;
}

/* ---- which axes are contiguous ---- */

/* summed: it is contracted, so it may be the channels of a group. */
static bool tci_conv_layout_suits(const tci_conv_layout *m, int which, int a, bool summed)
{
    const tci_node *x = m->n->in[which], *source = m->source[which];
    int64_t size = tci_dim_known(x->shape[a]);
    bool whole = size >= TCI_CONV_LAYOUT_LEAST && tci_plan_image_axis(x, source, a) >= 0;
    bool group = summed && size >= TCI_CONV_LAYOUT_GROUP && tci_conv_layout_axis(x, source, a) >= 0;
    return (whole || group) && size % tci_matrix_align(source->dtype) == 0;
}

/* True if the result has elements of windows. */
static bool tci_conv_layout_keeps_elements(const tci_conv_layout *m)
{
    bool kept = false;
    for (int which = 0; which < 2; which++) {
        const tci_node *x = m->n->in[which];
        while (x->op == TCI_OP_CAST && x != m->source[which]) { /* whose axes are the same */
            x = x->in[0];
        }
        int n = x->op == TCI_OP_WINDOW ? x->rank - x->in[0]->rank : 0;
        for (int i = 0; i < n; i++) {
            kept = kept || !tci_contract_sums(m->n, m->c->in[which].labels[x->rank - 1 - i]);
        }
    }
    return kept;
}

/* Chooses axes and last; false: there are none. */
static bool tci_conv_layout_choose(tci_conv_layout *m)
{
    bool kept = tci_conv_layout_keeps_elements(m);
    m->axes[0] = m->axes[1] = -1;
    m->last = -1;
    for (int i = 0; i < m->c->n_axes && !kept; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        if (axis->group == TCI_AXES_K && tci_conv_layout_suits(m, 0, axis->at[0], true) &&
            tci_conv_layout_suits(m, 1, axis->at[1], true) &&
            (m->axes[0] < 0 || tci_dim_lt(m->n->in[0]->shape[m->axes[0]], axis->size))) {
            m->axes[0] = axis->at[0];
            m->axes[1] = axis->at[1];
        }
    }
    for (int which = 0; which < 2 && kept; which++) { /* its own */
        const tci_node *x = m->n->in[which];
        for (int i = 0; i < x->rank; i++) {
            int64_t label = m->c->in[which].labels[i], best = m->axes[which];
            bool own = !tci_contract_sums(m->n, label) && !tci_contract_has(m->n, 1 - which, label);
            bool longer = best < 0 || tci_dim_lt(x->shape[best], x->shape[i]);
            if (own && longer && tci_conv_layout_suits(m, which, i, false)) {
                m->axes[which] = i;
                m->last = m->has_window[which] ? label : m->last;
            }
        }
    }
    return m->axes[0] >= 0 && m->axes[1] >= 0;
}

/* True if each f32 element is multiplied often enough to pay for copies along a contracted axis. */
static bool tci_conv_layout_pays(const tci_conv_layout *m)
{
    double elements = 0, products = m->c->products;
    for (int i = 0; i < 2; i++) {
        elements += (double)tci_dim_known(tci_node_count(m->source[i]));
    }
    return m->source[0]->dtype != TC_F32 ||
           (!tci_conv_layout_keeps_elements(m) && products >= TCI_KMAJOR_LEAST &&
            products >= TCI_KMAJOR_REUSE * elements);
}

static bool tci_conv_layout_fits(tci_offer *o)
{
    tci_conv_layout *m = TCI_NEW(o->a->s, tci_conv_layout);
    *m = (tci_conv_layout){.a = o->a, .s = o->a->s, .g = o->a->g, .n = o->n, .c = o->c};
    o->found = m;
    return tci_plan_has_image_unit(o->a->machine) && o->n->dtype != TC_F64 && o->n->rank >= 2 &&
           tci_conv_layout_look(m) && tci_conv_layout_choose(m) && tci_conv_layout_pays(m);
}

static double tci_conv_layout_cost(const tci_offer *o)
{
    const tci_conv_layout *m = o->found;
    return tci_route_copies_ns(o, m->source[0]->dtype == TC_F32 ? TCI_BY_UNIT_F32 : TCI_BY_UNIT);
}

/* ---- the copies ---- */

/* The contraction of `in`, the axis of its result with label `last` after all others; *back: the
 * order of axes that is the old one. */
static tci_node *tci_conv_layout_contract(const tci_conv_layout *m, tci_node *const *in,
                                          int64_t *back)
{
    const tci_node *n = m->n;
    int64_t *order = TCI_NEW_ARRAY(m->s, int64_t, n->rank);
    int at = tci_build_label(m->c->out, n->rank, m->last);
    tci_relayout_last(n, at < 0 ? n->rank - 1 : at, order);
    for (int i = 0; i < n->rank; i++) {
        back[order[i]] = i;
    }
    return tci_contract_in_order(m->s, m->g, n, in, order);
}

static tci_node *tci_conv_layout_build(const tci_offer *o)
{
    const tci_conv_layout *m = o->found;
    const tci_node *n = o->n;
    tci_node *in[2];
    int64_t *back = TCI_NEW_ARRAY(m->s, int64_t, n->rank);
    for (int i = 0; i < 2; i++) {
        int axis = tci_conv_layout_axis(n->in[i], m->source[i], m->axes[i]);
        int64_t *order = TCI_NEW_ARRAY(m->s, int64_t, m->source[i]->rank);
        tci_relayout_last(m->source[i], axis, order);
        tci_node *copy = tci_relayout(m->a, m->source[i], (tci_relayout_to){.order = order});
        in[i] = tci_relayout_over(m->a, n->in[i], m->source[i], copy);
    }
    tci_node *r = tci_conv_layout_contract(m, in, back);
    tci_node *parts = m->last < 0 ? NULL : tci_plan_parts(m->a, r);
    r = parts ? parts : r;
    return m->last < 0 ? r : tci_algo_permute(m->a, r, back);
}

TCI_BLOCK_FN const tci_route *tci_route_channels_last(void)
{
    static const tci_route row = {"channels-last copies", TCI_SUMS_UNIT,
                                  TCI_ROUTE_REORDERS,     tci_conv_layout_fits,
                                  tci_conv_layout_cost,   tci_conv_layout_build};
    return &row;
}
