/* loop/scatter.c - emits scatter stages: stores at data-dependent indices, in the order of the
 * elements.
 *
 * In: a stage and a tile of outer iterations. Out: the stage for all of them, in the order of the
 * inner iterations. On a GPU every read-modify-write has a long latency, so there several
 * iterations are processed together: their elements are read at once, and where two of them address
 * one element the later iteration uses the result of the earlier one, so the sums keep their
 * order. */
#include "scatter.h"

#include "reduction_step.h"

enum { TCI_SCATTER_TOGETHER = 8 }; /* points: each is compared with those before it */

static int tci_scatter_merge(tci_build *b, const tci_kstore *store, int old, int value)
{
    int op = tci_kstore_combine(store->mode);
    tci_kred red = {.op = (uint8_t)op, .dtype = b->l->values[old].dtype};
    tci_stage_tuple acc = tci_stage_tuple_of(old, -1), v = tci_stage_tuple_of(value, -1);
    return op < 0 ? value : tci_stage_combine(b, &red, acc, v).part[0];
}

/* The stage's stores at the current point. */
static void tci_scatter_point(tci_build *b, int stage)
{
    for (int i = 0; i < b->k->n_stores; i++) {
        const tci_kstore *store = &b->k->stores[i];
        if (store->stage != stage) {
            continue;
        }
        if (store->mode == TCI_MODE_SET && store->guard < 0) {
            tci_build_store(b, store, tci_build_value(b, store->value), false);
        } else {
            tci_build_update(b, store, tci_scatter_merge);
        }
    }
}

/* ---- several points together ---- */

/* New value of the element that point u writes: combined with the one in memory, or with the result
 * of the last earlier point that writes the same element. x: offsets of the points. */
static int tci_scatter_newest(tci_build *b, const int *x, const int *made, int u, int old)
{
    int lanes = b->l->values[old].lanes;
    for (int j = 0; j < u; j++) {
        int minus = tci_lx_make(b->l, TCI_LX_MUL, x[j], -1, -1);
        int apart = tci_lx_make(b->l, TCI_LX_ADD, x[u], minus, 0);
        int same = tci_build_widen(b, tci_build_in_range(b, apart, 0, 0), lanes);
        int args[3] = {same, made[j], old};
        old = tci_build_prim(b, TCI_P_SELECT, (tc_dtype)b->l->values[old].dtype, 3, args, 0);
    }
    return old;
}

/* Points at, at + 1, ... of the stage's axis, n of them, all in [lo, hi]. */
static void tci_scatter_points(tci_build *b, const tci_kstore *store, tci_lin at, int64_t lo,
                               int64_t hi, int n)
{
    int axis = b->k->stages[store->stage].axes[0];
    const tci_bind *points[TCI_SCATTER_TOGETHER];
    int x[TCI_SCATTER_TOGETHER], value[TCI_SCATTER_TOGETHER];
    int old[TCI_SCATTER_TOGETHER], made[TCI_SCATTER_TOGETHER];
    for (int u = 0; u < n; u++) {
        points[u] = tci_build_bind(b, tci_lin_plus(at, u), lo + u, hi - (n - 1 - u), false, -1);
        tci_build_set(b, axis, points[u]);
        tci_lin offset = tci_build_let(b, tci_build_lx(b, tci_build_kx(b, store->x)));
        x[u] = tci_build_lx(b, offset);
        value[u] = tci_build_value(b, store->value);
    }
    for (int u = 0; u < n; u++) {
        tci_build_set(b, axis, points[u]);
        old[u] = tci_build_stored(b, store);
    }
    for (int u = 0; u < n; u++) {
        int newest = tci_scatter_newest(b, x, made, u, old[u]);
        int lanes = b->l->values[newest].lanes;
        made[u] = tci_scatter_merge(b, store, newest, tci_build_widen(b, value[u], lanes));
    }
    for (int u = 0; u < n; u++) {
        tci_build_set(b, axis, points[u]);
        tci_build_store(b, store, made[u], false);
    }
    tci_build_set(b, axis, NULL);
}

/* The one store of a stage that can go so; NULL: there is none. */
static const tci_kstore *tci_scatter_alone(const tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kstage *st = &b->k->stages[stage];
    const tci_kstore *alone = NULL;
    int n = 0;
    for (int i = 0; i < b->k->n_stores; i++) {
        alone = b->k->stores[i].stage == stage ? &b->k->stores[i] : alone;
        n += b->k->stores[i].stage == stage;
    }
    bool fits = b->waits && n == 1 && st->n_axes == 1 && alone->mode != TCI_MODE_SET &&
                alone->guard < 0 && tile->n_rows * tile->n_vecs == 1 &&
                tci_dim_is_known(b->k->axes[st->axes[0]].size);
    return fits && tci_build_is_row(b, alone->x) ? alone : NULL;
}

static void tci_scatter_together(tci_build *b, const tci_kstore *store)
{
    int64_t size = tci_dim_known(b->k->axes[b->k->stages[store->stage].axes[0]].size);
    int64_t whole = size / TCI_SCATTER_TOGETHER * TCI_SCATTER_TOGETHER;
    if (whole > 0) {
        tci_lopen open;
        int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, whole),
                              TCI_SCATTER_TOGETHER, &open);
        tci_scatter_points(b, store, tci_lin_var(b, i), 0, whole - 1, TCI_SCATTER_TOGETHER);
        tci_build_close(b, &open);
    }
    if (size > whole) {
        tci_scatter_points(b, store, tci_lin_const(whole), whole, size - 1, (int)(size - whole));
    }
}

/* ---- ranges ---- */

/* Takes points at, at + 1, ... n of them, into what is made of the element so far: all are read
 * before the first is taken in. */
static void tci_scatter_take(tci_build *b, const tci_kstore *store, int made, tci_lin at, int n)
{
    int axis = b->k->stages[store->stage].axes[0], value[TCI_SCATTER_TOGETHER];
    tci_dim last = tci_dim_add(b->k->axes[axis].size, -1);
    for (int u = 0; u < n; u++) {
        tci_build_set(b, axis, tci_build_bind(b, tci_lin_plus(at, u), 0, last, false, -1));
        value[u] = tci_build_widen(b, tci_build_value(b, store->value), b->l->values[made].lanes);
    }
    for (int u = 0; u < n; u++) {
        tci_build_assign(b, made, tci_scatter_merge(b, store, made, value[u]));
    }
    tci_build_set(b, axis, NULL);
}

/* From *at on, n points at a time as often as that goes before `end`; *at ends after them. */
static void tci_scatter_groups(tci_build *b, const tci_kstore *store, int made, tci_lin *at,
                               int end, int n)
{
    int begin = tci_build_lx(b, *at), minus = tci_lx_make(b->l, TCI_LX_MUL, begin, -1, -1);
    int left = tci_build_lx(b, tci_build_let(b, tci_lx_make(b->l, TCI_LX_ADD, end, minus, 0)));
    int whole = tci_lx_make(b->l, TCI_LX_MUL, tci_lx_make(b->l, TCI_LX_DIV, left, -1, n), -1, n);
    tci_lin stop = tci_build_let(b, tci_lx_make(b->l, TCI_LX_ADD, begin, whole, 0));
    tci_lopen open;
    int i = tci_build_for(b, begin, tci_build_lx(b, stop), n, &open);
    tci_scatter_take(b, store, made, tci_lin_var(b, i), n);
    tci_build_close(b, &open);
    *at = stop;
}

/* A range of the stage's one axis, the same for all lanes; its store goes to one element, which
 * stays in a register meanwhile. */
static void tci_scatter_stretch(tci_build *b, int stage, const tci_kstore *store)
{
    const tci_kstage *st = &b->k->stages[stage];
    tci_lin at = tci_build_let(b, tci_build_lx(b, tci_build_kx(b, st->from)));
    int end = tci_build_lx(b, tci_build_let(b, tci_build_lx(b, tci_build_kx(b, st->to))));
    int made = tci_build_mutable(b, tci_build_stored(b, store));
    if (b->waits) {
        tci_scatter_groups(b, store, made, &at, end, TCI_SCATTER_TOGETHER);
    }
    tci_scatter_groups(b, store, made, &at, end, 1);
    tci_build_store(b, store, tci_build_copy(b, made), false);
}

TCI_FN void tci_stage_scatter(tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kstage *st = &b->k->stages[stage];
    tci_stage_point(b, tile, 0);
    for (int w = 0; w < b->k->n_stores && st->from >= 0; w++) {
        for (int i = 0; i < tile->n_rows * tile->n_vecs && b->k->stores[w].stage == stage; i++) {
            tci_stage_point(b, tile, i);
            tci_scatter_stretch(b, stage, &b->k->stores[w]);
        }
    }
    if (st->from >= 0) {
        return;
    }
    const tci_kstore *alone = tci_scatter_alone(b, stage, tile);
    if (alone) {
        tci_scatter_together(b, alone);
        return;
    }
    tci_lopen *open = tci_stage_open(b, st->axes, st->n_axes);
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        tci_stage_point(b, tile, i);
        tci_scatter_point(b, stage);
    }
    tci_stage_close(b, st->axes, st->n_axes, open);
}
