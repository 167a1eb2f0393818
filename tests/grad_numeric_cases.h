/* tests/grad_numeric_cases.h - gradient cases of statistics, matrix functions, transforms,
 * segmented reductions and special functions. After grad_case.h. */
#ifndef TC_TEST_GRAD_NUMERIC_CASES_H
#define TC_TEST_GRAD_NUMERIC_CASES_H

#include "grad_case.h"

FN(skipping_nan)
{
    tc_tensor hole = tc_cat(TC_TENSORS(x[0], tc_full(ctx, NAN, TC_F64, 2, 1)), 1);
    return tc_add(tc_nansum(hole, TC_AXES(1), false), tc_nanmean(hole, TC_ALL, false));
}
FN(quartiles)
{
    tc_tensor q = tc_linspace(ctx, 0.1, 0.9, 3, TC_F64);
    return tc_add(tc_quantile(x[0], q, TC_AXES(0, 1), false, NULL),
                  tc_nanquantile(x[0], q, TC_AXES(1, 0), false, "midpoint"));
}
FN(covariance)
{
    UNUSED;
    return tc_add(tc_cov(x[0], 1, TC_NONE, TC_NONE), tc_corrcoef(x[0]));
}
FN(lower_upper)
{
    UNUSED;
    tc_tensor l, u;
    tc_lu(x[0], NULL, &l, &u);
    return tc_add(tc_logdet(tc_matmul(x[0], tc_transpose(x[0], 0, 1))), tc_mul(l, tc_sin(u)));
}
FN(pseudo_inverse)
{
    UNUSED;
    return tc_pinv(x[0], -1);
}
FN(least_squares)
{
    UNUSED;
    return tc_lstsq(x[0], x[1], -1);
}
FN(matrix_exponential)
{
    UNUSED;
    return tc_matrix_exp(x[0]);
}
FN(blocks)
{
    UNUSED;
    return tc_block_diag(TC_TENSORS(x[0], x[1], x[0]));
}
FN(spectrum)
{
    UNUSED;
    return tc_stft(x[0], x[1], &(tc_stft_options){.n_fft = 4});
}
FN(resynthesis)
{
    UNUSED;
    tc_stft_options o = {.n_fft = 4, .hop_length = 1};
    return tc_istft(tc_square(tc_stft(x[0], x[1], &o)), x[1], &o);
}
FN(segmented)
{
    tc_tensor n = index_of(ctx, 3, SIZES(2, 1, 2), 1, SIZES(3));
    return tc_cat(TC_TENSORS(tc_segment_reduce(x[0], "mean", n, 0),
                             tc_segment_reduce(x[0], "max", n, 0),
                             tc_segment_reduce(x[0], "prod", n, 0)),
                  0);
}
FN(mantissas)
{
    UNUSED;
    tc_tensor m;
    tc_frexp(x[0], &m, NULL);
    return m;
}
FN(polygammas)
{
    UNUSED;
    return tc_add(tc_polygamma(2, x[0]), tc_polygamma(5, x[0]));
}
FN(bessel)
{
    UNUSED;
    return tc_add(tc_i0(x[0]), tc_i0(tc_mul(x[0], 20)));
}
FN(incomplete_gamma)
{
    tc_tensor a = tc_linspace(ctx, 0.5, 120, 4, TC_F64);
    tc_tensor at = tc_mul(tc_abs(x[0]), tc_add(a, 1));
    return tc_sub(tc_igamma(a, at), tc_square(tc_igammac(a, at)));
}
FN(padded_at_the_end)
{
    UNUSED;
    return tc_conv1d(x[0], x[1], TC_NONE, &(tc_conv){.padding = {1}, .end_padding = {2}});
}

static void add_numeric(void)
{
    IN(add_case("nansum and nanmean", skipping_nan), 2, 3);
    grad_case *c = add_case("quantile", quartiles);
    IN(c, 3, 4);
    c = add_case("cov and corrcoef", covariance);
    IN(c, 2, 5);
    c->second = true;
    c = add_case("i0", bessel);
    IN(c, 5);
    c->second = true;
    c = add_case("polygamma", polygammas);
    IN(c, 4);
    c->second = true;
    IN(add_case("frexp", mantissas), 4);
    IN(add_case("segment_reduce", segmented), 5, 2);
    c = add_case("block_diag", blocks);
    IN(c, 2, 1);
    IN(c, 2, 3);
    c = add_case("stft", spectrum);
    IN(c, 2, 7);
    IN(c, 4);
    c = add_case("istft", resynthesis);
    IN(c, 6);
    IN(c, 4);
    c->inputs[1].positive = true;
    c = add_case("conv1d padded at the end", padded_at_the_end);
    IN(c, 1, 2, 5);
    IN(c, 2, 2, 3);
    const int first = n_cases;
    c = add_case("lu and logdet", lower_upper);
    IN(c, 3, 3);
    c = add_case("pinv", pseudo_inverse);
    IN(c, 2, 3);
    c->second = true;
    c = add_case("lstsq", least_squares);
    IN(c, 4, 2);
    IN(c, 4, 3);
    c = add_case("matrix_exp", matrix_exponential);
    IN(c, 3, 3);
    c->second = true;
    c = add_case("igamma by x", incomplete_gamma);
    IN(c, 4);
    c->second = true;
    for (int i = first; i < n_cases; i++) {
        cases[i].repeats = true;
    }
}

#endif
