/* tests/errors/test_expr.c - mistakes in expressions: the message, and the text with a caret under
 * the place; the user's file and line come first. */
#include "tc.h"

#include "tc_test.h"

#include <stdlib.h>
#include <string.h>

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* A text, and all of its error behind file and line. */
typedef struct mistake {
    const char *text, *error;
    tc_status status;
} mistake;

static const mistake mistakes[] = {
    {"x + * 2", "tc_expr: given '*', expected an operand\n  x + * 2\n      ^", TC_ERR_ARGUMENT},
    {"x +", "tc_expr: the text ends: expected an operand\n  x +\n     ^", TC_ERR_ARGUMENT},
    {"", "tc_expr: the text ends: expected an operand\n  \n  ^", TC_ERR_ARGUMENT},
    {"x x", "tc_expr: given 'x', expected an operator or the end\n  x x\n    ^", TC_ERR_ARGUMENT},
    {"x, w", "tc_expr: given ',', expected one expression\n  x, w\n   ^", TC_ERR_ARGUMENT},
    {"softmax(x, 1", "tc_expr: the text ends: expected ')'\n  softmax(x, 1\n              ^",
     TC_ERR_ARGUMENT},
    {"(x + w]", "tc_expr: given ']', expected ')'\n  (x + w]\n        ^", TC_ERR_ARGUMENT},
    {"x ? w : x", "tc_expr: '?' has no meaning here\n  x ? w : x\n    ^", TC_ERR_ARGUMENT},
    {"x + \x01", "tc_expr: byte 0x01 has no meaning here\n  x + ?\n      ^", TC_ERR_ARGUMENT},
    {"x = w", "tc_expr: given '=', expected an operator or the end\n  x = w\n    ^",
     TC_ERR_ARGUMENT},
    {"1 + not x", "tc_expr: given 'not', expected an operand\n  1 + not x\n      ^~~",
     TC_ERR_ARGUMENT},
    {"x * 12a", "tc_expr: '12a' is not a number\n  x * 12a\n      ^~~", TC_ERR_ARGUMENT},
    {"x * 007", "tc_expr: '007' has leading zeros\n  x * 007\n      ^~~", TC_ERR_ARGUMENT},
    {"x * 1.2.3", "tc_expr: '1.2.3' is not a number\n  x * 1.2.3\n      ^~~~~", TC_ERR_ARGUMENT},
    {"x * 9223372036854775808",
     "tc_expr: '9223372036854775808' is larger than 2^63 - 1\n  x * 9223372036854775808\n"
     "      ^~~~~~~~~~~~~~~~~~~",
     TC_ERR_ARGUMENT},
    {"mse_loss(x, x, reduction='sum)",
     "tc_expr: a text does not end: expected its closing quote\n  mse_loss(x, x, reduction='sum)\n"
     "                           ^",
     TC_ERR_ARGUMENT},
    {"einsum('ij\\,jk', x, w)",
     "tc_expr: a text has a backslash: expected plain characters\n  einsum('ij\\,jk', x, w)\n"
     "         ^",
     TC_ERR_ARGUMENT},
    {"x + zz", "tc_expr: 'zz' is not among the names that are given\n  x + zz\n      ^~",
     TC_ERR_ARGUMENT},
    {"x + softmax",
     "tc_expr: 'softmax' is an op: expected its arguments in parentheses\n"
     "  x + softmax\n      ^~~~~~~",
     TC_ERR_ARGUMENT},
    {"softmx(x, 1)",
     "tc_expr: there is no op 'softmx': expected another name, as softmax\n"
     "  softmx(x, 1)\n  ^~~~~~",
     TC_ERR_ARGUMENT},
    {"softmax(x, ax=1)",
     "tc_expr: there is no such parameter: expected softmax(x: tensor, axis: "
     "axis)\n  softmax(x, ax=1)\n             ^~",
     TC_ERR_ARGUMENT},
    {"softmax(x, 1, axis=1)",
     "tc_expr: an argument is given twice: expected softmax(x: tensor, "
     "axis: axis)\n  softmax(x, 1, axis=1)\n                ^~~~",
     TC_ERR_ARGUMENT},
    {"softmax(axis=1, x)",
     "tc_expr: a positional argument follows one with a keyword: expected "
     "softmax(x: tensor, axis: axis)\n  softmax(axis=1, x)\n"
     "                  ^",
     TC_ERR_ARGUMENT},
    {"softmax(x, 1, 2)",
     "tc_expr: there are more arguments than parameters: expected "
     "softmax(x: tensor, axis: axis)\n  softmax(x, 1, 2)\n                ^",
     TC_ERR_ARGUMENT},
    {"softmax(x)",
     "tc_expr: 'axis' is missing: expected softmax(x: tensor, axis: axis)\n"
     "  softmax(x)\n  ^~~~~~~",
     TC_ERR_ARGUMENT},
    {"softmax(x, 0.5)",
     "tc_expr: 'axis' is 0.5: expected softmax(x: tensor, axis: axis)\n"
     "  softmax(x, 0.5)\n  ^~~~~~~",
     TC_ERR_ARGUMENT},
    {"softmax(x, axis=7) + 1",
     "tc_softmax: axis 7 is out of range for rank 2: allowed are -2 to "
     "1\n  softmax(x, axis=7) + 1\n  ^~~~~~~",
     TC_ERR_AXIS},
    {"softmax(x, 1:2)", "tc_expr: given ':', expected ')'\n  softmax(x, 1:2)\n              ^",
     TC_ERR_ARGUMENT},
    {"softmax(x, ...)",
     "tc_expr: a slice or ... stands outside of a subscript: expected "
     "softmax(x: tensor, axis: axis)\n  softmax(x, ...)\n             ^~~",
     TC_ERR_ARGUMENT},
    {"cast(x, 5)",
     "tc_expr: a dtype is needed, as f32: expected cast(x: tensor, dtype: dtype)\n"
     "  cast(x, 5)\n          ^",
     TC_ERR_ARGUMENT},
    {"sum(x, f32)",
     "tc_expr: a dtype is given: expected sum(x: tensor, axes: axes = TC_ALL, "
     "keepdims: flag = false)\n  sum(x, f32)\n         ^~~",
     TC_ERR_ARGUMENT},
    {"cat([x, 2], 0)",
     "tc_expr: a list of tensors has another item: expected cat(xs: tensors, "
     "axis: axis)\n  cat([x, 2], 0)\n      ^",
     TC_ERR_ARGUMENT},
    {"reshape(x, (2, 0.5))",
     "tc_expr: a list has an item that is not an integer: expected "
     "reshape(x: tensor, sizes: sizes)\n  reshape(x, (2, 0.5))\n"
     "             ^",
     TC_ERR_ARGUMENT},
    {"x + (1, 2)",
     "tc_expr: operand 2 of '+' is a list: expected a tensor or a number\n"
     "  x + (1, 2)\n    ^",
     TC_ERR_ARGUMENT},
    {"x @ w.T",
     "tc_matmul: shapes [3, 4] and [5, 4] do not fit: axis 1 of the first is 4, axis 0 "
     "of the second is 5\n  x @ w.T\n    ^",
     TC_ERR_SHAPE},
    {"x[1, 2, 3]", "tc_expr: 3 indices are given for a tensor of rank 2\n  x[1, 2, 3]\n   ^",
     TC_ERR_ARGUMENT},
    {"x[]", "tc_expr: 0 indices are given for a tensor of rank 2\n  x[]\n   ^", TC_ERR_ARGUMENT},
    {"x[9]", "tc_select: there is no element 9 of axis 0 of size 3\n  x[9]\n   ^", TC_ERR_ARGUMENT},
    {"x[0.5]",
     "tc_expr: an index is a number: expected integers, slices, None, ... or tensors of "
     "integers (of a mask: where, masked_select)\n  x[0.5]\n    ^~~",
     TC_ERR_ARGUMENT},
    {"x[x > 0]",
     "tc_expr: an index is a tensor of bools: expected integers, slices, None, ... or "
     "tensors of integers (of a mask: where, masked_select)\n  x[x > 0]\n      ^",
     TC_ERR_ARGUMENT},
    {"x[..., ...]", "tc_expr: a subscript has two '...'\n  x[..., ...]\n         ^~~",
     TC_ERR_ARGUMENT},
    {"x[0.5:]", "tc_expr: a bound of a slice is a number: expected an integer\n  x[0.5:]\n    ^~~",
     TC_ERR_ARGUMENT},
    {"x[::0]", "tc_slice: the step of a slice cannot be 0\n  x[::0]\n   ^", TC_ERR_ARGUMENT},
    {"topk(x, 1, 2)",
     "tc_expr: the expression is a list: expected a tensor\n  topk(x, 1, 2)\n"
     "  ^~~~~~~~~~~~~",
     TC_ERR_ARGUMENT},
    {"topk(x, 1, 2)[2]",
     "tc_expr: the list has 2 items: expected an index within\n"
     "  topk(x, 1, 2)[2]\n                ^",
     TC_ERR_ARGUMENT},
    {"2 + 3", "tc_expr: the expression is a number: expected a tensor\n  2 + 3\n  ^~~~~",
     TC_ERR_ARGUMENT},
    {"exp(2)",
     "tc_expr: all arguments are numbers: expected a tensor among them, as full(2, f32, ())\n"
     "  exp(2)\n  ^~~",
     TC_ERR_ARGUMENT},
    {"conv2d(x, x, paddin=1)",
     "tc_expr: there is no such parameter: expected conv2d(x: tensor, weight: tensor, bias: "
     "optional = TC_NONE, stride: pair = 1, padding: pair = 0, dilation: pair = 1, groups: integer "
     "= 1, end_padding: pair = 0, same: flag = false)\n  conv2d(x, x, paddin=1)\n"
     "               ^~~~~~",
     TC_ERR_ARGUMENT},
    {"()", "tc_expr: the expression is a list: expected a tensor\n  ()\n  ^~", TC_ERR_ARGUMENT},
    {"x * (1 // 0)", "tc_expr: division by zero\n  x * (1 // 0)\n         ^~", TC_ERR_ARGUMENT},
    {"x * 2 ** 64", "tc_expr: the result is outside of 64 bits\n  x * 2 ** 64\n        ^~",
     TC_ERR_ARGUMENT},
    {"x * (1 << 64)", "tc_expr: a shift is by 0 to 63 bits\n  x * (1 << 64)\n         ^~",
     TC_ERR_ARGUMENT},
    {"x * (-8) ** 0.5",
     "tc_expr: the power of a negative number is complex\n  x * (-8) ** 0.5\n"
     "           ^~",
     TC_ERR_ARGUMENT},
    {"x.size",
     "tc_expr: there is no such attribute: expected T, mT, shape or a call\n  x.size\n"
     "    ^~~~",
     TC_ERR_ARGUMENT},
    {"x.", "tc_expr: the text ends: expected the name of an op, T, mT or shape\n  x.\n    ^",
     TC_ERR_ARGUMENT},
    {"(1, 2).T",
     "tc_expr: an attribute of a list: expected a tensor before the point\n"
     "  (1, 2).T\n         ^",
     TC_ERR_ARGUMENT},
    {"x\n + x\n + zz", "tc_expr: 'zz' is not among the names that are given\n   + zz\n     ^~",
     TC_ERR_ARGUMENT},
};

TEST(each_mistake_has_its_text_and_place)
{
    begin();
    tc_attr names[] = {TC_ATTR("x", tc_input(ctx, "x", TC_F32, 3, 4)),
                       TC_ATTR("w", tc_input(ctx, "w", TC_F32, 4, 5))};
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++) {
        const mistake *m = &mistakes[i];
        int here = __LINE__ + 1;
        tc_tensor y = tc_expr(ctx, m->text, TC_ATTRS_N(names, 2));
        const char *error = strstr(tc_error(y), ".c:");
        REQUIRE(error != NULL);
        int line = (int)strtol(error + 3, (char **)&error, 10);
        CHECK_STR(error + 2, m->error);
        CHECK_MSG(line == here, "%s: line %d", m->text, line);
        CHECK_MSG(tc_status_of(y) == m->status, "%s: status %d", m->text, (int)tc_status_of(y));
    }
    tc_ctx_free(ctx);
}

TEST(long_texts_show_the_place)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3);
    char text[400] = "x";
    for (int i = 0; i < 60; i++) {
        strcat(text, " + x");
    }
    strcat(text, " + zz");
    for (int i = 0; i < 30; i++) {
        strcat(text, " + x");
    }
    const char *error = strchr(tc_error(tc_expr(ctx, text, TC_ATTRS(TC_ATTR("x", x)))), '\n');
    CHECK_STR(error, "\n  x + x + x + x + x + x + x + x + x + zz + x + x + x + x + x + x + x + x +"
                     "\n                                      ^~");
    tc_ctx_free(ctx);
}

TEST(lengths_and_depths_are_bounded)
{
    enum { MANY = 70000 };
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), one = tc_full(ctx, 1, TC_F32);
    char *text = malloc(2 * MANY + 10);
    REQUIRE(text != NULL);
    memset(text, '(', MANY);
    text[MANY] = 0;
    CHECK_HAS(tc_error(tc_expr(ctx, text, TC_ATTRS())),
              "the text has 70000 bytes: expected at most");
    static const char *const openings[] = {"(", "[", "-", "x**", "sin(", "not ", "x[", "x+(", "-("};
    for (size_t i = 0; i < sizeof(openings) / sizeof(*openings); i++) {
        text[0] = 0;
        for (int k = 0; k < 2000; k++) {
            strcat(text, openings[i]);
        }
        tc_tensor y = tc_expr(ctx, text, TC_ATTRS(TC_ATTR("x", x)));
        CHECK_HAS(tc_error(y), "the expression is nested deeper than 100");
        CHECK_EQ_INT(tc_status_of(y), TC_ERR_LIMIT);
    }
    /* 100 of each are parsed, 101 are not. */
    for (size_t i = 0; i < sizeof(openings) / sizeof(*openings); i++) {
        for (int n = 100; n <= 101; n++) {
            const char *opening = openings[i];
            char mark = opening[strlen(opening) - 1], closing = mark == '(' ? ')' : ']';
            text[0] = 0;
            for (int k = 0; k < n; k++) {
                strcat(text, opening);
            }
            strcat(text, "i");
            for (int k = 0; k < n && (mark == '(' || mark == '['); k++) {
                strncat(text, &closing, 1);
            }
            tc_tensor y = tc_expr(ctx, text, TC_ATTRS(TC_ATTR("x", x), TC_ATTR("i", one)));
            bool deep = tc_status_of(y) == TC_ERR_LIMIT;
            CHECK_MSG(deep == (n > 100), "%d of %s: %s", n, opening, tc_error(y));
        }
    }
    strcpy(text, "x"); /* a long sum is not deep */
    for (int k = 0; k < 8000; k++) {
        strcpy(text + 1 + 2 * k, "+x");
    }
    CHECK_EQ_INT(tc_status_of(tc_expr(ctx, text, TC_ATTRS(TC_ATTR("x", x)))), TC_OK);
    free(text);
    tc_ctx_free(ctx);
}

TEST(operands_of_the_macro)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), bad = tc_softmax(x, 5), null = {0};
    struct {
        tc_tensor w;
    } layer = {x};
    double rate = 2;
    CHECK_HAS(tc_error(TC_EXPR(x + w, x, layer.w)), "operand 2 is 'layer.w': expected an "
                                                "identifier, or tc_expr");
    CHECK_HAS(tc_error(TC_EXPR(rate * 2, rate)), "all operands were numbers");
    CHECK_STR(tc_error(TC_EXPR(x + bad, x, bad)), tc_error(bad));
    CHECK_HAS(tc_error(TC_EXPR(x + null, x, null)), "TC_EXPR: 'null': the handle is null");
    CHECK_HAS(tc_error(tc_expr(NULL, "x", TC_ATTRS())), "NULL or freed context");
    CHECK_HAS(tc_error(tc_expr(ctx, NULL, TC_ATTRS())), "the text is NULL");
    CHECK_HAS(tc_error(tc_expr(ctx, "x", TC_ATTRS_N(NULL, 2))), "the names");
    CHECK_HAS(tc_error(tc_expr_named_at("x", "x, y", (tc_arg[]){TC_ARG(x)}, 1, TC_HERE)),
              "2 names are given for 1 values");
    tc_ctx *other;
    REQUIRE(tc_ctx_make(&other, NULL) == TC_OK);
    tc_tensor foreign = tc_input(other, "f", TC_F32, 3);
    CHECK_HAS(tc_error(TC_EXPR(x + foreign, x, foreign)), "'foreign' is foreign");
    tc_ctx_free(other);
    tc_ctx_free(ctx);
}

/* A text with a mistake makes no tensors, so an op with an effect before it has none. */
TEST(nothing_is_called_before_all_is_parsed)
{
    begin();
    tc_tensor w = tc_param(ctx, NULL, TC_F32, 2), one = tc_full(ctx, 1, TC_F32, 2);
    CHECK(tc_status_of(TC_EXPR(assign(w, one) +, w, one)) == TC_ERR_ARGUMENT);
    float got[2] = {5, 5};
    tc_tensor sum = tc_add(w, 0);
    CHECK_EQ_INT(tc_read(sum, got, 2), TC_OK);
    CHECK_CLOSE(got[0], 0, 0);
    tc_ctx_free(ctx);
}

TEST_MAIN
