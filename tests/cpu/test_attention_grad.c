/* Gradients of attention: kernels recompute the scores, so no array of them is stored;
 * with the bits of stored scores. */
#include "tc.h"

#include "../tc_test.h"
#include "same.h"

/* FAR, NEAR: causal, and what is masked has a finite score, whose power is 0 or is not; NOTHING:
 * some rows see no key */
typedef enum mask { NONE, CAUSAL, AHEAD, FAR, NEAR, GIVEN, NOTHING, BIAS } mask;
typedef struct attention {
    const char *name;
    int heads, queries, keys, d, dv;
    mask mask;
    int groups;     /* heads that share keys and values; 0: none do */
    tc_dtype dtype; /* f32 if none is said */
    bool late;      /* the cotangent follows from the result */
    bool forward;   /* the result is one of the program's */
    bool drops;     /* weights */
    bool wild;      /* cotangents are -0, infinite and NaN here and there */
    bool by_head;   /* gradients of shared keys are sums of those by head: other bits */
    int kernels;    /* of the program on the CPU; 0: those that fit the machine */
} attention;

enum { N_IN = 5, N_OUT = 4 };

static double next_number(void)
{
    static uint32_t state = 97;
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 20) / 2048.0 - 1.0;
}

typedef struct data {
    tc_buf in[N_IN], out[N_OUT];
    int64_t n_scores;
} data;

static int item_bytes(tc_dtype t)
{
    return t == TC_F64 ? 8 : t == TC_F32 ? 4 : t == TC_BOOL ? 1 : 2;
}

/* x in [-1, 1) at `to`; of f16 its sign and one of 1024 numbers from 0.5 to 1. */
static void put_number(tc_dtype t, double x, void *to)
{
    float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    uint16_t half = (uint16_t)(t == TC_BF16 ? bits >> 16
                                            : 0x3800 | bits >> 31 << 15 | (bits >> 12 & 0x3ff));
    memcpy(to,
           t == TC_F64   ? (void *)&x
           : t == TC_F32 ? (void *)&single
                         : (void *)&half,
           (size_t)item_bytes(t));
}

static double item_at(tc_dtype t, const void *items, int64_t i)
{
    return t == TC_F64 ? ((const double *)items)[i] : (double)((const float *)items)[i];
}

/* Element j of input i. */
static double number_at(attention c, int i, int64_t j)
{
    int64_t column = j % c.dv, row = j / c.dv % c.queries;
    double x = next_number();
    if (i == 3 && c.wild) {
        x = column == 1 && row % 50 == 7 ? INFINITY : column == 2 ? -0.0 : x;
        x = column == 3 && row == 20 ? NAN : x;
    }
    return x;
}

/* q, k, v, cotangent, mask; gradients of q, k, v and the result. */
static data make_data(attention c)
{
    int64_t kh = c.groups ? c.heads / c.groups : c.heads;
    int64_t q = (int64_t)c.heads * c.queries * c.d, k = kh * c.keys * c.d, v = kh * c.keys * c.dv;
    int64_t y = (int64_t)c.heads * c.queries * c.dv, m = (int64_t)c.queries * c.keys;
    const int64_t n_in[N_IN] = {q, k, v, y, m}, n_out[N_OUT] = {q, k, v, y};
    data d = {.n_scores = (int64_t)c.heads * m};
    for (int i = 0; i < N_IN; i++) {
        tc_dtype t = i == 4 && c.mask != BIAS ? TC_BOOL : c.dtype;
        char *items = malloc((size_t)n_in[i] * 8 + 8);
        for (int64_t j = 0; j < n_in[i]; j++) {
            double x = number_at(c, i, j);
            if (t == TC_BOOL) {
                items[j] = x > -0.5 && (c.mask != NOTHING || j / c.keys % 3 != 1);
            } else {
                put_number(t, x, items + j * item_bytes(t));
            }
        }
        d.in[i] = (tc_buf){.data = items, .dtype = t, .n = n_in[i]};
    }
    for (int i = 0; i < N_OUT; i++) {
        d.out[i] = (tc_buf){.data = malloc((size_t)n_out[i] * 8 + 8),
                            .dtype = c.dtype,
                            .n = n_out[i]};
    }
    return d;
}

static void free_data(data d)
{
    for (int i = 0; i < N_IN + N_OUT; i++) {
        free(i < N_IN ? d.in[i].data : d.out[i - N_IN].data);
    }
}

/* x: q, k, v and the mask. *weights: the values between the two products. */
static tc_tensor attend(tc_ctx *ctx, attention c, const tc_tensor *x, tc_tensor *weights)
{
    int kh = c.groups ? c.heads / c.groups : c.heads;
    tc_tensor q = x[0], k = x[1], v = x[2];
    if (c.groups) {
        q = tc_reshape(q, kh, c.groups, c.queries, c.d);
        k = tc_unsqueeze(k, 1);
        v = tc_unsqueeze(v, 1);
    }
    tc_tensor scores = tc_mul(tc_matmul(q, tc_transpose(k, -2, -1)), 0.25);
    if (c.mask >= CAUSAL && c.mask <= NEAR) {
        int from = c.mask == AHEAD ? 2 : 0;
        double never = c.mask == FAR ? -1e30 : c.mask == NEAR ? -20 : -INFINITY;
        tc_tensor row = tc_unsqueeze(tc_arange(ctx, from, c.queries + from, 1, TC_I32), 1);
        scores = tc_where(tc_le(tc_arange(ctx, 0, c.keys, 1, TC_I32), row), scores, never);
    } else if (c.mask == GIVEN || c.mask == NOTHING) {
        scores = tc_where(x[3], scores, c.mask == NOTHING ? -1e30 : -INFINITY);
    } else if (c.mask == BIAS) {
        scores = tc_add(scores, x[3]);
    }
    *weights = tc_softmax(scores, -1);
    tc_tensor y = tc_matmul(c.drops ? tc_dropout(*weights, 0.25, 7) : *weights, v);
    return c.groups ? tc_reshape(y, c.heads, c.queries, c.dv) : y;
}

/* apart: the weights are a result of the program, so they are stored, and so is what is made
 * of them. */
static tc_program_info run(attention c, data *d, const tc_options *options, bool apart)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_program_info info = {0};
    int kh = c.groups ? c.heads / c.groups : c.heads;
    REQUIRE(tc_ctx_make(&ctx, options) == TC_OK);
    tc_tensor q = tc_input(ctx, "q", c.dtype, c.heads, c.queries, c.d);
    tc_tensor k = tc_input(ctx, "k", c.dtype, kh, c.keys, c.d);
    tc_tensor v = tc_input(ctx, "v", c.dtype, kh, c.keys, c.dv);
    tc_tensor g = tc_input(ctx, "g", c.dtype, c.heads, c.queries, c.dv);
    tc_tensor m = tc_input(ctx, "m", c.mask == BIAS ? c.dtype : TC_BOOL, c.queries, c.keys);
    tc_tensor x[4] = {q, k, v, m}, to[N_OUT + 1], weights;
    tc_tensor y = attend(ctx, c, x, &weights);
    tc_tensor end = c.late ? tc_tanh(y) : y;
    REQUIRE(tc_vjp(TC_TENSORS(end), TC_TENSORS(g), x, 3, to) == TC_OK);
    to[3] = y;
    to[4] = weights;
    tc_tensors in = TC_TENSORS(q, k, v, g, m);
    tc_status status = tc_compile_fn(in,
                                     (tc_tensors){to, apart       ? 5
                                                      : c.forward ? 4
                                                                  : 3},
                                     options, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(ctx));
    REQUIRE(f != NULL);
    tc_buf out[N_OUT + 1];
    memcpy(out, d->out, sizeof(d->out));
    out[4] = (tc_buf){.data = malloc((size_t)d->n_scores * 8 + 8),
                      .dtype = c.dtype,
                      .n = d->n_scores};
    status = tc_run(f, (tc_bufs){d->in, N_IN}, (tc_bufs){out, apart ? 5 : c.forward ? 4 : 3});
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(f));
    tc_program_get_info(f, &info);
    free(out[4].data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info;
}

/* Bytes of a workspace that has no array of scores: three numbers of a row, and, where the gradient
 * follows from it, the result and its cotangent, or what is read in another shape, or by head. */
static int64_t room(attention c)
{
    int64_t rows = (int64_t)c.heads * c.queries, results = rows * c.dv;
    int64_t numbers = 3 * (rows * (c.dtype == TC_F64 ? 8 : 4) + 64);
    int more = c.by_head ? 3 : c.late || c.groups ? 2 : 0;
    return numbers + more * (results * item_bytes(c.dtype) + 64);
}

/* The gradients are near those apart, and from here on wanted as they are. */
static void check_sums(attention c, data *want, const data *got)
{
    for (int i = 0; i < 3; i++) {
        double most = 0;
        for (int64_t j = 0; j < got->out[i].n; j++) {
            double x = item_at(c.dtype, want->out[i].data, j);
            most = fmax(most, fabs(x - item_at(c.dtype, got->out[i].data, j)) / (1 + fabs(x)));
        }
        CHECK_MSG(most < 1e-5, "%s: gradient %d is off by %g", c.name, i, most);
        memcpy(want->out[i].data, got->out[i].data, (size_t)(got->out[i].n * item_bytes(c.dtype)));
    }
}

static void check(attention c)
{
    c.dtype = c.dtype ? c.dtype : TC_F32;
    data want = make_data(c), got = want;
    for (int i = 0; i < N_OUT; i++) {
        got.out[i].data = malloc((size_t)got.out[i].n * 8 + 8);
    }
    /* no unit: its sums are in an order of its own */
    tc_options options = {.backend = "interp", .threads = 1, .verify = true, .matrix = -1};
    run(c, &want, &options, true);
    for (int way = 0; way < 3; way++) { /* interpreted, one thread, three */
        options.backend = way ? "cpu" : "interp";
        options.threads = way == 2 ? 3 : 1;
        for (int i = 0; i < N_OUT; i++) {
            memset(got.out[i].data, 1, (size_t)got.out[i].n * 8);
        }
        tc_program_info info = run(c, &got, &options, false);
        if (way == 0 && c.by_head) { /* interpreted too: it packs as the native plan does */
            check_sums(c, &want, &got);
        }
        for (int i = 0; i < (c.forward ? 4 : 3); i++) {
            int64_t at = same_until(c.dtype, want.out[i].data, got.out[i].data, got.out[i].n);
            CHECK_MSG(at < 0, "%s, way %d: result %d has other bits than apart at %lld", c.name,
                      way, i, (long long)at);
        }
        CHECK_MSG(!way || !c.kernels || info.n_kernels == c.kernels, "%s: %d kernels, not %d",
                  c.name, info.n_kernels, c.kernels);
        CHECK_MSG(!way || !c.kernels || info.arena_bytes <= room(c),
                  "%s: %lld bytes of workspace, more than %lld", c.name,
                  (long long)info.arena_bytes, (long long)room(c));
    }
    for (int i = 0; i < N_OUT; i++) {
        free(got.out[i].data);
    }
    free_data(want);
}

/* The two kernels of the gradient, and where the result is asked for or what follows from it, that
 * of attention too. */
TEST(gradients_keep_no_scores)
{
    static const attention cases[] = {
        {.name = "plain", .heads = 2, .queries = 150, .keys = 150, .d = 24, .dv = 24, .kernels = 2},
        {.name = "odd", .heads = 3, .queries = 131, .keys = 149, .d = 17, .dv = 19, .kernels = 2},
        {.name = "long", .heads = 1, .queries = 300, .keys = 700, .d = 33, .dv = 40, .kernels = 2},
        {.name = "causal",
         .heads = 2,
         .queries = 150,
         .keys = 150,
         .d = 24,
         .dv = 24,
         .mask = CAUSAL,
         .kernels = 2},
        {.name = "causal, long",
         .heads = 1,
         .queries = 600,
         .keys = 600,
         .d = 24,
         .dv = 24,
         .mask = CAUSAL,
         .kernels = 2},
        {.name = "causal, wild",
         .heads = 2,
         .queries = 230,
         .keys = 230,
         .d = 24,
         .dv = 24,
         .mask = CAUSAL,
         .wild = true,
         .kernels = 2},
        {.name = "far",
         .heads = 1,
         .queries = 600,
         .keys = 600,
         .d = 24,
         .dv = 24,
         .mask = FAR,
         .wild = true,
         .kernels = 2},
        {.name = "near",
         .heads = 1,
         .queries = 300,
         .keys = 300,
         .d = 24,
         .dv = 24,
         .mask = NEAR,
         .wild = true,
         .kernels = 2},
        {.name = "more keys, f64",
         .heads = 1,
         .queries = 200,
         .keys = 270,
         .d = 24,
         .dv = 24,
         .mask = CAUSAL,
         .dtype = TC_F64,
         .kernels = 2},
        {.name = "ahead",
         .heads = 1,
         .queries = 150,
         .keys = 230,
         .d = 24,
         .dv = 24,
         .mask = AHEAD,
         .kernels = 2},
        {.name = "given",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .mask = GIVEN,
         .kernels = 2},
        {.name = "nothing seen",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .mask = NOTHING,
         .kernels = 2},
        {.name = "bias",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .mask = BIAS,
         .kernels = 2},
        {.name = "result too",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .forward = true,
         .kernels = 2},
        {.name = "late",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .late = true,
         .kernels = 3},
        {.name = "late, causal",
         .heads = 2,
         .queries = 130,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .mask = CAUSAL,
         .late = true,
         .forward = true,
         .kernels = 3},
        {.name = "f64",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .dtype = TC_F64,
         .kernels = 2},
        {.name = "dropped",
         .heads = 2,
         .queries = 150,
         .keys = 150,
         .d = 24,
         .dv = 24,
         .drops = true,
         .kernels = 2},
        {.name = "dropped, causal",
         .heads = 2,
         .queries = 150,
         .keys = 150,
         .d = 24,
         .dv = 24,
         .mask = CAUSAL,
         .drops = true,
         .forward = true,
         .kernels = 3},
        {.name = "dropped, late",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .drops = true,
         .late = true,
         .forward = true,
         .kernels = 4},
        {.name = "dropped, f64",
         .heads = 2,
         .queries = 120,
         .keys = 130,
         .d = 16,
         .dv = 16,
         .drops = true,
         .forward = true,
         .dtype = TC_F64,
         .kernels = 3},
        {.name = "dropped, bf16",
         .heads = 2,
         .queries = 150,
         .keys = 150,
         .d = 32,
         .dv = 32,
         .drops = true,
         .forward = true,
         .dtype = TC_BF16},
        {.name = "dropped, shared keys",
         .heads = 6,
         .queries = 70,
         .keys = 150,
         .d = 16,
         .dv = 16,
         .groups = 3,
         .drops = true,
         .kernels = 3},
        {.name = "shared keys",
         .heads = 6,
         .queries = 70,
         .keys = 150,
         .d = 16,
         .dv = 16,
         .groups = 3,
         .kernels = 3},
        {.name = "shared keys, causal",
         .heads = 6,
         .queries = 150,
         .keys = 150,
         .d = 16,
         .dv = 16,
         .groups = 3,
         .mask = CAUSAL,
         .by_head = true,
         .kernels = 3},
        {.name = "shared keys, causal, f64",
         .heads = 4,
         .queries = 90,
         .keys = 150,
         .d = 16,
         .dv = 16,
         .groups = 2,
         .mask = CAUSAL,
         .dtype = TC_F64,
         .late = true,
         .by_head = true},
        {.name = "bf16",
         .heads = 2,
         .queries = 150,
         .keys = 150,
         .d = 32,
         .dv = 32,
         .dtype = TC_BF16},
        {.name = "f16, causal",
         .heads = 2,
         .queries = 150,
         .keys = 150,
         .d = 32,
         .dv = 32,
         .dtype = TC_F16,
         .mask = CAUSAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check(cases[i]);
    }
}

/* Sizes around those of tiles and vectors, heads from one number on. */
TEST(gradients_of_any_size)
{
    static const int sizes[] = {1, 7, 63, 64, 65, 129}, heads[] = {1, 3, 16, 64, 100, 256};
    for (int i = 0; i < 8; i++) {
        int s = sizes[i % 6], d = heads[(i + i / 6 * 2) % 6];
        char name[64];
        snprintf(name, sizeof(name), "%d rows of %d", s, d);
        check((attention){.name = name,
                          .heads = 2,
                          .queries = s,
                          .keys = s,
                          .d = d,
                          .dv = d,
                          .mask = (mask)(i % 4),
                          .late = i % 5 == 0});
    }
}

/* Of weights that are dropped, in rows long enough for the two kernels. */
TEST(gradients_are_those_of_differences)
{
    static float items[3][2 * 140 * 16];
    tc_ctx *ctx;
    tc_options options = {.backend = "cpu", .threads = 1, .verify = true};
    const tc_gradcheck_options few = {.most = 12};
    tc_gradcheck_report report = {0};
    tc_tensor x[4], weights;
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 2 * 140 * 16; j++) {
            items[i][j] = (float)next_number();
        }
        x[i] = tc_borrow(ctx, items[i], TC_F32, 2, 140, 16);
    }
    const attention c = {.name = "dropped",
                         .heads = 2,
                         .queries = 140,
                         .keys = 140,
                         .d = 16,
                         .dv = 16,
                         .mask = CAUSAL,
                         .dtype = TC_F32,
                         .drops = true};
    tc_tensor y = attend(ctx, c, x, &weights);
    tc_status status = tc_gradcheck(y, TC_TENSORS(x[0], x[1], x[2]), &few, &report);
    CHECK_MSG(status == TC_OK, "%s: off by %g", tc_error(y), report.error);
    CHECK_EQ_INT(report.checked, 36);
    tc_ctx_free(ctx);
}

TEST_MAIN
