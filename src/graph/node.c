/* graph/node.c - graph nodes: hash-consing, lookup, release.
 *
 * In: an op with its inputs, shape and attributes. Out: the one node that represents them.
 *
 * Design: nodes are hash-consed, so an expression that is built twice is one node, and equality is
 * pointer equality. Nodes of unique ops (ops/op_info.h) are never merged.
 *
 * Memory: a node and its lists are one block. In a context's graph, blocks come from free lists by
 * size (multiples of TCI_NODE_GRAIN bytes, cut from slabs), so that loops over scopes reuse memory;
 * larger blocks come from the allocator. In a compile's graph all blocks are scratch memory.
 *
 * Ids: the slot of a dropped node is reused with a higher generation. A handle with the old
 * generation is invalid. */
#include "node.h"

#include <stdarg.h>
#include <string.h>

enum {
    TCI_NODE_GRAIN = 32,
    TCI_NODE_SLAB_BYTES = 1 << 16,
    TCI_NODE_FIRST_BUCKETS = 64,
    TCI_NODE_FIRST_SLOTS = 64
};
#define TCI_NODE_LAST_ID 0xBFFFFFF0u /* higher ids: poisoned handles (run/runtime_structs.h) */

typedef struct tci_node_slab {
    struct tci_node_slab *next;
    size_t bytes;
} tci_node_slab;

/* Lookup key of a node. */
typedef struct tci_node_want {
    int op, rank, n_in, n_attr;
    tc_dtype dtype;
    const tci_dim *shape;
    tci_node *const *in;
    const int64_t *attr;
    tci_value value;
    uint64_t hash;
} tci_node_want;

TCI_FN tc_status tci_graph_fail(tci_graph *g, tc_status why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(g->message, sizeof(g->message), format, args);
    va_end(args);
    if (tci_dim_take_lost()) {
        why = TC_ERR_MEMORY;
        snprintf(g->message, sizeof(g->message), "out of memory for a symbolic size");
    }
    g->error = why;
    return why;
}

TCI_FN tc_status tci_graph_why_again(const tci_graph *g)
{
    return g->error == TC_ERR_MEMORY ? TC_ERR_MEMORY : TC_ERR_INTERNAL;
}

/* ---- memory ---- */

TCI_FN void *tci_graph_resize(tci_graph *g, void *p, size_t old_bytes, size_t new_bytes)
{
    if (!p && !new_bytes) {
        return NULL;
    }
    if (g->scratch) {
        void *r = new_bytes ? tci_scratch_get(g->scratch, new_bytes) : NULL;
        if (r && old_bytes) {
            memcpy(r, p, TCI_MIN(old_bytes, new_bytes));
        }
        return r;
    }
    void *r = tci_alloc_resize(g->alloc, p, old_bytes, new_bytes);
    if (!r && new_bytes) {
        tci_graph_fail(g, TC_ERR_MEMORY, "out of memory: %zu bytes for the graph", new_bytes);
        return NULL;
    }
    g->bytes += (int64_t)new_bytes - (int64_t)old_bytes;
    return r;
}

static size_t tci_node_bytes(int rank, int n_in, int n_attr)
{
    size_t words = (size_t)rank + (size_t)n_in + (size_t)n_attr;
    size_t bytes = sizeof(tci_node) + words * sizeof(int64_t);
    return (bytes + TCI_NODE_GRAIN - 1) / TCI_NODE_GRAIN * TCI_NODE_GRAIN;
}

/* The free list of a block size, or NULL for one that the allocator serves. */
static void **tci_node_pool(tci_graph *g, size_t bytes)
{
    size_t first = sizeof(tci_node) / TCI_NODE_GRAIN;
    size_t class = bytes / TCI_NODE_GRAIN - first;
    return class < TCI_COUNT(g->pools) ? &g->pools[class] : NULL;
}

static void *tci_node_cut(tci_graph *g, size_t bytes)
{
    if ((size_t)(g->slab_end - g->slab_next) < bytes) {
        tci_node_slab *slab = tci_graph_resize(g, NULL, 0, TCI_NODE_SLAB_BYTES);
        if (!slab) {
            return NULL;
        }
        slab->next = g->slabs;
        slab->bytes = TCI_NODE_SLAB_BYTES;
        g->slabs = slab;
        g->slab_next = (char *)slab + TCI_NODE_GRAIN;
        g->slab_end = (char *)slab + TCI_NODE_SLAB_BYTES;
    }
    void *p = g->slab_next;
    g->slab_next += bytes;
    return p;
}

static tci_node *tci_node_get_block(tci_graph *g, size_t bytes)
{
    if (g->scratch) {
        return tci_scratch_get(g->scratch, bytes);
    }
    void **pool = tci_node_pool(g, bytes);
    if (!pool) {
        return tci_graph_resize(g, NULL, 0, bytes);
    }
    if (*pool) {
        void *p = *pool;
        memcpy(pool, p, sizeof(*pool)); /* a free block begins with the link to the next one */
        return p;
    }
    return tci_node_cut(g, bytes);
}

static void tci_node_free_block(tci_graph *g, tci_node *n)
{
    size_t bytes = tci_node_bytes(n->rank, n->n_in, n->n_attr);
    void **pool = tci_node_pool(g, bytes);
    if (g->scratch) {
        return;
    }
    if (!pool) {
        tci_graph_resize(g, n, bytes, 0);
        return;
    }
    memcpy(n, pool, sizeof(*pool));
    *pool = n;
}

/* ---- slots: id -> node ---- */

static void *tci_node_regrow(tci_graph *g, const void *old, size_t old_bytes, size_t new_bytes)
{
    void *p = tci_graph_resize(g, NULL, 0, new_bytes);
    if (p && old_bytes) {
        memcpy(p, old, old_bytes);
    }
    return p;
}

/* The three arrays grow together or not at all. */
static bool tci_node_grow_slots(tci_graph *g)
{
    size_t from = g->cap_slots, to = from ? from * 2 : TCI_NODE_FIRST_SLOTS;
    if (to > TCI_NODE_LAST_ID) {
        tci_graph_fail(g, TC_ERR_LIMIT, "too many tensors are alive: %u", g->n_nodes);
        return false;
    }
    tci_node **slots = tci_node_regrow(g, g->slots, from * sizeof(*slots), to * sizeof(*slots));
    uint32_t *generations = tci_node_regrow(g, g->generations, from * sizeof(*generations),
                                            to * sizeof(*generations));
    uint32_t *next = tci_node_regrow(g, g->free_next, from * sizeof(*next), to * sizeof(*next));
    bool ok = slots && generations && next;
    size_t unused = ok ? from : to;
    void *lists[3] = {slots, generations, next};
    if (ok) {
        lists[0] = g->slots;
        lists[1] = g->generations;
        lists[2] = g->free_next;
        g->slots = slots;
        g->generations = generations;
        g->free_next = next;
        g->cap_slots = (uint32_t)to;
    }
    const size_t elem_bytes[3] = {sizeof(*slots), sizeof(*generations), sizeof(*next)};
    for (int i = 0; i < 3; i++) {
        if (lists[i]) {
            tci_graph_resize(g, lists[i], unused * elem_bytes[i], 0);
        }
    }
    return ok;
}

static bool tci_node_take_slot(tci_graph *g, uint32_t *id)
{
    if (g->free_slot != UINT32_MAX) {
        *id = g->free_slot;
        g->free_slot = g->free_next[*id];
        return true;
    }
    if (g->n_slots == g->cap_slots && !tci_node_grow_slots(g)) {
        return false;
    }
    *id = g->n_slots++;
    g->generations[*id] = 1;
    return true;
}

/* ---- hash-consing ---- */

static uint64_t tci_node_hash(const tci_node_want *w)
{
    uint64_t h = tci_hash_mix((uint64_t)w->op << 8 | (uint64_t)w->dtype, (uint64_t)w->rank);
    for (int i = 0; i < w->rank; i++) {
        h = tci_hash_mix(h, (uint64_t)w->shape[i]);
    }
    for (int i = 0; i < w->n_in; i++) {
        h = tci_hash_mix(h, w->in[i]->hash);
    }
    for (int i = 0; i < w->n_attr; i++) {
        h = tci_hash_mix(h, (uint64_t)w->attr[i]);
    }
    return tci_hash_mix(h, w->value.u);
}

static bool tci_node_equal(const tci_node *n, const tci_node_want *w)
{
    if (n->hash != w->hash || n->op != w->op || n->dtype != w->dtype || n->rank != w->rank ||
        n->n_in != w->n_in || n->n_attr != w->n_attr || n->value.u != w->value.u) {
        return false;
    }
    for (int i = 0; i < w->n_in; i++) {
        if (n->in[i] != w->in[i]) {
            return false;
        }
    }
    for (int i = 0; i < w->rank; i++) {
        if (n->shape[i] != w->shape[i]) {
            return false;
        }
    }
    for (int i = 0; i < w->n_attr; i++) {
        if (n->attr[i] != w->attr[i]) {
            return false;
        }
    }
    return true;
}

static bool tci_node_grow_buckets(tci_graph *g)
{
    uint32_t old = g->n_buckets, now = old ? old * 2 : TCI_NODE_FIRST_BUCKETS;
    tci_node **buckets = tci_graph_resize(g, NULL, 0, now * sizeof(*buckets));
    if (!buckets) {
        return false;
    }
    memset(buckets, 0, now * sizeof(*buckets));
    for (uint32_t i = 0; i < old; i++) {
        for (tci_node *n = g->buckets[i], *next; n; n = next) {
            next = n->next;
            n->next = buckets[n->hash & (now - 1)];
            buckets[n->hash & (now - 1)] = n;
        }
    }
    if (g->buckets) {
        tci_graph_resize(g, g->buckets, old * sizeof(*buckets), 0);
    }
    g->buckets = buckets;
    g->n_buckets = now;
    return true;
}

static tci_node *tci_node_find(const tci_graph *g, const tci_node_want *w)
{
    if (!g->n_buckets) {
        return NULL;
    }
    tci_node *n = g->buckets[w->hash & (g->n_buckets - 1)];
    while (n && !tci_node_equal(n, w)) {
        n = n->next;
    }
    return n;
}

/* ---- nodes ---- */

static void tci_node_fill(tci_node *n, const tci_node_want *w)
{
    memset(n, 0, sizeof(*n));
    n->op = (uint16_t)w->op;
    n->dtype = (int8_t)w->dtype;
    n->rank = w->rank;
    n->n_in = w->n_in;
    n->n_attr = w->n_attr;
    n->value = w->value;
    n->hash = w->hash;
    n->shape = (tci_dim *)(n + 1);
    n->attr = (int64_t *)(n->shape + w->rank);
    n->in = (tci_node **)(n->attr + w->n_attr);
    for (int i = 0; i < w->n_in; i++) {
        n->in[i] = w->in[i];
        n->in[i]->n_users++;
        n->stateful = n->stateful || n->in[i]->stateful;
    }
    if (w->rank) {
        memcpy(n->shape, w->shape, (size_t)w->rank * sizeof(*n->shape));
    }
    if (w->n_attr) {
        memcpy(n->attr, w->attr, (size_t)w->n_attr * sizeof(*n->attr));
    }
}

static tci_node *tci_node_make(tci_graph *g, tci_node_want *w)
{
    bool unique = tci_op_is(w->op, TCI_IS_UNIQUE);
    if (g->n_nodes >= g->n_buckets && !tci_node_grow_buckets(g)) {
        return NULL;
    }
    if (!g->scratch && !g->n_scopes && !tci_graph_open_scope(g)) {
        return NULL;
    }
    uint32_t id;
    if (!tci_node_take_slot(g, &id)) {
        return NULL;
    }
    tci_node *n = tci_node_get_block(g, tci_node_bytes(w->rank, w->n_in, w->n_attr));
    if (!n) {
        g->free_next[id] = g->free_slot;
        g->free_slot = id;
        g->slots[id] = NULL;
        return NULL;
    }
    if (unique) {
        w->hash = tci_hash_mix(tci_hash_mix(w->hash, id), g->generations[id]);
        bool counts = w->op == TCI_OP_INPUT || w->op == TCI_OP_COLLECTIVE;
        w->value.u = counts ? ++g->n_inputs_made : w->value.u;
    }
    tci_node_fill(n, w);
    n->id = id;
    n->generation = g->generations[id];
    n->site = g->site;
    n->call = g->call;
    n->region = g->region;
    g->slots[id] = n;
    g->n_nodes++;
    if (!unique) {
        n->next = g->buckets[n->hash & (g->n_buckets - 1)];
        g->buckets[n->hash & (g->n_buckets - 1)] = n;
    }
    if (!g->scratch) {
        n->scope = (uint32_t)(g->n_scopes - 1);
        n->scope_next = g->scope_heads[n->scope];
        g->scope_heads[n->scope] = n;
    }
    return n;
}

static tci_node *tci_node_find_or_make(tci_graph *g, tci_node_want *w)
{
    w->hash = tci_node_hash(w);
    tci_node *n = tci_op_is(w->op, TCI_IS_UNIQUE) ? NULL : tci_node_find(g, w);
    return n ? n : tci_node_make(g, w);
}

TCI_FN tci_node *tci_graph_node(tci_graph *g, int op, tc_dtype dtype, int rank,
                                const tci_dim *shape, int n_in, tci_node *const *in, int n_attr,
                                const int64_t *attr)
{
    tci_node_want w = {.op = op,
                       .dtype = dtype,
                       .rank = rank,
                       .shape = shape,
                       .n_in = n_in,
                       .in = in,
                       .n_attr = n_attr,
                       .attr = attr};
    return tci_node_find_or_make(g, &w);
}

TCI_FN tci_node *tci_graph_const(tci_graph *g, tc_dtype dtype, tci_value v)
{
    tci_node_want w = {.op = TCI_OP_CONST, .dtype = dtype, .value = v};
    return tci_node_find_or_make(g, &w);
}

TCI_FN tci_node *tci_graph_literal(tci_graph *g, tc_dtype dtype, tci_value v)
{
    bool folds;
    if (tci_dtype_is_float(dtype)) {
        tci_value zero = {.f = 0.0};
        folds = v.u == zero.u || v.f == 1.0 || v.f == -1.0 || v.f == 2.0 || v.f == 0.5;
    } else {
        folds = v.i >= -1 && v.i <= 2;
    }
    if (folds) {
        return tci_graph_const(g, dtype, v);
    }
    tci_node *n = tci_graph_node(g, TCI_OP_LITERAL, dtype, 0, NULL, 0, NULL, 0, NULL);
    if (n) {
        n->value = v;
    }
    return n;
}

/* ---- life of a graph ---- */

TCI_FN void tci_graph_init(tci_graph *g, tci_scratch *scratch, const tc_allocator *alloc)
{
    memset(g, 0, sizeof(*g));
    g->scratch = scratch;
    g->alloc = alloc;
    g->free_slot = UINT32_MAX;
}

TCI_FN bool tci_graph_open_scope(tci_graph *g)
{
    if (g->n_scopes == g->cap_scopes) {
        int cap = g->cap_scopes ? g->cap_scopes * 2 : 8;
        size_t from = (size_t)g->cap_scopes * sizeof(*g->scope_heads);
        tci_node **heads = tci_graph_resize(g, g->scope_heads, from, (size_t)cap * sizeof(*heads));
        if (!heads) {
            return false;
        }
        g->scope_heads = heads;
        g->cap_scopes = cap;
    }
    g->scope_heads[g->n_scopes++] = NULL;
    return true;
}

static void tci_node_unlink(tci_graph *g, tci_node *n)
{
    if (!tci_op_is(n->op, TCI_IS_UNIQUE)) {
        tci_node **at = &g->buckets[n->hash & (g->n_buckets - 1)];
        while (*at != n) {
            at = &(*at)->next;
        }
        *at = n->next;
    }
    if (!g->scratch) {
        tci_node **at = &g->scope_heads[n->scope];
        while (*at != n) {
            at = &(*at)->scope_next;
        }
        *at = n->scope_next;
    }
    for (int i = 0; i < n->n_in; i++) {
        n->in[i]->n_users--;
    }
}

/* Name and strides are the graph's own copies (api/leaf.c). */
static void tci_node_free_leaf(tci_graph *g, tci_node *n)
{
    if (n->name) {
        tci_graph_resize(g, (void *)(uintptr_t)n->name, strlen(n->name) + 1, 0);
    }
    if (n->strides) {
        tci_graph_resize(g, n->strides, (size_t)n->rank * sizeof(*n->strides), 0);
    }
}

TCI_FN void tci_graph_drop(tci_graph *g, tci_node *n)
{
    uint32_t id = n->id;
    tci_node_unlink(g, n);
    tci_node_free_leaf(g, n);
    tci_node_free_block(g, n);
    g->slots[id] = NULL;
    g->generations[id]++;
    g->free_next[id] = g->free_slot;
    g->free_slot = id;
    g->n_nodes--;
}

TCI_FN void tci_graph_deinit(tci_graph *g)
{
    if (g->scratch) {
        return;
    }
    for (uint32_t i = 0; i < g->n_slots; i++) {
        tci_node *n = g->slots[i];
        if (n) {
            tci_node_free_leaf(g, n);
            size_t bytes = tci_node_bytes(n->rank, n->n_in, n->n_attr);
            if (!tci_node_pool(g, bytes)) {
                tci_graph_resize(g, n, bytes, 0);
            }
        }
    }
    for (tci_node_slab *slab = g->slabs, *next; slab; slab = next) {
        next = slab->next;
        tci_graph_resize(g, slab, slab->bytes, 0);
    }
    tci_graph_resize(g, g->slots, g->cap_slots * sizeof(*g->slots), 0);
    tci_graph_resize(g, g->generations, g->cap_slots * sizeof(*g->generations), 0);
    tci_graph_resize(g, g->free_next, g->cap_slots * sizeof(*g->free_next), 0);
    tci_graph_resize(g, g->buckets, g->n_buckets * sizeof(*g->buckets), 0);
    tci_graph_resize(g, g->scope_heads, (size_t)g->cap_scopes * sizeof(*g->scope_heads), 0);
    tci_graph_init(g, NULL, g->alloc);
}
#undef TCI_NODE_LAST_ID
