/* bench/instructions.c - nine programs of tc's own work, whose instructions tools/instructions.sh
 * counts under callgrind and compares with bench/results/instructions.txt: times cannot be compared
 * on machines that others use, counts can.
 *
 *     instructions          runs all
 *     instructions NAME     one of them
 *
 * The programs are interpreted, so no compiler runs, but for `warm`, which finds its code on disk
 * (tools/instructions.sh runs it once before it counts). */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <string.h>

static int failures;

static void expect(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "instructions: %s failed\n", what);
        failures++;
    }
}

static tc_ctx *begin(const char *backend, bool disk)
{
    tc_options o = {.backend = backend, .threads = 1, .no_disk_cache = !disk};
    tc_ctx *ctx = NULL;
    expect(tc_ctx_make(&ctx, &o) == TC_OK, "tc_ctx_make");
    return ctx;
}

static tc_tensor attention(tc_tensor q, tc_tensor k, tc_tensor v)
{
    tc_tensor scores = tc_mul(tc_matmul(q, tc_transpose(k, -1, -2)), 0.125);
    return tc_matmul(tc_softmax(scores, -1), v);
}

/* Nodes of the graph: 2000 operations. */
static void record(void)
{
    tc_ctx *ctx = begin("interp", false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64), y = x;
    for (int i = 0; i < 500; i++) {
        y = tc_add(tc_mul(tc_sin(y), 1.0 + i), tc_sum(x, TC_AXES(0), true));
    }
    expect(tc_status_of(y) == TC_OK, "record");
    tc_ctx_free(ctx);
}

static void compile(tc_ctx *ctx, tc_tensors inputs, tc_tensors results)
{
    tc_program *program = NULL;
    expect(tc_compile_fn(inputs, results, NULL, &program) == TC_OK, tc_error(ctx));
    tc_program_free(program);
}

static void plan_softmax(void)
{
    tc_ctx *ctx = begin("interp", false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 256, 512), w = tc_input(ctx, "w", TC_F32, 512, 128);
    compile(ctx, TC_TENSORS(x, w), TC_TENSORS(tc_softmax(tc_matmul(x, w), -1)));
    tc_ctx_free(ctx);
}

static void plan_attention(void)
{
    tc_ctx *ctx = begin("interp", false);
    tc_tensor in[3], grads[3];
    in[0] = tc_input(ctx, "q", TC_F32, 4, 128, 64);
    in[1] = tc_input(ctx, "k", TC_F32, 4, 128, 64);
    in[2] = tc_input(ctx, "v", TC_F32, 4, 128, 64);
    tc_tensor y = attention(in[0], in[1], in[2]);
    expect(tc_grad(tc_sum(y, TC_ALL, false), in, 3, grads) == TC_OK, "tc_grad");
    compile(ctx, TC_TENSORS_N(in, 3), TC_TENSORS(y, grads[0], grads[1], grads[2]));
    tc_ctx_free(ctx);
}

static void plan_network(void)
{
    tc_ctx *ctx = begin("interp", false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 8, 3, 32, 32), w[7], grads[6], y = x;
    static const int64_t channels[7] = {3, 16, 16, 32, 32, 64, 64};
    static const char *const names[6] = {"a", "b", "c", "d", "e", "f"};
    for (int i = 0; i < 6; i++) {
        w[i] = tc_input(ctx, names[i], TC_F32, channels[i + 1], channels[i], 3, 3);
        y = tc_relu(tc_conv2d(y, w[i], TC_NONE, &(tc_conv){.padding = {1, 1}}));
        y = i % 2 ? tc_max_pool2d(y, &(tc_pool){.kernel = {2, 2}}) : y;
    }
    expect(tc_grad(tc_mean(tc_square(y), TC_ALL, false), w, 6, grads) == TC_OK, "tc_grad");
    w[6] = x;
    compile(ctx, TC_TENSORS_N(w, 7), TC_TENSORS_N(grads, 6));
    tc_ctx_free(ctx);
}

/* 5,000 runs of a small kernel. */
static void run(void)
{
    tc_ctx *ctx = begin("interp", false);
    tc_program *program = NULL;
    float in[10] = {1, 2, 3}, out[10];
    tc_tensor x = tc_input(ctx, "x", TC_F32, 10);
    expect(tc_compile(tc_add(tc_mul(x, 2), 1), &program) == TC_OK, "tc_compile");
    for (int i = 0; i < 5000; i++) {
        tc_status status = tc_run(program, TC_BUFS(TC_BUF(in, 10)), TC_BUFS(TC_BUF(out, 10)));
        expect(status == TC_OK, "tc_run");
    }
    tc_program_free(program);
    tc_ctx_free(ctx);
}

static tc_profile *profile(void)
{
    tc_profile *p = NULL;
    expect(tc_profile_begin(NULL, &p) == TC_OK, "tc_profile_begin");
    return p;
}

/* The same while a profile records: two records each, of the run and of the kernel. */
static void run_profiled(void)
{
    tc_profile *p = profile();
    run();
    tc_profile_free(p);
}

/* 100,000 pairs of marks. */
static void marks_off(void)
{
    for (int i = 0; i < 100000; i++) {
        tc_mark_begin("mark");
        tc_mark_end();
    }
}

static void marks_on(void)
{
    tc_profile *p = profile();
    marks_off();
    tc_profile_free(p);
}

/* A context, a program out of the disk cache, its first run. */
static void warm(void)
{
    tc_ctx *ctx = begin(NULL, true);
    tc_program *program = NULL;
    static float in[64 * 64], w[64 * 64], out[64 * 64];
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64), y = tc_input(ctx, "w", TC_F32, 64, 64);
    expect(tc_compile(tc_gelu(tc_matmul(x, y)), &program) == TC_OK, "tc_compile");
    expect(tc_run(program, TC_BUFS(TC_BUF(in, 4096), TC_BUF(w, 4096)),
                  TC_BUFS(TC_BUF(out, 4096))) == TC_OK,
           "tc_run");
    tc_program_free(program);
    tc_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } rows[] = {{"record", record},
                {"plan_softmax", plan_softmax},
                {"plan_attention", plan_attention},
                {"plan_network", plan_network},
                {"run", run},
                {"run_profiled", run_profiled},
                {"marks_off", marks_off},
                {"marks_on", marks_on},
                {"warm", warm}};
    bool found = false;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (argc < 2 || !strcmp(argv[1], rows[i].name)) {
            rows[i].run();
            found = true;
        }
    }
    tc_shutdown();
    return failures || !found;
}
