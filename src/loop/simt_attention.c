/* loop/simt_attention.c - schedules fused attention without tensor cores (SIMT), forward and
 * backward.
 *
 * In: a kernel of class STEPS without MATRIX, the machine. Out: a kernel template
 * (loop/simt_attention.h), with blocks and epilogue slot as in loop/wgmma_attention*.c. */
#include "simt_attention.h"

enum {
    TCI_FLASH_HELD = 192,     /* registers of a thread for accumulators and pairs */
    TCI_FLASH_FILL = 4000,    /* cycles to a tile's first pairs, and to leave its accumulators */
    TCI_FLASH_MEET = 600,     /* cycles of a step for barriers and for what is loaded */
    TCI_FLASH_PRODUCTS = 128, /* that an SM makes in a cycle */
    TCI_FLASH_LIGHT = 128,    /* registers for accumulators up to which everything else fits */
    TCI_FLASH_BLOCKS = 4,     /* that an SM has at once, at most */
    TCI_FLASH_OWN = 1024,     /* other bytes of shared memory of a block */
    TCI_FLASH_OTHERS = 64     /* registers of a thread for all else */
};

/* ---- the tile ---- */

TCI_FN int tci_simt_attn_tiles(int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    static const int64_t tiles[][2] = {{64, 64}, {64, 32}, {32, 64}, {32, 32}, {32, 16}};
    for (int i = 0; i < TCI_COUNT(tiles); i++) {
        n[i][0] = tiles[i][0];
        n[i][1] = tiles[i][1];
    }
    return TCI_COUNT(tiles);
}

static bool tci_simt_attn_is_tile(const int64_t *tile)
{
    return (tile[0] == 32 || tile[0] == 64) && (tile[1] == 16 || tile[1] == 32 || tile[1] == 64);
}

/* Bytes of the staged partial results, which reuse the memory of their operands. */
static int64_t tci_simt_attn_left(const tci_matrix *x)
{
    return (int64_t)x->rows * x->staged_pitch * 4;
}

static void tci_simt_attn_shape(tci_matrix *x, const int64_t *tile)
{
    tci_attention_tiles(x, (int)tile[0]);
    x->columns = (int32_t)tile[1];
}

/* Sums are left as f32, whatever rounds them. */
static void tci_simt_attn_leave(const tci_kernel *k, tci_matrix *x)
{
    const tci_kinst *in = &k->insts[x->value];
    x->value = in->op == TCI_K_RED ? x->value : in->args[0];
    x->staged = TC_F32;
}

TCI_FN int64_t tci_simt_attn_bytes(const tci_attention *x)
{
    const tci_matrix *s = &x->scores, *r = &x->result;
    int64_t floats = (int64_t)(s->rows + s->columns) * tci_simt_attn_pitch(s->k) +
                     (int64_t)s->columns * tci_simt_attn_pitch(r->columns) +
                     (int64_t)s->rows * tci_simt_attn_pitch(s->columns);
    return TCI_MAX(4 * floats, tci_simt_attn_left(r)) + 4 * TCI_FLASH_GROUPS;
}

TCI_FN int64_t tci_simt_attn_back_bytes(const tci_attn_grad *x)
{
    const tci_matrix *s = &x->in[0];
    int64_t floats = (int64_t)s->rows * tci_simt_attn_pitch(s->columns);
    for (int i = 0; i < 2; i++) {
        int64_t rows = s->columns + (i < x->n_in ? s->rows : 0);
        floats += rows * tci_simt_attn_pitch(tci_attn_grad_columns_of(x->in[i].k));
    }
    int64_t left = tci_simt_attn_left(&x->out[0]);
    left = x->n_out > 1 ? TCI_MAX(left, tci_simt_attn_left(&x->out[1])) : left;
    return TCI_MAX(4 * floats, left);
}

/* Blocks that an SM holds at once. */
static int tci_simt_attn_blocks(const tci_machine *machine, int64_t bytes, int64_t held)
{
    int64_t fit = machine->facts.shared_most / (bytes + TCI_FLASH_OWN);
    return (int)TCI_MIN(TCI_MAX(TCI_MIN(fit, 512 / (held + TCI_FLASH_OTHERS)), 1),
                        TCI_FLASH_BLOCKS);
}

/* Registers of a thread: products of pairs, and accumulators of so many columns. */
static int64_t tci_simt_attn_held(const int64_t *tile, int64_t pairs, int64_t columns)
{
    return tile[0] / TCI_FLASH_GROUPS * (pairs * tile[1] + columns) / TCI_FLASH_LANES;
}

static bool tci_simt_attn_with(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                               tci_attention *x)
{
    if (!tci_simt_attn_is_tile(tile) || !tci_attention_find(k, x)) {
        return false;
    }
    x->threads = TCI_FLASH_THREADS;
    tci_simt_attn_shape(&x->scores, tile);
    tci_simt_attn_shape(&x->result, tile);
    tci_attention_columns(&x->result);
    tci_simt_attn_leave(k, &x->result);
    tci_matrix_set_groups(k, k->reds[k->n_reds - 1].stage + 1, &x->result);
    int64_t held = tci_simt_attn_held(tile, 1, x->result.columns);
    x->blocks = tci_simt_attn_blocks(machine, tci_simt_attn_bytes(x), held);
    return tci_simt_attn_bytes(x) <= machine->facts.shared_most && held <= TCI_FLASH_HELD;
}

static bool tci_simt_attn_back_with(const tci_kernel *k, const tci_machine *machine,
                                    const int64_t *tile, tci_attn_grad *x)
{
    if (!tci_simt_attn_is_tile(tile) || !tci_attn_grad_find(k, x)) {
        return false;
    }
    int64_t columns = 0;
    x->threads = TCI_FLASH_THREADS;
    for (int i = 0; i < 2; i++) {
        tci_simt_attn_shape(&x->in[i], tile);
        tci_simt_attn_shape(&x->out[i], tile);
    }
    for (int i = 0; i < x->n_out; i++) {
        tci_simt_attn_leave(k, &x->out[i]);
    }
    tci_attn_grad_columns(k, x);
    for (int i = 0; i < x->n_out; i++) {
        columns += x->out[i].columns;
    }
    int64_t held = tci_simt_attn_held(tile, x->n_in, columns);
    x->blocks = tci_simt_attn_blocks(machine, tci_simt_attn_back_bytes(x), held);
    return tci_simt_attn_back_bytes(x) <= machine->facts.shared_most && held <= TCI_FLASH_HELD;
}

/* ---- the cost ---- */

/* Cost of a product with its loads, relative to 1 without them: 16 bytes for each row, which half a
 * warp shares, and twice as long for each step. Many accumulators leave too few registers. */
static double tci_simt_attn_product(const int64_t *tile, int64_t held)
{
    double rows = (double)tile[0] / TCI_FLASH_GROUPS, steps = (double)tile[1] / TCI_FLASH_LANES;
    double crowded = held > TCI_FLASH_LIGHT ? (double)(held - TCI_FLASH_LIGHT) / 256 : 0;
    return (1 + (rows + 2 * steps) / (rows * steps)) * (1 + crowded);
}

/* Of a kernel whose tiles have so many steps, of so many cycles each if nothing waits. An SM
 * has several blocks at once, and then what is left over. */
static double tci_simt_attn_cycles(const tci_matrix *x, const tci_machine *machine, double steps,
                                   double cycles, int blocks)
{
    int64_t each = tci_dim_known(tci_dim_ceil_div(x->tiles, machine->facts.processors));
    int64_t at_once[2] = {blocks, each % blocks}, times[2] = {each / blocks, each % blocks > 0};
    double all = 0;
    for (int i = 0; i < 2; i++) {
        double busy = 0.65 + 0.05 * (double)at_once[i]; /* of an SM with so many */
        double n = (double)at_once[i];
        all += (double)times[i] * (TCI_FLASH_FILL + steps * (TCI_FLASH_MEET + n * cycles / busy));
    }
    return all;
}

TCI_FN double tci_simt_attn_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile)
{
    tci_attention x;
    if (!tci_simt_attn_with(k, machine, tile, &x)) {
        return -1;
    }
    const tci_matrix *s = &x.scores;
    double steps = tci_attention_steps(&x.cut, s);
    double cycles = (double)s->rows * s->columns * (double)(s->k + x.result.columns) /
                    TCI_FLASH_PRODUCTS *
                    tci_simt_attn_product(tile, tci_simt_attn_held(tile, 1, x.result.columns));
    return tci_simt_attn_cycles(s, machine, steps, cycles, x.blocks) / machine->facts.ghz;
}

TCI_FN double tci_simt_attn_back_ns(const tci_kernel *k, const tci_machine *machine,
                                    const int64_t *tile)
{
    tci_attn_grad x;
    if (!tci_simt_attn_back_with(k, machine, tile, &x)) {
        return -1;
    }
    const tci_matrix *s = &x.in[0];
    double steps = tci_attention_steps(&x.cut, s);
    int64_t columns = x.out[0].columns + (x.n_out > 1 ? x.out[1].columns : 0);
    int64_t summed = s->k + (x.n_in > 1 ? x.in[1].k : 0);
    double cycles = (double)s->rows * s->columns * (double)(summed + columns) / TCI_FLASH_PRODUCTS *
                    tci_simt_attn_product(tile, tci_simt_attn_held(tile, x.n_in, columns));
    return tci_simt_attn_cycles(s, machine, steps, cycles, x.blocks) / machine->facts.ghz;
}

/* ---- the whole ---- */

TCI_FN void tci_simt_attn_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                               tci_launch *launch)
{
    tci_attention *x = TCI_NEW(b->s, tci_attention);
    bool fits = tci_simt_attn_with(b->k, machine, tile, x);
    TCI_ASSERT(b->s, fits);
    tci_attention_holes(b, x);
    launch->n_tasks = x->scores.tiles;
    launch->task_ns = tci_simt_attn_ns(b->k, machine, tile);
}

TCI_FN void tci_simt_attn_back_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                                    tci_launch *launch)
{
    tci_attn_grad *x = TCI_NEW(b->s, tci_attn_grad);
    bool fits = tci_simt_attn_back_with(b->k, machine, tile, x);
    TCI_ASSERT(b->s, fits);
    tci_attn_grad_holes(b, x);
    launch->n_tasks = x->in[0].tiles;
    launch->task_ns = tci_simt_attn_back_ns(b->k, machine, tile);
}
