/* loop/wgmma_gemm.c - schedules GEMM on tensor cores (WGMMA), and implicit GEMM: tiles, pipeline
 * stages, clusters, cost.
 *
 * In: a kernel of class MATRIX or TF32, the machine. Out: a kernel template (loop/wgmma_gemm.h)
 * whose epilogue slot is the kernel's elementwise epilogue as loop IR: the accumulators are a value
 * kept in shared memory, so the epilogue is built like any other stage.
 *
 * The tile is the fastest under a time model: for each step of k the slower of multiplying and
 * loading, or the epilogue if that takes longer, times the number of waves over the SMs; plus the
 * epilogue of the last tile. */
#include "wgmma_gemm.h"

#include <string.h>

#include "emit_stages.h"

enum {
    TCI_MATRIX_BARRIERS = 256, /* bytes for them */
    TCI_MATRIX_ALIGNED = 1024, /* the start of a stage's boxes */
    TCI_MATRIX_LEAST_STAGES = 3,
    TCI_MATRIX_COLUMN_STEP = 16, /* columns that a warp leaves at once */
    TCI_MATRIX_SUMS = 256,       /* columns of all its rows that a thread holds, */
    TCI_MATRIX_SUMS_MOST = 320,  /* and with registers of the others, at most */
    TCI_MATRIX_ENTRY = 160,      /* of them, where threads have 128 registers at first */
    TCI_MATRIX_HELD = 4,         /* least elements of a row that a thread of the epilogue holds */
    TCI_MATRIX_FILL = 2000,      /* cycles to a tile's first product, and to store accumulators */
    TCI_MATRIX_TURN = 4000,      /* of the epilogue's warps between two tiles */
    TCI_MATRIX_LATENCY = 2200,   /* cycles of a load while all units load, */
    TCI_MATRIX_FAR = 3300,       /* of boxes of images, */
    TCI_MATRIX_BOTH = 3000,      /* and of what blocks share, which wait for each other */
    TCI_MATRIX_ISSUE = 4,        /* warps whose instructions are all that can be begun, about */
    TCI_MATRIX_LIGHT = 24        /* cost of a chain from which four rows are taken at once */
};

/* Slowdown of loading rows that span two cache lines each. */
#define TCI_MATRIX_APART 1.6

/* ---- the tile ---- */

/* Of B in a stage: where k is not contiguous, whole boxes of 64. */
static int64_t tci_matrix_held_columns(const tci_matrix *x)
{
    int64_t whole = x->side[1].along_k ? 1 : TCI_MATRIX_SUB;
    return tci_ceil_div(x->columns, whole) * whole;
}

TCI_FN int64_t tci_matrix_stage_bytes(const tci_matrix *x)
{
    return (x->rows + tci_matrix_held_columns(x)) * TCI_MATRIX_LINE;
}

TCI_FN int64_t tci_matrix_steps(const tci_matrix *x)
{
    return x->is_boxes ? x->k_steps : tci_ceil_div(x->k, tci_matrix_depth(x));
}

TCI_FN int64_t tci_matrix_staged_bytes(const tci_matrix *x)
{
    int64_t rows = (int64_t)TCI_MATRIX_SUB * x->sub_rows * x->buffers;
    return rows * x->staged_pitch * tci_dtype_get((tc_dtype)x->staged)->bytes;
}

TCI_FN int64_t tci_matrix_shared_bytes(const tci_matrix *x)
{
    return TCI_MATRIX_ALIGNED + x->stages * tci_matrix_stage_bytes(x) + tci_matrix_staged_bytes(x) +
           TCI_MATRIX_BARRIERS;
}

static void tci_matrix_set_buffers(tci_matrix *x, int buffers, const tc_machine *facts)
{
    x->buffers = buffers;
    x->stages = 0;
    int64_t room = facts->shared_most - tci_matrix_shared_bytes(x);
    x->stages = (int32_t)TCI_MIN(room / tci_matrix_stage_bytes(x), TCI_MATRIX_STAGES);
}

/* Bytes of a stage that a block asks for itself. */
static double tci_matrix_asked_bytes(const tci_matrix *x)
{
    double rows = (double)x->rows / tci_matrix_sharing(x, 0);
    return (rows + (double)tci_matrix_held_columns(x) / tci_matrix_sharing(x, 1)) * TCI_MATRIX_LINE;
}

/* The fraction of the unit's rate that a tile reaches: fewer columns read more of A for each
 * product, and four warps alone wait for their own. */
static double tci_matrix_part_of_rate(const tci_matrix *x)
{
    double columns = x->columns < 64    ? 0.36
                     : x->columns < 128 ? 0.55
                     : x->columns < 256 ? 0.7
                                        : 0.8;
    return columns * (x->consumers == 1 ? 0.85 : 1.0);
}

/* True if each row of a side's boxes is within one cache line. */
static bool tci_matrix_is_in_lines(const tci_matrix *x, const tci_matrix_side *side)
{
    const int line = tci_matrix_depth(x);
    bool in = side->offset % line == 0 && side->pitch % line == 0;
    for (int i = 1; i < side->n_dims; i++) {
        in = in && side->dims[i].stride % line == 0;
    }
    return in;
}

static bool tci_matrix_are_in_lines(const tci_matrix *x)
{
    return tci_matrix_is_in_lines(x, &x->side[0]) && tci_matrix_is_in_lines(x, &x->side[1]);
}

/* Cycles of one step of k: to multiply (f32 takes twice as long as 16-bit operands and bytes half
 * as long, and half or twice as many elements are a step), to load as fast as memory serves all
 * SMs, and to wait for a load that is issued when its stage is free, all stages but one ahead. */
static double tci_matrix_step_cycles(const tci_matrix *x, const tci_machine *machine)
{
    double rate = machine->facts.matrix_flops * tci_matrix_part_of_rate(x);
    double active = (double)TCI_MIN(x->tiles, (int64_t)machine->matrix_units);
    double bandwidth = TCI_MIN(machine->facts.near_bytes, machine->facts.all_bytes / active);
    double multiply = (double)x->rows * x->columns * TCI_MATRIX_LINE / rate;
    double apart = tci_matrix_are_in_lines(x) ? 1 : TCI_MATRIX_APART;
    double load = tci_matrix_asked_bytes(x) / bandwidth * apart;
    double latency = x->is_boxes ? TCI_MATRIX_FAR
                     : x->shares ? TCI_MATRIX_BOTH
                                 : TCI_MATRIX_LATENCY;
    return TCI_MAX(TCI_MAX(multiply, load), latency / (x->stages - 1));
}

/* Of the chain for a tile; a unit's SM has issued all it can for some warps. Lanes that are
 * no columns are masked. */
static double tci_matrix_hole_cycles(const tci_matrix *x, int64_t chain, int warps)
{
    double cells = (double)x->rows * x->chunks * x->lanes;
    double masked = x->own_columns % x->lanes != 0 ? 1.5 : 1;
    return TCI_MATRIX_TURN + masked * cells * (2 * (double)chain + 8) /
                                 (TCI_MIN(warps, TCI_MATRIX_ISSUE) * TCI_MATRIX_WARP);
}

/* The columns of a tile, `most` at most, and how many the epilogue takes at once: all, as the lanes
 * of this many threads, or the largest power of two that divides them, and all existing ones if one
 * tile has them. Columns that are positions of an image are whole rows of it, evenly spread over
 * the tiles. False: not even one. */
static bool tci_matrix_set_columns(tci_matrix *x, int most)
{
    x->columns = x->own_columns = most;
    if (x->y_axis >= 0) {
        int64_t rows = x->n / x->image_row, fit = TCI_MIN(most / x->image_row, rows);
        if (fit == 0) {
            return false;
        }
        fit = tci_ceil_div(rows, tci_ceil_div(rows, fit));
        x->own_columns = (int32_t)(fit * x->image_row);
        x->columns = (int32_t)(tci_ceil_div(x->own_columns, TCI_MATRIX_COLUMN_STEP) *
                               TCI_MATRIX_COLUMN_STEP);
    }
    if (x->y_axis < 0) {
        int64_t both = x->columns | (x->n < x->columns ? x->n : 0);
        x->lanes = (int32_t)(both & -both);
        x->lanes = x->lanes < TCI_MATRIX_HELD ? x->columns & -x->columns : x->lanes;
        x->chunks = x->columns / x->lanes;
        return true;
    }
    x->chunks = 1;
    x->lanes = TCI_MATRIX_WARP;
    while (x->lanes < x->columns) {
        x->lanes *= 2;
    }
    return true;
}

/* True if these numbers are a tile of the kernel template. A thread of a consumer has a sum for
 * every second column of each of its 64 rows. */
static bool tci_matrix_is_tile(const int64_t *tile)
{
    int64_t sums = tile[0] == 2 ? TCI_MATRIX_SUMS_MOST : TCI_MATRIX_SUMS;
    return tile[0] >= 1 && tile[0] <= 2 && tile[1] >= 1 && tile[1] <= 2 && tile[2] > 0 &&
           tile[2] <= TCI_MATRIX_SUMS && tile[2] * tile[1] <= sums &&
           tile[2] % TCI_MATRIX_COLUMN_STEP == 0 && tile[3] >= 0 && tile[3] <= 2;
}

TCI_FN bool tci_matrix_is_wide(const tci_matrix *x)
{
    return x->consumers == 2 && x->sub_rows * x->columns > TCI_MATRIX_SUMS;
}

/* Sixteen warps have 128 registers each when they begin, which one product must not exceed. */
static int tci_matrix_last_warps(const tci_matrix *x)
{
    bool more = x->consumers == 2 && x->columns <= TCI_MATRIX_ENTRY && !tci_matrix_is_wide(x);
    return more ? TCI_MATRIX_MORE_WARPS : TCI_MATRIX_LAST_WARPS;
}

/* Tiles along the side that is not `which`: whole pairs where blocks share that. */
static int64_t tci_matrix_tiles(const tci_matrix *x, int which, int64_t tiles)
{
    int blocks = tci_matrix_sharing(x, which);
    return tci_ceil_div(tiles, blocks) * blocks;
}

/* Sets what follows from the tile's shape; false where it does not fit. A buffer for each consumer,
 * where that leaves stages enough. */
static bool tci_matrix_shape(tci_matrix *x, const int64_t *tile, const tci_machine *machine)
{
    const tc_machine *facts = &machine->facts;
    x->consumers = (int32_t)tile[0];
    x->sub_rows = (int32_t)tile[1];
    x->rows = TCI_MATRIX_SUB * x->consumers * x->sub_rows;
    if (!tci_matrix_set_columns(x, (int)tile[2])) {
        return false;
    }
    x->last_warps = tci_matrix_last_warps(x);
    x->row_threads = TCI_MIN(x->lanes / TCI_MATRIX_HELD, TCI_MATRIX_WARP);
    x->staged_pitch = TCI_MAX(x->columns, x->lanes) + 8; /* rows begin in different banks */
    x->shares = (int32_t)tile[3];
    x->tiles_m = tci_matrix_tiles(x, 1, tci_ceil_div(x->m, x->rows));
    x->tiles_n = tci_matrix_tiles(x, 0, tci_ceil_div(x->n, x->own_columns));
    x->tiles = x->tiles_m * x->tiles_n;
    for (int i = 0; i < x->n_batch; i++) {
        x->tiles *= x->batch[i];
    }
    tci_matrix_set_buffers(x, x->consumers, facts);
    if (x->stages < TCI_MATRIX_LEAST_STAGES) {
        tci_matrix_set_buffers(x, 1, facts);
    }
    bool pairs = x->shares == 0 || (!x->is_boxes && machine->matrix_units > 1);
    return pairs && x->stages >= TCI_MATRIX_LEAST_STAGES && x->tiles <= INT32_MAX / 2;
}

/* Cycles of the whole product, `chain` flops for each element of the result. */
static double tci_matrix_cycles(const tci_matrix *x, int64_t chain, const tci_machine *machine)
{
    double steps = (double)tci_matrix_steps(x);
    double step = tci_matrix_step_cycles(x, machine), tile = TCI_MATRIX_FILL + steps * step;
    double hole = tci_matrix_hole_cycles(x, chain, x->last_warps);
    if (x->buffers < x->consumers) { /* they wait for each other's, if not a ring of steps apart */
        tile += TCI_MAX(hole / x->consumers - x->stages * step, 0);
    }
    double last = tci_matrix_hole_cycles(x, chain, x->last_warps + 4 * x->consumers);
    double rounds = (double)tci_ceil_div(x->tiles, machine->matrix_units);
    return rounds * tile + (rounds - 1) * TCI_MAX(hole - tile, 0) + last;
}

/* Of the stages from `first` on, for an element of the result. */
static int64_t tci_matrix_chain_cost(const tci_kernel *k, int first)
{
    int64_t cost = 0;
    for (int t = first; t < k->n_stages; t++) {
        cost += tci_stage_cost(k, t);
    }
    return cost;
}

TCI_FN void tci_matrix_set_groups(const tci_kernel *k, int first, tci_matrix *x)
{
    x->group_rows = tci_matrix_chain_cost(k, first) <= TCI_MATRIX_LIGHT ? 4 : 2;
    while (x->m % x->group_rows != 0) {
        x->group_rows /= 2;
    }
}

/* The product with that tile; false: it does not fit, or the template does not support it. */
static bool tci_matrix_with(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                            tci_matrix *x)
{
    bool fits = tci_matrix_is_tile(tile) && tci_matrix_find(k, x) &&
                tci_matrix_shape(x, tile, machine);
    if (fits) {
        tci_matrix_set_groups(k, 1, x);
    }
    return fits;
}

/* Puts a tile where its cost belongs; returns how many there are, `most` at most. */
static int tci_matrix_insert(int64_t tiles[][TCI_FORM_NUMBERS], double *costs, int n, int most,
                             const int64_t *tile, double cost)
{
    int at = n;
    while (at > 0 && cost < costs[at - 1]) {
        at--;
    }
    if (at == most) {
        return n;
    }
    n = TCI_MIN(n + 1, most);
    memmove(&tiles[at + 1], &tiles[at], sizeof(*tiles) * (size_t)(n - at - 1));
    memmove(&costs[at + 1], &costs[at], sizeof(*costs) * (size_t)(n - at - 1));
    memcpy(tiles[at], tile, sizeof(*tiles));
    costs[at] = cost;
    return n;
}

/* The candidates with that many columns in addition to `n` of them; returns how many. shares:
 * blocks share the larger side; with less than two waves of tiles too much time passes while they
 * start. */
static int tci_matrix_weigh(const tci_matrix *found, int64_t chain, const tci_machine *machine,
                            int64_t columns, bool shares, int64_t tiles[][TCI_FORM_NUMBERS],
                            double *costs, int n)
{
    for (int64_t consumers = 2; consumers >= 1; consumers--) {
        for (int64_t sub_rows = 1; sub_rows <= 2; sub_rows++) {
            int64_t larger = TCI_MATRIX_SUB * consumers * sub_rows > columns ? 1 : 2;
            const int64_t tile[TCI_FORM_NUMBERS] = {consumers, sub_rows, columns,
                                                    shares ? larger : 0};
            tci_matrix x = *found;
            if (tci_matrix_is_tile(tile) && tci_matrix_shape(&x, tile, machine) &&
                (!shares || x.tiles > 2 * machine->matrix_units)) {
                n = tci_matrix_insert(tiles, costs, n, TCI_FORM_CANDIDATES, tile,
                                      tci_matrix_cycles(&x, chain, machine));
            }
        }
    }
    return n;
}

TCI_FN int tci_matrix_candidates(const tci_kernel *k, const tci_machine *machine,
                                 int64_t tiles[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    double costs[TCI_FORM_CANDIDATES];
    int64_t chain = tci_matrix_chain_cost(k, 1);
    tci_matrix x;
    int n = 0;
    if (!tci_matrix_find(k, &x)) {
        return 0;
    }
    bool lines = tci_matrix_are_in_lines(&x); /* whose loads are not what takes the time */
    for (int64_t columns = TCI_MATRIX_SUMS; columns > 0; columns -= TCI_MATRIX_WARP) {
        n = tci_matrix_weigh(&x, chain, machine, columns, false, tiles, costs, n);
        n = lines ? n : tci_matrix_weigh(&x, chain, machine, columns, true, tiles, costs, n);
    }
    int64_t all = tci_ceil_div(x.n, TCI_MATRIX_COLUMN_STEP) * TCI_MATRIX_COLUMN_STEP;
    if (all % TCI_MATRIX_WARP != 0 && x.y_axis < 0) {
        n = tci_matrix_weigh(&x, chain, machine, all, false, tiles, costs, n);
    }
    return n;
}

TCI_FN double tci_matrix_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile)
{
    tci_matrix x;
    if (!tci_matrix_with(k, machine, tile, &x)) {
        return -1;
    }
    return tci_matrix_cycles(&x, tci_matrix_chain_cost(k, 1), machine) / machine->facts.ghz;
}

/* ---- the epilogue slot ---- */

TCI_FN tci_lin tci_matrix_given(tci_build *b, int axis)
{
    const tci_matrix *x = b->l->matrix;
    tci_lin at = tci_build_let(b, tci_lx_make(b->l, TCI_LX_GIVEN, -1, -1, axis));
    b->l->indices[at.var[0]].multiple = axis == x->n_axis   ? x->own_columns / x->chunks
                                        : axis == x->m_axis ? x->group_rows
                                                            : 1;
    return at;
}

/* The accumulators of the rows at hand, where the main loop has left them. */
static void tci_matrix_keep(tci_build *b, const tci_matrix *x, int stage)
{
    int local = tci_build_local(b, (tc_dtype)x->staged, x->group_rows * x->staged_pitch, 0);
    b->l->locals[local].is_given = true;
    tci_lkeep *keep = tci_build_keep(b, x->value, local, stage);
    keep->is_padded = true;
    keep->coef[x->m_axis] = x->staged_pitch;
    keep->coef[x->n_axis] = 1;
    keep->origin[x->m_axis] = tci_matrix_given(b, x->m_axis);
    keep->origin[x->n_axis] = tci_matrix_given(b, x->n_axis);
}

/* True if a store writes columns of this product. Among several products each has its own axis. */
static bool tci_matrix_stores(const tci_kernel *k, const tci_matrix *x, int store)
{
    const tci_kstage *st = &k->stages[k->stores[store].stage];
    return x->n_axis < k->n_outer || (st->n_axes == 1 && st->axes[0] == x->n_axis);
}

/* The chain for all rows at hand: every value first, then the stores, as an output may be one of
 * the inputs. */
static void tci_matrix_rows(tci_build *b, const tci_matrix *x, const tci_bind *columns)
{
    const tci_kernel *k = b->k;
    int *values = TCI_NEW_ARRAY(b->s, int, x->group_rows * k->n_stores + 1);
    const tci_bind **rows = TCI_NEW_ARRAY(b->s, const tci_bind *, x->group_rows);
    tci_lin at = tci_matrix_given(b, x->m_axis);
    tci_build_set(b, x->n_axis, columns);
    for (int r = 0; r < x->group_rows; r++) {
        rows[r] = tci_build_bind(b, tci_lin_plus(at, r), r, x->m - x->group_rows + r, false, -1);
        tci_build_set(b, x->m_axis, rows[r]);
        for (int i = 0; i < k->n_stores; i++) {
            bool stores = tci_matrix_stores(k, x, i);
            values[r * k->n_stores + i] = stores ? tci_build_value(b, k->stores[i].value) : -1;
        }
    }
    for (int r = 0; r < x->group_rows; r++) {
        tci_build_set(b, x->m_axis, rows[r]);
        for (int i = 0; i < k->n_stores; i++) {
            if (tci_matrix_stores(k, x, i)) {
                tci_build_store(b, &k->stores[i], values[r * k->n_stores + i], false);
            }
        }
    }
}

/* The part for chunks whose first column is in [lo, hi]; n: columns that exist, -1 all. */
static void tci_matrix_part(tci_build *b, const tci_matrix *x, int64_t lo, int64_t hi, int n)
{
    tci_lopen open;
    tci_lin at = tci_matrix_given(b, x->n_axis);
    tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, at), lo, hi), &open);
    int64_t last = n < 0 ? hi + x->own_columns / x->chunks - 1 : x->n - 1;
    tci_matrix_rows(b, x, tci_build_bind(b, at, lo, last, true, n));
    tci_build_close(b, &open);
}

TCI_FN void tci_matrix_hole(tci_build *b, const tci_matrix *x, int stage)
{
    tci_matrix_keep(b, x, stage);
    for (int i = 0; i < x->n_batch; i++) {
        tci_lin at = tci_matrix_given(b, x->batch_axis[i]);
        tci_build_set(b, x->batch_axis[i], tci_build_bind(b, at, 0, x->batch[i] - 1, false, -1));
    }
    for (int i = 1; i < x->n_places; i++) { /* the fastest axis of the rows counts for all */
        tci_build_set(b, x->place_axis[i], tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    }
    if (x->y_axis >= 0) { /* the other axis of the columns counts for both */
        tci_build_set(b, x->y_axis, tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    }
    b->stage = stage + 1;
    int64_t own = x->own_columns / x->chunks;
    int all = own < x->lanes ? tci_lx_const(b->l, own) : -1;
    if (x->n % own == 0) {
        tci_lin at = tci_matrix_given(b, x->n_axis);
        tci_matrix_rows(b, x, tci_build_bind(b, at, 0, x->n - 1, true, all));
        return;
    }
    int64_t cut = x->n / own * own; /* the first column of the last chunk */
    if (cut > 0) {
        tci_matrix_part(b, x, 0, cut - own, all);
    }
    tci_matrix_part(b, x, cut, cut, tci_lx_const(b->l, x->n - cut));
}

/* ---- the whole ---- */

TCI_FN void tci_matrix_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                            tci_launch *launch)
{
    tci_matrix *x = TCI_NEW(b->s, tci_matrix);
    bool fits = tci_matrix_with(b->k, machine, tile, x);
    TCI_ASSERT(b->s, fits);
    b->l->lanes = x->lanes;
    b->l->threads = x->row_threads;
    b->l->matrix = x;
    tci_matrix_hole(b, x, 0);
    int units = machine->matrix_units;
    launch->n_tasks = TCI_MIN(x->tiles, x->shares ? units - units % 2 : units);
    launch->task_ns = tci_matrix_ns(b->k, machine, tile);
}
