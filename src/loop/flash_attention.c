/* loop/flash_attention.c - schedules fused attention and its gradients on GPUs, on tensor cores or
 * on SIMT threads: tiles, pipeline stages, cost, slots.
 *
 * In: a kernel that kernel/match_attention.c matches, of class STEPS, with MATRIX on tensor cores;
 * the machine. Out: a kernel template (loop/flash_attention.h) with its slots as loop IR. All
 * chains take the same way; the numbers in which online chains and gradients differ are a row each
 * of tci_attention_pipelines. */
#include "flash_attention.h"

#include <string.h>

#include "emit_stages.h"

enum {
    TCI_ATTENTION_ALIGNED = 1024, /* bytes: the start of a box */
    TCI_ATTENTION_SLOTS = 2,      /* of rows, if those of the next tile fit too */
    TCI_ATTENTION_RINGS = 2,      /* steps that are there at once, at least, */
    TCI_ATTENTION_MOST_RINGS = 4, /* and at most */
    TCI_ATTENTION_TURN = 1000,    /* cycles of waiting until the other consumer has left its sums */
    TCI_ATTENTION_PAIRS = 16,     /* weights, or changes, that a processor makes in a cycle */
    TCI_FLASH_HELD = 192,         /* registers of a thread for sums and pairs */
    TCI_FLASH_FILL = 4000,        /* cycles to a tile's first pairs, and to leave its sums */
    TCI_FLASH_MEET = 600,         /* cycles of a step for barriers and for what is loaded */
    TCI_FLASH_PRODUCTS = 128,     /* that a processor makes in a cycle */
    TCI_FLASH_LIGHT = 128,        /* registers for sums up to which everything else fits */
    TCI_FLASH_BLOCKS = 4,         /* that a processor has at once, at most */
    TCI_FLASH_OWN = 1024,         /* other bytes of shared memory of a block */
    TCI_FLASH_OTHERS = 64,        /* registers of a thread for all else */
    TCI_FLASH_WIDTH = 4           /* elements of a row that only first products read: a multiple */
};

/* Numbers of a chain on tensor cores. */
typedef struct tci_attention_pipeline {
    int32_t step;       /* rows of a step are a multiple of this */
    int32_t barriers;   /* bytes for them, and for words between warps */
    int32_t held;       /* registers of a thread for sums, scores and exponentials */
    int32_t fill, meet; /* cycles to a tile's first scores and to leave its sums; of a step, for
                         * barriers and to scale the sums */
    bool spare;         /* next rows are loaded early only if a third step fits too */
    bool leaves_apart;  /* consumers may leave their sums one after the other */
    int32_t n_tiles;
    int64_t tiles[TCI_FORM_CANDIDATES][3];
} tci_attention_pipeline;

/* Of gradients the fewer rows a step has, the more a product waits for its operands. */
static const tci_attention_pipeline tci_attention_pipelines[2] = {
    {16,
     256,
     200,
     4000,
     200,
     true,
     true,
     8,
     {{2, 128}, {2, 64}, {2, 48}, {2, 32}, {1, 128}, {1, 64}, {1, 48}, {1, 32}}},
    {64,
     512,
     176,
     3000,
     300,
     false,
     false,
     6, /* online */
     {{2, 128}, {2, 64}, {2, 128, 1}, {2, 64, 1}, {1, 128}, {1, 64}}}};

static const int64_t tci_flash_tiles[][2] = {{64, 64}, {64, 32}, {32, 64}, {32, 32}, {32, 16}};

static const tci_attention_pipeline *tci_attention_pipeline_of(const tci_attention *x)
{
    return &tci_attention_pipelines[x->is_online];
}

/* ---- shared memory ---- */

TCI_FN int64_t tci_attention_step_bytes(const tci_attention *x, int i)
{
    return (int64_t)x->in[0].columns * tci_attention_slabs(x->in[i].k) * TCI_MATRIX_DEPTH_STEP * 2;
}

TCI_FN int64_t tci_attention_rows_bytes(const tci_attention *x)
{
    int slabs = tci_attention_slabs(x->in[0].k);
    slabs += x->n_in > 1 ? tci_attention_slabs(x->in[1].k) : 0;
    return (int64_t)x->in[0].rows * slabs * TCI_MATRIX_DEPTH_STEP * 2;
}

TCI_FN int64_t tci_attention_values_bytes(const tci_attention *x)
{
    return x->by_step ? (int64_t)x->in[0].columns * x->n_values * 4 : 0;
}

/* By threads the sums reuse the memory of the operands. */
TCI_FN int64_t tci_attention_staged_bytes(const tci_attention *x)
{
    int64_t most = 0;
    for (int i = 0; i < x->n_out; i++) {
        const tci_matrix *o = &x->out[i];
        int64_t bytes = x->threads ? (int64_t)o->rows * o->staged_pitch * 4
                                   : tci_matrix_staged_bytes(o);
        most = TCI_MAX(most, bytes);
    }
    return most;
}

/* Of a step in the ring. */
static int64_t tci_attention_ring_bytes(const tci_attention *x)
{
    return tci_attention_step_bytes(x, 0) + tci_attention_step_bytes(x, 1) +
           tci_attention_values_bytes(x);
}

TCI_FN int tci_attention_pitch(int64_t size)
{
    return (int)((size + 3) / 4 * 4) + TCI_FLASH_PAD;
}

TCI_FN int64_t tci_attention_width(const tci_attention *x, int i)
{
    int64_t k = x->in[i].k;
    return x->is_online && i == 0 ? (k + TCI_FLASH_WIDTH - 1) / TCI_FLASH_WIDTH * TCI_FLASH_WIDTH
                                  : tci_attention_columns_of(k);
}

static int64_t tci_attention_threads_bytes(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int64_t floats = (int64_t)s->rows * tci_attention_pitch(s->columns);
    for (int i = 0; i < 2; i++) {
        int64_t rows = s->columns + (i < x->n_in ? s->rows : 0);
        floats += rows * tci_attention_pitch(tci_attention_width(x, i));
    }
    int64_t words = x->is_online ? TCI_FLASH_GROUPS : 0; /* between half warps */
    return TCI_MAX(4 * floats, tci_attention_staged_bytes(x)) + 4 * words;
}

TCI_FN int64_t tci_attention_shared_bytes(const tci_attention *x)
{
    return x->threads ? tci_attention_threads_bytes(x)
                      : TCI_ATTENTION_ALIGNED + x->slots * tci_attention_rows_bytes(x) +
                            x->rings * tci_attention_ring_bytes(x) + tci_attention_staged_bytes(x) +
                            tci_attention_pipeline_of(x)->barriers;
}

/* ---- the tile ---- */

TCI_FN int tci_attention_tiles(const tci_kernel *k, bool by_threads,
                               int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    tci_attention x;
    if (!tci_attention_find(k, &x)) {
        return 0;
    }
    const tci_attention_pipeline *p = tci_attention_pipeline_of(&x);
    int count = by_threads ? TCI_COUNT(tci_flash_tiles) : p->n_tiles;
    for (int i = 0; i < count; i++) {
        const int64_t *tile = by_threads ? tci_flash_tiles[i] : p->tiles[i];
        memcpy(n[i], tile, sizeof(*tile) * (by_threads ? 2 : 3));
    }
    return count;
}

/* True if the template supports these numbers, which may come from a file. */
static bool tci_attention_is_tile(const tci_attention *x, bool by_threads, const int64_t *tile)
{
    int step = tci_attention_pipeline_of(x)->step;
    if (by_threads) {
        return (tile[0] == 32 || tile[0] == 64) &&
               (tile[1] == 16 || tile[1] == 32 || tile[1] == 64);
    }
    return x->on_unit && (tile[0] == 1 || tile[0] == 2) && tile[1] >= step && tile[1] <= 128 &&
           tile[1] % step == 0 && (tile[2] == 0 || (tile[2] == 1 && tile[0] == 2 && x->is_online));
}

static void tci_attention_shape(tci_matrix *x, bool by_threads, const int64_t *tile)
{
    if (!by_threads) {
        x->consumers = x->buffers = (int32_t)tile[0];
        x->sub_rows = 1;
    }
    x->rows = (int32_t)tile[0] * (by_threads ? 1 : TCI_MATRIX_SUB);
    x->columns = (int32_t)tile[1];
    x->tiles_m = tci_dim_known(tci_dim_ceil_div(x->m, x->rows));
    x->tiles_n = 1;
    x->tiles = x->tiles_m;
    for (int i = 0; i < x->n_batch; i++) {
        x->tiles *= x->batch[i];
    }
}

/* By threads sums are left as f32, whatever rounds them. */
static void tci_attention_leave(const tci_kernel *k, tci_matrix *x)
{
    const tci_kinst *in = &k->insts[x->value];
    x->value = in->op == TCI_K_RED ? x->value : in->args[0];
    x->staged = TC_F32;
}

/* The last stage that reduces. */
static int tci_attention_last_stage(const tci_kernel *k)
{
    int stage = 0;
    for (int r = 0; r < k->n_reds; r++) {
        stage = TCI_MAX(stage, k->reds[r].stage);
    }
    return stage;
}

/* The columns of results; a row of each is spread over as many threads. */
static void tci_attention_columns(const tci_kernel *k, tci_attention *x)
{
    int lanes = TCI_MATRIX_WARP;
    for (int i = 0; i < x->n_out; i++) {
        tci_matrix *o = &x->out[i];
        o->columns = (int32_t)tci_attention_columns_of(o->n);
        o->own_columns = (int32_t)o->n;
        o->chunks = 1;
        while (lanes < o->columns) {
            lanes *= 2;
        }
    }
    for (int i = 0; i < x->n_out; i++) {
        tci_matrix *o = &x->out[i];
        o->lanes = lanes;
        o->row_threads = TCI_MIN(lanes / 4, TCI_MATRIX_WARP);
        o->staged_pitch = lanes + 8; /* rows begin in different banks */
        /* the epilogues of gradients are casts and factors: as many rows as there can be */
        tci_matrix_set_groups(k, x->is_online ? tci_attention_last_stage(k) + 1 : k->n_stages, o);
    }
}

static int tci_attention_sum_columns(const tci_attention *x)
{
    int columns = 0;
    for (int i = 0; i < x->n_out; i++) {
        columns += x->out[i].columns;
    }
    return columns;
}

/* Registers of a thread. */
static int64_t tci_attention_held(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int sums = tci_attention_sum_columns(x);
    return x->threads ? (int64_t)s->rows / TCI_FLASH_GROUPS * (x->n_in * s->columns + sums) /
                            TCI_FLASH_LANES
                      : s->columns / 2 * x->n_in + s->columns / 4 * x->n_out + sums / 2;
}

/* Bytes of shared memory that are left, where this many consumers leave their sums at once. */
static int64_t tci_attention_room(const tci_machine *machine, tci_attention *x, int buffers)
{
    for (int i = 0; i < x->n_out; i++) {
        x->out[i].buffers = buffers;
    }
    return machine->facts.shared_most - tci_attention_shared_bytes(x);
}

/* Sets the pipeline stages on tensor cores; false: the tile does not fit. */
static bool tci_attention_pipes(const tci_machine *machine, bool turns, tci_attention *x)
{
    const tci_attention_pipeline *p = tci_attention_pipeline_of(x);
    x->rings = TCI_ATTENTION_RINGS;
    x->slots = 1;
    x->turns = turns;
    int64_t step = tci_attention_ring_bytes(x), rows = tci_attention_rows_bytes(x);
    int64_t room = tci_attention_room(machine, x, x->in[0].consumers);
    room = room < 0 && p->leaves_apart ? tci_attention_room(machine, x, 1) : room;
    if (room < 0 || tci_attention_held(x) > p->held) {
        return false;
    }
    if (room >= rows + (p->spare ? step : 0)) {
        room -= rows;
        x->slots = TCI_ATTENTION_SLOTS;
    }
    x->rings = (int32_t)TCI_MIN(x->rings + room / step, TCI_ATTENTION_MOST_RINGS);
    return true;
}

/* Sets the blocks by threads that a processor holds at once; false: the tile does not fit. */
static bool tci_attention_packs(const tci_machine *machine, tci_attention *x)
{
    int64_t bytes = tci_attention_shared_bytes(x), held = tci_attention_held(x);
    int64_t fit = machine->facts.shared_most / (bytes + TCI_FLASH_OWN);
    x->blocks = (int32_t)TCI_MIN(TCI_MAX(TCI_MIN(fit, 512 / (held + TCI_FLASH_OTHERS)), 1),
                                 TCI_FLASH_BLOCKS);
    return bytes <= machine->facts.shared_most && held <= TCI_FLASH_HELD;
}

/* The kernel with that tile; false: it does not fit. */
static bool tci_attention_with(const tci_kernel *k, const tci_machine *machine, bool by_threads,
                               const int64_t *tile, tci_attention *x)
{
    if (!tci_attention_find(k, x) || !tci_attention_is_tile(x, by_threads, tile)) {
        return false;
    }
    x->threads = by_threads ? TCI_FLASH_THREADS : 0;
    for (int i = 0; i < 2; i++) {
        tci_attention_shape(&x->in[i], by_threads, tile);
        tci_attention_shape(&x->out[i], by_threads, tile);
    }
    for (int i = 0; i < x->n_out && by_threads; i++) {
        tci_attention_leave(k, &x->out[i]);
    }
    tci_attention_columns(k, x);
    return by_threads ? tci_attention_packs(machine, x)
                      : tci_attention_pipes(machine, tile[2] != 0, x);
}

/* ---- the cost ---- */

/* Of two consumers one multiplies while the other computes exponentials; turns keep them so, but
 * cost more than they give if all products are short. */
static double tci_attention_unit_cycles(const tci_attention *x, const tci_machine *machine)
{
    const tci_attention_pipeline *p = tci_attention_pipeline_of(x);
    const tci_matrix *s = &x->in[0];
    double cells = (double)s->rows * s->columns, depth = 0;
    for (int i = 0; i < 2; i++) {
        depth += i < x->n_in ? (double)x->in[i].k : 0;
        depth += i >= x->n_out ? 0 : x->is_online ? (double)x->out[i].n : x->out[i].columns;
    }
    double multiply = 2 * cells * depth / machine->facts.matrix_flops;
    double pairs = x->n_in * cells / TCI_ATTENTION_PAIRS;
    bool is_short = s->k + x->in[1].k <= 2 * TCI_MATRIX_DEPTH_STEP && !x->cut.is_cut;
    double bare = !x->turns ? 0.2 : is_short ? 0.22 : 0.15; /* of both */
    double both = s->consumers == 1 ? multiply + pairs
                                    : TCI_MAX(multiply, pairs) + bare * (multiply + pairs);
    double rounds = (double)tci_dim_known(tci_dim_ceil_div(s->tiles, machine->matrix_units));
    double fill = p->fill + (tci_attention_leaves_in_turns(x) ? TCI_ATTENTION_TURN : 0);
    return rounds * (fill + tci_attention_steps(x) * (p->meet + both));
}

/* Cost of a product by threads with its loads, relative to 1 without them: 16 bytes for each row,
 * which half a warp shares, and twice as long for each step. Many sums leave too few registers. */
static double tci_attention_product(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int64_t held = tci_attention_held(x);
    double rows = (double)s->rows / TCI_FLASH_GROUPS, steps = (double)s->columns / TCI_FLASH_LANES;
    double crowded = held > TCI_FLASH_LIGHT ? (double)(held - TCI_FLASH_LIGHT) / 256 : 0;
    return (1 + (rows + 2 * steps) / (rows * steps)) * (1 + crowded);
}

/* A processor has several blocks at once, and then what is left over. */
static double tci_attention_threads_cycles(const tci_attention *x, const tci_machine *machine)
{
    const tci_matrix *s = &x->in[0];
    int64_t depth = s->k + (x->n_in > 1 ? x->in[1].k : 0) + tci_attention_sum_columns(x);
    double cycles = (double)s->rows * s->columns * (double)depth / TCI_FLASH_PRODUCTS *
                    tci_attention_product(x); /* of a step, if nothing waits */
    int64_t each = tci_dim_known(tci_dim_ceil_div(s->tiles, machine->facts.processors));
    int64_t at_once[2] = {x->blocks, each % x->blocks};
    int64_t times[2] = {each / x->blocks, each % x->blocks > 0};
    double all = 0;
    for (int i = 0; i < 2; i++) {
        double busy = 0.65 + 0.05 * (double)at_once[i]; /* of a processor with this many */
        double n = (double)at_once[i];
        all += (double)times[i] *
               (TCI_FLASH_FILL + tci_attention_steps(x) * (TCI_FLASH_MEET + n * cycles / busy));
    }
    return all;
}

TCI_FN double tci_attention_ns(const tci_kernel *k, const tci_machine *machine, bool by_threads,
                               const int64_t *tile)
{
    tci_attention x;
    if (!tci_attention_with(k, machine, by_threads, tile, &x)) {
        return -1;
    }
    return (by_threads ? tci_attention_threads_cycles(&x, machine)
                       : tci_attention_unit_cycles(&x, machine)) /
           machine->facts.ghz;
}

/* ---- the slots of a point ---- */

/* Values `makes` of a point, made of the ones that are `given`, as a block of its own, which knows
 * the axes that it asks for. */
static tci_loop *tci_attention_hole(tci_build *of, const tci_matrix *x, uint64_t axes,
                                    const int32_t *given, int n_given, const int32_t *makes,
                                    int n_makes)
{
    const tci_kernel *k = of->k;
    tci_loop *l = tci_loop_make(of->s, k);
    tci_build *b = tci_build_make(of->s, k, l);
    l->matrix = x;
    int local = tci_build_local(b, TC_F32, TCI_MAX(n_given, n_makes), 0);
    l->locals[local].is_given = true;
    for (int i = 0; i < n_given; i++) {
        tci_build_keep(b, given[i], local, 0)->base = tci_lin_const(i);
    }
    for (int a = 0; a < k->n_axes; a++) {
        if (axes >> a & 1) {
            tci_lin at = tci_build_let(b, tci_lx_make(l, TCI_LX_GIVEN, -1, -1, a));
            tci_build_set(b, a,
                          tci_build_bind(b, at, 0, tci_dim_known(k->axes[a].size) - 1, false, -1));
        }
    }
    b->stage = k->n_stages;
    for (int i = 0; i < n_makes; i++) {
        tci_lstmt store = tci_loop_stmt(TCI_L_MEM);
        store.mem = TCI_MEM_STORE_ONE;
        store.base = ~local;
        store.x = tci_lx_const(l, i);
        store.args[0] = tci_build_value(b, makes[i]);
        tci_loop_append(l, 0, store);
    }
    l->narrow = tci_loop_is_narrow(of->s, l);
    return l;
}

/* The rows of the second of the last products, as a function of its own. */
static tci_loop *tci_attention_rows_hole(tci_build *of, const tci_matrix *x, int stage)
{
    tci_loop *l = tci_loop_make(of->s, of->k);
    tci_build *b = tci_build_make(of->s, of->k, l);
    l->lanes = x->lanes;
    l->threads = x->row_threads;
    l->matrix = x;
    tci_matrix_hole(b, x, stage);
    l->narrow = tci_loop_is_narrow(of->s, l);
    return l;
}

/* ---- the values of a row ---- */

/* Largest score and sum of the rows at hand, where the main loop has left them: after the columns
 * of the staged operands. */
static void tci_attention_keep_row(tci_build *b, const tci_matrix *x, int inst, int at, int stage)
{
    int floats = tci_dtype_get((tc_dtype)x->staged)->bytes == 4 ? 1 : 2; /* elements to a float */
    int local = tci_build_local(b, TC_F32, x->group_rows * x->staged_pitch / floats, 0);
    b->l->locals[local].is_given = true;
    tci_lkeep *keep = tci_build_keep(b, inst, local, stage);
    keep->base = tci_lin_const(x->lanes / floats + at);
    keep->coef[x->m_axis] = x->staged_pitch / floats;
    keep->origin[x->m_axis] = tci_matrix_given(b, x->m_axis);
}

static void tci_attention_tell_rows(tci_build *b, const tci_attention *a, int stage)
{
    const tci_matrix *x = &a->out[0];
    const tci_kernel *k = b->k;
    tci_attention_keep_row(b, x, a->values[0], 0, stage);
    tci_attention_keep_row(b, x, a->values[1], 1, stage);
    tci_lin at = tci_matrix_given(b, x->m_axis);
    for (int i = 0; i < x->n_batch; i++) {
        tci_build_set(b, x->batch_axis[i],
                      tci_build_bind(b, tci_matrix_given(b, x->batch_axis[i]), 0, x->batch[i] - 1,
                                     false, -1));
    }
    b->stage = stage + 1;
    for (int r = 0; r < x->group_rows; r++) {
        tci_build_set(b, x->m_axis,
                      tci_build_bind(b, tci_lin_plus(at, r), r, x->m - x->group_rows + r, false,
                                     -1));
        for (int i = 0; i < k->n_stores; i++) {
            if (k->stages[k->stores[i].stage].n_axes == 0) {
                tci_build_store(b, &k->stores[i], tci_build_value(b, k->stores[i].value), false);
            }
        }
    }
}

/* ---- the whole ---- */

TCI_FN bool tci_attention_has_slot(const tci_attention *x, int slot)
{
    switch (slot) {
    case TCI_ATTENTION_SLOT_VALUES: return !x->is_online;
    case TCI_ATTENTION_SLOT_OFF: return !x->is_online && x->cut.is_cut;
    case TCI_ATTENTION_SLOT_SEEN: return x->cut.is_cut;
    case TCI_ATTENTION_SLOT_CHANGE: return x->n_in > 1;
    case TCI_ATTENTION_SLOT_ROWS: return x->n_out > 1;
    default: return true;
    }
}

static tci_loop *tci_attention_slot(tci_build *b, const tci_attention *x, int slot, int stage)
{
    const tci_matrix *m = &x->in[0];
    uint64_t batch = 0, query = (uint64_t)1 << (x->by_step ? m->n_axis : m->m_axis);
    for (int i = 0; i < m->n_batch; i++) {
        batch |= (uint64_t)1 << m->batch_axis[i];
    }
    uint64_t all = batch | (uint64_t)1 << m->m_axis | (uint64_t)1 << m->n_axis;
    int32_t given[TCI_ATTENTION_VALUES] = {x->weight, x->products[1]};
    for (int i = 2; i < x->n_values; i++) {
        given[i] = x->values[i];
    }
    switch (slot) {
    case TCI_ATTENTION_SLOT_VALUES:
        return tci_attention_hole(b, m, batch | query, NULL, 0, x->values, x->n_values);
    case TCI_ATTENTION_SLOT_OFF: return tci_attention_hole(b, m, 0, NULL, 0, &x->cut.off, 1);
    case TCI_ATTENTION_SLOT_SCORE:
        return tci_attention_hole(b, m, all, x->products, 1, &x->score, 1);
    case TCI_ATTENTION_SLOT_SEEN:
        return tci_attention_hole(b, m, all, x->products, 1, &x->cut.seen, 1);
    case TCI_ATTENTION_SLOT_CHANGE:
        return tci_attention_hole(b, m, all, given, x->n_values, &x->change, 1);
    default: return tci_attention_rows_hole(b, &x->out[1], stage);
    }
}

TCI_FN void tci_attention_emit(tci_build *b, const tci_machine *machine, bool by_threads,
                               const int64_t *tile, tci_launch *launch)
{
    tci_attention *x = TCI_NEW(b->s, tci_attention);
    tci_loop *l = b->l;
    bool fits = tci_attention_with(b->k, machine, by_threads, tile, x);
    TCI_ASSERT(b->s, fits);
    int stage = tci_attention_last_stage(b->k);
    l->lanes = x->out[0].lanes;
    l->threads = x->out[0].row_threads;
    l->matrix = &x->out[0];
    l->attention = x;
    for (int slot = 0; slot < TCI_ATTENTION_N_SLOTS; slot++) {
        if (tci_attention_has_slot(x, slot)) {
            l->scores[l->n_scores++] = tci_attention_slot(b, x, slot, stage);
        }
    }
    if (x->tells) {
        tci_attention_tell_rows(b, x, stage);
    }
    if (!x->only_rows) {
        tci_matrix_hole(b, &x->out[0], stage);
    }
    const tci_matrix *s = &x->in[0];
    launch->n_tasks = by_threads ? s->tiles : TCI_MIN(s->tiles, machine->matrix_units);
    launch->task_ns = tci_attention_ns(b->k, machine, by_threads, tile);
}
