/* loop/task_nest.c - decomposes the outer iteration space of a kernel into tasks (run by one thread
 * or GPU block at a time) and units of a task: the outer loops around the body of a schedule.
 *
 * In: what a schedule tiles, the size of a chunk. Out: the loop over a task's units, and for each
 * a call of the schedule's body with its coordinates. The decomposition never changes a result. */
#include "task_nest.h"

TCI_FN tci_nest tci_nest_make(const tci_query *a, tci_build *b)
{
    tci_nest n = {0};
    n.a = a;
    n.b = b;
    n.vec_axis = n.row_axis = -1;
    n.n_vec = n.n_tiles = 1;
    n.chunk = 1;
    n.joined = n.rows = 1;
    return n;
}

/* ---- sizes ---- */

static double tci_nest_target(const tci_nest *n)
{
    double wake = n->a->machine.facts.wake_ns; /* tasks are longer than it takes to share them */
    return TCI_MAX(TCI_MIN(n->a->tasks_ns / 64, 4 * wake), wake / 5);
}

static void tci_nest_points(tci_nest *n)
{
    const tci_kernel *k = n->a->k;
    n->others = TCI_NEW_ARRAY(n->a->s, int, k->n_outer + 1);
    n->n_others = 0;
    n->points = 1;
    for (int a = 0; a < k->n_outer; a++) {
        bool fixed = a != n->vec_axis && a != n->row_axis && !(n->tiled && n->tiled[a]);
        if (fixed) {
            n->others[n->n_others++] = a;
            n->points = tci_dim_mul(n->points, k->axes[a].size);
        }
    }
}

/* Pieces that each point is worth being cut into. */
static int64_t tci_nest_pieces(const tci_nest *n)
{
    int64_t points = tci_dim_hint(n->points);
    return points > 0 ? (int64_t)(n->a->tasks_ns / (double)points / tci_nest_target(n)) : 1;
}

TCI_FN void tci_nest_cut(tci_nest *n, int64_t step, int64_t least)
{
    tci_nest_points(n);
    int64_t n_vec = tci_dim_hint(n->n_vec), pieces = tci_nest_pieces(n);
    int64_t want = tci_ceil_div(n_vec, TCI_MAX(pieces, 1));
    int64_t chunk = TCI_MIN(TCI_MAX(want, least), TCI_MAX(n_vec, 1));
    n->chunk = n->a->machine.block_threads > 0 ? step : tci_ceil_div(chunk, step) * step;
}

/* Units that are row tiles: a range of tasks may begin and end inside a group, so that any number
 * of threads gets even shares, and each packs the columns of a chunk once for the whole of its
 * range. */
static void tci_nest_shares(tci_nest *n)
{
    n->n_groups = tci_dim_ceil_div(n->n_tiles, n->group);
    n->units = tci_dim_mul(tci_dim_mul(n->points, n->n_chunks), tci_dim_mul(n->n_groups, n->group));
    int64_t units = TCI_MAX(tci_dim_hint(n->units), 1);
    double share_ns = n->a->tasks_ns * (double)n->share / (double)units;
    n->grain = TCI_MAX((int64_t)(tci_nest_target(n) / share_ns), 1) * n->share;
    n->grain = TCI_MIN(n->grain, tci_ceil_div(units, n->share) * n->share);
}

static void tci_nest_units(tci_nest *n)
{
    tci_nest_points(n);
    n->n_chunks = tci_dim_ceil_div(n->n_vec, n->chunk);
    if (n->share > 0) {
        tci_nest_shares(n);
        return;
    }
    int64_t n_chunks = tci_dim_hint(n->n_chunks), pieces = tci_nest_pieces(n);
    bool blocks = n->a->machine.block_threads > 0;
    if (blocks) {
        n->group = 1;
    } else if (n->group == 0) {
        int64_t n_tiles = tci_dim_hint(n->n_tiles);
        n->group = n_tiles;
        if (n_chunks > 0 && pieces > n_chunks) {
            n->group = TCI_MAX(n_tiles / tci_ceil_div(pieces, n_chunks), 1);
        }
    }
    n->n_groups = tci_dim_ceil_div(n->n_tiles, tci_dim_max(n->group, 1));
    n->units = tci_dim_mul(tci_dim_mul(n->points, n->n_chunks), n->n_groups);
    n->grain = n->rows;
    if (!blocks) {
        int64_t units = TCI_MAX(tci_dim_hint(n->units), 1);
        double unit_ns = n->a->tasks_ns / (double)units;
        n->grain = TCI_MIN(TCI_MAX((int64_t)(tci_nest_target(n) / unit_ns), 1), units);
    }
}

/* ---- loops ---- */

/* Takes x apart: the remainder by size is returned, x becomes the quotient. */
static tci_lin tci_nest_digit(tci_build *b, tci_lin *x, tci_dim size, bool top)
{
    if (size == 1) {
        return tci_lin_const(0);
    }
    tci_lin digit = *x;
    if (!top) {
        int lx = tci_build_lx(b, *x);
        digit = tci_build_let(b, tci_lx_make(b->l, TCI_LX_MOD, lx, -1, size));
        *x = tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, lx, -1, size));
    }
    return digit;
}

/* Opens the loop over the groups that the row tiles [begin, end) are in. */
static tci_lin tci_nest_groups(tci_nest *n, int begin, int end, tci_lopen *open)
{
    tci_loop *l = n->b->l;
    int past = tci_lx_make(l, TCI_LX_ADD, end, tci_lx_const(l, tci_dim_add(n->group, -1)), 0);
    int from = tci_lx_make(l, TCI_LX_DIV, begin, -1, n->group);
    int to = tci_lx_make(l, TCI_LX_DIV, past, -1, n->group);
    return tci_lin_var(n->b, tci_build_for(n->b, from, to, 1, open));
}

/* Binds an axis to its next digit of u, a number of blocks, and the position in the block; *left:
 * what u still counts, without the chunks and groups. */
static void tci_nest_bind(tci_nest *n, int axis, tci_lin *u, int64_t block, tci_lin in_block,
                          tci_dim *left)
{
    tci_build *b = n->b;
    tci_dim size = b->k->axes[axis].size, blocks = tci_dim_div(size, block);
    *left = tci_dim_div(*left, blocks);
    tci_lin place = tci_nest_digit(b, u, blocks, *left == 1);
    place = tci_lin_add(b, tci_lin_mul(b, place, block), in_block);
    tci_build_set(b, axis, tci_build_bind(b, place, 0, tci_dim_add(size, -1), false, -1));
}

/* Binds the axes that unit u fixes, and finds its chunk and group. */
static void tci_nest_place(tci_nest *n, tci_lin u, tci_nest_at *at)
{
    tci_build *b = n->b;
    tci_dim above = tci_dim_mul(n->n_chunks, n->points), left = n->points;
    if (n->chunks_first) {
        above = tci_dim_mul(n->n_groups, n->points);
        at->chunk = tci_nest_digit(b, &u, n->n_chunks, above == 1);
        at->group = tci_nest_digit(b, &u, n->n_groups, n->points == 1);
    } else {
        at->group = tci_nest_digit(b, &u, n->n_groups, above == 1);
        at->chunk = tci_nest_digit(b, &u, n->n_chunks, n->points == 1);
    }
    int last = n->n_others - 1;
    tci_lin in_block = tci_lin_const(0);
    if (n->block > 0) {
        in_block = tci_nest_digit(b, &u, n->block, false);
        left = tci_dim_div(left, n->block);
    }
    for (int i = n->block > 0 ? last - 1 : last; i >= 0; i--) {
        tci_nest_bind(n, n->others[i], &u, 1, tci_lin_const(0), &left);
        if (n->block > 0 && n->others[i] == n->within) {
            tci_nest_bind(n, n->others[last], &u, n->block, in_block, &left);
        }
    }
}

/* The unit of this block, or of this row of it. */
static tci_lin tci_nest_own(tci_nest *n)
{
    tci_loop *l = n->b->l;
    tci_lin u = tci_build_let(n->b, tci_lx_make(l, TCI_LX_TASK_BEGIN, -1, -1, 0));
    if (n->rows > 1) {
        tci_lin row = tci_build_let(n->b, tci_lx_make(l, TCI_LX_ROW, -1, -1, 0));
        u = tci_lin_add(n->b, tci_lin_mul(n->b, u, n->rows), row);
        u = tci_build_let(n->b, tci_build_lx(n->b, u));
    }
    return u;
}

static void tci_nest_loops(tci_nest *n, tci_nest_body body, void *arg)
{
    tci_build *b = n->b;
    tci_loop *l = b->l;
    tci_lopen open;
    tci_lin u = tci_lin_const(0);
    bool many = tci_query_many(n->units), loops = many && n->a->machine.block_threads == 0;
    bool rest = n->rows > 1 && !tci_dim_divides(n->rows, n->units);
    tci_nest_at at = {u, u, u, tci_lx_const(l, 0), tci_lx_const(l, n->units)};
    if (many && !loops) {
        u = tci_nest_own(n);
    } else if (loops) {
        int last = tci_lx_make(l, TCI_LX_TASK_END, -1, -1, 0);
        at.begin = tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_TASK_BEGIN, -1, -1, 0), -1,
                               n->grain);
        at.end = tci_lx_make(l, TCI_LX_MIN, tci_lx_make(l, TCI_LX_MUL, last, -1, n->grain), at.end,
                             0);
    }
    if (n->share > 0) {
        u = tci_nest_groups(n, at.begin, at.end, &open);
        loops = true;
    } else if (loops) {
        u = tci_lin_var(b, tci_build_for(b, at.begin, at.end, n->joined, &open));
    }
    if (rest) { /* the last block has rows without a unit */
        tci_build_if(b, tci_build_inside(b, u, n->units), &open);
    }
    at.unit = u;
    tci_nest_place(n, u, &at);
    body(n, arg, &at);
    if (loops || rest) {
        tci_build_close(b, &open);
    }
    if (n->fence) {
        tci_lstmt fence = tci_loop_stmt(TCI_L_MEM);
        fence.mem = TCI_MEM_FENCE;
        tci_loop_append(l, 0, fence);
    }
}

TCI_FN void tci_nest_run(tci_nest *n, tci_nest_body body, void *arg, tci_launch *launch)
{
    tci_nest_units(n);
    if (n->units != 0) {
        tci_nest_loops(n, body, arg);
    }
    launch->n_tasks = n->units != 0 ? tci_dim_ceil_div(n->units, n->grain) : 0;
    launch->task_ns = n->a->tasks_ns / (double)TCI_MAX(tci_dim_hint(launch->n_tasks), 1);
}
