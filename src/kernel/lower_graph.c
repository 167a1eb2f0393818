/* kernel/lower_graph.c - lowers graph nodes to kernel IR: evaluates them at symbolic indices into a
 * kernel's scalar DAG.
 *
 * In: nodes, index expressions, guards. Out: instruction numbers. The traversal keeps its own
 * stack, as chains may be tens of thousands of nodes long. A value is memoized by (node, index,
 * guard); a node read at two different indices is two values.
 *
 * Under a guard an index is inside the range that is read: it continues as a BOUND of that range,
 * so that expressions below it simplify. BOUND nodes are range assumptions that hold under the
 * guard; they are replaced by the indices that they stand for in every index that is emitted
 * (loads, guards, values), where the guard holds too. */
#include "lower_graph.h"
#include "../ops/formula_bytecode.h"
#include "../ops/math.h"
#include "bitcast.h"
#include "random.h"
#include "value_range.h"
#include "canonicalize.h"

typedef struct tci_lower_frame {
    tci_node *node;
    const int *idx; /* node->rank index expressions */
    int guard;
} tci_lower_frame;

typedef struct tci_lower_memo {
    tci_lower_frame key;
    int inst;
} tci_lower_memo;

/* ---- memo ---- */

static uint64_t tci_lower_hash(const tci_lower_frame *f)
{
    uint64_t h = tci_hash_mix((uint64_t)(uintptr_t)f->node, (uint64_t)f->guard);
    for (int i = 0; i < f->node->rank; i++) {
        h = tci_hash_mix(h, (uint64_t)f->idx[i]);
    }
    return h;
}

static bool tci_lower_same(const tci_lower_frame *a, const tci_lower_frame *b)
{
    if (a->node != b->node || a->guard != b->guard) {
        return false;
    }
    for (int i = 0; i < a->node->rank && a->idx != b->idx; i++) {
        if (a->idx[i] != b->idx[i]) {
            return false;
        }
    }
    return true;
}

static int tci_lower_find(const tci_lower *l, const tci_lower_frame *f)
{
    uint64_t mask = (uint64_t)(l->n_table - 1);
    for (uint64_t at = tci_lower_hash(f) & mask; l->table[at]; at = (at + 1) & mask) {
        if (tci_lower_same(&l->memo[l->table[at] - 1].key, f)) {
            return l->memo[l->table[at] - 1].inst;
        }
    }
    return -1;
}

static void tci_lower_put(tci_lower *l, int memo)
{
    uint64_t mask = (uint64_t)(l->n_table - 1);
    uint64_t at = tci_lower_hash(&l->memo[memo].key) & mask;
    while (l->table[at]) {
        at = (at + 1) & mask;
    }
    l->table[at] = memo + 1;
}

static void tci_lower_remember(tci_lower *l, const tci_lower_frame *f, int inst)
{
    tci_lower_memo m = {*f, inst};
    TCI_PUSH(l->s, l->memo, l->n_memo, l->cap_memo, m);
    if (l->n_memo * 2 < l->n_table) {
        tci_lower_put(l, l->n_memo - 1);
        return;
    }
    l->n_table *= 2;
    l->table = TCI_NEW_ARRAY(l->s, int32_t, l->n_table);
    for (int i = 0; i < l->n_memo; i++) {
        tci_lower_put(l, i);
    }
}

TCI_FN void tci_lower_init(tci_lower *l, tci_scratch *s, tci_kernel *k)
{
    *l = (tci_lower){.s = s, .k = k, .n_table = 64};
    l->table = TCI_NEW_ARRAY(s, int32_t, l->n_table);
    struct tci_lower_set none = {0, 0};
    TCI_PUSH(s, l->sets, l->n_sets, l->cap_sets, none);
}

/* ---- what is known under a guard ---- */

static int tci_lower_rebuild(tci_lower *l, int x);

/* x with each BOUND replaced by what it stands for. */
static int tci_lower_plain(tci_lower *l, int x)
{
    while (l->n_plain <= x) {
        TCI_PUSH(l->s, l->plain, l->n_plain, l->cap_plain, -1);
    }
    if (l->plain[x] < 0) {
        int made = tci_lower_rebuild(l, x);
        l->plain[x] = made;
    }
    return l->plain[x];
}

static int tci_lower_rebuild(tci_lower *l, int x)
{
    tci_kx e = l->k->kx[x];
    int a = e.a >= 0 ? tci_lower_plain(l, e.a) : -1;
    switch (e.op) {
    case TCI_KX_BOUND: return a;
    case TCI_KX_ADD: {
        int b = tci_lower_plain(l, e.b);
        return a == e.a && b == e.b ? x : tci_kx_add(l->k, a, b);
    }
    case TCI_KX_MUL: return a == e.a ? x : tci_kx_mul(l->k, a, e.c);
    case TCI_KX_DIV: return a == e.a ? x : tci_kx_div(l->k, a, e.c);
    case TCI_KX_MOD: return a == e.a ? x : tci_kx_mod(l->k, a, e.c);
    default: return x; /* CONST AXIS VALUE */
    }
}

/* ---- guards: set 0 is "always"; -1 stands for "never" ---- */

static int tci_lower_set_find(tci_lower *l, const tci_kguard *list, int n)
{
    for (int i = 0; i < l->n_sets; i++) {
        bool same = l->sets[i].n == n;
        for (int g = 0; same && g < n; g++) {
            const tci_kguard *have = &l->k->guards[l->sets[i].first + g];
            same = have->x == list[g].x && have->lo == list[g].lo && have->hi == list[g].hi;
        }
        if (same) {
            return i;
        }
    }
    struct tci_lower_set set = {l->k->n_guards, n};
    for (int g = 0; g < n; g++) {
        TCI_PUSH(l->s, l->k->guards, l->k->n_guards, l->k->cap_guards, list[g]);
    }
    TCI_PUSH(l->s, l->sets, l->n_sets, l->cap_sets, set);
    return l->n_sets - 1;
}

/* guard and lo <= x <= hi. */
static int tci_lower_guard_and(tci_lower *l, int guard, int x, tci_dim lo, tci_dim hi)
{
    const tci_kx *e = &l->k->kx[x];
    if (guard < 0 || tci_dim_lt(hi, e->lo) || tci_dim_lt(e->hi, lo) || tci_dim_lt(hi, lo)) {
        return -1;
    }
    if (tci_dim_le(lo, e->lo) && tci_dim_le(e->hi, hi)) {
        return guard;
    }
    x = tci_lower_plain(l, x);
    int n = l->sets[guard].n;
    tci_kguard *list = TCI_NEW_ARRAY(l->s, tci_kguard, n + 1);
    bool merged = false;
    for (int i = 0; i < n; i++) {
        list[i] = l->k->guards[l->sets[guard].first + i];
        if (list[i].x == x) {
            list[i].lo = tci_dim_max(list[i].lo, lo);
            list[i].hi = tci_dim_min(list[i].hi, hi);
            merged = true;
            if (tci_dim_lt(list[i].hi, list[i].lo)) {
                return -1;
            }
        }
    }
    if (!merged) {
        tci_kguard g = {x, lo, hi};
        list[n++] = g;
    }
    return tci_lower_set_find(l, list, n);
}

static int tci_lower_guard_value(tci_lower *l, int guard)
{
    tci_kinst i = {0};
    i.op = TCI_K_GUARD;
    i.dtype = TC_BOOL;
    i.x = -1;
    i.guard = l->sets[guard].first;
    i.n_guards = l->sets[guard].n;
    return tci_kernel_inst(l->k, i);
}

/* ---- conversions ---- */

TCI_FN int tci_lower_convert(tci_kernel *k, int value, tc_dtype to)
{
    return k->insts[value].dtype == to ? value
                                       : tci_kernel_prim(k, TCI_P_CAST, to, 1, value, -1, -1);
}

/* Whether an f32 between is as good: it holds every number that the value may be, or, of integers
 * on the way to f16, all below f16's infinity. */
static bool tci_lower_goes_through_f32(const tci_kernel *k, int value, tc_dtype to)
{
    const tci_kinst *i = &k->insts[value];
    tc_dtype t = (tc_dtype)i->dtype;
    if (i->op == TCI_K_INDEX) {
        return tci_dim_le(-(1 << 24), k->kx[i->x].lo) && tci_dim_le(k->kx[i->x].hi, 1 << 24);
    }
    return t == TC_F32 || tci_dtype_get(t)->bytes < 4 || (to == TC_F16 && t != TC_F64);
}

/* An f64 whose last one of 15 digits says whether there are more: an f32 holds that, a subnormal
 * one too, and rounding it to f16 or bf16 rounds the value. */
static int tci_lower_odd_f64(tci_kernel *k, int value)
{
    tci_value low = {.i = (INT64_C(1) << 38) - 1}, high = {.i = ~low.i};
    int mask = tci_kernel_const(k, TC_I64, low);
    int bits = tci_kernel_prim(k, TCI_P_BITS, TC_I64, 1, value, -1, -1);
    int more = tci_kernel_prim(k, TCI_P_AND, TC_I64, 2, bits, mask, -1);
    more = tci_kernel_prim(k, TCI_P_ADD, TC_I64, 2, more, mask, -1);
    bits = tci_kernel_prim(k, TCI_P_OR, TC_I64, 2, bits, more, -1);
    mask = tci_kernel_const(k, TC_I64, high);
    bits = tci_kernel_prim(k, TCI_P_AND, TC_I64, 2, bits, mask, -1);
    int odd = tci_kernel_prim(k, TCI_P_BITS, TC_F64, 1, bits, -1, -1);
    return tci_kernel_prim(k, TCI_P_CAST, TC_F32, 1, odd, -1, -1);
}

/* The value as an f32: itself, or else that of its two neighbours whose last bit is 1, so that
 * rounding to f16 or bf16 afterwards rounds the value and not an f32 that was rounded before. The
 * one further from 0 steps back. */
static int tci_lower_odd(tci_kernel *k, int value)
{
    tc_dtype t = (tc_dtype)k->insts[value].dtype;
    tci_value zero = {.i = 0};
    if (t == TC_F64) {
        return tci_lower_odd_f64(k, value);
    }
    int near = tci_kernel_prim(k, TCI_P_CAST, TC_F32, 1, value, -1, -1);
    int back = tci_kernel_prim(k, TCI_P_CAST, t, 1, near, -1, -1);
    int above = tci_kernel_prim(k, TCI_P_LT, TC_BOOL, 2, value, back, -1);
    int below = tci_kernel_prim(k, TCI_P_LT, TC_BOOL, 2, back, value, -1);
    int bits = tci_kernel_prim(k, TCI_P_BITS, TC_I32, 1, near, -1, -1);
    int negative = tci_kernel_prim(k, TCI_P_LT, TC_BOOL, 2, bits, tci_kernel_const(k, TC_I32, zero),
                                   -1);
    int rounded = tci_kernel_prim(k, TCI_P_OR, TC_BOOL, 2, above, below, -1);
    int away = tci_kernel_prim(k, TCI_P_XOR, TC_BOOL, 2, above, negative, -1);
    away = tci_kernel_prim(k, TCI_P_AND, TC_BOOL, 2, away, rounded, -1);
    bits = tci_kernel_prim(k, TCI_P_SUB, TC_I32, 2, bits, tci_lower_convert(k, away, TC_I32), -1);
    bits = tci_kernel_prim(k, TCI_P_OR, TC_I32, 2, bits, tci_lower_convert(k, rounded, TC_I32), -1);
    return tci_kernel_prim(k, TCI_P_BITS, TC_F32, 1, bits, -1, -1);
}

TCI_FN int tci_lower_round(tci_kernel *k, int value, tc_dtype to)
{
    if (tci_dtype_is_half(to) && !tci_lower_goes_through_f32(k, value, to)) {
        value = tci_lower_odd(k, value);
    }
    value = tci_lower_convert(k, value, (tc_dtype)tci_dtype_get(to)->compute);
    if (to == TC_BF16) {
        return tci_kernel_prim(k, TCI_P_ROUNDB16, TC_F32, 1, value, -1, -1);
    }
    return to == TC_F16 ? tci_kernel_prim(k, TCI_P_ROUND16, TC_F32, 1, value, -1, -1) : value;
}

/* ---- elementwise rows: the value column as instructions ---- */

typedef struct tci_lower_ew {
    tci_kernel *k;
    tc_dtype t; /* compute dtype of the operands */
    int a, b, c;
    bool rounds; /* the value is rounded to a half */
} tci_lower_ew;

static int tci_lower_p1(const tci_lower_ew *e, tci_prim p, int a)
{
    tc_dtype t = (tc_dtype)e->k->insts[a].dtype;
    bool rounds = p == TCI_P_FLOOR || p == TCI_P_CEIL || p == TCI_P_TRUNC || p == TCI_P_RINT;
    if (rounds && !tci_dtype_is_float(t)) {
        return a;
    }
    bool sign = p == TCI_P_ABS && !tci_dtype_is_signed(t);
    return sign ? a : tci_kernel_prim(e->k, p, t, 1, a, -1, -1);
}

/* Arithmetic on bool is its logic: + is or, * is and. */
static int tci_lower_p2(const tci_lower_ew *e, tci_prim p, int a, int b)
{
    tc_dtype t = (tc_dtype)e->k->insts[a].dtype;
    if (t == TC_BOOL) {
        p = p == TCI_P_ADD ? TCI_P_OR : p == TCI_P_MUL ? TCI_P_AND : p == TCI_P_SUB ? TCI_P_XOR : p;
    }
    return tci_kernel_prim(e->k, p, t, 2, a, b, -1);
}

static int tci_lower_select(tci_kernel *k, int mask, int a, int b)
{
    return tci_kernel_prim(k, TCI_P_SELECT, (tc_dtype)k->insts[a].dtype, 3, mask, a, b);
}

static int tci_lower_not(const tci_lower_ew *e, int a)
{
    return tci_kernel_prim(e->k, TCI_P_NOT, TC_BOOL, 1, a, -1, -1);
}

/* max(a, b) = a where a > b or a is NaN, else b; min likewise. */
static int tci_lower_extreme(const tci_lower_ew *e, bool max, int a, int b)
{
    tc_dtype t = (tc_dtype)e->k->insts[a].dtype;
    if (t == TC_BOOL) {
        return tci_kernel_prim(e->k, max ? TCI_P_OR : TCI_P_AND, t, 2, a, b, -1);
    }
    int best = tci_kernel_prim(e->k, max ? TCI_P_PMAX : TCI_P_PMIN, t, 2, a, b, -1);
    const tci_kinst *left = &e->k->insts[a];
    if (!tci_dtype_is_float(t) || (left->op == TCI_K_CONST && left->value.f == left->value.f)) {
        return best;
    }
    return tci_lower_select(e->k, tci_kernel_prim(e->k, TCI_P_EQ, t, 2, a, a, -1), best, a);
}

static int tci_lower_constant(const tci_lower_ew *e, double x)
{
    tci_value v = {.f = x};
    return tci_kernel_const(e->k, e->t, tci_value_cast(v, TC_F64, e->t));
}

/* Whether C's remainder r by b is not 0 and has the other sign. */
static int tci_lower_opposed(const tci_lower_ew *e, int r, int b)
{
    int zero = tci_lower_constant(e, 0);
    int nonzero = tci_lower_not(e, tci_lower_p2(e, TCI_P_EQ, r, zero));
    int r_negative = tci_lower_p2(e, TCI_P_LT, r, zero);
    int b_negative = tci_lower_p2(e, TCI_P_LT, b, zero);
    int differ = tci_kernel_prim(e->k, TCI_P_XOR, TC_BOOL, 2, r_negative, b_negative, -1);
    return tci_kernel_prim(e->k, TCI_P_AND, TC_BOOL, 2, nonzero, differ, -1);
}

/* Python's remainder: the sign of b, of a zero too. */
static int tci_lower_modulo(const tci_lower_ew *e, int a, int b)
{
    int r = tci_lower_p2(e, TCI_P_REM, a, b);
    if (!tci_dtype_is_signed(e->t)) {
        return r;
    }
    int fix = tci_lower_opposed(e, r, b);
    int y = tci_lower_select(e->k, fix, tci_lower_p2(e, TCI_P_ADD, r, b), r);
    if (!tci_dtype_is_float(e->t)) {
        return y;
    }
    int zero = tci_lower_constant(e, 0);
    int of_b = tci_lower_select(e->k, tci_lower_p2(e, TCI_P_LT, b, zero),
                                tci_lower_constant(e, -0.0), zero);
    return tci_lower_select(e->k, tci_lower_p2(e, TCI_P_EQ, r, zero), of_b, y);
}

/* floor of the exact a / b. Of floats as NumPy and torch have it: (a - a % b) / b is all but
 * integral, so the nearest integer is meant. */
static int tci_lower_floor_divide(const tci_lower_ew *e, int a, int b)
{
    int plain = tci_lower_p2(e, TCI_P_DIV, a, b);
    if (!tci_dtype_is_signed(e->t)) {
        return plain;
    }
    int r = tci_lower_p2(e, TCI_P_REM, a, b), one = tci_lower_constant(e, 1);
    bool is_float = tci_dtype_is_float(e->t);
    int q = is_float ? tci_lower_p2(e, TCI_P_DIV, tci_lower_p2(e, TCI_P_SUB, a, r), b) : plain;
    q = tci_lower_select(e->k, tci_lower_opposed(e, r, b), tci_lower_p2(e, TCI_P_SUB, q, one), q);
    if (!is_float) {
        return q;
    }
    int zero = tci_lower_constant(e, 0), y = tci_lower_p1(e, TCI_P_FLOOR, q);
    int below = tci_lower_p2(e, TCI_P_LT, tci_lower_constant(e, 0.5),
                             tci_lower_p2(e, TCI_P_SUB, q, y));
    y = tci_lower_select(e->k, below, tci_lower_p2(e, TCI_P_ADD, y, one), y);
    y = tci_lower_select(e->k, tci_lower_p2(e, TCI_P_EQ, q, zero),
                         tci_lower_p2(e, TCI_P_MUL, plain, zero), y);
    return tci_lower_select(e->k, tci_lower_p2(e, TCI_P_EQ, b, zero), plain, y);
}

/* An expansion of one operand, instruction by instruction. */
static int tci_lower_recipe(const tci_lower_ew *e, const tci_recipe *r, int x)
{
    int at[TCI_POWER_MAX];
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *s = &r->insts[i];
        tc_dtype t = (tc_dtype)s->dtype;
        at[i] = s->kind == TCI_RECIPE_ARG ? x
                : s->kind == TCI_RECIPE_CONST
                    ? tci_kernel_const(e->k, t, s->value)
                    : tci_kernel_prim(e->k, (tci_prim)s->prim, t, s->n_args, at[s->args[0]],
                                      s->n_args > 1 ? at[s->args[1]] : -1,
                                      s->n_args > 2 ? at[s->args[2]] : -1);
    }
    return at[r->n - 1];
}

static int tci_lower_pow(const tci_lower_ew *e, int a, int b)
{
    const tci_kinst *power = &e->k->insts[b];
    if (!tci_dtype_is_float(e->t)) {
        return tci_lower_p2(e, TCI_P_POWI, a, b);
    }
    if (power->op != TCI_K_CONST || !tci_power_is_plain(power->value.f)) {
        return tci_lower_p2(e, TCI_P_POW, a, b);
    }
    tci_step_inst insts[TCI_POWER_MAX];
    tci_recipe r = tci_power_recipe(insts, e->t, power->value.f);
    return tci_lower_recipe(e, &r, a);
}

static int tci_lower_minus(const tci_lower_ew *e, int a)
{
    bool is_float = tci_dtype_is_float(e->t);
    int sign = is_float ? tci_lower_p2(e, TCI_P_COPYSIGN, tci_lower_constant(e, 1), a) : a;
    return tci_lower_p2(e, TCI_P_LT, sign, tci_lower_constant(e, 0));
}

/* One word of a value column over the values it takes. */
static int tci_lower_word(const tci_lower_ew *e, int word, const int *args)
{
    switch (word) {
    case TCI_W_A: return e->a;
    case TCI_W_B: return e->b;
    case TCI_W_C: return e->c;
    case TCI_W_MAX: return tci_lower_extreme(e, true, args[0], args[1]);
    case TCI_W_MIN: return tci_lower_extreme(e, false, args[0], args[1]);
    case TCI_W_MODULO: return tci_lower_modulo(e, args[0], args[1]);
    case TCI_W_FLOOR_DIVIDE: return tci_lower_floor_divide(e, args[0], args[1]);
    case TCI_W_MINUS: return tci_lower_minus(e, args[0]);
    case TCI_P_POW: return tci_lower_pow(e, args[0], args[1]);
    case TCI_P_SELECT: return tci_lower_select(e->k, args[0], args[1], args[2]);
    case TCI_P_FMA: return tci_kernel_prim(e->k, TCI_P_FMA, e->t, 3, args[0], args[1], args[2]);
    default: break;
    }
    if (word >= TCI_W_K) {
        return tci_lower_constant(e, tci_formula_number(word));
    }
    tci_prim p = e->rounds && word == TCI_P_GELU ? TCI_P_GELUH : (tci_prim)word;
    if (p == TCI_P_EQ || p == TCI_P_LT || p == TCI_P_LE) {
        return tci_kernel_compare(e->k, p, args[0], args[1]);
    }
    return tci_formula_value_operands(word) == 1 ? tci_lower_p1(e, p, args[0])
                                                 : tci_lower_p2(e, p, args[0], args[1]);
}

static int tci_lower_row(const tci_lower_ew *e, int op)
{
    int stack[TCI_FORMULA_DEPTH], n = 0;
    for (const uint8_t *w = tci_formula_value(op); *w != TCI_W_END; w++) {
        n -= tci_formula_value_operands(*w);
        stack[n] = tci_lower_word(e, *w, stack + n);
        n++;
    }
    return stack[0];
}

TCI_FN int tci_lower_pair(tci_kernel *k, int op, int a, int b)
{
    tci_lower_ew e = {k, (tc_dtype)k->insts[a].dtype, a, b, -1, false};
    return tci_lower_row(&e, op);
}

TCI_FN int tci_lower_element(tci_kernel *k, const uint8_t *words, tc_dtype t, int element, int x)
{
    tci_lower_ew e = {k, t, element, -1, -1, false};
    int stack[TCI_FORMULA_DEPTH], n = 0;
    for (const uint8_t *w = words; *w != TCI_W_END; w++) {
        n -= tci_formula_value_operands(*w);
        if (*w == TCI_W_INDEX) {
            tci_kinst i = {0};
            i.op = TCI_K_INDEX;
            i.dtype = TC_I64;
            i.x = x;
            i.guard = -1;
            stack[n] = tci_kernel_inst(k, i);
        } else {
            stack[n] = tci_lower_word(&e, *w, stack + n);
        }
        n++;
    }
    return stack[0];
}

static int tci_lower_elementwise(tci_lower *l, const tci_node *n, const int *in)
{
    tci_lower_ew e = {l->k,
                      (tc_dtype)tci_dtype_get((tc_dtype)n->in[0]->dtype)->compute,
                      in[0],
                      n->n_in > 1 ? in[1] : -1,
                      n->n_in > 2 ? in[2] : -1,
                      tci_dtype_is_half((tc_dtype)n->dtype)};
    int value = tci_lower_row(&e, n->op);
    bool exact = tci_op_is(n->op, TCI_IS_EXACT);
    return exact ? value : tci_lower_round(l->k, value, (tc_dtype)n->dtype);
}

/* ---- index maps of the layout ops ---- */

/* A size as a factor of strides: that of an axis without elements does not matter, but is never
 * 0 where it is known. */
static tci_dim tci_lower_extent(tci_dim size)
{
    return size == 0 ? 1 : size;
}

TCI_FN int tci_lower_offset(tci_lower *l, int rank, const tci_dim *shape, const tci_dim *strides,
                            const int *idx)
{
    tci_dim dense = 1, lowest = 0;
    int x = tci_kx_const(l->k, 0);
    for (int i = rank - 1; i >= 0; i--) {
        tci_dim stride = strides ? strides[i] : dense;
        x = tci_kx_add(l->k, x, tci_kx_mul(l->k, idx[i], stride));
        if (tci_dim_lt(stride, 0) && shape[i] != 0) {
            lowest = tci_dim_add(lowest, tci_dim_mul(stride, tci_dim_add(shape[i], -1)));
        }
        dense = tci_dim_mul(dense, tci_lower_extent(shape[i]));
    }
    return tci_kx_add(l->k, x, tci_kx_const(l->k, tci_dim_neg(lowest)));
}

/* The index of axes [first, last) of a tensor from the offset among them, which is in range: so the
 * first of them needs no remainder, which a symbolic size could not prove. */
static void tci_lower_unflatten(tci_lower *l, const tci_dim *shape, int first, int last, int flat,
                                int *idx)
{
    tci_dim stride = 1;
    for (int i = last - 1; i >= first; i--) {
        tci_dim size = tci_lower_extent(shape[i]);
        int x = tci_kx_div(l->k, flat, stride);
        idx[i] = i > first || tci_dim_is_known(size)
                     ? tci_kx_mod(l->k, x, size)
                     : tci_kx_bound(l->k, x, 0, tci_dim_add(size, -1));
        stride = tci_dim_mul(stride, size);
    }
}

/* Between two shapes of a RESHAPE: axes [*i, ..) and [*j, ..) are the shortest runs before the
 * given ends that hold equally many elements. */
static void tci_lower_run(const tci_node *to, const tci_node *from, int *i, int *j)
{
    tci_dim a = 1, b = 1;
    do {
        bool more = *i > 0 && (*j == 0 || tci_dim_hint(a) <= tci_dim_hint(b));
        if (more) {
            a = tci_dim_mul(a, tci_lower_extent(to->shape[--*i]));
        } else if (*j > 0) {
            b = tci_dim_mul(b, tci_lower_extent(from->shape[--*j]));
        }
    } while (a != b && (*i > 0 || *j > 0));
}

/* Run by run, so that an index of one run is never mixed with those of another. */
static void tci_lower_reshape(tci_lower *l, const tci_node *n, const int *idx, int *to)
{
    const tci_node *in = n->in[0];
    int end_i = n->rank, end_j = in->rank;
    while (end_i > 0 || end_j > 0) {
        int i = end_i, j = end_j;
        tci_lower_run(n, in, &i, &j);
        int flat = tci_lower_offset(l, end_i - i, n->shape + i, NULL, idx + i);
        tci_lower_unflatten(l, in->shape, j, end_j, flat, to);
        end_i = i;
        end_j = j;
    }
}

static const int *tci_lower_move(tci_lower *l, const tci_node *n, const int *idx)
{
    const tci_node *in = n->in[0];
    int *to = TCI_NEW_ARRAY(l->s, int, in->rank + 1);
    if (n->op == TCI_OP_RESHAPE) {
        tci_lower_reshape(l, n, idx, to);
        return to;
    }
    for (int i = 0; i < in->rank; i++) {
        switch (n->op) {
        case TCI_OP_PERMUTE: to[n->attr[i]] = idx[i]; break;
        case TCI_OP_EXPAND: to[i] = in->shape[i] == 1 ? tci_kx_const(l->k, 0) : idx[i]; break;
        case TCI_OP_SLICE:
            to[i] = tci_kx_add(l->k, tci_kx_mul(l->k, idx[i], n->attr[2 * i + 1]),
                               tci_kx_const(l->k, n->attr[2 * i]));
            break;
        case TCI_OP_PAD:
            to[i] = tci_kx_add(l->k, idx[i], tci_kx_const(l->k, tci_dim_neg(n->attr[i])));
            break;
        case TCI_OP_WINDOW: to[i] = idx[i]; break; /* windowed axes below */
        default: TCI_ASSERT(l->s, false);
        }
    }
    for (int w = 0; n->op == TCI_OP_WINDOW && w < n->n_attr / 4; w++) {
        const int64_t *a = n->attr + 4 * w; /* axis, kernel, stride, dilation */
        to[a[0]] = tci_kx_add(l->k, tci_kx_mul(l->k, idx[a[0]], a[2]),
                              tci_kx_mul(l->k, idx[in->rank + w], a[3]));
    }
    return to;
}

/* ---- traversal ---- */

static void tci_lower_dep(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_lower_frame f = {n, idx, guard};
    TCI_PUSH(l->s, l->deps, l->n_deps, l->cap_deps, f);
}

static int tci_lower_pad_guard(tci_lower *l, const tci_node *n, const int *inner_idx, int guard)
{
    for (int i = 0; i < n->rank; i++) {
        guard = tci_lower_guard_and(l, guard, inner_idx[i], 0, tci_dim_add(n->in[0]->shape[i], -1));
    }
    return guard;
}

/* The index of n under a guard that says it is inside. */
static const int *tci_lower_inside(tci_lower *l, const tci_node *n, const int *idx)
{
    int *to = TCI_NEW_ARRAY(l->s, int, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        to[i] = n->shape[i] == 0 ? idx[i]
                                 : tci_kx_bound(l->k, idx[i], 0, tci_dim_add(n->shape[i], -1));
    }
    return to;
}

/* Guard of the part of CAT's axis that input i covers, from `start` on. */
static int tci_lower_cat_guard(tci_lower *l, const tci_node *n, int i, const int *idx, int guard,
                               tci_dim start)
{
    int axis = (int)n->attr[0];
    tci_dim end = tci_dim_add(start, n->in[i]->shape[axis]);
    return tci_lower_guard_and(l, guard, idx[axis], start, tci_dim_add(end, -1));
}

/* Where each input of CAT begins along its axis. */
static tci_dim *tci_lower_cat_starts(tci_lower *l, const tci_node *n)
{
    tci_dim *starts = TCI_NEW_ARRAY(l->s, tci_dim, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++) {
        starts[i + 1] = tci_dim_add(starts[i], n->in[i]->shape[n->attr[0]]);
    }
    return starts;
}

static void tci_lower_pad_deps(tci_lower *l, const tci_lower_frame *f)
{
    const tci_node *n = f->node;
    const int *to = tci_lower_move(l, n, f->idx);
    int guard = tci_lower_pad_guard(l, n, to, f->guard);
    if (guard >= 0) {
        tci_lower_dep(l, n->in[0], tci_lower_inside(l, n->in[0], to), guard);
    }
    tci_lower_dep(l, n->in[1], f->idx, 0);
}

static void tci_lower_cat_deps(tci_lower *l, const tci_lower_frame *f)
{
    const tci_node *n = f->node;
    const tci_dim *starts = tci_lower_cat_starts(l, n);
    for (int i = 0; i < n->n_in; i++) {
        int guard = tci_lower_cat_guard(l, n, i, f->idx, f->guard, starts[i]);
        if (guard >= 0) {
            int *to = tci_scratch_copy(l->s, f->idx, sizeof(int) * (size_t)n->rank);
            int back = tci_kx_const(l->k, tci_dim_neg(starts[i]));
            to[n->attr[0]] = tci_kx_add(l->k, to[n->attr[0]], back);
            tci_lower_dep(l, n->in[i], tci_lower_inside(l, n->in[i], to), guard);
        }
    }
}

/* Ops that are in memory (l->access has them), are roots of their own, were expanded, or have no
 * value. */
#define TCI_LOWER_NEVER_CASES                                                                      \
    TCI_REDUCE_OPS(TCI_OP_CASE)                                                                    \
    TCI_COMPOSITE_OPS(TCI_OP_CASE)                                                                 \
    case TCI_OP_INPUT:                                                                             \
    case TCI_OP_DATA:                                                                              \
    case TCI_OP_SCAN:                                                                              \
    case TCI_OP_TOPK:                                                                              \
    case TCI_OP_SCATTER:                                                                           \
    case TCI_OP_SEGMENT:                                                                           \
    case TCI_OP_CUSTOM:                                                                            \
    case TCI_OP_COLLECTIVE:                                                                        \
    case TCI_OP_CONTRACT:                                                                          \
    case TCI_OP_BOUND:                                                                             \
    case TCI_OP_REPEAT:                                                                            \
    case TCI_OP_RESULT:                                                                            \
    case TCI_OP_ASSIGN:

/* Lists in l->deps the values that n at idx is made of. Deterministic: asked twice for one
 * frame. */
static void tci_lower_list_deps(tci_lower *l, const tci_lower_frame *f)
{
    const tci_node *n = f->node;
    l->n_deps = 0;
    switch ((tci_op)n->op) {
        TCI_EW_OPS(TCI_OP_CASE)
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_BITCAST:
        for (int i = 0; i < n->n_in; i++) {
            tci_lower_dep(l, n->in[i], f->idx, f->guard);
        }
        break;
    case TCI_OP_RESHAPE:
    case TCI_OP_PERMUTE:
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE:
    case TCI_OP_WINDOW: tci_lower_dep(l, n->in[0], tci_lower_move(l, n, f->idx), f->guard); break;
    case TCI_OP_BARRIER: tci_lower_dep(l, n->in[0], f->idx, f->guard); break;
    case TCI_OP_PAD: tci_lower_pad_deps(l, f); break;
    case TCI_OP_CAT: tci_lower_cat_deps(l, f); break;
    case TCI_OP_RANDOM: /* numbers, which can be read where a guard fails too */
        tci_lower_dep(l, n->in[0], f->idx, 0);
        tci_lower_dep(l, n->in[1], f->idx, 0);
        break;
    case TCI_OP_GATHER: /* x itself follows once its index is a value */
        tci_lower_dep(l, n->in[1], f->idx, f->guard);
        break;
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA:
        break;
        TCI_LOWER_NEVER_CASES
        TCI_ASSERT(l->s, false);
    }
}

static int tci_lower_index(tci_lower *l, int x, tc_dtype t)
{
    tci_kinst i = {0};
    i.op = TCI_K_INDEX;
    i.dtype = (int8_t)t;
    i.x = tci_lower_plain(l, x);
    i.guard = -1;
    return tci_kernel_inst(l->k, i);
}

static int tci_lower_literal(tci_lower *l, tci_node *n)
{
    tci_kinst i = {0};
    i.op = TCI_K_LIT;
    i.dtype = tci_dtype_get((tc_dtype)n->dtype)->compute;
    i.x = -1;
    i.guard = -1;
    i.imm = l->literal(l, n);
    return tci_lower_round(l->k, tci_kernel_inst(l->k, i), (tc_dtype)n->dtype);
}

/* True if the guard of instruction i implies `guard`. */
static bool tci_lower_implies(const tci_lower *l, const tci_kinst *i, int guard)
{
    const struct tci_lower_set *set = &l->sets[guard];
    bool all = i->n_guards >= set->n;
    for (int g = 0; all && g < set->n; g++) {
        const tci_kguard *want = &l->k->guards[set->first + g];
        bool found = false;
        for (int h = 0; h < i->n_guards && !found; h++) {
            const tci_kguard *have = &l->k->guards[i->guard + h];
            found = have->x == want->x && tci_dim_le(want->lo, have->lo) &&
                    tci_dim_le(have->hi, want->hi);
        }
        all = found;
    }
    return all;
}

/* A value that is `fill` wherever the guard fails, as a padding inside made it so. */
static bool tci_lower_is_filled(const tci_lower *l, int value, int fill, int guard)
{
    const tci_kinst *v = &l->k->insts[value];
    return v->op == TCI_K_PRIM && v->prim == TCI_P_SELECT && v->args[2] == fill &&
           l->k->insts[v->args[0]].op == TCI_K_GUARD &&
           tci_lower_implies(l, &l->k->insts[v->args[0]], guard);
}

static int tci_lower_pad_value(tci_lower *l, const tci_lower_frame *f, const int *in)
{
    const int *to = tci_lower_move(l, f->node, f->idx);
    int guard = tci_lower_pad_guard(l, f->node, to, f->guard);
    if (guard < 0 || guard == f->guard) {
        return in[0]; /* all fill (then the only dependency), or nothing padded */
    }
    int value = in[0], fill = in[1];
    if (tci_lower_is_filled(l, value, fill, guard)) {
        return value;
    }
    const tci_kinst *v = &l->k->insts[value];
    bool plain = v->op == TCI_K_LOAD && v->guard == l->sets[guard].first &&
                 v->n_guards == l->sets[guard].n;
    if (plain && f->guard == 0 && l->k->insts[fill].op == TCI_K_CONST) {
        tci_kinst load = *v;
        load.value = l->k->insts[fill].value;
        return tci_kernel_inst(l->k, load);
    }
    return tci_lower_select(l->k, tci_lower_guard_value(l, guard), value, fill);
}

static int tci_lower_cat_value(tci_lower *l, const tci_lower_frame *f, const int *in)
{
    int value = -1, at = l->n_deps;
    const tci_dim *starts = tci_lower_cat_starts(l, f->node);
    for (int i = f->node->n_in - 1; i >= 0; i--) {
        int guard = tci_lower_cat_guard(l, f->node, i, f->idx, f->guard, starts[i]);
        if (guard >= 0) {
            int part = in[--at];
            value = value < 0 || guard == f->guard
                        ? part
                        : tci_lower_select(l->k, tci_lower_guard_value(l, guard), part, value);
        }
    }
    tci_value zero = {.i = 0};
    return value >= 0
               ? value
               : tci_kernel_const(l->k, (tc_dtype)tci_dtype_get((tc_dtype)f->node->dtype)->compute,
                                  zero);
}

/* Marks the instructions inside an index expression; seen: expressions that were traversed. */
static void tci_lower_need_values(const tci_kernel *k, int x, bool *seen, bool *needed)
{
    const tci_kx *e = &k->kx[x];
    if (seen[x]) {
        return;
    }
    seen[x] = true;
    if (e->op == TCI_KX_VALUE) {
        needed[tci_kx_number(e)] = true;
    }
    if (e->a >= 0) {
        tci_lower_need_values(k, e->a, seen, needed);
    }
    if (e->b >= 0) {
        tci_lower_need_values(k, e->b, seen, needed);
    }
}

/* An index into an axis of `size`, checked if it may be outside: an instruction. Where the guard
 * fails the index is 0 and passes the check, also where a run makes the size 0: a gather of any
 * element has elements to read (tci_build_can_read). */
static int tci_lower_checked(tci_lower *l, int index, tci_dim size, int guard)
{
    index = tci_lower_convert(l->k, index, TC_I64);
    if (guard > 0) {
        size = tci_dim_max(size, 1);
        tci_value zero = {.i = 0};
        index = tci_lower_select(l->k, tci_lower_guard_value(l, guard), index,
                                 tci_kernel_const(l->k, TC_I64, zero));
    }
    if (tci_kernel_is_below(l->s, l->k, index, size)) {
        return index;
    }
    tci_kinst i = {0};
    i.op = TCI_K_FAULT;
    i.dtype = TC_I64;
    i.n_args = 1;
    i.args[0] = index;
    i.x = -1;
    i.guard = -1;
    i.imm = size;
    l->k->faults = true;
    return tci_kernel_inst(l->k, i);
}

static int tci_lower_at_checked(tci_lower *l, int checked, tci_dim size)
{
    return tci_kx_value(l->k, checked, 0, size == 0 ? 0 : tci_dim_add(size, -1));
}

/* True if instruction `from` depends on `on`. Only later instructions can. */
static bool tci_lower_depends(tci_lower *l, int from, int on)
{
    bool *needed = TCI_NEW_ARRAY(l->s, bool, l->k->n_insts + 1);
    bool *seen = TCI_NEW_ARRAY(l->s, bool, l->k->n_kx + 1);
    needed[from] = true;
    for (int i = from; i > on; i--) {
        const tci_kinst *inst = &l->k->insts[i];
        if (!needed[i]) {
            continue;
        }
        for (int a = 0; a < inst->n_args; a++) {
            needed[inst->args[a]] = true;
        }
        for (int g = -1; g < inst->n_guards; g++) {
            int x = g < 0 ? inst->x : l->k->guards[inst->guard + g].x;
            if (x >= 0) {
                tci_lower_need_values(l->k, x, seen, needed);
            }
        }
    }
    return needed[on];
}

/* x at the loaded index: a frame of its own, so that the traversal evaluates it. -1: pushed, come
 * back. The index is checked whatever x makes of it: where that is the same everywhere, the value
 * is chosen by the check. */
static int tci_lower_gather_value(tci_lower *l, const tci_lower_frame *f, int index)
{
    const tci_node *x = f->node->in[0];
    int axis = (int)f->node->attr[0];
    int checked = tci_lower_checked(l, index, x->shape[axis], f->guard);
    int *to = tci_scratch_copy(l->s, f->idx, sizeof(int) * (size_t)x->rank);
    to[axis] = tci_lower_at_checked(l, checked, x->shape[axis]);
    tci_lower_frame inner = {f->node->in[0], to, f->guard};
    int value = tci_lower_find(l, &inner);
    if (value < 0) {
        TCI_PUSH(l->s, l->frames, l->n_frames, l->cap_frames, inner);
        return -1;
    }
    if (l->k->insts[checked].op != TCI_K_FAULT || tci_lower_depends(l, value, checked)) {
        return value;
    }
    int same = tci_kernel_prim(l->k, TCI_P_EQ, TC_I64, 2, checked, checked, -1);
    return tci_lower_select(l->k, same, value, value);
}

TCI_FN tci_lower_placed tci_lower_scatter(tci_lower *l, const tci_node *n, const int *idx)
{
    tci_node *index = n->in[1];
    int axis = (int)n->attr[0], guard = 0;
    tci_lower_placed put = {-1, -1, -1, -1, -1};
    for (int i = 0; i < n->rank; i++) {
        guard = tci_lower_guard_and(l, guard, idx[i], 0, tci_dim_add(index->shape[i], -1));
    }
    if (guard < 0) {
        return put;
    }
    const int *at = guard > 0 ? tci_lower_inside(l, index, idx) : idx;
    put.value = tci_lower_value(l, n->in[2], at, guard);
    int checked = tci_lower_value(l, index, at, guard);
    checked = tci_lower_checked(l, checked, n->shape[axis], guard);
    put.index = tci_lower_at_checked(l, checked, n->shape[axis]);
    put.guard = guard > 0 ? tci_lower_guard_value(l, guard) : -1;
    if (n->n_in > 3) {
        int stores = tci_lower_value(l, n->in[3], idx, 0);
        put.guard = put.guard < 0
                        ? stores
                        : tci_kernel_prim(l->k, TCI_P_AND, TC_BOOL, 2, put.guard, stores, -1);
    }
    return put;
}

/* An element of a list, known to be in [0, most]. */
static int tci_lower_listed(tci_lower *l, tci_node *list, int at, tci_dim most)
{
    const int idx[2] = {at, -1}; /* plus one more, as every index has */
    int value = tci_lower_convert(l->k, tci_lower_value(l, list, idx, 0), TC_I64);
    return tci_kx_value(l->k, value, 0, most);
}

TCI_FN tci_lower_placed tci_lower_segment(tci_lower *l, const tci_node *n, const int *idx, int at)
{
    int axis = (int)tci_dim_known(n->attr[0]), *src = TCI_NEW_ARRAY(l->s, int, n->rank + 1);
    tci_node *order = n->in[2], *starts = n->in[3];
    tci_lower_placed put = {-1, idx[axis], -1, -1, -1};
    for (int i = 0; i < n->rank; i++) {
        src[i] = idx[i];
    }
    src[axis] = tci_lower_listed(l, order, at, tci_dim_add(n->in[1]->shape[axis], -1));
    put.value = tci_lower_value(l, n->in[1], src, 0);
    int next = tci_kx_add(l->k, idx[axis], tci_kx_const(l->k, 1));
    put.from = tci_lower_listed(l, starts, idx[axis], order->shape[0]);
    put.to = tci_lower_listed(l, starts, next, order->shape[0]);
    return put;
}

/* The position of an element. If one word cannot hold it, it is a row and its column. */
static void tci_lower_place(tci_lower *l, const tci_lower_frame *f, tci_random_place *at)
{
    const tci_node *n = f->node;
    const int64_t words = (int64_t)1 << 32;
    int last = n->rank - 1, *row = TCI_NEW_ARRAY(l->s, int, n->rank + 1);
    bool narrow = tci_dim_most(tci_node_count(n)) <= words;
    bool rows = !narrow && last > 0 && tci_dim_most(n->shape[last]) <= words;
    for (int i = 0; i < n->rank; i++) {
        row[i] = rows && i == last ? tci_kx_const(l->k, 0) : f->idx[i];
    }
    int index = tci_lower_index(l, tci_lower_offset(l, n->rank, n->shape, NULL, row),
                                narrow ? TC_U32 : TC_I64);
    at->index = narrow ? index : tci_random_word(l->k, TC_I64, index, 0);
    at->high = narrow ? -1 : tci_random_word(l->k, TC_I64, index, 1);
    if (rows) {
        tci_random_put(l->k, index, tci_lower_index(l, f->idx[last], TC_U32), at);
    }
}

static int tci_lower_random(tci_lower *l, const tci_lower_frame *f, const int *in)
{
    const tci_node *n = f->node, *stream = n->in[1];
    tci_random_place at = {.key = in[0], .stream = in[1]};
    at.stream = stream->op == TCI_OP_CONST && !stream->value.u ? -1 : in[1];
    tci_lower_place(l, f, &at);
    return tci_random_bits(l->k, &at, (tc_dtype)n->dtype);
}

static int tci_lower_combine(tci_lower *l, const tci_lower_frame *f, const int *in)
{
    tci_node *n = f->node;
    switch ((tci_op)n->op) {
        TCI_EW_OPS(TCI_OP_CASE) return tci_lower_elementwise(l, n, in);
    case TCI_OP_LITERAL: return tci_lower_literal(l, n);
    case TCI_OP_CONST:
        return tci_kernel_const(l->k, (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute,
                                n->value);
    case TCI_OP_IOTA: return tci_lower_index(l, f->idx[0], TC_I64);
    case TCI_OP_RANDOM: return tci_lower_random(l, f, in);
    case TCI_OP_WHERE: return tci_lower_select(l->k, in[0], in[1], in[2]);
    case TCI_OP_CAST: return tci_lower_round(l->k, in[0], (tc_dtype)n->dtype);
    case TCI_OP_BITCAST:
        return tci_bitcast_value(l->k, in[0], (tc_dtype)n->in[0]->dtype, (tc_dtype)n->dtype);
    case TCI_OP_PAD: return tci_lower_pad_value(l, f, in);
    case TCI_OP_CAT: return tci_lower_cat_value(l, f, in);
    case TCI_OP_GATHER: return tci_lower_gather_value(l, f, in[0]);
    case TCI_OP_BARRIER:
    case TCI_OP_RESHAPE:
    case TCI_OP_PERMUTE:
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE:
    case TCI_OP_WINDOW:
        return in[0];
        TCI_LOWER_NEVER_CASES
        TCI_ASSERT(l->s, false);
    }
    return -1;
}
#undef TCI_LOWER_NEVER_CASES

/* Works on the frame on top: finishes it (true) or pushes what it still needs (false). */
static bool tci_lower_step(tci_lower *l, tci_lower_frame f, int *inst)
{
    *inst = l->access(l, f.node, f.idx, f.guard);
    if (*inst >= 0) {
        return true;
    }
    tci_lower_list_deps(l, &f);
    bool ready = true;
    l->n_dep_insts = 0;
    for (int i = 0; i < l->n_deps; i++) {
        int value = tci_lower_find(l, &l->deps[i]);
        if (value < 0) {
            TCI_PUSH(l->s, l->frames, l->n_frames, l->cap_frames, l->deps[i]);
            ready = false;
        }
        TCI_PUSH(l->s, l->dep_insts, l->n_dep_insts, l->cap_dep_insts, value);
    }
    if (ready) {
        *inst = tci_lower_combine(l, &f, l->dep_insts);
    }
    return ready && *inst >= 0;
}

TCI_FN int tci_lower_value(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_lower_frame root = {n, tci_scratch_copy(l->s, idx, sizeof(int) * (size_t)(n->rank + 1)),
                            guard};
    int base = l->n_frames;
    int inst = tci_lower_find(l, &root);
    if (inst >= 0) {
        return inst;
    }
    TCI_PUSH(l->s, l->frames, l->n_frames, l->cap_frames, root);
    while (l->n_frames > base) {
        int top = l->n_frames - 1;
        tci_lower_frame f = l->frames[top];
        if (tci_lower_find(l, &f) >= 0) {
            l->n_frames = top;
        } else if (tci_lower_step(l, f, &inst)) {
            tci_lower_remember(l, &f, inst);
            l->n_frames = top;
        }
    }
    return tci_lower_find(l, &root);
}

TCI_FN void tci_lower_replace(tci_lower *l, tci_node *n, const int *idx, int inst)
{
    tci_lower_frame f = {n, idx, 0};
    for (int i = 0; i < l->n_memo; i++) {
        if (tci_lower_same(&l->memo[i].key, &f)) {
            l->memo[i].inst = inst;
        }
    }
}

TCI_FN int tci_lower_load(tci_lower *l, int operand, tc_dtype t, int x, int guard)
{
    tci_kinst i = {0};
    i.op = TCI_K_LOAD;
    i.dtype = (int8_t)t;
    i.x = tci_lower_plain(l, x);
    i.imm = operand;
    i.guard = guard > 0 ? l->sets[guard].first : -1;
    i.n_guards = guard > 0 ? l->sets[guard].n : 0;
    return tci_kernel_inst(l->k, i);
}

TCI_FN int tci_lower_visited(tci_lower *l, tci_node ***nodes)
{
    *nodes = TCI_NEW_ARRAY(l->s, tci_node *, l->n_memo + 1);
    for (int i = 0; i < l->n_memo; i++) {
        (*nodes)[i] = l->memo[i].key.node;
    }
    return l->n_memo;
}

/* Sets mark[x] of each division and remainder inside x, seen once. */
static void tci_lower_mark_divisions(const tci_kernel *k, int x, bool *seen, bool *mark)
{
    const tci_kx *e = &k->kx[x];
    if (seen[x]) {
        return;
    }
    seen[x] = true;
    mark[x] = e->op == TCI_KX_DIV || e->op == TCI_KX_MOD;
    if (e->a >= 0) {
        tci_lower_mark_divisions(k, e->a, seen, mark);
    }
    if (e->b >= 0) {
        tci_lower_mark_divisions(k, e->b, seen, mark);
    }
}

/* True if the index of n's operand has a live division that n's own index, `idx`, does not have. */
static bool tci_lower_divides(tci_lower *l, const bool *live, int n_live, const tci_node *n,
                              const int *idx)
{
    const int *to = tci_lower_move(l, n, idx);
    int *plain = TCI_NEW_ARRAY(l->s, int, n->rank + n->in[0]->rank), at = 0;
    for (int i = 0; i < n->rank; i++) {
        plain[at++] = tci_lower_plain(l, idx[i]);
    }
    for (int i = 0; i < n->in[0]->rank; i++) {
        plain[at++] = tci_lower_plain(l, to[i]);
    }
    bool *seen = TCI_NEW_ARRAY(l->s, bool, l->k->n_kx);
    bool *mark = TCI_NEW_ARRAY(l->s, bool, l->k->n_kx);
    for (int i = 0; i < n->rank; i++) {
        tci_lower_mark_divisions(l->k, plain[i], seen, mark);
    }
    for (int i = 0; i < n_live; i++) {
        mark[i] = false;
    }
    for (int i = n->rank; i < at; i++) {
        tci_lower_mark_divisions(l->k, plain[i], seen, mark);
    }
    bool divides = false;
    for (int i = 0; i < n_live; i++) {
        divides |= mark[i] && live[i];
    }
    return divides;
}

TCI_FN int tci_lower_dividing(tci_lower *l, tci_node ***nodes)
{
    int n = 0, n_live = l->k->n_kx;
    const bool *live = tci_kernel_live_kx(l->k, false);
    bool any = false;
    for (int x = 0; x < n_live; x++) {
        any |= live[x] && (l->k->kx[x].op == TCI_KX_DIV || l->k->kx[x].op == TCI_KX_MOD);
    }
    *nodes = any ? TCI_NEW_ARRAY(l->s, tci_node *, l->n_memo + 1) : NULL;
    for (int i = 0; i < l->n_memo && any; i++) {
        tci_lower_frame f = l->memo[i].key;
        if (f.node->op == TCI_OP_RESHAPE && tci_lower_divides(l, live, n_live, f.node, f.idx)) {
            (*nodes)[n++] = f.node;
        }
    }
    return n;
}
