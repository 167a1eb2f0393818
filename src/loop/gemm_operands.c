/* loop/gemm_operands.c - finds the GEMM operands: which axes of a contraction are M and which are
 * N.
 *
 * In: a kernel, the lanes of a vector. Out: the sides, axes and operands of a tci_gemm.
 *
 * M and N are each a side: all outer axes that only one operand has and that are adjacent in the
 * output, flattened into one. The columns of a convolution are the positions of an image; in its
 * weight gradient they are filters, and the rows everything else. So tiles are full for any
 * image or window. Vectors run along either side: packing and storing across memory rows are
 * expensive, and a short side wastes lanes. */
#include <string.h>

#include "../kernel/match_matrix_unit.h"
#include "stage_op_count.h"
#include "gemm_operands.h"

enum {
    TCI_GEMM_SQUARE = 16,   /* most lanes of a square tile that is transposed in registers */
    TCI_GEMM_REUSE = 8,     /* rows from which packing pays */
    TCI_GEMM_PAGES = 64,    /* whose addresses are at hand */
    TCI_GEMM_MOVE = 5,      /* cycles of packing a range of at most a vector, */
    TCI_GEMM_TOUCH = 10,    /* of reading one, that is not packed, for the first time, */
    TCI_GEMM_TURN = 5,      /* of one that is transposed in registers, */
    TCI_GEMM_TURN_FAR = 30, /* of one of filters that are in far memory, */
    TCI_GEMM_GATHER = 1,    /* of an element that is read alone, */
    TCI_GEMM_FAR = 2,       /* and of one that is on a line of its own, */
    TCI_GEMM_SCATTER = 4,   /* and of one that is written alone, far from the others */
    TCI_GEMM_NEAR = 2,      /* elements between points of a row that is read in place */
    TCI_GEMM_WORTH = 90,    /* percent of the time from which transposed sides are worth it, */
    TCI_GEMM_BARE = 150     /* and which tiles take that pack nothing */
};

/* ---- what fits ---- */

TCI_FN tci_gemm_access tci_gemm_examine(const tci_kernel *k, int inst, int axis)
{
    tci_gemm_access look = {true, false, false, k->insts[inst].op != TCI_K_LOAD};
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    live[inst] = true;
    for (int i = inst; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        tci_dim coef = 0;
        for (int a = 0; live[i] && a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        if (live[i] && in->op == TCI_K_LOAD) {
            look.computed |= k->operands[tci_kinst_number(in)].dtype != in->dtype;
        }
        if (live[i] && in->op == TCI_K_LOAD && tci_build_depends(in->axes, axis)) {
            bool linear = tci_build_coef(k, in->x, axis, &coef);
            look.contiguous = look.contiguous && linear && coef == 1;
            look.strided = look.strided || !linear || coef != 1;
            int bytes = tci_dtype_get((tc_dtype)k->operands[tci_kinst_number(in)].dtype)->bytes;
            int64_t step = linear ? tci_dim_hint(coef) : 0;
            look.far = look.far || (step < 0 ? -step : step) * bytes >= TCI_GEMM_LINE;
        }
    }
    return look;
}

TCI_FN bool tci_gemm_has_set_conflicts(const tci_kernel *k, const tci_gemm *p, int load)
{
    const tci_kinst *in = &k->insts[TCI_MAX(load, 0)];
    int axis = k->stages[p->stage].axes[0];
    tci_dim coef = 0;
    if (load < 0 || p->n_inner != 1 || !tci_build_coef(k, in->x, axis, &coef) ||
        !tci_dim_is_known(coef)) {
        return false;
    }
    int bytes = tci_dtype_get((tc_dtype)k->operands[tci_kinst_number(in)].dtype)->bytes;
    int64_t step = tci_dim_known(coef) * bytes, depth = tci_kernel_known(k, axis);
    step = step < 0 ? -step : step;
    int64_t sets = TCI_GEMM_PAGE / TCI_MAX(tci_lx_gcd(step, TCI_GEMM_PAGE), 1);
    int64_t pages = TCI_MIN(step, TCI_GEMM_PAGE) * depth / TCI_GEMM_PAGE;
    return step >= TCI_GEMM_PAGE / 2 && (sets * TCI_GEMM_WAYS < depth || pages >= TCI_GEMM_PAGES);
}

/* True if x counts the axes `outer` and `inner` as one in row-major order. */
static bool tci_gemm_index_is_flat(const tci_kernel *k, int x, int outer, int inner)
{
    tci_dim to = 0, step = 0, size = k->axes[inner].size;
    return tci_build_coef(k, x, outer, &to) && tci_build_coef(k, x, inner, &step) &&
           tci_dim_is_known(to) && tci_dim_is_known(step) && tci_dim_is_known(size) &&
           tci_dim_known(to) == tci_dim_known(step) * tci_dim_known(size);
}

/* The same of all that these values access. */
static bool tci_gemm_values_are_flat(const tci_kernel *k, const bool *live, int outer, int inner)
{
    bool flat = true;
    for (int i = 0; i < k->n_insts && flat; i++) {
        const tci_kinst *in = &k->insts[i];
        bool depends = tci_build_depends(in->axes, outer) || tci_build_depends(in->axes, inner);
        if (live[i] && depends && in->op != TCI_K_PRIM && in->op != TCI_K_RED) {
            flat = in->op == TCI_K_LOAD && in->n_guards == 0 &&
                   tci_gemm_index_is_flat(k, in->x, outer, inner);
        }
    }
    return flat;
}

/* The same of the later stages. */
static bool tci_gemm_later_is_flat(const tci_kernel *k, int outer, int inner)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    for (int t = 1; t < k->n_stages; t++) {
        tci_cost_mark(k, t, true, live);
    }
    bool flat = tci_gemm_values_are_flat(k, live, outer, inner);
    for (int i = 0; i < k->n_stores; i++) {
        flat = flat && k->stores[i].guard < 0 &&
               tci_gemm_index_is_flat(k, k->stores[i].x, outer, inner);
    }
    return flat;
}

/* Number of last inner axes that all loads of an operand treat as one. */
static int tci_gemm_run(const tci_kernel *k, const tci_gemm *p, int inst)
{
    const int32_t *axes = k->stages[p->stage].axes;
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    live[inst] = true;
    for (int i = inst; i >= 0; i--) {
        for (int a = 0; live[i] && a < k->insts[i].n_args; a++) {
            live[k->insts[i].args[a]] = true;
        }
    }
    int run = 1;
    while (run < p->n_inner &&
           tci_gemm_values_are_flat(k, live, axes[p->n_inner - run - 1], axes[p->n_inner - run])) {
        run++;
    }
    return run;
}

/* True if all inner points of the vector operand are contiguous. */
static bool tci_gemm_is_flat(const tci_kernel *k, const tci_gemm *p)
{
    int last = k->stages[p->stage].axes[p->n_inner - 1];
    return tci_gemm_run(k, p, p->vec_inst) == p->n_inner &&
           tci_gemm_examine(k, p->vec_inst, last).contiguous;
}

/* ---- sides ---- */

static tci_gemm_side tci_gemm_one_axis(const tci_kernel *k, int axis)
{
    tci_gemm_side side = {1, {axis}, k->axes[axis].size};
    return side;
}

/* True if only one operand (own) has the axis. */
static bool tci_gemm_is_own(uint64_t own, uint64_t other, int axis)
{
    return tci_build_depends(own, axis) && !tci_build_depends(other, axis);
}

/* The side of the factor that alone has the axis `last`. */
static tci_gemm_side tci_gemm_side_of(const tci_kernel *k, uint64_t own, uint64_t other, int last)
{
    tci_gemm_side side = tci_gemm_one_axis(k, last);
    bool flat = tci_dim_is_known(side.size);
    for (int axis = last - 1; axis >= 0 && flat && side.n_axes < TCI_GEMM_AXES; axis--) {
        if (!tci_gemm_is_own(own, other, axis)) {
            continue;
        }
        flat = tci_dim_is_known(k->axes[axis].size) &&
               tci_gemm_later_is_flat(k, axis, side.axes[0]);
        if (flat) {
            memmove(side.axes + 1, side.axes, sizeof(*side.axes) * (size_t)side.n_axes);
            side.axes[0] = axis;
            side.n_axes++;
            side.size = tci_dim_mul(side.size, k->axes[axis].size);
        }
    }
    return side;
}

/* The last outer axis that one factor has and the other lacks: -1 none. */
static int tci_gemm_last(const tci_kernel *k, uint64_t own, uint64_t other)
{
    int axis = k->n_outer - 1;
    while (axis >= 0 && (k->axes[axis].size == 1 || !tci_gemm_is_own(own, other, axis))) {
        axis--;
    }
    return axis;
}

/* True if results are contiguous along the vectors. */
static bool tci_gemm_stores_rows(const tci_kernel *k, const tci_gemm *p)
{
    bool rows = true;
    for (int i = 0; i < k->n_stores; i++) {
        tci_dim coef = 0;
        rows = rows && tci_build_coef(k, k->stores[i].x, p->vec_axis, &coef) && coef == 1;
    }
    return rows;
}

TCI_FN double tci_gemm_row_cycles(const tci_kernel *k, int lanes, const tci_gemm *p)
{
    const int32_t *axes = k->stages[p->stage].axes;
    int last = axes[p->n_inner - 1];
    double run = 1;
    if (p->is_row_there) {
        return TCI_GEMM_TOUCH;
    }
    if (p->row_by_vector || p->row_in_place) {
        return TCI_GEMM_MOVE;
    }
    if (!tci_gemm_examine(k, p->row_inst, last).contiguous) {
        return TCI_GEMM_GATHER * lanes;
    }
    for (int i = 1; i <= p->row_run; i++) {
        run *= (double)tci_kernel_known(k, axes[p->n_inner - i]);
    }
    return TCI_GEMM_MOVE * (run < lanes ? lanes / TCI_MAX(run, 1) : 1);
}

/* Inner points of a column. */
static double tci_gemm_depth(const tci_kernel *k, const tci_gemm *p)
{
    double depth = 1;
    for (int i = 0; i < p->n_inner; i++) {
        depth *= (double)tci_kernel_known(k, k->stages[p->stage].axes[i]);
    }
    return depth;
}

/* Cycles of packing a vector of columns for one inner point. */
static double tci_gemm_column_cycles(const tci_kernel *k, tci_machine machine, int lanes,
                                     const tci_gemm *p)
{
    if (p->is_vec_there) {
        return 0;
    }
    double run = (double)TCI_MAX(tci_kernel_known(k, p->vec_axis), 1);
    if (p->squares) {
        double bytes = run * tci_gemm_depth(k, p) * (double)sizeof(float);
        return p->n_inner > 1 && bytes > (double)machine.facts.cache_bytes[1] ? TCI_GEMM_TURN_FAR
                                                                              : TCI_GEMM_TURN;
    }
    if (!p->vec_by_vector) {
        bool far = tci_gemm_examine(k, p->vec_inst, p->vec_axis).far;
        return (far ? TCI_GEMM_FAR : TCI_GEMM_GATHER) * lanes;
    }
    bool parted = p->of_columns.n_axes > 1 && run < lanes;
    return TCI_GEMM_MOVE * (parted ? lanes / run : 1);
}

TCI_FN int tci_gemm_vectors_per_cycle(const tci_kernel *k, tci_machine machine, const tci_gemm *p)
{
    int points = tci_gemm_points(k, p);
    double of_unit = machine.facts.matrix_flops * points / machine.vector_bytes;
    return p->on_unit ? TCI_MAX((int)of_unit, 1) : machine.facts.ports * points;
}

TCI_FN double tci_gemm_pack_ns(const tci_kernel *k, tci_machine machine, int lanes,
                               const tci_gemm *p, double columns)
{
    double vectors = columns / lanes * tci_gemm_depth(k, p);
    return vectors * tci_gemm_column_cycles(k, machine, lanes, p) / machine.facts.ghz;
}

/* Cycles of packing columns, which serve all rows, of packing rows for each block of columns, and
 * of storing results, over those of multiplying. */
static double tci_gemm_overhead(const tci_kernel *k, tci_machine machine, int lanes,
                                const tci_gemm *p)
{
    double rows = (double)TCI_MAX(tci_dim_hint(p->of_rows.size), 1);
    double depth = tci_gemm_depth(k, p);
    double columns = (double)TCI_MIN(tci_dim_known(p->of_columns.size), TCI_GEMM_COLUMNS);
    double store = tci_gemm_stores_rows(k, p) ? 0 : TCI_GEMM_SCATTER * lanes;
    return tci_gemm_vectors_per_cycle(k, machine, p) *
           (tci_gemm_column_cycles(k, machine, lanes, p) / rows +
            tci_gemm_row_cycles(k, lanes, p) / TCI_MAX(columns, 1) + store / TCI_MAX(depth, 1));
}

/* True if the part of an index that depends on the axis is axis / wide * (wide * panel) + axis %
 * wide * step (plan/prepack.c). */
static bool tci_gemm_is_paired(const tci_kernel *k, int x, int axis, int64_t panel, int wide,
                               int step)
{
    bool whole = false, part = false, other = false;
    for (int next; x >= 0; x = next) {
        tci_kx e = k->kx[x];
        next = e.op == TCI_KX_ADD ? e.a : -1;
        e = e.op == TCI_KX_ADD ? k->kx[e.b] : e;
        if (!tci_build_depends(e.axes, axis)) {
            continue;
        }
        tci_dim times = e.op == TCI_KX_MUL ? e.c : 1;
        e = e.op == TCI_KX_MUL ? k->kx[e.a] : e;
        bool of_axis = (e.op == TCI_KX_DIV || e.op == TCI_KX_MOD) && e.c == wide &&
                       k->kx[e.a].op == TCI_KX_AXIS && tci_kx_number(&k->kx[e.a]) == axis;
        whole |= of_axis && e.op == TCI_KX_DIV && times == wide * panel;
        part |= of_axis && e.op == TCI_KX_MOD && times == step;
        other |= !of_axis;
    }
    return whole && part && !other;
}

/* The same where neighbouring columns are `wide` elements apart: this many points each. */
static int64_t tci_gemm_panel_of(const tci_kernel *k, const tci_gemm *p, int wide)
{
    if (p->vec_load < 0 || p->vec_flips || (wide == 1 && p->vec_load != p->vec_inst)) {
        return 0;
    }
    const tci_kinst *in = &k->insts[p->vec_load];
    const int32_t *axes = k->stages[p->stage].axes;
    int order = k->reds[p->red].dtype == TC_F32 ? -1 : 1; /* of bf16 the odd one is first */
    tci_dim step = 0, coef = 0;
    int along = in->n_guards == 0 ? tci_build_panel(k, in, p->vec_axis, wide, &step) : -1;
    if (along < 0 || k->kx[along].op != TCI_KX_AXIS) {
        return 0;
    }
    const tci_koperand *from = &k->operands[tci_kinst_number(in)];
    int64_t panel = from->panel, size = panel;
    for (int i = p->n_inner - 1; i >= 0; i--) { /* the points of a panel are in their order */
        bool linear = tci_build_coef(k, in->x, axes[i], &coef) && coef == size;
        bool paired = wide > 1 && i == p->n_inner - 1;
        if (paired ? !tci_gemm_is_paired(k, in->x, axes[i], panel, wide, order) : !linear) {
            return 0;
        }
        size *= tci_kernel_known(k, axes[i]);
    }
    size = tci_kernel_known(k, p->vec_axis);
    for (int i = p->of_columns.n_axes - 2; i >= 0; i--) { /* panels are in that of the columns */
        int axis = p->of_columns.axes[i];
        if (size % panel != 0 || !tci_build_coef(k, in->x, axis, &coef) ||
            coef != tci_dim_mul(step, size / panel)) {
            return 0;
        }
        size *= tci_kernel_known(k, axis);
    }
    return panel;
}

TCI_FN int64_t tci_gemm_panel(const tci_kernel *k, const tci_gemm *p, bool *paired)
{
    int64_t panel = tci_gemm_panel_of(k, p, 1);
    int points = tci_gemm_points(k, p);
    *paired = panel == 0 && points > 1;
    return *paired ? tci_gemm_panel_of(k, p, points) : panel;
}

/* The load that a factor is; of integers that are multiplied several at once, whose elements are as
 * wide as a point, also after the conversion, and after the sum with 128 that only changes the
 * highest bit of a byte (*flips). -1: it is another value. */
static int tci_gemm_load(const tci_kernel *k, const tci_kred *red, int inst, bool *flips)
{
    const tci_kinst *in = &k->insts[inst];
    *flips = false;
    if (in->op == TCI_K_LOAD || red->dtype != TC_I32 || red->points == 0) {
        return in->op == TCI_K_LOAD ? inst : -1;
    }
    int64_t more = 0;
    for (int i = 0; i < 2 && in->op == TCI_K_PRIM && in->prim == TCI_P_ADD; i++) {
        const tci_kinst *x = &k->insts[in->args[i]], *y = &k->insts[in->args[1 - i]];
        if (y->op == TCI_K_CONST) {
            more = y->value.i;
            in = x;
        }
    }
    bool widens = in->op == TCI_K_PRIM && in->prim == TCI_P_CAST;
    int load = widens ? in->args[0] : -1;
    if (!widens || k->insts[load].op != TCI_K_LOAD) {
        return -1;
    }
    tc_dtype t = (tc_dtype)k->operands[tci_kinst_number(&k->insts[load])].dtype;
    *flips = red->points == 4 && more == (tci_dtype_is_signed(t) ? 128 : -128);
    bool fits = tci_dtype_is_int(t) && t == (tc_dtype)k->insts[load].dtype &&
                tci_dtype_get(t)->bytes * red->points == 4;
    return fits && (more == 0 || *flips) ? load : -1;
}

TCI_FN bool tci_gemm_factors(const tci_kernel *k, int lanes, int vec, tci_gemm *p)
{
    const tci_kred *red = &k->reds[p->red];
    const tci_kstage *st = &k->stages[p->stage];
    p->vec_inst = red->in[vec];
    p->row_inst = red->in[1 - vec];
    p->vec_load = tci_gemm_load(k, red, p->vec_inst, &p->vec_flips);
    p->row_load = tci_gemm_load(k, red, p->row_inst, &p->row_flips);
    bool fours = red->points == 4, signs = p->on_unit; /* which takes any two */
    p->vec_unsigned = fours && tci_matrix_is_within(k, p->vec_inst, 0, UINT8_MAX) &&
                      (signs || tci_matrix_is_within(k, p->row_inst, INT8_MIN, INT8_MAX));
    p->row_unsigned = fours && (signs ? tci_matrix_is_within(k, p->row_inst, 0, UINT8_MAX)
                                      : !p->vec_unsigned);
    uint64_t columns = k->insts[p->vec_inst].axes, rows = k->insts[p->row_inst].axes;
    int last = st->axes[p->n_inner - 1];
    if (!tci_gemm_is_own(columns, rows, p->vec_axis) ||
        !tci_gemm_is_own(rows, columns, p->row_axis) || !tci_build_depends(columns, last) ||
        !tci_build_depends(rows, last) || k->insts[p->vec_inst].dtype == TC_BOOL) {
        return false;
    }
    p->of_columns = tci_gemm_one_axis(k, p->vec_axis);
    p->of_rows = tci_gemm_one_axis(k, p->row_axis);
    p->vec_by_vector = tci_gemm_examine(k, p->vec_inst, p->vec_axis).contiguous;
    p->row_by_vector = tci_gemm_examine(k, p->row_inst, p->row_axis).contiguous;
    bool by_one = tci_gemm_points(k, p) == 1;
    p->squares = !p->vec_by_vector && lanes <= TCI_GEMM_SQUARE &&
                 (p->n_inner == 1 || (by_one && tci_gemm_is_flat(k, p)));
    p->row_run = p->row_by_vector ? 1 : tci_gemm_run(k, p, p->row_inst);
    return true;
}

/* True if the row operand (A) is stored in memory with each row contiguous, or nearly so, along the
 * inner points. */
static bool tci_gemm_has_rows(const tci_kernel *k, const tci_gemm *p)
{
    const tci_kinst *in = &k->insts[p->row_inst];
    tci_dim coef = 0;
    bool fits = in->op == TCI_K_LOAD && in->n_guards == 0 && p->of_rows.n_axes == 1 &&
                !p->row_by_vector && k->operands[tci_kinst_number(in)].dtype == in->dtype &&
                tci_build_coef(k, in->x, p->row_axis, &coef) && tci_dim_is_known(coef);
    for (int i = 0; i < p->n_inner && fits; i++) {
        fits = tci_build_coef(k, in->x, k->stages[p->stage].axes[i], &coef) &&
               tci_dim_is_known(coef);
    }
    return fits && tci_dim_known(coef) <= TCI_GEMM_NEAR && tci_dim_known(coef) >= -TCI_GEMM_NEAR;
}

/* With factor `vec` of the DOT along the vectors; false where it has no columns or the other one no
 * rows, or too few. */
static bool tci_gemm_take(const tci_kernel *k, tci_machine machine, int lanes, int vec, tci_gemm *p)
{
    uint64_t columns = k->insts[k->reds[0].in[vec]].axes;
    uint64_t rows = k->insts[k->reds[0].in[1 - vec]].axes;
    p->vec_axis = tci_gemm_last(k, columns, rows);
    p->row_axis = tci_gemm_last(k, rows, columns);
    if (p->vec_axis < 0 || p->row_axis < 0 || !tci_dim_is_known(k->axes[p->vec_axis].size) ||
        !tci_gemm_factors(k, lanes, vec, p)) {
        return false;
    }
    p->of_columns = tci_gemm_side_of(k, columns, rows, p->vec_axis);
    p->of_rows = tci_gemm_side_of(k, rows, columns, p->row_axis);
    p->row_by_vector = p->row_by_vector && p->of_rows.n_axes == 1 &&
                       (!p->on_unit || p->n_inner == 1);
    p->squares = p->squares && p->of_columns.n_axes == 1;
    p->row_in_place = tci_gemm_has_rows(k, p);
    int64_t panel = tci_gemm_panel(k, p, &p->is_vec_paired);
    p->is_vec_there = panel % lanes == 0 && panel > 0;
    p->overhead = tci_gemm_overhead(k, machine, lanes, p);
    int64_t size = tci_dim_known(p->of_columns.size);
    p->lost = p->on_unit ? 1 /* the same of both */
                         : (double)(tci_ceil_div(size, lanes) * lanes) / (double)size;
    int64_t least = k->reds[p->red].points > 0 ? TCI_SCORES_ROWS : TCI_GEMM_REUSE;
    return p->on_unit || (size >= lanes && (tci_dim_hint(p->of_rows.size) >= least ||
                                            (p->is_vec_there && p->is_vec_paired)));
}

static bool tci_gemm_fits(const tci_kernel *k, tci_machine machine, int lanes)
{
    bool fits = machine.thread_scratch && machine.block_threads == 0 && lanes > 1 &&
                k->n_reds == 1 && k->reds[0].op == TCI_RED_DOT && k->reds[0].stage == 0 &&
                k->n_axes < 63 && k->vector == TCI_VEC_OUTER && k->n_operands < TCI_WORK_OPERANDS &&
                k->stages[0].kind == TCI_STAGE_REDUCE && k->stages[0].n_axes > 0;
    for (int t = 1; t < k->n_stages && fits; t++) {
        fits = k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int a = k->n_outer; a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size); /* the depth, which panels hold */
    }
    return fits;
}

TCI_FN bool tci_gemm_sides(const tci_kernel *k, tci_machine machine, int lanes, tci_gemm *p)
{
    if (!tci_gemm_fits(k, machine, lanes)) {
        return false;
    }
    int last = k->n_outer - 1; /* where results are mostly contiguous */
    int vec = tci_build_depends(k->insts[k->reds[0].in[0]].axes, last) ? 0 : 1;
    p->stage = p->red = 0;
    p->on_unit = k->reds[0].order == TCI_ORDER_MATRIX;
    p->n_inner = k->stages[0].n_axes;
    tci_gemm other = *p;
    bool fits = tci_gemm_take(k, machine, lanes, vec, p);
    if (!tci_gemm_take(k, machine, lanes, 1 - vec, &other)) {
        return fits;
    }
    double now = p->lost * (1 + p->overhead), turned = other.lost * (1 + other.overhead);
    if (!fits ? 100 * turned < TCI_GEMM_BARE : 100 * turned < TCI_GEMM_WORTH * now) {
        *p = other;
        p->is_turned = fits = true;
    }
    return fits;
}

TCI_FN bool tci_gemm_has(const tci_gemm *p, int axis)
{
    bool has = false;
    for (int i = 0; i < p->of_rows.n_axes; i++) {
        has = has || p->of_rows.axes[i] == axis;
    }
    for (int i = 0; i < p->of_columns.n_axes; i++) {
        has = has || p->of_columns.axes[i] == axis;
    }
    return has;
}
