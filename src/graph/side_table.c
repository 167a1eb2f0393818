/* graph/side_table.c - topological order of nodes, and side tables of passes.
 *
 * In: roots; nodes. Out: lists of nodes, inputs first; one table item per node.
 *
 * Graph slots are dense, so they index a table page by page. */
#include "loop_node.h"

#include <string.h>

/* ---- tables ---- */

/* Zeroed; NULL: out of memory. */
static void *tci_table_new(const tci_table *t, size_t bytes)
{
    if (t->s) {
        return tci_scratch_get(t->s, bytes);
    }
    void *p = tci_graph_resize(t->g, NULL, 0, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

static void tci_table_drop(const tci_table *t, void *p, size_t bytes)
{
    if (!t->s) {
        tci_graph_resize(t->g, p, bytes, 0);
    }
}

/* False: out of memory. */
static bool tci_table_grow(tci_table *t, uint32_t n_pages)
{
    size_t from = t->n_pages, to = TCI_MAX(from * 2, n_pages);
    char **pages = tci_table_new(t, to * sizeof(*pages));
    if (!pages) {
        return false;
    }
    if (from) {
        memcpy(pages, t->pages, from * sizeof(*pages));
        tci_table_drop(t, t->pages, from * sizeof(*pages));
    }
    t->pages = pages;
    t->n_pages = (uint32_t)to;
    return true;
}

/* The item of n on a new page. */
static void *tci_table_make(tci_table *t, const tci_node *n)
{
    uint32_t page = n->id / TCI_TABLE_PAGE;
    if (page >= t->n_pages && !tci_table_grow(t, page + 1)) {
        return NULL;
    }
    t->pages[page] = tci_table_new(t, TCI_TABLE_PAGE * t->item_bytes);
    return t->pages[page] ? tci_table_item(t, n) : NULL;
}

TCI_FN void *tci_table_at(tci_table *t, const tci_node *n)
{
    void *item = tci_table_find(t, n);
    return TCI_LIKELY(item) ? item : tci_table_make(t, n);
}

TCI_FN bool tci_table_has(const tci_table *set, const tci_node *n)
{
    const bool *in = (const bool *)tci_table_find(set, n);
    return in && *in;
}

TCI_FN bool tci_table_add(tci_table *set, const tci_node *n)
{
    bool *in = (bool *)tci_table_at(set, n);
    if (!in || *in) {
        return false;
    }
    *in = true;
    return true;
}

TCI_FN void tci_table_put(tci_table *now, const tci_node *n, tci_node *stands)
{
    *(tci_node **)tci_table_at(now, n) = stands;
}

TCI_FN tci_table tci_table_copy_set(tci_scratch *s, const tci_table *set)
{
    tci_table copy = tci_table_in(s, set->item_bytes);
    copy.n_pages = set->n_pages;
    copy.pages = TCI_NEW_ARRAY(s, char *, set->n_pages + 1);
    for (uint32_t i = 0; i < set->n_pages; i++) {
        if (set->pages[i]) {
            copy.pages[i] = tci_scratch_copy(s, set->pages[i], TCI_TABLE_PAGE * set->item_bytes);
        }
    }
    return copy;
}

TCI_FN void tci_table_free(tci_table *t)
{
    for (uint32_t i = 0; i < t->n_pages; i++) {
        if (t->pages[i]) {
            tci_table_drop(t, t->pages[i], TCI_TABLE_PAGE * t->item_bytes);
        }
    }
    if (t->pages) {
        tci_table_drop(t, t->pages, t->n_pages * sizeof(*t->pages));
    }
    t->pages = NULL;
    t->n_pages = 0;
}

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

/* ---- order ---- */

typedef struct tci_table_frame {
    tci_node *node;
    int next_in;
} tci_table_frame;

static int tci_table_n_in(const tci_node *n, bool outside)
{
    return outside ? tci_node_n_outside(n) : n->n_in;
}

/* Depth first with its own stack: a chain may be tens of thousands of nodes long. */
static tci_node_list tci_table_sort(tci_scratch *s, const tci_table *done, tci_node *const *roots,
                                    int n_roots, bool outside)
{
    tci_node_list list = {NULL, 0, 0};
    tci_table seen = tci_table_in(s, sizeof(bool));
    tci_table_frame *stack = NULL;
    int n_stack = 0, cap_stack = 0;
    for (int r = 0; r < n_roots; r++) {
        tci_table_frame first = {roots[r], 0};
        if ((done && tci_table_has(done, roots[r])) || !tci_table_add(&seen, roots[r])) {
            continue;
        }
        TCI_PUSH(s, stack, n_stack, cap_stack, first);
        while (n_stack) {
            tci_table_frame *top = &stack[n_stack - 1];
            if (top->next_in == tci_table_n_in(top->node, outside)) {
                TCI_PUSH(s, list.items, list.n, list.cap, top->node);
                n_stack--;
                continue;
            }
            tci_table_frame in = {top->node->in[top->next_in++], 0};
            if (!(done && tci_table_has(done, in.node)) && tci_table_add(&seen, in.node)) {
                TCI_PUSH(s, stack, n_stack, cap_stack, in);
            }
        }
    }
    return list;
}

TCI_FN tci_node_list tci_graph_sort(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    return tci_table_sort(s, NULL, roots, n_roots, false);
}

TCI_FN tci_node_list tci_graph_sort_rest(tci_scratch *s, const tci_table *done,
                                         tci_node *const *roots, int n_roots)
{
    return tci_table_sort(s, done, roots, n_roots, false);
}

TCI_FN tci_node_list tci_graph_sort_outside(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    return tci_table_sort(s, NULL, roots, n_roots, true);
}
