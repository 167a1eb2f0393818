/* kernel/value_range.c - value-range analysis of kernel instructions: intervals of integers, to
 * omit index bounds checks, and signs of floats, to select the exp for non-positive arguments.
 *
 * In: a kernel being made. Out: whether an index needs a check; the possible signs of a float.
 * Design: operands precede their users, so one pass gives each integer a range; if a sum may
 * overflow its dtype, or nothing is known, the range is that of the dtype. The signs of a float
 * follow from those of a few operands before it. */
#include "value_range.h"

typedef struct tci_range {
    int64_t lo, hi;
} tci_range;

/* Of u64 too, whose upper half counts as negative. */
static tci_range tci_range_of_dtype(tc_dtype t)
{
    int bits = t == TC_BOOL ? 1 : 8 * tci_dtype_get(t)->bytes;
    bool is_signed = tci_dtype_is_signed(t) || bits == 64;
    int64_t half = INT64_MAX >> (64 - bits);
    tci_range plain = {0, (int64_t)((uint64_t)half * 2 + 1)}, both = {-half - 1, half};
    return is_signed ? both : plain;
}

static bool tci_range_holds(tci_range outer, tci_range r)
{
    return outer.lo <= r.lo && r.hi <= outer.hi;
}

/* a + sign b; all that 64 bits hold where that may not be one of them. */
static tci_range tci_range_sum(tci_range a, tci_range b, int sign)
{
    const int64_t most = INT64_MAX / 2;
    const tci_range all = {-most, most};
    if (!tci_range_holds(all, a) || !tci_range_holds(all, b)) {
        return tci_range_of_dtype(TC_I64);
    }
    tci_range up = {a.lo + b.lo, a.hi + b.hi}, down = {a.lo - b.hi, a.hi - b.lo};
    return sign > 0 ? up : down;
}

static tci_range tci_range_either(tci_range a, tci_range b)
{
    tci_range r = {TCI_MIN(a.lo, b.lo), TCI_MAX(a.hi, b.hi)};
    return r;
}

static tci_range tci_range_of_prim(const tci_kernel *k, const tci_kinst *i, const tci_range *of)
{
    tci_range a = of[i->args[0]], b = i->n_args > 1 ? of[i->args[1]] : a;
    tci_range less = {TCI_MIN(a.lo, b.lo), TCI_MIN(a.hi, b.hi)};
    tci_range more = {TCI_MAX(a.lo, b.lo), TCI_MAX(a.hi, b.hi)};
    switch (i->dtype == TC_U64 ? TCI_P_COUNT : i->prim) { /* which compares other numbers */
    case TCI_P_ADD: return tci_range_sum(a, b, 1);
    case TCI_P_SUB: return tci_range_sum(a, b, -1);
    case TCI_P_SELECT: return tci_range_either(b, of[i->args[2]]);
    case TCI_P_PMIN: return less;
    case TCI_P_PMAX: return more;
    case TCI_P_CAST:
        return tci_dtype_is_float((tc_dtype)k->insts[i->args[0]].dtype)
                   ? tci_range_of_dtype((tc_dtype)i->dtype)
                   : a;
    default: return tci_range_of_dtype((tc_dtype)i->dtype);
    }
}

static tci_range tci_range_of(const tci_kernel *k, int inst, const tci_range *of)
{
    const tci_kinst *i = &k->insts[inst];
    const tci_range all = tci_range_of_dtype((tc_dtype)i->dtype);
    tci_range r = all;
    if (i->op == TCI_K_CONST) {
        r.lo = r.hi = i->value.i;
    } else if (i->op == TCI_K_INDEX) {
        r.lo = tci_dim_least(k->kx[i->x].lo);
        r.hi = tci_dim_most(k->kx[i->x].hi);
    } else if (i->op == TCI_K_PRIM) {
        r = tci_range_of_prim(k, i, of);
    }
    return tci_range_holds(all, r) ? r : all;
}

TCI_FN bool tci_kernel_is_below(tci_scratch *s, const tci_kernel *k, int inst, tci_dim n)
{
    tci_range *of = TCI_NEW_ARRAY(s, tci_range, inst + 1);
    for (int i = 0; i <= inst; i++) {
        if (!tci_dtype_is_float((tc_dtype)k->insts[i].dtype)) {
            of[i] = tci_range_of(k, i, of);
        }
    }
    return of[inst].lo >= 0 && of[inst].hi < tci_dim_least(n);
}

/* ---- signs ---- */

/* Possible signs of a float that is neither 0 nor NaN: a set. */
enum { TCI_SIGN_ABOVE = 1, TCI_SIGN_BELOW = 2, TCI_SIGN_DEPTH = 6 };

static unsigned tci_sign_of(const tci_kernel *k, int inst, int depth);

static unsigned tci_sign_turned(unsigned s)
{
    return (s & TCI_SIGN_ABOVE ? TCI_SIGN_BELOW : 0) | (s & TCI_SIGN_BELOW ? TCI_SIGN_ABOVE : 0);
}

static bool tci_sign_is_prim(const tci_kernel *k, int inst, int prim)
{
    return k->insts[inst].op == TCI_K_PRIM && k->insts[inst].prim == prim;
}

/* x and y are one value or each other's negative: no product has another sign. */
static unsigned tci_sign_of_product(const tci_kernel *k, int x, int y, unsigned a, unsigned b)
{
    bool turned = (tci_sign_is_prim(k, x, TCI_P_NEG) && k->insts[x].args[0] == y) ||
                  (tci_sign_is_prim(k, y, TCI_P_NEG) && k->insts[y].args[0] == x);
    if (x == y || turned) {
        return turned ? TCI_SIGN_BELOW : TCI_SIGN_ABOVE;
    }
    return (a & b ? TCI_SIGN_ABOVE : 0) | (a & tci_sign_turned(b) ? TCI_SIGN_BELOW : 0);
}

/* True if rounding v by `round` leaves it unchanged. */
static bool tci_sign_is_rounded(const tci_kernel *k, int v, int round)
{
    const tci_kinst *in = &k->insts[v];
    bool is_load = in->op == TCI_K_LOAD && in->n_guards == 0;
    return is_load ? k->operands[tci_kinst_number(in)].dtype ==
                         (round == TCI_P_ROUND16 ? TC_F16 : TC_BF16)
                   : tci_sign_is_prim(k, v, round);
}

/* True if `most` is the maximum of the values of a stage that include v, wherever v is evaluated:
 * for one outer point, and one element that the stage keeps. Rounded, it is no less than v rounded.
 */
static bool tci_sign_is_most(const tci_kernel *k, int most, int v)
{
    const tci_kinst *in = &k->insts[most];
    if (tci_sign_is_prim(k, most, TCI_P_ROUND16) || tci_sign_is_prim(k, most, TCI_P_ROUNDB16)) {
        return tci_sign_is_rounded(k, v, in->prim) && tci_sign_is_most(k, in->args[0], v);
    }
    const tci_kred *red = in->op == TCI_K_RED ? &k->reds[tci_kinst_number(in)] : NULL;
    return red && red->op == TCI_RED_MAX && red->in[0] == v &&
           k->stages[red->stage].kind == TCI_STAGE_REDUCE;
}

static unsigned tci_sign_of_prim(const tci_kernel *k, const tci_kinst *i, int depth)
{
    int x = i->args[0], y = i->args[i->n_args > 1];
    unsigned a = tci_sign_of(k, x, depth), b = tci_sign_of(k, y, depth);
    switch (i->prim) {
    case TCI_P_ROUND16:
    case TCI_P_ROUNDB16: return a;
    case TCI_P_NEG: return tci_sign_turned(a);
    case TCI_P_ABS:
    case TCI_P_SQRT:
    case TCI_P_EXP:
    case TCI_P_EXPN: return TCI_SIGN_ABOVE;
    case TCI_P_ADD: return a | b;
    case TCI_P_SUB: return tci_sign_is_most(k, y, x) ? TCI_SIGN_BELOW : a | tci_sign_turned(b);
    case TCI_P_MUL: return tci_sign_of_product(k, x, y, a, b);
    case TCI_P_SELECT: return b | tci_sign_of(k, i->args[2], depth);
    default: return TCI_SIGN_ABOVE | TCI_SIGN_BELOW;
    }
}

static unsigned tci_sign_of(const tci_kernel *k, int inst, int depth)
{
    const tci_kinst *i = &k->insts[inst];
    if (i->op == TCI_K_CONST && tci_dtype_is_float((tc_dtype)i->dtype)) {
        return i->value.f > 0 ? TCI_SIGN_ABOVE : i->value.f < 0 ? TCI_SIGN_BELOW : 0;
    }
    return i->op == TCI_K_PRIM && depth > 0 ? tci_sign_of_prim(k, i, depth - 1)
                                            : TCI_SIGN_ABOVE | TCI_SIGN_BELOW;
}

TCI_FN bool tci_kernel_is_never_above_0(const tci_kernel *k, int inst)
{
    return !(tci_sign_of(k, inst, TCI_SIGN_DEPTH) & TCI_SIGN_ABOVE);
}
