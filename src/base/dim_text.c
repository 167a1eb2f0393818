/* base/dim_text.c - prints symbolic sizes as text for messages, and serializes them for files. */
#include "dim_expr.h"

#ifdef TC_DYNAMIC_SHAPES

enum { TCI_DIM_PRINTED = 4000 }; /* characters of one size, about; "..." stands for more */

/* Prints until the text is `end` long. */
static void tci_dim_print_to(tci_str *out, tci_dim d, size_t end);

static void tci_dim_print_atom(tci_str *out, int32_t index, size_t end)
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
    tci_dim_print_to(out, a->a, end);
    tci_str_add(out, a->kind == TCI_DIM_DIV ? " / " : ", ");
    tci_dim_print_to(out, a->b, end);
    tci_str_add(out, ")");
}

static void tci_dim_print_to(tci_str *out, tci_dim d, size_t end)
{
    const tci_dim_expr *e = tci_dim_is_known(d) ? NULL : tci_dim_expr_of(d);
    if (!e) {
        tci_str_printf(out, tci_dim_is_known(d) ? "%lld" : "?", (long long)d);
        return;
    }
    if (out->failed || out->n >= end) {
        tci_str_add(out, "...");
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
            tci_dim_print_atom(out, term->atoms[i], end);
        }
    }
    tci_str_add(out, e->n > 1 ? ")" : "");
}

TCI_FN void tci_dim_print(tci_str *out, tci_dim d)
{
    tci_dim_print_to(out, d, out->n + TCI_DIM_PRINTED);
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
 * symbol's number or its two expressions. One that was there before is SAME, then its number among
 * those that are no symbols, in the order in which they end ---- */

enum { TCI_DIM_SAME = TCI_DIM_MAX + 1 };

typedef struct tci_dim_writer {
    int64_t *words; /* NULL: counts only */
    int at, n_atoms;
    tci_dim_memo memo;
} tci_dim_writer;

static void tci_dim_put(tci_dim_writer *w, int64_t v)
{
    if (w->words) {
        w->words[w->at] = v;
    }
    w->at++;
}

static void tci_dim_write_sum(tci_dim_writer *w, tci_dim d);

static void tci_dim_write_atom(tci_dim_writer *w, int32_t index)
{
    const tci_dim_atom *a = tci_dim_atom_at(index);
    const tci_dim_note *note = tci_dim_memo_find(&w->memo, index);
    tci_dim_put(w, note ? TCI_DIM_SAME : a->kind);
    if (note || a->kind == TCI_DIM_SYMBOL) {
        tci_dim_put(w, note ? note->a : a->ordinal);
        return;
    }
    tci_dim_write_sum(w, a->a);
    tci_dim_write_sum(w, a->b);
    tci_dim_memo_put(&w->memo, index, w->n_atoms++, 0);
}

static void tci_dim_write_sum(tci_dim_writer *w, tci_dim d)
{
    int n;
    tci_dim_term known;
    const tci_dim_term *terms = tci_dim_terms(d, &known, &n);
    tci_dim_put(w, TCI_MAX(n, 0));
    for (int t = 0; t < n; t++) {
        tci_dim_put(w, terms[t].coef);
        tci_dim_put(w, terms[t].n);
        for (int i = 0; i < terms[t].n; i++) {
            tci_dim_write_atom(w, terms[t].atoms[i]);
        }
    }
}

TCI_FN int tci_dim_write(tci_dim d, int64_t *words)
{
    tci_dim_writer w = {words, 0, 0, {.n_slots = 0}};
    tci_dim_write_sum(&w, d);
    tci_dim_memo_end(&w.memo);
    return w.at;
}

typedef struct tci_dim_reader {
    const int64_t **words, *end;
    const tci_dim *symbols;
    int n_symbols;
    bool bad;
    tci_dim *atoms; /* read before: room for as many as there are words */
    int n_atoms;
} tci_dim_reader;

static int64_t tci_dim_next(tci_dim_reader *r, int64_t lo, int64_t hi)
{
    int64_t v = *r->words < r->end ? *(*r->words)++ : lo - 1;
    r->bad = r->bad || v < lo || v > hi;
    return r->bad ? lo : v;
}

static tci_dim tci_dim_read_sum(tci_dim_reader *r, int depth);

static tci_dim tci_dim_read_atom(tci_dim_reader *r, int depth)
{
    int64_t kind = tci_dim_next(r, TCI_DIM_SYMBOL, TCI_DIM_SAME);
    if (kind == TCI_DIM_SYMBOL || kind == TCI_DIM_SAME) {
        bool same = kind == TCI_DIM_SAME;
        int64_t at = tci_dim_next(r, 0, same ? r->n_atoms - 1 : r->n_symbols - 1);
        return r->bad ? 0 : same ? r->atoms[at] : r->symbols[at];
    }
    tci_dim a = tci_dim_read_sum(r, depth + 1), b = tci_dim_read_sum(r, depth + 1);
    tci_dim atom = r->bad ? 0 : tci_dim_join((int)kind, a, b);
    if (!r->bad) {
        r->atoms[r->n_atoms++] = atom;
    }
    return atom;
}

static tci_dim tci_dim_read_sum(tci_dim_reader *r, int depth)
{
    tci_dim sum = 0;
    r->bad = r->bad || depth > TCI_DIM_LEVELS;
    int64_t terms = tci_dim_next(r, 0, TCI_DIM_TERMS);
    for (int64_t t = 0; t < terms && !r->bad; t++) {
        tci_dim product = tci_dim_next(r, -tci_dim_limit, tci_dim_limit);
        int64_t atoms = tci_dim_next(r, 0, TCI_DIM_ATOMS);
        for (int64_t i = 0; i < atoms && !r->bad; i++) {
            product = tci_dim_mul(product, tci_dim_read_atom(r, depth));
        }
        sum = tci_dim_add(sum, product);
    }
    return sum;
}

TCI_FN tci_dim tci_dim_read(const int64_t **words, const int64_t *end, const tci_dim *symbols,
                            int n)
{
    tci_dim_reader r = {words, end, symbols, n, false, NULL, 0};
    r.atoms = tci_heap_get(sizeof(*r.atoms) * (size_t)(TCI_MAX(end - *words, 0) + 1));
    if (!r.atoms) {
        return TCI_DIM_OF_FAULT(MEMORY);
    }
    tci_dim d = tci_dim_read_sum(&r, 0);
    tci_heap_free(r.atoms);
    return r.bad ? TCI_DIM_OF_FAULT(NONE) : d;
}

#endif
