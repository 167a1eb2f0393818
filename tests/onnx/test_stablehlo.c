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

/* Reference cases computed by PyTorch. A tenth of them; all in soak. */
static void replay(const char *base, int every, int least)
{
    static orc_run r;
    static st_file arrays;
    char path[300];
    size_t bytes;
    if (!else_python(ELSE_STABLEHLO)) {
        SKIP("no Python with jax (TC_TEST_PYTHON)");
    }
    snprintf(path, sizeof(path), "%s.json", base);
    char *text = json_read_file(path, &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    snprintf(path, sizeof(path), "%s.safetensors", base);
    REQUIRE(manifest && st_open(&arrays, path));
    memset(&r, 0, sizeof(r));
    r.manifest = manifest;
    r.arrays = &arrays;
    else_oracle(&r, ELSE_STABLEHLO, every);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed >= least, "only %d cases passed, %d are skipped", r.passed, r.skipped);
    printf("onnx/stablehlo: %d reference cases passed, %d skipped\n", r.passed, r.skipped);
    st_close(&arrays);
    json_free(manifest);
    free(text);
}

TEST(reference_cases_run_in_xla)
{
    replay("tests/data/opinfo", tct_soak ? 0 : 10, 100);
}

TEST_MAIN
