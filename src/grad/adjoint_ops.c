/* grad/adjoint_ops.c - builds ops that are the adjoint (transpose) of another op by applying that
 * op's VJP rule: transposed convolution, col2im, slice_scatter, select_scatter.
 *
 * In: the shape that the other op takes. Out: the gradient of that op with respect to its operand.
 *
 * WINDOW and contractions over it are linear, so their rules in rules.c read only the shape of the
 * operand. Zeros stand for its values, and no kernel reads them. */
#include "../ops/convolution_pooling.h"
#include "grad.h"

#include <string.h>

/* The gradient of operand 0 of `n` for `grad`; NULL: the graph has the error. */
static tci_node *tci_transpose_of(tci_graph *g, tci_node *n, tci_node *grad,
                                  tci_node *(*rule)(const tci_vjp *v))
{
    tci_scratch s;
    tci_vjp v = {.s = &s, .g = g, .n = n, .grad = grad};
    tci_node *r = NULL;
    if (!n || !grad) {
        return NULL;
    }
    tci_scratch_init(&s);
    if (!setjmp(s.escape)) {
        r = rule(&v);
    } else if (!g->error) {
        tci_graph_fail(g, s.why, "%s", s.message);
        r = NULL;
    } else {
        r = NULL;
    }
    tci_scratch_free(&s);
    return r;
}

static tci_node *tci_transpose_zeros(tci_graph *g, tc_dtype t, int rank, const tci_dim *shape)
{
    return tci_build_broadcast(g, tci_composite_number(g, t, 0), rank, shape);
}

/* ---- transposed convolutions ---- */

/* The transposed convolution of x and w whose result has those sizes; words are those of a
 * CONV_TRANSPOSE. */
static tci_node *tci_transpose_conv(tci_graph *g, tci_node *x, tci_node *w, const tci_dim *words,
                                    const tci_dim *sizes)
{
    int64_t stride[TCI_IMAGE_AXES], dilation[TCI_IMAGE_AXES];
    tci_dim spans[TCI_IMAGE_RANK], lo[TCI_IMAGE_RANK] = {0}, hi[TCI_IMAGE_RANK] = {0};
    const int64_t *numbers = tci_dim_words(words), groups = numbers[0];
    const int n = x->rank - 2;
    const tc_dtype t = (tc_dtype)x->dtype;
    spans[0] = x->shape[0];
    spans[1] = tci_dim_mul(w->shape[1], groups);
    for (int i = 0; i < n; i++) { /* what the windows reach, which the padding cuts */
        stride[i] = numbers[1 + 3 * i];
        dilation[i] = numbers[2 + 3 * i];
        tci_dim reach = tci_dim_mul(tci_dim_sub(w->shape[2 + i], 1), dilation[i]);
        tci_dim steps = tci_dim_mul(tci_dim_sub(x->shape[2 + i], 1), stride[i]);
        spans[2 + i] = tci_dim_add(tci_dim_add(steps, reach), 1);
        lo[2 + i] = tci_dim_neg(words[3 + 3 * i]);
        hi[2 + i] = tci_dim_sub(sizes[2 + i], tci_dim_add(spans[2 + i], lo[2 + i]));
    }
    tci_node *zero = tci_composite_number(g, t, 0);
    tci_node *images = tci_window_grouped(g, x, n, x->shape, groups);
    tci_node *wanted = tci_window_grouped(g, tci_transpose_zeros(g, t, n + 2, spans), n, spans,
                                          groups);
    tci_node *windows = tci_window_over(g, wanted, n, tci_window_zeros,
                                        tci_dim_list(tci_window_zeros), zero, w->shape + 2, stride,
                                        dilation);
    tci_node *conv = tci_window_contract(g, windows, w, n, groups);
    tci_node *r = tci_transpose_of(g, conv, images, tci_vjp_through_window);
    return tci_build_pad_axes(g, tci_build_reshape(g, r, n + 2, spans), lo, hi, zero);
}

TCI_FN tci_node *tci_expand_CONV_TRANSPOSE(tci_graph *g, tci_node *n)
{
    return tci_transpose_conv(g, n->in[0], n->in[1], tci_node_dims(n), n->shape);
}

/* Words and sizes of the result; false: the graph has the error. */
static bool tci_transpose_words(tci_graph *g, int n, const tci_image *image, const tci_node *w,
                                const tci_window_conv *c, tci_dim *words, tci_dim *sizes)
{
    words[0] = c->groups;
    sizes[0] = image->sizes[0];
    sizes[1] = tci_dim_mul(w->shape[1], c->groups);
    for (int i = 0; i < n; i++) {
        if (c->more[i] >= c->stride[i] && c->more[i] >= c->dilation[i]) {
            tci_graph_fail(g, TC_ERR_ARGUMENT,
                           "the output padding is %s: expected less than the stride, %s, or the "
                           "dilation, %s",
                           TCI_DIM_TEXT(c->more[i]), TCI_DIM_TEXT(c->stride[i]),
                           TCI_DIM_TEXT(c->dilation[i]));
            return false;
        }
        tci_dim reach = tci_dim_mul(tci_dim_sub(w->shape[2 + i], 1), c->dilation[i]);
        tci_dim steps = tci_dim_mul(tci_dim_sub(image->sizes[2 + i], 1), c->stride[i]);
        tci_dim padding = tci_dim_sub(tci_dim_add(c->padding[i], c->after[i]), c->more[i]);
        words[1 + 3 * i] = c->stride[i];
        words[2 + 3 * i] = c->dilation[i];
        words[3 + 3 * i] = c->padding[i];
        sizes[2 + i] = tci_dim_sub(tci_dim_add(tci_dim_add(steps, reach), 1), padding);
    }
    return true;
}

/* The expansion tells what is wrong with sizes; it is the result for dtypes without a composite. */
TCI_FN tci_node *tci_build_conv_transpose(tci_graph *g, int n, tci_node *x, tci_node *w,
                                          tci_node *bias, const struct tc_conv *o)
{
    tci_image image;
    tci_window_conv c;
    tci_dim words[1 + 3 * TCI_IMAGE_AXES], sizes[TCI_IMAGE_RANK];
    if (!x || !w || !tci_image_of(g, x, n, &image) ||
        !tci_window_conv_check(g, x, &image, w, bias, o && o->groups ? o->groups : 1, true) ||
        !tci_window_conv_of(g, n, o, w, &c) ||
        !tci_transpose_words(g, n, &image, w, &c, words, sizes)) {
        return NULL;
    }
    tc_dtype dtype = (tc_dtype)x->dtype, math = bias ? tci_composite_math(x) : dtype;
    tci_node *in[2] = {tci_build_reshape(g, tci_build_cast(g, x, math), n + 2, image.sizes),
                       tci_build_cast(g, w, math)};
    tci_node *r = in[0] && in[1] ? tci_transpose_conv(g, in[0], in[1], words, sizes) : NULL;
    if (r && tci_dtype_is_float(math)) {
        r = tci_graph_node(g, TCI_OP_CONV_TRANSPOSE, math, n + 2, r->shape, 2, in, 1 + 3 * n,
                           tci_dim_words(words));
    }
    return tci_image_result(g, &image, tci_window_biased(g, r, bias, n, dtype));
}

/* ---- columns of patches as an image ---- */

TCI_FN tci_node *tci_build_col2im(tci_graph *g, tci_node *x, int n_sizes, const tci_dim *sizes,
                                  const struct tc_pool *o)
{
    static const int order[6] = {0, 1, 4, 5, 2, 3};
    tci_window_patch p;
    if (!x || !tci_window_patch_of(g, o, &p)) {
        return NULL;
    }
    tci_dim elements = tci_dim_mul(p.kernel[0], p.kernel[1]);
    const tci_dim rows = x->rank >= 2 ? x->shape[x->rank - 2] : 0;
    if ((x->rank != 2 && x->rank != 3) || n_sizes != 2 || !sizes ||
        !tci_dim_divides(elements, rows)) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "x has shape %s, and %d sizes are given%s: expected [N, C * %s, patches] "
                       "and the sizes of an image's two axes",
                       TCI_SHAPE_TEXT(x), n_sizes, sizes ? "" : " at NULL", TCI_DIM_TEXT(elements));
        return NULL;
    }
    const tci_image image = {.n = 2, .batched = x->rank == 3};
    tci_dim whole[4] = {x->rank == 3 ? x->shape[0] : 1, tci_dim_div(rows, elements), sizes[0],
                        sizes[1]};
    tci_node *zero = tci_composite_number(g, (tc_dtype)x->dtype, 0);
    tci_node *images = tci_transpose_zeros(g, (tc_dtype)x->dtype, 4, whole);
    if (!images || !tci_build_check_shape(g, 4, whole, (tc_dtype)x->dtype)) {
        return NULL;
    }
    tci_dim lo[4] = {0, 0, p.padding[0], p.padding[1]};
    tci_node *windows = tci_window_over(g, images, 2, p.padding, tci_dim_list(p.padding), zero,
                                        tci_dim_list(p.kernel), p.stride, p.dilation);
    if (!windows) {
        return NULL;
    }
    const tci_dim *d = windows->shape;
    tci_dim columns[6] = {d[0], d[1], d[4], d[5], d[2], d[3]};
    if (x->shape[x->rank - 1] != tci_dim_mul(d[2], d[3])) {
        tci_graph_fail(g, TC_ERR_SHAPE, "x has %s patches: an image of %s has %s by %s",
                       TCI_DIM_TEXT(x->shape[x->rank - 1]), tci_shape_text_of(2, sizes).text,
                       TCI_DIM_TEXT(d[2]), TCI_DIM_TEXT(d[3]));
        return NULL;
    }
    tci_node *each = tci_build_permute(g, tci_build_reshape(g, x, 6, columns), 6, order);
    tci_node *r = tci_transpose_of(g, windows, each, tci_vjp_own);
    for (int i = 0; i < 4; i++) {
        lo[i] = tci_dim_neg(lo[i]);
    }
    return tci_image_result(g, &image, tci_build_pad_axes(g, r, lo, lo, zero));
}

/* ---- x with other elements in a slice ---- */

/* Elements that a slice reads: `true` there, and elsewhere the elements of src. */
static tci_node *tci_transpose_put(tci_graph *g, tci_node *x, tci_node *slice, tci_node *src)
{
    tci_node *yes = tci_graph_const(g, TC_BOOL, (tci_value){.i = 1});
    yes = tci_build_broadcast(g, yes, slice->rank, slice->shape);
    tci_node *taken = tci_transpose_of(g, slice, yes, tci_vjp_own);
    return tci_build_where(g, taken, tci_transpose_of(g, slice, src, tci_vjp_own), x);
}

TCI_FN tci_node *tci_build_slice_scatter(tci_graph *g, tci_node *x, tci_node *src, int axis,
                                         tci_dim start, tci_dim stop, tci_dim step)
{
    tci_node *slice = src ? tci_build_slice(g, x, axis, start, stop, step) : NULL;
    if (!slice) {
        return NULL;
    }
    if (src->dtype != x->dtype ||
        !tci_build_same_shape(src->rank, src->shape, slice->rank, slice->shape)) {
        tci_graph_fail(g, src->dtype != x->dtype ? TC_ERR_DTYPE : TC_ERR_SHAPE,
                       "src is %s of shape %s: expected %s of shape %s, that of the slice",
                       tci_dtype_get((tc_dtype)src->dtype)->name, TCI_SHAPE_TEXT(src),
                       tci_dtype_get((tc_dtype)x->dtype)->name, TCI_SHAPE_TEXT(slice));
        return NULL;
    }
    return slice == x ? src : tci_transpose_put(g, x, slice, src);
}

TCI_FN tci_node *tci_build_select_scatter(tci_graph *g, tci_node *x, tci_node *src, int axis,
                                          tci_dim index)
{
    int at;
    if (!x || !src || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_dim(g, "the index", index, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    tci_dim n = x->rank ? x->shape[at] : 0;
    tci_dim place = tci_dim_is_known(index) && tci_dim_lt(index, 0) ? tci_dim_add(n, index) : index;
    if (!x->rank || src->rank != x->rank - 1 || !tci_dim_le(0, place) || !tci_dim_lt(place, n)) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "element %s of axis %d of shape %s takes src of shape %s: expected one of "
                       "the axis, and x's shape without it",
                       TCI_DIM_TEXT(index), at, TCI_SHAPE_TEXT(x), TCI_SHAPE_TEXT(src));
        return NULL;
    }
    return tci_build_slice_scatter(g, x, tci_build_unsqueeze(g, src, at), at, place,
                                   tci_dim_add(place, 1), 1);
}
