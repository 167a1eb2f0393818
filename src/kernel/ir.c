/* kernel/ir.c - constructs the kernel IR (kernel/ir.h). Everything is hash-consed, so equal values
 * and equal index expressions have equal numbers.
 *
 * An index expression is kept as a sum of terms in canonical order: atoms (AXIS, DIV, MOD, VALUE,
 * BOUND) ascending, each times its coefficient, the constant last. tci_kx_linear takes it apart,
 * tci_kx_join reassembles it, and also joins a quotient with its remainder; div and mod extract
 * divisible terms and drop what the ranges prove unnecessary, so that the maps of reshapes become
 * affine wherever the sizes allow. */
#include "../base/hash.h"
#include "ir.h"

typedef struct tci_kx_term {
    int32_t atom;
    tci_dim coef;
} tci_kx_term;
typedef struct tci_kx_sum {
    tci_kx_term *terms;
    int n, cap;
    tci_dim base;
} tci_kx_sum;

TCI_FN tci_kernel *tci_kernel_make(tci_scratch *s)
{
    tci_kernel *k = TCI_NEW(s, tci_kernel);
    k->s = s;
    return k;
}

TCI_FN int tci_kernel_lanes(const tci_kernel *k)
{
    for (int r = 0; r < k->n_reds; r++) {
        bool lanes = k->reds[r].order == TCI_ORDER_LANES;
        if (lanes || k->reds[r].order == TCI_ORDER_BLOCK_SCAN) {
            return k->reds[r].order_n;
        }
    }
    return TCI_VLANES;
}

TCI_FN int tci_kernel_near(const tci_kernel *k)
{
    int near = 0;
    for (int r = 0; r < k->n_reds; r++) {
        near = TCI_MAX(near, k->reds[r].near);
    }
    return near;
}

TCI_FN int tci_kernel_axis(tci_kernel *k, tci_dim size, bool inner)
{
    tci_kaxis axis = {size, inner};
    TCI_PUSH(k->s, k->axes, k->n_axes, k->cap_axes, axis);
    if (!inner) {
        k->n_outer++;
    }
    return k->n_axes - 1;
}

/* ---- hash tables: open addressing over indices + 1, at most half full ---- */

static uint64_t tci_kernel_hash_words(const int64_t *words, int n)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < n; i++) {
        h = tci_hash_mix(h, (uint64_t)words[i]);
    }
    return h;
}

static uint64_t tci_kx_hash_of(const tci_kx *x)
{
    int64_t words[4] = {x->op, x->a, x->b, (int64_t)x->c};
    return tci_kernel_hash_words(words, 4);
}

static uint64_t tci_kernel_inst_hash_of(const tci_kinst *i)
{
    int64_t words[12] = {i->op,      i->prim, i->dtype, i->n_args,   i->args[0],      i->args[1],
                         i->args[2], i->x,    i->guard, i->n_guards, (int64_t)i->imm, i->value.i};
    return tci_kernel_hash_words(words, 12);
}

static bool tci_kernel_inst_same(const tci_kinst *a, const tci_kinst *b)
{
    return a->op == b->op && a->prim == b->prim && a->dtype == b->dtype && a->n_args == b->n_args &&
           a->args[0] == b->args[0] && a->args[1] == b->args[1] && a->args[2] == b->args[2] &&
           a->x == b->x && a->guard == b->guard && a->n_guards == b->n_guards && a->imm == b->imm &&
           a->value.i == b->value.i;
}

static void tci_kernel_table_put(int32_t *table, int n_table, uint64_t hash, int index)
{
    uint64_t at = hash & (uint64_t)(n_table - 1);
    while (table[at]) {
        at = (at + 1) & (uint64_t)(n_table - 1);
    }
    table[at] = index + 1;
}

static uint64_t tci_kernel_axis_bit(int64_t axis)
{
    return (uint64_t)1 << TCI_MIN(axis, 63);
}

static void tci_kx_derive(const tci_kernel *k, tci_kx *x)
{
    x->axes = x->op == TCI_KX_AXIS ? tci_kernel_axis_bit(tci_kx_number(x)) : 0;
    x->stage = -1;
    if (x->op == TCI_KX_VALUE) {
        x->axes = k->insts[tci_kx_number(x)].axes;
        x->stage = k->insts[tci_kx_number(x)].stage;
    }
    if (x->a >= 0) {
        x->axes |= k->kx[x->a].axes;
        x->stage = TCI_MAX(x->stage, k->kx[x->a].stage);
    }
    if (x->b >= 0) {
        x->axes |= k->kx[x->b].axes;
        x->stage = TCI_MAX(x->stage, k->kx[x->b].stage);
    }
}

/* Adds x (without canonicalising) or finds its equal. */
static int tci_kx_intern(tci_kernel *k, uint8_t op, int a, int b, tci_dim c, tci_dim lo, tci_dim hi)
{
    tci_kx x = {op, a, b, c, lo, hi, 0, -1};
    if (k->n_kx * 2 >= k->n_kx_hash) {
        k->n_kx_hash = k->n_kx_hash ? k->n_kx_hash * 2 : 64;
        k->kx_hash = TCI_NEW_ARRAY(k->s, int32_t, k->n_kx_hash);
        for (int i = 0; i < k->n_kx; i++) {
            tci_kernel_table_put(k->kx_hash, k->n_kx_hash, tci_kx_hash_of(&k->kx[i]), i);
        }
    }
    uint64_t hash = tci_kx_hash_of(&x);
    uint64_t mask = (uint64_t)(k->n_kx_hash - 1);
    for (uint64_t at = hash & mask; k->kx_hash[at]; at = (at + 1) & mask) {
        const tci_kx *y = &k->kx[k->kx_hash[at] - 1];
        bool same = op != TCI_KX_BOUND || (y->lo == lo && y->hi == hi);
        if (y->op == op && y->a == a && y->b == b && y->c == c && same) {
            return k->kx_hash[at] - 1;
        }
    }
    tci_kx_derive(k, &x);
    TCI_PUSH(k->s, k->kx, k->n_kx, k->cap_kx, x);
    tci_kernel_table_put(k->kx_hash, k->n_kx_hash, hash, k->n_kx - 1);
    return k->n_kx - 1;
}

/* ---- index expressions ---- */

/* A common divisor: the greatest of known numbers, else one that divides the other, or 1. */
static tci_dim tci_kx_gcd(tci_dim a, tci_dim b)
{
    if (!tci_dim_is_known(a) || !tci_dim_is_known(b)) {
        bool known = tci_dim_is_known(a) && tci_dim_known(a) <= 0;
        return !known && tci_dim_divides(a, b) ? a : 1;
    }
    int64_t x = tci_dim_known(a), y = tci_dim_known(b);
    while (y) {
        int64_t r = x % y;
        x = y;
        y = r;
    }
    return x < 0 ? -x : x;
}

TCI_FN int tci_kx_const(tci_kernel *k, tci_dim c)
{
    return tci_kx_intern(k, TCI_KX_CONST, -1, -1, c, c, c);
}

/* An axis of size 1 is the constant 0, so that index maps compare equal whatever axis stands
 * there. */
TCI_FN int tci_kx_axis(tci_kernel *k, int axis)
{
    tci_dim size = k->axes[axis].size;
    if (size == 1) {
        return tci_kx_const(k, 0);
    }
    return tci_kx_intern(k, TCI_KX_AXIS, -1, -1, axis, 0, size == 0 ? 0 : tci_dim_add(size, -1));
}

static void tci_kx_sum_add(tci_kernel *k, tci_kx_sum *sum, int atom, tci_dim coef)
{
    int at = 0;
    while (at < sum->n && sum->terms[at].atom < atom) {
        at++;
    }
    if (at < sum->n && sum->terms[at].atom == atom) {
        sum->terms[at].coef = tci_dim_add(sum->terms[at].coef, coef);
        if (sum->terms[at].coef == 0) {
            sum->n--;
            for (int i = at; i < sum->n; i++) {
                sum->terms[i] = sum->terms[i + 1];
            }
        }
        return;
    }
    tci_kx_term none = {0, 0};
    TCI_PUSH(k->s, sum->terms, sum->n, sum->cap, none);
    for (int i = sum->n - 1; i > at; i--) {
        sum->terms[i] = sum->terms[i - 1];
    }
    sum->terms[at].atom = atom;
    sum->terms[at].coef = coef;
}

/* sum += scale * x */
static void tci_kx_linear(tci_kernel *k, int x, tci_dim scale, tci_kx_sum *sum)
{
    while (k->kx[x].op == TCI_KX_ADD) {
        tci_kx_linear(k, k->kx[x].b, scale, sum);
        x = k->kx[x].a;
    }
    tci_kx e = k->kx[x];
    if (e.op == TCI_KX_CONST) {
        sum->base = tci_dim_add(sum->base, tci_dim_mul(scale, e.c));
    } else if (e.op == TCI_KX_MUL) {
        tci_kx_sum_add(k, sum, e.a, tci_dim_mul(scale, e.c));
    } else {
        tci_kx_sum_add(k, sum, x, scale);
    }
}

/* c times an atom. */
static int tci_kx_scaled(tci_kernel *k, int atom, tci_dim c)
{
    tci_dim lo = tci_dim_mul(k->kx[atom].lo, c), hi = tci_dim_mul(k->kx[atom].hi, c);
    return tci_kx_intern(k, TCI_KX_MUL, atom, -1, c, tci_dim_min(lo, hi), tci_dim_max(lo, hi));
}

static int tci_kx_quotient(tci_kernel *k, int y, tci_dim c);

/* m * (y mod c) + m * c * floor(y / c) = m * y: what a reshape takes apart and another, or an
 * offset in memory, puts together. */
static bool tci_kx_sum_rejoin(tci_kernel *k, tci_kx_sum *sum)
{
    for (int i = 0; i < sum->n; i++) {
        tci_kx e = k->kx[sum->terms[i].atom];
        if (e.op != TCI_KX_MOD) {
            continue;
        }
        tci_dim m = sum->terms[i].coef, whole = tci_dim_mul(m, e.c);
        int other = -1;
        for (int j = 0; j < sum->n && other < 0; j++) {
            bool fits = k->kx[sum->terms[j].atom].op == TCI_KX_DIV && sum->terms[j].coef == whole;
            other = fits && sum->terms[j].atom == tci_kx_quotient(k, e.a, e.c) ? j : -1;
        }
        if (other >= 0) {
            int mod = sum->terms[i].atom, div = sum->terms[other].atom;
            tci_kx_sum_add(k, sum, mod, tci_dim_neg(m));
            tci_kx_sum_add(k, sum, div, tci_dim_neg(whole));
            tci_kx_linear(k, e.a, m, sum);
            return true;
        }
    }
    return false;
}

static int tci_kx_plus(tci_kernel *k, int a, int b)
{
    return tci_kx_intern(k, TCI_KX_ADD, a, b, 0, tci_dim_add(k->kx[a].lo, k->kx[b].lo),
                         tci_dim_add(k->kx[a].hi, k->kx[b].hi));
}

static int tci_kx_join(tci_kernel *k, tci_kx_sum *sum)
{
    int all = -1;
    while (tci_kx_sum_rejoin(k, sum)) {
    }
    for (int i = 0; i < sum->n; i++) {
        int term = sum->terms[i].atom;
        if (sum->terms[i].coef != 1) {
            term = tci_kx_scaled(k, term, sum->terms[i].coef);
        }
        all = all < 0 ? term : tci_kx_plus(k, all, term);
    }
    if (all < 0 || sum->base == 0) {
        return all < 0 ? tci_kx_const(k, sum->base) : all;
    }
    return tci_kx_plus(k, all, tci_kx_const(k, sum->base));
}

TCI_FN int tci_kx_add(tci_kernel *k, int a, int b)
{
    tci_kx_sum sum = {0};
    tci_kx_linear(k, a, 1, &sum);
    tci_kx_linear(k, b, 1, &sum);
    return tci_kx_join(k, &sum);
}

TCI_FN int tci_kx_mul(tci_kernel *k, int a, tci_dim c)
{
    tci_kx_sum sum = {0};
    if (c != 0) {
        tci_kx_linear(k, a, c, &sum);
    }
    return tci_kx_join(k, &sum);
}

/* coef as whole * c + rest, towards 0, so that both grow with coef; symbolic ones only where that
 * leaves a number. */
static tci_dim tci_kx_whole(tci_dim coef, tci_dim c)
{
    if (tci_dim_is_known(coef) && tci_dim_is_known(c)) {
        return tci_dim_known(coef) / tci_dim_known(c);
    }
    tci_dim whole = tci_dim_div(coef, c);
    return tci_dim_is_known(tci_dim_sub(coef, tci_dim_mul(whole, c))) ? whole : 0;
}

/* Splits x into out * c + rest: of each coefficient what c divides, and the others. */
static void tci_kx_divide(tci_kernel *k, int x, tci_dim c, tci_kx_sum *out, tci_kx_sum *rest)
{
    tci_kx_sum sum = {0};
    tci_kx_linear(k, x, 1, &sum);
    for (int i = 0; i < sum.n; i++) {
        int atom = sum.terms[i].atom;
        tci_dim whole = tci_kx_whole(sum.terms[i].coef, c);
        tci_dim left = tci_dim_sub(sum.terms[i].coef, tci_dim_mul(whole, c));
        if (whole != 0) {
            tci_kx_sum_add(k, out, atom, whole);
        }
        if (left != 0) {
            tci_kx_sum_add(k, rest, atom, left);
        }
    }
    out->base = tci_dim_div(sum.base, c);
    rest->base = tci_dim_mod(sum.base, c);
}

static tci_dim tci_kx_sum_gcd(const tci_kx_sum *sum, tci_dim c)
{
    for (int i = 0; i < sum->n; i++) {
        c = tci_kx_gcd(c, sum->terms[i].coef);
    }
    return c;
}

static void tci_kx_sum_scale_down(tci_kx_sum *sum, tci_dim g)
{
    for (int i = 0; i < sum->n; i++) {
        sum->terms[i].coef = tci_dim_div(sum->terms[i].coef, g);
    }
    sum->base = tci_dim_div(sum->base, g);
}

/* Where floor(x / c) takes two values, one for each value of x, it is x moved to 0 .. 1. */
static bool tci_kx_is_step(const tci_kernel *k, int x, tci_dim c, tci_dim *q)
{
    tci_dim lo = k->kx[x].lo, hi = k->kx[x].hi;
    *q = tci_dim_div(lo, c);
    return tci_dim_sub(hi, lo) == 1 && tci_dim_div(hi, c) == tci_dim_add(*q, 1);
}

/* Numbers far below overflow, whatever they are multiplied with here. */
static bool tci_kx_is_small(const tci_kernel *k, int x, tci_dim c)
{
    const int64_t limit = (int64_t)1 << 30;
    tci_dim lo = k->kx[x].lo, hi = k->kx[x].hi;
    return tci_dim_is_known(lo) && tci_dim_is_known(hi) && tci_dim_is_known(c) &&
           tci_dim_le(-limit, lo) && tci_dim_le(hi, limit) && tci_dim_le(c, limit);
}

/* floor((A + floor(B / d)) / c) = floor((d A + B) / (c d)): one division for two. rest: of x. */
static bool tci_kx_nested(tci_kernel *k, const tci_kx_sum *rest, int x, tci_dim *c, int *inner)
{
    for (int i = 0; i < rest->n; i++) {
        tci_kx e = k->kx[rest->terms[i].atom];
        if (e.op != TCI_KX_DIV || rest->terms[i].coef != 1 ||
            (rest->n > 1 && !tci_kx_is_small(k, x, tci_dim_mul(*c, e.c)))) {
            continue;
        }
        tci_kx_sum sum = {0};
        for (int j = 0; j < rest->n; j++) {
            if (j != i) {
                tci_kx_linear(k, rest->terms[j].atom, tci_dim_mul(e.c, rest->terms[j].coef), &sum);
            }
        }
        sum.base = tci_dim_mul(e.c, rest->base);
        tci_kx_linear(k, e.a, 1, &sum);
        *c = tci_dim_mul(*c, e.c);
        *inner = tci_kx_join(k, &sum);
        return true;
    }
    return false;
}

/* floor((g r + b) / (g c)) = floor((r + floor(b / g)) / c) for integers r, so a common factor
 * goes. */
TCI_FN int tci_kx_div(tci_kernel *k, int a, tci_dim c)
{
    if (c == 1) {
        return a;
    }
    tci_kx_sum out = {0}, rest = {0};
    tci_kx_divide(k, a, c, &out, &rest);
    tci_dim g = tci_kx_sum_gcd(&rest, c), q;
    tci_kx_sum_scale_down(&rest, g);
    c = tci_dim_div(c, g);
    int r = tci_kx_join(k, &rest), x;
    tci_dim lo = tci_dim_div(k->kx[r].lo, c), hi = tci_dim_div(k->kx[r].hi, c);
    if (lo == hi) {
        out.base = tci_dim_add(out.base, lo);
    } else if (c == 1) {
        tci_kx_linear(k, r, 1, &out);
    } else if (tci_kx_is_step(k, r, c, &q)) {
        tci_kx_linear(k, r, 1, &out);
        out.base = tci_dim_add(out.base, tci_dim_sub(q, k->kx[r].lo));
    } else if (tci_kx_nested(k, &rest, r, &c, &x)) {
        tci_kx_linear(k, tci_kx_div(k, x, c), 1, &out);
    } else {
        tci_kx_linear(k, tci_kx_intern(k, TCI_KX_DIV, r, -1, c, lo, hi), 1, &out);
    }
    return tci_kx_join(k, &out);
}

/* The atom of floor(y / c), for the argument and divisor of a MOD; -1: it is a sum. */
static int tci_kx_quotient(tci_kernel *k, int y, tci_dim c)
{
    int q = tci_kx_div(k, y, c);
    return k->kx[q].op == TCI_KX_DIV ? q : -1;
}

/* Remainders of multiples of c are those of what they are remainders of. */
static bool tci_kx_sum_unmod(tci_kernel *k, tci_kx_sum *sum, tci_dim c)
{
    for (int i = 0; i < sum->n; i++) {
        tci_kx e = k->kx[sum->terms[i].atom];
        tci_dim m = sum->terms[i].coef;
        if (e.op == TCI_KX_MOD && tci_dim_divides(c, tci_dim_mul(m, e.c))) {
            tci_kx_sum_add(k, sum, sum->terms[i].atom, tci_dim_neg(m));
            tci_kx_linear(k, e.a, m, sum);
            return true;
        }
    }
    return false;
}

TCI_FN int tci_kx_mod(tci_kernel *k, int a, tci_dim c)
{
    if (c == 1) {
        return tci_kx_const(k, 0);
    }
    tci_kx_sum out = {0}, rest = {0};
    tci_kx_divide(k, a, c, &out, &rest);
    int r = tci_kx_join(k, &rest);
    tci_dim q = tci_dim_div(k->kx[r].lo, c), step;
    if (q == tci_dim_div(k->kx[r].hi, c)) {
        return tci_kx_add(k, r, tci_kx_const(k, tci_dim_neg(tci_dim_mul(q, c))));
    }
    if (tci_kx_is_step(k, r, c, &step)) { /* r - c (r - lo + step) */
        tci_kx_sum sum = {0};
        tci_kx_linear(k, r, tci_dim_sub(1, c), &sum);
        sum.base = tci_dim_add(sum.base, tci_dim_mul(c, tci_dim_sub(k->kx[r].lo, step)));
        return tci_kx_join(k, &sum);
    }
    tci_dim g = tci_kx_sum_gcd(&rest, c);
    if (g != 1) { /* mod(g r + b, g c) = g mod(r + floor(b / g), c) + b mod g */
        tci_dim b = tci_dim_mod(rest.base, g);
        tci_kx_sum_scale_down(&rest, g);
        int scaled = tci_kx_mul(k, tci_kx_mod(k, tci_kx_join(k, &rest), tci_dim_div(c, g)), g);
        return tci_kx_add(k, scaled, tci_kx_const(k, b));
    }
    if (tci_kx_sum_unmod(k, &rest, c)) {
        return tci_kx_mod(k, tci_kx_join(k, &rest), c);
    }
    return tci_kx_intern(k, TCI_KX_MOD, r, -1, c, 0, tci_dim_add(c, -1));
}

TCI_FN int tci_kx_value(tci_kernel *k, int inst, tci_dim lo, tci_dim hi)
{
    return tci_kx_intern(k, TCI_KX_VALUE, -1, -1, inst, lo, hi);
}

TCI_FN int tci_kx_bound(tci_kernel *k, int x, tci_dim lo, tci_dim hi)
{
    tci_kx e = k->kx[x];
    lo = tci_dim_le(lo, e.lo) ? e.lo : lo;
    hi = tci_dim_le(e.hi, hi) ? e.hi : hi;
    if (lo == e.lo && hi == e.hi) {
        return x;
    }
    return lo == hi ? tci_kx_const(k, lo)
                    : tci_kx_intern(k, TCI_KX_BOUND, e.op == TCI_KX_BOUND ? e.a : x, -1, 0, lo, hi);
}

TCI_FN bool tci_kx_affine(const tci_kernel *k, int x, tci_dim *coef, tci_dim *base)
{
    for (int i = 0; i < k->n_axes; i++) {
        coef[i] = 0;
    }
    *base = 0;
    for (;;) {
        tci_kx e = k->kx[x];
        int rest = -1;
        if (e.op == TCI_KX_ADD) {
            rest = e.a;
            e = k->kx[e.b];
        }
        tci_dim c = 1;
        if (e.op == TCI_KX_MUL) {
            c = e.c;
            e = k->kx[e.a];
        }
        if (e.op == TCI_KX_CONST) {
            *base = tci_dim_add(*base, tci_dim_mul(c, e.c));
        } else if (e.op == TCI_KX_AXIS) {
            coef[tci_kx_number(&e)] = tci_dim_add(coef[tci_kx_number(&e)], c);
        } else {
            return false;
        }
        if (rest < 0) {
            return true;
        }
        x = rest;
    }
}

TCI_FN bool tci_kx_affine_known(const tci_kernel *k, int x, int64_t *coef, int64_t *base)
{
    tci_dim at, *own = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes + 1);
    bool known = tci_kx_affine(k, x, own, &at) && tci_dim_is_known(at);
    for (int i = 0; i < k->n_axes && known; i++) {
        known = tci_dim_is_known(own[i]);
        coef[i] = tci_dim_known(own[i]);
    }
    *base = known ? tci_dim_known(at) : 0;
    return known;
}

TCI_FN uint64_t tci_kx_axes(const tci_kernel *k, int x)
{
    return k->kx[x].axes;
}

/* ---- instructions ---- */

static void tci_kernel_inst_derive(const tci_kernel *k, tci_kinst *i)
{
    i->axes = 0;
    i->stage = -1;
    for (int a = 0; a < i->n_args; a++) {
        i->axes |= k->insts[i->args[a]].axes;
        i->stage = TCI_MAX(i->stage, k->insts[i->args[a]].stage);
    }
    if (i->x >= 0) {
        i->axes |= k->kx[i->x].axes;
        i->stage = TCI_MAX(i->stage, k->kx[i->x].stage);
    }
    for (int g = 0; g < i->n_guards; g++) {
        i->axes |= k->kx[k->guards[i->guard + g].x].axes;
        i->stage = TCI_MAX(i->stage, k->kx[k->guards[i->guard + g].x].stage);
    }
    /* a function of the outer point; a SCAN's value of the step, others of what is kept as well */
    if (i->op == TCI_K_RED) {
        int32_t stage = k->reds[tci_kinst_number(i)].stage;
        for (int a = 0; a < k->n_outer; a++) {
            i->axes |= tci_kernel_axis_bit(a);
        }
        const tci_kstage *st = &k->stages[stage];
        int of_step = st->kind == TCI_STAGE_SCAN ? 0 : st->n_axes - st->n_kept;
        for (int a = of_step; a < st->n_axes; a++) {
            i->axes |= tci_kernel_axis_bit(st->axes[a]);
        }
        i->stage = stage;
    }
}

TCI_FN int tci_kernel_first_same(const tci_kernel *k, int i)
{
    int first = 0;
    while (k->members[first] != k->members[i]) {
        first++;
    }
    return first;
}

TCI_FN const tci_kred *tci_kernel_earlier(const tci_kernel *k)
{
    const tci_kred *found = NULL;
    for (int r = 0; r < k->n_reds; r++) {
        found = k->reds[r].earlier ? &k->reds[r] : found;
    }
    return found;
}

TCI_FN int64_t tci_kernel_parts(const tci_kernel *k)
{
    const tci_kred *red = tci_kernel_earlier(k);
    int64_t parts = 1;
    for (int a = k->n_outer - (red ? red->earlier : 0); a < k->n_outer; a++) {
        parts *= tci_kernel_known(k, a);
    }
    return parts;
}

TCI_FN int64_t tci_kernel_group(const tci_kernel *k)
{
    int64_t parts = tci_kernel_parts(k), group = TCI_KERNEL_GROUP;
    while (group * group < parts) {
        group *= 2;
    }
    return group;
}

TCI_FN bool tci_kernel_keeps(const tci_kernel *k)
{
    bool keeps = false;
    for (int t = 0; t < k->n_stages; t++) {
        keeps |= k->stages[t].n_kept > 0;
    }
    return keeps;
}

TCI_FN int tci_kernel_inst(tci_kernel *k, tci_kinst inst)
{
    if (k->n_insts * 2 >= k->n_inst_hash) {
        k->n_inst_hash = k->n_inst_hash ? k->n_inst_hash * 2 : 64;
        k->inst_hash = TCI_NEW_ARRAY(k->s, int32_t, k->n_inst_hash);
        for (int i = 0; i < k->n_insts; i++) {
            tci_kernel_table_put(k->inst_hash, k->n_inst_hash,
                                 tci_kernel_inst_hash_of(&k->insts[i]), i);
        }
    }
    for (int i = inst.n_args; i < 3; i++) {
        inst.args[i] = -1;
    }
    uint64_t hash = tci_kernel_inst_hash_of(&inst);
    uint64_t mask = (uint64_t)(k->n_inst_hash - 1);
    for (uint64_t at = hash & mask; k->inst_hash[at]; at = (at + 1) & mask) {
        if (tci_kernel_inst_same(&k->insts[k->inst_hash[at] - 1], &inst)) {
            return k->inst_hash[at] - 1;
        }
    }
    tci_kernel_inst_derive(k, &inst);
    TCI_PUSH(k->s, k->insts, k->n_insts, k->cap_insts, inst);
    tci_kernel_table_put(k->inst_hash, k->n_inst_hash, hash, k->n_insts - 1);
    return k->n_insts - 1;
}

/* dtype: of the operands, or of the result for the rows whose result is given separately (CAST,
 * BITS, TOINT); compares give bool. */
TCI_FN int tci_kernel_prim(tci_kernel *k, tci_prim p, tc_dtype dtype, int n, int a, int b, int c)
{
    tci_kinst i = {0};
    i.op = TCI_K_PRIM;
    i.prim = (uint8_t)p;
    i.dtype = (int8_t)(tci_prim_get(p)->result == 'B' ? TC_BOOL : dtype);
    i.n_args = (uint8_t)n;
    i.args[0] = a;
    i.args[1] = b;
    i.args[2] = c;
    i.x = -1;
    i.guard = -1;
    return tci_kernel_inst(k, i);
}

TCI_FN int tci_kernel_const(tci_kernel *k, tc_dtype dtype, tci_value v)
{
    tci_kinst i = {0};
    i.op = TCI_K_CONST;
    i.dtype = (int8_t)dtype;
    i.x = -1;
    i.guard = -1;
    i.value = v;
    return tci_kernel_inst(k, i);
}

/* ---- comparisons of indices ---- */

/* True if integer dtype t can hold all values of x. */
static bool tci_kernel_holds(const tci_kernel *k, tc_dtype t, int x)
{
    int bits = TCI_MIN(8 * tci_dtype_get(t)->bytes - tci_dtype_is_signed(t), 62);
    int64_t most = (int64_t)(((uint64_t)1 << bits) - 1);
    return tci_dim_le(tci_dtype_is_signed(t) ? -most - 1 : 0, k->kx[x].lo) &&
           tci_dim_le(k->kx[x].hi, most);
}

/* The index expression that an integer is; -1: it is none, or its dtype may not hold it. */
static int tci_kernel_index_of(tci_kernel *k, int inst, int depth)
{
    const tci_kinst in = k->insts[inst];
    tc_dtype t = (tc_dtype)in.dtype;
    int x = -1;
    if (!tci_dtype_is_int(t) || depth == 0) {
        return -1;
    }
    if (in.op == TCI_K_INDEX) {
        x = in.x;
    } else if (in.op == TCI_K_CONST && in.value.i >= -2 && in.value.i <= 2) {
        x = tci_kx_const(k, in.value.i);
    } else if (in.op == TCI_K_PRIM && in.prim == TCI_P_CAST) {
        x = tci_kernel_index_of(k, in.args[0], depth - 1);
    } else if (in.op == TCI_K_PRIM && (in.prim == TCI_P_ADD || in.prim == TCI_P_SUB)) {
        int a = tci_kernel_index_of(k, in.args[0], depth - 1);
        int b = a >= 0 ? tci_kernel_index_of(k, in.args[1], depth - 1) : -1;
        x = b >= 0 ? tci_kx_add(k, a, tci_kx_mul(k, b, in.prim == TCI_P_SUB ? -1 : 1)) : -1;
    }
    return x >= 0 && tci_kernel_holds(k, t, x) ? x : -1;
}

/* The sum of two axes or more and a number, where each axis counts once, up or down? */
static bool tci_kernel_is_diagonal(const tci_kernel *k, int x)
{
    tci_dim base, *coef = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes + 1);
    bool fits = tci_kx_affine(k, x, coef, &base);
    int n = 0;
    for (int a = 0; a < k->n_axes && fits; a++) {
        fits = coef[a] == 0 || coef[a] == 1 || coef[a] == -1;
        n += coef[a] != 0;
    }
    return fits && n >= 2;
}

static int tci_kernel_guard(tci_kernel *k, tci_kguard guard)
{
    tci_kinst i = {0};
    i.op = TCI_K_GUARD;
    i.dtype = TC_BOOL;
    i.x = -1;
    i.n_guards = 1;
    while (i.guard < k->n_guards &&
           (k->guards[i.guard].x != guard.x || k->guards[i.guard].lo != guard.lo ||
            k->guards[i.guard].hi != guard.hi)) {
        i.guard++;
    }
    if (i.guard == k->n_guards) {
        TCI_PUSH(k->s, k->guards, k->n_guards, k->cap_guards, guard);
    }
    return tci_kernel_inst(k, i);
}

TCI_FN int tci_kernel_compare(tci_kernel *k, tci_prim p, int a, int b)
{
    int xa = tci_kernel_index_of(k, a, TCI_KERNEL_INDEX_DEPTH);
    int xb = xa >= 0 ? tci_kernel_index_of(k, b, TCI_KERNEL_INDEX_DEPTH) : -1;
    int x = xb >= 0 ? tci_kx_add(k, xb, tci_kx_mul(k, xa, -1)) : -1;
    if (x < 0 || !tci_kernel_is_diagonal(k, x)) {
        return tci_kernel_prim(k, p, TC_BOOL, 2, a, b, -1);
    }
    tci_kguard guard = {x, p == TCI_P_LT, p == TCI_P_EQ ? 0 : k->kx[x].hi};
    bool always = tci_dim_le(guard.lo, k->kx[x].lo) && tci_dim_le(k->kx[x].hi, guard.hi);
    bool never = tci_dim_lt(k->kx[x].hi, guard.lo) || tci_dim_lt(guard.hi, k->kx[x].lo);
    tci_value v = {.i = always};
    return always || never ? tci_kernel_const(k, TC_BOOL, v) : tci_kernel_guard(k, guard);
}

TCI_FN int tci_kernel_operand(tci_kernel *k, tc_dtype dtype, bool is_output, tci_dim n)
{
    tci_koperand o = {(int8_t)dtype, is_output, false, n, 0};
    TCI_PUSH(k->s, k->operands, k->n_operands, k->cap_operands, o);
    return k->n_operands - 1;
}

TCI_FN int tci_kstore_combine(int mode)
{
    return mode == TCI_MODE_SET ? -1 : tci_op_get(tci_mode_fold(mode))->red;
}

TCI_FN bool tci_kernel_copies(const tci_kernel *k, int stage, int *from, int *to)
{
    const tci_kstore *copy = NULL;
    int stores = 0;
    bool over = false;
    for (int w = 0; w < k->n_stores; w++) {
        bool here = k->stores[w].stage == stage;
        copy = here ? &k->stores[w] : copy;
        stores += here;
    }
    if (stores != 1 || k->stages[stage].kind != TCI_STAGE_MAP || k->stages[stage].n_axes == 0) {
        return false;
    }
    for (int w = 0; w < k->n_stores; w++) {
        over = over || (k->stores[w].operand == copy->operand &&
                        k->stages[k->stores[w].stage].kind == TCI_STAGE_SCATTER);
    }
    const tci_kinst *load = &k->insts[copy->value];
    *from = (int)tci_dim_known(load->imm);
    *to = copy->operand;
    return over && load->op == TCI_K_LOAD && load->n_guards == 0 && load->x == copy->x &&
           k->operands[*from].panel == 0 && k->operands[*from].dtype == k->operands[*to].dtype;
}

TCI_FN void tci_kernel_store(tci_kernel *k, tci_kstore store)
{
    bool reads = store.mode != TCI_MODE_SET || store.guard >= 0;
    k->operands[store.operand].is_updated |= reads || k->stages[store.stage].from >= 0;
    TCI_PUSH(k->s, k->stores, k->n_stores, k->cap_stores, store);
}
