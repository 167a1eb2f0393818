/* opencl.c - a backend of one's own: tc_opencl.h registers "opencl", and tc generates OpenCL C.
 *
 * Build, from the project's root: cc -O2 -I. examples/opencl/opencl.c -lm -ldl -lpthread
 * Needs an OpenCL device at run time; Debian's pocl-opencl-icd makes one of the processor. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "tc_opencl.h"

#include "../example.h"

enum { ROWS = 256, COLUMNS = 256, N = ROWS * COLUMNS };

static tc_program *compile(const char *backend, tc_ctx **ctx)
{
    tc_options options = {.backend = backend};
    tc_program *f;
    if (tc_ctx_make(ctx, &options)) {
        exit(1);
    }
    tc_tensor x = tc_input(*ctx, "x", TC_F32, ROWS, COLUMNS);
    tc_tensor y = tc_softmax(tc_mul(x, tc_cos(tc_transpose(x, 0, 1))), -1);
    CHECK_OK(tc_compile(y, &f), y);
    return f;
}

int main(void)
{
    static float in[N], on_device[N], on_host[N];
    const char *why;
    tc_ctx *a, *b;
    tc_program_info info;
    if (tc_opencl_register(&why)) {
        printf("skipped: %s\n", why);
        return 0;
    }
    for (int i = 0; i < N; i++) {
        in[i] = (float)(i % 1000) * 0.01f - 5;
    }
    tc_program *f = compile("opencl", &a), *g = compile("cpu", &b);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(on_device, N))), f);
    CHECK_OK(tc_run(g, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(on_host, N))), g);
    tc_program_get_info(f, &info);
    bool same = !memcmp(on_device, on_host, sizeof(on_host)) && !strcmp(info.backend, "opencl");
    printf("softmax of %d x %d on %s: %s\n", (int)ROWS, (int)COLUMNS, info.backend,
           same ? "the same bits as on the processor" : "DIFFERENT");
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(a);
    tc_ctx_free(b);
    return same ? 0 : 1;
}
