/* bench/contraction.c - matrix products, a fused epilogue and convolutions against OpenBLAS and
 * oneDNN, which are opened at run time: without them only the rates are shown. Single thread, then
 * two. The peak is measured first, by multiply-adds that stay in registers. A ratio is one of best
 * rounds: here the rounds of a side differ more by other programs than by chance.
 *
 *   matmul            both libraries' sgemm; with one row also reading the matrix and nothing else
 *   matmul+bias+gelu  their sgemm, then one pass in place: tc's own kernel for it, in vectors
 *   products of heads q k^T and p v, and batches: their sgemm for one head after the other
 *   conv              oneDNN's direct convolution, in the layouts that it chooses; bringing arrays
 *                     into them is not counted, while tc reads and writes NCHW. TC_MATH_FAST, which
 *                     may take Winograd's, with oneDNN's Winograd
 *   bf16              oneDNN's matmul; dense rows in, f32 out, like tc's */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <dlfcn.h>
#include <math.h>
#include <strings.h>

#include "copy.h"
#include "onednn.h"

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
    bool onednn; /* its own calls too */
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

/* Under some hypervisors OpenBLAS does not recognise the processor and takes a generic kernel, five
 * times slower than the right one: it is told which, before it is opened. */
static void library_choose(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        setenv("OPENBLAS_CORETYPE", "Haswell", 0);
    }
#endif
}

/* Nothing is compared with a kernel that does not use the machine's vectors. */
static void library_judge(const char *core)
{
    static const char *const wide[] = {"SkylakeX", "Cooperlake", "SapphireRapids", "Zen5"};
    static const char *const middle[] = {"Haswell", "Zen"};
    bool good = false, is_wide = false, is_middle = false;
#if defined(__x86_64__)
    is_wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    is_middle = !is_wide && __builtin_cpu_supports("avx2");
#endif
    for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++) {
        good = good || !strcasecmp(core, wide[i]);
    }
    for (size_t i = 0; !is_wide && i < sizeof(middle) / sizeof(*middle); i++) {
        good = good || !strcasecmp(core, middle[i]);
    }
    bench_note("OpenBLAS has chosen its kernels for", core);
    if (!good && (is_wide || is_middle)) {
        static char why[128];
        snprintf(why, sizeof(why), "its kernels for %s are not this machine's", core);
        bench_skip("OpenBLAS", why);
        library.blas = NULL;
    }
}

static void library_open(void)
{
    library_sleep();
    library_choose();
    static const char *const blas[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    static const char *const dnnl[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
    static const char *const omp[] = {"libgomp.so.1", NULL};
    union {
        void *p;
        sgemm_blas blas;
        sgemm_dnnl dnnl;
        void (*set)(int);
        char *(*text)(void);
    } u;
    u.p = library_find(blas, "cblas_sgemm");
    library.blas = u.blas;
    if (!library.blas) {
        bench_skip("OpenBLAS", "libopenblas.so.0 is not installed");
    }
    u.p = library_find(blas, "openblas_get_corename");
    if (library.blas && u.p) {
        library_judge(u.text());
    }
    u.p = library_find(blas, "openblas_set_num_threads");
    library.blas_threads = u.set;
    u.p = library_find(dnnl, "dnnl_sgemm");
    library.dnnl = u.dnnl;
    library.onednn = library.dnnl && onednn_open();
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
    const char *name;
    int count; /* products, one after the other in memory */
    int m, n, k;
    bool turned; /* the second factor is n x k */
    bool gelu;   /* bias and gelu follow */
    double goal_blas, goal_dnnl;
    float *a, *b, *c, *bias;
    tc_program *program;
    tc_buf in[3];
    int n_in;
} product;

static void run_tc(void *arg)
{
    product *p = arg;
    tc_bufs in = {p->in, p->n_in};
    if (tc_run(p->program, in, TC_BUFS(TC_BUF(p->c, (int64_t)p->count * p->m * p->n)))) {
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
    enum { ROW_MAJOR = 101, PLAIN = 111, TURNED = 112 };
    for (int64_t i = 0; i < p->count; i++) {
        library.blas(ROW_MAJOR, PLAIN, p->turned ? TURNED : PLAIN, p->m, p->n, p->k, 1,
                     p->a + i * p->m * p->k, p->k, p->b + i * p->k * p->n, p->turned ? p->k : p->n,
                     0, p->c + i * p->m * p->n, p->n);
    }
    run_pass(p);
}

static void run_dnnl(void *arg)
{
    product *p = arg;
    for (int64_t i = 0; i < p->count; i++) {
        library.dnnl('N', p->turned ? 'T' : 'N', p->m, p->n, p->k, 1, p->a + i * p->m * p->k, p->k,
                     p->b + i * p->k * p->n, p->turned ? p->k : p->n, 0, p->c + i * p->m * p->n,
                     p->n);
    }
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

static void compile(tc_tensors ins, tc_tensor y, tc_math math, int threads, tc_program **f)
{
    tc_options options = {.threads = threads, .math = math};
    if (tc_compile_fn(ins, TC_TENSORS(y), &options, f)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
}

static void against(const char *name, bench_side *tc, bench_side *other, double goal)
{
    char text[128];
    snprintf(text, sizeof(text), "%s, of %s", name, other->name);
    bench_row(text, other->best_ns / tc->best_ns, "x its speed", BENCH_AT_LEAST, goal);
}

static void make_product(tc_ctx *ctx, product *p, int threads)
{
    int64_t n_a = (int64_t)p->count * p->m * p->k, n_b = (int64_t)p->count * p->k * p->n;
    p->a = floats(n_a);
    p->b = floats(n_b);
    p->c = floats((int64_t)p->count * p->m * p->n);
    p->bias = floats(p->n);
    bool one = p->count == 1;
    tc_tensor bias = tc_input(ctx, "bias", TC_F32, p->n);
    tc_tensor c = tc_input(ctx, "c", TC_F32, p->m, p->n);
    tc_tensor a = one ? tc_input(ctx, "a", TC_F32, p->m, p->k)
                      : tc_input(ctx, "a", TC_F32, p->count, p->m, p->k);
    int rows = p->turned ? p->n : p->k, columns = p->turned ? p->k : p->n;
    tc_tensor b = one ? tc_input(ctx, "b", TC_F32, rows, columns)
                      : tc_input(ctx, "b", TC_F32, p->count, rows, columns);
    tc_tensor y = tc_matmul(a, p->turned ? tc_transpose(b, -1, -2) : b);
    if (p->gelu) {
        compile(TC_TENSORS(c, bias), tc_gelu(tc_add(c, bias)), TC_MATH_EXACT, threads, &pass);
        compile(TC_TENSORS(a, b, bias), tc_gelu(tc_add(y, bias)), TC_MATH_EXACT, threads,
                &p->program);
    } else {
        compile(TC_TENSORS(a, b), y, TC_MATH_EXACT, threads, &p->program);
    }
    p->in[0] = TC_BUF(p->a, n_a);
    p->in[1] = TC_BUF(p->b, n_b);
    p->in[2] = TC_BUF(p->bias, p->n);
    p->n_in = p->gelu ? 3 : 2;
}

static void drop_product(product *p)
{
    tc_program_free(p->program);
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->bias);
}

static void title(char *text, size_t n, const char *name, int threads)
{
    snprintf(text, n, "%s, %d thread%s", name, threads, threads > 1 ? "s" : "");
}

static void row_product(tc_ctx *ctx, product p, int threads)
{
    char name[96];
    bench_side sides[5] = {{.name = "tc", .run = run_tc, .arg = &p}};
    bench_move moves[2];
    int n_sides = 1;
    title(name, sizeof(name), p.name, threads);
    make_product(ctx, &p, threads);
    library_threads(threads);
    if (library.blas) {
        sides[n_sides++] = (bench_side){.name = "OpenBLAS", .run = run_blas, .arg = &p};
    }
    if (library.dnnl) {
        sides[n_sides++] = (bench_side){.name = "oneDNN", .run = run_dnnl, .arg = &p};
    }
    int n_libraries = n_sides;
    for (int i = 0; i < 2 && p.m == 1; i++) {
        bench_part part = i ? BENCH_FORM(read_streams) : BENCH_FORM(read);
        moves[i] = (bench_move){part, p.b, p.b, (int64_t)p.k * p.n, threads};
        sides[n_sides++] = (bench_side){.name = "read", .run = bench_move_run, .arg = &moves[i]};
    }
    double flops = 2.0 * p.count * p.m * p.n * p.k;
    bench_measure(sides, n_sides, ROUNDS, flops > 2e9 ? 10 : 5);
    bench_row(name, flops / sides[0].best_ns, "GF/s", BENCH_INFO, 0);
    for (int i = 1; i < n_libraries; i++) {
        against(name, &sides[0], &sides[i], sides[i].run == run_blas ? p.goal_blas : p.goal_dnnl);
    }
    if (n_sides > n_libraries) {
        const bench_side *read = bench_fastest(sides + n_libraries, 2);
        bench_row(name, read->best_ns / sides[0].best_ns, "of read", BENCH_AT_LEAST, 0.95);
        bench_row(name, 4.0 * p.k * p.n / sides[0].best_ns, "GB/s", BENCH_INFO, 0);
    }
    drop_product(&p);
}

/* ---- convolution ---- */

typedef struct convolution {
    tc_program *program;
    tc_buf in, out;
} convolution;

static void run_convolution(void *arg)
{
    convolution *c = arg;
    tc_bufs in = {&c->in, 1}, out = {&c->out, 1};
    if (tc_run(c->program, in, out)) {
        exit(1);
    }
}

/* The rate of a side that is tc, and how that compares with its peer, if there is one. */
static void show_convolution(const char *text, int threads, double flops, double peak,
                             bench_side *tc, bench_side *peer)
{
    char name[64];
    title(name, sizeof(name), text, threads);
    double rate = flops / tc->best_ns;
    bench_row(name, rate, "GF/s", BENCH_INFO, 0);
    bench_row(name, rate / (peak * threads), "of peak", BENCH_INFO, 0);
    if (peer) {
        against(name, tc, peer, 0.8);
    }
}

static void row_convolution(tc_ctx *ctx, int channels, int size, int threads, double peak)
{
    enum { DIRECT, FAST, WAYS };
    static const int algorithms[WAYS] = {ONEDNN_DIRECT, ONEDNN_WINOGRAD};
    static const char *const names[WAYS] = {"oneDNN, direct", "oneDNN, Winograd"};
    int64_t n_image = (int64_t)channels * size * size, n_weights = (int64_t)channels * channels * 9;
    float *image = floats(n_image), *weights = floats(n_weights), *to = floats(n_image);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, channels, size, size);
    tc_tensor w = tc_borrow(ctx, weights, TC_F32, channels, channels, 3, 3);
    tc_conv o = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &o);
    convolution c[WAYS];
    onednn_op peers[WAYS];
    bench_side sides[2 * WAYS];
    int n = WAYS, of[WAYS];
    library_threads(threads);
    for (int i = 0; i < WAYS; i++) {
        c[i] = (convolution){NULL, TC_BUF(image, n_image), TC_BUF(to, n_image)};
        compile(TC_TENSORS(x), y, i == FAST ? TC_MATH_FAST : TC_MATH_EXACT, threads, &c[i].program);
        sides[i] = (bench_side){.name = "tc", .run = run_convolution, .arg = &c[i]};
        of[i] = library.onednn && onednn_convolution(&peers[i], algorithms[i], channels, size, 3,
                                                     image, weights, to)
                    ? n++
                    : -1;
        if (of[i] >= 0) {
            sides[of[i]] = (bench_side){.name = names[i], .run = onednn_run, .arg = &peers[i]};
        }
    }
    bench_measure(sides, n, ROUNDS, 10);
    for (int i = 0; i < WAYS; i++) {
        char text[48];
        snprintf(text, sizeof(text), "conv 3x3 %dx%dx%d%s", size, size, channels,
                 i == FAST ? ", fast" : "");
        show_convolution(text, threads, 2.0 * 9 * channels * (double)n_image, peak, &sides[i],
                         of[i] >= 0 ? &sides[of[i]] : NULL);
        tc_program_free(c[i].program);
    }
    free(image);
    free(weights);
    free(to);
}

/* ---- bf16 ---- */

typedef struct halves {
    tc_program *program;
    tc_buf in[2], out;
} halves;

static void run_halves(void *arg)
{
    halves *h = arg;
    tc_bufs in = {h->in, 2}, out = {&h->out, 1};
    if (tc_run(h->program, in, out)) {
        exit(1);
    }
}

static uint16_t *bf16s(int64_t n)
{
    float *from = floats(n);
    uint16_t *to = malloc((size_t)n * sizeof(*to));
    for (int64_t i = 0; to && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof(bits));
        to[i] = (uint16_t)(bits >> 16);
    }
    free(from);
    return to ? to : (exit(1), NULL);
}

static void row_bf16(tc_ctx *ctx, int64_t size, int threads)
{
    halves h;
    int64_t n = size * size;
    tc_tensor a = tc_input(ctx, "a", TC_BF16, size, size);
    tc_tensor b = tc_input(ctx, "b", TC_BF16, size, size);
    tc_tensor y = tc_matmul(tc_cast(a, TC_F32), tc_cast(b, TC_F32));
    compile(TC_TENSORS(a, b), y, TC_MATH_EXACT, threads, &h.program);
    uint16_t *left = bf16s(n), *right = bf16s(n);
    float *to = floats(n);
    h.in[0] = (tc_buf){.data = left, .dtype = TC_BF16, .n = n};
    h.in[1] = (tc_buf){.data = right, .dtype = TC_BF16, .n = n};
    h.out = TC_BUF(to, n);
    bench_side sides[2] = {{.name = "tc", .run = run_halves, .arg = &h}};
    onednn_op matmul;
    library_threads(threads);
    bool peer = library.onednn &&
                onednn_matmul(&matmul, size, size, size, ONEDNN_BF16, left, right, to);
    sides[1] = (bench_side){.name = "oneDNN", .run = onednn_run, .arg = &matmul};
    bench_measure(sides, peer ? 2 : 1, ROUNDS, 10);
    char name[64], text[40];
    snprintf(text, sizeof(text), "bf16 matmul %d", (int)size);
    title(name, sizeof(name), text, threads);
    bench_row(name, 2.0 * (double)n * (double)size / sides[0].best_ns, "GF/s", BENCH_INFO, 0);
    if (peer) {
        against(name, &sides[0], &sides[1], 0.8);
    }
    tc_program_free(h.program);
    free(left);
    free(right);
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
        /* clang-format off */
        CHAIN(a) CHAIN(b) CHAIN(c) CHAIN(d) CHAIN(e) CHAIN(f) CHAIN(g) CHAIN(h) CHAIN(i) CHAIN(j)
        CHAIN(k) CHAIN(l)
        /* clang-format on */
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

#define GOALS(blas, dnnl) .goal_blas = blas, .goal_dnnl = dnnl
static const product products[] = {
    {.name = "matmul 64x64x64", .count = 1, .m = 64, .n = 64, .k = 64, GOALS(1.0, 1.0)},
    {.name = "matmul 128x128x128", .count = 1, .m = 128, .n = 128, .k = 128, GOALS(1.0, 1.0)},
    {.name = "matmul 256x256x256", .count = 1, .m = 256, .n = 256, .k = 256, GOALS(1.0, 1.0)},
    {.name = "matmul 384x384x384", .count = 1, .m = 384, .n = 384, .k = 384, GOALS(1.0, 1.0)},
    {.name = "matmul 512x512x512", .count = 1, .m = 512, .n = 512, .k = 512, GOALS(0.95, 0.95)},
    {.name = "matmul 1024x1024x1024",
     .count = 1,
     .m = 1024,
     .n = 1024,
     .k = 1024,
     GOALS(0.95, 0.95)},
    {.name = "matmul 2048x2048x2048",
     .count = 1,
     .m = 2048,
     .n = 2048,
     .k = 2048,
     GOALS(0.95, 0.95)},
    {.name = "matmul 1x4096x4096", .count = 1, .m = 1, .n = 4096, .k = 4096, GOALS(1.0, 1.0)},
    {.name = "matmul 32x4096x4096", .count = 1, .m = 32, .n = 4096, .k = 4096, GOALS(1.3, 1.0)},
    {.name = "matmul+bias+gelu 1024",
     .count = 1,
     .m = 1024,
     .n = 1024,
     .k = 1024,
     .gelu = true,
     GOALS(1.1, 1.1)},
    {.name = "8 products 256x256x256", .count = 8, .m = 256, .n = 256, .k = 256, GOALS(1.0, 1.0)},
    {.name = "12 heads, q k^T, 128 tokens",
     .count = 12,
     .m = 128,
     .n = 128,
     .k = 64,
     .turned = true,
     GOALS(1.0, 1.0)},
    {.name = "12 heads, p v, 128 tokens",
     .count = 12,
     .m = 128,
     .n = 64,
     .k = 128,
     GOALS(1.0, 1.0)},
    {.name = "8 heads, q k^T, 512 tokens",
     .count = 8,
     .m = 512,
     .n = 512,
     .k = 64,
     .turned = true,
     GOALS(1.0, 1.0)},
    {.name = "8 heads, p v, 512 tokens", .count = 8, .m = 512, .n = 64, .k = 512, GOALS(1.0, 1.0)},
};

int main(int argc, char **argv)
{
    tc_ctx *ctx;
    bench_begin(argc, argv, "contraction");
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    library_open();
    if (!library.dnnl) {
        bench_skip("oneDNN", "libdnnl.so is not installed");
    }
    double peak = peak_rate();
    bench_row("multiply-adds in registers", peak, "GF/s", BENCH_INFO, 0);
    int one = argc > 1 ? atoi(argv[1]) : 0; /* products of that many rows, one thread */
    for (int threads = 1; threads <= (one ? 1 : 2); threads++) {
        for (int i = 0; i < (int)(sizeof(products) / sizeof(*products)); i++) {
            if (!one || one == products[i].m) {
                row_product(ctx, products[i], threads);
            }
        }
        if (!one || one == 3) {
            row_convolution(ctx, 64, 56, threads, peak);
            row_convolution(ctx, 128, 28, threads, peak);
            row_convolution(ctx, 256, 14, threads, peak);
        }
        if (!one || one == 4) {
            row_bf16(ctx, 1024, threads);
        }
    }
    tc_ctx_free(ctx);
    return bench_end();
}
