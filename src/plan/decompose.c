/* plan/decompose.c - decomposes large ops into several nodes where that is faster: split
 * reductions, wide CAT, long scans, top-k, scatter.
 *
 *   large reductions  chunks, and a reduction of their results (plan/rfactor.c)
 *   wide CAT          more than eight parts: a tree of CATs of eight, each in memory
 *   CONTRACT          one of its routes (plan/contraction_route.c); on GPUs, an f32 contraction of
 *                     widened f16 or bf16 operands reads the narrow operands themselves
 *   long SCAN         parts (plan/split_scan.c)
 *   TOPK              selection by counting, or a radix sort (plan/sort.c)
 *   long SCATTER      on GPUs: its index is sorted first (plan/scatter_sort.c)
 * The rewritten graph is changed in place: uses of a replaced node are redirected to the new
 * one. */
#include "relayout.h"
#include "contraction_route.h"

enum { TCI_ALGO_CAT = 8 };

/* ---- concatenations ---- */

static tci_node *tci_algo_cat(const tci_algo *a, tci_node *n)
{
    int axis = (int)n->attr[0], parts = n->n_in;
    tci_node **list = tci_scratch_copy(a->s, n->in, sizeof(tci_node *) * (size_t)parts);
    while (parts > TCI_ALGO_CAT) {
        int made = 0;
        for (int i = 0; i < parts; i += TCI_ALGO_CAT) {
            int take = TCI_MIN(TCI_ALGO_CAT, parts - i);
            tci_dim *shape = tci_scratch_copy(a->s, n->shape, sizeof(tci_dim) * (size_t)n->rank);
            shape[axis] = 0;
            for (int j = 0; j < take; j++) {
                shape[axis] = tci_dim_add(shape[axis], list[i + j]->shape[axis]);
            }
            tci_node *part = list[i];
            if (take > 1) {
                part = tci_graph_node(a->g, TCI_OP_CAT, (tc_dtype)n->dtype, n->rank, shape, take,
                                      list + i, 1, n->attr);
                tci_algo_force(a, part);
            }
            list[made++] = part;
        }
        parts = made;
    }
    return tci_graph_node(a->g, TCI_OP_CAT, (tc_dtype)n->dtype, n->rank, n->shape, parts, list, 1,
                          n->attr);
}

/* ---- calls ---- */

/* A user function, or a communicator, reads dense memory. */
static tci_node *tci_algo_call(const tci_algo *a, tci_node *n)
{
    tci_node **in = TCI_NEW_ARRAY(a->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        tci_node *x = n->in[i];
        if (tci_plan_source(x)->strides) { /* a leaf's; what looks at it is no leaf */
            x = tci_graph_node(a->g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, x->rank, x->shape, 1, &x,
                               0, NULL);
        }
        if (!tci_plan_is_leaf(x)) {
            tci_algo_force(a, x);
        }
        in[i] = x;
    }
    return tci_graph_node(a->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, n->n_in, in,
                          n->n_attr, n->attr);
}

/* Reproducible: communicators only move floats, which are summed in the order of ranks here. */
static tci_node *tci_algo_collective(const tci_algo *a, tci_node *n)
{
    const int64_t verb = n->attr[TCI_COLLECTIVE_VERB];
    const int first[] = {0};
    if (!a->machine.reproducible || !tci_comm_verb_reduces((int)verb) ||
        n->attr[TCI_COLLECTIVE_HOW] != TC_COMM_SUM || !tci_dtype_is_float((tc_dtype)n->dtype)) {
        return tci_algo_call(a, n);
    }
    tci_node *all = tci_build_collective_like(
        a->g, n, verb == TC_COMM_ALL_REDUCE ? TC_COMM_ALL_GATHER : TC_COMM_ALL_TO_ALL, n->in[0]);
    all = tci_algo_call(a, all);
    tci_node *sum = tci_build_reduce(a->g, TCI_OP_SUM, all, (tc_axes){first, 1, false}, false);
    tci_node *made = tci_rfactor(a, sum);
    return made ? made : sum;
}

/* ---- contractions ---- */

/* The halves that operand n is, or a widening of; n: it is none. */
static tci_node *tci_algo_halves(const tci_algo *a, tci_node *n)
{
    n = tci_relayout_pad_narrow(a, n);
    tci_node *halves = tci_plan_narrow(a, n);
    return halves ? halves : n;
}

/* Contraction n in f32 of widened f16 or bf16 values as one of f16 or bf16 values: what it
 * multiplies does not depend on whether a widening is stored. n: it is none. */
static tci_node *tci_algo_narrow(const tci_algo *a, tci_node *n)
{
    tci_node *in[2] = {tci_algo_halves(a, n->in[0]), tci_algo_halves(a, n->in[1])};
    bool fits = a->machine.block_threads > 0 && n->dtype == TC_F32 &&
                tci_dtype_is_half((tc_dtype)in[0]->dtype) && in[0]->dtype == in[1]->dtype;
    return fits ? tci_contract_of(a->g, n, TC_F32, in) : n;
}

/* ---- the pass ---- */

static tci_node *tci_algo_node(const tci_algo *a, tci_node *n)
{
    tci_node *made = NULL;
    if (tci_op_is_reduce(n->op) || tci_op_is(n->op, TCI_IS_ARG)) {
        made = tci_plan_factored_sum(a, n);
        made = made ? made : tci_rfactor(a, n);
    } else if (n->op == TCI_OP_CAT && n->n_in > TCI_ALGO_CAT) {
        made = tci_algo_cat(a, n);
    } else if (n->op == TCI_OP_CONTRACT) {
        made = a->router->contract(a, tci_algo_narrow(a, n));
    } else if (n->op == TCI_OP_SCAN) {
        made = tci_plan_scan(a, n);
    } else if (n->op == TCI_OP_SCATTER) {
        made = tci_plan_order(a, n);
    } else if (n->op == TCI_OP_TOPK) {
        made = tci_plan_topk(a, n);
    } else if (n->op == TCI_OP_CUSTOM) {
        made = tci_algo_call(a, n);
    } else if (n->op == TCI_OP_COLLECTIVE) {
        made = tci_algo_collective(a, n);
    }
    return made ? made : n;
}

TCI_FN void tci_plan_algorithm(const tci_algo *algo, tci_node **roots, int n_roots)
{
    tci_algo with = *algo, *a = &with;
    with.router = tci_route_router();
    tci_node_list list = tci_graph_sort(a->s, roots, n_roots);
    tci_table now = tci_table_in(a->s, sizeof(tci_node *));
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i], *over = tci_graph_rebuild(a->s, a->g, n, &now);
        bool forced = tci_table_has(a->forced, n);
        if (forced) {
            tci_algo_force(a, over); /* it may be a node that was there before */
        }
        if (tci_table_has(a->whole, n)) {
            tci_table_add(a->whole, over);
        }
        if (tci_table_has(a->images, n)) {
            tci_table_add(a->images, over);
        }
        over->site = over->site.file ? over->site : n->site;
        over = tci_algo_node(a, over);
        if (forced) {
            tci_algo_force(a, over); /* or one that only shows what it was made of */
        }
        tci_table_put(&now, n, over);
    }
    for (int i = 0; i < n_roots; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}
