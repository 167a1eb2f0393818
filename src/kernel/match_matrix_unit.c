/* kernel/match_matrix_unit.c - matches GEMM kernels for matrix units: tensor cores (WGMMA) and
 * AMX.
 *
 * In: a kernel, the machine. Out: whether the matrix unit can compute its contraction, and the
 * operands as the unit takes them. The answer depends on shape, layout, dtype and kind of machine
 * alone: it gives plan/reduction_order.c the numeric class, and loop/ can schedule every kernel
 * that matches. */
#include "match_matrix_unit.h"

#include <string.h>

enum {
    TCI_MATRIX_WASTE = 4,      /* times as many elements of k as there are, at most */
    TCI_MATRIX_LEAST = 1 << 16 /* products of a group that is packed for a CPU's unit */
};

/* ---- recognising ---- */

TCI_FN bool tci_matrix_load(const tci_kernel *k, int inst, int64_t *coef, tci_matrix_side *side)
{
    const tci_kinst *in = &k->insts[inst];
    if (in->op != TCI_K_LOAD || in->n_guards > 0 ||
        !tci_kx_affine_known(k, in->x, coef, &side->offset)) {
        return false;
    }
    bool fits = true;
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && coef[a] >= 0 && coef[a] <= INT32_MAX;
    }
    side->operand = tci_kinst_number(in);
    return fits;
}

static bool tci_matrix_is_aligned(const tci_matrix *x, int64_t stride)
{
    return stride % tci_matrix_align(x->dtype) == 0;
}

TCI_FN bool tci_matrix_side_of(const tci_matrix *x, const int64_t *coef, int own, int summed,
                               tci_matrix_side *side)
{
    int64_t along = coef[summed];
    side->along_k = along == 1;
    side->pitch = side->along_k ? coef[own] : along;
    side->own = coef[own];
    side->summed = along;
    bool fits = (side->along_k || coef[own] == 1) && side->pitch > 0 &&
                tci_matrix_is_aligned(x, side->pitch) && tci_matrix_is_aligned(x, side->offset);
    for (int i = 0; i < x->n_batch; i++) {
        side->batch_pitch[i] = coef[x->batch_axis[i]];
        fits = fits && tci_matrix_is_aligned(x, side->batch_pitch[i]);
    }
    return fits;
}

TCI_FN bool tci_matrix_takes(int8_t dtype)
{
    return tci_dtype_is_half((tc_dtype)dtype) || dtype == TC_F32;
}

TCI_FN bool tci_matrix_is_readable(const tci_matrix *x, const tci_matrix_side *side)
{
    return side->along_k || tci_dtype_is_half((tc_dtype)x->dtype);
}

/* The rows: the longest axis that A has and B has not. The rest is the batch. */
static bool tci_matrix_axes(const tci_kernel *k, const int64_t *a, const int64_t *b, tci_matrix *x)
{
    x->n_axis = k->n_outer - 1;
    x->m_axis = -1;
    for (int i = 0; i < x->n_axis; i++) {
        bool longer = x->m_axis < 0 || tci_dim_lt(k->axes[x->m_axis].size, k->axes[i].size);
        x->m_axis = a[i] != 0 && b[i] == 0 && longer ? i : x->m_axis;
    }
    if (x->m_axis < 0 || b[x->n_axis] == 0 || a[x->n_axis] != 0 ||
        k->n_outer > 2 + TCI_MATRIX_PLAIN_BATCH) {
        return false;
    }
    for (int i = 0; i < x->n_axis; i++) {
        if (i != x->m_axis) {
            x->batch_axis[x->n_batch] = i;
            x->batch[x->n_batch++] = tci_dim_known(k->axes[i].size);
        }
    }
    x->m = tci_dim_known(k->axes[x->m_axis].size);
    x->n = tci_dim_known(k->axes[x->n_axis].size);
    x->k = tci_dim_known(k->axes[k->n_axes - 1].size);
    return true;
}

/* A DOT in the first stage, and later ones that only map. */
static bool tci_matrix_has_stages(const tci_kernel *k)
{
    bool fits = k->vector == TCI_VEC_OUTER && k->n_reds == 1 && k->n_outer >= 2 &&
                k->reds[0].op == TCI_RED_DOT && k->reds[0].stage == 0 && k->stages[0].n_axes > 0 &&
                k->n_axes == k->n_outer + k->stages[0].n_axes;
    for (int t = 1; t < k->n_stages; t++) {
        fits = fits && k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int i = 0; i < k->n_stores; i++) {
        fits = fits && k->stores[i].stage > 0;
    }
    return fits;
}

static bool tci_matrix_is_size(const tci_kernel *k, int axis)
{
    tci_dim size = k->axes[axis].size;
    return tci_dim_is_known(size) && tci_dim_known(size) > 0 && tci_dim_known(size) <= INT32_MAX;
}

static bool tci_matrix_has_form(const tci_kernel *k)
{
    bool fits = tci_matrix_has_stages(k) &&
                (k->reds[0].dtype == TC_F32 || k->reds[0].dtype == TC_I32);
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && tci_matrix_is_size(k, a);
    }
    return fits;
}

/* True if anything except instruction `except` uses instruction `inst`. */
static bool tci_matrix_is_used(const tci_kernel *k, int inst, int except)
{
    for (int i = 0; i < k->n_insts; i++) {
        for (int a = 0; a < k->insts[i].n_args; a++) {
            if (i != except && k->insts[i].args[a] == inst) {
                return true;
            }
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        if (k->stores[i].value == inst) {
            return true;
        }
    }
    for (int i = 0; i < k->n_kx; i++) {
        if (k->kx[i].op == TCI_KX_VALUE && k->kx[i].c == inst) {
            return true;
        }
    }
    return false;
}

TCI_FN void tci_matrix_value(const tci_kernel *k, int red, tci_matrix *x)
{
    x->value = k->reds[red].inst;
    x->staged = k->reds[red].dtype;
    for (int i = x->value + 1; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        bool rounds = in->op == TCI_K_PRIM && in->args[0] == x->value &&
                      (in->prim == TCI_P_ROUNDB16 || in->prim == TCI_P_ROUND16);
        if (rounds && !tci_matrix_is_used(k, x->value, i)) {
            x->value = i;
            x->staged = in->prim == TCI_P_ROUND16 ? TC_F16 : TC_BF16;
            return;
        }
    }
}

TCI_FN int tci_matrix_factor(const tci_kernel *k, int i)
{
    const tci_kinst *in = &k->insts[k->reds[0].in[i]];
    bool widens = k->reds[0].dtype == TC_I32 && in->op == TCI_K_PRIM && in->prim == TCI_P_CAST;
    return widens ? in->args[0] : k->reds[0].in[i];
}

/* Operand dtype of the matrix unit for operands stored as t and u; TC_I32: it does not multiply
 * them. */
static tc_dtype tci_matrix_multiplies(const tci_kernel *k, tc_dtype t, tc_dtype u)
{
    bool bytes = (t == TC_I8 || t == TC_U8) && (u == TC_I8 || u == TC_U8);
    bool fits = k->reds[0].dtype == TC_F32 ? t == u && tci_matrix_takes((int8_t)t) : bytes;
    return !fits ? TC_I32 : bytes ? TC_I8 : t;
}

/* One contracted axis, and factors that are in memory as matrices. */
static bool tci_matrix_find_plain(const tci_kernel *k, tci_matrix *x)
{
    memset(x, 0, sizeof(*x));
    if (k->stages[0].n_axes != 1) {
        return false;
    }
    int64_t *coef[2] = {TCI_NEW_ARRAY(k->s, int64_t, k->n_axes),
                        TCI_NEW_ARRAY(k->s, int64_t, k->n_axes)};
    tci_matrix_side side[2] = {{0}};
    if (!tci_matrix_load(k, tci_matrix_factor(k, 0), coef[0], &side[0]) ||
        !tci_matrix_load(k, tci_matrix_factor(k, 1), coef[1], &side[1])) {
        return false;
    }
    int a = coef[0][k->n_outer - 1] == 0 ? 0 : 1;
    tc_dtype t = (tc_dtype)k->operands[side[0].operand].dtype;
    tc_dtype u = (tc_dtype)k->operands[side[1].operand].dtype;
    side[0].is_unsigned = t == TC_U8;
    side[1].is_unsigned = u == TC_U8;
    x->dtype = (int8_t)tci_matrix_multiplies(k, t, u);
    bool fits = x->dtype != TC_I32 && tci_matrix_axes(k, coef[a], coef[1 - a], x) &&
                tci_matrix_side_of(x, coef[a], x->m_axis, k->n_axes - 1, &side[a]) &&
                tci_matrix_side_of(x, coef[1 - a], x->n_axis, k->n_axes - 1, &side[1 - a]);
    if (!fits || !tci_matrix_is_readable(x, &side[0]) || !tci_matrix_is_readable(x, &side[1])) {
        return false;
    }
    x->y_axis = -1;
    x->k_rows = tci_matrix_depth(x);
    x->side[0] = side[a];
    x->side[1] = side[1 - a];
    return true;
}

TCI_FN bool tci_matrix_find(const tci_kernel *k, tci_matrix *x)
{
    memset(x, 0, sizeof(*x));
    if (!tci_matrix_has_form(k)) {
        return false;
    }
    bool found = tci_matrix_find_plain(k, x);
    if (!found && k->reds[0].dtype == TC_F32) {
        memset(x, 0, sizeof(*x));
        found = tci_tma_find(k, x);
    }
    if (found) {
        tci_matrix_value(k, 0, x);
    }
    return found;
}

static bool tci_matrix_pays(const tci_matrix *x)
{
    double flops = 2.0 * (double)x->m * (double)x->n * (double)x->k;
    for (int i = 0; i < x->n_batch; i++) {
        flops *= (double)x->batch[i];
    }
    bool single = x->dtype == TC_F32;
    return x->m >= (single ? TCI_MATRIX_SINGLE : TCI_MATRIX_FEW) &&
           x->n >= (single ? TCI_MATRIX_SINGLE : TCI_MATRIX_COLUMNS) && x->k >= TCI_MATRIX_DEPTH &&
           flops >= TCI_MATRIX_FLOPS;
}

static bool tci_matrix_is_whole(int64_t size)
{
    return size % TCI_MATRIX_WHOLE == 0;
}

/* AMX: the CPU's vectors have a lane for each column of a tile register. */
static bool tci_matrix_has_registers(const tci_kernel *k, tci_machine machine)
{
    bool fits = machine.matrix_units > 0 && machine.block_threads == 0 && machine.thread_scratch &&
                machine.vector_bytes == TCI_MATRIX_REGISTER && k->n_operands < TCI_WORK_OPERANDS;
    for (int i = 0; i < k->n_insts; i++) {
        fits = fits && tci_dtype_get((tc_dtype)k->insts[i].dtype)->bytes <= 4;
    }
    return fits;
}

/* Whole registers of bf16, A contiguous along k. */
static bool tci_matrix_fits_processor(const tci_kernel *k, const tci_matrix *x, tci_machine machine)
{
    return tci_matrix_has_registers(k, machine) && !x->is_boxes && x->dtype == TC_BF16 &&
           x->side[0].along_k && tci_matrix_is_whole(x->m) && tci_matrix_is_whole(x->n) &&
           tci_matrix_is_whole(x->k);
}

/* A GPU's unit has a tile for every product that has so few tiles that their number is an int. Of
 * boxes not all that a step takes may be there: most of it should. */
static bool tci_matrix_fits_blocks(const tci_matrix *x)
{
    int64_t columns = x->y_axis >= 0 ? x->image_row : TCI_MATRIX_TILE_COLUMNS;
    double tiles = (double)tci_dim_known(tci_dim_ceil_div(x->m, TCI_MATRIX_TILE_ROWS)) *
                   (double)tci_dim_known(tci_dim_ceil_div(x->n, columns));
    if (x->is_boxes && x->k_steps * tci_matrix_depth(x) > TCI_MATRIX_WASTE * x->k) {
        return false;
    }
    for (int i = 0; i < x->n_batch; i++) {
        tiles *= (double)x->batch[i];
    }
    return tiles <= INT32_MAX / 2;
}

TCI_FN bool tci_matrix_fits(const tci_kernel *k, tci_machine machine)
{
    tci_matrix x;
    return machine.matrix_units > 0 && tci_matrix_find(k, &x) && tci_matrix_pays(&x) &&
           (x.dtype != TC_F32 || machine.is_fast) &&
           (machine.block_threads > 0 ? tci_matrix_fits_blocks(&x)
                                      : tci_matrix_fits_processor(k, &x, machine));
}

/* ---- pairs ---- */

/* True if the value is a widened bf16. Filled in for the instructions up to `inst`. */
static bool tci_matrix_is_bf16(const tci_kernel *k, int inst, int8_t *known)
{
    const tci_kinst *in = &k->insts[inst];
    if (known[inst] != 0) {
        return known[inst] > 0;
    }
    bool is = in->dtype == TC_F32;
    switch (in->op) {
    case TCI_K_CONST: is = is && tci_round_bf16((float)in->value.f) == (float)in->value.f; break;
    case TCI_K_LOAD:
        is = is && k->operands[tci_kinst_number(in)].dtype == TC_BF16 && in->value.u == 0;
        break;
    case TCI_K_PRIM: {
        bool chooses = in->prim == TCI_P_SELECT || in->prim == TCI_P_PMAX ||
                       in->prim == TCI_P_PMIN || in->prim == TCI_P_NEG || in->prim == TCI_P_ABS;
        bool all = is && chooses;
        for (int a = in->prim == TCI_P_SELECT; a < in->n_args && all; a++) {
            all = tci_matrix_is_bf16(k, in->args[a], known);
        }
        is = is && (all || in->prim == TCI_P_ROUNDB16);
        break;
    }
    case TCI_K_RED: { /* the values of a row, as they are */
        const tci_kred *red = &k->reds[tci_kinst_number(in)];
        is = is && red->op == TCI_RED_MAX && tci_matrix_is_bf16(k, red->in[0], known);
        break;
    }
    default: is = false; break;
    }
    known[inst] = is ? 1 : -1;
    return is;
}

/* ---- integers of few bits ---- */

/* The dtype that holds the values of an instruction; nothing is known of more than 32 bits. */
typedef struct tci_matrix_range {
    int64_t lo, hi;
} tci_matrix_range;

static const tci_matrix_range tci_matrix_any = {INT64_MIN / 4, INT64_MAX / 4};

static tci_matrix_range tci_matrix_range_of(tc_dtype t)
{
    int bits = 8 * tci_dtype_get(t)->bytes;
    int64_t all = (int64_t)1 << TCI_MIN(bits, 32);
    if (t == TC_BOOL) {
        return (tci_matrix_range){0, 1};
    }
    if (!tci_dtype_is_int(t) || bits > 32) {
        return tci_matrix_any;
    }
    return tci_dtype_is_signed(t) ? (tci_matrix_range){-all / 2, all / 2 - 1}
                                  : (tci_matrix_range){0, all - 1};
}

static tci_matrix_range tci_matrix_hull(tci_matrix_range a, tci_matrix_range b)
{
    return (tci_matrix_range){TCI_MIN(a.lo, b.lo), TCI_MAX(a.hi, b.hi)};
}

/* Of what no integer of dtype t wraps: else all of them. */
static tci_matrix_range tci_matrix_unless_wrapped(tci_matrix_range r, tc_dtype t)
{
    tci_matrix_range all = tci_matrix_range_of(t);
    return r.lo >= all.lo && r.hi <= all.hi ? r : all;
}

/* Of a primitive whose arguments have these ranges. */
static tci_matrix_range tci_matrix_prim_range(const tci_kinst *in, const tci_matrix_range *of)
{
    const tci_matrix_range *a = &of[in->args[0]];
    const tci_matrix_range *b = in->n_args > 1 ? &of[in->args[1]] : a;
    tci_matrix_range r = tci_matrix_any;
    switch (in->prim) {
    case TCI_P_CAST: r = *a; break;
    case TCI_P_ADD: r = (tci_matrix_range){a->lo + b->lo, a->hi + b->hi}; break;
    case TCI_P_SUB: r = (tci_matrix_range){a->lo - b->hi, a->hi - b->lo}; break;
    case TCI_P_NEG: r = (tci_matrix_range){-a->hi, -a->lo}; break;
    case TCI_P_PMIN: r = (tci_matrix_range){TCI_MIN(a->lo, b->lo), TCI_MIN(a->hi, b->hi)}; break;
    case TCI_P_PMAX: r = (tci_matrix_range){TCI_MAX(a->lo, b->lo), TCI_MAX(a->hi, b->hi)}; break;
    case TCI_P_SELECT: r = tci_matrix_hull(*b, of[in->args[2]]); break;
    default: break;
    }
    return tci_matrix_unless_wrapped(r, (tc_dtype)in->dtype);
}

TCI_FN bool tci_matrix_is_within(const tci_kernel *k, int inst, int64_t lo, int64_t hi)
{
    tci_matrix_range *of = TCI_NEW_ARRAY(k->s, tci_matrix_range, inst + 1);
    for (int i = 0; i <= inst; i++) {
        const tci_kinst *in = &k->insts[i];
        tc_dtype t = (tc_dtype)in->dtype;
        bool known = tci_dtype_is_int(t) && tci_dtype_get(t)->bytes <= 4;
        tci_matrix_range given = {in->value.i, in->value.i};
        of[i] = tci_matrix_range_of(t);
        if (in->op == TCI_K_PRIM) {
            of[i] = tci_matrix_prim_range(in, of);
        } else if (in->op == TCI_K_CONST && known) {
            of[i] = given;
        } else if (in->op == TCI_K_LOAD && known) {
            of[i] = tci_matrix_range_of((tc_dtype)k->operands[tci_kinst_number(in)].dtype);
            of[i] = in->n_guards > 0 ? tci_matrix_hull(of[i], given) : of[i];
        }
    }
    return of[inst].lo >= lo && of[inst].hi <= hi;
}

/* Bytes of either sign. */
static bool tci_matrix_is_byte(const tci_kernel *k, int inst)
{
    return tci_matrix_is_within(k, inst, INT8_MIN, INT8_MAX) ||
           tci_matrix_is_within(k, inst, 0, UINT8_MAX);
}

static int tci_matrix_int_points(const tci_kernel *k, const int32_t *in, tci_machine machine)
{
    bool fours = false, pairs = true;
    for (int i = 0; i < 2; i++) {
        fours = fours || (tci_matrix_is_within(k, in[i], 0, UINT8_MAX) &&
                          tci_matrix_is_within(k, in[1 - i], INT8_MIN, INT8_MAX));
        pairs = pairs && tci_matrix_is_within(k, in[i], INT16_MIN, INT16_MAX);
    }
    return fours && machine.int_points >= 4 ? 4 : pairs && machine.int_points >= 2 ? 2 : 0;
}

TCI_FN int tci_matrix_lane_points(const tci_kernel *k, const tci_kred *red, tci_machine machine)
{
    int8_t *known = TCI_NEW_ARRAY(k->s, int8_t, k->n_insts + 1);
    if (machine.block_threads > 0 || red->op != TCI_RED_DOT || k->vector != TCI_VEC_OUTER) {
        return 0;
    }
    if (red->dtype == TC_I32) {
        return tci_matrix_int_points(k, red->in, machine);
    }
    bool pairs = machine.has_pairs && !machine.reproducible && red->dtype == TC_F32 &&
                 tci_matrix_is_bf16(k, red->in[0], known) &&
                 tci_matrix_is_bf16(k, red->in[1], known);
    return pairs ? 2 : 0;
}

/* ---- panels for a CPU's unit ---- */

static bool tci_matrix_depends(const tci_kernel *k, int inst, int axis)
{
    return k->insts[inst].axes >> TCI_MIN(axis, 63) & 1;
}

/* The points of factor `own` along outer axes that the other one lacks, or where `all` along all of
 * them: those of known size; 0 where the last of them has none. */
static double tci_matrix_points(const tci_kernel *k, int own, int other, bool all)
{
    double points = 1;
    for (int a = k->n_outer - 1; a >= 0; a--) {
        bool alone = tci_matrix_depends(k, own, a) && !tci_matrix_depends(k, other, a);
        bool known = tci_matrix_is_size(k, a);
        if (alone && !known && points == 1 && !all) {
            return 0;
        }
        points *= (alone || all) && known ? (double)tci_dim_known(k->axes[a].size) : 1;
    }
    return points;
}

/* True if the matrix unit multiplies both operands. */
static bool tci_matrix_are_packed(const tci_kernel *k, const tci_kred *red, tci_machine machine)
{
    int8_t *known = TCI_NEW_ARRAY(k->s, int8_t, k->n_insts + 1);
    bool all = red->dtype == TC_F32 ? !machine.reproducible
                                    : red->dtype == TC_I32 && machine.unit_bytes;
    for (int i = 0; i < 2 && all; i++) {
        all = red->dtype == TC_F32 ? tci_matrix_is_bf16(k, red->in[i], known)
                                   : tci_matrix_is_byte(k, red->in[i]);
    }
    return all;
}

TCI_FN bool tci_matrix_packs(const tci_kernel *k, tci_machine machine)
{
    if (!tci_matrix_has_registers(k, machine) || !tci_matrix_has_stages(k) || k->n_axes >= 63) {
        return false;
    }
    const tci_kred *red = &k->reds[0];
    int last = k->stages[0].axes[k->stages[0].n_axes - 1];
    bool fits = tci_matrix_are_packed(k, red, machine) && tci_matrix_depends(k, red->in[0], last) &&
                tci_matrix_depends(k, red->in[1], last);
    double depth = 1;
    for (int i = 0; i < k->stages[0].n_axes && fits; i++) {
        int axis = k->stages[0].axes[i];
        fits = tci_matrix_is_size(k, axis);
        depth *= fits ? (double)tci_dim_known(k->axes[axis].size) : 1;
    }
    double a = fits ? tci_matrix_points(k, red->in[0], red->in[1], false) : 0;
    double b = fits ? tci_matrix_points(k, red->in[1], red->in[0], false) : 0;
    double all = tci_matrix_points(k, red->in[0], red->in[1], true);
    return TCI_MIN(a, b) >= TCI_MATRIX_FEW && TCI_MAX(a, b) >= TCI_MATRIX_COLUMNS &&
           depth >= TCI_MATRIX_COLUMNS && a * b * depth >= TCI_MATRIX_LEAST &&
           2 * depth * all >= TCI_MATRIX_FLOPS;
}

/* ---- rows that are kept ---- */

/* A DOT whose columns a kernel of rows keeps, its stage's only reduction: rows of the last outer
 * axis times columns, over one axis that both factors have. */
static bool tci_matrix_keeps_row(const tci_kernel *k, const tci_kred *red, int8_t *known)
{
    const tci_kstage *st = &k->stages[red->stage];
    int rows = k->n_outer - 1, n_reds = 0;
    for (int r = 0; r < k->n_reds; r++) {
        n_reds += k->reds[r].stage == red->stage;
    }
    if (red->dtype != TC_F32 || st->n_axes != 2 || st->n_kept != 1 || n_reds != 1) {
        return false;
    }
    int depth = st->axes[0], columns = st->axes[1];
    int a = tci_matrix_depends(k, red->in[0], columns) ? red->in[1] : red->in[0];
    int b = a == red->in[0] ? red->in[1] : red->in[0];
    if (k->insts[a].op == TCI_K_RED) { /* a line along the depth */
        const tci_kstage *from = &k->stages[k->reds[tci_kinst_number(&k->insts[a])].stage];
        if (from->n_kept != 1 || from->axes[from->n_axes - 1] != depth) {
            return false;
        }
    }
    return tci_matrix_is_bf16(k, a, known) && tci_matrix_is_bf16(k, b, known) &&
           tci_matrix_depends(k, a, depth) && tci_matrix_depends(k, b, depth) &&
           tci_matrix_depends(k, a, rows) && !tci_matrix_depends(k, a, columns) &&
           tci_matrix_depends(k, b, columns) && !tci_matrix_depends(k, b, rows) &&
           k->insts[b].op != TCI_K_RED && tci_kernel_known(k, depth) >= TCI_MATRIX_COLUMNS &&
           tci_kernel_known(k, columns) >= TCI_MATRIX_COLUMNS;
}

TCI_FN bool tci_matrix_keeps(const tci_kernel *k, tci_machine machine)
{
    bool fits = tci_kernel_keeps(k) && tci_matrix_has_registers(k, machine) && k->n_outer > 0 &&
                k->n_axes < 63;
    for (int a = 0; a < k->n_axes && fits; a++) {
        fits = tci_matrix_is_size(k, a);
    }
    int8_t *known = TCI_NEW_ARRAY(k->s, int8_t, k->n_insts + 1);
    double flops = 0, points = 1;
    for (int r = 0; r < k->n_reds && fits; r++) {
        const tci_kred *red = &k->reds[r];
        const tci_kstage *st = &k->stages[red->stage];
        bool dot = red->op == TCI_RED_DOT;
        fits = st->kind != TCI_STAGE_SCAN && (dot ? tci_matrix_keeps_row(k, red, known)
                                                  : st->n_kept == 0 || st->n_kept == st->n_axes);
        flops += dot && fits ? 2 * (double)tci_kernel_known(k, st->axes[0]) *
                                   (double)tci_kernel_known(k, st->axes[1])
                             : 0;
    }
    for (int a = 0; a < k->n_outer && fits; a++) {
        points *= (double)tci_kernel_known(k, a);
    }
    return fits && tci_kernel_known(k, k->n_outer - 1) >= TCI_MATRIX_COLUMNS &&
           flops * points >= TCI_MATRIX_FLOPS;
}
