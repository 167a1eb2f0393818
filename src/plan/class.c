/* plan/class.c - the numeric class of a kernel's sums.
 *
 * In: a kernel before it is scheduled, the kind of machine. Out: where its vectors lie, and for
 * each reduction the class that kernel/ir.h defines. The one idea: results follow from the class
 * alone, so it is a function of shape, layout, dtype and the kind of machine (a processor, or
 * blocks of threads; with a matrix unit or without), and never of what a size typically is or how
 * fast a machine is. Where a size is a symbol the class is one that serves its whole range.
 *
 *   MATRIX    products that a matrix unit takes (kernel/matrix.c)
 *   CHAIN     other contractions, scans, and reductions where neighbours along the last outer axis
 *             lie together in memory: each lane of a vector is a sum of its own
 *   LANES(n)  other reductions: rows. 64 lanes on a processor, on a machine of blocks so many that
 *             a block holds the longest row in a few vectors */
#include "../kernel/matrix.h"
#include "group.h"

enum {
    TCI_CLASS_SHORT_ROW = 16,    /* elements of rows that are better many side by side */
    TCI_CLASS_WIDE = 16,         /* least neighbours for that */
    TCI_CLASS_WARP = 32,         /* least threads of a block */
    TCI_CLASS_BLOCK_VECTORS = 8, /* of a row that a block should hold at once, at most */
    TCI_CLASS_BLOCK_ROW = 1024   /* elements of a row where any number may come */
};

/* ---- where vectors lie ---- */

/* How many loads walk `axis` with stride 1, and how many with another stride. */
static void tci_class_count_loads(const tci_kernel *k, int axis, int *unit, int *strided)
{
    tci_dim base, *coef = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes + 1);
    *unit = *strided = 0;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->insts[i].op != TCI_K_LOAD) {
            continue;
        }
        if (!tci_kx_affine(k, k->insts[i].x, coef, &base)) {
            *strided += 1;
        } else if (coef[axis] == 1) {
            *unit += 1;
        } else if (coef[axis] != 0) {
            *strided += 1;
        }
    }
}

TCI_FN uint8_t tci_class_vector(const tci_kernel *k)
{
    int inner = -1, outer = k->n_outer - 1;
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kstage *stage = &k->stages[k->reds[r].stage];
        if (k->reds[r].op == TCI_RED_DOT || stage->kind == TCI_STAGE_SCAN || stage->n_axes == 0) {
            return TCI_VEC_OUTER;
        }
        inner = stage->axes[stage->n_axes - 1];
    }
    if (inner < 0 || outer < 0) {
        return inner < 0 ? TCI_VEC_OUTER : TCI_VEC_INNER;
    }
    int inner_unit, inner_strided, outer_unit, outer_strided;
    tci_class_count_loads(k, inner, &inner_unit, &inner_strided);
    tci_class_count_loads(k, outer, &outer_unit, &outer_strided);
    int64_t longest = tci_dim_most(k->axes[inner].size);
    bool wide = tci_dim_most(k->axes[outer].size) >= TCI_CLASS_WIDE;
    if (longest < TCI_CLASS_SHORT_ROW && wide && outer_strided <= inner_unit) {
        return TCI_VEC_OUTER;
    }
    return outer_unit > inner_unit && wide ? TCI_VEC_OUTER : TCI_VEC_INNER;
}

/* ---- lanes ---- */

/* Bytes of the widest value that lies along the last inner axis of a reduction's stage; what only
 * makes up an index does not count. */
static int tci_class_widest(const tci_kernel *k)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    uint64_t axes = 0;
    int widest = 1;
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        const tci_kstage *stage = &k->stages[red->stage];
        int bytes = tci_dtype_get((tc_dtype)red->dtype)->bytes;
        axes |= (uint64_t)1 << TCI_MIN(stage->axes[stage->n_axes - 1], 63);
        live[red->a] = true;
        if (red->b >= 0) {
            live[red->b] = true;
        }
        if (red->dtype != TC_BOOL) {
            widest = TCI_MAX(widest, tci_kred_is_arg(red->op) ? 8 : bytes);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        live[k->stores[i].value] = true;
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        for (int a = 0; live[i] && in->op != TCI_K_FAULT && a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        if (live[i] && in->op != TCI_K_FAULT && in->dtype != TC_BOOL && (in->axes & axes)) {
            widest = TCI_MAX(widest, tci_dtype_get((tc_dtype)in->dtype)->bytes);
        }
    }
    return widest;
}

static int tci_class_lanes(const tci_kernel *k, tci_machine machine)
{
    if (machine.block_threads == 0) {
        return TCI_VLANES;
    }
    int64_t longest = 1;
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        tci_dim size = st->n_axes ? k->axes[st->axes[st->n_axes - 1]].size : 1;
        int64_t row = tci_dim_is_known(size) ? size
                                             : TCI_MIN(tci_dim_most(size), TCI_CLASS_BLOCK_ROW);
        longest = TCI_MAX(longest, row);
    }
    int64_t held = TCI_MAX(TCI_CLASS_THREAD_BYTES / tci_class_widest(k), 1);
    int64_t threads = TCI_CLASS_WARP;
    while (threads < TCI_CLASS_THREADS && threads * held * TCI_CLASS_BLOCK_VECTORS < longest) {
        threads *= 2;
    }
    return (int)TCI_MIN(TCI_MAX(threads * held, TCI_VLANES), TCI_VLANES_MAX);
}

/* ---- the choice ---- */

TCI_FN void tci_class_choose(tci_kernel *k, tci_machine machine)
{
    for (int r = 0; r < k->n_reds; r++) {
        tci_kred *red = &k->reds[r];
        red->order = k->vector == TCI_VEC_INNER ? TCI_ORDER_LANES : TCI_ORDER_CHAIN;
        red->order_n = k->vector == TCI_VEC_INNER ? tci_class_lanes(k, machine) : 0;
    }
    if (tci_matrix_fits(k, machine)) {
        k->reds[0].order = TCI_ORDER_MATRIX;
    }
}
