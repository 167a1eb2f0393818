/* bench/regret.c - how much time is lost by trusting the model of schedules?
 *
 * Kernels of many kinds are compiled with options.tune_ms: the candidates that the model thinks
 * fastest run in turns, on one thread or on the device. The regret of a kernel is the time of the
 * model's choice over that of the fastest candidate; 1: the model was right. Kernels are layers of
 * networks, shapes of usual tests, and random graphs drawn as the fuzz test draws them.
 *
 *     regret [KERNELS] [--json]      # default 160 of each backend that works here */
#define _GNU_SOURCE
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bench.h"

#define TCT_UNUSED
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function" /* what of it is not needed here */
#endif
#include "../tests/fuzz/draw.h"

enum { MOST = 1000, TUNE_MS = 60000, WORST = 10, DRAWN = 2000 };

typedef struct regret {
    char name[240];
    double ratio;
} regret;

static regret found[MOST];
static int n_found, wanted = 160;
static tc_ctx *ctx;

/* ---- one program ---- */

/* What tc_explain says of every kernel that was measured:
 *       1. NAME: 2 stages, ...
 *         schedule HASH: FORM NUMBERS in ...; measured 1.2 us, the model's choice 1.3 us (FORM
 *         NUMBERS), of 5 */
static void read_explanation(const char *what, const char *text)
{
    char kernel[64] = "";
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        double best, model;
        char schedule[60], chosen[60];
        sscanf(line, " %*d. %63[a-zA-Z0-9_]:", kernel);
        const char *end = strchr(line, '\n'), *at = strstr(line, "; measured ");
        if (!at || (end && at > end) || n_found >= wanted || n_found >= MOST ||
            sscanf(at, "; measured %lf us, the model's choice %lf us (%59[^)]", &best, &model,
                   chosen) != 3 ||
            sscanf(line, " schedule %*[0-9a-f]: %59[^,(]", schedule) != 1 || best <= 0) {
            continue;
        }
        char *in = strstr(schedule, " in ");
        if (in) {
            *in = 0;
        }
        regret *r = &found[n_found++];
        r->ratio = model / best;
        snprintf(r->name, sizeof(r->name), "%.40s, %.30s: %.1f us with %s; chosen: %s", what,
                 kernel, best, schedule, chosen);
    }
}

static void measure(const char *what, tc_tensor y)
{
    tc_program *f = NULL;
    char *text = NULL;
    size_t n = 0;
    if (n_found >= wanted || tc_status_of(y) != TC_OK || tc_compile(y, &f)) {
        return;
    }
    FILE *out = open_memstream(&text, &n);
    if (out) {
        tc_explain(f, out);
        fclose(out);
        read_explanation(what, text);
        free(text);
    }
    tc_program_free(f);
}

static const char *next_name(void)
{
    static int n;
    static char name[24];
    snprintf(name, sizeof(name), "x%d", n++);
    return name;
}

static tc_tensor in2(tc_dtype t, int64_t m, int64_t n)
{
    return tc_input(ctx, next_name(), t, m, n);
}

static tc_tensor in4(tc_dtype t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return tc_input(ctx, next_name(), t, a, b, c, d);
}

/* ---- layers of networks ---- */

static void products(void)
{
    static const int64_t shapes[][3] = {
        {1, 768, 768},      {8, 512, 2048},    {16, 4096, 1000}, {32, 784, 512},
        {64, 64, 64},       {128, 768, 3072},  {128, 784, 512},  {197, 768, 768},
        {256, 256, 256},    {512, 512, 512},   {1000, 33, 47},   {1024, 64, 1024},
        {2048, 16, 2048},   {31, 1024, 257},   {512, 4096, 128}, {100, 10000, 10}};
    static const tc_dtype types[] = {TC_F32, TC_F64, TC_BF16};
    char what[100];
    for (int t = 0; t < TCI_COUNT(types); t++) {
        for (int i = 0; i < TCI_COUNT(shapes); i++) {
            int64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
            tc_tensor a = in2(types[t], m, k), b = in2(types[t], k, n), c = in2(types[t], n, k);
            snprintf(what, sizeof(what), "%s %lldx%lldx%lld", tci_dtype_get(types[t])->name,
                     (long long)m, (long long)k, (long long)n);
            measure(what, tc_matmul(a, b));
            if (t == 0) {
                measure(what, tc_relu(tc_matmul(a, tc_transpose(c, 0, 1))));
            }
        }
    }
}

static void convolutions(void)
{
    static const int64_t layers[][6] = { /* batch, channels, side, filters, kernel, stride */
        {1, 3, 224, 64, 7, 2},  {4, 64, 56, 64, 3, 1},   {4, 64, 56, 256, 1, 1},
        {4, 128, 28, 128, 3, 1}, {8, 256, 14, 256, 3, 1}, {8, 512, 7, 512, 3, 1},
        {8, 256, 28, 512, 1, 2}, {1, 16, 32, 32, 5, 1}};
    for (int i = 0; i < TCI_COUNT(layers); i++) {
        const int64_t *l = layers[i];
        char what[100];
        tc_tensor x = in4(TC_F32, l[0], l[1], l[2], l[2]);
        tc_tensor w = in4(TC_F32, l[3], l[1], l[4], l[4]);
        int pad = (int)l[4] / 2, stride = (int)l[5];
        tc_conv options = {.stride = {stride, stride}, .padding = {pad, pad}};
        snprintf(what, sizeof(what), "conv %lldx%lldx%lld to %lld, %lld", (long long)l[0],
                 (long long)l[1], (long long)l[2], (long long)l[3], (long long)l[4]);
        measure(what, tc_relu(tc_conv2d(x, w, TC_NONE, &options)));
    }
}

static void rows(void)
{
    static const int64_t shapes[][2] = {{7, 33},      {64, 1000},  {128, 768},   {1000, 1000},
                                        {4096, 4096}, {1, 100000}, {100000, 10}, {3000, 257}};
    for (int i = 0; i < TCI_COUNT(shapes); i++) {
        char what[100];
        tc_tensor x = in2(TC_F32, shapes[i][0], shapes[i][1]);
        tc_tensor y = in2(TC_F32, shapes[i][1], shapes[i][0]);
        tc_tensor h = in2(TC_BF16, shapes[i][0], shapes[i][1]);
        snprintf(what, sizeof(what), "%lldx%lld", (long long)shapes[i][0], (long long)shapes[i][1]);
        measure(what, tc_softmax(x, 1));
        measure(what, tc_softmax(x, 0));
        measure(what, tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5));
        measure(what, tc_sum(x, TC_AXES(0), false));
        measure(what, tc_sum(x, TC_AXES(1), false));
        measure(what, tc_max(tc_mul(h, 2), TC_AXES(0), false));
        measure(what, tc_argmax(x, 1, false));
        measure(what, tc_add(x, tc_transpose(y, 0, 1)));
        measure(what, tc_gelu(x));
        measure(what, tc_add(tc_mul(h, 3), 1));
        measure(what, tc_cumsum(x, 0));
        measure(what, tc_pad(x, 1, 3, 5, 0));
        measure(what, tc_flip(x, 1));
    }
}

/* ---- random graphs ---- */

static void drawn(void)
{
    for (int seed = 1; seed < DRAWN && n_found < wanted; seed++) {
        char what[40];
        fz_recipe f;
        fz_graph g;
        memset(&f, 0, sizeof(f));
        memset(&g, 0, sizeof(g));
        fz_draw_recipe(&f, (uint64_t)seed, ctx);
        snprintf(what, sizeof(what), "drawn %d", seed);
        if (fz_build(&f, ctx, &g)) {
            measure(what, g.outputs[0]);
        }
        fz_graph_free(&g);
    }
}

/* ---- the table ---- */

static int dearer_first(const void *a, const void *b)
{
    double x = ((const regret *)a)->ratio, y = ((const regret *)b)->ratio;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void table(const char *backend)
{
    char line[340];
    if (n_found == 0) {
        bench_note(backend, "nothing could be measured");
        return;
    }
    qsort(found, (size_t)n_found, sizeof(found[0]), dearer_first);
    snprintf(line, sizeof(line), "%s, median of %d kernels", backend, n_found);
    bench_row(line, found[n_found / 2].ratio, "of the fastest", BENCH_AT_MOST, 1.05);
    snprintf(line, sizeof(line), "%s, 95th percentile", backend);
    bench_row(line, found[n_found / 20].ratio, "of the fastest", BENCH_AT_MOST, 1.3);
    for (int i = 0; i < WORST && i < n_found; i++) {
        snprintf(line, sizeof(line), "%s, worst %d (%.240s)", backend, i + 1, found[i].name);
        bench_row(line, found[i].ratio, "of the fastest", BENCH_INFO, 0);
    }
}

static void measure_all(const char *backend)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.fallback = TC_FALLBACK_REFUSE;
    o.no_disk_cache = true;
    o.memory_cache_bytes = -1;
    o.tune_ms = TUNE_MS;
    n_found = 0;
    tc_program *f = NULL;
    if (tc_ctx_make(&ctx, &o)) {
        return;
    }
    if (tc_compile(tc_neg(in2(TC_F32, 3, 5)), &f)) {
        bench_skip(backend, tc_error(ctx));
        tc_ctx_free(ctx);
        return;
    }
    tc_program_free(f);
    int all = wanted;
    wanted = all - all / 4; /* a fourth is drawn */
    convolutions();
    rows();
    products();
    wanted = all;
    drawn();
    tc_ctx_free(ctx);
    table(backend);
}

int main(int argc, char **argv)
{
    bench_begin(argc, argv, "regret");
    for (int i = 1; i < argc; i++) {
        int n = atoi(argv[i]);
        wanted = n > 0 && n <= MOST ? n : wanted;
    }
    measure_all("cpu");
    measure_all("cuda");
    return bench_end();
}
