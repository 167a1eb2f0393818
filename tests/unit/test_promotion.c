/* options.promotion = TC_NUMPY: the dtypes of results are those of NumPy, for all pairs of dtypes,
 * for numbers, and for the ops that NumPy has. Tables from NumPy 2.4.6 (numpy.result_type, and the
 * dtype of each function's result); their columns are the dtypes in the order of numpy_dtypes. An
 * entry "-" is a TypeError there and an error here. */
#include "inside.h"
#include "tc_test.h"

#include "grad_cases.h"

enum { N_DTYPES = 12 };
static const tc_dtype numpy_dtypes[N_DTYPES] = {TC_BOOL, TC_U8,  TC_U16, TC_U32, TC_U64, TC_I8,
                                                TC_I16,  TC_I32, TC_I64, TC_F16, TC_F32, TC_F64};

static tc_ctx *ctx;

static void begin(tc_promotion promotion)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    o.promotion = promotion;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static tc_tensor input(tc_dtype t, int rank)
{
    const int64_t list[3] = {t, 2, 2};
    return tc_input_at(ctx, "x", 1 + rank, list, TC_HERE);
}

/* Entry i of a row of names. */
static const char *entry(const char *row, int i)
{
    static char text[8];
    for (; i > 0; i--) {
        row += strcspn(row, " ");
        row += *row == ' ';
    }
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(row, " "), row);
    return text;
}

static const char *dtype_name(tc_tensor t)
{
    return tc_status_of(t) ? "-" : tc_dtype_name(tc_dtype_of(t));
}

static void check(const char *what, int i, int j, tc_tensor got, const char *want)
{
    CHECK_MSG(!strcmp(dtype_name(got), want), "%s of dtypes %d and %d: %s, expected %s (%s)", what,
              i, j, dtype_name(got), want, tc_error(got));
}

TEST(tensors_meet_as_in_numpy)
{
    static const char *const both[N_DTYPES] = {"bool u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64",
                                               "u8 u8 u16 u32 u64 i16 i16 i32 i64 f16 f32 f64",
                                               "u16 u16 u16 u32 u64 i32 i32 i32 i64 f32 f32 f64",
                                               "u32 u32 u32 u32 u64 i64 i64 i64 i64 f64 f64 f64",
                                               "u64 u64 u64 u64 u64 f64 f64 f64 f64 f64 f64 f64",
                                               "i8 i16 i32 i64 f64 i8 i16 i32 i64 f16 f32 f64",
                                               "i16 i16 i32 i64 f64 i16 i16 i32 i64 f32 f32 f64",
                                               "i32 i32 i32 i64 f64 i32 i32 i32 i64 f64 f64 f64",
                                               "i64 i64 i64 i64 f64 i64 i64 i64 i64 f64 f64 f64",
                                               "f16 f16 f32 f64 f64 f16 f32 f64 f64 f16 f32 f64",
                                               "f32 f32 f32 f64 f64 f32 f32 f64 f64 f32 f32 f64",
                                               "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64"};
    begin(TC_NUMPY);
    for (int i = 0; i < N_DTYPES; i++) {
        for (int j = 0; j < N_DTYPES; j++) {
            for (int ranks = 0; ranks < 4; ranks++) { /* tensors of no axes are as strong */
                tc_tensor a = input(numpy_dtypes[i], ranks & 1 ? 2 : 0);
                tc_tensor b = input(numpy_dtypes[j], ranks & 2 ? 2 : 0);
                check("maximum", i, j, tc_maximum(a, b), entry(both[i], j));
                check("where", i, j, tc_where(a, a, b), entry(both[i], j));
            }
            tc_tensor a = input(numpy_dtypes[i], 2), b = input(numpy_dtypes[j], 2);
            check("add", i, j, tc_add(a, b), entry(both[i], j));
            check("cat", i, j, tc_cat(TC_TENSORS(a, b), 0), entry(both[i], j));
            check("stack", i, j, tc_stack(TC_TENSORS(a, b), 0), entry(both[i], j));
            check("lt", i, j, tc_lt(a, b), "bool");
            if (i || j) { /* bool has no sums of products */
                check("matmul", i, j, tc_matmul(a, b), entry(both[i], j));
                check("einsum", i, j, tc_einsum("ij,jk->ik", TC_TENSORS(a, b)), entry(both[i], j));
            }
        }
    }
    tc_ctx_free(ctx);
}

typedef struct numpy_row {
    const char *op, *dtypes;
} numpy_row;

TEST(functions_of_one_dtype_are_as_in_numpy)
{
#define BY_WIDTH "f16 f16 f32 f64 f64 f16 f32 f64 f64 f16 f32 f64"
#define SAME "bool u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64"
#define NO_BOOL "- u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64"
#define BOOL_I8 "i8 u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64"
#define REAL "f64 f64 f64 f64 f64 f64 f64 f64 f64 f16 f32 f64"
#define BOOLS "bool bool bool bool bool bool bool bool bool bool bool bool"
#define SUMS "i64 u64 u64 u64 u64 i64 i64 i64 i64 f16 f32 f64"
#define PLACES "i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64"
    static const numpy_row one[] = {{"exp", BY_WIDTH},
                                    {"sqrt", BY_WIDTH},
                                    {"sin", BY_WIDTH},
                                    {"tanh", BY_WIDTH},
                                    {"asin", BY_WIDTH},
                                    {"expm1", BY_WIDTH},
                                    {"log2", BY_WIDTH},
                                    {"deg2rad", BY_WIDTH},
                                    {"sinc", REAL},
                                    {"square", BOOL_I8},
                                    {"neg", NO_BOOL},
                                    {"isnan", BOOLS},
                                    {"logical_not", BOOLS},
                                    {"sum", SUMS},
                                    {"prod", SUMS},
                                    {"mean", REAL},
                                    {"var", REAL},
                                    {"std", REAL},
                                    {"max", SAME},
                                    {"any", BOOLS},
                                    {"bitwise_not", "bool u8 u16 u32 u64 i8 i16 i32 i64 - - -"}};
    static const numpy_row two[] = {{"div", REAL},
                                    {"pow", BOOL_I8},
                                    {"remainder", BOOL_I8},
                                    {"floor_divide", BOOL_I8},
                                    {"fmod", BOOL_I8},
                                    {"atan2", BY_WIDTH},
                                    {"hypot", BY_WIDTH},
                                    {"copysign", BY_WIDTH},
                                    {"heaviside", BY_WIDTH},
                                    {"logaddexp", BY_WIDTH},
                                    {"sub", NO_BOOL},
                                    {"eq", BOOLS},
                                    {"gcd", "- u8 u16 u32 u64 i8 i16 i32 i64 - - -"},
                                    {"bitwise_and", "bool u8 u16 u32 u64 i8 i16 i32 i64 - - -"},
                                    {"bitwise_left_shift",
                                     "i8 u8 u16 u32 u64 i8 i16 i32 i64 - - -"}};
    begin(TC_NUMPY);
    for (int i = 0; i < N_DTYPES; i++) {
        tc_tensor x = input(numpy_dtypes[i], 2);
        for (int k = 0; k < TCI_COUNT(one); k++) {
            check(one[k].op, i, i, tc_op(ctx, one[k].op, TC_TENSORS(x), TC_ATTRS()),
                  entry(one[k].dtypes, i));
        }
        for (int k = 0; k < TCI_COUNT(two); k++) {
            check(two[k].op, i, i, tc_op(ctx, two[k].op, TC_TENSORS(x, x), TC_ATTRS()),
                  entry(two[k].dtypes, i));
        }
        check("cumsum", i, i, tc_cumsum(x, 0), entry(SUMS, i));
        check("cumprod", i, i, tc_cumprod(x, 0), entry(SUMS, i));
        check("argmax", i, i, tc_argmax(x, 0, false), entry(PLACES, i));
        check("norm", i, i, tc_norm(x, 2, TC_ALL, false), entry(REAL, i));
        check("ldexp", i, i, tc_ldexp(x, input(TC_I32, 2)), entry(BY_WIDTH, i));
        /* made of several ops, which NumPy lacks: as its mean */
        check("softmax", i, i, tc_softmax(x, -1), entry(REAL, i));
        check("mse_loss", i, i, tc_mse_loss(x, x, TC_REDUCE_MEAN), entry(REAL, i));
        check("layer_norm", i, i, tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5),
              entry(REAL, i));
        check("rfft", i, i, tc_rfft(x, 0, -1, NULL), entry(REAL, i));
    }
    tc_ctx_free(ctx);
}

/* numpy.hypot of NumPy 2.4, and so of heaviside, of the integers and bool above. */
TEST(functions_of_two_integers_are_as_wide_as_the_wider)
{
    static const char *const rows[] = {
        "f16 f16 f32 f64 f64 f16 f32 f64 f64", "f16 f16 f32 f64 f64 f16 f32 f64 f64",
        "f32 f32 f32 f64 f64 f32 f32 f64 f64", "f64 f64 f64 f64 f64 f64 f64 f64 f64",
        "f64 f64 f64 f64 f64 f64 f64 f64 f64", "f16 f16 f32 f64 f64 f16 f32 f64 f64",
        "f32 f32 f32 f64 f64 f32 f32 f64 f64", "f64 f64 f64 f64 f64 f64 f64 f64 f64",
        "f64 f64 f64 f64 f64 f64 f64 f64 f64"};
    static const char *const ops[] = {"hypot", "atan2", "copysign", "logaddexp", "heaviside"};
    begin(TC_NUMPY);
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        for (int j = 0; j < TCI_COUNT(rows); j++) {
            tc_tensors x = TC_TENSORS(input(numpy_dtypes[i], 2), input(numpy_dtypes[j], 2));
            for (int k = 0; k < TCI_COUNT(ops); k++) {
                check(ops[k], i, j, tc_op(ctx, ops[k], x, TC_ATTRS()), entry(rows[i], j));
            }
        }
    }
    tc_ctx_free(ctx);
}

TEST(numbers_are_weak_as_in_numpy)
{
    static const struct {
        const char *op, *of_bool, *of_int, *of_float;
    } rows[] = {{"add", SAME, "i64 u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64", REAL},
                {"div", REAL, REAL, REAL},
                {"pow", BOOL_I8, "i64 u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64", REAL},
                {"floor_divide", BOOL_I8, "i64 u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64", REAL},
                {"atan2", BY_WIDTH, "f64 f16 f32 f64 f64 f16 f32 f64 f64 f16 f32 f64", REAL},
                {"heaviside", BY_WIDTH, "f64 f16 f32 f64 f64 f16 f32 f64 f64 f16 f32 f64", REAL}};
    begin(TC_NUMPY);
    for (int i = 0; i < N_DTYPES; i++) {
        for (int rank = 0; rank < 3; rank += 2) {
            tc_tensors x = TC_TENSORS(input(numpy_dtypes[i], rank));
            for (int k = 0; k < TCI_COUNT(rows); k++) {
                const char *op = rows[k].op;
                check(op, i, 1, tc_op(ctx, op, x, TC_ATTRS(TC_ATTR("b", (bool)true))),
                      entry(rows[k].of_bool, i));
                check(op, i, 2, tc_op(ctx, op, x, TC_ATTRS(TC_ATTR("b", 2))),
                      entry(rows[k].of_int, i));
                check(op, i, 3, tc_op(ctx, op, x, TC_ATTRS(TC_ATTR("b", 0.5))),
                      entry(rows[k].of_float, i));
            }
        }
    }
    tc_tensor b = input(TC_BOOL, 2), f = input(TC_F32, 2), u = input(TC_U8, 2);
    check("where", 0, 0, tc_where(b, 1, 2), "i64");
    check("where", 0, 0, tc_where(b, 1.0, 2), "f64");
    check("where", 0, 0, tc_where(b, f, 2.0), "f32");
    check("clamp", 0, 0, tc_clamp(f, 0, 1.5), "f32");
    check("clamp", 0, 0, tc_clamp(input(TC_I32, 2), 0.5, 2), "f64");
    check("add", 0, 0, tc_add(u, 300), "-"); /* OverflowError in NumPy 2 */
    tc_ctx_free(ctx);
}

/* NumPy has no bf16. With ml_dtypes 0.5, numpy.add gives these. */
TEST(bf16_meets_as_in_ml_dtypes)
{
    static const char want[] = "bf16 bf16 f32 f64 f64 bf16 f32 f64 f64 f32 f32 f64";
    begin(TC_NUMPY);
    tc_tensor h = input(TC_BF16, 2);
    for (int i = 0; i < N_DTYPES; i++) {
        check("add", i, -1, tc_add(h, input(numpy_dtypes[i], 2)), entry(want, i));
        check("add", -1, i, tc_add(input(numpy_dtypes[i], 2), h), entry(want, i));
    }
    check("add", -1, -1, tc_add(h, 2), "bf16");
    check("mul", -1, -1, tc_mul(h, 0.5), "bf16");
    check("mean", -1, -1, tc_mean(h, TC_ALL, false), "bf16");
    tc_ctx_free(ctx);
}

/* Calls that are made of others keep the dtype of their floats: nothing within them meets in a
 * wider one, and neither do gradients. */
static tc_dtype result_of(const grad_case *c, tc_promotion promotion, tc_dtype t, tc_dtype *grads)
{
    tc_tensor x[MAX_INPUTS], g[MAX_INPUTS];
    begin(promotion);
    for (int i = 0; i < c->n_inputs; i++) {
        int64_t list[6] = {t};
        memcpy(list + 1, c->inputs[i].sizes, sizeof(int64_t) * (size_t)c->inputs[i].rank);
        x[i] = tc_input_at(ctx, "x", 1 + c->inputs[i].rank, list, TC_HERE);
    }
    tc_tensor y = build_case(ctx, c, x);
    tc_dtype result = tc_dtype_of(y);
    tc_grad(tc_sum(y, TC_ALL, false), x, c->n_inputs, g);
    for (int i = 0; i < c->n_inputs; i++) {
        grads[i] = tc_dtype_of(g[i]);
    }
    tc_ctx_free(ctx);
    return result;
}

TEST(programs_of_one_float_dtype_are_the_same_by_both_rules)
{
    static const tc_dtype floats[] = {TC_F16, TC_BF16, TC_F32, TC_F64};
    int n_built = 0;
    add_all();
    for (int k = 0; k < n_cases; k++) {
        for (int i = 0; i < TCI_COUNT(floats); i++) {
            tc_dtype grads[2][MAX_INPUTS];
            tc_dtype torch = result_of(&cases[k], TC_TORCH, floats[i], grads[0]);
            tc_dtype numpy = result_of(&cases[k], TC_NUMPY, floats[i], grads[1]);
            n_built += torch != TC_DTYPE_COUNT;
            CHECK_MSG(torch == numpy, "%s of %s: %s by torch's rule, %s by NumPy's", cases[k].name,
                      tc_dtype_name(floats[i]), tc_dtype_name(torch), tc_dtype_name(numpy));
            for (int j = 0; j < cases[k].n_inputs; j++) {
                CHECK_MSG(grads[0][j] == grads[1][j], "%s of %s: gradient %d", cases[k].name,
                          tc_dtype_name(floats[i]), j);
            }
        }
    }
    CHECK_MSG(n_built > 3 * n_cases, "%d of %d were built", n_built, 4 * n_cases);
}

/* A parameter of f32 whose rate is f64, as numpy.float64 would be: the update stays f32. */
TEST(optimizers_update_by_rates_of_any_dtype)
{
    begin(TC_NUMPY);
    float one[2] = {1, 2}, got[2];
    tc_tensor w = tc_param(ctx, one, TC_F32, 2), rate = tc_full(ctx, 0.25, TC_F64);
    tc_tensor g, effects[8];
    int n;
    CHECK_EQ_INT(tc_grad(tc_sum(tc_square(w), TC_ALL, false), &w, 1, &g), TC_OK);
    CHECK_EQ_INT(tc_sgd(&w, &g, 1, rate, NULL, effects, &n), TC_OK);
    CHECK_EQ_INT(tc_eval_many(TC_TENSORS_N(effects, n)), TC_OK);
    CHECK_EQ_INT(tc_read(w, got, 2), TC_OK);
    CHECK(got[0] == 0.5f && got[1] == 1.0f);
    tc_ctx_free(ctx);
}

/* Values that only the wider dtype holds: 2^24 + 1 and 2^24 as f32 are one number. */
TEST(values_are_exact_in_the_wider_dtype)
{
    static const int odd[1] = {16777217};
    static const float even[1] = {16777216};
    for (int numpy = 0; numpy < 2; numpy++) {
        bool differ;
        begin(numpy ? TC_NUMPY : TC_TORCH);
        tc_tensor i = tc_copy_in(ctx, odd, TC_I32, 1), f = tc_copy_in(ctx, even, TC_F32, 1);
        CHECK_EQ_INT(tc_read(tc_ne(i, f), &differ, 1), TC_OK);
        CHECK_EQ_INT(differ, numpy);
        if (numpy) {
            double sum, half;
            CHECK_EQ_INT(tc_read(tc_add(i, f), &sum, 1), TC_OK);
            CHECK_EQ_INT(tc_read(tc_div(i, 2), &half, 1), TC_OK);
            CHECK(sum == 33554433.0 && half == 8388608.5);
        }
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
