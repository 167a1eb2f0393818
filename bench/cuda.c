/* bench/cuda.c - programs on one GPU, inputs and outputs in its memory.
 *
 * A row: milliseconds of one tc_run (median of the runs, synchronised), bytes moved a second, and
 * that as a ratio to a device-to-device copy of the same bytes in the same process. Peers:
 * bench/cuda_peers.py. */
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *device_array(int64_t n)
{
    void *memory = NULL;
    float *host = (float *)malloc((size_t)n * sizeof(float));
    unsigned seed = 1;
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    if (tc_cuda_alloc(n * 4, &memory) || tc_cuda_copy(memory, host, n * 4)) {
        fprintf(stderr, "no device memory\n");
        exit(1);
    }
    free(host);
    return (float *)memory;
}

enum { RUNS = 30 };

static void report(const char *name, double ms, double bytes, double flops, double copy)
{
    double gbs = bytes / ms * 1e-6;
    printf("%-34s %9.3f ms %8.0f GB/s %6.2f of copy %9.1f GFLOP/s\n", name, ms, gbs, gbs / copy,
           flops / ms * 1e-6);
}

static double median_ms(tc_program *f, tc_bufs in, tc_bufs out)
{
    double ms[RUNS];
    for (int i = -3; i < RUNS; i++) {
        double begin = now_ms();
        if (tc_run(f, in, out)) {
            fprintf(stderr, "%s\n", tc_error(f));
            exit(1);
        }
        if (i >= 0) {
            ms[i] = now_ms() - begin;
        }
    }
    qsort(ms, RUNS, sizeof(ms[0]), by_value);
    return ms[RUNS / 2];
}

static double copy_speed(int64_t n)
{
    float *a = device_array(n), *b = device_array(n);
    double ms[RUNS];
    for (int i = -3; i < RUNS; i++) {
        double begin = now_ms();
        tc_cuda_copy(b, a, n * 4);
        if (i >= 0) {
            ms[i] = now_ms() - begin;
        }
    }
    qsort(ms, RUNS, sizeof(ms[0]), by_value);
    tc_cuda_free(a);
    tc_cuda_free(b);
    return (double)n * 8 / ms[RUNS / 2] * 1e-6;
}

static void unary(const char *name, tc_tensor y, int64_t n_in, int64_t n_out, double copy)
{
    tc_program *f;
    if (tc_compile(y, &f)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
    float *in = device_array(n_in), *out = device_array(n_out);
    double ms = median_ms(f, TC_BUFS(TC_BUF(in, n_in)), TC_BUFS(TC_BUF(out, n_out)));
    tc_program_info info;
    tc_program_get_info(f, &info);
    report(name, ms, (double)(n_in + n_out) * 4, (double)info.flops, copy);
    if (!strcmp(info.backend, "interp")) {
        printf("  interpreted!\n");
    }
    tc_program_free(f);
    tc_cuda_free(in);
    tc_cuda_free(out);
}

int main(void)
{
    tc_ctx *ctx;
    tc_options options = {0};
    options.backend = "cuda";
    if (tc_ctx_make(&ctx, &options)) {
        printf("cuda: skipped, the backend cannot be had\n");
        return 0;
    }
    void *probe;
    if (tc_cuda_alloc(1, &probe)) {
        printf("cuda: skipped, no GPU works here\n");
        tc_ctx_free(ctx);
        return 0;
    }
    tc_cuda_free(probe);
    double copy = copy_speed((int64_t)1 << 28);
    printf("copy of 1 GiB: %.0f GB/s\n", copy);
    int64_t n = (int64_t)1 << 26, big = (int64_t)1 << 28;
    unary("sin(cos(x)) 64 M", tc_sin(tc_cos(tc_input(ctx, "a", TC_F32, n))), n, n, copy);
    unary("sin(cos(x)) 256 M", tc_sin(tc_cos(tc_input(ctx, "b", TC_F32, big))), big, big, copy);
    unary("gelu 64 M", tc_gelu(tc_input(ctx, "c", TC_F32, n)), n, n, copy);
    tc_tensor rows = tc_input(ctx, "r", TC_F32, 8192, 8192);
    unary("softmax 8192x8192", tc_softmax(rows, -1), n, n, copy);
    tc_tensor w = tc_input(ctx, "s", TC_F32, 65536, 1024);
    unary("softmax 65536x1024", tc_softmax(w, -1), n, n, copy);
    unary("layer_norm 8192x8192",
          tc_layer_norm(tc_input(ctx, "t", TC_F32, 8192, 8192), TC_AXES(-1), TC_NONE, TC_NONE,
                        1e-5),
          n, n, copy);
    unary("sum rows 8192x8192", tc_sum(tc_input(ctx, "u", TC_F32, 8192, 8192), TC_AXES(1), false),
          n, 8192, copy);
    unary("sum columns 8192x8192",
          tc_sum(tc_input(ctx, "v", TC_F32, 8192, 8192), TC_AXES(0), false), n, 8192, copy);
    unary("sum all 64 M", tc_sum(tc_input(ctx, "x", TC_F32, n), TC_ALL, false), n, 1, copy);
    unary("transpose 8192x8192",
          tc_add(tc_permute(tc_input(ctx, "y", TC_F32, 8192, 8192), 1, 0), 1.0), n, n, copy);
    tc_tensor m = tc_input(ctx, "m", TC_F32, 2048, 2048);
    unary("matmul 2048 f32", tc_matmul(m, m), 2048 * 2048, 2048 * 2048, copy);
    tc_tensor chain = tc_input(ctx, "q", TC_F32, 256, 256);
    for (int i = 0; i < 10; i++) {
        chain = tc_cumsum(chain, i % 2);
    }
    unary("chain of ten small kernels", chain, 65536, 65536, copy);
    tc_ctx_free(ctx);
    return 0;
}
