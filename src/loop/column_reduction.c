/* loop/column_reduction.c - emits column reductions over a long range of the vector axis, with
 * accumulators in memory.
 *
 * In: a tci_panel. Out: statements. Design: the accumulators of the whole range are in local
 * arrays and a few rows are added at a time, so that memory is read in long contiguous streams;
 * each output still has a single accumulation chain over the rows in order. */
#include "column_reduction.h"

typedef struct tci_stage_rows {
    const tci_panel *panel;
    const tci_stage_tuple *arrays; /* accumulators of each reduction, */
    const tci_stage_tuple *totals; /* and of a DOT in parts what those before sum up to */
    const tci_bind **rows;
    int n_rows;
} tci_stage_rows;

/* Where a vector's accumulators are. */
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
            tci_stage_tuple acc = tci_stage_array_get(b, &k->reds[r], m->arrays[r], x);
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
            tci_stage_tuple sum = tci_stage_array_get(b, &k->reds[r], m->arrays[r], x);
            if (k->reds[r].order == TCI_ORDER_SPLIT) {
                tci_stage_tuple total = tci_stage_array_get(b, &k->reds[r], m->totals[r], x);
                sum = tci_stage_joined(b, &k->reds[r], total, sum);
            }
            tci_build_remember(b, k->reds[r].inst, sum.part[0]);
        }
    }
    tci_stage_from(b, &tile, 1);
}

/* The sums in parts of some vectors: joined with those before, and another part begins. */
static void tci_stage_panel_join(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    const tci_stage_rows *m = arg;
    const tci_kernel *k = b->k;
    for (int i = 0; i < n; i++) {
        int x = tci_stage_panel_offset(b, m->panel, vecs[i]);
        for (int r = 0; r < k->n_reds; r++) {
            const tci_kred *red = &k->reds[r];
            tci_stage_tuple part = tci_stage_array_get(b, red, m->arrays[r], x);
            tci_stage_tuple total = tci_stage_array_get(b, red, m->totals[r], x);
            tci_stage_array_set(b, m->totals[r], x, tci_stage_joined(b, red, total, part));
            tci_stage_array_set(b, m->arrays[r], x, tci_stage_identity(b, red));
        }
    }
}

/* Before rows that begin at index `row`: those of a new part? */
static void tci_stage_panel_next(tci_build *b, tci_stage_rows *m, int row)
{
    const tci_panel *p = m->panel;
    const tci_kred *red = &b->k->reds[0];
    tci_dim last = tci_dim_add(b->k->axes[b->k->stages[0].axes[0]].size, -1);
    tci_lopen open, later;
    if (red->order != TCI_ORDER_SPLIT) {
        return;
    }
    int place = tci_lx_make(b->l, TCI_LX_MOD, row, -1, red->order_n);
    tci_build_if(b, tci_build_in_range(b, place, 0, 0), &open);
    tci_build_if(b, tci_build_in_range(b, row, 1, last), &later);
    tci_stage_vectors_dynamic(b, tci_build_lx(b, p->first), p->end, -1, p->lo, p->hi, p->unroll,
                              tci_stage_panel_join, m);
    tci_build_close(b, &later);
    tci_build_close(b, &open);
}

/* The rows [begin, end) of the inner axis, `n` at a time. */
static void tci_stage_panel_rows(tci_build *b, tci_stage_rows *m, tci_dim begin, tci_dim end,
                                 int64_t n)
{
    const tci_panel *p = m->panel;
    tci_loop *l = b->l;
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(l, begin), tci_lx_const(l, end), n, &open);
    tci_stage_panel_next(b, m, tci_lx_var(l, i));
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
    tci_stage_tuple *arrays = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds + 1);
    const tci_bind **rows = TCI_NEW_ARRAY(b->s, const tci_bind *, panel->rows);
    tci_stage_tuple *totals = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds + 1);
    tci_stage_rows m = {panel, arrays, totals, rows, 0};
    tci_lopen open;
    b->stage = 0;
    for (int r = 0; r < k->n_reds; r++) {
        arrays[r] = tci_stage_array_local(b, &k->reds[r], panel->chunk);
        if (k->reds[r].order == TCI_ORDER_SPLIT) {
            totals[r] = tci_stage_array_local(b, &k->reds[r], panel->chunk);
        }
    }
    int i = tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, panel->chunk), l->lanes, &open);
    for (int r = 0; r < k->n_reds; r++) {
        tci_stage_array_set(b, arrays[r], tci_lx_var(l, i), tci_stage_identity(b, &k->reds[r]));
        if (k->reds[r].order == TCI_ORDER_SPLIT) {
            tci_stage_array_set(b, totals[r], tci_lx_var(l, i), tci_stage_none(b, &k->reds[r]));
        }
    }
    tci_build_close(b, &open);
    if (whole != 0) {
        tci_stage_panel_rows(b, &m, 0, whole, panel->rows);
    }
    if (rest != 0) {
        tci_stage_panel_rows(b, &m, whole, size, tci_dim_is_known(rest) ? tci_dim_known(rest) : 1);
    }
    tci_stage_vectors_dynamic(b, tci_build_lx(b, panel->first), panel->end, -1, panel->lo,
                              panel->hi, 1, tci_stage_panel_finish, &m);
}
