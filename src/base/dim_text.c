/* base/dim_text.c - sizes as text for messages, and as words for the disk and back. */
#include "dim_expr.h"

#ifdef TC_DYNAMIC_SHAPES

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

static void tci_dim_print_c_atom(tci_str *out, int32_t index, const char *prefix)
{
    static const char *const words[] = {"", "div", "min", "max"};
    const tci_dim_atom *a = tci_dim_atom_at(index);
    if (a->kind == TCI_DIM_SYMBOL) {
        tci_str_printf(out, "s%d", a->ordinal);
        return;
    }
    tci_str_printf(out, "%s_%s(", prefix, words[a->kind]);
    tci_dim_print_c(out, a->a, prefix);
    tci_str_add(out, ", ");
    tci_dim_print_c(out, a->b, prefix);
    tci_str_add(out, ")");
}

TCI_FN void tci_dim_print_c(tci_str *out, tci_dim d, const char *prefix)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    if (!e) {
        tci_str_printf(out, "%lld", tci_dim_is_known(d) ? (long long)d : 0);
        return;
    }
    tci_str_add(out, e->n > 1 ? "(" : "");
    for (int t = 0; t < e->n; t++) {
        const tci_dim_term *term = &e->terms[t];
        bool has_coef = term->coef != 1 || term->n == 0;
        tci_str_add(out, t ? " + " : "");
        if (has_coef) {
            tci_str_printf(out, "%lldll", (long long)term->coef);
        }
        for (int i = 0; i < term->n; i++) {
            tci_str_add(out, i || has_coef ? " * " : "");
            tci_dim_print_c_atom(out, term->atoms[i], prefix);
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

#endif
