/* plan/matrix_unit_gemm.c - prepares the operands of a GEMM for tensor cores or AMX: an operand
 * whose rows are unaligned is copied to an aligned row pitch.
 *
 * In: a CONTRACT of bf16 or f16 values, or of values widened from them. Out: the same CONTRACT,
 * with a copy in place of each operand whose rows are unaligned; on a GPU a copy as a matrix if
 * such an operand is an image whose rows or K are several axes of memory, as in a linear layer over
 * the channels of NCHW values, or in one over flattened channels-last images. This is decided from
 * the graph; the final decision is that of kernel/match_matrix_unit.c, which sees the kernel. */
#include "../kernel/match_matrix_unit.h"
#include "contraction_route.h"

enum {
    TCI_ROUTE_PITCH_ROWS = 64 /* reads of an element of an operand that is worth a copy */
};

/* The bf16 or f16 value of an operand that could be in memory as it is read: below layout ops and a
 * widening, unless one of these is stored. NULL: there is none. */
static tci_node *tci_route_half_source(const tci_algo *a, tci_node *n)
{
    n = tci_below(n, TCI_THROUGH_MOVEMENT | TCI_THROUGH_WIDENING, a->forced);
    bool fits = n->rank > 0 && tci_build_is_known(n->rank, n->shape);
    return tci_dtype_is_half((tc_dtype)n->dtype) && fits ? n : NULL;
}

/* Elements of a row of operand n in memory: n's own where its axes only merge or split those of
 * the source, as filters that are a matrix. */
static int64_t tci_route_row(const tci_node *n, const tci_node *source)
{
    const tci_node *x = n;
    while (x != source && (x->op == TCI_OP_RESHAPE || x->op == TCI_OP_CAST)) {
        x = x->in[0];
    }
    x = x == source ? n : source;
    return tci_dim_known(x->shape[tci_relayout_row_axis(x)]);
}

/* True if rows of the value begin where a matrix unit reads them, or a copy with longer rows can
 * take its place. Only layout ops that leave rows whole may be between; on a CPU it would be packed
 * anyway. */
static bool tci_route_can_pitch(const tci_node *n, const tci_node *source,
                                const tci_machine *machine, int64_t rows)
{
    bool whole = machine->block_threads > 0 && rows >= TCI_ROUTE_PITCH_ROWS;
    int align = tci_matrix_align(source->dtype);
    if (tci_route_row(n, source) % align == 0) {
        return true;
    }
    for (; n != source; n = n->in[0]) {
        whole = whole && (n->op == TCI_OP_PERMUTE || n->op == TCI_OP_CAST);
    }
    return whole;
}

/* ---- images as matrices ---- */

/* The axis of operand `which` that is contiguous in a copy of it as a matrix, whose rows or K are
 * then one axis of memory: its last one, or the only axis of M, N or K. -1: it has neither. */
static int tci_route_matrix_axis(const tci_contraction *c, int which)
{
    const tci_contract_operand *x = &c->in[which];
    int count[TCI_AXES_COUNT] = {0}, only[TCI_AXES_COUNT] = {0};
    int row = tci_relayout_row_axis(x->node), own = which ? TCI_AXES_N : TCI_AXES_M, last = own;
    for (int i = 0; i < c->n_axes; i++) {
        const tci_contract_axis_of *axis = &c->axes[i];
        if (axis->at[which] >= 0 && tci_dim_lt(1, axis->size)) {
            count[axis->group]++;
            only[axis->group] = axis->at[which];
            last = axis->at[which] == row ? axis->group : last;
        }
    }
    int other = last == own ? TCI_AXES_K : own;
    return count[last] == 1 ? row : count[other] == 1 ? only[other] : -1;
}

/* True if the last axis of x merges axes of `source` and their innermost one is not contiguous,
 * as that of channels-last images that are flattened in the order of NCHW. */
static bool tci_route_is_scattered(const tci_node *x, const tci_node *source)
{
    const tci_dim size = x->shape[tci_relayout_row_axis(x)];
    int axis = tci_relayout_row_axis(x);
    for (; x != source; x = x->in[0]) {
        axis = x->op == TCI_OP_PERMUTE   ? (int)x->attr[axis]
               : x->op == TCI_OP_RESHAPE ? tci_relayout_row_axis(x->in[0])
                                         : axis;
    }
    return axis != tci_relayout_row_axis(source) && tci_dim_lt(source->shape[axis], size);
}

/* Operand `which` as f16 or bf16, to be copied as a matrix: its rows in memory are not aligned and
 * several axes of memory are its rows or K, or its last axis is scattered. Windows are left to
 * plan/conv_layout.c, and weights of attention are not stored. NULL: no copy of it is a matrix, or
 * none is needed. */
static tci_node *tci_route_image(const tci_algo *a, const tci_contraction *c, int which)
{
    const int own = which ? TCI_AXES_N : TCI_AXES_M;
    tci_node *x = c->in[which].node, *source = tci_route_half_source(a, x);
    if (a->machine.block_threads == 0 || !source || !c->is_known || tci_route_reads_windows(a, c) ||
        c->size[which ? TCI_AXES_M : TCI_AXES_N] < TCI_ROUTE_PITCH_ROWS ||
        tci_route_matrix_axis(c, which) < 0 || tci_is_of_weights(source)) {
        return NULL;
    }
    bool moves = true, merges = false;
    for (const tci_node *n = x; n != source; n = n->in[0]) {
        moves = moves &&
                (n->op == TCI_OP_PERMUTE || n->op == TCI_OP_RESHAPE || n->op == TCI_OP_CAST);
        merges = merges || n->op == TCI_OP_RESHAPE;
    }
    int axes[TCI_AXES_COUNT] = {0};
    for (int i = 0; i < c->n_axes; i++) {
        axes[c->axes[i].group] += c->axes[i].at[which] >= 0 && tci_dim_lt(1, c->axes[i].size);
    }
    bool odd = tci_route_row(x, source) % tci_matrix_align(source->dtype) != 0 &&
               (merges || axes[TCI_AXES_K] > 1 || axes[own] > 1);
    tci_node *half = tci_dtype_is_half((tc_dtype)x->dtype) ? x : tci_plan_narrow(a, x);
    return moves && (odd || (merges && tci_route_is_scattered(x, source))) ? half : NULL;
}

/* Operand `which` over that copy. */
static tci_node *tci_route_as_matrix(const tci_algo *a, const tci_contraction *c, int which,
                                     tci_node *half)
{
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, half->rank);
    int axis = tci_route_matrix_axis(c, which), align = tci_matrix_align(half->dtype);
    int64_t size = tci_dim_known(tci_dim_mul(tci_dim_ceil_div(half->shape[axis], align), align));
    tci_relayout_last(half, axis, order);
    const tci_relayout_to to = {order, axis, size, false, false};
    tci_node *copy = tci_relayout(a, half, to);
    return tci_build_cast(a->g, copy, (tc_dtype)c->in[which].node->dtype);
}

/* ---- the route ---- */

/* Decided from the graph; the final decision is that of loop/wgmma_gemm.c, which sees the
 * kernel. */
static bool tci_route_unit_fits(tci_offer *o)
{
    const tci_contraction *c = o->c;
    const tci_node *n = o->n;
    const tci_machine *m = &o->a->machine;
    if (m->matrix_units == 0 || n->rank < 2 || n->dtype == TC_F64 || c->columns < 0) {
        return false;
    }
    const tci_node *x = tci_route_half_source(o->a, n->in[0]);
    const tci_node *y = tci_route_half_source(o->a, n->in[1]);
    if (!c->is_known || !x || !y || x->dtype != y->dtype) {
        return false;
    }
    int64_t rows = 1, columns = tci_dim_known(n->shape[n->rank - 1]);
    int64_t depth = (int64_t)c->size[TCI_AXES_K];
    for (int i = 0; i < n->rank - 1; i++) {
        bool row = c->axes[i].group == (c->columns ? TCI_AXES_M : TCI_AXES_N);
        rows = row ? TCI_MAX(rows, tci_dim_known(n->shape[i])) : rows;
    }
    bool whole = rows % TCI_MATRIX_WHOLE == 0 && depth % TCI_MATRIX_WHOLE == 0 &&
                 columns % TCI_MATRIX_WHOLE == 0;
    if (m->block_threads == 0 && (x->dtype != TC_BF16 || !whole)) {
        return false;
    }
    double flops = 2.0 * (double)tci_dim_known(tci_node_count(n)) * (double)depth;
    bool fits[2] = {tci_route_can_pitch(n->in[0], x, m, rows),
                    tci_route_can_pitch(n->in[1], y, m, rows)};
    for (int i = 0; i < 2; i++) {
        fits[i] = fits[i] || tci_route_image(o->a, c, i) != NULL;
    }
    return fits[0] && fits[1] && rows >= TCI_MATRIX_FEW && columns >= TCI_MATRIX_COLUMNS &&
           depth >= TCI_MATRIX_DEPTH && flops >= TCI_MATRIX_FLOPS;
}

/* A CPU packs the operand with the columns in each run. */
static double tci_route_unit_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_UNIT);
    for (int i = 0; i < 2; i++) {
        bool copies = tci_route_image(o->a, o->c, i) != NULL;
        work.bytes += copies ? 2 * o->c->in[i].bytes : 0;
        work.launches += copies;
    }
    double ns = tci_route_ns(o, work);
    return ns + (o->a->machine.block_threads == 0 ? tci_route_pack_ns(o) : 0);
}

/* Operand n over its halves in rows that the matrix unit reads: weights of attention, and values
 * computed from them, are not in memory. */
static tci_node *tci_route_pitch(const tci_algo *a, tci_node *n)
{
    tci_node *source = tci_route_half_source(a, n);
    const int align = tci_matrix_align(source->dtype);
    if (tci_is_of_weights(source) || tci_route_row(n, source) % align == 0) {
        tci_algo_force(a, source);
        return n;
    }
    tci_node *now = tci_relayout_pitch(a, source, NULL, align);
    return tci_relayout_over(a, n, source, now);
}

static tci_node *tci_route_unit_build(const tci_offer *o)
{
    tci_node *in[2];
    for (int i = 0; i < 2; i++) {
        tci_node *image = tci_route_image(o->a, o->c, i);
        in[i] = image ? tci_route_as_matrix(o->a, o->c, i, image)
                      : tci_route_pitch(o->a, o->n->in[i]);
    }
    return tci_contract_of(o->a->g, o->n, (tc_dtype)o->n->dtype, in);
}

TCI_FN const tci_route *tci_route_unit(void)
{
    static const tci_route row = {"MMA",
                                  TCI_SUMS_UNIT,
                                  TCI_ROUTE_REORDERS,
                                  tci_route_unit_fits,
                                  tci_route_unit_cost,
                                  tci_route_unit_build};
    return &row;
}
