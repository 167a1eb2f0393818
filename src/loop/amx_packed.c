/* loop/amx_packed.c - emits the AMX tile GEMM over packed panels of bf16 pairs or groups of four
 * int8 values (VNNI layout).
 *
 * In: panels of bf16 pairs or groups of four int8 values (VNNI layout, loop/dot_packing.h) of one
 * block of a contraction of class MATRIX. Out: statements that multiply a tile of up to 32 rows and
 * 32 columns.
 *
 * Design: such a panel is already what the tile registers hold. A register of the column operand
 * is 16 elements of 16 columns each; one of the row operand is 16 rows of 16 contiguous elements;
 * both have the even k index in the same half of a pair. So everything that can be packed, windows
 * of any stride, padding, groups, gradients, runs on AMX, and loop/packing.c adds only padding:
 * zeros after the last element up to a whole step, and memory after the last row up to a whole
 * register, whose accumulators are never read. The signedness of int8 operands is part of the
 * instruction, and their sums are exact in any order.
 *
 * In a kernel that keeps rows (loop/back_to_back_gemm.c) accumulators are moved to and from its
 * array of rows unchanged, and bf16 rows in such an array are the row operand of the next product:
 * there an even k index is the lower half of a pair, as in memory. */
#include "amx_packed.h"

#include "gemm_operands.h"
#include "amx.h"

enum {
    TCI_AMX_PACKED_A = 4, /* registers: accumulators are 0 .. 3 */
    TCI_AMX_PACKED_B = 6
};

/* Elements between the accumulators of two tiles of columns. */
static int64_t tci_amx_packed_sums(const tci_gemm_state *s)
{
    int64_t rows = s->p->base + (s->p->extra > 0);
    return tci_ceil_div(rows, TCI_AMX_PACKED_SIDE) * TCI_AMX_PACKED_SIDE * s->tile;
}

/* The array in which the kernel keeps rows of `inst`. */
static const tci_lkeep *tci_amx_packed_array(const tci_build *b, int inst)
{
    int i = 0;
    while (b->keeps[i]->inst != inst) {
        i++;
    }
    return b->keeps[i];
}

/* Where row `row` of the array begins, and what a step to the next one is. */
static tci_lin tci_amx_packed_row(tci_gemm_state *s, const tci_lkeep *keep, tci_lin row,
                                  int64_t *pitch)
{
    tci_build *b = s->b;
    tci_lin origin = keep->origin[s->p->row_axis];
    *pitch = tci_dim_known(keep->coef[s->p->row_axis]);
    return tci_lin_mul(b, tci_lin_add(b, row, tci_lin_mul(b, origin, -1)), *pitch);
}

TCI_FN void tci_amx_packed_make(tci_gemm_state *s, int64_t group)
{
    if (s->p->keeps) {
        const tci_lkeep *keep = tci_amx_packed_array(s->b, s->b->k->reds[s->p->red].inst);
        s->partial.part[0] = keep->local;
        return;
    }
    int64_t tiles = s->p->n_depths != 1 ? group * (s->p->columns / s->tile) : 1;
    tc_dtype type = (tc_dtype)s->b->k->reds[s->p->red].dtype;
    s->partial.part[0] = tci_build_work(s->b, type, tiles * tci_amx_packed_sums(s));
}

TCI_FN void tci_amx_packed_end_rows(tci_gemm_state *s)
{
    tci_build *b = s->b;
    tci_value zero = {.u = 0};
    tci_lopen open;
    int64_t pitch, size = tci_kernel_known(b->k, b->k->stages[s->p->stage].axes[0]);
    const tci_lkeep *keep = tci_amx_packed_array(b, s->p->row_inst);
    int none = tci_build_const(b, TC_F32, zero);
    tci_lin row = tci_lin_var(b, tci_build_for(b, tci_lx_const(b->l, 0),
                                               tci_lx_const(b->l, s->at.n_rows), 1, &open));
    tci_lin at = tci_amx_packed_row(s, keep, tci_lin_add(b, s->at.rows[0]->at, row), &pitch);
    for (int64_t i = size; i % (2 * TCI_AMX_PACKED_SIDE) != 0 && i - size < 2 * TCI_AMX_PACKED_SIDE;
         i += TCI_AMX_PACKED_SIDE) {
        tci_stage_array_set(b, tci_stage_tuple_of(keep->local, -1),
                            tci_build_lx(b, tci_lin_plus(at, i)), tci_stage_tuple_of(none, -1));
    }
    tci_build_close(b, &open);
}

/* The registers of accumulators of the tile: cleared, or moved. */
static void tci_amx_packed_move(tci_gemm_state *s, const tci_tile *tile, tci_mem mem, tci_lin at,
                                int64_t pitch)
{
    tci_build *b = s->b;
    for (int64_t r = 0; r * TCI_AMX_PACKED_SIDE < tile->n_rows; r++) {
        for (int64_t c = 0; c < tile->n_vecs; c++) {
            tci_lin to = tci_lin_plus(at, TCI_AMX_PACKED_SIDE * (r * pitch + c));
            tci_amx_move(b, mem, (int)(2 * r + c), ~s->partial.part[0], to, pitch);
        }
    }
}

/* The same before the first block: what zeros of the rows add is in all rows. */
static void tci_amx_packed_begin(tci_gemm_state *s, const tci_tile *tile, tci_lin number)
{
    tci_build *b = s->b;
    if (s->zeros.part[0] < 0) {
        tci_amx_packed_move(s, tile, TCI_MEM_TILE_ZERO, number, 0);
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (i % 2 < tile->n_vecs && i / 2 * TCI_AMX_PACKED_SIDE < tile->n_rows) {
            tci_lin at = tci_lin_plus(tci_lin_mul(b, number, s->tile), i % 2 * TCI_AMX_PACKED_SIDE);
            tci_amx_move(b, TCI_MEM_TILE_LOAD, i, ~s->zeros.part[0], at, 0);
        }
    }
}

/* Rows of the tile from row `skip` on, in step i of the block: into a register. */
static void tci_amx_packed_load_rows(tci_gemm_state *s, const tci_tile *tile, tci_lin i,
                                     int64_t skip, int to)
{
    tci_build *b = s->b;
    int64_t pitch = s->row_step;
    if (s->row) {
        tci_lin at = tci_lin_add(b, s->row_base, tci_lin_mul(b, i, TCI_AMX_PACKED_SIDE));
        tci_amx_move(b, TCI_MEM_TILE_LOAD, to, ~s->row_pairs, tci_lin_plus(at, skip * pitch),
                     pitch);
        return;
    }
    const tci_lkeep *keep = tci_amx_packed_array(b, s->p->row_inst);
    tci_lin at = tci_amx_packed_row(s, keep, tile->rows[0]->at, &pitch);
    at = tci_lin_add(b, at, tci_lin_add(b, s->first, tci_lin_mul(b, i, 2 * TCI_AMX_PACKED_SIDE)));
    tci_amx_move(b, TCI_MEM_TILE_LOAD, to, ~keep->local, tci_lin_plus(at, skip * pitch), pitch);
}

/* Step i of the block. */
static void tci_amx_packed_step(tci_gemm_state *s, const tci_tile *tile, tci_lin i)
{
    tci_build *b = s->b;
    int64_t wide = s->p->is_vec_there ? s->p->points : 1; /* of an element that is there */
    tci_lin column = tci_lin_add(b, s->vec->base,
                                 tci_lin_mul(b, i, wide * TCI_AMX_PACKED_SIDE * s->tile));
    for (int64_t c = 0; c < tile->n_vecs; c++) {
        tci_amx_move(b, TCI_MEM_TILE_LOAD, TCI_AMX_PACKED_B + (int)c, ~s->vec_pairs,
                     tci_lin_plus(column, wide * TCI_AMX_PACKED_SIDE * c), wide * s->tile);
    }
    for (int64_t r = 0; r * TCI_AMX_PACKED_SIDE < tile->n_rows; r++) {
        tci_amx_packed_load_rows(s, tile, i, TCI_AMX_PACKED_SIDE * r, TCI_AMX_PACKED_A + (int)r);
        for (int c = 0; c < tile->n_vecs; c++) {
            tci_amx_add(b, s->p, 2 * (int)r + c, TCI_AMX_PACKED_A + (int)r, TCI_AMX_PACKED_B + c);
        }
    }
}

TCI_FN tci_lin tci_amx_packed_multiply(tci_gemm_state *s, const tci_tile *tile, tci_lin number)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    int64_t last = tci_dim_known(s->p->n_depths) - 1, sums = tci_amx_packed_sums(s);
    int64_t pitch = (int64_t)tile->n_vecs * TCI_AMX_PACKED_SIDE;
    tci_lin at = tci_lin_const(0);
    if (s->p->keeps) {
        const tci_lkeep *keep = tci_amx_packed_array(b, b->k->reds[s->p->red].inst);
        at = tci_amx_packed_row(s, keep, tile->rows[0]->at, &pitch);
        at = tci_lin_add(b, at, tci_lin_add(b, s->column, tci_lin_mul(b, number, s->tile)));
    } else if (last > 0) {
        at = tci_lin_add(b, tci_lin_mul(b, s->tile_row, s->p->columns / s->tile), number);
        at = tci_lin_mul(b, at, sums);
    }
    if (last > 0) {
        tci_build_if(b, tci_build_in_range(b, s->block, 1, last), &open);
        tci_amx_packed_move(s, tile, TCI_MEM_TILE_LOAD, at, pitch);
        tci_build_close(b, &open);
        tci_build_if(b, tci_build_in_range(b, s->block, 0, 0), &open);
    }
    tci_amx_packed_begin(s, tile, number);
    if (last > 0) {
        tci_build_close(b, &open);
    }
    int points = tci_build_lx(b, tci_lin_mul(b, s->depth, s->p->inner));
    int64_t step = tci_gemm_step(b->k, s->p);
    int steps = tci_lx_make(l, TCI_LX_ADD, points, tci_lx_const(l, step - 1), 0);
    steps = tci_lx_make(l, TCI_LX_DIV, steps, -1, step);
    int i = tci_build_for(b, tci_lx_const(l, 0), steps, 1, &open);
    tci_amx_packed_step(s, tile, tci_lin_var(b, i));
    tci_build_close(b, &open);
    tci_amx_packed_move(s, tile, TCI_MEM_TILE_STORE, at, pitch);
    return at;
}
