/* plan/conv_layout.c - channels-last operands of implicit GEMM convolutions, as tensor cores read
 * them (TMA boxes).
 *
 * In: a CONTRACT of bf16 or f16 values, or of f32 where math may be fast, of which one is windows
 * of an image, on a machine whose matrix unit reads boxes. Out: the same over copies of the values
 * behind its operands in which one axis lies fastest: the longest contracted one that both have (a
 * convolution, its gradient to the image: the channels), else of each operand the longest that it
 * alone has (the gradient to the filter). Windows, padding and other movements stay above the
 * copies as they were, so nothing else is stored. The one idea: the unit's loads need 16
 * neighbouring bytes and rows that begin at such; a copy of the image costs one reading and writing
 * of it, and gives that to every window. A unit does not turn f32 on its way, so of f32 that axis
 * is a contracted one. NULL: this is none of these, or too small for it. */
#include "../graph/build.h"
#include "../kernel/matrix.h"
#include "group.h"

enum { TCI_IMAGES_LEAST = 32 /* elements of the axis that lies fastest */ };

typedef struct tci_images {
    const tci_algo *a;
    tci_scratch *s;
    tci_graph *g;
    const tci_node *n;
    tci_node *source[2];
    const int64_t *labels[2], *out;
    bool has_window[2];
} tci_images;

/* ---- the values behind the operands ---- */

static bool tci_images_moves(const tci_node *n)
{
    bool widens = n->op == TCI_OP_CAST && n->dtype == TC_F32 &&
                  tci_dtype_is_half((tc_dtype)n->in[0]->dtype);
    return widens || n->op == TCI_OP_PAD || tci_op_is(n->op, TCI_IS_VIEW);
}

static bool tci_images_is_known(const tci_node *n)
{
    bool known = tci_build_is_known(n->rank, n->shape);
    for (int i = 0; i < n->n_attr && n->op != TCI_OP_CONTRACT; i++) {
        known = known && tci_dim_is_known(n->attr[i]);
    }
    return known;
}

/* The value behind operand x, below what tci_plan_image looks through; NULL: sizes are unknown. */
static tci_node *tci_images_source(const tci_algo *a, tci_node *x)
{
    while (tci_images_moves(x) && tci_images_is_known(x) && !tci_table_has(a->forced, x)) {
        x = x->in[0];
    }
    return tci_images_is_known(x) && x->rank > 0 ? x : NULL;
}

TCI_FN tci_node *tci_plan_image(const tci_algo *a, tci_node *x)
{
    tci_node *source = tci_images_source(a, x);
    return source && tci_dtype_is_half((tc_dtype)source->dtype) ? source : NULL;
}

static bool tci_images_look(tci_images *m)
{
    bool windows = false;
    for (int i = 0; i < 2; i++) {
        m->source[i] = tci_images_source(m->a, m->n->in[i]);
        m->labels[i] = m->n->attr + 3 + (i ? m->n->attr[0] : 0);
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
    m->out = m->labels[1] + m->n->attr[1];
    return windows && tci_images_is_known(m->n) && m->source[0]->dtype == m->source[1]->dtype;
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

/* ---- which axes lie fastest ---- */

static bool tci_images_suits(const tci_images *m, int which, int a)
{
    int64_t size = tci_dim_known(m->n->in[which]->shape[a]);
    return size >= TCI_IMAGES_LEAST &&
           size % tci_matrix_align(m->source[which]->dtype) == 0 &&
           tci_plan_image_axis(m->n->in[which], m->source[which], a) >= 0;
}

/* Are the elements of windows kept in the result? */
static bool tci_images_keeps_elements(const tci_images *m)
{
    bool kept = false;
    for (int which = 0; which < 2; which++) {
        const tci_node *x = m->n->in[which];
        while (x->op == TCI_OP_CAST && x != m->source[which]) { /* whose axes are the same */
            x = x->in[0];
        }
        int n = x->op == TCI_OP_WINDOW ? x->rank - x->in[0]->rank : 0;
        for (int i = 0; i < n; i++) {
            int64_t label = m->labels[which][x->rank - 1 - i];
            kept = kept || tci_build_label(m->out, m->n->rank, label) >= 0;
        }
    }
    return kept;
}

/* The operands' axes to lie fastest; *last: the label that the result's columns should have, -1 as
 * it is. */
static bool tci_images_choose(const tci_images *m, int axes[2], int64_t *last)
{
    const tci_node *n = m->n;
    axes[0] = axes[1] = -1;
    *last = -1;
    for (int i = 0; i < n->attr[0] && !tci_images_keeps_elements(m); i++) { /* contracted */
        int64_t label = m->labels[0][i];
        int j = tci_build_label(m->labels[1], n->attr[1], label);
        bool summed = tci_build_label(m->out, n->rank, label) < 0 && j >= 0;
        if (summed && tci_images_suits(m, 0, i) && tci_images_suits(m, 1, j) &&
            (axes[0] < 0 || tci_dim_lt(n->in[0]->shape[axes[0]], n->in[0]->shape[i]))) {
            axes[0] = i;
            axes[1] = j;
        }
    }
    for (int which = 0; which < 2 && tci_images_keeps_elements(m); which++) { /* its own */
        for (int i = 0; i < n->attr[which]; i++) {
            int64_t label = m->labels[which][i], best = axes[which];
            bool own = tci_build_label(m->out, n->rank, label) >= 0 &&
                       tci_build_label(m->labels[1 - which], n->attr[1 - which], label) < 0;
            bool longer = best < 0 || tci_dim_lt(n->in[which]->shape[best], n->in[which]->shape[i]);
            if (own && longer && tci_images_suits(m, which, i)) {
                axes[which] = i;
                *last = m->has_window[which] ? label : *last;
            }
        }
    }
    return axes[0] >= 0 && axes[1] >= 0;
}

/* Is f32 multiplied often enough for copies, along a contracted axis? */
static bool tci_images_pays(const tci_images *m)
{
    double elements = 0, products = tci_plan_products(m->n);
    for (int i = 0; i < 2; i++) {
        elements += (double)tci_dim_known(tci_node_count(m->source[i]));
    }
    return m->source[0]->dtype != TC_F32 ||
           (!tci_images_keeps_elements(m) && products >= TCI_SINGLE_LEAST &&
            products >= TCI_SINGLE_REUSE * elements);
}

/* ---- the copies ---- */

/* The value behind an operand with that axis last, in memory, and permuted back. */
static tci_node *tci_images_copy(const tci_images *m, tci_node *x, int axis)
{
    int64_t *perm = TCI_NEW_ARRAY(m->s, int64_t, x->rank);
    int64_t *back = TCI_NEW_ARRAY(m->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(m->s, tci_dim, x->rank);
    if (axis == x->rank - 1) {
        tci_algo_force(m->a, x);
        return x;
    }
    for (int i = 0; i < x->rank; i++) {
        perm[i] = i < axis ? i : i + 1 < x->rank ? i + 1 : axis;
        shape[i] = x->shape[perm[i]];
        back[perm[i]] = i;
    }
    tci_node *copy = tci_graph_node(m->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                                    x->rank, perm);
    tci_algo_force(m->a, copy);
    return tci_graph_node(m->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, x->shape, 1, &copy,
                          x->rank, back);
}

/* Operand x with `now` in the place of the value behind it. */
static tci_node *tci_images_over(const tci_images *m, tci_node *x, const tci_node *source,
                                 tci_node *now)
{
    if (x == source) {
        return now;
    }
    tci_node *in[2] = {tci_images_over(m, x->in[0], source, now), x->n_in > 1 ? x->in[1] : NULL};
    return tci_graph_node(m->g, x->op, (tc_dtype)x->dtype, x->rank, x->shape, x->n_in, in,
                          x->n_attr, x->attr);
}

/* The contraction of `in`, its result's axes with label `last` behind all others; *back: the order
 * of axes that is the old one. */
static tci_node *tci_images_contract(const tci_images *m, tci_node *const *in, int64_t last,
                                     int64_t *back)
{
    const tci_node *n = m->n;
    int64_t *attr = tci_scratch_copy(m->s, n->attr, sizeof(int64_t) * (size_t)n->n_attr);
    int64_t *out = attr + (m->out - n->attr);
    tci_dim *shape = TCI_NEW_ARRAY(m->s, tci_dim, n->rank);
    int at = tci_build_label(m->out, n->rank, last);
    for (int i = 0; i < n->rank; i++) {
        int from = at < 0 || i < at ? i : i + 1 < n->rank ? i + 1 : at;
        out[i] = m->out[from];
        shape[i] = n->shape[from];
        back[from] = i;
    }
    return tci_graph_node(m->g, TCI_OP_CONTRACT, (tc_dtype)n->dtype, n->rank, shape, 2, in,
                          n->n_attr, attr);
}

TCI_FN tci_node *tci_plan_images(const tci_algo *a, tci_node *n)
{
    tci_images m = {.a = a, .s = a->s, .g = a->g, .n = n};
    int axes[2];
    int64_t last;
    if (!tci_plan_has_image_unit(a->machine) || n->dtype == TC_F64 || n->rank < 2 ||
        !tci_images_look(&m) || !tci_images_choose(&m, axes, &last) || !tci_images_pays(&m)) {
        return NULL;
    }
    tci_node *in[2];
    int64_t *back = TCI_NEW_ARRAY(m.s, int64_t, n->rank);
    for (int i = 0; i < 2; i++) {
        int axis = tci_plan_image_axis(n->in[i], m.source[i], axes[i]);
        tci_node *copy = tci_images_copy(&m, m.source[i], axis);
        in[i] = tci_images_over(&m, n->in[i], m.source[i], copy);
    }
    tci_node *r = tci_images_contract(&m, in, last, back);
    tci_node *parts = last < 0 ? NULL : tci_plan_parts(a, r);
    r = parts ? parts : r;
    return last < 0 ? r
                    : tci_graph_node(m.g, TCI_OP_PERMUTE, (tc_dtype)n->dtype, n->rank, n->shape, 1,
                                     &r, n->rank, back);
}
