/* graph/side_table.h - declares side tables: data of a pass per node, indexed by node id; and
 * topological sorts of nodes.
 *
 * Passes store nothing in nodes. A pass makes a table, whose items are zero until written, and
 * looks up the item of a node. Passes may therefore nest, and leave nothing behind.
 *
 * An item is found by the node's slot in the graph (tci_node.id), in pages that are allocated when
 * one of their nodes is first looked up: constant time, with memory for the visited nodes and one
 * pointer per TCI_TABLE_PAGE slots. Items never move: a pointer stays valid while nodes are made
 * and the table grows.
 *
 * A table belongs to the nodes of one graph. After a node is dropped (tci_graph_drop) another may
 * have its slot, so a table that outlives nodes also stores their generation. */
#ifndef TCI_GRAPH_SIDE_TABLE_H
#define TCI_GRAPH_SIDE_TABLE_H

#include "node.h"

enum { TCI_TABLE_PAGE = 64 }; /* items of a page */

typedef struct tci_table {
    tci_scratch *s; /* where memory comes from; NULL: */
    tci_graph *g;
    size_t item_bytes;
    char **pages; /* NULL: no item of it was asked for */
    uint32_t n_pages;
} tci_table;

/* In scratch: an item is always there, and nothing is to be freed. */
static inline tci_table tci_table_in(tci_scratch *s, size_t item_bytes)
{
    tci_table t = {s, NULL, item_bytes, NULL, 0};
    return t;
}

/* In the memory of a context's graph: an item may be NULL, the table is freed by tci_table_free. */
static inline tci_table tci_table_on(tci_graph *g, size_t item_bytes)
{
    tci_table t = {NULL, g, item_bytes, NULL, 0};
    return t;
}
TCI_FN void tci_table_free(tci_table *t);

/* Lookups are not inlined: the passes have 300 of them, which would be 20 kB of code. */

/* The item of n, which was asked for before. */
TCI_INLINE void *tci_table_item(const tci_table *t, const tci_node *n)
{
    return t->pages[n->id / TCI_TABLE_PAGE] + n->id % TCI_TABLE_PAGE * t->item_bytes;
}

/* The item of n; NULL if none of its page was asked for, which is as good as zeros. */
TCI_INLINE void *tci_table_find(const tci_table *t, const tci_node *n)
{
    uint32_t page = n->id / TCI_TABLE_PAGE;
    return page < t->n_pages && t->pages[page] ? tci_table_item(t, n) : NULL;
}

/* The item of n, to be written. NULL, but never in scratch: out of memory, as the graph's
 * error says. */
TCI_FN void *tci_table_at(tci_table *t, const tci_node *n);

/* ---- sets: tables of bool ---- */

TCI_FN bool tci_table_has(const tci_table *set, const tci_node *n);

/* False: it was in the set before; or, but never in scratch, out of memory. */
TCI_FN bool tci_table_add(tci_table *set, const tci_node *n);

/* A set of the same nodes, in scratch. */
TCI_FN tci_table tci_table_copy_set(tci_scratch *s, const tci_table *set);

/* ---- tables of nodes: what stands for each ---- */

TCI_FN void tci_table_put(tci_table *now, const tci_node *n, tci_node *stands);

/* One that was put. */
TCI_INLINE tci_node *tci_table_get(const tci_table *now, const tci_node *n)
{
    return *(tci_node *const *)tci_table_item(now, n);
}

/* n over what stands for its inputs: n itself where each stands for itself. The new node has n's
 * item of g->facts, unless that is already written. */
TCI_FN tci_node *tci_graph_rebuild(tci_scratch *s, tci_graph *g, tci_node *n, const tci_table *now);

/* ---- order: graph/topo_sort.c ---- */

/* Every node that `roots` need, inputs before users. List in scratch. */
typedef struct tci_node_list {
    tci_node **items;
    int n, cap;
} tci_node_list;
TCI_FN tci_node_list tci_graph_sort(tci_scratch *s, tci_node *const *roots, int n_roots);
/* The nodes that are not in the set, and not needed by nodes of the set alone. */
TCI_FN tci_node_list tci_graph_sort_rest(tci_scratch *s, const tci_table *done,
                                         tci_node *const *roots, int n_roots);

#endif
