/* 14_dropout.c - random numbers in a program: first weights, dropout, and pi.
 *
 * A random number is a function of a key and of its index, nothing else, so a run can be repeated
 * anywhere to the bit. The program that trains has its own counter among its parameters: each run
 * folds it into the key, so each step drops other units, and nothing is compiled again. The
 * backward pass draws the mask a second time rather than reading it from memory.
 *
 * Prints pi by 4 million points, losses of two equal trainings, and that both give the same bits.
 *
 * Build, from the project's root: cc -O2 -I. examples/14_dropout.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { POINTS = 512, HIDDEN = 128, STEPS = 1000 };
static float xs[POINTS], ys[POINTS];

/* A parameter whose first value is drawn. */
static tc_tensor drawn(tc_ctx *ctx, tc_keys *keys, double scale, int64_t rows, int64_t columns)
{
    static float first[HIDDEN * HIDDEN];
    tc_tensor w = tc_mul(tc_randn(ctx, tc_next_key(keys), TC_F32, rows, columns), scale);
    CHECK_OK(tc_read(w, first, rows * columns), w);
    return tc_param(ctx, first, TC_F32, rows, columns);
}

/* Two hidden layers; a share p of the units is dropped. */
static tc_tensor network(tc_tensor x, const tc_tensor w[3], double p, tc_keys *keys)
{
    tc_tensor a = tc_dropout(tc_relu(tc_matmul(x, w[0])), p, tc_next_key(keys));
    tc_tensor b = tc_dropout(tc_relu(tc_matmul(a, w[1])), p, tc_next_key(keys));
    return tc_matmul(b, w[2]);
}

/* Trains, and leaves the network's values without dropout in `out`. */
static void train(tc_ctx *ctx, uint64_t seed, float *out)
{
    uint64_t zero = 0;
    tc_tensor key = tc_full(ctx, seed, TC_U64), count = tc_param(ctx, &zero, TC_U64);
    tc_keys weights = {tc_fold_in(key, 0), 0}, masks = {tc_fold_in(tc_fold_in(key, 1), count), 0};
    tc_tensor column = tc_copy_in(ctx, xs, TC_F32, POINTS, 1);
    tc_tensor y = tc_copy_in(ctx, ys, TC_F32, POINTS, 1);
    tc_tensor x = tc_cat(TC_TENSORS(column, tc_full(ctx, 1, TC_F32, POINTS, 1)), 1), w[3];
    w[0] = drawn(ctx, &weights, 1, 2, HIDDEN);
    w[1] = drawn(ctx, &weights, 0.12, HIDDEN, HIDDEN);
    w[2] = drawn(ctx, &weights, 0.12, HIDDEN, 1);
    tc_tensor loss = tc_mean(tc_square(tc_sub(network(x, w, 0.05, &masks), y)), TC_ALL, false);
    tc_tensor grads[3], outs[5] = {loss, tc_assign(count, tc_add(count, 1))};
    CHECK_OK(tc_grad(loss, w, 3, grads), loss);
    for (int i = 0; i < 3; i++) {
        outs[2 + i] = tc_assign(w[i], tc_sub(w[i], tc_mul(grads[i], 0.02)));
    }
    tc_program *step;
    CHECK_OK(tc_compile_fn(TC_TENSORS(), TC_TENSORS_N(outs, 5), NULL, &step), loss);
    float now;
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(tc_run(step, TC_BUFS(), TC_BUFS(TC_BUF(&now, 1))), step);
        if (i % 500 == 499) {
            printf("  step %4d: loss %.4f with dropout\n", i + 1, (double)now);
        }
    }
    tc_program_free(step);
    tc_tensor value = network(x, w, 0, &masks);
    CHECK_OK(tc_read(value, out, POINTS), value);
}

int main(void)
{
    enum { N = 1 << 22 };
    static float first[POINTS], second[POINTS];
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    tc_tensor a = tc_rand(ctx, 1, TC_F32, N), b = tc_rand(ctx, 2, TC_F32, N);
    tc_tensor inside = tc_lt(tc_add(tc_square(a), tc_square(b)), 1.0), pi;
    float value;
    pi = tc_mul(tc_mean(tc_cast(inside, TC_F32), TC_ALL, false), 4);
    CHECK_OK(tc_read(pi, &value, 1), pi);
    printf("pi is about %.4f, by %d points\n", (double)value, N);
    for (int i = 0; i < POINTS; i++) {
        xs[i] = 4 * (float)i / POINTS - 2;
        ys[i] = sinf(2 * xs[i]) + 0.5f * xs[i];
    }
    train(ctx, 2024, first);
    train(ctx, 2024, second);
    double off = fabs((double)value - 3.14159265) / 2e-3, squares = 0;
    for (int i = 0; i < POINTS; i++) {
        squares += (double)(first[i] - ys[i]) * (double)(first[i] - ys[i]) / POINTS;
    }
    printf("  error of the network: %.3f; trained again: %s\n", sqrt(squares),
           memcmp(first, second, sizeof(first)) ? "OTHER BITS" : "the same bits");
    off = fmax(off, sqrt(squares) / 0.3) + (memcmp(first, second, sizeof(first)) != 0);
    tc_ctx_free(ctx);
    return report_check(off, 1, "share of the error allowed");
}
