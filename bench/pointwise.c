/* bench/pointwise.c - elementwise chains of f32: past the caches against a copy of the same bytes,
 * in the first-level cache against glibc's vector math library.
 *
 * A kernel whose arithmetic takes longer than a copy cannot reach the copy: for the exact gelu the
 * measure is the slower of the copy and its own arithmetic, taken from the run in cache. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <dlfcn.h>
#include <unistd.h>

#include "copy.h"

enum { FAR = 1 << 24, NEAR = 2048, ROUNDS = 15 };

typedef tc_tensor (*chain)(tc_tensor x);

static tc_tensor chain_exp(tc_tensor x)
{
    return tc_exp(x);
}
static tc_tensor chain_tanh(tc_tensor x)
{
    return tc_tanh(x);
}
static tc_tensor chain_sigmoid(tc_tensor x)
{
    return tc_sigmoid(x);
}
static tc_tensor chain_sin(tc_tensor x)
{
    return tc_sin(x);
}
static tc_tensor chain_cos(tc_tensor x)
{
    return tc_cos(x);
}
static tc_tensor chain_sincos(tc_tensor x)
{
    return tc_sin(tc_cos(x));
}
static tc_tensor chain_log(tc_tensor x)
{
    return tc_log(x);
}
static tc_tensor chain_erf(tc_tensor x)
{
    return tc_erf(x);
}
static tc_tensor chain_gelu(tc_tensor x)
{
    return tc_gelu(x);
}

/* ---- tc's side ---- */

typedef struct map {
    tc_program *program;
    float *to;
    const float *from;
    int64_t n;
} map;

static map map_make(tc_ctx *ctx, chain f, float *to, const float *from, int64_t n, int threads)
{
    map m = {NULL, to, from, n};
    tc_options options = {.threads = threads};
    tc_tensor x = tc_input(ctx, "x", TC_F32, n);
    tc_tensor y = f(x);
    if (tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &options, &m.program)) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
    return m;
}

static void map_run(void *arg)
{
    const map *m = arg;
    if (tc_run(m->program, TC_BUFS(TC_BUF(m->from, m->n)), TC_BUFS(TC_BUF(m->to, m->n)))) {
        fprintf(stderr, "%s\n", tc_error(m->program));
        exit(1);
    }
}

/* ---- glibc's vector functions, called as its own compiler would ---- */

typedef float vec16 __attribute__((vector_size(64)));
typedef struct vector_math {
    vec16 (*first)(vec16), (*second)(vec16); /* second: NULL none */
    float *to;
    const float *from;
} vector_math;

__attribute__((target("avx512f"))) static void vector_math_run(void *arg)
{
    const vector_math *v = arg;
    for (int i = 0; i < NEAR; i += 16) {
        vec16 x;
        memcpy(&x, v->from + i, sizeof(x));
        x = v->first(x);
        x = v->second ? v->second(x) : x;
        memcpy(v->to + i, &x, sizeof(x));
    }
    BENCH_USE(v->to);
}

/* ---- tables ---- */

/* Returns the nanoseconds that an element's arithmetic takes. */
static double near_row(tc_ctx *ctx, void *library, const char *name, chain f, const char *first,
                       const char *second)
{
    static float from[NEAR] __attribute__((aligned(64))), to[NEAR] __attribute__((aligned(64)));
    for (int i = 0; i < NEAR; i++) {
        from[i] = (float)(i * 331 % 1009) * (f == chain_log ? 1.0f : 0.0078125f) + 0.25f;
    }
    map m = map_make(ctx, f, to, from, NEAR, 1);
    vector_math v = {NULL, NULL, to, from};
    if (library && first) {
        *(void **)&v.first = dlsym(library, first);
        *(void **)&v.second = second ? dlsym(library, second) : NULL;
    }
    bench_side sides[] = {{.name = "tc", .run = map_run, .arg = &m},
                          {.name = "library", .run = vector_math_run, .arg = &v}};
    char row[64];
    bench_measure(sides, v.first ? 2 : 1, 2 * ROUNDS + 1, 1);
    snprintf(row, sizeof(row), "%s, in cache", name);
    bench_row(row, NEAR / sides[0].ns, "Gelem/s", BENCH_INFO, 0);
    if (v.first) {
        bench_row(row, bench_ratio(&sides[1], &sides[0]), "of libmvec", BENCH_AT_LEAST, 1.0);
    }
    tc_program_free(m.program);
    return sides[0].ns / NEAR;
}

/* near_ns: of an element's arithmetic. by_arithmetic: that is the bound where it is slower than the
 * copy. */
static void far_row(tc_ctx *ctx, const char *name, chain f, float *to, const float *from,
                    int threads, double near_ns, bool by_arithmetic)
{
    map m = map_make(ctx, f, to, from, FAR, threads);
    bench_side sides[BENCH_COPIES + 1];
    bench_move moves[BENCH_COPIES];
    bench_copy_sides(sides, moves, to, from, FAR, threads);
    sides[BENCH_COPIES] = (bench_side){.name = "tc", .run = map_run, .arg = &m};
    bench_measure(sides, BENCH_COPIES + 1, ROUNDS, 10);
    const bench_side *copy = bench_fastest(sides, BENCH_COPIES), *tc = &sides[BENCH_COPIES];
    char row[64];
    snprintf(row, sizeof(row), "%s, 16 M, %d thread%s", name, threads, threads > 1 ? "s" : "");
    double ratio = bench_ratio(copy, tc);
    double arithmetic = near_ns * FAR / threads / tc->ns;
    bool bound = by_arithmetic && arithmetic > ratio;
    bench_row(row, ratio, "of copy", bound ? BENCH_INFO : BENCH_AT_LEAST, bound ? 0 : 0.85);
    bench_row(row, arithmetic, "of its sums", bound ? BENCH_AT_LEAST : BENCH_INFO,
              bound ? 0.85 : 0);
    bench_row(row, 8.0 * FAR / tc->ns, "GB/s", BENCH_INFO, 0);
    tc_program_free(m.program);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        chain f;
        const char *first, *second;
        bool far, by_arithmetic; /* measured past the caches too; see far_row */
    } rows[] = {
        {"exp", chain_exp, "_ZGVeN16v_expf", NULL, true, false},
        {"log", chain_log, "_ZGVeN16v_logf", NULL, false, false},
        {"sin", chain_sin, "_ZGVeN16v_sinf", NULL, false, false},
        {"cos", chain_cos, "_ZGVeN16v_cosf", NULL, false, false},
        {"sin(cos)", chain_sincos, "_ZGVeN16v_cosf", "_ZGVeN16v_sinf", true, false},
        {"tanh", chain_tanh, "_ZGVeN16v_tanhf", NULL, true, false},
        {"erf", chain_erf, "_ZGVeN16v_erff", NULL, false, false},
        {"sigmoid", chain_sigmoid, NULL, NULL, true, false},
        {"gelu", chain_gelu, NULL, NULL, true, true},
    };
    tc_ctx *ctx;
    bench_begin(argc, argv, "pointwise");
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    void *library = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library || !bench_has_512()) {
        bench_skip("libmvec", library ? "no AVX-512 here" : "not installed");
        library = NULL;
    }
    enum { N_ROWS = sizeof(rows) / sizeof(*rows) };
    double near_ns[N_ROWS];
    for (int i = 0; i < N_ROWS; i++) {
        near_ns[i] = near_row(ctx, library, rows[i].name, rows[i].f, rows[i].first, rows[i].second);
    }
    float *from = bench_floats(FAR), *to = bench_floats(FAR);
    int most = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int threads = 1; threads <= 2 && threads <= most; threads++) {
        for (int i = 0; i < N_ROWS; i++) {
            if (rows[i].far) {
                far_row(ctx, rows[i].name, rows[i].f, to, from, threads, near_ns[i],
                        rows[i].by_arithmetic);
            }
        }
    }
    free(from);
    free(to);
    tc_ctx_free(ctx);
    return bench_end();
}
