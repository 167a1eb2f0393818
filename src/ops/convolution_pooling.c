/* ops/convolution_pooling.c - builds convolution, pooling, im2col and col2im from sliding windows
 * (PAD and WINDOW nodes) over one to three spatial axes.
 *
 * In: x [N, C, ...] with one to three spatial axes, options whose zero fields mean a default. Out:
 * PAD and WINDOW nodes, and a contraction or a reduction over the elements of each window. One
 * builder serves any number of axes; the planner decides how elements are reused. Pools whose
 * windows differ in length (adaptive pooling) read x along one axis after the other at positions
 * that follow from the sizes. */
#include "convolution_pooling.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- images ---- */

TCI_FN bool tci_image_of(tci_graph *g, const tci_node *x, int n, tci_image *image)
{
    static const char *const forms[TCI_IMAGE_AXES] = {"[N, C, L] or [C, L]",
                                                      "[N, C, H, W] or [C, H, W]",
                                                      "[N, C, D, H, W] or [C, D, H, W]"};
    if (x->rank != n + 1 && x->rank != n + 2) {
        tci_graph_fail(g, TC_ERR_SHAPE, "x has shape %s: expected %s", TCI_SHAPE_TEXT(x),
                       forms[n - 1]);
        return false;
    }
    image->n = n;
    image->batched = x->rank == n + 2;
    image->sizes[0] = 1;
    for (int i = 0; i < x->rank; i++) {
        image->sizes[n + 2 - x->rank + i] = x->shape[i];
    }
    return true;
}

TCI_FN tci_node *tci_image_result(tci_graph *g, const tci_image *image, tci_node *r)
{
    return r && !image->batched ? tci_build_reshape(g, r, r->rank - 1, r->shape + 1) : r;
}

TCI_FN bool tci_window_fields(tci_graph *g, const char *name, int n, int64_t *v,
                              const int64_t *given, const int64_t *otherwise)
{
    for (int i = 0; i < n; i++) {
        v[i] = given && given[i] ? given[i] : otherwise[i];
        if (!tci_build_check_dim(g, name, v[i], TC_ERR_ARGUMENT)) {
            return false;
        }
        if (v[i] < 0 || v[i] > INT64_MAX / 16) {
            tci_graph_fail(g, TC_ERR_ARGUMENT, "%s is %s: expected small positive numbers", name,
                           TCI_DIM_TEXT(v[i]));
            return false;
        }
    }
    return true;
}

TCI_FN tci_node *tci_window_over(tci_graph *g, tci_node *x, int n, const int64_t *before,
                                 const tci_dim *after, tci_node *fill, const tci_dim *kernel,
                                 const int64_t *stride, const int64_t *dilation)
{
    tci_dim lo[TCI_IMAGE_RANK] = {0}, hi[TCI_IMAGE_RANK] = {0}, spec[4 * TCI_IMAGE_AXES];
    for (int i = 0; x && i < n; i++) {
        int axis = x->rank - n + i;
        lo[axis] = before[i];
        hi[axis] = after[i];
        spec[4 * i] = axis;
        spec[4 * i + 1] = kernel[i];
        spec[4 * i + 2] = stride[i];
        spec[4 * i + 3] = dilation[i];
    }
    return tci_build_window(g, tci_build_pad_axes(g, x, lo, hi, fill), n, spec);
}

/* ---- convolutions ---- */

/* Padding that keeps the size: half of what a window reads beyond one element on each side, and
 * the odd one behind. */
static bool tci_window_same(tci_graph *g, int n, const tci_node *w, tci_window_conv *c)
{
    for (int i = 0; i < n; i++) {
        const tci_dim size = w->shape[w->rank - n + i];
        if (c->stride[i] != 1 || c->padding[i] || c->after[i] || !tci_dim_is_known(size)) {
            tci_graph_fail(g, TC_ERR_ARGUMENT,
                           "same with stride %" PRId64 " and padding %" PRId64 ": expected a "
                           "stride of 1 and no other padding",
                           c->stride[i], c->padding[i]);
            return false;
        }
        const int64_t all = c->dilation[i] * (tci_dim_known(size) - 1);
        c->padding[i] = all / 2;
        c->after[i] = all - all / 2;
    }
    return true;
}

TCI_FN bool tci_window_conv_of(tci_graph *g, int n, const struct tc_conv *o, const tci_node *w,
                               tci_window_conv *c)
{
    c->groups = o && o->groups ? o->groups : 1;
    if (!tci_window_fields(g, "stride", n, c->stride, o ? o->stride : NULL, tci_window_ones) ||
        !tci_window_fields(g, "padding", n, c->padding, o ? o->padding : NULL, tci_window_zeros) ||
        !tci_window_fields(g, "the end padding", n, c->after, o ? o->end_padding : NULL,
                           tci_window_zeros) ||
        !tci_window_fields(g, "dilation", n, c->dilation, o ? o->dilation : NULL,
                           tci_window_ones) ||
        !tci_window_fields(g, "the output padding", n, c->more, o ? o->output_padding : NULL,
                           tci_window_zeros)) {
        return false;
    }
    if (o && o->same) {
        return tci_window_same(g, n, w, c);
    }
    for (int i = 0; i < n; i++) {
        c->after[i] += c->padding[i];
    }
    return true;
}

TCI_FN bool tci_window_conv_check(tci_graph *g, const tci_node *x, const tci_image *image,
                                  const tci_node *w, const tci_node *bias, int64_t groups,
                                  bool transposed)
{
    static const char *const axes[TCI_IMAGE_AXES] = {"k", "kh, kw", "kd, kh, kw"};
    const tci_dim channels = image->sizes[1];
    if (w->rank != image->n + 2) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the weight has shape %s: expected [%s / groups, %s]",
                       TCI_SHAPE_TEXT(w), transposed ? "C, O" : "O, C", axes[image->n - 1]);
        return false;
    }
    if (w->dtype != x->dtype || (bias && bias->dtype != x->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "x is %s, the weight %s, the bias %s: expected one dtype (tc_cast converts)",
                       tci_dtype_get((tc_dtype)x->dtype)->name,
                       tci_dtype_get((tc_dtype)w->dtype)->name,
                       bias ? tci_dtype_get((tc_dtype)bias->dtype)->name : "absent");
        return false;
    }
    if (!tci_dim_is_known(groups) || groups < 1 || !tci_dim_divides(groups, channels) ||
        !tci_dim_divides(groups, w->shape[0])) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "groups is %s: expected a divisor of %s channels in and %s out",
                       TCI_DIM_TEXT(groups), TCI_DIM_TEXT(channels), TCI_DIM_TEXT(w->shape[0]));
        return false;
    }
    const tci_dim reads = transposed ? w->shape[0] : w->shape[1];
    const tci_dim out = transposed ? tci_dim_mul(w->shape[1], groups) : w->shape[0];
    if (reads != (transposed ? channels : tci_dim_div(channels, groups))) {
        tci_graph_fail(
            g, TC_ERR_SHAPE,
            "the weight of shape %s reads %s channels%s: x of shape %s%s has %s channels "
            "in %" PRId64 " groups",
            TCI_SHAPE_TEXT(w), TCI_DIM_TEXT(reads), transposed ? "" : " a group", TCI_SHAPE_TEXT(x),
            image->batched ? "" : ", one image without an axis N,", TCI_DIM_TEXT(channels), groups);
        return false;
    }
    if (bias && (bias->rank != 1 || bias->shape[0] != out)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the bias has shape %s: expected [%s]",
                       TCI_SHAPE_TEXT(bias), TCI_DIM_TEXT(out));
        return false;
    }
    return true;
}

TCI_FN tci_node *tci_window_grouped(tci_graph *g, tci_node *x, int n, const tci_dim *sizes,
                                    int64_t groups)
{
    tci_dim shape[TCI_IMAGE_RANK];
    if (groups == 1) {
        return tci_build_reshape(g, x, n + 2, sizes);
    }
    shape[0] = sizes[0];
    shape[1] = groups;
    shape[2] = tci_dim_div(sizes[1], groups);
    memcpy(shape + 3, sizes + 2, sizeof(*shape) * (size_t)n);
    return tci_build_reshape(g, x, n + 3, shape);
}

TCI_FN tci_node *tci_window_contract(tci_graph *g, tci_node *windows, tci_node *w, int n,
                                     int64_t groups)
{
    enum { image, group, channel, place };                 /* labels; after those of positions */
    const int element = place + n, filter = place + 2 * n; /* those of the window */
    int lx[TCI_IMAGE_RANK + TCI_IMAGE_AXES], lw[TCI_IMAGE_RANK], out[TCI_IMAGE_RANK];
    int nx = 0, nw = 0, no = 0;
    tci_dim shape[TCI_IMAGE_RANK];
    if (!windows || !w) {
        return NULL;
    }
    lx[nx++] = out[no++] = image;
    if (groups > 1) {
        shape[0] = groups;
        shape[1] = tci_dim_div(w->shape[0], groups);
        memcpy(shape + 2, w->shape + 1, sizeof(*shape) * (size_t)(n + 1));
        w = tci_build_reshape(g, w, n + 3, shape);
        lx[nx++] = lw[nw++] = out[no++] = group;
    }
    lx[nx++] = channel;
    lw[nw++] = out[no++] = filter;
    lw[nw++] = channel;
    for (int i = 0; i < n; i++) {
        lx[nx++] = out[no++] = place + i;
        lw[nw++] = element + i;
    }
    for (int i = 0; i < n; i++) {
        lx[nx++] = element + i;
    }
    return tci_build_contract(g, windows, lx, w, lw, no, out);
}

TCI_FN tci_node *tci_window_biased(tci_graph *g, tci_node *r, tci_node *bias, int n, tc_dtype dtype)
{
    if (!r || !bias) {
        return r;
    }
    tci_dim channel[1 + TCI_IMAGE_AXES] = {bias->shape[0], 1, 1, 1};
    tci_node *add = tci_build_cast(g, bias, (tc_dtype)r->dtype);
    add = tci_build_reshape(g, add, 1 + n, channel);
    return tci_build_cast(g, tci_composite_binary(g, TCI_OP_ADD, r, add), dtype);
}

/* r as the result of a call of tc_conv; r itself where a number is symbolic. */
static tci_node *tci_window_named_conv(tci_graph *g, tci_node *r, int n, tci_node *x, tci_node *w,
                                       tci_node *bias, const tci_window_conv *c)
{
    tci_node *in[3] = {x, w, bias};
    int64_t words[1 + 4 * TCI_IMAGE_AXES] = {c->groups};
    bool known = tci_dim_is_known(c->groups);
    for (int i = 0; i < n; i++) {
        const int64_t of[] = {c->stride[i], c->dilation[i], c->padding[i], c->after[i]};
        for (int k = 0; k < 4; k++) {
            words[1 + 4 * i + k] = of[k];
            known = known && tci_dim_is_known(of[k]);
        }
    }
    return known ? tci_build_named(g, TCI_NAMED_CONV, r, bias ? 3 : 2, in, 1 + 4 * n, words) : r;
}

TCI_FN tci_node *tci_build_conv(tci_graph *g, int n, tci_node *x, tci_node *w, tci_node *bias,
                                const struct tc_conv *o)
{
    tci_image image;
    tci_window_conv c;
    if (!x || !w || !tci_image_of(g, x, n, &image) ||
        !tci_window_conv_check(g, x, &image, w, bias, o && o->groups ? o->groups : 1, false) ||
        !tci_window_conv_of(g, n, o, w, &c)) {
        return NULL;
    }
    tc_dtype dtype = (tc_dtype)x->dtype;
    tc_dtype math = bias ? tci_composite_math(x)
                         : dtype; /* without a bias the contraction rounds once itself */
    tci_node *images = tci_window_grouped(g, tci_build_cast(g, x, math), n, image.sizes, c.groups);
    tci_node *kernel = tci_build_cast(g, w, math), *zero = tci_composite_number(g, math, 0.0);
    tci_node *windows = tci_window_over(g, images, n, c.padding, tci_dim_list(c.after), zero,
                                        w->shape + 2, c.stride, c.dilation);
    tci_node *r = tci_window_contract(g, windows, kernel, n, c.groups);
    if (r && c.groups > 1) {
        tci_dim shape[2 + TCI_IMAGE_AXES] = {r->shape[0], w->shape[0]};
        memcpy(shape + 2, r->shape + 3, sizeof(*shape) * (size_t)n);
        r = tci_build_reshape(g, r, n + 2, shape);
    }
    r = tci_window_biased(g, r, bias, n, dtype);
    return image.batched ? tci_window_named_conv(g, r, n, x, w, bias, &c)
                         : tci_image_result(g, &image, r);
}

/* ---- pools ---- */

typedef struct tci_pooling {
    tci_image image;
    int64_t kernel[TCI_IMAGE_AXES], stride[TCI_IMAGE_AXES], padding[TCI_IMAGE_AXES];
    int64_t dilation[TCI_IMAGE_AXES];
    /* Of each window only those elements are read that are inside x in any of them. */
    tci_dim reads[TCI_IMAGE_AXES];
    int64_t before[TCI_IMAGE_AXES];
    tci_dim after[TCI_IMAGE_AXES];
} tci_pooling;

/* The elements of the windows along one axis that are read, where the last one starts `last` behind
 * the first one. */
static void tci_pooling_clip(tci_pooling *p, int i, tci_dim last)
{
    const int64_t dilation = p->dilation[i], padding = p->padding[i];
    tci_dim padded = tci_dim_add(p->image.sizes[2 + i], padding), end = p->kernel[i];
    int64_t skipped = 0;
    if (tci_dim_is_known(padded)) { /* the first window ends last, the last one begins first */
        int64_t hidden = padding - tci_dim_known(last);
        end = tci_dim_min(end, tci_dim_ceil_div(padded, dilation));
        skipped = hidden > 0 ? TCI_MIN((hidden + dilation - 1) / dilation, tci_dim_known(end) - 1)
                             : 0;
    }
    p->reads[i] = tci_dim_sub(end, skipped);
    p->before[i] = padding - skipped * dilation;
    tci_dim span = tci_dim_add(tci_dim_mul(tci_dim_sub(end, 1), dilation), 1);
    p->after[i] = tci_dim_sub(tci_dim_add(last, span), padded);
}

/* Windows along one axis: how many, hence what is read. False: none fits, or not at every value of
 * a symbolic size, when *missing is what may be negative. */
static bool tci_pooling_axis(tci_pooling *p, int i, bool ceil_mode, tci_dim *missing)
{
    const int64_t kernel = p->kernel[i], stride = p->stride[i], dilation = p->dilation[i];
    *missing = 0;
    if (kernel > 1 && dilation > INT64_MAX / 16 / (kernel - 1)) {
        return false;
    }
    int64_t span = dilation * (kernel - 1) + 1;
    tci_dim padded = tci_dim_add(p->image.sizes[2 + i], p->padding[i]);
    tci_dim room = tci_dim_add(padded, p->padding[i] - span);
    /* with ceil_mode the first may hang over by less than a step */
    *missing = ceil_mode ? tci_dim_add(room, stride - 1) : room;
    if (!tci_dim_le(0, *missing)) {
        return false;
    }
    tci_dim count = tci_dim_add(tci_dim_div(*missing, stride), 1);
    if (ceil_mode) { /* a last one must start inside x or its near padding */
        count = tci_dim_min(count, tci_dim_ceil_div(padded, stride));
    }
    tci_pooling_clip(p, i, tci_dim_mul(tci_dim_sub(count, 1), stride));
    return true;
}

/* Pools read something from every image. */
static bool tci_pooling_check_image(tci_graph *g, const tci_image *image)
{
    for (int i = image->n + 1; i > 0; i--) {
        const tci_dim size = image->sizes[i];
        if (size == 0) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "x has an empty image: only the batch axis may have size 0");
            return false;
        }
        if (!tci_dim_le(1, size)) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "x may have an empty image, as %s may be 0: only the batch axis may%s",
                           TCI_DIM_TEXT(size), TCI_LEAST_NOTE(size, 1));
            return false;
        }
    }
    return true;
}

static bool tci_pooling_of(tci_graph *g, int n, const tci_node *x, const struct tc_pool *o,
                           tci_pooling *p)
{
    tci_dim missing;
    if (!x || !tci_image_of(g, x, n, &p->image)) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!o || o->kernel[i] < 1) {
            tci_graph_fail(g, TC_ERR_ARGUMENT,
                           "the kernel's size is missing or not positive: expected "
                           "&(tc_pool){.kernel = {%s}}",
                           n == 1   ? "size"
                           : n == 2 ? "rows, columns"
                                    : "planes, rows, columns");
            return false;
        }
    }
    if (!tci_window_fields(g, "the kernel", n, p->kernel, o->kernel, tci_window_zeros) ||
        !tci_window_fields(g, "stride", n, p->stride, o->stride, p->kernel) ||
        !tci_window_fields(g, "padding", n, p->padding, o->padding, tci_window_zeros) ||
        !tci_window_fields(g, "dilation", n, p->dilation, o->dilation, tci_window_ones) ||
        !tci_pooling_check_image(g, &p->image)) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (p->padding[i] > p->kernel[i] / 2) {
            tci_graph_fail(g, TC_ERR_ARGUMENT,
                           "padding %" PRId64 " is more than half of the kernel's %" PRId64,
                           p->padding[i], p->kernel[i]);
            return false;
        }
        if (!tci_pooling_axis(p, i, o->ceil_mode, &missing)) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "a window of %" PRId64 " (dilation %" PRId64 ") does not fit %s "
                           "elements and padding %" PRId64 "%s",
                           p->kernel[i], p->dilation[i], TCI_DIM_TEXT(p->image.sizes[2 + i]),
                           p->padding[i], TCI_LEAST_NOTE(missing, 0));
            return false;
        }
    }
    return true;
}

static tci_node *tci_pooling_windows(tci_graph *g, const tci_pooling *p, tci_node *x,
                                     tci_node *fill)
{
    const int n = p->image.n;
    tci_node *images = tci_build_reshape(g, x, n + 2, p->image.sizes);
    return tci_window_over(g, images, n, p->before, p->after, fill, p->reads, p->stride,
                           p->dilation);
}

/* Reduces the last n axes. */
static tci_node *tci_window_reduce(tci_graph *g, int op, tci_node *x, int n)
{
    int last[TCI_IMAGE_AXES];
    for (int i = 0; x && i < n; i++) {
        last[i] = x->rank - n + i;
    }
    tc_axes axes = {last, n, false};
    return tci_build_reduce(g, op, x, axes, false);
}

TCI_FN tci_node *tci_build_max_pool(tci_graph *g, int n, tci_node *x, const struct tc_pool *o)
{
    tci_pooling p;
    if (!tci_pooling_of(g, n, x, o, &p)) {
        return NULL;
    }
    tci_node *fill = tci_composite_lowest(g, (tc_dtype)x->dtype);
    tci_node *r = tci_window_reduce(g, TCI_OP_MAX, tci_pooling_windows(g, &p, x, fill), n);
    return tci_image_result(g, &p.image, r);
}

/* Where element `at` of a window, counted along axis i of n of the windows' positions, stands in x.
 * In the padding only where nothing is larger than that: then the first element inside is meant. */
static tci_node *tci_pooling_place(tci_graph *g, const tci_pooling *p, int i, tci_node *at)
{
    const int n = p->image.n;
    if (!at) {
        return NULL;
    }
    tci_node *start = tci_composite_ramp(g, at->shape[2 + i], n + 2, 2 + i);
    tci_node *step = tci_composite_whole(g, p->stride[i]);
    tci_node *apart = tci_composite_whole(g, p->dilation[i]);
    tci_node *before = tci_composite_whole(g, p->before[i]);
    start = tci_composite_binary(g, TCI_OP_SUB, tci_composite_binary(g, TCI_OP_MUL, start, step),
                                 before);
    at = tci_composite_binary(g, TCI_OP_MUL, at, apart);
    at = tci_composite_binary(g, TCI_OP_ADD, start, at);
    tci_node *outside = tci_composite_binary(g, TCI_OP_LT, at, tci_composite_whole(g, 0));
    return tci_build_where(g, outside, tci_composite_binary(g, TCI_OP_REMAINDER, at, apart), at);
}

/* Position of the first largest element of each window [N, C, positions, elements], counted through
 * the window. */
static tci_node *tci_pooling_argmax(tci_graph *g, tci_node *windows, int n)
{
    tci_dim shape[3 + TCI_IMAGE_AXES];
    int last = n + 2;
    if (!windows) {
        return NULL;
    }
    memcpy(shape, windows->shape, sizeof(*shape) * (size_t)(n + 2));
    shape[n + 2] = 1;
    for (int i = n + 2; i < windows->rank; i++) {
        shape[n + 2] = tci_dim_mul(shape[n + 2], windows->shape[i]);
    }
    tc_axes axis = {&last, 1, false};
    return tci_build_reduce(g, TCI_OP_ARGMAX, tci_build_reshape(g, windows, n + 3, shape), axis,
                            false);
}

TCI_FN tci_node *tci_build_max_pool_indices(tci_graph *g, int n, tci_node *x,
                                            const struct tc_pool *o)
{
    tci_pooling p;
    if (!tci_pooling_of(g, n, x, o, &p)) {
        return NULL;
    }
    tci_node *fill = tci_composite_lowest(g, (tc_dtype)x->dtype);
    tci_node *at = tci_pooling_argmax(g, tci_pooling_windows(g, &p, x, fill), n), *r = NULL;
    tci_dim each = 1, through = 1;
    for (int i = n - 1; at && i >= 0; i--) { /* from the last axis, which counts fastest */
        tci_node *rows = tci_build_size_value(g, each, TC_I64);
        tci_node *size = tci_build_size_value(g, p.reads[i], TC_I64);
        tci_node *own = tci_composite_binary(g, TCI_OP_FLOOR_DIVIDE, at, rows);
        own = tci_pooling_place(g, &p, i, tci_composite_binary(g, TCI_OP_REMAINDER, own, size));
        own = tci_composite_binary(g, TCI_OP_MUL, own, tci_build_size_value(g, through, TC_I64));
        r = r ? tci_composite_binary(g, TCI_OP_ADD, r, own) : own;
        each = tci_dim_mul(each, p.reads[i]);
        through = tci_dim_mul(through, p.image.sizes[2 + i]);
    }
    return tci_image_result(g, &p.image, r);
}

/* sum / count, of integers without the fraction. */
static tci_node *tci_pooling_quotient(tci_graph *g, tci_node *sum, tci_node *count)
{
    if (!sum || !count || tci_dtype_is_float((tc_dtype)sum->dtype)) {
        return tci_composite_binary(g, TCI_OP_DIV, sum, count);
    }
    tci_node *zero = tci_composite_number(g, (tc_dtype)sum->dtype, 0);
    tci_node *below[2] = {tci_composite_binary(g, TCI_OP_LT, sum, zero),
                          tci_composite_binary(g, TCI_OP_LT, count, zero)};
    tci_node *size = tci_composite_binary(g, TCI_OP_FLOOR_DIVIDE,
                                          tci_composite_unary(g, TCI_OP_ABS, sum),
                                          tci_composite_unary(g, TCI_OP_ABS, count));
    return tci_build_where(g, tci_composite_binary(g, TCI_OP_NE, below[0], below[1]),
                           tci_composite_unary(g, TCI_OP_NEG, size), size);
}

/* Number of averaged elements along axis i of each of `count` windows: in x, or also in its
 * padding. */
static tci_node *tci_pooling_lengths(tci_graph *g, const tci_pooling *p, int i, tci_dim count,
                                     bool exclude_pad)
{
    tci_dim end = tci_dim_add(p->image.sizes[2 + i], exclude_pad ? 0 : p->padding[i]);
    tci_node *from = tci_composite_ramp(g, count, p->image.n, i);
    from = tci_composite_binary(g, TCI_OP_MUL, from, tci_composite_whole(g, p->stride[i]));
    from = tci_composite_binary(g, TCI_OP_SUB, from, tci_composite_whole(g, p->padding[i]));
    tci_node *to = tci_composite_binary(g, TCI_OP_ADD, from, tci_composite_whole(g, p->kernel[i]));
    to = tci_composite_binary(g, TCI_OP_MINIMUM, to, tci_build_size_value(g, end, TC_I64));
    if (exclude_pad) {
        from = tci_composite_binary(g, TCI_OP_MAXIMUM, from, tci_composite_whole(g, 0));
    }
    return tci_composite_binary(g, TCI_OP_SUB, to, from);
}

/* Divisor of the sums of windows. */
static tci_node *tci_pooling_divisor(tci_graph *g, const tci_pooling *p, const struct tc_pool *o,
                                     const tci_node *sum, tc_dtype t)
{
    double all = 1;
    tci_node *r = NULL;
    for (int i = 0; i < p->image.n; i++) {
        all *= (double)p->kernel[i];
    }
    if (o->divisor) {
        bool may = tci_dim_is_known(o->divisor) || tci_dim_le(1, o->divisor);
        if (!may) {
            tci_graph_fail(g, TC_ERR_ARGUMENT, "the divisor is %s, which may be 0%s",
                           TCI_DIM_TEXT(o->divisor), TCI_LEAST_NOTE(o->divisor, 1));
        }
        return may ? tci_build_size_value(g, o->divisor, t) : NULL;
    }
    if (all > 0x1p60) {
        tci_graph_fail(g, TC_ERR_LIMIT, "windows have %g elements: expected at most 2^60", all);
        return NULL;
    }
    if (!o->ceil_mode && (!o->exclude_pad || !memcmp(p->padding, tci_window_zeros,
                                                     sizeof(int64_t) * (size_t)p->image.n))) {
        return tci_composite_number(g, t, all);
    }
    for (int i = 0; i < p->image.n; i++) {
        tci_node *own = tci_pooling_lengths(g, p, i, sum->shape[2 + i], o->exclude_pad);
        r = r ? tci_composite_binary(g, TCI_OP_MUL, r, own) : own;
    }
    return tci_build_cast(g, r, t);
}

TCI_FN tci_node *tci_build_avg_pool(tci_graph *g, int n, tci_node *x, const struct tc_pool *o)
{
    tci_pooling p;
    if (!tci_pooling_of(g, n, x, o, &p)) {
        return NULL;
    }
    if (memcmp(p.dilation, tci_window_ones, sizeof(int64_t) * (size_t)n)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "dilation is given: windows of an average have none");
        return NULL;
    }
    if (x->dtype == TC_BOOL) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "x is bool: expected integers or floats (tc_cast makes "
                       "them)");
        return NULL;
    }
    tc_dtype math = tci_composite_math(x);
    tci_node *zero = tci_composite_number(g, math, 0);
    tci_node *windows = tci_pooling_windows(g, &p, tci_build_cast(g, x, math), zero);
    tci_node *sum = tci_window_reduce(g, TCI_OP_SUM, windows, n);
    tci_node *divisor = sum ? tci_pooling_divisor(g, &p, o, sum, (tc_dtype)sum->dtype) : NULL;
    tci_node *r = tci_build_cast(g, tci_pooling_quotient(g, sum, divisor), (tc_dtype)x->dtype);
    return tci_image_result(g, &p.image, r);
}

/* |x|^p, smooth at 0 for an even p and without a gradient there for another. */
static tci_node *tci_lp_power(tci_graph *g, tci_node *x, double p)
{
    tc_dtype t = x ? (tc_dtype)x->dtype : TC_F32;
    const bool even = p > 0 && fmod(p, 2) == 0;
    tci_node *power = tci_composite_number(g, t, p);
    tci_node *size = even ? x : tci_composite_unary(g, TCI_OP_ABS, x);
    if (p < 0 || even) {
        return tci_composite_binary(g, TCI_OP_POW, size, power);
    }
    tci_node *zero = tci_composite_number(g, t, 0), *one = tci_composite_number(g, t, 1);
    tci_node *none = tci_composite_binary(g, TCI_OP_EQ, x, zero);
    size = tci_build_where(g, none, one, size);
    return tci_build_where(g, none, zero, tci_composite_binary(g, TCI_OP_POW, size, power));
}

/* The p-th root of a sum of powers; 0 has no gradient. */
static tci_node *tci_lp_root(tci_graph *g, tci_node *sum, double p)
{
    tc_dtype t = sum ? (tc_dtype)sum->dtype : TC_F32;
    tci_node *root = tci_composite_number(g, t, 1 / p);
    if (p < 0) {
        return tci_composite_binary(g, TCI_OP_POW, sum, root);
    }
    tci_node *zero = tci_composite_number(g, t, 0), *one = tci_composite_number(g, t, 1);
    tci_node *empty = tci_composite_binary(g, TCI_OP_EQ, sum, zero);
    sum = tci_build_where(g, empty, one, sum);
    return tci_build_where(g, empty, zero, tci_composite_binary(g, TCI_OP_POW, sum, root));
}

TCI_FN tci_node *tci_build_lp_pool(tci_graph *g, int n, tci_node *x, double p,
                                   const struct tc_pool *o)
{
    tci_pooling pool;
    if (!tci_pooling_of(g, n, x, o, &pool)) {
        return NULL;
    }
    if (!tci_dtype_is_float((tc_dtype)x->dtype) || !(p != 0)) {
        tci_graph_fail(g, tci_dtype_is_float((tc_dtype)x->dtype) ? TC_ERR_ARGUMENT : TC_ERR_DTYPE,
                       "x is %s and the power %g: expected floats, and a power that is not 0",
                       tci_dtype_get((tc_dtype)x->dtype)->name, p);
        return NULL;
    }
    tc_dtype math = tci_composite_math(x);
    tci_node *zero = tci_composite_number(g, math, 0);
    tci_node *powers = tci_lp_power(g, tci_build_cast(g, x, math), p);
    tci_node *sum = tci_window_reduce(g, TCI_OP_SUM, tci_pooling_windows(g, &pool, powers, zero),
                                      n);
    tci_node *r = tci_build_cast(g, tci_lp_root(g, sum, p), (tc_dtype)x->dtype);
    return tci_image_result(g, &pool.image, r);
}

/* ---- adaptive pools: of an axis of n, window o of m is floor(o n / m) .. ceil((o + 1) n / m) ----
 */

/* The sizes that are wanted, [N, C, ...]; -1 keeps x's. */
static bool tci_adaptive_sizes(tci_graph *g, const tci_image *image, int n_sizes,
                               const tci_dim *sizes, tci_dim *out)
{
    const int n = image->n;
    if ((n_sizes != n && n_sizes != 1) || !sizes) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "%d sizes are given%s: expected %d, or one for all",
                       n_sizes, sizes ? "" : " at NULL", n);
        return false;
    }
    out[0] = image->sizes[0];
    out[1] = image->sizes[1];
    for (int i = 0; i < n; i++) {
        out[2 + i] = sizes[n_sizes == 1 ? 0 : i];
        if (out[2 + i] == -1) {
            out[2 + i] = image->sizes[2 + i];
        }
    }
    return tci_build_check_shape(g, n + 2, out, TC_F64);
}

typedef struct tci_adaptive {
    tci_dim n, m, most;    /* elements, windows, elements of the longest */
    tci_node *first, *end; /* of each window, [m, 1] */
} tci_adaptive;

static tci_adaptive tci_adaptive_of(tci_graph *g, tci_dim n, tci_dim m)
{
    tci_adaptive a = {.n = n, .m = m};
    const bool even = tci_dim_divides(m, n);
    a.most = even ? tci_dim_div(n, m) : tci_dim_min(tci_dim_add(tci_dim_div(n, m), 2), n);
    tci_node *size = tci_build_size_value(g, n, TC_I64);
    tci_node *count = tci_build_size_value(g, m, TC_I64);
    tci_node *start = tci_composite_ramp(g, m, 2, 0);
    start = tci_composite_binary(g, TCI_OP_MUL, start, size);
    a.first = tci_composite_binary(g, TCI_OP_FLOOR_DIVIDE, start, count);
    tci_node *less = tci_composite_binary(g, TCI_OP_SUB, size, tci_composite_whole(g, 1));
    tci_node *end = tci_composite_binary(g, TCI_OP_ADD, start, less); /* (o + 1) n - 1 */
    end = tci_composite_binary(g, TCI_OP_ADD, end, count);
    a.end = tci_composite_binary(g, TCI_OP_FLOOR_DIVIDE, end, count);
    return a;
}

/* The positions in x of the elements of each window, [m, most]; after its end the last one
 * again. */
static tci_node *tci_adaptive_places(tci_graph *g, const tci_adaptive *a)
{
    tci_node *at = tci_composite_binary(g, TCI_OP_ADD, a->first,
                                        tci_composite_ramp(g, a->most, 2, 1));
    tci_node *last = tci_composite_binary(g, TCI_OP_SUB, a->end, tci_composite_whole(g, 1));
    return tci_composite_binary(g, TCI_OP_MINIMUM, at, last);
}

/* Axis `axis` of x as two: windows and their elements. */
static tci_node *tci_adaptive_windows(tci_graph *g, tci_node *x, int axis, const tci_adaptive *a)
{
    tci_dim shape[2 * TCI_IMAGE_RANK];
    tci_dim all = tci_dim_mul(a->m, a->most);
    if (!x) {
        return NULL;
    }
    if (!tci_dim_divides(a->m, a->n)) {
        tci_node *index = tci_build_reshape(g, tci_adaptive_places(g, a), 1, &all);
        x = tci_build_index_select(g, x, axis, index);
    }
    for (int i = 0; x && i <= x->rank; i++) {
        shape[i] = i == axis ? a->m : i == axis + 1 ? a->most : x->shape[i - (i > axis)];
    }
    return x ? tci_build_reshape(g, x, x->rank + 1, shape) : NULL;
}

/* The mean of each window along one axis. */
static tci_node *tci_adaptive_mean(tci_graph *g, tci_node *x, int axis, tci_dim m)
{
    tci_dim line[2 * TCI_IMAGE_RANK];
    if (!x || x->shape[axis] == m) {
        return x;
    }
    tci_adaptive a = tci_adaptive_of(g, x->shape[axis], m);
    tci_node *length = tci_composite_binary(g, TCI_OP_SUB, a.end, a.first);
    tci_node *inside = tci_composite_binary(g, TCI_OP_LT, tci_composite_ramp(g, a.most, 2, 1),
                                            length);
    for (int i = 0; i <= x->rank; i++) {
        line[i] = i == axis ? m : i == axis + 1 ? a.most : 1;
    }
    tci_node *windows = tci_adaptive_windows(g, x, axis, &a);
    if (!tci_dim_divides(m, a.n)) {
        windows = tci_build_where(g, tci_build_reshape(g, inside, x->rank + 1, line), windows,
                                  tci_composite_number(g, (tc_dtype)x->dtype, 0));
    }
    line[axis + 1] = 1;
    length = tci_build_reshape(g, length, x->rank, line); /* without the elements' axis */
    int at = axis + 1;
    tc_axes elements = {&at, 1, false};
    tci_node *sum = tci_build_reduce(g, TCI_OP_SUM, windows, elements, false);
    return tci_composite_binary(g, TCI_OP_DIV, sum, tci_build_cast(g, length, (tc_dtype)x->dtype));
}

TCI_FN tci_node *tci_build_adaptive_avg_pool(tci_graph *g, int n, tci_node *x, int n_sizes,
                                             const tci_dim *sizes)
{
    tci_image image;
    tci_dim out[2 + TCI_IMAGE_AXES];
    if (!x || !tci_image_of(g, x, n, &image) || !tci_pooling_check_image(g, &image) ||
        !tci_adaptive_sizes(g, &image, n_sizes, sizes, out)) {
        return NULL;
    }
    if (!tci_dtype_is_float((tc_dtype)x->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "x is %s: expected floats (tc_cast makes them)",
                       tci_dtype_get((tc_dtype)x->dtype)->name);
        return NULL;
    }
    tci_node *r = tci_build_cast(g, x, tci_composite_math(x));
    r = tci_build_reshape(g, r, n + 2, image.sizes);
    for (int i = 0; i < n; i++) {
        r = out[2 + i] == 0 ? tci_build_slice(g, r, 2 + i, 0, 0, 1)
                            : tci_adaptive_mean(g, r, 2 + i, out[2 + i]);
    }
    return tci_image_result(g, &image, tci_build_cast(g, r, (tc_dtype)x->dtype));
}

/* The windows along all axes, [N, C, positions, elements], and the position in an image of each
 * element, [positions, elements]. */
static tci_node *tci_adaptive_all(tci_graph *g, tci_node *x, int n, const tci_dim *out,
                                  tci_node **places)
{
    int order[2 + 2 * TCI_IMAGE_AXES] = {0, 1};
    const tci_node *image = x;
    *places = NULL;
    for (int i = 0; x && i < n; i++) {
        tci_adaptive a = tci_adaptive_of(g, image->shape[2 + i], out[2 + i]);
        tci_dim line[2 * TCI_IMAGE_AXES] = {1, 1, 1, 1, 1, 1};
        tci_node *own = tci_adaptive_places(g, &a);
        tci_node *size = tci_build_size_value(g, a.n, TC_I64);
        line[i] = a.m;
        line[n + i] = a.most;
        own = tci_build_reshape(g, own, 2 * n, line);
        *places = i ? tci_composite_binary(g, TCI_OP_ADD,
                                           tci_composite_binary(g, TCI_OP_MUL, *places, size), own)
                    : own;
        x = tci_adaptive_windows(g, x, 2 + 2 * i, &a);
        order[2 + i] = 2 + 2 * i;
        order[2 + n + i] = 3 + 2 * i;
    }
    return x && *places ? tci_build_permute(g, x, 2 + 2 * n, order) : NULL;
}

TCI_FN tci_node *tci_build_adaptive_max_pool_indices(tci_graph *g, int n, tci_node *x, int n_sizes,
                                                     const tci_dim *sizes)
{
    tci_image image;
    tci_dim out[2 + TCI_IMAGE_AXES], flat[2] = {1, 1};
    if (!x || !tci_image_of(g, x, n, &image) || !tci_pooling_check_image(g, &image) ||
        !tci_adaptive_sizes(g, &image, n_sizes, sizes, out)) {
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        if (out[2 + i] == 0) {
            tci_node *none = tci_build_broadcast(g, tci_composite_whole(g, 0), n + 2, out);
            return tci_image_result(g, &image, none);
        }
    }
    tci_node *places, *images = tci_build_reshape(g, x, n + 2, image.sizes);
    tci_node *windows = tci_adaptive_all(g, images, n, out, &places);
    tci_node *at = tci_pooling_argmax(g, windows, n);
    for (int i = 0; places && i < n; i++) {
        flat[0] = tci_dim_mul(flat[0], places->shape[i]);
        flat[1] = tci_dim_mul(flat[1], places->shape[n + i]);
    }
    /* position [positions, at]: read at the number of the window and that of its element */
    tci_node *each = tci_build_size_value(g, flat[1], TC_I64);
    tci_node *number = tci_build_reshape(g, tci_build_iota(g, flat[0]), n, out + 2);
    number = tci_composite_binary(g, TCI_OP_MUL, number, each);
    number = tci_composite_binary(g, TCI_OP_ADD, number, at);
    tci_dim all = tci_dim_mul(flat[0], flat[1]), count = number ? tci_node_count(number) : 0;
    tci_node *r = tci_build_gather(g, tci_build_reshape(g, places, 1, &all), 0,
                                   tci_build_reshape(g, number, 1, &count));
    return tci_image_result(g, &image, tci_build_reshape(g, r, n + 2, out));
}

TCI_FN tci_node *tci_build_adaptive_max_pool(tci_graph *g, int n, tci_node *x, int n_sizes,
                                             const tci_dim *sizes)
{
    tci_node *index = tci_build_adaptive_max_pool_indices(g, n, x, n_sizes, sizes);
    if (!index) {
        return NULL;
    }
    const int lead = x->rank - n;
    tci_dim from[3] = {1, 1, 1}, to[3] = {1, 1, 1};
    for (int i = 0; i < x->rank; i++) {
        from[i < lead ? i : lead] = tci_dim_mul(from[i < lead ? i : lead], x->shape[i]);
        to[i < lead ? i : lead] = tci_dim_mul(to[i < lead ? i : lead], index->shape[i]);
    }
    tci_node *flat = tci_build_gather(g, tci_build_reshape(g, x, lead + 1, from), lead,
                                      tci_build_reshape(g, index, lead + 1, to));
    return tci_build_reshape(g, flat, index->rank, index->shape);
}

/* ---- patches as columns ---- */

TCI_FN bool tci_window_patch_of(tci_graph *g, const struct tc_pool *o, tci_window_patch *p)
{
    if (!o || o->kernel[0] < 1 || o->kernel[1] < 1) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "the kernel's size is missing or not positive: expected "
                       "&(tc_pool){.kernel = {rows, columns}}");
        return false;
    }
    return tci_window_fields(g, "the kernel", 2, p->kernel, o->kernel, tci_window_ones) &&
           tci_window_fields(g, "stride", 2, p->stride, o->stride, tci_window_ones) &&
           tci_window_fields(g, "padding", 2, p->padding, o->padding, tci_window_zeros) &&
           tci_window_fields(g, "dilation", 2, p->dilation, o->dilation, tci_window_ones);
}

TCI_FN tci_node *tci_build_im2col(tci_graph *g, tci_node *x, const struct tc_pool *o)
{
    static const int order[6] = {0, 1, 4, 5, 2, 3};
    tci_image image;
    tci_window_patch p;
    if (!x || !tci_image_of(g, x, 2, &image) || !tci_window_patch_of(g, o, &p)) {
        return NULL;
    }
    tci_node *images = tci_build_reshape(g, x, 4, image.sizes);
    tci_node *zero = tci_composite_number(g, (tc_dtype)x->dtype, 0);
    tci_node *windows = tci_window_over(g, images, 2, p.padding, tci_dim_list(p.padding), zero,
                                        tci_dim_list(p.kernel), p.stride, p.dilation);
    if (!windows) {
        return NULL;
    }
    const tci_dim *d = windows->shape;
    tci_dim shape[3] = {d[0], tci_dim_mul(d[1], tci_dim_mul(d[4], d[5])), tci_dim_mul(d[2], d[3])};
    tci_node *r = tci_build_reshape(g, tci_build_permute(g, windows, 6, order), 3, shape);
    return tci_image_result(g, &image, r);
}
