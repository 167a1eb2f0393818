/* tests/ops/test_any_loops.c - one program of repetitions for all sizes gives the bits that
 * programs of those sizes give, with steps or none, interpreted and native, and from disk. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

#include "any_loop_cases.h"

TEST(one_program_for_all_sizes)
{
    for (int i = 0; i < ANY_CASES; i++) {
        int n_out;
        tc_ctx *ctx = any_ctx("interp", NULL);
        tc_program *any = any_compile(ctx, &any_cases[i], -1, -1, &n_out);
        any_compare(&any_cases[i], any, "interp", ANY_SIZES);
        tc_program_free(any);
        tc_ctx_free(ctx);
    }
}

/* The program is made twice: the second time its code comes from disk. */
TEST(in_native_code_and_from_disk)
{
    char dir[] = "/tmp/tc-test-any-loops-XXXXXX", command[64];
    REQUIRE(mkdtemp(dir));
    for (int i = 0; i < 2 * ANY_CASES; i++) {
        int n_out;
        tc_ctx *ctx = any_ctx("cpu", dir);
        tc_program *any = any_compile(ctx, &any_cases[i % ANY_CASES], -1, -1, &n_out);
        tc_program_info info;
        CHECK_EQ_INT(tc_program_get_info(any, &info), TC_OK);
        if (strcmp(info.backend, "cpu")) {
            SKIP("no C compiler here");
        }
        CHECK_EQ_INT(info.from_disk, i >= ANY_CASES);
        if (i >= ANY_CASES) {
            any_compare(&any_cases[i % ANY_CASES], any, "interp", ANY_SIZES);
        }
        tc_program_free(any);
        tc_ctx_free(ctx);
    }
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

/* Sizes that need not be what they must be. */
TEST(mistakes_of_sizes_have_texts)
{
    tc_ctx *ctx = any_ctx("interp", NULL);
    int64_t n = TC_DIM("steps", 0, ANY_STEPS), m = TC_DIM("others", 0, ANY_STEPS);
    any_given g = {ctx, tc_input(ctx, "x", TC_F32, n, 2, ANY_WIDTH),
                   tc_input(ctx, "h", TC_F32, 2, ANY_WIDTH),
                   tc_input(ctx, "w", TC_F32, ANY_WIDTH, ANY_WIDTH)};
    tc_tensor other = tc_input(ctx, "other", TC_F32, m, 2, ANY_WIDTH), last[2], y;
    tc_tensors init = TC_TENSORS(g.h, g.h), xs = TC_TENSORS(g.x), none = TC_TENSORS_N(NULL, 0);
    CHECK_EQ_INT(tc_scan(init, TC_TENSORS(g.x, other), 0, false, any_cell, &g, last, &y, 1),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y), "x 1 has shape [others, 2, 5]: expected steps steps along its first");
    CHECK_EQ_INT(tc_scan(init, xs, m, false, any_cell, &g, last, &y, 1), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scan(init, xs, n + 1, false, any_cell, &g, last, &y, 1), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y), "the length is no valid symbolic size");
    CHECK_EQ_INT(tc_scan(init, none, tc_dim_sub(n, 1), false, any_cell, &g, last, &y, 1),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y), "expected a length");
    tc_ctx_free(ctx);
}

/* Matrices of one size, any number of them: what a program of so many gives. */
TEST(any_number_of_matrices)
{
    enum { MOST = 3, N = 70 };
    static float a[MOST * N * N], b[MOST * N], got[2][MOST * N * (N + 1)];
    tc_ctx *ctx = any_ctx("interp", NULL);
    tc_program *any = NULL;
    tc_tensor drawn[2] = {tc_randn(ctx, 1, TC_F32, MOST, N, N), tc_randn(ctx, 2, TC_F32, MOST, N)};
    REQUIRE(tc_read(drawn[0], a, MOST * N * N) == TC_OK && tc_read(drawn[1], b, MOST * N) == TC_OK);
    for (int count = -1; count <= MOST; count++) {
        int64_t n = count < 0 ? TC_DIM("count", 0, MOST) : count;
        tc_tensor x = tc_input(ctx, "a", TC_F32, n, N, N), y = tc_input(ctx, "b", TC_F32, n, N);
        tc_tensor gram = tc_matmul(x, tc_transpose(x, -1, -2));
        tc_tensor first = tc_solve(x, tc_unsqueeze(y, -1)), second = tc_cholesky(gram, false);
        tc_program *f = NULL;
        REQUIRE(tc_compile_fn(TC_TENSORS(x, y), TC_TENSORS(first, second), NULL, &f) == TC_OK);
        any = count < 0 ? f : any;
        for (int i = 0; i < 2 && count >= 0; i++) {
            tc_status status = tc_run(
                i ? f : any, TC_BUFS(TC_BUF(a, count * N * N), TC_BUF(b, count * N)),
                TC_BUFS(TC_BUF(got[i], count * N), TC_BUF(got[i] + MOST * N, count * N * N)));
            CHECK_MSG(!status, "%d matrices: %s", count, tc_error(i ? f : any));
        }
        CHECK(!memcmp(got[0], got[1], sizeof(got[0])));
        tc_program_free(count < 0 ? NULL : f);
    }
    tc_program_free(any);
    tc_ctx_free(ctx);
}

TEST_MAIN
