/* api/scope.c - lifetime scopes of graph nodes: tc_scope_end frees the nodes made since
 * tc_scope_begin; tc_keep and tc_retain carry values out of a scope.
 *
 * In: tc_scope_begin/end, tc_keep, tc_retain. Out: dropped nodes; DATA nodes in the outer scope.
 *
 * Design: a node belongs to the scope in which it was made and can only be used by nodes of that
 * scope or deeper ones, so a scope ends by dropping its list, newest first. Only values leave:
 * tc_keep evaluates a node and puts a DATA node with the same storage into the outer scope.
 *
 * Replacement, so that `x = tc_keep(f(x))` in a loop of scopes runs in constant memory: a kept
 * value replaces its predecessor, one of the values kept at the same call site (file, line, scope)
 * that its computation used; and the predecessors of all values that it used are dropped, since
 * they are two generations old and their successors have been used. If one line keeps several
 * states, which may read each other, the predecessor is the one that was kept at the same position
 * in its scope; otherwise the newest value that nothing has replaced yet, so that no state of the
 * previous iteration is left behind. A value that still has users, or that tc_retain exempts, stays
 * until its scope ends. Invariant: keeps[id] describes node id only while its generation is that
 * node's.
 */
#include "internal.h"

#include <string.h>

typedef struct tci_keep {
    uint32_t generation;
    uint32_t serial;                           /* order of keeping; 0: never kept */
    uint32_t order;                            /* the same since a scope ended */
    uint32_t previous_id, previous_generation; /* the value that it replaces */
    tc_site site;
    bool retained, has_previous, is_replaced;
} tci_keep;

/* ---- dropping ---- */

static void tci_scope_drop_node(tci_ctx *ctx, tci_node *n)
{
    tci_storage_release(n->storage);
    n->storage = NULL;
    tci_graph_drop(&ctx->graph, n);
}

TC_API tc_status tc_scope_begin_at(tc_ctx *ctx, tc_site here)
{
    tci_ctx *c = tci_ctx_of(ctx);
    if (!c) {
        return TC_ERR_HANDLE;
    }
    tci_graph *g = &c->graph;
    if ((!g->n_scopes && !tci_graph_open_scope(g)) || !tci_graph_open_scope(g)) {
        tci_poison(c, "tc_scope_begin", here, TC_ERR_MEMORY, "out of memory");
        return TC_ERR_MEMORY;
    }
    return TC_OK;
}

static void tci_scope_end(tci_ctx *c)
{
    tci_graph *g = &c->graph;
    int scope = --g->n_scopes;
    while (g->scope_heads[scope]) {
        tci_scope_drop_node(c, g->scope_heads[scope]);
    }
    c->keep_order = 0;
    if (c->n_poisons) {
        tci_handle_drop_poisons(c, scope);
    }
}

TC_API tc_status tc_scope_end_at(tc_ctx *ctx, tc_site here)
{
    tci_ctx *c = tci_ctx_of(ctx);
    if (!c) {
        return TC_ERR_HANDLE;
    }
    if (c->graph.n_scopes <= TCI_MAX(c->lent_scopes, 1)) {
        tci_poison(c, "tc_scope_end", here, TC_ERR_ARGUMENT,
                   "no scope is open%s: expected a "
                   "tc_scope_begin before",
                   c->n_lent ? " in this function" : "");
        return TC_ERR_ARGUMENT;
    }
    tci_scope_end(c);
    return TC_OK;
}

/* ---- user functions ---- */

TCI_FN tci_lent tci_lend(tci_ctx *ctx)
{
    tci_graph *g = &ctx->graph;
    tci_lent lent = {g->site, g->call, ctx->within, TCI_MAX(g->n_scopes, 1), ctx->lent_scopes};
    ctx->lent_scopes = lent.n_scopes;
    ctx->within = NULL;
    ctx->n_lent++;
    return lent;
}

TCI_FN const char *tci_take_back(tci_ctx *ctx, tci_lent lent)
{
    tci_graph *g = &ctx->graph;
    const char *why = g->n_scopes > lent.n_scopes
                          ? "the function leaves a scope open: expected a tc_scope_end in it"
                          : NULL;
    while (g->n_scopes > lent.n_scopes) {
        tci_scope_end(ctx);
    }
    if (ctx->freed_within) {
        why = "the function frees the context, which the call needs: it stays, expected its "
              "tc_ctx_free after the call";
        ctx->freed_within = false;
    }
    g->site = lent.site;
    g->call = lent.call;
    ctx->within = lent.within;
    ctx->lent_scopes = lent.floor;
    ctx->n_lent--;
    return why;
}

TCI_FN tci_lent tci_frame_lend(const tci_frame *f)
{
    tci_fpenv_leave(f->caller);
    return tci_lend(f->ctx);
}

TCI_FN bool tci_frame_take_back(tci_frame *f, tci_lent lent)
{
    f->caller = tci_fpenv_enter();
    const char *why = tci_take_back(f->ctx, lent);
    if (why) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "%s", why);
    }
    return !why;
}

TCI_FN void tci_scope_free_all(tci_ctx *ctx)
{
    tci_graph *g = &ctx->graph;
    for (uint32_t i = 0; i < g->n_slots; i++) {
        if (g->slots[i]) {
            tci_storage_release(g->slots[i]->storage);
            g->slots[i]->storage = NULL;
        }
    }
    tci_handle_drop_poisons(ctx, 0);
    tci_graph_resize(g, ctx->poisons, (size_t)ctx->cap_poisons * sizeof(*ctx->poisons), 0);
    tci_graph_resize(g, ctx->keeps, (size_t)ctx->cap_keeps * sizeof(*ctx->keeps), 0);
    ctx->poisons = NULL;
    ctx->keeps = NULL;
    ctx->cap_poisons = 0;
    ctx->cap_keeps = 0;
}

/* ---- keeping ---- */

/* Record of node n as a kept value; NULL if it is not one. */
static tci_keep *tci_scope_find_keep(const tci_ctx *ctx, const tci_node *n)
{
    tci_keep *k = n->id < ctx->cap_keeps ? &ctx->keeps[n->id] : NULL;
    return k && k->serial && k->generation == n->generation ? k : NULL;
}

static tci_keep *tci_scope_make_keep(tci_ctx *ctx, const tci_node *n)
{
    if (n->id >= ctx->cap_keeps) {
        size_t from = ctx->cap_keeps, to = TCI_MAX(from * 2, (size_t)n->id + 16);
        tci_keep *keeps = tci_graph_resize(&ctx->graph, ctx->keeps, from * sizeof(*keeps),
                                           to * sizeof(*keeps));
        if (!keeps) {
            return NULL;
        }
        memset(keeps + from, 0, (to - from) * sizeof(*keeps));
        ctx->keeps = keeps;
        ctx->cap_keeps = (uint32_t)to;
    }
    tci_keep *k = &ctx->keeps[n->id];
    memset(k, 0, sizeof(*k));
    k->generation = n->generation;
    k->serial = ++ctx->keep_serial;
    k->order = ctx->keep_order++;
    return k;
}

/* Kept values that a computation used: a heap list, owned by the caller. */
typedef struct tci_scope_uses {
    tci_node **items;
    size_t n, cap;
} tci_scope_uses;

static bool tci_scope_push(tci_graph *g, tci_scope_uses *list, tci_node *n)
{
    if (list->n == list->cap) {
        size_t cap = TCI_MAX(list->cap * 2, 32), bytes = sizeof(*list->items);
        tci_node **items = tci_graph_resize(g, list->items, list->cap * bytes, cap * bytes);
        if (!items) {
            return false;
        }
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = n;
    return true;
}

/* Lists root and what it needs of its own scope, and of the scope outside what was kept at `site`.
 * False: out of memory, the list is cut. */
static bool tci_scope_list_needs(tci_ctx *ctx, tci_node *root, tc_site site, tci_scope_uses *list)
{
    tci_table listed = tci_table_on(&ctx->graph, sizeof(bool));
    bool ok = tci_scope_push(&ctx->graph, list, root) && tci_table_add(&listed, root);
    for (size_t at = 0; ok && at < list->n; at++) {
        const tci_node *n = list->items[at];
        for (int i = 0; ok && i < n->n_in; i++) {
            tci_node *in = n->in[i];
            const tci_keep *k = tci_scope_find_keep(ctx, in);
            bool kept_here = k && k->site.line == site.line && k->site.file == site.file &&
                             in->scope + 1 == root->scope;
            if ((kept_here || in->scope == root->scope) && !tci_table_has(&listed, in)) {
                ok = tci_scope_push(&ctx->graph, list, in) && tci_table_add(&listed, in);
            }
        }
    }
    tci_table_free(&listed);
    return ok;
}

static void tci_scope_drop_previous(tci_ctx *ctx, const tci_keep *k)
{
    tc_tensor t = {ctx->handle, k->previous_id, k->previous_generation};
    tci_node *old = k->has_previous ? tci_handle_node(t) : NULL;
    const tci_keep *known = old ? tci_scope_find_keep(ctx, old) : NULL;
    if (known && !known->retained && !old->n_users) {
        tci_scope_drop_node(ctx, old);
    }
}

/* The list entry at `at` as a value that was kept outside of the scope of `from`, or NULL. */
static tci_keep *tci_scope_used(const tci_ctx *ctx, const tci_scope_uses *list, size_t at,
                                const tci_node *from)
{
    const tci_node *used = list->items[at];
    return used->scope < from->scope ? tci_scope_find_keep(ctx, used) : NULL;
}

/* Whether k replaces u rather than v, both of which its computation used. */
static bool tci_scope_prefers(const tci_keep *k, const tci_keep *u, const tci_keep *v)
{
    bool u_turn = u->order == k->order, v_turn = v->order == k->order;
    if (u->is_replaced != v->is_replaced) {
        return v->is_replaced;
    }
    return u_turn != v_turn ? u_turn : u->serial > v->serial;
}

static void tci_scope_link(const tci_ctx *ctx, const tci_scope_uses *list, const tci_node *from,
                           tci_keep *k)
{
    tci_keep *best = NULL;
    for (size_t i = 0; i < list->n; i++) {
        tci_keep *u = tci_scope_used(ctx, list, i, from);
        if (u && (!best || tci_scope_prefers(k, u, best))) {
            best = u;
            k->previous_id = list->items[i]->id;
            k->previous_generation = list->items[i]->generation;
        }
    }
    if (best) {
        best->is_replaced = k->has_previous = true;
    }
}

/* Links the kept value to the one of the same place that it replaces, and drops what those that
 * `from` used had replaced. */
static void tci_scope_replace(tci_ctx *ctx, const tci_node *kept, tci_node *from, tc_site site)
{
    tci_graph *g = &ctx->graph;
    tci_scope_uses list = {NULL, 0, 0};
    bool complete = tci_scope_list_needs(ctx, from, site, &list);
    tci_keep *k = complete ? tci_scope_make_keep(ctx, kept) : NULL;
    if (k) {
        k->site = site;
        tci_scope_link(ctx, &list, from, k);
    }
    for (size_t i = 0; k && i < list.n; i++) {
        /* Whatever is listed has users, so no item of the list is dropped here. */
        const tci_keep *u = tci_scope_used(ctx, &list, i, from);
        if (u && !ctx->n_lent) {
            tci_scope_drop_previous(ctx, u);
        }
    }
    tci_graph_resize(g, list.items, list.cap * sizeof(*list.items), 0);
    g->error = TC_OK;
}

/* A DATA node in the scope outside that shares n's value. */
static tci_node *tci_scope_move_out(tci_ctx *ctx, const tci_node *n)
{
    tci_graph *g = &ctx->graph;
    size_t bytes = n->strides ? (size_t)n->rank * sizeof(*n->strides) : 0;
    tci_dim *strides = bytes ? tci_graph_resize(g, NULL, 0, bytes) : NULL;
    if (bytes && !strides) {
        return NULL;
    }
    g->n_scopes--; /* new nodes belong to the innermost scope */
    tci_node *kept = tci_graph_node(g, TCI_OP_DATA, (tc_dtype)n->dtype, n->rank, n->shape, 0, NULL,
                                    0, NULL);
    g->n_scopes++;
    if (!kept) {
        tci_graph_resize(g, strides, bytes, 0);
        return NULL;
    }
    if (bytes) {
        memcpy(strides, n->strides, bytes);
    }
    tci_storage_retain(n->storage);
    kept->storage = n->storage;
    kept->stateful = n->storage->param != NULL;
    kept->strides = strides;
    kept->offset = n->offset;
    return kept;
}

/* The return value of a failed tc_keep: the frame's poison, in the scope of a kept value. */
static tc_tensor tci_scope_keep_failure(tci_frame *f)
{
    return tci_handle_move_poison(tci_frame_end(f, NULL));
}

TC_API tc_tensor tc_keep_at(tc_tensor t, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_keep", here);
    tci_frame_use(&f, t);
    tci_node *n = tci_frame_node(&f, t, "the tensor");
    if (!n) {
        return tci_scope_keep_failure(&f);
    }
    if (tci_lazy_value(&f, t, &n)) {
        f.bad = tci_handle_keep_last(f.ctx);
        f.failed = true;
        return tci_scope_keep_failure(&f);
    }
    int innermost = f.ctx->graph.n_scopes - 1;
    if ((int)n->scope < innermost || !innermost) {
        tci_frame_leave(&f);
        return t; /* already outside, or there is no outside */
    }
    if (!n->storage) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "an assign has no value to keep");
        return tci_scope_keep_failure(&f);
    }
    tci_node *kept = tci_scope_move_out(f.ctx, n);
    if (!kept) {
        return tci_scope_keep_failure(&f);
    }
    tci_scope_replace(f.ctx, kept, n, here);
    return tci_frame_end(&f, kept);
}

TC_API tc_tensor tc_retain(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    tci_keep *k = n ? tci_scope_find_keep(tci_ctx_of(t.ctx), n) : NULL;
    if (k) {
        k->retained = true;
    }
    return t;
}
