/* loop/stage_op_count.c - counts the work of a kernel's stages for the cost models: live
 * instructions, flops per iteration, bytes of the widest vectorized value.
 *
 * In: a kernel. Out: counts for cost models, the same on every machine (ops/prim.h prices each
 * op). */
#include "stage_op_count.h"

static void tci_cost_reach(const tci_kernel *k, int inst, bool through_index, bool *live);

static void tci_cost_reach_kx(const tci_kernel *k, int kx, bool *live)
{
    tci_kx e = k->kx[kx];
    if (e.op == TCI_KX_VALUE) {
        tci_cost_reach(k, tci_kx_number(&e), true, live);
    }
    if (e.op == TCI_KX_ADD) {
        tci_cost_reach_kx(k, e.b, live);
    }
    if (e.op == TCI_KX_ADD || e.op == TCI_KX_MUL || e.op == TCI_KX_DIV || e.op == TCI_KX_MOD) {
        tci_cost_reach_kx(k, e.a, live);
    }
}

/* Marks what `inst` needs. Arguments have lower numbers, so one sweep downwards is enough. */
static void tci_cost_reach(const tci_kernel *k, int inst, bool through_index, bool *live)
{
    if (live[inst]) {
        return;
    }
    live[inst] = true;
    for (int i = inst; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        if (!live[i] || (in->op == TCI_K_FAULT && !through_index)) {
            continue;
        }
        for (int a = 0; a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        if (through_index && in->op == TCI_K_LOAD && k->faults) { /* no other index is a value */
            tci_cost_reach_kx(k, in->x, live);
        }
    }
}

/* Marks the values of one stage. through_index: also those that only make up offsets. */
TCI_FN void tci_cost_mark(const tci_kernel *k, int stage, bool through_index, bool *live)
{
    for (int i = 0; i < k->n_stores; i++) {
        if (k->stores[i].stage == stage) {
            tci_cost_reach(k, k->stores[i].value, through_index, live);
        }
    }
    for (int i = 0; i < k->n_reds; i++) {
        if (k->reds[i].stage == stage) {
            for (int j = 0; j < tci_red_takes(k->reds[i].op); j++) {
                tci_cost_reach(k, k->reds[i].in[j], through_index, live);
            }
        }
    }
}

TCI_FN uint64_t tci_cost_stage_axes(const tci_kernel *k, int stage)
{
    uint64_t axes = 0;
    for (int i = 0; i < k->stages[stage].n_axes; i++) {
        axes |= (uint64_t)1 << TCI_MIN(k->stages[stage].axes[i], 63);
    }
    return axes;
}

TCI_FN int64_t tci_stage_cost(const tci_kernel *k, int stage)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    uint64_t axes = tci_cost_stage_axes(k, stage);
    bool all = axes == 0; /* no inner axes: every value of the point counts */
    int64_t cost = 0;
    tci_cost_mark(k, stage, false, live);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        if (live[i] && (all || (in->axes & axes))) {
            cost += in->op == TCI_K_PRIM ? tci_prim_get((tci_prim)in->prim)->cost
                                         : in->op == TCI_K_LOAD;
        }
    }
    for (int i = 0; i < k->n_reds; i++) {
        cost += k->reds[i].stage == stage ? 2 : 0;
    }
    return cost;
}

TCI_FN int tci_stage_unroll(const tci_kernel *k, int stage, int lanes)
{
    int64_t cost = tci_stage_cost(k, stage);
    int unroll = cost <= 8 ? 4 : cost <= 48 ? 2 : 1;
    return TCI_MIN(unroll, TCI_MAX(1, TCI_VLANES / lanes));
}

TCI_FN int tci_cost_widest(const tci_kernel *k, bool through_index)
{
    int widest = 0;
    for (int t = 0; t < k->n_stages; t++) {
        bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
        const tci_kstage *st = &k->stages[t];
        int axis = k->n_outer - 1;
        if (k->vector == TCI_VEC_INNER) {
            axis = st->n_axes > 0 ? st->axes[st->n_axes - 1] : -1;
        }
        tci_cost_mark(k, t, through_index, live);
        for (int i = 0; i < k->n_insts; i++) {
            const tci_kinst *in = &k->insts[i];
            if (live[i] && in->dtype != TC_BOOL && tci_build_depends(in->axes, axis)) {
                widest = TCI_MAX(widest, tci_dtype_get((tc_dtype)in->dtype)->bytes);
            }
        }
        for (int r = 0; r < k->n_reds && axis >= 0; r++) {
            const tci_kred *red = &k->reds[r];
            for (int i = 0; i < tci_red_parts(red->op) && red->stage == t; i++) {
                tc_dtype part = tci_red_dtype(red->op, i, (tc_dtype)red->dtype);
                widest = TCI_MAX(widest, part == TC_BOOL ? 1 : tci_dtype_get(part)->bytes);
            }
        }
    }
    return TCI_MAX(widest, 1);
}

/* Cost of the prims that `inst` alone stands for along the row, given what is kept already. */
TCI_FN int64_t tci_cost_row(const tci_kernel *k, int inst, uint64_t axes)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    int64_t cost = 0;
    tci_cost_reach(k, inst, false, live);
    for (int i = 0; i <= inst; i++) {
        const tci_kinst *in = &k->insts[i];
        cost += live[i] && in->op == TCI_K_PRIM && (in->axes & axes)
                    ? tci_prim_get((tci_prim)in->prim)->cost
                    : 0;
    }
    return cost;
}
