/* base/dim_bounds.c - bounds of symbolic sizes, and comparisons that follow from them.
 *
 * In: sizes. Out: bounds, saturated at +-2^61, where they carry no information; whether a <= b for
 * all values of the symbols. "No" includes "not provable". */
#include "dim_expr.h"

#ifdef TC_DYNAMIC_SHAPES

#include <string.h>

enum { TCI_DIM_DEPTH = 3 }; /* bounds looked at inside of bounds, for one comparison */

static int64_t tci_dim_clamp(int64_t v)
{
    return TCI_MIN(TCI_MAX(v, -tci_dim_limit), tci_dim_limit);
}

TCI_FN int64_t tci_dim_plus(int64_t a, int64_t b)
{
    return tci_dim_clamp(tci_dim_clamp(a) + tci_dim_clamp(b));
}

TCI_FN int64_t tci_dim_times(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    bool negative = (a < 0) != (b < 0);
    if (x && y > (uint64_t)tci_dim_limit / x) {
        return negative ? -tci_dim_limit : tci_dim_limit;
    }
    return negative ? -(int64_t)(x * y) : (int64_t)(x * y);
}

TCI_FN int64_t tci_dim_quotient(int64_t a, int64_t b)
{
    if (b == 0) {
        return 0;
    }
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

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

TCI_FN tci_dim_range tci_dim_range_of_terms(const tci_dim_term *terms, int n)
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
    tci_dim_sum_begin(&all);
    for (int t = 0; t < s->n; t++) {
        tci_dim_sum product;
        tci_dim_term coef = tci_dim_one;
        coef.coef = s->terms[t].coef;
        tci_dim_sum_begin(&product);
        tci_dim_sum_add(&product, &coef);
        for (int i = 0; i < s->terms[t].n; i++) {
            tci_dim_sum longer;
            tci_dim_sum_begin(&longer);
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
            tci_dim_sum_end(&longer);
        }
        all.bad = all.bad || product.bad;
        for (int k = 0; k < product.n && !all.bad; k++) {
            tci_dim_sum_add(&all, &product.terms[k]);
        }
        tci_dim_sum_end(&product);
    }
    bool holds = !all.bad;
    for (int t = 0; t < all.n; t++) {
        holds = holds && all.terms[t].coef >= 0;
    }
    tci_dim_sum_end(&all);
    return holds;
}

static bool tci_dim_is_never_negative(tci_dim_sum *s, int depth, int64_t scale);

/* Whether s >= 0 follows when the atom at place `at` of term t is taken for x / scale, with scale
 * above 0: all terms are multiplied by it. so_far: the product of the scales until here. */
static bool tci_dim_holds_with(const tci_dim_sum *s, int t, int at, tci_dim x, tci_dim scale,
                               bool rounded_down, int depth, int64_t so_far)
{
    TCI_DIM_COUNT();
    tci_dim_sum with;
    tci_dim_sum_begin(&with);
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
    so_far = tci_dim_is_known(scale) ? tci_dim_times(so_far, scale) : 1;
    bool holds = tci_dim_is_never_negative(&with, depth, so_far < tci_dim_limit ? so_far : 1);
    tci_dim_sum_end(&with);
    return holds;
}

/* The other atoms of the term are never negative, so a bound of this one bounds the term. */
static bool tci_dim_holds_by(const tci_dim_sum *s, int t, int at, int depth, int64_t scale)
{
    const tci_dim_atom *a = tci_dim_atom_at(s->terms[t].atoms[at]);
    bool more = s->terms[t].coef > 0;
    for (int i = 0; i < s->terms[t].n; i++) {
        if (i != at && tci_dim_atom_at(s->terms[t].atoms[i])->least < 0) {
            return false;
        }
    }
    if (a->kind == TCI_DIM_DIV) {
        return tci_dim_least(a->b) >= 1 &&
               tci_dim_holds_with(s, t, at, a->a, a->b, more, depth, scale);
    }
    bool first = tci_dim_holds_with(s, t, at, a->a, 1, false, depth, scale);
    bool either = more == (a->kind == TCI_DIM_MAX);
    if (first == either) {
        return first;
    }
    return tci_dim_holds_with(s, t, at, a->b, 1, false, depth, scale);
}

/* By its bounds, or those of what is left when a common factor goes, or with a quotient, minimum or
 * maximum in it replaced by what bounds it. Takes common factors out of s. s is a lower bound of
 * `scale` times a whole number, which is not negative if it is above -1. */
static bool tci_dim_is_never_negative(tci_dim_sum *s, int depth, int64_t scale)
{
    if (s->bad) {
        return false;
    }
    bool again = true;
    while (again) {
        if (tci_dim_range_of_terms(s->terms, s->n).least > -scale || tci_dim_is_above_least(s)) {
            return true;
        }
        again = tci_dim_factor(s);
        scale = again ? 1 : scale;
    }
    for (int t = 0; depth > 0 && t < s->n; t++) {
        for (int at = 0; at < s->terms[t].n; at++) {
            if (tci_dim_atom_at(s->terms[t].atoms[at])->kind != TCI_DIM_SYMBOL &&
                tci_dim_holds_by(s, t, at, depth - 1, scale)) {
                return true;
            }
        }
    }
    return false;
}

TCI_FN bool tci_dim_le_any(tci_dim a, tci_dim b)
{
    tci_dim_sum s;
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
    tci_dim_sum_begin(&s);
    tci_dim_sum_take(&s, b, &tci_dim_one);
    tci_dim_sum_take(&s, a, &minus);
    bool holds = tci_dim_is_never_negative(&s, TCI_DIM_DEPTH, 1);
    tci_dim_sum_end(&s);
    return holds;
}

#endif
