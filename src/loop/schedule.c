/* loop/schedule.c - decides how a kernel runs and builds the loop nest.
 *
 * In: a kernel and the width of the machine's vectors. Out: its loop IR and what the run must know
 * (tci_launch). The outer domain is cut into units: one point of the outer axes that are neither
 * vectorized nor tiled, times one chunk of the vector axis, times one group of row tiles; a task is
 * `grain` neighbouring units. Inside a unit the vector axis is walked in tiles of `unroll` vectors,
 * and for each of them the rows. Which elements fall into a tile never changes a result.
 *   pointwise     the vector axis only; long outputs that nothing reads soon bypass the caches
 *   transposing   small blocks of two axes, so that every cache line is used whole
 *   contraction   rows x vectors of accumulators in registers, loads shared along both sides
 *   rows          (VEC_INNER) one unit is one outer point; the stages run along their inner axes
 * On a machine of blocks a unit is a block of threads and a task. Where that does better than one
 * wide vector, loop/row.c holds rows in registers, loop/square.c turns squares, loop/product.c
 * contracts in tiles and loop/spread.c point by point. */
#include <stdio.h>

#include "blocked.h"
#include "matrix.h"
#include "panel.h"
#include "product.h"
#include "row.h"
#include "spread.h"
#include "square.h"
#include "tiles.h"

enum {
    TCI_SCHED_MAX_CUTS = 12,
    TCI_SCHED_BLOCK = 32,            /* rows of a transposing block */
    TCI_SCHED_BLOCK_VECTOR = 64,     /* its elements along the vector axis */
    TCI_SCHED_LINE_BYTES = 64,
    TCI_SCHED_SQUARE = 16,           /* most lanes of a square that is turned in registers */
    TCI_SCHED_MIN_CHUNK = 1024,      /* elements of a pointwise chunk */
    TCI_SCHED_KEEP_BYTES = 65536,    /* a row kept on the stack */
    TCI_SCHED_MAP_THREADS = 256,     /* most of them, but for rows */
    TCI_SCHED_BUSY = 2,              /* blocks for each processor that keep a device busy */
    TCI_SCHED_PREFETCH_BYTES = 2048, /* how far ahead streaming kernels read */
    TCI_SCHED_PANEL_LEAST = 512,     /* elements of a panel along the vector axis */
    TCI_SCHED_PANEL_MOST = 2048,
    TCI_SCHED_PANEL_JOINED = 2,
    TCI_SCHED_LONG_ROW = 512,        /* elements of such a row, at least */
    TCI_SCHED_MAX_BODY = 800         /* flops written out in one tile */
};
static const double tci_sched_task_ns = 20000, tci_sched_min_task_ns = 1000;

typedef struct tci_sched {
    const tci_kernel *k;
    tci_loop *l;
    tci_build *b;
    tci_machine machine;
    /* instructions reached from a stage's roots; scratch for the decisions */
    bool *live;
    int vec_axis, row_axis; /* -1 none */
    tci_dim n_vec;          /* size of the vector axis */
    int unroll;             /* vectors of a tile */
    int64_t chunk;
    tci_dim n_chunks;
    int rows;               /* rows of a tile, at most */
    /* The first `extra` tiles have base + 1 rows, the others base. Where the number of rows is not
     * known all but the last have base rows, and that one what is left. */
    tci_dim n_tiles;
    int64_t base, extra;
    tci_dim group;                /* row tiles of a unit */
    tci_dim n_groups;
    int *others; int n_others;    /* outer axes that a unit fixes */
    tci_dim points, units;
    int64_t grain;
    bool transposing;
    bool turn;                /* in registers, squares of lanes x lanes */
    tci_blocked blocked;      /* packed panels, where columns > 0 */
    int panel;                /* rows that a panel takes in at a time, 0: no panel */
    tci_product product;      /* tiles of a contraction by blocks, where rows.extent > 0 */
    tci_spread spread;        /* points of a contraction, one by one, where size > 0 */
    bool on_tiles;            /* of a matrix unit: blocked says how */
    int64_t joined;           /* chunks that one panel covers where a call has them all */
    tci_square square;        /* turned in shared memory, where n_loads > 0 */
    int held;                 /* vectors of a row that a block holds, 0: it does not */
    const tci_kstore *stream; /* that bypasses the caches, NULL none */
    int next_axis;            /* as in tci_tile */
    tci_dim cuts[TCI_SCHED_MAX_CUTS + 1]; int n_cuts;
    double total_ns;
} tci_sched;

/* More than one of something, or perhaps so. */
static bool tci_sched_many(tci_dim n)
{
    return !tci_dim_is_known(n) || n > 1;
}

/* ---- lanes ---- */

/* Threads, at least a warp, that cover n lanes of which each holds `held`. */
static int tci_sched_threads(int64_t n, int held, int most)
{
    int threads = TCI_MIN(TCI_WARP, most);
    while (threads < most && (int64_t)threads * held < n) {
        threads *= 2;
    }
    return threads;
}

/* Blocks along the last outer axis: wide, but so many that the device is busy; where each lane
 * reduces alone, narrow accesses rather than idle processors. A thread holds two lanes at least:
 * what one holds alone is a scalar. */
static void tci_sched_block_lanes(tci_loop *l, const tci_kernel *k, int held, int most,
                                  int64_t busy)
{
    int64_t points = 1, n = tci_dim_hint(k->axes[k->n_outer - 1].size);
    for (int a = 0; a < k->n_outer - 1; a++) {
        points *= TCI_MAX(tci_dim_hint(k->axes[a].size), 1);
    }
    l->threads = tci_sched_threads(n, held, most);
    while (l->threads > TCI_WARP &&
           points * tci_dim_ceil_div(n, l->threads * held) < busy) {
        l->threads /= 2;
    }
    while (held > 2 && k->n_reds > 0 &&
           points * tci_dim_ceil_div(n, l->threads * held) < busy / 2) {
        held /= 2;
    }
    l->lanes = l->threads * held;
}

/* Does a SCATTER store elements that do not lie in a row along the last outer axis? */
static bool tci_sched_scatters_apart(const tci_kernel *k)
{
    bool apart = false;
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *store = &k->stores[i];
        tci_dim coef = 0;
        bool linear = tci_build_coef(k, store->x, k->n_outer - 1, &coef);
        apart |= k->stages[store->stage].kind == TCI_STAGE_SCATTER && !(linear && coef == 1);
    }
    return apart;
}

/* Sets lanes and threads. */
static void tci_sched_lanes(tci_loop *l, const tci_kernel *k, tci_machine machine)
{
    bool outer = k->vector == TCI_VEC_OUTER;
    l->lanes = l->threads = 1;
    if (outer && (k->n_outer == 0 || !tci_sched_many(k->axes[k->n_outer - 1].size))) {
        return;
    }
    if (machine.block_threads == 0 && outer && tci_sched_scatters_apart(k)) {
        return;
    }
    int held = TCI_MAX(machine.vector_bytes / tci_cost_widest(k), 1);
    if (machine.block_threads == 0) {
        l->lanes = TCI_MIN(held, TCI_VLANES);
        return;
    }
    if (outer) {
        tci_sched_block_lanes(l, k, held, TCI_MIN(machine.block_threads, TCI_SCHED_MAP_THREADS),
                              (int64_t)machine.facts.processors * TCI_SCHED_BUSY);
    } else {
        int lanes = tci_kernel_lanes(k), least = TCI_MIN(TCI_WARP, machine.block_threads);
        held = TCI_MAX(TCI_MIN(held, lanes / least), 1);
        l->threads = TCI_MIN(lanes / held, machine.block_threads);
        l->lanes = l->threads * held;
    }
}

/* ---- tiles ---- */

/* Vectors along the vector axis, about. */
static int64_t tci_sched_vectors_of(const tci_sched *s)
{
    return tci_dim_ceil_div(tci_dim_hint(s->n_vec), s->l->lanes);
}

/* Does any load of a REDUCE stage run along the vector axis without depending on `axis`? */
static bool tci_sched_is_shared(const tci_sched *s, int axis)
{
    const tci_kernel *k = s->k;
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        if (s->live[i] && in->op == TCI_K_LOAD && tci_build_depends(in->axes, s->vec_axis) &&
            !tci_build_depends(in->axes, axis)) {
            return true;
        }
    }
    return false;
}

static void tci_sched_split_rows(tci_sched *s, int max_rows)
{
    tci_dim n = s->k->axes[s->row_axis].size;
    if (!tci_dim_is_known(n)) {
        s->n_tiles = tci_dim_ceil_div(n, max_rows);
        s->base = s->rows = max_rows;
        s->extra = 0;
        return;
    }
    for (int t = max_rows; t > 1 && t * 5 >= max_rows * 3; t--) {
        if (n % t == 0) {
            max_rows = t;
            break;
        }
    }
    s->n_tiles = (n + max_rows - 1) / max_rows;
    s->base = n / s->n_tiles;
    s->extra = n % s->n_tiles;
    s->rows = (int)(s->base + (s->extra > 0));
}

static void tci_sched_reduce_tile(tci_sched *s, int64_t cost)
{
    const tci_kernel *k = s->k;
    bool dot = false, scan = false;
    int n_accs = 1,
        n_registers = s->machine.block_threads ? 32 : TCI_MIN(s->machine.facts.registers, 32);
    int64_t n_vecs = TCI_MAX(tci_sched_vectors_of(s), 1); /* n_vec may be 0 */
    for (int t = 0; t < k->n_stages; t++) {
        int n = 0;
        for (int r = 0; r < k->n_reds; r++) {
            dot = dot || k->reds[r].op == TCI_RED_DOT;
            n += k->reds[r].stage == t ? tci_red_parts(k->reds[r].op) : 0;
        }
        n_accs = TCI_MAX(n_accs, n);
        scan = scan || k->stages[t].kind == TCI_STAGE_SCAN;
        if (k->stages[t].kind == TCI_STAGE_REDUCE) {
            tci_cost_mark(k, t, false, s->live);
        }
    }
    for (int a = k->n_outer - 2; a >= 0 && s->row_axis < 0 && !scan; a--) {
        s->row_axis = tci_sched_many(k->axes[a].size) && tci_sched_is_shared(s, a) ? a : -1;
    }
    int64_t most = TCI_MAX(TCI_SCHED_MAX_BODY / TCI_MAX(cost, 1), 1);
    if (s->row_axis < 0 && s->machine.block_threads) {
        s->unroll = 1; /* more blocks rather than more of each */
    } else if (s->row_axis < 0) {
        s->unroll = (int)TCI_MIN(TCI_MIN(n_registers / 2 / n_accs, most), n_vecs);
    } else {
        bool thirds = n_vecs == 3 || (n_vecs % 2 != 0 && n_vecs % 3 == 0);
        s->unroll = (int)TCI_MIN(n_vecs, thirds ? 3 : 2);
        int rows = dot ? TCI_MIN((n_registers - 1 - s->unroll) / s->unroll, 14) : 4;
        rows = (int)TCI_MIN(rows / n_accs, most / s->unroll);
        tci_sched_split_rows(s, TCI_MAX(rows, 1));
    }
    s->unroll = TCI_MAX(s->unroll, 1);
}

/* Packed panels, where they pay: the tile's size is not bounded by what packing and the later
 * stages compute. */
static void tci_sched_block(tci_sched *s)
{
    tci_sched before = *s;
    if (s->k->n_reds == 0) {
        return;
    }
    if (s->k->reds[0].order == TCI_ORDER_MATRIX) {
        tci_tiles_plan(s->k, &s->blocked);
        s->row_axis = s->blocked.row_axis;
        s->unroll = s->blocked.unroll;
        s->n_tiles = s->blocked.n_tiles;
        s->base = s->rows = (int)s->blocked.base;
        s->extra = 0;
        s->on_tiles = true;
        return;
    }
    tci_sched_reduce_tile(s, 1);
    tci_blocked p = {0};
    p.vec_axis = s->vec_axis;
    p.row_axis = s->row_axis;
    p.unroll = s->unroll;
    p.n_tiles = s->n_tiles;
    p.base = s->base;
    p.extra = s->extra;
    if (tci_blocked_plan(s->k, s->machine, s->l->lanes, &p)) {
        s->blocked = p;
    } else {
        *s = before;
    }
}

/* A cheap reduction over the rows of memory that is far away: reading a few long rows at once is
 * twice as fast as going down narrow columns. */
static int tci_sched_panel_rows(const tci_sched *s, int64_t cost)
{
    const tci_kernel *k = s->k;
    bool fits = s->l->lanes > 1 && !s->machine.block_threads && s->row_axis < 0 && k->n_reds > 0 &&
                k->bytes >= s->machine.facts.cache_bytes[1] &&
                tci_dim_hint(s->n_vec) >= TCI_SCHED_PANEL_LEAST &&
                k->stages[0].kind == TCI_STAGE_REDUCE && k->stages[0].n_axes == 1 &&
                tci_dim_hint(k->axes[k->stages[0].axes[0]].size) >= 8;
    for (int t = 1; t < k->n_stages; t++) {
        fits = fits && k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int r = 0; r < k->n_reds; r++) {
        fits = fits && tci_red_parts(k->reds[r].op) == 1 && k->reds[r].dtype != TC_BOOL;
    }
    return !fits || k->n_reds > 2 || cost > 24 ? 0 : cost > 8 ? 4 : 8;
}

/* An access that strides along the vector axis but is contiguous along another outer axis: the last
 * such axis, else -1. */
static int tci_sched_other_axis(const tci_sched *s, int kx, tc_dtype storage)
{
    const tci_kernel *k = s->k;
    tci_dim c;
    bool linear = tci_build_coef(k, kx, s->vec_axis, &c);
    int64_t step = tci_dim_hint(c);
    if (!linear || (step < 0 ? -step : step) * tci_dtype_get(storage)->bytes < 64) {
        return -1;
    }
    for (int a = k->n_outer - 2; a >= 0; a--) {
        if (tci_dim_hint(k->axes[a].size) >= 4 && tci_build_coef(k, kx, a, &c) &&
            (c == 1 || c == -1)) {
            return a;
        }
    }
    return -1;
}

/* Squares of as many rows as there are lanes, of whole cache lines. */
static void tci_sched_turn_tile(tci_sched *s)
{
    tci_dim n = s->k->axes[s->row_axis].size;
    s->l->lanes = TCI_MIN(s->l->lanes, TCI_SCHED_SQUARE);
    s->n_tiles = tci_dim_ceil_div(n, s->l->lanes);
    s->base = s->l->lanes;
    s->extra = 0;
    if (tci_dim_is_known(n)) {
        s->base = n / TCI_MAX(s->n_tiles, 1);
        s->extra = n % TCI_MAX(s->n_tiles, 1);
    }
    s->rows = (int)(s->base + (s->extra > 0));
    s->unroll = TCI_MAX(TCI_SCHED_LINE_BYTES / (s->l->lanes * tci_cost_widest(s->k)), 1);
}

/* A block's vector is wide enough, or the block turns squares; then a lane is a thread. */
static void tci_sched_block_map(tci_sched *s)
{
    s->turn = false;
    if (s->machine.block_threads >= TCI_SQUARE_THREADS && !s->machine.no_exchange &&
        tci_square_plan(s->k, s->row_axis, s->vec_axis, &s->square)) {
        s->l->lanes = 1;
        s->l->threads = TCI_SQUARE_THREADS;
        s->unroll = TCI_SQUARE;
        s->n_tiles = tci_dim_ceil_div(s->k->axes[s->row_axis].size, TCI_SQUARE);
    } else {
        s->row_axis = -1;
    }
}

/* A contraction whose points are spread over the threads of blocks. */
static void tci_sched_block_spread(tci_sched *s)
{
    tci_spread p = {0};
    if (s->machine.block_threads < TCI_SPREAD_THREADS || !tci_spread_plan(s->k, &p)) {
        return;
    }
    s->spread = p;
    s->l->lanes = 1;
    s->l->threads = s->unroll = TCI_SPREAD_THREADS;
    s->n_vec = p.size;
    s->n_tiles = p.row_axis < 0 ? 1 : tci_dim_div(s->k->axes[p.row_axis].size, p.rows);
}

/* A contraction in tiles of a block. */
static void tci_sched_block_product(tci_sched *s)
{
    tci_product p = {0};
    if (s->machine.no_exchange || !tci_product_plan(s->k, &s->machine, &p)) {
        return;
    }
    s->product = p;
    s->l->lanes = 1;
    s->l->threads = p.threads;
    s->l->resident = p.resident;
    s->unroll = (int)p.columns.extent;
    s->n_vec = p.columns.size;
    s->n_tiles = tci_dim_ceil_div(p.rows.size, p.rows.extent);
}

static void tci_sched_map_tile(tci_sched *s)
{
    const tci_kernel *k = s->k;
    for (int i = 0; i < k->n_insts && s->row_axis < 0; i++) {
        const tci_kinst *in = &k->insts[i];
        if (in->op == TCI_K_LOAD) {
            tci_dim row = 0;
            s->row_axis = tci_sched_other_axis(s, in->x,
                                               (tc_dtype)k->operands[in->imm].dtype);
            s->turn = s->row_axis >= 0 && s->l->lanes >= 4 && in->n_guards == 0 &&
                      tci_build_coef(k, in->x, s->row_axis, &row) && row == 1;
        }
    }
    for (int i = 0; i < k->n_stores && s->row_axis < 0; i++) {
        s->row_axis = tci_sched_other_axis(s, k->stores[i].x,
                                           (tc_dtype)k->operands[k->stores[i].operand].dtype);
    }
    if (s->machine.block_threads) {
        tci_sched_block_map(s);
        return;
    }
    s->transposing = s->row_axis >= 0;
    s->unroll = tci_stage_unroll(k, 0, s->l->lanes);
    if (s->turn) {
        tci_sched_turn_tile(s);
    } else if (s->transposing) {
        s->unroll = TCI_MAX(TCI_SCHED_BLOCK_VECTOR / s->l->lanes, 1);
        s->unroll = tci_stage_cost(k, 0) > 24 ? 1 : TCI_MIN(s->unroll, 8);
        tci_sched_split_rows(s, 1);
    }
    s->unroll = (int)TCI_MAX(TCI_MIN(s->unroll, tci_sched_vectors_of(s)), 1);
}

/* ---- streaming ---- */

/* A large output written in long contiguous runs along the axis that is walked in vectors: NULL
 * where there is none. Its vectors are aligned, so there can be only one. */
static const tci_kstore *tci_sched_stream(const tci_sched *s)
{
    const tci_kernel *k = s->k;
    for (int i = 0; i < k->n_stores && s->l->lanes > 1 && !s->machine.block_threads; i++) {
        const tci_kstore *store = &k->stores[i];
        const tci_kstage *stage = &k->stages[store->stage];
        const tci_koperand *o = &k->operands[store->operand];
        int bytes = tci_dtype_get((tc_dtype)o->dtype)->bytes, axis = s->vec_axis;
        if (k->vector == TCI_VEC_INNER) {
            axis = stage->n_axes > 0 ? stage->axes[stage->n_axes - 1] : -1;
        }
        tci_dim coef;
        if (axis >= 0 && stage->kind == TCI_STAGE_MAP &&
            tci_build_coef(k, store->x, axis, &coef) && coef == 1 &&
            tci_dim_hint(o->n) * bytes >= s->machine.facts.cache_bytes[2] &&
            tci_dim_hint(k->axes[axis].size) * bytes >= 4096 &&
            o->dtype != TC_BOOL && s->l->lanes * bytes >= 16) {
            return store;
        }
    }
    return NULL;
}

/* The axis along which the next unit of a rows' kernel lies, if its rows come from far away. */
static int tci_sched_next_axis(const tci_sched *s)
{
    const tci_kernel *k = s->k;
    int stage = tci_stage_ahead(k), axis = k->n_outer - 1;
    while (axis >= 0 && k->axes[axis].size == 1) {
        axis--;
    }
    bool far = k->bytes >= s->machine.facts.cache_bytes[1] && stage >= 0 &&
               tci_dim_hint(k->axes[k->stages[stage].axes[0]].size) >= TCI_SCHED_LONG_ROW;
    return far && !s->machine.block_threads ? axis : -1;
}

/* ---- units and tasks ---- */

static double tci_sched_total_ns(const tci_kernel *k, int lanes, const tc_machine *m)
{
    double bytes = (double)k->bytes;
    double bandwidth = bytes < (double)m->cache_bytes[1]   ? m->near_bytes * m->ghz
                       : bytes < (double)m->cache_bytes[2] ? m->far_bytes * m->ghz
                                                           : m->one_gbs;
    double flops_ns = (double)k->flops / (m->ghz * m->ports * lanes);
    double bytes_ns = bytes / bandwidth;
    return TCI_MAX(TCI_MAX(flops_ns, bytes_ns), 1.0);
}

/* Units of packed panels are counted in row tiles: a range of tasks may begin and end inside a
 * group, so that any number of threads gets even shares, and each packs the columns of a block once
 * for the whole of its range. */
static void tci_sched_blocked_units(tci_sched *s, double target)
{
    s->chunk = s->blocked.columns;
    s->group = tci_dim_max(tci_dim_min(s->blocked.group, s->n_tiles), 1);
    s->n_chunks = tci_dim_ceil_div(s->n_vec, s->chunk);
    s->n_groups = tci_dim_ceil_div(s->n_tiles, s->group);
    s->units = tci_dim_mul(tci_dim_mul(s->points, s->n_chunks),
                           tci_dim_mul(s->n_groups, s->group));
    int64_t share = s->blocked.share, units = TCI_MAX(tci_dim_hint(s->units), 1);
    double share_ns = s->total_ns * (double)share / (double)units;
    s->grain = TCI_MAX((int64_t)(target / share_ns), 1) * share;
    s->grain = TCI_MIN(s->grain, tci_dim_ceil_div(units, share) * share);
}

static void tci_sched_units(tci_sched *s)
{
    const tci_kernel *k = s->k;
    s->others = TCI_NEW_ARRAY(k->s, int, k->n_outer + 1);
    s->points = 1;
    for (int a = 0; a < k->n_outer; a++) {
        bool tiled = s->product.rows.extent > 0 ? tci_product_has(&s->product, a)
                     : s->spread.size > 0       ? true
                                                : a == s->vec_axis || a == s->row_axis;
        if (!tiled) {
            s->others[s->n_others++] = a;
            s->points = tci_dim_mul(s->points, k->axes[a].size);
        }
    }
    double target = TCI_MAX(TCI_MIN(s->total_ns / 64, tci_sched_task_ns), tci_sched_min_task_ns);
    int64_t step = (int64_t)s->unroll * s->l->lanes;
    int64_t points = tci_dim_hint(s->points), n_vec = tci_dim_hint(s->n_vec);
    int64_t n_tiles = tci_dim_hint(s->n_tiles);
    int64_t pieces = points > 0 ? (int64_t)(s->total_ns / (double)points / target) : 1;
    int64_t least = s->row_axis < 0 && k->n_reds == 0 ? TCI_MAX(step, TCI_SCHED_MIN_CHUNK) : step;
    int64_t want = tci_dim_ceil_div(n_vec, TCI_MAX(pieces, 1));
    s->chunk = s->transposing ? step : TCI_MIN(TCI_MAX(want, least), TCI_MAX(n_vec, 1));
    if (s->machine.block_threads) {
        s->chunk = step;
    }
    if (s->panel > 0) {
        s->chunk = TCI_MIN(TCI_MAX(n_vec / 2, TCI_SCHED_PANEL_LEAST), TCI_SCHED_PANEL_MOST);
    }
    s->chunk = tci_dim_ceil_div(s->chunk, step) * step;
    s->n_chunks = tci_dim_ceil_div(s->n_vec, s->chunk);
    int64_t n_chunks = tci_dim_hint(s->n_chunks);
    s->group = n_tiles;
    if (s->transposing) {
        s->group = TCI_SCHED_BLOCK;
    } else if (n_chunks > 0 && pieces > n_chunks) {
        s->group = TCI_MAX(n_tiles / tci_dim_ceil_div(pieces, n_chunks), 1);
    }
    if (s->blocked.columns > 0) {
        tci_sched_blocked_units(s, target);
        return;
    }
    if (s->machine.block_threads) {
        s->group = 1;
    }
    s->n_groups = tci_dim_ceil_div(s->n_tiles, TCI_MAX(s->group, 1));
    s->units = tci_dim_mul(tci_dim_mul(s->points, s->n_chunks), s->n_groups);
    s->joined = s->panel > 0 && s->points == 1 ? TCI_SCHED_PANEL_JOINED : 1;
    if (s->machine.block_threads) { /* as many blocks as there are */
        s->grain = 1;
        return;
    }
    int64_t units = TCI_MAX(tci_dim_hint(s->units), 1);
    double unit_ns = s->total_ns / (double)units;
    s->grain = TCI_MAX((int64_t)(target / unit_ns), 1);
    s->grain = TCI_MIN(s->grain, units);
}

/* ---- keeping costly values of a row ---- */

static bool tci_sched_same_axes(const tci_kernel *k, int a, int b)
{
    const tci_kstage *x = &k->stages[a], *y = &k->stages[b];
    bool same = x->n_axes == y->n_axes && x->n_axes > 0;
    for (int i = 0; same && i < x->n_axes; i++) {
        same = x->axes[i] == y->axes[i];
    }
    return same;
}

/* Instructions that stages `first` and `later` both evaluate along the same row: the topmost of
 * them that cost more than a pass through the cache are kept in a local array. One that does not
 * change along every axis of the row is written fewer times than it is read, so it is not kept. */
static void tci_sched_keep_between(tci_sched *s, int first, int later, int64_t *room)
{
    const tci_kernel *k = s->k;
    uint64_t axes = tci_cost_stage_axes(k, first);
    bool *early = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    bool *late = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    tci_dim extent = 1;
    uint64_t changing = 0; /* axes >= 63 share a bit, which then says too little */
    for (int i = 0; i < k->stages[first].n_axes; i++) {
        int axis = k->stages[first].axes[i];
        extent = tci_dim_mul(extent, k->axes[axis].size);
        changing |= tci_sched_many(k->axes[axis].size) ? (uint64_t)1 << TCI_MIN(axis, 63) : 0;
    }
    if (!tci_dim_is_known(extent)) { /* no array could be sure to hold the row */
        return;
    }
    tci_cost_mark(k, first, false, early);
    for (int i = 0; i < k->n_stores; i++) {
        late[k->stores[i].value] |= k->stores[i].stage == later;
    }
    for (int i = 0; i < k->n_reds; i++) {
        for (int j = 0; j < tci_red_takes(k->reds[i].op); j++) {
            late[k->reds[i].in[j]] |= k->reds[i].stage == later;
        }
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        bool kept = false;
        for (int j = 0; late[i] && j < s->b->n_keeps; j++) {
            kept = kept || s->b->keeps[j]->inst == i;
        }
        if (!late[i] || kept) {
            continue;
        }
        int64_t bytes = extent * tci_dtype_get((tc_dtype)in->dtype)->bytes;
        bool row = in->dtype != TC_BOOL && (in->axes & changing) == changing && changing >> 63 == 0;
        bool costly = in->op == TCI_K_PRIM && tci_cost_row(k, i, axes) >= 8;
        /* Between the threads of a block and what they load is more than a cache. */
        costly = costly || (in->op == TCI_K_LOAD && s->machine.block_threads > 0);
        if (row && early[i] && bytes <= *room && costly) {
            int local = tci_build_local(s->b, (tc_dtype)in->dtype, extent, 0);
            tci_lkeep *keep = tci_build_keep(s->b, i, local, first);
            int64_t step = 1;
            for (int a = k->stages[first].n_axes - 1; a >= 0; a--) {
                keep->coef[k->stages[first].axes[a]] = step;
                step *= k->axes[k->stages[first].axes[a]].size;
            }
            *room -= bytes;
            continue;
        }
        for (int a = 0; a < in->n_args; a++) {
            late[in->args[a]] = true;
        }
    }
}

static void tci_sched_keep_rows(tci_sched *s)
{
    int64_t shared = s->machine.facts.shared_bytes; /* a sixth is for what reductions exchange */
    int64_t room = s->machine.block_threads ? shared - shared / 6 : TCI_SCHED_KEEP_BYTES;
    for (int later = 1; later < s->k->n_stages; later++) {
        for (int first = 0; first < later; first++) {
            if (tci_sched_same_axes(s->k, first, later)) {
                tci_sched_keep_between(s, first, later, &room);
            }
        }
    }
}

/* ---- the nest ---- */

typedef struct tci_sched_place { tci_sched *s; int group; bool is_main; } tci_sched_place;

static void tci_sched_tile(tci_sched *s, const tci_tile *tile)
{
    if (tile->prefetch > 0) {
        tci_stage_prefetch(s->b, tile);
    }
    tci_stage_all(s->b, tile);
}

/* Tiles [begin, end) of `rows` rows each; the first row of tile t is t * rows + skip. */
static void tci_sched_row_loop(tci_sched *s, tci_tile *tile, int begin, int end, int rows,
                               int64_t skip)
{
    tci_build *b = s->b;
    tci_dim last = tci_dim_add(s->k->axes[s->row_axis].size, -1), fixed = 0, fixed_end = 0;
    const tci_bind **binds = TCI_NEW_ARRAY(s->k->s, const tci_bind *, rows);
    bool single = tci_lx_is_const(s->l, begin, &fixed) && tci_lx_is_const(s->l, end, &fixed_end) &&
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
    tci_sched_tile(s, tile);
    if (!single) {
        tci_build_close(b, &open);
    }
}

typedef struct tci_sched_rest { tci_sched *s; tci_tile *tile; } tci_sched_rest;

static void tci_sched_rest_body(tci_build *b, void *arg, tci_dim first, int rows)
{
    const tci_sched_rest *rest = arg;
    tci_dim last = tci_dim_add(rest->s->k->axes[rest->s->row_axis].size, -1);
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, rows);
    tci_lin at = tci_lin_const(first);
    for (int r = 0; r < rows; r++) {
        binds[r] = tci_build_bind(b, tci_lin_plus(at, r), 0, last, false, -1);
    }
    rest->tile->n_rows = rows;
    rest->tile->rows = binds;
    tci_sched_tile(rest->s, rest->tile);
}

static void tci_sched_rows(tci_sched *s, tci_tile *tile, int group)
{
    tci_loop *l = s->l;
    if (s->row_axis < 0) {
        tile->n_rows = 1;
        tci_sched_tile(s, tile);
        return;
    }
    tile->row_axis = s->row_axis;
    int begin = tci_lx_const(l, 0), end = tci_lx_const(l, s->n_tiles);
    int extra = tci_lx_const(l, s->extra);
    bool many = tci_sched_many(s->n_groups);
    bool is_known = tci_dim_is_known(s->k->axes[s->row_axis].size);
    if (many) {
        begin = tci_lx_make(l, TCI_LX_MUL, group, -1, s->group);
        int next = tci_lx_make(l, TCI_LX_ADD, begin, tci_lx_const(l, s->group), 0);
        end = tci_lx_make(l, TCI_LX_MIN, next, end, 0);
    }
    if (s->extra > 0) {
        int stop = many ? tci_lx_make(l, TCI_LX_MIN, end, extra, 0) : extra;
        tci_sched_row_loop(s, tile, begin, stop, (int)s->base + 1, 0);
        begin = many ? tci_lx_make(l, TCI_LX_MAX, begin, extra, 0) : extra;
    }
    if (is_known || s->base == 1) {
        tci_sched_row_loop(s, tile, begin, end, (int)s->base, s->extra);
        return;
    }
    tci_dim whole = tci_dim_div(s->k->axes[s->row_axis].size, s->base);
    int stop = tci_lx_make(l, TCI_LX_MIN, end, tci_lx_const(l, whole), 0);
    tci_sched_rest rest = {s, tile};
    tci_lopen open;
    tci_sched_row_loop(s, tile, begin, stop, (int)s->base, 0);
    tci_build_if(s->b, tci_build_in_range(s->b, end, tci_dim_add(whole, 1), s->n_tiles), &open);
    tci_stage_rest_rows(s->b, s->k->axes[s->row_axis].size, s->base, tci_sched_rest_body, &rest);
    tci_build_close(s->b, &open);
}

static void tci_sched_body(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    tci_sched_place *place = arg;
    tci_sched *s = place->s;
    tci_tile tile = {0};
    tile.row_axis = -1;
    tile.vec_axis = s->vec_axis;
    tile.n_vecs = n;
    tile.vecs = vecs;
    tile.turn = s->turn;
    tile.stream = n == s->unroll || s->turn ? s->stream : NULL;
    tile.prefetch = tile.stream && !s->turn ? TCI_SCHED_PREFETCH_BYTES : 0;
    tile.next_axis = -1;
    (void)b;
    tci_sched_rows(s, &tile, place->group);
}

/* The chunk's share of [begin, end), bounds known only at run time; streaming aligns the store
 * first. */
static void tci_sched_dynamic(tci_sched *s, tci_sched_place *place, tci_lin chunk, tci_dim begin,
                              tci_dim end)
{
    tci_loop *l = s->l;
    tci_build *b = s->b;
    int head = -1, from = tci_lx_const(l, begin), to = tci_lx_const(l, end);
    tci_dim last = tci_dim_add(end, -1);
    if (tci_sched_many(s->n_chunks)) {
        tci_lin at = tci_lin_mul(b, chunk, s->chunk);
        from = tci_lx_make(l, TCI_LX_MAX, tci_build_lx(b, at), from, 0);
        to = tci_lx_make(l, TCI_LX_MIN, tci_build_lx(b, tci_lin_plus(at, s->chunk)), to, 0);
    }
    if (s->stream) {
        tci_lin start = tci_build_let(b, from);
        head = tci_stage_head(b, s->stream, s->vec_axis, start, begin, last);
        int minus = tci_build_lx(b, tci_lin_mul(b, start, -1));
        int room = tci_lx_make(l, TCI_LX_MAX, tci_lx_make(l, TCI_LX_ADD, to, minus, 0),
                               tci_lx_const(l, 0), 0);
        head = tci_lx_make(l, TCI_LX_MIN, head, room, 0);
        from = tci_build_lx(b, start);
    }
    tci_stage_vectors_dynamic(b, from, to, head, begin, last, s->unroll, tci_sched_body, place);
}

/* One chunk of an axis that no guard cuts: whole tiles, and after the last chunk what is left of
 * the axis. */
static void tci_sched_chunk(tci_sched *s, tci_sched_place *place, tci_lin chunk)
{
    tci_loop *l = s->l;
    tci_build *b = s->b;
    int64_t step = (int64_t)s->unroll * l->lanes;
    tci_dim whole = tci_dim_mul(tci_dim_div(s->n_vec, step), step);
    const tci_bind **vecs = TCI_NEW_ARRAY(s->k->s, const tci_bind *, s->unroll);
    tci_lopen open;
    tci_lin first = tci_lin_mul(b, chunk, s->chunk), at = first;
    bool one = s->machine.block_threads > 0, branches = !one || whole != s->n_vec;
    if (one && branches) {
        tci_dim last = tci_dim_add(tci_dim_div(whole, step), -1);
        tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, chunk), 0, last), &open);
    } else if (!one) {
        int to = tci_build_lx(b, tci_lin_plus(first, s->chunk));
        if (!tci_dim_le(tci_dim_mul(s->n_chunks, s->chunk), whole)) {
            to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, whole), 0);
        }
        at = tci_lin_var(b, tci_build_for(b, tci_build_lx(b, first), to, step, &open));
    }
    for (int u = 0; u < s->unroll; u++) {
        int64_t lo = (int64_t)u * l->lanes;
        tci_dim hi = tci_dim_add(whole, lo + l->lanes - 1 - step);
        vecs[u] = tci_build_bind(b, tci_lin_plus(at, lo), lo, hi, l->lanes > 1, -1);
    }
    tci_sched_body(b, place, s->unroll, vecs);
    if (branches) {
        tci_build_close(b, &open);
    }
    if (whole != s->n_vec) {
        tci_dim last = tci_dim_add(s->n_chunks, -1);
        tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, chunk), last, last), &open);
        tci_stage_vectors(b, whole, s->n_vec, s->unroll, tci_sched_body, place);
        tci_build_close(b, &open);
    }
}

/* Rows are read over the chunks of the call that follow each other: the longer a run of memory,
 * the better. `end` is the call's last unit. */
static void tci_sched_panel(tci_sched *s, tci_lin chunk, int end)
{
    tci_loop *l = s->l;
    tci_panel panel = {s->vec_axis, s->panel, s->unroll, tci_lin_mul(s->b, chunk, s->chunk),
                       0,           0,        tci_dim_add(s->n_vec, -1), s->chunk * s->joined};
    int next = tci_build_lx(s->b, tci_lin_plus(panel.first, panel.chunk));
    if (s->joined > 1) {
        next = tci_lx_make(l, TCI_LX_MIN, next, tci_lx_make(l, TCI_LX_MUL, end, -1, s->chunk), 0);
    }
    next = tci_lx_make(l, TCI_LX_MIN, next, tci_lx_const(l, s->n_vec), 0);
    panel.end = tci_build_lx(s->b, tci_build_let(s->b, next));
    tci_stage_panel(s->b, &panel);
}

static void tci_sched_vectors(tci_sched *s, tci_lin chunk, int group)
{
    tci_sched_place place = {s, group, true};
    tci_dim begin = 0;
    if (s->held > 0) {
        tci_row_emit(s->b, s->held);
        return;
    }
    if (s->product.rows.extent > 0) {
        tci_product_emit(s->b, &s->product, tci_build_let(s->b, group), chunk);
        return;
    }
    if (s->spread.size > 0) {
        tci_spread_emit(s->b, &s->spread, tci_build_let(s->b, group), chunk);
        return;
    }
    if (s->square.n_loads > 0) {
        tci_square_emit(s->b, &s->square, tci_build_let(s->b, group), chunk);
        return;
    }
    if (s->vec_axis < 0) {
        tci_tile tile = {0};
        tile.row_axis = tile.vec_axis = -1;
        tile.n_vecs = 1;
        tile.stream = s->stream;
        tile.next_axis = s->next_axis;
        tci_sched_rows(s, &tile, group);
        return;
    }
    if (s->n_cuts == 0 && (!s->stream || s->turn) && tci_sched_many(s->n_chunks)) {
        tci_sched_chunk(s, &place, chunk);
        return;
    }
    s->cuts[s->n_cuts] = s->n_vec;
    for (int i = 0; i <= s->n_cuts; i++) {
        if (s->stream || tci_sched_many(s->n_chunks)) {
            tci_sched_dynamic(s, &place, chunk, begin, s->cuts[i]);
        } else {
            tci_stage_vectors(s->b, begin, s->cuts[i], s->unroll, tci_sched_body, &place);
        }
        begin = s->cuts[i];
    }
}

/* Takes x apart: the remainder by size is returned, x becomes the quotient. */
static tci_lin tci_sched_digit(tci_sched *s, tci_lin *x, tci_dim size, bool top)
{
    tci_build *b = s->b;
    if (size == 1) {
        return tci_lin_const(0);
    }
    tci_lin digit = *x;
    if (!top) {
        int lx = tci_build_lx(b, *x);
        digit = tci_build_let(b, tci_lx_make(s->l, TCI_LX_MOD, lx, -1, size));
        *x = tci_build_let(b, tci_lx_make(s->l, TCI_LX_DIV, lx, -1, size));
    }
    return digit;
}

/* Opens the loop over the groups that the units [begin, end) of the blocked form lie in. */
static tci_lin tci_sched_groups(tci_sched *s, int begin, int end, tci_lopen *open)
{
    tci_loop *l = s->l;
    int past = tci_lx_make(l, TCI_LX_ADD, end, tci_lx_const(l, tci_dim_add(s->group, -1)), 0);
    int from = tci_lx_make(l, TCI_LX_DIV, begin, -1, s->group);
    int to = tci_lx_make(l, TCI_LX_DIV, past, -1, s->group);
    return tci_lin_var(s->b, tci_build_for(s->b, from, to, 1, open));
}

/* The row tiles of group u of the blocked form, of those that the call is for. */
static void tci_sched_blocked(tci_sched *s, int begin, int end, tci_lin u, tci_lin chunk,
                              tci_lin group)
{
    tci_build *b = s->b;
    tci_loop *l = s->l;
    int first = tci_build_lx(b, tci_lin_mul(b, group, s->group));
    int last = tci_lx_make(l, TCI_LX_ADD, first, tci_lx_const(l, s->group), 0);
    if (!tci_dim_divides(s->group, s->grain)) { /* the call's range may cut the group */
        int back = tci_build_lx(b, tci_lin_mul(b, u, tci_dim_neg(s->group)));
        int from = tci_lx_make(l, TCI_LX_ADD, begin, back, 0);
        int to = tci_lx_make(l, TCI_LX_ADD, end, back, 0);
        from = tci_lx_make(l, TCI_LX_MAX, from, tci_lx_const(l, 0), 0);
        to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, s->group), 0);
        last = tci_lx_make(l, TCI_LX_ADD, first, to, 0);
        first = tci_lx_make(l, TCI_LX_ADD, first, from, 0);
    }
    last = tci_lx_make(l, TCI_LX_MIN, last, tci_lx_const(l, s->n_tiles), 0);
    first = tci_build_lx(b, tci_build_let(b, first));
    last = tci_build_lx(b, tci_build_let(b, last));
    if (s->on_tiles) {
        tci_tiles_emit(b, &s->blocked, chunk, first, last);
    } else {
        tci_blocked_emit(b, &s->blocked, chunk, first, last);
    }
}

static void tci_sched_nest(tci_sched *s)
{
    tci_build *b = s->b;
    tci_loop *l = s->l;
    tci_lopen open;
    tci_lin u = tci_lin_const(0), unit = u;
    bool many = tci_sched_many(s->units), loops = many && !s->machine.block_threads;
    int begin = tci_lx_const(l, 0), end = tci_lx_const(l, s->units);
    if (many && !loops) { /* a block is one unit */
        u = tci_build_let(b, tci_lx_make(l, TCI_LX_TASK_BEGIN, -1, -1, 0));
    } else if (loops) {
        int last = tci_lx_make(l, TCI_LX_TASK_END, -1, -1, 0);
        begin =
            tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_TASK_BEGIN, -1, -1, 0), -1, s->grain);
        end = tci_lx_make(l, TCI_LX_MIN, tci_lx_make(l, TCI_LX_MUL, last, -1, s->grain), end, 0);
    }
    if (s->blocked.columns > 0) {
        u = unit = tci_sched_groups(s, begin, end, &open);
        loops = true;
    } else if (loops) {
        u = tci_lin_var(b, tci_build_for(b, begin, end, s->joined, &open));
    }
    tci_dim above = tci_dim_mul(s->n_chunks, s->points);
    tci_lin group, chunk;
    if (s->turn) { /* neighbouring chunks of the same rows complete each other's pages */
        above = tci_dim_mul(s->n_groups, s->points);
        chunk = tci_sched_digit(s, &u, s->n_chunks, above == 1);
        group = tci_sched_digit(s, &u, s->n_groups, s->points == 1);
    } else {
        group = tci_sched_digit(s, &u, s->n_groups, above == 1);
        chunk = tci_sched_digit(s, &u, s->n_chunks, s->points == 1);
    }
    tci_dim left = s->points;
    for (int i = s->n_others - 1; i >= 0; i--) {
        tci_dim size = s->k->axes[s->others[i]].size;
        left = tci_dim_div(left, size);
        tci_lin at = tci_sched_digit(s, &u, size, left == 1);
        tci_build_set(b, s->others[i],
                      tci_build_bind(b, at, 0, tci_dim_add(size, -1), false, -1));
    }
    if (s->blocked.columns > 0) {
        tci_sched_blocked(s, begin, end, unit, chunk, group);
    } else if (s->panel > 0) {
        tci_sched_panel(s, chunk, end);
    } else {
        tci_sched_vectors(s, chunk, tci_build_lx(b, group));
    }
    if (loops) {
        tci_build_close(b, &open);
    }
    if (s->stream) {
        tci_lstmt fence = tci_loop_stmt(TCI_L_MEM);
        fence.mem = TCI_MEM_FENCE;
        tci_loop_append(l, 0, fence);
    }
}

/* ---- the whole ---- */

static const char *tci_sched_note(const tci_sched *s, char *note, size_t n)
{
    char tile[40] = "";
    const char *form = s->held > 0 ? ", rows in registers"
                       : s->k->vector == TCI_VEC_INNER ? ", rows" : "";
    if (s->transposing) {
        snprintf(tile, sizeof(tile), ", %s %dx%d", s->turn ? "square" : "block",
                 s->turn ? s->rows : TCI_SCHED_BLOCK, s->unroll * s->l->lanes);
    } else if (s->product.rows.extent > 0) {
        snprintf(tile, sizeof(tile), ", tiles %dx%d by %d threads", (int)s->product.rows.extent,
                 (int)s->product.columns.extent, s->l->threads);
    } else if (s->spread.size > 0) {
        snprintf(tile, sizeof(tile), ", points by %d threads, %d each", s->l->threads,
                 s->spread.rows);
    } else if (s->square.n_loads > 0) {
        snprintf(tile, sizeof(tile), ", squares %dx%d by %d threads", TCI_SQUARE, TCI_SQUARE,
                 s->l->threads);
    } else if (s->on_tiles) {
        snprintf(tile, sizeof(tile), ", matrix unit, %d columns", (int)s->chunk);
    } else if (s->blocked.columns > 0) {
        snprintf(tile, sizeof(tile), ", packed %dx%d, tile %dx%d",
                 (int)(s->blocked.depth * s->blocked.inner), (int)s->chunk, s->rows, s->unroll);
    } else if (s->panel > 0) {
        snprintf(tile, sizeof(tile), ", panel %dx%d", s->panel, (int)s->chunk);
    } else if (s->k->n_reds > 0 && s->vec_axis >= 0) {
        snprintf(tile, sizeof(tile), ", tile %dx%d", s->rows, s->unroll);
    }
    snprintf(note, n, "%s%d lane%s%s%s%s%s", s->l->lanes > 1 ? "vector " : "scalar ", s->l->lanes,
             s->l->lanes > 1 ? "s" : "", form, tile, s->stream ? ", stream" : "",
             s->b->n_keeps > 0 && s->blocked.columns == 0 ? ", row kept" : "");
    return note;
}

static void tci_sched_decide(tci_sched *s)
{
    const tci_kernel *k = s->k;
    s->vec_axis = s->row_axis = s->next_axis = -1;
    s->n_vec = s->n_tiles = s->base = 1;
    s->unroll = s->rows = 1;
    s->live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    s->total_ns = tci_sched_total_ns(k, s->l->lanes, &s->machine.facts);
    if (k->vector == TCI_VEC_INNER) {
        s->held = s->machine.facts.subgroup == TCI_WARP ? tci_row_vectors(k, s->l) : 0;
        if (s->held == 0) {
            tci_sched_keep_rows(s);
        }
        s->stream = tci_sched_stream(s);
        s->next_axis = tci_sched_next_axis(s);
    } else if (k->n_outer > 0) {
        bool plain = k->n_stages == 1 && k->stages[0].kind == TCI_STAGE_MAP &&
                     k->stages[0].n_axes == 0;
        int64_t cost = 0;
        for (int t = 0; t < k->n_stages; t++) {
            cost += tci_stage_cost(k, t);
        }
        s->vec_axis = k->n_outer - 1;
        s->n_vec = k->axes[s->vec_axis].size;
        if (plain) {
            tci_sched_map_tile(s);
            s->stream = s->transposing && !s->turn ? NULL : tci_sched_stream(s);
        } else {
            tci_sched_reduce_tile(s, cost);
            s->panel = tci_sched_panel_rows(s, cost);
            tci_sched_block(s);
            tci_sched_block_product(s);
            if (s->product.rows.extent == 0) {
                tci_sched_block_spread(s);
            }
        }
        int most = plain && cost <= 60 ? TCI_SCHED_MAX_CUTS : 4;
        s->n_cuts = tci_sched_many(s->n_vec)
                        ? tci_stage_cuts(s->b, s->vec_axis, 1, s->cuts, most)
                        : 0;
        s->panel = s->n_cuts > 0 ? 0 : s->panel;
        s->unroll = s->panel > 0 ? 2 : s->unroll;
    }
    tci_sched_units(s);
}

TCI_FN tci_loop *tci_loop_schedule(tci_scratch *scratch, const tci_kernel *k, tci_machine machine,
                                   tci_launch *launch)
{
    tci_sched s = {0};
    machine = tci_machine_complete(machine);
    if (k->n_reds > 0 && k->reds[0].order == TCI_ORDER_MATRIX && machine.block_threads > 0) {
        return tci_matrix_schedule(scratch, k, machine, launch);
    }
    s.k = k;
    s.l = tci_loop_make(scratch, k);
    tci_sched_lanes(s.l, k, machine);
    s.b = tci_build_make(scratch, k, s.l);
    s.machine = machine;
    tci_sched_decide(&s);
    if (s.units != 0) {
        tci_sched_nest(&s);
    }
    launch->n_tasks = s.units != 0 ? tci_dim_ceil_div(s.units, s.grain) : 0;
    launch->task_ns = s.total_ns / (double)TCI_MAX(tci_dim_hint(launch->n_tasks), 1);
    s.l->n_tasks = launch->n_tasks;
    s.l->narrow = machine.block_threads > 0 && tci_loop_is_narrow(scratch, s.l);
    tci_loop_find_dims(s.l);
    launch->dims = s.l->dims;
    launch->n_dims = s.l->n_dims;
    launch->lanes = s.l->lanes;
    launch->work_bytes = s.l->work_bytes;
    tci_sched_note(&s, launch->note, sizeof(launch->note));
    s.l->note = tci_scratch_printf(scratch, "%s", launch->note);
    return s.l;
}
