/* loop/stage_tile.c - emits the loops, index bindings, stores and prefetches of one register tile
 * of a stage (rows x vectors of its non-reduced axes).
 *
 * In: a tci_tile, a stage. Out: the statements that all schedules of a stage have in common. */
#include "stage_tile.h"

enum { TCI_STAGE_LINE_BYTES = 64 };

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

TCI_FN tci_lopen *tci_stage_open(tci_build *b, const int32_t *axes, int n)
{
    tci_lopen *open = TCI_NEW_ARRAY(b->s, tci_lopen, n + 1);
    for (int i = 0; i < n; i++) {
        tci_stage_open_axis(b, axes[i], &open[i]);
    }
    return open;
}

TCI_FN void tci_stage_close(tci_build *b, const int32_t *axes, int n, const tci_lopen *open)
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

TCI_FN void tci_stage_values(tci_build *b, int stage)
{
    for (int i = 0; i < b->k->n_stores; i++) {
        if (b->k->stores[i].stage == stage) {
            tci_build_value(b, b->k->stores[i].value);
        }
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

TCI_FN int tci_stage_head(tci_build *b, const tci_kstore *store, int axis, tci_lin at, tci_dim lo,
                          tci_dim hi)
{
    tci_build_set(b, axis, tci_build_bind(b, at, lo, hi, false, -1));
    int x = tci_build_lx(b, tci_build_kx(b, store->x));
    tci_build_set(b, axis, NULL);
    int bytes = tci_dtype_get((tc_dtype)b->k->operands[store->operand].dtype)->bytes;
    return tci_lx_make(b->l, TCI_LX_HEAD, x, store->operand, (int64_t)b->l->lanes * bytes);
}

/* ---- prefetches ---- */

/* Prefetches what is `ahead` elements after the position x of an operand. */
static void tci_stage_fetch(tci_build *b, int operand, int x, tci_dim ahead)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_PREFETCH;
    st.base = operand;
    st.x = tci_build_lx(b, tci_lin_plus(tci_build_kx(b, x), ahead));
    tci_build_mem(b, st, TC_F32, 1, b->cur);
}

/* A load without a guard that is contiguous along `axis`; *bytes of an element. */
static bool tci_stage_runs(const tci_kernel *k, const tci_kinst *inst, int axis, int *bytes)
{
    tci_dim coef;
    if (inst->op != TCI_K_LOAD || inst->n_guards > 0) {
        return false;
    }
    *bytes = tci_dtype_get((tc_dtype)k->operands[tci_kinst_number(inst)].dtype)->bytes;
    return tci_build_coef(k, inst->x, axis, &coef) && coef == 1;
}

TCI_FN void tci_stage_fetch_stores(tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kernel *k = b->k;
    tci_dim coef;
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *store = &k->stores[i];
        if (store->stage == stage && store != tile->stream &&
            tci_build_coef(k, store->x, tile->vec_axis, &coef) && coef == 1) {
            tci_stage_fetch(b, store->operand, store->x, (int64_t)tile->n_vecs * b->l->lanes);
        }
    }
}

/* The next row of what the rows' kernel reads, at the current position of `axis`, which is `skip`
 * elements after a cache line. */
TCI_FN void tci_stage_fetch_next(tci_build *b, int axis, int next_axis, int64_t skip)
{
    const tci_kernel *k = b->k;
    for (int i = 0; next_axis >= 0 && i < k->n_insts; i++) {
        int bytes = 0;
        tci_dim row;
        if (tci_stage_runs(k, &k->insts[i], axis, &bytes) &&
            skip * bytes % TCI_STAGE_LINE_BYTES == 0 &&
            tci_build_coef(k, k->insts[i].x, next_axis, &row) && row != 0) {
            tci_stage_fetch(b, tci_kinst_number(&k->insts[i]), k->insts[i].x, row);
        }
    }
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
                tci_stage_fetch(b, tci_kinst_number(&k->insts[i]), k->insts[i].x,
                                tile->prefetch / bytes);
            }
        }
    }
}
