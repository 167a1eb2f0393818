/* kernel/match_mma_sync.c - finds the M, N and K axes of a GEMM kernel, and decides whether
 * warp-level tensor-core instructions (mma.sync) can compute it.
 *
 * In: a kernel, the machine. Out: its contraction as a matrix product, and whether warp-level
 * tensor-core instructions (mma.sync), on GPUs from sm_75 on, can compute it. Operands are read
 * from shared memory that the block fills by evaluating their expressions, so any layout of
 * operands is accepted: only the values must have the unit's dtype, or be converted from 8-bit
 * integers. The answer is a function of shape, dtype and the kind of machine, as
 * plan/reduction_order.c requires; loop/mma_gemm.c can schedule every kernel that matches. */
#include "match_mma_sync.h"

static bool tci_gemm_kernel_has_form(const tci_kernel *k)
{
    bool fits = k->n_outer >= 2 && k->n_reds == 1 && k->n_axes < 63 &&
                k->reds[0].op == TCI_RED_DOT && k->reds[0].stage == 0 &&
                k->vector == TCI_VEC_OUTER && k->stages[0].kind == TCI_STAGE_REDUCE &&
                k->stages[0].n_axes > 0;
    for (int t = 1; t < k->n_stages && fits; t++) {
        fits = k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int a = 0; a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size) && tci_kernel_known(k, a) <= INT32_MAX;
    }
    return fits;
}

static void tci_gemm_kernel_add_axis(const tci_kernel *k, tci_gemm_kernel_axes *side, int axis)
{
    side->axes[side->n_axes++] = axis;
    side->size = side->size > INT32_MAX ? side->size : side->size * tci_kernel_known(k, axis);
}

static bool tci_gemm_kernel_knows(const tci_kernel *k, int inst, int axis)
{
    return k->insts[inst].axes >> axis & 1;
}

TCI_FN bool tci_gemm_kernel_find(const tci_kernel *k, tci_gemm_kernel_sides *p)
{
    if (!tci_gemm_kernel_has_form(k)) {
        return false;
    }
    const tci_kred *red = &k->reds[0];
    bool swap = tci_gemm_kernel_knows(k, red->in[0], k->n_outer - 1);
    p->rows = (tci_gemm_kernel_axes){red->in[swap], 0, TCI_NEW_ARRAY(k->s, int, k->n_outer), 1};
    p->columns = (tci_gemm_kernel_axes){red->in[!swap], 0, TCI_NEW_ARRAY(k->s, int, k->n_outer), 1};
    p->depth = 1;
    for (int a = 0; a < k->n_outer; a++) {
        bool row = tci_gemm_kernel_knows(k, p->rows.inst, a);
        bool column = tci_gemm_kernel_knows(k, p->columns.inst, a);
        if (row != column) {
            tci_gemm_kernel_add_axis(k, row ? &p->rows : &p->columns, a);
        }
    }
    for (int i = 0; i < k->stages[0].n_axes && p->depth <= INT32_MAX; i++) {
        p->depth *= tci_kernel_known(k, k->stages[0].axes[i]);
    }
    return p->rows.n_axes > 0 && p->columns.n_axes > 0 &&
           p->columns.axes[p->columns.n_axes - 1] == k->n_outer - 1 && p->rows.size <= INT32_MAX &&
           p->columns.size <= INT32_MAX && p->depth <= INT32_MAX;
}

/* ---- the units of warps ---- */

/* True if the value of an instruction is certain to be one of that 16-bit dtype; `is` has the
 * answers for those before it. */
static bool tci_gemm_kernel_is_half(const tci_kernel *k, int inst, tc_dtype t, const bool *is)
{
    const tci_kinst *in = &k->insts[inst];
    bool exact = in->dtype == TC_F32 && tci_value_cast(in->value, TC_F32, t).f == in->value.f;
    if (in->op == TCI_K_CONST) {
        return exact;
    }
    if (in->op == TCI_K_LOAD) {
        return k->operands[tci_kinst_number(in)].dtype == (int8_t)t && (exact || !in->n_guards);
    }
    tci_prim p = (tci_prim)in->prim;
    const int32_t *args = in->args;
    if (in->op != TCI_K_PRIM) {
        return false;
    }
    if (p == TCI_P_ROUNDB16 || p == TCI_P_ROUND16) {
        return t == (p == TCI_P_ROUND16 ? TC_F16 : TC_BF16);
    }
    bool both = p == TCI_P_PMIN || p == TCI_P_PMAX;
    return ((p == TCI_P_NEG || p == TCI_P_ABS) && is[args[0]]) ||
           (both && is[args[0]] && is[args[1]]) ||
           (p == TCI_P_SELECT && is[args[1]] && is[args[2]]);
}

/* Of both factors: TC_F32 where it is none of the two. */
static tc_dtype tci_gemm_kernel_dtype(const tci_kernel *k, const tci_gemm_kernel_sides *p)
{
    static const tc_dtype halves[] = {TC_F16, TC_BF16};
    bool *is = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < k->n_insts; i++) {
            is[i] = tci_gemm_kernel_is_half(k, i, halves[h], is);
        }
        if (is[p->rows.inst] && is[p->columns.inst]) {
            return halves[h];
        }
    }
    return TC_F32;
}

enum { TCI_PRODUCT_SIGNED = 1, TCI_PRODUCT_UNSIGNED = 2 };

/* The bytes that hold all values of an instruction of integers; `fits` has the answers for those
 * before it. A cast to unsigned keeps no number below zero, but, where sums are so as well, their
 * last bits. */
static int tci_gemm_kernel_byte_of(const tci_kernel *k, int inst, const uint8_t *fits)
{
    const tci_kinst *in = &k->insts[inst];
    tc_dtype t = (tc_dtype)in->dtype;
    const int both = TCI_PRODUCT_SIGNED | TCI_PRODUCT_UNSIGNED;
    const int32_t *args = in->args;
    if (t == TC_BOOL || tci_dtype_is_byte(t)) {
        return t == TC_BOOL ? both : t == TC_I8 ? TCI_PRODUCT_SIGNED : TCI_PRODUCT_UNSIGNED;
    }
    if (!tci_dtype_is_int(t) || in->op == TCI_K_CONST) {
        return tci_dtype_is_int(t) && in->value.u <= INT8_MAX ? both : 0;
    }
    if (in->op == TCI_K_PRIM && in->prim == TCI_P_CAST) {
        bool keeps = tci_dtype_is_signed(t) || t == (tc_dtype)k->reds[0].dtype;
        return fits[args[0]] & (keeps ? both : TCI_PRODUCT_UNSIGNED);
    }
    bool select = in->op == TCI_K_PRIM && in->prim == TCI_P_SELECT;
    return select ? fits[args[1]] & fits[args[2]] : 0;
}

/* Sums of integers wrap, so those of 32 bits have the last bits of any narrower ones. */
static bool tci_gemm_kernel_is_of_bytes(const tci_kernel *k, const tci_gemm_kernel_sides *p,
                                        tci_mma_sync_unit *unit)
{
    tc_dtype sums = (tc_dtype)k->reds[0].dtype;
    uint8_t *fits = TCI_NEW_ARRAY(k->s, uint8_t, k->n_insts + 1);
    for (int i = 0; i < k->n_insts; i++) {
        fits[i] = (uint8_t)tci_gemm_kernel_byte_of(k, i, fits);
    }
    for (int f = 0; f < 2; f++) {
        int inst = f == 0 ? p->rows.inst : p->columns.inst;
        const tci_kinst *in = &k->insts[inst];
        bool cast = in->op == TCI_K_PRIM && in->prim == TCI_P_CAST;
        bool widened = cast && tci_dtype_get((tc_dtype)k->insts[in->args[0]].dtype)->bytes == 1;
        unit->insts[f] = widened ? in->args[0] : inst;
        unit->dtypes[f] = fits[inst] & TCI_PRODUCT_SIGNED ? TC_I8 : TC_U8;
    }
    unit->sums = TC_I32;
    unit->is_exact = true;
    return tci_dtype_is_int(sums) && tci_dtype_get(sums)->bytes <= 4 && fits[p->rows.inst] &&
           fits[p->columns.inst];
}

static void tci_gemm_kernel_is_of_floats(const tci_kernel *k, const tci_gemm_kernel_sides *p,
                                         tci_mma_sync_unit *unit)
{
    unit->sums = (tc_dtype)k->reds[0].dtype;
    unit->insts[0] = p->rows.inst;
    unit->insts[1] = p->columns.inst;
    unit->dtypes[0] = unit->sums == TC_F32 ? tci_gemm_kernel_dtype(k, p) : unit->sums;
    unit->dtypes[1] = unit->dtypes[0];
    unit->is_exact = false;
}

/* The unit that it needs, a bit of tc_warp_unit; 0: there is none. */
static int tci_mma_sync_unit_of(const tci_kernel *k, const tci_machine *machine,
                                const tci_gemm_kernel_sides *p, tci_mma_sync_unit *unit)
{
    if (tci_gemm_kernel_is_of_bytes(k, p, unit)) {
        return TC_WARP_BYTES;
    }
    tci_gemm_kernel_is_of_floats(k, p, unit);
    tc_dtype t = unit->dtypes[0];
    bool single = t == TC_BF16 || (t == TC_F32 && machine->is_fast);
    return single        ? TC_WARP_SINGLES
           : t == TC_F16 ? TC_WARP_HALVES
           : t == TC_F64 ? TC_WARP_DOUBLES
                         : 0;
}

TCI_FN bool tci_mma_sync_takes(const tci_kernel *k, const tci_machine *machine,
                               tci_mma_sync_unit *unit)
{
    tci_gemm_kernel_sides p;
    if (machine->warp_unit == TC_WARP_NONE || machine->block_threads < TCI_GATHER_THREADS ||
        machine->no_shared_memory || !tci_gemm_kernel_find(k, &p) ||
        !(tci_mma_sync_unit_of(k, machine, &p, unit) & machine->warp_unit)) {
        return false;
    }
    double flops = 2.0 * (double)p.depth;
    for (int a = 0; a < k->n_outer; a++) {
        flops *= (double)tci_kernel_known(k, a);
    }
    return p.rows.size >= TCI_GATHER_SIDE && p.columns.size >= TCI_GATHER_SIDE &&
           p.depth >= TCI_GATHER_DEPTH && flops >= TCI_MATRIX_FLOPS;
}
