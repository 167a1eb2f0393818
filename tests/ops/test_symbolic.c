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

TEST(symbolic_cases_on_interp)
{
    os_replay("interp");
}

TEST(symbolic_cases_on_cpu)
{
    os_replay("cpu");
}

TEST_MAIN
