/* Attention whose sizes are symbols, as a kernel or in bands of rows, and in bands as its sums are
 * reproducible: the results of sizes that are known, the bits of the interpreter, and no array of
 * scores. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "../tc_test.h"
#include "same.h"

/* DRAWN: weights are dropped */
typedef enum mask { NONE, CAUSAL, GIVEN, NOTHING, BIAS, DRAWN } mask;
typedef struct attention {
    const char *name;
    int heads, groups, d, dv; /* groups: heads that share keys and values; 0: none do */
    mask mask;
    tc_dtype dtype;
    bool grad, late; /* late: the cotangent follows from the result */
    bool cross;      /* as many keys as another size says */
    bool same;       /* queries are keys */
    int most;        /* of a symbol; 0: 1 << 20 */
} attention;

typedef struct sizes {
    int queries, keys;
} sizes;

enum { N_IN = 5, N_OUT = 4 };

static double next_number(void)
{
    static uint32_t state = 97;
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 20) / 2048.0 - 1.0;
}

typedef struct data {
    tc_buf in[N_IN], out[N_OUT];
} data;

static int item_bytes(tc_dtype t)
{
    return t == TC_F64 ? 8 : t == TC_F32 ? 4 : t == TC_BOOL ? 1 : 2;
}

static void put_number(tc_dtype t, double x, void *to)
{
    float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    uint16_t half = (uint16_t)(bits >> 16);
    memcpy(to,
           t == TC_F64   ? (void *)&x
           : t == TC_F32 ? (void *)&single
                         : (void *)&half,
           (size_t)item_bytes(t));
}

static double number_at(tc_dtype t, const void *items, int64_t i)
{
    if (t == TC_F64) {
        return ((const double *)items)[i];
    }
    uint32_t bits = t == TC_F32 ? ((const uint32_t *)items)[i]
                                : (uint32_t)((const uint16_t *)items)[i] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return (double)x;
}

/* q, k, v, cotangent, mask; the result and gradients of q, k, v. */
static data make_data(attention c, sizes n)
{
    int64_t kh = c.groups ? c.heads / c.groups : c.heads;
    int64_t q = (int64_t)c.heads * n.queries * c.d, k = kh * n.keys * c.d, v = kh * n.keys * c.dv;
    int64_t y = (int64_t)c.heads * n.queries * c.dv, m = (int64_t)n.queries * n.keys;
    const int64_t n_in[N_IN] = {q, k, v, y, m}, n_out[N_OUT] = {y, q, k, v};
    data d;
    for (int i = 0; i < N_IN; i++) {
        tc_dtype t = i == 4 && c.mask != BIAS ? TC_BOOL : c.dtype;
        char *items = malloc((size_t)n_in[i] * 8 + 8);
        for (int64_t j = 0; j < n_in[i]; j++) {
            double x = next_number();
            if (t == TC_BOOL) {
                items[j] = x > -0.5 && (c.mask != NOTHING || j / n.keys % 3 != 1);
            } else {
                put_number(t, x, items + j * item_bytes(t));
            }
        }
        d.in[i] = (tc_buf){.data = items, .dtype = t, .n = n_in[i]};
    }
    for (int i = 0; i < N_OUT; i++) {
        d.out[i] = (tc_buf){.data = calloc((size_t)n_out[i] + 1, 8),
                            .dtype = c.dtype,
                            .n = n_out[i]};
    }
    return d;
}

static void free_data(data *d)
{
    for (int i = 0; i < N_IN + N_OUT; i++) {
        free(i < N_IN ? d->in[i].data : d->out[i - N_IN].data);
    }
}

static int n_results(attention c)
{
    return c.grad ? N_OUT : 1;
}

/* x: q, k, v and the mask. */
static tc_tensor attend(tc_ctx *ctx, attention c, int64_t queries, int64_t keys, const tc_tensor *x)
{
    int kh = c.groups ? c.heads / c.groups : c.heads;
    tc_tensor q = x[0], k = c.same ? x[0] : x[1], v = x[2];
    if (c.groups) {
        q = tc_reshape(q, kh, c.groups, queries, c.d);
        k = tc_unsqueeze(k, 1);
        v = tc_unsqueeze(v, 1);
    }
    tc_tensor scores = tc_mul(tc_matmul(q, tc_transpose(k, -2, -1)), 0.25);
    if (c.mask == CAUSAL) {
        tc_tensor row = tc_unsqueeze(tc_arange(ctx, 0, queries, 1, TC_I32), 1);
        scores = tc_where(tc_le(tc_arange(ctx, 0, keys, 1, TC_I32), row), scores, -INFINITY);
    } else if (c.mask == GIVEN || c.mask == NOTHING) {
        scores = tc_where(x[3], scores, c.mask == NOTHING ? -1e30 : -INFINITY);
    } else if (c.mask == BIAS) {
        scores = tc_add(scores, x[3]);
    }
    tc_tensor weights = tc_softmax(scores, -1);
    weights = c.mask == DRAWN ? tc_dropout(weights, 0.25, 7) : weights;
    tc_tensor y = tc_matmul(weights, v);
    return c.groups ? tc_reshape(y, c.heads, queries, c.dv) : y;
}

/* The program of these sizes, which may be symbols. */
static tc_program *compile(tc_ctx *ctx, attention c, int64_t queries, int64_t keys)
{
    tc_program *f = NULL;
    int kh = c.groups ? c.heads / c.groups : c.heads;
    tc_tensor x[4] = {tc_input(ctx, "q", c.dtype, c.heads, queries, c.d),
                      tc_input(ctx, "k", c.dtype, kh, keys, c.d),
                      tc_input(ctx, "v", c.dtype, kh, keys, c.dv),
                      tc_input(ctx, "m", c.mask == BIAS ? c.dtype : TC_BOOL, queries, keys)};
    tc_tensor g = tc_input(ctx, "g", c.dtype, c.heads, queries, c.dv), to[N_OUT];
    tc_tensor y = attend(ctx, c, queries, keys, x);
    tc_tensor end = c.late ? tc_tanh(y) : y;
    to[0] = y;
    REQUIRE(!c.grad || tc_vjp(TC_TENSORS(end), TC_TENSORS(g), x, 3, to + 1) == TC_OK);
    tc_status status = tc_compile_fn(TC_TENSORS(x[0], x[1], x[2], g, x[3]),
                                     (tc_tensors){to, n_results(c)}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(ctx));
    REQUIRE(f != NULL);
    return f;
}

static tc_ctx *open_context(const char *backend, int threads, bool reproducible, int bits)
{
    tc_ctx *ctx;
    tc_options o = {.backend = backend,
                    .threads = threads,
                    .reproducible = reproducible,
                    .vector_bits = bits,
                    .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

/* Bytes of its workspace. */
static int64_t run(tc_program *f, attention c, data *d)
{
    tc_program_info info = {0};
    tc_status status = tc_run(f, (tc_bufs){d->in, N_IN}, (tc_bufs){d->out, n_results(c)});
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(f));
    tc_program_get_info(f, &info);
    return info.arena_bytes;
}

static void check_alike(attention c, sizes n, const data *want, const data *got, double within)
{
    for (int i = 0; i < n_results(c); i++) {
        double most = 0;
        for (int64_t j = 0; j < want->out[i].n; j++) {
            double x = number_at(c.dtype, want->out[i].data, j);
            double y = number_at(c.dtype, got->out[i].data, j);
            double off = isnan(x) && isnan(y) ? 0 : fabs(x - y) / (1 + fabs(x));
            most = off > most || isnan(off) ? off : most;
        }
        CHECK_MSG(most <= within, "%s of %d, %d: result %d is off by %g", c.name, n.queries, n.keys,
                  i, most);
    }
}

static void check_bits(attention c, sizes n, const data *want, const data *got, const char *whose)
{
    for (int i = 0; i < n_results(c); i++) {
        int64_t at = same_until(c.dtype, want->out[i].data, got->out[i].data, want->out[i].n);
        CHECK_MSG(at < 0, "%s of %d, %d: result %d has other bits than %s at %lld", c.name,
                  n.queries, n.keys, i, whose, (long long)at);
    }
}

/* With the inputs of d, and room for results of its own. */
static data as_large(const data *d)
{
    data to = *d;
    for (int i = 0; i < N_OUT; i++) {
        to.out[i].data = calloc((size_t)d->out[i].n + 1, 8);
    }
    return to;
}

static void free_results(data *d)
{
    for (int i = 0; i < N_OUT; i++) {
        free(d->out[i].data);
    }
}

static const sizes all_sizes[] = {{1, 1},     {0, 0},     {63, 63}, {64, 64}, {65, 65},
                                  {257, 257}, {509, 509}, {13, 13}, {15, 15}, {33, 33}};
static const sizes cross_sizes[] = {{1, 300}, {300, 1}, {129, 257}, {509, 67}, {20, 0}, {28, 32}};

static void check_symbolic(attention c, bool reproducible, int bits)
{
    tc_ctx *cpu = open_context("cpu", 3, reproducible, bits);
    tc_ctx *interp = open_context("interp", 1, reproducible, 0);
    int64_t most = c.most ? c.most : 1 << 20, s = TC_DIM("queries", 0, most);
    int64_t keys = c.cross ? TC_DIM("keys", 0, most) : s;
    tc_program *f = compile(cpu, c, s, keys), *g = compile(interp, c, s, keys);
    const sizes *list = c.cross ? cross_sizes : all_sizes;
    int n = c.cross ? (int)(sizeof(cross_sizes) / sizeof(sizes))
                    : (int)(sizeof(all_sizes) / sizeof(sizes));
    for (int i = 0; i < n; i++) {
        data got = make_data(c, list[i]), same = as_large(&got), want = as_large(&got);
        run(f, c, &got);
        run(g, c, &same);
        check_bits(c, list[i], &same, &got, "the interpreter");
        if (list[i].queries > 0) {
            tc_program *h = compile(interp, c, list[i].queries, list[i].keys);
            run(h, c, &want);
            tc_program_free(h);
            if (reproducible) {
                check_bits(c, list[i], &want, &got, "of known sizes");
            }
            check_alike(c, list[i], &want, &got, c.dtype == TC_BF16 ? 0.05 : 1e-5);
        }
        free_results(&same);
        free_results(&want);
        free_data(&got);
    }
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(cpu);
    tc_ctx_free(interp);
}

static const attention cases[] = {
    {"f32", 3, 0, 32, 24, NONE, TC_F32, false, false, false, false, 0},
    {"f32 grad", 2, 0, 32, 24, NONE, TC_F32, true, false, false, false, 0},
    {"causal grad", 2, 0, 16, 16, CAUSAL, TC_F32, true, true, false, false, 0},
    {"given", 2, 0, 16, 16, GIVEN, TC_F32, false, false, false, false, 0},
    {"rows of nothing, grad", 1, 0, 16, 16, NOTHING, TC_F32, true, false, false, false, 0},
    {"dropped grad", 2, 0, 16, 16, DRAWN, TC_F32, true, true, false, false, 0},
    {"grouped grad", 4, 2, 16, 16, CAUSAL, TC_F32, true, true, false, false, 0},
    {"dropped grad, counted by 32 bits", 2, 0, 16, 16, DRAWN, TC_F32, true, true, false, false,
     1 << 12},
    {"causal, wide", 2, 0, 64, 40, CAUSAL, TC_F32, false, false, false, false, 0},
    {"causal, cross grad", 2, 0, 16, 24, CAUSAL, TC_F32, true, true, true, false, 0},
    {"cross grad", 2, 0, 16, 24, NONE, TC_F32, true, true, true, false, 0},
    {"cross given", 8, 0, 16, 24, NOTHING, TC_F32, false, false, true, false, 0},
    {"queries that are keys, grad", 2, 0, 16, 16, NONE, TC_F32, true, true, false, true, 0},
    {"bf16", 2, 0, 32, 32, CAUSAL, TC_BF16, false, false, false, false, 0},
    {"bf16 grad", 2, 0, 32, 32, BIAS, TC_BF16, true, true, false, false, 0},
    {"f64 grad", 2, 0, 8, 8, CAUSAL, TC_F64, true, true, false, false, 0},
};

TEST(symbolic_sizes_give_the_results_of_known_ones)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check_symbolic(cases[i], false, 0);
    }
}

TEST(symbolic_sizes_in_narrow_vectors)
{
    for (size_t i = 0; i < 3; i++) {
        check_symbolic(cases[i], false, 128);
    }
}

TEST(reproducible_programs_give_the_same_bits)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check_symbolic(cases[i], true, 0);
    }
}

static const attention wide_cases[] = {
    {"f32", 8, 0, 16, 16, NONE, TC_F32, false, false, false, false, 0},
    {"f32 grad", 8, 0, 16, 16, CAUSAL, TC_F32, true, true, false, false, 0},
    {"given grad", 8, 0, 16, 16, GIVEN, TC_F32, true, false, false, false, 0},
    {"dropped grad", 8, 0, 16, 16, DRAWN, TC_F32, true, true, false, false, 0},
    {"grouped grad", 8, 4, 16, 16, CAUSAL, TC_F32, true, true, false, false, 0},
    {"bf16 grad", 8, 0, 16, 16, NONE, TC_BF16, true, true, false, false, 0},
};

/* Two arrays of scores, which there were, would have twice as many in bf16, four times in f32. */
static void check_bytes(attention c, const char *how, sizes n, int64_t bytes)
{
    int64_t most = 2 * (int64_t)c.heads * n.queries * n.keys;
    CHECK_MSG(bytes <= most, "%s, %s: %lld bytes of workspace, more than %lld", c.name, how,
              (long long)bytes, (long long)most);
}

TEST(no_array_of_scores_is_kept)
{
    for (size_t i = 0; i < sizeof(wide_cases) / sizeof(*wide_cases); i++) {
        const attention c = wide_cases[i];
        const sizes n = {1021, 1021};
        tc_ctx *cpu = open_context("cpu", 2, false, 0), *same = open_context("interp", 1, true, 0);
        int64_t s = TC_DIM("queries", 0, 1 << 20);
        tc_program *f = compile(cpu, c, s, s), *g = compile(same, c, n.queries, n.keys);
        tc_program_info info = {0};
        data d = make_data(c, n);
        check_bytes(c, "of symbols", n, run(f, c, &d));
        tc_program_get_info(g, &info);
        check_bytes(c, "reproducible", n, info.arena_bytes);
        free_data(&d);
        tc_program_free(f);
        tc_program_free(g);
        tc_ctx_free(cpu);
        tc_ctx_free(same);
    }
}

/* Scores and weights of rows in whole bands are written once each, and what has a number for each
 * row or element of a head a few times, but not in each band. */
TEST(keys_are_packed_once_for_all_bands)
{
    const attention c = wide_cases[0]; /* reproducible, so that it is in bands */
    const sizes n = {1021, 1021};
    const int64_t pairs = (int64_t)c.heads * 1024 * n.keys * 4;
    const int64_t heads = (int64_t)c.heads * 1024 * c.d * 4;
    tc_ctx *ctx = open_context("cpu", 2, true, 0);
    int64_t s = TC_DIM("queries", 0, 1 << 20);
    tc_program *f = compile(ctx, c, s, s);
    tc_program_info info = {0};
    data d = make_data(c, n);
    run(f, c, &d);
    tc_program_get_info(f, &info);
    CHECK_MSG(info.bytes_written <= 2 * pairs + 8 * heads, "%lld bytes are written, more than %lld",
              (long long)info.bytes_written, (long long)(2 * pairs + 8 * heads));
    free_data(&d);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Strips that are cut when they run: nothing is stored but copies of what is given, three numbers
 * for each row, and gradients by head. */
TEST(symbols_take_the_kernels_of_known_sizes)
{
    for (size_t i = 0; i < sizeof(wide_cases) / sizeof(*wide_cases); i++) {
        attention c = wide_cases[i];
        const sizes n = {1021, 1021};
        c.most = 1 << 12;
        tc_ctx *ctx = open_context("cpu", 2, false, 0);
        int64_t s = TC_DIM("queries", 0, c.most);
        tc_program *f = compile(ctx, c, s, s);
        tc_program_info info = {0};
        data d = make_data(c, n);
        int64_t bytes = run(f, c, &d), heads = (int64_t)c.heads * 1024 * c.d * 4;
        tc_program_get_info(f, &info);
        bool by_unit = c.dtype == TC_BF16; /* whose products are apart, where there is one */
        CHECK_MSG(by_unit || bytes <= 8 * heads, "%s: %lld bytes of workspace, more than %lld",
                  c.name, (long long)bytes, (long long)(8 * heads));
        CHECK_MSG(by_unit || info.n_kernels <= (c.groups ? 7 : 5), "%s: %d kernels", c.name,
                  (int)info.n_kernels);
        free_data(&d);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* What a decoder asks for each token: one query of each head, over all keys so far. */
TEST(one_query_reads_keys_in_place)
{
    static const attention c = {.name = "one query",
                                .heads = 8,
                                .d = 64,
                                .dv = 64,
                                .dtype = TC_F32};
    const sizes n = {1, 500};
    for (int symbolic = 0; symbolic < 2; symbolic++) {
        tc_ctx *ctx = open_context("cpu", 2, false, 0);
        tc_ctx *interp = open_context("interp", 1, false, 0);
        int64_t keys = symbolic ? TC_DIM("keys", 1, 1 << 20) : n.keys;
        tc_program *f = compile(ctx, c, 1, keys), *g = compile(interp, c, 1, keys);
        data got = make_data(c, n), want = as_large(&got);
        int64_t bytes = run(f, c, &got), most = (int64_t)c.heads * n.keys * 16;
        run(g, c, &want);
        check_bits(c, n, &want, &got, "the interpreter");
        CHECK_MSG(bytes <= most, "%lld bytes of workspace, more than %lld", (long long)bytes,
                  (long long)most);
        free_results(&want);
        free_data(&got);
        tc_program_free(f);
        tc_program_free(g);
        tc_ctx_free(ctx);
        tc_ctx_free(interp);
    }
}

TEST_MAIN
