/* Programs that a C compiler once translated wrongly: generated code goes round it. Each is
 * compared with the interpreter. */
#include "tc.h"

#include "tc_test.h"

enum { N = 67 };

/* gcc 12 with AVX-512: a mask of u16 lanes that was widened for f32's sake and narrowed again, in a
 * byte blend, took the other operand. */
TEST(a_blend_of_narrow_lanes_beside_wide_ones)
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
                            TC_BUFS(TC_BUF(chosen[k], N), TC_BUF(wide[k], N))), TC_OK);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    for (int i = 0; i < N; i++) {
        CHECK_EQ_INT(chosen[0][i], 0);
    }
    CHECK(!memcmp(chosen[0], chosen[1], sizeof(chosen[0])));
    CHECK(!memcmp(wide[0], wide[1], sizeof(wide[0])));
}

TEST_MAIN
