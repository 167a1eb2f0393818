/* plan/bf16x3.c - BF16x3: an f32 GEMM on tensor cores as three GEMMs of bf16 parts.
 *
 * In: a CONTRACT of f32 values, on a machine of blocks whose unit takes bf16, where math may be
 * fast. Out: one of bf16 values that the unit takes, with one more summed axis, or NULL where it is
 * left alone. The one idea: x is high + low, high = bf16(x), low = bf16(x - high), but for 2^-18 of
 * it, and a b is low high + high low + high high, but for 3 * 2^-18 of it. So either factor is
 * copied three times, as those parts, along a new axis that is summed like all others; what moves
 * elements (windows, padding, permutations) stays above the copies as it was. An infinite factor
 * gives NaN.
 *
 * The copies are memory to write and read, so each element must be multiplied often. */
#include "group.h"

#include "../ops/composite.h"

enum {
    TCI_HALVES_PARTS = 3,
    TCI_HALVES_REUSE = 192,     /* products of each element of the factors, at least, */
    TCI_HALVES_LEAST = 1 << 27  /* and of all */
};

typedef struct tci_halves {
    const tci_algo *a;
    tci_graph *g;
    tci_node *n;
    tci_node *source[2];
} tci_halves;

/* ---- whether ---- */

TCI_FN bool tci_plan_is_zero(const tci_node *n)
{
    return n->op == TCI_OP_CONST && n->value.f == 0;
}

/* The value whose elements an operand moves and pads with zeros; NULL: some size is unknown. */
static tci_node *tci_halves_source(tci_node *n)
{
    while (tci_op_is(n->op, TCI_IS_VIEW) || (n->op == TCI_OP_PAD && tci_plan_is_zero(n->in[1]))) {
        for (int i = 0; i < n->n_attr; i++) {
            if (!tci_dim_is_known(n->attr[i])) {
                return NULL;
            }
        }
        n = n->in[0];
    }
    for (int i = 0; i < n->rank; i++) {
        if (!tci_dim_is_known(n->shape[i])) {
            return NULL;
        }
    }
    return n->rank > 0 ? n : NULL;
}

static bool tci_halves_pay(tci_halves *h)
{
    double products = tci_plan_products(h->n), elements = 0;
    for (int k = 0; k < 2; k++) {
        h->source[k] = tci_halves_source(h->n->in[k]);
        if (!h->source[k]) {
            return false;
        }
        elements += (double)tci_dim_known(tci_node_count(h->source[k]));
    }
    return products >= TCI_HALVES_LEAST && products >= TCI_HALVES_REUSE * elements;
}

/* ---- nodes ---- */

/* x three times along a first axis, in bf16: the low part in place low_at, else the high one. */
static tci_node *tci_halves_stack(const tci_halves *h, tci_node *x, int low_at)
{
    tci_graph *g = h->g;
    tci_dim *shape = TCI_NEW_ARRAY(h->a->s, tci_dim, x->rank + 1);
    shape[0] = 1;
    for (int i = 0; i < x->rank; i++) {
        shape[i + 1] = x->shape[i];
    }
    tci_node *all = tci_build_reshape(g, x, x->rank + 1, shape);
    tci_node *high = tci_build_cast(g, tci_build_cast(g, all, TC_BF16), TC_F32);
    tci_node *low = tci_composite_binary(g, TCI_OP_SUB, all, high);
    tci_node *place = tci_composite_ramp(g, TCI_HALVES_PARTS, x->rank + 1, 0);
    tci_node *is_low = tci_composite_binary(g, TCI_OP_EQ, place, tci_composite_whole(g, low_at));
    return tci_build_cast(g, tci_build_where(g, is_low, low, all), TC_BF16);
}

/* What moves x's elements, over `stack` in the place of the value behind it. */
static tci_node *tci_halves_over(const tci_halves *h, const tci_node *x, const tci_node *source,
                                 tci_node *stack)
{
    if (x == source) {
        return stack;
    }
    tci_scratch *s = h->a->s;
    int each = x->op == TCI_OP_SLICE ? 2 : x->op == TCI_OP_PERMUTE || x->op == TCI_OP_PAD ? 1 : 0;
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, x->rank + 1);
    int64_t *attr = TCI_NEW_ARRAY(s, int64_t, x->n_attr + 2);
    shape[0] = TCI_HALVES_PARTS;
    for (int i = 0; i < x->rank; i++) {
        shape[i + 1] = x->shape[i];
    }
    attr[1] = 1; /* a slice's step */
    for (int i = 0; i < x->n_attr; i++) {
        bool axis = x->op == TCI_OP_PERMUTE || (x->op == TCI_OP_WINDOW && i % 4 == 0);
        attr[each + i] = x->attr[i] + axis;
    }
    tci_node *in[2] = {tci_halves_over(h, x->in[0], source, stack), NULL};
    if (x->op == TCI_OP_PAD) {
        in[1] = tci_graph_const(h->g, TC_BF16, (tci_value){.u = 0});
    }
    return tci_graph_node(h->g, x->op, TC_BF16, x->rank + 1, shape, x->n_in, in, each + x->n_attr,
                          attr);
}

/* The labels of both factors with a new one in front of each. */
static int64_t *tci_halves_labels(const tci_halves *h)
{
    const tci_node *n = h->n;
    int64_t *attr = TCI_NEW_ARRAY(h->a->s, int64_t, n->n_attr + 2), fresh = 0;
    for (int i = 3; i < n->n_attr; i++) {
        fresh = TCI_MAX(fresh, n->attr[i] + 1);
    }
    attr[0] = n->attr[0] + 1;
    attr[1] = n->attr[1] + 1;
    attr[2] = n->attr[2];
    for (int i = 3, to = 3; i < n->n_attr; i++) {
        if (i == 3 || i == 3 + n->attr[0]) {
            attr[to++] = fresh;
        }
        attr[to++] = n->attr[i];
    }
    return attr;
}

TCI_FN tci_node *tci_plan_halves(const tci_algo *a, tci_node *n)
{
    tci_halves h = {.a = a, .g = a->g, .n = n};
    const tci_machine *m = &a->machine;
    bool unit = m->block_threads > 0 && m->matrix_units > 0 && m->is_fast && !m->reproducible;
    if (!unit || n->dtype != TC_F32 || n->in[0]->dtype != TC_F32 || n->rank < 2 ||
        !tci_halves_pay(&h)) {
        return NULL;
    }
    tci_node *in[2];
    for (int k = 0; k < 2; k++) {
        tci_node *stack = tci_halves_stack(&h, h.source[k], k);
        in[k] = tci_build_cast(a->g, tci_halves_over(&h, n->in[k], h.source[k], stack), TC_F32);
    }
    return tci_graph_node(a->g, TCI_OP_CONTRACT, TC_F32, n->rank, n->shape, 2, in, n->n_attr + 2,
                          tci_halves_labels(&h));
}
