/* loop/thread_per_point.c - GPU schedule in which one thread computes one output element or a short
 * run of them: depthwise and grouped convolutions, GEMV, pooling, small copies.
 *
 * In: a kernel with reductions whose last outer axis is too short for vectors, or not a multiple of
 * the vector length, or whose loads are guarded or strided, so that a vector would be read lane by
 * lane; or one MAP stage with an axis shorter still. Out: the statements for one thread. Design:
 * neighbouring threads take neighbouring points of the result, along any axis, and each runs the
 * stages alone; data shared by neighbours comes from the cache. A thread has several points along
 * an axis that the operand with the last axis lacks, so that one read of that operand serves all of
 * them; for a copy, all points of a short axis that it stores together. The summation order does
 * not change.
 *
 * Cost: for each product and row one multiply-add and one read that all threads of a warp share,
 * and one coalesced read shared by all rows. */
#include "thread_per_point.h"

#include "stage_op_count.h"

enum {
    TCI_PER_POINT_ROWS = 8,  /* of a thread, at most */
    TCI_PER_POINT_BUSY = 512 /* threads that keep an SM busy */
};

/* ---- whether and how ---- */

static bool tci_per_point_is_dot(const tci_kernel *k)
{
    return k->n_reds == 1 && k->reds[0].op == TCI_RED_DOT;
}

/* True if a vector along the last outer axis would be read lane by lane: a load of the first stage
 * has a guard or, like windows of an image, a stride between neighbours. */
static bool tci_per_point_is_lane_by_lane(const tci_kernel *k)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1), found = false;
    tci_cost_mark(k, 0, false, live);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        tci_dim coef = 0;
        if (live[i] && in->op == TCI_K_LOAD) {
            bool linear = tci_build_coef(k, in->x, k->n_outer - 1, &coef);
            bool apart = !tci_per_point_is_dot(k) && (!linear || tci_dim_lt(1, coef));
            found |= in->n_guards > 0 || apart;
        }
    }
    return found;
}

/* A short axis along which a map stores neighbours: -1 none. */
static int tci_per_point_together(const tci_kernel *k)
{
    int found = -1;
    bool map = k->n_reds == 0 && k->n_stages == 1 && k->n_outer > 1;
    for (int a = 0; a < k->n_outer - 1 && map && found < 0; a++) {
        int64_t size = tci_dim_hint(k->axes[a].size);
        bool together = size > 1 && size <= TCI_PER_POINT_ROWS;
        for (int i = 0; i < k->n_stores && together; i++) {
            tci_dim coef = 0;
            together = tci_build_coef(k, k->stores[i].x, a, &coef) && coef == 1;
        }
        found = together ? a : -1;
    }
    return found;
}

static bool tci_per_point_fits(const tci_kernel *k)
{
    bool reduces = k->n_reds > 0 && k->stages[0].kind == TCI_STAGE_REDUCE;
    bool fits = k->vector == TCI_VEC_OUTER && k->n_outer > 0 && k->n_axes < 63 &&
                (reduces || (k->n_reds == 0 && k->n_stages == 1));
    for (int t = reduces; t < k->n_stages && fits; t++) {
        fits = k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int i = 0; i < k->n_stores && fits; i++) {
        fits = k->stores[i].mode == TCI_MODE_SET;
    }
    for (int a = 0; a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size);
    }
    int64_t last = fits ? tci_kernel_known(k, k->n_outer - 1) : 0;
    bool is_short = last < (reduces ? TCI_PER_POINT_SHORT : TCI_PER_POINT_SHORT / 2) ||
                    tci_per_point_together(k) >= 0;
    bool is_ragged = !tci_per_point_is_dot(k) && last % TCI_VLANES != 0;
    return fits && (reduces ? is_short || is_ragged || tci_per_point_is_lane_by_lane(k)
                            : is_short && k->n_outer > 1);
}

/* The last outer axis that the factor with the very last one lacks; -1: none. */
static int tci_per_point_row_axis(const tci_kernel *k)
{
    if (!tci_per_point_is_dot(k)) {
        return tci_per_point_together(k);
    }
    const tci_kred *red = &k->reds[0];
    uint64_t a = k->insts[red->in[0]].axes, b = k->insts[red->in[1]].axes;
    int last = k->n_outer - 1, row = last - 1;
    uint64_t fast = tci_build_depends(a, last) ? a : b;
    if (tci_build_depends(a, last) == tci_build_depends(b, last)) {
        return -1;
    }
    while (row >= 0 && (tci_build_depends(fast, row) || k->axes[row].size == 1)) {
        row--;
    }
    return row;
}

TCI_FN bool tci_per_point_plan(const tci_kernel *k, const tci_machine *machine, tci_per_point *p)
{
    if (machine->block_threads < TCI_PER_POINT_THREADS || !tci_per_point_fits(k)) {
        return false;
    }
    int64_t all = 1;
    p->row_axis = tci_per_point_row_axis(k);
    p->rows = 1;
    p->by_lane = tci_per_point_is_lane_by_lane(k);
    p->n_axes = 0;
    p->axes = TCI_NEW_ARRAY(k->s, int, k->n_outer);
    for (int a = 0; a < k->n_outer; a++) {
        all = all > INT32_MAX ? all : all * tci_kernel_known(k, a);
        if (a != p->row_axis) {
            p->axes[p->n_axes++] = a;
        }
    }
    int64_t busy = (int64_t)machine->facts.processors * TCI_PER_POINT_BUSY;
    int64_t rows = p->row_axis < 0 ? 1 : tci_kernel_known(k, p->row_axis);
    p->size = rows > 0 ? all / rows : 0;
    for (int r = 2; r <= TCI_PER_POINT_ROWS; r++) {
        bool worth = k->n_reds > 0 ? all / r >= busy : r == rows;
        p->rows = rows % r == 0 && worth ? r : p->rows;
    }
    return all > 0 && all <= INT32_MAX;
}

/* ---- a thread ---- */

TCI_FN void tci_per_point_emit(tci_build *b, const tci_per_point *p, tci_lin row, tci_lin chunk)
{
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, p->n_axes + p->rows);
    const tci_bind **rows = binds + p->n_axes;
    bool cut = p->size % TCI_PER_POINT_THREADS != 0;
    tci_lopen open;
    tci_lin thread = tci_build_let(b, tci_lx_make(b->l, TCI_LX_THREAD, -1, -1, 0));
    tci_lin point = tci_lin_add(b, tci_lin_mul(b, chunk, TCI_PER_POINT_THREADS), thread);
    if (cut) {
        tci_build_if(b, tci_build_inside(b, point, p->size), &open);
    }
    tci_build_digits(b, p->n_axes, p->axes, point, binds);
    for (int i = 0; i < p->n_axes; i++) {
        tci_build_set(b, p->axes[i], binds[i]);
    }
    tci_lin first = tci_lin_mul(b, row, p->rows);
    if (p->row_axis >= 0) {
        tci_build_neighbours(b, p->row_axis, first, p->rows, rows);
    }
    tci_tile tile = {0};
    tile.row_axis = p->row_axis;
    tile.rows = rows;
    tile.n_rows = p->rows;
    tile.vec_axis = tile.next_axis = -1;
    tile.n_vecs = 1;
    tile.written = b->k->n_reds == 0;
    tci_stage_all(b, &tile);
    for (int i = 0; i < p->n_axes; i++) {
        tci_build_set(b, p->axes[i], NULL);
    }
    if (cut) {
        tci_build_close(b, &open);
    }
}
