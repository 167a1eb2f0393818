/* loop/blocked.c - a contraction whose operands are packed into panels, block by block.
 *
 * In: a kernel whose first stage is one DOT, and its register tile. Out: statements for one block
 * of columns and a range of row tiles.
 *
 *   for each block of the first inner axis (the others are taken whole)
 *       pack the vector factor:  panel [tile of columns][inner point][column of the tile]
 *       for each row tile
 *           pack the row factor: panel [row][inner point] or [inner point][row]
 *           for each tile of columns
 *               accumulators from the partial sums (first block: zero); one loop over the inner
 *               points; then partial sums again, or (last block) the later stages, which are
 *               written out for each vector where they are short, else once for a row
 *
 * With few row tiles (fused) memory is the limit: blocks are shallow and wide, so that the vector
 * factor streams through the cache in long runs; all rows are packed first, and for each tile of
 * columns the first row tile reads the vector factor in place and leaves it in a panel of one tile
 * for the others.
 *
 * Where the sizes enter: tci_blocked_cut_depth (K), tci_blocked_cut_points (M as row tiles, N as
 * blocks of columns), tci_blocked_columns (tails of N), tci_blocked_row_loop (ranges of M).
 *
 * The one idea: a panel is a kept instruction (tci_lkeep). Packing evaluates the whole factor, its
 * index expression, guards, casts and elementwise producer, at every point of the panel; in the
 * tile the same instruction is a load from the panel. As both panels hold the inner points in
 * their order, the tile's loop is one flat loop however many inner axes there are.
 *
 * Blocks only cut the FMA chain of a point where it passes through memory, so no choice made here
 * changes a result. A point whose sum is in parts (class SPLIT) begins a chain with each part and
 * adds it to those before in memory: a block is a part where that can be, else a second array of
 * partial sums holds those of the whole parts. Panels and partial sums lie in the thread's work
 * memory. */
#include "blocked.h"

enum {
    TCI_BLOCKED_DEPTH = 512,        /* inner points of a block, about */
    TCI_BLOCKED_DEPTH_MOST = 1536,  /* where the first axis cannot be cut finer */
    TCI_BLOCKED_COLUMNS = 256,
    TCI_BLOCKED_FEW_TILES = 4,      /* row tiles up to which memory is the limit, not the panel */
    TCI_BLOCKED_SHALLOW = 24,       /* DEPTH there: so many lines of a set that a cache can hold */
    TCI_BLOCKED_LONG = 1024,        /* COLUMNS there, at most: long runs of memory */
    TCI_BLOCKED_PIECES = 8,         /* blocks of columns to have there, for the threads */
    TCI_BLOCKED_PARTIAL = 1 << 22,  /* bytes of partial sums */
    TCI_BLOCKED_PAD = 16,           /* elements between parts of a panel: off the same cache set */
    TCI_BLOCKED_BY_ROWS = 8,        /* flops of the later stages from which they are a loop */
    TCI_BLOCKED_UNROLL = 4,         /* vectors packed at once along a row */
    TCI_BLOCKED_FETCHED = 4,        /* rows that a tile fetches ahead, at most */
    TCI_BLOCKED_SQUARE = 16,        /* most lanes of a square that is turned in registers */
    TCI_BLOCKED_EVEN = 16,          /* depths are a multiple */
    TCI_BLOCKED_AHEAD = 8,          /* inner points between packing and what it fetches */
    TCI_BLOCKED_REUSE = 8,          /* rows from which packing pays */
    TCI_BLOCKED_PAGE = 4096,        /* bytes that all sets of the first cache share */
    TCI_BLOCKED_WAYS = 8,           /* lines that a set of it holds, at least */
    TCI_BLOCKED_PAGES = 64          /* whose addresses are at hand */
};

/* ---- what fits ---- */

typedef struct tci_blocked_look {
    bool contiguous; /* each load is contiguous along the axis or does not depend on it */
    bool strided;    /* some load has steps along the axis */
    bool computed;   /* more than one load, or converted when it is loaded */
} tci_blocked_look;

static tci_blocked_look tci_blocked_examine(const tci_kernel *k, int inst, int axis)
{
    tci_blocked_look look = {true, false, k->insts[inst].op != TCI_K_LOAD};
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    live[inst] = true;
    for (int i = inst; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        tci_dim coef = 0;
        for (int a = 0; live[i] && a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        if (live[i] && in->op == TCI_K_LOAD) {
            look.computed |= k->operands[tci_kinst_number(in)].dtype != in->dtype;
        }
        if (live[i] && in->op == TCI_K_LOAD && tci_build_depends(in->axes, axis)) {
            bool linear = tci_build_coef(k, in->x, axis, &coef);
            look.contiguous = look.contiguous && linear && coef == 1;
            look.strided = look.strided || !linear || coef != 1;
        }
    }
    return look;
}

/* Do the lines that a tile of columns reads of the vector factor, one for each point of the only
 * inner axis, push each other out, of a set of the first cache or of where pages are looked up? */
static bool tci_blocked_is_crowded(const tci_kernel *k, const tci_blocked *p)
{
    const tci_kinst *in = &k->insts[p->vec_inst];
    int axis = k->stages[p->stage].axes[0];
    tci_dim coef = 0;
    if (in->op != TCI_K_LOAD || p->n_inner != 1 || !tci_build_coef(k, in->x, axis, &coef) ||
        !tci_dim_is_known(coef)) {
        return false;
    }
    int bytes = tci_dtype_get((tc_dtype)k->operands[tci_kinst_number(in)].dtype)->bytes;
    int64_t step = tci_dim_known(coef) * bytes, depth = tci_kernel_known(k, axis);
    step = step < 0 ? -step : step;
    int64_t sets = TCI_BLOCKED_PAGE / TCI_MAX(tci_lx_gcd(step, TCI_BLOCKED_PAGE), 1);
    return (step >= TCI_BLOCKED_PAGE / 2 && sets * TCI_BLOCKED_WAYS < depth) ||
           (step >= TCI_BLOCKED_PAGE && depth >= TCI_BLOCKED_PAGES);
}

/* Which factor goes along the rows and which along the vectors; false where one does both. */
static bool tci_blocked_sides(const tci_kernel *k, tci_blocked *p)
{
    const tci_kred *red = &k->reds[p->red];
    const tci_kstage *st = &k->stages[p->stage];
    bool swap = tci_build_depends(k->insts[red->in[0]].axes, p->vec_axis);
    p->vec_inst = swap ? red->in[0] : red->in[1];
    p->row_inst = swap ? red->in[1] : red->in[0];
    uint64_t vec = k->insts[p->vec_inst].axes, row = k->insts[p->row_inst].axes;
    int last = st->axes[p->n_inner - 1];
    return tci_build_depends(vec, p->vec_axis) && !tci_build_depends(vec, p->row_axis) &&
           tci_build_depends(row, p->row_axis) && !tci_build_depends(row, p->vec_axis) &&
           tci_build_depends(vec, last) && tci_build_depends(row, last) &&
           k->insts[p->vec_inst].dtype != TC_BOOL;
}

static bool tci_blocked_fits(const tci_kernel *k, tci_machine machine, int lanes)
{
    bool fits = machine.has_work && machine.block_threads == 0 && lanes > 1 && k->n_reds == 1 &&
                k->reds[0].op == TCI_RED_DOT && k->reds[0].stage == 0 && k->n_axes < 63 &&
                k->vector == TCI_VEC_OUTER && k->n_operands < TCI_WORK_OPERANDS &&
                k->stages[0].kind == TCI_STAGE_REDUCE && k->stages[0].n_axes > 0;
    for (int t = 1; t < k->n_stages && fits; t++) {
        fits = k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int a = TCI_MAX(k->n_outer - 1, 0); a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size); /* columns and depth, which panels hold */
    }
    return fits;
}

/* Cuts the depth into parts of the sums, or even blocks; false where a block would be too deep. */
static bool tci_blocked_cut_depth(const tci_kernel *k, tci_blocked *p)
{
    const tci_kstage *st = &k->stages[p->stage];
    int64_t first = tci_kernel_known(k, st->axes[0]);
    p->inner = 1;
    for (int i = 1; i < p->n_inner; i++) {
        p->inner *= tci_kernel_known(k, st->axes[i]);
    }
    if (p->inner <= 0 || first <= 0 || p->inner > TCI_BLOCKED_DEPTH_MOST) {
        return false;
    }
    p->part = k->reds[p->red].order == TCI_ORDER_SPLIT ? k->reds[p->red].order_n : 0;
    int64_t part = p->part % p->inner == 0 && !p->fused ? p->part / p->inner : 0;
    int64_t aim = p->fused ? TCI_BLOCKED_SHALLOW : TCI_BLOCKED_DEPTH;
    int64_t most = p->depth > 0 ? p->depth : TCI_MAX(aim / p->inner, 1);
    if (p->depth > TCI_BLOCKED_DEPTH_MOST / p->inner) {
        return false;
    }
    bool free = p->depth == 0 || p->depth == part;
    p->depth = tci_ceil_div(first, tci_ceil_div(first, most));
    if (part > 0 && free) {
        p->depth = part; /* a block is a part */
    } else if (p->depth < first && p->inner == 1) { /* whole squares */
        p->depth = tci_ceil_div(p->depth, TCI_BLOCKED_EVEN) * TCI_BLOCKED_EVEN;
    }
    p->n_depths = tci_ceil_div(first, p->depth);
    return true;
}

/* The columns of a block, and the row tiles that share it. */
static void tci_blocked_cut_points(const tci_kernel *k, int lanes, tci_blocked *p)
{
    int64_t columns = tci_kernel_known(k, p->vec_axis), tile = (int64_t)p->unroll * lanes;
    int64_t block = TCI_BLOCKED_COLUMNS;
    if (p->fused) {
        block = TCI_MAX(TCI_MIN(columns / TCI_BLOCKED_PIECES, TCI_BLOCKED_LONG), block);
    }
    block = p->columns > 0 ? p->columns : block;
    p->columns = tci_ceil_div(TCI_MIN(columns, block), tile) * tile;
    int64_t bytes = tci_dtype_get((tc_dtype)k->reds[p->red].dtype)->bytes;
    int64_t sums = p->columns * (p->base + 1) * bytes;
    int64_t n_tiles = TCI_MIN(tci_dim_most(p->n_tiles), (int64_t)1 << 30);
    int64_t pieces = tci_ceil_div(n_tiles * sums, TCI_BLOCKED_PARTIAL);
    p->group = TCI_MAX(tci_ceil_div(n_tiles, TCI_MAX(pieces, 1)), 1);
    p->share = p->fused ? p->group : 1;
}

TCI_FN bool tci_blocked_plan_row(const tci_kernel *k, int lanes, tci_blocked *p)
{
    const tci_kstage *st = &k->stages[p->stage];
    p->n_inner = st->n_axes - st->n_kept;
    p->vec_axis = st->axes[st->n_axes - 1];
    p->keeps = true;
    if (p->n_inner == 0 || st->n_kept != 1 || k->reds[p->red].op != TCI_RED_DOT ||
        !tci_blocked_sides(k, p)) {
        return false;
    }
    const tci_kinst *row = &k->insts[p->row_inst];
    tci_blocked_look vec = tci_blocked_examine(k, p->vec_inst, p->vec_axis);
    p->is_row_there = row->op == TCI_K_RED;
    p->row_by_vector = tci_blocked_examine(k, p->row_inst, p->row_axis).contiguous;
    p->vec_by_vector = vec.contiguous;
    p->squares = !vec.contiguous && p->n_inner == 1 && lanes <= TCI_BLOCKED_SQUARE;
    int64_t tile = (int64_t)p->unroll * lanes, columns = tci_kernel_known(k, p->vec_axis);
    if (!tci_blocked_cut_depth(k, p) || columns < lanes) {
        return false;
    }
    p->columns = tci_ceil_div(TCI_MIN(columns, TCI_BLOCKED_COLUMNS), tile) * tile;
    p->share = 1;
    return true;
}

TCI_FN bool tci_blocked_plan(const tci_kernel *k, tci_machine machine, int lanes, tci_blocked *p)
{
    p->stage = p->red = 0;
    p->n_inner = k->n_stages > 0 ? k->stages[0].n_axes : 0;
    if (p->row_axis < 0 || p->vec_axis < 0 || !tci_blocked_fits(k, machine, lanes) ||
        !tci_blocked_sides(k, p)) {
        return false;
    }
    const tci_kstage *st = &k->stages[0];
    const tci_kinst *one = &k->insts[p->vec_inst], *other = &k->insts[p->row_inst];
    tci_blocked_look vec = tci_blocked_examine(k, p->vec_inst, p->vec_axis);
    tci_blocked_look row = tci_blocked_examine(k, p->row_inst, p->row_axis);
    bool few = tci_dim_le(p->n_tiles, TCI_BLOCKED_FEW_TILES) &&
               tci_dim_is_known(k->axes[p->row_axis].size);
    p->fetch_vectors = one->op == TCI_K_LOAD && one->n_guards == 0 && vec.contiguous &&
                       p->n_inner == 1;
    p->fetch_rows = other->op == TCI_K_LOAD && other->n_guards == 0 && !row.contiguous &&
                    p->n_inner == 1 && !few;
    p->fused = few && p->fetch_vectors;
    p->vec_by_vector = vec.contiguous;
    p->squares = !vec.contiguous && p->n_inner == 1 && lanes <= TCI_BLOCKED_SQUARE;
    p->row_by_vector = row.contiguous;
    if (!tci_blocked_cut_depth(k, p)) {
        return false;
    }
    int64_t rows = tci_dim_hint(k->axes[p->row_axis].size);
    int64_t columns = tci_kernel_known(k, p->vec_axis);
    int64_t bytes = tci_kernel_known(k, st->axes[0]) * p->inner * columns *
                    tci_dtype_get((tc_dtype)one->dtype)->bytes;
    bool costly = vec.strided || vec.computed || row.computed ||
                  (!few && tci_blocked_is_crowded(k, p));
    if (rows < TCI_BLOCKED_REUSE || columns < lanes) {
        return false;
    }
    p->pays = costly || bytes >= machine.facts.cache_bytes[1];
    int64_t later = 0;
    for (int t = 1; t < k->n_stages; t++) {
        later += tci_stage_cost(k, t);
    }
    p->by_rows = later >= TCI_BLOCKED_BY_ROWS;
    tci_blocked_cut_points(k, lanes, p);
    return true;
}

/* ---- the nest ---- */

typedef struct tci_blocked_state {
    tci_build *b;
    const tci_blocked *p;
    tci_lkeep *row, *vec;   /* row: NULL where the row factor is a row that is kept */
    /* local arrays, -1 none: sums so far, and where a block is no part, of the parts before */
    tci_stage_tuple partial, total;
    int64_t tile;           /* columns of a tile */
    int64_t tile_step;      /* elements of the vector panel between tiles */
    int64_t row_step;       /* elements of the row panel between rows or inner points */
    int block;              /* number of the depth block: lx */
    tci_lin first, depth;   /* of the first inner axis */
    tci_lin column;         /* first of the block */
    int chunk;              /* number of the block of columns: lx */
    int first_row;          /* of the group: lx */
    int64_t row_elements;   /* of a row panel */
    tci_tile at;            /* rows of the current tile */
    tci_lin number;         /* fused: the current tile of columns, */
    int64_t count;          /* its columns */
    bool packs;             /* this tile packs the vector factor while it multiplies */
} tci_blocked_state;

static int tci_blocked_local(tci_build *b, int64_t n, tc_dtype t)
{
    int local = tci_build_local(b, t, n, 0);
    int64_t bytes = n * tci_dtype_get(t)->bytes;
    b->l->locals[local].work = b->l->work_bytes;
    b->l->work_bytes += (bytes + 63) / 64 * 64;
    return local;
}

/* Positions of the inner points: `step` elements apart. */
static void tci_blocked_inner_coefs(const tci_blocked_state *s, tci_lkeep *keep, int64_t step)
{
    const tci_kstage *st = &s->b->k->stages[s->p->stage];
    for (int i = s->p->n_inner - 1; i >= 0; i--) {
        keep->coef[st->axes[i]] = step;
        step *= tci_kernel_known(s->b->k, st->axes[i]);
    }
}

/* Is every block a part of the sums? */
static bool tci_blocked_is_part(const tci_blocked *p)
{
    return p->part > 0 && p->depth * p->inner == p->part;
}

static void tci_blocked_make_panels(tci_blocked_state *s, int64_t group)
{
    tci_build *b = s->b;
    const tci_blocked *p = s->p;
    const tci_kred *red = &b->k->reds[s->p->red];
    int64_t depth = p->depth * p->inner, rows = p->base + (p->extra > 0), lanes = b->l->lanes;
    s->tile = (int64_t)p->unroll * lanes;
    s->tile_step = p->fused ? 0 : s->tile * depth + TCI_BLOCKED_PAD;
    if (p->row_by_vector) {
        s->row_step = tci_ceil_div(rows, lanes) * lanes;
        s->row_elements = s->row_step * depth;
    } else {
        s->row_step = tci_ceil_div(depth, lanes) * lanes + TCI_BLOCKED_PAD;
        s->row_elements = s->row_step * rows;
    }
    tc_dtype vec_type = (tc_dtype)b->k->insts[p->vec_inst].dtype;
    tc_dtype row_type = (tc_dtype)b->k->insts[p->row_inst].dtype;
    int64_t vec_elements = p->fused ? s->tile * depth
                                    : s->tile_step * tci_ceil_div(p->columns, s->tile);
    int64_t row_panels = p->fused ? tci_dim_known(p->n_tiles) : 1;
    if (!p->is_row_there) {
        int row_panel = tci_blocked_local(b, s->row_elements * row_panels, row_type);
        s->row = tci_build_keep(b, p->row_inst, row_panel, -1);
        tci_blocked_inner_coefs(s, s->row, p->row_by_vector ? s->row_step : 1);
        s->row->coef[p->row_axis] = p->row_by_vector ? 1 : s->row_step;
    }
    s->vec = tci_build_keep(b, p->vec_inst, tci_blocked_local(b, vec_elements, vec_type), -1);
    s->vec->is_padded = true;
    tci_blocked_inner_coefs(s, s->vec, s->tile);
    s->vec->coef[p->vec_axis] = 1;
    s->partial = s->total = tci_stage_tuple_of(-1, -1);
    if (p->n_depths > 1 || p->by_rows) {
        s->partial.part[0] = tci_blocked_local(b, group * rows * p->columns, (tc_dtype)red->dtype);
    }
    if (p->part > 0 && !tci_blocked_is_part(p)) {
        s->total.part[0] = tci_blocked_local(b, group * rows * p->columns, (tc_dtype)red->dtype);
    }
}

/* Loops over the inner axes but for the last `without`; the first one over the current block. */
static tci_lopen *tci_blocked_open(tci_blocked_state *s, int without)
{
    tci_build *b = s->b;
    const tci_kstage *st = &b->k->stages[s->p->stage];
    tci_lopen *open = TCI_NEW_ARRAY(b->s, tci_lopen, s->p->n_inner + 1);
    for (int i = 0; i < s->p->n_inner - without; i++) {
        int64_t size = tci_kernel_known(b->k, st->axes[i]);
        int from = tci_lx_const(b->l, 0), to = tci_lx_const(b->l, size);
        if (i == 0) {
            from = tci_build_lx(b, s->first);
            to = tci_build_lx(b, tci_lin_add(b, s->first, s->depth));
        }
        int at = tci_build_for(b, from, to, 1, &open[i]);
        tci_build_set(b, st->axes[i],
                      tci_build_bind(b, tci_lin_var(b, at), 0, size - 1, false, -1));
    }
    return open;
}

static void tci_blocked_close(tci_blocked_state *s, int without, const tci_lopen *open)
{
    const tci_kstage *st = &s->b->k->stages[s->p->stage];
    for (int i = s->p->n_inner - 1 - without; i >= 0; i--) {
        tci_build_close(s->b, &open[i]);
        tci_build_set(s->b, st->axes[i], NULL);
    }
}

/* ---- fetching ---- */

static void tci_blocked_fetch_at(tci_build *b, int base, tci_lin x)
{
    tci_lstmt fetch = tci_loop_stmt(TCI_L_MEM);
    fetch.mem = TCI_MEM_PREFETCH;
    fetch.base = base;
    fetch.x = tci_build_lx(b, x);
    tci_build_mem(b, fetch, TC_F32, 1, b->cur);
}

static void tci_blocked_fetch(tci_build *b, int inst)
{
    const tci_kinst *in = &b->k->insts[inst];
    tci_blocked_fetch_at(b, tci_kinst_number(in), tci_build_kx(b, in->x));
}

/* What the vectors will be made of `inner` inner points later, or `columns` further. */
static void tci_blocked_fetch_vectors(tci_blocked_state *s, int n, const tci_bind **vecs,
                                      int64_t inner, int64_t columns)
{
    tci_build *b = s->b;
    int axis = b->k->stages[s->p->stage].axes[0];
    const tci_bind *here = b->bind[axis];
    tci_build_set(b, axis, tci_build_bind(b, tci_lin_plus(here->at, inner), 0, 0, false, -1));
    for (int i = 0; i < n; i++) {
        tci_lin at = tci_lin_plus(vecs[i]->at, columns);
        tci_build_set(b, s->p->vec_axis, tci_build_bind(b, at, 0, 0, true, -1));
        tci_blocked_fetch(b, s->p->vec_inst);
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_set(b, axis, here);
}

/* Each tile of columns fetches some of the rows that are packed after its own. */
static void tci_blocked_fetch_rows(tci_blocked_state *s, const tci_tile *tile, tci_lin number)
{
    tci_build *b = s->b;
    int64_t tiles = s->p->columns / s->tile, share = tci_ceil_div(tile->n_rows, tiles);
    tci_lin row = tci_lin_plus(tile->rows[0]->at, tile->n_rows);
    row = tci_lin_add(b, row, tci_lin_mul(b, number, share));
    for (int64_t i = 0; i < share && share <= TCI_BLOCKED_FETCHED; i++) {
        tci_lin at = tci_lin_plus(row, i);
        tci_build_set(b, s->p->row_axis, tci_build_bind(b, at, 0, 0, false, -1));
        tci_blocked_fetch(b, s->p->row_inst);
    }
}

/* The partial sums that the next tile of columns continues or begins. */
static void tci_blocked_fetch_partial(tci_blocked_state *s, tci_lin at, int n)
{
    for (int i = 0; i < n; i++) {
        tci_blocked_fetch_at(s->b, ~s->partial.part[0],
                             tci_lin_plus(at, (int64_t)(n + i) * s->b->l->lanes));
    }
}

/* Where the tile's results will be written. */
static void tci_blocked_fetch_results(tci_blocked_state *s, const tci_tile *tile)
{
    tci_build *b = s->b;
    for (int i = 0; i < b->k->n_stores && !s->p->keeps; i++) {
        for (int j = 0; j < tile->n_rows * tile->n_vecs; j++) {
            tci_stage_point(b, tile, j);
            tci_blocked_fetch_at(b, b->k->stores[i].operand, tci_build_kx(b, b->k->stores[i].x));
        }
    }
}

/* ---- packing ---- */

/* The vectors of tile number `tile` of the block, which exist up to `count` columns. */
static const tci_bind **tci_blocked_vectors(tci_blocked_state *s, tci_lin tile, int64_t count,
                                            int *n)
{
    tci_build *b = s->b;
    int64_t lanes = b->l->lanes, size = tci_kernel_known(b->k, s->p->vec_axis);
    const tci_bind **vecs = TCI_NEW_ARRAY(b->s, const tci_bind *, s->p->unroll);
    tci_lin at = tci_lin_add(b, s->column, tci_lin_mul(b, tile, s->tile));
    s->vec->origin[s->p->vec_axis] = at;
    s->vec->base = tci_lin_mul(b, tile, s->tile_step);
    for (*n = 0; *n * lanes < count; ++*n) {
        int64_t skip = *n * lanes, left = TCI_MIN(count - skip, lanes);
        int64_t lo = count < s->tile ? size - count + skip : skip;
        int64_t hi = size - (count - skip - left) - 1;
        vecs[*n] = tci_build_bind(b, tci_lin_plus(at, skip), lo, hi, true,
                                  left < lanes ? tci_lx_const(b->l, left) : -1);
    }
    return vecs;
}

/* Vectors that are strided, where the inner axis may be contiguous: squares of inner points and
 * lanes, which loads turn in registers. Returns the first inner point that is left. */
static tci_lin tci_blocked_pack_squares(tci_blocked_state *s, int n, const tci_bind **vecs)
{
    tci_build *b = s->b;
    int axis = b->k->stages[s->p->stage].axes[0];
    int64_t lanes = b->l->lanes, size = tci_kernel_known(b->k, axis);
    const tci_bind **rows = TCI_NEW_ARRAY(b->s, const tci_bind *, lanes);
    tci_lopen open;
    int squares = tci_lx_make(b->l, TCI_LX_DIV, tci_build_lx(b, s->depth), -1, lanes);
    int points = tci_lx_make(b->l, TCI_LX_MUL, squares, -1, lanes);
    int from = tci_build_lx(b, s->first), end = tci_lx_make(b->l, TCI_LX_ADD, from, points, 0);
    tci_lin at = tci_lin_var(b, tci_build_for(b, from, end, lanes, &open));
    for (int64_t r = 0; r < lanes; r++) {
        rows[r] = tci_build_bind(b, tci_lin_plus(at, r), r, size - lanes + r, false, -1);
    }
    b->turn_rows = rows;
    b->turn_axis = axis;
    b->n_turn = (int)lanes;
    for (int i = 0; i < n * lanes; i++) {
        tci_build_set(b, s->p->vec_axis, vecs[i / lanes]);
        tci_build_set(b, axis, rows[i % lanes]);
        tci_build_value(b, s->p->vec_inst);
    }
    b->turn_rows = NULL;
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_set(b, axis, NULL);
    tci_build_close(b, &open);
    return tci_build_let(b, end);
}

static void tci_blocked_pack_vectors(tci_blocked_state *s, tci_lin tile, int64_t count)
{
    tci_build *b = s->b;
    int n;
    const tci_bind **vecs = tci_blocked_vectors(s, tile, count, &n);
    tci_lin first = s->first, depth = s->depth;
    if (s->p->squares) {
        s->first = tci_blocked_pack_squares(s, n, vecs);
        s->depth = tci_lin_add(b, tci_lin_add(b, first, depth), tci_lin_mul(b, s->first, -1));
    }
    tci_lopen *open = s->p->vec_by_vector ? NULL : tci_blocked_open(s, 0);
    s->first = first;
    s->depth = depth;
    for (int i = 0; i < n; i++) {
        tci_build_set(b, s->p->vec_axis, vecs[i]);
        tci_build_value(b, s->p->vec_inst);
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    if (s->p->fetch_vectors) {
        tci_blocked_fetch_vectors(s, n, vecs, TCI_BLOCKED_AHEAD, 0);
    }
    if (open) {
        tci_blocked_close(s, 0, open);
    }
}

/* Whole tiles of the block, and (if this is the last one) what is left of the axis; body(s, tile,
 * columns). */
static void tci_blocked_columns(tci_blocked_state *s, int chunk,
                                void (*body)(tci_blocked_state *, tci_lin, int64_t))
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t size = tci_kernel_known(b->k, s->p->vec_axis), rest = size % s->tile;
    int64_t most = s->p->columns / s->tile, whole = size / s->tile;
    int64_t n_chunks = tci_ceil_div(size, s->p->columns);
    tci_lopen open;
    int end = tci_lx_const(l, TCI_MIN(most, whole));
    if (whole < n_chunks * most && n_chunks > 1) {
        int left = tci_lx_make(l, TCI_LX_MUL, chunk, -1, -most);
        left = tci_lx_make(l, TCI_LX_ADD, left, tci_lx_const(l, whole), 0);
        end = tci_lx_make(l, TCI_LX_MIN, left, tci_lx_const(l, most), 0);
    }
    if (whole > 0) {
        int tile = tci_build_for(b, tci_lx_const(l, 0), end, 1, &open);
        body(s, tci_lin_var(b, tile), s->tile);
        tci_build_close(b, &open);
    }
    if (rest == 0) {
        return;
    }
    if (n_chunks > 1) {
        tci_build_if(b, tci_build_in_range(b, chunk, n_chunks - 1, n_chunks - 1), &open);
    }
    body(s, tci_lin_const(whole - (n_chunks - 1) * most), rest);
    if (n_chunks > 1) {
        tci_build_close(b, &open);
    }
}

static void tci_blocked_pack_vec(tci_blocked_state *s, int chunk)
{
    tci_lopen *open = s->p->vec_by_vector ? tci_blocked_open(s, 0) : NULL;
    s->vec->stage = s->p->stage;
    tci_blocked_columns(s, chunk, tci_blocked_pack_vectors);
    s->vec->stage = -1;
    if (open) {
        tci_blocked_close(s, 0, open);
    }
}

/* Values of the current row for some vectors of the last inner axis. */
static void tci_blocked_pack_along(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    tci_blocked_state *s = arg;
    const tci_kstage *st = &b->k->stages[s->p->stage];
    int axis = st->axes[s->p->n_inner - 1];
    for (int i = 0; i < n; i++) {
        tci_build_set(b, axis, vecs[i]);
        tci_build_value(b, s->p->row_inst);
    }
    tci_build_set(b, axis, NULL);
}

/* One row after the other, each in long runs. */
static void tci_blocked_pack_each(tci_blocked_state *s)
{
    tci_build *b = s->b;
    const tci_kstage *st = &b->k->stages[s->p->stage];
    int64_t size = tci_kernel_known(b->k, st->axes[s->p->n_inner - 1]);
    const tci_bind *first = s->at.rows[0], *last = s->at.rows[s->at.n_rows - 1];
    tci_lopen open;
    tci_lin row = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0),
                                               tci_lx_const(b->l, s->at.n_rows), 1, &open));
    tci_build_set(b, s->p->row_axis, tci_build_bind(b, tci_lin_add(b, first->at, row), first->lo,
                                                    last->hi, false, -1));
    if (s->p->n_inner == 1 && s->p->n_depths > 1) {
        int from = tci_build_lx(b, s->first);
        int to = tci_build_lx(b, tci_lin_add(b, s->first, s->depth));
        tci_stage_vectors_dynamic(b, from, to, -1, 0, size - 1, TCI_BLOCKED_UNROLL,
                                  tci_blocked_pack_along, s);
    } else {
        tci_lopen *inner = tci_blocked_open(s, 1);
        tci_stage_vectors(b, 0, size, TCI_BLOCKED_UNROLL, tci_blocked_pack_along, s);
        tci_blocked_close(s, 1, inner);
    }
    tci_build_set(b, s->p->row_axis, NULL);
    tci_build_close(b, &open);
}

/* Values of all rows for each inner point, as vectors along the rows. */
static void tci_blocked_pack_across(tci_blocked_state *s)
{
    tci_build *b = s->b;
    tci_lopen *open = tci_blocked_open(s, 0);
    const tci_bind *first = s->at.rows[0], *last = s->at.rows[s->at.n_rows - 1];
    int64_t lanes = b->l->lanes, n = s->at.n_rows;
    for (int64_t r = 0; r < n; r += lanes) {
        int count = n - r < lanes ? tci_lx_const(b->l, n - r) : -1;
        tci_dim hi = tci_dim_add(last->hi, -TCI_MAX(n - r - lanes, 0));
        tci_dim lo = tci_dim_add(first->lo, r);
        tci_build_set(b, s->p->row_axis,
                      tci_build_bind(b, tci_lin_plus(first->at, r), lo, hi, true, count));
        tci_build_value(b, s->p->row_inst);
    }
    tci_build_set(b, s->p->row_axis, NULL);
    tci_blocked_close(s, 0, open);
}

static void tci_blocked_pack_rows(tci_blocked_state *s)
{
    if (!s->row) {
        return;
    }
    s->row->stage = s->p->stage;
    if (s->p->row_by_vector) {
        tci_blocked_pack_across(s);
    } else {
        tci_blocked_pack_each(s);
    }
    s->row->stage = -1;
}

/* ---- tiles ---- */

/* The flat loop over inner points [from, to) of the block: the last axis stands for all of
 * them. */
static void tci_blocked_dot(tci_blocked_state *s, const tci_tile *tile, tci_lin number,
                            const tci_stage_tuple *acc, int from, int to)
{
    tci_build *b = s->b;
    const tci_kstage *st = &b->k->stages[s->p->stage];
    const tci_kred *red = &b->k->reds[s->p->red];
    tci_lopen open;
    tci_lin at = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    for (int i = 0; i < s->p->n_inner; i++) {
        tci_lin here = i == s->p->n_inner - 1 ? at : tci_lin_const(0);
        here = i == 0 ? tci_lin_add(b, here, s->first) : here;
        tci_build_set(b, st->axes[i], tci_build_bind(b, here, 0, 0, false, -1));
    }
    if (s->packs) {
        tci_blocked_fetch_vectors(s, tile->n_vecs, tile->vecs, 0, s->tile);
    }
    if (s->p->fetch_rows) {
        tci_blocked_fetch_rows(s, tile, number);
    }
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        tci_stage_point(b, tile, i);
        tci_stage_assign(b, acc[i],
                         tci_stage_combine(b, red, acc[i], tci_stage_operands(b, red)));
    }
    for (int i = 0; i < s->p->n_inner; i++) {
        tci_build_set(b, st->axes[i], NULL);
    }
    tci_build_close(b, &open);
}

/* Partial sums of point 0 of the current tile; the tile's points follow each other. */
static tci_lin tci_blocked_partial_at(tci_blocked_state *s, tci_lin number)
{
    tci_build *b = s->b;
    tci_lin skip = tci_build_let(b, s->first_row);
    tci_lin row = tci_lin_add(b, s->at.rows[0]->at, tci_lin_mul(b, skip, -1));
    tci_lin tile = tci_lin_mul(b, number, s->at.n_rows * s->tile);
    return tci_lin_add(b, tci_lin_mul(b, row, s->p->columns), tile);
}

/* In depth block lo .. hi. */
static void tci_blocked_if(tci_blocked_state *s, int64_t lo, int64_t hi, tci_lopen *open)
{
    tci_build_if(s->b, tci_build_in_range(s->b, s->block, lo, hi), open);
}

static void tci_blocked_move(tci_blocked_state *s, tci_lin at, int n, const tci_stage_tuple *acc,
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

/* With the sums of earlier parts, which lie at index `at`, added; back: they lie there again. */
static void tci_blocked_join(tci_blocked_state *s, tci_lin at, int n, const tci_stage_tuple *acc,
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

/* A part ends before the stretch that begins at index `from` of the block, part number `part`: its
 * sums join those before it, if there are any, and another one begins. */
static void tci_blocked_next_part(tci_blocked_state *s, tci_lin at, int n,
                                  const tci_stage_tuple *acc, int from, int part)
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
    tci_blocked_join(s, at, n, acc, s->total, true);
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

/* The products of the block, stretch by stretch of the parts that they lie in. */
static void tci_blocked_dot_parts(tci_blocked_state *s, const tci_tile *tile, tci_lin number,
                                  const tci_stage_tuple *acc, tci_lin at)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t inner = s->p->inner, length = s->p->part;
    int n = tile->n_rows * tile->n_vecs;
    tci_lopen open;
    tci_lin before = tci_lin_mul(b, s->first, inner), points = tci_lin_mul(b, s->depth, inner);
    int last = tci_build_lx(b, tci_lin_plus(tci_lin_add(b, before, points), -1));
    int from = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, before), -1, length);
    int to = tci_lx_make(l, TCI_LX_ADD, tci_lx_make(l, TCI_LX_DIV, last, -1, length),
                         tci_lx_const(l, 1), 0);
    tci_lin part = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    tci_lin begin = tci_lin_add(b, tci_lin_mul(b, part, length), tci_lin_mul(b, before, -1));
    from = tci_build_lx(b, begin);
    tci_blocked_next_part(s, at, n, acc, from, tci_build_lx(b, part));
    to = tci_build_lx(b, tci_lin_plus(begin, length));
    to = tci_lx_make(l, TCI_LX_MIN, to, tci_build_lx(b, points), 0);
    tci_blocked_dot(s, tile, number, acc,
                    tci_lx_make(l, TCI_LX_MAX, from, tci_lx_const(l, 0), 0), to);
    tci_build_close(b, &open);
}

/* The later stages for one row after the other, whose sums lie at index `at` of the array. */
static void tci_blocked_finish_rows(tci_blocked_state *s, const tci_tile *tile, tci_lin at)
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

static void tci_blocked_finish(tci_blocked_state *s, const tci_tile *tile,
                               const tci_stage_tuple *acc, tci_lin partial)
{
    tci_build *b = s->b;
    if (s->p->keeps) {
        for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
            tci_stage_point(b, tile, i);
            tci_build_leave(b, b->k->reds[s->p->red].inst, tci_build_copy(b, acc[i].part[0]));
        }
    } else if (s->p->by_rows) {
        tci_blocked_move(s, partial, tile->n_rows * tile->n_vecs, acc, false);
        tci_blocked_finish_rows(s, tile, partial);
    } else {
        for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
            tci_stage_point(b, tile, i);
            tci_stage_remember_result(b, &b->k->reds[s->p->red], acc[i]);
        }
        tci_stage_from(b, tile, 1);
    }
    b->stage = s->p->stage;
}

static void tci_blocked_tile(tci_blocked_state *s, tci_lin number, int64_t count)
{
    tci_build *b = s->b;
    int64_t last = s->p->n_depths - 1;
    tci_tile tile = s->at;
    tile.vec_axis = s->p->vec_axis;
    tile.vecs = tci_blocked_vectors(s, number, count, &tile.n_vecs);
    int n = tile.n_rows * tile.n_vecs;
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    tci_lopen open;
    if (s->row) {
        s->row->origin[s->p->row_axis] = tile.rows[0]->at;
    }
    for (int i = 0; i < n; i++) {
        acc[i] = tci_stage_accumulator(b, &b->k->reds[s->p->red], b->l->lanes);
    }
    tci_lin partial = tci_blocked_partial_at(s, number);
    bool is_part = tci_blocked_is_part(s->p);
    if (last > 0) {
        if (!is_part) {
            tci_blocked_if(s, 1, last, &open);
            tci_blocked_move(s, partial, n, acc, true);
            tci_build_close(b, &open);
        }
        tci_blocked_fetch_partial(s, partial, n);
        tci_blocked_if(s, last, last, &open);
        tci_blocked_fetch_results(s, &tile);
        tci_build_close(b, &open);
    } else {
        tci_blocked_fetch_results(s, &tile);
    }
    if (s->total.part[0] < 0) {
        int points = tci_build_lx(b, tci_lin_mul(b, s->depth, s->p->inner));
        tci_blocked_dot(s, &tile, number, acc, tci_lx_const(b->l, 0), points);
    } else {
        tci_blocked_dot_parts(s, &tile, number, acc, partial);
    }
    if (last > 0 && is_part) {
        tci_blocked_if(s, 1, last, &open);
        tci_blocked_join(s, partial, n, acc, s->partial, false);
        tci_build_close(b, &open);
    }
    if (last > 0) {
        tci_blocked_if(s, 0, last - 1, &open);
        tci_blocked_move(s, partial, n, acc, false);
        tci_build_close(b, &open);
        tci_blocked_if(s, last, last, &open);
    }
    if (s->total.part[0] >= 0) {
        tci_blocked_join(s, partial, n, acc, s->total, false);
    }
    tci_blocked_finish(s, &tile, acc, partial);
    if (last > 0) {
        tci_build_close(b, &open);
    }
    tci_build_set(b, s->p->vec_axis, NULL);
}

/* One row tile: `rows` rows from `at` on, row panel number `panel`. */
static void tci_blocked_row_tile(tci_blocked_state *s, tci_lin at, tci_lin panel, int64_t rows,
                                 void (*body)(tci_blocked_state *))
{
    tci_build *b = s->b;
    tci_dim size = b->k->axes[s->p->row_axis].size;
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
        s->row->origin[s->p->row_axis] = at;
        s->row->base = tci_lin_mul(b, panel, s->p->fused ? s->row_elements : 0);
    }
    body(s);
    tci_build_set(b, s->p->row_axis, NULL);
}

/* Row tiles [begin, end) of `rows` rows; the first row of tile t is t * rows + skip. */
static void tci_blocked_row_loop(tci_blocked_state *s, int begin, int end, int64_t rows,
                                 int64_t skip, void (*body)(tci_blocked_state *))
{
    tci_build *b = s->b;
    tci_lopen open;
    tci_lin tile = tci_lin_var(b, tci_build_for(b, begin, end, 1, &open));
    tci_lin at = tci_lin_plus(tci_lin_mul(b, tile, rows), skip);
    at = tci_build_let(b, tci_build_lx(b, at));
    tci_blocked_row_tile(s, at, tile, rows, body);
    tci_build_close(b, &open);
}

typedef struct tci_blocked_rest {
    tci_blocked_state *s;
    void (*body)(tci_blocked_state *);
} tci_blocked_rest;

static void tci_blocked_rest_body(tci_build *b, void *arg, tci_dim first, int rows)
{
    const tci_blocked_rest *rest = arg;
    (void)b;
    tci_blocked_row_tile(rest->s, tci_lin_const(first), tci_lin_const(0), rows, rest->body);
}

static void tci_blocked_rows(tci_blocked_state *s, int begin, int end,
                             void (*body)(tci_blocked_state *))
{
    tci_loop *l = s->b->l;
    const tci_blocked *p = s->p;
    tci_dim size = s->b->k->axes[p->row_axis].size;
    if (p->extra > 0) {
        int extra = tci_lx_const(l, p->extra);
        tci_blocked_row_loop(s, begin, tci_lx_make(l, TCI_LX_MIN, end, extra, 0), p->base + 1, 0,
                             body);
        begin = tci_lx_make(l, TCI_LX_MAX, begin, extra, 0);
    }
    if (tci_dim_is_known(size)) {
        tci_blocked_row_loop(s, begin, end, p->base, p->extra, body);
        return;
    }
    tci_dim whole = tci_dim_div(size, p->base);
    tci_blocked_rest rest = {s, body};
    tci_lopen open;
    int stop = tci_lx_make(l, TCI_LX_MIN, end, tci_lx_const(l, whole), 0);
    tci_blocked_row_loop(s, begin, stop, p->base, 0, body);
    tci_build_if(s->b, tci_build_in_range(s->b, end, tci_dim_add(whole, 1), p->n_tiles), &open);
    tci_stage_rest_rows(s->b, size, p->base, tci_blocked_rest_body, &rest);
    tci_build_close(s->b, &open);
}

/* ---- the two orders of tiles ---- */

static void tci_blocked_row_body(tci_blocked_state *s)
{
    tci_blocked_pack_rows(s);
    tci_blocked_columns(s, s->chunk, tci_blocked_tile);
}

static void tci_blocked_fused_body(tci_blocked_state *s)
{
    tci_blocked_tile(s, s->number, s->count);
}

/* All row tiles for one tile of columns; the first leaves what it reads in the panel. */
static void tci_blocked_fused_column(tci_blocked_state *s, tci_lin number, int64_t count)
{
    tci_loop *l = s->b->l;
    const tci_blocked *p = s->p;
    bool more = tci_dim_known(p->n_tiles) > 1;
    int one = tci_lx_const(l, 1);
    s->number = number;
    s->count = count;
    s->packs = true;
    s->vec->stage = s->p->stage;
    s->vec->inst = more ? p->vec_inst : -1; /* one row tile needs no panel */
    tci_blocked_row_loop(s, tci_lx_const(l, 0), one, p->base + (p->extra > 0), 0,
                         tci_blocked_fused_body);
    s->packs = false;
    s->vec->stage = -1;
    if (more) {
        tci_blocked_rows(s, one, tci_lx_const(l, p->n_tiles), tci_blocked_fused_body);
    }
}

static void tci_blocked_block(tci_blocked_state *s, int begin, int end)
{
    if (s->p->fused) {
        tci_blocked_rows(s, begin, end, tci_blocked_pack_rows);
        tci_blocked_columns(s, s->chunk, tci_blocked_fused_column);
    } else {
        tci_blocked_pack_vec(s, s->chunk);
        tci_blocked_rows(s, begin, end, tci_blocked_row_body);
    }
}

TCI_FN void tci_blocked_emit(tci_build *b, const tci_blocked *p, tci_lin chunk, int begin, int end)
{
    tci_loop *l = b->l;
    const tci_kstage *st = &b->k->stages[p->stage];
    tci_blocked_state s = {.b = b, .p = p};
    int first = st->axes[0];
    int64_t size = tci_kernel_known(b->k, first);
    tci_lopen open;
    b->stage = p->stage;
    s.chunk = tci_build_lx(b, chunk);
    s.column = tci_lin_mul(b, chunk, p->columns);
    /* first row of the group: see tci_blocked_rows */
    int from = tci_lx_make(l, TCI_LX_MUL, begin, -1, p->base);
    s.first_row = tci_lx_make(l, TCI_LX_ADD, from,
                              tci_lx_make(l, TCI_LX_MIN, begin, tci_lx_const(l, p->extra), 0), 0);
    tci_blocked_make_panels(&s, p->group);
    s.block = tci_lx_const(l, 0);
    s.first = tci_lin_const(0);
    s.depth = tci_lin_const(size);
    if (p->n_depths > 1) {
        int block = tci_build_for(b, s.block, tci_lx_const(l, p->n_depths), 1, &open);
        s.block = tci_lx_var(l, block);
        s.first = tci_lin_mul(b, tci_lin_var(b, block), p->depth);
        int left = tci_build_lx(b, tci_lin_plus(tci_lin_mul(b, s.first, -1), size));
        s.depth = tci_build_let(
            b, tci_lx_make(l, TCI_LX_MIN, left, tci_lx_const(l, p->depth), 0));
    }
    s.vec->origin[first] = s.first;
    if (s.row) {
        s.row->origin[first] = s.first;
    }
    tci_blocked_block(&s, begin, end);
    if (p->n_depths > 1) {
        tci_build_close(b, &open);
    }
    s.vec->inst = -1; /* the panels are this stage's alone */
    if (s.row) {
        s.row->inst = -1;
    }
}
