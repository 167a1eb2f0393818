/* loop/packing.c - emits the packing of GEMM operands into panels.
 *
 * In: how the kernel is blocked, where a block starts. Out: the panels as local arrays of work
 * memory, and statements that fill them.
 *
 * Design: a panel is a kept instruction (tci_lkeep). Packing evaluates the whole operand, its
 * index expression, guards, casts and elementwise producer, at every point of the panel; in the
 * tile the same instruction is a load from the panel. Both panels hold the inner points in order,
 * so the tile's loop is one flat loop for any number of inner axes. Only packing distinguishes the
 * axes of a side; afterwards the side's last axis stands for all of them, and the others are at
 * 0. */
#include <string.h>

#include "amx_packed.h"
#include "gemm_operands.h"
#include "dot_packing.h"

enum {
    TCI_GEMM_PAD = 16,    /* elements between parts of a panel: off the same cache set */
    TCI_GEMM_UNROLL = 4,  /* vectors packed at once along a row */
    TCI_GEMM_FETCHED = 4, /* rows that a tile fetches ahead, at most */
    TCI_GEMM_AHEAD = 8,   /* inner points between what is used and what is fetched */
    TCI_GEMM_WRITTEN = 8, /* points of a last inner axis that are no loop in packing */
    TCI_GEMM_PIECE = 96   /* inner points of a tile that are packed by one range after
                                       the other: what the first cache holds */
};

/* ---- panels ---- */

/* Positions of the inner points: `step` elements apart. */
static void tci_gemm_inner_coefs(const tci_gemm_state *s, tci_dim *coef, tci_dim step)
{
    const tci_kstage *st = &s->b->k->stages[s->p->stage];
    for (int i = s->p->n_inner - 1; i >= s->p->cut; i--) {
        coef[st->axes[i]] = step;
        step = tci_dim_mul(step, s->b->k->axes[st->axes[i]].size);
    }
}

/* Positions of the points of a side: `step` elements apart. */
static void tci_gemm_side_coefs(const tci_gemm_state *s, const tci_gemm_side *side, tci_lkeep *keep,
                                int64_t step)
{
    for (int i = side->n_axes - 1; i >= 0; i--) {
        keep->coef[side->axes[i]] = step;
        step *= i > 0 ? tci_kernel_known(s->b->k, side->axes[i]) : 1;
    }
}

TCI_FN void tci_gemm_set_others(tci_gemm_state *s, const tci_gemm_side *side, const tci_bind *bind)
{
    for (int i = 0; i < side->n_axes - 1; i++) {
        tci_build_set(s->b, side->axes[i], bind);
    }
}

/* Keeps a factor in `local`, whose inner points are `step` elements apart, or this many of them. */
static tci_lkeep *tci_gemm_keep(tci_gemm_state *s, int inst, int local, int64_t step, int points)
{
    tci_lkeep *keep = tci_build_keep(s->b, inst, local, -1);
    if (points > 1) {
        keep->points = points;
        keep->point = TCI_NEW_ARRAY(s->b->s, tci_dim, s->b->k->n_axes + 1);
        keep->word_step = step;
        keep->is_padded = true;
    }
    tci_gemm_inner_coefs(s, points > 1 ? keep->point : keep->coef, points > 1 ? 1 : step);
    return keep;
}

/* The panel of the row factor. Several points along a row are filled in as what each is. */
static void tci_gemm_make_rows(tci_gemm_state *s, int64_t rows)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    int64_t lanes = b->l->lanes, panels = p->fused ? tci_dim_known(p->n_tiles) : 1;
    tc_dtype type = (tc_dtype)b->k->insts[p->row_inst].dtype;
    bool across = p->row_by_vector && !p->on_unit;
    int64_t whole = tci_ceil_div(rows, lanes) * lanes;
    if (across) {
        s->row_step = whole;
        s->row_elements = s->row_step * s->steps;
    } else {
        s->row_step = tci_ceil_div(s->steps, lanes) * lanes + TCI_GEMM_PAD;
        s->row_elements = s->row_step * (p->on_unit ? whole : rows);
    }
    if (p->is_row_there) {
        return;
    }
    int panel = tci_build_work(b, type, s->row_elements * panels);
    s->row_pairs = panel;
    bool along = p->points > 1 && !p->row_by_vector;
    if (along) {
        tc_dtype point = tci_dot_pack_dtype(type, p->points);
        panel = tci_build_local(b, point, p->points * s->row_elements * panels, 0);
        b->l->locals[panel].work = b->l->locals[s->row_pairs].work;
    }
    s->row = tci_gemm_keep(s, p->row_inst, panel, across ? s->row_step : 1,
                           p->row_by_vector ? p->points : 1);
    s->row->is_padded |= across; /* stores of some lanes are slow on some processors */
    tci_gemm_side_coefs(s, &p->of_rows, s->row, across ? 1 : (along ? p->points : 1) * s->row_step);
}

TCI_FN void tci_gemm_make_panels(tci_gemm_state *s, int64_t group)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    const tci_kred *red = &b->k->reds[s->p->red];
    int64_t depth = p->depth * p->inner, rows = p->base + (p->extra > 0), lanes = b->l->lanes;
    int64_t whole = p->on_unit ? tci_gemm_step(b->k, p) : p->points;
    s->steps = tci_ceil_div(depth, whole) * (whole / p->points);
    s->tile = (int64_t)p->unroll * lanes;
    s->tile_step = p->fused ? 0 : s->tile * s->steps + TCI_GEMM_PAD;
    tc_dtype vec_type = (tc_dtype)b->k->insts[p->vec_inst].dtype;
    int64_t vec_elements = p->fused ? s->tile * s->steps
                                    : s->tile_step * tci_ceil_div(p->columns, s->tile);
    tci_gemm_make_rows(s, rows);
    s->vec_pairs = p->is_vec_there ? ~tci_kinst_number(&b->k->insts[p->vec_load])
                                   : tci_build_work(b, vec_type, vec_elements);
    s->vec = tci_gemm_keep(s, p->vec_inst, s->vec_pairs, s->tile, p->points);
    s->vec->is_padded = true;
    tci_gemm_side_coefs(s, &p->of_columns, s->vec, 1);
    s->partial = s->total = s->zeros = tci_stage_tuple_of(-1, -1);
    if (p->on_unit) {
        tci_amx_packed_make(s, group);
    } else if (p->n_depths != 1 || p->by_rows) {
        s->partial.part[0] = tci_build_work(b, (tc_dtype)red->dtype, group * rows * p->columns);
    }
    if (p->masked && !p->hides_columns) {
        s->zeros.part[0] = tci_build_work(b, (tc_dtype)red->dtype, p->columns);
    }
    if (p->part > 0 && !p->is_part) {
        s->total.part[0] = tci_build_work(b, (tc_dtype)red->dtype, group * rows * p->columns);
    }
}

/* Loops over the inner axes but for the last `without`; the cut one over the current block. */
static tci_lopen *tci_gemm_open(tci_gemm_state *s, int without)
{
    tci_build *b = s->b;
    const tci_kstage *st = &b->k->stages[s->p->stage];
    tci_lopen *open = TCI_NEW_ARRAY(b->s, tci_lopen, s->p->n_inner + 1);
    for (int i = 0; i < s->p->n_inner - without; i++) {
        tci_dim size = b->k->axes[st->axes[i]].size;
        int from = tci_lx_const(b->l, 0), to = tci_lx_const(b->l, size);
        if (i < s->p->cut) {
            tci_build_set(b, st->axes[i], s->fixed[i]);
            continue;
        }
        if (i == s->p->cut) {
            from = tci_build_lx(b, s->first);
            to = tci_build_lx(b, tci_lin_add(b, s->first, s->depth));
        }
        int at = tci_build_for(b, from, to, 1, &open[i]);
        tci_build_set(b, st->axes[i],
                      tci_build_bind(b, tci_lin_var(b, at), 0, tci_dim_add(size, -1), false, -1));
    }
    return open;
}

static void tci_gemm_close(tci_gemm_state *s, int without, const tci_lopen *open)
{
    const tci_kstage *st = &s->b->k->stages[s->p->stage];
    for (int i = s->p->n_inner - 1 - without; i >= 0; i--) {
        if (i >= s->p->cut) {
            tci_build_close(s->b, &open[i]);
        }
        tci_build_set(s->b, st->axes[i], NULL);
    }
}

/* ---- fetching ---- */

static void tci_gemm_fetch_at(tci_build *b, int base, tci_lin x)
{
    tci_lstmt fetch = tci_loop_stmt(TCI_L_MEM);
    fetch.mem = TCI_MEM_PREFETCH;
    fetch.base = base;
    fetch.x = tci_build_lx(b, x);
    tci_build_mem(b, fetch, TC_F32, 1, b->cur);
}

TCI_FN void tci_gemm_fetch_panel(tci_gemm_state *s, int n, tci_lin inner)
{
    tci_build *b = s->b;
    const tci_kinst *in = &b->k->insts[s->p->is_vec_there ? s->p->vec_load : s->p->vec_inst];
    int type = s->p->is_vec_there ? b->k->operands[tci_kinst_number(in)].dtype : in->dtype;
    int64_t line = TCI_GEMM_LINE / tci_dtype_get((tc_dtype)type)->bytes;
    int64_t wide = s->p->is_vec_there ? s->p->points : 1; /* elements of a step and column */
    tci_lin at = tci_lin_mul(b, tci_lin_plus(inner, TCI_GEMM_AHEAD), wide * s->tile);
    at = tci_lin_add(b, s->vec->base, at);
    for (int64_t skip = 0; skip < wide * n * b->l->lanes; skip += line) {
        tci_gemm_fetch_at(b, ~s->vec->local, tci_lin_plus(at, skip));
    }
}

static void tci_gemm_fetch(tci_build *b, int inst)
{
    const tci_kinst *in = &b->k->insts[inst];
    tci_gemm_fetch_at(b, tci_kinst_number(in), tci_build_kx(b, in->x));
}

TCI_FN void tci_gemm_fetch_vectors(tci_gemm_state *s, int n, const tci_bind *const *vecs,
                                   int64_t inner, int64_t columns)
{
    tci_build *b = s->b;
    int axis = b->k->stages[s->p->stage].axes[0];
    const tci_bind *here = b->bind[axis];
    tci_build_set(b, axis, tci_build_bind(b, tci_lin_plus(here->at, inner), 0, 0, false, -1));
    for (int i = 0; i < n; i++) {
        tci_lin at = tci_lin_plus(vecs[i]->at, columns);
        tci_build_set(b, s->p->vec_axis, tci_build_bind(b, at, 0, 0, true, -1));
        tci_gemm_fetch(b, s->p->vec_load);
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_set(b, axis, here);
}

TCI_FN void tci_gemm_fetch_rows(tci_gemm_state *s, const tci_tile *tile, tci_lin number)
{
    tci_build *b = s->b;
    int64_t tiles = s->p->columns / s->tile, share = tci_ceil_div(tile->n_rows, tiles);
    tci_lin row = tci_lin_plus(tile->rows[0]->at, tile->n_rows);
    row = tci_lin_add(b, row, tci_lin_mul(b, number, share));
    for (int64_t i = 0; i < share && share <= TCI_GEMM_FETCHED; i++) {
        tci_lin at = tci_lin_plus(row, i);
        tci_build_set(b, s->p->row_axis, tci_build_bind(b, at, 0, 0, false, -1));
        tci_gemm_fetch(b, s->p->row_load);
    }
}

TCI_FN void tci_gemm_fetch_partial(tci_gemm_state *s, tci_lin at, int n)
{
    for (int i = 0; i < n; i++) {
        tci_gemm_fetch_at(s->b, ~s->partial.part[0],
                          tci_lin_plus(at, (int64_t)(n + i) * s->b->l->lanes));
    }
}

TCI_FN void tci_gemm_fetch_results(tci_gemm_state *s, const tci_tile *tile)
{
    tci_build *b = s->b;
    for (int i = 0; i < b->k->n_stores && !s->p->keeps; i++) {
        for (int j = 0; j < tile->n_rows * tile->n_vecs; j++) {
            tci_stage_point(b, tile, j);
            tci_gemm_fetch_at(b, b->k->stores[i].operand, tci_build_kx(b, b->k->stores[i].x));
        }
    }
}

/* ---- packing ---- */

/* Where the panel of the columns from `at` on begins that is in memory, in the block at hand. */
static tci_lin tci_gemm_panel_at(tci_gemm_state *s, tci_lin at)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    const int32_t *axes = b->k->stages[p->stage].axes;
    tci_dim size = p->of_columns.size;
    for (int i = 0; i < p->n_inner; i++) {
        tci_dim last = tci_dim_add(b->k->axes[axes[i]].size, -1);
        const tci_bind *first = tci_build_bind(b, s->first, 0, last, false, -1);
        tci_build_set(b, axes[i], i < p->cut ? s->fixed[i] : i == p->cut ? first : s->zero);
    }
    tci_gemm_set_others(s, &p->of_columns, s->zero);
    tci_build_set(b, p->vec_axis, tci_build_bind(b, at, 0, tci_dim_add(size, -1), false, -1));
    tci_lin base = tci_build_kx(b, b->k->insts[p->vec_load].x);
    tci_build_set(b, p->vec_axis, NULL);
    tci_gemm_set_others(s, &p->of_columns, NULL);
    for (int i = 0; i < p->n_inner; i++) {
        tci_build_set(b, axes[i], NULL);
    }
    bool turned = p->is_vec_paired && b->k->insts[p->vec_inst].dtype == TC_F32;
    return tci_lin_plus(base, turned ? -1 : 0); /* the odd point is first */
}

/* The same for a symbolic size: all tiles are whole, and panels and kept rows are padded to
 * them. */
static void tci_gemm_open_vectors(tci_gemm_state *s, tci_lin at, const tci_bind **vecs)
{
    tci_build *b = s->b;
    int64_t lanes = b->l->lanes;
    tci_dim whole = tci_dim_mul(tci_dim_ceil_div(s->p->of_columns.size, s->tile), s->tile);
    for (int i = 0; i < s->p->unroll; i++) {
        tci_dim most = tci_dim_add(whole, (i + 1) * lanes - s->tile - 1);
        vecs[i] = tci_build_bind(b, tci_lin_plus(at, i * lanes), i * lanes, most, true, -1);
    }
}

TCI_FN const tci_bind **tci_gemm_bind_column_vectors(tci_gemm_state *s, tci_lin tile, int64_t count,
                                                     int *n)
{
    tci_build *b = s->b;
    int64_t lanes = b->l->lanes;
    const tci_bind **vecs = TCI_NEW_ARRAY(b->s, const tci_bind *, s->p->unroll);
    tci_lin at = tci_lin_add(b, s->column, tci_lin_mul(b, tile, s->tile));
    s->vec->origin[s->p->vec_axis] = at;
    s->vec->base = s->p->is_vec_there ? tci_gemm_panel_at(s, at)
                                      : tci_lin_mul(b, tile, s->tile_step);
    if (!tci_dim_is_known(s->p->of_columns.size)) {
        *n = s->p->unroll;
        tci_gemm_open_vectors(s, at, vecs);
        return vecs;
    }
    int64_t size = tci_dim_known(s->p->of_columns.size);
    for (*n = 0; *n * lanes < count; ++*n) {
        int64_t skip = *n * lanes, left = TCI_MIN(count - skip, lanes);
        int64_t lo = count < s->tile ? size - count + skip : skip;
        int64_t hi = size - (count - skip - left) - 1;
        vecs[*n] = tci_build_bind(b, tci_lin_plus(at, skip), lo, hi, true,
                                  left < lanes ? tci_lx_const(b->l, left) : -1);
    }
    return vecs;
}

/* Steps of the panels in the block at hand: an index expression. */
static int tci_gemm_steps(tci_gemm_state *s)
{
    tci_loop *l = s->b->l;
    int points = tci_build_lx(s->b, tci_lin_mul(s->b, s->depth, s->p->inner));
    int more = tci_lx_make(l, TCI_LX_ADD, points, tci_lx_const(l, s->p->points - 1), 0);
    return s->p->points > 1 ? tci_lx_make(l, TCI_LX_DIV, more, -1, s->p->points) : points;
}

/* The inner axes of the block but for the last one, which stands for all points of the block where
 * `flat`; else unbound. */
static void tci_gemm_set_flat(tci_gemm_state *s, bool flat)
{
    const int32_t *axes = s->b->k->stages[s->p->stage].axes;
    for (int i = 0; i < s->p->n_inner - 1; i++) {
        tci_build_set(s->b, axes[i], !flat ? NULL : i < s->p->cut ? s->fixed[i] : s->zero);
    }
}

/* Inner points that the last axis has where it stands for all from the cut one on. */
static tci_dim tci_gemm_flat_size(const tci_gemm_state *s)
{
    const int32_t *axes = s->b->k->stages[s->p->stage].axes;
    return tci_dim_mul(s->b->k->axes[axes[s->p->cut]].size, s->p->inner);
}

/* Vectors that are strided, where the inner points may be contiguous: square tiles of these and
 * lanes, which loads transpose in registers. Returns the first inner point that is left. */
static tci_lin tci_gemm_pack_squares(tci_gemm_state *s, int n, const tci_bind *const *vecs)
{
    tci_build *b = s->b;
    int axis = b->k->stages[s->p->stage].axes[s->p->n_inner - 1];
    int64_t lanes = b->l->lanes;
    tci_dim last = tci_dim_add(tci_gemm_flat_size(s), -lanes);
    const tci_bind **rows = TCI_NEW_ARRAY(b->s, const tci_bind *, lanes);
    tci_lopen open;
    tci_lin first = tci_lin_mul(b, s->first, s->p->inner);
    int depth = tci_build_lx(b, tci_lin_mul(b, s->depth, s->p->inner));
    int squares = tci_lx_make(b->l, TCI_LX_DIV, depth, -1, lanes);
    int points = tci_lx_make(b->l, TCI_LX_MUL, squares, -1, lanes);
    int from = tci_build_lx(b, first), end = tci_lx_make(b->l, TCI_LX_ADD, from, points, 0);
    tci_gemm_set_flat(s, true);
    tci_lin at = tci_lin_var(b, tci_build_for(b, from, end, lanes, &open));
    for (int64_t r = 0; r < lanes; r++) {
        rows[r] = tci_build_bind(b, tci_lin_plus(at, r), r, tci_dim_add(last, r), false, -1);
    }
    b->turn_rows = rows;
    b->turn_axis = axis;
    b->n_turn = (int)lanes;
    int each = s->p->points;
    for (int64_t r = 0; r < lanes && each > 1; r += each) {
        tci_lin point = tci_lin_add(b, at, tci_lin_mul(b, s->first, -1));
        int step = tci_lx_make(b->l, TCI_LX_DIV, tci_build_lx(b, point), -1, each);
        s->step = tci_lin_plus(tci_build_let(b, step), r / each);
        memcpy(s->places, rows + r, sizeof(*rows) * (size_t)each);
        tci_dot_pack_fill(s);
    }
    for (int i = 0; i < n * lanes && each == 1; i++) {
        tci_build_set(b, s->p->vec_axis, vecs[i / lanes]);
        tci_build_set(b, axis, rows[i % lanes]);
        tci_build_value(b, s->p->vec_inst);
    }
    b->turn_rows = NULL;
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_set(b, axis, NULL);
    tci_build_close(b, &open);
    tci_gemm_set_flat(s, false);
    return tci_build_let(b, end);
}

/* The same point after point, from `at` to the end of the block. */
static void tci_gemm_pack_rest(tci_gemm_state *s, int n, const tci_bind *const *vecs, tci_lin at)
{
    tci_build *b = s->b;
    int axis = b->k->stages[s->p->stage].axes[s->p->n_inner - 1];
    tci_dim last = tci_dim_add(tci_gemm_flat_size(s), -1);
    tci_lopen open;
    tci_lin end = tci_lin_mul(b, tci_lin_add(b, s->first, s->depth), s->p->inner);
    tci_gemm_set_flat(s, true);
    at = tci_lin_var(b, tci_build_for(b, tci_build_lx(b, at), tci_build_lx(b, end), 1, &open));
    tci_build_set(b, axis, tci_build_bind(b, at, 0, last, false, -1));
    for (int i = 0; i < n; i++) {
        tci_build_set(b, s->p->vec_axis, vecs[i]);
        tci_build_value(b, s->p->vec_inst);
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_set(b, axis, NULL);
    tci_build_close(b, &open);
    tci_gemm_set_flat(s, false);
}

/* True if all columns of a block are packed for one inner point after the other. */
static bool tci_gemm_packs_all(const tci_gemm *p)
{
    return p->vec_by_vector && p->of_columns.n_axes == 1 && !tci_dot_pack_by_window(p);
}

/* Vectors of a range of the last axis of the columns, for all inner points of the block. */
static void tci_gemm_pack_stretch(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    tci_gemm_state *s = arg;
    if (tci_dot_pack_by_window(s->p)) {
        tci_dot_pack_pack_window(s, n, vecs);
        return;
    }
    int last = s->p->n_inner - 1, axis = b->k->stages[s->p->stage].axes[last];
    int64_t size = tci_kernel_known(b->k, axis);
    bool short_axis = last > s->p->cut && size <= TCI_GEMM_WRITTEN;
    tci_lopen *open = tci_gemm_open(s, short_axis);
    for (int64_t at = 0; at < (short_axis ? size : 1); at++) {
        if (short_axis) {
            tci_build_set(b, axis, tci_build_bind(b, tci_lin_const(at), at, at, false, -1));
        }
        for (int i = 0; i < n; i++) {
            tci_build_set(b, s->p->vec_axis, vecs[i]);
            tci_build_value(b, s->p->vec_inst);
        }
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_set(b, axis, NULL);
    tci_gemm_close(s, short_axis, open);
}

/* Zeros in the last vector of a tile of `count` columns, whose last lanes no column has: what lay
 * there before may be small numbers, which some processors take a hundred times as long for. */
static void tci_gemm_clear_rest(tci_gemm_state *s, int64_t count)
{
    tci_build *b = s->b;
    int64_t lanes = b->l->lanes;
    tci_value zero = {.i = 0};
    tci_lopen open;
    if (count % lanes == 0) {
        return;
    }
    int none = tci_build_const(b, (tc_dtype)b->k->insts[s->p->vec_inst].dtype, zero);
    int steps = tci_gemm_steps(s);
    tci_lin step = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0), steps, 1, &open));
    tci_lin at = tci_lin_plus(tci_lin_mul(b, step, s->tile), count / lanes * lanes);
    tci_stage_array_set(b, tci_stage_tuple_of(s->vec->local, -1),
                        tci_build_lx(b, tci_lin_add(b, s->vec->base, at)),
                        tci_stage_tuple_of(none, -1));
    tci_build_close(b, &open);
}

/* Zeros in the pairs after those of a block up to a whole step of a unit, before these are packed;
 * pairs are `pitch` elements apart, from element `at` of the panel on. */
static void tci_gemm_clear_steps(tci_gemm_state *s, int local, tci_lin at, int64_t pitch)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t each = s->p->points, whole = tci_gemm_step(b->k, s->p), lanes = l->lanes;
    tci_value zero = {.i = 0};
    tci_lopen open;
    tc_dtype type = (tc_dtype)b->k->reds[s->p->red].dtype;
    int none = tci_build_splat(b, tci_build_const(b, type, zero));
    int points = tci_build_lx(b, tci_lin_mul(b, s->depth, s->p->inner));
    int end = tci_lx_make(l, TCI_LX_ADD, points, tci_lx_const(l, whole - 1), 0);
    end = tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_DIV, end, -1, whole), -1, whole / each);
    int from = tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_DIV, points, -1, whole), -1,
                           whole / each);
    from = pitch == 1 ? from : tci_lx_make(l, TCI_LX_DIV, points, -1, each);
    tci_lin i = tci_lin_var(b, tci_build_for(b, from, end, pitch == 1 ? lanes : 1, &open));
    at = tci_lin_add(b, at, tci_lin_mul(b, i, pitch));
    for (int64_t skip = 0; skip < TCI_MAX(pitch, lanes); skip += lanes) {
        tci_stage_array_set(b, tci_stage_tuple_of(local, -1),
                            tci_build_lx(b, tci_lin_plus(at, skip)), tci_stage_tuple_of(none, -1));
    }
    tci_build_close(b, &open);
}

/* A tile of columns of several axes: for each point of those before the last one that it touches,
 * the range of the last one. */
static void tci_gemm_pack_piece(tci_gemm_state *s, tci_lin at, int64_t count)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    const tci_gemm_side *side = &s->p->of_columns;
    const tci_bind *digits[TCI_GEMM_AXES];
    int64_t run = tci_kernel_known(b->k, s->p->vec_axis);
    tci_lopen open;
    int from = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, at), -1, run);
    int to = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, tci_lin_plus(at, count - 1)), -1, run);
    to = tci_lx_make(l, TCI_LX_ADD, to, tci_lx_const(l, 1), 0);
    tci_lin row = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    tci_build_digits(b, side->n_axes - 1, side->axes, row, digits);
    for (int i = 0; i < side->n_axes - 1; i++) {
        tci_build_set(b, side->axes[i], digits[i]);
    }
    tci_lin skip = tci_lin_add(b, at, tci_lin_mul(b, row, -run));
    int begin = tci_lx_make(l, TCI_LX_MAX, tci_build_lx(b, skip), tci_lx_const(l, 0), 0);
    int end = tci_lx_make(l, TCI_LX_MIN, tci_build_lx(b, tci_lin_plus(skip, count)),
                          tci_lx_const(l, run), 0);
    tci_stage_vectors_dynamic(b, begin, end, -1, 0, run - 1, 1, tci_gemm_pack_stretch, s);
    tci_gemm_set_others(s, side, NULL);
    tci_build_close(b, &open);
}

/* Piece by piece of the depth, so that ranges that share a line of the panel find it near. */
static void tci_gemm_pack_stretches(tci_gemm_state *s, tci_lin tile, int64_t count)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t whole = TCI_MAX(s->p->points, 2); /* no element is cut */
    int64_t step = TCI_MAX(TCI_GEMM_PIECE / s->p->inner / whole, 1) * whole;
    tci_lin at = tci_lin_add(b, s->column, tci_lin_mul(b, tile, s->tile));
    tci_lin first = s->first, depth = s->depth;
    tci_lopen open;
    at = tci_build_let(b, tci_build_lx(b, at));
    s->vec->origin[s->p->vec_axis] = at;
    s->vec->base = tci_lin_mul(b, tile, s->tile_step);
    s->vec->is_padded = false; /* the next range follows */
    tci_gemm_clear_rest(s, count);
    if (step < s->p->depth) {
        int end = tci_build_lx(b, depth);
        tci_lin piece = tci_lin_var(b, tci_build_for(b, tci_lx_const(l, 0), end, step, &open));
        int left = tci_build_lx(b, tci_lin_add(b, depth, tci_lin_mul(b, piece, -1)));
        s->first = tci_lin_add(b, first, piece);
        s->depth = tci_build_let(b, tci_lx_make(l, TCI_LX_MIN, left, tci_lx_const(l, step), 0));
    }
    tci_gemm_pack_piece(s, at, count);
    if (step < s->p->depth) {
        tci_build_close(b, &open);
    }
    s->first = first;
    s->depth = depth;
    s->vec->is_padded = true;
}

/* The vectors s->vecs at several points each, of the block; where all are packed, those at hand. */
static void tci_gemm_pack_dot(tci_gemm_state *s)
{
    tci_build *b = s->b;
    tci_lin done = tci_lin_const(0);
    if (tci_gemm_packs_all(s->p)) {
        tci_dot_pack_fill(s);
        return;
    }
    if (s->p->squares && tci_dot_pack_in_order(b, s->p, s->p->vec_load)) {
        tci_dot_pack_pack_turned(s);
        return;
    }
    if (s->p->squares) {
        done = tci_gemm_pack_squares(s, s->n_vecs, s->vecs);
        done = tci_lin_add(b, done, tci_lin_mul(b, s->first, -1));
    }
    tci_dot_pack_walk(s, tci_build_lx(b, done), tci_build_lx(b, s->depth), 0, tci_dot_pack_fill);
}

/* The vectors of the last tile where the number of columns is not known: each is whole, or in part
 * or not there and zeros. */
static void tci_gemm_pack_left(tci_gemm_state *s, const tci_bind *const *vecs)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t lanes = l->lanes;
    tci_dim size = s->p->of_columns.size;
    for (int i = 0; i < 2 * s->p->unroll; i++) {
        bool part = i % 2;
        tci_lin first = vecs[i / 2]->at;
        tci_lopen there;
        int left = tci_build_lx(b, tci_lin_plus(tci_lin_mul(b, first, -1), size));
        left = tci_lx_make(l, TCI_LX_MAX, left, tci_lx_const(l, 0), 0);
        left = tci_build_lx(b, tci_build_let(b, left));
        tci_build_if(b, tci_build_in_range(b, left, part ? 0 : lanes, part ? lanes - 1 : s->tile),
                     &there);
        tci_lopen *open = tci_gemm_packs_all(s->p) ? NULL : tci_gemm_open(s, 0);
        tci_build_set(b, s->p->vec_axis,
                      tci_build_bind(b, first, i / 2 * lanes, tci_dim_add(size, -1), true,
                                     part ? left : -1));
        tci_build_value(b, s->p->vec_inst);
        tci_build_set(b, s->p->vec_axis, NULL);
        if (open) {
            tci_gemm_close(s, 0, open);
        }
        tci_build_close(b, &there);
    }
}

static void tci_gemm_pack_vectors(tci_gemm_state *s, tci_lin tile, int64_t count)
{
    tci_build *b = s->b;
    int n;
    if (s->p->of_columns.n_axes > 1) {
        tci_gemm_pack_stretches(s, tile, count);
        return;
    }
    const tci_bind **vecs = tci_gemm_bind_column_vectors(s, tile, count, &n);
    s->vecs = vecs;
    s->n_vecs = n;
    if (count == TCI_GEMM_LEFT) {
        tci_gemm_pack_left(s, vecs);
        return;
    }
    if (tci_dot_pack_by_two(s->p)) {
        tci_gemm_pack_dot(s);
        return;
    }
    if (tci_dot_pack_by_window(s->p)) {
        tci_dot_pack_pack_window(s, n, vecs);
        return;
    }
    if (s->p->squares) {
        tci_gemm_pack_rest(s, n, vecs, tci_gemm_pack_squares(s, n, vecs));
        return;
    }
    tci_lopen *open = tci_gemm_packs_all(s->p) ? NULL : tci_gemm_open(s, 0);
    for (int i = 0; i < n; i++) {
        tci_build_set(b, s->p->vec_axis, vecs[i]);
        tci_build_value(b, s->p->vec_inst);
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    if (s->p->fetch_vectors) {
        tci_gemm_fetch_vectors(s, n, vecs, TCI_GEMM_AHEAD, 0);
    }
    if (open) {
        tci_gemm_close(s, 0, open);
    }
}

/* Where the columns that the rows at hand see end, or, low, begin; -1: they see all. */
static int tci_gemm_seen(tci_gemm_state *s)
{
    const tci_gemm *p = s->p;
    if (!p->masked || !p->hides_columns) {
        return -1;
    }
    int row = p->masked->low ? 0 : s->at.n_rows - 1;
    return s->at.n_rows > 0 ? tci_causal_at(s->b, p->masked, s->at.rows[row]->at) : p->cut_at;
}

/* Where columns of unknown number are packed the last tile is one of its own. */
static void tci_gemm_left_columns(tci_gemm_state *s, int chunk,
                                  void (*body)(tci_gemm_state *, tci_lin, int64_t))
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t most = s->p->columns / s->tile;
    tci_dim size = s->p->of_columns.size, whole = tci_dim_div(size, s->tile);
    int first = tci_lx_make(l, TCI_LX_MUL, chunk, -1, -most);
    tci_lin tile = tci_build_let(b, tci_lx_make(l, TCI_LX_ADD, first, tci_lx_const(l, whole), 0));
    tci_dim rest = tci_dim_sub(size, tci_dim_mul(whole, s->tile));
    tci_lopen there, left;
    tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, tile), 0, most - 1), &there);
    tci_build_if(b, tci_build_in_range(b, tci_lx_const(l, rest), 1, s->tile - 1), &left);
    body(s, tile, TCI_GEMM_LEFT);
    tci_build_close(b, &left);
    tci_build_close(b, &there);
}

TCI_FN void tci_gemm_columns(tci_gemm_state *s, int chunk,
                             void (*body)(tci_gemm_state *, tci_lin, int64_t))
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_dim size = s->p->of_columns.size;
    bool known = tci_dim_is_known(size), packs = s->at.n_rows == 0;
    int64_t most = s->p->columns / s->tile, rest = known ? tci_dim_known(size) % s->tile : 0;
    tci_dim whole = known || packs ? tci_dim_div(size, s->tile) : tci_dim_ceil_div(size, s->tile);
    tci_dim n_chunks = tci_dim_ceil_div(size, s->p->columns);
    tci_lopen open;
    int end = tci_lx_const(l, tci_dim_min(most, whole)), seen = tci_gemm_seen(s);
    int begin = tci_lx_const(l, 0);
    if (n_chunks != 1 && !tci_dim_le(tci_dim_mul(n_chunks, most), whole)) {
        int left = tci_lx_make(l, TCI_LX_MUL, chunk, -1, -most);
        left = tci_lx_make(l, TCI_LX_ADD, left, tci_lx_const(l, whole), 0);
        end = tci_lx_make(l, TCI_LX_MIN, left, tci_lx_const(l, most), 0);
    }
    if (seen >= 0) {
        bool low = s->p->masked->low;
        int tiles = tci_lx_make(l, TCI_LX_ADD, seen, tci_lx_const(l, low ? 0 : s->tile - 1), 0);
        tiles = tci_lx_make(l, TCI_LX_DIV, tiles, -1, s->tile);
        int left = tci_lx_make(l, TCI_LX_ADD, tiles, tci_lx_make(l, TCI_LX_MUL, chunk, -1, -most),
                               0);
        begin = low ? tci_lx_make(l, TCI_LX_MAX, left, begin, 0) : begin;
        end = low ? end : tci_lx_make(l, TCI_LX_MIN, end, left, 0);
    }
    if (whole != 0) {
        int tile = tci_build_for(b, begin, end, 1, &open);
        body(s, tci_lin_var(b, tile), s->tile);
        tci_build_close(b, &open);
    }
    if (!known && packs) {
        tci_gemm_left_columns(s, chunk, body);
    }
    if (rest == 0) {
        return;
    }
    int64_t last = tci_dim_known(n_chunks) - 1;
    if (last > 0) {
        tci_build_if(b, tci_build_in_range(b, chunk, last, last), &open);
    }
    body(s, tci_lin_const(tci_dim_known(whole) - last * most), rest);
    if (last > 0) {
        tci_build_close(b, &open);
    }
}

static void tci_gemm_end_columns(tci_gemm_state *s, tci_lin tile, int64_t count)
{
    (void)count;
    tci_gemm_clear_steps(s, s->vec_pairs, tci_lin_mul(s->b, tile, s->tile_step), s->tile);
}

static void tci_gemm_pack_all(tci_gemm_state *s)
{
    tci_gemm_columns(s, s->chunk, tci_gemm_pack_vectors);
}

TCI_FN void tci_gemm_pack_vec(tci_gemm_state *s, int chunk)
{
    if (s->p->is_vec_there) {
        return;
    }
    bool all = tci_gemm_packs_all(s->p);
    if (s->p->on_unit && !tci_gemm_is_whole(s->b->k, s->p)) {
        tci_gemm_columns(s, chunk, tci_gemm_end_columns);
    }
    if (all && tci_dot_pack_by_two(s->p)) {
        s->chunk = chunk;
        tci_dot_pack_walk(s, tci_lx_const(s->b->l, 0), tci_build_lx(s->b, s->depth), 0,
                          tci_gemm_pack_all);
        return;
    }
    tci_lopen *open = all ? tci_gemm_open(s, 0) : NULL;
    s->vec->stage = s->p->stage;
    tci_gemm_columns(s, chunk, tci_gemm_pack_vectors);
    s->vec->stage = -1;
    if (open) {
        tci_gemm_close(s, 0, open);
    }
}

/* Values of the current row for some vectors of the last inner axis. */
static void tci_gemm_pack_along(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    tci_gemm_state *s = arg;
    const tci_kstage *st = &b->k->stages[s->p->stage];
    int axis = st->axes[s->p->n_inner - 1];
    for (int i = 0; i < n; i++) {
        tci_build_set(b, axis, vecs[i]);
        tci_build_value(b, s->p->row_inst);
    }
    tci_build_set(b, axis, NULL);
}

/* The range of the last inner axes that the current row has in the block. */
static void tci_gemm_pack_run(tci_gemm_state *s)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    const tci_kstage *st = &b->k->stages[p->stage];
    int first = TCI_MAX(p->n_inner - p->row_run, p->cut);
    int64_t size = tci_kernel_known(b->k, st->axes[p->n_inner - 1]);
    for (int i = first; i < p->n_inner - 1; i++) {
        tci_build_set(b, st->axes[i], s->zero);
        size *= tci_kernel_known(b->k, st->axes[i]);
    }
    if (first == p->cut && p->n_depths != 1) {
        tci_lin at = tci_lin_mul(b, s->first, p->inner);
        int from = tci_build_lx(b, at);
        int to = tci_build_lx(b, tci_lin_add(b, at, tci_lin_mul(b, s->depth, p->inner)));
        tci_stage_vectors_dynamic(b, from, to, -1, 0, size - 1, TCI_GEMM_UNROLL,
                                  tci_gemm_pack_along, s);
    } else {
        tci_stage_vectors(b, 0, size, TCI_GEMM_UNROLL, tci_gemm_pack_along, s);
    }
    for (int i = first; i < p->n_inner - 1; i++) {
        tci_build_set(b, st->axes[i], NULL);
    }
}

/* One row after the other, each in long runs. */
static void tci_gemm_pack_each(tci_gemm_state *s)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    const tci_gemm_side *side = &p->of_rows;
    const tci_bind *first = s->at.rows[0], *last = s->at.rows[s->at.n_rows - 1];
    const tci_bind *digits[TCI_GEMM_AXES];
    tci_lopen open;
    int end = tci_lx_const(b->l, s->at.n_rows);
    if (p->keeps && p->on_unit) { /* the last tile has fewer rows */
        int left = tci_build_lx(b, tci_lin_plus(tci_lin_mul(b, first->at, -1), side->size));
        end = tci_lx_make(b->l, TCI_LX_MIN, end, left, 0);
    }
    tci_lin row = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0), end, 1, &open));
    row = tci_lin_add(b, first->at, row);
    if (side->n_axes > 1) {
        tci_build_digits(b, side->n_axes, side->axes, row, digits);
    } else {
        digits[0] = tci_build_bind(b, row, first->lo, last->hi, false, -1);
    }
    for (int i = 0; i < side->n_axes; i++) {
        tci_build_set(b, side->axes[i], digits[i]);
    }
    tci_lin of_tile = tci_lin_add(b, row, tci_lin_mul(b, first->at, -1));
    tci_lin in_panel = tci_lin_add(b, s->row_base, tci_lin_mul(b, of_tile, s->row_step));
    tci_lin to = p->points > 1 ? in_panel : row;
    if (tci_dot_pack_in_order(b, p, p->row_load)) {
        tci_dot_pack_copy_row(s, to);
    } else {
        if (p->on_unit && !tci_gemm_is_whole(b->k, p)) {
            tci_gemm_clear_steps(s, s->row_pairs, to, 1);
        }
        int runs = TCI_MIN(p->row_run, p->n_inner - p->cut);
        tci_lopen *inner = tci_gemm_open(s, runs);
        tci_gemm_pack_run(s);
        tci_gemm_close(s, runs, inner);
        if (p->points > 1) {
            tci_dot_pack_finish_row(s, to);
        }
    }
    tci_gemm_set_others(s, side, s->zero);
    tci_build_set(b, p->row_axis, NULL);
    tci_build_close(b, &open);
}

/* Values of all rows at the points at hand, as vectors along the rows. */
static void tci_gemm_pack_k(tci_gemm_state *s)
{
    tci_build *b = s->b;
    const tci_bind *first = s->at.rows[0], *last = s->at.rows[s->at.n_rows - 1];
    int64_t lanes = b->l->lanes, n = s->at.n_rows;
    for (int64_t r = 0; r < n; r += lanes) {
        int count = n - r < lanes ? tci_lx_const(b->l, n - r) : -1;
        tci_dim hi = tci_dim_add(last->hi, -TCI_MAX(n - r - lanes, 0));
        tci_dim lo = tci_dim_add(first->lo, r);
        tci_build_set(b, s->p->row_axis,
                      tci_build_bind(b, tci_lin_plus(first->at, r), lo, hi, true, count));
        if (tci_dot_pack_by_two(s->p)) {
            tci_dot_pack_pack_rows(s, r);
        } else {
            tci_build_value(b, s->p->row_inst);
        }
    }
    tci_build_set(b, s->p->row_axis, NULL);
}

static void tci_gemm_pack_across(tci_gemm_state *s)
{
    tci_build *b = s->b;
    if (s->p->on_unit) {
        tci_dot_pack_pack_turned_rows(s);
        return;
    }
    if (tci_dot_pack_by_two(s->p)) {
        tci_dot_pack_walk(s, tci_lx_const(b->l, 0), tci_build_lx(b, s->depth), 0, tci_gemm_pack_k);
        return;
    }
    tci_lopen *open = tci_gemm_open(s, 0);
    tci_gemm_pack_k(s);
    tci_gemm_close(s, 0, open);
}

TCI_FN void tci_gemm_pack_rows(tci_gemm_state *s)
{
    if (!s->row) {
        if (s->p->on_unit && !tci_gemm_is_whole(s->b->k, s->p)) {
            tci_amx_packed_end_rows(s);
        }
        return;
    }
    s->row->stage = s->p->stage;
    if (s->p->row_by_vector) {
        tci_gemm_pack_across(s);
    } else {
        tci_gemm_pack_each(s);
    }
    s->row->stage = -1;
}
