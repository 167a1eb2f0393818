/* loop/simt_gemm.c - emits the SIMT GEMM: shared-memory panels, and register tiles of the threads
 * of a block.
 *
 * In: a kernel whose first stage is a DOT of two operands, and whose later stages are pointwise.
 * The outer axes of only one operand are the rows of the result, those of the other the columns,
 * each counted as one axis; so are the contracted ones. Out: the statements for one tile of the
 * result.
 *
 * Design: a tile of the result is in the registers of a block's threads, 4 x 4 to 8 x 8 elements
 * each, and every operand is read once per tile: K block by K block, the thread block
 * evaluates the operands' own expressions into two shared panels, from which each thread reads
 * what its elements need. So windows of an image, padding, transposes and cheap arithmetic cost no
 * more than the index of an element, and nothing is copied beforehand. While a K block is
 * multiplied, the next one is loaded into registers. Each element adds its products in the order of
 * the axes, in one chain or, in class SPLIT, one chain per fixed number of K blocks.
 *
 * Cost: an f32 tile of 128 x 128 x 16 is, per thread, 1024 multiply-adds, 64 reads of four
 * neighbours from the panels, and 16 elements to load, each one load and, if axes must be
 * separated, about ten operations on its index. A panel read takes two cycles of an SM per warp
 * and four neighbours, in which its four partitions do eight multiply-adds of a warp: with 4 x 4
 * elements that is the limit, with 8 x 8 half of it.
 *
 * As in loop/smem_transpose.c the loop has one lane and threads are distinguished by
 * TCI_LX_THREAD. A thread has coordinates (x, y) in the tile, a warp 8 x 4 of them; its elements
 * are rows 4 (y + g places) + (0 .. 3) and columns 4 (x + g places) + (0 .. 3), so that it reads
 * four neighbours of a panel at a time, and a warp reads one line of each panel at once. Panels are
 * double-buffered. Elements outside the result are computed from the last element inside, and not
 * stored. */
#include "gpu_schedules.h"
#include "simt_gemm.h"

#include <math.h>
#include <string.h>

enum {
    TCI_PRODUCT_SLAB = 16,  /* of the contracted axis */
    TCI_PRODUCT_PAD = 4,    /* of a panel's rows: banks apart, and still aligned */
    TCI_PRODUCT_NEXT = 4,   /* neighbouring points of a thread */
    TCI_PRODUCT_WARP_X = 8, /* positions of a warp along the columns and along the rows */
    TCI_PRODUCT_WARP_Y = 4,
    TCI_PRODUCT_LARGE = 2,   /* blocks of many threads that an SM should hold at once, */
    TCI_PRODUCT_LANES = 384, /* or this many threads of small ones, which gather more each */
    TCI_PRODUCT_BUSY = 12,   /* warps that hide each other's waits */
    TCI_PRODUCT_GATHER = 12, /* instructions to fetch an element */
    TCI_PRODUCT_RUN = 8      /* neighbours along the contracted axes that are worth reading so */
};

/* ---- whether and how ---- */

static bool tci_simt_gemm_fits(const tci_kernel *k)
{
    return k->reds[0].order != TCI_ORDER_SPLIT || k->reds[0].order_n % TCI_PRODUCT_SLAB == 0;
}

/* Number of neighbouring elements that x visits along the axes, the last one fastest, in either
 * direction. */
static int64_t tci_simt_gemm_run(const tci_kernel *k, int x, int n_axes, const int *axes)
{
    int64_t run = 1, sign = 0;
    for (int i = n_axes - 1; i >= 0; i--) {
        tci_dim coef = 0;
        bool linear = tci_build_coef(k, x, axes[i], &coef);
        sign = sign == 0 && tci_dim_lt(coef, 0) ? -1 : sign == 0 ? 1 : sign;
        if (!linear || coef != sign * run) {
            break;
        }
        run *= tci_kernel_known(k, axes[i]);
    }
    return run;
}

/* Every load of the factor that knows the contracted axes runs along them, and not along its own
 * axes. */
static bool tci_simt_gemm_runs_along(const tci_kernel *k, const tci_simt_gemm_side *side)
{
    const tci_kstage *stage = &k->stages[0];
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    bool any = false;
    live[side->inst] = true;
    for (int i = side->inst; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        for (int a = 0; live[i] && a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        bool load = live[i] && in->op == TCI_K_LOAD;
        if (load && tci_build_depends(in->axes, stage->axes[stage->n_axes - 1])) {
            int64_t along = tci_simt_gemm_run(k, in->x, stage->n_axes, stage->axes);
            int64_t across = tci_simt_gemm_run(k, in->x, side->n_axes, side->axes);
            if (along < TCI_PRODUCT_RUN || across > 1) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

static void tci_simt_gemm_side_of(const tci_kernel *k, const tci_gemm_kernel_axes *axes,
                                  tci_simt_gemm_side *side)
{
    side->inst = axes->inst;
    side->n_axes = axes->n_axes;
    side->axes = axes->axes;
    side->size = axes->size;
    side->along_depth = tci_simt_gemm_runs_along(k, side);
}

TCI_FN bool tci_simt_gemm_take_sides(const tci_kernel *k, tci_simt_gemm *p)
{
    tci_gemm_kernel_sides sides;
    if (!tci_gemm_kernel_find(k, &sides)) {
        return false;
    }
    p->depth = sides.depth;
    tci_simt_gemm_side_of(k, &sides.rows, &p->rows);
    tci_simt_gemm_side_of(k, &sides.columns, &p->columns);
    return true;
}

static void tci_simt_gemm_shape(tci_simt_gemm *p, const tci_simt_gemm_tile *tile)
{
    p->rows.extent = tile->rows;
    p->rows.points = tile->row_points;
    p->rows.places = tile->rows / tile->row_points;
    p->columns.extent = tile->columns;
    p->columns.points = tile->column_points;
    p->columns.places = tile->columns / tile->column_points;
    p->threads = p->rows.places * p->columns.places;
    p->resident = TCI_MAX(TCI_PRODUCT_LANES / p->threads, TCI_PRODUCT_LARGE);
}

/* Cycles of the busiest SM for one step along the depth: the slower of issuing instructions
 * and of reading panels, and more where few warps hide each other's waits. */
static double tci_simt_gemm_cycles(const tci_kernel *k, const tci_machine *machine,
                                   const tci_simt_gemm *p)
{
    double points = 1;
    for (int a = 0; a < k->n_outer; a++) {
        points *= tci_simt_gemm_has(p, a) ? 1 : (double)tci_kernel_known(k, a);
    }
    double rows = (double)p->rows.extent, columns = (double)p->columns.extent;
    double tiles = points * (double)tci_ceil_div(p->rows.size, p->rows.extent) *
                   (double)tci_ceil_div(p->columns.size, p->columns.extent);
    double rounds = ceil(tiles / machine->facts.processors), warps = p->threads / TCI_WARP;
    double takes = warps * (p->rows.points + p->columns.points) / TCI_PRODUCT_NEXT;
    double gathers = (rows + columns) / TCI_WARP * TCI_PRODUCT_GATHER;
    double cycles = (rows * columns / TCI_WARP + takes + gathers) / 4;
    double busy = TCI_MIN(rounds, p->resident) * warps;
    double hidden = busy >= TCI_PRODUCT_BUSY ? 1 : 0.5 + 0.5 * busy / TCI_PRODUCT_BUSY;
    return rounds * TCI_MAX(cycles, 2 * takes) / hidden;
}

TCI_FN const tci_simt_gemm_tile *tci_simt_gemm_tiles(void)
{
    static const tci_simt_gemm_tile tiles[TCI_PRODUCT_TILES] = {{128, 128, 8, 8}, {128, 64, 8, 8},
                                                                {64, 128, 8, 8},  {64, 64, 8, 8},
                                                                {64, 64, 4, 8},   {16, 128, 4, 4},
                                                                {128, 32, 4, 4},  {64, 64, 4, 4}};
    return tiles;
}

TCI_FN bool tci_simt_gemm_plan(const tci_kernel *k, const tci_machine *machine, tci_simt_gemm *p)
{
    return machine->block_threads >= TCI_GATHER_THREADS && !machine->no_shared_memory &&
           tci_simt_gemm_take_sides(k, p) && tci_simt_gemm_fits(k) &&
           TCI_MIN(p->rows.size, p->columns.size) >= TCI_GATHER_FEW &&
           TCI_MAX(p->rows.size, p->columns.size) >= TCI_GATHER_SIDE &&
           p->depth >= TCI_GATHER_DEPTH;
}

TCI_FN bool tci_simt_gemm_is_large_enough(const tci_simt_gemm *p)
{
    return p->rows.size >= (p->columns.along_depth ? TCI_GATHER_FEW : TCI_GATHER_SIDE) &&
           p->columns.size >= TCI_GATHER_SIDE;
}

TCI_FN double tci_simt_gemm_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                               tci_simt_gemm *p)
{
    const tci_simt_gemm_tile *tiles = tci_simt_gemm_tiles();
    bool wide = tci_dtype_get((tc_dtype)k->reds[0].dtype)->bytes > 4;
    for (int i = wide ? TCI_PRODUCT_TILES - 1 : 0; i < TCI_PRODUCT_TILES; i++) {
        if (tiles[i].rows == tile[0] && tiles[i].columns == tile[1] &&
            tiles[i].row_points == tile[2] && tiles[i].column_points == tile[3]) {
            tci_simt_gemm_shape(p, &tiles[i]);
            return tci_simt_gemm_cycles(k, machine, p) * (double)p->depth / machine->facts.ghz;
        }
    }
    return -1;
}

TCI_FN bool tci_simt_gemm_has(const tci_simt_gemm *p, int axis)
{
    bool found = false;
    for (int i = 0; i < p->rows.n_axes; i++) {
        found = found || p->rows.axes[i] == axis;
    }
    for (int i = 0; i < p->columns.n_axes; i++) {
        found = found || p->columns.axes[i] == axis;
    }
    return found;
}

/* ---- the state of one tile ---- */

/* One factor: its panel, and the values that wait for their turn. */
typedef struct tci_simt_gemm_panel {
    const tci_simt_gemm_side *side;
    tci_lin base;      /* of the tile along the axis */
    tci_lin depth, at; /* this thread's first element: in the slab, and along the axis */
    int64_t step;      /* to its next element, along whichever of the two moves */
    int n;             /* elements of a thread */
    int local;         /* panel */
    int *waiting;      /* n mutable values */
    tci_lin take;      /* where the thread takes its points' values */
} tci_simt_gemm_panel;

typedef struct tci_simt_gemm_state {
    tci_build *b;
    const tci_simt_gemm *p;
    tci_simt_gemm_panel panels[2]; /* rows, columns */
    tci_stage_tuple *acc, *total;  /* row * columns of a thread + column; total: in parts */
} tci_simt_gemm_state;

static int64_t tci_simt_gemm_pitch(const tci_simt_gemm_side *side)
{
    return side->extent + TCI_PRODUCT_PAD;
}

/* A thread's n-th point along a side, from its first one. */
static int64_t tci_simt_gemm_skip(const tci_simt_gemm_side *side, int n)
{
    return (int64_t)(n / TCI_PRODUCT_NEXT) * side->places * TCI_PRODUCT_NEXT + n % TCI_PRODUCT_NEXT;
}

TCI_FN tci_lin tci_simt_gemm_thread(tci_build *b, tci_lx_op op, int64_t c)
{
    int thread = tci_lx_make(b->l, TCI_LX_THREAD, -1, -1, 0);
    return tci_build_let(b, tci_lx_make(b->l, op, thread, -1, c));
}

TCI_FN tci_lin tci_simt_gemm_digit(tci_build *b, int64_t before, int64_t n)
{
    int above = tci_build_lx(b, tci_simt_gemm_thread(b, TCI_LX_DIV, before));
    return tci_build_let(b, tci_lx_make(b->l, TCI_LX_MOD, above, -1, n));
}

/* The thread's position along the columns, and along the rows. */
static tci_lin tci_simt_gemm_x(tci_build *b, const tci_simt_gemm *p)
{
    const int64_t warps = p->columns.places / TCI_PRODUCT_WARP_X;
    tci_lin warp = tci_simt_gemm_digit(b, TCI_WARP, warps);
    tci_lin lane = tci_simt_gemm_thread(b, TCI_LX_MOD, TCI_PRODUCT_WARP_X);
    return tci_lin_add(b, lane, tci_lin_mul(b, warp, TCI_PRODUCT_WARP_X));
}

static tci_lin tci_simt_gemm_y(tci_build *b, const tci_simt_gemm *p)
{
    const int64_t warps = p->columns.places / TCI_PRODUCT_WARP_X;
    tci_lin warp = tci_simt_gemm_thread(b, TCI_LX_DIV, TCI_WARP * warps);
    tci_lin lane = tci_simt_gemm_digit(b, TCI_PRODUCT_WARP_X, TCI_PRODUCT_WARP_Y);
    return tci_lin_add(b, lane, tci_lin_mul(b, warp, TCI_PRODUCT_WARP_Y));
}

static void tci_simt_gemm_open_panel(tci_build *b, tci_simt_gemm_panel *panel,
                                     const tci_simt_gemm *p, const tci_simt_gemm_side *side,
                                     tci_lin tile, tci_lin place)
{
    int64_t across = side->along_depth ? TCI_PRODUCT_SLAB : side->extent;
    tci_lin low = tci_simt_gemm_thread(b, TCI_LX_MOD, across);
    tci_lin high = tci_simt_gemm_thread(b, TCI_LX_DIV, across);
    panel->side = side;
    panel->base = tci_lin_mul(b, tile, side->extent);
    panel->depth = side->along_depth ? low : high;
    panel->at = side->along_depth ? high : low;
    panel->step = p->threads / across;
    panel->n = (int)(side->extent * TCI_PRODUCT_SLAB / p->threads);
    panel->local = tci_build_local(b, (tc_dtype)b->k->insts[side->inst].dtype,
                                   2 * TCI_PRODUCT_SLAB * tci_simt_gemm_pitch(side), b->cur);
    panel->waiting = TCI_NEW_ARRAY(b->s, int, panel->n);
    panel->take = tci_lin_mul(b, place, TCI_PRODUCT_NEXT);
}

TCI_FN tci_lin tci_simt_gemm_inside(tci_build *b, tci_lin x, int64_t size)
{
    int last = tci_lx_const(b->l, size - 1);
    return tci_build_let(b, tci_lx_make(b->l, TCI_LX_MIN, tci_build_lx(b, x), last, 0));
}

TCI_FN void tci_simt_gemm_set(tci_build *b, int n, const int32_t *axes,
                              const tci_bind *const *binds)
{
    for (int i = 0; i < n; i++) {
        tci_build_set(b, axes[i], binds ? binds[i] : NULL);
    }
}

TCI_FN tci_simt_gemm_walk tci_simt_gemm_walk_of(tci_build *b, const tci_simt_gemm_side *side)
{
    tci_simt_gemm_walk walk = {.side = side};
    walk.depths = TCI_NEW_ARRAY(b->s, const tci_bind *, b->k->stages[0].n_axes);
    walk.ats = TCI_NEW_ARRAY(b->s, const tci_bind *, side->n_axes);
    return walk;
}

TCI_FN void tci_simt_gemm_bind(tci_build *b, tci_simt_gemm_walk *walk, tci_lin depth, tci_lin at)
{
    const tci_kstage *stage = &b->k->stages[0];
    const tci_simt_gemm_side *side = walk->side;
    if (!walk->begun || !side->along_depth) {
        tci_build_digits(b, stage->n_axes, stage->axes, depth, walk->depths);
    }
    if (!walk->begun || side->along_depth) {
        tci_build_digits(b, side->n_axes, side->axes, at, walk->ats);
    }
    walk->begun = true;
    tci_simt_gemm_set(b, stage->n_axes, stage->axes, walk->depths);
    tci_simt_gemm_set(b, side->n_axes, side->axes, walk->ats);
}

TCI_FN void tci_simt_gemm_unbind(tci_build *b, const tci_simt_gemm_walk *walk)
{
    const tci_kstage *stage = &b->k->stages[0];
    tci_simt_gemm_set(b, stage->n_axes, stage->axes, NULL);
    tci_simt_gemm_set(b, walk->side->n_axes, walk->side->axes, NULL);
}

TCI_FN void tci_simt_gemm_wait(tci_build *b, int *waiting, int value, bool first)
{
    if (first) {
        *waiting = tci_build_mutable(b, value);
    } else {
        tci_build_assign(b, *waiting, value);
    }
}

/* ---- slabs ---- */

/* Evaluates this thread's elements of the slab from `from` on; first: the values are made. */
static void tci_simt_gemm_load(tci_simt_gemm_state *s, tci_simt_gemm_panel *panel, tci_lin from,
                               bool first)
{
    tci_build *b = s->b;
    const tci_simt_gemm_side *side = panel->side;
    tci_simt_gemm_walk walk = tci_simt_gemm_walk_of(b, side);
    bool cut = side->size % side->extent != 0, tail = s->p->depth % TCI_PRODUCT_SLAB != 0;
    for (int i = 0; i < panel->n; i++) {
        int64_t skip = i * panel->step;
        tci_lin depth = tci_lin_add(b, from, panel->depth);
        tci_lin at = tci_lin_add(b, panel->base, panel->at);
        depth = tci_lin_plus(depth, side->along_depth ? 0 : skip);
        at = tci_lin_plus(at, side->along_depth ? skip : 0);
        depth = tail ? tci_simt_gemm_inside(b, depth, s->p->depth) : depth;
        at = cut ? tci_simt_gemm_inside(b, at, side->size) : at;
        tci_simt_gemm_bind(b, &walk, depth, at);
        tci_simt_gemm_wait(b, &panel->waiting[i], tci_build_value(b, side->inst), first);
    }
    tci_simt_gemm_unbind(b, &walk);
}

static void tci_simt_gemm_load_both(tci_simt_gemm_state *s, tci_lin from, bool first)
{
    tci_simt_gemm_load(s, &s->panels[0], from, first);
    tci_simt_gemm_load(s, &s->panels[1], from, first);
}

TCI_FN void tci_simt_gemm_barrier(tci_build *b)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_BARRIER;
    tci_loop_append(b->l, b->cur, st);
}

/* The waiting values become the panels number `half`. */
static void tci_simt_gemm_store_panels(tci_simt_gemm_state *s, tci_lin half)
{
    tci_build *b = s->b;
    for (int f = 0; f < 2; f++) {
        const tci_simt_gemm_panel *panel = &s->panels[f];
        int64_t pitch = tci_simt_gemm_pitch(panel->side);
        int64_t step = panel->side->along_depth ? panel->step : panel->step * pitch;
        tci_lin first = tci_lin_add(b, tci_lin_mul(b, panel->depth, pitch), panel->at);
        first = tci_lin_add(b, first, tci_lin_mul(b, half, TCI_PRODUCT_SLAB * pitch));
        for (int i = 0; i < panel->n; i++) {
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_STORE_ONE;
            st.base = ~panel->local;
            st.x = tci_build_lx(b, tci_lin_plus(first, i * step));
            st.args[0] = panel->waiting[i];
            tci_build_mem(b, st, TC_F32, 1, b->cur);
        }
    }
    tci_simt_gemm_barrier(b);
}

/* From row `depth` of the panels, counted over both halves. */
static void tci_simt_gemm_take(tci_simt_gemm_state *s, int f, tci_lin depth, int *values)
{
    tci_build *b = s->b;
    const tci_simt_gemm_panel *panel = &s->panels[f];
    tc_dtype t = (tc_dtype)b->k->insts[panel->side->inst].dtype;
    tci_lin row = tci_lin_mul(b, depth, tci_simt_gemm_pitch(panel->side));
    tci_lin first = tci_lin_add(b, row, panel->take);
    for (int i = 0; i < panel->side->points; i++) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_LOAD_ONE;
        st.base = ~panel->local;
        st.x = tci_build_lx(b, tci_lin_plus(first, tci_simt_gemm_skip(panel->side, i)));
        values[i] = tci_build_mem(b, st, t, 1, b->cur);
    }
}

/* n steps of every point's chain, from the panels number `half`. */
static void tci_simt_gemm_multiply(tci_simt_gemm_state *s, tci_lin half, int64_t n)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[0];
    int n_rows = s->p->rows.points, n_columns = s->p->columns.points;
    int *rows = TCI_NEW_ARRAY(b->s, int, n_rows), *columns = TCI_NEW_ARRAY(b->s, int, n_columns);
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, n), 1, &open);
    open.st.unroll = TCI_PRODUCT_SLAB;
    tci_lin row = tci_lin_add(b, tci_lin_mul(b, half, TCI_PRODUCT_SLAB), tci_lin_var(b, i));
    tci_simt_gemm_take(s, 0, row, rows);
    tci_simt_gemm_take(s, 1, row, columns);
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < n_columns; c++) {
            bool swap = s->p->rows.inst != red->in[0];
            tci_stage_tuple v = tci_stage_tuple_of(swap ? columns[c] : rows[r],
                                                   swap ? rows[r] : columns[c]);
            tci_stage_tuple acc = s->acc[r * n_columns + c];
            tci_stage_assign(b, acc, tci_stage_combine(b, red, acc, v));
        }
    }
    tci_build_close(b, &open);
}

/* Slab number `slab` begins a part of the sums: the one before joins those before it. */
static void tci_simt_gemm_next_part(tci_simt_gemm_state *s, int slab)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[0];
    int n = s->p->rows.points * s->p->columns.points;
    tci_lopen open, later;
    if (red->order != TCI_ORDER_SPLIT) {
        return;
    }
    int place = tci_lx_make(b->l, TCI_LX_MOD, slab, -1, red->order_n / TCI_PRODUCT_SLAB);
    tci_build_if(b, tci_build_in_range(b, place, 0, 0), &open);
    tci_build_if(b, tci_build_in_range(b, slab, 1, s->p->depth / TCI_PRODUCT_SLAB), &later);
    for (int i = 0; i < n; i++) {
        tci_stage_assign(b, s->total[i], tci_stage_joined(b, red, s->total[i], s->acc[i]));
        tci_stage_assign(b, s->acc[i], tci_stage_identity(b, red));
    }
    tci_build_close(b, &later);
    tci_build_close(b, &open);
}

static void tci_simt_gemm_slabs(tci_simt_gemm_state *s)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t whole = s->p->depth / TCI_PRODUCT_SLAB, tail = s->p->depth % TCI_PRODUCT_SLAB;
    int64_t n = tail > 0 ? whole : whole - 1; /* slabs with another one behind */
    tci_lopen open;
    tci_simt_gemm_load_both(s, tci_lin_const(0), true);
    tci_simt_gemm_store_panels(s, tci_lin_const(0));
    int i = tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, n), 1, &open);
    tci_lin half = tci_build_let(b, tci_lx_make(l, TCI_LX_MOD, tci_lx_var(l, i), -1, 2));
    tci_lin after = tci_lin_plus(tci_lin_var(b, i), 1);
    tci_simt_gemm_load_both(s, tci_lin_mul(b, after, TCI_PRODUCT_SLAB), false);
    tci_simt_gemm_next_part(s, tci_lx_var(l, i));
    tci_simt_gemm_multiply(s, half, TCI_PRODUCT_SLAB);
    tci_simt_gemm_store_panels(s, tci_lin_plus(tci_lin_mul(b, half, -1), 1));
    tci_build_close(b, &open);
    tci_simt_gemm_next_part(s, tci_lx_const(l, n));
    tci_simt_gemm_multiply(s, tci_lin_const(n % 2), tail > 0 ? tail : TCI_PRODUCT_SLAB);
}

/* ---- the result ---- */

static tci_lin tci_simt_gemm_at(const tci_simt_gemm_points *points, int i)
{
    return tci_lin_plus(points->first, points->skip[i]);
}

/* Bindings of a side's axes for each of the thread's points: point * n_axes + axis. The second of a
 * pair is after the first on the last axis, where that has pairs alone. */
static const tci_bind **tci_simt_gemm_binds(tci_build *b, const tci_simt_gemm_points *points)
{
    const tci_simt_gemm_side *side = points->side;
    const int last = side->n_axes - 1;
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, points->n * side->n_axes);
    bool pairs = points->in_pairs && last >= 0 && tci_kernel_known(b->k, side->axes[last]) % 2 == 0;
    for (int i = 0; i < points->n; i++) {
        const tci_bind **own = binds + i * side->n_axes;
        if (pairs && i % 2 == 1) {
            memcpy(own, own - side->n_axes, sizeof(*own) * (size_t)side->n_axes);
            const tci_bind *pair[2];
            tci_build_neighbours(b, side->axes[last], own[last]->at, 2, pair);
            own[last] = pair[1];
        } else {
            tci_build_digits(b, side->n_axes, side->axes, tci_simt_gemm_at(points, i), own);
        }
    }
    return binds;
}

/* So many neighbouring points are in the result together, or outside. */
static int tci_simt_gemm_group(const tci_simt_gemm_points *points)
{
    bool odd = points->side->size % 2 != 0 && points->side->size % points->side->extent != 0;
    return points->in_pairs && !odd ? 2 : 1;
}

/* Opens the branch for a group of points that may be outside of the result, at the first of them;
 * each has bindings of its own: what is loaded there stays there. True: it has one. */
static bool tci_simt_gemm_open(tci_build *b, const tci_simt_gemm_points *points, int point,
                               const tci_bind **binds, tci_lopen *open)
{
    const tci_simt_gemm_side *side = points->side;
    bool cut = side->size % side->extent != 0;
    const tci_bind **own = TCI_NEW_ARRAY(b->s, const tci_bind *, side->n_axes);
    if (cut && point % tci_simt_gemm_group(points) == 0) {
        tci_build_if(b, tci_build_inside(b, tci_simt_gemm_at(points, point), side->size), open);
    }
    for (int i = 0; i < side->n_axes; i++) {
        const tci_bind *bind = binds[point * side->n_axes + i];
        own[i] = cut ? tci_build_bind(b, bind->at, bind->lo, bind->hi, false, -1) : bind;
    }
    tci_simt_gemm_set(b, side->n_axes, side->axes, own);
    return cut;
}

/* Whether statement `one` stores an element, and `next` the one after it: both are one access. */
static bool tci_simt_gemm_joins(tci_loop *l, const tci_lstmt *one, const tci_lstmt *next)
{
    bool stores = one->op == TCI_L_MEM && one->mem == TCI_MEM_STORE_ONE && next->op == TCI_L_MEM &&
                  next->mem == TCI_MEM_STORE_ONE && one->base == next->base;
    return stores && tci_lx_multiple(l, one->x) % 2 == 0 &&
           tci_lx_make(l, TCI_LX_ADD, one->x, tci_lx_const(l, 1), 0) == next->x;
}

/* Joins the stores of two neighbours, which the statements of the block from `from` on are. */
static void tci_simt_gemm_join_stores(tci_build *b, int from)
{
    tci_lblock *block = &b->l->blocks[b->cur];
    for (int i = from; i < block->n; i++) {
        int j = i + 1;
        while (j < block->n && !tci_simt_gemm_joins(b->l, &block->stmts[i], &block->stmts[j])) {
            j++;
        }
        if (j < block->n) {
            block->stmts[j].mem = TCI_MEM_STORE_PAIRS;
            block->stmts[j].x = block->stmts[i].x;
            block->stmts[j].args[1] = block->stmts[j].args[0];
            block->stmts[j].args[0] = block->stmts[i].args[0];
            memmove(block->stmts + i, block->stmts + i + 1,
                    sizeof(*block->stmts) * (size_t)(block->n - i - 1));
            block->n--;
        }
    }
}

TCI_FN void tci_simt_gemm_finish(tci_build *b, const tci_simt_gemm_points *points,
                                 tci_product_sum_fn sum, void *arg)
{
    const tci_bind **rows = tci_simt_gemm_binds(b, &points[0]);
    const tci_bind **columns = tci_simt_gemm_binds(b, &points[1]);
    const int group = tci_simt_gemm_group(&points[1]);
    for (int r = 0; r < points[0].n; r++) {
        tci_lopen row, column;
        bool cut_row = tci_simt_gemm_open(b, &points[0], r, rows, &row);
        for (int c = 0, from = 0; c < points[1].n; c++) {
            bool cut = tci_simt_gemm_open(b, &points[1], c, columns, &column);
            from = c % group == 0 ? b->l->blocks[b->cur].n : from;
            tci_stage_remember_result(b, &b->k->reds[0], sum(b, arg, r, c));
            for (int t = 1; t < b->k->n_stages; t++) {
                b->stage = t;
                tci_stage_stores(b, t, NULL);
            }
            if ((c + 1) % group == 0) {
                tci_simt_gemm_join_stores(b, from);
                if (cut) {
                    tci_build_close(b, &column);
                }
            }
        }
        if (cut_row) {
            tci_build_close(b, &row);
        }
    }
    for (int f = 0; f < 2; f++) {
        tci_simt_gemm_set(b, points[f].side->n_axes, points[f].side->axes, NULL);
    }
}

static tci_stage_tuple tci_simt_gemm_sum(tci_build *b, void *arg, int row, int column)
{
    const tci_simt_gemm_state *s = arg;
    int i = row * s->p->columns.points + column;
    const tci_kred *red = &b->k->reds[0];
    return red->order == TCI_ORDER_SPLIT ? tci_stage_joined(b, red, s->total[i], s->acc[i])
                                         : s->acc[i];
}

static tci_simt_gemm_points tci_simt_gemm_points_of(tci_build *b, const tci_simt_gemm_panel *panel)
{
    int n = panel->side->points;
    int64_t *skip = TCI_NEW_ARRAY(b->s, int64_t, n);
    for (int i = 0; i < n; i++) {
        skip[i] = tci_simt_gemm_skip(panel->side, i);
    }
    tci_lin first = tci_lin_add(b, panel->base, panel->take);
    return (tci_simt_gemm_points){panel->side, first, n, skip, false};
}

TCI_FN void tci_simt_gemm_emit(tci_build *b, const tci_simt_gemm *p, tci_lin row, tci_lin column)
{
    tci_simt_gemm_state s = {b, p, {{0}}, NULL, NULL};
    int n = p->rows.points * p->columns.points;
    b->stage = 0;
    tci_simt_gemm_open_panel(b, &s.panels[0], p, &p->rows, row, tci_simt_gemm_y(b, p));
    tci_simt_gemm_open_panel(b, &s.panels[1], p, &p->columns, column, tci_simt_gemm_x(b, p));
    s.acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    s.total = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    for (int i = 0; i < n; i++) {
        s.acc[i] = tci_stage_accumulator(b, &b->k->reds[0], 1);
        if (b->k->reds[0].order == TCI_ORDER_SPLIT) {
            s.total[i] = tci_stage_total(b, &b->k->reds[0], 1);
        }
    }
    tci_simt_gemm_slabs(&s);
    tci_simt_gemm_points points[2] = {tci_simt_gemm_points_of(b, &s.panels[0]),
                                      tci_simt_gemm_points_of(b, &s.panels[1])};
    points[1].in_pairs = points[1].n % TCI_PRODUCT_NEXT == 0;
    tci_simt_gemm_finish(b, points, tci_simt_gemm_sum, &s);
}

TCI_FN double tci_products_least_ns(const tci_query *a)
{
    tci_simt_gemm p = {0};
    bool tiles = tci_simt_gemm_plan(a->k, &a->machine, &p);
    double least = -1;
    for (int i = 0; tiles && i < TCI_PRODUCT_TILES; i++) {
        const tci_simt_gemm_tile *t = &tci_simt_gemm_tiles()[i];
        const int64_t n[] = {t->rows, t->columns, t->row_points, t->column_points};
        double cost = tci_simt_gemm_ns(a->k, &a->machine, n, &p);
        least = cost >= 0 && (least < 0 || cost < least) ? cost : least;
    }
    return least;
}
