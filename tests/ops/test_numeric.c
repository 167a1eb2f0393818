/* Statistics, matrix functions, short-time transforms, segments and special functions, against
 * NumPy 2.4, SciPy 1.17 and mpmath 1.3 (40 digits). */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = 1};
    ctx = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* Within `error` times |want|, and that much around 0. */
static void check_near(int line, tc_tensor t, double error, const double *want, int64_t n)
{
    double got[64];
    tc_tensor wide = tc_cast(t, TC_F64);
    REQUIRE(n <= 64);
    if (tc_read(wide, got, n) != TC_OK) {
        CHECK_MSG(false, "line %d: %s", line, tc_error(wide));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const bool same = isnan(want[i]) ? isnan(got[i])
                          : isinf(want[i])
                              ? got[i] == want[i]
                              : fabs(got[i] - want[i]) <= error * fmax(fabs(want[i]), 1);
        CHECK_MSG(same, "line %d: element %d is %.17g, not %.17g", line, (int)i, got[i], want[i]);
    }
}
#define NEAR(t, error, ...)                                                                        \
    check_near(__LINE__, (t), (error), (const double[]){__VA_ARGS__},                              \
               (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))
#define VALUES(t, ...) NEAR(t, 4e-15, __VA_ARGS__)

/* Relative to each value. */
static void check_relative(int line, tc_tensor t, double error, const double *want, int64_t n)
{
    double got[64];
    REQUIRE(n <= 64 && tc_read(t, got, n) == TC_OK);
    for (int64_t i = 0; i < n; i++) {
        CHECK_MSG(fabs(got[i] - want[i]) <= error * fabs(want[i]),
                  "line %d: element %d is %.17g, not %.17g", line, (int)i, got[i], want[i]);
    }
}
#define RELATIVE(t, error, ...)                                                                    \
    check_relative(__LINE__, (t), (error), (const double[]){__VA_ARGS__},                          \
                   (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

static tc_tensor numbers(const double *x, int rank, const int64_t *sizes)
{
    return tc_copy_in_at(ctx, x, TC_F64, rank, sizes, NULL, TC_HERE);
}
#define SIZES(...) ((const int64_t[]){__VA_ARGS__})
#define NUMBERS(rank, sizes, ...) numbers((const double[]){__VA_ARGS__}, (rank), (sizes))
#define LIST(...)                                                                                  \
    numbers((const double[]){__VA_ARGS__}, 1,                                                      \
            SIZES(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))
#define SAYS(t, text) CHECK_MSG(strstr(tc_error(t), text) != NULL, "%s", tc_error(t))

TEST(reductions_that_skip_nan)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(2, 4), 3, 1, NAN, 2, 5, 4, 9, 7);
    VALUES(tc_nansum(x, TC_AXES(1), false), 6, 25);
    VALUES(tc_nanmean(x, TC_AXES(1), true), 2, 6.25);
    VALUES(tc_nanmean(tc_slice(x, 1, 2, 3, 1), TC_AXES(1), false), NAN, 9);
    VALUES(tc_nansum(tc_slice(x, 1, 2, 3, 1), TC_AXES(1), false), 0, 9);
    tc_tensor counts = tc_count_nonzero(NUMBERS(2, SIZES(2, 3), 0, NAN, 2, 0, -0.0, 1), TC_AXES(1),
                                        false);
    CHECK_EQ_INT(tc_dtype_of(counts), TC_I64);
    VALUES(counts, 2, 1);
    tc_tensor whole = tc_arange(ctx, 0, 5, 1, TC_I32);
    CHECK_EQ_INT(tc_dtype_of(tc_nansum(whole, TC_ALL, false)), TC_I64);
    VALUES(tc_nansum(whole, TC_ALL, false), 10);
    VALUES(tc_op(ctx, "nanmean", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axes", 0))), 4, 2.5, 9, 4.5);
    tc_ctx_free(ctx);
}

TEST(quantiles_of_every_interpolation)
{
    begin();
    tc_tensor y = NUMBERS(2, SIZES(2, 4), 3, 1, -6, 2.5, 5, 4, 9, 7), q = LIST(0.1, 0.5, 0.85);
    VALUES(tc_quantile(y, q, TC_AXES(1), false, NULL), -3.9, 4.3, 1.75, 6, 2.775, 8.1);
    VALUES(tc_quantile(y, q, TC_AXES(-1), false, "lower"), -6, 4, 1, 5, 2.5, 7);
    VALUES(tc_quantile(y, q, TC_AXES(1), false, "higher"), 1, 5, 2.5, 7, 3, 9);
    VALUES(tc_quantile(y, q, TC_AXES(1), false, "nearest"), -6, 4, 2.5, 7, 3, 9);
    VALUES(tc_quantile(y, q, TC_AXES(1), false, "midpoint"), -2.5, 4.5, 1.75, 6, 2.75, 8);
    VALUES(tc_quantile(y, q, TC_AXES(0), false, "linear"), 3.2, 1.3, -4.5, 2.95, 4, 2.5, 1.5, 4.75,
           4.7, 3.55, 6.75, 6.325);
    VALUES(tc_quantile(y, 0.3, TC_ALL, false, NULL), 2.55);
    tc_tensor kept = tc_quantile(y, q, TC_AXES(0, 1), true, NULL);
    CHECK_EQ_INT(tc_rank(kept), 3);
    CHECK_EQ_INT(tc_size(kept, 0), 3);
    VALUES(kept, -1.1, 3.5, 6.9);
    VALUES(tc_quantile(y, 1, TC_AXES(1), true, NULL), 3, 9);
    VALUES(tc_quantile(LIST(1, INFINITY, INFINITY, 3), LIST(0, 1.0 / 3, 0.5, 1), TC_ALL, false,
                       NULL),
           1, 3, INFINITY, INFINITY);
    VALUES(tc_quantile(LIST(-INFINITY, 0, 3), LIST(0, 0.1, 0.4, 0.5), TC_ALL, false, NULL),
           -INFINITY, -INFINITY, -INFINITY, 0);
    VALUES(tc_quantile(LIST(-INFINITY, INFINITY), LIST(0, 0.5, 1), TC_ALL, false, NULL), -INFINITY,
           NAN, INFINITY);
    VALUES(tc_quantile(LIST(-1.5e308, 1.5e308), LIST(0.25, 0.5), TC_ALL, false, NULL), -0.75e308,
           0);
    VALUES(tc_quantile(y, LIST(-0.1, 1.1), TC_ALL, false, NULL), NAN, NAN);
    CHECK_EQ_INT(tc_dtype_of(tc_quantile(tc_cast(y, TC_F16), 0.5, TC_ALL, false, NULL)), TC_F16);
    VALUES(tc_op(ctx, "quantile", TC_TENSORS(y), TC_ATTRS(TC_ATTR("q", 0.5))), 3.5);
    tc_ctx_free(ctx);
}

TEST(quantiles_with_nan)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(3, 4), 3, 1, NAN, 2, 5, 4, 9, 7, NAN, NAN, NAN, NAN);
    tc_tensor q = LIST(0.1, 0.5, 0.85);
    VALUES(tc_quantile(x, q, TC_AXES(1), false, NULL), NAN, 4.3, NAN, NAN, 6, NAN, NAN, 8.1, NAN);
    VALUES(tc_nanquantile(x, q, TC_AXES(1), false, NULL), 1.2, 4.3, NAN, 2, 6, NAN, 2.7, 8.1, NAN);
    tc_ctx_free(ctx);
}

TEST(quantiles_refuse_what_they_cannot_take)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(2, 2), 1, 2, 3, 4);
    SAYS(tc_quantile(x, 1.5, TC_ALL, false, NULL),
         "tc_quantile: q is 1.5: expected numbers in [0, 1]");
    SAYS(tc_quantile(x, 0.5, TC_ALL, false, "cubic"), "interpolation is \"cubic\"");
    SAYS(tc_quantile(x, x, TC_ALL, false, NULL), "q has rank 2");
    SAYS(tc_quantile(x, 0.5, TC_AXES(0, -2), false, NULL), "axis -2 of rank 2: expected distinct");
    SAYS(tc_nanquantile(tc_slice(x, 0, 0, 0, 1), 0.5, TC_AXES(0), false, NULL),
         "tc_nanquantile: 0 elements are reduced");
    tc_ctx_free(ctx);
}

TEST(covariance_and_correlation)
{
    begin();
    tc_tensor y = NUMBERS(2, SIZES(2, 4), 3, 1, -6, 2.5, 5, 4, 9, 7);
    tc_tensor f = tc_cast(LIST(1, 2, 0, 3), TC_I32), a = LIST(0.5, 1, 2, 0.25);
    VALUES(tc_cov(y, 1, TC_NONE, TC_NONE), 17.395833333333332, -6.875, -6.875, 4.916666666666666);
    VALUES(tc_cov(y, 0, TC_NONE, TC_NONE), 13.046875, -5.15625, -5.15625, 3.6875);
    VALUES(tc_cov(y, 1, f, a), 0.9192307692307692, 1.0307692307692309, 1.0307692307692309,
           1.9692307692307693);
    VALUES(tc_cov(y, 1, f, TC_NONE), 0.7416666666666667, 0.9333333333333335, 0.9333333333333335,
           2.266666666666667);
    VALUES(tc_cov(y, 0, TC_NONE, a), 15.482222222222223, -8, -8, 5.066666666666666);
    tc_tensor one = tc_cov(tc_select(y, 0, 0), 1, TC_NONE, TC_NONE);
    CHECK_EQ_INT(tc_rank(one), 0);
    VALUES(one, 17.395833333333332);
    VALUES(tc_corrcoef(y), 1, -0.7433865524923551, -0.7433865524923551, 1);
    SAYS(tc_cov(y, 1, LIST(1, 2), TC_NONE), "fweights: expected one for each of 4 observations");
    SAYS(tc_corrcoef(tc_unsqueeze(y, 0)), "x has rank 3");
    tc_ctx_free(ctx);
}

TEST(closeness_within_tolerances)
{
    begin();
    tc_tensor a = LIST(1, 1.00001, NAN, INFINITY, INFINITY, 0);
    tc_tensor b = LIST(1, 1, NAN, INFINITY, 1, 1e-9);
    VALUES(tc_isclose(a, b, 0.99e-5, 1e-8, false), 1, 0, 0, 1, 0, 1);
    VALUES(tc_isclose(a, b, 1.1e-5, 0, true), 1, 1, 1, 1, 0, 0);
    VALUES(tc_allclose(a, b, 1, 1, true), 0);
    VALUES(tc_allclose(LIST(2, 2.5), 2, 0.25, 0, false), 1);
    VALUES(tc_isclose(tc_cast(LIST(5, 7), TC_U8), tc_cast(LIST(7, 5), TC_U8), 0, 2, false), 1, 1);
    SAYS(tc_allclose(a, b, -1, 0, false), "tc_allclose: rtol -1, atol 0: expected 0 or more");
    tc_ctx_free(ctx);
}

TEST(lu_and_determinants)
{
    tc_tensor p, l, u;
    begin();
    tc_tensor a = NUMBERS(2, SIZES(3, 3), 4, 1, 2, 1, 3, -1, 2, 5, 7);
    tc_lu(a, &p, &l, &u);
    VALUES(p, 1, 0, 0, 0, 0, 1, 0, 1, 0);
    VALUES(l, 1, 0, 0, 0.5, 1, 0, 0.25, 0.611111111111111, 1);
    VALUES(u, 4, 1, 2, 0, 4.5, 6, 0, 0, -5.166666666666666);
    VALUES(tc_sub(tc_matmul(p, tc_matmul(l, u)), a), 0, 0, 0, 0, 0, 0, 0, 0, 0);
    tc_lu(a, NULL, NULL, &u);
    VALUES(tc_prod(tc_diagonal(u, 0, 0, 1), TC_ALL, false), -93);
    VALUES(tc_logdet(a), 4.532599493153255);
    VALUES(tc_logdet(tc_neg(a)), NAN);
    VALUES(tc_logdet(tc_full(ctx, 1, TC_F64, 2, 2)), -INFINITY);
    tc_lu(tc_full(ctx, 1, TC_F64, 2, 3), &p, NULL, NULL);
    SAYS(p, "tc_lu: given f64 of shape [2, 3]: expected square matrices");
    tc_ctx_free(ctx);
}

TEST(least_squares_and_pseudo_inverses)
{
    begin();
    tc_tensor a = NUMBERS(2, SIZES(4, 2), 1, 2, 3, 4, 5, 6.5, -1, 0.5);
    tc_tensor b = NUMBERS(2, SIZES(4, 2), 1, 0, 2, 1, 0, 3, 4, -2);
    NEAR(tc_pinv(a, -1), 1e-14, -0.22014925373134286, 0.02611940298507461, 0.1007462686567163,
         -0.6380597014925375, 0.19402985074626838, 0.0447761194029851, 0.02985074626865682,
         0.47761194029850773);
    NEAR(tc_lstsq(a, b, -1), 1e-14, -2.7201492537313454, 1.604477611940299, 2.1940298507462703,
         -0.8208955223880601);
    NEAR(tc_lstsq(a, tc_select(b, 1, 0), -1), 1e-14, -2.7201492537313454, 2.1940298507462706);
    tc_tensor wide = tc_transpose(tc_pinv(tc_transpose(a, 0, 1), -1), 0, 1);
    NEAR(tc_sub(wide, tc_pinv(a, -1)), 1e-14, 0, 0, 0, 0, 0, 0, 0, 0);
    tc_tensor rank2 = NUMBERS(2, SIZES(3, 3), 1, 2, 3, 2, 4, 6, 1, 0, 1);
    NEAR(tc_pinv(rank2, -1), 1e-14, -1.0 / 30, -1.0 / 15, 5.0 / 6, 1.0 / 15, 2.0 / 15, -2.0 / 3,
         1.0 / 30, 1.0 / 15, 1.0 / 6);
    NEAR(tc_lstsq(rank2, LIST(1, 2, 3), -1), 2e-14, 7.0 / 3, -5.0 / 3, 2.0 / 3);
    SAYS(tc_lstsq(a, LIST(1, 2), -1), "expected one dtype, and b [..., m, k] or [..., m]");
    SAYS(tc_pinv(LIST(1, 2), -1), "tc_pinv: given f64 of rank 1: expected matrices");
    tc_ctx_free(ctx);
}

TEST(matrix_exponentials)
{
    begin();
    NEAR(tc_matrix_exp(NUMBERS(2, SIZES(3, 3), 4, 1, 2, 1, 3, -1, 2, 5, 7)), 1e-13,
         683.98938618479368, 950.67216842136499, 752.41054804891899, -109.88209815753747,
         -178.30326002166277, -155.25646848718815, 1282.6876813383702, 1836.8366090148432,
         1414.8973582910837);
    tc_tensor three = NUMBERS(3, SIZES(3, 2, 2), 0, 0, 0, 0, -50, 49, 24, -27, 0.01, 0.2, -0.3,
                              0.02);
    NEAR(tc_matrix_exp(three), 1e-13, 1, 0, 0, 1, 0.03317184084192512, 0.06588720775921032,
         0.0322712854330826, 0.06409848938196262, 0.9797992151186029, 0.20099930964248333,
         -0.3014989644637249, 0.989849180600727);
    NEAR(tc_matrix_exp(tc_cast(three, TC_F32)), 2e-6, 1, 0, 0, 1, 0.03317184084192512,
         0.06588720775921032, 0.0322712854330826, 0.06409848938196262, 0.9797992151186029,
         0.20099930964248333, -0.3014989644637249, 0.989849180600727);
    SAYS(tc_matrix_exp(LIST(1)), "tc_matrix_exp: given f64 of rank 1");
    tc_ctx_free(ctx);
}

TEST(blocks_on_the_diagonal)
{
    begin();
    tc_tensor a = NUMBERS(2, SIZES(1, 2), 1, 2), row = LIST(3, 4), one = tc_full(ctx, 5, TC_F64);
    VALUES(tc_block_diag(TC_TENSORS(a, one, row)), 1, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 3, 4);
    SAYS(tc_block_diag(TC_TENSORS(a, tc_unsqueeze(a, 0))), "operand 2 has rank 3");
    tc_ctx_free(ctx);
}

TEST(short_time_transforms)
{
    begin();
    tc_tensor s = LIST(1, -2, 0.5, 3, 4, -1, 0, 2, 2.5, -3, 1, 1.5), w = LIST(0, 0.5, 1, 0.5, 0);
    tc_stft_options o = {.n_fft = 5, .hop_length = 2, .normalized = true};
    tc_tensor y = tc_stft(s, w, &o);
    CHECK_EQ_INT(tc_size(y, 0), 3);
    CHECK_EQ_INT(tc_size(y, 1), 6);
    VALUES(y, -0.4472135954999579, 0, 0.4472135954999579, 0, 2.23606797749979, 0,
           0.22360679774997896, 0, 0.8944271909999159, 0, 0.11180339887498948, 0,
           -0.13819660112501053, -0.10040570794311367, -0.8618033988749895, 0.6881909602355867,
           -1.0590169943749475, -1.8208831085320807, -0.43090169943749473, 0.47552825814757677,
           -0.22360679774997896, -1.4767876284142871, -0.8404508497187474, 0.5722717172491382,
           0.36180339887498947, 1.1135163644116066, 0.6381966011250105, -0.16245984811645314,
           -0.059016994374947396, 1.5196659847027394, 0.31909830056250527, -0.2938926261462365,
           -0.22360679774997896, 1.438436060644513, 0.7845491502812526, 0.5006296851333552);
    tc_tensor back = tc_istft(y, w, &o);
    CHECK_EQ_INT(tc_size(back, 0), 11); /* what the frames span */
    VALUES(back, 1, -2, 0.5, 3, 4, -1, 0, 2, 2.5, -3, 1);
    o = (tc_stft_options){.n_fft = 4,
                          .hop_length = 3,
                          .win_length = 3,
                          .uncentered = true,
                          .two_sided = true};
    VALUES(tc_stft(s, LIST(1, 2, 1), &o), -2.5, 0, 10, 0, 6.5, 0, 0.5, 4, 4, -8, -2.5, -4, 5.5, 0,
           -6, 0, -1.5, 0, 0.5, -4, 4, 8, -2.5, 4);
    o = (tc_stft_options){.n_fft = 4, .length = 12};
    tc_tensor batch = tc_stack(TC_TENSORS(s, tc_mul(s, 2)), 0), again;
    again = tc_istft(tc_stft(batch, TC_NONE, &o), TC_NONE, &o);
    CHECK_EQ_INT(tc_rank(again), 2);
    VALUES(tc_max(tc_abs(tc_sub(again, batch)), TC_ALL, false), 0);
    SAYS(tc_stft(s, w, &(tc_stft_options){.n_fft = 4}),
         "the window has shape [5]: expected [4], the win_length");
    SAYS(tc_stft(s, w, NULL), "tc_stft: no n_fft is given: expected options that set it, 1 to");
    SAYS(tc_stft(s, w, &(tc_stft_options){.n_fft = -1}), "tc_stft: n_fft is -1: expected 1 to");
    SAYS(tc_istft(tc_zeros(ctx, TC_F64, 2, 5, 2), w, &(tc_stft_options){.n_fft = 5}),
         "x has shape [2, 5, 2]: expected spectra [..., 3, frames, 2] of n_fft 5");
    SAYS(tc_istft(y, w, &(tc_stft_options){.n_fft = 5, .length = -4}), "length is -4: expected");
    tc_ctx_free(ctx);
}

TEST(segments)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(5, 2), 1, 2, 3, 4, -5, 6, 7, 8, 9, 10);
    tc_tensor n = tc_cast(LIST(2, 0, 2), TC_I32);
    VALUES(tc_segment_reduce(x, "sum", n, 0), 4, 6, 0, 0, 2, 14);
    VALUES(tc_segment_reduce(x, "mean", n, 0), 2, 3, NAN, NAN, 1, 7);
    VALUES(tc_segment_reduce(x, "max", n, 0), 3, 4, -INFINITY, -INFINITY, 7, 8);
    VALUES(tc_segment_reduce(x, "min", n, 0), 1, 2, INFINITY, INFINITY, -5, 6);
    VALUES(tc_segment_reduce(x, "prod", n, 0), 3, 8, 1, 1, -35, 48);
    VALUES(tc_segment_reduce(tc_transpose(x, 0, 1), "sum", n, -1), 4, 0, 2, 6, 0, 14);
    SAYS(tc_segment_reduce(x, "median", n, 0), "reduce is \"median\"");
    SAYS(tc_segment_reduce(x, "sum", x, 0), "lengths are f64 of rank 2");
    VALUES(tc_unravel_index(tc_cast(LIST(0, 5, -1, 4), TC_I16), 2, 3), 0, 1, 1, 1, 0, 2, 2, 1);
    SAYS(tc_unravel_index(x, 2, 3), "index is f64");
    tc_ctx_free(ctx);
}

TEST(neighbours_and_parts_of_floats)
{
    tc_tensor m, e;
    begin();
    tc_tensor x = LIST(1, -1, 0, -0.0, INFINITY, NAN, 5e-324, 1.5), up = tc_full(ctx, 9, TC_F64, 8);
    VALUES(tc_sub(tc_nextafter(LIST(1, 1, -1, 2), LIST(2, 0, 0, 2)), LIST(1, 1, -1, 2)), 0x1p-52,
           -0x1p-53, 0x1p-53, 0);
    VALUES(tc_nextafter(LIST(INFINITY, 0x1.fffffffffffffp1023), LIST(0, INFINITY)),
           0x1.fffffffffffffp1023, INFINITY);
    VALUES(tc_mul(tc_nextafter(LIST(0, -0.0, 5e-324), LIST(1, -1, 0)), 0x1p1000), 0x1p-74, -0x1p-74,
           0);
    VALUES(tc_nextafter(LIST(NAN, 1), LIST(1, NAN)), NAN, NAN);
    VALUES(tc_nextafter(tc_full(ctx, 1, TC_BF16, 1), tc_full(ctx, 2, TC_BF16, 1)), 1 + 0x1p-7);
    SAYS(tc_nextafter(x, tc_cast(up, TC_F32)), "given f64 and f32");
    tc_frexp(x, &m, &e);
    CHECK_EQ_INT(tc_dtype_of(e), TC_I32);
    VALUES(m, 0.5, -0.5, 0, 0, INFINITY, NAN, 0.5, 0.75);
    VALUES(e, 1, 1, 0, 0, 0, 0, -1073, 1);
    tc_frexp(tc_cast(LIST(0x1p-24, 65504), TC_F16), &m, &e);
    VALUES(m, 0.5, 0x1.ffcp-1);
    VALUES(e, -23, 16);
    tc_frexp(tc_cast(LIST(0x1p-149, -0x1.8p127), TC_F32), &m, &e);
    VALUES(m, 0.5, -0.75);
    VALUES(e, -148, 128);
    tc_ctx_free(ctx);
}

TEST(polygamma_functions)
{
    begin();
    tc_tensor x = LIST(0.1, 0.5, 1, 2.25, 17, 120), below = LIST(-0.25, -1.5, -7.125);
    RELATIVE(tc_polygamma(0, x), 2e-15, -10.423754940411076, -1.9635100260214235,
             -0.5772156649015329, 0.5725464666237347, 2.8035133283274605, 4.783319289118529);
    RELATIVE(tc_polygamma(1, x), 2e-15, 101.43329915079275, 4.93480220054468, 1.6449340668482266,
             0.5573291545071107, 0.06058753340323937, 0.008368152004833315);
    RELATIVE(tc_polygamma(2, x), 4e-15, -2001.8614573783439, -16.828796644234316,
             -2.404113806319188, -0.3037399375369204, -0.0036697288739589626,
             -7.00255593577678e-05);
    RELATIVE(tc_polygamma(3, x), 4e-15, 60004.512876790235, 97.40909103400242, 6.493939402266829,
             0.3245440091883961, 0.00044440852538921887, 1.171955372723845e-06);
    RELATIVE(tc_polygamma(7, x), 8e-15, 504000002365.19104, 1290440.218185598, 5060.549875237641,
             8.137327047777681, 2.1440871933318984e-06, 2.068646128694039e-12);
    RELATIVE(tc_polygamma(2, below), 1e-13, 122.69736678366236, -0.2362040516417274,
             1022.2772644358678);
    RELATIVE(tc_polygamma(3, below), 1e-13, 1555.7633125348507, 194.59427621918763,
             24590.997851396616);
    SAYS(tc_polygamma(65, x), "tc_polygamma: n is 65: expected 0 to 64");
    tc_ctx_free(ctx);
}

TEST(bessel_and_incomplete_gamma_functions)
{
    begin();
    RELATIVE(tc_i0(LIST(0, 0.5, -3, 8, 8.5, 30, 700)), 4e-15, 1, 1.0634833707413236,
             4.8807925858650245, 427.5641157218048, 683.1619269901156, 781672297823.9775,
             1.5295933476718737e+302);
    tc_tensor a = LIST(0.5, 2.5, 2.5, 10, 99, 150, 150, 150, 1000, 1e6, 0.01, 3);
    tc_tensor x = LIST(0.1, 1, 9, 12, 80, 120, 150, 200, 1000, 1e6 + 2000, 5, 0.001);
    RELATIVE(tc_igamma(a, x), 2e-12, 0.345279153981423, 0.15085496391539036, 0.9970535954121197,
             0.7576078383294876, 0.022032635734132187, 0.004563441304151243, 0.5108582297493597,
             0.9999032137800506, 0.5042052441802155, 0.9771959041012301, 0.9999882464805873,
             1.6654171665278076e-10);
    RELATIVE(tc_igammac(a, x), 2e-12, 0.654720846018577, 0.8491450360846097, 0.0029464045878802906,
             0.24239216167051233, 0.9779673642658678, 0.9954365586958488, 0.4891417702506403,
             9.678621994933577e-05, 0.4957947558197845, 0.022804095898769864, 1.175351941275085e-05,
             0.9999999998334583);
    tc_tensor ends = tc_igamma(LIST(2, 0, 2, -1, 2, 0), LIST(0, 1, INFINITY, 1, -1, 0));
    VALUES(ends, 0, 1, 1, NAN, NAN, NAN);
    /* infinite, next to an operand that has no value there: as scipy.special */
    tc_tensor odd_a = LIST(INFINITY, -1, INFINITY, INFINITY),
              odd_x = LIST(-1, INFINITY, INFINITY, 3);
    VALUES(tc_igamma(odd_a, odd_x), NAN, NAN, NAN, 0);
    VALUES(tc_igammac(odd_a, odd_x), NAN, NAN, NAN, 1);
    tc_tensor g, loss = tc_sum(tc_igamma(a, x), TC_ALL, false);
    CHECK_EQ_INT(tc_grad(loss, &a, 1, &g), TC_ERR_UNSUPPORTED);
    tc_ctx_free(ctx);
}

TEST(waiting_times)
{
    double got[3];
    begin();
    tc_tensor rate = tc_full(ctx, 4, TC_F64, 20000), p = tc_full(ctx, 0.25, TC_F32, 20000);
    tc_tensor t = tc_exponential(rate, 11), n = tc_geometric(p, 12);
    tc_tensor whole = tc_all(tc_logical_and(tc_eq(n, tc_floor(n)), tc_ge(n, 1)), TC_ALL, false);
    VALUES(whole, 1);
    VALUES(tc_all(tc_ge(t, 0), TC_ALL, false), 1);
    tc_tensor means[3] = {tc_mean(t, TC_ALL, false), tc_var(t, TC_ALL, 0, false),
                          tc_mean(tc_cast(n, TC_F64), TC_ALL, false)};
    for (int i = 0; i < 3; i++) {
        REQUIRE(tc_read(means[i], &got[i], 1) == TC_OK);
    }
    CHECK(fabs(got[0] - 0.25) < 0.01);    /* six standard errors */
    CHECK(fabs(got[1] - 0.0625) < 0.008); /* of the variance */
    CHECK(fabs(got[2] - 4) < 0.15);
    VALUES(tc_geometric(tc_full(ctx, 1, TC_F32, 3), 5), 1, 1, 1);
    tc_ctx_free(ctx);
}

TEST(convolutions_padded_at_the_end)
{
    begin();
    tc_tensor x = NUMBERS(3, SIZES(1, 1, 4), 1, 2, 3, 4), w = NUMBERS(3, SIZES(1, 1, 2), 1, 10);
    VALUES(tc_conv1d(x, w, TC_NONE, &(tc_conv){.end_padding = {1}}), 21, 32, 43, 4);
    VALUES(tc_conv1d(x, w, TC_NONE, &(tc_conv){.same = true}), 21, 32, 43, 4);
    VALUES(tc_conv1d(x, w, TC_NONE, &(tc_conv){.padding = {1}, .end_padding = {1}}), 10, 21, 32, 43,
           4, 0);
    VALUES(tc_conv1d(x, w, TC_NONE, &(tc_conv){.dilation = {3}, .same = true}), 30, 41, 2, 3);
    VALUES(tc_conv_transpose1d(x, w, TC_NONE, &(tc_conv){.end_padding = {1}}), 1, 12, 23, 34);
    VALUES(tc_op(ctx, "conv1d", TC_TENSORS(x, w), TC_ATTRS(TC_ATTR("same", true))), 21, 32, 43, 4);
    SAYS(tc_conv1d(x, w, TC_NONE, &(tc_conv){.stride = {2}, .same = true}),
         "same with stride 2 and padding 0: expected a stride of 1");
    tc_ctx_free(ctx);
}

TEST_MAIN
