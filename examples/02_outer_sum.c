/* 02_outer_sum.c - (X[:, :, None] * Y[:, None, :]).sum(axis=(-2, -1)) in one kernel, without
 * NumPy's product of 16 MiB. Prints kernels, bytes and time, fused and op by op; error; workspace.
 * Build, from the project's root: cc -O2 -I. examples/02_outer_sum.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { ROWS = 1024, COLS = 64, N = ROWS * COLS };
static float a[N], b[N], sums[ROWS];

static tc_tensor formula(tc_tensor x, tc_tensor y)
{
    tc_tensor outer = tc_mul(tc_unsqueeze(x, 2), tc_unsqueeze(y, 1));
    return tc_sum(outer, TC_AXES(-2, -1), false);
}

int main(void)
{
    tc_ctx *ctx;
    tc_program *f;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < N; i++) {
        a[i] = (float)(i % 17) / 17.0f;
        b[i] = (float)(i % 23) / 23.0f;
    }
    tc_tensor x = tc_input(ctx, "X", TC_F32, ROWS, COLS);
    tc_tensor y = tc_input(ctx, "Y", TC_F32, ROWS, COLS);
    tc_tensor sum = formula(x, y);
    CHECK_OK(tc_compile(sum, &f), sum);

    double us, worst = 0;
    printf("outer products of 1024 pairs of rows of 64 floats, summed\n");
    REPORT_FUSED(f, us,
                 tc_run(f, TC_BUFS(TC_BUF(a, N), TC_BUF(b, N)), TC_BUFS(TC_BUF(sums, ROWS))));
    REPORT_OP_BY_OP(
        formula(tc_borrow(ctx, a, TC_F32, ROWS, COLS), tc_borrow(ctx, b, TC_F32, ROWS, COLS)), us);

    for (int r = 0; r < ROWS; r++) {
        double expected = 0;
        for (int i = 0; i < COLS; i++) {
            for (int j = 0; j < COLS; j++) {
                expected += (double)a[r * COLS + i] * b[r * COLS + j];
            }
        }
        worst = fmax(worst, fabs(sums[r] - expected) / expected);
    }
    int wrong = report_check(worst, 1e-5, "relative error");
    tc_program_info info;
    tc_program_get_info(f, &info);
    printf("  workspace of the fused program: %lld bytes\n", (long long)info.arena_bytes);
    wrong += info.n_kernels != 1 || info.arena_bytes != 0;
    tc_program_free(f);
    tc_ctx_free(ctx);
    return wrong ? 1 : 0;
}
