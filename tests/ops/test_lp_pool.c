/* tc_lp_pool2d and tc_lp_pool3d against their definition, written out in double precision. */
#include "tc.h"

#include "tc_test.h"

#include <math.h>

enum { ROOM = 4096 };

static float values[ROOM];

/* The p-th root of the sum of |x|^p over the window whose first element is `from`. A window that
 * hangs over the edge has the elements that are there. */
static double window(const int64_t *size, const int64_t *kernel, const int64_t *from, double p)
{
    double sum = 0;
    for (int64_t i = from[0]; i < from[0] + kernel[0] && i < size[0]; i++) {
        for (int64_t j = from[1]; j < from[1] + kernel[1] && j < size[1]; j++) {
            for (int64_t k = from[2]; k < from[2] + kernel[2] && k < size[2]; k++) {
                sum += pow(fabs((double)values[(i * size[1] + j) * size[2] + k]), p);
            }
        }
    }
    return pow(sum, 1 / p);
}

/* An image of one example and one channel, with an axis of size 1 before it where it is plane. */
static void check_pool(const int64_t *size, const int64_t *kernel, const int64_t *stride, double p)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true};
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    int64_t n = size[0] * size[1] * size[2], out[3];
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float)((i * 37 % 19) - 9) / 4;
    }
    bool plane = size[0] == 1;
    tc_pool pool = {0};
    for (int i = 0; i < 3 - plane; i++) {
        pool.kernel[i] = kernel[i + plane];
        pool.stride[i] = stride[i + plane];
    }
    tc_tensor x = plane ? tc_copy_in(ctx, values, TC_F32, 1, 1, size[1], size[2])
                        : tc_copy_in(ctx, values, TC_F32, 1, 1, size[0], size[1], size[2]);
    tc_tensor y = plane ? tc_lp_pool2d(x, p, &pool) : tc_lp_pool3d(x, p, &pool);
    for (int i = 0; i < 3; i++) {
        out[i] = (size[i] - kernel[i]) / stride[i] + 1;
    }
    int64_t n_out = out[0] * out[1] * out[2];
    float got[ROOM];
    REQUIRE(tc_count(y) == n_out);
    REQUIRE(tc_read(y, got, n_out) == TC_OK);
    for (int64_t i = 0; i < n_out; i++) {
        int64_t from[3] = {i / (out[1] * out[2]) * stride[0], i / out[2] % out[1] * stride[1],
                           i % out[2] * stride[2]};
        double wanted = window(size, kernel, from, p);
        CHECK_MSG(fabs(got[i] - wanted) <= 2e-6 * (1 + wanted), "p %g, element %d: %g, expected %g",
                  p, (int)i, got[i], wanted);
    }
    tc_ctx_free(ctx);
}

TEST(planes)
{
    static const int64_t size[3] = {1, 9, 11}, kernel[3] = {1, 3, 2}, stride[3] = {1, 2, 1};
    static const double powers[] = {1, 2, 3, 0.5};
    for (int i = 0; i < 4; i++) {
        check_pool(size, kernel, stride, powers[i]);
    }
}

TEST(volumes)
{
    static const int64_t size[3] = {5, 7, 6}, kernel[3] = {2, 3, 2}, stride[3] = {1, 2, 3};
    static const double powers[] = {1, 2, 3, 1.5};
    for (int i = 0; i < 4; i++) {
        check_pool(size, kernel, stride, powers[i]);
    }
}

TEST_MAIN
