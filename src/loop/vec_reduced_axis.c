/* loop/vec_reduced_axis.c - emits stages that are vectorized along their last inner, usually
 * reduced, axis (VEC_INNER): the lanes of an accumulator are combined at the end of the row.
 *
 * In: a stage; the outer indices are bound. Out: the stage's loops. A reduction has 64 virtual
 * lanes (class LANES) on the stage's last axis, as kernel/ir.h says, held in 64 / lanes registers,
 * or in a local array if that is too many. A lane that no element of the row reaches stays at the
 * identity, which changes nothing when combined, so registers past the row's length are omitted. */
#include "vec_reduced_axis.h"

enum {
    TCI_STAGE_MAX_REGISTERS = 16,
    TCI_STAGE_MAX_CUTS = 16,
    TCI_STAGE_SURE = 4 /* vectors of a row from which it pays to ask its guards once */
};

/* ---- reductions ---- */

typedef struct tci_stage_lanes {
    int stage, axis;
    int next_axis;        /* as in tci_tile, for this stage */
    int n_regs;           /* vectors that elements of the row reach */
    tci_stage_tuple *acc; /* [red * n_regs + register]; in_array: locals */
    bool in_array;
} tci_stage_lanes;

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
        tci_stage_tuple at = m->acc[r * m->n_regs + (m->in_array ? 0 : reg)];
        tci_stage_tuple acc = m->in_array ? tci_stage_array_get(b, red, at, x) : at;
        tci_stage_tuple v = tci_stage_combine(b, red, acc, tci_stage_operands(b, red));
        if (vec->n >= 0) { /* lanes without an element keep what they have */
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_FIRST_N;
            st.n = vec->n;
            int mask = tci_build_mem(b, st, TC_BOOL, b->l->lanes, -1);
            v = tci_stage_choose(b, mask, v, acc);
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

/* The vector `u` lanes into the last elements of the axis, `count` of them from `at` on:
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
                             : tci_build_in_range(b, n, lanes, tci_kernel_lanes(b->k));
        tci_build_if(b, exists, &open);
        tci_build_set(b, m->axis, tci_stage_vector(b, first, 0, last, partial ? n : -1));
        tci_stage_fold(b, m, u / lanes, m->in_array ? tci_lx_const(b->l, u) : -1);
        tci_build_close(b, &open);
    }
}

/* Blocks of all virtual lanes from index `from` up to `to`, which are in [lo, hi]. */
static void tci_stage_blocks(tci_build *b, const tci_stage_lanes *m, int from, int to, tci_dim lo,
                             tci_dim hi)
{
    int vlanes = tci_kernel_lanes(b->k);
    void (*block)(tci_build *, const tci_stage_lanes *, tci_lin, tci_dim, tci_dim,
                  int64_t) = m->in_array ? tci_stage_block_in_array : tci_stage_block;
    tci_lopen open;
    int j = tci_build_for(b, from, to, vlanes, &open);
    block(b, m, tci_lin_var(b, j), lo, hi, vlanes);
    tci_build_close(b, &open);
}

/* The blocks of a row that is cut: those that are seen, one that may be both, those that are
 * masked. */
static void tci_stage_cut_blocks(tci_build *b, const tci_stage_lanes *m, tci_dim begin, tci_dim end)
{
    tci_loop *l = b->l;
    int64_t vlanes = tci_kernel_lanes(b->k);
    const tci_causal *cut = b->cut;
    int seen = tci_causal_at(b, cut, b->bind[cut->row_axis]->at), from = tci_lx_const(l, begin);
    for (int part = 0; part < 3; part++) {
        int to = tci_lx_make(l, TCI_LX_ADD, seen, tci_lx_const(l, part * (vlanes - 1)), 0);
        to = tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_DIV, to, -1, vlanes), -1, vlanes);
        to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, end), 0);
        to = part < 2 ? tci_build_lx(b, tci_build_let(b, to)) : tci_lx_const(l, end);
        bool is_masked = part == 2;
        b->guard = part == 1 ? -1 : cut->guard;
        b->guard_truth = is_masked == (cut->masked == TCI_ALWAYS) ? TCI_ALWAYS : TCI_NEVER;
        b->is_one = is_masked ? cut->is_one : NULL;
        tci_stage_blocks(b, m, tci_lx_make(l, TCI_LX_MAX, from, tci_lx_const(l, begin), 0), to,
                         begin, tci_dim_add(end, -1));
        from = to;
    }
    b->guard = -1;
    b->is_one = NULL;
}

/* True if a row along the axis ends at its causal bound. */
static bool tci_stage_is_cut(const tci_build *b, int axis)
{
    return tci_causal_is_bound(b, axis) && !b->cut->low;
}

/* Elements [begin, end) of the axis; both are multiples of 64, or end is the axis' end. */
static void tci_stage_stretch(tci_build *b, const tci_stage_lanes *m, tci_dim begin, tci_dim end)
{
    tci_dim length = tci_dim_sub(end, begin);
    int vlanes = tci_kernel_lanes(b->k);
    tci_dim whole = tci_dim_add(begin, tci_dim_mul(tci_dim_div(length, vlanes), vlanes));
    void (*block)(tci_build *, const tci_stage_lanes *, tci_lin, tci_dim, tci_dim,
                  int64_t) = m->in_array ? tci_stage_block_in_array : tci_stage_block;
    if (!tci_dim_le(whole, begin) && tci_stage_is_cut(b, m->axis)) {
        tci_stage_cut_blocks(b, m, begin, whole);
    } else if (!tci_dim_le(whole, begin)) {
        tci_stage_blocks(b, m, tci_lx_const(b->l, begin), tci_lx_const(b->l, whole), begin,
                         tci_dim_add(whole, -1));
    }
    tci_dim count = tci_dim_sub(end, whole);
    if (tci_dim_is_known(count) && tci_dim_lt(0, count)) {
        block(b, m, tci_lin_const(whole), whole, tci_dim_add(end, -1), tci_dim_known(count));
    }
    /* lanes without a register are after the longest axis */
    int end_lane = TCI_MIN(tci_kernel_lanes(b->k), m->n_regs * b->l->lanes);
    for (int u = 0; !tci_dim_is_known(count) && u < end_lane; u += b->l->lanes) {
        tci_stage_rest_vector(b, m, whole, count, u);
    }
}

static int tci_stage_move_lanes(tci_build *b, tci_mem mem, int part, int h)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)mem;
    st.args[0] = part;
    st.imm = h;
    return tci_build_mem(b, st, (tc_dtype)b->l->values[part].dtype, b->l->lanes, b->cur);
}

static int tci_stage_near_half(tci_build *b, int part, int h)
{
    return tci_stage_move_lanes(b, TCI_MEM_NEAR_HALF, part, h);
}

static int tci_stage_high_half(tci_build *b, int part, int h)
{
    int held = b->l->lanes / b->l->threads;
    bool first = h % held == 0 && tci_kernel_near(b->k) >= held && b->l->threads > 1;
    return tci_stage_move_lanes(b, first ? TCI_MEM_HIGH_FIRST : TCI_MEM_HIGH_HALF, part, h);
}

TCI_FN tci_stage_tuple tci_stage_join_near(tci_build *b, const tci_kred *red, tci_stage_tuple v)
{
    for (int h = TCI_MIN(red->near, b->l->lanes) / 2; h >= 1; h /= 2) {
        v = tci_stage_combine(b, red, v, tci_stage_each(b, v, tci_stage_near_half, h));
    }
    return v;
}

TCI_FN tci_stage_tuple tci_stage_join_halves(tci_build *b, const tci_kred *red, tci_stage_tuple v,
                                             int from)
{
    for (int h = from; h >= TCI_MAX(red->near, 1); h /= 2) {
        v = tci_stage_combine(b, red, v, tci_stage_each(b, v, tci_stage_high_half, h));
    }
    return v;
}

/* Element x of an array of lanes takes in the one h after it. */
static void tci_stage_array_join(tci_build *b, const tci_kred *red, tci_stage_tuple array, int x,
                                 int h)
{
    tci_stage_tuple low = tci_stage_array_get(b, red, array, x);
    int far = tci_lx_make(b->l, TCI_LX_ADD, x, tci_lx_const(b->l, h), 0);
    tci_stage_tuple high = tci_stage_array_get(b, red, array, far);
    tci_stage_array_set(b, array, x, tci_stage_combine(b, red, low, high));
}

/* Joins neighbours of an array, whose vectors are of fewer lanes than those or of as many. */
static void tci_stage_array_near(tci_build *b, const tci_kred *red, tci_stage_tuple array)
{
    int lanes = b->l->lanes, all = tci_kernel_lanes(b->k);
    for (int h = red->near / 2; h >= lanes; h /= 2) {
        tci_lopen outer, inner;
        int from = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, all), 2 * h, &outer);
        int first = tci_lx_var(b->l, from);
        int end = tci_lx_make(b->l, TCI_LX_ADD, first, tci_lx_const(b->l, h), 0);
        int i = tci_build_for(b, first, end, lanes, &inner);
        tci_stage_array_join(b, red, array, tci_lx_var(b->l, i), h);
        tci_build_close(b, &inner);
        tci_build_close(b, &outer);
    }
    if (red->near > 1 && lanes > 1) {
        tci_lopen open;
        int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, all), lanes, &open);
        int x = tci_lx_var(b->l, i);
        tci_stage_tuple v = tci_stage_array_get(b, red, array, x);
        tci_stage_array_set(b, array, x, tci_stage_join_near(b, red, v));
        tci_build_close(b, &open);
    }
}

/* Joins neighbours in registers, each of fewer lanes than those or of as many. */
static void tci_stage_registers_near(tci_build *b, const tci_kred *red, const tci_stage_tuple *acc,
                                     int n)
{
    int lanes = b->l->lanes;
    for (int h = red->near / 2; h >= lanes; h /= 2) {
        for (int i = 0; i + h / lanes < n; i++) {
            if (i * lanes % (2 * h) < h) {
                tci_stage_assign(b, acc[i], tci_stage_combine(b, red, acc[i], acc[i + h / lanes]));
            }
        }
    }
    for (int i = 0; i < n && red->near > 1 && lanes > 1; i++) {
        tci_stage_assign(b, acc[i], tci_stage_join_near(b, red, acc[i]));
    }
}

/* Neighbours first, where the class says so; then lane i takes in lane i + h, for h = n / 2 ... 1;
 * the result is lane 0. */
static int tci_stage_tree(tci_build *b, const tci_stage_lanes *m, int r)
{
    const tci_kred *red = &b->k->reds[r];
    int lanes = b->l->lanes, least = TCI_MAX(lanes, red->near);
    const tci_stage_tuple *acc = &m->acc[r * m->n_regs];
    tci_stage_tuple v;
    if (m->in_array) {
        tci_stage_array_near(b, red, *acc);
    } else {
        tci_stage_registers_near(b, red, acc, m->n_regs);
    }
    for (int h = tci_kernel_lanes(b->k) / 2; h >= least; h /= 2) {
        if (m->in_array) {
            tci_lopen open;
            int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, h), least, &open);
            tci_stage_array_join(b, red, *acc, tci_lx_var(b->l, i), h);
            tci_build_close(b, &open);
            continue;
        }
        for (int i = 0; i < h / lanes && i + h / lanes < m->n_regs; i++) {
            tci_stage_assign(b, acc[i], tci_stage_combine(b, red, acc[i], acc[i + h / lanes]));
        }
    }
    v = m->in_array ? tci_stage_array_get(b, red, *acc, tci_lx_const(b->l, 0)) : *acc;
    v = tci_stage_join_halves(b, red, v, lanes / 2);
    int value = v.part[red->part];
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
    int64_t used = TCI_MAX(TCI_MIN(tci_dim_most(k->axes[m->axis].size), tci_kernel_lanes(b->k)), 1);
    m->n_regs = (int)((used + lanes - 1) / lanes);
    for (int r = 0; r < k->n_reds; r++) {
        n_accs += k->reds[r].stage == m->stage ? tci_red_parts(k->reds[r].op) : 0;
    }
    m->in_array = m->n_regs * n_accs > 2 * TCI_STAGE_MAX_REGISTERS || lanes < 4;
    m->acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds * m->n_regs + 1);
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

/* All elements of the axis. */
static void tci_stage_row(tci_build *b, const tci_stage_lanes *m)
{
    tci_dim cuts[TCI_STAGE_MAX_CUTS + 1], begin = 0;
    int n_cuts = tci_stage_is_cut(b, m->axis) ? 0
                                              : tci_stage_cuts(b, m->axis, tci_kernel_lanes(b->k),
                                                               cuts, TCI_STAGE_MAX_CUTS / 2);
    cuts[n_cuts] = b->k->axes[m->axis].size;
    for (int i = 0; i <= n_cuts; i++) {
        tci_stage_stretch(b, m, begin, cuts[i]);
        begin = cuts[i];
    }
    tci_build_set(b, m->axis, NULL);
}

/* Whether guard g holds along the whole axis at the point of its other axes that is bound: a
 * condition. -1: it has none, or cannot be asked. */
static int tci_stage_guard_holds(tci_build *b, int g, int axis, tci_dim size)
{
    const tci_kguard *guard = &b->k->guards[g];
    uint64_t others = tci_kx_axes(b->k, guard->x) & ~((uint64_t)1 << TCI_MIN(axis, 63));
    tci_dim coef = 0, lo = guard->lo, hi = guard->hi;
    bool asks = others != 0 && tci_build_coef(b->k, guard->x, axis, &coef) &&
                tci_dim_is_known(coef) && coef != 0 && tci_dim_is_known(lo) && tci_dim_is_known(hi);
    for (int a = 0; a < b->k->n_axes && asks; a++) {
        asks = !tci_build_depends(others, a) || (b->bind[a] && !b->bind[a]->is_vector);
    }
    tci_dim span = tci_dim_mul(coef, tci_dim_add(size, -1));
    lo = tci_dim_lt(coef, 0) ? tci_dim_sub(lo, span) : lo;
    hi = tci_dim_lt(coef, 0) ? hi : tci_dim_sub(hi, span);
    if (!asks || tci_dim_lt(hi, lo)) {
        return -1;
    }
    tci_build_set(b, axis, tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    int holds = tci_build_in_range(b, tci_build_lx(b, tci_build_kx(b, guard->x)), lo, hi);
    tci_build_set(b, axis, NULL);
    return holds;
}

/* Whether all guards that can be asked for the whole row hold, as a condition, and which these are;
 * -1: there is none. Most parts of a padded row are inside, and are summed without masks. */
static int tci_stage_row_holds(tci_build *b, const tci_stage_lanes *m, bool *holds)
{
    tci_dim size = b->k->axes[m->axis].size;
    int all = -1;
    if (b->l->threads > 1 || !tci_dim_is_known(size) ||
        tci_dim_known(size) < (int64_t)TCI_STAGE_SURE * b->l->lanes) {
        return -1;
    }
    tci_build_set(b, m->axis,
                  tci_build_bind(b, tci_lin_const(0), 0, tci_dim_add(size, -1), false, -1));
    for (int g = 0; g < b->k->n_guards; g++) {
        holds[g] = !tci_build_guard_holds(b, g);
    }
    tci_build_set(b, m->axis, NULL);
    for (int g = 0; g < b->k->n_guards; g++) {
        int one = holds[g] ? tci_stage_guard_holds(b, g, m->axis, size) : -1;
        int both[2] = {all, one};
        holds[g] = one >= 0;
        all = one < 0 ? all : all < 0 ? one : tci_build_prim(b, TCI_P_AND, TC_BOOL, 2, both, 0);
    }
    return all;
}

TCI_FN void tci_stage_reduce_inner(tci_build *b, int stage, int next_axis)
{
    const tci_kernel *k = b->k;
    const tci_kstage *st = &k->stages[stage];
    int n_before = st->n_axes - 1;
    tci_stage_lanes m = {0};
    m.stage = stage;
    m.axis = st->axes[n_before];
    m.next_axis = next_axis;
    tci_stage_lanes_init(b, &m);
    tci_lopen *open = tci_stage_open(b, st->axes, n_before), branch;
    bool *holds = TCI_NEW_ARRAY(b->s, bool, k->n_guards + 1);
    int sure = tci_stage_row_holds(b, &m, holds);
    if (sure >= 0) {
        tci_build_if(b, sure, &branch);
        b->holds = holds;
        tci_stage_row(b, &m);
        b->holds = NULL;
        tci_build_close(b, &branch);
        tci_build_if(b, tci_build_prim(b, TCI_P_NOT, TC_BOOL, 1, &sure, 0), &branch);
    }
    tci_stage_row(b, &m);
    if (sure >= 0) {
        tci_build_close(b, &branch);
    }
    tci_stage_close(b, st->axes, n_before, open);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            tci_build_leave(b, k->reds[r].inst, tci_stage_tree(b, &m, r));
        }
    }
}

/* ---- maps ---- */

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

TCI_FN void tci_stage_map_inner(tci_build *b, int stage, const tci_tile *tile, int next_axis)
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
