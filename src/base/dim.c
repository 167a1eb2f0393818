/* base/dim.c - see base/dim.h: sizes as canonical expressions over symbols.
 *
 * In: sizes, known or symbolic. Out: sizes, interned. Data structures:
 *   atom   a symbol, or floor(a / b), min(a, b), max(a, b) of two expressions, one of them unknown
 *   term   coefficient * product of atoms (ascending, repeated for powers)
 *   expression  a sum of terms, highest first, the constant last; bounds of its value and a hint
 * Canonical: no two terms with the same atoms, no coefficient 0, and never a plain number or an
 * expression that is known. The order of atoms compares what they are, never where they lie, so
 * the text of an expression is the same in every process.
 *
 * Tables are lists of chunks that never move: readers take no lock, as an index only reaches them
 * after the entry was written (through the lock or whatever handed the number over). Entries are
 * found again by hash tables of indices, which only the lock's holder touches. */
#include "dim.h"

TCI_FN tc_status tci_dim_fault_status(int fault)
{
    static const uint8_t statuses[] = {
#define TCI_ROW(id, status, text) status,
        TCI_DIM_FAULTS(TCI_ROW)
#undef TCI_ROW
    };
    return (tc_status)statuses[fault];
}

TCI_FN const char *tci_dim_fault_text(int fault)
{
    static const char *const texts[] = {
#define TCI_ROW(id, status, text) text,
        TCI_DIM_FAULTS(TCI_ROW)
#undef TCI_ROW
    };
    return texts[fault];
}

#ifdef TC_DYNAMIC_SHAPES

#include <string.h>

#include "hash.h"
#include "os.h"

enum { TCI_DIM_CHUNKS = 22, TCI_DIM_FIRST = 256, TCI_DIM_TERMS = 64, TCI_DIM_ATOMS = 16 };
enum { TCI_DIM_DEPTH = 3 }; /* bounds looked at inside of bounds, for one comparison */
enum { TCI_DIM_INDEX_BITS = 24, TCI_DIM_CHECK_BITS = 24 }; /* of a symbolic number, below its tag */

typedef enum tci_dim_kind { TCI_DIM_SYMBOL, TCI_DIM_DIV, TCI_DIM_MIN, TCI_DIM_MAX } tci_dim_kind;

typedef struct tci_dim_atom {
    uint8_t kind;
    int32_t ordinal;      /* SYMBOL: its number, -1 for one with a name */
    char *name;           /* SYMBOL: "" without one */
    tci_dim a, b;         /* the others */
    uint32_t hash;
    int64_t least, most, hint;
} tci_dim_atom;

typedef struct tci_dim_term {
    int64_t coef;
    int32_t n, atoms[TCI_DIM_ATOMS];
} tci_dim_term;

typedef struct tci_dim_expr {
    int32_t n;
    tci_dim_term *terms;
    uint32_t hash;
    int64_t least, most, hint;
} tci_dim_expr;

/* An expression being made; `bad` once it does not fit. */
typedef struct tci_dim_sum {
    int n;
    bool bad;
    tci_dim_term terms[TCI_DIM_TERMS];
} tci_dim_sum;

/* Entries and their hash table, open addressing; a slot holds an index + 1, or 0. */
typedef struct tci_dim_table {
    void *chunks[TCI_DIM_CHUNKS];
    int32_t *slots;
    int n, n_slots; /* n_slots: a power of two, above n */
} tci_dim_table;

static tci_mutex tci_dim_lock = TCI_MUTEX_INIT;
static tci_dim_table tci_dim_atoms, tci_dim_exprs;
static tci_dim tci_dim_shown[256]; /* those that users have: the first so many */
static int tci_dim_n_shown, tci_dim_highest; /* index ever given */

static void tci_dim_take_lock(void)
{
    tci_os_keep_over_fork(&tci_dim_lock, NULL);
    pthread_mutex_lock(&tci_dim_lock);
}

/* ---- tables: chunk i holds 256 << i entries ---- */

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

static const tci_dim_atom *tci_dim_atom_at(int index)
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

static const tci_dim_expr *tci_dim_expr_of(tci_dim d)
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

/* ---- what C arithmetic makes of them ---- */

/* It cannot be told for certain: n % 8 is a number like any other. What can: sums with numbers and
 * with each other, as multiples of the tag; quotients; and, of the symbolic sizes that users have,
 * differences, products and what is left of one in an int. How far from each of these still counts
 * is so little that a number which only happens to look so is one in 100,000 of all. */
enum { TCI_DIM_MULTIPLES = 16, TCI_DIM_QUOTIENTS = 4096, TCI_DIM_REAL_QUOTIENTS = 1024 };
static const uint64_t tci_dim_small = (uint64_t)1 << 20; /* below that nothing is suspected */

TCI_FN tci_dim tci_dim_show(tci_dim d)
{
    if (tci_dim_is_known(d) || !tci_dim_expr_of(d)) {
        return d;
    }
    tci_dim_take_lock();
    int at = 0, n = tci_dim_n_shown;
    while (at < n && tci_dim_shown[at] != d) {
        at++;
    }
    if (at == n && n < TCI_COUNT(tci_dim_shown)) {
        tci_dim_shown[at] = d;
        __atomic_store_n(&tci_dim_n_shown, n + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&tci_dim_lock);
    return d;
}

/* v in [first - slack, first + width + slack], modulo 2^64 */
static bool tci_dim_is_near(uint64_t v, uint64_t first, uint64_t width, uint64_t slack)
{
    return v - first + slack <= width + 2 * slack;
}

static bool tci_dim_is_of_shown(uint64_t v)
{
    int n = __atomic_load_n(&tci_dim_n_shown, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++) {
        uint64_t cut = (uint64_t)tci_dim_shown[i] & UINT32_MAX; /* as an int */
        if (tci_dim_is_near(v, cut, 0, 16) || tci_dim_is_near(v, cut - 1 - UINT32_MAX, 0, 16)) {
            return true;
        }
        for (int j = 0; j < n; j++) {
            uint64_t a = (uint64_t)tci_dim_shown[i], b = (uint64_t)tci_dim_shown[j];
            if ((i != j && tci_dim_is_near(v, a - b, 0, 16)) || tci_dim_is_near(v, a * b, 0, 16)) {
                return true;
            }
        }
    }
    return false;
}

TCI_FN bool tci_dim_is_stray(int64_t given)
{
    const uint64_t slack = (uint64_t)1 << 39, tag = (uint64_t)TCI_DIM_TAG;
    uint64_t v = (uint64_t)given, positive = given < 0 ? 0 - v : v;
    uint64_t highest = (uint64_t)__atomic_load_n(&tci_dim_highest, __ATOMIC_RELAXED);
    uint64_t width = (highest + 1) << TCI_DIM_CHECK_BITS;
    if (v - tag < TCI_DIM_FAULT_COUNT) {
        return true;
    }
    if (highest == 0 || positive < tci_dim_small ||
        (!tci_dim_is_known(given) && tci_dim_expr_of(given))) {
        return false;
    }
    for (uint64_t k = 1; k <= TCI_DIM_MULTIPLES; k++) {
        if (tci_dim_is_near(v, k * tag, k * width, slack) ||
            tci_dim_is_near(0 - v, k * tag, k * width, slack)) {
            return true;
        }
    }
    uint64_t k = positive > tag / TCI_DIM_QUOTIENTS ? (tag + positive / 2) / positive : 0;
    if (k >= 2 && tci_dim_is_near(positive, tag / k, width / k + 1, slack / k)) {
        return true;
    }
    return tci_dim_is_of_shown(v);
}

/* v or 1 / v is, as exactly as a float tells, a multiple or a part of one. */
TCI_FN bool tci_dim_is_stray_real(double v)
{
    double tag = (double)TCI_DIM_TAG, x = v < 0 ? -v : v;
    int highest = __atomic_load_n(&tci_dim_highest, __ATOMIC_RELAXED);
    if (highest == 0 || x == 0 || (x > 1e-10 && x < 1e10)) {
        return false;
    }
    x = x < 1 ? 1 / x : x;
    double width = 1 + 0x1p-22 + (double)(highest + 1) / (double)((int64_t)1 << 38);
    for (int k = 1; k <= TCI_DIM_REAL_QUOTIENTS; k++) {
        double part = tag / k;
        if ((x >= part * (1 - 0x1p-22) && x <= part * width) ||
            (k <= TCI_DIM_MULTIPLES && x >= tag * k * (1 - 0x1p-22) && x <= tag * k * width)) {
            return true;
        }
    }
    return false;
}

/* ---- order ---- */

static int tci_dim_compare(tci_dim a, tci_dim b);

static int tci_dim_sign(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int tci_dim_atom_compare(int32_t x, int32_t y)
{
    if (x == y) {
        return 0;
    }
    const tci_dim_atom *a = tci_dim_atom_at(x), *b = tci_dim_atom_at(y);
    int order = tci_dim_sign(a->kind, b->kind);
    if (order || a->kind != TCI_DIM_SYMBOL) {
        order = order ? order : tci_dim_compare(a->a, b->a);
        return order ? order : tci_dim_compare(a->b, b->b);
    }
    order = tci_dim_sign(a->ordinal, b->ordinal);
    order = order ? order : strcmp(a->name, b->name);
    order = order ? order : tci_dim_sign(a->least, b->least);
    return order ? order : tci_dim_sign(a->most, b->most);
}

/* More atoms first, so that the constant comes last. */
static int tci_dim_term_compare(const tci_dim_term *x, const tci_dim_term *y)
{
    int order = tci_dim_sign(y->n, x->n);
    for (int i = 0; !order && i < x->n; i++) {
        order = tci_dim_atom_compare(x->atoms[i], y->atoms[i]);
    }
    return order;
}

static int tci_dim_compare(tci_dim a, tci_dim b)
{
    const tci_dim_expr *x = tci_dim_is_known(a) ? NULL : tci_dim_expr_of(a);
    const tci_dim_expr *y = tci_dim_is_known(b) ? NULL : tci_dim_expr_of(b);
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

/* ---- bounds, saturated at +-2^61: there they say nothing ---- */

static const int64_t tci_dim_limit = (int64_t)1 << 61;

static int64_t tci_dim_clamp(int64_t v)
{
    return TCI_MIN(TCI_MAX(v, -tci_dim_limit), tci_dim_limit);
}

static int64_t tci_dim_plus(int64_t a, int64_t b)
{
    return tci_dim_clamp(tci_dim_clamp(a) + tci_dim_clamp(b));
}

static int64_t tci_dim_times(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    bool negative = (a < 0) != (b < 0);
    if (x && y > (uint64_t)tci_dim_limit / x) {
        return negative ? -tci_dim_limit : tci_dim_limit;
    }
    return negative ? -(int64_t)(x * y) : (int64_t)(x * y);
}

static int64_t tci_dim_quotient(int64_t a, int64_t b)
{
    if (b == 0) {
        return 0;
    }
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

typedef struct tci_dim_range { int64_t least, most, hint; } tci_dim_range;

static tci_dim_range tci_dim_range_of_term(const tci_dim_term *t)
{
    tci_dim_range r = {t->coef, t->coef, t->coef};
    for (int i = 0; i < t->n; i++) {
        const tci_dim_atom *a = tci_dim_atom_at(t->atoms[i]);
        int64_t ends[4] = {tci_dim_times(r.least, a->least), tci_dim_times(r.least, a->most),
                           tci_dim_times(r.most, a->least), tci_dim_times(r.most, a->most)};
        r.least = TCI_MIN(TCI_MIN(ends[0], ends[1]), TCI_MIN(ends[2], ends[3]));
        r.most = TCI_MAX(TCI_MAX(ends[0], ends[1]), TCI_MAX(ends[2], ends[3]));
        r.hint = tci_dim_times(r.hint, a->hint);
    }
    return r;
}

static tci_dim_range tci_dim_range_of_terms(const tci_dim_term *terms, int n)
{
    tci_dim_range all = {0, 0, 0};
    bool no_least = false, no_most = false;
    for (int i = 0; i < n; i++) {
        tci_dim_range r = tci_dim_range_of_term(&terms[i]);
        all.least = tci_dim_plus(all.least, r.least);
        all.most = tci_dim_plus(all.most, r.most);
        all.hint = tci_dim_plus(all.hint, r.hint);
        no_least = no_least || all.least <= -tci_dim_limit || r.least <= -tci_dim_limit;
        no_most = no_most || all.most >= tci_dim_limit || r.most >= tci_dim_limit;
    }
    all.least = no_least ? -tci_dim_limit : all.least;
    all.most = no_most ? tci_dim_limit : all.most;
    return all;
}

TCI_FN int64_t tci_dim_least_any(tci_dim d)
{
    const tci_dim_expr *e = tci_dim_expr_of(d);
    return e ? e->least : -tci_dim_limit;
}

TCI_FN int64_t tci_dim_most_any(tci_dim d)
{
    const tci_dim_expr *e = tci_dim_expr_of(d);
    return e ? e->most : tci_dim_limit;
}

TCI_FN int64_t tci_dim_hint_any(tci_dim d)
{
    const tci_dim_expr *e = tci_dim_expr_of(d);
    return e ? e->hint : 0;
}

/* ---- sums ---- */

/* Only the terms in use; from NULL: none. */
static void tci_dim_sum_copy(tci_dim_sum *to, const tci_dim_sum *from)
{
    to->n = from ? from->n : 0;
    to->bad = from && from->bad;
    if (from) {
        memcpy(to->terms, from->terms, sizeof(*to->terms) * (size_t)from->n);
    }
}

static void tci_dim_sum_add(tci_dim_sum *s, const tci_dim_term *t)
{
    int at = 0, order = 1;
    while (at < s->n && (order = tci_dim_term_compare(&s->terms[at], t)) < 0) {
        at++;
    }
    if (t->coef == 0 || s->bad) {
        return;
    }
    if (at < s->n && order == 0) {
        s->terms[at].coef = tci_dim_plus(s->terms[at].coef, t->coef);
        s->bad = s->terms[at].coef >= tci_dim_limit || s->terms[at].coef <= -tci_dim_limit;
        if (s->terms[at].coef == 0) {
            memmove(&s->terms[at], &s->terms[at + 1], sizeof(*t) * (size_t)(s->n - at - 1));
            s->n--;
        }
        return;
    }
    if (s->n == TCI_DIM_TERMS) {
        s->bad = true;
        return;
    }
    memmove(&s->terms[at + 1], &s->terms[at], sizeof(*t) * (size_t)(s->n - at));
    s->terms[at] = *t;
    s->n++;
}

/* Terms of a number or an expression; *n of them. */
static const tci_dim_term *tci_dim_terms(tci_dim d, tci_dim_term *known, int *n)
{
    *n = 1;
    if (tci_dim_is_known(d)) {
        memset(known, 0, sizeof(*known));
        known->coef = d;
        *n = d != 0;
        return known;
    }
    const tci_dim_expr *e = tci_dim_expr_of(d);
    *n = e ? e->n : -1;
    return e ? e->terms : NULL;
}

static tci_dim_term tci_dim_term_product(const tci_dim_term *x, const tci_dim_term *y, bool *bad)
{
    tci_dim_term r;
    memset(&r, 0, sizeof(r));
    r.coef = tci_dim_times(x->coef, y->coef);
    *bad = *bad || x->n + y->n > TCI_DIM_ATOMS || r.coef >= tci_dim_limit ||
           r.coef <= -tci_dim_limit;
    for (int i = 0, j = 0; !*bad && r.n < x->n + y->n;) {
        bool first = j == y->n ||
                     (i < x->n && tci_dim_atom_compare(x->atoms[i], y->atoms[j]) <= 0);
        r.atoms[r.n++] = first ? x->atoms[i++] : y->atoms[j++];
    }
    return r;
}

/* s += scale * d */
static void tci_dim_sum_take(tci_dim_sum *s, tci_dim d, const tci_dim_term *scale)
{
    int n;
    tci_dim_term known;
    const tci_dim_term *terms = tci_dim_terms(d, &known, &n);
    s->bad = s->bad || n < 0;
    for (int i = 0; i < n && !s->bad; i++) {
        tci_dim_term t = tci_dim_term_product(&terms[i], scale, &s->bad);
        tci_dim_sum_add(s, &t);
    }
}

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

/* With the lock held. */
static tci_dim tci_dim_intern(const tci_dim_sum *s)
{
    uint32_t hash = tci_dim_hash(s);
    if (!tci_dim_grow(&tci_dim_exprs)) {
        return TCI_DIM_OF_FAULT(MEMORY);
    }
    int32_t *slot = tci_dim_find(&tci_dim_exprs, hash, s, tci_dim_same_terms);
    if (*slot) {
        return tci_dim_number(*slot - 1, hash);
    }
    int index = TCI_MAX(tci_dim_exprs.n, 1);
    bool fits = index < 1 << TCI_DIM_INDEX_BITS;
    tci_dim_expr *e =
        fits ? tci_dim_slot(tci_dim_exprs.chunks, sizeof(*e), index, true) : NULL;
    tci_dim_term *terms = e ? tci_heap_get(sizeof(*terms) * (size_t)s->n) : NULL;
    if (!terms) {
        return TCI_DIM_OF_FAULT(MEMORY);
    }
    memcpy(terms, s->terms, sizeof(*terms) * (size_t)s->n);
    tci_dim_range r = tci_dim_range_of_terms(terms, s->n);
    tci_dim_expr fresh = {s->n, terms, hash, r.least, r.most, r.hint};
    *e = fresh;
    *slot = index + 1;
    tci_dim_exprs.n = index + 1;
    if (index > tci_dim_highest) {
        __atomic_store_n(&tci_dim_highest, index, __ATOMIC_RELAXED);
    }
    return tci_dim_number(index, hash);
}

static tci_dim tci_dim_finish(const tci_dim_sum *s)
{
    if (s->bad) {
        return TCI_DIM_OF_FAULT(LARGE);
    }
    if (s->n == 0 || (s->n == 1 && s->terms[0].n == 0)) {
        return s->n ? s->terms[0].coef : 0;
    }
    tci_dim_take_lock();
    tci_dim d = tci_dim_intern(s);
    pthread_mutex_unlock(&tci_dim_lock);
    return d;
}

/* ---- atoms ---- */

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

/* With the lock held: the index of an atom, found or made; -1: out of memory. Copies the name. */
static int tci_dim_atom_intern(tci_dim_atom atom)
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

static tci_dim tci_dim_of_atom(tci_dim_atom atom)
{
    tci_dim_sum s;
    s.n = 1;
    memset(&s.terms[0], 0, sizeof(s.terms[0]));
    s.terms[0].coef = 1;
    s.terms[0].n = 1;
    tci_dim_take_lock();
    int index = tci_dim_atom_intern(atom);
    pthread_mutex_unlock(&tci_dim_lock);
    s.bad = false;
    s.terms[0].atoms[0] = index;
    return index < 0 ? TCI_DIM_OF_FAULT(MEMORY) : tci_dim_finish(&s);
}

/* The number whose square is nearest below least * most: halfway, as sizes go. */
static int64_t tci_dim_middle(int64_t least, int64_t most)
{
    int64_t lo = TCI_MAX(least, 1), hi = TCI_MAX(most, 1), from = lo, to = hi;
    while (from < to) {
        int64_t half = from + (to - from + 1) / 2;
        if (tci_dim_times(half, half) <= tci_dim_times(lo, hi)) {
            from = half;
        } else {
            to = half - 1;
        }
    }
    return TCI_MAX(TCI_MIN(from, most), least);
}

TCI_FN tci_dim tci_dim_symbol(const char *name, int ordinal, int64_t least, int64_t most)
{
    tci_dim_atom a = {TCI_DIM_SYMBOL, ordinal, (char *)(uintptr_t)(name ? name : ""), 0, 0, 0,
                      least, most, tci_dim_middle(least, most)};
    return least == most ? least : tci_dim_of_atom(a);
}

static tci_dim tci_dim_of_pair(tci_dim_kind kind, tci_dim a, tci_dim b, tci_dim_range r)
{
    tci_dim_atom atom = {(uint8_t)kind, -1, (char *)(uintptr_t)"", a, b, 0,
                         r.least, r.most, r.hint};
    return tci_dim_of_atom(atom);
}

/* ---- arithmetic ---- */

static const tci_dim_term tci_dim_one = {1, 0, {0}};

/* The fault of a or b, as a result; 0: they have none. */
static tci_dim tci_dim_spoiled(tci_dim a, tci_dim b)
{
    if (tci_dim_is_valid(a)) {
        return tci_dim_is_valid(b) ? 0 : TCI_DIM_TAG + tci_dim_fault(b);
    }
    return TCI_DIM_TAG + tci_dim_fault(a);
}

TCI_FN tci_dim tci_dim_add_any(tci_dim a, tci_dim b)
{
    tci_dim_sum s;
    tci_dim spoiled = tci_dim_spoiled(a, b);
    if (spoiled) {
        return spoiled;
    }
    tci_dim_sum_copy(&s, NULL);
    tci_dim_sum_take(&s, a, &tci_dim_one);
    tci_dim_sum_take(&s, b, &tci_dim_one);
    return tci_dim_finish(&s);
}

TCI_FN tci_dim tci_dim_mul_any(tci_dim a, tci_dim b)
{
    tci_dim_sum s;
    tci_dim spoiled = tci_dim_spoiled(a, b);
    if (spoiled) {
        return spoiled;
    }
    tci_dim_sum_copy(&s, NULL);
    int n;
    tci_dim_term known;
    const tci_dim_term *terms = tci_dim_terms(a, &known, &n);
    for (int i = 0; i < n; i++) {
        tci_dim_sum_take(&s, b, &terms[i]);
    }
    return tci_dim_finish(&s);
}

/* x = q * y for terms: false where y does not divide it. */
static bool tci_dim_term_divide(const tci_dim_term *x, const tci_dim_term *y, tci_dim_term *q)
{
    memset(q, 0, sizeof(*q));
    if (x->coef % y->coef != 0) {
        return false;
    }
    q->coef = x->coef / y->coef;
    int j = 0;
    for (int i = 0; i < x->n; i++) {
        if (j < y->n && x->atoms[i] == y->atoms[j]) {
            j++;
        } else {
            q->atoms[q->n++] = x->atoms[i];
        }
    }
    return j == y->n;
}

/* Long division: a = q * b + r, where no term of r is a multiple of b's highest one. */
static void tci_dim_divide(tci_dim a, tci_dim b, tci_dim_sum *q, tci_dim_sum *r)
{
    int n;
    tci_dim_term known, factor;
    const tci_dim_term *terms = tci_dim_terms(b, &known, &n);
    tci_dim_sum left;
    tci_dim_sum_copy(&left, NULL);
    tci_dim_sum_take(&left, a, &tci_dim_one);
    q->n = r->n = 0;
    q->bad = r->bad = left.bad || n <= 0;
    while (left.n > 0 && !left.bad && !q->bad) {
        tci_dim_term top = left.terms[0];
        if (tci_dim_term_divide(&top, &terms[0], &factor)) {
            tci_dim_sum_add(q, &factor);
            factor.coef = -factor.coef;
            tci_dim_sum_take(&left, b, &factor);
        } else {
            tci_dim_sum_add(r, &top);
            top.coef = -top.coef;
            tci_dim_sum_add(&left, &top);
        }
        r->bad = r->bad || left.bad;
    }
}

static int64_t tci_dim_gcd(int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* floor((g x + c) / (g d)) = floor((x + floor(c / g)) / d): the factor g goes. */
static tci_dim tci_dim_reduce(tci_dim r, tci_dim *b)
{
    int n;
    tci_dim_term known;
    const tci_dim_term *terms = tci_dim_terms(r, &known, &n);
    int64_t g = tci_dim_is_known(*b) ? *b : 1;
    for (int i = 0; i < n; i++) {
        g = terms[i].n ? tci_dim_gcd(g, TCI_MAX(terms[i].coef, -terms[i].coef)) : g;
    }
    if (g <= 1) {
        return r;
    }
    tci_dim_sum s;
    tci_dim_sum_copy(&s, NULL);
    for (int i = 0; i < n; i++) {
        tci_dim_term t = terms[i];
        t.coef = t.n ? t.coef / g : tci_dim_quotient(t.coef, g);
        tci_dim_sum_add(&s, &t);
    }
    *b /= g;
    return tci_dim_finish(&s);
}

/* d = floor(x / y) + *rest, y and the rest numbers: the quotient. */
static const tci_dim_atom *tci_dim_is_quotient(tci_dim d, int64_t *rest)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    if (!e || e->n > 2 || e->terms[0].coef != 1 || e->terms[0].n != 1 ||
        (e->n == 2 && e->terms[1].n)) {
        return NULL;
    }
    const tci_dim_atom *a = tci_dim_atom_at(e->terms[0].atoms[0]);
    *rest = e->n == 2 ? e->terms[1].coef : 0;
    return a->kind == TCI_DIM_DIV && tci_dim_is_known(a->b) ? a : NULL;
}

/* The bounds of floor(r / b) by those of r and b, where b counts as at least 1. */
static tci_dim_range tci_dim_range_of_quotient(tci_dim r, tci_dim b)
{
    int64_t lo = TCI_MAX(tci_dim_least(b), 1), hi = TCI_MAX(tci_dim_most(b), 1);
    int64_t least = tci_dim_least(r), most = tci_dim_most(r);
    tci_dim_range range = {tci_dim_quotient(least, least < 0 ? lo : hi),
                           tci_dim_quotient(most, most < 0 ? hi : lo),
                           tci_dim_quotient(tci_dim_hint(r), TCI_MAX(tci_dim_hint(b), 1))};
    if (tci_dim_least(b) <= 0) { /* x / 0 counts as 0 */
        range.least = TCI_MIN(range.least, 0);
        range.most = TCI_MAX(range.most, 0);
    }
    range.least = least <= -tci_dim_limit ? least : range.least;
    range.most = most >= tci_dim_limit ? most : range.most;
    return range;
}

static tci_dim tci_dim_div_rest(tci_dim r, tci_dim b)
{
    if (tci_dim_is_known(r) && tci_dim_is_known(b)) {
        return tci_dim_quotient(r, b);
    }
    bool whole = tci_dim_le(0, r);
    if (whole && tci_dim_lt(r, b)) {
        return 0;
    }
    bool small = tci_dim_is_known(r) && -r <= TCI_MAX(tci_dim_least(b), 1); /* as b > 0 */
    if (tci_dim_lt(r, 0) && (small || tci_dim_le(tci_dim_neg(b), r))) {
        return -1;
    }
    r = tci_dim_reduce(r, &b);
    if (b == 1) {
        return r;
    }
    int64_t rest;
    const tci_dim_atom *inner = tci_dim_is_known(b) ? tci_dim_is_quotient(r, &rest) : NULL;
    if (inner) { /* floor((floor(x / y) + rest) / b) = floor((x + rest y) / (y b)) */
        tci_dim x = tci_dim_add(inner->a, tci_dim_times(rest, inner->b));
        return tci_dim_div(x, tci_dim_times(inner->b, b));
    }
    tci_dim_range range = tci_dim_range_of_quotient(r, b);
    range.least = whole ? TCI_MAX(range.least, 0) : range.least;
    return range.least == range.most ? range.least : tci_dim_of_pair(TCI_DIM_DIV, r, b, range);
}

TCI_FN tci_dim tci_dim_div_any(tci_dim a, tci_dim b)
{
    tci_dim_sum q, r;
    tci_dim spoiled = tci_dim_spoiled(a, b);
    if (spoiled || b == 1 || b == 0) {
        return spoiled ? spoiled : b ? a : 0;
    }
    tci_dim_divide(a, b, &q, &r);
    if (tci_dim_is_known(b) && r.n > 1 && r.terms[r.n - 1].n == 0) {
        tci_dim_term whole_part = r.terms[r.n - 1]; /* the constant that stays is in [0, b) */
        whole_part.coef = tci_dim_quotient(whole_part.coef, b);
        tci_dim_sum_add(&q, &whole_part);
        whole_part.coef = -tci_dim_times(whole_part.coef, b);
        tci_dim_sum_add(&r, &whole_part);
    }
    tci_dim whole = tci_dim_finish(&q), rest = tci_dim_finish(&r);
    spoiled = tci_dim_spoiled(whole, rest);
    if (spoiled) {
        return spoiled;
    }
    return rest == 0 ? whole : tci_dim_add(whole, tci_dim_div_rest(rest, b));
}

TCI_FN bool tci_dim_divides_any(tci_dim c, tci_dim a)
{
    tci_dim_sum q, r;
    tci_dim_divide(a, c, &q, &r);
    return !q.bad && !r.bad && r.n == 0;
}

TCI_FN tci_dim tci_dim_extreme(tci_dim a, tci_dim b, bool max)
{
    tci_dim spoiled = tci_dim_spoiled(a, b);
    if (spoiled) {
        return spoiled;
    }
    if (tci_dim_le(a, b)) {
        return max ? b : a;
    }
    if (tci_dim_le(b, a)) {
        return max ? a : b;
    }
    if (tci_dim_compare(a, b) > 0) {
        tci_dim t = a;
        a = b;
        b = t;
    }
    int64_t lo_a = tci_dim_least(a), lo_b = tci_dim_least(b), hi_a = tci_dim_most(a),
            hi_b = tci_dim_most(b), hint_a = tci_dim_hint(a), hint_b = tci_dim_hint(b);
    tci_dim_range r = {max ? TCI_MAX(lo_a, lo_b) : TCI_MIN(lo_a, lo_b),
                       max ? TCI_MAX(hi_a, hi_b) : TCI_MIN(hi_a, hi_b),
                       max ? TCI_MAX(hint_a, hint_b) : TCI_MIN(hint_a, hint_b)};
    return tci_dim_of_pair(max ? TCI_DIM_MAX : TCI_DIM_MIN, a, b, r);
}

/* ---- what is certain ---- */

/* Takes one atom that is never negative and stands in every term out of all of them. */
static bool tci_dim_factor(tci_dim_sum *s)
{
    for (int i = 0; s->n > 0 && i < s->terms[0].n; i++) {
        int32_t atom = s->terms[0].atoms[i];
        bool all = tci_dim_atom_at(atom)->least >= 0;
        for (int t = 1; all && t < s->n; t++) {
            int at = 0;
            while (at < s->terms[t].n && s->terms[t].atoms[at] != atom) {
                at++;
            }
            all = at < s->terms[t].n;
        }
        for (int t = 0; all && t < s->n; t++) {
            tci_dim_term *term = &s->terms[t];
            int at = 0;
            while (term->atoms[at] != atom) {
                at++;
            }
            term->n--;
            memmove(&term->atoms[at], &term->atoms[at + 1],
                    sizeof(*term->atoms) * (size_t)(term->n - at));
        }
        if (all) {
            return true;
        }
    }
    return false;
}

/* Its bounds are not the saturated ones. */
static bool tci_dim_is_bounded(tci_dim d)
{
    return tci_dim_is_known(d) ||
           (tci_dim_least(d) > -tci_dim_limit && tci_dim_most(d) < tci_dim_limit);
}

/* Every atom written as its least value and what it has above that: no coefficient is below 0. */
static bool tci_dim_is_above_least(const tci_dim_sum *s)
{
    tci_dim_sum all;
    tci_dim_sum_copy(&all, NULL);
    for (int t = 0; t < s->n; t++) {
        tci_dim_sum product;
        tci_dim_sum_copy(&product, NULL);
        product.n = 1;
        product.terms[0] = tci_dim_one;
        product.terms[0].coef = s->terms[t].coef;
        for (int i = 0; i < s->terms[t].n; i++) {
            tci_dim_sum longer;
            tci_dim_sum_copy(&longer, NULL);
            tci_dim_term above = {1, 1, {s->terms[t].atoms[i]}}, least = tci_dim_one;
            least.coef = tci_dim_atom_at(s->terms[t].atoms[i])->least;
            longer.bad = product.bad || least.coef <= -tci_dim_limit;
            for (int k = 0; k < product.n && !longer.bad; k++) {
                tci_dim_term x = tci_dim_term_product(&product.terms[k], &above, &longer.bad);
                tci_dim_term y = tci_dim_term_product(&product.terms[k], &least, &longer.bad);
                tci_dim_sum_add(&longer, &x);
                tci_dim_sum_add(&longer, &y);
            }
            tci_dim_sum_copy(&product, &longer);
        }
        all.bad = all.bad || product.bad;
        for (int k = 0; k < product.n && !all.bad; k++) {
            tci_dim_sum_add(&all, &product.terms[k]);
        }
    }
    bool holds = !all.bad;
    for (int t = 0; t < all.n; t++) {
        holds = holds && all.terms[t].coef >= 0;
    }
    return holds;
}

static bool tci_dim_is_never_negative(const tci_dim_sum *s, int depth);

/* Whether s >= 0 follows when the atom at place `at` of term t is taken for x / scale, with scale
 * above 0: all terms are multiplied by it. */
static bool tci_dim_holds_with(const tci_dim_sum *s, int t, int at, tci_dim x, tci_dim scale,
                               bool rounded_down, int depth)
{
    tci_dim_sum with;
    tci_dim_sum_copy(&with, NULL);
    tci_dim_term cut = s->terms[t];
    cut.n--;
    memmove(&cut.atoms[at], &cut.atoms[at + 1], sizeof(*cut.atoms) * (size_t)(cut.n - at));
    for (int i = 0; i < s->n; i++) {
        tci_dim_sum_take(&with, i == t ? x : scale, i == t ? &cut : &s->terms[i]);
    }
    if (rounded_down) { /* it was x - scale + 1 at the least */
        tci_dim_sum_add(&with, &cut);
        cut.coef = -cut.coef;
        tci_dim_sum_take(&with, scale, &cut);
    }
    return tci_dim_is_never_negative(&with, depth);
}

/* The other atoms of the term are never negative, so a bound of this one bounds the term. */
static bool tci_dim_holds_by(const tci_dim_sum *s, int t, int at, int depth)
{
    const tci_dim_atom *a = tci_dim_atom_at(s->terms[t].atoms[at]);
    bool more = s->terms[t].coef > 0;
    for (int i = 0; i < s->terms[t].n; i++) {
        if (i != at && tci_dim_atom_at(s->terms[t].atoms[i])->least < 0) {
            return false;
        }
    }
    if (a->kind == TCI_DIM_DIV) {
        return tci_dim_least(a->b) >= 1 && tci_dim_holds_with(s, t, at, a->a, a->b, more, depth);
    }
    bool first = tci_dim_holds_with(s, t, at, a->a, 1, false, depth);
    bool either = more == (a->kind == TCI_DIM_MAX);
    if (first == either) {
        return first;
    }
    return tci_dim_holds_with(s, t, at, a->b, 1, false, depth);
}

/* By its bounds, or those of what is left when a common factor goes, or with a quotient, minimum or
 * maximum in it replaced by what bounds it. */
static bool tci_dim_is_never_negative(const tci_dim_sum *given, int depth)
{
    tci_dim_sum s;
    tci_dim_sum_copy(&s, given);
    if (s.bad) {
        return false;
    }
    do {
        if (tci_dim_range_of_terms(s.terms, s.n).least >= 0 || tci_dim_is_above_least(&s)) {
            return true;
        }
    } while (tci_dim_factor(&s));
    for (int t = 0; depth > 0 && t < s.n; t++) {
        for (int at = 0; at < s.terms[t].n; at++) {
            if (tci_dim_atom_at(s.terms[t].atoms[at])->kind != TCI_DIM_SYMBOL &&
                tci_dim_holds_by(&s, t, at, depth - 1)) {
                return true;
            }
        }
    }
    return false;
}

TCI_FN bool tci_dim_le_any(tci_dim a, tci_dim b)
{
    tci_dim_sum s;
    tci_dim_sum_copy(&s, NULL);
    tci_dim_term minus = tci_dim_one;
    if (a == b || !tci_dim_is_valid(a) || !tci_dim_is_valid(b)) {
        return a == b && tci_dim_is_valid(a);
    }
    if (tci_dim_is_bounded(a) && tci_dim_is_bounded(b)) {
        if (tci_dim_most(a) <= tci_dim_least(b)) {
            return true;
        }
        if (tci_dim_least(a) > tci_dim_most(b)) {
            return false;
        }
    }
    minus.coef = -1;
    tci_dim_sum_take(&s, b, &tci_dim_one);
    tci_dim_sum_take(&s, a, &minus);
    return tci_dim_is_never_negative(&s, TCI_DIM_DEPTH);
}

/* ---- symbols, replacement, values ---- */

TCI_FN bool tci_dim_symbols(tci_dim d, tci_dim *list, int *n, int room)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    for (int t = 0; e && t < e->n; t++) {
        for (int i = 0; i < e->terms[t].n; i++) {
            const tci_dim_atom *a = tci_dim_atom_at(e->terms[t].atoms[i]);
            if (a->kind != TCI_DIM_SYMBOL) {
                if (!tci_dim_symbols(a->a, list, n, room) ||
                    !tci_dim_symbols(a->b, list, n, room)) {
                    return false;
                }
                continue;
            }
            tci_dim symbol = tci_dim_of_atom(*a);
            int at = 0;
            while (at < *n && list[at] != symbol) {
                at++;
            }
            if (at == room) {
                return false;
            }
            list[at] = symbol;
            *n = TCI_MAX(*n, at + 1);
        }
    }
    return true;
}

static const tci_dim_atom *tci_dim_symbol_of(tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    bool lone = e && e->n == 1 && e->terms[0].n == 1 && e->terms[0].coef == 1;
    const tci_dim_atom *a = lone ? tci_dim_atom_at(e->terms[0].atoms[0]) : NULL;
    return a && a->kind == TCI_DIM_SYMBOL ? a : NULL;
}

TCI_FN const char *tci_dim_name(tci_dim symbol)
{
    const tci_dim_atom *a = tci_dim_symbol_of(symbol);
    return a ? a->name : "";
}

/* A quotient by 0 is 0. */
static tci_dim tci_dim_join(int kind, tci_dim a, tci_dim b)
{
    if (kind == TCI_DIM_DIV) {
        return tci_dim_is_known(b) && b <= 0 ? 0 : tci_dim_div(a, b);
    }
    return kind == TCI_DIM_MIN ? tci_dim_min(a, b) : tci_dim_max(a, b);
}

TCI_FN int tci_dim_ordinal(tci_dim symbol)
{
    const tci_dim_atom *a = tci_dim_symbol_of(symbol);
    return a ? a->ordinal : -1;
}

static tci_dim tci_dim_replace_atom(int32_t index, int n, const tci_dim *from, const tci_dim *to)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind != TCI_DIM_SYMBOL) {
        tci_dim x = tci_dim_replace(a->a, n, from, to), y = tci_dim_replace(a->b, n, from, to);
        return tci_dim_join(a->kind, x, y);
    }
    tci_dim d = tci_dim_of_atom(*a);
    for (int i = 0; i < n; i++) {
        if (from[i] == d) {
            return to[i];
        }
    }
    return d;
}

TCI_FN tci_dim tci_dim_replace(tci_dim d, int n, const tci_dim *from, const tci_dim *to)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    tci_dim sum = e ? 0 : d;
    for (int t = 0; e && t < e->n; t++) {
        tci_dim product = e->terms[t].coef;
        for (int i = 0; i < e->terms[t].n; i++) {
            product = tci_dim_mul(product, tci_dim_replace_atom(e->terms[t].atoms[i], n, from, to));
        }
        sum = tci_dim_add(sum, product);
    }
    return sum;
}

static int64_t tci_dim_atom_value(int32_t index, const int64_t *values)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        return a->ordinal >= 0 ? values[a->ordinal] : 0;
    }
    int64_t x = tci_dim_value(a->a, values), y = tci_dim_value(a->b, values);
    return a->kind == TCI_DIM_DIV   ? tci_dim_quotient(x, y)
           : a->kind == TCI_DIM_MIN ? TCI_MIN(x, y)
                                    : TCI_MAX(x, y);
}

TCI_FN int64_t tci_dim_value(tci_dim d, const int64_t *values)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    int64_t sum = tci_dim_is_known(d) ? d : 0;
    for (int t = 0; e && t < e->n; t++) {
        int64_t product = e->terms[t].coef;
        for (int i = 0; i < e->terms[t].n; i++) {
            product = tci_dim_times(product, tci_dim_atom_value(e->terms[t].atoms[i], values));
        }
        sum = tci_dim_plus(sum, product);
    }
    return sum;
}

/* ---- values in ranges ---- */

static tci_dim_bounds tci_dim_product_in(tci_dim_bounds x, tci_dim_bounds y)
{
    int64_t ends[4] = {tci_dim_times(x.least, y.least), tci_dim_times(x.least, y.most),
                       tci_dim_times(x.most, y.least), tci_dim_times(x.most, y.most)};
    return (tci_dim_bounds){TCI_MIN(TCI_MIN(ends[0], ends[1]), TCI_MIN(ends[2], ends[3])),
                            TCI_MAX(TCI_MAX(ends[0], ends[1]), TCI_MAX(ends[2], ends[3]))};
}

/* A quotient by 0 is 0, one by less is never asked for. */
static tci_dim_bounds tci_dim_quotient_in(tci_dim_bounds x, tci_dim_bounds y)
{
    int64_t lo = TCI_MAX(y.least, 1), hi = TCI_MAX(y.most, 1);
    tci_dim_bounds r = {tci_dim_quotient(x.least, x.least < 0 ? lo : hi),
                        tci_dim_quotient(x.most, x.most < 0 ? hi : lo)};
    if (y.least <= 0) {
        r.least = TCI_MIN(r.least, 0);
        r.most = TCI_MAX(r.most, 0);
    }
    return r;
}

static tci_dim_bounds tci_dim_atom_in(int32_t index, const int64_t *least, const int64_t *most)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        int at = a->ordinal;
        return at >= 0 ? (tci_dim_bounds){least[at], most[at]} : (tci_dim_bounds){0, 0};
    }
    tci_dim_bounds x = tci_dim_value_in(a->a, least, most), y = tci_dim_value_in(a->b, least, most);
    if (a->kind == TCI_DIM_DIV) {
        return tci_dim_quotient_in(x, y);
    }
    return a->kind == TCI_DIM_MIN
               ? (tci_dim_bounds){TCI_MIN(x.least, y.least), TCI_MIN(x.most, y.most)}
               : (tci_dim_bounds){TCI_MAX(x.least, y.least), TCI_MAX(x.most, y.most)};
}

TCI_FN tci_dim_bounds tci_dim_value_in(tci_dim d, const int64_t *least, const int64_t *most)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    tci_dim_bounds sum = {tci_dim_is_known(d) ? d : 0, tci_dim_is_known(d) ? d : 0};
    for (int t = 0; e && t < e->n; t++) {
        tci_dim_bounds product = {e->terms[t].coef, e->terms[t].coef};
        for (int i = 0; i < e->terms[t].n; i++) {
            product =
                tci_dim_product_in(product, tci_dim_atom_in(e->terms[t].atoms[i], least, most));
        }
        sum.least = tci_dim_plus(sum.least, product.least);
        sum.most = tci_dim_plus(sum.most, product.most);
    }
    return sum;
}

/* The direction of a sum of two. */
static int tci_dim_both_ways(int x, int y)
{
    return x == 0 || x == y ? y : y == 0 ? x : 2;
}

static int tci_dim_atom_direction(int32_t index, int ordinal)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        return a->ordinal == ordinal;
    }
    int x = tci_dim_direction(a->a, ordinal), y = tci_dim_direction(a->b, ordinal);
    if (a->kind != TCI_DIM_DIV) {
        return tci_dim_both_ways(x, y);
    }
    bool plain = tci_dim_least(a->b) >= 1; /* nothing is divided by 0 */
    if (y != 0) { /* the quotient of what is not negative falls where the divisor grows */
        plain = plain && tci_dim_least(a->a) >= 0 && y != 2;
    }
    return y == 0 ? x : plain ? tci_dim_both_ways(x, -y) : 2;
}

TCI_FN int tci_dim_direction(tci_dim d, int ordinal)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    int all = 0;
    for (int t = 0; e && t < e->n; t++) {
        const tci_dim_term *term = &e->terms[t];
        int way = 0;
        for (int i = 0; i < term->n && way != 2; i++) {
            bool positive = tci_dim_atom_at(term->atoms[i])->least >= 0;
            int one = tci_dim_atom_direction(term->atoms[i], ordinal);
            way = positive || term->n == 1 ? tci_dim_both_ways(way, one) : 2;
        }
        way = way == 2 || term->coef > 0 ? way : -way;
        all = tci_dim_both_ways(all, way);
    }
    return all;
}

/* ---- text ---- */

static void tci_dim_print_atom(tci_str *out, int32_t index)
{
    static const char *const words[] = {"", "floor(", "min(", "max("};
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        if (a->ordinal >= 0) { /* its range is part of what it is */
            tci_str_printf(out, "s%d{%lld..%lld}", a->ordinal, (long long)a->least,
                           (long long)a->most);
        } else {
            tci_str_add(out, a->name);
        }
        return;
    }
    tci_str_add(out, words[a->kind]);
    tci_dim_print(out, a->a);
    tci_str_add(out, a->kind == TCI_DIM_DIV ? " / " : ", ");
    tci_dim_print(out, a->b);
    tci_str_add(out, ")");
}

TCI_FN void tci_dim_print(tci_str *out, tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    if (!e) {
        tci_str_printf(out, tci_dim_is_known(d) ? "%lld" : "?", (long long)d);
        return;
    }
    tci_str_add(out, e->n > 1 ? "(" : "");
    for (int t = 0; t < e->n; t++) {
        const tci_dim_term *term = &e->terms[t];
        tci_str_add(out, t ? " + " : "");
        if (term->coef != 1 || term->n == 0) {
            tci_str_printf(out, "%lld%s", (long long)term->coef, term->n ? "*" : "");
        }
        for (int i = 0; i < term->n; i++) {
            tci_str_add(out, i ? "*" : "");
            tci_dim_print_atom(out, term->atoms[i]);
        }
    }
    tci_str_add(out, e->n > 1 ? ")" : "");
}

TCI_FN tci_dim_text tci_dim_text_of(tci_dim d)
{
    tci_dim_text t;
    tci_str text = {.s = NULL};
    tci_dim_print(&text, d);
    snprintf(t.text, sizeof(t.text), "%s", tci_str_text(&text));
    tci_str_free(&text);
    return t;
}

TCI_FN void tci_dim_need(tci_scratch *s, tci_dim d, const char *what)
{
    if (!tci_dim_is_valid(d)) {
        int fault = tci_dim_fault(d);
        tci_scratch_fail(s, tci_dim_fault_status(fault), "%s is %s", what,
                         tci_dim_fault_text(fault));
    }
}

/* ---- words: n terms, each coefficient, number of atoms, atoms; an atom is its kind, then a
 * symbol's number or its two expressions ---- */

static int tci_dim_put(int64_t *words, int at, int64_t v)
{
    if (words) {
        words[at] = v;
    }
    return at + 1;
}

static int tci_dim_write_at(tci_dim d, int64_t *words, int at)
{
    int n;
    tci_dim_term known;
    const tci_dim_term *terms = tci_dim_terms(d, &known, &n);
    at = tci_dim_put(words, at, TCI_MAX(n, 0));
    for (int t = 0; t < n; t++) {
        at = tci_dim_put(words, at, terms[t].coef);
        at = tci_dim_put(words, at, terms[t].n);
        for (int i = 0; i < terms[t].n; i++) {
            const tci_dim_atom *a = tci_dim_atom_at(terms[t].atoms[i]);
            at = tci_dim_put(words, at, a->kind);
            if (a->kind == TCI_DIM_SYMBOL) {
                at = tci_dim_put(words, at, a->ordinal);
            } else {
                at = tci_dim_write_at(a->a, words, at);
                at = tci_dim_write_at(a->b, words, at);
            }
        }
    }
    return at;
}

TCI_FN int tci_dim_write(tci_dim d, int64_t *words)
{
    return tci_dim_write_at(d, words, 0);
}

static int64_t tci_dim_next(const int64_t **words, const int64_t *end, int64_t lo, int64_t hi,
                            bool *bad)
{
    int64_t v = *words < end ? *(*words)++ : lo - 1;
    *bad = *bad || v < lo || v > hi;
    return *bad ? lo : v;
}

static tci_dim tci_dim_read_sum(const int64_t **words, const int64_t *end, const tci_dim *symbols,
                                int n, int depth, bool *bad)
{
    tci_dim sum = 0;
    *bad = *bad || depth > 64;
    int64_t terms = tci_dim_next(words, end, 0, TCI_DIM_TERMS, bad);
    for (int64_t t = 0; t < terms && !*bad; t++) {
        tci_dim product = tci_dim_next(words, end, -tci_dim_limit, tci_dim_limit, bad);
        int64_t atoms = tci_dim_next(words, end, 0, TCI_DIM_ATOMS, bad);
        for (int64_t i = 0; i < atoms && !*bad; i++) {
            int64_t kind = tci_dim_next(words, end, TCI_DIM_SYMBOL, TCI_DIM_MAX, bad);
            tci_dim atom;
            if (kind == TCI_DIM_SYMBOL) {
                int64_t ordinal = tci_dim_next(words, end, 0, n - 1, bad);
                atom = *bad ? 0 : symbols[ordinal];
            } else {
                tci_dim a = tci_dim_read_sum(words, end, symbols, n, depth + 1, bad);
                tci_dim b = tci_dim_read_sum(words, end, symbols, n, depth + 1, bad);
                atom = *bad ? 0 : tci_dim_join((int)kind, a, b);
            }
            product = tci_dim_mul(product, atom);
        }
        sum = tci_dim_add(sum, product);
    }
    return sum;
}

TCI_FN tci_dim tci_dim_read(const int64_t **words, const int64_t *end, const tci_dim *symbols,
                            int n)
{
    bool bad = false;
    tci_dim d = tci_dim_read_sum(words, end, symbols, n, 0, &bad);
    return bad ? TCI_DIM_OF_FAULT(NONE) : d;
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
    __atomic_store_n(&tci_dim_n_shown, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&tci_dim_lock);
}

#endif
