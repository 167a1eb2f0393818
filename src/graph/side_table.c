/* graph/side_table.c - side tables of passes: one item per node.
 *
 * In: nodes. Out: their items.
 *
 * Graph slots are dense, so they index a table page by page. */
#include "side_table.h"

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
