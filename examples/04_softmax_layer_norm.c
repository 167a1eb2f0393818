/* 04_softmax_layer_norm.c - reductions with the arithmetic before and after them, row by row:
 *     softmax:     e = exp(x - max(x)); e / sum(e)
 *     layer norm:  d = x - mean(x); d / sqrt(mean(d * d) + eps)
 * Written out op by op they become the same one kernel over rows as tc_softmax and tc_layer_norm:
 * a row is read from memory once and stays in the cache for every pass over it.
 * Prints kernels, bytes and time, fused and op by op, and the largest error, for both.
 * Build, from the project's root: cc -O2 -I. examples/04_softmax_layer_norm.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "rows_plain.h"

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

/* The formula written out, y, and the ready op, against each other and against plain C. */
static int demo(const char *name, tc_tensor x, tc_tensor y, tc_tensor op, bool is_softmax)
{
    tc_program *f, *g;
    tc_program_info info;
    double us;
    CHECK_OK(tc_compile(y, &f), y);
    CHECK_OK(tc_compile(op, &g), op);
    printf("%s of %d rows of %d floats\n", name, ROWS, COLS);
    REPORT_FUSED(f, us, tc_run(f, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    x = tc_borrow(x.ctx, in, TC_F32, ROWS, COLS);
    REPORT_OP_BY_OP(is_softmax ? softmax(x) : layer_norm(x), us);
    CHECK_OK(tc_run(g, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(ready, N))), g);
    tc_program_get_info(f, &info);
    tc_program_free(f);
    tc_program_free(g);
    return report_check(plain_worst(is_softmax), 5e-6, "relative error") || info.n_kernels != 1;
}

int main(void)
{
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, COLS);
    tc_tensor norm = tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    plain_fill();
    int wrong = demo("softmax", x, softmax(x), tc_softmax(x, -1), true);
    wrong += demo("layer norm", x, layer_norm(x), norm, false);
    tc_ctx_free(ctx);
    return wrong ? 1 : 0;
}
