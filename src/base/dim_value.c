/* base/dim_value.c - sizes where the symbols have values, or other sizes in their place.
 *
 * In: a size; symbols and what they are replaced by, values or ranges by number. Out: the symbols
 * in it, another size, a value, bounds of it, which way it goes. */
#include "dim_expr.h"

#ifdef TC_DYNAMIC_SHAPES

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

#endif
