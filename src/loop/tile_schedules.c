/* loop/tile_schedules.c - implements register-tiled schedules along the last outer axis: column
 * reductions, contractions, scans.
 *
 *   tile     rows x vectors of accumulators in registers, loads shared along both sides
 *   panel    a few rows at a time from DRAM, over a long range of columns
 *            (loop/column_reduction.c)
 *   packed   a contraction over packed panels (loop/gemm.c)
 *   unit     the same on a CPU's matrix unit, AMX (loop/amx.c)
 *
 * In the cost model the inner step of a tile takes as long as its accumulators occupy the ports, or
 * its loads do, or the latency of one chain; columns read from DRAM take twice as long as rows; a
 * contraction in place is a little slower than packed where packing is profitable. */
#include <string.h>

#include "../kernel/match_matrix_unit.h"
#include "amx.h"
#include "gpu_schedules.h"
#include "column_reduction.h"
#include "stage_op_count.h"
#include "gemm.h"
#include "gemm_operands.h"
#include "register_tiles.h"

enum {
    TCI_TILE_MAX_BODY = 800,    /* flops written out in one tile */
    TCI_TILE_ROWS = 14,         /* of a contraction, at most */
    TCI_TILE_OTHER_ROWS = 4,    /* of others */
    TCI_TILE_ROUNDING = 2,      /* registers with constants of a rounding */
    TCI_TILE_LATENCY = 4,       /* cycles of one step of a chain */
    TCI_TILE_GATHER = 1,        /* cycles of each element of a strided load, */
    TCI_TILE_NEAR = 4,          /* of strides above this: it is no gather of this many vectors */
    TCI_TILE_MIN_CHUNK = 1024,  /* elements, where nothing is reduced */
    TCI_TILE_PANEL_LEAST = 512, /* elements of a panel along the vector axis */
    TCI_TILE_PANEL_MOST = 2048,
    TCI_TILE_PANEL_JOINED = 2, /* chunks that one panel covers */
    TCI_TILE_PANEL_ROWS = 8,   /* rows taken in at a time, at most */
    TCI_TILE_PANEL_LIGHT = 8,  /* flops of a point up to which it has this many, */
    TCI_TILE_PANEL_HEAVY = 24, /* and from which it does not pay */
    TCI_TILE_PANEL_REDS = 2
};

/* Slowdown of tiles whose rows come from the L2 cache (14 rows of 4608 numbers: 1.4). */
#define TCI_TILE_FAR 1.4

/* ---- register tiles ---- */

enum { TCI_TILE_N_ROWS, TCI_TILE_N_UNROLL, TCI_TILE_N_LANES, TCI_TILE_N_THREADS };

/* Accumulators of one point, over the stage that has most. */
static int tci_tile_accumulators(const tci_kernel *k)
{
    int most = 1;
    for (int t = 0; t < k->n_stages; t++) {
        int n = 0;
        for (int r = 0; r < k->n_reds; r++) {
            n += k->reds[r].stage == t ? tci_red_parts(k->reds[r].op) : 0;
        }
        most = TCI_MAX(most, n);
    }
    return most;
}

TCI_FN bool tci_tile_has_dot(const tci_kernel *k)
{
    bool dot = false;
    for (int r = 0; r < k->n_reds; r++) {
        dot = dot || k->reds[r].op == TCI_RED_DOT;
    }
    return dot;
}

/* Other registers that a contraction on a CPU holds: those of rounding to bf16, and
 * factors that all rows meet. */
static int tci_tile_constants(const tci_query *a)
{
    const tci_kernel *k = a->k;
    bool rounds = false;
    for (int i = 0; i < k->n_stores; i++) {
        rounds |= k->operands[k->stores[i].operand].dtype == TC_BF16;
    }
    const tci_kstage *st = &k->stages[0];
    int met = a->skew.row > 0 ? (int)tci_kernel_known(k, st->axes[st->n_axes - 1]) : 0;
    return met + (rounds && a->machine.block_threads == 0 ? TCI_TILE_ROUNDING : 0);
}

/* The largest tile whose accumulators fit in registers, of this many vectors and of several rows
 * where there are any; flops of a point bound what is written out. */
static void tci_tile_largest_of(const tci_query *a, int64_t vectors, bool has_rows, int64_t flops,
                                int64_t *rows, int64_t *unroll)
{
    const tci_kernel *k = a->k;
    int n_accs = tci_tile_accumulators(k), blocks = a->machine.block_threads > 0;
    int registers = blocks ? 32 : TCI_MIN(a->machine.facts.registers, 32);
    int64_t n_vecs = TCI_MAX(vectors, 1); /* there may be none */
    int64_t most = TCI_MAX(TCI_TILE_MAX_BODY / TCI_MAX(flops, 1), 1);
    *rows = 1;
    if (!has_rows) { /* blocks: more of them rather than more of each */
        *unroll = blocks ? 1 : TCI_MIN(TCI_MIN(registers / 2 / n_accs, most), n_vecs);
    } else {
        bool thirds = n_vecs == 3 || (n_vecs % 2 != 0 && n_vecs % 3 == 0);
        *unroll = TCI_MIN(n_vecs, thirds ? 3 : 2);
        int64_t free = registers - tci_tile_constants(a) - 1 - *unroll;
        *rows = tci_tile_has_dot(k) ? TCI_MIN(free / *unroll, TCI_TILE_ROWS) : TCI_TILE_OTHER_ROWS;
        *rows = TCI_MAX(TCI_MIN(*rows / n_accs, most / *unroll), 1);
    }
    if (blocks && !tci_tile_has_dot(k)) {
        *rows = *unroll = 1;
    }
    *unroll = TCI_MAX(*unroll, 1);
}

static void tci_tile_largest(const tci_query *a, int64_t flops, int64_t *rows, int64_t *unroll)
{
    tci_tile_largest_of(a, tci_query_vectors(a, a->lanes), a->row_axis >= 0, flops, rows, unroll);
}

static bool tci_tile_shape_fits(bool has_rows, int64_t rows, int64_t unroll)
{
    return rows >= 1 && rows <= (has_rows ? TCI_TILE_ROWS : 1) && unroll >= 1 && unroll <= 32;
}

TCI_FN bool tci_tile_is_kernel(const tci_query *a)
{
    return a->vec_axis >= 0 && !a->is_map && !tci_query_on_unit(a);
}

static bool tci_tile_fits(const tci_query *a, const int64_t *n)
{
    return tci_tile_is_kernel(a) &&
           tci_tile_shape_fits(a->row_axis >= 0, n[TCI_TILE_N_ROWS], n[TCI_TILE_N_UNROLL]) &&
           tci_query_lanes_fit(a, n[TCI_TILE_N_LANES], n[TCI_TILE_N_THREADS]);
}

static int tci_tile_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    int64_t rows, unroll;
    tci_tile_largest(a, a->flops, &rows, &unroll);
    const int64_t all[][TCI_FORM_NUMBERS] = {{rows, unroll, a->lanes, a->threads},
                                             {(rows + 1) / 2, unroll, a->lanes, a->threads},
                                             {rows, 1, a->lanes, a->threads},
                                             {rows, unroll / 2, a->lanes, a->threads},
                                             {1, unroll, a->lanes, a->threads}};
    memcpy(n, all, sizeof(all));
    return (int)TCI_COUNT(all);
}

/* Cycles of the inner step over those that its arithmetic alone would take, and vectors that are
 * traversed over those that there are. */
static double tci_tile_slower_of(const tci_query *a, int64_t n_vecs, int64_t rows, int64_t unroll)
{
    double ports = a->machine.block_threads > 0 ? 1 : a->machine.facts.ports;
    double work = (double)(rows * unroll * tci_tile_accumulators(a->k)) / ports;
    double loads = (double)(rows + unroll) / 2;
    double step = TCI_MAX(TCI_MAX(work, tci_tile_has_dot(a->k) ? loads : 0), TCI_TILE_LATENCY);
    double vectors = (double)TCI_MAX(n_vecs, 1);
    double walked = (double)(tci_ceil_div((int64_t)vectors, unroll) * unroll);
    return step / work * walked / vectors;
}

static double tci_tile_slower(const tci_query *a, int64_t rows, int64_t unroll)
{
    return tci_tile_slower_of(a, tci_query_vectors(a, a->lanes), rows, unroll);
}

TCI_FN double tci_tile_lost(const tci_query *a, int64_t lanes)
{
    double n = (double)TCI_MAX(tci_dim_hint(a->n_vec), 1);
    return (double)(TCI_MAX(tci_query_vectors(a, lanes), 1) * lanes) / n;
}

/* Cycles of a contraction's loads along the vectors that are not contiguous, over those of its
 * multiplying: of elements of 4 bytes or more that so few vectors hold, loads and shuffles of
 * these, else each element by itself. The rows of a tile share them. */
static double tci_tile_gathering(const tci_query *a, int64_t rows, int64_t lanes)
{
    const tci_kernel *k = a->k;
    bool *live = TCI_NEW_ARRAY(a->s, bool, k->n_insts + 1);
    double cycles = 0;
    tci_cost_mark(k, 0, false, live);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        tci_dim coef = 0;
        if (live[i] && in->op == TCI_K_LOAD) {
            bool linear = tci_build_coef(k, in->x, a->vec_axis, &coef);
            const int64_t step = linear && tci_dim_is_known(coef) ? tci_dim_known(coef) : -1;
            const tc_dtype dtype = (tc_dtype)k->operands[tci_kinst_number(in)].dtype;
            const bool runs = step == 0 || step == 1;
            const bool near = step > 1 && step <= TCI_TILE_NEAR && tci_dtype_get(dtype)->bytes >= 4;
            cycles += runs ? 0 : near ? (double)step : TCI_TILE_GATHER * (double)lanes;
        }
    }
    return cycles * a->machine.facts.ports / (double)rows;
}

/* True if a tile has all columns, and its rows, which are then read for it alone, take more than
 * half of the L1 cache. */
static bool tci_tile_rows_are_far(const tci_query *a, const int64_t *n)
{
    const tci_kstage *st = &a->k->stages[0];
    double bytes = (double)n[TCI_TILE_N_ROWS] * tci_dtype_get((tc_dtype)a->k->reds[0].dtype)->bytes;
    for (int i = 0; i < st->n_axes; i++) {
        bytes *= (double)TCI_MAX(tci_dim_hint(a->k->axes[st->axes[i]].size), 1);
    }
    return a->row_axis >= 0 && tci_query_vectors(a, n[TCI_TILE_N_LANES]) <= n[TCI_TILE_N_UNROLL] &&
           2 * bytes > (double)a->machine.facts.cache_bytes[0];
}

TCI_FN double tci_tile_in_place(const tci_query *a, double ns)
{
    return 1.2 * TCI_MAX(ns, tci_tile_has_dot(a->k) ? tci_products_least_ns(a) : -1);
}

static bool tci_tile_reads_long_rows(const tci_query *a);

/* On GPUs: how much longer it takes than if every processor had a tile. */
static double tci_tile_idle(const tci_query *a, const int64_t *n)
{
    int64_t vectors = tci_query_vectors(a, n[TCI_TILE_N_LANES]);
    double tiles = (double)tci_ceil_div(vectors, n[TCI_TILE_N_UNROLL]);
    for (int i = 0; i < a->vec_axis; i++) {
        int64_t size = TCI_MAX(tci_dim_hint(a->k->axes[i].size), 1);
        tiles *= (double)(i == a->row_axis ? tci_ceil_div(size, n[TCI_TILE_N_ROWS]) : size);
    }
    double processors = a->machine.facts.processors;
    bool idle = a->machine.block_threads > 0 && tiles > 0 && tiles < processors;
    return idle ? processors / tiles : 1;
}

static double tci_tile_cost(const tci_query *a, const int64_t *n)
{
    double off = 1 + 0.01 * (double)(a->lanes - n[TCI_TILE_N_LANES]) / (double)a->lanes;
    int64_t rows, unroll;
    tci_tile_largest(a, a->flops, &rows, &unroll);
    double slower = tci_tile_slower(a, n[TCI_TILE_N_ROWS], n[TCI_TILE_N_UNROLL]) /
                    tci_tile_slower(a, rows, unroll);
    slower = TCI_MAX(slower, 1) * tci_tile_idle(a, n);
    bool packs = tci_tile_has_dot(a->k) && a->machine.block_threads == 0;
    double gathering = packs ? tci_tile_gathering(a, n[TCI_TILE_N_ROWS], n[TCI_TILE_N_LANES]) : 0;
    double ns = tci_query_ns(a, 1 + gathering, tci_tile_reads_long_rows(a) ? 2 : 1) * off * slower;
    if (packs) { /* what packing may not lose */
        ns *= tci_tile_rows_are_far(a, n) ? TCI_TILE_FAR : 1;
        ns *= tci_tile_lost(a, n[TCI_TILE_N_LANES]);
    }
    return tci_tile_has_dot(a->k) ? tci_tile_in_place(a, ns) : ns;
}

static tci_unit tci_tile_unit(const tci_query *a, const int64_t *n, tci_nest *nest)
{
    tci_unit unit = tci_unit_make(nest);
    unit.unroll = (int)n[TCI_TILE_N_UNROLL];
    if (a->row_axis >= 0) {
        tci_unit_rows(&unit, a->row_axis, (int)n[TCI_TILE_N_ROWS]);
        unit.skew = a->skew;
    }
    return unit;
}

static void tci_tile_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    b->l->lanes = (int)n[TCI_TILE_N_LANES];
    b->l->threads = (int)n[TCI_TILE_N_THREADS];
    b->l->rows = nest.rows = tci_query_rows(a, b->l->threads);
    nest.vec_axis = a->vec_axis;
    nest.n_vec = a->n_vec;
    tci_unit unit = tci_tile_unit(a, n, &nest);
    int64_t step = (int64_t)unit.unroll * b->l->lanes;
    bool maps = a->row_axis < 0 && a->k->n_reds == 0;
    tci_nest_cut(&nest, step, maps ? TCI_MAX(step, TCI_TILE_MIN_CHUNK) : step);
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_tile_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    if (a->k->n_reds > 0) {
        tci_nest nest = tci_nest_make(a, (tci_build *)b);
        tci_unit unit = tci_tile_unit(a, n, &nest);
        tci_str_printf(out, ", tile %dx%d%s", unit.rows, unit.unroll,
                       unit.skew.row > 0 ? ", windows in turns" : "");
    }
}

/* ---- panels ---- */

enum { TCI_PANEL_N_ROWS, TCI_PANEL_N_COLUMNS, TCI_PANEL_N_UNROLL };

static bool tci_panel_is_kernel(const tci_query *a)
{
    const tci_kernel *k = a->k;
    bool fits = tci_tile_is_kernel(a) && a->lanes > 1 && a->machine.block_threads == 0 &&
                a->row_axis < 0 && a->n_cuts == 0 && k->n_reds > 0 &&
                k->n_reds <= TCI_TILE_PANEL_REDS && k->stages[0].kind == TCI_STAGE_REDUCE &&
                k->stages[0].n_axes == 1;
    for (int t = 1; t < k->n_stages; t++) {
        fits = fits && k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int r = 0; r < k->n_reds; r++) {
        fits = fits && tci_red_parts(k->reds[r].op) == 1 && k->reds[r].dtype != TC_BOOL &&
               k->reds[r].stage == 0;
    }
    return fits;
}

/* A cheap reduction over the rows of memory that is far away: reading a few long rows at once is
 * twice as fast as going down narrow columns. */
static bool tci_tile_reads_long_rows(const tci_query *a)
{
    const tci_kernel *k = a->k;
    return tci_panel_is_kernel(a) && tci_query_is_far(a) && a->flops <= TCI_TILE_PANEL_HEAVY &&
           tci_dim_hint(a->n_vec) >= TCI_TILE_PANEL_LEAST &&
           tci_dim_hint(k->axes[k->stages[0].axes[0]].size) >= TCI_TILE_PANEL_ROWS;
}

static int64_t tci_panel_columns(const tci_query *a, int64_t unroll)
{
    int64_t step = unroll * a->lanes, n_vec = tci_dim_hint(a->n_vec);
    int64_t columns = TCI_MIN(TCI_MAX(n_vec / 2, TCI_TILE_PANEL_LEAST), TCI_TILE_PANEL_MOST);
    return tci_ceil_div(columns, step) * step;
}

static int64_t tci_panel_rows(const tci_query *a)
{
    return a->flops > TCI_TILE_PANEL_LIGHT ? TCI_TILE_PANEL_ROWS / 2 : TCI_TILE_PANEL_ROWS;
}

/* True if a part of a split sum ends where a group of rows that are reduced together ends. */
static bool tci_panel_ends_parts(const tci_kernel *k, int64_t rows)
{
    return k->reds[0].order != TCI_ORDER_SPLIT || k->reds[0].order_n % rows == 0;
}

static bool tci_panel_fits(const tci_query *a, const int64_t *n)
{
    int64_t columns = n[TCI_PANEL_N_COLUMNS], unroll = n[TCI_PANEL_N_UNROLL];
    return tci_panel_is_kernel(a) && n[TCI_PANEL_N_ROWS] >= 1 &&
           n[TCI_PANEL_N_ROWS] <= TCI_TILE_PANEL_ROWS &&
           tci_panel_ends_parts(a->k, n[TCI_PANEL_N_ROWS]) && unroll >= 1 && unroll <= 8 &&
           columns > 0 && columns <= 2 * TCI_TILE_PANEL_MOST && columns % (unroll * a->lanes) == 0;
}

static int tci_panel_candidates(const tci_query *a,
                                int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    int64_t rows = tci_panel_rows(a), columns = tci_panel_columns(a, 2);
    const int64_t all[][TCI_FORM_NUMBERS] = {{rows, columns, 2},
                                             {rows / 2, columns, 2},
                                             {rows, columns / 2, 2},
                                             {rows, 2 * columns, 2}};
    memcpy(n, all, sizeof(all));
    return (int)TCI_COUNT(all);
}

static double tci_panel_cost(const tci_query *a, const int64_t *n)
{
    double rows = (double)tci_panel_rows(a) / (double)n[TCI_PANEL_N_ROWS];
    double columns = (double)tci_panel_columns(a, 2) / (double)n[TCI_PANEL_N_COLUMNS];
    double off = TCI_MAX(rows, 1 / rows) * TCI_MAX(columns, 1 / columns);
    double array = tci_tile_reads_long_rows(a) ? 1 : 2; /* accumulators pass through memory */
    return tci_query_ns(a, array, array) * (1 + 0.01 * (off - 1));
}

/* Rows are read over the chunks of the call that follow each other: the longer a run of memory,
 * the better. */
static void tci_panel_body(tci_nest *nest, void *arg, const tci_nest_at *at)
{
    const int64_t *n = arg;
    tci_build *b = nest->b;
    tci_loop *l = b->l;
    tci_panel panel = {nest->vec_axis,
                       (int)n[TCI_PANEL_N_ROWS],
                       (int)n[TCI_PANEL_N_UNROLL],
                       tci_lin_mul(b, at->chunk, nest->chunk),
                       0,
                       0,
                       tci_dim_add(nest->n_vec, -1),
                       nest->chunk * nest->joined};
    int next = tci_build_lx(b, tci_lin_plus(panel.first, panel.chunk));
    if (nest->joined > 1) {
        int last = tci_lx_make(l, TCI_LX_MUL, at->end, -1, nest->chunk);
        next = tci_lx_make(l, TCI_LX_MIN, next, last, 0);
    }
    next = tci_lx_make(l, TCI_LX_MIN, next, tci_lx_const(l, nest->n_vec), 0);
    panel.end = tci_build_lx(b, tci_build_let(b, next));
    tci_stage_panel(b, &panel);
}

static void tci_panel_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    int64_t numbers[TCI_FORM_NUMBERS];
    tci_dim points = 1;
    memcpy(numbers, n, sizeof(numbers));
    b->l->lanes = a->lanes;
    nest.vec_axis = a->vec_axis;
    nest.n_vec = a->n_vec;
    nest.chunk = n[TCI_PANEL_N_COLUMNS];
    for (int i = 0; i < a->k->n_outer - 1; i++) {
        points = tci_dim_mul(points, a->k->axes[i].size);
    }
    nest.joined = points == 1 ? TCI_TILE_PANEL_JOINED : 1;
    tci_nest_run(&nest, tci_panel_body, numbers, launch);
}

static void tci_panel_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)b;
    tci_str_printf(out, ", panel %dx%d", (int)n[TCI_PANEL_N_ROWS], (int)n[TCI_PANEL_N_COLUMNS]);
}

/* ---- packed panels ---- */

enum { TCI_PACKED_N_ROWS, TCI_PACKED_N_UNROLL, TCI_PACKED_N_DEPTH, TCI_PACKED_N_COLUMNS };
enum { TCI_PACKED_LEFT = 10 /* vectors of columns: one too many is worth another tile */ };

static int64_t tci_packed_vectors(const tci_query *a, const tci_gemm *p)
{
    return tci_ceil_div(tci_dim_hint(p->of_columns.size), a->lanes);
}

/* The plan with these numbers; depth and columns 0: its own. */
static bool tci_packed_plan(const tci_query *a, const int64_t *n, tci_gemm *p)
{
    tci_nest nest = tci_nest_make(a, NULL);
    tci_unit unit = tci_unit_make(&nest);
    memset(p, 0, sizeof(*p));
    if (!tci_tile_is_kernel(a) ||
        !tci_tile_shape_fits(true, n[TCI_PACKED_N_ROWS], n[TCI_PACKED_N_UNROLL]) ||
        !tci_gemm_sides(a->k, a->machine, a->lanes, p)) {
        return false;
    }
    tci_unit_tiles(&unit, p->of_rows.size, (int)n[TCI_PACKED_N_ROWS]);
    p->unroll = (int)n[TCI_PACKED_N_UNROLL];
    p->n_tiles = nest.n_tiles;
    p->base = unit.base;
    p->extra = unit.extra;
    p->depth = n[TCI_PACKED_N_DEPTH];
    p->columns = n[TCI_PACKED_N_COLUMNS];
    return tci_gemm_plan(a->k, a->machine, a->lanes, p);
}

static bool tci_packed_fits(const tci_query *a, const int64_t *n)
{
    tci_gemm p;
    return n[TCI_PACKED_N_DEPTH] > 0 && n[TCI_PACKED_N_COLUMNS] > 0 &&
           n[TCI_PACKED_N_COLUMNS] <= TCI_TILE_PANEL_MOST && tci_packed_plan(a, n, &p) &&
           p.depth == n[TCI_PACKED_N_DEPTH] && p.columns == n[TCI_PACKED_N_COLUMNS];
}

/* The largest tile: not bounded by what packing and later stages do. */
static void tci_packed_largest(const tci_query *a, const tci_gemm *p, int64_t *rows,
                               int64_t *unroll)
{
    bool paired;
    int64_t vectors = p->is_vec_there ? tci_gemm_panel(a->k, p, &paired) / a->lanes
                                      : tci_packed_vectors(a, p);
    tci_tile_largest_of(a, vectors, true, 1, rows, unroll);
}

/* The same of one vector; false: the larger tile hardly traverses more vectors than there are. */
static bool tci_packed_single(const tci_query *a, const tci_gemm *p, int64_t unroll, int64_t *rows)
{
    int64_t one, vectors = tci_packed_vectors(a, p);
    int64_t walked = tci_ceil_div(vectors, unroll) * unroll;
    tci_tile_largest_of(a, 1, true, 1, rows, &one);
    return !p->is_vec_there && TCI_PACKED_LEFT * (walked - vectors) >= vectors;
}

static int tci_packed_candidates(const tci_query *a,
                                 int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    int64_t rows, unroll, single;
    int count = 0;
    tci_gemm p = {0};
    if (!tci_tile_is_kernel(a) || !tci_gemm_sides(a->k, a->machine, a->lanes, &p)) {
        return 0;
    }
    tci_packed_largest(a, &p, &rows, &unroll);
    bool is_left = tci_packed_single(a, &p, unroll, &single);
    const int64_t wishes[][TCI_FORM_NUMBERS] = {
        {rows, unroll, 0, 0},           {rows, unroll, 256, 0},  {rows, unroll, 0, 512},
        {(rows + 1) / 2, unroll, 0, 0}, {rows, unroll, 1024, 0}, {single, 1, 0, 0}};
    for (int i = 0; i < TCI_COUNT(wishes) - !is_left; i++) {
        if (tci_packed_plan(a, wishes[i], &p)) {
            const int64_t made[TCI_FORM_NUMBERS] = {wishes[i][0], wishes[i][1], p.depth, p.columns};
            memcpy(n[count++], made, sizeof(made));
        }
    }
    return count;
}

/* The tile's time, by what it traverses and loads, over that of the best tile. */
static double tci_packed_tile_factor(const tci_query *a, const tci_gemm *p, const int64_t *n)
{
    int64_t rows, unroll, single, vectors = tci_packed_vectors(a, p);
    tci_packed_largest(a, p, &rows, &unroll);
    double least = tci_tile_slower_of(a, vectors, rows, unroll);
    if (tci_packed_single(a, p, unroll, &single)) {
        double one = tci_tile_slower_of(a, vectors, single, 1);
        least = TCI_MIN(least, one);
    }
    double slower = tci_tile_slower_of(a, vectors, n[TCI_PACKED_N_ROWS], n[TCI_PACKED_N_UNROLL]);
    return TCI_MAX(slower / least, 1);
}

static double tci_packed_cost(const tci_query *a, const int64_t *n)
{
    const int64_t wish[TCI_FORM_NUMBERS] = {n[TCI_PACKED_N_ROWS], n[TCI_PACKED_N_UNROLL]};
    tci_gemm own, p;
    tci_packed_plan(a, n, &p);
    tci_packed_plan(a, wish, &own);
    double depth = (double)p.depth / (double)own.depth;
    double columns = (double)p.columns / (double)own.columns;
    double off = TCI_MAX(depth, 1 / depth) * TCI_MAX(columns, 1 / columns);
    bool plain = p.of_columns.n_axes == 1 && !p.is_turned; /* whose packing p.pays weighs */
    double packed = p.pays ? plain ? 1 : 1 + p.overhead : 1.5;
    double ns = p.points > 1 ? tci_query_ns(a, 1.0 / p.points, 1) : a->ns;
    return ns * p.lost * packed * (1 + 0.01 * (off - 1)) * tci_packed_tile_factor(a, &p, n);
}

typedef struct tci_packed {
    const tci_gemm *p;
    bool in_place;
} tci_packed;

/* The row tiles of the group, of those that the call is for. */
static void tci_packed_body(tci_nest *nest, void *arg, const tci_nest_at *at)
{
    const tci_packed *packed = arg;
    tci_build *b = nest->b;
    tci_loop *l = b->l;
    int first = tci_build_lx(b, tci_lin_mul(b, at->group, nest->group));
    int last = tci_lx_make(l, TCI_LX_ADD, first, tci_lx_const(l, nest->group), 0);
    if (!tci_dim_divides(nest->group, nest->grain)) { /* the call's range may cut the group */
        int back = tci_build_lx(b, tci_lin_mul(b, at->unit, tci_dim_neg(nest->group)));
        int from = tci_lx_make(l, TCI_LX_ADD, at->begin, back, 0);
        int to = tci_lx_make(l, TCI_LX_ADD, at->end, back, 0);
        from = tci_lx_make(l, TCI_LX_MAX, from, tci_lx_const(l, 0), 0);
        to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, nest->group), 0);
        last = tci_lx_make(l, TCI_LX_ADD, first, to, 0);
        first = tci_lx_make(l, TCI_LX_ADD, first, from, 0);
    }
    last = tci_lx_make(l, TCI_LX_MIN, last, tci_lx_const(l, nest->n_tiles), 0);
    first = tci_build_lx(b, tci_build_let(b, first));
    last = tci_build_lx(b, tci_build_let(b, last));
    if (packed->in_place) {
        tci_amx_emit(b, packed->p, at->chunk, first, last);
    } else {
        tci_gemm_emit(b, packed->p, at->chunk, first, last);
    }
}

static void tci_packed_run(const tci_query *a, const tci_gemm *p, bool in_place, tci_build *b,
                           tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_packed packed = {p, in_place};
    b->l->lanes = a->lanes;
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    for (int i = 0; i < a->k->n_outer; i++) {
        tiled[i] = tci_gemm_has(p, i);
    }
    nest.tiled = tiled;
    nest.n_vec = p->of_columns.size;
    nest.n_tiles = p->n_tiles;
    nest.chunk = p->columns;
    nest.group = tci_dim_max(tci_dim_min(p->group, p->n_tiles), 1);
    nest.share = p->share;
    tci_nest_run(&nest, tci_packed_body, &packed, launch);
    double columns = (double)TCI_MIN(p->columns, tci_dim_known(p->of_columns.size));
    launch->call_ns = p->fused ? 0 : tci_gemm_pack_ns(a->k, a->machine, a->lanes, p, columns);
}

static void tci_packed_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_gemm p;
    tci_packed_plan(a, n, &p);
    tci_packed_run(a, &p, false, b, launch);
}

static void tci_packed_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    tci_gemm p;
    (void)b;
    tci_packed_plan(a, n, &p);
    tci_str_printf(out, ", packed %dx%d, tile %dx%d%s%s%s", (int)(p.depth * p.inner),
                   (int)p.columns, (int)(p.base + (p.extra > 0)), p.unroll,
                   p.points == 4   ? ", fours"
                   : p.points == 2 ? ", pairs"
                                   : "",
                   p.is_row_there ? ", rows in place" : "",
                   p.is_vec_there ? ", columns in panels"
                   : p.squares    ? ", columns turned"
                                  : "");
}

/* ---- a CPU's matrix unit ---- */

static bool tci_unit_fits(const tci_query *a, const int64_t *n)
{
    (void)n;
    return tci_query_on_unit(a) && a->machine.block_threads == 0 && !tci_kernel_keeps(a->k);
}

/* Fills *p; true if AMX reads the operands in place, not panels of pairs. */
static bool tci_unit_plan(const tci_query *a, tci_gemm *p)
{
    if (tci_matrix_fits(a->k, a->machine)) {
        tci_amx_plan(a->k, p);
        return true;
    }
    tci_nest nest = tci_nest_make(a, NULL);
    tci_unit unit = tci_unit_make(&nest);
    memset(p, 0, sizeof(*p));
    bool fits = tci_gemm_sides(a->k, a->machine, a->lanes, p);
    tci_unit_tiles(&unit, p->of_rows.size, TCI_MATRIX_WHOLE);
    p->unroll = TCI_MATRIX_WHOLE / a->lanes;
    p->n_tiles = nest.n_tiles;
    p->base = unit.base;
    p->extra = unit.extra;
    fits = fits && tci_gemm_plan(a->k, a->machine, a->lanes, p);
    TCI_ASSERT(a->s, fits); /* whatever tci_matrix_packs says yes to */
    return false;
}

static double tci_unit_cost(const tci_query *a, const int64_t *n)
{
    const tc_machine *m = &a->machine.facts;
    (void)n;
    double rate = tci_query_unit_flops(a) * m->ghz;
    return TCI_MAX((double)a->k->flops / rate, tci_query_ns(a, 0, 1));
}

static void tci_unit_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_gemm p;
    (void)n;
    bool in_place = tci_unit_plan(a, &p);
    tci_packed_run(a, &p, in_place, b, launch);
}

static void tci_unit_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    tci_gemm p;
    (void)n, (void)b;
    bool in_place = tci_unit_plan(a, &p);
    tci_str_printf(out, ", matrix unit, %d columns", (int)p.columns);
    if (!in_place) {
        tci_str_printf(out, ", packed %d deep, %d rows%s%s", (int)(p.depth * p.inner),
                       (int)(p.base + (p.extra > 0)), p.is_turned ? ", turned" : "",
                       p.is_vec_there ? ", columns in panels" : "");
    }
}

/* ---- rows ---- */

TCI_FN const tci_form *const *tci_tile_forms(void)
{
    static const tci_form tile = {"tile",        {"rows", "unroll", "lanes", "threads"},
                                  tci_tile_fits, tci_tile_candidates,
                                  tci_tile_cost, tci_tile_emit,
                                  tci_tile_note};
    static const tci_form panel = {"panel",        {"rows", "columns", "unroll"},
                                   tci_panel_fits, tci_panel_candidates,
                                   tci_panel_cost, tci_panel_emit,
                                   tci_panel_note};
    static const tci_form packed = {"packed",        {"rows", "unroll", "depth", "columns"},
                                    tci_packed_fits, tci_packed_candidates,
                                    tci_packed_cost, tci_packed_emit,
                                    tci_packed_note};
    static const tci_form unit = {"unit",        {0},           tci_unit_fits, NULL,
                                  tci_unit_cost, tci_unit_emit, tci_unit_note};
    static const tci_form *const forms[] = {&packed, &panel, &tile, &unit, NULL};
    return forms;
}
