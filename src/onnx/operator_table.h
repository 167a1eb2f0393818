/* onnx/operator_table.h - the table of imported ONNX operators.
 *
 * Row: X(ONNX's name, function, call, how): tci_ox_make_FUNCTION builds it, `call` selects one of
 * several ops of that function, `how` is the text for docs/onnx.md. Sorted by strcmp, for binary
 * search. */
#ifndef TCI_ONNX_OPERATOR_TABLE_H
#define TCI_ONNX_OPERATOR_TABLE_H

#include "import.h"

#define TCI_OX_ROWS(X)                                                                             \
    X(Abs, direct, "abs", "tc_abs")                                                                \
    X(Acos, direct, "acos", "tc_acos")                                                             \
    X(Acosh, direct, "acosh", "tc_acosh")                                                          \
    X(Add, binary, "add", "tc_add")                                                                \
    X(AffineGrid, affine_grid, "", "a grid of places times theta")                                 \
    X(And, binary, "logical_and", "tc_logical_and")                                                \
    X(ArgMax, arg, "argmax", "tc_argmax; the last index by tc_flip")                               \
    X(ArgMin, arg, "argmin", "tc_argmin; the last index by tc_flip")                               \
    X(Asin, direct, "asin", "tc_asin")                                                             \
    X(Asinh, direct, "asinh", "tc_asinh")                                                          \
    X(Atan, direct, "atan", "tc_atan")                                                             \
    X(Atanh, direct, "atanh", "tc_atanh")                                                          \
    X(Attention, attention, "",                                                                    \
      "tc_scaled_dot_product_attention; step by step with softcap or scores")                      \
    X(AveragePool, average_pool, "",                                                               \
      "tc_avg_pool1d to 3d; unequal padding, dilation, ceil_mode by windows")                      \
    X(BatchNormalization, batch_norm, "",                                                          \
      "tc_batch_norm; running statistics in training from opset 14")                               \
    X(BitCast, bit_cast, "", "tc_bitcast")                                                         \
    X(BitShift, shift, "", "tc_bitwise_left_shift, tc_bitwise_right_shift")                        \
    X(BitwiseAnd, binary, "bitwise_and", "tc_bitwise_and")                                         \
    X(BitwiseNot, direct, "bitwise_not", "tc_bitwise_not")                                         \
    X(BitwiseOr, binary, "bitwise_or", "tc_bitwise_or")                                            \
    X(BitwiseXor, binary, "bitwise_xor", "tc_bitwise_xor")                                         \
    X(BlackmanWindow, window, "b", "computed at import")                                           \
    X(Cast, cast, "", "tc_cast")                                                                   \
    X(CastLike, cast_like, "", "tc_cast")                                                          \
    X(CausalConvWithState, causal_conv, "", "tc_conv1d of the state and x")                        \
    X(Ceil, direct, "ceil", "tc_ceil")                                                             \
    X(Celu, celu, "", "tc_celu")                                                                   \
    X(CenterCropPad, center_crop_pad, "", "tc_slice or tc_pad")                                    \
    X(Clip, clip, "", "tc_clamp")                                                                  \
    X(Col2Im, col2im, "", "tc_scatter_add at places computed at import; 1 to 3 axes")              \
    X(Compress, compress, "", "tc_nonzero and tc_index_select; an output with a count")            \
    X(Concat, concat, "", "tc_cat")                                                                \
    X(Constant, constant, "", "a weight, or known at import")                                      \
    X(ConstantOfShape, constant_of_shape, "", "tc_full and tc_expand")                             \
    X(Conv, conv, "", "tc_conv1d to 3d; SAME of symbolic sizes by tc_pad")                         \
    X(ConvInteger, conv_integer, "", "tc_conv1d to 3d in i32")                                     \
    X(ConvTranspose, conv_transpose, "", "tc_conv_transpose1d to 3d, then cropped or padded")      \
    X(Cos, direct, "cos", "tc_cos")                                                                \
    X(Cosh, direct, "cosh", "tc_cosh")                                                             \
    X(CumProd, cumulative, "cumprod", "tc_cumprod; exclusive and reverse by tc_pad and tc_flip")   \
    X(CumSum, cumulative, "cumsum", "tc_cumsum; exclusive and reverse by tc_pad and tc_flip")      \
    X(DFT, dft, "", "tc_fft, tc_ifft, tc_rfft, tc_irfft")                                          \
    X(DeformConv, deform_conv, "", "bilinear samples at offsets, then tc_matmul; two axes")        \
    X(DepthToSpace, depth_to_space, "", "tc_reshape and tc_permute")                               \
    X(DequantizeLinear, dequantize, "", "i32 and f32 arithmetic; per axis and in blocks")          \
    X(Det, direct, "det", "tc_det")                                                                \
    X(Div, div, "", "tc_div; of integers truncating, by tc_fmod and tc_floor_divide")              \
    X(Dropout, dropout, "", "x itself; training only with ratio 0")                                \
    X(DynamicQuantizeLinear, dynamic_quantize, "", "tc_min, tc_max and f32 arithmetic")            \
    X(Einsum, einsum, "", "tc_einsum")                                                             \
    X(Elu, elu, "", "tc_elu")                                                                      \
    X(Equal, binary, "eq", "tc_eq")                                                                \
    X(Erf, direct, "erf", "tc_erf")                                                                \
    X(Exp, direct, "exp", "tc_exp")                                                                \
    X(Expand, expand, "", "tc_expand")                                                             \
    X(EyeLike, eye_like, "", "comparison of places")                                               \
    X(Flatten, flatten, "", "tc_reshape")                                                          \
    X(Floor, direct, "floor", "tc_floor")                                                          \
    X(GRU, rnn, "3", "tc_scan; both directions, lengths, activations, linear_before_reset")        \
    X(Gather, gather, "", "tc_index_select; tc_slice of a known index")                            \
    X(GatherElements, gather_elements, "", "tc_gather")                                            \
    X(GatherND, gather_nd, "", "tc_index_select of one index for all axes")                        \
    X(Gelu, gelu, "", "tc_gelu, tc_gelu_tanh")                                                     \
    X(Gemm, gemm, "", "tc_matmul, tc_mul, tc_add")                                                 \
    X(GlobalAveragePool, global_pool, "mean", "tc_mean")                                           \
    X(GlobalLpPool, global_pool, "norm", "tc_norm")                                                \
    X(GlobalMaxPool, global_pool, "max", "tc_max")                                                 \
    X(Greater, binary, "gt", "tc_gt")                                                              \
    X(GreaterOrEqual, binary, "ge", "tc_ge")                                                       \
    X(GridSample, grid_sample, "", "tc_grid_sample; cubic of two axes")                            \
    X(GroupNormalization, group_norm, "", "tc_group_norm")                                         \
    X(HammingWindow, window, "H", "computed at import")                                            \
    X(HannWindow, window, "h", "computed at import")                                               \
    X(HardSigmoid, hard_sigmoid, "", "tc_mul, tc_add, tc_clamp")                                   \
    X(HardSwish, direct, "hardswish", "tc_hardswish")                                              \
    X(Hardmax, hardmax, "", "tc_argmax and a comparison of places")                                \
    X(Identity, identity, "", "x itself")                                                          \
    X(If, if, "", "one branch where the condition is known, else tc_cond")                         \
    X(InstanceNormalization, instance_norm, "", "tc_instance_norm")                                \
    X(IsInf, is_inf, "", "tc_isinf, with the sign")                                                \
    X(IsNaN, direct, "isnan", "tc_isnan")                                                          \
    X(LRN, lrn, "", "windows of channels by tc_unfold")                                            \
    X(LSTM, rnn, "4", "tc_scan; both directions, lengths, peepholes, activations, clip")           \
    X(LayerNormalization, layer_norm, "", "tc_layer_norm; mean and 1 / deviation by tc_var_mean")  \
    X(LeakyRelu, leaky_relu, "", "tc_leaky_relu")                                                  \
    X(Less, binary, "lt", "tc_lt")                                                                 \
    X(LessOrEqual, binary, "le", "tc_le")                                                          \
    X(LinearAttention, linear_attention, "", "tc_scan")                                            \
    X(Log, direct, "log", "tc_log")                                                                \
    X(LogSoftmax, log_softmax, "", "tc_log_softmax")                                               \
    X(Loop, loop, "", "unrolled, tc_scan or tc_while; stacked results need a known count")         \
    X(LpNormalization, lp_norm, "", "tc_norm and tc_div")                                          \
    X(LpPool, lp_pool, "", "windows by tc_unfold")                                                 \
    X(MatMul, binary, "matmul", "tc_matmul")                                                       \
    X(MatMulInteger, matmul_integer, "", "tc_matmul in i32")                                       \
    X(Max, variadic, "maximum", "tc_maximum")                                                      \
    X(MaxPool, max_pool, "", "tc_max_pool1d to 3d; unequal padding and ceil_mode by tc_pad")       \
    X(MaxUnpool, max_unpool, "", "tc_scatter into zeros")                                          \
    X(Mean, mean_of, "", "tc_add and tc_div")                                                      \
    X(MeanVarianceNormalization, mean_variance, "", "tc_var_mean")                                 \
    X(MelWeightMatrix, mel, "", "computed at import")                                              \
    X(Min, variadic, "minimum", "tc_minimum")                                                      \
    X(Mish, direct, "mish", "tc_mish")                                                             \
    X(Mod, mod, "", "tc_remainder, tc_fmod")                                                       \
    X(Mul, binary, "mul", "tc_mul")                                                                \
    X(Neg, direct, "neg", "tc_neg")                                                                \
    X(NegativeLogLikelihoodLoss, nll_loss, "", "tc_gather of the target's class, weighted")        \
    X(NonZero, non_zero, "", "tc_nonzero; an output with a count")                                 \
    X(Not, direct, "logical_not", "tc_logical_not")                                                \
    X(OneHot, one_hot, "", "comparison with places")                                               \
    X(Or, binary, "logical_or", "tc_logical_or")                                                   \
    X(PRelu, prelu, "", "tc_where")                                                                \
    X(Pad, pad, "", "tc_pad, tc_pad_mode")                                                         \
    X(Pow, pow, "", "tc_pow, in the dtype of the base")                                            \
    X(QLinearConv, qlinear_conv, "", "tc_conv1d to 3d in i32, scaled in f32")                      \
    X(QLinearMatMul, qlinear_matmul, "", "tc_matmul in i32, scaled in f32")                        \
    X(QuantizeLinear, quantize, "", "f32 arithmetic, saturated; per axis and in blocks")           \
    X(RMSNormalization, rms_norm, "", "tc_rms_norm")                                               \
    X(RNN, rnn, "1", "tc_scan; both directions, lengths, activations, clip")                       \
    X(Range, range, "", "tc_arange; its numbers are known at import")                              \
    X(Reciprocal, direct, "reciprocal", "tc_reciprocal")                                           \
    X(ReduceL1, reduce, "l1", "tc_abs, tc_sum")                                                    \
    X(ReduceL2, reduce, "l2", "tc_square, tc_sum, tc_sqrt")                                        \
    X(ReduceLogSum, reduce, "log_sum", "tc_sum, tc_log")                                           \
    X(ReduceLogSumExp, reduce, "logsumexp", "tc_logsumexp")                                        \
    X(ReduceMax, reduce, "max", "tc_max")                                                          \
    X(ReduceMean, reduce, "mean", "tc_mean")                                                       \
    X(ReduceMin, reduce, "min", "tc_min")                                                          \
    X(ReduceProd, reduce, "prod", "tc_prod")                                                       \
    X(ReduceSum, reduce, "sum", "tc_sum")                                                          \
    X(ReduceSumSquare, reduce, "sum_square", "tc_square, tc_sum")                                  \
    X(Relu, direct, "relu", "tc_relu")                                                             \
    X(Reshape, reshape, "", "tc_reshape; the shape is known at import")                            \
    X(Resize, resize, "",                                                                          \
      "weighted tc_index_select along each axis; symbolic sizes nearest and linear")               \
    X(ReverseSequence, reverse_sequence, "", "tc_take_along_dim")                                  \
    X(RoiAlign, roi_align, "", "bilinear samples by tc_gather; sampling_ratio above 0")            \
    X(RotaryEmbedding, rotary, "", "tc_slice, tc_mul, tc_cat")                                     \
    X(Round, direct, "round", "tc_round")                                                          \
    X(STFT, stft, "", "tc_unfold and tc_fft")                                                      \
    X(Scan, scan, "", "tc_scan; before opset 9 one for each element of the batch")                 \
    X(Scatter, scatter_elements, "", "tc_scatter")                                                 \
    X(ScatterElements, scatter_elements, "", "tc_scatter, _add, _prod, _min, _max")                \
    X(ScatterND, scatter_nd, "", "tc_scatter and the like at one index for all axes")              \
    X(Selu, selu, "", "tc_elu and tc_mul")                                                         \
    X(Shape, shape, "", "known at import, symbolic sizes too")                                     \
    X(Shrink, shrink, "", "tc_where")                                                              \
    X(Sigmoid, direct, "sigmoid", "tc_sigmoid")                                                    \
    X(Sign, direct, "sign", "tc_sign")                                                             \
    X(Sin, direct, "sin", "tc_sin")                                                                \
    X(Sinh, direct, "sinh", "tc_sinh")                                                             \
    X(Size, size, "", "known at import, symbolic sizes too")                                       \
    X(Slice, slice, "", "tc_slice")                                                                \
    X(Softmax, softmax, "", "tc_softmax")                                                          \
    X(SoftmaxCrossEntropyLoss, cross_entropy, "",                                                  \
      "tc_log_softmax, then as NegativeLogLikelihoodLoss")                                         \
    X(Softplus, direct, "log1pexp", "tc_log1pexp")                                                 \
    X(Softsign, softsign, "", "tc_div")                                                            \
    X(SpaceToDepth, space_to_depth, "", "tc_reshape and tc_permute")                               \
    X(Split, split, "", "tc_slice")                                                                \
    X(Sqrt, direct, "sqrt", "tc_sqrt")                                                             \
    X(Squeeze, squeeze, "", "tc_reshape")                                                          \
    X(Sub, binary, "sub", "tc_sub")                                                                \
    X(Sum, variadic, "add", "tc_add")                                                              \
    X(SwiGLU, swiglu, "", "tc_silu and tc_mul")                                                    \
    X(Swish, swish, "", "tc_silu")                                                                 \
    X(Tan, direct, "tan", "tc_tan")                                                                \
    X(Tanh, direct, "tanh", "tc_tanh")                                                             \
    X(TensorScatter, tensor_scatter, "", "tc_scatter")                                             \
    X(ThresholdedRelu, thresholded_relu, "", "tc_where")                                           \
    X(Tile, tile, "", "tc_tile")                                                                   \
    X(TopK, top_k, "", "tc_topk")                                                                  \
    X(Transpose, transpose, "", "tc_permute")                                                      \
    X(Trilu, trilu, "", "tc_tril, tc_triu")                                                        \
    X(Unique, unique, "", "tc_unique; outputs with a count")                                       \
    X(Unsqueeze, unsqueeze, "", "tc_reshape")                                                      \
    X(Upsample, resize, "", "as Resize before opset 11")                                           \
    X(Where, where, "", "tc_where")                                                                \
    X(Xor, binary, "logical_xor", "tc_logical_xor")

typedef struct tci_ox_row {
    const char *name;
    void (*make)(tci_ox_op *o);
    const char *call, *how;
} tci_ox_row;

#define TCI_OX_MAKE(name) TCI_FN void tci_ox_make_##name(tci_ox_op *o)
#define TCI_ROW(name, make, call, how) TCI_OX_MAKE(make);
TCI_OX_ROWS(TCI_ROW)
#undef TCI_ROW

TCI_FN const tci_ox_row *tci_ox_rows(void);
TCI_FN int tci_ox_n_rows(void);

#endif
