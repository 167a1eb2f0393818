/* 03_image.c - a photograph blurred (separable Gaussian), sharpened, toned by a filmic curve and
 * outlined (Sobel): formulas over whole images; tc decides what becomes one kernel.
 * Prints kernels, bytes and time, fused and op by op, and the largest difference from plain C;
 * writes four pictures (image_plain.h, with compile and run). Usage: 03_image [in.ppm [prefix]].
 * Build, from the project's root: cc -O2 -I. examples/03_image.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "image_plain.h"

/* x without the R elements at each end of an axis, seen from `by` further on. */
static tc_tensor view(tc_tensor x, int axis, int64_t by)
{
    return tc_slice(x, axis, R + by, tc_size(x, axis) - R + by, 1);
}

static tc_tensor blur(tc_tensor x, int axis)
{
    tc_tensor sum = tc_mul(view(x, axis, 0), weights[0]);
    for (int r = 1; r <= R; r++) {
        sum = tc_add(sum, tc_mul(tc_add(view(x, axis, -r), view(x, axis, r)), weights[r]));
    }
    return sum;
}

static tc_tensor tone(tc_tensor x) /* x (2.51 x + 0.03) / (x (2.43 x + 0.59) + 0.14) */
{
    return tc_div(tc_mul(x, tc_add(tc_mul(x, 2.51), 0.03)),
                  tc_add(tc_mul(x, tc_add(tc_mul(x, 2.43), 0.59)), 0.14));
}

static tc_tensor sobel(tc_tensor x, int axis) /* difference along the axis, smooth across it */
{
    tc_tensor d = tc_sub(view(x, axis, 1), view(x, axis, -1)), twice = view(d, 1 - axis, 0);
    return tc_add(tc_add(view(d, 1 - axis, -1), view(d, 1 - axis, 1)), tc_mul(twice, 2));
}

/* image [h, w, 3] in bytes -> blurred, sharpened, toned, outlined */
static tc_tensors formula(tc_tensor image, tc_tensor out[OUTS])
{
    tc_tensor wide = tc_pad_mode(tc_pad_mode(image, 0, R, R, "replicate"), 1, R, R, "replicate");
    tc_tensor all = tc_div(wide, 255), x = view(view(all, 0, 0), 1, 0);
    tc_tensor soft = blur(blur(all, 0), 1);
    tc_tensor gray = tc_copy_in(image.ctx, ((float[]){0.299f, 0.587f, 0.114f}), TC_F32, 3);
    tc_tensor luma = tc_sum(tc_mul(all, gray), TC_AXES(2), false);
    tc_tensor edges = tc_add(tc_square(sobel(luma, 0)), tc_square(sobel(luma, 1)));
    tc_tensor sharp = tc_add(x, tc_mul(tc_sub(x, soft), 1.5));
    tc_tensor line = tc_expand(tc_unsqueeze(tc_sqrt(edges), 2), -1, -1, 3);
    tc_tensor four[OUTS] = {soft, sharp, tone(sharp), line};
    for (int i = 0; i < OUTS; i++) {
        out[i] = tc_cast(tc_round(tc_mul(tc_minimum(tc_maximum(four[i], 0), 1), 255)), TC_U8);
    }
    return (tc_tensors){out, OUTS};
}

int main(int argc, char **argv)
{
    return pictures(argc, argv, formula);
}
