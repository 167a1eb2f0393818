/* tests/unit/test_optim.c - optimizers: five steps on sum((w * c)^2) against those of PyTorch 2.15
 * in f64, copies of narrow parameters, clipping, and how many kernels a step is. */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static const double start[4] = {1, -2, 0.5, 3}, scales[4] = {1, 2, -1, 0.5};

enum { SGD, ADAM, ADAMW, LION };

static tc_status step_of(int kind, const tc_tensor *params, const tc_tensor *grads, int n,
                         tc_tensor rate, const void *options, tc_tensor *effects, int *n_effects)
{
    switch (kind) {
    case SGD: return tc_sgd(params, grads, n, rate, options, effects, n_effects);
    case ADAM: return tc_adam(params, grads, n, rate, options, effects, n_effects);
    case ADAMW: return tc_adamw(params, grads, n, rate, options, effects, n_effects);
    default: return tc_lion(params, grads, n, rate, options, effects, n_effects);
    }
}

/* A program of one step on w, whose input is the rate. */
static tc_program *compile_step(int kind, tc_tensor w, const void *options)
{
    tc_program *f = NULL;
    tc_tensor g, effects[TC_EFFECTS(1)], rate = tc_input(ctx, "rate", TC_F64);
    tc_tensor c = tc_cast(tc_copy_in(ctx, scales, TC_F64, 4), tc_dtype_of(w));
    tc_tensor loss = tc_sum(tc_square(tc_mul(w, c)), TC_ALL, false);
    int n = -1;
    REQUIRE(tc_grad(loss, &w, 1, &g) == TC_OK);
    tc_status status = step_of(kind, &w, &g, 1, rate, options, effects, &n);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    CHECK(n >= 1 && n <= TC_EFFECTS(1));
    status = tc_compile_fn(TC_TENSORS(rate), TC_TENSORS_N(effects, n), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    REQUIRE(f != NULL);
    return f;
}

static void run(tc_program *f, int n)
{
    double rate = 0.05;
    for (int i = 0; i < n; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&rate, 1)), TC_BUFS_N(NULL, 0)), TC_OK);
    }
}

static void check_steps(int kind, tc_dtype dtype, const void *options, const double *expected)
{
    double got[4];
    begin();
    tc_tensor w = tc_param_from(tc_cast(tc_copy_in(ctx, start, TC_F64, 4), dtype));
    tc_program *f = compile_step(kind, w, options);
    run(f, 5);
    CHECK_EQ_INT(tc_read(tc_cast(w, TC_F64), got, 4), TC_OK);
    double eps = dtype == TC_F64 ? 2e-8 : dtype == TC_F32 ? 1e-6 : dtype == TC_F16 ? 2e-3 : 0.02;
    for (int i = 0; i < 4; i++) {
        CHECK_CLOSE(got[i], expected[i], eps);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(steps_are_those_of_pytorch)
{
    static const tc_sgd_options decay = {.weight_decay = 0.1}, momentum = {.momentum = 0.9};
    static const tc_sgd_options nesterov = {0.9, 0.1, true};
    static const tc_adam_options adam = {.weight_decay = 0.1};
    static const struct {
        int kind;
        const void *options;
        double expected[4];
    } rows[] = {
        {SGD, &decay, {0.574268740309375, -0.14914710374374998, 0.2871343701546875, 2.5762020771}},
        {SGD, &momentum, {-0.029159999999999978, 1.458, -0.014579999999999989, 2.0711359863281245}},
        {SGD,
         &nesterov,
         {-0.13485766051727502, 0.3119937704696562, -0.06742883025863751, 1.661204861977629}},
        {ADAM,
         &adam,
         {0.7514778912346847, -1.7506337646366013, 0.25398183083680664, 2.750401118396878}},
        {ADAMW,
         &adam,
         {0.7293938167715991, -1.703761460764188, 0.24436501874807748, 2.678766399439454}}};
    static const tc_dtype dtypes[] = {TC_F32, TC_F64, TC_F16, TC_BF16};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int d = 0; d < 4; d++) {
            check_steps(rows[i].kind, dtypes[d], rows[i].options, rows[i].expected);
        }
    }
}

TEST(lion_is_its_formula)
{
    static const tc_adam_options options = {.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1};
    double w[4], m[4] = {0};
    memcpy(w, start, sizeof(w));
    for (int t = 0; t < 5; t++) {
        for (int i = 0; i < 4; i++) {
            double g = 2 * w[i] * scales[i] * scales[i], ahead = 0.8 * m[i] + 0.2 * g;
            w[i] -= 0.05 * ((ahead > 0) - (ahead < 0) + 0.1 * w[i]);
            m[i] = 0.95 * m[i] + 0.05 * g;
        }
    }
    check_steps(LION, TC_F32, &options, w);
    check_steps(LION, TC_F64, &options, w);
}

/* Steps too small for bf16 add up in the copy, which is saved with the rest. */
TEST(narrow_parameters_are_updated_in_f32)
{
    begin();
    static const tc_sgd_options momentum = {.momentum = 0.5};
    tc_tensor w = tc_named(tc_param_from(tc_full(ctx, 1, TC_BF16, 4)), "w");
    tc_program *f = compile_step(SGD, w, &momentum);
    const char *path = "/tmp/tc-optim.safetensors";
    float now[4], again[4];
    double rate = 1e-4;
    for (int i = 0; i < 50; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&rate, 1)), TC_BUFS_N(NULL, 0)), TC_OK);
    }
    CHECK_EQ_INT(tc_read(tc_cast(w, TC_F32), now, 4), TC_OK);
    CHECK(now[0] < 0.985f && now[0] > 0.975f);
    CHECK_MSG(tc_save(ctx, path) == TC_OK, "%s", tc_error(ctx));
    tc_file *file = NULL;
    REQUIRE(tc_file_open(ctx, path, &file) == TC_OK);
    CHECK(tc_file_find(file, "w") && tc_file_find(file, "w.momentum"));
    CHECK(tc_file_find(file, "w.f32")->dtype == TC_F32);
    tc_file_close(file);
    run(f, 3);
    CHECK_EQ_INT(tc_load(ctx, path), TC_OK);
    CHECK_EQ_INT(tc_read(tc_cast(w, TC_F32), again, 4), TC_OK);
    CHECK(!memcmp(now, again, sizeof(now)));
    remove(path);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(clipping_by_the_norm_of_all)
{
    begin();
    float a[2] = {3, 0}, norm, got[2];
    tc_tensor wide = tc_copy_in(ctx, ((double[]){4, 12}), TC_F64, 2);
    tc_tensor grads[2] = {tc_copy_in(ctx, a, TC_F32, 2), wide}, clipped[2];
    tc_tensor n = tc_clip_grads(grads, 2, 6.5, clipped);
    double second[2];
    CHECK(tc_read(n, &norm, 1) == TC_OK && norm == 13);
    CHECK(tc_read(clipped[0], got, 2) == TC_OK && got[0] == 1.5f && got[1] == 0);
    CHECK(tc_read(clipped[1], second, 2) == TC_OK && second[0] == 2 && second[1] == 6);
    tc_clip_grads(grads, 2, tc_full(ctx, 20, TC_F32), grads);
    CHECK(tc_read(grads[0], got, 2) == TC_OK && got[0] == 3);
    CHECK_EQ_INT(tc_status_of(tc_clip_grads(grads, 0, 1, clipped)), TC_ERR_ARGUMENT);
    /* of f64 alone all is f64 */
    double one = 0;
    tc_tensor g = tc_copy_in(ctx, ((double[]){3, 4}), TC_F64, 2), c;
    CHECK(tc_read(tc_clip_grads(&g, 1, 1, &c), &one, 1) == TC_OK && one == 5);
    CHECK(tc_read(c, second, 2) == TC_OK && fabs(second[0] - 0.6) < 2e-16);
    g = tc_copy_in(ctx, ((double[]){3e100, 4e100}), TC_F64, 2);
    tc_clip_grads(&g, 1, 1, &c);
    CHECK(tc_read(c, second, 2) == TC_OK && fabs(second[1] - 0.8) < 2e-16);
    /* of a NaN all are NaN */
    grads[0] = tc_copy_in(ctx, ((float[]){NAN, 1}), TC_F32, 2);
    grads[1] = wide;
    tc_clip_grads(grads, 2, 1, clipped);
    CHECK(tc_read(clipped[1], second, 2) == TC_OK && isnan(second[0]) && isnan(second[1]));
    tc_ctx_free(ctx);
}

/* ---- many parameters ---- */

enum { MANY = 40, MANY_LEAST = 2000, MANY_MORE = 131 };

/* A program of one step on MANY parameters of unlike sizes, whose inputs are their gradients. */
static tc_program *compile_many(int kind, bool clips, tc_tensor *w, tc_tensor *inputs)
{
    tc_tensor effects[TC_EFFECTS(MANY)], grads[MANY];
    tc_program *f = NULL;
    int n = 0;
    for (int i = 0; i < MANY; i++) {
        int size = MANY_LEAST + MANY_MORE * i;
        tc_tensor places = tc_arange(ctx, 0, size, 1, TC_F32);
        w[i] = tc_param_from(tc_sin(tc_add(places, i)));
        inputs[i] = grads[i] = tc_input(ctx, "", TC_F32, size);
    }
    if (clips) {
        tc_clip_grads(inputs, MANY, 1.5, grads);
    }
    tc_status status = step_of(kind, w, grads, MANY, tc_full(ctx, 0.05, TC_F64), NULL, effects, &n);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    status = tc_compile_fn(TC_TENSORS_N(inputs, MANY), TC_TENSORS_N(effects, n), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    REQUIRE(f != NULL);
    return f;
}

/* Three steps: what the parameters are then, one after the other; heap. */
static float *run_many(tc_program *f, const tc_tensor *w, const tc_tensor *inputs)
{
    float *all = malloc(sizeof(*all) * MANY * (MANY_LEAST + MANY * MANY_MORE)), *at = all;
    float *grad = malloc(sizeof(*grad) * (MANY_LEAST + MANY * MANY_MORE));
    tc_buf buffers[MANY];
    for (int i = 0; i < MANY_LEAST + MANY * MANY_MORE; i++) {
        grad[i] = (float)(i * 37 % 101 - 50) / 64;
    }
    for (int i = 0; i < MANY; i++) {
        buffers[i] = TC_BUF(grad, tc_count(inputs[i]));
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS_N(buffers, MANY), TC_BUFS_N(NULL, 0)), TC_OK);
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ_INT(tc_read(w[i], at, tc_count(w[i])), TC_OK);
        at += tc_count(w[i]);
    }
    free(grad);
    return all;
}

/* The update of all parameters is a handful of kernels, in place, with the bits of one for each. */
static void check_many(int kind, bool clips)
{
    tc_program_info info;
    tc_tensor w[MANY], inputs[MANY];
    float *values[2];
    size_t n = 0;
    for (int apart = 0; apart < 2; apart++) {
        tc_options o = {.backend = "interp",
                        .threads = 1,
                        .no_disk_cache = true,
                        .verify = true,
                        .fusion = apart ? -1 : 0};
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_program *f = compile_many(kind, clips, w, inputs);
        tc_program_get_info(f, &info);
        int most = clips ? 8 : 4;
        CHECK_MSG(apart || info.n_steps <= most, "%d: %d launches", kind, info.n_steps);
        CHECK_MSG(apart || info.arena_bytes <= 8192, "%d bytes", (int)info.arena_bytes);
        CHECK_MSG(!apart || info.n_steps > MANY, "%d launches", info.n_steps);
        int n_copies = 0;
        for (int e = 0; e < f->n_effects && !apart; e++) {
            n_copies += !f->effects[e].over_old;
        }
        /* one may be written by the kernel that makes the norm, before another reads the old one */
        CHECK_MSG(n_copies <= clips, "%d: %d effects are not in place", kind, n_copies);
        values[apart] = run_many(f, w, inputs);
        for (int i = 0; i < MANY && !apart; i++) {
            n += (size_t)tc_count(w[i]);
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(values[0], values[1], n * sizeof(float)));
    free(values[0]);
    free(values[1]);
}

TEST(an_update_is_a_handful_of_kernels)
{
    for (int kind = SGD; kind <= LION; kind++) {
        check_many(kind, false);
        check_many(kind, true);
    }
}

/* Five steps of a matrix on the loss of the other tests; wide, tall, and without the look ahead. */
TEST(muon_is_that_of_pytorch)
{
    static const double from[6] = {1, -2, 0.5, 3, -1, 0.25}, factors[6] = {1, 2, -1, 0.5, 1, 3};
    static const struct {
        int rows;
        tc_muon_options options;
        double expected[6];
    } cases[] = {{2,
                  {.weight_decay = 0.1},
                  {0.959791539, -1.770114594, 0.497165534, 2.864459124, -0.971833975, 0.071732962}},
                 {3,
                  {.momentum = 0.95},
                  {1.005337402, -1.791168100, 0.355656521, 2.961066593, -0.827355580, 0.214714961}},
                 {3,
                  {.heavy_ball = true},
                  {1.005735288, -1.791124845, 0.354926460, 2.961119902, -0.826627759,
                   0.214634193}}};
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(*cases)); i++) {
        begin();
        int rows = cases[i].rows, n = 0;
        tc_tensor w = tc_named(tc_param(ctx, from, TC_F64, rows, 6 / rows), "w"), g;
        tc_tensor c = tc_copy_in(ctx, factors, TC_F64, rows, 6 / rows);
        tc_tensor loss = tc_sum(tc_square(tc_mul(w, c)), TC_ALL, false);
        tc_tensor effects[TC_EFFECTS(1)], rate = tc_input(ctx, "rate", TC_F64);
        tc_program *f = NULL;
        REQUIRE(tc_grad(loss, &w, 1, &g) == TC_OK);
        REQUIRE(tc_muon(&w, &g, 1, rate, &cases[i].options, effects, &n) == TC_OK);
        CHECK_EQ_INT(n, 2);
        tc_compile_fn(TC_TENSORS(rate), TC_TENSORS_N(effects, n), NULL, &f);
        REQUIRE(f != NULL);
        run(f, 5);
        double got[6];
        CHECK_EQ_INT(tc_read(w, got, 6), TC_OK);
        for (int j = 0; j < 6; j++) {
            CHECK_CLOSE(got[j], cases[i].expected[j], 1e-8);
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* One step of a f16 parameter whose gradient is `factor`, by a program that scales its loss. */
static void scaled_step(tc_program *f, double factor)
{
    float given = (float)factor;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&given, 1)), TC_BUFS_N(NULL, 0)), TC_OK);
}

static double value_of(tc_tensor t)
{
    double value = -1;
    CHECK_EQ_INT(tc_read(tc_cast(t, TC_F64), &value, 1), TC_OK);
    return value;
}

TEST(scaled_losses)
{
    begin();
    tc_tensor w = tc_param_from(tc_full(ctx, 1, TC_F16)), g;
    tc_tensor scale = tc_named(tc_param_from(tc_full(ctx, 1024, TC_F32)), "scale");
    tc_tensor factor = tc_input(ctx, "factor", TC_F32), effects[TC_EFFECTS(1)];
    tc_tensor small = tc_mul(tc_mul(w, tc_cast(tc_mul(factor, scale), TC_F16)), 1);
    tc_program *f = NULL;
    int n = 0;
    REQUIRE(tc_grad(small, &w, 1, &g) == TC_OK);
    tc_tensor finite = tc_unscale_grads(&g, 1, scale, &g);
    CHECK(tc_dtype_of(g) == TC_F32 && tc_dtype_of(finite) == TC_BOOL);
    REQUIRE(tc_sgd(&w, &g, 1, 4096, NULL, effects, &n) == TC_OK);
    tc_tensor copy = tc_full(ctx, 0, TC_F32), before = effects[0];
    CHECK_EQ_INT(tc_scale_effects(scale, finite, 0, effects, &n), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scale_effects(copy, finite, 3, effects, &n), TC_ERR_ARGUMENT);
    effects[1] = w;
    CHECK_EQ_INT(tc_scale_effects(scale, finite, 3, effects, &n), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "tc_scale_effects: given a tensor, expected an effect");
    CHECK(n == 2 && effects[0].id == before.id);
    REQUIRE(tc_sgd(&w, &g, 1, 4096, NULL, effects, &n) == TC_OK);
    REQUIRE(tc_scale_effects(scale, finite, 3, effects, &n) == TC_OK);
    CHECK_EQ_INT(n, 4);
    tc_compile_fn(TC_TENSORS(factor), TC_TENSORS_N(effects, n), NULL, &f);
    REQUIRE(f != NULL);
    scaled_step(f, 0x1p-26); /* 0 in f16 */
    CHECK(value_of(w) == 1 - 0x1p-14 || value_of(w) == 1);
    for (int i = 0; i < 7; i++) {
        scaled_step(f, 0x1p-26);
    }
    CHECK_EQ_INT(value_of(w) * 2048, 2047); /* eight times 2^-14, kept in the copy */
    CHECK_EQ_INT(value_of(scale), 4096);    /* after each third step */
    scaled_step(f, 100);                    /* infinite in f16 */
    CHECK_EQ_INT(value_of(w) * 2048, 2047);
    CHECK_EQ_INT(value_of(scale), 2048);
    scaled_step(f, 0x1p-26);
    scaled_step(f, 0x1p-26);
    CHECK_EQ_INT(value_of(scale), 2048); /* counted from there */
    scaled_step(f, 0x1p-26);
    CHECK_EQ_INT(value_of(scale), 4096);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* The update of a parameter is one kernel, with all that it remembers. */
TEST(kernels_of_a_step)
{
    enum { N = 6 };
    begin();
    tc_tensor params[N], grads[N], effects[TC_EFFECTS(N)], inputs[N + 1];
    tc_program *f = NULL;
    tc_program_info info;
    int n = 0;
    for (int i = 0; i < N; i++) {
        params[i] = tc_param(ctx, NULL, TC_F32, 5 + i, 40);
        inputs[i] = grads[i] = tc_input(ctx, "g", TC_F32, 5 + i, 40);
    }
    inputs[N] = tc_input(ctx, "rate", TC_F32);
    REQUIRE(tc_adamw(params, grads, N, inputs[N], NULL, effects, &n) == TC_OK);
    CHECK_EQ_INT(n, 3 * N + 2);
    tc_status status = tc_compile_fn(TC_TENSORS_N(inputs, N + 1), TC_TENSORS_N(effects, n), NULL,
                                     &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    REQUIRE(f != NULL);
    tc_program_get_info(f, &info);
    CHECK_MSG(info.n_kernels <= N + 2, "%d kernels for %d parameters", info.n_kernels, (int)N);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(what_does_not_fit)
{
    begin();
    tc_tensor p = tc_param(ctx, NULL, TC_F32, 2), whole = tc_param(ctx, NULL, TC_I32, 2);
    tc_tensor leaf = tc_full(ctx, 1, TC_F32, 2), g = leaf, effects[TC_EFFECTS(1)];
    tc_tensor wide = tc_full(ctx, 1, TC_F64, 2), longer = tc_full(ctx, 1, TC_F32, 3);
    tc_tensor bad = tc_add(leaf, longer);
    int n = 7;
    CHECK_EQ_INT(tc_sgd(&leaf, &g, 1, 0.1, NULL, effects, &n), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "tc_sgd: number 0 is no parameter");
    CHECK_EQ_INT(n, 0);
    CHECK_EQ_INT(tc_adam(&p, &wide, 1, 0.1, NULL, effects, &n), TC_ERR_DTYPE);
    CHECK_EQ_INT(tc_adam(&whole, &whole, 1, 0.1, NULL, effects, &n), TC_ERR_DTYPE);
    CHECK_EQ_INT(tc_adamw(&p, &longer, 1, 0.1, NULL, effects, &n), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(ctx), "parameter 0 is [2] and its gradient [3]");
    CHECK_EQ_INT(tc_lion(&p, &bad, 1, 0.1, NULL, effects, &n), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(ctx), "tc_add: shapes [2] and [3] do not broadcast");
    CHECK_EQ_INT(tc_lion(&p, &g, 1, longer, NULL, effects, &n), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_muon(&p, &g, 1, 0.1, NULL, effects, &n), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(ctx), "parameter 0 is [2]: expected a matrix");
    CHECK_EQ_INT(tc_sgd(NULL, &g, 1, 0.1, NULL, effects, &n), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_sgd(&p, &g, -1, 0.1, NULL, effects, &n), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_sgd(&p, &g, 1, 0.1, NULL, NULL, &n), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_sgd(&p, &g, 1, 0.1, NULL, effects, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_sgd(NULL, NULL, 0, 0.1, NULL, effects, &n), TC_OK);
    CHECK_EQ_INT(n, 0);
    tc_ctx_free(ctx);
}

TEST_MAIN
