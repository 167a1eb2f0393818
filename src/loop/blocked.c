/* loop/blocked.c - a contraction whose operands are packed into panels, block by block.
 *
 * In: a kernel whose first stage is one DOT, and its register tile. Out: statements for one block
 * of columns and a range of row tiles.
 *
 *   for each block of the inner points
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
 * Rows and columns are sides: all outer axes that one factor has alone and that the results have
 * in a row, counted as one. A convolution's columns are the places of an image; of its gradient to
 * the filter they are filters, and the rows all else. So tiles are whole whatever the size of an
 * image or a window. Only packing tells the axes of a side apart; behind it the side's last axis
 * stands for all of them, and the others are at 0. Vectors run along either side: packing and
 * storing are dear where memory runs along the other one, and lanes behind a short side are lost.
 *
 * Blocks only cut the FMA chain of a point where it passes through memory, so no choice made here
 * changes a result. A point whose sum is in parts (class SPLIT) begins a chain with each part and
 * adds it to those before in memory: a block is a part where that can be, else a second array of
 * partial sums holds those of the whole parts. Panels and partial sums lie in the thread's work
 * memory. */
#include <string.h>

#include "blocked.h"
#include "cost.h"

enum {
    TCI_BLOCKED_DEPTH = 512,        /* inner points of a block, about */
    TCI_BLOCKED_DEPTH_MOST = 1536,  /* where the first axis cannot be cut finer */
    TCI_BLOCKED_COLUMNS = 256,
    TCI_BLOCKED_PANEL = 512 << 10,  /* bytes of the vector factor in a block, about */
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
    TCI_BLOCKED_PAGES = 64,         /* whose addresses are at hand */
    TCI_BLOCKED_WRITTEN = 8,        /* points of a last inner axis that are no loop in packing */
    TCI_BLOCKED_MOVE = 5,           /* cycles of packing a stretch of at most a vector, */
    TCI_BLOCKED_TURN = 5,           /* of one that is turned in registers, */
    TCI_BLOCKED_GATHER = 1,         /* of an element that is read alone, */
    TCI_BLOCKED_SCATTER = 4,        /* and of one that is written alone, far from the others */
    TCI_BLOCKED_WORTH = 90          /* percent of the time from which turned sides are worth it */
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

/* Does x count the axes `outer` and `inner` as one in row-major order? */
static bool tci_blocked_index_is_flat(const tci_kernel *k, int x, int outer, int inner)
{
    tci_dim to = 0, step = 0, size = k->axes[inner].size;
    return tci_build_coef(k, x, outer, &to) && tci_build_coef(k, x, inner, &step) &&
           tci_dim_is_known(to) && tci_dim_is_known(step) && tci_dim_is_known(size) &&
           tci_dim_known(to) == tci_dim_known(step) * tci_dim_known(size);
}

/* The same of all that these values access. */
static bool tci_blocked_values_are_flat(const tci_kernel *k, const bool *live, int outer, int inner)
{
    bool flat = true;
    for (int i = 0; i < k->n_insts && flat; i++) {
        const tci_kinst *in = &k->insts[i];
        bool depends = tci_build_depends(in->axes, outer) || tci_build_depends(in->axes, inner);
        if (live[i] && depends && in->op != TCI_K_PRIM && in->op != TCI_K_RED) {
            flat = in->op == TCI_K_LOAD && in->n_guards == 0 &&
                   tci_blocked_index_is_flat(k, in->x, outer, inner);
        }
    }
    return flat;
}

/* The same of the later stages. */
static bool tci_blocked_later_is_flat(const tci_kernel *k, int outer, int inner)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    for (int t = 1; t < k->n_stages; t++) {
        tci_cost_mark(k, t, true, live);
    }
    bool flat = tci_blocked_values_are_flat(k, live, outer, inner);
    for (int i = 0; i < k->n_stores; i++) {
        flat = flat && k->stores[i].guard < 0 &&
               tci_blocked_index_is_flat(k, k->stores[i].x, outer, inner);
    }
    return flat;
}

/* How many of the last inner axes count as one for all that a factor loads. */
static int tci_blocked_run(const tci_kernel *k, const tci_blocked *p, int inst)
{
    const int32_t *axes = k->stages[p->stage].axes;
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    live[inst] = true;
    for (int i = inst; i >= 0; i--) {
        for (int a = 0; live[i] && a < k->insts[i].n_args; a++) {
            live[k->insts[i].args[a]] = true;
        }
    }
    int run = 1;
    while (run < p->n_inner && tci_blocked_values_are_flat(k, live, axes[p->n_inner - run - 1],
                                                           axes[p->n_inner - run])) {
        run++;
    }
    return run;
}

/* ---- sides ---- */

static tci_blocked_side tci_blocked_one_axis(const tci_kernel *k, int axis)
{
    tci_blocked_side side = {1, {axis}, k->axes[axis].size};
    return side;
}

/* Has an axis of one factor (own) alone? */
static bool tci_blocked_is_own(uint64_t own, uint64_t other, int axis)
{
    return tci_build_depends(own, axis) && !tci_build_depends(other, axis);
}

/* The side of the factor that alone has the axis `last`. */
static tci_blocked_side tci_blocked_side_of(const tci_kernel *k, uint64_t own, uint64_t other,
                                            int last)
{
    tci_blocked_side side = tci_blocked_one_axis(k, last);
    bool flat = tci_dim_is_known(side.size);
    for (int axis = last - 1; axis >= 0 && flat && side.n_axes < TCI_BLOCKED_AXES; axis--) {
        if (!tci_blocked_is_own(own, other, axis)) {
            continue;
        }
        flat = tci_dim_is_known(k->axes[axis].size) &&
               tci_blocked_later_is_flat(k, axis, side.axes[0]);
        if (flat) {
            memmove(side.axes + 1, side.axes, sizeof(*side.axes) * (size_t)side.n_axes);
            side.axes[0] = axis;
            side.n_axes++;
            side.size = tci_dim_mul(side.size, k->axes[axis].size);
        }
    }
    return side;
}

/* The last outer axis that one factor has and the other lacks: -1 none. */
static int tci_blocked_last(const tci_kernel *k, uint64_t own, uint64_t other)
{
    int axis = k->n_outer - 1;
    while (axis >= 0 && (k->axes[axis].size == 1 || !tci_blocked_is_own(own, other, axis))) {
        axis--;
    }
    return axis;
}

/* Do results lie in a row along the vectors? */
static bool tci_blocked_stores_rows(const tci_kernel *k, const tci_blocked *p)
{
    bool rows = true;
    for (int i = 0; i < k->n_stores; i++) {
        tci_dim coef = 0;
        rows = rows && tci_build_coef(k, k->stores[i].x, p->vec_axis, &coef) && coef == 1;
    }
    return rows;
}

/* Cycles of packing as many elements of the row factor as vectors have lanes. */
static double tci_blocked_row_cycles(const tci_kernel *k, int lanes, const tci_blocked *p)
{
    const int32_t *axes = k->stages[p->stage].axes;
    int last = axes[p->n_inner - 1];
    double run = 1;
    if (p->row_by_vector) {
        return TCI_BLOCKED_MOVE;
    }
    if (!tci_blocked_examine(k, p->row_inst, last).contiguous) {
        return TCI_BLOCKED_GATHER * lanes;
    }
    for (int i = 1; i <= p->row_run; i++) {
        run *= (double)tci_kernel_known(k, axes[p->n_inner - i]);
    }
    return TCI_BLOCKED_MOVE * (run < lanes ? lanes / TCI_MAX(run, 1) : 1);
}

/* Cycles of packing a vector of columns for one inner point. */
static double tci_blocked_column_cycles(const tci_kernel *k, int lanes, const tci_blocked *p)
{
    double run = (double)TCI_MAX(tci_kernel_known(k, p->vec_axis), 1);
    if (!p->vec_by_vector) {
        return p->squares ? TCI_BLOCKED_TURN : TCI_BLOCKED_GATHER * lanes;
    }
    bool parted = p->of_columns.n_axes > 1 && run < lanes;
    return TCI_BLOCKED_MOVE * (parted ? lanes / run : 1);
}

/* Cycles of packing columns, which serve all rows, of packing rows for each block of columns, and
 * of storing results, over those of multiplying. */
static double tci_blocked_beside(const tci_kernel *k, tci_machine machine, int lanes,
                                 const tci_blocked *p)
{
    double rows = (double)TCI_MAX(tci_dim_hint(p->of_rows.size), 1), depth = 1;
    double columns = (double)TCI_MIN(tci_dim_known(p->of_columns.size), TCI_BLOCKED_COLUMNS);
    for (int i = 0; i < p->n_inner; i++) {
        depth *= (double)tci_kernel_known(k, k->stages[p->stage].axes[i]);
    }
    double store = tci_blocked_stores_rows(k, p) ? 0 : TCI_BLOCKED_SCATTER * lanes;
    return machine.facts.ports * (tci_blocked_column_cycles(k, lanes, p) / rows +
                                  tci_blocked_row_cycles(k, lanes, p) / TCI_MAX(columns, 1) +
                                  store / TCI_MAX(depth, 1));
}

/* The rows' and the columns' factors and what is to know of them, but for sides of several axes. */
static bool tci_blocked_factors(const tci_kernel *k, int lanes, int vec, tci_blocked *p)
{
    const tci_kred *red = &k->reds[p->red];
    const tci_kstage *st = &k->stages[p->stage];
    p->vec_inst = red->in[vec];
    p->row_inst = red->in[1 - vec];
    uint64_t columns = k->insts[p->vec_inst].axes, rows = k->insts[p->row_inst].axes;
    int last = st->axes[p->n_inner - 1];
    if (!tci_blocked_is_own(columns, rows, p->vec_axis) ||
        !tci_blocked_is_own(rows, columns, p->row_axis) || !tci_build_depends(columns, last) ||
        !tci_build_depends(rows, last) || k->insts[p->vec_inst].dtype == TC_BOOL) {
        return false;
    }
    p->of_columns = tci_blocked_one_axis(k, p->vec_axis);
    p->of_rows = tci_blocked_one_axis(k, p->row_axis);
    p->vec_by_vector = tci_blocked_examine(k, p->vec_inst, p->vec_axis).contiguous;
    p->row_by_vector = tci_blocked_examine(k, p->row_inst, p->row_axis).contiguous;
    p->squares = !p->vec_by_vector && p->n_inner == 1 && lanes <= TCI_BLOCKED_SQUARE;
    p->row_run = p->row_by_vector ? 1 : tci_blocked_run(k, p, p->row_inst);
    return true;
}

/* With factor `vec` of the DOT along the vectors; false where it has no columns or the other one no
 * rows, or too few. */
static bool tci_blocked_take(const tci_kernel *k, tci_machine machine, int lanes, int vec,
                             tci_blocked *p)
{
    uint64_t columns = k->insts[k->reds[0].in[vec]].axes;
    uint64_t rows = k->insts[k->reds[0].in[1 - vec]].axes;
    p->vec_axis = tci_blocked_last(k, columns, rows);
    p->row_axis = tci_blocked_last(k, rows, columns);
    if (p->vec_axis < 0 || p->row_axis < 0 || !tci_dim_is_known(k->axes[p->vec_axis].size) ||
        !tci_blocked_factors(k, lanes, vec, p)) {
        return false;
    }
    p->of_columns = tci_blocked_side_of(k, columns, rows, p->vec_axis);
    p->of_rows = tci_blocked_side_of(k, rows, columns, p->row_axis);
    p->row_by_vector = p->row_by_vector && p->of_rows.n_axes == 1;
    p->beside = tci_blocked_beside(k, machine, lanes, p);
    int64_t size = tci_dim_known(p->of_columns.size);
    p->lost = (double)(tci_ceil_div(size, lanes) * lanes) / (double)size;
    return size >= lanes && tci_dim_hint(p->of_rows.size) >= TCI_BLOCKED_REUSE;
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
    for (int a = k->n_outer; a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size); /* the depth, which panels hold */
    }
    return fits;
}

TCI_FN bool tci_blocked_sides(const tci_kernel *k, tci_machine machine, int lanes, tci_blocked *p)
{
    if (!tci_blocked_fits(k, machine, lanes)) {
        return false;
    }
    int last = k->n_outer - 1; /* where results mostly lie in a row */
    int vec = tci_build_depends(k->insts[k->reds[0].in[0]].axes, last) ? 0 : 1;
    p->stage = p->red = 0;
    p->n_inner = k->stages[0].n_axes;
    tci_blocked other = *p;
    bool fits = tci_blocked_take(k, machine, lanes, vec, p);
    if (!tci_blocked_take(k, machine, lanes, 1 - vec, &other)) {
        return fits;
    }
    double now = p->lost * (1 + p->beside), turned = other.lost * (1 + other.beside);
    if (!fits || 100 * turned < TCI_BLOCKED_WORTH * now) {
        *p = other;
        p->is_turned = true;
    }
    return true;
}

TCI_FN bool tci_blocked_has(const tci_blocked *p, int axis)
{
    bool has = false;
    for (int i = 0; i < p->of_rows.n_axes; i++) {
        has = has || p->of_rows.axes[i] == axis;
    }
    for (int i = 0; i < p->of_columns.n_axes; i++) {
        has = has || p->of_columns.axes[i] == axis;
    }
    return has;
}

/* ---- blocks ---- */

/* The first inner axis that blocks can cut without being too deep: fills p->cut, p->inner. */
static void tci_blocked_find_cut(const tci_kernel *k, tci_blocked *p)
{
    const tci_kstage *st = &k->stages[p->stage];
    p->cut = p->n_inner - 1;
    p->inner = 1;
    while (p->cut > 0) {
        int64_t size = tci_kernel_known(k, st->axes[p->cut]);
        if (size > TCI_BLOCKED_DEPTH_MOST / p->inner) {
            break;
        }
        p->inner *= size;
        p->cut--;
    }
}

/* Cuts the depth into parts of the sums, or even blocks; false where a block would be too deep. */
static bool tci_blocked_cut_depth(const tci_kernel *k, tci_blocked *p)
{
    const tci_kstage *st = &k->stages[p->stage];
    tci_blocked_find_cut(k, p);
    int64_t size = tci_kernel_known(k, st->axes[p->cut]), before = 1;
    for (int i = 0; i < p->cut; i++) {
        before *= tci_kernel_known(k, st->axes[i]);
    }
    if (p->inner <= 0 || size <= 0 || before <= 0) {
        return false;
    }
    p->part = k->reds[p->red].order == TCI_ORDER_SPLIT ? k->reds[p->red].order_n : 0;
    int64_t part = p->part % p->inner == 0 && !p->fused ? p->part / p->inner : 0;
    part = before == 1 || (part > 0 && size % part == 0) ? part : 0;
    int64_t aim = p->fused ? TCI_BLOCKED_SHALLOW : TCI_BLOCKED_DEPTH;
    int64_t most = p->depth > 0 ? p->depth : TCI_MAX(aim / p->inner, 1);
    if (p->depth > TCI_BLOCKED_DEPTH_MOST / p->inner) {
        return false;
    }
    bool free = p->depth == 0 || p->depth == part;
    p->depth = tci_ceil_div(size, tci_ceil_div(size, most));
    if (part > 0 && free) {
        p->depth = part; /* a block is a part */
    } else if (p->depth < size && p->inner == 1) { /* whole squares */
        p->depth = tci_ceil_div(p->depth, TCI_BLOCKED_EVEN) * TCI_BLOCKED_EVEN;
    }
    p->n_depths = tci_ceil_div(size, p->depth) * before;
    p->is_part = part > 0 && p->depth == part;
    return true;
}

/* The columns of a block, and the row tiles that share it. */
static void tci_blocked_cut_points(const tci_kernel *k, int lanes, tci_blocked *p)
{
    int64_t columns = tci_dim_known(p->of_columns.size), tile = (int64_t)p->unroll * lanes;
    int64_t bytes = tci_dtype_get((tc_dtype)k->reds[p->red].dtype)->bytes;
    int64_t block = TCI_BLOCKED_PANEL / (p->depth * p->inner * bytes);
    block = TCI_MAX(TCI_MIN(block, TCI_BLOCKED_COLUMNS), 1);
    if (p->fused) {
        block = TCI_MAX(TCI_MIN(columns / TCI_BLOCKED_PIECES, TCI_BLOCKED_LONG), block);
    }
    block = p->columns > 0 ? p->columns : block;
    p->columns = tci_ceil_div(TCI_MIN(columns, block), tile) * tile;
    int64_t sums = p->columns * (p->base + 1) * bytes;
    int64_t n_tiles = TCI_MIN(tci_dim_most(p->n_tiles), (int64_t)1 << 30);
    int64_t pieces = tci_ceil_div(n_tiles * sums, TCI_BLOCKED_PARTIAL);
    p->group = TCI_MAX(tci_ceil_div(n_tiles, TCI_MAX(pieces, 1)), 1);
    p->share = p->fused ? p->group : 1;
}

TCI_FN bool tci_blocked_plan_row(const tci_kernel *k, int lanes, tci_blocked *p)
{
    const tci_kstage *st = &k->stages[p->stage];
    const tci_kred *red = &k->reds[p->red];
    p->n_inner = st->n_axes - st->n_kept;
    p->vec_axis = st->axes[st->n_axes - 1];
    p->keeps = true;
    if (p->n_inner == 0 || st->n_kept != 1 || red->op != TCI_RED_DOT) {
        return false;
    }
    int vec = tci_build_depends(k->insts[red->in[0]].axes, p->vec_axis) ? 0 : 1;
    if (!tci_blocked_factors(k, lanes, vec, p)) {
        return false;
    }
    p->is_row_there = k->insts[p->row_inst].op == TCI_K_RED;
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
    const tci_kstage *st = &k->stages[0];
    const tci_kinst *one = &k->insts[p->vec_inst], *other = &k->insts[p->row_inst];
    tci_blocked_look vec = tci_blocked_examine(k, p->vec_inst, p->vec_axis);
    tci_blocked_look row = tci_blocked_examine(k, p->row_inst, p->row_axis);
    bool few = tci_dim_le(p->n_tiles, TCI_BLOCKED_FEW_TILES) && tci_dim_is_known(p->of_rows.size);
    bool parted = p->of_columns.n_axes > 1;
    p->fetch_vectors = one->op == TCI_K_LOAD && one->n_guards == 0 && vec.contiguous &&
                       p->n_inner == 1 && !parted;
    p->fetch_rows = other->op == TCI_K_LOAD && other->n_guards == 0 && !row.contiguous &&
                    p->n_inner == 1 && !few && p->of_rows.n_axes == 1;
    p->fused = few && p->fetch_vectors;
    if (!tci_blocked_cut_depth(k, p)) {
        return false;
    }
    int64_t columns = tci_dim_known(p->of_columns.size);
    int64_t bytes = columns * tci_dtype_get((tc_dtype)one->dtype)->bytes;
    for (int i = 0; i < p->n_inner; i++) {
        bytes *= tci_kernel_known(k, st->axes[i]);
    }
    bool costly = vec.strided || vec.computed || row.computed || parted || p->is_turned ||
                  p->of_rows.n_axes > 1 || (!few && tci_blocked_is_crowded(k, p));
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
    tci_lin before;         /* products of a point before the block */
    const tci_bind **fixed; /* the block's place on the inner axes before the cut one */
    tci_lin first, depth;   /* of the cut inner axis */
    const tci_bind *zero;
    tci_lin whole;          /* depth with the points where all row factors are +0 */
    tci_stage_tuple zeros;  /* local array: sums of the products of +0 at these; -1 none */
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
    for (int i = s->p->n_inner - 1; i >= s->p->cut; i--) {
        keep->coef[st->axes[i]] = step;
        step *= tci_kernel_known(s->b->k, st->axes[i]);
    }
}

/* Positions of the points of a side: `step` elements apart. */
static void tci_blocked_side_coefs(const tci_blocked_state *s, const tci_blocked_side *side,
                                   tci_lkeep *keep, int64_t step)
{
    for (int i = side->n_axes - 1; i >= 0; i--) {
        keep->coef[side->axes[i]] = step;
        step *= i > 0 ? tci_kernel_known(s->b->k, side->axes[i]) : 1;
    }
}

/* The axes of a side but for the last one at `bind`. */
static void tci_blocked_set_others(tci_blocked_state *s, const tci_blocked_side *side,
                                   const tci_bind *bind)
{
    for (int i = 0; i < side->n_axes - 1; i++) {
        tci_build_set(s->b, side->axes[i], bind);
    }
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
        tci_blocked_side_coefs(s, &p->of_rows, s->row, p->row_by_vector ? 1 : s->row_step);
    }
    s->vec = tci_build_keep(b, p->vec_inst, tci_blocked_local(b, vec_elements, vec_type), -1);
    s->vec->is_padded = true;
    tci_blocked_inner_coefs(s, s->vec, s->tile);
    tci_blocked_side_coefs(s, &p->of_columns, s->vec, 1);
    s->partial = s->total = s->zeros = tci_stage_tuple_of(-1, -1);
    if (p->n_depths > 1 || p->by_rows) {
        s->partial.part[0] = tci_blocked_local(b, group * rows * p->columns, (tc_dtype)red->dtype);
    }
    if (p->masked && !p->hides_columns) {
        s->zeros.part[0] = tci_blocked_local(b, p->columns, (tc_dtype)red->dtype);
    }
    if (p->part > 0 && !p->is_part) {
        s->total.part[0] = tci_blocked_local(b, group * rows * p->columns, (tc_dtype)red->dtype);
    }
}

/* Loops over the inner axes but for the last `without`; the cut one over the current block. */
static tci_lopen *tci_blocked_open(tci_blocked_state *s, int without)
{
    tci_build *b = s->b;
    const tci_kstage *st = &b->k->stages[s->p->stage];
    tci_lopen *open = TCI_NEW_ARRAY(b->s, tci_lopen, s->p->n_inner + 1);
    for (int i = 0; i < s->p->n_inner - without; i++) {
        int64_t size = tci_kernel_known(b->k, st->axes[i]);
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
                      tci_build_bind(b, tci_lin_var(b, at), 0, size - 1, false, -1));
    }
    return open;
}

static void tci_blocked_close(tci_blocked_state *s, int without, const tci_lopen *open)
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
    int64_t lanes = b->l->lanes, size = tci_dim_known(s->p->of_columns.size);
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

/* Are all columns of a block packed for one inner point after the other? */
static bool tci_blocked_packs_all(const tci_blocked *p)
{
    return p->vec_by_vector && p->of_columns.n_axes == 1;
}

/* Vectors of a stretch of the last axis of the columns, for all inner points of the block. */
static void tci_blocked_pack_stretch(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    tci_blocked_state *s = arg;
    int last = s->p->n_inner - 1, axis = b->k->stages[s->p->stage].axes[last];
    int64_t size = tci_kernel_known(b->k, axis);
    bool short_axis = last > s->p->cut && size <= TCI_BLOCKED_WRITTEN;
    tci_lopen *open = tci_blocked_open(s, short_axis);
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
    tci_blocked_close(s, short_axis, open);
}

/* A tile of columns of several axes: for each point of those before the last one that it touches,
 * the stretch of the last one. */
static void tci_blocked_pack_stretches(tci_blocked_state *s, tci_lin tile, int64_t count)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    const tci_blocked_side *side = &s->p->of_columns;
    const tci_bind *digits[TCI_BLOCKED_AXES];
    int64_t run = tci_kernel_known(b->k, s->p->vec_axis);
    tci_lin at = tci_lin_add(b, s->column, tci_lin_mul(b, tile, s->tile));
    tci_lopen open;
    at = tci_build_let(b, tci_build_lx(b, at));
    s->vec->origin[s->p->vec_axis] = at;
    s->vec->base = tci_lin_mul(b, tile, s->tile_step);
    s->vec->is_padded = false; /* the next stretch follows */
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
    tci_stage_vectors_dynamic(b, begin, end, -1, 0, run - 1, 1, tci_blocked_pack_stretch, s);
    tci_blocked_set_others(s, side, NULL);
    s->vec->is_padded = true;
    tci_build_close(b, &open);
}

static void tci_blocked_pack_vectors(tci_blocked_state *s, tci_lin tile, int64_t count)
{
    tci_build *b = s->b;
    int n;
    if (s->p->of_columns.n_axes > 1) {
        tci_blocked_pack_stretches(s, tile, count);
        return;
    }
    const tci_bind **vecs = tci_blocked_vectors(s, tile, count, &n);
    tci_lin first = s->first, depth = s->depth;
    if (s->p->squares) {
        s->first = tci_blocked_pack_squares(s, n, vecs);
        s->depth = tci_lin_add(b, tci_lin_add(b, first, depth), tci_lin_mul(b, s->first, -1));
    }
    tci_lopen *open = tci_blocked_packs_all(s->p) ? NULL : tci_blocked_open(s, 0);
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

/* The columns that the rows at hand see, of rows that are cut; -1: all. */
static int tci_blocked_seen(tci_blocked_state *s)
{
    const tci_blocked *p = s->p;
    if (!p->masked || !p->hides_columns) {
        return -1;
    }
    return s->at.n_rows > 0 ? tci_cut_end(s->b, p->masked, s->at.rows[s->at.n_rows - 1]->at)
                            : p->ends;
}

/* Whole tiles of the block, and (if this is the last one) what is left of the axis; body(s, tile,
 * columns). */
static void tci_blocked_columns(tci_blocked_state *s, int chunk,
                                void (*body)(tci_blocked_state *, tci_lin, int64_t))
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t size = tci_dim_known(s->p->of_columns.size), rest = size % s->tile;
    int64_t most = s->p->columns / s->tile, whole = size / s->tile;
    int64_t n_chunks = tci_ceil_div(size, s->p->columns);
    tci_lopen open;
    int end = tci_lx_const(l, TCI_MIN(most, whole)), seen = tci_blocked_seen(s);
    if (whole < n_chunks * most && n_chunks > 1) {
        int left = tci_lx_make(l, TCI_LX_MUL, chunk, -1, -most);
        left = tci_lx_make(l, TCI_LX_ADD, left, tci_lx_const(l, whole), 0);
        end = tci_lx_make(l, TCI_LX_MIN, left, tci_lx_const(l, most), 0);
    }
    if (seen >= 0) {
        int tiles = tci_lx_make(l, TCI_LX_ADD, seen, tci_lx_const(l, s->tile - 1), 0);
        tiles = tci_lx_make(l, TCI_LX_DIV, tiles, -1, s->tile);
        int left = tci_lx_make(l, TCI_LX_ADD, tiles, tci_lx_make(l, TCI_LX_MUL, chunk, -1, -most),
                               0);
        end = tci_lx_make(l, TCI_LX_MIN, end, left, 0);
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
    tci_lopen *open = tci_blocked_packs_all(s->p) ? tci_blocked_open(s, 0) : NULL;
    s->vec->stage = s->p->stage;
    tci_blocked_columns(s, chunk, tci_blocked_pack_vectors);
    s->vec->stage = -1;
    if (open) {
        tci_blocked_close(s, 0, open);
    }
}

/* What the block adds to a sum where its row factors are +0: -0, +0 where a product is, or NaN; so
 * all rows share one sum of them. */
static void tci_blocked_zero_vectors(tci_blocked_state *s, tci_lin tile, int64_t count)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[s->p->red];
    tci_value zero = {.i = 0};
    int n, axis = b->k->stages[s->p->stage].axes[0];
    const tci_bind **vecs = tci_blocked_vectors(s, tile, count, &n);
    int none = tci_build_const(b, (tc_dtype)b->k->insts[s->p->row_inst].dtype, zero);
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n + 1);
    tci_lopen open;
    for (int i = 0; i < n; i++) {
        acc[i] = tci_stage_total(b, red, b->l->lanes);
    }
    int from = tci_build_lx(b, tci_lin_add(b, s->first, s->depth));
    int to = tci_build_lx(b, tci_lin_add(b, s->first, s->whole));
    int64_t size = tci_kernel_known(b->k, axis);
    s->vec->inst = -1; /* these points are in no panel */
    int at = tci_build_for(b, from, to, 1, &open);
    tci_build_set(b, axis, tci_build_bind(b, tci_lin_var(b, at), 0, size - 1, false, -1));
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

static void tci_blocked_add_zeros(tci_blocked_state *s, const tci_tile *tile, tci_lin number,
                                  const tci_stage_tuple *acc)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[s->p->red];
    tci_lin column = tci_lin_mul(b, number, s->tile);
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        int64_t vector = i % tile->n_vecs;
        int x = tci_build_lx(b, tci_lin_plus(column, vector * b->l->lanes));
        tci_stage_assign(b, acc[i], tci_stage_joined(b, red, acc[i],
                                                     tci_stage_array_get(b, red, s->zeros, x)));
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

/* The stretch of the last inner axes that the current row has in the block. */
static void tci_blocked_pack_run(tci_blocked_state *s)
{
    tci_build *b = s->b;
    const tci_blocked *p = s->p;
    const tci_kstage *st = &b->k->stages[p->stage];
    int first = TCI_MAX(p->n_inner - p->row_run, p->cut);
    int64_t size = tci_kernel_known(b->k, st->axes[p->n_inner - 1]);
    for (int i = first; i < p->n_inner - 1; i++) {
        tci_build_set(b, st->axes[i], s->zero);
        size *= tci_kernel_known(b->k, st->axes[i]);
    }
    if (first == p->cut && p->n_depths > 1) {
        tci_lin at = tci_lin_mul(b, s->first, p->inner);
        int from = tci_build_lx(b, at);
        int to = tci_build_lx(b, tci_lin_add(b, at, tci_lin_mul(b, s->depth, p->inner)));
        tci_stage_vectors_dynamic(b, from, to, -1, 0, size - 1, TCI_BLOCKED_UNROLL,
                                  tci_blocked_pack_along, s);
    } else {
        tci_stage_vectors(b, 0, size, TCI_BLOCKED_UNROLL, tci_blocked_pack_along, s);
    }
    for (int i = first; i < p->n_inner - 1; i++) {
        tci_build_set(b, st->axes[i], NULL);
    }
}

/* One row after the other, each in long runs. */
static void tci_blocked_pack_each(tci_blocked_state *s)
{
    tci_build *b = s->b;
    const tci_blocked *p = s->p;
    const tci_blocked_side *side = &p->of_rows;
    const tci_bind *first = s->at.rows[0], *last = s->at.rows[s->at.n_rows - 1];
    const tci_bind *digits[TCI_BLOCKED_AXES];
    tci_lopen open;
    tci_lin row = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0),
                                               tci_lx_const(b->l, s->at.n_rows), 1, &open));
    row = tci_lin_add(b, first->at, row);
    if (side->n_axes > 1) {
        tci_build_digits(b, side->n_axes, side->axes, row, digits);
    } else {
        digits[0] = tci_build_bind(b, row, first->lo, last->hi, false, -1);
    }
    for (int i = 0; i < side->n_axes; i++) {
        tci_build_set(b, side->axes[i], digits[i]);
    }
    int runs = TCI_MIN(p->row_run, p->n_inner - p->cut);
    tci_lopen *inner = tci_blocked_open(s, runs);
    tci_blocked_pack_run(s);
    tci_blocked_close(s, runs, inner);
    tci_blocked_set_others(s, side, s->zero);
    tci_build_set(b, p->row_axis, NULL);
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
        here = i == s->p->cut ? tci_lin_add(b, here, s->first) : here;
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
    tci_lin before = s->before, points = tci_lin_mul(b, s->depth, inner);
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
    tci_blocked_set_others(s, &s->p->of_columns, s->zero);
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
    bool is_part = s->p->is_part;
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
    if (s->zeros.part[0] >= 0) {
        tci_blocked_add_zeros(s, &tile, number, acc);
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
    tci_blocked_set_others(s, &s->p->of_columns, NULL);
    tci_build_set(b, s->p->vec_axis, NULL);
}

/* One row tile: `rows` rows from `at` on, row panel number `panel`. */
static void tci_blocked_row_tile(tci_blocked_state *s, tci_lin at, tci_lin panel, int64_t rows,
                                 void (*body)(tci_blocked_state *))
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
        s->row->origin[s->p->row_axis] = at;
        s->row->base = tci_lin_mul(b, panel, s->p->fused ? s->row_elements : 0);
    }
    tci_blocked_set_others(s, &s->p->of_rows, s->zero);
    body(s);
    tci_blocked_set_others(s, &s->p->of_rows, NULL);
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
    tci_dim size = p->of_rows.size;
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
        s->at.n_rows = 0;
        tci_blocked_pack_vec(s, s->chunk);
        if (s->zeros.part[0] >= 0) {
            tci_blocked_columns(s, s->chunk, tci_blocked_zero_vectors);
        }
        tci_blocked_rows(s, begin, end, tci_blocked_row_body);
    }
}

/* Where depth block `block` lies on the inner axes. */
static void tci_blocked_place(tci_blocked_state *s, tci_lin block)
{
    tci_build *b = s->b;
    const tci_blocked *p = s->p;
    const int32_t *axes = b->k->stages[p->stage].axes;
    int64_t size = tci_kernel_known(b->k, axes[p->cut]);
    tci_lin skipped = tci_lin_const(0);
    if (p->cut > 0) {
        int64_t blocks = tci_ceil_div(size, p->depth);
        tci_lin point = tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, s->block, -1, blocks));
        tci_build_digits(b, p->cut, axes, point, s->fixed);
        block = tci_lin_add(b, block, tci_lin_mul(b, point, -blocks));
        skipped = tci_lin_mul(b, point, size * p->inner);
    }
    s->first = tci_lin_mul(b, block, p->depth);
    s->before = tci_lin_add(b, skipped, tci_lin_mul(b, s->first, p->inner));
    int left = tci_build_lx(b, tci_lin_plus(tci_lin_mul(b, s->first, -1), size));
    s->depth = tci_build_let(
        b, tci_lx_make(b->l, TCI_LX_MIN, left, tci_lx_const(b->l, p->depth), 0));
}

TCI_FN void tci_blocked_emit(tci_build *b, const tci_blocked *p, tci_lin chunk, int begin, int end)
{
    tci_loop *l = b->l;
    const tci_kstage *st = &b->k->stages[p->stage];
    tci_blocked_state s = {.b = b, .p = p};
    int cut = st->axes[p->cut];
    int64_t size = tci_kernel_known(b->k, cut);
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
    s.before = s.first = tci_lin_const(0);
    s.depth = tci_lin_const(size);
    s.fixed = TCI_NEW_ARRAY(b->s, const tci_bind *, p->n_inner);
    s.zero = tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1);
    if (p->n_depths > 1) {
        int block = tci_build_for(b, s.block, tci_lx_const(l, p->n_depths), 1, &open);
        s.block = tci_lx_var(l, block);
        tci_blocked_place(&s, tci_lin_var(b, block));
    }
    s.whole = s.depth;
    if (p->masked && !p->hides_columns) {
        int left = tci_build_lx(b, tci_lin_mul(b, s.first, -1));
        left = tci_lx_make(l, TCI_LX_ADD, p->ends, left, 0);
        left = tci_lx_make(l, TCI_LX_MAX, left, tci_lx_const(l, 0), 0);
        s.depth = tci_build_let(b, tci_lx_make(l, TCI_LX_MIN, left, tci_build_lx(b, s.whole), 0));
    }
    s.vec->origin[cut] = s.first;
    if (s.row) {
        s.row->origin[cut] = s.first;
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
