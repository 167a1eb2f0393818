/* loop/pointwise_schedules.c - implements the schedules of pointwise kernels: one MAP stage without
 * inner axes.
 *
 *   point    no outer axis (any stages): everything once, scalar
 *   map      vectors along the last outer axis; outputs too large for the caches may bypass them
 *   short    on GPUs: several short rows at a time, each by a few neighbouring threads
 *   block    small blocks of two axes, so that every cache line is used whole
 *   square   the same in square tiles, transposed in registers
 *   weave    interleaved stores: a vector for each residue of the output index (phase),
 *            interleaved at the store
 *
 * The cost model charges a map with loads strided along the vectors about a cache line per element,
 * a block 1.2 times the bytes used, a square tile only the bytes used. */
#include <string.h>

#include "gpu_schedules.h"
#include "stage_op_count.h"
#include "register_tiles.h"
#include "interleaved_stores.h"

enum {
    TCI_MAP_BLOCK = 32,        /* rows of a transposing block */
    TCI_MAP_BLOCK_VECTOR = 64, /* its elements along the vector axis */
    TCI_MAP_SQUARE = 16,       /* most lanes of a square tile that is transposed in registers */
    TCI_MAP_SQUARES = 64,      /* square tiles side by side, so that loads run along their rows */
    TCI_MAP_LINE_BYTES = 64,
    TCI_MAP_MIN_CHUNK = 1024, /* elements of a chunk */
    TCI_MAP_HEAVY = 24,       /* flops of a point from which a block takes one vector at once */
    TCI_MAP_UNROLL_MOST = 8,
    TCI_MAP_PAIRED = 16,      /* vectors for each processor from which blocks take two */
    TCI_MAP_APART = 2,        /* times as long for phases that are stored one by one */
    TCI_MAP_STEP_FLOPS = 6,   /* of a point, for which a vector takes a step longer */
    TCI_MAP_SHORT_ROW = 4096, /* bytes of a row up to which its order of rows matters */
    TCI_MAP_FAR_STEP = 1024,  /* bytes between rows from which no neighbour is in the cache */
    TCI_MAP_NEAR = 2,         /* times as near as those are neighbours */
    TCI_MAP_ROWS = 16,
    TCI_MAP_ROWS_LEAST = 4 /* of a block */
};
enum { TCI_SHORT_THREADS, TCI_SHORT_ROWS };
enum { TCI_SHORT_BLOCK = 128, TCI_SHORT_MOST = 3 }; /* threads of all rows; candidates */
enum { TCI_MAP_UNROLL, TCI_MAP_LANES, TCI_MAP_THREADS, TCI_MAP_STREAM };

/* Cost of distance from the best known size, per factor of two. */
static double tci_map_distance_factor(int64_t n, int64_t best)
{
    double times = n > best ? (double)n / (double)best : (double)best / (double)n;
    return 1 + 0.01 * (times - 1);
}

TCI_FN double tci_map_idle_lanes_factor(const tci_query *a)
{
    bool empty = a->machine.block_threads > 0 && tci_dim_hint(a->n_vec) < TCI_PER_POINT_SHORT / 2;
    return empty ? 1.1 : 1;
}

/* Elements of the i-th piece of a row, between two cuts. */
static int64_t tci_map_piece(const tci_query *a, int i)
{
    int64_t begin = i > 0 ? tci_dim_hint(a->cuts[i - 1]) : 0;
    return TCI_MAX(tci_dim_hint(i < a->n_cuts ? a->cuts[i] : a->n_vec) - begin, 0);
}

/* Lanes of this many threads. */
static int64_t tci_map_lanes_of(const tci_query *a, int64_t threads)
{
    return threads * (a->lanes / a->threads);
}

/* On GPUs: the lanes that the warps of a row have, or the few threads that take it, for each of its
 * elements; those beyond a piece's end wait. */
static double tci_map_idle(const tci_query *a, int64_t threads)
{
    int64_t lanes = tci_map_lanes_of(a, TCI_MIN(threads, TCI_WARP));
    int64_t all = 0, n_vec = tci_dim_hint(a->n_vec);
    for (int i = 0; i <= a->n_cuts; i++) {
        all += tci_ceil_div(tci_map_piece(a, i), lanes) * lanes;
    }
    return n_vec > 0 ? TCI_MAX((double)all / (double)n_vec, 1) : 1;
}

/* Writing a value to far memory moves it twice where its line is read first; bypassing the caches
 * does not. */
static double tci_map_moved(const tci_query *a, const tci_kstore *store, bool streams)
{
    if (!store || streams) {
        return 1;
    }
    const tci_koperand *o = &a->k->operands[store->operand];
    double bytes = (double)tci_dim_hint(o->n) * tci_dtype_get((tc_dtype)o->dtype)->bytes;
    return 1 + bytes / (double)TCI_MAX(a->k->bytes, 1);
}

static void tci_map_note_stream(bool streams, tci_str *out)
{
    tci_str_add(out, streams ? ", stream" : "");
}

/* ---- point ---- */

static bool tci_point_fits(const tci_query *a, const int64_t *n)
{
    (void)n;
    return a->k->n_outer == 0 && a->k->vector == TCI_VEC_OUTER && !tci_query_on_unit(a);
}

static double tci_point_cost(const tci_query *a, const int64_t *n)
{
    (void)n;
    return a->ns;
}

static void tci_point_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_unit unit = tci_unit_make(&nest);
    (void)n;
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_point_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)n, (void)b, (void)out;
}

/* ---- map ---- */

static bool tci_map_fits(const tci_query *a, const int64_t *n)
{
    return a->is_map && n[TCI_MAP_UNROLL] >= 1 && n[TCI_MAP_UNROLL] <= TCI_MAP_UNROLL_MOST &&
           tci_query_lanes_fit(a, n[TCI_MAP_LANES], n[TCI_MAP_THREADS]) &&
           (n[TCI_MAP_STREAM] == 0 ||
            (n[TCI_MAP_STREAM] == 1 &&
             tci_query_stream(a, a->vec_axis, (int)n[TCI_MAP_LANES]) != NULL));
}

/* True if threads of a block process two vectors at a time: the kernel is bound by arithmetic, and
 * there are several pairs for each processor. */
static bool tci_map_pairs(const tci_query *a, int64_t lanes)
{
    double vectors = 1 / (double)lanes;
    for (int i = 0; i < a->k->n_outer; i++) {
        vectors *= (double)tci_dim_hint(a->k->axes[i].size);
    }
    return a->machine.block_threads > 0 && tci_query_ns(a, 1, 0) >= tci_query_ns(a, 0, 1) &&
           vectors >= (double)TCI_MAP_PAIRED * a->machine.facts.processors;
}

static int64_t tci_map_unroll(const tci_query *a, int64_t lanes)
{
    int64_t unroll = tci_map_pairs(a, lanes) ? 2 : tci_stage_unroll(a->k, 0, (int)lanes);
    return TCI_MAX(TCI_MIN(unroll, tci_query_vectors(a, lanes)), 1);
}

static int tci_map_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    bool stream = a->is_map && tci_query_stream(a, a->vec_axis, a->lanes);
    bool blocks = a->machine.block_threads > 0;
    int64_t half = blocks ? 1 : 2; /* of the lanes: blocks have fewer threads instead */
    int64_t some = a->lanes / half, few = some / half;
    int64_t unroll = a->is_map ? tci_map_unroll(a, a->lanes) : 1;
    int64_t unroll_some = a->is_map && some > 0 ? tci_map_unroll(a, some) : 1;
    int64_t unroll_few = a->is_map && few > 0 ? tci_map_unroll(a, few) : 1;
    const int64_t all[][TCI_FORM_NUMBERS] = {{unroll, a->lanes, a->threads, stream},
                                             {unroll, a->lanes, a->threads, 0},
                                             {2 * unroll, a->lanes, a->threads, stream},
                                             {unroll / 2, a->lanes, a->threads, stream},
                                             {unroll_some, some, a->threads, stream},
                                             {unroll_few, few, a->threads, stream},
                                             {unroll, 2 * a->lanes, 2 * a->threads, stream},
                                             {unroll, a->lanes / 2, a->threads / 2, stream}};
    memcpy(n, all, sizeof(all));
    return (int)TCI_COUNT(all);
}

/* True if an access gathers from, or scatters to, elements that are not neighbours. */
static bool tci_map_gathers(const tci_query *a)
{
    const tci_kernel *k = a->k;
    bool gathers = false;
    tci_dim coef;
    for (int i = 0; i < k->n_insts; i++) {
        gathers |= k->insts[i].op == TCI_K_LOAD &&
                   (!tci_build_coef(k, k->insts[i].x, a->vec_axis, &coef) ||
                    (coef != 0 && coef != 1));
    }
    for (int i = 0; i < k->n_stores; i++) {
        gathers |= !tci_build_coef(k, k->stores[i].x, a->vec_axis, &coef) || coef != 1;
    }
    return gathers;
}

/* Cost of the vectors along one row, in steps of about three cycles: a step each, one more for wide
 * ones, plus arithmetic; one more for a partial vector. Elements that are not neighbours go one by
 * one, and slower in a partial vector. */
static double tci_map_row(const tci_query *a, int64_t lanes, bool gathers)
{
    double each = 1 + (double)lanes / a->lanes + (double)a->flops / TCI_MAP_STEP_FLOPS;
    double one = gathers ? 0.25 : 0, row = 0;
    for (int i = 0; i <= a->n_cuts; i++) {
        int64_t n = tci_map_piece(a, i), left = n % lanes;
        row += (double)tci_ceil_div(n, lanes) * each + (double)n * one +
               (left > 0 ? 1 + 3 * one * (double)left : 0);
    }
    return row;
}

/* Slowdown relative to the vector width that suits a row best; for blocks of threads wide vectors
 * do. */
static double tci_map_narrow(const tci_query *a, int64_t lanes, bool gathers)
{
    if (a->machine.block_threads > 0) {
        return tci_map_distance_factor(lanes, a->lanes) * tci_map_idle(a, TCI_WARP);
    }
    double least = tci_map_row(a, a->lanes, gathers);
    for (int64_t l = a->lanes / 2; l >= 2 && l >= a->lanes / 4; l /= 2) {
        least = TCI_MIN(least, tci_map_row(a, l, gathers));
    }
    return least > 0 ? TCI_MAX(tci_map_row(a, lanes, gathers) / least, 1) : 1;
}

static double tci_map_cost(const tci_query *a, const int64_t *n)
{
    int64_t lanes = n[TCI_MAP_LANES];
    const tci_kstore *store = tci_query_stream(a, a->vec_axis, (int)lanes);
    double strided = a->row_axis >= 0 ? TCI_MAP_LINE_BYTES / (4.0 * a->widest) + 1 : 1;
    double off = tci_map_distance_factor(n[TCI_MAP_UNROLL], tci_map_unroll(a, lanes)) *
                 tci_map_narrow(a, lanes, tci_map_gathers(a));
    double moved = strided * tci_map_moved(a, store, n[TCI_MAP_STREAM] != 0);
    bool weaves = a->machine.block_threads == 0 && tci_interleave_axis(a->k, a->vec_axis) >= 0;
    off *= weaves ? TCI_MAP_APART : 1;
    double flops = a->row_axis >= 0 ? 1.2 : 1; /* lanes are gathered one by one */
    return tci_query_ns(a, flops, moved) * off * tci_map_idle_lanes_factor(a);
}

/* The other axis along which a load has its neighbouring rows, where it steps far along the last
 * one: -1 none. */
static int tci_map_neighbours(const tci_query *a, const tci_kinst *load, int last)
{
    const tci_kernel *k = a->k;
    int bytes = tci_dtype_get((tc_dtype)k->operands[tci_kinst_number(load)].dtype)->bytes;
    tci_dim far = 0, step = 0;
    bool rows = tci_build_coef(k, load->x, a->vec_axis, &step) && step == 1 &&
                tci_build_coef(k, load->x, last, &far);
    int64_t most = rows ? tci_dim_hint(far) * bytes : 0;
    for (int axis = last - 1; axis >= 0 && most >= TCI_MAP_FAR_STEP; axis--) {
        if (tci_dim_hint(k->axes[axis].size) > 1 && tci_build_coef(k, load->x, axis, &step) &&
            tci_dim_hint(step) > 0 && tci_dim_hint(step) * bytes * TCI_MAP_NEAR <= most) {
            return axis;
        }
    }
    return -1;
}

/* Short rows that are stored in another order than they are loaded: blocks of the last other axis
 * are stored together, as their neighbours in memory are read soon after. */
static void tci_map_block_rows(const tci_query *a, tci_nest *nest)
{
    const tci_kernel *k = a->k;
    int last = a->vec_axis - 1;
    int64_t size = last >= 0 ? tci_dim_hint(k->axes[last].size) : 0, block = TCI_MAP_ROWS;
    bool far = a->machine.block_threads == 0 && k->bytes >= a->machine.facts.cache_bytes[1] &&
               tci_dim_hint(a->n_vec) * a->widest < TCI_MAP_SHORT_ROW;
    while (block > 1 && size % block != 0) {
        block--;
    }
    for (int i = 0; far && i < k->n_insts && block >= TCI_MAP_ROWS_LEAST && size > block; i++) {
        int within = k->insts[i].op == TCI_K_LOAD ? tci_map_neighbours(a, &k->insts[i], last) : -1;
        if (within >= 0 && tci_dim_is_known(k->axes[last].size)) {
            nest->block = block;
            nest->within = within;
            return;
        }
    }
}

static void tci_map_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_unit unit = tci_unit_make(&nest);
    b->l->lanes = (int)n[TCI_MAP_LANES];
    b->l->threads = (int)n[TCI_MAP_THREADS];
    nest.vec_axis = a->vec_axis;
    nest.n_vec = a->n_vec;
    unit.unroll = (int)n[TCI_MAP_UNROLL];
    unit.stream = n[TCI_MAP_STREAM] ? tci_query_stream(a, a->vec_axis, b->l->lanes) : NULL;
    nest.fence = unit.stream != NULL;
    int64_t step = (int64_t)unit.unroll * b->l->lanes;
    tci_map_block_rows(a, &nest);
    tci_nest_cut(&nest, step, TCI_MAX(step, TCI_MAP_MIN_CHUNK));
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_map_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)b;
    tci_map_note_stream(n[TCI_MAP_STREAM] != 0, out);
}

/* ---- short ---- */

/* Rows that there are. */
static tci_dim tci_short_points(const tci_query *a)
{
    tci_dim points = 1;
    for (int i = 0; i < a->k->n_outer; i++) {
        points = i != a->vec_axis ? tci_dim_mul(points, a->k->axes[i].size) : points;
    }
    return points;
}

static bool tci_short_fits(const tci_query *a, const int64_t *n)
{
    int64_t threads = n[TCI_SHORT_THREADS], rows = n[TCI_SHORT_ROWS];
    return a->is_map && a->lanes > 1 && a->machine.block_threads > 0 &&
           tci_query_is_power(threads, 1, TCI_WARP / 2) && tci_map_lanes_of(a, threads) > 1 &&
           tci_query_is_power(rows, 2, a->machine.block_threads / threads) &&
           tci_dim_hint(tci_short_points(a)) >= rows;
}

/* As many threads as hold the longest piece of a row, and fewer. */
static int tci_short_candidates(const tci_query *a,
                                int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    int64_t longest = 1, threads = 1;
    int count = 0;
    for (int i = 0; a->is_map && i <= a->n_cuts; i++) {
        longest = TCI_MAX(longest, tci_map_piece(a, i));
    }
    while (threads < TCI_WARP && tci_map_lanes_of(a, threads) < longest) {
        threads *= 2;
    }
    for (; threads < TCI_WARP && threads > 0 && count < TCI_SHORT_MOST; threads /= 2) {
        n[count][TCI_SHORT_THREADS] = threads;
        n[count++][TCI_SHORT_ROWS] = TCI_SHORT_BLOCK / threads;
    }
    return count;
}

static double tci_short_cost(const tci_query *a, const int64_t *n)
{
    int64_t threads = n[TCI_SHORT_THREADS];
    double strided = a->row_axis >= 0 ? TCI_MAP_LINE_BYTES / (4.0 * a->widest) + 1 : 1;
    return tci_query_ns(a, 1, strided) * tci_map_idle(a, threads) *
           tci_map_distance_factor(n[TCI_SHORT_ROWS] * threads, TCI_SHORT_BLOCK) *
           tci_map_distance_factor(tci_map_lanes_of(a, threads),
                                   TCI_MAX(tci_dim_hint(a->n_vec), 1));
}

static void tci_short_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_unit unit = tci_unit_make(&nest);
    b->l->threads = (int)n[TCI_SHORT_THREADS];
    b->l->lanes = (int)tci_map_lanes_of(a, b->l->threads);
    b->l->rows = nest.rows = (int)n[TCI_SHORT_ROWS];
    nest.vec_axis = a->vec_axis;
    nest.n_vec = a->n_vec;
    nest.chunk = TCI_MAX(tci_query_vectors(a, b->l->lanes), 1) * b->l->lanes; /* a row whole */
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_short_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)b;
    tci_str_printf(out, ", %d rows a block", (int)n[TCI_SHORT_ROWS]);
}

/* ---- block ---- */

static bool tci_block_fits(const tci_query *a, const int64_t *n)
{
    return a->is_map && a->row_axis >= 0 && a->machine.block_threads == 0 && n[0] >= 1 &&
           n[0] <= TCI_MAP_BLOCK_VECTOR;
}

static int64_t tci_block_unroll(const tci_query *a)
{
    int64_t unroll = TCI_MIN(TCI_MAX(TCI_MAP_BLOCK_VECTOR / a->lanes, 1), TCI_MAP_UNROLL_MOST);
    unroll = a->flops > TCI_MAP_HEAVY ? 1 : unroll;
    return TCI_MAX(TCI_MIN(unroll, tci_query_vectors(a, a->lanes)), 1);
}

static int tci_block_candidates(const tci_query *a,
                                int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    n[0][0] = tci_block_unroll(a);
    n[1][0] = n[0][0] / 2;
    n[2][0] = 2 * n[0][0];
    return 3;
}

static double tci_block_cost(const tci_query *a, const int64_t *n)
{
    return tci_query_ns(a, 1.1, 1.2) * tci_map_distance_factor(n[0], tci_block_unroll(a));
}

static void tci_block_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_unit unit = tci_unit_make(&nest);
    b->l->lanes = a->lanes;
    nest.vec_axis = a->vec_axis;
    nest.n_vec = a->n_vec;
    nest.group = TCI_MAP_BLOCK;
    unit.unroll = (int)n[0];
    nest.chunk = (int64_t)unit.unroll * b->l->lanes;
    tci_unit_rows(&unit, a->row_axis, 1);
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_block_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", block %dx%d", TCI_MAP_BLOCK, (int)n[0] * b->l->lanes);
}

/* ---- square ---- */

static int tci_smem_transpose_lanes(const tci_query *a)
{
    return TCI_MIN(a->lanes, TCI_MAP_SQUARE);
}

static bool tci_turn_fits(const tci_query *a, const int64_t *n)
{
    return a->is_map && a->turns && a->machine.block_threads == 0 && n[0] >= 0 && n[0] <= 1 &&
           (n[0] == 0 || tci_query_stream_lines(a, tci_smem_transpose_lanes(a)) != NULL);
}

static int tci_turn_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    n[0][0] = a->turns && tci_query_stream_lines(a, tci_smem_transpose_lanes(a)) != NULL;
    n[1][0] = 0;
    return 2;
}

static double tci_turn_cost(const tci_query *a, const int64_t *n)
{
    const tci_kstore *store = tci_query_stream_lines(a, tci_smem_transpose_lanes(a));
    return tci_query_ns(a, 1, tci_map_moved(a, store, n[0] != 0));
}

/* Whole cache lines of what is stored. */
static int tci_turn_unroll(const tci_query *a, int lanes)
{
    const tci_koperand *o = &a->k->operands[a->k->stores[0].operand];
    int bytes = tci_dtype_get((tc_dtype)o->dtype)->bytes;
    int64_t unroll = TCI_MAX(TCI_MAP_LINE_BYTES / (lanes * bytes), 1);
    return (int)TCI_MAX(TCI_MIN(unroll, tci_query_vectors(a, lanes)), 1);
}

static void tci_turn_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_unit unit = tci_unit_make(&nest);
    int lanes = b->l->lanes = tci_smem_transpose_lanes(a);
    tci_dim rows = a->k->axes[a->row_axis].size;
    nest.vec_axis = a->vec_axis;
    nest.row_axis = a->row_axis;
    nest.n_vec = a->n_vec;
    nest.n_tiles = tci_dim_ceil_div(rows, lanes);
    nest.group = TCI_MAP_SQUARES;
    nest.chunks_first = true; /* those of the same rows complete each other's pages */
    unit.base = lanes;
    if (tci_dim_is_known(rows)) {
        int64_t n_tiles = TCI_MAX(tci_dim_known(nest.n_tiles), 1);
        unit.base = tci_dim_known(rows) / n_tiles;
        unit.extra = tci_dim_known(rows) % n_tiles;
    }
    unit.unroll = tci_turn_unroll(a, lanes);
    unit.turn = true;
    unit.stream = n[0] ? tci_query_stream_lines(a, lanes) : NULL;
    nest.fence = unit.stream != NULL;
    nest.chunk = (int64_t)unit.unroll * lanes;
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_turn_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    tci_dim size = a->k->axes[a->row_axis].size;
    int lanes = b->l->lanes;
    int64_t rows = lanes;
    if (tci_dim_is_known(size)) { /* as even as can be */
        rows = tci_dim_known(size);
        rows = tci_ceil_div(rows, TCI_MAX(tci_ceil_div(rows, lanes), 1));
    }
    tci_str_printf(out, ", square %dx%d", (int)rows, tci_turn_unroll(a, lanes) * lanes);
    tci_map_note_stream(n[0] != 0, out);
}

/* ---- weave ---- */

static bool tci_interleave_fits(const tci_query *a, const int64_t *n)
{
    return a->is_map && a->machine.block_threads == 0 && n[TCI_MAP_UNROLL] >= 1 &&
           n[TCI_MAP_UNROLL] <= TCI_MAP_UNROLL_MOST &&
           tci_query_lanes_fit(a, n[TCI_MAP_LANES], 1) &&
           tci_interleave_axis(a->k, a->vec_axis) >= 0;
}

static int tci_interleave_candidates(const tci_query *a,
                                     int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    for (int i = 0; i < 3; i++) {
        n[i][TCI_MAP_LANES] = a->lanes >> i;
        n[i][TCI_MAP_UNROLL] = 1;
    }
    return 3;
}

static double tci_interleave_cost(const tci_query *a, const int64_t *n)
{
    return tci_query_ns(a, 1, 1) * tci_map_distance_factor(n[TCI_MAP_UNROLL], 1) *
           tci_map_narrow(a, n[TCI_MAP_LANES], false);
}

static void tci_interleave_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_unit unit = tci_unit_make(&nest);
    int axis = tci_interleave_axis(a->k, a->vec_axis);
    b->l->lanes = (int)n[TCI_MAP_LANES];
    nest.vec_axis = a->vec_axis;
    nest.n_vec = a->n_vec;
    unit.unroll = (int)n[TCI_MAP_UNROLL];
    unit.weave = true;
    int64_t step = (int64_t)unit.unroll * b->l->lanes;
    tci_unit_rows(&unit, axis, (int)tci_kernel_known(a->k, axis));
    tci_nest_cut(&nest, step, TCI_MAX(step, TCI_MAP_MIN_CHUNK));
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_interleave_note(const tci_query *a, const int64_t *n, const tci_build *b,
                                tci_str *out)
{
    (void)n, (void)b;
    tci_str_printf(out, ", %d in turns",
                   (int)tci_kernel_known(a->k, tci_interleave_axis(a->k, a->vec_axis)));
}

/* ---- rows ---- */

TCI_FN const tci_form *const *tci_map_forms(void)
{
    static const tci_form point = {
        "point", {0}, tci_point_fits, NULL, tci_point_cost, tci_point_emit, tci_point_note};
    static const tci_form map = {"map",        {"unroll", "lanes", "threads", "stream"},
                                 tci_map_fits, tci_map_candidates,
                                 tci_map_cost, tci_map_emit,
                                 tci_map_note};
    static const tci_form shorts = {"short",        {"threads", "rows"},
                                    tci_short_fits, tci_short_candidates,
                                    tci_short_cost, tci_short_emit,
                                    tci_short_note};
    static const tci_form block = {"block",        {"unroll"},
                                   tci_block_fits, tci_block_candidates,
                                   tci_block_cost, tci_block_emit,
                                   tci_block_note};
    static const tci_form square = {"square",      {"stream"},
                                    tci_turn_fits, tci_turn_candidates,
                                    tci_turn_cost, tci_turn_emit,
                                    tci_turn_note};
    static const tci_form weave = {"weave",
                                   {"unroll", "lanes"},
                                   tci_interleave_fits,
                                   tci_interleave_candidates,
                                   tci_interleave_cost,
                                   tci_interleave_emit,
                                   tci_interleave_note};
    static const tci_form *const forms[] = {&point, &map, &shorts, &block, &square, &weave, NULL};
    return forms;
}
