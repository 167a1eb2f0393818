/* api/ops_shape.h - declares layout operations (reshape, permute, slice, pad, windows), and
 * reads and writes at indices. Conventions: api/ops_elementwise.h. */
#ifndef TC_API_OPS_SHAPE_H
#define TC_API_OPS_SHAPE_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layout ops (views): no element changes its value, and nothing is copied ---- */
/* The same elements in row-major order with another shape (TC_ERR_SHAPE: another count). One
 * size may be -1: it follows from the others. */
TC_API tc_tensor tc_reshape_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here);
#define tc_reshape(x, ...) \
    tc_reshape_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Axis i of the result is axis order[i] of x; each axis once (else TC_ERR_AXIS). */
TC_API tc_tensor tc_permute_at(tc_tensor x, int n, const int64_t *order, tc_site here);
#define tc_permute(x, ...) \
    tc_permute_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Swaps two axes. */
TC_API tc_tensor tc_transpose_at(tc_tensor x, int axis_a, int axis_b, tc_site here);
#define tc_transpose(x, axis_a, axis_b) tc_transpose_at((x), (axis_a), (axis_b), TC_HERE)
/* Repeats axes of size 1, and adds leading axes; -1 keeps a size. TC_ERR_SHAPE: an axis of
 * another size. */
TC_API tc_tensor tc_expand_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here);
#define tc_expand(x, ...) \
    tc_expand_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Removes the axis if its size is 1, else returns x. */
TC_API tc_tensor tc_squeeze_at(tc_tensor x, int axis, tc_site here);
#define tc_squeeze(x, axis) tc_squeeze_at((x), (axis), TC_HERE)
/* Adds an axis of size 1, which becomes axis `axis` of the result. */
TC_API tc_tensor tc_unsqueeze_at(tc_tensor x, int axis, tc_site here);
#define tc_unsqueeze(x, axis) tc_unsqueeze_at((x), (axis), TC_HERE)
/* x[start:stop:step] along an axis by Python's rules: bounds count from the end when negative, and
 * are cut to the axis; TC_END is an open end. With a negative step, TC_END as stop means down to
 * element 0. TC_ERR_ARGUMENT: a step of 0, or a symbolic bound that may be negative. */
TC_API tc_tensor tc_slice_at(tc_tensor x, int axis, int64_t start, int64_t stop, int64_t step,
                             tc_site here);
#define tc_slice(x, axis, start, stop, step) \
    tc_slice_at((x), (axis), (start), (stop), (step), TC_HERE)
/* The elements along an axis in reverse order. */
TC_API tc_tensor tc_flip_at(tc_tensor x, int axis, tc_site here);
#define tc_flip(x, axis) tc_flip_at((x), (axis), TC_HERE)
/* Pads an axis with `before` and `after` elements of value (a number or 0-d, cast to x's dtype);
 * negative counts crop. TC_ERR_SHAPE: more is cropped than there is; TC_ERR_DTYPE: a number that
 * x's integer dtype cannot hold. */
TC_API tc_tensor tc_pad_at(tc_tensor x, int axis, int64_t before, int64_t after, tc_arg value,
                           tc_site here);
#define tc_pad(x, axis, before, after, value)                                                      \
    tc_pad_at((x), (axis), (before), (after), TC_ARG(value), TC_HERE)
/* tc_range(x, 0, 2, 5): elements 2, 3 and 4 along an axis, a slice by step 1. */
#define tc_range(x, axis, start, stop)                                                             \
    tc_slice_at((x), (axis), (start), (stop), 1, TC_HERE)
/* Pads with elements of x: mode "reflect" (the edge is not repeated; at most size - 1),
 * "replicate" (the axis is not empty) or "circular" (at most size; else TC_ERR_SHAPE).
 * TC_ERR_ARGUMENT: another mode. */
TC_API tc_tensor tc_pad_mode_at(tc_tensor x, int axis, int64_t before, int64_t after,
                                const char *mode, tc_site here);
#define tc_pad_mode(x, axis, before, after, mode)                                                  \
    tc_pad_mode_at((x), (axis), (before), (after), (mode), TC_HERE)
/* Rotates an axis by `shift` (may be symbolic): elements beyond the end come first. */
TC_API tc_tensor tc_roll_at(tc_tensor x, int64_t shift, int axis, tc_site here);
#define tc_roll(x, shift, axis) tc_roll_at((x), (shift), (axis), TC_HERE)
/* Rotates k times by 90 degrees, from axis_a towards axis_b (TC_ERR_AXIS: equal axes). */
TC_API tc_tensor tc_rot90_at(tc_tensor x, int64_t k, int axis_a, int axis_b, tc_site here);
#define tc_rot90(x, k, axis_a, axis_b) tc_rot90_at((x), (k), (axis_a), (axis_b), TC_HERE)
/* Sliding windows of `size` elements, `step` apart, along an axis of n: the axis counts windows,
 * (n - size) / step + 1, and a new last axis their elements. TC_ERR_SHAPE: no window fits, or
 * size or step is less than 1. */
TC_API tc_tensor tc_unfold_at(tc_tensor x, int axis, int64_t size, int64_t step, tc_site here);
#define tc_unfold(x, axis, size, step) tc_unfold_at((x), (axis), (size), (step), TC_HERE)
/* Element [i, j, ...] is number offset + i * strides[0] + j * strides[1] + ... of x in row-major
 * order; the gradient adds those read several times. Sizes and strides are numbers.
 * TC_ERR_ARGUMENT: symbols, or elements outside of x. */
TC_API tc_tensor tc_as_strided_at(tc_tensor x, int n, const int64_t *sizes, int n_strides,
                                  const int64_t *strides, int64_t offset, tc_site here);
#define tc_as_strided(x, n, sizes, strides, offset)                                                \
    tc_as_strided_at((x), (n), (sizes), (n), (strides), (offset), TC_HERE)
/* Coordinate grids of n 1-d tensors [m0], [m1], ...: grids[i] [m0, m1, ...] repeats xs[i] along
 * its own axis. xy: the first two axes are swapped, as for images. */
TC_API void tc_meshgrid_at(tc_tensors xs, bool xy, tc_tensor *grids, tc_site here);
#define tc_meshgrid(xs, xy, grids) tc_meshgrid_at((xs), (xy), (grids), TC_HERE)
/* Diagonal: elements whose index along axis_b is `offset` more than along axis_a, as a new last
 * axis in place of both (empty if offset is out of range). TC_ERR_AXIS: equal axes. */
TC_API tc_tensor tc_diagonal_at(tc_tensor x, int64_t offset, int axis_a, int axis_b, tc_site here);
#define tc_diagonal(x, offset, axis_a, axis_b)                                                     \
    tc_diagonal_at((x), (offset), (axis_a), (axis_b), TC_HERE)
/* Diagonal matrices: zeros with x's last axis (n elements) on a diagonal of two axes of size n +
 * |offset|. */
TC_API tc_tensor tc_diag_embed_at(tc_tensor x, int64_t offset, int axis_a, int axis_b,
                                  tc_site here);
#define tc_diag_embed(x, offset, axis_a, axis_b)                                                   \
    tc_diag_embed_at((x), (offset), (axis_a), (axis_b), TC_HERE)
/* The diagonal of a matrix [m, n], or the diagonal matrix of a vector [n] (else TC_ERR_SHAPE). */
TC_API tc_tensor tc_diag_at(tc_tensor x, int64_t offset, tc_site here);
#define tc_diag(x, offset) tc_diag_at((x), (offset), TC_HERE)
/* The lower triangle (tril) or the upper one (triu) of matrices [..., rows, columns], zeros
 * elsewhere. `diagonal` (may be symbolic) shifts the boundary; 0 is the main diagonal. */
TC_API tc_tensor tc_tril_at(tc_tensor x, int64_t diagonal, tc_site here);
#define tc_tril(x, diagonal) tc_tril_at((x), (diagonal), TC_HERE)
TC_API tc_tensor tc_triu_at(tc_tensor x, int64_t diagonal, tc_site here);
#define tc_triu(x, diagonal) tc_triu_at((x), (diagonal), TC_HERE)
/* [..., C r r, H, W] as [..., C, H r, W r], and back (Shi et al., arXiv 1609.05158). TC_ERR_SHAPE:
 * the factor is less than 1 or does not divide. */
TC_API tc_tensor tc_pixel_shuffle_at(tc_tensor x, int64_t upscale_factor, tc_site here);
#define tc_pixel_shuffle(x, upscale_factor) tc_pixel_shuffle_at((x), (upscale_factor), TC_HERE)
TC_API tc_tensor tc_pixel_unshuffle_at(tc_tensor x, int64_t downscale_factor, tc_site here);
#define tc_pixel_unshuffle(x, downscale_factor)                                                    \
    tc_pixel_unshuffle_at((x), (downscale_factor), TC_HERE)
/* Repeats each element along an axis: `repeats` is a number, or a 1-d tensor with one count per
 * element. With a tensor the axis of the result has `size` elements: the last element fills up a
 * smaller sum, and a larger one is cut. */
TC_API tc_tensor tc_repeat_interleave_at(tc_tensor x, tc_arg repeats, int axis, int64_t size,
                                         tc_site here);
#define tc_repeat_interleave(x, repeats, axis, size)                                               \
    tc_repeat_interleave_at((x), TC_ARG(repeats), (axis), (size), TC_HERE)
/* x with a part replaced by src, of x's dtype and the part's shape: a tc_slice, one index along
 * an axis, or a tc_diagonal. */
TC_API tc_tensor tc_slice_scatter_at(tc_tensor x, tc_tensor src, int axis, int64_t start,
                                     int64_t stop, int64_t step, tc_site here);
#define tc_slice_scatter(x, src, axis, start, stop, step)                                          \
    tc_slice_scatter_at((x), (src), (axis), (start), (stop), (step), TC_HERE)
TC_API tc_tensor tc_select_scatter_at(tc_tensor x, tc_tensor src, int axis, int64_t index,
                                      tc_site here);
#define tc_select_scatter(x, src, axis, index)                                                     \
    tc_select_scatter_at((x), (src), (axis), (index), TC_HERE)
TC_API tc_tensor tc_diagonal_scatter_at(tc_tensor x, tc_tensor src, int64_t offset, int axis_a,
                                        int axis_b, tc_site here);
#define tc_diagonal_scatter(x, src, offset, axis_a, axis_b)                                        \
    tc_diagonal_scatter_at((x), (src), (offset), (axis_a), (axis_b), TC_HERE)
/* tc_cat(TC_TENSORS(a, b), 0): concatenation along an axis, in the promoted dtype; one tensor or
 * more (else TC_ERR_ARGUMENT), none 0-d, the other sizes equal (else TC_ERR_SHAPE). */
TC_API tc_tensor tc_cat_at(tc_tensors xs, int axis, tc_site here);
#define tc_cat(xs, axis) tc_cat_at((xs), (axis), TC_HERE)

/* Stacks tensors of one shape along a new axis, which becomes axis `axis` of the result. */
TC_API tc_tensor tc_stack_at(tc_tensors xs, int axis, tc_site here);
#define tc_stack(xs, axis) tc_stack_at((xs), (axis), TC_HERE)
/* Splits x along an axis into parts[0] to parts[n - 1]: pieces of `size` (the last one may be
 * smaller); pieces of n given sizes; n pieces of nearly equal size (the last ones may be empty);
 * or all n elements, without the axis. TC_ERR_ARGUMENT: the pieces do not make up the axis. All
 * parts are poisoned after a mistake. */
TC_API void tc_split_at(tc_tensor x, int64_t size, int axis, tc_tensor *parts, int n, tc_site here);
#define tc_split(x, size, axis, parts, n) tc_split_at((x), (size), (axis), (parts), (n), TC_HERE)
TC_API void tc_split_with_sizes_at(tc_tensor x, int n, const int64_t *sizes, int axis,
                                   tc_tensor *parts, tc_site here);
#define tc_split_with_sizes(x, n, sizes, axis, parts)                                              \
    tc_split_with_sizes_at((x), (n), (sizes), (axis), (parts), TC_HERE)
TC_API void tc_chunk_at(tc_tensor x, int chunks, int axis, tc_tensor *parts, tc_site here);
#define tc_chunk(x, chunks, axis, parts) tc_chunk_at((x), (chunks), (axis), (parts), TC_HERE)
TC_API void tc_unbind_at(tc_tensor x, int axis, tc_tensor *parts, int n, tc_site here);
#define tc_unbind(x, axis, parts, n) tc_unbind_at((x), (axis), (parts), (n), TC_HERE)
/* Element `index` along an axis (negative: from the end), without that axis. TC_ERR_ARGUMENT:
 * there is no such element. */
TC_API tc_tensor tc_select_at(tc_tensor x, int axis, int64_t index, tc_site here);
#define tc_select(x, axis, index) tc_select_at((x), (axis), (index), TC_HERE)
/* tc_tile(x, 2, 3): repeats x along each axis; the shorter of the two lists is extended by leading
 * axes of size 1. */
TC_API tc_tensor tc_tile_at(tc_tensor x, int n, const int64_t *repeats, tc_site here);
#define tc_tile(x, ...)                                                                            \
    tc_tile_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)

/* Multi-dimensional indices [n, ...] i64 into an array of the given n sizes for flat indices (any
 * integer dtype, row-major, negative from the end); an index out of range is not detected.
 * tc_unravel_index(index, rows, columns) */
TC_API tc_tensor tc_unravel_index_at(tc_tensor index, int n, const int64_t *sizes, tc_site here);
#define tc_unravel_index(index, ...)                                                               \
    tc_unravel_index_at((index), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)

/* ---- reading at indices, of any integer dtype (else TC_ERR_DTYPE): -n..-1 count from the end;
 * outside of that the run fails with TC_ERR_INDEX ---- */
/* result[i, j, ...] = x[i, index[i, j, ...], ...] for axis 1; shape of index, which has x's rank
 * and off the axis no larger sizes. */
TC_API tc_tensor tc_gather_at(tc_tensor x, int axis, tc_tensor index, tc_site here);
#define tc_gather(x, axis, index) tc_gather_at((x), (axis), (index), TC_HERE)
/* Slices of x along an axis chosen by a 1-d index; the axis gets the size of the index. */
TC_API tc_tensor tc_index_select_at(tc_tensor x, int axis, tc_tensor index, tc_site here);
#define tc_index_select(x, axis, index) tc_index_select_at((x), (axis), (index), TC_HERE)

/* tc_gather of x and index of equal rank, which broadcast to each other off the axis. */
TC_API tc_tensor tc_take_along_dim_at(tc_tensor x, tc_tensor index, int axis, tc_site here);
#define tc_take_along_dim(x, index, axis) tc_take_along_dim_at((x), (index), (axis), TC_HERE)
/* Advanced indexing: tc_index(x, TC_TENSORS(i, TC_NONE, k)) is x[i, :, k]. There is an index for
 * each of the first axes of x, TC_NONE for a whole axis; at least one is given. Indices broadcast;
 * their axes replace the first indexed axis, or come first where a whole axis separates indexed
 * ones. For a mask see tc_masked_select. */
TC_API tc_tensor tc_index_at(tc_tensor x, tc_tensors indices, tc_site here);
#define tc_index(x, indices) tc_index_at((x), (indices), TC_HERE)
/* Number of elements of a sorted list [n] (or [..., n] with values [..., m]) that are less than
 * each value, or not greater if right: i64, shape of values. NaN is greater than every number.
 * tc_bucketize takes the values first. Compared in the common dtype. */
TC_API tc_tensor tc_searchsorted_at(tc_tensor sorted, tc_tensor values, bool right, tc_site here);
#define tc_searchsorted(sorted, values, right)                                                     \
    tc_searchsorted_at((sorted), (values), (right), TC_HERE)
TC_API tc_tensor tc_bucketize_at(tc_tensor x, tc_tensor boundaries, bool right, tc_site here);
#define tc_bucketize(x, boundaries, right) tc_bucketize_at((x), (boundaries), (right), TC_HERE)

/* ---- results whose number depends on values: `size` is the capacity, *count (0-d i64, NULL: not
 * wanted) the number of results. Elements beyond the count are 0, results beyond the capacity are
 * dropped. On an error both are poisoned handles ---- */
/* The elements of x where the mask (bool, else TC_ERR_DTYPE) is true, in order: [size]. x and
 * mask broadcast. */
TC_API void tc_masked_select_at(tc_tensor x, tc_tensor mask, int64_t size, tc_tensor *values,
                                tc_tensor *count, tc_site here);
#define tc_masked_select(x, mask, size, values, count)                                             \
    tc_masked_select_at((x), (mask), (size), (values), (count), TC_HERE)
/* The indices of the elements that are not 0, in order: [size, rank of x] i64. */
TC_API void tc_nonzero_at(tc_tensor x, int64_t size, tc_tensor *indices, tc_tensor *count,
                          tc_site here);
#define tc_nonzero(x, size, indices, count)                                                        \
    tc_nonzero_at((x), (size), (indices), (count), TC_HERE)

/* The slices of x along an axis that differ, `size` of them along it, in order, or in place of each
 * run of equal ones (consecutive); *inverse [n], i64: which of them each of the n slices of x is;
 * *counts [size], i64: how many of each there are. To be ordered a slice has at most 256 elements
 * (else TC_ERR_LIMIT). */
TC_API void tc_unique_at(tc_tensor x, int axis, int64_t size, tc_tensor *values, tc_tensor *inverse,
                         tc_tensor *counts, tc_tensor *count, tc_site here);
#define tc_unique(x, axis, size, values, inverse, counts, count)                                   \
    tc_unique_at((x), (axis), (size), (values), (inverse), (counts), (count), TC_HERE)
TC_API void tc_unique_consecutive_at(tc_tensor x, int axis, int64_t size, tc_tensor *values,
                                     tc_tensor *inverse, tc_tensor *counts, tc_tensor *count,
                                     tc_site here);
#define tc_unique_consecutive(x, axis, size, values, inverse, counts, count)                       \
    tc_unique_consecutive_at((x), (axis), (size), (values), (inverse), (counts), (count), TC_HERE)

/* ---- writing at indices, which are checked in the same way. Several elements of src that go to
 * one element of x are applied in their order along the axis: the same bits on any machine and with
 * any number of threads. Sums of f16 and bf16 are computed in f32 and rounded once. ---- */
/* x[i, index[i, j, ...], ...] += src[i, j, ...] for axis 1. x and src have one dtype. index is
 * no larger than src on any axis (the rest of src is not used), nor than x off the axis. */
TC_API tc_tensor tc_scatter_add_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                   tc_site here);
#define tc_scatter_add(x, axis, index, src)                                                        \
    tc_scatter_add_at((x), (axis), (index), (src), TC_HERE)
/* Writes elements of src into x; of several for one position the last one wins. Shapes and dtypes
 * of this and the next three calls are those of tc_scatter_add. */
TC_API tc_tensor tc_scatter_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src, tc_site here);
#define tc_scatter(x, axis, index, src) tc_scatter_at((x), (axis), (index), (src), TC_HERE)
/* Minimum of x's element and those of src for its position; NaN if one is NaN. */
TC_API tc_tensor tc_scatter_min_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                   tc_site here);
#define tc_scatter_min(x, axis, index, src)                                                        \
    tc_scatter_min_at((x), (axis), (index), (src), TC_HERE)
/* Maximum of x's element and those of src for its position; NaN if one is NaN. */
TC_API tc_tensor tc_scatter_max_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                   tc_site here);
#define tc_scatter_max(x, axis, index, src)                                                        \
    tc_scatter_max_at((x), (axis), (index), (src), TC_HERE)
/* Product of x's element and those of src for its position. */
TC_API tc_tensor tc_scatter_prod_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                    tc_site here);
#define tc_scatter_prod(x, axis, index, src)                                                       \
    tc_scatter_prod_at((x), (axis), (index), (src), TC_HERE)
/* Reductions of consecutive segments of an axis: segment i has lengths[i] (integers [n], 0 or more)
 * slices of x; the axis of the result has size n. reduce: "sum", "mean", "max", "min" or "prod"; an
 * empty segment gives 0, NaN, -inf, inf or 1. Slices beyond the sum of lengths are left out.
 * Integers count as f32. TC_ERR_SHAPE: lengths are not 1-d integers. */
TC_API tc_tensor tc_segment_reduce_at(tc_tensor x, const char *reduce, tc_tensor lengths, int axis,
                                      tc_site here);
#define tc_segment_reduce(x, reduce, lengths, axis)                                                \
    tc_segment_reduce_at((x), (reduce), (lengths), (axis), TC_HERE)
/* Adds slices of src to the slices of x along an axis that a 1-d index names. src has x's dtype
 * and shape, but along the axis the size of the index. */
TC_API tc_tensor tc_index_add_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                 tc_site here);
#define tc_index_add(x, axis, index, src)                                                          \
    tc_index_add_at((x), (axis), (index), (src), TC_HERE)

/* x with the elements tc_index(x, indices) replaced by src, or increased by it if accumulate. src
 * has x's dtype and broadcasts to them. If an element is written several times, one of the writes
 * wins; accumulate adds in src's order. One bool mask over x's first axes may replace the indices:
 * its true elements take the rows of src in order, or all take src's only row; a true element is
 * TC_ERR_INDEX in the run if src has no rows. */
TC_API tc_tensor tc_index_put_at(tc_tensor x, tc_tensors indices, tc_tensor src, bool accumulate,
                                 tc_site here);
#define tc_index_put(x, indices, src, accumulate)                                                  \
    tc_index_put_at((x), (indices), (src), (accumulate), TC_HERE)
/* Fills the slices of x along an axis that a 1-d index names with a number or a 0-d tensor. */
TC_API tc_tensor tc_index_fill_at(tc_tensor x, int axis, tc_tensor index, tc_arg value,
                                  tc_site here);
#define tc_index_fill(x, axis, index, value)                                                       \
    tc_index_fill_at((x), (axis), (index), TC_ARG(value), TC_HERE)
/* x with the elements of src, of its dtype, in order, where the mask (bool) is true; x and mask
 * broadcast. */
TC_API tc_tensor tc_masked_scatter_at(tc_tensor x, tc_tensor mask, tc_tensor src, tc_site here);
#define tc_masked_scatter(x, mask, src) tc_masked_scatter_at((x), (mask), (src), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
