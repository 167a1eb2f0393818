/* loop/row.c - rows (VEC_INNER) held in the registers of a block of threads, of a warp or of a part
 * of one.
 *
 * In: a kernel whose stages each run along one inner axis, short enough for a few vectors; the
 * outer axes are bound. Out: the stages, written out vector by vector.
 *
 * The one idea: stages along an axis use the same bindings of it, so whatever two of them need is
 * one value of the loop IR, computed once and kept in registers: memory is read once, all of it
 * before the first result is needed, and written once.
 *
 * The threads of a row are one vector of `vlanes` lanes, so a reduction has one accumulator; or of
 * fewer lanes, then it has one for each vector of the class, as far as the row has elements: an
 * accumulator without one changes none that it is joined to. The lanes are joined as kernel/ir.h
 * says: those of a thread that are neighbours first, then whole vectors, then lanes of different
 * warps, which meet in one array that every warp reads as a whole, so each of them gets the same
 * values and nobody has to be told the result; then the lanes of a warp. So fewer threads join the
 * same numbers with fewer shuffles, and what each thread does once is done for more elements. */
#include "row.h"

#include "cost.h"
#include "inner.h"
#include "scan.h"

enum { TCI_ROW_MOST_LOADED = 2 * TCI_CLASS_ROW_VECTORS }; /* also those that one stage needs */

/* Loads that change along `axis`; of them those that several stages need. */
static void tci_row_count_loads(const tci_kernel *k, int axis, int *loads, int *held)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    int *stages = TCI_NEW_ARRAY(k->s, int, k->n_insts + 1);
    *loads = *held = 0;
    for (int t = 0; t < k->n_stages; t++) {
        tci_cost_mark(k, t, false, live);
        for (int i = 0; i < k->n_insts; i++) {
            stages[i] += live[i];
            live[i] = false;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        bool walks = k->insts[i].op == TCI_K_LOAD && tci_build_depends(k->insts[i].axes, axis);
        *loads += walks;
        *held += walks && stages[i] > 1;
    }
}

/* Vectors of the rows along `axis`; 0: they do not fit into registers. */
static int tci_row_vectors_along(const tci_kernel *k, const tci_loop *l, int axis)
{
    if (k->axes[axis].size == 0 || !tci_dim_is_known(k->axes[axis].size)) {
        return 0;
    }
    int loads, held;
    int64_t n = tci_ceil_div(tci_kernel_known(k, axis), l->lanes);
    bool part = l->lanes != tci_kernel_lanes(k);
    bool near = n == 1 || l->lanes >= tci_kernel_near(k); /* no two vectors have neighbours */
    if (part && (!near || l->threads > TCI_WARP)) {
        return 0;
    }
    tci_row_count_loads(k, axis, &loads, &held);
    bool fits = n * held <= TCI_CLASS_ROW_VECTORS && n * TCI_MAX(loads, 1) <= TCI_ROW_MOST_LOADED;
    return fits ? (int)n : 0;
}

TCI_FN int tci_row_vectors(const tci_kernel *k, const tci_loop *l)
{
    int most = 0;
    if (k->vector != TCI_VEC_INNER || tci_kernel_keeps(k) || l->threads < 2) {
        return 0;
    }
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        int n = st->n_axes == 1 ? tci_row_vectors_along(k, l, st->axes[0]) : 0;
        if (n == 0 && (st->n_axes > 0 || st->kind != TCI_STAGE_MAP)) {
            return 0;
        }
        most = TCI_MAX(most, n);
    }
    return most;
}

/* Lanes with an element: the others keep what they have. */
static int tci_row_mask(tci_build *b, int n)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_FIRST_N;
    st.n = n;
    return tci_build_mem(b, st, TC_BOOL, b->l->lanes, -1);
}

static int tci_row_copy(tci_build *b, int part, int unused)
{
    (void)unused;
    return tci_build_copy(b, part);
}

/* The accumulator of every `apart`-th vector from number `first` on. */
static tci_stage_tuple tci_row_fold(tci_build *b, const tci_kred *red, int first, int apart, int n,
                                   const tci_bind **vecs)
{
    int axis = b->k->stages[red->stage].axes[0];
    tci_stage_tuple acc = tci_stage_accumulator(b, red, b->l->lanes);
    for (int i = first; i < n; i += apart) {
        tci_build_set(b, axis, vecs[i]);
        tci_stage_tuple v = tci_stage_combine(b, red, acc, tci_stage_operands(b, red));
        if (vecs[i]->n >= 0) {
            v = tci_stage_choose(b, tci_row_mask(b, vecs[i]->n), v, acc);
        }
        tci_stage_assign(b, acc, v);
    }
    return tci_stage_each(b, acc, tci_row_copy, 0);
}

/* ---- joining the lanes ---- */

/* Of `all` parts of the class, a power of two, the first n, which have elements: part i takes in
 * part i + h, for h = all / 2 ... 1. */
static tci_stage_tuple tci_row_join_parts(tci_build *b, const tci_kred *red, int all, int n,
                                         tci_stage_tuple *parts)
{
    for (int h = all / 2; h >= 1; h /= 2) {
        for (int i = 0; i < h && i + h < n; i++) {
            parts[i] = tci_stage_combine(b, red, parts[i], parts[i + h]);
        }
    }
    return parts[0];
}

/* The lanes of one vector, whose neighbours are joined. */
static tci_stage_tuple tci_row_join_vectors(tci_build *b, const tci_kred *red, int n,
                                           const tci_bind **vecs)
{
    int all = TCI_MAX(tci_kernel_lanes(b->k) / b->l->lanes, 1), held = TCI_MIN(all, n);
    tci_stage_tuple *parts = TCI_NEW_ARRAY(b->s, tci_stage_tuple, held);
    for (int i = 0; i < held; i++) {
        parts[i] = tci_stage_join_near(b, red, tci_row_fold(b, red, i, all, n, vecs));
    }
    return tci_row_join_parts(b, red, all, held, parts);
}

static int tci_row_lane_op(tci_build *b, tci_mem mem, int value, int imm)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)mem;
    st.args[0] = value;
    st.imm = imm;
    int lanes = mem == TCI_MEM_LANE_REPEAT ? 1 : b->l->lanes;
    return tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, lanes, b->cur);
}

/* Writes the vector where all warps see it. */
static int tci_row_share(tci_build *b, int value, int unused)
{
    (void)unused;
    tc_dtype t = (tc_dtype)b->l->values[value].dtype;
    int local = tci_build_local(b, t, b->l->lanes, b->cur);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_STORE;
    st.base = ~local;
    st.x = tci_lx_const(b->l, 0);
    st.args[0] = value;
    tci_build_mem(b, st, t, 1, b->cur);
    return local;
}

/* The lanes of warp `warp`, in every warp. */
static int tci_row_of_warp(tci_build *b, int local, int warp)
{
    int held = b->l->lanes / b->l->threads;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_LOAD_REPEAT;
    st.base = ~local;
    st.x = tci_lx_const(b->l, (int64_t)warp * TCI_WARP * held);
    return tci_build_mem(b, st, (tc_dtype)b->l->locals[local].dtype, b->l->lanes, b->cur);
}

/* `shared`: the arrays that hold the accumulator, where there are several warps. */
static tci_stage_tuple tci_row_join_warps(tci_build *b, const tci_kred *red, tci_stage_tuple shared)
{
    int n = b->l->threads / TCI_WARP;
    tci_stage_tuple *warps = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    for (int i = 0; i < n; i++) {
        warps[i] = tci_stage_each(b, shared, tci_row_of_warp, i);
    }
    return tci_row_join_parts(b, red, n, n, warps);
}

static int tci_row_join_lanes(tci_build *b, const tci_kred *red, tci_stage_tuple v)
{
    int threads = TCI_MIN(b->l->threads, TCI_WARP);
    v = tci_stage_join_halves(b, red, v, threads * (b->l->lanes / b->l->threads) / 2);
    return tci_row_lane_op(b, TCI_MEM_LANE_REPEAT, v.part[red->part], 0);
}

/* ---- stages ---- */

static void tci_row_reduce(tci_build *b, int stage, int n, const tci_bind **vecs)
{
    const tci_kernel *k = b->k;
    bool warps = b->l->threads > TCI_WARP;
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds + 1);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            acc[r] = tci_row_join_vectors(b, &k->reds[r], n, vecs);
            acc[r] = warps ? tci_stage_each(b, acc[r], tci_row_share, 0) : acc[r];
        }
    }
    if (warps) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_BARRIER;
        tci_loop_append(b->l, b->cur, st);
    }
    tci_build_set(b, k->stages[stage].axes[0], NULL);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            tci_stage_tuple v = warps ? tci_row_join_warps(b, &k->reds[r], acc[r]) : acc[r];
            tci_build_remember(b, k->reds[r].inst, tci_row_join_lanes(b, &k->reds[r], v));
        }
    }
}

static void tci_row_map(tci_build *b, int stage, int n, const tci_bind **vecs)
{
    const tci_kstage *st = &b->k->stages[stage];
    if (st->n_axes == 0) {
        tci_stage_stores(b, stage, NULL);
        return;
    }
    for (int i = 0; i < n; i++) {
        tci_build_set(b, st->axes[0], vecs[i]);
        tci_stage_stores(b, stage, NULL);
    }
    tci_build_set(b, st->axes[0], NULL);
}

/* The vectors of the rows along `axis`, all of them. */
static const tci_bind **tci_row_bind(tci_build *b, int axis, int *n)
{
    int64_t lanes = b->l->lanes, size = tci_kernel_known(b->k, axis);
    *n = (int)tci_ceil_div(size, lanes);
    const tci_bind **vecs = TCI_NEW_ARRAY(b->s, const tci_bind *, *n);
    for (int i = 0; i < *n; i++) {
        int64_t at = i * lanes, left = TCI_MIN(size - at, lanes);
        vecs[i] = tci_build_bind(b, tci_lin_const(at), at, at + left - 1, true,
                                 left < lanes ? tci_lx_const(b->l, left) : -1);
    }
    return vecs;
}

TCI_FN void tci_row_emit(tci_build *b)
{
    const tci_kernel *k = b->k;
    const tci_bind ***vecs = TCI_NEW_ARRAY(b->s, const tci_bind **, k->n_axes + 1);
    int *n_vecs = TCI_NEW_ARRAY(b->s, int, k->n_axes + 1);
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        int axis = st->n_axes > 0 ? st->axes[0] : k->n_axes; /* none has the last entry */
        if (!vecs[axis] && st->n_axes > 0) {
            vecs[axis] = tci_row_bind(b, axis, &n_vecs[axis]);
        }
        b->stage = t;
        if (st->kind == TCI_STAGE_SCAN) {
            tci_scan_vectors(b, t, n_vecs[axis], vecs[axis]);
        } else if (st->kind == TCI_STAGE_REDUCE) {
            tci_row_reduce(b, t, n_vecs[axis], vecs[axis]);
        } else {
            tci_row_map(b, t, n_vecs[axis], vecs[axis]);
        }
    }
}
