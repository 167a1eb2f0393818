/* 04_softmax_layer_norm.c - reductions with the arithmetic before and after them, row by row:
 *     softmax:     e = exp(x - max(x)); e / sum(e)
 *     layer norm:  d = x - mean(x); d / sqrt(mean(d * d) + eps)
 * Written out op by op they become the same one kernel over rows as tc_softmax and tc_layer_norm:
 * a row is read from memory once and stays in the cache for every pass over it.
 *
 * Prints kernels, bytes and time, fused and op by op, and the largest error, for both.
 *
 * Build, from the project's root: cc -O2 -I. examples/04_softmax_layer_norm.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { ROWS = 2048, COLS = 1024, N = ROWS * COLS };
static float in[N], out[N], ready[N];

static tc_tensor softmax(tc_tensor x)
{
    tc_tensor e = tc_exp(tc_sub(x, tc_max(x, TC_AXES(-1), true)));
    return tc_div(e, tc_sum(e, TC_AXES(-1), true));
}

static tc_tensor layer_norm(tc_tensor x)
{
    tc_tensor variance, mean; /* two results of one pass */
    tc_var_mean(x, TC_AXES(-1), 0, true, &variance, &mean);
    return tc_mul(tc_sub(x, mean), tc_rsqrt(tc_add(variance, 1e-5)));
}

/* One row in plain C, in double. */
static void plain_row(const float *x, double *y, bool is_softmax)
{
    double top = x[0], mean = 0, sum = 0;
    for (int i = 0; i < COLS; i++) {
        top = fmax(top, x[i]);
        mean += x[i] / (double)COLS;
    }
    for (int i = 0; i < COLS; i++) {
        y[i] = is_softmax ? exp(x[i] - top) : x[i] - mean;
        sum += is_softmax ? y[i] : y[i] * y[i] / COLS;
    }
    for (int i = 0; i < COLS; i++) {
        y[i] /= is_softmax ? sum : sqrt(sum + 1e-5);
    }
}

/* The formula written out, and the ready op, against each other and against plain C. */
static int demo(tc_ctx *ctx, const char *name, tc_tensor (*formula)(tc_tensor x), bool is_softmax)
{
    static double expected[COLS];
    tc_program *f, *g;
    double us, worst = 0;
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, COLS);
    tc_tensor y = formula(x);
    tc_tensor op = is_softmax ? tc_softmax(x, -1)
                              : tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    CHECK_OK(tc_compile(y, &f), y);
    CHECK_OK(tc_compile(op, &g), op);
    printf("%s of %d rows of %d floats\n", name, ROWS, COLS);
    REPORT_FUSED(f, us, tc_run(f, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    REPORT_OP_BY_OP(formula(tc_borrow(ctx, in, TC_F32, ROWS, COLS)), us);
    CHECK_OK(tc_run(g, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(ready, N))), g);
    for (int r = 0; r < ROWS; r++) {
        plain_row(in + r * COLS, expected, is_softmax);
        for (int i = 0; i < COLS; i++) {
            double scale = is_softmax ? expected[i] : fmax(1, fabs(expected[i]));
            worst = fmax(worst, fabs(out[r * COLS + i] - expected[i]) / scale);
            worst = fmax(worst, fabs(ready[r * COLS + i] - expected[i]) / scale);
        }
    }
    tc_program_info info, info_ready;
    tc_program_get_info(f, &info);
    tc_program_get_info(g, &info_ready);
    tc_program_free(f);
    tc_program_free(g);
    return report_check(worst, 5e-6, "relative error") || info.n_kernels != 1 ||
           info_ready.n_kernels != 1;
}

int main(void)
{
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < N; i++) {
        in[i] = (float)((i * 7919LL) % 2003) / 200.0f - 5.0f;
    }
    int wrong = demo(ctx, "softmax", softmax, true) + demo(ctx, "layer norm", layer_norm, false);
    tc_ctx_free(ctx);
    return wrong ? 1 : 0;
}
