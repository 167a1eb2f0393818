/* examples/image_plain.h - around the formulas of 03_image.c: files, program and report, and the
 * four pictures in plain C loops, to check against. Every value is a float; rounding differs
 * only by the order in which colours and neighbours are added. */
#ifndef IMAGE_PLAIN_H
#define IMAGE_PLAIN_H

#include <math.h>
#include <stdlib.h>

#include "example.h"
#include "ppm.h"

enum { R = 3, OUTS = 4 }; /* of the Gaussian; pictures */
static const float weights[R + 1] = {0.266f, 0.213f, 0.109f, 0.045f};

typedef struct plain_image {
    int w, h;
    const unsigned char *pixels;
} plain_image;

/* The pixel at row y and column x as 0..1; outside, the nearest one. */
static inline float plain_at(const plain_image *p, int y, int x, int c)
{
    y = y < 0 ? 0 : y >= p->h ? p->h - 1 : y;
    x = x < 0 ? 0 : x >= p->w ? p->w - 1 : x;
    return (float)p->pixels[(y * p->w + x) * 3 + c] / 255.0f;
}

static inline float plain_column(const plain_image *p, int y, int x, int c)
{
    float sum = plain_at(p, y, x, c) * weights[0];
    for (int r = 1; r <= R; r++) {
        sum += (plain_at(p, y - r, x, c) + plain_at(p, y + r, x, c)) * weights[r];
    }
    return sum;
}

static inline float plain_luma(const plain_image *p, int y, int x)
{
    return plain_at(p, y, x, 0) * 0.299f + plain_at(p, y, x, 1) * 0.587f +
           plain_at(p, y, x, 2) * 0.114f;
}

static inline float plain_edge(const plain_image *p, int y, int x)
{
    float l[3][3];
    for (int i = 0; i < 9; i++) {
        l[i / 3][i % 3] = plain_luma(p, y + i / 3 - 1, x + i % 3 - 1);
    }
    float dx = (l[0][2] + l[2][2] + l[1][2] * 2) - (l[0][0] + l[2][0] + l[1][0] * 2);
    float dy = (l[2][0] + l[2][2] + l[2][1] * 2) - (l[0][0] + l[0][2] + l[0][1] * 2);
    return sqrtf(dx * dx + dy * dy);
}

static inline unsigned char plain_byte(float x)
{
    return (unsigned char)rintf(fminf(fmaxf(x, 0), 1) * 255);
}

static inline double plain_differ(unsigned char found, float expected)
{
    return fabs((double)found - plain_byte(expected));
}

/* The largest difference of a byte in out[0..3]: blurred, sharpened, tone-mapped, edges. */
static inline double plain_check(const plain_image *p, unsigned char *const out[OUTS])
{
    double worst = 0;
    float *columns = malloc(sizeof(float) * (size_t)(p->w + 2 * R));
    for (int i = 0; i < p->h * 3; i++) {
        int y = i / 3, c = i % 3;
        if (!columns) {
            return INFINITY;
        }
        for (int x = -R; x < p->w + R; x++) {
            columns[x + R] = plain_column(p, y, x, c);
        }
        for (int x = 0; x < p->w; x++) {
            const float *at = columns + x + R;
            float soft = at[0] * weights[0];
            for (int r = 1; r <= R; r++) {
                soft += (at[-r] + at[r]) * weights[r];
            }
            float here = plain_at(p, y, x, c);
            float sharp = here + (here - soft) * 1.5f;
            float up = sharp * (sharp * 2.51f + 0.03f);
            float down = sharp * (sharp * 2.43f + 0.59f) + 0.14f;
            int n = (y * p->w + x) * 3 + c;
            worst = fmax(worst, plain_differ(out[0][n], soft));
            worst = fmax(worst, plain_differ(out[1][n], sharp));
            worst = fmax(worst, plain_differ(out[2][n], up / down));
            worst = fmax(worst, plain_differ(out[3][n], plain_edge(p, y, x)));
        }
    }
    free(columns);
    return worst;
}

/* Compiles the formula for a photograph, runs it, writes and checks the pictures; the exit code. */
static inline int pictures(int argc, char **argv,
                           tc_tensors (*formula)(tc_tensor image, tc_tensor out[OUTS]))
{
    static const char *const names[] = {"blur", "sharp", "tone", "edges"};
    const char *prefix = argc > 2 ? argv[2] : "build/chelsea_";
    int w, h;
    unsigned char *photo = ppm_read(argc > 1 ? argv[1] : "examples/data/chelsea.ppm", &w, &h);
    unsigned char *out[OUTS];
    int64_t n = (int64_t)w * h * 3;
    double us;
    tc_ctx *ctx;
    tc_program *f;
    tc_tensor results[OUTS];
    tc_buf bufs[OUTS];
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    tc_tensor image = tc_input(ctx, "image", TC_U8, h, w, 3);
    CHECK_OK(tc_compile_fn(TC_TENSORS(image), formula(image, results), NULL, &f), ctx);
    for (int i = 0; i < OUTS; i++) {
        out[i] = malloc((size_t)n);
        bufs[i] = TC_BUF(out[i], n);
    }
    printf("a photograph of %d x %d pixels: four pictures\n", w, h);
    REPORT_FUSED(f, us, tc_run(f, TC_BUFS(TC_BUF(photo, n)), (tc_bufs){bufs, OUTS}));
    REPORT_OP_BY_OP(formula(tc_borrow(ctx, photo, TC_U8, h, w, 3), results), us);
    double worst = plain_check(&(plain_image){w, h, photo}, out);
    for (int i = 0; i < OUTS; i++) {
        ppm_write(prefix, names[i], out[i], w, h);
        free(out[i]);
    }
    printf("  wrote %s{blur,sharp,tone,edges}.ppm\n", prefix);
    free(photo);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return report_check(worst, 1, "difference of a byte");
}

#endif
