/* loop/simt_row_block.c - builds the GPU loops of row-wise kernels (softmax, norms): a block, a
 * warp or part of a warp computes one row and keeps it in registers.
 *
 * In: a kernel whose stages each run along one inner axis, short enough for a few vectors; the
 * outer axes are bound. Out: the stages, unrolled vector by vector.
 *
 * Design: stages along an axis use the same bindings of it, so a value that two of them need is
 * one value of the loop IR, computed once and kept in registers: memory is read once, all of it
 * before the first result is needed, and written once.
 *
 * The threads of a row are one vector of `vlanes` lanes and a reduction has one accumulator; with
 * fewer lanes it has one for each vector of the class, as far as the row has elements: an
 * accumulator without elements holds the identity. The lanes are combined as kernel/ir.h says:
 * neighbours within a thread first, then whole vectors, then lanes of different warps, through one
 * shared array that every warp reads whole, so that no broadcast is needed; then the lanes of a
 * warp. Fewer threads then need fewer shuffles, and fixed work per thread serves more elements.
 *
 * An EARLIER reduction (kernel/ir.h) has flag words in a persistent workspace of the step that is
 * never cleared: one per row, which contains the run number (epoch), and the totals of its parts
 * and groups, tagged with the next epoch in a run. Each block reads the row's flag, publishes its
 * total, and waits for the preceding totals, each thread reading a few; the block of the last part,
 * whose wait implies that all others have read the row's flag, stores the new epoch there. */
#include "simt_row_block.h"

#include "stage_op_count.h"
#include "vec_reduced_axis.h"
#include "simd_scan.h"

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

static void tci_row_meet(tci_build *b)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_BARRIER;
    tci_loop_append(b->l, b->cur, st);
}

/* The lanes of an accumulator, all of them. */
static int tci_row_join(tci_build *b, const tci_kred *red, tci_stage_tuple v)
{
    v = tci_stage_join_near(b, red, v);
    if (b->l->threads > TCI_WARP) {
        v = tci_stage_each(b, v, tci_row_share, 0);
        tci_row_meet(b);
        v = tci_row_join_warps(b, red, v);
    }
    return tci_row_join_lanes(b, red, v);
}

/* ---- what is earlier ---- */

/* The words of the row at hand begin at `at` of local `words`: one that has its tag, the totals of
 * its parts, those of its groups. tag: of this run; words: of a total. */
typedef struct tci_row_told {
    const tci_kred *red;
    int local, tag, words;
    int64_t parts, group;
    tci_lin at, part, in_group, number; /* the part, its position in its group, which group */
} tci_row_told;

/* The outer axes [first, end) as one. */
static tci_lin tci_row_as_one(tci_build *b, int first, int end)
{
    tci_lin one = tci_lin_const(0);
    for (int a = first; a < end; a++) {
        one = tci_lin_add(b, tci_lin_mul(b, one, b->k->axes[a].size), b->bind[a]->at);
    }
    return one;
}

static int tci_row_tag(tci_build *b, const tci_row_told *t)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_TAG;
    st.base = ~t->local;
    st.x = tci_build_lx(b, t->at);
    tci_value one = {.i = 1};
    int args[2] = {tci_build_mem(b, st, TC_I64, 1, b->cur), tci_build_const(b, TC_I64, one)};
    return tci_build_prim(b, TCI_P_ADD, TC_I64, 2, args, 0);
}

static tci_row_told tci_row_told_begin(tci_build *b, const tci_kred *red)
{
    const tci_kernel *k = b->k;
    int first = k->n_outer - red->earlier;
    tci_row_told t = {.red = red, .parts = tci_kernel_parts(k), .group = tci_kernel_group(k)};
    int64_t rows = 1;
    for (int a = 0; a < first; a++) {
        rows *= tci_kernel_known(k, a);
    }
    t.words = tci_lmem_told((tc_dtype)red->dtype);
    int64_t pitch = 1 + (t.parts + t.parts / t.group) * t.words;
    t.local = tci_build_work(b, TC_I64, rows * pitch);
    t.at = tci_lin_mul(b, tci_row_as_one(b, 0, first), pitch);
    t.part = tci_row_as_one(b, first, k->n_outer);
    int part = tci_build_lx(b, t.part);
    t.number = tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, part, -1, t.group));
    t.in_group = tci_lin_add(b, t.part, tci_lin_mul(b, t.number, -t.group));
    t.tag = tci_row_tag(b, &t);
    return t;
}

/* The word of total number `number`: those of parts come first. */
static tci_lin tci_row_word(tci_build *b, const tci_row_told *t, tci_lin number)
{
    return tci_lin_plus(tci_lin_add(b, t->at, tci_lin_mul(b, number, t->words)), 1);
}

static void tci_row_tell(tci_build *b, const tci_row_told *t, tci_lin at, int value)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_TELL;
    st.base = ~t->local;
    st.x = tci_build_lx(b, at);
    st.args[0] = value;
    st.args[1] = t->tag;
    tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, 1, b->cur);
}

/* Total of n published totals, from number `first` on; waits for them. */
static int tci_row_await(tci_build *b, const tci_row_told *t, tci_lin first, tci_lin n)
{
    tci_stage_tuple acc = tci_stage_accumulator(b, t->red, b->l->lanes);
    tci_lopen open;
    int lanes = tci_lx_const(b->l, b->l->lanes), zero = tci_lx_const(b->l, 0);
    int i = tci_build_for(b, zero, tci_build_lx(b, n), b->l->lanes, &open);
    tci_lin at = tci_lin_var(b, i);
    int left = tci_build_lx(b, tci_lin_add(b, n, tci_lin_mul(b, at, -1)));
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_AWAIT;
    st.base = ~t->local;
    st.x = tci_build_lx(b, tci_row_word(b, t, tci_lin_add(b, first, at)));
    st.n = tci_lx_make(b->l, TCI_LX_MIN, left, lanes, 0);
    st.args[0] = t->tag;
    int there = tci_row_mask(b, st.n);
    int v = tci_build_mem(b, st, (tc_dtype)t->red->dtype, b->l->lanes, b->cur);
    tci_stage_tuple more = tci_stage_combine(b, t->red, acc, tci_stage_tuple_of(v, -1));
    tci_stage_assign(b, acc, tci_stage_choose(b, there, more, acc));
    tci_build_close(b, &open);
    return tci_row_join(b, t->red, tci_stage_each(b, acc, tci_row_copy, 0));
}

/* Publishes a value if `at` is `last`. */
static void tci_row_tell_last(tci_build *b, const tci_row_told *t, tci_lin at, int64_t last,
                              tci_lin word, int value)
{
    tci_lopen open;
    tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, at), last, last), &open);
    tci_row_tell(b, t, word, value);
    tci_build_close(b, &open);
}

static int tci_row_both(tci_build *b, const tci_row_told *t, int x, int y)
{
    return tci_stage_combine(b, t->red, tci_stage_tuple_of(x, -1), tci_stage_tuple_of(y, -1))
        .part[0];
}

/* Prefix total of the parts before this one, whose own total is `total`. */
static int tci_row_earlier(tci_build *b, const tci_row_told *t, int total)
{
    tci_lin mates = tci_lin_mul(b, t->number, t->group);
    tci_row_tell(b, t, tci_row_word(b, t, t->part), total);
    int earlier = tci_row_await(b, t, mates, t->in_group);
    if (t->group < t->parts) {
        tci_lin groups = tci_lin_const(t->parts);
        tci_lin word = tci_row_word(b, t, tci_lin_add(b, groups, t->number));
        tci_row_tell_last(b, t, t->in_group, t->group - 1, word,
                          tci_row_both(b, t, earlier, total));
        earlier = tci_row_both(b, t, tci_row_await(b, t, groups, t->number), earlier);
    }
    tci_row_tell_last(b, t, t->part, t->parts - 1, t->at, earlier);
    return earlier;
}

/* ---- stages ---- */

static void tci_row_reduce(tci_build *b, int stage, int n, const tci_bind **vecs)
{
    const tci_kernel *k = b->k;
    const tci_kred *earlier = tci_kernel_earlier(k);
    bool warps = b->l->threads > TCI_WARP;
    tci_row_told told = {0};
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds + 1);
    if (earlier && earlier->stage == stage) {
        told = tci_row_told_begin(b, earlier);
    }
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            acc[r] = tci_row_join_vectors(b, &k->reds[r], n, vecs);
            acc[r] = warps ? tci_stage_each(b, acc[r], tci_row_share, 0) : acc[r];
        }
    }
    if (warps) {
        tci_row_meet(b);
    }
    tci_build_set(b, k->stages[stage].axes[0], NULL);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            tci_stage_tuple v = warps ? tci_row_join_warps(b, &k->reds[r], acc[r]) : acc[r];
            int result = tci_row_join_lanes(b, &k->reds[r], v);
            result = told.red == &k->reds[r] ? tci_row_earlier(b, &told, result) : result;
            tci_build_remember(b, k->reds[r].inst, result);
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
