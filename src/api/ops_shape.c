/* api/ops_shape.c - public shape and indexing ops: reshape, permute, slice, pad, concatenate,
 * gather, scatter, masked select, searchsorted and bucketize.
 *
 * In: handles, sizes, axes, indices, the user's call site. Out: a handle to the node, or a poisoned
 * one. */
#include "operand.h"
#include "ops.h"

#include <limits.h>

/* ---- axes ---- */

TC_API tc_tensor tc_reshape_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_shaped(&f, "tc_reshape", x, rank, sizes, "the sizes", here);
    const tci_dim *shape = tci_dim_list(sizes);
    return tci_frame_end(&f, n ? tci_build_reshape(&f.ctx->graph, n, rank, shape) : NULL);
}

TC_API tc_tensor tc_permute_at(tc_tensor x, int n, const int64_t *order, tc_site here)
{
    tci_frame f;
    tci_words w;
    tci_node *node = tci_ops_shaped(&f, "tc_permute", x, n, order, "the order", here);
    int *axes = node ? tci_words_ints(&f.ctx->graph, &w, n) : NULL;
    if (!axes) {
        return tci_frame_end(&f, NULL);
    }
    for (int i = 0; i < n; i++) {
        /* No tensor has this many axes: the builder refuses it with the others that are out of
         * range.
         */
        axes[i] = order[i] < INT_MIN || order[i] > INT_MAX ? INT_MAX : (int)order[i];
    }
    tci_node *r = tci_build_permute(&f.ctx->graph, node, n, axes);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

TC_API tc_tensor tc_expand_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_shaped(&f, "tc_expand", x, rank, sizes, "the sizes", here);
    const tci_dim *shape = tci_dim_list(sizes);
    return tci_frame_end(&f, n ? tci_build_expand(&f.ctx->graph, n, rank, shape) : NULL);
}

TCI_OPS_ONE(transpose, (tc_tensor x, int axis_a, int axis_b, tc_site here), tci_build_transpose,
            node, axis_a, axis_b)
TCI_OPS_ONE(squeeze, (tc_tensor x, int axis, tc_site here), tci_build_squeeze, node, axis)
TCI_OPS_ONE(unsqueeze, (tc_tensor x, int axis, tc_site here), tci_build_unsqueeze, node, axis)
TCI_OPS_ONE(flip, (tc_tensor x, int axis, tc_site here), tci_build_flip, node, axis)

/* A number below 0 counts from the end; an expression has one meaning, at whatever value. */
static bool tci_ops_check_bound(tci_frame *f, const char *what, tci_dim v)
{
    if (tci_dim_is_known(v) || !tci_dim_is_valid(v) || tci_dim_le(0, v)) {
        return true; /* or the builder tells */
    }
    tci_frame_fail(f, TC_ERR_ARGUMENT,
                   "the %s, %s, may be negative, and only a number counts from the end (tc_dim_max "
                   "with 0 cuts it off)%s",
                   what, TCI_DIM_TEXT(v), TCI_LEAST_NOTE(v, 0));
    return false;
}

TC_API tc_tensor tc_slice_at(tc_tensor x, int axis, int64_t start, int64_t stop, int64_t step,
                             tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_slice", x, here);
    if (n && !(tci_ops_check_bound(&f, "start", start) && tci_ops_check_bound(&f, "stop", stop))) {
        n = NULL;
    }
    return tci_frame_end(&f, n ? tci_build_slice(&f.ctx->graph, n, axis, start, stop, step) : NULL);
}

TC_API tc_tensor tc_pad_at(tc_tensor x, int axis, int64_t before, int64_t after, tc_arg value,
                           tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_pad", x, here);
    tci_node *fill = n ? tci_ops_either(&f, &value, (tc_dtype)n->dtype, "the pad value") : NULL;
    return tci_frame_end(&f,
                         fill ? tci_build_pad(&f.ctx->graph, n, axis, before, after, fill) : NULL);
}

TC_API tc_tensor tc_cat_at(tc_tensors xs, int axis, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_cat", here);
    tci_words w;
    tci_node **nodes = tci_ops_list(&f, xs, &w);
    if (!nodes) {
        return tci_frame_end(&f, NULL);
    }
    tci_node *r = tci_build_cat(&f.ctx->graph, nodes, xs.n, axis);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

TC_API tc_tensor tc_repeat_interleave_at(tc_tensor x, tc_arg repeats, int axis, int64_t size,
                                         tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_repeat_interleave", x, here), *r = NULL;
    if (n && tci_ops_check_kind(&f, &repeats, "the repeats") && repeats.kind == TCI_OPS_INT) {
        r = tci_build_repeat_each(&f.ctx->graph, n, axis, repeats.i);
    } else if (!f.failed) {
        tci_node *each = tci_ops_whole(&f, &repeats, TC_I64, "the repeats");
        r = each ? tci_build_repeat_interleave(&f.ctx->graph, n, each, axis, size) : NULL;
    }
    return tci_frame_end(&f, r);
}

/* ---- positions ---- */

static tci_node *tci_ops_build_bucketize(tci_graph *g, tci_node *x, tci_node *boundaries,
                                         bool right)
{
    return tci_build_searchsorted(g, boundaries, x, right);
}

TCI_OPS_ONE(roll, (tc_tensor x, int64_t shift, int axis, tc_site here), tci_build_roll, node, shift,
            axis)
TCI_OPS_ONE(rot90, (tc_tensor x, int64_t k, int axis_a, int axis_b, tc_site here), tci_build_rot90,
            node, k, axis_a, axis_b)
TCI_OPS_ONE(unfold, (tc_tensor x, int axis, int64_t size, int64_t step, tc_site here),
            tci_build_unfold, node, axis, size, step)
TCI_OPS_ONE(pad_mode,
            (tc_tensor x, int axis, int64_t before, int64_t after, const char *mode, tc_site here),
            tci_build_pad_mode, node, axis, before, after, mode)
TCI_OPS_ONE(pixel_shuffle, (tc_tensor x, int64_t upscale_factor, tc_site here),
            tci_build_pixel_shuffle, node, upscale_factor)
TCI_OPS_ONE(pixel_unshuffle, (tc_tensor x, int64_t downscale_factor, tc_site here),
            tci_build_pixel_unshuffle, node, downscale_factor)
TCI_OPS_ONE(diagonal, (tc_tensor x, int64_t offset, int axis_a, int axis_b, tc_site here),
            tci_build_diagonal, node, offset, axis_a, axis_b)
TCI_OPS_ONE(diag, (tc_tensor x, int64_t offset, tc_site here), tci_build_diag, node, offset)
TCI_OPS_ONE(diag_embed, (tc_tensor x, int64_t offset, int axis_a, int axis_b, tc_site here),
            tci_build_diag_embed, node, offset, axis_a, axis_b)
TCI_OPS_ONE(tril, (tc_tensor x, int64_t diagonal, tc_site here), tci_build_triangle, node, diagonal,
            true)
TCI_OPS_ONE(triu, (tc_tensor x, int64_t diagonal, tc_site here), tci_build_triangle, node, diagonal,
            false)
TCI_OPS_BOTH(slice_scatter, x, src,
             (tc_tensor x, tc_tensor src, int axis, int64_t start, int64_t stop, int64_t step,
              tc_site here),
             tci_build_slice_scatter, node, other, axis, start, stop, step)
TCI_OPS_BOTH(select_scatter, x, src,
             (tc_tensor x, tc_tensor src, int axis, int64_t index, tc_site here),
             tci_build_select_scatter, node, other, axis, index)
TCI_OPS_BOTH(diagonal_scatter, x, src,
             (tc_tensor x, tc_tensor src, int64_t offset, int axis_a, int axis_b, tc_site here),
             tci_build_diagonal_scatter, node, other, offset, axis_a, axis_b)
TCI_OPS_BOTH(take_along_dim, x, index, (tc_tensor x, tc_tensor index, int axis, tc_site here),
             tci_build_take_along_dim, node, other, axis)
TCI_OPS_BOTH(searchsorted, sorted, values,
             (tc_tensor sorted, tc_tensor values, bool right, tc_site here), tci_build_searchsorted,
             node, other, right)
TCI_OPS_BOTH(bucketize, x, boundaries,
             (tc_tensor x, tc_tensor boundaries, bool right, tc_site here), tci_ops_build_bucketize,
             node, other, right)

/* ---- indices and masks ---- */

/* x and an index along an axis. */
static tc_tensor tci_ops_indexed(const char *name, tc_tensor x, int axis, tc_tensor index,
                                 tc_site here,
                                 tci_node *(*build)(tci_graph *g, tci_node *x, int axis,
                                                    tci_node *index))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, index);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *ni = tci_frame_node(&f, index, "the index");
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, nx, axis, ni));
}

TC_API tc_tensor tc_gather_at(tc_tensor x, int axis, tc_tensor index, tc_site here)
{
    return tci_ops_indexed("tc_gather", x, axis, index, here, tci_build_gather);
}

TC_API tc_tensor tc_index_select_at(tc_tensor x, int axis, tc_tensor index, tc_site here)
{
    return tci_ops_indexed("tc_index_select", x, axis, index, here, tci_build_index_select);
}

/* x, an index along an axis, and what to put there. */
static tc_tensor tci_ops_put(const char *name, tc_tensor x, int axis, tc_tensor index,
                             tc_tensor src, tci_mode mode, tc_site here,
                             tci_node *(*build)(tci_graph *g, tci_node *x, int axis,
                                                tci_node *index, tci_node *src, tci_mode mode))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, index);
    tci_frame_use(&f, src);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *ni = tci_frame_node(&f, index, "the index");
    tci_node *ns = tci_frame_node(&f, src, "src");
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, nx, axis, ni, ns, mode));
}

#define TCI_OPS_PUT(name, mode, build)                                                             \
    TC_API tc_tensor tc_##name##_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,         \
                                    tc_site here)                                                  \
    {                                                                                              \
        return tci_ops_put("tc_" #name, x, axis, index, src, TCI_MODE_##mode, here, build);        \
    }
TCI_OPS_PUT(scatter, SET, tci_build_scatter)
TCI_OPS_PUT(scatter_add, ADD, tci_build_scatter)
TCI_OPS_PUT(scatter_min, MIN, tci_build_scatter)
TCI_OPS_PUT(scatter_max, MAX, tci_build_scatter)
TCI_OPS_PUT(scatter_prod, MUL, tci_build_scatter)
TCI_OPS_PUT(index_add, ADD, tci_build_index_put)
#undef TCI_OPS_PUT

TC_API tc_tensor tc_index_fill_at(tc_tensor x, int axis, tc_tensor index, tc_arg value,
                                  tc_site here)
{
    tci_frame f = tci_frame_begin("tc_index_fill", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, index);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *ni = tci_frame_node(&f, index, "the index");
    tci_node *nv = nx ? tci_ops_either(&f, &value, (tc_dtype)nx->dtype, "the value") : NULL;
    return tci_frame_end(&f, nv ? tci_build_index_fill(&f.ctx->graph, nx, axis, ni, nv) : NULL);
}

TC_API tc_tensor tc_masked_scatter_at(tc_tensor x, tc_tensor mask, tc_tensor src, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_masked_scatter", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, mask);
    tci_frame_use(&f, src);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *nm = tci_frame_node(&f, mask, "the mask");
    tci_node *ns = tci_frame_node(&f, src, "src");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_masked_scatter(&f.ctx->graph, nx, nm, ns));
}

/* Both masks broadcast with x, so its elements are counted as often as they are taken. */
static tci_node *tci_ops_build_masked_count(tci_graph *g, tci_node *x, tci_node *mask)
{
    tci_node *both = tci_build_where(g, mask, x, x);
    return both ? tci_build_true_count(g, tci_build_broadcast(g, mask, both->rank, both->shape))
                : NULL;
}

/* Result of tc_masked_select: the elements, or their count. */
static tc_tensor tci_ops_masked(tc_tensor x, tc_tensor mask, int64_t size, bool count, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_masked_select", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, mask);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *nm = tci_frame_node(&f, mask, "the mask");
    if (f.failed) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &f.ctx->graph;
    return tci_frame_end(&f, count ? tci_ops_build_masked_count(g, nx, nm)
                                   : tci_build_masked_select(g, nx, nm, size));
}

TC_API void tc_masked_select_at(tc_tensor x, tc_tensor mask, int64_t size, tc_tensor *values,
                                tc_tensor *count, tc_site here)
{
    tc_tensor found = tci_ops_masked(x, mask, size, false, here);
    if (values) {
        *values = found;
    }
    if (count) {
        *count = tc_status_of(found) ? found : tci_ops_masked(x, mask, size, true, here);
    }
}

TC_API void tc_nonzero_at(tc_tensor x, int64_t size, tc_tensor *indices, tc_tensor *count,
                          tc_site here)
{
    TCI_OPS_STORE(indices, "tc_nonzero", tci_build_nonzero(g, node, size))
    TCI_OPS_STORE(count, "tc_nonzero",
                  tci_build_nonzero(g, node, size) ? tci_build_true_count(g, node) : NULL)
}

/* Of indices that may be left out (TC_NONE); NULL when the frame failed. */
static tci_node **tci_ops_indices(tci_frame *f, tc_tensors indices, tci_words *w)
{
    w->items = NULL;
    if (f->failed || !tci_frame_list(f, indices.items, indices.n, "the indices")) {
        return NULL;
    }
    tci_node **nodes = tci_words_nodes(&f->ctx->graph, w, indices.n);
    for (int i = 0; nodes && i < indices.n; i++) {
        nodes[i] = tci_frame_optional(f, indices.items[i], "an index");
    }
    return f->failed ? NULL : nodes;
}

TC_API tc_tensor tc_index_at(tc_tensor x, tc_tensors indices, tc_site here)
{
    tci_frame f;
    tci_words w;
    tci_node *n = tci_ops_one(&f, "tc_index", x, here), *r = NULL;
    tci_node **nodes = n ? tci_ops_indices(&f, indices, &w) : NULL;
    if (nodes) {
        r = tci_words_put(&f.ctx->graph, &w, tci_build_index(&f.ctx->graph, n, nodes, indices.n));
    }
    return tci_frame_end(&f, r);
}

TC_API tc_tensor tc_index_put_at(tc_tensor x, tc_tensors indices, tc_tensor src, bool accumulate,
                                 tc_site here)
{
    tci_words w;
    tci_frame f = tci_frame_begin("tc_index_put", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, src);
    tci_node *n = tci_frame_node(&f, x, tci_ops_nth[0]), *r = NULL;
    tci_node *values = tci_frame_node(&f, src, "src");
    tci_node **nodes = tci_ops_indices(&f, indices, &w);
    if (nodes) {
        r = tci_words_put(&f.ctx->graph, &w,
                          tci_build_index_put_many(&f.ctx->graph, n, nodes, indices.n, values,
                                                   accumulate));
    }
    return tci_frame_end(&f, r);
}
