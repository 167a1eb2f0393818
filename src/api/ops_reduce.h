/* api/ops_reduce.h - declares reductions, scans, sorting and statistics along axes, and calls
 * composed of these: norms, distances, attention. Conventions: api/ops_elementwise.h. */
#ifndef TC_API_OPS_REDUCE_H
#define TC_API_OPS_REDUCE_H

#include "context.h"

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
/* |a - b| <= atol + rtol |b|, or a == b, element by element, bool; b: a tensor or a number. NaN is
 * close to NaN if equal_nan. Unless both are floats they are compared in f64. TC_ERR_ARGUMENT: a
 * negative tolerance. allclose: whether all are, bool, 0-d.
 *     tc_tensor ok = tc_allclose(y, want, 1e-5, 1e-8, false); */
TC_API tc_tensor tc_isclose_at(tc_tensor a, tc_arg b, double rtol, double atol, bool equal_nan,
                               tc_site here);
#define tc_isclose(a, b, rtol, atol, equal_nan)                                                    \
    tc_isclose_at((a), TC_ARG(b), (rtol), (atol), (equal_nan), TC_HERE)
TC_API tc_tensor tc_allclose_at(tc_tensor a, tc_arg b, double rtol, double atol, bool equal_nan,
                                tc_site here);
#define tc_allclose(a, b, rtol, atol, equal_nan)                                                   \
    tc_allclose_at((a), TC_ARG(b), (rtol), (atol), (equal_nan), TC_HERE)
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
/* Softmax along an axis, exp(x) / sum(exp(x)), and its logarithm, both without overflow.
 * Integers and bool in f32. */
TC_API tc_tensor tc_softmax_at(tc_tensor x, int axis, tc_site here);
#define tc_softmax(x, axis) tc_softmax_at((x), (axis), TC_HERE)
TC_API tc_tensor tc_log_softmax_at(tc_tensor x, int axis, tc_site here);
#define tc_log_softmax(x, axis) tc_log_softmax_at((x), (axis), TC_HERE)
/* Layer normalization over axes: (x - mean) / sqrt(variance + eps) * weight + bias, with the
 * variance divided by the count. weight and bias have the sizes of the axes (else TC_ERR_SHAPE),
 * or are TC_NONE; eps is a number or 0-d. Integers and bool in f32. TC_ERR_AXIS: no axes. Ba,
 * Kiros and Hinton, arXiv 1607.06450. */
TC_API tc_tensor tc_layer_norm_at(tc_tensor x, tc_axes axes, tc_tensor weight, tc_tensor bias,
                                  tc_arg eps, tc_site here);
#define tc_layer_norm(x, axes, weight, bias, eps)                                                  \
    tc_layer_norm_at((x), (axes), (weight), (bias), TC_ARG(eps), TC_HERE)
/* x as a constant: gradients do not pass through it. */
TC_API tc_tensor tc_stop_gradient_at(tc_tensor x, tc_site here);
#define tc_stop_gradient(x) tc_stop_gradient_at((x), TC_HERE)
/* x, materialized: users of the result read it from memory, in other kernels than the one that
 * computes x. */
TC_API tc_tensor tc_materialize_at(tc_tensor x, tc_site here);
#define tc_materialize(x) tc_materialize_at((x), TC_HERE)
/* x computed by kernels of its own: the operands of its op (below movement) and its value are
 * materialized. */
TC_API tc_tensor tc_nofuse_at(tc_tensor x, tc_site here);
#define tc_nofuse(x) tc_nofuse_at((x), TC_HERE)
/* Cross entropy: the mean of -log_softmax(logits)[target] over the targets. logits [N, C], [N,
 * C, ...] or [C]; target: class indices (integers) [N], [N, ...] or 0-d. Result: 0-d, in the
 * dtype of the logits (f32 for integers). A class outside -C..C-1 fails the run with
 * TC_ERR_INDEX; negative classes count from the end. */
TC_API tc_tensor tc_cross_entropy_at(tc_tensor logits, tc_tensor target, tc_site here);
#define tc_cross_entropy(logits, target) tc_cross_entropy_at((logits), (target), TC_HERE)

/* ---- made of other calls: floats are computed in f32 or f64 and rounded once to the dtype of the
 * first operand; integers and bool count as f32 unless a line says otherwise; eps keeps divisors
 * above 0 ---- */
/* x clamped to [min, max]; each bound is a tensor, a number or TC_NONE, and at least one is
 * given (else TC_ERR_ARGUMENT). All broadcast to the common dtype. The gradient of x is 1
 * between the bounds and 0 at and beyond a bound that is a number; at a bound that is a tensor
 * both take half. */
TC_API tc_tensor tc_clamp_at(tc_tensor x, tc_arg min, tc_arg max, tc_site here);
#define tc_clamp(x, min, max) tc_clamp_at((x), TC_ARG(min), TC_ARG(max), TC_HERE)
/* value where mask is not 0, else x. All broadcast. Result: x's dtype. */
TC_API tc_tensor tc_masked_fill_at(tc_tensor x, tc_tensor mask, tc_arg value, tc_site here);
#define tc_masked_fill(x, mask, value) tc_masked_fill_at((x), (mask), TC_ARG(value), TC_HERE)
/* Replaces NaN, inf and -inf by numbers; TC_NONE: 0, the largest and the lowest number of the
 * dtype. Integers are returned as they are. */
TC_API tc_tensor tc_nan_to_num_at(tc_tensor x, tc_arg nan, tc_arg posinf, tc_arg neginf,
                                  tc_site here);
#define tc_nan_to_num(x, nan, posinf, neginf)                                                      \
    tc_nan_to_num_at((x), TC_ARG(nan), TC_ARG(posinf), TC_ARG(neginf), TC_HERE)
/* Number of set bits of each element. x: integer dtype. Result: x's dtype. */
TC_API tc_tensor tc_popcount_at(tc_tensor x, tc_site here);
#define tc_popcount(x) tc_popcount_at((x), TC_HERE)
/* The next representable float after x in the direction of `towards`, of one float dtype; x itself
 * where both are equal, NaN where one is. No gradient. */
TC_API tc_tensor tc_nextafter_at(tc_tensor x, tc_tensor towards, tc_site here);
#define tc_nextafter(x, towards) tc_nextafter_at((x), (towards), TC_HERE)
/* x = mantissa 2^exponent with |mantissa| in [0.5, 1), both exact: *mantissa of x's float dtype,
 * *exponent i32. 0, inf and NaN are their own mantissa with exponent 0. NULL: not wanted. */
TC_API void tc_frexp_at(tc_tensor x, tc_tensor *mantissa, tc_tensor *exponent, tc_site here);
#define tc_frexp(x, mantissa, exponent) tc_frexp_at((x), (mantissa), (exponent), TC_HERE)
/* The n-th derivative of digamma, n from 0 to 64 (else TC_ERR_ARGUMENT), by Hurwitz's zeta function
 * and, below 0.5, reflection; from n = 2 on computed in f64. */
TC_API tc_tensor tc_polygamma_at(int64_t n, tc_tensor x, tc_site here);
#define tc_polygamma(n, x) tc_polygamma_at((n), (x), TC_HERE)
/* Modified Bessel function of the first kind of order 0. */
TC_API tc_tensor tc_i0_at(tc_tensor x, tc_site here);
#define tc_i0(x) tc_i0_at((x), TC_HERE)
/* Regularized lower incomplete gamma function P(a, x), and the upper one Q = 1 - P, which is not
 * computed as that difference where it is small: a and x, 0 or more (else NaN), broadcast; computed
 * in f64, of x's dtype. The gradient by a is TC_ERR_UNSUPPORTED. */
TC_API tc_tensor tc_igamma_at(tc_tensor a, tc_tensor x, tc_site here);
#define tc_igamma(a, x) tc_igamma_at((a), (x), TC_HERE)
TC_API tc_tensor tc_igammac_at(tc_tensor a, tc_tensor x, tc_site here);
#define tc_igammac(a, x) tc_igammac_at((a), (x), TC_HERE)
/* Gated linear unit: the first half of an axis of even size 2 n, times the sigmoid of the second
 * half. Result: size n along the axis. */
TC_API tc_tensor tc_glu_at(tc_tensor x, int axis, tc_site here);
#define tc_glu(x, axis) tc_glu_at((x), (axis), TC_HERE)
/* Rotary position embedding: x * cosine + rotated(x) * sine, where rotated(x) is (-second half,
 * first half) of the last axis, of even size. All broadcast. Su et al., arXiv 2104.09864; the
 * order of GPT-NeoX. */
TC_API tc_tensor tc_rope_at(tc_tensor x, tc_tensor cosine, tc_tensor sine, tc_site here);
#define tc_rope(x, cosine, sine) tc_rope_at((x), (cosine), (sine), TC_HERE)
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
/* softmax(query key^T * scale + mask) value: query [..., q, width], key [..., k, width], value
 * [..., k, v], result [..., q, v] (Vaswani et al., arXiv 1706.03762); mask broadcasts to [..., q,
 * k] and is TC_NONE, numbers, or bool, true where a key is seen; is_causal: query i sees only keys
 * 0 to i; scale 0: 1 / sqrt(width). Where query is [..., heads,
 * rows, width] key and value may have fewer heads, a number that divides it: neighbouring heads of
 * query share one. Of bf16 and f16 scores and softmax are f32, and its values are rounded. A query
 * that sees no key (a row of false, or of -INFINITY) has a row of zeros and no gradient, as in
 * PyTorch since 2.5; tc_softmax of a row of -INFINITY is NaN. */
TC_API tc_tensor tc_scaled_dot_product_attention_at(tc_tensor query, tc_tensor key, tc_tensor value,
                                                    tc_tensor mask, bool is_causal, double scale,
                                                    tc_site here);
#define tc_scaled_dot_product_attention(query, key, value, mask, is_causal, scale)                 \
    tc_scaled_dot_product_attention_at((query), (key), (value), (mask), (is_causal), (scale),      \
                                       TC_HERE)
/* RMS normalization: x / sqrt(mean(x^2) over axes + eps) * weight; weight broadcasts, or is
 * TC_NONE. Zhang and Sennrich, arXiv 1910.07467. */
TC_API tc_tensor tc_rms_norm_at(tc_tensor x, tc_axes axes, tc_tensor weight, double eps,
                                tc_site here);
#define tc_rms_norm(x, axes, weight, eps)                                                          \
    tc_rms_norm_at((x), (axes), (weight), (eps), TC_HERE)
/* Batch normalization of each channel of x [N, C, ...]: (x - mean) / sqrt(var + eps) * weight +
 * bias, with the statistics of the batch in training, else running_mean and running_var. The
 * running statistics are not changed: tc_var_mean computes those of the batch, and tc_assign
 * stores an update. All operands are [C]; weight and bias may be TC_NONE, in training the
 * running statistics too. Ioffe and Szegedy, arXiv 1502.03167. */
TC_API tc_tensor tc_batch_norm_at(tc_tensor x, tc_tensor running_mean, tc_tensor running_var,
                                  tc_tensor weight, tc_tensor bias, bool training, double eps,
                                  tc_site here);
#define tc_batch_norm(x, running_mean, running_var, weight, bias, training, eps)                   \
    tc_batch_norm_at((x), (running_mean), (running_var), (weight), (bias), (training), (eps),      \
                     TC_HERE)
/* Group normalization: statistics of each group of channels of each image, x [N, C, ...]. groups
 * divides C (else TC_ERR_SHAPE). Wu and He, arXiv 1803.08494. */
TC_API tc_tensor tc_group_norm_at(tc_tensor x, int64_t groups, tc_tensor weight, tc_tensor bias,
                                  double eps, tc_site here);
#define tc_group_norm(x, groups, weight, bias, eps)                                                \
    tc_group_norm_at((x), (groups), (weight), (bias), (eps), TC_HERE)
/* Instance normalization: statistics of each channel of each image, x [N, C, ...] with at least
 * one more axis. */
TC_API tc_tensor tc_instance_norm_at(tc_tensor x, tc_tensor weight, tc_tensor bias, double eps,
                                     tc_site here);
#define tc_instance_norm(x, weight, bias, eps)                                                     \
    tc_instance_norm_at((x), (weight), (bias), (eps), TC_HERE)
/* Local response normalization: x / (k + alpha * mean of squares over `size` neighbouring
 * channels)^beta, x [N, C, ...] with at least one more axis, size 1 to 1024 (else
 * TC_ERR_ARGUMENT). */
TC_API tc_tensor tc_local_response_norm_at(tc_tensor x, int64_t size, double alpha, double beta,
                                           double k, tc_site here);
#define tc_local_response_norm(x, size, alpha, beta, k)                                            \
    tc_local_response_norm_at((x), (size), (alpha), (beta), (k), TC_HERE)
/* Reduces the rows of weight [rows, width] that each bag of indices (integers) selects: [bags,
 * width]. mode: "sum", "mean" (also NULL) or "max". A bag is a row of index [bags, length], or the
 * elements of index [n] from one offset to the next (include_last_offset: the last offset ends the
 * last bag). An empty bag gives 0. Row padding_idx is skipped (-1 is the last row, as in PyTorch;
 * TC_END skips none). per_sample_weights needs mode "sum" (else TC_ERR_ARGUMENT). */
TC_API tc_tensor tc_embedding_bag_at(tc_tensor index, tc_tensor weight, tc_tensor offsets,
                                     const char *mode, tc_tensor per_sample_weights,
                                     bool include_last_offset, int64_t padding_idx, tc_site here);
#define tc_embedding_bag(index, weight, offsets, mode, per_sample_weights, include_last_offset,    \
                         padding_idx)                                                              \
    tc_embedding_bag_at((index), (weight), (offsets), (mode), (per_sample_weights),                \
                        (include_last_offset), (padding_idx), TC_HERE)

/* Selective scan of a state space model: h[t] = exp(delta[t] a) h[t - 1] + delta[t] b[t] u[t],
 * h[-1] = 0, y[t] = c[t] h[t] + d u[t]. u and delta [batch, length, width], a [width, states], b
 * and c [batch, length, states], d [width] or TC_NONE. Result: u's shape (Gu and Dao, arXiv
 * 2312.00752). Takes log2(length) steps over all states. */
TC_API tc_tensor tc_ssm_scan_at(tc_tensor u, tc_tensor delta, tc_tensor a, tc_tensor b, tc_tensor c,
                                tc_tensor d, tc_site here);
#define tc_ssm_scan(u, delta, a, b, c, d)                                                          \
    tc_ssm_scan_at((u), (delta), (a), (b), (c), (d), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
