/* tests/onnx/test_stablehlo.c - graphs of tc as StableHLO modules, compiled and run by XLA, which
 * shares no code with tc. Needs a Python with jax (tests/elsewhere.h); else those tests are
 * skipped. */
#include "inside.h"

#include "elsewhere.h"
#include "tc_test.h"

static tc_ctx *ctx;

TEST(a_perceptron_is_exported)
{
    tc_options o = {.backend = "interp", .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4, 8), w = tc_randn(ctx, 1, TC_F32, 8, 3);
    REQUIRE(tc_eval(w) == TC_OK);
    tc_tensor y = tc_softmax(tc_gelu(tc_matmul(x, w)), -1);
    CHECK_MSG(tc_export_stablehlo(TC_TENSORS(x), TC_TENSORS(y), NULL, io_path("net.mlir")) == TC_OK,
              "%s", tc_error(ctx));
    tc_ctx_free(ctx);
    io_clean();
}

TEST(reference_cases_run_in_xla)
{
    else_replay(ELSE_STABLEHLO, "tests/data/opinfo", false, tct_soak ? 1600 : 160);
}

TEST(reference_gradients_run_in_xla)
{
    else_replay(ELSE_STABLEHLO, "../shared/oracles/opinfo", true, tct_soak ? 600 : 60);
}

TEST_MAIN
