/* bench/contraction.c - matrix products, a fused epilogue and convolutions against OpenBLAS and
 * oneDNN, which are opened at run time: without them only the rates are shown. Single thread, then
 * two. The peak is measured first, by multiply-adds that stay in registers. A ratio is one of best
 * rounds: here the rounds of a side differ more by other programs than by chance. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <dlfcn.h>
#include <math.h>

#include "bench.h"

enum { ROUNDS = 25 };

/* ---- the libraries ---- */

typedef void (*sgemm_blas)(int order, int ta, int tb, int m, int n, int k, float alpha,
                           const float *a, int lda, const float *b, int ldb, float beta, float *c,
                           int ldc);
typedef int (*sgemm_dnnl)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                          float *c, int64_t ldc);

static struct {
    sgemm_blas blas;
    sgemm_dnnl dnnl;
    void (*blas_threads)(int n);
    void (*omp_threads)(int n);
} library;

/* A function of the first of the libraries that is there; NULL: none is. */
static void *library_find(const char *const *names, const char *symbol)
{
    for (; *names; names++) {
        void *handle = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
        void *found = handle ? dlsym(handle, symbol) : NULL;
        if (found) {
            return found;
        }
    }
    return NULL;
}

/* Libraries read these when they are opened. Their workers would otherwise spin for tens of
 * milliseconds after each call, on the cores that the other side of a round is timed on. */
static void library_sleep(void)
{
    setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
    setenv("OMP_WAIT_POLICY", "passive", 0);
}

static void library_open(void)
{
    library_sleep();
    static const char *const blas[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    static const char *const dnnl[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
    static const char *const omp[] = {"libgomp.so.1", NULL};
    union { void *p; sgemm_blas blas; sgemm_dnnl dnnl; void (*set)(int); } u;
    u.p = library_find(blas, "cblas_sgemm");
    library.blas = u.blas;
    u.p = library_find(blas, "openblas_set_num_threads");
    library.blas_threads = u.set;
    u.p = library_find(dnnl, "dnnl_sgemm");
    library.dnnl = u.dnnl;
    u.p = library_find(omp, "omp_set_num_threads");
    library.omp_threads = u.set;
}

static void library_threads(int threads)
{
    if (library.blas_threads) {
        library.blas_threads(threads);
    }
    if (library.omp_threads) {
        library.omp_threads(threads);
    }
}

/* ---- what is measured ---- */

typedef struct product {
    int m, n, k;
    float *a, *b, *c, *bias;
    bool gelu; /* bias and gelu follow */
    tc_program *program;
    tc_buf in[3];
    int n_in;
} product;

static void run_tc(void *arg)
{
    product *p = arg;
    tc_bufs in = {p->in, p->n_in};
    if (tc_run(p->program, in, TC_BUFS(TC_BUF(p->c, (int64_t)p->m * p->n)))) {
        fprintf(stderr, "%s\n", tc_error(p->program));
        exit(1);
    }
}

/* The pass that follows a library's product: a tc program in place. */
static tc_program *pass;

static void run_pass(product *p)
{
    int64_t count = (int64_t)p->m * p->n;
    if (p->gelu && tc_run(pass, TC_BUFS(TC_BUF(p->c, count), TC_BUF(p->bias, p->n)),
                          TC_BUFS(TC_BUF(p->c, count)))) {
        exit(1);
    }
}

static void run_blas(void *arg)
{
    product *p = arg;
    enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111 };
    library.blas(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, p->m, p->n, p->k, 1, p->a, p->k, p->b, p->n,
                 0, p->c, p->n);
    run_pass(p);
}

static void run_dnnl(void *arg)
{
    product *p = arg;
    library.dnnl('N', 'N', p->m, p->n, p->k, 1, p->a, p->k, p->b, p->n, 0, p->c, p->n);
    run_pass(p);
}

static float *floats(int64_t n)
{
    float *p = malloc((size_t)n * sizeof(float));
    for (int64_t i = 0; p && i < n; i++) {
        p[i] = (float)(i * 7919 % 2001 - 1000) / 997.0f;
    }
    return p ? p : (exit(1), NULL);
}

static void compile(tc_tensors ins, tc_tensor y, int threads, tc_program **f)
{
    tc_options options = {.threads = threads};
    if (tc_compile_fn(ins, TC_TENSORS(y), &options, f)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
}

static void against(const char *name, bench_side *tc, bench_side *other, double goal)
{
    char text[96];
    snprintf(text, sizeof(text), "%s, of %s", name, other->name);
    bench_row(text, other->best_ns / tc->best_ns, "x its speed", BENCH_AT_LEAST, goal);
}

static void row_product(tc_ctx *ctx, int m, int n, int k, bool gelu, int threads, double goal_blas,
                        double goal_dnnl)
{
    product p = {.m = m, .n = n, .k = k, .gelu = gelu};
    p.a = floats((int64_t)m * k);
    p.b = floats((int64_t)k * n);
    p.c = floats((int64_t)m * n);
    p.bias = floats(n);
    tc_tensor a = tc_input(ctx, "a", TC_F32, m, k), b = tc_input(ctx, "b", TC_F32, k, n);
    tc_tensor bias = tc_input(ctx, "bias", TC_F32, n), c = tc_input(ctx, "c", TC_F32, m, n);
    tc_tensor y = tc_matmul(a, b);
    if (gelu) {
        compile(TC_TENSORS(c, bias), tc_gelu(tc_add(c, bias)), threads, &pass);
        compile(TC_TENSORS(a, b, bias), tc_gelu(tc_add(y, bias)), threads, &p.program);
    } else {
        compile(TC_TENSORS(a, b), y, threads, &p.program);
    }
    p.in[0] = TC_BUF(p.a, (int64_t)m * k);
    p.in[1] = TC_BUF(p.b, (int64_t)k * n);
    p.in[2] = TC_BUF(p.bias, n);
    p.n_in = gelu ? 3 : 2;
    bench_side sides[3] = {{.name = "tc", .run = run_tc, .arg = &p}};
    int n_sides = 1;
    library_threads(threads);
    if (library.blas) {
        sides[n_sides++] = (bench_side){.name = "OpenBLAS", .run = run_blas, .arg = &p};
    }
    if (library.dnnl) {
        sides[n_sides++] = (bench_side){.name = "oneDNN", .run = run_dnnl, .arg = &p};
    }
    bench_measure(sides, n_sides, ROUNDS, (double)m * n * k > 1e9 ? 10 : 5);
    char name[64];
    snprintf(name, sizeof(name), "%s %dx%dx%d, %d thread%s", gelu ? "matmul+bias+gelu" : "matmul",
             m, k, n, threads, threads > 1 ? "s" : "");
    bench_row(name, 2.0 * m * n * k / sides[0].best_ns, "GF/s", BENCH_INFO, 0);
    for (int i = 1; i < n_sides; i++) {
        against(name, &sides[0], &sides[i], sides[i].run == run_blas ? goal_blas : goal_dnnl);
    }
    tc_program_free(p.program);
    free(p.a);
    free(p.b);
    free(p.c);
    free(p.bias);
}

/* ---- convolution: no library call without a header, so a share of the peak ---- */

typedef struct convolution {
    tc_program *program;
    tc_buf in[2], out;
} convolution;

static void run_convolution(void *arg)
{
    convolution *c = arg;
    tc_bufs in = {c->in, 2}, out = {&c->out, 1};
    if (tc_run(c->program, in, out)) {
        exit(1);
    }
}

static void row_convolution(tc_ctx *ctx, int channels, int size, int threads, double peak)
{
    convolution c;
    int64_t n_image = (int64_t)channels * size * size, n_weights = (int64_t)channels * channels * 9;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, channels, size, size);
    tc_tensor w = tc_input(ctx, "w", TC_F32, channels, channels, 3, 3);
    tc_conv o = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    compile(TC_TENSORS(x, w), tc_conv2d(x, w, TC_NONE, &o), threads, &c.program);
    float *image = floats(n_image), *weights = floats(n_weights), *to = floats(n_image);
    c.in[0] = TC_BUF(image, n_image);
    c.in[1] = TC_BUF(weights, n_weights);
    c.out = TC_BUF(to, n_image);
    bench_side side = {.name = "tc", .run = run_convolution, .arg = &c};
    bench_measure(&side, 1, ROUNDS, 20);
    char name[64];
    snprintf(name, sizeof(name), "conv 3x3 %dx%dx%d, %d thread%s", size, size, channels, threads,
             threads > 1 ? "s" : "");
    double rate = 2.0 * 9 * channels * (double)n_image / side.best_ns;
    bench_row(name, rate, "GF/s", BENCH_INFO, 0);
    bench_row(name, rate / (peak * threads), "of peak", BENCH_INFO, 0);
    tc_program_free(c.program);
    free(image);
    free(weights);
    free(to);
}

/* ---- the peak ---- */

#if defined(__x86_64__) && defined(__GNUC__)
typedef float lanes __attribute__((vector_size(64)));
enum { CHAINS = 12, STEPS = 2000 };

#define CHAIN(v) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(v) : "v"(x));

__attribute__((target("avx512f"))) static void run_peak(void *arg)
{
    lanes *at = arg, x = *at, a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x;
    lanes i = x, j = x, k = x, l = x;
    for (int step = 0; step < STEPS; step++) {
        CHAIN(a) CHAIN(b) CHAIN(c) CHAIN(d) CHAIN(e) CHAIN(f)
        CHAIN(g) CHAIN(h) CHAIN(i) CHAIN(j) CHAIN(k) CHAIN(l)
    }
    *at = (a + b + c + d + e + f + g + h + i + j + k + l) * 0;
}

static double peak_rate(void)
{
    static lanes memory[1];
    bench_side side = {.name = "peak", .run = run_peak, .arg = memory};
    if (!__builtin_cpu_supports("avx512f")) {
        return 0;
    }
    bench_measure(&side, 1, ROUNDS, 5);
    return 32.0 * CHAINS * STEPS / side.best_ns;
}
#else
static double peak_rate(void)
{
    return 0;
}
#endif

int main(int argc, char **argv)
{
    tc_ctx *ctx;
    bench_begin(argc, argv, "contraction");
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    library_open();
    if (!library.blas) {
        bench_skip("OpenBLAS", "libopenblas.so.0 is not installed");
    }
    if (!library.dnnl) {
        bench_skip("oneDNN", "libdnnl.so is not installed");
    }
    double peak = peak_rate();
    bench_row("multiply-adds in registers", peak, "GF/s", BENCH_INFO, 0);
    static const int sizes[] = {64, 128, 256, 384, 512, 1024, 2048};
    int one = argc > 1 ? atoi(argv[1]) : 0; /* a single size, one thread */
    for (int threads = 1; threads <= (one ? 1 : 2); threads++) {
        for (int i = 0; i < (int)(sizeof(sizes) / sizeof(*sizes)); i++) {
            double goal = sizes[i] <= 384 ? 1.0 : 0.95;
            if (!one || one == sizes[i]) {
                row_product(ctx, sizes[i], sizes[i], sizes[i], false, threads, goal, goal);
            }
        }
        if (!one || one == 1) {
            row_product(ctx, 1, 4096, 4096, false, threads, 1.0, 1.0);
        }
        if (!one || one == 32) {
            row_product(ctx, 32, 4096, 4096, false, threads, 1.3, 1.3);
        }
        if (!one || one == 2) {
            row_product(ctx, 1024, 1024, 1024, true, threads, 1.1, 1.1);
        }
        if (!one || one == 3) {
            row_convolution(ctx, 64, 56, threads, peak);
            row_convolution(ctx, 128, 28, threads, peak);
        }
    }
    tc_ctx_free(ctx);
    return bench_end();
}
