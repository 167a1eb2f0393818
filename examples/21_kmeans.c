/* 21_kmeans.c - the sixteen colours that suit a photograph best.
 * Usage: 21_kmeans [in.ppm [out]]; out.ppm is then the photograph in these colours.
 *
 * K-means: each pixel goes to its nearest colour, then each colour becomes the mean of its pixels.
 * The mean is a scatter: the rows (red, green, blue, 1) of all pixels are added up at the index of
 * their colour, so the last column counts them. Sums at an index have the order of the pixels,
 * whatever the number of threads is. The colours are a parameter, so a step of the program is a
 * step of the method.
 *
 * Prints the mean distance of a pixel from its colour after steps 1, 5 and 30, and the time of a
 * step.
 *
 * Build, from the project's root: cc -O2 -I. examples/21_kmeans.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "ppm.h"

enum { COLOURS = 16, STEPS = 30 };

/* The squared distance of each pixel [n, 3] to each colour [COLOURS, 3]. */
static tc_tensor distances(tc_tensor pixels, tc_tensor colours)
{
    tc_tensor difference = tc_sub(tc_unsqueeze(pixels, 1), colours);
    return tc_sum(tc_square(difference), TC_AXES(2), false);
}

/* Outputs: the mean squared distance of the pixels to the colours before the step. */
static tc_program *compile_step(tc_tensor pixels, tc_tensor colours)
{
    tc_program *f;
    tc_ctx *ctx = pixels.ctx;
    tc_tensor apart = distances(pixels, colours), nearest = tc_argmin(apart, 1, false);
    tc_tensor ones = tc_full(ctx, 1, TC_F32, tc_size(pixels, 0), 1);
    tc_tensor rows = tc_cat(TC_TENSORS(pixels, ones), 1);
    tc_tensor sums = tc_index_add(tc_full(ctx, 0, TC_F32, COLOURS, 4), 0, nearest, rows);
    tc_tensor count = tc_slice(sums, 1, 3, 4, 1);
    tc_tensor mean = tc_div(tc_slice(sums, 1, 0, 3, 1), tc_maximum(count, 1));
    tc_tensor moved = tc_assign(colours, tc_where(tc_gt(count, 0), mean, colours));
    tc_tensor error = tc_mean(tc_min(apart, TC_AXES(1), false), TC_ALL, false);
    CHECK_OK(tc_compile_fn(TC_TENSORS(), TC_TENSORS(error, moved), NULL, &f), ctx);
    return f;
}

/* The same step in plain C. */
static double plain_step(const unsigned char *photo, int n, double colours[COLOURS][3])
{
    double sums[COLOURS][4] = {{0}}, error = 0;
    for (int i = 0; i < n; i++) {
        double least = 1e30;
        int nearest = 0;
        for (int k = 0; k < COLOURS; k++) {
            double apart = 0;
            for (int c = 0; c < 3; c++) {
                apart += (photo[3 * i + c] - colours[k][c]) * (photo[3 * i + c] - colours[k][c]);
            }
            nearest = apart < least ? k : nearest;
            least = fmin(least, apart);
        }
        for (int c = 0; c < 4; c++) {
            sums[nearest][c] += c < 3 ? photo[3 * i + c] : 1;
        }
        error += least / n;
    }
    for (int k = 0; k < COLOURS; k++) {
        for (int c = 0; c < 3 && sums[k][3] > 0; c++) {
            colours[k][c] = sums[k][c] / sums[k][3];
        }
    }
    return error;
}

int main(int argc, char **argv)
{
    int w, h;
    unsigned char *photo = ppm_read(argc > 1 ? argv[1] : "examples/data/chelsea.ppm", &w, &h);
    float start[COLOURS][3], error = 0;
    double plain[COLOURS][3], worst = 0;
    int n = w * h;
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    for (int i = 0; i < COLOURS * 3; i++) { /* pixels from all over the picture */
        int at = i / 3 * (n / COLOURS) + w / 2;
        start[i / 3][i % 3] = photo[at % n * 3 + i % 3];
        plain[i / 3][i % 3] = (double)start[i / 3][i % 3];
    }
    tc_tensor pixels = tc_cast(tc_borrow(ctx, photo, TC_U8, n, 3), TC_F32);
    tc_tensor colours = tc_param(ctx, start, TC_F32, COLOURS, 3);
    tc_program *step = compile_step(pixels, colours);
    double begin = now_us();
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(tc_run(step, TC_BUFS(), TC_BUFS(TC_BUF(&error, 1))), step);
        double expected = plain_step(photo, n, plain);
        worst = fmax(worst, fabs((double)error / expected - 1));
        if (i == 0 || i == 4 || i == STEPS - 1) {
            printf("  step %2d: mean distance %.2f\n", i + 1, sqrt((double)error));
        }
    }
    printf("%d pixels, %d colours, %.2f ms a step with its check\n", n, (int)COLOURS,
           (now_us() - begin) * 1e-3 / STEPS);
    if (argc > 2) { /* the photograph in these colours */
        tc_tensor nearest = tc_argmin(distances(pixels, colours), 1, false);
        tc_tensor painted = tc_index_select(tc_cast(tc_round(colours), TC_U8), 0, nearest);
        CHECK_OK(tc_read(painted, photo, n * 3), painted);
        ppm_write(argv[2], "", photo, w, h);
    }
    free(photo);
    tc_program_free(step);
    tc_ctx_free(ctx);
    return report_check(worst, 1e-3, "relative difference of an error");
}
