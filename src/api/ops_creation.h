/* api/ops_creation.h - declares the calls that make tensors: constants, ranges, index lists, and
 * random numbers from a key. Conventions: api/ops_elementwise.h. */
#ifndef TC_API_OPS_CREATION_H
#define TC_API_OPS_CREATION_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constants and ranges ---- */
/* tc_full(ctx, 0.1, TC_F32, 3, 4): value is a number, which an integer dtype must represent after
 * truncation (else TC_ERR_DTYPE), or a 0-d tensor. */
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
/* start, start + step, ... before stop, [n], empty if stop is not in that direction: all three are
 * numbers (TC_ERR_ARGUMENT: a tensor, a step of 0), any dtype but bool. Floats are computed in f64
 * and rounded once; for integer dtypes start and step are truncated after n is determined, as in
 * PyTorch: from 0.5 to 2 by 0.5 gives 0 0 0. */
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
/* Row and column indices, [2, n] i64, of the elements of a matrix that tc_tril or tc_triu keeps, in
 * row-major order. TC_ERR_ARGUMENT: a negative or symbolic number. */
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
 * tc_fold_in. With a key that is an input or a parameter a program draws new numbers in each run
 * without being compiled again. TC_ERR_DTYPE: the key is no integer, or a dtype does not fit;
 * TC_ERR_SHAPE: the key is not 0-d. */
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
/* Geometric distribution: the number of trials up to the first success, 1, 2, ..., where each
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
 * tensor. No mask is stored: the backward pass recomputes it. */
TC_API tc_tensor tc_dropout_at(tc_tensor x, tc_arg p, tc_arg key, tc_site here);
#define tc_dropout(x, p, key) tc_dropout_at((x), TC_ARG(p), TC_ARG(key), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
