/* 02_outer_sum.c - the sum of an outer product, as in NumPy
 *     (X[:, :, None] * Y[:, None, :]).sum(axis=(-2, -1))        X, Y: 1024 x 64
 * NumPy makes the 1024 x 64 x 64 product first (16 MiB); tc computes it inside the reduction: one
 * kernel, no intermediate. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <math.h>

#include "example.h"

enum { ROWS = 1024, COLS = 64 };
static float a[ROWS * COLS], b[ROWS * COLS], sums[ROWS];

int main(void)
{
    tc_ctx *ctx;
    tc_program *f;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    tc_tensor x = tc_input(ctx, "X", TC_F32, ROWS, COLS);
    tc_tensor y = tc_input(ctx, "Y", TC_F32, ROWS, COLS);
    tc_tensor outer = tc_mul(tc_unsqueeze(x, 2), tc_unsqueeze(y, 1));
    tc_tensor sum = tc_sum(outer, TC_AXES(-2, -1), false);
    CHECK_OK(tc_compile(sum, &f), sum);

    for (int i = 0; i < ROWS * COLS; i++) {
        a[i] = (float)(i % 17) / 17.0f;
        b[i] = (float)(i % 23) / 23.0f;
    }
    double us;
    BEST_US(100, us,
            tc_run(f, TC_BUFS(TC_BUF(a, ROWS * COLS), TC_BUF(b, ROWS * COLS)),
                   TC_BUFS(TC_BUF(sums, ROWS))));

    double worst = 0;
    for (int r = 0; r < ROWS; r++) {
        double sum_a = 0, sum_b = 0; /* the sum of an outer product is the product of the sums */
        for (int c = 0; c < COLS; c++) {
            sum_a += a[r * COLS + c];
            sum_b += b[r * COLS + c];
        }
        worst = fmax(worst, fabs(sums[r] - sum_a * sum_b) / (sum_a * sum_b));
    }
    tc_program_info info;
    tc_program_get_info(f, &info);
    printf(
        "outer product summed: %d kernel, %lld bytes of workspace, %.1f us, relative error %.1e\n",
        info.n_kernels, (long long)info.arena_bytes, us, worst);
    tc_explain(f, stdout);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info.n_kernels == 1 && info.arena_bytes == 0 && worst < 1e-5 ? 0 : 1;
}
