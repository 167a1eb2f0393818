/* 01_sincos.c - the smallest program: y = sin(cos(x)) as one kernel that reads and writes memory
 * once, instead of two kernels that do so twice. 10,000 floats stay in the cache, where arithmetic
 * takes the time; with 16 million floats the trips through memory do.
 * Prints kernels, bytes and time, fused and op by op, and the largest error, for both sizes.
 * Build, from the project's root: cc -O2 -I. examples/01_sincos.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

static tc_tensor formula(tc_tensor x)
{
    return tc_sin(tc_cos(x));
}

/* Compiles the formula for n elements, runs it, compares, checks. */
static int demo(tc_ctx *ctx, int64_t n)
{
    float *in = malloc((size_t)n * sizeof(*in));
    float *out = malloc((size_t)n * sizeof(*out));
    tc_program *f;
    tc_program_info info;
    double us, worst = 0;
    if (!in || !out) {
        return 1;
    }
    for (int64_t i = 0; i < n; i++) {
        in[i] = (float)(i % 10000) * 0.01f;
        out[i] = 0;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, n);
    tc_tensor y = formula(x);
    CHECK_OK(tc_compile(y, &f), y);
    printf("sin(cos(x)) of %lld floats\n", (long long)n);
    REPORT_FUSED(f, us, tc_run(f, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, n))));
    REPORT_OP_BY_OP(formula(tc_borrow(ctx, in, TC_F32, n)), us);

    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(out[i] - sin(cos((double)in[i]))));
    }
    int wrong = report_check(worst, 1e-6, "error");
    tc_program_get_info(f, &info);
    wrong += info.n_kernels != 1 || info.bytes_read != 4 * n || info.bytes_written != 4 * n;
    tc_program_free(f);
    free(in);
    free(out);
    return wrong;
}

int main(void)
{
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    int wrong = demo(ctx, 10000) + demo(ctx, 1 << 24);
    tc_ctx_free(ctx);
    return wrong ? 1 : 0;
}
