/* Rows kept between contractions: attention and the like are one kernel, whose bits are those of
 * the kernels apart and of the interpreter, for every shape, mask, width and number of threads. */
#include "inside.h"

#include "tc_test.h"
#include "same.h"

/* Bytes of the vectors that code for these options has: TC_VECTOR or the machine may want less. */
static int vector_bytes(const tc_options *options)
{
    tc_ctx *ctx;
    tci_target t;
    REQUIRE(tc_ctx_make(&ctx, options) == TC_OK);
    tci_target_detect(&t, tci_ctx_of(ctx)->options.vector_bits);
    tc_ctx_free(ctx);
    return t.vector_bytes;
}

/* NOTHING: some rows see no key; STRICT: the first one sees none; AHEAD: a row sees two keys more,
 * ABOVE: none but by what is masked, BOTH: causal and given */
typedef enum mask { NONE, CAUSAL, STRICT, AHEAD, ABOVE, BOTH, GIVEN, BIAS, NOTHING } mask;

typedef struct attention {
    const char *name;
    int heads, queries, keys, d, dv;
    mask mask;
    int kernels;     /* expected on the CPU; 0: that depends on its speed */
    int least;       /* bytes of vectors where that many are expected; 0: there are vectors */
    int groups;      /* heads that share keys and values; 0: none do */
    int vector_bits; /* 0: those of the machine */
    tc_dtype dtype;
    double never; /* the score of what is masked, 0: -inf */
    bool wild;    /* values are 0, -0, infinite and NaN here and there */
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
    data d = {{0},
              {(int64_t)c.heads * c.queries * c.d, (int64_t)key_heads(c) * c.keys * c.d,
               (int64_t)key_heads(c) * c.keys * c.dv, (int64_t)c.queries * c.keys},
              0,
              0};
    d.n_out = (int64_t)c.heads * c.queries * c.dv;
    d.n_scores = (int64_t)c.heads * c.queries * c.keys;
    for (int i = 0; i < 3; i++) {
        d.items[i] = numbers(c.dtype, d.n[i]);
    }
    for (int64_t i = 0; i < d.n[2] && c.wild; i++) { /* whole columns, and single elements */
        double column = (double[]){1, -0.0, 0, -1e-44}[i % c.dv % 4], x = next_number();
        double one = x > 1.99 ? INFINITY : x < -1.99 ? NAN : x * column;
        if (c.dtype == TC_F64) {
            ((double *)d.items[2])[i] = one;
        } else {
            ((float *)d.items[2])[i] = (float)one;
        }
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

/* parts: scores and weights, then stored, and the result of separate kernels. */
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
    double never = c.never < 0 ? c.never : -INFINITY;
    if (c.mask >= CAUSAL && c.mask <= BOTH) {
        tc_dtype t = c.heads % 2 ? TC_I32 : TC_I64;
        tc_tensor row = tc_unsqueeze(tc_arange(ctx, c.mask == AHEAD ? 2 : 0,
                                               c.queries + (c.mask == AHEAD ? 2 : 0), 1, t),
                                     1);
        tc_tensor column = tc_arange(ctx, 0, c.keys, 1, t);
        tc_tensor seen = c.mask == STRICT ? tc_lt(column, row) : tc_le(column, row);
        seen = c.mask == BOTH ? tc_logical_and(seen, m) : seen;
        scores = c.mask == ABOVE ? tc_where(tc_gt(column, row), never, scores)
                                 : tc_where(seen, scores, never);
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
        options = (tc_options){.backend = "cpu",
                               .threads = threads[t],
                               .verify = true,
                               .vector_bits = c.vector_bits};
        c.kernels = vector_bytes(&options) < TCI_MAX(c.least, 1) ? 0 : c.kernels;
        memset(got, 1, (size_t)d.n_out * (c.dtype == TC_F64 ? 8 : 4));
        int kernels = run(c, &d, &options, false, got, weights);
        CHECK_MSG(!c.kernels || kernels == c.kernels, "%s: %d kernels, not %d", c.name, kernels,
                  c.kernels);
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
        {.name = "equal sizes",
         .heads = 2,
         .queries = 64,
         .keys = 64,
         .d = 64,
         .dv = 64,
         .kernels = 1},
        {.name = "long keys",
         .heads = 1,
         .queries = 40,
         .keys = 1000,
         .d = 33,
         .dv = 70,
         .kernels = 1},
        {.name = "two blocks of keys",
         .heads = 2,
         .queries = 100,
         .keys = 2048,
         .d = 16,
         .dv = 16,
         .kernels = 1,
         .least = 32},
        {.name = "causal",
         .heads = 2,
         .queries = 100,
         .keys = 100,
         .d = 24,
         .dv = 40,
         .mask = CAUSAL,
         .kernels = 1},
        {.name = "causal, f64",
         .heads = 2,
         .queries = 70,
         .keys = 70,
         .d = 24,
         .dv = 24,
         .mask = CAUSAL,
         .dtype = TC_F64,
         .kernels = 1},
        {.name = "given mask",
         .heads = 2,
         .queries = 50,
         .keys = 90,
         .d = 16,
         .dv = 16,
         .mask = GIVEN,
         .kernels = 1},
        {.name = "rows that see nothing",
         .heads = 2,
         .queries = 50,
         .keys = 90,
         .d = 16,
         .dv = 16,
         .mask = NOTHING,
         .kernels = 1},
        {.name = "bias",
         .heads = 2,
         .queries = 30,
         .keys = 31,
         .d = 8,
         .dv = 130,
         .mask = BIAS,
         .kernels = 1},
        {.name = "shared keys",
         .heads = 6,
         .queries = 33,
         .keys = 40,
         .d = 16,
         .dv = 16,
         .groups = 3,
         .kernels = 1},
        {.name = "narrow vectors",
         .heads = 1,
         .queries = 40,
         .keys = 50,
         .d = 20,
         .dv = 20,
         .vector_bits = 128,
         .kernels = 1},
        {.name = "f64",
         .heads = 2,
         .queries = 30,
         .keys = 70,
         .d = 20,
         .dv = 20,
         .dtype = TC_F64,
         .kernels = 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check(cases[i]);
    }
}

/* What rows do not see is left out, and no bit is another: where values are infinite or NaN there,
 * where sums are -0, where a row sees nothing. */
TEST(cut_attention)
{
    static const attention cases[] = {
        {.name = "long", .heads = 2, .queries = 300, .keys = 300, .mask = CAUSAL, .never = -1e30},
        {.name = "long, -inf", .heads = 1, .queries = 300, .keys = 300, .mask = CAUSAL},
        {.name = "parts", .heads = 1, .queries = 400, .keys = 1100, .mask = CAUSAL, .never = -1e9},
        {.name = "all parts",
         .heads = 1,
         .queries = 600,
         .keys = 600,
         .mask = CAUSAL,
         .never = -1e9},
        {.name = "more queries", .heads = 1, .queries = 200, .keys = 70, .mask = CAUSAL},
        {.name = "strict", .heads = 2, .queries = 200, .keys = 200, .mask = STRICT},
        {.name = "strict, finite",
         .heads = 1,
         .queries = 200,
         .keys = 200,
         .mask = STRICT,
         .never = -1e30},
        {.name = "near", .heads = 1, .queries = 200, .keys = 200, .mask = CAUSAL, .never = -20},
        {.name = "ahead", .heads = 2, .queries = 150, .keys = 230, .mask = AHEAD},
        {.name = "above", .heads = 1, .queries = 150, .keys = 230, .mask = ABOVE, .never = -1e30},
        {.name = "given too", .heads = 2, .queries = 150, .keys = 230, .mask = BOTH},
        {.name = "f64", .heads = 2, .queries = 150, .keys = 150, .mask = CAUSAL, .dtype = TC_F64},
        {.name = "narrow",
         .heads = 2,
         .queries = 150,
         .keys = 150,
         .mask = CAUSAL,
         .vector_bits = 128},
    };
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
        attention c = cases[i / 2];
        c.d = 16;
        c.dv = 40;
        c.kernels = 1;
        c.wild = i % 2;
        check(c);
    }
}

enum { STEPS_HEADS = 2, STEPS_ROWS = 150, STEPS_SIZE = 24, STEPS_N = 2 * 150 * 24 };

/* Gradients of attention to queries, keys and values, in this order. */
static void run_gradients(const tc_options *options, bool causal, float *const *in, float **out)
{
    tc_ctx *ctx;
    tc_tensor x[4], d[3];
    tc_program *f = NULL;
    static const char *const names[] = {"q", "k", "v", "g"};
    REQUIRE(tc_ctx_make(&ctx, options) == TC_OK);
    for (int i = 0; i < 4; i++) {
        x[i] = tc_input(ctx, names[i], TC_F32, STEPS_HEADS, STEPS_ROWS, STEPS_SIZE);
    }
    tc_tensor scores = tc_mul(tc_matmul(x[0], tc_transpose(x[1], -2, -1)), 0.25);
    if (causal) {
        tc_tensor at = tc_arange(ctx, 0, STEPS_ROWS, 1, TC_I32);
        scores = tc_where(tc_ge(tc_unsqueeze(at, 1), at), scores, -1e30);
    }
    tc_tensor y = tc_matmul(tc_softmax(scores, -1), x[2]);
    REQUIRE(tc_grad(tc_sum(tc_mul(y, x[3]), TC_ALL, false), x, 3, d) == TC_OK);
    REQUIRE(tc_compile_fn((tc_tensors){x, 4}, (tc_tensors){d, 3}, options, &f) == TC_OK);
    tc_buf from[4], to[3];
    for (int i = 0; i < 4; i++) {
        from[i] = (tc_buf){.data = in[i], .dtype = TC_F32, .n = STEPS_N};
    }
    for (int i = 0; i < 3; i++) {
        to[i] = (tc_buf){.data = out[i], .dtype = TC_F32, .n = STEPS_N};
    }
    CHECK(tc_run(f, (tc_bufs){from, 4}, (tc_bufs){to, 3}) == TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Rows of two contractions, one of them cut. */
TEST(gradients_of_attention)
{
    float *in[4], *want[3], *got[3];
    for (int i = 0; i < 4; i++) {
        in[i] = numbers(TC_F32, STEPS_N);
    }
    for (int i = 0; i < 3; i++) {
        want[i] = numbers(TC_F32, STEPS_N);
        got[i] = numbers(TC_F32, STEPS_N);
    }
    for (int run = 0; run < 4; run++) {
        tc_options options = {.backend = "interp", .threads = 1, .verify = true};
        run_gradients(&options, run % 2, in, want);
        options.backend = "cpu";
        options.threads = run < 2 ? 1 : 3;
        run_gradients(&options, run % 2, in, got);
        for (int i = 0; i < 3; i++) {
            CHECK_MSG(same_bits(TC_F32, want[i], got[i], STEPS_N), "gradient %d, %d threads%s", i,
                      options.threads, run % 2 ? ", causal" : "");
        }
    }
    for (int i = 0; i < 4; i++) {
        free(in[i]);
        free(i < 3 ? want[i] : NULL);
        free(i < 3 ? got[i] : NULL);
    }
}

/* What stays apart, and is right. */
TEST(attention_in_several_kernels)
{
    static const attention cases[] = {
        {.name = "no queries", .heads = 2, .queries = 0, .keys = 20, .d = 8, .dv = 8, .kernels = 1},
        {.name = "one query", .heads = 2, .queries = 1, .keys = 64, .d = 8, .dv = 8, .kernels = 3},
        {.name = "few keys", .heads = 2, .queries = 20, .keys = 7, .d = 8, .dv = 8, .kernels = 4},
        {.name = "one value", .heads = 1, .queries = 20, .keys = 30, .d = 8, .dv = 1, .kernels = 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check(cases[i]);
    }
}

/* ---- rows of a contraction ---- */

typedef tc_tensor (*rows_of)(tc_tensor x, tc_tensor w, tc_tensor b);
static tc_tensor rows_softmax(tc_tensor x, tc_tensor w, tc_tensor b)
{
    (void)b;
    return tc_softmax(tc_matmul(x, w), -1);
}
static tc_tensor rows_norm(tc_tensor x, tc_tensor w, tc_tensor b)
{
    return tc_layer_norm(tc_add(tc_matmul(x, w), b), TC_AXES(-1), b, TC_NONE, 1e-5);
}
static tc_tensor rows_loss(tc_tensor x, tc_tensor w, tc_tensor b)
{
    return tc_sum(tc_log_softmax(tc_add(tc_matmul(x, w), b), -1), TC_AXES(-1), false);
}
static tc_tensor rows_most(tc_tensor x, tc_tensor w, tc_tensor b)
{
    return tc_max(tc_abs(tc_sub(tc_matmul(x, w), b)), TC_AXES(-1), true);
}
static tc_tensor rows_best(tc_tensor x, tc_tensor w, tc_tensor b)
{
    return tc_argmax(tc_add(tc_matmul(x, w), b), -1, false);
}

typedef struct rows_case {
    const char *name;
    rows_of make;
    int m, n, k;
} rows_case;

/* Its kernels; `out` gets the result, `apart`: of kernels apart, as the product is an output. */
static int run_rows(rows_case c, const char *backend, const float *numbers_in, void *out,
                    int64_t *bytes, bool apart)
{
    tc_ctx *ctx;
    tc_options o = {.backend = backend, .threads = 2, .verify = true};
    tc_program *f = NULL;
    tc_program_info info;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, c.m, c.k), w = tc_input(ctx, "w", TC_F32, c.k, c.n),
              b = tc_input(ctx, "b", TC_F32, c.n), y = c.make(x, w, b);
    tc_tensor product = tc_matmul(x, w);
    int64_t nx = (int64_t)c.m * c.k, nw = (int64_t)c.k * c.n, np = (int64_t)c.m * c.n;
    float *whole = malloc((size_t)np * 4 + 4);
    *bytes = tc_nbytes(y);
    tc_status status = apart ? tc_compile_fn(TC_TENSORS(x, w, b), TC_TENSORS(y, product), &o, &f)
                             : tc_compile_fn(TC_TENSORS(x, w, b), TC_TENSORS(y), &o, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(ctx));
    REQUIRE(f != NULL);
    tc_dtype t = tc_dtype_of(y);
    tc_buf in[3] = {TC_BUF((float *)numbers_in, nx), TC_BUF((float *)numbers_in + nx, nw),
                    TC_BUF((float *)numbers_in + nx + nw, c.n)};
    tc_buf to[2] = {{.data = out, .dtype = t, .n = *bytes / (t == TC_I64 ? 8 : 4)},
                    TC_BUF(whole, np)};
    status = tc_run(f, (tc_bufs){in, 3}, (tc_bufs){to, apart ? 2 : 1});
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(f));
    tc_program_get_info(f, &info);
    free(whole);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info.n_kernels;
}

TEST(rows_of_a_product_are_one_kernel)
{
    static const rows_case cases[] = {
        {"softmax", rows_softmax, 100, 300, 40}, {"softmax, odd", rows_softmax, 37, 91, 13},
        {"norm", rows_norm, 60, 128, 32},        {"norm, short", rows_norm, 9, 17, 5},
        {"loss", rows_loss, 50, 70, 30},         {"most", rows_most, 50, 70, 30},
        {"best", rows_best, 50, 70, 30},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        rows_case c = cases[i];
        int64_t bytes = 0;
        float *given = numbers(TC_F32, (int64_t)c.m * c.k + (int64_t)c.k * c.n + c.n);
        char *want = malloc((size_t)c.m * (size_t)c.n * 8), *got = malloc((size_t)c.m * c.n * 8);
        run_rows(c, "interp", given, want, &bytes, true);
        run_rows(c, "interp", given, got, &bytes, false);
        CHECK_MSG(!memcmp(want, got, (size_t)bytes), "%s, interpreted: other bits", c.name);
        memset(got, 0, (size_t)bytes);
        int kernels = run_rows(c, "cpu", given, got, &bytes, false);
        CHECK_MSG(kernels == 1 || vector_bytes(NULL) < 32, "%s: %d kernels", c.name, kernels);
        CHECK_MSG(!memcmp(want, got, (size_t)bytes), "%s: other bits", c.name);
        free(given);
        free(want);
        free(got);
    }
}

/* ---- exactness, gradients ---- */

/* Attention of one head in f64, as it is defined. */
static void attend(attention c, const data *d, double *out)
{
    const float *q = d->items[0], *k = d->items[1], *v = d->items[2];
    double *p = malloc((size_t)c.keys * sizeof(*p));
    for (int i = 0; i < c.queries; i++) {
        double most = -INFINITY, sum = 0;
        for (int j = 0; j < c.keys; j++) {
            p[j] = 0;
            for (int e = 0; e < c.d; e++) {
                p[j] += (double)q[i * c.d + e] * k[j * c.d + e];
            }
            p[j] *= 0.25;
            most = fmax(most, p[j]);
        }
        for (int j = 0; j < c.keys; j++) {
            p[j] = exp(p[j] - most);
            sum += p[j];
        }
        for (int e = 0; e < c.dv; e++) {
            out[i * c.dv + e] = 0;
            for (int j = 0; j < c.keys; j++) {
                out[i * c.dv + e] += p[j] / sum * v[j * c.dv + e];
            }
        }
    }
    free(p);
}

TEST(attention_is_exact)
{
    attention c = {.name = "exact",
                   .heads = 1,
                   .queries = 50,
                   .keys = 1500,
                   .d = 40,
                   .dv = 33,
                   .dtype = TC_F32,
                   .kernels = 1};
    data d = make_data(c);
    float *got = numbers(TC_F32, d.n_out), *weights = numbers(TC_F32, d.n_scores);
    double *want = numbers(TC_F64, d.n_out), worst = 0;
    tc_options o = {.backend = "cpu", .threads = 2};
    attend(c, &d, want);
    c.kernels = vector_bytes(&o) > 0;
    int kernels = run(c, &d, &o, false, got, weights);
    CHECK(!c.kernels || kernels == 1);
    for (int64_t i = 0; i < d.n_out; i++) {
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    CHECK_MSG(worst < 4e-6, "off by %g", worst);
    free_data(d);
    free(got);
    free(want);
    free(weights);
}

/* The sum of the squares of what attention gives, with respect to q, k and v. */
static void run_gradient(const char *backend, attention c, const data *d, float *grads[3])
{
    tc_ctx *ctx;
    tc_options o = {.backend = backend, .threads = 2, .verify = true};
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor in[3] = {tc_input(ctx, "q", TC_F32, c.heads, c.queries, c.d),
                       tc_input(ctx, "k", TC_F32, c.heads, c.keys, c.d),
                       tc_input(ctx, "v", TC_F32, c.heads, c.keys, c.dv)},
              out[3];
    tc_tensor scores = tc_mul(tc_matmul(in[0], tc_transpose(in[1], -2, -1)), 0.25);
    tc_tensor y = tc_matmul(tc_softmax(scores, -1), in[2]);
    REQUIRE(tc_grad(tc_sum(tc_square(y), TC_ALL, false), in, 3, out) == TC_OK);
    REQUIRE(tc_compile_fn((tc_tensors){in, 3}, (tc_tensors){out, 3}, &o, &f) == TC_OK);
    tc_buf from[3], to[3];
    for (int i = 0; i < 3; i++) {
        from[i] = TC_BUF((float *)d->items[i], d->n[i]);
        to[i] = TC_BUF(grads[i], d->n[i]);
    }
    CHECK_MSG(tc_run(f, (tc_bufs){from, 3}, (tc_bufs){to, 3}) == TC_OK, "%s", tc_error(f));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static double loss_of(attention c, const data *d)
{
    double *y = numbers(TC_F64, d->n_out), loss = 0;
    attend(c, d, y);
    for (int64_t i = 0; i < d->n_out; i++) {
        loss += y[i] * y[i];
    }
    free(y);
    return loss;
}

TEST(attention_has_a_gradient)
{
    attention c = {.name = "gradient",
                   .heads = 1,
                   .queries = 20,
                   .keys = 24,
                   .d = 16,
                   .dv = 16,
                   .dtype = TC_F32};
    data d = make_data(c);
    float *grads[2][3];
    for (int i = 0; i < 6; i++) {
        grads[i / 3][i % 3] = numbers(TC_F32, d.n[i % 3]);
    }
    run_gradient("interp", c, &d, grads[0]);
    run_gradient("cpu", c, &d, grads[1]);
    for (int i = 0; i < 3; i++) {
        CHECK(same_bits(TC_F32, grads[0][i], grads[1][i], d.n[i]));
        for (int64_t at = 0; at < d.n[i]; at += 37) {
            float *x = (float *)d.items[i] + at, before = *x;
            *x = before + 1.0f / 256;
            double high = loss_of(c, &d);
            *x = before - 1.0f / 256;
            double slope = (high - loss_of(c, &d)) * 128;
            *x = before;
            CHECK_CLOSE(grads[1][i][at], slope, 2e-3);
        }
    }
    for (int i = 0; i < 6; i++) {
        free(grads[i / 3][i % 3]);
    }
    free_data(d);
}

TEST_MAIN
