/* loop/gemm_blocking.c - chooses the cache blocking of the packed GEMM: the sizes MC, NC and KC.
 *
 * In: its M and N axes and its register tile. Out: the rest of a tci_gemm. A block is bounded in
 * depth (the k values of a panel) and in columns; in class SPLIT one partial sum is one K block
 * where possible. */
#include "stage_op_count.h"
#include "gemm_operands.h"

enum {
    TCI_GEMM_DEPTH = 512,        /* inner points of a block, about */
    TCI_GEMM_DEPTH_MOST = 1536,  /* where the first axis cannot be cut finer */
    TCI_GEMM_PANEL = 512 << 10,  /* bytes of the vector factor in a block, about */
    TCI_GEMM_FEW_TILES = 4,      /* row tiles up to which memory is the limit, not the panel */
    TCI_GEMM_SHALLOW = 24,       /* DEPTH there: this many lines of a set that a cache can hold */
    TCI_GEMM_LONG = 1024,        /* COLUMNS there, at most: long runs of memory */
    TCI_GEMM_PIECES = 2,         /* blocks of columns to have there, for each thread */
    TCI_GEMM_NARROW = 64,        /* COLUMNS for the threads' sake, at least, */
    TCI_GEMM_GAIN = 95,          /* and percent of the time from which that is worth it */
    TCI_GEMM_PARTIAL = 1 << 22,  /* bytes of partial sums */
    TCI_GEMM_BY_ROWS = 8,        /* flops of the later stages from which they are a loop */
    TCI_GEMM_EVEN = 16,          /* depths are a multiple */
    TCI_GEMM_UNIT_WORDS = 320,   /* elements of DEPTH, and COLUMNS, of a unit's blocks: there */
    TCI_GEMM_UNIT_COLUMNS = 512, /* sums that come and go, and rows packed again, cost more */
    TCI_GEMM_STEPS = 4,          /* inner points of a tile that are written out, */
    TCI_GEMM_STEPS_MOST = 9,     /* at most, and */
    TCI_GEMM_STEPS_LEAST = 3     /* at least where they are a loop in another one */
};

/* ---- blocks ---- */

/* The first inner axis that blocks can cut without being too deep: fills p->cut, p->inner. */
static void tci_gemm_find_cut(const tci_kernel *k, tci_gemm *p)
{
    const tci_kstage *st = &k->stages[p->stage];
    p->cut = p->n_inner - 1;
    p->inner = 1;
    while (p->cut > 0) {
        int64_t size = tci_kernel_known(k, st->axes[p->cut]);
        if (size > TCI_GEMM_DEPTH_MOST / p->inner) {
            break;
        }
        p->inner *= size;
        p->cut--;
    }
}

/* Cuts the depth into parts of the sums, or even blocks; false where a block would be too deep. */
static bool tci_gemm_cut_depth(const tci_kernel *k, tci_gemm *p)
{
    const tci_kstage *st = &k->stages[p->stage];
    tci_gemm_find_cut(k, p);
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
    int points = tci_gemm_points(k, p);
    int64_t aim = p->fused     ? TCI_GEMM_SHALLOW
                  : p->on_unit ? TCI_GEMM_UNIT_WORDS * points
                               : TCI_GEMM_DEPTH;
    int64_t most = p->depth > 0 ? p->depth : TCI_MAX(aim / p->inner, 1);
    if (p->depth > TCI_GEMM_DEPTH_MOST / p->inner) {
        return false;
    }
    bool free = p->depth == 0 || p->depth == part;
    p->depth = tci_ceil_div(size, tci_ceil_div(size, most));
    if (part > 0 && free) {
        p->depth = part;          /* a block is a part */
    } else if (p->depth < size) { /* whole steps of a unit, square tiles, or elements */
        int64_t whole = p->on_unit ? tci_gemm_step(k, p) : p->inner == 1 ? TCI_GEMM_EVEN : points;
        whole /= tci_lx_gcd(p->inner, whole);
        p->depth = tci_ceil_div(p->depth, whole) * whole;
    }
    int64_t n_depths = tci_ceil_div(size, p->depth) * before;
    p->n_depths = n_depths;
    p->is_part = part > 0 && p->depth == part;
    /* no element belongs to two parts, or begins in the block before */
    bool even = p->part % points == 0 && (p->depth * p->inner % points == 0 || n_depths == 1) &&
                (before == 1 || size * p->inner % points == 0);
    bool several = (p->on_unit || !p->keeps) && (p->part == 0 || p->is_part || even);
    p->points = several ? points : 1;
    return true;
}

/* Time of each thread by blocks of this many columns: it packs those of blocks that it works on,
 * and rows again for each, and waits for half of what another one took last. */
static double tci_gemm_thread_ns(const tci_kernel *k, tci_machine machine, int lanes,
                                 const tci_gemm *p, int64_t columns)
{
    const tc_machine *m = &machine.facts;
    int threads = tci_machine_threads(&machine);
    double size = (double)TCI_MAX(tci_dim_known(p->of_columns.size), 1);
    double blocks = (double)tci_ceil_div((int64_t)size, columns), width = size / blocks;
    double tiles = (double)TCI_MAX(tci_dim_hint(p->n_tiles), 1);
    double points = (double)TCI_MAX(tci_dim_hint(p->of_rows.size), 1) / tiles;
    for (int a = 0; a < k->n_outer; a++) {
        blocks *= tci_gemm_has(p, a) ? 1 : (double)TCI_MAX(tci_dim_hint(k->axes[a].size), 1);
    }
    for (int i = 0; i < p->n_inner; i++) {
        points *= (double)tci_kernel_known(k, k->stages[p->stage].axes[i]);
    }
    double pack_ns = tci_gemm_pack_ns(k, machine, lanes, p, width);
    double column_cycles = width / tci_gemm_vectors_per_cycle(k, machine, p);
    double tile_ns = points / (m->ghz * lanes) * (column_cycles + tci_gemm_row_cycles(k, lanes, p));
    return TCI_MAX(blocks / threads, 1) * pack_ns + blocks * tiles * tile_ns / threads +
           (pack_ns + tile_ns) / 2;
}

/* At most this many columns: fewer where threads have more to gain by it than is lost. */
static int64_t tci_gemm_narrow(const tci_kernel *k, tci_machine machine, int lanes,
                               const tci_gemm *p, int64_t columns)
{
    int64_t tile = (int64_t)p->unroll * lanes, best = columns, fewer = columns;
    int64_t least = tci_ceil_div(TCI_GEMM_NARROW, tile) * tile;
    double ns = tci_gemm_thread_ns(k, machine, lanes, p, columns);
    for (int64_t parts = 2; fewer > least; parts *= 2) {
        fewer = TCI_MAX(tci_ceil_div(tci_ceil_div(columns, parts), tile) * tile, least);
        double there = tci_gemm_thread_ns(k, machine, lanes, p, fewer);
        if (100 * there < TCI_GEMM_GAIN * ns) {
            best = fewer;
            ns = there;
        }
    }
    return best;
}

/* The columns of a block, and the row tiles that share it. */
static void tci_gemm_cut_points(const tci_kernel *k, tci_machine machine, int lanes, tci_gemm *p)
{
    int64_t columns = tci_dim_known(p->of_columns.size), tile = (int64_t)p->unroll * lanes;
    int64_t bytes = tci_dtype_get((tc_dtype)k->reds[p->red].dtype)->bytes;
    int64_t block = TCI_GEMM_PANEL / (p->depth * p->inner * bytes) * p->points;
    int64_t most = p->on_unit ? TCI_GEMM_UNIT_COLUMNS : TCI_GEMM_COLUMNS;
    block = TCI_MAX(TCI_MIN(p->on_unit ? 2 * block : block, most), 1);
    if (p->fused) {
        int pieces = TCI_GEMM_PIECES * tci_machine_threads(&machine);
        block = TCI_MAX(TCI_MIN(columns / pieces, TCI_GEMM_LONG), block);
    }
    bool is_free = p->columns == 0;
    block = is_free ? block : p->columns;
    p->columns = tci_ceil_div(TCI_MIN(columns, block), tile) * tile;
    if (is_free && !p->fused) {
        p->columns = tci_gemm_narrow(k, machine, lanes, p, p->columns);
    }
    int64_t sums = p->columns * (p->base + 1) * bytes;
    int64_t n_tiles = TCI_MIN(tci_dim_most(p->n_tiles), (int64_t)1 << 30);
    int64_t pieces = tci_ceil_div(n_tiles * sums, TCI_GEMM_PARTIAL);
    p->group = TCI_MAX(tci_ceil_div(n_tiles, TCI_MAX(pieces, 1)), 1);
    p->share = p->fused ? p->group : 1;
}

/* The same where the size of the only inner axis is not known, along rows that are kept: each block
 * is a part. */
static bool tci_gemm_cut_open(const tci_kernel *k, tci_gemm *p)
{
    const tci_kred *red = &k->reds[p->red];
    tci_dim size = k->axes[k->stages[p->stage].axes[0]].size;
    p->part = red->order == TCI_ORDER_SPLIT ? red->order_n : 0;
    p->depth = p->part > 0 ? p->part : TCI_GEMM_DEPTH;
    p->n_depths = tci_dim_max(tci_dim_ceil_div(size, p->depth), 1);
    p->is_part = p->part > 0;
    p->inner = p->points = 1;
    return p->n_inner == 1 && p->is_row_there;
}

TCI_FN bool tci_gemm_plan_row(const tci_kernel *k, int lanes, tci_gemm *p)
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
    if (!tci_gemm_factors(k, lanes, vec, p)) {
        return false;
    }
    p->is_row_there = k->insts[p->row_inst].op == TCI_K_RED;
    p->on_unit = p->in_order = red->order == TCI_ORDER_MATRIX;
    p->row_by_vector = p->row_by_vector && !p->on_unit;
    int64_t tile = (int64_t)p->unroll * lanes;
    tci_dim columns = k->axes[p->vec_axis].size;
    bool known = tci_dim_is_known(columns);
    for (int i = 0; i < p->n_inner; i++) {
        known = known && tci_dim_is_known(k->axes[st->axes[i]].size);
    }
    p->is_vec_there = known && !p->on_unit && tci_gemm_panel(k, p, &p->is_vec_paired) == tile &&
                      !p->is_vec_paired;
    bool cut = tci_dim_is_known(k->axes[st->axes[p->n_inner - 1]].size) ? tci_gemm_cut_depth(k, p)
                                                                        : tci_gemm_cut_open(k, p);
    if (!cut || tci_dim_lt(columns, lanes)) {
        return false;
    }
    int64_t most = p->on_unit ? TCI_GEMM_UNIT_COLUMNS : TCI_GEMM_COLUMNS;
    p->columns = tci_ceil_div(TCI_MIN(tci_dim_most(columns), most), tile) * tile;
    p->share = 1;
    p->steps = TCI_GEMM_STEPS;
    return true;
}

/* The most steps that divide a run. */
static int tci_gemm_run_steps(int64_t run)
{
    int64_t steps = TCI_GEMM_STEPS_MOST;
    while (run % steps != 0) {
        steps--;
    }
    return (int)(steps < TCI_GEMM_STEPS_LEAST ? TCI_MIN(run, TCI_GEMM_STEPS) : steps);
}

/* True if the rows of a tile are read in place. The current cache lines, one per row, may not evict
 * each other from a set of the L1 cache. Parts of a sum start with blocks, where other schedules
 * have a loop over runs of inner points. */
static bool tci_gemm_rows_are_there(const tci_kernel *k, const tci_gemm *p)
{
    const tci_kinst *in = &k->insts[p->row_inst];
    const int32_t *axes = k->stages[p->stage].axes;
    int64_t rows = p->base + (p->extra > 0), run = 1;
    tci_dim step = 0;
    if (!p->row_in_place) {
        return false;
    }
    for (int i = p->n_inner - p->row_run; i < p->n_inner; i++) {
        run *= tci_kernel_known(k, axes[i]);
    }
    tci_build_coef(k, in->x, p->row_axis, &step);
    int64_t apart = tci_dim_known(step) * tci_dtype_get((tc_dtype)in->dtype)->bytes;
    bool flat = p->cut + p->row_run >= p->n_inner;
    return (flat || (run >= TCI_GEMM_STEPS_LEAST && (p->part == 0 || p->is_part))) &&
           rows * tci_lx_gcd(TCI_MAX(apart, -apart), TCI_GEMM_PAGE) <=
               TCI_GEMM_WAYS * TCI_GEMM_PAGE;
}

TCI_FN bool tci_gemm_is_whole(const tci_kernel *k, const tci_gemm *p)
{
    int64_t size = tci_kernel_known(k, k->stages[p->stage].axes[p->cut]);
    int64_t step = tci_gemm_step(k, p);
    return p->depth * p->inner % step == 0 && size * p->inner % step == 0;
}

/* Chooses the loop structure over the inner points. */
static void tci_gemm_walk(const tci_kernel *k, tci_gemm *p)
{
    const int32_t *axes = k->stages[p->stage].axes;
    bool nests = p->is_row_there && p->cut + p->row_run < p->n_inner;
    p->nest = nests ? p->n_inner - p->row_run - p->cut : 0;
    p->run = 1;
    for (int i = p->cut + p->nest; i < p->n_inner; i++) {
        p->run *= tci_kernel_known(k, axes[i]);
    }
    p->steps = nests ? tci_gemm_run_steps(p->run) : TCI_GEMM_STEPS;
}

TCI_FN bool tci_gemm_plan(const tci_kernel *k, tci_machine machine, int lanes, tci_gemm *p)
{
    const tci_kstage *st = &k->stages[0];
    const tci_kinst *one = &k->insts[TCI_MAX(p->vec_load, 0)];
    const tci_kinst *other = &k->insts[TCI_MAX(p->row_load, 0)];
    tci_gemm_access vec = tci_gemm_examine(k, p->vec_inst, p->vec_axis);
    tci_gemm_access row = tci_gemm_examine(k, p->row_inst, p->row_axis);
    bool few = tci_dim_le(p->n_tiles, TCI_GEMM_FEW_TILES) && tci_dim_is_known(p->of_rows.size);
    bool parted = p->of_columns.n_axes > 1;
    p->fetch_vectors = p->vec_load >= 0 && one->n_guards == 0 && vec.contiguous &&
                       p->n_inner == 1 && !parted;
    p->fetch_rows = p->row_load >= 0 && other->n_guards == 0 && !row.contiguous &&
                    p->n_inner == 1 && !few && p->of_rows.n_axes == 1;
    p->fused = few && p->fetch_vectors && !p->on_unit;
    if (!tci_gemm_cut_depth(k, p)) {
        return false;
    }
    p->is_row_there = p->points == 1 && tci_gemm_rows_are_there(k, p);
    tci_gemm_walk(k, p);
    int64_t columns = tci_dim_known(p->of_columns.size);
    int64_t bytes = columns * tci_dtype_get((tc_dtype)k->insts[p->vec_inst].dtype)->bytes;
    for (int i = 0; i < p->n_inner; i++) {
        bytes *= tci_kernel_known(k, st->axes[i]);
    }
    p->is_vec_there = p->is_vec_there &&
                      tci_gemm_panel(k, p, &p->is_vec_paired) == (int64_t)p->unroll * lanes;
    bool even = p->points > 1 && (p->n_depths == 1 || p->depth * p->inner % p->points == 0);
    even = p->on_unit ? p->is_vec_paired && tci_gemm_is_whole(k, p) : even || !p->is_vec_paired;
    p->is_vec_there = p->is_vec_there && even;
    p->points = p->is_vec_paired || !p->is_vec_there ? p->points : 1;
    bool costly = p->is_vec_there || vec.strided || vec.computed || row.computed || parted ||
                  p->is_turned || p->of_rows.n_axes > 1 ||
                  (!few && tci_gemm_has_set_conflicts(k, p, p->vec_load)) ||
                  (!few && p->row_by_vector && tci_gemm_has_set_conflicts(k, p, p->row_load));
    p->pays = costly || bytes >= machine.facts.cache_bytes[1];
    int64_t later = 0;
    for (int t = 1; t < k->n_stages; t++) {
        later += tci_stage_cost(k, t);
    }
    p->by_rows = later >= TCI_GEMM_BY_ROWS || p->on_unit;
    tci_gemm_cut_points(k, machine, lanes, p);
    return true;
}
