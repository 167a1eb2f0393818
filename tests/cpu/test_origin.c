/* tests/cpu/test_origin.c - kernels know the user's lines and regions, also from a cache, and bear
 * the names of what they compute. Needs a compiler. */
#include "inside.h"

#include "cache.h"

/* The text of where step i comes from. */
static const char *from(const tc_program *f, int i)
{
    static char text[512];
    tci_str s = {0};
    tci_origin_text(&s, f, i);
    snprintf(text, sizeof(text), "%s", tci_str_text(&s));
    tci_str_free(&s);
    return text;
}

static const char *symbol(const tc_program *f, int i)
{
    return f->code->kernels[f->code->steps[i].kernel].symbol;
}

static tc_tensor net(tc_ctx *ctx, const char *outer, tc_tensor x, int *line)
{
    tc_region_begin(ctx, outer);
    tc_region_begin(ctx, "0");
    *line = __LINE__ + 1;
    tc_tensor y = tc_cumsum(tc_cos(x), 0);
    tc_region_end(ctx);
    tc_region_end(ctx);
    return y;
}

TEST(a_kernel_knows_its_line_and_region)
{
    begin();
    tc_ctx *ctx;
    tc_program *f, *again;
    tc_options o = default_options();
    char want[256];
    int line, other;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 300);
    REQUIRE(tc_compile(net(ctx, "encoder", x, &line), &f) == TC_OK);
    snprintf(want, sizeof(want), "test_origin.c:%d tc_cumsum, encoder.0", line);
    CHECK_STR(from(f, 0), want);
    /* the same program by other regions, from memory and then from the disk */
    for (int fresh = 0; fresh < 2; fresh++) {
        tc_ctx *second;
        REQUIRE(tc_ctx_make(&second, &o) == TC_OK);
        tc_tensor z = tc_input(second, "z", TC_F32, 300);
        REQUIRE(tc_compile(net(second, "decoder", z, &other), &again) == TC_OK);
        CHECK(again->from_memory == !fresh && again->from_disk == fresh);
        snprintf(want, sizeof(want), "test_origin.c:%d tc_cumsum, decoder.0", other);
        CHECK_STR(from(again, 0), want);
        tc_program_free(again);
        tc_ctx_free(second);
        if (!fresh) {
            tc_program_free(f);
            tc_ctx_free(ctx);
            tc_shutdown();
        }
    }
    end();
}

TEST(gradients_are_of_the_region_whose_backward_pass_they_are)
{
    begin();
    tc_ctx *ctx;
    tc_program *f;
    tc_options o = default_options();
    int n_backward = 0;
    o.fusion = -1;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 40, 30), w = tc_input(ctx, "w", TC_F32, 30, 20), g;
    tc_region_begin(ctx, "head");
    tc_tensor y = tc_tanh(tc_matmul(x, w));
    tc_region_end(ctx);
    REQUIRE(tc_grad(tc_sum(y, TC_ALL, 0), &w, 1, &g) == TC_OK);
    REQUIRE(tc_compile(g, &f) == TC_OK);
    for (int i = 0; i < f->code->n_steps; i++) {
        n_backward += strstr(from(f, i), "backward of head") != NULL;
    }
    CHECK(n_backward >= 1);
    CHECK_HAS(from(f, 0), "test_origin.c:");
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(kernels_bear_the_names_of_what_costs_most)
{
    begin();
    tc_ctx *ctx;
    tc_program *f;
    tc_options o = default_options();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 500);
    tc_tensor y = tc_div(tc_sub(tc_abs(tc_add(tc_mul(tc_lgamma(x), 3), 1)), x), 7);
    REQUIRE(tc_compile(y, &f) == TC_OK);
    CHECK_HAS(symbol(f, 0), "lgamma");
    tc_program_free(f);
    REQUIRE(tc_compile(tc_softmax(x, 0), &f) == TC_OK);
    CHECK_HAS(symbol(f, 0), "tc_k_softmax_");
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(a_kernel_has_neither_name_nor_line_of_a_kernel_that_it_reads)
{
    static const int8_t fusion[] = {0, -1};
    begin();
    for (int mode = 0; mode < 2; mode++) {
        tc_ctx *ctx;
        tc_program *f;
        tc_options o = default_options();
        char want[64];
        int line, n = 0;
        o.fusion = fusion[mode];
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 4, 16, 16),
                  w = tc_input(ctx, "w", TC_F32, 4, 4, 3, 3);
        tc_region_begin(ctx, "conv");
        tc_tensor a = tc_conv2d(x, w, TC_NONE, NULL), mean, var;
        tc_region_end(ctx);
        tc_region_begin(ctx, "norm");
        tc_var_mean(a, TC_AXES(0, 2, 3), 0, true, &var, &mean);
        line = __LINE__ + 1;
        tc_tensor y = tc_sqrt(tc_sub(a, tc_add(mean, var)));
        tc_region_end(ctx);
        REQUIRE(tc_compile(y, &f) == TC_OK);
        snprintf(want, sizeof(want), "test_origin.c:%d tc_sqrt, norm", line);
        for (int i = 0; i < f->code->n_steps; i++) {
            if (f->code->steps[i].kernel >= 0 && strstr(symbol(f, i), "sqrt")) {
                CHECK(!strstr(symbol(f, i), "contract") && !strstr(symbol(f, i), "conv"));
                CHECK(!strstr(from(f, i), "conv"));
                n += !mode || !strcmp(from(f, i), want);
            }
        }
        CHECK_EQ_INT(n, 1);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    end();
}

TEST(regions_end_in_order_and_mistakes_are_told)
{
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    CHECK_EQ_INT(tc_region_end(ctx), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "no region is open");
    CHECK_EQ_INT(tc_region_begin(ctx, ""), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "expected the name of the region");
    CHECK_EQ_INT(tc_region_begin(NULL, "a"), TC_ERR_HANDLE);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ_INT(tc_region_begin(ctx, "deep"), TC_OK);
    }
    for (int i = 0; i < 100; i++) {
        CHECK_EQ_INT(tc_region_end(ctx), TC_OK);
    }
    CHECK_EQ_INT(tc_region_end(ctx), TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
}

TEST(dumped_source_says_lines_which_no_cache_holds)
{
    begin();
    tc_ctx *ctx;
    tc_program *f;
    tc_options o = default_options();
    int line;
    o.dump = "source,plan";
    o.dump_dir = in_dir("dump");
    o.name = "my net";
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "picture", TC_F32, 300);
    REQUIRE(tc_compile(net(ctx, "encoder", x, &line), &f) == TC_OK);
    bytes b = read_file(in_dir("dump/my_net/source.c"));
    b.data[b.n] = 0;
    CHECK_HAS((char *)b.data, "cos f32 [300]  test_origin.c:");
    CHECK_HAS((char *)b.data, "tc_cos, encoder.0");
    CHECK(!strstr(tc_source(f), "encoder"));
    free(b.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST_MAIN
