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
#include "match_matrix_unit.h"

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
