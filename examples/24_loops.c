/* 24_loops.c - steps that follow from each other, each loop one program: an equalizer, a picture of
 * the Mandelbrot set, pendulums.
 * Usage: 24_loops [out]; out.ppm is then the picture.
 *
 * Equalizer: three filters of second order in series, over a million samples. A step of
 * tc_scan takes a sample and gives one; the filters' memory is the carry, six numbers.
 * Mandelbrot: tc_while goes on while any point is inside; the number of steps is not known.
 * Pendulums: a thousand of them, by the method of Runge and Kutta; tc_grad goes back through all
 * steps and tells how the place in the end moves with the place in the beginning.
 *
 * Prints the time of each loop and its largest error; writes the Mandelbrot set as OUT.ppm.
 *
 * Build, from the project's root: cc -O2 -I. examples/24_loops.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "ppm.h"

enum { SAMPLES = 1000000, FILTERS = 3, W = 320, H = 240, MOST = 300 };
enum { PENDULUMS = 1000, STEPS = 500 };

/* b0, b1, b2, a1, a2: a shelf below 200 Hz, a dip at 1 kHz, a peak at 6 kHz, of 44.1 kHz. */
static const float filters[FILTERS][5] = {{1.0096f, -1.9716f, 0.9626f, -1.9718f, 0.9720f},
                                          {0.9352f, -1.7504f, 0.8292f, -1.7504f, 0.7644f},
                                          {1.2080f, -0.9240f, 0.3590f, -0.9240f, 0.5670f}};

static tc_status filter(void *user, const tc_tensor *memory, const tc_tensor *x, tc_tensor *next,
                        tc_tensor *y)
{
    (void)user;
    y[0] = x[0];
    for (int i = 0; i < FILTERS; i++) {
        const float *f = filters[i];
        tc_tensor in = y[0];
        y[0] = tc_add(tc_mul(in, f[0]), memory[2 * i]);
        next[2 * i] = tc_add(tc_sub(tc_mul(in, f[1]), tc_mul(y[0], f[3])), memory[2 * i + 1]);
        next[2 * i + 1] = tc_sub(tc_mul(in, f[2]), tc_mul(y[0], f[4]));
    }
    return TC_OK;
}

static double equalize(tc_ctx *ctx)
{
    static float in[SAMPLES], out[SAMPLES];
    float memory[FILTERS][2] = {{0}};
    double worst = 0, us;
    tc_tensor x = tc_input(ctx, "x", TC_F32, SAMPLES), zero = tc_full(ctx, 0, TC_F32), y;
    tc_tensor last[2 * FILTERS];
    tc_program *f;
    CHECK_OK(tc_scan(TC_TENSORS(zero, zero, zero, zero, zero, zero), TC_TENSORS(x), 0, false,
                     filter, NULL, last, &y, 1),
             ctx);
    CHECK_OK(tc_compile(y, &f), y);
    for (int i = 0; i < SAMPLES; i++) {
        in[i] = sinf((float)i * 0.03f) + 0.3f * sinf((float)i * 0.9f);
    }
    BEST_US(us,
            CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, SAMPLES)), TC_BUFS(TC_BUF(out, SAMPLES))), f));
    for (int i = 0; i < SAMPLES; i++) {
        float x_i = in[i];
        for (int k = 0; k < FILTERS; k++) {
            const float *c = filters[k];
            float y_i = x_i * c[0] + memory[k][0];
            memory[k][0] = x_i * c[1] - y_i * c[3] + memory[k][1];
            memory[k][1] = x_i * c[2] - y_i * c[4];
            x_i = y_i;
        }
        worst = fmax(worst, fabs((double)out[i] - (double)x_i));
    }
    printf("equalizer: %d samples in %.0f us\n", SAMPLES, us);
    tc_program_free(f);
    return worst;
}

/* Carries: re, im, how many steps a point was inside. */
static tc_tensor inside(const tc_tensor *c)
{
    return tc_le(tc_add(tc_square(c[0]), tc_square(c[1])), 4);
}

static tc_status any_inside(void *user, const tc_tensor *c, tc_tensor *go)
{
    (void)user;
    *go = tc_any(inside(c), TC_ALL, false);
    return TC_OK;
}

static tc_status square_add(void *user, const tc_tensor *c, tc_tensor *next)
{
    const tc_tensor *place = user;
    tc_tensor stays = inside(c);
    tc_tensor re = tc_add(tc_sub(tc_square(c[0]), tc_square(c[1])), place[0]);
    tc_tensor im = tc_add(tc_mul(tc_mul(c[0], c[1]), 2), place[1]);
    next[0] = tc_where(stays, re, c[0]);
    next[1] = tc_where(stays, im, c[1]);
    next[2] = tc_add(c[2], tc_cast(stays, TC_I32));
    return TC_OK;
}

/* Returns the part of the points where plain C counts other steps. */
static double mandelbrot(tc_ctx *ctx, const char *name)
{
    static int32_t counts[H][W];
    static unsigned char photo[H * W * 3];
    tc_tensor x = tc_add(tc_mul(tc_arange(ctx, 0, W, 1, TC_F32), 3.0f / W), -2.2f);
    tc_tensor y = tc_add(tc_mul(tc_arange(ctx, 0, H, 1, TC_F32), 2.25f / H), -1.13f);
    tc_tensor place[2] = {tc_expand(x, H, W), tc_expand(tc_unsqueeze(y, 1), H, W)}, last[3];
    tc_tensor zero = tc_full(ctx, 0, TC_F32, H, W), none = tc_full(ctx, 0, TC_I32, H, W);
    int differs = 0;
    CHECK_OK(tc_while(TC_TENSORS(zero, zero, none), MOST, any_inside, square_add, place, last),
             ctx);
    double begin = now_us();
    CHECK_OK(tc_read(last[2], &counts[0][0], W * H), last[2]);
    printf("mandelbrot: %d points, compiled and computed in %.0f us\n", W * H, now_us() - begin);
    for (int i = 0; i < W * H; i++) {
        float re = 0, im = 0, a = (float)(i % W) * (3.0f / W) + -2.2f;
        float b = (float)(i / W) * (2.25f / H) + -1.13f;
        int n = 0;
        for (; n < MOST && re * re + im * im <= 4; n++) {
            float t = re * re - im * im + a;
            im = re * im * 2 + b;
            re = t;
        }
        differs += n != counts[i / W][i % W];
        photo[3 * i] = photo[3 * i + 1] = photo[3 * i + 2] = (unsigned char)(n == MOST ? 0 : n * 5);
    }
    if (name) {
        ppm_write(name, "", photo, W, H);
    }
    return (double)differs / (W * H);
}

/* How angle and speed change; a step of Runge and Kutta. */
static void slope(tc_tensor angle, tc_tensor speed, tc_tensor *to)
{
    to[0] = speed;
    to[1] = tc_mul(tc_sin(angle), -1);
}

static tc_status swing(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    const double h = 0.02;
    tc_tensor k[4][2];
    (void)user;
    (void)x;
    (void)y;
    slope(c[0], c[1], k[0]);
    for (int i = 1; i < 4; i++) {
        double part = i < 3 ? h / 2 : h;
        slope(tc_add(c[0], tc_mul(k[i - 1][0], part)), tc_add(c[1], tc_mul(k[i - 1][1], part)),
              k[i]);
    }
    for (int i = 0; i < 2; i++) {
        tc_tensor middle = tc_mul(tc_add(k[1][i], k[2][i]), 2);
        next[i] = tc_add(c[i], tc_mul(tc_add(tc_add(k[0][i], middle), k[3][i]), h / 6));
    }
    return TC_OK;
}

/* A pendulum that hangs far out loses nothing; the gradient is held against a difference. */
static double pendulums(tc_ctx *ctx)
{
    static double start[PENDULUMS], end[PENDULUMS], gradient[PENDULUMS], moved[PENDULUMS];
    const double far = 1e-6;
    double worst = 0;
    tc_tensor angle = tc_input(ctx, "angle", TC_F64, PENDULUMS), last[2], grad;
    tc_program *f;
    CHECK_OK(tc_scan(TC_TENSORS(angle, tc_mul(angle, 0)), TC_TENSORS(), STEPS, false, swing, NULL,
                     last, NULL, 0),
             ctx);
    CHECK_OK(tc_grad(tc_sum(last[0], TC_ALL, false), &angle, 1, &grad), ctx);
    CHECK_OK(tc_compile_fn(TC_TENSORS(angle), TC_TENSORS(last[0], grad), NULL, &f), grad);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < PENDULUMS; i++) {
            start[i] = 2.5 * i / PENDULUMS + again * far;
        }
        double begin = now_us();
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(start, PENDULUMS)),
                        TC_BUFS(TC_BUF(again ? moved : end, PENDULUMS),
                                TC_BUF(gradient, PENDULUMS))),
                 f);
        printf("pendulums: %d, %d steps there and back in %.0f us\n", PENDULUMS, STEPS,
               now_us() - begin);
    }
    for (int i = 0; i < PENDULUMS; i++) {
        worst = fmax(worst, fabs((moved[i] - end[i]) / far - gradient[i]));
    }
    tc_program_free(f);
    return worst;
}

int main(int argc, char **argv)
{
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    int bad = report_check(equalize(ctx), 1e-4, "of a sample");
    bad |= report_check(mandelbrot(ctx, argc > 1 ? argv[1] : NULL), 0.02, "of the points");
    bad |= report_check(pendulums(ctx), 1e-4, "of a gradient");
    tc_ctx_free(ctx);
    return bad;
}
