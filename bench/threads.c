/* bench/threads.c - what more threads give: the time of one thread over that of n, over n. The same
 * programs with 1, 2, 4, ... threads, up to the processors there are, take turns. The first one is
 * arithmetic alone: what it lacks the machine does not have. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bench.h"

enum { MOST_INPUTS = 4, MOST_COUNTS = 5 };

typedef struct program {
    tc_program *f;
    tc_buf in[MOST_INPUTS], out;
    int n_in;
} program;

typedef struct graph {
    tc_tensor in[MOST_INPUTS];
    int n_in;
    tc_tensor out;
} graph;

static tc_tensor input(graph *g, tc_ctx *ctx, int n_axes, const int64_t *sizes)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1);
    switch (n_axes) {
    case 1: x = tc_input(ctx, "x", TC_F32, sizes[0]); break;
    case 2: x = tc_input(ctx, "x", TC_F32, sizes[0], sizes[1]); break;
    case 3: x = tc_input(ctx, "x", TC_F32, sizes[0], sizes[1], sizes[2]); break;
    case 4: x = tc_input(ctx, "x", TC_F32, sizes[0], sizes[1], sizes[2], sizes[3]); break;
    }
    return g->in[g->n_in++] = x;
}

#define INPUT(g, ctx, ...)                                                                         \
    input(g, ctx, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                       \
          (int64_t[]){__VA_ARGS__})

static void make_arithmetic(tc_ctx *ctx, graph *g)
{
    g->out = INPUT(g, ctx, 1 << 20);
    for (int i = 0; i < 4; i++) {
        g->out = tc_sin(tc_cos(g->out));
    }
}

static void make_memory(tc_ctx *ctx, graph *g)
{
    g->out = tc_softmax(INPUT(g, ctx, 8192, 2048), -1);
}

static void make_product(tc_ctx *ctx, graph *g)
{
    tc_tensor a = INPUT(g, ctx, 512, 512), b = INPUT(g, ctx, 512, 512);
    g->out = tc_matmul(a, b);
}

static void make_large_product(tc_ctx *ctx, graph *g)
{
    tc_tensor a = INPUT(g, ctx, 2048, 2048), b = INPUT(g, ctx, 2048, 2048);
    g->out = tc_matmul(a, b);
}

static void make_few_rows(tc_ctx *ctx, graph *g)
{
    tc_tensor x = INPUT(g, ctx, 32, 4096), w = INPUT(g, ctx, 4096, 4096);
    g->out = tc_matmul(x, tc_transpose(w, 0, 1));
}

static void make_layer(tc_ctx *ctx, graph *g)
{
    tc_tensor x = INPUT(g, ctx, 128, 768), w = INPUT(g, ctx, 3072, 768), b = INPUT(g, ctx, 3072);
    g->out = tc_gelu(tc_add(tc_matmul(x, tc_transpose(w, 0, 1)), b));
}

static void make_attention(tc_ctx *ctx, graph *g)
{
    tc_tensor q = INPUT(g, ctx, 12, 512, 64), k = INPUT(g, ctx, 12, 512, 64);
    tc_tensor v = INPUT(g, ctx, 12, 512, 64);
    tc_tensor scores = tc_mul(tc_matmul(q, tc_transpose(k, -1, -2)), 0.125);
    g->out = tc_matmul(tc_softmax(scores, -1), v);
}

static void make_images(tc_ctx *ctx, graph *g)
{
    tc_tensor x = INPUT(g, ctx, 8, 64, 56, 56), w = INPUT(g, ctx, 64, 64, 3, 3);
    g->out = tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
}

static void make_small_image(tc_ctx *ctx, graph *g)
{
    tc_tensor x = INPUT(g, ctx, 1, 256, 14, 14), w = INPUT(g, ctx, 256, 256, 3, 3);
    g->out = tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
}

/* Forward, backward and update of a perceptron. */
static void make_step(tc_ctx *ctx, graph *g)
{
    tc_tensor x = INPUT(g, ctx, 256, 1024), y = INPUT(g, ctx, 256, 100);
    tc_tensor w[2] = {INPUT(g, ctx, 1024, 1024), INPUT(g, ctx, 1024, 100)}, grads[2];
    tc_tensor miss = tc_sub(tc_matmul(tc_relu(tc_matmul(x, w[0])), w[1]), y);
    tc_grad(tc_sum(tc_square(miss), TC_ALL, false), w, 2, grads);
    g->out = tc_add(tc_sum(tc_sub(w[0], tc_mul(grads[0], 0.1)), TC_AXES(1), false),
                    tc_sum(tc_sub(w[1], tc_mul(grads[1], 0.1)), TC_AXES(1), false));
}

static const struct {
    const char *name;
    void (*make)(tc_ctx *ctx, graph *g);
} cases[] = {
    {"arithmetic alone, 1 M", make_arithmetic},
    {"softmax 8192x2048", make_memory},
    {"product 512", make_product},
    {"product 2048", make_large_product},
    {"product 32x4096x4096, weight [N, K]", make_few_rows},
    {"product, bias and gelu 128x3072x768", make_layer},
    {"attention 12 heads, 512, 64", make_attention},
    {"convolution 3x3, 8x64x56x56", make_images},
    {"convolution 3x3, 1x256x14x14", make_small_image},
    {"gradients of a perceptron 256x1024x1024x100", make_step},
};

static void run(void *arg)
{
    program *p = (program *)arg;
    if (tc_run(p->f, (tc_bufs){p->in, p->n_in}, (tc_bufs){&p->out, 1})) {
        fprintf(stderr, "%s\n", tc_error(p->f));
        exit(1);
    }
}

static tc_buf memory_of(tc_tensor t, float scale)
{
    int64_t n = tc_count(t);
    float *x = malloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; x && i < n; i++) {
        x[i] = (float)(i * 7919 % 1021 - 510) * scale;
    }
    tc_buf b = TC_BUF(x, n);
    return b;
}

/* The program of a case with so many threads, on memory of its own. */
static program compile(int at, int threads)
{
    program p = {0};
    graph g = {0};
    tc_ctx *ctx;
    tc_options o = {0};
    o.threads = threads;
    if (tc_ctx_make(&ctx, &o)) {
        exit(1);
    }
    cases[at].make(ctx, &g);
    if (tc_compile_fn((tc_tensors){g.in, g.n_in}, (tc_tensors){&g.out, 1}, NULL, &p.f)) {
        fprintf(stderr, "%s\n", tc_ctx_error(ctx));
        exit(1);
    }
    p.n_in = g.n_in;
    for (int i = 0; i < g.n_in; i++) {
        p.in[i] = memory_of(g.in[i], 1e-3f);
    }
    p.out = memory_of(g.out, 0);
    tc_ctx_free(ctx);
    return p;
}

static void drop(program *p)
{
    for (int i = 0; i < p->n_in; i++) {
        free(p->in[i].data);
    }
    free(p->out.data);
    tc_program_free(p->f);
}

static void measure(int at, const int *counts, int n_counts)
{
    program programs[MOST_COUNTS];
    bench_side sides[MOST_COUNTS] = {{0}};
    for (int i = 0; i < n_counts; i++) {
        programs[i] = compile(at, counts[i]);
        sides[i].run = run;
        sides[i].arg = &programs[i];
    }
    bench_measure(sides, n_counts, 11, 30);
    bench_row(cases[at].name, sides[0].ns / 1e6, "ms alone", BENCH_INFO, 0);
    for (int i = 1; i < n_counts; i++) {
        char unit[32];
        double target = counts[i] <= 4 ? 0.85 : 0.65;
        snprintf(unit, sizeof(unit), "of %d threads", counts[i]);
        bench_row(cases[at].name, bench_ratio(&sides[0], &sides[i]) / counts[i], unit,
                  at == 0 ? BENCH_INFO : BENCH_AT_LEAST, target);
    }
    for (int i = 0; i < n_counts; i++) {
        drop(&programs[i]);
    }
}

int main(int argc, char **argv)
{
    int counts[MOST_COUNTS], n = 0, processors = tci_os_cpu_count();
    bench_begin(argc, argv, "threads");
    for (int count = 1; count <= processors && n < MOST_COUNTS; count *= 2) {
        counts[n++] = count;
    }
    if (n < 2) {
        bench_skip("threads", "there is one processor");
        return bench_end();
    }
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(*cases)); i++) {
        measure(i, counts, n);
    }
    return bench_end();
}
