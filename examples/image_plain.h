/* examples/image_plain.h - the four pictures of 03_image.c in plain C loops, to check against.
 * Every value is a float and every formula in the order of the example, so even the last bit has
 * only one way to differ: the order in which the three colours are added. */
#ifndef IMAGE_PLAIN_H
#define IMAGE_PLAIN_H

#include <math.h>
#include <stdlib.h>

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

static inline float plain_column(const plain_image *p, const float *weights, int radius, int y,
                                 int x, int c)
{
    float sum = plain_at(p, y, x, c) * weights[0];
    for (int r = 1; r <= radius; r++) {
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
static inline double plain_check(const plain_image *p, const float *weights, int radius,
                                 unsigned char *const out[4])
{
    double worst = 0;
    float *columns = malloc(sizeof(float) * (size_t)(p->w + 2 * radius));
    for (int i = 0; i < p->h * 3; i++) {
        int y = i / 3, c = i % 3;
        if (!columns) {
            return INFINITY;
        }
        for (int x = -radius; x < p->w + radius; x++) {
            columns[x + radius] = plain_column(p, weights, radius, y, x, c);
        }
        for (int x = 0; x < p->w; x++) {
            const float *at = columns + x + radius;
            float soft = at[0] * weights[0];
            for (int r = 1; r <= radius; r++) {
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

#endif
