/* loop/vectorize.c - vectorizes a loop along an axis: whole vectors, then a masked or scalar
 * remainder.
 *
 * In: a range of an axis, known or as index expressions, and how many vectors are taken at once.
 * Out: the loops, and for each piece a call of the body with the vectors' bindings. Within a piece
 * all vectors are whole except the last one of the range; if the length is unknown, the remainder
 * pieces are guarded by a condition. */
#include "vectorize.h"

/* ---- cuts ---- */

/* Where guard g changes along an axis that has coefficient coef in it, for values of its other
 * axes in lo..hi; false where that is not known. */
static bool tci_stage_changes(const tci_kguard *g, tci_dim coef, tci_dim lo, tci_dim hi,
                              tci_dim at[4])
{
    tci_dim glo = g->lo, ghi = g->hi;
    if (!tci_dim_is_known(coef) || !tci_dim_is_known(lo) || !tci_dim_is_known(hi) ||
        !tci_dim_is_known(glo) || !tci_dim_is_known(ghi)) {
        return false;
    }
    if (tci_dim_lt(coef, 0)) { /* mirror: -x in [-ghi, -glo] */
        tci_dim t = lo;
        lo = tci_dim_neg(hi);
        hi = tci_dim_neg(t);
        t = glo;
        glo = tci_dim_neg(ghi);
        ghi = tci_dim_neg(t);
        coef = tci_dim_neg(coef);
    }
    at[0] = tci_dim_neg(tci_dim_div(tci_dim_sub(hi, glo), coef));
    at[1] = tci_dim_neg(tci_dim_div(tci_dim_sub(lo, glo), coef));
    at[2] = tci_dim_add(tci_dim_div(tci_dim_sub(ghi, hi), coef), 1);
    at[3] = tci_dim_add(tci_dim_div(tci_dim_sub(ghi, lo), coef), 1);
    return true;
}

TCI_FN int tci_stage_cuts(tci_build *b, int axis, int64_t align, tci_dim *cuts, int max)
{
    const tci_kernel *k = b->k;
    tci_dim size = k->axes[axis].size;
    int n = 0;
    const tci_bind *saved = b->bind[axis];
    tci_build_set(b, axis, tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    for (int g = 0; g < k->n_guards; g++) {
        tci_dim at[4], coef, lo, hi;
        if (!tci_build_coef(k, k->guards[g].x, axis, &coef) || coef == 0 ||
            (b->holds && b->holds[g])) {
            continue;
        }
        tci_build_range(b, k->guards[g].x, &lo, &hi);
        for (int i = 0; tci_stage_changes(&k->guards[g], coef, lo, hi, at) && i < 8; i++) {
            tci_dim c = tci_dim_add(at[i / 2], i % 2 ? align - 1 : 0);
            c = tci_dim_mul(tci_dim_div(c, align), align);
            int j = 0;
            while (j < n && tci_dim_lt(cuts[j], c)) {
                j++;
            }
            if (tci_dim_le(c, 0) || !tci_dim_lt(c, size) || (j < n && cuts[j] == c)) {
                continue;
            }
            if (n == max) {
                tci_build_set(b, axis, saved);
                return 0;
            }
            for (int m = n++; m > j; m--) {
                cuts[m] = cuts[m - 1];
            }
            cuts[j] = c;
        }
    }
    tci_build_set(b, axis, saved);
    return n;
}

/* ---- vectors along an axis ---- */

TCI_FN const tci_bind *tci_stage_vector(tci_build *b, tci_lin at, tci_dim lo, tci_dim hi, int n)
{
    return tci_build_bind(b, at, lo, hi, b->l->lanes > 1, n);
}

TCI_FN void tci_stage_vectors(tci_build *b, tci_dim begin, tci_dim end, int unroll,
                              tci_vec_body body, void *arg)
{
    if (!tci_dim_is_known(begin) || !tci_dim_is_known(end)) {
        tci_stage_vectors_dynamic(b, tci_lx_const(b->l, begin), tci_lx_const(b->l, end), -1, begin,
                                  tci_dim_add(end, -1), unroll, body, arg);
        return;
    }
    const tci_bind *vecs[TCI_MAX_UNROLL + 1];
    int64_t lanes = b->l->lanes, group = lanes * unroll;
    int64_t first = tci_dim_known(begin), last = tci_dim_known(end);
    int64_t n_groups = TCI_MAX(last - first, 0) / group, whole = first + n_groups * group;
    if (n_groups > 0) {
        tci_lin at = tci_lin_const(first);
        tci_lopen open;
        if (n_groups > 1) {
            at = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, first),
                                              tci_lx_const(b->l, whole), group, &open));
        }
        for (int u = 0; u < unroll; u++) {
            vecs[u] = tci_stage_vector(b, tci_lin_plus(at, u * lanes), first + u * lanes,
                                       whole - group + (u + 1) * lanes - 1, -1);
        }
        body(b, arg, unroll, vecs);
        if (n_groups > 1) {
            tci_build_close(b, &open);
        }
    }
    int n = 0;
    for (int64_t at = whole; at < last; at += lanes, n++) {
        int64_t left = TCI_MIN(last - at, lanes);
        vecs[n] = tci_stage_vector(b, tci_lin_const(at), at, at + left - 1,
                                   left < lanes ? tci_lx_const(b->l, left) : -1);
    }
    if (n > 0) {
        body(b, arg, n, vecs);
    }
}

/* One partial vector [at, at + count) where count is an index expression that may be 0. */
static void tci_stage_partial(tci_build *b, tci_lin at, int count, tci_dim lo, tci_dim hi,
                              tci_vec_body body, void *arg)
{
    tci_lopen open;
    tci_build_if(b, tci_build_in_range(b, count, 1, b->l->lanes - 1), &open);
    const tci_bind *vec = tci_stage_vector(b, at, lo, hi, count);
    body(b, arg, 1, &vec);
    tci_build_close(b, &open);
}

/* A loop over whole groups of `unroll` vectors from *at; *at ends after them. */
static void tci_stage_groups(tci_build *b, tci_lin *at, int end, tci_dim lo, tci_dim hi, int unroll,
                             tci_vec_body body, void *arg)
{
    const tci_bind *vecs[TCI_MAX_UNROLL + 1];
    tci_loop *l = b->l;
    int64_t lanes = l->lanes, group = lanes * unroll;
    int start = tci_build_lx(b, *at);
    tci_lin left = tci_build_let(b, tci_lx_make(l, TCI_LX_ADD, end,
                                                tci_lx_make(l, TCI_LX_MUL, start, -1, -1), 0));
    int count = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, left), -1, group);
    count = tci_lx_make(l, TCI_LX_MUL, count, -1, group);
    tci_lin stop = tci_build_let(b, tci_lx_make(l, TCI_LX_ADD, start, count, 0));
    tci_lopen open;
    int i = tci_build_for(b, start, tci_build_lx(b, stop), group, &open);
    for (int u = 0; u < unroll; u++) {
        tci_lin v = tci_lin_plus(tci_lin_var(b, i), u * lanes);
        vecs[u] = tci_stage_vector(b, v, tci_dim_add(lo, u * lanes),
                                   tci_dim_add(hi, -(unroll - 1 - u) * lanes), -1);
    }
    body(b, arg, unroll, vecs);
    tci_build_close(b, &open);
    *at = stop;
}

TCI_FN void tci_stage_vectors_dynamic(tci_build *b, int begin, int end, int head, tci_dim lo,
                                      tci_dim hi, int unroll, tci_vec_body body, void *arg)
{
    tci_loop *l = b->l;
    tci_lin at = tci_build_let(b, begin);
    end = tci_build_lx(b,
                       tci_build_let(b, tci_lx_make(l, TCI_LX_MAX, end, tci_build_lx(b, at), 0)));
    if (head >= 0) {
        tci_lin count = tci_build_let(b, head);
        tci_stage_partial(b, at, tci_build_lx(b, count), lo, hi, body, arg);
        at = tci_lin_add(b, at, count);
    }
    tci_stage_groups(b, &at, end, lo, hi, unroll, body, arg);
    if (unroll > 1) {
        tci_stage_groups(b, &at, end, lo, hi, 1, body, arg);
    }
    if (l->lanes > 1) {
        int negated = tci_lx_make(l, TCI_LX_MUL, tci_build_lx(b, at), -1, -1);
        tci_lin left = tci_build_let(b, tci_lx_make(l, TCI_LX_ADD, end, negated, 0));
        tci_stage_partial(b, at, tci_build_lx(b, left), lo, hi, body, arg);
    }
}

/* ---- rows of unknown number ---- */

TCI_FN void tci_stage_rest_rows(tci_build *b, tci_dim size, int64_t base, tci_rest_body body,
                                void *arg)
{
    tci_dim whole = tci_dim_mul(tci_dim_div(size, base), base), rest = tci_dim_sub(size, whole);
    int rows = 1;
    while (2 * rows < base) {
        rows *= 2;
    }
    for (; rows > 0; rows /= 2) {
        tci_dim before = tci_dim_mul(tci_dim_div(rest, 2 * rows), 2 * rows);
        tci_dim there = tci_dim_mod(tci_dim_div(rest, rows), 2);
        tci_lopen open;
        tci_build_if(b, tci_build_in_range(b, tci_lx_const(b->l, there), 1, 1), &open);
        body(b, arg, tci_dim_add(whole, before), rows);
        tci_build_close(b, &open);
    }
}
