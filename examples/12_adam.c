/* 12_adam.c - the Adam optimiser written out, as part of the program that trains.
 *
 * An optimiser is ordinary arithmetic on state: each weight w has two more parameters, m and v, the
 * running means of its gradient and of the gradient's square (Kingma and Ba, "Adam", 2015, with the
 * corrections of both means folded into the rate, end of its section 2). All three are assigned at
 * the end of a run. The rate is an input, so a schedule is a matter of the caller. The network, two
 * hidden layers of tanh, learns a curve.
 *
 * Prints the mean square error before and after 3,000 steps, and the time of a step.
 *
 * Build, from the project's root: cc -O2 -I. examples/12_adam.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { POINTS = 256, HIDDEN = 32, LAYERS = 3, N_PARAMS = 2 * LAYERS, STEPS = 3000 };
static const int widths[LAYERS + 1] = {1, HIDDEN, HIDDEN, 1};
static float start[HIDDEN * HIDDEN], zeros[HIDDEN * HIDDEN], xs[POINTS], ys[POINTS];

static tc_tensor network(tc_tensor x, const tc_tensor *p)
{
    for (int i = 0; i < LAYERS; i++) {
        x = tc_add(tc_matmul(x, p[2 * i]), p[2 * i + 1]);
        x = i < LAYERS - 1 ? tc_tanh(x) : x;
    }
    return x;
}

static void make_params(tc_ctx *ctx, tc_tensor *p)
{
    unsigned state = 1;
    for (int i = 0; i < LAYERS; i++) {
        float scale = i == 0 ? 2 : sqrtf(3.0f / (float)widths[i]);
        for (int j = 0; j < HIDDEN * HIDDEN; j++) {
            state = state * 1664525u + 1013904223u;
            start[j] = scale * ((float)(state >> 8) * 0x1p-23f - 1);
        }
        p[2 * i] = tc_param(ctx, start, TC_F32, widths[i], widths[i + 1]);
        p[2 * i + 1] = tc_param(ctx, i == 0 ? start : zeros, TC_F32, widths[i + 1]);
    }
}

static tc_tensor zeros_like(tc_tensor w)
{
    return tc_rank(w) == 1 ? tc_param(w.ctx, zeros, TC_F32, tc_size(w, 0))
                           : tc_param(w.ctx, zeros, TC_F32, tc_size(w, 0), tc_size(w, 1));
}

/* The three effects of a step on w, given its gradient. */
static void adam(tc_tensor w, tc_tensor g, tc_tensor rate, tc_tensor outs[3])
{
    tc_tensor m = zeros_like(w), v = zeros_like(w);
    tc_tensor mean = tc_add(tc_mul(m, 0.9), tc_mul(g, 0.1));
    tc_tensor square = tc_add(tc_mul(v, 0.999), tc_mul(tc_square(g), 0.001));
    tc_tensor move = tc_div(mean, tc_add(tc_sqrt(square), 1e-8));
    outs[0] = tc_assign(w, tc_sub(w, tc_mul(rate, move)));
    outs[1] = tc_assign(m, mean);
    outs[2] = tc_assign(v, square);
}

/* Inputs: points, values, the rate. Output: the loss. */
static tc_program *compile_step(tc_ctx *ctx, const tc_tensor *p)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, POINTS, 1), y = tc_input(ctx, "y", TC_F32, POINTS, 1);
    tc_tensor rate = tc_input(ctx, "rate", TC_F32), grads[N_PARAMS], outs[1 + 3 * N_PARAMS];
    tc_tensor loss = outs[0] = tc_mean(tc_square(tc_sub(network(x, p), y)), TC_ALL, false);
    CHECK_OK(tc_grad(loss, p, N_PARAMS, grads), loss);
    for (int i = 0; i < N_PARAMS; i++) {
        adam(p[i], grads[i], rate, outs + 1 + 3 * i);
    }
    CHECK_OK(tc_compile_fn(TC_TENSORS(x, y, rate), (tc_tensors){outs, 1 + 3 * N_PARAMS}, NULL, &f),
             ctx);
    return f;
}

int main(void)
{
    tc_ctx *ctx;
    tc_tensor p[N_PARAMS];
    float loss = 0, first = 0;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < POINTS; i++) {
        xs[i] = 2 * (float)i / (POINTS - 1) - 1;
        ys[i] = sinf(5 * xs[i]) * expf(-xs[i] * xs[i]);
    }
    make_params(ctx, p);
    tc_program *step = compile_step(ctx, p);
    double begin = now_us();
    for (int t = 1; t <= STEPS; t++) {
        float rate = (float)(0.003 * sqrt(1 - pow(0.999, t)) / (1 - pow(0.9, t)));
        CHECK_OK(tc_run(step, TC_BUFS(TC_BUF(xs, POINTS), TC_BUF(ys, POINTS), TC_BUF(&rate, 1)),
                        TC_BUFS(TC_BUF(&loss, 1))),
                 step);
        first = t == 1 ? loss : first;
    }
    printf("mean square error %.4f before, %.2g after %d steps of %.1f us\n", (double)first,
           (double)loss, (int)STEPS, (now_us() - begin) / STEPS);
    tc_program_free(step);
    tc_ctx_free(ctx);
    return loss < 1e-4f ? 0 : 1;
}
