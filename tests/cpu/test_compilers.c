/* Programs that a C compiler once translated wrongly: generated code goes round it. And quick
 * builds. Each is compared with the interpreter. */
#include "tc.h"

#include "tc_test.h"

enum { N = 67 };

/* gcc 12 with AVX-512: a mask of u16 lanes that was widened for f32's sake and narrowed again, in a
 * byte blend, took the other operand. */
TEST(a_blend_of_narrow_lanes_next_to_wide_ones)
{
    static uint16_t in[N], chosen[2][N];
    static float wide[2][N];
    static const char *const backends[2] = {"cpu", "interp"};
    for (int i = 0; i < N; i++) {
        in[i] = (uint16_t)(i % 5 * 1000);
    }
    for (int k = 0; k < 2; k++) {
        tc_options options = {.backend = backends[k], .fallback = TC_FALLBACK_ALLOW};
        tc_ctx *ctx;
        tc_program *f;
        REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
        tc_tensor x = tc_input(ctx, "x", TC_U16, N);
        tc_tensor none = tc_cast(tc_lt(x, x), TC_U16);
        tc_tensor y = tc_where(tc_cast(x, TC_BOOL), none, x);
        REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, tc_sub(tc_cast(y, TC_F32), 1.5)), NULL,
                              &f) == TC_OK);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, N)),
                            TC_BUFS(TC_BUF(chosen[k], N), TC_BUF(wide[k], N))),
                     TC_OK);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    for (int i = 0; i < N; i++) {
        CHECK_EQ_INT(chosen[0][i], 0);
    }
    CHECK(!memcmp(chosen[0], chosen[1], sizeof(chosen[0])));
    CHECK(!memcmp(wide[0], wide[1], sizeof(wide[0])));
}

/* A convolution, a product, a norm, a softmax, a sort and a sum over all; returns compiler runs. */
static long long compute(const char *backend, bool quick, float *out)
{
    enum { IMAGE = 2 * 3 * 17 * 19, ROWS = 2 * 5, COLUMNS = 17 * 19 };
    static float in[IMAGE];
    tc_options o = {.backend = backend, .quick_build = quick, .no_disk_cache = true, .threads = 2};
    tc_ctx *ctx;
    tc_program *f;
    tc_stats before, after;
    for (int i = 0; i < IMAGE; i++) {
        in[i] = (float)(i * 37 % 101) * 0.07f - 3;
    }
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK && tc_stats(ctx, &before) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 3, 17, 19);
    tc_tensor w = tc_reshape(tc_sin(tc_arange(ctx, 0, 135, 1, TC_F32)), 5, 3, 3, 3);
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
    tc_tensor flat = tc_reshape(y, ROWS, COLUMNS);
    tc_tensor rows = tc_layer_norm(flat, TC_AXES(1), TC_NONE, TC_NONE, 1e-5);
    tc_tensor product = tc_matmul(tc_softmax(rows, -1), tc_transpose(rows, 0, 1)), sorted;
    tc_sort(tc_erf(product), 1, true, &sorted, NULL);
    tc_tensor all = tc_add(sorted, tc_mean(y, TC_ALL, false));
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(all), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, IMAGE)), TC_BUFS(TC_BUF(out, ROWS * ROWS))), TC_OK);
    tc_stats(ctx, &after);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return after.compiler_runs - before.compiler_runs;
}

TEST(a_quick_build_has_the_same_bits_and_other_code)
{
    static float out[3][100];
    compute("interp", false, out[0]);
    long long usual = compute("cpu", false, out[1]), quick = compute("cpu", true, out[2]);
    if (!usual) {
        SKIP("there is no compiler");
    }
    CHECK_EQ_INT(quick, usual); /* the code of the usual build is not taken for it */
    CHECK_EQ_INT(compute("cpu", true, out[2]), 0);
    CHECK(!memcmp(out[0], out[1], sizeof(out[0])) && !memcmp(out[1], out[2], sizeof(out[1])));
}

TEST_MAIN
