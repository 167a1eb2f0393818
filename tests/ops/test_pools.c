/* tests/ops/test_pools.c - pools of few elements by kernels of any size, up to ones that are far
 * larger than the image: values, places and averages against plain loops over the image, in the
 * time that the image takes. */
#include <math.h>

#include "tc.h"
#include "tc_test.h"

enum { MOST = 64 };

typedef struct pool_case {
    int64_t n, kernel, stride, padding, dilation;
    bool ceil_mode, exclude;
} pool_case;

static tc_ctx *ctx;
static float image[9];

/* As many windows as there are; 0: none fits. */
static int64_t windows_of(const pool_case *p)
{
    int64_t room = p->n + 2 * p->padding - p->dilation * (p->kernel - 1) - 1;
    room += p->ceil_mode ? p->stride - 1 : 0;
    int64_t count = room < 0 ? 0 : room / p->stride + 1;
    bool outside = p->ceil_mode && count && (count - 1) * p->stride >= p->n + p->padding;
    return count - outside;
}

static void judge(const pool_case *p, int64_t window, double *max, int64_t *at, double *mean)
{
    int64_t start = window * p->stride - p->padding, end = start + p->kernel, inside = 0;
    double sum = 0;
    *at = -1;
    *max = -INFINITY;
    for (int64_t j = 0; j < p->n; j++) {
        int64_t e = j - start;
        if (e >= 0 && e % p->dilation == 0 && e / p->dilation < p->kernel) {
            *at = *at < 0 || image[j] > *max ? j : *at;
            *max = fmax(*max, image[j]);
            sum += image[j];
            inside++;
        }
    }
    end = end < p->n + p->padding ? end : p->n + p->padding;
    *mean = sum / (double)(p->exclude ? inside : end - start);
}

static void check_case(const pool_case *p)
{
    tc_pool o = {.kernel = {p->kernel},
                 .stride = {p->stride},
                 .padding = {p->padding},
                 .dilation = {p->dilation},
                 .ceil_mode = p->ceil_mode,
                 .exclude_pad = p->exclude};
    float max[MOST], mean[MOST];
    int64_t at[MOST], count = windows_of(p);
    tc_tensor x = tc_copy_in(ctx, image, TC_F32, 1, p->n), values, indices, means = {0};
    tc_max_pool1d_with_indices(x, &o, &values, &indices);
    means = p->dilation == 1 ? tc_avg_pool1d(x, &o) : tc_cast(values, TC_F32);
    if (!count) {
        CHECK_EQ_INT(tc_status_of(values), TC_ERR_SHAPE);
        CHECK_EQ_INT(tc_status_of(means), TC_ERR_SHAPE);
        return;
    }
    REQUIRE(count <= MOST);
    CHECK_EQ_INT(tc_count(values), count);
    CHECK_EQ_INT(tc_read(values, max, count), TC_OK);
    CHECK_EQ_INT(tc_read(indices, at, count), TC_OK);
    CHECK_EQ_INT(tc_read(means, mean, count), TC_OK);
    for (int64_t i = 0; i < count; i++) {
        double want, average;
        int64_t place;
        judge(p, i, &want, &place, &average);
        bool same = place < 0 || (max[i] == want && at[i] == place);
        bool near = p->dilation > 1 || !isfinite(average) || fabs(mean[i] - average) <= 1e-5;
        CHECK_MSG(same && near,
                  "n %d kernel %lld stride %lld padding %lld dilation %lld ceil %d "
                  "exclude %d, window %lld: %g at %lld, mean %g: expected %g at %lld, %g",
                  (int)p->n, (long long)p->kernel, (long long)p->stride, (long long)p->padding,
                  (long long)p->dilation, p->ceil_mode, p->exclude, (long long)i, max[i],
                  (long long)at[i], mean[i], want, (long long)place, average);
    }
}

TEST(kernels_of_any_size)
{
    static const int64_t kernels[] = {
        1,         2,         3,        5, 8, 9, 11, 1 << 20, (1ll << 31) - 8, (1ll << 31) - 1,
        1ll << 31, 1ll << 40, 1ll << 55};
    static const int64_t dilations[] = {1, 2, 3, 1 << 20};
    tc_options options = {.backend = "interp"};
    REQUIRE(!tc_ctx_make(&ctx, &options));
    for (int i = 0; i < 9; i++) {
        image[i] = (float)(i * 5 % 9) - 6;
    }
    for (size_t k = 0; k < sizeof(kernels) / sizeof(*kernels); k++) {
        for (int way = 0; way < 3 * 3 * 4 * 4; way++) {
            int64_t n = 1 + 4 * (way % 3), kernel = kernels[k], half = kernel / 2;
            pool_case p = {.n = n,
                           .kernel = kernel,
                           .stride = way / 3 % 3 + 1,
                           .padding = way / 9 % 4 == 1           ? half
                                      : way / 9 % 4 == 2 && half ? 1
                                                                 : 0,
                           .dilation = dilations[way / 36],
                           .ceil_mode = way % 2,
                           .exclude = way / 2 % 2};
            p.stride = p.stride == 3 ? kernel : p.stride;
            if (kernel <= 1 << 30 || p.dilation == 1) {
                check_case(&p);
            }
        }
    }
    tc_ctx_free(ctx);
}

TEST(averages_over_more_than_can_be_counted)
{
    REQUIRE(!tc_ctx_make(&ctx, NULL));
    tc_tensor x = tc_zeros(ctx, TC_F32, 1, 8, 8);
    tc_tensor y = tc_avg_pool2d(x, &(tc_pool){.kernel = {1ll << 40, 1ll << 40},
                                              .stride = {1ll << 40, 1ll << 40},
                                              .ceil_mode = true});
    CHECK_EQ_INT(tc_status_of(y), TC_ERR_LIMIT);
    CHECK_HAS(tc_error(y), "expected at most 2^60");
    tc_ctx_free(ctx);
}

TEST_MAIN
