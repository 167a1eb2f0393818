/* plan/bf16x3.c - rewrites an f32 GEMM as three bf16 GEMMs in one contraction (BF16x3), for tensor
 * cores.
 *
 * In: a CONTRACT of f32 values, under TC_MATH_FAST, on a GPU whose matrix unit takes bf16. Out: a
 * CONTRACT of bf16 values with one more summed axis, or NULL to leave it as it is.
 *
 * Design: x = high + low with high = bf16(x) and low = bf16(x - high), up to 2^-18 |x|; a b = low
 * high + high low + high high, up to 3 * 2^-18 |a b|. Each factor is copied three times, as these
 * parts, along a new summed axis; windows, padding and permutations stay above the copies. An
 * infinite factor gives NaN. The copies cost memory traffic, so each element must be used in many
 * products. */
#include "contraction_route.h"

#include "../ops/composite.h"

enum {
    TCI_BF16X3_PARTS = 3,
    TCI_BF16X3_REUSE = 192,    /* products of each element of the factors, at least, */
    TCI_BF16X3_LEAST = 1 << 27 /* and of all */
};

typedef struct tci_bf16x3 {
    const tci_algo *a;
    tci_graph *g;
    tci_node *n;
    tci_node *source[2];
} tci_bf16x3;

/* ---- whether ---- */

static bool tci_bf16x3_pay(tci_bf16x3 *h, const tci_contraction *c)
{
    const int through = TCI_THROUGH_MOVEMENT | TCI_THROUGH_ZEROS | TCI_THROUGH_KNOWN;
    double elements = 0;
    for (int k = 0; k < 2; k++) {
        h->source[k] = tci_below(h->n->in[k], through, NULL);
        if (!tci_is_known(h->source[k]) || h->source[k]->rank == 0) {
            return false;
        }
        elements += (double)tci_dim_known(tci_node_count(h->source[k]));
    }
    return c->is_known && c->products >= TCI_BF16X3_LEAST &&
           c->products >= TCI_BF16X3_REUSE * elements;
}

/* ---- nodes ---- */

/* x three times along a first axis, in bf16: the low part in place low_at, else the high one. */
static tci_node *tci_bf16x3_stack(const tci_bf16x3 *h, tci_node *x, int low_at)
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
    tci_node *place = tci_composite_ramp(g, TCI_BF16X3_PARTS, x->rank + 1, 0);
    tci_node *is_low = tci_composite_binary(g, TCI_OP_EQ, place, tci_composite_whole(g, low_at));
    return tci_build_cast(g, tci_build_where(g, is_low, low, all), TC_BF16);
}

/* Rebuilds the layout ops on top of x over `stack`, in place of the value below it. */
static tci_node *tci_bf16x3_over(const tci_bf16x3 *h, const tci_node *x, const tci_node *source,
                                 tci_node *stack)
{
    if (x == source) {
        return stack;
    }
    tci_scratch *s = h->a->s;
    int each = x->op == TCI_OP_SLICE ? 2 : x->op == TCI_OP_PERMUTE || x->op == TCI_OP_PAD ? 1 : 0;
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, x->rank + 1);
    int64_t *attr = TCI_NEW_ARRAY(s, int64_t, x->n_attr + 2);
    shape[0] = TCI_BF16X3_PARTS;
    for (int i = 0; i < x->rank; i++) {
        shape[i + 1] = x->shape[i];
    }
    attr[1] = 1; /* a slice's step */
    for (int i = 0; i < x->n_attr; i++) {
        bool axis = x->op == TCI_OP_PERMUTE || (x->op == TCI_OP_WINDOW && i % 4 == 0);
        attr[each + i] = x->attr[i] + axis;
    }
    tci_node *in[2] = {tci_bf16x3_over(h, x->in[0], source, stack), NULL};
    if (x->op == TCI_OP_PAD) {
        in[1] = tci_graph_const(h->g, TC_BF16, (tci_value){.u = 0});
    }
    return tci_graph_node(h->g, x->op, TC_BF16, x->rank + 1, shape, x->n_in, in, each + x->n_attr,
                          attr);
}

/* The contraction of f16 or bf16 values, for which a matrix unit has a route. */
static bool tci_bf16x3_fits(tci_offer *o)
{
    const tci_machine *m = &o->a->machine;
    tci_bf16x3 h = {.a = o->a, .g = o->a->g, .n = o->n};
    bool unit = m->block_threads > 0 && m->matrix_units > 0 && m->is_fast;
    if (!unit || o->n->dtype != TC_F32 || o->n->in[0]->dtype != TC_F32 || o->n->rank < 2 ||
        !tci_bf16x3_pay(&h, o->c)) {
        return false;
    }
    tci_contract_form f = tci_contract_form_of(h.n);
    for (int k = 0; k < 2; k++) {
        tci_node *stack = tci_bf16x3_stack(&h, h.source[k], k), *x = h.n->in[k];
        f.in[k] = tci_bf16x3_over(&h, x, h.source[k], stack);
        tci_contract_lead(o->a->s, &f, k, tci_contract_fresh(h.n));
    }
    tci_node *made = tci_contract_make(o->a->s, h.g, &f, TC_F32, h.n->shape);
    tci_route_choice *choice = TCI_NEW(o->a->s, tci_route_choice);
    *choice = o->a->router->choose(o->a, made, tci_contraction_of(o->a->s, made), TCI_SUMS_UNIT);
    o->found = choice;
    return choice->n > 0;
}

static const tci_offer *tci_bf16x3_offer(const tci_offer *o)
{
    const tci_route_choice *choice = o->found;
    return &choice->offers[choice->best];
}

static double tci_bf16x3_cost(const tci_offer *o)
{
    return tci_route_copies_ns(o, TCI_BY_UNIT) + tci_bf16x3_offer(o)->cost_ns;
}

static tci_node *tci_bf16x3_build(const tci_offer *o)
{
    const tci_offer *unit = tci_bf16x3_offer(o);
    tci_str_add(o->a->orders, "contract of f32: of bf16 halves, low high + high low + high high, "
                              "as math may be fast\n");
    return unit->route->build(unit);
}

TCI_BLOCK_FN const tci_route *tci_route_bf16x3(void)
{
    static const tci_route row = {
        "bf16x3",        TCI_SUMS_FAST,   TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_bf16x3_fits, tci_bf16x3_cost, tci_bf16x3_build};
    return &row;
}
