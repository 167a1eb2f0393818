/* onnx/import_conv_pool.c - imports ONNX sliding-window operators: convolution, pooling, unpooling,
 * col2im.
 *
 * Image axes are those after the first two. If a call of tc fits the node it is used; otherwise
 * padding is explicit, and pools reduce windows axis by axis. */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Windows along the axes of an image. */
typedef struct tci_ox_window_args {
    int n;                /* axes */
    const int64_t *sizes; /* of all axes of x */
    int64_t kernel[3], stride[3], dilation[3], before[3], after[3];
    bool ceil;
} tci_ox_window_args;

static void tci_ox_fill(const tci_ox_op *o, const char *name, int n, int64_t *to, int64_t usual)
{
    int given;
    const int64_t *list = tci_ox_ints(o, name, &given);
    if (list && given != n) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%s has %d numbers: expected %d", name, given, n);
    }
    for (int i = 0; i < n; i++) {
        to[i] = list ? list[i] : usual;
    }
}

/* kernel NULL: attribute kernel_shape. */
static tci_ox_window_args tci_ox_window_args_of(const tci_ox_op *o, tc_tensor x,
                                                const int64_t *kernel)
{
    int rank;
    tci_ox_window_args w = {.sizes = tci_ox_sizes(o, x, &rank)};
    int64_t pads[6];
    const char *pad = tci_ox_text(o, "auto_pad", "NOTSET");
    w.n = rank - 2;
    if (w.n < 1 || w.n > 3) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "windows over %d axes: expected 1 to 3", w.n);
    }
    tci_ox_fill(o, "strides", w.n, w.stride, 1);
    tci_ox_fill(o, "dilations", w.n, w.dilation, 1);
    tci_ox_fill(o, "pads", 2 * w.n, pads, 0);
    w.ceil = tci_ox_int(o, "ceil_mode", 0) != 0;
    if (kernel) {
        memcpy(w.kernel, kernel, sizeof(*kernel) * (size_t)w.n);
    } else {
        tci_ox_fill(o, "kernel_shape", w.n, w.kernel, 0);
    }
    for (int i = 0; i < w.n; i++) {
        bool same = !strncmp(pad, "SAME", 4);
        int64_t size = w.sizes[i + 2], span = (w.kernel[i] - 1) * w.dilation[i] + 1;
        w.before[i] = strcmp(pad, "VALID") ? pads[i] : 0;
        w.after[i] = strcmp(pad, "VALID") ? pads[i + w.n] : 0;
        if (w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1 || w.kernel[i] > 1 << 20 ||
            w.stride[i] > 1 << 20 || w.dilation[i] > 1 << 20) {
            tci_ox_fail(o, TC_ERR_ARGUMENT, "a window, stride or dilation is not above 0");
        }
        if (same) {
            int64_t steps = tc_dim_div(tc_dim_add(size, w.stride[i] - 1), w.stride[i]);
            int64_t all = tc_dim_add(tc_dim_mul(tc_dim_sub(steps, 1), w.stride[i]), span);
            all = tc_dim_max(tc_dim_sub(all, size), 0);
            int64_t half = tc_dim_div(all, 2), rest = tc_dim_sub(all, half);
            w.before[i] = strcmp(pad, "SAME_LOWER") ? half : rest;
            w.after[i] = strcmp(pad, "SAME_LOWER") ? rest : half;
        }
    }
    return w;
}

static tc_tensor tci_ox_pad_windows(const tci_ox_op *o, tc_tensor x, const tci_ox_window_args *w,
                                    double value)
{
    for (int i = 0; i < w->n; i++) {
        if (w->before[i] != 0 || w->after[i] != 0) {
            x = tc_pad(x, i + 2, w->before[i], w->after[i], value);
        }
    }
    return x;
}

/* ---- convolutions ---- */

static tc_tensor tci_ox_conv_args(const tci_ox_op *o, tc_tensor x, tc_tensor weight, tc_tensor bias)
{
    int rank;
    const int64_t *sizes = tci_ox_sizes(o, weight, &rank);
    if (rank < 3 || tc_rank(x) != rank) {
        tci_ox_fail(o, TC_ERR_SHAPE, "x has %d axes, the weight %d", tc_rank(x), rank);
    }
    tci_ox_window_args w = tci_ox_window_args_of(o, x, sizes + 2);
    tc_conv c = {.groups = tci_ox_int(o, "group", 1)};
    bool plain = true;
    for (int i = 0; i < w.n; i++) {
        plain = plain && tci_dim_is_known(w.before[i]) && tci_dim_is_known(w.after[i]) &&
                w.before[i] >= 0 && w.after[i] >= w.before[i];
        c.stride[i] = w.stride[i];
        c.dilation[i] = w.dilation[i];
    }
    for (int i = 0; i < w.n && plain; i++) {
        c.padding[i] = w.before[i];
        c.end_padding[i] = w.after[i] - w.before[i];
    }
    x = plain ? x : tci_ox_pad_windows(o, x, &w, 0);
    return w.n == 1   ? tc_conv1d(x, weight, bias, &c)
           : w.n == 2 ? tc_conv2d(x, weight, bias, &c)
                      : tc_conv3d(x, weight, bias, &c);
}

TCI_OX_MAKE(conv)
{
    tci_ox_out(o, 0, tci_ox_conv_args(o, tci_ox_in(o, 0), tci_ox_in(o, 1), tci_ox_maybe(o, 2)));
}

/* A zero point of one element, or of each row of the weight, in i32. */
static tc_tensor tci_ox_minus_zero(const tci_ox_op *o, tc_tensor x, int i, bool rows)
{
    tc_tensor wide = tc_cast(x, TC_I32);
    if (!tci_ox_has(o, i)) {
        return wide;
    }
    tc_tensor zero = tc_cast(tci_ox_in(o, i), TC_I32);
    int rank = tc_rank(x);
    if (rows && tc_rank(zero) == 1) {
        int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
        for (int d = 0; d < rank; d++) {
            sizes[d] = d ? 1 : tc_size(zero, 0);
        }
        zero = tci_ox_shape_as(o, zero, rank, sizes);
    } else if (!rows) {
        zero = tc_rank(zero) == 1 && tc_size(zero, 0) == 1 ? tc_reshape_at(zero, 0, NULL, o->here)
                                                           : zero;
    }
    return tc_sub(wide, zero);
}

TCI_OX_MAKE(conv_integer)
{
    tc_tensor x = tci_ox_minus_zero(o, tci_ox_in(o, 0), 2, false);
    tc_tensor w = tci_ox_minus_zero(o, tci_ox_in(o, 1), 3, true);
    tci_ox_out(o, 0, tci_ox_conv_args(o, x, w, TC_NONE));
}

TCI_OX_MAKE(qlinear_conv)
{
    tc_tensor x = tci_ox_minus_zero(o, tci_ox_in(o, 0), 2, false);
    tc_tensor w = tci_ox_minus_zero(o, tci_ox_in(o, 3), 5, true);
    tc_tensor sum = tci_ox_conv_args(o, x, w, tci_ox_maybe(o, 8));
    tc_tensor scale = tci_ox_in(o, 4);
    int rank = tc_rank(sum);
    if (tc_rank(scale) == 1) {
        int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int d = 0; d < rank - 1; d++) {
            sizes[d] = d ? 1 : tc_size(scale, 0);
        }
        scale = tci_ox_shape_as(o, scale, rank - 1, sizes);
    }
    scale = tc_div(tc_mul(tc_reshape_at(tci_ox_in(o, 1), 0, NULL, o->here), scale),
                   tc_reshape_at(tci_ox_in(o, 6), 0, NULL, o->here));
    tc_tensor zero = tc_reshape_at(tci_ox_in(o, 7), 0, NULL, o->here);
    tc_tensor y = tc_round(tc_mul(tc_cast(sum, TC_F32), scale));
    y = tc_add(y, tc_cast(zero, TC_F32));
    tci_ox_out(o, 0, tc_cast(y, tc_dtype_of(zero))); /* saturates */
}

/* The padding that output_shape or SAME asks for. */
static void tci_ox_transposed_pads(const tci_ox_op *o, tci_ox_window_args *w, const int64_t *extra)
{
    int given;
    const int64_t *shape = tci_ox_ints(o, "output_shape", &given);
    const char *pad = tci_ox_text(o, "auto_pad", "NOTSET");
    bool same = !strncmp(pad, "SAME", 4);
    for (int i = 0; i < w->n && (shape || same); i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1 + extra[i];
        int64_t full = tc_dim_add(tc_dim_mul(tc_dim_sub(w->sizes[i + 2], 1), w->stride[i]), span);
        int64_t want = shape && given >= w->n ? shape[given - w->n + i]
                                              : tc_dim_mul(w->sizes[i + 2], w->stride[i]);
        int64_t all = tc_dim_sub(full, want), half = tc_dim_div(all, 2);
        bool upper = !strcmp(pad, "SAME_UPPER");
        w->before[i] = upper ? half : tc_dim_sub(all, half);
        w->after[i] = upper ? tc_dim_sub(all, half) : half;
    }
}

TCI_OX_MAKE(conv_transpose)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), weight = tci_ox_in(o, 1), bias = tci_ox_maybe(o, 2), y;
    const int64_t *sizes = tci_ox_sizes(o, weight, &rank);
    if (rank < 3 || tc_rank(x) != rank) {
        tci_ox_fail(o, TC_ERR_SHAPE, "x has %d axes, the weight %d", tc_rank(x), rank);
    }
    tci_ox_window_args w = tci_ox_window_args_of(o, x, sizes + 2);
    tc_conv c = {.groups = tci_ox_int(o, "group", 1)};
    int64_t extra[3];
    tci_ox_fill(o, "output_padding", w.n, extra, 0);
    tci_ox_transposed_pads(o, &w, extra);
    for (int i = 0; i < w.n; i++) {
        c.stride[i] = w.stride[i];
        c.dilation[i] = w.dilation[i];
    }
    y = w.n == 1   ? tc_conv_transpose1d(x, weight, bias, &c)
        : w.n == 2 ? tc_conv_transpose2d(x, weight, bias, &c)
                   : tc_conv_transpose3d(x, weight, bias, &c);
    for (int i = 0; i < w.n; i++) { /* crops, or pads where more is asked for than there is */
        int64_t after = tc_dim_sub(extra[i], w.after[i]), before = tc_dim_sub(0, w.before[i]);
        bool grows = tci_dim_most(after) > 0 || tci_dim_most(before) > 0;
        if (grows && tci_ox_given(bias)) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "output padding with a bias");
        }
        y = tc_pad(y, i + 2, before, after, 0);
    }
    tci_ox_out(o, 0, y);
}

/* ---- pools ---- */

/* With ceil_mode a last window may hang over the end: this many more elements there. */
static void tci_ox_overhang(tci_ox_window_args *w)
{
    for (int i = 0; i < w->n && w->ceil; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1, s = w->stride[i];
        int64_t padded = tc_dim_add(w->sizes[i + 2], tc_dim_add(w->before[i], w->after[i]));
        int64_t room = tc_dim_sub(padded, span);
        int64_t steps = tc_dim_add(tc_dim_div(tc_dim_add(room, s - 1), s), 1);
        /* the last window must begin within the image or the padding before it */
        int64_t begun = tc_dim_div(tc_dim_sub(tc_dim_add(w->sizes[i + 2], w->before[i]), 1), s);
        steps = tc_dim_min(steps, tc_dim_add(begun, 1));
        int64_t need = tc_dim_add(tc_dim_mul(tc_dim_sub(steps, 1), s), span);
        w->after[i] = tc_dim_add(w->after[i], tc_dim_max(tc_dim_sub(need, padded), 0));
    }
}

/* A padded image reduced over windows, an axis after the other. */
static tc_tensor tci_ox_windows_reduce(const tci_ox_op *o, tc_tensor x, const tci_ox_window_args *w,
                                       bool max)
{
    for (int i = 0; i < w->n; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        x = tc_unfold(x, i + 2, span, w->stride[i]);
        x = w->dilation[i] > 1 ? tc_slice(x, -1, 0, TC_END, w->dilation[i]) : x;
        x = max ? tc_max(x, TC_AXES(-1), false) : tc_sum(x, TC_AXES(-1), false);
    }
    return x;
}

/* True if tc's pools do it: known, equal padding of at most half the window, and no ceil_mode. */
static bool tci_ox_is_plain_pool(const tci_ox_window_args *w, tc_pool *p)
{
    bool plain = !w->ceil;
    for (int i = 0; i < w->n; i++) {
        plain = plain && w->before[i] == w->after[i] && tci_dim_is_known(w->before[i]) &&
                w->before[i] >= 0 && 2 * w->before[i] <= w->kernel[i];
        p->kernel[i] = w->kernel[i];
        p->stride[i] = w->stride[i];
        p->dilation[i] = w->dilation[i];
        p->padding[i] = w->before[i];
    }
    return plain;
}

TCI_OX_MAKE(average_pool)
{
    tc_tensor x = tci_ox_in(o, 0), count;
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    tc_dtype d = tc_dtype_of(x);
    bool counts = tci_ox_int(o, "count_include_pad", 0) != 0, dilated = false;
    tc_pool p = {.exclude_pad = !counts};
    for (int i = 0; i < w.n; i++) {
        dilated = dilated || w.dilation[i] > 1;
    }
    if (!dilated && tci_ox_is_plain_pool(&w, &p)) {
        tci_ox_out(o, 0,
                   w.n == 1   ? tc_avg_pool1d(x, &p)
                   : w.n == 2 ? tc_avg_pool2d(x, &p)
                              : tc_avg_pool3d(x, &p));
        return;
    }
    tc_tensor ones = tc_expand_at(tc_full(o->ctx, 1, TC_F32), w.n + 2, w.sizes, o->here);
    ones = tc_slice(tc_slice(ones, 0, 0, 1, 1), 1, 0, 1, 1);
    count = counts ? tci_ox_pad_windows(o, ones, &w, 1) : ones;
    tci_ox_window_args rest = w, all;
    tci_ox_overhang(&w);
    all = w;
    for (int i = 0; i < w.n && counts; i++) { /* elements over the end never count */
        all.before[i] = 0;
        all.after[i] = tc_dim_sub(w.after[i], rest.after[i]);
    }
    count = tci_ox_windows_reduce(o, tci_ox_pad_windows(o, count, &all, 0), &w, false);
    x = tci_ox_pad_windows(o, tc_cast(x, d == TC_F64 ? d : TC_F32), &w, 0);
    tci_ox_out(o, 0, tc_cast(tc_div(tci_ox_windows_reduce(o, x, &w, false), count), d));
}

TCI_OX_MAKE(lp_pool)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    double p = o->opset < 2 ? tci_ox_real(o, "p", 2) : (double)tci_ox_int(o, "p", 2);
    tci_ox_overhang(&w);
    x = tci_ox_pad_windows(o, p == 2 ? tc_square(x) : tc_pow(tc_abs(x), p), &w, 0);
    x = tci_ox_windows_reduce(o, x, &w, false);
    tci_ox_out(o, 0, p == 2 ? tc_sqrt(x) : tc_pow(x, 1 / p));
}

/* Indices into the padded image as those into the image, column-major if storage_order. */
static tc_tensor tci_ox_pool_indices(const tci_ox_op *o, tc_tensor at, const tci_ox_window_args *w,
                                     int64_t padded[3], const int64_t *sizes)
{
    tc_tensor place[3], sum = TC_NONE;
    bool columns = tci_ox_int(o, "storage_order", 0) != 0;
    for (int i = w->n - 1; i >= 0; i--) {
        place[i] = tc_sub(tc_remainder(at, padded[i]), w->before[i]);
        at = tc_floor_divide(at, padded[i]);
    }
    int64_t stride = 1;
    for (int j = 0; j < w->n; j++) {
        int i = columns ? j : w->n - 1 - j;
        sum = j ? tc_add(sum, tc_mul(place[i], stride)) : place[i];
        stride = tc_dim_mul(stride, sizes[i + 2]);
    }
    /* counted over batch and channels */
    tc_tensor image = tc_add(tc_mul(tci_ox_places(o, sizes[0], w->n + 2, 0), sizes[1]),
                             tci_ox_places(o, sizes[1], w->n + 2, 1));
    return tc_add(sum, tc_mul(image, stride));
}

TCI_OX_MAKE(max_pool)
{
    tc_tensor x = tci_ox_in(o, 0), at;
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    tc_dtype d = tc_dtype_of(x);
    tc_pool p = {.ceil_mode = false};
    bool plain = tci_ox_is_plain_pool(&w, &p) && !tci_ox_wants(o, 1);
    int64_t padded[3];
    if (!plain) {
        tci_ox_overhang(&w);
        double least = tci_ox_is_float(d) ? -HUGE_VAL : d == TC_I8 ? -128 : 0;
        x = tci_ox_pad_windows(o, x, &w, least);
        for (int i = 0; i < w.n; i++) {
            p.padding[i] = 0;
            padded[i] = tc_size(x, i + 2);
        }
    }
    if (!tci_ox_wants(o, 1)) {
        tci_ox_out(o, 0,
                   w.n == 1   ? tc_max_pool1d(x, &p)
                   : w.n == 2 ? tc_max_pool2d(x, &p)
                              : tc_max_pool3d(x, &p));
        return;
    }
    tc_tensor y;
    if (w.n == 1) {
        tc_max_pool1d_with_indices(x, &p, &y, &at);
    } else if (w.n == 2) {
        tc_max_pool2d_with_indices(x, &p, &y, &at);
    } else {
        tc_max_pool3d_with_indices(x, &p, &y, &at);
    }
    tci_ox_out(o, 0, y);
    tci_ox_out(o, 1, tci_ox_pool_indices(o, at, &w, padded, w.sizes));
}

/* Global pools: over all axes of the image. */
TCI_OX_MAKE(global_pool)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int *axes = TCI_NEW_ARRAY(o->s, int, rank + 1);
    for (int i = 2; i < rank; i++) {
        axes[i - 2] = i;
    }
    tc_axes image = TC_AXES_N(axes, rank - 2);
    if (!strcmp(o->row->call, "norm")) {
        tci_ox_out(o, 0, tc_norm(x, (double)tci_ox_int(o, "p", 2), image, true));
        return;
    }
    bool max = !strcmp(o->row->call, "max");
    tci_ox_out(o, 0, max ? tc_max(x, image, true) : tc_mean(x, image, true));
}

TCI_OX_MAKE(max_unpool)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1);
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    int64_t *sizes = tci_scratch_copy(o->s, w.sizes, sizeof(*sizes) * (size_t)(w.n + 2)), all = 1;
    int64_t natural = 1;
    for (int i = 0; i < w.n; i++) {
        sizes[i + 2] = tc_dim_add(tc_dim_mul(tc_dim_sub(w.sizes[i + 2], 1), w.stride[i]),
                                  w.kernel[i]);
        sizes[i + 2] = tc_dim_sub(sizes[i + 2], tc_dim_add(w.before[i], w.after[i]));
    }
    int64_t *small = tci_scratch_copy(o->s, sizes, sizeof(*sizes) * (size_t)(w.n + 2));
    if (tci_ox_has(o, 2)) {
        const int64_t *want = tci_ox_need_ints(o, 2, "the output shape", &n);
        for (int i = 0; i < n && n == w.n + 2; i++) {
            sizes[i] = want[i];
        }
    }
    for (int i = 0; i < w.n + 2; i++) {
        all = tc_dim_mul(all, sizes[i]);
        natural = tc_dim_mul(natural, small[i]);
    }
    tc_tensor y = tc_expand(tc_full(o->ctx, 0, tc_dtype_of(x)), natural);
    y = tc_scatter(y, 0, tc_reshape(at, tc_count(at)), tc_reshape(x, tc_count(x)));
    y = tci_ox_shape_as(o, y, w.n + 2, small);
    for (int i = 0; i < w.n + 2; i++) {
        y = tc_pad(y, i, 0, tc_dim_sub(sizes[i], small[i]), 0);
    }
    tci_ox_out(o, 0, y);
}

/* Where element j of the window at `place` (both counted row-major) is in the padded image. */
static int64_t tci_ox_patch_place(int n, int64_t j, int64_t place, const tci_ox_window_args *w,
                                  const int64_t *steps, const int64_t *padded)
{
    int64_t at = 0, stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        int64_t k = j % w->kernel[i], step = place % steps[i];
        j /= w->kernel[i];
        place /= steps[i];
        at += (step * w->stride[i] + k * w->dilation[i]) * stride;
        stride *= padded[i];
    }
    return at;
}

TCI_OX_MAKE(col2im)
{
    int n, n_block, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *image = tci_ox_need_ints(o, 1, "the image shape", &n);
    const int64_t *block = tci_ox_need_ints(o, 2, "the block shape", &n_block);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    tci_ox_window_args w = {.n = n};
    int64_t pads[6], padded[3], steps[3], kernel = 1, windows = 1, all = 1;
    if (n < 1 || n > 3 || n_block != n || rank != 3) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "an image of %d axes: expected 1 to 3", n);
    }
    tci_ox_fill(o, "pads", 2 * n, pads, 0);
    tci_ox_fill(o, "strides", n, w.stride, 1);
    tci_ox_fill(o, "dilations", n, w.dilation, 1);
    for (int i = 0; i < n; i++) {
        w.kernel[i] = block[i];
        padded[i] = image[i] + pads[i] + pads[i + n];
        int64_t room = padded[i] - w.dilation[i] * (block[i] - 1) - 1;
        steps[i] = w.stride[i] < 1 ? -1 : room / w.stride[i] + 1;
        if (block[i] < 1 || w.dilation[i] < 1 || steps[i] < 1 || steps[i] > 1 << 20 ||
            block[i] > 1 << 20) {
            tci_ox_fail(o, TC_ERR_SHAPE, "no window fits");
        }
        kernel *= block[i];
        windows *= steps[i];
        all *= padded[i];
    }
    if (kernel * windows > TCI_OX_LIST_MOST * 16 || sizes[2] != windows) {
        tci_ox_fail(o, TC_ERR_SHAPE, "there are %" PRId64 " windows", windows);
    }
    int64_t *places = TCI_NEW_ARRAY(o->s, int64_t, kernel *windows);
    for (int64_t i = 0; i < kernel * windows; i++) {
        places[i] = tci_ox_patch_place(n, i / windows, i % windows, &w, steps, padded);
    }
    int64_t channels = tc_dim_div(sizes[1], kernel), to[5] = {sizes[0], channels};
    tc_tensor at = tc_copy_in(o->ctx, (const void *)places, TC_I64, 1, 1, kernel * windows);
    at = tc_expand(at, sizes[0], channels, kernel * windows);
    tc_tensor y = tc_expand(tc_full(o->ctx, 0, tc_dtype_of(x)), sizes[0], channels, all);
    y = tc_scatter_add(y, 2, at, tc_reshape(x, sizes[0], channels, kernel * windows));
    memcpy(to + 2, padded, sizeof(*padded) * (size_t)n);
    y = tci_ox_shape_as(o, y, n + 2, to);
    for (int i = 0; i < n; i++) {
        y = tc_pad(y, i + 2, -pads[i], -pads[i + n], 0);
    }
    tci_ox_out(o, 0, y);
}
