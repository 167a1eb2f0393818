/* base/dim_substitute.c - substitution: evaluates symbolic sizes for values or ranges of their
 * symbols.
 *
 * In: a size; symbols and their replacements, values or ranges by number. Out: the symbols of the
 * size, another size, a value, bounds, or its monotonicity. */
#include "dim_expr.h"

#ifdef TC_DYNAMIC_SHAPES

/* ---- notes of a traversal ---- */

#ifdef TCI_TEST_ALLOC

static int64_t tci_dim_count_of_all;

TCI_FN void tci_dim_count(void)
{
    __atomic_fetch_add(&tci_dim_count_of_all, 1, __ATOMIC_RELAXED);
}

TCI_FN int64_t tci_dim_counted(void)
{
    return __atomic_load_n(&tci_dim_count_of_all, __ATOMIC_RELAXED);
}

#endif

/* The slot of the atom, or the free one where it belongs: there always is one. */
static tci_dim_note *tci_dim_memo_slot(const tci_dim_memo *m, int32_t atom)
{
    uint32_t mask = (uint32_t)m->n_slots - 1, at = (uint32_t)atom & mask;
    while (m->slots[at].atom >= 0 && m->slots[at].atom != atom) {
        at = (at + 1) & mask;
    }
    return &m->slots[at];
}

TCI_FN const tci_dim_note *tci_dim_memo_find(const tci_dim_memo *m, int32_t atom)
{
    const tci_dim_note *note = m->n_slots ? tci_dim_memo_slot(m, atom) : NULL;
    return note && note->atom == atom ? note : NULL;
}

TCI_FN void tci_dim_memo_end(tci_dim_memo *m)
{
    if (m->n_slots > TCI_DIM_NOTES) {
        tci_heap_free(m->slots);
    }
}

/* Room for one more note; false: out of memory. */
static bool tci_dim_memo_grow(tci_dim_memo *m)
{
    if (2 * (m->n + 1) <= m->n_slots) {
        return true;
    }
    tci_dim_memo old = *m;
    int n_slots = m->n_slots ? 2 * m->n_slots : TCI_DIM_NOTES;
    tci_dim_note *slots = m->few;
    if (n_slots > TCI_DIM_NOTES) {
        slots = tci_heap_get(sizeof(*slots) * (size_t)n_slots);
    }
    if (!slots) {
        return false;
    }
    for (int i = 0; i < n_slots; i++) {
        slots[i].atom = -1;
    }
    m->slots = slots;
    m->n_slots = n_slots;
    const tci_dim_note *from = old.n_slots > TCI_DIM_NOTES ? old.slots : old.few;
    for (int i = 0; i < old.n_slots; i++) {
        if (from[i].atom >= 0) {
            *tci_dim_memo_slot(m, from[i].atom) = from[i];
        }
    }
    tci_dim_memo_end(&old);
    return true;
}

TCI_FN void tci_dim_memo_put(tci_dim_memo *m, int32_t atom, int64_t a, int64_t b)
{
    TCI_DIM_COUNT();
    if (tci_dim_memo_grow(m)) {
        *tci_dim_memo_slot(m, atom) = (tci_dim_note){atom, a, b};
        m->n++;
    }
}

/* ---- symbols, replacement, values ---- */

typedef struct tci_dim_listing {
    tci_dim *list;
    int *n, room;
    tci_dim_memo memo;
} tci_dim_listing;

static bool tci_dim_list_symbol(tci_dim_listing *l, const tci_dim_atom *a)
{
    tci_dim symbol = tci_dim_of_atom(*a);
    int at = 0;
    while (at < *l->n && l->list[at] != symbol) {
        at++;
    }
    if (at == l->room) {
        return false;
    }
    l->list[at] = symbol;
    *l->n = TCI_MAX(*l->n, at + 1);
    return true;
}

static bool tci_dim_list_symbols(tci_dim_listing *l, tci_dim d);

static bool tci_dim_list_atom(tci_dim_listing *l, int32_t index)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        return tci_dim_list_symbol(l, a);
    }
    if (tci_dim_memo_find(&l->memo, index)) {
        return true;
    }
    tci_dim_memo_put(&l->memo, index, 0, 0);
    return tci_dim_list_symbols(l, a->a) && tci_dim_list_symbols(l, a->b);
}

static bool tci_dim_list_symbols(tci_dim_listing *l, tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    for (int t = 0; e && t < e->n; t++) {
        for (int i = 0; i < e->terms[t].n; i++) {
            if (!tci_dim_list_atom(l, e->terms[t].atoms[i])) {
                return false;
            }
        }
    }
    return true;
}

TCI_FN bool tci_dim_symbols(tci_dim d, tci_dim *list, int *n, int room)
{
    tci_dim_listing l = {list, n, room, {.n_slots = 0}};
    bool all = tci_dim_list_symbols(&l, d);
    tci_dim_memo_end(&l.memo);
    return all;
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

TCI_FN tci_dim tci_dim_join(int kind, tci_dim a, tci_dim b)
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

typedef struct tci_dim_replacing {
    int n;
    const tci_dim *from, *to;
    tci_dim_memo memo;
} tci_dim_replacing;

static tci_dim tci_dim_replace_in(tci_dim_replacing *r, tci_dim d);

static tci_dim tci_dim_replace_atom(tci_dim_replacing *r, int32_t index)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind != TCI_DIM_SYMBOL) {
        const tci_dim_note *note = tci_dim_memo_find(&r->memo, index);
        if (note) {
            return note->a;
        }
        tci_dim x = tci_dim_replace_in(r, a->a), y = tci_dim_replace_in(r, a->b);
        x = tci_dim_join(a->kind, x, y);
        tci_dim_memo_put(&r->memo, index, x, 0);
        return x;
    }
    tci_dim d = tci_dim_of_atom(*a);
    for (int i = 0; i < r->n; i++) {
        if (r->from[i] == d) {
            return r->to[i];
        }
    }
    return d;
}

static tci_dim tci_dim_replace_in(tci_dim_replacing *r, tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    tci_dim sum = e ? 0 : d;
    for (int t = 0; e && t < e->n; t++) {
        tci_dim product = e->terms[t].coef;
        for (int i = 0; i < e->terms[t].n; i++) {
            product = tci_dim_mul(product, tci_dim_replace_atom(r, e->terms[t].atoms[i]));
        }
        sum = tci_dim_add(sum, product);
    }
    return sum;
}

TCI_FN tci_dim tci_dim_replace(tci_dim d, int n, const tci_dim *from, const tci_dim *to)
{
    tci_dim_replacing r = {n, from, to, {.n_slots = 0}};
    d = tci_dim_replace_in(&r, d);
    tci_dim_memo_end(&r.memo);
    return d;
}

typedef struct tci_dim_valuing {
    const int64_t *values;
    tci_dim_memo memo;
} tci_dim_valuing;

static int64_t tci_dim_value_of(tci_dim_valuing *v, tci_dim d);

static int64_t tci_dim_atom_value(tci_dim_valuing *v, int32_t index)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        return a->ordinal >= 0 ? v->values[a->ordinal] : 0;
    }
    const tci_dim_note *note = tci_dim_memo_find(&v->memo, index);
    if (note) {
        return note->a;
    }
    int64_t x = tci_dim_value_of(v, a->a), y = tci_dim_value_of(v, a->b);
    x = a->kind == TCI_DIM_DIV   ? tci_dim_quotient(x, y)
        : a->kind == TCI_DIM_MIN ? TCI_MIN(x, y)
                                 : TCI_MAX(x, y);
    tci_dim_memo_put(&v->memo, index, x, 0);
    return x;
}

static int64_t tci_dim_value_of(tci_dim_valuing *v, tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    int64_t sum = tci_dim_is_known(d) ? d : 0;
    for (int t = 0; e && t < e->n; t++) {
        int64_t product = e->terms[t].coef;
        for (int i = 0; i < e->terms[t].n; i++) {
            product = tci_dim_times(product, tci_dim_atom_value(v, e->terms[t].atoms[i]));
        }
        sum = tci_dim_plus(sum, product);
    }
    return sum;
}

TCI_FN int64_t tci_dim_value(tci_dim d, const int64_t *values)
{
    tci_dim_valuing v;
    v.values = values;
    v.memo.n = v.memo.n_slots = 0;
    int64_t value = tci_dim_value_of(&v, d);
    tci_dim_memo_end(&v.memo);
    return value;
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

typedef struct tci_dim_ranging {
    const int64_t *least, *most;
    tci_dim_memo memo;
} tci_dim_ranging;

static tci_dim_bounds tci_dim_bounds_in(tci_dim_ranging *r, tci_dim d);

static tci_dim_bounds tci_dim_atom_in(tci_dim_ranging *r, int32_t index)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        int at = a->ordinal;
        return at >= 0 ? (tci_dim_bounds){r->least[at], r->most[at]} : (tci_dim_bounds){0, 0};
    }
    const tci_dim_note *note = tci_dim_memo_find(&r->memo, index);
    if (note) {
        return (tci_dim_bounds){note->a, note->b};
    }
    tci_dim_bounds x = tci_dim_bounds_in(r, a->a), y = tci_dim_bounds_in(r, a->b);
    x = a->kind == TCI_DIM_DIV ? tci_dim_quotient_in(x, y)
        : a->kind == TCI_DIM_MIN
            ? (tci_dim_bounds){TCI_MIN(x.least, y.least), TCI_MIN(x.most, y.most)}
            : (tci_dim_bounds){TCI_MAX(x.least, y.least), TCI_MAX(x.most, y.most)};
    tci_dim_memo_put(&r->memo, index, x.least, x.most);
    return x;
}

static tci_dim_bounds tci_dim_bounds_in(tci_dim_ranging *r, tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    tci_dim_bounds sum = {tci_dim_is_known(d) ? d : 0, tci_dim_is_known(d) ? d : 0};
    for (int t = 0; e && t < e->n; t++) {
        tci_dim_bounds product = {e->terms[t].coef, e->terms[t].coef};
        for (int i = 0; i < e->terms[t].n; i++) {
            product = tci_dim_product_in(product, tci_dim_atom_in(r, e->terms[t].atoms[i]));
        }
        sum.least = tci_dim_plus(sum.least, product.least);
        sum.most = tci_dim_plus(sum.most, product.most);
    }
    return sum;
}

TCI_FN tci_dim_bounds tci_dim_value_in(tci_dim d, const int64_t *least, const int64_t *most)
{
    tci_dim_ranging r = {least, most, {.n_slots = 0}};
    tci_dim_bounds bounds = tci_dim_bounds_in(&r, d);
    tci_dim_memo_end(&r.memo);
    return bounds;
}

/* The direction of a sum of two. */
static int tci_dim_both_ways(int x, int y)
{
    return x == 0 || x == y ? y : y == 0 ? x : 2;
}

typedef struct tci_dim_directing {
    int ordinal;
    tci_dim_memo memo;
} tci_dim_directing;

static int tci_dim_direction_of(tci_dim_directing *w, tci_dim d);

/* Monotonicity of the atom, from that of its operands. */
static int tci_dim_joint_direction(const tci_dim_atom *a, int x, int y)
{
    if (a->kind != TCI_DIM_DIV) {
        return tci_dim_both_ways(x, y);
    }
    bool plain = tci_dim_least(a->b) >= 1; /* nothing is divided by 0 */
    if (y != 0) { /* the quotient of what is not negative falls where the divisor grows */
        plain = plain && tci_dim_least(a->a) >= 0 && y != 2;
    }
    return y == 0 ? x : plain ? tci_dim_both_ways(x, -y) : 2;
}

static int tci_dim_atom_direction(tci_dim_directing *w, int32_t index)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        return a->ordinal == w->ordinal;
    }
    const tci_dim_note *note = tci_dim_memo_find(&w->memo, index);
    if (note) {
        return (int)note->a;
    }
    int x = tci_dim_direction_of(w, a->a), y = tci_dim_direction_of(w, a->b);
    x = tci_dim_joint_direction(a, x, y);
    tci_dim_memo_put(&w->memo, index, x, 0);
    return x;
}

static int tci_dim_direction_of(tci_dim_directing *w, tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    int all = 0;
    for (int t = 0; e && t < e->n; t++) {
        const tci_dim_term *term = &e->terms[t];
        int way = 0;
        for (int i = 0; i < term->n && way != 2; i++) {
            bool positive = tci_dim_atom_at(term->atoms[i])->least >= 0;
            int one = tci_dim_atom_direction(w, term->atoms[i]);
            way = positive || term->n == 1 ? tci_dim_both_ways(way, one) : 2;
        }
        way = way == 2 || term->coef > 0 ? way : -way;
        all = tci_dim_both_ways(all, way);
    }
    return all;
}

TCI_FN int tci_dim_direction(tci_dim d, int ordinal)
{
    tci_dim_directing w = {ordinal, {.n_slots = 0}};
    int way = tci_dim_direction_of(&w, d);
    tci_dim_memo_end(&w.memo);
    return way;
}

#endif
