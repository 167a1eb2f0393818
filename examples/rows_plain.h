/* examples/rows_plain.h - the data of 04_softmax_layer_norm.c, and the same rows in plain C, in
 * double, to check against. */
#ifndef ROWS_PLAIN_H
#define ROWS_PLAIN_H

#include <math.h>
#include <stdbool.h>

enum { ROWS = 2048, COLS = 1024, N = ROWS * COLS };
static float in[N], out[N], ready[N];

static inline void plain_fill(void)
{
    for (int i = 0; i < N; i++) {
        in[i] = (float)((i * 7919LL) % 2003) / 200.0f - 5.0f;
    }
}

static inline void plain_row(const float *x, double *y, bool is_softmax)
{
    double top = x[0], mean = 0, sum = 0;
    for (int i = 0; i < COLS; i++) {
        top = fmax(top, x[i]);
        mean += x[i] / (double)COLS;
    }
    for (int i = 0; i < COLS; i++) {
        y[i] = is_softmax ? exp(x[i] - top) : x[i] - mean;
        sum += is_softmax ? y[i] : y[i] * y[i] / COLS;
    }
    for (int i = 0; i < COLS; i++) {
        y[i] /= is_softmax ? sum : sqrt(sum + 1e-5);
    }
}

/* The largest relative error of `out` and of `ready`. */
static inline double plain_worst(bool is_softmax)
{
    static double expected[COLS];
    double worst = 0;
    for (int r = 0; r < ROWS; r++) {
        plain_row(in + r * COLS, expected, is_softmax);
        for (int i = 0; i < COLS; i++) {
            double scale = is_softmax ? expected[i] : fmax(1, fabs(expected[i]));
            worst = fmax(worst, fabs(out[r * COLS + i] - expected[i]) / scale);
            worst = fmax(worst, fabs(ready[r * COLS + i] - expected[i]) / scale);
        }
    }
    return worst;
}

#endif
