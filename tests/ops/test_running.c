/* tests/ops/test_running.c - running extremes and products, and the places of extremes, of rows so
 * long that they are cut in parts (products of floats are not): against plain loops, interpreted
 * and with any number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tc.h"
#include "tc_test.h"

enum { N = 4 * 32768, ROWS = 2, NAN_AT = 70001 };

static tc_ctx *make_ctx(const char *backend, int threads)
{
    tc_options options = {.backend = backend, .threads = threads, .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    return ctx;
}

static bool is_in_parts(const tc_program *f)
{
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    fclose(file);
    bool found = strstr(text, "4 parts of 32768") != NULL;
    free(text);
    return found;
}

/* The running product, least and largest of x, and since when the largest is. */
static void run(const char *backend, int threads, const float *x, float *product, float *least,
                float *most, int64_t *since)
{
    tc_ctx *ctx = make_ctx(backend, threads);
    tc_tensor tx = tc_input(ctx, "x", TC_F32, ROWS, N), values, places, low, low_places;
    tc_cummax(tx, 1, &values, &places);
    tc_cummin(tx, 1, &low, &low_places);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx), TC_TENSORS(tc_cumprod(tx, 1), low, values, places),
                               NULL, &f),
                 TC_OK);
    CHECK(is_in_parts(f));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, ROWS * N)),
                        TC_BUFS(TC_BUF(product, ROWS * N), TC_BUF(least, ROWS * N),
                                TC_BUF(most, ROWS * N), TC_BUF(since, ROWS * N))),
                 TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static bool same(const float *a, const float *b)
{
    int wrong = 0;
    for (int i = 0; i < ROWS * N; i++) {
        wrong += memcmp(&a[i], &b[i], sizeof(*a)) != 0 && (a[i] == a[i] || b[i] == b[i]);
    }
    return wrong == 0;
}

/* Powers of 2 with signs, whose running products are exact and in range, though those of parts or
 * of every 64th are not; a NaN in the second row. */
static void fill(float *x)
{
    int exponent = 0;
    for (int i = 0; i < ROWS * N; i++) {
        exponent = i % N == 0 ? 0 : exponent;
        int step = exponent > 90 ? -1 : exponent < -90 ? 1 : (int)(tct_random() % 7) - 3;
        exponent += step;
        x[i] = ldexpf(tct_random() % 2 ? 1 : -1, step);
    }
    x[N + NAN_AT] = NAN;
}

TEST(extremes_of_long_rows_are_in_parts_and_products_in_range)
{
    static float x[ROWS * N], want[3][ROWS * N], got[3][ROWS * N];
    static int64_t since[ROWS * N], found[ROWS * N];
    fill(x);
    for (int i = 0; i < ROWS * N; i++) {
        bool first = i % N == 0;
        float product = first ? 1 : want[0][i - 1], low = first ? x[i] : want[1][i - 1];
        float high = first ? x[i] : want[2][i - 1];
        want[0][i] = product * x[i];
        want[1][i] = x[i] != x[i] || low != low ? NAN : fminf(low, x[i]);
        want[2][i] = x[i] != x[i] || high != high ? NAN : fmaxf(high, x[i]);
        since[i] = first || x[i] != x[i] || x[i] == want[2][i] ? i % N : since[i - 1];
    }
    static const struct {
        const char *backend;
        int threads;
    } ways[] = {{"cpu", 1}, {"cpu", 3}, {"interp", 1}};
    for (int i = 0; i < 3; i++) {
        run(ways[i].backend, ways[i].threads, x, got[0], got[1], got[2], found);
        for (int k = 0; k < 3; k++) {
            CHECK_MSG(same(got[k], want[k]), "%s, %d threads: result %d", ways[i].backend,
                      ways[i].threads, k);
        }
        CHECK_MSG(!memcmp(found, since, sizeof(found)), "%s: since", ways[i].backend);
    }
}

/* Integers wrap, columns are cut as rows are, and so is log(sum(exp(x))). */
TEST(products_of_integers_and_logs_of_sums_are_in_parts)
{
    static int32_t x[N];
    static int64_t product[N];
    static double logs[N];
    tc_ctx *ctx = make_ctx("cpu", 2);
    for (int i = 0; i < N; i++) {
        x[i] = (int32_t)(tct_random() % 1000) * 2 + 1;
    }
    tc_tensor tx = tc_input(ctx, "x", TC_I32, N), small = tc_mul(tc_cast(tx, TC_F64), 1e-3);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx),
                               TC_TENSORS(tc_cumprod(tc_flip(tx, 0), 0), tc_logcumsumexp(small, 0)),
                               NULL, &f),
                 TC_OK);
    CHECK(is_in_parts(f));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, N)), TC_BUFS(TC_BUF(product, N), TC_BUF(logs, N))),
                 TC_OK);
    uint64_t all = 1;
    double sum = 0, worst = 0;
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        all *= (uint64_t)x[N - 1 - i];
        wrong += (uint64_t)product[i] != all;
        sum += exp(x[i] * 1e-3);
        worst = fmax(worst, fabs(logs[i] - log(sum)));
    }
    CHECK_EQ_INT(wrong, 0);
    CHECK_MSG(worst < 1e-9, "logs are off by %g", worst);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Ties in many parts, where the first place counts, zeros of both signs, and NaN, which wins. */
TEST(places_of_extremes_are_found_in_parts)
{
    static float x[ROWS * N];
    static const char *const backends[] = {"cpu", "interp"};
    for (int i = 0; i < ROWS * N; i++) {
        x[i] = i < N ? (float)(i * 7919LL % 10007) : i % 2 ? -0.0f : 0.0f;
    }
    for (int nan = 0; nan < 2; nan++) {
        int64_t want[2][ROWS] = {{0, 0}, {0, 0}}, got[2][ROWS];
        for (int i = 1; i < N; i++) {
            want[0][0] = x[i] > x[want[0][0]] ? i : want[0][0];
        }
        if (nan) {
            x[N + NAN_AT] = x[N + NAN_AT + 5] = NAN;
            want[0][1] = want[1][1] = NAN_AT;
        }
        for (int b = 0; b < 2; b++) {
            tc_ctx *ctx = make_ctx(backends[b], 2);
            tc_tensor tx = tc_input(ctx, "x", TC_F32, ROWS, N);
            tc_program *f = NULL;
            tc_program_info info;
            CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx),
                                       TC_TENSORS(tc_argmax(tx, 1, false), tc_argmin(tx, 1, false)),
                                       NULL, &f),
                         TC_OK);
            tc_program_get_info(f, &info);
            CHECK_MSG(info.n_kernels > 1, "%d kernels", info.n_kernels); /* chunks, then all */
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, ROWS * N)),
                                TC_BUFS(TC_BUF(got[0], ROWS), TC_BUF(got[1], ROWS))),
                         TC_OK);
            CHECK_MSG(!memcmp(got, want, sizeof(got)), "%s: %lld %lld, %lld %lld", backends[b],
                      (long long)got[0][0], (long long)got[0][1], (long long)got[1][0],
                      (long long)got[1][1]);
            tc_program_free(f);
            tc_ctx_free(ctx);
        }
    }
}

/* Rows whose running sums need what a reduction of the row gives are one kernel. */
TEST(running_sums_of_weights_are_one_kernel)
{
    enum { LONG = 1000, SHORT = 7 };
    static float x[SHORT * LONG], got[SHORT * LONG];
    static const char *const backends[] = {"cpu", "interp"};
    for (int i = 0; i < SHORT * LONG; i++) {
        x[i] = (float)(tct_random() % 1000) * 0.01f;
    }
    for (int b = 0; b < 2; b++) {
        tc_ctx *ctx = make_ctx(backends[b], 1);
        tc_tensor tx = tc_input(ctx, "x", TC_F32, SHORT, LONG);
        tc_program *f = NULL;
        tc_program_info info;
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx), TC_TENSORS(tc_cumsum(tc_softmax(tx, 1), 1)),
                                   NULL, &f),
                     TC_OK);
        tc_program_get_info(f, &info);
        CHECK_EQ_INT(info.n_kernels, 1);
        CHECK_EQ_INT(
            tc_run(f, TC_BUFS(TC_BUF(x, SHORT * LONG)), TC_BUFS(TC_BUF(got, SHORT * LONG))), TC_OK);
        double worst = 0;
        for (int row = 0; row < SHORT; row++) {
            double all = 0, sum = 0;
            for (int i = 0; i < LONG; i++) {
                all += exp(x[row * LONG + i]);
            }
            for (int i = 0; i < LONG; i++) {
                sum += exp(x[row * LONG + i]);
                worst = fmax(worst, fabs(got[row * LONG + i] - sum / all));
            }
        }
        CHECK_MSG(worst < 2e-6, "%s: off by %g", backends[b], worst);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
