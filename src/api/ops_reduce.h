/* api/ops_reduce.h - declares reductions, scans, sorting and statistics along axes, and calls
 * composed of these: vector norms, differences and integrals, distances. Conventions:
 * api/ops_elementwise.h. */
#ifndef TC_API_OPS_REDUCE_H
#define TC_API_OPS_REDUCE_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- over axes: a reduced axis is dropped, or has size 1 if keepdims ---- */
/* Arithmetic mean; NaN over no elements. Integers and bool in f32. */
TC_API tc_tensor tc_mean_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_mean(x, axes, keepdims) tc_mean_at((x), (axes), (keepdims), TC_HERE)
/* Variance: the sum of squared differences from the mean, divided by (count - correction).
 * correction 1 gives the unbiased estimate for a sample, 0 the variance of these elements. NaN
 * if count - correction is not above 0. x is read once; partial results are merged as by Chan,
 * Golub and LeVeque (1979), relative to the first element, so that a large mean costs no digits.
 * Integers and bool in f32; f16 and bf16 are computed in f32. TC_ERR_ARGUMENT: the correction is
 * not finite. */
TC_API tc_tensor tc_var_at(tc_tensor x, tc_axes axes, double correction, bool keepdims,
                           tc_site here);
#define tc_var(x, axes, correction, keepdims)                                                      \
    tc_var_at((x), (axes), (correction), (keepdims), TC_HERE)
/* Standard deviation: the square root of tc_var, with the same errors. */
TC_API tc_tensor tc_std_at(tc_tensor x, tc_axes axes, double correction, bool keepdims,
                           tc_site here);
#define tc_std(x, axes, correction, keepdims)                                                      \
    tc_std_at((x), (axes), (correction), (keepdims), TC_HERE)
/* tc_var and tc_mean over the same axes, stored in *var and *mean (NULL: not wanted). A program
 * that uses both reads x once. After a mistake both are poisoned. */
TC_API void tc_var_mean_at(tc_tensor x, tc_axes axes, double correction, bool keepdims,
                           tc_tensor *var, tc_tensor *mean, tc_site here);
#define tc_var_mean(x, axes, correction, keepdims, var, mean)                                      \
    tc_var_mean_at((x), (axes), (correction), (keepdims), (var), (mean), TC_HERE)
/* Cumulative sum along an axis. Result: x's shape; bool and integers in i64 (u16 and wider:
 * u64). */
TC_API tc_tensor tc_cumsum_at(tc_tensor x, int axis, tc_site here);
#define tc_cumsum(x, axis) tc_cumsum_at((x), (axis), TC_HERE)
/* Cumulative product (dtypes as of tc_cumsum), and cumulative log(sum(exp(x))) without overflow
 * (integers and bool in f32). */
TC_API tc_tensor tc_cumprod_at(tc_tensor x, int axis, tc_site here);
#define tc_cumprod(x, axis) tc_cumprod_at((x), (axis), TC_HERE)
TC_API tc_tensor tc_logcumsumexp_at(tc_tensor x, int axis, tc_site here);
#define tc_logcumsumexp(x, axis) tc_logcumsumexp_at((x), (axis), TC_HERE)
/* Cumulative maximum and minimum along an axis: *values, and *indices (i64; the last index of
 * equal elements), both of x's shape; NULL: not wanted. Here and below all results are poisoned
 * after a mistake. */
TC_API void tc_cummax_at(tc_tensor x, int axis, tc_tensor *values, tc_tensor *indices,
                         tc_site here);
#define tc_cummax(x, axis, values, indices)                                                        \
    tc_cummax_at((x), (axis), (values), (indices), TC_HERE)
TC_API void tc_cummin_at(tc_tensor x, int axis, tc_tensor *values, tc_tensor *indices,
                         tc_site here);
#define tc_cummin(x, axis, values, indices)                                                        \
    tc_cummin_at((x), (axis), (values), (indices), TC_HERE)
/* tc_min and tc_max over the same axes, with the same errors. */
TC_API void tc_aminmax_at(tc_tensor x, tc_axes axes, bool keepdims, tc_tensor *least,
                          tc_tensor *most, tc_site here);
#define tc_aminmax(x, axes, keepdims, least, most)                                                 \
    tc_aminmax_at((x), (axes), (keepdims), (least), (most), TC_HERE)
/* The k-th smallest element along an axis, and its index (i64). TC_ERR_ARGUMENT: k is not
 * between 1 and the size of the axis. */
TC_API void tc_kthvalue_at(tc_tensor x, int64_t k, int axis, bool keepdims, tc_tensor *values,
                           tc_tensor *indices, tc_site here);
#define tc_kthvalue(x, k, axis, keepdims, values, indices)                                         \
    tc_kthvalue_at((x), (k), (axis), (keepdims), (values), (indices), TC_HERE)
/* Median along an axis (the lower of two middle elements), and its index (i64). NaN if an
 * element is NaN. TC_ERR_SHAPE, here and below: the axis has no elements. */
TC_API void tc_median_at(tc_tensor x, int axis, bool keepdims, tc_tensor *values,
                         tc_tensor *indices, tc_site here);
#define tc_median(x, axis, keepdims, values, indices)                                              \
    tc_median_at((x), (axis), (keepdims), (values), (indices), TC_HERE)
/* tc_median of the elements that are not NaN. */
TC_API void tc_nanmedian_at(tc_tensor x, int axis, bool keepdims, tc_tensor *values,
                            tc_tensor *indices, tc_site here);
#define tc_nanmedian(x, axis, keepdims, values, indices)                                           \
    tc_nanmedian_at((x), (axis), (keepdims), (values), (indices), TC_HERE)
/* Mode: the most frequent element along an axis (the smallest one if several are), and its last
 * index (i64). */
TC_API void tc_mode_at(tc_tensor x, int axis, bool keepdims, tc_tensor *values, tc_tensor *indices,
                       tc_site here);
#define tc_mode(x, axis, keepdims, values, indices)                                                \
    tc_mode_at((x), (axis), (keepdims), (values), (indices), TC_HERE)
/* Histogram over all of x: the number of elements in each of `bins` equal bins from low to high;
 * if low equals high, from the minimum to the maximum of x. Elements outside are not counted.
 * Result: [bins], x's dtype. TC_ERR_ARGUMENT: x is not a float, bins is less than 1, or low is
 * above high. */
TC_API tc_tensor tc_histc_at(tc_tensor x, int64_t bins, double low, double high, tc_site here);
#define tc_histc(x, bins, low, high) tc_histc_at((x), (bins), (low), (high), TC_HERE)
/* Number of elements of x (integers) that equal 0, 1, ... size - 1: [size] i64. With weights of
 * x's shape (TC_NONE: none): the sums of their weights, in the weights' dtype. Other values of x
 * are not counted. */
TC_API tc_tensor tc_bincount_at(tc_tensor x, tc_tensor weights, int64_t size, tc_site here);
#define tc_bincount(x, weights, size) tc_bincount_at((x), (weights), (size), TC_HERE)
/* True where an element of x occurs in the list (any shape). Result: bool, x's shape. Compared
 * in the common dtype. */
TC_API tc_tensor tc_isin_at(tc_tensor x, tc_tensor list, tc_site here);
#define tc_isin(x, list) tc_isin_at((x), (list), TC_HERE)
/* Sum over the elements that are not NaN (0 if there is none), in the dtype of tc_sum. */
TC_API tc_tensor tc_nansum_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_nansum(x, axes, keepdims) tc_nansum_at((x), (axes), (keepdims), TC_HERE)
/* Mean of the elements that are not NaN (NaN if there is none); integers and bool in f32. */
TC_API tc_tensor tc_nanmean_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_nanmean(x, axes, keepdims) tc_nanmean_at((x), (axes), (keepdims), TC_HERE)
/* Number of elements that are not 0, i64; NaN counts. */
TC_API tc_tensor tc_count_nonzero_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_count_nonzero(x, axes, keepdims) tc_count_nonzero_at((x), (axes), (keepdims), TC_HERE)
/* The q-quantile over axes: the element at position q (n - 1) of the n sorted elements. q: a number
 * or a 0-d tensor, or a 1-d tensor [k], whose axis becomes the first of the result; outside [0, 1]
 * the result is NaN (a number: TC_ERR_ARGUMENT). interpolation, between the two elements at a
 * position that is not whole: "linear" (NULL), "lower", "higher", "nearest" (ties to even) or
 * "midpoint". NaN if an element is NaN. Integers and bool in f32. TC_ERR_SHAPE: no elements, or
 * possibly none (symbolic sizes from 0 on); TC_ERR_AXIS: an axis twice.
 *     tc_tensor quartiles = tc_quantile(x, q, TC_AXES(-1), false, NULL); // q = 0.25, 0.5, 0.75 */
TC_API tc_tensor tc_quantile_at(tc_tensor x, tc_arg q, tc_axes axes, bool keepdims,
                                const char *interpolation, tc_site here);
#define tc_quantile(x, q, axes, keepdims, interpolation)                                           \
    tc_quantile_at((x), TC_ARG(q), (axes), (keepdims), (interpolation), TC_HERE)
/* tc_quantile of the elements that are not NaN; NaN if there is none. */
TC_API tc_tensor tc_nanquantile_at(tc_tensor x, tc_arg q, tc_axes axes, bool keepdims,
                                   const char *interpolation, tc_site here);
#define tc_nanquantile(x, q, axes, keepdims, interpolation)                                        \
    tc_nanquantile_at((x), TC_ARG(q), (axes), (keepdims), (interpolation), TC_HERE)
/* Covariance matrix [v, v] of v variables with n observations each, x [v, n], or the variance, 0-d,
 * of x [n]. The sum of products of deviations is divided by n - correction (1: unbiased, 0: of
 * these observations). fweights [n] repeat an observation, aweights [n] weight it, as in NumPy;
 * TC_NONE: 1. Integers and bool in f32. TC_ERR_SHAPE: more than two axes, or weights that are not
 * [n]. */
TC_API tc_tensor tc_cov_at(tc_tensor x, double correction, tc_tensor fweights, tc_tensor aweights,
                           tc_site here);
#define tc_cov(x, correction, fweights, aweights)                                                  \
    tc_cov_at((x), (correction), (fweights), (aweights), TC_HERE)
/* Pearson's correlation coefficients [v, v] of the rows of x [v, n], between -1 and 1; NaN where a
 * variance is 0. 0-d of x [n]. */
TC_API tc_tensor tc_corrcoef_at(tc_tensor x, tc_site here);
#define tc_corrcoef(x) tc_corrcoef_at((x), TC_HERE)
/* The k largest elements along an axis in descending order, or the k smallest in ascending
 * order: *values, and their indices (*indices, i64); NULL: not wanted. Result shape: x's, with
 * size k along the axis, k from 0 to its size (else TC_ERR_ARGUMENT). NaN is larger than every
 * number; equal elements keep their order. The gradient of values goes to the elements taken. */
TC_API void tc_topk_at(tc_tensor x, int axis, int64_t k, bool largest, tc_tensor *values,
                       tc_tensor *indices, tc_site here);
#define tc_topk(x, axis, k, largest, values, indices)                                              \
    tc_topk_at((x), (axis), (k), (largest), (values), (indices), TC_HERE)
/* Stable sort along an axis: tc_topk of all elements, in descending or ascending order. */
TC_API void tc_sort_at(tc_tensor x, int axis, bool descending, tc_tensor *values,
                       tc_tensor *indices, tc_site here);
#define tc_sort(x, axis, descending, values, indices)                                              \
    tc_sort_at((x), (axis), (descending), (values), (indices), TC_HERE)
/* The indices of tc_sort. */
TC_API tc_tensor tc_argsort_at(tc_tensor x, int axis, bool descending, tc_site here);
#define tc_argsort(x, axis, descending) tc_argsort_at((x), (axis), (descending), TC_HERE)

/* ---- made of other calls: floats are computed in f32 or f64 and rounded once to the dtype of the
 * first operand; integers and bool count as f32 unless a line says otherwise; eps keeps divisors
 * above 0 ---- */
/* log(sum(exp(x))) over axes, without overflow of the sum. */
TC_API tc_tensor tc_logsumexp_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_logsumexp(x, axes, keepdims) tc_logsumexp_at((x), (axes), (keepdims), TC_HERE)
/* p-norm over axes: (sum |x|^p)^(1/p). p = 2: Euclidean or Frobenius; INFINITY: max |x|;
 * -INFINITY: min |x| (both TC_ERR_SHAPE over no elements); 0: number of nonzeros. */
TC_API tc_tensor tc_norm_at(tc_tensor x, double p, tc_axes axes, bool keepdims, tc_site here);
#define tc_norm(x, p, axes, keepdims) tc_norm_at((x), (p), (axes), (keepdims), TC_HERE)
/* x / max(p-norm along the axis, eps). */
TC_API tc_tensor tc_normalize_at(tc_tensor x, double p, int axis, double eps, tc_site here);
#define tc_normalize(x, p, axis, eps) tc_normalize_at((x), (p), (axis), (eps), TC_HERE)
/* Scales each slice of x along an axis whose p-norm is above maxnorm down to maxnorm.
 * TC_ERR_ARGUMENT: x has fewer than two axes, p is not above 0, or maxnorm is negative. */
TC_API tc_tensor tc_renorm_at(tc_tensor x, double p, int axis, double maxnorm, tc_site here);
#define tc_renorm(x, p, axis, maxnorm) tc_renorm_at((x), (p), (axis), (maxnorm), TC_HERE)
/* n-th difference along an axis: the axis becomes n elements shorter (at least 0). prepend and
 * append (or TC_NONE) are concatenated to x first, unless n is 0, which gives x. Result: the common
 * dtype; for bool, whether neighbours differ. TC_ERR_ARGUMENT: n is negative. */
TC_API tc_tensor tc_diff_at(tc_tensor x, int64_t n, int axis, tc_tensor prepend, tc_tensor append,
                            tc_site here);
#define tc_diff(x, n, axis, prepend, append)                                                       \
    tc_diff_at((x), (n), (axis), (prepend), (append), TC_HERE)
/* Trapezoidal integral of y along an axis, which is dropped. x: sample points (1-d, or y's
 * shape); TC_NONE: spacing dx. */
TC_API tc_tensor tc_trapezoid_at(tc_tensor y, tc_tensor x, double dx, int axis, tc_site here);
#define tc_trapezoid(y, x, dx, axis) tc_trapezoid_at((y), (x), (dx), (axis), TC_HERE)
/* Cumulative trapezoidal integral: element i integrates y from sample 0 to sample i + 1. The
 * axis has size n - 1. */
TC_API tc_tensor tc_cumulative_trapezoid_at(tc_tensor y, tc_tensor x, double dx, int axis,
                                            tc_site here);
#define tc_cumulative_trapezoid(y, x, dx, axis)                                                    \
    tc_cumulative_trapezoid_at((y), (x), (dx), (axis), TC_HERE)
/* Cross product of vectors of 3 along an axis (else TC_ERR_SHAPE). The other axes broadcast.
 * Result: the common dtype. */
TC_API tc_tensor tc_cross_at(tc_tensor a, tc_tensor b, int axis, tc_site here);
#define tc_cross(a, b, axis) tc_cross_at((a), (b), (axis), TC_HERE)
/* Kronecker product: each element of a times all of b. The size of each axis, counted from the
 * last, is the product of both. Result: the common dtype. */
TC_API tc_tensor tc_kron_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_kron(a, b) tc_kron_at((a), (b), TC_HERE)
/* Cosine of the angle between vectors along an axis, which is dropped; x1 and x2 broadcast.
 * Norms below eps count as eps. */
TC_API tc_tensor tc_cosine_similarity_at(tc_tensor x1, tc_tensor x2, int axis, double eps,
                                         tc_site here);
#define tc_cosine_similarity(x1, x2, axis, eps)                                                    \
    tc_cosine_similarity_at((x1), (x2), (axis), (eps), TC_HERE)
/* p-norm of x1 - x2 + eps along the last axis; x1 and x2 broadcast. */
TC_API tc_tensor tc_pairwise_distance_at(tc_tensor x1, tc_tensor x2, double p, double eps,
                                         bool keepdims, tc_site here);
#define tc_pairwise_distance(x1, x2, p, eps, keepdims)                                             \
    tc_pairwise_distance_at((x1), (x2), (p), (eps), (keepdims), TC_HERE)
/* p-norms of the differences between all rows of x1 [..., n, d] and of x2 [..., m, d]: [..., n,
 * m]. */
TC_API tc_tensor tc_cdist_at(tc_tensor x1, tc_tensor x2, double p, tc_site here);
#define tc_cdist(x1, x2, p) tc_cdist_at((x1), (x2), (p), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
