/* base/dim.c - arithmetic on symbolic dimension sizes: sums, products and quotients, simplified to
 * a canonical form and interned (base/dim.h; representation: base/dim_expr.h).
 *
 * In: sizes, known or symbolic. Out: sizes. A result is built as a tci_dim_sum and then simplified
 * to a number, to the one interned expression with these terms, or to a fault. */
#include "dim_expr.h"

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

/* ---- sums ---- */

TCI_FN void tci_dim_sum_begin(tci_dim_sum *s)
{
    s->n = 0;
    s->room = TCI_DIM_FEW;
    s->bad = s->no_memory = false;
    s->terms = s->few;
}

TCI_FN void tci_dim_sum_end(tci_dim_sum *s)
{
    if (s->terms != s->few) {
        tci_heap_free(s->terms);
    }
}

/* Room for n terms; otherwise the sum is bad. */
static bool tci_dim_sum_reserve(tci_dim_sum *s, int n)
{
    int room = TCI_MIN(TCI_MAX(n, 2 * s->room), TCI_DIM_TERMS);
    if (n <= s->room) {
        return true;
    }
    tci_dim_term *terms = n <= room ? tci_heap_get(sizeof(*terms) * (size_t)room) : NULL;
    if (!terms) {
        s->bad = true;
        s->no_memory = s->no_memory || n <= room;
        return false;
    }
    memcpy(terms, s->terms, sizeof(*terms) * (size_t)s->n);
    tci_dim_sum_end(s);
    s->terms = terms;
    s->room = room;
    return true;
}

TCI_FN void tci_dim_sum_copy(tci_dim_sum *to, const tci_dim_sum *from)
{
    to->n = 0;
    to->bad = from->bad;
    to->no_memory = from->no_memory;
    if (tci_dim_sum_reserve(to, from->n)) {
        memcpy(to->terms, from->terms, sizeof(*to->terms) * (size_t)from->n);
        to->n = from->n;
    }
}

TCI_FN void tci_dim_sum_add(tci_dim_sum *s, const tci_dim_term *t)
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
    if (!tci_dim_sum_reserve(s, s->n + 1)) {
        return;
    }
    memmove(&s->terms[at + 1], &s->terms[at], sizeof(*t) * (size_t)(s->n - at));
    s->terms[at] = *t;
    s->n++;
}

TCI_FN const tci_dim_term *tci_dim_terms(tci_dim d, tci_dim_term *known, int *n)
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

TCI_FN tci_dim_term tci_dim_term_product(const tci_dim_term *x, const tci_dim_term *y, bool *bad)
{
    tci_dim_term r;
    memset(&r, 0, sizeof(r));
    r.coef = tci_dim_times(x->coef, y->coef);
    *bad = *bad || x->n + y->n > TCI_DIM_ATOMS || r.coef >= tci_dim_limit ||
           r.coef <= -tci_dim_limit;
    for (int i = 0, j = 0; !*bad && r.n < x->n + y->n;) {
        bool first = j == y->n || (i < x->n && tci_dim_atom_compare(x->atoms[i], y->atoms[j]) <= 0);
        r.atoms[r.n++] = first ? x->atoms[i++] : y->atoms[j++];
    }
    return r;
}

TCI_FN void tci_dim_sum_take(tci_dim_sum *s, tci_dim d, const tci_dim_term *scale)
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

/* Ends the sum: what it is. */
static tci_dim tci_dim_finish(tci_dim_sum *s)
{
    tci_dim d = s->n ? s->terms[0].coef : 0;
    if (s->bad) {
        d = s->no_memory ? tci_dim_lose() : TCI_DIM_OF_FAULT(LARGE);
    } else if (s->n > 1 || (s->n == 1 && s->terms[0].n > 0)) {
        tci_dim_take_lock();
        d = tci_dim_intern(s);
        tci_dim_give_lock();
    }
    tci_dim_sum_end(s);
    return d;
}

/* ---- atoms ---- */

TCI_FN tci_dim tci_dim_of_atom(tci_dim_atom atom)
{
    tci_dim_sum s;
    tci_dim_take_lock();
    int index = tci_dim_atom_intern(atom);
    tci_dim_give_lock();
    if (index < 0) {
        return tci_dim_lose();
    }
    tci_dim_term term = {1, 1, {index}};
    tci_dim_sum_begin(&s);
    tci_dim_sum_add(&s, &term);
    return tci_dim_finish(&s);
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
    tci_dim_atom a = {TCI_DIM_SYMBOL,
                      ordinal,
                      (char *)(uintptr_t)(name ? name : ""),
                      0,
                      0,
                      0,
                      0,
                      least,
                      most,
                      tci_dim_middle(least, most)};
    return least == most ? least : tci_dim_of_atom(a);
}

static int tci_dim_levels(tci_dim d)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    return e ? e->levels : 0;
}

static tci_dim tci_dim_of_pair(tci_dim_kind kind, tci_dim a, tci_dim b, tci_dim_range r)
{
    const int levels = 1 + TCI_MAX(tci_dim_levels(a), tci_dim_levels(b));
    if (levels > TCI_DIM_LEVELS) {
        return TCI_DIM_OF_FAULT(LARGE);
    }
    tci_dim_atom atom = {(uint8_t)kind, -1,    (char *)(uintptr_t)"", a, b, levels, 0, r.least,
                         r.most,        r.hint};
    return tci_dim_of_atom(atom);
}

/* ---- arithmetic ---- */

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
    tci_dim_sum_begin(&s);
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
    tci_dim_sum_begin(&s);
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

/* Long division: a = q * b + r, where no term of r is a multiple of b's highest one. Begins q and
 * r. */
static void tci_dim_divide(tci_dim a, tci_dim b, tci_dim_sum *q, tci_dim_sum *r)
{
    int n;
    tci_dim_term known, factor;
    const tci_dim_term *terms = tci_dim_terms(b, &known, &n);
    tci_dim_sum left;
    tci_dim_sum_begin(&left);
    tci_dim_sum_begin(q);
    tci_dim_sum_begin(r);
    tci_dim_sum_take(&left, a, &tci_dim_one);
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
    r->no_memory = r->no_memory || left.no_memory;
    tci_dim_sum_end(&left);
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
    tci_dim_sum_begin(&s);
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
    tci_dim_sum_end(&q);
    tci_dim_sum_end(&r);
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

#endif
