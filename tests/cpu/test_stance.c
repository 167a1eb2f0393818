/* tests/cpu/test_stance.c - when a program may be compiled: stances of contexts and of functions
 * that specialize themselves, and the report of what was compiled. */
#include "inside.h"

#include "../json.h"
#include "tc_test.h"

#define REQUIRE_OK(call)                                                                           \
    do {                                                                                           \
        tc_status status_of_call = (call);                                                         \
        REQUIRE(status_of_call == TC_OK);                                                          \
    } while (0)

static tc_ctx *make_context(tc_stance stance)
{
    tc_options o = {.no_disk_cache = true, .threads = 1, .stance = stance};
    tc_ctx *ctx;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    return ctx;
}

static tc_status compile_rows(tc_ctx *ctx, int rows, tc_program **f)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, 3);
    return tc_compile(tc_sum(tc_atanh(tc_sin(x)), TC_AXES(0), false), f);
}

static long compiler_runs(tc_ctx *ctx)
{
    tc_stats s;
    tc_stats(ctx, &s);
    return (long)s.compiler_runs;
}

TEST(a_frozen_context_compiles_nothing_and_says_what_differs)
{
    tc_ctx *ctx = make_context(TC_STANCE_COMPILE);
    tc_program *f = NULL, *again = NULL, *other = NULL;
    REQUIRE_OK(compile_rows(ctx, 8, &f));
    REQUIRE_OK(tc_ctx_stance(ctx, TC_STANCE_FAIL));
    long before = compiler_runs(ctx);
    CHECK_EQ_INT(compile_rows(ctx, 8, &again), TC_OK); /* memory has it */
    CHECK_EQ_INT(compile_rows(ctx, 9, &other), TC_ERR_FROZEN);
    CHECK(!other);
    CHECK_HAS(tc_error(ctx), "test_stance.c:");
    CHECK_HAS(tc_error(ctx), "not compiled, as the stance forbids");
    CHECK_HAS(tc_error(ctx), "input f32 [9, 3] \"x\"; was: %0 = input f32 [8, 3] \"x\"");
    float value[3];
    tc_tensor lazy = tc_sin(tc_full(ctx, 0.25, TC_F32, 3, 5));
    CHECK_EQ_INT(tc_read(lazy, value, 3), TC_ERR_FROZEN);
    CHECK_EQ_INT(tc_eval(lazy), TC_ERR_FROZEN);
    CHECK_EQ_INT(compiler_runs(ctx), before);
    REQUIRE_OK(tc_ctx_stance(ctx, TC_STANCE_COMPILE));
    CHECK_EQ_INT(compile_rows(ctx, 9, &other), TC_OK);
    CHECK_EQ_INT(tc_ctx_stance(ctx, (tc_stance)77), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_ctx_stance(NULL, TC_STANCE_FAIL), TC_ERR_HANDLE);
    tc_program_free(f);
    tc_program_free(again);
    tc_program_free(other);
    tc_ctx_free(ctx);
}

TEST(an_interpreting_context_starts_no_compiler_and_gives_the_same_bits)
{
    tc_ctx *ctx = make_context(TC_STANCE_INTERPRET);
    tc_program *f = NULL, *native = NULL;
    float in[33], out[3], native_out[3];
    for (int i = 0; i < 33; i++) {
        in[i] = (float)i * 0.37f;
    }
    long before = compiler_runs(ctx);
    REQUIRE_OK(compile_rows(ctx, 11, &f));
    tc_program_info info;
    REQUIRE_OK(tc_program_get_info(f, &info));
    CHECK_STR(info.backend, "interp");
    CHECK_EQ_INT(compiler_runs(ctx), before);
    REQUIRE_OK(tc_run(f, TC_BUFS(TC_BUF(in, 33)), TC_BUFS(TC_BUF(out, 3))));
    REQUIRE_OK(tc_ctx_stance(ctx, TC_STANCE_COMPILE));
    REQUIRE_OK(compile_rows(ctx, 11, &native));
    REQUIRE_OK(tc_program_get_info(native, &info));
    if (!strcmp(info.backend, "interp")) {
        tc_program_free(f);
        tc_program_free(native);
        tc_ctx_free(ctx);
        SKIP("no compiler");
    }
    REQUIRE_OK(tc_run(native, TC_BUFS(TC_BUF(in, 33)), TC_BUFS(TC_BUF(native_out, 3))));
    CHECK(!memcmp(out, native_out, sizeof(out)));
    REQUIRE_OK(tc_ctx_stance(ctx, TC_STANCE_INTERPRET));
    tc_program *found = NULL;
    REQUIRE_OK(compile_rows(ctx, 11, &found)); /* memory has native code now */
    REQUIRE_OK(tc_program_get_info(found, &info));
    CHECK(strcmp(info.backend, "interp") != 0);
    tc_program_free(f);
    tc_program_free(native);
    tc_program_free(found);
    tc_ctx_free(ctx);
}

/* With a compiler that is not there each stance shows: it is missed at once, not asked for, or
 * missed in the background. */
TEST(the_variable_sets_the_stance_of_new_contexts)
{
    static const struct {
        const char *word;
        tc_status compiles, ends;
    } words[] = {{"compile", TC_ERR_COMPILER, TC_OK},
                 {"fail", TC_ERR_FROZEN, TC_OK},
                 {"interpret", TC_OK, TC_OK},
                 {"later", TC_OK, TC_ERR_COMPILER}};
    tc_options o = {.no_disk_cache = true,
                    .threads = 1,
                    .backend = "cpu",
                    .cc = "/no/such/compiler",
                    .fallback = TC_FALLBACK_REFUSE};
    for (int i = 0; i < (int)(sizeof(words) / sizeof(words[0])); i++) {
        tc_ctx *ctx;
        tc_program *f = NULL;
        setenv("TC_STANCE", words[i].word, 1);
        REQUIRE_OK(tc_ctx_make(&ctx, &o));
        unsetenv("TC_STANCE");
        tc_status status = compile_rows(ctx, 71, &f);
        CHECK_MSG(status == words[i].compiles, "%s: %s", words[i].word, tc_error(ctx));
        status = f ? tc_program_wait(f, -1) : TC_OK;
        CHECK_MSG(status == words[i].ends, "%s: %s", words[i].word, tc_status_text(status));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* ---- functions that specialize themselves ---- */

static tc_status build_layer(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                             void *user)
{
    (void)ctx, (void)n_in, (void)n_out, (void)user;
    out[0] = tc_softmax(tc_mul(in[0], 0.5), -1);
    return TC_OK;
}

static tc_status run_layer(tc_jit *fn, int rows, float *out)
{
    static float in[1024];
    for (int i = 0; i < rows * 4; i++) {
        in[i] = (float)(i % 7);
    }
    return tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(in, rows, 4)), TC_BUFS(TC_BUF(out, rows * 4)));
}

TEST(a_frozen_function_serves_what_it_has)
{
    tc_options o = {.no_disk_cache = true, .threads = 1};
    tc_jit *fn;
    float out[64];
    REQUIRE_OK(
        tc_jit_make(build_layer, NULL, (&(tc_jit_options){.options = &o, .name = "layer"}), &fn));
    REQUIRE_OK(run_layer(fn, 2, out));
    REQUIRE_OK(tc_jit_stance(fn, TC_STANCE_FAIL));
    long before = compiler_runs(tc_jit_ctx(fn));
    CHECK_EQ_INT(run_layer(fn, 2, out), TC_OK);
    CHECK_EQ_INT(run_layer(fn, 3, out), TC_ERR_FROZEN);
    CHECK_HAS(tc_error(fn), "test_stance.c:");
    CHECK_HAS(tc_error(fn), "tc_jit_run of layer: asked for f32[3, 4]: the nearest of 1 "
                            "specializations serves f32[2, 4] and differs in axis 0 of input 0");
    double wide[8] = {0}, wide_out[8];
    CHECK_EQ_INT(tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(wide, 2, 4)), TC_BUFS(TC_BUF(wide_out, 8))),
                 TC_ERR_FROZEN);
    CHECK_HAS(tc_error(fn), "asked for f64[2, 4]: the nearest of 1 specializations serves "
                            "f32[2, 4] and differs in the dtype of input 0,");
    CHECK_EQ_INT(compiler_runs(tc_jit_ctx(fn)), before);
    REQUIRE_OK(tc_jit_stance(fn, TC_STANCE_INTERPRET));
    float again[64];
    CHECK_EQ_INT(run_layer(fn, 3, out), TC_OK);
    CHECK_EQ_INT(compiler_runs(tc_jit_ctx(fn)), before);
    tc_jit_variant list[4];
    CHECK_EQ_INT(tc_jit_list(fn, list, 4), 2);
    CHECK(list[1].interpreted);
    REQUIRE_OK(tc_jit_stance(fn, TC_STANCE_COMPILE));
    CHECK_EQ_INT(tc_jit_list(fn, list, 4), 1);
    CHECK_EQ_INT(run_layer(fn, 3, again), TC_OK);
    CHECK(!memcmp(out, again, 12 * sizeof(float)));
    CHECK_EQ_INT(tc_jit_stance(fn, (tc_stance)9), TC_ERR_ARGUMENT);
    tc_jit_free(fn);
}

/* The sine of x, as often as the sum of the static integers says: another graph for each sum. */
static tc_status build_sines(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
                             void *user)
{
    (void)n_in, (void)n_out, (void)user;
    int64_t times = tc_jit_static(ctx, 0) + tc_jit_static(ctx, 1);
    out[0] = in[0];
    for (int64_t i = 0; i < times; i++) {
        out[0] = tc_sin(out[0]);
    }
    return TC_OK;
}

TEST(a_frozen_function_names_the_static_integer_or_rank_that_differs)
{
    tc_options o = {.no_disk_cache = true, .threads = 1, .backend = "interp"};
    tc_jit *fn;
    float in[24] = {0}, out[24];
    REQUIRE_OK(tc_jit_make(build_sines, NULL, (&(tc_jit_options){.options = &o}), &fn));
    REQUIRE_OK(tc_jit_stance(fn, TC_STANCE_FAIL));
    CHECK_EQ_INT(tc_jit_run(fn, TC_STATICS(2), TC_BUFS(TC_BUF(in, 24)), TC_BUFS(TC_BUF(out, 24))),
                 TC_ERR_FROZEN);
    CHECK_HAS(tc_error(fn), "asked for f32[24], statics 2: there is no specialization");
    REQUIRE_OK(tc_jit_stance(fn, TC_STANCE_COMPILE));
    REQUIRE_OK(
        tc_jit_run(fn, TC_STATICS(2, 5), TC_BUFS(TC_BUF_ND(in, 4, 6)), TC_BUFS(TC_BUF(out, 24))));
    REQUIRE_OK(
        tc_jit_run(fn, TC_STATICS(3, 6), TC_BUFS(TC_BUF_ND(in, 2, 7)), TC_BUFS(TC_BUF(out, 14))));
    REQUIRE_OK(tc_jit_stance(fn, TC_STANCE_FAIL));
    CHECK_EQ_INT(tc_jit_run(fn, TC_STATICS(2, 6), TC_BUFS(TC_BUF_ND(in, 4, 6)),
                            TC_BUFS(TC_BUF(out, 24))),
                 TC_ERR_FROZEN);
    CHECK_HAS(tc_error(fn), "asked for f32[4, 6], statics 2, 6: the nearest of 2 specializations "
                            "serves f32[4, 6], statics 2, 5 and differs in static integer 1,");
    CHECK_EQ_INT(tc_jit_run(fn, TC_STATICS(3), TC_BUFS(TC_BUF_ND(in, 2, 7)),
                            TC_BUFS(TC_BUF(out, 14))),
                 TC_ERR_FROZEN);
    CHECK_HAS(tc_error(fn), "serves f32[2, 7], statics 3, 6 and differs in the number of static "
                            "integers,");
    CHECK_EQ_INT(tc_jit_run(fn, TC_STATICS(3, 6), TC_BUFS(TC_BUF_ND(in, 2, 7, 1)),
                            TC_BUFS(TC_BUF(out, 14))),
                 TC_ERR_FROZEN);
    CHECK_HAS(tc_error(fn), "serves f32[2, 7], statics 3, 6 and differs in the rank of input 0,");
    CHECK_EQ_INT(tc_jit_run(fn, TC_STATICS(3, 6), TC_BUFS(TC_BUF_ND(in, 2, 7), TC_BUF_ND(in, 1)),
                            TC_BUFS(TC_BUF(out, 14))),
                 TC_ERR_FROZEN);
    CHECK_HAS(tc_error(fn), "serves f32[2, 7], statics 3, 6 and differs in the number of inputs,");
    tc_jit_free(fn);
}

/* ---- the report ---- */

static char *report_of(tc_ctx *ctx, bool as_json)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    REQUIRE(out);
    CHECK_EQ_INT(as_json ? tc_recompile_report_json(ctx, out) : tc_recompile_report(ctx, out),
                 TC_OK);
    fclose(out);
    return text;
}

TEST(the_report_says_by_line_what_differed_and_what_to_write)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true};
    tc_ctx *ctx;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    int line = 0; /* of the compile */
    char place[100];
    for (int rows = 20; rows < 23; rows++) {
        tc_program *f = NULL, *again = NULL;
        tc_tensor y = tc_erf(tc_cosh(tc_input(ctx, "rows", TC_F32, rows, 3)));
        tc_program **both[2] = {&f, &again};
        for (int i = 0; i < 2; i++) {
            line = __LINE__ + 1;
            REQUIRE_OK(tc_compile(y, both[i]));
        }
        tc_program_free(f);
        tc_program_free(again);
    }
    char *text = report_of(ctx, false);
    snprintf(place, sizeof(place), "test_stance.c:%d: tc_compile: 3 programs", line);
    CHECK_HAS(text, place);
    CHECK_HAS(text, "3 hits\n");
    CHECK_HAS(text, "in %0 = input f32 [22, 3] \"rows\"; was %0 = input f32 [21, 3] \"rows\"");
    CHECK_HAS(text, "write TC_DIM(\"rows_0\", 20, 22) for axis 0 of \"rows\"");
    free(text);
    text = report_of(ctx, true);
    json *tree = json_parse(text);
    CHECK(tree != NULL);
    json_free(tree);
    snprintf(place, sizeof(place), "\"line\": %d, \"call\": \"tc_compile\"", line);
    CHECK_HAS(text, place);
    CHECK_HAS(text, "\"write\": [{\"input\": \"rows\", \"axis\": 0, \"least\": 20, "
                    "\"most\": 22}]");
    free(text);
    tc_ctx_free(ctx);
    ctx = make_context(TC_STANCE_COMPILE);
    text = report_of(ctx, false);
    CHECK_STR(text, "no program was compiled\n");
    free(text);
    CHECK_EQ_INT(tc_recompile_report(ctx, NULL), TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
}

static void hear_recompiles(void *user, const char *topic, const char *text)
{
    if (!strcmp(topic, "recompiles")) {
        snprintf(user, 1000, "%s", text);
    }
}

TEST(the_log_names_the_line_of_a_compile)
{
    char heard[1000] = "", place[60];
    tc_options o = {.backend = "interp",
                    .no_disk_cache = true,
                    .log = hear_recompiles,
                    .log_user = heard};
    tc_ctx *ctx;
    tc_program *f = NULL;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    tc_tensor y = tc_asinh(tc_sinh(tc_input(ctx, "rows", TC_F32, 77, 3)));
    int line = __LINE__ + 1;
    REQUIRE_OK(tc_compile(y, &f));
    snprintf(place, sizeof(place), "test_stance.c:%d: tc_compile)", line);
    CHECK_HAS(heard, place);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
