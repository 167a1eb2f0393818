/* A program for another processor, run by an emulator: the shipped header in one file, and some
 * programs against loops of C. With the argument "native" nothing may be interpreted. */
#define TC_DYNAMIC_SHAPES
#define TC_IMPLEMENTATION
#include "tc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 4, INNER = 5, COLUMNS = 3 };

static int failures;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            printf("host.c:%d: %s\n", __LINE__, #x);                                               \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static tc_program *compiled(tc_tensor y, int native)
{
    tc_program *f = NULL;
    tc_program_info info;
    tc_status status = tc_compile(y, &f);
    if (status != TC_OK) {
        printf("%s\n", tc_error(y));
    }
    memset(&info, 0, sizeof(info));
    CHECK(status == TC_OK && tc_program_get_info(f, &info) == TC_OK);
    CHECK(!native || (info.backend && !strcmp(info.backend, "cpu")));
    return f;
}

/* softmax(x @ w), of a symbolic number of rows, in f64 here. */
static void layer(tc_ctx *ctx, int native)
{
    float x[ROWS * INNER], w[INNER * COLUMNS], got[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * INNER; i++) {
        x[i] = (float)(i % 7) * 0.25f - 1;
    }
    for (int i = 0; i < INNER * COLUMNS; i++) {
        w[i] = (float)(i % 4) * 0.5f - 0.25f;
    }
    tc_tensor rows = tc_input(ctx, "x", TC_F32, TC_DIM("rows", 0, 64), INNER);
    tc_tensor weights = tc_input(ctx, "w", TC_F32, INNER, COLUMNS);
    tc_program *f = compiled(tc_softmax(tc_matmul(rows, weights), -1), native);
    CHECK(f && !tc_run(f, TC_BUFS(TC_BUF(x, ROWS * INNER), TC_BUF(w, INNER * COLUMNS)),
                       TC_BUFS(TC_BUF(got, ROWS * COLUMNS))));
    for (int i = 0; i < ROWS; i++) {
        double e[COLUMNS], sum = 0;
        for (int j = 0; j < COLUMNS; j++) {
            e[j] = 0;
            for (int k = 0; k < INNER; k++) {
                e[j] += (double)x[i * INNER + k] * (double)w[k * COLUMNS + j];
            }
            e[j] = exp(e[j]);
            sum += e[j];
        }
        for (int j = 0; j < COLUMNS; j++) {
            CHECK(fabs((double)got[i * COLUMNS + j] - e[j] / sum) < 1e-6);
        }
    }
    tc_program_free(f);
}

/* Integers of 64 bits, an order, running sums, halves and f64: exact. */
static void numbers(tc_ctx *ctx, int native)
{
    int64_t x[6] = {3, -5, INT64_C(1) << 40, 7, -(INT64_C(1) << 50), 0}, sums[6], sum = 0;
    int64_t sorted[6] = {-(INT64_C(1) << 50), -5, 0, 3, 7, INT64_C(1) << 40}, got[6];
    double halves[6];
    tc_tensor in = tc_input(ctx, "x", TC_I64, 6), values;
    tc_sort(in, 0, false, &values, NULL);
    tc_program *f = compiled(tc_cumsum(in, 0), native), *g = compiled(values, native);
    tc_tensor half = tc_cast(tc_cast(tc_div(in, 3), TC_F16), TC_F64);
    tc_program *h = compiled(half, native);
    CHECK(f && g && h && !tc_run(f, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(sums, 6))));
    CHECK(!tc_run(g, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(got, 6))));
    CHECK(!tc_run(h, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(halves, 6))));
    for (int i = 0; i < 6; i++) {
        sum += x[i];
        CHECK(sums[i] == sum && got[i] == sorted[i]);
    }
    CHECK(halves[0] == 1 && halves[1] == -1.6669921875 && isinf(halves[2]) && halves[5] == 0);
    tc_program_free(f);
    tc_program_free(g);
    tc_program_free(h);
}

/* The gradient of a mean of squares of a convolution: differences here. */
static double loss_at(const double *x, const double *w)
{
    double sum = 0;
    for (int i = 0; i < 6; i++) {
        double y = x[i] * w[0] + x[i + 1] * w[1] + x[i + 2] * w[2];
        sum += y * y;
    }
    return sum / 6;
}

static void gradient(tc_ctx *ctx, int native)
{
    double x[8] = {1, -2, 0.5, 3, 0, -1, 2, 1}, w[3] = {0.5, -1, 0.25}, got[3];
    tc_tensor in = tc_input(ctx, "x", TC_F64, 1, 1, 8), taps = tc_input(ctx, "w", TC_F64, 1, 1, 3);
    tc_conv plain;
    memset(&plain, 0, sizeof(plain));
    tc_tensor y = tc_conv1d(in, taps, TC_NONE, &plain), slope;
    CHECK(!tc_grad(tc_mean(tc_mul(y, y), TC_ALL, false), &taps, 1, &slope));
    tc_program *f = compiled(slope, native);
    CHECK(f && !tc_run(f, TC_BUFS(TC_BUF(x, 8), TC_BUF(w, 3)), TC_BUFS(TC_BUF(got, 3))));
    for (int i = 0; i < 3; i++) {
        double less[3] = {w[0], w[1], w[2]}, more[3] = {w[0], w[1], w[2]};
        less[i] -= 1e-4;
        more[i] += 1e-4;
        CHECK(fabs(got[i] - (loss_at(x, more) - loss_at(x, less)) / 2e-4) < 1e-6);
    }
    tc_program_free(f);
}

int main(int argc, char **argv)
{
    int native = argc > 1 && !strcmp(argv[1], "native");
    tc_options o;
    tc_ctx *ctx = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = native ? "cpu" : "interp";
    o.no_disk_cache = true;
    o.threads = 2;
    o.verify = 1;
    CHECK(tc_ctx_make(&ctx, &o) == TC_OK);
    layer(ctx, native);
    numbers(ctx, native);
    gradient(ctx, native);
    tc_ctx_free(ctx);
    tc_shutdown();
    return failures != 0;
}
