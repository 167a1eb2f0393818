/* tests/cuda/test_schedules.c - every schedule of GPUs on the emulation (emulate.h), with tails and
 * dtypes: the bits of its plan, also of rows that parts of a warp hold; variances of numbers that
 * are far from 0, against two passes in f64. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "planned.h"

/* ---- every schedule, with tails and dtypes ---- */

/* One program of one input of this shape. */
typedef struct schedule_case {
    const char *note; /* a part of the line that tc_explain prints for the schedule */
    tc_dtype dtype;
    int64_t shape[3];
    int rank;
    tc_tensor (*make)(tc_tensor x);
} schedule_case;

static tc_tensor sc_softmax(tc_tensor x)
{
    return tc_softmax(x, -1);
}
/* The first rows of x, turned, times all of it. */
static tc_tensor sc_few(tc_tensor x)
{
    return tc_matmul(tc_permute(tc_slice(x, 1, 0, 5, 1), 1, 0), x);
}
static tc_tensor sc_one(tc_tensor x)
{
    return tc_matmul(tc_permute(tc_slice(x, 1, 0, 1, 1), 1, 0), x);
}
static tc_tensor sc_few_columns(tc_tensor x)
{
    return tc_matmul(tc_permute(x, 1, 0), tc_slice(x, 1, 0, 5, 1));
}
static tc_tensor sc_places(tc_tensor x)
{
    return tc_add(tc_argmax(x, 1, false), tc_mul(tc_argmin(x, 1, false), 100000));
}
static tc_tensor sc_var(tc_tensor x)
{
    return tc_var(x, TC_AXES(-1), 1, true);
}
static tc_tensor sc_moments(tc_tensor x)
{
    return tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
}
static tc_tensor sc_pool(tc_tensor x)
{
    const tc_pool how = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
    return tc_max_pool2d(tc_unsqueeze(x, 0), &how);
}
static tc_tensor sc_pool_inside(tc_tensor x)
{
    const tc_pool how = {.kernel = {2, 2}, .stride = {2, 2}};
    return tc_max_pool2d(tc_unsqueeze(x, 0), &how);
}
static tc_tensor sc_pool_back(tc_tensor x)
{
    tc_tensor grad = TC_NONE;
    tc_grad(tc_sum(tc_square(sc_pool(x)), TC_ALL, false), &x, 1, &grad);
    return grad;
}
static tc_tensor sc_sum(tc_tensor x)
{
    return tc_sum(x, TC_AXES(-1), false);
}
static tc_tensor sc_product(tc_tensor x)
{
    return tc_prod(x, TC_AXES(-1), false);
}
static tc_tensor sc_least(tc_tensor x)
{
    return tc_argmin(x, -1, false);
}
static tc_tensor sc_all(tc_tensor x)
{
    return tc_all(tc_gt(x, -3), TC_AXES(-1), false);
}
static tc_tensor sc_columns(tc_tensor x)
{
    return tc_sum(x, TC_AXES(0), false);
}
static tc_tensor sc_columns_each(tc_tensor x)
{
    return tc_sum(x, TC_AXES(1), false);
}
static tc_tensor sc_softmax_columns(tc_tensor x)
{
    return tc_softmax(tc_permute(x, 1, 0), 1);
}
static tc_tensor sc_images(tc_tensor x)
{
    tc_tensor var, mean;
    tc_var_mean(x, TC_AXES(0, 2), 0, true, &var, &mean);
    return tc_mul(tc_sub(x, mean), tc_rsqrt(tc_add(var, 1)));
}
static tc_tensor sc_column_best(tc_tensor x)
{
    return tc_argmax(x, 0, false);
}
static tc_tensor sc_running(tc_tensor x)
{
    return tc_add(tc_cumsum(x, 0), x);
}
static tc_tensor sc_running_rows(tc_tensor x)
{
    return tc_mul(tc_cumsum(x, 1), 2);
}
static tc_tensor sc_running_alone(tc_tensor x)
{
    return tc_cumsum(x, 1);
}
static tc_tensor sc_running_weights(tc_tensor x)
{
    return tc_cumsum(tc_softmax(x, -1), -1);
}
static tc_tensor sc_running_share(tc_tensor x)
{
    return tc_cumsum(tc_div(x, tc_max(x, TC_AXES(0), true)), 0);
}
static tc_tensor sc_running_back(tc_tensor x)
{
    tc_tensor grad, y = tc_mul(tc_cumsum(x, 1), tc_sin(x));
    return tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &grad) ? y : grad;
}
static tc_tensor sc_running_product(tc_tensor x)
{
    return tc_cumprod(tc_add(tc_mul(x, 2), 1), 1);
}
static tc_tensor sc_running_most(tc_tensor x)
{
    tc_tensor most, place;
    tc_cummax(tc_mul(x, tc_cos(tc_mul(x, 0.001))), 1, &most, &place);
    return tc_cat(TC_TENSORS(tc_cast(most, TC_F64), tc_cast(place, TC_F64)), 0);
}
static tc_tensor sc_turned(tc_tensor x)
{
    return tc_add(tc_permute(x, 1, 0), 1);
}
static tc_tensor sc_both(tc_tensor x)
{
    return tc_sub(tc_mul(tc_permute(x, 1, 0), 2), tc_flip(tc_permute(x, 1, 0), 0));
}
static tc_tensor sc_square(tc_tensor x)
{
    return tc_add(x, tc_permute(x, 1, 0));
}
static tc_tensor sc_behind(tc_tensor x)
{
    return tc_add(tc_permute(x, 2, 0, 1), 3);
}
static tc_tensor sc_padded(tc_tensor x)
{
    return tc_add(tc_permute(tc_pad(x, 1, 5, 7, 2), 1, 0), 1);
}
static tc_tensor sc_wave(tc_tensor x)
{
    return tc_sin(tc_cos(tc_mul(x, 3)));
}

static tc_tensor sc_gram(tc_tensor x)
{
    return tc_matmul(x, tc_permute(x, 1, 0));
}
static tc_tensor sc_inner(tc_tensor x)
{
    return tc_relu(tc_add(tc_matmul(tc_permute(x, 1, 0), x), 0.5));
}
static tc_tensor sc_long_side(tc_tensor x)
{
    return tc_matmul(tc_permute(x, 1, 0), tc_slice(x, 1, 7, 71, 1));
}
static tc_tensor sc_wide_side(tc_tensor x)
{
    return tc_matmul(tc_permute(tc_slice(x, 1, 7, 71, 1), 1, 0), x);
}
static tc_tensor sc_evaluated(tc_tensor x)
{
    return tc_matmul(tc_mul(x, 3), tc_add(tc_permute(x, 1, 0), 1));
}
static tc_tensor sc_dot(tc_tensor x)
{
    return tc_matmul(x, x);
}
static tc_tensor sc_batched(tc_tensor x)
{
    return tc_matmul(x, tc_permute(x, 0, 2, 1));
}

/* Images of 24 channels, and filters that are another part of x. */
typedef struct image_case {
    int64_t images, height, width, filters, kernel;
    tc_conv how;
} image_case;
static tc_tensor sc_image(tc_tensor x, const image_case *c)
{
    int64_t groups = c->how.groups ? c->how.groups : 1, each = 24 / groups;
    int64_t n = c->images * 24 * c->height * c->width, weights = each * c->kernel * c->kernel;
    tc_tensor flat = tc_reshape(x, -1);
    tc_tensor image = tc_reshape(tc_slice(flat, 0, 0, n, 1), c->images, 24, c->height, c->width);
    tc_tensor filter = tc_slice(flat, 0, n, n + c->filters * weights, 1);
    filter = tc_reshape(filter, c->filters, each, c->kernel, c->kernel);
    return tc_conv2d(image, filter, TC_NONE, &c->how);
}
static const image_case image_same = {2, 9, 7, 33, 3, {.padding = {1, 1}}};
static const image_case image_large = {1, 184, 183, 64, 1, {.stride = {1, 1}}};
static const image_case image_apart = {
    2, 14, 13, 34, 3, {.padding = {1, 2}, .stride = {2, 2}, .dilation = {1, 2}}};
static const image_case image_groups = {1, 8, 9, 96, 3, {.padding = {1, 1}, .groups = 2}};
static const image_case image_each = {3, 11, 13, 24, 3, {.padding = {1, 1}, .groups = 24}};
static const image_case image_each_apart = {
    2, 9, 10, 48, 5, {.padding = {2, 2}, .stride = {2, 2}, .groups = 24}};
static const image_case image_few = {2, 7, 9, 5, 3, {.padding = {2, 0}, .dilation = {2, 1}}};
static const image_case image_four = {1, 8, 16, 32, 3, {.padding = {1, 1}, .groups = 4}};
static const image_case image_rows = {1, 66, 66, 32, 3, {.padding = {1, 1}, .groups = 4}};
static tc_tensor sc_windows_rows(tc_tensor x)
{
    return sc_image(x, &image_rows);
}
static tc_tensor sc_windows_each(tc_tensor x)
{
    return tc_relu(sc_image(x, &image_each));
}
static tc_tensor sc_windows_each_apart(tc_tensor x)
{
    return sc_image(x, &image_each_apart);
}
static tc_tensor sc_windows_few(tc_tensor x)
{
    return sc_image(tc_add(x, 1), &image_few);
}
static tc_tensor sc_windows_four(tc_tensor x)
{
    return sc_image(x, &image_four);
}
static tc_tensor sc_windows(tc_tensor x)
{
    return tc_relu(sc_image(x, &image_same));
}
static tc_tensor sc_windows_large(tc_tensor x)
{
    return sc_image(x, &image_large);
}
static tc_tensor sc_windows_apart(tc_tensor x)
{
    return sc_image(tc_mul(x, 2), &image_apart);
}
static tc_tensor sc_windows_groups(tc_tensor x)
{
    return sc_image(x, &image_groups);
}
/* Windows of channels by themselves, last in the image, the filter and the result. */
typedef struct last_case {
    int64_t images, height, width, channels, kernel, stride, apart;
} last_case;
static tc_tensor sc_last_windows(tc_tensor image, const last_case *c, double fill)
{
    int64_t over = (c->kernel - 1) * c->apart + 1, pad = over / 2;
    tc_tensor x = tc_pad(tc_pad(image, 1, pad, pad, fill), 2, pad, pad, fill);
    for (int i = 0; i < 2; i++) {
        x = tc_slice(tc_unfold(x, 1 + i, over, c->stride), 4 + i, 0, over, c->apart);
    }
    return x;
}
static tc_tensor sc_last(tc_tensor x, const last_case *c)
{
    int64_t n = c->images * c->height * c->width * c->channels, places = c->kernel * c->kernel;
    tc_tensor flat = tc_reshape(x, -1), part[2];
    part[0] = tc_reshape(tc_slice(flat, 0, 0, n, 1), c->images, c->height, c->width, c->channels);
    part[0] = sc_last_windows(part[0], c, 0);
    part[1] = tc_reshape(tc_slice(flat, 0, n, n + c->channels * places, 1), c->kernel, c->kernel,
                         c->channels);
    return tc_relu(tc_einsum("nhwcij,ijc->nhwc", TC_TENSORS_N(part, 2)));
}
static const last_case last_same = {1, 40, 48, 64, 3, 1, 1};
static const last_case last_halving = {1, 51, 66, 72, 5, 2, 1};
static const last_case last_apart = {2, 14, 15, 96, 3, 1, 2};
static const last_case last_few = {3, 9, 8, 12, 3, 1, 1};
static tc_tensor sc_last_same(tc_tensor x)
{
    return sc_last(x, &last_same);
}
static tc_tensor sc_last_halving(tc_tensor x)
{
    return sc_last(x, &last_halving);
}
static tc_tensor sc_last_apart(tc_tensor x)
{
    return sc_last(x, &last_apart);
}
static tc_tensor sc_last_few(tc_tensor x)
{
    return sc_last(x, &last_few);
}
/* Filters of few channels, which are contiguous. */
static tc_tensor sc_last_filters(tc_tensor x)
{
    const last_case how = {1, 33, 32, 3, 3, 1, 1};
    tc_tensor flat = tc_reshape(x, -1), part[2];
    part[0] = tc_reshape(tc_slice(flat, 0, 0, 3168, 1), 1, 33, 32, 3);
    part[0] = sc_last_windows(part[0], &how, 0);
    part[1] = tc_reshape(tc_slice(flat, 0, 3168, 9864, 1), 3, 3, 3, 248);
    return tc_einsum("nhwcij,ijck->nhwk", TC_TENSORS_N(part, 2));
}
static tc_tensor sc_last_pool(tc_tensor x)
{
    const last_case how = {1, 0, 0, 0, 3, 2, 1};
    return tc_max(sc_last_windows(tc_unsqueeze(x, 0), &how, -INFINITY), TC_AXES(-1, -2), false);
}
/* Three channels and zeros, contiguous in the result, around an image. */
static tc_tensor sc_channels_together(tc_tensor x)
{
    return tc_permute(tc_pad(tc_pad(tc_pad(x, 0, 0, 1, 0), 1, 2, 2, 0), 2, 3, 3, 0), 1, 2, 0);
}
/* To the image and to the filter at once. */
static tc_tensor sc_gradient(tc_tensor x, const image_case *c)
{
    tc_tensor y = sc_image(x, c), grad = TC_NONE;
    tc_tensor sum = tc_sum(tc_mul(tc_cast(y, TC_F32), 0.5), TC_ALL, false);
    tc_grad(tc_mul(sum, sum), &x, 1, &grad);
    return grad;
}
static tc_tensor sc_windows_back(tc_tensor x)
{
    return sc_gradient(x, &image_same);
}
static tc_tensor sc_windows_each_back(tc_tensor x)
{
    return sc_gradient(x, &image_each);
}
static tc_tensor sc_windows_four_back(tc_tensor x)
{
    return sc_gradient(x, &image_four);
}
static tc_tensor sc_windows_apart_back(tc_tensor x)
{
    return sc_gradient(x, &image_apart);
}
static tc_tensor sc_attention(tc_tensor x)
{
    tc_tensor scores = tc_mul(tc_matmul(x, tc_transpose(x, -2, -1)), 0.125);
    return tc_matmul(tc_softmax(scores, -1), x);
}
static tc_tensor sc_product_rows(tc_tensor x)
{
    return tc_log_softmax(tc_matmul(x, tc_transpose(x, -2, -1)), -1);
}
/* Numbers of eighths, from 0 to 7. */
static tc_tensor sc_eighths(tc_tensor x)
{
    return tc_cast(tc_floor(tc_add(x, 4)), TC_I32);
}
static tc_tensor sc_rows_added(tc_tensor x)
{
    tc_tensor which = tc_reshape(sc_eighths(tc_slice(x, 1, 0, 1, 1)), -1);
    return tc_index_add(tc_mul(tc_slice(x, 0, 0, 8, 1), 2), 0, which, tc_sub(x, 1));
}
static tc_tensor sc_columns_added(tc_tensor x)
{
    return tc_scatter_add(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(x), tc_mul(x, 0.3));
}
/* One line, and rows that are raised: what was stored last is read again soon. */
static tc_tensor sc_line_added(tc_tensor x)
{
    return tc_scatter_add(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(x), tc_mul(x, 0.3));
}
static tc_tensor sc_rows_raised(tc_tensor x)
{
    tc_tensor which = sc_eighths(tc_slice(x, 1, 0, 1, 1));
    which = tc_expand(tc_floor_divide(which, 3), tc_size(x, 0), tc_size(x, 1));
    return tc_scatter_max(tc_slice(x, 0, 0, 8, 1), 0, which, tc_sin(x));
}
static tc_tensor sc_lines_set(tc_tensor x)
{
    return tc_scatter(tc_slice(x, 1, 0, 8, 1), 1, sc_eighths(x), x);
}
static tc_tensor sc_part_raised(tc_tensor x)
{
    tc_tensor part = tc_slice(x, 1, 0, -3, 1);
    return tc_scatter_max(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(part), tc_neg(part));
}
static tc_tensor sc_read_back(tc_tensor x)
{
    tc_tensor grad, row = tc_gather(tc_slice(x, 0, 0, 8, 1), 0, sc_eighths(x));
    return tc_grad(tc_sum(tc_square(row), TC_ALL, false), &x, 1, &grad) ? row : grad;
}

static const schedule_case schedule_cases[] = {
    {"lanes", TC_F32, {40, 300}, 2, sc_rows_added},
    {"lanes", TC_F32, {9, 33}, 2, sc_rows_added},
    {"scalar", TC_F32, {301}, 1, sc_line_added},
    {"lanes", TC_F64, {40, 129}, 2, sc_rows_added},
    {"lanes", TC_F32, {39, 130}, 2, sc_rows_raised},
    {"lanes", TC_F64, {50, 70}, 2, sc_columns_added},
    {"lanes", TC_BF16, {50, 131}, 2, sc_columns_added},
    {"lanes", TC_F32, {77, 25}, 2, sc_lines_set},
    {"lanes", TC_F16, {40, 259}, 2, sc_part_raised},
    {"lanes", TC_F32, {64, 130}, 2, sc_read_back},
    {"LANES", TC_F32, {2, 40, 33}, 3, sc_attention},
    {"LANES", TC_F32, {70, 20}, 2, sc_attention},
    {"LANES", TC_F64, {33, 16}, 2, sc_attention},
    {"LANES", TC_F32, {2, 150, 7}, 3, sc_product_rows},
    {"tiles 16x128", TC_F32, {130, 140}, 2, sc_few},
    {"parts of", TC_F32, {700, 45}, 2, sc_few},
    {"parts of", TC_F64, {390, 70}, 2, sc_few_columns},
    {"parts of", TC_BF16, {1100, 130}, 2, sc_one},
    {"parts of", TC_F32, {512, 72}, 2, sc_one},
    {"mul_argmin_argmax", TC_F32, {2, 65536}, 2, sc_places},
    {"mul_argmin_argmax", TC_I8, {1, 70000}, 2, sc_places},
    {"mul_argmin_argmax", TC_BF16, {3, 24000}, 2, sc_places},
    {"tiles 64x64", TC_F32, {64, 32}, 2, sc_gram},
    {"tiles 64x64", TC_F32, {130, 51}, 2, sc_gram},
    {"tiles 64x64", TC_F32, {16, 192}, 2, sc_inner},
    {"tiles 16x128", TC_F32, {37, 70}, 2, sc_inner},
    {"tiles 64x64", TC_F64, {65, 33}, 2, sc_evaluated},
    {"tiles 16x128", TC_I32, {70, 20}, 2, sc_evaluated},
    {"tiles 16x128", TC_BF16, {70, 40}, 2, sc_gram},
    {"tiles", TC_F32, {3, 66, 40}, 3, sc_batched},
    {"LANES", TC_F32, {3, 700}, 2, sc_gram}, /* lanes of neighbours, and a sum of them */
    {"LANES(", TC_F32, {34003}, 1, sc_dot},
    {"LANES", TC_F32, {3, 11001}, 2, sc_gram},
    {"orders of sums", TC_F32, {4703, 7}, 2, sc_inner},
    {"tiles 128x128", TC_F32, {2040, 19}, 2, sc_gram},
    {"64 by 128 threads", TC_F32, {50, 4200}, 2, sc_long_side},
    {"128 by 128 threads", TC_F32, {50, 4200}, 2, sc_wide_side},
    {"tiles 128x128", TC_F32, {17, 2048}, 2, sc_inner},
    {"tiles 64x128", TC_F32, {809664}, 1, sc_windows_large},
    {"tiles 16x128", TC_F32, {12096}, 1, sc_windows_groups},
    {"points", TC_F32, {10512}, 1, sc_windows_each},
    {"points", TC_BF16, {10512}, 1, sc_windows_each},
    {"points", TC_F64, {5520}, 1, sc_windows_each_apart},
    {"points", TC_F16, {5520}, 1, sc_windows_each_apart},
    {"points", TC_F32, {4104}, 1, sc_windows_few},
    {"points", TC_I64, {4104}, 1, sc_windows_few},
    {"points", TC_F32, {4800}, 1, sc_windows_four},
    {"points by 256 threads, 8 each", TC_F32, {106272}, 1, sc_windows_rows},
    {"points by 256 threads, 4 each", TC_BF16, {3, 60, 70}, 3, sc_channels_together},
    {"vector 4 lanes, windows by 128 threads, 8 each", TC_F32, {123456}, 1, sc_last_same},
    {"vector 8 lanes, windows by 128 threads, 4 each", TC_BF16, {123456}, 1, sc_last_same},
    {"vector 2 lanes, windows by 128 threads, 8 each", TC_F64, {123456}, 1, sc_last_same},
    {"vector 4 lanes, windows by 128 threads, 3 each", TC_F32, {244152}, 1, sc_last_halving},
    {"vector 8 lanes, windows by 128 threads, 3 each", TC_F16, {41184}, 1, sc_last_apart},
    {"vector 4 lanes, windows by 128 threads, 1 each", TC_BF16, {2700}, 1, sc_last_few},
    {"vector 8 lanes, windows by 128 threads, 1 each", TC_BF16, {15, 17, 64}, 3, sc_last_pool},
    {"vector 2 lanes, windows by 128 threads, 7 each", TC_F32, {40, 84, 66}, 3, sc_last_pool},
    {"vector 8 lanes, windows by 128 threads, 4 each", TC_BF16, {9864}, 1, sc_last_filters},
    {"points", TC_F32, {10512}, 1, sc_windows_each_back},
    {"points", TC_F32, {4800}, 1, sc_windows_four_back},
    {"rows in registers", TC_F32, {5, 8192}, 2, sc_softmax},
    {"rows in registers", TC_F32, {3, 8190}, 2, sc_softmax},
    {"rows in registers", TC_F32, {7, 1003}, 2, sc_softmax},
    {"rows in registers", TC_F32, {4, 20000}, 2, sc_softmax},
    {"rows in registers", TC_F32, {9, 33}, 2, sc_softmax},
    {"rows in registers", TC_F64, {3, 1500}, 2, sc_softmax},
    {"rows in registers", TC_BF16, {3, 2051}, 2, sc_softmax},
    {"rows in registers", TC_F32, {5, 3001}, 2, sc_var},
    {"rows in registers", TC_F64, {9, 33}, 2, sc_var},
    {"rows", TC_F32, {2, 70001}, 2, sc_var},
    {"rows in registers", TC_F16, {3, 4096}, 2, sc_moments},
    {"rows in registers", TC_F32, {2, 3, 777}, 3, sc_moments},
    {"rows in registers", TC_F32, {6, 4099}, 2, sc_sum},
    {"rows in registers", TC_I32, {4, 700}, 2, sc_product},
    {"rows in registers", TC_F32, {6, 1111}, 2, sc_least},
    {"rows in registers", TC_I8, {6, 600}, 2, sc_least},
    {"rows in registers", TC_F32, {6, 900}, 2, sc_all},
    {"rows", TC_F32, {2, 70001}, 2, sc_softmax},
    {"vector 16 lanes, rows in registers, 32 a block", TC_F32, {160, 32}, 2, sc_softmax},
    {"vector 8 lanes, rows in registers, 16 a block", TC_F64, {80, 32}, 2, sc_softmax},
    {"vector 64 lanes, rows in registers, 16 a block", TC_BF16, {130, 20}, 2, sc_softmax},
    {"vector 128 lanes, rows in registers, 8 a block", TC_F32, {67, 200}, 2, sc_moments},
    {"vector 32 lanes, rows in registers, 32 a block", TC_F32, {132, 50}, 2, sc_var},
    {"vector 16 lanes, rows in registers, 32 a block", TC_F16, {128, 24}, 2, sc_moments},
    {"16 a block", TC_I32, {130, 33}, 2, sc_product},
    {"8 a block", TC_I8, {77, 40}, 2, sc_least},
    {"32 a block", TC_F32, {132, 60}, 2, sc_all},
    {"points by 256 threads, 1 each", TC_F32, {3, 21, 44}, 3, sc_pool},
    {"points by 256 threads, 1 each", TC_BF16, {2, 14, 33}, 3, sc_pool},
    {"points by 256 threads, 1 each", TC_F32, {2, 18, 40}, 3, sc_pool_inside},
    {"points by 256 threads, 1 each", TC_F32, {40, 12, 14}, 3, sc_pool_inside},
    {"points by 256 threads, 1 each", TC_F32, {2, 19, 40}, 3, sc_pool_back},
    {"tile 1x1", TC_F32, {300, 960}, 2, sc_columns},
    {"tile 1x1", TC_F64, {40, 128}, 2, sc_columns},
    {"points by 256 threads, 1 each", TC_F32, {300, 1000}, 2, sc_columns},
    {"points by 256 threads, 1 each", TC_F64, {40, 77}, 2, sc_columns},
    {"points by 256 threads, 1 each", TC_F32, {130, 40, 33}, 3, sc_columns_each},
    {"rows in registers", TC_F32, {1000, 16}, 2, sc_softmax_columns},
    {"rows in registers", TC_F32, {16, 5, 63}, 3, sc_images},
    {"rows in registers", TC_BF16, {9, 40, 130}, 3, sc_images},
    {"lanes", TC_F32, {1000, 5}, 2, sc_columns},
    {"tile 1x1", TC_BF16, {40, 256}, 2, sc_column_best},
    {"points by 256 threads, 1 each", TC_BF16, {40, 259}, 2, sc_column_best},
    {"tile 1x1", TC_F32, {40, 300}, 2, sc_running},
    {"tile 1x1", TC_I32, {16, 70}, 2, sc_running},
    {"class CHAIN", TC_BF16, {40, 130}, 2, sc_running},
    {"BLOCK_SCAN(128)", TC_F32, {300, 35}, 2, sc_running_rows},
    {"rows in registers", TC_F32, {5, 8192}, 2, sc_running_rows},
    {"rows in registers", TC_F32, {3, 8190}, 2, sc_running_rows},
    {"rows in registers", TC_F64, {3, 1025}, 2, sc_running_rows},
    {"rows in registers", TC_BF16, {3, 2051}, 2, sc_running_rows},
    {"rows in registers", TC_I32, {4, 700}, 2, sc_running_rows},
    {"rows in registers", TC_U8, {2, 127}, 2, sc_running_rows},
    {"73 linked parts of 959", TC_F32, {2, 70007}, 2, sc_running_rows},
    {"BLOCK_SCAN(128)", TC_F32, {2, 70007}, 2, sc_running_rows},
    {"35 parts of 2048", TC_BF16, {70003}, 1, sc_running},
    {"rows in registers", TC_F32, {3, 999}, 2, sc_running_back},
    {"10 linked parts of 2100", TC_F32, {2, 21000}, 2, sc_running_back},
    {"20 parts of 64", TC_F32, {1280, 70}, 2, sc_running},
    {"10 linked parts of 2100", TC_I32, {2, 21000}, 2, sc_running_product},
    {"35 linked parts of 2048", TC_U8, {1, 70003}, 2, sc_running_product},
    {"10 linked parts of 2100", TC_F32, {2, 21000}, 2, sc_running_most},
    {"35 parts of 2048", TC_BF16, {1, 70003}, 2, sc_running_most},
    {"BLOCK_SCAN", TC_F64, {3000, 2, 3}, 3, sc_running},
    {"1 launch of 1 kernel", TC_F32, {5, 3001}, 2, sc_running_weights},
    {"1 launch of 1 kernel", TC_BF16, {300, 70}, 2, sc_running_weights},
    {"1 launch of 1 kernel", TC_F64, {300, 1000}, 2, sc_running_weights},
    {"1 launch of 1 kernel", TC_F32, {60, 300}, 2, sc_running_share},
    {"1 launch of 1 kernel", TC_F32, {3, 65536}, 2, sc_running_alone},
    {"BLOCK_SCAN(256)", TC_I64, {2, 70001}, 2, sc_running_rows},
    {"squares", TC_F32, {128, 192}, 2, sc_turned},
    {"squares", TC_F32, {70, 133}, 2, sc_turned},
    {"squares", TC_F64, {64, 65}, 2, sc_turned},
    {"squares", TC_U8, {130, 200}, 2, sc_turned},
    {"squares", TC_BF16, {100, 190}, 2, sc_both},
    {"squares", TC_F32, {150, 150}, 2, sc_square},
    {"squares", TC_I64, {33, 7, 50}, 3, sc_behind},
    {"squares", TC_F32, {90, 81}, 2, sc_padded},
    {"vector", TC_F32, {100003}, 1, sc_wave},
    {"vector", TC_F64, {5001}, 1, sc_wave},
};

/* Contractions that are too small for all of a device: reproducible ones are not cut into parts. */
static const schedule_case whole_cases[] = {
    {"SPLIT(512)", TC_F32, {70, 1000}, 2, sc_gram},
    {"SPLIT(512)", TC_F32, {1024, 66}, 2, sc_inner},
    {"SPLIT(512)", TC_F32, {2, 65, 513}, 3, sc_batched},
    {"tiles 64x64", TC_F32, {10160}, 1, sc_windows},
    {"tiles 64x64", TC_BF16, {10160}, 1, sc_windows},
    {"tiles 64x64", TC_I32, {10160}, 1, sc_windows},
    {"tiles 64x64", TC_F32, {16080}, 1, sc_windows_apart},
    {"tiles 64x64", TC_F16, {16080}, 1, sc_windows_apart},
    {"tiles 64x64", TC_F32, {10160}, 1, sc_windows_back},
    {"tiles 64x64", TC_F32, {16080}, 1, sc_windows_apart_back},
};

static int64_t case_elements(const schedule_case *c)
{
    int64_t n = 1;
    for (int i = 0; i < c->rank; i++) {
        n *= c->shape[i];
    }
    return n;
}

/* The input's bytes; the caller frees. */
static char *case_input(const schedule_case *c)
{
    int64_t n = case_elements(c);
    int size = tci_dtype_get(c->dtype)->bytes;
    char *in = (char *)calloc((size_t)n, (size_t)size);
    for (int64_t i = 0; i < n; i++) {
        tci_value v = {.i = (i * 7919 + i / 31) % 251 - 125};
        if (tci_dtype_is_float(c->dtype)) {
            v.f = (double)v.i / 32.0;
        }
        tci_value_store(c->dtype, in + i * size, v);
    }
    return in;
}

enum { MOST_CASES = sizeof(schedule_cases) / sizeof(schedule_cases[0]) };

/* Compiles all cases at once; `schedules`: a file of those that are forced, or NULL. */
static tc_ctx *compile_cases(const char *backend, const schedule_case *cases, int n,
                             const char *schedules, tc_program **programs, int64_t *bytes)
{
    const tc_options options = {.schedule = schedules};
    tc_ctx *ctx = context_for(backend, cases == whole_cases);
    tc_tensor x[MOST_CASES], y[MOST_CASES];
    tc_job jobs[MOST_CASES];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; ctx && i < n; i++) {
        const schedule_case *c = &cases[i];
        int64_t sizes[4] = {c->dtype, c->shape[0], c->shape[1], c->shape[2]};
        x[i] = tc_input_at(ctx, "x", c->rank + 1, sizes, TC_HERE);
        y[i] = c->make(x[i]);
        bytes[i] = tc_nbytes(y[i]);
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &programs[i];
    }
    if (ctx) {
        tc_status status = tc_compile_many(jobs, n, &options);
        CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(ctx));
    }
    return ctx;
}

/* Which schedule is the cheapest depends on the machine: what is expected is what the emulated one
 * takes. */
static void compare_case(const schedule_case *c, tc_program *f, tc_program *want_f, int64_t bytes,
                         bool noted)
{
    int64_t n = case_elements(c) * tci_dtype_get(c->dtype)->bytes, wrong = 0;
    char *in = case_input(c), *got = (char *)calloc(1, (size_t)bytes);
    char *want = (char *)calloc(1, (size_t)bytes);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((void *)in, n)), TC_BUFS(TC_BUF((void *)got, bytes))),
                 TC_OK);
    CHECK_EQ_INT(tc_run(want_f, TC_BUFS(TC_BUF((void *)in, n)),
                        TC_BUFS(TC_BUF((void *)want, bytes))),
                 TC_OK);
    for (int64_t j = 0; j < bytes; j++) {
        wrong += got[j] != want[j];
    }
    CHECK_MSG(wrong == 0, "%s (%lld, %lld): %lld of %lld bytes differ", c->note,
              (long long)c->shape[0], (long long)c->shape[1], (long long)wrong, (long long)bytes);
    CHECK_MSG(!noted || explains(f, c->note), "(%lld, %lld) is not scheduled as \"%s\"",
              (long long)c->shape[0], (long long)c->shape[1], c->note);
    free(in);
    free(got);
    free(want);
}

static void compare_table(const char *backend, const schedule_case *cases, int n, bool noted)
{
    tc_program *programs[MOST_CASES] = {NULL}, *planned[MOST_CASES] = {NULL};
    int64_t bytes[MOST_CASES];
    register_emulation();
    tc_ctx *ctx = compile_cases(backend, cases, n, NULL, programs, bytes);
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx *plan = compile_cases("planned", cases, n, NULL, planned, bytes);
    for (int i = 0; i < n; i++) {
        if (programs[i] && planned[i]) {
            compare_case(&cases[i], programs[i], planned[i], bytes[i], noted);
        }
        tc_program_free(programs[i]);
        tc_program_free(planned[i]);
    }
    tc_ctx_free(ctx);
    tc_ctx_free(plan);
}

static void compare_cases(const char *backend, bool noted)
{
    compare_table(backend, schedule_cases, MOST_CASES, noted);
    compare_table(backend, whole_cases, sizeof(whole_cases) / sizeof(whole_cases[0]), noted);
}

/* ---- rows by fewer threads than a warp has ---- */

/* In a dtype whose sums tell orders apart. */
static tc_tensor sc_row(tc_tensor x)
{
    return tc_mul(tc_dtype_of(x) == TC_BF16 ? tc_cast(x, TC_F32) : x, 1.1);
}
static tc_tensor sc_row_values(tc_tensor x)
{
    tc_tensor y = sc_row(x), sum = tc_sum(y, TC_AXES(-1), false);
    tc_tensor most = tc_max(y, TC_AXES(-1), false), place = tc_argmax(y, -1, false);
    return tc_cat(TC_TENSORS(tc_cast(sum, TC_F64), tc_cast(most, TC_F64), tc_cast(place, TC_F64)),
                  0);
}
static tc_tensor sc_row_log(tc_tensor x)
{
    tc_tensor y = sc_row(x), most = tc_max(y, TC_AXES(-1), true);
    return tc_add(most, tc_log(tc_sum(tc_exp(tc_sub(y, most)), TC_AXES(-1), true)));
}

static tc_tensor sc_row_running(tc_tensor x)
{
    return tc_cumsum(sc_row(x), 1);
}
static tc_tensor sc_row_reverse(tc_tensor x)
{
    return tc_flip(tc_cumsum(tc_flip(sc_row(x), 1), 1), 1);
}
/* A reduction and a scan of one row. */
static tc_tensor sc_row_shares(tc_tensor x)
{
    return tc_cumsum(tc_softmax(sc_row(x), 1), 1);
}

/* So few points that even short rows are not many side by side, but as many as fill a warp. */
enum { ROW_POINTS = 8, ROW_BLOCK = 64, ROW_VECTORS = 9, ROW_PROGRAMS = 4, ROW_SIZES = 14 };
typedef tc_tensor (*row_program)(tc_tensor x);
static const row_program row_programs[ROW_PROGRAMS] = {sc_softmax, sc_moments, sc_row_values,
                                                       sc_row_log};
static const row_program running_programs[ROW_PROGRAMS] = {sc_row_running, sc_row_reverse,
                                                           sc_running_most, sc_row_shares};
static const int row_sizes[ROW_SIZES] = {2, 5, 8, 15, 17, 31, 33, 63, 65, 100, 129, 257, 512, 1023};

/* Programs of rows that so many threads can hold; returns how many. Those of f32 are all, of other
 * dtypes some. */
static int row_cases(const row_program *make, tc_dtype t, int threads, const char *note,
                     schedule_case *cases)
{
    int n = 0, held = 16 / tci_dtype_get(t == TC_F64 ? t : TC_F32)->bytes;
    for (int i = 0; i < ROW_SIZES; i += t == TC_F32 ? 1 : 5) {
        for (int p = 0; p < ROW_PROGRAMS && row_sizes[i] <= ROW_VECTORS * threads * held; p++) {
            schedule_case c = {note, t, {ROW_POINTS, row_sizes[i]}, 2, make[p]};
            cases[n++] = c;
        }
    }
    return n;
}

/* Forces a schedule on all kernels of the programs, where it fits. */
static void write_schedules(FILE *file, tc_program *const *programs, int n, const char *schedule)
{
    for (int i = 0; i < n; i++) {
        char name[100];
        for (const char *at = programs[i]->code->explain; at; at = strchr(at + 1, '\n')) {
            if (sscanf(at, "%*d. %99[a-z0-9_]", name) == 1) {
                fprintf(file, "%s: %s\n", name, schedule);
            }
        }
    }
}

static void compare_rows(const row_program *make, tc_dtype t, int threads)
{
    char schedule[60], note[60], path[] = "/tmp/tc-test-rows-XXXXXX";
    schedule_case cases[ROW_PROGRAMS * ROW_SIZES];
    tc_program *programs[MOST_CASES] = {NULL}, *planned[MOST_CASES] = {NULL};
    int64_t bytes[MOST_CASES];
    snprintf(schedule, sizeof(schedule), "row threads=%d rows=%d", threads, ROW_BLOCK / threads);
    snprintf(note, sizeof(note), "rows in registers, %d a block", ROW_BLOCK / threads);
    int n = row_cases(make, t, threads, note, cases);
    tc_ctx *plan = compile_cases("planned", cases, n, NULL, planned, bytes);
    FILE *file = fdopen(mkstemp(path), "w");
    REQUIRE(plan && file);
    write_schedules(file, planned, n, schedule);
    fclose(file);
    tc_ctx *ctx = compile_cases("emulated", cases, n, path, programs, bytes);
    for (int i = 0; i < n; i++) {
        if (programs[i] && planned[i]) {
            compare_case(&cases[i], programs[i], planned[i], bytes[i], true);
        }
        tc_program_free(programs[i]);
        tc_program_free(planned[i]);
    }
    tc_ctx_free(ctx);
    tc_ctx_free(plan);
    remove(path);
}

TEST(rows_by_parts_of_warps)
{
    static const tc_dtype dtypes[] = {TC_F32, TC_BF16, TC_F64};
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    for (int threads = 4; threads <= 16; threads *= 2) {
        for (int i = 0; i < TCI_COUNT(dtypes); i++) {
            compare_rows(row_programs, dtypes[i], threads);
        }
    }
    tc_ctx_free(ctx);
}

TEST(running_rows_by_parts_of_warps)
{
    static const struct {
        tc_dtype dtype;
        int threads;
    } cases[] = {{TC_F32, 4}, {TC_F32, 32}, {TC_BF16, 8}, {TC_BF16, 32}, {TC_F64, 4}, {TC_F64, 16}};
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        compare_rows(running_programs, cases[i].dtype, cases[i].threads);
    }
    tc_ctx_free(ctx);
}

/* True if a program of `make` over [64, n] stores aligned blocks, for which its threads meet. */
static bool meets_to_store(tc_dtype t, int64_t n, tc_tensor (*make)(tc_tensor x))
{
    tc_ctx *ctx = context_of("emulated");
    tc_program *f = NULL;
    REQUIRE(ctx && !tc_compile(make(tc_input(ctx, "x", t, 64, n)), &f));
    bool meets = strstr(tc_source(f), "_together(p") != NULL;
    tc_program_free(f);
    tc_ctx_free(ctx);
    return meets;
}

/* Threads that hold rows store aligned blocks where rows are not: that these have the right bits is
 * seen above. Others may come to a store apart, and halves cost more to move. */
TEST(rows_that_are_not_aligned_are_stored_in_blocks)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx_free(ctx);
    CHECK(meets_to_store(TC_F32, 301, sc_softmax));
    CHECK(!meets_to_store(TC_F32, 304, sc_softmax));
    CHECK(!meets_to_store(TC_F32, 301, sc_wave));
}

/* ---- variances of numbers far from 0 ---- */

/* Reductions of x [shape] over the axes whose bits are set in `over`. */
typedef struct spread_case {
    const char *note; /* a part of what tc_explain prints for the squared deviations */
    int64_t shape[3];
    int over;
} spread_case;

static const spread_case spread_cases[] = {
    {"rows in registers", {3, 1, 1000}, 4},     {"32 a block", {132, 1, 50}, 4},
    {" launches of ", {2, 1, 70001}, 4},        {" launches of ", {1, 1, 70000}, 4},
    {" launches of ", {1, 1, 70007}, 4}, /* parts, and zeros after the last */
    {" launches of ", {1000, 1, 5}, 1},         {" launches of ", {1000, 1, 64}, 1},
    {" launches of ", {70000, 1, 2}, 1},        {" launches of ", {70003, 1, 2}, 1},
    {"1 launch of 1 kernel", {130, 40, 33}, 2}, {" launches of ", {16, 5, 63}, 1 | 4},
};
enum {
    SPREADS = sizeof(spread_cases) / sizeof(spread_cases[0]),
    SPREAD_PROGRAMS = 3,
    SPREAD_MOST = 130 * 40 * 33,
    SPREAD_SHORT = 10000, /* elements: longer ones in a reproducible order are slow to emulate */
    SPREAD_RESULTS = 130 * 33
};

/* The numbers that a row of results is computed from: their count, mean and squared deviations. */
typedef struct spread {
    double count, mean, squares;
} spread;

static int64_t spread_elements(const spread_case *c)
{
    return c->shape[0] * c->shape[1] * c->shape[2];
}

/* The result that element i of x is reduced to. */
static int64_t spread_place(const spread_case *c, int64_t i)
{
    int64_t at[3] = {i / c->shape[2] / c->shape[1], i / c->shape[2] % c->shape[1], i % c->shape[2]};
    int64_t place = 0;
    for (int a = 0; a < 3; a++) {
        place = c->over >> a & 1 ? place : place * c->shape[a] + at[a];
    }
    return place;
}

/* Two passes in f64; returns how many results there are. */
static int64_t spread_want(const spread_case *c, const float *x, spread *want)
{
    int64_t n = spread_elements(c), results = 1;
    for (int a = 0; a < 3; a++) {
        results *= c->over >> a & 1 ? 1 : c->shape[a];
    }
    memset(want, 0, (size_t)results * sizeof(*want));
    for (int64_t i = 0; i < n; i++) {
        spread *w = &want[spread_place(c, i)];
        w->count++;
        w->mean += (double)x[i];
    }
    for (int64_t i = 0; i < results; i++) {
        want[i].mean /= want[i].count;
    }
    for (int64_t i = 0; i < n; i++) {
        spread *w = &want[spread_place(c, i)];
        w->squares += ((double)x[i] - w->mean) * ((double)x[i] - w->mean);
    }
    return results;
}

/* For each case a program of the squared deviations, one of the standard deviation, and one of
 * variance and mean. */
static bool compile_spreads(tc_ctx *ctx, tc_program **programs)
{
    tc_tensor x[SPREADS], y[SPREADS][SPREAD_PROGRAMS + 1];
    tc_job jobs[SPREADS * SPREAD_PROGRAMS];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < SPREADS; i++) {
        const spread_case *c = &spread_cases[i];
        int axes[3], n_axes = 0;
        for (int a = 0; a < 3; a++) {
            axes[n_axes] = a;
            n_axes += c->over >> a & 1;
        }
        x[i] = tc_input(ctx, "x", TC_F32, c->shape[0], c->shape[1], c->shape[2]);
        y[i][0] = tc_devsq(x[i], TC_AXES_N(axes, n_axes), false);
        y[i][1] = tc_std(x[i], TC_AXES_N(axes, n_axes), 1, false);
        tc_var_mean(x[i], TC_AXES_N(axes, n_axes), 0, false, &y[i][2], &y[i][3]);
        for (int p = 0; p < SPREAD_PROGRAMS; p++) {
            tc_job *job = &jobs[i * SPREAD_PROGRAMS + p];
            job->inputs = (tc_tensors){&x[i], 1};
            job->outputs = (tc_tensors){&y[i][p], p == 2 ? 2 : 1};
            job->program = &programs[i * SPREAD_PROGRAMS + p];
        }
    }
    tc_status status = tc_compile_many(jobs, SPREADS * SPREAD_PROGRAMS, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    return status == TC_OK;
}

/* The largest relative errors of squared deviations, standard deviation, variance and mean. */
static void spread_errors(const spread_case *c, tc_program *const *programs, const float *x,
                          double *errors)
{
    static float got[SPREAD_PROGRAMS + 1][SPREAD_RESULTS];
    static spread want[SPREAD_RESULTS];
    int64_t n = spread_elements(c), results = spread_want(c, x, want);
    for (int p = 0; p < SPREAD_PROGRAMS; p++) {
        tc_buf out[2] = {TC_BUF(got[p], results), TC_BUF(got[p + 1], results)};
        tc_status status = tc_run(programs[p], TC_BUFS(TC_BUF((float *)x, n)),
                                  (tc_bufs){out, p == 2 ? 2 : 1});
        CHECK_MSG(status == TC_OK, "%s", tc_error(programs[p]));
    }
    for (int64_t i = 0; i < results; i++) {
        const spread *w = &want[i];
        double right[4] = {w->squares, sqrt(w->squares / (w->count - 1)), w->squares / w->count,
                           w->mean};
        for (int v = 0; v < 4; v++) {
            double error = fabs((double)got[v][i] - right[v]) / right[v];
            errors[v] = error <= errors[v] ? errors[v] : error; /* NaN counts */
        }
    }
}

static void check_spreads(bool reproducible)
{
    static float x[SPREAD_MOST];
    tc_program *programs[SPREADS * SPREAD_PROGRAMS] = {NULL};
    register_emulation();
    tc_ctx *ctx = context_for("emulated", reproducible);
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    bool works = compile_spreads(ctx, programs);
    for (int i = 0; i < SPREADS && works; i++) {
        const spread_case *c = &spread_cases[i];
        tc_program *const *of = &programs[i * SPREAD_PROGRAMS];
        if (reproducible && spread_elements(c) > SPREAD_SHORT) {
            continue;
        }
        CHECK_MSG(reproducible || explains(of[0], c->note), "case %d is not scheduled as \"%s\"", i,
                  c->note);
        for (double mean = 1e4; mean < 2e6; mean *= 100) {
            double errors[4] = {0};
            for (int64_t k = 0; k < spread_elements(c); k++) {
                int64_t noise = (k * 7919) % 2003 + (k * 104729) % 1009;
                x[k] = (float)(mean + (double)(noise - 1505) / 500);
            }
            spread_errors(c, of, x, errors);
            CHECK_MSG(errors[0] < 2e-6 && errors[1] < 2e-6 && errors[2] < 2e-6 && errors[3] < 2e-6,
                      "case %d about %g: errors of %.2e, %.2e, %.2e and %.2e", i, mean, errors[0],
                      errors[1], errors[2], errors[3]);
        }
    }
    for (int i = 0; i < SPREADS * SPREAD_PROGRAMS; i++) {
        tc_program_free(programs[i]);
    }
    tc_ctx_free(ctx);
}

TEST(variances_of_numbers_far_from_0)
{
    check_spreads(false);
}

TEST(reproducible_variances_of_numbers_far_from_0)
{
    check_spreads(true);
}

TEST(every_schedule_has_the_bits_of_its_plan)
{
    compare_cases("emulated", true);
}

TEST(every_schedule_has_the_bits_of_its_plan_on_a_gpu)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    tci_cuda_backend()->target(NULL, 0, &target);
    if (!target.usable) {
        SKIP("%s", target.why);
    }
    compare_cases("cuda", false);
}

TEST_MAIN
