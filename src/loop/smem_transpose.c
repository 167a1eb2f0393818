/* loop/smem_transpose.c - emits the transpose through shared memory, with one padding column
 * against bank conflicts.
 *
 * In: a kernel of one MAP stage, the axis along which its outputs are contiguous (vec_axis) and
 * the one along which some loads are (row_axis). Out: the statements for one square tile.
 *
 * Design: neighbouring threads must access neighbouring memory, so a tile is traversed twice. First
 * along row_axis: the loads contiguous along it are read into a shared array, one column of
 * padding avoiding bank conflicts. Then, after a barrier, along vec_axis: everything else.
 *
 * Threads are distinguished by TCI_LX_THREAD and every value is a scalar of its thread (the loop
 * has one lane). Invariant: no element is computed twice, as an output may be stored over an
 * input; edge tiles test every element. */
#include "smem_transpose.h"

enum {
    TCI_SMEM_TRANSPOSE_PITCH = TCI_SQUARE + 1,
    TCI_SMEM_TRANSPOSE_BYTES = 40960,                                  /* of all arrays together */
    TCI_SMEM_TRANSPOSE_STEP = TCI_SMEM_TRANSPOSE_THREADS / TCI_SQUARE, /* lines traversed at once */
    TCI_SMEM_TRANSPOSE_FAR_BYTES = 64, /* a stride that wants turning */
    TCI_SMEM_TRANSPOSE_FILL = -2       /* the stage of the first traversal */
};

static bool tci_smem_transpose_turns(const tci_kernel *k, const tci_kinst *in, int row_axis,
                                     int vec_axis)
{
    tci_dim along = 0, across = 0;
    if (in->op != TCI_K_LOAD || in->dtype == TC_BOOL ||
        !tci_build_coef(k, in->x, row_axis, &along) ||
        !tci_build_coef(k, in->x, vec_axis, &across) || !tci_dim_is_known(across)) {
        return false;
    }
    int bytes = tci_dtype_get((tc_dtype)k->operands[tci_kinst_number(in)].dtype)->bytes;
    int64_t stride = tci_dim_known(across);
    return (along == 1 || along == -1) &&
           (stride < 0 ? -stride : stride) * bytes >= TCI_SMEM_TRANSPOSE_FAR_BYTES;
}

TCI_FN bool tci_smem_transpose_plan(const tci_kernel *k, int row_axis, int vec_axis,
                                    tci_smem_transpose *q)
{
    int64_t room = TCI_SMEM_TRANSPOSE_BYTES;
    q->row_axis = row_axis;
    q->vec_axis = vec_axis;
    q->loads = TCI_NEW_ARRAY(k->s, int32_t, k->n_insts + 1);
    q->n_loads = 0;
    bool known = row_axis >= 0 && tci_dim_is_known(k->axes[row_axis].size) &&
                 tci_dim_is_known(k->axes[vec_axis].size);
    if (!known || tci_kernel_known(k, row_axis) < TCI_SQUARE / 4 ||
        tci_kernel_known(k, vec_axis) < TCI_SQUARE / 4) {
        return false;
    }
    for (int i = 0; i < k->n_insts; i++) {
        int64_t bytes = (int64_t)TCI_SQUARE * TCI_SMEM_TRANSPOSE_PITCH *
                        tci_dtype_get((tc_dtype)k->insts[i].dtype)->bytes;
        if (tci_smem_transpose_turns(k, &k->insts[i], row_axis, vec_axis) && bytes <= room) {
            q->loads[q->n_loads++] = i;
            room -= bytes;
        }
    }
    return q->n_loads > 0;
}

/* The position of this thread's `step`-th element: `fast` runs with the threads, `slow` every
 * TCI_SQUARE of them. */
typedef struct tci_smem_transpose_walk {
    const tci_smem_transpose *q;
    int fast_axis, slow_axis;
    tci_lin fast, slow;       /* of the first element */
    int64_t fast_hi, slow_hi; /* of the square's first element: the largest */
    bool edge;                /* elements may be outside */
} tci_smem_transpose_walk;

static tci_lin tci_smem_transpose_at(const tci_smem_transpose_walk *w, int step)
{
    return tci_lin_plus(w->slow, (int64_t)step * TCI_SMEM_TRANSPOSE_STEP);
}

static void tci_smem_transpose_bind(tci_build *b, const tci_smem_transpose_walk *w, int step)
{
    int64_t skip = (int64_t)step * TCI_SMEM_TRANSPOSE_STEP;
    int64_t n_slow = tci_kernel_known(b->k, w->slow_axis);
    int64_t n_fast = tci_kernel_known(b->k, w->fast_axis);
    tci_build_set(b, w->fast_axis,
                  tci_build_bind(b, w->fast, 0, TCI_MIN(w->fast_hi + TCI_SQUARE, n_fast) - 1, false,
                                 -1));
    tci_build_set(b, w->slow_axis,
                  tci_build_bind(b, tci_smem_transpose_at(w, step), TCI_MIN(skip, n_slow - 1),
                                 TCI_MIN(w->slow_hi + skip + TCI_SMEM_TRANSPOSE_STEP, n_slow) - 1,
                                 false, -1));
}

static void tci_smem_transpose_elements(tci_build *b, const tci_smem_transpose_walk *w, bool fill)
{
    for (int step = 0; step < TCI_SQUARE / TCI_SMEM_TRANSPOSE_STEP; step++) {
        tci_lopen open;
        if (w->edge) {
            int args[2] = {tci_build_inside(b, w->fast, b->k->axes[w->fast_axis].size),
                           tci_build_inside(b, tci_smem_transpose_at(w, step),
                                            b->k->axes[w->slow_axis].size)};
            tci_build_if(b, tci_build_prim(b, TCI_P_AND, TC_BOOL, 2, args, 0), &open);
        }
        tci_smem_transpose_bind(b, w, step);
        for (int i = 0; fill && i < w->q->n_loads; i++) {
            tci_build_value(b, w->q->loads[i]);
        }
        if (!fill) {
            tci_stage_stores(b, 0, NULL);
        }
        if (w->edge) {
            tci_build_close(b, &open);
        }
    }
    tci_build_set(b, w->fast_axis, NULL);
    tci_build_set(b, w->slow_axis, NULL);
}

/* Both traversals. */
static void tci_smem_transpose_walks(tci_build *b, const tci_smem_transpose *q, tci_lin row,
                                     tci_lin vec, bool edge)
{
    tci_loop *l = b->l;
    int thread = tci_lx_make(l, TCI_LX_THREAD, -1, -1, 0);
    tci_lin low = tci_build_let(b, tci_lx_make(l, TCI_LX_MOD, thread, -1, TCI_SQUARE));
    tci_lin high = tci_build_let(b, tci_lx_make(l, TCI_LX_DIV, thread, -1, TCI_SQUARE));
    int64_t n_row = tci_kernel_known(b->k, q->row_axis);
    int64_t n_vec = tci_kernel_known(b->k, q->vec_axis);
    int64_t row_hi = (n_row - 1) / TCI_SQUARE * TCI_SQUARE;
    int64_t vec_hi = (n_vec - 1) / TCI_SQUARE * TCI_SQUARE;
    tci_smem_transpose_walk along = {
        q,      q->row_axis, q->vec_axis, tci_lin_add(b, row, low), tci_lin_add(b, vec, high),
        row_hi, vec_hi,      edge};
    tci_smem_transpose_walk across = {
        q,      q->vec_axis, q->row_axis, tci_lin_add(b, vec, low), tci_lin_add(b, row, high),
        vec_hi, row_hi,      edge};
    b->stage = TCI_SMEM_TRANSPOSE_FILL;
    tci_smem_transpose_elements(b, &along, true);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_BARRIER;
    tci_loop_append(l, b->cur, st);
    b->stage = 0;
    tci_smem_transpose_elements(b, &across, false);
}

TCI_FN void tci_smem_transpose_emit(tci_build *b, const tci_smem_transpose *q, tci_lin row,
                                    tci_lin vec)
{
    int64_t n_row = tci_kernel_known(b->k, q->row_axis);
    int64_t n_vec = tci_kernel_known(b->k, q->vec_axis);
    tci_lin row_square = row, vec_square = vec;
    row = tci_lin_mul(b, row, TCI_SQUARE);
    vec = tci_lin_mul(b, vec, TCI_SQUARE);
    for (int i = 0; i < q->n_loads; i++) {
        int inst = q->loads[i];
        int local = tci_build_local(b, (tc_dtype)b->k->insts[inst].dtype,
                                    TCI_SQUARE * TCI_SMEM_TRANSPOSE_PITCH, b->cur);
        tci_lkeep *keep = tci_build_keep(b, inst, local, TCI_SMEM_TRANSPOSE_FILL);
        keep->coef[q->row_axis] = 1;
        keep->coef[q->vec_axis] = TCI_SMEM_TRANSPOSE_PITCH;
        keep->origin[q->row_axis] = row;
        keep->origin[q->vec_axis] = vec;
    }
    if (n_row % TCI_SQUARE == 0 && n_vec % TCI_SQUARE == 0) {
        tci_smem_transpose_walks(b, q, row, vec, false);
        return;
    }
    int args[2] = {tci_build_inside(b, row_square, n_row / TCI_SQUARE),
                   tci_build_inside(b, vec_square, n_vec / TCI_SQUARE)};
    int whole = tci_build_prim(b, TCI_P_AND, TC_BOOL, 2, args, 0);
    tci_lopen open;
    tci_build_if(b, whole, &open);
    tci_smem_transpose_walks(b, q, row, vec, false);
    tci_build_close(b, &open);
    tci_build_if(b, tci_build_prim(b, TCI_P_NOT, TC_BOOL, 1, &whole, 0), &open);
    tci_smem_transpose_walks(b, q, row, vec, true);
    tci_build_close(b, &open);
}
