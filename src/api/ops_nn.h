/* api/ops_nn.h - declares layers of neural networks and losses: softmax, normalization, attention,
 * embedding bags, recurrent and quantized layers, convolution, pooling, resampling of images.
 * Conventions: api/ops_elementwise.h. */
#ifndef TC_API_OPS_NN_H
#define TC_API_OPS_NN_H

#include "ops_elementwise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers: floats are computed in f32 or f64 and rounded once to the dtype of the first
 * operand; integers and bool count as f32 unless a line says otherwise; eps keeps divisors
 * above 0 ---- */
/* Softmax along an axis, exp(x) / sum(exp(x)), and its logarithm, both without overflow.
 * Integers and bool in f32. */
TC_API tc_tensor tc_softmax_at(tc_tensor x, int axis, tc_site here);
#define tc_softmax(x, axis) tc_softmax_at((x), (axis), TC_HERE)
TC_API tc_tensor tc_log_softmax_at(tc_tensor x, int axis, tc_site here);
#define tc_log_softmax(x, axis) tc_log_softmax_at((x), (axis), TC_HERE)
/* Cross entropy: the mean of -log_softmax(logits)[target] over the targets. logits [N, C], [N,
 * C, ...] or [C]; target: class indices (integers) [N], [N, ...] or 0-d. Result: 0-d, in the
 * dtype of the logits (f32 for integers). A class outside -C..C-1 fails the run with
 * TC_ERR_INDEX; negative classes count from the end. */
TC_API tc_tensor tc_cross_entropy_at(tc_tensor logits, tc_tensor target, tc_site here);
#define tc_cross_entropy(logits, target) tc_cross_entropy_at((logits), (target), TC_HERE)
/* Layer normalization over axes: (x - mean) / sqrt(variance + eps) * weight + bias, with the
 * variance divided by the count. weight and bias have the sizes of the axes (else TC_ERR_SHAPE),
 * or are TC_NONE; eps is a number or 0-d. Integers and bool in f32. TC_ERR_AXIS: no axes. Ba,
 * Kiros and Hinton, arXiv 1607.06450. */
TC_API tc_tensor tc_layer_norm_at(tc_tensor x, tc_axes axes, tc_tensor weight, tc_tensor bias,
                                  tc_arg eps, tc_site here);
#define tc_layer_norm(x, axes, weight, bias, eps)                                                  \
    tc_layer_norm_at((x), (axes), (weight), (bias), TC_ARG(eps), TC_HERE)
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
/* Gated linear unit: the first half of an axis of even size 2 n, times the sigmoid of the second
 * half. Result: size n along the axis. */
TC_API tc_tensor tc_glu_at(tc_tensor x, int axis, tc_site here);
#define tc_glu(x, axis) tc_glu_at((x), (axis), TC_HERE)
/* Rotary position embedding: x * cosine + rotated(x) * sine, where rotated(x) is (-second half,
 * first half) of the last axis, of even size. All broadcast. Su et al., arXiv 2104.09864; the
 * order of GPT-NeoX. */
TC_API tc_tensor tc_rope_at(tc_tensor x, tc_tensor cosine, tc_tensor sine, tc_site here);
#define tc_rope(x, cosine, sine) tc_rope_at((x), (cosine), (sine), TC_HERE)
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
 * [N, D] or [D]; target [N] or 0-d (else TC_ERR_SHAPE). */
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

/* ---- layers that read a sequence x [steps, batch, inputs], batch_first: [batch, steps, inputs],
 * or [steps, inputs]. weights: of each layer, and if bidirectional of each direction, weight_ih
 * [gates * width, inputs], weight_hh [gates * width, width] and, if any, bias_ih and bias_hh [gates
 * * width]; the next layer reads the outputs of this one, both directions concatenated. States
 * before the first step are [layers * ways, batch, width], or TC_NONE: zeros. *output [steps,
 * batch, ways * width]: the last layer's state after each step; the other results are the last
 * states of all layers. NULL: not wanted; after a mistake all results are poisoned. In x's dtype;
 * the steps are one tc_scan, so that steps and batch may be symbolic ---- */
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
/* f32 (f64 where the scale is a tensor of it); differentiable with respect to the scale. */
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

/* ---- images: x is [N, C, ...] with the spatial axes that the name says, or without N ----
 * Options are numbers for these axes in their order, further ones are ignored; TC_ERR_ARGUMENT: a
 * negative one. Along each axis of n elements with padding on both sides a window of k, dilated by
 * d, has (n + 2 padding - d (k - 1) - 1) / stride + 1 positions; TC_ERR_SHAPE: none. */
/* Zero fields mean 1 (paddings: 0). */
typedef struct tc_conv {
    int64_t stride[3], padding[3], dilation[3]; /* padding on both sides */
    int64_t groups;
    int64_t output_padding[3]; /* transposed convolution: additional elements at the end */
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
    bool ceil_mode;   /* a last window may extend past the edge */
    bool exclude_pad; /* averages: padding does not count */
    int64_t divisor;  /* averages: divisor of sums; 0: the number of elements that count */
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
/* Means over as many windows along each axis as the sizes give: tc_adaptive_avg_pool2d(x, 7, 7).
 * Window o of m along n elements is floor(o n / m) .. ceil((o + 1) n / m). One size applies to all
 * axes, -1 keeps x's. Floats (maximum: any dtype). */
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
    bool align_corners;          /* align the centres of the first and last elements */
    bool recompute_scale_factor; /* coordinates follow from the sizes, not from the factors */
} tc_interpolation;
/* Resizes x [N, C, ...] with one to three spatial axes to other sizes, at least 1; interpolated
 * integers are rounded. tc_interpolate(x, &(tc_interpolation){.mode = "bilinear", .size = {64,
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

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
