/* tests/unit/test_custom.c - ops of the user's own: what they are given, next to other ops of a
 * program; their gradients; what is refused. */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *begin(const char *backend)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend, .threads = 2, .no_disk_cache = true, .verify = true};
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* ---- the ops ---- */

static int calls;

/* Weighted sums of rows: [n, m] and [m] give [n]. */
static bool rows_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user;
    out->rank = 1;
    return n == 2 && in[0].rank == 2 && in[1].rank == 1 && in[0].sizes[1] == in[1].sizes[0] &&
           in[0].dtype == TC_F32 && in[1].dtype == TC_F32;
}

static void rows_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    const float *x = in[0].data, *w = in[1].data;
    float *y = out->data;
    int64_t m = in[0].sizes[1];
    calls++;
    CHECK(n == 2 && user == &calls && in[0].n == out->n * m && out->sizes[0] == in[0].sizes[0]);
    for (int64_t i = 0; i < out->n; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < m; j++) {
            y[i] += x[i * m + j] * w[j];
        }
    }
}

static tc_tensor rows_vjp(void *user, tc_tensors in, tc_tensor y, tc_tensor grad, int which)
{
    (void)user;
    CHECK(tc_rank(y) == 1 && in.n == 2);
    tc_tensor column = tc_unsqueeze(grad, 1);
    return which == 0 ? tc_mul(column, in.items[1])
                      : tc_sum(tc_mul(column, in.items[0]), TC_AXES(0), false);
}

static const tc_custom_op rows = {.name = "rows",
                                  .version = 1,
                                  .user = &calls,
                                  .shape = rows_shape,
                                  .run = rows_run,
                                  .vjp = rows_vjp};

/* Of many examples [k, n, m] and [k, m] at once. */
static tc_tensor rows_vmap(void *user, tc_tensors in)
{
    CHECK(user == &calls && in.n == 2 && tc_rank(in.items[0]) == 3 && tc_rank(in.items[1]) == 2);
    return tc_sum(tc_mul(in.items[0], tc_unsqueeze(in.items[1], 1)), TC_AXES(-1), false);
}

static tc_tensor flat_vmap(void *user, tc_tensors in)
{
    (void)user;
    return tc_sum(in.items[0], TC_ALL, false);
}

/* The cube of each element, of the shape and dtype of its input; no gradient of its own. */
static void cube_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user;
    (void)n;
    for (int64_t i = 0; i < out->n; i++) {
        double x = ((const double *)in[0].data)[i];
        ((double *)out->data)[i] = x * x * x;
    }
}

static const tc_custom_op cube = {.name = "cube", .run = cube_run};

/* ---- values ---- */

/* (x, w) -> 2 * rows(x + 1, -w), and the same twice over: a call between fused kernels. */
static void check_between(const char *backend)
{
    tc_ctx *ctx = begin(backend);
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), w = tc_input(ctx, "w", TC_F32, 4);
    tc_tensor y = tc_custom(&rows, TC_TENSORS(tc_add(x, 1), tc_neg(w)));
    tc_program *f = NULL;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(tc_mul(y, 2), y, y), NULL, &f) == TC_OK,
              "%s", tc_error(ctx));
    REQUIRE(f);
    float in[12], weights[4] = {1, 2, 3, 4}, twice[3], once[3], again[3];
    for (int i = 0; i < 12; i++) {
        in[i] = (float)i;
    }
    for (int times = 0; times < 3; times++) {
        calls = 0;
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 12), TC_BUF(weights, 4)),
                            TC_BUFS(TC_BUF(twice, 3), TC_BUF(once, 3), TC_BUF(again, 3))),
                     TC_OK);
        CHECK_EQ_INT(calls, 1);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ_INT(once[i], -(30 + 40 * i));
            CHECK(twice[i] == 2 * once[i] && again[i] == once[i]);
        }
    }
    tc_program_info info;
    tc_program_get_info(f, &info);
    CHECK(!strcmp(info.backend, backend) || !strcmp(info.backend, "interp"));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_call_between_kernels)
{
    check_between("interp");
    check_between("cpu");
}

/* Inputs as they are stored, views, strided memory, numbers, one twice; outputs right away. */
TEST(inputs_are_dense_whatever_they_were)
{
    static const float memory[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    tc_ctx *ctx = begin("interp");
    REQUIRE(ctx);
    int64_t sizes[2] = {3, 4}, strides[2] = {1, 3}; /* the transpose of 4 x 3 */
    tc_tensor turned = tc_borrow_strided(ctx, memory, TC_F32, 2, sizes, strides);
    tc_tensor plain = tc_borrow(ctx, memory, TC_F32, 3, 4), ones = tc_full(ctx, 1, TC_F32, 4);
    float y[3];
    tc_tensor t = tc_custom(&rows, TC_TENSORS(plain, ones));
    CHECK(tc_read(t, y, 3) == TC_OK && y[0] == 6 && y[1] == 22 && y[2] == 38);
    t = tc_custom(&rows, TC_TENSORS(turned, ones));
    CHECK(tc_read(t, y, 3) == TC_OK && y[0] == 18 && y[1] == 22 && y[2] == 26);
    t = tc_custom(&rows, TC_TENSORS(tc_flip(plain, 0), tc_range(tc_reshape(plain, 12), 0, 0, 4)));
    CHECK(tc_read(t, y, 3) == TC_OK && y[0] == 8 * 0 + 9 + 20 + 33 && y[2] == 14);
    double number = 0, three = 3;
    t = tc_custom(&cube, TC_TENSORS(tc_custom(&cube, TC_TENSORS(tc_full(ctx, 2, TC_F64)))));
    CHECK(tc_read(t, &number, 1) == TC_OK && number == 512);
    t = tc_custom(&cube, TC_TENSORS(tc_copy_in(ctx, &three, TC_F64)));
    CHECK(tc_read(t, &number, 1) == TC_OK && number == 27);
    tc_ctx_free(ctx);
}

TEST(the_reference_knows_them)
{
    tc_ctx *ctx = begin("interp");
    REQUIRE(ctx);
    tc_tensor x = tc_sin(tc_arange(ctx, 0, 12, 1, TC_F32));
    tc_tensor y = tc_custom(&rows, TC_TENSORS(tc_reshape(x, 3, 4), tc_range(x, 0, 0, 4)));
    float got[3], expected[3];
    tci_node *root = tci_handle_node(y);
    void *out = expected;
    CHECK_EQ_INT(tci_reference_eval(NULL, NULL, 0, &root, &out, 1, false), TC_OK);
    CHECK(tc_read(y, got, 3) == TC_OK && !memcmp(got, expected, sizeof(got)));
    tc_ctx_free(ctx);
}

/* ---- gradients ---- */

TEST(gradients_by_the_rule_of_the_op)
{
    tc_ctx *ctx = begin("interp");
    REQUIRE(ctx);
    float a[6] = {1, -2, 3, 0.5f, 2, -1}, b[3] = {2, 1, -1}, ga[6], gb[3];
    tc_tensor x = tc_copy_in(ctx, a, TC_F32, 2, 3), w = tc_copy_in(ctx, b, TC_F32, 3);
    tc_tensor of[2] = {x, w}, grads[2];
    tc_tensor loss = tc_sum(tc_square(tc_custom(&rows, TC_TENSORS(x, w))), TC_ALL, false);
    CHECK_MSG(tc_grad(loss, of, 2, grads) == TC_OK, "%s", tc_error(ctx));
    CHECK(tc_read(grads[0], ga, 6) == TC_OK && tc_read(grads[1], gb, 3) == TC_OK);
    float y[2] = {2 - 2 - 3, 1 + 2 + 1}; /* the sums */
    for (int j = 0; j < 3; j++) {
        CHECK_CLOSE(ga[j], 2 * y[0] * b[j], 1e-6);
        CHECK_CLOSE(ga[3 + j], 2 * y[1] * b[j], 1e-6);
        CHECK_CLOSE(gb[j], 2 * y[0] * a[j] + 2 * y[1] * a[3 + j], 1e-6);
    }
    tc_ctx_free(ctx);
}

static tc_tensor no_vjp(void *user, tc_tensors in, tc_tensor y, tc_tensor grad, int which)
{
    (void)user, (void)in, (void)y, (void)grad, (void)which;
    return TC_NONE;
}

static tc_tensor wrong_vjp(void *user, tc_tensors in, tc_tensor y, tc_tensor grad, int which)
{
    (void)user, (void)in, (void)y, (void)which;
    return tc_sum(grad, TC_ALL, false);
}

TEST(gradients_that_there_are_not)
{
    static const tc_custom_op none = {.name = "none", .run = cube_run, .vjp = no_vjp};
    static const tc_custom_op wrong = {.name = "wrong", .run = cube_run, .vjp = wrong_vjp};
    tc_ctx *ctx = begin("interp");
    REQUIRE(ctx);
    tc_tensor x = tc_full(ctx, 2, TC_F64, 3), g;
    double got[3];
    tc_tensor loss = tc_sum(tc_custom(&none, TC_TENSORS(x)), TC_ALL, false);
    CHECK_EQ_INT(tc_grad(loss, &x, 1, &g), TC_OK);
    CHECK(tc_read(g, got, 3) == TC_OK && got[0] == 0 && got[2] == 0);
    loss = tc_sum(tc_custom(&cube, TC_TENSORS(x)), TC_ALL, false);
    CHECK_EQ_INT(tc_grad(loss, &x, 1, &g), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "custom op 'cube' has no gradient: its vjp is NULL");
    loss = tc_sum(tc_custom(&wrong, TC_TENSORS(x)), TC_ALL, false);
    CHECK_EQ_INT(tc_grad(loss, &x, 1, &g), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(ctx), "custom op 'wrong' gives input 0, f64 [3], a gradient f64 []");
    tc_ctx_free(ctx);
}

/* ---- many examples ---- */

static void sums_of(const tc_tensor *x, tc_tensor *y, void *user)
{
    y[0] = tc_custom(user, TC_TENSORS(x[0], x[1]));
}

static void slopes_of(const tc_tensor *x, tc_tensor *y, void *user)
{
    tc_grad(tc_sum(tc_square(tc_custom(user, TC_TENSORS(x[0], x[1]))), TC_ALL, false), x, 1, y);
}

TEST(examples_by_a_rule_or_one_after_the_other)
{
    enum { K = 5, N = 3, M = 4 };
    const tc_custom_op ruled = {.name = "ruled rows",
                                .user = &calls,
                                .shape = rows_shape,
                                .run = rows_run,
                                .vjp = rows_vjp,
                                .vmap = rows_vmap};
    const tc_custom_op flat = {.name = "flat rows",
                               .user = &calls,
                               .shape = rows_shape,
                               .run = rows_run,
                               .vjp = rows_vjp,
                               .vmap = flat_vmap};
    for (int i = 0; i < 4; i++) {
        float got[2][K * N * M], x[K * N * M], w[M] = {1, -2, 0.5f, 3};
        tc_ctx *ctx = begin(i % 2 ? "cpu" : "interp");
        REQUIRE(ctx);
        for (int k = 0; k < K * N * M; k++) {
            x[k] = (float)(k * 7 % 11) - 4;
        }
        tc_tensor xs = tc_copy_in(ctx, x, TC_F32, K, N, M), weight = tc_copy_in(ctx, w, TC_F32, M);
        tc_tensor y[2];
        const int axes[2] = {0, TC_UNMAPPED};
        void *op = (void *)(i < 2 ? &rows : &ruled);
        calls = 0;
        REQUIRE(!tc_vmap(sums_of, op, TC_TENSORS(xs, weight), axes, &y[0], NULL, 1));
        REQUIRE(!tc_read(y[0], got[0], K * N));
        CHECK_EQ_INT(calls, i < 2 ? K : 0);
        REQUIRE(!tc_vmap(slopes_of, op, TC_TENSORS(xs, weight), axes, &y[1], NULL, 1));
        REQUIRE(!tc_read(y[1], got[1], K * N * M));
        for (int k = 0; k < K * N; k++) {
            double sum = 0;
            for (int m = 0; m < M; m++) {
                sum += (double)x[k * M + m] * w[m];
            }
            CHECK_MSG(fabs(got[0][k] - sum) < 1e-4, "%d: %g, expected %g", k, got[0][k], sum);
            CHECK(fabs(got[1][k * M + 1] - 2 * sum * w[1]) < 1e-3);
        }
        CHECK_EQ_INT(tc_vmap(sums_of, (void *)&flat, TC_TENSORS(xs, weight), axes, y, NULL, 1),
                     TC_ERR_SHAPE);
        CHECK_HAS(tc_error(y[0]), "the vmap rule of custom op 'flat rows' gives f32 []");
        tc_ctx_free(ctx);
    }
}

/* The key has the op's name and version, not its number in this process. */
TEST(a_program_with_calls_comes_back_from_disk)
{
    char dir[] = "/tmp/tc-test-custom-XXXXXX";
    REQUIRE(mkdtemp(dir));
    for (int i = 0; i < 4; i++) {
        const tc_custom_op op = {.name = "on disk",
                                 .version = i / 3,
                                 .user = &calls,
                                 .shape = rows_shape,
                                 .run = rows_run};
        tc_options o = {.backend = "cpu", .cache_dir = dir, .memory_cache_bytes = -1, .verify = 1};
        float x[6] = {1, 2, 3, 4, 5, 6}, w[3] = {1, -1, 2}, got[2];
        tc_ctx *ctx = NULL;
        tc_program *f = NULL;
        tc_program_info info;
        REQUIRE(!tc_ctx_make(&ctx, &o));
        tc_tensor a = tc_input(ctx, "a", TC_F32, 2, 3), b = tc_input(ctx, "b", TC_F32, 3);
        tc_tensor y = tc_add(tc_custom(&op, TC_TENSORS(tc_mul(a, i == 2 ? 5 : 3), b)), 1);
        REQUIRE(!tc_compile_fn(TC_TENSORS(a, b), TC_TENSORS(y), NULL, &f));
        CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
        if (strcmp(info.backend, "cpu")) {
            SKIP("no C compiler here");
        }
        CHECK_MSG(info.from_disk == (i == 1 || i == 2), "%d", i); /* a number is no new program */
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 6), TC_BUF(w, 3)), TC_BUFS(TC_BUF(got, 2))),
                     TC_OK);
        CHECK(got[0] == (i == 2 ? 26 : 16) && got[1] == (i == 2 ? 56 : 34));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

/* ---- what is refused ---- */

static bool bad_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user, (void)in, (void)n;
    out->rank = 1;
    out->sizes[0] = -3;
    return true;
}

static bool sizeless_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user, (void)in, (void)n;
    out->sizes = NULL;
    return true;
}

static tc_tensor cube_vjp(void *user, tc_tensors in, tc_tensor y, tc_tensor grad, int which)
{
    (void)y;
    (void)which;
    return tc_mul(grad, tc_mul(tc_square(in.items[0]), *(const double *)user));
}

/* Forward mode follows from the rule, and a rule that is wrong is found. */
TEST(rules_are_transposed_and_checked)
{
    static double three = 3, one = 1;
    const tc_custom_op good = {.name = "good cube",
                               .user = &three,
                               .run = cube_run,
                               .vjp = cube_vjp};
    const tc_custom_op wrong = {.name = "wrong cube",
                                .user = &one,
                                .run = cube_run,
                                .vjp = cube_vjp};
    const double data[3] = {0.5, -2, 3};
    double got[3];
    tc_gradcheck_report r;
    tc_ctx *ctx = begin("interp");
    tc_tensor x = tc_copy_in(ctx, data, TC_F64, 3), v = tc_exp(x), t;
    tc_tensor y = tc_custom(&good, TC_TENSORS(x));
    CHECK_EQ_INT(tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(v), &t), TC_OK);
    CHECK_EQ_INT(tc_read(t, got, 3), TC_OK);
    CHECK(fabs(got[2] - 27 * exp(3)) < 1e-9);
    CHECK_EQ_INT(tc_gradcheck(tc_sin(y), TC_TENSORS(x), NULL, NULL), TC_OK);
    y = tc_sin(tc_custom(&wrong, TC_TENSORS(tc_mul(x, 0.5))));
    CHECK_EQ_INT(tc_gradcheck(y, TC_TENSORS(x), NULL, &r), TC_ERR_GRADIENT);
    CHECK_STR(r.op, "tc_custom");
    tc_ctx_free(ctx);
}

TEST(what_an_op_is_and_takes)
{
    static const tc_custom_op other = {.name = "cube", .run = rows_run};
    static const tc_custom_op newer = {.name = "cube", .version = 1, .run = rows_run};
    static const tc_custom_op nameless = {.run = cube_run}, idle = {.name = "idle"};
    static const tc_custom_op wide_block = {.name = "wide", .run = cube_run, .cuda_threads = 2000};
    static const tc_custom_op text = {.name = "cube", .run = cube_run, .cuda = "void run();"};
    static const tc_custom_op bad = {.name = "bad", .run = cube_run, .shape = bad_shape};
    static const tc_custom_op sizeless = {.name = "sizeless",
                                          .run = cube_run,
                                          .shape = sizeless_shape};
    tc_ctx *ctx = begin("interp");
    REQUIRE(ctx);
    tc_tensor x = tc_full(ctx, 2, TC_F64, 3), many[TC_CUSTOM_MOST + 1], wide = x;
    for (int i = 0; i <= TC_CUSTOM_MOST; i++) {
        many[i] = x;
        wide = tc_unsqueeze(wide, 0);
    }
    CHECK_EQ_INT(tc_status_of(tc_custom(&cube, TC_TENSORS(x))), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_custom(&newer, TC_TENSORS(x))), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_custom(&other, TC_TENSORS(x))), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "another op is 'cube' version 0");
    CHECK_EQ_INT(tc_status_of(tc_custom(&nameless, TC_TENSORS(x))), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_custom(&idle, TC_TENSORS(x))), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_custom(NULL, TC_TENSORS(x))), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_custom(&wide_block, TC_TENSORS(x))), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "'wide' has cuda_threads = 2000");
    CHECK_EQ_INT(tc_status_of(tc_custom(&text, TC_TENSORS(x))), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_custom(&cube, TC_TENSORS_N(many, TC_CUSTOM_MOST + 1))),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_custom(&rows, TC_TENSORS(x, x))), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(ctx), "tc_custom: 'rows' does not take f64 [3], f64 [3]");
    CHECK_EQ_INT(tc_status_of(tc_custom(&bad, TC_TENSORS(x))), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_status_of(tc_custom(&sizeless, TC_TENSORS(x))), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(ctx), "'sizeless' gives no valid dtype, rank or sizes");
    CHECK_EQ_INT(tc_status_of(tc_custom(&cube, TC_TENSORS(wide))), TC_ERR_SHAPE);
    tc_tensor poison = tc_add(x, tc_full(ctx, 1, TC_F64, 4));
    CHECK_EQ_INT(tc_status_of(tc_custom(&cube, TC_TENSORS(poison))), TC_ERR_SHAPE);
    CHECK(tc_status_of(tc_custom(&cube, TC_TENSORS())) != TC_OK);
    tc_tensor tangent, y = tc_custom(&cube, TC_TENSORS(x));
    CHECK_EQ_INT(tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(x), &tangent), TC_ERR_UNSUPPORTED);
    tc_ctx_free(ctx);
}

/* Equal calls are one, and what hangs on no input is computed once. */
TEST(calls_of_memory_that_stays_are_made_once)
{
    tc_ctx *ctx = begin("interp");
    REQUIRE(ctx);
    static const float table[4] = {1, 2, 3, 4};
    tc_tensor w = tc_borrow(ctx, table, TC_F32, 1, 4), v = tc_borrow(ctx, table, TC_F32, 4);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1);
    tc_tensor y = tc_add(tc_custom(&rows, TC_TENSORS(w, v)), tc_custom(&rows, TC_TENSORS(w, v)));
    tc_program *f = NULL;
    REQUIRE(tc_compile(tc_add(x, y), &f) == TC_OK);
    float in = 1, out = 0;
    calls = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&in, 1)), TC_BUFS(TC_BUF(&out, 1))), TC_OK);
        CHECK(out == 61);
    }
    CHECK_MSG(calls <= 3 && calls >= 1, "%d calls", calls);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* carry = rows(x, carry) + 1 for each x: a call in each step. */
static tc_status step_of(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                         tc_tensor *y)
{
    (void)user;
    *y = tc_custom(&rows, TC_TENSORS(*x, *carry));
    *next = tc_add(*y, 1);
    return TC_OK;
}

TEST(a_call_in_each_step_of_a_repetition)
{
    enum { STEPS = 5 };
    tc_ctx *ctx = begin("interp");
    REQUIRE(ctx);
    float xs[STEPS][2][2], state[2] = {1, -1}, got[2], each[STEPS][2];
    for (int i = 0; i < STEPS * 4; i++) {
        xs[i / 4][i / 2 % 2][i % 2] = (float)(i % 3 - 1);
    }
    tc_tensor first = tc_copy_in(ctx, state, TC_F32, 2);
    tc_tensor x = tc_copy_in(ctx, xs, TC_F32, STEPS, 2, 2);
    tc_tensor last, ys;
    tc_status status = tc_scan(TC_TENSORS(first), TC_TENSORS(x), 0, false, step_of, NULL, &last,
                               &ys, 1);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    calls = 0;
    CHECK_MSG(tc_eval_many(TC_TENSORS(last, ys)) == TC_OK, "%s", tc_error(ctx));
    CHECK_EQ_INT(calls, STEPS);
    CHECK(tc_read(last, got, 2) == TC_OK && tc_read(ys, each, STEPS * 2) == TC_OK);
    for (int i = 0; i < STEPS; i++) {
        float y[2];
        for (int j = 0; j < 2; j++) {
            y[j] = xs[i][j][0] * state[0] + xs[i][j][1] * state[1];
            CHECK(each[i][j] == y[j]);
        }
        state[0] = y[0] + 1;
        state[1] = y[1] + 1;
    }
    CHECK(got[0] == state[0] && got[1] == state[1]);
    tc_ctx_free(ctx);
}

TEST_MAIN
