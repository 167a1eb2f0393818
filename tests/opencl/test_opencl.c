/* A backend made of public calls alone (examples/opencl): every reference case on an OpenCL device,
 * where there is one; Debian's pocl-opencl-icd makes one of the processor. */
#include "tc.h"

#include "tc_test.h"

#include "../../examples/opencl/tc_opencl.h"

#include "oracle_run.h"

#define DATA "tests/data/opinfo"

static void need_opencl(void)
{
    static bool registered;
    const char *why = "";
    registered = registered || tc_opencl_register(&why) == TC_OK;
    if (!registered) {
        SKIP("%s", why);
    }
}

TEST(reference_cases)
{
    static orc_run r;
    static st_file arrays;
    need_opencl();
    size_t bytes = 0;
    char *text = json_read_file(DATA ".json", &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest && st_open(&arrays, DATA ".safetensors"));
    memset(&r, 0, sizeof(r));
    r.manifest = manifest;
    r.arrays = &arrays;
    r.backend = "opencl";
    r.quiet = true;
    r.every = tct_soak ? 0 : 10; /* pocl takes a tenth of a second and more for a kernel */
    CHECK(orc_replay(&r));
    printf("opencl/oracle: %d reference cases passed, %d skipped\n", r.passed, r.skipped);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed >= (tct_soak ? 1100 : 100), "only %d cases passed", r.passed);
    st_close(&arrays);
    json_free(manifest);
    free(text);
}

TEST(an_index_outside_its_axis_is_found_on_the_device)
{
    need_opencl();
    tc_options options = {.backend = "opencl", .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    tc_program *f;
    float x[6] = {0, 1, 2, 3, 4, 5}, out[2];
    int which[2] = {1, 7};
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    tc_tensor i = tc_input(ctx, "i", TC_I32, 2);
    REQUIRE(tc_compile(tc_index_select(tc_copy_in(ctx, x, TC_F32, 6), 0, i), &f) == TC_OK);
    tc_bufs in = TC_BUFS(TC_BUF(which, 2)), to = TC_BUFS(TC_BUF(out, 2));
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    which[1] = -1;
    CHECK_EQ_INT(tc_run(f, in, to), TC_OK);
    CHECK_CLOSE(out[0], 1, 0);
    CHECK_CLOSE(out[1], 5, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A kernel reads its words whatever their number: symbolic or literal. */
TEST(the_text_is_opencl_c)
{
    need_opencl();
    tc_options options = {.backend = "opencl", .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    tc_program *f;
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 10);
    REQUIRE(tc_compile(tc_mul(x, 1.5), &f) == TC_OK);
    CHECK_HAS(tc_source(f), "__kernel void tc_k_");
    CHECK_HAS(tc_source(f), "(__global char *b0, __global char *b1, __global long *words)");
    CHECK_HAS(tc_source(f), "__global const float *const p0 = ");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A backend without events of its own is waited for after each launch. */
TEST(kernels_appear_in_profiles)
{
    need_opencl();
    static float in[1000], out[1000];
    static char table[4000];
    tc_options options = {.backend = "opencl", .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    tc_program *f;
    tc_profile *p;
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1000);
    REQUIRE(tc_compile(tc_cumsum(tc_exp(x), 0), &f) == TC_OK);
    REQUIRE(tc_profile_begin(NULL, &p) == TC_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 1000)), TC_BUFS(TC_BUF(out, 1000))), TC_OK);
    }
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    FILE *to = fmemopen(table, sizeof(table), "w");
    REQUIRE(to);
    CHECK_EQ_INT(tc_profile_table(p, to, TC_BY_TIME, 20), TC_OK);
    fclose(to);
    const char *row = strstr(table, "tc_k_");
    CHECK_MSG(row != NULL, "%s", table);
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    int kernels = 0;
    for (; row; row = strstr(row + 1, "tc_k_")) {
        kernels++;
    }
    CHECK_MSG(kernels == info.n_kernels, "%d kernels, of %d\n%s", kernels, info.n_kernels, table);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
