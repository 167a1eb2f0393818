/* tests/cuda/driver_context.h - contexts and programs of tests on a driver that only counts
 * (fake_driver.h). Included after the implementation, which these tests hold. */
#ifndef TC_TEST_DRIVER_CONTEXT_H
#define TC_TEST_DRIVER_CONTEXT_H

#include "fake_driver.h"

enum { N = 64 };

static char folder[] = "/tmp/tc-driver-XXXXXX"; /* of the caches */

TCT_UNUSED static bool have_nvrtc(void)
{
    const char *path = tci_nvrtc_path();
    int64_t bytes, mtime;
    return path[0] && tci_os_stat(path, &bytes, &mtime);
}

TCT_UNUSED static tc_ctx *context(const char *cache)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    char path[64];
    memset(&o, 0, sizeof(o));
    snprintf(path, sizeof(path), "%s/%s", folder, cache);
    o.backend = "cuda";
    o.fallback = TC_FALLBACK_REFUSE;
    o.cache_dir = path;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

#define NEED_NVRTC()                                                                               \
    if (!have_nvrtc()) {                                                                           \
        SKIP("NVRTC is not found");                                                                \
    }

/* Ten kernels, as no two of them can be joined; `first` makes programs differ. */
TCT_UNUSED static tc_program *chain(tc_ctx *ctx, double first)
{
    tc_program *f = NULL;
    tc_tensor y = tc_pow(tc_input(ctx, "x", TC_F32, N, N), first);
    for (int i = 0; i < 10; i++) {
        y = tc_cumsum(y, i % 2);
    }
    CHECK_MSG(tc_compile(y, &f) == TC_OK, "%s", tc_error(ctx));
    return f;
}

TCT_UNUSED static tc_status run(tc_program *f)
{
    static _Thread_local float in[N * N], out[N * N];
    return tc_run(f, TC_BUFS(TC_BUF(in, N * N)), TC_BUFS(TC_BUF(out, N * N)));
}

/* x[index] + p of a parameter p that is set to twice that, where it reads itself by the index. */
typedef struct gatherer {
    tc_ctx *ctx;
    tc_tensor p;
    tc_program *f;
} gatherer;

TCT_UNUSED static bool make_gatherer(gatherer *g, const char *cache)
{
    static float three[N];
    for (int i = 0; i < N; i++) {
        three[i] = 3;
    }
    g->f = NULL;
    g->ctx = context(cache);
    if (!g->ctx) {
        return false;
    }
    g->p = tc_param(g->ctx, three, TC_F32, N);
    tc_tensor index = tc_input(g->ctx, "index", TC_I64, N);
    tc_tensor row = tc_gather(g->p, 0, index);
    tc_status status = tc_compile_fn(TC_TENSORS(index),
                                     TC_TENSORS(row, tc_neg(row), tc_assign(g->p, tc_mul(row, 2))),
                                     NULL, &g->f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(g->ctx));
    return g->f != NULL;
}

TCT_UNUSED static tc_status run_gatherer(const gatherer *g, float *out)
{
    static int64_t index[N];
    return tc_run(g->f, TC_BUFS(TC_BUF(index, N)), TC_BUFS(TC_BUF(out, N), TC_BUF(out + N, N)));
}

TCT_UNUSED static bool is_still(const gatherer *g, float v)
{
    float now[N];
    bool same = tc_read(g->p, now, N) == TC_OK;
    for (int i = 0; i < N && same; i++) {
        same = now[i] == v;
    }
    return same;
}

TCT_UNUSED static void free_gatherer(const gatherer *g)
{
    tc_program_free(g->f);
    tc_ctx_free(g->ctx);
}

TCT_UNUSED static tc_status run_async(tc_program *f, tc_queue *q, float *out, tc_event **e)
{
    static float in[N * N];
    return tc_run_async(f, q, TC_BUFS(TC_BUF(in, N * N)), TC_BUFS(TC_BUF(out, N * N)), e);
}

/* The tests of the program, in a folder of caches that goes with it. */
static int run_tests(int argc, char **argv)
{
    char command[64];
    if (!mkdtemp(folder)) {
        return 1;
    }
    int code = tct_main(argc, argv);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) ? 1 : code;
}

#endif
