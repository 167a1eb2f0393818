/* 23_per_sample.c - the gradient of each example by itself, for training with privacy.
 *
 * A training step adds the gradients of a batch before anyone sees them. Where each example's must
 * be cut to a length first (Abadi and others, "Deep learning with differential privacy", 2016), a
 * library without tc_vmap runs the backward pass once per example. Here the loss and the gradient
 * of one example are written as a function of one example, and tc_vmap makes the program for all of
 * them: lengths, cuts, noise and update are part of it, and it is one run. Checked against the
 * gradient of each example alone; what it costs is timed against the plain gradient of the batch.
 *
 * Prints the time of the batch's gradient and of all lengths, and the loss before and after private
 * steps.
 *
 * Build, from the project's root: cc -O2 -I. examples/23_per_sample.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { BATCH = 64, FEATURES = 32, HIDDEN = 48, CLASSES = 4, N_WEIGHTS = 2, STEPS = 400 };
static float xs[BATCH * FEATURES];
static int ys[BATCH];

static tc_tensor loss_of(tc_tensor x, tc_tensor y, const tc_tensor w[N_WEIGHTS])
{
    tc_tensor logits = tc_matmul(tc_tanh(tc_matmul(x, w[0])), w[1]);
    return tc_cross_entropy(logits, y);
}

/* Of one example, x[0] [FEATURES] of class x[1]: the loss, and the gradients by x[2], x[3]. */
static void one_example(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = loss_of(x[0], x[1], x + 2);
    tc_grad(y[0], x + 2, N_WEIGHTS, y + 1);
}

/* The length of each example's gradient, over all weights. */
static tc_tensor lengths(const tc_tensor grads[N_WEIGHTS])
{
    tc_tensor sum = tc_sum(tc_square(grads[0]), TC_AXES(1, 2), false);
    return tc_sqrt(tc_add(sum, tc_sum(tc_square(grads[1]), TC_AXES(1, 2), false)));
}

/* Examples of four classes: which of four waves a row of numbers holds. */
static void make_examples(void)
{
    for (int i = 0; i < BATCH; i++) {
        ys[i] = i % CLASSES;
        for (int k = 0; k < FEATURES; k++) {
            double wave = sin(0.35 * (1 + ys[i]) * k + i * 0.11);
            xs[i * FEATURES + k] = (float)(wave + 0.3 * cos(i * k));
        }
    }
}

/* The largest difference between a gradient made among the others and one made alone. */
static double check(const tc_tensor *in, const tc_tensor grads[N_WEIGHTS])
{
    static float all[BATCH * FEATURES * HIDDEN], one[FEATURES * HIDDEN];
    double worst = 0;
    const int sizes[N_WEIGHTS] = {FEATURES * HIDDEN, HIDDEN * CLASSES};
    for (int k = 0; k < N_WEIGHTS; k++) {
        CHECK_OK(tc_read(grads[k], all, BATCH * sizes[k]), grads[k]);
        for (int e = 0; e < BATCH; e += 21) {
            tc_tensor x[2 + N_WEIGHTS] = {tc_squeeze(tc_slice(in[0], 0, e, e + 1, 1), 0),
                                          tc_squeeze(tc_slice(in[1], 0, e, e + 1, 1), 0), in[2],
                                          in[3]};
            tc_tensor y[1 + N_WEIGHTS];
            one_example(x, y, NULL);
            CHECK_OK(tc_read(y[1 + k], one, sizes[k]), y[1 + k]);
            for (int i = 0; i < sizes[k]; i++) {
                worst = fmax(worst, fabs((double)(all[e * sizes[k] + i] - one[i])));
            }
        }
    }
    return worst;
}

int main(void)
{
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    make_examples();
    tc_tensor x = tc_copy_in(ctx, xs, TC_F32, BATCH, FEATURES);
    tc_tensor y = tc_copy_in(ctx, ys, TC_I32, BATCH), w[N_WEIGHTS];
    w[0] = tc_param_from(tc_mul(tc_randn(ctx, 1, TC_F32, FEATURES, HIDDEN), 0.15));
    w[1] = tc_param_from(tc_mul(tc_randn(ctx, 2, TC_F32, HIDDEN, CLASSES), 0.15));
    const tc_tensor in[2 + N_WEIGHTS] = {x, y, w[0], w[1]};
    const int axes[2 + N_WEIGHTS] = {0, 0, TC_UNMAPPED, TC_UNMAPPED};
    tc_tensor each[1 + N_WEIGHTS], sums[N_WEIGHTS];
    CHECK_OK(tc_vmap(one_example, NULL, TC_TENSORS_N(in, 4), axes, each, NULL, 1 + N_WEIGHTS),
             each[0]);
    double worst = check(in, each + 1);

    /* no example moves the weights by more than 1, and noise hides what is left of each */
    tc_tensor cut = tc_reciprocal(tc_maximum(lengths(each + 1), 1)), step[1 + N_WEIGHTS];
    tc_tensor count = tc_param(ctx, NULL, TC_U64), key = tc_fold_in(tc_full(ctx, 7, TC_U64), count);
    tc_keys keys = {key, 0};
    tc_tensor effects[2 + N_WEIGHTS] = {tc_mean(each[0], TC_ALL, false),
                                        tc_assign(count, tc_add(count, 1))};
    for (int k = 0; k < N_WEIGHTS; k++) {
        step[k] = tc_einsum("b,bij->ij", TC_TENSORS(cut, each[1 + k]));
        tc_tensor hidden = tc_randn(ctx, tc_next_key(&keys), TC_F32, tc_size(w[k], 0),
                                    tc_size(w[k], 1));
        step[k] = tc_div(tc_add(step[k], tc_mul(hidden, 0.2)), BATCH);
        effects[2 + k] = tc_assign(w[k], tc_sub(w[k], tc_mul(step[k], 0.5)));
    }
    tc_program *private_step, *all_lengths, *plain;
    CHECK_OK(tc_compile_fn(TC_TENSORS(), TC_TENSORS_N(effects, 4), NULL, &private_step),
             effects[0]);
    tc_tensor length = lengths(each + 1), loss = loss_of(x, y, w);
    CHECK_OK(tc_compile_fn(TC_TENSORS(), TC_TENSORS(length), NULL, &all_lengths), length);
    CHECK_OK(tc_grad(loss, w, N_WEIGHTS, sums), sums[0]);
    CHECK_OK(tc_compile_fn(TC_TENSORS(), TC_TENSORS(sums[0], sums[1]), NULL, &plain), sums[0]);

    static float first[FEATURES * HIDDEN], second[HIDDEN * CLASSES], found[BATCH];
    double plain_us, each_us;
    BEST_US(plain_us,
            tc_run(plain, TC_BUFS(),
                   TC_BUFS(TC_BUF(first, FEATURES * HIDDEN), TC_BUF(second, HIDDEN * CLASSES))));
    BEST_US(each_us, tc_run(all_lengths, TC_BUFS(), TC_BUFS(TC_BUF(found, BATCH))));
    printf("%d examples: gradient of the batch %.0f us, lengths of all %d gradients %.0f us, off "
           "by %.1e\n",
           BATCH, plain_us, BATCH, each_us, worst);
    float before = 0, now = 0;
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(tc_run(private_step, TC_BUFS(), TC_BUFS(TC_BUF(&now, 1))), private_step);
        before = i ? before : now;
    }
    printf("%d private steps: loss %.3f -> %.3f\n", STEPS, (double)before, (double)now);
    bool ok = worst < 1e-6 && now < 0.3f * before;
    tc_program_free(private_step);
    tc_program_free(all_lengths);
    tc_program_free(plain);
    tc_ctx_free(ctx);
    printf("%s\n", ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
}
