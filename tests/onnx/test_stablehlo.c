/* tests/onnx/test_stablehlo.c - graphs of tc as StableHLO modules, compiled and run by XLA, which
 * shares no code with tc. Needs a Python with jax (tests/elsewhere.h); else those tests are
 * skipped. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "elsewhere.h"
#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void end(void)
{
    tc_ctx_free(ctx);
    io_clean();
}

/* The module's text; the caller frees it. */
static io_bytes text_of(tc_tensors inputs, tc_tensors outputs, const tc_stablehlo_export *how)
{
    CHECK_MSG(tc_export_stablehlo(inputs, outputs, how, io_path("net.mlir")) == TC_OK, "%s",
              tc_error(ctx));
    io_bytes b = io_slurp(io_path("net.mlir"));
    b.at[b.n] = 0;
    return b;
}

TEST(convolutions_and_pools_leave_as_themselves)
{
    begin();
    tc_tensor x = tc_input(ctx, "image", TC_F32, 1, 3, 8, 8);
    tc_tensor w = tc_randn(ctx, 1, TC_F32, 4, 3, 3, 3);
    tc_conv same = {.padding = {1, 1}};
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &same);
    y = tc_max_pool2d(y, &(tc_pool){.kernel = {2, 2}});
    io_bytes b = text_of(TC_TENSORS(x), TC_TENSORS(y), NULL);
    const char *text = (const char *)b.at;
    CHECK_HAS(text, "// %arg0: image");
    CHECK_HAS(text, "stablehlo.convolution(");
    CHECK_HAS(text, "stablehlo.reduce_window");
    CHECK(!strstr(text, "stablehlo.gather"));
    free(b.at);
    end();
}

TEST(symbolic_sizes_are_told)
{
    begin();
    int64_t n = TC_DIM("n", 1, 64);
    tc_tensor x = tc_input(ctx, "x", TC_F32, n, 4), y = tc_softmax(tc_mul(x, 2), 0);
    tc_stablehlo_export how = {.sizes = &(tc_onnx_size){"n", 7}, .n_sizes = 1};
    io_bytes b = text_of(TC_TENSORS(x), TC_TENSORS(y), &how);
    CHECK_HAS((const char *)b.at, "@main(%arg0: tensor<7x4xf32>) -> (tensor<7x4xf32>)");
    free(b.at);
    CHECK(tc_export_stablehlo(TC_TENSORS(x), TC_TENSORS(y), NULL, io_path("x.mlir")) ==
          TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "tc_stablehlo_export.sizes");
    CHECK_EQ_INT(io_count_files(), 1);
    end();
}

TEST(what_has_no_form_is_refused)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4), other = tc_input(ctx, "other", TC_F32, 4);
    CHECK(tc_export_stablehlo(TC_TENSORS(x), TC_TENSORS(tc_add(x, other)), NULL,
                              io_path("net.mlir")) == TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "an input that is not among those given");
    CHECK_HAS(tc_error(ctx), "test_stablehlo.c");
    CHECK(tc_export_stablehlo(TC_TENSORS(x), TC_TENSORS(tc_neg(x)), NULL, NULL) == TC_ERR_ARGUMENT);
    CHECK(tc_export_stablehlo(TC_TENSORS(x), TC_TENSORS(), NULL, io_path("n")) == TC_ERR_ARGUMENT);
    CHECK_EQ_INT(io_count_files(), 0);
    end();
}

static tc_status step(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                      tc_tensor *y)
{
    (void)user;
    next[0] = tc_tanh(tc_add(tc_mul(carry[0], 0.5), x[0]));
    y[0] = tc_mul(next[0], 2);
    return TC_OK;
}

/* A scan and its gradient, which reads the rows of the carry and runs backwards. */
static void loops(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor in = x[0];
    REQUIRE(tc_scan(TC_TENSORS(x[1]), TC_TENSORS(in), 0, false, step, NULL, &y[0], &y[1], 1) ==
            TC_OK);
    REQUIRE(tc_grad(tc_sum(y[1], TC_ALL, false), &in, 1, &y[2]) == TC_OK);
}

TEST(repetitions_run_in_xla)
{
    if (!else_python(ELSE_STABLEHLO)) {
        SKIP("no Python with jax (TC_TEST_PYTHON)");
    }
    begin();
    tc_tensor in[] = {tc_input(ctx, "a", TC_F32, 6, 3), tc_input(ctx, "b", TC_F32, 3)};
    tc_tensor of[] = {tc_randn(ctx, 1, TC_F32, 6, 3), tc_randn(ctx, 2, TC_F32, 3)}, y[3], want[3];
    loops(in, y);
    loops(of, want);
    else_compare(ctx, ELSE_STABLEHLO, TC_TENSORS_N(in, 2), TC_TENSORS_N(of, 2), TC_TENSORS_N(y, 3),
                 TC_TENSORS_N(want, 3), 1e-5);
    end();
}

/* Integer arithmetic, casts and random numbers: the same bits. */
static void exact(tc_tensor x, tc_tensor *y)
{
    y[0] = tc_rand(ctx, 42, TC_F32, 3, 50);
    y[1] = tc_cast(tc_mul(x, 1e12), TC_I32);
    y[2] = tc_cast(tc_div(x, 0), TC_U8);
    y[3] = tc_floor_divide(tc_cast(tc_mul(x, 9), TC_I32), 4);
    y[4] = tc_gcd(tc_cast(tc_mul(x, 90), TC_I64), 12);
    y[5] = tc_cast(tc_mul(x, 3.3), TC_BF16);
}

TEST(random_numbers_casts_and_integers_have_the_same_bits_in_xla)
{
    if (!else_python(ELSE_STABLEHLO)) {
        SKIP("no Python with jax (TC_TEST_PYTHON)");
    }
    begin();
    tc_tensor in = tc_input(ctx, "x", TC_F32, 40), of = tc_randn(ctx, 1, TC_F32, 40), y[6], want[6];
    exact(in, y);
    exact(of, want);
    else_compare(ctx, ELSE_STABLEHLO, TC_TENSORS(in), TC_TENSORS(of), TC_TENSORS_N(y, 6),
                 TC_TENSORS_N(want, 6), 0);
    end();
}

/* ---- reference cases computed by PyTorch ---- */

TEST(reference_cases_run_in_xla)
{
    else_replay(ELSE_STABLEHLO, "tests/data/opinfo", false, tct_soak ? 1600 : 160);
}

TEST(reference_gradients_run_in_xla)
{
    else_replay(ELSE_STABLEHLO, "../shared/oracles/opinfo", true, tct_soak ? 600 : 60);
}

TEST_MAIN
