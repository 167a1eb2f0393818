/* tests/onnx/test_sizes.c - shape arithmetic of ONNX models: what operators make of the sizes n and
 * m of an input gives the size of an output, judged by the same arithmetic in C for several n. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include <math.h>

#include "tc_onnx.h"
#include "tc_test.h"

#include "bytes.h"

typedef struct size_case {
    const char *nodes; /* of "Op a b > c", with ; between; they make p */
    int64_t (*want)(int64_t n, int64_t m);
} size_case;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#define CASES(X)                                                                                   \
    X(sum, "Add n two > p", n + 2)                                                                 \
    X(difference, "Sub n one > p", n - 1)                                                          \
    X(product, "Mul n m > p", n *m)                                                                \
    X(quotient, "Mul n four > a; Div a two > p", 2 * n)                                            \
    X(rest_of_a_multiple, "Mul n four > a; Mod a two > b; Add b three > p", 3)                     \
    X(smaller, "Min n four > p", least(n, 4))                                                      \
    X(larger, "Max n four > p", n > 4 ? n : 4)                                                     \
    X(negative, "Neg n > a; " \
      "Add a hundred > p", 100 - n) \
    X(copied, "Identity n > p", n)                                                                 \
    X(narrow, "Cast n to=6 > a; Cast a to=7 > p", n)                                               \
    X(half_down, "Cast n to=1 > a; Mul a half > b; Floor b > c; Cast c to=7 > p", n / 2)           \
    X(half_up, "Cast n to=1 > a; Div a twof > b; Ceil b > c; Cast c to=7 > p", (n + 1) / 2)        \
    X(half_cut, "Cast n to=1 > a; Div a twof > b; Cast b to=7 > p", n / 2)                         \
    X(doubled, "Cast n to=1 > a; Mul twof a > b; Cast b to=7 > p", 2 * n)                          \
    X(over_half, "Cast n to=1 > a; Div a half > b; Cast b to=7 > p", 2 * n)                        \
    X(halves_multiplied,                                                                           \
      "Cast n to=1 > a; Cast m to=1 > b; Div a twof > c; Div b twof > d; Mul c d > e; "            \
      "Floor e > f; Cast f to=7 > p",                                                              \
      n *m / 4)                                                                                    \
    X(ratio, "Cast n to=1 > a; Div a twof > b; Div a b > c; Cast c to=7 > p", 2)                   \
    X(half_and_one, "Cast n to=1 > a; Div a twof > b; Add b onef > c; Floor c > d; " \
      "Cast d to=7 > p", \
      n / 2 + 1)                                                                                   \
    X(half_less_one,                                                                               \
      "Cast n to=1 > a; Div a twof > b; Sub b onef > c; Ceil c > d; Cast d to=7 > p",              \
      (n + 1) / 2 - 1)                                                                             \
    X(two_less_half, "Cast n to=1 > a; Div a twof > b; Sub hundredf b > c; " \
      "Floor c > d; Cast d to=7 > p", \
      100 - (n + 1) / 2) \
    X(halves_added,                                                                                \
      "Cast n to=1 > a; Cast m to=1 > b; Div a twof > c; Div b twof > d; Add c d > e; "            \
      "Floor e > f; Cast f to=7 > p",                                                              \
      (n + m) / 2)                                                                                 \
    X(where_greater, "Greater n zero > a; Where a n two > p", n)                                   \
    X(where_less, "Less n zero > a; Where a n two > p", 2)                                         \
    X(where_at_most, "LessOrEqual n zero > a; Where a n two > p", 2)                               \
    X(where_at_least, "GreaterOrEqual n one > a; Where a n two > p", n)                            \
    X(where_equal, "Equal n n > a; Where a n two > p", n)                                          \
    X(where_not_equal, "Add n one > a; Equal a n > b; Where b n two > p", 2)                       \
    X(product_of_all, "ReduceProd s > p", n *m)                                                    \
    X(sum_of_all, "ReduceSum s > p", n + m)                                                        \
    X(all_but_first, "Slice s one ten > p", m)                                                     \
    X(last_first, "Slice s minus far zero minus > a; Gather a one > p", n)                         \
    X(viewed, "Unsqueeze n zero > a; Reshape a minus > p", n)                                      \
    X(squeezed, "Unsqueeze n zero > a; Squeeze a zero > p", n)                                     \
    X(joined, "Concat n m > a; Gather a minus > p", m)                                             \
    X(expanded, "Expand n two > a; ReduceSum a > p", 2 * n)                                        \
    X(ranged, "Range zero ten three > a; ReduceSum a > b; Add n b > p", n + 0 + 3 + 6 + 9)         \
    X(filled, "ConstantOfShape three > a; Cast a to=7 > b; ReduceSum b > c; Add n c > p", n)       \
    X(int_rest, "Mod seven three > a; Neg seven > b; Mod b three > c; Mul c ten > d; " \
      "Add a d > p", 21) \
    X(int_quotient, "Neg seven > a; Div a two > b; Add b ten > p", 7)                              \
    X(int_sizes, "Neg seven > a; Abs a > b; Min b three > c; Max c two > d; Mul b d > p", 21)      \
    X(int_tests,                                                                                   \
      "Less two three > a; Greater two three > b; Or a b > c; And a b > d; Not d > e; "            \
      "Equal two two > f; LessOrEqual two two > g; GreaterOrEqual two three > h; Xor g h > i; "    \
      "Cast c to=7 > cc; Cast e to=7 > ee; Cast f to=7 > ff; Cast i to=7 > ii; "                   \
      "Sum cc ee > j; Add j ff > k; Add k ii > p",                                                 \
      4)                                                                                           \
    X(wrapped,                                                                                     \
      "Mul ten ten > a; Mul a three > b; Cast b to=2 > c; Cast c to=7 > d; Cast b to=3 > e; "      \
      "Cast e to=7 > f; Cast b to=4 > g; Cast g to=7 > h; Cast b to=5 > i; Cast i to=7 > j; "      \
      "Cast b to=12 > k; Cast k to=7 > l; Add d f > q; Add h j > r; Add q r > t; Add t l > p",     \
      (300 - 256) + (300 - 256) + 3 * 300)                                                         \
    X(float_functions,                                                                             \
      "Neg twof > a; Abs a > b; Sqrt sixteenf > c; Max b c > d; Min b c > e; Mul d e > f; "        \
      "Add f half > g; Floor g > h; Ceil g > i; Add h i > j; Cast j to=7 > p",                     \
      8 + 9)                                                                                       \
    X(float_tests,                                                                                 \
      "Less onef twof > a; Greater onef twof > b; Equal onef onef > c; " \
      "LessOrEqual twof onef > d; " \
      "GreaterOrEqual twof onef > e; Cast a to=7 > f; Cast b to=7 > g; Cast c to=7 > h; "          \
      "Cast d to=7 > i; Cast e to=7 > j; Add f g > k; Add h i > l; Add k l > q; Add q j > p",      \
      3)

#define CASE(name, nodes, want)                                                                    \
    static int64_t want_##name(int64_t n, int64_t m)                                               \
    {                                                                                              \
        (void)n;                                                                                   \
        (void)m;                                                                                   \
        return want;                                                                               \
    }
CASES(CASE)
#undef CASE

static const size_case cases[] = {
#define CASE(name, nodes, want) {nodes, want_##name},
    CASES(CASE)
#undef CASE
};

static void add_constants(message *g)
{
    static const struct {
        const char *name;
        int64_t value;
    } integers[] = {{"zero", 0}, {"one", 1},   {"two", 2},       {"three", 3},  {"four", 4},
                    {"ten", 10}, {"seven", 7}, {"hundred", 100}, {"minus", -1}, {"far", -100}};
    static const struct {
        const char *name;
        float value;
    } floats[] = {{"half", 0.5F},    {"onef", 1},      {"twof", 2},
                  {"hundredf", 100}, {"sixteenf", 16}, {"v", 3}};
    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
        add_tensor(g, integers[i].name, 7, 1, &integers[i].value, 8);
    }
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        add_tensor(g, floats[i].name, 1, 1, &floats[i].value, 4);
    }
}

/* y, of p elements that are all 3. */
static message model_for(const size_case *c)
{
    static const char *const sizes[] = {"n", "m", NULL}, *const open[] = {"p", NULL};
    char text[1000], *next = text;
    message g = {.n = 0};
    add_info(&g, 11, "x", 1, sizes);
    add_constants(&g);
    add_node(&g, "Shape x > s", -1);
    add_node(&g, "Gather s zero > n", 0);
    add_node(&g, "Gather s one > m", 0);
    snprintf(text, sizeof(text), "%s", c->nodes);
    while (next) {
        char *line = next, *end = strstr(next, "; ");
        next = end ? end + 2 : NULL;
        if (end) {
            *end = 0;
        }
        add_node(&g, line, !strncmp(line, "Gather", 6) || !strncmp(line, "Concat", 6) ? 0 : -1);
    }
    add_node(&g, "Expand v p > y", -1);
    add_info(&g, 12, "y", 1, open);
    return model_of(&g);
}

static void check_sizes(const size_case *c, tc_program *f)
{
    float x[7 * 3] = {0}, y[1024];
    for (int64_t n = 2; n <= 7; n++) {
        int64_t want = c->want(n, 3);
        tc_bufs in = TC_BUFS(TC_BUF_ND(x, n, 3));
        CHECK_MSG(tc_output_size(f, in, 0, 0) == want, "%s: n = %d: %d, expected %d", c->nodes,
                  (int)n, (int)tc_output_size(f, in, 0, 0), (int)want);
        CHECK_MSG(tc_run(f, in, TC_BUFS(TC_BUF(y, want))) == TC_OK, "%s", tc_error(f));
        CHECK(want == 0 || (y[0] == 3 && y[want - 1] == 3));
    }
}

TEST(sizes_follow_from_sizes_as_in_c)
{
    tc_options o = {.backend = "interp", .threads = 1};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tc_ctx *ctx;
        tc_onnx_model *m = NULL;
        tc_program *f = NULL;
        message bytes = model_for(&cases[i]);
        tc_onnx_options options = {.largest = 50};
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        CHECK_MSG(tc_onnx_load_memory(ctx, bytes.at, bytes.n, &options, &m) == TC_OK, "%s: %s",
                  cases[i].nodes, tc_error(ctx));
        if (m && tc_compile_fn(TC_TENSORS_N(m->inputs, 1), TC_TENSORS_N(m->outputs, 1), NULL, &f) ==
                     TC_OK) {
            check_sizes(&cases[i], f);
        }
        CHECK_MSG(f != NULL, "%s: %s", cases[i].nodes, tc_error(ctx));
        tc_program_free(f);
        tc_onnx_free(m);
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
