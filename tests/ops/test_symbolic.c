/* Reference cases with every size a symbol: inputs of shape [a, b] are declared as
 * [TC_DIM, TC_DIM], and each run says the sizes. Equal sizes share a symbol, so that ops which want
 * them equal see that they are; sizes of 1 stay, as a symbol does not broadcast. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

#include "oracle_run.h"

#define DATA "tests/data/opinfo"

static void os_replay(const char *backend)
{
    static orc_run r; /* static: they survive the jump of a REQUIRE */
    static st_file arrays;
    size_t bytes = 0;
    char *text = json_read_file(DATA ".json", &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest != NULL && st_open(&arrays, DATA ".safetensors"));
    memset(&r, 0, sizeof(r));
    r.manifest = manifest;
    r.arrays = &arrays;
    r.backend = backend;
    r.quiet = true;
    r.symbolic = true;
    r.every = strcmp(backend, "interp") && !tct_soak ? 2 : 0; /* a compiler takes long for all */
    bool works = orc_replay(&r);
    st_close(&arrays);
    json_free(manifest);
    free(text);
    if (!works) {
        SKIP("no backend %s here", backend);
    }
    printf("ops/symbolic: %d reference cases passed on %s, %d left out\n", r.passed, backend,
           r.skipped);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed >= (r.every ? 700 : 1400), "only %d cases passed", r.passed);
}

/* Sizes of both axes are symbols, the places of one in order by the other: as of known sizes. */
TEST(sorts_of_any_size)
{
    enum { MOST = 400 };
    static const int64_t sizes[][2] = {{1, 3}, {4, 64}, {0, 5}, {2, 129}, {3, 7}};
    static float x[MOST], values[2][MOST], last[3];
    static int64_t places[2][MOST];
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor any = tc_input(ctx, "x", TC_F32, TC_DIM("rows", 0, 9), TC_DIM("n", 3, 300));
    tc_tensor v, i, few, bad;
    tc_sort(any, 1, true, &v, &i);
    tc_topk(tc_reshape(any, -1), 0, 0, true, &few, NULL);
    tc_topk(any, 1, 3, false, &few, NULL);
    tc_topk(any, 1, 4, false, NULL, &bad);
    CHECK_HAS(tc_error(bad), "k is 4: expected 0 to n, the size of axis 1");
    tc_program *f = NULL;
    tc_tensor sum = tc_sum(few, TC_AXES(0), false);
    tc_status status = tc_compile_fn(TC_TENSORS(any), TC_TENSORS(v, i, sum), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    for (int k = 0; k < 5 && f; k++) {
        int64_t rows = sizes[k][0], n = sizes[k][1], all = rows * n;
        for (int at = 0; at < all; at++) {
            x[at] = (float)(at * 31 % 17) - 8;
        }
        status = tc_run(f, TC_BUFS(TC_BUF_ND(x, rows, n)),
                        TC_BUFS(TC_BUF(values[0], all), TC_BUF(places[0], all), TC_BUF(last, 3)));
        CHECK_MSG(status == TC_OK, "%s", tc_error(f));
        tc_tensor known = tc_copy_in(ctx, x, TC_F32, rows, n), y, j;
        tc_sort(known, 1, true, &y, &j);
        CHECK(tc_read(y, values[1], all) == TC_OK && tc_read(j, places[1], all) == TC_OK);
        CHECK(!memcmp(values[0], values[1], sizeof(float) * (size_t)all));
        CHECK(!memcmp(places[0], places[1], sizeof(int64_t) * (size_t)all));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Diagonals and shifts that follow from sizes, as the mask of rows behind those of a cache. */
TEST(places_by_sizes)
{
    enum { MOST = 60 };
    static float x[MOST], got[3][MOST], want[MOST];
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    int64_t n = TC_DIM("seen", 0, 9), m = TC_DIM("new", 1, 5), back = tc_dim_sub(0, n);
    tc_tensor any = tc_input(ctx, "x", TC_F32, m, tc_dim_add(n, m));
    tc_tensor y[3] = {tc_tril(any, n), tc_triu(any, tc_dim_sub(n, 1)), tc_roll(any, back, 1)};
    tc_program *f = NULL;
    tc_compile_fn(TC_TENSORS(any), TC_TENSORS_N(y, 3), NULL, &f);
    CHECK_MSG(f != NULL, "%s", tc_error(y[0]));
    for (int i = 0; i < MOST; i++) {
        x[i] = (float)(i + 1);
    }
    for (int rows = 1; rows <= 4 && f; rows++) {
        int seen = 2 * rows - 2, wide = seen + rows, all = rows * wide;
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_ND(x, rows, wide)),
                            TC_BUFS(TC_BUF(got[0], all), TC_BUF(got[1], all), TC_BUF(got[2], all))),
                     TC_OK);
        tc_tensor known = tc_copy_in(ctx, x, TC_F32, rows, wide);
        tc_tensor same[3] = {tc_tril(known, seen), tc_triu(known, seen - 1),
                             tc_roll(known, -seen, 1)};
        for (int i = 0; i < 3; i++) {
            CHECK_EQ_INT(tc_read(same[i], want, all), TC_OK);
            CHECK_MSG(!memcmp(want, got[i], sizeof(float) * (size_t)all), "call %d, %d rows", i,
                      rows);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* The interpreter's result of y at a size of x [1, 1, size, 2]. */
static void check_images(tc_ctx *ctx, const char *what, tc_tensor y, int size, const float *want,
                         int n)
{
    float in[6] = {5, 6, 7, 8, 9, 10}, got[8];
    tc_program *f = NULL;
    CHECK_MSG(tc_compile(y, &f) == TC_OK, "%s: %s", what, tc_error(ctx));
    if (f && tc_run(f, TC_BUFS(TC_BUF_ND(in, 1, 1, size, 2)), TC_BUFS(TC_BUF(got, n)))) {
        CHECK_MSG(false, "%s: %s", what, tc_error(f));
    }
    for (int i = 0; f && i < n; i++) {
        CHECK_MSG(fabsf(got[i] - want[i]) < 1e-6f, "%s, size %d: element %d is %g, expected %g",
                  what, size, i, (double)got[i], (double)want[i]);
    }
    tc_program_free(f);
}

/* Coordinates of corners of an axis that a run makes one element long: the element, as in torch
 * 2.15 of a fixed size; and of more. */
TEST(images_of_one_row)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    float points[4] = {0, 0, 0.5f, 1.5f}, rows[6] = {5, 6, 7, 8, 9, 10};
    int64_t h = TC_DIM("h", 1, 9);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 1, h, 2);
    tc_tensor grid = tc_copy_in(ctx, points, TC_F32, 1, 1, 2, 2);
    tc_tensor image = tc_copy_in(ctx, rows, TC_F32, 1, 1, 3, 2);
    tc_tensor zero = tc_mul(tc_sum(x, TC_ALL, false), 0);
    const char *modes[2] = {"bilinear", "bicubic"};
    for (int i = 0; i < 2; i++) {
        tc_tensor to = tc_interpolate(
            image, &(tc_interpolation){.mode = modes[i], .size = {h, 2}, .align_corners = true});
        check_images(ctx, modes[i], tc_add(to, zero), 1, (float[]){5, 6}, 2);
        check_images(ctx, modes[i], tc_add(to, zero), 2, (float[]){5, 6, 9, 10}, 4);
        tc_tensor same = tc_interpolate(x, &(tc_interpolation){.mode = modes[i],
                                                               .scale_factor = {1, 1},
                                                               .align_corners = true});
        check_images(ctx, modes[i], same, 1, (float[]){5, 6}, 2);
        check_images(ctx, modes[i], same, 3, rows, 6);
    }
    tc_tensor at = tc_grid_sample(x, grid, "bilinear", "reflection", true), slope;
    check_images(ctx, "reflection", at, 1, (float[]){5.5f, 5.75f}, 2);
    check_images(ctx, "reflection", at, 3, (float[]){7.5f, 8.75f}, 2);
    tc_vjp(TC_TENSORS(tc_mul(at, at)), TC_TENSORS(tc_ones(ctx, TC_F32, 1, 1, 1, 2)), &x, 1, &slope);
    check_images(ctx, "reflection, gradient", slope, 1, (float[]){8.375f, 14.125f}, 2);
    tc_ctx_free(ctx);
}

/* Reads along an axis that a run makes empty, under the guard of a pad or a cat: the
 * elements of the other part, as of a fixed size. */
TEST(guarded_reads_of_nothing)
{
    static const char *const names[] = {"roll",        "sort",          "index_select",
                                        "gather",      "slice_scatter", "masked_select",
                                        "unique",      "logsumexp",     "isin",
                                        "searchsorted"};
    for (int way = 0; way < 2; way++) {
        tc_ctx *ctx = NULL;
        tc_options o = {.backend = way ? "cpu" : "interp", .no_disk_cache = true, .verify = 1};
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        float sevens[2] = {7, 7}, in[4] = {3, 1, 2, 4}, got[8];
        tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("n", 0, 8)), y[10], v;
        tc_tensor s = tc_copy_in(ctx, sevens, TC_F32, 2), order = tc_argsort(x, 0, false);
        y[0] = tc_pad(tc_roll(x, 1, 0), 0, 0, 2, 7);
        tc_sort(x, 0, false, &v, NULL);
        y[1] = tc_pad(v, 0, 0, 2, 7);
        y[2] = tc_cat(TC_TENSORS(tc_index_select(x, 0, order), s), 0);
        y[3] = tc_cat(TC_TENSORS(tc_gather(x, 0, order), s), 0);
        y[4] = tc_slice_scatter(tc_cat(TC_TENSORS(x, s), 0), tc_gather(x, 0, order), 0, 0,
                                tc_size(x, 0), 1);
        tc_masked_select(x, tc_gt(x, 9), 2, &v, NULL);
        y[5] = tc_cat(TC_TENSORS(x, tc_add(v, 7)), 0);
        tc_unique(tc_mul(x, 0), 0, 2, &v, NULL, NULL, NULL);
        y[6] = tc_cat(TC_TENSORS(x, tc_add(v, 7)), 0);
        v = tc_unsqueeze(tc_exp(tc_logsumexp(tc_mul(x, -INFINITY), TC_ALL, false)), 0);
        y[7] = tc_cat(TC_TENSORS(x, tc_add(v, s)), 0);
        y[8] = tc_cat(TC_TENSORS(x, tc_add(tc_cast(tc_isin(tc_mul(s, 9), x), TC_F32), s)), 0);
        v = tc_cast(tc_searchsorted(tc_mul(x, 0), tc_sub(tc_mul(s, 0), 1), false), TC_F32);
        y[9] = tc_cat(TC_TENSORS(x, tc_add(v, s)), 0);
        for (int k = 0; k < 10; k++) {
            tc_program *f = NULL;
            CHECK_MSG(tc_compile(y[k], &f) == TC_OK, "%s: %s", names[k], tc_error(y[k]));
            for (int n = 0; n <= 3 && f; n++) {
                tc_status status = tc_run(f, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(got, n + 2)));
                CHECK_MSG(status == TC_OK, "%s of %d: %s", names[k], n, tc_error(f));
                CHECK_MSG(status || (got[n] == 7 && got[n + 1] == 7), "%s of %d: %g %g", names[k],
                          n, (double)got[n], (double)got[n + 1]);
            }
            tc_program_free(f);
        }
        tc_ctx_free(ctx);
    }
}

/* Counts that are no sizes, and bounds that must hold for every value of a symbol. */
TEST(symbols_that_are_refused)
{
    tc_ctx *ctx = NULL;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    int64_t n = TC_DIM("n", 0, 9), some = TC_DIM("some", 1, 9);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 1, some), i = tc_input(ctx, "i", TC_I64, 1, 1);
    tc_tensor log_probs = tc_input(ctx, "p", TC_F32, 4, 1, some);
    tc_tensor lengths = tc_full(ctx, 1, TC_I64, 1);
    CHECK_HAS(tc_error(tc_diff(x, some, -1, TC_NONE, TC_NONE)), "n is some: expected a number");
    CHECK_HAS(tc_error(tc_rot90(x, some, 0, 1)), "k is some: expected a number");
    CHECK_HAS(tc_error(tc_randint(ctx, 1, 0, n, TC_I64, 3)),
              "low is 0 and high n: expected a low less than high: declare TC_DIM(\"n\", 1, ...)");
    CHECK_STR(tc_error(tc_randint(ctx, 1, 0, some, TC_I64, 3)), "");
    CHECK_HAS(tc_error(tc_ctc_loss(log_probs, i, lengths, lengths, 1, TC_REDUCE_MEAN, false)),
              "blank is 1: expected one of some classes: declare TC_DIM(\"some\", 2, ...)");
    CHECK_HAS(tc_error(tc_avg_pool1d(x, &(tc_pool){.kernel = {1}, .divisor = n})),
              "the divisor is n, which may be 0: declare TC_DIM(\"n\", 1, ...)");
    tc_tensor any = tc_input(ctx, "any", TC_F32, 1, 1, n);
    CHECK_HAS(tc_error(
                  tc_interpolate(any, &(tc_interpolation){.mode = "linear", .scale_factor = {2}})),
              "expected at least 1: declare TC_DIM(\"n\", 1, ...)");
    for (int stride = 1; stride <= 4; stride++) { /* one window must fit at every size */
        const char *text = "a window of 3 elements (dilation 1) needs at least 3";
        tc_tensor w = tc_ones(ctx, TC_F32, 1, 1, 3);
        CHECK_HAS(tc_error(tc_conv1d(x, w, TC_NONE, &(tc_conv){.stride = {stride}})), text);
        CHECK_HAS(tc_error(tc_unfold(x, 2, 3, stride)), text);
    }
    tc_ctx_free(ctx);
}

/* The divisor of an average is a number, or a size. */
TEST(averages_by_a_size)
{
    tc_ctx *ctx = NULL;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    float in[6] = {1, 2, 3, 4, 5, 6}, got[5];
    int64_t n = TC_DIM("n", 2, 9);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 1, n);
    tc_program *f = NULL;
    tc_pool pool = {.kernel = {2}, .stride = {1}, .divisor = n};
    CHECK(!tc_compile(tc_avg_pool1d(x, &pool), &f));
    for (int size = 2; size <= 6 && f; size += 2) {
        CHECK(!tc_run(f, TC_BUFS(TC_BUF(in, size)), TC_BUFS(TC_BUF(got, size - 1))));
        for (int i = 0; i < size - 1; i++) {
            CHECK(fabsf(got[i] - (float)(2 * i + 3) / (float)size) < 1e-6f);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Element i is at [i, i + offset], or at [i - offset, i]. */
TEST(diagonals_of_any_size)
{
    enum { MOST = 5, OFF = 3, WIDE = MOST + OFF };
    float in[MOST] = {1, 2, 3, 4, 5}, got[WIDE * WIDE];
    tc_ctx *ctx = NULL;
    REQUIRE(tc_ctx_make(&ctx, &(tc_options){.backend = "interp", .verify = 1}) == TC_OK);
    for (int offset = -OFF; offset <= OFF; offset++) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("n", 0, 100));
        tc_program *f = NULL;
        CHECK_MSG(!tc_compile(tc_diag(x, offset), &f), "offset %d: %s", offset, tc_error(ctx));
        for (int n = 0; n <= MOST && f; n++) {
            int size = n + abs(offset), wrong = 0;
            tc_bufs to = TC_BUFS(TC_BUF_ND(got, size, size));
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, n)), to), TC_OK);
            for (int i = 0; i < size * size; i++) {
                int row = i / size, column = i % size;
                float want = column - row == offset ? (float)(1 + (row < column ? row : column))
                                                    : 0;
                wrong += got[i] != want;
            }
            CHECK_EQ_INT(wrong, 0);
        }
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
}

TEST(symbolic_cases_on_interp)
{
    os_replay("interp");
}

TEST(symbolic_cases_on_cpu)
{
    os_replay("cpu");
}

TEST_MAIN
