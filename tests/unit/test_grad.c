/* Gradients, parameters and assignments: what they mean, at ties and corners, and what is refused.
 * Values of gradients in general: tests/ops/test_grad.c. */
#include "inside.h"
#include "tc_test.h"
#include "same.h"

#include <pthread.h>

static tc_ctx *make(const char *backend)
{
    tc_ctx *ctx;
    tc_options o = {.backend = backend, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static tc_tensor values(tc_ctx *ctx, int n, const float *v)
{
    return tc_copy_in(ctx, v, TC_F32, n);
}
#define VALUES(ctx, ...)                                                                           \
    values((ctx), (int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), (float[]){__VA_ARGS__})

static tc_tensor wide(tc_ctx *ctx, int n, const double *v)
{
    return tc_copy_in(ctx, v, TC_F64, n);
}
#define WIDE(ctx, ...)                                                                             \
    wide((ctx), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

/* Within 1e-12 of `want`, relatively. */
static void check_values(int line, tc_tensor y, int n, const double *want)
{
    double got[64];
    REQUIRE(n <= 64 && tc_count(y) == n);
    CHECK_MSG(tc_read(y, got, n) == TC_OK, "line %d: %s", line, tc_error(y));
    for (int i = 0; i < n; i++) {
        bool same = got[i] == want[i] || (isnan(got[i]) && isnan(want[i]));
        CHECK_MSG(same || fabs(got[i] - want[i]) <= 1e-12 * fabs(want[i]),
                  "line %d: element %d is %.17g, expected %.17g", line, i, got[i], want[i]);
    }
}
#define CHECK_VALUES(y, ...)                                                                       \
    check_values(__LINE__, (y), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),           \
                 (double[]){__VA_ARGS__})

/* d sum(y) / d x is `want`, NaN equal to NaN. */
static void check_grad(int line, tc_tensor y, tc_tensor x, int n, const float *want)
{
    float got[16];
    tc_tensor g;
    tc_status status = tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &g);
    CHECK_MSG(status == TC_OK, "line %d: %s", line, tc_error(g));
    REQUIRE(n <= 16 && tc_count(g) == n);
    REQUIRE(tc_read(g, got, n) == TC_OK);
    for (int i = 0; i < n; i++) {
        bool same = got[i] == want[i] || (isnan(got[i]) && isnan(want[i]));
        CHECK_MSG(same || fabsf(got[i] - want[i]) < 1e-6f, "line %d: element %d is %g, expected %g",
                  line, i, (double)got[i], (double)want[i]);
    }
}
#define CHECK_GRAD(y, x, ...)                                                                      \
    check_grad(__LINE__, (y), (x), (int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)),          \
               (float[]){__VA_ARGS__})

/* ---- ties and corners: where no other source is named, values of PyTorch 2.15 on a CPU ---- */

TEST(unary_corners)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, -1, -0.0f, 0, 2, NAN);
    CHECK_GRAD(tc_relu(x), x, 0, 0, 0, 1, 1);
    CHECK_GRAD(tc_abs(x), x, -1, 0, 0, 1, 0);
    CHECK_GRAD(tc_sqrt(x), x, NAN, -INFINITY, INFINITY, 0.35355339f, NAN);
    CHECK_GRAD(tc_floor(x), x, 0, 0, 0, 0, 0);
    CHECK_GRAD(tc_square(x), x, -2, 0, 0, 4, NAN);
    tc_ctx_free(ctx);
}

TEST(ties_share)
{
    tc_ctx *ctx = make("interp");
    tc_tensor a = VALUES(ctx, 1, 2, 3), b = VALUES(ctx, 2, 2, 2);
    CHECK_GRAD(tc_maximum(a, b), a, 0, 0.5f, 1);
    CHECK_GRAD(tc_maximum(a, b), b, 1, 0.5f, 0);
    CHECK_GRAD(tc_minimum(a, b), a, 1, 0.5f, 0);
    CHECK_GRAD(tc_minimum(a, b), b, 0, 0.5f, 1);
    tc_tensor x = VALUES(ctx, 3, 1, 3, 2);
    CHECK_GRAD(tc_max(x, TC_ALL, false), x, 0.5f, 0, 0.5f, 0);
    CHECK_GRAD(tc_min(x, TC_AXES(0), true), x, 0, 1, 0, 0);
    tc_ctx_free(ctx);
}

TEST(pools_choose_the_first)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1, 1, 0, 2, 0, 1, 2, 2);
    tc_tensor y = tc_max_pool2d(tc_reshape(x, 1, 2, 4), &(tc_pool){.kernel = {2, 2}});
    CHECK_GRAD(y, x, 1, 0, 0, 1, 0, 0, 0, 0);
    tc_tensor small = VALUES(ctx, 0, 0, 0); /* windows that overlap */
    y = tc_max_pool2d(tc_reshape(small, 1, 1, 3), &(tc_pool){.kernel = {1, 2}, .stride = {1, 1}});
    CHECK_GRAD(y, small, 1, 1, 0);
    tc_ctx_free(ctx);
}

TEST(powers_at_zero)
{
    tc_ctx *ctx = make("interp");
    tc_tensor a = VALUES(ctx, 0, 0, 0, 2, 0), b = VALUES(ctx, 0, 1, 2, 0, -1);
    CHECK_GRAD(tc_pow(a, b), a, 0, 1, 0, 0, -INFINITY);
    CHECK_GRAD(tc_pow(a, b), b, 0, 0, 0, 0.69314718f, -INFINITY);
    CHECK_GRAD(tc_pow(a, 0), a, 0, 0, 0, 0, 0);
    CHECK_GRAD(tc_pow(a, 3), a, 0, 0, 0, 12, 0);
    tc_ctx_free(ctx);
}

/* d sum(y) / d x as a tensor, to be differentiated again. */
static tc_tensor once(tc_tensor y, tc_tensor x)
{
    tc_tensor g;
    REQUIRE(tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &g) == TC_OK);
    return g;
}

/* As in torch: no exponent makes NaN where x ** n is smooth, however often it is differentiated. */
TEST(powers_twice_differentiated)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 0, -0.0f, -2, 3);
    CHECK_GRAD(once(tc_pow(x, 0), x), x, 0, 0, 0, 0);
    CHECK_GRAD(once(tc_pow(x, 1), x), x, 0, 0, 0, 0);
    CHECK_GRAD(once(tc_pow(x, 2), x), x, 2, 2, 2, 2);
    CHECK_GRAD(once(tc_pow(x, 3), x), x, 0, -0.0f, -12, 18);
    CHECK_GRAD(once(once(tc_pow(x, 2), x), x), x, 0, 0, 0, 0);
    CHECK_GRAD(once(once(once(tc_pow(x, 2), x), x), x), x, 0, 0, 0, 0);
    tc_tensor a = VALUES(ctx, 0, 0, 0, -2, -2, -2, 2), b = VALUES(ctx, 0, 1, 2, 0, 1, 2, 0);
    tc_tensor y = tc_pow(a, b);
    CHECK_GRAD(once(y, a), a, 0, 0, 2, 0, 0, 2, 0);
    CHECK_GRAD(y, b, 0, 0, 0, NAN, NAN, NAN, 0.69314718f);
    /* At 0 ** b with b >= 0 the exponent's gradient is 0 by rule: so is what follows from it. */
    tc_tensor zero = VALUES(ctx, 0, 0, 0), e = VALUES(ctx, 0, 1, 2);
    tc_tensor of_e = once(tc_pow(zero, e), e);
    CHECK_GRAD(of_e, e, 0, 0, 0);
    CHECK_GRAD(of_e, zero, 0, 0, 0);
    /* Where x > 0: x ** b (log x) ** 2, and the mixed one x ** (b - 1) (1 + b log x). */
    tc_tensor p = VALUES(ctx, 2, 0.5f), q = VALUES(ctx, 3, 2);
    of_e = once(tc_pow(p, q), q);
    CHECK_GRAD(of_e, q, 3.84362411f, 0.12011325f);
    CHECK_GRAD(of_e, p, 12.3177662f, -0.19314718f);
    CHECK_GRAD(once(tc_pow(p, q), p), q, 12.3177662f, -0.19314718f);
    tc_ctx_free(ctx);
}

TEST(exponents_of_zero_have_mixed_derivatives)
{
    tc_ctx *ctx = make("interp");
    tc_tensor a = VALUES(ctx, 2, 0.5f, 4), b = VALUES(ctx, 0, 0, 0), y = tc_pow(a, b);
    CHECK_GRAD(y, a, 0, 0, 0);
    CHECK_GRAD(once(y, a), b, 0.5f, 2, 0.25f); /* a ** (b - 1) (1 + b log a), by hand */
    CHECK_GRAD(once(y, b), a, 0.5f, 2, 0.25f);
    CHECK_GRAD(once(y, a), a, 0, 0, 0);
    tc_ctx_free(ctx);
}

TEST(bounds_and_ties_of_two)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, -2, -1, 0, 1, 2, NAN);
    tc_tensor low = VALUES(ctx, -1, -1, -1, -1, -1, -1), high = VALUES(ctx, 1, 1, 1, 1, 1, 1);
    CHECK_GRAD(tc_clamp(x, -1, 1), x, 0, 0, 1, 0, 0, 0);
    CHECK_GRAD(tc_clamp(x, -1, TC_NONE), x, 0, 0, 1, 1, 1, 0);
    x = VALUES(ctx, -2, -1, 0, 1, 2, 0.5f);
    CHECK_GRAD(tc_clamp(x, low, high), x, 0, 0.5f, 1, 0.5f, 0, 1);
    CHECK_GRAD(tc_clamp(x, low, high), low, 1, 0.5f, 0, 0, 0, 0);
    CHECK_GRAD(tc_clamp(x, low, high), high, 0, 0, 0, 0.5f, 1, 0);
    tc_tensor a = VALUES(ctx, 1, 2, NAN, 1, NAN), b = VALUES(ctx, 1, 1, 1, NAN, NAN);
    CHECK_GRAD(tc_fmax(a, b), a, 0.5f, 1, 0, 1, 1);
    CHECK_GRAD(tc_fmax(a, b), b, 0.5f, 0, 1, 0, 0);
    CHECK_GRAD(tc_fmin(a, b), a, 0.5f, 0, 0, 1, 1);
    CHECK_GRAD(tc_fmin(a, b), b, 0.5f, 1, 1, 0, 0);
    tc_tensor h = VALUES(ctx, -INFINITY, -4, -3, -1, 0, 3, 4, INFINITY);
    CHECK_GRAD(tc_hardswish(h), h, 0, 0, 0, 0.16666667f, 0.5f, 1, 1, 1);
    tc_ctx_free(ctx);
}

TEST(margins_that_are_just_kept_have_no_gradient)
{
    tc_ctx *ctx = make("interp");
    tc_tensor a = VALUES(ctx, 1, 0, 2), b = VALUES(ctx, 1, 1, 1), one = VALUES(ctx, 1, 1, 1);
    CHECK_GRAD(tc_margin_ranking_loss(a, b, one, 0, TC_REDUCE_SUM), a, 0, -1, 0);
    CHECK_GRAD(tc_hinge_embedding_loss(a, VALUES(ctx, -1, -1, 1), 1, TC_REDUCE_SUM), a, 0, -1, 1);
    tc_tensor x = VALUES(ctx, 2, 1, 0), first = tc_copy_in(ctx, ((int[]){0}), TC_I32, 1);
    CHECK_GRAD(tc_multi_margin_loss(x, first, 1, 1, TC_NONE, TC_REDUCE_SUM), x, 0, 0, 0);
    tc_tensor p = VALUES(ctx, 1, 0), q = VALUES(ctx, 0, 1), away = VALUES(ctx, -1);
    CHECK_GRAD(tc_cosine_embedding_loss(tc_reshape(p, 1, 2), tc_reshape(q, 1, 2), away, 0,
                                        TC_REDUCE_SUM),
               p, 0, 0);
    tc_ctx_free(ctx);
}

/* Within a relative 1e-8 of `want`: PyTorch has 1e-12 as an f32 number. */
static void check_torch(int line, tc_tensor y, int n, const double *want)
{
    double got[16];
    REQUIRE(n <= 16 && tc_count(y) == n);
    CHECK_MSG(tc_read(y, got, n) == TC_OK, "line %d: %s", line, tc_error(y));
    for (int i = 0; i < n; i++) {
        CHECK_MSG(fabs(got[i] - want[i]) <= 1e-8 * fabs(want[i]),
                  "line %d: element %d is %.17g, expected %.17g", line, i, got[i], want[i]);
    }
}
#define CHECK_TORCH(y, ...)                                                                        \
    check_torch(__LINE__, (y), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),            \
                (double[]){__VA_ARGS__})

/* d sum(y) / d x times 1 in forward mode. */
static tc_tensor tangent(tc_tensor y, tc_tensor x)
{
    tc_tensor t, ones = tc_add(tc_mul(x, 0), 1);
    tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(ones), &t);
    return t;
}

/* Values and derivatives of PyTorch 2.15 in f64. */
TEST(binary_cross_entropy_at_0_and_1)
{
    tc_ctx *ctx = make("interp");
    const double near_1 = 1 - 0x1p-53;
    tc_tensor p = WIDE(ctx, 0, 0, 0, 1, 1, 1, 1e-20, near_1, 1e-13, 0.3, 0.9);
    tc_tensor t = WIDE(ctx, 0, 1, 0.25, 0, 1, 0.25, 1, 0.5, 0.5, 0.25, 1);
    tc_tensor y = tc_binary_cross_entropy(p, t, 1, TC_REDUCE_NONE), first = once(y, p);
    CHECK_TORCH(y, 0, 100, 25, 100, 0, 75, 46.051701859880914, 18.36840028483855,
                14.966803104461347, 0.5684994090355333, 0.10536051565782628);
    CHECK_TORCH(first, 0, -1e12, -2.5e11, 1e12, 0, 7.5e11, -1e12, 5e11, -4.9999999999995e11,
                0.23809523809523805, -1.1111111111111112);
    CHECK_TORCH(tangent(y, p), 0, -1e12, -2.5e11, 1e12, 0, 7.5e11, -1e12, 5e11, -4.9999999999995e11,
                0.23809523809523805, -1.1111111111111112);
    for (int way = 0; way < 4; way++) {
        tc_tensor g = way % 2 ? tangent(y, p) : first;
        CHECK_TORCH(way < 2 ? once(g, p) : tangent(g, p), 0, 9.999999999979999e+23,
                    2.4999999999949997e+23, 9.999999999979999e+23, 0, 7.499999999985e+23,
                    9.99999979998e+23, 4.998889961827287e+23, 4.132231404950415e+23,
                    4.308390022634707, 1.2345679012071347);
        CHECK_TORCH(way < 2 ? once(g, t) : tangent(g, t), -1e12, -1e12, -1e12, -1e12, -1e12, -1e12,
                    -1e12, -1e12, -1e12, -4.761904761904762, -11.111111111111112);
    }
    CHECK_TORCH(once(tc_binary_cross_entropy(p, t, 3, TC_REDUCE_MEAN), p), 0, -3e12 / 11,
                -7.5e11 / 11, 3e12 / 11, 0, 2.25e12 / 11, -3e12 / 11, 1.5e12 / 11,
                -1.49999999999985e12 / 11, 0.7142857142857142 / 11, -3.3333333333333335 / 11);
    /* to the target the clamped logarithms, where PyTorch's are infinite */
    CHECK_TORCH(once(y, t), 100, 100, 100, -100, -100, -100, 46.051701859880914, -36.7368005696771,
                29.933606208922495, 0.8472978603872036, -2.1972245773362196);
    tc_tensor single = VALUES(ctx, 0, 1, 1), to = VALUES(ctx, 1, 1, 0);
    y = tc_binary_cross_entropy(single, to, 1, TC_REDUCE_NONE);
    CHECK_TORCH(tc_cast(once(y, single), TC_F64), -1e12 * (1 - 4e-9), 0, 1e12 * (1 - 4e-9));
    tc_ctx_free(ctx);
}

/* Values and derivatives of PyTorch 2.15 in f64: var is clamped, its gradient is not. */
TEST(a_variance_below_eps_has_the_gradient_of_eps)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = WIDE(ctx, 1, 1, 1, 1, 2), target = WIDE(ctx, 0.5, 1, 1.001, 0.5, 1);
    tc_tensor var = WIDE(ctx, 0, 1e-7, 5e-7, 1e-6, 0.5);
    tc_tensor y = tc_gaussian_nll_loss(x, target, var, 0, TC_NONE, TC_REDUCE_NONE);
    CHECK_TORCH(y, 124993.09224472102, -6.907755278982137, -6.407755278982247, 124993.09224472102,
                0.6534264097200273);
    CHECK_TORCH(once(y, x), 500000, 0, -999.9999999998898, 500000, 2);
    CHECK_TORCH(tc_round(tangent(y, var)), -124999500000, 500000, 0, -124999500000, -1);
    for (int way = 0; way < 4; way++) {
        tc_tensor g = way % 2 ? tangent(y, var) : once(y, var);
        CHECK_TORCH(way < 2 ? once(g, var) : tangent(g, var), 2.499995e+17, -500000000000,
                    499999999999.7798, 2.499995e+17, 6);
        CHECK_TORCH(way < 2 ? once(g, x) : tangent(g, x), -500000000000, 0, 999999999.9998899,
                    -500000000000, -4);
    }
    tc_ctx_free(ctx);
}

TEST(nan_in_an_extreme_is_no_constant)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1, NAN, 2, 3, 1, 3), rows = tc_reshape(x, 2, 3);
    CHECK_GRAD(tc_max(rows, TC_AXES(1), false), x, NAN, NAN, NAN, 0.5f, 0, 0.5f);
    CHECK_GRAD(tc_min(rows, TC_AXES(1), false), x, NAN, NAN, NAN, 0, 1, 0);
    tc_tensor i = tc_copy_in(ctx, ((int[]){0, 0, 1}), TC_I32, 3), src = VALUES(ctx, NAN, 5, 4);
    tc_tensor to = VALUES(ctx, 0, 3, NAN), y = tc_scatter_max(to, 0, i, src);
    CHECK_GRAD(y, src, NAN, NAN, 1);
    CHECK_GRAD(y, to, NAN, 0, NAN);
    tc_ctx_free(ctx);
}

TEST(the_first_of_equal_rows_of_a_bag)
{
    tc_ctx *ctx = make("interp");
    tc_tensor w = VALUES(ctx, 1, 1, 1, 2), rows = tc_reshape(w, 4, 1);
    tc_tensor i = tc_copy_in(ctx, ((int[]){0, 1, 2, 0, 2, 1}), TC_I32, 6);
    tc_tensor cuts = tc_copy_in(ctx, ((int[]){0, 3, 3}), TC_I32, 3);
    tc_tensor y = tc_embedding_bag(tc_reshape(i, 2, 3), rows, TC_NONE, "max", TC_NONE, false,
                                   TC_END);
    CHECK_GRAD(y, w, 2, 0, 0, 0);
    y = tc_embedding_bag(i, rows, cuts, "max", TC_NONE, false, 0);
    CHECK_GRAD(y, w, 0, 1, 1, 0); /* rows 0 do not count; the bag between is empty */
    tc_ctx_free(ctx);
}

TEST(finite_at_singular_points)
{
    tc_ctx *ctx = make("interp");
    tc_tensor same = VALUES(ctx, 3, 3, 3), zero = VALUES(ctx, 0, 0), one = VALUES(ctx, 1, 0);
    CHECK_GRAD(tc_std(same, TC_ALL, 1, false), same, 0, 0, 0);
    CHECK_GRAD(tc_atan2(zero, one), zero, 1, 0);
    CHECK_GRAD(tc_atan2(one, zero), zero, -1, 0);
    CHECK_GRAD(tc_angle(zero), zero, 0, 0);
    tc_tensor far = VALUES(ctx, INFINITY, -INFINITY, 0.5f), none = VALUES(ctx, 0, 0, 0);
    CHECK_GRAD(tc_huber_loss(far, none, 1, TC_REDUCE_SUM), far, 1, -1, 0.5f);
    CHECK_GRAD(tc_smooth_l1_loss(far, none, 1, TC_REDUCE_SUM), far, 1, -1, 0.5f);
    tc_tensor c = VALUES(ctx, 0.25f, 0, 0), b = VALUES(ctx, -0.0f, 0, -1);
    CHECK_GRAD(tc_mul(tc_xlogy(c, b), 0), c, 0, 0, 0);
    CHECK_GRAD(tc_xlogy(c, b), c, -INFINITY, 0, 0);
    tc_tensor x = VALUES(ctx, 1, 2, 0, 0), m = tc_reshape(x, 2, 2);
    CHECK_GRAD(tc_renorm(m, 2, 0, INFINITY), x, 1, 1, 1, 1);
    CHECK_GRAD(tc_renorm(m, 2, 0, 1), x, 0.17888544f, -0.08944272f, 1, 1);
    tc_tensor ignored = tc_copy_in(ctx, ((int[]){-100, -100}), TC_I32, 2);
    tc_tensor loss = tc_cross_entropy_loss(m, ignored, TC_NONE, -100, TC_REDUCE_MEAN, 0.1);
    float value = 0;
    CHECK(tc_read(loss, &value, 1) == TC_OK && isnan(value));
    CHECK_GRAD(loss, x, 0, 0, 0, 0);
    CHECK_GRAD(tc_nll_loss(m, ignored, TC_NONE, -100, TC_REDUCE_MEAN), x, 0, 0, 0, 0);
    tc_ctx_free(ctx);
}

/* Elements that an op ignores have the gradient 0, also if they are infinite or NaN. */
TEST(elements_left_out_have_no_gradient)
{
    static const char *const how[] = {"sum", "mean", "max", "min", "prod"};
    static const double want[5][3] = {{1, 1, 1}, {0.5, 0.5, 1}, {0, 1, 1}, {1, 0, 1}, {2, 1, 1}};
    tc_ctx *ctx = make("interp");
    tc_tensor x = WIDE(ctx, 1, 2, 3, NAN, INFINITY), g;
    tc_tensor lengths = tc_copy_in(ctx, ((int[]){2, 1}), TC_I32, 2);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ_INT(tc_grad(tc_sum(tc_segment_reduce(x, how[i], lengths, 0), TC_ALL, false), &x, 1,
                             &g),
                     TC_OK);
        CHECK_VALUES(g, want[i][0], want[i][1], want[i][2], 0, 0);
        tc_tensor y = tc_segment_reduce(x, how[i], lengths, 0), dy;
        tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(WIDE(ctx, 0, 0, 4, 5, 6)), &dy);
        CHECK_VALUES(dy, 0, 4);
    }
    tc_tensor logs = VALUES(ctx, -INFINITY, NAN, -0.5f, -0.9f), rows = tc_reshape(logs, 2, 2);
    tc_tensor classes = tc_copy_in(ctx, ((int[]){0, 1}), TC_I32, 2);
    CHECK_GRAD(tc_nll_loss(rows, classes, TC_NONE, 0, TC_REDUCE_MEAN), logs, 0, 0, 0, -1);
    tc_tensor w = VALUES(ctx, 1, 2, NAN, INFINITY, 5, 6), p = VALUES(ctx, 2, INFINITY, NAN, 3);
    tc_tensor index = tc_copy_in(ctx, ((int[]){0, 1, 1, 2}), TC_I32, 2, 2);
    tc_tensor bags = tc_embedding_bag(index, tc_reshape(w, 3, 2), TC_NONE, "sum",
                                      tc_reshape(p, 2, 2), false, 1);
    CHECK_GRAD(bags, w, 2, 2, 0, 0, 3, 3);
    CHECK_GRAD(bags, p, 3, 0, 0, 11);
    CHECK_VALUES(tc_reshape(tc_cast(bags, TC_F64), 4), 2, 4, 15, 18);
    /* times after the end of a sequence; values of PyTorch 2.15 */
    tc_tensor z = WIDE(ctx, -1, -0.5, -2, -1.5, -1, -1, NAN, INFINITY, 0);
    tc_tensor label = tc_full(ctx, 1, TC_I32, 1, 1), one = tc_full(ctx, 1, TC_I32, 1);
    tc_tensor loss = tc_ctc_loss(tc_reshape(z, 3, 1, 3), label, tc_full(ctx, 2, TC_I32, 1), one, 0,
                                 TC_REDUCE_SUM, false);
    CHECK_VALUES(tc_reshape(loss, 1), 0.7056232305823568);
    CHECK_EQ_INT(tc_grad(loss, &z, 1, &g), TC_OK);
    CHECK_VALUES(g, 0.09381082211024533, -0.11940072122616951, 0.1353352832366127,
                 -0.05093845891276719, -0.3580519397673606, 0.36787944117144233, 0, 0, 0);
    tc_ctx_free(ctx);
}

/* Values and gradients of PyTorch 2.15; the tangent is their product with the direction. */
TEST(negative_norms_of_zeros_and_infinities)
{
    static const double powers[] = {-1, -2, -2.5};
    tc_ctx *ctx = make("interp");
    for (int i = 0; i < 3; i++) {
        tc_tensor x = WIDE(ctx, 0, 1, 2), far = WIDE(ctx, INFINITY, 2), slope, tangent;
        tc_tensor y = tc_norm(x, powers[i], TC_ALL, false);
        CHECK_VALUES(tc_reshape(y, 1), 0);
        tc_grad(y, &x, 1, &slope);
        CHECK_VALUES(slope, 0, 0, 0);
        tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(WIDE(ctx, 1, 0.5, -1)), &tangent);
        CHECK_VALUES(tc_reshape(tangent, 1), 0);
        y = tc_norm(far, powers[i], TC_ALL, false);
        CHECK_VALUES(tc_reshape(y, 1), 2);
        tc_grad(y, &far, 1, &slope);
        CHECK_VALUES(slope, 0, 1);
        tc_jvp(TC_TENSORS(y), TC_TENSORS(far), TC_TENSORS(WIDE(ctx, 1, 0.5)), &tangent);
        CHECK_VALUES(tc_reshape(tangent, 1), 0.5);
        y = tc_norm(WIDE(ctx, INFINITY, -INFINITY), powers[i], TC_ALL, false);
        CHECK_VALUES(tc_reshape(y, 1), INFINITY);
    }
    tc_ctx_free(ctx);
}

/* Cofactors, by hand. */
TEST(determinants_of_singular_matrices)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1, 2, 2, 4, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 0, 1);
    CHECK_GRAD(tc_det(tc_reshape(x, 4, 2, 2)), x, 4, -2, -2, 1, 2, 0, -1, 0, 0, 0, 0, 0, 1, 0, 0,
               1);
    tc_tensor y = WIDE(ctx, 1, 2, 3, 4, 5, 6, 7, 8, 9), d = tc_det(tc_reshape(y, 3, 3));
    tc_tensor first = once(d, y), second = once(tc_select(first, 0, 0), y); /* of x4 x8 - x5 x7 */
    CHECK_VALUES(tc_round(tc_mul(first, 1e9)), -3e9, 6e9, -3e9, 6e9, -12e9, 6e9, -3e9, 6e9, -3e9);
    CHECK_VALUES(tc_round(tc_mul(second, 1e9)), 0, 0, 0, 0, 9e9, -8e9, 0, -6e9, 5e9);
    tc_tensor big = tc_full(ctx, 1, TC_F32, 7, 7), g; /* of rank 1 */
    float got[49];
    REQUIRE(tc_grad(tc_det(big), &big, 1, &g) == TC_OK && tc_read(g, got, 49) == TC_OK);
    for (int i = 0; i < 49; i++) {
        CHECK(fabsf(got[i]) < 1e-5f);
    }
    tc_ctx_free(ctx);
}

/* Values of mpmath 1.3, 40 digits. */
TEST(derivatives_of_sinc_and_trigamma)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = WIDE(ctx, 0, 1e-20, 3.2e-6, 1e-3, 0.1, 0.2, 0.3, 0.75, -0.1);
    tc_tensor first = once(tc_sinc(x), x);
    CHECK_VALUES(first, 0, -3.2898681336964528729e-20, -0.00001052757802772225249,
                 -0.0032898648867278962503, -0.32575126788312395231, -0.63236144706845804555,
                 -0.90202813013888881948, -1.3429496265407771746, 0.32575126788312395231);
    CHECK_VALUES(once(first, x), -3.2898681336964528729, -3.2898681336964528729,
                 -3.2898681335967059637, -3.289858392793072026, -3.1930298359648538405,
                 -2.9092946817677033308, -2.4584852862661742298, 0.61927704533649496748,
                 -3.1930298359648538405);
    tc_tensor p = WIDE(ctx, 0.1, 0.5, 1.5, 3, 10, 40, -0.5, -0.25, -2.75, -7.3);
    first = once(tc_trigamma(p), p);
    CHECK_VALUES(first, -2001.8614573783440063, -16.828796644234319996, -0.8287966442343199956,
                 -0.1541138063191885708, -0.011049834970802067462, -0.00064082027183529858776,
                 -0.8287966442343199956, 122.69736678366236037, -124.11765305971517997,
                 68.821174063590198811);
    CHECK_VALUES(once(first, p), 60004.512876790266707, 97.409091034002437236,
                 1.4090910340024372364, 0.1189394022668291491, 0.0023199013042898683856,
                 0.000032441400151563500322, 193.40909103400243724, 1555.7633125348505998,
                 1558.4897512832936013, 769.01673398168065699);
    tc_ctx_free(ctx);
}

TEST(inverse_hyperbolic_slopes_of_large_numbers)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1e20f, 3e38f), g = tc_mul(once(tc_asinh(x), x), x);
    float got[2];
    REQUIRE(tc_read(g, got, 2) == TC_OK);
    CHECK(fabsf(got[0] - 1) < 1e-6f && fabsf(got[1] - 1) < 1e-6f);
    REQUIRE(tc_read(tc_mul(once(tc_acosh(x), x), x), got, 2) == TC_OK);
    CHECK(fabsf(got[0] - 1) < 1e-6f && fabsf(got[1] - 1) < 1e-6f);
    tc_ctx_free(ctx);
}

TEST(running_logarithms_behind_infinities)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, -INFINITY, 1, 2), w = VALUES(ctx, 1, 2, 3);
    tc_tensor g = once(tc_logcumsumexp(x, 0), x);
    CHECK_GRAD(tc_logcumsumexp(x, 0), x, 1, 1.2689414f, 0.7310586f);
    CHECK_GRAD(tc_mul(g, w), x, 0, -0.19661193f, 0.19661193f);
    tc_ctx_free(ctx);
}

TEST(products_with_zeros)
{
    tc_ctx *ctx = make("interp");
    tc_tensor none = VALUES(ctx, 2, 3, 4), one = VALUES(ctx, 2, 0, 4), two = VALUES(ctx, 0, 0, 4);
    CHECK_GRAD(tc_prod(none, TC_ALL, false), none, 12, 8, 6);
    CHECK_GRAD(tc_prod(one, TC_ALL, false), one, 0, 8, 0);
    CHECK_GRAD(tc_prod(two, TC_ALL, false), two, 0, 0, 0);
    tc_ctx_free(ctx);
}

/* Of x0 x1 x2 x3 at (0, 0, 0, 2): by hand, d^3 / dx0 dx1 dx2 = 2, and all lower ones are 0. */
TEST(third_derivatives_of_products_with_zeros)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 0, 0, 0, 2);
    tc_tensor i = tc_copy_in(ctx, ((int[]){0, 0, 0, 0}), TC_I32, 4), one = VALUES(ctx, 1);
    tc_tensor y[3] = {tc_prod(x, TC_ALL, false), tc_slice(tc_cumprod(x, 0), 0, 3, 4, 1),
                      tc_scatter_prod(one, 0, i, x)};
    for (int k = 0; k < 3; k++) {
        tc_tensor g = tc_slice(once(y[k], x), 0, 0, 1, 1);
        CHECK_GRAD(g, x, 0, 0, 0, 0);
        CHECK_GRAD(tc_slice(once(g, x), 0, 1, 2, 1), x, 0, 0, 2, 0);
    }
    tc_ctx_free(ctx);
}

/* Both branches are differentiated, and the one not taken must not leak its NaN through. */
TEST(where_blocks_the_branch_not_taken)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 4, 1);
    CHECK_GRAD(tc_where(tc_gt(x, 2), tc_sqrt(x), tc_mul(x, 3)), x, 0.25f, 3);
    tc_ctx_free(ctx);
}

TEST(reads_of_one_element_add_up)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1, 2, 3);
    tc_tensor i = tc_copy_in(ctx, ((int[]){2, 0, 2, -1}), TC_I32, 4);
    CHECK_GRAD(tc_gather(x, 0, i), x, 1, 0, 3);
    CHECK_GRAD(tc_index_select(x, 0, i), x, 1, 0, 3);
    tc_ctx_free(ctx);
}

/* ---- the call ---- */

TEST(loss_on_its_own_and_what_it_does_not_need)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1, 2), loss = tc_sum(tc_square(x), TC_ALL, false);
    tc_tensor other = VALUES(ctx, 5, 6, 7);
    tc_tensor wanted[4] = {loss, other, x, x}, grads[4];
    float one, zeros[3], twice[2][2];
    REQUIRE(tc_grad(loss, wanted, 4, grads) == TC_OK);
    CHECK(tc_read(grads[0], &one, 1) == TC_OK && one == 1);
    CHECK(tc_read(grads[1], zeros, 3) == TC_OK && !zeros[0] && !zeros[1] && !zeros[2]);
    for (int i = 0; i < 2; i++) {
        CHECK(tc_read(grads[2 + i], twice[i], 2) == TC_OK);
        CHECK(twice[i][0] == 2 && twice[i][1] == 4);
    }
    CHECK_EQ_INT(tc_grad(loss, NULL, 0, NULL), TC_OK);
    tc_ctx_free(ctx);
}

TEST(values_in_between_have_gradients)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1, 2), y = tc_mul(x, 3), z = tc_floor(y);
    tc_tensor wanted[3] = {x, y, z}, grads[3];
    tc_tensor loss = tc_sum(tc_add(tc_square(y), z), TC_ALL, false);
    float g[3][2];
    REQUIRE(tc_grad(loss, wanted, 3, grads) == TC_OK);
    for (int i = 0; i < 3; i++) {
        REQUIRE(tc_read(grads[i], g[i], 2) == TC_OK);
    }
    CHECK(g[0][0] == 18 && g[0][1] == 36);
    CHECK(g[1][0] == 6 && g[1][1] == 12);
    CHECK(g[2][0] == 1 && g[2][1] == 1);
    tc_ctx_free(ctx);
}

TEST(a_window_that_is_asked_for_has_its_own_gradient)
{
    tc_ctx *ctx = make("interp");
    tci_ctx *c = tci_ctx_of(ctx);
    tci_graph *g = &c->graph;
    tc_tensor x = VALUES(ctx, 1, 2, 3, 4), w = VALUES(ctx, 10, 20);
    const int64_t spec[4] = {0, 2, 1, 1};
    const int a[2] = {0, 1}, b[1] = {1}, out[1] = {0};
    tci_node *window = tci_build_window(g, tci_handle_node(x), 1, spec);
    tci_node *y = tci_build_contract(g, window, a, tci_handle_node(w), b, 1, out);
    tc_site here = TC_HERE;
    tc_tensor t[2] = {x, tci_handle_make(c, window, here)}, grads[2];
    tc_tensor loss = tc_sum(tci_handle_make(c, y, here), TC_ALL, false);
    float gx[4], gw[6];
    REQUIRE(tc_grad(loss, t, 2, grads) == TC_OK);
    REQUIRE(tc_read(grads[0], gx, 4) == TC_OK && tc_read(grads[1], gw, 6) == TC_OK);
    CHECK(gx[0] == 10 && gx[1] == 30 && gx[2] == 30 && gx[3] == 20);
    CHECK(gw[0] == 10 && gw[1] == 20 && gw[5] == 20);
    tc_ctx_free(ctx);
}

/* Expected: mpmath, 60 digits, of the f32 and f64 numbers that are written here. */
TEST(the_derivative_of_gelu_is_accurate_in_its_tail)
{
    static const double singles[][2] = {{-0x1.966666p+3, -4.7681709898003099e-35},
                                        {-0x1.29999ap+3, -6.0720257846873773e-19},
                                        {-0x1.c66666p+2, -3.142239649967847e-11},
                                        {-0x1.533334p+2, -1.6229121663107417e-6},
                                        {-0x1.d9999ap+1, -0.0014638870307782713},
                                        {-0x1.266666p+1, -0.05442808122793638},
                                        {-0x1.19999ap+0, -0.10397133789268323},
                                        {-0x1.333334p-2, 0.2676722244890808},
                                        {0x1.b33334p+0, 1.1153179647908621},
                                        {0x1.866666p+2, 1.0000000197087627},
                                        {0, 0.5},
                                        {1e20, 1},
                                        {-1e20, 0}};
    static const double doubles[][2] = {
        {-36.7, -4.918202900507443096e-292}, {-23.1, -1.2352921385905068331e-115},
        {-11.3, -8.3766235723392634643e-28}, {-5.9, -6.3175497522526129285e-8},
        {-2.7, -0.02466955019590032747},     {-0.2, 0.34253175176580579285},
        {3.3, 1.00520105335649337}};
    tc_ctx *ctx = make("interp");
    for (int wide = 0; wide < 2; wide++) {
        const double(*row)[2] = wide ? doubles : singles;
        int n = wide ? sizeof(doubles) / sizeof(doubles[0]) : sizeof(singles) / sizeof(singles[0]);
        for (int i = 0; i < n; i++) {
            tc_tensor x = tc_cast(tc_copy_in(ctx, row[i], TC_F64, 1), wide ? TC_F64 : TC_F32), g;
            double got;
            REQUIRE(tc_grad(tc_sum(tc_gelu(x), TC_ALL, false), &x, 1, &g) == TC_OK);
            REQUIRE(tc_read(tc_cast(g, TC_F64), &got, 1) == TC_OK);
            double off = fabs(got - row[i][1]) / fabs(row[i][1]);
            CHECK_MSG(got == row[i][1] || off < (wide ? 1.5e-15 : 5e-7),
                      "gelu'(%a) = %.9g, expected %.9g", row[i][0], got, row[i][1]);
        }
    }
    tc_ctx_free(ctx);
}

/* In f32 the derivative is computed by one formula and differentiated as another: (2 - x^2) phi(x)
 * and (x^2 - 4) x phi(x). */
TEST(higher_derivatives_of_gelu_are_accurate)
{
    tc_ctx *ctx = make("interp");
    static const float at[] = {-9,    -3.7f, -1.4142135f, -0.7517916f, -0.25f, 0,
                               -0.0f, 1e-3f, 1,           2.5f,        6};
    enum { N = sizeof(at) / sizeof(at[0]) };
    tc_tensor x = tc_copy_in(ctx, at, TC_F32, N), second = once(once(tc_gelu(x), x), x);
    float got[N], third[N];
    REQUIRE(tc_read(second, got, N) == TC_OK && tc_read(once(second, x), third, N) == TC_OK);
    for (int i = 0; i < N; i++) {
        double v = (double)at[i], phi = exp(-v * v / 2) * 0.3989422804014327;
        CHECK_MSG(fabs((double)got[i] - (2 - v * v) * phi) < 2e-7, "second at %g: %.9g", v,
                  (double)got[i]);
        CHECK_MSG(fabs((double)third[i] - (v * v - 4) * v * phi) < 5e-7, "third at %g: %.9g", v,
                  (double)third[i]);
    }
    tc_ctx_free(ctx);
}

TEST(gradients_keep_the_dtype)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = tc_cast(VALUES(ctx, 0.5f, 2), TC_BF16), g;
    REQUIRE(tc_grad(tc_sum(tc_cast(tc_gelu(x), TC_F64), TC_ALL, false), &x, 1, &g) == TC_OK);
    CHECK_EQ_INT(tc_dtype_of(g), TC_BF16);
    float v[2];
    REQUIRE(tc_read(tc_cast(g, TC_F32), v, 2) == TC_OK);
    CHECK_CLOSE(v[0], 0.8673951, 4e-3); /* computed in f32, rounded once */
    CHECK_CLOSE(v[1], 1.0852320, 4e-3);
    tc_ctx_free(ctx);
}

TEST(what_is_refused)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 1, 2), loss = tc_sum(x, TC_ALL, false), g;
    tc_tensor ints = tc_copy_in(ctx, ((int[]){1, 2}), TC_I32, 2);
    CHECK_EQ_INT(tc_grad(x, &x, 1, &g), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(g), "the loss has shape [2]: expected one element");
    CHECK_HAS(tc_error(g), "tc_grad");
    CHECK_HAS(tc_error(g), "test_grad.c");
    CHECK_EQ_INT(tc_grad(tc_sum(ints, TC_ALL, false), &x, 1, &g), TC_ERR_DTYPE);
    CHECK_EQ_INT(tc_grad(loss, &ints, 1, &g), TC_ERR_DTYPE);
    CHECK_HAS(tc_error(g), "parameter 0 is i32: only floats have gradients");
    tc_tensor bad = tc_add(x, VALUES(ctx, 1, 2, 3));
    CHECK_EQ_INT(tc_grad(tc_sum(bad, TC_ALL, false), &x, 1, &g), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(g), "tc_add");
    CHECK_EQ_INT(tc_grad(loss, &bad, 1, &g), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_grad(loss, NULL, 1, &g), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_grad(loss, &x, 1, &g), TC_OK); /* the graph stays usable */
    tc_tensor p = tc_param(ctx, (&(float){1}), TC_F32), effect = tc_assign(p, tc_mul(p, 2));
    CHECK_EQ_INT(tc_grad(effect, &p, 1, &g), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(g), "assign");
    CHECK_HAS(tc_error(g), "has no gradient");
    tc_ctx_free(ctx);
}

/* Neither the walk nor what it builds may need stack for its depth, nor more than linear time. */
TEST(a_chain_of_100000_nodes)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 0.5f), y = x, g;
    for (int i = 0; i < 100000; i++) {
        y = i % 2 ? tc_neg(y) : tc_add(y, x);
    }
    tc_stats before, after;
    tc_stats(ctx, &before);
    REQUIRE(tc_grad(tc_reshape(y, 1), &x, 1, &g) == TC_OK);
    tc_stats(ctx, &after);
    CHECK(after.nodes - before.nodes < 200010);
    tc_ctx_free(ctx);
}

/* A composite that expands is expanded between its own inputs: nothing behind them is walked. */
TEST(expanded_composites_in_a_chain)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = VALUES(ctx, 0.5f, 1), y = x, g;
    for (int i = 0; i < 3000; i++) {
        y = tc_sub(y, tc_mean(y, TC_AXES(0), true));
    }
    REQUIRE(tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &g) == TC_OK);
    tc_stats stats;
    tc_stats(ctx, &stats);
    CHECK(stats.nodes < 100000);
    tc_ctx_free(ctx);
}

/* ---- parameters ---- */

static float read_one(tc_tensor t)
{
    float v = NAN;
    CHECK_MSG(tc_read(t, &v, 1) == TC_OK, "%s", tc_error(t));
    return v;
}

static void check_assign(const char *backend)
{
    tc_ctx *ctx = make(backend);
    tc_tensor p = tc_param(ctx, ((float[]){1, 2, 3}), TC_F32, 3);
    tc_tensor by = tc_input(ctx, "by", TC_F32);
    tc_tensor sum = tc_sum(p, TC_ALL, false);
    tc_program *f;
    REQUIRE(tc_compile_fn(TC_TENSORS(by), TC_TENSORS(tc_assign(p, tc_add(p, by)), sum), NULL, &f) ==
            TC_OK);
    tc_program_info info;
    tc_program_get_info(f, &info);
    CHECK_EQ_INT(info.n_outputs, 1); /* effects take no buffer */
    float step = 10, total, now[3];
    for (int run = 0; run < 3; run++) {
        REQUIRE(tc_run(f, TC_BUFS(TC_BUF(&step, 1)), TC_BUFS(TC_BUF(&total, 1))) == TC_OK);
        CHECK(total == 6 + 30 * (float)run); /* reads see the old value */
    }
    REQUIRE(tc_read(p, now, 3) == TC_OK);
    CHECK(now[0] == 31 && now[1] == 32 && now[2] == 33);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(&step, 1)), TC_BUFS(TC_BUF(&total, 1), TC_BUF(now, 3))) ==
          TC_ERR_BUFFER);
    tc_ctx_free(ctx); /* the program lives on, and so does the parameter's memory */
    CHECK(tc_run(f, TC_BUFS(TC_BUF(&step, 1)), TC_BUFS(TC_BUF(&total, 1))) == TC_OK);
    CHECK(total == 96);
    tc_program_free(f);
}

TEST(assign_commits_at_the_end_interp)
{
    check_assign("interp");
}
TEST(assign_commits_at_the_end_cpu)
{
    check_assign("cpu");
}

TEST(parameters_swap)
{
    tc_ctx *ctx = make("interp");
    tc_tensor a = tc_param(ctx, ((float[]){1, 2}), TC_F32, 2);
    tc_tensor b = tc_param(ctx, ((float[]){3, 4}), TC_F32, 2);
    tc_program *f;
    float now[4];
    REQUIRE(tc_compile_fn(TC_TENSORS(), TC_TENSORS(tc_assign(a, tc_flip(b, 0)), tc_assign(b, a)),
                          NULL, &f) == TC_OK);
    REQUIRE(tc_run(f, TC_BUFS(), TC_BUFS()) == TC_OK);
    REQUIRE(tc_read(a, now, 2) == TC_OK && tc_read(b, now + 2, 2) == TC_OK);
    CHECK(now[0] == 4 && now[1] == 3 && now[2] == 1 && now[3] == 2);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* The new value of a is known first; put off until b has read the old one, it goes over that. */
TEST(updates_wait_for_the_last_read)
{
    tc_ctx *ctx = make("interp");
    tc_tensor a = tc_param(ctx, ((float[]){1, 2, 3}), TC_F32, 3);
    tc_tensor b = tc_param(ctx, ((float[]){0, 0, 0}), TC_F32, 3);
    tc_program *f;
    float now[6];
    REQUIRE(tc_compile_fn(TC_TENSORS(),
                          TC_TENSORS(tc_assign(a, tc_mul(a, 2)), tc_assign(b, tc_cumsum(a, 0))),
                          NULL, &f) == TC_OK);
    CHECK_EQ_INT(f->n_effects, 2);
    CHECK(f->effects[0].over_old && f->effects[1].over_old);
    REQUIRE(tc_run(f, TC_BUFS(), TC_BUFS()) == TC_OK);
    REQUIRE(tc_read(a, now, 3) == TC_OK && tc_read(b, now + 3, 3) == TC_OK);
    CHECK(now[0] == 2 && now[2] == 6 && now[3] == 1 && now[5] == 6);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(values_of_parameters_are_never_stale)
{
    tc_ctx *ctx = make("interp");
    tc_tensor p = tc_param(ctx, (&(float){1}), TC_F32), twice = tc_mul(p, 2);
    tc_program *f;
    CHECK(read_one(twice) == 2); /* evaluated; and yet no program may take that value for good */
    REQUIRE(tc_compile_fn(TC_TENSORS(), TC_TENSORS(tc_assign(p, tc_add(twice, 1))), NULL, &f) ==
            TC_OK);
    REQUIRE(tc_run(f, TC_BUFS(), TC_BUFS()) == TC_OK);
    CHECK(read_one(twice) == 6);
    REQUIRE(tc_run(f, TC_BUFS(), TC_BUFS()) == TC_OK);
    CHECK(read_one(p) == 7);
    CHECK(read_one(twice) == 14);
    CHECK(tc_eval(tc_assign(p, tc_full(ctx, 5, TC_F32))) == TC_OK); /* the lazy form */
    CHECK(read_one(twice) == 10);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(kept_parameters_stay_parameters)
{
    tc_ctx *ctx = make("interp");
    tc_scope_begin(ctx);
    tc_tensor p = tc_keep(tc_param(ctx, (&(float){1}), TC_F32));
    tc_scope_end(ctx);
    tc_tensor y = tc_add(p, 1);
    CHECK(read_one(y) == 2);
    CHECK(tc_eval(tc_assign(p, y)) == TC_OK);
    CHECK(read_one(y) == 3);
    tc_ctx_free(ctx);
}

TEST(assignments_that_are_refused)
{
    tc_ctx *ctx = make("interp");
    tc_tensor p = tc_param(ctx, ((float[]){1, 2}), TC_F32, 2), x = VALUES(ctx, 1, 2);
    tc_program *f;
    float v[2];
    CHECK_EQ_INT(tc_status_of(tc_assign(x, p)), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(tc_assign(x, p)), "expected one of tc_param");
    CHECK_EQ_INT(tc_status_of(tc_assign(p, tc_cast(x, TC_F64))), TC_ERR_DTYPE);
    CHECK_EQ_INT(tc_status_of(tc_assign(p, VALUES(ctx, 1, 2, 3))), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_status_of(tc_assign(p, tc_reshape(x, 1, 2))), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_status_of(tc_assign(p, VALUES(ctx, 1))), TC_OK);
    tc_tensor one = tc_assign(p, x), two = tc_assign(p, tc_neg(x));
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(), TC_TENSORS(one, two), NULL, &f), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_ctx_error(ctx), "two tc_assign to one parameter");
    CHECK_EQ_INT(tc_compile(tc_add(one, 1), &f), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_ctx_error(ctx), "an assign has no value");
    CHECK_EQ_INT(tc_read(one, v, 2), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_print(stdout, one), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_param(NULL, v, TC_F32, 2)), TC_ERR_HANDLE);
    tc_ctx_free(ctx);
}

/* ---- one run at a time ---- */

typedef struct busy_host {
    tc_program *f;
    tc_status inner;
} busy_host;

/* The host's parallel_for: while the run waits for it, another run is tried. */
static void busy_parallel(void *user, int n, void (*task)(void *arg, int i), void *arg)
{
    busy_host *h = user;
    if (h->f) {
        tc_program *f = h->f;
        h->f = NULL;
        h->inner = tc_run(f, TC_BUFS(), TC_BUFS());
    }
    for (int i = 0; i < n; i++) {
        task(arg, i);
    }
}

TEST(a_second_run_at_once_is_refused)
{
    enum { N = 1 << 20 };
    busy_host host = {NULL, TC_OK};
    tc_options o = {.backend = "interp",
                    .threads = 2,
                    .parallel_for = busy_parallel,
                    .parallel_user = &host};
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    float *data = calloc(N, sizeof(float));
    tc_tensor p = tc_param(ctx, data, TC_F32, N);
    tc_program *f;
    REQUIRE(tc_compile_fn(TC_TENSORS(), TC_TENSORS(tc_assign(p, tc_sin(tc_add(p, 1)))), NULL, &f) ==
            TC_OK);
    host.f = f;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS()), TC_OK);
    CHECK_MSG(!host.f, "the run asked for no threads");
    CHECK_EQ_INT(host.inner, TC_ERR_BUSY);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS()), TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
    free(data);
}

/* ---- a step of training ---- */

enum { BATCH = 64, IN = 200, HIDDEN = 256, CLASSES = 10, STEPS = 10 };

typedef struct net {
    float w1[IN * HIDDEN], w2[HIDDEN * CLASSES], b1[HIDDEN], b2[CLASSES];
    float x[BATCH * IN], losses[STEPS];
    int target[BATCH];
} net;

static void fill_net(net *n)
{
    memset(n, 0, sizeof(*n));
    for (int i = 0; i < IN * HIDDEN; i++) {
        n->w1[i] = (float)(tct_random_unit() - 0.5) * 0.2f;
    }
    for (int i = 0; i < HIDDEN * CLASSES; i++) {
        n->w2[i] = (float)(tct_random_unit() - 0.5) * 0.4f;
    }
    for (int i = 0; i < BATCH * IN; i++) {
        n->x[i] = (float)tct_random_unit();
    }
    for (int i = 0; i < BATCH; i++) {
        n->target[i] = tct_random_below(CLASSES);
    }
}

/* Trains a copy of n; the parameters and losses are then in it. False: no such backend here. */
static bool train(net *n, const char *backend, int threads)
{
    tc_options o = {.backend = backend, .threads = threads, .verify = true};
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, &o)) {
        return false;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, BATCH, IN), t = tc_input(ctx, "t", TC_I32, BATCH);
    tc_tensor p[4] = {tc_param(ctx, n->w1, TC_F32, IN, HIDDEN),
                      tc_param(ctx, n->b1, TC_F32, HIDDEN),
                      tc_param(ctx, n->w2, TC_F32, HIDDEN, CLASSES),
                      tc_param(ctx, n->b2, TC_F32, CLASSES)};
    tc_tensor hidden = tc_relu(tc_add(tc_matmul(x, p[0]), p[1])), grads[4], outs[5];
    outs[0] = tc_cross_entropy(tc_add(tc_matmul(hidden, p[2]), p[3]), t);
    REQUIRE(tc_grad(outs[0], p, 4, grads) == TC_OK);
    for (int i = 0; i < 4; i++) {
        outs[1 + i] = tc_assign(p[i], tc_sub(p[i], tc_mul(grads[i], 0.05)));
    }
    tc_program *f;
    REQUIRE(tc_compile_fn(TC_TENSORS(x, t), (tc_tensors){outs, 5}, NULL, &f) == TC_OK);
    CHECK(f->max_threads == threads || !strcmp(backend, "interp")); /* large enough to be cut */
    for (int i = 0; i < STEPS; i++) {
        REQUIRE(tc_run(f, TC_BUFS(TC_BUF(n->x, BATCH * IN), TC_BUF(n->target, BATCH)),
                       TC_BUFS(TC_BUF(&n->losses[i], 1))) == TC_OK);
    }
    CHECK(tc_read(p[0], n->w1, IN * HIDDEN) == TC_OK && tc_read(p[1], n->b1, HIDDEN) == TC_OK);
    CHECK(tc_read(p[2], n->w2, HIDDEN * CLASSES) == TC_OK &&
          tc_read(p[3], n->b2, CLASSES) == TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return true;
}

/* The same network by hand, in double. */
static double plain_loss(const net *n)
{
    double loss = 0;
    for (int i = 0; i < BATCH; i++) {
        double z[CLASSES], most = -1e30, sum = 0;
        for (int c = 0; c < CLASSES; c++) {
            z[c] = (double)n->b2[c];
        }
        for (int h = 0; h < HIDDEN; h++) {
            double v = (double)n->b1[h];
            for (int k = 0; k < IN; k++) {
                v += (double)n->x[i * IN + k] * (double)n->w1[k * HIDDEN + h];
            }
            for (int c = 0; c < CLASSES && v > 0; c++) {
                z[c] += v * (double)n->w2[h * CLASSES + c];
            }
        }
        for (int c = 0; c < CLASSES; c++) {
            most = z[c] > most ? z[c] : most;
        }
        for (int c = 0; c < CLASSES; c++) {
            sum += exp(z[c] - most);
        }
        loss -= (z[n->target[i]] - most - log(sum)) / BATCH;
    }
    return loss;
}

TEST(a_network_learns_the_same_everywhere)
{
    static net start, on_interp, on_cpu, on_two;
    fill_net(&start);
    on_interp = on_cpu = on_two = start;
    REQUIRE(train(&on_interp, "interp", 1));
    CHECK_CLOSE(on_interp.losses[0], plain_loss(&start), 1e-5);
    CHECK(on_interp.losses[STEPS - 1] < 0.9f * on_interp.losses[0]);
    CHECK(plain_loss(&on_interp) < (double)on_interp.losses[STEPS - 1]);
    if (!train(&on_cpu, "cpu", 1) || !train(&on_two, "cpu", 2)) {
        SKIP("no backend cpu here");
    }
    CHECK(same_bits(TC_F32, &on_cpu, &on_interp, sizeof(net) / sizeof(float)));
    CHECK(same_bits(TC_F32, &on_cpu, &on_two, sizeof(net) / sizeof(float)));
}

TEST_MAIN
