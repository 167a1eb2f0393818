/* run/specializations.c - lock-free lookup of specializations by signature (run/specializations.h).
 *
 * In: signatures. Out: the specialization that serves each.
 *
 * Design: the table and its lists never change once published; a writer publishes new ones instead.
 * Replaced or removed memory is freed after a grace period, as in sleepable RCU (Linux, SRCU): each
 * reader counts itself in one of several lanes, on one of two sides. A writer waits until the other
 * side is empty, directs new readers to it, and waits until the previous side is empty too: every
 * reader that could have seen the old memory was counted on one of the two. Writers never block for
 * that; each later call on the owner checks again.
 *
 * Memory order: a reader counts itself, then loads the table; a writer stores the table, then loads
 * the counts. All four are sequentially consistent, so either the writer sees the reader or the
 * reader sees the new table. */
#include "specializations.h"

#include <string.h>

#include "../base/alloc.h"
#include "hot_sizes.h"

/* ---- readers ---- */

static uint32_t tci_variants_lane(void)
{
    return (uint32_t)tci_os_thread_id() % TCI_VARIANTS_LANES;
}

TCI_FN uint32_t tci_variants_enter(tci_variants *v)
{
    uint32_t side = __atomic_load_n(&v->side, __ATOMIC_RELAXED) & 1, lane = tci_variants_lane();
    __atomic_add_fetch(&v->lanes[lane].n[side], 1, __ATOMIC_SEQ_CST);
    return lane * 2 + side;
}

TCI_FN void tci_variants_leave(tci_variants *v, uint32_t ticket)
{
    __atomic_sub_fetch(&v->lanes[ticket / 2].n[ticket % 2], 1, __ATOMIC_RELEASE);
}

static uint64_t tci_variants_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t tci_variants_hash(const tci_signature *sig)
{
    int n_statics = sig->statics ? sig->statics->n : 0;
    uint64_t h = (uint64_t)n_statics;
    for (int i = 0; i < n_statics; i++) {
        h = tci_variants_mix(h, (uint64_t)sig->statics->items[i]);
    }
    for (int i = 0; i < sig->inputs->n; i++) {
        const tc_buf *b = &sig->inputs->items[i];
        h = tci_variants_mix(h, (uint64_t)tci_variants_rank(b) << 8 | (uint8_t)b->dtype);
    }
    return h;
}

static bool tci_variants_is_kind(const tci_variant_kind *k, uint64_t hash, const tci_signature *sig)
{
    int n_statics = sig->statics ? sig->statics->n : 0;
    if (k->hash != hash || k->n_statics != n_statics || k->n_inputs != sig->inputs->n) {
        return false;
    }
    for (int i = 0; i < n_statics; i++) {
        if (k->statics[i] != sig->statics->items[i]) {
            return false;
        }
    }
    for (int i = 0; i < k->n_inputs; i++) {
        const tc_buf *b = &sig->inputs->items[i];
        if (k->dtypes[i] != b->dtype || k->ranks[i] != tci_variants_rank(b)) {
            return false;
        }
    }
    return true;
}

static tci_variant_list *tci_variants_list(const tci_variant_table *t, const tci_signature *sig,
                                           uint64_t hash)
{
    uint32_t at = (uint32_t)hash & (t ? t->mask : 0);
    while (t && t->slots[at]) {
        if (tci_variants_is_kind(t->slots[at]->kind, hash, sig)) {
            return t->slots[at];
        }
        at = (at + 1) & t->mask;
    }
    return NULL;
}

static bool tci_variants_serves(const tci_variant *x, const tc_bufs *inputs)
{
    const tci_variant_guard *g = x->guards;
    for (int i = 0; i < inputs->n; i++) {
        const int64_t *sizes = tci_variants_sizes(&inputs->items[i]);
        for (int a = 0; a < x->kind->ranks[i]; a++, g++) {
            if (sizes[a] < g->least || sizes[a] > g->most) {
                return false;
            }
            if (g->same_input >= 0 &&
                sizes[a] != tci_variants_sizes(&inputs->items[g->same_input])[g->same_axis]) {
                return false;
            }
        }
    }
    return true;
}

TCI_FN tci_variant *tci_variants_find(tci_variants *v, const tci_signature *sig)
{
    const tci_variant_table *t = __atomic_load_n(&v->table, __ATOMIC_SEQ_CST);
    const tci_variant_list *l = tci_variants_list(t, sig, tci_variants_hash(sig));
    for (int i = 0; l && i < l->n; i++) {
        if (tci_variants_serves(l->items[i], sig->inputs)) {
            return l->items[i];
        }
    }
    return NULL;
}

TCI_FN tci_variant_list *tci_variants_next(const tci_variant_table *t, uint32_t *at)
{
    while (t && *at <= t->mask) {
        tci_variant_list *l = t->slots[(*at)++];
        if (l) {
            return l;
        }
    }
    return NULL;
}

TCI_FN int tci_variants_all(const tci_variants *v, tci_variant **list, int room)
{
    const tci_variant_table *t = __atomic_load_n(&v->table, __ATOMIC_SEQ_CST);
    int n = 0;
    uint32_t slot = 0;
    for (const tci_variant_list *l; (l = tci_variants_next(t, &slot));) {
        for (int i = 0; i < l->n; i++, n++) {
            int at = n < room ? n : room; /* insertion by id; the newest falls off the end */
            while (at > 0 && list[at - 1]->id > l->items[i]->id) {
                if (at < room) {
                    list[at] = list[at - 1];
                }
                at--;
            }
            if (at < room) {
                list[at] = l->items[i];
            }
        }
    }
    return n;
}

TCI_FN bool tci_variants_hit(tci_variant *x)
{
    uint64_t n = __atomic_add_fetch(&x->lanes[tci_variants_lane()].hits, 1, __ATOMIC_RELAXED);
    return x->symbolic && n % TCI_VARIANTS_SAMPLE == 0;
}

TCI_FN int64_t tci_variants_hits(const tci_variant *x)
{
    uint64_t n = 0;
    for (int i = 0; i < TCI_VARIANTS_LANES; i++) {
        n += __atomic_load_n(&x->lanes[i].hits, __ATOMIC_RELAXED);
    }
    return (int64_t)n;
}

/* ---- grace periods ---- */

static void tci_variants_retire(tci_variants *v, tci_retired *r)
{
    if (r) {
        r->next = v->fresh;
        v->fresh = r;
        __atomic_store_n(&v->is_pending, 1, __ATOMIC_RELAXED);
    }
}

static bool tci_variants_side_is_empty(const tci_variants *v, uint32_t side)
{
    for (int i = 0; i < TCI_VARIANTS_LANES; i++) {
        if (__atomic_load_n(&v->lanes[i].n[side], __ATOMIC_SEQ_CST)) {
            return false;
        }
    }
    return true;
}

static void tci_variants_free_retired(tci_retired **list)
{
    while (*list) {
        tci_retired *r = *list;
        *list = r->next;
        r->free(r);
    }
}

TCI_FN void tci_variants_collect(tci_variants *v)
{
    while (v->waiting || v->fresh) {
        if (!v->waiting) {
            v->waiting = v->fresh;
            v->fresh = NULL;
            v->flipped = false;
        }
        uint32_t side = v->side & 1;
        if (!tci_variants_side_is_empty(v, side ^ 1)) {
            return;
        }
        if (v->flipped) {
            tci_variants_free_retired(&v->waiting);
        } else {
            __atomic_store_n(&v->side, side ^ 1, __ATOMIC_SEQ_CST);
            v->flipped = true;
        }
    }
    __atomic_store_n(&v->is_pending, 0, __ATOMIC_RELAXED);
}

/* ---- writers ---- */

static void tci_variants_free_variant(tci_retired *r)
{
    tci_variant *x = (tci_variant *)(void *)r;
    tci_program_release(x->program);
    tci_heap_free_aligned(x->padded);
    tci_heap_free_aligned(x);
}

static void tci_variants_free_block(tci_retired *r)
{
    tci_heap_free(r);
}

static tci_variant_list *tci_variants_make_list(tci_variant_kind *kind, int n)
{
    tci_variant_list *l = tci_heap_get(sizeof(*l) + (size_t)n * sizeof(l->items[0]));
    if (l) {
        l->retired.free = tci_variants_free_block;
        l->kind = kind;
        l->n = n;
    }
    return l;
}

static void tci_variants_place(tci_variant_table *t, tci_variant_list *l)
{
    uint32_t at = (uint32_t)l->kind->hash & t->mask;
    while (t->slots[at] && t->slots[at]->kind != l->kind) {
        at = (at + 1) & t->mask;
    }
    t->slots[at] = l;
}

/* The table with these lists in place of those of their kinds, not published. NULL: no memory. */
static tci_variant_table *tci_variants_with(const tci_variants *v, tci_variant_list *const *lists,
                                            int n)
{
    uint32_t n_slots = 8;
    while (n_slots < 2 * ((uint32_t)v->n_kinds + 1)) {
        n_slots *= 2;
    }
    tci_variant_table *t = tci_heap_get(sizeof(*t) + n_slots * sizeof(t->slots[0]));
    if (t) {
        t->retired.free = tci_variants_free_block;
        t->mask = n_slots - 1;
        for (uint32_t i = 0; v->table && i <= v->table->mask; i++) {
            if (v->table->slots[i]) {
                tci_variants_place(t, v->table->slots[i]);
            }
        }
        for (int i = 0; i < n; i++) {
            tci_variants_place(t, lists[i]);
        }
    }
    return t;
}

static void tci_variants_publish(tci_variants *v, tci_variant_table *t)
{
    tci_variant_table *old = v->table;
    __atomic_store_n(&v->table, t, __ATOMIC_SEQ_CST);
    tci_variants_retire(v, old ? &old->retired : NULL);
}

static tci_variant_kind *tci_variants_make_kind(const tci_signature *sig, uint64_t hash)
{
    int n_statics = sig->statics ? sig->statics->n : 0, n_inputs = sig->inputs->n, n_axes = 0;
    for (int i = 0; i < n_inputs; i++) {
        n_axes += tci_variants_rank(&sig->inputs->items[i]);
    }
    size_t words = (size_t)n_statics + 2 * (size_t)n_axes;
    size_t ints = (size_t)n_inputs + (size_t)n_axes;
    size_t bytes = words * sizeof(int64_t) + ints * sizeof(int32_t) + (size_t)n_inputs;
    tci_variant_kind *k = tci_heap_get(sizeof(*k) + bytes);
    if (!k) {
        return NULL;
    }
    k->hash = hash;
    k->n_statics = n_statics;
    k->n_inputs = n_inputs;
    k->n_axes = n_axes;
    k->statics = (int64_t *)(void *)(k + 1);
    k->least = k->statics + n_statics;
    k->most = k->least + n_axes;
    k->ranks = (int32_t *)(void *)(k->most + n_axes);
    k->like = k->ranks + n_inputs;
    k->dtypes = (int8_t *)(void *)(k->like + n_axes);
    for (int i = 0; i < n_statics; i++) {
        k->statics[i] = sig->statics->items[i];
    }
    for (int i = 0; i < n_inputs; i++) {
        k->dtypes[i] = (int8_t)sig->inputs->items[i].dtype;
        k->ranks[i] = tci_variants_rank(&sig->inputs->items[i]);
    }
    for (int a = 0; a < n_axes; a++) {
        k->least[a] = INT64_MAX; /* nothing was asked for yet; all may be equal */
    }
    return k;
}

TCI_FN tci_variant_list *tci_variants_kind(tci_variants *v, const tci_signature *sig)
{
    uint64_t hash = tci_variants_hash(sig);
    tci_variant_list *l = tci_variants_list(v->table, sig, hash);
    if (l) {
        return l;
    }
    tci_variant_kind *k = tci_variants_make_kind(sig, hash);
    l = k ? tci_variants_make_list(k, 0) : NULL;
    tci_variant_table *t = l ? tci_variants_with(v, &l, 1) : NULL;
    if (!t) {
        tci_heap_free(l);
        tci_heap_free(k);
        return NULL;
    }
    v->n_kinds++;
    tci_variants_publish(v, t);
    return l;
}

TCI_FN tci_variant *tci_variants_make(tci_variant_kind *kind)
{
    size_t bytes = sizeof(tci_variant) + (size_t)kind->n_axes * sizeof(tci_variant_guard);
    tci_variant *x = tci_heap_get_aligned(bytes);
    if (x) {
        memset(x, 0, bytes);
        x->retired.free = tci_variants_free_variant;
        x->kind = kind;
        x->guards = (tci_variant_guard *)(void *)(x + 1);
    }
    return x;
}

TCI_FN void tci_variants_free_one(tci_variant *x)
{
    if (x) {
        tci_variants_free_variant(&x->retired);
    }
}

static tci_variant_list *tci_variants_of_kind(const tci_variants *v, const tci_variant_kind *kind)
{
    uint32_t at = (uint32_t)kind->hash & v->table->mask;
    while (v->table->slots[at]->kind != kind) {
        at = (at + 1) & v->table->mask;
    }
    return v->table->slots[at];
}

TCI_FN bool tci_variants_add(tci_variants *v, tci_variant *x)
{
    tci_variant_list *old = tci_variants_of_kind(v, x->kind);
    tci_variant_list *l = tci_variants_make_list(x->kind, old->n + 1);
    tci_variant_table *t = l ? tci_variants_with(v, &l, 1) : NULL;
    if (!t) {
        tci_heap_free(l);
        return false;
    }
    int n = 0;
    for (int i = 0; i < old->n; i++) {
        if (!x->symbolic && n == i && old->items[i]->symbolic) {
            l->items[n++] = x;
        }
        l->items[n++] = old->items[i];
    }
    if (n == old->n) {
        l->items[n] = x;
    }
    x->id = v->next_id++;
    tci_variants_publish(v, t);
    tci_variants_retire(v, &old->retired);
    tci_variants_collect(v);
    return true;
}

static bool tci_variants_is_among(const tci_variant *x, const tci_variant *const *drops, int n)
{
    for (int i = 0; i < n; i++) {
        if (drops[i] == x) {
            return true;
        }
    }
    return false;
}

/* The list without those; NULL: no memory. */
static tci_variant_list *tci_variants_less(const tci_variant_list *old,
                                           const tci_variant *const *drops, int n)
{
    tci_variant_list *l = tci_variants_make_list(old->kind, old->n);
    if (l) {
        l->n = 0;
        for (int i = 0; i < old->n; i++) {
            if (!tci_variants_is_among(old->items[i], drops, n)) {
                l->items[l->n++] = old->items[i];
            }
        }
    }
    return l;
}

/* Each list of `t` becomes one without those; the lists before go where `old` points. False: no
 * memory. */
static bool tci_variants_shorten(tci_variant_table *t, const tci_variant *const *drops, int n,
                                 tci_retired **old)
{
    for (uint32_t i = 0; i <= t->mask; i++) {
        tci_variant_list *before = t->slots[i];
        if (!before) {
            continue;
        }
        tci_variant_list *l = tci_variants_less(before, drops, n);
        if (!l) {
            return false;
        }
        t->slots[i] = l;
        before->retired.next = *old; /* readers do not look at it */
        *old = &before->retired;
    }
    return true;
}

TCI_FN bool tci_variants_remove(tci_variants *v, const tci_variant *const *drops, int n)
{
    if (!v->table) {
        return true;
    }
    tci_variant_table *t = tci_variants_with(v, NULL, 0);
    tci_retired *old = NULL;
    bool done = t && tci_variants_shorten(t, drops, n, &old);
    if (!done) {
        for (uint32_t i = 0; t && i <= t->mask; i++) {
            bool is_new = t->slots[i] && tci_variants_of_kind(v, t->slots[i]->kind) != t->slots[i];
            if (is_new) {
                tci_heap_free(t->slots[i]);
            }
        }
        tci_heap_free(t);
        return false;
    }
    tci_variants_publish(v, t);
    while (old) {
        tci_retired *next = old->next;
        tci_variants_retire(v, old);
        old = next;
    }
    for (int i = 0; i < n; i++) {
        tci_variants_retire(v, &((tci_variant *)(uintptr_t)drops[i])->retired);
    }
    tci_variants_collect(v);
    return true;
}

TCI_FN void tci_variants_free(tci_variants *v)
{
    tci_variants_free_retired(&v->waiting);
    tci_variants_free_retired(&v->fresh);
    for (uint32_t s = 0; v->table && s <= v->table->mask; s++) {
        tci_variant_list *l = v->table->slots[s];
        for (int i = 0; l && i < l->n; i++) {
            tci_variants_free_one(l->items[i]);
        }
        if (l && l->kind->hot) {
            tci_variants_free_one(l->kind->hot->candidate);
            tci_heap_free(l->kind->hot);
        }
        if (l) {
            tci_heap_free(l->kind);
        }
        tci_heap_free(l);
    }
    tci_heap_free(v->table);
    v->table = NULL;
}
