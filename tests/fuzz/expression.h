/* tests/fuzz/expression.h - one text of any bytes as an expression: it is refused with a message
 * that shows the place, or it is a tensor. For tests/fuzz/test_expr.c and libFuzzer. */
#ifndef TESTS_FUZZ_EXPRESSION_H
#define TESTS_FUZZ_EXPRESSION_H

#include <stdlib.h>
#include <string.h>

static tc_ctx *expression_ctx;
static tc_attr expression_names[8];

static tc_status expression_begin(void)
{
    static const int64_t three[] = {3, -1, 2};
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    tc_status status = tc_ctx_make(&expression_ctx, &o);
    if (status == TC_OK) {
        tc_ctx *ctx = expression_ctx;
        tc_attr names[] = {TC_ATTR("x", tc_input(ctx, "x", TC_F32, 3, 4)),
                           TC_ATTR("a", tc_input(ctx, "a", TC_F64, 2, 3)),
                           TC_ATTR("s", tc_input(ctx, "s", TC_F32, 4, 4)),
                           TC_ATTR("m", tc_input(ctx, "m", TC_I64, 2, 3)),
                           TC_ATTR("i", tc_input(ctx, "i", TC_I32, 3)),
                           TC_ATTR("p", tc_input(ctx, "p", TC_BOOL, 3, 4)),
                           tci_attr_ints("axes", 3, three),
                           TC_ATTR_TEXT("how", "mean")};
        memcpy(expression_names, names, sizeof(names));
    }
    return status;
}

/* False: neither a tensor nor a message with the place. */
static bool expression_use(const char *text)
{
    bool good = tc_scope_begin(expression_ctx) == TC_OK;
    tc_tensor y = tc_expr(expression_ctx, text, TC_ATTRS_N(expression_names, 8));
    const char *error = tc_error(y), *caret = strrchr(error, '\n');
    if (tc_status_of(y)) {
        good = good && caret && !strncmp(caret + 1 + strspn(caret + 1, " "), "^", 1);
        good = good && strlen(error) < 1023;
    } else {
        good = good && tc_rank(y) >= 0 && !*error;
    }
    return tc_scope_end(expression_ctx) == TC_OK && good;
}

#endif
