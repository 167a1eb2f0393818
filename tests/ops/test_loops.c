/* tests/ops/test_loops.c - repetitions against the same steps unrolled by the test: the same bits,
 * on every backend that is here, and in the reference evaluator; what a body may and may not do;
 * that nothing but work grows with the number of steps. */
#include "inside.h"

#include "tc_test.h"

#include "loop_cases.h"

/* The repetition against the reference and, with the same bits, the unrolled steps. */
static void compare(const char *backend)
{
    static values looped, unrolled;
    for (int i = 0; i < CASES; i++) {
        run_case(&cases[i], backend, false, &looped);
        check_reference(&cases[i], backend, &looped);
        run_case(&cases[i], backend, true, &unrolled);
        CHECK_EQ_INT(looped.n, unrolled.n);
        for (int k = 0; k < looped.n; k++) {
            tc_dtype t = looped.dtype[k];
            int64_t n = looped.count[k];
            CHECK_MSG(t == unrolled.dtype[k] && n == unrolled.count[k], "%s %d", cases[i].name, k);
            CHECK_MSG(same_bits(t, looped.bytes[k], unrolled.bytes[k], n),
                      "%s on %s: output %d differs from that of the steps", cases[i].name, backend,
                      k);
        }
    }
}

TEST(steps_give_what_they_do_unrolled)
{
    compare("interp");
}
TEST(steps_in_native_code)
{
    compare("cpu");
}

/* ---- while, and branches ---- */

TEST(a_loop_stops_by_its_values)
{
    check_while("interp");
}
TEST(a_loop_stops_in_native_code)
{
    check_while("cpu");
}

static tc_status wide_branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_cast(x[0], TC_F64);
    y[1] = tc_sum(x[1], TC_ALL, false);
    return TC_OK;
}

TEST(one_of_two_branches_is_taken)
{
    for (int i = 0; i < 4; i++) {
        check_branch(i / 2 ? "cpu" : "interp", i % 2 != 0);
    }
}

TEST(mistakes_of_loops_and_branches_have_texts)
{
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor x = RAMP(ctx, TC_F32, 3), go = tc_any(x, TC_ALL, false), y[2], grad;
    CHECK_EQ_INT(tc_cond(go, TC_TENSORS(x, x), root_branch, wide_branch, NULL, y, 2), TC_ERR_DTYPE);
    CHECK_HAS(tc_error(y[1]), "result 0 is f32 [3] of one branch and f64 [3] of the other");
    CHECK_EQ_INT(tc_cond(x, TC_TENSORS(x, x), root_branch, root_branch, NULL, y, 2), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(y[0]), "the condition is f32 [3]: expected a bool of shape []");
    CHECK_EQ_INT(tc_cond(go, TC_TENSORS(x, x), root_branch, NULL, NULL, y, 2), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_cond(TC_NONE, TC_TENSORS(x, x), root_branch, root_branch, NULL, y, 2),
                 TC_ERR_HANDLE);
    tc_tensor table = RAMP(ctx, TC_F32, 3), place = tc_full(ctx, 0, TC_I64, 1), last[2];
    tc_tensor sum = tc_full(ctx, 0, TC_F32, 1);
    CHECK_EQ_INT(tc_while(TC_TENSORS_N(NULL, 0), 0, walk_test, walk_body, &table, last),
                 TC_ERR_ARGUMENT);
    REQUIRE(tc_while(TC_TENSORS(place, sum), 0, walk_test, walk_body, &table, last) == TC_OK);
    CHECK_EQ_INT(tc_grad(tc_sum(last[1], TC_ALL, false), &table, 1, &grad), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(grad), "tc_while (made at ");
    tc_ctx_free(ctx);
}

/* ---- gradients ---- */

TEST(gradients_go_back_through_all_steps)
{
    compare_gradients("interp", false);
}
TEST(gradients_in_native_code)
{
    compare_gradients("cpu", false);
}
/* In f64, against differences. */
TEST(gradients_by_differences)
{
    for (int i = 0; i < 3; i++) {
        steps s = {make_ctx("interp"), false, {TC_NONE, TC_NONE}};
        tc_tensor wanted[PARTS], loss;
        int n = gradient_cases[i].build(&s, wanted, &loss);
        CHECK_MSG(!tc_gradcheck(loss, TC_TENSORS_N(wanted, n), NULL, NULL), "%s: %s",
                  gradient_cases[i].name, tc_error(loss));
        tc_ctx_free(s.ctx);
    }
}

TEST(gradients_of_gradients)
{
    compare_gradients("interp", true);
}

/* ---- what does not grow ---- */

static void explain(const tc_program *f, char *text, size_t room)
{
    FILE *file = tmpfile();
    REQUIRE(file);
    CHECK_EQ_INT(tc_explain_as(f, file, &(tc_explain_options){.all = true}), TC_OK);
    rewind(file);
    text[fread(text, 1, room - 1, file)] = 0;
    fclose(file);
}

TEST(only_work_grows_with_the_steps)
{
    tc_program_info info[2];
    char text[4096];
    for (int i = 0; i < 2; i++) {
        steps s = {make_ctx("interp"), false, {TC_NONE, TC_NONE}};
        int64_t n = i ? 1000000 : 10;
        tc_tensor zero = tc_full(s.ctx, 0, TC_F32), last[2], y;
        tc_tensor x = tc_input(s.ctx, "x", TC_F32, n);
        repeat(&s, TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, filter_body, last, &y, 1);
        tc_program *f = NULL;
        REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(last[0]), NULL, &f) == TC_OK);
        CHECK_EQ_INT(tc_program_get_info(f, &info[i]), TC_OK);
        explain(f, text, sizeof(text));
        CHECK_HAS(text, i ? ", 1000000 times, one after the other:" : ", 10 times, one after");
        tc_program_free(f);
        tc_ctx_free(s.ctx);
    }
    CHECK_EQ_INT(info[0].n_kernels, info[1].n_kernels);
    CHECK_EQ_INT(info[0].arena_bytes, info[1].arena_bytes);
    CHECK(info[1].flops > 90000 * info[0].flops);
}

/* Carries h and c; x are what the step gives the gates, held the weights of h. */
static tc_status lstm_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    const steps *s = user;
    tc_tensor given = tc_add(x[0], tc_matmul(c[0], s->held[0])), gate[4];
    int64_t width = tc_size(c[0], 1);
    for (int i = 0; i < 4; i++) {
        tc_tensor part = tc_range(given, 1, i * width, (i + 1) * width);
        gate[i] = i == 2 ? tc_tanh(part) : tc_sigmoid(part);
    }
    next[1] = tc_add(tc_mul(gate[1], c[1]), tc_mul(gate[0], gate[2]));
    next[0] = y[0] = tc_mul(gate[3], tc_tanh(next[1]));
    return TC_OK;
}

/* Forward and back: as many compiles and kernels for 10,000 steps as for 10, and workspace that
 * grows by what each step must keep: its two carries and the gradient of its x. */
TEST(an_lstm_of_many_steps_is_one_compile)
{
    enum { WIDTH = 8, MANY = 10000 };
    static float x[MANY * 4 * WIDTH], grads[MANY * 4 * WIDTH];
    tc_program_info info[2];
    for (int i = 0; i < 2; i++) {
        steps s = {make_ctx("cpu"), false, {TC_NONE, TC_NONE}};
        int64_t n = i ? MANY : 10, count = n * 4 * WIDTH;
        tc_stats before, after;
        s.held[0] = RAMP(s.ctx, TC_F32, WIDTH, 4 * WIDTH);
        tc_tensor zero = tc_full(s.ctx, 0, TC_F32, 1, WIDTH), last[2], y, grad;
        tc_tensor given = tc_input(s.ctx, "x", TC_F32, n, 1, 4 * WIDTH);
        tc_program *f = NULL;
        repeat(&s, TC_TENSORS(zero, zero), TC_TENSORS(given), 0, false, lstm_body, last, &y, 1);
        CHECK_EQ_INT(tc_grad(tc_sum(last[0], TC_ALL, false), &given, 1, &grad), TC_OK);
        tc_stats(s.ctx, &before);
        REQUIRE(tc_compile_fn(TC_TENSORS(given), TC_TENSORS(grad), NULL, &f) == TC_OK);
        tc_stats(s.ctx, &after);
        CHECK_EQ_INT(after.compiles - before.compiles, 1);
        CHECK_EQ_INT(tc_program_get_info(f, &info[i]), TC_OK);
        for (int64_t k = 0; k < count; k++) {
            x[k] = (float)(k * 7 % 13) / 13 - 0.5f;
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, count)), TC_BUFS(TC_BUF(grads, count))), TC_OK);
        CHECK(fabsf(grads[count - 1]) > 0); /* of the last step; that of the first is forgotten */
        CHECK(i == 0 || fabsf(grads[0]) < 1e-30f);
        tc_program_free(f);
        tc_ctx_free(s.ctx);
    }
    int64_t grown = info[1].arena_bytes - info[0].arena_bytes;
    CHECK_EQ_INT(info[0].n_kernels, info[1].n_kernels);
    CHECK_MSG(grown <= (MANY - 10) * 6 * WIDTH * 4 + 4096, "%lld bytes more", (long long)grown);
}

/* ---- what a body may not do ---- */

typedef struct mistake {
    int kind;
    tc_tensor leaks;
} mistake;

static tc_status wrong_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                            tc_tensor *y)
{
    mistake *m = user;
    next[0] = tc_add(c[0], x[0]);
    y[0] = next[0];
    m->leaks = y[0];
    switch (m->kind) {
    case 1: next[0] = tc_cast(next[0], TC_F64); break;
    case 2: next[0] = tc_expand(tc_reshape(next[0], 1), 2); break;
    case 3: y[0] = (tc_tensor){0}; break;
    case 4: y[0] = tc_matmul(c[0], x[0]); break;
    case 5: return TC_ERR_IO;
    default: break;
    }
    return TC_OK;
}

TEST(mistakes_have_texts)
{
    static const struct {
        tc_status status;
        const char *text;
    } expected[] = {{TC_ERR_DTYPE, "carry 0 is f32 before a step and f64 after it"},
                    {TC_ERR_SHAPE, "carry 0 has shape [] before a step and [2] after it"},
                    {TC_ERR_HANDLE, "output 0: the handle is null"},
                    {TC_ERR_SHAPE, "tc_matmul"},
                    {TC_ERR_IO, "the body gave up: file cannot be read or written"}};
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor zero = tc_full(ctx, 0, TC_F32), x = RAMP(ctx, TC_F32, 4), last, y;
    for (int kind = 1; kind <= 5; kind++) {
        mistake m = {kind, TC_NONE};
        tc_status status = tc_scan(TC_TENSORS(zero), TC_TENSORS(x), 0, false, wrong_body, &m, &last,
                                   &y, 1);
        CHECK_EQ_INT(status, expected[kind - 1].status);
        CHECK_HAS(tc_error(y), expected[kind - 1].text);
        CHECK_HAS(tc_error(last), "test_loops.c:");
    }
    mistake m = {0, TC_NONE};
    CHECK_EQ_INT(tc_scan(TC_TENSORS(zero), TC_TENSORS(x), 5, false, wrong_body, &m, &last, &y, 1),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y), "x 0 has shape [4]: expected 5 steps");
    CHECK_EQ_INT(tc_scan(TC_TENSORS(zero), TC_TENSORS(zero), 0, false, wrong_body, &m, &last, &y,
                         1),
                 TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_scan(TC_TENSORS(zero), TC_TENSORS_N(NULL, 0), 0, false, wrong_body, &m, &last,
                         &y, 1),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scan(TC_TENSORS(zero), TC_TENSORS(x), 0, false, NULL, &m, &last, &y, 1),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scan(TC_TENSORS_N(NULL, 0), TC_TENSORS_N(NULL, 0), 3, false, wrong_body, &m,
                         NULL, &y, 1),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scan(TC_TENSORS(zero), TC_TENSORS(x), 0, false, wrong_body, &m, &last, &y, 1),
                 TC_OK);
    float out[4];
    CHECK_EQ_INT(tc_read(m.leaks, out, 1), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(m.leaks), "in the body of a repetition is used outside of it");
    CHECK_EQ_INT(tc_read(tc_add(y, m.leaks), out, 4), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_read(y, out, 4), TC_OK);
    tc_ctx_free(ctx);
}

/* An input that comes out as it is, too: the repetition reads what the run is given. */
TEST(a_carry_may_be_an_output)
{
    float a[2] = {1, -1}, b[4] = {2, 5, -6, 9}, same[4] = {0}, y[4] = {0};
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = true};
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor m = tc_input(ctx, "a", TC_F32, 2, 1, 1), x = tc_input(ctx, "b", TC_F32, 2, 1, 2);
    tc_tensor solved = tc_solve_triangular(tc_add(m, 3), x, false, true, false);
    tc_status status = tc_compile_fn(TC_TENSORS(m, x), TC_TENSORS(x, solved), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    REQUIRE(f != NULL);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(a, 2), TC_BUF(b, 4)),
                        TC_BUFS(TC_BUF(same, 4), TC_BUF(y, 4))),
                 TC_OK);
    CHECK(!memcmp(same, b, sizeof(b)));
    CHECK(y[0] == 0.5f && y[1] == 1.25f && y[2] == -3 && y[3] == 4.5f);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static tc_status add_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    (void)user;
    next[0] = tc_add(c[0], x[0]);
    y[0] = c[0];
    return TC_OK;
}

/* Of what a repetition makes all elements are cut off. */
TEST(results_of_which_nothing_is_read)
{
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor last, y, zero = tc_full(ctx, 0, TC_F32, 2), rows = tc_full(ctx, 1, TC_F32, 3, 2);
    float got[2] = {0, 0};
    tc_scan(TC_TENSORS(zero), TC_TENSORS(rows), 0, false, add_body, NULL, &last, &y, 1);
    CHECK_EQ_INT(tc_read(tc_pad(last, 0, -2, 2, 7), got, 2), TC_OK);
    CHECK(got[0] == 7 && got[1] == 7);
    y = tc_add(tc_pad(tc_slice(y, 0, 0, 1, 1), 1, -2, 2, 5), last);
    CHECK_EQ_INT(tc_read(y, got, 2), TC_OK);
    CHECK(got[0] == 8 && got[1] == 8);
    tc_ctx_free(ctx);
}

/* What a repetition adds up of rows that other nodes take the place of in its plan, and what it
 * adds up of a copy of them. */
static void check_rows(tc_ctx *ctx, const char *name, tc_tensor x, tc_tensor rows, int n)
{
    static float in[3 * 4096];
    tc_program *f = NULL;
    double got[64] = {0}, want[64] = {0};
    tc_tensor copy = tc_materialize(tc_cast(rows, TC_F64)), last[2], y;
    for (int i = 0; i < 3 * 4096; i++) {
        in[i] = (float)(i * 7 % 13 - 6);
    }
    tc_scan(TC_TENSORS(tc_full(ctx, 0, (tc_dtype)tc_dtype_of(rows), n)), TC_TENSORS(rows), 0, false,
            add_body, NULL, &last[0], &y, 1);
    tc_scan(TC_TENSORS(tc_full(ctx, 0, TC_F64, n)), TC_TENSORS(copy), 0, false, add_body, NULL,
            &last[1], &y, 1);
    last[0] = tc_cast(last[0], TC_F64);
    tc_status status = tc_compile_fn(TC_TENSORS(x), TC_TENSORS(last[0], last[1]), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", name, tc_error(last[0]));
    REQUIRE(f != NULL);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 3 * 4096)), TC_BUFS(TC_BUF(got, n), TC_BUF(want, n))),
                 TC_OK);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(got[i] == want[i], "%s, %d: %g, not %g", name, i, got[i], want[i]);
    }
    tc_program_free(f);
}

TEST(rows_are_in_memory_whatever_makes_them)
{
    const char *const backends[] = {"interp", "cpu"};
    for (int b = 0; b < 2; b++) {
        tc_options o = {.backend = backends[b], .no_disk_cache = true, .verify = true};
        tc_ctx *ctx = NULL;
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4096), few = tc_slice(x, 1, 0, 40, 1);
        tc_tensor whole = tc_cast(tc_round(tc_div(x, 4)), TC_F64);
        check_rows(ctx, "order down", x, tc_argsort(few, 0, true), 40);
        check_rows(ctx, "order along", x, tc_argsort(few, 1, false), 40);
        check_rows(ctx, "products", x, tc_matmul(whole, tc_transpose(whole, 0, 1)), 3);
        check_rows(ctx, "long sums", x, tc_sum(whole, TC_AXES(1), true), 1);
        check_rows(ctx, "running sums", x, tc_cumsum(tc_cast(few, TC_I32), 1), 40);
        tc_ctx_free(ctx);
    }
}

TEST(no_step_changes_nothing)
{
    tc_ctx *ctx = make_ctx("interp");
    mistake m = {0, TC_NONE};
    tc_tensor one = tc_full(ctx, 1, TC_F32), none = RAMP(ctx, TC_F32, 4), last, y;
    none = tc_slice(none, 0, 2, 2, 1);
    CHECK_EQ_INT(tc_scan(TC_TENSORS(one), TC_TENSORS(none), 0, false, wrong_body, &m, &last, &y, 1),
                 TC_OK);
    float out = 0;
    CHECK_EQ_INT(tc_read(last, &out, 1), TC_OK);
    CHECK(out == 1);
    CHECK_EQ_INT(tc_size(y, 0), 0);
    tc_ctx_free(ctx);
}

/* An index outside of its axis in one step of many. */
static tc_status look_body(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    const tc_tensor *table = user;
    (void)y;
    next[0] = tc_add(c[0], tc_gather(*table, 0, tc_reshape(x[0], 1)));
    return TC_OK;
}

TEST(a_step_may_fault)
{
    tc_ctx *ctx = make_ctx("interp");
    int32_t places[5] = {0, 2, 1, 2, 0};
    float out = 0, zero[1] = {0};
    tc_tensor table = RAMP(ctx, TC_F32, 3), x = tc_input(ctx, "x", TC_I32, 5), last;
    tc_tensor init = tc_copy_in(ctx, zero, TC_F32, 1);
    REQUIRE(tc_scan(TC_TENSORS(init), TC_TENSORS(x), 0, false, look_body, &table, &last, NULL, 0) ==
            TC_OK);
    tc_program *f = NULL;
    REQUIRE(tc_compile(last, &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(places, 5)), TC_BUFS(TC_BUF(&out, 1))), TC_OK);
    places[3] = 7;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(places, 5)), TC_BUFS(TC_BUF(&out, 1))), TC_ERR_INDEX);
    CHECK_HAS(tc_error(f), "tc_gather");
    places[3] = 1;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(places, 5)), TC_BUFS(TC_BUF(&out, 1))), TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- on disk ---- */

TEST(a_repetition_comes_back_from_disk)
{
    char dir[] = "/tmp/tc-test-loops-XXXXXX";
    REQUIRE(mkdtemp(dir));
    float in[33], out[2][33];
    for (int i = 0; i < 33; i++) {
        in[i] = (float)(i % 5);
    }
    for (int again = 0; again < 2; again++) {
        tc_options o = {.backend = "cpu", .cache_dir = dir, .memory_cache_bytes = -1, .verify = 1};
        steps s = {NULL, false, {TC_NONE, TC_NONE}};
        tc_program *f = NULL;
        tc_program_info info;
        REQUIRE(tc_ctx_make(&s.ctx, &o) == TC_OK);
        tc_tensor zero = tc_full(s.ctx, 0, TC_F32), last[2], y;
        tc_tensor x = tc_input(s.ctx, "x", TC_F32, 33);
        repeat(&s, TC_TENSORS(zero, zero), TC_TENSORS(x), 0, true, filter_body, last, &y, 1);
        REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), NULL, &f) == TC_OK);
        CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 33)), TC_BUFS(TC_BUF(out[again], 33))), TC_OK);
        if (strcmp(info.backend, "cpu")) {
            SKIP("no C compiler here");
        }
        CHECK_EQ_INT(info.from_disk, again);
        tc_program_free(f);
        tc_ctx_free(s.ctx);
    }
    CHECK(same_bits(TC_F32, out[0], out[1], 33));
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

TEST_MAIN
