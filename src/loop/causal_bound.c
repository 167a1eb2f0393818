/* loop/causal_bound.c - shortens trip counts of loops under a triangular (causal) mask.
 *
 * In: a kernel. Out: a tci_causal if a GUARD is a diagonal of an outer axis and an inner one, as a
 * causal mask is, and what follows for the masked values: each instruction is evaluated with the
 * guard's truth value there. Rows of queries see the first keys, rows of keys the last queries:
 * the bound is applied to the axis along which some contraction can be skipped. A masked score may
 * be computed or skipped. That a masked weight is +0 holds only if the row sees a key, so it is
 * checked at run time. */
#include "causal_bound.h"

enum { TCI_CAUSAL_FAR = 1 << 29 }; /* of a cut's base, at most */

/* True if guard i masks a triangle. The masked side is `low`. */
static bool tci_causal_of_guard(const tci_kernel *k, const tci_kinst *i, tci_causal *c)
{
    tci_dim *coef = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes + 1), base;
    const tci_kguard *g = &k->guards[i->guard];
    c->axis = -1;
    if (i->n_guards != 1 || !tci_kx_affine(k, g->x, coef, &base) ||
        !tci_dim_le(k->kx[g->x].hi, g->hi) || !tci_dim_is_known(base) || !tci_dim_is_known(g->lo)) {
        return false;
    }
    for (int a = 0; a < k->n_axes; a++) {
        bool other = a != c->row_axis && coef[a] != 0;
        if (!tci_dim_is_known(coef[a]) || (other && (c->axis >= 0 || a < k->n_outer))) {
            return false;
        }
        c->axis = other ? a : c->axis;
    }
    int64_t at = tci_dim_known(base), lo = tci_dim_known(g->lo);
    int64_t sign = c->axis >= 0 ? -tci_dim_known(coef[c->axis]) : 0;
    c->step = sign * tci_dim_known(coef[c->row_axis]);
    c->base = sign > 0 ? at - lo + 1 : lo - at;
    c->masked = (sign > 0) != c->low ? TCI_NEVER : TCI_ALWAYS;
    return (sign == 1 || sign == -1) && c->step >= 0 && c->step <= 1 && c->base > -TCI_CAUSAL_FAR &&
           c->base < TCI_CAUSAL_FAR;
}

static int8_t tci_causal_truth(const tci_causal *c, const tci_kinst *i)
{
    const int8_t *t = c->truth;
    const int32_t *a = i->args;
    switch (i->prim) {
    case TCI_P_AND: return t[a[0]] == TCI_NEVER || t[a[1]] == TCI_NEVER ? TCI_NEVER : TCI_SOMETIMES;
    case TCI_P_OR:
        return t[a[0]] == TCI_ALWAYS || t[a[1]] == TCI_ALWAYS ? TCI_ALWAYS : TCI_SOMETIMES;
    case TCI_P_NOT:
        return t[a[0]] == TCI_SOMETIMES ? TCI_SOMETIMES
               : t[a[0]] == TCI_NEVER   ? TCI_ALWAYS
                                        : TCI_NEVER;
    default: return TCI_SOMETIMES;
    }
}

/* True if argument number n of a masked instruction is evaluated. */
static bool tci_causal_needs(const tci_causal *c, const tci_kinst *i, int n)
{
    int8_t truth = i->op == TCI_K_PRIM && i->prim == TCI_P_SELECT ? c->truth[i->args[0]]
                                                                  : TCI_SOMETIMES;
    return truth == TCI_SOMETIMES || n == (truth == TCI_ALWAYS ? 1 : 2);
}

/* The element value that a RED instruction stores unchanged; -1: none. */
static int tci_causal_kept(const tci_kernel *k, const tci_kinst *i)
{
    const tci_kred *red = i->op == TCI_K_RED ? &k->reds[tci_kinst_number(i)] : NULL;
    const tci_kstage *st = red ? &k->stages[red->stage] : NULL;
    return st && st->n_kept > 0 && st->n_kept == st->n_axes ? red->in[0] : -1;
}

static void tci_causal_derive(const tci_kernel *k, tci_causal *c)
{
    for (int n = 0; n < k->n_insts; n++) {
        const tci_kinst *i = &k->insts[n];
        int kept = tci_causal_kept(k, i);
        int other = c->low ? c->row_axis : c->axis;
        bool one = i->op == TCI_K_PRIM || !tci_build_depends(i->axes, other);
        for (int a = 0; a < i->n_args; a++) {
            one = one && (c->is_one[i->args[a]] || !tci_causal_needs(c, i, a));
        }
        c->is_one[n] = kept >= 0 && kept < n ? c->is_one[kept] : one;
        if (i->op == TCI_K_PRIM && i->dtype == TC_BOOL) {
            c->truth[n] = tci_causal_truth(c, i);
        }
    }
}

TCI_FN bool tci_causal_hides(const tci_kernel *k, const tci_causal *c, int red, const bool *leaves)
{
    bool *shown = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1), hides = true;
    for (int n = 0; n < k->n_insts; n++) {
        const tci_kinst *i = &k->insts[n];
        int kept = tci_causal_kept(k, i);
        shown[n] = n == k->reds[red].inst || (kept >= 0 && kept < n && shown[kept]);
        for (int a = 0; a < i->n_args; a++) {
            shown[n] = shown[n] || (shown[i->args[a]] && tci_causal_needs(c, i, a));
        }
    }
    for (int r = 0; r < k->n_reds; r++) {
        for (int j = 0; j < tci_red_takes(k->reds[r].op) && r != red; j++) {
            int in = k->reds[r].in[j];
            bool left = leaves && leaves[k->reds[r].stage] && in == k->reds[red].inst;
            hides = hides && (left || !shown[in]);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        hides = hides && !shown[k->stores[i].value];
    }
    for (int i = 0; i < k->n_kx; i++) { /* what is read at a position that follows from a row */
        hides = hides && (k->kx[i].op != TCI_KX_VALUE || k->kx[i].stage < 0);
    }
    return hides;
}

/* The first diagonal among the guards, whose side `low` is masked. */
static bool tci_causal_first(const tci_kernel *k, bool low, tci_causal *c)
{
    c->is_one = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    c->truth = TCI_NEW_ARRAY(k->s, int8_t, k->n_insts + 1);
    c->low = low;
    for (int i = 0; i < k->n_insts; i++) {
        c->truth[i] = TCI_SOMETIMES;
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (k->insts[i].op == TCI_K_GUARD && tci_causal_of_guard(k, &k->insts[i], c)) {
            c->guard = i;
            c->truth[i] = c->masked;
            tci_causal_derive(k, c);
            return true;
        }
    }
    return false;
}

static bool tci_causal_hides_any(const tci_kernel *k, const tci_causal *c)
{
    bool hides = false;
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kstage *st = &k->stages[k->reds[r].stage];
        bool keeps = st->n_kept > 0 && st->n_kept < st->n_axes &&
                     st->axes[st->n_axes - 1] == c->axis;
        hides = hides || (keeps && tci_causal_hides(k, c, r, NULL));
    }
    return hides;
}

TCI_FN bool tci_causal_find(const tci_kernel *k, int row_axis, tci_causal *c)
{
    tci_causal low = {.row_axis = row_axis};
    c->row_axis = row_axis;
    if (!tci_causal_first(k, false, c)) {
        return false;
    }
    if (!tci_causal_hides_any(k, c) && tci_causal_first(k, true, &low) &&
        tci_causal_hides_any(k, &low)) {
        *c = low;
    }
    return true;
}

/* ---- in a loop ---- */

TCI_FN bool tci_causal_is_bound(const tci_build *b, int axis)
{
    const tci_bind *row = b->cut ? b->bind[b->cut->row_axis] : NULL;
    return row && !row->is_vector && b->cut->axis == axis;
}

TCI_FN int tci_causal_at(tci_build *b, const tci_causal *c, tci_lin row)
{
    tci_loop *l = b->l;
    int size = tci_lx_const(l, b->k->axes[c->axis].size);
    tci_lin at = tci_lin_plus(tci_lin_mul(b, row, c->step), c->base);
    int x = tci_lx_make(l, TCI_LX_MAX, tci_build_lx(b, at), tci_lx_const(l, 0), 0);
    return tci_build_lx(b, tci_build_let(b, tci_lx_make(l, TCI_LX_MIN, x, size, 0)));
}

/* True if value `inst` is +0 at all points of `axis` from `from` up to `to`. */
static int tci_causal_is_zero(tci_build *b, int inst, int axis, int from, int to)
{
    tc_dtype t = (tc_dtype)b->k->insts[inst].dtype, bits = t == TC_F64 ? TC_I64 : TC_I32;
    tci_value zero = {.i = 0};
    tci_lopen open;
    int any = tci_build_mutable(b, tci_build_const(b, bits, zero));
    tci_lin at = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    tci_dim most = tci_dim_add(b->k->axes[axis].size, -1);
    tci_build_set(b, axis, tci_build_bind(b, at, 0, most, false, -1));
    int value = tci_build_value(b, inst);
    int both[2] = {any, tci_build_prim(b, TCI_P_BITS, bits, 1, &value, 0)};
    tci_build_assign(b, any, tci_build_prim(b, TCI_P_OR, bits, 2, both, 0));
    tci_build_close(b, &open);
    tci_build_set(b, axis, NULL);
    int same[2] = {tci_build_copy(b, any), tci_build_const(b, bits, zero)};
    return tci_build_prim(b, TCI_P_EQ, TC_BOOL, 2, same, 0);
}

TCI_FN int tci_causal_zeros(tci_build *b, const tci_causal *c, int inst, tci_lin first,
                            tci_lin last)
{
    tci_dim size = b->k->axes[c->axis].size, last_one = tci_dim_max(tci_dim_add(size, -1), 0);
    tci_dim rows = b->k->axes[c->row_axis].size;
    int at = tci_causal_at(b, c, c->low ? first : tci_lin_plus(last, -1)), zeros;
    if (c->low) { /* the rows have the same there: those of the first one */
        tci_build_set(b, c->row_axis,
                      tci_build_bind(b, first, 0, tci_dim_add(rows, -1), false, -1));
        zeros = tci_causal_is_zero(b, inst, c->axis, tci_lx_const(b->l, 0), at);
        tci_build_set(b, c->row_axis, NULL);
    } else { /* a row has one value there: that of the last element */
        tci_build_set(b, c->axis,
                      tci_build_bind(b, tci_lin_const(last_one), last_one, last_one, false, -1));
        zeros = tci_causal_is_zero(b, inst, c->row_axis, tci_build_lx(b, first),
                                   tci_build_lx(b, last));
        tci_build_set(b, c->axis, NULL);
    }
    int none = c->low ? tci_lx_const(b->l, 0) : tci_lx_const(b->l, size);
    int choice[3] = {zeros, tci_build_number(b, at, TC_I64), tci_build_number(b, none, TC_I64)};
    int end = tci_build_prim(b, TCI_P_SELECT, TC_I64, 3, choice, 0);
    return tci_lx_var(b->l, tci_build_value_index(b, end));
}
