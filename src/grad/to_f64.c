/* grad/to_f64.c - rebuilds a graph in f64.
 *
 * In: a root, and f64 leaves that replace some of its nodes. Out: the root in f64.
 *
 * Each float node is rebuilt over f64 inputs; integers stay. Where an op depends on the dtype
 * itself (on the bits of a value), the value is rounded to the original dtype first. */
#include "../graph/loop_node.h"
#include "grad.h"

static tci_node *tci_widen_node(tci_scratch *s, tci_graph *g, tci_node *n, const tci_table *wide)
{
    tc_dtype t = (tc_dtype)n->dtype, to = tci_dtype_is_float(t) ? TC_F64 : t;
    tci_node *first = n->n_in ? tci_table_get(wide, n->in[0]) : NULL;
    if (n->op == TCI_OP_CONST && to == TC_F64) {
        return tci_graph_const(g, TC_F64, n->value);
    }
    if (n->op == TCI_OP_BOUND) {
        return tci_build_bound(g, to, n->rank, n->shape);
    }
    if (!first) {
        return tci_build_cast(g, n, to);
    }
    if (n->op == TCI_OP_CAST) {
        return tci_build_cast(g, first, to);
    }
    if (n->op == TCI_OP_BITCAST) {
        first = tci_build_cast(g, first, (tc_dtype)n->in[0]->dtype);
        return tci_build_cast(g, tci_build_bitcast(g, first, t), to);
    }
    bool own = n->op == TCI_OP_CUSTOM || n->op == TCI_OP_COLLECTIVE;
    tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = tci_table_get(wide, n->in[i]);
        if (own) { /* a C function takes what it was written for, as do other ranks */
            in[i] = tci_build_cast(g, in[i], (tc_dtype)n->in[i]->dtype);
        }
    }
    if (own) {
        tci_node *narrow = tci_graph_node(g, n->op, t, n->rank, n->shape, n->n_in, in, n->n_attr,
                                          n->attr);
        return tci_build_cast(g, narrow, to);
    }
    return tci_graph_node(g, n->op, to, n->rank, n->shape, n->n_in, in, n->n_attr, n->attr);
}

TCI_FN tci_node_list tci_widen_build(tci_scratch *s, tci_graph *g, tci_node *root, tci_table *wide)
{
    const tci_vjp v = {.s = s, .g = g};
    tci_node_list list = tci_graph_sort(s, &root, 1);
    for (int i = 0; i < list.n; i++) {
        tci_node **now = (tci_node **)tci_table_at(wide, list.items[i]);
        *now = *now ? *now : tci_vjp_built(&v, tci_widen_node(s, g, list.items[i], wide));
    }
    return list;
}
