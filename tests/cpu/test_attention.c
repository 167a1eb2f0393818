/* Rows kept between contractions: attention and the like are one kernel, whose bits are those of
 * the kernels apart and of the interpreter, for every shape, mask, width and number of threads. */
#include "tc.h"

#include "../tc_test.h"
#include "same.h"

typedef enum mask { NONE, CAUSAL, GIVEN, BIAS, NOTHING } mask; /* NOTHING: some rows see no key */

typedef struct attention {
    const char *name;
    int heads, queries, keys, d, dv;
    mask mask;
    int kernels;          /* expected on the CPU */
    int groups;           /* heads that share keys and values; 0: none do */
    int vector_bits;      /* 0: those of the machine */
    tc_dtype dtype;
} attention;

enum { N_IN = 4 };

static double next_number(void)
{
    static uint32_t state = 4321;
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 20) / 1024.0 - 2.0;
}

typedef struct data {
    void *items[N_IN];
    int64_t n[N_IN];
    int64_t n_out, n_scores;
} data;

static void *numbers(tc_dtype t, int64_t n)
{
    void *p = malloc((size_t)n * 8 + 8);
    for (int64_t i = 0; i < n; i++) {
        if (t == TC_F64) {
            ((double *)p)[i] = next_number();
        } else {
            ((float *)p)[i] = (float)next_number();
        }
    }
    return p;
}

static int key_heads(attention c)
{
    return c.groups ? c.heads / c.groups : c.heads;
}

static data make_data(attention c)
{
    data d = {{0}, {(int64_t)c.heads * c.queries * c.d, (int64_t)key_heads(c) * c.keys * c.d,
                    (int64_t)key_heads(c) * c.keys * c.dv, (int64_t)c.queries * c.keys}, 0, 0};
    d.n_out = (int64_t)c.heads * c.queries * c.dv;
    d.n_scores = (int64_t)c.heads * c.queries * c.keys;
    for (int i = 0; i < 3; i++) {
        d.items[i] = numbers(c.dtype, d.n[i]);
    }
    if (c.mask == BIAS) {
        d.items[3] = numbers(c.dtype, d.n[3]);
    } else {
        uint8_t *seen = malloc((size_t)d.n[3] + 1);
        for (int64_t i = 0; i < d.n[3]; i++) {
            bool row = c.mask != NOTHING || i / c.keys % 3 != 1;
            seen[i] = row && next_number() > -1;
        }
        d.items[3] = seen;
    }
    return d;
}

static void free_data(data d)
{
    for (int i = 0; i < N_IN; i++) {
        free(d.items[i]);
    }
}

/* parts: scores and weights, which then lie in memory, and the result of kernels apart. */
static tc_program *compile(tc_ctx *ctx, attention c, const tc_options *options, bool apart)
{
    int h = c.heads, kh = key_heads(c);
    tc_tensor q = tc_input(ctx, "q", c.dtype, h, c.queries, c.d);
    tc_tensor k = tc_input(ctx, "k", c.dtype, kh, c.keys, c.d);
    tc_tensor v = tc_input(ctx, "v", c.dtype, kh, c.keys, c.dv);
    tc_tensor m = tc_input(ctx, "m", c.mask == BIAS ? c.dtype : TC_BOOL, c.queries, c.keys);
    tc_tensor x = q, keys = k, values = v;
    if (c.groups) {
        x = tc_reshape(q, kh, c.groups, c.queries, c.d);
        keys = tc_unsqueeze(k, 1);
        values = tc_unsqueeze(v, 1);
    }
    tc_tensor scores = tc_mul(tc_matmul(x, tc_transpose(keys, -2, -1)), 0.25);
    double never = -INFINITY;
    if (c.mask == CAUSAL) {
        tc_tensor row = tc_unsqueeze(tc_arange(ctx, 0, c.queries, 1, TC_I64), 1);
        tc_tensor column = tc_arange(ctx, 0, c.keys, 1, TC_I64);
        scores = tc_where(tc_le(column, row), scores, never);
    } else if (c.mask == GIVEN || c.mask == NOTHING) {
        scores = tc_where(m, scores, never);
    } else if (c.mask == BIAS) {
        scores = tc_add(scores, m);
    }
    tc_tensor weights = tc_softmax(scores, -1);
    tc_tensor y = tc_matmul(weights, values);
    tc_program *f = NULL;
    tc_tensors in = TC_TENSORS(q, k, v, m);
    tc_status status = apart ? tc_compile_fn(in, TC_TENSORS(y, scores, weights), options, &f)
                             : tc_compile_fn(in, TC_TENSORS(y), options, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(ctx));
    return f;
}

/* Runs it; returns its kernels. */
static int run(attention c, const data *d, const tc_options *options, bool apart, void *out,
               void *weights)
{
    tc_ctx *ctx;
    tc_program_info info;
    REQUIRE(tc_ctx_make(&ctx, options) == TC_OK);
    tc_program *f = compile(ctx, c, options, apart);
    REQUIRE(f != NULL);
    tc_buf in[N_IN], to[3] = {{.data = out, .dtype = c.dtype, .n = d->n_out},
                              {.data = weights, .dtype = c.dtype, .n = d->n_scores},
                              {.data = weights, .dtype = c.dtype, .n = d->n_scores}};
    void *scores = malloc((size_t)d->n_scores * 8 + 8);
    to[1].data = scores;
    for (int i = 0; i < N_IN; i++) {
        bool is_mask = i == 3 && c.mask != BIAS;
        in[i] = (tc_buf){.data = d->items[i], .dtype = is_mask ? TC_BOOL : c.dtype, .n = d->n[i]};
    }
    tc_status status = tc_run(f, (tc_bufs){in, N_IN}, (tc_bufs){to, apart ? 3 : 1});
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(f));
    tc_program_get_info(f, &info);
    /* the interpreter turns the keys first, and nothing else */
    int64_t most = strcmp(options->backend, "cpu") ? d->n[1] * 8 + 64 : 0;
    CHECK_MSG(apart || c.kernels != 1 || info.arena_bytes <= most, "%s: %lld bytes of workspace",
              c.name, (long long)info.arena_bytes);
    free(scores);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info.n_kernels;
}

static void check(attention c)
{
    static const int threads[] = {1, 3};
    c.dtype = c.dtype ? c.dtype : TC_F32;
    data d = make_data(c);
    void *want = numbers(c.dtype, d.n_out), *got = numbers(c.dtype, d.n_out);
    void *weights = numbers(c.dtype, d.n_scores);
    tc_options options = {.backend = "interp", .threads = 1, .verify = true};
    run(c, &d, &options, true, want, weights);
    run(c, &d, &options, false, got, weights);
    CHECK_MSG(same_bits(c.dtype, want, got, d.n_out), "%s: other bits than apart", c.name);
    for (size_t t = 0; t < sizeof(threads) / sizeof(*threads); t++) {
        options = (tc_options){.backend = "cpu", .threads = threads[t], .verify = true,
                               .vector_bits = c.vector_bits};
        memset(got, 1, (size_t)d.n_out * (c.dtype == TC_F64 ? 8 : 4));
        int kernels = run(c, &d, &options, false, got, weights);
        CHECK_MSG(kernels == c.kernels, "%s: %d kernels, not %d", c.name, kernels, c.kernels);
        int64_t at = same_until(c.dtype, want, got, d.n_out);
        CHECK_MSG(at < 0, "%s, %d threads: element %lld of %lld has other bits than apart: %g, %g",
                  c.name, threads[t], (long long)at, (long long)d.n_out,
                  c.dtype == TC_F64 ? ((double *)want)[at] : ((float *)want)[at],
                  c.dtype == TC_F64 ? ((double *)got)[at] : ((float *)got)[at]);
    }
    free_data(d);
    free(want);
    free(got);
    free(weights);
}

TEST(attention_is_one_kernel)
{
    static const attention cases[] = {
        {.name = "plain", .heads = 2, .queries = 64, .keys = 64, .d = 32, .dv = 32, .kernels = 1},
        {.name = "odd", .heads = 3, .queries = 65, .keys = 63, .d = 17, .dv = 19, .kernels = 1},
        {.name = "equal sizes", .heads = 2, .queries = 64, .keys = 64, .d = 64, .dv = 64,
         .kernels = 1},
        {.name = "long keys", .heads = 1, .queries = 40, .keys = 1000, .d = 33, .dv = 70,
         .kernels = 1},
        {.name = "causal", .heads = 2, .queries = 100, .keys = 100, .d = 24, .dv = 40,
         .mask = CAUSAL, .kernels = 1},
        {.name = "given mask", .heads = 2, .queries = 50, .keys = 90, .d = 16, .dv = 16,
         .mask = GIVEN, .kernels = 1},
        {.name = "rows that see nothing", .heads = 2, .queries = 50, .keys = 90, .d = 16, .dv = 16,
         .mask = NOTHING, .kernels = 1},
        {.name = "bias", .heads = 2, .queries = 30, .keys = 31, .d = 8, .dv = 130, .mask = BIAS,
         .kernels = 1},
        {.name = "shared keys", .heads = 6, .queries = 33, .keys = 40, .d = 16, .dv = 16,
         .groups = 3, .kernels = 1},
        {.name = "narrow vectors", .heads = 1, .queries = 40, .keys = 50, .d = 20, .dv = 20,
         .vector_bits = 128, .kernels = 1},
        {.name = "f64", .heads = 2, .queries = 30, .keys = 70, .d = 20, .dv = 20, .dtype = TC_F64,
         .kernels = 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check(cases[i]);
    }
}

/* What stays apart, and is right. */
TEST(attention_in_several_kernels)
{
    static const attention cases[] = {
        {.name = "no queries", .heads = 2, .queries = 0, .keys = 20, .d = 8, .dv = 8, .kernels = 1},
        {.name = "one query", .heads = 2, .queries = 1, .keys = 64, .d = 8, .dv = 8, .kernels = 3},
        {.name = "few keys", .heads = 2, .queries = 20, .keys = 7, .d = 8, .dv = 8, .kernels = 4},
        {.name = "one value", .heads = 1, .queries = 20, .keys = 30, .d = 8, .dv = 1,
         .kernels = 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check(cases[i]);
    }
}

TEST_MAIN
