/* ops/resample.c - image resampling: interpolation to other sizes, and sampling at the points of a
 * grid.
 *
 * In: x [N, C, ...] with one to three spatial axes; sizes or factors, or a grid. Out: for each tap
 * along an axis, x read at an index that follows from the coordinate, times its weight.
 *
 * A coordinate is a float node: its floor is the index, its fraction the weight, and the gradient
 * of both follows. Coordinates are computed in f32, for f64 images in f64. */
#include "convolution_pooling.h"

#include <string.h>

/* ---- coordinates ---- */

static tc_dtype tci_sample_dtype(const tci_node *x)
{
    return x->dtype == TC_F64 ? TC_F64 : TC_F32;
}

static tci_node *tci_sample_scaled(tci_graph *g, tci_node *x, double factor, double more)
{
    if (!x) {
        return NULL;
    }
    tc_dtype t = (tc_dtype)x->dtype;
    tci_node *r = factor == 1
                      ? x
                      : tci_composite_binary(g, TCI_OP_MUL, x, tci_composite_number(g, t, factor));
    return more == 0 ? r : tci_composite_binary(g, TCI_OP_ADD, r, tci_composite_number(g, t, more));
}

/* The element before a coordinate, as an index; and what is left of it. */
static tci_node *tci_sample_floor(tci_graph *g, tci_node *at, tci_node **rest)
{
    tci_node *whole = tci_composite_unary(g, TCI_OP_FLOOR, at);
    *rest = tci_composite_binary(g, TCI_OP_SUB, at, whole);
    return tci_build_cast(g, whole, TC_I64);
}

/* An index plus a number, held within an axis of n elements. */
static tci_node *tci_sample_within(tci_graph *g, tci_node *index, int64_t more, tci_dim n)
{
    tci_node *last = tci_build_size_value(g, tci_dim_sub(n, 1), TC_I64);
    tci_node *at = more ? tci_composite_binary(g, TCI_OP_ADD, index, tci_composite_whole(g, more))
                        : index;
    at = tci_composite_binary(g, TCI_OP_MAXIMUM, at, tci_composite_whole(g, 0));
    return tci_composite_binary(g, TCI_OP_MINIMUM, at, last);
}

/* Keys' cubic kernel (Cubic convolution interpolation for digital image processing, 1981) with
 * a = -0.75: the weight of the element at distance `tap` - 1 - rest. */
static tci_node *tci_sample_cubic(tci_graph *g, tci_node *rest, int tap)
{
    static const double rows[4][4] = {/* of rest^3, rest^2, rest, 1 */
                                      {-0.75, 1.5, -0.75, 0},
                                      {1.25, -2.25, 0, 1},
                                      {-1.25, 1.5, 0.75, 0},
                                      {0.75, -0.75, 0, 0}};
    const double *k = rows[tap];
    tci_node *r = tci_sample_scaled(g, rest, k[0], k[1]);
    r = tci_sample_scaled(g, tci_composite_binary(g, TCI_OP_MUL, r, rest), 1, k[2]);
    return tci_sample_scaled(g, tci_composite_binary(g, TCI_OP_MUL, r, rest), 1, k[3]);
}

/* The weight of tap `tap` of 2 or 4. */
static tci_node *tci_sample_weight(tci_graph *g, tci_node *rest, int tap, int taps)
{
    if (taps == 4) {
        return tci_sample_cubic(g, rest, tap);
    }
    return tap ? rest : tci_sample_scaled(g, rest, -1, 1);
}

/* ---- interpolation ---- */

typedef enum tci_sample_mode {
    TCI_SAMPLE_NEAREST,
    TCI_SAMPLE_NEAREST_EXACT,
    TCI_SAMPLE_LINEAR,
    TCI_SAMPLE_CUBIC,
    TCI_SAMPLE_AREA
} tci_sample_mode;

static bool tci_sample_is_nearest(tci_sample_mode mode)
{
    return mode == TCI_SAMPLE_NEAREST || mode == TCI_SAMPLE_NEAREST_EXACT;
}

static bool tci_sample_mode_of(tci_graph *g, const char *name, int n, tci_sample_mode *mode)
{
    static const struct {
        const char *name;
        int least, most;
        tci_sample_mode mode;
    } rows[] = {
        {"nearest", 1, 3, TCI_SAMPLE_NEAREST},  {"nearest-exact", 1, 3, TCI_SAMPLE_NEAREST_EXACT},
        {"linear", 1, 1, TCI_SAMPLE_LINEAR},    {"bilinear", 2, 2, TCI_SAMPLE_LINEAR},
        {"trilinear", 3, 3, TCI_SAMPLE_LINEAR}, {"bicubic", 2, 2, TCI_SAMPLE_CUBIC},
        {"area", 1, 3, TCI_SAMPLE_AREA}};
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        if (!strcmp(rows[i].name, name) && n >= rows[i].least && n <= rows[i].most) {
            *mode = rows[i].mode;
            return true;
        }
    }
    tci_graph_fail(g, TC_ERR_ARGUMENT,
                   "the mode is \"%.40s\" for images of %d axes: expected \"nearest\", "
                   "\"nearest-exact\", \"area\", \"linear\" (1), \"bilinear\", \"bicubic\" (2) or "
                   "\"trilinear\" (3)",
                   name, n);
    return false;
}

static bool tci_sample_check_size(tci_graph *g, tci_dim size)
{
    if (!tci_build_check_dim(g, "a size", size, TC_ERR_SHAPE) || !tci_dim_le(1, size)) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the size %s: expected at least 1%s", TCI_DIM_TEXT(size),
                       TCI_LEAST_NOTE(size, 1));
        return false;
    }
    return true;
}

/* The size of an axis of n elements, and the distance of the results in x if not n / size; 0. */
static bool tci_sample_size(tci_graph *g, tci_dim n, const struct tc_interpolation *o, int axis,
                            bool nearest, tci_dim *size, double *apart)
{
    const double factor = o->scale_factor[axis];
    const bool whole = factor >= 1 && factor < 1e15 && factor == (double)(int64_t)factor;
    *apart = 0;
    *size = o->size[axis];
    if ((*size != 0) == (factor != 0)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "axis %d of the image has size %s and factor %g: expected one of the two",
                       axis, TCI_DIM_TEXT(*size), factor);
        return false;
    }
    if (factor != 0) {
        if (whole && (nearest || !tci_dim_is_known(n))) { /* each element repeated: exact */
            *size = tci_dim_mul(n, (int64_t)factor);
            return tci_sample_check_size(g, *size);
        }
        double wanted = tci_dim_is_known(n) ? (double)tci_dim_known(n) * factor : -1;
        if (!(wanted >= 1 && wanted < 1e15)) {
            tci_graph_fail(g, TC_ERR_ARGUMENT,
                           "factor %g of %s elements: expected at least one element, and of a "
                           "symbolic size a whole number",
                           factor, TCI_DIM_TEXT(n));
            return false;
        }
        *size = (int64_t)wanted;
        *apart = o->recompute_scale_factor ? 0 : 1 / factor;
    }
    return tci_sample_check_size(g, *size);
}

/* Positions of the results of an axis in x, as coordinates [size]. */
static tci_node *tci_sample_places(tci_graph *g, tc_dtype t, tci_dim n, tci_dim size, double apart,
                                   tci_sample_mode mode, bool align_corners)
{
    const bool linear = mode == TCI_SAMPLE_LINEAR, smooth = linear || mode == TCI_SAMPLE_CUBIC;
    tci_node *at = tci_build_cast(g, tci_build_iota(g, size), t);
    const bool corners = align_corners && smooth;
    if (!corners && mode != TCI_SAMPLE_NEAREST) {
        at = tci_sample_scaled(g, at, 1, 0.5);
    }
    if (corners || apart == 0) { /* a product and a quotient: whole results are exact */
        tci_dim span = corners ? tci_dim_sub(n, 1) : n;
        tci_dim parts = corners ? tci_dim_max(tci_dim_sub(size, 1), 1) : size;
        at = tci_composite_binary(g, TCI_OP_MUL, at, tci_build_size_value(g, span, t));
        at = tci_composite_binary(g, TCI_OP_DIV, at, tci_build_size_value(g, parts, t));
    } else {
        at = tci_sample_scaled(g, at, apart, 0);
        /* as in PyTorch 2.15: 39 (1 / 2.6) is less than 15 in f64, and 15 when rounded to f32 */
        at = smooth ? at : tci_build_cast(g, at, TC_F32);
    }
    if (corners || !smooth) {
        return at;
    }
    at = tci_sample_scaled(g, at, 1, -0.5);
    return linear ? tci_composite_binary(g, TCI_OP_MAXIMUM, at, tci_composite_number(g, t, 0)) : at;
}

/* w [size] along one axis of rank. */
static tci_node *tci_sample_along(tci_graph *g, tci_node *w, int rank, int axis)
{
    tci_dim line[2 + TCI_IMAGE_AXES] = {1, 1, 1, 1, 1};
    if (!w) {
        return NULL;
    }
    line[axis] = w->shape[0];
    return tci_build_reshape(g, w, rank, line);
}

static tci_node *tci_sample_axis(tci_graph *g, tci_node *x, int axis, tci_dim size, double apart,
                                 tci_sample_mode mode, bool align_corners)
{
    if (!x) {
        return NULL;
    }
    const tci_dim n = x->shape[axis];
    const bool nearest = tci_sample_is_nearest(mode);
    if (size == n && (apart == 0 || apart == 1)) {
        return x; /* without products of neighbors and weights of 0 */
    }
    if (nearest && apart == 0 && tci_dim_divides(n, size)) {
        return tci_build_repeat_each(g, x, axis, tci_dim_div(size, n));
    }
    tci_node *rest, *r = NULL;
    tci_node *at = tci_sample_places(g, tci_sample_dtype(x), n, size, apart, mode, align_corners);
    tci_node *index = tci_sample_floor(g, at, &rest);
    if (nearest) {
        return tci_build_index_select(g, x, axis, tci_sample_within(g, index, 0, n));
    }
    const int taps = mode == TCI_SAMPLE_LINEAR ? 2 : 4;
    for (int i = 0; i < taps; i++) {
        tci_node *read = tci_sample_within(g, index, taps == 2 ? i : i - 1, n);
        tci_node *weight = tci_sample_weight(g, rest, i, taps);
        weight = tci_build_cast(g, tci_sample_along(g, weight, x->rank, axis), (tc_dtype)x->dtype);
        read = tci_composite_binary(g, TCI_OP_MUL, tci_build_index_select(g, x, axis, read),
                                    weight);
        r = r ? tci_composite_binary(g, TCI_OP_ADD, r, read) : read;
    }
    return r;
}

TCI_FN tci_node *tci_build_interpolate(tci_graph *g, tci_node *x, const struct tc_interpolation *o)
{
    tci_sample_mode mode;
    tci_dim sizes[TCI_IMAGE_AXES];
    double apart[TCI_IMAGE_AXES];
    tci_image image;
    const int n = x ? x->rank - 2 : 0;
    if (!x) {
        return NULL;
    }
    if (n < 1 || n > TCI_IMAGE_AXES || !o) {
        tci_graph_fail(g, o ? TC_ERR_SHAPE : TC_ERR_ARGUMENT,
                       "x has shape %s, and options are %s: expected [N, C, ...] with one to three "
                       "more axes, and their sizes or factors",
                       TCI_SHAPE_TEXT(x), o ? "given" : "NULL");
        return NULL;
    }
    if (!tci_image_of(g, x, n, &image) ||
        !tci_sample_mode_of(g, o->mode ? o->mode : "nearest", n, &mode)) {
        return NULL;
    }
    const bool nearest = tci_sample_is_nearest(mode);
    for (int i = 0; i < n; i++) {
        if (!tci_sample_size(g, x->shape[2 + i], o, i, nearest, &sizes[i], &apart[i]) ||
            !tci_build_can_read(g, "x", x, 2 + i, sizes[i])) {
            return NULL;
        }
    }
    if (mode == TCI_SAMPLE_AREA) {
        return tci_build_adaptive_avg_pool(g, n, x, n, sizes);
    }
    const bool smooth = mode == TCI_SAMPLE_LINEAR || mode == TCI_SAMPLE_CUBIC;
    const bool whole = !tci_dtype_is_float((tc_dtype)x->dtype);
    tci_node *r = smooth ? tci_build_cast(g, x, whole ? TC_F32 : tci_composite_math(x)) : x;
    for (int i = n - 1; i >= 0; i--) {
        r = tci_sample_axis(g, r, 2 + i, sizes[i], apart[i], mode, o->align_corners);
    }
    r = smooth && whole ? tci_composite_unary(g, TCI_OP_ROUND, r) : r;
    return tci_build_cast(g, r, (tc_dtype)x->dtype);
}

/* ---- at the points of a grid ---- */

typedef enum tci_grid_edge { TCI_GRID_ZEROS, TCI_GRID_BORDER, TCI_GRID_REFLECTION } tci_grid_edge;

typedef struct tci_grid {
    tci_graph *g;
    tci_node *flat; /* x [N, C, all of an image] */
    const tci_node *x;
    tci_grid_edge edge;
    bool align_corners;
    int n, taps;                  /* axes; taps along each: 1, 2 or 4 */
    tci_node *at[TCI_IMAGE_AXES]; /* coordinates [N, 1, points] */
} tci_grid;

static int tci_grid_word(tci_graph *g, const char *what, const char *name,
                         const char *const words[3])
{
    for (int i = 0; i < 3; i++) {
        if (!name || !strcmp(name, words[i])) {
            return i;
        }
    }
    tci_graph_fail(g, TC_ERR_ARGUMENT, "the %s is \"%.40s\": expected \"%s\", \"%s\" or \"%s\"",
                   what, name, words[0], words[1], words[2]);
    return -1;
}

/* A coordinate reflected at both ends of an axis until it is between them: those of the elements
 * themselves, or with half an element more. An axis of one element has one coordinate, 0, if its
 * ends are those of the elements; it may be one by a run's size, so this is a product with
 * min(n - 1, 1). */
static tci_node *tci_grid_reflect(const tci_grid *s, tci_node *at, tci_dim n)
{
    tci_graph *g = s->g;
    tc_dtype t = (tc_dtype)at->dtype;
    const double more = s->align_corners ? 0 : 0.5;
    const tci_dim last = tci_dim_sub(n, 1), some = s->align_corners ? tci_dim_min(last, 1) : 1;
    tci_node *span = tci_build_size_value(g, s->align_corners ? tci_dim_max(last, 1) : n, t);
    tci_node *twice = tci_sample_scaled(g, span, 2, 0);
    tci_node *way = tci_composite_unary(g, TCI_OP_ABS, tci_sample_scaled(g, at, 1, more));
    way = tci_composite_binary(g, TCI_OP_REMAINDER, way, twice);
    tci_node *back = tci_composite_binary(g, TCI_OP_SUB, twice, way);
    tci_node *past = tci_composite_binary(g, TCI_OP_LT, span, way);
    at = tci_sample_scaled(g, tci_build_where(g, past, back, way), 1, -more);
    return some == 1 ? at
                     : tci_composite_binary(g, TCI_OP_MUL, at, tci_build_size_value(g, some, t));
}

/* A coordinate as the mode for points outside moves it. */
static tci_node *tci_grid_held(const tci_grid *s, tci_node *at, tci_dim n)
{
    if (!at || s->edge == TCI_GRID_ZEROS) {
        return at;
    }
    tc_dtype t = (tc_dtype)at->dtype;
    tci_node *last = tci_build_size_value(s->g, tci_dim_sub(n, 1), t);
    at = s->edge == TCI_GRID_REFLECTION ? tci_grid_reflect(s, at, n) : at;
    at = tci_composite_binary(s->g, TCI_OP_MAXIMUM, at, tci_composite_number(s->g, t, 0));
    return tci_composite_binary(s->g, TCI_OP_MINIMUM, at, last);
}

/* Column i of the grid, -1 .. 1, as coordinates of an axis of n elements. */
static tci_node *tci_grid_column(const tci_grid *s, tci_node *grid, int i, tci_dim n)
{
    tci_graph *g = s->g;
    tci_dim shape[3] = {grid->shape[0], 1, -1};
    tci_node *at = tci_build_slice(g, grid, grid->rank - 1, i, i + 1, 1);
    tci_dim points = 1;
    for (int k = 1; k + 1 < grid->rank; k++) {
        points = tci_dim_mul(points, grid->shape[k]);
    }
    shape[2] = points;
    at = tci_sample_scaled(g, tci_build_reshape(g, at, 3, shape), 0.5, 0.5);
    tci_dim span = s->align_corners ? tci_dim_sub(n, 1) : n;
    at = tci_composite_binary(g, TCI_OP_MUL, at,
                              tci_build_size_value(g, span, (tc_dtype)grid->dtype));
    at = tci_sample_scaled(g, at, 1, s->align_corners ? 0 : -0.5);
    return s->taps == 4 ? at : tci_grid_held(s, at, n);
}

/* An element that is read: its index, held within x; whether it is inside of x; its weight, 0
 * outside (the nearest: 1 inside). */
typedef struct tci_grid_tap {
    tci_node *index, *inside, *weight;
} tci_grid_tap;

/* Tap `tap` along one axis; index NULL: none. */
static tci_grid_tap tci_grid_tap_along(const tci_grid *s, int axis, int tap)
{
    tci_graph *g = s->g;
    const tci_dim n = s->x->shape[2 + axis];
    tci_grid_tap r = {NULL, NULL, NULL};
    tci_node *at = s->at[axis];
    if (s->taps == 1) {
        at = tci_composite_unary(g, TCI_OP_ROUND, at);
    } else {
        tci_node *whole = tci_composite_unary(g, TCI_OP_FLOOR, at);
        tci_node *rest = tci_composite_binary(g, TCI_OP_SUB, at, whole);
        r.weight = tci_sample_weight(g, rest, tap, s->taps);
        at = tci_sample_scaled(g, whole, 1, s->taps == 4 ? tap - 1 : tap);
        at = s->taps == 4 ? tci_grid_held(s, at, n) : at;
    }
    if (!at) {
        return r;
    }
    tc_dtype t = (tc_dtype)at->dtype;
    tci_node *zero = tci_composite_number(g, t, 0);
    tci_node *after = tci_composite_binary(g, TCI_OP_LT, at, tci_build_size_value(g, n, t));
    r.inside = tci_composite_binary(g, TCI_OP_LOGICAL_AND, after,
                                    tci_composite_binary(g, TCI_OP_LE, zero, at));
    r.index = tci_sample_within(g, tci_build_cast(g, at, TC_I64), 0, n);
    r.weight = s->taps == 1 ? tci_composite_number(g, t, 1) : r.weight;
    r.weight = tci_build_where(g, r.inside, r.weight, zero);
    return r;
}

/* A tap of the axes before, and one along an axis of this size. */
static tci_grid_tap tci_grid_joined(tci_graph *g, const tci_grid_tap *before, tci_grid_tap own,
                                    tci_node *size)
{
    tci_node *first = tci_composite_binary(g, TCI_OP_MUL, before->index, size);
    own.index = tci_composite_binary(g, TCI_OP_ADD, first, own.index);
    own.inside = tci_composite_binary(g, TCI_OP_LOGICAL_AND, before->inside, own.inside);
    own.weight = tci_composite_binary(g, TCI_OP_MUL, before->weight, own.weight);
    return own;
}

/* The taps from `axis` on, after those of the axes before; NULL: none. An element that is read for
 * a tap outside counts as 0 before it meets its weight, since it may be infinite or NaN. */
static tci_node *tci_grid_sum(const tci_grid *s, int axis, const tci_grid_tap *before)
{
    tci_graph *g = s->g;
    tci_node *r = NULL;
    if (axis == s->n) {
        tci_dim shape[3] = {before->index->shape[0], s->flat->shape[1], before->index->shape[2]};
        const tc_dtype t = (tc_dtype)s->flat->dtype;
        tci_node *index = tci_build_broadcast(g, before->index, 3, shape);
        tci_node *read = tci_build_gather(g, s->flat, 2, index);
        tci_node *weight = tci_build_cast(g, before->weight, t),
                 *zero = tci_composite_number(g, t, 0);
        if (s->taps == 1) { /* a mask that is stored once for all channels */
            return tci_build_where(g, tci_composite_binary(g, TCI_OP_NE, weight, zero), read, zero);
        }
        read = tci_build_where(g, before->inside, read, zero);
        return tci_composite_binary(g, TCI_OP_MUL, read, weight);
    }
    tci_node *size = tci_build_size_value(g, s->x->shape[2 + axis], TC_I64);
    for (int tap = 0; tap < s->taps; tap++) {
        tci_grid_tap own = tci_grid_tap_along(s, axis, tap);
        own = axis ? tci_grid_joined(g, before, own, size) : own;
        tci_node *part = own.index ? tci_grid_sum(s, axis + 1, &own) : NULL;
        r = r ? tci_composite_binary(g, TCI_OP_ADD, r, part) : part;
        if (!r) {
            return NULL;
        }
    }
    return r;
}

static bool tci_grid_check(tci_graph *g, const tci_node *x, const tci_node *grid)
{
    const int n = x->rank - 2;
    bool fits = (n == 2 || n == 3) && grid->rank == x->rank && grid->shape[n + 1] == n &&
                grid->shape[0] == x->shape[0];
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "x of shape %s and grid of shape %s: expected [N, C, H, W] and [N, h, w, "
                       "2], or [N, C, D, H, W] and [N, d, h, w, 3]",
                       TCI_SHAPE_TEXT(x), TCI_SHAPE_TEXT(grid));
        return false;
    }
    if (x->dtype != grid->dtype || !tci_dtype_is_float((tc_dtype)x->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "x is %s and the grid %s: expected one float dtype",
                       tci_dtype_get((tc_dtype)x->dtype)->name,
                       tci_dtype_get((tc_dtype)grid->dtype)->name);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!tci_build_can_read(g, "x", x, 2 + i, tci_node_count(grid))) {
            return false;
        }
    }
    return true;
}

TCI_FN tci_node *tci_build_grid_sample(tci_graph *g, tci_node *x, tci_node *grid, const char *mode,
                                       const char *padding_mode, bool align_corners)
{
    static const char *const modes[3] = {"bilinear", "nearest", "bicubic"};
    static const char *const edges[3] = {"zeros", "border", "reflection"};
    static const int taps[3] = {2, 1, 4};
    if (!x || !grid || !tci_grid_check(g, x, grid)) {
        return NULL;
    }
    const int n = x->rank - 2, which = tci_grid_word(g, "mode", mode, modes);
    const int edge = which < 0 ? -1 : tci_grid_word(g, "padding mode", padding_mode, edges);
    if (edge < 0) {
        return NULL;
    }
    if (which == 2 && n != 2) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "the mode \"bicubic\" is for images of two axes");
        return NULL;
    }
    tc_dtype math = tci_composite_math(x);
    tci_dim flat[3] = {x->shape[0], x->shape[1], 1};
    tci_dim shape[2 + TCI_IMAGE_AXES] = {x->shape[0], x->shape[1]};
    for (int i = 0; i < n; i++) {
        flat[2] = tci_dim_mul(flat[2], x->shape[2 + i]);
        shape[2 + i] = grid->shape[1 + i];
    }
    tci_grid s = {.g = g, .x = x, .edge = (tci_grid_edge)edge, .align_corners = align_corners};
    s.n = n;
    s.taps = taps[which];
    s.flat = tci_build_reshape(g, tci_build_cast(g, x, math), 3, flat);
    grid = tci_build_cast(g, grid, math);
    for (int i = 0; grid && i < n; i++) { /* the grid names the last axis first */
        s.at[i] = tci_grid_column(&s, grid, n - 1 - i, x->shape[2 + i]);
        if (!s.at[i]) {
            return NULL;
        }
    }
    tci_node *r = s.flat && grid ? tci_grid_sum(&s, 0, NULL) : NULL;
    return tci_build_cast(g, tci_build_reshape(g, r, n + 2, shape), (tc_dtype)x->dtype);
}
