/* 03_image.c - an image pipeline on a real photograph, PPM in and out:
 *     blur (separable Gaussian), unsharp mask, filmic tone curve, and an edge map (Sobel).
 * Usage: 03_image [in.ppm [out_prefix]]. Every stage is a formula over whole images; tc decides
 * what becomes one kernel.
 *
 * Prints kernels, bytes and time, fused and op by op, and the largest difference from plain C.
 * Writes PREFIXblur.ppm, PREFIXsharp.ppm, PREFIXtone.ppm and PREFIXedges.ppm.
 *
 * Build, from the project's root: cc -O2 -I. examples/03_image.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"
#include "image_plain.h"
#include "ppm.h"

enum { RADIUS = 3, OUTS = 4 };
static const float weights[RADIUS + 1] = {0.266f, 0.213f, 0.109f, 0.045f};

/* x with its first and last row (or column) repeated RADIUS times. */
static tc_tensor widen(tc_tensor x, int axis)
{
    tc_tensor first = tc_slice(x, axis, 0, 1, 1), last = tc_slice(x, axis, -1, TC_END, 1);
    return tc_cat(TC_TENSORS(first, first, first, x, last, last, last), axis);
}

/* x without `cut` elements at each end of the axis, seen from `by` further on. */
static tc_tensor view(tc_tensor x, int axis, int64_t cut, int64_t by)
{
    return tc_slice(x, axis, cut + by, tc_size(x, axis) - cut + by, 1);
}

static tc_tensor blur(tc_tensor x, int axis)
{
    tc_tensor sum = tc_mul(view(x, axis, RADIUS, 0), weights[0]);
    for (int r = 1; r <= RADIUS; r++) {
        tc_tensor pair = tc_add(view(x, axis, RADIUS, -r), view(x, axis, RADIUS, r));
        sum = tc_add(sum, tc_mul(pair, weights[r]));
    }
    return sum;
}

/* a filmic curve: x (2.51 x + 0.03) / (x (2.43 x + 0.59) + 0.14) */
static tc_tensor tone(tc_tensor x)
{
    tc_tensor up = tc_mul(x, tc_add(tc_mul(x, 2.51), 0.03));
    tc_tensor down = tc_add(tc_mul(x, tc_add(tc_mul(x, 2.43), 0.59)), 0.14);
    return tc_div(up, down);
}

/* Sum of the neighbours on both sides along an axis and twice the element itself. */
static tc_tensor smooth(tc_tensor x, int axis)
{
    return tc_add(tc_add(view(x, axis, 1, -1), view(x, axis, 1, 1)),
                  tc_mul(view(x, axis, 1, 0), 2));
}

static tc_tensor edges(tc_tensor luma)
{
    tc_tensor down = smooth(luma, 0), across = smooth(luma, 1);
    tc_tensor dx = tc_sub(view(down, 1, 1, 1), view(down, 1, 1, -1));
    tc_tensor dy = tc_sub(view(across, 0, 1, 1), view(across, 0, 1, -1));
    return tc_sqrt(tc_add(tc_square(dx), tc_square(dy)));
}

static tc_tensor to_bytes(tc_tensor x)
{
    return tc_cast(tc_round(tc_mul(tc_minimum(tc_maximum(x, 0), 1), 255)), TC_U8);
}

/* image [h, w, 3] in bytes -> blurred, sharpened, tone-mapped, edges */
static tc_tensors formula(tc_tensor image, tc_tensor out[OUTS])
{
    tc_tensor wide = tc_div(widen(widen(image, 0), 1), 255);
    tc_tensor x = view(view(wide, 0, RADIUS, 0), 1, RADIUS, 0);
    tc_tensor soft = blur(blur(wide, 0), 1);
    tc_tensor sharp = tc_add(x, tc_mul(tc_sub(x, soft), 1.5));
    tc_tensor gray = tc_copy_in(image.ctx, ((float[]){0.299f, 0.587f, 0.114f}), TC_F32, 3);
    tc_tensor luma = tc_sum(tc_mul(wide, gray), TC_AXES(2), false);
    luma = view(view(luma, 0, RADIUS - 1, 0), 1, RADIUS - 1, 0);
    out[0] = to_bytes(soft);
    out[1] = to_bytes(sharp);
    out[2] = to_bytes(tone(sharp));
    out[3] = tc_expand(tc_unsqueeze(to_bytes(edges(luma)), 2), -1, -1, 3);
    return (tc_tensors){out, OUTS};
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"blur", "sharp", "tone", "edges"};
    const char *prefix = argc > 2 ? argv[2] : "build/chelsea_";
    int w, h;
    unsigned char *photo = ppm_read(argc > 1 ? argv[1] : "examples/data/chelsea.ppm", &w, &h);
    unsigned char *out[OUTS];
    int64_t n = (int64_t)w * h * 3;
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
    double us;
    printf("a photograph of %d x %d pixels: four pictures\n", w, h);
    REPORT_FUSED(f, us, tc_run(f, TC_BUFS(TC_BUF(photo, n)), (tc_bufs){bufs, OUTS}));
    REPORT_OP_BY_OP(formula(tc_borrow(ctx, photo, TC_U8, h, w, 3), results), us);
    double worst = plain_check(&(plain_image){w, h, photo}, weights, RADIUS, out);
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
