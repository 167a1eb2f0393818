/* loop/stage.c - the stages of a kernel, for a tile of outer points whose bindings are given.
 *
 * In: a tci_tile. Out: statements in the current block. Reductions keep to the order that
 * kernel/ir.h prescribes: VEC_OUTER has one accumulator for each outer point, so tiles and vectors
 * are free; VEC_INNER has 64 virtual lanes on the stage's last axis, held in 64 / lanes registers,
 * or in a local array when that would be too many. A lane that no element of the row reaches stays
 * at the identity, and taking in the identity changes nothing, so registers beyond the row's length
 * are left out. */

#include "stage.h"

enum {
    TCI_STAGE_MAX_REGISTERS = 16,
    TCI_STAGE_MAX_CUTS = 16,
    TCI_STAGE_LINE_BYTES = 64,
    TCI_STAGE_BLOCK_ROWS = 16 /* rows that a thread of a block reads ahead of its reduction */
};

/* ---- combining ---- */

static bool tci_stage_is_arg(const tci_kred *red)
{
    return tci_kred_is_arg(red->op);
}

static bool tci_stage_is_min(const tci_kred *red)
{
    return red->op == TCI_RED_MIN || red->op == TCI_RED_ARGMIN;
}

static int tci_stage_op(tci_build *b, tci_prim p, tc_dtype result, int x, int y)
{
    int args[2] = {x, y};
    return tci_build_prim(b, p, result, 2, args, 0);
}

static int tci_stage_select(tci_build *b, int mask, int x, int y)
{
    int args[3] = {mask, x, y};
    return tci_build_prim(b, TCI_P_SELECT, (tc_dtype)b->l->values[x].dtype, 3, args, 0);
}

/* acc where acc > v or acc is NaN, else v: pmax gives exactly that but for a NaN in acc. */
static int tci_stage_extreme(tci_build *b, const tci_kred *red, int acc, int v)
{
    tc_dtype t = (tc_dtype)red->dtype;
    if (t == TC_BOOL) {
        return tci_stage_op(b, tci_stage_is_min(red) ? TCI_P_AND : TCI_P_OR, t, acc, v);
    }
    int best = tci_stage_op(b, tci_stage_is_min(red) ? TCI_P_PMIN : TCI_P_PMAX, t, acc, v);
    if (!tci_dtype_is_float(t)) {
        return best;
    }
    return tci_stage_select(b, tci_stage_op(b, TCI_P_EQ, TC_BOOL, acc, acc), best, acc);
}

/* v replaces acc if it beats it strictly, or is the first NaN, or ties with a lower index. */
static tci_stage_pair tci_stage_arg(tci_build *b, const tci_kred *red, tci_stage_pair acc,
                                    tci_stage_pair v)
{
    bool less = tci_stage_is_min(red);
    int take = less ? tci_stage_op(b, TCI_P_LT, TC_BOOL, v.value, acc.value)
                    : tci_stage_op(b, TCI_P_LT, TC_BOOL, acc.value, v.value);
    int tie = tci_stage_op(b, TCI_P_EQ, TC_BOOL, v.value, acc.value);
    if (tci_dtype_is_float((tc_dtype)red->dtype)) {
        int ordered_v = tci_stage_op(b, TCI_P_EQ, TC_BOOL, v.value, v.value);
        int nan_v = tci_build_prim(b, TCI_P_NOT, TC_BOOL, 1, &ordered_v, 0);
        int ordered_acc = tci_stage_op(b, TCI_P_EQ, TC_BOOL, acc.value, acc.value);
        int nan_acc = tci_build_prim(b, TCI_P_NOT, TC_BOOL, 1, &ordered_acc, 0);
        take = tci_stage_op(b, TCI_P_OR, TC_BOOL, take,
                            tci_stage_op(b, TCI_P_AND, TC_BOOL, nan_v, ordered_acc));
        tie = tci_stage_op(b, TCI_P_OR, TC_BOOL, tie,
                           tci_stage_op(b, TCI_P_AND, TC_BOOL, nan_v, nan_acc));
    }
    int lower = tci_stage_op(b, TCI_P_LT, TC_BOOL, v.index, acc.index);
    take =
        tci_stage_op(b, TCI_P_OR, TC_BOOL, take, tci_stage_op(b, TCI_P_AND, TC_BOOL, tie, lower));
    tci_stage_pair r = {tci_stage_select(b, take, v.value, acc.value),
                        tci_stage_select(b, take, v.index, acc.index)};
    return r;
}

static int tci_stage_fma(tci_build *b, const tci_kred *red, tci_stage_pair v, int acc)
{
    tc_dtype t = (tc_dtype)red->dtype;
    if (tci_dtype_is_float(t)) {
        int args[3] = {v.value, v.index, acc};
        return tci_build_prim(b, TCI_P_FMA, t, 3, args, 0);
    }
    tci_prim mul = t == TC_BOOL ? TCI_P_AND : TCI_P_MUL;
    return tci_stage_op(b, t == TC_BOOL ? TCI_P_OR : TCI_P_ADD, t, acc,
                        tci_stage_op(b, mul, t, v.value, v.index));
}

TCI_FN tci_stage_pair tci_stage_combine(tci_build *b, const tci_kred *red, tci_stage_pair acc,
                                        tci_stage_pair v)
{
    tc_dtype t = (tc_dtype)red->dtype;
    tci_stage_pair r = {-1, -1};
    tci_prim p = TCI_P_ADD;
    switch ((tci_kred_op)red->op) {
    case TCI_RED_SUM: p = t == TC_BOOL ? TCI_P_OR : TCI_P_ADD; break;
    case TCI_RED_PROD: p = t == TC_BOOL ? TCI_P_AND : TCI_P_MUL; break;
    case TCI_RED_ANY: p = TCI_P_OR; break;
    case TCI_RED_ALL: p = TCI_P_AND; break;
    case TCI_RED_MAX:
    case TCI_RED_MIN: r.value = tci_stage_extreme(b, red, acc.value, v.value); return r;
    case TCI_RED_ARGMAX:
    case TCI_RED_ARGMIN: return tci_stage_arg(b, red, acc, v);
    case TCI_RED_DOT: r.value = tci_stage_fma(b, red, v, acc.value); return r;
    }
    r.value = tci_stage_op(b, p, t, acc.value, v.value);
    return r;
}

static tci_stage_pair tci_stage_identity(tci_build *b, const tci_kred *red)
{
    tc_dtype t = (tc_dtype)red->dtype;
    tci_value last = {.i = INT64_MAX};
    tci_stage_pair r = {tci_build_const(b, t, tci_kred_identity(red->op, t)),
                        tci_stage_is_arg(red) ? tci_build_const(b, TC_I64, last) : -1};
    return r;
}

TCI_FN tci_stage_pair tci_stage_operands(tci_build *b, const tci_kred *red)
{
    tci_stage_pair r = {tci_build_value(b, red->a), red->b >= 0 ? tci_build_value(b, red->b) : -1};
    return r;
}

TCI_FN tci_stage_pair tci_stage_accumulator(tci_build *b, const tci_kred *red, int lanes)
{
    tci_stage_pair id = tci_stage_identity(b, red);
    tci_stage_pair r = {tci_build_mutable(b, tci_build_widen(b, id.value, lanes)), -1};
    if (id.index >= 0) {
        r.index = tci_build_mutable(b, tci_build_widen(b, id.index, lanes));
    }
    return r;
}

TCI_FN void tci_stage_assign(tci_build *b, tci_stage_pair acc, tci_stage_pair v)
{
    tci_build_assign(b, acc.value, v.value);
    if (acc.index >= 0) {
        tci_build_assign(b, acc.index, v.index);
    }
}

TCI_FN void tci_stage_remember_result(tci_build *b, const tci_kred *red, tci_stage_pair acc)
{
    tci_build_remember(b, red->inst, tci_build_copy(b, acc.index >= 0 ? acc.index : acc.value));
}

/* ---- loops over a stage's axes ---- */

static void tci_stage_open_axis(tci_build *b, int axis, tci_lopen *open)
{
    tci_dim size = b->k->axes[axis].size;
    if (size == 1) {
        tci_build_set(b, axis, tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
        return;
    }
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, size), 1, open);
    tci_lin at = tci_lin_var(b, i);
    tci_build_set(b, axis, tci_build_bind(b, at, 0, tci_dim_add(size, -1), false, -1));
}

static tci_lopen *tci_stage_open(tci_build *b, const int32_t *axes, int n)
{
    tci_lopen *open = TCI_NEW_ARRAY(b->s, tci_lopen, n + 1);
    for (int i = 0; i < n; i++) {
        tci_stage_open_axis(b, axes[i], &open[i]);
    }
    return open;
}

static void tci_stage_close(tci_build *b, const int32_t *axes, int n, const tci_lopen *open)
{
    for (int i = n - 1; i >= 0; i--) {
        if (b->k->axes[axes[i]].size != 1) {
            tci_build_close(b, &open[i]);
        }
        tci_build_set(b, axes[i], NULL);
    }
}

TCI_FN void tci_stage_point(tci_build *b, const tci_tile *tile, int i)
{
    if (tile->row_axis >= 0) {
        tci_build_set(b, tile->row_axis, tile->rows[i / tile->n_vecs]);
    }
    if (tile->vec_axis >= 0) {
        tci_build_set(b, tile->vec_axis, tile->vecs[i % tile->n_vecs]);
    }
}

/* All values first, then the stores: an output may be one of the inputs. */
TCI_FN void tci_stage_stores(tci_build *b, int stage, const tci_kstore *stream)
{
    const tci_kernel *k = b->k;
    int *values = TCI_NEW_ARRAY(b->s, int, k->n_stores + 1);
    for (int i = 0; i < k->n_stores; i++) {
        if (k->stores[i].stage == stage) {
            values[i] = tci_build_value(b, k->stores[i].value);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        if (k->stores[i].stage == stage) {
            tci_build_store(b, &k->stores[i], values[i], &k->stores[i] == stream);
        }
    }
}

/* Where guard g changes along an axis of which it has coefficient coef, for values of its other
 * axes in lo..hi; false where that is not known. */
static bool tci_stage_changes(const tci_kguard *g, tci_dim coef, tci_dim lo, tci_dim hi,
                              int64_t at[4])
{
    tci_dim glo = g->lo, ghi = g->hi;
    if (!tci_dim_is_known(coef) || !tci_dim_is_known(lo) || !tci_dim_is_known(hi) ||
        !tci_dim_is_known(glo) || !tci_dim_is_known(ghi)) {
        return false;
    }
    if (coef < 0) { /* mirror: -x in [-ghi, -glo] */
        tci_dim t = lo;
        lo = -hi;
        hi = -t;
        t = glo;
        glo = -ghi;
        ghi = -t;
        coef = -coef;
    }
    at[0] = -tci_dim_div(hi - glo, coef);
    at[1] = -tci_dim_div(lo - glo, coef);
    at[2] = tci_dim_div(ghi - hi, coef) + 1;
    at[3] = tci_dim_div(ghi - lo, coef) + 1;
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
        int64_t at[4];
        tci_dim coef, lo, hi;
        if (!tci_build_coef(k, k->guards[g].x, axis, &coef) || coef == 0) {
            continue;
        }
        tci_build_range(b, k->guards[g].x, &lo, &hi);
        for (int i = 0; tci_stage_changes(&k->guards[g], coef, lo, hi, at) && i < 8; i++) {
            int64_t c = tci_dim_div(at[i / 2] + (i % 2 ? align - 1 : 0), align) * align;
            int j = 0;
            while (j < n && cuts[j] < c) {
                j++;
            }
            if (c <= 0 || !tci_dim_lt(c, size) || (j < n && cuts[j] == c)) {
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

static const tci_bind *tci_stage_vector(tci_build *b, tci_lin at, tci_dim lo, tci_dim hi, int n)
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
    int64_t n_groups = TCI_MAX(end - begin, 0) / group;
    if (n_groups > 0) {
        tci_lin at = tci_lin_const(begin);
        tci_lopen open;
        if (n_groups > 1) {
            int64_t stop = begin + n_groups * group;
            at = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, begin),
                                              tci_lx_const(b->l, stop), group, &open));
        }
        for (int u = 0; u < unroll; u++) {
            vecs[u] = tci_stage_vector(b, tci_lin_plus(at, u * lanes), begin + u * lanes,
                                       begin + (n_groups - 1) * group + (u + 1) * lanes - 1, -1);
        }
        body(b, arg, unroll, vecs);
        if (n_groups > 1) {
            tci_build_close(b, &open);
        }
    }
    int n = 0;
    for (int64_t at = begin + n_groups * group; at < end; at += lanes, n++) {
        int64_t left = TCI_MIN(end - at, lanes);
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

/* A loop over whole groups of `unroll` vectors from *at; *at ends behind them. */
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
    end =
        tci_build_lx(b, tci_build_let(b, tci_lx_make(l, TCI_LX_MAX, end, tci_build_lx(b, at), 0)));
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

/* ---- one accumulator a point (VEC_OUTER) ---- */

static bool tci_stage_red_is_vector(const tci_build *b, const tci_kred *red)
{
    uint64_t axes = b->k->insts[red->a].axes | (red->b >= 0 ? b->k->insts[red->b].axes : 0);
    return tci_build_is_vector(b, axes);
}

/* The running values of a SCAN at this step, then its stores. */
static void tci_stage_scan_step(tci_build *b, int stage, const tci_tile *tile,
                                const tci_stage_pair *acc)
{
    int n = tile->n_rows * tile->n_vecs;
    for (int i = 0; i < n; i++) {
        tci_stage_point(b, tile, i);
        for (int r = 0; r < b->k->n_reds; r++) {
            if (b->k->reds[r].stage == stage) {
                tci_stage_remember_result(b, &b->k->reds[r], acc[r * n + i]);
            }
        }
        tci_stage_stores(b, stage, tile->stream);
    }
}

/* n steps of a SCAN of one point: what they take in is read before the first of them stores. */
static void tci_stage_scan_steps(tci_build *b, int stage, const tci_tile *tile,
                                 const tci_stage_pair *acc, tci_lin at, int64_t lo, int64_t hi,
                                 int n)
{
    const tci_kernel *k = b->k;
    int axis = k->stages[stage].axes[0];
    const tci_bind **steps = TCI_NEW_ARRAY(b->s, const tci_bind *, n);
    tci_stage_pair *taken = TCI_NEW_ARRAY(b->s, tci_stage_pair, n * k->n_reds);
    tci_stage_point(b, tile, 0);
    for (int u = 0; u < n; u++) {
        steps[u] = tci_build_bind(b, tci_lin_plus(at, u), lo + u, hi - (n - 1 - u), false, -1);
        tci_build_set(b, axis, steps[u]);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == stage) {
                taken[u * k->n_reds + r] = tci_stage_operands(b, &k->reds[r]);
            }
        }
    }
    for (int u = 0; u < n; u++) {
        tci_build_set(b, axis, steps[u]);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == stage) {
                tci_stage_pair v = taken[u * k->n_reds + r];
                tci_stage_assign(b, acc[r], tci_stage_combine(b, &k->reds[r], acc[r], v));
            }
        }
        tci_stage_scan_step(b, stage, tile, acc);
    }
    tci_build_set(b, axis, NULL);
}

/* A SCAN by a block of threads, several steps at a time: behind a store the next load would wait.
 * False: done the other way. */
static bool tci_stage_scan_ahead(tci_build *b, int stage, const tci_tile *tile,
                                 const tci_stage_pair *acc)
{
    const tci_kstage *st = &b->k->stages[stage];
    bool fits = b->l->threads > 1 && st->kind == TCI_STAGE_SCAN && st->n_axes == 1 &&
                tile->n_rows * tile->n_vecs == 1 && tci_dim_is_known(b->k->axes[st->axes[0]].size);
    if (!fits) {
        return false;
    }
    int64_t size = b->k->axes[st->axes[0]].size;
    int64_t whole = size / TCI_STAGE_BLOCK_ROWS * TCI_STAGE_BLOCK_ROWS;
    if (whole > 0) {
        tci_lopen open;
        int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, whole),
                              TCI_STAGE_BLOCK_ROWS, &open);
        tci_stage_scan_steps(b, stage, tile, acc, tci_lin_var(b, i), 0, whole - 1,
                             TCI_STAGE_BLOCK_ROWS);
        tci_build_close(b, &open);
    }
    if (size > whole) {
        tci_stage_scan_steps(b, stage, tile, acc, tci_lin_const(whole), whole, size - 1,
                             (int)(size - whole));
    }
    return true;
}

/* Takes everything in, in order, into the accumulators of the tile's points. */
static void tci_stage_take_in(tci_build *b, int stage, const tci_tile *tile,
                              const tci_stage_pair *acc)
{
    const tci_kernel *k = b->k;
    const tci_kstage *st = &k->stages[stage];
    int n = tile->n_rows * tile->n_vecs;
    tci_lopen *open = tci_stage_open(b, st->axes, st->n_axes);
    if (b->l->threads > 1 && n == 1 && st->n_axes > 0) { /* several rows of memory at once */
        open[st->n_axes - 1].st.unroll = TCI_STAGE_BLOCK_ROWS;
    }
    for (int i = 0; i < n; i++) {
        tci_stage_point(b, tile, i);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == stage) {
                tci_stage_pair v = tci_stage_operands(b, &k->reds[r]);
                tci_stage_assign(b, acc[r * n + i],
                                 tci_stage_combine(b, &k->reds[r], acc[r * n + i], v));
            }
        }
    }
    if (st->kind == TCI_STAGE_SCAN) {
        tci_stage_scan_step(b, stage, tile, acc);
    }
    tci_stage_close(b, st->axes, st->n_axes, open);
}

static void tci_stage_reduce_outer(tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kernel *k = b->k;
    int n = tile->n_rows * tile->n_vecs;
    tci_stage_pair *acc = TCI_NEW_ARRAY(b->s, tci_stage_pair, k->n_reds * n + 1);
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < n && k->reds[r].stage == stage; i++) {
            tci_stage_point(b, tile, i);
            bool vector = tci_stage_red_is_vector(b, &k->reds[r]);
            acc[r * n + i] = tci_stage_accumulator(b, &k->reds[r], vector ? b->l->lanes : 1);
        }
    }
    if (!tci_stage_scan_ahead(b, stage, tile, acc)) {
        tci_stage_take_in(b, stage, tile, acc);
    }
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < n && k->reds[r].stage == stage; i++) {
            tci_stage_point(b, tile, i);
            tci_stage_remember_result(b, &k->reds[r], acc[r * n + i]);
        }
    }
}

static void tci_stage_map_outer(tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kstage *st = &b->k->stages[stage];
    tci_lopen *open = tci_stage_open(b, st->axes, st->n_axes);
    b->turn_rows = tile->turn ? tile->rows : NULL;
    b->turn_axis = tile->row_axis;
    b->n_turn = tile->n_rows;
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        tci_stage_point(b, tile, i);
        tci_stage_stores(b, stage, tile->stream);
    }
    b->turn_rows = NULL;
    tci_stage_close(b, st->axes, st->n_axes, open);
}

/* ---- prefetches ---- */

/* Prefetches what a load reads `ahead` elements behind the place given by the bindings. */
static void tci_stage_fetch(tci_build *b, const tci_kinst *load, tci_dim ahead)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_PREFETCH;
    st.base = (int32_t)load->imm;
    st.x = tci_build_lx(b, tci_lin_plus(tci_build_kx(b, load->x), ahead));
    tci_build_mem(b, st, TC_F32, 1, b->cur);
}

/* A load without a guard that is contiguous along `axis`; *bytes of an element. */
static bool tci_stage_runs(const tci_kernel *k, const tci_kinst *inst, int axis, int *bytes)
{
    tci_dim coef;
    if (inst->op != TCI_K_LOAD || inst->n_guards > 0) {
        return false;
    }
    *bytes = tci_dtype_get((tc_dtype)k->operands[inst->imm].dtype)->bytes;
    return tci_build_coef(k, inst->x, axis, &coef) && coef == 1;
}

/* The next row of what the rows' kernel reads, at the current place of `axis`, which is `skip`
 * elements behind a cache line. */
static void tci_stage_fetch_next(tci_build *b, int axis, int next_axis, int64_t skip)
{
    const tci_kernel *k = b->k;
    for (int i = 0; next_axis >= 0 && i < k->n_insts; i++) {
        int bytes = 0;
        tci_dim row;
        if (tci_stage_runs(k, &k->insts[i], axis, &bytes) &&
            skip * bytes % TCI_STAGE_LINE_BYTES == 0 &&
            tci_build_coef(k, k->insts[i].x, next_axis, &row) && row != 0) {
            tci_stage_fetch(b, &k->insts[i], row);
        }
    }
}

/* ---- 64 virtual lanes (VEC_INNER) ---- */

typedef struct tci_stage_lanes {
    int stage, axis;
    int next_axis;      /* as in tci_tile, for this stage */
    int n_regs;         /* vectors that elements of the row reach */
    tci_stage_pair *acc;      /* [red * n_regs + register]; in_array: locals */
    bool in_array;
} tci_stage_lanes;

TCI_FN tci_stage_pair tci_stage_array_get(tci_build *b, const tci_kred *red, tci_stage_pair array,
                                          int x)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = b->l->lanes > 1 ? TCI_MEM_LOAD : TCI_MEM_LOAD_ONE;
    st.base = ~array.value;
    st.x = x;
    tci_stage_pair r = {tci_build_mem(b, st, (tc_dtype)red->dtype, b->l->lanes, b->cur), -1};
    if (array.index >= 0) {
        st.base = ~array.index;
        r.index = tci_build_mem(b, st, TC_I64, b->l->lanes, b->cur);
    }
    return r;
}

TCI_FN void tci_stage_array_set(tci_build *b, tci_stage_pair array, int x, tci_stage_pair v)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = b->l->lanes > 1 ? TCI_MEM_STORE : TCI_MEM_STORE_ONE;
    st.base = ~array.value;
    st.x = x;
    st.args[0] = tci_build_widen(b, v.value, b->l->lanes);
    tci_build_mem(b, st, TC_F32, 1, b->cur);
    if (array.index >= 0) {
        st.base = ~array.index;
        st.args[0] = tci_build_widen(b, v.index, b->l->lanes);
        tci_build_mem(b, st, TC_F32, 1, b->cur);
    }
}

static tci_stage_pair tci_stage_array_make(tci_build *b, const tci_kred *red)
{
    tci_stage_pair array = {tci_build_local(b, (tc_dtype)red->dtype, b->k->vlanes, b->cur), -1};
    if (tci_stage_is_arg(red)) {
        array.index = tci_build_local(b, TC_I64, b->k->vlanes, b->cur);
    }
    tci_stage_pair id = tci_stage_identity(b, red);
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, b->k->vlanes), b->l->lanes,
                          &open);
    tci_stage_array_set(b, array, tci_lx_var(b->l, i), id);
    tci_build_close(b, &open);
    return array;
}

/* Folds the current point of the axis into accumulator `reg` (in_array: at offset x) of every
 * reduction. */
static void tci_stage_fold(tci_build *b, const tci_stage_lanes *m, int reg, int x)
{
    const tci_kernel *k = b->k;
    const tci_bind *vec = b->bind[m->axis];
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        if (red->stage != m->stage) {
            continue;
        }
        tci_stage_pair at = m->acc[r * m->n_regs + (m->in_array ? 0 : reg)];
        tci_stage_pair acc = m->in_array ? tci_stage_array_get(b, red, at, x) : at;
        tci_stage_pair v = tci_stage_combine(b, red, acc, tci_stage_operands(b, red));
        if (vec->n >= 0) { /* lanes without an element keep what they have */
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_FIRST_N;
            st.n = vec->n;
            int mask = tci_build_mem(b, st, TC_BOOL, b->l->lanes, -1);
            v.value =
                tci_stage_select(b, mask, tci_build_widen(b, v.value, b->l->lanes), acc.value);
            v.index = v.index < 0 ? -1 : tci_stage_select(b, mask, v.index, acc.index);
        }
        if (m->in_array) {
            tci_stage_array_set(b, at, x, v);
        } else {
            tci_stage_assign(b, at, v);
        }
    }
}

/* Elements [begin, end) of the axis, begin a multiple of 64, at most 64 of them, from accumulator 0
 * on. */
static void tci_stage_block(tci_build *b, const tci_stage_lanes *m, tci_lin at, tci_dim lo,
                            tci_dim hi, int64_t count)
{
    int64_t lanes = b->l->lanes;
    for (int64_t u = 0; u < count; u += lanes) {
        int n = count - u < lanes ? tci_lx_const(b->l, count - u) : -1;
        tci_dim last = tci_dim_add(hi, -TCI_MAX(count - u - lanes, 0));
        tci_dim first = tci_dim_add(lo, u);
        tci_build_set(b, m->axis, tci_stage_vector(b, tci_lin_plus(at, u), first, last, n));
        tci_stage_fetch_next(b, m->axis, m->next_axis, u);
        tci_stage_fold(b, m, (int)(u / lanes), -1);
    }
}

static void tci_stage_block_in_array(tci_build *b, const tci_stage_lanes *m, tci_lin at, tci_dim lo,
                                     tci_dim hi, int64_t count)
{
    int64_t lanes = b->l->lanes, whole = count / lanes * lanes;
    tci_lopen open;
    if (whole > 0) {
        int u = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, whole), lanes, &open);
        tci_lin here = tci_lin_add(b, at, tci_lin_var(b, u));
        tci_build_set(b, m->axis, tci_stage_vector(b, here, lo, hi, -1));
        tci_stage_fold(b, m, 0, tci_lx_var(b->l, u));
        tci_build_close(b, &open);
    }
    if (whole < count) {
        int n = tci_lx_const(b->l, count - whole);
        tci_build_set(b, m->axis, tci_stage_vector(b, tci_lin_plus(at, whole), lo, hi, n));
        tci_stage_fold(b, m, 0, tci_lx_const(b->l, whole));
    }
}

/* The vector `u` lanes into the last elements of the axis, of which there are `count` behind `at`:
 * whole, partial or absent. */
static void tci_stage_rest_vector(tci_build *b, const tci_stage_lanes *m, tci_dim at, tci_dim count,
                                  int u)
{
    int lanes = b->l->lanes;
    tci_dim left = tci_dim_add(count, -u), last = tci_dim_add(b->k->axes[m->axis].size, -1);
    tci_lin first = tci_lin_const(tci_dim_add(at, u));
    for (int partial = 0; partial < 1 + (lanes > 1); partial++) {
        tci_lopen open;
        int n = tci_lx_const(b->l, left);
        int exists = partial ? tci_build_in_range(b, n, 1, lanes - 1)
                             : tci_build_in_range(b, n, lanes, b->k->vlanes);
        tci_build_if(b, exists, &open);
        tci_build_set(b, m->axis, tci_stage_vector(b, first, 0, last, partial ? n : -1));
        tci_stage_fold(b, m, u / lanes, m->in_array ? tci_lx_const(b->l, u) : -1);
        tci_build_close(b, &open);
    }
}

/* Elements [begin, end) of the axis; both are multiples of 64, or end is the axis' end. */
static void tci_stage_stretch(tci_build *b, const tci_stage_lanes *m, tci_dim begin, tci_dim end)
{
    tci_dim length = tci_dim_sub(end, begin), vlanes = b->k->vlanes;
    tci_dim whole = tci_dim_add(begin, tci_dim_mul(tci_dim_div(length, vlanes), vlanes));
    void (*block)(tci_build *, const tci_stage_lanes *, tci_lin, tci_dim, tci_dim, int64_t) =
        m->in_array ? tci_stage_block_in_array : tci_stage_block;
    if (!tci_dim_le(whole, begin)) {
        tci_lopen open;
        int j = tci_build_for(b, tci_lx_const(b->l, begin), tci_lx_const(b->l, whole), b->k->vlanes,
                              &open);
        block(b, m, tci_lin_var(b, j), begin, tci_dim_add(whole, -1), b->k->vlanes);
        tci_build_close(b, &open);
    }
    tci_dim count = tci_dim_sub(end, whole);
    if (tci_dim_is_known(count) && count > 0) {
        block(b, m, tci_lin_const(whole), whole, tci_dim_add(end, -1), count);
    }
    /* lanes without a register are behind the longest axis */
    int end_lane = TCI_MIN(b->k->vlanes, m->n_regs * b->l->lanes);
    for (int u = 0; !tci_dim_is_known(count) && u < end_lane; u += b->l->lanes) {
        tci_stage_rest_vector(b, m, whole, count, u);
    }
}

static tci_stage_pair tci_stage_high_half(tci_build *b, tci_stage_pair v, int h)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_HIGH_HALF;
    st.args[0] = v.value;
    st.imm = h;
    tci_stage_pair r = {
        tci_build_mem(b, st, (tc_dtype)b->l->values[v.value].dtype, b->l->lanes, b->cur), -1};
    if (v.index >= 0) {
        st.args[0] = v.index;
        r.index = tci_build_mem(b, st, TC_I64, b->l->lanes, b->cur);
    }
    return r;
}

/* Lane i takes in lane i + h, for h = 32, 16 ... 1; the result is lane 0. */
static int tci_stage_tree(tci_build *b, const tci_stage_lanes *m, int r)
{
    const tci_kred *red = &b->k->reds[r];
    int lanes = b->l->lanes;
    const tci_stage_pair *acc = &m->acc[r * m->n_regs];
    tci_stage_pair v;
    for (int h = b->k->vlanes / 2; h >= lanes; h /= 2) {
        if (m->in_array) {
            tci_lopen open;
            int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, h), lanes, &open);
            int x = tci_lx_var(b->l, i);
            tci_stage_pair low = tci_stage_array_get(b, red, *acc, x);
            int far = tci_lx_make(b->l, TCI_LX_ADD, x, tci_lx_const(b->l, h), 0);
            tci_stage_pair high = tci_stage_array_get(b, red, *acc, far);
            tci_stage_array_set(b, *acc, x, tci_stage_combine(b, red, low, high));
            tci_build_close(b, &open);
            continue;
        }
        for (int i = 0; i < h / lanes && i + h / lanes < m->n_regs; i++) {
            tci_stage_assign(b, acc[i], tci_stage_combine(b, red, acc[i], acc[i + h / lanes]));
        }
    }
    v = m->in_array ? tci_stage_array_get(b, red, *acc, tci_lx_const(b->l, 0)) : *acc;
    for (int h = lanes / 2; h >= 1; h /= 2) {
        v = tci_stage_combine(b, red, v, tci_stage_high_half(b, v, h));
    }
    int value = v.index >= 0 ? v.index : v.value;
    if (lanes == 1) {
        return value;
    }
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_LANE;
    st.args[0] = value;
    return tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, 1, b->cur);
}

static void tci_stage_lanes_init(tci_build *b, tci_stage_lanes *m)
{
    const tci_kernel *k = b->k;
    int lanes = b->l->lanes, n_accs = 0;
    int64_t used = TCI_MAX(TCI_MIN(tci_dim_most(k->axes[m->axis].size), b->k->vlanes), 1);
    m->n_regs = (int)((used + lanes - 1) / lanes);
    for (int r = 0; r < k->n_reds; r++) {
        n_accs += k->reds[r].stage == m->stage ? 1 + tci_stage_is_arg(&k->reds[r]) : 0;
    }
    m->in_array = m->n_regs * n_accs > 2 * TCI_STAGE_MAX_REGISTERS || lanes < 4;
    m->acc = TCI_NEW_ARRAY(b->s, tci_stage_pair, k->n_reds * m->n_regs + 1);
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < m->n_regs && k->reds[r].stage == m->stage; i++) {
            if (!m->in_array) {
                m->acc[r * m->n_regs + i] = tci_stage_accumulator(b, &k->reds[r], lanes);
            } else if (i == 0) {
                m->acc[r * m->n_regs] = tci_stage_array_make(b, &k->reds[r]);
            }
        }
    }
}

static void tci_stage_reduce_inner(tci_build *b, int stage, int next_axis)
{
    const tci_kernel *k = b->k;
    const tci_kstage *st = &k->stages[stage];
    int n_before = st->n_axes - 1;
    tci_stage_lanes m = {0};
    m.stage = stage;
    m.axis = st->axes[n_before];
    m.next_axis = next_axis;
    tci_stage_lanes_init(b, &m);
    tci_lopen *open = tci_stage_open(b, st->axes, n_before);
    tci_dim cuts[TCI_STAGE_MAX_CUTS + 1], size = k->axes[m.axis].size, begin = 0;
    int n_cuts = tci_stage_cuts(b, m.axis, b->k->vlanes, cuts, TCI_STAGE_MAX_CUTS / 2);
    cuts[n_cuts] = size;
    for (int i = 0; i <= n_cuts; i++) {
        tci_stage_stretch(b, &m, begin, cuts[i]);
        begin = cuts[i];
    }
    tci_build_set(b, m.axis, NULL);
    tci_stage_close(b, st->axes, n_before, open);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            tci_build_remember(b, k->reds[r].inst, tci_stage_tree(b, &m, r));
        }
    }
}

typedef struct tci_stage_map {
    int stage, axis, next_axis, unroll;
    const tci_kstore *stream;
} tci_stage_map;

static void tci_stage_map_body(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    const tci_stage_map *m = arg;
    for (int i = 0; i < n; i++) {
        tci_build_set(b, m->axis, vecs[i]);
        if (n == m->unroll) {
            tci_stage_fetch_next(b, m->axis, m->next_axis, (int64_t)i * b->l->lanes);
        }
        tci_stage_stores(b, m->stage, m->stream);
    }
}

static void tci_stage_map_inner(tci_build *b, int stage, const tci_tile *tile, int next_axis)
{
    const tci_kstage *st = &b->k->stages[stage];
    if (st->n_axes == 0) {
        tci_stage_stores(b, stage, NULL);
        return;
    }
    int n_before = st->n_axes - 1;
    tci_stage_map m = {stage, st->axes[n_before], next_axis, 1, NULL};
    tci_lopen *open = tci_stage_open(b, st->axes, n_before);
    tci_dim cuts[TCI_STAGE_MAX_CUTS + 1], begin = 0;
    int n_cuts = tci_stage_cuts(b, m.axis, 1, cuts, TCI_STAGE_MAX_CUTS / 2);
    cuts[n_cuts] = b->k->axes[m.axis].size;
    m.unroll = tci_stage_unroll(b->k, stage, b->l->lanes);
    if (tile->stream && tile->stream->stage == stage && n_cuts == 0) {
        tci_dim size = cuts[0];
        int from = tci_lx_const(b->l, 0), to = tci_lx_const(b->l, size);
        tci_dim last = tci_dim_add(size, -1);
        int head = tci_stage_head(b, tile->stream, m.axis, tci_lin_const(0), 0, last);
        m.stream = tile->stream;
        tci_stage_vectors_dynamic(b, from, to, head, 0, last, m.unroll, tci_stage_map_body, &m);
        begin = size;
    }
    for (int i = 0; i <= n_cuts && begin != cuts[i]; i++) {
        tci_stage_vectors(b, begin, cuts[i], m.unroll, tci_stage_map_body, &m);
        begin = cuts[i];
    }
    tci_build_set(b, m.axis, NULL);
    tci_stage_close(b, st->axes, n_before, open);
}

/* ---- all stages ---- */

TCI_FN int tci_stage_head(tci_build *b, const tci_kstore *store, int axis, tci_lin at, tci_dim lo,
                          tci_dim hi)
{
    tci_build_set(b, axis, tci_build_bind(b, at, lo, hi, false, -1));
    int x = tci_build_lx(b, tci_build_kx(b, store->x));
    tci_build_set(b, axis, NULL);
    int bytes = tci_dtype_get((tc_dtype)b->k->operands[store->operand].dtype)->bytes;
    return tci_lx_make(b->l, TCI_LX_HEAD, x, store->operand, (int64_t)b->l->lanes * bytes);
}

TCI_FN int tci_stage_ahead(const tci_kernel *k)
{
    int at = TCI_MIN(k->n_stages - 1, 1);
    return at > 0 && k->stages[0].n_axes == 1 && k->stages[at].n_axes == 1 &&
                   k->stages[0].axes[0] == k->stages[at].axes[0]
               ? at
               : -1;
}

/* One prefetch for each cache line that the tile reads in a row, a fixed distance ahead. */
TCI_FN void tci_stage_prefetch(tci_build *b, const tci_tile *tile)
{
    const tci_kernel *k = b->k;
    for (int i = 0; i < k->n_insts; i++) {
        int bytes = 0;
        bool runs = tci_stage_runs(k, &k->insts[i], tile->vec_axis, &bytes);
        for (int v = 0; runs && v < tile->n_vecs; v++) {
            if (v * b->l->lanes * bytes % TCI_STAGE_LINE_BYTES == 0) {
                tci_build_set(b, tile->vec_axis, tile->vecs[v]);
                tci_stage_fetch(b, &k->insts[i], tile->prefetch / bytes);
            }
        }
    }
}

TCI_FN void tci_stage_from(tci_build *b, const tci_tile *tile, int first)
{
    const tci_kernel *k = b->k;
    int ahead = tci_stage_ahead(k);
    for (int stage = first; stage < k->n_stages; stage++) {
        bool inner = k->vector == TCI_VEC_INNER;
        int next = inner && stage == ahead ? tile->next_axis : -1;
        b->stage = stage;
        if (stage > 0 && b->l->threads > 1 && b->n_keeps > 0) {
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_BARRIER;
            tci_loop_append(b->l, b->cur, st);
        }
        if (k->stages[stage].kind == TCI_STAGE_MAP) {
            if (inner) {
                tci_stage_map_inner(b, stage, tile, next);
            } else {
                tci_stage_map_outer(b, stage, tile);
            }
        } else if (inner && k->stages[stage].n_axes > 0) {
            tci_stage_reduce_inner(b, stage, next);
        } else {
            tci_stage_reduce_outer(b, stage, tile);
        }
    }
}

TCI_FN void tci_stage_all(tci_build *b, const tci_tile *tile)
{
    tci_stage_from(b, tile, 0);
}

/* ---- panels ---- */

typedef struct tci_stage_rows {
    const tci_panel *panel;
    const tci_stage_pair *arrays;  /* accumulators of each reduction */
    const tci_bind **rows;
    int n_rows;
} tci_stage_rows;

/* Where a vector's accumulators lie. */
static int tci_stage_panel_offset(tci_build *b, const tci_panel *panel, const tci_bind *vec)
{
    return tci_build_lx(b, tci_lin_add(b, vec->at, tci_lin_mul(b, panel->first, -1)));
}

/* Takes the rows into the accumulators of some vectors. */
static void tci_stage_panel_fold(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    const tci_stage_rows *m = arg;
    const tci_kernel *k = b->k;
    int axis = k->stages[0].axes[0];
    for (int i = 0; i < n; i++) {
        int x = tci_stage_panel_offset(b, m->panel, vecs[i]);
        tci_build_set(b, m->panel->vec_axis, vecs[i]);
        for (int r = 0; r < k->n_reds; r++) {
            tci_stage_pair acc = tci_stage_array_get(b, &k->reds[r], m->arrays[r], x);
            for (int row = 0; row < m->n_rows; row++) {
                tci_build_set(b, axis, m->rows[row]);
                acc = tci_stage_combine(b, &k->reds[r], acc, tci_stage_operands(b, &k->reds[r]));
            }
            tci_stage_array_set(b, m->arrays[r], x, acc);
        }
        tci_build_set(b, axis, NULL);
    }
}

static void tci_stage_panel_finish(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    const tci_stage_rows *m = arg;
    const tci_kernel *k = b->k;
    tci_tile tile = {0};
    tile.row_axis = tile.next_axis = -1;
    tile.n_rows = 1;
    tile.vec_axis = m->panel->vec_axis;
    tile.n_vecs = n;
    tile.vecs = vecs;
    for (int i = 0; i < n; i++) {
        int x = tci_stage_panel_offset(b, m->panel, vecs[i]);
        tci_build_set(b, tile.vec_axis, vecs[i]);
        for (int r = 0; r < k->n_reds; r++) {
            tci_build_remember(b, k->reds[r].inst,
                               tci_stage_array_get(b, &k->reds[r], m->arrays[r], x).value);
        }
    }
    tci_stage_from(b, &tile, 1);
}

/* The rows [begin, end) of the inner axis, `n` at a time. */
static void tci_stage_panel_rows(tci_build *b, tci_stage_rows *m, tci_dim begin, tci_dim end,
                                 int64_t n)
{
    const tci_panel *p = m->panel;
    tci_loop *l = b->l;
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(l, begin), tci_lx_const(l, end), n, &open);
    for (m->n_rows = 0; m->n_rows < n; m->n_rows++) {
        int64_t row = m->n_rows;
        m->rows[row] = tci_build_bind(b, tci_lin_plus(tci_lin_var(b, i), row),
                                      tci_dim_add(begin, row), tci_dim_add(end, row - n), false,
                                      -1);
    }
    tci_stage_vectors_dynamic(b, tci_build_lx(b, p->first), p->end, -1, p->lo, p->hi, p->unroll,
                              tci_stage_panel_fold, m);
    tci_build_close(b, &open);
}

TCI_FN void tci_stage_panel(tci_build *b, const tci_panel *panel)
{
    const tci_kernel *k = b->k;
    tci_loop *l = b->l;
    tci_dim size = k->axes[k->stages[0].axes[0]].size;
    tci_dim whole = tci_dim_mul(tci_dim_div(size, panel->rows), panel->rows);
    tci_dim rest = tci_dim_sub(size, whole);
    tci_stage_pair *arrays = TCI_NEW_ARRAY(b->s, tci_stage_pair, k->n_reds + 1);
    const tci_bind **rows = TCI_NEW_ARRAY(b->s, const tci_bind *, panel->rows);
    tci_stage_rows m = {panel, arrays, rows, 0};
    tci_lopen open;
    b->stage = 0;
    for (int r = 0; r < k->n_reds; r++) {
        arrays[r].value = tci_build_local(b, (tc_dtype)k->reds[r].dtype, panel->chunk, b->cur);
        arrays[r].index = -1;
    }
    int i = tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, panel->chunk), l->lanes, &open);
    for (int r = 0; r < k->n_reds; r++) {
        tci_stage_array_set(b, arrays[r], tci_lx_var(l, i), tci_stage_identity(b, &k->reds[r]));
    }
    tci_build_close(b, &open);
    if (whole != 0) {
        tci_stage_panel_rows(b, &m, 0, whole, panel->rows);
    }
    if (rest != 0) {
        tci_stage_panel_rows(b, &m, whole, size, tci_dim_is_known(rest) ? rest : 1);
    }
    tci_stage_vectors_dynamic(b, tci_build_lx(b, panel->first), panel->end, -1, panel->lo,
                              panel->hi, 1, tci_stage_panel_finish, &m);
}
