/* loop/panes.c - tiles of packed pairs on a CPU's matrix unit.
 *
 * In: panels of pairs (loop/twos.h) of a block of a contraction of class MATRIX. Out: statements
 * that multiply a tile of up to 32 rows and 32 columns.
 *
 * The one idea: a panel of pairs is what the unit reads. A register of the columns' factor is 16
 * pairs of points, each 16 columns; one of the rows' factor is 16 rows, each 16 pairs side by side;
 * which half of a pair is the even point is the same of both. So whatever can be packed, windows
 * of any stride, padding, groups, gradients, is the unit's, and loop/packing.c need not know of it
 * but for this: zeros follow the last pair up to a whole step, and memory the last row up to a
 * whole register. What lies in such memory makes sums that nobody reads. */
#include "panes.h"

#include "tiles.h"

enum {
    TCI_PANES_SIDE = 16, /* rows, pairs or columns of a register */
    TCI_PANES_A = 4,     /* registers: sums are 0 .. 3 */
    TCI_PANES_B = 6
};

/* Elements between the sums of two tiles of columns. */
static int64_t tci_panes_sums(const tci_blocked_state *s)
{
    int64_t rows = s->p->base + (s->p->extra > 0);
    return tci_ceil_div(rows, TCI_PANES_SIDE) * TCI_PANES_SIDE * s->tile;
}

TCI_FN void tci_panes_make(tci_blocked_state *s, int64_t group)
{
    int64_t tiles = s->p->n_depths > 1 ? group * (s->p->columns / s->tile) : 1;
    s->partial.part[0] = tci_blocked_local(s->b, tiles * tci_panes_sums(s), TC_F32);
}

/* The registers of sums of the tile: cleared, or moved. */
static void tci_panes_move(tci_blocked_state *s, const tci_tile *tile, tci_mem mem, tci_lin at)
{
    tci_build *b = s->b;
    int64_t pitch = (int64_t)tile->n_vecs * TCI_PANES_SIDE;
    for (int64_t r = 0; r * TCI_PANES_SIDE < tile->n_rows; r++) {
        for (int64_t c = 0; c < tile->n_vecs; c++) {
            tci_lin to = tci_lin_plus(at, TCI_PANES_SIDE * (r * pitch + c));
            tci_tiles_move(b, mem, (int)(2 * r + c), ~s->partial.part[0], to, pitch);
        }
    }
}

/* Step i of the block. */
static void tci_panes_step(tci_blocked_state *s, const tci_tile *tile, tci_lin i)
{
    tci_build *b = s->b;
    int64_t wide = s->p->is_vec_there ? 2 : 1; /* elements of a pair */
    tci_lin row = tci_lin_add(b, s->row_base, tci_lin_mul(b, i, TCI_PANES_SIDE));
    tci_lin column = tci_lin_add(b, s->vec->base,
                                 tci_lin_mul(b, i, wide * TCI_PANES_SIDE * s->tile));
    for (int64_t c = 0; c < tile->n_vecs; c++) {
        tci_tiles_move(b, TCI_MEM_TILE_LOAD, TCI_PANES_B + (int)c, ~s->vec_pairs,
                       tci_lin_plus(column, wide * TCI_PANES_SIDE * c), wide * s->tile);
    }
    for (int64_t r = 0; r * TCI_PANES_SIDE < tile->n_rows; r++) {
        tci_tiles_move(b, TCI_MEM_TILE_LOAD, TCI_PANES_A + (int)r, ~s->row_pairs,
                       tci_lin_plus(row, TCI_PANES_SIDE * r * s->row_step), s->row_step);
        for (int c = 0; c < tile->n_vecs; c++) {
            tci_tiles_add(b, 2 * (int)r + c, TCI_PANES_A + (int)r, TCI_PANES_B + c);
        }
    }
}

TCI_FN tci_lin tci_panes_multiply(tci_blocked_state *s, const tci_tile *tile, tci_lin number)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    int64_t last = s->p->n_depths - 1, sums = tci_panes_sums(s);
    tci_lin at = tci_lin_const(0);
    if (last > 0) {
        at = tci_lin_add(b, tci_lin_mul(b, s->tile_row, s->p->columns / s->tile), number);
        at = tci_lin_mul(b, at, sums);
        tci_build_if(b, tci_build_in_range(b, s->block, 1, last), &open);
        tci_panes_move(s, tile, TCI_MEM_TILE_LOAD, at);
        tci_build_close(b, &open);
        tci_build_if(b, tci_build_in_range(b, s->block, 0, 0), &open);
    }
    tci_panes_move(s, tile, TCI_MEM_TILE_ZERO, at);
    if (last > 0) {
        tci_build_close(b, &open);
    }
    int points = tci_build_lx(b, tci_lin_mul(b, s->depth, s->p->inner));
    int steps = tci_lx_make(l, TCI_LX_ADD, points, tci_lx_const(l, 2 * TCI_PANES_SIDE - 1), 0);
    steps = tci_lx_make(l, TCI_LX_DIV, steps, -1, 2 * TCI_PANES_SIDE);
    int i = tci_build_for(b, tci_lx_const(l, 0), steps, 1, &open);
    tci_panes_step(s, tile, tci_lin_var(b, i));
    tci_build_close(b, &open);
    tci_panes_move(s, tile, TCI_MEM_TILE_STORE, at);
    return at;
}
