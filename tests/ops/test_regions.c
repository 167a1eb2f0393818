/* tests/ops/test_regions.c - what the user says of kernels and memory: regions whose values are
 * computed again on the way back (tc_checkpoint), values that are stored (tc_materialize), ops by
 * themselves (tc_nofuse), and barriers. The values stay, bit for bit; what changes is the plan. */
#include "inside.h"

#include "tc_test.h"

#include <math.h>

enum { ROWS = 32, WIDTH = 48, LAYERS = 5, COUNT = LAYERS * WIDTH * WIDTH + 1 };

static tc_ctx *make_ctx(const char *backend)
{
    tc_ctx *ctx;
    REQUIRE(!tc_ctx_make(&ctx, &(tc_options){.backend = backend}));
    return ctx;
}

enum { PLAIN, REGIONS, NESTED }; /* of a network */

typedef struct network {
    tc_tensor w[LAYERS], key;
    int form;
    int layer;
} network;

static tc_status half_layer(void *user, const tc_tensor *x, tc_tensor *y)
{
    network *n = user;
    y[0] = tc_tanh(tc_matmul(x[0], n->w[n->layer]));
    y[1] = tc_dropout(tc_gelu(y[0]), 0.25, n->key);
    return tc_error(y[1])[0] ? TC_ERR_HANDLE : TC_OK;
}

static tc_status layer(void *user, const tc_tensor *x, tc_tensor *y)
{
    network *n = user;
    tc_tensor h[2];
    tc_status status = n->form == NESTED ? tc_checkpoint(TC_TENSORS(x[0]), half_layer, n, h, 2)
                                         : half_layer(n, x, h);
    y[0] = tc_add(x[0], tc_layer_norm(tc_add(h[0], h[1]), TC_AXES(-1), TC_NONE, TC_NONE, 1e-5));
    return status;
}

/* The loss and its gradients; `twice`: of a loss made of gradients, in f64. */
static tc_program *build(tc_ctx *ctx, int form, bool twice)
{
    network n = {.form = form};
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, WIDTH), h = x, out[LAYERS + 1], in[LAYERS + 1];
    n.key = tc_full(ctx, 7, TC_U64);
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof(name), "w%d", i);
        in[i] = tc_input(ctx, name, TC_F32, WIDTH, WIDTH);
        n.w[i] = tc_cast(in[i], twice ? TC_F64 : TC_F32);
    }
    in[LAYERS] = x;
    h = tc_cast(x, twice ? TC_F64 : TC_F32);
    for (n.layer = 0; n.layer < LAYERS; n.layer++) {
        tc_tensor y;
        tc_status status = form == PLAIN ? layer(&n, &h, &y)
                                         : tc_checkpoint(TC_TENSORS(h), layer, &n, &y, 1);
        CHECK_MSG(!status, "%s", tc_error(y));
        h = y;
    }
    out[LAYERS] = tc_mean(tc_square(h), TC_ALL, false);
    REQUIRE(!tc_grad(out[LAYERS], n.w, LAYERS, out));
    for (int i = 0; i < LAYERS && twice; i++) {
        out[LAYERS] = tc_add(out[LAYERS], tc_sum(tc_square(out[i]), TC_ALL, false));
    }
    if (twice) {
        REQUIRE(!tc_grad(out[LAYERS], n.w, LAYERS, out));
    }
    for (int i = 0; i <= LAYERS; i++) {
        out[i] = tc_cast(out[i], TC_F32);
    }
    tc_program *f = NULL;
    tc_status status = tc_compile_fn(TC_TENSORS_N(in, LAYERS + 1), TC_TENSORS_N(out, LAYERS + 1),
                                     NULL, &f);
    CHECK_MSG(!status, "%s", tc_error(ctx));
    REQUIRE(f);
    return f;
}

static void run(const tc_program *f, float *to)
{
    static float x[ROWS * WIDTH], w[LAYERS][WIDTH * WIDTH];
    tc_buf in[LAYERS + 1], out[LAYERS + 1];
    for (int i = 0; i < LAYERS * WIDTH * WIDTH; i++) {
        w[i / (WIDTH * WIDTH)][i % (WIDTH * WIDTH)] = 0.2f * (float)cos(0.7 * i);
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = (float)sin(i);
    }
    for (int i = 0; i < LAYERS; i++) {
        in[i] = TC_BUF(w[i], WIDTH * WIDTH);
        out[i] = TC_BUF(to + i * WIDTH * WIDTH, WIDTH * WIDTH);
    }
    in[LAYERS] = TC_BUF(x, ROWS * WIDTH);
    out[LAYERS] = TC_BUF(to + LAYERS * WIDTH * WIDTH, 1);
    REQUIRE(!tc_run((tc_program *)f, TC_BUFS_N(in, LAYERS + 1), TC_BUFS_N(out, LAYERS + 1)));
}

static int64_t workspace(const tc_program *f)
{
    tc_program_info info;
    REQUIRE(!tc_program_get_info(f, &info));
    return info.arena_bytes;
}

static const char *explained(const tc_program *f)
{
    static char text[1 << 16];
    FILE *file = tmpfile();
    REQUIRE(file && !tc_explain_as(f, file, &(tc_explain_options){.all = true}));
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    return text;
}

static void check_regions(const char *backend, bool twice)
{
    static float want[COUNT], got[COUNT];
    tc_ctx *ctx = make_ctx(backend);
    tc_program *plain = build(ctx, PLAIN, twice);
    run(plain, want);
    CHECK(!strstr(explained(plain), "regions: "));
    for (int how = REGIONS; how <= NESTED; how++) {
        tc_program *f = build(ctx, how, twice);
        run(f, got);
        CHECK_MSG(4 * workspace(f) < (twice ? 4 : 3) * workspace(plain),
                  "%s, form %d: %lld of %lld bytes", backend, how, (long long)workspace(f),
                  (long long)workspace(plain));
        CHECK_HAS(explained(f), " not kept for the way back");
        double error = 0;
        for (int i = 0; i < COUNT; i++) {
            error = fmax(error, fabs((double)want[i] - got[i]) / (1e-3 + fabs(want[i])));
        }
        CHECK_MSG(twice ? error < 1e-6 : !memcmp(want, got, sizeof(want)), "%s, form %d: %g",
                  backend, how, error);
        tc_program_free(f);
    }
    tc_program_free(plain);
    tc_ctx_free(ctx);
}

TEST(regions_need_less_memory_for_the_same_bits)
{
    check_regions("interp", false);
}
TEST(regions_in_native_code)
{
    check_regions("cpu", false);
}
TEST(gradients_of_gradients_of_regions)
{
    check_regions("interp", true);
}

/* ---- where regions may be ---- */

static tc_status cell(void *user, const tc_tensor *x, tc_tensor *y)
{
    tc_tensor *w = user;
    y[0] = tc_tanh(tc_add(tc_mul(tc_sin(x[0]), w[0]), x[1]));
    return TC_OK;
}

typedef struct step {
    tc_tensor w;
    bool regions;
} step;

static tc_status scan_step(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    step *s = user;
    (void)y;
    return s->regions ? tc_checkpoint(TC_TENSORS(carry[0], x[0]), cell, &s->w, next, 1)
                      : cell(&s->w, (tc_tensor[]){carry[0], x[0]}, next);
}

TEST(a_region_in_each_step_of_a_repetition)
{
    float got[2][8];
    for (int regions = 0; regions < 2; regions++) {
        tc_ctx *ctx = make_ctx("interp");
        step s = {tc_param(ctx, NULL, TC_F32, 8), regions};
        float one[8] = {1, 2, 3, 4, -1, -2, 0.5f, 0.25f};
        tc_tensor last, g, xs = tc_arange(ctx, 0, 48, 1, TC_F32);
        xs = tc_reshape(tc_div(xs, 10), 6, 8);
        REQUIRE(!tc_param_write(s.w, one, 8));
        REQUIRE(!tc_scan(TC_TENSORS(tc_full(ctx, 0.5, TC_F32, 8)), TC_TENSORS(xs), 0, false,
                         scan_step, &s, &last, NULL, 0));
        REQUIRE(!tc_grad(tc_sum(tc_square(last), TC_ALL, false), &s.w, 1, &g));
        REQUIRE(!tc_read(g, got[regions], 8));
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(got[0], got[1], sizeof(got[0])) && got[0][0] != 0);
}

/* What a region holds may be repetitions that wait for the barrier of its way back. */
static tc_status solves(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_inv(tc_solve_triangular(x[0], tc_sin(x[0]), false, false, false));
    return TC_OK;
}

TEST(repetitions_in_a_region)
{
    static const float a[9] = {2, 1, 0, 1, 3, 0, 0.5f, 0.25f, 4};
    float got[2][9];
    for (int regions = 0; regions < 2; regions++) {
        tc_ctx *ctx = make_ctx("interp");
        tc_tensor x = tc_copy_in(ctx, a, TC_F32, 3, 3), y, g;
        CHECK_EQ_INT(regions ? tc_checkpoint(TC_TENSORS(x), solves, NULL, &y, 1)
                             : solves(NULL, &x, &y),
                     TC_OK);
        CHECK_EQ_INT(tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &g), TC_OK);
        CHECK_MSG(!tc_read(g, got[regions], 9), "%s", tc_error(g));
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(got[0], got[1], sizeof(got[0])) && got[0][0] != 0);
}

static tc_tensor leaked;

static tc_status leaking(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = leaked = tc_exp(x[0]);
    return TC_OK;
}

TEST(mistakes_of_regions_have_texts)
{
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor x = tc_full(ctx, 1, TC_F32, 4), y, unset[2];
    float out[4];
    CHECK_EQ_INT(tc_checkpoint(TC_TENSORS(x), NULL, NULL, &y, 1), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_checkpoint(TC_TENSORS(TC_NONE), leaking, NULL, &y, 1), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_checkpoint(TC_TENSORS(x), leaking, NULL, unset, 2), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(unset[0]), "result 1");
    REQUIRE(!tc_checkpoint(TC_TENSORS(x), leaking, NULL, &y, 1));
    CHECK_EQ_INT(tc_read(leaked, out, 4), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_read(y, out, 4), TC_OK);
    CHECK(fabs(out[0] - exp(1)) < 1e-6);
    tc_ctx_free(ctx);
}

/* ---- kernels as the user cuts them ---- */

enum { STEERED = 64 };

/* A chain of elementwise ops, cut in a way; n_kernels and what tc_explain says. */
static const char *steered(int way, int *n_kernels, float *to)
{
    static char text[1 << 16];
    float in[2][STEERED];
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor a = tc_input(ctx, "a", TC_F32, STEERED), b = tc_input(ctx, "b", TC_F32, STEERED);
    tc_tensor x[2] = {tc_sin(a), tc_cos(b)}, y;
    if (way == 1) {
        x[0] = tc_materialize(x[0]);
    } else if (way == 2) {
        REQUIRE(!tc_barrier(TC_TENSORS(x[0], x[1]), x));
    }
    y = tc_exp(tc_mul(x[0], 2));
    y = tc_add(way == 3 ? tc_nofuse(y) : y, x[1]);
    for (int i = 0; i < STEERED; i++) {
        in[0][i] = in[1][i] = (float)i / 16;
    }
    tc_program *f = NULL;
    REQUIRE(!tc_compile_fn(TC_TENSORS(a, b), TC_TENSORS(y), NULL, &f));
    REQUIRE(!tc_run(f, TC_BUFS(TC_BUF(in[0], STEERED), TC_BUF(in[1], STEERED)),
                    TC_BUFS(TC_BUF(to, STEERED))));
    tc_program_info info;
    REQUIRE(!tc_program_get_info(f, &info));
    *n_kernels = info.n_steps;
    snprintf(text, sizeof(text), "%s", explained(f));
    tc_program_free(f);
    tc_ctx_free(ctx);
    return text;
}

TEST(kernels_end_where_the_user_says)
{
    static float want[STEERED], got[STEERED];
    int n;
    CHECK(!strstr(steered(0, &n, want), "barrier"));
    CHECK_EQ_INT(n, 1);
    /* sin | rest; sin and cos | rest; sin, mul | exp | add, cos */
    const int launches[] = {2, 2, 3};
    for (int way = 1; way <= 3; way++) {
        const char *text = steered(way, &n, got);
        CHECK_HAS(text, "a barrier is between them: kernels after it read memory");
        CHECK_MSG(n == launches[way - 1], "way %d: %d launches", way, n);
        CHECK_MSG(!memcmp(want, got, sizeof(want)), "way %d", way);
    }
}

TEST(what_waits_comes_after_all_of_a_barrier)
{
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4, 4), out[2], slope;
    REQUIRE(!tc_barrier(TC_TENSORS(tc_sum(tc_exp(x), TC_AXES(0), false), tc_matmul(x, x)), out));
    tc_program *f = NULL;
    REQUIRE(!tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_neg(out[0]), tc_neg(out[1])), NULL, &f));
    const char *text = strstr(explained(f), "launches:");
    REQUIRE(text);
    const char *product = strstr(text, "matmul"), *neg = strstr(text, "neg");
    CHECK(neg && (!product || product < neg));
    tc_program_free(f);
    REQUIRE(!tc_grad(tc_sum(out[1], TC_ALL, false), &x, 1, &slope));
    CHECK_EQ_INT(tc_barrier(TC_TENSORS_N(NULL, 0), out), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_barrier(TC_TENSORS(x, TC_NONE), out), TC_ERR_HANDLE);
    CHECK(tc_error(out[0])[0] && tc_error(out[1])[0]);
    tc_ctx_free(ctx);
}

TEST_MAIN
