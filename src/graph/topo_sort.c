/* graph/topo_sort.c - topological sorts of the nodes that roots need, and the rebuilding of a node
 * over new inputs (tci_graph_rebuild).
 *
 * In: roots; a node and a table of the nodes that replace its inputs. Out: lists of nodes, inputs
 * first; a node. */
#include "loop_node.h"

#include <string.h>

/* ---- order ---- */

typedef struct tci_sort_frame {
    tci_node *node;
    int next_in;
} tci_sort_frame;

static int tci_sort_n_in(const tci_node *n, bool outside)
{
    return outside ? tci_node_n_outside(n) : n->n_in;
}

/* Depth first with its own stack: a chain may be tens of thousands of nodes long. */
static tci_node_list tci_sort_nodes(tci_scratch *s, const tci_table *done, tci_node *const *roots,
                                    int n_roots, bool outside)
{
    tci_node_list list = {NULL, 0, 0};
    tci_table seen = tci_table_in(s, sizeof(bool));
    tci_sort_frame *stack = NULL;
    int n_stack = 0, cap_stack = 0;
    for (int r = 0; r < n_roots; r++) {
        tci_sort_frame first = {roots[r], 0};
        if ((done && tci_table_has(done, roots[r])) || !tci_table_add(&seen, roots[r])) {
            continue;
        }
        TCI_PUSH(s, stack, n_stack, cap_stack, first);
        while (n_stack) {
            tci_sort_frame *top = &stack[n_stack - 1];
            if (top->next_in == tci_sort_n_in(top->node, outside)) {
                TCI_PUSH(s, list.items, list.n, list.cap, top->node);
                n_stack--;
                continue;
            }
            tci_sort_frame in = {top->node->in[top->next_in++], 0};
            if (!(done && tci_table_has(done, in.node)) && tci_table_add(&seen, in.node)) {
                TCI_PUSH(s, stack, n_stack, cap_stack, in);
            }
        }
    }
    return list;
}

TCI_FN tci_node_list tci_graph_sort(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    return tci_sort_nodes(s, NULL, roots, n_roots, false);
}

TCI_FN tci_node_list tci_graph_sort_rest(tci_scratch *s, const tci_table *done,
                                         tci_node *const *roots, int n_roots)
{
    return tci_sort_nodes(s, done, roots, n_roots, false);
}

TCI_FN tci_node_list tci_graph_sort_outside(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    return tci_sort_nodes(s, NULL, roots, n_roots, true);
}

/* ---- rebuild ---- */

/* The item of `from` becomes that of `to`, which is zeros. */
static void tci_table_copy(tci_table *t, const tci_node *from, const tci_node *to)
{
    const char *item = tci_table_find(t, from);
    char *copy = item ? tci_table_at(t, to) : NULL;
    bool written = !copy;
    for (size_t i = 0; i < t->item_bytes && !written; i++) {
        written = copy[i] != 0;
    }
    if (!written) {
        memcpy(copy, item, t->item_bytes);
    }
}

TCI_FN tci_node *tci_graph_rebuild(tci_scratch *s, tci_graph *g, tci_node *n, const tci_table *now)
{
    tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
    bool changed = false;
    if (g->scratch) {
        (void)tci_graph_stamp_as(g, n);
    }
    for (int i = 0; i < n->n_in; i++) {
        in[i] = tci_table_get(now, n->in[i]);
        changed = changed || in[i] != n->in[i];
    }
    if (!changed) {
        return n;
    }
    tci_node *made = tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, n->n_in, in,
                                    n->n_attr, n->attr);
    if (made && g->facts) {
        tci_table_copy(g->facts, n, made);
    }
    return made;
}
