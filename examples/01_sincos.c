/* 01_sincos.c - the smallest whole program: y = sin(cos(x)) over 10,000 floats as ONE fused kernel,
 * one read and one write of memory, instead of two kernels that read and write twice.
 * Build: cc -I. examples/01_sincos.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <math.h>

#include "example.h"

enum { N = 10000 };
static float in[N], mid[N], out[N];

int main(void)
{
    tc_ctx *ctx;
    tc_program *fused, *first, *second;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, N);
    tc_tensor y = tc_sin(tc_cos(x));
    CHECK_OK(tc_compile(y, &fused), y);

    for (int i = 0; i < N; i++) {
        in[i] = (float)i * 0.01f;
    }
    CHECK_OK(tc_run(fused, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))), fused);

    double worst = 0;
    for (int i = 0; i < N; i++) {
        worst = fmax(worst, fabs(out[i] - sin(cos((double)in[i]))));
    }
    tc_program_info info;
    tc_program_get_info(fused, &info);
    printf("sin(cos(x)): %d kernel on %s, reads %lld bytes, writes %lld bytes, worst error %.1e\n",
           info.n_kernels, info.backend, (long long)info.bytes_read, (long long)info.bytes_written,
           worst);

    /* The same work as two programs, the way an unfused library would run it. */
    CHECK_OK(tc_compile(tc_cos(x), &first), x);
    CHECK_OK(tc_compile(tc_sin(x), &second), x);
    double fused_us, apart_us;
    BEST_US(200, fused_us, tc_run(fused, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    BEST_US(200, apart_us, tc_run(first, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(mid, N)));
            tc_run(second, TC_BUFS(TC_BUF(mid, N)), TC_BUFS(TC_BUF(out, N))));
    printf("fused %.1f us, as two kernels %.1f us\n", fused_us, apart_us);

    tc_program_free(fused);
    tc_program_free(first);
    tc_program_free(second);
    tc_ctx_free(ctx);
    return info.n_kernels == 1 && worst < 1e-6 ? 0 : 1;
}
