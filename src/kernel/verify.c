/* kernel/verify.c - checks the invariants written in kernel/ir.h; escapes with TC_ERR_INTERNAL. */
#include "ir.h"

static void tci_kernel_verify_load(tci_scratch *s, const tci_kernel *k, const tci_kinst *i)
{
    TCI_ASSERT(s, i->imm >= 0 && i->imm < k->n_operands);
    TCI_ASSERT(s, !k->operands[i->imm].is_output);
    TCI_ASSERT(s, i->x >= 0 && i->x < k->n_kx);
    bool empty = false;
    for (int a = 0; a < k->n_axes; a++) {
        empty |= k->axes[a].size == 0;
    }
    /* a load without guard stays inside: where that cannot be told for all sizes, it is not */
    tci_dim lo = k->kx[i->x].lo, hi = k->kx[i->x].hi;
    bool known = tci_dim_is_known(lo) && tci_dim_is_known(hi) &&
                 tci_dim_is_known(k->operands[i->imm].n);
    if (i->n_guards == 0 && !empty && known) {
        TCI_ASSERT(s, lo >= 0 && hi < k->operands[i->imm].n);
    }
}

static void tci_kernel_verify_insts(tci_scratch *s, const tci_kernel *k)
{
    for (int n = 0; n < k->n_insts; n++) {
        const tci_kinst *i = &k->insts[n];
        TCI_ASSERT(s, tci_dtype_is_valid(i->dtype) && !tci_dtype_is_half((tc_dtype)i->dtype));
        for (int a = 0; a < i->n_args; a++) {
            TCI_ASSERT(s, i->args[a] >= 0 && i->args[a] < n);
        }
        TCI_ASSERT(s, i->n_guards == 0 || (i->guard >= 0 && i->guard + i->n_guards <= k->n_guards));
        if (i->op == TCI_K_LOAD) {
            tci_kernel_verify_load(s, k, i);
        }
        if (i->op == TCI_K_LIT) {
            TCI_ASSERT(s, i->imm >= 0 && i->imm < k->n_literals);
        }
        if (i->op == TCI_K_RED) {
            TCI_ASSERT(s, i->imm >= 0 && i->imm < k->n_reds);
        }
    }
}

TCI_FN void tci_kernel_need_dims(tci_scratch *s, const tci_kernel *k)
{
    for (int a = 0; a < k->n_axes; a++) {
        tci_dim_need(s, k->axes[a].size, "an axis of a kernel");
    }
    for (int x = 0; x < k->n_kx; x++) {
        tci_dim_need(s, k->kx[x].c, "an index of a kernel");
        tci_dim_need(s, k->kx[x].lo, "the least of an index of a kernel");
        tci_dim_need(s, k->kx[x].hi, "the most of an index of a kernel");
    }
    for (int g = 0; g < k->n_guards; g++) {
        tci_dim_need(s, k->guards[g].lo, "a bound in a kernel");
        tci_dim_need(s, k->guards[g].hi, "a bound in a kernel");
    }
    for (int p = 0; p < k->n_operands; p++) {
        tci_dim_need(s, k->operands[p].n, "the number of elements of an operand of a kernel");
    }
}

TCI_FN void tci_kernel_verify(tci_scratch *s, const tci_kernel *k)
{
    tci_kernel_need_dims(s, k);
    for (int a = 0; a < k->n_axes; a++) {
        TCI_ASSERT(s, k->axes[a].inner == (a >= k->n_outer));
    }
    tci_kernel_verify_insts(s, k);
    for (int t = 0; t < k->n_stages; t++) {
        for (int a = 0; a < k->stages[t].n_axes; a++) {
            TCI_ASSERT(s, k->stages[t].axes[a] >= k->n_outer && k->stages[t].axes[a] < k->n_axes);
        }
    }
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        TCI_ASSERT(s, red->stage >= 0 && red->stage < k->n_stages);
        TCI_ASSERT(s, k->stages[red->stage].kind != TCI_STAGE_MAP);
        TCI_ASSERT(s, k->insts[red->a].stage < red->stage);
        TCI_ASSERT(s, k->vector == TCI_VEC_OUTER || red->op != TCI_RED_DOT);
        TCI_ASSERT(s, red->order == TCI_ORDER_CHAIN ||
                          (red->op == TCI_RED_DOT && red->dtype == TC_F32));
    }
    for (int w = 0; w < k->n_stores; w++) {
        const tci_kstore *store = &k->stores[w];
        TCI_ASSERT(s, store->stage >= 0 && store->stage < k->n_stages);
        TCI_ASSERT(s, k->operands[store->operand].is_output);
        bool scan = k->stages[store->stage].kind == TCI_STAGE_SCAN;
        TCI_ASSERT(s, k->insts[store->value].stage < store->stage + (scan ? 1 : 0));
    }
}
