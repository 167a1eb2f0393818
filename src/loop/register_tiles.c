/* loop/register_tiles.c - emits the loops that cover one unit of parallel work with register tiles
 * of rows x vectors.
 *
 * In: the coordinates of a unit, the tile. Out: for each tile the kernel's stages
 * (loop/emit_stages.h). Chunks that no guard intersects are emitted without bounds checks;
 * guards, and the aligned start of a store that bypasses the caches, make the bounds index
 * expressions. */
#include "register_tiles.h"

enum {
    TCI_UNIT_PREFETCH_BYTES = 2048, /* how far ahead streaming kernels read */
    TCI_UNIT_FEW = 8                /* rows of a tile that two rows fewer leave with too few sums */
};

TCI_FN tci_unit tci_unit_make(tci_nest *n)
{
    tci_unit u = {0};
    u.nest = n;
    u.unroll = u.rows = 1;
    u.base = 1;
    u.next_axis = -1;
    return u;
}

TCI_FN void tci_unit_tiles(tci_unit *u, tci_dim size, int most)
{
    if (!tci_dim_is_known(size)) {
        u->nest->n_tiles = tci_dim_ceil_div(size, most);
        u->base = u->rows = most;
        u->extra = 0;
        return;
    }
    int64_t n = tci_dim_known(size);
    for (int t = most; t > 1 && t * 5 >= most * (most > TCI_UNIT_FEW ? 3 : 4); t--) {
        if (n % t == 0) {
            most = t;
            break;
        }
    }
    int64_t n_tiles = tci_ceil_div(n, most);
    u->nest->n_tiles = n_tiles;
    u->base = n / n_tiles;
    u->extra = n % n_tiles;
    u->rows = (int)(u->base + (u->extra > 0));
}

TCI_FN void tci_unit_rows(tci_unit *u, int axis, int most)
{
    u->nest->row_axis = axis;
    tci_unit_tiles(u, u->nest->a->k->axes[axis].size, most);
}

/* ---- rows ---- */

typedef struct tci_unit_place {
    const tci_unit *u;
    int group;
} tci_unit_place;

static void tci_unit_tile(tci_build *b, const tci_tile *tile)
{
    if (tile->prefetch > 0) {
        tci_stage_prefetch(b, tile);
    }
    tci_stage_all(b, tile);
}

/* Tiles [begin, end) of `rows` rows each; the first row of tile t is t * rows + skip. */
static void tci_unit_row_loop(const tci_unit *u, tci_tile *tile, int begin, int end, int rows,
                              int64_t skip)
{
    tci_build *b = u->nest->b;
    tci_dim last = tci_dim_add(b->k->axes[u->nest->row_axis].size, -1), fixed = 0, fixed_end = 0;
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, rows);
    bool single = tci_lx_is_const(b->l, begin, &fixed) && tci_lx_is_const(b->l, end, &fixed_end) &&
                  tci_dim_sub(fixed_end, fixed) == 1;
    tci_lopen open;
    tci_lin at = single ? tci_lin_const(fixed)
                        : tci_lin_var(b, tci_build_for(b, begin, end, 1, &open));
    at = tci_lin_plus(tci_lin_mul(b, at, rows), skip);
    for (int r = 0; r < rows; r++) {
        tci_dim first = single ? tci_dim_add(at.c, r) : r;
        binds[r] = tci_build_bind(b, tci_lin_plus(at, r), first,
                                  single ? first : tci_dim_add(last, r + 1 - rows), false, -1);
    }
    tile->n_rows = rows;
    tile->rows = binds;
    tci_unit_tile(b, tile);
    if (!single) {
        tci_build_close(b, &open);
    }
}

typedef struct tci_unit_rest {
    const tci_unit *u;
    tci_tile *tile;
} tci_unit_rest;

static void tci_unit_rest_body(tci_build *b, void *arg, tci_dim first, int rows)
{
    const tci_unit_rest *rest = arg;
    tci_dim last = tci_dim_add(b->k->axes[rest->u->nest->row_axis].size, -1);
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, rows);
    tci_lin at = tci_lin_const(first);
    for (int r = 0; r < rows; r++) {
        binds[r] = tci_build_bind(b, tci_lin_plus(at, r), 0, last, false, -1);
    }
    rest->tile->n_rows = rows;
    rest->tile->rows = binds;
    tci_unit_tile(b, rest->tile);
}

/* All row tiles of the group for the tile's vectors. */
static void tci_unit_group(const tci_unit *u, tci_tile *tile, int group)
{
    tci_nest *n = u->nest;
    tci_build *b = n->b;
    tci_loop *l = b->l;
    if (n->row_axis < 0) {
        tile->n_rows = 1;
        tci_unit_tile(b, tile);
        return;
    }
    tile->row_axis = n->row_axis;
    tci_dim size = b->k->axes[n->row_axis].size;
    int begin = tci_lx_const(l, 0), end = tci_lx_const(l, n->n_tiles);
    int extra = tci_lx_const(l, u->extra);
    bool many = tci_query_many(n->n_groups);
    if (many) {
        begin = tci_lx_make(l, TCI_LX_MUL, group, -1, n->group);
        int next = tci_lx_make(l, TCI_LX_ADD, begin, tci_lx_const(l, n->group), 0);
        end = tci_lx_make(l, TCI_LX_MIN, next, end, 0);
    }
    if (u->extra > 0) {
        int stop = many ? tci_lx_make(l, TCI_LX_MIN, end, extra, 0) : extra;
        tci_unit_row_loop(u, tile, begin, stop, (int)u->base + 1, 0);
        begin = many ? tci_lx_make(l, TCI_LX_MAX, begin, extra, 0) : extra;
    }
    if (tci_dim_is_known(size) || u->base == 1) {
        tci_unit_row_loop(u, tile, begin, end, (int)u->base, u->extra);
        return;
    }
    tci_dim whole = tci_dim_div(size, u->base);
    int stop = tci_lx_make(l, TCI_LX_MIN, end, tci_lx_const(l, whole), 0);
    tci_unit_rest rest = {u, tile};
    tci_lopen open;
    tci_unit_row_loop(u, tile, begin, stop, (int)u->base, 0);
    tci_build_if(b, tci_build_in_range(b, end, tci_dim_add(whole, 1), n->n_tiles), &open);
    tci_stage_rest_rows(b, size, u->base, tci_unit_rest_body, &rest);
    tci_build_close(b, &open);
}

/* ---- vectors ---- */

static tci_tile tci_unit_tile_of(const tci_unit *u, int n, const tci_bind **vecs)
{
    tci_tile tile = {0};
    tile.row_axis = -1;
    tile.vec_axis = vecs ? u->nest->vec_axis : -1;
    tile.n_vecs = n;
    tile.vecs = vecs;
    tile.turn = u->turn;
    tile.weave = u->weave;
    tile.skew = u->skew;
    tile.stream = !vecs || n == u->unroll || u->turn ? u->stream : NULL;
    tile.prefetch = vecs && tile.stream && !u->turn ? TCI_UNIT_PREFETCH_BYTES : 0;
    tile.next_axis = u->next_axis;
    return tile;
}

static void tci_unit_body(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    const tci_unit_place *place = arg;
    tci_tile tile = tci_unit_tile_of(place->u, n, vecs);
    (void)b;
    tci_unit_group(place->u, &tile, place->group);
}

/* The chunk's share of [begin, end), bounds known only at run time; streaming aligns the store
 * first. */
static void tci_unit_dynamic(tci_unit_place *place, tci_lin chunk, tci_dim begin, tci_dim end)
{
    const tci_unit *u = place->u;
    tci_nest *n = u->nest;
    tci_build *b = n->b;
    tci_loop *l = b->l;
    int head = -1, from = tci_lx_const(l, begin), to = tci_lx_const(l, end);
    tci_dim last = tci_dim_add(end, -1);
    if (tci_query_many(n->n_chunks)) {
        tci_lin at = tci_lin_mul(b, chunk, n->chunk);
        from = tci_lx_make(l, TCI_LX_MAX, tci_build_lx(b, at), from, 0);
        to = tci_lx_make(l, TCI_LX_MIN, tci_build_lx(b, tci_lin_plus(at, n->chunk)), to, 0);
    }
    if (u->stream) {
        tci_lin start = tci_build_let(b, from);
        head = tci_stage_head(b, u->stream, n->vec_axis, start, begin, last);
        int minus = tci_build_lx(b, tci_lin_mul(b, start, -1));
        int room = tci_lx_make(l, TCI_LX_MAX, tci_lx_make(l, TCI_LX_ADD, to, minus, 0),
                               tci_lx_const(l, 0), 0);
        head = tci_lx_make(l, TCI_LX_MIN, head, room, 0);
        from = tci_build_lx(b, start);
    }
    tci_stage_vectors_dynamic(b, from, to, head, begin, last, u->unroll, tci_unit_body, place);
}

/* One chunk of an axis that no guard cuts: whole tiles, and after the last chunk what is left of
 * the axis. */
static void tci_unit_chunk(tci_unit_place *place, tci_lin chunk)
{
    const tci_unit *u = place->u;
    tci_nest *n = u->nest;
    tci_build *b = n->b;
    tci_loop *l = b->l;
    int64_t step = (int64_t)u->unroll * l->lanes;
    tci_dim whole = tci_dim_mul(tci_dim_div(n->n_vec, step), step);
    const tci_bind **vecs = TCI_NEW_ARRAY(b->s, const tci_bind *, u->unroll);
    tci_lopen open;
    tci_lin first = tci_lin_mul(b, chunk, n->chunk), at = first;
    bool one = n->a->machine.block_threads > 0, branches = !one || whole != n->n_vec;
    if (one && branches) {
        tci_dim last = tci_dim_add(tci_dim_div(whole, step), -1);
        tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, chunk), 0, last), &open);
    } else if (!one) {
        int to = tci_build_lx(b, tci_lin_plus(first, n->chunk));
        if (!tci_dim_le(tci_dim_mul(n->n_chunks, n->chunk), whole)) {
            to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, whole), 0);
        }
        at = tci_lin_var(b, tci_build_for(b, tci_build_lx(b, first), to, step, &open));
    }
    for (int v = 0; v < u->unroll; v++) {
        int64_t lo = (int64_t)v * l->lanes;
        tci_dim hi = tci_dim_add(whole, lo + l->lanes - 1 - step);
        vecs[v] = tci_build_bind(b, tci_lin_plus(at, lo), lo, hi, l->lanes > 1, -1);
    }
    tci_unit_body(b, place, u->unroll, vecs);
    if (branches) {
        tci_build_close(b, &open);
    }
    if (whole != n->n_vec) {
        tci_dim last = tci_dim_add(n->n_chunks, -1);
        tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, chunk), last, last), &open);
        tci_stage_vectors(b, whole, n->n_vec, u->unroll, tci_unit_body, place);
        tci_build_close(b, &open);
    }
}

TCI_FN void tci_unit_walk(tci_nest *n, void *arg, const tci_nest_at *at)
{
    const tci_unit *u = arg;
    const tci_query *a = n->a;
    tci_unit_place place = {u, tci_build_lx(n->b, at->group)};
    tci_dim begin = 0;
    if (n->vec_axis < 0) {
        tci_tile tile = tci_unit_tile_of(u, 1, NULL);
        tci_unit_group(u, &tile, place.group);
        return;
    }
    if (a->n_cuts == 0 && (!u->stream || u->turn) && tci_query_many(n->n_chunks)) {
        tci_unit_chunk(&place, at->chunk);
        return;
    }
    for (int i = 0; i <= a->n_cuts; i++) {
        tci_dim end = i < a->n_cuts ? a->cuts[i] : n->n_vec;
        if (u->stream || tci_query_many(n->n_chunks)) {
            tci_unit_dynamic(&place, at->chunk, begin, end);
        } else {
            tci_stage_vectors(n->b, begin, end, u->unroll, tci_unit_body, &place);
        }
        begin = end;
    }
}
