/* loop/combine.c - one step of a reduction.
 *
 * In: a reduction, its accumulator and what it takes in, as values of the loop IR. Out: the values
 * after the step. An accumulator is a mutable value, or a vector of a local array; ARG reductions
 * carry an index beside the value, DOT takes in two factors. The order in which steps are made is
 * not chosen here: kernel/ir.h prescribes it. */
#include "combine.h"

TCI_FN bool tci_stage_is_arg(const tci_kred *red)
{
    return tci_kred_is_arg(red->op);
}

static bool tci_stage_is_min(const tci_kred *red)
{
    return red->op == TCI_RED_MIN || red->op == TCI_RED_ARGMIN;
}

static int tci_stage_op(tci_build *b, tci_prim p, tc_dtype result, int x, int y)
{
    int args[2] = {x, y};
    return tci_build_prim(b, p, result, 2, args, 0);
}

TCI_FN int tci_stage_select(tci_build *b, int mask, int x, int y)
{
    int args[3] = {mask, x, y};
    return tci_build_prim(b, TCI_P_SELECT, (tc_dtype)b->l->values[x].dtype, 3, args, 0);
}

/* acc where acc > v or acc is NaN, else v: pmax gives exactly that but for a NaN in acc. */
static int tci_stage_extreme(tci_build *b, const tci_kred *red, int acc, int v)
{
    tc_dtype t = (tc_dtype)red->dtype;
    if (t == TC_BOOL) {
        return tci_stage_op(b, tci_stage_is_min(red) ? TCI_P_AND : TCI_P_OR, t, acc, v);
    }
    int best = tci_stage_op(b, tci_stage_is_min(red) ? TCI_P_PMIN : TCI_P_PMAX, t, acc, v);
    if (!tci_dtype_is_float(t)) {
        return best;
    }
    return tci_stage_select(b, tci_stage_op(b, TCI_P_EQ, TC_BOOL, acc, acc), best, acc);
}

/* v replaces acc if it beats it strictly, or is the first NaN, or ties with a lower index. */
static tci_stage_pair tci_stage_arg(tci_build *b, const tci_kred *red, tci_stage_pair acc,
                                    tci_stage_pair v)
{
    bool less = tci_stage_is_min(red);
    int take = less ? tci_stage_op(b, TCI_P_LT, TC_BOOL, v.value, acc.value)
                    : tci_stage_op(b, TCI_P_LT, TC_BOOL, acc.value, v.value);
    int tie = tci_stage_op(b, TCI_P_EQ, TC_BOOL, v.value, acc.value);
    if (tci_dtype_is_float((tc_dtype)red->dtype)) {
        int ordered_v = tci_stage_op(b, TCI_P_EQ, TC_BOOL, v.value, v.value);
        int nan_v = tci_build_prim(b, TCI_P_NOT, TC_BOOL, 1, &ordered_v, 0);
        int ordered_acc = tci_stage_op(b, TCI_P_EQ, TC_BOOL, acc.value, acc.value);
        int nan_acc = tci_build_prim(b, TCI_P_NOT, TC_BOOL, 1, &ordered_acc, 0);
        take = tci_stage_op(b, TCI_P_OR, TC_BOOL, take,
                            tci_stage_op(b, TCI_P_AND, TC_BOOL, nan_v, ordered_acc));
        tie = tci_stage_op(b, TCI_P_OR, TC_BOOL, tie,
                           tci_stage_op(b, TCI_P_AND, TC_BOOL, nan_v, nan_acc));
    }
    int lower = tci_stage_op(b, TCI_P_LT, TC_BOOL, v.index, acc.index);
    take =
        tci_stage_op(b, TCI_P_OR, TC_BOOL, take, tci_stage_op(b, TCI_P_AND, TC_BOOL, tie, lower));
    tci_stage_pair r = {tci_stage_select(b, take, v.value, acc.value),
                        tci_stage_select(b, take, v.index, acc.index)};
    return r;
}

static int tci_stage_fma(tci_build *b, const tci_kred *red, tci_stage_pair v, int acc)
{
    tc_dtype t = (tc_dtype)red->dtype;
    if (tci_dtype_is_float(t)) {
        int args[3] = {v.value, v.index, acc};
        return tci_build_prim(b, TCI_P_FMA, t, 3, args, 0);
    }
    tci_prim mul = t == TC_BOOL ? TCI_P_AND : TCI_P_MUL;
    return tci_stage_op(b, t == TC_BOOL ? TCI_P_OR : TCI_P_ADD, t, acc,
                        tci_stage_op(b, mul, t, v.value, v.index));
}

TCI_FN tci_stage_pair tci_stage_combine(tci_build *b, const tci_kred *red, tci_stage_pair acc,
                                        tci_stage_pair v)
{
    tc_dtype t = (tc_dtype)red->dtype;
    tci_stage_pair r = {-1, -1};
    tci_prim p = TCI_P_ADD;
    switch ((tci_kred_op)red->op) {
    case TCI_RED_SUM: p = t == TC_BOOL ? TCI_P_OR : TCI_P_ADD; break;
    case TCI_RED_PROD: p = t == TC_BOOL ? TCI_P_AND : TCI_P_MUL; break;
    case TCI_RED_ANY: p = TCI_P_OR; break;
    case TCI_RED_ALL: p = TCI_P_AND; break;
    case TCI_RED_MAX:
    case TCI_RED_MIN: r.value = tci_stage_extreme(b, red, acc.value, v.value); return r;
    case TCI_RED_ARGMAX:
    case TCI_RED_ARGMIN: return tci_stage_arg(b, red, acc, v);
    case TCI_RED_DOT: r.value = tci_stage_fma(b, red, v, acc.value); return r;
    }
    r.value = tci_stage_op(b, p, t, acc.value, v.value);
    return r;
}

TCI_FN tci_stage_pair tci_stage_identity(tci_build *b, const tci_kred *red)
{
    tc_dtype t = (tc_dtype)red->dtype;
    tci_value last = {.i = INT64_MAX};
    tci_stage_pair r = {tci_build_const(b, t, tci_kred_identity(red->op, t)),
                        tci_stage_is_arg(red) ? tci_build_const(b, TC_I64, last) : -1};
    return r;
}

TCI_FN tci_stage_pair tci_stage_operands(tci_build *b, const tci_kred *red)
{
    tci_stage_pair r = {tci_build_value(b, red->a), red->b >= 0 ? tci_build_value(b, red->b) : -1};
    return r;
}

TCI_FN tci_stage_pair tci_stage_accumulator(tci_build *b, const tci_kred *red, int lanes)
{
    tci_stage_pair id = tci_stage_identity(b, red);
    tci_stage_pair r = {tci_build_mutable(b, tci_build_widen(b, id.value, lanes)), -1};
    if (id.index >= 0) {
        r.index = tci_build_mutable(b, tci_build_widen(b, id.index, lanes));
    }
    return r;
}

TCI_FN void tci_stage_assign(tci_build *b, tci_stage_pair acc, tci_stage_pair v)
{
    tci_build_assign(b, acc.value, v.value);
    if (acc.index >= 0) {
        tci_build_assign(b, acc.index, v.index);
    }
}

TCI_FN void tci_stage_remember_result(tci_build *b, const tci_kred *red, tci_stage_pair acc)
{
    tci_build_remember(b, red->inst, tci_build_copy(b, acc.index >= 0 ? acc.index : acc.value));
}

/* ---- accumulators in local arrays ---- */

TCI_FN tci_stage_pair tci_stage_array_get(tci_build *b, const tci_kred *red, tci_stage_pair array,
                                          int x)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = b->l->lanes > 1 ? TCI_MEM_LOAD : TCI_MEM_LOAD_ONE;
    st.base = ~array.value;
    st.x = x;
    tci_stage_pair r = {tci_build_mem(b, st, (tc_dtype)red->dtype, b->l->lanes, b->cur), -1};
    if (array.index >= 0) {
        st.base = ~array.index;
        r.index = tci_build_mem(b, st, TC_I64, b->l->lanes, b->cur);
    }
    return r;
}

TCI_FN void tci_stage_array_set(tci_build *b, tci_stage_pair array, int x, tci_stage_pair v)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = b->l->lanes > 1 ? TCI_MEM_STORE : TCI_MEM_STORE_ONE;
    st.base = ~array.value;
    st.x = x;
    st.args[0] = tci_build_widen(b, v.value, b->l->lanes);
    tci_build_mem(b, st, TC_F32, 1, b->cur);
    if (array.index >= 0) {
        st.base = ~array.index;
        st.args[0] = tci_build_widen(b, v.index, b->l->lanes);
        tci_build_mem(b, st, TC_F32, 1, b->cur);
    }
}

TCI_FN tci_stage_pair tci_stage_array_make(tci_build *b, const tci_kred *red)
{
    int lanes = tci_kernel_lanes(b->k);
    tci_stage_pair array = {tci_build_local(b, (tc_dtype)red->dtype, lanes, b->cur), -1};
    if (tci_stage_is_arg(red)) {
        array.index = tci_build_local(b, TC_I64, lanes, b->cur);
    }
    tci_stage_pair id = tci_stage_identity(b, red);
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, lanes), b->l->lanes, &open);
    tci_stage_array_set(b, array, tci_lx_var(b->l, i), id);
    tci_build_close(b, &open);
    return array;
}
