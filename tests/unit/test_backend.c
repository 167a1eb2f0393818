/* The backend seam: registration, and a program that goes through a registered backend. */
#include "../null_backend.c"

#include "tc_test.h"

TEST(backends_are_registered_once_and_whole)
{
    tc_backend half = null_backend;
    half.module_find = NULL;
    CHECK_EQ_INT(tc_register_backend(NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_register_backend(&half), TC_ERR_ARGUMENT);
    half = null_backend;
    half.free = NULL; /* memory: all four or none */
    CHECK_EQ_INT(tc_register_backend(&half), TC_ERR_ARGUMENT);
    half = null_backend;
    half.name = "interp";
    CHECK_EQ_INT(tc_register_backend(&half), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_register_backend(&null_backend), TC_OK);
    CHECK_EQ_INT(tc_register_backend(&null_backend), TC_ERR_ARGUMENT);
    const char *names[8];
    int n = tc_list_backends(names, 8);
    REQUIRE(n >= 2 && n <= 8);
    CHECK_STR(names[0], "interp");
    CHECK_STR(names[n - 1], "null");
    CHECK_EQ_INT(tc_list_backends(NULL, 0), n);
}

TEST(a_program_goes_through_every_function)
{
    (void)tc_register_backend(&null_backend);
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "null";
    o.no_disk_cache = true;
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    null_counts zero;
    memset(&zero, 0, sizeof(zero));
    null_seen = zero;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 100);
    tc_program *f;
    CHECK_EQ_INT(tc_compile(tc_neg(tc_add(x, x)), &f), TC_OK);
    REQUIRE(f);
    CHECK_EQ_INT(null_seen.compiled, 1);
    CHECK_EQ_INT(null_seen.loaded, 1);
    tc_program_info info;
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    CHECK_STR(info.backend, "null");
    CHECK_HAS(tc_source(f), "tc_k_");
    float in[100] = {0}, out[100];
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 100)), TC_BUFS(TC_BUF(out, 100))), TC_OK);
    CHECK_EQ_INT(null_seen.launched, 1);
    CHECK_EQ_INT(null_seen.uploads, 1);
    CHECK_EQ_INT(null_seen.downloads, 1);
    CHECK(null_seen.synced >= 1);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
    CHECK_EQ_INT(null_seen.freed, 1);
    CHECK_EQ_INT(null_seen.blocks, 0);
}

TEST(an_unknown_backend_is_an_error)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "no-such";
    tc_ctx *ctx = NULL;
    tc_status made = tc_ctx_make(&ctx, &o);
    if (made == TC_OK) { /* it may be registered later: the compile tells */
        tc_program *f;
        tc_tensor y = tc_neg(tc_input(ctx, "x", TC_F32, 4));
        CHECK_EQ_INT(tc_compile(y, &f), TC_ERR_BACKEND);
        CHECK(f == NULL);
        CHECK_HAS(tc_error(y), "no-such");
        tc_ctx_free(ctx);
    } else {
        CHECK_EQ_INT(made, TC_ERR_BACKEND);
    }
}

TEST_MAIN
