/* loop/gemm.c - emits the packed GEMM (Goto, BLIS): operands packed into panels, cache block by
 * cache block.
 *
 * In: a kernel whose first stage is one DOT, and its register tile. Out: statements for one block
 * of columns and a range of row tiles.
 *
 *   for each K block
 *       pack the vector operand:  panel [tile of columns][k][column of the tile]
 *       for each row tile
 *           pack the row operand: panel [row][k] or [k][row]
 *           for each tile of columns
 *               accumulators from the partial sums (first block: zero); one loop over k; then
 *               partial sums again, or (last block) the later stages, unrolled over vectors if they
 *               are short, else once per row
 *
 * With few row tiles (fused) the GEMM is memory-bound: blocks are shallow and wide, so that the
 * vector operand streams through the cache in long runs; all rows are packed first, and for each
 * tile of columns the first row tile reads the vector operand in place and leaves it in a panel of
 * one tile for the others.
 *
 * Where the sizes are handled: loop/gemm_blocking.c (K, M as row tiles, N as blocks of columns),
 * tci_gemm_columns (remainders of N), tci_gemm_row_loop (ranges of M). loop/gemm_operands.c
 * defines rows and columns, loop/packing.c fills the panels.
 *
 * Blocking along K only stores and reloads the accumulator, in the same order, so it never changes
 * a result. In class SPLIT each output starts a chain for each part and adds it to the earlier
 * parts in memory: a block is a part where possible, else a second array of partial sums holds
 * those of the finished parts. Panels and partial sums are in the thread's work
 * memory. */
#include "amx_packed.h"
#include "amx.h"
#include "dot_packing.h"

/* ---- where all row factors are +0 ---- */

/* Sum of a block whose A operand is all +0: -0; +0 where a product is; or NaN. All rows share one
 * such sum. */
static void tci_gemm_zero_vectors(tci_gemm_state *s, tci_lin tile, int64_t count)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[s->p->red];
    tci_value zero = {.i = 0};
    int n, axis = b->k->stages[s->p->stage].axes[0];
    const tci_bind **vecs = tci_gemm_bind_column_vectors(s, tile, count, &n);
    int none = tci_build_const(b, (tc_dtype)b->k->insts[s->p->row_inst].dtype, zero);
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n + 1);
    tci_lopen open;
    for (int i = 0; i < n; i++) { /* AMX starts from these */
        acc[i] = s->p->on_unit ? tci_stage_accumulator(b, red, b->l->lanes)
                               : tci_stage_total(b, red, b->l->lanes);
    }
    int from = tci_build_lx(b, s->zero_from), to = tci_build_lx(b, s->zero_to);
    tci_dim most = tci_dim_add(b->k->axes[axis].size, -1);
    s->vec->inst = -1; /* these points are in no panel */
    int at = tci_build_for(b, from, to, 1, &open);
    tci_build_set(b, axis, tci_build_bind(b, tci_lin_var(b, at), 0, most, false, -1));
    for (int i = 0; i < n; i++) {
        tci_build_set(b, s->p->vec_axis, vecs[i]);
        tci_stage_tuple product = tci_stage_tuple_of(tci_build_widen(b, none, b->l->lanes),
                                                     tci_build_value(b, s->p->vec_inst));
        tci_stage_assign(b, acc[i], tci_stage_combine(b, red, acc[i], product));
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_close(b, &open);
    tci_build_set(b, axis, NULL);
    s->vec->inst = s->p->vec_inst;
    tci_lin column = tci_lin_mul(b, tile, s->tile);
    for (int i = 0; i < n; i++) {
        int x = tci_build_lx(b, tci_lin_plus(column, (int64_t)i * b->l->lanes));
        tci_stage_array_set(b, s->zeros, x, acc[i]);
    }
}

static void tci_gemm_add_zeros(tci_gemm_state *s, const tci_tile *tile, tci_lin number,
                               const tci_stage_tuple *acc)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[s->p->red];
    tci_lin column = tci_lin_mul(b, number, s->tile);
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        int64_t vector = i % tile->n_vecs;
        int x = tci_build_lx(b, tci_lin_plus(column, vector * b->l->lanes));
        tci_stage_assign(
            b, acc[i], tci_stage_joined(b, red, acc[i], tci_stage_array_get(b, red, s->zeros, x)));
    }
}

/* ---- tiles ---- */

/* Loops over the inner axes from the cut one on that are no part of the flat loop; returns the
 * inner points of the block before the position where they are. */
static tci_lin tci_gemm_open_nest(tci_gemm_state *s, tci_lopen *open)
{
    tci_build *b = s->b;
    const int32_t *axes = b->k->stages[s->p->stage].axes;
    tci_lin points = tci_lin_const(0);
    for (int i = s->p->cut; i < s->p->cut + s->p->nest; i++) {
        int64_t size = tci_kernel_known(b->k, axes[i]);
        int to = i == s->p->cut ? tci_build_lx(b, s->depth) : tci_lx_const(b->l, size);
        tci_lin at = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0), to, 1, &open[i]));
        points = tci_lin_add(b, i > s->p->cut ? tci_lin_mul(b, points, size) : points, at);
        at = i == s->p->cut ? tci_lin_add(b, at, s->first) : at;
        tci_build_set(b, axes[i], tci_build_bind(b, at, 0, size - 1, false, -1));
    }
    return tci_lin_mul(b, points, s->p->run);
}

/* The flat loop over inner points [from, to) of the block: the last axis stands for all of them, or
 * for those of a run where axes before it are loops of their own. */
static void tci_gemm_dot(tci_gemm_state *s, const tci_tile *tile, tci_lin number,
                         const tci_stage_tuple *acc, int from, int to)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    const tci_kstage *st = &b->k->stages[p->stage];
    const tci_kred *red = &b->k->reds[p->red];
    if (p->points > 1) {
        tci_dot_pack_dot(s, tile, number, acc, from, to);
        return;
    }
    tci_lopen open, *nest = TCI_NEW_ARRAY(b->s, tci_lopen, p->n_inner);
    tci_lin before = tci_gemm_open_nest(s, nest);
    if (p->nest > 0) {
        from = tci_lx_const(b->l, 0);
        to = tci_lx_const(b->l, p->run);
    }
    tci_lin at = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    open.st.unroll = p->steps;
    for (int i = 0; i < p->n_inner; i++) {
        tci_lin here = i == p->n_inner - 1 ? at : tci_lin_const(0);
        here = i == p->cut ? tci_lin_add(b, here, s->first) : here;
        if (i < p->cut || i >= p->cut + p->nest) {
            tci_build_set(b, st->axes[i],
                          i < p->cut ? s->fixed[i] : tci_build_bind(b, here, 0, 0, false, -1));
        }
    }
    if (s->packs) {
        tci_gemm_fetch_vectors(s, tile->n_vecs, tile->vecs, 0, s->tile);
    } else if (!p->fused) {
        tci_gemm_fetch_panel(s, tile->n_vecs, tci_lin_add(b, before, at));
    }
    if (p->fetch_rows) {
        tci_gemm_fetch_rows(s, tile, number);
    }
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        tci_stage_point(b, tile, i);
        tci_stage_assign(b, acc[i], tci_stage_combine(b, red, acc[i], tci_stage_operands(b, red)));
    }
    tci_build_close(b, &open);
    for (int i = p->cut + p->nest - 1; i >= p->cut; i--) {
        tci_build_close(b, &nest[i]);
    }
    for (int i = 0; i < p->n_inner; i++) {
        tci_build_set(b, st->axes[i], NULL);
    }
}

/* Partial sums of point 0 of the current tile; the tile's points follow each other. */
static tci_lin tci_gemm_partial_at(tci_gemm_state *s, tci_lin number)
{
    tci_build *b = s->b;
    tci_lin skip = tci_build_let(b, s->first_row);
    tci_lin row = tci_lin_add(b, s->at.rows[0]->at, tci_lin_mul(b, skip, -1));
    tci_lin tile = tci_lin_mul(b, number, s->at.n_rows * s->tile);
    return tci_lin_add(b, tci_lin_mul(b, row, s->p->columns), tile);
}

/* In depth block lo .. hi. */
static void tci_gemm_if(tci_gemm_state *s, tci_dim lo, tci_dim hi, tci_lopen *open)
{
    tci_build_if(s->b, tci_build_in_range(s->b, s->block, lo, hi), open);
}

static void tci_gemm_move(tci_gemm_state *s, tci_lin at, int n, const tci_stage_tuple *acc,
                          bool load)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[s->p->red];
    for (int i = 0; i < n; i++) {
        int x = tci_build_lx(b, tci_lin_plus(at, (int64_t)i * b->l->lanes));
        if (load) {
            tci_stage_assign(b, acc[i], tci_stage_array_get(b, red, s->partial, x));
        } else {
            tci_stage_array_set(b, s->partial, x, acc[i]);
        }
    }
}

/* With the sums of earlier parts, which are at index `at`, added; back: they are there again. */
static void tci_gemm_join(tci_gemm_state *s, tci_lin at, int n, const tci_stage_tuple *acc,
                          tci_stage_tuple array, bool back)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[s->p->red];
    for (int i = 0; i < n; i++) {
        int x = tci_build_lx(b, tci_lin_plus(at, (int64_t)i * b->l->lanes));
        tci_stage_tuple before = tci_stage_array_get(b, red, array, x);
        tci_stage_tuple sum = tci_stage_joined(b, red, before, acc[i]);
        if (back) {
            tci_stage_array_set(b, array, x, sum);
        } else {
            tci_stage_assign(b, acc[i], sum);
        }
    }
}

/* A part ends before the range that begins at index `from` of the block, part number `part`: its
 * sums join those before it, if there are any, and another one begins. */
static void tci_gemm_next_part(tci_gemm_state *s, tci_lin at, int n, const tci_stage_tuple *acc,
                               int from, int part)
{
    tci_build *b = s->b;
    int64_t most = s->p->depth * s->p->inner, parts = INT32_MAX;
    tci_lopen begins, open;
    tci_build_if(b, tci_build_in_range(b, from, 0, most), &begins);
    tci_build_if(b, tci_build_in_range(b, part, 1, 1), &open);
    for (int i = 0; i < n; i++) {
        int x = tci_build_lx(b, tci_lin_plus(at, (int64_t)i * b->l->lanes));
        tci_stage_array_set(b, s->total, x, acc[i]);
    }
    tci_build_close(b, &open);
    tci_build_if(b, tci_build_in_range(b, part, 2, parts), &open);
    tci_gemm_join(s, at, n, acc, s->total, true);
    tci_build_close(b, &open);
    tci_build_if(b, tci_build_in_range(b, part, 1, parts), &open);
    for (int i = 0; i < n; i++) {
        tci_stage_tuple none = tci_stage_identity(b, &b->k->reds[s->p->red]);
        none.part[0] = tci_build_widen(b, none.part[0], b->l->lanes);
        tci_stage_assign(b, acc[i], none);
    }
    tci_build_close(b, &open);
    tci_build_close(b, &begins);
}

/* The products of the block, range by range of the parts that they are in. */
static void tci_gemm_dot_parts(tci_gemm_state *s, const tci_tile *tile, tci_lin number,
                               const tci_stage_tuple *acc, tci_lin at)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t inner = s->p->inner, length = s->p->part;
    int n = tile->n_rows * tile->n_vecs;
    tci_lopen open;
    tci_lin before = s->before, points = tci_lin_mul(b, s->depth, inner);
    int last = tci_build_lx(b, tci_lin_plus(tci_lin_add(b, before, points), -1));
    int from = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, before), -1, length);
    int to = tci_lx_make(l, TCI_LX_ADD, tci_lx_make(l, TCI_LX_DIV, last, -1, length),
                         tci_lx_const(l, 1), 0);
    tci_lin part = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    tci_lin begin = tci_lin_add(b, tci_lin_mul(b, part, length), tci_lin_mul(b, before, -1));
    from = tci_build_lx(b, begin);
    tci_gemm_next_part(s, at, n, acc, from, tci_build_lx(b, part));
    to = tci_build_lx(b, tci_lin_plus(begin, length));
    to = tci_lx_make(l, TCI_LX_MIN, to, tci_build_lx(b, points), 0);
    tci_gemm_dot(s, tile, number, acc, tci_lx_make(l, TCI_LX_MAX, from, tci_lx_const(l, 0), 0), to);
    tci_build_close(b, &open);
}

/* The later stages for one row after the other, whose sums are at index `at` of the array. */
static void tci_gemm_finish_rows(tci_gemm_state *s, const tci_tile *tile, tci_lin at)
{
    tci_build *b = s->b;
    const tci_bind *first = tile->rows[0];
    const tci_bind *last = tile->rows[tile->n_rows - 1];
    tci_lopen open;
    tci_tile one = *tile;
    tci_lin row = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0),
                                               tci_lx_const(b->l, tile->n_rows), 1, &open));
    const tci_bind *bind = tci_build_bind(b, tci_lin_add(b, first->at, row), first->lo, last->hi,
                                          false, -1);
    at = tci_lin_add(b, at, tci_lin_mul(b, row, (int64_t)tile->n_vecs * b->l->lanes));
    one.n_rows = 1;
    one.rows = &bind;
    for (int i = 0; i < one.n_vecs; i++) {
        int x = tci_build_lx(b, tci_lin_plus(at, (int64_t)i * b->l->lanes));
        tci_stage_point(b, &one, i);
        tci_stage_remember_result(b, &b->k->reds[s->p->red],
                                  tci_stage_array_get(b, &b->k->reds[s->p->red], s->partial, x));
    }
    tci_stage_from(b, &one, 1);
    tci_build_close(b, &open);
}

static void tci_gemm_finish(tci_gemm_state *s, const tci_tile *tile, const tci_stage_tuple *acc,
                            tci_lin partial)
{
    tci_build *b = s->b;
    if (s->p->keeps) {
        for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
            tci_stage_point(b, tile, i);
            tci_build_leave(b, b->k->reds[s->p->red].inst, tci_build_copy(b, acc[i].part[0]));
        }
    } else if (s->p->by_rows) {
        tci_gemm_move(s, partial, tile->n_rows * tile->n_vecs, acc, false);
        tci_gemm_finish_rows(s, tile, partial);
    } else {
        for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
            tci_stage_point(b, tile, i);
            tci_stage_remember_result(b, &b->k->reds[s->p->red], acc[i]);
        }
        tci_stage_from(b, tile, 1);
    }
    b->stage = s->p->stage;
}

/* A tile by a unit. */
static void tci_gemm_pane(tci_gemm_state *s, const tci_tile *tile, tci_lin number)
{
    tci_build *b = s->b;
    int64_t last = tci_dim_known(s->p->n_depths) - 1;
    tci_lopen open;
    tci_lin sums = tci_amx_packed_multiply(s, tile, number);
    if (s->p->keeps) {
        return;
    }
    if (last > 0) {
        tci_gemm_if(s, last, last, &open);
    }
    tci_gemm_finish_rows(s, tile, sums);
    b->stage = s->p->stage;
    if (last > 0) {
        tci_build_close(b, &open);
    }
}

/* A tile by vectors. */
static void tci_gemm_lanes(tci_gemm_state *s, const tci_tile *tile, tci_lin number)
{
    tci_build *b = s->b;
    tci_dim last = tci_dim_add(s->p->n_depths, -1);
    bool deep = last != 0;
    int n = tile->n_rows * tile->n_vecs;
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    tci_lopen open;
    for (int i = 0; i < n; i++) {
        acc[i] = tci_stage_accumulator(b, &b->k->reds[s->p->red], b->l->lanes);
    }
    tci_lin partial = tci_gemm_partial_at(s, number);
    bool is_part = s->p->is_part;
    if (deep) {
        if (!is_part) {
            tci_gemm_if(s, 1, last, &open);
            tci_gemm_move(s, partial, n, acc, true);
            tci_build_close(b, &open);
        }
        tci_gemm_fetch_partial(s, partial, n);
        tci_gemm_if(s, last, last, &open);
        tci_gemm_fetch_results(s, tile);
        tci_build_close(b, &open);
    } else {
        tci_gemm_fetch_results(s, tile);
    }
    bool low = s->p->masked && s->p->masked->low;
    if (s->zeros.part[0] >= 0 && low) {
        tci_gemm_add_zeros(s, tile, number, acc);
    }
    if (s->total.part[0] < 0) {
        int points = tci_build_lx(b, tci_lin_mul(b, s->depth, s->p->inner));
        tci_gemm_dot(s, tile, number, acc, tci_lx_const(b->l, 0), points);
    } else {
        tci_gemm_dot_parts(s, tile, number, acc, partial);
    }
    if (s->zeros.part[0] >= 0 && !low) {
        tci_gemm_add_zeros(s, tile, number, acc);
    }
    if (deep && is_part) {
        tci_gemm_if(s, 1, last, &open);
        tci_gemm_join(s, partial, n, acc, s->partial, false);
        tci_build_close(b, &open);
    }
    if (deep) {
        tci_gemm_if(s, 0, tci_dim_add(last, -1), &open);
        tci_gemm_move(s, partial, n, acc, false);
        tci_build_close(b, &open);
        tci_gemm_if(s, last, last, &open);
    }
    if (s->total.part[0] >= 0) {
        tci_gemm_join(s, partial, n, acc, s->total, false);
    }
    tci_gemm_finish(s, tile, acc, partial);
    if (deep) {
        tci_build_close(b, &open);
    }
}

static void tci_gemm_tile(tci_gemm_state *s, tci_lin number, int64_t count)
{
    tci_build *b = s->b;
    tci_tile tile = s->at;
    tile.vec_axis = s->p->vec_axis;
    tile.vecs = tci_gemm_bind_column_vectors(s, number, count, &tile.n_vecs);
    tci_gemm_set_others(s, &s->p->of_columns, s->zero);
    if (s->row) {
        s->row->origin[s->p->row_axis] = tile.rows[0]->at;
    }
    if (s->p->on_unit) {
        tci_gemm_pane(s, &tile, number);
    } else {
        tci_gemm_lanes(s, &tile, number);
    }
    tci_gemm_set_others(s, &s->p->of_columns, NULL);
    tci_build_set(b, s->p->vec_axis, NULL);
}

/* One row tile: `rows` rows from `at` on, row panel number `panel`. */
static void tci_gemm_row_tile(tci_gemm_state *s, tci_lin at, tci_lin panel, int64_t rows,
                              void (*body)(tci_gemm_state *))
{
    tci_build *b = s->b;
    tci_dim size = s->p->of_rows.size;
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, rows);
    for (int64_t r = 0; r < rows; r++) {
        binds[r] = tci_build_bind(b, tci_lin_plus(at, r), r, tci_dim_add(size, r - rows), false,
                                  -1);
    }
    s->at = (tci_tile){0};
    s->at.row_axis = s->p->row_axis;
    s->at.n_rows = (int)rows;
    s->at.rows = binds;
    s->at.vec_axis = s->at.next_axis = -1;
    if (s->row) {
        int64_t parts = s->p->row_by_vector ? 1 : s->p->points; /* of an element of the row panel */
        s->row_base = tci_lin_mul(b, panel, s->p->fused ? s->row_elements : 0);
        s->row->origin[s->p->row_axis] = at;
        s->row->base = tci_lin_mul(b, s->row_base, parts);
    }
    if (s->p->on_unit) {
        tci_lin begin = tci_build_let(b, s->begin);
        s->tile_row = tci_lin_add(b, panel, tci_lin_mul(b, begin, -1));
    }
    tci_gemm_set_others(s, &s->p->of_rows, s->zero);
    body(s);
    tci_gemm_set_others(s, &s->p->of_rows, NULL);
    tci_build_set(b, s->p->row_axis, NULL);
}

/* Row tiles [begin, end) of `rows` rows; the first row of tile t is t * rows + skip. */
static void tci_gemm_row_loop(tci_gemm_state *s, int begin, int end, int64_t rows, int64_t skip,
                              void (*body)(tci_gemm_state *))
{
    tci_build *b = s->b;
    tci_lopen open;
    tci_lin tile = tci_lin_var(b, tci_build_for(b, begin, end, 1, &open));
    tci_lin at = tci_lin_plus(tci_lin_mul(b, tile, rows), skip);
    at = tci_build_let(b, tci_build_lx(b, at));
    tci_gemm_row_tile(s, at, tile, rows, body);
    tci_build_close(b, &open);
}

typedef struct tci_gemm_rest {
    tci_gemm_state *s;
    void (*body)(tci_gemm_state *);
} tci_gemm_rest;

static void tci_gemm_rest_body(tci_build *b, void *arg, tci_dim first, int rows)
{
    const tci_gemm_rest *rest = arg;
    (void)b;
    tci_gemm_row_tile(rest->s, tci_lin_const(first), tci_lin_const(0), rows, rest->body);
}

static void tci_gemm_rows(tci_gemm_state *s, int begin, int end, void (*body)(tci_gemm_state *))
{
    tci_loop *l = s->b->l;
    const tci_gemm *p = s->p;
    tci_dim size = p->of_rows.size;
    if (p->extra > 0) {
        int extra = tci_lx_const(l, p->extra);
        tci_gemm_row_loop(s, begin, tci_lx_make(l, TCI_LX_MIN, end, extra, 0), p->base + 1, 0,
                          body);
        begin = tci_lx_make(l, TCI_LX_MAX, begin, extra, 0);
    }
    if (tci_dim_is_known(size)) {
        tci_gemm_row_loop(s, begin, end, p->base, p->extra, body);
        return;
    }
    tci_dim whole = tci_dim_div(size, p->base);
    tci_gemm_rest rest = {s, body};
    tci_lopen open;
    int stop = tci_lx_make(l, TCI_LX_MIN, end, tci_lx_const(l, whole), 0);
    tci_gemm_row_loop(s, begin, stop, p->base, 0, body);
    tci_build_if(s->b, tci_build_in_range(s->b, end, tci_dim_add(whole, 1), p->n_tiles), &open);
    tci_stage_rest_rows(s->b, size, p->base, tci_gemm_rest_body, &rest);
    tci_build_close(s->b, &open);
}

/* ---- the two orders of tiles ---- */

static void tci_gemm_row_body(tci_gemm_state *s)
{
    tci_gemm_pack_rows(s);
    tci_gemm_columns(s, s->chunk, tci_gemm_tile);
}

static void tci_gemm_fused_body(tci_gemm_state *s)
{
    tci_gemm_tile(s, s->number, s->count);
}

/* All row tiles for one tile of columns; the first leaves what it reads in the panel. */
static void tci_gemm_fused_column(tci_gemm_state *s, tci_lin number, int64_t count)
{
    tci_loop *l = s->b->l;
    const tci_gemm *p = s->p;
    bool more = tci_dim_known(p->n_tiles) > 1;
    int one = tci_lx_const(l, 1);
    s->number = number;
    s->count = count;
    s->packs = true;
    s->vec->stage = s->p->stage;
    s->vec->inst = more ? p->vec_inst : -1; /* one row tile needs no panel */
    tci_gemm_row_loop(s, tci_lx_const(l, 0), one, p->base + (p->extra > 0), 0, tci_gemm_fused_body);
    s->packs = false;
    s->vec->stage = -1;
    if (more) {
        tci_gemm_rows(s, one, tci_lx_const(l, p->n_tiles), tci_gemm_fused_body);
    }
}

static void tci_gemm_block(tci_gemm_state *s, int begin, int end)
{
    if (s->p->fused) {
        tci_gemm_rows(s, begin, end, tci_gemm_pack_rows);
        tci_gemm_columns(s, s->chunk, tci_gemm_fused_column);
    } else {
        s->at.n_rows = 0;
        tci_gemm_pack_vec(s, s->chunk);
        if (s->zeros.part[0] >= 0 && !s->p->on_unit) {
            tci_gemm_columns(s, s->chunk, tci_gemm_zero_vectors);
        }
        tci_gemm_rows(s, begin, end, tci_gemm_row_body);
    }
}

/* The position of depth block `block` on the inner axes. */
static void tci_gemm_place(tci_gemm_state *s, tci_lin block)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    const int32_t *axes = b->k->stages[p->stage].axes;
    tci_dim size = b->k->axes[axes[p->cut]].size;
    tci_lin skipped = tci_lin_const(0);
    if (p->cut > 0) {
        int64_t blocks = tci_ceil_div(tci_dim_known(size), p->depth);
        tci_lin point = tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, s->block, -1, blocks));
        tci_build_digits(b, p->cut, axes, point, s->fixed);
        block = tci_lin_add(b, block, tci_lin_mul(b, point, -blocks));
        skipped = tci_lin_mul(b, point, tci_dim_mul(size, p->inner));
    }
    s->first = tci_lin_mul(b, block, p->depth);
    s->before = tci_lin_add(b, skipped, tci_lin_mul(b, s->first, p->inner));
    int left = tci_build_lx(b, tci_lin_plus(tci_lin_mul(b, s->first, -1), size));
    s->depth = tci_build_let(b,
                             tci_lx_make(b->l, TCI_LX_MIN, left, tci_lx_const(b->l, p->depth), 0));
}

/* The block without the points on the masked side of the cut, at which row factors are +0. */
static void tci_gemm_leave_zeros(tci_gemm_state *s)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int at = tci_lx_make(l, TCI_LX_ADD, s->p->cut_at, tci_build_lx(b, tci_lin_mul(b, s->first, -1)),
                         0);
    at = tci_lx_make(l, TCI_LX_MAX, at, tci_lx_const(l, 0), 0);
    if (s->p->on_unit) { /* whole steps */
        int up = tci_lx_const(l, s->p->masked->low ? 0 : TCI_MATRIX_WHOLE - 1);
        at = tci_lx_make(l, TCI_LX_DIV, tci_lx_make(l, TCI_LX_ADD, at, up, 0), -1,
                         TCI_MATRIX_WHOLE);
        at = tci_lx_make(l, TCI_LX_MUL, at, -1, TCI_MATRIX_WHOLE);
    }
    tci_lin within = tci_build_let(b, tci_lx_make(l, TCI_LX_MIN, at, tci_build_lx(b, s->depth), 0));
    tci_lin begin = s->first, end = tci_lin_add(b, begin, s->depth);
    tci_lin middle = tci_lin_add(b, begin, within);
    if (s->p->masked->low) {
        s->zero_from = begin;
        s->zero_to = s->first = middle;
        s->depth = tci_lin_add(b, s->depth, tci_lin_mul(b, within, -1));
    } else {
        s->zero_from = middle;
        s->zero_to = end;
        s->depth = within;
    }
}

/* Initial values of a matrix unit's sums: the sums of all skipped blocks. */
static void tci_gemm_begin_zeros(tci_gemm_state *s)
{
    tci_lin first = s->first, depth = s->depth;
    tci_gemm_leave_zeros(s);
    tci_gemm_columns(s, s->chunk, tci_gemm_zero_vectors);
    s->first = first;
    s->depth = depth;
}

TCI_FN void tci_gemm_emit(tci_build *b, const tci_gemm *p, tci_lin chunk, int begin, int end)
{
    tci_loop *l = b->l;
    const tci_kstage *st = &b->k->stages[p->stage];
    tci_gemm_state s = {.b = b, .p = p};
    int cut = st->axes[p->cut];
    tci_lopen open;
    b->stage = p->stage;
    s.chunk = tci_build_lx(b, chunk);
    s.column = tci_lin_mul(b, chunk, p->columns);
    /* first row of the group: see tci_gemm_rows */
    int from = tci_lx_make(l, TCI_LX_MUL, begin, -1, p->base);
    s.first_row = tci_lx_make(l, TCI_LX_ADD, from,
                              tci_lx_make(l, TCI_LX_MIN, begin, tci_lx_const(l, p->extra), 0), 0);
    tci_gemm_make_panels(&s, p->group);
    s.begin = begin;
    bool opens = p->on_unit && !p->keeps; /* else the strip does (loop/back_to_back_gemm.c) */
    if (opens) {
        tci_amx_begin(b);
    }
    s.block = tci_lx_const(l, 0);
    s.before = s.first = tci_lin_const(0);
    s.depth = tci_lin_const(b->k->axes[cut].size);
    s.fixed = TCI_NEW_ARRAY(b->s, const tci_bind *, p->n_inner);
    s.zero = tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1);
    if (p->on_unit && s.zeros.part[0] >= 0) {
        tci_gemm_begin_zeros(&s);
    }
    if (p->n_depths != 1) {
        int block = tci_build_for(b, s.block, tci_lx_const(l, p->n_depths), 1, &open);
        s.block = tci_lx_var(l, block);
        tci_gemm_place(&s, tci_lin_var(b, block));
    }
    if (p->masked && !p->hides_columns) {
        tci_gemm_leave_zeros(&s);
    }
    s.vec->origin[cut] = s.first;
    if (s.row) {
        s.row->origin[cut] = s.first;
    }
    tci_gemm_block(&s, begin, end);
    if (p->n_depths != 1) {
        tci_build_close(b, &open);
    }
    if (opens) {
        tci_amx_end(b);
    }
    s.vec->inst = -1; /* the panels are this stage's alone */
    if (s.row) {
        s.row->inst = -1;
    }
}
