/* 16_weights.c - weights in a file: trained in one context, used in another.
 *
 * The first half learns y = sin(3 x) with a small network, gives its parameters names and saves
 * them all by one call, with a note of what they are. The second half knows nothing of that: it
 * asks the file what is in it, borrows the arrays (mapped memory, no copy) and computes with them.
 * Then a network of the same parameters loads them by name to train on, and one of another width
 * is told what does not fit.
 *
 * Prints the error after training, the arrays of the file, the text of a load that does not fit,
 * and the errors with borrowed and loaded weights.
 *
 * Build, from the project's root: cc -O2 -I. examples/16_weights.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { POINTS = 128, WIDTH = 24, STEPS = 3000 };
static const char *const path = "/tmp/tc-example-weights.safetensors";
static float xs[POINTS], ys[POINTS], predicted[POINTS];

typedef struct network {
    tc_tensor in, in_bias, out;
} network;

/* Parameters by names that stay, whatever order they are made in. */
static network make_network(tc_ctx *ctx, int width)
{
    tc_tensor spread = tc_randn(ctx, 1, TC_F32, 1, width);
    tc_tensor ends = tc_mul(tc_randn(ctx, 2, TC_F32, width, 1), 0.2);
    network n = {tc_named(tc_param_from(tc_mul(spread, 3)), "hidden.weight"),
                 tc_named(tc_param_from(tc_randn(ctx, 3, TC_F32, width)), "hidden.bias"),
                 tc_named(tc_param_from(ends), "out.weight")};
    return n;
}

static tc_tensor forward(tc_tensor x, network n)
{
    return tc_matmul(tc_tanh(tc_add(tc_matmul(x, n.in), n.in_bias)), n.out);
}

static tc_program *compile_step(tc_ctx *ctx, network n)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, POINTS, 1), y = tc_input(ctx, "y", TC_F32, POINTS, 1);
    tc_tensor params[3] = {n.in, n.in_bias, n.out}, grads[3], outs[4];
    outs[0] = tc_mean(tc_square(tc_sub(forward(x, n), y)), TC_ALL, false);
    CHECK_OK(tc_grad(outs[0], params, 3, grads), outs[0]);
    for (int i = 0; i < 3; i++) {
        outs[1 + i] = tc_assign(params[i], tc_sub(params[i], tc_mul(grads[i], 0.05)));
    }
    CHECK_OK(tc_compile_fn(TC_TENSORS(x, y), TC_TENSORS_N(outs, 4), NULL, &f), ctx);
    return f;
}

static float train(tc_program *step, int n)
{
    float loss = 0;
    for (int i = 0; i < n; i++) {
        CHECK_OK(tc_run(step, TC_BUFS(TC_BUF(xs, POINTS), TC_BUF(ys, POINTS)),
                        TC_BUFS(TC_BUF(&loss, 1))),
                 step);
    }
    return loss;
}

static float learn_and_save(void)
{
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    tc_program *step = compile_step(ctx, make_network(ctx, WIDTH));
    float loss = train(step, STEPS);
    CHECK_OK(tc_save(ctx, path), ctx);
    printf("saved after %d steps, mean square error %.5f\n", (int)STEPS, (double)loss);
    tc_program_free(step);
    tc_ctx_free(ctx);
    return loss;
}

/* What is there, and the error of a network of borrowed arrays. */
static float use(void)
{
    tc_ctx *ctx;
    tc_file *file;
    const tc_array *a;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    CHECK_OK(tc_file_open(ctx, path, &file), ctx);
    for (int i = 0; (a = tc_file_array(file, i)) != NULL; i++) {
        printf("  %-14s %s [", a->name, tc_dtype_name(a->dtype));
        for (int d = 0; d < a->rank; d++) {
            printf("%s%d", d ? ", " : "", (int)a->sizes[d]);
        }
        printf("]\n");
    }
    network n = {tc_file_borrow(ctx, file, "hidden.weight"),
                 tc_file_borrow(ctx, file, "hidden.bias"), tc_file_borrow(ctx, file, "out.weight")};
    tc_file_close(file); /* what was borrowed stays */
    tc_tensor y = forward(tc_borrow(ctx, xs, TC_F32, POINTS, 1), n);
    CHECK_OK(tc_read(y, predicted, POINTS), y);
    tc_ctx_free(ctx);
    double sum = 0;
    for (int i = 0; i < POINTS; i++) {
        sum += (double)(predicted[i] - ys[i]) * (double)(predicted[i] - ys[i]);
    }
    return (float)(sum / POINTS);
}

static float go_on(void)
{
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    tc_program *step = compile_step(ctx, make_network(ctx, WIDTH));
    CHECK_OK(tc_load(ctx, path), ctx);
    float loss = train(step, 1);
    tc_program_free(step);
    tc_ctx_free(ctx);
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    make_network(ctx, WIDTH + 1);
    if (tc_load(ctx, path) == TC_OK) {
        return 1e9f; /* must not fit */
    }
    printf("a wider one: %s\n", tc_error(ctx));
    tc_ctx_free(ctx);
    return loss;
}

int main(void)
{
    for (int i = 0; i < POINTS; i++) {
        xs[i] = 2 * (float)i / (POINTS - 1) - 1;
        ys[i] = sinf(3 * xs[i]);
    }
    float learnt = learn_and_save(), used = use(), loaded = go_on();
    printf("mean square error: %.5f borrowed, %.5f loaded\n", (double)used, (double)loaded);
    remove(path);
    bool same = fabsf(used - learnt) < 1e-4f && fabsf(loaded - learnt) < 1e-4f;
    return same && learnt < 0.01f ? 0 : 1;
}
