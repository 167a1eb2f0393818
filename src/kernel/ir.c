/* kernel/ir.c - constructors of the kernel IR (kernel/ir.h). Everything is hash-consed on the way,
 * so equal values and equal index expressions have equal numbers.
 *
 * An index expression is kept as a sum of terms in canonical order: atoms (AXIS, DIV, MOD, VALUE)
 * ascending, each times its coefficient, the constant last. tci_kx_linear takes it apart,
 * tci_kx_join puts it together again; div and mod pull out what divides and drop what the ranges
 * prove away, so that the maps of reshapes become affine wherever the sizes allow. */
#include "../base/hash.h"
#include "ir.h"

typedef struct tci_kx_term { int32_t atom; tci_dim coef; } tci_kx_term;
typedef struct tci_kx_sum {
    tci_kx_term *terms;
    int n, cap;
    tci_dim base;
} tci_kx_sum;

TCI_FN tci_kernel *tci_kernel_make(tci_scratch *s)
{
    tci_kernel *k = TCI_NEW(s, tci_kernel);
    k->s = s;
    k->vlanes = TCI_VLANES;
    return k;
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
    int64_t words[4] = {x->op, x->a, x->b, x->c};
    return tci_kernel_hash_words(words, 4);
}

static uint64_t tci_kernel_inst_hash_of(const tci_kinst *i)
{
    int64_t words[12] = {i->op, i->prim, i->dtype, i->n_args, i->args[0], i->args[1], i->args[2],
                         i->x,  i->guard, i->n_guards, i->imm, i->value.i};
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

/* Adds x (without canonicalising) or finds its equal. */
static int tci_kx_intern(tci_kernel *k, tci_kx x)
{
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
        if (y->op == x.op && y->a == x.a && y->b == x.b && y->c == x.c) {
            return k->kx_hash[at] - 1;
        }
    }
    TCI_PUSH(k->s, k->kx, k->n_kx, k->cap_kx, x);
    tci_kernel_table_put(k->kx_hash, k->n_kx_hash, hash, k->n_kx - 1);
    return k->n_kx - 1;
}

/* ---- index expressions ---- */

/* A common divisor: the greatest of known numbers, else one that divides the other, or 1. */
static tci_dim tci_kx_gcd(tci_dim a, tci_dim b)
{
    if (!tci_dim_is_known(a) || !tci_dim_is_known(b)) {
        bool known = tci_dim_is_known(a) && a <= 0;
        return !known && tci_dim_divides(a, b) ? a : 1;
    }
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

TCI_FN int tci_kx_const(tci_kernel *k, tci_dim c)
{
    tci_kx x = {TCI_KX_CONST, -1, -1, c, c, c};
    return tci_kx_intern(k, x);
}

/* An axis of size 1 is the constant 0, so that index maps compare equal whatever axis stands
 * there. */
TCI_FN int tci_kx_axis(tci_kernel *k, int axis)
{
    tci_dim size = k->axes[axis].size;
    if (size == 1) {
        return tci_kx_const(k, 0);
    }
    tci_kx x = {TCI_KX_AXIS, -1, -1, axis, 0, size == 0 ? 0 : tci_dim_add(size, -1)};
    return tci_kx_intern(k, x);
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

/* The range of c times what lies in [lo, hi]. */
static tci_kx tci_kx_scaled(const tci_kernel *k, int atom, tci_dim c)
{
    tci_dim lo = tci_dim_mul(k->kx[atom].lo, c), hi = tci_dim_mul(k->kx[atom].hi, c);
    tci_kx x = {TCI_KX_MUL, atom, -1, c, tci_dim_min(lo, hi), tci_dim_max(lo, hi)};
    return x;
}

static int tci_kx_join(tci_kernel *k, const tci_kx_sum *sum)
{
    int all = -1;
    for (int i = 0; i < sum->n; i++) {
        int atom = sum->terms[i].atom;
        int term = atom;
        if (sum->terms[i].coef != 1) {
            term = tci_kx_intern(k, tci_kx_scaled(k, atom, sum->terms[i].coef));
        }
        if (all < 0) {
            all = term;
        } else {
            tci_kx x = {TCI_KX_ADD, all, term, 0, tci_dim_add(k->kx[all].lo, k->kx[term].lo),
                        tci_dim_add(k->kx[all].hi, k->kx[term].hi)};
            all = tci_kx_intern(k, x);
        }
    }
    if (all < 0 || sum->base == 0) {
        return all < 0 ? tci_kx_const(k, sum->base) : all;
    }
    int base = tci_kx_const(k, sum->base);
    tci_kx x = {TCI_KX_ADD, all, base, 0, tci_dim_add(k->kx[all].lo, sum->base),
                tci_dim_add(k->kx[all].hi, sum->base)};
    return tci_kx_intern(k, x);
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

/* Splits x into out * c + rest: the terms that c divides, and the others. */
static void tci_kx_divide(tci_kernel *k, int x, tci_dim c, tci_kx_sum *out, tci_kx_sum *rest)
{
    tci_kx_sum sum = {0};
    tci_kx_linear(k, x, 1, &sum);
    for (int i = 0; i < sum.n; i++) {
        if (tci_dim_divides(c, sum.terms[i].coef)) {
            tci_kx_sum_add(k, out, sum.terms[i].atom, tci_dim_div(sum.terms[i].coef, c));
        } else {
            tci_kx_sum_add(k, rest, sum.terms[i].atom, sum.terms[i].coef);
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

/* floor((g r + b) / (g c)) = floor((r + floor(b / g)) / c) for integers r, so a common factor
 * goes. */
TCI_FN int tci_kx_div(tci_kernel *k, int a, tci_dim c)
{
    if (c == 1) {
        return a;
    }
    tci_kx_sum out = {0}, rest = {0};
    tci_kx_divide(k, a, c, &out, &rest);
    tci_dim g = tci_kx_sum_gcd(&rest, c);
    tci_kx_sum_scale_down(&rest, g);
    c = tci_dim_div(c, g);
    int r = tci_kx_join(k, &rest);
    tci_dim lo = tci_dim_div(k->kx[r].lo, c), hi = tci_dim_div(k->kx[r].hi, c);
    if (lo == hi) {
        out.base = tci_dim_add(out.base, lo);
        return tci_kx_join(k, &out);
    }
    if (k->kx[r].op == TCI_KX_DIV) {
        c = tci_dim_mul(c, k->kx[r].c);
        r = k->kx[r].a;
    }
    if (c == 1) {
        tci_kx_linear(k, r, 1, &out);
        return tci_kx_join(k, &out);
    }
    tci_kx x = {TCI_KX_DIV, r, -1, c, lo, hi};
    tci_kx_sum_add(k, &out, tci_kx_intern(k, x), 1);
    return tci_kx_join(k, &out);
}

TCI_FN int tci_kx_mod(tci_kernel *k, int a, tci_dim c)
{
    if (c == 1) {
        return tci_kx_const(k, 0);
    }
    tci_kx_sum out = {0}, rest = {0};
    tci_kx_divide(k, a, c, &out, &rest);
    int r = tci_kx_join(k, &rest);
    tci_dim q = tci_dim_div(k->kx[r].lo, c);
    if (q == tci_dim_div(k->kx[r].hi, c)) {
        return tci_kx_add(k, r, tci_kx_const(k, tci_dim_neg(tci_dim_mul(q, c))));
    }
    tci_dim g = tci_kx_sum_gcd(&rest, c);
    if (g != 1 && tci_dim_divides(g, rest.base)) { /* mod(g r, g c) = g mod(r, c) */
        tci_kx_sum_scale_down(&rest, g);
        return tci_kx_mul(k, tci_kx_mod(k, tci_kx_join(k, &rest), tci_dim_div(c, g)), g);
    }
    if (k->kx[r].op == TCI_KX_MOD && tci_dim_divides(c, k->kx[r].c)) {
        return tci_kx_mod(k, k->kx[r].a, c);
    }
    tci_kx x = {TCI_KX_MOD, r, -1, c, 0, tci_dim_add(c, -1)};
    return tci_kx_intern(k, x);
}

TCI_FN int tci_kx_value(tci_kernel *k, int inst, tci_dim lo, tci_dim hi)
{
    tci_kx x = {TCI_KX_VALUE, -1, -1, inst, lo, hi};
    return tci_kx_intern(k, x);
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
            coef[e.c] = tci_dim_add(coef[e.c], c);
        } else {
            return false;
        }
        if (rest < 0) {
            return true;
        }
        x = rest;
    }
}

static uint64_t tci_kernel_axis_bit(int64_t axis)
{
    return (uint64_t)1 << TCI_MIN(axis, 63);
}

TCI_FN uint64_t tci_kx_axes(const tci_kernel *k, int x)
{
    tci_kx e = k->kx[x];
    switch (e.op) {
    case TCI_KX_AXIS: return tci_kernel_axis_bit(e.c);
    case TCI_KX_ADD: return tci_kx_axes(k, e.a) | tci_kx_axes(k, e.b);
    case TCI_KX_MUL:
    case TCI_KX_DIV:
    case TCI_KX_MOD: return tci_kx_axes(k, e.a);
    case TCI_KX_VALUE: return k->insts[e.c].axes;
    default: return 0;
    }
}

/* The latest stage whose reduction an index depends on (through a loaded index). */
static int32_t tci_kx_stage(const tci_kernel *k, int x)
{
    tci_kx e = k->kx[x];
    switch (e.op) {
    case TCI_KX_ADD: return TCI_MAX(tci_kx_stage(k, e.a), tci_kx_stage(k, e.b));
    case TCI_KX_MUL:
    case TCI_KX_DIV:
    case TCI_KX_MOD: return tci_kx_stage(k, e.a);
    case TCI_KX_VALUE: return k->insts[e.c].stage;
    default: return -1;
    }
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
        i->axes |= tci_kx_axes(k, i->x);
        i->stage = TCI_MAX(i->stage, tci_kx_stage(k, i->x));
    }
    for (int g = 0; g < i->n_guards; g++) {
        i->axes |= tci_kx_axes(k, k->guards[i->guard + g].x);
        i->stage = TCI_MAX(i->stage, tci_kx_stage(k, k->guards[i->guard + g].x));
    }
    /* a function of the outer point; a SCAN's value of the step as well */
    if (i->op == TCI_K_RED) {
        int32_t stage = k->reds[i->imm].stage;
        for (int a = 0; a < k->n_outer; a++) {
            i->axes |= tci_kernel_axis_bit(a);
        }
        for (int a = 0; k->stages[stage].kind == TCI_STAGE_SCAN && a < k->stages[stage].n_axes;
             a++) {
            i->axes |= tci_kernel_axis_bit(k->stages[stage].axes[a]);
        }
        i->stage = stage;
    }
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

TCI_FN int tci_kernel_operand(tci_kernel *k, tc_dtype dtype, bool is_output, tci_dim n)
{
    tci_koperand o = {(int8_t)dtype, is_output, n};
    TCI_PUSH(k->s, k->operands, k->n_operands, k->cap_operands, o);
    return k->n_operands - 1;
}
