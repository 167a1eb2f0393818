/* api/ops.h - the operations: every call makes a node of the graph and returns its handle at once.
 *
 * Nothing is computed here: shapes and dtypes are checked, a mistake makes a poisoned handle whose
 * tc_error() says what was given, what was expected and where. Operands come first, attributes
 * after; negative axes count from the end. Where a call takes an operand, a C number will do as
 * well; it is weak (it takes the tensors' dtype where its kind allows). Each macro tc_xxx(...) is
 * the function tc_xxx_at(..., tc_site here) with the caller's file and line.
 *
 * Any call can fail with TC_ERR_HANDLE (an operand is dead, null or of another context) and
 * TC_ERR_MEMORY; a poisoned operand is returned as it is. TC_ERR_SHAPE, TC_ERR_DTYPE and
 * TC_ERR_AXIS tell of operands and axes that do not fit what stands at the call, TC_ERR_ARGUMENT of
 * attributes that never do (a step of 0, groups that do not divide the channels, a spec that does
 * not parse), TC_ERR_LIMIT of a result with more elements than memory can address.
 *
 * Unless a comment says otherwise, the result has the shape and dtype of the first operand; dtypes
 * are promoted as in PyTorch (u16, u32 and u64 with other integers as in NumPy), or all as in NumPy
 * (options.promotion); shapes broadcast as in NumPy; axes and sizes that the call does not name are
 * unchanged. */
#ifndef TC_API_OPS_H
#define TC_API_OPS_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reduction of a loss over its elements. */
typedef enum tc_reduction { TC_REDUCE_MEAN, TC_REDUCE_SUM, TC_REDUCE_NONE } tc_reduction;

#include "ops.gen.h"

/* ---- choice and conversion ---- */
/* c ? a : b, element by element; c, of any dtype, counts as true where it is not 0. The three
 * broadcast; the result has the dtype in which a and b meet. */
TC_API tc_tensor tc_where_at(tc_arg c, tc_arg a, tc_arg b, tc_site here);
#define tc_where(c, a, b) TCI_WITH_3(tc_where_at, c, a, b)
/* From any dtype to any: float -> int truncates, saturates, NaN gives 0; int -> int wraps; to bool:
 * not 0; else to nearest even. */
TC_API tc_tensor tc_cast_at(tc_tensor x, tc_dtype dtype, tc_site here);
#define tc_cast(x, dtype) tc_cast_at((x), (dtype), TC_HERE)
/* The same bits as another dtype of the same size (else TC_ERR_DTYPE; bool has none): those of an
 * f32 as i32 or u32, and back. Which NaN a NaN is differs between machines. No gradient. */
TC_API tc_tensor tc_bitcast_at(tc_tensor x, tc_dtype dtype, tc_site here);
#define tc_bitcast(x, dtype) tc_bitcast_at((x), (dtype), TC_HERE)

/* ---- made from nothing ---- */
/* tc_full(ctx, 0.1, TC_F32, 3, 4): value is a number, which an integer dtype holds but for its
 * fraction (else TC_ERR_DTYPE), or a 0-d tensor. */
TC_API tc_tensor tc_full_at(tc_ctx *ctx, tc_arg value, int n, const int64_t *dtype_and_sizes,
                            tc_site here);
#define tc_full(ctx, value, ...)                                                                   \
    tc_full_at((ctx), TC_ARG(value), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Zeros: tc_zeros(ctx, TC_F32, 3, 4). */
TC_API tc_tensor tc_zeros_at(tc_ctx *ctx, int n, const int64_t *dtype_and_sizes, tc_site here);
#define tc_zeros(ctx, ...)                                                                         \
    tc_zeros_at((ctx), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Ones: tc_ones(ctx, TC_F32, 3, 4). */
TC_API tc_tensor tc_ones_at(tc_ctx *ctx, int n, const int64_t *dtype_and_sizes, tc_site here);
#define tc_ones(ctx, ...)                                                                          \
    tc_ones_at((ctx), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* start, start + step, ... before stop, [n], none where stop is not on the way: numbers all three
 * (TC_ERR_ARGUMENT: a tensor, a step of 0), any dtype but bool. Floats are computed in f64 and
 * rounded once; of integers start and step lose their fractions first, as in torch, which change no
 * count: from 0.5 to 2 by 0.5 are 0 0 0. */
TC_API tc_tensor tc_arange_at(tc_ctx *ctx, tc_arg start, tc_arg stop, tc_arg step, tc_dtype dtype,
                              tc_site here);
#define tc_arange(ctx, start, stop, step, dtype)                                                   \
    tc_arange_at((ctx), TC_ARG(start), TC_ARG(stop), TC_ARG(step), (dtype), TC_HERE)

/* `steps` elements, 0 or more, from start to stop (numbers or 0-d tensors), both of them among
 * these, in even steps: [steps] of any dtype but bool. logspace: base to the power of each.
 * Computed in f64 and rounded once. */
TC_API tc_tensor tc_linspace_at(tc_ctx *ctx, tc_arg start, tc_arg stop, int64_t steps,
                                tc_dtype dtype, tc_site here);
#define tc_linspace(ctx, start, stop, steps, dtype)                                                \
    tc_linspace_at((ctx), TC_ARG(start), TC_ARG(stop), (steps), (dtype), TC_HERE)
TC_API tc_tensor tc_logspace_at(tc_ctx *ctx, tc_arg start, tc_arg stop, int64_t steps, double base,
                                tc_dtype dtype, tc_site here);
#define tc_logspace(ctx, start, stop, steps, base, dtype)                                          \
    tc_logspace_at((ctx), TC_ARG(start), TC_ARG(stop), (steps), (base), (dtype), TC_HERE)
/* Rows and columns, [2, n] i64, of the elements of a matrix that tc_tril or tc_triu keeps, row by
 * row. TC_ERR_ARGUMENT: a negative or symbolic number. */
TC_API tc_tensor tc_tril_indices_at(tc_ctx *ctx, int64_t rows, int64_t columns, int64_t offset,
                                    tc_site here);
#define tc_tril_indices(ctx, rows, columns, offset)                                                \
    tc_tril_indices_at((ctx), (rows), (columns), (offset), TC_HERE)
TC_API tc_tensor tc_triu_indices_at(tc_ctx *ctx, int64_t rows, int64_t columns, int64_t offset,
                                    tc_site here);
#define tc_triu_indices(ctx, rows, columns, offset)                                                \
    tc_triu_indices_at((ctx), (rows), (columns), (offset), TC_HERE)

/* ---- random numbers: functions of a key ----
 * The key is a C integer or a 0-d tensor of an integer dtype, taken as u64. An element is a
 * function of the key and of its row-major index alone (Philox4x32-10: Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", 2011), so the same key gives the
 * same bits on every backend, whatever the sizes, fusion, vectors and threads are. Two calls with
 * one key give the same numbers; calls that are to be independent get keys of their own, from
 * tc_fold_in. A key that is an input or a parameter makes a program draw anew in each run without
 * being compiled again. TC_ERR_DTYPE: the key is no integer, or a dtype does not fit; TC_ERR_SHAPE:
 * the key is not 0-d. */
/* A key derived from a key and a number, 0-d u64: equal keys and numbers give the same key,
 * others an independent one. tc_fold_in(tc_fold_in(key, layer), step). At least one of the two
 * is a tensor. */
TC_API tc_tensor tc_fold_in_at(tc_arg key, tc_arg number, tc_site here);
#define tc_fold_in(key, number) tc_fold_in_at(TC_ARG(key), TC_ARG(number), TC_HERE)
/* A source of keys: tc_next_key(&keys) folds in 0, 1, 2, ... in turn. tc_keys keys = {key, 0}; */
typedef struct tc_keys {
    tc_tensor key;
    uint64_t given;
} tc_keys;
#define tc_next_key(keys) tc_fold_in((keys)->key, (keys)->given++)
/* Uniform bits of an integer dtype (not bool): tc_random_bits(ctx, key, TC_U32, 3, 4). */
TC_API tc_tensor tc_random_bits_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                                   tc_site here);
#define tc_random_bits(ctx, key, ...)                                                              \
    tc_random_bits_at((ctx), TC_ARG(key), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__),        \
                      TC_HERE)
/* Uniform in [0, 1), a multiple of 2^-24 (f64: 2^-53, f16: 2^-11, bf16: 2^-8): tc_rand(ctx, key,
 * TC_F32, 3, 4). */
TC_API tc_tensor tc_rand_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                            tc_site here);
#define tc_rand(ctx, key, ...)                                                                     \
    tc_rand_at((ctx), TC_ARG(key), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Normal distribution with mean 0 and variance 1, in a float dtype (Box and Muller, 1958). */
TC_API tc_tensor tc_randn_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                             tc_site here);
#define tc_randn(ctx, key, ...)                                                                    \
    tc_randn_at((ctx), TC_ARG(key), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Uniform integers from low to high - 1, in an integer dtype: tc_randint(ctx, key, 0, 10,
 * TC_I32, 3, 4). Probabilities differ by at most one part in 2^64 / (high - low). low and high
 * are numbers (TC_ERR_ARGUMENT: low is not less than high, or the dtype does not hold them) or
 * 0-d tensors of integers; if these are not in order, the result is low. */
TC_API tc_tensor tc_randint_at(tc_ctx *ctx, tc_arg key, tc_arg low, tc_arg high, int n,
                               const int64_t *dtype_and_sizes, tc_site here);
#define tc_randint(ctx, key, low, high, ...)                                                       \
    tc_randint_at((ctx), TC_ARG(key), TC_ARG(low), TC_ARG(high), TCI_SIZES_N(__VA_ARGS__),         \
                  TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Bernoulli distribution: 1 with probability p, else 0. The result has the shape and float dtype
 * of p. */
TC_API tc_tensor tc_bernoulli_at(tc_tensor p, tc_arg key, tc_site here);
#define tc_bernoulli(p, key) tc_bernoulli_at((p), TC_ARG(key), TC_HERE)
/* Exponential distribution with density rate exp(-rate x) for x >= 0: of the shape and float dtype
 * of rate (> 0). tc_exponential(tc_full(ctx, 1.5, TC_F32, 1000), key) */
TC_API tc_tensor tc_exponential_at(tc_tensor rate, tc_arg key, tc_site here);
#define tc_exponential(rate, key) tc_exponential_at((rate), TC_ARG(key), TC_HERE)
/* Geometric distribution: the number of trials up to the first success, 1, 2, ..., each of which
 * succeeds with probability p in (0, 1]: of the shape and float dtype of p. */
TC_API tc_tensor tc_geometric_at(tc_tensor p, tc_arg key, tc_site here);
#define tc_geometric(p, key) tc_geometric_at((p), TC_ARG(key), TC_HERE)
/* Indices along the last axis of p [..., n], drawn with probabilities proportional to p (floats,
 * 0 or more, not all 0): [..., samples] i64. Without replacement no index is drawn twice.
 * TC_ERR_ARGUMENT: p is 0-d or not a float; samples is negative, or more than n without
 * replacement. */
TC_API tc_tensor tc_multinomial_at(tc_tensor p, int64_t samples, bool replacement, tc_arg key,
                                   tc_site here);
#define tc_multinomial(p, samples, replacement, key)                                               \
    tc_multinomial_at((p), (samples), (replacement), TC_ARG(key), TC_HERE)
/* Gumbel softmax: softmax((logits + noise) / tau) along an axis, with Gumbel noise. It
 * approximates the one-hot code of an index drawn with probabilities softmax(logits), and has a
 * gradient (Jang, Gu and Poole, arXiv 1611.01144). hard: exactly one-hot, with the gradient of
 * the soft result. Integers count as f32. TC_ERR_ARGUMENT: tau is not above 0, or logits are
 * 0-d. */
TC_API tc_tensor tc_gumbel_softmax_at(tc_tensor logits, double tau, bool hard, int axis, tc_arg key,
                                      tc_site here);
#define tc_gumbel_softmax(logits, tau, hard, axis, key)                                            \
    tc_gumbel_softmax_at((logits), (tau), (hard), (axis), TC_ARG(key), TC_HERE)
/* Dropout: each element of x (float) becomes 0 with probability p, and is multiplied by 1 / (1 -
 * p) otherwise. p is a number in [0, 1] (else TC_ERR_ARGUMENT; 0 returns x) or a 0-d float
 * tensor. No mask is stored: the backward pass draws it again. */
TC_API tc_tensor tc_dropout_at(tc_tensor x, tc_arg p, tc_arg key, tc_site here);
#define tc_dropout(x, p, key) tc_dropout_at((x), TC_ARG(p), TC_ARG(key), TC_HERE)

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
 * append (or TC_NONE) are concatenated to x first. Result: the common dtype; for bool, whether
 * neighbours differ. TC_ERR_ARGUMENT: n is negative. */
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
 * k] and is TC_NONE, numbers, or bool, true where a key is seen; is_causal: no key behind its
 * query, counted from the first of both; scale 0: 1 / sqrt(width). Where query is [..., heads,
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

/* ---- losses of rows and classes; the last operand is the reduction, as above ----
 * TC_REDUCE_MEAN and TC_REDUCE_SUM give one number, 0-d, TC_REDUCE_NONE one for each row, [N] or
 * [N, ...], or for each element where there are no rows. Else TC_ERR_ARGUMENT. */
/* Negative log likelihood: -input at the target class. input: log-probabilities [N, C], [N, C,
 * ...] or [C]; target: class indices (integers), without the C axis. Each target counts with the
 * weight [C] of its class (TC_NONE: 1); targets equal to ignore_index do not count. The mean is
 * weighted. A class outside -C..C-1 fails the run with TC_ERR_INDEX. */
TC_API tc_tensor tc_nll_loss_at(tc_tensor input, tc_tensor target, tc_tensor weight,
                                int64_t ignore_index, tc_reduction reduction, tc_site here);
#define tc_nll_loss(input, target, weight, ignore_index, reduction)                                \
    tc_nll_loss_at((input), (target), (weight), (ignore_index), (reduction), TC_HERE)
/* Cross entropy of logits (log_softmax, then tc_nll_loss). target may hold probabilities
 * instead: floats of input's shape; the mean is then over all rows. label_smoothing in [0, 1]
 * (else TC_ERR_ARGUMENT) spreads that part of each target over all classes. */
TC_API tc_tensor tc_cross_entropy_loss_at(tc_tensor input, tc_tensor target, tc_tensor weight,
                                          int64_t ignore_index, tc_reduction reduction,
                                          double label_smoothing, tc_site here);
#define tc_cross_entropy_loss(input, target, weight, ignore_index, reduction, label_smoothing)     \
    tc_cross_entropy_loss_at((input), (target), (weight), (ignore_index), (reduction),             \
                             (label_smoothing), TC_HERE)
/* Connectionist temporal classification loss (Graves et al., 2006): -log of the summed probability
 * of all alignments of targets [batch, labels] (integers) with log_probs [time, batch, classes],
 * where class `blank` separates labels and time is a number. Sequence i has input_lengths[i] steps
 * and target_lengths[i] labels ([batch], integers). TC_REDUCE_MEAN divides each loss by the length
 * of its target first. A target without an alignment gives inf; with zero_infinity it gives 0 and
 * a gradient of 0. */
TC_API tc_tensor tc_ctc_loss_at(tc_tensor log_probs, tc_tensor targets, tc_tensor input_lengths,
                                tc_tensor target_lengths, int64_t blank, tc_reduction reduction,
                                bool zero_infinity, tc_site here);
#define tc_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction,           \
                    zero_infinity)                                                                 \
    tc_ctc_loss_at((log_probs), (targets), (input_lengths), (target_lengths), (blank),             \
                   (reduction), (zero_infinity), TC_HERE)
/* Kullback-Leibler divergence: target * (log(target) - input), or with log_target exp(target) *
 * (target - input). Both broadcast. The mean is over all elements. */
TC_API tc_tensor tc_kl_div_at(tc_tensor input, tc_tensor target, bool log_target,
                              tc_reduction reduction, tc_site here);
#define tc_kl_div(input, target, log_target, reduction)                                            \
    tc_kl_div_at((input), (target), (log_target), (reduction), TC_HERE)
/* Poisson negative log likelihood: exp(input) - target * input, or without log_input input -
 * target * log(input + eps). full adds Stirling's approximation of log(target!) for targets
 * above 1. Both broadcast. */
TC_API tc_tensor tc_poisson_nll_loss_at(tc_tensor input, tc_tensor target, bool log_input,
                                        bool full, double eps, tc_reduction reduction,
                                        tc_site here);
#define tc_poisson_nll_loss(input, target, log_input, full, eps, reduction)                        \
    tc_poisson_nll_loss_at((input), (target), (log_input), (full), (eps), (reduction), TC_HERE)
/* The mean over classes of max(0, margin - input[target] + input)^p, p 1 or 2, times the weight [C]
 * of the target (TC_NONE: 1); input [N, C] and target [N] of integers, or [C] and [] (else, and of
 * another p, TC_ERR_ARGUMENT). */
TC_API tc_tensor tc_multi_margin_loss_at(tc_tensor input, tc_tensor target, int64_t p,
                                         double margin, tc_tensor weight, tc_reduction reduction,
                                         tc_site here);
#define tc_multi_margin_loss(input, target, p, margin, weight, reduction)                          \
    tc_multi_margin_loss_at((input), (target), (p), (margin), (weight), (reduction), TC_HERE)
/* Mean over classes (the last axis) of binary cross entropy with logits, times a weight that
 * broadcasts (TC_NONE: 1). input and target [N, C] or [C]. */
TC_API tc_tensor tc_multilabel_soft_margin_loss_at(tc_tensor input, tc_tensor target,
                                                   tc_tensor weight, tc_reduction reduction,
                                                   tc_site here);
#define tc_multilabel_soft_margin_loss(input, target, weight, reduction)                           \
    tc_multilabel_soft_margin_loss_at((input), (target), (weight), (reduction), TC_HERE)
/* 1 - cosine of the rows for targets of 1, max(0, cosine - margin) for targets of -1. x1 and x2
 * [N, D] or [D]; target [N] or 0-d. */
TC_API tc_tensor tc_cosine_embedding_loss_at(tc_tensor x1, tc_tensor x2, tc_tensor target,
                                             double margin, tc_reduction reduction, tc_site here);
#define tc_cosine_embedding_loss(x1, x2, target, margin, reduction)                                \
    tc_cosine_embedding_loss_at((x1), (x2), (target), (margin), (reduction), TC_HERE)
/* max(0, margin + distance to positive - distance to negative) of rows, the distances those of
 * tc_pairwise_distance; swap: the nearer of anchor and positive to negative counts.
 * TC_ERR_ARGUMENT: a margin that is not above 0, or different ranks. */
TC_API tc_tensor tc_triplet_margin_loss_at(tc_tensor anchor, tc_tensor positive, tc_tensor negative,
                                           double margin, double p, double eps, bool swap,
                                           tc_reduction reduction, tc_site here);
#define tc_triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction)        \
    tc_triplet_margin_loss_at((anchor), (positive), (negative), (margin), (p), (eps), (swap),      \
                              (reduction), TC_HERE)

/* ---- movement: no element changes its value, and nothing is copied ---- */
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
 * negative counts crop. TC_ERR_SHAPE: more is cropped than there is. */
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
/* tc_cat(TC_TENSORS(a, b), 0): joined along an axis, in the dtype in which all meet; one tensor or
 * more, none 0-d, the other sizes equal (else TC_ERR_SHAPE). */
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
/* tc_tile(x, 2, 3): all of x so many times along each axis; axes of size 1 come in front where one
 * of the two lists is shorter. */
TC_API tc_tensor tc_tile_at(tc_tensor x, int n, const int64_t *repeats, tc_site here);
#define tc_tile(x, ...)                                                                            \
    tc_tile_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)

/* The positions [n, ...] i64 in an array of the given n sizes of the elements that `index` (any
 * integer dtype, row-major, negative from the end) counts; an index outside is not detected.
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

/* ---- writing at indices, which are checked in the same way. Where several elements of src go to
 * one element of x, they do so in the order that they have along the axis: the same bits from any
 * machine and any number of threads. Sums of f16 and bf16 are made in f32 and rounded once. ---- */
/* x[i, index[i, j, ...], ...] += src[i, j, ...] for axis 1. x and src have one dtype. index is
 * no larger than src on any axis (the rest of src is not used), nor than x off the axis. */
TC_API tc_tensor tc_scatter_add_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                   tc_site here);
#define tc_scatter_add(x, axis, index, src)                                                        \
    tc_scatter_add_at((x), (axis), (index), (src), TC_HERE)
/* Writes elements of src into x; of several for one place the last one wins. Shapes and dtypes
 * of this and the next three calls are those of tc_scatter_add. */
TC_API tc_tensor tc_scatter_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src, tc_site here);
#define tc_scatter(x, axis, index, src) tc_scatter_at((x), (axis), (index), (src), TC_HERE)
/* Minimum of x's element and those of src for its place; NaN if one is NaN. */
TC_API tc_tensor tc_scatter_min_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                   tc_site here);
#define tc_scatter_min(x, axis, index, src)                                                        \
    tc_scatter_min_at((x), (axis), (index), (src), TC_HERE)
/* Maximum of x's element and those of src for its place; NaN if one is NaN. */
TC_API tc_tensor tc_scatter_max_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,
                                   tc_site here);
#define tc_scatter_max(x, axis, index, src)                                                        \
    tc_scatter_max_at((x), (axis), (index), (src), TC_HERE)
/* Product of x's element and those of src for its place. */
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

/* ---- contractions: in the dtype in which the operands meet; products accumulate in f32 for f16,
 * bf16 and f32, in f64 for f64; integers wrap; not of bool ---- */
/* [..., i, k] times [..., k, j] is [..., i, j], as NumPy: 1-d operands count as a row and a column
 * and lose that axis; leading axes broadcast. TC_ERR_SHAPE: the k differ, or one is 0-d. */
TC_API tc_tensor tc_matmul_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_matmul(a, b) tc_matmul_at((a), (b), TC_HERE)
/* [n, i, k] times [n, k, j]: [n, i, j]; no other ranks. */
TC_API tc_tensor tc_bmm_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_bmm(a, b) tc_bmm_at((a), (b), TC_HERE)
/* tc_einsum("bij,bjk->bik", TC_TENSORS(a, b)): one letter an axis, a repeated letter is a diagonal,
 * letters that the result lacks are summed, "..." stands for leading axes; without "->" the result
 * has the letters that stand once, in alphabetical order. The dtype is that of the operands, also
 * for sums of one operand (tc_sum widens integers). Any number of operands, taken from left
 * to right. TC_ERR_ARGUMENT: the spec does not parse, or is NULL; TC_ERR_SHAPE: a letter has two
 * sizes. */
TC_API tc_tensor tc_einsum_at(const char *spec, tc_tensors xs, tc_site here);
#define tc_einsum(spec, xs) tc_einsum_at((spec), (xs), TC_HERE)

/* Linear layer: x [..., in] times the transpose of weight [out, in], plus bias [out] or TC_NONE:
 * [..., out]. */
TC_API tc_tensor tc_linear_at(tc_tensor x, tc_tensor weight, tc_tensor bias, tc_site here);
#define tc_linear(x, weight, bias) tc_linear_at((x), (weight), (bias), TC_HERE)
/* Rows of weight [n, width] named by an index (integers, any shape): [..., width]. */
TC_API tc_tensor tc_embedding_at(tc_tensor index, tc_tensor weight, tc_site here);
#define tc_embedding(index, weight) tc_embedding_at((index), (weight), TC_HERE)
/* One-hot code: a new last axis of `classes` (0 or more), 1 at the index (integers), else 0.
 * Result: i64. */
TC_API tc_tensor tc_one_hot_at(tc_tensor index, int64_t classes, tc_site here);
#define tc_one_hot(index, classes) tc_one_hot_at((index), (classes), TC_HERE)

/* Vectors: outer product a[i] b[j], [n, m]; inner product, 0-d (TC_ERR_SHAPE: different sizes). */
TC_API tc_tensor tc_outer_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_outer(a, b) tc_outer_at((a), (b), TC_HERE)
TC_API tc_tensor tc_dot_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_dot(a, b) tc_dot_at((a), (b), TC_HERE)
/* Sums of products along pairs of axes, one of a and one of b each: tc_tensordot(a, b,
 * TC_AXES(-1), TC_AXES(0)). The result has the other axes of a, then those of b. TC_ERR_AXIS: the
 * lists have not as many axes, or one twice; TC_ERR_LIMIT: more than 52 axes. */
TC_API tc_tensor tc_tensordot_at(tc_tensor a, tc_tensor b, tc_axes axes_a, tc_axes axes_b,
                                 tc_site here);
#define tc_tensordot(a, b, axes_a, axes_b)                                                         \
    tc_tensordot_at((a), (b), (axes_a), (axes_b), TC_HERE)

/* ---- layers that read a sequence x [steps, batch, inputs], batch_first: [batch, steps, inputs],
 * or [steps, inputs]. weights: of each layer, and if bidirectional of each way, weight_ih [gates *
 * width, inputs], weight_hh [gates * width, width] and, if any, bias_ih and bias_hh [gates *
 * width]; the next layer reads what this one gives, of both ways joined. States before the first
 * step are [layers * ways, batch, width], or TC_NONE: zeros. *output [steps, batch, ways * width]:
 * the last layer's state after each step; the other results are the last states of all layers.
 * NULL: not wanted, and on a mistake all are handles that say it. In x's dtype; the steps are one
 * tc_scan, so that steps and batch may be symbolic ---- */
/* Gates: input, forget, cell, output (Hochreiter and Schmidhuber, 1997, with Gers' forget gate). */
TC_API void tc_lstm_at(tc_tensor x, tc_tensor h0, tc_tensor c0, tc_tensors weights,
                       bool bidirectional, bool batch_first, tc_tensor *output, tc_tensor *h,
                       tc_tensor *c, tc_site here);
#define tc_lstm(x, h0, c0, weights, bidirectional, batch_first, output, h, c)                      \
    tc_lstm_at((x), (h0), (c0), (weights), (bidirectional), (batch_first), (output), (h), (c),     \
               TC_HERE)
/* Gates: reset, update, new (Cho et al., arXiv 1406.1078, as cuDNN has it). */
TC_API void tc_gru_at(tc_tensor x, tc_tensor h0, tc_tensors weights, bool bidirectional,
                      bool batch_first, tc_tensor *output, tc_tensor *h, tc_site here);
#define tc_gru(x, h0, weights, bidirectional, batch_first, output, h)                              \
    tc_gru_at((x), (h0), (weights), (bidirectional), (batch_first), (output), (h), TC_HERE)

/* ---- quantized integers: q of TC_I8 or TC_U8 (else TC_ERR_DTYPE) represents (q - zero_point) *
 * scale; both are numbers or 0-d tensors, or 1-d along `axis` of x ---- */
/* round(x / scale) + zero_point, ties to even, saturated to the range of the dtype; NaN gives
 * 0. */
TC_API tc_tensor tc_quantize_at(tc_tensor x, tc_arg scale, tc_arg zero_point, int axis,
                                tc_dtype dtype, tc_site here);
#define tc_quantize(x, scale, zero_point, axis, dtype)                                             \
    tc_quantize_at((x), TC_ARG(scale), TC_ARG(zero_point), (axis), (dtype), TC_HERE)
/* f32 (f64 where the scale is a tensor of it); differentiable by the scale. */
TC_API tc_tensor tc_dequantize_at(tc_tensor q, tc_arg scale, tc_arg zero_point, int axis,
                                  tc_site here);
#define tc_dequantize(q, scale, zero_point, axis)                                                  \
    tc_dequantize_at((q), TC_ARG(scale), TC_ARG(zero_point), (axis), TC_HERE)
/* Matrix product of quantized a [..., m, k] and b [..., k, n] in f32: an i32 sum, exact for k of at
 * most 33,000, then scaled. Scale and zero point of a have one element or one for each row, [m];
 * those of b one, or one for each column, [n]. */
TC_API tc_tensor tc_qmatmul_at(tc_tensor a, tc_arg scale_a, tc_arg zero_a, tc_tensor b,
                               tc_arg scale_b, tc_arg zero_b, tc_site here);
#define tc_qmatmul(a, scale_a, zero_a, b, scale_b, zero_b)                                         \
    tc_qmatmul_at((a), TC_ARG(scale_a), TC_ARG(zero_a), (b), TC_ARG(scale_b), TC_ARG(zero_b),      \
                  TC_HERE)

/* ---- sparse matrices: lists [elements], times dense [k, n] ----
 * The result is [rows, n] in the dtype in which values and dense meet. Indices are integers, and
 * one outside of its axis is TC_ERR_INDEX in the run; elements of one place add up, the gradients
 * are those of values and dense. TC_ERR_SHAPE: a list is not 1-d or they differ in length, or dense
 * is no matrix. */
/* values[e] stand at (rows[e], columns[e]) of [n_rows, k]. */
TC_API tc_tensor tc_coo_matmul_at(tc_tensor rows, tc_tensor columns, tc_tensor values,
                                  int64_t n_rows, tc_tensor dense, tc_site here);
#define tc_coo_matmul(rows, columns, values, n_rows, dense)                                        \
    tc_coo_matmul_at((rows), (columns), (values), (n_rows), (dense), TC_HERE)
/* Compressed sparse rows: row i has the elements starts[i] to starts[i + 1] - 1. starts is
 * [rows + 1] and begins with 0. */
TC_API tc_tensor tc_csr_matmul_at(tc_tensor starts, tc_tensor columns, tc_tensor values,
                                  tc_tensor dense, tc_site here);
#define tc_csr_matmul(starts, columns, values, dense)                                              \
    tc_csr_matmul_at((starts), (columns), (values), (dense), TC_HERE)

/* ---- square matrices [..., n, n] of floats ----
 * n is a number of at most 4096 (else TC_ERR_LIMIT); leading axes broadcast. A program does not
 * grow with n: steps of columns are repeated, from 65 on in blocks whose triangles are solved by
 * their inverses. A singular matrix gives inf or NaN. */
/* Solution x of a x = b by LU with partial pivoting. b: [..., n, k] or [..., n], of a's dtype
 * (else TC_ERR_DTYPE). */
TC_API tc_tensor tc_solve_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_solve(a, b) tc_solve_at((a), (b), TC_HERE)
/* Solution x of a x = b for a triangular matrix a, or of x a = b with b [..., k, n] if not left. b
 * is a matrix. Only the upper or lower triangle of a is read; unitriangular takes its diagonal
 * as 1. */
TC_API tc_tensor tc_solve_triangular_at(tc_tensor a, tc_tensor b, bool upper, bool left,
                                        bool unitriangular, tc_site here);
#define tc_solve_triangular(a, b, upper, left, unitriangular)                                      \
    tc_solve_triangular_at((a), (b), (upper), (left), (unitriangular), TC_HERE)
/* Cholesky factor of a symmetric positive definite x: lower l with l l^T = x, or upper u with
 * u^T u = x. */
TC_API tc_tensor tc_cholesky_at(tc_tensor x, bool upper, tc_site here);
#define tc_cholesky(x, upper) tc_cholesky_at((x), (upper), TC_HERE)
/* The inverse, [..., n, n]. */
TC_API tc_tensor tc_inv_at(tc_tensor x, tc_site here);
#define tc_inv(x) tc_inv_at((x), TC_HERE)
/* Determinant [...]; its sign, and the logarithm of its absolute value (NULL: not wanted). */
TC_API tc_tensor tc_det_at(tc_tensor x, tc_site here);
#define tc_det(x) tc_det_at((x), TC_HERE)
TC_API void tc_slogdet_at(tc_tensor x, tc_tensor *sign, tc_tensor *logabsdet, tc_site here);
#define tc_slogdet(x, sign, logabsdet) tc_slogdet_at((x), (sign), (logabsdet), TC_HERE)
/* x to the power n: n factors, the inverse's if n is negative, the identity if n is 0. */
TC_API tc_tensor tc_matrix_power_at(tc_tensor x, int64_t n, tc_site here);
#define tc_matrix_power(x, n) tc_matrix_power_at((x), (n), TC_HERE)

/* LU decomposition with partial pivoting: x = p l u, with p a permutation matrix, l lower
 * triangular with ones on the diagonal, u upper triangular, each [..., n, n]. NULL: not wanted. */
TC_API void tc_lu_at(tc_tensor x, tc_tensor *p, tc_tensor *l, tc_tensor *u, tc_site here);
#define tc_lu(x, p, l, u) tc_lu_at((x), (p), (l), (u), TC_HERE)
/* log(det(x)), [...]: -inf where the determinant is 0, NaN where it is negative. */
TC_API tc_tensor tc_logdet_at(tc_tensor x, tc_site here);
#define tc_logdet(x) tc_logdet_at((x), TC_HERE)
/* The matrix exponential, by scaling and squaring with a Pade approximant (Higham 2005); accurate
 * for 1-norms up to 1e10. */
TC_API tc_tensor tc_matrix_exp_at(tc_tensor x, tc_site here);
#define tc_matrix_exp(x) tc_matrix_exp_at((x), TC_HERE)
/* The given matrices (1-d: one row, 0-d: one element) along the diagonal of one matrix, 0
 * elsewhere: tc_block_diag(TC_TENSORS(a, b)). TC_ERR_SHAPE: more than two axes. */
TC_API tc_tensor tc_block_diag_at(tc_tensors xs, tc_site here);
#define tc_block_diag(xs) tc_block_diag_at((xs), TC_HERE)

/* ---- factors of matrices [..., m, n] of floats, k the lesser of m and n, a number from 1 to 256,
 * of tc_qr to 4096 (else TC_ERR_LIMIT); NULL: not wanted, and on a mistake all are handles that say
 * it ---- */
/* QR decomposition x = q r: q [..., m, k] with orthonormal columns, r [..., k, n] upper
 * triangular. */
TC_API void tc_qr_at(tc_tensor x, tc_tensor *q, tc_tensor *r, tc_site here);
#define tc_qr(x, q, r) tc_qr_at((x), (q), (r), TC_HERE)
/* Eigenvalues (ascending, [..., n]) and eigenvectors (columns, [..., n, n]) of (x + x^T) / 2.
 * Vectors of equal eigenvalues are any orthonormal ones; they have no gradient. */
TC_API void tc_eigh_at(tc_tensor x, tc_tensor *values, tc_tensor *vectors, tc_site here);
#define tc_eigh(x, values, vectors) tc_eigh_at((x), (values), (vectors), TC_HERE)
/* Singular value decomposition x = u diag(s) vh: u [..., m, k], s [..., k] descending, vh [...,
 * k, n]. One-sided Jacobi rotations (Hestenes, 1958): of f64 matrices; of shorter dtypes of x^T x
 * in f64, whose values are as exact as f32 is. */
TC_API void tc_svd_at(tc_tensor x, tc_tensor *u, tc_tensor *s, tc_tensor *vh, tc_site here);
#define tc_svd(x, u, s, vh) tc_svd_at((x), (u), (s), (vh), TC_HERE)
/* Moore-Penrose pseudo-inverse [..., n, m]: singular values of at most rcond times the largest
 * count as 0 (negative: the dtype's epsilon times the larger of m and n). The first two derivatives
 * are those of matrices of the same rank. */
TC_API tc_tensor tc_pinv_at(tc_tensor x, double rcond, tc_site here);
#define tc_pinv(x, rcond) tc_pinv_at((x), (rcond), TC_HERE)
/* Least squares: the x [..., n, k] of smallest norm among those that minimize |a x - b|, with a
 * [..., m, n] and b [..., m, k], or [..., m] for x [..., n]; one dtype. rcond and gradient as
 * tc_pinv.
 *     tc_tensor line = tc_lstsq(tc_stack(TC_TENSORS(t, tc_ones(ctx, TC_F32, 100)), 1), y, -1); */
TC_API tc_tensor tc_lstsq_at(tc_tensor a, tc_tensor b, double rcond, tc_site here);
#define tc_lstsq(a, b, rcond) tc_lstsq_at((a), (b), (rcond), TC_HERE)

/* ---- Fourier transforms along an axis of a known size ----
 * 1 to 2^30 points (else TC_ERR_ARGUMENT), as n log n (Cooley and Tukey; large primes by
 * Bluestein). A complex number is a pair of real and imaginary part, so that complex x is [..., 2];
 * `axis` does not count that last axis. n points, or 0 for the size of the axis: it is cut, or
 * zeros follow. norm says where the sums are divided: "backward" (NULL) by n in the inverse,
 * "forward" by n in the other, "ortho" by its root in both. Integers count as f32. */
/* result[k] = sum of x[j] exp(-2 pi i j k / n), [..., n, 2], and back. */
TC_API tc_tensor tc_fft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_fft(x, n, axis, norm) tc_fft_at((x), (n), (axis), (norm), TC_HERE)
TC_API tc_tensor tc_ifft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_ifft(x, n, axis, norm) tc_ifft_at((x), (n), (axis), (norm), TC_HERE)
/* Real transforms: x without pairs to bins 0 to n / 2, [..., n / 2 + 1, 2] (the others mirror
 * these), and back to n real numbers (0: 2 * (size - 1)). */
TC_API tc_tensor tc_rfft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_rfft(x, n, axis, norm) tc_rfft_at((x), (n), (axis), (norm), TC_HERE)
TC_API tc_tensor tc_irfft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_irfft(x, n, axis, norm) tc_irfft_at((x), (n), (axis), (norm), TC_HERE)
/* Short-time Fourier transform: n_fft, 1 or more, is required; other zero fields mean defaults. */
typedef struct tc_stft_options {
    int64_t n_fft;        /* elements of a frame, and points of its transform */
    int64_t hop_length;   /* elements from one frame to the next; 0: n_fft / 4 */
    int64_t win_length;   /* elements of the window, in the middle of a frame; 0: n_fft */
    bool uncentered;      /* frame t begins at t hop_length; else it is centred there */
    const char *pad_mode; /* at both ends if centred, as of tc_pad_mode; NULL: "reflect" */
    bool normalized;      /* the transform is multiplied by n_fft^-1/2 */
    bool two_sided;       /* n_fft bins; else n_fft / 2 + 1, as of tc_rfft */
    int64_t length;       /* tc_istft: elements of the result; 0: what the frames span */
} tc_stft_options;
/* x [..., n] of real numbers to [..., bins, frames, 2] pairs, as torch.stft: each frame times the
 * window [win_length] (TC_NONE: ones), transformed. The size n may be symbolic. TC_ERR_ARGUMENT: a
 * size that is not a number from 1 on, a window longer than a frame; TC_ERR_SHAPE: a window of
 * another size.
 *     tc_tensor s = tc_stft(x, window, &(tc_stft_options){.n_fft = 512}); */
TC_API tc_tensor tc_stft_at(tc_tensor x, tc_tensor window, const tc_stft_options *options,
                            tc_site here);
#define tc_stft(x, window, ...) tc_stft_at((x), (window), (__VA_ARGS__), TC_HERE)
/* The inverse, [..., bins, frames, 2] to [..., n], by overlap-add divided by the sum of the squared
 * windows: with the same window and options it gives x back. NaN or inf where no window covers an
 * element. */
TC_API tc_tensor tc_istft_at(tc_tensor x, tc_tensor window, const tc_stft_options *options,
                             tc_site here);
#define tc_istft(x, window, ...) tc_istft_at((x), (window), (__VA_ARGS__), TC_HERE)

/* ---- complex numbers, which are such pairs (TC_ERR_SHAPE: the last axis is not 2); shapes before
 * the last axis broadcast. A gradient is that of a function of both parts ---- */
/* Of real and imaginary parts; of size and angle, in radians; and the parts, the size and the
 * angle, in [-pi, pi], of each number, without the last axis. */
TC_API tc_tensor tc_complex_at(tc_tensor real, tc_tensor imag, tc_site here);
#define tc_complex(real, imag) tc_complex_at((real), (imag), TC_HERE)
TC_API tc_tensor tc_polar_at(tc_tensor abs, tc_tensor angle, tc_site here);
#define tc_polar(abs, angle) tc_polar_at((abs), (angle), TC_HERE)
TC_API tc_tensor tc_real_at(tc_tensor x, tc_site here);
#define tc_real(x) tc_real_at((x), TC_HERE)
TC_API tc_tensor tc_imag_at(tc_tensor x, tc_site here);
#define tc_imag(x) tc_imag_at((x), TC_HERE)
TC_API tc_tensor tc_complex_abs_at(tc_tensor x, tc_site here);
#define tc_complex_abs(x) tc_complex_abs_at((x), TC_HERE)
TC_API tc_tensor tc_angle_at(tc_tensor x, tc_site here);
#define tc_angle(x) tc_angle_at((x), TC_HERE)
/* The imaginary part negated. */
TC_API tc_tensor tc_conj_at(tc_tensor x, tc_site here);
#define tc_conj(x) tc_conj_at((x), TC_HERE)
/* Product and quotient, e to the x, and its principal logarithm; the matrix product of pairs
 * [..., i, k, 2] and [..., k, j, 2]. tc_add and tc_sub are those of the pairs. */
TC_API tc_tensor tc_complex_mul_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_complex_mul(a, b) tc_complex_mul_at((a), (b), TC_HERE)
TC_API tc_tensor tc_complex_div_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_complex_div(a, b) tc_complex_div_at((a), (b), TC_HERE)
TC_API tc_tensor tc_complex_exp_at(tc_tensor x, tc_site here);
#define tc_complex_exp(x) tc_complex_exp_at((x), TC_HERE)
TC_API tc_tensor tc_complex_log_at(tc_tensor x, tc_site here);
#define tc_complex_log(x) tc_complex_log_at((x), TC_HERE)
TC_API tc_tensor tc_complex_matmul_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_complex_matmul(a, b) tc_complex_matmul_at((a), (b), TC_HERE)

/* ---- images: x is [N, C, ...], with as many axes more as the name says, or without N ----
 * Options are numbers for these axes in their order, those behind are not read; TC_ERR_ARGUMENT: a
 * negative one. Along each axis of n elements with padding on both sides a window of k, dilated by
 * d, stands (n + 2 padding - d (k - 1) - 1) / stride + 1 times; TC_ERR_SHAPE: nowhere. */
/* Zero fields mean 1 (paddings: 0). */
typedef struct tc_conv {
    int64_t stride[3], padding[3], dilation[3]; /* padding on both sides */
    int64_t groups;
    int64_t output_padding[3]; /* of transposed ones: more elements at the far side */
    int64_t end_padding[3];    /* padding at the end of an axis in addition to `padding` */
    bool same;                 /* padding that keeps the sizes, the odd element at the end: with a
                                * stride of 1 and no other padding, not of transposed ones */
} tc_conv;
/* weight [O, C / groups, kernel], bias [O] or TC_NONE, of x's dtype (any but bool), to [N, O, ...];
 * options NULL: defaults. TC_ERR_ARGUMENT: groups do not divide C and O.
 * tc_conv2d(x, w, b, &(tc_conv){.stride = {2, 2}, .padding = {1, 1}}) */
TC_API tc_tensor tc_conv1d_at(tc_tensor x, tc_tensor weight, tc_tensor bias, const tc_conv *options,
                              tc_site here);
#define tc_conv1d(x, weight, bias, ...) tc_conv1d_at((x), (weight), (bias), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_conv2d_at(tc_tensor x, tc_tensor weight, tc_tensor bias, const tc_conv *options,
                              tc_site here);
#define tc_conv2d(x, weight, bias, ...) tc_conv2d_at((x), (weight), (bias), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_conv3d_at(tc_tensor x, tc_tensor weight, tc_tensor bias, const tc_conv *options,
                              tc_site here);
#define tc_conv3d(x, weight, bias, ...) tc_conv3d_at((x), (weight), (bias), (__VA_ARGS__), TC_HERE)
/* The transpose of a convolution: weight [C, O / groups, kernel]; along each axis of n
 * (n - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1 elements.
 * TC_ERR_ARGUMENT: output_padding is neither less than the stride nor than the dilation. */
TC_API tc_tensor tc_conv_transpose1d_at(tc_tensor x, tc_tensor weight, tc_tensor bias,
                                        const tc_conv *options, tc_site here);
#define tc_conv_transpose1d(x, weight, bias, ...)                                                  \
    tc_conv_transpose1d_at((x), (weight), (bias), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_conv_transpose2d_at(tc_tensor x, tc_tensor weight, tc_tensor bias,
                                        const tc_conv *options, tc_site here);
#define tc_conv_transpose2d(x, weight, bias, ...)                                                  \
    tc_conv_transpose2d_at((x), (weight), (bias), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_conv_transpose3d_at(tc_tensor x, tc_tensor weight, tc_tensor bias,
                                        const tc_conv *options, tc_site here);
#define tc_conv_transpose3d(x, weight, bias, ...)                                                  \
    tc_conv_transpose3d_at((x), (weight), (bias), (__VA_ARGS__), TC_HERE)
/* stride 0: the kernel's size; dilation 0: 1. */
typedef struct tc_pool {
    int64_t kernel[3], stride[3], padding[3], dilation[3];
    bool ceil_mode;   /* a last window may hang over the edge */
    bool exclude_pad; /* averages: padding does not count */
    int64_t divisor;  /* averages: what sums are divided by; 0: how many elements count */
} tc_pool;
/* Maximum of each window, of any dtype. Padding never wins and is at most half of the kernel,
 * which is given for each axis (else TC_ERR_ARGUMENT). */
TC_API tc_tensor tc_max_pool1d_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_max_pool1d(x, ...) tc_max_pool1d_at((x), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_max_pool2d_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_max_pool2d(x, ...) tc_max_pool2d_at((x), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_max_pool3d_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_max_pool3d(x, ...) tc_max_pool3d_at((x), (__VA_ARGS__), TC_HERE)
/* Max pooling with the index of each value in its image, counted over all image axes (i64; the
 * first of equal ones). NULL: not wanted. */
TC_API void tc_max_pool1d_with_indices_at(tc_tensor x, const tc_pool *options, tc_tensor *values,
                                          tc_tensor *indices, tc_site here);
#define tc_max_pool1d_with_indices(x, options, values, indices)                                    \
    tc_max_pool1d_with_indices_at((x), (options), (values), (indices), TC_HERE)
TC_API void tc_max_pool2d_with_indices_at(tc_tensor x, const tc_pool *options, tc_tensor *values,
                                          tc_tensor *indices, tc_site here);
#define tc_max_pool2d_with_indices(x, options, values, indices)                                    \
    tc_max_pool2d_with_indices_at((x), (options), (values), (indices), TC_HERE)
TC_API void tc_max_pool3d_with_indices_at(tc_tensor x, const tc_pool *options, tc_tensor *values,
                                          tc_tensor *indices, tc_site here);
#define tc_max_pool3d_with_indices(x, options, values, indices)                                    \
    tc_max_pool3d_with_indices_at((x), (options), (values), (indices), TC_HERE)
/* Mean of each window; integers without the fraction, not bool. TC_ERR_ARGUMENT: dilation. */
TC_API tc_tensor tc_avg_pool1d_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_avg_pool1d(x, ...) tc_avg_pool1d_at((x), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_avg_pool2d_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_avg_pool2d(x, ...) tc_avg_pool2d_at((x), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_avg_pool3d_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_avg_pool3d(x, ...) tc_avg_pool3d_at((x), (__VA_ARGS__), TC_HERE)
/* p-th root of the sum of |x|^p over each window. Floats; p is not 0 (TC_ERR_ARGUMENT). */
TC_API tc_tensor tc_lp_pool1d_at(tc_tensor x, double p, const tc_pool *options, tc_site here);
#define tc_lp_pool1d(x, p, ...) tc_lp_pool1d_at((x), (p), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_lp_pool2d_at(tc_tensor x, double p, const tc_pool *options, tc_site here);
#define tc_lp_pool2d(x, p, ...) tc_lp_pool2d_at((x), (p), (__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_lp_pool3d_at(tc_tensor x, double p, const tc_pool *options, tc_site here);
#define tc_lp_pool3d(x, p, ...) tc_lp_pool3d_at((x), (p), (__VA_ARGS__), TC_HERE)
/* Means over as many windows along each axis as the sizes say: tc_adaptive_avg_pool2d(x, 7, 7).
 * Window o of m along n elements is floor(o n / m) .. ceil((o + 1) n / m). One size stands for
 * all axes, -1 keeps x's. Floats (maximum: any dtype). */
TC_API tc_tensor tc_adaptive_avg_pool1d_at(tc_tensor x, int n, const int64_t *sizes, tc_site here);
#define tc_adaptive_avg_pool1d(x, ...)                                                             \
    tc_adaptive_avg_pool1d_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_adaptive_avg_pool2d_at(tc_tensor x, int n, const int64_t *sizes, tc_site here);
#define tc_adaptive_avg_pool2d(x, ...)                                                             \
    tc_adaptive_avg_pool2d_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_adaptive_avg_pool3d_at(tc_tensor x, int n, const int64_t *sizes, tc_site here);
#define tc_adaptive_avg_pool3d(x, ...)                                                             \
    tc_adaptive_avg_pool3d_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Maximum of each such window, with indices as of tc_max_pool2d_with_indices. */
TC_API tc_tensor tc_adaptive_max_pool1d_at(tc_tensor x, int n, const int64_t *sizes, tc_site here);
#define tc_adaptive_max_pool1d(x, ...)                                                             \
    tc_adaptive_max_pool1d_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_adaptive_max_pool2d_at(tc_tensor x, int n, const int64_t *sizes, tc_site here);
#define tc_adaptive_max_pool2d(x, ...)                                                             \
    tc_adaptive_max_pool2d_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API tc_tensor tc_adaptive_max_pool3d_at(tc_tensor x, int n, const int64_t *sizes, tc_site here);
#define tc_adaptive_max_pool3d(x, ...)                                                             \
    tc_adaptive_max_pool3d_at((x), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API void tc_adaptive_max_pool1d_with_indices_at(tc_tensor x, tc_tensor *values,
                                                   tc_tensor *indices, int n, const int64_t *sizes,
                                                   tc_site here);
#define tc_adaptive_max_pool1d_with_indices(x, values, indices, ...)                               \
    tc_adaptive_max_pool1d_with_indices_at((x), (values), (indices), TCI_SIZES_N(__VA_ARGS__),     \
                                           TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API void tc_adaptive_max_pool2d_with_indices_at(tc_tensor x, tc_tensor *values,
                                                   tc_tensor *indices, int n, const int64_t *sizes,
                                                   tc_site here);
#define tc_adaptive_max_pool2d_with_indices(x, values, indices, ...)                               \
    tc_adaptive_max_pool2d_with_indices_at((x), (values), (indices), TCI_SIZES_N(__VA_ARGS__),     \
                                           TCI_SIZES(__VA_ARGS__), TC_HERE)
TC_API void tc_adaptive_max_pool3d_with_indices_at(tc_tensor x, tc_tensor *values,
                                                   tc_tensor *indices, int n, const int64_t *sizes,
                                                   tc_site here);
#define tc_adaptive_max_pool3d_with_indices(x, values, indices, ...)                               \
    tc_adaptive_max_pool3d_with_indices_at((x), (values), (indices), TCI_SIZES_N(__VA_ARGS__),     \
                                           TCI_SIZES(__VA_ARGS__), TC_HERE)
/* Windows of images [N, C, H, W] or [C, H, W] as columns: [N, C * kernel elements, windows], or
 * without N. stride 0: 1. */
TC_API tc_tensor tc_im2col_at(tc_tensor x, const tc_pool *options, tc_site here);
#define tc_im2col(x, ...) tc_im2col_at((x), (__VA_ARGS__), TC_HERE)
/* Transpose of tc_im2col: an image of two sizes in which overlapping windows are summed.
 * tc_col2im(x, 2, (int64_t[]){8, 8}, &(tc_pool){.kernel = {3, 3}}) */
TC_API tc_tensor tc_col2im_at(tc_tensor x, int n, const int64_t *sizes, const tc_pool *options,
                              tc_site here);
#define tc_col2im(x, n, sizes, ...) tc_col2im_at((x), (n), (sizes), (__VA_ARGS__), TC_HERE)
/* Each axis of the image has a size or a factor (TC_ERR_ARGUMENT: both or none), from which
 * floor(n * factor) follows. Coordinates follow from the factor, even where the size is that of x:
 * linear, 3 elements by 1.3 are read at -0.115 (as 0), 0.654 and 1.423. PyTorch 2.15 copies such an
 * axis; recompute_scale_factor does that here. mode NULL: "nearest". */
typedef struct tc_interpolation {
    const char *mode; /* "nearest", "nearest-exact", "area"; of one axis "linear", of two "bilinear"
                       * and "bicubic", of three "trilinear" */
    int64_t size[3];
    double scale_factor[3];
    bool align_corners;          /* the ends are the centres of the first and last elements */
    bool recompute_scale_factor; /* coordinates follow from the sizes, not from the factors */
} tc_interpolation;
/* x [N, C, ...] with one to three more axes, in other sizes, at least 1; integers are rounded
 * between their elements. tc_interpolate(x, &(tc_interpolation){.mode = "bilinear", .size = {64,
 * 64}}) */
TC_API tc_tensor tc_interpolate_at(tc_tensor x, const tc_interpolation *options, tc_site here);
#define tc_interpolate(x, ...) tc_interpolate_at((x), (__VA_ARGS__), TC_HERE)
/* x [N, C, H, W] at the points of grid [N, h, w, 2], whose columns, -1 .. 1, go through the last
 * axis and the one before; or x [N, C, D, H, W], grid [N, d, h, w, 3]. mode "bilinear" (NULL),
 * "nearest" or, of two axes, "bicubic"; padding_mode, for points outside, "zeros" (NULL), "border"
 * or "reflection". Both of one float dtype and one N; [N, C, h, w], or [N, C, d, h, w]. */
TC_API tc_tensor tc_grid_sample_at(tc_tensor x, tc_tensor grid, const char *mode,
                                   const char *padding_mode, bool align_corners, tc_site here);
#define tc_grid_sample(x, grid, mode, padding_mode, align_corners)                                 \
    tc_grid_sample_at((x), (grid), (mode), (padding_mode), (align_corners), TC_HERE)

/* ---- state and training: forward, backward and update are one graph and one program ---- */
/* tc_param(ctx, data, TC_F32, 784, 512): a leaf with memory of its own, copied from data (NULL:
 * zeros), that programs may change. tc_read tells its present value. */
TC_API tc_tensor tc_param_at(tc_ctx *ctx, const void *data, int n, const int64_t *dtype_and_sizes,
                             tc_site here);
/* tc_param of memory whose type is known, as tc_copy_in_as_at. */
TC_API tc_tensor tc_param_as_at(tc_ctx *ctx, tc_buf data, int n, const int64_t *dtype_and_sizes,
                                tc_site here);
#define tc_param(ctx, data, ...)                                                                   \
    tc_param_as_at((ctx), TC_BUF((data), 0), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__),     \
                   TC_HERE)
/* The same with the value, shape and dtype of any tensor, which is evaluated (with the errors of
 * tc_eval): tc_param_from(tc_randn(ctx, key, TC_F32, 784, 512)). */
TC_API tc_tensor tc_param_from_at(tc_tensor value, tc_site here);
#define tc_param_from(value) tc_param_from_at((value), TC_HERE)
/* Names a parameter and returns it; tc_save and tc_load use the name, which is copied.
 * TC_ERR_ARGUMENT: not a parameter, or the name is NULL. */
TC_API tc_tensor tc_named_at(tc_tensor param, const char *name, tc_site here);
#define tc_named(param, name) tc_named_at((param), (name), TC_HERE)
/* Sets a parameter now: tc_param_write(param, pointer, n) copies n elements, row-major. Runs
 * under way continue with the value that they found. TC_ERR_BUFFER: as tc_read; TC_ERR_ARGUMENT:
 * not a parameter; TC_ERR_BUSY: a run changes it; TC_ERR_MEMORY. tc_error(param) holds the text. */
TC_API tc_status tc_param_write_as_at(tc_tensor param, tc_buf from, tc_site here);
#define tc_param_write(param, pointer, n)                                                          \
    tc_param_write_as_at((param), TC_BUF((pointer), (n)), TC_HERE)
/* An effect: as an output of tc_compile_fn (or given to tc_eval) it makes the program set param to
 * value at the end of each run; until then all reads see the old value. It takes no output buffer
 * and is no operand; in no list of outputs, it has no effect. Of the parameter's dtype; broadcasts
 * to its shape. Where value is a write into param at indices that the run is given (tc_index_put,
 * tc_scatter, tc_index_add ...: a ring, a cache of keys and values), the elements there are all
 * that is written. */
TC_API tc_tensor tc_assign_at(tc_tensor param, tc_tensor value, tc_site here);
#define tc_assign(param, value) tc_assign_at((param), (value), TC_HERE)

/* ---- gradients, and a function over many examples: new nodes of the same graph, to which all of
 * this applies again. On failure all results tell the error; TC_ERR_UNSUPPORTED: an op on the way
 * has no gradient, or no form for many examples; a dtype that is no float is TC_ERR_DTYPE ---- */
/* grads[i] = d loss / d params[i], of its shape and dtype. loss: one element; params: any float
 * tensors of the graph, zeros for those it does not depend on. Ties and corners as in PyTorch 2.15:
 * equal elements of tc_max, tc_min, tc_maximum, tc_fmax and tc_clamp by tensors share; pools and
 * tc_embedding_bag choose the first; at a bound that is a number tc_clamp has 0; NaN in tc_max or
 * tc_min makes the gradient of the whole row NaN. Higher derivatives are right where the function
 * is smooth, also at zeros of products. */
TC_API tc_status tc_grad_at(tc_tensor loss, const tc_tensor *params, int n, tc_tensor *grads,
                            tc_site here);
#define tc_grad(loss, params, n, grads) tc_grad_at((loss), (params), (n), (grads), TC_HERE)
/* Vector-Jacobian product of several results of any shape, given a cotangent for each, which
 * broadcasts to its shape and is cast to its dtype: grads[i] is the cotangents times the
 * Jacobian with respect to params[i]. */
TC_API tc_status tc_vjp_at(tc_tensors results, tc_tensors cotangents, const tc_tensor *params,
                           int n, tc_tensor *grads, tc_site here);
#define tc_vjp(results, ...) tc_vjp_at(results, __VA_ARGS__, TC_HERE)
/* Jacobian-vector product (forward mode): tc_jvp(results, inputs, tangents, out) stores in
 * out[i], of the shape and dtype of result i, its Jacobian times the inputs' tangents, which are
 * given as the cotangents above. One walk for any number of inputs. */
TC_API tc_status tc_jvp_at(tc_tensors results, tc_tensors inputs, tc_tensors tangents,
                           tc_tensor *out, tc_site here);
#define tc_jvp(results, ...) tc_jvp_at(results, __VA_ARGS__, TC_HERE)
/* A function that builds y[0], y[1] ... of x[0], x[1] ..., its own numbers of both. */
typedef void (*tc_function)(const tc_tensor *x, tc_tensor *y, void *user);
#define TC_UNMAPPED INT32_MIN
/* tc_vmap(f, user, inputs, in_axes, outputs, out_axes, n): vectorizes f over axis in_axes[i] of
 * each input i (TC_UNMAPPED: every example gets the whole input; NULL: axis 0 of all). The results
 * are stacked along out_axes[i] of output i (NULL: axis 0; TC_UNMAPPED: the output must not depend
 * on the example, and is not repeated). f is called once, on tensors of one example's shape, and
 * builds one graph for all examples, without a loop. Other tensors that f uses are shared by all
 * examples, as are random numbers, unless their key depends on the example. tc_grad, tc_jvp and
 * tc_vmap may be called inside f and around it; the values of an example cannot be read in f.
 * TC_ERR_SHAPE: the sizes of the axes differ; TC_ERR_AXIS; TC_ERR_ARGUMENT: every input is
 * TC_UNMAPPED, f is NULL, or an output that differs is to be TC_UNMAPPED. */
TC_API tc_status tc_vmap_at(tc_function function, void *user, tc_tensors inputs, const int *in_axes,
                            tc_tensor *outputs, const int *out_axes, int n, tc_site here);
#define tc_vmap(f, user, inputs, ...) tc_vmap_at((f), (user), inputs, __VA_ARGS__, TC_HERE)

#ifndef TC_NO_NAMES
/* ---- any op above by its name: for model files and language bindings; TC_NO_NAMES leaves it out,
 * and with it the table that makes every op part of the program ---- */
/* tc_op(ctx, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", -1))) is tc_softmax(x, -1). Inputs
 * are the op's operands in order (TC_NONE: left out); each other parameter is given by its name,
 * and so may an operand be: TC_ATTR("b", 2.5). The parameters of an options struct are its fields;
 * a parameter with a default may be left out. TC_ERR_ARGUMENT: there is no op or parameter of that
 * name, a required one is missing, or one has another kind; other errors are those of the call. */
TC_API tc_tensor tc_op_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                          tc_site here);
#define tc_op(ctx, name, inputs, attrs) tc_op_at((ctx), (name), (inputs), (attrs), TC_HERE)
/* The same for ops with several results, which go to results[0] to results[n - 1]: n is as many as
 * the op has (else TC_ERR_ARGUMENT). On failure all of them tell the error. */
TC_API tc_status tc_op_results_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                                  tc_tensor *results, int n, tc_site here);
#define tc_op_results(ctx, name, inputs, attrs, results, n)                                        \
    tc_op_results_at((ctx), (name), (inputs), (attrs), (results), (n), TC_HERE)
/* Name and parameters of op i, counted from 0: "slice" and "x: tensor, axis: axis, start: integer =
 * 0, stop: integer = TC_END, step: integer = 1". NULL behind the last one. */
TC_API const char *tc_op_name(int i);
TC_API const char *tc_op_params(int i);
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
