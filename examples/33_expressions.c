/* 33_expressions.c - formulas as text: a column calculator. Columns of measurements come with
 * formulas, one a line, as a user would type them; each is parsed, compiled and run, and one with a
 * mistake is refused with a caret under the place. TC_EXPR is the same notation in the source.
 *
 * Prints each formula with its first values, the mistake, and the number of wrong values.
 *
 * Build, from the project's root: cc -O2 -I. examples/33_expressions.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { ROWS = 1000 };
static double height[ROWS], weight[ROWS], out[ROWS];

static const char *const formulas[] = {
    "weight / height ** 2",
    "(height - mean(height)) / std(height, correction=0)",
    "where((weight > 52) & (weight <= 58), 1.0, 0.0)",
    "weight.cumsum(axis=0)[::-1] / weight.sum()",
    "weight / heihgt ** 2",
};

/* The first values of a formula; false: it has a mistake. */
static bool show(tc_ctx *ctx, const char *formula, tc_tensor h, tc_tensor w)
{
    tc_tensor y = tc_expr(ctx, formula, TC_ATTRS(TC_ATTR("height", h), TC_ATTR("weight", w)));
    if (tc_status_of(y)) {
        printf("%s\n", tc_error(y));
        return false;
    }
    printf("%-55s", formula);
    return tc_print(stdout, tc_slice(y, 0, 0, 3, 1)) == TC_OK;
}

int main(void)
{
    tc_ctx *ctx;
    int wrong = 0, refused = 0;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    for (int i = 0; i < ROWS; i++) {
        height[i] = 1.5 + 0.0005 * ((i * 37) % ROWS);
        weight[i] = 50 + 0.05 * ((i * 91) % ROWS);
    }
    tc_tensor h = tc_borrow(ctx, height, TC_F64, ROWS), w = tc_borrow(ctx, weight, TC_F64, ROWS);
    for (size_t i = 0; i < sizeof(formulas) / sizeof(*formulas); i++) {
        refused += !show(ctx, formulas[i], h, w);
    }

    double limit = 25;
    tc_tensor heavy = TC_EXPR(maximum(w / h ** 2 - limit, 0), w, h, limit);
    CHECK_OK(tc_read(heavy, out, ROWS), heavy);
    for (int i = 0; i < ROWS; i++) {
        double want = fmax(weight[i] / (height[i] * height[i]) - limit, 0);
        wrong += fabs(out[i] - want) > 1e-12 * fabs(want) + 1e-12;
    }
    tc_ctx_free(ctx);
    return report_check(wrong, 0, "number of wrong values") || refused != 1;
}
