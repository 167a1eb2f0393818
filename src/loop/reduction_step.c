/* loop/reduction_step.c - emits one step of a reduction: updates the accumulators.
 *
 * In: a reduction, its accumulator and the new element, as values of the loop IR. Out: the values
 * after the step, by the combine function of the reduction op (ops/combine.h). A component of an
 * accumulator is a mutable scalar or vector value, or a vector of a local array. The order of the
 * steps is not chosen here: kernel/ir.h prescribes it. */
#include "reduction_step.h"

TCI_FN tci_stage_tuple tci_stage_tuple_of(int first, int second)
{
    tci_stage_tuple r = {{first, second, -1}};
    return r;
}

TCI_FN tci_stage_tuple tci_stage_each(tci_build *b, tci_stage_tuple x, tci_stage_part_fn fn,
                                      int imm)
{
    for (int i = 0; i < TCI_PARTS && x.part[i] >= 0; i++) {
        x.part[i] = fn(b, x.part[i], imm);
    }
    return x;
}

/* ---- combining ---- */

static int tci_stage_op(tci_build *b, tci_prim p, tc_dtype result, int x, int y)
{
    int args[2] = {x, y};
    return tci_build_prim(b, p, result, 2, args, 0);
}

static int tci_stage_select(tci_build *b, int mask, int x, int y)
{
    int args[3] = {mask, x, y};
    return tci_build_prim(b, TCI_P_SELECT, (tc_dtype)b->l->values[x].dtype, 3, args, 0);
}

TCI_FN tci_stage_tuple tci_stage_choose(tci_build *b, int mask, tci_stage_tuple x,
                                        tci_stage_tuple y)
{
    for (int i = 0; i < TCI_PARTS && x.part[i] >= 0; i++) {
        x.part[i] = tci_stage_select(b, mask, tci_build_widen(b, x.part[i], b->l->lanes),
                                     y.part[i]);
    }
    return x;
}

static int tci_stage_inst(tci_build *b, const tci_combine_inst *inst, const int *args)
{
    tc_dtype t = (tc_dtype)inst->dtype;
    switch (inst->op) {
    case TCI_W_K: return tci_build_const(b, t, inst->value);
    /* acc where acc > v or acc is NaN, else v: pmax gives exactly that but for a NaN in acc */
    case TCI_W_MAX:
    case TCI_W_MIN: {
        tci_prim p = inst->op == TCI_W_MAX ? TCI_P_PMAX : TCI_P_PMIN;
        int best = tci_stage_op(b, p, t, args[0], args[1]);
        return tci_stage_select(b, tci_stage_op(b, TCI_P_EQ, TC_BOOL, args[0], args[0]), best,
                                args[0]);
    }
    case TCI_P_FMA:
        if (!tci_dtype_is_float(t)) {
            return tci_stage_op(b, TCI_P_ADD, t, args[2],
                                tci_stage_op(b, TCI_P_MUL, t, args[0], args[1]));
        }
        break;
    default: break;
    }
    return tci_build_prim(b, (tci_prim)inst->op, t, inst->n_args, args, 0);
}

TCI_FN tci_stage_tuple tci_stage_combine(tci_build *b, const tci_kred *red, tci_stage_tuple acc,
                                         tci_stage_tuple v)
{
    int values[2 * TCI_PARTS + TCI_COMBINE_MOST];
    tci_combine c;
    tci_stage_tuple r = {{-1, -1, -1}};
    tci_combine_make(&c, red->op, (tc_dtype)red->dtype);
    for (int i = 0; i < TCI_PARTS; i++) {
        values[i] = acc.part[i];
        values[TCI_PARTS + i] = v.part[i];
    }
    for (int i = 0; i < c.n; i++) {
        int args[3] = {-1, -1, -1};
        for (int a = 0; a < c.insts[i].n_args; a++) {
            args[a] = values[c.insts[i].args[a]];
        }
        values[2 * TCI_PARTS + i] = tci_stage_inst(b, &c.insts[i], args);
    }
    for (int i = 0; i < c.n_parts; i++) {
        r.part[i] = values[c.part[i]];
    }
    return r;
}

TCI_FN tci_stage_tuple tci_stage_identity(tci_build *b, const tci_kred *red)
{
    tci_stage_tuple r = {{-1, -1, -1}};
    tc_dtype t = (tc_dtype)red->dtype;
    for (int i = 0; i < tci_red_parts(red->op); i++) {
        r.part[i] = tci_build_const(b, tci_red_dtype(red->op, i, t),
                                    tci_red_identity(red->op, i, t));
    }
    return r;
}

TCI_FN tci_stage_tuple tci_stage_operands(tci_build *b, const tci_kred *red)
{
    tci_stage_tuple r = {{-1, -1, -1}};
    for (int i = 0; i < tci_red_takes(red->op); i++) {
        r.part[i] = tci_build_value(b, red->in[i]);
    }
    return r;
}

static int tci_stage_part_mutable(tci_build *b, int part, int lanes)
{
    return tci_build_mutable(b, tci_build_widen(b, part, lanes));
}

TCI_FN tci_stage_tuple tci_stage_accumulator(tci_build *b, const tci_kred *red, int lanes)
{
    return tci_stage_each(b, tci_stage_identity(b, red), tci_stage_part_mutable, lanes);
}

TCI_FN tci_stage_tuple tci_stage_none(tci_build *b, const tci_kred *red)
{
    tci_value zero = {.f = -0.0};
    tci_stage_tuple r = {{tci_build_const(b, (tc_dtype)red->dtype, zero), -1, -1}};
    return r;
}

TCI_FN tci_stage_tuple tci_stage_total(tci_build *b, const tci_kred *red, int lanes)
{
    tci_stage_tuple r = tci_stage_none(b, red);
    r.part[0] = tci_build_mutable(b, tci_build_widen(b, r.part[0], lanes));
    return r;
}

TCI_FN tci_stage_tuple tci_stage_joined(tci_build *b, const tci_kred *red, tci_stage_tuple total,
                                        tci_stage_tuple part)
{
    tc_dtype t = (tc_dtype)red->dtype;
    tci_stage_tuple r = {{tci_stage_op(b, TCI_P_ADD, t, total.part[0], part.part[0]), -1, -1}};
    return r;
}

TCI_FN void tci_stage_assign(tci_build *b, tci_stage_tuple acc, tci_stage_tuple v)
{
    for (int i = 0; i < TCI_PARTS && acc.part[i] >= 0; i++) {
        tci_build_assign(b, acc.part[i], v.part[i]);
    }
}

TCI_FN void tci_stage_remember_result(tci_build *b, const tci_kred *red, tci_stage_tuple acc)
{
    tci_build_remember(b, red->inst, tci_build_copy(b, acc.part[red->part]));
}

/* ---- accumulators in local arrays ---- */

TCI_FN tci_stage_tuple tci_stage_array_get(tci_build *b, const tci_kred *red, tci_stage_tuple array,
                                           int x)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = b->l->lanes > 1 ? TCI_MEM_LOAD : TCI_MEM_LOAD_ONE;
    st.x = x;
    for (int i = 0; i < TCI_PARTS && array.part[i] >= 0; i++) {
        st.base = ~array.part[i];
        array.part[i] = tci_build_mem(b, st, tci_red_dtype(red->op, i, (tc_dtype)red->dtype),
                                      b->l->lanes, b->cur);
    }
    return array;
}

TCI_FN void tci_stage_array_set(tci_build *b, tci_stage_tuple array, int x, tci_stage_tuple v)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = b->l->lanes > 1 ? TCI_MEM_STORE : TCI_MEM_STORE_ONE;
    st.x = x;
    for (int i = 0; i < TCI_PARTS && array.part[i] >= 0; i++) {
        st.base = ~array.part[i];
        st.args[0] = tci_build_widen(b, v.part[i], b->l->lanes);
        tci_build_mem(b, st, TC_F32, 1, b->cur);
    }
}

TCI_FN tci_stage_tuple tci_stage_array_local(tci_build *b, const tci_kred *red, int64_t n)
{
    tci_stage_tuple array = {{-1, -1, -1}};
    for (int i = 0; i < tci_red_parts(red->op); i++) {
        tc_dtype t = tci_red_dtype(red->op, i, (tc_dtype)red->dtype);
        array.part[i] = tci_build_local(b, t, n, b->cur);
    }
    return array;
}

TCI_FN tci_stage_tuple tci_stage_array_make(tci_build *b, const tci_kred *red)
{
    int lanes = tci_kernel_lanes(b->k);
    tci_stage_tuple array = tci_stage_array_local(b, red, lanes);
    tci_stage_tuple id = tci_stage_identity(b, red);
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, lanes), b->l->lanes, &open);
    tci_stage_array_set(b, array, tci_lx_var(b->l, i), id);
    tci_build_close(b, &open);
    return array;
}
