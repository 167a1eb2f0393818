/* base/dim.c - arithmetic on sizes; see base/dim.h, and base/dim_expr.h for what one is made of.
 *
 * In: sizes, known or symbolic. Out: sizes, interned. A result is made as a tci_dim_sum on the
 * stack, with room for as many terms as an expression may have, and finished: a number, the one
 * expression with these terms, or a fault. */
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

TCI_FN void tci_dim_sum_copy(tci_dim_sum *to, const tci_dim_sum *from)
{
    to->n = from ? from->n : 0;
    to->bad = from && from->bad;
    if (from) {
        memcpy(to->terms, from->terms, sizeof(*to->terms) * (size_t)from->n);
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
    if (s->n == TCI_DIM_TERMS) {
        s->bad = true;
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
        bool first = j == y->n ||
                     (i < x->n && tci_dim_atom_compare(x->atoms[i], y->atoms[j]) <= 0);
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
    tci_dim_give_lock();
    return d;
}

/* ---- atoms ---- */

TCI_FN tci_dim tci_dim_of_atom(tci_dim_atom atom)
{
    tci_dim_sum s;
    s.n = 1;
    memset(&s.terms[0], 0, sizeof(s.terms[0]));
    s.terms[0].coef = 1;
    s.terms[0].n = 1;
    tci_dim_take_lock();
    int index = tci_dim_atom_intern(atom);
    tci_dim_give_lock();
    s.bad = false;
    s.terms[0].atoms[0] = index;
    return index < 0 ? tci_dim_lose() : tci_dim_finish(&s);
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

#endif
