/* loop/simt_short_reduction.c - GPU schedule of short reductions (pooling, depthwise convolution
 * and its filter gradient, convolution with few channels) and of maps with a short last axis, in
 * NHWC: each thread computes one 16-byte vector of adjacent outputs, and the reduction is unrolled
 * in its registers.
 *
 * In: a kernel whose first stage reduces few elements, or is a map, in which every load is
 * contiguous along the last outer axis or independent of it, and every guard independent of that
 * axis; later stages are pointwise. Out: the statements for one thread. Design: a thread has a
 * vector along that axis, of 16 bytes if possible, and several neighbouring points along the axis
 * before it. The last reduced axis is unrolled, so that elements shared by neighbouring windows,
 * and values common to all, such as a filter or a norm's scale, are read once. The order of sums is
 * kept.
 *
 * Neighbouring threads take consecutive vectors. */
#include "simt_short_reduction.h"

enum {
    TCI_WINDOW_MOST = 128,    /* elements that are reduced */
    TCI_WINDOW_WRITTEN = 16,  /* of the last axis of them */
    TCI_WINDOW_SHORT = 2048,  /* elements of a row of a map, at most */
    TCI_WINDOW_NARROW = 2,    /* bytes of an element of a map for which its vectors are wide */
    TCI_WINDOW_HELD = 32,     /* sums that a thread holds where it is worth it */
    TCI_WINDOW_BUSY = 512,    /* threads that keep an SM busy, */
    TCI_WINDOW_BUSY_BOTH = 64 /* or that do where each reads much of both factors */
};

/* ---- whether ---- */

/* A chain of products of any length, as gradients of filters are? */
static bool tci_short_reduction_is_chain(const tci_kernel *k)
{
    return k->n_reds == 1 && k->reds[0].op == TCI_RED_DOT && k->reds[0].order == TCI_ORDER_CHAIN;
}

/* A map of short rows? */
static bool tci_short_reduction_is_map(const tci_kernel *k)
{
    return k->n_stages == 1 && k->stages[0].kind == TCI_STAGE_MAP && k->stages[0].n_axes == 0 &&
           k->n_outer > 1 && tci_dim_hint(k->axes[k->n_outer - 1].size) <= TCI_WINDOW_SHORT;
}

/* *elements: that are reduced. */
static bool tci_short_reduction_is_stages(const tci_kernel *k, int64_t *elements)
{
    bool map = tci_short_reduction_is_map(k);
    bool fits = k->vector == TCI_VEC_OUTER && k->n_outer > 1 && k->n_axes < 63 &&
                (map || (k->n_reds > 0 && k->stages[0].kind == TCI_STAGE_REDUCE &&
                         k->stages[0].n_kept == 0));
    for (int t = 1; t < k->n_stages && fits; t++) {
        fits = k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int a = 0; a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size);
    }
    *elements = 1;
    if (map) {
        return fits;
    }
    int64_t most = tci_short_reduction_is_chain(k) ? TCI_WINDOW_CHAIN : TCI_WINDOW_MOST;
    for (int i = 0; i < k->stages[0].n_axes && fits; i++) {
        *elements *= tci_kernel_known(k, k->stages[0].axes[i]);
        fits = *elements <= most;
    }
    return fits && k->stages[0].n_axes > 0 &&
           (tci_short_reduction_is_chain(k) ||
            tci_kernel_known(k, k->stages[0].axes[k->stages[0].n_axes - 1]) <= TCI_WINDOW_WRITTEN);
}

/* Every sum is of that axis' points, each for itself: both factors of a product have it. Or of few
 * elements of windows, each taken by a vector of filters. */
static bool tci_short_reduction_sums_are_independent(const tci_kernel *k, int axis,
                                                     int64_t elements)
{
    bool apart = true, few = elements <= TCI_WINDOW_FEW && k->stages[0].n_axes > 1;
    for (int r = 0; r < k->n_reds && apart; r++) {
        const tci_kred *red = &k->reds[r];
        int along = 0, takes = tci_red_takes(red->op);
        for (int i = 0; i < takes; i++) {
            along += tci_build_depends(k->insts[red->in[i]].axes, axis);
        }
        apart = red->stage == 0 && red->order != TCI_ORDER_MATRIX && red->order != TCI_ORDER_TF32 &&
                red->order != TCI_ORDER_SPLIT && (along == takes || (along > 0 && few));
    }
    return apart;
}

static bool tci_short_reduction_runs(const tci_kernel *k, int x, int axis)
{
    tci_dim coef = 0;
    return tci_build_coef(k, x, axis, &coef) && (coef == 1 || coef == 0);
}

/* True if all accesses are vectors along the axis, or independent of it. *bytes: size of the
 * narrowest element read. */
static bool tci_short_reduction_is_along(const tci_kernel *k, int axis, int *bytes)
{
    bool along = true;
    *bytes = TCI_ALIGNED_BYTES;
    for (int i = 0; i < k->n_insts && along; i++) {
        const tci_kinst *in = &k->insts[i];
        for (int g = 0; g < in->n_guards; g++) {
            along = along && !tci_build_depends(tci_kx_axes(k, k->guards[in->guard + g].x), axis);
        }
        along = along && in->op != TCI_K_FAULT;
        if (in->op == TCI_K_LOAD) {
            const tci_koperand *from = &k->operands[tci_kinst_number(in)];
            along = along && tci_short_reduction_runs(k, in->x, axis) && from->panel == 0;
            *bytes = TCI_MIN(*bytes, tci_dtype_get((tc_dtype)from->dtype)->bytes);
        }
    }
    for (int i = 0; i < k->n_stores && along; i++) {
        tci_dim coef = 0;
        along = k->stores[i].mode == TCI_MODE_SET &&
                tci_build_coef(k, k->stores[i].x, axis, &coef) && coef == 1;
    }
    return along;
}

/* ---- how ---- */

static int tci_short_reduction_lanes(const tci_machine *machine, int64_t size, int bytes)
{
    int lanes = TCI_MAX(machine->vector_bytes / bytes, 1);
    while (size % lanes != 0) {
        lanes /= 2;
    }
    return lanes;
}

/* True if both operands of a chain vary with the position, so a thread reads much of both; false if
 * one is a filter that all threads share. */
static bool tci_short_reduction_reads_both(const tci_kernel *k, int row_axis)
{
    bool both = tci_short_reduction_is_chain(k);
    for (int i = 0; i < 2 && both; i++) {
        uint64_t axes = k->insts[k->reds[0].in[i]].axes;
        bool own = false;
        for (int a = 0; a < k->n_outer - 1; a++) {
            own = own || (a != row_axis && tci_build_depends(axes, a));
        }
        both = own;
    }
    return both;
}

/* Rows that divide the axis and leave threads enough. */
static int tci_short_reduction_rows(const tci_kernel *k, const tci_machine *machine,
                                    const tci_short_reduction *p, int64_t all)
{
    int64_t size = p->row_axis < 0 ? 1 : tci_kernel_known(k, p->row_axis);
    bool both = tci_short_reduction_reads_both(k, p->row_axis);
    int64_t busy = machine->facts.processors;
    busy *= both ? TCI_WINDOW_BUSY_BOTH : TCI_WINDOW_BUSY;
    int held = both ? 2 * TCI_WINDOW_HELD : TCI_WINDOW_HELD, rows = 1;
    int most = TCI_MIN(TCI_MAX(held / p->lanes, 1), TCI_WINDOW_ROWS);
    for (int r = 2; r <= most; r++) {
        rows = size % r == 0 && all / r >= busy ? r : rows;
    }
    return rows;
}

TCI_FN bool tci_short_reduction_plan(const tci_kernel *k, const tci_machine *machine, int64_t rows,
                                     tci_short_reduction *p)
{
    int vec = k->n_outer - 1, bytes;
    int64_t all = 1, elements;
    if (machine->block_threads < TCI_WINDOW_THREADS || machine->no_shared_memory ||
        !tci_short_reduction_is_stages(k, &elements) ||
        !tci_short_reduction_sums_are_independent(k, vec, elements) ||
        !tci_short_reduction_is_along(k, vec, &bytes)) {
        return false;
    }
    bytes = tci_short_reduction_is_map(k) ? TCI_MAX(bytes, TCI_WINDOW_NARROW) : bytes;
    p->lanes = tci_short_reduction_lanes(machine, tci_kernel_known(k, vec), bytes);
    p->row_axis = -1;
    for (int a = 0; a < k->n_outer; a++) {
        int64_t size = tci_kernel_known(k, a);
        all = all > INT32_MAX ? all : all * size;
        p->row_axis = a < vec && size > 1 ? a : p->row_axis;
    }
    int64_t size = p->row_axis < 0 ? 1 : tci_kernel_known(k, p->row_axis);
    p->rows = (int)rows;
    if (rows == 0) {
        p->rows = tci_short_reduction_rows(k, machine, p, all / p->lanes);
    } else if (rows < 0 || rows > TCI_WINDOW_ROWS || size % rows != 0) {
        return false;
    }
    p->size = all / p->lanes / p->rows;
    return p->lanes > 1 && all > 0 && all <= INT32_MAX;
}

/* ---- a thread ---- */

/* Binds all outer axes but that of the rows; returns the position of the first row. */
static tci_lin tci_short_reduction_bind(tci_build *b, const tci_short_reduction *p, tci_lin number)
{
    int n = b->k->n_outer;
    int64_t *sizes = TCI_NEW_ARRAY(b->s, int64_t, n), *steps = TCI_NEW_ARRAY(b->s, int64_t, n);
    tci_lin *at = TCI_NEW_ARRAY(b->s, tci_lin, n);
    for (int a = 0; a < n; a++) {
        steps[a] = a == n - 1 ? p->lanes : a == p->row_axis ? p->rows : 1;
        sizes[a] = tci_kernel_known(b->k, a) / steps[a];
    }
    tci_build_split(b, n, sizes, number, at);
    for (int a = 0; a < n; a++) {
        at[a] = tci_lin_mul(b, at[a], steps[a]);
        if (a != p->row_axis) {
            int64_t last = tci_kernel_known(b->k, a) - 1;
            tci_build_set(b, a, tci_build_bind(b, at[a], 0, last, a == n - 1, -1));
        }
    }
    return p->row_axis < 0 ? tci_lin_const(0) : at[p->row_axis];
}

TCI_FN void tci_short_reduction_emit(tci_build *b, const tci_short_reduction *p, tci_lin block)
{
    const tci_bind *rows[TCI_WINDOW_ROWS];
    bool cut = p->size % TCI_WINDOW_THREADS != 0;
    tci_lopen open;
    tci_lin thread = tci_build_let(b, tci_lx_make(b->l, TCI_LX_ROW, -1, -1, 0));
    tci_lin number = tci_lin_add(b, tci_lin_mul(b, block, TCI_WINDOW_THREADS), thread);
    if (cut) {
        tci_build_if(b, tci_build_inside(b, number, p->size), &open);
    }
    tci_lin first = tci_short_reduction_bind(b, p, number);
    if (p->row_axis >= 0) {
        tci_build_neighbours(b, p->row_axis, first, p->rows, rows);
    }
    tci_tile tile = {0};
    tile.row_axis = p->row_axis;
    tile.rows = rows;
    tile.n_rows = p->rows;
    tile.vec_axis = b->k->n_outer - 1;
    const tci_bind *vec = b->bind[tile.vec_axis];
    tile.vecs = &vec;
    tile.n_vecs = 1;
    tile.written = true;
    tci_stage_all(b, &tile);
    for (int a = 0; a < b->k->n_outer; a++) {
        tci_build_set(b, a, NULL);
    }
    if (cut) {
        tci_build_close(b, &open);
    }
}
