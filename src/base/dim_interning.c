/* base/dim_interning.c - hash-consing table of symbolic sizes.
 *
 * In: sums of terms, and atoms. Out: their ids; the expression with an id. Tables are lists of
 * chunks that never move. Readers take no lock, because an index only becomes visible after its
 * entry was written (through the lock, or through whatever passed the index on). Entries are looked
 * up in hash tables of indices, which only the holder of the lock touches. */
#include "dim_expr.h"

#ifdef TC_DYNAMIC_SHAPES

#include <string.h>

#include "hash.h"
#include "os.h"

static tci_mutex tci_dim_lock = TCI_MUTEX_INIT;
static tci_dim_table tci_dim_atoms, tci_dim_exprs;
static int tci_dim_highest; /* index ever given */

TCI_FN void tci_dim_take_lock(void)
{
    tci_os_keep_over_fork(&tci_dim_lock, NULL);
    pthread_mutex_lock(&tci_dim_lock);
}

TCI_FN void tci_dim_give_lock(void)
{
    pthread_mutex_unlock(&tci_dim_lock);
}

TCI_FN int tci_dim_highest_index(void)
{
    return __atomic_load_n(&tci_dim_highest, __ATOMIC_RELAXED);
}

/* ---- chunk i holds 256 << i entries ---- */

static void *tci_dim_slot(void **chunks, size_t item_bytes, int index, bool make)
{
    int chunk = 0, first = 0, n = TCI_DIM_FIRST;
    while (index >= first + n) {
        first += n;
        n *= 2;
        chunk++;
    }
    if (chunk >= TCI_DIM_CHUNKS) {
        return NULL;
    }
    if (!chunks[chunk] && make) {
        chunks[chunk] = tci_heap_get(item_bytes * (size_t)n);
    }
    return chunks[chunk] ? (char *)chunks[chunk] + item_bytes * (size_t)(index - first) : NULL;
}

TCI_FN const tci_dim_atom *tci_dim_atom_at(int index)
{
    return tci_dim_slot(tci_dim_atoms.chunks, sizeof(tci_dim_atom), index, false);
}

static const tci_dim_expr *tci_dim_expr_at(int index)
{
    return tci_dim_slot(tci_dim_exprs.chunks, sizeof(tci_dim_expr), index, false);
}

static uint32_t tci_dim_hash_at(const tci_dim_table *t, int index)
{
    return t == &tci_dim_atoms ? tci_dim_atom_at(index)->hash : tci_dim_expr_at(index)->hash;
}

/* The slot of the entry of this hash that `same` says yes to, or the free one where it belongs. */
static int32_t *tci_dim_find(const tci_dim_table *t, uint32_t hash, const void *want,
                             bool (*same)(int index, const void *want))
{
    uint32_t mask = (uint32_t)t->n_slots - 1, at = hash & mask;
    while (t->slots[at] && !(tci_dim_hash_at(t, t->slots[at] - 1) == hash && want &&
                             same(t->slots[at] - 1, want))) {
        at = (at + 1) & mask;
    }
    return &t->slots[at];
}

/* Room for one more entry; false: out of memory. */
static bool tci_dim_grow(tci_dim_table *t)
{
    if (2 * (t->n + 1) < t->n_slots) {
        return true;
    }
    int n_slots = t->n_slots ? 2 * t->n_slots : TCI_DIM_FIRST;
    int32_t *fresh = tci_heap_get(sizeof(*fresh) * (size_t)n_slots);
    if (!fresh) {
        return false;
    }
    memset(fresh, 0, sizeof(*fresh) * (size_t)n_slots);
    int32_t *old = t->slots;
    int n_old = t->n_slots;
    t->slots = fresh;
    t->n_slots = n_slots;
    for (int i = 0; i < n_old; i++) {
        if (old[i]) {
            *tci_dim_find(t, tci_dim_hash_at(t, old[i] - 1), NULL, NULL) = old[i];
        }
    }
    tci_heap_free(old);
    return true;
}

/* The tag, 24 bits of index, 24 bits of the hash. Expression 0 stands for the faults. */
static tci_dim tci_dim_number(int index, uint32_t hash)
{
    return TCI_DIM_TAG | (int64_t)index << TCI_DIM_CHECK_BITS | (hash & 0xffffff);
}

TCI_FN const tci_dim_expr *tci_dim_expr_of(tci_dim d)
{
    int64_t rest = d ^ TCI_DIM_TAG, index = rest >> TCI_DIM_CHECK_BITS;
    if (index <= 0 || index >> TCI_DIM_INDEX_BITS) {
        return NULL;
    }
    const tci_dim_expr *e = tci_dim_expr_at((int)index);
    return e && e->terms && (e->hash & 0xffffff) == (rest & 0xffffff) ? e : NULL;
}

TCI_FN bool tci_dim_is_valid(tci_dim d)
{
    return tci_dim_is_known(d) || tci_dim_expr_of(d);
}

/* ---- order ---- */

static int tci_dim_sign(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

TCI_FN int tci_dim_atom_compare(int32_t x, int32_t y)
{
    if (x == y) {
        return 0;
    }
    const tci_dim_atom *a = tci_dim_atom_at(x), *b = tci_dim_atom_at(y);
    int order = tci_dim_sign(a->kind, b->kind);
    if (order || a->kind != TCI_DIM_SYMBOL) {
        TCI_DIM_COUNT();
        order = order ? order : tci_dim_sign(a->levels, b->levels); /* soon, in most cases */
        order = order ? order : tci_dim_compare(a->a, b->a);
        return order ? order : tci_dim_compare(a->b, b->b);
    }
    order = tci_dim_sign(a->ordinal, b->ordinal);
    order = order ? order : strcmp(a->name, b->name);
    order = order ? order : tci_dim_sign(a->least, b->least);
    return order ? order : tci_dim_sign(a->most, b->most);
}

TCI_FN int tci_dim_term_compare(const tci_dim_term *x, const tci_dim_term *y)
{
    int order = tci_dim_sign(y->n, x->n);
    for (int i = 0; !order && i < x->n; i++) {
        order = tci_dim_atom_compare(x->atoms[i], y->atoms[i]);
    }
    return order;
}

TCI_FN int tci_dim_compare(tci_dim a, tci_dim b)
{
    const tci_dim_expr *x = tci_dim_is_known(a) ? NULL : tci_dim_expr_of(a);
    const tci_dim_expr *y = tci_dim_is_known(b) ? NULL : tci_dim_expr_of(b);
    if (a == b) {
        return 0;
    }
    if (!x || !y) {
        return x ? 1 : y ? -1 : tci_dim_sign(a, b);
    }
    int order = tci_dim_sign(x->n, y->n);
    for (int i = 0; !order && i < x->n; i++) {
        order = tci_dim_term_compare(&x->terms[i], &y->terms[i]);
        order = order ? order : tci_dim_sign(x->terms[i].coef, y->terms[i].coef);
    }
    return order;
}

/* ---- entries ---- */

static uint32_t tci_dim_hash(const tci_dim_sum *s)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < s->n; i++) {
        h = tci_hash_mix(h, (uint64_t)s->terms[i].coef);
        for (int a = 0; a < s->terms[i].n; a++) {
            h = tci_hash_mix(h, tci_dim_atom_at(s->terms[i].atoms[a])->hash);
        }
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool tci_dim_same_terms(int index, const void *want)
{
    const tci_dim_expr *e = tci_dim_expr_at(index);
    const tci_dim_sum *s = want;
    bool same = e->n == s->n;
    for (int i = 0; same && i < s->n; i++) {
        same = tci_dim_term_compare(&e->terms[i], &s->terms[i]) == 0 &&
               e->terms[i].coef == s->terms[i].coef;
    }
    return same;
}

static _Thread_local bool tci_dim_is_lost;

TCI_FN tci_dim tci_dim_lose(void)
{
    tci_dim_is_lost = true;
    return TCI_DIM_OF_FAULT(MEMORY);
}

TCI_FN bool tci_dim_take_lost(void)
{
    bool lost = tci_dim_is_lost;
    tci_dim_is_lost = false;
    return lost;
}

TCI_FN tci_dim tci_dim_intern(const tci_dim_sum *s)
{
    uint32_t hash = tci_dim_hash(s);
    if (!tci_dim_grow(&tci_dim_exprs)) {
        return tci_dim_lose();
    }
    int32_t *slot = tci_dim_find(&tci_dim_exprs, hash, s, tci_dim_same_terms);
    if (*slot) {
        return tci_dim_number(*slot - 1, hash);
    }
    int index = TCI_MAX(tci_dim_exprs.n, 1);
    bool fits = index < 1 << TCI_DIM_INDEX_BITS;
    tci_dim_expr *e = fits ? tci_dim_slot(tci_dim_exprs.chunks, sizeof(*e), index, true) : NULL;
    tci_dim_term *terms = e ? tci_heap_get(sizeof(*terms) * (size_t)s->n) : NULL;
    if (!terms) {
        return tci_dim_lose();
    }
    memcpy(terms, s->terms, sizeof(*terms) * (size_t)s->n);
    tci_dim_range r = tci_dim_range_of_terms(terms, s->n);
    tci_dim_expr fresh = {s->n, 0, terms, hash, r.least, r.most, r.hint};
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < terms[i].n; k++) {
            fresh.levels = TCI_MAX(fresh.levels, tci_dim_atom_at(terms[i].atoms[k])->levels);
        }
    }
    *e = fresh;
    *slot = index + 1;
    tci_dim_exprs.n = index + 1;
    if (index > tci_dim_highest) {
        __atomic_store_n(&tci_dim_highest, index, __ATOMIC_RELAXED);
    }
    return tci_dim_number(index, hash);
}

static bool tci_dim_same_atom(int index, const void *want)
{
    const tci_dim_atom *x = tci_dim_atom_at(index), *y = want;
    return x->kind == y->kind && x->ordinal == y->ordinal && x->a == y->a && x->b == y->b &&
           strcmp(x->name, y->name) == 0 &&
           (x->kind != TCI_DIM_SYMBOL || (x->least == y->least && x->most == y->most));
}

static uint32_t tci_dim_hash_atom(const tci_dim_atom *a)
{
    uint64_t h = tci_hash_mix(a->kind, (uint64_t)(int64_t)a->ordinal);
    h = tci_hash_mix(tci_hash_mix(h, (uint64_t)a->a), (uint64_t)a->b);
    h = tci_hash_mix(tci_hash_mix(h, (uint64_t)a->least), (uint64_t)a->most);
    for (const char *c = a->name; *c; c++) {
        h = tci_hash_mix(h, (uint8_t)*c);
    }
    return (uint32_t)(h ^ h >> 32);
}

TCI_FN int tci_dim_atom_intern(tci_dim_atom atom)
{
    atom.hash = tci_dim_hash_atom(&atom);
    if (!tci_dim_grow(&tci_dim_atoms)) {
        return -1;
    }
    int32_t *slot = tci_dim_find(&tci_dim_atoms, atom.hash, &atom, tci_dim_same_atom);
    if (*slot) {
        return *slot - 1;
    }
    tci_dim_atom *a = tci_dim_slot(tci_dim_atoms.chunks, sizeof(*a), tci_dim_atoms.n, true);
    size_t n = strlen(atom.name) + 1;
    char *name = a ? tci_heap_get(n) : NULL;
    if (!name) {
        return -1;
    }
    memcpy(name, atom.name, n);
    atom.name = name;
    *a = atom;
    *slot = ++tci_dim_atoms.n;
    return tci_dim_atoms.n - 1;
}

/* ---- the end ---- */

TCI_FN void tci_dim_free_all(void)
{
    tci_dim_take_lock();
    for (int i = 1; i < tci_dim_exprs.n; i++) {
        tci_heap_free(tci_dim_expr_at(i)->terms);
    }
    for (int i = 0; i < tci_dim_atoms.n; i++) {
        tci_heap_free(tci_dim_atom_at(i)->name);
    }
    tci_dim_table *tables[2] = {&tci_dim_atoms, &tci_dim_exprs};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < TCI_DIM_CHUNKS; i++) {
            tci_heap_free(tables[k]->chunks[i]);
        }
        tci_heap_free(tables[k]->slots);
        memset(tables[k], 0, sizeof(*tables[k]));
    }
    tci_dim_hide_all();
    pthread_mutex_unlock(&tci_dim_lock);
}

#endif
