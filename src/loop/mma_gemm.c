/* loop/mma_gemm.c - emits the mma.sync GEMM: shared-memory panels, accumulators in the registers of
 * warps.
 *
 * In: a kernel whose contraction has TCI_ORDER_MATRIX or TCI_ORDER_TF32, or has int8 operands, on a
 * GPU whose warps have tensor cores (kernel/match_mma_sync.h). Out: the statements for one
 * tile of the result.
 *
 * Design: as in loop/simt_gemm.c, the block evaluates the operands' own expressions K block by K
 * block into two shared panels, so windows, padding, transposes and cheap arithmetic cost no more
 * than the index of an element, and the next K block is loaded while one is multiplied. The inner
 * step differs: each warp has a part of the tile, takes 16 rows of 32 bytes (64 of f64) from a
 * panel as one operand of mma.sync, and adds products of 16 x 16 to accumulators in registers.
 * Panels hold the dtype of the instruction.
 *
 * A panel has the order of its operand's memory: [own][depth] if that is contiguous along K, else
 * [depth][own], which the loads (ldmatrix) transpose; for 8-bit and f64 operands they pair rows of
 * the operand's two halves, and the rows and columns of the accumulators are permuted accordingly.
 * Runs of 16 contiguous bytes at multiples of 16 bytes, possibly over several axes, under guards
 * that do not separate them, are copied whole; everything else is copied element by element.
 * Elements past the end of K are zeros; positions past the end of a side are computed from the last
 * ones inside, and not stored.
 *
 * Bank conflicts: a read takes 8 rows of 16 bytes at once, which is conflict-free if a row is an
 * odd number of 16 bytes long: 64 bytes of a slab and 16, or 64 to 256 of a side and 16. A 16-byte
 * store is executed by 8 threads at once, in two rows of a panel [own][depth], four apart, so that
 * loads touch few lines of memory, or in one row of the other order. f32 is transposed by reads of
 * 4 bytes, of 4 rows and 8 columns: rows of 8 words plus a multiple of 32 are conflict-free. f64
 * is read 16 bytes at once, of 2 contiguous rows of 64 bytes, or of every other one of 8 rows, 2
 * columns each.
 *
 * Floor, for a tile of 128 x 128 and a slab of 64 bytes in a block of four warps with 64 x 64
 * each, in half precision, on an SM with 1024 multiply-adds per cycle: 512 cycles of tensor cores;
 * 4 warps x 2 steps x 8 reads of 512 bytes and 16 KB of stores, 384 cycles of shared memory; 131
 * instructions per warp by ptxas 12.9 (64 mma, 16 ldmatrix, 16 moves, 35 of indices), 131 cycles
 * of issue, as there are four warps. Element by element the slab's 8192 elements take 12
 * instructions each, 770 cycles. */
#include "gpu_schedules.h"

#include <math.h>
#include <string.h>

#include "task_nest.h"
#include "simt_gemm.h"

enum {
    TCI_MMA_TILES = 8,
    TCI_MMA_SIDE = 16,      /* rows of a factor */
    TCI_MMA_STEP = 32,      /* bytes of the depth that a product takes, */
    TCI_MMA_SLAB = 64,      /* and that a slab has, and a product of f64 takes */
    TCI_MMA_SUMS = 1 << 17, /* bytes of an SM's accumulators, at most: half of its registers */
    TCI_MMA_WIDE = 8,       /* times that a product of f64 takes as long as others, */
    TCI_MMA_SHARED = 3,     /* and one of what a block's unit takes as that does */
    TCI_MMA_MOVE = 12,      /* instructions to move 16 bytes or an element */
    TCI_MMA_BUSY = 8,       /* warps that hide each other's waits; of f64 twice as many */
    TCI_MMA_RESIDENT = 256, /* threads that an SM should hold at once, at least */
    TCI_MMA_LINE = 128,     /* bytes of shared memory in a cycle */
    TCI_MMA_ROWS = 8        /* rows of a panel that threads take in turns */
};

typedef struct tci_mma_tile {
    int16_t rows, columns;
    int8_t row_warps, column_warps;
} tci_mma_tile;

typedef struct tci_mma {
    tci_simt_gemm p; /* its sides' extents, of a tile; threads and resident */
    tci_mma_sync_unit unit;
    int warps[2];  /* along the rows, along the columns */
    int bytes;     /* of an element in a panel */
    bool moves[2]; /* a side is moved 16 bytes at once */
} tci_mma;

/* ---- whether and how ---- */

static bool tci_mma_is_kernel(const tci_query *a, tci_mma *w)
{
    memset(w, 0, sizeof(*w));
    if (!tci_mma_sync_takes(a->k, &a->machine, &w->unit) ||
        !(w->unit.is_exact || tci_query_on_unit(a)) || !tci_simt_gemm_take_sides(a->k, &w->p)) {
        return false;
    }
    w->p.rows.inst = w->unit.insts[0];
    w->p.columns.inst = w->unit.insts[1];
    w->bytes = tci_dtype_get(w->unit.dtypes[0])->bytes;
    return true;
}

/* Bytes of the depth that a product takes. */
static int64_t tci_mma_step(const tci_mma *w)
{
    return w->bytes > 4 ? TCI_MMA_SLAB : TCI_MMA_STEP;
}

/* True if elements 2 i and 2 i + 1 of the side are the rows i and i + 8 of a fragment. */
static bool tci_mma_is_paired(const tci_mma *w, const tci_simt_gemm_side *side)
{
    return !side->along_depth && (w->bytes == 1 || w->bytes > 4);
}

/* True if groups of n neighbours along the contiguous axes, starting at multiples of n, are n
 * elements of memory at a multiple of n, all of them valid or none. */
static bool tci_mma_moves(const tci_kernel *k, const tci_simt_gemm_side *side, int64_t n)
{
    const tci_kinst *in = &k->insts[side->inst];
    const tci_kstage *stage = &k->stages[0];
    int n_axes = side->along_depth ? stage->n_axes : side->n_axes;
    const int *axes = side->along_depth ? stage->axes : side->axes;
    int64_t offset = 0, *coef = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes), run = 1;
    if (in->op != TCI_K_LOAD || in->value.u != 0 || !tci_kx_affine_known(k, in->x, coef, &offset)) {
        return false;
    }
    uint64_t within = 0; /* axes that follow each other in memory */
    for (int i = n_axes - 1; i >= 0 && coef[axes[i]] == run; i--) {
        within |= (uint64_t)1 << axes[i];
        run *= tci_kernel_known(k, axes[i]);
    }
    bool fits = offset % n == 0 && run % n == 0;
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && ((within >> a & 1) || coef[a] % n == 0);
    }
    for (int i = 0; i < in->n_guards; i++) {
        fits = fits && !(tci_kx_axes(k, k->guards[in->guard + i].x) & within);
    }
    return fits && within != 0;
}

static const tci_mma_tile *tci_mma_tiles(void)
{
    static const tci_mma_tile tiles[TCI_MMA_TILES] = {{128, 128, 2, 2}, {128, 128, 2, 4},
                                                      {128, 64, 4, 2},  {64, 128, 2, 4},
                                                      {64, 64, 2, 2},   {32, 128, 1, 4},
                                                      {128, 32, 4, 1},  {32, 64, 1, 2}};
    return tiles;
}

static void tci_mma_set_side(const tci_kernel *k, tci_mma *w, tci_simt_gemm_side *side, int f,
                             int64_t extent)
{
    side->extent = extent;
    side->points = (int)(extent / w->warps[f] / TCI_MMA_SIDE) * (f == 0 ? 2 : 4);
    w->moves[f] = tci_mma_moves(k, side, TCI_ALIGNED_BYTES / w->bytes);
}

/* Gives *w the tile; false: there is no such tile. */
static bool tci_mma_set_tile(const tci_query *a, const int64_t *n, tci_mma *w)
{
    const tci_mma_tile *tiles = tci_mma_tiles();
    for (int i = 0; i < TCI_MMA_TILES; i++) {
        if (tiles[i].rows == n[0] && tiles[i].columns == n[1] && tiles[i].row_warps == n[2] &&
            tiles[i].column_warps == n[3]) {
            w->warps[0] = tiles[i].row_warps;
            w->warps[1] = tiles[i].column_warps;
            w->p.threads = TCI_WARP * w->warps[0] * w->warps[1];
            w->p.resident = TCI_MAX(TCI_MMA_RESIDENT / w->p.threads, 2);
            tci_mma_set_side(a->k, w, &w->p.rows, 0, n[0]);
            tci_mma_set_side(a->k, w, &w->p.columns, 1, n[1]);
            return n[0] * n[1] * w->p.resident * tci_dtype_get(w->unit.sums)->bytes <= TCI_MMA_SUMS;
        }
    }
    return false;
}

static bool tci_mma_fits(const tci_query *a, const int64_t *n)
{
    tci_mma w;
    return tci_mma_is_kernel(a, &w) && tci_mma_set_tile(a, n, &w);
}

static int tci_mma_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    const tci_mma_tile *tiles = tci_mma_tiles();
    (void)a;
    for (int i = 0; i < TCI_MMA_TILES; i++) {
        const int64_t numbers[] = {tiles[i].rows, tiles[i].columns, tiles[i].row_warps,
                                   tiles[i].column_warps};
        memcpy(n[i], numbers, sizeof(numbers));
    }
    return TCI_MMA_TILES;
}

/* Instructions of a warp for a slab: what moves, and what multiplies. */
static double tci_mma_moved(const tci_mma *w, const tci_simt_gemm_side *side, int f)
{
    double elements = (double)side->extent * TCI_MMA_SLAB / w->bytes;
    double pieces = w->moves[f] ? elements * w->bytes / TCI_ALIGNED_BYTES : elements;
    return pieces / w->p.threads * TCI_MMA_MOVE;
}

/* Cycles of the busiest SM for a slab: the slowest of its unit, shared memory and issuing,
 * and more where few warps hide each other's waits. */
static double tci_mma_cycles(const tci_query *a, const tci_mma *w)
{
    const tci_kernel *k = a->k;
    double points = 1;
    for (int i = 0; i < k->n_outer; i++) {
        points *= tci_simt_gemm_has(&w->p, i) ? 1 : (double)tci_kernel_known(k, i);
    }
    const tci_simt_gemm_side *rows = &w->p.rows, *columns = &w->p.columns;
    double tiles = points * (double)tci_ceil_div(rows->size, rows->extent) *
                   (double)tci_ceil_div(columns->size, columns->extent);
    double rounds = ceil(tiles / a->machine.facts.processors), warps = w->p.threads / TCI_WARP;
    double steps = TCI_MMA_SLAB / (double)tci_mma_step(w);
    double row_takes = (double)rows->extent / w->warps[0] / TCI_MMA_SIDE;
    double column_takes = (double)columns->extent / w->warps[1] / TCI_MMA_SIDE;
    double takes = warps * steps * (row_takes + column_takes);
    double products = warps * steps * row_takes * column_takes;
    /* of 16 x 16 x 16 halves, or of as many bytes of others, which take as long */
    double unit = products * 2 * 16 * 16 * 16 / a->machine.facts.matrix_flops;
    unit *= w->bytes > 4 ? TCI_MMA_WIDE : 1;
    double stored = (double)(rows->extent + columns->extent) * TCI_MMA_SLAB;
    double taken = takes * TCI_MMA_SIDE * (double)tci_mma_step(w);
    double shared = (taken + stored) / TCI_MMA_LINE;
    double moved = tci_mma_moved(w, rows, 0) + tci_mma_moved(w, columns, 1);
    double issued = (2 * products + takes + warps * moved) / 4;
    double busy = TCI_MIN(rounds, w->p.resident) * warps;
    double needed = w->bytes > 4 ? 2 * TCI_MMA_BUSY : TCI_MMA_BUSY;
    double hidden = busy >= needed ? 1 : 0.5 + 0.5 * busy / needed;
    return rounds * TCI_MAX(unit, TCI_MAX(shared, issued)) / hidden;
}

static double tci_mma_cost(const tci_query *a, const int64_t *n)
{
    tci_mma w;
    tci_mma_is_kernel(a, &w);
    tci_mma_set_tile(a, n, &w);
    double slabs = (double)tci_ceil_div(w.p.depth * w.bytes, TCI_MMA_SLAB);
    double ns = tci_mma_cycles(a, &w) * slabs / a->machine.facts.ghz;
    ns *= a->machine.matrix_units > 0 && tci_query_on_unit(a) ? TCI_MMA_SHARED : 1;
    return TCI_MAX(ns, tci_query_memory_ns(a)) + 0.01 * ns;
}

/* ---- the state of one tile ---- */

/* One factor: its panel, and what waits for its turn. */
typedef struct tci_mma_panel {
    const tci_simt_gemm_side *side;
    bool moves;
    tci_lin base;      /* of the tile along the axis */
    tci_lin depth, at; /* this thread's first piece: in the slab, and along the axis */
    int64_t step;      /* to its next piece, along whichever of the two moves */
    int n;             /* pieces of a thread */
    int local;         /* panel */
    int64_t pitch;     /* elements between its lines, and all of one half */
    int64_t half;
    int *waiting; /* n mutable values */
    tci_lin take; /* where the warp's part begins along the axis */
    int n_takes;  /* factors in it */
} tci_mma_panel;

typedef struct tci_mma_state {
    tci_build *b;
    const tci_mma *w;
    tci_mma_panel panels[2]; /* rows, columns */
    int *acc;                /* take of the rows * takes of the columns + take of these */
} tci_mma_state;

static int64_t tci_mma_slab(const tci_mma *w)
{
    return TCI_MMA_SLAB / w->bytes;
}

/* Bytes between the lines of a panel. */
static int64_t tci_mma_gap(const tci_mma *w, const tci_simt_gemm_side *side)
{
    int64_t turned = w->bytes == 4 ? 2 * TCI_ALIGNED_BYTES : TCI_ALIGNED_BYTES;
    return !side->along_depth ? turned : w->bytes > 4 ? 0 : TCI_ALIGNED_BYTES;
}

/* Pieces of a thread: this many across a line of the panel; moved along the depth, those that are
 * stored at once are all of two lines, four apart. */
static void tci_mma_place(tci_build *b, const tci_mma *w, tci_mma_panel *panel)
{
    bool along = panel->side->along_depth;
    int64_t piece = panel->moves ? TCI_ALIGNED_BYTES / w->bytes : 1;
    int64_t line = along ? tci_mma_slab(w) : panel->side->extent, across = line / piece;
    tci_lin low, high;
    low = tci_simt_gemm_thread(b, TCI_LX_MOD, across);
    high = tci_simt_gemm_thread(b, TCI_LX_DIV, across);
    if (along && panel->moves && w->bytes <= 4) {
        tci_lin far = tci_simt_gemm_digit(b, across, 2),
                near = tci_simt_gemm_digit(b, 2 * across, 4);
        high = tci_simt_gemm_thread(b, TCI_LX_DIV, TCI_MMA_ROWS * across);
        high = tci_lin_add(b, tci_lin_mul(b, high, TCI_MMA_ROWS), near);
        high = tci_lin_add(b, high, tci_lin_mul(b, far, TCI_MMA_ROWS / 2));
    }
    low = tci_lin_mul(b, low, piece);
    panel->depth = along ? low : high;
    panel->at = along ? high : low;
    panel->step = w->p.threads / across;
    panel->n = (int)(panel->side->extent * tci_mma_slab(w) / piece / w->p.threads);
}

static void tci_mma_open_panel(tci_build *b, const tci_mma *w, int f, tci_lin tile,
                               tci_mma_panel *panel)
{
    const tci_simt_gemm_side *side = f == 0 ? &w->p.rows : &w->p.columns;
    int64_t slab = tci_mma_slab(w), part = side->extent / w->warps[f];
    panel->side = side;
    panel->moves = w->moves[f];
    panel->base = tci_lin_mul(b, tile, side->extent);
    tci_mma_place(b, w, panel);
    panel->pitch = (side->along_depth ? slab : side->extent) + tci_mma_gap(w, side) / w->bytes;
    panel->half = panel->pitch * (side->along_depth ? side->extent : slab);
    panel->local = tci_build_local(b, w->unit.dtypes[f], 2 * panel->half, b->cur);
    panel->waiting = TCI_NEW_ARRAY(b->s, int, panel->n);
    tci_lin warp = f == 0 ? tci_simt_gemm_thread(b, TCI_LX_DIV, TCI_WARP * w->warps[1])
                          : tci_simt_gemm_digit(b, TCI_WARP, w->warps[1]);
    panel->take = tci_lin_mul(b, warp, part);
    panel->n_takes = (int)(part / TCI_MMA_SIDE);
}

static tci_lstmt tci_mma_stmt(tci_mem mem, int base, int x)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)mem;
    st.base = base;
    st.x = x;
    return st;
}

/* TCI_UNIT_WORDS of each thread. */
static int tci_mma_words(tci_build *b, tci_lstmt st, tc_dtype t)
{
    return tci_build_mem(b, st, t, TCI_UNIT_WORDS * b->l->threads, b->cur);
}

/* ---- slabs ---- */

static int tci_mma_and(tci_build *b, int x, int y)
{
    int args[2] = {x, y};
    return x < 0 ? y : tci_build_prim(b, TCI_P_AND, TC_BOOL, 2, args, 0);
}

/* Whether a load's guards hold at the current bindings, and `also` (-1: true); -1: always. */
static int tci_mma_guards(tci_build *b, const tci_kinst *in, int also)
{
    for (int i = 0; i < in->n_guards; i++) {
        const tci_kguard *g = &b->k->guards[in->guard + i];
        tci_dim lo, hi;
        tci_build_range(b, g->x, &lo, &hi);
        if (!tci_dim_le(g->lo, lo) || !tci_dim_le(hi, g->hi)) {
            int x = tci_build_lx(b, tci_build_kx(b, g->x));
            also = tci_mma_and(b, also, tci_build_in_range(b, x, g->lo, g->hi));
        }
    }
    return also;
}

/* The piece at the current bindings; zeros where `there` (-1: true) does not hold. */
static int tci_mma_piece(tci_build *b, const tci_mma_panel *panel, int there)
{
    int inst = panel->side->inst;
    const tci_kinst *in = &b->k->insts[inst];
    if (panel->moves) {
        int x = tci_build_lx(b, tci_build_kx(b, in->x));
        int condition = tci_mma_guards(b, in, there);
        tci_lstmt st = tci_mma_stmt(condition < 0 ? TCI_MEM_WORDS : TCI_MEM_WORDS_IF,
                                    tci_kinst_number(in), x);
        st.args[0] = condition;
        return tci_mma_words(b, st, TC_U32);
    }
    tc_dtype held = (tc_dtype)b->l->locals[panel->local].dtype;
    tc_dtype t = tci_dtype_is_byte(held) ? held : (tc_dtype)in->dtype;
    int value = tci_build_value(b, inst);
    value = t == (tc_dtype)in->dtype ? value : tci_build_prim(b, TCI_P_CAST, t, 1, &value, 0);
    tci_value zero = {.u = 0};
    int args[3] = {there, value, tci_build_const(b, t, zero)};
    return there < 0 ? value : tci_build_prim(b, TCI_P_SELECT, t, 3, args, 0);
}

/* An axis at the last piece inside, at most. */
static tci_lin tci_mma_inside(tci_build *b, const tci_mma *w, const tci_mma_panel *panel, tci_lin x,
                              int64_t size, bool runs)
{
    int64_t piece = panel->moves && runs ? TCI_ALIGNED_BYTES / w->bytes : 1;
    return tci_simt_gemm_inside(b, x, size - piece + 1);
}

/* Evaluates this thread's pieces of the slab from `from` on; first: the values are made. */
static void tci_mma_load(tci_mma_state *s, tci_mma_panel *panel, tci_lin from, bool first)
{
    tci_build *b = s->b;
    const tci_simt_gemm_side *side = panel->side;
    tci_simt_gemm_walk walk = tci_simt_gemm_walk_of(b, side);
    int64_t size = s->w->p.depth;
    bool cut = side->size % side->extent != 0, tail = size % tci_mma_slab(s->w) != 0;
    for (int i = 0; i < panel->n; i++) {
        int64_t skip = i * panel->step;
        tci_lin depth = tci_lin_plus(tci_lin_add(b, from, panel->depth),
                                     side->along_depth ? 0 : skip);
        tci_lin at = tci_lin_plus(tci_lin_add(b, panel->base, panel->at),
                                  side->along_depth ? skip : 0);
        int there = tail ? tci_build_inside(b, depth, size) : -1;
        depth = tail ? tci_mma_inside(b, s->w, panel, depth, size, side->along_depth) : depth;
        at = cut ? tci_mma_inside(b, s->w, panel, at, side->size, !side->along_depth) : at;
        tci_simt_gemm_bind(b, &walk, depth, at);
        tci_simt_gemm_wait(b, &panel->waiting[i], tci_mma_piece(b, panel, there), first);
    }
    tci_simt_gemm_unbind(b, &walk);
}

static void tci_mma_load_both(tci_mma_state *s, tci_lin from, bool first)
{
    tci_mma_load(s, &s->panels[0], from, first);
    tci_mma_load(s, &s->panels[1], from, first);
}

/* The waiting registers become the panels number `half`. */
static void tci_mma_publish(tci_mma_state *s, tci_lin half)
{
    tci_build *b = s->b;
    for (int f = 0; f < 2; f++) {
        const tci_mma_panel *panel = &s->panels[f];
        bool along = panel->side->along_depth;
        tci_lin line = along ? panel->at : panel->depth, in_line = along ? panel->depth : panel->at;
        tci_lin first = tci_lin_add(b, tci_lin_mul(b, line, panel->pitch), in_line);
        first = tci_lin_add(b, first, tci_lin_mul(b, half, panel->half));
        for (int i = 0; i < panel->n; i++) {
            int x = tci_build_lx(b, tci_lin_plus(first, i * panel->step * panel->pitch));
            tci_lstmt st = tci_mma_stmt(panel->moves ? TCI_MEM_STORE_WORDS : TCI_MEM_STORE_UNIT,
                                        ~panel->local, x);
            st.args[0] = panel->waiting[i];
            tci_build_mem(b, st, TC_F32, 1, b->cur);
        }
    }
    tci_simt_gemm_barrier(b);
}

static tc_dtype tci_mma_factor(tc_dtype t)
{
    return t == TC_F64 ? TC_F64 : t == TC_I8 ? TC_I32 : TC_U32;
}

/* The warp's factors of a side, from a position of the panel along the depth. */
static void tci_mma_take(tci_mma_state *s, int f, tci_lin half, tci_lin depth, int *factors)
{
    tci_build *b = s->b;
    const tci_mma_panel *panel = &s->panels[f];
    static const tci_mem takes[2][2] = {{TCI_MEM_UNIT_ROWS_TURNED, TCI_MEM_UNIT_ROWS},
                                        {TCI_MEM_UNIT_COLUMNS_TURNED, TCI_MEM_UNIT_COLUMNS}};
    bool along = panel->side->along_depth;
    tci_lin first = tci_lin_mul(b, half, panel->half);
    first = tci_lin_add(b, first, tci_lin_mul(b, panel->take, along ? panel->pitch : 1));
    first = tci_lin_add(b, first, tci_lin_mul(b, depth, along ? 1 : panel->pitch));
    for (int i = 0; i < panel->n_takes; i++) {
        int64_t skip = (int64_t)i * TCI_MMA_SIDE * (along ? panel->pitch : 1);
        tci_lstmt st = tci_mma_stmt(takes[f][along], ~panel->local,
                                    tci_build_lx(b, tci_lin_plus(first, skip)));
        st.imm = panel->pitch;
        factors[i] = tci_mma_words(b, st, tci_mma_factor(s->w->unit.dtypes[f]));
    }
}

/* The panels number `half`. */
static void tci_mma_multiply(tci_mma_state *s, tci_lin half)
{
    tci_build *b = s->b;
    int n_rows = s->panels[0].n_takes, n_columns = s->panels[1].n_takes;
    int *rows = TCI_NEW_ARRAY(b->s, int, n_rows), *columns = TCI_NEW_ARRAY(b->s, int, n_columns);
    int64_t step = tci_mma_step(s->w) / s->w->bytes;
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, tci_mma_slab(s->w)), step,
                          &open);
    open.st.unroll = (int)(TCI_MMA_SLAB / tci_mma_step(s->w));
    b->l->indices[i].multiple = step;
    tci_mma_take(s, 0, half, tci_lin_var(b, i), rows);
    tci_mma_take(s, 1, half, tci_lin_var(b, i), columns);
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < n_columns; c++) {
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_UNIT_DOT;
            st.args[0] = s->acc[r * n_columns + c];
            st.args[1] = rows[r];
            st.args[2] = columns[c];
            st.imm = (int64_t)(s->w->bytes == 1 ? TC_I8 : s->w->unit.dtypes[0]);
            tci_build_assign(b, st.args[0],
                             tci_build_mem(b, st, s->w->unit.sums, TCI_UNIT_SUMS * b->l->threads,
                                           b->cur));
        }
    }
    tci_build_close(b, &open);
}

static void tci_mma_slabs(tci_mma_state *s)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t slab = tci_mma_slab(s->w), n = tci_ceil_div(s->w->p.depth, slab) - 1;
    tci_lopen open;
    tci_mma_load_both(s, tci_lin_const(0), true);
    tci_mma_publish(s, tci_lin_const(0));
    int i = tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, n), 1, &open);
    tci_lin half = tci_build_let(b, tci_lx_make(l, TCI_LX_MOD, tci_lx_var(l, i), -1, 2));
    tci_lin after = tci_lin_plus(tci_lin_var(b, i), 1);
    tci_mma_load_both(s, tci_lin_mul(b, after, slab), false);
    tci_mma_multiply(s, half);
    tci_mma_publish(s, tci_lin_plus(tci_lin_mul(b, half, -1), 1));
    tci_build_close(b, &open);
    tci_mma_multiply(s, tci_lin_const(n % 2));
}

/* ---- the result ---- */

/* Of a thread's part of 16 x 16 accumulators: two rows, and two columns that are neighbours in each
 * half of them, after row lane / 4 and column 2 (lane % 4), lane its number in the warp. Where a
 * side is in pairs the halves are what is even and what is odd. */
static tci_simt_gemm_points tci_mma_points(tci_build *b, const tci_mma *w,
                                           const tci_mma_panel *panel, int f)
{
    int n = panel->side->points, each = n / panel->n_takes;
    bool paired = tci_mma_is_paired(w, panel->side);
    int64_t *skip = TCI_NEW_ARRAY(b->s, int64_t, n);
    for (int i = 0; i < n; i++) {
        int within = i % each;
        int apart = f == 0 ? 8 * within : within / 2 * 8 + within % 2;
        skip[i] = (int64_t)(i / each) * TCI_MMA_SIDE + (paired ? within : apart);
    }
    tci_lin lane = f == 0 ? tci_simt_gemm_digit(b, 4, TCI_WARP / 4)
                          : tci_simt_gemm_thread(b, TCI_LX_MOD, 4);
    lane = tci_lin_mul(b, lane, (f == 0 ? 1 : 2) * (paired ? 2 : 1));
    tci_lin first = tci_lin_add(b, tci_lin_add(b, panel->base, panel->take), lane);
    return (tci_simt_gemm_points){panel->side, first, n, skip, f == 1};
}

static tci_stage_tuple tci_mma_sum(tci_build *b, void *arg, int row, int column)
{
    const tci_mma_state *s = arg;
    tc_dtype sums = s->w->unit.sums, t = (tc_dtype)b->k->reds[0].dtype;
    int high = column % 4 / 2, low = column % 2;
    bool paired = tci_mma_is_paired(s->w, s->panels[1].side);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_UNIT_SUM;
    st.args[0] = s->acc[row / 2 * s->panels[1].n_takes + column / 4];
    st.imm = row % 2 * 2 + (paired ? low * 4 + high : high * 4 + low);
    int value = tci_build_mem(b, st, sums, 1, b->cur);
    return tci_stage_tuple_of(t == sums ? value : tci_build_prim(b, TCI_P_CAST, t, 1, &value, 0),
                              -1);
}

static void tci_mma_tile_body(tci_build *b, const tci_mma *w, tci_lin row, tci_lin column)
{
    tci_mma_state s = {b, w, {{0}}, NULL};
    b->stage = 0;
    tci_mma_open_panel(b, w, 0, row, &s.panels[0]);
    tci_mma_open_panel(b, w, 1, column, &s.panels[1]);
    int n = s.panels[0].n_takes * s.panels[1].n_takes;
    s.acc = TCI_NEW_ARRAY(b->s, int, n);
    for (int i = 0; i < n; i++) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_UNIT_ZERO;
        int zero = tci_build_mem(b, st, w->unit.sums, TCI_UNIT_SUMS * b->l->threads, b->cur);
        s.acc[i] = tci_build_mutable(b, zero);
    }
    tci_mma_slabs(&s);
    const tci_simt_gemm_points points[2] = {tci_mma_points(b, w, &s.panels[0], 0),
                                            tci_mma_points(b, w, &s.panels[1], 1)};
    tci_simt_gemm_finish(b, points, tci_mma_sum, &s);
}

/* ---- the form ---- */

static void tci_mma_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_mma_tile_body(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_mma_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_mma w;
    tci_mma_is_kernel(a, &w);
    tci_mma_set_tile(a, n, &w);
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    for (int i = 0; i < a->k->n_outer; i++) {
        tiled[i] = tci_simt_gemm_has(&w.p, i);
    }
    b->l->lanes = 1;
    b->l->threads = w.p.threads;
    b->l->resident = w.p.resident;
    nest.tiled = tiled;
    nest.n_vec = w.p.columns.size;
    nest.chunk = w.p.columns.extent;
    nest.n_tiles = tci_dim_ceil_div(w.p.rows.size, w.p.rows.extent);
    tci_nest_run(&nest, tci_mma_body, &w, launch);
}

static void tci_mma_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    tci_mma w;
    tci_mma_is_kernel(a, &w);
    tci_mma_set_tile(a, n, &w);
    const tc_dtype *t = w.unit.dtypes;
    const char *names[2] = {tci_dtype_get(t[0])->name, tci_dtype_get(t[1])->name};
    tci_str_printf(out, ", matrix unit of each warp, %s%s%s, tiles %dx%d by %d threads",
                   t[0] == TC_F32 ? "tf32" : names[0], t[0] == t[1] ? "" : " and ",
                   t[0] == t[1] ? "" : names[1], (int)n[0], (int)n[1], b->l->threads);
}

TCI_FN const tci_form *const *tci_mma_forms(void)
{
    static const tci_form warps = {"warps",      {"rows", "columns", "row_warps", "column_warps"},
                                   tci_mma_fits, tci_mma_candidates,
                                   tci_mma_cost, tci_mma_emit,
                                   tci_mma_note};
    static const tci_form *const forms[] = {&warps, NULL};
    return forms;
}
