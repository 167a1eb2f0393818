/* bench/accuracy.c - how much of long sums is lost: sum, mean, dot, matmul and the weight gradient
 * of a convolution, of positive and of signed numbers, against the same in f64.
 *
 * A figure is the root mean square, over all results, of |result - f64| / (sum of the terms'
 * magnitudes). bench/accuracy.py prints the same of NumPy, for the same numbers. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = 16, CHANNELS = 4, SIDE = 16, TAPS = 9 };

static bool json;

/* Number i of a series: in [0, 1), or in [-1, 1). */
static float number(uint32_t i, uint32_t series, bool is_signed)
{
    uint32_t h = i * 2654435761u + series * 40503u + 1;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    return is_signed ? (float)(h >> 8) / 8388608.0f - 1 : (float)(h >> 8) / 16777216.0f;
}

static float *numbers(int64_t n, uint32_t series, bool is_signed)
{
    float *x = malloc(sizeof(float) * (size_t)n);
    for (int64_t i = 0; x && i < n; i++) {
        x[i] = number((uint32_t)i, series, is_signed);
    }
    if (!x) {
        fprintf(stderr, "no memory for %lld numbers\n", (long long)n);
        exit(1);
    }
    return x;
}

/* The square of an error. */
static double square(double result, double exact, double magnitude)
{
    double e = (result - exact) / magnitude;
    return e * e;
}

static void result(tc_tensor y, float *to)
{
    if (tc_read(y, to, (size_t)tc_count(y))) {
        fprintf(stderr, "%s\n", tc_error(y));
        exit(1);
    }
}

static void row(const char *what, int64_t k, bool is_signed, double squares, int n)
{
    const char *kind = is_signed ? "signed" : "positive";
    printf(json ? "{\"what\": \"%s\", \"numbers\": \"%s\", \"k\": %lld, \"tc\": %.2e}\n"
                : "%-8s %-9s %9lld %10.2e\n",
           what, kind, (long long)k, sqrt(squares / n));
    fflush(stdout);
}

static void sums(tc_ctx *ctx, int64_t k, bool is_signed)
{
    double square_sum = 0, square_mean = 0, square_dot = 0;
    int n = k > 4000000 ? RESULTS / 4 : RESULTS;
    for (int r = 0; r < n; r++) {
        float *x = numbers(k, 2 * (uint32_t)r, is_signed);
        float *y = numbers(k, 2 * (uint32_t)r + 1, is_signed), sum, mean, dot;
        double exact = 0, size = 0, exact_dot = 0, size_dot = 0;
        for (int64_t i = 0; i < k; i++) {
            exact += x[i];
            size += fabs(x[i]);
            exact_dot += (double)x[i] * y[i];
            size_dot += fabs((double)x[i] * y[i]);
        }
        tc_scope_begin(ctx);
        tc_tensor a = tc_borrow(ctx, x, TC_F32, k), b = tc_borrow(ctx, y, TC_F32, k);
        result(tc_sum(a, TC_ALL, false), &sum);
        result(tc_mean(a, TC_ALL, false), &mean);
        result(tc_matmul(a, b), &dot);
        tc_scope_end(ctx);
        square_sum += square(sum, exact, size);
        square_mean += square(mean, exact / (double)k, size / (double)k);
        square_dot += square(dot, exact_dot, size_dot);
        free(x);
        free(y);
    }
    row("sum", k, is_signed, square_sum, n);
    row("mean", k, is_signed, square_mean, n);
    row("dot", k, is_signed, square_dot, n);
}

static void matmul(tc_ctx *ctx, int64_t k, bool is_signed)
{
    float *x = numbers(RESULTS * k, 0, is_signed), *y = numbers(k * RESULTS, 1, is_signed);
    float c[RESULTS * RESULTS];
    double squares = 0;
    tc_scope_begin(ctx);
    tc_tensor a = tc_borrow(ctx, x, TC_F32, RESULTS, k), b = tc_borrow(ctx, y, TC_F32, k, RESULTS);
    result(tc_matmul(a, b), c);
    tc_scope_end(ctx);
    for (int i = 0; i < RESULTS * RESULTS; i++) {
        double exact = 0, size = 0;
        for (int64_t j = 0; j < k; j++) {
            double product = (double)x[i / RESULTS * k + j] * y[j * RESULTS + i % RESULTS];
            exact += product;
            size += fabs(product);
        }
        squares += square(c[i], exact, size);
    }
    row("matmul", k, is_signed, squares, RESULTS * RESULTS);
    free(x);
    free(y);
}

/* One weight's gradient, of images [n, CHANNELS, SIDE, SIDE] padded by one: image channel i, output
 * channel o, tap t. */
static void weight_exact(const float *x, const float *d, int64_t n, int o, int i, int t,
                         double *exact, double *size)
{
    *exact = *size = 0;
    for (int64_t image = 0; image < n; image++) {
        for (int at = 0; at < SIDE * SIDE; at++) {
            int h = at / SIDE + t / 3 - 1, w = at % SIDE + t % 3 - 1;
            if (h >= 0 && h < SIDE && w >= 0 && w < SIDE) {
                double product = (double)x[((image * CHANNELS + i) * SIDE + h) * SIDE + w] *
                                 d[(image * CHANNELS + o) * SIDE * SIDE + at];
                *exact += product;
                *size += fabs(product);
            }
        }
    }
}

static void conv(tc_ctx *ctx, int64_t n, bool is_signed)
{
    int64_t count = n * CHANNELS * SIDE * SIDE;
    float *x = numbers(count, 0, is_signed), *d = numbers(count, 1, is_signed);
    float *w = numbers(CHANNELS * CHANNELS * TAPS, 2, is_signed), g[CHANNELS * CHANNELS * TAPS];
    double squares = 0;
    tc_scope_begin(ctx);
    tc_tensor image = tc_borrow(ctx, x, TC_F32, n, CHANNELS, SIDE, SIDE);
    tc_tensor to = tc_borrow(ctx, d, TC_F32, n, CHANNELS, SIDE, SIDE), dw;
    tc_tensor weight = tc_borrow(ctx, w, TC_F32, CHANNELS, CHANNELS, 3, 3);
    tc_tensor y = tc_conv2d(image, weight, TC_NONE, &(tc_conv){.padding = {1, 1}});
    tc_grad(tc_sum(tc_mul(y, to), TC_ALL, false), &weight, 1, &dw);
    result(dw, g);
    tc_scope_end(ctx);
    for (int i = 0; i < CHANNELS * CHANNELS * TAPS; i++) {
        double exact, size;
        weight_exact(x, d, n, i / TAPS / CHANNELS, i / TAPS % CHANNELS, i % TAPS, &exact, &size);
        squares += square(g[i], exact, size);
    }
    row("conv dw", n * SIDE * SIDE, is_signed, squares, CHANNELS * CHANNELS * TAPS);
    free(x);
    free(d);
    free(w);
}

int main(int n_args, char **args)
{
    static const int64_t lengths[] = {100, 4096, 10000, 1000000, 16000000};
    tc_ctx *ctx;
    json = n_args > 1 && strcmp(args[1], "--json") == 0;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
            sums(ctx, lengths[i], is_signed);
            if (lengths[i] <= 1000000) {
                matmul(ctx, lengths[i], is_signed);
                conv(ctx, (lengths[i] + SIDE * SIDE - 1) / (SIDE * SIDE), is_signed);
            }
        }
    }
    tc_ctx_free(ctx);
    return 0;
}
