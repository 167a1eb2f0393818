/* 03_image.c - an image pipeline on a real photograph, PPM in and out:
 *     blur (separable Gaussian), unsharp mask, filmic tone curve, and an edge map (Sobel).
 * Usage: 03_image [in.ppm [out_prefix]]. Every stage is written as a formula over whole images; tc
 * decides what becomes one kernel. */
#define TC_IMPLEMENTATION
#include "tc.h"

#include <string.h>

#include "example.h"

enum { RADIUS = 3 };

static unsigned char *read_ppm(const char *path, int *width, int *height)
{
    FILE *file = fopen(path, "rb");
    int max;
    if (!file || fscanf(file, "P6 %d %d %d", width, height, &max) != 3 || max != 255 ||
        fgetc(file) == EOF) {
        fprintf(stderr, "%s: not an 8-bit P6 image\n", path);
        exit(1);
    }
    size_t n = (size_t)*width * (size_t)*height * 3;
    unsigned char *pixels = malloc(n);
    if (!pixels || fread(pixels, 1, n, file) != n) {
        fprintf(stderr, "%s: too short\n", path);
        exit(1);
    }
    fclose(file);
    return pixels;
}

static void write_ppm(const char *prefix, const char *name, const unsigned char *pixels, int width,
                      int height)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s.ppm", prefix, name);
    FILE *file = fopen(path, "wb");
    if (file) {
        fprintf(file, "P6\n%d %d\n255\n", width, height);
        fwrite(pixels, 3, (size_t)width * (size_t)height, file);
        fclose(file);
    }
}

/* x shifted by `by` along an axis, edges read as 0. */
static tc_tensor shift(tc_tensor x, int axis, int by)
{
    return tc_pad(x, axis, by, -by, 0);
}

static tc_tensor blur(tc_tensor x)
{
    static const float weight[RADIUS + 1] = {0.266f, 0.213f, 0.109f, 0.045f};
    for (int axis = 0; axis < 2; axis++) {
        tc_tensor sum = tc_mul(x, weight[0]);
        for (int r = 1; r <= RADIUS; r++) {
            sum = tc_add(sum, tc_mul(tc_add(shift(x, axis, r), shift(x, axis, -r)), weight[r]));
        }
        x = sum;
    }
    return x;
}

/* a filmic curve: x (2.51 x + 0.03) / (x (2.43 x + 0.59) + 0.14) */
static tc_tensor tone(tc_tensor x)
{
    tc_tensor up = tc_mul(x, tc_add(tc_mul(x, 2.51), 0.03));
    tc_tensor down = tc_add(tc_mul(x, tc_add(tc_mul(x, 2.43), 0.59)), 0.14);
    return tc_div(up, down);
}

static tc_tensor edges(tc_tensor luma)
{
    tc_tensor smooth_y = tc_add(tc_add(shift(luma, 0, 1), shift(luma, 0, -1)), tc_mul(luma, 2));
    tc_tensor smooth_x = tc_add(tc_add(shift(luma, 1, 1), shift(luma, 1, -1)), tc_mul(luma, 2));
    tc_tensor dx = tc_sub(shift(smooth_y, 1, -1), shift(smooth_y, 1, 1));
    tc_tensor dy = tc_sub(shift(smooth_x, 0, -1), shift(smooth_x, 0, 1));
    return tc_sqrt(tc_add(tc_square(dx), tc_square(dy)));
}

static tc_tensor to_bytes(tc_tensor x)
{
    return tc_cast(tc_round(tc_mul(tc_minimum(tc_maximum(x, 0), 1), 255)), TC_U8);
}

int main(int argc, char **argv)
{
    const char *prefix = argc > 2 ? argv[2] : "build/chelsea_";
    int w, h;
    unsigned char *pixels = read_ppm(argc > 1 ? argv[1] : "examples/data/chelsea.ppm", &w, &h);
    int64_t n = (int64_t)w * h * 3;
    tc_ctx *ctx;
    tc_program *f;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    tc_tensor image = tc_input(ctx, "image", TC_U8, h, w, 3);
    tc_tensor x = tc_div(image, 255);
    tc_tensor soft = blur(x);
    tc_tensor sharp = tc_add(x, tc_mul(tc_sub(x, soft), 1.5));
    tc_tensor weights = tc_copy_in(ctx, ((float[]){0.299f, 0.587f, 0.114f}), TC_F32, 3);
    tc_tensor edge =
        tc_expand(tc_unsqueeze(edges(tc_sum(tc_mul(x, weights), TC_AXES(2), false)), 2), h, w, 3);
    tc_tensor outs[] = {to_bytes(soft), to_bytes(sharp), to_bytes(tone(sharp)), to_bytes(edge)};
    static const char *const names[] = {"blur", "sharp", "tone", "edges"};
    CHECK_OK(tc_compile_fn(TC_TENSORS(image), (tc_tensors){outs, 4}, NULL, &f), ctx);

    unsigned char *out[4];
    tc_buf bufs[4];
    for (int i = 0; i < 4; i++) {
        out[i] = malloc((size_t)n);
        bufs[i] = TC_BUF(out[i], n);
    }
    double us;
    BEST_US(20, us, CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(pixels, n)), (tc_bufs){bufs, 4}), f));
    printf("image %d x %d: four pictures in %.0f us\n", w, h, us);
    tc_explain(f, stdout);
    for (int i = 0; i < 4; i++) {
        write_ppm(prefix, names[i], out[i], w, h);
        free(out[i]);
    }
    printf("wrote %s{blur,sharp,tone,edges}.ppm\n", prefix);
    free(pixels);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return 0;
}
