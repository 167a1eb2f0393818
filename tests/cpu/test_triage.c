/* tests/cpu/test_triage.c - the ladder of tc_triage, and values that are looked at within a run.
 * Needs a compiler. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "cache.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 40 };

static float in[LENGTH], out[LENGTH];

static tc_ctx *context(const char *cc)
{
    tc_ctx *ctx;
    tc_options o = {.backend = "cpu",
                    .threads = 1,
                    .no_disk_cache = true,
                    .cc = cc,
                    .check = cc ? TC_CHECK_NO_FILE : 0};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < LENGTH; i++) {
        in[i] = 0.1f * (float)i;
    }
    return ctx;
}

static const char *ladder(tc_program *f)
{
    static char text[4000];
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_triage(f, TC_BUFS(TC_BUF(in, LENGTH)), file), TC_OK);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    return text;
}

TEST(a_right_program_is_the_same_on_every_rung)
{
    begin();
    tc_ctx *ctx = context(NULL);
    tc_program *f;
    tc_tensor w = tc_param(ctx, in, TC_F32, LENGTH);
    tc_tensor y = tc_cumsum(tc_mul(tc_sin(tc_input(ctx, "x", TC_F32, LENGTH)), w), 0);
    REQUIRE(tc_compile(y, &f) == TC_OK);
    const char *text = ladder(f);
    CHECK_HAS(text, "interpreter, op by op    ok\n");
    CHECK_HAS(text, "cpu, scalar              the same bits\n");
    CHECK_HAS(text, "in all of them the result is the same\n");
    CHECK_EQ_INT(tc_triage(f, TC_BUFS(TC_BUF(in, 3)), stdout), TC_ERR_BUFFER);
    CHECK_STR(tc_error(f), "tc_triage: input 0: given 3 elements, expected 40");
    CHECK_EQ_INT(tc_triage(f, TC_BUFS(TC_BUF((float *)NULL, LENGTH)), stdout), TC_ERR_BUFFER);
    CHECK_STR(tc_error(f), "tc_triage: input 0: given NULL, expected 40 elements");
    CHECK_EQ_INT(tc_triage(f, ((tc_bufs){0}), stdout), TC_ERR_ARGUMENT);
    CHECK_STR(tc_error(f), "tc_triage: given 0 inputs and a file, expected 1 and an open file");
    FILE *closed = fopen("/dev/null", "r");
    REQUIRE(closed != NULL);
    CHECK_EQ_INT(tc_triage(f, TC_BUFS(TC_BUF(in, LENGTH)), closed), TC_ERR_IO);
    CHECK_STR(tc_error(f), "tc_triage: the file cannot be written");
    fclose(closed);
    CHECK_EQ_INT(tc_triage(NULL, TC_BUFS(TC_BUF(in, 3)), stdout), TC_ERR_ARGUMENT);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(a_compiler_that_breaks_vectors_is_found_at_that_rung)
{
    begin();
    char path[600];
    snprintf(path, sizeof(path), "%s", in_dir("badcc"));
    FILE *script = fopen(path, "w");
    REQUIRE(script != NULL);
    fprintf(script,
            "#!/bin/sh\nfor a in \"$@\"; do case \"$a\" in *.c)\n"
            "sed -i '/^void tc_k_/,$ s/tc_sqrt_f32x\\([0-9]*\\)/tc_abs_f32x\\1/' \"$a\";; esac; "
            "done\nexec %s \"$@\"\n",
            getenv("TC_TEST_CC") ? getenv("TC_TEST_CC") : "cc");
    fclose(script);
    chmod(path, 0700);
    tc_shutdown();
    tc_ctx *ctx = context(path);
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, LENGTH);
    REQUIRE(tc_compile(tc_sqrt(tc_abs(x)), &f) == TC_OK);
    const char *text = ladder(f);
    CHECK_HAS(text, "cpu, scalar              the same bits\n");
    CHECK_HAS(text, "the result changes with vectors in generated code\n");
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
    end();
}

/* ---- symbolic sizes ---- */

/* Kernels are checked at the sizes of each run, natively and by the interpreter. */
TEST(kernels_of_symbolic_sizes_are_checked)
{
    begin();
    char path[600];
    float x[2 * LENGTH], y[2 * LENGTH];
    snprintf(path, sizeof(path), "%s", in_dir("badcc"));
    FILE *script = fopen(path, "w");
    REQUIRE(script != NULL);
    fprintf(script,
            "#!/bin/sh\nfor a in \"$@\"; do case \"$a\" in *.c)\n"
            "sed -i '/^void tc_k_/,$ s/tc_mul_f32/tc_add_f32/' \"$a\";; esac; "
            "done\nexec %s \"$@\"\n",
            getenv("TC_TEST_CC") ? getenv("TC_TEST_CC") : "cc");
    fclose(script);
    chmod(path, 0700);
    for (int row = 0; row < 4; row++) { /* a bad compiler; a right one; NaN, twice */
        tc_ctx *ctx;
        tc_program *f;
        tc_options o = {.backend = row == 3 ? "interp" : "cpu",
                        .threads = 1,
                        .no_disk_cache = true,
                        .verify = true,
                        .name = "any",
                        .fallback = TC_FALLBACK_REFUSE,
                        .cc = row == 0 ? path : NULL,
                        .check = row < 2 ? TC_CHECK_BITS : TC_CHECK_NAN | TC_CHECK_NO_FILE};
        tc_shutdown();
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor in_n = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 100));
        int line = __LINE__ + 1;
        REQUIRE(tc_compile(tc_add(tc_mul(tc_sqrt(in_n), 3.5), 1), &f) == TC_OK);
        for (int n = LENGTH; n <= 2 * LENGTH; n += LENGTH) {
            char want[100];
            for (int i = 0; i < n; i++) {
                x[i] = 4 + (float)i;
            }
            x[n - 1] = row < 2 ? 9 : -9;
            tc_status status = tc_run(f, TC_BUFS(TC_BUF(x, n)), TC_BUFS(TC_BUF(y, n)));
            CHECK_EQ_INT(status, row == 1 ? TC_OK : TC_ERR_CHECK);
            if (row == 1) {
                CHECK_CLOSE(y[n - 1], 3.5 * 3 + 1, 0);
                continue;
            }
            CHECK_HAS(tc_error(f), "check: any, kernel 1 tc_k_");
            snprintf(want, sizeof(want),
                     "element %d of the result of tc_add at test_triage.c:%d (f32 [%d]) ",
                     row == 0 ? 0 : n - 1, line, n);
            CHECK_HAS(tc_error(f), want);
            CHECK_HAS(tc_error(f), row ? "nan, made of finite numbers"
                                       : "6.5, the interpreter's is 8"); /* of x[0] = 4 */
            if (row == 0) {
                CHECK_HAS(tc_error(f), "; no program is written of one with symbolic sizes");
            }
        }
        if (row == 1) {
            CHECK_EQ_INT(tc_triage(f, TC_BUFS(TC_BUF(x, LENGTH)), stdout), TC_ERR_UNSUPPORTED);
            CHECK_HAS(tc_error(f), "tc_triage: the program has symbolic sizes: expected one");
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    tc_shutdown();
    end();
}

TEST(a_condition_that_does_not_hold_ends_the_run)
{
    begin();
    tc_ctx *ctx = context(NULL);
    tc_program *f, *g;
    char want[100];
    tc_tensor x = tc_input(ctx, "x", TC_F32, LENGTH), grad;
    int line = __LINE__ + 1;
    tc_tensor y = tc_sum(tc_assert_finite(tc_log(x)), TC_ALL, false);
    REQUIRE(tc_grad(y, &x, 1, &grad) == TC_OK);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, grad), NULL, &f) == TC_OK);
    float sum;
    tc_bufs to = TC_BUFS(TC_BUF(&sum, 1), TC_BUF(out, LENGTH));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, LENGTH)), to), TC_ERR_CHECK); /* the log of 0 */
    snprintf(want, sizeof(want), "test_triage.c:%d: element 0 is infinite", line);
    CHECK_HAS(tc_error(f), want);
    in[0] = 1;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, LENGTH)), to), TC_OK);
    CHECK_CLOSE(out[1], 10, 1e-5); /* gradients pass */
    tc_tensor z = tc_assert_all(tc_mul(x, 2), tc_lt(x, 3), "x below 3");
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(z), NULL, &g) == TC_OK);
    CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(in, LENGTH)), TC_BUFS(TC_BUF(out, LENGTH))),
                 TC_ERR_CHECK);
    CHECK_HAS(tc_error(g), "x below 3 (test_triage.c:");
    CHECK_HAS(tc_error(g), "element 30 does not hold");
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    end();
}

TEST(a_value_is_printed_when_a_run_reaches_it)
{
    begin();
    tc_ctx *ctx = context(NULL);
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, LENGTH);
    tc_tensor y = tc_add(tc_print_value(tc_mul(x, 2), "twice"), 1);
    REQUIRE(tc_compile(y, &f) == TC_OK);
    fflush(stderr);
    int fd = open(in_dir("stderr"), O_WRONLY | O_CREAT, 0600), saved = dup(2);
    dup2(fd, 2);
    tc_status status = tc_run(f, TC_BUFS(TC_BUF(in, LENGTH)), TC_BUFS(TC_BUF(out, LENGTH)));
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(fd);
    CHECK_EQ_INT(status, TC_OK);
    CHECK_CLOSE(out[2], 1.4, 1e-6);
    bytes b = read_file(in_dir("stderr"));
    b.data[b.n] = 0;
    CHECK_HAS((char *)b.data, "tc value twice (test_triage.c:");
    CHECK_HAS((char *)b.data, "f32 [40], 0 to 7.8, mean 3.9: 0 0.2 0.4");
    free(b.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* ---- the same within loops ---- */

/* The sum of what came so far; the body prints it and wants its logarithm finite. */
static tc_status watched(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                         tc_tensor *y)
{
    *(int *)user = __LINE__ + 1;
    y[0] = tc_assert_finite(tc_log(tc_print_value(tc_sub(carry[0], x[0]), "left")));
    next[0] = tc_sub(carry[0], x[0]);
    return TC_OK;
}

static tc_status halves(void *user, const tc_tensor *carry, tc_tensor *next)
{
    (void)user;
    next[0] = tc_mul(carry[0], 0.5);
    next[0] = tc_assert_all(next[0], tc_gt(next[0], 0.2), "above a fifth");
    return TC_OK;
}

static tc_status while_large(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_gt(tc_sum(carry[0], TC_ALL, false), 0.3);
    return TC_OK;
}

/* What f writes to stderr in a run. */
static const char *said_by(tc_program *f, tc_bufs from, tc_bufs to, tc_status *status)
{
    static char text[8000];
    fflush(stderr);
    int fd = open(in_dir("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600), saved = dup(2);
    dup2(fd, 2);
    *status = tc_run(f, from, to);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(fd);
    bytes b = read_file(in_dir("stderr"));
    snprintf(text, sizeof(text), "%.*s", (int)b.n, (char *)b.data);
    free(b.data);
    return text;
}

TEST(values_of_each_round_are_printed_until_one_is_not_finite)
{
    begin();
    for (int native = 0; native < 2; native++) {
        tc_ctx *ctx = context(NULL);
        tc_program *f;
        tc_status status;
        int line = 0, rounds = 0;
        char want[100];
        float one[6] = {1, 1, 1, 1, 1, 1}, logs[6];
        tc_tensor x = tc_input(ctx, "x", TC_F32, 6), y;
        tc_tensor first = tc_full(ctx, 4, TC_F32, 1);
        REQUIRE(!tc_scan(TC_TENSORS(first), TC_TENSORS(x), 0, false, watched, &line, NULL, &y, 1));
        tc_options o = {.backend = native ? "cpu" : "interp"};
        CHECK_MSG(!tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f), "%s", tc_error(y));
        const char *text = said_by(f, TC_BUFS(TC_BUF(one, 6)), TC_BUFS(TC_BUF(logs, 6)), &status);
        CHECK_EQ_INT(status, TC_ERR_CHECK); /* in the round that leaves 0 */
        snprintf(want, sizeof(want), "test_triage.c:%d: element 0 is infinite", line);
        CHECK_HAS(tc_error(f), want);
        for (const char *at = text; (at = strstr(at, "tc value left")); at++) {
            rounds++;
        }
        CHECK(rounds >= 4);
        CHECK_HAS(text, "f32 [1], 3");
        one[3] = 0.5f;
        one[4] = one[5] = 0.1f;
        said_by(f, TC_BUFS(TC_BUF(one, 6)), TC_BUFS(TC_BUF(logs, 6)), &status);
        CHECK_EQ_INT(status, TC_OK);
        CHECK_CLOSE(logs[5], logf(0.3f), 1e-4);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    end();
}

TEST(a_condition_of_a_while_loop_ends_the_run)
{
    begin();
    tc_ctx *ctx = context(NULL);
    tc_program *f;
    float from, to;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1), y;
    REQUIRE(!tc_while(TC_TENSORS(x), 50, while_large, halves, NULL, &y));
    CHECK_MSG(!tc_compile(y, &f), "%s", tc_error(y));
    from = 1; /* 0.5, 0.25 */
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&from, 1)), TC_BUFS(TC_BUF(&to, 1))), TC_OK);
    CHECK(to == 0.25f);
    from = 0.31f; /* 0.155 */
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&from, 1)), TC_BUFS(TC_BUF(&to, 1))), TC_ERR_CHECK);
    CHECK_HAS(tc_error(f), "above a fifth (test_triage.c:");
    from = NAN; /* no round */
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&from, 1)), TC_BUFS(TC_BUF(&to, 1))), TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST_MAIN
