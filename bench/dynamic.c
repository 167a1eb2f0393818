/* bench/dynamic.c - programs of symbolic sizes against programs made for one size, in turns.
 *
 * Floor: the same bytes and flops, so a ratio of 1. What may cost: rows that no whole tile takes
 * (written out as tiles of 8, 4, 2 and 1 rows), divisions by a number that the compiler does not
 * know, and finding the sizes of a call (a comparison where they are those of the last one). */
#define TC_DYNAMIC_SHAPES
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bench.h"

enum { MOST = 8192, ROUNDS = 15 };

typedef struct form {
    tc_program *program;
    tc_buf in[3], out;
    int n_in;
} form;

static void form_run(void *arg)
{
    const form *p = arg;
    tc_bufs in = {p->in, p->n_in}, out = {&p->out, 1};
    if (tc_run(p->program, in, out)) {
        fprintf(stderr, "%s\n", tc_error(p->program));
        exit(1);
    }
}

static float *floats(int64_t n)
{
    float *p = malloc((size_t)(n + 1) * sizeof(*p));
    if (!p) {
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)(i * 2654435761u % 1000) / 1000.0f - 0.5f;
    }
    return p;
}

/* ---- the cases: `batch` is a number or a symbol ---- */

typedef struct wide {
    const char *name;
    tc_tensor (*make)(tc_ctx *ctx, int64_t batch, int64_t sizes[3]);
} wide;

static tc_tensor layer(tc_ctx *ctx, int64_t batch, int64_t k, int64_t n, int64_t sizes[3])
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, batch, k), w = tc_input(ctx, "w", TC_F32, k, n);
    tc_tensor b = tc_input(ctx, "b", TC_F32, n);
    sizes[0] = k;
    sizes[1] = k * n;
    sizes[2] = n;
    return tc_softmax(tc_add(tc_matmul(x, w), b), -1);
}

static tc_tensor make_layer(tc_ctx *ctx, int64_t batch, int64_t sizes[3])
{
    return layer(ctx, batch, 512, 128, sizes);
}

static tc_tensor make_wide_layer(tc_ctx *ctx, int64_t batch, int64_t sizes[3])
{
    return layer(ctx, batch, 1024, 768, sizes);
}

static tc_tensor make_waves(tc_ctx *ctx, int64_t batch, int64_t sizes[3])
{
    sizes[0] = 512;
    return tc_sin(tc_cos(tc_input(ctx, "x", TC_F32, batch, 512)));
}

static tc_tensor make_images(tc_ctx *ctx, int64_t batch, int64_t sizes[3])
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, batch, 8, 14, 14);
    tc_tensor w = tc_input(ctx, "w", TC_F32, 16, 8, 3, 3);
    sizes[0] = 8 * 14 * 14;
    sizes[1] = 16 * 8 * 9;
    return tc_conv2d(x, w, TC_NONE, &(tc_conv){.stride = {2, 2}, .padding = {1, 1}});
}

static const wide cases[] = {{"softmax(x @ w + b), 512 to 128", make_layer},
                             {"softmax(x @ w + b), 1024 to 768", make_wide_layer},
                             {"sin(cos(x)) of rows of 512", make_waves},
                             {"conv 3x3, stride 2, 8 x 14 x 14", make_images}};

static tc_program *compile(tc_tensor y)
{
    tc_program *f;
    if (tc_compile(y, &f)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
    return f;
}

static form form_make(tc_program *f, int64_t batch, const int64_t sizes[3], float *const *data,
                      float *to, int64_t n_out)
{
    form p = {.program = f};
    for (int i = 0; i < 3 && sizes[i]; i++) {
        p.in[p.n_in++] = TC_BUF(data[i], i ? sizes[i] : batch * sizes[i]);
    }
    p.out = TC_BUF(to, n_out);
    return p;
}

static void row(tc_ctx *ctx, const wide *c, tc_program *family, int64_t batch, float *const *data,
                float *to, int threads)
{
    int64_t sizes[3] = {0};
    char name[96];
    tc_scope_begin(ctx);
    tc_tensor y = c->make(ctx, batch, sizes);
    form known = form_make(compile(y), batch, sizes, data, to, tc_count(y));
    form symbolic = known;
    symbolic.program = family;
    bench_side sides[] = {{.name = "known", .run = form_run, .arg = &known},
                          {.name = "symbolic", .run = form_run, .arg = &symbolic}};
    bench_measure(sides, 2, ROUNDS, 10);
    snprintf(name, sizeof(name), "%s, batch %lld, %d thread%s", c->name, (long long)batch, threads,
             threads > 1 ? "s" : "");
    bench_row(name, bench_ratio(&sides[0], &sides[1]), "of one size", BENCH_AT_LEAST, 0.85);
    tc_program_free(known.program);
    tc_scope_end(ctx);
}

static void table(float *const *data, float *to, int threads)
{
    tc_ctx *ctx;
    tc_options options = {.threads = threads};
    if (tc_ctx_make(&ctx, &options)) {
        exit(1);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int64_t sizes[3] = {0};
        tc_program *family = compile(cases[i].make(ctx, TC_DIM("batch", 0, MOST), sizes));
        row(ctx, &cases[i], family, 64, data, to, threads);
        row(ctx, &cases[i], family, 4097, data, to, threads);
        tc_program_free(family);
    }
    tc_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    bench_begin(argc, argv, "dynamic");
    float *data[3] = {floats((int64_t)MOST * 1568), floats(1024 * 768), floats(1024)};
    float *to = floats((int64_t)MOST * 784);
    table(data, to, 1);
    table(data, to, 2);
    return bench_end();
}
