/* tc_cuda.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_cuda.h ---- */
/* src/tc_cuda.h - amalgamation root of tc_cuda.h: GPU schedules and planner passes, and the CUDA
 * backend (CUDA source compiled by NVRTC). Included by tc.h, with or without tc_cpu.h: under
 * TC_BLOCKS only the schedules and passes, for a user-defined device; under TC_CUDA all of it. */
/* ---- src/tc_gpu.h ---- */
/* src/tc_gpu.h - include list of the GPU-only sources: pattern matchers, schedules and passes for
 * machines of thread blocks. Included by tc_cuda.h; without it plan/no_gpu.c replaces them. */
/* ---- src/kernel/match_mma_sync.c ---- */
/* kernel/match_mma_sync.c - finds the M, N and K axes of a GEMM kernel, and decides whether
 * warp-level tensor-core instructions (mma.sync) can compute it.
 *
 * In: a kernel, the machine. Out: its contraction as a matrix product, and whether warp-level
 * tensor-core instructions (mma.sync), on GPUs from sm_75 on, can compute it. Operands are read
 * from shared memory that the block fills by evaluating their expressions, so any layout of
 * operands is accepted: only the values must have the unit's dtype, or be converted from 8-bit
 * integers. The answer is a function of shape, dtype and the kind of machine, as
 * plan/reduction_order.c requires; loop/mma_gemm.c can schedule every kernel that matches. */

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
/* ---- src/kernel/tma_boxes.c ---- */
/* kernel/tma_boxes.c - matches contraction kernels whose operands, also convolution windows with
 * zero padding, can be loaded as TMA boxes, and computes the box of each operand (implicit GEMM
 * without im2col copies).
 *
 * In: a kernel whose operands are loads of bf16, f16 or f32 arrays, with guards that make elements
 * outside of an array zero. Out: the product as boxes (tci_matrix.is_boxes): for each operand the
 * axes of its array, and the step of each kernel axis along them. Design: a guard lo <= x <= hi is
 * an axis of the array with coordinate x - lo, and the hardware fills the part of a box outside of
 * the array with zeros; so windows of a padded image are boxes of the image at the window's
 * position, and nothing is copied. Kernel axes without guards are axes of the array themselves.
 *
 * A step of the product takes 128 bytes of k, 64 elements or 32: of the axis along which an array
 * is contiguous, if that is contracted (the other contracted axes are iterated over one by one);
 * else of a block of the contracted axes. Where a block extends outside, both operands are zeros
 * there, so that no missing element is multiplied by an existing one; where no such block is large
 * enough it is smaller (k_rows) and padded with zeros in both. Columns may be two axes, the spatial
 * output positions: a tile then covers whole image rows. */

#include <string.h>

enum {
    TCI_BOXES_STEP_MOST = 8,
    TCI_BOXES_MOST = 256,
    TCI_BOXES_CORNER = 128,    /* how far outside of an image a position may begin, */
    TCI_BOXES_FLAT = 2,        /* of images with this many axes at most */
    TCI_BOXES_DEEP_CORNER = 16 /* and of those with more */
};

/* ---- the array of a factor ---- */

static bool tci_tma_is_small(int64_t x)
{
    return x >= INT32_MIN / 4 && x <= INT32_MAX / 4;
}

/* The axis of the array that a guard speaks of; *coef and *offset lose its part. */
static bool tci_tma_guard(const tci_kernel *k, const tci_kguard *g, int64_t *coef, int64_t *offset,
                          tci_matrix_dim *d)
{
    int64_t *own = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes), base = 0;
    bool fits = tci_kx_affine_known(k, g->x, own, &base) && tci_dim_is_known(g->lo) &&
                tci_dim_is_known(g->hi);
    memset(d, 0, sizeof(*d));
    for (int a = 0; a < k->n_axes && fits; a++) {
        bool first = d->stride == 0 && own[a] != 0;
        fits = !first || coef[a] % own[a] == 0;
        d->stride = fits && first ? coef[a] / own[a] : d->stride;
        fits = fits && (own[a] == 0 || coef[a] == d->stride * own[a]) && tci_tma_is_small(own[a]);
        d->coef[a] = (int32_t)own[a];
    }
    if (!fits || d->stride <= 0) {
        return false;
    }
    for (int a = 0; a < k->n_axes; a++) {
        coef[a] = own[a] != 0 ? 0 : coef[a];
    }
    d->size = g->hi - g->lo + 1;
    d->base = base - tci_dim_known(g->lo);
    *offset -= d->base * d->stride;
    return d->size > 0 && tci_tma_is_small(d->base);
}

/* An axis of the kernel as one of the array, or as more of one with the same stride. */
static void tci_tma_axis(const tci_kernel *k, int axis, int64_t coef, int64_t *offset,
                         tci_matrix_side *side)
{
    int64_t size = tci_dim_known(k->axes[axis].size), stride = coef < 0 ? -coef : coef;
    int i = 0;
    while (i < side->n_dims && (side->dims[i].is_guarded || side->dims[i].stride != stride)) {
        i++;
    }
    tci_matrix_dim *d = &side->dims[i];
    if (i == side->n_dims) {
        memset(d, 0, sizeof(*d));
        d->stride = stride;
        d->size = 1;
        side->n_dims++;
    }
    d->size += size - 1;
    d->coef[axis] = coef < 0 ? -1 : 1;
    if (coef < 0) { /* counted from the other end */
        d->base += size - 1;
        *offset += coef * (size - 1);
    }
}

static void tci_tma_sort(tci_matrix_side *side)
{
    for (int i = 1; i < side->n_dims; i++) {
        for (int j = i; j > 0 && side->dims[j].stride < side->dims[j - 1].stride; j--) {
            tci_matrix_dim d = side->dims[j];
            side->dims[j] = side->dims[j - 1];
            side->dims[j - 1] = d;
        }
    }
}

/* Joins two axes of the array where one goes on at the other's end, the outermost such pair:
 * an image's lines and the images, say. Kernels whose windows do not overlap have an axis for each
 * position and each element of a window. False: there are none. */
static bool tci_tma_join(const tci_kernel *k, tci_matrix_side *side)
{
    for (int i = side->n_dims - 2; i > 0; i--) {
        tci_matrix_dim *low = &side->dims[i], *high = low + 1;
        if (!low->is_guarded && !high->is_guarded && high->stride == low->size * low->stride &&
            low->base == 0 && high->base == 0 && low->size <= INT32_MAX / high->size) {
            for (int a = 0; a < k->n_axes; a++) {
                low->coef[a] += high->coef[a] * (int32_t)low->size;
            }
            low->size *= high->size;
            memmove(high, high + 1, sizeof(*high) * (size_t)(side->n_dims - i - 2));
            side->n_dims--;
            return true;
        }
    }
    return false;
}

/* The array behind load `inst`; false where it is none that a box can be cut from. */
static bool tci_tma_side(const tci_kernel *k, int inst, tci_matrix_side *side)
{
    const tci_kinst *in = &k->insts[inst];
    int64_t *coef = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes), offset = 0;
    memset(side, 0, sizeof(*side));
    if (in->op != TCI_K_LOAD || (in->n_guards > 0 && in->value.u != 0) ||
        in->n_guards > TCI_MATRIX_DIMS || !tci_kx_affine_known(k, in->x, coef, &offset)) {
        return false;
    }
    for (int i = 0; i < in->n_guards; i++) {
        tci_matrix_dim *d = &side->dims[side->n_dims++];
        if (!tci_tma_guard(k, &k->guards[in->guard + i], coef, &offset, d)) {
            return false;
        }
        d->is_guarded = true;
    }
    for (int a = 0; a < k->n_axes; a++) {
        if (coef[a] != 0 && side->n_dims == TCI_MATRIX_DIMS + 1) {
            return false;
        }
        if (coef[a] != 0) {
            tci_tma_axis(k, a, coef[a], &offset, side);
        }
    }
    tci_tma_sort(side);
    if (side->n_dims > TCI_MATRIX_DIMS && !tci_tma_join(k, side)) {
        return false;
    }
    side->operand = tci_kinst_number(in);
    const int align = tci_matrix_align(k->operands[side->operand].dtype);
    side->offset = offset;
    bool fits = side->n_dims >= 2 && side->n_dims <= TCI_MATRIX_DIMS && offset >= 0 &&
                offset % align == 0 && side->dims[0].stride == 1;
    for (int i = 1; i < side->n_dims && fits; i++) {
        fits = side->dims[i].stride % align == 0 &&
               side->dims[i].stride > side->dims[i - 1].stride &&
               tci_tma_is_small(side->dims[i].size) && side->dims[i].stride <= INT32_MAX;
    }
    return fits;
}

/* The array's axis that an axis of the kernel moves along; *alone: no other one does. -1: none. */
static int tci_tma_dim(const tci_kernel *k, const tci_matrix_side *side, int axis, bool *alone)
{
    int found = -1;
    for (int i = 0; i < side->n_dims; i++) {
        found = side->dims[i].coef[axis] != 0 ? i : found;
    }
    *alone = found >= 0 && side->dims[found].coef[axis] == 1 && side->dims[found].base == 0;
    for (int a = 0; a < k->n_axes && found >= 0; a++) {
        *alone = *alone && (a == axis || side->dims[found].coef[a] == 0);
    }
    return found;
}

/* ---- rows, columns, batch ---- */

/* True if everything read and written after the sums continues along the last axis where `above`
 * takes its next step. */
static bool tci_tma_is_one(const tci_kernel *k, int above, int last)
{
    tci_dim *coef = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes), base;
    bool one = true;
    for (int i = 0; i < k->n_insts && one; i++) {
        const tci_kinst *in = &k->insts[i];
        bool factor = i == k->reds[0].in[0] || i == k->reds[0].in[1];
        if (!factor && (in->axes >> above & 1 || in->axes >> last & 1) && in->op == TCI_K_LOAD) {
            one = in->n_guards == 0 && tci_kx_affine(k, in->x, coef, &base) &&
                  coef[above] == tci_dim_mul(coef[last], k->axes[last].size);
        }
        one = one && in->op != TCI_K_INDEX && in->op != TCI_K_GUARD && in->op != TCI_K_FAULT;
    }
    for (int i = 0; i < k->n_stores && one; i++) {
        one = tci_kx_affine(k, k->stores[i].x, coef, &base) &&
              coef[above] == tci_dim_mul(coef[last], k->axes[last].size);
    }
    return one;
}

/* True if axis d of A is traversed by positions of this axis of the kernel, and otherwise only by
 * elements of a window, within the limits of the hardware. *pure: not even by those, nor in
 * steps. */
static bool tci_tma_is_walked(const tci_kernel *k, const tci_matrix_dim *d, int axis,
                              int64_t corner, bool *pure)
{
    int64_t step = d->coef[axis], low = d->base, others = 0;
    *pure = step == 1 && d->base == 0 && d->size == tci_dim_known(k->axes[axis].size);
    for (int a = 0; a < k->n_axes; a++) {
        int64_t most = d->coef[a] * (tci_dim_known(k->axes[a].size) - 1);
        if (a != axis && a < k->n_outer && d->coef[a] != 0) {
            return false;
        }
        if (a >= k->n_outer && d->coef[a] != 0) {
            low += TCI_MIN(most, 0);
            others += most < 0 ? -most : most;
            *pure = false;
        }
    }
    int64_t high = low + step * (tci_dim_known(k->axes[axis].size) - 1) + 1 - d->size;
    return step >= 1 && step <= TCI_BOXES_STEP_MOST && low >= -corner && low < corner &&
           high >= -corner && high < corner && others < 2 * corner;
}

/* True if the rows are all positions of images whose channels are contiguous. */
static bool tci_tma_places(const tci_kernel *k, tci_matrix *x)
{
    const tci_matrix_side *a = &x->side[0];
    int last = k->n_outer - 1, n = a->n_dims - 1;
    bool ignored, pure = false, fits = a->along_k && n == last && n > 0 && n <= TCI_MATRIX_PLACES;
    int64_t corner = n <= TCI_BOXES_FLAT + 1 ? TCI_BOXES_CORNER : TCI_BOXES_DEEP_CORNER;
    x->m = 1;
    for (int i = 0; i < n && fits; i++) {
        int axis = last - 1 - i;
        x->place_axis[i] = axis;
        x->place_sizes[i] = tci_dim_known(k->axes[axis].size);
        x->m *= x->place_sizes[i];
        fits = tci_tma_is_walked(k, &a->dims[1 + i], axis, corner, &pure) &&
               tci_tma_dim(k, &x->side[1], axis, &ignored) < 0 && x->m <= INT32_MAX &&
               (i == 0 || tci_tma_is_one(k, axis, axis + 1));
    }
    x->one_image = !pure;
    int axes = pure ? n - 1 : n; /* of an image */
    fits = fits && axes > 0 && axes <= TCI_MATRIX_DIMS - 2 &&
           (axes <= TCI_BOXES_FLAT || corner == TCI_BOXES_DEEP_CORNER) &&
           tci_tma_dim(k, a, last, &ignored) < 0 &&
           tci_tma_dim(k, &x->side[1], last, &ignored) >= 0;
    x->n_places = fits ? n : 0;
    return fits;
}

static bool tci_tma_axes(const tci_kernel *k, tci_matrix *x)
{
    const tci_matrix_side *a = &x->side[0], *b = &x->side[1];
    int last = k->n_outer - 1, above = last - 1;
    bool ignored, alone;
    x->y_axis = -1;
    x->n_axis = last;
    x->n = x->image_row = tci_dim_known(k->axes[last].size);
    if (x->dtype != TC_F32 && tci_tma_places(k, x)) {
        x->m_axis = x->place_axis[0];
        return true;
    }
    x->m_axis = -1;
    x->m = 0;
    for (int i = 0; i < last; i++) {
        bool row = tci_tma_dim(k, a, i, &alone) >= 0 && alone && tci_tma_dim(k, b, i, &ignored) < 0;
        x->m_axis = row && tci_dim_known(k->axes[i].size) > x->m ? i : x->m_axis;
        x->m = x->m_axis == i ? tci_dim_known(k->axes[i].size) : x->m;
    }
    if (x->m_axis < 0 || tci_tma_dim(k, a, last, &ignored) >= 0 ||
        tci_tma_dim(k, b, last, &ignored) < 0) {
        return false;
    }
    if (above >= 0 && above != x->m_axis && b->along_k && tci_tma_dim(k, b, above, &ignored) >= 0 &&
        tci_tma_dim(k, a, above, &ignored) < 0 && tci_tma_is_one(k, above, last)) {
        x->y_axis = above;
        x->n *= tci_dim_known(k->axes[above].size);
    }
    for (int i = 0; i < last; i++) {
        if (i != x->m_axis && i != x->y_axis) {
            if (x->n_batch == TCI_MATRIX_BATCH) {
                return false;
            }
            x->batch_axis[x->n_batch] = i;
            x->batch[x->n_batch++] = tci_dim_known(k->axes[i].size);
        }
    }
    return x->n <= INT32_MAX;
}

/* ---- steps of k ---- */

static int64_t tci_tma_power_in(int64_t n, int64_t most)
{
    int64_t power = 1;
    while (2 * power <= most && n % (2 * power) == 0) {
        power *= 2;
    }
    return power;
}

/* The largest divisor of n up to `most`. */
static int64_t tci_tma_divisor_in(int64_t n, int64_t most)
{
    int64_t divisor = TCI_MIN(n, most);
    while (n % divisor != 0) {
        divisor--;
    }
    return divisor;
}

/* Blocks of the contracted axes that are a step's elements together, or, not `whole`, as many as
 * whole parts of the axes are; the axes in the order of both arrays' layout. */
static bool tci_tma_block(const tci_kernel *k, tci_matrix *x, bool whole)
{
    int left = tci_matrix_depth(x), last = -1, before[2] = {0, 0};
    for (int i = 0; i < x->n_k; i++) {
        x->k_block[i] = 1;
    }
    for (int done = 0; done < x->n_k; done++) {
        int next = -1, dim = 0;
        bool alone[2] = {false, false};
        for (int i = 0; i < x->n_k; i++) { /* the next one in A's layout */
            int d = tci_tma_dim(k, &x->side[0], x->k_axis[i], &alone[0]);
            if (d > before[0] && (next < 0 || d < dim)) {
                next = i;
                dim = d;
            }
        }
        if (next < 0) {
            break;
        }
        int64_t size = tci_dim_known(k->axes[x->k_axis[next]].size);
        before[0] = tci_tma_dim(k, &x->side[0], x->k_axis[next], &alone[0]);
        int other = tci_tma_dim(k, &x->side[1], x->k_axis[next], &alone[1]);
        if (left > 1 && other <= before[1]) {
            return false;
        }
        before[1] = other;
        x->k_block[next] = (int32_t)(whole ? tci_tma_power_in(size, left)
                                           : tci_tma_divisor_in(size, left));
        if (whole && alone[0] && alone[1]) {
            last = next;
            while (x->k_block[next] < left && x->k_block[next] < size) {
                x->k_block[next] *= 2;
            }
        }
        left /= x->k_block[next];
    }
    if (whole && left > 1 && last >= 0) { /* the rest is outside, in both */
        x->k_block[last] *= left;
        left = 1;
    }
    x->k_rows = 1;
    for (int i = 0; i < x->n_k; i++) {
        x->k_rows *= x->k_block[i];
    }
    return !whole || left == 1;
}

static int64_t tci_tma_steps(const tci_kernel *k, const tci_matrix *x)
{
    int64_t steps = 1;
    for (int i = 0; i < x->n_k; i++) {
        steps *= tci_dim_known(tci_dim_ceil_div(k->axes[x->k_axis[i]].size, x->k_block[i]));
    }
    return steps;
}

/* The blocks that take fewer steps; false: there are none. */
static bool tci_tma_blocks(const tci_kernel *k, tci_matrix *x)
{
    int64_t whole = tci_tma_block(k, x, true) ? tci_tma_steps(k, x) : INT64_MAX;
    if (tci_tma_block(k, x, false) && tci_tma_steps(k, x) < whole) {
        return true;
    }
    return tci_tma_block(k, x, true);
}

/* Fills k, n_k and the blocks. */
static bool tci_tma_depth(const tci_kernel *k, tci_matrix *x)
{
    const tci_kstage *stage = &k->stages[0];
    bool alone[2];
    int along = -1;
    x->n_k = stage->n_axes;
    x->k = 1;
    x->k_rows = tci_matrix_depth(x);
    for (int i = 0; i < x->n_k; i++) {
        x->k_axis[i] = stage->axes[i];
        x->k_block[i] = 1;
        x->k_sizes[i] = tci_dim_known(k->axes[stage->axes[i]].size);
        x->k *= tci_dim_known(k->axes[stage->axes[i]].size);
        for (int s = 0; s < 2; s++) {
            bool fast = tci_tma_dim(k, &x->side[s], stage->axes[i], &alone[s]) == 0;
            x->side[s].along_k = x->side[s].along_k || fast;
            along = fast && (along < 0 || along == i) ? i : fast ? -2 : along;
        }
    }
    if (x->k > INT32_MAX || along == -2) {
        return false;
    }
    if (along >= 0) {
        bool own = tci_tma_dim(k, &x->side[0], x->k_axis[along], &alone[0]) >= 0 && alone[0] &&
                   tci_tma_dim(k, &x->side[1], x->k_axis[along], &alone[1]) >= 0 && alone[1];
        x->k_block[along] = tci_matrix_depth(x);
        if (!own) {
            return false;
        }
    } else if (!tci_tma_blocks(k, x)) {
        return false;
    }
    x->k_steps = tci_tma_steps(k, x);
    return true;
}

/* True if the boxes of a side are contiguous along the contiguous axis, and hold one axis of the
 * kernel for each of the array. */
static bool tci_tma_are_boxes(const tci_kernel *k, const tci_matrix *x, int which)
{
    const tci_matrix_side *side = &x->side[which];
    int own = which == 0 ? x->m_axis : x->n_axis;
    bool alone, used[TCI_MATRIX_DIMS] = {false};
    if (which == 0 && x->n_places > 0) {
        return true;
    }
    int dim = tci_tma_dim(k, side, own, &alone);
    if (!side->along_k && (dim != 0 || !alone || (which == 1 && x->y_axis >= 0))) {
        return false;
    }
    int axes[TCI_MATRIX_AXES], n = 0;
    axes[n++] = own;
    if (which == 1 && x->y_axis >= 0) {
        axes[n++] = x->y_axis;
    }
    for (int i = 0; i < x->n_k; i++) {
        if (x->k_block[i] > 1) {
            axes[n++] = x->k_axis[i];
        }
    }
    for (int i = 0; i < n; i++) {
        int d = tci_tma_dim(k, side, axes[i], &alone);
        int step = d < 0 ? 0 : side->dims[d].coef[axes[i]];
        if (d < 0 || used[d] || step < 1 || step > TCI_BOXES_STEP_MOST || (d == 0 && step > 1)) {
            return false;
        }
        used[d] = true;
    }
    int64_t widest = x->image_row * (which == 1 && dim >= 0 ? side->dims[dim].coef[own] : 1);
    return x->y_axis < 0 || which == 0 || widest <= TCI_BOXES_MOST;
}

/* ---- the whole ---- */

TCI_FN bool tci_tma_find(const tci_kernel *k, tci_matrix *x)
{
    const tci_kred *red = &k->reds[0];
    bool ignored;
    if (k->n_axes > TCI_MATRIX_AXES || k->stages[0].n_axes > TCI_MATRIX_K_AXES ||
        !tci_tma_side(k, red->in[0], &x->side[0]) || !tci_tma_side(k, red->in[1], &x->side[1])) {
        return false;
    }
    if (tci_tma_dim(k, &x->side[0], k->n_outer - 1, &ignored) >= 0) {
        tci_matrix_side a = x->side[0];
        x->side[0] = x->side[1];
        x->side[1] = a;
    }
    int8_t t = k->operands[x->side[0].operand].dtype;
    x->dtype = t;
    x->is_boxes = true;
    return tci_matrix_takes(t) && k->operands[x->side[1].operand].dtype == t &&
           tci_tma_depth(k, x) && tci_matrix_is_readable(x, &x->side[0]) &&
           tci_matrix_is_readable(x, &x->side[1]) && tci_tma_axes(k, x) &&
           tci_tma_are_boxes(k, x, 0) && tci_tma_are_boxes(k, x, 1);
}
/* ---- src/kernel/match_attention.c ---- */
/* kernel/match_attention.c - matches fused attention kernels for GPUs, forward and gradients:
 * contractions with row operations between them.
 *
 * In: a kernel, the machine. Out: the descriptor of kernel/match_attention.h, if the kernel is, in
 * stages of any order,
 *
 *     s = DOT of rows and steps over d, keeping the steps
 *     m = MAX over the steps of x, a value made of s; l = SUM over the steps of exp(x - m)
 *     w = exp(x - m) / l, or exp(x - m) * (1 / l), kept; rounded or not
 *     g = DOT of other rows and steps over dv, keeping the steps
 *     c = a value made of w, g and values of a query alone, kept
 *     o = DOT over the steps of c, rounded to the steps' dtype, and the steps of s
 *     p = DOT over the steps of w, rounded likewise, and the steps of g or, without g, other ones
 *     stores of values made of o or p, or of m and l
 *
 * where either m and l are reductions of this kernel and there are neither g, c nor o (forward; if
 * there are no w and p either, the kernel stores values of rows for kernels that compute the
 * weights from these, see value_columns of kernel/ir.h), or m and l are values of a query alone
 * (gradients; c and o need g, and p may be absent then). If the steps are keys the gradient is the
 * one to queries, else the one to keys and values, or, in wide heads, to one of these.
 *
 * A matrix unit takes 16-bit operands in the layouts of kernel/match_matrix_unit.h; SIMT threads
 * take f32, f16 and bf16 in any layout (f32 is not rounded). The answer is a function of shape,
 * layout, dtype and the kind of machine, and loop/ can schedule every kernel that matches. */

#include <string.h>

enum { TCI_ATTENTION_CUT = 1 << 29 }; /* of a cut's distance, at most */

/* State of the match: reductions by number, -1: none. */
typedef struct tci_attention_search {
    const tci_kernel *k;
    int in[2], out[2]; /* out[0] takes c, out[1] takes w; or, n_in == 1, out[0] takes w */
    int n_in, n_out;
    int most, sum;    /* of a row, where the chain is online */
    uint64_t weights; /* kept values that are the weight, rounded or not, */
    int change;       /* and the gradient of a score */
    int steps;        /* their axis */
    int8_t dtype;
} tci_attention_search;

static bool tci_attention_is_online(const tci_attention_search *f)
{
    return f->sum >= 0;
}

static uint64_t tci_attention_bit(int red)
{
    return red >= 0 ? (uint64_t)1 << TCI_MIN(red, 63) : 0;
}

/* ---- the stages ---- */

static bool tci_attention_has_sizes(const tci_kernel *k)
{
    bool fits = k->n_axes <= TCI_MATRIX_AXES && k->n_outer >= 1 &&
                k->n_outer <= 1 + TCI_MATRIX_PLAIN_BATCH && !k->faults;
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && tci_dim_is_known(k->axes[a].size) && tci_dim_known(k->axes[a].size) > 0 &&
               tci_dim_known(k->axes[a].size) <= INT32_MAX;
    }
    return fits;
}

/* Columns of the values that weights are multiplied with in another kernel; 0: not known. */
static int64_t tci_attention_elsewhere(const tci_attention_search *f)
{
    const tci_kred *sum = &f->k->reds[f->sum];
    return sum->order == TCI_ORDER_STEPS ? sum->order_n : f->k->value_columns;
}

static bool tci_attention_is_load(const tci_kernel *k, int inst)
{
    return k->insts[inst].op == TCI_K_LOAD;
}

/* True if reduction r keeps one value for each step. */
static bool tci_attention_is_kept(const tci_kernel *k, int r)
{
    return k->reds[r].op == TCI_RED_MAX && k->stages[k->reds[r].stage].n_kept == 1;
}

/* A reduction along the steps: a kept value, or the only MAX or SUM of a row. */
static bool tci_attention_sort_row(tci_attention_search *f, int r)
{
    const tci_kred *red = &f->k->reds[r];
    bool is_max = red->op == TCI_RED_MAX;
    if (f->k->stages[red->stage].n_kept > 0) {
        return tci_attention_is_kept(f->k, r);
    }
    int *own = is_max ? &f->most : &f->sum;
    bool fits = (is_max || red->op == TCI_RED_SUM) && *own < 0;
    *own = r;
    return fits;
}

/* A DOT of two loads, a DOT of one, or a reduction along the steps. */
static bool tci_attention_sort(tci_attention_search *f, int r)
{
    const tci_kred *red = &f->k->reds[r];
    const tci_kstage *st = &f->k->stages[red->stage];
    if (red->dtype != TC_F32 || st->kind != TCI_STAGE_REDUCE) {
        return false;
    }
    if (red->op != TCI_RED_DOT) {
        return st->n_axes == 1 && tci_attention_sort_row(f, r);
    }
    int loads = tci_attention_is_load(f->k, red->in[0]) + tci_attention_is_load(f->k, red->in[1]);
    int *n = loads == 2 ? &f->n_in : &f->n_out;
    if (st->n_axes != 2 || st->n_kept != 1 || loads == 0 || *n == 2) {
        return false;
    }
    (loads == 2 ? f->in : f->out)[(*n)++] = r;
    return true;
}

/* An online chain has both statistics, one product of loads, and, without weights, the number of
 * columns that these are multiplied with. */
static bool tci_attention_has_counts(const tci_attention_search *f)
{
    if (f->n_in == 0 || (f->most < 0) != (f->sum < 0)) {
        return false;
    }
    return !tci_attention_is_online(f)
               ? f->n_out > 0
               : f->n_in == 1 && f->n_out <= 1 && (f->n_out == 1 || tci_attention_elsewhere(f) > 0);
}

static bool tci_attention_has_form(tci_attention_search *f)
{
    const tci_kernel *k = f->k;
    bool fits = k->vector == TCI_VEC_INNER && tci_attention_has_sizes(k);
    for (int r = 0; r < k->n_reds && fits; r++) {
        fits = tci_attention_sort(f, r);
    }
    if (!fits || !tci_attention_has_counts(f)) {
        return false;
    }
    f->steps = k->stages[k->reds[f->in[0]].stage].axes[1];
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kstage *st = &k->stages[k->reds[r].stage];
        bool is_in = r == f->in[0] || r == f->in[1];
        fits = fits && st->axes[is_in] == f->steps;
    }
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        bool is_row = st->n_axes == 0 && tci_attention_is_online(f);
        bool is_map = st->kind == TCI_STAGE_MAP &&
                      (is_row || (st->n_axes == 1 && st->axes[0] != f->steps));
        fits = fits && (st->kind == TCI_STAGE_REDUCE || is_map);
    }
    for (int i = 0; i < k->n_kx; i++) {
        fits = fits && (k->kx[i].op != TCI_KX_VALUE || k->kx[i].stage < 0);
    }
    return fits;
}

/* ---- the values ---- */

/* Instruction `inst` where it is such a PRIM, else NULL. */
static const tci_kinst *tci_attention_prim(const tci_kernel *k, int inst, tci_prim prim)
{
    const tci_kinst *in = inst >= 0 ? &k->insts[inst] : NULL;
    return in && in->op == TCI_K_PRIM && in->prim == prim ? in : NULL;
}

/* The x - m of a power exp(x - m), else NULL. */
static const tci_kinst *tci_attention_exponent(const tci_kernel *k, int inst)
{
    const tci_kinst *exp = tci_attention_prim(k, inst, TCI_P_EXP);
    exp = exp ? exp : tci_attention_prim(k, inst, TCI_P_EXPN);
    return exp ? tci_attention_prim(k, exp->args[0], TCI_P_SUB) : NULL;
}

/* The l of 1 / l; -1: it is something else. */
static int tci_attention_inverse(const tci_kernel *k, int inst)
{
    const tci_kinst *in = tci_attention_prim(k, inst, TCI_P_DIV);
    bool is_one = in && k->insts[in->args[0]].op == TCI_K_CONST &&
                  k->insts[in->args[0]].value.f == 1;
    return is_one ? in->args[1] : -1;
}

/* e and l of a weight e / l or e * (1 / l); false: it is none. */
static bool tci_attention_weight(const tci_kernel *k, int inst, int *e, int *l)
{
    const tci_kinst *times = tci_attention_prim(k, inst, TCI_P_MUL);
    const tci_kinst *by = tci_attention_prim(k, inst, TCI_P_DIV);
    *e = *l = -1;
    if (by) {
        *e = by->args[0];
        *l = by->args[1];
    }
    for (int i = 0; times && *l < 0 && i < 2; i++) {
        *e = times->args[1 - i];
        *l = tci_attention_inverse(k, times->args[i]);
    }
    return *l >= 0;
}

/* The operand of a rounding to dtype t, if `inst` is one. */
static int tci_attention_rounded(const tci_kernel *k, int inst, int8_t t)
{
    tci_prim round = t == TC_F16 ? TCI_P_ROUND16 : TCI_P_ROUNDB16;
    const tci_kinst *in = t == TC_F32 ? NULL : tci_attention_prim(k, inst, round);
    return in ? in->args[0] : inst;
}

/* The value of an element of kept reduction r, without a rounding to the dtype of operands, which
 * *rounds reports, and without the reductions that keep it before. */
static int tci_attention_kept(const tci_attention_search *f, int r, bool *rounds)
{
    const tci_kernel *k = f->k;
    *rounds = false;
    for (;;) {
        int of = tci_attention_rounded(k, k->reds[r].in[0], f->dtype);
        *rounds |= of != k->reds[r].in[0];
        if (k->insts[of].op != TCI_K_RED) {
            return of;
        }
        int before = tci_kinst_number(&k->insts[of]);
        if (!tci_attention_is_kept(k, before)) {
            return of;
        }
        r = before;
    }
}

/* True if value i depends on a query alone, along its axis `query`. */
static bool tci_attention_is_own(const tci_kernel *k, int i, const tci_attention *x, int query)
{
    uint64_t own = (uint64_t)1 << query;
    for (int b = 0; b < x->in[0].n_batch; b++) {
        own |= (uint64_t)1 << x->in[0].batch_axis[b];
    }
    return k->insts[i].stage < 0 && (k->insts[i].axes & ~own) == 0 &&
           (k->insts[i].axes >> query & 1);
}

/* Takes e / l as the weight where e is exp(score - most); of an online chain with its own
 * statistics. */
static bool tci_attention_take_weight(const tci_attention_search *f, tci_attention *x, int e, int l)
{
    const tci_kernel *k = f->k;
    const tci_kinst *off = tci_attention_exponent(k, e);
    if (!off) {
        return false;
    }
    x->score = off->args[0];
    x->values[0] = off->args[1];
    x->values[1] = l;
    x->n_values = 2;
    const tci_kred *most = &k->reds[TCI_MAX(f->most, 0)], *sum = &k->reds[TCI_MAX(f->sum, 0)];
    return !tci_attention_is_online(f) || (e == sum->in[0] && l == sum->inst &&
                                           x->values[0] == most->inst && x->score == most->in[0]);
}

/* The value that is a weight, and where it is kept, if it is. */
static bool tci_attention_has_weight(tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    x->weight = -1;
    for (int i = 0; i < k->n_insts && x->weight < 0; i++) {
        int e, l;
        bool is_weight = tci_attention_weight(k, i, &e, &l);
        x->weight = is_weight && tci_attention_take_weight(f, x, e, l) ? i : -1;
    }
    for (int r = 0; r < k->n_reds; r++) {
        bool rounds, kept = tci_attention_is_kept(k, r);
        kept = kept && tci_attention_kept(f, r, &rounds) == x->weight;
        f->weights |= kept ? tci_attention_bit(r) : 0;
    }
    if (f->n_out == 0) { /* another kernel makes the weights */
        const tci_kred *sum = &k->reds[f->sum];
        return tci_attention_take_weight(f, x, sum->in[0], sum->inst);
    }
    return x->weight >= 0;
}

/* Finds the operand of each last product; out[0] is the product with the gradients of scores, if
 * there are any. */
static bool tci_attention_has_takers(tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    int found[2] = {-1, -1};
    for (int i = 0; i < f->n_out; i++) {
        const tci_kred *red = &k->reds[f->out[i]];
        int taken = red->in[tci_attention_is_load(k, red->in[0])];
        int of = tci_attention_rounded(k, taken, f->dtype);
        const tci_kinst *in = &k->insts[of];
        int r = in->op == TCI_K_RED ? tci_kinst_number(in) : -1;
        bool rounds = false, kept = r >= 0 && tci_attention_is_kept(k, r);
        int which = kept && (f->weights & tci_attention_bit(r)) != 0;
        if (kept) {
            tci_attention_kept(f, r, &rounds);
        }
        bool fits = rounds || of != taken || f->dtype == TC_F32;
        if (!kept || !fits || found[which] >= 0) {
            return false;
        }
        found[which] = f->out[i];
        f->change = which == 0 ? r : f->change;
    }
    bool changes = found[0] >= 0;
    f->out[0] = found[!changes];
    f->out[1] = changes ? found[1] : -1;
    if (changes) { /* it is rounded as a factor is */
        x->change = tci_attention_rounded(k, k->reds[f->change].in[0], f->dtype);
    }
    return f->n_in == 1 + changes;
}

/* Marks what value i is made of, down to reductions other than kept ones, to `stop` and to kept
 * values of it, `stops`, and to values of a query alone, which it adds. */
typedef struct tci_attention_walk {
    const tci_attention_search *f;
    tci_attention *x;
    int query; /* its axis; -1: values of a query are nothing special */
    bool *seen;
    int stop;       /* an instruction that is not gone through, -1: none, */
    uint64_t stops; /* nor are these reductions */
    uint64_t reds;  /* that were met, */
    bool stopped;   /* and whether `stop` was */
    bool fits;
} tci_attention_walk;

static void tci_attention_go(tci_attention_walk *w, int i)
{
    const tci_kernel *k = w->f->k;
    const tci_kinst *in = &k->insts[i];
    if (w->seen[i]) {
        return;
    }
    w->seen[i] = true;
    if (i == w->stop) {
        w->stopped = true;
        return;
    }
    if (in->op == TCI_K_RED) {
        int r = tci_kinst_number(in);
        bool through = tci_attention_is_kept(k, r) && !(w->stops & tci_attention_bit(r));
        w->reds |= through ? 0 : tci_attention_bit(r);
        if (through) {
            tci_attention_go(w, k->reds[r].in[0]);
        }
        return;
    }
    if (w->query >= 0 && tci_attention_is_own(k, i, w->x, w->query)) {
        w->fits = w->fits && w->x->n_values < TCI_ATTENTION_VALUES;
        w->x->values[w->fits ? w->x->n_values++ : 0] = i;
        return;
    }
    for (int a = 0; a < in->n_args; a++) {
        tci_attention_go(w, in->args[a]);
    }
}

static tci_attention_walk tci_attention_walk_of(const tci_attention_search *f, tci_attention *x,
                                                int query, int stop, uint64_t stops)
{
    bool *seen = TCI_NEW_ARRAY(f->k->s, bool, f->k->n_insts + 1);
    tci_attention_walk w = {f, x, query, seen, stop, stops, 0, false, true};
    return w;
}

/* The reductions that value i is made of, other than kept ones. */
static uint64_t tci_attention_made_of(const tci_attention_search *f, tci_attention *x, int i)
{
    tci_attention_walk w = tci_attention_walk_of(f, x, -1, -1, 0);
    tci_attention_go(&w, i);
    return w.reds;
}

/* Orders the first products so that the one that computes the scores comes first. */
static bool tci_attention_orders_in(tci_attention_search *f, tci_attention *x)
{
    uint64_t of = tci_attention_made_of(f, x, x->score);
    for (int i = 0; i < f->n_in; i++) {
        if (of == tci_attention_bit(f->in[i])) {
            int other = f->in[1 - i];
            f->in[0] = f->in[i];
            f->in[1] = other;
            x->products[0] = f->k->reds[f->in[0]].inst;
            x->products[1] = f->n_in > 1 ? f->k->reds[other].inst : -1;
            return true;
        }
    }
    return false;
}

/* The gradient of a score is made of the weight, as it is or as it is kept, of the other product
 * and values of a query. */
static bool tci_attention_has_change(tci_attention_search *f, tci_attention *x, int query)
{
    tci_attention_walk w = tci_attention_walk_of(f, x, query, x->weight, f->weights);
    tci_attention_go(&w, x->change);
    uint64_t other = tci_attention_bit(f->in[1]), met = w.reds & f->weights;
    bool takes_kept = !w.stopped && met && (met & (met - 1)) == 0 && w.reds == (met | other);
    for (int r = 0; r < f->k->n_reds && takes_kept; r++) {
        if (met & tci_attention_bit(r)) {
            tci_attention_kept(f, r, &x->rounds);
            x->weight = f->k->reds[r].inst;
        }
    }
    return w.fits && (takes_kept || (w.stopped && w.reds == other));
}

/* Stores are of a result's columns, made of it, or of a row, made of its statistics. */
static bool tci_attention_has_stores(const tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    bool fits = true;
    for (int i = 0; i < k->n_stores && fits; i++) {
        const tci_kstage *st = &k->stages[k->stores[i].stage];
        bool row = st->n_axes == 0;
        int which = f->n_out == 2 && !row && st->axes[0] == x->out[1].n_axis;
        uint64_t of = row ? tci_attention_bit(f->most) | tci_attention_bit(f->sum)
                          : tci_attention_bit(f->out[which]);
        fits = st->kind == TCI_STAGE_MAP &&
               (row || (f->n_out > 0 && st->axes[0] == x->out[which].n_axis)) &&
               (tci_attention_made_of(f, x, k->stores[i].value) & ~of) == 0;
        x->tells |= row;
    }
    return fits;
}

static bool tci_attention_has_values(tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    int query = x->by_step ? f->steps : x->in[0].m_axis;
    bool fits = x->is_online || (tci_attention_is_own(k, x->values[0], x, query) &&
                                 tci_attention_is_own(k, x->values[1], x, query));
    return fits && (x->n_in == 1 || tci_attention_has_change(f, x, query)) &&
           tci_attention_has_stores(f, x);
}

/* ---- the products ---- */

/* The rows of x: the longest outer axis of the set `own`; the rest is the batch. False: there are
 * none. */
static bool tci_attention_rows(const tci_kernel *k, uint64_t own, tci_matrix *x)
{
    x->m_axis = x->y_axis = -1;
    for (int a = 0; a < k->n_outer; a++) {
        bool longer = x->m_axis < 0 || tci_dim_lt(k->axes[x->m_axis].size, k->axes[a].size);
        x->m_axis = own >> a & 1 && longer ? a : x->m_axis;
    }
    for (int a = 0; a < k->n_outer && x->m_axis >= 0; a++) {
        if (a != x->m_axis) {
            x->batch_axis[x->n_batch] = a;
            x->batch[x->n_batch++] = tci_dim_known(k->axes[a].size);
        }
    }
    x->m = x->m_axis >= 0 ? tci_dim_known(k->axes[x->m_axis].size) : 0;
    return x->m_axis >= 0;
}

/* True if last product i takes loaded steps, in their layout for the first one. */
static bool tci_attention_same_steps(const tci_attention *x, int i)
{
    const tci_matrix *in = &x->in[tci_attention_taken(x, i)];
    const tci_matrix_side *a = &in->side[1], *b = &x->out[i].side[1];
    bool same = a->operand == b->operand && a->offset == b->offset && a->own == b->summed &&
                a->summed == b->own && in->k == x->out[i].n;
    for (int n = 0; n < x->in[0].n_batch; n++) {
        same = same && a->batch_pitch[n] == b->batch_pitch[n];
    }
    return same;
}

/* Operand of first product i: its rows (n = 0), which do not depend on the steps, or its steps; -1:
 * it has no rows. The steps of an absent product are those that the weights are multiplied with,
 * of row statistics the keys. */
static int tci_attention_factor(const tci_attention_search *f, int i, int n)
{
    const tci_kernel *k = f->k;
    if (i >= f->n_in && n == 0) {
        return -1;
    }
    if (i >= f->n_in && f->n_out > 0) {
        const tci_kred *red = &k->reds[f->out[0]];
        return red->in[!tci_attention_is_load(k, red->in[0])];
    }
    const tci_kred *red = &k->reds[f->in[i < f->n_in ? i : 0]];
    return red->in[(k->insts[red->in[1]].axes >> f->steps & 1) == (n == 1)];
}

/* The axis of the elements of first product i's rows and steps. */
static int tci_attention_depth(const tci_attention_search *f, int i)
{
    const tci_kernel *k = f->k;
    bool is_out = i >= f->n_in && f->n_out > 0;
    int red = is_out ? f->out[0] : f->in[i < f->n_in ? i : 0];
    return k->stages[k->reds[red].stage].axes[is_out];
}

/* The loads of the first products, with strides coef[rows or steps][product], and the axes of rows
 * and batch, in *base. */
static bool tci_attention_has_loads(const tci_attention_search *f, tci_attention *x,
                                    tci_matrix *base, int64_t *coef[2][2])
{
    const tci_kernel *k = f->k;
    uint64_t own = ((uint64_t)1 << k->n_outer) - 1; /* axes that all rows have and no steps */
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < 2; n++) {
            int load = tci_attention_factor(f, i, n);
            coef[n][i] = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes);
            fits = fits && (load < 0 || (tci_matrix_load(k, load, coef[n][i], &x->in[i].side[n]) &&
                                         k->operands[x->in[i].side[n].operand].dtype == f->dtype));
            for (int a = 0; a < k->n_outer && load >= 0 && fits; a++) {
                own &= ~((uint64_t)((coef[n][i][a] != 0) == (n == 1)) << a);
            }
        }
    }
    return fits && tci_attention_rows(k, own, base);
}

static bool tci_attention_has_in(const tci_attention_search *f, tci_attention *x, tci_matrix *base)
{
    const tci_kernel *k = f->k;
    int64_t *coef[2][2];
    bool fits = tci_attention_has_loads(f, x, base, coef);
    for (int i = 0; i < 2 && fits; i++) {
        int d = tci_attention_depth(f, i);
        tci_matrix *in = &x->in[i];
        tci_matrix_side rows = in->side[0], steps = in->side[1];
        *in = *base;
        in->n_axis = f->steps;
        in->n = tci_dim_known(k->axes[f->steps].size);
        in->k = i == 1 && f->n_out == 0 ? tci_attention_elsewhere(f)
                                        : tci_dim_known(k->axes[d].size);
        fits = coef[0][i][f->steps] == 0;
        if (i < f->n_in) {
            x->on_unit &= tci_matrix_side_of(in, coef[0][i], in->m_axis, d, &rows) && rows.along_k;
        }
        x->on_unit &= tci_matrix_side_of(in, coef[1][i], f->steps, d, &steps) && steps.along_k;
        in->side[0] = rows;
        in->side[1] = steps;
    }
    return fits;
}

/* The last product i, of row statistics the one of another kernel. */
static bool tci_attention_has_out(const tci_attention_search *f, tci_attention *x, int i)
{
    const tci_kernel *k = f->k;
    int64_t *taken = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes);
    tci_matrix *out = &x->out[i];
    bool is_here = f->n_out > 0;
    const tci_kred *red = is_here ? &k->reds[f->out[i]] : NULL;
    int load = is_here ? red->in[!tci_attention_is_load(k, red->in[0])]
                       : tci_attention_factor(f, 1, 1);
    tci_matrix_side of = {0};
    out->n_axis = is_here ? k->stages[red->stage].axes[1] : tci_attention_depth(f, 1);
    out->n = is_here ? tci_dim_known(k->axes[out->n_axis].size) : x->in[1].k;
    out->k = x->in[0].n;
    if (!tci_matrix_load(k, load, taken, &of)) {
        return false;
    }
    x->on_unit &= tci_matrix_side_of(out, taken, out->n_axis, f->steps, &of) && !of.along_k;
    out->side[1] = of;
    if (is_here) {
        tci_matrix_value(k, f->out[i], out);
    } else {
        out->value = k->reds[f->sum].inst;
        out->staged = f->dtype;
    }
    return tci_attention_same_steps(x, i);
}

static bool tci_attention_has_sides(const tci_attention_search *f, tci_attention *x)
{
    tci_matrix base = {.dtype = f->dtype};
    x->on_unit = tci_dtype_is_half((tc_dtype)f->dtype);
    bool fits = tci_attention_has_in(f, x, &base);
    for (int i = 0; i < x->n_out && fits; i++) {
        x->out[i] = base;
        fits = tci_attention_has_out(f, x, i);
    }
    return fits;
}

/* ---- the cut ---- */

/* sign x, as a function of queries and keys: true where it falls by 1 from key to key, and rises by
 * rows, 0 or 1, from query to query, and depends on nothing else. */
static bool tci_attention_distance(const tci_kernel *k, int x, int sign, int queries, int keys,
                                   tci_attention_cut *cut)
{
    int64_t *coef = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes), at;
    if (!tci_kx_affine_known(k, x, coef, &at)) {
        return false;
    }
    bool fits = true;
    for (int i = 0; i < k->n_axes; i++) {
        fits = fits && (i == queries || i == keys || coef[i] == 0);
    }
    cut->base = sign * at;
    cut->rows = sign * coef[queries];
    return fits && sign * coef[keys] == -1 && cut->rows >= 0 && cut->rows <= 1 &&
           cut->base > -TCI_ATTENTION_CUT && cut->base < TCI_ATTENTION_CUT;
}

/* The cut of a score that is SELECT by a comparison of indices: of what depends on keys, or of one
 * value. */
static tci_attention_cut tci_attention_find_cut(const tci_kernel *k, int score, int queries,
                                                int keys)
{
    tci_attention_cut cut = {false, 0, 0, -1, -1};
    const tci_kinst *select = tci_attention_prim(k, score, TCI_P_SELECT);
    const tci_kinst *seen = select ? &k->insts[select->args[0]] : NULL;
    if (!seen || seen->op != TCI_K_GUARD || seen->n_guards != 1) {
        return cut;
    }
    tci_kguard guard = k->guards[seen->guard];
    bool masks_else = k->insts[select->args[2]].axes == 0 && k->insts[select->args[2]].stage < 0;
    bool masks_then = k->insts[select->args[1]].axes == 0 && k->insts[select->args[1]].stage < 0;
    if (!tci_dim_le(k->kx[guard.x].hi, guard.hi)) {
        return cut;
    }
    if (masks_else && tci_attention_distance(k, guard.x, 1, queries, keys, &cut)) {
        cut.is_cut = true;
        cut.seen = select->args[1];
        cut.off = select->args[2];
        cut.base -= tci_dim_known(guard.lo);
    } else if (masks_then && tci_attention_distance(k, guard.x, -1, queries, keys, &cut)) {
        cut.is_cut = true;
        cut.seen = select->args[2];
        cut.off = select->args[1];
        cut.base += tci_dim_known(guard.lo) - 1;
    }
    return cut;
}

/* ---- the whole ---- */

TCI_FN bool tci_attention_find(const tci_kernel *k, tci_attention *x)
{
    tci_attention_search f = {k, {-1, -1}, {-1, -1}, 0, 0, -1, -1, 0, -1, -1, 0};
    memset(x, 0, sizeof(*x));
    if (!tci_attention_has_form(&f)) {
        return false;
    }
    int load = k->reds[f.in[0]].in[0];
    f.dtype = k->operands[tci_kinst_number(&k->insts[load])].dtype;
    bool known = tci_dtype_is_half((tc_dtype)f.dtype) || f.dtype == TC_F32;
    if (!known || !tci_attention_has_weight(&f, x) || !tci_attention_has_takers(&f, x) ||
        !tci_attention_orders_in(&f, x)) {
        return false;
    }
    x->is_online = tci_attention_is_online(&f);
    x->only_rows = f.n_out == 0;
    x->n_in = f.n_in;
    x->n_out = TCI_MAX(f.n_out, 1);
    if (!tci_attention_has_sides(&f, x)) {
        return false;
    }
    x->by_step = k->insts[x->values[0]].axes >> f.steps & 1;
    if (!tci_attention_has_values(&f, x)) {
        return false;
    }
    int queries = x->by_step ? f.steps : x->in[0].m_axis;
    x->cut = tci_attention_find_cut(k, x->score, queries, x->by_step ? x->in[0].m_axis : f.steps);
    return true;
}

/* Columns of sums that a thread would hold on a unit. */
static int64_t tci_attention_sums(const tci_attention *x)
{
    int64_t columns = 0;
    for (int i = 0; i < x->n_out; i++) {
        columns += tci_attention_columns_of(x->out[i].n);
    }
    return columns;
}

/* True if a matrix unit of the machine can run the matched kernel. */
static bool tci_attention_fits_unit(const tci_attention *x, tci_machine machine)
{
    return machine.matrix_units > 0 && machine.block_threads > 0 && x->on_unit &&
           x->in[0].k >= TCI_ATTENTION_LEAST && x->in[1].k >= TCI_ATTENTION_LEAST &&
           tci_attention_sums(x) <= TCI_ATTENTION_SUMS;
}

/* True if there is enough to multiply, and the tiles can be counted. */
static bool tci_attention_is_work(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    double tiles = (double)tci_dim_known(tci_dim_ceil_div(s->m, TCI_ATTENTION_FEWEST));
    double flops = 2 * (double)s->m * (double)s->n * (double)(s->k + x->in[1].k);
    for (int i = 0; i < s->n_batch; i++) {
        tiles *= (double)s->batch[i];
        flops *= (double)s->batch[i];
    }
    return tiles <= INT32_MAX / 2 && flops >= TCI_MATRIX_FLOPS;
}

TCI_FN bool tci_attention_fits(const tci_kernel *k, tci_machine machine)
{
    tci_attention x;
    if (!tci_attention_has_threads(machine) || !tci_attention_find(k, &x)) {
        return false;
    }
    const tci_matrix *s = &x.in[0], *g = &x.in[1];
    int least = x.is_online ? TCI_MATRIX_ROWS : TCI_ATTENTION_LEAST;
    bool slow = tci_attention_sums(&x) > TCI_ATTENTION_SUMS && x.on_unit &&
                machine.matrix_units > 0; /* on SIMT threads, with products of pairs there */
    return s->m >= least && s->n >= TCI_ATTENTION_LEAST && !slow && s->k <= TCI_ATTENTION_SIZE &&
           g->k <= TCI_ATTENTION_SIZE && tci_attention_is_work(&x);
}

TCI_FN void tci_attention_set_orders(tci_kernel *k, tci_machine machine)
{
    tci_attention x;
    bool on_unit = tci_attention_find(k, &x) && tci_attention_fits_unit(&x, machine);
    for (int r = 0; r < k->n_reds; r++) {
        tci_kred *red = &k->reds[r];
        bool is_in = red->op == TCI_RED_DOT && tci_attention_is_load(k, red->in[0]) &&
                     tci_attention_is_load(k, red->in[1]);
        bool is_sum = red->op == TCI_RED_SUM;
        if (red->op == TCI_RED_DOT || is_sum) {
            red->order = !is_in ? TCI_ORDER_STEPS : on_unit ? TCI_ORDER_MATRIX : TCI_ORDER_CHAIN;
            red->order_n = is_sum && x.only_rows ? (int32_t)x.out[0].n : 0;
            red->near = 0;
        }
    }
}

TCI_FN double tci_attention_steps(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    double steps = (double)tci_dim_known(tci_dim_ceil_div(s->n, s->columns));
    return x->cut.is_cut ? (steps + 1) / 2 : steps;
}

TCI_FN bool tci_attention_is_simt(const tci_kernel *k)
{
    bool steps = false, on_unit = false;
    for (int r = 0; r < k->n_reds; r++) {
        steps |= k->reds[r].order == TCI_ORDER_STEPS;
        on_unit |= k->reds[r].order == TCI_ORDER_MATRIX;
    }
    return steps && !on_unit;
}
/* ---- src/loop/wgmma_gemm.c ---- */
/* loop/wgmma_gemm.c - schedules GEMM on tensor cores (WGMMA), and implicit GEMM: tiles, pipeline
 * stages, clusters, cost.
 *
 * In: a kernel of class MATRIX or TF32, the machine. Out: a kernel template (loop/wgmma_gemm.h)
 * whose epilogue slot is the kernel's elementwise epilogue as loop IR: the accumulators are a value
 * kept in shared memory, so the epilogue is built like any other stage.
 *
 * The tile is the fastest under a time model: for each step of k the slower of multiplying and
 * loading, or the epilogue if that takes longer, times the number of waves over the SMs; plus the
 * epilogue of the last tile. */

#include <string.h>


enum {
    TCI_MATRIX_BARRIERS = 256, /* bytes for them */
    TCI_MATRIX_ALIGNED = 1024, /* the start of a stage's boxes */
    TCI_MATRIX_LEAST_STAGES = 3,
    TCI_MATRIX_COLUMN_STEP = 16, /* columns that a warp leaves at once */
    TCI_MATRIX_SUMS = 256,       /* columns of all its rows that a thread holds, */
    TCI_MATRIX_SUMS_MOST = 320,  /* and with registers of the others, at most */
    TCI_MATRIX_ENTRY = 160,      /* of them, where threads have 128 registers at first */
    TCI_MATRIX_HELD = 4,         /* least elements of a row that a thread of the epilogue holds */
    TCI_MATRIX_FILL = 2000,      /* cycles to a tile's first product, and to store accumulators */
    TCI_MATRIX_TURN = 4000,      /* of the epilogue's warps between two tiles */
    TCI_MATRIX_LATENCY = 2200,   /* cycles of a load while all units load, */
    TCI_MATRIX_FAR = 3300,       /* of boxes of images, */
    TCI_MATRIX_BOTH = 3000,      /* and of what blocks share, which wait for each other */
    TCI_MATRIX_ISSUE = 4,        /* warps whose instructions are all that can be begun, about */
    TCI_MATRIX_LIGHT = 24        /* cost of a chain from which four rows are taken at once */
};

/* Slowdown of loading rows that span two cache lines each. */
#define TCI_MATRIX_APART 1.6

/* ---- the tile ---- */

/* Of B in a stage: where k is not contiguous, whole boxes of 64. */
static int64_t tci_matrix_held_columns(const tci_matrix *x)
{
    int64_t whole = x->side[1].along_k ? 1 : TCI_MATRIX_SUB;
    return tci_ceil_div(x->columns, whole) * whole;
}

TCI_FN int64_t tci_matrix_stage_bytes(const tci_matrix *x)
{
    return (x->rows + tci_matrix_held_columns(x)) * TCI_MATRIX_LINE;
}

TCI_FN int64_t tci_matrix_steps(const tci_matrix *x)
{
    return x->is_boxes ? x->k_steps : tci_ceil_div(x->k, tci_matrix_depth(x));
}

TCI_FN int64_t tci_matrix_staged_bytes(const tci_matrix *x)
{
    int64_t rows = (int64_t)TCI_MATRIX_SUB * x->sub_rows * x->buffers;
    return rows * x->staged_pitch * tci_dtype_get((tc_dtype)x->staged)->bytes;
}

TCI_FN int64_t tci_matrix_shared_bytes(const tci_matrix *x)
{
    return TCI_MATRIX_ALIGNED + x->stages * tci_matrix_stage_bytes(x) + tci_matrix_staged_bytes(x) +
           TCI_MATRIX_BARRIERS;
}

static void tci_matrix_set_buffers(tci_matrix *x, int buffers, const tc_machine *facts)
{
    x->buffers = buffers;
    x->stages = 0;
    int64_t room = facts->shared_most - tci_matrix_shared_bytes(x);
    x->stages = (int32_t)TCI_MIN(room / tci_matrix_stage_bytes(x), TCI_MATRIX_STAGES);
}

/* Bytes of a stage that a block asks for itself. */
static double tci_matrix_asked_bytes(const tci_matrix *x)
{
    double rows = (double)x->rows / tci_matrix_sharing(x, 0);
    return (rows + (double)tci_matrix_held_columns(x) / tci_matrix_sharing(x, 1)) * TCI_MATRIX_LINE;
}

/* The fraction of the unit's rate that a tile reaches: fewer columns read more of A for each
 * product, and four warps alone wait for their own. */
static double tci_matrix_part_of_rate(const tci_matrix *x)
{
    double columns = x->columns < 64    ? 0.36
                     : x->columns < 128 ? 0.55
                     : x->columns < 256 ? 0.7
                                        : 0.8;
    return columns * (x->consumers == 1 ? 0.85 : 1.0);
}

/* True if each row of a side's boxes is within one cache line. */
static bool tci_matrix_is_in_lines(const tci_matrix *x, const tci_matrix_side *side)
{
    const int line = tci_matrix_depth(x);
    bool in = side->offset % line == 0 && side->pitch % line == 0;
    for (int i = 1; i < side->n_dims; i++) {
        in = in && side->dims[i].stride % line == 0;
    }
    return in;
}

static bool tci_matrix_are_in_lines(const tci_matrix *x)
{
    return tci_matrix_is_in_lines(x, &x->side[0]) && tci_matrix_is_in_lines(x, &x->side[1]);
}

/* Cycles of one step of k: to multiply (f32 takes twice as long as 16-bit operands and bytes half
 * as long, and half or twice as many elements are a step), to load as fast as memory serves all
 * SMs, and to wait for a load that is issued when its stage is free, all stages but one ahead. */
static double tci_matrix_step_cycles(const tci_matrix *x, const tci_machine *machine)
{
    double rate = machine->facts.matrix_flops * tci_matrix_part_of_rate(x);
    double active = (double)TCI_MIN(x->tiles, (int64_t)machine->matrix_units);
    double bandwidth = TCI_MIN(machine->facts.near_bytes, machine->facts.all_bytes / active);
    double multiply = (double)x->rows * x->columns * TCI_MATRIX_LINE / rate;
    double apart = tci_matrix_are_in_lines(x) ? 1 : TCI_MATRIX_APART;
    double load = tci_matrix_asked_bytes(x) / bandwidth * apart;
    double latency = x->is_boxes ? TCI_MATRIX_FAR
                     : x->shares ? TCI_MATRIX_BOTH
                                 : TCI_MATRIX_LATENCY;
    return TCI_MAX(TCI_MAX(multiply, load), latency / (x->stages - 1));
}

/* Of the chain for a tile; a unit's SM has issued all it can for some warps. Lanes that are
 * no columns are masked. */
static double tci_matrix_hole_cycles(const tci_matrix *x, int64_t chain, int warps)
{
    double cells = (double)x->rows * x->chunks * x->lanes;
    double masked = x->own_columns % x->lanes != 0 ? 1.5 : 1;
    return TCI_MATRIX_TURN + masked * cells * (2 * (double)chain + 8) /
                                 (TCI_MIN(warps, TCI_MATRIX_ISSUE) * TCI_MATRIX_WARP);
}

/* The columns of a tile, `most` at most, and how many the epilogue takes at once: all, as the lanes
 * of this many threads, or the largest power of two that divides them, and all existing ones if one
 * tile has them. Columns that are positions of an image are whole rows of it, evenly spread over
 * the tiles. False: not even one. */
static bool tci_matrix_set_columns(tci_matrix *x, int most)
{
    x->columns = x->own_columns = most;
    if (x->y_axis >= 0) {
        int64_t rows = x->n / x->image_row, fit = TCI_MIN(most / x->image_row, rows);
        if (fit == 0) {
            return false;
        }
        fit = tci_ceil_div(rows, tci_ceil_div(rows, fit));
        x->own_columns = (int32_t)(fit * x->image_row);
        x->columns = (int32_t)(tci_ceil_div(x->own_columns, TCI_MATRIX_COLUMN_STEP) *
                               TCI_MATRIX_COLUMN_STEP);
    }
    if (x->y_axis < 0) {
        int64_t both = x->columns | (x->n < x->columns ? x->n : 0);
        x->lanes = (int32_t)(both & -both);
        x->lanes = x->lanes < TCI_MATRIX_HELD ? x->columns & -x->columns : x->lanes;
        x->chunks = x->columns / x->lanes;
        return true;
    }
    x->chunks = 1;
    x->lanes = TCI_MATRIX_WARP;
    while (x->lanes < x->columns) {
        x->lanes *= 2;
    }
    return true;
}

/* True if these numbers are a tile of the kernel template. A thread of a consumer has a sum for
 * every second column of each of its 64 rows. */
static bool tci_matrix_is_tile(const int64_t *tile)
{
    int64_t sums = tile[0] == 2 ? TCI_MATRIX_SUMS_MOST : TCI_MATRIX_SUMS;
    return tile[0] >= 1 && tile[0] <= 2 && tile[1] >= 1 && tile[1] <= 2 && tile[2] > 0 &&
           tile[2] <= TCI_MATRIX_SUMS && tile[2] * tile[1] <= sums &&
           tile[2] % TCI_MATRIX_COLUMN_STEP == 0 && tile[3] >= 0 && tile[3] <= 2;
}

TCI_FN bool tci_matrix_is_wide(const tci_matrix *x)
{
    return x->consumers == 2 && x->sub_rows * x->columns > TCI_MATRIX_SUMS;
}

/* Sixteen warps have 128 registers each when they begin, which one product must not exceed. */
static int tci_matrix_last_warps(const tci_matrix *x)
{
    bool more = x->consumers == 2 && x->columns <= TCI_MATRIX_ENTRY && !tci_matrix_is_wide(x);
    return more ? TCI_MATRIX_MORE_WARPS : TCI_MATRIX_LAST_WARPS;
}

/* Tiles along the side that is not `which`: whole pairs where blocks share that. */
static int64_t tci_matrix_tiles(const tci_matrix *x, int which, int64_t tiles)
{
    int blocks = tci_matrix_sharing(x, which);
    return tci_ceil_div(tiles, blocks) * blocks;
}

/* Sets what follows from the tile's shape; false where it does not fit. A buffer for each consumer,
 * where that leaves stages enough. */
static bool tci_matrix_shape(tci_matrix *x, const int64_t *tile, const tci_machine *machine)
{
    const tc_machine *facts = &machine->facts;
    x->consumers = (int32_t)tile[0];
    x->sub_rows = (int32_t)tile[1];
    x->rows = TCI_MATRIX_SUB * x->consumers * x->sub_rows;
    if (!tci_matrix_set_columns(x, (int)tile[2])) {
        return false;
    }
    x->last_warps = tci_matrix_last_warps(x);
    x->row_threads = TCI_MIN(x->lanes / TCI_MATRIX_HELD, TCI_MATRIX_WARP);
    x->staged_pitch = TCI_MAX(x->columns, x->lanes) + 8; /* rows begin in different banks */
    x->shares = (int32_t)tile[3];
    x->tiles_m = tci_matrix_tiles(x, 1, tci_ceil_div(x->m, x->rows));
    x->tiles_n = tci_matrix_tiles(x, 0, tci_ceil_div(x->n, x->own_columns));
    x->tiles = x->tiles_m * x->tiles_n;
    for (int i = 0; i < x->n_batch; i++) {
        x->tiles *= x->batch[i];
    }
    tci_matrix_set_buffers(x, x->consumers, facts);
    if (x->stages < TCI_MATRIX_LEAST_STAGES) {
        tci_matrix_set_buffers(x, 1, facts);
    }
    bool pairs = x->shares == 0 || (!x->is_boxes && machine->matrix_units > 1);
    return pairs && x->stages >= TCI_MATRIX_LEAST_STAGES && x->tiles <= INT32_MAX / 2;
}

/* Cycles of the whole product, `chain` flops for each element of the result. */
static double tci_matrix_cycles(const tci_matrix *x, int64_t chain, const tci_machine *machine)
{
    double steps = (double)tci_matrix_steps(x);
    double step = tci_matrix_step_cycles(x, machine), tile = TCI_MATRIX_FILL + steps * step;
    double hole = tci_matrix_hole_cycles(x, chain, x->last_warps);
    if (x->buffers < x->consumers) { /* they wait for each other's, if not a ring of steps apart */
        tile += TCI_MAX(hole / x->consumers - x->stages * step, 0);
    }
    double last = tci_matrix_hole_cycles(x, chain, x->last_warps + 4 * x->consumers);
    double rounds = (double)tci_ceil_div(x->tiles, machine->matrix_units);
    return rounds * tile + (rounds - 1) * TCI_MAX(hole - tile, 0) + last;
}

/* Of the stages from `first` on, for an element of the result. */
static int64_t tci_matrix_chain_cost(const tci_kernel *k, int first)
{
    int64_t cost = 0;
    for (int t = first; t < k->n_stages; t++) {
        cost += tci_stage_cost(k, t);
    }
    return cost;
}

TCI_FN void tci_matrix_set_groups(const tci_kernel *k, int first, tci_matrix *x)
{
    x->group_rows = tci_matrix_chain_cost(k, first) <= TCI_MATRIX_LIGHT ? 4 : 2;
    while (x->m % x->group_rows != 0) {
        x->group_rows /= 2;
    }
}

/* The product with that tile; false: it does not fit, or the template does not support it. */
static bool tci_matrix_with(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                            tci_matrix *x)
{
    bool fits = tci_matrix_is_tile(tile) && tci_matrix_find(k, x) &&
                tci_matrix_shape(x, tile, machine);
    if (fits) {
        tci_matrix_set_groups(k, 1, x);
    }
    return fits;
}

/* Puts a tile where its cost belongs; returns how many there are, `most` at most. */
static int tci_matrix_insert(int64_t tiles[][TCI_FORM_NUMBERS], double *costs, int n, int most,
                             const int64_t *tile, double cost)
{
    int at = n;
    while (at > 0 && cost < costs[at - 1]) {
        at--;
    }
    if (at == most) {
        return n;
    }
    n = TCI_MIN(n + 1, most);
    memmove(&tiles[at + 1], &tiles[at], sizeof(*tiles) * (size_t)(n - at - 1));
    memmove(&costs[at + 1], &costs[at], sizeof(*costs) * (size_t)(n - at - 1));
    memcpy(tiles[at], tile, sizeof(*tiles));
    costs[at] = cost;
    return n;
}

/* The candidates with that many columns in addition to `n` of them; returns how many. shares:
 * blocks share the larger side; with less than two waves of tiles too much time passes while they
 * start. */
static int tci_matrix_weigh(const tci_matrix *found, int64_t chain, const tci_machine *machine,
                            int64_t columns, bool shares, int64_t tiles[][TCI_FORM_NUMBERS],
                            double *costs, int n)
{
    for (int64_t consumers = 2; consumers >= 1; consumers--) {
        for (int64_t sub_rows = 1; sub_rows <= 2; sub_rows++) {
            int64_t larger = TCI_MATRIX_SUB * consumers * sub_rows > columns ? 1 : 2;
            const int64_t tile[TCI_FORM_NUMBERS] = {consumers, sub_rows, columns,
                                                    shares ? larger : 0};
            tci_matrix x = *found;
            if (tci_matrix_is_tile(tile) && tci_matrix_shape(&x, tile, machine) &&
                (!shares || x.tiles > 2 * machine->matrix_units)) {
                n = tci_matrix_insert(tiles, costs, n, TCI_FORM_CANDIDATES, tile,
                                      tci_matrix_cycles(&x, chain, machine));
            }
        }
    }
    return n;
}

TCI_FN int tci_matrix_candidates(const tci_kernel *k, const tci_machine *machine,
                                 int64_t tiles[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    double costs[TCI_FORM_CANDIDATES];
    int64_t chain = tci_matrix_chain_cost(k, 1);
    tci_matrix x;
    int n = 0;
    if (!tci_matrix_find(k, &x)) {
        return 0;
    }
    bool lines = tci_matrix_are_in_lines(&x); /* whose loads are not what takes the time */
    for (int64_t columns = TCI_MATRIX_SUMS; columns > 0; columns -= TCI_MATRIX_WARP) {
        n = tci_matrix_weigh(&x, chain, machine, columns, false, tiles, costs, n);
        n = lines ? n : tci_matrix_weigh(&x, chain, machine, columns, true, tiles, costs, n);
    }
    int64_t all = tci_ceil_div(x.n, TCI_MATRIX_COLUMN_STEP) * TCI_MATRIX_COLUMN_STEP;
    if (all % TCI_MATRIX_WARP != 0 && x.y_axis < 0) {
        n = tci_matrix_weigh(&x, chain, machine, all, false, tiles, costs, n);
    }
    return n;
}

TCI_FN double tci_matrix_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile)
{
    tci_matrix x;
    if (!tci_matrix_with(k, machine, tile, &x)) {
        return -1;
    }
    return tci_matrix_cycles(&x, tci_matrix_chain_cost(k, 1), machine) / machine->facts.ghz;
}

/* ---- the epilogue slot ---- */

TCI_FN tci_lin tci_matrix_given(tci_build *b, int axis)
{
    const tci_matrix *x = b->l->matrix;
    tci_lin at = tci_build_let(b, tci_lx_make(b->l, TCI_LX_GIVEN, -1, -1, axis));
    b->l->indices[at.var[0]].multiple = axis == x->n_axis   ? x->own_columns / x->chunks
                                        : axis == x->m_axis ? x->group_rows
                                                            : 1;
    return at;
}

/* The accumulators of the rows at hand, where the main loop has left them. */
static void tci_matrix_keep(tci_build *b, const tci_matrix *x, int stage)
{
    int local = tci_build_local(b, (tc_dtype)x->staged, x->group_rows * x->staged_pitch, 0);
    b->l->locals[local].is_given = true;
    tci_lkeep *keep = tci_build_keep(b, x->value, local, stage);
    keep->is_padded = true;
    keep->coef[x->m_axis] = x->staged_pitch;
    keep->coef[x->n_axis] = 1;
    keep->origin[x->m_axis] = tci_matrix_given(b, x->m_axis);
    keep->origin[x->n_axis] = tci_matrix_given(b, x->n_axis);
}

/* True if a store writes columns of this product. Among several products each has its own axis. */
static bool tci_matrix_stores(const tci_kernel *k, const tci_matrix *x, int store)
{
    const tci_kstage *st = &k->stages[k->stores[store].stage];
    return x->n_axis < k->n_outer || (st->n_axes == 1 && st->axes[0] == x->n_axis);
}

/* The chain for all rows at hand: every value first, then the stores, as an output may be one of
 * the inputs. */
static void tci_matrix_rows(tci_build *b, const tci_matrix *x, const tci_bind *columns)
{
    const tci_kernel *k = b->k;
    int *values = TCI_NEW_ARRAY(b->s, int, x->group_rows * k->n_stores + 1);
    const tci_bind **rows = TCI_NEW_ARRAY(b->s, const tci_bind *, x->group_rows);
    tci_lin at = tci_matrix_given(b, x->m_axis);
    tci_build_set(b, x->n_axis, columns);
    for (int r = 0; r < x->group_rows; r++) {
        rows[r] = tci_build_bind(b, tci_lin_plus(at, r), r, x->m - x->group_rows + r, false, -1);
        tci_build_set(b, x->m_axis, rows[r]);
        for (int i = 0; i < k->n_stores; i++) {
            bool stores = tci_matrix_stores(k, x, i);
            values[r * k->n_stores + i] = stores ? tci_build_value(b, k->stores[i].value) : -1;
        }
    }
    for (int r = 0; r < x->group_rows; r++) {
        tci_build_set(b, x->m_axis, rows[r]);
        for (int i = 0; i < k->n_stores; i++) {
            if (tci_matrix_stores(k, x, i)) {
                tci_build_store(b, &k->stores[i], values[r * k->n_stores + i], false);
            }
        }
    }
}

/* The part for chunks whose first column is in [lo, hi]; n: columns that exist, -1 all. */
static void tci_matrix_part(tci_build *b, const tci_matrix *x, int64_t lo, int64_t hi, int n)
{
    tci_lopen open;
    tci_lin at = tci_matrix_given(b, x->n_axis);
    tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, at), lo, hi), &open);
    int64_t last = n < 0 ? hi + x->own_columns / x->chunks - 1 : x->n - 1;
    tci_matrix_rows(b, x, tci_build_bind(b, at, lo, last, true, n));
    tci_build_close(b, &open);
}

TCI_FN void tci_matrix_hole(tci_build *b, const tci_matrix *x, int stage)
{
    tci_matrix_keep(b, x, stage);
    for (int i = 0; i < x->n_batch; i++) {
        tci_lin at = tci_matrix_given(b, x->batch_axis[i]);
        tci_build_set(b, x->batch_axis[i], tci_build_bind(b, at, 0, x->batch[i] - 1, false, -1));
    }
    for (int i = 1; i < x->n_places; i++) { /* the fastest axis of the rows counts for all */
        tci_build_set(b, x->place_axis[i], tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    }
    if (x->y_axis >= 0) { /* the other axis of the columns counts for both */
        tci_build_set(b, x->y_axis, tci_build_bind(b, tci_lin_const(0), 0, 0, false, -1));
    }
    b->stage = stage + 1;
    int64_t own = x->own_columns / x->chunks;
    int all = own < x->lanes ? tci_lx_const(b->l, own) : -1;
    if (x->n % own == 0) {
        tci_lin at = tci_matrix_given(b, x->n_axis);
        tci_matrix_rows(b, x, tci_build_bind(b, at, 0, x->n - 1, true, all));
        return;
    }
    int64_t cut = x->n / own * own; /* the first column of the last chunk */
    if (cut > 0) {
        tci_matrix_part(b, x, 0, cut - own, all);
    }
    tci_matrix_part(b, x, cut, cut, tci_lx_const(b->l, x->n - cut));
}

/* ---- the whole ---- */

TCI_FN void tci_matrix_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                            tci_launch *launch)
{
    tci_matrix *x = TCI_NEW(b->s, tci_matrix);
    bool fits = tci_matrix_with(b->k, machine, tile, x);
    TCI_ASSERT(b->s, fits);
    b->l->lanes = x->lanes;
    b->l->threads = x->row_threads;
    b->l->matrix = x;
    tci_matrix_hole(b, x, 0);
    int units = machine->matrix_units;
    launch->n_tasks = TCI_MIN(x->tiles, x->shares ? units - units % 2 : units);
    launch->task_ns = tci_matrix_ns(b->k, machine, tile);
}
/* ---- src/loop/flash_attention.c ---- */
/* loop/flash_attention.c - schedules fused attention and its gradients on GPUs, on tensor cores or
 * on SIMT threads: tiles, pipeline stages, cost, slots.
 *
 * In: a kernel that kernel/match_attention.c matches, of class STEPS, with MATRIX on tensor cores;
 * the machine. Out: a kernel template (loop/flash_attention.h) with its slots as loop IR. All
 * chains take the same way; the numbers in which online chains and gradients differ are a row each
 * of tci_attention_pipelines. */
/* ---- src/loop/flash_attention.h ---- */
/* loop/flash_attention.h - declares the schedules of fused attention and its gradients on GPUs
 * (kernel/match_attention.h): on tensor cores (WGMMA) or on SIMT threads.
 *
 * A block takes tiles of rows, one after the other, and streams the other side in steps.
 *
 * On tensor cores a tile has 64 rows for each of its `consumers` groups of four warps. One thread
 * of four more warps loads the rows of a tile and then, step by step, the operands of the steps
 * into rings. A consumer multiplies them into registers and computes the weights, or the gradients
 * of scores, from these; rounded, they are directly the first operand of the last products.
 *   Online: each score is exponentiated relative to the row's maximum so far, the sums of a step
 * are made while the exponentials of the next one are, and they are divided after the last step.
 *   Otherwise values of a query alone are evaluated once: of rows by the consumers, of steps by
 * another of the four warps, which stores them next to the step.
 *   After the last step the sums are left in shared memory, one product after the other, as in
 * loop/wgmma_gemm.h, where the same warps run the rest of the kernel on their rows; the consumers
 * of a gradient take turns if there is no memory for the sums of all.
 *
 * On threads, for f32 and for half precision without tensor cores, a block of TCI_FLASH_THREADS
 * threads has all of the above in shared memory as f32. Half a warp has every eighth row, each of
 * its lanes every 16th element of the step; sums are one chain. Scores pass between lanes through
 * shared memory of their own.
 *
 * Slots (tci_loop.scores), in this order: unless online, the values of a query, and, if keys are
 * cut off, their score; the score of any key; if keys are cut off, the score of a key that the
 * query sees; with two first products, the gradient of a score; with two last products, the rows of
 * the second. The rows of the first, and the stores of row statistics, are the epilogue slot. */
#ifndef TCI_LOOP_FLASH_ATTENTION_H
#define TCI_LOOP_FLASH_ATTENTION_H


enum {
    TCI_FLASH_THREADS = 128,
    TCI_FLASH_LANES = 16, /* that share a row, */
    TCI_FLASH_GROUPS = TCI_FLASH_THREADS / TCI_FLASH_LANES,
    TCI_FLASH_PAD = 4 /* and elements after each row in shared memory: banks differ */
};

/* Slot of a chain, as if all were there. */
enum {
    TCI_ATTENTION_SLOT_VALUES,
    TCI_ATTENTION_SLOT_OFF,
    TCI_ATTENTION_SLOT_SCORE,
    TCI_ATTENTION_SLOT_SEEN,
    TCI_ATTENTION_SLOT_CHANGE,
    TCI_ATTENTION_SLOT_ROWS,
    TCI_ATTENTION_N_SLOTS
};

/* Elements of a row in memory are loaded 64 at a time: the number of such slabs. */
static inline int tci_attention_slabs(int64_t size)
{
    return (int)((size + TCI_MATRIX_DEPTH_STEP - 1) / TCI_MATRIX_DEPTH_STEP);
}

/* Columns in memory of what the last product of an online chain takes; keys have d. */
static inline int64_t tci_attention_value_columns(const tci_attention *x)
{
    return x->only_rows ? TCI_MIN(x->in[1].k, x->in[0].k) : x->in[1].k;
}

/* True if consumers store their sums in turns. */
static inline bool tci_attention_leaves_in_turns(const tci_attention *x)
{
    return x->out[0].buffers < x->out[0].consumers;
}

/* True if the chain has that slot. */
TCI_FN bool tci_attention_has_slot(const tci_attention *x, int slot);
/* Bytes of shared memory on tensor cores: of a tile's rows, of operand i of a step, of a step's
 * values, and of the sums that are left. */
TCI_FN int64_t tci_attention_rows_bytes(const tci_attention *x);
TCI_FN int64_t tci_attention_step_bytes(const tci_attention *x, int i);
TCI_FN int64_t tci_attention_values_bytes(const tci_attention *x);
TCI_FN int64_t tci_attention_staged_bytes(const tci_attention *x);
/* On threads: floats between the rows of this many elements, and elements of a row of operand i. */
TCI_FN int tci_attention_pitch(int64_t size);
TCI_FN int64_t tci_attention_width(const tci_attention *x, int i);
/* Bytes of all shared memory, on either. */
TCI_FN int64_t tci_attention_shared_bytes(const tci_attention *x);
/* The tiles worth weighing: (consumers, rows of a step, whether consumers take turns) or, by
 * threads, (rows, rows of a step); how many. */
TCI_FN int tci_attention_tiles(const tci_kernel *k, bool by_threads,
                               int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS]);
/* The time of a kernel of attention with such a tile; -1: it does not fit. */
TCI_FN double tci_attention_ns(const tci_kernel *k, const tci_machine *machine, bool by_threads,
                               const int64_t *tile);
/* Its kernel template, for a tile that fits; of the launch, n_tasks and task_ns. */
TCI_FN void tci_attention_emit(tci_build *b, const tci_machine *machine, bool by_threads,
                               const int64_t *tile, tci_launch *launch);

#endif

/* ---- src/loop/flash_attention.c, continued ---- */
#include <string.h>


enum {
    TCI_ATTENTION_ALIGNED = 1024, /* bytes: the start of a box */
    TCI_ATTENTION_SLOTS = 2,      /* of rows, if those of the next tile fit too */
    TCI_ATTENTION_RINGS = 2,      /* steps that are there at once, at least, */
    TCI_ATTENTION_MOST_RINGS = 4, /* and at most */
    TCI_ATTENTION_TURN = 1000,    /* cycles of waiting until the other consumer has left its sums */
    TCI_ATTENTION_PAIRS = 16,     /* weights, or changes, that a processor makes in a cycle */
    TCI_FLASH_HELD = 192,         /* registers of a thread for sums and pairs */
    TCI_FLASH_FILL = 4000,        /* cycles to a tile's first pairs, and to leave its sums */
    TCI_FLASH_MEET = 600,         /* cycles of a step for barriers and for what is loaded */
    TCI_FLASH_PRODUCTS = 128,     /* that a processor makes in a cycle */
    TCI_FLASH_LIGHT = 128,        /* registers for sums up to which everything else fits */
    TCI_FLASH_BLOCKS = 4,         /* that a processor has at once, at most */
    TCI_FLASH_OWN = 1024,         /* other bytes of shared memory of a block */
    TCI_FLASH_OTHERS = 64,        /* registers of a thread for all else */
    TCI_FLASH_WIDTH = 4           /* elements of a row that only first products read: a multiple */
};

/* Numbers of a chain on tensor cores. */
typedef struct tci_attention_pipeline {
    int32_t step;       /* rows of a step are a multiple of this */
    int32_t barriers;   /* bytes for them, and for words between warps */
    int32_t held;       /* registers of a thread for sums, scores and exponentials */
    int32_t fill, meet; /* cycles to a tile's first scores and to leave its sums; of a step, for
                         * barriers and to scale the sums */
    bool spare;         /* next rows are loaded early only if a third step fits too */
    bool leaves_apart;  /* consumers may leave their sums one after the other */
    int32_t n_tiles;
    int64_t tiles[TCI_FORM_CANDIDATES][3];
} tci_attention_pipeline;

/* Of gradients the fewer rows a step has, the more a product waits for its operands. */
static const tci_attention_pipeline tci_attention_pipelines[2] = {
    {16,
     256,
     200,
     4000,
     200,
     true,
     true,
     8,
     {{2, 128}, {2, 64}, {2, 48}, {2, 32}, {1, 128}, {1, 64}, {1, 48}, {1, 32}}},
    {64,
     512,
     176,
     3000,
     300,
     false,
     false,
     6, /* online */
     {{2, 128}, {2, 64}, {2, 128, 1}, {2, 64, 1}, {1, 128}, {1, 64}}}};

static const int64_t tci_flash_tiles[][2] = {{64, 64}, {64, 32}, {32, 64}, {32, 32}, {32, 16}};

static const tci_attention_pipeline *tci_attention_pipeline_of(const tci_attention *x)
{
    return &tci_attention_pipelines[x->is_online];
}

/* ---- shared memory ---- */

TCI_FN int64_t tci_attention_step_bytes(const tci_attention *x, int i)
{
    return (int64_t)x->in[0].columns * tci_attention_slabs(x->in[i].k) * TCI_MATRIX_DEPTH_STEP * 2;
}

TCI_FN int64_t tci_attention_rows_bytes(const tci_attention *x)
{
    int slabs = tci_attention_slabs(x->in[0].k);
    slabs += x->n_in > 1 ? tci_attention_slabs(x->in[1].k) : 0;
    return (int64_t)x->in[0].rows * slabs * TCI_MATRIX_DEPTH_STEP * 2;
}

TCI_FN int64_t tci_attention_values_bytes(const tci_attention *x)
{
    return x->by_step ? (int64_t)x->in[0].columns * x->n_values * 4 : 0;
}

/* By threads the sums reuse the memory of the operands. */
TCI_FN int64_t tci_attention_staged_bytes(const tci_attention *x)
{
    int64_t most = 0;
    for (int i = 0; i < x->n_out; i++) {
        const tci_matrix *o = &x->out[i];
        int64_t bytes = x->threads ? (int64_t)o->rows * o->staged_pitch * 4
                                   : tci_matrix_staged_bytes(o);
        most = TCI_MAX(most, bytes);
    }
    return most;
}

/* Of a step in the ring. */
static int64_t tci_attention_ring_bytes(const tci_attention *x)
{
    return tci_attention_step_bytes(x, 0) + tci_attention_step_bytes(x, 1) +
           tci_attention_values_bytes(x);
}

TCI_FN int tci_attention_pitch(int64_t size)
{
    return (int)((size + 3) / 4 * 4) + TCI_FLASH_PAD;
}

TCI_FN int64_t tci_attention_width(const tci_attention *x, int i)
{
    int64_t k = x->in[i].k;
    return x->is_online && i == 0 ? (k + TCI_FLASH_WIDTH - 1) / TCI_FLASH_WIDTH * TCI_FLASH_WIDTH
                                  : tci_attention_columns_of(k);
}

static int64_t tci_attention_threads_bytes(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int64_t floats = (int64_t)s->rows * tci_attention_pitch(s->columns);
    for (int i = 0; i < 2; i++) {
        int64_t rows = s->columns + (i < x->n_in ? s->rows : 0);
        floats += rows * tci_attention_pitch(tci_attention_width(x, i));
    }
    int64_t words = x->is_online ? TCI_FLASH_GROUPS : 0; /* between half warps */
    return TCI_MAX(4 * floats, tci_attention_staged_bytes(x)) + 4 * words;
}

TCI_FN int64_t tci_attention_shared_bytes(const tci_attention *x)
{
    return x->threads ? tci_attention_threads_bytes(x)
                      : TCI_ATTENTION_ALIGNED + x->slots * tci_attention_rows_bytes(x) +
                            x->rings * tci_attention_ring_bytes(x) + tci_attention_staged_bytes(x) +
                            tci_attention_pipeline_of(x)->barriers;
}

/* ---- the tile ---- */

TCI_FN int tci_attention_tiles(const tci_kernel *k, bool by_threads,
                               int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    tci_attention x;
    if (!tci_attention_find(k, &x)) {
        return 0;
    }
    const tci_attention_pipeline *p = tci_attention_pipeline_of(&x);
    int count = by_threads ? TCI_COUNT(tci_flash_tiles) : p->n_tiles;
    for (int i = 0; i < count; i++) {
        const int64_t *tile = by_threads ? tci_flash_tiles[i] : p->tiles[i];
        memcpy(n[i], tile, sizeof(*tile) * (by_threads ? 2 : 3));
    }
    return count;
}

/* True if the template supports these numbers, which may come from a file. */
static bool tci_attention_is_tile(const tci_attention *x, bool by_threads, const int64_t *tile)
{
    int step = tci_attention_pipeline_of(x)->step;
    if (by_threads) {
        return (tile[0] == 32 || tile[0] == 64) &&
               (tile[1] == 16 || tile[1] == 32 || tile[1] == 64);
    }
    return x->on_unit && (tile[0] == 1 || tile[0] == 2) && tile[1] >= step && tile[1] <= 128 &&
           tile[1] % step == 0 && (tile[2] == 0 || (tile[2] == 1 && tile[0] == 2 && x->is_online));
}

static void tci_attention_shape(tci_matrix *x, bool by_threads, const int64_t *tile)
{
    if (!by_threads) {
        x->consumers = x->buffers = (int32_t)tile[0];
        x->sub_rows = 1;
    }
    x->rows = (int32_t)tile[0] * (by_threads ? 1 : TCI_MATRIX_SUB);
    x->columns = (int32_t)tile[1];
    x->tiles_m = tci_dim_known(tci_dim_ceil_div(x->m, x->rows));
    x->tiles_n = 1;
    x->tiles = x->tiles_m;
    for (int i = 0; i < x->n_batch; i++) {
        x->tiles *= x->batch[i];
    }
}

/* By threads sums are left as f32, whatever rounds them. */
static void tci_attention_leave(const tci_kernel *k, tci_matrix *x)
{
    const tci_kinst *in = &k->insts[x->value];
    x->value = in->op == TCI_K_RED ? x->value : in->args[0];
    x->staged = TC_F32;
}

/* The last stage that reduces. */
static int tci_attention_last_stage(const tci_kernel *k)
{
    int stage = 0;
    for (int r = 0; r < k->n_reds; r++) {
        stage = TCI_MAX(stage, k->reds[r].stage);
    }
    return stage;
}

/* The columns of results; a row of each is spread over as many threads. */
static void tci_attention_columns(const tci_kernel *k, tci_attention *x)
{
    int lanes = TCI_MATRIX_WARP;
    for (int i = 0; i < x->n_out; i++) {
        tci_matrix *o = &x->out[i];
        o->columns = (int32_t)tci_attention_columns_of(o->n);
        o->own_columns = (int32_t)o->n;
        o->chunks = 1;
        while (lanes < o->columns) {
            lanes *= 2;
        }
    }
    for (int i = 0; i < x->n_out; i++) {
        tci_matrix *o = &x->out[i];
        o->lanes = lanes;
        o->row_threads = TCI_MIN(lanes / 4, TCI_MATRIX_WARP);
        o->staged_pitch = lanes + 8; /* rows begin in different banks */
        /* the epilogues of gradients are casts and factors: as many rows as there can be */
        tci_matrix_set_groups(k, x->is_online ? tci_attention_last_stage(k) + 1 : k->n_stages, o);
    }
}

static int tci_attention_sum_columns(const tci_attention *x)
{
    int columns = 0;
    for (int i = 0; i < x->n_out; i++) {
        columns += x->out[i].columns;
    }
    return columns;
}

/* Registers of a thread. */
static int64_t tci_attention_held(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int sums = tci_attention_sum_columns(x);
    return x->threads ? (int64_t)s->rows / TCI_FLASH_GROUPS * (x->n_in * s->columns + sums) /
                            TCI_FLASH_LANES
                      : s->columns / 2 * x->n_in + s->columns / 4 * x->n_out + sums / 2;
}

/* Bytes of shared memory that are left, where this many consumers leave their sums at once. */
static int64_t tci_attention_room(const tci_machine *machine, tci_attention *x, int buffers)
{
    for (int i = 0; i < x->n_out; i++) {
        x->out[i].buffers = buffers;
    }
    return machine->facts.shared_most - tci_attention_shared_bytes(x);
}

/* Sets the pipeline stages on tensor cores; false: the tile does not fit. */
static bool tci_attention_pipes(const tci_machine *machine, bool turns, tci_attention *x)
{
    const tci_attention_pipeline *p = tci_attention_pipeline_of(x);
    x->rings = TCI_ATTENTION_RINGS;
    x->slots = 1;
    x->turns = turns;
    int64_t step = tci_attention_ring_bytes(x), rows = tci_attention_rows_bytes(x);
    int64_t room = tci_attention_room(machine, x, x->in[0].consumers);
    room = room < 0 && p->leaves_apart ? tci_attention_room(machine, x, 1) : room;
    if (room < 0 || tci_attention_held(x) > p->held) {
        return false;
    }
    if (room >= rows + (p->spare ? step : 0)) {
        room -= rows;
        x->slots = TCI_ATTENTION_SLOTS;
    }
    x->rings = (int32_t)TCI_MIN(x->rings + room / step, TCI_ATTENTION_MOST_RINGS);
    return true;
}

/* Sets the blocks by threads that a processor holds at once; false: the tile does not fit. */
static bool tci_attention_packs(const tci_machine *machine, tci_attention *x)
{
    int64_t bytes = tci_attention_shared_bytes(x), held = tci_attention_held(x);
    int64_t fit = machine->facts.shared_most / (bytes + TCI_FLASH_OWN);
    x->blocks = (int32_t)TCI_MIN(TCI_MAX(TCI_MIN(fit, 512 / (held + TCI_FLASH_OTHERS)), 1),
                                 TCI_FLASH_BLOCKS);
    return bytes <= machine->facts.shared_most && held <= TCI_FLASH_HELD;
}

/* The kernel with that tile; false: it does not fit. */
static bool tci_attention_with(const tci_kernel *k, const tci_machine *machine, bool by_threads,
                               const int64_t *tile, tci_attention *x)
{
    if (!tci_attention_find(k, x) || !tci_attention_is_tile(x, by_threads, tile)) {
        return false;
    }
    x->threads = by_threads ? TCI_FLASH_THREADS : 0;
    for (int i = 0; i < 2; i++) {
        tci_attention_shape(&x->in[i], by_threads, tile);
        tci_attention_shape(&x->out[i], by_threads, tile);
    }
    for (int i = 0; i < x->n_out && by_threads; i++) {
        tci_attention_leave(k, &x->out[i]);
    }
    tci_attention_columns(k, x);
    return by_threads ? tci_attention_packs(machine, x)
                      : tci_attention_pipes(machine, tile[2] != 0, x);
}

/* ---- the cost ---- */

/* Of two consumers one multiplies while the other computes exponentials; turns keep them so, but
 * cost more than they give if all products are short. */
static double tci_attention_unit_cycles(const tci_attention *x, const tci_machine *machine)
{
    const tci_attention_pipeline *p = tci_attention_pipeline_of(x);
    const tci_matrix *s = &x->in[0];
    double cells = (double)s->rows * s->columns, depth = 0;
    for (int i = 0; i < 2; i++) {
        depth += i < x->n_in ? (double)x->in[i].k : 0;
        depth += i >= x->n_out ? 0 : x->is_online ? (double)x->out[i].n : x->out[i].columns;
    }
    double multiply = 2 * cells * depth / machine->facts.matrix_flops;
    double pairs = x->n_in * cells / TCI_ATTENTION_PAIRS;
    bool is_short = s->k + x->in[1].k <= 2 * TCI_MATRIX_DEPTH_STEP && !x->cut.is_cut;
    double bare = !x->turns ? 0.2 : is_short ? 0.22 : 0.15; /* of both */
    double both = s->consumers == 1 ? multiply + pairs
                                    : TCI_MAX(multiply, pairs) + bare * (multiply + pairs);
    double rounds = (double)tci_dim_known(tci_dim_ceil_div(s->tiles, machine->matrix_units));
    double fill = p->fill + (tci_attention_leaves_in_turns(x) ? TCI_ATTENTION_TURN : 0);
    return rounds * (fill + tci_attention_steps(x) * (p->meet + both));
}

/* Cost of a product by threads with its loads, relative to 1 without them: 16 bytes for each row,
 * which half a warp shares, and twice as long for each step. Many sums leave too few registers. */
static double tci_attention_product(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int64_t held = tci_attention_held(x);
    double rows = (double)s->rows / TCI_FLASH_GROUPS, steps = (double)s->columns / TCI_FLASH_LANES;
    double crowded = held > TCI_FLASH_LIGHT ? (double)(held - TCI_FLASH_LIGHT) / 256 : 0;
    return (1 + (rows + 2 * steps) / (rows * steps)) * (1 + crowded);
}

/* A processor has several blocks at once, and then what is left over. */
static double tci_attention_threads_cycles(const tci_attention *x, const tci_machine *machine)
{
    const tci_matrix *s = &x->in[0];
    int64_t depth = s->k + (x->n_in > 1 ? x->in[1].k : 0) + tci_attention_sum_columns(x);
    double cycles = (double)s->rows * s->columns * (double)depth / TCI_FLASH_PRODUCTS *
                    tci_attention_product(x); /* of a step, if nothing waits */
    int64_t each = tci_dim_known(tci_dim_ceil_div(s->tiles, machine->facts.processors));
    int64_t at_once[2] = {x->blocks, each % x->blocks};
    int64_t times[2] = {each / x->blocks, each % x->blocks > 0};
    double all = 0;
    for (int i = 0; i < 2; i++) {
        double busy = 0.65 + 0.05 * (double)at_once[i]; /* of a processor with this many */
        double n = (double)at_once[i];
        all += (double)times[i] *
               (TCI_FLASH_FILL + tci_attention_steps(x) * (TCI_FLASH_MEET + n * cycles / busy));
    }
    return all;
}

TCI_FN double tci_attention_ns(const tci_kernel *k, const tci_machine *machine, bool by_threads,
                               const int64_t *tile)
{
    tci_attention x;
    if (!tci_attention_with(k, machine, by_threads, tile, &x)) {
        return -1;
    }
    return (by_threads ? tci_attention_threads_cycles(&x, machine)
                       : tci_attention_unit_cycles(&x, machine)) /
           machine->facts.ghz;
}

/* ---- the slots of a point ---- */

/* Values `makes` of a point, made of the ones that are `given`, as a block of its own, which knows
 * the axes that it asks for. */
static tci_loop *tci_attention_hole(tci_build *of, const tci_matrix *x, uint64_t axes,
                                    const int32_t *given, int n_given, const int32_t *makes,
                                    int n_makes)
{
    const tci_kernel *k = of->k;
    tci_loop *l = tci_loop_make(of->s, k);
    tci_build *b = tci_build_make(of->s, k, l);
    l->matrix = x;
    int local = tci_build_local(b, TC_F32, TCI_MAX(n_given, n_makes), 0);
    l->locals[local].is_given = true;
    for (int i = 0; i < n_given; i++) {
        tci_build_keep(b, given[i], local, 0)->base = tci_lin_const(i);
    }
    for (int a = 0; a < k->n_axes; a++) {
        if (axes >> a & 1) {
            tci_lin at = tci_build_let(b, tci_lx_make(l, TCI_LX_GIVEN, -1, -1, a));
            tci_build_set(b, a,
                          tci_build_bind(b, at, 0, tci_dim_known(k->axes[a].size) - 1, false, -1));
        }
    }
    b->stage = k->n_stages;
    for (int i = 0; i < n_makes; i++) {
        tci_lstmt store = tci_loop_stmt(TCI_L_MEM);
        store.mem = TCI_MEM_STORE_ONE;
        store.base = ~local;
        store.x = tci_lx_const(l, i);
        store.args[0] = tci_build_value(b, makes[i]);
        tci_loop_append(l, 0, store);
    }
    l->narrow = tci_loop_is_narrow(of->s, l);
    return l;
}

/* The rows of the second of the last products, as a function of its own. */
static tci_loop *tci_attention_rows_hole(tci_build *of, const tci_matrix *x, int stage)
{
    tci_loop *l = tci_loop_make(of->s, of->k);
    tci_build *b = tci_build_make(of->s, of->k, l);
    l->lanes = x->lanes;
    l->threads = x->row_threads;
    l->matrix = x;
    tci_matrix_hole(b, x, stage);
    l->narrow = tci_loop_is_narrow(of->s, l);
    return l;
}

/* ---- the values of a row ---- */

/* Largest score and sum of the rows at hand, where the main loop has left them: after the columns
 * of the staged operands. */
static void tci_attention_keep_row(tci_build *b, const tci_matrix *x, int inst, int at, int stage)
{
    int floats = tci_dtype_get((tc_dtype)x->staged)->bytes == 4 ? 1 : 2; /* elements to a float */
    int local = tci_build_local(b, TC_F32, x->group_rows * x->staged_pitch / floats, 0);
    b->l->locals[local].is_given = true;
    tci_lkeep *keep = tci_build_keep(b, inst, local, stage);
    keep->base = tci_lin_const(x->lanes / floats + at);
    keep->coef[x->m_axis] = x->staged_pitch / floats;
    keep->origin[x->m_axis] = tci_matrix_given(b, x->m_axis);
}

static void tci_attention_tell_rows(tci_build *b, const tci_attention *a, int stage)
{
    const tci_matrix *x = &a->out[0];
    const tci_kernel *k = b->k;
    tci_attention_keep_row(b, x, a->values[0], 0, stage);
    tci_attention_keep_row(b, x, a->values[1], 1, stage);
    tci_lin at = tci_matrix_given(b, x->m_axis);
    for (int i = 0; i < x->n_batch; i++) {
        tci_build_set(b, x->batch_axis[i],
                      tci_build_bind(b, tci_matrix_given(b, x->batch_axis[i]), 0, x->batch[i] - 1,
                                     false, -1));
    }
    b->stage = stage + 1;
    for (int r = 0; r < x->group_rows; r++) {
        tci_build_set(b, x->m_axis,
                      tci_build_bind(b, tci_lin_plus(at, r), r, x->m - x->group_rows + r, false,
                                     -1));
        for (int i = 0; i < k->n_stores; i++) {
            if (k->stages[k->stores[i].stage].n_axes == 0) {
                tci_build_store(b, &k->stores[i], tci_build_value(b, k->stores[i].value), false);
            }
        }
    }
}

/* ---- the whole ---- */

TCI_FN bool tci_attention_has_slot(const tci_attention *x, int slot)
{
    switch (slot) {
    case TCI_ATTENTION_SLOT_VALUES: return !x->is_online;
    case TCI_ATTENTION_SLOT_OFF: return !x->is_online && x->cut.is_cut;
    case TCI_ATTENTION_SLOT_SEEN: return x->cut.is_cut;
    case TCI_ATTENTION_SLOT_CHANGE: return x->n_in > 1;
    case TCI_ATTENTION_SLOT_ROWS: return x->n_out > 1;
    default: return true;
    }
}

static tci_loop *tci_attention_slot(tci_build *b, const tci_attention *x, int slot, int stage)
{
    const tci_matrix *m = &x->in[0];
    uint64_t batch = 0, query = (uint64_t)1 << (x->by_step ? m->n_axis : m->m_axis);
    for (int i = 0; i < m->n_batch; i++) {
        batch |= (uint64_t)1 << m->batch_axis[i];
    }
    uint64_t all = batch | (uint64_t)1 << m->m_axis | (uint64_t)1 << m->n_axis;
    int32_t given[TCI_ATTENTION_VALUES] = {x->weight, x->products[1]};
    for (int i = 2; i < x->n_values; i++) {
        given[i] = x->values[i];
    }
    switch (slot) {
    case TCI_ATTENTION_SLOT_VALUES:
        return tci_attention_hole(b, m, batch | query, NULL, 0, x->values, x->n_values);
    case TCI_ATTENTION_SLOT_OFF: return tci_attention_hole(b, m, 0, NULL, 0, &x->cut.off, 1);
    case TCI_ATTENTION_SLOT_SCORE:
        return tci_attention_hole(b, m, all, x->products, 1, &x->score, 1);
    case TCI_ATTENTION_SLOT_SEEN:
        return tci_attention_hole(b, m, all, x->products, 1, &x->cut.seen, 1);
    case TCI_ATTENTION_SLOT_CHANGE:
        return tci_attention_hole(b, m, all, given, x->n_values, &x->change, 1);
    default: return tci_attention_rows_hole(b, &x->out[1], stage);
    }
}

TCI_FN void tci_attention_emit(tci_build *b, const tci_machine *machine, bool by_threads,
                               const int64_t *tile, tci_launch *launch)
{
    tci_attention *x = TCI_NEW(b->s, tci_attention);
    tci_loop *l = b->l;
    bool fits = tci_attention_with(b->k, machine, by_threads, tile, x);
    TCI_ASSERT(b->s, fits);
    int stage = tci_attention_last_stage(b->k);
    l->lanes = x->out[0].lanes;
    l->threads = x->out[0].row_threads;
    l->matrix = &x->out[0];
    l->attention = x;
    for (int slot = 0; slot < TCI_ATTENTION_N_SLOTS; slot++) {
        if (tci_attention_has_slot(x, slot)) {
            l->scores[l->n_scores++] = tci_attention_slot(b, x, slot, stage);
        }
    }
    if (x->tells) {
        tci_attention_tell_rows(b, x, stage);
    }
    if (!x->only_rows) {
        tci_matrix_hole(b, &x->out[0], stage);
    }
    const tci_matrix *s = &x->in[0];
    launch->n_tasks = by_threads ? s->tiles : TCI_MIN(s->tiles, machine->matrix_units);
    launch->task_ns = tci_attention_ns(b->k, machine, by_threads, tile);
}
/* ---- src/loop/simt_row_block.c ---- */
/* loop/simt_row_block.c - builds the GPU loops of row-wise kernels (softmax, norms): a block, a
 * warp or part of a warp computes one row and keeps it in registers.
 *
 * In: a kernel whose stages each run along one inner axis, short enough for a few vectors; the
 * outer axes are bound. Out: the stages, unrolled vector by vector.
 *
 * Design: stages along an axis use the same bindings of it, so a value that two of them need is
 * one value of the loop IR, computed once and kept in registers: memory is read once, all of it
 * before the first result is needed, and written once.
 *
 * The threads of a row are one vector of `vlanes` lanes and a reduction has one accumulator; with
 * fewer lanes it has one for each vector of the class, as far as the row has elements: an
 * accumulator without elements holds the identity. The lanes are combined as kernel/ir.h says:
 * neighbours within a thread first, then whole vectors, then lanes of different warps, through one
 * shared array that every warp reads whole, so that no broadcast is needed; then the lanes of a
 * warp. Fewer threads then need fewer shuffles, and fixed work per thread serves more elements.
 *
 * An EARLIER reduction (kernel/ir.h) has flag words in a persistent workspace of the step that is
 * never cleared: one per row, which contains the run number (epoch), and the totals of its parts
 * and groups, tagged with the next epoch in a run. Each block reads the row's flag, publishes its
 * total, and waits for the preceding totals, each thread reading a few; the block of the last part,
 * whose wait implies that all others have read the row's flag, stores the new epoch there. */
/* ---- src/loop/simt_row_block.h ---- */
/* loop/simt_row_block.h - declares the GPU schedule of row-wise kernels (softmax, norms): a block,
 * warp or part of a warp computes a row and keeps it in registers. */
#ifndef TCI_LOOP_SIMT_ROW_BLOCK_H
#define TCI_LOOP_SIMT_ROW_BLOCK_H


/* Number of vectors of the longest row, with l->lanes on l->threads and l->rows of them in a block;
 * 0: a stage has several inner axes, or a row is too long or cannot be kept in registers. */
TCI_FN int tci_row_vectors(const tci_kernel *k, const tci_loop *l);
/* All stages for one outer point. */
TCI_FN void tci_row_emit(tci_build *b);

#endif


/* ---- src/loop/simt_row_block.c, continued ---- */
enum { TCI_ROW_MOST_LOADED = 2 * TCI_CLASS_ROW_VECTORS }; /* also those that one stage needs */

/* Loads that change along `axis`; of them those that several stages need. */
static void tci_row_count_loads(const tci_kernel *k, int axis, int *loads, int *held)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    int *stages = TCI_NEW_ARRAY(k->s, int, k->n_insts + 1);
    *loads = *held = 0;
    for (int t = 0; t < k->n_stages; t++) {
        tci_cost_mark(k, t, false, live);
        for (int i = 0; i < k->n_insts; i++) {
            stages[i] += live[i];
            live[i] = false;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        bool walks = k->insts[i].op == TCI_K_LOAD && tci_build_depends(k->insts[i].axes, axis);
        *loads += walks;
        *held += walks && stages[i] > 1;
    }
}

/* Vectors of the rows along `axis`; 0: they do not fit into registers. */
static int tci_row_vectors_along(const tci_kernel *k, const tci_loop *l, int axis)
{
    if (k->axes[axis].size == 0 || !tci_dim_is_known(k->axes[axis].size)) {
        return 0;
    }
    int loads, held;
    int64_t n = tci_ceil_div(tci_kernel_known(k, axis), l->lanes);
    bool part = l->lanes != tci_kernel_lanes(k);
    bool near = n == 1 || l->lanes >= tci_kernel_near(k); /* no two vectors have neighbours */
    if (part && (!near || l->threads > TCI_WARP)) {
        return 0;
    }
    tci_row_count_loads(k, axis, &loads, &held);
    bool fits = n * held <= TCI_CLASS_ROW_VECTORS && n * TCI_MAX(loads, 1) <= TCI_ROW_MOST_LOADED;
    return fits ? (int)n : 0;
}

TCI_FN int tci_row_vectors(const tci_kernel *k, const tci_loop *l)
{
    int most = 0;
    if (k->vector != TCI_VEC_INNER || tci_kernel_keeps(k) || l->threads < 2) {
        return 0;
    }
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        int n = st->n_axes == 1 ? tci_row_vectors_along(k, l, st->axes[0]) : 0;
        if (n == 0 && (st->n_axes > 0 || st->kind != TCI_STAGE_MAP)) {
            return 0;
        }
        most = TCI_MAX(most, n);
    }
    return most;
}

/* Lanes with an element: the others keep what they have. */
static int tci_row_mask(tci_build *b, int n)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_FIRST_N;
    st.n = n;
    return tci_build_mem(b, st, TC_BOOL, b->l->lanes, -1);
}

static int tci_row_copy(tci_build *b, int part, int unused)
{
    (void)unused;
    return tci_build_copy(b, part);
}

/* The accumulator of every `apart`-th vector from number `first` on. */
static tci_stage_tuple tci_row_fold(tci_build *b, const tci_kred *red, int first, int apart, int n,
                                    const tci_bind **vecs)
{
    int axis = b->k->stages[red->stage].axes[0];
    tci_stage_tuple acc = tci_stage_accumulator(b, red, b->l->lanes);
    for (int i = first; i < n; i += apart) {
        tci_build_set(b, axis, vecs[i]);
        tci_stage_tuple v = tci_stage_combine(b, red, acc, tci_stage_operands(b, red));
        if (vecs[i]->n >= 0) {
            v = tci_stage_choose(b, tci_row_mask(b, vecs[i]->n), v, acc);
        }
        tci_stage_assign(b, acc, v);
    }
    return tci_stage_each(b, acc, tci_row_copy, 0);
}

/* ---- joining the lanes ---- */

/* Of `all` parts of the class, a power of two, the first n, which have elements: part i takes in
 * part i + h, for h = all / 2 ... 1. */
static tci_stage_tuple tci_row_join_parts(tci_build *b, const tci_kred *red, int all, int n,
                                          tci_stage_tuple *parts)
{
    for (int h = all / 2; h >= 1; h /= 2) {
        for (int i = 0; i < h && i + h < n; i++) {
            parts[i] = tci_stage_combine(b, red, parts[i], parts[i + h]);
        }
    }
    return parts[0];
}

/* The lanes of one vector, whose neighbours are joined. */
static tci_stage_tuple tci_row_join_vectors(tci_build *b, const tci_kred *red, int n,
                                            const tci_bind **vecs)
{
    int all = TCI_MAX(tci_kernel_lanes(b->k) / b->l->lanes, 1), held = TCI_MIN(all, n);
    tci_stage_tuple *parts = TCI_NEW_ARRAY(b->s, tci_stage_tuple, held);
    for (int i = 0; i < held; i++) {
        parts[i] = tci_stage_join_near(b, red, tci_row_fold(b, red, i, all, n, vecs));
    }
    return tci_row_join_parts(b, red, all, held, parts);
}

static int tci_row_lane_op(tci_build *b, tci_mem mem, int value, int imm)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)mem;
    st.args[0] = value;
    st.imm = imm;
    int lanes = mem == TCI_MEM_LANE_REPEAT ? 1 : b->l->lanes;
    return tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, lanes, b->cur);
}

/* Writes the vector where all warps see it. */
static int tci_row_share(tci_build *b, int value, int unused)
{
    (void)unused;
    tc_dtype t = (tc_dtype)b->l->values[value].dtype;
    int local = tci_build_local(b, t, b->l->lanes, b->cur);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_STORE;
    st.base = ~local;
    st.x = tci_lx_const(b->l, 0);
    st.args[0] = value;
    tci_build_mem(b, st, t, 1, b->cur);
    return local;
}

/* The lanes of warp `warp`, in every warp. */
static int tci_row_of_warp(tci_build *b, int local, int warp)
{
    int held = b->l->lanes / b->l->threads;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_LOAD_REPEAT;
    st.base = ~local;
    st.x = tci_lx_const(b->l, (int64_t)warp * TCI_WARP * held);
    return tci_build_mem(b, st, (tc_dtype)b->l->locals[local].dtype, b->l->lanes, b->cur);
}

/* `shared`: the arrays that hold the accumulator, where there are several warps. */
static tci_stage_tuple tci_row_join_warps(tci_build *b, const tci_kred *red, tci_stage_tuple shared)
{
    int n = b->l->threads / TCI_WARP;
    tci_stage_tuple *warps = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    for (int i = 0; i < n; i++) {
        warps[i] = tci_stage_each(b, shared, tci_row_of_warp, i);
    }
    return tci_row_join_parts(b, red, n, n, warps);
}

static int tci_row_join_lanes(tci_build *b, const tci_kred *red, tci_stage_tuple v)
{
    int threads = TCI_MIN(b->l->threads, TCI_WARP);
    v = tci_stage_join_halves(b, red, v, threads * (b->l->lanes / b->l->threads) / 2);
    return tci_row_lane_op(b, TCI_MEM_LANE_REPEAT, v.part[red->part], 0);
}

static void tci_row_meet(tci_build *b)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_BARRIER;
    tci_loop_append(b->l, b->cur, st);
}

/* The lanes of an accumulator, all of them. */
static int tci_row_join(tci_build *b, const tci_kred *red, tci_stage_tuple v)
{
    v = tci_stage_join_near(b, red, v);
    if (b->l->threads > TCI_WARP) {
        v = tci_stage_each(b, v, tci_row_share, 0);
        tci_row_meet(b);
        v = tci_row_join_warps(b, red, v);
    }
    return tci_row_join_lanes(b, red, v);
}

/* ---- what is earlier ---- */

/* The words of the row at hand begin at `at` of local `words`: one that has its tag, the totals of
 * its parts, those of its groups. tag: of this run; words: of a total. */
typedef struct tci_row_told {
    const tci_kred *red;
    int local, tag, words;
    int64_t parts, group;
    tci_lin at, part, in_group, number; /* the part, its position in its group, which group */
} tci_row_told;

/* The outer axes [first, end) as one. */
static tci_lin tci_row_as_one(tci_build *b, int first, int end)
{
    tci_lin one = tci_lin_const(0);
    for (int a = first; a < end; a++) {
        one = tci_lin_add(b, tci_lin_mul(b, one, b->k->axes[a].size), b->bind[a]->at);
    }
    return one;
}

static int tci_row_tag(tci_build *b, const tci_row_told *t)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_TAG;
    st.base = ~t->local;
    st.x = tci_build_lx(b, t->at);
    tci_value one = {.i = 1};
    int args[2] = {tci_build_mem(b, st, TC_I64, 1, b->cur), tci_build_const(b, TC_I64, one)};
    return tci_build_prim(b, TCI_P_ADD, TC_I64, 2, args, 0);
}

static tci_row_told tci_row_told_begin(tci_build *b, const tci_kred *red)
{
    const tci_kernel *k = b->k;
    int first = k->n_outer - red->earlier;
    tci_row_told t = {.red = red, .parts = tci_kernel_parts(k), .group = tci_kernel_group(k)};
    int64_t rows = 1;
    for (int a = 0; a < first; a++) {
        rows *= tci_kernel_known(k, a);
    }
    t.words = tci_lmem_told((tc_dtype)red->dtype);
    int64_t pitch = 1 + (t.parts + t.parts / t.group) * t.words;
    t.local = tci_build_work(b, TC_I64, rows * pitch);
    t.at = tci_lin_mul(b, tci_row_as_one(b, 0, first), pitch);
    t.part = tci_row_as_one(b, first, k->n_outer);
    int part = tci_build_lx(b, t.part);
    t.number = tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, part, -1, t.group));
    t.in_group = tci_lin_add(b, t.part, tci_lin_mul(b, t.number, -t.group));
    t.tag = tci_row_tag(b, &t);
    return t;
}

/* The word of total number `number`: those of parts come first. */
static tci_lin tci_row_word(tci_build *b, const tci_row_told *t, tci_lin number)
{
    return tci_lin_plus(tci_lin_add(b, t->at, tci_lin_mul(b, number, t->words)), 1);
}

static void tci_row_tell(tci_build *b, const tci_row_told *t, tci_lin at, int value)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_TELL;
    st.base = ~t->local;
    st.x = tci_build_lx(b, at);
    st.args[0] = value;
    st.args[1] = t->tag;
    tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, 1, b->cur);
}

/* Total of n published totals, from number `first` on; waits for them. */
static int tci_row_await(tci_build *b, const tci_row_told *t, tci_lin first, tci_lin n)
{
    tci_stage_tuple acc = tci_stage_accumulator(b, t->red, b->l->lanes);
    tci_lopen open;
    int lanes = tci_lx_const(b->l, b->l->lanes), zero = tci_lx_const(b->l, 0);
    int i = tci_build_for(b, zero, tci_build_lx(b, n), b->l->lanes, &open);
    tci_lin at = tci_lin_var(b, i);
    int left = tci_build_lx(b, tci_lin_add(b, n, tci_lin_mul(b, at, -1)));
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_AWAIT;
    st.base = ~t->local;
    st.x = tci_build_lx(b, tci_row_word(b, t, tci_lin_add(b, first, at)));
    st.n = tci_lx_make(b->l, TCI_LX_MIN, left, lanes, 0);
    st.args[0] = t->tag;
    int there = tci_row_mask(b, st.n);
    int v = tci_build_mem(b, st, (tc_dtype)t->red->dtype, b->l->lanes, b->cur);
    tci_stage_tuple more = tci_stage_combine(b, t->red, acc, tci_stage_tuple_of(v, -1));
    tci_stage_assign(b, acc, tci_stage_choose(b, there, more, acc));
    tci_build_close(b, &open);
    return tci_row_join(b, t->red, tci_stage_each(b, acc, tci_row_copy, 0));
}

/* Publishes a value if `at` is `last`. */
static void tci_row_tell_last(tci_build *b, const tci_row_told *t, tci_lin at, int64_t last,
                              tci_lin word, int value)
{
    tci_lopen open;
    tci_build_if(b, tci_build_in_range(b, tci_build_lx(b, at), last, last), &open);
    tci_row_tell(b, t, word, value);
    tci_build_close(b, &open);
}

static int tci_row_both(tci_build *b, const tci_row_told *t, int x, int y)
{
    return tci_stage_combine(b, t->red, tci_stage_tuple_of(x, -1), tci_stage_tuple_of(y, -1))
        .part[0];
}

/* Prefix total of the parts before this one, whose own total is `total`. */
static int tci_row_earlier(tci_build *b, const tci_row_told *t, int total)
{
    tci_lin mates = tci_lin_mul(b, t->number, t->group);
    tci_row_tell(b, t, tci_row_word(b, t, t->part), total);
    int earlier = tci_row_await(b, t, mates, t->in_group);
    if (t->group < t->parts) {
        tci_lin groups = tci_lin_const(t->parts);
        tci_lin word = tci_row_word(b, t, tci_lin_add(b, groups, t->number));
        tci_row_tell_last(b, t, t->in_group, t->group - 1, word,
                          tci_row_both(b, t, earlier, total));
        earlier = tci_row_both(b, t, tci_row_await(b, t, groups, t->number), earlier);
    }
    tci_row_tell_last(b, t, t->part, t->parts - 1, t->at, earlier);
    return earlier;
}

/* ---- stages ---- */

static void tci_row_reduce(tci_build *b, int stage, int n, const tci_bind **vecs)
{
    const tci_kernel *k = b->k;
    const tci_kred *earlier = tci_kernel_earlier(k);
    bool warps = b->l->threads > TCI_WARP;
    tci_row_told told = {0};
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds + 1);
    if (earlier && earlier->stage == stage) {
        told = tci_row_told_begin(b, earlier);
    }
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            acc[r] = tci_row_join_vectors(b, &k->reds[r], n, vecs);
            acc[r] = warps ? tci_stage_each(b, acc[r], tci_row_share, 0) : acc[r];
        }
    }
    if (warps) {
        tci_row_meet(b);
    }
    tci_build_set(b, k->stages[stage].axes[0], NULL);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == stage) {
            tci_stage_tuple v = warps ? tci_row_join_warps(b, &k->reds[r], acc[r]) : acc[r];
            int result = tci_row_join_lanes(b, &k->reds[r], v);
            result = told.red == &k->reds[r] ? tci_row_earlier(b, &told, result) : result;
            tci_build_remember(b, k->reds[r].inst, result);
        }
    }
}

static void tci_row_map(tci_build *b, int stage, int n, const tci_bind **vecs)
{
    const tci_kstage *st = &b->k->stages[stage];
    if (st->n_axes == 0) {
        tci_stage_stores(b, stage, NULL);
        return;
    }
    for (int i = 0; i < n; i++) {
        tci_build_set(b, st->axes[0], vecs[i]);
        tci_stage_stores(b, stage, NULL);
    }
    tci_build_set(b, st->axes[0], NULL);
}

/* The vectors of the rows along `axis`, all of them. */
static const tci_bind **tci_row_bind(tci_build *b, int axis, int *n)
{
    int64_t lanes = b->l->lanes, size = tci_kernel_known(b->k, axis);
    *n = (int)tci_ceil_div(size, lanes);
    const tci_bind **vecs = TCI_NEW_ARRAY(b->s, const tci_bind *, *n);
    for (int i = 0; i < *n; i++) {
        int64_t at = i * lanes, left = TCI_MIN(size - at, lanes);
        vecs[i] = tci_build_bind(b, tci_lin_const(at), at, at + left - 1, true,
                                 left < lanes ? tci_lx_const(b->l, left) : -1);
    }
    return vecs;
}

TCI_FN void tci_row_emit(tci_build *b)
{
    const tci_kernel *k = b->k;
    const tci_bind ***vecs = TCI_NEW_ARRAY(b->s, const tci_bind **, k->n_axes + 1);
    int *n_vecs = TCI_NEW_ARRAY(b->s, int, k->n_axes + 1);
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        int axis = st->n_axes > 0 ? st->axes[0] : k->n_axes; /* none has the last entry */
        if (!vecs[axis] && st->n_axes > 0) {
            vecs[axis] = tci_row_bind(b, axis, &n_vecs[axis]);
        }
        b->stage = t;
        if (st->kind == TCI_STAGE_SCAN) {
            tci_scan_vectors(b, t, n_vecs[axis], vecs[axis]);
        } else if (st->kind == TCI_STAGE_REDUCE) {
            tci_row_reduce(b, t, n_vecs[axis], vecs[axis]);
        } else {
            tci_row_map(b, t, n_vecs[axis], vecs[axis]);
        }
    }
}
/* ---- src/loop/smem_transpose.c ---- */
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
/* ---- src/loop/smem_transpose.h ---- */
/* loop/smem_transpose.h - declares the transpose through shared memory, padded by one column
 * against bank conflicts. */
#ifndef TCI_LOOP_SMEM_TRANSPOSE_H
#define TCI_LOOP_SMEM_TRANSPOSE_H


enum { TCI_SQUARE = 64, TCI_SMEM_TRANSPOSE_THREADS = 256 }; /* side; a multiple of it in threads */

/* A pointwise kernel traversed in square tiles of `row_axis` x `vec_axis`. */
typedef struct tci_smem_transpose {
    int row_axis, vec_axis;
    int32_t *loads;
    int n_loads; /* instructions that run along row_axis: transposed */
} tci_smem_transpose;

/* False: nothing to transpose, or too little to fill square tiles. */
TCI_FN bool tci_smem_transpose_plan(const tci_kernel *k, int row_axis, int vec_axis,
                                    tci_smem_transpose *q);
/* The square with these numbers along the two axes; the other outer axes are bound. */
TCI_FN void tci_smem_transpose_emit(tci_build *b, const tci_smem_transpose *q, tci_lin row,
                                    tci_lin vec);

#endif

/* ---- src/loop/smem_transpose.c, continued ---- */
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
/* ---- src/loop/simt_gemm.c ---- */
/* loop/simt_gemm.c - emits the SIMT GEMM: shared-memory panels, and register tiles of the threads
 * of a block.
 *
 * In: a kernel whose first stage is a DOT of two operands, and whose later stages are pointwise.
 * The outer axes of only one operand are the rows of the result, those of the other the columns,
 * each counted as one axis; so are the contracted ones. Out: the statements for one tile of the
 * result.
 *
 * Design: a tile of the result is in the registers of a block's threads, 4 x 4 to 8 x 8 elements
 * each, and every operand is read once per tile: K block by K block, the thread block
 * evaluates the operands' own expressions into two shared panels, from which each thread reads
 * what its elements need. So windows of an image, padding, transposes and cheap arithmetic cost no
 * more than the index of an element, and nothing is copied beforehand. While a K block is
 * multiplied, the next one is loaded into registers. Each element adds its products in the order of
 * the axes, in one chain or, in class SPLIT, one chain per fixed number of K blocks.
 *
 * Cost: an f32 tile of 128 x 128 x 16 is, per thread, 1024 multiply-adds, 64 reads of four
 * neighbours from the panels, and 16 elements to load, each one load and, if axes must be
 * separated, about ten operations on its index. A panel read takes two cycles of an SM per warp
 * and four neighbours, in which its four partitions do eight multiply-adds of a warp: with 4 x 4
 * elements that is the limit, with 8 x 8 half of it.
 *
 * As in loop/smem_transpose.c the loop has one lane and threads are distinguished by
 * TCI_LX_THREAD. A thread has coordinates (x, y) in the tile, a warp 8 x 4 of them; its elements
 * are rows 4 (y + g places) + (0 .. 3) and columns 4 (x + g places) + (0 .. 3), so that it reads
 * four neighbours of a panel at a time, and a warp reads one line of each panel at once. Panels are
 * double-buffered. Elements outside the result are computed from the last element inside, and not
 * stored. */
/* ---- src/loop/simt_gemm.h ---- */
/* loop/simt_gemm.h - declares the SIMT GEMM: shared-memory panels, and register tiles of the
 * threads of a block. */
#ifndef TCI_LOOP_SIMT_GEMM_H
#define TCI_LOOP_SIMT_GEMM_H


/* One factor of the contraction, along the rows or along the columns of the result: the outer axes
 * that it has and the other factor lacks, counted as one in row-major order. */
typedef struct tci_simt_gemm_side {
    int inst;
    int n_axes, *axes;
    int64_t extent;   /* of a block's tile: */
    int points;       /* of a thread, */
    int places;       /* times threads side by side */
    int64_t size;     /* of all axes */
    bool along_depth; /* memory runs along the contracted axes rather than along these */
} tci_simt_gemm_side;

typedef struct tci_simt_gemm {
    tci_simt_gemm_side rows, columns;
    int64_t depth; /* of the contracted axes, counted as one */
    int threads;   /* of a block */
    int resident;  /* blocks that an SM should hold at once */
} tci_simt_gemm;

/* The tiles that there are, the last one for values wider than 4 bytes alone. */
typedef struct tci_simt_gemm_tile {
    int16_t rows, columns;
    int8_t row_points, column_points;
} tci_simt_gemm_tile;
enum { TCI_PRODUCT_TILES = 8 };
TCI_FN const tci_simt_gemm_tile *tci_simt_gemm_tiles(void);

/* Fills *p but for the tile. False: not such a kernel, or too small for tiles; it may have few rows
 * or few columns. */
TCI_FN bool tci_simt_gemm_plan(const tci_kernel *k, const tci_machine *machine, tci_simt_gemm *p);
/* True if M and N are so large that tiles are faster than any other schedule. */
TCI_FN bool tci_simt_gemm_is_large_enough(const tci_simt_gemm *p);
/* Gives it the tile (rows, columns, row_points, column_points). The time by the model; -1: there is
 * no such tile. */
TCI_FN double tci_simt_gemm_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                               tci_simt_gemm *p);
/* Its sides without a tile. False: it is no such kernel. */
TCI_FN bool tci_simt_gemm_take_sides(const tci_kernel *k, tci_simt_gemm *p);
/* True if the axis belongs to M or N. */
TCI_FN bool tci_simt_gemm_has(const tci_simt_gemm *p, int axis);
/* The tile with these numbers along rows and columns; the other outer axes are bound. */
TCI_FN void tci_simt_gemm_emit(tci_build *b, const tci_simt_gemm *p, tci_lin row, tci_lin column);

/* ---- pieces ---- */

/* Places of a thread's points along a side: first + skip[i]. In pairs: points 2 i and 2 i + 1 of
 * the columns are neighbours, and so may be their stores. */
typedef struct tci_simt_gemm_points {
    const tci_simt_gemm_side *side;
    tci_lin first;
    int n;
    const int64_t *skip;
    bool in_pairs;
} tci_simt_gemm_points;
/* The sum of the point number row of the rows and column of the columns. */
typedef tci_stage_tuple (*tci_product_sum_fn)(tci_build *b, void *arg, int row, int column);
/* The stages after the first for all points of the thread, points[0] of the rows. */
TCI_FN void tci_simt_gemm_finish(tci_build *b, const tci_simt_gemm_points *points,
                                 tci_product_sum_fn sum, void *arg);
/* The thread's number divided by c, or what is left of it (TCI_LX_DIV, TCI_LX_MOD); / before % n */
TCI_FN tci_lin tci_simt_gemm_thread(tci_build *b, tci_lx_op op, int64_t c);
TCI_FN tci_lin tci_simt_gemm_digit(tci_build *b, int64_t before, int64_t n);
/* The smaller of x and the last element of an axis. */
TCI_FN tci_lin tci_simt_gemm_inside(tci_build *b, tci_lin x, int64_t size);
TCI_FN void tci_simt_gemm_set(tci_build *b, int n, const int32_t *axes,
                              const tci_bind *const *binds);
/* The contracted axes and a side's own, bound to one place of a panel after the other: what does
 * not move from one to the next is bound once. Unbound in the end. */
typedef struct tci_simt_gemm_walk {
    const tci_simt_gemm_side *side;
    const tci_bind **depths, **ats;
    bool begun;
} tci_simt_gemm_walk;
TCI_FN tci_simt_gemm_walk tci_simt_gemm_walk_of(tci_build *b, const tci_simt_gemm_side *side);
TCI_FN void tci_simt_gemm_bind(tci_build *b, tci_simt_gemm_walk *walk, tci_lin depth, tci_lin at);
TCI_FN void tci_simt_gemm_unbind(tci_build *b, const tci_simt_gemm_walk *walk);
/* The value waits in *waiting, which is made first. */
TCI_FN void tci_simt_gemm_wait(tci_build *b, int *waiting, int value, bool first);
TCI_FN void tci_simt_gemm_barrier(tci_build *b);

#endif

/* ---- src/loop/simt_gemm.c, continued ---- */
#include <math.h>
#include <string.h>

enum {
    TCI_PRODUCT_SLAB = 16,  /* of the contracted axis */
    TCI_PRODUCT_PAD = 4,    /* of a panel's rows: banks apart, and still aligned */
    TCI_PRODUCT_NEXT = 4,   /* neighbouring points of a thread */
    TCI_PRODUCT_WARP_X = 8, /* positions of a warp along the columns and along the rows */
    TCI_PRODUCT_WARP_Y = 4,
    TCI_PRODUCT_LARGE = 2,   /* blocks of many threads that an SM should hold at once, */
    TCI_PRODUCT_LANES = 384, /* or this many threads of small ones, which gather more each */
    TCI_PRODUCT_BUSY = 12,   /* warps that hide each other's waits */
    TCI_PRODUCT_GATHER = 12, /* instructions to fetch an element */
    TCI_PRODUCT_RUN = 8      /* neighbours along the contracted axes that are worth reading so */
};

/* ---- whether and how ---- */

static bool tci_simt_gemm_fits(const tci_kernel *k)
{
    return k->reds[0].order != TCI_ORDER_SPLIT || k->reds[0].order_n % TCI_PRODUCT_SLAB == 0;
}

/* Number of neighbouring elements that x visits along the axes, the last one fastest, in either
 * direction. */
static int64_t tci_simt_gemm_run(const tci_kernel *k, int x, int n_axes, const int *axes)
{
    int64_t run = 1, sign = 0;
    for (int i = n_axes - 1; i >= 0; i--) {
        tci_dim coef = 0;
        bool linear = tci_build_coef(k, x, axes[i], &coef);
        sign = sign == 0 && tci_dim_lt(coef, 0) ? -1 : sign == 0 ? 1 : sign;
        if (!linear || coef != sign * run) {
            break;
        }
        run *= tci_kernel_known(k, axes[i]);
    }
    return run;
}

/* Every load of the factor that knows the contracted axes runs along them, and not along its own
 * axes. */
static bool tci_simt_gemm_runs_along(const tci_kernel *k, const tci_simt_gemm_side *side)
{
    const tci_kstage *stage = &k->stages[0];
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    bool any = false;
    live[side->inst] = true;
    for (int i = side->inst; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        for (int a = 0; live[i] && a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        bool load = live[i] && in->op == TCI_K_LOAD;
        if (load && tci_build_depends(in->axes, stage->axes[stage->n_axes - 1])) {
            int64_t along = tci_simt_gemm_run(k, in->x, stage->n_axes, stage->axes);
            int64_t across = tci_simt_gemm_run(k, in->x, side->n_axes, side->axes);
            if (along < TCI_PRODUCT_RUN || across > 1) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

static void tci_simt_gemm_side_of(const tci_kernel *k, const tci_gemm_kernel_axes *axes,
                                  tci_simt_gemm_side *side)
{
    side->inst = axes->inst;
    side->n_axes = axes->n_axes;
    side->axes = axes->axes;
    side->size = axes->size;
    side->along_depth = tci_simt_gemm_runs_along(k, side);
}

TCI_FN bool tci_simt_gemm_take_sides(const tci_kernel *k, tci_simt_gemm *p)
{
    tci_gemm_kernel_sides sides;
    if (!tci_gemm_kernel_find(k, &sides)) {
        return false;
    }
    p->depth = sides.depth;
    tci_simt_gemm_side_of(k, &sides.rows, &p->rows);
    tci_simt_gemm_side_of(k, &sides.columns, &p->columns);
    return true;
}

static void tci_simt_gemm_shape(tci_simt_gemm *p, const tci_simt_gemm_tile *tile)
{
    p->rows.extent = tile->rows;
    p->rows.points = tile->row_points;
    p->rows.places = tile->rows / tile->row_points;
    p->columns.extent = tile->columns;
    p->columns.points = tile->column_points;
    p->columns.places = tile->columns / tile->column_points;
    p->threads = p->rows.places * p->columns.places;
    p->resident = TCI_MAX(TCI_PRODUCT_LANES / p->threads, TCI_PRODUCT_LARGE);
}

/* Cycles of the busiest SM for one step along the depth: the slower of issuing instructions
 * and of reading panels, and more where few warps hide each other's waits. */
static double tci_simt_gemm_cycles(const tci_kernel *k, const tci_machine *machine,
                                   const tci_simt_gemm *p)
{
    double points = 1;
    for (int a = 0; a < k->n_outer; a++) {
        points *= tci_simt_gemm_has(p, a) ? 1 : (double)tci_kernel_known(k, a);
    }
    double rows = (double)p->rows.extent, columns = (double)p->columns.extent;
    double tiles = points * (double)tci_ceil_div(p->rows.size, p->rows.extent) *
                   (double)tci_ceil_div(p->columns.size, p->columns.extent);
    double rounds = ceil(tiles / machine->facts.processors), warps = p->threads / TCI_WARP;
    double takes = warps * (p->rows.points + p->columns.points) / TCI_PRODUCT_NEXT;
    double gathers = (rows + columns) / TCI_WARP * TCI_PRODUCT_GATHER;
    double cycles = (rows * columns / TCI_WARP + takes + gathers) / 4;
    double busy = TCI_MIN(rounds, p->resident) * warps;
    double hidden = busy >= TCI_PRODUCT_BUSY ? 1 : 0.5 + 0.5 * busy / TCI_PRODUCT_BUSY;
    return rounds * TCI_MAX(cycles, 2 * takes) / hidden;
}

TCI_FN const tci_simt_gemm_tile *tci_simt_gemm_tiles(void)
{
    static const tci_simt_gemm_tile tiles[TCI_PRODUCT_TILES] = {{128, 128, 8, 8}, {128, 64, 8, 8},
                                                                {64, 128, 8, 8},  {64, 64, 8, 8},
                                                                {64, 64, 4, 8},   {16, 128, 4, 4},
                                                                {128, 32, 4, 4},  {64, 64, 4, 4}};
    return tiles;
}

TCI_FN bool tci_simt_gemm_plan(const tci_kernel *k, const tci_machine *machine, tci_simt_gemm *p)
{
    return machine->block_threads >= TCI_GATHER_THREADS && !machine->no_shared_memory &&
           tci_simt_gemm_take_sides(k, p) && tci_simt_gemm_fits(k) &&
           TCI_MIN(p->rows.size, p->columns.size) >= TCI_GATHER_FEW &&
           TCI_MAX(p->rows.size, p->columns.size) >= TCI_GATHER_SIDE &&
           p->depth >= TCI_GATHER_DEPTH;
}

TCI_FN bool tci_simt_gemm_is_large_enough(const tci_simt_gemm *p)
{
    return p->rows.size >= (p->columns.along_depth ? TCI_GATHER_FEW : TCI_GATHER_SIDE) &&
           p->columns.size >= TCI_GATHER_SIDE;
}

TCI_FN double tci_simt_gemm_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                               tci_simt_gemm *p)
{
    const tci_simt_gemm_tile *tiles = tci_simt_gemm_tiles();
    bool wide = tci_dtype_get((tc_dtype)k->reds[0].dtype)->bytes > 4;
    for (int i = wide ? TCI_PRODUCT_TILES - 1 : 0; i < TCI_PRODUCT_TILES; i++) {
        if (tiles[i].rows == tile[0] && tiles[i].columns == tile[1] &&
            tiles[i].row_points == tile[2] && tiles[i].column_points == tile[3]) {
            tci_simt_gemm_shape(p, &tiles[i]);
            return tci_simt_gemm_cycles(k, machine, p) * (double)p->depth / machine->facts.ghz;
        }
    }
    return -1;
}

TCI_FN bool tci_simt_gemm_has(const tci_simt_gemm *p, int axis)
{
    bool found = false;
    for (int i = 0; i < p->rows.n_axes; i++) {
        found = found || p->rows.axes[i] == axis;
    }
    for (int i = 0; i < p->columns.n_axes; i++) {
        found = found || p->columns.axes[i] == axis;
    }
    return found;
}

/* ---- the state of one tile ---- */

/* One factor: its panel, and the values that wait for their turn. */
typedef struct tci_simt_gemm_panel {
    const tci_simt_gemm_side *side;
    tci_lin base;      /* of the tile along the axis */
    tci_lin depth, at; /* this thread's first element: in the slab, and along the axis */
    int64_t step;      /* to its next element, along whichever of the two moves */
    int n;             /* elements of a thread */
    int local;         /* panel */
    int *waiting;      /* n mutable values */
    tci_lin take;      /* where the thread takes its points' values */
} tci_simt_gemm_panel;

typedef struct tci_simt_gemm_state {
    tci_build *b;
    const tci_simt_gemm *p;
    tci_simt_gemm_panel panels[2]; /* rows, columns */
    tci_stage_tuple *acc, *total;  /* row * columns of a thread + column; total: in parts */
} tci_simt_gemm_state;

static int64_t tci_simt_gemm_pitch(const tci_simt_gemm_side *side)
{
    return side->extent + TCI_PRODUCT_PAD;
}

/* A thread's n-th point along a side, from its first one. */
static int64_t tci_simt_gemm_skip(const tci_simt_gemm_side *side, int n)
{
    return (int64_t)(n / TCI_PRODUCT_NEXT) * side->places * TCI_PRODUCT_NEXT + n % TCI_PRODUCT_NEXT;
}

TCI_FN tci_lin tci_simt_gemm_thread(tci_build *b, tci_lx_op op, int64_t c)
{
    int thread = tci_lx_make(b->l, TCI_LX_THREAD, -1, -1, 0);
    return tci_build_let(b, tci_lx_make(b->l, op, thread, -1, c));
}

TCI_FN tci_lin tci_simt_gemm_digit(tci_build *b, int64_t before, int64_t n)
{
    int above = tci_build_lx(b, tci_simt_gemm_thread(b, TCI_LX_DIV, before));
    return tci_build_let(b, tci_lx_make(b->l, TCI_LX_MOD, above, -1, n));
}

/* The thread's position along the columns, and along the rows. */
static tci_lin tci_simt_gemm_x(tci_build *b, const tci_simt_gemm *p)
{
    const int64_t warps = p->columns.places / TCI_PRODUCT_WARP_X;
    tci_lin warp = tci_simt_gemm_digit(b, TCI_WARP, warps);
    tci_lin lane = tci_simt_gemm_thread(b, TCI_LX_MOD, TCI_PRODUCT_WARP_X);
    return tci_lin_add(b, lane, tci_lin_mul(b, warp, TCI_PRODUCT_WARP_X));
}

static tci_lin tci_simt_gemm_y(tci_build *b, const tci_simt_gemm *p)
{
    const int64_t warps = p->columns.places / TCI_PRODUCT_WARP_X;
    tci_lin warp = tci_simt_gemm_thread(b, TCI_LX_DIV, TCI_WARP * warps);
    tci_lin lane = tci_simt_gemm_digit(b, TCI_PRODUCT_WARP_X, TCI_PRODUCT_WARP_Y);
    return tci_lin_add(b, lane, tci_lin_mul(b, warp, TCI_PRODUCT_WARP_Y));
}

static void tci_simt_gemm_open_panel(tci_build *b, tci_simt_gemm_panel *panel,
                                     const tci_simt_gemm *p, const tci_simt_gemm_side *side,
                                     tci_lin tile, tci_lin place)
{
    int64_t across = side->along_depth ? TCI_PRODUCT_SLAB : side->extent;
    tci_lin low = tci_simt_gemm_thread(b, TCI_LX_MOD, across);
    tci_lin high = tci_simt_gemm_thread(b, TCI_LX_DIV, across);
    panel->side = side;
    panel->base = tci_lin_mul(b, tile, side->extent);
    panel->depth = side->along_depth ? low : high;
    panel->at = side->along_depth ? high : low;
    panel->step = p->threads / across;
    panel->n = (int)(side->extent * TCI_PRODUCT_SLAB / p->threads);
    panel->local = tci_build_local(b, (tc_dtype)b->k->insts[side->inst].dtype,
                                   2 * TCI_PRODUCT_SLAB * tci_simt_gemm_pitch(side), b->cur);
    panel->waiting = TCI_NEW_ARRAY(b->s, int, panel->n);
    panel->take = tci_lin_mul(b, place, TCI_PRODUCT_NEXT);
}

TCI_FN tci_lin tci_simt_gemm_inside(tci_build *b, tci_lin x, int64_t size)
{
    int last = tci_lx_const(b->l, size - 1);
    return tci_build_let(b, tci_lx_make(b->l, TCI_LX_MIN, tci_build_lx(b, x), last, 0));
}

TCI_FN void tci_simt_gemm_set(tci_build *b, int n, const int32_t *axes,
                              const tci_bind *const *binds)
{
    for (int i = 0; i < n; i++) {
        tci_build_set(b, axes[i], binds ? binds[i] : NULL);
    }
}

TCI_FN tci_simt_gemm_walk tci_simt_gemm_walk_of(tci_build *b, const tci_simt_gemm_side *side)
{
    tci_simt_gemm_walk walk = {.side = side};
    walk.depths = TCI_NEW_ARRAY(b->s, const tci_bind *, b->k->stages[0].n_axes);
    walk.ats = TCI_NEW_ARRAY(b->s, const tci_bind *, side->n_axes);
    return walk;
}

TCI_FN void tci_simt_gemm_bind(tci_build *b, tci_simt_gemm_walk *walk, tci_lin depth, tci_lin at)
{
    const tci_kstage *stage = &b->k->stages[0];
    const tci_simt_gemm_side *side = walk->side;
    if (!walk->begun || !side->along_depth) {
        tci_build_digits(b, stage->n_axes, stage->axes, depth, walk->depths);
    }
    if (!walk->begun || side->along_depth) {
        tci_build_digits(b, side->n_axes, side->axes, at, walk->ats);
    }
    walk->begun = true;
    tci_simt_gemm_set(b, stage->n_axes, stage->axes, walk->depths);
    tci_simt_gemm_set(b, side->n_axes, side->axes, walk->ats);
}

TCI_FN void tci_simt_gemm_unbind(tci_build *b, const tci_simt_gemm_walk *walk)
{
    const tci_kstage *stage = &b->k->stages[0];
    tci_simt_gemm_set(b, stage->n_axes, stage->axes, NULL);
    tci_simt_gemm_set(b, walk->side->n_axes, walk->side->axes, NULL);
}

TCI_FN void tci_simt_gemm_wait(tci_build *b, int *waiting, int value, bool first)
{
    if (first) {
        *waiting = tci_build_mutable(b, value);
    } else {
        tci_build_assign(b, *waiting, value);
    }
}

/* ---- slabs ---- */

/* Evaluates this thread's elements of the slab from `from` on; first: the values are made. */
static void tci_simt_gemm_load(tci_simt_gemm_state *s, tci_simt_gemm_panel *panel, tci_lin from,
                               bool first)
{
    tci_build *b = s->b;
    const tci_simt_gemm_side *side = panel->side;
    tci_simt_gemm_walk walk = tci_simt_gemm_walk_of(b, side);
    bool cut = side->size % side->extent != 0, tail = s->p->depth % TCI_PRODUCT_SLAB != 0;
    for (int i = 0; i < panel->n; i++) {
        int64_t skip = i * panel->step;
        tci_lin depth = tci_lin_add(b, from, panel->depth);
        tci_lin at = tci_lin_add(b, panel->base, panel->at);
        depth = tci_lin_plus(depth, side->along_depth ? 0 : skip);
        at = tci_lin_plus(at, side->along_depth ? skip : 0);
        depth = tail ? tci_simt_gemm_inside(b, depth, s->p->depth) : depth;
        at = cut ? tci_simt_gemm_inside(b, at, side->size) : at;
        tci_simt_gemm_bind(b, &walk, depth, at);
        tci_simt_gemm_wait(b, &panel->waiting[i], tci_build_value(b, side->inst), first);
    }
    tci_simt_gemm_unbind(b, &walk);
}

static void tci_simt_gemm_load_both(tci_simt_gemm_state *s, tci_lin from, bool first)
{
    tci_simt_gemm_load(s, &s->panels[0], from, first);
    tci_simt_gemm_load(s, &s->panels[1], from, first);
}

TCI_FN void tci_simt_gemm_barrier(tci_build *b)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_BARRIER;
    tci_loop_append(b->l, b->cur, st);
}

/* The waiting values become the panels number `half`. */
static void tci_simt_gemm_store_panels(tci_simt_gemm_state *s, tci_lin half)
{
    tci_build *b = s->b;
    for (int f = 0; f < 2; f++) {
        const tci_simt_gemm_panel *panel = &s->panels[f];
        int64_t pitch = tci_simt_gemm_pitch(panel->side);
        int64_t step = panel->side->along_depth ? panel->step : panel->step * pitch;
        tci_lin first = tci_lin_add(b, tci_lin_mul(b, panel->depth, pitch), panel->at);
        first = tci_lin_add(b, first, tci_lin_mul(b, half, TCI_PRODUCT_SLAB * pitch));
        for (int i = 0; i < panel->n; i++) {
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_STORE_ONE;
            st.base = ~panel->local;
            st.x = tci_build_lx(b, tci_lin_plus(first, i * step));
            st.args[0] = panel->waiting[i];
            tci_build_mem(b, st, TC_F32, 1, b->cur);
        }
    }
    tci_simt_gemm_barrier(b);
}

/* From row `depth` of the panels, counted over both halves. */
static void tci_simt_gemm_take(tci_simt_gemm_state *s, int f, tci_lin depth, int *values)
{
    tci_build *b = s->b;
    const tci_simt_gemm_panel *panel = &s->panels[f];
    tc_dtype t = (tc_dtype)b->k->insts[panel->side->inst].dtype;
    tci_lin row = tci_lin_mul(b, depth, tci_simt_gemm_pitch(panel->side));
    tci_lin first = tci_lin_add(b, row, panel->take);
    for (int i = 0; i < panel->side->points; i++) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_LOAD_ONE;
        st.base = ~panel->local;
        st.x = tci_build_lx(b, tci_lin_plus(first, tci_simt_gemm_skip(panel->side, i)));
        values[i] = tci_build_mem(b, st, t, 1, b->cur);
    }
}

/* n steps of every point's chain, from the panels number `half`. */
static void tci_simt_gemm_multiply(tci_simt_gemm_state *s, tci_lin half, int64_t n)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[0];
    int n_rows = s->p->rows.points, n_columns = s->p->columns.points;
    int *rows = TCI_NEW_ARRAY(b->s, int, n_rows), *columns = TCI_NEW_ARRAY(b->s, int, n_columns);
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, n), 1, &open);
    open.st.unroll = TCI_PRODUCT_SLAB;
    tci_lin row = tci_lin_add(b, tci_lin_mul(b, half, TCI_PRODUCT_SLAB), tci_lin_var(b, i));
    tci_simt_gemm_take(s, 0, row, rows);
    tci_simt_gemm_take(s, 1, row, columns);
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < n_columns; c++) {
            bool swap = s->p->rows.inst != red->in[0];
            tci_stage_tuple v = tci_stage_tuple_of(swap ? columns[c] : rows[r],
                                                   swap ? rows[r] : columns[c]);
            tci_stage_tuple acc = s->acc[r * n_columns + c];
            tci_stage_assign(b, acc, tci_stage_combine(b, red, acc, v));
        }
    }
    tci_build_close(b, &open);
}

/* Slab number `slab` begins a part of the sums: the one before joins those before it. */
static void tci_simt_gemm_next_part(tci_simt_gemm_state *s, int slab)
{
    tci_build *b = s->b;
    const tci_kred *red = &b->k->reds[0];
    int n = s->p->rows.points * s->p->columns.points;
    tci_lopen open, later;
    if (red->order != TCI_ORDER_SPLIT) {
        return;
    }
    int place = tci_lx_make(b->l, TCI_LX_MOD, slab, -1, red->order_n / TCI_PRODUCT_SLAB);
    tci_build_if(b, tci_build_in_range(b, place, 0, 0), &open);
    tci_build_if(b, tci_build_in_range(b, slab, 1, s->p->depth / TCI_PRODUCT_SLAB), &later);
    for (int i = 0; i < n; i++) {
        tci_stage_assign(b, s->total[i], tci_stage_joined(b, red, s->total[i], s->acc[i]));
        tci_stage_assign(b, s->acc[i], tci_stage_identity(b, red));
    }
    tci_build_close(b, &later);
    tci_build_close(b, &open);
}

static void tci_simt_gemm_slabs(tci_simt_gemm_state *s)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t whole = s->p->depth / TCI_PRODUCT_SLAB, tail = s->p->depth % TCI_PRODUCT_SLAB;
    int64_t n = tail > 0 ? whole : whole - 1; /* slabs with another one behind */
    tci_lopen open;
    tci_simt_gemm_load_both(s, tci_lin_const(0), true);
    tci_simt_gemm_store_panels(s, tci_lin_const(0));
    int i = tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, n), 1, &open);
    tci_lin half = tci_build_let(b, tci_lx_make(l, TCI_LX_MOD, tci_lx_var(l, i), -1, 2));
    tci_lin after = tci_lin_plus(tci_lin_var(b, i), 1);
    tci_simt_gemm_load_both(s, tci_lin_mul(b, after, TCI_PRODUCT_SLAB), false);
    tci_simt_gemm_next_part(s, tci_lx_var(l, i));
    tci_simt_gemm_multiply(s, half, TCI_PRODUCT_SLAB);
    tci_simt_gemm_store_panels(s, tci_lin_plus(tci_lin_mul(b, half, -1), 1));
    tci_build_close(b, &open);
    tci_simt_gemm_next_part(s, tci_lx_const(l, n));
    tci_simt_gemm_multiply(s, tci_lin_const(n % 2), tail > 0 ? tail : TCI_PRODUCT_SLAB);
}

/* ---- the result ---- */

static tci_lin tci_simt_gemm_at(const tci_simt_gemm_points *points, int i)
{
    return tci_lin_plus(points->first, points->skip[i]);
}

/* Bindings of a side's axes for each of the thread's points: point * n_axes + axis. The second of a
 * pair is after the first on the last axis, where that has pairs alone. */
static const tci_bind **tci_simt_gemm_binds(tci_build *b, const tci_simt_gemm_points *points)
{
    const tci_simt_gemm_side *side = points->side;
    const int last = side->n_axes - 1;
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, points->n * side->n_axes);
    bool pairs = points->in_pairs && last >= 0 && tci_kernel_known(b->k, side->axes[last]) % 2 == 0;
    for (int i = 0; i < points->n; i++) {
        const tci_bind **own = binds + i * side->n_axes;
        if (pairs && i % 2 == 1) {
            memcpy(own, own - side->n_axes, sizeof(*own) * (size_t)side->n_axes);
            const tci_bind *pair[2];
            tci_build_neighbours(b, side->axes[last], own[last]->at, 2, pair);
            own[last] = pair[1];
        } else {
            tci_build_digits(b, side->n_axes, side->axes, tci_simt_gemm_at(points, i), own);
        }
    }
    return binds;
}

/* So many neighbouring points are in the result together, or outside. */
static int tci_simt_gemm_group(const tci_simt_gemm_points *points)
{
    bool odd = points->side->size % 2 != 0 && points->side->size % points->side->extent != 0;
    return points->in_pairs && !odd ? 2 : 1;
}

/* Opens the branch for a group of points that may be outside of the result, at the first of them;
 * each has bindings of its own: what is loaded there stays there. True: it has one. */
static bool tci_simt_gemm_open(tci_build *b, const tci_simt_gemm_points *points, int point,
                               const tci_bind **binds, tci_lopen *open)
{
    const tci_simt_gemm_side *side = points->side;
    bool cut = side->size % side->extent != 0;
    const tci_bind **own = TCI_NEW_ARRAY(b->s, const tci_bind *, side->n_axes);
    if (cut && point % tci_simt_gemm_group(points) == 0) {
        tci_build_if(b, tci_build_inside(b, tci_simt_gemm_at(points, point), side->size), open);
    }
    for (int i = 0; i < side->n_axes; i++) {
        const tci_bind *bind = binds[point * side->n_axes + i];
        own[i] = cut ? tci_build_bind(b, bind->at, bind->lo, bind->hi, false, -1) : bind;
    }
    tci_simt_gemm_set(b, side->n_axes, side->axes, own);
    return cut;
}

/* Whether statement `one` stores an element, and `next` the one after it: both are one access. */
static bool tci_simt_gemm_joins(tci_loop *l, const tci_lstmt *one, const tci_lstmt *next)
{
    bool stores = one->op == TCI_L_MEM && one->mem == TCI_MEM_STORE_ONE && next->op == TCI_L_MEM &&
                  next->mem == TCI_MEM_STORE_ONE && one->base == next->base;
    return stores && tci_lx_multiple(l, one->x) % 2 == 0 &&
           tci_lx_make(l, TCI_LX_ADD, one->x, tci_lx_const(l, 1), 0) == next->x;
}

/* Joins the stores of two neighbours, which the statements of the block from `from` on are. */
static void tci_simt_gemm_join_stores(tci_build *b, int from)
{
    tci_lblock *block = &b->l->blocks[b->cur];
    for (int i = from; i < block->n; i++) {
        int j = i + 1;
        while (j < block->n && !tci_simt_gemm_joins(b->l, &block->stmts[i], &block->stmts[j])) {
            j++;
        }
        if (j < block->n) {
            block->stmts[j].mem = TCI_MEM_STORE_PAIRS;
            block->stmts[j].x = block->stmts[i].x;
            block->stmts[j].args[1] = block->stmts[j].args[0];
            block->stmts[j].args[0] = block->stmts[i].args[0];
            memmove(block->stmts + i, block->stmts + i + 1,
                    sizeof(*block->stmts) * (size_t)(block->n - i - 1));
            block->n--;
        }
    }
}

TCI_FN void tci_simt_gemm_finish(tci_build *b, const tci_simt_gemm_points *points,
                                 tci_product_sum_fn sum, void *arg)
{
    const tci_bind **rows = tci_simt_gemm_binds(b, &points[0]);
    const tci_bind **columns = tci_simt_gemm_binds(b, &points[1]);
    const int group = tci_simt_gemm_group(&points[1]);
    for (int r = 0; r < points[0].n; r++) {
        tci_lopen row, column;
        bool cut_row = tci_simt_gemm_open(b, &points[0], r, rows, &row);
        for (int c = 0, from = 0; c < points[1].n; c++) {
            bool cut = tci_simt_gemm_open(b, &points[1], c, columns, &column);
            from = c % group == 0 ? b->l->blocks[b->cur].n : from;
            tci_stage_remember_result(b, &b->k->reds[0], sum(b, arg, r, c));
            for (int t = 1; t < b->k->n_stages; t++) {
                b->stage = t;
                tci_stage_stores(b, t, NULL);
            }
            if ((c + 1) % group == 0) {
                tci_simt_gemm_join_stores(b, from);
                if (cut) {
                    tci_build_close(b, &column);
                }
            }
        }
        if (cut_row) {
            tci_build_close(b, &row);
        }
    }
    for (int f = 0; f < 2; f++) {
        tci_simt_gemm_set(b, points[f].side->n_axes, points[f].side->axes, NULL);
    }
}

static tci_stage_tuple tci_simt_gemm_sum(tci_build *b, void *arg, int row, int column)
{
    const tci_simt_gemm_state *s = arg;
    int i = row * s->p->columns.points + column;
    const tci_kred *red = &b->k->reds[0];
    return red->order == TCI_ORDER_SPLIT ? tci_stage_joined(b, red, s->total[i], s->acc[i])
                                         : s->acc[i];
}

static tci_simt_gemm_points tci_simt_gemm_points_of(tci_build *b, const tci_simt_gemm_panel *panel)
{
    int n = panel->side->points;
    int64_t *skip = TCI_NEW_ARRAY(b->s, int64_t, n);
    for (int i = 0; i < n; i++) {
        skip[i] = tci_simt_gemm_skip(panel->side, i);
    }
    tci_lin first = tci_lin_add(b, panel->base, panel->take);
    return (tci_simt_gemm_points){panel->side, first, n, skip, false};
}

TCI_FN void tci_simt_gemm_emit(tci_build *b, const tci_simt_gemm *p, tci_lin row, tci_lin column)
{
    tci_simt_gemm_state s = {b, p, {{0}}, NULL, NULL};
    int n = p->rows.points * p->columns.points;
    b->stage = 0;
    tci_simt_gemm_open_panel(b, &s.panels[0], p, &p->rows, row, tci_simt_gemm_y(b, p));
    tci_simt_gemm_open_panel(b, &s.panels[1], p, &p->columns, column, tci_simt_gemm_x(b, p));
    s.acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    s.total = TCI_NEW_ARRAY(b->s, tci_stage_tuple, n);
    for (int i = 0; i < n; i++) {
        s.acc[i] = tci_stage_accumulator(b, &b->k->reds[0], 1);
        if (b->k->reds[0].order == TCI_ORDER_SPLIT) {
            s.total[i] = tci_stage_total(b, &b->k->reds[0], 1);
        }
    }
    tci_simt_gemm_slabs(&s);
    tci_simt_gemm_points points[2] = {tci_simt_gemm_points_of(b, &s.panels[0]),
                                      tci_simt_gemm_points_of(b, &s.panels[1])};
    points[1].in_pairs = points[1].n % TCI_PRODUCT_NEXT == 0;
    tci_simt_gemm_finish(b, points, tci_simt_gemm_sum, &s);
}

TCI_FN double tci_products_least_ns(const tci_query *a)
{
    tci_simt_gemm p = {0};
    bool tiles = tci_simt_gemm_plan(a->k, &a->machine, &p);
    double least = -1;
    for (int i = 0; tiles && i < TCI_PRODUCT_TILES; i++) {
        const tci_simt_gemm_tile *t = &tci_simt_gemm_tiles()[i];
        const int64_t n[] = {t->rows, t->columns, t->row_points, t->column_points};
        double cost = tci_simt_gemm_ns(a->k, &a->machine, n, &p);
        least = cost >= 0 && (least < 0 || cost < least) ? cost : least;
    }
    return least;
}
/* ---- src/loop/thread_per_point.c ---- */
/* loop/thread_per_point.c - GPU schedule in which one thread computes one output element or a short
 * run of them: depthwise and grouped convolutions, GEMV, pooling, small copies.
 *
 * In: a kernel with reductions whose last outer axis is too short for vectors, or not a multiple of
 * the vector length, or whose loads are guarded or strided, so that a vector would be read lane by
 * lane; or one MAP stage with an axis shorter still. Out: the statements for one thread. Design:
 * neighbouring threads take neighbouring points of the result, along any axis, and each runs the
 * stages alone; data shared by neighbours comes from the cache. A thread has several points along
 * an axis that the operand with the last axis lacks, so that one read of that operand serves all of
 * them; for a copy, all points of a short axis that it stores together. The summation order does
 * not change.
 *
 * Cost: for each product and row one multiply-add and one read that all threads of a warp share,
 * and one coalesced read shared by all rows. */
/* ---- src/loop/thread_per_point.h ---- */
/* loop/thread_per_point.h - declares the GPU schedule in which one thread computes one output
 * element or a short run of them. */
#ifndef TCI_LOOP_THREAD_PER_POINT_H
#define TCI_LOOP_THREAD_PER_POINT_H


enum { TCI_PER_POINT_THREADS = 256 };

/* Threads are numbered along all outer axes but one, counted as one in row-major order; each has
 * `rows` neighbours along that one. */
typedef struct tci_per_point {
    int n_axes, *axes;
    int64_t size;       /* of those axes; 0: it is no such kernel */
    int row_axis, rows; /* -1, 1: there is none */
    bool by_lane;       /* a vector along the last axis would be read lane by lane */
} tci_per_point;

/* False: not such a kernel, or one that is better made of vectors along the last axis. */
TCI_FN bool tci_per_point_plan(const tci_kernel *k, const tci_machine *machine, tci_per_point *p);
/* Block number `chunk`, rows from rows * row on. */
TCI_FN void tci_per_point_emit(tci_build *b, const tci_per_point *p, tci_lin row, tci_lin chunk);

#endif


/* ---- src/loop/thread_per_point.c, continued ---- */
enum {
    TCI_PER_POINT_ROWS = 8,  /* of a thread, at most */
    TCI_PER_POINT_BUSY = 512 /* threads that keep an SM busy */
};

/* ---- whether and how ---- */

static bool tci_per_point_is_dot(const tci_kernel *k)
{
    return k->n_reds == 1 && k->reds[0].op == TCI_RED_DOT;
}

/* True if a vector along the last outer axis would be read lane by lane: a load of the first stage
 * has a guard or, like windows of an image, a stride between neighbours. */
static bool tci_per_point_is_lane_by_lane(const tci_kernel *k)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1), found = false;
    tci_cost_mark(k, 0, false, live);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *in = &k->insts[i];
        tci_dim coef = 0;
        if (live[i] && in->op == TCI_K_LOAD) {
            bool linear = tci_build_coef(k, in->x, k->n_outer - 1, &coef);
            bool apart = !tci_per_point_is_dot(k) && (!linear || tci_dim_lt(1, coef));
            found |= in->n_guards > 0 || apart;
        }
    }
    return found;
}

/* A short axis along which a map stores neighbours: -1 none. */
static int tci_per_point_together(const tci_kernel *k)
{
    int found = -1;
    bool map = k->n_reds == 0 && k->n_stages == 1 && k->n_outer > 1;
    for (int a = 0; a < k->n_outer - 1 && map && found < 0; a++) {
        int64_t size = tci_dim_hint(k->axes[a].size);
        bool together = size > 1 && size <= TCI_PER_POINT_ROWS;
        for (int i = 0; i < k->n_stores && together; i++) {
            tci_dim coef = 0;
            together = tci_build_coef(k, k->stores[i].x, a, &coef) && coef == 1;
        }
        found = together ? a : -1;
    }
    return found;
}

static bool tci_per_point_fits(const tci_kernel *k)
{
    bool reduces = k->n_reds > 0 && k->stages[0].kind == TCI_STAGE_REDUCE;
    bool fits = k->vector == TCI_VEC_OUTER && k->n_outer > 0 && k->n_axes < 63 &&
                (reduces || (k->n_reds == 0 && k->n_stages == 1));
    for (int t = reduces; t < k->n_stages && fits; t++) {
        fits = k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int i = 0; i < k->n_stores && fits; i++) {
        fits = k->stores[i].mode == TCI_MODE_SET;
    }
    for (int a = 0; a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size);
    }
    int64_t last = fits ? tci_kernel_known(k, k->n_outer - 1) : 0;
    bool is_short = last < (reduces ? TCI_PER_POINT_SHORT : TCI_PER_POINT_SHORT / 2) ||
                    tci_per_point_together(k) >= 0;
    bool is_ragged = !tci_per_point_is_dot(k) && last % TCI_VLANES != 0;
    return fits && (reduces ? is_short || is_ragged || tci_per_point_is_lane_by_lane(k)
                            : is_short && k->n_outer > 1);
}

/* The last outer axis that the factor with the very last one lacks; -1: none. */
static int tci_per_point_row_axis(const tci_kernel *k)
{
    if (!tci_per_point_is_dot(k)) {
        return tci_per_point_together(k);
    }
    const tci_kred *red = &k->reds[0];
    uint64_t a = k->insts[red->in[0]].axes, b = k->insts[red->in[1]].axes;
    int last = k->n_outer - 1, row = last - 1;
    uint64_t fast = tci_build_depends(a, last) ? a : b;
    if (tci_build_depends(a, last) == tci_build_depends(b, last)) {
        return -1;
    }
    while (row >= 0 && (tci_build_depends(fast, row) || k->axes[row].size == 1)) {
        row--;
    }
    return row;
}

TCI_FN bool tci_per_point_plan(const tci_kernel *k, const tci_machine *machine, tci_per_point *p)
{
    if (machine->block_threads < TCI_PER_POINT_THREADS || !tci_per_point_fits(k)) {
        return false;
    }
    int64_t all = 1;
    p->row_axis = tci_per_point_row_axis(k);
    p->rows = 1;
    p->by_lane = tci_per_point_is_lane_by_lane(k);
    p->n_axes = 0;
    p->axes = TCI_NEW_ARRAY(k->s, int, k->n_outer);
    for (int a = 0; a < k->n_outer; a++) {
        all = all > INT32_MAX ? all : all * tci_kernel_known(k, a);
        if (a != p->row_axis) {
            p->axes[p->n_axes++] = a;
        }
    }
    int64_t busy = (int64_t)machine->facts.processors * TCI_PER_POINT_BUSY;
    int64_t rows = p->row_axis < 0 ? 1 : tci_kernel_known(k, p->row_axis);
    p->size = rows > 0 ? all / rows : 0;
    for (int r = 2; r <= TCI_PER_POINT_ROWS; r++) {
        bool worth = k->n_reds > 0 ? all / r >= busy : r == rows;
        p->rows = rows % r == 0 && worth ? r : p->rows;
    }
    return all > 0 && all <= INT32_MAX;
}

/* ---- a thread ---- */

TCI_FN void tci_per_point_emit(tci_build *b, const tci_per_point *p, tci_lin row, tci_lin chunk)
{
    const tci_bind **binds = TCI_NEW_ARRAY(b->s, const tci_bind *, p->n_axes + p->rows);
    const tci_bind **rows = binds + p->n_axes;
    bool cut = p->size % TCI_PER_POINT_THREADS != 0;
    tci_lopen open;
    tci_lin thread = tci_build_let(b, tci_lx_make(b->l, TCI_LX_THREAD, -1, -1, 0));
    tci_lin point = tci_lin_add(b, tci_lin_mul(b, chunk, TCI_PER_POINT_THREADS), thread);
    if (cut) {
        tci_build_if(b, tci_build_inside(b, point, p->size), &open);
    }
    tci_build_digits(b, p->n_axes, p->axes, point, binds);
    for (int i = 0; i < p->n_axes; i++) {
        tci_build_set(b, p->axes[i], binds[i]);
    }
    tci_lin first = tci_lin_mul(b, row, p->rows);
    if (p->row_axis >= 0) {
        tci_build_neighbours(b, p->row_axis, first, p->rows, rows);
    }
    tci_tile tile = {0};
    tile.row_axis = p->row_axis;
    tile.rows = rows;
    tile.n_rows = p->rows;
    tile.vec_axis = tile.next_axis = -1;
    tile.n_vecs = 1;
    tile.written = b->k->n_reds == 0;
    tci_stage_all(b, &tile);
    for (int i = 0; i < p->n_axes; i++) {
        tci_build_set(b, p->axes[i], NULL);
    }
    if (cut) {
        tci_build_close(b, &open);
    }
}
/* ---- src/loop/simt_short_reduction.c ---- */
/* loop/simt_short_reduction.c - GPU schedule of short reductions (pooling, depthwise convolution
 * and its filter gradient, convolution with few channels) and of maps with a short last axis, in
 * NHWC: each thread computes one 16-byte vector of adjacent outputs, and the reduction is unrolled
 * in its registers.
 *
 * In: a kernel whose first stage reduces few elements, or is a map, in which every load is
 * contiguous along the last outer axis or independent of it, and every guard independent of that
 * axis; later stages are pointwise. Out: the statements for one thread. Design: a thread has a
 * vector along that axis, of 16 bytes if possible, and several neighbouring points along the axis
 * before it. The last reduced axis is unrolled, so that elements shared by neighbouring windows,
 * and values common to all, such as a filter or a norm's scale, are read once. The order of sums is
 * kept.
 *
 * Neighbouring threads take consecutive vectors. */
/* ---- src/loop/simt_short_reduction.h ---- */
/* loop/simt_short_reduction.h - declares the GPU schedule of short reductions along a contiguous
 * last axis (pooling, depthwise convolution, few channels): one vector of outputs per thread. */
#ifndef TCI_LOOP_SIMT_SHORT_REDUCTION_H
#define TCI_LOOP_SIMT_SHORT_REDUCTION_H


enum {
    TCI_WINDOW_THREADS = 128, /* of a block */
    TCI_WINDOW_ROWS = 8       /* points of a thread, at most */
};

/* A thread has a vector along the last outer axis, and `rows` neighbours along the one before. */
typedef struct tci_short_reduction {
    int lanes, row_axis, rows; /* -1, 1: there is no such axis */
    int64_t size;              /* threads */
} tci_short_reduction;

/* Fills *p; rows 0: as many as are worth it. False: not such a kernel, or not this many rows. */
TCI_FN bool tci_short_reduction_plan(const tci_kernel *k, const tci_machine *machine, int64_t rows,
                                     tci_short_reduction *p);
/* Block number `block`. */
TCI_FN void tci_short_reduction_emit(tci_build *b, const tci_short_reduction *p, tci_lin block);

#endif

/* ---- src/loop/simt_short_reduction.c, continued ---- */
enum {
    TCI_WINDOW_MOST = 128,    /* elements that are reduced */
    TCI_WINDOW_WRITTEN = 16,  /* of the last axis of them */
    TCI_WINDOW_SHORT = 2048,  /* elements of a row of a map, at most */
    TCI_WINDOW_NARROW = 2,    /* bytes of an element of a map for which its vectors are wide */
    TCI_WINDOW_HELD = 32,     /* sums that a thread holds where it is worth it */
    TCI_WINDOW_BUSY = 512,    /* threads that keep an SM busy, */
    TCI_WINDOW_BUSY_BOTH = 64 /* or that do where each reads much of both factors */
};

/* ---- whether ---- */

/* A chain of products of any length, as gradients of filters are? */
static bool tci_short_reduction_is_chain(const tci_kernel *k)
{
    return k->n_reds == 1 && k->reds[0].op == TCI_RED_DOT && k->reds[0].order == TCI_ORDER_CHAIN;
}

/* A map of short rows? */
static bool tci_short_reduction_is_map(const tci_kernel *k)
{
    return k->n_stages == 1 && k->stages[0].kind == TCI_STAGE_MAP && k->stages[0].n_axes == 0 &&
           k->n_outer > 1 && tci_dim_hint(k->axes[k->n_outer - 1].size) <= TCI_WINDOW_SHORT;
}

/* *elements: that are reduced. */
static bool tci_short_reduction_is_stages(const tci_kernel *k, int64_t *elements)
{
    bool map = tci_short_reduction_is_map(k);
    bool fits = k->vector == TCI_VEC_OUTER && k->n_outer > 1 && k->n_axes < 63 &&
                (map || (k->n_reds > 0 && k->stages[0].kind == TCI_STAGE_REDUCE &&
                         k->stages[0].n_kept == 0));
    for (int t = 1; t < k->n_stages && fits; t++) {
        fits = k->stages[t].kind == TCI_STAGE_MAP && k->stages[t].n_axes == 0;
    }
    for (int a = 0; a < k->n_axes && fits; a++) {
        fits = tci_dim_is_known(k->axes[a].size);
    }
    *elements = 1;
    if (map) {
        return fits;
    }
    int64_t most = tci_short_reduction_is_chain(k) ? TCI_WINDOW_CHAIN : TCI_WINDOW_MOST;
    for (int i = 0; i < k->stages[0].n_axes && fits; i++) {
        *elements *= tci_kernel_known(k, k->stages[0].axes[i]);
        fits = *elements <= most;
    }
    return fits && k->stages[0].n_axes > 0 &&
           (tci_short_reduction_is_chain(k) ||
            tci_kernel_known(k, k->stages[0].axes[k->stages[0].n_axes - 1]) <= TCI_WINDOW_WRITTEN);
}

/* Every sum is of that axis' points, each for itself: both factors of a product have it. Or of few
 * elements of windows, each taken by a vector of filters. */
static bool tci_short_reduction_sums_are_independent(const tci_kernel *k, int axis,
                                                     int64_t elements)
{
    bool apart = true, few = elements <= TCI_WINDOW_FEW && k->stages[0].n_axes > 1;
    for (int r = 0; r < k->n_reds && apart; r++) {
        const tci_kred *red = &k->reds[r];
        int along = 0, takes = tci_red_takes(red->op);
        for (int i = 0; i < takes; i++) {
            along += tci_build_depends(k->insts[red->in[i]].axes, axis);
        }
        apart = red->stage == 0 && red->order != TCI_ORDER_MATRIX && red->order != TCI_ORDER_TF32 &&
                red->order != TCI_ORDER_SPLIT && (along == takes || (along > 0 && few));
    }
    return apart;
}

static bool tci_short_reduction_runs(const tci_kernel *k, int x, int axis)
{
    tci_dim coef = 0;
    return tci_build_coef(k, x, axis, &coef) && (coef == 1 || coef == 0);
}

/* True if all accesses are vectors along the axis, or independent of it. *bytes: size of the
 * narrowest element read. */
static bool tci_short_reduction_is_along(const tci_kernel *k, int axis, int *bytes)
{
    bool along = true;
    *bytes = TCI_ALIGNED_BYTES;
    for (int i = 0; i < k->n_insts && along; i++) {
        const tci_kinst *in = &k->insts[i];
        for (int g = 0; g < in->n_guards; g++) {
            along = along && !tci_build_depends(tci_kx_axes(k, k->guards[in->guard + g].x), axis);
        }
        along = along && in->op != TCI_K_FAULT;
        if (in->op == TCI_K_LOAD) {
            const tci_koperand *from = &k->operands[tci_kinst_number(in)];
            along = along && tci_short_reduction_runs(k, in->x, axis) && from->panel == 0;
            *bytes = TCI_MIN(*bytes, tci_dtype_get((tc_dtype)from->dtype)->bytes);
        }
    }
    for (int i = 0; i < k->n_stores && along; i++) {
        tci_dim coef = 0;
        along = k->stores[i].mode == TCI_MODE_SET &&
                tci_build_coef(k, k->stores[i].x, axis, &coef) && coef == 1;
    }
    return along;
}

/* ---- how ---- */

static int tci_short_reduction_lanes(const tci_machine *machine, int64_t size, int bytes)
{
    int lanes = TCI_MAX(machine->vector_bytes / bytes, 1);
    while (size % lanes != 0) {
        lanes /= 2;
    }
    return lanes;
}

/* True if both operands of a chain vary with the position, so a thread reads much of both; false if
 * one is a filter that all threads share. */
static bool tci_short_reduction_reads_both(const tci_kernel *k, int row_axis)
{
    bool both = tci_short_reduction_is_chain(k);
    for (int i = 0; i < 2 && both; i++) {
        uint64_t axes = k->insts[k->reds[0].in[i]].axes;
        bool own = false;
        for (int a = 0; a < k->n_outer - 1; a++) {
            own = own || (a != row_axis && tci_build_depends(axes, a));
        }
        both = own;
    }
    return both;
}

/* Rows that divide the axis and leave threads enough. */
static int tci_short_reduction_rows(const tci_kernel *k, const tci_machine *machine,
                                    const tci_short_reduction *p, int64_t all)
{
    int64_t size = p->row_axis < 0 ? 1 : tci_kernel_known(k, p->row_axis);
    bool both = tci_short_reduction_reads_both(k, p->row_axis);
    int64_t busy = machine->facts.processors;
    busy *= both ? TCI_WINDOW_BUSY_BOTH : TCI_WINDOW_BUSY;
    int held = both ? 2 * TCI_WINDOW_HELD : TCI_WINDOW_HELD, rows = 1;
    int most = TCI_MIN(TCI_MAX(held / p->lanes, 1), TCI_WINDOW_ROWS);
    for (int r = 2; r <= most; r++) {
        rows = size % r == 0 && all / r >= busy ? r : rows;
    }
    return rows;
}

TCI_FN bool tci_short_reduction_plan(const tci_kernel *k, const tci_machine *machine, int64_t rows,
                                     tci_short_reduction *p)
{
    int vec = k->n_outer - 1, bytes;
    int64_t all = 1, elements;
    if (machine->block_threads < TCI_WINDOW_THREADS || machine->no_shared_memory ||
        !tci_short_reduction_is_stages(k, &elements) ||
        !tci_short_reduction_sums_are_independent(k, vec, elements) ||
        !tci_short_reduction_is_along(k, vec, &bytes)) {
        return false;
    }
    bytes = tci_short_reduction_is_map(k) ? TCI_MAX(bytes, TCI_WINDOW_NARROW) : bytes;
    p->lanes = tci_short_reduction_lanes(machine, tci_kernel_known(k, vec), bytes);
    p->row_axis = -1;
    for (int a = 0; a < k->n_outer; a++) {
        int64_t size = tci_kernel_known(k, a);
        all = all > INT32_MAX ? all : all * size;
        p->row_axis = a < vec && size > 1 ? a : p->row_axis;
    }
    int64_t size = p->row_axis < 0 ? 1 : tci_kernel_known(k, p->row_axis);
    p->rows = (int)rows;
    if (rows == 0) {
        p->rows = tci_short_reduction_rows(k, machine, p, all / p->lanes);
    } else if (rows < 0 || rows > TCI_WINDOW_ROWS || size % rows != 0) {
        return false;
    }
    p->size = all / p->lanes / p->rows;
    return p->lanes > 1 && all > 0 && all <= INT32_MAX;
}

/* ---- a thread ---- */

/* Binds all outer axes but that of the rows; returns the position of the first row. */
static tci_lin tci_short_reduction_bind(tci_build *b, const tci_short_reduction *p, tci_lin number)
{
    int n = b->k->n_outer;
    int64_t *sizes = TCI_NEW_ARRAY(b->s, int64_t, n), *steps = TCI_NEW_ARRAY(b->s, int64_t, n);
    tci_lin *at = TCI_NEW_ARRAY(b->s, tci_lin, n);
    for (int a = 0; a < n; a++) {
        steps[a] = a == n - 1 ? p->lanes : a == p->row_axis ? p->rows : 1;
        sizes[a] = tci_kernel_known(b->k, a) / steps[a];
    }
    tci_build_split(b, n, sizes, number, at);
    for (int a = 0; a < n; a++) {
        at[a] = tci_lin_mul(b, at[a], steps[a]);
        if (a != p->row_axis) {
            int64_t last = tci_kernel_known(b->k, a) - 1;
            tci_build_set(b, a, tci_build_bind(b, at[a], 0, last, a == n - 1, -1));
        }
    }
    return p->row_axis < 0 ? tci_lin_const(0) : at[p->row_axis];
}

TCI_FN void tci_short_reduction_emit(tci_build *b, const tci_short_reduction *p, tci_lin block)
{
    const tci_bind *rows[TCI_WINDOW_ROWS];
    bool cut = p->size % TCI_WINDOW_THREADS != 0;
    tci_lopen open;
    tci_lin thread = tci_build_let(b, tci_lx_make(b->l, TCI_LX_ROW, -1, -1, 0));
    tci_lin number = tci_lin_add(b, tci_lin_mul(b, block, TCI_WINDOW_THREADS), thread);
    if (cut) {
        tci_build_if(b, tci_build_inside(b, number, p->size), &open);
    }
    tci_lin first = tci_short_reduction_bind(b, p, number);
    if (p->row_axis >= 0) {
        tci_build_neighbours(b, p->row_axis, first, p->rows, rows);
    }
    tci_tile tile = {0};
    tile.row_axis = p->row_axis;
    tile.rows = rows;
    tile.n_rows = p->rows;
    tile.vec_axis = b->k->n_outer - 1;
    const tci_bind *vec = b->bind[tile.vec_axis];
    tile.vecs = &vec;
    tile.n_vecs = 1;
    tile.written = true;
    tci_stage_all(b, &tile);
    for (int a = 0; a < b->k->n_outer; a++) {
        tci_build_set(b, a, NULL);
    }
    if (cut) {
        tci_build_close(b, &open);
    }
}
/* ---- src/loop/gpu_schedules.c ---- */
/* loop/gpu_schedules.c - the GPU schedule kinds: for each one whether it applies, its candidate
 * parameters, its cost and its emitter.
 *
 *   product    SIMT GEMM: shared-memory tiles of a thread block (loop/simt_gemm.c)
 *   window     short reductions or rows, a vector of outputs per thread
 *              (loop/simt_short_reduction.c)
 *   spread     one thread per output point (loop/thread_per_point.c)
 *   matrix     GEMM and implicit GEMM on tensor cores, as a template (loop/wgmma_gemm.c)
 *   attention  fused attention and its gradients on tensor cores (loop/flash_attention.c)
 *   flash      the same on SIMT threads
 *   squares    transposes through shared memory (loop/smem_transpose.c)
 *   row        rows in the registers of a block or warp (loop/simt_row_block.c)
 *   warps      GEMM on the tensor cores of each warp, mma.sync (loop/mma_gemm.c)
 *
 * In: a kernel on a machine (tci_query). Out: rows of loop/schedule_kind.h, which loop/schedule.c
 * compares with those of CPUs. */
#include <string.h>


enum {
    TCI_TILE_SPREAD = 8, /* points of a thread, at most */
    TCI_ROW_BLOCK = 256, /* threads of a block of several rows */
    TCI_ROW_FEW = 4,     /* threads that read whole sectors of a row, of halves too */
    TCI_ROW_SPARE = 4,   /* vectors in registers that leave others enough */
    TCI_ROW_BUSY = 2     /* such blocks for each SM, at least */
};

/* The same of a thread's own points over tiles of few rows, where loads are guarded: tiles fetch
 * each of these elements with twice as many instructions (grouped 3x3 windows: 50, not 65 us). */
#define TCI_TILE_GUARDED 0.8

TCI_FN bool tci_blocks_are_joined(void)
{
    return true;
}

/* ---- products on GPUs ---- */

static bool tci_simt_gemm_is_kernel(const tci_query *a, tci_simt_gemm *p)
{
    memset(p, 0, sizeof(*p));
    return tci_tile_is_kernel(a) && tci_simt_gemm_plan(a->k, &a->machine, p);
}

static bool tci_products_fits(const tci_query *a, const int64_t *n)
{
    tci_simt_gemm p;
    return tci_simt_gemm_is_kernel(a, &p) && tci_simt_gemm_ns(a->k, &a->machine, n, &p) >= 0;
}

static int tci_products_candidates(const tci_query *a,
                                   int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    const tci_simt_gemm_tile *tiles = tci_simt_gemm_tiles();
    (void)a;
    for (int i = 0; i < TCI_PRODUCT_TILES; i++) {
        n[i][0] = tiles[i].rows;
        n[i][1] = tiles[i].columns;
        n[i][2] = tiles[i].row_points;
        n[i][3] = tiles[i].column_points;
    }
    return TCI_PRODUCT_TILES;
}

/* Arithmetic time if memory is not the bottleneck; among memory-bound schedules the one with less
 * arithmetic is preferred. */
static double tci_tile_with_memory(const tci_query *a, double ns)
{
    return TCI_MAX(ns, tci_query_memory_ns(a)) + 0.01 * ns;
}

static double tci_products_cost(const tci_query *a, const int64_t *n)
{
    tci_simt_gemm p;
    tci_simt_gemm_is_kernel(a, &p);
    return tci_tile_with_memory(a, tci_simt_gemm_ns(a->k, &a->machine, n, &p));
}

static void tci_products_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_simt_gemm_emit(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_products_emit(const tci_query *a, const int64_t *n, tci_build *b,
                              tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_simt_gemm p;
    tci_simt_gemm_is_kernel(a, &p);
    tci_simt_gemm_ns(a->k, &a->machine, n, &p);
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    for (int i = 0; i < a->k->n_outer; i++) {
        tiled[i] = tci_simt_gemm_has(&p, i);
    }
    b->l->lanes = 1;
    b->l->threads = p.threads;
    b->l->resident = p.resident;
    nest.tiled = tiled;
    nest.n_vec = p.columns.size;
    nest.chunk = p.columns.extent;
    nest.n_tiles = tci_dim_ceil_div(p.rows.size, p.rows.extent);
    tci_nest_run(&nest, tci_products_body, &p, launch);
}

static void tci_products_note(const tci_query *a, const int64_t *n, const tci_build *b,
                              tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", tiles %dx%d by %d threads", (int)n[0], (int)n[1], b->l->threads);
    tci_str_add(out, b->n_keeps > 0 ? ", row kept" : "");
}

/* ---- points by threads of blocks ---- */

enum { TCI_PER_POINT_SECTOR = 32 }; /* bytes of memory that are read at once */

static bool tci_per_point_is_kernel(const tci_query *a, tci_per_point *p)
{
    memset(p, 0, sizeof(*p));
    return (tci_tile_is_kernel(a) || a->is_map) && tci_per_point_plan(a->k, &a->machine, p);
}

static bool tci_per_point_form_fits(const tci_query *a, const int64_t *n)
{
    tci_per_point p;
    if (!tci_per_point_is_kernel(a, &p) || n[0] < 1 || n[0] > TCI_TILE_SPREAD) {
        return false;
    }
    return n[0] == 1 || (p.row_axis >= 0 && tci_kernel_known(a->k, p.row_axis) % n[0] == 0);
}

/* So many rows, half and twice as many, one. */
static int tci_tile_around(int rows, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    n[0][0] = rows;
    n[1][0] = rows / 2;
    n[2][0] = 2 * rows;
    n[3][0] = 1;
    return 4;
}

static int tci_per_point_candidates(const tci_query *a,
                                    int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    tci_per_point p;
    if (!tci_per_point_is_kernel(a, &p)) {
        return 0;
    }
    return tci_tile_around(p.rows, n);
}

/* Lines of memory of a factor that a warp's neighbouring points meet at once. */
static double tci_per_point_lines(const tci_query *a, const tci_per_point *p, int factor)
{
    double lines = 1;
    int64_t points = 1;
    for (int i = p->n_axes - 1; i >= 0 && points < TCI_WARP; i--) {
        int64_t size = tci_kernel_known(a->k, p->axes[i]);
        if (tci_build_depends(a->k->insts[factor].axes, p->axes[i])) {
            lines *= (double)TCI_MIN(size, tci_ceil_div(TCI_WARP, points));
        }
        points *= size;
    }
    return lines;
}

/* Time of the reads by the threads of a contraction with this many rows each: for each product
 * neighbours of the operand that has the last axis, and for each row one element of the other. */
static double tci_per_point_reads_ns(const tci_query *a, const tci_per_point *p, int64_t rows)
{
    const tci_kernel *k = a->k;
    const tci_kred *red = &k->reds[0];
    bool swap = tci_build_depends(k->insts[red->in[0]].axes, k->n_outer - 1);
    double steps = (double)p->size / (double)rows / TCI_WARP / a->machine.facts.processors;
    for (int i = 0; i < k->stages[0].n_axes; i++) {
        steps *= (double)tci_kernel_known(k, k->stages[0].axes[i]);
    }
    steps *= p->row_axis < 0 ? 1 : (double)tci_kernel_known(k, p->row_axis);
    double lines = tci_per_point_lines(a, p, red->in[swap]);
    return steps * (1 + (double)rows * lines) / a->machine.facts.ghz;
}

/* Traffic relative to the useful bytes, where a load runs along another axis than the threads:
 * neighbours then use one memory sector each, half of which is served to others from caches. */
static double tci_per_point_apart(const tci_query *a)
{
    tci_smem_transpose q;
    double apart = 1;
    if (!tci_smem_transpose_plan(a->k, a->row_axis, a->vec_axis, &q)) {
        return apart;
    }
    for (int i = 0; i < q.n_loads; i++) {
        int at = tci_kinst_number(&a->k->insts[q.loads[i]]);
        int bytes = tci_dtype_get((tc_dtype)a->k->operands[at].dtype)->bytes;
        apart = TCI_MAX(apart, TCI_PER_POINT_SECTOR / 2.0 / bytes);
    }
    return apart;
}

static double tci_per_point_cost(const tci_query *a, const int64_t *n)
{
    tci_per_point p;
    tci_per_point_is_kernel(a, &p);
    double off = (double)n[0] / (double)p.rows;
    off = 0.9 + 0.01 * (TCI_MAX(off, 1 / off) - 1);
    if (a->is_map) { /* a short axis is stored together */
        return p.row_axis < 0 ? a->ns * tci_per_point_apart(a) : off * a->ns;
    }
    tci_simt_gemm tiles = {0};
    bool dot = tci_tile_has_dot(a->k);
    bool few = dot && tci_simt_gemm_plan(a->k, &a->machine, &tiles) &&
               !tci_simt_gemm_is_large_enough(&tiles);
    off *= few && p.by_lane ? TCI_TILE_GUARDED : 1;
    double ns = few   ? TCI_MAX(a->ns, tci_per_point_reads_ns(a, &p, n[0]))
                : dot ? tci_tile_in_place(a, a->ns)
                      : a->ns;
    bool vectors = a->rows > 1 && !tci_tile_has_dot(a->k) && !p.by_lane &&
                   tci_tile_lost(a, a->lanes) < 1.2; /* read more at once */
    ns = TCI_MAX(ns * off, TCI_MAX(tci_query_arithmetic_ns(a), tci_query_memory_ns(a)));
    return vectors ? 1.1 * ns : ns;
}

static void tci_per_point_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_per_point_emit(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_per_point_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                    tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_per_point p;
    tci_per_point_is_kernel(a, &p);
    p.rows = (int)n[0];
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    memset(tiled, true, (size_t)a->k->n_outer);
    b->l->lanes = 1;
    b->l->threads = TCI_PER_POINT_THREADS;
    nest.tiled = tiled;
    nest.n_vec = p.size;
    nest.chunk = TCI_PER_POINT_THREADS;
    nest.n_tiles = p.row_axis < 0 ? 1 : tci_dim_div(a->k->axes[p.row_axis].size, p.rows);
    tci_nest_run(&nest, tci_per_point_body, &p, launch);
}

static void tci_per_point_note(const tci_query *a, const int64_t *n, const tci_build *b,
                               tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", points by %d threads, %d each", b->l->threads, (int)n[0]);
    tci_str_add(out, b->n_keeps > 0 ? ", row kept" : "");
}

/* ---- vectors of each thread ---- */

static bool tci_short_reduction_is_kernel(const tci_query *a, int64_t rows, tci_short_reduction *p)
{
    memset(p, 0, sizeof(*p));
    return (tci_tile_is_kernel(a) || a->is_map) &&
           tci_short_reduction_plan(a->k, &a->machine, rows, p);
}

static bool tci_short_reduction_fits(const tci_query *a, const int64_t *n)
{
    tci_short_reduction p;
    return n[0] > 0 && tci_short_reduction_is_kernel(a, n[0], &p);
}

static int tci_short_reduction_candidates(const tci_query *a,
                                          int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    tci_short_reduction p;
    if (!tci_short_reduction_is_kernel(a, 0, &p)) {
        return 0;
    }
    return tci_tile_around(p.rows, n);
}

/* Bounded by memory or arithmetic, where there are threads enough. */
static double tci_short_reduction_cost(const tci_query *a, const int64_t *n)
{
    tci_short_reduction own, p;
    tci_short_reduction_is_kernel(a, 0, &own);
    tci_short_reduction_is_kernel(a, n[0], &p);
    double off = (double)n[0] / (double)own.rows;
    double busy = (double)a->machine.facts.processors * TCI_WINDOW_THREADS;
    double ns = TCI_MAX(tci_query_arithmetic_ns(a), tci_query_memory_ns(a));
    ns = a->is_map ? 0.9 * a->ns : ns; /* a block of one short row has little to read at once */
    return ns * TCI_MAX(busy / (double)p.size, 1) * (1 + 0.01 * (TCI_MAX(off, 1 / off) - 1));
}

static void tci_short_reduction_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    tci_short_reduction_emit(n->b, arg, at->chunk);
}

static void tci_short_reduction_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                          tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_short_reduction p;
    tci_short_reduction_is_kernel(a, n[0], &p);
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    memset(tiled, true, (size_t)a->k->n_outer);
    b->l->lanes = p.lanes;
    b->l->rows = TCI_WINDOW_THREADS;
    nest.tiled = tiled;
    nest.n_vec = p.size;
    nest.chunk = TCI_WINDOW_THREADS;
    tci_nest_run(&nest, tci_short_reduction_body, &p, launch);
}

static void tci_short_reduction_note(const tci_query *a, const int64_t *n, const tci_build *b,
                                     tci_str *out)
{
    (void)a;
    tci_str_printf(out, ", windows by %d threads, %d each", b->l->rows, (int)n[0]);
}

/* ---- a GPU's matrix unit ---- */

static bool tci_matrix_form_is_for(const tci_query *a)
{
    return tci_query_on_unit(a) && a->machine.block_threads > 0 && a->machine.matrix_units > 0;
}

static bool tci_matrix_form_fits(const tci_query *a, const int64_t *n)
{
    return tci_matrix_form_is_for(a) && tci_matrix_ns(a->k, &a->machine, n) >= 0;
}

static int tci_matrix_form_candidates(const tci_query *a,
                                      int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    return tci_matrix_form_is_for(a) ? tci_matrix_candidates(a->k, &a->machine, n) : 0;
}

static double tci_matrix_form_cost(const tci_query *a, const int64_t *n)
{
    return tci_tile_with_memory(a, tci_matrix_ns(a->k, &a->machine, n));
}

static void tci_matrix_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                 tci_launch *launch)
{
    (void)a;
    tci_matrix_emit(b, &a->machine, n, launch);
}

static void tci_matrix_form_note(const tci_query *a, const int64_t *n, const tci_build *b,
                                 tci_str *out)
{
    const tci_matrix *x = b->l->matrix;
    (void)a, (void)n;
    const char *read = x->n_places > 0 ? ", places" : x->is_boxes ? ", boxes" : "";
    tci_str_printf(out, "matrix unit, sums in its order, tile %dx%dx%d, %d stages%s", x->rows,
                   x->columns, tci_matrix_depth(x), x->stages, read);
    if (x->shares) {
        tci_str_printf(out, ", two blocks share %s", x->shares == 1 ? "rows" : "columns");
    }
}

/* ---- attention ---- */

static bool tci_attention_form_fits(const tci_query *a, const int64_t *n)
{
    return tci_query_on_unit(a) && a->machine.block_threads > 0 &&
           tci_attention_ns(a->k, &a->machine, false, n) >= 0;
}

static bool tci_flash_form_fits(const tci_query *a, const int64_t *n)
{
    return tci_query_is_flash(a) && tci_attention_ns(a->k, &a->machine, true, n) >= 0;
}

static int tci_attention_form_candidates(const tci_query *a,
                                         int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    return tci_query_on_unit(a) ? tci_attention_tiles(a->k, false, n) : 0;
}

static int tci_flash_form_candidates(const tci_query *a,
                                     int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    return tci_query_is_flash(a) ? tci_attention_tiles(a->k, true, n) : 0;
}

static double tci_attention_form_cost(const tci_query *a, const int64_t *n)
{
    return tci_attention_ns(a->k, &a->machine, false, n);
}

static double tci_flash_form_cost(const tci_query *a, const int64_t *n)
{
    return tci_attention_ns(a->k, &a->machine, true, n);
}

static void tci_attention_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                    tci_launch *launch)
{
    tci_attention_emit(b, &a->machine, false, n, launch);
}

static void tci_flash_form_emit(const tci_query *a, const int64_t *n, tci_build *b,
                                tci_launch *launch)
{
    tci_attention_emit(b, &a->machine, true, n, launch);
}

static void tci_attention_form_note(const tci_query *a, const int64_t *n, const tci_build *b,
                                    tci_str *out)
{
    const tci_attention *x = b->l->attention;
    const char *rows = x->by_step ? "keys" : "queries", *steps = x->by_step ? "queries" : "keys";
    (void)a, (void)n;
    tci_str_add(out, x->threads ? "" : "matrix unit, ");
    tci_str_add(out, !x->is_online ? "gradients of attention" : "attention by steps");
    if (x->threads) {
        tci_str_printf(out, " %s %d threads", x->is_online ? "of" : "by", x->threads);
    }
    tci_str_printf(out, ", %d %s and %d %s", x->in[0].rows, rows, x->in[0].columns, steps);
    if (!x->threads) {
        tci_str_printf(out, ", %d stages", x->rings);
    }
    tci_str_add(out, x->turns ? ", in turns" : "");
    tci_str_add(out, x->cut.is_cut ? ", longest first" : "");
}

/* ---- square tiles ---- */

static bool tci_squares_fits(const tci_query *a, const int64_t *n)
{
    tci_smem_transpose q;
    (void)n;
    return a->is_map && a->machine.block_threads >= TCI_SMEM_TRANSPOSE_THREADS &&
           !a->machine.no_shared_memory &&
           tci_smem_transpose_plan(a->k, a->row_axis, a->vec_axis, &q);
}

static double tci_squares_cost(const tci_query *a, const int64_t *n)
{
    (void)n;
    return tci_query_ns(a, 1, 1) * tci_map_idle_lanes_factor(a);
}

static void tci_squares_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_smem_transpose_emit(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_squares_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_smem_transpose q;
    (void)n;
    tci_smem_transpose_plan(a->k, a->row_axis, a->vec_axis, &q);
    b->l->lanes = 1;
    b->l->threads = TCI_SMEM_TRANSPOSE_THREADS;
    nest.vec_axis = a->vec_axis;
    nest.row_axis = a->row_axis;
    nest.n_vec = a->n_vec;
    nest.n_tiles = tci_dim_ceil_div(a->k->axes[a->row_axis].size, TCI_SQUARE);
    nest.chunk = TCI_SQUARE;
    tci_nest_run(&nest, tci_squares_body, &q, launch);
}

static void tci_squares_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)n;
    tci_str_printf(out, ", squares %dx%d by %d threads", TCI_SQUARE, TCI_SQUARE, b->l->threads);
    tci_str_add(out, b->n_keeps > 0 ? ", row kept" : "");
}

/* ---- rows in registers ---- */

enum { TCI_ROW_THREADS, TCI_ROW_ROWS };

static int tci_row_held(const tci_query *a, int64_t threads, int64_t rows)
{
    tci_loop shape = {0};
    shape.threads = (int)threads;
    shape.rows = (int)rows;
    shape.lanes = shape.threads * (a->lanes / TCI_MAX(a->threads, 1));
    return a->machine.facts.subgroup == TCI_WARP && a->threads >= TCI_WARP
               ? tci_row_vectors(a->k, &shape)
               : 0;
}

/* True if each warp is full of rows, or has none, since its threads exchange values by shuffles. */
static bool tci_row_fills_warps(const tci_query *a, int64_t threads, int64_t rows)
{
    tci_dim points = 1;
    for (int i = 0; i < a->k->n_outer; i++) {
        points = tci_dim_mul(points, a->k->axes[i].size);
    }
    int64_t of_warp = TCI_WARP / TCI_MIN(threads, TCI_WARP);
    return rows % of_warp == 0 && (of_warp == 1 || tci_dim_divides(of_warp, points));
}

static bool tci_row_fits(const tci_query *a, const int64_t *n)
{
    int64_t threads = n[TCI_ROW_THREADS], rows = n[TCI_ROW_ROWS];
    return !tci_query_on_unit(a) && !tci_query_is_flash(a) &&
           tci_query_is_power(threads, 2, a->threads) &&
           tci_query_is_power(rows, 1, TCI_ROW_BLOCK) &&
           (rows == 1 ? threads >= TCI_WARP
                      : threads <= TCI_WARP && threads * rows <= a->machine.block_threads) &&
           (!tci_kernel_earlier(a->k) || (threads == a->threads && rows == 1)) &&
           tci_row_fills_warps(a, threads, rows) && tci_row_held(a, threads, rows) > 0;
}

/* With few threads, work done once per thread is done less often, and fewer lanes are combined; but
 * the row takes at most as many of their registers as leave space for other rows, unless it
 * must. */
static bool tci_row_is_worth(const tci_query *a, int threads, int held)
{
    bool spares = held <= TCI_ROW_SPARE && threads >= TCI_ROW_FEW;
    return held == 1 || (held > 1 && (spares || threads == a->threads));
}

/* As few threads as hold the row, then more; in large blocks if there are enough. */
static int tci_row_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    int64_t busy = (int64_t)a->machine.facts.processors * TCI_ROW_BUSY;
    int count = 0;
    for (int threads = 2; threads <= a->threads && count < TCI_FORM_CANDIDATES - 1; threads *= 2) {
        int64_t rows = threads <= TCI_WARP ? TCI_ROW_BLOCK / threads : 1;
        while (rows > 1 && tci_rows_blocks(a, rows) < busy) {
            rows /= 2;
        }
        n[count][TCI_ROW_THREADS] = threads;
        n[count][TCI_ROW_ROWS] = rows;
        count += tci_row_is_worth(a, threads, tci_row_held(a, threads, rows));
    }
    n[count][TCI_ROW_THREADS] = a->threads;
    n[count++][TCI_ROW_ROWS] = 1;
    return count;
}

static double tci_row_cost(const tci_query *a, const int64_t *n)
{
    return TCI_MAX(tci_rows_ns(a, n[TCI_ROW_THREADS], 1, 1), tci_rows_start_ns(a, n[TCI_ROW_ROWS]));
}

static void tci_row_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    (void)arg;
    tci_build_lx(n->b, at->group);
    tci_row_emit(n->b);
}

static void tci_row_emit_units(const tci_query *a, const int64_t *n, tci_build *b,
                               tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    b->l->threads = (int)n[TCI_ROW_THREADS];
    b->l->lanes = b->l->threads * (a->lanes / a->threads);
    b->l->rows = nest.rows = (int)n[TCI_ROW_ROWS];
    b->l->together = true;
    tci_nest_run(&nest, tci_row_body, NULL, launch);
}

static void tci_row_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    (void)a, (void)b;
    tci_str_add(out, ", rows in registers");
    if (n[TCI_ROW_ROWS] > 1) {
        tci_str_printf(out, ", %d a block", (int)n[TCI_ROW_ROWS]);
    }
}

/* ---- the forms ---- */

TCI_FN const tci_form *const *tci_block_forms(void)
{
    static const tci_form product = {
        "product",         {"rows", "columns", "row_points", "column_points"},
        tci_products_fits, tci_products_candidates,
        tci_products_cost, tci_products_emit,
        tci_products_note};
    static const tci_form spread = {"spread",
                                    {"rows"},
                                    tci_per_point_form_fits,
                                    tci_per_point_candidates,
                                    tci_per_point_cost,
                                    tci_per_point_form_emit,
                                    tci_per_point_note};
    static const tci_form window = {"window",
                                    {"rows"},
                                    tci_short_reduction_fits,
                                    tci_short_reduction_candidates,
                                    tci_short_reduction_cost,
                                    tci_short_reduction_form_emit,
                                    tci_short_reduction_note};
    static const tci_form matrix = {"matrix",
                                    {"consumers", "sub_rows", "columns", "shares"},
                                    tci_matrix_form_fits,
                                    tci_matrix_form_candidates,
                                    tci_matrix_form_cost,
                                    tci_matrix_form_emit,
                                    tci_matrix_form_note};
    static const tci_form attention = {"attention",
                                       {"consumers", "steps", "turns"},
                                       tci_attention_form_fits,
                                       tci_attention_form_candidates,
                                       tci_attention_form_cost,
                                       tci_attention_form_emit,
                                       tci_attention_form_note};
    static const tci_form flash = {"flash",
                                   {"rows", "steps"},
                                   tci_flash_form_fits,
                                   tci_flash_form_candidates,
                                   tci_flash_form_cost,
                                   tci_flash_form_emit,
                                   tci_attention_form_note};
    static const tci_form squares = {"squares",        {0},
                                     tci_squares_fits, NULL,
                                     tci_squares_cost, tci_squares_emit,
                                     tci_squares_note};
    static const tci_form row = {"row",        {"threads", "rows"},
                                 tci_row_fits, tci_row_candidates,
                                 tci_row_cost, tci_row_emit_units,
                                 tci_row_note};
    static const tci_form *const forms[] = {&product, &window,  &spread, &matrix, &attention,
                                            &flash,   &squares, &row,    NULL};
    return forms;
}
/* ---- src/loop/mma_gemm.c ---- */
/* loop/mma_gemm.c - emits the mma.sync GEMM: shared-memory panels, accumulators in the registers of
 * warps.
 *
 * In: a kernel whose contraction has TCI_ORDER_MATRIX or TCI_ORDER_TF32, or has int8 operands, on a
 * GPU whose warps have tensor cores (kernel/match_mma_sync.h). Out: the statements for one
 * tile of the result.
 *
 * Design: as in loop/simt_gemm.c, the block evaluates the operands' own expressions K block by K
 * block into two shared panels, so windows, padding, transposes and cheap arithmetic cost no more
 * than the index of an element, and the next K block is loaded while one is multiplied. The inner
 * step differs: each warp has a part of the tile, takes 16 rows of 32 bytes (64 of f64) from a
 * panel as one operand of mma.sync, and adds products of 16 x 16 to accumulators in registers.
 * Panels hold the dtype of the instruction.
 *
 * A panel has the order of its operand's memory: [own][depth] if that is contiguous along K, else
 * [depth][own], which the loads (ldmatrix) transpose; for 8-bit and f64 operands they pair rows of
 * the operand's two halves, and the rows and columns of the accumulators are permuted accordingly.
 * Runs of 16 contiguous bytes at multiples of 16 bytes, possibly over several axes, under guards
 * that do not separate them, are copied whole; everything else is copied element by element.
 * Elements past the end of K are zeros; positions past the end of a side are computed from the last
 * ones inside, and not stored.
 *
 * Bank conflicts: a read takes 8 rows of 16 bytes at once, which is conflict-free if a row is an
 * odd number of 16 bytes long: 64 bytes of a slab and 16, or 64 to 256 of a side and 16. A 16-byte
 * store is executed by 8 threads at once, in two rows of a panel [own][depth], four apart, so that
 * loads touch few lines of memory, or in one row of the other order. f32 is transposed by reads of
 * 4 bytes, of 4 rows and 8 columns: rows of 8 words plus a multiple of 32 are conflict-free. f64
 * is read 16 bytes at once, of 2 contiguous rows of 64 bytes, or of every other one of 8 rows, 2
 * columns each.
 *
 * Floor, for a tile of 128 x 128 and a slab of 64 bytes in a block of four warps with 64 x 64
 * each, in half precision, on an SM with 1024 multiply-adds per cycle: 512 cycles of tensor cores;
 * 4 warps x 2 steps x 8 reads of 512 bytes and 16 KB of stores, 384 cycles of shared memory; 131
 * instructions per warp by ptxas 12.9 (64 mma, 16 ldmatrix, 16 moves, 35 of indices), 131 cycles
 * of issue, as there are four warps. Element by element the slab's 8192 elements take 12
 * instructions each, 770 cycles. */

#include <math.h>
#include <string.h>


enum {
    TCI_MMA_TILES = 8,
    TCI_MMA_SIDE = 16,      /* rows of a factor */
    TCI_MMA_STEP = 32,      /* bytes of the depth that a product takes, */
    TCI_MMA_SLAB = 64,      /* and that a slab has, and a product of f64 takes */
    TCI_MMA_SUMS = 1 << 17, /* bytes of an SM's accumulators, at most: half of its registers */
    TCI_MMA_WIDE = 8,       /* times that a product of f64 takes as long as others, */
    TCI_MMA_SHARED = 3,     /* and one of what a block's unit takes as that does */
    TCI_MMA_MOVE = 12,      /* instructions to move 16 bytes or an element */
    TCI_MMA_BUSY = 8,       /* warps that hide each other's waits; of f64 twice as many */
    TCI_MMA_RESIDENT = 256, /* threads that an SM should hold at once, at least */
    TCI_MMA_LINE = 128,     /* bytes of shared memory in a cycle */
    TCI_MMA_ROWS = 8        /* rows of a panel that threads take in turns */
};

typedef struct tci_mma_tile {
    int16_t rows, columns;
    int8_t row_warps, column_warps;
} tci_mma_tile;

typedef struct tci_mma {
    tci_simt_gemm p; /* its sides' extents, of a tile; threads and resident */
    tci_mma_sync_unit unit;
    int warps[2];  /* along the rows, along the columns */
    int bytes;     /* of an element in a panel */
    bool moves[2]; /* a side is moved 16 bytes at once */
} tci_mma;

/* ---- whether and how ---- */

static bool tci_mma_is_kernel(const tci_query *a, tci_mma *w)
{
    memset(w, 0, sizeof(*w));
    if (!tci_mma_sync_takes(a->k, &a->machine, &w->unit) ||
        !(w->unit.is_exact || tci_query_on_unit(a)) || !tci_simt_gemm_take_sides(a->k, &w->p)) {
        return false;
    }
    w->p.rows.inst = w->unit.insts[0];
    w->p.columns.inst = w->unit.insts[1];
    w->bytes = tci_dtype_get(w->unit.dtypes[0])->bytes;
    return true;
}

/* Bytes of the depth that a product takes. */
static int64_t tci_mma_step(const tci_mma *w)
{
    return w->bytes > 4 ? TCI_MMA_SLAB : TCI_MMA_STEP;
}

/* True if elements 2 i and 2 i + 1 of the side are the rows i and i + 8 of a fragment. */
static bool tci_mma_is_paired(const tci_mma *w, const tci_simt_gemm_side *side)
{
    return !side->along_depth && (w->bytes == 1 || w->bytes > 4);
}

/* True if groups of n neighbours along the contiguous axes, starting at multiples of n, are n
 * elements of memory at a multiple of n, all of them valid or none. */
static bool tci_mma_moves(const tci_kernel *k, const tci_simt_gemm_side *side, int64_t n)
{
    const tci_kinst *in = &k->insts[side->inst];
    const tci_kstage *stage = &k->stages[0];
    int n_axes = side->along_depth ? stage->n_axes : side->n_axes;
    const int *axes = side->along_depth ? stage->axes : side->axes;
    int64_t offset = 0, *coef = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes), run = 1;
    if (in->op != TCI_K_LOAD || in->value.u != 0 || !tci_kx_affine_known(k, in->x, coef, &offset)) {
        return false;
    }
    uint64_t within = 0; /* axes that follow each other in memory */
    for (int i = n_axes - 1; i >= 0 && coef[axes[i]] == run; i--) {
        within |= (uint64_t)1 << axes[i];
        run *= tci_kernel_known(k, axes[i]);
    }
    bool fits = offset % n == 0 && run % n == 0;
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && ((within >> a & 1) || coef[a] % n == 0);
    }
    for (int i = 0; i < in->n_guards; i++) {
        fits = fits && !(tci_kx_axes(k, k->guards[in->guard + i].x) & within);
    }
    return fits && within != 0;
}

static const tci_mma_tile *tci_mma_tiles(void)
{
    static const tci_mma_tile tiles[TCI_MMA_TILES] = {{128, 128, 2, 2}, {128, 128, 2, 4},
                                                      {128, 64, 4, 2},  {64, 128, 2, 4},
                                                      {64, 64, 2, 2},   {32, 128, 1, 4},
                                                      {128, 32, 4, 1},  {32, 64, 1, 2}};
    return tiles;
}

static void tci_mma_set_side(const tci_kernel *k, tci_mma *w, tci_simt_gemm_side *side, int f,
                             int64_t extent)
{
    side->extent = extent;
    side->points = (int)(extent / w->warps[f] / TCI_MMA_SIDE) * (f == 0 ? 2 : 4);
    w->moves[f] = tci_mma_moves(k, side, TCI_ALIGNED_BYTES / w->bytes);
}

/* Gives *w the tile; false: there is no such tile. */
static bool tci_mma_set_tile(const tci_query *a, const int64_t *n, tci_mma *w)
{
    const tci_mma_tile *tiles = tci_mma_tiles();
    for (int i = 0; i < TCI_MMA_TILES; i++) {
        if (tiles[i].rows == n[0] && tiles[i].columns == n[1] && tiles[i].row_warps == n[2] &&
            tiles[i].column_warps == n[3]) {
            w->warps[0] = tiles[i].row_warps;
            w->warps[1] = tiles[i].column_warps;
            w->p.threads = TCI_WARP * w->warps[0] * w->warps[1];
            w->p.resident = TCI_MAX(TCI_MMA_RESIDENT / w->p.threads, 2);
            tci_mma_set_side(a->k, w, &w->p.rows, 0, n[0]);
            tci_mma_set_side(a->k, w, &w->p.columns, 1, n[1]);
            return n[0] * n[1] * w->p.resident * tci_dtype_get(w->unit.sums)->bytes <= TCI_MMA_SUMS;
        }
    }
    return false;
}

static bool tci_mma_fits(const tci_query *a, const int64_t *n)
{
    tci_mma w;
    return tci_mma_is_kernel(a, &w) && tci_mma_set_tile(a, n, &w);
}

static int tci_mma_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    const tci_mma_tile *tiles = tci_mma_tiles();
    (void)a;
    for (int i = 0; i < TCI_MMA_TILES; i++) {
        const int64_t numbers[] = {tiles[i].rows, tiles[i].columns, tiles[i].row_warps,
                                   tiles[i].column_warps};
        memcpy(n[i], numbers, sizeof(numbers));
    }
    return TCI_MMA_TILES;
}

/* Instructions of a warp for a slab: what moves, and what multiplies. */
static double tci_mma_moved(const tci_mma *w, const tci_simt_gemm_side *side, int f)
{
    double elements = (double)side->extent * TCI_MMA_SLAB / w->bytes;
    double pieces = w->moves[f] ? elements * w->bytes / TCI_ALIGNED_BYTES : elements;
    return pieces / w->p.threads * TCI_MMA_MOVE;
}

/* Cycles of the busiest SM for a slab: the slowest of its unit, shared memory and issuing,
 * and more where few warps hide each other's waits. */
static double tci_mma_cycles(const tci_query *a, const tci_mma *w)
{
    const tci_kernel *k = a->k;
    double points = 1;
    for (int i = 0; i < k->n_outer; i++) {
        points *= tci_simt_gemm_has(&w->p, i) ? 1 : (double)tci_kernel_known(k, i);
    }
    const tci_simt_gemm_side *rows = &w->p.rows, *columns = &w->p.columns;
    double tiles = points * (double)tci_ceil_div(rows->size, rows->extent) *
                   (double)tci_ceil_div(columns->size, columns->extent);
    double rounds = ceil(tiles / a->machine.facts.processors), warps = w->p.threads / TCI_WARP;
    double steps = TCI_MMA_SLAB / (double)tci_mma_step(w);
    double row_takes = (double)rows->extent / w->warps[0] / TCI_MMA_SIDE;
    double column_takes = (double)columns->extent / w->warps[1] / TCI_MMA_SIDE;
    double takes = warps * steps * (row_takes + column_takes);
    double products = warps * steps * row_takes * column_takes;
    /* of 16 x 16 x 16 halves, or of as many bytes of others, which take as long */
    double unit = products * 2 * 16 * 16 * 16 / a->machine.facts.matrix_flops;
    unit *= w->bytes > 4 ? TCI_MMA_WIDE : 1;
    double stored = (double)(rows->extent + columns->extent) * TCI_MMA_SLAB;
    double taken = takes * TCI_MMA_SIDE * (double)tci_mma_step(w);
    double shared = (taken + stored) / TCI_MMA_LINE;
    double moved = tci_mma_moved(w, rows, 0) + tci_mma_moved(w, columns, 1);
    double issued = (2 * products + takes + warps * moved) / 4;
    double busy = TCI_MIN(rounds, w->p.resident) * warps;
    double needed = w->bytes > 4 ? 2 * TCI_MMA_BUSY : TCI_MMA_BUSY;
    double hidden = busy >= needed ? 1 : 0.5 + 0.5 * busy / needed;
    return rounds * TCI_MAX(unit, TCI_MAX(shared, issued)) / hidden;
}

static double tci_mma_cost(const tci_query *a, const int64_t *n)
{
    tci_mma w;
    tci_mma_is_kernel(a, &w);
    tci_mma_set_tile(a, n, &w);
    double slabs = (double)tci_ceil_div(w.p.depth * w.bytes, TCI_MMA_SLAB);
    double ns = tci_mma_cycles(a, &w) * slabs / a->machine.facts.ghz;
    ns *= a->machine.matrix_units > 0 && tci_query_on_unit(a) ? TCI_MMA_SHARED : 1;
    return TCI_MAX(ns, tci_query_memory_ns(a)) + 0.01 * ns;
}

/* ---- the state of one tile ---- */

/* One factor: its panel, and what waits for its turn. */
typedef struct tci_mma_panel {
    const tci_simt_gemm_side *side;
    bool moves;
    tci_lin base;      /* of the tile along the axis */
    tci_lin depth, at; /* this thread's first piece: in the slab, and along the axis */
    int64_t step;      /* to its next piece, along whichever of the two moves */
    int n;             /* pieces of a thread */
    int local;         /* panel */
    int64_t pitch;     /* elements between its lines, and all of one half */
    int64_t half;
    int *waiting; /* n mutable values */
    tci_lin take; /* where the warp's part begins along the axis */
    int n_takes;  /* factors in it */
} tci_mma_panel;

typedef struct tci_mma_state {
    tci_build *b;
    const tci_mma *w;
    tci_mma_panel panels[2]; /* rows, columns */
    int *acc;                /* take of the rows * takes of the columns + take of these */
} tci_mma_state;

static int64_t tci_mma_slab(const tci_mma *w)
{
    return TCI_MMA_SLAB / w->bytes;
}

/* Bytes between the lines of a panel. */
static int64_t tci_mma_gap(const tci_mma *w, const tci_simt_gemm_side *side)
{
    int64_t turned = w->bytes == 4 ? 2 * TCI_ALIGNED_BYTES : TCI_ALIGNED_BYTES;
    return !side->along_depth ? turned : w->bytes > 4 ? 0 : TCI_ALIGNED_BYTES;
}

/* Pieces of a thread: this many across a line of the panel; moved along the depth, those that are
 * stored at once are all of two lines, four apart. */
static void tci_mma_place(tci_build *b, const tci_mma *w, tci_mma_panel *panel)
{
    bool along = panel->side->along_depth;
    int64_t piece = panel->moves ? TCI_ALIGNED_BYTES / w->bytes : 1;
    int64_t line = along ? tci_mma_slab(w) : panel->side->extent, across = line / piece;
    tci_lin low, high;
    low = tci_simt_gemm_thread(b, TCI_LX_MOD, across);
    high = tci_simt_gemm_thread(b, TCI_LX_DIV, across);
    if (along && panel->moves && w->bytes <= 4) {
        tci_lin far = tci_simt_gemm_digit(b, across, 2),
                near = tci_simt_gemm_digit(b, 2 * across, 4);
        high = tci_simt_gemm_thread(b, TCI_LX_DIV, TCI_MMA_ROWS * across);
        high = tci_lin_add(b, tci_lin_mul(b, high, TCI_MMA_ROWS), near);
        high = tci_lin_add(b, high, tci_lin_mul(b, far, TCI_MMA_ROWS / 2));
    }
    low = tci_lin_mul(b, low, piece);
    panel->depth = along ? low : high;
    panel->at = along ? high : low;
    panel->step = w->p.threads / across;
    panel->n = (int)(panel->side->extent * tci_mma_slab(w) / piece / w->p.threads);
}

static void tci_mma_open_panel(tci_build *b, const tci_mma *w, int f, tci_lin tile,
                               tci_mma_panel *panel)
{
    const tci_simt_gemm_side *side = f == 0 ? &w->p.rows : &w->p.columns;
    int64_t slab = tci_mma_slab(w), part = side->extent / w->warps[f];
    panel->side = side;
    panel->moves = w->moves[f];
    panel->base = tci_lin_mul(b, tile, side->extent);
    tci_mma_place(b, w, panel);
    panel->pitch = (side->along_depth ? slab : side->extent) + tci_mma_gap(w, side) / w->bytes;
    panel->half = panel->pitch * (side->along_depth ? side->extent : slab);
    panel->local = tci_build_local(b, w->unit.dtypes[f], 2 * panel->half, b->cur);
    panel->waiting = TCI_NEW_ARRAY(b->s, int, panel->n);
    tci_lin warp = f == 0 ? tci_simt_gemm_thread(b, TCI_LX_DIV, TCI_WARP * w->warps[1])
                          : tci_simt_gemm_digit(b, TCI_WARP, w->warps[1]);
    panel->take = tci_lin_mul(b, warp, part);
    panel->n_takes = (int)(part / TCI_MMA_SIDE);
}

static tci_lstmt tci_mma_stmt(tci_mem mem, int base, int x)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)mem;
    st.base = base;
    st.x = x;
    return st;
}

/* TCI_UNIT_WORDS of each thread. */
static int tci_mma_words(tci_build *b, tci_lstmt st, tc_dtype t)
{
    return tci_build_mem(b, st, t, TCI_UNIT_WORDS * b->l->threads, b->cur);
}

/* ---- slabs ---- */

static int tci_mma_and(tci_build *b, int x, int y)
{
    int args[2] = {x, y};
    return x < 0 ? y : tci_build_prim(b, TCI_P_AND, TC_BOOL, 2, args, 0);
}

/* Whether a load's guards hold at the current bindings, and `also` (-1: true); -1: always. */
static int tci_mma_guards(tci_build *b, const tci_kinst *in, int also)
{
    for (int i = 0; i < in->n_guards; i++) {
        const tci_kguard *g = &b->k->guards[in->guard + i];
        tci_dim lo, hi;
        tci_build_range(b, g->x, &lo, &hi);
        if (!tci_dim_le(g->lo, lo) || !tci_dim_le(hi, g->hi)) {
            int x = tci_build_lx(b, tci_build_kx(b, g->x));
            also = tci_mma_and(b, also, tci_build_in_range(b, x, g->lo, g->hi));
        }
    }
    return also;
}

/* The piece at the current bindings; zeros where `there` (-1: true) does not hold. */
static int tci_mma_piece(tci_build *b, const tci_mma_panel *panel, int there)
{
    int inst = panel->side->inst;
    const tci_kinst *in = &b->k->insts[inst];
    if (panel->moves) {
        int x = tci_build_lx(b, tci_build_kx(b, in->x));
        int condition = tci_mma_guards(b, in, there);
        tci_lstmt st = tci_mma_stmt(condition < 0 ? TCI_MEM_WORDS : TCI_MEM_WORDS_IF,
                                    tci_kinst_number(in), x);
        st.args[0] = condition;
        return tci_mma_words(b, st, TC_U32);
    }
    tc_dtype held = (tc_dtype)b->l->locals[panel->local].dtype;
    tc_dtype t = tci_dtype_is_byte(held) ? held : (tc_dtype)in->dtype;
    int value = tci_build_value(b, inst);
    value = t == (tc_dtype)in->dtype ? value : tci_build_prim(b, TCI_P_CAST, t, 1, &value, 0);
    tci_value zero = {.u = 0};
    int args[3] = {there, value, tci_build_const(b, t, zero)};
    return there < 0 ? value : tci_build_prim(b, TCI_P_SELECT, t, 3, args, 0);
}

/* An axis at the last piece inside, at most. */
static tci_lin tci_mma_inside(tci_build *b, const tci_mma *w, const tci_mma_panel *panel, tci_lin x,
                              int64_t size, bool runs)
{
    int64_t piece = panel->moves && runs ? TCI_ALIGNED_BYTES / w->bytes : 1;
    return tci_simt_gemm_inside(b, x, size - piece + 1);
}

/* Evaluates this thread's pieces of the slab from `from` on; first: the values are made. */
static void tci_mma_load(tci_mma_state *s, tci_mma_panel *panel, tci_lin from, bool first)
{
    tci_build *b = s->b;
    const tci_simt_gemm_side *side = panel->side;
    tci_simt_gemm_walk walk = tci_simt_gemm_walk_of(b, side);
    int64_t size = s->w->p.depth;
    bool cut = side->size % side->extent != 0, tail = size % tci_mma_slab(s->w) != 0;
    for (int i = 0; i < panel->n; i++) {
        int64_t skip = i * panel->step;
        tci_lin depth = tci_lin_plus(tci_lin_add(b, from, panel->depth),
                                     side->along_depth ? 0 : skip);
        tci_lin at = tci_lin_plus(tci_lin_add(b, panel->base, panel->at),
                                  side->along_depth ? skip : 0);
        int there = tail ? tci_build_inside(b, depth, size) : -1;
        depth = tail ? tci_mma_inside(b, s->w, panel, depth, size, side->along_depth) : depth;
        at = cut ? tci_mma_inside(b, s->w, panel, at, side->size, !side->along_depth) : at;
        tci_simt_gemm_bind(b, &walk, depth, at);
        tci_simt_gemm_wait(b, &panel->waiting[i], tci_mma_piece(b, panel, there), first);
    }
    tci_simt_gemm_unbind(b, &walk);
}

static void tci_mma_load_both(tci_mma_state *s, tci_lin from, bool first)
{
    tci_mma_load(s, &s->panels[0], from, first);
    tci_mma_load(s, &s->panels[1], from, first);
}

/* The waiting registers become the panels number `half`. */
static void tci_mma_publish(tci_mma_state *s, tci_lin half)
{
    tci_build *b = s->b;
    for (int f = 0; f < 2; f++) {
        const tci_mma_panel *panel = &s->panels[f];
        bool along = panel->side->along_depth;
        tci_lin line = along ? panel->at : panel->depth, in_line = along ? panel->depth : panel->at;
        tci_lin first = tci_lin_add(b, tci_lin_mul(b, line, panel->pitch), in_line);
        first = tci_lin_add(b, first, tci_lin_mul(b, half, panel->half));
        for (int i = 0; i < panel->n; i++) {
            int x = tci_build_lx(b, tci_lin_plus(first, i * panel->step * panel->pitch));
            tci_lstmt st = tci_mma_stmt(panel->moves ? TCI_MEM_STORE_WORDS : TCI_MEM_STORE_UNIT,
                                        ~panel->local, x);
            st.args[0] = panel->waiting[i];
            tci_build_mem(b, st, TC_F32, 1, b->cur);
        }
    }
    tci_simt_gemm_barrier(b);
}

static tc_dtype tci_mma_factor(tc_dtype t)
{
    return t == TC_F64 ? TC_F64 : t == TC_I8 ? TC_I32 : TC_U32;
}

/* The warp's factors of a side, from a position of the panel along the depth. */
static void tci_mma_take(tci_mma_state *s, int f, tci_lin half, tci_lin depth, int *factors)
{
    tci_build *b = s->b;
    const tci_mma_panel *panel = &s->panels[f];
    static const tci_mem takes[2][2] = {{TCI_MEM_UNIT_ROWS_TURNED, TCI_MEM_UNIT_ROWS},
                                        {TCI_MEM_UNIT_COLUMNS_TURNED, TCI_MEM_UNIT_COLUMNS}};
    bool along = panel->side->along_depth;
    tci_lin first = tci_lin_mul(b, half, panel->half);
    first = tci_lin_add(b, first, tci_lin_mul(b, panel->take, along ? panel->pitch : 1));
    first = tci_lin_add(b, first, tci_lin_mul(b, depth, along ? 1 : panel->pitch));
    for (int i = 0; i < panel->n_takes; i++) {
        int64_t skip = (int64_t)i * TCI_MMA_SIDE * (along ? panel->pitch : 1);
        tci_lstmt st = tci_mma_stmt(takes[f][along], ~panel->local,
                                    tci_build_lx(b, tci_lin_plus(first, skip)));
        st.imm = panel->pitch;
        factors[i] = tci_mma_words(b, st, tci_mma_factor(s->w->unit.dtypes[f]));
    }
}

/* The panels number `half`. */
static void tci_mma_multiply(tci_mma_state *s, tci_lin half)
{
    tci_build *b = s->b;
    int n_rows = s->panels[0].n_takes, n_columns = s->panels[1].n_takes;
    int *rows = TCI_NEW_ARRAY(b->s, int, n_rows), *columns = TCI_NEW_ARRAY(b->s, int, n_columns);
    int64_t step = tci_mma_step(s->w) / s->w->bytes;
    tci_lopen open;
    int i = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, tci_mma_slab(s->w)), step,
                          &open);
    open.st.unroll = (int)(TCI_MMA_SLAB / tci_mma_step(s->w));
    b->l->indices[i].multiple = step;
    tci_mma_take(s, 0, half, tci_lin_var(b, i), rows);
    tci_mma_take(s, 1, half, tci_lin_var(b, i), columns);
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < n_columns; c++) {
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_UNIT_DOT;
            st.args[0] = s->acc[r * n_columns + c];
            st.args[1] = rows[r];
            st.args[2] = columns[c];
            st.imm = (int64_t)(s->w->bytes == 1 ? TC_I8 : s->w->unit.dtypes[0]);
            tci_build_assign(b, st.args[0],
                             tci_build_mem(b, st, s->w->unit.sums, TCI_UNIT_SUMS * b->l->threads,
                                           b->cur));
        }
    }
    tci_build_close(b, &open);
}

static void tci_mma_slabs(tci_mma_state *s)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int64_t slab = tci_mma_slab(s->w), n = tci_ceil_div(s->w->p.depth, slab) - 1;
    tci_lopen open;
    tci_mma_load_both(s, tci_lin_const(0), true);
    tci_mma_publish(s, tci_lin_const(0));
    int i = tci_build_for(b, tci_lx_const(l, 0), tci_lx_const(l, n), 1, &open);
    tci_lin half = tci_build_let(b, tci_lx_make(l, TCI_LX_MOD, tci_lx_var(l, i), -1, 2));
    tci_lin after = tci_lin_plus(tci_lin_var(b, i), 1);
    tci_mma_load_both(s, tci_lin_mul(b, after, slab), false);
    tci_mma_multiply(s, half);
    tci_mma_publish(s, tci_lin_plus(tci_lin_mul(b, half, -1), 1));
    tci_build_close(b, &open);
    tci_mma_multiply(s, tci_lin_const(n % 2));
}

/* ---- the result ---- */

/* Of a thread's part of 16 x 16 accumulators: two rows, and two columns that are neighbours in each
 * half of them, after row lane / 4 and column 2 (lane % 4), lane its number in the warp. Where a
 * side is in pairs the halves are what is even and what is odd. */
static tci_simt_gemm_points tci_mma_points(tci_build *b, const tci_mma *w,
                                           const tci_mma_panel *panel, int f)
{
    int n = panel->side->points, each = n / panel->n_takes;
    bool paired = tci_mma_is_paired(w, panel->side);
    int64_t *skip = TCI_NEW_ARRAY(b->s, int64_t, n);
    for (int i = 0; i < n; i++) {
        int within = i % each;
        int apart = f == 0 ? 8 * within : within / 2 * 8 + within % 2;
        skip[i] = (int64_t)(i / each) * TCI_MMA_SIDE + (paired ? within : apart);
    }
    tci_lin lane = f == 0 ? tci_simt_gemm_digit(b, 4, TCI_WARP / 4)
                          : tci_simt_gemm_thread(b, TCI_LX_MOD, 4);
    lane = tci_lin_mul(b, lane, (f == 0 ? 1 : 2) * (paired ? 2 : 1));
    tci_lin first = tci_lin_add(b, tci_lin_add(b, panel->base, panel->take), lane);
    return (tci_simt_gemm_points){panel->side, first, n, skip, f == 1};
}

static tci_stage_tuple tci_mma_sum(tci_build *b, void *arg, int row, int column)
{
    const tci_mma_state *s = arg;
    tc_dtype sums = s->w->unit.sums, t = (tc_dtype)b->k->reds[0].dtype;
    int high = column % 4 / 2, low = column % 2;
    bool paired = tci_mma_is_paired(s->w, s->panels[1].side);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_UNIT_SUM;
    st.args[0] = s->acc[row / 2 * s->panels[1].n_takes + column / 4];
    st.imm = row % 2 * 2 + (paired ? low * 4 + high : high * 4 + low);
    int value = tci_build_mem(b, st, sums, 1, b->cur);
    return tci_stage_tuple_of(t == sums ? value : tci_build_prim(b, TCI_P_CAST, t, 1, &value, 0),
                              -1);
}

static void tci_mma_tile_body(tci_build *b, const tci_mma *w, tci_lin row, tci_lin column)
{
    tci_mma_state s = {b, w, {{0}}, NULL};
    b->stage = 0;
    tci_mma_open_panel(b, w, 0, row, &s.panels[0]);
    tci_mma_open_panel(b, w, 1, column, &s.panels[1]);
    int n = s.panels[0].n_takes * s.panels[1].n_takes;
    s.acc = TCI_NEW_ARRAY(b->s, int, n);
    for (int i = 0; i < n; i++) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_UNIT_ZERO;
        int zero = tci_build_mem(b, st, w->unit.sums, TCI_UNIT_SUMS * b->l->threads, b->cur);
        s.acc[i] = tci_build_mutable(b, zero);
    }
    tci_mma_slabs(&s);
    const tci_simt_gemm_points points[2] = {tci_mma_points(b, w, &s.panels[0], 0),
                                            tci_mma_points(b, w, &s.panels[1], 1)};
    tci_simt_gemm_finish(b, points, tci_mma_sum, &s);
}

/* ---- the form ---- */

static void tci_mma_body(tci_nest *n, void *arg, const tci_nest_at *at)
{
    int group = tci_build_lx(n->b, at->group);
    tci_mma_tile_body(n->b, arg, tci_build_let(n->b, group), at->chunk);
}

static void tci_mma_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_mma w;
    tci_mma_is_kernel(a, &w);
    tci_mma_set_tile(a, n, &w);
    bool *tiled = TCI_NEW_ARRAY(a->s, bool, a->k->n_outer);
    for (int i = 0; i < a->k->n_outer; i++) {
        tiled[i] = tci_simt_gemm_has(&w.p, i);
    }
    b->l->lanes = 1;
    b->l->threads = w.p.threads;
    b->l->resident = w.p.resident;
    nest.tiled = tiled;
    nest.n_vec = w.p.columns.size;
    nest.chunk = w.p.columns.extent;
    nest.n_tiles = tci_dim_ceil_div(w.p.rows.size, w.p.rows.extent);
    tci_nest_run(&nest, tci_mma_body, &w, launch);
}

static void tci_mma_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    tci_mma w;
    tci_mma_is_kernel(a, &w);
    tci_mma_set_tile(a, n, &w);
    const tc_dtype *t = w.unit.dtypes;
    const char *names[2] = {tci_dtype_get(t[0])->name, tci_dtype_get(t[1])->name};
    tci_str_printf(out, ", matrix unit of each warp, %s%s%s, tiles %dx%d by %d threads",
                   t[0] == TC_F32 ? "tf32" : names[0], t[0] == t[1] ? "" : " and ",
                   t[0] == t[1] ? "" : names[1], (int)n[0], (int)n[1], b->l->threads);
}

TCI_FN const tci_form *const *tci_mma_forms(void)
{
    static const tci_form warps = {"warps",      {"rows", "columns", "row_warps", "column_warps"},
                                   tci_mma_fits, tci_mma_candidates,
                                   tci_mma_cost, tci_mma_emit,
                                   tci_mma_note};
    static const tci_form *const forms[] = {&warps, NULL};
    return forms;
}
/* ---- src/plan/scatter_sort.c ---- */
/* plan/scatter_sort.c - rewrites scatter-add on GPUs as a sort of its indices and a segmented
 * reduction.
 *
 * In: a SCATTER with one index per row (constant along the other axes). Out: a SEGMENT that gives
 * each element of x the result of its segment of src in sorted order, in the order of SCATTER
 * (kernel/ir.h): the same bits. A SCATTER iterates over src sequentially; here the elements of x
 * are parallel, and src is read once, wherever the index points.
 *
 * The order is a stable sort of the index: unique sort keys (index, position) packed into one
 * integer, i32 if they fit. Its kernels are ordinary ones. The cheaper of two algorithms is taken:
 *
 *   ranks    all words are compared with all, n * n comparisons, in three kernels:
 *     words    are made
 *     counts   for each word, of the greater ones in each chunk of words
 *     words    move to the positions that follow from the counts, by disjoint stores
 *   digits   TCI_ORDER_BITS of the index at a time, lowest first (radix sort), five kernels each:
 *     digits   of the words in their present order; the first pass makes the words too
 *     counts   of each digit in each chunk, by comparing the chunk with every digit
 *     begins   of each digit in each chunk: prefix sums of the counts over digits and chunks
 *     ranks    the number of equal digits before it in the chunk, by comparing again
 *     words    move to their positions, begin + rank
 *
 * The cost model assumes 2 us per small kernel, and the same time for TCI_ORDER_COMPARED i32
 * comparisons: an H100 issues their 2.5 instructions in two of three cycles. So ranks serve up to
 * some 5000 indices of 8 bits, and 10000 to 14000 of more. A chunk is sized so that neither
 * comparisons nor prefix sums take long. The start of an element's segment is found by binary
 * search in the sorted words. Nodes are hash-consed, so SCATTERs with the same index share its
 * sort.
 *
 * Example: the gradient of 8192 rows of 512 floats read from a table of 32000 moves at least 82
 * MB; 4 small kernels precede it. */

enum {
    TCI_ORDER_READS = 512,   /* least elements of src along the axis */
    TCI_ORDER_CHUNK = 256,   /* words, at least; twice and four times as many where there are */
    TCI_ORDER_CHUNKS = 1024, /* more chunks than this */
    TCI_ORDER_NEAR = 8,      /* neighbours of a chunk of ranks */
    TCI_ORDER_COMPARED = 1 << 24, /* comparisons in the time of a small kernel */
    TCI_ORDER_BITS = 8,
    TCI_ORDER_RANK_KERNELS = 3,
    TCI_ORDER_DIGIT_KERNELS = 5 /* of each digit */
};
static const int64_t tci_order_most = (int64_t)1 << 30;

typedef struct tci_order {
    const tci_algo *a;
    tci_scratch *s;
    tci_graph *g;
    int64_t keys;             /* indices are below it; what fills up the last chunk has it */
    int64_t n, chunk, chunks; /* words */
    tc_dtype word;
    int low; /* bits of a word below its index: those of positions */
} tci_order;

/* ---- nodes ---- */

static tci_node *tci_order_built(const tci_order *o, tci_node *n)
{
    TCI_ASSERT(o->s, n != NULL);
    return n;
}

static tci_node *tci_order_number(const tci_order *o, tc_dtype t, int64_t x)
{
    tci_value v = {.i = x};
    return tci_order_built(o, tci_graph_const(o->g, t, v));
}

static tci_node *tci_order_ew(const tci_order *o, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_order_built(o, tci_build_ew(o->g, op, in));
}

static tci_node *tci_order_cast(const tci_order *o, tci_node *x, tc_dtype t)
{
    return tci_order_built(o, tci_build_cast(o->g, x, t));
}

static tci_node *tci_order_shape(const tci_order *o, tci_node *x, int rank, const tci_dim *shape)
{
    return tci_order_built(o, tci_build_reshape(o->g, x, rank, shape));
}
#define TCI_ORDER_SHAPE(o, x, n, ...)                                                              \
    tci_order_shape((o), (x), (n), (const tci_dim[n]){__VA_ARGS__})

static tci_node *tci_order_ramp(const tci_order *o, tc_dtype t, int64_t n)
{
    return tci_order_cast(o, tci_order_built(o, tci_build_iota(o->g, n)), t);
}

static tci_node *tci_order_sum(const tci_order *o, tci_node *x, int axis)
{
    tc_axes axes = {&axis, 1, false};
    return tci_order_built(o, tci_build_reduce(o->g, TCI_OP_SUM, x, axes, false));
}

static tci_node *tci_order_kept(const tci_order *o, tci_node *n)
{
    tci_algo_force(o->a, n);
    return n;
}

/* Words at these positions, each of which is there once. */
static tci_node *tci_order_put(const tci_order *o, tci_node *words, tci_node *places)
{
    tci_node *in[3] = {words, places, words};
    const int64_t attr[3] = {0, TCI_MODE_SET, 1};
    return tci_order_kept(o, tci_graph_node(o->g, TCI_OP_SCATTER, o->word, 1, words->shape, 3, in,
                                            3, attr));
}

/* ---- by ranks ---- */

/* [chunks, n]: for each word -1 for each greater one of the chunk. A difference whose sign is
 * shifted down takes two instructions with the sum, a comparison three; words are not negative, so
 * none overflows. A chunk is not one range, but of every o->chunks * TCI_ORDER_NEAR words this many
 * neighbours: rows that are so short are summed by a lane each (plan/reduction_order.c), which has
 * a word of its own in a register and meets what all lanes read. */
static tci_node *tci_order_greater(const tci_order *o, tci_node *words)
{
    int sign = 8 * tci_dtype_get(o->word)->bytes - 1;
    tci_node *one = TCI_ORDER_SHAPE(o, words, 4, 1, 1, 1, o->n);
    tci_node *other = TCI_ORDER_SHAPE(o, words, 4, o->chunk / TCI_ORDER_NEAR, o->chunks,
                                      TCI_ORDER_NEAR, 1);
    tci_node *greater = tci_order_ew(o, TCI_OP_BITWISE_RIGHT_SHIFT,
                                     tci_order_ew(o, TCI_OP_SUB, one, other),
                                     tci_order_number(o, o->word, sign));
    greater = tci_order_cast(o, greater, TC_I32);
    const tci_dim shape[2] = {o->chunks, o->n};
    const int64_t axes[2] = {0, 2};
    return tci_order_kept(o,
                          tci_graph_node(o->g, TCI_OP_SUM, TC_I32, 2, shape, 1, &greater, 2, axes));
}

static tci_node *tci_order_by_ranks(const tci_order *o, tci_node *words)
{
    tci_node *greater = tci_order_greater(o, words);
    tci_node *places = tci_order_number(o, TC_I32, o->n - 1);
    for (int64_t i = 0; i < o->chunks; i++) {
        tci_node *here = tci_order_built(o, tci_build_slice(o->g, greater, 0, i, i + 1, 1));
        places = tci_order_ew(o, TCI_OP_ADD, places, TCI_ORDER_SHAPE(o, here, 1, o->n));
    }
    return tci_order_put(o, words, places);
}

/* ---- by digits ---- */

/* Where the first word of each digit of each chunk goes, [chunks, chunk] as `digit` has them: the
 * words of lesser digits, and those of the same one in earlier chunks, come before it, which is a
 * running sum over digits, and of each over its chunks. */
static tci_node *tci_order_begins(const tci_order *o, tci_node *digit)
{
    int64_t n = (int64_t)1 << TCI_ORDER_BITS;
    tci_node *each = TCI_ORDER_SHAPE(o, tci_order_ramp(o, TC_I32, n), 3, n, 1, 1);
    tci_node *here = TCI_ORDER_SHAPE(o, digit, 3, 1, o->chunks, o->chunk);
    tci_node *counts = tci_order_sum(o, tci_order_ew(o, TCI_OP_EQ, here, each), 2);
    counts = TCI_ORDER_SHAPE(o, tci_order_kept(o, counts), 1, n * o->chunks);
    tci_node *sums = tci_order_built(o, tci_build_scan(o->g, counts, 0, false, TCI_MODE_ADD));
    tci_node *in_parts = tci_plan_scan(o->a, sums);
    sums = tci_order_kept(o, in_parts ? in_parts : sums);
    tci_node *zero = tci_order_number(o, (tc_dtype)sums->dtype, 0);
    sums = tci_order_built(o, tci_build_slice(o->g, sums, 0, 0, n * o->chunks - 1, 1));
    tci_node *before = tci_order_built(o, tci_build_pad(o->g, sums, 0, 1, 0, zero));
    tci_node *row = TCI_ORDER_SHAPE(o, tci_order_cast(o, digit, TC_I64), 2, o->chunks, o->chunk);
    tci_node *chunk = TCI_ORDER_SHAPE(o, tci_order_ramp(o, TC_I64, o->chunks), 2, o->chunks, 1);
    tci_node *at = tci_order_ew(o, TCI_OP_MUL, row, tci_order_number(o, TC_I64, o->chunks));
    at = TCI_ORDER_SHAPE(o, tci_order_ew(o, TCI_OP_ADD, at, chunk), 1, o->n);
    at = tci_order_built(o, tci_build_gather(o->g, before, 0, at));
    return TCI_ORDER_SHAPE(o, at, 2, o->chunks, o->chunk);
}

/* Words in the order of the digit at `shift`, equal ones as they were. */
static tci_node *tci_order_by_digit(const tci_order *o, tci_node *words, int shift)
{
    tci_node *digit = tci_order_ew(o, TCI_OP_BITWISE_RIGHT_SHIFT, words,
                                   tci_order_number(o, o->word, shift));
    digit = tci_order_ew(o, TCI_OP_BITWISE_AND, digit,
                         tci_order_number(o, o->word, (1 << TCI_ORDER_BITS) - 1));
    digit = tci_order_kept(o, tci_order_cast(o, digit, TC_I32));
    tci_node *one = TCI_ORDER_SHAPE(o, digit, 3, o->chunks, o->chunk, 1);
    tci_node *other = TCI_ORDER_SHAPE(o, digit, 3, o->chunks, 1, o->chunk);
    tci_node *ramp = tci_order_ramp(o, TC_I32, o->chunk);
    tci_node *earlier = tci_order_ew(o, TCI_OP_LT, TCI_ORDER_SHAPE(o, ramp, 3, 1, 1, o->chunk),
                                     TCI_ORDER_SHAPE(o, ramp, 3, 1, o->chunk, 1));
    tci_node *equal = tci_order_ew(o, TCI_OP_EQ, one, other);
    tci_node *rank = tci_order_sum(o, tci_order_ew(o, TCI_OP_LOGICAL_AND, equal, earlier), 2);
    tci_node *places = tci_order_ew(o, TCI_OP_ADD, tci_order_begins(o, digit), rank);
    return tci_order_put(o, words, TCI_ORDER_SHAPE(o, places, 1, o->n));
}

/* ---- either way ---- */

/* True if comparing all words with all is cheaper than the kernels of radix digits beyond those of
 * ranks. Words of two registers take twice as long (4.4 instructions). */
static bool tci_order_has_ranks(const tci_order *o, int digits)
{
    int more = TCI_ORDER_DIGIT_KERNELS * digits - TCI_ORDER_RANK_KERNELS;
    int64_t compared = TCI_ORDER_COMPARED / (o->word == TC_I32 ? 1 : 2);
    return o->n * o->n <= more * compared;
}

/* Sorted words of an index of one axis; of what is not there the index is o->keys. */
static tci_node *tci_order_words(const tci_order *o, tci_node *index)
{
    tci_node *fill = tci_order_number(o, o->word, o->keys);
    tci_node *keys = tci_order_built(o, tci_build_pad(o->g, index, 0, 0,
                                                      o->n - tci_dim_known(index->shape[0]), fill));
    tci_node *high = tci_order_ew(o, TCI_OP_BITWISE_LEFT_SHIFT, keys,
                                  tci_order_number(o, o->word, o->low));
    tci_node *words = tci_order_ew(o, TCI_OP_ADD, high, tci_order_ramp(o, o->word, o->n));
    tci_order_kept(o, words);
    int digits = 0;
    while (o->keys >> digits * TCI_ORDER_BITS > 0) {
        digits++;
    }
    if (tci_order_has_ranks(o, digits)) {
        return tci_order_by_ranks(o, words);
    }
    for (int i = 0; i < digits; i++) {
        words = tci_order_by_digit(o, words, o->low + i * TCI_ORDER_BITS);
    }
    return words;
}

/* For each of 0 .. o->keys how many sorted keys are less. */
static tci_node *tci_order_starts(const tci_order *o, tci_node *keys)
{
    tci_node *key = tci_order_ramp(o, o->word, o->keys + 1);
    tci_node *all = tci_order_number(o, o->word, o->n), *one = tci_order_number(o, o->word, 1);
    tci_node *less = tci_order_ew(o, TCI_OP_MUL, key, tci_order_number(o, o->word, 0));
    int64_t step = 1;
    while (2 * step <= o->n) {
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        tci_node *more = tci_order_ew(o, TCI_OP_ADD, less, tci_order_number(o, o->word, step));
        tci_node *last = tci_order_ew(o, TCI_OP_SUB, tci_order_ew(o, TCI_OP_MINIMUM, more, all),
                                      one);
        tci_node *found = tci_order_built(o, tci_build_gather(o->g, keys, 0, last));
        tci_node *there = tci_order_ew(o, TCI_OP_LOGICAL_AND, tci_order_ew(o, TCI_OP_LE, more, all),
                                       tci_order_ew(o, TCI_OP_LT, found, key));
        less = tci_order_built(o, tci_build_where(o->g, there, more, less));
    }
    return tci_order_cast(o, tci_order_kept(o, less), TC_I64);
}

/* ---- the node ---- */

/* The index of SCATTER n as one axis, where all lines have the same; NULL: they have not. */
static tci_node *tci_order_index(const tci_order *o, const tci_node *n)
{
    tci_node *index = n->in[1];
    int axis = (int)tci_dim_known(n->attr[0]);
    bool same = true;
    for (int i = 0; i < n->rank; i++) {
        same = same && tci_dim_is_known(n->shape[i]) && tci_dim_is_known(index->shape[i]) &&
               (i == axis || n->shape[i] == index->shape[i]);
    }
    index = index->op == TCI_OP_EXPAND ? index->in[0] : index;
    for (int i = 0; i < n->rank; i++) {
        same = same && (i == axis ? index->shape[i] == n->in[1]->shape[i] : index->shape[i] == 1);
    }
    return same ? TCI_ORDER_SHAPE(o, index, 1, index->shape[axis]) : NULL;
}

/* Chunks and words of this many indices. */
static void tci_order_measure(tci_order *o, int64_t reads)
{
    o->chunk = TCI_ORDER_CHUNK;
    while (o->chunk < 4 * TCI_ORDER_CHUNK && o->chunk * TCI_ORDER_CHUNKS < reads) {
        o->chunk *= 2;
    }
    o->chunks = tci_dim_known(tci_dim_ceil_div(reads, o->chunk));
    o->n = o->chunks * o->chunk;
    while ((int64_t)1 << o->low < o->n) {
        o->low++;
    }
    o->word = o->keys < INT32_MAX >> o->low ? TC_I32 : TC_I64;
}

TCI_FN tci_node *tci_plan_order(const tci_algo *a, tci_node *n)
{
    tci_order o = {.a = a, .s = a->s, .g = a->g};
    bool ordered = a->machine.block_threads > 0 && n->n_in == 3;
    tci_node *index = ordered ? tci_order_index(&o, n) : NULL;
    int64_t reads = index ? tci_dim_known(index->shape[0]) : 0;
    o.keys = index ? tci_dim_known(n->shape[tci_dim_known(n->attr[0])]) : 0;
    if (reads < TCI_ORDER_READS || reads > tci_order_most || o.keys > tci_order_most) {
        return NULL;
    }
    tci_order_measure(&o, reads);
    /* reading 0, 1, 2 ... at the index checks it, and counts from the end where it is negative */
    tci_node *ramp = tci_order_ramp(&o, o.word, o.keys);
    tci_node *words = tci_order_built(&o, tci_build_gather(a->g, ramp, 0, index));
    words = tci_order_words(&o, words);
    tci_node *below = tci_order_number(&o, o.word, ((int64_t)1 << o.low) - 1);
    tci_node *order = tci_order_ew(&o, TCI_OP_BITWISE_AND, words, below);
    tci_node *keys = tci_order_ew(&o, TCI_OP_BITWISE_RIGHT_SHIFT, words,
                                  tci_order_number(&o, o.word, o.low));
    tci_node *in[4] = {n->in[0], n->in[2], tci_order_cast(&o, order, TC_I64),
                       tci_order_starts(&o, keys)};
    tci_str_printf(a->orders, "scatter of %lld: elements of an axis of %lld side by side\n",
                   (long long)reads, (long long)o.keys);
    return tci_graph_node(a->g, TCI_OP_SEGMENT, (tc_dtype)n->dtype, n->rank, n->shape, 4, in, 2,
                          n->attr);
}
/* ---- src/plan/conv_layout.c ---- */
/* plan/conv_layout.c - copies the operands of implicit GEMM convolutions to channels-last (NHWC),
 * the layout required for TMA box loads.
 *
 * In: a CONTRACT of bf16 or f16 values, or of f32 under TC_MATH_FAST, one of which is windows of an
 * image, on a GPU whose tensor cores load TMA boxes. Out: the same CONTRACT over copies with
 * one axis contiguous: the longest summed axis that both operands have (the channels, in a
 * convolution and its data gradient), else for each operand its longest axis that the other lacks
 * (the weight gradient). Windows, padding and other views stay above the
 * copies, so nothing else is stored. NULL: not such a contraction, or too small for the matrix
 * unit.
 *
 * Design: TMA loads need 16 contiguous bytes and aligned rows. A copy serves every window.
 * Tensor cores cannot transpose f32 operands on load, so for f32 the contiguous axis is a summed
 * one. */

enum {
    TCI_CONV_LAYOUT_LEAST = 32, /* elements of the axis that is contiguous, */
    TCI_CONV_LAYOUT_GROUP = 24  /* or of the channels of a group: 24 of the 64 of a step exist */
};

typedef struct tci_conv_layout {
    const tci_algo *a;
    tci_scratch *s;
    tci_graph *g;
    const tci_node *n;
    const tci_contraction *c;
    tci_node *source[2];
    bool has_window[2];
    int axes[2];  /* of the operands, to be contiguous */
    int64_t last; /* the label that the result's columns should have; -1: as they are */
} tci_conv_layout;

/* ---- the values behind the operands ---- */

/* The value of operand x below windows, padding, other layout ops and a widening that nothing
 * stores; NULL: sizes are unknown. */
static tci_node *tci_conv_layout_source(const tci_algo *a, tci_node *x)
{
    const int through = TCI_THROUGH_MOVEMENT | TCI_THROUGH_WIDENING | TCI_THROUGH_PADS;
    x = tci_below(x, through | TCI_THROUGH_KNOWN, a->forced);
    return tci_is_known(x) && x->rank > 0 ? x : NULL;
}

TCI_FN tci_node *tci_plan_image(const tci_algo *a, tci_node *x)
{
    tci_node *source = tci_conv_layout_source(a, x);
    return source && tci_dtype_is_half((tc_dtype)source->dtype) ? source : NULL;
}

static bool tci_conv_layout_look(tci_conv_layout *m)
{
    bool windows = false;
    for (int i = 0; i < 2; i++) {
        m->source[i] = tci_conv_layout_source(m->a, m->n->in[i]);
        const tci_node *from = m->source[i];
        if (!from || !(tci_dtype_is_half((tc_dtype)from->dtype) ||
                       (from->dtype == TC_F32 && m->a->machine.is_fast))) {
            return false;
        }
        for (const tci_node *x = m->n->in[i]; x != m->source[i]; x = x->in[0]) {
            m->has_window[i] = m->has_window[i] || x->op == TCI_OP_WINDOW;
        }
        windows = windows || m->has_window[i];
    }
    return windows && tci_is_known(m->n) && m->source[0]->dtype == m->source[1]->dtype;
}

TCI_FN int tci_plan_image_axis(const tci_node *x, const tci_node *source, int a)
{
    for (; x != source && a >= 0; x = x->in[0]) {
        bool windowed = x->op == TCI_OP_WINDOW && a >= x->in[0]->rank;
        for (int i = 0; x->op == TCI_OP_WINDOW && i < x->n_attr; i += 4) {
            windowed = windowed || x->attr[i] == a;
        }
        if (x->op == TCI_OP_PERMUTE) {
            a = (int)x->attr[a];
        } else if (x->op == TCI_OP_RESHAPE) {
            a = tci_plan_image_reshaped(x, a);
        } else if (windowed || x->in[0]->shape[a] != x->shape[a] ||
                   (x->op == TCI_OP_SLICE && x->attr[2 * a] != 0) ||
                   (x->op == TCI_OP_PAD && x->attr[a] != 0)) {
            a = -1;
        }
    }
    return a;
}

/* The axis of RESHAPE n's operand whose inner part is axis a of n; -1: there is none. */
static int tci_conv_layout_split(const tci_node *n, int a)
{
    const tci_node *from = n->in[0];
    tci_dim behind = 1, there = 1;
    int i = from->rank;
    for (int k = a + 1; k < n->rank; k++) {
        behind = tci_dim_mul(behind, n->shape[k]);
    }
    while (i > 0 && there != behind) {
        there = tci_dim_mul(there, from->shape[--i]);
    }
    bool inner = i > 0 && there == behind && tci_dim_divides(n->shape[a], from->shape[i - 1]);
    return inner ? i - 1 : -1;
}

/* The axis of `source` that is axis a of x, or whose inner part that is, as the channels of a group
 * are of all channels: contiguous with it. -1: none. */
static int tci_conv_layout_axis(const tci_node *x, const tci_node *source, int a)
{
    for (; x != source && a >= 0; x = x->in[0]) {
        int axis = tci_plan_image_axis(x, x->in[0], a);
        a = axis < 0 && x->op == TCI_OP_RESHAPE ? tci_conv_layout_split(x, a) : axis;
    }
    return a;
}

/* ---- which axes are contiguous ---- */

/* summed: it is contracted, so it may be the channels of a group. */
static bool tci_conv_layout_suits(const tci_conv_layout *m, int which, int a, bool summed)
{
    const tci_node *x = m->n->in[which], *source = m->source[which];
    int64_t size = tci_dim_known(x->shape[a]);
    bool whole = size >= TCI_CONV_LAYOUT_LEAST && tci_plan_image_axis(x, source, a) >= 0;
    bool group = summed && size >= TCI_CONV_LAYOUT_GROUP && tci_conv_layout_axis(x, source, a) >= 0;
    return (whole || group) && size % tci_matrix_align(source->dtype) == 0;
}

/* True if the result has elements of windows. */
static bool tci_conv_layout_keeps_elements(const tci_conv_layout *m)
{
    bool kept = false;
    for (int which = 0; which < 2; which++) {
        const tci_node *x = m->n->in[which];
        while (x->op == TCI_OP_CAST && x != m->source[which]) { /* whose axes are the same */
            x = x->in[0];
        }
        int n = x->op == TCI_OP_WINDOW ? x->rank - x->in[0]->rank : 0;
        for (int i = 0; i < n; i++) {
            kept = kept || !tci_contract_sums(m->n, m->c->in[which].labels[x->rank - 1 - i]);
        }
    }
    return kept;
}

/* Chooses axes and last; false: there are none. */
static bool tci_conv_layout_choose(tci_conv_layout *m)
{
    bool kept = tci_conv_layout_keeps_elements(m);
    m->axes[0] = m->axes[1] = -1;
    m->last = -1;
    for (int i = 0; i < m->c->n_axes && !kept; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        if (axis->group == TCI_AXES_K && tci_conv_layout_suits(m, 0, axis->at[0], true) &&
            tci_conv_layout_suits(m, 1, axis->at[1], true) &&
            (m->axes[0] < 0 || tci_dim_lt(m->n->in[0]->shape[m->axes[0]], axis->size))) {
            m->axes[0] = axis->at[0];
            m->axes[1] = axis->at[1];
        }
    }
    for (int which = 0; which < 2 && kept; which++) { /* its own */
        const tci_node *x = m->n->in[which];
        for (int i = 0; i < x->rank; i++) {
            int64_t label = m->c->in[which].labels[i], best = m->axes[which];
            bool own = !tci_contract_sums(m->n, label) && !tci_contract_has(m->n, 1 - which, label);
            bool longer = best < 0 || tci_dim_lt(x->shape[best], x->shape[i]);
            if (own && longer && tci_conv_layout_suits(m, which, i, false)) {
                m->axes[which] = i;
                m->last = m->has_window[which] ? label : m->last;
            }
        }
    }
    return m->axes[0] >= 0 && m->axes[1] >= 0;
}

/* True if each f32 element is multiplied often enough to pay for copies along a contracted axis. */
static bool tci_conv_layout_pays(const tci_conv_layout *m)
{
    double elements = 0, products = m->c->products;
    for (int i = 0; i < 2; i++) {
        elements += (double)tci_dim_known(tci_node_count(m->source[i]));
    }
    return m->source[0]->dtype != TC_F32 ||
           (!tci_conv_layout_keeps_elements(m) && products >= TCI_KMAJOR_LEAST &&
            products >= TCI_KMAJOR_REUSE * elements);
}

static bool tci_conv_layout_fits(tci_offer *o)
{
    tci_conv_layout *m = TCI_NEW(o->a->s, tci_conv_layout);
    *m = (tci_conv_layout){.a = o->a, .s = o->a->s, .g = o->a->g, .n = o->n, .c = o->c};
    o->found = m;
    return tci_plan_has_image_unit(o->a->machine) && o->n->dtype != TC_F64 && o->n->rank >= 2 &&
           tci_conv_layout_look(m) && tci_conv_layout_choose(m) && tci_conv_layout_pays(m);
}

static double tci_conv_layout_cost(const tci_offer *o)
{
    const tci_conv_layout *m = o->found;
    return tci_route_copies_ns(o, m->source[0]->dtype == TC_F32 ? TCI_BY_UNIT_F32 : TCI_BY_UNIT);
}

/* ---- the copies ---- */

/* The contraction of `in`, the axis of its result with label `last` after all others; *back: the
 * order of axes that is the old one. */
static tci_node *tci_conv_layout_contract(const tci_conv_layout *m, tci_node *const *in,
                                          int64_t *back)
{
    const tci_node *n = m->n;
    int64_t *order = TCI_NEW_ARRAY(m->s, int64_t, n->rank);
    int at = tci_build_label(m->c->out, n->rank, m->last);
    tci_relayout_last(n, at < 0 ? n->rank - 1 : at, order);
    for (int i = 0; i < n->rank; i++) {
        back[order[i]] = i;
    }
    return tci_contract_in_order(m->s, m->g, n, in, order);
}

static tci_node *tci_conv_layout_build(const tci_offer *o)
{
    const tci_conv_layout *m = o->found;
    const tci_node *n = o->n;
    tci_node *in[2];
    int64_t *back = TCI_NEW_ARRAY(m->s, int64_t, n->rank);
    for (int i = 0; i < 2; i++) {
        int axis = tci_conv_layout_axis(n->in[i], m->source[i], m->axes[i]);
        int64_t *order = TCI_NEW_ARRAY(m->s, int64_t, m->source[i]->rank);
        tci_relayout_last(m->source[i], axis, order);
        tci_node *copy = tci_relayout(m->a, m->source[i], (tci_relayout_to){.order = order});
        in[i] = tci_relayout_over(m->a, n->in[i], m->source[i], copy);
    }
    tci_node *r = tci_conv_layout_contract(m, in, back);
    tci_node *parts = m->last < 0 ? NULL : tci_plan_parts(m->a, r);
    r = parts ? parts : r;
    return m->last < 0 ? r : tci_algo_permute(m->a, r, back);
}

TCI_BLOCK_FN const tci_route *tci_route_channels_last(void)
{
    static const tci_route row = {"channels-last copies", TCI_SUMS_UNIT,
                                  TCI_ROUTE_REORDERS,     tci_conv_layout_fits,
                                  tci_conv_layout_cost,   tci_conv_layout_build};
    return &row;
}
/* ---- src/plan/layout_propagation.c ---- */
/* plan/layout_propagation.c - decides which values are stored channels-last: layout propagation
 * (NCHW to NHWC).
 *
 * In: the graph, on a machine whose tensor cores load image tiles by TMA (implicit GEMM). Out: the
 * same values; those that a contraction reads through windows (the input of a convolution; the
 * output gradient, of an input gradient) are stored with channels last, and the values that they
 * are computed from or that are computed from them, transitively, have that order too. Each is a
 * node with permuted axes, and a PERMUTE(back) of it replaces the old node. All readers use index
 * maps, so only the new form is in memory, no kernel transposes, and sums over positions, as in
 * norms, become column sums. Layout ops stay as they are.
 *
 * Design: the request for a layout goes from users to operands, then from values to users, and
 * back once more; the first request for a value wins, and a value without one stays as written. A
 * graph with depthwise weight gradients other than those of plan/depthwise_wgrad.c stays as
 * written too: with channels last they would be read element by element. */

enum { TCI_LAYOUT_STEPS = 10 /* ops from a contraction to what a CAT takes */ };

/* Requested layout of a value: the axis that is contiguous where it is computed, and in memory. */
typedef struct tci_layout_want {
    int32_t axis;
    bool set, stored;
} tci_layout_want;

typedef struct tci_layout {
    const tci_algo *a;
    tci_scratch *s;
    tci_table wants, roots; /* roots: a set; users read it in their axis order */
} tci_layout;

static tci_layout_want tci_layout_of(const tci_layout *l, const tci_node *n)
{
    const tci_layout_want *w = (const tci_layout_want *)tci_table_find(&l->wants, n);
    return w ? *w : (tci_layout_want){0, false, false};
}

/* The first want of a value is the one that counts. */
static void tci_layout_ask(tci_layout *l, const tci_node *n, int axis, bool stored)
{
    tci_layout_want *w = (tci_layout_want *)tci_table_at(&l->wants, n);
    bool moves = axis >= 0 && axis < n->rank - 1;
    if (!w->set && moves) {
        w->axis = axis;
        w->set = true;
    }
    w->stored = w->stored ||
                (stored && w->set && !tci_plan_is_leaf(n) && !tci_table_has(&l->roots, n));
}

/* ---- who wants what ---- */

/* The channels of windows, as an axis of the value behind them: the last whole one before those
 * over which the windows go. -1: they are none that a unit reads together. */
static int tci_layout_channels(const tci_node *x, const tci_node *source)
{
    int first = tci_dim_known(x->attr[0]);
    for (int i = 4; i < x->n_attr; i += 4) {
        first = TCI_MIN(first, tci_dim_known(x->attr[i]));
    }
    for (int a = first - 1; a > 0; a--) {
        int axis = tci_plan_image_axis(x, source, a);
        if (axis >= 0 && tci_dim_lt(1, x->shape[a])) {
            return tci_dim_known(x->shape[a]) % TCI_MATRIX_ALIGN == 0 ? axis : -1;
        }
    }
    return -1;
}

/* The image behind operand x of windows is wanted with channels last. */
static void tci_layout_ask_image(tci_layout *l, tci_node *x)
{
    while (x->op == TCI_OP_CAST) {
        x = x->in[0];
    }
    tci_node *source = tci_plan_image(l->a, x);
    if (x->op == TCI_OP_WINDOW && source && source != x) {
        tci_layout_ask(l, source, tci_layout_channels(x, source), true);
    }
}

static bool tci_layout_keeps(const tci_node *n, int axis)
{
    for (int i = 0; i < n->n_attr; i++) {
        if (n->attr[i] == axis) {
            return false;
        }
    }
    return true;
}

/* The axis of reduction n's operand that is axis a of it. */
static int tci_layout_reduced(const tci_node *n, int a)
{
    int axis = 0;
    while (a > 0 || !tci_layout_keeps(n, axis)) {
        a -= tci_layout_keeps(n, axis++);
    }
    return axis;
}

/* The axis of n's first operand, or of each where it has several, that is axis a of n; -1: none. */
static int tci_layout_below(const tci_node *n, int a)
{
    const tci_node *x = n->in[0];
    if (!tci_build_is_known(n->rank, n->shape) || !tci_build_is_known(x->rank, x->shape)) {
        return -1;
    }
    if (tci_op_is_reduce(n->op)) {
        return tci_layout_reduced(n, a);
    }
    bool spread = n->op == TCI_OP_EXPAND &&
                  (x->shape[a] != n->shape[a] || tci_node_count(x) == x->shape[a]);
    bool moved = n->op == TCI_OP_PAD || n->op == TCI_OP_SLICE || n->op == TCI_OP_CAT;
    return tci_op_is(n->op, TCI_IS_POINTWISE) || (n->op == TCI_OP_EXPAND && !spread) || moved ? a
           : n->op == TCI_OP_PERMUTE ? (int)n->attr[a]
           : n->op == TCI_OP_RESHAPE ? tci_plan_image_reshaped(n, a)
           : n->op == TCI_OP_WINDOW  ? tci_plan_image_axis(n, x, a)
                                     : -1;
}

/* True if n is computed elementwise from a contraction in at most this many steps. As a part of a
 * larger value it is then the output of a matrix unit, rather than sums that the whole finishes. */
static bool tci_layout_is_of_contract(const tci_node *n, int steps)
{
    bool found = n->op == TCI_OP_CONTRACT;
    for (int i = 0; i < n->n_in && steps > 0 && tci_op_is(n->op, TCI_IS_POINTWISE); i++) {
        found = found || tci_layout_is_of_contract(n->in[i], steps - 1);
    }
    return found;
}

/* n, which is wanted so, wants the same of its operands. */
static void tci_layout_pass_down(tci_layout *l, const tci_node *n)
{
    tci_layout_want want = tci_layout_of(l, n);
    int below = want.set && n->n_in > 0 ? tci_layout_below(n, want.axis) : -1;
    if (want.set && tci_op_is_reduce(n->op)) {
        tci_layout_ask_image(l, n->in[0]);
    }
    bool each = tci_op_is(n->op, TCI_IS_POINTWISE) || n->op == TCI_OP_CAT;
    for (int i = 0; i < (each ? n->n_in : 1) && below >= 0; i++) {
        bool part = n->op == TCI_OP_CAT && tci_layout_is_of_contract(n->in[i], TCI_LAYOUT_STEPS);
        tci_layout_ask(l, n->in[i], below, part);
    }
}

/* The axis of x that will be contiguous in memory, as far as this pass says. */
static int tci_layout_axis(const tci_layout *l, const tci_node *x)
{
    const tci_layout_want want = tci_layout_of(l, x);
    return want.stored ? want.axis : want.set ? -1 : x->rank - 1;
}

/* Contraction n of each channel alone is wanted as the image is that it reads through windows: each
 * element of that is read for many results, which are stored once. */
static void tci_layout_pass_alone(tci_layout *l, const tci_node *n)
{
    for (int i = 0; i < 2; i++) {
        tci_node *x = tci_below(n->in[i], TCI_THROUGH_CASTS, NULL);
        tci_node *source = x->op == TCI_OP_WINDOW ? tci_plan_image(l->a, x) : NULL;
        for (int a = 0; a < n->rank && source; a++) {
            const int at = tci_contract_place(n, 2, a, i);
            const int axis = at >= 0 ? tci_plan_image_axis(x, source, at) : -1;
            if (axis >= 0 && tci_contract_place(n, 2, a, 1 - i) >= 0 &&
                tci_dim_lt(1, n->shape[a]) && axis == tci_layout_axis(l, source)) {
                tci_layout_ask(l, n, a, false);
            }
        }
    }
}

/* n is wanted as its operands are. */
static void tci_layout_pass_up(tci_layout *l, const tci_node *n)
{
    if (n->op == TCI_OP_CONTRACT) {
        tci_layout_pass_alone(l, n);
        return;
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_layout_want want = tci_layout_of(l, n->in[i]);
        for (int a = 0; a < n->rank && want.set; a++) {
            if (tci_layout_below(n, a) == want.axis) {
                tci_layout_ask(l, n, a, false);
            }
        }
    }
}

/* ---- the graph with it ---- */

/* The order of `rank` axes in which `axis` comes where axis `to` was, those between one earlier. */
static int64_t *tci_layout_order(const tci_layout *l, int rank, int axis, int to)
{
    int64_t *perm = TCI_NEW_ARRAY(l->s, int64_t, rank);
    for (int i = 0; i < rank; i++) {
        perm[i] = i == to ? axis : i >= axis && i < to ? i + 1 : i;
    }
    return perm;
}

/* Of x, whose axes are those of a value in the order `perm`: the value. */
static tci_node *tci_layout_back(const tci_layout *l, tci_node *x, const int64_t *perm)
{
    int64_t *back = TCI_NEW_ARRAY(l->s, int64_t, x->rank);
    for (int i = 0; i < x->rank; i++) {
        back[perm[i]] = i;
    }
    return tci_algo_permute(l->a, x, back);
}

/* Operand `which` of f in memory with that axis last. */
static void tci_layout_operand(const tci_layout *l, tci_contract_form *f, int which, int axis)
{
    tci_node *x = f->in[which];
    const int64_t *perm = tci_layout_order(l, x->rank, axis, x->rank - 1);
    tci_contract_turn(l->s, f, which, perm);
    f->in[which] = tci_relayout(l->a, x, (tci_relayout_to){.order = perm, .is_turned = true});
}

/* True if sums over several axes are so short that threads compute them in vectors of filters
 * (loop/simt_short_reduction.c). */
static bool tci_layout_has_few(const tci_node *n)
{
    int64_t products = 1, axes = 0;
    for (int i = 0; i < n->in[0]->rank && products <= TCI_WINDOW_FEW; i++) {
        bool summed = tci_contract_sums_axis(n, 0, i);
        axes += summed && tci_dim_lt(1, n->in[0]->shape[i]);
        products *= summed ? tci_dim_hint(n->in[0]->shape[i]) : 1;
    }
    return products <= TCI_WINDOW_FEW && axes > 1;
}

/* Contraction n with its result's axes in that order. Where both operands have the last one, as in
 * a convolution of each channel by itself, or sums are short, what is no image has it last, too. */
static tci_node *tci_layout_contract(const tci_layout *l, tci_node *n, const int64_t *perm)
{
    tci_node *r = tci_contract_in_order(l->s, l->a->g, n, n->in, perm);
    tci_contract_form f = tci_contract_form_of(r);
    const int last[2] = {tci_contract_place(r, 2, r->rank - 1, 0),
                         tci_contract_place(r, 2, r->rank - 1, 1)};
    bool both = last[0] >= 0 && last[1] >= 0;
    for (int i = 0; i < 2 && (both || tci_layout_has_few(n)); i++) {
        if (f.in[i]->op != TCI_OP_WINDOW && last[i] >= 0) {
            tci_layout_operand(l, &f, i, last[i]);
        }
    }
    return tci_contract_make(l->s, l->a->g, &f, (tc_dtype)n->dtype, r->shape);
}

/* n, made element by element, likewise. */
static tci_node *tci_layout_pointwise(const tci_layout *l, tci_node *n, const int64_t *perm)
{
    tci_node **in = TCI_NEW_ARRAY(l->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = tci_algo_permute(l->a, n->in[i], perm);
    }
    return tci_graph_node(l->a->g, n->op, (tc_dtype)n->dtype, n->rank, in[0]->shape, n->n_in, in,
                          n->n_attr, n->attr);
}

/* Reduction n of an operand with that axis last; so is what it keeps of it. */
static tci_node *tci_layout_reduce(const tci_layout *l, tci_node *n, int axis)
{
    tci_node *x = n->in[0];
    int at = 0;
    for (int i = 0; i < axis; i++) {
        at += tci_layout_keeps(n, i);
    }
    x = tci_algo_permute(l->a, x, tci_layout_order(l, x->rank, axis, x->rank - 1));
    int64_t *attr = TCI_NEW_ARRAY(l->s, int64_t, n->n_attr);
    int n_attr = 0;
    for (int i = 0; i < n->n_attr; i++) {
        if (n->attr[i] != axis) {
            attr[n_attr++] = n->attr[i] - (n->attr[i] > axis);
        }
    }
    bool keeps = tci_layout_keeps(n, axis);
    if (!keeps) {
        attr[n_attr++] = x->rank - 1;
    }
    const int64_t *perm = tci_layout_order(l, n->rank, keeps ? at : n->rank - 1, n->rank - 1);
    tci_dim *shape = TCI_NEW_ARRAY(l->s, tci_dim, n->rank);
    for (int i = 0; i < n->rank; i++) {
        shape[i] = n->shape[perm[i]];
    }
    tci_node *r = tci_graph_node(l->a->g, n->op, (tc_dtype)n->dtype, n->rank, shape, 1, &x, n_attr,
                                 attr);
    return tci_layout_back(l, r, perm);
}

/* over, which is n over what stands for its operands, computed as it is wanted. */
static tci_node *tci_layout_node(const tci_layout *l, const tci_node *n, tci_node *over)
{
    tci_layout_want want = tci_layout_of(l, n);
    if (tci_op_is_reduce(n->op) && tci_layout_of(l, n->in[0]).set) {
        over = tci_layout_reduce(l, over, tci_layout_of(l, n->in[0]).axis);
    }
    if (!want.set) {
        return over;
    }
    const int64_t *perm = tci_layout_order(l, n->rank, want.axis, n->rank - 1);
    if (n->op == TCI_OP_CONTRACT) {
        over = tci_layout_back(l, tci_layout_contract(l, over, perm), perm);
    } else if (tci_op_is(n->op, TCI_IS_POINTWISE)) {
        over = tci_layout_back(l, tci_layout_pointwise(l, over, perm), perm);
    }
    if (want.stored) {
        tci_node *stored = tci_algo_permute(l->a, over, perm);
        tci_algo_force(l->a, stored);
        tci_table_add(l->a->images, stored);
        over = tci_layout_back(l, stored, perm);
    }
    return over;
}

/* True if both operands of such a gradient will have the layout that plan/depthwise_wgrad.c
 * takes. */
static bool tci_layout_is_alone(const tci_layout *l, const tci_node *n)
{
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        tci_node *image;
        int axis = tci_plan_alone_axis(l->a, n, i, &image);
        fits = fits && axis >= 0 && tci_layout_of(l, image).stored &&
               tci_layout_of(l, image).axis == axis;
    }
    return fits;
}

/* True if contraction n is another weight gradient of a depthwise convolution: it has the
 * kernel-window axes, and the channels, which both operands have. */
static bool tci_layout_learns_otherwise(const tci_layout *l, const tci_node *n)
{
    for (int i = 0; i < 2 && n->op == TCI_OP_CONTRACT; i++) {
        const tci_node *x = tci_below(n->in[i], TCI_THROUGH_CASTS, NULL);
        bool elements = x->op == TCI_OP_WINDOW && !tci_contract_sums_axis(n, i, x->rank - 1);
        tci_layout_want want = tci_layout_of(l, n->in[i]);
        if (elements && want.set && tci_contract_place(n, i, want.axis, 1 - i) >= 0) {
            return !tci_layout_is_alone(l, n);
        }
    }
    return false;
}

/* Decides the layout of each value; false if nothing changes. */
static bool tci_layout_decide(tci_layout *l, tci_node_list list)
{
    bool any = false;
    for (int i = list.n - 1; i >= 0; i--) {
        tci_node *n = list.items[i];
        for (int j = 0; j < 2 && n->op == TCI_OP_CONTRACT; j++) {
            tci_layout_ask_image(l, n->in[j]);
        }
        tci_layout_pass_down(l, n);
        any = any || tci_layout_of(l, n).stored;
    }
    for (int i = 0; i < list.n && any; i++) {
        tci_layout_pass_up(l, list.items[i]);
        any = !tci_layout_learns_otherwise(l, list.items[i]);
    }
    for (int i = list.n - 1; i >= 0 && any; i--) {
        tci_layout_pass_down(l, list.items[i]);
    }
    return any;
}

/* Set by a test of reduction orders, which layouts may change: every value stays as written. */
#ifdef TCI_TEST_ALLOC
bool tci_layout_is_off;
#else
enum { tci_layout_is_off = false };
#endif

TCI_FN void tci_plan_layout(const tci_algo *a, tci_node **roots, int n_roots)
{
    tci_layout l = {a, a->s, tci_table_in(a->s, sizeof(tci_layout_want)),
                    tci_table_in(a->s, sizeof(bool))};
    if (!tci_plan_has_image_unit(a->machine) || tci_layout_is_off) {
        return;
    }
    tci_node_list list = tci_graph_sort(a->s, roots, n_roots);
    tci_table now = tci_table_in(a->s, sizeof(tci_node *));
    for (int i = 0; i < n_roots; i++) {
        tci_table_add(&l.roots, roots[i]);
    }
    if (!tci_layout_decide(&l, list)) {
        return;
    }
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i], *over = tci_graph_rebuild(a->s, a->g, n, &now);
        tc_site site = over->site.file ? over->site : n->site;
        over = tci_layout_node(&l, n, over);
        tci_node *made = over->op == TCI_OP_PERMUTE && n->op != TCI_OP_PERMUTE ? over->in[0] : over;
        if (tci_table_has(a->forced, n)) {
            tci_algo_force(a, made);
        }
        made->site = made->site.file ? made->site : site;
        tci_table_put(&now, n, over);
    }
    for (int i = 0; i < n_roots; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}
/* ---- src/plan/hoist_factors.c ---- */
/* plan/hoist_factors.c - hoists factors that are constant along the summed axes out of split
 * reductions: sum(x * s) = s * sum(x).
 *
 * In: a SUM that is split into chunks, on a GPU. Out: sums of fewer factors, or NULL: sum(x * s) =
 * s * sum(x), sum(x + y * s) = sum(x) + s * sum(y), where s is broadcast along the summed axes and
 * is not a scalar constant.
 *
 * Design: the sums in a norm's gradient are linear in values that are sums themselves (of squares,
 * of gradient times x), so the second sum would wait for the first and read everything again. With
 * such factors outside, all sums are over the same values, which are read once, and the gradients
 * to the scale and to the normalized values share a sum. A difference from a broadcast value, such
 * as x - mean, stays whole: its sum is small and would be lost between two large ones. */

enum { TCI_FACTORED_DEPTH = 8, TCI_FACTORED_MOST = 16 };

typedef struct tci_factored {
    const tci_algo *a;
    const tci_node *n; /* the sum */
    bool found;        /* a factor was taken out */
} tci_factored;

/* True if x is the same along all axes that are summed. */
static bool tci_factored_is_spread(const tci_factored *f, const tci_node *x)
{
    int *at = TCI_NEW_ARRAY(f->a->s, int, x->rank + 1);
    tci_broadcast_source(f->a->s, x, at);
    bool spread = true;
    for (int i = 0; i < f->n->n_attr; i++) {
        spread = spread && at[f->n->attr[i]] < 0;
    }
    return spread;
}

/* Spread x in place of the sum. */
static tci_node *tci_factored_outside(const tci_factored *f, tci_node *x)
{
    for (int i = 0; i < f->n->n_attr; i++) {
        x = tci_build_slice(f->a->g, x, (int)f->n->attr[i], 0, 1, 1);
    }
    return tci_build_reshape(f->a->g, x, f->n->rank, f->n->shape);
}

/* The factors of a product: those that are spread, which go outside, and the others. */
typedef struct tci_factors {
    tci_node *inside[TCI_FACTORED_MOST], *outside[TCI_FACTORED_MOST];
    int n_inside, n_outside;
} tci_factors;

/* False: they are too many. */
static bool tci_factored_split(const tci_factored *f, tci_node *x, tci_factors *to)
{
    if (tci_factored_is_spread(f, x)) {
        to->outside[to->n_outside++] = x;
    } else if (x->op == TCI_OP_MUL) {
        return tci_factored_split(f, x->in[0], to) && tci_factored_split(f, x->in[1], to);
    } else {
        to->inside[to->n_inside++] = x;
    }
    return to->n_inside < TCI_FACTORED_MOST && to->n_outside < TCI_FACTORED_MOST;
}

static tci_node *tci_factored_product(const tci_algo *a, tci_node *const *of, int n)
{
    tci_node *product = of[0];
    for (int i = 1; i < n; i++) {
        tci_node *both[2] = {product, of[i]};
        product = tci_build_ew(a->g, TCI_OP_MUL, both);
    }
    return product;
}

/* The SUM of x over what n sums, in chunks. */
static tci_node *tci_factored_plain(const tci_factored *f, tci_node *x)
{
    const tci_node *n = f->n;
    tci_node *sum = tci_graph_node(f->a->g, TCI_OP_SUM, (tc_dtype)n->dtype, n->rank, n->shape, 1,
                                   &x, n->n_attr, n->attr);
    return tci_plan_split(f->a, sum);
}

static tci_node *tci_factored_sum(tci_factored *f, tci_node *x, int depth);

/* Of a product that has factors of both kinds; NULL: it has not. */
static tci_node *tci_factored_of_product(tci_factored *f, tci_node *x, int depth)
{
    tci_factors of = {.n_inside = 0};
    if (!tci_factored_split(f, x, &of) || of.n_outside == 0 || of.n_inside == 0) {
        return NULL;
    }
    for (int i = 0; i < of.n_outside; i++) {
        int *at = TCI_NEW_ARRAY(f->a->s, int, x->rank + 1);
        f->found |= !tci_op_is(tci_broadcast_source(f->a->s, of.outside[i], at)->op, TCI_IS_NUMBER);
        of.outside[i] = tci_factored_outside(f, of.outside[i]);
    }
    tci_node *both[2] = {tci_factored_product(f->a, of.outside, of.n_outside),
                         tci_factored_product(f->a, of.inside, of.n_inside)};
    both[1] = tci_factored_sum(f, both[1], depth);
    return tci_build_ew(f->a->g, TCI_OP_MUL, both);
}

static tci_node *tci_factored_sum(tci_factored *f, tci_node *x, int depth)
{
    const bool joins = x->op == TCI_OP_ADD || x->op == TCI_OP_SUB;
    tci_node *made = NULL, *in[2] = {NULL, NULL};
    if (depth == 0) {
        return tci_factored_plain(f, x);
    }
    if (x->op == TCI_OP_NEG ||
        (joins && !tci_factored_is_spread(f, x->in[0]) && !tci_factored_is_spread(f, x->in[1]))) {
        const bool found = f->found;
        f->found = false;
        for (int i = 0; i < x->n_in; i++) {
            in[i] = tci_factored_sum(f, x->in[i], depth - 1);
        }
        made = f->found || x->op == TCI_OP_NEG ? tci_build_ew(f->a->g, x->op, in) : NULL;
        f->found |= found;
    } else if (x->op == TCI_OP_MUL) {
        made = tci_factored_of_product(f, x, depth - 1);
    }
    return made ? made : tci_factored_plain(f, x);
}

TCI_FN tci_node *tci_plan_factored_sum(const tci_algo *a, tci_node *n)
{
    tci_factored f = {a, n, false};
    const tci_node *x = n->in[0];
    const bool could = x->op == TCI_OP_MUL || x->op == TCI_OP_ADD || x->op == TCI_OP_SUB ||
                       x->op == TCI_OP_NEG;
    if (a->machine.block_threads == 0 || a->machine.reproducible || n->op != TCI_OP_SUM ||
        n->dtype != TC_F32 || x->dtype != TC_F32 || !could || !tci_rfactor_cuts(a, n)) {
        return NULL;
    }
    tci_node *made = tci_factored_sum(&f, n->in[0], TCI_FACTORED_DEPTH);
    return f.found ? made : NULL;
}
/* ---- src/plan/small_channel_conv.c ---- */
/* plan/small_channel_conv.c - rewrites convolutions of few channels, such as a network's first
 * layer, as implicit GEMM: filter width times channels becomes one padded contiguous run of K.
 *
 * In: a CONTRACT of windows of a bf16 or f16 image, with too few channels for a matrix unit to
 * read, and a filter or the gradient of the convolution's output. Out: the same CONTRACT over
 * copies in which a row of a window is one contiguous run of all its positions and channels: the
 * image with padding, channels last, and zero channels until the step to the next window is a
 * multiple of 16 bytes; the filter likewise. NULL: no such contraction, or too small.
 *
 * Design: the runs of neighbouring windows overlap, but as rows that start at such steps they are
 * ordinary boxes (kernel/tma_boxes.c), each one step of K. Padding is zero in both operands. The
 * gradient of a filter is a product of the same rows and the output's gradient, summed over
 * positions, then over images. */

enum {
    TCI_SMALL_CONV_CHANNELS = 8, /* that are enough without */
    TCI_SMALL_CONV_LEAST =
        28, /* elements of a run: of shorter ones most of a step would be zeros */
    TCI_SMALL_CONV_MOST = 64
};

typedef struct tci_small_conv {
    const tci_algo *a;
    const tci_node *n, *window;
    const tci_contraction *c;
    tci_node *other;                            /* the operand that has none */
    int image;                                  /* which operand has the windows */
    const int64_t *labels, *other_labels, *out; /* of windows: image, channel, y, x, and elements */
    int64_t channels, wide, places;             /* wide: channels with zeros; places: of a run */
} tci_small_conv;

/* Windows over the last two axes of an image [images, channels, height, width], positions of a run
 * side by side. */
static bool tci_small_conv_are_windows(const tci_node *x)
{
    return x->op == TCI_OP_WINDOW && x->in[0]->rank == 4 && x->n_attr == 8 && x->attr[0] == 2 &&
           x->attr[4] == 3 && x->attr[7] == 1 && tci_build_is_known(x->rank, x->shape) &&
           tci_build_is_known(x->in[0]->rank, x->in[0]->shape);
}

/* The bf16 or f16 values that x is, below zeros around them; NULL: none. */
static const tci_node *tci_small_conv_source(tci_node *x)
{
    x = tci_below(tci_below(x, TCI_THROUGH_ZEROS, NULL), TCI_THROUGH_F32, NULL);
    return tci_dtype_is_half((tc_dtype)x->dtype) ? x : NULL;
}

/* Finds the windows and the other operand, four axes of the same halves. */
static bool tci_small_conv_find_operands(tci_small_conv *r)
{
    const tci_node *n = r->n;
    r->image = tci_small_conv_are_windows(tci_below(n->in[0], TCI_THROUGH_F32, NULL)) ? 0 : 1;
    r->window = tci_below(n->in[r->image], TCI_THROUGH_F32, NULL);
    const tci_node *source = tci_small_conv_are_windows(r->window)
                                 ? tci_small_conv_source(r->window->in[0])
                                 : NULL;
    r->other = tci_below(n->in[1 - r->image], TCI_THROUGH_F32, NULL);
    r->labels = r->c->in[r->image].labels;
    r->other_labels = r->c->in[1 - r->image].labels;
    r->out = r->c->out;
    return source && r->other->dtype == source->dtype && r->other->rank == 4 && n->rank == 4 &&
           tci_build_is_known(4, r->other->shape);
}

/* gradient false: true if the other operand has the channels and kernel-window axes, which are
 * summed (a filter). gradient true: true if it has the images and positions, and the result has
 * those axes (the gradient of the output). */
static bool tci_small_conv_are(const tci_small_conv *r, bool gradient)
{
    bool fits = true;
    for (int i = 0; i < 6 && fits; i++) {
        bool element = i == 1 || i > 3;
        fits = (tci_build_label(r->out, 4, r->labels[i]) < 0) == (element != gradient) &&
               (tci_build_label(r->other_labels, 4, r->labels[i]) >= 0) == (element != gradient);
    }
    return fits;
}

/* Computes the length of a run; false if the matrix unit needs no copy, or cannot be used at all.
 */
static bool tci_small_conv_measure(tci_small_conv *r)
{
    int64_t step = tci_dim_known(r->window->attr[6]);
    r->channels = tci_dim_known(r->window->shape[1]);
    r->places = tci_dim_known(r->window->attr[5]);
    r->wide = r->channels;
    while (r->wide < TCI_SMALL_CONV_CHANNELS &&
           (step * r->wide % TCI_MATRIX_ALIGN != 0 || r->wide * r->places < TCI_SMALL_CONV_LEAST)) {
        r->wide++;
    }
    int64_t run = r->wide * r->places, deep = run * tci_dim_known(r->window->attr[1]);
    return r->channels < TCI_SMALL_CONV_CHANNELS && step * r->wide % TCI_MATRIX_ALIGN == 0 &&
           run >= TCI_SMALL_CONV_LEAST && run <= TCI_SMALL_CONV_MOST && deep >= TCI_MATRIX_DEPTH &&
           r->c->is_known && 2 * r->c->products >= TCI_MATRIX_FLOPS;
}

/* ---- the copies ---- */

/* x, which is that of tci_small_conv_source, as the halves that it is. */
static tci_node *tci_small_conv_narrow(const tci_small_conv *r, tci_node *x)
{
    tci_node *cast = tci_below(x, TCI_THROUGH_ZEROS, NULL);
    return tci_relayout_over(r->a, x, cast, tci_below(cast, TCI_THROUGH_F32, NULL));
}

/* x in memory with its axes in that order, with zeros along its last axis until it is `wide`, and
 * along the axis before that until rows of both are whole 16 bytes; without the latter, as it is
 * read. */
static tci_node *tci_small_conv_copy(const tci_small_conv *r, tci_node *x, const int64_t *perm)
{
    int64_t longer = tci_dim_known(x->shape[perm[2]]);
    while (longer * r->wide % TCI_MATRIX_ALIGN != 0) {
        longer++;
    }
    if (tci_dim_known(x->shape[perm[3]]) != r->wide) {
        tci_value zero = {.u = 0};
        x = tci_algo_pad_axis(r->a, x, (int)perm[3], r->wide,
                              tci_graph_const(r->a->g, (tc_dtype)x->dtype, zero));
    }
    return tci_relayout(r->a, x, (tci_relayout_to){perm, (int)perm[2], longer, true, false});
}

/* Windows of the image's copy: image, y, x, and of an element its row, position and channel. */
static tci_node *tci_small_conv_windows(const tci_small_conv *r)
{
    const tci_node *w = r->window;
    const int64_t last[4] = {0, 2, 3, 1}, order[6] = {0, 1, 2, 4, 5, 3};
    tci_node *x = tci_small_conv_copy(r, tci_small_conv_narrow(r, w->in[0]), last);
    const tci_dim shape[6] = {w->shape[0], w->shape[2], w->shape[3],
                              r->wide,     w->shape[4], w->shape[5]};
    int64_t *attr = tci_scratch_copy(r->a->s, w->attr, sizeof(int64_t) * 8);
    attr[0] = 1;
    attr[4] = 2;
    x = tci_graph_node(r->a->g, TCI_OP_WINDOW, (tc_dtype)x->dtype, 6, shape, 1, &x, 8, attr);
    return tci_algo_permute(r->a, x, order);
}

/* The contraction of the windows and that operand, whose labels are given, as are its result's. */
static tci_node *tci_small_conv_contract(const tci_small_conv *r, tc_dtype t, tci_node *other,
                                         const int64_t *other_labels, int rank,
                                         const tci_dim *shape, const int64_t *out)
{
    const tci_node *n = r->n;
    const int64_t order[6] = {0, 2, 3, 4, 5, 1};
    tci_contract_form f = tci_contract_form_of(n);
    tci_contract_turn(r->a->s, &f, r->image, order);
    f.labels[1 - r->image] = other_labels;
    f.labels[2] = out;
    f.rank[2] = rank;
    f.in[r->image] = tci_build_cast(r->a->g, tci_small_conv_windows(r),
                                    (tc_dtype)n->in[r->image]->dtype);
    f.in[1 - r->image] = tci_build_cast(r->a->g, other, (tc_dtype)n->in[1 - r->image]->dtype);
    return tci_contract_make(r->a->s, r->a->g, &f, t, shape);
}

static tci_node *tci_small_conv_forward(const tci_small_conv *r)
{
    const int64_t summed[3] = {r->labels[4], r->labels[5], r->labels[1]};
    int64_t perm[4] = {0, 0, 0, 0}, labels[4];
    for (int i = 0; i < 4; i++) {
        int at = tci_build_label(summed, 3, r->other_labels[i]);
        perm[at + 1] = i; /* the filters' own axis, found nowhere, is the first */
    }
    for (int i = 0; i < 4; i++) {
        labels[i] = r->other_labels[perm[i]];
    }
    return tci_small_conv_contract(r, (tc_dtype)r->n->dtype, tci_small_conv_copy(r, r->other, perm),
                                   labels, 4, r->n->shape, r->out);
}

/* Of the gradient of what a filter gave, with its filters last in memory: that of the filter, in
 * rows of windows, without the rows of channels that are zeros. Each image is a part
 * of the sum. */
static tci_node *tci_small_conv_gradient(const tci_small_conv *r)
{
    const int64_t places[3] = {r->labels[0], r->labels[2], r->labels[3]}, images = 0;
    int64_t perm[4] = {0, 0, 0, 0}, labels[4], back[4], whole[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    tci_dim shape[5] = {r->window->shape[0]};
    for (int i = 0; i < 4; i++) {
        int at = tci_build_label(places, 3, r->other_labels[i]);
        perm[at < 0 ? 3 : at] = i;
    }
    for (int i = 0; i < 4; i++) {
        labels[i] = r->other_labels[perm[i]];
    }
    const int64_t out[5] = {places[0], r->labels[4], labels[3], r->labels[5], r->labels[1]};
    for (int i = 0; i < 4; i++) {
        int from = tci_build_label(r->out, 4, out[1 + i]);
        shape[1 + i] = i < 3 ? r->n->shape[from] : r->wide;
        back[from] = i;
    }
    const tci_relayout_to filters_last = {.order = perm, .is_turned = true};
    tci_node *other = tci_relayout(r->a, r->other, filters_last);
    tci_node *n = tci_small_conv_contract(r, TC_F32, other, labels, 5, shape, out);
    n = tci_graph_node(r->a->g, TCI_OP_SUM, TC_F32, 4, shape + 1, 1, &n, 1, &images);
    shape[4] = r->channels;
    n = tci_graph_node(r->a->g, TCI_OP_SLICE, TC_F32, 4, shape + 1, 1, &n, 8, whole);
    return tci_build_cast(r->a->g, tci_algo_permute(r->a, n, back), (tc_dtype)r->n->dtype);
}

static bool tci_small_conv_fits(tci_offer *o)
{
    tci_small_conv *r = TCI_NEW(o->a->s, tci_small_conv);
    *r = (tci_small_conv){.a = o->a, .n = o->n, .c = o->c};
    o->found = r;
    return tci_plan_has_image_unit(o->a->machine) && o->n->dtype != TC_F64 &&
           tci_small_conv_find_operands(r) && tci_small_conv_measure(r) &&
           (tci_small_conv_are(r, false) || tci_small_conv_are(r, true));
}

/* Zeros are multiplied as channels are. */
static double tci_small_conv_cost(const tci_offer *o)
{
    const tci_small_conv *r = o->found;
    return tci_route_copies_ns(o, TCI_BY_UNIT) * (double)r->wide / (double)r->channels;
}

static tci_node *tci_small_conv_build(const tci_offer *o)
{
    const tci_small_conv *r = o->found;
    return tci_small_conv_are(r, false) ? tci_small_conv_forward(r) : tci_small_conv_gradient(r);
}

TCI_BLOCK_FN const tci_route *tci_route_few_channels(void)
{
    static const tci_route row = {"few channels as runs", TCI_SUMS_UNIT_RUNS,
                                  TCI_ROUTE_REORDERS,     tci_small_conv_fits,
                                  tci_small_conv_cost,    tci_small_conv_build};
    return &row;
}
/* ---- src/plan/depthwise_wgrad.c ---- */
/* plan/depthwise_wgrad.c - rewrites the weight gradient of a depthwise convolution (NHWC) as a
 * split reduction over image rows.
 *
 * In: a CONTRACT of windows of an image and the gradient of the convolution's output, both
 * channels last, whose result has the window axes and the channels. Out: a SUM of partial results,
 * channels last too; else NULL.
 *
 * Design: a thread has a vector of channels and some window elements
 * (loop/simt_short_reduction.c), for which a segment of a line is unrolled: each element of both
 * operands is read once. A part is some lines, or segments of one, so that there are enough
 * threads. */

enum {
    TCI_DWGRAD_THREADS = 1 << 14,        /* that keep any device busy, with several loads each */
    TCI_DWGRAD_CHAIN = TCI_WINDOW_CHAIN, /* products of a part, at most, */
    TCI_DWGRAD_EVEN = 64,                /* and where there are few */
    TCI_DWGRAD_AXES = 16
};

typedef struct tci_dwgrad {
    const tci_algo *a;
    const tci_node *n;
    int image; /* which operand has the windows */
    int rank;  /* of the windows, */
    int first; /* its elements are the last axes, from this one on */
    int channel;
    int64_t places[TCI_DWGRAD_AXES]; /* of an axis of windows in a part */
} tci_dwgrad;

/* ---- whether ---- */

/* True if the result has the kernel-window axes (which the other operand lacks) and, apart from
 * them, exactly one axis larger than 1: the channels. All other window axes are summed. */
static bool tci_dwgrad_fits(tci_dwgrad *p)
{
    const tci_node *x = p->n->in[p->image], *g = p->n->in[1 - p->image];
    int channels = 0, taken = 0;
    for (int i = 0; i < p->rank; i++) {
        bool kept = !tci_contract_sums_axis(p->n, p->image, i), one = x->shape[i] == 1;
        bool there = tci_contract_place(p->n, p->image, i, 1 - p->image) >= 0;
        if (i >= p->first ? !kept || there : !one && !there) {
            return false;
        }
        bool channel = i < p->first && !one && kept;
        p->channel = channel ? i : p->channel;
        channels += channel;
    }
    for (int i = 0; i < g->rank; i++) {
        int at = tci_contract_place(p->n, 1 - p->image, i, p->image);
        taken += g->shape[i] != 1 && (at < 0 || at >= p->first);
    }
    return channels == 1 && taken == 0 &&
           tci_dim_known(x->shape[p->channel]) % TCI_MATRIX_ALIGN == 0;
}

static bool tci_dwgrad_look(tci_dwgrad *p)
{
    const tci_node *n = p->n;
    bool known = tci_build_is_known(n->rank, n->shape) && n->dtype != TC_F64;
    p->image = tci_below(n->in[0], TCI_THROUGH_CASTS, NULL)->op == TCI_OP_WINDOW ? 0 : 1;
    const tci_node *window = tci_below(n->in[p->image], TCI_THROUGH_CASTS, NULL);
    for (int i = 0; i < 2; i++) {
        known = known && tci_build_is_known(n->in[i]->rank, n->in[i]->shape) &&
                tci_node_count(n->in[i]) != 0;
    }
    if (!known || window->op != TCI_OP_WINDOW || window->rank > TCI_DWGRAD_AXES) {
        return false;
    }
    p->rank = window->rank;
    p->first = window->in[0]->rank;
    return tci_dwgrad_fits(p);
}

/* The axis of the channels in the image behind operand `which`; -1: it is none. */
static int tci_dwgrad_axis(const tci_dwgrad *p, int which, tci_node **image)
{
    tci_node *x = p->n->in[which];
    int at = tci_contract_place(p->n, p->image, p->channel, which);
    *image = tci_plan_image(p->a, x);
    return *image ? tci_plan_image_axis(x, *image, at) : -1;
}

TCI_FN int tci_plan_alone_axis(const tci_algo *a, const tci_node *n, int which, tci_node **image)
{
    tci_dwgrad p = {.a = a, .n = n};
    return tci_dwgrad_look(&p) ? tci_dwgrad_axis(&p, which, image) : -1;
}

static bool tci_dwgrad_has_lines(const tci_dwgrad *p)
{
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        tci_node *image;
        int axis = tci_dwgrad_axis(p, i, &image);
        fits = fits && axis >= 0 && axis == image->rank - 1;
    }
    return fits;
}

/* ---- parts ---- */

/* The largest divisor up to `most`; the next one, up to `limit`, where that is less than half. */
static int64_t tci_dwgrad_divisor(int64_t n, int64_t most, int64_t limit)
{
    int64_t d = TCI_MAX(TCI_MIN(n, most), 1), next = d;
    while (n % d != 0) {
        d--;
    }
    while (n % next != 0) {
        next++;
    }
    return 2 * d < most && next <= limit ? next : d;
}

/* Places of a part: as many as leave threads enough, or about as many as there are parts, so that
 * adding these takes no longer than making them. */
static int64_t tci_dwgrad_most(const tci_dwgrad *p)
{
    const tci_node *x = p->n->in[p->image];
    int64_t all = tci_dim_known(tci_node_count(x)), last = tci_dim_known(x->shape[p->rank - 1]);
    int64_t places = 1, even = 1;
    for (int i = 0; i < p->first; i++) {
        places *= i == p->channel ? 1 : tci_dim_known(x->shape[i]);
    }
    while (even < TCI_DWGRAD_EVEN && even * even < places) {
        even++;
    }
    return TCI_MIN(TCI_MAX(all / last / TCI_MATRIX_ALIGN / TCI_DWGRAD_THREADS, even),
                   TCI_DWGRAD_CHAIN);
}

/* From the innermost summed axis on, this many positions. */
static void tci_dwgrad_cut(tci_dwgrad *p)
{
    int64_t most = tci_dwgrad_most(p), limit = TCI_DWGRAD_CHAIN;
    for (int i = p->first - 1; i >= 0; i--) {
        int64_t size = tci_dim_known(p->n->in[p->image]->shape[i]);
        p->places[i] = i == p->channel ? size : tci_dwgrad_divisor(size, most, limit);
        if (i != p->channel) {
            most = p->places[i] < size ? 1 : most / size;
            limit /= p->places[i];
        }
    }
}

/* The axes of n with the channels behind the others: order[i] is the i-th of them. */
static void tci_dwgrad_order(const tci_dwgrad *p, int64_t *order)
{
    int rank = p->n->rank, at = 0;
    for (int i = 0; i < rank; i++) {
        bool channel = tci_contract_place(p->n, 2, i, p->image) == p->channel;
        order[channel ? rank - 1 : at++] = i;
    }
}

static bool tci_dwgrad_route_fits(tci_offer *o)
{
    tci_dwgrad *p = TCI_NEW(o->a->s, tci_dwgrad);
    *p = (tci_dwgrad){.a = o->a, .n = o->n};
    o->found = p;
    return tci_plan_has_image_unit(o->a->machine) && tci_dwgrad_look(p) && tci_dwgrad_has_lines(p);
}

static double tci_dwgrad_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    work.launches++;
    return tci_route_ns(o, work);
}

static tci_node *tci_dwgrad_build(const tci_offer *o)
{
    const tci_algo *a = o->a;
    tci_node *n = o->n;
    tci_dwgrad p = *(const tci_dwgrad *)o->found;
    tci_dwgrad_cut(&p);
    int64_t fresh = tci_contract_fresh(n);
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, n->rank);
    int64_t *back = TCI_NEW_ARRAY(a->s, int64_t, n->rank);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, n->rank);
    tci_rfactor_label cuts[TCI_DWGRAD_AXES];
    tci_contract_form f = tci_contract_form_of(n);
    int n_cuts = 0;
    for (int i = 0; i < p.first; i++) {
        int64_t size = tci_dim_known(n->in[p.image]->shape[i]), places = p.places[i];
        if (places < size) {
            cuts[n_cuts++] = (tci_rfactor_label){f.labels[p.image][i], fresh + i, 0, size / places,
                                                 places};
        }
    }
    tci_dwgrad_order(&p, order);
    for (int i = 0; i < n->rank; i++) {
        shape[i] = n->shape[order[i]];
        back[order[i]] = i;
    }
    tci_contract_turn(a->s, &f, 2, order);
    f.in[0] = tci_build_cast(a->g, n->in[0], TC_F32);
    f.in[1] = tci_build_cast(a->g, n->in[1], TC_F32);
    tci_node *sum = tci_rfactor_contract(a, &f, TC_F32, shape, cuts, n_cuts);
    tci_node *cut = n_cuts > 0 ? tci_plan_split(a, sum) : NULL;
    sum = cut ? cut : sum;
    return tci_build_cast(a->g, tci_algo_permute(a, sum, back), (tc_dtype)n->dtype);
}

TCI_BLOCK_FN const tci_route *tci_route_depthwise(void)
{
    static const tci_route row = {"depthwise filter gradient", TCI_SUMS_LINES,  TCI_ROUTE_REORDERS,
                                  tci_dwgrad_route_fits,       tci_dwgrad_cost, tci_dwgrad_build};
    return &row;
}
/* ---- src/plan/bf16x3.c ---- */
/* plan/bf16x3.c - rewrites an f32 GEMM as three bf16 GEMMs in one contraction (BF16x3), for tensor
 * cores.
 *
 * In: a CONTRACT of f32 values, under TC_MATH_FAST, on a GPU whose matrix unit takes bf16. Out: a
 * CONTRACT of bf16 values with one more summed axis, or NULL to leave it as it is.
 *
 * Design: x = high + low with high = bf16(x) and low = bf16(x - high), up to 2^-18 |x|; a b = low
 * high + high low + high high, up to 3 * 2^-18 |a b|. Each factor is copied three times, as these
 * parts, along a new summed axis; windows, padding and permutations stay above the copies. An
 * infinite factor gives NaN. The copies cost memory traffic, so each element must be used in many
 * products. */


enum {
    TCI_BF16X3_PARTS = 3,
    TCI_BF16X3_REUSE = 192,    /* products of each element of the factors, at least, */
    TCI_BF16X3_LEAST = 1 << 27 /* and of all */
};

typedef struct tci_bf16x3 {
    const tci_algo *a;
    tci_graph *g;
    tci_node *n;
    tci_node *source[2];
} tci_bf16x3;

/* ---- whether ---- */

static bool tci_bf16x3_pay(tci_bf16x3 *h, const tci_contraction *c)
{
    const int through = TCI_THROUGH_MOVEMENT | TCI_THROUGH_ZEROS | TCI_THROUGH_KNOWN;
    double elements = 0;
    for (int k = 0; k < 2; k++) {
        h->source[k] = tci_below(h->n->in[k], through, NULL);
        if (!tci_is_known(h->source[k]) || h->source[k]->rank == 0) {
            return false;
        }
        elements += (double)tci_dim_known(tci_node_count(h->source[k]));
    }
    return c->is_known && c->products >= TCI_BF16X3_LEAST &&
           c->products >= TCI_BF16X3_REUSE * elements;
}

/* ---- nodes ---- */

/* x three times along a first axis, in bf16: the low part in place low_at, else the high one. */
static tci_node *tci_bf16x3_stack(const tci_bf16x3 *h, tci_node *x, int low_at)
{
    tci_graph *g = h->g;
    tci_dim *shape = TCI_NEW_ARRAY(h->a->s, tci_dim, x->rank + 1);
    shape[0] = 1;
    for (int i = 0; i < x->rank; i++) {
        shape[i + 1] = x->shape[i];
    }
    tci_node *all = tci_build_reshape(g, x, x->rank + 1, shape);
    tci_node *high = tci_build_cast(g, tci_build_cast(g, all, TC_BF16), TC_F32);
    tci_node *low = tci_composite_binary(g, TCI_OP_SUB, all, high);
    tci_node *place = tci_composite_ramp(g, TCI_BF16X3_PARTS, x->rank + 1, 0);
    tci_node *is_low = tci_composite_binary(g, TCI_OP_EQ, place, tci_composite_whole(g, low_at));
    return tci_build_cast(g, tci_build_where(g, is_low, low, all), TC_BF16);
}

/* Rebuilds the layout ops on top of x over `stack`, in place of the value below it. */
static tci_node *tci_bf16x3_over(const tci_bf16x3 *h, const tci_node *x, const tci_node *source,
                                 tci_node *stack)
{
    if (x == source) {
        return stack;
    }
    tci_scratch *s = h->a->s;
    int each = x->op == TCI_OP_SLICE ? 2 : x->op == TCI_OP_PERMUTE || x->op == TCI_OP_PAD ? 1 : 0;
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, x->rank + 1);
    int64_t *attr = TCI_NEW_ARRAY(s, int64_t, x->n_attr + 2);
    shape[0] = TCI_BF16X3_PARTS;
    for (int i = 0; i < x->rank; i++) {
        shape[i + 1] = x->shape[i];
    }
    attr[1] = 1; /* a slice's step */
    for (int i = 0; i < x->n_attr; i++) {
        bool axis = x->op == TCI_OP_PERMUTE || (x->op == TCI_OP_WINDOW && i % 4 == 0);
        attr[each + i] = x->attr[i] + axis;
    }
    tci_node *in[2] = {tci_bf16x3_over(h, x->in[0], source, stack), NULL};
    if (x->op == TCI_OP_PAD) {
        in[1] = tci_graph_const(h->g, TC_BF16, (tci_value){.u = 0});
    }
    return tci_graph_node(h->g, x->op, TC_BF16, x->rank + 1, shape, x->n_in, in, each + x->n_attr,
                          attr);
}

/* The contraction of f16 or bf16 values, for which a matrix unit has a route. */
static bool tci_bf16x3_fits(tci_offer *o)
{
    const tci_machine *m = &o->a->machine;
    tci_bf16x3 h = {.a = o->a, .g = o->a->g, .n = o->n};
    bool unit = m->block_threads > 0 && m->matrix_units > 0 && m->is_fast;
    if (!unit || o->n->dtype != TC_F32 || o->n->in[0]->dtype != TC_F32 || o->n->rank < 2 ||
        !tci_bf16x3_pay(&h, o->c)) {
        return false;
    }
    tci_contract_form f = tci_contract_form_of(h.n);
    for (int k = 0; k < 2; k++) {
        tci_node *stack = tci_bf16x3_stack(&h, h.source[k], k), *x = h.n->in[k];
        f.in[k] = tci_bf16x3_over(&h, x, h.source[k], stack);
        tci_contract_lead(o->a->s, &f, k, tci_contract_fresh(h.n));
    }
    tci_node *made = tci_contract_make(o->a->s, h.g, &f, TC_F32, h.n->shape);
    tci_route_choice *choice = TCI_NEW(o->a->s, tci_route_choice);
    *choice = o->a->router->choose(o->a, made, tci_contraction_of(o->a->s, made), TCI_SUMS_UNIT);
    o->found = choice;
    return choice->n > 0;
}

static const tci_offer *tci_bf16x3_offer(const tci_offer *o)
{
    const tci_route_choice *choice = o->found;
    return &choice->offers[choice->best];
}

static double tci_bf16x3_cost(const tci_offer *o)
{
    return tci_route_copies_ns(o, TCI_BY_UNIT) + tci_bf16x3_offer(o)->cost_ns;
}

static tci_node *tci_bf16x3_build(const tci_offer *o)
{
    const tci_offer *unit = tci_bf16x3_offer(o);
    tci_str_add(o->a->orders, "contract of f32: of bf16 halves, low high + high low + high high, "
                              "as math may be fast\n");
    return unit->route->build(unit);
}

TCI_BLOCK_FN const tci_route *tci_route_bf16x3(void)
{
    static const tci_route row = {
        "bf16x3",        TCI_SUMS_FAST,   TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_bf16x3_fits, tci_bf16x3_cost, tci_bf16x3_build};
    return &row;
}
/* ---- src/plan/kmajor.c ---- */
/* plan/kmajor.c - copies GEMM operands to K-major order, which TF32 and int8 tensor cores need.
 *
 * In: a CONTRACT of f32 values, not both widened from half precision, under TC_MATH_FAST, or of
 * int8 operands converted to i32, on a GPU with a matrix unit. Out: the same CONTRACT of operands
 * that are contiguous along the summed axis, in aligned rows; NULL to leave it as it is. Design:
 * tensor cores transpose only 16-bit operands, so others are copied (int8 operands stay int8) if
 * each element of a copy is used often enough. Batched products are left to plan/bf16x3.c: those of
 * attention would merge into SIMT kernels, which take longer. No value changes here:
 * plan/reduction_order.c gives the class to kernels that kernel/match_matrix_unit.c accepts. */

typedef struct tci_kmajor {
    const tci_algo *a;
    const tci_node *n;
    const tci_contraction *c;
    tci_node *in[2], *source[2]; /* what is multiplied: the operands, bytes as they are given */
    const tci_contract_axis_of *along; /* of K: to be contiguous in both operands */
    bool along_k[2];
} tci_kmajor;

static bool tci_kmajor_widens(const tci_node *n)
{
    return n->op == TCI_OP_CAST && tci_dtype_is_half((tc_dtype)n->in[0]->dtype);
}

static bool tci_kmajor_look(tci_kmajor *m)
{
    const tci_node *n = m->n;
    bool fits = n->rank >= 2 && tci_build_is_known(n->rank, n->shape);
    for (int i = 0; i < 2; i++) {
        tci_node *narrow = n->dtype == TC_I32 ? tci_plan_narrow(m->a, n->in[i]) : n->in[i];
        m->in[i] = narrow ? narrow : n->in[i];
        m->source[i] = tci_below(m->in[i], TCI_THROUGH_VIEWS, NULL);
        tc_dtype t = (tc_dtype)m->source[i]->dtype;
        fits = fits && (n->dtype == TC_I32 ? t == TC_I8 || t == TC_U8 : t == TC_F32) &&
               m->source[i]->op != TCI_OP_WINDOW &&
               tci_build_is_known(n->in[i]->rank, n->in[i]->shape) &&
               tci_build_is_known(m->source[i]->rank, m->source[i]->shape) &&
               m->source[i]->rank > 0;
    }
    bool halves = tci_kmajor_widens(m->source[0]) && tci_kmajor_widens(m->source[1]);
    return fits && !halves;
}

/* ---- its layout ---- */

/* The axis of K that is contiguous in the larger one of the operands that have such an axis
 * contiguous, else the longest; false: there is none. */
static bool tci_kmajor_choose(tci_kmajor *m)
{
    int64_t most = -1, longest = 0;
    for (int i = 0; i < m->c->n_axes; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        if (axis->group != TCI_AXES_K) {
            continue;
        }
        int64_t size = tci_dim_known(axis->size), held = 0;
        for (int which = 0; which < 2; which++) {
            const tci_node *x = m->in[which];
            bool along_k = tci_fastest_axis(x) == axis->at[which];
            held = along_k ? TCI_MAX(held, tci_dim_known(tci_node_count(x))) : held;
        }
        if (held > most || (held == most && size > longest)) {
            m->along = axis;
            most = held;
            longest = size;
        }
    }
    return most >= 0;
}

/* True if operand `which` is contiguous along K, in rows that the matrix unit reads. */
static bool tci_kmajor_is_along(const tci_kmajor *m, int which)
{
    const tci_node *x = m->in[which], *source = m->source[which];
    return tci_fastest_axis(x) == m->along->at[which] &&
           tci_dim_known(source->shape[source->rank - 1]) % tci_matrix_align(x->dtype) == 0;
}

/* True if there are M and N axes, no batch, and enough products for each element of a copy. */
static bool tci_kmajor_pays(const tci_kmajor *m)
{
    double products = m->c->products, copied = 0;
    int64_t most[2] = {0, 0};
    for (int i = 0; i < m->n->rank; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        int64_t size = tci_dim_known(axis->size);
        if (axis->group == TCI_AXES_BATCH && size > 1) {
            return false;
        }
        most[axis->at[1] >= 0] = TCI_MAX(most[axis->at[1] >= 0], size);
    }
    for (int i = 0; i < 2; i++) {
        copied += m->along_k[i] ? 0 : (double)tci_dim_known(tci_node_count(m->n->in[i]));
    }
    bool bytes = m->n->dtype == TC_I32;
    bool large = products >= (bytes ? TCI_KMAJOR_BYTES_LEAST : TCI_KMAJOR_LEAST) &&
                 products >= (bytes ? TCI_KMAJOR_BYTES_REUSE : TCI_KMAJOR_REUSE) * copied;
    return most[0] >= TCI_MATRIX_SINGLE && most[1] >= TCI_MATRIX_SINGLE &&
           2 * products >= TCI_MATRIX_FLOPS && (copied == 0 || large);
}

static bool tci_kmajor_fits(tci_offer *o)
{
    tci_kmajor *m = TCI_NEW(o->a->s, tci_kmajor);
    *m = (tci_kmajor){.a = o->a, .n = o->n, .c = o->c};
    const tci_machine *machine = &o->a->machine;
    bool exact = o->n->dtype == TC_I32;
    bool unit = machine->block_threads > 0 && machine->matrix_units > 0 &&
                (exact || (o->n->dtype == TC_F32 && machine->is_fast));
    o->found = m;
    if (!unit || !tci_kmajor_look(m) || !tci_kmajor_choose(m)) {
        return false;
    }
    m->along_k[0] = tci_kmajor_is_along(m, 0);
    m->along_k[1] = tci_kmajor_is_along(m, 1);
    return tci_kmajor_pays(m);
}

static double tci_kmajor_cost(const tci_offer *o)
{
    const tci_kmajor *m = o->found;
    tci_route_work work = tci_route_work_of(o,
                                            o->n->dtype == TC_F32 ? TCI_BY_UNIT_F32 : TCI_BY_UNIT);
    for (int i = 0; i < 2; i++) {
        work.bytes += m->along_k[i] ? 0 : 2 * o->c->in[i].bytes;
        work.launches += !m->along_k[i];
    }
    return tci_route_ns(o, work);
}

/* ---- the copies ---- */

/* Operand `which` of f with that axis contiguous: as it is in memory, or a copy. */
static void tci_kmajor_operand(const tci_kmajor *m, int which, tci_contract_form *f)
{
    tci_node *x = m->in[which];
    if (m->along_k[which]) {
        tci_algo_force(m->a, m->source[which]);
        return;
    }
    int64_t *order = TCI_NEW_ARRAY(m->a->s, int64_t, x->rank);
    tci_relayout_last(x, m->along->at[which], order);
    tci_contract_turn(m->a->s, f, which, order);
    x = tci_relayout_pitch(m->a, x, order, tci_matrix_align(x->dtype));
    f->in[which] = tci_build_cast(m->a->g, x, (tc_dtype)m->n->dtype);
}

static tci_node *tci_kmajor_build(const tci_offer *o)
{
    const tci_kmajor *m = o->found;
    tci_contract_form f = tci_contract_form_of(o->n);
    tci_kmajor_operand(m, 0, &f);
    tci_kmajor_operand(m, 1, &f);
    return tci_contract_make(o->a->s, o->a->g, &f, (tc_dtype)o->n->dtype, o->n->shape);
}

TCI_BLOCK_FN const tci_route *tci_route_kmajor(void)
{
    static const tci_route row = {
        "K-major copies", TCI_SUMS_UNIT,   TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_kmajor_fits,  tci_kmajor_cost, tci_kmajor_build};
    return &row;
}
/* ---- src/plan/tensor_core_split_k.c ---- */
/* plan/tensor_core_split_k.c - split-K on tensor cores for GEMMs with few tiles: parts of K become
 * a batch axis.
 *
 * In: a CONTRACT of bf16 or f16 values that a matrix unit takes, on a GPU. Out: the same product
 * with K cut in parts, which a second kernel adds in f32. Design: a GPU has 132 SMs and a tile
 * keeps one busy; with fewer tiles than that, parts of K become tiles of their own if that saves
 * more than the second kernel and the partial sums take. The number of parts follows from shapes
 * and the constants of the kind of machine, so it is the same on every GPU. */

#include <math.h>

enum {
    TCI_SPLIT_K_UNIT_SLAB = 64,    /* products along K that a tile takes in at once */
    TCI_SPLIT_K_UNIT_BEGIN = 3900, /* cycles until the first slab is there, and for the results */
    TCI_SPLIT_K_UNIT_BYTES = 1900  /* that memory gives to all SMs in a cycle */
};
/* Times of a whole product in which parts must be done. */
#define TCI_SPLIT_K_UNIT_GAIN 0.85

/* Cycles of a device with matrix units for this many parts, as tci_split_k_cycles: waves of blocks
 * that each make a tile, no faster than memory gives the operands. */
TCI_BLOCK_FN double tci_unit_gemm_cycles(const tci_unit_gemm *g, double parts)
{
    static const struct {
        int m, n, slab;
    } tiles[] = {{64, 64, 265}, {128, 64, 400}, {64, 128, 400}, {128, 128, 491}};
    double slabs = ceil(g->k / parts / TCI_SPLIT_K_UNIT_SLAB), least = HUGE_VAL;
    for (int i = 0; i < TCI_COUNT(tiles); i++) {
        double n = ceil(g->size[TCI_AXES_M] / tiles[i].m) * ceil(g->size[TCI_AXES_N] / tiles[i].n);
        double waves = ceil(parts * n * g->size[TCI_AXES_BATCH] / TCI_SPLIT_K_PROCESSORS);
        double slab = TCI_MAX(tiles[i].slab, g->step);
        least = TCI_MIN(least, waves * (slabs * slab + TCI_SPLIT_K_UNIT_BEGIN));
    }
    double operands = g->bytes / TCI_SPLIT_K_UNIT_BYTES;
    double moved = 2 * parts * g->results * g->sum_bytes / TCI_SPLIT_K_CYCLE_BYTES;
    double cycles = TCI_MAX(least, operands + TCI_SPLIT_K_UNIT_BEGIN);
    return parts > 1 ? cycles + TCI_SPLIT_K_LAUNCH + moved : cycles;
}

TCI_BLOCK_FN double tci_unit_gemm_parts(const tci_unit_gemm *g)
{
    double best = 1;
    for (double parts = 2; parts <= TCI_SPLIT_K_MANY && parts * TCI_SPLIT_K_LEAST_HALVES <= g->k;
         parts *= 2) {
        bool faster = tci_unit_gemm_cycles(g, parts) < 0.9 * tci_unit_gemm_cycles(g, best);
        best = faster ? parts : best;
    }
    return tci_unit_gemm_cycles(g, best) < TCI_SPLIT_K_UNIT_GAIN * tci_unit_gemm_cycles(g, 1) ? best
                                                                                              : 1;
}

static tci_unit_gemm tci_split_k_unit_gemm(const tci_split_k *p)
{
    return (tci_unit_gemm){.size = p->c->size,
                           .k = tci_split_k_products(p),
                           .bytes = p->c->in[0].bytes + p->c->in[1].bytes,
                           .results = (double)tci_dim_known(tci_node_count(p->n)),
                           .sum_bytes = tci_dtype_get(p->sum)->bytes};
}

/* Cuts K in about this many parts, each of a length at which rows begin where a unit reads them. */
static bool tci_split_k_unit_cut(tci_split_k *p, double parts)
{
    int64_t inner = 1, want = (int64_t)ceil(tci_split_k_products(p) / parts);
    p->at = p->n_summed - 1;
    while (p->at > 0 && inner * p->sizes[p->at] <= want) {
        inner *= p->sizes[p->at--];
    }
    int64_t size = p->sizes[p->at], least = (want + inner - 1) / inner;
    for (p->length = least; p->length < 2 * least && p->length <= size; p->length++) {
        if (size % p->length == 0 && inner * p->length % TCI_MATRIX_ALIGN == 0) {
            return p->at > 0 || p->length < size;
        }
    }
    return false;
}

/* Few tiles leave most units of a device idle: then parts of K are tiles of their own. Windows are
 * left to plan/conv_layout.c and plan/im2col_gemm.c. */
static bool tci_split_k_unit_fit(tci_offer *o)
{
    tci_offer unit;
    tci_split_k *p = TCI_NEW(o->a->s, tci_split_k);
    *p = (tci_split_k){.a = o->a, .s = o->a->s, .g = o->a->g, .n = o->n};
    o->found = p;
    if (o->a->machine.block_threads == 0 || tci_route_reads_windows(o->a, o->c) ||
        !tci_route_fits(tci_route_unit(), o->a, o->n, o->c, &unit) || !tci_split_k_begin(p)) {
        return false;
    }
    const tci_unit_gemm g = tci_split_k_unit_gemm(p);
    double parts = tci_unit_gemm_parts(&g);
    return parts > 1 && tci_split_k_unit_cut(p, parts);
}

static double tci_split_k_unit_cost(const tci_offer *o)
{
    const tci_split_k *p = o->found;
    double parts = tci_split_k_moved(p) / 2 / tci_node_value_bytes(o->n);
    const tci_unit_gemm g = tci_split_k_unit_gemm(p);
    return tci_unit_gemm_cycles(&g, TCI_MAX(parts, 2)) /
           tci_machine_complete(o->a->machine).facts.ghz;
}

static tci_node *tci_split_k_unit_build(const tci_offer *o)
{
    const tci_split_k *found = o->found;
    tci_split_k p = {.a = o->a, .s = o->a->s, .g = o->a->g, .n = tci_route_unit()->build(o)};
    TCI_ASSERT(o->a->s, tci_split_k_begin(&p));
    p.at = found->at;
    p.length = found->length;
    return tci_split_k_made(&p);
}

TCI_BLOCK_FN const tci_route *tci_route_unit_split_k(void)
{
    static const tci_route row = {
        "split-K MMA",        TCI_SUMS_UNIT_PARTS,   TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_split_k_unit_fit, tci_split_k_unit_cost, tci_split_k_unit_build};
    return &row;
}
/* ---- src/plan/im2col_gemm.c ---- */
/* plan/im2col_gemm.c - explicit im2col: convolutions with few output tiles, or with windows that no
 * TMA box describes, as a GEMM over a copy of the windows.
 *
 * In: a CONTRACT of bf16 or f16 values, whose one operand is windows of an image, and no batch
 * axis, on a GPU. Out: the copy [positions, taps] (positions: images and positions of windows;
 * taps: channels and window elements), the other operand as a matrix, a CONTRACT of two axes each,
 * which takes a route of its own (split-K, plan/tensor_core_split_k.c), and the result in the axes
 * of the old one.
 *
 * Design: implicit GEMM (plan/conv_layout.c) reads windows as TMA boxes and copies nothing, but
 * each tile iterates over all of K: a convolution of 64 images of 2 x 2 has 16 tiles of 72 steps
 * for 132 SMs. The copy is small then, and its K may be cut. Windows of few channels have no TMA
 * box at all. The route fits where the model of such kernels is faster than the kernel that it
 * replaces; the model has the constants of a kind of machine, so the choice is the same on every
 * GPU. */

enum {
    TCI_IM2COL_STEP = 320, /* cycles of a step of implicit GEMM on few tiles (measured, H200) */
    TCI_IM2COL_WAIT = 50,  /* cycles of a step of K where threads compute windows, at least, */
    TCI_IM2COL_LANES = 64, /* multiply-adds of an SM in a cycle there, */
    TCI_IM2COL_NARROW = 8  /* and where the result has fewer columns than the unit (measured) */
};
/* Time of the kernel that is replaced in which copy and product must be done. */
#define TCI_IM2COL_GAIN 0.85

typedef struct tci_im2col {
    const tci_algo *a;
    const tci_node *n;
    const tci_contraction *c;
    int which;         /* the operand that is windows */
    tci_axes taps;     /* the group of its channels and elements: K, or its own */
    tci_node *half[2]; /* the operands as f16 or bf16 */
    double cycles;     /* of the route */
} tci_im2col;

static tci_axes tci_im2col_own(int which)
{
    return which ? TCI_AXES_N : TCI_AXES_M;
}

/* Operand x in f16 or bf16; NULL: it is something else. */
static tci_node *tci_im2col_half(const tci_algo *a, tci_node *x)
{
    if (tci_dtype_is_half((tc_dtype)x->dtype)) {
        return x;
    }
    tci_node *cast = tci_below(x, TCI_THROUGH_MOVEMENT | TCI_THROUGH_ZEROS, a->forced);
    bool widens = cast->op == TCI_OP_CAST && !tci_table_has(a->forced, cast) &&
                  tci_dtype_is_half((tc_dtype)cast->in[0]->dtype);
    return widens ? tci_relayout_over(a, x, cast, cast->in[0]) : NULL;
}

/* Operand `which` below casts. */
static tci_node *tci_im2col_below(const tci_im2col *m, int which)
{
    return tci_below(m->n->in[which], TCI_THROUGH_CASTS, NULL);
}

/* Positions of the windows that operand `which` is, 0: it is none. Filters that are read in phases
 * are windows too, of one position. */
static double tci_im2col_positions(const tci_im2col *m, int which)
{
    const tci_node *w = tci_im2col_below(m, which);
    double positions = w->op == TCI_OP_WINDOW;
    for (int i = 0; w->op == TCI_OP_WINDOW && i < w->n_attr; i += 4) {
        positions *= (double)tci_dim_known(w->shape[w->attr[i]]);
    }
    return positions;
}

/* Finds the operand of windows; its window axes must be in one group. */
static bool tci_im2col_find_taps(tci_im2col *m)
{
    m->which = tci_im2col_positions(m, 0) < tci_im2col_positions(m, 1);
    const tci_node *w = tci_im2col_below(m, m->which);
    if (w->op != TCI_OP_WINDOW) {
        return false;
    }
    int first = w->in[0]->rank;
    bool fits = true, found = false;
    for (int i = 0; i < m->c->n_axes; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        if (axis->at[m->which] >= first) {
            fits = fits && (!found || m->taps == (tci_axes)axis->group);
            m->taps = (tci_axes)axis->group;
            found = true;
        }
        bool other = axis->group == TCI_AXES_BATCH || axis->group == TCI_AXES_ALONE;
        fits = fits && !(other && tci_dim_lt(1, axis->size));
    }
    return found && fits && (m->taps == TCI_AXES_K || m->taps == tci_im2col_own(m->which));
}

/* The group that is contiguous in operand `which` as a matrix. */
static tci_axes tci_im2col_inner(const tci_im2col *m, int which)
{
    if (which == m->which) {
        return m->taps;
    }
    const tci_contract_operand *x = &m->c->in[which];
    bool summed = tci_contract_sums(m->n, x->labels[x->fastest]);
    return summed ? TCI_AXES_K : tci_im2col_own(which);
}

static bool tci_im2col_look(tci_im2col *m)
{
    const double *size = m->c->size;
    if (!m->c->is_known || m->n->rank < 2 || m->c->columns < 0 || !tci_im2col_find_taps(m)) {
        return false;
    }
    bool fits = size[TCI_AXES_M] >= TCI_MATRIX_FEW && size[TCI_AXES_N] >= TCI_MATRIX_FEW &&
                TCI_MAX(size[TCI_AXES_M], size[TCI_AXES_N]) <= INT32_MAX &&
                size[TCI_AXES_K] <= INT32_MAX && size[TCI_AXES_K] >= TCI_MATRIX_DEPTH &&
                2 * m->c->products >= TCI_MATRIX_FLOPS;
    for (int i = 0; i < 2 && fits; i++) {
        fits = (int64_t)size[tci_im2col_inner(m, i)] % TCI_MATRIX_ALIGN == 0;
        m->half[i] = fits ? tci_im2col_half(m->a, m->n->in[i]) : NULL;
        fits = m->half[i] != NULL;
    }
    return fits && m->half[0]->dtype == m->half[1]->dtype &&
           size[m->c->columns ? TCI_AXES_N : TCI_AXES_M] >= TCI_MATRIX_COLUMNS;
}

/* ---- the model ---- */

/* Cycles of the copy and the product. */
static double tci_im2col_cycles(const tci_im2col *m)
{
    const double *size = m->c->size;
    const double copy = 2 * size[TCI_AXES_K] * size[tci_im2col_own(m->which)];
    const tci_unit_gemm g = {.size = size,
                             .k = size[TCI_AXES_K],
                             .bytes = copy + m->c->in[1 - m->which].bytes,
                             .results = size[TCI_AXES_M] * size[TCI_AXES_N],
                             .sum_bytes = 4};
    return tci_unit_gemm_cycles(&g, tci_unit_gemm_parts(&g)) + TCI_SPLIT_K_LAUNCH +
           copy / TCI_SPLIT_K_CYCLE_BYTES;
}

/* Columns of the result that a tile may have: positions of one image where they come last. */
static double tci_im2col_columns(const tci_im2col *m)
{
    double columns = 1;
    if (m->c->columns != m->which) {
        return m->c->size[m->which ? TCI_AXES_M : TCI_AXES_N];
    }
    for (int i = m->n->rank - 1; i >= 0 && i >= m->n->rank - 2; i--) {
        bool own = m->c->axes[i].group == tci_im2col_own(m->which);
        columns *= own ? (double)tci_dim_known(m->n->shape[i]) : 1;
    }
    return columns;
}

/* Cycles of the kernel that computes the contraction otherwise. */
static double tci_im2col_replaced(const tci_im2col *m, bool boxes)
{
    const double *size = m->c->size;
    const bool narrow = tci_im2col_columns(m) < TCI_MATRIX_COLUMNS;
    if (!boxes || narrow) {
        int lanes = narrow ? TCI_IM2COL_NARROW : TCI_IM2COL_LANES;
        return TCI_MAX(m->c->products / (TCI_SPLIT_K_PROCESSORS * lanes),
                       size[TCI_AXES_K] * TCI_IM2COL_WAIT);
    }
    const tci_unit_gemm g = {.size = size,
                             .k = size[TCI_AXES_K],
                             .bytes = m->c->in[0].bytes + m->c->in[1].bytes,
                             .results = size[TCI_AXES_M] * size[TCI_AXES_N],
                             .sum_bytes = 4,
                             .step = TCI_IM2COL_STEP};
    return tci_unit_gemm_cycles(&g, 1);
}

/* Other copies of few channels compete by their cost, and a gradient of filters over boxes has its
 * K cut as it is. */
static bool tci_im2col_fits(tci_offer *o)
{
    const tci_algo *a = o->a;
    tci_offer other;
    tci_im2col *m = TCI_NEW(a->s, tci_im2col);
    *m = (tci_im2col){.a = a, .n = o->n, .c = o->c};
    o->found = m;
    if (!tci_plan_has_image_unit(a->machine) || !tci_route_reads_windows(a, o->c) ||
        !tci_im2col_look(m)) {
        return false;
    }
    m->cycles = tci_im2col_cycles(m);
    bool boxes = tci_route_fits(tci_route_channels_last(), a, o->n, o->c, &other);
    return tci_route_fits(tci_route_few_channels(), a, o->n, o->c, &other) ||
           (!(boxes && m->taps != TCI_AXES_K) &&
            m->cycles < TCI_IM2COL_GAIN * tci_im2col_replaced(m, boxes));
}

static double tci_im2col_cost(const tci_offer *o)
{
    const tci_im2col *m = o->found;
    return m->cycles / tci_machine_complete(o->a->machine).facts.ghz;
}

/* ---- the matrices ---- */

/* Writes the axes of a group, as positions in c->axes, in the order of the matrices: of taps as the
 * windows have them, but with that one last which is contiguous in the image. How many. */
static int tci_im2col_group(const tci_im2col *m, tci_axes group, int *list)
{
    const tci_contraction *c = m->c;
    const int by = group == m->taps || group == TCI_AXES_K ? m->which : 2;
    tci_node *w = tci_im2col_below(m, m->which);
    const tci_node *image = tci_plan_image(m->a, w);
    int n = 0, last = -1;
    for (int at = 0; at < c->n_axes; at++) {
        for (int i = 0; i < c->n_axes; i++) {
            if (c->axes[i].group == group && c->axes[i].at[by] == at) {
                bool fast = group == m->taps && image && at < w->in[0]->rank &&
                            tci_plan_image_axis(w, image, at) == tci_fastest_axis(image);
                last = fast ? n : last;
                list[n++] = i;
            }
        }
    }
    for (int i = last; last >= 0 && i + 1 < n; i++) {
        int axis = list[i];
        list[i] = list[i + 1];
        list[i + 1] = axis;
    }
    return n;
}

/* Operand `which` in memory as a matrix of the groups outer and inner. */
static tci_node *tci_im2col_matrix(const tci_im2col *m, int which, tci_axes outer, tci_axes inner)
{
    tci_node *x = m->half[which];
    int *list = TCI_NEW_ARRAY(m->a->s, int, m->c->n_axes);
    int64_t *order = TCI_NEW_ARRAY(m->a->s, int64_t, x->rank + 1);
    bool *has = TCI_NEW_ARRAY(m->a->s, bool, x->rank + 1);
    const tci_dim shape[2] = {(int64_t)m->c->size[outer], (int64_t)m->c->size[inner]};
    const tci_axes groups[2] = {outer, inner};
    int rank = 0;
    for (int g = 0; g < 2; g++) {
        int n = tci_im2col_group(m, groups[g], list);
        for (int i = 0; i < n; i++) {
            int at = m->c->axes[list[i]].at[which];
            order[rank++] = at;
            has[at] = true;
        }
    }
    for (int i = 0; i < x->rank; i++) { /* those of one element that are of no group */
        if (!has[i]) {
            order[rank++] = i;
        }
    }
    bool windows = which == m->which;
    x = tci_relayout(m->a, x,
                     (tci_relayout_to){.order = order, .is_turned = true, .is_own = windows});
    return tci_build_reshape(m->a->g, x, 2, shape);
}

/* r, a matrix of the groups rows and columns, with the axes of the result. */
static tci_node *tci_im2col_back(const tci_im2col *m, tci_node *r, tci_axes rows, tci_axes columns)
{
    int *list = TCI_NEW_ARRAY(m->a->s, int, m->c->n_axes), rank = 0;
    int *perm = TCI_NEW_ARRAY(m->a->s, int, m->n->rank + 1);
    tci_dim *shape = TCI_NEW_ARRAY(m->a->s, tci_dim, m->n->rank + 1);
    const tci_axes groups[2] = {rows, columns};
    for (int i = 0; i < m->n->rank; i++) { /* batch axes of one element */
        if (m->c->axes[i].group == TCI_AXES_BATCH) {
            perm[i] = rank;
            shape[rank++] = 1;
        }
    }
    for (int g = 0; g < 2; g++) {
        int n = tci_im2col_group(m, groups[g], list);
        for (int i = 0; i < n; i++) {
            const tci_contract_axis_of *axis = &m->c->axes[list[i]];
            perm[axis->at[2]] = rank;
            shape[rank++] = axis->size;
        }
    }
    r = tci_build_reshape(m->a->g, r, rank, shape);
    return tci_build_permute(m->a->g, r, rank, perm);
}

static tci_node *tci_im2col_build(const tci_offer *o)
{
    static const int64_t labels[TCI_AXES_COUNT] = {0, 0, 1, 2, 0};
    const tci_im2col *m = o->found;
    const tci_axes columns = m->c->columns ? TCI_AXES_N : TCI_AXES_M;
    const tci_axes rows = m->c->columns ? TCI_AXES_M : TCI_AXES_N;
    const int64_t out[2] = {labels[rows], labels[columns]};
    const tci_dim shape[2] = {(int64_t)m->c->size[rows], (int64_t)m->c->size[columns]};
    int64_t in[2][2];
    tci_contract_form f = {.labels = {in[0], in[1], out}, .rank = {2, 2, 2}};
    for (int i = 0; i < 2; i++) {
        tci_axes inner = tci_im2col_inner(m, i);
        tci_axes outer = inner == TCI_AXES_K ? tci_im2col_own(i) : TCI_AXES_K;
        in[i][0] = labels[outer];
        in[i][1] = labels[inner];
        f.in[i] = tci_build_cast(m->a->g, tci_im2col_matrix(m, i, outer, inner),
                                 (tc_dtype)m->n->in[i]->dtype);
    }
    tci_node *r = tci_contract_make(m->a->s, m->a->g, &f, (tc_dtype)m->n->dtype, shape);
    return tci_im2col_back(m, m->a->router->contract(m->a, r), rows, columns);
}

TCI_BLOCK_FN const tci_route *tci_route_im2col(void)
{
    static const tci_route row = {
        "im2col copy",   TCI_SUMS_UNIT_RUNS, TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_im2col_fits, tci_im2col_cost,    tci_im2col_build};
    return &row;
}
/* ---- src/plan/gpu_contraction_routes.c ---- */
/* plan/gpu_contraction_routes.c - table of the contraction algorithms that only GPUs have (im2col,
 * split-K, BF16x3, K-major operands, depthwise, few channels, channels-last), which
 * plan/contraction_route.c compares with its own.
 *
 * In: nothing. Out: the rows. */

#include <string.h>

TCI_FN int tci_block_routes(const tci_route **rows)
{
    const tci_route *const table[] = {tci_route_few_channels(),  tci_route_unit_split_k(),
                                      tci_route_im2col(),        tci_route_kmajor(),
                                      tci_route_channels_last(), tci_route_bf16x3(),
                                      tci_route_depthwise()};
    memcpy(rows, table, sizeof(table));
    return (int)TCI_COUNT(table);
}

#ifdef TCI_HAS_CUDA
/* ---- src/cuda/wgmma_gemm.c ---- */
/* cuda/wgmma_gemm.c - writes the CUDA source of the warp-specialized WGMMA GEMM: TMA producer warp,
 * consumer warps, mbarrier pipeline. In three layers:
 *
 *   functions   of the prelude, one PTX instruction each; tests that run the text without a GPU
 *               define TC_NO_PTX and these names
 *   templates   of the prelude, tc_matrix_load and tc_matrix_multiply: the producer and the
 *               consumers (loop/wgmma_gemm.h), over a class S that has the numbers of one kernel
 *   kernel      its class S, the split into roles, and the code around the epilogue slot
 *
 * Shared memory, from a multiple of 1024: stages of A's and B's boxes, buffers for accumulators,
 * mbarriers (tc_full, tc_empty: one per stage; tc_ready, tc_taken: one per consumer; tc_done). A
 * box is rows of 128 bytes whose 16-byte chunks are swizzled (chunk ^= row % 8). Along k it has a
 * row for each m or n; else a row for each k and 64 elements of m or n, and the boxes of a side are
 * consecutive.
 *
 * Matrix descriptors: the address / 16 in bits 0-13, the leading offset in 16-29, the stride
 * between groups of eight rows in 32-45, 1 << 62 for this swizzle. An instruction takes 32 bytes
 * of k, 16 elements, 8 of f32 or 32 bytes; the next ones are 32 bytes further along k, else 16
 * rows.
 *
 * Blocks that share a side write to each other's stages, so a stage is free when both have read
 * it: a consumer signals both, by its first warp, since a product is complete for all of its warps
 * at once. The mbarrier arrive has no cluster-scope release semantics: no thread wrote the data
 * that it would order, and a device-wide fence per step takes longer than its products. A block's
 * producer stays until its last stages were freed, so that nothing arrives at a block that has
 * exited.
 *
 * Invariants: tc_empty counts a stage's readers, four warps of each consumer or, for blocks that
 * share, one of each consumer of both; a buffer is written only after its previous contents were
 * taken; no barrier of the whole block after tc_matrix_begin, as its warps diverge. */
/* ---- src/cuda/wgmma_gemm.h ---- */
/* cuda/wgmma_gemm.h - declares the CUDA code generator of the WGMMA GEMM, and the launch metadata
 * (shared memory, block shape, tensor maps) that it embeds in the module, so that a cached cubin
 * has it too. */
#ifndef TCI_CUDA_WGMMA_GEMM_H
#define TCI_CUDA_WGMMA_GEMM_H


enum {
    TCI_CUDA_MAPS = 4,      /* at most */
    TCI_CUDA_MAP_WORDS = 16 /* 8-byte words of an encoded map */
};

/* A tensor map to encode for an operand's address: the arguments of cuTensorMapEncodeTiled; or,
 * where `axes` is not 0, of cuTensorMapEncodeIm2col: box[0] elements at each of box[1] positions,
 * which go over this many axes, dim[1] .., of images that dim[axes + 1] counts. */
typedef struct tci_cuda_map {
    int64_t operand;
    int64_t type; /* CU_TENSOR_MAP_DATA_TYPE_... */
    int64_t rank;
    int64_t offset;    /* bytes from the operand's start */
    int64_t dim[5];    /* the fastest first */
    int64_t stride[4]; /* bytes, of dim[1] .. */
    int64_t box[5];    /* elements that are loaded, */
    int64_t step[5];   /* one element of this many is loaded */
    int64_t axes;
    int64_t low[3], high[3]; /* first and last position, from the first and last element */
} tci_cuda_map;

/* The constant NAME_skeleton in the module of kernel NAME, all words of 8 bytes. */
typedef struct tci_cuda_skeleton {
    int64_t shared_bytes;
    int64_t block_x; /* threads that a row of the tile is spread over */
    int64_t block_y; /* 32 * warps / block_x */
    int64_t n_maps;
    tci_cuda_map maps[TCI_CUDA_MAPS];
} tci_cuda_skeleton;

/* Its parts for other templates: rows of m or n that the boxes of a side hold, the map of a side,
 * the text of its loads as a function `name`, and of the constant. */
TCI_FN int tci_cuda_wgmma_loaded(const tci_matrix *x, int which);
TCI_FN tci_cuda_map tci_cuda_wgmma_map(const tci_matrix *x, int which);
TCI_FN void tci_cuda_wgmma_loads(tci_str *out, const char *name, const tci_matrix *x, int which);
TCI_FN void tci_cuda_wgmma_place(tci_str *out, const tci_matrix *x);
TCI_FN void tci_cuda_skeleton_words(tci_str *out, const char *symbol, const tci_cuda_skeleton *k);
TCI_FN const char *tci_cuda_wgmma_type(const tci_matrix *x);

/* Definitions that every such kernel of a file shares. */
TCI_FN void tci_cuda_wgmma_prelude(tci_str *out);
/* The product that a kernel with this main loop calls: once in a file. */
TCI_FN const char *tci_cuda_wgmma_product_name(tci_scratch *s, const tci_matrix *x);
TCI_FN void tci_cuda_wgmma_product(tci_str *out, const char *name, const tci_matrix *x);
/* Where the operands of a kernel's struct of arguments are: the declaration and what opens it, of
 * blocks of this many warps, several at once on a CPU. */
TCI_FN void tci_cuda_skeleton_open(tci_str *out, const char *symbol, const tci_loop *l, int n_maps,
                                   int n_words, int warps, int blocks);
/* The values that its slots read of them. */
TCI_FN void tci_cuda_skeleton_args(tci_str *out);
/* The kernel up to the epilogue slot; and the text after it. */
TCI_FN void tci_cuda_wgmma_head(tci_str *out, const char *symbol, const tci_loop *l, int n_words);
TCI_FN void tci_cuda_wgmma_tail(tci_str *out, const char *symbol);

#endif

/* ---- src/cuda/wgmma_gemm.c, continued ---- */
#include <string.h>

enum {
    TCI_CUDA_MAP_U8 = 0,    /* CU_TENSOR_MAP_DATA_TYPE_UINT8: bytes of any signs */
    TCI_CUDA_MAP_F16 = 6,   /* CU_TENSOR_MAP_DATA_TYPE_FLOAT16 */
    TCI_CUDA_MAP_BF16 = 9,  /* ..._BFLOAT16 */
    TCI_CUDA_MAP_TF32 = 11, /* ..._TFLOAT32: f32 that is rounded on its way */
    TCI_CUDA_SUB_BYTES = 64 * TCI_MATRIX_LINE,
    TCI_CUDA_ORDER_ROWS = 2048 /* rows of a band of tiles, about: a round's tiles are a square */
};

/* ---- what the module says ---- */

/* Rows of m or n that the boxes of a side hold. Beyond the side's end nothing is loaded where one
 * tile is all of it: filling with zeros takes time, and what the products make of the rest of
 * shared memory is in rows and columns that are not stored. */
TCI_FN int tci_cuda_wgmma_loaded(const tci_matrix *x, int which)
{
    int64_t own = which == 0 ? x->m : x->n, tile = which == 0 ? x->rows : x->columns;
    if (which == 1 && x->y_axis >= 0) { /* whole rows of an image */
        return x->own_columns;
    }
    int64_t whole = x->side[which].along_k ? 8 * tci_matrix_sharing(x, which) : TCI_MATRIX_SUB;
    return (int)(tci_dim_known(tci_dim_ceil_div(TCI_MIN(tile, own), whole)) * whole);
}

static int tci_cuda_wgmma_bytes(const tci_matrix *x)
{
    return tci_dtype_get((tc_dtype)x->dtype)->bytes;
}

/* Number of elements of a box along a side's axis for this axis of the kernel. */
static int64_t tci_cuda_wgmma_extent(const tci_matrix *x, int which, int axis)
{
    int own = which == 0 ? x->m_axis : x->n_axis;
    bool images = which == 1 && x->y_axis >= 0;
    for (int i = 0; i < x->n_k; i++) {
        if (x->k_axis[i] == axis) {
            return x->k_block[i];
        }
    }
    if (images && axis == x->y_axis) {
        return x->own_columns / x->image_row;
    }
    return axis != own              ? 1
           : images                 ? x->image_row
           : x->side[which].along_k ? tci_cuda_wgmma_loaded(x, which)
                                    : TCI_MATRIX_SUB;
}

static void tci_cuda_wgmma_boxes(const tci_matrix *x, int which, tci_cuda_map *map)
{
    const tci_matrix_side *side = &x->side[which];
    map->rank = side->n_dims;
    for (int i = 0; i < side->n_dims; i++) {
        const tci_matrix_dim *d = &side->dims[i];
        map->dim[i] = d->size;
        map->box[i] = 1;
        if (i > 0) {
            map->stride[i - 1] = tci_cuda_wgmma_bytes(x) * d->stride;
        }
        for (int a = 0; a < TCI_MATRIX_AXES; a++) {
            int64_t n = d->coef[a] != 0 ? tci_cuda_wgmma_extent(x, which, a) : 1;
            map->box[i] = n > 1 ? n : map->box[i];
            map->step[i] = n > 1 ? d->coef[a] : map->step[i];
        }
    }
}

/* Along an axis of images: what the elements of a window add at least to a position's
 * coordinate. */
static int64_t tci_cuda_wgmma_least(const tci_matrix *x, const tci_matrix_dim *d)
{
    int64_t least = 0;
    for (int i = 0; i < x->n_k; i++) {
        least += TCI_MIN(d->coef[x->k_axis[i]] * (x->k_sizes[i] - 1), 0);
    }
    return least;
}

/* A's images, where rows are positions of them. */
static void tci_cuda_wgmma_images(const tci_matrix *x, tci_cuda_map *map)
{
    const tci_matrix_side *side = &x->side[0];
    map->axes = x->n_places - !x->one_image;
    map->rank = map->axes + 2;
    map->box[0] = TCI_MATRIX_DEPTH_STEP;
    map->box[1] = tci_cuda_wgmma_loaded(x, 0);
    for (int i = 0; i < map->rank; i++) {
        bool counts = i == map->rank - 1 && x->one_image;
        map->dim[i] = counts ? 1 : side->dims[i].size;
        if (i > 0) { /* one image is followed by none */
            map->stride[i - 1] = 2 * (counts ? side->dims[i - 1].stride * side->dims[i - 1].size
                                             : side->dims[i].stride);
        }
    }
    for (int i = 0; i < map->axes; i++) {
        const tci_matrix_dim *d = &side->dims[1 + i];
        map->step[1 + i] = d->coef[x->place_axis[i]];
        map->low[i] = d->base + tci_cuda_wgmma_least(x, d);
        map->high[i] = map->low[i] + map->step[1 + i] * (x->place_sizes[i] - 1) + 1 - d->size;
    }
}

TCI_FN tci_cuda_map tci_cuda_wgmma_map(const tci_matrix *x, int which)
{
    const tci_matrix_side *side = &x->side[which];
    int64_t own = which == 0 ? x->m : x->n, bytes = tci_cuda_wgmma_bytes(x);
    tci_cuda_map map;
    memset(&map, 0, sizeof(map));
    map.operand = side->operand;
    map.type = x->dtype == TC_F16   ? TCI_CUDA_MAP_F16
               : x->dtype == TC_F32 ? TCI_CUDA_MAP_TF32
               : x->dtype == TC_I8  ? TCI_CUDA_MAP_U8
                                    : TCI_CUDA_MAP_BF16;
    map.rank = 2;
    map.offset = bytes * side->offset;
    for (int i = 0; i < TCI_COUNT(map.step); i++) {
        map.step[i] = 1;
    }
    if (which == 0 && x->n_places > 0) {
        tci_cuda_wgmma_images(x, &map);
        return map;
    }
    if (x->is_boxes) {
        tci_cuda_wgmma_boxes(x, which, &map);
        return map;
    }
    map.dim[0] = side->along_k ? x->k : own;
    map.dim[1] = side->along_k ? own : x->k;
    map.stride[0] = bytes * side->pitch;
    map.box[0] = tci_matrix_depth(x);
    map.box[1] = side->along_k ? tci_cuda_wgmma_loaded(x, which) : tci_matrix_depth(x);
    map.box[1] /= tci_matrix_sharing(x, which);
    for (int i = 0; i < x->n_batch; i++) {
        if (side->batch_pitch[i] != 0) {
            map.dim[map.rank] = x->batch[i];
            map.stride[map.rank - 1] = bytes * side->batch_pitch[i];
            map.box[map.rank++] = 1;
        }
    }
    return map;
}

static tci_cuda_skeleton tci_cuda_wgmma_describe(const tci_matrix *x)
{
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_matrix_shared_bytes(x);
    int warps = 4 * x->consumers + 1 + x->last_warps;
    k.block_x = x->row_threads;
    k.block_y = TCI_MATRIX_WARP * warps / x->row_threads;
    k.n_maps = 2;
    k.maps[0] = tci_cuda_wgmma_map(x, 0);
    k.maps[1] = tci_cuda_wgmma_map(x, 1);
    return k;
}

/* ---- the prelude ---- */

static const char tci_cuda_matrix_ptx[] =
    "struct __align__(64) tc_map { unsigned long long q[16]; };\n"
    "struct tc_place { int m, n, b0, b1, b2, b3; };\n"
    "#ifndef TC_NO_PTX\n"
    "#define TC_MULTIPLY(type, columns, ta, tb) tc_multiply_##type##_##columns##_##ta##tb\n"
    "#define TC_SHARED extern __shared__ __align__(1024) unsigned char tc_shared[]\n"
    "TC_I unsigned tc_shared_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }\n"
    "TC_I void tc_shared_written() { asm volatile(\"fence.proxy.async.shared::cta;\" ::: "
    "\"memory\"); }\n"
    "TC_I void tc_barrier_init(unsigned bar, int arrivals) {\n"
    "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \"r\"(bar), "
    "\"r\"(arrivals));\n}\n"
    "TC_I void tc_barrier_init_done() {\n"
    "    asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");\n}\n"
    "TC_I void tc_barrier_arrive(unsigned bar) {\n"
    "    asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: \"r\"(bar) : "
    "\"memory\");\n}\n"
    "TC_I void tc_barrier_expect(unsigned bar, int bytes) {\n"
    "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: \"r\"(bar), "
    "\"r\"(bytes) : \"memory\");\n}\n"
    "TC_I void tc_barrier_wait(unsigned bar, unsigned parity) {\n    unsigned done;\n    do {\n"
    "        asm volatile(\"{\\n.reg .pred p;\\n"
    "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}\"\n"
    "            : \"=r\"(done) : \"r\"(bar), \"r\"(parity) : \"memory\");\n"
    "    } while (!done);\n}\n"
    "TC_I void tc_barrier_arrive_at(unsigned bar, int block) {\n"
    "    asm volatile(\"{\\n.reg .b32 at;\\nmapa.shared::cluster.u32 at, %0, %1;\\n"
    "mbarrier.arrive.shared::cluster.b64 _, [at];\\n}\" :: \"r\"(bar), "
    "\"r\"(block) : \"memory\");\n}\n"
    "TC_I void tc_blocks_meet() {\n"
    "    asm volatile(\"barrier.cluster.arrive.relaxed.aligned;\\n"
    "barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n}\n"
    "#define TC_LOAD_BOX(rank, list, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {\" list \"}], [%2];\" "
    ":: \"r\"(to), \"l\"(map), \"r\"(bar), __VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b) {\n"
    "    TC_LOAD_BOX(\"2\", \"%3, %4\", \"r\"(a), \"r\"(b));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c) {\n"
    "    TC_LOAD_BOX(\"3\", \"%3, %4, %5\", \"r\"(a), \"r\"(b), \"r\"(c));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d) {\n"
    "    TC_LOAD_BOX(\"4\", \"%3, %4, %5, %6\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e) {\n"
    "    TC_LOAD_BOX(\"5\", \"%3, %4, %5, %6, %7\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d), "
    "\"r\"(e));\n}\n"
    "#define TC_SHARE_BOX(rank, list, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {\" "
    "list \"}], [%2], %3;\" :: \"r\"(to), \"l\"(map), \"r\"(bar), \"h\"((unsigned short)3), "
    "__VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b) {\n"
    "    TC_SHARE_BOX(\"2\", \"%4, %5\", \"r\"(a), \"r\"(b));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c) {\n"
    "    TC_SHARE_BOX(\"3\", \"%4, %5, %6\", \"r\"(a), \"r\"(b), \"r\"(c));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d) {\n"
    "    TC_SHARE_BOX(\"4\", \"%4, %5, %6, %7\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e) {\n"
    "    TC_SHARE_BOX(\"5\", \"%4, %5, %6, %7, %8\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d), "
    "\"r\"(e));\n}\n"
    "#endif\n";

/* Registers, products, what leaves them. */
static const char tci_cuda_matrix_products_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "template <int n> TC_I void tc_take_registers() {\n"
    "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "template <int n> TC_I void tc_leave_registers() {\n"
    "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "TC_I void tc_products_begin() {\n"
    "    asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n}\n"
    "TC_I void tc_products_commit() {\n"
    "    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n}\n"
    "template <int left> TC_I void tc_products_wait() {\n"
    "    asm volatile(\"wgmma.wait_group.sync.aligned %0;\" :: \"n\"(left) : \"memory\");\n}\n"
    "TC_I unsigned tc_pair_f16(float low, float high) {\n    unsigned r;\n"
    "    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(high), \"f\"(low));\n"
    "    return r;\n}\n"
    "TC_I void tc_store_squares(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {\n"
    "    asm volatile(\"stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};\"\n"
    "        :: \"r\"(to), \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d) : \"memory\");\n}\n"
    "TC_I void tc_store_two(unsigned to, float a, float b) {\n"
    "    asm volatile(\"st.shared::cta.v2.f32 [%0], {%1, %2};\" :: \"r\"(to), \"f\"(a), \"f\"(b) "
    ": \"memory\");\n}\n"
    "TC_I void tc_store_two(unsigned to, int a, int b) {\n"
    "    asm volatile(\"st.shared::cta.v2.b32 [%0], {%1, %2};\" :: \"r\"(to), \"r\"(a), \"r\"(b) "
    ": \"memory\");\n}\n"
    "#endif\n";

/* Loads of positions of images: coordinates of the first one, and offsets. */
static const char tci_cuda_matrix_places[] =
    "#ifndef TC_NO_PTX\n"
    "#define TC_LOAD_PLACES(rank, list, offsets, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {\" list \"}], "
    "[%2], {\" offsets \"};\" :: \"r\"(to), \"l\"(map), \"r\"(bar), __VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "unsigned short u) {\n"
    "    TC_LOAD_PLACES(\"3\", \"%3, %4, %5\", \"%6\", \"r\"(a), \"r\"(b), \"r\"(c), "
    "\"h\"(u));\n}\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, unsigned short u, unsigned short v) {\n"
    "    TC_LOAD_PLACES(\"4\", \"%3, %4, %5, %6\", \"%7, %8\", \"r\"(a), \"r\"(b), \"r\"(c), "
    "\"r\"(d), \"h\"(u), \"h\"(v));\n}\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e, unsigned short u, unsigned short v, unsigned short w) {\n"
    "    TC_LOAD_PLACES(\"5\", \"%3, %4, %5, %6, %7\", \"%8, %9, %10\", \"r\"(a), \"r\"(b), "
    "\"r\"(c), \"r\"(d), \"r\"(e), \"h\"(u), \"h\"(v), \"h\"(w));\n}\n"
    "#endif\n";

/* Barriers and loading. tc_warp_arrive: one arrival of a warp, after what all its threads did. */
static const char tci_cuda_matrix_loading[] =
    "template <class S> TC_I int tc_warp() { return threadIdx.y * S::row_threads / 32; }\n"
    "template <class S> TC_I int tc_warp_lane() {\n"
    "    return threadIdx.x + threadIdx.y * S::row_threads % 32;\n}\n"
    "template <class S> TC_I void tc_warp_arrive(unsigned bar) {\n    __syncwarp();\n"
    "    if (tc_warp_lane<S>() == 0) {\n        tc_barrier_arrive(bar);\n    }\n}\n"
    "TC_I unsigned long long tc_box(unsigned at) {\n"
    "    return (unsigned long long)((at & 0x3ffff) >> 4) | (8192ull >> 4) << 16 | "
    "(1024ull >> 4) << 32 | 1ull << 62;\n}\n"
    "template <class S> TC_I unsigned tc_full(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * i;\n}\n"
    "template <class S> TC_I unsigned tc_empty(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (S::stages + i);\n}\n"
    "template <class S> TC_I unsigned tc_ready(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + i);\n}\n"
    "template <class S> TC_I unsigned tc_taken(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + S::consumers + i);\n}\n"
    "template <class S> TC_I unsigned tc_done(unsigned at) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + 2 * S::consumers);\n}\n"
    "template <class S> TC_I int tc_staged(int row) {\n"
    "    return S::stages * S::stage_bytes + row * S::staged_pitch * S::staged_bytes;\n}\n"
    "template <class S> TC_I void tc_matrix_begin(unsigned at) {\n"
    "    if constexpr (S::k_rows < S::depth) { /* what follows them is zeros, always */\n"
    "        TC_SHARED;\n"
    "        unsigned *stages = (unsigned *)(tc_shared + (at - tc_shared_at(tc_shared)));\n"
    "        const int threads = 32 * (4 * S::consumers + 1 + S::last_warps);\n"
    "        for (int i = 32 * tc_warp<S>() + tc_warp_lane<S>(); i < S::stages * S::stage_bytes / "
    "4;\n             i += threads) {\n            stages[i] = 0;\n        }\n"
    "        tc_shared_written();\n    }\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), S::readers);\n        }\n"
    "        for (int i = 0; i < S::consumers; i++) {\n"
    "            tc_barrier_init(tc_ready<S>(at, i), 4);\n"
    "            tc_barrier_init(tc_taken<S>(at, i), S::last_warps);\n        }\n"
    "        tc_barrier_init(tc_done<S>(at), 4 * S::consumers);\n"
    "        tc_barrier_init_done();\n    }\n"
    "    if constexpr (S::blocks > 1) {\n        tc_blocks_meet();\n    } else {\n"
    "        __syncthreads();\n    }\n}\n"
    "template <class S> TC_I void tc_stage_free(unsigned at, int stage) {\n"
    "    if constexpr (S::blocks > 1) {\n"
    "        if (tc_warp<S>() % 4 == 0 && tc_warp_lane<S>() < S::blocks) {\n"
    "            tc_barrier_arrive_at(tc_empty<S>(at, stage), tc_warp_lane<S>());\n        }\n"
    "    } else {\n        tc_warp_arrive<S>(tc_empty<S>(at, stage));\n    }\n}\n"
    "template <class S> TC_I void tc_matrix_load(unsigned at, const tc_map *maps) {\n"
    "    int stage = 0;\n    unsigned parity = 1;\n"
    "    for (int t = blockIdx.x; t < S::tiles; t += gridDim.x) {\n"
    "        const tc_place p = S::place(t);\n"
    "        for (int k = 0; k < S::k; k += S::depth) {\n"
    "            const unsigned boxes = at + stage * S::stage_bytes;\n"
    "            const unsigned full = tc_full<S>(at, stage);\n"
    "            tc_barrier_wait(tc_empty<S>(at, stage), parity);\n"
    "            tc_barrier_expect(full, S::loaded_bytes);\n"
    "            S::load_a(boxes, maps, full, p, k);\n"
    "            S::load_b(boxes + S::a_bytes, maps + 1, full, p, k);\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n    }\n"
    "    if constexpr (S::blocks > 1) { /* which free each other's stages, up to the last */\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_wait(tc_empty<S>(at, stage), parity);\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n    }\n}\n";

static const char tci_cuda_matrix_multiplying[] =
    "template <class S, class D>\n"
    "TC_I void tc_matrix_leave(const D (&d)[S::columns / 2], unsigned to) {\n"
    "    const int lane = tc_warp_lane<S>(), row = 16 * (tc_warp<S>() & 3);\n"
    "    if constexpr (S::staged_bytes == 4) {\n"
    "        const unsigned at = to + 4 * ((row + lane / 4) * S::staged_pitch + 2 * (lane & 3));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::columns / 2; i += 2) {\n"
    "            tc_store_two(at + 4 * (i / 2 % 2 * 8 * S::staged_pitch + i / 4 * 8), d[i], "
    "d[i + 1]);\n        }\n        return;\n    }\n"
    "    const unsigned at = to + 2 * ((row + lane % 16) * S::staged_pitch + lane / 16 * 8);\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::columns / 2; i += 8) {\n"
    "        tc_store_squares(at + 4 * i, S::pair(d[i], d[i + 1]), S::pair(d[i + 2], d[i + 3]),\n"
    "                         S::pair(d[i + 4], d[i + 5]), S::pair(d[i + 6], d[i + 7]));\n"
    "    }\n}\n"
    "template <class S, class D = float> TC_I void tc_matrix_multiply(unsigned at, int group) {\n"
    "    D d[S::sub_rows][S::columns / 2];\n    int stage = 0, before = 0;\n"
    "    const int user = S::buffers == 1 ? (group + S::consumers - 1) % S::consumers : group;\n"
    "    const int buffer = S::buffers == 1 ? 0 : group;\n"
    "    unsigned parity = 0, taken = S::buffers > 1 || group == 0;\n"
    "    for (int t = blockIdx.x; t < S::tiles; t += gridDim.x) {\n"
    "        for (int k = 0; k < S::k; k += S::depth) {\n"
    "            const unsigned boxes = at + stage * S::stage_bytes;\n"
    "            tc_barrier_wait(tc_full<S>(at, stage), parity);\n"
    "            const unsigned long long a = tc_box(boxes + group * S::sub_rows * 8192);\n"
    "            const unsigned long long b = tc_box(boxes + S::a_bytes);\n"
    "            tc_products_begin();\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < 4; i++) {\n"
    "#pragma unroll\n"
    "                for (int r = 0; r < S::sub_rows; r++) {\n"
    "                    S::multiply(d[r], a + 512 * r + S::a_step * i, b + S::b_step * i, "
    "k + i > 0);\n                }\n            }\n"
    "            tc_products_commit();\n            tc_products_wait<1>();\n"
    "            if (k > 0) {\n                tc_stage_free<S>(at, before);\n"
    "            }\n            before = stage;\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n"
    "        tc_products_wait<0>();\n        tc_stage_free<S>(at, before);\n"
    "        tc_barrier_wait(tc_taken<S>(at, user), taken);\n        taken ^= 1;\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::sub_rows; r++) {\n"
    "            tc_matrix_leave<S>(d[r], at + tc_staged<S>((buffer * S::sub_rows + r) * 64));\n"
    "        }\n        tc_warp_arrive<S>(tc_ready<S>(at, group));\n    }\n"
    "    tc_warp_arrive<S>(tc_done<S>(at));\n}\n";

TCI_FN void tci_cuda_wgmma_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_matrix_ptx);
    tci_str_add(out, tci_cuda_matrix_products_ptx);
    tci_str_add(out, tci_cuda_matrix_places);
    tci_str_add(out, tci_cuda_matrix_loading);
    tci_str_add(out, tci_cuda_matrix_multiplying);
}

/* ---- products ---- */

TCI_FN const char *tci_cuda_wgmma_type(const tci_matrix *x)
{
    static const char *const bytes[4] = {"s8s8", "s8u8", "u8s8", "u8u8"};
    return x->dtype == TC_F16   ? "f16"
           : x->dtype == TC_F32 ? "tf32"
           : x->dtype == TC_I8  ? bytes[2 * x->side[0].is_unsigned + x->side[1].is_unsigned]
                                : "bf16";
}

/* In the product's name in PTX: accumulators, A and B. */
static const char *tci_cuda_wgmma_ptx_type(tci_scratch *s, const tci_matrix *x)
{
    const char *type = tci_cuda_wgmma_type(x);
    return x->dtype == TC_I8 ? tci_scratch_printf(s, "s32.%.2s.%s", type, type + 2)
                             : tci_scratch_printf(s, "f32.%s.%s", type, type);
}

/* Of a sum. */
static const char *tci_cuda_wgmma_sum(const tci_matrix *x)
{
    return x->dtype == TC_I8 ? "int" : "float";
}

TCI_FN const char *tci_cuda_wgmma_product_name(tci_scratch *s, const tci_matrix *x)
{
    return tci_scratch_printf(s, "tc_multiply_%s_%d_%d%d", tci_cuda_wgmma_type(x), x->columns,
                              !x->side[0].along_k, !x->side[1].along_k);
}

TCI_FN void tci_cuda_wgmma_product(tci_str *out, const char *name, const tci_matrix *x)
{
    bool bytes = x->dtype == TC_I8;
    int n = x->columns / 2;
    tci_str_printf(out,
                   "#ifndef TC_NO_PTX\nTC_I void %s(%s (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n"
                   "wgmma.mma_async.sync.aligned.m64n%dk%d.%s {",
                   name, tci_cuda_wgmma_sum(x), n, n + 2, x->columns, 32 / tci_cuda_wgmma_bytes(x),
                   tci_cuda_wgmma_ptx_type(out->s, x));
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : "", i);
    }
    tci_str_printf(out, "}, %%%d, %%%d, p%s", n, n + 1, bytes ? "" : ", 1, 1");
    if (tci_dtype_is_half((tc_dtype)x->dtype)) { /* others are not transposed while loading */
        tci_str_printf(out, ", %d, %d", !x->side[0].along_k, !x->side[1].along_k);
    }
    tci_str_add(out, ";\\n}\"\n        : ");
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s\"+%c\"(d[%d])", i ? ", " : "", bytes ? 'r' : 'f', i);
    }
    tci_str_add(out, " : \"l\"(a), \"l\"(b), \"r\"(add));\n}\n#endif\n");
}

/* ---- the kernel ---- */

TCI_FN void tci_cuda_skeleton_words(tci_str *out, const char *symbol, const tci_cuda_skeleton *k)
{
    int64_t words[sizeof(*k) / sizeof(int64_t)];
    memcpy(words, k, sizeof(*k));
    tci_str_printf(out,
                   "extern \"C\" __constant__ long long "
                   "%s_skeleton[] = {",
                   symbol);
    for (int i = 0; i < TCI_COUNT(words); i++) {
        tci_str_printf(out, "%s%lld", i ? ", " : "", (long long)words[i]);
    }
    tci_str_add(out, "};\n");
}

/* Begins a load of one stage: with the first element of a step along each contracted axis: k0, k1,
 * .., the last one fastest. */
static void tci_cuda_wgmma_load_head(tci_str *out, const char *name, const tci_matrix *x)
{
    int64_t below = tci_matrix_depth(x);
    tci_str_printf(out,
                   "    TC_I void %s(unsigned to, const tc_map *map, unsigned bar, "
                   "tc_place p, int k) {\n",
                   name);
    for (int i = x->n_k - 1; i >= 0; i--) {
        int64_t n = tci_dim_known(tci_dim_ceil_div(x->k_sizes[i], x->k_block[i]));
        tci_str_printf(out, "        const int k%d = k / %lld %% %lld * %d;\n", i, (long long)below,
                       (long long)n, x->k_block[i]);
        below *= n;
    }
}

/* Text of the coordinate of axis a of the kernel. */
static const char *tci_cuda_wgmma_where(const tci_matrix *x, int a)
{
    static const char *const batch[TCI_MATRIX_BATCH] = {"p.b0", "p.b1", "p.b2", "p.b3"};
    static const char *const k[TCI_MATRIX_K_AXES] = {"k0", "k1", "k2", "k3"};
    for (int i = 0; i < x->n_batch; i++) {
        if (x->batch_axis[i] == a) {
            return batch[i];
        }
    }
    for (int i = 0; i < x->n_k; i++) {
        if (x->k_axis[i] == a) {
            return k[i];
        }
    }
    return a == x->m_axis ? "p.m" : x->y_axis < 0 ? "p.n" : a == x->y_axis ? "p.n / row" : NULL;
}

/* Loads the boxes of one stage of a side that is an array: a box for every 64 of its own axis where
 * that is contiguous, else one. */
static void tci_cuda_wgmma_load_boxes(tci_str *out, const char *name, const tci_matrix *x,
                                      int which)
{
    const tci_matrix_side *side = &x->side[which];
    int n = side->along_k ? 1 : tci_cuda_wgmma_loaded(x, which) / TCI_MATRIX_SUB;
    tci_cuda_wgmma_load_head(out, name, x);
    if (which == 1 && x->y_axis >= 0) {
        tci_str_printf(out, "        const int row = %lld;\n", (long long)x->image_row);
    }
    tci_str_printf(out,
                   "        for (int i = 0; i < %d; i++) {\n"
                   "            tc_load_box(to + %d * i, map, bar",
                   n, TCI_CUDA_SUB_BYTES);
    for (int i = 0; i < side->n_dims; i++) {
        const tci_matrix_dim *d = &side->dims[i];
        tci_str_printf(out, ", %lld", (long long)d->base);
        for (int a = 0; a < TCI_MATRIX_AXES; a++) {
            const char *where = d->coef[a] != 0 ? tci_cuda_wgmma_where(x, a) : NULL;
            if (where) {
                tci_str_printf(out, " + %d * (%s)", d->coef[a], where);
            }
        }
        tci_str_add(out, i == 0 && !side->along_k ? " + 64 * i" : "");
    }
    tci_str_add(out, ");\n        }\n    }\n");
}

/* Loads what A's rows, positions of images, have for one stage: where the first of them begins, and
 * for each axis the window's element of this step. */
static void tci_cuda_wgmma_load_places(tci_str *out, const char *name, const tci_matrix *x)
{
    const tci_matrix_side *side = &x->side[0];
    int axes = x->n_places - !x->one_image;
    long long below = 1;
    tci_cuda_wgmma_load_head(out, name, x);
    tci_str_add(out, "        tc_load_places(to, map, bar");
    for (int i = 0; i < x->n_k; i++) {
        tci_str_printf(out, side->dims[0].coef[x->k_axis[i]] != 0 ? ", k%d" : "", i);
    }
    for (int i = 0; i < axes; below *= x->place_sizes[i++]) {
        const tci_matrix_dim *d = &side->dims[1 + i];
        tci_str_printf(out, ", %lld + %d * (p.m / %lld %% %lld)",
                       (long long)(d->base + tci_cuda_wgmma_least(x, d)), d->coef[x->place_axis[i]],
                       below, (long long)x->place_sizes[i]);
    }
    tci_str_printf(out, x->one_image ? ", 0" : ", p.m / %lld", below);
    for (int i = 0; i < axes; i++) {
        tci_str_add(out, ", 0");
        for (int a = 0; a < x->n_k; a++) {
            int coef = side->dims[1 + i].coef[x->k_axis[a]];
            if (coef > 0) {
                tci_str_printf(out, " + %d * k%d", coef, a);
            } else if (coef < 0) {
                tci_str_printf(out, " + %d * (%lld - k%d)", -coef, (long long)x->k_sizes[a] - 1, a);
            }
        }
    }
    tci_str_add(out, ");\n    }\n");
}

/* Loads the boxes of one stage of A or B. */
TCI_FN void tci_cuda_wgmma_loads(tci_str *out, const char *name, const tci_matrix *x, int which)
{
    if (which == 0 && x->n_places > 0) {
        tci_cuda_wgmma_load_places(out, name, x);
        return;
    }
    if (x->is_boxes) {
        tci_cuda_wgmma_load_boxes(out, name, x, which);
        return;
    }
    const tci_matrix_side *side = &x->side[which];
    char own = "mn"[which];
    bool shared = tci_matrix_sharing(x, which) > 1;
    const char *how = shared ? "share" : "load";
    int rows = (side->along_k ? tci_cuda_wgmma_loaded(x, which) : tci_matrix_depth(x)) / 2;
    tci_str_printf(out,
                   "    TC_I void %s(unsigned to, const tc_map *map, unsigned bar, "
                   "tc_place p, int k) {\n",
                   name);
    if (shared) { /* rows of the boxes that this block loads for both */
        tci_str_printf(out,
                       "        const int rows = blockIdx.x %% 2 * %d;\n        to += %d * rows;\n",
                       rows, TCI_MATRIX_LINE);
        tci_str_printf(out, side->along_k ? "        p.%c += rows;\n" : "        k += rows;\n",
                       own);
    }
    if (side->along_k) {
        tci_str_printf(out, "        tc_%s_box(to, map, bar, k, p.%c", how, own);
    } else {
        tci_str_printf(out,
                       "        for (int i = 0; i < %d; i++) {\n"
                       "            tc_%s_box(to + %d * i, map, bar, p.%c + %d * i, k",
                       tci_cuda_wgmma_loaded(x, which) / TCI_MATRIX_SUB, how, TCI_CUDA_SUB_BYTES,
                       own, TCI_MATRIX_SUB);
    }
    for (int i = 0; i < x->n_batch; i++) {
        if (side->batch_pitch[i] != 0) {
            tci_str_printf(out, ", p.b%d", i);
        }
    }
    tci_str_add(out, side->along_k ? ");\n    }\n" : ");\n        }\n    }\n");
}

/* Tile t: bands of rows, about as high as each other; inside them columns, inside them rows; the
 * batch is slowest. Blocks that share a side have neighbouring tiles: as many columns follow each
 * other, or a band has a multiple of as many rows. */
TCI_FN void tci_cuda_wgmma_place(tci_str *out, const tci_matrix *x)
{
    const int most = TCI_MAX(TCI_CUDA_ORDER_ROWS / x->rows, 1);
    const int across = tci_matrix_sharing(x, 0), below = tci_matrix_sharing(x, 1);
    tci_dim bands = tci_dim_ceil_div(x->tiles_m, most);
    int band = (int)tci_dim_known(tci_dim_ceil_div(x->tiles_m, bands));
    band += (below - band % below) % below;
    long long each = (long long)(x->tiles_m * x->tiles_n);
    tci_str_printf(out,
                   "    TC_I tc_place place(int t) {\n        tc_place p = {0, 0, 0, 0, 0, 0};\n"
                   "        const int in = t %% %lld, first = in / %lld * %d;\n"
                   "        const int left = %lld - first, rows = left < %d ? left : %d;\n"
                   "        p.m = (first + in %% %lld / %d %% rows) * %d;\n"
                   "        p.n = (in %% %lld / (%d * rows) * %d + in %% %d) * %d;\n",
                   each, (long long)x->tiles_n * band, band, (long long)x->tiles_m, band, band,
                   (long long)x->tiles_n * band, across, x->rows, (long long)x->tiles_n * band,
                   across, across, across, x->own_columns);
    for (int i = x->n_batch - 1; i >= 0; i--) {
        tci_str_printf(out, "        p.b%d = t / %lld %% %lld;\n", i, each, (long long)x->batch[i]);
        each *= x->batch[i];
    }
    tci_str_add(out, "        return p;\n    }\n");
}

static void tci_cuda_wgmma_class(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int64_t barriers = x->stages * tci_matrix_stage_bytes(x) + tci_matrix_staged_bytes(x);
    int64_t depth = x->is_boxes ? x->k_steps * tci_matrix_depth(x) : x->k;
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        k = %lld, tiles = %lld, stages = %d, "
                   "consumers = %d, last_warps = %d, sub_rows = %d,\n        columns = %d, "
                   "row_threads = %d, a_bytes = %d, "
                   "stage_bytes = %d, loaded_bytes = %d, depth = %d, k_rows = %d,\n"
                   "        a_step = %d, b_step = %d, "
                   "buffers = %d, staged_pitch = %d, staged_bytes = %d, barriers = %lld,\n"
                   "        blocks = %d, readers = %d\n"
                   "    };\n",
                   symbol, (long long)depth, (long long)x->tiles, x->stages, x->consumers,
                   x->last_warps, x->sub_rows, x->columns, x->row_threads,
                   x->rows * TCI_MATRIX_LINE, (int)tci_matrix_stage_bytes(x),
                   (tci_cuda_wgmma_loaded(x, 0) + tci_cuda_wgmma_loaded(x, 1)) * TCI_MATRIX_LINE /
                       tci_matrix_depth(x) * x->k_rows,
                   tci_matrix_depth(x), x->k_rows, x->side[0].along_k ? 2 : TCI_MATRIX_LINE,
                   x->side[1].along_k ? 2 : TCI_MATRIX_LINE, x->buffers, (int)x->staged_pitch,
                   tci_dtype_get((tc_dtype)x->staged)->bytes, (long long)barriers,
                   x->shares ? 2 : 1, (x->shares ? 2 : 4) * x->consumers);
    tci_str_printf(out,
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, high); "
                   "}\n"
                   "    TC_I void multiply(%s (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, %d, %d)(d, a, b, add);\n    }\n",
                   x->staged == TC_F16 ? "f16" : "bf16", tci_cuda_wgmma_sum(x), x->columns / 2,
                   tci_cuda_wgmma_type(x), x->columns, !x->side[0].along_k, !x->side[1].along_k);
    tci_cuda_wgmma_loads(out, "load_a", x, 0);
    tci_cuda_wgmma_loads(out, "load_b", x, 1);
    tci_cuda_wgmma_place(out, x);
    tci_str_add(out, "};\n");
}

/* The parts before the epilogue slot. Twelve warps leave each thread the 168 registers that
 * multiplying takes; of sixteen, those that multiply have these from the others, and more of twelve
 * in wide tiles. */
static void tci_cuda_wgmma_split(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int loader = 4 * x->consumers;
    bool wide = tci_matrix_is_wide(x), more = x->last_warps > TCI_MATRIX_LAST_WARPS;
    const char *take = wide   ? "        tc_take_registers<208>();\n"
                       : more ? "        tc_take_registers<168>();\n"
                              : "";
    tci_str_printf(out,
                   "    TC_SHARED;\n"
                   "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                   "    tc_matrix_begin<%s_shape>(at);\n"
                   "    const int warp = tc_warp<%s_shape>();\n"
                   "    if (warp < %d) {\n%s"
                   "        tc_matrix_multiply<%s_shape%s>(at, warp / 4);\n%s    }\n"
                   "    if (warp == %d) {\n        if (tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_matrix_load<%s_shape>(at, args.maps);\n        }\n"
                   "        return;\n    }\n",
                   symbol, symbol, loader, take, symbol, x->dtype == TC_I8 ? ", int" : "",
                   !take[0] ? ""
                            : "        tc_leave_registers<88>();\n    } else {\n"
                              "        tc_leave_registers<88>();\n",
                   loader, symbol, symbol);
}

/* The third part's loops up to the epilogue slot. Consumers come here after their last tile and
 * help until no accumulators are left; one may be a tile ahead of the other, which a parity cannot
 * distinguish, so they wait until all have stored their last accumulators. */
static void tci_cuda_wgmma_rows(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int part_rows = TCI_MATRIX_SUB * x->sub_rows, consumers = 4 * x->consumers;
    int groups = TCI_MATRIX_WARP / x->row_threads; /* of rows and chunks that a warp is at */
    tci_str_printf(out,
                   "    const bool helps = warp < %d;\n"
                   "    const int worker = %d * (helps ? warp + %d : warp - %d) + "
                   "threadIdx.y %% %d;\n"
                   "    const int before = (%lld - 1 - (int)blockIdx.x) / (int)gridDim.x;\n"
                   "    const int last = blockIdx.x + before * gridDim.x;\n"
                   "    unsigned ready = 0;\n"
                   "    if (helps) {\n        tc_barrier_wait(tc_done<%s_shape>(at), 0);\n    }\n"
                   "    for (int t = helps ? last : blockIdx.x; t <= last; t += gridDim.x, "
                   "ready ^= 1) {\n"
                   "    const tc_place p = %s_shape::place(t);\n",
                   consumers, groups, x->last_warps, consumers + 1, groups, (long long)x->tiles,
                   symbol, symbol);
    tci_str_printf(out,
                   "    for (int part = 0; part < %d; part++) {\n"
                   "    const bool all = t == last%s;\n"
                   "    if (helps && !all) {\n        continue;\n    }\n"
                   "    if (!helps) {\n"
                   "        tc_barrier_wait(tc_ready<%s_shape>(at, part), ready);\n    }\n"
                   "    for (int unit = worker; unit < %d; unit += all ? %d : %d) {\n"
                   "    const int row = unit / %d * %d, column = unit %% %d * %d;\n",
                   x->consumers, x->buffers == 1 && x->consumers > 1 ? " && part == 1" : "", symbol,
                   part_rows / x->group_rows * x->chunks, (x->last_warps + consumers) * groups,
                   x->last_warps * groups, x->chunks, x->group_rows, x->chunks, x->lanes);
    tci_str_printf(out,
                   "    const tc_i64 at_%d = p.m + %d * part + row, at_%d = p.n + column;\n"
                   "    if (at_%d >= %lld) {\n        break;\n    }\n"
                   "    if (at_%d >= %lld) {\n        continue;\n    }\n",
                   x->m_axis, part_rows, x->n_axis, x->m_axis, (long long)x->m, x->n_axis,
                   (long long)x->n);
    for (int i = 0; i < x->n_batch; i++) {
        tci_str_printf(out, "    const tc_i64 at_%d = p.b%d;\n", x->batch_axis[i], i);
    }
    tci_str_printf(out,
                   "    void *given = tc_shared + (at - tc_shared_at(tc_shared)) + "
                   "tc_staged<%s_shape>(%d * part + row) + %d * column;\n",
                   symbol, x->buffers == 1 ? 0 : TCI_MATRIX_SUB * x->sub_rows,
                   tci_dtype_get((tc_dtype)x->staged)->bytes);
}

TCI_FN void tci_cuda_skeleton_open(tci_str *out, const char *symbol, const tci_loop *l, int n_maps,
                                   int n_words, int warps, int blocks)
{
    char maps[32] = "";
    if (n_maps > 0) {
        snprintf(maps, sizeof(maps), "tc_map maps[%d]; ", n_maps);
    }
    bool pairs = l->matrix && l->matrix->shares;
    tci_str_printf(out,
                   "struct %s_args { %svoid *bufs[%d]; tc_i64 lits[%d]; tc_i64 *fault; };\n"
                   "extern \"C\" __global__ void %s__launch_bounds__(%d, %d) "
                   "%s(const __grid_constant__ %s_args args)\n{\n",
                   symbol, maps, TCI_MAX(l->n_operands, 1), TCI_MAX(n_words, 1),
                   pairs ? "__cluster_dims__(2, 1, 1) " : "", TCI_MATRIX_WARP * warps, blocks,
                   symbol, symbol);
}

TCI_FN void tci_cuda_skeleton_args(tci_str *out)
{
    tci_str_add(out, "    void *const *bufs = args.bufs;\n    const tc_i64 *lits = args.lits;\n"
                     "    tc_i64 *fault = args.fault;\n");
}

TCI_FN void tci_cuda_wgmma_head(tci_str *out, const char *symbol, const tci_loop *l, int n_words)
{
    const tci_matrix *x = l->matrix;
    tci_cuda_skeleton k = tci_cuda_wgmma_describe(x);
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_wgmma_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, 2, n_words, 4 * x->consumers + 1 + x->last_warps, 1);
    tci_cuda_wgmma_split(out, symbol, x);
    tci_cuda_skeleton_args(out);
    tci_cuda_wgmma_rows(out, symbol, x);
}

/* The loop over rows ends; what was staged has been taken; the parts and the tiles end. */
TCI_FN void tci_cuda_wgmma_tail(tci_str *out, const char *symbol)
{
    tci_str_printf(out,
                   "    }\n    if (!all) {\n"
                   "        tc_warp_arrive<%s_shape>(tc_taken<%s_shape>(at, part));\n"
                   "    }\n    }\n    }\n}\n",
                   symbol, symbol);
}
/* ---- src/cuda/wgmma_attention.c ---- */
/* cuda/wgmma_attention.c - holds the CUDA source of fused attention and its gradients on WGMMA: the
 * device functions and main loops that the classes of cuda/flash_attention.c instantiate, in the
 * layers of cuda/wgmma_gemm.c, whose small functions they share.
 *
 * Shared memory, from a multiple of 1024: the operands of a tile's rows, and if there is room those
 * of the next tile, a ring of steps, values of their queries, the final sums, barriers: for each
 * slot one for full and one for empty, the rows' first, and those of tci_cuda_attention_barriers.
 * Operands are in slabs of 64 elements, a row for each row or step: the layout of the first
 * products and, transposed, of the steps in the last ones (tc_attention_take), whose leading offset
 * is a slab.
 *
 * Element i of a thread's scores is of row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and step 8 * (i /
 * 4) + 2 * (lane % 4) + i % 2; four threads share a row. Pairs of them, rounded, are already the
 * registers of the last products' first operand. Sums o0 are those of score gradients and the steps
 * of the first product, o1 those of weights and the steps of the second one.
 *
 * Online chains and gradients share the names of the class, the barriers, the addresses of steps,
 * the first products and the last ones. Three functions are there twice:
 *   - the loops over steps, tc_online_tile and tc_backward_tile, which overlap differently. Online,
 *     the sums of a step are awaited after the exponentials of the next one, which do not depend on
 *     them; so the second operand has a ring slot of its own, released a step later, and is laid
 *     out in parts of 64 steps. If consumers take turns, each group of four warps issues the
 *     products of a step when the other group has issued its own, so that one computes
 *     exponentials while the other's products run. Of a gradient both first products are issued;
 *     weights are computed from the first while the second runs, the product that takes them is
 *     issued, score gradients are computed while that one runs, and theirs is issued. Only the
 *     scores of the next step wait for these. To hold these sums back as online takes the registers
 *     of a second set of pairs.
 *   - the loads, which follow the slots of these loops, and the loops over scores. One text for
 *     both gives other machine code (NVRTC 13.0, sm_90a: order of address arithmetic, registers),
 *     whose speed is not known; as they are, kernels have the machine code that they had apart.
 *
 * If keys are cut off for a tile's rows, the steps beyond the cut are skipped. Online, the score of
 * cut-off keys must be so far below the maximum of each row that its exponential is 0: each warp
 * stores its distance after the first step, and the producer and all consumers read all of these
 * after the last step before the cut. Of a gradient it must be -inf, so that their weights are 0 in
 * any row. Only steps that the cut crosses test each score.
 *
 * Invariants: a branch, whose arms both wait, keeps the compiler from waiting for sums earlier
 * (tc_attention_behind), and no register of a running product is touched: tc_registers_here, after
 * each wait, keeps the compiler from reading them before it. Each warp stores and reads rows of its
 * own, so a warp barrier is enough there. Steps past the last one are zeros in shared memory; their
 * weights are 0 too: of keys as their scores are -inf, of queries as their maximum is inf. */
/* ---- src/cuda/flash_attention.h ---- */
/* cuda/flash_attention.h - declares the writer of CUDA source for fused attention and its gradients
 * (loop/flash_attention.h): the class of a kernel and its frame, and the device functions that the
 * frame calls, on tensor cores (cuda/wgmma_attention.c) or on threads (cuda/simt_attention.c). */
#ifndef TCI_CUDA_FLASH_ATTENTION_H
#define TCI_CUDA_FLASH_ATTENTION_H


/* Definitions that kernels of a file share, after those of cuda/wgmma_gemm.c: of all attention, of
 * online chains and of gradients on tensor cores, and of both on threads. */
TCI_FN void tci_cuda_attention_prelude(tci_str *out);
TCI_FN void tci_cuda_online_prelude(tci_str *out);
TCI_FN void tci_cuda_backward_prelude(tci_str *out);
TCI_FN void tci_cuda_simt_attention_prelude(tci_str *out);
/* The product of pairs in registers and steps in shared memory: once in a file. */
TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_matrix *x);
TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_matrix *x);

/* The kernel up to its operands; before slot i, and after it; and the end. */
TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words);
TCI_FN void tci_cuda_attention_open(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_close(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_tail(tci_str *out, const char *symbol, const tci_loop *l);

#endif

/* ---- src/cuda/wgmma_attention.c, continued ---- */
/* ---- what all chains share ---- */

/* tc_fma_bf16: of two halves at once, the lower ones 0; c: -0 in both, or another such value. */
static const char tci_cuda_attention_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "#define TC_MULTIPLY_HELD(type, columns) tc_multiply_held_##type##_##columns\n"
    "template <int n> TC_I void tc_registers_fewer() {\n"
    "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "template <int n> TC_I void tc_registers_more() {\n"
    "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "TC_I float tc_swap(float x, int lanes) {\n"
    "    return __shfl_xor_sync(0xffffffffu, x, lanes);\n}\n"
    "TC_I float tc_fma_bf16(float a, float b, unsigned c) {\n    unsigned r;\n"
    "    asm(\"fma.rn.bf16x2 %0, %1, %2, %3;\" : \"=r\"(r) : \"r\"(__float_as_int(a)), "
    "\"r\"(__float_as_int(b)), \"r\"(c));\n    return __int_as_float((int)r);\n}\n"
    "TC_I float tc_mul_bf16(float a, float b) { return tc_fma_bf16(a, b, 0x80008000u); }\n"
    "TC_I float tc_add_bf16(float a, float b) {\n"
    "    return tc_fma_bf16(a, 1.0f, (unsigned)__float_as_int(b));\n}\n"
    "TC_I float tc_power_of_2(float x) {\n    float r;\n"
    "    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n    return r;\n}\n"
    "TC_I float tc_log_2(float x) {\n    float r;\n"
    "    asm(\"lg2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n    return r;\n}\n"
    "TC_I float tc_load_one(unsigned from) {\n    float r;\n"
    "    asm volatile(\"ld.shared::cta.f32 %0, [%1];\" : \"=f\"(r) : \"r\"(from) : "
    "\"memory\");\n    return r;\n}\n"
    "TC_I void tc_load_two(unsigned from, float &a, float &b) {\n"
    "    asm volatile(\"ld.shared::cta.v2.f32 {%0, %1}, [%2];\" : \"=f\"(a), \"=f\"(b) : "
    "\"r\"(from) : \"memory\");\n}\n"
    "template <int n> TC_I void tc_registers_here(float (&s)[n]) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < n; i += 8) {\n"
    "        asm volatile(\"\" : \"+f\"(s[i]), \"+f\"(s[i + 1]), \"+f\"(s[i + 2]), "
    "\"+f\"(s[i + 3]), \"+f\"(s[i + 4]), \"+f\"(s[i + 5]), \"+f\"(s[i + 6]), \"+f\"(s[i + 7]) "
    ":: \"memory\");\n    }\n}\n"
    "template <int n> TC_I void tc_attention_behind(float (&s)[n], bool first) {\n"
    "    tc_registers_here(s);\n"
    "    if (first) {\n        tc_products_wait<0>();\n    } else {\n"
    "        tc_products_wait<0>();\n    }\n}\n"
    "#endif\n"
    "TC_I float tc_low_bf16(unsigned two) { return __int_as_float((int)(two << 16)); }\n"
    "TC_I float tc_high_bf16(unsigned two) { return __int_as_float((int)(two & 0xffff0000u)); }\n"
    "TC_I float tc_low_f16(unsigned two) { return tc_widen_f32_f16((unsigned short)two); }\n"
    "TC_I float tc_high_f16(unsigned two) { return tc_low_f16(two >> 16); }\n";

/* After the barriers of slots: of an online chain one that all consumers' warps have left their
 * distance; one for the turn of each consumer; and the distances, those of a tile while others read
 * those of the tile before. */
static const char tci_cuda_attention_barriers[] =
    "template <class S> TC_I unsigned tc_attention_told(unsigned at) {\n"
    "    return at + S::barriers + 16 * S::stages;\n}\n"
    "template <class S> TC_I unsigned tc_attention_turn(unsigned at, int group) {\n"
    "    return at + S::turns_at + 8 * group;\n}\n"
    "template <class S> TC_I unsigned tc_attention_word(unsigned at, unsigned turn, int warp) {\n"
    "    return tc_attention_turn<S>(at, S::consumers) + 8 * (turn * 4 * S::consumers + warp);\n}\n"
    "TC_I int tc_attention_next(int round) {\n"
    "    const int blocks = gridDim.x, block = blockIdx.x;\n"
    "    return round * blocks + (round % 2 ? blocks - 1 - block : block);\n}\n"
    "template <class S> TC_I int tc_attention_rest(unsigned at, int end, unsigned &turn) {\n"
    "    tc_barrier_wait(tc_attention_told<S>(at), turn);\n"
    "    for (int i = 0; i < 4 * S::consumers; i++) {\n"
    "        if (!(tc_load_one(tc_attention_word<S>(at, turn, i)) > 128.0f)) {\n"
    "            end = S::n;\n        }\n    }\n"
    "    turn ^= 1;\n    return end;\n}\n"
    "template <class S> TC_I unsigned tc_attention_step_0(unsigned at, int ring) {\n"
    "    return at + S::steps_at + ring * S::step_bytes;\n}\n"
    "template <class S> TC_I unsigned tc_attention_step_1(unsigned at, int ring) {\n"
    "    return at + S::steps_at + S::step_1 + ring * S::step_bytes_1;\n}\n"
    "template <class S> TC_I void tc_attention_begin(unsigned at) {\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), S::by_step && i >= S::slots ? 2 : 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), 4 * S::consumers);\n        }\n"
    "        if (S::online) {\n"
    "            tc_barrier_init(tc_attention_told<S>(at), 4 * S::consumers);\n        }\n"
    "        for (int i = 0; i < S::turn_barriers; i++) {\n"
    "            tc_barrier_init(tc_attention_turn<S>(at, i), 4);\n        }\n"
    "        tc_barrier_init_done();\n    }\n    __syncthreads();\n}\n";

/* The contractions of a tile and a step: products of rows and steps, sums of pairs and steps. */
static const char tci_cuda_attention_products[] =
    "template <class S, int depth>\n"
    "TC_I void tc_attention_product(float (&d)[S::step / 2], unsigned long long a, unsigned long "
    "long b) {\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < (depth + 15) / 16; i++) {\n"
    "        S::multiply(d, a + i / 4 * (S::rows_slab / 16) + i % 4 * 2,\n"
    "                    b + i / 4 * (S::step_slab / 16) + i % 4 * 2, i > 0);\n    }\n"
    "    tc_products_commit();\n}\n"
    "template <class S, int which, int n>\n"
    "TC_I void tc_attention_take(float (&o)[n], const unsigned *pairs, unsigned steps, bool add) "
    "{\n"
    "    const unsigned long long b = tc_box(steps) + ((unsigned long long)(S::taken_slab - 8192) "
    ">> 4 << 16);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < S::step / 16; k++) {\n"
    "        const unsigned long long of = b + k / 4 * (S::taken_part / 16) + k % 4 * 128;\n"
    "        if constexpr (which == 0) {\n"
    "            S::multiply_0(o, pairs + 4 * k, of, add || k > 0);\n"
    "        } else {\n"
    "            S::multiply_1(o, pairs + 4 * k, of, add || k > 0);\n        }\n"
    "    }\n"
    "    tc_products_commit();\n}\n";

TCI_FN void tci_cuda_attention_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_attention_ptx);
    tci_str_add(out, tci_cuda_attention_barriers);
    tci_str_add(out, tci_cuda_attention_products);
}

/* The product of pairs in registers and steps in shared memory. */
TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_matrix *x)
{
    return tci_scratch_printf(s, "tc_multiply_held_%s_%d", tci_cuda_wgmma_type(x), x->columns);
}

TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_matrix *x)
{
    const char *type = tci_cuda_wgmma_type(x);
    int n = x->columns / 2;
    tci_str_printf(out,
                   "#ifndef TC_NO_PTX\nTC_I void %s(float (&d)[%d], const unsigned *a, "
                   "unsigned long long b, int add) {\n"
                   "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n"
                   "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {",
                   name, n, n + 5, x->columns, type, type);
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : "", i);
    }
    tci_str_printf(out, "}, {%%%d, %%%d, %%%d, %%%d}, %%%d, p, 1, 1, 1;\\n}\"\n        : ", n,
                   n + 1, n + 2, n + 3, n + 4);
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s\"+f\"(d[%d])", i ? ", " : "", i);
    }
    tci_str_add(out, " : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), "
                     "\"r\"(add));\n}\n#endif\n");
}

/* ---- online chains ---- */

/* One thread's loads: the second operand of a step has a barrier of its own, as it is taken a step
 * later. */
static const char tci_cuda_online_loading[] =
    "template <class S> TC_I void tc_online_load(unsigned at, const tc_map *maps) {\n"
    "    int ring = 0;\n    unsigned parity = 1, turn = 0;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        tc_place p = S::place(S::order(t));\n"
    "        const int own = i % S::slots;\n"
    "        tc_barrier_wait(tc_empty<S>(at, own), 1 - i / S::slots % 2);\n"
    "        tc_barrier_expect(tc_full<S>(at, own), S::rows_loaded);\n"
    "        for (int k = 0; k < S::depth_0; k += 64) {\n"
    "            S::load_rows_0(at + own * S::rows_bytes + k / 64 * S::rows_slab, maps, "
    "tc_full<S>(at, own), p, k);\n        }\n"
    "        int end = S::end(p, true);\n        bool asks = end < S::n;\n"
    "        for (int key = 0; key < end; key += S::step) {\n"
    "            const int slot = S::slots + ring, after = slot + S::rings;\n"
    "            p.n = key;\n"
    "            tc_barrier_wait(tc_empty<S>(at, slot), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, slot), S::step_loaded);\n"
    "            for (int k = 0; k < S::depth_0; k += 64) {\n"
    "                S::load_steps_0(at + S::steps_at + ring * S::step_bytes + "
    "k / 64 * S::step_slab, maps + 1, tc_full<S>(at, slot), p, k);\n            }\n"
    "            p.n = 0;\n"
    "            tc_barrier_wait(tc_empty<S>(at, after), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, after), S::step_bytes_1);\n"
    "            for (int k = 0; k < S::step; k += 64) {\n"
    "                S::load_steps_1(at + (S::steps_at + S::step_1) + ring * S::step_bytes_1 + "
    "k / 64 * S::taken_part, maps + 2, tc_full<S>(at, after), p, key + k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "            if (asks && key + S::step == end) {\n                asks = false;\n"
    "                end = tc_attention_rest<S>(at, end, turn);\n            }\n"
    "        }\n    }\n}\n";

/* A thread's part of a tile. most and sum: of its two rows; scale: the factor of the sums so far
 * relative to the present step. */
static const char tci_cuda_online_powers[] =
    "template <class S> struct tc_online {\n"
    "    float o1[S::columns_1 / 2], s[S::step / 2], most[2], sum[2], scale[2];\n"
    "    unsigned w[S::step / 4];\n};\n"
    "template <class S, class F>\n"
    "TC_I void tc_online_each(tc_online<S> &x, tc_place p, int group, int key, F score) {\n"
    "    const int lane = tc_warp_lane<S>(), first = key + 2 * (lane & 3);\n"
    "    const int row = p.m + 64 * group + 16 * (tc_warp<S>() & 3) + lane / 4;\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i++) {\n"
    "        x.s[i] = score(x.s[i], rows[i / 2 % 2], S::steps_end(first + i / 4 * 8 + i % 2));\n"
    "    }\n"
    "    if (S::n % S::step != 0 && key + S::step > S::n) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i++) {\n"
    "            x.s[i] = first + i / 4 * 8 + i % 2 < S::n ? x.s[i] : -__builtin_inff();\n"
    "        }\n    }\n}\n"
    "template <class S, class F, class G>\n"
    "TC_I void tc_online_values(tc_online<S> &x, tc_place p, int group, int key, F score, "
    "G seen) {\n"
    "    if (S::whole(p.m + 64 * group, key)) {\n"
    "        tc_online_each<S>(x, p, group, key, seen);\n    } else {\n"
    "        tc_online_each<S>(x, p, group, key, score);\n    }\n}\n"
    "template <class S> TC_I void tc_online_powers(tc_online<S> &x, bool fresh) {\n"
    "    const float log2e = 1.44269504f;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float mosts[2] = {x.s[2 * r], x.s[2 * r + 1]}, sums[2] = {0, 0};\n"
    "#pragma unroll\n"
    "        for (int i = 4; i < S::step / 2; i += 4) {\n"
    "            mosts[0] = fmaxf(mosts[0], x.s[i + 2 * r]);\n"
    "            mosts[1] = fmaxf(mosts[1], x.s[i + 2 * r + 1]);\n        }\n"
    "        float most = fmaxf(mosts[0], mosts[1]);\n"
    "        most = fmaxf(most, tc_swap(most, 1));\n"
    "        most = fmaxf(most, tc_swap(most, 2));\n"
    "        const float old = fresh ? -__builtin_inff() : x.most[r];\n"
    "        x.most[r] = fmaxf(old, most);\n"
    "        const float off = x.most[r] == -__builtin_inff() ? 0.0f : x.most[r] * log2e;\n"
    "        x.scale[r] = tc_power_of_2(__fmaf_rn(old, log2e, -off));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i += 4) {\n"
    "#pragma unroll\n"
    "            for (int j = i + 2 * r; j < i + 2 * r + 2; j++) {\n"
    "                x.s[j] = tc_power_of_2(__fmaf_rn(x.s[j], log2e, -off));\n"
    "                sums[j % 2] += x.s[j];\n            }\n        }\n"
    "        const float sum = sums[0] + sums[1];\n"
    "        x.sum[r] = fresh ? sum : __fmaf_rn(x.sum[r], x.scale[r], sum);\n    }\n}\n"
    "template <class S> TC_I void tc_online_round(tc_online<S> &x) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 4; i++) {\n"
    "        x.w[i] = S::halves(x.s[2 * i], x.s[2 * i + 1]);\n    }\n}\n";

/* Difference between a warp's row maxima and `cut`, the score of masked elements; if `cut` is -inf,
 * masked elements are 0 however low the maxima are. */
static const char tci_cuda_online_telling[] =
    "template <class S>\n"
    "TC_I void tc_online_tell(tc_online<S> &x, unsigned at, unsigned turn, float cut) {\n"
    "    float far = fminf(x.most[0] - cut, x.most[1] - cut);\n"
    "    far = fminf(far, tc_swap(far, 4));\n    far = fminf(far, tc_swap(far, 8));\n"
    "    far = fminf(far, tc_swap(far, 16));\n"
    "    far = cut == -__builtin_inff() ? __builtin_inff() : far;\n"
    "    if (tc_warp_lane<S>() == 0) {\n"
    "        tc_store_two(tc_attention_word<S>(at, turn, tc_warp<S>()), far, far);\n    }\n"
    "    tc_warp_arrive<S>(tc_attention_told<S>(at));\n}\n";

/* A tile, the block's number i: ring, parity, turn and own, the parity of the group's own turn, go
 * on from the tile before. */
static const char tci_cuda_online_tile[] =
    "template <class S, class F, class G>\n"
    "TC_I void tc_online_tile(unsigned at, int group, int &ring, unsigned &parity, unsigned "
    "&turn,\n                         unsigned &own, int i, tc_place p, F score, G seen) {\n"
    "    tc_online<S> x;\n"
    "    const int slot = i % S::slots;\n"
    "    const unsigned rows = at + slot * S::rows_bytes + group * 8192;\n"
    "    tc_barrier_wait(tc_full<S>(at, slot), i / S::slots % 2);\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "    tc_attention_product<S, S::depth_0>(x.s, tc_box(rows),\n"
    "                                         tc_box(tc_attention_step_0<S>(at, ring)));\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.s);\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "    tc_online_values<S>(x, p, group, 0, score, seen);\n"
    "    tc_online_powers<S>(x, true);\n"
    "    int end = S::end(p, true);\n    bool asks = end < S::n;\n"
    "    if (asks) {\n"
    "        tc_online_tell<S>(x, at, turn, score(0.0f, S::rows_end(p.m), end));\n    }\n"
    "    tc_online_round<S>(x);\n"
    "    for (int n = S::step;; n += S::step) {\n"
    "        if (asks && n == end) {\n            asks = false;\n"
    "            end = tc_attention_rest<S>(at, end, turn);\n        }\n"
    "        if (n >= end) {\n            break;\n        }\n"
    "        const int before = ring;\n        const unsigned old = parity;\n"
    "        if (++ring == S::rings) {\n            ring = 0;\n            parity ^= 1;\n"
    "        }\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        if (S::turns) {\n            tc_barrier_wait(tc_attention_turn<S>(at, group), own);\n"
    "            own ^= 1;\n        }\n"
    "        tc_attention_product<S, S::depth_0>(x.s, tc_box(rows),\n"
    "                                         tc_box(tc_attention_step_0<S>(at, ring)));\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + before), old);\n"
    "        tc_attention_take<S, 1>(x.o1, x.w, tc_attention_step_1<S>(at, before), n > S::step);\n"
    "        if (S::turns) {\n"
    "            tc_warp_arrive<S>(tc_attention_turn<S>(at, (group + 1) % S::consumers));\n"
    "        }\n"
    "        tc_products_wait<1>();\n        tc_registers_here(x.s);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "        tc_online_values<S>(x, p, group, n, score, seen);\n"
    "        tc_online_powers<S>(x, false);\n"
    "        tc_attention_behind(x.s, n == S::step);\n        tc_registers_here(x.o1);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + S::rings + before));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::columns_1 / 2; i++) {\n"
    "            x.o1[i] *= x.scale[i / 2 % 2];\n        }\n"
    "        tc_online_round<S>(x);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + ring), parity);\n"
    "    tc_attention_take<S, 1>(x.o1, x.w, tc_attention_step_1<S>(at, ring), end > S::step);\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.o1);\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + S::rings + ring));\n"
    "    if (++ring == S::rings) {\n        ring = 0;\n        parity ^= 1;\n    }\n"
    "    float by[2];\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float sum = x.sum[r] + tc_swap(x.sum[r], 1);\n"
    "        sum += tc_swap(sum, 2);\n        by[r] = 1.0f / sum;\n"
    "        if (S::tells && (tc_warp_lane<S>() & 3) == 0) {\n"
    "            const int row = 16 * tc_warp<S>() + tc_warp_lane<S>() / 4 + 8 * r;\n"
    "            tc_store_two(at + S::staged_at + (row * S::staged_pitch + S::lanes) * "
    "S::staged_bytes, x.most[r], sum);\n        }\n    }\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::columns_1 / 2; i++) {\n"
    "        x.o1[i] *= by[i / 2 % 2];\n    }\n"
    "    tc_matrix_leave<S>(x.o1, at + S::staged_at + 64 * group * S::staged_pitch * "
    "S::staged_bytes);\n    __syncwarp();\n}\n";

TCI_FN void tci_cuda_online_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_online_loading);
    tci_str_add(out, tci_cuda_online_powers);
    tci_str_add(out, tci_cuda_online_telling);
    tci_str_add(out, tci_cuda_online_tile);
}

/* ---- gradients ---- */

/* One thread's loads. */
static const char tci_cuda_backward_loading[] =
    "template <class S> TC_I void tc_backward_load(unsigned at, const tc_map *maps, bool cuts) {\n"
    "    int ring = 0;\n    unsigned parity = 1;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        tc_place p = S::place(S::order(t));\n        const int own = i % S::slots;\n"
    "        const unsigned rows = at + own * S::rows_bytes;\n"
    "        tc_barrier_wait(tc_empty<S>(at, own), 1 - i / S::slots % 2);\n"
    "        tc_barrier_expect(tc_full<S>(at, own), S::rows_loaded);\n"
    "        for (int k = 0; k < S::depth_0; k += 64) {\n"
    "            S::load_rows_0(rows + k / 64 * S::rows_slab, maps, tc_full<S>(at, own), p, k);\n"
    "        }\n"
    "        if constexpr (S::changes) {\n"
    "            for (int k = 0; k < S::depth_1; k += 64) {\n"
    "                S::load_rows_1(rows + S::rows_1 + k / 64 * S::rows_slab, maps + 3,\n"
    "                               tc_full<S>(at, own), p, k);\n            }\n        }\n"
    "        const int end = S::end(p, cuts);\n"
    "        for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "            const unsigned full = tc_full<S>(at, S::slots + ring);\n"
    "            const unsigned to = at + S::steps_at + ring * S::step_bytes;\n"
    "            p.n = n;\n"
    "            tc_barrier_wait(tc_empty<S>(at, S::slots + ring), parity);\n"
    "            tc_barrier_expect(full, S::step_bytes);\n"
    "            for (int k = 0; k < S::depth_0; k += 64) {\n"
    "                S::load_steps_0(to + k / 64 * S::step_slab, maps + 1, full, p, k);\n"
    "            }\n"
    "            for (int k = 0; k < S::depth_1; k += 64) {\n"
    "                S::load_steps_1(to + S::step_1 + k / 64 * S::step_slab, maps + "
    "2, full, p, "
    "k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "        }\n"
    "    }\n"
    "}\n";

/* Values of a query alone: where those of a step are, and who evaluates them. */
static const char tci_cuda_backward_values[] =
    "template <class S> TC_I unsigned tc_backward_told(unsigned at, int ring) {\n"
    "    return at + S::values_at + ring * S::values * S::step * 4;\n}\n"
    "template <class S, class V>\n"
    "TC_I void tc_backward_own(float (&own)[S::values], V values, tc_place p, int query) {\n"
    "    const bool is = query < S::queries;\n    values(own, p, is ? query : S::queries - 1);\n"
    "    own[0] = is ? __fmaf_rn(own[0], 1.44269504f, tc_log_2(own[1])) : __builtin_inff();\n}\n"
    "template <class S, class V> TC_I void tc_backward_tell(unsigned at, V values, bool cuts) {\n"
    "    int ring = 0;\n    unsigned parity = 1;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        const tc_place p = S::place(S::order(t));\n"
    "        const int end = S::end(p, cuts);\n"
    "        for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "            const unsigned told = tc_backward_told<S>(at, ring);\n"
    "            tc_barrier_wait(tc_empty<S>(at, S::slots + ring), parity);\n"
    "            for (int j = 2 * tc_warp_lane<S>(); j < S::step; j += 64) {\n"
    "                float a[S::values], b[S::values];\n"
    "                tc_backward_own<S>(a, values, p, n + j);\n"
    "                tc_backward_own<S>(b, values, p, n + j + 1);\n"
    "                for (int k = 0; k < S::values; k++) {\n"
    "                    tc_store_two(told + 4 * (k * S::step + j), a[k], b[k]);\n"
    "                }\n"
    "            }\n"
    "            tc_warp_arrive<S>(tc_full<S>(at, S::slots + ring));\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char tci_cuda_backward_pairs[] =
    "template <class S> struct tc_backward {\n"
    "    float s[S::step / 2], g[S::step / 2], o0[S::columns_0 / 2], o1[S::columns_1 / 2];\n"
    "    unsigned w[S::step / 4], c[S::step / 4];\n    float own[2][S::values];\n};\n"
    "template <class S, class F>\n"
    "TC_I void tc_backward_scores(tc_backward<S> &x, int row, int n, F score) {\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i++) {\n"
    "        x.s[i] = score(x.s[i], rows[i / 2 % 2], S::steps_end(n + i / 4 * 8 + i % 2));\n"
    "    }\n"
    "    if (!S::by_step && S::n % S::step != 0 && n > S::n - S::step) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i++) {\n"
    "            x.s[i] = n + i / 4 * 8 + i % 2 < S::n ? x.s[i] : -__builtin_inff();\n        }\n"
    "    }\n"
    "}\n"
    "template <class S> TC_I void tc_backward_told_of(tc_backward<S> &x, unsigned told, int i, int "
    "k,\n                                                 float (&of)[2]) {\n"
    "    if (S::by_step) {\n"
    "        tc_load_two(told + 4 * (k * S::step + i / 4 * 8), of[0], of[1]);\n    } else {\n"
    "        of[0] = x.own[0][k];\n        of[1] = x.own[1][k];\n    }\n"
    "}\n"
    "template <class S> TC_I void tc_backward_weights(tc_backward<S> &x, unsigned told) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i += 4) {\n        float off[2];\n"
    "        tc_backward_told_of(x, told, i, 0, off);\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j++) {\n"
    "            const int q = S::by_step ? j % 2 : j / 2 % 2;\n"
    "            x.s[j] = tc_power_of_2(__fmaf_rn(x.s[j], 1.44269504f, -off[q]));\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j += 2) {\n"
    "            x.w[j / 2] = S::halves(x.s[j], x.s[j + 1]);\n            if (S::rounds) {\n"
    "                x.s[j] = S::low(x.w[j / 2]);\n"
    "                x.s[j + 1] = S::high(x.w[j / 2]);\n            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "template <class S, class G>\n"
    "TC_I void tc_backward_changes(tc_backward<S> &x, unsigned told, int row, int n, G change) {\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i += 4) {\n        float own[S::values][2];\n"
    "#pragma unroll\n"
    "        for (int k = 2; k < S::values; k++) {\n"
    "            tc_backward_told_of(x, told, i, k, own[k]);\n        }\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j++) {\n"
    "            const int q = S::by_step ? j % 2 : j / 2 % 2;\n"
    "            x.g[j] = change(x.s[j], x.g[j], own, q, rows[j / 2 % 2],\n"
    "                            S::steps_end(n + i / 4 * 8 + j % 2));\n        }\n"
    "        x.c[i / 2] = S::halves(x.g[i], x.g[i + 1]);\n"
    "        x.c[i / 2 + 1] = S::halves(x.g[i + 2], x.g[i + 3]);\n    }\n"
    "}\n";

static const char tci_cuda_backward_tile[] =
    "template <class S, class V, class F, class H, class G>\n"
    "TC_I void tc_backward_tile(tc_backward<S> &x, unsigned at, int group, int &ring,\n"
    "                           unsigned &parity, int i, tc_place p, bool cuts, V values, F "
    "score,\n                           H seen, G change) {\n"
    "    const int slot = i % S::slots, lane = tc_warp_lane<S>();\n"
    "    const int first = S::first(p, cuts), end = S::end(p, cuts);\n"
    "    const int row = p.m + 64 * group + 16 * (tc_warp<S>() & 3) + lane / 4;\n"
    "    const unsigned rows = at + slot * S::rows_bytes + group * 8192;\n    int before = 0;\n"
    "    if (!S::by_step) {\n        tc_backward_own<S>(x.own[0], values, p, row);\n"
    "        tc_backward_own<S>(x.own[1], values, p, row + 8);\n    }\n"
    "    tc_barrier_wait(tc_full<S>(at, slot), i / S::slots % 2);\n"
    "    for (int n = first; n < end; n += S::step) {\n"
    "        const unsigned steps = tc_attention_step_0<S>(at, ring);\n"
    "        const unsigned told = tc_backward_told<S>(at, ring) + 8 * (lane & 3);\n"
    "        const int step = n + 2 * (lane & 3);\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        tc_attention_product<S, S::depth_0>(x.s, tc_box(rows), tc_box(steps));\n"
    "        if constexpr (S::changes) {\n"
    "            tc_attention_product<S, S::depth_1>(x.g, tc_box(rows + S::rows_1),\n"
    "                                                 tc_box(steps + S::step_1));\n"
    "        }\n"
    "        tc_products_wait<S::changes>();\n        tc_registers_here(x.s);\n"
    "        if (n > first) {\n"
    "            tc_warp_arrive<S>(tc_empty<S>(at, S::slots + before));\n        }\n"
    "        if (S::whole(p.m + 64 * group, n)) {\n"
    "            tc_backward_scores<S>(x, row, step, seen);\n        } else {\n"
    "            tc_backward_scores<S>(x, row, step, score);\n        }\n"
    "        tc_backward_weights<S>(x, told);\n"
    "        if constexpr (S::changes) {\n"
    "            tc_attention_behind(x.s, n == first);\n            tc_registers_here(x.g);\n"
    "        }\n"
    "        if constexpr (S::weighs) {\n"
    "            tc_attention_take<S, 1>(x.o1, x.w, steps + S::step_1, n > first);\n"
    "        }\n"
    "        if constexpr (S::changes) {\n"
    "            tc_backward_changes<S>(x, told, row, step, change);\n"
    "            tc_attention_take<S, 0>(x.o0, x.c, steps, n > first);\n"
    "        }\n"
    "        before = ring;\n        if (++ring == S::rings) {\n"
    "            ring = 0;\n            parity ^= 1;\n        }\n"
    "    }\n"
    "    tc_products_wait<0>();\n"
    "    if constexpr (S::changes) {\n        tc_registers_here(x.o0);\n    }\n"
    "    if constexpr (S::weighs) {\n        tc_registers_here(x.o1);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + before));\n}\n";

TCI_FN void tci_cuda_backward_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_backward_loading);
    tci_str_add(out, tci_cuda_backward_values);
    tci_str_add(out, tci_cuda_backward_pairs);
    tci_str_add(out, tci_cuda_backward_tile);
}
/* ---- src/cuda/simt_attention.c ---- */
/* cuda/simt_attention.c - holds the CUDA source of fused attention and its gradients on SIMT
 * threads: the device functions and main loops that the classes of cuda/flash_attention.c
 * instantiate.
 *
 * Shared memory, all as f32: for attention the queries of a tile, a block of keys, a block of
 * values, the tile x block attention weights, and a word for each half warp; for its gradients both
 * operands of the rows, both of a block, and the tile x block scores. Each row is padded by four
 * elements, so that 16 bytes of neighbouring rows are in different banks. The final accumulators
 * reuse this memory.
 *
 * Half a warp has rows group + 8 r of a tile; each of its lanes has elements lane + 16 j of a
 * block, and for each 16 W columns of a result W contiguous ones. So a product of four elements
 * along a row takes one load for a row, which the half warp shares, and one for an element; and
 * weights that lanes store in shared memory are read by lanes of the same warp.
 *
 * Keys of the next block are loaded while weights are computed and summed, its values while its
 * scores are computed. If a causal mask hides keys from a tile's queries, the fully masked blocks
 * are skipped as in cuda/wgmma_attention.c: each half warp reports whether the masked scores are
 * far enough below the maximum of its rows.
 *
 * Invariants: a barrier precedes the first read of data that all threads have copied, and the next
 * copy to memory that all have read. Missing rows and keys are zeros, and their weights are 0, or
 * are never stored. */

/* ---- the prelude ---- */

/* Asynchronous copies of 16 bytes, in groups; older GPUs wait for each. */
static const char tci_cuda_flash_copies[] =
    "#ifndef TC_NO_PTX\n#if __CUDA_ARCH__ >= 800\n"
    "TC_I void tc_copy_four(float *to, const float *from, bool is) {\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: "
    "\"r\"(tc_shared_at(to)), \"l\"(from), \"r\"(is ? 16 : 0) : \"memory\");\n}\n"
    "TC_I void tc_copies_commit() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }\n"
    "template <int n> TC_I void tc_copies_wait() {\n"
    "    asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(n) : \"memory\");\n}\n"
    "#else\n"
    "TC_I void tc_copy_four(float *to, const float *from, bool is) {\n"
    "    *(tc_pack<float, 4> *)to = is ? *(const tc_pack<float, 4> *)from : "
    "tc_pack<float, 4>{{0, 0, 0, 0}};\n}\n"
    "TC_I void tc_copies_commit() {}\n"
    "template <int n> TC_I void tc_copies_wait() {}\n"
    "#endif\n#endif\n";

/* Rows of `size` elements, the first n of which exist, as rows of `width`. whole: four at once
 * start at a multiple of four; turned: rows are contiguous. */
static const char tci_cuda_flash_loading[] =
    "template <class S> TC_I int tc_flash_thread() {\n"
    "    return threadIdx.y * S::row_threads + threadIdx.x;\n}\n"
    "TC_I float tc_flash_max(float x) {\n"
    "    for (int i = 1; i < 16; i *= 2) {\n        x = fmaxf(x, tc_swap(x, i));\n    }\n"
    "    return x;\n}\n"
    "TC_I float tc_flash_sum(float x) {\n"
    "    for (int i = 1; i < 16; i *= 2) {\n        x += tc_swap(x, i);\n    }\n"
    "    return x;\n}\n"
    "template <class S, bool whole, int size>\n"
    "TC_I void tc_flash_four(float *to, const float *from, tc_i64 summed, int k, bool is) {\n"
    "    if (whole) {\n"
    "        tc_copy_four(to, from + (k < size ? k : 0), is && k < size);\n        return;\n    }\n"
    "    tc_pack<float, 4> four;\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "        four.e[j] = is && k + j < size ? from[(k + j) * summed] : 0;\n    }\n"
    "    *(tc_pack<float, 4> *)to = four;\n}\n"
    "template <class S, bool whole, int size>\n"
    "TC_I void tc_flash_four(float *to, const unsigned short *from, tc_i64 summed, int k, bool is) "
    "{\n"
    "    tc_pack<float, 4> four;\n    tc_pack<unsigned short, 4> halves = {{0, 0, 0, 0}};\n"
    "    if (whole && is && k < size) {\n"
    "        halves = *(const tc_pack<unsigned short, 4> *)(from + k);\n    }\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "        if (!whole && is && k + j < size) {\n"
    "            halves.e[j] = from[(k + j) * summed];\n        }\n"
    "        four.e[j] = S::wide(halves.e[j]);\n    }\n"
    "    *(tc_pack<float, 4> *)to = four;\n}\n"
    "template <class S, int rows, int size, int width, bool whole, bool turned, class E>\n"
    "TC_I void tc_flash_load(float *to, const E *from, tc_i64 own, tc_i64 summed, int n) {\n"
    "    const int fours = width / 4;\n"
    "#pragma unroll 8\n"
    "    for (int i = tc_flash_thread<S>(); i < rows * fours; i += S::threads) {\n"
    "        const int row = turned ? i % rows : i / fours, k = 4 * (turned ? i / rows : i % "
    "fours);\n"
    "        tc_flash_four<S, whole, size>(to + row * (width + 4) + k, from + (row < n ? row : 0) "
    "* own,\n                                      summed, k, row < n);\n    }\n}\n";

/* Pairs s += rows steps, over `width` elements of both; and accumulators o += pairs steps. */
static const char tci_cuda_flash_products[] =
    "template <class S, int width>\n"
    "TC_I void tc_flash_pairs(float (&s)[S::points][S::each], const float *rows, const float "
    "*steps) {\n"
    "    rows += tc_flash_thread<S>() / 16 * (width + 4);\n"
    "    steps += tc_flash_thread<S>() % 16 * (width + 4);\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        s[i / S::each][i % S::each] = 0;\n    }\n"
    "#pragma unroll 2\n"
    "    for (int k = 0; k < width; k += 4) {\n        tc_pack<float, 4> b[S::each];\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < S::each; j++) {\n"
    "            b[j] = *(const tc_pack<float, 4> *)(steps + 16 * j * (width + 4) + k);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::points; r++) {\n"
    "            const tc_pack<float, 4> a = *(const tc_pack<float, 4> *)(rows + 8 * r * (width + "
    "4) + k);\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < 4 * S::each; i++) {\n"
    "                const int j = i % S::each, e = i / S::each;\n"
    "                s[r][j] = __fmaf_rn(a.e[e], b[j].e[e], s[r][j]);\n            }\n"
    "        }\n    }\n}\n"
    "template <class S, int columns>\n"
    "TC_I void tc_flash_sums(float (&o)[S::points][columns / 16], const float *pairs, const float "
    "*steps) {\n"
    "    const int wide = columns % 64 == 0 ? 4 : columns % 32 == 0 ? 2 : 1;\n"
    "    pairs += tc_flash_thread<S>() / 16 * (S::step + 4);\n"
    "    steps += tc_flash_thread<S>() % 16 * wide;\n"
    "#pragma unroll 1\n"
    "    for (int n = 0; n < S::step; n += 4) {\n        tc_pack<float, 4> a[S::points];\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::points; r++) {\n"
    "            a[r] = *(const tc_pack<float, 4> *)(pairs + 8 * r * (S::step + 4) + n);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 4 * (columns / 16 / wide); i++) {\n"
    "            const int e = i % 4, g = i / 4;\n"
    "            const tc_pack<float, wide> b = *(const tc_pack<float, wide> *)(steps + (n + e) * "
    "(columns + 4) + g * 16 * wide);\n"
    "#pragma unroll\n"
    "            for (int j = 0; j < S::points * wide; j++) {\n"
    "                float &to = o[j / wide][g * wide + j % wide];\n"
    "                to = __fmaf_rn(a[j / wide].e[e], b.e[j % wide], to);\n            }\n"
    "        }\n    }\n}\n"
    "template <class S, int columns>\n"
    "TC_I void tc_flash_leave(const float (&o)[S::points][columns / 16], float *to, int pitch) {\n"
    "    const int wide = columns % 64 == 0 ? 4 : columns % 32 == 0 ? 2 : 1;\n"
    "    to += tc_flash_thread<S>() / 16 * pitch + tc_flash_thread<S>() % 16 * wide;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * (columns / 16); i++) {\n"
    "        const int r = i / (columns / 16), c = i % (columns / 16);\n"
    "        to[8 * r * pitch + c / wide * 16 * wide + c % wide] = o[r][c];\n    }\n}\n"
    "template <class S>\n"
    "TC_I void tc_flash_tell(const float (&s)[S::points][S::each], float *pairs) {\n"
    "    pairs += tc_flash_thread<S>() / 16 * (S::step + 4) + tc_flash_thread<S>() % 16;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        pairs[8 * (i / S::each) * (S::step + 4) + 16 * (i % S::each)] =\n"
    "            S::round(s[i / S::each][i % S::each]);\n    }\n    __syncwarp();\n}\n"
    "template <class S, class F>\n"
    "TC_I void tc_flash_scores(float (&s)[S::points][S::each], int row, int n, F score) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        float &to = s[i / S::each][i % S::each];\n"
    "        to = score(to, S::rows_end(row + 8 * (i / S::each)), S::steps_end(n + 16 * (i % "
    "S::each)));\n    }\n}\n";

static const char tci_cuda_flash_powers[] =
    "template <class S> struct tc_flash {\n"
    "    float o1[S::points][S::columns_1 / 16], s[S::points][S::each], most[S::points], "
    "sum[S::points];\n};\n"
    "template <class S> TC_I void tc_flash_powers(tc_flash<S> &x) {\n"
    "    const float log2e = 1.44269504f;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n        float most = x.s[r][0], sum = 0;\n"
    "#pragma unroll\n"
    "        for (int j = 1; j < S::each; j++) {\n"
    "            most = fmaxf(most, x.s[r][j]);\n        }\n"
    "        const float old = x.most[r];\n"
    "        x.most[r] = fmaxf(old, tc_flash_max(most));\n"
    "        const float off = x.most[r] == -__builtin_inff() ? 0.0f : x.most[r];\n"
    "        const float scale = tc_power_of_2((old - off) * log2e);\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < S::each; j++) {\n"
    "            x.s[r][j] = tc_power_of_2((x.s[r][j] - off) * log2e);\n"
    "            sum += x.s[r][j];\n        }\n"
    "        x.sum[r] = __fmaf_rn(x.sum[r], scale, sum);\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns_1 / 16; c++) {\n            x.o1[r][c] *= scale;\n"
    "        }\n    }\n}\n"
    "template <class S> TC_I bool tc_flash_is_far(tc_flash<S> &x, float *words, float cut) {\n"
    "    float far = __builtin_inff();\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        far = fminf(far, cut == -__builtin_inff() ? far : x.most[r] - cut);\n    }\n"
    "    if (tc_flash_thread<S>() % 16 == 0) {\n"
    "        words[tc_flash_thread<S>() / 16] = far;\n    }\n    __syncthreads();\n"
    "    bool all = true;\n"
    "    for (int i = 0; i < 8; i++) {\n        all = all && words[i] > 128.0f;\n    }\n"
    "    return all;\n}\n";

static const char tci_cuda_flash_tile[] =
    "template <class S, class F, class G>\n"
    "TC_I void tc_flash_tile(tc_flash<S> &x, float *at, void *const *bufs, tc_place p, F score, G "
    "seen) {\n"
    "    const int row = p.m + tc_flash_thread<S>() / 16, lane = tc_flash_thread<S>() % 16;\n"
    "    int end = S::end(p, true);\n    bool asks = end < S::n;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        x.most[r] = -__builtin_inff();\n        x.sum[r] = 0;\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns_1 / 16; c++) {\n            x.o1[r][c] = 0;\n        "
    "}\n"
    "    }\n"
    "    S::load_rows_0(at, bufs, p, p.m);\n"
    "    S::load_steps_0(at + S::steps_at, bufs, p, 0);\n    tc_copies_commit();\n"
    "    S::load_steps_1(at + S::steps_1, bufs, p, 0);\n    tc_copies_commit();\n"
    "    for (int key = 0;;) {\n"
    "        tc_copies_wait<1>();\n        __syncthreads();\n"
    "        tc_flash_pairs<S, S::width_0>(x.s, at, at + S::steps_at);\n"
    "        __syncthreads();\n"
    "        if (key + S::step < end) {\n"
    "            S::load_steps_0(at + S::steps_at, bufs, p, key + S::step);\n        }\n"
    "        tc_copies_commit();\n"
    "        if (S::whole(p.m, key)) {\n"
    "            tc_flash_scores<S>(x.s, row, key + lane, seen);\n        } else {\n"
    "            tc_flash_scores<S>(x.s, row, key + lane, score);\n        }\n"
    "        if (S::n % S::step != 0 && key + S::step > S::n) {\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < S::points * S::each; i++) {\n"
    "                if (key + lane + 16 * (i % S::each) >= S::n) {\n"
    "                    x.s[i / S::each][i % S::each] = -__builtin_inff();\n                }\n"
    "            }\n        }\n"
    "        tc_flash_powers<S>(x);\n"
    "        tc_flash_tell<S>(x.s, at + S::pairs_at);\n"
    "        tc_copies_wait<1>();\n        __syncthreads();\n"
    "        tc_flash_sums<S, S::columns_1>(x.o1, at + S::pairs_at, at + S::steps_1);\n"
    "        __syncthreads();\n        key += S::step;\n"
    "        if (key >= end) {\n"
    "            if (!asks || tc_flash_is_far<S>(x, at + S::words_at, score(0.0f, "
    "S::rows_end(p.m), end))) {\n                break;\n            }\n"
    "            asks = false;\n            end = S::n;\n"
    "            S::load_steps_0(at + S::steps_at, bufs, p, key);\n            "
    "tc_copies_commit();\n"
    "        }\n"
    "        S::load_steps_1(at + S::steps_1, bufs, p, key);\n        tc_copies_commit();\n"
    "    }\n    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        const float sum = tc_flash_sum(x.sum[r]), by = 1.0f / sum;\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns_1 / 16; c++) {\n            x.o1[r][c] *= by;\n        "
    "}\n"
    "        if (S::tells && lane == 0) {\n"
    "            float *to = at + (row - p.m + 8 * r) * S::staged_pitch + S::lanes;\n"
    "            to[0] = x.most[r];\n            to[1] = sum;\n        }\n    }\n}\n";

/* ---- the prelude of gradients ---- */

static const char tci_cuda_flash_back[] =
    "template <class S> struct tc_flash_back {\n"
    "    float s[S::points][S::each], g[S::points][S::each];\n"
    "    float o0[S::points][S::columns_0 / 16], o1[S::points][S::columns_1 / 16];\n"
    "    float own[S::values][S::by_step ? S::each : S::points];\n};\n"
    "template <class S, class V>\n"
    "TC_I void tc_flash_own(tc_flash_back<S> &x, V values, tc_place p, int i, int query) {\n"
    "    float own[S::values];\n    const bool is = query < S::queries;\n"
    "    values(own, p, is ? query : S::queries - 1);\n"
    "    own[0] = is ? own[0] : __builtin_inff();\n    own[1] = is ? tc_log_2(own[1]) : 0.0f;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < S::values; k++) {\n        x.own[k][i] = own[k];\n    }\n}\n"
    "template <class S> TC_I void tc_flash_weights(tc_flash_back<S> &x, int n) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        const int r = i / S::each, j = i % S::each, q = S::by_step ? j : r;\n"
    "        const bool is = S::by_step || n + 16 * j < S::n;\n"
    "        const float s = is ? x.s[r][j] : -__builtin_inff();\n"
    "        x.s[r][j] = tc_power_of_2(__fmaf_rn(s - x.own[0][q], 1.44269504f, -x.own[1][q]));\n"
    "    }\n}\n"
    "template <class S, class G>\n"
    "TC_I void tc_flash_changes(tc_flash_back<S> &x, int row, int n, G change) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        const int r = i / S::each, j = i % S::each;\n"
    "        const float w = S::rounds ? S::round(x.s[r][j]) : x.s[r][j];\n"
    "        x.g[r][j] = change(w, x.g[r][j], x.own, S::by_step ? j : r, S::rows_end(row + 8 * "
    "r),\n                           S::steps_end(n + 16 * j));\n    }\n}\n"
    "template <class S, class V, class F, class H, class G>\n"
    "TC_I void tc_flash_back_tile(tc_flash_back<S> &x, float *at, void *const *bufs, tc_place p, "
    "bool cuts,\n                             V values, F score, H seen, G change) {\n"
    "    const int row = p.m + tc_flash_thread<S>() / 16, lane = tc_flash_thread<S>() % 16;\n"
    "    const int end = S::end(p, cuts);\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        for (int c = 0; c < S::columns_0 / 16; c++) {\n            x.o0[r][c] = 0;\n"
    "        }\n"
    "        for (int c = 0; c < S::columns_1 / 16; c++) {\n            x.o1[r][c] = 0;\n"
    "        }\n"
    "        if (!S::by_step) {\n            tc_flash_own(x, values, p, r, row + 8 * r);\n"
    "        }\n"
    "    }\n"
    "    S::load_rows_0(at, bufs, p, p.m);\n"
    "    if constexpr (S::changes) {\n"
    "        S::load_rows_1(at + S::rows_1, bufs, p, p.m);\n    }\n"
    "    for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "        S::load_steps_0(at + S::steps_at, bufs, p, n);\n"
    "        S::load_steps_1(at + S::steps_1, bufs, p, n);\n        tc_copies_commit();\n"
    "        if (S::by_step) {\n"
    "#pragma unroll\n"
    "            for (int j = 0; j < S::each; j++) {\n"
    "                tc_flash_own(x, values, p, j, n + lane + 16 * j);\n            }\n        }\n"
    "        tc_copies_wait<0>();\n        __syncthreads();\n"
    "        tc_flash_pairs<S, S::width_0>(x.s, at, at + S::steps_at);\n"
    "        if (S::whole(p.m, n)) {\n"
    "            tc_flash_scores<S>(x.s, row, n + lane, seen);\n        } else {\n"
    "            tc_flash_scores<S>(x.s, row, n + lane, score);\n        }\n"
    "        tc_flash_weights<S>(x, n + lane);\n"
    "        if constexpr (S::weighs) {\n"
    "            tc_flash_tell<S>(x.s, at + S::pairs_at);\n"
    "            tc_flash_sums<S, S::columns_1>(x.o1, at + S::pairs_at, at + S::steps_1);\n"
    "            __syncwarp();\n        }\n"
    "        if constexpr (S::changes) {\n"
    "            tc_flash_pairs<S, S::width_1>(x.g, at + S::rows_1, at + S::steps_1);\n"
    "            tc_flash_changes<S>(x, row, n + lane, change);\n"
    "            tc_flash_tell<S>(x.g, at + S::pairs_at);\n"
    "            tc_flash_sums<S, S::columns_0>(x.o0, at + S::pairs_at, at + S::steps_at);\n"
    "        }\n"
    "        __syncthreads();\n    }\n}\n";

TCI_FN void tci_cuda_simt_attention_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_flash_copies);
    tci_str_add(out, tci_cuda_flash_loading);
    tci_str_add(out, tci_cuda_flash_products);
    tci_str_add(out, tci_cuda_flash_powers);
    tci_str_add(out, tci_cuda_flash_tile);
    tci_str_add(out, tci_cuda_flash_back);
}
/* ---- src/cuda/flash_attention.c ---- */
/* cuda/flash_attention.c - writes the CUDA source of fused attention and its gradients: for each
 * kernel a class of its numbers, products, cut and loads, and the frame around its slots.
 *
 * In: a loop with a chain (tci_loop.attention) and its slots. Out: text that instantiates the
 * device functions of cuda/wgmma_attention.c, or of cuda/simt_attention.c by threads, with the
 * class. All classes have the same names, so the forward pass and the gradients differ in numbers:
 * operand 0 of rows and steps is the one of the scores, operand 1 the one of the gradients of
 * weights, or, without rows, what the weights are multiplied with; `changes` and `weighs` say which
 * sums there are: o0 of score gradients and the steps of operand 0, o1 of weights and those of
 * operand 1.
 *
 * Tiles are assigned longest first where keys are cut off: to the blocks in order, then in reverse,
 * for balance. */

#include <string.h>

enum { TCI_CUDA_ATTENTION_NEAR = 32 << 20 }; /* bytes of keys and values in the last cache */

/* ---- the class: what both have ---- */

/* NAME_end: the last of n, where tiles of `tile` go beyond, as what is read for a row or step that
 * does not exist is that of the last one. */
static void tci_cuda_attention_end(tci_str *out, const char *name, int64_t n, int tile)
{
    tci_str_printf(out, "    TC_I int %s_end(int i) {\n        return ", name);
    if (n % tile == 0) {
        tci_str_add(out, "i;\n    }\n");
    } else {
        tci_str_printf(out, "i < %lld ? i : %lld;\n    }\n", (long long)n, (long long)n - 1);
    }
}

/* order: the number of the tile that is in place t, longest first, by as many heads as keep what
 * all tiles of one read near. Where queries are steps the first tiles of a head are the longest.
 */
static void tci_cuda_attention_order(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int64_t bytes = 2 * s->n * (s->k + x->in[1].k);
    long long tiles = (long long)s->tiles_m, all = s->tiles / tiles;
    long long heads = TCI_MIN(TCI_MAX(TCI_CUDA_ATTENTION_NEAR / bytes, 1), all);
    char last[24];
    snprintf(last, sizeof(last), "%lld - ", tiles - 1);
    tci_str_printf(out,
                   "    TC_I int order(int t) {\n"
                   "        const int first = t / %lld * %lld, in = t %% %lld;\n"
                   "        const int heads = %lld - first < %lld ? %lld - first : %lld;\n"
                   "        return (first + in %% heads) * %lld + %sin / heads;\n    }\n",
                   heads * tiles, heads, heads * tiles, all, heads, all, heads, tiles,
                   x->by_step ? "" : last);
}

/* seen: how many keys a query sees, and so all below it; steps_seen: of n keys whole steps up to
 * the last one that a query of the tile sees, one at least. */
static void tci_cuda_attention_seen(tci_str *out, const tci_attention_cut *cut, const tci_matrix *s)
{
    long long last = (long long)s->m - 1;
    tci_str_printf(out,
                   "    TC_I int seen(int row) { return %lld + %lld * row; }\n"
                   "    TC_I int steps_seen(tc_place p, int n) {\n"
                   "        const int most = seen(p.m + %d < %lld ? p.m + %d : %lld);\n"
                   "        const int steps = most > step ? (most + step - 1) / step : 1;\n"
                   "        return steps * step < n ? steps * step : n;\n    }\n",
                   (long long)cut->base + 1, (long long)cut->rows, s->rows - 1, last, s->rows - 1,
                   last);
}

/* first, end: the steps of a tile, one at least; whole: whether all pairs of 64 rows and a step are
 * seen; and the order of tiles. */
static void tci_cuda_attention_cut(tci_str *out, const tci_attention *x)
{
    if (!x->cut.is_cut) {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                         "    TC_I bool whole(int row, int step) { return true; }\n"
                         "    TC_I int order(int t) { return t; }\n");
        return;
    }
    tci_cuda_attention_seen(out, &x->cut, &x->in[0]);
    if (x->by_step) {
        tci_str_printf(out,
                       "    TC_I int first(tc_place p, bool cuts) {\n"
                       "        const int last = (n - 1) / step * step;\n"
                       "        const int query = %d * (p.m - %lld), at = query > 0 ? "
                       "query / step * step : 0;\n"
                       "        return !cuts ? 0 : at < last ? at : last;\n    }\n"
                       "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                       "    TC_I bool whole(int row, int at) { return row + 64 <= seen(at); }\n",
                       x->cut.rows != 0, (long long)x->cut.base);
    } else {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) {\n"
                         "        return cuts ? steps_seen(p, n) : n;\n    }\n"
                         "    TC_I bool whole(int row, int at) { return at + step <= seen(row); "
                         "}\n");
    }
    tci_cuda_attention_order(out, x);
}

/* Numbers that do not depend on who multiplies, in a class whose enum is open. */
static void tci_cuda_attention_numbers(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0], *o = &x->out[0];
    int columns[2] = {TCI_ATTENTION_ROUND, TCI_ATTENTION_ROUND};
    bool weighs = false;
    for (int i = 0; i < x->n_out; i++) {
        columns[tci_attention_taken(x, i)] = x->out[i].columns;
        weighs |= tci_attention_taken(x, i) == 1;
    }
    tci_str_printf(out,
                   "        changes = %d, weighs = %d, columns_0 = %d, columns_1 = %d,\n"
                   "        n = %lld, step = %d, tiles = %lld, queries = %lld, values = %d,\n"
                   "        online = %d, by_step = %d, rounds = %d, tells = %d,\n"
                   "        row_threads = %d, columns = %d, lanes = %d, staged_pitch = %d,\n",
                   x->n_in > 1, weighs, columns[0], columns[1], (long long)s->n, s->columns,
                   (long long)s->tiles, (long long)(x->by_step ? s->n : s->m), x->n_values,
                   x->is_online, x->by_step, x->rounds, x->tells, o->row_threads, o->columns,
                   o->lanes, (int)o->staged_pitch);
}

/* ---- the class on tensor cores ---- */

static int tci_cuda_attention_warps(const tci_attention *x)
{
    return 4 * x->in[0].consumers + 4;
}

/* The side that is loaded as operand 1 of the steps: online in parts of 64 steps, as the last
 * product reads it. */
static tci_matrix tci_cuda_attention_second(const tci_attention *x)
{
    tci_matrix second = x->is_online ? x->out[0] : x->in[1];
    second.n = x->is_online ? tci_attention_value_columns(x) : second.n;
    return second;
}

/* Of the steps of gradients all are loaded that a box has, zeros after the last one: a product
 * takes them. */
static void tci_cuda_attention_maps(const tci_attention *x, tci_cuda_skeleton *k)
{
    tci_matrix second = tci_cuda_attention_second(x);
    k->n_maps = 2 + x->n_in;
    for (int i = 0; i < 2; i++) {
        if (i < x->n_in) {
            k->maps[3 * i] = tci_cuda_wgmma_map(&x->in[i], 0);
        }
        k->maps[1 + i] = tci_cuda_wgmma_map(i ? &second : &x->in[0], 1);
        if (!x->is_online) {
            k->maps[1 + i].box[1] = x->in[i].columns;
        }
    }
}

/* Barriers of turns, if any are: to issue products, online, or to leave sums. */
static int tci_cuda_attention_turns(const tci_attention *x)
{
    return x->is_online ? x->in[0].consumers : 2 * tci_attention_leaves_in_turns(x);
}

static void tci_cuda_attention_unit_numbers(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int line = 2 * TCI_MATRIX_DEPTH_STEP, part = TCI_MATRIX_SUB * line;
    int step[2] = {(int)tci_attention_step_bytes(x, 0), (int)tci_attention_step_bytes(x, 1)};
    int both = x->is_online ? 0 : step[1]; /* in one slot of the ring */
    int rows = (int)tci_attention_rows_bytes(x), loaded = tci_cuda_wgmma_loaded(s, 0);
    long long steps_at = (long long)x->slots * rows;
    long long step_1 = (x->is_online ? x->rings : 1) * (long long)step[0];
    long long values_at = steps_at + x->rings * (long long)(step[0] + step[1]);
    long long staged_at = values_at + x->rings * tci_attention_values_bytes(x);
    long long barriers = staged_at + tci_attention_staged_bytes(x);
    int stages = x->slots + x->rings * (x->is_online ? 2 : 1);
    tci_str_printf(
        out,
        "        depth_0 = %lld, depth_1 = %lld,\n"
        "        consumers = %d, turns = %d, turn_barriers = %d, slots = %d, rings = %d, "
        "stages = %d,\n"
        "        rows_bytes = %d, rows_1 = %d, rows_slab = %d, rows_loaded = %d,\n"
        "        steps_at = %lld, step_bytes = %d, step_slab = %d, step_loaded = %d,\n"
        "        step_1 = %lld, step_bytes_1 = %d, taken_slab = %d, taken_part = %d,\n"
        "        values_at = %lld, staged_at = %lld, staged_bytes = %d, barriers = %lld, "
        "turns_at = %lld\n    };\n",
        (long long)s->k, (long long)x->in[1].k, s->consumers,
        x->is_online ? x->turns : tci_attention_leaves_in_turns(x), tci_cuda_attention_turns(x),
        x->slots, x->rings, stages, rows, s->rows * line * tci_attention_slabs(s->k),
        s->rows * line, loaded * (rows / s->rows), steps_at, step[0] + both, s->columns * line,
        x->is_online ? tci_cuda_wgmma_loaded(s, 1) * (step[0] / s->columns) : step[0] + both,
        step_1, step[1] + (both ? step[0] : 0), x->is_online ? part : s->columns * line,
        x->is_online ? part * tci_attention_slabs(x->in[1].k) : part, values_at, staged_at,
        tci_dtype_get((tc_dtype)x->out[0].staged)->bytes, barriers,
        barriers + 16 * stages + (x->is_online ? 8 : 0));
}

static void tci_cuda_attention_unit_products(tci_str *out, const tci_attention *x)
{
    const char *type = tci_cuda_wgmma_type(&x->in[0]);
    tci_str_printf(out,
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, high); "
                   "}\n"
                   "    TC_I unsigned halves(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n"
                   "    TC_I float low(unsigned two) { return tc_low_%s(two); }\n"
                   "    TC_I float high(unsigned two) { return tc_high_%s(two); }\n"
                   "    TC_I void multiply(float (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, 0, 0)(d, a, b, add);\n    }\n",
                   x->out[0].staged == TC_F16 ? "f16" : "bf16", type, type, type,
                   x->in[0].columns / 2, type, x->in[0].columns);
    for (int i = 0; i < x->n_out; i++) {
        tci_str_printf(out,
                       "    TC_I void multiply_%d(float (&d)[%d], const unsigned *a, "
                       "unsigned long long b, int add) {\n"
                       "        TC_MULTIPLY_HELD(%s, %d)(d, a, b, add);\n    }\n",
                       tci_attention_taken(x, i), x->out[i].columns / 2, type, x->out[i].columns);
    }
}

/* The class of the sums of last product i, for what leaves them. */
static void tci_cuda_attention_left(tci_str *out, const char *symbol, const tci_attention *x, int i)
{
    const tci_matrix *o = &x->out[i];
    tci_str_printf(out,
                   "struct %s_left_%d {\n    enum { columns = %d, row_threads = %d, "
                   "staged_pitch = %d, staged_bytes = %d };\n"
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n};\n",
                   symbol, tci_attention_taken(x, i), o->columns, o->row_threads,
                   (int)o->staged_pitch, tci_dtype_get((tc_dtype)o->staged)->bytes,
                   o->staged == TC_F16 ? "f16" : "bf16");
}

static void tci_cuda_attention_unit_loads(tci_str *out, const tci_attention *x)
{
    tci_matrix second = tci_cuda_attention_second(x);
    second.n = x->is_online ? x->in[1].k : second.n;
    tci_cuda_wgmma_loads(out, "load_rows_0", &x->in[0], 0);
    if (x->n_in > 1) {
        tci_cuda_wgmma_loads(out, "load_rows_1", &x->in[1], 0);
    }
    tci_cuda_wgmma_loads(out, "load_steps_0", &x->in[0], 1);
    tci_cuda_wgmma_loads(out, "load_steps_1", &second, 1);
}

/* ---- the class by threads ---- */

static void tci_cuda_attention_thread_numbers(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int width[2] = {(int)tci_attention_width(x, 0), (int)tci_attention_width(x, 1)};
    int rows_1 = s->rows * tci_attention_pitch(width[0]);
    int steps_at = rows_1 + (x->n_in > 1 ? s->rows * tci_attention_pitch(width[1]) : 0);
    int steps_1 = steps_at + s->columns * tci_attention_pitch(width[0]);
    int pairs_at = steps_1 + s->columns * tci_attention_pitch(width[1]);
    tci_str_printf(out,
                   "        threads = %d, points = %d, each = %d, width_0 = %d, width_1 = %d,\n"
                   "        rows_1 = %d, steps_at = %d, steps_1 = %d, pairs_at = %d, "
                   "words_at = %d\n    };\n",
                   x->threads, s->rows / TCI_FLASH_GROUPS, s->columns / TCI_FLASH_LANES, width[0],
                   width[1], rows_1, steps_at, steps_1, pairs_at,
                   pairs_at + s->rows * tci_attention_pitch(s->columns));
}

static void tci_cuda_attention_dtype(tci_str *out, const tci_matrix *x)
{
    bool is_f16 = x->dtype == TC_F16;
    if (x->dtype == TC_F32) {
        tci_str_add(out, "    TC_I float round(float x) { return x; }\n"
                         "    TC_I float wide(unsigned short x) { return x; }\n");
    } else {
        tci_str_printf(out,
                       "    TC_I float wide(unsigned short x) {\n        return %s;\n    }\n"
                       "    TC_I float round(float x) {\n        return %s;\n    }\n",
                       is_f16 ? "tc_widen_f32_f16(x)" : "__int_as_float((int)((unsigned)x << 16))",
                       is_f16 ? "tc_widen_f32_f16(tc_narrow_f32_f16(x))" : "tc_round_bf16(x)");
    }
}

/* True if groups of four of its elements start at a multiple of four. */
static bool tci_cuda_attention_is_whole(const tci_matrix *x, const tci_matrix_side *side)
{
    bool whole = side->summed == 1 && x->k % 4 == 0 && side->own % 4 == 0 && side->offset % 4 == 0;
    for (int i = 0; i < x->n_batch; i++) {
        whole = whole && side->batch_pitch[i] % 4 == 0;
    }
    return whole;
}

/* The function that loads rows (which == 0) or steps of operand i from row `first` on; they are
 * `own` apart, their elements `summed`. Of row statistics no more of operand 1 is there than keys
 * have. */
static void tci_cuda_attention_thread_load(tci_str *out, const char *symbol, const tci_attention *x,
                                           int which, int i)
{
    tci_matrix in = x->in[i];
    const tci_matrix_side *side = &in.side[which];
    in.k = i == 1 && x->only_rows ? tci_attention_value_columns(x) : in.k;
    tci_str_printf(out,
                   "    TC_I void load_%s_%d(float *to, void *const *bufs, tc_place p, int first) "
                   "{\n"
                   "        tc_flash_load<%s_shape, %d, %lld, %d, %d, %d>(to, (const %s *)bufs[%d] "
                   "+ %lld",
                   which ? "steps" : "rows", i, symbol, which ? in.columns : in.rows,
                   (long long)in.k, (int)tci_attention_width(x, i),
                   tci_cuda_attention_is_whole(&in, side), side->own == 1 && side->summed != 1,
                   in.dtype == TC_F32 ? "float" : "unsigned short", side->operand,
                   (long long)side->offset);
    for (int b = 0; b < in.n_batch; b++) {
        if (side->batch_pitch[b]) {
            tci_str_printf(out, " + p.b%d * %lldll", b, (long long)side->batch_pitch[b]);
        }
    }
    tci_str_printf(out, " + first * %lldll,\n            %lld, %lld, %lld - first);\n    }\n",
                   (long long)side->own, (long long)side->own, (long long)side->summed,
                   (long long)(which ? in.n : in.m));
}

static void tci_cuda_attention_thread_loads(tci_str *out, const char *symbol,
                                            const tci_attention *x)
{
    for (int i = 0; i < 2; i++) {
        if (i < x->n_in) {
            tci_cuda_attention_thread_load(out, symbol, x, 0, i);
        }
        tci_cuda_attention_thread_load(out, symbol, x, 1, i);
    }
}

/* ---- the kernel ---- */

static void tci_cuda_attention_class(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    tci_str_printf(out, "struct %s_shape {\n    enum {\n", symbol);
    tci_cuda_attention_numbers(out, x);
    if (x->threads) {
        tci_cuda_attention_thread_numbers(out, x);
        tci_cuda_attention_dtype(out, s);
        tci_cuda_attention_thread_loads(out, symbol, x);
    } else {
        tci_cuda_attention_unit_numbers(out, x);
        tci_cuda_attention_unit_products(out, x);
        tci_cuda_attention_unit_loads(out, x);
    }
    tci_cuda_attention_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    tci_cuda_wgmma_place(out, &x->out[0]);
    tci_str_add(out, "};\n");
    for (int i = 0; i < x->n_out && !x->threads && !x->is_online; i++) {
        tci_cuda_attention_left(out, symbol, x, i);
    }
}

/* The parts that the warps play. 168 registers a thread of twelve warps, and what the loading warps
 * do not need goes to the others; of eight warps each has all that it can. */
static void tci_cuda_attention_split(tci_str *out, const char *symbol, const tci_attention *x)
{
    int loader = 4 * x->in[0].consumers;
    bool moves = x->in[0].consumers > 1;
    tci_str_printf(out, "    if (warp >= %d) {\n", loader);
    if (moves) {
        tci_str_printf(out, "        tc_registers_fewer<%d>();\n", x->is_online ? 24 : 40);
    }
    tci_str_printf(out,
                   "        if (warp == %d && tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_%s_load<%s_shape>(at, args.maps%s);\n        }\n",
                   loader, symbol, x->is_online ? "online" : "backward", symbol,
                   x->is_online ? "" : ", cuts");
    if (x->by_step) {
        tci_str_printf(out,
                       "        if (warp == %d) {\n"
                       "            tc_backward_tell<%s_shape>(at, values, cuts);\n        }\n",
                       loader + 1, symbol);
    }
    tci_str_add(out, "        return;\n    }\n");
    if (moves) {
        tci_str_printf(out, "    tc_registers_more<%d>();\n", x->is_online ? 240 : 232);
    }
    tci_str_add(out, "    int ring = 0;\n    unsigned parity = 0;\n");
    tci_str_add(out, x->is_online ? "    unsigned turn = 0, own = warp < 4;\n" : "");
}

TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words)
{
    const tci_attention *x = l->attention;
    int threads = x->threads ? x->threads : TCI_MATRIX_WARP * tci_cuda_attention_warps(x);
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_attention_shared_bytes(x);
    k.block_x = x->out[0].row_threads;
    k.block_y = threads / x->out[0].row_threads;
    if (!x->threads) {
        tci_cuda_attention_maps(x, &k);
    }
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_attention_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, (int)k.n_maps, n_words, threads / TCI_MATRIX_WARP,
                           x->threads ? x->blocks : 1);
    if (x->threads) {
        tci_str_add(out, "    TC_SHARED;\n    float *const at = (float *)tc_shared;\n");
    } else {
        tci_str_printf(out,
                       "    TC_SHARED;\n"
                       "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                       "    tc_attention_begin<%s_shape>(at);\n"
                       "    const int warp = tc_warp<%s_shape>();\n",
                       symbol, symbol);
    }
    if (x->is_online && !x->threads) {
        tci_cuda_attention_split(out, symbol, x);
    }
    tci_cuda_skeleton_args(out);
}

/* The batch of p as axes. */
static void tci_cuda_attention_batch(tci_str *out, const tci_matrix *s)
{
    for (int i = 0; i < s->n_batch; i++) {
        tci_str_printf(out, "    const tc_i64 at_%d = p.b%d;\n", s->batch_axis[i], i);
    }
}

/* The loop over tiles, up to what the slots of pairs need. All warps know whether steps are left
 * out: online it turns out later. */
static void tci_cuda_attention_tiles(tci_str *out, const char *symbol, const tci_attention *x)
{
    if (!x->is_online) {
        tci_str_printf(out, "    const bool cuts = %s;\n",
                       x->cut.is_cut ? "off == -__builtin_inff()" : "false");
    }
    if (!x->is_online && !x->threads) { /* loaders evaluate the values of queries */
        tci_cuda_attention_split(out, symbol, x);
    }
    tci_str_printf(out,
                   "    for (int i = 0, t; (t = tc_attention_next(i)) < %s_shape::tiles; i++) {\n"
                   "    const tc_place p = %s_shape::place(%s_shape::order(t));\n",
                   symbol, symbol, symbol);
    tci_cuda_attention_batch(out, &x->in[0]);
}

/* ---- its slots ---- */

/* The slot that is block i. */
static int tci_cuda_attention_slot(const tci_attention *x, int i)
{
    int slot = 0;
    for (int n = tci_attention_has_slot(x, 0); n <= i; n += tci_attention_has_slot(x, slot)) {
        slot++;
    }
    return slot;
}

/* Of a pair of a row and a step. */
static void tci_cuda_attention_open_pair(tci_str *out, const tci_attention *x, int slot)
{
    const tci_matrix *s = &x->in[0];
    if (slot == TCI_ATTENTION_SLOT_CHANGE) {
        tci_str_add(out, "    const auto change = [&](float weight, float value, const auto &own, "
                         "int q, int row, int step) {\n"
                         "    float all[] = {weight, value");
        for (int i = 2; i < x->n_values; i++) {
            tci_str_printf(out, ", own[%d][q]", i);
        }
        tci_str_add(out, "};\n    void *given = all;\n");
    } else {
        tci_str_printf(out,
                       "    const auto score_%d = [&](float value, int row, int step) {\n"
                       "    void *given = &value;\n",
                       slot - TCI_ATTENTION_SLOT_SCORE);
    }
    tci_str_printf(out, "    const tc_i64 at_%d = row, at_%d = step;\n", s->m_axis, s->n_axis);
}

TCI_FN void tci_cuda_attention_open(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_attention *x = l->attention;
    const tci_matrix *s = &x->in[0], *o = &x->out[1];
    int slot = tci_cuda_attention_slot(x, i);
    switch (slot) {
    case TCI_ATTENTION_SLOT_VALUES:
        tci_str_add(out, "    const auto values = [&](float *own, tc_place p, int query) {\n"
                         "    void *given = own;\n");
        tci_cuda_attention_batch(out, s);
        tci_str_printf(out, "    const tc_i64 at_%d = query;\n",
                       x->by_step ? s->n_axis : s->m_axis);
        return;
    case TCI_ATTENTION_SLOT_OFF:
        tci_str_add(out, "    float off;\n    {\n    void *given = &off;\n");
        return;
    case TCI_ATTENTION_SLOT_ROWS:
        tci_str_printf(out,
                       "    const auto rows_1 = [&](int row, void *given) {\n"
                       "    const tc_i64 at_%d = row, at_%d = 0;\n",
                       o->m_axis, o->n_axis);
        return;
    case TCI_ATTENTION_SLOT_SCORE: tci_cuda_attention_tiles(out, symbol, x); break;
    default: break;
    }
    tci_cuda_attention_open_pair(out, x, slot);
}

/* A warp's rows of the sums that are left, up to what takes them. */
static void tci_cuda_attention_rows(tci_str *out, const char *symbol, const tci_attention *x, int i)
{
    const tci_matrix *o = &x->out[i];
    int groups = TCI_MATRIX_WARP / o->row_threads; /* of rows that a warp is at */
    if (x->threads) {
        int rows = o->rows / (x->threads / TCI_MATRIX_WARP);
        tci_str_printf(out,
                       "    for (int row = threadIdx.y / %d * %d + threadIdx.y %% %d * %d, end = "
                       "threadIdx.y / %d * %d + %d; row < end; row += %d) {\n"
                       "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                       "    void *given = at + row * %d;\n",
                       groups, rows, groups, o->group_rows, groups, rows, rows,
                       groups * o->group_rows, (long long)o->m, (int)o->staged_pitch);
        return;
    }
    tci_str_printf(out,
                   "    for (int row = rows + threadIdx.y %% %d * %d; row < rows + 16; "
                   "row += %d) {\n"
                   "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                   "    void *given = tc_shared + (at - tc_shared_at(tc_shared)) + "
                   "%s_shape::staged_at + %s * %d;\n",
                   groups, o->group_rows, groups * o->group_rows, (long long)o->m, symbol,
                   tci_attention_leaves_in_turns(x) ? "row % 64" : "row",
                   (int)o->staged_pitch * tci_dtype_get((tc_dtype)o->staged)->bytes);
}

/* Stores the sums of last product i. */
static void tci_cuda_attention_leave(tci_str *out, const char *symbol, const tci_attention *x,
                                     int i)
{
    const tci_matrix *o = &x->out[i];
    int taken = tci_attention_taken(x, i), bytes = tci_dtype_get((tc_dtype)o->staged)->bytes;
    if (x->threads) {
        tci_str_printf(out,
                       "    tc_flash_leave<%s_shape, %s_shape::columns_%d>(x.o%d, at, "
                       "%s_shape::staged_pitch);\n    __syncthreads();\n",
                       symbol, symbol, taken, taken, symbol);
        return;
    }
    tci_str_printf(out,
                   "    tc_matrix_leave<%s_left_%d>(x.o%d, at + %s_shape::staged_at + "
                   "warp / 4 * %d);\n    __syncwarp();\n",
                   symbol, taken, taken, symbol,
                   tci_attention_leaves_in_turns(x)
                       ? 0
                       : TCI_MATRIX_SUB * (int)o->staged_pitch * bytes);
}

/* The call of a tile's main loop; on tensor cores that of an online chain leaves its sums too. */
static void tci_cuda_attention_tile(tci_str *out, const char *symbol, const tci_attention *x)
{
    if (x->is_online && !x->threads) {
        tci_str_printf(out,
                       "    tc_online_tile<%s_shape>(at, warp / 4, ring, parity, turn, own, i, p, "
                       "score_0, score_%d);\n",
                       symbol, x->cut.is_cut);
        return;
    }
    const char *of = !x->threads ? "backward" : x->is_online ? "flash" : "flash_back";
    tci_str_printf(out, "    tc_%s<%s_shape> x;\n    tc_%s_tile<%s_shape>(x, at, %s, p, ", of,
                   symbol, of, symbol, x->threads ? "bufs" : "warp / 4, ring, parity, i");
    tci_str_printf(out, "%sscore_0, score_%d%s);\n", x->is_online ? "" : "cuts, values, ",
                   x->cut.is_cut,
                   x->is_online  ? ""
                   : x->n_in > 1 ? ", change"
                                 : ", 0");
}

/* The main loop of a tile, and the sums up to the epilogue slot. */
static void tci_cuda_attention_run(tci_str *out, const char *symbol, const tci_attention *x)
{
    tci_cuda_attention_tile(out, symbol, x);
    if (!x->threads) {
        tci_str_add(out, "    const int rows = 64 * (warp / 4) + 16 * (warp & 3);\n");
    }
    if (!x->threads && tci_attention_leaves_in_turns(x)) {
        tci_str_printf(out,
                       "    tc_barrier_wait(tc_attention_turn<%s_shape>(at, warp / 4), "
                       "(i + 1 + warp / 4) %% 2);\n",
                       symbol);
    }
    for (int i = x->n_out - 1; i >= 0; i--) {
        if (x->threads || !x->is_online) {
            tci_cuda_attention_leave(out, symbol, x, i);
        }
        tci_cuda_attention_rows(out, symbol, x, i);
        if (i == 1) {
            tci_str_printf(out, "    rows_1(p.m + row, given);\n    }\n    %s();\n",
                           x->threads ? "__syncthreads" : "__syncwarp");
        }
    }
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", x->out[0].m_axis,
                   x->out[0].n_axis);
}

TCI_FN void tci_cuda_attention_close(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_attention *x = l->attention;
    switch (tci_cuda_attention_slot(x, i)) {
    case TCI_ATTENTION_SLOT_SCORE:
    case TCI_ATTENTION_SLOT_SEEN: tci_str_add(out, "    return value;\n    };\n"); break;
    case TCI_ATTENTION_SLOT_CHANGE: tci_str_add(out, "    return all[0];\n    };\n"); break;
    case TCI_ATTENTION_SLOT_OFF: tci_str_add(out, "    }\n"); break;
    default: tci_str_add(out, "    };\n"); break;
    }
    if (i + 1 == l->n_scores) {
        tci_cuda_attention_run(out, symbol, x);
    }
}

TCI_FN void tci_cuda_attention_tail(tci_str *out, const char *symbol, const tci_loop *l)
{
    const tci_attention *x = l->attention;
    tci_str_printf(out, "    }\n    %s();\n", x->threads ? "__syncthreads" : "__syncwarp");
    if (!x->threads && tci_attention_leaves_in_turns(x)) {
        tci_str_printf(out,
                       "    tc_warp_arrive<%s_shape>(tc_attention_turn<%s_shape>(at, "
                       "1 - warp / 4));\n",
                       symbol, symbol);
    }
    tci_str_add(out, "    }\n}\n");
}
/* ---- src/cuda/emit_custom_op.c ---- */
/* cuda/emit_custom_op.c - generates the CUDA source of a custom op: the user's source, and a kernel
 * that calls it.
 *
 * In: a kernel that calls a custom op given as CUDA source. Out: a separate translation unit, so
 * that names never collide. Error messages of NVRTC name the op and the line of the text. Known
 * sizes are numbers in the kernel; others are arguments of its launch. */
/* ---- src/cuda/emit_custom_op.h ---- */
/* cuda/emit_custom_op.h - declares the code generator for custom ops given as CUDA source: it emits
 * the user's source and a wrapper kernel that calls it. */
#ifndef TCI_CUDA_EMIT_CUSTOM_OP_H
#define TCI_CUDA_EMIT_CUSTOM_OP_H

/* ---- src/cuda/dialect.h ---- */
/* cuda/dialect.h - declares the CUDA C++ target of the source printer (emit/dialect.h): how types,
 * primitives and memory accesses are written. */
#ifndef TCI_CUDA_DIALECT_H
#define TCI_CUDA_DIALECT_H


enum { TCI_CUDA_MAX_THREADS = 512, TCI_CUDA_THREAD_BYTES = 16 };

/* vector_bytes: of one thread's lanes. */
TCI_FN const tc_dialect *tci_cuda_words(void); /* what backends hand in */
TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes);

#endif

/* ---- src/cuda/emit_custom_op.h, continued ---- */
/* The hook `call` of the dialect (emit/dialect.h). */
TCI_FN void tci_cuda_custom(tci_dialect *d, tci_str *out, const tci_kernel *k, const tci_launch *l,
                            const char *symbol);

#endif

/* ---- src/cuda/emit_custom_op.c, continued ---- */
static const char tci_cuda_custom_types[] =
    "struct tc_custom_array {\n    void *data;\n    tc_dtype dtype;\n    int rank;\n"
    "    const long long *sizes;\n    long long n;\n};\n";

static void tci_cuda_custom_dtypes(tci_str *out)
{
    tci_str_add(out, "enum tc_dtype {\n");
#define TCI_ROW(id, name, ctype, bytes, kind, compute)                                             \
    tci_str_printf(out, "    %s = %d,\n", #id, (int)id);
    TCI_DTYPE_ROWS(TCI_ROW)
#undef TCI_ROW
    tci_str_add(out, "};\n");
}

static void tci_cuda_custom_number(tci_str *out, const tci_launch *l, tci_dim d)
{
    int i = 0;
    while (i < l->n_dims && l->dims[i] != d) {
        i++;
    }
    if (i < l->n_dims) {
        tci_str_printf(out, "args.lits[%d]", i);
    } else {
        tci_str_printf(out, "%lld", (long long)tci_dim_known(d));
    }
}

static void tci_cuda_custom_sizes(tci_str *out, const tci_launch *l, const tc_custom_array *a,
                                  int i)
{
    tci_str_printf(out, "    const long long sizes%d[] = {", i);
    for (int d = 0; d < a->rank; d++) {
        tci_cuda_custom_number(out, l, tci_dim_list(a->sizes)[d]);
        tci_str_add(out, ", ");
    }
    tci_str_add(out, "0};\n"); /* an array has an element */
}

static void tci_cuda_custom_array(tci_str *out, const tci_launch *l, const tc_custom_array *a,
                                  int i, int operand)
{
    tci_str_printf(out, "{args.bufs[%d], (tc_dtype)%d, %d, sizes%d, ", operand, (int)a->dtype,
                   a->rank, i);
    tci_cuda_custom_number(out, l, (tci_dim)a->n);
    tci_str_add(out, "}");
}

/* Results that are the same value are computed one after the other. */
static void tci_cuda_custom_calls(tci_str *out, const tci_kernel *k, const tci_launch *l)
{
    const tci_custom_call *call = k->call;
    int n = call->n_inputs;
    for (int i = 0; i <= n; i++) {
        tci_cuda_custom_sizes(out, l, &call->arrays[i], i);
    }
    tci_str_add(out, "    const tc_custom_array in[] = {\n");
    for (int i = 0; i < n; i++) {
        tci_str_add(out, "        ");
        tci_cuda_custom_array(out, l, &call->arrays[i], i, i);
        tci_str_add(out, ",\n");
    }
    tci_str_add(out, "    };\n");
    for (int o = n; o < k->n_operands; o++) {
        tci_str_printf(out, "    tc_custom_array out%d = ", o - n);
        tci_cuda_custom_array(out, l, &call->arrays[n], n, o);
        tci_str_printf(out, ";\n%s    run(in, %d, &out%d);\n",
                       o > n ? "    __syncthreads();\n" : "", n, o - n);
    }
}

TCI_FN void tci_cuda_custom(tci_dialect *d, tci_str *out, const tci_kernel *k, const tci_launch *l,
                            const char *symbol)
{
    const tc_custom_op *op = &k->call->op->op;
    (void)d;
    tci_cuda_custom_dtypes(out);
    tci_str_add(out, tci_cuda_custom_types);
    tci_str_add(out, "#line 1 \"");
    for (const char *c = op->name; *c; c++) { /* as a file's name */
        tci_str_printf(out, "%c", *c == '"' || *c == '\\' || *c == '\n' ? '_' : *c);
    }
    tci_str_printf(out, "\"\n%s\n#line 1 \"tc.cu\"\n", op->cuda);
    tci_str_printf(out,
                   "struct %s_args { void *bufs[%d]; long long lits[%d]; long long *fault; };\n"
                   "extern \"C\" __global__ void __launch_bounds__(%d) %s(const %s_args args)\n{\n",
                   symbol, k->n_operands, TCI_MAX(l->n_dims, 1), tci_custom_threads(k->call->op),
                   symbol, symbol);
    tci_cuda_custom_calls(out, k, l);
    tci_str_add(out, "}\n");
}
/* ---- src/cuda/mma_sync.c ---- */
/* cuda/mma_sync.c - writes the CUDA source of the GEMM on mma.sync, the warp-level tensor-core
 * instruction (sm_75 and later).
 *
 * In: the statements for warp-level tensor-core instructions (loop/intrinsics.h). Out: their text,
 * in two layers: functions of one PTX instruction each, which tests that run the text without a GPU
 * define for themselves (TC_NO_PTX), and the statements built from them.
 *
 * Layouts of the PTX ISA, lane = g * 4 + t: an operand of 16 rows of 32 bytes is four words, word
 * j number t + 4 (j / 2) of row g + 8 (j % 2). That is the result of ldmatrix.x4 for four matrices
 * of 8 rows of 16 bytes, where lanes 8 j .. 8 j + 7 give the rows of matrix j; it is the first
 * operand of m16n8k16 (k8 of f32, k32 of 8-bit integers). A second operand is two of 8 columns,
 * words 0, 1 and words 2, 3, in adjacent registers: word j is number t + 4 (j % 2) of row g + 8 (j
 * / 2). The results are accumulators 0 .. 3 and 4 .. 7: rows g, g, g + 8, g + 8, columns 2 t, 2 t +
 * 1, twice. A word of f64 is one element, number 2 t + j / 2 of the row in place of number t + 4 (j
 * / 2): both operands use that order, so that two are contiguous in memory. Smaller instructions
 * take one part of these after the other: sm_75 multiplies eight f16 of the depth at once, words 0,
 * 1 by the first of a second operand's two, then 2, 3 by the other, and 8 rows of 16 bytes; sm_80 8
 * rows of four f64. */
/* ---- src/cuda/mma_sync.h ---- */
/* cuda/mma_sync.h - declares the CUDA code generator of the GEMM on mma.sync, the warp-level
 * tensor-core instruction. */
#ifndef TCI_CUDA_MMA_SYNC_H
#define TCI_CUDA_MMA_SYNC_H


/* The text of an access: see tci_cuda_rows in cuda/dialect.c. */
typedef struct tci_cuda_row {
    uint8_t mem;
    const char *name, *text;
} tci_cuda_row;

/* The row of a statement of mma.sync; NULL: it is none. */
TCI_FN const tci_cuda_row *tci_cuda_warps_row(tci_mem m);
/* Definitions that the rows share. */
TCI_FN void tci_cuda_warps_prelude(tci_str *out);

#endif

/* ---- src/cuda/mma_sync.c, continued ---- */
static const char tci_cuda_warps_text[] =
    "#ifndef TC_NO_PTX\n"
    "TC_I unsigned tc_shared_of(const void *p) {\n"
    "    return (unsigned)__cvta_generic_to_shared(p);\n"
    "}\n"
    "TC_I void tc_squares(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n"
    "}\n"
    "TC_I void tc_squares_turned(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n"
    "}\n"
    "#define TC_MULTIPLY(name, C, A, B, sum, factor, shape) \\\n"
    "TC_I void name(C *c, const A *a, B b, B d) { \\\n"
    "    asm(\"mma.sync.aligned.\" shape \" {%0, %1, %2, %3}, {%4, %5, %6, %7}, \" \\\n"
    "        \"{%8, %9}, {%0, %1, %2, %3};\" \\\n"
    "        : \"+\" sum(c[0]), \"+\" sum(c[1]), \"+\" sum(c[2]), \"+\" sum(c[3]) \\\n"
    "        : factor(a[0]), factor(a[1]), factor(a[2]), factor(a[3]), factor(b), factor(d)); \\\n"
    "}\n"
    "#define TC_MULTIPLY_8(name, C, A, B, sum, factor, shape) \\\n"
    "TC_I void name(C *c, A a, B b) { \\\n"
    "    asm(\"mma.sync.aligned.\" shape \" {%0, %1}, {%2}, {%3}, {%0, %1};\" \\\n"
    "        : \"+\" sum(c[0]), \"+\" sum(c[1]) : factor(a), factor(b)); \\\n"
    "}\n"
    "#define TC_MULTIPLY_BYTES(each, name, shape) \\\n"
    "each(name, int, int, int, \"r\", \"r\", shape \".row.col.s32.s8.s8.s32\") \\\n"
    "each(name, int, int, unsigned, \"r\", \"r\", shape \".row.col.s32.s8.u8.s32\") \\\n"
    "each(name, int, unsigned, int, \"r\", \"r\", shape \".row.col.s32.u8.s8.s32\") \\\n"
    "each(name, int, unsigned, unsigned, \"r\", \"r\", shape \".row.col.s32.u8.u8.s32\")\n"
    "#define TC_MULTIPLY_DOUBLES(each, name, shape) \\\n"
    "each(name, double, double, double, \"d\", \"d\", shape \".row.col.f64.f64.f64.f64\")\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "#define TC_MULTIPLY_WORDS(name, shape) \\\n"
    "TC_MULTIPLY(name, float, unsigned, unsigned, \"f\", \"r\", shape)\n"
    "TC_MULTIPLY_WORDS(tc_multiply_f16, \"m16n8k16.row.col.f32.f16.f16.f32\")\n"
    "TC_MULTIPLY_WORDS(tc_multiply_bf16, \"m16n8k16.row.col.f32.bf16.bf16.f32\")\n"
    "TC_MULTIPLY_WORDS(tc_multiply_f32, \"m16n8k8.row.col.f32.tf32.tf32.f32\")\n"
    "TC_MULTIPLY_BYTES(TC_MULTIPLY, tc_multiply_i8, \"m16n8k32\")\n"
    "TC_I unsigned tc_tf32(unsigned x) {\n"
    "    unsigned r;\n"
    "    asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(__int_as_float((int)x)));\n"
    "    return r;\n"
    "}\n"
    "#else\n"
    "TC_I void tc_multiply_8(float *c, unsigned a, unsigned e, unsigned b) {\n"
    "    asm(\"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, \"\n"
    "        \"{%6}, {%0, %1, %2, %3};\"\n"
    "        : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
    "        : \"r\"(a), \"r\"(e), \"r\"(b));\n"
    "}\n"
    "TC_I void tc_multiply_f16(float *c, const unsigned *a, unsigned b, unsigned d) {\n"
    "    tc_multiply_8(c, a[0], a[1], b);\n"
    "    tc_multiply_8(c, a[2], a[3], d);\n"
    "}\n"
    "TC_MULTIPLY_BYTES(TC_MULTIPLY_8, tc_multiply_8, \"m8n8k16\")\n"
    "template <class A, class B> TC_I void tc_multiply_i8(int *c, const A *a, B b, B d) {\n"
    "    tc_multiply_8(c, a[0], b);\n"
    "    tc_multiply_8(c + 2, a[1], b);\n"
    "    tc_multiply_8(c, a[2], d);\n"
    "    tc_multiply_8(c + 2, a[3], d);\n"
    "}\n"
    "#endif\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "TC_MULTIPLY_DOUBLES(TC_MULTIPLY, tc_multiply_f64, \"m16n8k8\")\n"
    "#elif __CUDA_ARCH__ >= 800\n"
    "TC_MULTIPLY_DOUBLES(TC_MULTIPLY_8, tc_multiply_8, \"m8n8k4\")\n"
    "TC_I void tc_multiply_f64(double *c, const double *a, double b, double d) {\n"
    "    tc_multiply_8(c, a[0], b);\n"
    "    tc_multiply_8(c + 2, a[1], b);\n"
    "    tc_multiply_8(c, a[2], d);\n"
    "    tc_multiply_8(c + 2, a[3], d);\n"
    "}\n"
    "#endif\n"
    "#endif\n";

/* A warp's factors from a panel. Transposed bytes: a square of halves is of two columns: each
 * thread is given two neighbouring rows of them, and another one the two after them: picked apart
 * they are four rows of each column. Which rows a square has differs between threads, so that its
 * eight are in different banks. */
static const char tci_cuda_take_text[] =
    "#define TC_LANE const int lane = (int)threadIdx.x & 31\n"
    "template <class W, class S> TC_I void tc_rows(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares((unsigned *)w, p + (lane & 15) * pitch + lane / 16 * (16 / (int)sizeof(S)));\n"
    "}\n"
    "template <class W, class S> TC_I void tc_columns(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    p += (lane / 16 * 8 + (lane & 7)) * pitch;\n"
    "    tc_squares((unsigned *)w, p + lane / 8 % 2 * (16 / (int)sizeof(S)));\n"
    "}\n"
    "TC_I void tc_rows_turned(unsigned *w, const unsigned short *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares_turned(w, p + (lane / 16 * 8 + (lane & 7)) * pitch + (lane & 8));\n"
    "}\n"
    "TC_I void tc_columns_turned(unsigned *w, const unsigned short *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares_turned(w, p + (lane & 15) * pitch + lane / 16 * 8);\n"
    "}\n"
    "TC_I void tc_rows_turned(unsigned *w, const float *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = *(const tc_two *)(p + (lane % 4 + i / 2 * 4) * pitch + lane / 4 + i % 2 * 8);\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns_turned(unsigned *w, const float *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = *(const tc_two *)(p + (lane % 4 + i % 2 * 4) * pitch + lane / 4 + i / 2 * 8);\n"
    "    }\n"
    "}\n"
    "template <class W, class S> TC_I void tc_rows_turned(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    const int group = lane / 2 & 3, square = lane / 8;\n"
    "    const int row = square / 2 * 16 + group * 4 + ((square ^ group / 2) & 1) * 2 + lane % 2;\n"
    "    const unsigned even = lane & 2 ? 0x2064 : 0x6420;\n"
    "    unsigned x[4];\n"
    "    tc_squares_turned(x, p + row * pitch);\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = (W)__byte_perm(x[i / 2 * 2], x[i / 2 * 2 + 1], i % 2 ? even + 0x1111 : even);\n"
    "    }\n"
    "}\n"
    "template <class W, class S> TC_I void tc_columns_turned(W *w, const S *p, tc_i64 pitch) {\n"
    "    tc_rows_turned(w, p, pitch);\n"
    "    const W x = w[1];\n"
    "    w[1] = w[2];\n"
    "    w[2] = x;\n"
    "}\n"
    "typedef tc_pack<double, 2> tc_doubles;\n"
    "TC_I tc_doubles tc_doubles_at(const double *p, tc_i64 row, tc_i64 pitch, int own) {\n"
    "    return *(const tc_doubles *)(p + row * pitch + 2 * own);\n"
    "}\n"
    "TC_I void tc_rows(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane / 4 + i % 2 * 8, pitch, lane % 4).e[i / 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane / 4 + i / 2 * 8, pitch, lane % 4).e[i % 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_rows_turned(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane % 4 * 2 + i / 2, pitch, lane / 4).e[i % 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns_turned(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane % 4 * 2 + i % 2, pitch, lane / 4).e[i / 2];\n"
    "    }\n"
    "}\n";

TCI_FN void tci_cuda_warps_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_warps_text);
    tci_str_add(out, tci_cuda_take_text);
}

/* Words are stored through a pack of them, as they may be anything's; f32 is rounded where it is
 * stored, once for all warps that take it. */
#define TCI_CUDA_SIXTEEN "tc_pack<tc_two, 4>"
#define TCI_CUDA_TAKE(how)                                                                         \
    "TC_I $T $n(const $S *p, tc_i64 pitch) {\n    $T r;\n    " how "(r.v, p, pitch);\n"            \
    "    return r;\n}\n"
static const tci_cuda_row tci_cuda_warps_rows[] = {
    {TCI_MEM_WORDS, "words",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const " TCI_CUDA_SIXTEEN " w = *(const " TCI_CUDA_SIXTEEN " *)p;\n"
     "    TC_LANES(r) {\n        r.v[i] = w.e[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_WORDS_IF, "words_if",
     "TC_I $T $n(const $S *p, bool m) {\n    $T r;\n    " TCI_CUDA_SIXTEEN " w = {};\n"
     "    if (m) {\n        w = *(const " TCI_CUDA_SIXTEEN " *)p;\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = w.e[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE_WORDS, "store_words",
     "TC_I void $n($S *p, $T x) {\n    " TCI_CUDA_SIXTEEN " w;\n    TC_LANES(x) {\n"
     "        w.e[i] = $U(x.v[i]);\n    }\n    *(" TCI_CUDA_SIXTEEN " *)p = w;\n}\n"},
    {TCI_MEM_STORE_UNIT, "store_unit", "TC_I void $n($S *p, $E x) {\n    $W(p, $X);\n}\n"},
    {TCI_MEM_UNIT_ROWS, "unit_rows", TCI_CUDA_TAKE("tc_rows")},
    {TCI_MEM_UNIT_COLUMNS, "unit_columns", TCI_CUDA_TAKE("tc_columns")},
    {TCI_MEM_UNIT_ROWS_TURNED, "unit_rows_turned", TCI_CUDA_TAKE("tc_rows_turned")},
    {TCI_MEM_UNIT_COLUMNS_TURNED, "unit_columns_turned", TCI_CUDA_TAKE("tc_columns_turned")},
    {TCI_MEM_UNIT_ZERO, "unit_zero", "TC_I $T $n() {\n    return {};\n}\n"},
    {TCI_MEM_UNIT_DOT, "unit_dot",
     "template <class A, class B> TC_I $T $n($T c, const A &a, const B &b) {\n"
     "    tc_multiply_$D(c.v, a.v, b.v[0], b.v[1]);\n"
     "    tc_multiply_$D(c.v + 4, a.v, b.v[2], b.v[3]);\n    return c;\n}\n"},
    {TCI_MEM_UNIT_SUM, "unit_sum", "TC_I $E $n(const $T &c, int i) {\n    return c.v[i];\n}\n"},
};

TCI_FN const tci_cuda_row *tci_cuda_warps_row(tci_mem m)
{
    for (int i = 0; i < TCI_COUNT(tci_cuda_warps_rows); i++) {
        if (tci_cuda_warps_rows[i].mem == m) {
            return &tci_cuda_warps_rows[i];
        }
    }
    return NULL;
}

#undef TCI_CUDA_SIXTEEN
#undef TCI_CUDA_TAKE
/* ---- src/cuda/dialect.c ---- */
/* cuda/dialect.c - CUDA C++ code generation: writes types, primitives and memory accesses of loop
 * IR as CUDA source, where one block of threads acts as one wide SIMD machine.
 *
 * In: requests by name (emit/dialect.h), where `lanes` counts the lanes that ONE THREAD holds.
 * Out: definitions for NVRTC, without any #include.
 *
 * Design: a vector of T * q lanes is spread over the T threads of a block, q neighbouring lanes
 * each, so that a thread's lanes are one access of up to 16 bytes and a warp's accesses coalesce.
 * Lane i belongs to thread i / q. Scalars are computed by all threads alike, so control flow is
 * uniform in the block and any statement may contain a barrier. Scalar code is that of the C
 * dialect, which this one extends; only vectors differ: a struct of q elements.
 *
 * Lanes communicate in four operations: LANE (one lane to all), HIGH_HALF and its like (lane i
 * reads lane i + h), BELOW (h lanes read the last of the h before) and BARRIER (local arrays may
 * be read by other threads than wrote them). Blocks communicate by AWAIT, which waits for the
 * signal of an earlier block (TELL). GPUs dispatch blocks in the order of their indices, which no
 * manual guarantees, and run them to completion, so none waits for one that is not scheduled; words
 * bypass the L1 cache (volatile).
 *
 * A block may also hold several vectors, each in the threads of a warp or of a part of one; those
 * of one warp are all active or none is. Threads are then counted from the vector's first one, and
 * lanes communicate inside the vector: such definitions have the number of its threads in their
 * name. */
#include <string.h>


typedef struct tci_cuda_dialect {
    const char *(*prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm);
    const char *(*mem)(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage, int lanes);
    const char *(*type)(tci_dialect *d, tc_dtype t, int lanes);
    int group;       /* threads of a warp and a vector of the kernel in print that meet; 1: none */
    int row_threads; /* threads of a vector of the kernel in print; 0: all of the block */
} tci_cuda_dialect;

/* The C dialect's own functions, for scalars. */
static tci_cuda_dialect tci_cuda_scalar(tci_dialect *d)
{
    return *(const tci_cuda_dialect *)((tci_c_dialect *)d->state)->more;
}

static const char *tci_cuda_type(tci_dialect *d, tc_dtype t, int lanes)
{
    tci_c_dialect *cd = d->state;
    const char *element = tci_cuda_scalar(d).type(d, t, 1);
    if (lanes == 1) {
        return element;
    }
    bool is_new;
    const char *name = tci_scratch_printf(d->s, "tc_%s", tci_c_dialect_suffix(cd, t, lanes));
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_str_printf(&cd->out, "typedef struct { %s v[%d]; } %s;\n", element, lanes, name);
    }
    return name;
}

/* ---- prims: the scalar one on each of the thread's lanes ---- */

/* Scalars with an instruction or an exact function of their own; the others are the C dialect's. */
static const struct {
    uint8_t prim;
    const char *args, *f32, *f64;
} tci_cuda_scalars[] = {
    {TCI_P_FMA, "a, b, c", "__fmaf_rn", "__fma_rn"},
    {TCI_P_ABS, "a", "fabsf", "fabs"},
    {TCI_P_SQRT, "a", "__fsqrt_rn", "__dsqrt_rn"},
    {TCI_P_FLOOR, "a", "floorf", "floor"},
    {TCI_P_CEIL, "a", "ceilf", "ceil"},
    {TCI_P_TRUNC, "a", "truncf", "trunc"},
    {TCI_P_RINT, "a", "rintf", "rint"},
    {TCI_P_ROUNDB16, "a", "tc_round_bf16", ""},
};

/* Without under- or overflow: Newton's step on the hardware's approximate reciprocal, and two
 * remainders, the last of which rounds (Markstein, IA-64 and Elementary Functions, 2000). nvcc's
 * division makes the same steps after a branch, which serializes neighbouring elements. */
static const char tci_cuda_quotient_text[] =
    "#ifdef TC_NO_PTX\n"
    "#define tc_quotient(a, b) ((a) / (b))\n"
    "#else\n"
    "TC_I float tc_quotient(float a, float b) {\n    float r;\n"
    "    asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(b));\n"
    "    r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);\n"
    "    float q = a * r;\n"
    "    q = __fmaf_rn(__fmaf_rn(-b, q, a), r, q);\n"
    "    return __fmaf_rn(__fmaf_rn(-b, q, a), r, q);\n}\n"
    "#endif\n";

static const char *tci_cuda_quotient(tci_c_dialect *cd)
{
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, "tc_quotient", &is_new);
    if (is_new) {
        tci_str_add(&cd->out, tci_cuda_quotient_text);
    }
    return name;
}

static const char *tci_cuda_scalar_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to,
                                        int imm)
{
    tci_c_dialect *cd = d->state;
    if (p == TCI_P_DIV && t == TC_F32 && imm == TCI_DIV_NORMAL) {
        return tci_cuda_quotient(cd);
    }
    for (int i = 0; i < TCI_COUNT(tci_cuda_scalars) && tci_dtype_is_float(t); i++) {
        if (tci_cuda_scalars[i].prim != p) {
            continue;
        }
        bool is_new;
        const char *args = tci_cuda_scalars[i].args;
        const char *name = tci_scratch_printf(d->s, "tc_%s_%s", tci_prim_get(p)->name,
                                              tci_dtype_get(t)->name);
        name = tci_c_dialect_intern(cd, name, &is_new);
        if (is_new) {
            tci_str_printf(&cd->out, "#define %s(%s) %s(%s)\n", name, args,
                           t == TC_F32 ? tci_cuda_scalars[i].f32 : tci_cuda_scalars[i].f64, args);
        }
        return name;
    }
    return tci_cuda_scalar(d).prim(d, p, t, to, 1, imm);
}

static void tci_cuda_define_lanes(tci_c_dialect *cd, const char *name, const char *scalar,
                                  const char *const *types, int n_args, const char *result)
{
    tci_str params = {.s = cd->d.s}, args = {.s = cd->d.s};
    for (int i = 0; i < n_args; i++) {
        tci_str_printf(&params, "%s%s %c", i ? ", " : "", types[i], 'a' + i);
        tci_str_printf(&args, "%s%c.v[i]", i ? ", " : "", 'a' + i);
    }
    tci_str_printf(&cd->out,
                   "TC_I %s %s(%s) {\n    %s r;\n    TC_LANES(r) {\n"
                   "        r.v[i] = %s(%s);\n    }\n    return r;\n}\n",
                   result, name, params.text, result, scalar, args.text);
}

static const char *tci_cuda_any(tci_c_dialect *cd, int lanes)
{
    bool is_new;
    const char *mask = cd->d.type(&cd->d, TC_BOOL, lanes), *one = cd->d.type(&cd->d, TC_BOOL, 1);
    const char *name = tci_scratch_printf(cd->d.s, "tc_any_x%d", lanes);
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_str_printf(&cd->out,
                       "TC_I %s %s(%s m) {\n    %s r = 0;\n    TC_LANES(m) {\n"
                       "        r |= m.v[i];\n    }\n    return r;\n}\n",
                       one, name, mask, one);
    }
    return name;
}

/* The helper itself is out of line, so that its registers and its length do not weigh on the code
 * that almost never calls it. */
static const char *tci_cuda_lanes_of(tci_c_dialect *cd, int id, tc_dtype t, int lanes)
{
    const tci_helper *h = tci_helper_get(id);
    const char *type = cd->d.type(&cd->d, t, lanes), *mask = cd->d.type(&cd->d, TC_BOOL, lanes);
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_lanes_%s_%s", h->name,
                                          tci_c_dialect_suffix(cd, t, lanes));
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_c_dialect_define_helper(cd, id);
        tci_str_printf(&cd->out,
                       "TC_I %s %s(%s a, %s m) {\n    %s r;\n    TC_LANES(r) {\n"
                       "        r.v[i] = m.v[i] ? %s(a.v[i]) : 0;\n    }\n    return r;\n}\n",
                       type, name, type, mask, type, h->name);
    }
    return name;
}

static const char *tci_cuda_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes,
                                 int imm)
{
    tci_c_dialect *cd = d->state;
    if (lanes > 1 && tci_prim_is_math(p)) { /* on vectors: rare lanes are tested once */
        return tci_cuda_scalar(d).prim(d, p, t, to, lanes, imm);
    }
    const char *scalar = tci_cuda_scalar_prim(d, p, t, to, imm);
    if (lanes == 1) {
        return scalar;
    }
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, tci_scratch_printf(d->s, "%sx%d", scalar, lanes),
                                            &is_new);
    if (!is_new) {
        return name;
    }
    const tci_prim_info *info = tci_prim_get(p);
    const char *type = d->type(d, t, lanes), *mask = d->type(d, TC_BOOL, lanes);
    const char *types[3] = {type, type, type};
    int n_args = info->arity;
    if (p == TCI_P_SELECT) {
        types[0] = mask;
    }
    if (p == TCI_P_LANE1) {
        types[1] = mask;
    }
    const char *result = info->result == 'O'   ? d->type(d, to, lanes)
                         : info->result == 'B' ? mask
                                               : type;
    tci_cuda_define_lanes(cd, name, scalar, types, n_args, result);
    return name;
}

/* ---- memory ---- */

/* The name begins with the row's. $n is the whole of it, $T the vector type, $E its element, $S the
 * storage type, $L and $W one element loaded and stored, $P the type that carries a thread's part w
 * to or from memory, $I element i of that and $O its storing, $B the mask type, $Q lanes of a
 * thread, $H its number, $G how many lanes communicate, $R the mask of a shuffle, $D the storage
 * dtype's name, $U the rounding of a word of it for a matrix unit, $X x rounded so
 * (cuda/mma_sync.c). Counts and strides are of the whole vector. */
static const tci_cuda_row tci_cuda_rows[] = {
    {TCI_MEM_LOAD, "load",
     "TC_I $T $n(const $S *p) {\n    $T r;\n    p += $Q * $H;\n"
     "    if (TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n"
     "        const $P w = *(const $P *)p;\n"
     "        TC_LANES(r) {\n            r.v[i] = $I;\n        }\n"
     "    } else {\n        TC_LANES(r) {\n            r.v[i] = $L(p + i);\n        }\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_LOAD_ALIGNED, "load_aligned",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const $P w = *(const $P *)(p + $Q * $H);\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_IF, "load_if",
     "TC_I $T $n(const $S *p, bool m) {\n    $T r;\n    $P w = {};\n"
     "    if (m) {\n        w = *(const $P *)(p + $Q * $H);\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_N_ALIGNED, "load_n_aligned",
     "TC_I $T $n(const $S *p, tc_i64 n) {\n    $T r;\n    $P w = {};\n"
     "    if (n > $Q * $H) {\n        w = *(const $P *)(p + $Q * $H);\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_REPEAT, "load_repeat",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const $P w = *(const $P *)(p + $Q * (TC_THREAD & 31));\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE_ALIGNED, "store_aligned",
     "TC_I void $n($S *p, $T x) {\n    $P w;\n    TC_LANES(x) {\n"
     "        $O\n    }\n"
     "    *($P *)(p + $Q * $H) = w;\n}\n"},
    {TCI_MEM_STORE_PAIRS, "store_pairs",
     "TC_I void $n($S *p, $E a, $E b) {\n    $P w;\n    const $T x = {a, b};\n"
     "    TC_LANES(x) {\n        $O\n    }\n    *($P *)p = w;\n}\n"},
    {TCI_MEM_LANE_REPEAT, "lane_repeat",
     "TC_I $E $n($T x, int lane) {\n"
     "    return ($E)__shfl_sync(0xffffffffu, x.v[lane % $Q], lane / $Q$R);\n}\n"},
    {TCI_MEM_LOAD_MASK, "load_mask",
     "TC_I $T $n(const $S *p, $B m) {\n    $T r;\n    p += $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = m.v[i] ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_N, "load_n",
     "TC_I $T $n(const $S *p, tc_i64 n) {\n    $T r;\n    p += $Q * $H;\n"
     "    n -= $Q * $H;\n"
     "    if (n >= $Q && TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n"
     "        const $P w = *(const $P *)p;\n"
     "        TC_LANES(r) {\n            r.v[i] = $I;\n        }\n"
     "        return r;\n    }\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED, "load_strided",
     "TC_I $T $n(const $S *p, tc_i64 stride) {\n    $T r;\n    p += stride * $Q * $H;\n"
     "    TC_LANES(r) {\n        r.v[i] = $L(p + stride * i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED_N, "load_strided_n",
     "TC_I $T $n(const $S *p, tc_i64 stride, tc_i64 n) {\n    $T r;\n"
     "    p += stride * $Q * $H;\n    n -= $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + stride * i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE, "store",
     "TC_I void $n($S *p, $T x) {\n    p += $Q * $H;\n    $P w;\n    TC_LANES(x) {\n"
     "        $O\n    }\n    tc_put<$G>(p, w);\n}\n"},
    {TCI_MEM_STORE_N, "store_n",
     "TC_I void $n($S *p, $T x, tc_i64 n) {\n    p += $Q * $H;\n    n -= $Q * $H;\n"
     "    if (n >= $Q && TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n        $P w;\n"
     "        TC_LANES(x) {\n            $O\n        }\n"
     "        *($P *)p = w;\n        return;\n    }\n"
     "    TC_LANES(x) {\n        if (i < n) {\n            $W(p + i, x.v[i]);\n        }\n"
     "    }\n}\n"},
    {TCI_MEM_STORE_STRIDED, "store_strided",
     "TC_I void $n($S *p, tc_i64 stride, $T x) {\n    p += stride * $Q * $H;\n"
     "    TC_LANES(x) {\n        $W(p + stride * i, x.v[i]);\n    }\n}\n"},
    {TCI_MEM_STORE_STRIDED_N, "store_strided_n",
     "TC_I void $n($S *p, tc_i64 stride, $T x, tc_i64 n) {\n    p += stride * $Q * $H;\n"
     "    n -= $Q * $H;\n    TC_LANES(x) {\n        if (i < n) {\n"
     "            $W(p + stride * i, x.v[i]);\n        }\n    }\n}\n"},
    {TCI_MEM_SPLAT, "splat",
     "TC_I $T $n($E x) {\n    $T r;\n    TC_LANES(r) {\n        r.v[i] = x;\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_IOTA, "iota",
     "TC_I $T $n($E first) {\n    $T r;\n    TC_LANES(r) {\n"
     "        r.v[i] = ($E)(first + $Q * $H + i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_FIRST_N, "first_n",
     "TC_I $T $n(tc_i64 n) {\n    $T r;\n    n -= $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LANE, "lane",
     "TC_I $E $n($T x, int lane) {\n    return ($E)tc_lane(x, x.v[lane % $Q], lane / $Q);\n}\n"},
    {TCI_MEM_HIGH_HALF, "high_half",
     "TC_I $T $n($T x, int h) {\n    if (h >= $Q) {\n        return tc_down(x, h / $Q);\n    }\n"
     "    $T r = x;\n    TC_LANES(r) {\n        if (i < h) {\n"
     "            r.v[i] = x.v[(i + h) % $Q];\n        }\n    }\n    return r;\n}\n"},
    {TCI_MEM_NEAR_HALF, "near_half",
     "TC_I $T $n($T x, int h) {\n    if (h >= $Q) {\n        return tc_down(x, h / $Q);\n    }\n"
     "    $T r = x;\n    TC_LANES(r) {\n        r.v[i] = x.v[(i + h) % $Q];\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_HIGH_FIRST, "high_first",
     "TC_I $T $n($T x, int h) {\n    return tc_down_first(x, h / $Q);\n}\n"},
    {TCI_MEM_TAG, "tag",
     "TC_I tc_i64 $n(const $S *p) {\n    return *(const volatile $S *)p >> 32;\n}\n"},
    {TCI_MEM_TELL, "tell",
     "TC_I void $n($S *p, $E x, tc_i64 tag) {\n    if ($H == 0) {\n"
     "        TC_EACH(i, sizeof(x) / 4) {\n"
     "            ((volatile $S *)p)[i] = (tc_i64)((unsigned long long)tag << 32) |\n"
     "                                    ((const tc_two *)&x)[i];\n        }\n"
     "    }\n}\n"},
    {TCI_MEM_AWAIT, "await",
     "TC_I $T $n(const $S *p, tc_i64 tag, tc_i64 n) {\n    $T r;\n"
     "    enum { N = sizeof(r) / 4, EACH = sizeof($E) / 4 };\n"
     "    const volatile $S *from = p + N * $H;\n    $S w[N];\n    bool all;\n"
     "    n = (n - $Q * $H) * EACH;\n    do {\n        all = true;\n"
     "        TC_EACH(i, N) {\n            w[i] = i < n ? from[i] : 0;\n"
     "            all = all && (i >= n || (unsigned)(w[i] >> 32) == (unsigned)tag);\n        }\n"
     "    } while (!all);\n    TC_EACH(i, N) {\n"
     "        ((tc_two *)&r)[i] = (tc_two)w[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_BELOW, "below",
     "TC_I $T $n($T x, $T none, int h) {\n    if (h >= $Q) {\n"
     "        return tc_below(x, none, x.v[$Q - 1], h / $Q);\n    }\n    TC_LANES(none) {\n"
     "        if (i & h) {\n            none.v[i] = x.v[((i | (h - 1)) ^ h) % $Q];\n        }\n"
     "    }\n    return none;\n}\n"},
};

static const char *tci_cuda_letter(tci_dialect *d, char letter, const char *name, tc_dtype t,
                                   tc_dtype storage, int lanes)
{
    tci_cuda_dialect scalar = tci_cuda_scalar(d);
    bool pairs = storage == TC_BF16 && t == TC_F32 && lanes % 2 == 0; /* of half the instructions */
    switch (letter) {
    case 'n': return name;
    case 'P':
        return pairs ? tci_scratch_printf(d->s, "tc_pack<tc_two, %d>", lanes / 2)
                     : tci_scratch_printf(d->s, "tc_pack<%s, %d>", tci_dtype_get(storage)->ctype,
                                          lanes);
    case 'I':
        return pairs ? "tc_half_of(w.e[i / 2], i % 2)"
                     : tci_scratch_printf(d->s, "%s(w.e + i)",
                                          scalar.mem(d, TCI_MEM_LOAD_ONE, t, storage, 1));
    case 'O':
        return pairs ? "w.e[i / 2] = tc_pair_bf16(x.v[i / 2 * 2], x.v[i / 2 * 2 + 1]);"
                     : tci_scratch_printf(d->s, "%s(w.e + i, x.v[i]);",
                                          scalar.mem(d, TCI_MEM_STORE_ONE, t, storage, 1));
    case 'T': return d->type(d, t, lanes);
    case 'E': return d->type(d, t, 1);
    case 'B': return d->type(d, TC_BOOL, lanes);
    case 'S': return tci_dtype_get(storage)->ctype;
    case 'L': return scalar.mem(d, TCI_MEM_LOAD_ONE, t, storage, 1);
    case 'W': return scalar.mem(d, TCI_MEM_STORE_ONE, t, storage, 1);
    case 'H':
        return scalar.row_threads
                   ? tci_scratch_printf(d->s, "(TC_THREAD & %d)", scalar.row_threads - 1)
                   : "TC_THREAD";
    case 'D': return tci_dtype_get(storage)->name;
    case 'U': return storage == TC_F32 ? "tc_tf32" : "";
    case 'X':
        return storage == TC_F32 ? "__int_as_float((int)tc_tf32((unsigned)__float_as_int(x)))"
                                 : "x";
    case 'G': return tci_scratch_printf(d->s, "%d", scalar.group);
    case 'R': return scalar.row_threads ? tci_scratch_printf(d->s, ", %d", scalar.row_threads) : "";
    default: return tci_scratch_printf(d->s, "%d", lanes);
    }
}

/* NULL: there is none. */
static const tci_cuda_row *tci_cuda_row_of(tci_c_dialect *cd, tci_mem m)
{
    for (int i = 0; i < TCI_COUNT(tci_cuda_rows); i++) {
        if (tci_cuda_rows[i].mem == m) {
            return &tci_cuda_rows[i];
        }
    }
    bool is_new;
    const tci_cuda_row *row = tci_cuda_warps_row(m);
    if (row) {
        tci_c_dialect_intern(cd, "tc_warps", &is_new);
        if (is_new) {
            tci_cuda_warps_prelude(&cd->out);
        }
    }
    return row;
}

static void tci_cuda_define_mem(tci_dialect *d, const char *name, const char *text, tc_dtype t,
                                tc_dtype storage, int lanes)
{
    tci_c_dialect *cd = d->state;
    tci_str own = {.s = d->s};
    (void)d->type(d, TC_I64, 1);
    while (*text) {
        size_t plain = strcspn(text, "$");
        tci_str_add_n(&own, text, plain);
        text += plain;
        if (*text) {
            tci_str_add(&own, tci_cuda_letter(d, text[1], name, t, storage, lanes));
            text += 2;
        }
    }
    tci_str_add_n(&cd->out, tci_str_text(&own), own.n);
}

static const char *tci_cuda_mem(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage,
                                int lanes)
{
    tci_c_dialect *cd = d->state;
    if (m == TCI_MEM_STORE_STREAM) {
        m = TCI_MEM_STORE;
    }
    lanes = m == TCI_MEM_STORE_PAIRS ? 2 : lanes;
    if (m == TCI_MEM_BARRIER) {
        return "__syncthreads";
    }
    if (lanes == 1 && m < TCI_MEM_TAG) {
        return tci_cuda_scalar(d).mem(d, m, compute, storage, 1);
    }
    const tci_cuda_row *row = tci_cuda_row_of(cd, m);
    TCI_ASSERT(d->s, row);
    bool is_new;
    int row_threads = tci_cuda_scalar(d).row_threads;
    const char *of = row_threads ? tci_scratch_printf(d->s, "_of%d", row_threads) : "";
    bool together = m == TCI_MEM_STORE && tci_cuda_scalar(d).group > 1;
    const char *name = tci_scratch_printf(d->s, "tc_%s_%s_%s%s%s", row->name,
                                          tci_c_dialect_suffix(cd, compute, lanes),
                                          tci_dtype_get(storage)->name, of,
                                          together ? "_together" : "");
    name = tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        tci_cuda_define_mem(d, name, row->text, compute, storage, lanes);
    }
    return name;
}

/* ---- the file ---- */

/* bf16 by the one instruction that newer GPUs have for two of them, f16 by the one that all have;
 * tests define TC_NO_PTX. Back without one: where scores are rounded during products (attention),
 * ptxas has all products wait for the instruction (C7514). The C dialect's names are taken. */
static const char *const tci_cuda_halves_names[] = {"tc_narrow_f32_bf16", "tc_narrow_f32_f16",
                                                    "tc_widen_f32_f16"};
static const char tci_cuda_halves_text[] =
    "#if !defined(TC_NO_PTX) && __CUDA_ARCH__ >= 800\n"
    "TC_I unsigned tc_pair_bf16(float low, float high) {\n    unsigned r;\n"
    "    asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(high), \"f\"(low));\n"
    "    return r;\n}\n"
    "#else\n"
    "TC_I unsigned tc_bits_bf16(float a) {\n    const unsigned u = (unsigned)__float_as_int(a);\n"
    "    return a != a ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;\n}\n"
    "TC_I unsigned tc_pair_bf16(float low, float high) {\n"
    "    return tc_bits_bf16(high) << 16 | tc_bits_bf16(low);\n}\n"
    "#endif\n"
    "TC_I unsigned short tc_narrow_f32_bf16(float a) {\n"
    "    return (unsigned short)tc_pair_bf16(a, 0);\n}\n"
    "TC_I float tc_round_bf16(float a) { return __int_as_float((int)tc_pair_bf16(0, a)); }\n"
    "#ifndef TC_NO_PTX\n"
    "TC_I unsigned short tc_narrow_f32_f16(float a) {\n    unsigned short r;\n"
    "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a));\n    return r;\n}\n"
    "#endif\n"
    "TC_I float tc_widen_f32_f16(unsigned short a) {\n"
    "    const unsigned u = (a & 0x7fffu) << 13;\n"
    "    const float f = u < 0x0f800000u ? __int_as_float((int)u) * 0x1p112f\n"
    "                                    : __int_as_float((int)(u | 0x7f800000u));\n"
    "    return __int_as_float(__float_as_int(f) | (int)((a & 0x8000u) << 16));\n}\n";

/* tc_lane, tc_down and tc_below hold barriers before and after their use of the shared box, so that
 * one may follow another at once. A block has at most TCI_CUDA_MAX_THREADS threads. What tc_below
 * asks is one of the 2 * threads around the thread itself, so vectors side by side, which begin at
 * multiples of that, keep to themselves.
 *
 * tc_put stores what each of `group` threads has after what the one before has. Where that is not
 * aligned, parts of words would go out in pieces, each a transfer to the cache of its own; so a
 * thread stores the aligned block that its part ends in, whose beginning the thread before has. The
 * first one stores what is before its first block, the last one what is after the last. Halves
 * cost more to move than that saves. */
static const char tci_cuda_prelude_text[] =
    "#define __FMA__ 1\n#define TC_HAS(x) 0\n#define TC_GCC 0\n#define TC_CONVERT 0\n"
    "#define TC_I static __device__ __forceinline__\n"
    "#define TC_THREAD ((long long)threadIdx.x)\n"
    "#ifndef TC_SURPLUS\n#define TC_SURPLUS\n#endif\n"
    "#define TC_PRAGMA(x) _Pragma(#x)\n#define TC_UNROLL(n) TC_PRAGMA(unroll n)\n"
    "#define TC_LANES(r) _Pragma(\"unroll\") for (int i = 0; i < (int)(sizeof((r).v) / "
    "sizeof((r).v[0])); i++)\n"
    "#define TC_EACH(i, n) _Pragma(\"unroll\") for (int i = 0; i < (int)(n); i++)\n"
    "#define TC_IS_ALIGNED(p, n) (((n) & ((n) - 1)) == 0 && "
    "((unsigned long long)(p) & (((n) < 16 ? (n) : 16) - 1)) == 0)\n"
    "#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)\n"
    "#define __builtin_fma(a, b, c) __fma_rn(a, b, c)\n"
    "#define __builtin_inff() __int_as_float(0x7f800000)\n"
    "#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)\n"
    "#define __builtin_nanf(text) __int_as_float(0x7fc00000)\n"
    "#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)\n"
    "typedef unsigned __attribute__((__may_alias__)) tc_two; /* halves */\n"
    "TC_I float tc_half_of(tc_two x, int i) {\n"
    "    return __int_as_float((int)(i ? x & 0xffff0000u : x << 16));\n}\n"
    "template <class S, int n> struct __align__(sizeof(S) * n > 16 ? 16 : sizeof(S) * n) tc_pack "
    "{ S e[n]; };\n"
    "template <int group, class S, class P> TC_I void tc_put(S *p, const P &x) {\n"
    "    enum { N = sizeof(P) / 4, MEETS = sizeof(S) >= 4 && sizeof(P) <= 16 && group >= 4 };\n"
    "    const int lane = (int)TC_THREAD & (group - 1);\n"
    "    const int mine = (int)(-(unsigned long long)p & (sizeof(P) - 1)) / 4;\n"
    "    unsigned w[2 * N + 1];\n"
    "    TC_EACH(i, MEETS ? N : 0) {\n        w[N + i] = ((const tc_two *)&x)[i];\n"
    "        w[i] = __shfl_sync(0xffffffffu, w[N + i], (int)(TC_THREAD + 31) & 31);\n    }\n"
    "    if (TC_IS_ALIGNED(p, sizeof(P))) {\n        *(P *)p = x;\n        return;\n    }\n"
    "    if (!MEETS) {\n        TC_EACH(i, sizeof(P) / sizeof(S)) {\n"
    "            p[i] = ((const S *)&x)[i];\n        }\n        return;\n    }\n"
    "    TC_EACH(i, N) {\n        if (lane == (i < mine ? 0 : group - 1)) {\n"
    "            ((tc_two *)p)[i] = w[N + i];\n        }\n    }\n"
    "    TC_EACH(i, 2 * N - 2) {\n        w[i] = mine & 2 ? w[i + 2] : w[i];\n    }\n"
    "    P block;\n    TC_EACH(i, N) {\n"
    "        ((tc_two *)&block)[i] = mine & 1 ? w[i + 1] : w[i];\n    }\n"
    "    if (lane > 0) {\n        *(P *)((tc_two *)p - (N - mine)) = block;\n    }\n}\n"
    "template <class T, class E> TC_I E tc_lane(const T &x, E mine, int thread) {\n"
    "    __shared__ E box;\n    __syncthreads();\n    if (threadIdx.x == thread) {\n"
    "        box = mine;\n    }\n    __syncthreads();\n    return box;\n}\n"
    "template <class T> TC_I T tc_down(T x, int threads) {\n    T r = x;\n"
    "    if (threads < 32) {\n        TC_LANES(r) {\n"
    "            r.v[i] = __shfl_down_sync(0xffffffffu, x.v[i], threads);\n        }\n"
    "        return r;\n    }\n"
    "    __shared__ T box[256];\n    __syncthreads();\n"
    "    int from = (int)threadIdx.x - threads;\n"
    "    if (from >= 0 && from < threads) {\n        box[from] = x;\n    }\n    __syncthreads();\n"
    "    if ((int)threadIdx.x < threads) {\n        r = box[threadIdx.x];\n    }\n    return "
    "r;\n}\n"
    "template <class T> TC_I T tc_down_first(T x, int threads) {\n    if (threads >= 32) {\n"
    "        return tc_down(x, threads);\n    }\n"
    "    x.v[0] = __shfl_down_sync(0xffffffffu, x.v[0], threads);\n    return x;\n}\n"
    "template <class T, class E> TC_I T tc_below(const T &x, T none, E last, int threads) {\n"
    "    const int from = ((int)threadIdx.x | (threads - 1)) ^ threads;\n"
    "    if (threads < 32) {\n        last = __shfl_sync(0xffffffffu, last, from & 31);\n"
    "    } else {\n        __shared__ E box[32];\n        __syncthreads();\n"
    "        if ((threadIdx.x & 31) == 31) {\n            box[threadIdx.x / 32] = last;\n"
    "        }\n        __syncthreads();\n        last = box[from / 32];\n    }\n"
    "    if (threadIdx.x & threads) {\n        TC_LANES(none) {\n"
    "            none.v[i] = last;\n        }\n    }\n    return none;\n}\n";

static void tci_cuda_prelude(tci_dialect *d, tci_str *out)
{
    tci_c_dialect *cd = d->state;
    tci_str_add(out, tci_cuda_prelude_text);
    tci_str_add(out, tci_cuda_halves_text);
    tci_str_add_n(out, tci_str_text(&cd->out), cd->out.n);
}

/* The definitions of a prelude, once in a file. */
static void tci_cuda_prelude_need(tci_dialect *d, const char *name, void (*prelude)(tci_str *))
{
    tci_c_dialect *cd = d->state;
    bool is_new;
    tci_c_dialect_intern(cd, name, &is_new);
    if (is_new) {
        prelude(&cd->out);
    }
}

/* The definitions that a kernel with that main loop needs. */
static void tci_cuda_matrix_need(tci_dialect *d, const tci_matrix *x)
{
    tci_c_dialect *cd = d->state;
    bool is_new;
    tci_cuda_prelude_need(d, "tc_map", tci_cuda_wgmma_prelude);
    const char *name = tci_c_dialect_intern(cd, tci_cuda_wgmma_product_name(d->s, x), &is_new);
    if (is_new) {
        tci_cuda_wgmma_product(&cd->out, name, x);
    }
}

static void tci_cuda_held_need(tci_dialect *d, const tci_matrix *x)
{
    tci_c_dialect *cd = d->state;
    bool is_new;
    const char *name = tci_c_dialect_intern(cd, tci_cuda_attention_product_name(d->s, x), &is_new);
    if (is_new) {
        tci_cuda_attention_product(&cd->out, name, x);
    }
}

static void tci_cuda_attention_need(tci_dialect *d, const tci_attention *x)
{
    tci_cuda_prelude_need(d, "tc_map", tci_cuda_wgmma_prelude);
    tci_cuda_prelude_need(d, "tc_attention", tci_cuda_attention_prelude);
    if (x->threads) {
        tci_cuda_prelude_need(d, "tc_flash", tci_cuda_simt_attention_prelude);
        return;
    }
    tci_cuda_matrix_need(d, &x->in[0]);
    tci_cuda_prelude_need(d, x->is_online ? "tc_online" : "tc_backward",
                          x->is_online ? tci_cuda_online_prelude : tci_cuda_backward_prelude);
    for (int i = 0; i < x->n_out; i++) {
        tci_cuda_held_need(d, &x->out[i]);
    }
}

static void tci_cuda_score_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                                int i)
{
    (void)d;
    tci_cuda_attention_open(out, symbol, l, i);
}

static void tci_cuda_score_tail(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                                int i)
{
    (void)d;
    tci_cuda_attention_close(out, symbol, l, i);
}

static const char *tci_cuda_rounded(tci_dialect *d, tci_prim p)
{
    (void)d;
    return p == TCI_P_MUL ? "tc_mul_bf16" : p == TCI_P_ADD ? "tc_add_bf16" : NULL;
}

/* Where a vector is among those of its block. */
static void tci_cuda_row_threads(tci_dialect *d, tci_str *out, const char *word)
{
    int row_threads = tci_cuda_scalar(d).row_threads;
    if (row_threads) {
        tci_str_printf(out, "    const %s row = TC_THREAD / %d, thread = TC_THREAD & %d;\n", word,
                       row_threads, row_threads - 1);
    }
}

/* One block is one task. The arguments are one struct, so that a launch is one copy. */
static void tci_cuda_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                          int n_words)
{
    const char *word = d->type(d, TC_I64, 1);
    tci_cuda_dialect *own = ((tci_c_dialect *)d->state)->more;
    own->group = l->together ? TCI_MIN(l->threads, TCI_WARP) : 1;
    own->row_threads = l->rows > 1 ? l->threads : 0; /* of a template too: it follows others */
    if (l->attention) {
        tci_cuda_attention_need(d, l->attention);
        tci_cuda_attention_head(out, symbol, l, n_words);
        return;
    }
    if (l->matrix) {
        tci_cuda_matrix_need(d, l->matrix);
        tci_cuda_wgmma_head(out, symbol, l, n_words);
        return;
    }
    if (l->is_member) {
        tci_str_printf(out,
                       "TC_I void %s(void *const *bufs, const %s *lits, %s *fault, "
                       "const %s task_begin, const %s task_end)\n{\n",
                       symbol, word, word, word, word);
        tci_cuda_row_threads(d, out, word);
        return;
    }
    const char *resident = l->resident ? tci_scratch_printf(d->s, ", %d", l->resident) : "";
    /* a merged kernel takes operands by variable numbers: without a copy of them all */
    const char *indexed = l->n_members ? "__grid_constant__ " : "";
    tci_str_printf(out,
                   "struct %s_args { void *bufs[%d]; %s lits[%d]; %s *fault; };\n"
                   "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(const %s%s_args args)\n"
                   "{\n"
                   "    void *const *bufs = args.bufs;\n    const %s *lits = args.lits;\n"
                   "    %s *fault = args.fault;\n"
                   "    const %s task_begin = blockIdx.x, task_end = task_begin + 1;\n",
                   symbol, TCI_MAX(l->n_operands + (l->work_bytes != 0), 1), word,
                   TCI_MAX(n_words, 1), word, l->threads * l->rows, resident, symbol, indexed,
                   symbol, word, word, word);
    tci_cuda_row_threads(d, out, word);
}

static void tci_cuda_tail(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l)
{
    (void)d;
    if (l->attention) {
        tci_cuda_attention_tail(out, symbol, l);
    } else if (l->matrix) {
        tci_cuda_wgmma_tail(out, symbol);
    } else {
        tci_str_add(out, "}\n");
    }
}

TCI_FN const tc_dialect *tci_cuda_words(void)
{
    static const tc_dialect words = {.space = "", .operand = "bufs[#]", .make = tci_dialect_cuda};
    return &words;
}

TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes)
{
    tci_dialect *d = tci_dialect_c(s, 0);
    tci_cuda_dialect *scalar = TCI_NEW(s, tci_cuda_dialect);
    scalar->prim = d->prim;
    scalar->mem = d->mem;
    scalar->type = d->type;
    tci_c_dialect *cd = d->state;
    cd->more = scalar;
    cd->any = tci_cuda_any;
    cd->lanes_of = tci_cuda_lanes_of;
    cd->helper_word = "__noinline__ ";
    bool is_new;
    for (int i = 0; i < TCI_COUNT(tci_cuda_halves_names); i++) {
        tci_c_dialect_intern(cd, tci_cuda_halves_names[i], &is_new);
    }
    d->words = tci_cuda_words();
    d->vector_bytes = vector_bytes;
    d->local_word = "__shared__ ";
    d->table_word = "static __constant__ const ";
    d->prim = tci_cuda_prim;
    d->mem = tci_cuda_mem;
    d->type = tci_cuda_type;
    d->prelude = tci_cuda_prelude;
    d->head = tci_cuda_head;
    d->score_head = tci_cuda_score_head;
    d->score_tail = tci_cuda_score_tail;
    d->rounded = tci_cuda_rounded;
    d->tail = tci_cuda_tail;
    d->call = tci_cuda_custom;
    return d;
}
/* ---- src/cuda/driver_api.c ---- */
/* cuda/driver_api.c - opens libcuda and libnvrtc at run time.
 *
 * In: nothing. Out: tables of functions. Design: a table is filled once per process under a lock
 * and never changes afterwards. NVRTC is opened only when something must be compiled (it is the
 * slowest part of a start), so its path can be queried without opening it. */
#include <stdio.h>
#include <string.h>

/* ---- src/cuda/driver_api.h ---- */
/* cuda/driver_api.h - declares the CUDA driver and NVRTC as tables of functions, opened at run
 * time: no CUDA headers. Names and values: CUDA 13 driver API reference. */
#ifndef TCI_CUDA_DRIVER_API_H
#define TCI_CUDA_DRIVER_API_H

#include <stddef.h>


typedef unsigned long long tci_cu_ptr; /* device address */

typedef struct tci_cu_kernel_params { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    void *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params;
    void **extra;
    void *kernel, *context;
} tci_cu_kernel_params;

typedef struct tci_cu_conditional { /* CUgraphNodeParams of a conditional node */
    int type, reserved[3];
    unsigned long long handle;
    int kind; /* CUgraphConditionalNodeType */
    unsigned n_bodies;
    void **bodies; /* out: a graph */
    void *context;
    long long rest[26]; /* of a union of 29 words, and one more */
} tci_cu_conditional;

/* X(field, symbol, arguments) */
#define TCI_CU_ROWS(X)                                                                            \
    X(init, "cuInit", (unsigned))                                                                 \
    X(error_name, "cuGetErrorName", (int, const char **))                                         \
    X(driver_version, "cuDriverGetVersion", (int *))                                              \
    X(device_get, "cuDeviceGet", (int *, int))                                                    \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                 \
    X(context_get, "cuCtxGetCurrent", (void **))                                                  \
    X(context_set, "cuCtxSetCurrent", (void *))                                                   \
    X(context_wait, "cuCtxSynchronize", (void))                                                   \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                       \
    X(stream_free, "cuStreamDestroy_v2", (void *))                                                \
    X(stream_wait, "cuStreamSynchronize", (void *))                                               \
    X(stream_after, "cuStreamWaitEvent", (void *, void *, unsigned))                              \
    X(event_create, "cuEventCreate", (void **, unsigned))                                         \
    X(event_free, "cuEventDestroy_v2", (void *))                                                  \
    X(event_record, "cuEventRecord", (void *, void *))                                            \
    X(event_wait, "cuEventSynchronize", (void *))                                                 \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))                             \
    X(module_load, "cuModuleLoadData", (void **, const void *))                                   \
    X(module_find, "cuModuleGetFunction", (void **, void *, const char *))                        \
    X(module_free, "cuModuleUnload", (void *))                                                    \
    X(function_attribute, "cuFuncGetAttribute", (int *, int, void *))                             \
    X(launch, "cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned,        \
                                 unsigned, unsigned, void *, void **, void **))                   \
    X(memory_left, "cuMemGetInfo_v2", (size_t *, size_t *))                                        \
    X(alloc, "cuMemAlloc_v2", (tci_cu_ptr *, size_t))                                             \
    X(free, "cuMemFree_v2", (tci_cu_ptr))                                                         \
    X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                  \
    X(host_free, "cuMemFreeHost", (void *))                                                       \
    X(copy, "cuMemcpyAsync", (tci_cu_ptr, tci_cu_ptr, size_t, void *))                            \
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int, tci_cu_ptr))                      \
    X(graph_create, "cuGraphCreate", (void **, unsigned))                                         \
    X(graph_add_kernel, "cuGraphAddKernelNode_v2",                                                \
      (void **, void *, void *const *, size_t, const tci_cu_kernel_params *))                     \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))    \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                            \
    X(graph_exec_free, "cuGraphExecDestroy", (void *))                                            \
    X(graph_free, "cuGraphDestroy", (void *))                                                     \
    X(module_global, "cuModuleGetGlobal_v2", (tci_cu_ptr *, size_t *, void *, const char *))      \
    X(function_set, "cuFuncSetAttribute", (void *, int, int))

/* Functions of drivers since 12.0, and 12.4: NULL in older ones. */
#define TCI_CU_NEWER_ROWS(X)                                                                      \
    X(tensor_map, "cuTensorMapEncodeTiled",                                                       \
      (void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,       \
       const unsigned *, int, int, int, int))                                                     \
    X(place_map, "cuTensorMapEncodeIm2col",                                                       \
      (void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *,            \
       const int *, unsigned, unsigned, const unsigned *, int, int, int, int))                    \
    X(graph_handle, "cuGraphConditionalHandleCreate",                                             \
      (unsigned long long *, void *, void *, unsigned, unsigned))                                 \
    X(graph_add, "cuGraphAddNode",                                                                \
      (void **, void *, void *const *, size_t, tci_cu_conditional *))

#define TCI_NVRTC_ROWS(X)                                                                         \
    X(version, "nvrtcVersion", (int *, int *))                                                    \
    X(create, "nvrtcCreateProgram",                                                               \
      (void **, const char *, const char *, int, const char *const *, const char *const *))       \
    X(compile, "nvrtcCompileProgram", (void *, int, const char *const *))                         \
    X(log_size, "nvrtcGetProgramLogSize", (void *, size_t *))                                     \
    X(log, "nvrtcGetProgramLog", (void *, char *))                                                \
    X(cubin_size, "nvrtcGetCUBINSize", (void *, size_t *))                                        \
    X(cubin, "nvrtcGetCUBIN", (void *, char *))                                                   \
    X(destroy, "nvrtcDestroyProgram", (void **))

#define TCI_ROW(field, symbol, arguments) int (*field) arguments;
typedef struct tci_cu {
    TCI_CU_ROWS(TCI_ROW)
    TCI_CU_NEWER_ROWS(TCI_ROW)
} tci_cu;
typedef struct tci_nvrtc {
    TCI_NVRTC_ROWS(TCI_ROW)
} tci_nvrtc;
#undef TCI_ROW

/* A fork finds the lock of this file free. */
TCI_FN void tci_cu_keep_over_fork(void);
/* Process lifetime, opened at the first call; NULL: *why says why. Both from any thread. */
TCI_FN const tci_cu *tci_cu_get(const char **why);
TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why);
/* The file that tci_nvrtc_get would open, found without opening it: "" when nothing is found. */
TCI_FN const char *tci_nvrtc_path(void);

#endif

/* ---- src/cuda/driver_api.c, continued ---- */
typedef struct tci_cu_symbol {
    const char *name;
    size_t offset;
} tci_cu_symbol;

#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_cu, field)},
static const tci_cu_symbol tci_cu_symbols[] = {TCI_CU_ROWS(TCI_ROW)};
static const tci_cu_symbol tci_cu_newer_symbols[] = {TCI_CU_NEWER_ROWS(TCI_ROW)};
#undef TCI_ROW
#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_nvrtc, field)},
static const tci_cu_symbol tci_nvrtc_symbols[] = {TCI_NVRTC_ROWS(TCI_ROW)};
#undef TCI_ROW

static struct {
    tci_mutex lock;
    bool cu_known, nvrtc_known;
    bool cu_works, nvrtc_works;
    tci_cu cu;
    tci_nvrtc nvrtc;
    char cu_why[256], nvrtc_why[256];
    char nvrtc_path[512];
} tci_cu_tables = {.lock = TCI_MUTEX_INIT};

static bool tci_cu_fill(void *library, const tci_cu_symbol *symbols, int n, void *table, char *why)
{
    for (int i = 0; i < n; i++) {
        void *function = tci_os_dlsym(library, symbols[i].name);
        if (!function) {
            snprintf(why, 256, "the library has no %s", symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
    }
    return true;
}

TCI_FN void tci_cu_keep_over_fork(void)
{
    tci_os_keep_over_fork(&tci_cu_tables.lock, NULL);
}

TCI_FN const tci_cu *tci_cu_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.cu_known) {
        void *library = tci_os_dlopen("libcuda.so.1", tci_cu_tables.cu_why);
        tci_cu_tables.cu_known = true;
        tci_cu_tables.cu_works = library &&
                                 tci_cu_fill(library, tci_cu_symbols, TCI_COUNT(tci_cu_symbols),
                                             &tci_cu_tables.cu, tci_cu_tables.cu_why);
        char missing[256];
        if (tci_cu_tables.cu_works) {
            tci_cu_fill(library, tci_cu_newer_symbols, TCI_COUNT(tci_cu_newer_symbols),
                        &tci_cu_tables.cu, missing);
        }
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.cu_why;
    return tci_cu_tables.cu_works ? &tci_cu_tables.cu : NULL;
}

/* Where distributions, NVIDIA's installers and containers put it; newest first. */
static const char *const tci_nvrtc_names[] = {
    "/usr/local/cuda/lib64/libnvrtc.so.13",      "/usr/local/cuda/lib64/libnvrtc.so.12",
    "/usr/local/cuda-13.0/lib/libnvrtc.so.13",   "/usr/local/cuda/lib/libnvrtc.so.13",
    "/usr/lib/x86_64-linux-gnu/libnvrtc.so.13",  "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12",
    "/usr/lib/aarch64-linux-gnu/libnvrtc.so.13", "/usr/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so"};

/* Caller holds the lock. */
static const char *tci_nvrtc_find(void)
{
    const char *wanted = tci_env_get(TCI_ENV_NVRTC);
    int64_t bytes, mtime;
    if (tci_cu_tables.nvrtc_path[0]) {
        return tci_cu_tables.nvrtc_path;
    }
    if (wanted && wanted[0]) {
        snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s", wanted);
    }
    for (int i = 0; i < TCI_COUNT(tci_nvrtc_names) && !tci_cu_tables.nvrtc_path[0]; i++) {
        if (tci_os_stat(tci_nvrtc_names[i], &bytes, &mtime)) {
            snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s",
                     tci_nvrtc_names[i]);
        }
    }
    return tci_cu_tables.nvrtc_path;
}

TCI_FN const char *tci_nvrtc_path(void)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    const char *path = tci_nvrtc_find();
    pthread_mutex_unlock(&tci_cu_tables.lock);
    return path;
}

static void *tci_nvrtc_open(char *why)
{
    static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    const char *path = tci_nvrtc_find();
    void *library = path[0] ? tci_os_dlopen(path, why) : NULL;
    for (int i = 0; i < TCI_COUNT(sonames) && !library; i++) {
        library = tci_os_dlopen(sonames[i], why);
    }
    return library;
}

TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.nvrtc_known) {
        void *library = tci_nvrtc_open(tci_cu_tables.nvrtc_why);
        tci_cu_tables.nvrtc_known = true;
        tci_cu_tables.nvrtc_works = library &&
                                    tci_cu_fill(library, tci_nvrtc_symbols,
                                                TCI_COUNT(tci_nvrtc_symbols), &tci_cu_tables.nvrtc,
                                                tci_cu_tables.nvrtc_why);
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.nvrtc_why;
    return tci_cu_tables.nvrtc_works ? &tci_cu_tables.nvrtc : NULL;
}
/* ---- src/cuda/nvrtc.c ---- */
/* cuda/nvrtc.c - compiles CUDA source to cubin files with NVRTC.
 *
 * In: a build request of the backend interface. Out: one cubin file per source. Sources are
 * compiled concurrently, each in a thread of its own, which NVRTC allows (in older versions its
 * back ends are serialized); messages are passed on when all have ended. Options: a real
 * architecture (sm_XX), so that loading never JIT-compiles PTX; no FMA contraction (--fmad=false),
 * which would change bits; functions without a qualifier are the device's, so that texts shared
 * with C compile. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- src/cuda/nvrtc.h ---- */
/* cuda/nvrtc.h - declares the compilation of CUDA source to cubin files with NVRTC. */
#ifndef TCI_CUDA_NVRTC_H
#define TCI_CUDA_NVRTC_H


/* architecture: the option, "--gpu-architecture=sm_90a". On failure *why is a borrowed text. */
TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why);

#endif

/* ---- src/cuda/nvrtc.c, continued ---- */
/* One source. */
typedef struct tci_nvrtc_task {
    const tci_nvrtc *rtc;
    const tc_build *build;
    int i;
    const char *architecture, *why;
    tc_status status;
    char *log; /* heap: what NVRTC said, or NULL */
    pthread_t thread;
    bool spawned; /* thread compiles it */
    bool refuses; /* the text is what is wrong */
} tci_nvrtc_task;

static void tci_nvrtc_keep_log(tci_nvrtc_task *t, void *program)
{
    size_t n = 0;
    if (t->rtc->log_size(program, &n) || n <= 1) {
        return;
    }
    t->log = tci_heap_get(n + 1);
    if (t->log && t->rtc->log(program, t->log)) {
        t->log[0] = 0;
    }
}

static tc_status tci_nvrtc_write_cubin(const tci_nvrtc *rtc, void *program, const char *path,
                                       const char **why)
{
    size_t n = 0;
    int code = 0;
    if (rtc->cubin_size(program, &n) || n == 0) {
        *why = "NVRTC made no cubin";
        return TC_ERR_COMPILER;
    }
    char *cubin = tci_heap_get(n);
    if (!cubin) {
        *why = "out of memory for a cubin";
        return TC_ERR_MEMORY;
    }
    bool written = !rtc->cubin(program, cubin) && tci_os_publish(path, cubin, n, &code);
    tci_heap_free(cubin);
    *why = written ? "" : "a cubin could not be written";
    return written ? TC_OK : TC_ERR_IO;
}

static tc_status tci_nvrtc_build_one(tci_nvrtc_task *t)
{
    const tci_nvrtc *rtc = t->rtc;
    const tc_build *build = t->build;
    const char *options[] = {t->architecture, "--fmad=false", "-default-device", "-std=c++17"};
    void *program = NULL;
    if (rtc->create(&program, build->sources[t->i], "tc.cu", 0, NULL, NULL)) {
        t->why = "NVRTC cannot take the source";
        return TC_ERR_COMPILER;
    }
    int failed = rtc->compile(program, TCI_COUNT(options), options);
    tc_status status = TC_ERR_COMPILER;
    t->why = "NVRTC refuses the generated source";
    t->refuses = failed != 0;
    if (failed || build->keep) {
        tci_nvrtc_keep_log(t, program);
    }
    if (!failed) {
        status = tci_nvrtc_write_cubin(rtc, program, build->outputs[t->i], &t->why);
    }
    rtc->destroy(&program);
    return status;
}

static void *tci_nvrtc_run(void *arg)
{
    tci_nvrtc_task *t = arg;
    t->status = tci_nvrtc_build_one(t);
    return NULL;
}

/* Kept sources are next to the outputs, as the C compiler's are. */
static void tci_nvrtc_keep(const tc_build *build, int i)
{
    char path[600];
    int code;
    snprintf(path, sizeof(path), "%s.cu", build->outputs[i]);
    tci_os_publish(path, build->sources[i], strlen(build->sources[i]), &code);
}

/* The first in this thread, as are those that have none of their own. */
static void tci_nvrtc_run_all(tci_nvrtc_task *tasks, int n)
{
    for (int i = 1; i < n; i++) {
        tasks[i].spawned = pthread_create(&tasks[i].thread, NULL, tci_nvrtc_run, &tasks[i]) == 0;
    }
    for (int i = 0; i < n; i++) {
        if (!tasks[i].spawned) {
            tci_nvrtc_run(&tasks[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        if (tasks[i].spawned) {
            pthread_join(tasks[i].thread, NULL);
        }
    }
}

TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why)
{
    const tci_nvrtc *rtc = tci_nvrtc_get(why);
    tci_nvrtc_task *tasks = rtc ? tci_heap_get((size_t)build->n * sizeof(*tasks)) : NULL;
    tc_status status = TC_OK;
    if (!tasks) {
        *why = rtc ? "out of memory for NVRTC's threads" : *why;
        return rtc ? TC_ERR_MEMORY : TC_ERR_COMPILER;
    }
    for (int i = 0; i < build->n; i++) {
        tasks[i] = (tci_nvrtc_task){.rtc = rtc,
                                    .build = build,
                                    .i = i,
                                    .architecture = architecture,
                                    .why = ""};
    }
    tci_nvrtc_run_all(tasks, build->n);
    for (int i = 0; i < build->n; i++) {
        if (tasks[i].log) {
            build->say(build->say_arg, tasks[i].log);
        }
        if (tasks[i].status || build->keep) {
            tci_nvrtc_keep(build, i);
        }
        build->refused = !status && tasks[i].refuses ? i : build->refused;
        *why = status ? *why : tasks[i].why;
        status = status ? status : tasks[i].status;
        tci_heap_free(tasks[i].log);
    }
    build->processes += build->n;
    tci_heap_free(tasks);
    return status;
}
/* ---- src/cuda/device.c ---- */
/* cuda/device.c - opens GPUs, and enters and leaves their contexts (cuda/device.h).
 *
 * In: device numbers. Out: opened devices, with their properties from the driver.
 *
 * The calling thread may have another context current (the host uses CUDA as well, or there are
 * several devices): every call of the backend interface makes its device's context current and
 * restores the previous one, also on failure. So the host's streams, allocations and errors stay
 * its own. After a fork the child has no device: every call fails, and none reaches the driver. */
/* ---- src/cuda/device.h ---- */
/* cuda/device.h - declares the GPUs of this process: contexts, functions of modules, errors. */
#ifndef TCI_CUDA_DEVICE_H
#define TCI_CUDA_DEVICE_H


enum { TCI_CUDA_DEVICES = 16 };

/* One GPU; the `user` of its backend. It does not change once it is open, but
 * for `decide`. */
typedef struct tci_cuda_device {
    char name[16]; /* of its backend: "cuda", "cuda:1" */
    int index;
    bool known;    /* it was tried to open it */
    void *context; /* the primary one, retained for the rest of the process; NULL: none */
    void *stream;  /* of what is given to no other queue */
    void *decide;  /* atomic: the kernel of cuda/graph_while.c, made when first needed */
    tc_backend_target target;
} tci_cuda_device;

typedef struct tci_cuda_function {
    void *handle;
    int threads;
    bool is_skeleton; /* its argument begins with encoded tensor maps */
    tci_cuda_skeleton skeleton;
    struct tci_cuda_function *next;
} tci_cuda_function;

/* The device of that number, which may not be there; NULL: there can be none. */
TCI_FN tci_cuda_device *tci_cuda_get(int index);
/* The device behind the `user` of a call; NULL is the first. */
TCI_FN tci_cuda_device *tci_cuda_of(void *user);
/* Opens it at the first call. */
TCI_FN tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target);
/* Registers the fork handlers of the lock. */
TCI_FN void tci_cuda_keep_over_fork(void);
TCI_FN const tci_cu *tci_cuda_driver(void); /* of an open device */

/* Keeps the text for last_error. */
TCI_FN tc_status tci_cuda_say(const char *what, const char *detail);
/* TC_OK when the driver's code is 0. */
TCI_FN tc_status tci_cuda_check(int code, const char *what);
TCI_FN const char *tci_cuda_last_error(void *user);
/* A process made by fork has no device of its parent's, and no call of the driver may be made in
 * it. */
TCI_FN tc_status tci_cuda_check_process(void);
/* A stay in a device's context, which is this thread's from tci_cuda_enter to tci_cuda_leave. With
 * a status there is none, and no call of the driver is made; it is left all the same. */
typedef struct tci_cuda_stay {
    const tci_cuda_device *d;
    const tci_cu *cu;
    void *before; /* the context that the thread had */
    tc_status status;
} tci_cuda_stay;
TCI_FN tci_cuda_stay tci_cuda_enter(const tci_cuda_device *d);
/* The status of the stay, or else of what was done in it. */
TCI_FN tc_status tci_cuda_leave(const tci_cuda_stay *in, tc_status status);
/* A stay for one call of the driver, which `what` names where it fails. */
#define TCI_CUDA_DO(in, call, what)                                                                \
    tci_cuda_leave((in), (in)->status ? TC_OK : tci_cuda_check((call), (what)))

/* A recorded sequence: graphs, one after the other. */
typedef struct tci_cuda_graph {
    void *graph, *executable;
} tci_cuda_graph;
typedef struct tci_cuda_sequence {
    int n;
    tci_cuda_graph *graphs;
} tci_cuda_sequence;
/* cuda/queue.c: one of n graphs that are to be made; NULL: out of memory. */
TCI_FN tci_cuda_sequence *tci_cuda_sequence_make(int n);
/* nodes[i] of a graph, one for each launch from `first` on; NULL: it has no tasks, and nothing
 * waits for it. Launches before `first` are in an earlier graph. after: an array of as many
 * entries. */
TCI_FN tc_status tci_cuda_add_node(void *graph, const tc_launch *launch, void **nodes, int first,
                                   int i, void **after);
/* cuda/graph_while.c: a member of tc_backend. */
TCI_FN tc_status tci_cuda_record_loop(void *user, const tc_backend_loop *loop, void **sequence);

/* ---- cuda/memory.c ---- */
/* Memory from the driver itself, which users get; NULL: it has none. */
TCI_FN void *tci_cuda_get_memory(void *user, int64_t bytes);
TCI_FN void tci_cuda_free_memory(void *user, void *memory);
/* Members of tc_backend. */
TCI_FN void *tci_cuda_alloc(void *user, int64_t bytes);
TCI_FN void tci_cuda_free(void *user, void *memory);

/* ---- cuda/queue.c: the members of tc_backend and tc_backend_queues that give work ---- */
TCI_FN tc_status tci_cuda_launch(void *user, const tc_launch *launch);
TCI_FN tc_status tci_cuda_sync(void *user);
TCI_FN tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence);
TCI_FN tc_status tci_cuda_replay(void *user, void *sequence);
TCI_FN void tci_cuda_sequence_free(void *user, void *sequence);
TCI_FN tc_status tci_cuda_copy_within(void *user, void *to, const void *from, int64_t bytes);
/* upload, download, and between any memory of the process: returns when the bytes are there. */
TCI_FN tc_status tci_cuda_copy(void *user, void *to, const void *from, int64_t bytes);
TCI_FN const tc_backend_queues *tci_cuda_queues(void);

/* ---- cuda/backend.c ---- */
TCI_FN const tc_backend *tci_cuda_backend(void);

#endif

/* ---- src/cuda/device.c, continued ---- */
#include <stdio.h>
#include <string.h>


static struct {
    tci_mutex lock; /* while a device is opened */
    bool is_lost;   /* in a child made by fork */
    bool is_used;   /* some device is open */
    const tci_cu *cu;
    tci_cuda_device devices[TCI_CUDA_DEVICES];
} tci_cuda = {.lock = TCI_MUTEX_INIT};

static _Thread_local char tci_cuda_error[512];

/* ---- failures ---- */

TCI_FN tc_status tci_cuda_say(const char *what, const char *detail)
{
    snprintf(tci_cuda_error, sizeof(tci_cuda_error), "%s%s%s", what, detail[0] ? ": " : "", detail);
    return TC_ERR_BACKEND;
}

TCI_FN tc_status tci_cuda_check(int code, const char *what)
{
    const char *name = NULL;
    if (code == 0) {
        return TC_OK;
    }
    tci_cuda.cu->error_name(code, &name);
    return tci_cuda_say(what, name ? name : "an unknown error");
}

TCI_FN const char *tci_cuda_last_error(void *user)
{
    (void)user;
    return tci_cuda_error;
}

/* ---- contexts ---- */

TCI_FN const tci_cu *tci_cuda_driver(void)
{
    return tci_cuda.cu;
}

TCI_FN tci_cuda_device *tci_cuda_get(int index)
{
    return index >= 0 && index < TCI_CUDA_DEVICES ? &tci_cuda.devices[index] : NULL;
}

TCI_FN tci_cuda_device *tci_cuda_of(void *user)
{
    return user ? user : &tci_cuda.devices[0];
}

TCI_FN tc_status tci_cuda_check_process(void)
{
    return tci_cuda.is_lost
               ? tci_cuda_say("this process was made by fork, and its parent used the GPU before",
                              "CUDA does not survive a fork")
               : TC_OK;
}

TCI_FN tci_cuda_stay tci_cuda_enter(const tci_cuda_device *d)
{
    tci_cuda_stay in = {d, tci_cuda.cu, d->context, tci_cuda_check_process()};
    if (!in.status) {
        in.status = tci_cuda_check(in.cu->context_get(&in.before), "cuCtxGetCurrent");
    }
    if (!in.status && in.before != d->context) {
        in.status = tci_cuda_check(in.cu->context_set(d->context), "cuCtxSetCurrent");
    }
    return in;
}

TCI_FN tc_status tci_cuda_leave(const tci_cuda_stay *in, tc_status status)
{
    if (!in->status && in->before != in->d->context) {
        in->cu->context_set(in->before);
    }
    return in->status ? in->status : status;
}

static void tci_cuda_after_fork(void)
{
    tci_cuda.is_lost = tci_cuda.is_used;
    for (int i = 0; i < TCI_CUDA_DEVICES && tci_cuda.is_lost; i++) {
        tc_backend_target *t = &tci_cuda.devices[i].target;
        t->usable = false;
        snprintf(t->why, sizeof(t->why),
                 "CUDA does not survive a fork of a process that used the GPU");
    }
}

TCI_FN void tci_cuda_keep_over_fork(void)
{
    tci_os_keep_over_fork(&tci_cuda.lock, tci_cuda_after_fork);
}

/* ---- opening ---- */

static tc_status tci_cuda_open(tci_cuda_device *d, int device)
{
    const tci_cu *cu = tci_cuda.cu;
    tc_status status = tci_cuda_check(cu->context_retain(&d->context, device),
                                      "cuDevicePrimaryCtxRetain");
    tci_cuda.is_used = tci_cuda.is_used || !status;
    if (status) {
        return status;
    }
    tci_cuda_stay in = tci_cuda_enter(d);
    return TCI_CUDA_DO(&in, cu->stream_create(&d->stream, 1), "cuStreamCreate");
}

static int tci_cuda_attribute(int which, int device)
{
    int value = 0;
    return tci_cuda.cu->device_attribute(&value, which, device) ? 0 : TCI_MAX(value, 0);
}

/* The driver's properties of the device; unknown ones stay 0. */
static void tci_cuda_machine(int device, tc_machine *m)
{
    enum {                           /* CU_DEVICE_ATTRIBUTE_... */
           TCI_CU_SHARED = 8,        /* MAX_SHARED_MEMORY_PER_BLOCK */
           TCI_CU_WARP = 10,         /* WARP_SIZE */
           TCI_CU_CLOCK = 13,        /* CLOCK_RATE, kHz */
           TCI_CU_PROCESSORS = 16,   /* MULTIPROCESSOR_COUNT */
           TCI_CU_MEMORY_CLOCK = 36, /* MEMORY_CLOCK_RATE, kHz */
           TCI_CU_BUS = 37,          /* GLOBAL_MEMORY_BUS_WIDTH, bits */
           TCI_CU_CACHE = 38,        /* L2_CACHE_SIZE */
           TCI_CU_REGISTERS = 82,    /* MAX_REGISTERS_PER_MULTIPROCESSOR */
           TCI_CU_SHARED_MOST = 97   /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    };
    m->processors = tci_cuda_attribute(TCI_CU_PROCESSORS, device);
    m->ghz = tci_cuda_attribute(TCI_CU_CLOCK, device) * 1e-6;
    m->registers = tci_cuda_attribute(TCI_CU_REGISTERS, device);
    m->cache_bytes[2] = tci_cuda_attribute(TCI_CU_CACHE, device);
    double bytes = tci_cuda_attribute(TCI_CU_BUS, device) / 8; /* twice a clock */
    m->memory_gbs = 2e-6 * bytes * tci_cuda_attribute(TCI_CU_MEMORY_CLOCK, device);
    m->subgroup = tci_cuda_attribute(TCI_CU_WARP, device);
    m->shared_bytes = tci_cuda_attribute(TCI_CU_SHARED, device);
    m->shared_most = tci_cuda_attribute(TCI_CU_SHARED_MOST, device);
}

/* The tensor cores of warps; on Hopper for what its WGMMA units do not take (cuda/wgmma_gemm.c).
 * f16 multiply-adds per cycle of an SM, from NVIDIA's papers on the architectures: 512 for Turing
 * (TU102), 1024 for A100 (GA100), 512 for GA102 and AD102; newer GPUs, which have other units too,
 * as A100. f64 is no faster than on SIMT threads except on the large ones. */
static void tci_cuda_warps(int capability, tc_backend_target *t)
{
    bool hopper = capability / 10 == 9, large = capability == 80 || capability / 10 == 10;
    if (capability < 75) {
        return;
    }
    t->warp_unit = TC_WARP_BYTES | (hopper ? 0 : TC_WARP_HALVES) |
                   (hopper || capability < 80 ? 0 : TC_WARP_SINGLES) |
                   (hopper || large ? TC_WARP_DOUBLES : 0);
    t->machine.matrix_flops = hopper ? 0 : large ? 2048 : 1024;
}

/* Fills its target; usable only when everything works. */
static void tci_cuda_detect(tci_cuda_device *d)
{
    enum { TCI_CU_MAJOR = 75, TCI_CU_MINOR = 76 }; /* COMPUTE_CAPABILITY_... */
    tc_backend_target *t = &d->target;
    const char *why = "";
    int device = 0, driver = 0;
    tci_cuda.cu = tci_cu_get(&why);
    if (!tci_cuda.cu) {
        snprintf(t->why, sizeof(t->why), "no CUDA driver: %.100s", why);
        return;
    }
    const tci_cu *cu = tci_cuda.cu;
    tc_status status = tci_cuda_check(cu->init(0), "cuInit");
    if (!status) {
        status = tci_cuda_check(cu->device_get(&device, d->index), "cuDeviceGet");
    }
    if (!status) {
        cu->driver_version(&driver);
        status = tci_cuda_open(d, device);
    }
    if (status) {
        snprintf(t->why, sizeof(t->why), "%.120s", tci_cuda_error);
        return;
    }
    int major = tci_cuda_attribute(TCI_CU_MAJOR, device);
    int minor = tci_cuda_attribute(TCI_CU_MINOR, device);
    tci_cuda_machine(device, &t->machine);
    int processors = t->machine.processors;
    t->matrix_units = major == 9 && cu->tensor_map && cu->place_map ? processors : 0;
    tci_cuda_warps(10 * major + minor, t);
    snprintf(t->features, sizeof(t->features), "cuda sm_%d%d, %d processors, driver %d", major,
             minor, processors, driver);
    t->usable = true;
}

TCI_FN tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target)
{
    tci_cuda_device *d = tci_cuda_of(user);
    (void)vector_bits;
    pthread_mutex_lock(&tci_cuda.lock);
    if (!d->known) {
        d->known = true;
        d->index = (int)(d - tci_cuda.devices);
        d->target.vector_bytes = TCI_CUDA_THREAD_BYTES;
        d->target.block_threads = TCI_CUDA_MAX_THREADS;
        if (!tci_cuda_check_process()) {
            tci_cuda_detect(d);
        }
    }
    *target = d->target;
    pthread_mutex_unlock(&tci_cuda.lock);
    return TC_OK;
}
/* ---- src/cuda/memory.c ---- */
/* cuda/memory.c - allocates GPU memory, for programs and for users: suballocates medium sizes from
 * slabs, passes the others to the driver.
 *
 * In: sizes. Out: memory of a device. The driver suballocates small sizes, but gives everything
 * else in pages of 2 MB, so each 1.2 MB weight of a network would take 2 MB. Design: a size for
 * which pages would waste much is a suballocation from a slab, shared with others; each new slab is
 * 1/8 of the total so far, so that little of the last one is wasted.
 *
 * Invariants: suballocations of a slab are in ascending order and larger than TCI_CUDA_SMALL; an
 * empty slab is returned to the driver. Like the driver's free, freeing a suballocation waits for
 * the device first. In a child made by fork nothing here is reached, so no thread can hold the lock
 * there. */
#include <string.h>


enum { /* bytes */
       TCI_CUDA_ALIGN = 256,
       TCI_CUDA_SMALL = 1 << 20, /* up to here the driver shares out pages */
       TCI_CUDA_PAGE = 2 << 20,
       TCI_CUDA_PIECE_MOST = 8 << 20,
       TCI_CUDA_SLAB_MOST = 16 << 20
};
enum { TCI_CUDA_WASTE = 16 }; /* one in this many bytes may be wasted */

typedef struct tci_cuda_piece {
    int64_t begin, end;
} tci_cuda_piece;

typedef struct tci_cuda_slab tci_cuda_slab;
struct tci_cuda_slab {
    tci_cuda_slab *next;
    tci_cu_ptr memory;
    int64_t bytes;
    int n;
    tci_cuda_piece pieces[TCI_CUDA_SLAB_MOST / TCI_CUDA_SMALL];
};

static struct {
    tci_mutex lock;
    tci_cuda_slab *slabs[TCI_CUDA_DEVICES]; /* the oldest first */
} tci_cuda_memory = {.lock = TCI_MUTEX_INIT};

static int64_t tci_cuda_round_up(int64_t bytes, int64_t unit)
{
    return tci_ceil_div(bytes, unit) * unit;
}

static bool tci_cuda_is_piece(int64_t bytes)
{
    int64_t waste = tci_cuda_round_up(bytes, TCI_CUDA_PAGE) - bytes;
    return bytes > TCI_CUDA_SMALL && bytes <= TCI_CUDA_PIECE_MOST && waste * TCI_CUDA_WASTE > bytes;
}

/* A gap of the slab for this many bytes: the piece before which they go, *begin; -1: none. */
static int tci_cuda_find_room(const tci_cuda_slab *s, int64_t bytes, int64_t *begin)
{
    *begin = 0;
    for (int i = 0; i <= s->n; i++) {
        int64_t end = i < s->n ? s->pieces[i].begin : s->bytes;
        if (end - *begin >= bytes) {
            return i;
        }
        *begin = i < s->n ? s->pieces[i].end : end;
    }
    return -1;
}

/* A slab with this many free bytes, the last of the list; NULL: the device has no memory. */
static tci_cuda_slab *tci_cuda_add_slab(const tci_cuda_stay *in, int64_t bytes)
{
    tci_cuda_slab **at = &tci_cuda_memory.slabs[in->d->index];
    int64_t all = 0;
    for (; *at; at = &(*at)->next) {
        all += (*at)->bytes;
    }
    tci_cuda_slab *s = tci_heap_get(sizeof(*s));
    if (!s) {
        return NULL;
    }
    int64_t wanted = TCI_MIN(all / 8, (int64_t)TCI_CUDA_SLAB_MOST);
    s->bytes = tci_cuda_round_up(TCI_MAX(bytes, wanted), TCI_CUDA_PAGE);
    if (tci_cuda_check(in->cu->alloc(&s->memory, (size_t)s->bytes), "cuMemAlloc")) {
        tci_heap_free(s);
        return NULL;
    }
    *at = s;
    return s;
}

static tci_cu_ptr tci_cuda_cut(const tci_cuda_stay *in, int64_t bytes)
{
    int64_t begin = 0;
    int before = -1;
    bytes = tci_cuda_round_up(bytes, TCI_CUDA_ALIGN);
    tci_cuda_slab *s = tci_cuda_memory.slabs[in->d->index];
    while (s && (before = tci_cuda_find_room(s, bytes, &begin)) < 0) {
        s = s->next;
    }
    if (!s) {
        s = tci_cuda_add_slab(in, bytes);
        begin = before = 0;
    }
    if (!s) {
        return 0;
    }
    tci_cuda_piece *p = &s->pieces[before];
    memmove(p + 1, p, sizeof(*p) * (size_t)(s->n - before));
    *p = (tci_cuda_piece){begin, begin + bytes};
    s->n++;
    return s->memory + (tci_cu_ptr)begin;
}

/* False: it is no piece. */
static bool tci_cuda_put_back(const tci_cuda_stay *in, tci_cu_ptr memory)
{
    tci_cuda_slab **at = &tci_cuda_memory.slabs[in->d->index], *s;
    while ((s = *at) && (memory < s->memory || memory >= s->memory + (tci_cu_ptr)s->bytes)) {
        at = &s->next;
    }
    if (!s) {
        return false;
    }
    tci_cuda_piece *p = s->pieces;
    while (s->memory + (tci_cu_ptr)p->begin != memory) {
        p++;
    }
    in->cu->context_wait();
    s->n--;
    memmove(p, p + 1, sizeof(*p) * (size_t)(s->pieces + s->n - p));
    if (!s->n) {
        *at = s->next;
        in->cu->free(s->memory);
        tci_heap_free(s);
    }
    return true;
}

TCI_FN void *tci_cuda_get_memory(void *user, int64_t bytes)
{
    tci_cu_ptr p = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->alloc(&p, (size_t)bytes), "cuMemAlloc");
    return status ? NULL : (void *)(uintptr_t)p;
}

TCI_FN void tci_cuda_free_memory(void *user, void *memory)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->free((tci_cu_ptr)(uintptr_t)memory);
    }
    tci_cuda_leave(&in, TC_OK);
}

TCI_FN void *tci_cuda_alloc(void *user, int64_t bytes)
{
    if (!tci_cuda_is_piece(bytes)) {
        return tci_cuda_get_memory(user, bytes);
    }
    tci_cu_ptr p = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        pthread_mutex_lock(&tci_cuda_memory.lock);
        p = tci_cuda_cut(&in, bytes);
        pthread_mutex_unlock(&tci_cuda_memory.lock);
    }
    tci_cuda_leave(&in, TC_OK);
    return (void *)(uintptr_t)p;
}

TCI_FN void tci_cuda_free(void *user, void *memory)
{
    bool is_piece = false;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        pthread_mutex_lock(&tci_cuda_memory.lock);
        is_piece = tci_cuda_put_back(&in, (tci_cu_ptr)(uintptr_t)memory);
        pthread_mutex_unlock(&tci_cuda_memory.lock);
    }
    tci_cuda_leave(&in, TC_OK);
    if (!is_piece) {
        tci_cuda_free_memory(user, memory);
    }
}
/* ---- src/cuda/queue.c ---- */
/* cuda/queue.c - implements the backend's queues as CUDA streams: launches, recorded sequences
 * (CUDA graphs), copies.
 *
 * In: the calls of the backend interface (api/backend.h). A queue is a stream; NULL is the
 * device's own. A recorded sequence is a CUDA graph of explicit kernel nodes, each with its
 * dependencies, launched by one driver call; a long one is several graphs, one after the other.
 *
 * The driver takes calls from any thread, so nothing here takes a lock. Faults: kernels write to
 * host memory that the device maps (host_alloc), one word per launch; it can be read after the
 * stream is synchronized. */
#include <stdio.h>
#include <string.h>


enum { TCI_CUDA_MAX_ARGUMENTS = 500 }; /* 8-byte words: what every driver takes */

enum { TCI_CUDA_NODES = 4096 }; /* of a graph: the next is queued while it runs */

/* ---- launches ---- */

/* The map of one operand at its address. */
static bool tci_cuda_encode(const tc_launch *launch, const tci_cuda_map *map, int64_t *to)
{
    enum { TCI_CU_SWIZZLE_128B = 3, TCI_CU_L2_PROMOTION_128B = 2 }; /* CU_TENSOR_MAP_... */
    uint64_t dim[5], stride[4];
    unsigned box[5], step[5];
    for (int i = 0; i < 5; i++) {
        dim[i] = (uint64_t)map->dim[i];
        box[i] = (unsigned)((map->box[i] - 1) * map->step[i] + 1);
        step[i] = (unsigned)map->step[i];
        if (i < 4) {
            stride[i] = (uint64_t)map->stride[i];
        }
    }
    char *start = (char *)launch->buffers[map->operand] + map->offset;
    if (map->axes > 0) {
        int low[3], high[3];
        for (int i = 0; i < 3; i++) {
            low[i] = (int)map->low[i];
            high[i] = (int)map->high[i];
        }
        return !tci_cuda_driver()->place_map(to, (int)map->type, (unsigned)map->rank, start, dim,
                                             stride, low, high, (unsigned)map->box[0],
                                             (unsigned)map->box[1], step, 0, TCI_CU_SWIZZLE_128B,
                                             TCI_CU_L2_PROMOTION_128B, 0);
    }
    return !tci_cuda_driver()->tensor_map(to, (int)map->type, (unsigned)map->rank, start, dim,
                                          stride, box, step, 0, TCI_CU_SWIZZLE_128B,
                                          TCI_CU_L2_PROMOTION_128B, 0);
}

/* The kernel's one argument: maps of a template, operands, literals, the fault word, at least one
 * of each (see tci_cuda_head and tci_cuda_wgmma_head). False: it cannot be made. */
static bool tci_cuda_pack(const tc_launch *launch, int64_t *to)
{
    int n_buffers = TCI_MAX(launch->n_buffers, 1), n_literals = TCI_MAX(launch->n_literals, 1);
    const tci_cuda_function *f = launch->function;
    int n_maps = f->is_skeleton ? (int)f->skeleton.n_maps : 0;
    int map_words = n_maps * TCI_CUDA_MAP_WORDS;
    int n_words = map_words + n_buffers + n_literals + 1;
    if (n_words > TCI_CUDA_MAX_ARGUMENTS) {
        return false;
    }
    memset(to, 0, TCI_CUDA_MAX_ARGUMENTS * sizeof(*to));
    for (int i = 0; i < n_maps; i++) {
        if (!tci_cuda_encode(launch, &f->skeleton.maps[i], to + TCI_CUDA_MAP_WORDS * i)) {
            return false;
        }
    }
    to += map_words;
    for (int i = 0; i < launch->n_buffers; i++) {
        to[i] = (int64_t)(uintptr_t)launch->buffers[i];
    }
    for (int i = 0; i < launch->n_literals; i++) {
        to[n_buffers + i] = launch->literals[i];
    }
    to[n_buffers + n_literals] = (int64_t)(uintptr_t)launch->fault;
    return true;
}

/* The parameters that both ways of launching pass to the driver. False: the launch is too large. */
static bool tci_cuda_describe(const tc_launch *launch, bool is_packed, tci_cu_kernel_params *k)
{
    const tci_cuda_function *f = launch->function;
    int64_t blocks = launch->task_end - launch->task_begin;
    memset(k, 0, sizeof(*k));
    k->function = f->handle;
    k->grid_x = (unsigned)blocks;
    k->grid_y = k->grid_z = k->block_y = k->block_z = 1;
    k->block_x = (unsigned)f->threads;
    if (f->is_skeleton) {
        k->block_x = (unsigned)f->skeleton.block_x;
        k->block_y = (unsigned)f->skeleton.block_y;
        k->shared_bytes = (unsigned)f->skeleton.shared_bytes;
    }
    if (!is_packed || launch->task_begin != 0 || blocks > INT32_MAX) {
        tci_cuda_say("a kernel has more operands or blocks than a launch can have, or an operand "
                     "that a tensor map cannot describe",
                     "");
        return false;
    }
    return true;
}

static void *tci_cuda_stream(const tci_cuda_stay *in, void *queue)
{
    return queue ? queue : in->d->stream;
}

static tc_status tci_cuda_launch_inside(const tci_cuda_stay *in, const tc_launch *launch,
                                        void *stream)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS]; /* of tensor maps */
    tci_cu_kernel_params k;
    bool is_packed = tci_cuda_pack(launch, arguments);
    if (!tci_cuda_describe(launch, is_packed, &k)) {
        return TC_ERR_LIMIT;
    }
    void *params[] = {arguments}; /* the driver knows its size and alignment from the kernel */
    return tci_cuda_check(in->cu->launch(k.function, k.grid_x, 1, 1, k.block_x, k.block_y, 1,
                                         k.shared_bytes, stream, params, NULL),
                          "cuLaunchKernel");
}

static tc_status tci_cuda_queue_launch(void *user, void *queue, const tc_launch *launch)
{
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    void *stream = tci_cuda_stream(&in, queue);
    return tci_cuda_leave(&in, in.status ? TC_OK : tci_cuda_launch_inside(&in, launch, stream));
}

static tc_status tci_cuda_queue_sync(void *user, void *queue)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_wait(tci_cuda_stream(&in, queue)), "a kernel failed");
}

/* ---- sequences ---- */

TCI_FN tci_cuda_sequence *tci_cuda_sequence_make(int n)
{
    tci_cuda_sequence *s = tci_heap_get(sizeof(*s) + sizeof(*s->graphs) * (size_t)n);
    if (s) {
        s->n = n;
        s->graphs = (tci_cuda_graph *)(s + 1);
    }
    return s;
}

TCI_FN void tci_cuda_sequence_free(void *user, void *sequence)
{
    tci_cuda_sequence *s = sequence;
    if (!s) {
        return;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    for (int i = 0; i < s->n && !in.status; i++) {
        if (s->graphs[i].executable) {
            in.cu->graph_exec_free(s->graphs[i].executable);
        }
        if (s->graphs[i].graph) {
            in.cu->graph_free(s->graphs[i].graph);
        }
    }
    tci_cuda_leave(&in, TC_OK);
    tci_heap_free(s);
}

TCI_FN tc_status tci_cuda_add_node(void *graph, const tc_launch *launch, void **nodes, int first,
                                   int i, void **after)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS];
    tci_cu_kernel_params k;
    size_t n_after = 0;
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    for (int j = 0; j < launch->n_after; j++) {
        after[n_after] = launch->after[j] < first ? NULL : nodes[launch->after[j]];
        n_after += after[n_after] != NULL;
    }
    if (launch->node) {
        return launch->node(launch->comm, launch->job, graph, after, n_after, &nodes[i]);
    }
    bool is_packed = tci_cuda_pack(launch, arguments);
    if (!tci_cuda_describe(launch, is_packed, &k)) {
        return TC_ERR_LIMIT;
    }
    void *params[] = {arguments};
    k.params = params;
    return tci_cuda_check(tci_cuda_driver()->graph_add_kernel(&nodes[i], graph, after, n_after, &k),
                          "cuGraphAddKernelNode");
}

/* Launches [first, last) of those. after: an array of as many entries. */
static tc_status tci_cuda_make_graph(tci_cuda_graph *g, const tc_launch *launches, void **nodes,
                                     void **after, int first, int last)
{
    enum { TCI_CU_USE_NODE_PRIORITY = 8 }; /* CUDA_GRAPH_INSTANTIATE_FLAG_... */
    const tci_cu *cu = tci_cuda_driver();
    unsigned flags = 0;
    tc_status status = tci_cuda_check(cu->graph_create(&g->graph, 0), "cuGraphCreate");
    for (int i = first; i < last && !status; i++) {
        status = tci_cuda_add_node(g->graph, &launches[i], nodes, first, i, after);
        flags |= launches[i].node ? TCI_CU_USE_NODE_PRIORITY : 0;
    }
    if (!status) {
        status = tci_cuda_check(cu->graph_instantiate(&g->executable, g->graph, flags),
                                "cuGraphInstantiate");
    }
    return status;
}

static tc_status tci_cuda_make_graphs(tci_cuda_sequence *s, const tc_launch *launches, int n)
{
    void **nodes = tci_heap_get(sizeof(*nodes) * 2 * (size_t)TCI_MAX(n, 1));
    tc_status status = nodes ? TC_OK : TC_ERR_MEMORY;
    for (int i = 0; i < s->n && !status; i++) {
        int first = i * TCI_CUDA_NODES;
        status = tci_cuda_make_graph(&s->graphs[i], launches, nodes, nodes + n, first,
                                     TCI_MIN(n, first + TCI_CUDA_NODES));
    }
    tci_heap_free(nodes);
    return status;
}

TCI_FN tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence)
{
    tci_cuda_sequence *s = tci_cuda_sequence_make(
        TCI_MAX((n + TCI_CUDA_NODES - 1) / TCI_CUDA_NODES, 1));
    *sequence = NULL;
    if (!s) {
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = in.status ? TC_OK : tci_cuda_make_graphs(s, launches, n);
    status = tci_cuda_leave(&in, status);
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}

static tc_status tci_cuda_queue_replay(void *user, void *queue, void *sequence)
{
    const tci_cuda_sequence *s = sequence;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    void *stream = tci_cuda_stream(&in, queue);
    tc_status status = TC_OK;
    for (int i = 0; i < s->n && !in.status && !status; i++) {
        status = tci_cuda_check(in.cu->graph_launch(s->graphs[i].executable, stream),
                                "cuGraphLaunch");
    }
    return tci_cuda_leave(&in, status);
}

/* ---- copies ---- */

static tc_status tci_cuda_queue_copy(void *user, void *queue, void *to, const void *from,
                                     int64_t bytes)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in,
                       in.cu->copy((tci_cu_ptr)(uintptr_t)to, (tci_cu_ptr)(uintptr_t)from,
                                   (size_t)bytes, tci_cuda_stream(&in, queue)),
                       "cuMemcpyAsync");
}

TCI_FN tc_status tci_cuda_copy_within(void *user, void *to, const void *from, int64_t bytes)
{
    return tci_cuda_queue_copy(user, NULL, to, from, bytes);
}

TCI_FN tc_status tci_cuda_copy(void *user, void *to, const void *from, int64_t bytes)
{
    tc_status status = tci_cuda_queue_copy(user, NULL, to, from, bytes);
    if (status) {
        return status;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_wait(in.d->stream), "cuStreamSynchronize");
}

/* ---- the device's own queue ---- */

TCI_FN tc_status tci_cuda_launch(void *user, const tc_launch *launch)
{
    return tci_cuda_queue_launch(user, NULL, launch);
}

TCI_FN tc_status tci_cuda_replay(void *user, void *sequence)
{
    return tci_cuda_queue_replay(user, NULL, sequence);
}

TCI_FN tc_status tci_cuda_sync(void *user)
{
    return tci_cuda_queue_sync(user, NULL);
}

/* ---- queues ---- */

static tc_status tci_cuda_queue_make(void *user, void **queue)
{
    *queue = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_create(queue, 1), "cuStreamCreate");
}

static void tci_cuda_queue_free(void *user, void *queue)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->stream_free(queue);
    }
    tci_cuda_leave(&in, TC_OK);
}

/* ---- events ---- */

static tc_status tci_cuda_event_make(void *user, void **event)
{
    *event = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_create(event, 0), "cuEventCreate");
}

static void tci_cuda_event_free(void *user, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->event_free(event);
    }
    tci_cuda_leave(&in, TC_OK);
}

static tc_status tci_cuda_event_record(void *user, void *queue, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_record(event, tci_cuda_stream(&in, queue)),
                       "cuEventRecord");
}

static tc_status tci_cuda_event_wait(void *user, void *queue, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_after(tci_cuda_stream(&in, queue), event, 0),
                       "cuStreamWaitEvent");
}

static tc_status tci_cuda_event_sync(void *user, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_wait(event), "a kernel failed");
}

static tc_status tci_cuda_event_elapsed(void *user, void *from, void *to, double *ms)
{
    float elapsed = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->event_elapsed(&elapsed, from, to),
                                   "cuEventElapsedTime");
    *ms = elapsed;
    return status;
}

/* ---- memory of the host that the device sees ---- */

static void *tci_cuda_host_alloc(void *user, int64_t bytes)
{
    enum { TCI_CU_PORTABLE_MAPPED = 3 }; /* CU_MEMHOSTALLOC_... */
    void *memory = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(
        &in, in.cu->host_alloc(&memory, (size_t)bytes, TCI_CU_PORTABLE_MAPPED), "cuMemHostAlloc");
    return status ? NULL : memory;
}

static void tci_cuda_host_free(void *user, void *memory)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->host_free(memory);
    }
    tci_cuda_leave(&in, TC_OK);
}

TCI_FN const tc_backend_queues *tci_cuda_queues(void)
{
    static const tc_backend_queues queues = {
        .make = tci_cuda_queue_make,
        .free = tci_cuda_queue_free,
        .launch = tci_cuda_queue_launch,
        .replay = tci_cuda_queue_replay,
        .copy = tci_cuda_queue_copy,
        .sync = tci_cuda_queue_sync,
        .event_make = tci_cuda_event_make,
        .event_free = tci_cuda_event_free,
        .event_record = tci_cuda_event_record,
        .event_wait = tci_cuda_event_wait,
        .event_sync = tci_cuda_event_sync,
        .event_elapsed = tci_cuda_event_elapsed,
        .host_alloc = tci_cuda_host_alloc,
        .host_free = tci_cuda_host_free,
    };
    return &queues;
}
/* ---- src/cuda/graph_while.c ---- */
/* cuda/graph_while.c - runs while loops on the device: a CUDA graph with conditional nodes.
 *
 * In: the launches of two consecutive iterations (carries alternate between two buffers), and their
 * continue flags. Out: a sequence
 *
 *     decide(go[0]) -> while: rounds[0], decide(go[1]) -> if: rounds[1], decide(go[0])
 *
 * where `decide` is a kernel of one thread that counts iterations and sets the conditions of the
 * nodes. CUDA C++ without headers cannot, so it is PTX, compiled by the driver on first use. */
#include <string.h>


enum { TCI_CUDA_LOOP_NODES = 4096 }; /* of both rounds together, at most */

/* decide(go, done, step, most, node, other): *done is set to 0 (step 0) or grows by one; if *go and
 * *done < most, the nodes (other: 0 for none) are done. */
static const char tci_cuda_decide_text[] =
    ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 node, .param .b32 value);\n"
    ".visible .entry decide(.param .u64 go, .param .u64 done, .param .u64 step, .param .u64 most,\n"
    "                       .param .u64 node, .param .u64 other)\n"
    "{\n"
    "    .reg .pred p, q;\n    .reg .u64 r<7>;\n    .reg .b16 h;\n    .reg .b32 w;\n"
    "    ld.param.u64 r0, [go];\n    ld.param.u64 r1, [done];\n    ld.param.u64 r2, [step];\n"
    "    ld.param.u64 r3, [most];\n    ld.param.u64 r4, [node];\n    ld.param.u64 r5, [other];\n"
    "    ld.global.u64 r6, [r1];\n    setp.eq.u64 q, r2, 0;\n@q  mov.u64 r6, 0;\n"
    "    add.u64 r6, r6, r2;\n    st.global.u64 [r1], r6;\n"
    "    ld.global.u8 h, [r0];\n    setp.ne.u16 p, h, 0;\n    setp.lt.and.u64 p, r6, r3, p;\n"
    "    selp.u32 w, 1, 0, p;\n"
    "    { .param .b64 x; .param .b32 y; st.param.b64 [x], r4; st.param.b32 [y], w;\n"
    "      call.uni cudaGraphSetConditional, (x, y); }\n"
    "    setp.eq.u64 p, r5, 0;\n@p  bra END;\n"
    "    { .param .b64 x; .param .b32 y; st.param.b64 [x], r5; st.param.b32 [y], w;\n"
    "      call.uni cudaGraphSetConditional, (x, y); }\n"
    "END:\n    ret;\n}\n";

/* One that another thread made meanwhile is taken; modules stay as long as the process. */
static void *tci_cuda_decide(tci_cuda_device *d)
{
    const tci_cu *cu = tci_cuda_driver();
    void *made = __atomic_load_n(&d->decide, __ATOMIC_ACQUIRE), *module = NULL, *none = NULL;
    if (made || !cu->graph_handle || !cu->graph_add) {
        return made;
    }
    if (cu->module_load(&module, tci_cuda_decide_text)) {
        return NULL;
    }
    if (cu->module_find(&made, module, "decide")) {
        made = NULL;
    }
    bool first = made && __atomic_compare_exchange_n(&d->decide, &none, made, false,
                                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    if (!first) {
        cu->module_free(module);
    }
    return first ? made : none;
}

typedef struct tci_cuda_looping {
    tci_cuda_device *d;
    const tc_backend_loop *loop;
    void *decide;
    void **nodes, **after;    /* an entry for each launch of an iteration */
    unsigned long long again; /* handle of the while */
} tci_cuda_looping;

/* Behind `before`, if that is not NULL; *node is it. */
static tc_status tci_cuda_loop_decide(const tci_cuda_looping *x, void *graph, void *before,
                                      int parity, uint64_t step, unsigned long long other,
                                      void **node)
{
    uint64_t go = (uintptr_t)x->loop->go[parity], done = (uintptr_t)x->loop->done;
    uint64_t most = (uint64_t)x->loop->most, again = x->again, also = other;
    void *params[] = {&go, &done, &step, &most, &again, &also};
    tci_cu_kernel_params k = {.function = x->decide,
                              .grid_x = 1,
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = 1,
                              .block_y = 1,
                              .block_z = 1,
                              .params = params};
    return tci_cuda_check(tci_cuda_driver()->graph_add_kernel(node, graph, &before, before != NULL,
                                                              &k),
                          "cuGraphAddKernelNode");
}

/* A conditional node behind another; *body is its graph. */
static tc_status tci_cuda_loop_node(const tci_cuda_looping *x, void *graph, void *before,
                                    unsigned long long handle, int kind, void **body)
{
    enum { TCI_CU_CONDITIONAL = 13 }; /* CU_GRAPH_NODE_TYPE_... */
    tci_cu_conditional c = {.type = TCI_CU_CONDITIONAL,
                            .handle = handle,
                            .kind = kind,
                            .n_bodies = 1,
                            .context = x->d->context};
    void *node = NULL;
    tc_status status = tci_cuda_check(tci_cuda_driver()->graph_add(&node, graph, &before, 1, &c),
                                      "cuGraphAddNode");
    *body = status ? NULL : c.bodies[0];
    return status;
}

/* The launches of a round, each after the one before. *last: that of the last, NULL: of none. */
static tc_status tci_cuda_loop_round(const tci_cuda_looping *x, void *graph, int parity,
                                     void **last)
{
    tc_status status = TC_OK;
    int32_t before = -1;
    for (int i = 0; i < x->loop->n && !status; i++) {
        tc_launch launch = x->loop->rounds[parity][i];
        launch.after = &before;
        launch.n_after = before >= 0;
        x->nodes[i] = NULL;
        status = tci_cuda_add_node(graph, &launch, x->nodes, 0, i, x->after);
        before = x->nodes[i] ? i : before;
    }
    *last = before >= 0 ? x->nodes[before] : NULL;
    return status;
}

static tc_status tci_cuda_loop_handle(const tci_cuda_looping *x, void *graph,
                                      unsigned long long *handle)
{
    return tci_cuda_check(tci_cuda_driver()->graph_handle(handle, graph, x->d->context, 0, 0),
                          "cuGraphConditionalHandleCreate");
}

static tc_status tci_cuda_loop_graph(tci_cuda_looping *x, void *graph)
{
    enum { TCI_CU_IF = 0, TCI_CU_WHILE = 1 }; /* CU_GRAPH_COND_TYPE_... */
    void *node = NULL, *even = NULL, *odd = NULL;
    unsigned long long other = 0;
    tc_status status = tci_cuda_loop_handle(x, graph, &x->again);
    status = status ? status : tci_cuda_loop_decide(x, graph, NULL, 0, 0, 0, &node);
    status = status ? status : tci_cuda_loop_node(x, graph, node, x->again, TCI_CU_WHILE, &even);
    status = status ? status : tci_cuda_loop_handle(x, even, &other);
    status = status ? status : tci_cuda_loop_round(x, even, 0, &node);
    status = status ? status : tci_cuda_loop_decide(x, even, node, 1, 1, other, &node);
    status = status ? status : tci_cuda_loop_node(x, even, node, other, TCI_CU_IF, &odd);
    status = status ? status : tci_cuda_loop_round(x, odd, 1, &node);
    return status ? status : tci_cuda_loop_decide(x, odd, node, 0, 1, 0, &node);
}

/* Builds a loop in the driver's graph. If the driver cannot, the host runs it iteration by
 * iteration. */
static tc_status tci_cuda_loop_make(tci_cuda_looping *x, tci_cuda_graph *g)
{
    const tci_cu *cu = tci_cuda_driver();
    x->decide = tci_cuda_decide(x->d);
    if (!x->decide) {
        return TC_ERR_UNSUPPORTED;
    }
    tc_status status = tci_cuda_check(cu->graph_create(&g->graph, 0), "cuGraphCreate");
    status = status ? status : tci_cuda_loop_graph(x, g->graph);
    if (!status) {
        status = tci_cuda_check(cu->graph_instantiate(&g->executable, g->graph, 0),
                                "cuGraphInstantiate");
    }
    return status && status != TC_ERR_MEMORY ? TC_ERR_UNSUPPORTED : status;
}

TCI_FN tc_status tci_cuda_record_loop(void *user, const tc_backend_loop *loop, void **sequence)
{
    tci_cuda_looping x = {.d = tci_cuda_of(user), .loop = loop};
    *sequence = NULL;
    if (2 * loop->n > TCI_CUDA_LOOP_NODES) {
        return TC_ERR_UNSUPPORTED;
    }
    tci_cuda_sequence *s = tci_cuda_sequence_make(1);
    x.nodes = tci_heap_get(sizeof(*x.nodes) * 2 * (size_t)TCI_MAX(loop->n, 1));
    x.after = x.nodes ? x.nodes + loop->n : NULL;
    if (!s || !x.nodes) {
        tci_heap_free(s);
        tci_heap_free(x.nodes);
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(x.d);
    tc_status status = tci_cuda_leave(&in, in.status ? TC_OK : tci_cuda_loop_make(&x, s->graphs));
    tci_heap_free(x.nodes);
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}
/* ---- src/cuda/backend.c ---- */
/* cuda/backend.c - implements the "cuda" backend: CUDA source by NVRTC; one backend per GPU.
 *
 * In: the calls of the backend interface (api/backend.h) other than launches (cuda/queue.c):
 * compiling, modules. Out: the backend of each device. */

#include <stdio.h>
#include <string.h>


typedef struct tci_cuda_module {
    void *handle;
    tci_cuda_function *functions; /* atomic: pushed in front */
} tci_cuda_module;

/* ---- compiling ---- */

/* The library is not opened for this: a warm start never needs it. */
static tc_status tci_cuda_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    const char *why = "";
    (void)user;
    (void)wanted; /* a C compiler */
    memset(compiler, 0, sizeof(*compiler));
    if (tci_cuda_check_process()) {
        return TC_ERR_COMPILER; /* what it makes could not be loaded */
    }
    snprintf(compiler->path, sizeof(compiler->path), "%s", tci_nvrtc_path());
    compiler->vector_bytes = TCI_CUDA_THREAD_BYTES;
    if (compiler->path[0] && tci_os_stat(compiler->path, &compiler->bytes, &compiler->mtime_ns)) {
        return TC_OK;
    }
    if (tci_nvrtc_get(&why)) {
        return TC_OK;
    }
    tci_cuda_say("NVRTC cannot be opened", why);
    return TC_ERR_COMPILER;
}

/* Values read from a target's features. */
typedef struct tci_cuda_facts {
    int capability, processors, driver;
} tci_cuda_facts;

static bool tci_cuda_read_facts(const char *features, tci_cuda_facts *f)
{
    return sscanf(features, "cuda sm_%d, %d processors, driver %d", &f->capability, &f->processors,
                  &f->driver) == 3;
}

/* Of the target's architecture, which need not be that of a device here. Hopper's matrix units are
 * of its very architecture. */
static tc_status tci_cuda_compile(void *user, tc_build *build)
{
    const char *why = "the target is no GPU of CUDA";
    char option[48];
    tci_cuda_facts target;
    tc_status status = TC_ERR_COMPILER;
    (void)user;
    if (tci_cuda_read_facts(build->features, &target)) {
        snprintf(option, sizeof(option), "--gpu-architecture=sm_%d%s", target.capability,
                 target.capability / 10 == 9 ? "a" : "");
        status = tci_nvrtc_build(build, option, &why);
    }
    if (status) {
        tci_cuda_say(why, "");
    }
    return status;
}

/* A cubin runs on devices of its generation that are no older (CUDA programming guide, "Binary
 * Compatibility"); on Hopper on the very one. */
static bool tci_cuda_runs(void *user, const char *features)
{
    tci_cuda_facts code, mine;
    const tci_cuda_device *d = tci_cuda_of(user);
    if (!d->target.usable || !tci_cuda_read_facts(features, &code) ||
        !tci_cuda_read_facts(d->target.features, &mine)) {
        return false;
    }
    bool same = code.capability / 10 == mine.capability / 10 &&
                (code.capability / 10 == 9 ? code.capability == mine.capability
                                           : code.capability <= mine.capability);
    return same && code.processors <= mine.processors && code.driver <= mine.driver;
}

/* ---- modules ---- */

static tc_status tci_cuda_module_load(void *user, const void *cubin, size_t n, const char *path,
                                      void **module)
{
    (void)n; /* a cubin says how long it is */
    (void)path;
    *module = NULL;
    tci_cuda_module *m = tci_heap_get(sizeof(*m));
    if (!m) {
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->module_load(&m->handle, cubin), "cuModuleLoadData");
    if (status) {
        tci_heap_free(m);
        return status;
    }
    *module = m;
    return TC_OK;
}

/* Reads a module's description of a kernel with its own main loop, if it is one. */
static bool tci_cuda_read_skeleton(const tci_cuda_device *d, const tci_cuda_module *m,
                                   const char *symbol, tci_cuda_function *f)
{
    enum { TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 }; /* CU_FUNC_ATTRIBUTE_... */
    const tci_cu *cu = tci_cuda_driver();
    tci_cuda_skeleton *k = &f->skeleton;
    char name[256];
    tci_cu_ptr at = 0;
    size_t bytes = 0;
    snprintf(name, sizeof(name), "%s_skeleton", symbol);
    if (cu->module_global(&at, &bytes, m->handle, name)) {
        return true;
    }
    f->is_skeleton = true;
    return bytes == sizeof(*k) && !cu->copy((tci_cu_ptr)(uintptr_t)k, at, bytes, d->stream) &&
           !cu->stream_wait(d->stream) && k->n_maps <= TCI_CUDA_MAPS &&
           !cu->function_set(f->handle, TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)k->shared_bytes);
}

static bool tci_cuda_describe_function(const tci_cuda_device *d, const tci_cuda_module *m,
                                       const char *symbol, tci_cuda_function *f)
{
    /* CU_FUNC_ATTRIBUTE_...: what __launch_bounds__ said */
    enum { TCI_CU_MAX_THREADS_PER_BLOCK = 0 };
    tci_cuda_stay in = tci_cuda_enter(d);
    bool found = !in.status && !in.cu->module_find(&f->handle, m->handle, symbol) &&
                 !in.cu->function_attribute(&f->threads, TCI_CU_MAX_THREADS_PER_BLOCK, f->handle) &&
                 tci_cuda_read_skeleton(d, m, symbol, f);
    tci_cuda_leave(&in, TC_OK);
    return found;
}

static void *tci_cuda_module_find(void *user, void *module, const char *symbol)
{
    tci_cuda_module *m = module;
    tci_cuda_function *f = tci_heap_get(sizeof(*f));
    if (!f) {
        return NULL;
    }
    if (!tci_cuda_describe_function(tci_cuda_of(user), m, symbol, f)) {
        tci_heap_free(f);
        return NULL;
    }
    f->next = __atomic_load_n(&m->functions, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&m->functions, &f->next, f, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    return f;
}

static void tci_cuda_module_free(void *user, void *module)
{
    tci_cuda_module *m = module;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->module_free(m->handle);
    }
    tci_cuda_leave(&in, TC_OK);
    while (m->functions) {
        tci_cuda_function *next = m->functions->next;
        tci_heap_free(m->functions);
        m->functions = next;
    }
    tci_heap_free(m);
}

/* ---- memory ---- */

/* Memory of another device is copied like the host's. */
static bool tci_cuda_is_device(void *user, const void *memory)
{
    /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    enum { TCI_CU_MEMORY_TYPE = 2, TCI_CU_ORDINAL = 9, TCI_CU_DEVICE = 2 };
    unsigned type = 0;
    int ordinal = -1;
    tci_cu_ptr p = (tci_cu_ptr)(uintptr_t)memory;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    bool is_own = !in.status && !in.cu->pointer_attribute(&type, TCI_CU_MEMORY_TYPE, p) &&
                  type == TCI_CU_DEVICE && !in.cu->pointer_attribute(&ordinal, TCI_CU_ORDINAL, p) &&
                  ordinal == in.d->index;
    tci_cuda_leave(&in, TC_OK);
    return is_own;
}

static bool tci_cuda_is_hidden(void *user, const void *memory)
{
    /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    enum { TCI_CU_MEMORY_TYPE = 2, TCI_CU_HOST_POINTER = 4, TCI_CU_DEVICE = 2 };
    unsigned type = 0;
    void *host = NULL;
    tci_cu_ptr p = (tci_cu_ptr)(uintptr_t)memory;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    bool is_hidden = !in.status && !in.cu->pointer_attribute(&type, TCI_CU_MEMORY_TYPE, p) &&
                     type == TCI_CU_DEVICE && /* managed memory has an address for the host too */
                     in.cu->pointer_attribute(&host, TCI_CU_HOST_POINTER, p);
    tci_cuda_leave(&in, TC_OK);
    return is_hidden;
}

/* ---- the seam ---- */

static const tc_backend *tci_cuda_device_backend(void *user, int index);

static tc_status tci_cuda_memory_left(void *user, int64_t *free_bytes, int64_t *all_bytes)
{
    size_t left = 0, all = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->memory_left(&left, &all), "cuMemGetInfo");
    *free_bytes = (int64_t)left;
    *all_bytes = (int64_t)all;
    return status;
}

static void tci_cuda_fill_backend(tc_backend *b, int index)
{
    tci_cuda_device *d = tci_cuda_get(index);
    snprintf(d->name, sizeof(d->name), index ? "cuda:%d" : "cuda", index);
    *b = (tc_backend){
        .name = d->name,
        .dialect = "cuda",
        .own_dialect = tci_cuda_words(),
        .user = d,
        .target = tci_cuda_target,
        .compiler = tci_cuda_compiler,
        .compile = tci_cuda_compile,
        .module_load = tci_cuda_module_load,
        .module_find = tci_cuda_module_find,
        .module_free = tci_cuda_module_free,
        .launch = tci_cuda_launch,
        .sync = tci_cuda_sync,
        .alloc = tci_cuda_alloc,
        .free = tci_cuda_free,
        .upload = tci_cuda_copy,
        .download = tci_cuda_copy,
        .record = tci_cuda_record,
        .replay = tci_cuda_replay,
        .sequence_free = tci_cuda_sequence_free,
        .record_loop = tci_cuda_record_loop,
        .copy = tci_cuda_copy_within,
        .is_device = tci_cuda_is_device,
        .last_error = tci_cuda_last_error,
        .queues = tci_cuda_queues(),
        .device = tci_cuda_device_backend,
        .is_hidden = tci_cuda_is_hidden,
        .memory_left = tci_cuda_memory_left,
        .runs = tci_cuda_runs,
    };
}

/* Filled by tci_cuda_backend, before anybody can ask for one. */
static tc_backend tci_cuda_backends[TCI_CUDA_DEVICES];

static const tc_backend *tci_cuda_device_backend(void *user, int index)
{
    (void)user;
    return tci_cuda_get(index) ? &tci_cuda_backends[index] : NULL;
}

/* Called once, before anything else of this backend. The order in which the locks are announced is
 * that in which they are taken: for the target the driver is looked up. */
TCI_FN const tc_backend *tci_cuda_backend(void)
{
    for (int i = 0; i < TCI_CUDA_DEVICES && !tci_cuda_backends[i].name; i++) {
        tci_cuda_fill_backend(&tci_cuda_backends[i], i);
    }
    tci_cuda_keep_over_fork();
    tci_cu_keep_over_fork();
    return &tci_cuda_backends[0];
}
/* ---- src/cuda/public_calls.c ---- */
/* cuda/public_calls.c - implements api/cuda.h: allocates, frees and copies GPU memory, and wraps a
 * CUDA stream as a queue.
 *
 * In: sizes, pointers, streams of the caller. Out: memory of a device, queues. */
#include <string.h>


#define TCI_CUDA_LEGACY ((void *)(uintptr_t)1) /* CU_STREAM_LEGACY */

static bool tci_cuda_works(tci_cuda_device *d)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    if (d) {
        tci_cuda_target(d, 0, &target);
    }
    if (target.usable) {
        tci_backend_has_memory("cuda");
    }
    return target.usable;
}

TC_API tc_status tc_cuda_alloc_on(int device, int64_t bytes, void **memory)
{
    tci_cuda_device *d = tci_cuda_get(device);
    if (!memory || bytes < 0) {
        return TC_ERR_ARGUMENT;
    }
    *memory = NULL;
    if (!tci_cuda_works(d)) {
        return TC_ERR_BACKEND;
    }
    *memory = tci_cuda_get_memory(d, TCI_MAX(bytes, (int64_t)1));
    return *memory ? TC_OK : TC_ERR_MEMORY;
}

TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory)
{
    return tc_cuda_alloc_on(0, bytes, memory);
}

/* The driver knows whose it is. */
TC_API void tc_cuda_free(void *memory)
{
    if (memory && tci_cuda_works(tci_cuda_get(0))) {
        tci_cuda_free_memory(NULL, memory);
    }
}

TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes < 0 || (bytes > 0 && (!to || !from))) {
        return TC_ERR_ARGUMENT;
    }
    if (!tci_cuda_works(tci_cuda_get(0))) {
        return TC_ERR_BACKEND;
    }
    return bytes ? tci_cuda_copy(NULL, to, from, bytes) : TC_OK;
}

TC_API tc_status tc_cuda_queue(int device, void *stream, tc_queue **queue)
{
    tci_cuda_device *d = tci_cuda_get(device);
    if (!queue) {
        return TC_ERR_ARGUMENT;
    }
    *queue = NULL;
    if (!tci_cuda_works(d)) {
        return TC_ERR_BACKEND;
    }
    const tc_backend *backend = tci_cuda_backend()->device(NULL, device);
    *queue = tci_queue_over(backend, stream ? stream : TCI_CUDA_LEGACY);
    return *queue ? TC_OK : TC_ERR_MEMORY;
}

#undef TCI_CUDA_LEGACY
#endif
