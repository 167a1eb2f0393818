/* loop/row_schedule.c - schedules row kernels (softmax, norms), vectorized along the inner axis.
 *
 * rows: a unit of work is one outer iteration, whose stages run along their inner axes one after
 * the other. A value that two stages need and that costs more than a pass through the cache is kept
 * in a local array; the next row is prefetched from DRAM; an output larger than the caches may
 * bypass them. */
#include "gpu_schedules.h"
#include "stage_op_count.h"
#include "row_buffer.h"
#include "register_tiles.h"

enum {
    TCI_ROWS_KEEP_BYTES = 65536, /* of rows kept on the stack */
    TCI_ROWS_LONG = 512,         /* elements of a row from which the next is fetched ahead */
    TCI_ROWS_DEAR = 8,           /* flops that cost more than a pass through the cache */
    TCI_ROWS_UNPACKED = 64,      /* times longer that contractions take which pack nothing */
    TCI_ROWS_THREAD_OPS = 20,    /* of a thread for a row: indices, and what is the row's alone; */
    TCI_ROWS_STEP_OPS = 4,       /* then for each step in which threads join a reduction */
    TCI_ROWS_OP_CYCLES = 2,      /* for each of them, with few threads to interleave */
    TCI_ROWS_START_NS = 80       /* of a processor, for each block that it starts */
};
enum { TCI_ROWS_KEEP, TCI_ROWS_STREAM, TCI_ROWS_AHEAD };

/* ---- keeping costly values of a row ---- */

typedef struct tci_rows_kept {
    int32_t inst, first, last; /* stages between which it is there */
    int64_t elements;
} tci_rows_kept;
typedef struct tci_rows_keeps {
    tci_rows_kept *items;
    int n, cap;
    int64_t room;
} tci_rows_keeps;

static bool tci_rows_same_axes(const tci_kernel *k, int a, int b)
{
    const tci_kstage *x = &k->stages[a], *y = &k->stages[b];
    bool same = x->n_axes == y->n_axes && x->n_axes > 0;
    for (int i = 0; same && i < x->n_axes; i++) {
        same = x->axes[i] == y->axes[i];
    }
    return same;
}

/* True if a contraction separates two stages, so that they may process different rows at a time. */
static bool tci_rows_are_apart(const tci_kernel *k, int first, int later)
{
    bool apart = false;
    for (int t = first; t <= later; t++) {
        apart |= k->stages[t].n_kept > 0 && k->stages[t].n_kept < k->stages[t].n_axes;
    }
    return apart;
}

static bool tci_rows_is_kept(const tci_rows_keeps *keeps, int inst, int stage)
{
    bool kept = false;
    for (int i = 0; i < keeps->n; i++) {
        const tci_rows_kept *at = &keeps->items[i];
        kept = kept || (at->inst == inst && at->first <= stage && stage <= at->last);
    }
    return kept;
}

/* The last stage that traverses the same rows in turn. */
static int tci_rows_last(const tci_kernel *k, int first)
{
    int last = first;
    while (last + 1 < k->n_stages && !tci_rows_are_apart(k, first, last + 1)) {
        last++;
    }
    return last;
}

/* Marks what a stage stores and folds. */
static void tci_rows_mark_roots(const tci_kernel *k, int stage, bool *roots)
{
    for (int i = 0; i < k->n_stores; i++) {
        roots[k->stores[i].value] |= k->stores[i].stage == stage;
    }
    for (int i = 0; i < k->n_reds; i++) {
        for (int j = 0; j < tci_red_takes(k->reds[i].op); j++) {
            roots[k->reds[i].in[j]] |= k->reds[i].stage == stage;
        }
    }
}

/* Instructions that stages `first` and `later` both evaluate along the same row: the topmost of
 * them that cost more than a pass through the cache are kept in a local array. One that does not
 * change along every axis of the row is written fewer times than it is read, so it is not kept. */
static void tci_rows_keep_between(const tci_query *a, int first, int later, tci_rows_keeps *keeps)
{
    const tci_kernel *k = a->k;
    uint64_t axes = tci_cost_stage_axes(k, first);
    bool *early = TCI_NEW_ARRAY(a->s, bool, k->n_insts + 1);
    bool *late = TCI_NEW_ARRAY(a->s, bool, k->n_insts + 1);
    tci_dim extent = 1;
    uint64_t changing = 0; /* axes >= 63 share a bit, which then says too little */
    for (int i = 0; i < k->stages[first].n_axes; i++) {
        int axis = k->stages[first].axes[i];
        extent = tci_dim_mul(extent, k->axes[axis].size);
        changing |= tci_query_many(k->axes[axis].size) ? (uint64_t)1 << TCI_MIN(axis, 63) : 0;
    }
    if (!tci_dim_is_known(extent)) { /* no array could be sure to hold the row */
        return;
    }
    int64_t elements = tci_dim_known(extent);
    tci_cost_mark(k, first, false, early);
    tci_rows_mark_roots(k, later, late);
    for (int i = k->n_insts - 1; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        if (!late[i] || tci_rows_is_kept(keeps, i, later)) {
            continue;
        }
        int64_t bytes = elements * tci_dtype_get((tc_dtype)in->dtype)->bytes;
        bool row = in->dtype != TC_BOOL && (in->axes & changing) == changing && changing >> 63 == 0;
        bool costly = in->op == TCI_K_PRIM && tci_cost_row(k, i, axes) >= TCI_ROWS_DEAR;
        /* Between the threads of a block and what they load is more than a cache. */
        costly = costly || (in->op == TCI_K_LOAD && a->machine.block_threads > 0);
        if (row && early[i] && bytes <= keeps->room && costly) {
            tci_rows_kept kept = {i, first, tci_rows_last(k, first), elements};
            TCI_PUSH(a->s, keeps->items, keeps->n, keeps->cap, kept);
            keeps->room -= bytes;
            continue;
        }
        for (int arg = 0; arg < in->n_args; arg++) {
            late[in->args[arg]] = true;
        }
    }
}

/* Values worth keeping, in the order in which they are found. */
static tci_rows_keeps tci_rows_find_keeps(const tci_query *a)
{
    int64_t shared = a->machine.facts.shared_bytes; /* a sixth is for what reductions exchange */
    tci_rows_keeps keeps = {0};
    keeps.room = a->machine.block_threads ? shared - shared / 6 : TCI_ROWS_KEEP_BYTES;
    for (int later = 1; later < a->k->n_stages; later++) {
        for (int first = 0; first < later; first++) {
            if (tci_rows_same_axes(a->k, first, later) && !tci_rows_are_apart(a->k, first, later)) {
                tci_rows_keep_between(a, first, later, &keeps);
            }
        }
    }
    return keeps;
}

TCI_FN void tci_rows_keep(const tci_query *a, tci_build *b)
{
    const tci_kernel *k = a->k;
    tci_rows_keeps keeps = tci_rows_find_keeps(a);
    for (int i = 0; i < keeps.n; i++) {
        const tci_rows_kept *kept = &keeps.items[i];
        const tci_kstage *stage = &k->stages[kept->first];
        int local = tci_build_local(b, (tc_dtype)k->insts[kept->inst].dtype, kept->elements, 0);
        tci_lkeep *keep = tci_build_keep(b, kept->inst, local, kept->first);
        keep->first = kept->first;
        keep->last = kept->last;
        int64_t step = 1;
        for (int axis = stage->n_axes - 1; axis >= 0; axis--) {
            keep->coef[stage->axes[axis]] = step;
            step *= tci_kernel_known(k, stage->axes[axis]);
        }
    }
}

/* ---- rows one stage after the other ---- */

/* The axis along which the next unit follows; -1: none. */
static int tci_rows_next_axis(const tci_query *a)
{
    const tci_kernel *k = a->k;
    int stage = tci_stage_ahead(k), axis = k->n_outer - 1;
    while (axis >= 0 && k->axes[axis].size == 1) {
        axis--;
    }
    bool fits = stage >= 0 && a->machine.block_threads == 0 &&
                tci_dim_hint(k->axes[k->stages[stage].axes[0]].size) >= TCI_ROWS_LONG;
    return fits ? axis : -1;
}

static bool tci_rows_is_bit(int64_t n)
{
    return n == 0 || n == 1;
}

static bool tci_rows_fits(const tci_query *a, const int64_t *n)
{
    return a->k->vector == TCI_VEC_INNER && !tci_query_on_unit(a) && !tci_kernel_earlier(a->k) &&
           tci_rows_is_bit(n[TCI_ROWS_KEEP]) && tci_rows_is_bit(n[TCI_ROWS_STREAM]) &&
           tci_rows_is_bit(n[TCI_ROWS_AHEAD]) &&
           (n[TCI_ROWS_KEEP] == 0 || tci_rows_find_keeps(a).n > 0) &&
           (n[TCI_ROWS_STREAM] == 0 || tci_query_stream(a, -1, a->lanes) != NULL) &&
           (n[TCI_ROWS_AHEAD] == 0 || tci_rows_next_axis(a) >= 0);
}

static int tci_rows_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    for (int i = 0; i < TCI_FORM_CANDIDATES; i++) { /* all; those that fit are few */
        n[i][TCI_ROWS_KEEP] = !(i & 1);
        n[i][TCI_ROWS_STREAM] = !(i & 2);
        n[i][TCI_ROWS_AHEAD] = !(i & 4);
    }
    (void)a;
    return TCI_FORM_CANDIDATES;
}

TCI_FN int64_t tci_rows_blocks(const tci_query *a, int64_t rows)
{
    int64_t points = 1;
    for (int i = 0; i < a->k->n_outer; i++) {
        points *= TCI_MAX(tci_dim_hint(a->k->axes[i].size), 1);
    }
    return tci_ceil_div(points, TCI_MAX(rows, 1));
}

/* Operations per row of each of this many threads, in addition to those per element. */
static double tci_rows_thread_ops(const tci_query *a, int64_t threads)
{
    int steps = 0;
    while (threads >> (steps + 1) > 0) {
        steps++;
    }
    return TCI_ROWS_THREAD_OPS + TCI_ROWS_STEP_OPS * steps * a->k->n_reds;
}

TCI_FN double tci_rows_ns(const tci_query *a, int64_t threads, double flops, double bytes)
{
    if (a->machine.block_threads == 0) {
        return tci_query_ns(a, flops, bytes);
    }
    double all = (double)(tci_rows_blocks(a, 1) * threads), own = tci_rows_thread_ops(a, threads);
    double body = TCI_MAX((double)a->k->flops, 1.0);
    double one = TCI_ROWS_OP_CYCLES * (flops * body / all + own) / a->machine.facts.ghz;
    return TCI_MAX(tci_query_ns(a, flops + all * own / body, bytes), one);
}

TCI_FN double tci_rows_start_ns(const tci_query *a, int64_t rows)
{
    double each = TCI_ROWS_START_NS / (double)a->machine.facts.processors;
    return a->machine.block_threads > 0 ? each * (double)tci_rows_blocks(a, rows) : 0;
}

/* Computing a row's values again takes longer than keeping them; far memory that was not fetched,
 * or that a store reads first, is moved more slowly. */
static double tci_rows_cost(const tci_query *a, const int64_t *n)
{
    bool far = tci_query_is_far(a);
    double again = n[TCI_ROWS_KEEP] ? 1 : 1 + 0.3 * tci_rows_find_keeps(a).n;
    double late = far == (n[TCI_ROWS_AHEAD] != 0) || tci_rows_next_axis(a) < 0 ? 1 : 1.1;
    double unpacked = tci_kernel_keeps(a->k) && a->lanes > 1 ? TCI_ROWS_UNPACKED : 1;
    double twice = n[TCI_ROWS_STREAM] || !tci_query_stream(a, -1, a->lanes) ? 1 : 1.3;
    twice *= a->machine.block_threads > 0 ? 1.1 : 1; /* what no register holds is read again */
    double slower = 1 + 0.01 * (again * late * twice - 1); /* where the other roof is higher */
    double ns = tci_rows_ns(a, a->threads, again, late * twice) * slower * unpacked;
    return TCI_MAX(ns, tci_rows_start_ns(a, 1));
}

static void tci_rows_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_unit unit = tci_unit_make(&nest);
    b->l->lanes = a->lanes;
    b->l->threads = a->threads;
    tci_row_buffer_rows rows = {-1, 1, a->machine.thread_scratch};
    tci_row_buffer_arrays(b, rows);
    if (n[TCI_ROWS_KEEP]) {
        tci_rows_keep(a, b);
    }
    unit.stream = n[TCI_ROWS_STREAM] ? tci_query_stream(a, -1, a->lanes) : NULL;
    unit.next_axis = n[TCI_ROWS_AHEAD] ? tci_rows_next_axis(a) : -1;
    nest.fence = unit.stream != NULL;
    tci_nest_run(&nest, tci_unit_walk, &unit, launch);
}

static void tci_rows_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", rows%s%s", n[TCI_ROWS_STREAM] ? ", stream" : "",
                   b->n_keeps > 0 ? ", row kept" : "");
}

/* ---- the forms ---- */

TCI_FN const tci_form *const *tci_rows_forms(void)
{
    static const tci_form rows = {"rows",        {"keep", "stream", "ahead"},
                                  tci_rows_fits, tci_rows_candidates,
                                  tci_rows_cost, tci_rows_emit,
                                  tci_rows_note};
    static const tci_form *const forms[] = {&rows, NULL};
    return forms;
}
