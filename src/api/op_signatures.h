/* api/op_signatures.h - X-macro table of the signatures of public ops: name, kind and default of
 * each parameter, in the order of the call. A row generates the call by name (api/op_by_name.c),
 * the text of its parameters and their checks. Elementwise ops and reductions are generated from
 * ops/table.h instead.
 *
 * Row: TCI_CALL(name, parameters), for a call that returns its one result, or TCI_CALL_MANY(name,
 * results, parameters) for one that stores several. Parameters:
 *   TCI_MUST(name, kind)             required
 *   TCI_MAY(name, kind, default)     optional
 *   TCI_TYPED                        a dtype and sizes, as one list
 *   TCI_FIELDS(type, fields)         fields of an options struct, which are TCI_MUST_FIELD(name,
 *                                    kind) and TCI_FIELD(name, kind, default)
 *   TCI_ON                           the context
 *   TCI_STORED(name, at)             address of result number `at`
 * Code that expands the rows defines all ten macros. */
#ifndef TCI_API_OP_SIGNATURES_H
#define TCI_API_OP_SIGNATURES_H

#include "ops.h"

/* The kinds of parameters, as texts for users show them too. */
#define TCI_PARAM_KINDS(X)                                                                         \
    X(tensor)                                                                                      \
    X(optional) /* a tensor, or TC_NONE */                                                         \
    X(tensors)  /* all inputs between the others */                                                \
    X(operand)  /* a tensor or a number */                                                         \
    X(maybe)    /* a tensor, a number, or TC_NONE */                                               \
    X(integer)                                                                                     \
    X(axis)                                                                                        \
    X(axes)     /* a list of integers, or one */                                                   \
    X(sizes)    /* the same */                                                                     \
    X(typed)    /* the same, which the call takes after its dtype */                              \
    X(single)   /* an integer, or a list of one */                                                 \
    X(pair)     /* a list of two integers, or one for both */                                      \
    X(triple)   /* a list of three, or one for all */                                              \
    X(each)     /* a list of up to three, or one for all */                                        \
    X(real)                                                                                        \
    X(factor)   /* one real number for all axes of an image */                                     \
    X(flag)                                                                                        \
    X(dtype)                                                                                       \
    X(reduction) /* the text mean, sum or none */                                                  \
    X(text)

/* The calls of api/composite_ops.c and the rooms that follow it. */
#define TCI_MADE_CALLS                                                                             \
    TCI_CALL(multinomial, TCI_MUST(p, tensor) TCI_MUST(samples, integer)                           \
                          TCI_MAY(replacement, flag, false) TCI_MUST(key, operand))                \
    TCI_CALL(gumbel_softmax, TCI_MUST(logits, tensor) TCI_MAY(tau, real, 1)                        \
                             TCI_MAY(hard, flag, false) TCI_MAY(axis, axis, -1)                    \
                             TCI_MUST(key, operand))                                               \
    TCI_CALL(linear, TCI_MUST(x, tensor) TCI_MUST(weight, tensor)                                  \
                     TCI_MAY(bias, optional, TC_NONE))                                             \
    TCI_CALL(embedding, TCI_MUST(index, tensor) TCI_MUST(weight, tensor))                          \
    TCI_CALL(one_hot, TCI_MUST(index, tensor) TCI_MUST(classes, integer))                          \
    TCI_CALL(quantize, TCI_MUST(x, tensor) TCI_MUST(scale, operand) TCI_MUST(zero_point, operand)  \
                       TCI_MAY(axis, axis, -1) TCI_MUST(dtype, dtype))                             \
    TCI_CALL(dequantize, TCI_MUST(q, tensor) TCI_MUST(scale, operand)                              \
                         TCI_MUST(zero_point, operand) TCI_MAY(axis, axis, -1))                    \
    TCI_CALL(qmatmul, TCI_MUST(a, tensor) TCI_MUST(scale_a, operand) TCI_MUST(zero_a, operand)     \
                      TCI_MUST(b, tensor) TCI_MUST(scale_b, operand) TCI_MUST(zero_b, operand))    \
    TCI_CALL(coo_matmul, TCI_MUST(rows, tensor) TCI_MUST(columns, tensor)                          \
                         TCI_MUST(values, tensor) TCI_MUST(n_rows, integer)                        \
                         TCI_MUST(dense, tensor))                                                  \
    TCI_CALL(csr_matmul, TCI_MUST(starts, tensor) TCI_MUST(columns, tensor)                        \
                         TCI_MUST(values, tensor) TCI_MUST(dense, tensor))                         \
    TCI_CALL(as_strided, TCI_MUST(x, tensor) TCI_MUST(sizes, sizes) TCI_MUST(strides, sizes)       \
                         TCI_MAY(offset, integer, 0))                                              \
    TCI_CALL(ssm_scan, TCI_MUST(u, tensor) TCI_MUST(delta, tensor) TCI_MUST(a, tensor)             \
                       TCI_MUST(b, tensor) TCI_MUST(c, tensor) TCI_MAY(d, optional, TC_NONE))      \
    TCI_CALL(cross_entropy_loss,                                                                   \
             TCI_MUST(input, tensor) TCI_MUST(target, tensor) TCI_MAY(weight, optional, TC_NONE)   \
             TCI_MAY(ignore_index, integer, -100) TCI_MAY(reduction, reduction, TC_REDUCE_MEAN)    \
             TCI_MAY(label_smoothing, real, 0))                                                    \
    TCI_CALL_MANY(qr, 2, TCI_MUST(x, tensor) TCI_STORED(q, 0) TCI_STORED(r, 1))                    \
    TCI_CALL_MANY(eigh, 2, TCI_MUST(x, tensor) TCI_STORED(values, 0) TCI_STORED(vectors, 1))       \
    TCI_CALL_MANY(svd, 3, TCI_MUST(x, tensor) TCI_STORED(u, 0) TCI_STORED(s, 1)                    \
                          TCI_STORED(vh, 2))                                                       \
    TCI_CALL(ctc_loss, TCI_MUST(log_probs, tensor) TCI_MUST(targets, tensor)                       \
                       TCI_MUST(input_lengths, tensor) TCI_MUST(target_lengths, tensor)            \
                       TCI_MAY(blank, integer, 0) TCI_MAY(reduction, reduction, TC_REDUCE_MEAN)    \
                       TCI_MAY(zero_infinity, flag, false))                                        \
    TCI_CALL(nansum, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL)                               \
                     TCI_MAY(keepdims, flag, false))                                               \
    TCI_CALL(nanmean, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL)                              \
                      TCI_MAY(keepdims, flag, false))                                              \
    TCI_CALL(count_nonzero, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL)                        \
                            TCI_MAY(keepdims, flag, false))                                        \
    TCI_CALL(quantile, TCI_MUST(x, tensor) TCI_MUST(q, operand) TCI_MAY(axes, axes, TC_ALL)        \
                       TCI_MAY(keepdims, flag, false) TCI_MAY(interpolation, text, "linear"))      \
    TCI_CALL(nanquantile, TCI_MUST(x, tensor) TCI_MUST(q, operand) TCI_MAY(axes, axes, TC_ALL)     \
                          TCI_MAY(keepdims, flag, false)                                           \
                          TCI_MAY(interpolation, text, "linear"))                                  \
    TCI_CALL(cov, TCI_MUST(x, tensor) TCI_MAY(correction, real, 1)                                 \
                  TCI_MAY(fweights, optional, TC_NONE) TCI_MAY(aweights, optional, TC_NONE))       \
    TCI_CALL(corrcoef, TCI_MUST(x, tensor))                                                        \
    TCI_CALL(isclose, TCI_MUST(a, tensor) TCI_MUST(b, operand) TCI_MAY(rtol, real, 1e-5)           \
                      TCI_MAY(atol, real, 1e-8) TCI_MAY(equal_nan, flag, false))                   \
    TCI_CALL(allclose, TCI_MUST(a, tensor) TCI_MUST(b, operand) TCI_MAY(rtol, real, 1e-5)          \
                       TCI_MAY(atol, real, 1e-8) TCI_MAY(equal_nan, flag, false))                  \
    TCI_CALL(segment_reduce, TCI_MUST(x, tensor) TCI_MUST(reduce, text) TCI_MUST(lengths, tensor)  \
                             TCI_MAY(axis, axis, 0))                                               \
    TCI_CALL(unravel_index, TCI_MUST(index, tensor) TCI_MUST(sizes, sizes))                        \
    TCI_CALL(nextafter, TCI_MUST(x, tensor) TCI_MUST(towards, tensor))                             \
    TCI_CALL_MANY(frexp, 2, TCI_MUST(x, tensor) TCI_STORED(mantissa, 0) TCI_STORED(exponent, 1))   \
    TCI_CALL(polygamma, TCI_MUST(n, integer) TCI_MUST(x, tensor))                                  \
    TCI_CALL(i0, TCI_MUST(x, tensor))                                                              \
    TCI_CALL(igamma, TCI_MUST(a, tensor) TCI_MUST(x, tensor))                                      \
    TCI_CALL(igammac, TCI_MUST(a, tensor) TCI_MUST(x, tensor))                                     \
    TCI_CALL_MANY(lu, 3, TCI_MUST(x, tensor) TCI_STORED(p, 0) TCI_STORED(l, 1) TCI_STORED(u, 2))   \
    TCI_CALL(logdet, TCI_MUST(x, tensor))                                                          \
    TCI_CALL(pinv, TCI_MUST(x, tensor) TCI_MAY(rcond, real, -1))                                   \
    TCI_CALL(lstsq, TCI_MUST(a, tensor) TCI_MUST(b, tensor) TCI_MAY(rcond, real, -1))              \
    TCI_CALL(matrix_exp, TCI_MUST(x, tensor))                                                      \
    TCI_CALL(block_diag, TCI_MUST(xs, tensors))                                                    \
    TCI_CALL(stft, TCI_MUST(x, tensor) TCI_MAY(window, optional, TC_NONE)                          \
                   TCI_FIELDS(tc_stft_options, TCI_STFT_FIELDS                                     \
                              TCI_FIELD(pad_mode, text, "reflect")))                               \
    TCI_CALL(istft, TCI_MUST(x, tensor) TCI_MAY(window, optional, TC_NONE)                         \
                    TCI_FIELDS(tc_stft_options, TCI_STFT_FIELDS TCI_FIELD(length, integer, 0)))    \
    TCI_TRANSFORM(fft)                                                                             \
    TCI_TRANSFORM(ifft)                                                                            \
    TCI_TRANSFORM(rfft)                                                                            \
    TCI_TRANSFORM(irfft)                                                                           \
    TCI_CALL(clamp, TCI_MUST(x, tensor) TCI_MAY(min, maybe, TC_NONE) TCI_MAY(max, maybe, TC_NONE)) \
    TCI_CALL(masked_fill, TCI_MUST(x, tensor) TCI_MUST(mask, tensor) TCI_MUST(value, operand))     \
    TCI_CALL(nan_to_num, TCI_MUST(x, tensor) TCI_MAY(nan, maybe, TC_NONE)                          \
                         TCI_MAY(posinf, maybe, TC_NONE) TCI_MAY(neginf, maybe, TC_NONE))          \
    TCI_CALL(popcount, TCI_MUST(x, tensor))                                                        \
    TCI_CALL(glu, TCI_MUST(x, tensor) TCI_MAY(axis, axis, -1))                                     \
    TCI_CALL(rope, TCI_MUST(x, tensor) TCI_MUST(cosine, tensor) TCI_MUST(sine, tensor))            \
    TCI_CALL(logsumexp, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL)                            \
                        TCI_MAY(keepdims, flag, false))                                            \
    TCI_CALL(norm, TCI_MUST(x, tensor) TCI_MAY(p, real, 2) TCI_MAY(axes, axes, TC_ALL)             \
                   TCI_MAY(keepdims, flag, false))                                                 \
    TCI_CALL(normalize, TCI_MUST(x, tensor) TCI_MAY(p, real, 2) TCI_MAY(axis, axis, 1)             \
                        TCI_MAY(eps, real, 1e-12))                                                 \
    TCI_CALL(renorm, TCI_MUST(x, tensor) TCI_MUST(p, real) TCI_MUST(axis, axis)                    \
                     TCI_MUST(maxnorm, real))                                                      \
    TCI_CALL(diff, TCI_MUST(x, tensor) TCI_MAY(n, integer, 1) TCI_MAY(axis, axis, -1)              \
                   TCI_MAY(prepend, optional, TC_NONE) TCI_MAY(append, optional, TC_NONE))         \
    TCI_CALL(trapezoid, TCI_MUST(y, tensor) TCI_MAY(x, optional, TC_NONE) TCI_MAY(dx, real, 1)     \
                        TCI_MAY(axis, axis, -1))                                                   \
    TCI_CALL(cumulative_trapezoid, TCI_MUST(y, tensor) TCI_MAY(x, optional, TC_NONE)               \
                                   TCI_MAY(dx, real, 1) TCI_MAY(axis, axis, -1))                   \
    TCI_CALL(cross, TCI_MUST(a, tensor) TCI_MUST(b, tensor) TCI_MAY(axis, axis, -1))               \
    TCI_CALL(kron, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                        \
    TCI_CALL(outer, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                       \
    TCI_CALL(dot, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                         \
    TCI_CALL(tensordot, TCI_MUST(a, tensor) TCI_MUST(b, tensor) TCI_MUST(axes_a, axes)             \
                        TCI_MUST(axes_b, axes))                                                    \
    TCI_CALL(select, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, integer))            \
    TCI_CALL(tile, TCI_MUST(x, tensor) TCI_MUST(repeats, sizes))                                   \
    TCI_CALL(stack, TCI_MUST(xs, tensors) TCI_MAY(axis, axis, 0))                                  \
    TCI_CALL_MANY(lstm, 3, TCI_MUST(x, tensor) TCI_MAY(h0, optional, TC_NONE)                      \
                           TCI_MAY(c0, optional, TC_NONE) TCI_MUST(weights, tensors)               \
                           TCI_MAY(bidirectional, flag, false) TCI_MAY(batch_first, flag, false)   \
                           TCI_STORED(output, 0) TCI_STORED(h, 1) TCI_STORED(c, 2))                \
    TCI_CALL_MANY(gru, 2, TCI_MUST(x, tensor) TCI_MAY(h0, optional, TC_NONE)                       \
                          TCI_MUST(weights, tensors) TCI_MAY(bidirectional, flag, false)           \
                          TCI_MAY(batch_first, flag, false) TCI_STORED(output, 0)                  \
                          TCI_STORED(h, 1))                                                        \
    TCI_CALL(complex, TCI_MUST(real, tensor) TCI_MUST(imag, tensor))                               \
    TCI_CALL(polar, TCI_MUST(abs, tensor) TCI_MUST(angle, tensor))                                 \
    TCI_CALL(real, TCI_MUST(x, tensor))                                                            \
    TCI_CALL(imag, TCI_MUST(x, tensor))                                                            \
    TCI_CALL(complex_abs, TCI_MUST(x, tensor))                                                     \
    TCI_CALL(angle, TCI_MUST(x, tensor))                                                           \
    TCI_CALL(conj, TCI_MUST(x, tensor))                                                            \
    TCI_CALL(complex_mul, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                 \
    TCI_CALL(complex_div, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                 \
    TCI_CALL(complex_exp, TCI_MUST(x, tensor))                                                     \
    TCI_CALL(complex_log, TCI_MUST(x, tensor))                                                     \
    TCI_CALL(complex_matmul, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                              \
    TCI_CALL(cosine_similarity, TCI_MUST(x1, tensor) TCI_MUST(x2, tensor) TCI_MAY(axis, axis, 1)   \
                                TCI_MAY(eps, real, 1e-8))                                          \
    TCI_CALL(pairwise_distance, TCI_MUST(x1, tensor) TCI_MUST(x2, tensor) TCI_MAY(p, real, 2)      \
                                TCI_MAY(eps, real, 1e-6) TCI_MAY(keepdims, flag, false))           \
    TCI_CALL(cdist, TCI_MUST(x1, tensor) TCI_MUST(x2, tensor) TCI_MAY(p, real, 2))                 \
    TCI_CALL(scaled_dot_product_attention,                                                         \
             TCI_MUST(query, tensor) TCI_MUST(key, tensor) TCI_MUST(value, tensor)                 \
             TCI_MAY(mask, optional, TC_NONE) TCI_MAY(is_causal, flag, false)                      \
             TCI_MAY(scale, real, 0))                                                              \
    TCI_CALL(rms_norm, TCI_MUST(x, tensor) TCI_MUST(axes, axes) TCI_MAY(weight, optional, TC_NONE) \
                       TCI_MAY(eps, real, 1e-6))                                                   \
    TCI_CALL(batch_norm, TCI_MUST(x, tensor) TCI_MAY(running_mean, optional, TC_NONE)              \
                         TCI_MAY(running_var, optional, TC_NONE)                                   \
                         TCI_MAY(weight, optional, TC_NONE) TCI_MAY(bias, optional, TC_NONE)       \
                         TCI_MAY(training, flag, false)                                            \
                         TCI_MAY(eps, real, 1e-5))                                                 \
    TCI_CALL(group_norm, TCI_MUST(x, tensor) TCI_MUST(groups, integer)                             \
                         TCI_MAY(weight, optional, TC_NONE) TCI_MAY(bias, optional, TC_NONE)       \
                         TCI_MAY(eps, real, 1e-5))                                                 \
    TCI_CALL(instance_norm, TCI_MUST(x, tensor) TCI_MAY(weight, optional, TC_NONE)                 \
                            TCI_MAY(bias, optional, TC_NONE) TCI_MAY(eps, real, 1e-5))             \
    TCI_CALL(local_response_norm, TCI_MUST(x, tensor) TCI_MUST(size, integer)                      \
                                  TCI_MAY(alpha, real, 1e-4) TCI_MAY(beta, real, 0.75)             \
                                  TCI_MAY(k, real, 1))                                             \
    TCI_CALL(embedding_bag, TCI_MUST(index, tensor) TCI_MUST(weight, tensor)                       \
                            TCI_MAY(offsets, optional, TC_NONE) TCI_MAY(mode, text, "mean")        \
                            TCI_MAY(per_sample_weights, optional, TC_NONE)                         \
                            TCI_MAY(include_last_offset, flag, false)                              \
                            TCI_MAY(padding_idx, integer, TC_END))                                 \
    TCI_CALL(nll_loss, TCI_MUST(input, tensor) TCI_MUST(target, tensor)                            \
                       TCI_MAY(weight, optional, TC_NONE) TCI_MAY(ignore_index, integer, -100)     \
                       TCI_MAY(reduction, reduction, TC_REDUCE_MEAN))                              \
    TCI_CALL(kl_div, TCI_MUST(input, tensor) TCI_MUST(target, tensor)                              \
                     TCI_MAY(log_target, flag, false)                                              \
                     TCI_MAY(reduction, reduction, TC_REDUCE_MEAN))                                \
    TCI_CALL(poisson_nll_loss, TCI_MUST(input, tensor) TCI_MUST(target, tensor)                    \
                               TCI_MAY(log_input, flag, true) TCI_MAY(full, flag, false)           \
                               TCI_MAY(eps, real, 1e-8)                                            \
                               TCI_MAY(reduction, reduction, TC_REDUCE_MEAN))                      \
    TCI_CALL(multi_margin_loss, TCI_MUST(input, tensor) TCI_MUST(target, tensor)                   \
                                TCI_MAY(p, integer, 1) TCI_MAY(margin, real, 1)                    \
                                TCI_MAY(weight, optional, TC_NONE)                                 \
                                TCI_MAY(reduction, reduction, TC_REDUCE_MEAN))                     \
    TCI_CALL(multilabel_soft_margin_loss, TCI_MUST(input, tensor) TCI_MUST(target, tensor)         \
                                          TCI_MAY(weight, optional, TC_NONE)                       \
                                          TCI_MAY(reduction, reduction, TC_REDUCE_MEAN))           \
    TCI_CALL(cosine_embedding_loss, TCI_MUST(x1, tensor) TCI_MUST(x2, tensor)                      \
                                    TCI_MUST(target, tensor) TCI_MAY(margin, real, 0)              \
                                    TCI_MAY(reduction, reduction, TC_REDUCE_MEAN))                 \
    TCI_CALL(triplet_margin_loss, TCI_MUST(anchor, tensor) TCI_MUST(positive, tensor)              \
                                  TCI_MUST(negative, tensor) TCI_MAY(margin, real, 1)              \
                                  TCI_MAY(p, real, 2) TCI_MAY(eps, real, 1e-6)                     \
                                  TCI_MAY(swap, flag, false)                                       \
                                  TCI_MAY(reduction, reduction, TC_REDUCE_MEAN))

#define TCI_STFT_FIELDS                                                                            \
    TCI_MUST_FIELD(n_fft, integer) TCI_FIELD(hop_length, integer, 0)                               \
    TCI_FIELD(win_length, integer, 0) TCI_FIELD(uncentered, flag, false)                           \
    TCI_FIELD(normalized, flag, false) TCI_FIELD(two_sided, flag, false)

#define TCI_TRANSFORM(name)                                                                        \
    TCI_CALL(name, TCI_MUST(x, tensor) TCI_MAY(n, integer, 0) TCI_MAY(axis, axis, -1)              \
                   TCI_MAY(norm, text, "backward"))

#define TCI_OWN_CALLS                                                                              \
    TCI_CALL(where, TCI_MUST(c, operand) TCI_MUST(a, operand) TCI_MUST(b, operand))                \
    TCI_CALL(cast, TCI_MUST(x, tensor) TCI_MUST(dtype, dtype))                                     \
    TCI_CALL(bitcast, TCI_MUST(x, tensor) TCI_MUST(dtype, dtype))                                  \
    TCI_CALL(full, TCI_ON TCI_MUST(value, operand) TCI_TYPED)                                      \
    TCI_CALL(zeros, TCI_ON TCI_TYPED)                                                              \
    TCI_CALL(ones, TCI_ON TCI_TYPED)                                                               \
    TCI_CALL(arange, TCI_ON TCI_MUST(start, operand) TCI_MUST(stop, operand)                       \
                     TCI_MAY(step, operand, 1) TCI_MUST(dtype, dtype))                             \
    TCI_CALL(fold_in, TCI_MUST(key, operand) TCI_MUST(number, operand))                            \
    TCI_CALL(random_bits, TCI_ON TCI_MUST(key, operand) TCI_TYPED)                                 \
    TCI_CALL(rand, TCI_ON TCI_MUST(key, operand) TCI_TYPED)                                        \
    TCI_CALL(randn, TCI_ON TCI_MUST(key, operand) TCI_TYPED)                                       \
    TCI_CALL(randint, TCI_ON TCI_MUST(key, operand) TCI_MUST(low, operand)                         \
                      TCI_MUST(high, operand) TCI_TYPED)                                           \
    TCI_CALL(bernoulli, TCI_MUST(p, tensor) TCI_MUST(key, operand))                                \
    TCI_CALL(exponential, TCI_MUST(rate, tensor) TCI_MUST(key, operand))                           \
    TCI_CALL(geometric, TCI_MUST(p, tensor) TCI_MUST(key, operand))                                \
    TCI_CALL(dropout, TCI_MUST(x, tensor) TCI_MUST(p, operand) TCI_MUST(key, operand))             \
    TCI_CALL(mean, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL) TCI_MAY(keepdims, flag, false)) \
    TCI_CALL(var, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL) TCI_MAY(correction, real, 1)     \
                  TCI_MAY(keepdims, flag, false))                                                  \
    TCI_CALL(std, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL) TCI_MAY(correction, real, 1)     \
                  TCI_MAY(keepdims, flag, false))                                                  \
    TCI_CALL_MANY(var_mean, 2, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL)                     \
                               TCI_MAY(correction, real, 1) TCI_MAY(keepdims, flag, false)         \
                               TCI_STORED(var, 0) TCI_STORED(mean, 1))                             \
    TCI_CALL(cumsum, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                                     \
    TCI_CALL_MANY(topk, 2, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(k, integer)           \
                           TCI_MAY(largest, flag, true) TCI_STORED(values, 0)                      \
                           TCI_STORED(indices, 1))                                                 \
    TCI_CALL_MANY(sort, 2, TCI_MUST(x, tensor) TCI_MUST(axis, axis)                                \
                           TCI_MAY(descending, flag, false) TCI_STORED(values, 0)                  \
                           TCI_STORED(indices, 1))                                                 \
    TCI_CALL(argsort, TCI_MUST(x, tensor) TCI_MUST(axis, axis)                                     \
                      TCI_MAY(descending, flag, false))                                            \
    TCI_CALL(softmax, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                                    \
    TCI_CALL(log_softmax, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                                \
    TCI_CALL(layer_norm, TCI_MUST(x, tensor) TCI_MUST(axes, axes)                                  \
                         TCI_MAY(weight, optional, TC_NONE) TCI_MAY(bias, optional, TC_NONE)       \
                         TCI_MAY(eps, operand, 1e-5))                                              \
    TCI_CALL(stop_gradient, TCI_MUST(x, tensor))                                                   \
    TCI_CALL(materialize, TCI_MUST(x, tensor))                                                     \
    TCI_CALL(nofuse, TCI_MUST(x, tensor))                                                          \
    TCI_CALL(cross_entropy, TCI_MUST(logits, tensor) TCI_MUST(target, tensor))                     \
    TCI_CALL(reshape, TCI_MUST(x, tensor) TCI_MUST(sizes, sizes))                                  \
    TCI_CALL(permute, TCI_MUST(x, tensor) TCI_MUST(order, sizes))                                  \
    TCI_CALL(transpose, TCI_MUST(x, tensor) TCI_MUST(axis_a, axis) TCI_MUST(axis_b, axis))         \
    TCI_CALL(expand, TCI_MUST(x, tensor) TCI_MUST(sizes, sizes))                                   \
    TCI_CALL(squeeze, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                                    \
    TCI_CALL(unsqueeze, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                                  \
    TCI_CALL(slice, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MAY(start, integer, 0)            \
                    TCI_MAY(stop, integer, TC_END) TCI_MAY(step, integer, 1))                      \
    TCI_CALL(flip, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                                       \
    TCI_CALL(pad, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MAY(before, integer, 0)             \
                  TCI_MAY(after, integer, 0) TCI_MAY(value, operand, 0))                           \
    TCI_CALL(cat, TCI_MUST(xs, tensors) TCI_MUST(axis, axis))                                      \
    TCI_CALL(gather, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor))             \
    TCI_CALL(index_select, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor))       \
    TCI_CALL(scatter_add, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor)         \
                          TCI_MUST(src, tensor))                                                   \
    TCI_CALL(scatter, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor)             \
                      TCI_MUST(src, tensor))                                                       \
    TCI_CALL(scatter_min, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor)         \
                          TCI_MUST(src, tensor))                                                   \
    TCI_CALL(scatter_max, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor)         \
                          TCI_MUST(src, tensor))                                                   \
    TCI_CALL(index_add, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor)           \
                        TCI_MUST(src, tensor))                                                     \
    TCI_CALL(roll, TCI_MUST(x, tensor) TCI_MUST(shift, integer) TCI_MUST(axis, axis))              \
    TCI_CALL(rot90, TCI_MUST(x, tensor) TCI_MAY(k, integer, 1) TCI_MAY(axis_a, axis, 0)            \
                    TCI_MAY(axis_b, axis, 1))                                                      \
    TCI_CALL(unfold, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(size, integer)              \
                     TCI_MUST(step, integer))                                                      \
    TCI_CALL(pad_mode, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MAY(before, integer, 0)        \
                       TCI_MAY(after, integer, 0) TCI_MUST(mode, text))                            \
    TCI_CALL(pixel_shuffle, TCI_MUST(x, tensor) TCI_MUST(upscale_factor, integer))                 \
    TCI_CALL(pixel_unshuffle, TCI_MUST(x, tensor) TCI_MUST(downscale_factor, integer))             \
    TCI_CALL(diagonal, TCI_MUST(x, tensor) TCI_MAY(offset, integer, 0) TCI_MAY(axis_a, axis, 0)    \
                       TCI_MAY(axis_b, axis, 1))                                                   \
    TCI_CALL(diag, TCI_MUST(x, tensor) TCI_MAY(offset, integer, 0))                                \
    TCI_CALL(diag_embed, TCI_MUST(x, tensor) TCI_MAY(offset, integer, 0)                           \
                         TCI_MAY(axis_a, axis, -2) TCI_MAY(axis_b, axis, -1))                      \
    TCI_CALL(tril, TCI_MUST(x, tensor) TCI_MAY(diagonal, integer, 0))                              \
    TCI_CALL(triu, TCI_MUST(x, tensor) TCI_MAY(diagonal, integer, 0))                              \
    TCI_CALL(tril_indices, TCI_ON TCI_MUST(rows, integer) TCI_MUST(columns, integer)               \
                           TCI_MAY(offset, integer, 0))                                            \
    TCI_CALL(triu_indices, TCI_ON TCI_MUST(rows, integer) TCI_MUST(columns, integer)               \
                           TCI_MAY(offset, integer, 0))                                            \
    TCI_CALL(linspace, TCI_ON TCI_MUST(start, operand) TCI_MUST(stop, operand)                     \
                       TCI_MUST(steps, integer) TCI_MUST(dtype, dtype))                            \
    TCI_CALL(logspace, TCI_ON TCI_MUST(start, operand) TCI_MUST(stop, operand)                     \
                       TCI_MUST(steps, integer) TCI_MAY(base, real, 10) TCI_MUST(dtype, dtype))    \
    TCI_CALL(repeat_interleave, TCI_MUST(x, tensor) TCI_MUST(repeats, operand)                     \
                                TCI_MUST(axis, axis) TCI_MAY(size, integer, 0))                    \
    TCI_CALL(slice_scatter, TCI_MUST(x, tensor) TCI_MUST(src, tensor) TCI_MAY(axis, axis, 0)       \
                            TCI_MAY(start, integer, 0) TCI_MAY(stop, integer, TC_END)              \
                            TCI_MAY(step, integer, 1))                                             \
    TCI_CALL(select_scatter, TCI_MUST(x, tensor) TCI_MUST(src, tensor) TCI_MUST(axis, axis)        \
                             TCI_MUST(index, integer))                                             \
    TCI_CALL(diagonal_scatter, TCI_MUST(x, tensor) TCI_MUST(src, tensor)                           \
                               TCI_MAY(offset, integer, 0) TCI_MAY(axis_a, axis, 0)                \
                               TCI_MAY(axis_b, axis, 1))                                           \
    TCI_CALL(take_along_dim, TCI_MUST(x, tensor) TCI_MUST(index, tensor) TCI_MUST(axis, axis))     \
    TCI_CALL(index, TCI_MUST(x, tensor) TCI_MUST(indices, tensors))                                \
    TCI_CALL(index_put, TCI_MUST(x, tensor) TCI_MUST(indices, tensors) TCI_MUST(src, tensor)       \
                        TCI_MAY(accumulate, flag, false))                                          \
    TCI_CALL(index_fill, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor)          \
                         TCI_MUST(value, operand))                                                 \
    TCI_CALL(masked_scatter, TCI_MUST(x, tensor) TCI_MUST(mask, tensor) TCI_MUST(src, tensor))     \
    TCI_CALL_MANY(masked_select, 2, TCI_MUST(x, tensor) TCI_MUST(mask, tensor)                     \
                                    TCI_MUST(size, integer) TCI_STORED(values, 0)                  \
                                    TCI_STORED(count, 1))                                          \
    TCI_CALL_MANY(nonzero, 2, TCI_MUST(x, tensor) TCI_MUST(size, integer)                          \
                              TCI_STORED(indices, 0) TCI_STORED(count, 1))                         \
    TCI_CALL(searchsorted, TCI_MUST(sorted, tensor) TCI_MUST(values, tensor)                       \
                           TCI_MAY(right, flag, false))                                            \
    TCI_CALL(bucketize, TCI_MUST(x, tensor) TCI_MUST(boundaries, tensor)                           \
                        TCI_MAY(right, flag, false))                                               \
    TCI_CALL(cumprod, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                                    \
    TCI_CALL(logcumsumexp, TCI_MUST(x, tensor) TCI_MUST(axis, axis))                               \
    TCI_CALL_MANY(cummax, 2, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_STORED(values, 0)        \
                             TCI_STORED(indices, 1))                                               \
    TCI_CALL_MANY(cummin, 2, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_STORED(values, 0)        \
                             TCI_STORED(indices, 1))                                               \
    TCI_CALL_MANY(aminmax, 2, TCI_MUST(x, tensor) TCI_MAY(axes, axes, TC_ALL)                      \
                              TCI_MAY(keepdims, flag, false) TCI_STORED(least, 0)                  \
                              TCI_STORED(most, 1))                                                 \
    TCI_CALL_MANY(kthvalue, 2, TCI_MUST(x, tensor) TCI_MUST(k, integer) TCI_MAY(axis, axis, -1)    \
                               TCI_MAY(keepdims, flag, false) TCI_STORED(values, 0)                \
                               TCI_STORED(indices, 1))                                             \
    TCI_CALL_MANY(median, 2, TCI_MUST(x, tensor) TCI_MAY(axis, axis, -1)                           \
                             TCI_MAY(keepdims, flag, false) TCI_STORED(values, 0)                  \
                             TCI_STORED(indices, 1))                                               \
    TCI_CALL_MANY(nanmedian, 2, TCI_MUST(x, tensor) TCI_MAY(axis, axis, -1)                        \
                                TCI_MAY(keepdims, flag, false) TCI_STORED(values, 0)               \
                                TCI_STORED(indices, 1))                                            \
    TCI_CALL_MANY(mode, 2, TCI_MUST(x, tensor) TCI_MAY(axis, axis, -1)                             \
                           TCI_MAY(keepdims, flag, false) TCI_STORED(values, 0)                    \
                           TCI_STORED(indices, 1))                                                 \
    TCI_CALL(histc, TCI_MUST(x, tensor) TCI_MAY(bins, integer, 100) TCI_MAY(low, real, 0)          \
                    TCI_MAY(high, real, 0))                                                        \
    TCI_CALL(bincount, TCI_MUST(x, tensor) TCI_MAY(weights, optional, TC_NONE)                     \
                       TCI_MUST(size, integer))                                                    \
    TCI_CALL(isin, TCI_MUST(x, tensor) TCI_MUST(list, tensor))                                     \
    TCI_CALL_MANY(unique, 4, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(size, integer)      \
                             TCI_STORED(values, 0) TCI_STORED(inverse, 1) TCI_STORED(counts, 2)    \
                             TCI_STORED(count, 3))                                                 \
    TCI_CALL_MANY(unique_consecutive, 4, TCI_MUST(x, tensor) TCI_MUST(axis, axis)                  \
                                         TCI_MUST(size, integer) TCI_STORED(values, 0)             \
                                         TCI_STORED(inverse, 1) TCI_STORED(counts, 2)              \
                                         TCI_STORED(count, 3))                                     \
    TCI_CALL(scatter_prod, TCI_MUST(x, tensor) TCI_MUST(axis, axis) TCI_MUST(index, tensor)        \
                           TCI_MUST(src, tensor))                                                  \
    TCI_CALL(solve, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                       \
    TCI_CALL(solve_triangular, TCI_MUST(a, tensor) TCI_MUST(b, tensor) TCI_MUST(upper, flag)       \
                               TCI_MAY(left, flag, true) TCI_MAY(unitriangular, flag, false))      \
    TCI_CALL(cholesky, TCI_MUST(x, tensor) TCI_MAY(upper, flag, false))                            \
    TCI_CALL(inv, TCI_MUST(x, tensor))                                                             \
    TCI_CALL(det, TCI_MUST(x, tensor))                                                             \
    TCI_CALL_MANY(slogdet, 2, TCI_MUST(x, tensor) TCI_STORED(sign, 0) TCI_STORED(logabsdet, 1))    \
    TCI_CALL(matrix_power, TCI_MUST(x, tensor) TCI_MUST(n, integer))                               \
    TCI_CALL(matmul, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                      \
    TCI_CALL(bmm, TCI_MUST(a, tensor) TCI_MUST(b, tensor))                                         \
    TCI_CALL(einsum, TCI_MUST(spec, text) TCI_MUST(xs, tensors))                                   \
    TCI_IMAGE_CALLS(1, single)                                                                     \
    TCI_IMAGE_CALLS(2, pair)                                                                       \
    TCI_IMAGE_CALLS(3, triple)                                                                     \
    TCI_CALL(im2col, TCI_MUST(x, tensor) TCI_PATCH_FIELDS)                                         \
    TCI_CALL(col2im, TCI_MUST(x, tensor) TCI_MUST(sizes, sizes) TCI_PATCH_FIELDS)                  \
    TCI_CALL(interpolate, TCI_MUST(x, tensor)                                                      \
                          TCI_FIELDS(tc_interpolation,                                             \
                                     TCI_FIELD(mode, text, "nearest") TCI_FIELD(size, each, 0)     \
                                     TCI_FIELD(scale_factor, factor, 0)                            \
                                     TCI_FIELD(align_corners, flag, false)                         \
                                     TCI_FIELD(recompute_scale_factor, flag, false)))              \
    TCI_CALL(grid_sample, TCI_MUST(x, tensor) TCI_MUST(grid, tensor)                               \
                          TCI_MAY(mode, text, "bilinear") TCI_MAY(padding_mode, text, "zeros")     \
                          TCI_MAY(align_corners, flag, false))                                     \
    TCI_CALL(assign, TCI_MUST(param, tensor) TCI_MUST(value, tensor))

/* Rows for images of n axes; `many` is the kind of n numbers. */
#define TCI_IMAGE_CALLS(n, many)                                                                   \
    TCI_CALL(conv##n##d, TCI_MUST(x, tensor) TCI_MUST(weight, tensor)                              \
                         TCI_MAY(bias, optional, TC_NONE)                                          \
                         TCI_FIELDS(tc_conv,                                                       \
                                    TCI_FIELD(stride, many, 1) TCI_FIELD(padding, many, 0)         \
                                    TCI_FIELD(dilation, many, 1) TCI_FIELD(groups, integer, 1)     \
                                    TCI_FIELD(end_padding, many, 0)                                \
                                    TCI_FIELD(same, flag, false)))                                 \
    TCI_CALL(conv_transpose##n##d,                                                                 \
             TCI_MUST(x, tensor) TCI_MUST(weight, tensor) TCI_MAY(bias, optional, TC_NONE)         \
             TCI_FIELDS(tc_conv, TCI_FIELD(stride, many, 1) TCI_FIELD(padding, many, 0)            \
                                 TCI_FIELD(dilation, many, 1) TCI_FIELD(groups, integer, 1)        \
                                 TCI_FIELD(output_padding, many, 0)                                \
                                 TCI_FIELD(end_padding, many, 0)))                                 \
    TCI_CALL(max_pool##n##d, TCI_MUST(x, tensor) TCI_POOL_FIELDS(many))                            \
    TCI_CALL_MANY(max_pool##n##d_with_indices, 2,                                                  \
                  TCI_MUST(x, tensor) TCI_POOL_FIELDS(many) TCI_STORED(values, 0)                  \
                  TCI_STORED(indices, 1))                                                          \
    TCI_CALL(avg_pool##n##d,                                                                       \
             TCI_MUST(x, tensor)                                                                   \
             TCI_FIELDS(tc_pool, TCI_MUST_FIELD(kernel, many) TCI_FIELD(stride, many, 0)           \
                                 TCI_FIELD(padding, many, 0) TCI_FIELD(ceil_mode, flag, false)     \
                                 TCI_FIELD(exclude_pad, flag, false)                               \
                                 TCI_FIELD(divisor, integer, 0)))                                  \
    TCI_CALL(lp_pool##n##d, TCI_MUST(x, tensor) TCI_MUST(p, real) TCI_POOL_FIELDS(many))           \
    TCI_CALL(adaptive_avg_pool##n##d, TCI_MUST(x, tensor) TCI_MUST(sizes, sizes))                  \
    TCI_CALL(adaptive_max_pool##n##d, TCI_MUST(x, tensor) TCI_MUST(sizes, sizes))                  \
    TCI_CALL_MANY(adaptive_max_pool##n##d_with_indices, 2,                                         \
                  TCI_MUST(x, tensor) TCI_STORED(values, 0) TCI_STORED(indices, 1)                 \
                  TCI_MUST(sizes, sizes))
#define TCI_POOL_FIELDS(many)                                                                      \
    TCI_FIELDS(tc_pool, TCI_MUST_FIELD(kernel, many) TCI_FIELD(stride, many, 0)                    \
                        TCI_FIELD(padding, many, 0) TCI_FIELD(dilation, many, 1)                   \
                        TCI_FIELD(ceil_mode, flag, false))

#define TCI_PATCH_FIELDS                                                                           \
    TCI_FIELDS(tc_pool, TCI_MUST_FIELD(kernel, pair) TCI_FIELD(stride, pair, 1)                    \
                        TCI_FIELD(padding, pair, 0) TCI_FIELD(dilation, pair, 1))

#define TCI_CALL_OF_EW(id, name, arity, ...) TCI_CALL(name, TCI_CALL_TAKES_##arity)
#define TCI_CALL_TAKES_1 TCI_MUST(a, operand)
#define TCI_CALL_TAKES_2 TCI_MUST(a, operand) TCI_MUST(b, operand)
#define TCI_CALL_TAKES_3 TCI_CALL_TAKES_2 TCI_MUST(c, operand)
#define TCI_CALL_OF_REDUCE(id, name, rule, ...)                                                    \
    TCI_CALL(name, TCI_MUST(x, tensor) TCI_CALL_OVER_##rule TCI_MAY(keepdims, flag, false))
#define TCI_CALL_OVER_SAME TCI_MAY(axes, axes, TC_ALL)
#define TCI_CALL_OVER_SUM TCI_CALL_OVER_SAME
#define TCI_CALL_OVER_BOOL TCI_CALL_OVER_SAME
#define TCI_CALL_OVER_FLOAT TCI_CALL_OVER_SAME
#define TCI_CALL_OVER_INDEX TCI_MUST(axis, axis)

#define TCI_CALL_OF_BUILT(id, name, arity, kind, operands, ...)                                    \
    TCI_CALL(name, operands TCI_CALL_HOW_##kind)
#define TCI_GIVEN(name) TCI_MUST(name, operand)
#define TCI_ELSE(name, number) TCI_MAY(name, operand, number)
#define TCI_CALL_HOW_SAME
#define TCI_CALL_HOW_FLOAT
#define TCI_CALL_HOW_LOSS TCI_MAY(reduction, reduction, TC_REDUCE_MEAN)
#define TCI_CALL_HOW_LOSS_WIDE TCI_CALL_HOW_LOSS

#define TCI_CALLS                                                                                  \
    TCI_EW_OPS(TCI_CALL_OF_EW) TCI_BUILT_OPS(TCI_CALL_OF_BUILT)                                    \
    TCI_REDUCE_OPS(TCI_CALL_OF_REDUCE) TCI_OWN_CALLS TCI_MADE_CALLS

#endif
