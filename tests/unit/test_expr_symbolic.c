/* Expressions as text with symbolic sizes: sizes of .shape compute as tc_dim_add and the like do,
 * and what they cannot do is refused. One program runs for several sizes. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

TEST(symbolic_sizes_compute_in_a_text)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    tc_ctx *ctx;
    tc_program *f;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    int64_t batch = TC_DIM("batch", 1, 64);
    tc_tensor x = tc_input(ctx, "x", TC_F32, batch, 6);
    tc_tensor y = TC_EXPR(x.reshape(x.shape[0] * 2, -1).sum(axis=1) / x.shape[0], x);
    tc_tensor z = tc_expr(ctx, "x[: x.shape[0] // 2]", TC_ATTRS(TC_ATTR("x", x)));
    tc_tensor same = tc_div(tc_sum(tc_reshape(x, tc_dim_mul(batch, 2), -1), TC_AXES(1), false),
                            batch);
    CHECK_MSG(y.id == same.id, "%s%s", tc_error(y), tc_error(same));
    CHECK_HAS(tc_error(
        TC_EXPR(x * (x.shape[0] % 2), x)),
                "a symbolic size takes + - * and // with integers\n  x * (x.shape[0] % 2)");
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, z), NULL, &f) == TC_OK);
    for (int n = 1; n <= 4; n++) {
        float in[24], sums[8], half[12];
        for (int i = 0; i < 6 * n; i++) {
            in[i] = (float)i;
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6 * n)),
                            TC_BUFS(TC_BUF(sums, 2 * n), TC_BUF(half, n / 2 * 6))),
                     TC_OK);
        for (int i = 0; i < 2 * n; i++) {
            CHECK_CLOSE(sums[i], (float)(9 * i + 3) / (float)n, 1e-5);
        }
        for (int i = 0; i < n / 2 * 6; i++) {
            CHECK_CLOSE(half[i], i, 0);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
