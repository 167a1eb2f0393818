/* plan/hoist_factors.c - hoists factors that are constant along the summed axes out of split
 * reductions: sum(x * s) = s * sum(x).
 *
 * In: a SUM that is split into chunks, on a GPU. Out: sums of fewer factors, or NULL: sum(x * s) =
 * s * sum(x), sum(x + y * s) = sum(x) + s * sum(y), where s is broadcast along the summed axes and
 * is not a scalar constant.
 *
 * Design: the sums in a norm's gradient are linear in values that are sums themselves (of squares,
 * of gradient times x), so the second sum would wait for the first and read everything again. With
 * such factors outside, all sums are over the same values, which are read once, and the gradients
 * to the scale and to the normalized values share a sum. A difference from a broadcast value, such
 * as x - mean, stays whole: its sum is small and would be lost between two large ones. */
#include "rfactor.h"

enum { TCI_FACTORED_DEPTH = 8, TCI_FACTORED_MOST = 16 };

typedef struct tci_factored {
    const tci_algo *a;
    const tci_node *n; /* the sum */
    bool found;        /* a factor was taken out */
} tci_factored;

/* True if x is the same along all axes that are summed. */
static bool tci_factored_is_spread(const tci_factored *f, const tci_node *x)
{
    int *at = TCI_NEW_ARRAY(f->a->s, int, x->rank + 1);
    tci_broadcast_source(f->a->s, x, at);
    bool spread = true;
    for (int i = 0; i < f->n->n_attr; i++) {
        spread = spread && at[f->n->attr[i]] < 0;
    }
    return spread;
}

/* Spread x in place of the sum. */
static tci_node *tci_factored_outside(const tci_factored *f, tci_node *x)
{
    for (int i = 0; i < f->n->n_attr; i++) {
        x = tci_build_slice(f->a->g, x, (int)f->n->attr[i], 0, 1, 1);
    }
    return tci_build_reshape(f->a->g, x, f->n->rank, f->n->shape);
}

/* The factors of a product: those that are spread, which go outside, and the others. */
typedef struct tci_factors {
    tci_node *inside[TCI_FACTORED_MOST], *outside[TCI_FACTORED_MOST];
    int n_inside, n_outside;
} tci_factors;

/* False: they are too many. */
static bool tci_factored_split(const tci_factored *f, tci_node *x, tci_factors *to)
{
    if (tci_factored_is_spread(f, x)) {
        to->outside[to->n_outside++] = x;
    } else if (x->op == TCI_OP_MUL) {
        return tci_factored_split(f, x->in[0], to) && tci_factored_split(f, x->in[1], to);
    } else {
        to->inside[to->n_inside++] = x;
    }
    return to->n_inside < TCI_FACTORED_MOST && to->n_outside < TCI_FACTORED_MOST;
}

static tci_node *tci_factored_product(const tci_algo *a, tci_node *const *of, int n)
{
    tci_node *product = of[0];
    for (int i = 1; i < n; i++) {
        tci_node *both[2] = {product, of[i]};
        product = tci_build_ew(a->g, TCI_OP_MUL, both);
    }
    return product;
}

/* The SUM of x over what n sums, in chunks. */
static tci_node *tci_factored_plain(const tci_factored *f, tci_node *x)
{
    const tci_node *n = f->n;
    tci_node *sum = tci_graph_node(f->a->g, TCI_OP_SUM, (tc_dtype)n->dtype, n->rank, n->shape, 1,
                                   &x, n->n_attr, n->attr);
    return tci_plan_split(f->a, sum);
}

static tci_node *tci_factored_sum(tci_factored *f, tci_node *x, int depth);

/* Of a product that has factors of both kinds; NULL: it has not. */
static tci_node *tci_factored_of_product(tci_factored *f, tci_node *x, int depth)
{
    tci_factors of = {.n_inside = 0};
    if (!tci_factored_split(f, x, &of) || of.n_outside == 0 || of.n_inside == 0) {
        return NULL;
    }
    for (int i = 0; i < of.n_outside; i++) {
        int *at = TCI_NEW_ARRAY(f->a->s, int, x->rank + 1);
        f->found |= !tci_op_is(tci_broadcast_source(f->a->s, of.outside[i], at)->op, TCI_IS_NUMBER);
        of.outside[i] = tci_factored_outside(f, of.outside[i]);
    }
    tci_node *both[2] = {tci_factored_product(f->a, of.outside, of.n_outside),
                         tci_factored_product(f->a, of.inside, of.n_inside)};
    both[1] = tci_factored_sum(f, both[1], depth);
    return tci_build_ew(f->a->g, TCI_OP_MUL, both);
}

static tci_node *tci_factored_sum(tci_factored *f, tci_node *x, int depth)
{
    const bool joins = x->op == TCI_OP_ADD || x->op == TCI_OP_SUB;
    tci_node *made = NULL, *in[2] = {NULL, NULL};
    if (depth == 0) {
        return tci_factored_plain(f, x);
    }
    if (x->op == TCI_OP_NEG ||
        (joins && !tci_factored_is_spread(f, x->in[0]) && !tci_factored_is_spread(f, x->in[1]))) {
        const bool found = f->found;
        f->found = false;
        for (int i = 0; i < x->n_in; i++) {
            in[i] = tci_factored_sum(f, x->in[i], depth - 1);
        }
        made = f->found || x->op == TCI_OP_NEG ? tci_build_ew(f->a->g, x->op, in) : NULL;
        f->found |= found;
    } else if (x->op == TCI_OP_MUL) {
        made = tci_factored_of_product(f, x, depth - 1);
    }
    return made ? made : tci_factored_plain(f, x);
}

TCI_FN tci_node *tci_plan_factored_sum(const tci_algo *a, tci_node *n)
{
    tci_factored f = {a, n, false};
    const tci_node *x = n->in[0];
    const bool could = x->op == TCI_OP_MUL || x->op == TCI_OP_ADD || x->op == TCI_OP_SUB ||
                       x->op == TCI_OP_NEG;
    if (a->machine.block_threads == 0 || a->machine.reproducible || n->op != TCI_OP_SUM ||
        n->dtype != TC_F32 || x->dtype != TC_F32 || !could || !tci_rfactor_cuts(a, n)) {
        return NULL;
    }
    tci_node *made = tci_factored_sum(&f, n->in[0], TCI_FACTORED_DEPTH);
    return f.found ? made : NULL;
}
