/* loop/vec_output_axis.c - emits map, reduction and scan stages that are vectorized along the last
 * outer (non-reduced) axis (VEC_OUTER): one accumulator per output element, no horizontal
 * reduction.
 *
 * In: a stage and a tile of outer iterations. Out: the stage for all of them. Every output has one
 * accumulator of its own, to which the inner iterations add in order, so the tile and vector sizes
 * do not affect the result; class SPLIT has a second accumulator per output, to which each partial
 * sum is added. */
#include "vec_output_axis.h"

#include "interleaved_stores.h"

enum {
    TCI_STAGE_BLOCK_ROWS = 16, /* rows that a thread of a block reads ahead of its reduction */
    TCI_STAGE_WRITTEN = 128    /* elements of sums that are written out, about, as a whole */
};

static bool tci_stage_red_is_vector(const tci_build *b, const tci_kred *red)
{
    uint64_t axes = 0;
    for (int i = 0; i < tci_red_takes(red->op); i++) {
        axes |= b->k->insts[red->in[i]].axes;
    }
    return tci_build_is_vector(b, axes);
}

/* The running values of a SCAN at this step, then its stores. */
static void tci_stage_scan_step(tci_build *b, int stage, const tci_tile *tile,
                                const tci_stage_tuple *acc)
{
    int n = tile->n_rows * tile->n_vecs;
    for (int i = 0; i < n; i++) {
        tci_stage_point(b, tile, i);
        for (int r = 0; r < b->k->n_reds; r++) {
            if (b->k->reds[r].stage == stage) {
                tci_stage_remember_result(b, &b->k->reds[r], acc[r * n + i]);
            }
        }
        tci_stage_stores(b, stage, tile->stream);
    }
}

/* n steps of a SCAN of one point: what they take in is read before the first of them stores. */
static void tci_stage_scan_steps(tci_build *b, int stage, const tci_tile *tile,
                                 const tci_stage_tuple *acc, tci_lin at, int64_t lo, int64_t hi,
                                 int n)
{
    const tci_kernel *k = b->k;
    int axis = k->stages[stage].axes[0];
    const tci_bind **steps = TCI_NEW_ARRAY(b->s, const tci_bind *, n);
    tci_stage_tuple *taken = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n * k->n_reds);
    tci_stage_point(b, tile, 0);
    for (int u = 0; u < n; u++) {
        steps[u] = tci_build_bind(b, tci_lin_plus(at, u), lo + u, hi - (n - 1 - u), false, -1);
        tci_build_set(b, axis, steps[u]);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == stage) {
                taken[u * k->n_reds + r] = tci_stage_operands(b, &k->reds[r]);
            }
        }
    }
    for (int u = 0; u < n; u++) {
        tci_build_set(b, axis, steps[u]);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == stage) {
                tci_stage_tuple v = taken[u * k->n_reds + r];
                tci_stage_assign(b, acc[r], tci_stage_combine(b, &k->reds[r], acc[r], v));
            }
        }
        tci_stage_scan_step(b, stage, tile, acc);
    }
    tci_build_set(b, axis, NULL);
}

/* A SCAN by a block of threads, several steps at a time: after a store the next load would wait.
 * False: done the other way. */
static bool tci_stage_scan_ahead(tci_build *b, int stage, const tci_tile *tile,
                                 const tci_stage_tuple *acc)
{
    const tci_kstage *st = &b->k->stages[stage];
    bool fits = b->l->threads > 1 && st->kind == TCI_STAGE_SCAN && st->n_axes == 1 &&
                tile->n_rows * tile->n_vecs == 1 && tci_dim_is_known(b->k->axes[st->axes[0]].size);
    if (!fits) {
        return false;
    }
    int64_t size = tci_kernel_known(b->k, st->axes[0]);
    int64_t whole = size / TCI_STAGE_BLOCK_ROWS * TCI_STAGE_BLOCK_ROWS;
    if (whole > 0) {
        tci_lopen open;
        int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, whole),
                              TCI_STAGE_BLOCK_ROWS, &open);
        tci_stage_scan_steps(b, stage, tile, acc, tci_lin_var(b, i), 0, whole - 1,
                             TCI_STAGE_BLOCK_ROWS);
        tci_build_close(b, &open);
    }
    if (size > whole) {
        tci_stage_scan_steps(b, stage, tile, acc, tci_lin_const(whole), whole, size - 1,
                             (int)(size - whole));
    }
    return true;
}

/* Accumulates the elements of point i of the tile at the current inner point. */
static void tci_stage_take_point(tci_build *b, int stage, const tci_tile *tile,
                                 const tci_stage_tuple *acc, int i)
{
    const tci_kernel *k = b->k;
    int n = tile->n_rows * tile->n_vecs;
    tci_stage_point(b, tile, i);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            tci_stage_tuple v = tci_stage_operands(b, &k->reds[r]);
            tci_stage_assign(b, acc[r * n + i],
                             tci_stage_combine(b, &k->reds[r], acc[r * n + i], v));
        }
    }
}

/* The same of all of them. */
static void tci_stage_take_points(tci_build *b, int stage, const tci_tile *tile,
                                  const tci_stage_tuple *acc)
{
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        tci_stage_take_point(b, stage, tile, acc, i);
    }
}

/* ---- sums in parts ---- */

/* The products of a part of the stage's sums, which have one class; 0: they are chains. */
static int64_t tci_stage_split(const tci_kernel *k, int stage)
{
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage && k->reds[r].order == TCI_ORDER_SPLIT) {
            return k->reds[r].order_n;
        }
    }
    return 0;
}

/* Adds the sums of the part at hand to those before; next: another part begins. */
static void tci_stage_join(tci_build *b, int stage, int n, const tci_stage_tuple *acc,
                           const tci_stage_tuple *total, bool next)
{
    const tci_kernel *k = b->k;
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        for (int i = r * n; i < r * n + n && red->stage == stage; i++) {
            tci_stage_tuple sum = tci_stage_joined(b, red, total[i], acc[i]);
            tci_stage_assign(b, next ? total[i] : acc[i], sum);
            if (next) {
                tci_stage_tuple none = tci_stage_identity(b, red);
                none.part[0] = tci_build_widen(b, none.part[0], b->l->values[acc[i].part[0]].lanes);
                tci_stage_assign(b, acc[i], none);
            }
        }
    }
}

/* Unroll count of a loop over n points by a thread of a block, so that several rows of memory are
 * in flight at once; 0: the points suffice for that. */
static int32_t tci_stage_rows_ahead(const tci_build *b, int n)
{
    return b->l->threads > 1 && n <= TCI_STAGE_BLOCK_ROWS / 4 ? TCI_STAGE_BLOCK_ROWS / n : 0;
}

/* The range of the last axis that is in part number `part`, and the loop over it; `before`:
 * products before the axis' first one. */
static void tci_stage_take_part(tci_build *b, int stage, const tci_tile *tile,
                                const tci_stage_tuple *acc, const tci_stage_tuple *total,
                                tci_lin before, tci_lin part)
{
    tci_loop *l = b->l;
    const tci_kstage *st = &b->k->stages[stage];
    int axis = st->axes[st->n_axes - 1], n = tile->n_rows * tile->n_vecs;
    int64_t length = tci_stage_split(b->k, stage);
    tci_dim size = b->k->axes[axis].size;
    tci_lopen open, first, later;
    tci_lin begin = tci_lin_add(b, tci_lin_mul(b, part, length), tci_lin_mul(b, before, -1));
    int from = tci_build_lx(b, begin), to = tci_build_lx(b, tci_lin_plus(begin, length));
    tci_dim all = 1;
    for (int i = 0; i < st->n_axes; i++) {
        all = tci_dim_mul(all, b->k->axes[st->axes[i]].size);
    }
    tci_build_if(b, tci_build_in_range(b, from, 0, size), &first);
    int number = tci_build_lx(b, part);
    tci_build_if(b, tci_build_in_range(b, number, 1, tci_dim_div(all, length)), &later);
    tci_stage_join(b, stage, n, acc, total, true);
    tci_build_close(b, &later);
    tci_build_close(b, &first);
    from = tci_lx_make(l, TCI_LX_MAX, from, tci_lx_const(l, 0), 0);
    to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, size), 0);
    tci_lin at = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    open.st.unroll = tci_stage_rows_ahead(b, n);
    tci_build_set(b, axis, tci_build_bind(b, at, 0, tci_dim_add(size, -1), false, -1));
    tci_stage_take_points(b, stage, tile, acc);
    tci_build_set(b, axis, NULL);
    tci_build_close(b, &open);
}

/* As tci_stage_take_in, part by part: along the last axis those that contain its products. */
static void tci_stage_take_parts(tci_build *b, int stage, const tci_tile *tile,
                                 const tci_stage_tuple *acc, const tci_stage_tuple *total)
{
    tci_loop *l = b->l;
    const tci_kernel *k = b->k;
    const tci_kstage *st = &k->stages[stage];
    int n_before = st->n_axes - 1;
    int64_t length = tci_stage_split(k, stage);
    tci_dim size = k->axes[st->axes[n_before]].size;
    tci_lin before = tci_lin_const(0);
    tci_lopen open;
    tci_lopen *outer = tci_stage_open(b, st->axes, n_before);
    for (int i = 0; i <= n_before; i++) {
        before = tci_lin_mul(b, before, k->axes[st->axes[i]].size);
        before = i < n_before ? tci_lin_add(b, before, b->bind[st->axes[i]]->at) : before;
    }
    int last = tci_build_lx(b, tci_lin_plus(tci_lin_add(b, before, tci_lin_const(size)), -1));
    int from = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, before), -1, length);
    int to = tci_lx_make(l, TCI_LX_ADD, tci_lx_make(l, TCI_LX_DIV, last, -1, length),
                         tci_lx_const(l, 1), 0);
    tci_lin part = tci_lin_var(b, tci_build_for(b, from, to, 1, &open));
    tci_stage_take_part(b, stage, tile, acc, total, before, part);
    tci_build_close(b, &open);
    tci_stage_close(b, st->axes, n_before, outer);
    tci_stage_join(b, stage, tile->n_rows * tile->n_vecs, acc, total, false);
}

/* ---- the whole ---- */

/* The same at each position of the stage's last axis, one after the other; of a long one in ranges
 * that are written out, and a shorter one after them. */
static void tci_stage_take_stretch(tci_build *b, int stage, const tci_tile *tile,
                                   const tci_stage_tuple *acc, tci_lin at, int64_t last, int64_t n)
{
    const tci_kstage *st = &b->k->stages[stage];
    int axis = st->axes[st->n_axes - 1];
    b->meets = true;
    for (int64_t i = 0; i < n; i++) {
        tci_dim first = at.n > 0 ? 0 : at.c;
        tci_build_set(b, axis,
                      tci_build_bind(b, tci_lin_plus(at, i), tci_dim_add(first, i), last + i, false,
                                     -1));
        tci_stage_take_points(b, stage, tile, acc);
    }
    b->meets = false;
    tci_build_set(b, axis, NULL);
}

/* Places of a range of so long an axis: all of few, else a divisor if there is one. */
static int64_t tci_stage_places(int64_t size)
{
    int64_t n = TCI_MIN(size, TCI_STAGE_BLOCK_ROWS);
    while (size % n != 0 && n > TCI_STAGE_BLOCK_ROWS / 2) {
        n--;
    }
    return n;
}

static void tci_stage_take_written(tci_build *b, int stage, const tci_tile *tile,
                                   const tci_stage_tuple *acc)
{
    const tci_kstage *st = &b->k->stages[stage];
    int n_before = st->n_axes - 1;
    int64_t size = tci_kernel_known(b->k, st->axes[n_before]), all = 1;
    int64_t n = tci_stage_places(size), whole = size / n * n;
    tci_lopen *open = tci_stage_open(b, st->axes, n_before), stretch;
    for (int i = 0; i < st->n_axes; i++) {
        all *= tci_kernel_known(b->k, st->axes[i]);
    }
    if (n_before > 0 && all <= TCI_STAGE_WRITTEN) {
        open[n_before - 1].st.unroll = TCI_STAGE_BLOCK_ROWS;
    }
    if (whole > n) {
        int at = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, whole), n, &stretch);
        tci_stage_take_stretch(b, stage, tile, acc, tci_lin_var(b, at), whole - n, n);
        tci_build_close(b, &stretch);
    } else {
        tci_stage_take_stretch(b, stage, tile, acc, tci_lin_const(0), 0, n);
    }
    if (size > whole) {
        tci_stage_take_stretch(b, stage, tile, acc, tci_lin_const(whole), whole, size - whole);
    }
    tci_stage_close(b, st->axes, n_before, open);
}

/* The last axis written out: what is in one row of memory for all rows of the tile, then what is in
 * the next, from the end on where elements are met backwards. Each point meets its elements in
 * their order. */
static void tci_stage_take_skewed(tci_build *b, int stage, const tci_tile *tile,
                                  const tci_stage_tuple *acc)
{
    const tci_kstage *st = &b->k->stages[stage];
    int n_before = st->n_axes - 1, axis = st->axes[n_before];
    int64_t size = tci_kernel_known(b->k, axis), step = tile->skew.element;
    int64_t apart = step < 0 ? -step : step, last = (tile->n_rows - 1) * tile->skew.row;
    tci_lopen *open = tci_stage_open(b, st->axes, n_before);
    b->meets = true;
    for (int64_t place = 0; place <= last + (size - 1) * apart; place++) {
        for (int64_t row = 0; row < tile->n_rows; row++) {
            int64_t before = step < 0 ? last - row * tile->skew.row : row * tile->skew.row;
            int64_t i = (place - before) / apart;
            if (place < before || (place - before) % step != 0 || i >= size) {
                continue;
            }
            tci_build_set(b, axis, tci_build_bind(b, tci_lin_const(i), i, i, false, -1));
            for (int v = 0; v < tile->n_vecs; v++) {
                tci_stage_take_point(b, stage, tile, acc, (int)row * tile->n_vecs + v);
            }
        }
    }
    b->meets = false;
    tci_build_set(b, axis, NULL);
    tci_stage_close(b, st->axes, n_before, open);
}

/* Takes everything in, in order, into the accumulators of the tile's points. */
static void tci_stage_take_in(tci_build *b, int stage, const tci_tile *tile,
                              const tci_stage_tuple *acc)
{
    const tci_kstage *st = &b->k->stages[stage];
    int n = tile->n_rows * tile->n_vecs;
    if (tile->written) {
        tci_stage_take_written(b, stage, tile, acc);
        return;
    }
    if (tile->skew.row > 0) {
        tci_stage_take_skewed(b, stage, tile, acc);
        return;
    }
    tci_lopen *open = tci_stage_open(b, st->axes, st->n_axes);
    if (st->n_axes > 0 && tci_stage_rows_ahead(b, n) > 0) {
        open[st->n_axes - 1].st.unroll = tci_stage_rows_ahead(b, n);
    }
    tci_stage_take_points(b, stage, tile, acc);
    if (st->kind == TCI_STAGE_SCAN) {
        tci_stage_scan_step(b, stage, tile, acc);
    }
    tci_stage_close(b, st->axes, st->n_axes, open);
}

TCI_FN void tci_stage_reduce_outer(tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kernel *k = b->k;
    int n = tile->n_rows * tile->n_vecs;
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds * n + 1);
    tci_stage_tuple *total = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds * n + 1);
    bool parts = tci_stage_split(k, stage) > 0 && k->stages[stage].n_axes > 0;
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < n && k->reds[r].stage == stage; i++) {
            tci_stage_point(b, tile, i);
            bool vector = tci_stage_red_is_vector(b, &k->reds[r]);
            acc[r * n + i] = tci_stage_accumulator(b, &k->reds[r], vector ? b->l->lanes : 1);
            if (parts) {
                total[r * n + i] = tci_stage_total(b, &k->reds[r], vector ? b->l->lanes : 1);
            }
        }
    }
    if (parts) {
        tci_stage_take_parts(b, stage, tile, acc, total);
    } else if (!tci_stage_scan_ahead(b, stage, tile, acc)) {
        tci_stage_take_in(b, stage, tile, acc);
    }
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < n && k->reds[r].stage == stage; i++) {
            tci_stage_point(b, tile, i);
            tci_stage_remember_result(b, &k->reds[r], acc[r * n + i]);
        }
    }
}

TCI_FN void tci_stage_map_outer(tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kstage *st = &b->k->stages[stage];
    if (tile->weave) {
        tci_interleave_stores(b, stage, tile);
        return;
    }
    tci_lopen *open = tci_stage_open(b, st->axes, st->n_axes);
    b->turn_rows = tile->turn ? tile->rows : NULL;
    b->turn_axis = tile->row_axis;
    b->n_turn = tile->n_rows;
    for (int i = 0; i < tile->n_rows * tile->n_vecs && tile->written; i++) {
        tci_stage_point(b, tile, i);
        tci_stage_values(b, stage);
    }
    for (int i = 0; i < tile->n_rows * tile->n_vecs; i++) {
        tci_stage_point(b, tile, i);
        if (tile->turn && i % tile->n_vecs == 0) {
            tci_stage_fetch_stores(b, stage, tile);
        }
        tci_stage_stores(b, stage, tile->stream);
    }
    b->turn_rows = NULL;
    tci_stage_close(b, st->axes, st->n_axes, open);
}
