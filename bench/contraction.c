/* bench/contraction.c - matrix products of f32, square, odd and thin, in GFLOP/s and as a share of
 * what the processor's multiply-adds give from registers alone. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "copy.h"

enum { ROUNDS = 11 };

typedef struct product {
    tc_program *program;
    float *a, *b, *c;
    int64_t m, n, k;
} product;

static void product_run(void *arg)
{
    const product *p = arg;
    if (tc_run(p->program, TC_BUFS(TC_BUF(p->a, p->m * p->k), TC_BUF(p->b, p->k * p->n)),
               TC_BUFS(TC_BUF(p->c, p->m * p->n)))) {
        fprintf(stderr, "%s\n", tc_error(p->program));
        exit(1);
    }
}

/* ---- the peak: independent multiply-adds on registers ---- */

enum { PEAK_STEPS = 4096, PEAK_CHAINS = 12 };

#if defined(__x86_64__)
/* One chain for each of twelve registers: enough to hide the latency of two units. */
#define PEAK_12(each) each(0) each(1) each(2) each(3) each(4) each(5) each(6) each(7) each(8)      \
                      each(9) each(10) each(11)
#define PEAK_CLEAR(i) "vxorps %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n"
#define PEAK_YMM(i) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n"
#define PEAK_ZMM(i) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #i "\n"
#define PEAK_RUN(each)                                                                             \
    int64_t left = PEAK_STEPS;                                                                     \
    (void)arg;                                                                                     \
    __asm__ __volatile__(PEAK_12(PEAK_CLEAR) PEAK_CLEAR(12) PEAK_CLEAR(13)                         \
                         "1:\n" PEAK_12(each) "decq %0\njnz 1b\nvzeroupper"                       \
                         : "+r"(left)                                                              \
                         :                                                                         \
                         : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",   \
                           "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")

static void peak_run_256(void *arg) { PEAK_RUN(PEAK_YMM); }
static void peak_run_512(void *arg) { PEAK_RUN(PEAK_ZMM); }
#endif

/* The side that runs it, and its flops; false where there is none. */
static bool peak_side(bench_side *side, double *flops)
{
#if defined(__x86_64__)
    bool wide = bench_has_512();
    if (wide || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) {
        *side = (bench_side){.name = "peak", .run = wide ? peak_run_512 : peak_run_256};
        *flops = 2.0 * (wide ? 16 : 8) * PEAK_STEPS * PEAK_CHAINS;
        return true;
    }
#endif
    (void)side;
    (void)flops;
    return false;
}

static void row(tc_ctx *ctx, int64_t m, int64_t n, int64_t k)
{
    product p = {NULL, bench_floats(m * k), bench_floats(k * n), bench_floats(m * n), m, n, k};
    tc_options options = {.threads = 1};
    tc_tensor a = tc_input(ctx, "a", TC_F32, m, k), b = tc_input(ctx, "b", TC_F32, k, n);
    tc_tensor c = tc_matmul(a, b);
    if (tc_compile_fn(TC_TENSORS(a, b), TC_TENSORS(c), &options, &p.program)) {
        fprintf(stderr, "%s\n", tc_error(c));
        exit(1);
    }
    bench_side sides[] = {{.name = "tc", .run = product_run, .arg = &p}, {.name = NULL}};
    double peak_flops = 0, flops = 2.0 * (double)m * (double)n * (double)k;
    bool has_peak = peak_side(&sides[1], &peak_flops);
    bench_measure(sides, has_peak ? 2 : 1, ROUNDS, 5);
    char name[64];
    snprintf(name, sizeof(name), "matmul %lldx%lldx%lld", (long long)m, (long long)n,
             (long long)k);
    bench_row(name, flops / sides[0].ns, "GFLOP/s", BENCH_INFO, 0);
    if (has_peak) {
        double share = bench_ratio(&sides[1], &sides[0]) * flops / peak_flops;
        bench_row(name, share, "of peak", BENCH_INFO, 0);
    }
    tc_program_free(p.program);
    free(p.a);
    free(p.b);
    free(p.c);
}

int main(int argc, char **argv)
{
    static const int64_t sizes[][3] = {
        {16, 16, 16},    {64, 64, 64},    {100, 100, 100}, {128, 128, 128},    {256, 256, 256},
        {512, 512, 512}, {250, 250, 250}, {1024, 1024, 1024}, {1, 4096, 4096}, {32, 4096, 4096}};
    tc_ctx *ctx;
    bench_begin(argc, argv, "contraction");
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        row(ctx, sizes[i][0], sizes[i][1], sizes[i][2]);
    }
    tc_ctx_free(ctx);
    return bench_end();
}
