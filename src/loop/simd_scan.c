/* loop/simd_scan.c - emits inclusive scans (prefix sums) vectorized along their axis (VEC_INNER),
 * by lane-shift steps in blocks of n elements: class BLOCK_SCAN(n).
 *
 * In: a stage; the outer indices are bound. Out: its loops, a block of n elements at a time.
 * Design: steps of the class (kernel/ir.h) below the vector width shift lanes; in those above it a
 * vector adds one number from an earlier vector, or provides one. So the vectors of a block run one
 * after the other, whole, partial or absent, and any width gives the same bits; between blocks one
 * more number is carried, the result of the last element. */
#include "simd_scan.h"

enum { TCI_SCAN_MAX_CUTS = 8 };

typedef struct tci_scan {
    int stage, axis, next_axis;
    int64_t n;              /* elements of a block */
    tci_stage_tuple *carry; /* [red]: the last result of the block before */
    tci_stage_tuple *ends;  /* [red * steps + step above the lanes]: left for vectors to come */
    int n_steps;
    tci_mem lane; /* how all threads come to know a lane */
} tci_scan;

static tci_scan tci_scan_begin(tci_build *b, int stage, int next_axis)
{
    const tci_kernel *k = b->k;
    tci_scan m = {0};
    m.stage = stage;
    m.axis = k->stages[stage].axes[0];
    m.next_axis = next_axis;
    m.n = tci_kernel_lanes(k);
    m.lane = TCI_MEM_LANE;
    for (int64_t h = b->l->lanes; h < m.n; h *= 2) {
        m.n_steps++;
    }
    m.carry = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds + 1);
    m.ends = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds * m.n_steps + 1);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            m.carry[r] = tci_stage_accumulator(b, &k->reds[r], 1);
            for (int i = 0; i < m.n_steps; i++) {
                m.ends[r * m.n_steps + i] = tci_stage_accumulator(b, &k->reds[r], 1);
            }
        }
    }
    return m;
}

/* ---- one vector ---- */

static int tci_scan_last(tci_build *b, int value, int lane)
{
    if (b->l->lanes == 1) {
        return value;
    }
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)lane;
    st.args[0] = value;
    st.imm = b->l->lanes - 1;
    return tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, 1, b->cur);
}

static int tci_scan_widen(tci_build *b, int value, int unused)
{
    (void)unused;
    return tci_build_widen(b, value, b->l->lanes);
}

/* Step h within the vector. */
static tci_stage_tuple tci_scan_step(tci_build *b, const tci_kred *red, tci_stage_tuple v, int h)
{
    tci_stage_tuple none = tci_stage_each(b, tci_stage_identity(b, red), tci_scan_widen, 0);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_BELOW;
    st.args[0] = v.part[0];
    st.args[1] = none.part[0];
    st.imm = h;
    tci_stage_tuple below = v;
    below.part[0] = tci_build_mem(b, st, (tc_dtype)b->l->values[v.part[0]].dtype, b->l->lanes,
                                  b->cur);
    return tci_stage_combine(b, red, below, v);
}

/* Combines vector number u of a block with the vectors before it, and computes the carry for the
 * next, unless it is the last one. */
static tci_stage_tuple tci_scan_join(tci_build *b, const tci_scan *m, int r, int64_t u, bool last,
                                     tci_stage_tuple v)
{
    const tci_kred *red = &b->k->reds[r];
    int64_t lanes = b->l->lanes, at = u * lanes;
    for (int i = 0; i < m->n_steps; i++) {
        int64_t h = lanes << i;
        tci_stage_tuple end = m->ends[r * m->n_steps + i];
        if (at & h) {
            v = tci_stage_combine(b, red, tci_stage_each(b, end, tci_scan_widen, 0), v);
        } else if ((at + lanes) % h == 0 && !last) {
            tci_stage_assign(b, end, tci_stage_each(b, v, tci_scan_last, m->lane));
        }
    }
    v = tci_stage_combine(b, red, tci_stage_each(b, m->carry[r], tci_scan_widen, 0), v);
    if (at + lanes == m->n && !last) {
        tci_stage_assign(b, m->carry[r], tci_stage_each(b, v, tci_scan_last, m->lane));
    }
    return v;
}

/* Bindings of the axis, as vectors from number u of a block on, one after the other: the steps of
 * all of them, then their results and what is stored of these. ends: nothing comes after them. */
static void tci_scan_run(tci_build *b, const tci_scan *m, int64_t u, bool ends, int n,
                         const tci_bind **vecs)
{
    const tci_kernel *k = b->k;
    tci_stage_tuple *v = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds * n + 1);
    for (int i = 0; i < n; i++) {
        tci_build_set(b, m->axis, vecs[i]);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == m->stage) {
                v[r * n + i] = tci_stage_each(b, tci_stage_operands(b, &k->reds[r]), tci_scan_widen,
                                              0);
            }
        }
    }
    for (int h = 1; h < b->l->lanes; h *= 2) {
        for (int j = 0; j < k->n_reds * n; j++) {
            if (k->reds[j / n].stage == m->stage) {
                v[j] = tci_scan_step(b, &k->reds[j / n], v[j], h);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        tci_build_set(b, m->axis, vecs[i]);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == m->stage) {
                int64_t at = (u + i) % (m->n / b->l->lanes);
                tci_stage_tuple result = tci_scan_join(b, m, r, at, ends && i == n - 1,
                                                       v[r * n + i]);
                tci_build_remember(b, k->reds[r].inst, result.part[0]);
            }
        }
        tci_stage_stores(b, m->stage, NULL);
    }
}

/* ---- the axis ---- */

/* `count` elements from `at` on, which is a multiple of n; at most n of them. */
static void tci_scan_block(tci_build *b, const tci_scan *m, tci_lin at, tci_dim lo, tci_dim hi,
                           int64_t count)
{
    int64_t lanes = b->l->lanes;
    for (int64_t u = 0; u * lanes < count; u++) {
        int64_t left = count - u * lanes;
        int n = left < lanes ? tci_lx_const(b->l, left) : -1;
        tci_dim last = tci_dim_add(hi, -TCI_MAX(left - lanes, 0));
        tci_dim first = tci_dim_add(lo, u * lanes);
        const tci_bind *vec = tci_stage_vector(b, tci_lin_plus(at, u * lanes), first, last, n);
        tci_build_set(b, m->axis, vec);
        tci_stage_fetch_next(b, m->axis, m->next_axis, u * lanes);
        tci_scan_run(b, m, u, count < m->n && left <= lanes, 1, &vec);
    }
}

/* The last elements of the axis: `count` of them from `at` on, fewer than n. */
static void tci_scan_rest(tci_build *b, const tci_scan *m, tci_dim at, tci_dim count)
{
    int lanes = b->l->lanes;
    tci_dim last = tci_dim_add(b->k->axes[m->axis].size, -1);
    for (int u = 0; u * lanes < m->n; u++) {
        int left = tci_lx_const(b->l, tci_dim_add(count, -u * lanes));
        tci_lin first = tci_lin_const(tci_dim_add(at, u * lanes));
        for (int partial = 0; partial < 1 + (lanes > 1); partial++) {
            tci_lopen open;
            int there = partial ? tci_build_in_range(b, left, 1, lanes - 1)
                                : tci_build_in_range(b, left, lanes, m->n);
            tci_build_if(b, there, &open);
            const tci_bind *vec = tci_stage_vector(b, first, 0, last, partial ? left : -1);
            tci_scan_run(b, m, u, false, 1, &vec);
            tci_build_close(b, &open);
        }
    }
}

/* Elements [begin, end) of the axis; both are multiples of n, or end is the axis' end. */
static void tci_scan_stretch(tci_build *b, const tci_scan *m, tci_dim begin, tci_dim end)
{
    tci_dim whole = tci_dim_mul(tci_dim_div(tci_dim_sub(end, begin), m->n), m->n);
    whole = tci_dim_add(begin, whole);
    if (!tci_dim_le(whole, begin)) {
        tci_lopen open;
        int j = tci_build_for(b, tci_lx_const(b->l, begin), tci_lx_const(b->l, whole), m->n, &open);
        tci_scan_block(b, m, tci_lin_var(b, j), begin, tci_dim_add(whole, -1), m->n);
        tci_build_close(b, &open);
    }
    tci_dim count = tci_dim_sub(end, whole);
    if (!tci_dim_is_known(count)) {
        tci_scan_rest(b, m, whole, count);
    } else if (tci_dim_known(count) > 0) {
        tci_scan_block(b, m, tci_lin_const(whole), whole, tci_dim_add(end, -1),
                       tci_dim_known(count));
    }
}

TCI_FN void tci_stage_scan_inner(tci_build *b, int stage, int next_axis)
{
    tci_scan m = tci_scan_begin(b, stage, next_axis);
    tci_dim cuts[2 * TCI_SCAN_MAX_CUTS + 1], begin = 0;
    int n_cuts = tci_stage_cuts(b, m.axis, m.n, cuts, TCI_SCAN_MAX_CUTS);
    cuts[n_cuts] = b->k->axes[m.axis].size;
    for (int i = 0; i <= n_cuts; i++) {
        tci_scan_stretch(b, &m, begin, cuts[i]);
        begin = cuts[i];
    }
    tci_build_set(b, m.axis, NULL);
}

TCI_FN void tci_scan_vectors(tci_build *b, int stage, int n, const tci_bind **vecs)
{
    tci_scan m = tci_scan_begin(b, stage, -1);
    m.lane = b->l->threads <= TCI_WARP ? TCI_MEM_LANE_REPEAT : TCI_MEM_LANE;
    tci_scan_run(b, &m, 0, true, n, vecs);
    tci_build_set(b, m.axis, NULL);
}
