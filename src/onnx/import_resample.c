/* onnx/import_resample.c - imports ONNX operators that interpolate images: Resize, Upsample,
 * GridSample, AffineGrid, RoiAlign, DeformConv.
 *
 * Resize to known sizes: along each axis an element is a weighted sum of a few elements of x
 * (taps), whose positions and weights are computed here. For symbolic sizes nearest and linear
 * sampling compute them in the program. */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { TCI_OX_TAPS = 64 };

typedef struct tci_ox_resize {
    const char *mode, *where, *nearest;
    double cubic, roi[2];
    bool exclude, antialias;
    int64_t in, out;
    double scale; /* 0: out / in */
    /* taps of each element: [tap][element] */
    int n;
    int64_t *place;
    double *weight;
    bool *outside; /* of tf_crop_and_resize */
} tci_ox_resize;

/* Where element i of the result is in x. */
static double tci_ox_source(const tci_ox_resize *r, double i)
{
    double in = (double)r->in, scale = r->scale, out = scale * in;
    if (!strcmp(r->where, "align_corners")) {
        return out == 1 ? 0 : i * (in - 1) / (out - 1);
    } else if (!strcmp(r->where, "asymmetric")) {
        return i / scale;
    } else if (!strcmp(r->where, "tf_crop_and_resize")) {
        double first = r->roi[0] * (in - 1), span = (r->roi[1] - r->roi[0]) * (in - 1);
        return first + (out == 1 ? span / 2 : i * span / (out - 1));
    } else if (!strcmp(r->where, "pytorch_half_pixel") && out == 1) {
        return -0.5;
    } else if (!strcmp(r->where, "half_pixel_symmetric")) {
        return in / 2 * (1 - (double)r->out / out) + (i + 0.5) / scale - 0.5;
    }
    return (i + 0.5) / scale - 0.5;
}

static double tci_ox_cubic(double x, double a)
{
    x = fabs(x);
    return x <= 1  ? (a + 2) * x * x * x - (a + 3) * x * x + 1
           : x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a
                   : 0;
}

static void tci_ox_resize_nearest(tci_ox_resize *r, int64_t i, double at, double low)
{
    double ratio = at - low;
    bool up = !strcmp(r->nearest, "ceil")                ? ratio > 0
              : !strcmp(r->nearest, "round_prefer_ceil") ? ratio >= 0.5
              : !strcmp(r->nearest, "floor")             ? false
                                                         : ratio > 0.5;
    int64_t place = (int64_t)low + up;
    r->place[i] = place < 0 ? 0 : place >= r->in ? r->in - 1 : place;
    r->weight[i] = 1;
}

/* Weights of the taps around `at`; first: the first of them, from floor(at) on. */
static void tci_ox_resize_taps(tci_ox_resize *r, int64_t i, double at, double low, int first)
{
    double stretch = r->antialias && r->scale < 1 ? r->scale : 1, sum = 0;
    bool cubic = !strcmp(r->mode, "cubic");
    for (int k = 0; k < r->n; k++) {
        double d = (low + first + k - at) * stretch, w = 1 - fabs(d);
        int64_t place = (int64_t)low + first + k;
        w = cubic ? tci_ox_cubic(d, r->cubic) : w < 0 ? 0 : w;
        w = r->exclude && (place < 0 || place >= r->in) ? 0 : w;
        r->place[k * r->out + i] = place < 0 ? 0 : place >= r->in ? r->in - 1 : place;
        r->weight[k * r->out + i] = w;
        sum += w;
    }
    for (int k = 0; k < r->n && (r->exclude || r->antialias); k++) {
        r->weight[k * r->out + i] /= sum;
    }
}

static void tci_ox_resize_plan(const tci_ox_op *o, tci_ox_resize *r)
{
    bool nearest = !strcmp(r->mode, "nearest");
    double stretch = r->antialias && r->scale < 1 ? r->scale : 1;
    double reach = (strcmp(r->mode, "cubic") ? 1 : 2) / stretch;
    int first = (int)floor(-fmin(reach, TCI_OX_TAPS)) + 1;
    r->n = nearest ? 1 : 2 - 2 * first;
    if (r->n > TCI_OX_TAPS || r->out > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_LIMIT, "an axis of %" PRId64 " elements, each of %d", r->out, r->n);
    }
    r->place = TCI_NEW_ARRAY(o->s, int64_t, r->n * r->out);
    r->weight = TCI_NEW_ARRAY(o->s, double, r->n * r->out);
    r->outside = TCI_NEW_ARRAY(o->s, bool, r->out);
    for (int64_t i = 0; i < r->out; i++) {
        double at = tci_ox_source(r, (double)i), low = floor(at);
        r->outside[i] = at < 0 || at > (double)(r->in - 1);
        if (nearest) {
            tci_ox_resize_nearest(r, i, at, low);
        } else {
            tci_ox_resize_taps(r, i, at, low, first);
        }
    }
}

/* A list along one axis of x. */
static tc_tensor tci_ox_axis_list(const tci_ox_op *o, tc_tensor list, int rank, int axis)
{
    int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        wide[i] = i == axis ? tc_size(list, 0) : 1;
    }
    return tci_ox_shape_as(o, list, rank, wide);
}

static tc_tensor tci_ox_resize_known(const tci_ox_op *o, tc_tensor x, int axis, tci_ox_resize *r)
{
    tc_tensor sum = TC_NONE;
    tci_ox_resize_plan(o, r);
    for (int k = 0; k < r->n; k++) {
        tc_tensor at = tc_copy_in(o->ctx, (const void *)(r->place + k * r->out), TC_I64, r->out);
        tc_tensor part = tc_index_select(x, axis, at);
        if (strcmp(r->mode, "nearest")) {
            const void *weights = r->weight + k * r->out;
            tc_tensor w = tc_copy_in(o->ctx, weights, TC_F64, r->out);
            w = tc_cast(w, tc_dtype_of(x));
            part = tc_mul(part, tci_ox_axis_list(o, w, tc_rank(x), axis));
        }
        sum = k ? tc_add(sum, part) : part;
    }
    return sum;
}

/* Sizes known in a run alone. by: elements of x for one of the result, or TC_NONE: in / out. */
static tc_tensor tci_ox_resize_symbolic(const tci_ox_op *o, tc_tensor x, int axis,
                                        const tci_ox_resize *r)
{
    bool nearest = !strcmp(r->mode, "nearest"), corners = !strcmp(r->where, "align_corners");
    bool plain = !strcmp(r->where, "asymmetric"), half = strstr(r->where, "half_pixel") != NULL;
    if ((!nearest && strcmp(r->mode, "linear")) || r->antialias || (!corners && !plain && !half)) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "mode %.20s at %.30s needs sizes that are numbers",
                    r->mode, r->where);
    }
    tc_tensor i = tc_cast(tc_arange(o->ctx, 0, r->out, 1, TC_I64), TC_F32);
    tc_tensor in = tc_cast(tc_full(o->ctx, r->in, TC_I64), TC_F32);
    tc_tensor out = tc_cast(tc_full(o->ctx, r->out, TC_I64), TC_F32);
    tc_tensor by = r->scale != 0 ? tc_full(o->ctx, 1 / r->scale, TC_F32) : tc_div(in, out);
    by = corners ? tc_div(tc_sub(in, 1), tc_maximum(tc_sub(out, 1), 1)) : by;
    tc_tensor at = half ? tc_sub(tc_mul(tc_add(i, 0.5), by), 0.5) : tc_mul(i, by), low;
    at = tc_clamp(at, 0, tc_sub(in, 1));
    if (nearest) {
        low = !strcmp(r->nearest, "floor")               ? tc_floor(at)
              : !strcmp(r->nearest, "ceil")              ? tc_ceil(at)
              : !strcmp(r->nearest, "round_prefer_ceil") ? tc_floor(tc_add(at, 0.5))
                                                         : tc_ceil(tc_sub(at, 0.5));
        return tc_index_select(x, axis, tc_cast(low, TC_I64));
    }
    low = tc_floor(at);
    tc_tensor w = tci_ox_axis_list(o, tc_cast(tc_sub(at, low), tc_dtype_of(x)), tc_rank(x), axis);
    tc_tensor high = tc_minimum(tc_add(low, 1), tc_sub(in, 1));
    tc_tensor a = tc_index_select(x, axis, tc_cast(low, TC_I64));
    tc_tensor b = tc_index_select(x, axis, tc_cast(high, TC_I64));
    return tc_add(a, tc_mul(tc_sub(b, a), w));
}

/* The size of an axis, and the scale that coordinates follow from. */
typedef struct tci_ox_resizing {
    int rank, n;
    const int64_t *in, *axes;
    int64_t *out;
    double *scale;
    bool given[TCI_OX_RANK];
} tci_ox_resizing;

/* keep_aspect_ratio_policy: one scale for all axes. */
static void tci_ox_keep_aspect(const tci_ox_op *o, tci_ox_resizing *z, const char *policy)
{
    double one = 0;
    for (int i = 0; i < z->n; i++) {
        int axis = tci_ox_axis(o, z->axes ? z->axes[i] : i, z->rank);
        double s = (double)z->out[axis] / (double)z->in[axis];
        if (!tci_dim_is_known(z->out[axis]) || !tci_dim_is_known(z->in[axis])) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "%.20s needs sizes that are numbers", policy);
        }
        one = i == 0 ? s : !strcmp(policy, "not_larger") ? fmin(one, s) : fmax(one, s);
    }
    for (int i = 0; i < z->n; i++) {
        int axis = tci_ox_axis(o, z->axes ? z->axes[i] : i, z->rank);
        z->scale[axis] = one;
        z->out[axis] = (int64_t)floor(one * (double)z->in[axis] + 0.5);
    }
}

/* floor(size * scale), also of a symbolic size and a scale that is a quotient of small numbers. */
static int64_t tci_ox_scaled(const tci_ox_op *o, int64_t in, double scale)
{
    if (tci_dim_is_known(in)) {
        return (int64_t)floor((double)in * scale);
    }
    for (int64_t by = 1; by <= 64; by++) {
        double up = scale * (double)by;
        if (up == floor(up) && up < 1 << 20) {
            return tc_dim_div(tc_dim_mul(in, (int64_t)up), by);
        }
    }
    tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a symbolic size times %g", scale);
    return 0;
}

static tci_ox_resizing tci_ox_resizing_of(const tci_ox_op *o, tc_tensor x, int at_scales,
                                          int at_sizes)
{
    tci_ox_resizing z = {.n = 0};
    int n_axes, n = 0;
    z.in = tci_ox_sizes(o, x, &z.rank);
    if (z.rank > TCI_OX_RANK) {
        tci_ox_fail(o, TC_ERR_LIMIT, "%d axes", z.rank);
    }
    z.axes = tci_ox_ints(o, "axes", &n_axes);
    z.n = z.axes ? n_axes : z.rank;
    z.out = tci_scratch_copy(o->s, z.in, sizeof(*z.out) * (size_t)z.rank);
    z.scale = TCI_NEW_ARRAY(o->s, double, z.rank);
    const int64_t *sizes = tci_ox_has(o, at_sizes) ? tci_ox_need_ints(o, at_sizes, "the sizes", &n)
                                                   : NULL;
    const tci_onnx_attr *old = tci_ox_attr(o, "scales");
    const tci_ox_known *k = sizes || old ? NULL : tci_ox_need(o, at_scales, "the scales");
    int64_t count = sizes ? n : old ? old->n : k->n;
    if (count == 0 && tci_ox_has(o, at_sizes)) {
        count = n;
    }
    if (count != z.n) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%" PRId64 " scales or sizes for %d axes", count, z.n);
    }
    for (int i = 0; i < z.n; i++) {
        int axis = tci_ox_axis(o, z.axes ? z.axes[i] : i, z.rank);
        z.given[axis] = true;
        if (sizes) {
            z.out[axis] = sizes[i];
            z.scale[axis] = 0;
            continue;
        }
        bool listed = old && old->kind == TCI_ONNX_FLOATS;
        z.scale[axis] = listed ? old->floats[i] : k ? k->cells[i].f : 1;
        if (k && k->cells[i].den) { /* a symbolic size over another */
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a scale that follows from symbolic sizes");
        }
        z.out[axis] = tci_ox_scaled(o, z.in[axis], z.scale[axis]);
    }
    const char *policy = tci_ox_text(o, "keep_aspect_ratio_policy", "stretch");
    if (sizes && strcmp(policy, "stretch")) {
        tci_ox_keep_aspect(o, &z, policy);
    }
    return z;
}

static tc_tensor tci_ox_resize_all(const tci_ox_op *o, tci_ox_resize how, const tci_ox_resizing *z,
                                   const tci_ox_known *roi)
{
    tc_tensor x = tci_ox_in(o, 0), outside = TC_NONE;
    tc_dtype d = tc_dtype_of(x);
    bool nearest = !strcmp(how.mode, "nearest");
    x = nearest || d == TC_F64 ? x : tc_cast(x, TC_F32);
    for (int i = 0; i < z->rank; i++) {
        tci_ox_resize r = how;
        int place = i;
        r.in = z->in[i];
        r.out = z->out[i];
        r.scale = z->scale[i];
        bool crop = roi && z->given[i];
        for (int j = 0; z->axes && j < z->n; j++) {
            place = tci_ox_axis(o, z->axes[j], z->rank) == i ? j : place;
        }
        for (int j = 0; j < 2 && crop; j++) {
            r.roi[j] = place + j * z->n < roi->n ? roi->cells[place + j * z->n].f : j;
        }
        if (!crop && r.in == r.out && (r.scale == 0 || r.scale == 1)) {
            continue;
        }
        if (!tci_dim_is_known(r.in) || !tci_dim_is_known(r.out)) {
            x = tci_ox_resize_symbolic(o, x, i, &r);
            continue;
        }
        r.scale = r.scale != 0 ? r.scale : (double)r.out / (double)r.in;
        x = tci_ox_resize_known(o, x, i, &r);
        if (crop) {
            tc_tensor list = tc_copy_in(o->ctx, (const void *)r.outside, TC_BOOL, r.out);
            list = tci_ox_axis_list(o, list, z->rank, i);
            outside = tci_ox_given(outside) ? tc_logical_or(outside, list) : list;
        }
    }
    if (tci_ox_given(outside)) {
        x = tc_where(outside, tci_ox_real(o, "extrapolation_value", 0), x);
    }
    return tc_cast(x, d);
}

TCI_OX_MAKE(resize)
{
    bool old = o->opset < 11; /* operands: x, scales */
    tci_ox_resize how = {.mode = tci_ox_text(o, "mode", "nearest"), .cubic = -0.75};
    how.mode = !strcmp(how.mode, "bilinear") ? "linear" : how.mode;
    how.where = tci_ox_text(o, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    how.nearest = tci_ox_text(o, "nearest_mode", old ? "floor" : "round_prefer_floor");
    how.cubic = tci_ox_real(o, "cubic_coeff_a", -0.75);
    how.exclude = tci_ox_int(o, "exclude_outside", 0) != 0;
    how.antialias = tci_ox_int(o, "antialias", 0) != 0;
    tci_ox_resizing z = tci_ox_resizing_of(o, tci_ox_in(o, 0), old ? 1 : 2, old ? 99 : 3);
    bool crop = !strcmp(how.where, "tf_crop_and_resize");
    tci_ox_out(o, 0, tci_ox_resize_all(o, how, &z, crop ? tci_ox_need(o, 1, "the roi") : NULL));
}

/* ---- GridSample, AffineGrid ---- */

TCI_OX_MAKE(grid_sample)
{
    tc_tensor x = tci_ox_in(o, 0), grid = tci_ox_in(o, 1);
    const char *mode = tci_ox_text(o, "mode", "linear");
    mode = !strcmp(mode, "linear") ? "bilinear" : !strcmp(mode, "cubic") ? "bicubic" : mode;
    tc_tensor y = tc_grid_sample(x, tc_cast(grid, tc_dtype_of(x)), mode,
                                 tci_ox_text(o, "padding_mode", "zeros"),
                                 tci_ox_int(o, "align_corners", 0) != 0);
    tci_ox_out(o, 0, y);
}

/* theta [n, 2, 3] or [n, 3, 4] times (x, y[, z], 1) of each position. */
TCI_OX_MAKE(affine_grid)
{
    int n;
    tc_tensor theta = tci_ox_in(o, 0), at[4], grid;
    const int64_t *size = tci_ox_need_ints(o, 1, "the size", &n);
    int axes = n - 2;
    bool corners = tci_ox_int(o, "align_corners", 0) != 0;
    if (axes != 2 && axes != 3) {
        tci_ox_fail(o, TC_ERR_SHAPE, "a size of %d numbers: expected 4 or 5", n);
    }
    for (int i = 0; i < axes; i++) {
        int axis = axes - 1 - i; /* x is the last axis */
        tc_tensor place = tc_cast(tci_ox_places(o, size[axis + 2], axes, axis), TC_F64);
        tc_tensor m = tc_cast(tc_full(o->ctx, size[axis + 2], TC_I64), TC_F64);
        place = corners ? tc_div(tc_mul(place, 2), tc_sub(m, 1))
                        : tc_div(tc_add(tc_mul(place, 2), 1), m);
        at[i] = tc_expand_at(tc_sub(place, 1), axes, size + 2, o->here);
    }
    at[axes] = tc_expand_at(tc_full(o->ctx, 1, TC_F64), axes, size + 2, o->here);
    grid = tc_cast(tc_stack(TC_TENSORS_N(at, axes + 1), axes), tc_dtype_of(theta));
    grid = tc_reshape(grid, 1, -1, axes + 1);
    grid = tc_matmul(grid, tc_transpose(theta, 1, 2));
    int64_t to[5] = {size[0], size[2], size[3], axes == 3 ? size[4] : axes, axes};
    tci_ox_out(o, 0, tci_ox_shape_as(o, grid, axes + 2, to));
}

/* ---- samples at computed positions of [n, c, h, w] ---- */

/* Bilinear samples at rows y and columns x [n, m] of images [n, c, h, w]; outside of them 0: [n, c,
 * m]. */
static tc_tensor tci_ox_sample(const tci_ox_op *o, tc_tensor image, tc_tensor y, tc_tensor x,
                               bool max)
{
    int64_t n = tc_size(image, 0), c = tc_size(image, 1), h = tc_size(image, 2);
    int64_t w = tc_size(image, 3), m = tc_size(y, 1);
    tc_tensor flat = tc_reshape(image, n, c, tc_dim_mul(h, w)), sum = TC_NONE;
    tc_tensor y0 = tc_floor(y), x0 = tc_floor(x);
    for (int i = 0; i < 4; i++) {
        tc_tensor yi = tc_add(y0, i / 2), xi = tc_add(x0, i % 2);
        tc_tensor wy = tc_sub(1, tc_abs(tc_sub(y, yi))), wx = tc_sub(1, tc_abs(tc_sub(x, xi)));
        tc_tensor in = tc_logical_and(tc_logical_and(tc_ge(yi, 0), tc_lt(yi, h)),
                                      tc_logical_and(tc_ge(xi, 0), tc_lt(xi, w)));
        tc_tensor at = tc_add(tc_mul(tc_cast(yi, TC_I64), w), tc_cast(xi, TC_I64));
        at = tc_expand(tc_unsqueeze(tc_where(in, at, 0), 1), n, c, m);
        tc_tensor weight = tc_cast(tc_where(in, tc_mul(wy, wx), 0), tc_dtype_of(image));
        tc_tensor part = tc_mul(tc_gather(flat, 2, at), tc_unsqueeze(weight, 1));
        sum = i == 0 ? part : max ? tc_maximum(sum, part) : tc_add(sum, part);
    }
    return sum;
}

TCI_OX_MAKE(roi_align)
{
    tc_tensor image = tci_ox_in(o, 0), rois = tci_ox_in(o, 1), batch = tci_ox_in(o, 2), at[2];
    int64_t out[2] = {tci_ox_int(o, "output_height", 1), tci_ox_int(o, "output_width", 1)};
    int64_t grid = tci_ox_int(o, "sampling_ratio", 0), n = tc_size(rois, 0), all[2];
    double scale = tci_ox_real(o, "spatial_scale", 1);
    const char *usual = o->opset < 16 ? "output_half_pixel" : "half_pixel";
    bool half = !strcmp(tci_ox_text(o, "coordinate_transformation_mode", usual), "half_pixel");
    bool max = !strcmp(tci_ox_text(o, "mode", "avg"), "max");
    if (grid < 1) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "sampling_ratio 0: the number of samples follows from "
                    "values");
    }
    for (int d = 0; d < 2; d++) { /* rows, columns */
        int64_t size = tc_size(image, 2 + d), m = out[d] * grid;
        tc_tensor low = tc_sub(tc_mul(tc_select(rois, 1, 1 - d), scale), half ? 0.5 : 0.0);
        tc_tensor high = tc_sub(tc_mul(tc_select(rois, 1, 3 - d), scale), half ? 0.5 : 0.0);
        tc_tensor span = tc_sub(high, low);
        span = half ? span : tc_maximum(span, 1);
        tc_tensor place = tc_cast(tci_ox_places(o, m, 2, 1), tc_dtype_of(rois));
        place = tc_mul(tc_div(tc_add(place, 0.5), (double)m), tc_unsqueeze(span, 1));
        place = tc_add(place, tc_unsqueeze(low, 1));
        tc_tensor in = tc_logical_and(tc_ge(place, -1), tc_le(place, size));
        place = tc_clamp(place, 0, tc_dim_sub(size, 1));
        at[d] = tc_where(in, place, -2); /* outside: 0 */
        all[d] = m;
    }
    int64_t m = all[0] * all[1];
    tc_tensor y = tc_reshape(tc_expand(tc_unsqueeze(at[0], 2), n, all[0], all[1]), n, m);
    tc_tensor x = tc_reshape(tc_expand(tc_unsqueeze(at[1], 1), n, all[0], all[1]), n, m);
    image = tc_index_select(image, 0, batch);
    y = tci_ox_sample(o, image, y, x, max);
    y = tc_reshape(y, n, tc_size(image, 1), out[0], grid, out[1], grid);
    tci_ox_out(o, 0, max ? tc_max(y, TC_AXES(3, 5), false) : tc_mean(y, TC_AXES(3, 5), false));
}

/* Samples where offsets say, then a product with the weights. */
TCI_OX_MAKE(deform_conv)
{
    int rank, n_pads, n_strides, n_dilations;
    tc_tensor x = tci_ox_in(o, 0), w = tci_ox_in(o, 1), offset = tci_ox_in(o, 2), at[2];
    tc_tensor mask = tci_ox_maybe(o, 4), bias = tci_ox_maybe(o, 3);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *ws = tci_ox_sizes(o, w, &rank);
    const int64_t *pads = tci_ox_ints(o, "pads", &n_pads);
    const int64_t *strides = tci_ox_ints(o, "strides", &n_strides);
    const int64_t *dilations = tci_ox_ints(o, "dilations", &n_dilations);
    int64_t group = tci_ox_int(o, "group", 1), og = tci_ox_int(o, "offset_group", 1);
    if (rank != 4 || tc_rank(x) != 4 || tc_rank(offset) != 4 || og < 1 || group < 1) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a weight of %d axes: expected 4", rank);
    }
    int64_t n = sizes[0], c = sizes[1], k = ws[2] * ws[3], oh = tc_size(offset, 2);
    int64_t ow = tc_size(offset, 3), each = tc_dim_div(c, og), points = tc_dim_mul(oh, ow);
    offset = tc_reshape(offset, n, og, ws[2], ws[3], 2, oh, ow);
    for (int d = 0; d < 2; d++) {
        tc_tensor place = tc_select(offset, 4, d); /* [n, og, kh, kw, oh, ow] */
        tc_tensor out = tc_mul(tci_ox_places(o, d ? ow : oh, 6, 4 + d),
                               strides && d < n_strides ? strides[d] : 1);
        tc_tensor in = tc_mul(tci_ox_places(o, ws[2 + d], 6, 2 + d),
                              dilations && d < n_dilations ? dilations[d] : 1);
        place = tc_add(place, tc_sub(tc_add(out, in), pads && d < n_pads ? pads[d] : 0));
        at[d] = tc_reshape(place, tc_dim_mul(n, og), tc_dim_mul(k, points));
    }
    tc_tensor image = tc_reshape(x, tc_dim_mul(n, og), each, sizes[2], sizes[3]);
    tc_tensor y = tci_ox_sample(o, image, at[0], at[1], false);
    y = tc_reshape(y, n, og, each, k, points);
    if (tci_ox_given(mask)) {
        y = tc_mul(y, tc_reshape(mask, n, og, 1, k, points));
    }
    y = tc_reshape(y, n, group, tc_dim_mul(tc_dim_div(c, group), k), points);
    w = tc_reshape(w, 1, group, tc_dim_div(ws[0], group), ws[1] * k);
    y = tc_reshape(tc_matmul(w, y), n, ws[0], oh, ow);
    tci_ox_out(o, 0, tci_ox_given(bias) ? tc_add(y, tc_reshape(bias, ws[0], 1, 1)) : y);
}
