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
    const char *names[16];
    int n = tc_list_backends(names, 16), n_null = 0;
    REQUIRE(n >= 2 && n <= 16);
    CHECK_STR(names[0], "interp");
    for (int i = 0; i < n; i++) {
        n_null += !strcmp(names[i], "null");
    }
    CHECK_EQ_INT(n_null, 1);
    CHECK_EQ_INT(tc_list_backends(NULL, 0), n);
}

TEST(backends_say_what_they_found_or_why_they_cannot_be_used)
{
    (void)tc_register_backend(&null_backend);
    int n = tc_list_backends(NULL, 0), i = 0, n_null = 0;
    const tc_backend_entry *e;
    for (; (e = tc_backend_at(i)); i++) {
        n_null += !strcmp(e->name, "null");
        CHECK(e->name && e->usable == !e->why[0] && e->usable == (e->found[0] != 0));
        CHECK(tc_backend_at(i) == e);
    }
    CHECK_EQ_INT(i, n);
    CHECK(tc_backend_at(-1) == NULL);
    CHECK_STR(tc_backend_at(0)->name, "interp");
    CHECK(tc_backend_at(0)->usable);
    CHECK_EQ_INT(n_null, 1);
}

static char last_log[400];
static int instead; /* lines that say what replaces the backend that was asked for */
static void keep_log(void *user, const char *topic, const char *text)
{
    (void)user;
    instead += !strcmp(text, "cpu instead of absent: no such device is in this machine");
    if (!strcmp(topic, "compile") && !strstr(text, "is no variable of tc")) {
        snprintf(last_log, sizeof(last_log), "%s", text);
    }
}

TEST(a_backend_that_does_not_exist_is_refused_when_the_context_is_made)
{
    tc_ctx *ctx;
    tc_options o = {.backend = "cpuu", .log = keep_log};
    CHECK_EQ_INT(tc_ctx_make(&ctx, &o), TC_ERR_BACKEND);
    CHECK(ctx == NULL);
    CHECK_HAS(last_log, "there is no backend 'cpuu': expected interp");
}

/* "cuda" too, in a build without TC_CUDA: before anything is compiled. */
TEST(a_backend_that_this_build_does_not_have_is_refused_when_the_context_is_made)
{
    tc_ctx *ctx;
    tc_options o = {.backend = "cuda", .log = keep_log};
    CHECK_EQ_INT(tc_ctx_make(&ctx, &o), TC_ERR_BACKEND);
    CHECK(ctx == NULL);
    CHECK_HAS(last_log, "there is no backend 'cuda': expected interp, cpu");
    CHECK_HAS(last_log, "TC_CUDA was not defined");
    o.backend = NULL;
    setenv("TC_BACKEND", "cuda", 1);
    CHECK_EQ_INT(tc_ctx_make(&ctx, &o), TC_ERR_BACKEND);
    unsetenv("TC_BACKEND");
}

static tc_status absent_target(void *user, int vector_bits, tc_backend_target *target)
{
    (void)user, (void)vector_bits;
    strcpy(target->why, "no such device is in this machine");
    return TC_OK;
}

/* A device that is not there, as cuda without a GPU: the list says why, programs run on the
 * processor and the log says so, or they are refused. */
TEST(a_backend_that_cannot_be_used_says_why_and_cpu_takes_its_place)
{
    static tc_backend absent;
    absent = null_backend;
    absent.name = "absent";
    absent.target = absent_target;
    REQUIRE(tc_register_backend(&absent) == TC_OK);
    const tc_backend_entry *e = NULL;
    for (int i = 0; (e = tc_backend_at(i)) && strcmp(e->name, "absent"); i++) {
    }
    REQUIRE(e != NULL);
    CHECK(!e->usable);
    CHECK_STR(e->found, "");
    CHECK_STR(e->why, "no such device is in this machine");
    tc_options o = {.backend = "absent", .log = keep_log, .no_disk_cache = true};
    tc_ctx *ctx;
    tc_program *f;
    tc_program_info info;
    float in[4] = {1, 2, 3, 4}, out[4];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4), y = tc_mul(x, 2);
    REQUIRE(tc_compile(y, &f) == TC_OK);
    REQUIRE(tc_program_get_info(f, &info) == TC_OK);
    const tc_backend_entry *cpu = tc_backend_at(1);
    REQUIRE(cpu && !strcmp(cpu->name, "cpu"));
    CHECK_STR(info.backend, cpu->usable ? "cpu" : "interp");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4))), TC_OK);
    CHECK(out[0] == 2 && out[3] == 8);
    CHECK_EQ_INT(instead, cpu->usable);
    tc_program_free(f);
    o.fallback = TC_FALLBACK_REFUSE;
    CHECK(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_mul(x, 5)), &o, &f) != TC_OK);
    CHECK_HAS(tc_error(ctx), "no such device is in this machine");
    tc_ctx_free(ctx);
}

TEST(numbers_of_the_options_that_mean_nothing_are_refused)
{
    static const struct {
        int threads, vector_bits;
        const char *says;
    } bad[] = {
        {-5, 0, "options.threads is -5: expected 0 (all CPUs) or a positive number"},
        {0, 77, "options.vector_bits is 77: expected 0 (the machine's), 128, 256, 512 or -1"},
        {0, -2, "options.vector_bits is -2: expected 0"},
        {0, 1024, "options.vector_bits is 1024: expected 0"},
    };
    tc_ctx *good, *ctx;
    tc_program *f;
    REQUIRE(tc_ctx_make(&good, &(tc_options){.backend = "interp"}) == TC_OK);
    tc_tensor x = tc_input(good, "x", TC_F32, 3), y = tc_exp(x);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        tc_options o = {.threads = bad[i].threads,
                        .vector_bits = bad[i].vector_bits,
                        .log = keep_log};
        CHECK_EQ_INT(tc_ctx_make(&ctx, &o), TC_ERR_ARGUMENT);
        CHECK(ctx == NULL);
        CHECK_HAS(last_log, bad[i].says);
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f), TC_ERR_ARGUMENT);
        CHECK(f == NULL);
        CHECK_HAS(tc_error(good), "test_backend.c:");
        CHECK_HAS(tc_error(good), bad[i].says);
    }
    tc_ctx_free(good);
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

static int copies;

static void copy_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user;
    (void)n;
    copies++;
    memcpy(out->data, in[0].data, (size_t)out->n * sizeof(float));
}

/* A function of the user's runs on the host: its operands come there, the result goes back. */
TEST(custom_ops_between_launches)
{
    static const tc_custom_op copy = {.name = "copy",
                                      .run = copy_run,
                                      .cuda = "in a language that this backend does not speak"};
    (void)tc_register_backend(&null_backend);
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "null";
    o.no_disk_cache = true;
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f;
    tc_tensor y = tc_neg(tc_custom(&copy, TC_TENSORS(tc_sin(tc_input(ctx, "x", TC_F32, 4)))));
    REQUIRE(tc_compile(y, &f) == TC_OK);
    float in[4] = {1, 2, 3, 4}, out[4];
    null_counts before = null_seen;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4))), TC_OK);
    CHECK_EQ_INT(copies, 1);
    CHECK_EQ_INT(null_seen.launched - before.launched, 2);
    CHECK_EQ_INT(null_seen.uploads - before.uploads, 2);
    CHECK_EQ_INT(null_seen.downloads - before.downloads, 2);
    char text[4000] = "";
    FILE *file = fmemopen(text, sizeof(text), "w");
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    fclose(file);
    CHECK_HAS(text, "called by the host: operands are copied there");
    tc_program_free(f);
    tc_ctx_free(ctx);
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

/* ---- indices in memory of a device ---- */

static bool far_memory;

static bool far_is_device(void *user, const void *memory)
{
    (void)user;
    return memory && far_memory;
}

static tc_status far_launch(void *user, const tc_launch *launch)
{
    (void)user;
    if (launch->fault) {
        *launch->fault = 4 + 1;
    }
    return TC_OK;
}

TEST(an_index_on_a_device_is_not_read)
{
    static tc_backend far;
    far = null_backend;
    far.name = "far";
    far.launch = far_launch;
    far.is_device = far_is_device;
    REQUIRE(tc_register_backend(&far) == TC_OK);
    tc_options o = {.backend = "far", .no_disk_cache = true};
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4), i = tc_input(ctx, "i", TC_I64, 4);
    tc_program *f = NULL;
    REQUIRE(tc_compile(tc_gather(x, 0, i), &f) == TC_OK);
    _Alignas(64) static float in[4], out[4];
    _Alignas(64) static int64_t at[4] = {0, 1, 2, 4};
    for (int k = 0; k < 2; k++) {
        far_memory = k == 1;
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4), TC_BUF(at, 4)), TC_BUFS(TC_BUF(out, 4))),
                     TC_ERR_INDEX);
        CHECK_HAS(tc_error(f), k ? "tc_run: an index of input 1 \"i\" is outside axis 0 of size 4"
                                 : "tc_run: index 4 (element 3 of input 1 \"i\") is outside");
        CHECK_HAS(tc_error(f), "in tc_gather made at");
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
}

TEST_MAIN
