/* tests/unit/test_device_memory.c - memory of a device that runs out: what is given back, and what
 * the error says. The device is the null backend with a budget. */
#include "inside.h"

#include "../null_backend.c"
#include "tc_test.h"

static int64_t budget, held;
static int64_t code_bytes, code; /* of a module, of all that are loaded */

static void *count_alloc(void *user, int64_t bytes)
{
    (void)user;
    size_t all = ((size_t)bytes + 127) / 64 * 64;
    int64_t *block = held + code + bytes <= budget ? aligned_alloc(64, all) : NULL;
    if (block) {
        block[0] = bytes;
        held += bytes;
        block += 8;
    }
    return block;
}

static void count_free(void *user, void *memory)
{
    (void)user;
    int64_t *block = (int64_t *)memory - 8;
    held -= block[0];
    free(block);
}

static tc_status count_load(void *user, const void *bytes, size_t n, const char *path,
                            void **module)
{
    code += code_bytes;
    return null_backend.module_load(user, bytes, n, path, module);
}

static void count_unload(void *user, void *module)
{
    code -= code_bytes;
    null_backend.module_free(user, module);
}

static tc_status count_left(void *user, int64_t *left, int64_t *all)
{
    (void)user;
    *left = budget - held;
    *all = budget;
    return TC_OK;
}

static tc_ctx *make_context(int64_t limit)
{
    static tc_backend device;
    tc_options o = {.backend = "small", .no_disk_cache = true, .memory_limit = limit};
    tc_ctx *ctx;
    if (!device.name) {
        device = null_backend;
        device.name = "small";
        device.alloc = count_alloc;
        device.free = count_free;
        device.module_load = count_load;
        device.module_free = count_unload;
        device.memory_left = count_left;
        REQUIRE(tc_register_backend(&device) == TC_OK);
    }
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

enum { N = 4096 };

/* Sums of rows, twice: the rows between them are workspace. */
static tc_program *make_program(tc_ctx *ctx, int which)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, N / 64);
    tc_tensor y = tc_cumsum(tc_pow(x, which + 3.25), 1);
    REQUIRE(tc_compile(tc_cumsum(tc_cumsum(y, 0), 1), &f) == TC_OK);
    return f;
}

static tc_status run(tc_program *f)
{
    static float in[N], out[N];
    return tc_run(f, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N)));
}

TEST(idle_workspaces_are_given_back_before_a_run_fails)
{
    budget = INT64_MAX / 2;
    tc_ctx *ctx = make_context(0);
    tc_program *a = make_program(ctx, 1), *b = make_program(ctx, 2);
    REQUIRE(run(a) == TC_OK);
    int64_t one = held;
    CHECK(one >= 2 * N * (int64_t)sizeof(float)); /* copies of input and output */
    REQUIRE(run(b) == TC_OK);
    CHECK_EQ_INT(held, 2 * one);
    tc_program_free(b);
    CHECK_EQ_INT(held, one);
    b = make_program(ctx, 2);
    budget = one + one / 2; /* there is no room for both */
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(run(b) == TC_OK, "%s", tc_error(b));
        CHECK_MSG(run(a) == TC_OK, "%s", tc_error(a));
        CHECK_EQ_INT(held, one);
    }
    tc_program_free(a);
    tc_program_free(b);
    CHECK_EQ_INT(held, 0);
    tc_ctx_free(ctx);
}

TEST(code_that_no_program_uses_is_unloaded_before_a_run_fails)
{
    budget = INT64_MAX / 2;
    tc_shutdown(); /* no module is loaded */
    tc_ctx *ctx = make_context(0);
    tc_program *f = make_program(ctx, 5), *other = NULL;
    REQUIRE(run(f) == TC_OK);
    int64_t one = held;
    tc_program_free(f);
    tc_shutdown();
    code_bytes = 4096;
    REQUIRE(tc_compile(tc_sin(tc_input(ctx, "x", TC_F32, 64)), &other) == TC_OK);
    int64_t others = code;
    f = make_program(ctx, 5);
    int64_t both = code;
    CHECK(others > 0 && both > others);
    budget = one + both - 1;
    CHECK_EQ_INT(run(f), TC_ERR_MEMORY); /* both are in use */
    tc_program_free(other);
    CHECK_EQ_INT(code, both); /* a cache has it */
    CHECK_MSG(run(f) == TC_OK, "%s", tc_error(f));
    CHECK_EQ_INT(code, both - others);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
    CHECK_EQ_INT(code, 0);
    code_bytes = 0;
}

TEST(the_error_says_how_much_was_wanted_is_free_and_is_held)
{
    budget = INT64_MAX / 2;
    tc_ctx *ctx = make_context(0);
    tc_program *f = make_program(ctx, 4);
    budget = 3 * N;
    CHECK_EQ_INT(run(f), TC_ERR_MEMORY);
    CHECK_HAS(tc_error(f), "test_device_memory.c:");
    CHECK_HAS(tc_error(f), "small gave no memory: wanted 32768 bytes, ");
    CHECK_HAS(tc_error(f), " of its 12288 bytes are free, tc holds ");
    budget = INT64_MAX / 2;
    CHECK_EQ_INT(run(f), TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(memory_limit_holds_on_a_device)
{
    budget = INT64_MAX / 2;
    tc_ctx *ctx = make_context(64);
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64);
    tc_tensor y = tc_cumsum(tc_cumsum(tc_cumsum(tc_pow(x, 6.5), 1), 0), 1);
    CHECK_EQ_INT(tc_compile(y, &f), TC_ERR_LIMIT);
    CHECK_HAS(tc_error(y), "expected at most memory_limit = 64");
    tc_ctx_free(ctx);
}

TEST_MAIN
