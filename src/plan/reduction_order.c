/* plan/reduction_order.c - chooses the reduction order (association class) of contractions and of
 * fusion groups.
 *
 * In: nodes, groups, kernels before scheduling, the kind of machine. Out: the class of each
 * reduction. Design: results follow from the class alone, so the class never depends on a typical
 * size, the speed of a machine, or which ops share a kernel. The class for a symbolic size serves
 * its whole range.
 *
 * Classes are properties of nodes, which groups and kernels keep: LANES, BLOCK_SCAN and CHAIN of
 * reductions and scans (plan/reduction_lanes.c); here ONLINE, the parts of SPLIT, and the axis
 * order of a sum over windows (tci_class_online_of, tci_class_part_of, tci_class_turns). The
 * exceptions are classes of matrix units and instructions, which a kernel has only if a schedule
 * exists for it:
 *
 *   MATRIX    products of f16, bf16 or f64 on a matrix unit (kernel/match_matrix_unit.c,
 *             kernel/match_mma_sync.c)
 *   TF32      such products of f32, under TC_MATH_FAST
 *   PAIRS     in addition to SPLIT or CHAIN: bf16 contractions on a CPU that multiplies pairs of
 *             bf16, of any shape
 *   STEPS     with them, or on SIMT threads, the weights of attention (kernel/match_attention.c)
 *
 * Classes of nodes:
 *
 *   SPLIT(n)  contractions of f32, f16 or bf16 with more than 512 products per sum, or possibly
 *             that many: the error of a chain grows with its length
 *   CHAIN     other contractions, and rows held in registers
 *   ONLINE    the combine row of a sum of exp(v - m), m the maximum of v in the same row, if the
 *             row is long: the sum is rescaled as m grows, so both are made in one pass. A row is
 *             long if it does not stay in fast memory (cache, registers) after the first pass: from
 *             TCI_CLASS_FAR bytes on a CPU; on a GPU if a block cannot hold it in registers
 *             (loop/simt_row_block.c). Short rows are read twice, as a step of ONLINE waits for an
 *             exp and rounds once more. A symbolic row is long if it is long for every value of its
 *             symbols. A row that is cut (plan/decompose.c) has an m for each part, each short or
 *             long by its own length.
 *
 * The axis order of a sum over windows (kernel/window_overlap.h) is a class too: on a CPU the axis
 * along which windows of neighbouring output rows share image rows comes last, if one operand has
 * no output axis that the other lacks (each channel has its own filter).
 *
 * Reproducible results (tci_machine.reproducible) need classes that are the same for all sizes and
 * machines: a reduction whose axes end with the last one of its input, as the graph has them, is
 * LANES(64) over these axes as one, a scan along it BLOCK_SCAN(64), and any other is CHAIN. Axes
 * of both kinds are reduced one after the other; no kernel holds both; no lane axis is split. An
 * axis of size 1 changes neither: its sum is its element. No sum is ONLINE. */
#include "../kernel/match_attention.h"
#include "../kernel/match_mma_sync.h"
#include "../kernel/window_overlap.h"
#include "../graph/build.h"
#include "fusion_groups.h"

enum {
    TCI_CLASS_FAR = 1 << 20, /* bytes of a row that near memory does not hold */
    TCI_CLASS_PART = 512,    /* products of a part, about */
    TCI_CLASS_SLAB = 16,
    TCI_CLASS_STEP_MOST = 1536, /* products that are not cut to make parts of whole steps */
    TCI_CLASS_TURNED = 1 << 16  /* products that other orders of them are worth */
};

/* ---- parts ---- */

/* The products of a part of CONTRACT n's sums, 0: one chain is no longer. Whole steps of the first
 * summed axis, as the graph has them, so that a packed block is a part (loop/gemm_blocking.c); on
 * GPUs of a multiple of a slab (loop/simt_gemm.c), rather of twice as many products than of
 * none. */
TCI_FN int tci_class_part_of(const tci_node *n, tci_machine machine)
{
    const bool blocks = machine.block_threads > 0;
    int64_t all = 1, step = 1, first = 0;
    bool known = true;
    for (int i = 0; i < n->in[0]->rank; i++) {
        int64_t size = TCI_MAX(tci_dim_most(n->in[0]->shape[i]), 1);
        if (size == 1 || !tci_contract_sums_axis(n, 0, i)) {
            continue;
        }
        known = known && (first == 0 || tci_dim_is_known(n->in[0]->shape[i]));
        step = first > 0 ? (step > INT32_MAX / size ? INT32_MAX : step * size) : 1;
        all = all > INT32_MAX / size ? INT32_MAX : all * size;
        first++;
    }
    if (tci_dtype_get((tc_dtype)n->dtype)->compute != TC_F32 || all <= TCI_CLASS_PART) {
        return 0;
    }
    if (machine.reproducible || !known || step > TCI_CLASS_STEP_MOST) {
        return TCI_CLASS_PART;
    }
    int64_t slab = TCI_CLASS_SLAB;
    while (slab > 1 && step * slab > TCI_CLASS_PART * (1 + blocks)) {
        slab /= 2;
    }
    if (blocks && step * slab % TCI_CLASS_SLAB != 0) {
        return TCI_CLASS_PART;
    }
    int64_t part = TCI_MAX(TCI_CLASS_PART / (step * slab), 1) * step * slab;
    return all <= part ? 0 : (int)part;
}

/* ---- folds ---- */

/* True if the folded axes of n end with the last axis of what it folds. */
static bool tci_class_ends_rows(const tci_node *n)
{
    int last = n->op == TCI_OP_SCAN ? 0 : n->n_attr - 1; /* of its axes */
    return n->n_attr > 0 && n->attr[last] == n->in[0]->rank - 1;
}

TCI_FN tci_association tci_class_of(const tci_fusion *f, const tci_node *n)
{
    if (f->associations) {
        return tci_association_of(f->associations, n, f->blocks);
    }
    return (tci_association){.known = true, .lanes = tci_class_ends_rows(n), .n = TCI_VLANES};
}

/* True if the result of fold n is the same in every order. A CPU keeps the class of the node
 * also then. */
static bool tci_class_is_any(const tci_fusion *f, const tci_node *n)
{
    return f->blocks && n->op != TCI_OP_SCAN &&
           (tci_op_is(n->op, TCI_IS_ARG) || !tci_dtype_is_float((tc_dtype)n->dtype));
}

TCI_FN tci_association tci_class_of_group(const tci_fusion *f, const tci_group *g)
{
    const tci_node *fold = NULL;
    for (int i = 0; i < g->n_roots; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        bool folds = r->kind == TCI_ROOT_REDUCE || r->kind == TCI_ROOT_SCAN;
        if (folds && (!fold || tci_class_is_any(f, fold))) {
            fold = r->node;
        }
    }
    return fold ? tci_class_of(f, fold) : (tci_association){0};
}

TCI_FN bool tci_class_is_same(const tci_fusion *f, const tci_node *a, const tci_node *b)
{
    tci_association x = tci_class_of(f, a), y = tci_class_of(f, b);
    return tci_class_is_any(f, a) || tci_class_is_any(f, b) ||
           (x.lanes == y.lanes && (!x.lanes || (x.n == y.n && x.near == y.near)));
}

TCI_FN bool tci_class_may_keep(const tci_fusion *f, const tci_node *n)
{
    if (f->blocks) { /* attention has a class of its own */
        return tci_class_ends_rows(n);
    }
    return tci_class_of(f, n).lanes &&
           !(f->associations && (tci_class_run(f, n) > 1 || tci_class_online_of(f, n)));
}

TCI_FN int tci_class_run(const tci_fusion *f, const tci_node *n)
{
    return f->associations ? tci_class_of(f, n).run : 0;
}

/* The MAX of x over the axes of SUM n that node m spreads over x again; NULL: m is something
 * else. */
static const tci_node *tci_class_max_spread(const tci_node *n, const tci_node *x, const tci_node *m)
{
    const tci_node *max = m;
    while (max->op == TCI_OP_EXPAND || max->op == TCI_OP_RESHAPE || max->op == TCI_OP_BARRIER) {
        max = max->in[0];
    }
    bool same = max->op == TCI_OP_MAX && max->in[0] == x && max->n_attr == n->n_attr &&
                m->op == TCI_OP_EXPAND && m->in[0]->rank == x->rank;
    for (int i = 0, at = 0; i < x->rank && same; i++) {
        bool folds = at < n->n_attr && n->attr[at] == i;
        same = m->in[0]->shape[i] == (folds ? 1 : x->shape[i]);
        at += folds;
    }
    for (int i = 0; i < n->n_attr && same; i++) {
        same = max->attr[i] == n->attr[i];
    }
    return same ? max : NULL;
}

/* Bytes of a row of `row` elements of all that x is read from, through layout and elementwise ops:
 * in memory, or in registers. */
static tci_dim tci_class_bytes_of(tci_scratch *s, const tci_node *x, tci_dim row, bool registers)
{
    const tci_node **stack = NULL;
    int n = 0, cap = 0;
    tci_dim bytes = 0;
    tci_table seen = tci_table_in(s, sizeof(bool));
    TCI_PUSH(s, stack, n, cap, x);
    while (n > 0) {
        x = stack[--n];
        bool goes = tci_op_is(x->op, TCI_IS_POINTWISE | TCI_IS_VIEW) || x->op == TCI_OP_PAD ||
                    x->op == TCI_OP_BARRIER || x->op == TCI_OP_CAT;
        if (!goes) {
            const tci_dtype_info *t = tci_dtype_get((tc_dtype)x->dtype);
            t = registers ? tci_dtype_get((tc_dtype)t->compute) : t;
            tci_dim elements = tci_dim_min(row, tci_node_count(x));
            bytes = tci_dim_add(bytes, tci_dim_mul(elements, t->bytes));
        }
        for (int i = 0; i < x->n_in && goes; i++) {
            if (tci_table_add(&seen, x->in[i])) {
                TCI_PUSH(s, stack, n, cap, x->in[i]);
            }
        }
    }
    return bytes;
}

TCI_FN tci_node *tci_class_online_of(const tci_fusion *f, const tci_node *n)
{
    const tci_node *less = n->op == TCI_OP_SUM && n->in[0]->op == TCI_OP_EXP ? n->in[0]->in[0] : n;
    tci_node *x = less->op == TCI_OP_SUB ? less->in[0] : NULL;
    if (!x || x->dtype != n->dtype || tci_dtype_is_half((tc_dtype)n->dtype)) {
        return NULL;
    }
    tci_dim row = 1;
    for (int i = 0; i < n->n_attr; i++) {
        row = tci_dim_mul(row, x->shape[n->attr[i]]);
    }
    if (!tci_class_max_spread(n, x, less->in[1])) {
        return NULL;
    }
    const int64_t held = TCI_CLASS_THREADS * TCI_CLASS_THREAD_BYTES * TCI_CLASS_ROW_VECTORS;
    tci_dim bytes = tci_class_bytes_of(f->s, x, row, f->blocks);
    return tci_dim_le(f->blocks ? held + 1 : TCI_CLASS_FAR, bytes) ? x : NULL;
}

/* Accesses of a kernel that is lowered only to find the reduction order of a contraction: every
 * value that is not a view is in memory. */
static int tci_class_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    if (tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_BARRIER) {
        return -1;
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    int operand = tci_kernel_operand(l->k, (tc_dtype)n->dtype, false, tci_node_count(n));
    return tci_lower_load(l, operand, t, tci_lower_offset(l, n->rank, n->shape, NULL, idx), guard);
}

/* Halves may be multiplied in pairs, which has an order of its own. */
static bool tci_class_is_of_halves(const tci_node *n)
{
    for (; tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_CAST; n = n->in[0]) {
        if (tci_dtype_is_half((tc_dtype)n->dtype)) {
            return true;
        }
    }
    return tci_dtype_is_half((tc_dtype)n->dtype);
}

/* CONTRACT root r alone, its operands in memory row by row; NULL: no sum over windows. */
static tci_kernel *tci_class_alone(const tci_fusion *f, const tci_root *r)
{
    tci_kernel *k = tci_kernel_make(f->s);
    tci_lower l;
    tci_lower_init(&l, f->s, k);
    l.access = tci_class_access;
    int *domain = TCI_NEW_ARRAY(f->s, int, r->n_domain + 1);
    tci_kstage stage = {
        TCI_STAGE_REDUCE, 0, TCI_NEW_ARRAY(f->s, int32_t, r->n_domain + 1), 0, -1, -1};
    for (int i = 0; i < r->n_domain; i++) {
        bool inner = i >= r->n_out, one = r->domain[i] == 1;
        int axis = one ? -1 : tci_kernel_axis(k, r->domain[i], inner);
        domain[i] = one ? tci_kx_const(k, 0) : tci_kx_axis(k, axis);
        if (inner && !one) {
            stage.axes[stage.n_axes++] = axis;
        }
    }
    if (stage.n_axes < 2) {
        return NULL;
    }
    TCI_PUSH(k->s, k->stages, k->n_stages, k->cap_stages, stage);
    tci_kred red = {.op = TCI_RED_DOT, .dtype = TC_F32, .in = {-1, -1, -1, -1}, .inst = -1};
    for (int i = 0; i < 2; i++) {
        red.in[i] = tci_lower_value(&l, r->node->in[i], tci_plan_input_index(&l, r, i, domain), 0);
    }
    TCI_PUSH(k->s, k->reds, k->n_reds, k->cap_reds, red);
    return k;
}

/* True if there are enough products to pay for another order. Symbolic sizes count as 1. */
static bool tci_class_pays_turning(const tci_root *r)
{
    double products = 1;
    for (int i = 0; i < r->n_domain; i++) {
        products *= tci_dim_is_known(r->domain[i]) ? (double)tci_dim_known(r->domain[i]) : 1;
    }
    return products >= TCI_CLASS_TURNED;
}

TCI_FN bool tci_class_turns(const tci_fusion *f, const tci_root *r)
{
    const tci_node *n = r->node;
    bool halves = tci_class_is_of_halves(n->in[0]) || tci_class_is_of_halves(n->in[1]);
    bool may = f->associations && !f->blocks && !halves && tci_class_pays_turning(r);
    const tci_kernel *k = may ? tci_class_alone(f, r) : NULL;
    return k && tci_window_overlap_is_across(k, k->n_outer - 1);
}

/* ---- reproducible ---- */

/* The op of n over axes of x. */
static tci_node *tci_class_fold(tci_scratch *s, tci_graph *g, tci_node *n, tci_node *x, int n_axes,
                                const int64_t *axes)
{
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, x->rank);
    int rank = 0;
    for (int i = 0, at = 0; i < x->rank; i++) {
        bool reduced = at < n_axes && axes[at] == i;
        at += reduced;
        if (!reduced) {
            shape[rank++] = x->shape[i];
        }
    }
    return tci_graph_node(g, n->op, (tc_dtype)x->dtype, rank, shape, 1, &x, n_axes, axes);
}

TCI_FN tci_node *tci_class_reproducible(tci_scratch *s, tci_graph *g, tci_node *n)
{
    tci_node *x = n->in[0];
    int run = 0;
    while (run < n->n_attr && n->attr[n->n_attr - 1 - run] == x->rank - 1 - run) {
        run++;
    }
    if (run == 0 || (run == 1 && n->n_attr == 1)) {
        return n;
    }
    bool half = tci_dtype_is_half((tc_dtype)x->dtype);
    tc_dtype t = half ? TC_F32 : (tc_dtype)n->dtype;
    if (x->dtype != t) {
        x = tci_graph_node(g, TCI_OP_CAST, t, x->rank, x->shape, 1, &x, 0, NULL);
    }
    int rank = x->rank - run + 1;
    int64_t last = rank - 1;
    tci_dim *shape = tci_scratch_copy(s, x->shape, sizeof(tci_dim) * (size_t)rank);
    for (int i = rank; i < x->rank; i++) {
        shape[last] = tci_dim_mul(shape[last], x->shape[i]);
    }
    if (run > 1) {
        x = tci_graph_node(g, TCI_OP_RESHAPE, t, rank, shape, 1, &x, 0, NULL);
    }
    x = tci_class_fold(s, g, n, x, 1, &last);
    if (n->n_attr > run) {
        x = tci_class_fold(s, g, n, x, n->n_attr - run, n->attr);
    }
    return t == (tc_dtype)n->dtype ? x
                                   : tci_graph_node(g, TCI_OP_CAST, (tc_dtype)n->dtype, x->rank,
                                                    x->shape, 1, &x, 0, NULL);
}

/* ---- the choice ---- */

/* True if n is a layout op, padding or a widening of what is in memory. */
TCI_FN bool tci_class_moves(const tci_fusion *f, const tci_node *n)
{
    bool widens = n->op == TCI_OP_CAST && n->dtype == TC_F32 &&
                  tci_dtype_is_half((tc_dtype)n->in[0]->dtype);
    bool moves = widens || n->op == TCI_OP_PAD || n->op == TCI_OP_BARRIER ||
                 tci_op_is(n->op, TCI_IS_VIEW);
    return moves && !tci_table_has(f->units->stored, n);
}

TCI_FN tci_node *tci_class_operand_of(const tci_fusion *f, tci_node *n)
{
    while (tci_class_moves(f, n)) {
        n = n->in[0];
    }
    return n;
}

/* Gives the contraction of k the order of a unit that has a form for it, if it is the one that the
 * contraction may have. */
static void tci_class_give_unit(tci_kernel *k, tci_korder order, int unit)
{
    if (unit == TCI_CLASS_ANY || unit == (int)order) {
        k->reds[0].order = (uint8_t)order;
        k->reds[0].order_n = 0;
    }
}

TCI_FN void tci_class_choose(tci_kernel *k, tci_machine machine, int unit)
{
    for (int r = 0; r < k->n_reds; r++) {
        tci_kred *red = &k->reds[r];
        red->points = (uint8_t)tci_matrix_lane_points(k, red, machine);
    }
    tci_mma_sync_unit warps;
    if (!machine.reproducible && tci_mma_sync_takes(k, &machine, &warps) && !warps.is_exact) {
        bool single = warps.dtypes[0] == TC_F32;
        tci_class_give_unit(k, single ? TCI_ORDER_TF32 : TCI_ORDER_MATRIX, unit);
    }
    if (tci_matrix_packs(k, machine)) {
        k->reds[0].order = TCI_ORDER_MATRIX;
        k->reds[0].order_n = 0;
        k->reds[0].points = k->reds[0].dtype == TC_I32 ? 4 : 0;
    }
    if (!machine.reproducible && tci_matrix_fits(k, machine)) {
        const tci_kinst *factor = &k->insts[tci_matrix_factor(k, 0)];
        bool single = k->operands[tci_kinst_number(factor)].dtype == TC_F32;
        tci_class_give_unit(k, single ? TCI_ORDER_TF32 : TCI_ORDER_MATRIX, unit);
        k->reds[0].points = 0;
    }
    for (int r = 0; !machine.reproducible && tci_matrix_keeps(k, machine) && r < k->n_reds; r++) {
        if (k->reds[r].op == TCI_RED_DOT) {
            k->reds[r].order = TCI_ORDER_MATRIX;
            k->reds[r].order_n = 0;
            k->reds[r].points = 0;
        }
    }
    if (!machine.reproducible && tci_attention_fits(k, machine)) {
        tci_attention_set_orders(k, machine);
    }
}

/* Fold or contraction n's order, if it need not be reproducible. */
static void tci_class_order_of(const tci_fusion *f, const tci_node *n, tci_machine machine,
                               tci_kred *red)
{
    tci_association as = {0};
    if (n->op == TCI_OP_CONTRACT) {
        red->order_n = tci_class_part_of(n, machine);
        red->order = red->order_n > 0 ? TCI_ORDER_SPLIT : TCI_ORDER_CHAIN;
        return;
    }
    tci_table found = tci_table_in(f->s, sizeof(tci_association));
    as = tci_association_of(&found, n, f->blocks);
    red->order = !as.lanes              ? TCI_ORDER_CHAIN
                 : n->op == TCI_OP_SCAN ? TCI_ORDER_BLOCK_SCAN
                                        : TCI_ORDER_LANES;
    red->order_n = as.lanes ? as.n : 0;
    red->near = red->order == TCI_ORDER_LANES ? as.near : 0;
}

TCI_FN void tci_class_report(const tci_fusion *f, const tci_group *g, tci_kernel *k,
                             tci_machine machine, tci_str *orders)
{
    const tci_root *first = NULL;
    tci_kred now = {0}, *before = k->reds;
    machine.reproducible = false;
    for (int i = 0; i < g->n_roots && k->n_reds > 0; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        bool folds = r->kind == TCI_ROOT_REDUCE || r->kind == TCI_ROOT_SCAN;
        first = !first && (folds || r->kind == TCI_ROOT_CONTRACT) ? r : first;
        if (folds && tci_class_online_of(f, r->node)) {
            tci_str_printf(orders, "%s: two passes, to be reproducible, else ONLINE\n", k->name);
        }
    }
    if (!first) {
        return;
    }
    now = k->reds[0];
    k->reds = tci_scratch_copy(k->s, before, sizeof(*before) * (size_t)k->n_reds);
    tci_class_order_of(f, first->node, machine, &k->reds[0]);
    tci_class_choose(k, machine, TCI_CLASS_ANY);
    if (now.order != k->reds[0].order || now.order_n != k->reds[0].order_n) {
        tci_str_printf(orders, "%s: ", k->name);
        tci_kernel_print_order(orders, &now);
        tci_str_add(orders, ", to be reproducible, else ");
        tci_kernel_print_order(orders, &k->reds[0]);
        tci_str_add(orders, "\n");
    }
    k->reds = before;
}
