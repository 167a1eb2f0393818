/* ops/lu_cholesky.c - LU, Cholesky and triangular solves as loops (REPEAT) of one elimination step
 * per iteration.
 *
 * In: square matrices [..., n, n] in the dtype that they are computed in. Out: nodes whose number
 * does not depend on n.
 *
 * Design: matrices are stored transposed, [batch, column, row], so a step for a column is
 * arithmetic on vectors. Up to TCI_ELIMINATE_WHOLE columns, a loop (REPEAT node) eliminates one
 * column after the other. Larger matrices are processed in blocks of columns: within a block as
 * before, and the update of all other columns is one GEMM. Triangles are solved by blocks too, each
 * by the inverse of its diagonal block; these inverses are computed all at once.
 *
 * Rows stay in place; a list holds the pivot row of each column. */
#include "composite.h"

#include "../graph/loop_node.h"

enum {
    TCI_ELIMINATE_WHOLE = 64, /* columns that are not cut into blocks */
    TCI_ELIMINATE_BLOCK = 32
};

/* ---- loops ---- */

enum { TCI_ELIMINATE_PARTS = 4 };

typedef struct tci_eliminate tci_eliminate;
struct tci_eliminate {
    tci_graph *g;
    int n_carry, n_x, n_y;
    tci_node *init[TCI_ELIMINATE_PARTS], *xs[TCI_ELIMINATE_PARTS];
    tci_node *carry[TCI_ELIMINATE_PARTS], *x[TCI_ELIMINATE_PARTS]; /* of a step */
    tci_node *next[TCI_ELIMINATE_PARTS], *y[TCI_ELIMINATE_PARTS];
    tci_node *last[TCI_ELIMINATE_PARTS], *ys[TCI_ELIMINATE_PARTS]; /* of all */
    tci_node *start; /* 0-d: the first column of the block */
    bool unit;       /* the diagonal is ones */
};

/* BOUND nodes for a step; skipped: axes in front that a step is an element of. */
static bool tci_eliminate_bind(tci_eliminate *e, tci_node *const *of, int n, int skipped,
                               tci_node **bound)
{
    for (int i = 0; i < n; i++) {
        bound[i] = !of[i] ? NULL
                          : tci_build_bound(e->g, (tc_dtype)of[i]->dtype, of[i]->rank - skipped,
                                            of[i]->shape + skipped);
        if (!bound[i]) {
            return false;
        }
    }
    return true;
}

/* A graph of a compile has its scratch, which a longjmp drops; a context's graph has none. */
static tci_node *tci_eliminate_node(tci_graph *g, const tci_repeat *r)
{
    tci_scratch s;
    tci_node *made = NULL;
    if (g->scratch) {
        return tci_build_repeat(g->scratch, g, r);
    }
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_graph_fail(g, s.why, "%s", s.message);
        tci_scratch_free(&s);
        return NULL;
    }
    made = tci_build_repeat(&s, g, r);
    tci_scratch_free(&s);
    return made;
}

/* Repeats `step`, for each element of xs, from init on: last and ys, NULL on failure. */
static void tci_eliminate_repeat(tci_eliminate *e, void (*step)(tci_eliminate *e))
{
    if (!tci_eliminate_bind(e, e->init, e->n_carry, 0, e->carry) ||
        !tci_eliminate_bind(e, e->xs, e->n_x, 1, e->x)) {
        return;
    }
    step(e);
    for (int i = 0; i < e->n_carry + e->n_y; i++) {
        if (!(i < e->n_carry ? e->next[i] : e->y[i - e->n_carry])) {
            return;
        }
    }
    const tci_repeat r = {.n_carry = e->n_carry,
                          .n_x = e->n_x,
                          .n_y = e->n_y,
                          .length = tci_dim_known(e->xs[0]->shape[0]),
                          .stops = -1,
                          .init = e->init,
                          .xs = e->xs,
                          .carry = e->carry,
                          .x = e->x,
                          .next = e->next,
                          .y = e->y};
    tci_node *repeat = tci_eliminate_node(e->g, &r);
    for (int i = 0; repeat && i < e->n_carry + e->n_y; i++) {
        tci_node *result = tci_build_result(e->g, repeat, i);
        *(i < e->n_carry ? &e->last[i] : &e->ys[i - e->n_carry]) = result;
    }
}

/* ---- parts of [batch, column, row] ---- */

static tci_node *tci_eliminate_ramp(tci_graph *g, tci_dim n, int axis)
{
    return tci_composite_ramp(g, n, 3, axis);
}

static tci_node *tci_eliminate_range(tci_graph *g, tci_node *x, int axis, int64_t from, int64_t to)
{
    return tci_build_slice(g, x, axis, from, to, 1);
}

/* Elements of x along an axis at `at`: one (0-d), or several neighbours from there on. */
static tci_node *tci_eliminate_at(tci_graph *g, tci_node *x, int axis, tci_node *at, int64_t many)
{
    at = tci_composite_binary(g, TCI_OP_ADD, at, tci_composite_ramp(g, many, 1, 0));
    return tci_build_index_select(g, x, axis, at);
}

/* [a, b, ...] with sizes that are all given. */
static tci_node *tci_eliminate_shaped(tci_graph *g, tci_node *x, int rank, tci_dim a, tci_dim b,
                                      tci_dim c, tci_dim d)
{
    const tci_dim shape[4] = {a, b, c, d};
    return tci_build_reshape(g, x, rank, shape);
}

static int64_t tci_eliminate_size(const tci_node *x, int axis)
{
    return x ? tci_dim_known(x->shape[axis]) : 0;
}

/* x [..., n, m] as [batch, n, m]. */
static tci_node *tci_eliminate_batch(tci_graph *g, tci_node *x)
{
    tci_dim batch = 1;
    for (int i = 0; x && i < x->rank - 2; i++) {
        batch = tci_dim_mul(batch, x->shape[i]);
    }
    return x ? tci_eliminate_shaped(g, x, 3, batch, x->shape[x->rank - 2], x->shape[x->rank - 1], 0)
             : NULL;
}

/* Number of columns of a block, and number of columns padded to whole blocks. */
static int64_t tci_eliminate_block(int64_t n)
{
    return n > TCI_ELIMINATE_WHOLE ? TCI_ELIMINATE_BLOCK : TCI_MAX(n, 1);
}

static int64_t tci_eliminate_filled(int64_t n)
{
    const int64_t block = tci_eliminate_block(n);
    return (n + block - 1) / block * block;
}

/* x [batch, n, m] with this many rows and columns: ones on the diagonal where it had none; square:
 * whether it goes on along the last axis. */
static tci_node *tci_eliminate_fill(tci_graph *g, tci_node *x, int64_t n, bool square)
{
    const int64_t had = tci_eliminate_size(x, 1);
    if (!x || had == n) {
        return x;
    }
    tci_node *zero = tci_composite_number(g, (tc_dtype)x->dtype, 0);
    x = tci_build_pad(g, x, 1, 0, n - had, zero);
    if (!square) {
        return x;
    }
    tci_node *row = tci_eliminate_ramp(g, n, 1), *column = tci_eliminate_ramp(g, n, 2);
    tci_node *own = tci_composite_binary(g, TCI_OP_EQ, row, column);
    tci_node *more = tci_composite_binary(g, TCI_OP_GE, row, tci_composite_whole(g, had));
    own = tci_composite_binary(g, TCI_OP_LOGICAL_AND, own, more);
    x = tci_build_pad(g, x, 2, 0, n - had, zero);
    return tci_build_where(g, own, tci_composite_number(g, x ? (tc_dtype)x->dtype : TC_F32, 1), x);
}

/* a - b * c */
static tci_node *tci_eliminate_less(tci_graph *g, tci_node *a, tci_node *b, tci_node *c)
{
    return tci_composite_binary(g, TCI_OP_SUB, a, tci_composite_binary(g, TCI_OP_MUL, b, c));
}

/* Columns of x [batch, column, row] at the rows that an index [batch, 1, any] names. */
static tci_node *tci_eliminate_rows(tci_graph *g, tci_node *x, tci_node *index)
{
    if (!x || !index) {
        return NULL;
    }
    const tci_dim shape[3] = {x->shape[0], x->shape[1], index->shape[2]};
    return tci_build_gather(g, x, 2, tci_build_broadcast(g, index, 3, shape));
}

/* ---- a step of a column ----
 * carry 0: the columns of a block; x 0: which of them is taken; y 0: what becomes of it. Columns
 * that were taken before still change, but nothing reads them. */

static tci_node *tci_eliminate_column(tci_eliminate *e)
{
    return tci_eliminate_at(e->g, e->carry[0], 1, e->x[0], 1);
}

/* carry 1: of each row the column that it was the pivot of, or -1, as a float, so that it has as
 * many lanes as the columns; carries 2 and 3: what the column before is to change yet, of each
 * column and of each row, so that this is a kernel that waits for no pivot. y 1: the pivot's
 * row. */
static void tci_eliminate_lu_step(tci_eliminate *e)
{
    tci_graph *g = e->g;
    tci_node *panel = tci_eliminate_less(g, e->carry[0], e->carry[2], e->carry[3]);
    tci_node *column = tci_eliminate_less(g, tci_eliminate_at(g, e->carry[0], 1, e->x[0], 1),
                                          tci_eliminate_at(g, e->carry[2], 1, e->x[0], 1),
                                          e->carry[3]);
    const tc_dtype t = (tc_dtype)e->carry[0]->dtype;
    tci_node *zero = tci_composite_number(g, t, 0), *one = tci_composite_number(g, t, 1);
    tci_node *number = e->carry[1], *free = tci_composite_binary(g, TCI_OP_LT, number, zero);
    int axis = 2;
    const tc_axes rows = {&axis, 1, false};
    tci_node *size = tci_build_where(g, free, tci_composite_unary(g, TCI_OP_ABS, column),
                                     tci_composite_number(g, t, -1));
    tci_node *at = e->y[1] = tci_build_reduce(g, TCI_OP_ARGMAX, size, rows, true);
    if (!at || !panel) {
        return;
    }
    tci_node *own = tci_composite_binary(g, TCI_OP_EQ, tci_eliminate_ramp(g, panel->shape[2], 2),
                                         at);
    tci_node *step = tci_composite_binary(g, TCI_OP_ADD, e->x[0], e->start);
    e->next[1] = number = tci_build_where(g, own, tci_build_cast(g, step, t), number);
    free = tci_composite_binary(g, TCI_OP_LT, number, zero);
    tci_node *pivot = tci_build_gather(g, column, 2, at);
    tci_node *empty = tci_composite_binary(g, TCI_OP_EQ, pivot, zero);
    tci_node *part = tci_composite_binary(g, TCI_OP_DIV, column,
                                          tci_build_where(g, empty, one, pivot));
    e->y[0] = tci_build_where(g, free, part, column);
    e->next[0] = panel;
    e->next[2] = tci_eliminate_rows(g, panel, at);
    e->next[3] = tci_build_where(g, free, part, zero);
}

static void tci_eliminate_cholesky_step(tci_eliminate *e)
{
    tci_graph *g = e->g;
    tci_node *panel = e->carry[0], *column = tci_eliminate_column(e);
    tci_node *at = tci_composite_binary(g, TCI_OP_ADD, e->x[0], e->start);
    tci_node *root = tci_eliminate_at(g, column, 2, at, 1);
    tci_node *below = tci_composite_binary(g, TCI_OP_GE, tci_eliminate_ramp(g, panel->shape[2], 2),
                                           at);
    root = tci_composite_unary(g, TCI_OP_SQRT, root);
    column = tci_build_where(g, below, tci_composite_binary(g, TCI_OP_DIV, column, root),
                             tci_composite_number(g, (tc_dtype)panel->dtype, 0));
    tci_node *across = tci_eliminate_at(g, panel, 2, at, 1);
    e->y[0] = column;
    e->next[0] = tci_eliminate_less(g, panel, tci_composite_binary(g, TCI_OP_DIV, across, root),
                                    column);
}

/* Results [steps, batch, 1, ...] as [batch, steps, ...]. */
static tci_node *tci_eliminate_stacked(tci_graph *g, tci_node *x)
{
    const int axes[4] = {1, 0, 2, 3};
    return !x ? NULL
              : tci_eliminate_shaped(g, tci_build_permute(g, x, 4, axes), 3, x->shape[1],
                                     x->shape[0], x->shape[3], 0);
}

/* All columns of a panel taken: what became of them; [batch, column, row]. */
static tci_node *tci_eliminate_panel(tci_eliminate *e, tci_node *panel,
                                     void (*step)(tci_eliminate *e))
{
    e->init[0] = panel;
    e->xs[0] = panel ? tci_composite_ramp(e->g, panel->shape[1], 1, 0) : NULL;
    e->n_x = 1;
    tci_eliminate_repeat(e, step);
    return tci_eliminate_stacked(e->g, e->ys[0]);
}

/* ---- triangles: a x = b of lower ones, [batch, n, n] and [batch, n, k] ---- */

/* carry 0: what is left of b for the rows that are not found; x 0: the number of a row, x 1: the
 * column of a. y 0: the row of x. */
static void tci_eliminate_substitute_step(tci_eliminate *e)
{
    tci_graph *g = e->g;
    tci_node *row = tci_eliminate_at(g, e->carry[0], 1, e->x[0], 1);
    if (!e->unit) {
        row = tci_composite_binary(g, TCI_OP_DIV, row, tci_eliminate_at(g, e->x[1], 1, e->x[0], 1));
    }
    e->y[0] = row;
    e->next[0] = tci_eliminate_less(g, e->carry[0], e->x[1], row);
}

static tci_node *tci_eliminate_substitute(tci_graph *g, tci_node *a, tci_node *b, bool unit)
{
    if (!a || !b) {
        return NULL;
    }
    const int axes[3] = {2, 0, 1};
    tci_eliminate e = {.g = g, .n_carry = 1, .n_x = 2, .n_y = 1, .unit = unit};
    e.init[0] = b;
    e.xs[0] = tci_composite_ramp(g, a->shape[1], 1, 0);
    e.xs[1] = tci_build_unsqueeze(g, tci_build_permute(g, a, 3, axes), -1);
    tci_eliminate_repeat(&e, tci_eliminate_substitute_step);
    return tci_eliminate_stacked(g, e.ys[0]);
}

/* The rows of x of a block. carry 0: x, 0 where it is not found yet; xs: the number of the block,
 * its rows of a, the inverse of its triangle, its rows of b. */
static void tci_eliminate_block_step(tci_eliminate *e)
{
    tci_graph *g = e->g;
    tci_node *x = e->carry[0];
    tci_node *rows = tci_composite_binary(g, TCI_OP_SUB, e->x[3], tci_build_matmul(g, e->x[1], x));
    e->y[0] = rows = tci_build_matmul(g, e->x[2], rows);
    if (!rows) {
        return;
    }
    const int64_t block = tci_dim_known(rows->shape[1]);
    tci_node *cut = tci_eliminate_shaped(g, x, 4, x->shape[0], tci_dim_known(x->shape[1]) / block,
                                         block, x->shape[2]);
    tci_node *own = cut ? tci_composite_ramp(g, cut->shape[1], 4, 1) : NULL;
    own = tci_composite_binary(g, TCI_OP_EQ, own, e->x[0]);
    cut = tci_build_where(g, own, tci_build_unsqueeze(g, rows, 1), cut);
    e->next[0] = tci_eliminate_shaped(g, cut, 3, x->shape[0], x->shape[1], x->shape[2], 0);
}

/* [batch, n, m] as [n / block, batch, block, m]. */
static tci_node *tci_eliminate_in_blocks(tci_graph *g, tci_node *x, int64_t block)
{
    const int axes[4] = {1, 0, 2, 3};
    x = !x ? NULL
           : tci_eliminate_shaped(g, x, 4, x->shape[0], tci_dim_known(x->shape[1]) / block, block,
                                  x->shape[2]);
    return tci_build_permute(g, x, 4, axes);
}

/* The blocks on the diagonal of [batch, n, n], as [n / block, batch, block, block]. */
static tci_node *tci_eliminate_diagonal(tci_graph *g, tci_node *a, int64_t block)
{
    tci_node *x = tci_eliminate_in_blocks(g, a, block);
    if (!x) {
        return NULL;
    }
    const int64_t many = tci_dim_known(x->shape[0]);
    const tci_dim shape[5] = {many, x->shape[1], block, many, block};
    x = tci_build_diagonal(g, tci_build_reshape(g, x, 5, shape), 0, 0, 3);
    const int axes[4] = {3, 0, 1, 2};
    return tci_build_permute(g, x, 4, axes);
}

static tci_node *tci_eliminate_triangle(tci_graph *g, tci_node *a, tci_node *b, bool unit)
{
    const int64_t n = tci_eliminate_size(a, 1), block = tci_eliminate_block(n);
    if (n == block) {
        return tci_eliminate_substitute(g, a, b, unit);
    }
    const int64_t filled = tci_eliminate_filled(n);
    a = tci_eliminate_fill(g, a, filled, true);
    b = tci_eliminate_fill(g, b, filled, false);
    tci_node *own = tci_eliminate_diagonal(g, a, block);
    if (!own || !b) {
        return NULL;
    }
    const tci_dim all = tci_dim_mul(own->shape[0], own->shape[1]);
    tci_node *row = tci_eliminate_ramp(g, block, 1), *column = tci_eliminate_ramp(g, block, 2);
    tci_node *one = tci_build_cast(g, tci_composite_binary(g, TCI_OP_EQ, row, column),
                                   (tc_dtype)own->dtype);
    tci_node *flat = tci_eliminate_shaped(g, own, 3, all, block, block, 0);
    one = flat ? tci_build_broadcast(g, one, 3, flat->shape) : NULL;
    tci_node *inverse = tci_eliminate_substitute(g, flat, one, unit);
    tci_eliminate e = {.g = g, .n_carry = 1, .n_x = 4, .n_y = 1};
    e.init[0] = tci_build_broadcast(g, tci_composite_number(g, (tc_dtype)b->dtype, 0), 3, b->shape);
    e.xs[0] = tci_composite_ramp(g, own->shape[0], 1, 0);
    e.xs[1] = tci_eliminate_in_blocks(g, tci_build_triangle(g, a, -1, true), block);
    e.xs[2] = tci_eliminate_shaped(g, inverse, 4, own->shape[0], own->shape[1], block, block);
    e.xs[3] = tci_eliminate_in_blocks(g, b, block);
    tci_eliminate_repeat(&e, tci_eliminate_block_step);
    return tci_eliminate_range(g, e.last[0], 1, 0, n);
}

/* The same of upper ones: rows and columns in reverse are those of a lower one. */
static tci_node *tci_eliminate_upper(tci_graph *g, tci_node *a, tci_node *b, bool unit)
{
    a = tci_build_flip(g, tci_build_flip(g, a, 2), 1);
    b = tci_eliminate_triangle(g, a, tci_build_flip(g, b, 1), unit);
    return tci_build_flip(g, b, 1);
}

/* ---- factors ---- */

/* x 0: the number of a block. carry 0: all columns. y 0: those of the block. */
static void tci_eliminate_cholesky_block(tci_eliminate *e)
{
    tci_graph *g = e->g;
    tci_node *all = e->carry[0];
    tci_node *start = tci_composite_binary(g, TCI_OP_MUL, e->x[0],
                                           tci_composite_whole(g, TCI_ELIMINATE_BLOCK));
    tci_eliminate inner = {.g = g, .n_carry = 1, .n_y = 1, .start = start};
    e->y[0] = tci_eliminate_panel(&inner, tci_eliminate_at(g, all, 1, start, TCI_ELIMINATE_BLOCK),
                                  tci_eliminate_cholesky_step);
    tci_node *product = tci_build_matmul(g, tci_build_transpose(g, e->y[0], 1, 2), e->y[0]);
    e->next[0] = tci_composite_binary(g, TCI_OP_SUB, all, product);
}

/* Results of blocks, [blocks, batch, a, b], as [batch, ...], with the blocks along `axis`. */
static tci_node *tci_eliminate_joined(tci_graph *g, tci_node *x, int axis)
{
    const int axes[4] = {1, axis == 1 ? 0 : 2, axis == 1 ? 2 : 0, 3};
    if (!x) {
        return NULL;
    }
    const tci_dim many = x->shape[0], a = x->shape[2], b = x->shape[3];
    return tci_eliminate_shaped(g, tci_build_permute(g, x, 4, axes), 3, x->shape[1],
                                axis == 1 ? tci_dim_mul(many, a) : a,
                                axis == 1 ? b : tci_dim_mul(many, b), 0);
}

TCI_FN tci_node *tci_expand_CHOLESKY(tci_graph *g, tci_node *n)
{
    tci_node *a = tci_eliminate_batch(g, n->in[0]);
    const int64_t size = tci_eliminate_size(a, 1), filled = tci_eliminate_filled(size);
    tci_eliminate e = {.g = g, .n_carry = 1, .n_y = 1, .start = tci_composite_whole(g, 0)};
    if (size <= TCI_ELIMINATE_WHOLE) {
        a = tci_eliminate_panel(&e, a, tci_eliminate_cholesky_step);
    } else {
        e.n_x = 1;
        e.init[0] = tci_eliminate_fill(g, a, filled, true);
        e.xs[0] = tci_composite_ramp(g, filled / TCI_ELIMINATE_BLOCK, 1, 0);
        tci_eliminate_repeat(&e, tci_eliminate_cholesky_block);
        a = tci_eliminate_joined(g, e.ys[0], 1);
        a = tci_eliminate_range(g, tci_eliminate_range(g, a, 1, 0, size), 2, 0, size);
    }
    return tci_build_reshape(g, tci_build_transpose(g, a, 1, 2), n->rank, n->shape);
}

/* Pivots [steps, batch, 1, 1] as [batch, 1, steps]. */
static tci_node *tci_eliminate_list(tci_graph *g, tci_node *pivots)
{
    const int axes[4] = {1, 2, 3, 0};
    return !pivots ? NULL
                   : tci_eliminate_shaped(g, tci_build_permute(g, pivots, 4, axes), 3,
                                          pivots->shape[1], 1, pivots->shape[0], 0);
}

/* tci_eliminate_panel of an LU; number: of carry 1, before and after. */
static tci_node *tci_eliminate_lu_panel(tci_graph *g, tci_node *panel, tci_node *start,
                                        tci_node **number, tci_node **pivots)
{
    tci_eliminate e = {.g = g, .n_carry = 4, .n_y = 2, .start = start};
    if (!panel) {
        return NULL;
    }
    tci_node *zero = tci_composite_number(g, (tc_dtype)panel->dtype, 0);
    const tci_dim columns[3] = {panel->shape[0], panel->shape[1], 1};
    const tci_dim rows[3] = {panel->shape[0], 1, panel->shape[2]};
    e.init[1] = *number;
    e.init[2] = tci_build_broadcast(g, zero, 3, columns);
    e.init[3] = tci_build_broadcast(g, zero, 3, rows);
    panel = tci_eliminate_panel(&e, panel, tci_eliminate_lu_step);
    *number = e.last[1];
    *pivots = tci_eliminate_list(g, e.ys[1]);
    return panel;
}

/* carry 0: all columns; carry 1: numbers of rows, as of a step; x 0: the number of a block. y 0:
 * its columns; y 1: the rows of its pivots, [batch, 1, pivot]; y 2: what the upper factor has
 * there, [batch, column, pivot]. */
static void tci_eliminate_lu_block(tci_eliminate *e)
{
    tci_graph *g = e->g;
    tci_node *all = e->carry[0], *number = e->carry[1], *pivots = NULL;
    tci_node *start = tci_composite_binary(g, TCI_OP_MUL, e->x[0],
                                           tci_composite_whole(g, TCI_ELIMINATE_BLOCK));
    tci_node *panel = tci_eliminate_at(g, all, 1, start, TCI_ELIMINATE_BLOCK);
    e->y[0] = panel = tci_eliminate_lu_panel(g, panel, start, &number, &pivots);
    e->y[1] = pivots;
    e->next[1] = number;
    tci_node *own = tci_build_transpose(g, tci_eliminate_rows(g, panel, pivots), 1, 2);
    tci_node *rows = tci_build_transpose(g, tci_eliminate_rows(g, all, pivots), 1, 2);
    rows = tci_build_transpose(g, tci_eliminate_substitute(g, own, rows, true), 1, 2);
    e->y[2] = rows;
    /* of the pivots' rows too, which nothing reads again */
    e->next[0] = tci_composite_binary(g, TCI_OP_SUB, all, tci_build_matmul(g, rows, panel));
}

/* The columns of all blocks at their pivots, and in later blocks what the upper factor has. */
static tci_node *tci_eliminate_lu_blocks(tci_graph *g, tci_node *a, tci_node *number,
                                         tci_node **order)
{
    tci_eliminate e = {.g = g, .n_carry = 2, .n_x = 1, .n_y = 3};
    const int64_t n = tci_eliminate_size(a, 1);
    e.init[0] = a;
    e.init[1] = number;
    e.xs[0] = tci_composite_ramp(g, n / TCI_ELIMINATE_BLOCK, 1, 0);
    tci_eliminate_repeat(&e, tci_eliminate_lu_block);
    *order = tci_eliminate_joined(g, e.ys[1], 2);
    tci_node *block = tci_composite_whole(g, TCI_ELIMINATE_BLOCK);
    tci_node *row = tci_composite_binary(g, TCI_OP_FLOOR_DIVIDE, tci_eliminate_ramp(g, n, 2),
                                         block);
    tci_node *column = tci_composite_binary(g, TCI_OP_FLOOR_DIVIDE, tci_eliminate_ramp(g, n, 1),
                                            block);
    return tci_build_where(g, tci_composite_binary(g, TCI_OP_GT, column, row),
                           tci_eliminate_joined(g, e.ys[2], 2),
                           tci_eliminate_rows(g, tci_eliminate_joined(g, e.ys[0], 1), *order));
}

/* Both factors in one: the lower one has ones on its diagonal. In row n + 1 which row of a is row i
 * of their product. */
TCI_FN tci_node *tci_expand_LU(tci_graph *g, tci_node *n)
{
    tci_node *a = tci_build_transpose(g, tci_eliminate_batch(g, n->in[0]), 1, 2), *order = NULL;
    const int64_t size = tci_eliminate_size(a, 1);
    a = tci_eliminate_fill(g, a, tci_eliminate_filled(size), true);
    if (!a) {
        return NULL;
    }
    const tci_dim line[3] = {a->shape[0], 1, a->shape[2]};
    tci_node *number = tci_composite_number(g, (tc_dtype)a->dtype, -1);
    number = tci_build_broadcast(g, number, 3, line);
    if (size <= TCI_ELIMINATE_WHOLE) {
        a = tci_eliminate_lu_panel(g, a, tci_composite_whole(g, 0), &number, &order);
        a = tci_eliminate_rows(g, a, order);
    } else {
        a = tci_eliminate_lu_blocks(g, a, number, &order);
    }
    a = tci_eliminate_range(g, tci_eliminate_range(g, a, 1, 0, size), 2, 0, size);
    order = tci_eliminate_range(g, order, 2, 0, size);
    tci_node *parts[2] = {tci_build_transpose(g, a, 1, 2),
                          tci_build_cast(g, order, (tc_dtype)n->dtype)};
    return tci_build_reshape(g, tci_build_cat(g, parts, 2, 1), n->rank, n->shape);
}

/* ---- solutions ---- */

TCI_FN tci_node *tci_expand_SOLVE_TRIANGULAR(tci_graph *g, tci_node *n)
{
    tci_node *a = tci_eliminate_batch(g, n->in[0]), *b = tci_eliminate_batch(g, n->in[1]);
    b = tci_eliminate_triangle(g, a, b, n->attr[0] != 0);
    return tci_build_reshape(g, b, n->rank, n->shape);
}

/* in[1]: the LU of in[0], and all that is read. P a = L U; the transpose of a is U' L' P. */
TCI_FN tci_node *tci_expand_SOLVE(tci_graph *g, tci_node *n)
{
    tci_node *lu = tci_eliminate_batch(g, n->in[1]), *b = tci_eliminate_batch(g, n->in[2]);
    const int64_t size = tci_eliminate_size(lu, 2);
    tci_node *order = tci_build_cast(g, tci_eliminate_range(g, lu, 1, size, size + 1), TC_I64);
    order = tci_build_transpose(g, order, 1, 2);
    lu = tci_eliminate_range(g, lu, 1, 0, size);
    if (!lu || !b || !order) {
        return NULL;
    }
    order = tci_build_broadcast(g, order, 3, b->shape);
    if (n->attr[0]) {
        lu = tci_build_transpose(g, lu, 1, 2);
        b = tci_eliminate_upper(g, lu, tci_eliminate_triangle(g, lu, b, false), true);
        tci_node *zero = tci_composite_number(g, (tc_dtype)n->dtype, 0);
        zero = b ? tci_build_broadcast(g, zero, 3, b->shape) : NULL;
        b = tci_build_scatter(g, zero, 1, order, b, TCI_MODE_SET);
    } else {
        b = tci_eliminate_triangle(g, lu, tci_build_gather(g, b, 1, order), true);
        b = tci_eliminate_upper(g, lu, b, false);
    }
    return tci_build_reshape(g, b, n->rank, n->shape);
}
