/* loop/amx.c - emits the bf16 AMX tile GEMM (tile registers of 16 rows of 64 bytes) from operands
 * that are not prepacked.
 *
 * In: a kernel whose contraction has TCI_ORDER_MATRIX: plain bf16 loads, A contiguous along k, B
 * along k or the columns, all three sizes multiples of 32. Out: statements for one block of
 * columns and a range of row tiles.
 *
 *   pack B:  panel [tile of 32 columns][step of 32 k][half of 16 columns][pair of k][column][2]
 *   for each row tile (32 rows)
 *       for each block of k (512 of it: then A's part stays in the L1 cache)
 *           copy A:  panel [step of 32 k][half of 16 rows][row][32 k]
 *           for each tile of columns
 *               2 x 2 tile registers of accumulators, from memory or (first block) zero; one loop
 *               over the steps; accumulators to memory; after the last block the later stages, row
 *               after row
 *
 * Design: a tile register is a number, and each AMX instruction one statement (loop/intrinsics.h),
 * which a dialect emits as such or as plain C. */
#include "amx.h"

#include "wgmma_gemm.h"

#include <string.h>

enum {
    TCI_AMX_SIDE = 16,                /* rows of a register, and f32 columns */
    TCI_AMX_BLOCK = TCI_MATRIX_WHOLE, /* rows, columns and k of a step */
    TCI_AMX_DEPTH = 512,              /* k of a block, at most */
    TCI_AMX_COLUMNS = 512,            /* of a block, at most */
    TCI_AMX_PANEL = 1 << 20,          /* bytes of a panel, about */
    TCI_AMX_A = 4,                    /* registers: accumulators are 0 .. 3 */
    TCI_AMX_B = 6
};

TCI_FN void tci_amx_plan(const tci_kernel *k, tci_gemm *p)
{
    tci_matrix x;
    tci_matrix_find(k, &x);
    int64_t most = TCI_AMX_PANEL / (x.k * 2) / TCI_AMX_BLOCK * TCI_AMX_BLOCK;
    int swap = tci_build_depends(k->insts[k->reds[0].in[0]].axes, x.n_axis);
    memset(p, 0, sizeof(*p));
    p->vec_axis = x.n_axis;
    p->row_axis = x.m_axis;
    p->vec_inst = swap ? k->reds[0].in[0] : k->reds[0].in[1];
    p->row_inst = swap ? k->reds[0].in[1] : k->reds[0].in[0];
    p->of_columns = (tci_gemm_side){1, {x.n_axis}, x.n};
    p->of_rows = (tci_gemm_side){1, {x.m_axis}, x.m};
    p->unroll = TCI_AMX_BLOCK / TCI_AMX_SIDE;
    p->columns = TCI_MAX(TCI_MIN(TCI_MIN(most, TCI_AMX_COLUMNS), x.n), TCI_AMX_BLOCK);
    p->base = TCI_AMX_BLOCK;
    p->n_tiles = p->group = x.m / TCI_AMX_BLOCK;
    p->share = 1;
    p->n_inner = p->inner = 1;
    p->vec_by_vector = !x.side[1].along_k;
    p->squares = x.side[1].along_k;
    int64_t depths = tci_ceil_div(x.k, TCI_AMX_DEPTH);
    p->depth = tci_ceil_div(x.k / TCI_AMX_BLOCK, depths) * TCI_AMX_BLOCK;
    p->n_depths = tci_ceil_div(x.k, p->depth);
}

/* ---- the nest ---- */

typedef struct tci_amx_state {
    tci_build *b;
    const tci_gemm *p;
    tci_matrix x;
    int panel, rows;       /* locals: of B, of A */
    tci_stage_tuple sums;  /* local: 32 rows of 32 for each tile of columns */
    int64_t tile_elements; /* of B's panel, for a tile of columns */
    tci_lin step, n_steps; /* first of the current block of k, and how many */
    int block;             /* its number: lx */
} tci_amx_state;

static tci_lstmt tci_amx_stmt(tci_build *b, tci_mem mem, int tile)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)mem;
    st.n = tci_lx_const(b->l, tile);
    return st;
}

TCI_FN void tci_amx_begin(tci_build *b)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_TILES_BEGIN;
    tci_loop_append(b->l, b->cur, st);
}

TCI_FN void tci_amx_end(tci_build *b)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_TILES_END;
    tci_loop_append(b->l, b->cur, st);
}

TCI_FN void tci_amx_move(tci_build *b, tci_mem mem, int tile, int base, tci_lin x, int64_t stride)
{
    tci_lstmt st = tci_amx_stmt(b, mem, tile);
    if (mem != TCI_MEM_TILE_ZERO) {
        st.base = base;
        st.x = tci_build_lx(b, x);
        st.imm = stride;
    }
    tci_loop_append(b->l, b->cur, st);
}

TCI_FN void tci_amx_add(tci_build *b, const tci_gemm *p, int sums, int rows, int columns)
{
    int signs = 2 * p->row_unsigned + p->vec_unsigned;
    tci_lstmt st = tci_amx_stmt(b, p->points == 4 ? TCI_MEM_TILE_FOURS : TCI_MEM_TILE_DOT, sums);
    st.imm = 64 * signs + rows * 8 + columns;
    tci_loop_append(b->l, b->cur, st);
}

/* Binds axis to `at`, after which at least `room` more points exist. */
static void tci_amx_bind(tci_build *b, int axis, tci_lin at, int64_t lo, int64_t room, bool vector)
{
    int64_t last = tci_kernel_known(b->k, axis) - 1 - room + (vector ? TCI_AMX_SIDE - 1 : 0);
    tci_build_set(b, axis, tci_build_bind(b, at, lo, last, vector, -1));
}

/* Tiles of columns in the block: the last block may have fewer. */
static int tci_amx_count(tci_amx_state *s, tci_lin chunk)
{
    tci_build *b = s->b;
    int64_t most = s->p->columns / TCI_AMX_BLOCK, all = s->x.n / TCI_AMX_BLOCK;
    tci_lin left = tci_lin_plus(tci_lin_mul(b, chunk, -most), all);
    return tci_lx_make(b->l, TCI_LX_MIN, tci_build_lx(b, left), tci_lx_const(b->l, most), 0);
}

/* ---- packing ---- */

/* `n` pairs of k, whose positions are `places`, of the vector of columns that is bound: to `to` in
 * the panel. */
static void tci_amx_pack_pairs(tci_amx_state *s, int64_t n, const tci_bind *const *places,
                               tci_lin to)
{
    tci_build *b = s->b;
    int axis = b->k->stages[0].axes[0];
    for (int64_t i = 0; i < n; i++) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_STORE_PAIRS;
        st.base = ~s->panel;
        for (int64_t j = 0; j < 2; j++) {
            tci_build_set(b, axis, places[2 * i + j]);
            st.args[j] = tci_build_value(b, s->p->vec_inst);
        }
        st.x = tci_build_lx(b, tci_lin_plus(to, i * 2 * TCI_AMX_SIDE));
        tci_loop_append(b->l, b->cur, st);
    }
    tci_build_set(b, axis, NULL);
}

/* Pair after pair; where B is contiguous along k, square tiles of 16 columns and 16 k are
 * transposed in registers. */
static void tci_amx_pack(tci_amx_state *s, tci_lin column, int n_tiles)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen tiles, steps, pairs;
    bool turns = s->x.side[1].along_k;
    int64_t pair = 2 * TCI_AMX_SIDE, half = pair * TCI_AMX_SIDE;
    int64_t together = turns ? TCI_AMX_SIDE / 2 : 1;
    const tci_bind *places[TCI_AMX_SIDE];
    tci_lin tile = tci_lin_var(b, tci_build_for(b, tci_lx_const(l, 0), n_tiles, 1, &tiles));
    tci_lin step = tci_lin_var(b,
                               tci_build_for(b, tci_lx_const(l, 0),
                                             tci_lx_const(l, s->x.k / TCI_AMX_BLOCK), 1, &steps));
    tci_lin row = tci_lin_var(b, tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, TCI_AMX_SIDE),
                                               together, &pairs));
    tci_lin at = tci_lin_add(b, column, tci_lin_mul(b, tile, TCI_AMX_BLOCK));
    tci_lin k = tci_lin_add(b, tci_lin_mul(b, step, TCI_AMX_BLOCK), tci_lin_mul(b, row, 2));
    tci_lin to = tci_lin_add(b, tci_lin_mul(b, tile, s->tile_elements),
                             tci_lin_add(b, tci_lin_mul(b, step, 2 * half),
                                         tci_lin_mul(b, row, pair)));
    for (int64_t i = 0; i < 2 * together; i++) {
        int64_t last = s->x.k - 2 * together + i;
        places[i] = tci_build_bind(b, tci_lin_plus(k, i), i, last, false, -1);
    }
    b->turn_rows = turns ? places : NULL;
    b->turn_axis = b->k->stages[0].axes[0];
    b->n_turn = TCI_AMX_SIDE;
    for (int64_t h = 0; h < 2; h++) {
        int64_t skip = h * TCI_AMX_SIDE;
        tci_amx_bind(b, s->p->vec_axis, tci_lin_plus(at, skip), skip, 2 * TCI_AMX_SIDE - 1 - skip,
                     true);
        tci_amx_pack_pairs(s, together, places, tci_lin_plus(to, h * half));
    }
    b->turn_rows = NULL;
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_close(b, &pairs);
    tci_build_close(b, &steps);
    tci_build_close(b, &tiles);
}

/* ---- tiles ---- */

/* Where A begins for the rows from `row`: the operand's index with k and the columns at 0. */
static tci_lin tci_amx_rows_at(tci_amx_state *s, tci_lin row)
{
    tci_build *b = s->b;
    int axis = b->k->stages[0].axes[0];
    tci_build_set(b, axis, tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    tci_amx_bind(b, s->p->row_axis, row, 0, TCI_AMX_BLOCK - 1, false);
    tci_lin at = tci_build_kx(b, b->k->insts[s->p->row_inst].x);
    tci_build_set(b, axis, NULL);
    tci_build_set(b, s->p->row_axis, NULL);
    return at;
}

static void tci_amx_copy_rows(tci_amx_state *s, tci_lin a)
{
    tci_build *b = s->b;
    tci_lopen open;
    int64_t half = TCI_AMX_SIDE * TCI_AMX_BLOCK, pitch = s->x.side[0].pitch;
    tci_lin i = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0), tci_build_lx(b, s->n_steps),
                                             1, &open));
    tci_lin at = tci_lin_mul(b, tci_lin_add(b, s->step, i), TCI_AMX_BLOCK);
    for (int64_t h = 0; h < 2; h++) {
        int tile = TCI_AMX_A + (int)h;
        tci_lin from = tci_lin_plus(tci_lin_add(b, a, at), h * TCI_AMX_SIDE * pitch);
        tci_lin to = tci_lin_plus(tci_lin_mul(b, i, 2 * half), h * half);
        tci_amx_move(b, TCI_MEM_TILE_LOAD, tile, s->x.side[0].operand, from, pitch);
        tci_amx_move(b, TCI_MEM_TILE_STORE, tile, ~s->rows, to, TCI_AMX_BLOCK);
    }
    tci_build_close(b, &open);
}

/* In block lo .. hi of k. */
static void tci_amx_if(tci_amx_state *s, int64_t lo, int64_t hi, tci_lopen *open)
{
    tci_build *b = s->b;
    tci_build_if(b, tci_build_in_range(b, s->block, lo, hi), open);
}

static void tci_amx_move_sums(tci_amx_state *s, tci_mem mem, tci_lin sums)
{
    for (int64_t i = 0; i < 4; i++) {
        int64_t skip = i / 2 * TCI_AMX_SIDE * TCI_AMX_BLOCK + i % 2 * TCI_AMX_SIDE;
        tci_amx_move(s->b, mem, (int)i, ~s->sums.part[0], tci_lin_plus(sums, skip), TCI_AMX_BLOCK);
    }
}

static void tci_amx_multiply(tci_amx_state *s, tci_lin tile, tci_lin sums)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    int64_t half = TCI_AMX_SIDE * TCI_AMX_BLOCK;
    tci_amx_if(s, 0, 0, &open);
    for (int i = 0; i < 4; i++) {
        tci_loop_append(l, b->cur, tci_amx_stmt(b, TCI_MEM_TILE_ZERO, i));
    }
    tci_build_close(b, &open);
    if (s->p->n_depths != 1) {
        tci_amx_if(s, 1, tci_dim_known(s->p->n_depths) - 1, &open);
        tci_amx_move_sums(s, TCI_MEM_TILE_LOAD, sums);
        tci_build_close(b, &open);
    }
    tci_lin panel = tci_lin_mul(b, tile, s->tile_elements);
    tci_lin i = tci_lin_var(b, tci_build_for(b, tci_lx_const(l, 0), tci_build_lx(b, s->n_steps), 1,
                                             &open));
    tci_lin there = tci_lin_mul(b, tci_lin_add(b, s->step, i), 2 * half);
    for (int64_t h = 0; h < 2; h++) {
        tci_amx_move(b, TCI_MEM_TILE_LOAD, TCI_AMX_A + (int)h, ~s->rows,
                     tci_lin_plus(tci_lin_mul(b, i, 2 * half), h * half), TCI_AMX_BLOCK);
        tci_amx_move(b, TCI_MEM_TILE_LOAD, TCI_AMX_B + (int)h, ~s->panel,
                     tci_lin_plus(tci_lin_add(b, panel, there), h * half), TCI_AMX_BLOCK);
    }
    for (int t = 0; t < 4; t++) {
        tci_amx_add(b, s->p, t, TCI_AMX_A + t / 2, TCI_AMX_B + t % 2);
    }
    tci_build_close(b, &open);
    tci_amx_move_sums(s, TCI_MEM_TILE_STORE, sums);
}

/* The later stages, for one row after the other. */
static void tci_amx_finish(tci_amx_state *s, tci_lin row, tci_lin column, tci_lin sums)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    const tci_kred *red = &b->k->reds[0];
    const tci_bind *vecs[TCI_AMX_BLOCK / TCI_AMX_SIDE];
    int64_t rows = tci_kernel_known(b->k, s->p->row_axis);
    int64_t columns = tci_kernel_known(b->k, s->p->vec_axis);
    int from = tci_lx_const(l, 0), to = tci_lx_const(l, TCI_AMX_BLOCK);
    tci_lin i = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    const tci_bind *bind = tci_build_bind(b, tci_lin_add(b, row, i), 0, rows - 1, false, -1);
    for (int v = 0; v < TCI_COUNT(vecs); v++) {
        int64_t skip = (int64_t)v * TCI_AMX_SIDE;
        vecs[v] = tci_build_bind(b, tci_lin_plus(column, skip), skip,
                                 columns - TCI_AMX_BLOCK + skip + TCI_AMX_SIDE - 1, true, -1);
    }
    tci_tile one = {0};
    one.row_axis = s->p->row_axis;
    one.n_rows = 1;
    one.rows = &bind;
    one.vec_axis = s->p->vec_axis;
    one.n_vecs = TCI_COUNT(vecs);
    one.vecs = vecs;
    one.next_axis = -1;
    for (int v = 0; v < one.n_vecs; v++) {
        tci_lin at = tci_lin_add(b, sums, tci_lin_mul(b, i, TCI_AMX_BLOCK));
        at = tci_lin_plus(at, (int64_t)v * TCI_AMX_SIDE);
        tci_stage_point(b, &one, v);
        tci_stage_remember_result(b, red,
                                  tci_stage_array_get(b, red, s->sums, tci_build_lx(b, at)));
    }
    tci_stage_from(b, &one, 1);
    b->stage = 0;
    tci_build_set(b, s->p->row_axis, NULL);
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_build_close(b, &open);
}

/* One row tile: all blocks of k, and the tiles of columns from `column` on. */
static void tci_amx_row(tci_amx_state *s, tci_lin row, tci_lin column, int n_tiles)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen blocks, tiles, last;
    int64_t steps = s->p->depth / TCI_AMX_BLOCK, all = s->x.k / TCI_AMX_BLOCK;
    tci_lin a = tci_build_let(b, tci_build_lx(b, tci_amx_rows_at(s, row)));
    int block = tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, s->p->n_depths), 1, &blocks);
    s->block = tci_lx_var(l, block);
    s->step = tci_lin_mul(b, tci_lin_var(b, block), steps);
    int left = tci_build_lx(b, tci_lin_plus(tci_lin_mul(b, s->step, -1), all));
    s->n_steps = tci_build_let(b, tci_lx_make(l, TCI_LX_MIN, left, tci_lx_const(l, steps), 0));
    tci_amx_copy_rows(s, a);
    tci_lin tile = tci_lin_var(b, tci_build_for(b, tci_lx_const(l, 0), n_tiles, 1, &tiles));
    tci_lin sums = tci_lin_mul(b, tile, TCI_AMX_BLOCK * TCI_AMX_BLOCK);
    tci_amx_multiply(s, tile, sums);
    int64_t end = tci_dim_known(s->p->n_depths) - 1;
    tci_amx_if(s, end, end, &last);
    tci_amx_finish(s, row, tci_lin_add(b, column, tci_lin_mul(b, tile, TCI_AMX_BLOCK)), sums);
    tci_build_close(b, &last);
    tci_build_close(b, &tiles);
    tci_build_close(b, &blocks);
}

TCI_FN void tci_amx_emit(tci_build *b, const tci_gemm *p, tci_lin chunk, int begin, int end)
{
    tci_lopen rows;
    tci_amx_state s = {.b = b, .p = p};
    int64_t n_columns = p->columns / TCI_AMX_BLOCK;
    tci_matrix_find(b->k, &s.x);
    b->stage = 0;
    s.tile_elements = s.x.k * TCI_AMX_BLOCK;
    s.rows = tci_build_work(b, TC_BF16, p->depth * TCI_AMX_BLOCK);
    s.panel = tci_build_work(b, TC_BF16, s.tile_elements * n_columns);
    s.sums = tci_stage_tuple_of(
        tci_build_work(b, TC_F32, n_columns * TCI_AMX_BLOCK * TCI_AMX_BLOCK), -1);
    tci_lin column = tci_build_let(b, tci_build_lx(b, tci_lin_mul(b, chunk, p->columns)));
    int n_tiles = tci_amx_count(&s, chunk);
    tci_amx_begin(b);
    tci_amx_pack(&s, column, n_tiles);
    tci_lin row = tci_lin_var(b, tci_build_for(b, begin, end, 1, &rows));
    tci_amx_row(&s, tci_lin_mul(b, row, TCI_AMX_BLOCK), column, n_tiles);
    tci_build_close(b, &rows);
    tci_amx_end(b);
}
