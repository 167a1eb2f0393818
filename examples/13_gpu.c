/* 13_gpu.c - the same program on a GPU: with TC_CUDA the backend "cuda" is there, opened at run
 * time. Nothing of CUDA is needed to build this; where there is no GPU it says so and ends well.
 *
 * Prints the time of a step on the GPU and on the processor, and whether results have the same
 * bits; "skipped" without a GPU.
 *
 * Build: cc -O2 -I. examples/13_gpu.c -lm -ldl -lpthread (tc_cuda.h is next to tc.h)
 *
 * Memory of the host is copied up and down by the run; memory of the device (tc_cuda_alloc, or the
 * CUDA runtime's) is used where it is, so that a loop on the device copies nothing. */
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { SIDE = 1024, N = SIDE * SIDE, STEPS = 100 };
static float field[N], by_gpu[N], by_cpu[N];

/* One step of diffusion on a torus: every point moves towards the mean of its neighbours. */
static tc_tensor rolled(tc_tensor x, int axis, int by)
{
    return tc_cat(TC_TENSORS(tc_slice(x, axis, -by, TC_END, 1), tc_slice(x, axis, 0, -by, 1)),
                  axis);
}

static tc_program *compile_step(tc_ctx *ctx)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, SIDE, SIDE);
    tc_tensor around = tc_add(tc_add(rolled(x, 0, 1), rolled(x, 0, -1)),
                              tc_add(rolled(x, 1, 1), rolled(x, 1, -1)));
    tc_tensor y = tc_add(tc_mul(x, 0.5), tc_mul(around, 0.125));
    CHECK_OK(tc_compile(y, &f), y);
    return f;
}

/* STEPS steps from field into out, between two arrays of the backend's memory. */
static double simulate(tc_program *f, float *a, float *b)
{
    double begin = now_us();
    for (int i = 0; i < STEPS; i++) {
        float *from = i % 2 ? b : a, *to = i % 2 ? a : b;
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(from, N)), TC_BUFS(TC_BUF(to, N))), f);
    }
    return (now_us() - begin) / STEPS;
}

int main(void)
{
    static float other[N];
    tc_options options = {.backend = "cuda"};
    tc_ctx *ctx, *cpu;
    tc_program_info info;
    void *a, *b;
    if (tc_ctx_make(&ctx, &options) || tc_ctx_make(&cpu, NULL)) {
        return 1;
    }
    tc_program *f = compile_step(ctx), *g = compile_step(cpu);
    tc_program_get_info(f, &info);
    if (strcmp(info.backend, "cuda") != 0) {
        printf("skipped: no GPU that tc can use; the program runs on %s\n", info.backend);
        return 0;
    }
    for (int i = 0; i < N; i++) {
        field[i] = by_cpu[i] = (float)(i * 2654435761u >> 16) * 0x1p-16f;
    }
    if (tc_cuda_alloc(sizeof(field), &a) || tc_cuda_alloc(sizeof(field), &b) ||
        tc_cuda_copy(a, field, sizeof(field))) {
        return 1;
    }
    double gpu_us = simulate(f, a, b), cpu_us = simulate(g, by_cpu, other);
    if (tc_cuda_copy(by_gpu, a, sizeof(by_gpu))) {
        return 1;
    }
    bool same = !memcmp(by_gpu, by_cpu, sizeof(by_gpu));
    printf("%d x %d points: %.1f us a step on the GPU, %.1f us on the processor, %s\n", (int)SIDE,
           (int)SIDE, gpu_us, cpu_us, same ? "the same bits" : "DIFFERENT bits");
    tc_cuda_free(a);
    tc_cuda_free(b);
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    tc_ctx_free(cpu);
    return same ? 0 : 1;
}
