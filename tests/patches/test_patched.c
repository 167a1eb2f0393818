/* What the patches of this folder add to tc, seen by a program. It compiles only against a copy of
 * the rooms to which all of them are applied: tests/include/test_patches.c makes that, runs it. */
#include "inside.h"

#include <stdlib.h>
#include <unistd.h>

#include "../tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options options = {0};
    options.backend = "interp";
    options.verify = true;
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
}

static double value_of(tc_tensor t)
{
    double y = NAN;
    CHECK_MSG(tc_read(tc_cast(t, TC_F64), &y, 1) == TC_OK, "%s", tc_error(t));
    return y;
}

/* What tc_explain says of a program that computes t. */
static const char *explained(tc_tensor t)
{
    static char text[20000];
    tc_program *f = NULL;
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    CHECK_MSG(tc_compile(t, &f) == TC_OK, "%s", tc_error(t));
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    tc_program_free(f);
    return text;
}

TEST(elementwise)
{
    double at[1] = {1.5};
    begin();
    tc_tensor x = tc_param(ctx, at, TC_F64, 1), g;
    tc_tensor y = tc_sum(tc_cube(x), TC_ALL, false);
    tc_grad(y, &x, 1, &g);
    CHECK_CLOSE(value_of(y), 3.375, 0);
    CHECK_CLOSE(value_of(g), 6.75, 0);
    tc_ctx_free(ctx);
}

TEST(scalar)
{
    float narrow[1] = {-3};
    double wide[1] = {-3};
    begin();
    CHECK_CLOSE(value_of(tc_softsign(tc_copy_in(ctx, narrow, TC_F32, 1))), -0.75, 0);
    CHECK_CLOSE(value_of(tc_softsign(tc_copy_in(ctx, wide, TC_F64, 1))), -0.75, 0);
    tc_ctx_free(ctx);
}

TEST(reduction)
{
    float odd[5] = {1, 0, 2, 3, 0}, even[4] = {1, 0, 2, 0};
    begin();
    CHECK_CLOSE(value_of(tc_parity(tc_copy_in(ctx, odd, TC_F32, 5), TC_ALL, false)), 1, 0);
    CHECK_CLOSE(value_of(tc_parity(tc_copy_in(ctx, even, TC_F32, 4), TC_ALL, false)), 0, 0);
    tc_ctx_free(ctx);
}

TEST(composite)
{
    float a[2] = {1, 5}, b[2] = {2, 2};
    begin();
    tc_tensor x = tc_copy_in(ctx, a, TC_F32, 2), y = tc_copy_in(ctx, b, TC_F32, 2);
    CHECK_CLOSE(value_of(tc_squared_error(x, y)), 5, 0);
    CHECK_CLOSE(value_of(tc_op(ctx, "squared_error", TC_TENSORS(x, y), TC_ATTRS())), 5, 0);
    tc_ctx_free(ctx);
}

TEST(fact)
{
    CHECK(tci_op_is(TCI_OP_EXPAND, TCI_IS_REPEAT) && tci_op_is(TCI_OP_WINDOW, TCI_IS_REPEAT));
    CHECK(!tci_op_is(TCI_OP_SLICE, TCI_IS_REPEAT) && !tci_op_is(TCI_OP_ADD, TCI_IS_REPEAT));
}

TEST(rewrite)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64);
    CHECK_HAS(explained(tc_floor(tc_floor(x))), " 64 flops");
    CHECK_HAS(explained(tc_ceil(tc_ceil(x))), " 64 flops");
    CHECK_HAS(explained(tc_trunc(tc_trunc(x))), " 128 flops"); /* has no such rule */
    tc_ctx_free(ctx);
}

TEST(why)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 64);
    tc_tensor y = tc_sub(tc_cumsum(x, 1), tc_cumsum(tc_exp(x), 1));
    CHECK_HAS(explained(y), "two running sums share no kernel");
    tc_ctx_free(ctx);
}

TEST(environment)
{
    setenv("TC_NICE", "3", 1);
    begin();
    CHECK_EQ_INT(tci_ctx_of(ctx)->options.nice, 3);
    tc_ctx_free(ctx);
    unsetenv("TC_NICE");
}

TEST(error)
{
    begin();
    tc_tensor y = tc_dropout(tc_input(ctx, "x", TC_F32, 4), 2.0, 7);
    CHECK_EQ_INT(tc_status_of(y), TC_ERR_RANGE);
    CHECK_STR(tc_status_text(TC_ERR_RANGE), "number out of range");
    CHECK_HAS(tc_error(y), "p is 2: expected a number in [0, 1]");
    tc_ctx_free(ctx);
}

TEST(machine)
{
    tci_machine m = {0};
    char text[1000];
    CHECK_EQ_INT(tci_machine_complete(m).facts.page_bytes, 4096);
    m.facts.page_bytes = 16384;
    tci_machine_text(&m, text, sizeof(text));
    CHECK_HAS(text, "pages 16384");
    m.facts.page_bytes = 0;
    m.block_threads = 256;
    CHECK_EQ_INT(tci_machine_complete(m).facts.page_bytes, 2 << 20);
}

TEST(schedule)
{
    const tci_form *const *form = tci_map_forms();
    while (*form && strcmp((*form)->name, "plain")) {
        form++;
    }
    CHECK(*form != NULL);
}

/* Never the cheapest, so it is taken where a file says so alone. */
TEST(route)
{
    static const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 2, 1, 0, 3};
    static const char *const want[] = {"; exchanged operands ", ": exchanged operands, "};
    char path[] = "/tmp/tc_route_XXXXXX";
    int file = mkstemp(path);
    const char *line = "contract_2x2x3: exchanged operands\n";
    REQUIRE(file >= 0 && write(file, line, strlen(line)) == (ssize_t)strlen(line));
    close(file);
    for (int forced = 0; forced < 2; forced++) {
        tc_options options = {0};
        options.backend = "interp";
        options.schedule = forced ? path : NULL;
        REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
        tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 3), y = tc_input(ctx, "y", TC_F32, 3, 2);
        CHECK_HAS(explained(tc_matmul(x, y)), want[forced]);
        x = tc_copy_in(ctx, a, TC_F32, 2, 3);
        y = tc_copy_in(ctx, b, TC_F32, 3, 2);
        CHECK_CLOSE(value_of(tc_sum(tc_matmul(x, y), TC_ALL, false)), 5 + 11 + 14 + 23, 0);
        tc_ctx_free(ctx);
    }
    unlink(path);
}

TEST(room)
{
    CHECK_EQ_INT(tci_bits_count(0), 0);
    CHECK_EQ_INT(tci_bits_count(UINT64_MAX), 64);
    CHECK_EQ_INT(tci_bits_count(0xf0f1), 9);
}

TEST_MAIN
