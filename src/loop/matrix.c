/* loop/matrix.c - the schedule of contractions on a GPU's matrix units.
 *
 * In: a kernel of class MATRIX, the machine. Out: a skeleton (loop/matrix.h) whose hole is the
 * kernel's elementwise chain as loop IR: the sums are a value kept in shared memory, so the chain
 * is built like any other.
 *
 * The tile follows from a model of its time: the slower of multiplying and loading for each step of
 * k, or the chain where that takes longer, times the rounds that the units need; and the chain of
 * the last one. */
#include "matrix.h"

#include <string.h>

#include "build.h"
#include "stage.h"

enum {
    TCI_MATRIX_BARRIERS = 256,       /* bytes for them */
    TCI_MATRIX_ALIGNED = 1024,       /* the start of a stage's boxes */
    TCI_MATRIX_LEAST_STAGES = 3,
    TCI_MATRIX_COLUMN_STEP = 16,     /* columns that a warp leaves at once */
    TCI_MATRIX_HELD = 4,             /* least elements of a row that a thread of the hole holds */
    TCI_MATRIX_FILL = 2000,          /* cycles to a tile's first product, and to leave its sums */
    TCI_MATRIX_LIGHT = 24            /* cost of a chain of which four rows are taken at once */
};

/* ---- the tile ---- */

TCI_FN const tci_matrix_tile *tci_matrix_tiles(void)
{
    static const tci_matrix_tile tiles[TCI_MATRIX_TILES] = {
        {2, 1, 256}, {2, 2, 128}, {2, 1, 128}, {2, 1, 64},
        {1, 1, 256}, {1, 1, 128}, {1, 1, 64},  {1, 1, 32}};
    return tiles;
}

TCI_FN int64_t tci_matrix_stage_bytes(const tci_matrix *x)
{
    return (int64_t)(x->rows + x->columns) * TCI_MATRIX_DEPTH_STEP * 2;
}

TCI_FN int64_t tci_matrix_steps(const tci_matrix *x)
{
    return x->is_boxes ? x->k_steps : tci_ceil_div(x->k, TCI_MATRIX_DEPTH_STEP);
}

TCI_FN int64_t tci_matrix_staged_bytes(const tci_matrix *x)
{
    int64_t rows = (int64_t)TCI_MATRIX_SUB * x->sub_rows * x->buffers;
    return rows * x->staged_pitch * tci_dtype_get((tc_dtype)x->staged)->bytes;
}

TCI_FN int64_t tci_matrix_shared_bytes(const tci_matrix *x)
{
    return TCI_MATRIX_ALIGNED + x->stages * tci_matrix_stage_bytes(x) +
           tci_matrix_staged_bytes(x) + TCI_MATRIX_BARRIERS;
}

static void tci_matrix_set_buffers(tci_matrix *x, int buffers, const tc_machine *facts)
{
    x->buffers = buffers;
    x->stages = 0;
    int64_t room = facts->shared_most - tci_matrix_shared_bytes(x);
    x->stages = (int32_t)TCI_MIN(room / tci_matrix_stage_bytes(x), TCI_MATRIX_STAGES);
}

/* Cycles of one step of k, and of the chain for some elements. */
static double tci_matrix_step_cycles(const tci_matrix *x, const tci_machine *machine)
{
    double narrow = x->columns < 64 ? 0.4 : x->columns < 128 ? 0.7 : 1.0;
    double rate = machine->facts.matrix_flops * narrow *
                  (x->consumers == 1 ? 0.85 : 1.0);
    double active = (double)TCI_MIN(x->tiles, (int64_t)machine->matrix_units);
    double bandwidth = TCI_MIN(machine->facts.near_bytes, machine->facts.all_bytes / active);
    double multiply = (double)x->rows * x->columns * TCI_MATRIX_DEPTH_STEP * 2 / rate;
    double load = (double)tci_matrix_stage_bytes(x) / bandwidth;
    return TCI_MAX(multiply, load);
}

static double tci_matrix_hole_cycles(double cells, int64_t chain, int warps)
{
    return cells * (double)(chain + 8) / (warps * TCI_MATRIX_WARP);
}

/* The columns of a tile, `most` at most: where they are places of an image, whole rows of it, as
 * many for every tile as can be. False: not even one. */
static bool tci_matrix_set_columns(tci_matrix *x, int most)
{
    x->columns = x->own_columns = x->lanes = most;
    if (x->y_axis < 0) {
        return true;
    }
    int64_t rows = x->n / x->image_row, fit = TCI_MIN(most / x->image_row, rows);
    if (fit == 0) {
        return false;
    }
    fit = tci_ceil_div(rows, tci_ceil_div(rows, fit));
    x->own_columns = (int32_t)(fit * x->image_row);
    x->columns = (int32_t)(tci_ceil_div(x->own_columns, TCI_MATRIX_COLUMN_STEP) *
                           TCI_MATRIX_COLUMN_STEP);
    while (x->lanes / 2 >= x->columns && x->lanes / 2 >= TCI_MATRIX_WARP) {
        x->lanes /= 2;
    }
    return true;
}

/* Sets what follows from the tile's shape; false where it does not fit. A buffer for each consumer,
 * where that leaves stages enough. */
static bool tci_matrix_shape(tci_matrix *x, const tci_matrix_tile *tile, const tc_machine *facts)
{
    x->consumers = tile->consumers;
    x->sub_rows = tile->sub_rows;
    x->rows = TCI_MATRIX_SUB * x->consumers * x->sub_rows;
    if (!tci_matrix_set_columns(x, tile->columns)) {
        return false;
    }
    x->row_threads = TCI_MIN(x->lanes / TCI_MATRIX_HELD, TCI_MATRIX_WARP);
    x->staged_pitch = x->lanes + 8; /* rows begin in different banks */
    x->tiles_m = tci_ceil_div(x->m, x->rows);
    x->tiles_n = tci_ceil_div(x->n, x->own_columns);
    x->tiles = x->tiles_m * x->tiles_n;
    for (int i = 0; i < x->n_batch; i++) {
        x->tiles *= x->batch[i];
    }
    tci_matrix_set_buffers(x, x->consumers, facts);
    if (x->stages < TCI_MATRIX_LEAST_STAGES) {
        tci_matrix_set_buffers(x, 1, facts);
    }
    bool boxes = x->columns >= TCI_MATRIX_DEPTH_STEP || x->side[1].along_k; /* of whole lines */
    return boxes && x->stages >= TCI_MATRIX_LEAST_STAGES && x->tiles <= INT32_MAX / 2;
}

/* Cycles of the whole product, `chain` flops for each element of the result. */
static double tci_matrix_cycles(const tci_matrix *x, int64_t chain, const tci_machine *machine)
{
    double cells = (double)x->rows * x->columns;
    double steps = (double)tci_matrix_steps(x);
    double step = tci_matrix_step_cycles(x, machine), tile = TCI_MATRIX_FILL + steps * step;
    double hole = tci_matrix_hole_cycles(cells, chain, TCI_MATRIX_LAST_WARPS);
    if (x->buffers < x->consumers) { /* they wait for each other's, if not a ring of steps apart */
        tile += TCI_MAX(hole / x->consumers - x->stages * step, 0);
    }
    double last = tci_matrix_hole_cycles(cells, chain, TCI_MATRIX_LAST_WARPS + 4 * x->consumers);
    double rounds = (double)tci_ceil_div(x->tiles, machine->matrix_units);
    return rounds * tile + (rounds - 1) * TCI_MAX(hole - tile, 0) + last;
}

/* Of the stages from `first` on, for an element of the result. */
static int64_t tci_matrix_chain_cost(const tci_kernel *k, int first)
{
    int64_t cost = 0;
    for (int t = first; t < k->n_stages; t++) {
        cost += tci_stage_cost(k, t);
    }
    return cost;
}

TCI_FN void tci_matrix_set_groups(const tci_kernel *k, int first, tci_matrix *x)
{
    x->group_rows = tci_matrix_chain_cost(k, first) <= TCI_MATRIX_LIGHT ? 4 : 2;
    while (x->m % x->group_rows != 0) {
        x->group_rows /= 2;
    }
}

/* The product with that tile; false: it does not fit, or is none of those that the skeleton has. */
static bool tci_matrix_with(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                            tci_matrix *x)
{
    bool known = false;
    const tci_matrix_tile *tiles = tci_matrix_tiles();
    for (int i = 0; i < TCI_MATRIX_TILES; i++) {
        if (tiles[i].consumers == tile[0] && tiles[i].sub_rows == tile[1] &&
            tiles[i].columns == tile[2]) {
            known = tci_matrix_find(k, x) && tci_matrix_shape(x, &tiles[i], &machine->facts);
        }
    }
    if (known) {
        tci_matrix_set_groups(k, 1, x);
    }
    return known;
}

TCI_FN double tci_matrix_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile)
{
    tci_matrix x;
    if (!tci_matrix_with(k, machine, tile, &x)) {
        return -1;
    }
    return tci_matrix_cycles(&x, tci_matrix_chain_cost(k, 1), machine) / machine->facts.ghz;
}

/* ---- the hole ---- */

TCI_FN tci_lin tci_matrix_given(tci_build *b, int axis)
{
    const tci_matrix *x = b->l->matrix;
    tci_lin at = tci_build_let(b, tci_lx_make(b->l, TCI_LX_GIVEN, -1, -1, axis));
    b->l->indices[at.var[0]].multiple = axis == x->n_axis   ? x->own_columns
                                        : axis == x->m_axis ? x->group_rows
                                                            : 1;
    return at;
}

/* The sums of the rows at hand, where the main loop has left them. */
static void tci_matrix_keep(tci_build *b, const tci_matrix *x, int stage)
{
    int local = tci_build_local(b, (tc_dtype)x->staged, x->group_rows * x->staged_pitch, 0);
    b->l->locals[local].is_given = true;
    tci_lkeep *keep = tci_build_keep(b, x->value, local, stage);
    keep->is_padded = true;
    keep->coef[x->m_axis] = x->staged_pitch;
    keep->coef[x->n_axis] = 1;
    keep->origin[x->m_axis] = tci_matrix_given(b, x->m_axis);
    keep->origin[x->n_axis] = tci_matrix_given(b, x->n_axis);
}

/* The chain for all rows at hand: every value first, then the stores, as an output may be one of
 * the inputs. */
static void tci_matrix_rows(tci_build *b, const tci_matrix *x, const tci_bind *columns)
{
    const tci_kernel *k = b->k;
    int *values = TCI_NEW_ARRAY(b->s, int, x->group_rows * k->n_stores + 1);
    const tci_bind **rows = TCI_NEW_ARRAY(b->s, const tci_bind *, x->group_rows);
    tci_lin at = tci_matrix_given(b, x->m_axis);
    tci_build_set(b, x->n_axis, columns);
    for (int r = 0; r < x->group_rows; r++) {
        rows[r] = tci_build_bind(b, tci_lin_plus(at, r), r, x->m - x->group_rows + r, false, -1);
        tci_build_set(b, x->m_axis, rows[r]);
        for (int i = 0; i < k->n_stores; i++) {
            values[r * k->n_stores + i] = tci_build_value(b, k->stores[i].value);
        }
    }
    for (int r = 0; r < x->group_rows; r++) {
        tci_build_set(b, x->m_axis, rows[r]);
        for (int i = 0; i < k->n_stores; i++) {
            tci_build_store(b, &k->stores[i], values[r * k->n_stores + i], false);
        }
    }
}

/* The part for tiles whose first column lies in [lo, hi]; n: columns that exist, -1 all. */
static void tci_matrix_part(tci_build *b, const tci_matrix *x, int64_t lo, int64_t hi, int n)
{
    tci_lopen open;
    tci_lin at = tci_matrix_given(b, x->n_axis);
    tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, at), lo, hi), &open);
    int64_t last = n < 0 ? hi + x->own_columns - 1 : x->n - 1;
    tci_matrix_rows(b, x, tci_build_bind(b, at, lo, last, true, n));
    tci_build_close(b, &open);
}

TCI_FN void tci_matrix_hole(tci_build *b, const tci_matrix *x, int stage)
{
    tci_matrix_keep(b, x, stage);
    for (int i = 0; i < x->n_batch; i++) {
        tci_lin at = tci_matrix_given(b, x->batch_axis[i]);
        tci_build_set(b, x->batch_axis[i],
                      tci_build_bind(b, at, 0, x->batch[i] - 1, false, -1));
    }
    if (x->y_axis >= 0) { /* the other axis of the columns counts for both */
        tci_build_set(b, x->y_axis,
                      tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    }
    b->stage = stage + 1;
    int64_t own = x->own_columns;
    int all = own < x->lanes ? tci_lx_const(b->l, own) : -1;
    if (x->n % own == 0) {
        tci_lin at = tci_matrix_given(b, x->n_axis);
        tci_matrix_rows(b, x, tci_build_bind(b, at, 0, x->n - 1, true, all));
        return;
    }
    int64_t cut = x->n / own * own; /* the first column of the last tiles */
    if (cut > 0) {
        tci_matrix_part(b, x, 0, cut - own, all);
    }
    tci_matrix_part(b, x, cut, cut, tci_lx_const(b->l, x->n - cut));
}

/* ---- the whole ---- */

TCI_FN void tci_matrix_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                            tci_launch *launch)
{
    tci_matrix *x = TCI_NEW(b->s, tci_matrix);
    bool fits = tci_matrix_with(b->k, machine, tile, x);
    TCI_ASSERT(b->s, fits);
    b->l->lanes = x->lanes;
    b->l->threads = x->row_threads;
    b->l->matrix = x;
    tci_matrix_hole(b, x, 0);
    launch->n_tasks = TCI_MIN(x->tiles, machine->matrix_units);
    launch->task_ns = tci_matrix_ns(b->k, machine, tile);
}
