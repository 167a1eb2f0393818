/* tests/grad_cases.h - an expression of one to three f64 inputs for every op that has a gradient,
 * with points where it is smooth. After inside.h and tc_test.h. */
#ifndef TC_TEST_GRAD_CASES_H
#define TC_TEST_GRAD_CASES_H

#include "grad_case.h"
#include "grad_numeric_cases.h"

/* reductions */
FN(sum_all)
{
    UNUSED;
    return tc_sum(x[0], TC_ALL, false);
}
FN(sum_first)
{
    UNUSED;
    return tc_sum(x[0], TC_AXES(0), false);
}
FN(sum_two)
{
    UNUSED;
    return tc_sum(x[0], TC_AXES(0, -1), true);
}
FN(prod_last)
{
    UNUSED;
    return tc_prod(x[0], TC_AXES(-1), false);
}
FN(prod_two)
{
    UNUSED;
    return tc_prod(x[0], TC_AXES(0, 2), true);
}
FN(max_last)
{
    UNUSED;
    return tc_max(x[0], TC_AXES(-1), false);
}
FN(max_all)
{
    UNUSED;
    return tc_max(x[0], TC_ALL, false);
}
FN(min_middle)
{
    UNUSED;
    return tc_min(x[0], TC_AXES(1), true);
}
FN(mean_two)
{
    UNUSED;
    return tc_mean(x[0], TC_AXES(0, 1), false);
}
FN(cumsum_middle)
{
    UNUSED;
    return tc_cumsum(x[0], 1);
}
FN(variance)
{
    UNUSED;
    tc_tensor d = tc_sub(x[0], tc_mean(x[0], TC_AXES(-1), true));
    return tc_mean(tc_square(d), TC_AXES(-1), false);
}

FN(var_middle)
{
    UNUSED;
    return tc_var(x[0], TC_AXES(1), 1, false);
}
FN(std_two)
{
    UNUSED;
    return tc_std(x[0], TC_AXES(0, -1), 0.5, true);
}
FN(var_and_mean)
{
    UNUSED;
    tc_tensor var, mean;
    tc_var_mean(x[0], TC_AXES(-1), 0, true, &var, &mean);
    return tc_mul(var, mean);
}

/* movement */
FN(reshape)
{
    UNUSED;
    return tc_reshape(x[0], 6, -1);
}
FN(permute)
{
    UNUSED;
    return tc_permute(x[0], 2, 0, 1);
}
FN(transpose)
{
    UNUSED;
    return tc_transpose(x[0], 0, 2);
}
FN(expand)
{
    UNUSED;
    return tc_expand(x[0], 4, 2, 3, 5);
}
FN(expand_0d)
{
    UNUSED;
    return tc_expand(x[0], 2, 3);
}
FN(squeeze)
{
    UNUSED;
    return tc_squeeze(tc_unsqueeze(x[0], 1), 1);
}
FN(slice)
{
    UNUSED;
    return tc_slice(x[0], 2, 1, 3, 1);
}
FN(slice_step)
{
    UNUSED;
    return tc_slice(x[0], 0, 1, TC_END, 3);
}
FN(slice_back)
{
    UNUSED;
    return tc_slice(x[0], 0, -2, 0, -2);
}
FN(slice_none)
{
    UNUSED;
    return tc_add(tc_sum(tc_slice(x[0], 0, 3, 3, 1), TC_ALL, false), x[0]);
}
FN(flip)
{
    UNUSED;
    return tc_flip(x[0], 1);
}
FN(pad)
{
    UNUSED;
    return tc_pad(x[0], 1, 2, 1, 0.5);
}
FN(pad_crop)
{
    UNUSED;
    return tc_pad(x[0], 2, -1, 3, 0);
}
FN(pad_fill)
{
    UNUSED;
    return tc_pad(x[0], 0, 1, 2, x[1]);
}
FN(cat)
{
    UNUSED;
    return tc_cat(TC_TENSORS(x[0], x[1], x[0]), 1);
}
FN(where)
{
    UNUSED;
    return tc_where(tc_gt(x[0], x[1]), tc_mul(x[0], 3), x[1]);
}
FN(cast)
{
    UNUSED;
    return tc_cast(tc_cast(x[0], TC_I32), TC_F64);
}
FN(gather)
{
    tc_tensor i = index_of(ctx, 6, SIZES(2, 0, -1, 2, 1, 2), 2, SIZES(2, 3));
    return tc_gather(x[0], 1, i);
}
FN(gather_short)
{
    tc_tensor i = index_of(ctx, 2, SIZES(3, -4), 2, SIZES(1, 2));
    return tc_gather(x[0], 0, i);
}
FN(index_select)
{
    tc_tensor i = index_of(ctx, 5, SIZES(1, 1, 0, -1, 1), 1, SIZES(5));
    return tc_index_select(x[0], 1, i);
}

FN(scatter_add)
{
    tc_tensor i = index_of(ctx, 8, SIZES(2, 0, -1, 2, 0, 1, 1, 1), 2, SIZES(2, 4));
    return tc_scatter_add(tc_square(x[0]), 1, i, tc_square(x[1]));
}
FN(scatter_add_short)
{
    tc_tensor i = index_of(ctx, 4, SIZES(3, -4, 3, 3), 2, SIZES(4, 1));
    return tc_scatter_add(x[0], 0, i, x[1]);
}
FN(scatter)
{
    tc_tensor i = index_of(ctx, 8, SIZES(2, 0, -1, 2, 0, 1, 1, 1), 2, SIZES(2, 4));
    return tc_scatter(x[0], 1, i, x[1]);
}
FN(scatter_max)
{
    tc_tensor i = index_of(ctx, 8, SIZES(2, 0, -1, 2, 0, 1, 1, 1), 2, SIZES(2, 4));
    return tc_add(tc_scatter_max(x[0], 1, i, x[1]), tc_scatter_min(x[0], 1, i, x[1]));
}
FN(index_add)
{
    tc_tensor i = index_of(ctx, 5, SIZES(1, 1, 0, -1, 1), 1, SIZES(5));
    return tc_index_add(x[0], 1, i, x[1]);
}

FN(rolled)
{
    UNUSED;
    return tc_rot90(tc_roll(x[0], -2, 2), 3, 0, 2);
}
FN(unfolded)
{
    UNUSED;
    return tc_unfold(x[0], 2, 3, 1);
}
FN(reflected)
{
    UNUSED;
    return tc_pad_mode(tc_pad_mode(x[0], 2, 2, 1, "reflect"), 1, 2, -1, "replicate");
}
FN(circular)
{
    UNUSED;
    return tc_pad_mode(x[0], -1, 3, 2, "circular");
}
FN(diagonal)
{
    UNUSED;
    return tc_diagonal(x[0], -1, 2, 1);
}
FN(diagonal_put)
{
    UNUSED;
    tc_tensor src = tc_reshape(tc_range(tc_range(x[0], 0, 0, 1), 1, 0, 1), 4, 1);
    return tc_mul(tc_diagonal_scatter(x[0], src, 1, 1, 0), tc_triu(x[0], 1));
}
FN(embedded)
{
    UNUSED;
    return tc_diag_embed(x[0], -1, 0, 2);
}
FN(shuffled)
{
    UNUSED;
    return tc_pixel_shuffle(tc_reshape(x[0], 1, 4, 2, 3), 2);
}
FN(slice_put)
{
    UNUSED;
    return tc_slice_scatter(x[0], x[1], 1, 1, TC_END, 2);
}
FN(select_put)
{
    UNUSED;
    return tc_select_scatter(x[0], x[1], 0, -1);
}
FN(repeated)
{
    return tc_repeat_interleave(x[0], index_of(ctx, 3, SIZES(2, 0, 3), 1, SIZES(3)), 1, 5);
}
FN(indexed)
{
    tc_tensor i = index_of(ctx, 3, SIZES(1, 0, -1), 1, SIZES(3));
    tc_tensor k = index_of(ctx, 2, SIZES(3, 0), 2, SIZES(2, 1));
    return tc_index(x[0], TC_TENSORS(i, TC_NONE, k));
}
FN(index_put)
{
    tc_tensor i = index_of(ctx, 3, SIZES(1, 0, -1), 1, SIZES(3));
    tc_tensor k = index_of(ctx, 3, SIZES(2, 0, 2), 1, SIZES(3));
    return tc_index_put(x[0], TC_TENSORS(i, k), x[1], true);
}
FN(masked)
{
    UNUSED;
    tc_tensor mask = tc_gt(x[0], 0), values;
    tc_masked_select(x[0], mask, 5, &values, NULL);
    values = tc_cat(TC_TENSORS(values, x[1]), 0);
    return tc_masked_scatter(tc_mul(x[0], 2), tc_lt(x[0], 0.5), values);
}

FN(running_product)
{
    UNUSED;
    return tc_cumprod(x[0], 1);
}
FN(running_product_zero) /* a zero among the factors: products without it */
{
    UNUSED;
    return tc_cumprod(tc_mul(x[0], tc_select_scatter(tc_full(ctx, 1, TC_F64, 3, 4),
                                                     tc_full(ctx, 0, TC_F64, 3), 1, 1)),
                      1);
}
FN(running_extremes)
{
    UNUSED;
    tc_tensor most, least;
    tc_cummax(x[0], 2, &most, NULL);
    tc_cummin(x[0], 0, &least, NULL);
    return tc_mul(most, least);
}
FN(running_log)
{
    UNUSED;
    return tc_logcumsumexp(x[0], 1);
}
FN(middle)
{
    UNUSED;
    tc_tensor median, second;
    tc_median(x[0], -1, true, &median, NULL);
    tc_kthvalue(x[0], 2, -1, true, &second, NULL);
    return tc_mul(median, second);
}
FN(scatter_prod)
{
    tc_tensor i = index_of(ctx, 8, SIZES(0, 1, 0, 0, 1, 1, 2, 0), 2, SIZES(2, 4));
    return tc_scatter_prod(x[0], 1, i, x[1]);
}
/* Matrices far from singular. */
static tc_tensor regular(tc_ctx *ctx, tc_tensor x)
{
    tc_tensor one = tc_diag(tc_full(ctx, 4, TC_F64, 3), 0);
    return tc_add(x, one);
}
FN(solved)
{
    return tc_solve(regular(ctx, x[0]), x[1]);
}
FN(inverse)
{
    return tc_matrix_power(regular(ctx, x[0]), -2);
}
FN(determinant)
{
    tc_tensor sign, log;
    tc_slogdet(regular(ctx, x[0]), &sign, &log);
    return tc_add(tc_mul(tc_det(x[0]), sign), log);
}
FN(factor)
{
    return tc_cholesky(regular(ctx, tc_matmul(x[0], tc_transpose(x[0], -1, -2))), true);
}
FN(triangular)
{
    return tc_solve_triangular(regular(ctx, x[0]), x[1], true, false, false);
}

FN(middle_and_mode)
{
    UNUSED;
    tc_tensor middle, mode;
    tc_nanmedian(x[0], -1, false, &middle, NULL);
    tc_mode(x[0], -1, false, &mode, NULL);
    return tc_mul(middle, mode);
}
FN(strided)
{
    UNUSED;
    return tc_as_strided(tc_square(x[0]), 2, SIZES(3, 3), SIZES(2, 1), 1);
}
FN(smoothed)
{
    tc_tensor t = index_of(ctx, 3, SIZES(1, 0, 3), 1, SIZES(3));
    return tc_cross_entropy_loss(x[0], t, tc_square(x[1]), -100, TC_REDUCE_SUM, 0.2);
}
FN(shared_heads)
{
    UNUSED;
    return tc_scaled_dot_product_attention(x[0], x[1], x[2], TC_NONE, true, 0);
}
FN(state_scan)
{
    UNUSED;
    return tc_ssm_scan(x[0], x[1], x[2], x[3], x[4], TC_NONE);
}

FN(near_one)
{
    UNUSED;
    return tc_gumbel_softmax(x[0], 0.7, false, 0, 5);
}
FN(looked_up)
{
    tc_tensor i = index_of(ctx, 4, SIZES(1, 2, 1, 0), 2, SIZES(2, 2));
    return tc_linear(tc_embedding(i, x[0]), x[1], x[2]);
}
FN(bytes_scaled)
{
    tc_tensor q = tc_cast(index_of(ctx, 6, SIZES(1, 200, 3, 0, 255, 9), 2, SIZES(2, 3)), TC_U8);
    return tc_dequantize(q, x[0], 7, 0);
}
FN(sparse_rows)
{
    tc_tensor rows = index_of(ctx, 4, SIZES(2, 0, 2, 2), 1, SIZES(4));
    tc_tensor columns = index_of(ctx, 4, SIZES(1, 1, 0, 1), 1, SIZES(4));
    tc_tensor starts = index_of(ctx, 4, SIZES(0, 1, 1, 4), 1, SIZES(4));
    return tc_mul(tc_coo_matmul(rows, columns, x[0], 3, x[1]),
                  tc_csr_matmul(starts, columns, x[0], x[1]));
}

FN(triangles)
{
    UNUSED;
    tc_tensor q, r;
    tc_qr(x[0], &q, &r);
    return tc_matmul(tc_square(q), tc_add(r, 1));
}
/* What does not depend on the signs of vectors. */
FN(eigen)
{
    tc_tensor values, vectors;
    tc_eigh(tc_add(x[0], tc_diag(tc_arange(ctx, 0, 3, 1, TC_F64), 0)), &values, &vectors);
    return tc_matmul(tc_square(vectors), tc_unsqueeze(values, -1));
}
FN(singular)
{
    tc_tensor u, s, vh;
    tc_svd(tc_add(x[0], tc_range(tc_diag(tc_arange(ctx, 1, 4, 1, TC_F64), 0), 0, 0, 2)), &u, &s,
           &vh);
    return tc_matmul(tc_mul(tc_square(u), tc_unsqueeze(s, -2)), tc_square(vh));
}
FN(sequence)
{
    tc_tensor t = index_of(ctx, 4, SIZES(1, 2, 2, 0), 2, SIZES(2, 2));
    tc_tensor times = index_of(ctx, 2, SIZES(3, 2), 1, SIZES(2));
    tc_tensor lengths = index_of(ctx, 2, SIZES(2, 1), 1, SIZES(2));
    return tc_ctc_loss(tc_log_softmax(x[0], -1), t, times, lengths, 0, TC_REDUCE_SUM, true);
}

FN(pieces)
{
    UNUSED;
    tc_tensor p[3], q[2], r[2], s[2];
    tc_split(x[0], 2, 1, p, 3); /* of [2, 5] */
    tc_split_with_sizes(x[0], 2, SIZES(3, 2), 1, q);
    tc_chunk(q[0], 2, 1, r);
    tc_unbind(p[1], 0, s, 2);
    tc_tensor tall = tc_tile(tc_stack(TC_TENSORS(s[0], tc_select(q[1], 0, -1)), 1), 2, 1);
    return tc_matmul(tall, tc_tensordot(tc_mul(r[0], p[0]), tc_outer(s[1], s[0]), TC_AXES(0),
                                        TC_AXES(0)));
}
FN(pairs)
{
    UNUSED;
    tc_tensor ratio = tc_complex_div(tc_complex_exp(x[0]), tc_complex_mul(x[1], tc_conj(x[0])));
    tc_tensor turned = tc_polar(tc_complex_abs(ratio), tc_angle(x[1]));
    return tc_complex_matmul(tc_complex_log(turned), tc_complex(tc_real(x[0]), tc_imag(x[1])));
}
FN(remembered) /* read both ways: the same weights */
{
    UNUSED;
    const tc_tensor weights[] = {x[1], x[2], x[3], x[3], x[1], x[2], x[3], x[3]};
    tc_tensor y, c;
    tc_lstm(x[0], x[4], x[4], TC_TENSORS_N(weights, 8), true, false, &y, NULL, &c);
    return tc_add(tc_sum(y, TC_AXES(0), false), tc_reshape(c, 1, -1));
}
FN(gated) /* by two layers */
{
    UNUSED;
    const tc_tensor weights[] = {x[1], x[2], x[3], x[3], x[2], x[1], x[3], x[3]};
    tc_tensor y, h;
    tc_gru(x[0], x[4], TC_TENSORS_N(weights, 8), false, true, &y, &h);
    return tc_mul(y, tc_select(h, 0, 0));
}

/* transforms: of pairs, of real numbers of an even and of an odd count, cut and filled up */
FN(transformed)
{
    UNUSED;
    return tc_mul(tc_fft(x[0], 0, 0, NULL), tc_ifft(x[1], 3, 0, "ortho"));
}
FN(transformed_real)
{
    UNUSED;
    return tc_square(tc_rfft(x[0], 0, -1, NULL));
}
FN(transformed_back)
{
    UNUSED;
    return tc_square(tc_irfft(x[0], 0, 0, NULL));
}
FN(transformed_odd)
{
    UNUSED;
    return tc_irfft(tc_square(tc_rfft(x[0], 7, -1, NULL)), 5, 0, NULL);
}

/* contractions */
FN(matmul)
{
    UNUSED;
    return tc_matmul(x[0], x[1]);
}
FN(einsum_outer)
{
    UNUSED;
    return tc_einsum("i,jk->kij", TC_TENSORS(x[0], x[1]));
}
FN(einsum_batch)
{
    UNUSED;
    return tc_einsum("bij,bkj->bki", TC_TENSORS(x[0], x[1]));
}
FN(einsum_lone)
{
    UNUSED;
    return tc_einsum("ij,jk->k", TC_TENSORS(x[0], x[1]));
}
FN(einsum_diagonal)
{
    UNUSED;
    return tc_einsum("ii,ij->j", TC_TENSORS(x[0], x[1]));
}
FN(einsum_three)
{
    UNUSED;
    return tc_einsum("ij,jk,kl->il", TC_TENSORS(x[0], x[1], x[2]));
}
FN(conv)
{
    UNUSED;
    return tc_conv2d(x[0], x[1], x[2], NULL);
}
FN(conv_strided)
{
    UNUSED;
    return tc_conv2d(x[0], x[1], TC_NONE,
                     &(tc_conv){.stride = {2, 3}, .padding = {1, 2}, .dilation = {2, 1}});
}
FN(conv_groups)
{
    UNUSED;
    return tc_conv2d(x[0], x[1], TC_NONE, &(tc_conv){.groups = 2, .padding = {1, 1}});
}
FN(pool)
{
    UNUSED;
    return tc_max_pool2d(x[0], &(tc_pool){.kernel = {2, 2}});
}
FN(pool_overlapping)
{
    UNUSED;
    return tc_max_pool2d(x[0], &(tc_pool){.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}});
}
FN(pool_dilated)
{
    UNUSED;
    return tc_max_pool2d(x[0], &(tc_pool){.kernel = {2, 2}, .stride = {1, 1}, .dilation = {2, 2}});
}

FN(conv_line)
{
    UNUSED;
    return tc_conv1d(x[0], x[1], x[2], &(tc_conv){.stride = {2}, .padding = {2}, .groups = 2});
}
FN(conv_volume)
{
    UNUSED;
    return tc_conv3d(x[0], x[1], TC_NONE, &(tc_conv){.padding = {0, 1, 0}});
}
FN(conv_volume_strided)
{
    UNUSED;
    return tc_conv3d(x[0], x[1], TC_NONE, &(tc_conv){.stride = {2, 2, 3}, .padding = {1, 1, 1}});
}
FN(transposed_line)
{
    UNUSED;
    return tc_conv_transpose1d(x[0], x[1], x[2],
                               &(tc_conv){.stride = {3}, .padding = {1}, .output_padding = {2}});
}
FN(transposed)
{
    UNUSED;
    return tc_conv_transpose2d(x[0], x[1], TC_NONE,
                               &(tc_conv){.stride = {2, 1}, .dilation = {1, 2}, .groups = 2});
}
FN(mean_pool)
{
    UNUSED;
    return tc_avg_pool2d(x[0], &(tc_pool){.kernel = {3, 2},
                                          .stride = {2, 2},
                                          .padding = {1, 1},
                                          .ceil_mode = true,
                                          .exclude_pad = true});
}
FN(power_pool)
{
    UNUSED;
    return tc_lp_pool1d(x[0], 3, &(tc_pool){.kernel = {2}});
}
FN(adaptive_mean)
{
    UNUSED;
    return tc_adaptive_avg_pool2d(x[0], 3, 2);
}
FN(adaptive_largest)
{
    UNUSED;
    return tc_adaptive_max_pool2d(x[0], 3, -1);
}
FN(columns)
{
    UNUSED;
    return tc_im2col(x[0], &(tc_pool){.kernel = {2, 3}, .stride = {2, 1}, .padding = {1, 0}});
}
FN(from_columns)
{
    UNUSED;
    const int64_t sizes[2] = {4, 3};
    return tc_col2im(x[0], 2, sizes, &(tc_pool){.kernel = {2, 2}, .stride = {2, 1}});
}
FN(larger)
{
    UNUSED;
    return tc_interpolate(x[0], &(tc_interpolation){.mode = "bilinear", .size = {5, 7}});
}
FN(smaller)
{
    UNUSED;
    const tc_interpolation how = {"bicubic", {3, 2}, .align_corners = true};
    return tc_interpolate(x[0], &how);
}
FN(twice)
{
    UNUSED;
    return tc_interpolate(x[0], &(tc_interpolation){.scale_factor = {2, 2}});
}
FN(sampled)
{
    UNUSED;
    return tc_grid_sample(x[0], tc_tanh(x[1]), NULL, "border", true);
}
FN(sampled_cubic)
{
    UNUSED;
    return tc_grid_sample(x[0], x[1], "bicubic", NULL, false);
}

/* composites and mixtures */
FN(softmax)
{
    UNUSED;
    return tc_softmax(x[0], 1);
}
FN(log_softmax)
{
    UNUSED;
    return tc_log_softmax(x[0], -1);
}
FN(layer_norm)
{
    UNUSED;
    return tc_layer_norm(x[0], TC_AXES(-1), x[1], x[2], 1e-3);
}
FN(layer_norm_plain)
{
    UNUSED;
    return tc_layer_norm(x[0], TC_AXES(0, 2), TC_NONE, TC_NONE, 1e-3);
}
FN(layer_norm_shared)
{
    UNUSED;
    return tc_layer_norm(x[0], TC_AXES(-1), x[1], x[1], 1e-3);
}
FN(layer_norm_eps)
{
    UNUSED;
    return tc_layer_norm(x[0], TC_AXES(1), TC_NONE, TC_NONE, x[1]);
}
FN(cross_entropy)
{
    return tc_cross_entropy(x[0], index_of(ctx, 3, SIZES(1, -1, 0), 1, SIZES(3)));
}
FN(cross_entropy_images)
{
    tc_tensor target = index_of(ctx, 6, SIZES(0, 1, 2, 2, 1, 0), 2, SIZES(2, 3));
    return tc_cross_entropy(x[0], target);
}
FN(broadcast)
{
    UNUSED;
    return tc_mul(tc_add(x[0], x[1]), tc_div(x[1], x[2]));
}
FN(fan_out)
{
    UNUSED;
    tc_tensor y = tc_mul(x[0], x[0]);
    return tc_add(tc_mul(y, y), tc_mul(y, tc_sin(x[0])));
}
FN(attention)
{
    UNUSED;
    tc_tensor scores = tc_div(tc_matmul(x[0], tc_transpose(x[1], -2, -1)), 2.0);
    return tc_matmul(tc_softmax(scores, -1), x[2]);
}

/* Rows over points where they are smooth. */
static void add_rows(void)
{
#define TCI_ROW(id, row_name, arity, rule, cost, value, gradient, doc)                             \
    if (tci_formula_gradient_kind(TCI_OP_##id) != TCI_GRADIENT_NONE) {                             \
        grad_case *c = add_case(#row_name, NULL);                                                  \
        c->row = TCI_OP_##id;                                                                      \
        for (int i = 0; i < (arity); i++) {                                                        \
            IN(c, 3, 5);                                                                           \
        }                                                                                          \
    }
    TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
    for (int i = 0; i < n_cases; i++) {
        grad_case *c = &cases[i];
        int row = c->row;
        c->second = row != TCI_OP_REMAINDER && row != TCI_OP_FLOOR_DIVIDE;
        c->inputs[0].positive = row == TCI_OP_LOG || row == TCI_OP_LOG2 || row == TCI_OP_LOG10 ||
                                row == TCI_OP_SQRT || row == TCI_OP_RSQRT || row == TCI_OP_POW ||
                                row == TCI_OP_ACOSH;
        c->inputs[0].low += row == TCI_OP_ACOSH;
        c->inputs[0].high += row == TCI_OP_ACOSH;
        c->inputs[1].positive = row == TCI_OP_XLOGY;
    }
}

/* Built rows, by their names; operands with a default are left out. */
static void add_built(void)
{
#define TCI_MUST(name, kind) +1
#define TCI_MAY(name, kind, otherwise)
#define TCI_ROW(id, row_name, arity, kind, operands, formula, doc) {#row_name, 0 operands},
    static const struct {
        const char *name;
        int n;
    } rows[] = {TCI_BUILT_OPS(TCI_ROW)};
#undef TCI_ROW
#undef TCI_MUST
#undef TCI_MAY
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        grad_case *c = add_case(rows[i].name, NULL);
        for (int k = 0; k < rows[i].n; k++) {
            IN(c, 3, 5);
            c->inputs[k].positive = !strcmp(c->name, "logit") || k == 2 ||
                                    !strcmp(c->name, "binary_cross_entropy");
        }
        c->second = true;
    }
}

/* Calls made of calls, by their names, with what has a default left out. */
static void add_made(void)
{
    static const struct {
        const char *name;
        int n, rank;
    } rows[] = {{"logsumexp", 1, 2},
                {"norm", 1, 2},
                {"normalize", 1, 2},
                {"glu", 1, 2},
                {"diff", 1, 2},
                {"trapezoid", 1, 2},
                {"cumulative_trapezoid", 1, 2},
                {"kron", 2, 2},
                {"cosine_similarity", 2, 2},
                {"pairwise_distance", 2, 2},
                {"cdist", 2, 2},
                {"scaled_dot_product_attention", 3, 3},
                {"instance_norm", 1, 3},
                {"rope", 3, 2},
                {"poisson_nll_loss", 2, 2},
                {"multilabel_soft_margin_loss", 2, 2},
                {"triplet_margin_loss", 3, 2}};
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        grad_case *c = add_case(rows[i].name, NULL);
        for (int k = 0; k < rows[i].n; k++) {
            const int64_t sizes[] = {2, 3, 4};
            add_input(c, rows[i].rank, sizes + 3 - rows[i].rank);
        }
        c->second = true;
    }
}

static void add_reductions(void)
{
    static tc_tensor (*const all[])(tc_ctx *, const tc_tensor *) = {
        sum_all,    sum_first, sum_two,       prod_last, prod_two,   max_last, max_all,
        min_middle, mean_two,  cumsum_middle, variance,  var_middle, std_two,  var_and_mean};
    static const char *const names[] = {"sum all",  "sum first",     "sum two",  "prod last",
                                        "prod two", "max last",      "max all",  "min middle",
                                        "mean two", "cumsum middle", "variance", "var middle",
                                        "std two",  "var and mean"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        grad_case *c = add_case(names[i], all[i]);
        IN(c, 2, 3, 4);
        c->second = true;
    }
}

static void add_movement(void)
{
    static tc_tensor (*const all[])(tc_ctx *, const tc_tensor *) = {reshape, permute,  transpose,
                                                                    squeeze, slice,    flip,
                                                                    pad,     pad_crop, cast};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        IN(add_case("movement of [2, 3, 4]", all[i]), 2, 3, 4);
    }
    static tc_tensor (*const more[])(tc_ctx *,
                                     const tc_tensor *) = {rolled,   unfolded, reflected,
                                                           circular, diagonal, diagonal_put,
                                                           embedded, shuffled, repeated};
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        IN(add_case("arrangement of [2, 3, 4]", more[i]), 2, 3, 4);
    }
    grad_case *p = add_case("slice_scatter", slice_put);
    IN(p, 2, 5);
    IN(p, 2, 2);
    p = add_case("select_scatter", select_put);
    IN(p, 3, 4);
    IN(p, 4);
    IN(add_case("index", indexed), 2, 3, 4);
    p = add_case("index_put", index_put);
    IN(p, 2, 3, 4);
    IN(p, 3, 4);
    p = add_case("masks", masked);
    IN(p, 3, 4);
    IN(p, 12);
    IN(add_case("expand", expand), 2, 1, 5);
    add_input(add_case("expand 0-d", expand_0d), 0, NULL);
    IN(add_case("slice with a step", slice_step), 9, 2);
    IN(add_case("slice backwards", slice_back), 8, 2);
    IN(add_case("slice of nothing", slice_none), 3);
    grad_case *c = add_case("pad with a tensor", pad_fill);
    IN(c, 2, 3);
    add_input(c, 0, NULL);
    c = add_case("cat", cat);
    IN(c, 2, 3);
    IN(c, 2, 1);
    c = add_case("where", where);
    IN(c, 2, 3);
    IN(c, 2, 3);
    c = add_case("gather", gather);
    IN(c, 2, 3);
    c->second = true;
    IN(add_case("gather of a part", gather_short), 4, 3);
    IN(add_case("index_select", index_select), 3, 4);
    c = add_case("scatter_add", scatter_add);
    IN(c, 2, 3);
    IN(c, 2, 4);
    c->second = true;
    c = add_case("scatter_add of a part", scatter_add_short);
    IN(c, 4, 3);
    IN(c, 5, 2);
    c = add_case("scatter", scatter);
    IN(c, 2, 3);
    IN(c, 2, 4);
    c = add_case("scatter_max and _min", scatter_max);
    IN(c, 2, 3);
    IN(c, 2, 4);
    c = add_case("index_add", index_add);
    IN(c, 3, 4);
    IN(c, 3, 5);
}

static void add_contractions(void)
{
    grad_case *c = add_case("matmul", matmul);
    IN(c, 3, 4);
    IN(c, 4, 2);
    c->second = true;
    c = add_case("matmul with broadcast batches", matmul);
    IN(c, 2, 1, 3, 4);
    IN(c, 5, 4, 2);
    c = add_case("vector times matrix", matmul);
    IN(c, 4);
    IN(c, 4, 2);
    c = add_case("dot", matmul);
    IN(c, 4);
    IN(c, 4);
    c = add_case("matmul without columns", matmul);
    IN(c, 5, 3);
    IN(c, 3, 0);
    c = add_case("matmul over nothing", matmul);
    IN(c, 5, 0);
    IN(c, 0, 3);
    c = add_case("einsum outer", einsum_outer);
    IN(c, 3);
    IN(c, 2, 4);
    c = add_case("einsum batch", einsum_batch);
    IN(c, 2, 3, 4);
    IN(c, 2, 5, 4);
    c = add_case("einsum lone axis", einsum_lone);
    IN(c, 3, 4);
    IN(c, 4, 2);
    c = add_case("einsum diagonal", einsum_diagonal);
    IN(c, 3, 3);
    IN(c, 3, 2);
    c = add_case("einsum of three", einsum_three);
    IN(c, 2, 3);
    IN(c, 3, 4);
    IN(c, 4, 2);
    c = add_case("conv2d", conv);
    IN(c, 2, 2, 5, 4);
    IN(c, 3, 2, 3, 2);
    IN(c, 3);
    c->second = true;
    c = add_case("conv2d with stride, padding, dilation", conv_strided);
    IN(c, 1, 2, 7, 6);
    IN(c, 3, 2, 3, 2);
    c = add_case("conv2d with groups", conv_groups);
    IN(c, 1, 4, 4, 3);
    IN(c, 6, 2, 3, 3);
    IN(add_case("max_pool2d", pool), 1, 2, 4, 6);
    IN(add_case("max_pool2d overlapping", pool_overlapping), 2, 1, 5, 4);
    IN(add_case("max_pool2d dilated", pool_dilated), 1, 1, 5, 6);
}

static void add_matrices(void)
{
    static tc_tensor (*const all[])(tc_ctx *, const tc_tensor *) = {running_product,
                                                                    running_extremes, running_log,
                                                                    middle};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        IN(add_case("running values of [2, 3, 4]", all[i]), 2, 3, 4);
    }
    IN(add_case("cumprod of a zero", running_product_zero), 3, 4);
    grad_case *c = add_case("scatter_prod", scatter_prod);
    IN(c, 2, 3);
    IN(c, 2, 4);
    c = add_case("solve", solved);
    IN(c, 2, 3, 3);
    IN(c, 3, 2);
    IN(add_case("matrix_power", inverse), 3, 3);
    IN(add_case("det", determinant), 2, 3, 3);
    IN(add_case("cholesky", factor), 2, 3, 3);
    c = add_case("solve_triangular", triangular);
    IN(c, 3, 3);
    IN(c, 2, 2, 3);
    IN(add_case("nanmedian and mode", middle_and_mode), 2, 5);
    IN(add_case("as_strided", strided), 2, 4);
    c = add_case("cross_entropy_loss", smoothed);
    IN(c, 3, 4);
    IN(c, 4);
    c = add_case("attention with shared heads", shared_heads);
    IN(c, 4, 3, 2);
    IN(c, 2, 3, 2);
    IN(c, 2, 3, 3);
    c = add_case("ssm_scan", state_scan);
    IN(c, 1, 4, 2);
    IN(c, 1, 4, 2);
    IN(c, 2, 3);
    IN(c, 1, 4, 3);
    IN(c, 1, 4, 3);
    IN(add_case("gumbel_softmax", near_one), 3, 4);
    c = add_case("embedding and linear", looked_up);
    IN(c, 3, 4);
    IN(c, 2, 4);
    IN(c, 2);
    IN(add_case("dequantize", bytes_scaled), 2);
    c = add_case("coo_matmul and csr_matmul", sparse_rows);
    IN(c, 4);
    IN(c, 2, 3);
    IN(add_case("pieces", pieces), 2, 5);
    c = add_case("complex numbers", pairs);
    IN(c, 2, 2, 2);
    IN(c, 2, 2, 2);
    c = add_case("fft and ifft", transformed);
    IN(c, 3, 4, 2);
    IN(c, 4, 4, 2);
    IN(add_case("rfft", transformed_real), 2, 6);
    IN(add_case("irfft", transformed_back), 4, 2);
    IN(add_case("rfft and irfft of odd lengths", transformed_odd), 2, 4);
}

static void add_images(void)
{
    grad_case *c = add_case("conv1d", conv_line);
    IN(c, 2, 4, 5);
    IN(c, 6, 2, 3);
    IN(c, 6);
    c = add_case("conv3d", conv_volume);
    IN(c, 1, 2, 3, 3, 4);
    IN(c, 2, 2, 2, 3, 2);
    c = add_case("conv3d, strided", conv_volume_strided);
    IN(c, 1, 2, 3, 4, 3);
    IN(c, 2, 2, 3, 2, 3);
    c = add_case("conv_transpose1d", transposed_line);
    IN(c, 2, 3, 4);
    IN(c, 3, 2, 4);
    IN(c, 2);
    c->second = true;
    c = add_case("conv_transpose2d", transposed);
    IN(c, 1, 4, 3, 2);
    IN(c, 4, 1, 2, 3);
    IN(add_case("avg_pool2d", mean_pool), 1, 2, 4, 5);
    IN(add_case("lp_pool1d", power_pool), 2, 2, 7);
    IN(add_case("adaptive_avg_pool2d", adaptive_mean), 1, 2, 7, 4);
    IN(add_case("adaptive_max_pool2d", adaptive_largest), 2, 7, 4);
    IN(add_case("im2col", columns), 1, 2, 4, 5);
    IN(add_case("col2im", from_columns), 1, 8, 4);
    IN(add_case("interpolate, larger", larger), 1, 2, 3, 4);
    IN(add_case("interpolate, smaller", smaller), 1, 2, 5, 4);
    IN(add_case("interpolate, twice", twice), 1, 2, 3, 2);
    c = add_case("grid_sample", sampled);
    IN(c, 1, 2, 4, 3);
    IN(c, 1, 2, 3, 2);
    c = add_case("grid_sample, cubic", sampled_cubic);
    IN(c, 1, 2, 4, 3);
    IN(c, 1, 2, 3, 2);
}

static void add_composites(void)
{
    grad_case *c = add_case("softmax", softmax);
    IN(c, 2, 5, 3);
    c->second = true;
    c = add_case("log_softmax", log_softmax);
    IN(c, 2, 5);
    c->second = true;
    c = add_case("layer_norm", layer_norm);
    IN(c, 3, 5);
    IN(c, 5);
    IN(c, 5);
    c->second = true;
    IN(add_case("layer_norm plain", layer_norm_plain), 2, 3, 4);
    c = add_case("layer_norm, one tensor as weight and bias", layer_norm_shared);
    IN(c, 3, 5);
    IN(c, 5);
    c = add_case("layer_norm, eps a tensor", layer_norm_eps);
    IN(c, 2, 4);
    add_input(c, 0, NULL);
    c->inputs[1].positive = true;
    c = add_case("cross_entropy", cross_entropy);
    IN(c, 3, 4);
    c->second = true;
    IN(add_case("cross_entropy of images", cross_entropy_images), 2, 4, 3);
    c = add_case("broadcasting", broadcast);
    IN(c, 2, 3);
    IN(c, 3);
    IN(c, 2, 1);
    c->second = true;
    c = add_case("fan-out", fan_out);
    IN(c, 7);
    c->second = true;
    c = add_case("attention", attention);
    IN(c, 2, 3, 4);
    IN(c, 2, 5, 4);
    IN(c, 2, 5, 2);
}

static void add_factors(void)
{
    IN(add_case("qr", triangles), 4, 2);
    grad_case *c = add_case("eigh", eigen);
    IN(c, 3, 3);
    c->second = true;
    c = add_case("svd", singular);
    IN(c, 2, 3);
    c->second = true;
    IN(add_case("ctc_loss", sequence), 3, 2, 3);
    c = add_case("lstm", remembered);
    IN(c, 3, 1, 2);
    IN(c, 8, 2);
    IN(c, 8, 2);
    IN(c, 8);
    IN(c, 2, 1, 2);
    c = add_case("gru", gated);
    IN(c, 1, 3, 2);
    IN(c, 6, 2);
    IN(c, 6, 2);
    IN(c, 6);
    IN(c, 2, 1, 2);
    for (grad_case *last = &cases[n_cases - 6]; last < &cases[n_cases]; last++) {
        last->repeats = true;
    }
}

static void add_all(void)
{
    if (!n_cases) {
        add_rows();
        add_built();
        add_made();
        add_reductions();
        add_movement();
        add_contractions();
        add_matrices();
        add_images();
        add_composites();
        add_factors();
        add_numeric();
    }
}

#endif
