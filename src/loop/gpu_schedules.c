/* loop/gpu_schedules.c - the GPU schedule kinds: for each one whether it applies, its candidate
 * parameters, its cost and its emitter.
 *
 *   product    SIMT GEMM: shared-memory tiles of a thread block (loop/simt_gemm.c)
 *   window     short reductions or rows, a vector of outputs per thread
 *              (loop/simt_short_reduction.c)
 *   spread     one thread per output point (loop/thread_per_point.c)
 *   matrix     GEMM and implicit GEMM on tensor cores, as a template (loop/wgmma_gemm.c)
 *   attention  fused attention and its gradients on tensor cores (loop/flash_attention.c)
 *   flash      the same on SIMT threads
 *   squares    transposes through shared memory (loop/smem_transpose.c)
 *   row        rows in the registers of a block or warp (loop/simt_row_block.c)
 *   warps      GEMM on the tensor cores of each warp, mma.sync (loop/mma_gemm.c)
 *
 * In: a kernel on a machine (tci_query). Out: rows of loop/schedule_kind.h, which loop/schedule.c
 * compares with those of CPUs. */
#include <string.h>

#include "flash_attention.h"
#include "gpu_schedules.h"
#include "simt_row_block.h"
#include "simt_gemm.h"
#include "smem_transpose.h"
#include "thread_per_point.h"
#include "register_tiles.h"
#include "simt_short_reduction.h"

enum {
    TCI_TILE_SPREAD = 8, /* points of a thread, at most */
    TCI_ROW_BLOCK = 256, /* threads of a block of several rows */
    TCI_ROW_FEW = 4,     /* threads that read whole sectors of a row, of halves too */
    TCI_ROW_SPARE = 4,   /* vectors in registers that leave others enough */
    TCI_ROW_BUSY = 2     /* such blocks for each SM, at least */
};

/* The same of a thread's own points over tiles of few rows, where loads are guarded: tiles fetch
 * each of these elements with twice as many instructions (grouped 3x3 windows: 50, not 65 us). */
#define TCI_TILE_GUARDED 0.8

TCI_FN bool tci_blocks_are_joined(void)
{
    return true;
}

/* ---- products on GPUs ---- */

static bool tci_simt_gemm_is_kernel(const tci_query *a, tci_simt_gemm *p)
{
    memset(p, 0, sizeof(*p));
    return tci_tile_is_kernel(a) && tci_simt_gemm_plan(a->k, &a->machine, p);
}

static bool tci_products_fits(const tci_query *a, const int64_t *n)
{
    tci_simt_gemm p;
    return tci_simt_gemm_is_kernel(a, &p) && tci_simt_gemm_ns(a->k, &a->machine, n, &p) >= 0;
}

static int tci_products_candidates(const tci_query *a,
                                   int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    const tci_simt_gemm_tile *tiles = tci_simt_gemm_tiles();
    (void)a;
    for (int i = 0; i < TCI_PRODUCT_TILES; i++) {
        n[i][0] = tiles[i].rows;
        n[i][1] = tiles[i].columns;
        n[i][2] = tiles[i].row_points;
        n[i][3] = tiles[i].column_points;
    }
    return TCI_PRODUCT_TILES;
}

/* Arithmetic time if memory is not the bottleneck; among memory-bound schedules the one with less
 * arithmetic is preferred. */
static double tci_tile_with_memory(const tci_query *a, double ns)
{
    return TCI_MAX(ns, tci_query_memory_ns(a)) + 0.01 * ns;
}

static double tci_products_cost(const tci_query *a, const int64_t *n)
{
    tci_simt_gemm p;
    tci_simt_gemm_is_kernel(a, &p);
    return tci_tile_with_memory(a, tci_simt_gemm_ns(a->k, &a->machine, n, &p));
}

static void tci_products_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_simt_gemm_emit(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_products_emit(const tci_query *a, const int64_t *n, tci_build *b,
                              tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_simt_gemm p;
    tci_simt_gemm_is_kernel(a, &p);
    tci_simt_gemm_ns(a->k, &a->machine, n, &p);
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    for (int i = 0; i < a->k->n_outer; i++) {
        tiled[i] = tci_simt_gemm_has(&p, i);
    }
    b->l->lanes = 1;
    b->l->threads = p.threads;
    b->l->resident = p.resident;
    nest.tiled = tiled;
    nest.n_vec = p.columns.size;
    nest.chunk = p.columns.extent;
    nest.n_tiles = tci_dim_ceil_div(p.rows.size, p.rows.extent);
    tci_nest_run(&nest, tci_products_body, &p, launch);
}

static void tci_products_note(const tci_query *a, const int64_t *n, const tci_build *b,
                              tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", tiles %dx%d by %d threads", (int)n[0], (int)n[1], b->l->threads);
    tci_str_add(out, b->n_keeps > 0 ? ", row kept" : "");
}

/* ---- points by threads of blocks ---- */

enum { TCI_PER_POINT_SECTOR = 32 }; /* bytes of memory that are read at once */

static bool tci_per_point_is_kernel(const tci_query *a, tci_per_point *p)
{
    memset(p, 0, sizeof(*p));
    return (tci_tile_is_kernel(a) || a->is_map) && tci_per_point_plan(a->k, &a->machine, p);
}

static bool tci_per_point_form_fits(const tci_query *a, const int64_t *n)
{
    tci_per_point p;
    if (!tci_per_point_is_kernel(a, &p) || n[0] < 1 || n[0] > TCI_TILE_SPREAD) {
        return false;
    }
    return n[0] == 1 || (p.row_axis >= 0 && tci_kernel_known(a->k, p.row_axis) % n[0] == 0);
}

/* So many rows, half and twice as many, one. */
static int tci_tile_around(int rows, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    n[0][0] = rows;
    n[1][0] = rows / 2;
    n[2][0] = 2 * rows;
    n[3][0] = 1;
    return 4;
}

static int tci_per_point_candidates(const tci_query *a,
                                    int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    tci_per_point p;
    if (!tci_per_point_is_kernel(a, &p)) {
        return 0;
    }
    return tci_tile_around(p.rows, n);
}

/* Lines of memory of a factor that a warp's neighbouring points meet at once. */
static double tci_per_point_lines(const tci_query *a, const tci_per_point *p, int factor)
{
    double lines = 1;
    int64_t points = 1;
    for (int i = p->n_axes - 1; i >= 0 && points < TCI_WARP; i--) {
        int64_t size = tci_kernel_known(a->k, p->axes[i]);
        if (tci_build_depends(a->k->insts[factor].axes, p->axes[i])) {
            lines *= (double)TCI_MIN(size, tci_ceil_div(TCI_WARP, points));
        }
        points *= size;
    }
    return lines;
}

/* Time of the reads by the threads of a contraction with this many rows each: for each product
 * neighbours of the operand that has the last axis, and for each row one element of the other. */
static double tci_per_point_reads_ns(const tci_query *a, const tci_per_point *p, int64_t rows)
{
    const tci_kernel *k = a->k;
    const tci_kred *red = &k->reds[0];
    bool swap = tci_build_depends(k->insts[red->in[0]].axes, k->n_outer - 1);
    double steps = (double)p->size / (double)rows / TCI_WARP / a->machine.facts.processors;
    for (int i = 0; i < k->stages[0].n_axes; i++) {
        steps *= (double)tci_kernel_known(k, k->stages[0].axes[i]);
    }
    steps *= p->row_axis < 0 ? 1 : (double)tci_kernel_known(k, p->row_axis);
    double lines = tci_per_point_lines(a, p, red->in[swap]);
    return steps * (1 + (double)rows * lines) / a->machine.facts.ghz;
}

/* Traffic relative to the useful bytes, where a load runs along another axis than the threads:
 * neighbours then use one memory sector each, half of which is served to others from caches. */
static double tci_per_point_apart(const tci_query *a)
{
    tci_smem_transpose q;
    double apart = 1;
    if (!tci_smem_transpose_plan(a->k, a->row_axis, a->vec_axis, &q)) {
        return apart;
    }
    for (int i = 0; i < q.n_loads; i++) {
        int at = tci_kinst_number(&a->k->insts[q.loads[i]]);
        int bytes = tci_dtype_get((tc_dtype)a->k->operands[at].dtype)->bytes;
        apart = TCI_MAX(apart, TCI_PER_POINT_SECTOR / 2.0 / bytes);
    }
    return apart;
}

static double tci_per_point_cost(const tci_query *a, const int64_t *n)
{
    tci_per_point p;
    tci_per_point_is_kernel(a, &p);
    double off = (double)n[0] / (double)p.rows;
    off = 0.9 + 0.01 * (TCI_MAX(off, 1 / off) - 1);
    if (a->is_map) { /* a short axis is stored together */
        return p.row_axis < 0 ? a->ns * tci_per_point_apart(a) : off * a->ns;
    }
    tci_simt_gemm tiles = {0};
    bool dot = tci_tile_has_dot(a->k);
    bool few = dot && tci_simt_gemm_plan(a->k, &a->machine, &tiles) &&
               !tci_simt_gemm_is_large_enough(&tiles);
    off *= few && p.by_lane ? TCI_TILE_GUARDED : 1;
    double ns = few   ? TCI_MAX(a->ns, tci_per_point_reads_ns(a, &p, n[0]))
                : dot ? tci_tile_in_place(a, a->ns)
                      : a->ns;
    bool vectors = a->rows > 1 && !tci_tile_has_dot(a->k) && !p.by_lane &&
                   tci_tile_lost(a, a->lanes) < 1.2; /* read more at once */
    ns = TCI_MAX(ns * off, TCI_MAX(tci_query_arithmetic_ns(a), tci_query_memory_ns(a)));
    return vectors ? 1.1 * ns : ns;
}

static void tci_per_point_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_per_point_emit(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_per_point_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                    tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_per_point p;
    tci_per_point_is_kernel(a, &p);
    p.rows = (int)n[0];
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    memset(tiled, true, (size_t)a->k->n_outer);
    b->l->lanes = 1;
    b->l->threads = TCI_PER_POINT_THREADS;
    nest.tiled = tiled;
    nest.n_vec = p.size;
    nest.chunk = TCI_PER_POINT_THREADS;
    nest.n_tiles = p.row_axis < 0 ? 1 : tci_dim_div(a->k->axes[p.row_axis].size, p.rows);
    tci_nest_run(&nest, tci_per_point_body, &p, launch);
}

static void tci_per_point_note(const tci_query *a, const int64_t *n, const tci_build *b,
                               tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", points by %d threads, %d each", b->l->threads, (int)n[0]);
    tci_str_add(out, b->n_keeps > 0 ? ", row kept" : "");
}

/* ---- vectors of each thread ---- */

static bool tci_short_reduction_is_kernel(const tci_query *a, int64_t rows, tci_short_reduction *p)
{
    memset(p, 0, sizeof(*p));
    return (tci_tile_is_kernel(a) || a->is_map) &&
           tci_short_reduction_plan(a->k, &a->machine, rows, p);
}

static bool tci_short_reduction_fits(const tci_query *a, const int64_t *n)
{
    tci_short_reduction p;
    return n[0] > 0 && tci_short_reduction_is_kernel(a, n[0], &p);
}

static int tci_short_reduction_candidates(const tci_query *a,
                                          int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    tci_short_reduction p;
    if (!tci_short_reduction_is_kernel(a, 0, &p)) {
        return 0;
    }
    return tci_tile_around(p.rows, n);
}

/* Bounded by memory or arithmetic, where there are threads enough. */
static double tci_short_reduction_cost(const tci_query *a, const int64_t *n)
{
    tci_short_reduction own, p;
    tci_short_reduction_is_kernel(a, 0, &own);
    tci_short_reduction_is_kernel(a, n[0], &p);
    double off = (double)n[0] / (double)own.rows;
    double busy = (double)a->machine.facts.processors * TCI_WINDOW_THREADS;
    double ns = TCI_MAX(tci_query_arithmetic_ns(a), tci_query_memory_ns(a));
    ns = a->is_map ? 0.9 * a->ns : ns; /* a block of one short row has little to read at once */
    return ns * TCI_MAX(busy / (double)p.size, 1) * (1 + 0.01 * (TCI_MAX(off, 1 / off) - 1));
}

static void tci_short_reduction_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    tci_short_reduction_emit(n->b, arg, at->chunk);
}

static void tci_short_reduction_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                          tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_short_reduction p;
    tci_short_reduction_is_kernel(a, n[0], &p);
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    memset(tiled, true, (size_t)a->k->n_outer);
    b->l->lanes = p.lanes;
    b->l->rows = TCI_WINDOW_THREADS;
    nest.tiled = tiled;
    nest.n_vec = p.size;
    nest.chunk = TCI_WINDOW_THREADS;
    tci_nest_run(&nest, tci_short_reduction_body, &p, launch);
}

static void tci_short_reduction_note(const tci_query *a, const int64_t *n, const tci_build *b,
                                     tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", windows by %d threads, %d each", b->l->rows, (int)n[0]);
}

/* ---- a GPU's matrix unit ---- */

static bool tci_matrix_form_is_for(const tci_query *a)
{
    return tci_query_on_unit(a) && a->machine.block_threads > 0 && a->machine.matrix_units > 0;
}

static bool tci_matrix_form_fits(const tci_query *a, const int64_t *n)
{
    return tci_matrix_form_is_for(a) && tci_matrix_ns(a->k, &a->machine, n) >= 0;
}

static int tci_matrix_form_candidates(const tci_query *a,
                                      int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    return tci_matrix_form_is_for(a) ? tci_matrix_candidates(a->k, &a->machine, n) : 0;
}

static double tci_matrix_form_cost(const tci_query *a, const int64_t *n)
{
    return tci_tile_with_memory(a, tci_matrix_ns(a->k, &a->machine, n));
}

static void tci_matrix_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                 tci_launch *launch)
{
    (void)a;
    tci_matrix_emit(b, &a->machine, n, launch);
}

static void tci_matrix_form_note(const tci_query *a, const int64_t *n, const tci_build *b,
                                 tci_str *out)
{
    const tci_matrix *x = b->l->matrix;
    (void)a, (void)n;
    const char *read = x->n_places > 0 ? ", places" : x->is_boxes ? ", boxes" : "";
    tci_str_printf(out, "matrix unit, sums in its order, tile %dx%dx%d, %d stages%s", x->rows,
                   x->columns, tci_matrix_depth(x), x->stages, read);
    if (x->shares) {
        tci_str_printf(out, ", two blocks share %s", x->shares == 1 ? "rows" : "columns");
    }
}

/* ---- attention ---- */

static bool tci_attention_form_fits(const tci_query *a, const int64_t *n)
{
    return tci_query_on_unit(a) && a->machine.block_threads > 0 &&
           tci_attention_ns(a->k, &a->machine, false, n) >= 0;
}

static bool tci_flash_form_fits(const tci_query *a, const int64_t *n)
{
    return tci_query_is_flash(a) && tci_attention_ns(a->k, &a->machine, true, n) >= 0;
}

static int tci_attention_form_candidates(const tci_query *a,
                                         int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    return tci_query_on_unit(a) ? tci_attention_tiles(a->k, false, n) : 0;
}

static int tci_flash_form_candidates(const tci_query *a,
                                     int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    return tci_query_is_flash(a) ? tci_attention_tiles(a->k, true, n) : 0;
}

static double tci_attention_form_cost(const tci_query *a, const int64_t *n)
{
    return tci_attention_ns(a->k, &a->machine, false, n);
}

static double tci_flash_form_cost(const tci_query *a, const int64_t *n)
{
    return tci_attention_ns(a->k, &a->machine, true, n);
}

static void tci_attention_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                    tci_launch *launch)
{
    tci_attention_emit(b, &a->machine, false, n, launch);
}

static void tci_flash_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                tci_launch *launch)
{
    tci_attention_emit(b, &a->machine, true, n, launch);
}

static void tci_attention_form_note(const tci_query *a, const int64_t *n, const tci_build *b,
                                    tci_str *out)
{
    const tci_attention *x = b->l->attention;
    const char *rows = x->by_step ? "keys" : "queries", *steps = x->by_step ? "queries" : "keys";
    (void)a, (void)n;
    tci_str_add(out, x->threads ? "" : "matrix unit, ");
    tci_str_add(out, !x->is_online ? "gradients of attention" : "attention by steps");
    if (x->threads) {
        tci_str_printf(out, " %s %d threads", x->is_online ? "of" : "by", x->threads);
    }
    tci_str_printf(out, ", %d %s and %d %s", x->in[0].rows, rows, x->in[0].columns, steps);
    if (!x->threads) {
        tci_str_printf(out, ", %d stages", x->rings);
    }
    tci_str_add(out, x->turns ? ", in turns" : "");
    tci_str_add(out, x->cut.is_cut ? ", longest first" : "");
}

/* ---- square tiles ---- */

static bool tci_squares_fits(const tci_query *a, const int64_t *n)
{
    tci_smem_transpose q;
    (void)n;
    return a->is_map && a->machine.block_threads >= TCI_SMEM_TRANSPOSE_THREADS &&
           !a->machine.no_shared_memory &&
           tci_smem_transpose_plan(a->k, a->row_axis, a->vec_axis, &q);
}

static double tci_squares_cost(const tci_query *a, const int64_t *n)
{
    (void)n;
    return tci_query_ns(a, 1, 1) * tci_map_idle_lanes_factor(a);
}

static void tci_squares_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_smem_transpose_emit(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_squares_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_smem_transpose q;
    (void)n;
    tci_smem_transpose_plan(a->k, a->row_axis, a->vec_axis, &q);
    b->l->lanes = 1;
    b->l->threads = TCI_SMEM_TRANSPOSE_THREADS;
    nest.vec_axis = a->vec_axis;
    nest.row_axis = a->row_axis;
    nest.n_vec = a->n_vec;
    nest.n_tiles = tci_dim_ceil_div(a->k->axes[a->row_axis].size, TCI_SQUARE);
    nest.chunk = TCI_SQUARE;
    tci_nest_run(&nest, tci_squares_body, &q, launch);
}

static void tci_squares_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)n;
    tci_str_printf(out, ", squares %dx%d by %d threads", TCI_SQUARE, TCI_SQUARE, b->l->threads);
    tci_str_add(out, b->n_keeps > 0 ? ", row kept" : "");
}

/* ---- rows in registers ---- */

enum { TCI_ROW_THREADS, TCI_ROW_ROWS };

static int tci_row_held(const tci_query *a, int64_t threads, int64_t rows)
{
    tci_loop shape = {0};
    shape.threads = (int)threads;
    shape.rows = (int)rows;
    shape.lanes = shape.threads * (a->lanes / TCI_MAX(a->threads, 1));
    return a->machine.facts.subgroup == TCI_WARP && a->threads >= TCI_WARP
               ? tci_row_vectors(a->k, &shape)
               : 0;
}

/* True if each warp is full of rows, or has none, since its threads exchange values by shuffles. */
static bool tci_row_fills_warps(const tci_query *a, int64_t threads, int64_t rows)
{
    tci_dim points = 1;
    for (int i = 0; i < a->k->n_outer; i++) {
        points = tci_dim_mul(points, a->k->axes[i].size);
    }
    int64_t of_warp = TCI_WARP / TCI_MIN(threads, TCI_WARP);
    return rows % of_warp == 0 && (of_warp == 1 || tci_dim_divides(of_warp, points));
}

static bool tci_row_fits(const tci_query *a, const int64_t *n)
{
    int64_t threads = n[TCI_ROW_THREADS], rows = n[TCI_ROW_ROWS];
    return !tci_query_on_unit(a) && !tci_query_is_flash(a) &&
           tci_query_is_power(threads, 2, a->threads) &&
           tci_query_is_power(rows, 1, TCI_ROW_BLOCK) &&
           (rows == 1 ? threads >= TCI_WARP
                      : threads <= TCI_WARP && threads * rows <= a->machine.block_threads) &&
           (!tci_kernel_earlier(a->k) || (threads == a->threads && rows == 1)) &&
           tci_row_fills_warps(a, threads, rows) && tci_row_held(a, threads, rows) > 0;
}

/* With few threads, work done once per thread is done less often, and fewer lanes are combined; but
 * the row takes at most as many of their registers as leave space for other rows, unless it
 * must. */
static bool tci_row_is_worth(const tci_query *a, int threads, int held)
{
    bool spares = held <= TCI_ROW_SPARE && threads >= TCI_ROW_FEW;
    return held == 1 || (held > 1 && (spares || threads == a->threads));
}

/* As few threads as hold the row, then more; in large blocks if there are enough. */
static int tci_row_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    int64_t busy = (int64_t)a->machine.facts.processors * TCI_ROW_BUSY;
    int count = 0;
    for (int threads = 2; threads <= a->threads && count < TCI_FORM_CANDIDATES - 1; threads *= 2) {
        int64_t rows = threads <= TCI_WARP ? TCI_ROW_BLOCK / threads : 1;
        while (rows > 1 && tci_rows_blocks(a, rows) < busy) {
            rows /= 2;
        }
        n[count][TCI_ROW_THREADS] = threads;
        n[count][TCI_ROW_ROWS] = rows;
        count += tci_row_is_worth(a, threads, tci_row_held(a, threads, rows));
    }
    n[count][TCI_ROW_THREADS] = a->threads;
    n[count++][TCI_ROW_ROWS] = 1;
    return count;
}

static double tci_row_cost(const tci_query *a, const int64_t *n)
{
    return TCI_MAX(tci_rows_ns(a, n[TCI_ROW_THREADS], 1, 1), tci_rows_start_ns(a, n[TCI_ROW_ROWS]));
}

static void tci_row_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    (void)arg;
    tci_build_lx(n->b, at->group);
    tci_row_emit(n->b);
}

static void tci_row_emit_units(const tci_query *a, const int64_t *n, tci_build *b,
                               tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    b->l->threads = (int)n[TCI_ROW_THREADS];
    b->l->lanes = b->l->threads * (a->lanes / a->threads);
    b->l->rows = nest.rows = (int)n[TCI_ROW_ROWS];
    b->l->together = true;
    tci_nest_run(&nest, tci_row_body, NULL, launch);
}

static void tci_row_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)b;
    tci_str_add(out, ", rows in registers");
    if (n[TCI_ROW_ROWS] > 1) {
        tci_str_printf(out, ", %d a block", (int)n[TCI_ROW_ROWS]);
    }
}

/* ---- the forms ---- */

TCI_FN const tci_form *const *tci_block_forms(void)
{
    static const tci_form product = {
        "product",         {"rows", "columns", "row_points", "column_points"},
        tci_products_fits, tci_products_candidates,
        tci_products_cost, tci_products_emit,
        tci_products_note};
    static const tci_form spread = {"spread",
                                    {"rows"},
                                    tci_per_point_form_fits,
                                    tci_per_point_candidates,
                                    tci_per_point_cost,
                                    tci_per_point_form_emit,
                                    tci_per_point_note};
    static const tci_form window = {"window",
                                    {"rows"},
                                    tci_short_reduction_fits,
                                    tci_short_reduction_candidates,
                                    tci_short_reduction_cost,
                                    tci_short_reduction_form_emit,
                                    tci_short_reduction_note};
    static const tci_form matrix = {"matrix",
                                    {"consumers", "sub_rows", "columns", "shares"},
                                    tci_matrix_form_fits,
                                    tci_matrix_form_candidates,
                                    tci_matrix_form_cost,
                                    tci_matrix_form_emit,
                                    tci_matrix_form_note};
    static const tci_form attention = {"attention",
                                       {"consumers", "steps", "turns"},
                                       tci_attention_form_fits,
                                       tci_attention_form_candidates,
                                       tci_attention_form_cost,
                                       tci_attention_form_emit,
                                       tci_attention_form_note};
    static const tci_form flash = {"flash",
                                   {"rows", "steps"},
                                   tci_flash_form_fits,
                                   tci_flash_form_candidates,
                                   tci_flash_form_cost,
                                   tci_flash_form_emit,
                                   tci_attention_form_note};
    static const tci_form squares = {"squares",        {0},
                                     tci_squares_fits, NULL,
                                     tci_squares_cost, tci_squares_emit,
                                     tci_squares_note};
    static const tci_form row = {"row",        {"threads", "rows"},
                                 tci_row_fits, tci_row_candidates,
                                 tci_row_cost, tci_row_emit_units,
                                 tci_row_note};
    static const tci_form *const forms[] = {&product, &window,  &spread, &matrix, &attention,
                                            &flash,   &squares, &row,    NULL};
    return forms;
}
