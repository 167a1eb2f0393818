/* loop/kernel_facts.c - computes the properties of a kernel on a machine that schedule selection
 * uses: flops, memory traffic, access patterns, and the roofline model.
 *
 * In: a kernel, a machine description. Out: a tci_query. The model is a roofline: the slower of
 * computing at the machine's rate and of moving the kernel's bytes. */
#include "../kernel/match_attention.h"
#include "stage_op_count.h"
#include "schedule_kind.h"
#include "intrinsics.h"
#include "vectorize.h"

enum {
    TCI_QUERY_MAP_THREADS = 256, /* most threads of a block, but for rows */
    TCI_QUERY_EMPTY = 8,         /* lanes of a vector, one of which may be empty */
    TCI_QUERY_BUSY = 2,          /* blocks for each processor that keep a device busy */
    TCI_QUERY_LINE_BYTES = 64,
    TCI_QUERY_STREAM_RUN = 4096, /* bytes of a row that is worth bypassing the caches for */
    TCI_QUERY_CUTS_COST = 60,    /* flops of a point from which a body is not written out often */
    TCI_QUERY_CHAIN = 48,        /* flops of a point that may take longer one after the other */
    TCI_QUERY_FEW_CUTS = 4,
    TCI_QUERY_FEW_VECTORS = 2, /* chains side by side, too few to keep a processor busy */
    TCI_QUERY_WINDOW = 16      /* inner points whose loads take longer than memory */
};

/* ---- lanes ---- */

/* Threads, at least a warp, that cover n lanes, each of which holds `held`. */
static int tci_query_threads(int64_t n, int held, int most)
{
    int threads = TCI_MIN(TCI_WARP, most);
    while (threads < most && (int64_t)threads * held < n) {
        threads *= 2;
    }
    return threads;
}

static bool tci_query_scatters(const tci_kernel *k)
{
    bool scatters = false;
    for (int t = 0; t < k->n_stages; t++) {
        scatters |= k->stages[t].kind == TCI_STAGE_SCATTER;
    }
    return scatters;
}

/* True if a block may have several independent vectors of reductions. */
static bool tci_query_is_interleaved(const tci_query *a)
{
    bool fits = a->machine.facts.subgroup == TCI_WARP && a->k->n_reds > 0;
    for (int t = 0; t < a->k->n_stages; t++) {
        uint8_t kind = a->k->stages[t].kind;
        fits = fits && (kind == TCI_STAGE_MAP || kind == TCI_STAGE_REDUCE);
    }
    return fits;
}

/* So few threads for a vector that none of them has nothing to do, if others fill the block: there
 * are `units` vectors of `threads`. */
static int tci_query_balanced_threads(int64_t n, int held, int threads, int64_t units, int64_t busy)
{
    int64_t walked = tci_ceil_div(n, threads * held) * threads * held;
    int even = threads;
    while (even > 2 && n % ((int64_t)even * held) != 0) {
        even /= 2;
    }
    bool fits = n % ((int64_t)even * held) == 0 && units * threads / even >= busy * TCI_WARP / even;
    return fits && TCI_QUERY_EMPTY * (walked - n) > n ? even : threads;
}

/* Blocks along the last outer axis: wide, but enough of them to keep the device busy; where each
 * lane reduces alone, narrow accesses rather than idle processors. A thread holds two lanes at
 * least: what one holds alone is a scalar. */
static void tci_query_block_lanes(tci_query *a, int held)
{
    const tci_kernel *k = a->k;
    int64_t points = 1, n = tci_dim_hint(k->axes[k->n_outer - 1].size);
    int64_t busy = (int64_t)a->machine.facts.processors * TCI_QUERY_BUSY;
    for (int i = 0; i < k->n_outer - 1; i++) {
        points *= TCI_MAX(tci_dim_hint(k->axes[i].size), 1);
    }
    int threads = tci_query_threads(n, held,
                                    TCI_MIN(a->machine.block_threads, TCI_QUERY_MAP_THREADS));
    while (threads > TCI_WARP && points * tci_ceil_div(n, threads * held) < busy) {
        threads /= 2;
    }
    bool alone = k->n_reds > 0 || tci_query_scatters(k);
    while (held > 2 && alone && points * tci_ceil_div(n, threads * held) < busy / 2) {
        held /= 2;
    }
    int64_t units = points * tci_ceil_div(n, threads * held);
    a->threads = tci_query_is_interleaved(a)
                     ? tci_query_balanced_threads(n, held, threads, units, busy)
                     : threads;
    a->lanes = a->threads * held;
    units = points * tci_ceil_div(n, a->lanes);
    while (tci_query_is_interleaved(a) && 2 * a->threads * a->rows <= TCI_QUERY_MAP_THREADS &&
           units >= 2 * a->rows * busy) {
        a->rows *= 2;
    }
}

/* True if a SCATTER stores elements that are not contiguous along the last outer axis. */
static bool tci_query_scatters_apart(const tci_kernel *k)
{
    bool apart = false;
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *store = &k->stores[i];
        tci_dim coef = 0;
        bool linear = tci_build_coef(k, store->x, k->n_outer - 1, &coef);
        apart |= k->stages[store->stage].kind == TCI_STAGE_SCATTER && !(linear && coef == 1);
    }
    return apart;
}

/* True if a stage has segments that differ along the last outer axis. */
static bool tci_query_stretches(const tci_kernel *k)
{
    bool stretches = false;
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        stretches |= st->from >= 0 &&
                     tci_build_depends(k->kx[st->from].axes | k->kx[st->to].axes, k->n_outer - 1);
    }
    return stretches;
}

static void tci_query_lanes(tci_query *a)
{
    const tci_kernel *k = a->k;
    bool outer = k->vector == TCI_VEC_OUTER;
    int held = TCI_MAX(a->machine.vector_bytes / a->widest, 1);
    a->lanes = a->threads = a->rows = 1;
    if (outer && (k->n_outer == 0 || !tci_query_many(k->axes[k->n_outer - 1].size))) {
        return;
    }
    if (outer && (tci_query_stretches(k) ||
                  (a->machine.block_threads == 0 && tci_query_scatters_apart(k)))) {
        return;
    }
    if (a->machine.block_threads == 0) {
        a->lanes = TCI_MIN(held, TCI_VLANES);
    } else if (outer) {
        tci_query_block_lanes(a, held);
    } else {
        int lanes = tci_kernel_lanes(k), least = TCI_MIN(TCI_WARP, a->machine.block_threads);
        held = TCI_MAX(TCI_MIN(held, lanes / least), 1);
        a->threads = TCI_MIN(lanes / held, a->machine.block_threads);
        a->lanes = a->threads * held;
    }
}

TCI_FN int tci_query_rows(const tci_query *a, int threads)
{
    return a->rows > 1 ? TCI_MAX(a->rows * a->threads / threads, 1) : 1;
}

TCI_FN bool tci_query_is_power(int64_t n, int64_t lo, int64_t hi)
{
    return n >= lo && n <= hi && (n & (n - 1)) == 0;
}

TCI_FN bool tci_query_lanes_fit(const tci_query *a, int64_t lanes, int64_t threads)
{
    int64_t held = TCI_MAX(a->machine.vector_bytes / a->widest, 1);
    if (lanes == a->lanes && threads == a->threads) {
        return true;
    }
    if (a->lanes == 1) {
        return false;
    }
    if (a->machine.block_threads == 0) {
        return threads == 1 && tci_query_is_power(lanes, 2, TCI_MIN(held, TCI_VLANES));
    }
    return tci_query_is_power(threads, TCI_WARP, a->machine.block_threads) &&
           tci_query_is_power(lanes, 2 * threads, TCI_MIN(held * threads, TCI_VLANES_MAX));
}

/* ---- the other axis ---- */

/* An access that strides along the vector axis but is contiguous along another outer axis: the last
 * such axis, else -1. */
static int tci_query_other_axis(const tci_query *a, int kx, tc_dtype storage)
{
    const tci_kernel *k = a->k;
    tci_dim c;
    bool linear = tci_build_coef(k, kx, a->vec_axis, &c);
    int64_t step = tci_dim_hint(c);
    if (!linear ||
        (step < 0 ? -step : step) * tci_dtype_get(storage)->bytes < TCI_QUERY_LINE_BYTES) {
        return -1;
    }
    for (int axis = k->n_outer - 2; axis >= 0; axis--) {
        if (tci_dim_hint(k->axes[axis].size) >= 4 && tci_build_coef(k, kx, axis, &c) &&
            (c == 1 || c == -1)) {
            return axis;
        }
    }
    return -1;
}

/* Of a map: the axis along which some access is contiguous that strides along the vector axis. */
static void tci_query_map_axis(tci_query *a)
{
    const tci_kernel *k = a->k;
    for (int i = 0; i < k->n_insts && a->row_axis < 0; i++) {
        const tci_kinst *in = &k->insts[i];
        if (in->op == TCI_K_LOAD) {
            tci_dim row = 0;
            const tci_koperand *from = &k->operands[tci_kinst_number(in)];
            a->row_axis = tci_query_other_axis(a, in->x, (tc_dtype)from->dtype);
            a->turns = a->row_axis >= 0 && a->lanes >= 4 && in->n_guards == 0 &&
                       tci_build_coef(k, in->x, a->row_axis, &row) && row == 1;
        }
    }
    for (int i = 0; i < k->n_stores && a->row_axis < 0; i++) {
        a->row_axis = tci_query_other_axis(a, k->stores[i].x,
                                           (tc_dtype)k->operands[k->stores[i].operand].dtype);
    }
}

/* True if a load of a REDUCE stage does not depend on `axis`, and runs along the vector axis or
 * (broad) is one element for all lanes. */
static bool tci_query_is_shared(const tci_query *a, const bool *live, int axis, bool broad)
{
    const tci_kernel *k = a->k;
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        if (live[i] && in->op == TCI_K_LOAD && tci_build_depends(in->axes, a->vec_axis) != broad &&
            !tci_build_depends(in->axes, axis)) {
            return true;
        }
    }
    return false;
}

/* True if windows of neighbours along `axis` overlap, on a CPU. */
static bool tci_query_find_skew(tci_query *a, int axis)
{
    const tci_kernel *k = a->k;
    const tci_kstage *st = &k->stages[0];
    bool may = a->machine.block_threads == 0 && a->vec_axis >= 0 && st->kind == TCI_STAGE_REDUCE &&
               st->n_axes > 0;
    a->skew = may ? tci_window_overlap_find(k, a->vec_axis, axis, st->axes[st->n_axes - 1])
                  : (tci_window_overlap){0};
    return a->skew.row > 0;
}

static bool tci_query_is_large(const tci_kernel *k)
{
    int64_t points = 1;
    for (int i = 0; i < k->stages[0].n_axes && points < TCI_QUERY_WINDOW; i++) {
        points *= TCI_MIN(tci_dim_most(k->axes[k->stages[0].axes[i]].size), TCI_QUERY_WINDOW);
    }
    return points >= TCI_QUERY_WINDOW;
}

/* Of a reduction: an axis along which loads are shared. A scan has none. On a CPU, which
 * waits for each step of a chain before the next one, also one where only the element is shared
 * that all lanes take, where vectors have few neighbours, or large windows meet: rows of an image,
 * of a convolution of each channel alone. */
static void tci_query_reduce_axis(tci_query *a)
{
    const tci_kernel *k = a->k;
    bool *live = TCI_NEW_ARRAY(a->s, bool, k->n_insts + 1), scan = false;
    for (int t = 0; t < k->n_stages; t++) {
        scan = scan || k->stages[t].kind == TCI_STAGE_SCAN;
        if (k->stages[t].kind == TCI_STAGE_REDUCE) {
            tci_cost_mark(k, t, false, live);
        }
    }
    bool chains = a->machine.block_threads == 0;
    bool few = chains && tci_dim_le(a->n_vec, (int64_t)TCI_QUERY_FEW_VECTORS * a->lanes);
    for (int broad = 0; broad <= chains; broad++) {
        for (int axis = k->n_outer - 2; axis >= 0 && a->row_axis < 0 && !scan; axis--) {
            bool shared = tci_query_many(k->axes[axis].size) &&
                          tci_query_is_shared(a, live, axis, broad) &&
                          ((tci_query_find_skew(a, axis) && tci_query_is_large(k)) || !broad ||
                           few);
            a->row_axis = shared ? axis : -1;
        }
    }
    a->skew.row = a->row_axis < 0 ? 0 : a->skew.row;
}

/* ---- time ---- */

/* Bytes that a processor moves in a nanosecond from where the kernel's memory is. */
static double tci_query_one_bandwidth(const tci_query *a)
{
    const tc_machine *m = &a->machine.facts;
    return a->k->bytes < m->cache_bytes[1]   ? m->near_bytes * m->ghz
           : a->k->bytes < m->cache_bytes[2] ? m->far_bytes * m->ghz
                                             : m->one_gbs;
}

/* The same of all processors together. */
static double tci_query_all_bandwidth(const tci_query *a)
{
    const tc_machine *m = &a->machine.facts;
    double one = tci_query_one_bandwidth(a);
    double all = a->k->bytes < m->cache_bytes[1]   ? one * m->processors
                 : a->k->bytes < m->cache_bytes[2] ? m->all_bytes * m->ghz
                                                   : m->memory_gbs;
    return TCI_MAX(all, one);
}

/* Multiply-adds of vectors that a processor begins in a nanosecond; ports of blocks are lanes. */
static double tci_query_rate(const tci_query *a)
{
    const tc_machine *m = &a->machine.facts;
    return m->ghz * m->ports * (a->machine.block_threads > 0 ? 1 : a->lanes);
}

/* Operations that a processor begins for the kernel: a product of a contraction and the sum that
 * takes it are one. GPUs count both. */
static double tci_query_operations(const tci_kernel *k, tci_machine machine)
{
    double operations = (double)k->flops;
    for (int r = 0; r < k->n_reds && machine.block_threads == 0; r++) {
        const tci_kstage *st = &k->stages[k->reds[r].stage];
        double points = k->reds[r].op == TCI_RED_DOT ? 1 : 0;
        for (int i = 0; i < k->n_outer + st->n_axes && points > 0; i++) {
            int axis = i < k->n_outer ? i : st->axes[i - k->n_outer];
            points *= (double)TCI_MAX(tci_dim_hint(k->axes[axis].size), 1);
        }
        operations -= points;
    }
    return TCI_MAX(operations, (double)k->flops / 2);
}

TCI_FN double tci_query_ns(const tci_query *a, double flops, double bytes)
{
    bool blocks = a->machine.block_threads > 0;
    double rate = tci_query_rate(a) * (blocks ? a->machine.facts.processors : 1);
    double bandwidth = blocks ? tci_query_all_bandwidth(a) : tci_query_one_bandwidth(a);
    double flops_ns = flops * a->operations / rate;
    double bytes_ns = bytes * (double)a->k->bytes / bandwidth;
    return TCI_MAX(TCI_MAX(flops_ns, bytes_ns), 1.0);
}

TCI_FN double tci_query_unit_flops(const tci_query *a)
{
    bool bytes = a->k->n_reds > 0 && a->k->reds[0].dtype == TC_I32;
    return a->machine.facts.matrix_flops * (bytes ? 2 : 1);
}

TCI_FN double tci_query_arithmetic_ns(const tci_query *a)
{
    const tc_machine *m = &a->machine.facts;
    double rate = tci_query_on_unit(a) ? tci_query_unit_flops(a) * m->ghz : 2 * tci_query_rate(a);
    return (double)a->k->flops / (rate * m->processors);
}

TCI_FN double tci_query_memory_ns(const tci_query *a)
{
    return (double)a->k->bytes / tci_query_all_bandwidth(a);
}

TCI_FN double tci_query_least_ns(const tci_query *a)
{
    return a->machine.facts.launch_ns + TCI_MAX(tci_query_arithmetic_ns(a), tci_query_memory_ns(a));
}

TCI_FN bool tci_query_is_far(const tci_query *a)
{
    return a->k->bytes >= a->machine.facts.cache_bytes[1];
}

TCI_FN bool tci_query_on_unit(const tci_query *a)
{
    bool on_unit = false;
    for (int r = 0; r < a->k->n_reds; r++) {
        int order = a->k->reds[r].order;
        on_unit |= order == TCI_ORDER_MATRIX || order == TCI_ORDER_TF32;
    }
    return on_unit;
}

TCI_FN bool tci_query_is_flash(const tci_query *a)
{
    return tci_attention_is_simt(a->k);
}

TCI_FN int64_t tci_query_vectors(const tci_query *a, int64_t lanes)
{
    return tci_ceil_div(tci_dim_hint(a->n_vec), lanes);
}

/* ---- layout ops ---- */

/* True if offset kx has a stride along `axis` other than 0 or 1. */
static bool tci_query_steps(const tci_kernel *k, int kx, int axis)
{
    tci_dim coef = 0;
    return axis >= 0 && tci_build_depends(tci_kx_axes(k, kx), axis) &&
           !(tci_build_coef(k, kx, axis, &coef) && coef == 1);
}

TCI_FN bool tci_query_counts(const tci_query *a)
{
    const tci_kernel *k = a->k;
    bool moves = k->n_guards > 0 || k->n_stages > 1 ||
                 (a->is_map && (tci_dim_hint(a->n_vec) < a->lanes || a->flops >= TCI_QUERY_CHAIN));
    bool known = a->machine.block_threads == 0 && a->lanes > 1 && !tci_kernel_earlier(k) &&
                 (a->is_map || k->n_reds > 0);
    for (int r = 0; r < k->n_reds; r++) {
        known = known && k->reds[r].op != TCI_RED_DOT;
    }
    if (!known) {
        return false;
    }
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        int axis = a->is_map ? a->vec_axis : st->n_axes > 0 ? st->axes[st->n_axes - 1] : -1;
        for (int i = 0; i < k->n_insts && !moves; i++) {
            moves = k->insts[i].op == TCI_K_LOAD && tci_query_steps(k, k->insts[i].x, axis);
        }
        for (int i = 0; i < k->n_stores && !moves; i++) {
            moves = k->stores[i].stage == t && tci_query_steps(k, k->stores[i].x, axis);
        }
    }
    return moves;
}

/* ---- streaming ---- */

/* True if vectors of the store along an axis may bypass the caches, because these do not hold its
 * destination. */
static bool tci_query_is_past(const tci_query *a, const tci_kstore *store, int along, int lanes)
{
    const tci_kernel *k = a->k;
    const tci_koperand *o = &k->operands[store->operand];
    int bytes = tci_dtype_get((tc_dtype)o->dtype)->bytes;
    tci_dim coef;
    return along >= 0 && lanes > 1 && a->machine.block_threads == 0 &&
           k->stages[store->stage].kind == TCI_STAGE_MAP &&
           tci_build_coef(k, store->x, along, &coef) && coef == 1 &&
           tci_dim_hint(o->n) * bytes >= a->machine.facts.cache_bytes[2] && o->dtype != TC_BOOL &&
           lanes * bytes >= 16;
}

TCI_FN const tci_kstore *tci_query_stream(const tci_query *a, int axis, int lanes)
{
    const tci_kernel *k = a->k;
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *store = &k->stores[i];
        const tci_kstage *stage = &k->stages[store->stage];
        const tci_koperand *o = &k->operands[store->operand];
        int bytes = tci_dtype_get((tc_dtype)o->dtype)->bytes, along = axis;
        if (k->vector == TCI_VEC_INNER) {
            along = stage->n_axes > 0 ? stage->axes[stage->n_axes - 1] : -1;
        }
        if (tci_query_is_past(a, store, along, lanes) &&
            tci_dim_hint(k->axes[along].size) * bytes >= TCI_QUERY_STREAM_RUN) {
            return store;
        }
    }
    return NULL;
}

TCI_FN const tci_kstore *tci_query_stream_lines(const tci_query *a, int lanes)
{
    const tci_kernel *k = a->k;
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *store = &k->stores[i];
        int bytes = tci_dtype_get((tc_dtype)k->operands[store->operand].dtype)->bytes;
        bool alike = tci_query_is_past(a, store, a->vec_axis, lanes);
        tci_dim coef = 0;
        for (int axis = 0; axis < k->n_outer && alike; axis++) {
            alike = axis == a->vec_axis ||
                    (tci_build_coef(k, store->x, axis, &coef) && tci_dim_is_known(coef) &&
                     tci_dim_known(coef) * bytes % TCI_QUERY_LINE_BYTES == 0);
        }
        if (alike) {
            return store;
        }
    }
    return NULL;
}

/* ---- the whole ---- */

TCI_FN tci_query *tci_query_make(tci_scratch *s, const tci_kernel *k, tci_machine machine)
{
    tci_query *a = TCI_NEW(s, tci_query);
    a->s = s;
    a->k = k;
    a->machine = tci_machine_complete(machine);
    a->vec_axis = a->row_axis = -1;
    a->n_vec = 1;
    a->widest = tci_cost_widest(k, a->machine.block_threads == 0);
    tci_query_lanes(a);
    a->operations = (double)k->flops;
    a->tasks_ns = tci_query_ns(a, 1, 1);
    a->operations = tci_query_operations(k, a->machine);
    a->ns = tci_query_ns(a, 1, 1);
    for (int t = 0; t < k->n_stages; t++) {
        a->flops += tci_stage_cost(k, t);
    }
    if (k->vector == TCI_VEC_INNER || k->n_outer == 0) {
        return a;
    }
    a->is_map = k->n_stages == 1 && k->stages[0].kind == TCI_STAGE_MAP && k->stages[0].n_axes == 0;
    a->vec_axis = k->n_outer - 1;
    a->n_vec = k->axes[a->vec_axis].size;
    if (a->is_map) {
        tci_query_map_axis(a);
    } else {
        tci_query_reduce_axis(a);
    }
    if (tci_query_many(a->n_vec)) {
        int most = a->is_map && a->flops <= TCI_QUERY_CUTS_COST ? TCI_FORM_CUTS
                                                                : TCI_QUERY_FEW_CUTS;
        tci_build *b = tci_build_make(s, k, tci_loop_make(s, k));
        a->n_cuts = tci_stage_cuts(b, a->vec_axis, 1, a->cuts, most);
    }
    return a;
}
