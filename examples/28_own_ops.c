/* 28_own_ops.c - an op of your own with a gradient, held against differences; a branch that a run
 * chooses; layers whose values are computed again on the way back instead of kept.
 *
 * tc_custom: a calibration curve, which C code looks up in a table of points. Its gradient rule
 * makes the slope by a second custom op. tc_gradcheck compares such a rule with differences, and
 * names the op whose rule is wrong.
 * tc_cond: a signal is filtered only where its noise is above a limit; else the run leaves the
 * filter out.
 * tc_checkpoint: 24 layers, only whose results are kept. They share their weights, whose
 * gradient is the sum over the layers, added in another order.
 *
 * Prints the errors of a right and of a wrong rule, the time of both branches, and the workspace
 * with and without checkpoints.
 *
 * Build, from the project's root: cc -O2 -I. examples/28_own_ops.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { POINTS = 5, SAMPLES = 1 << 20, LAYERS = 24, ROWS = 256, WIDTH = 64 };

/* ---- an op of one's own: the line through the points of a table ---- */

static const double place[POINTS] = {-2, -0.5, 0, 1, 3}, level[POINTS] = {0, 0.2, 0.5, 2, 2.5};

/* Number of the piece that x is on; beyond the ends the first and last pieces go on. */
static int piece(double x)
{
    int i = 0;
    while (i < POINTS - 2 && x >= place[i + 1]) {
        i++;
    }
    return i;
}

static double slope_at(double x)
{
    int i = piece(x);
    return (level[i + 1] - level[i]) / (place[i + 1] - place[i]);
}

static void curve_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    const double *x = in[0].data;
    (void)user, (void)n;
    for (int64_t i = 0; i < out->n; i++) {
        int at = piece(x[i]);
        ((double *)out->data)[i] = level[at] + slope_at(x[i]) * (x[i] - place[at]);
    }
}

static void slope_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user, (void)n;
    for (int64_t i = 0; i < out->n; i++) {
        ((double *)out->data)[i] = slope_at(((const double *)in[0].data)[i]);
    }
}

static const tc_custom_op slope = {.name = "slope", .version = 1, .run = slope_run};

static tc_tensor curve_vjp(void *user, tc_tensors in, tc_tensor y, tc_tensor grad, int which)
{
    (void)user, (void)y, (void)which;
    return tc_mul(grad, tc_custom(&slope, TC_TENSORS(in.items[0])));
}

/* A rule that forgets the slope. */
static tc_tensor wrong_vjp(void *user, tc_tensors in, tc_tensor y, tc_tensor grad, int which)
{
    (void)user, (void)in, (void)y, (void)which;
    return grad;
}

static const tc_custom_op curve = {
    .name = "curve", .version = 1, .run = curve_run, .vjp = curve_vjp};
static const tc_custom_op wrong = {
    .name = "wrong", .version = 1, .run = curve_run, .vjp = wrong_vjp};

static double calibrate(tc_ctx *ctx)
{
    const double raw[6] = {-3, -1, -0.2, 0.4, 2, 5};
    double got[6], slopes[6], worst = 0;
    tc_gradcheck_report report;
    tc_tensor x = tc_copy_in(ctx, raw, TC_F64, 6), y = tc_custom(&curve, TC_TENSORS(x)), g;
    CHECK_OK(tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &g), g);
    CHECK_OK(tc_read(y, got, 6), y);
    CHECK_OK(tc_read(g, slopes, 6), g);
    for (int i = 0; i < 6; i++) {
        double want = level[piece(raw[i])] + slope_at(raw[i]) * (raw[i] - place[piece(raw[i])]);
        worst = fmax(worst, fmax(fabs(got[i] - want), fabs(slopes[i] - slope_at(raw[i]))));
    }
    CHECK_OK(tc_gradcheck(tc_sin(y), TC_TENSORS(x), NULL, &report), ctx);
    printf("curve: the gradient rule is within %.0e of differences\n", report.error);
    tc_tensor bad = tc_sin(tc_custom(&wrong, TC_TENSORS(x)));
    bool found = tc_gradcheck(bad, TC_TENSORS(x), NULL, &report) == TC_ERR_GRADIENT;
    printf("a wrong rule: gradient %.4f, difference %.4f of element %d: %s of line %d\n",
           report.gradient, report.difference, (int)report.element, report.op, report.line);
    return found ? worst : 1;
}

/* ---- a branch ---- */

static tc_status filtered(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = x[0];
    for (int i = 0; i < 40; i++) { /* each value moves towards its neighbours */
        tc_tensor apart = tc_sub(tc_roll(y[0], 1, 0), y[0]);
        y[0] = tc_add(y[0], tc_mul(apart, 0.25));
    }
    return TC_OK;
}

static tc_status as_it_is(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = x[0];
    return TC_OK;
}

static double choose(tc_ctx *ctx)
{
    static float in[SAMPLES], out[SAMPLES];
    double us[2], noise = 0;
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, SAMPLES), y;
    tc_tensor is_noisy = tc_gt(tc_std(x, TC_ALL, 0, false), 0.1);
    CHECK_OK(tc_cond(is_noisy, TC_TENSORS(x), filtered, as_it_is, NULL, &y, 1), ctx);
    CHECK_OK(tc_compile(y, &f), y);
    for (int noisy = 0; noisy < 2; noisy++) {
        for (int i = 0; i < SAMPLES; i++) {
            in[i] = (i & 1 ? 1.0f : -1.0f) * (noisy ? 0.5f : 0.05f);
        }
        BEST_US(us[noisy],
                CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, SAMPLES)), TC_BUFS(TC_BUF(out, SAMPLES))),
                         f));
        noise = noisy ? fmax(noise, fabs(out[7])) : fabs(out[7] - 0.05f);
    }
    printf("branch: %.0f us with little noise, %.0f us with much\n", us[0], us[1]);
    tc_program_free(f);
    return noise;
}

/* ---- values that are computed again ---- */

static tc_status layer(void *user, const tc_tensor *x, tc_tensor *y)
{
    const tc_tensor w = *(const tc_tensor *)user;
    y[0] = tc_add(x[0], tc_tanh(tc_matmul(tc_gelu(tc_matmul(x[0], w)), w)));
    return TC_OK;
}

static double remember_less(tc_ctx *ctx)
{
    static float weights[WIDTH * WIDTH], in[ROWS * WIDTH], grads[2][WIDTH * WIDTH];
    tc_program_info info[2];
    for (int i = 0; i < WIDTH * WIDTH; i++) {
        weights[i] = sinf((float)i) / 16;
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        in[i] = cosf((float)i);
    }
    tc_tensor w = tc_param(ctx, weights, TC_F32, WIDTH, WIDTH);
    tc_tensor input = tc_input(ctx, "x", TC_F32, ROWS, WIDTH);
    for (int again = 0; again < 2; again++) {
        tc_tensor x = input, g;
        tc_program *f;
        for (int i = 0; i < LAYERS; i++) {
            tc_tensor y;
            CHECK_OK(again ? tc_checkpoint(TC_TENSORS(x), layer, &w, &y, 1) : layer(&w, &x, &y),
                     ctx);
            x = y;
        }
        CHECK_OK(tc_grad(tc_sum(tc_square(x), TC_ALL, false), &w, 1, &g), g);
        CHECK_OK(tc_compile(g, &f), g);
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, ROWS * WIDTH)),
                        TC_BUFS(TC_BUF(grads[again], WIDTH * WIDTH))),
                 f);
        tc_program_get_info(f, &info[again]);
        tc_program_free(f);
    }
    printf("%d layers: a workspace of %.1f MB, checkpointed of %.1f MB\n", LAYERS,
           (double)info[0].arena_bytes / 1e6, (double)info[1].arena_bytes / 1e6);
    double worst = 0, largest = 0;
    for (int i = 0; i < WIDTH * WIDTH; i++) {
        worst = fmax(worst, fabs((double)grads[0][i] - (double)grads[1][i]));
        largest = fmax(largest, fabs((double)grads[0][i]));
    }
    return info[1].arena_bytes < info[0].arena_bytes ? worst / largest : 1;
}

int main(void)
{
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    int bad = report_check(calibrate(ctx), 1e-12, "of a value or slope");
    bad |= report_check(choose(ctx), 1e-3, "of a sample");
    bad |= report_check(remember_less(ctx), 1e-5, "of the largest gradient");
    tc_ctx_free(ctx);
    return bad;
}
