/* Ops called by their names (src/api/op_by_name.c). Equal nodes are one, so what is made by name
 * is the very tensor that the public call makes (of numbers only 0, 1, -1, 2 and 0.5 are); each
 * mistake has its text; and every public op has a row. */
#include "tc.h"

#include "tc_test.h"

#include "../src/ops/table.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void check_same(int line, const char *name, tc_tensor got, tc_tensor wanted)
{
    CHECK_MSG(tc_status_of(got) == TC_OK && got.id == wanted.id, "line %d: %s is another tensor %s",
              line, name, tc_error(got));
}

/* That the call of this name, inputs and attributes is that tensor. */
#define SAME(wanted, name, inputs, attrs)                                                          \
    check_same(__LINE__, name, tc_op(ctx, name, inputs, attrs), (wanted))
#define ONE(wanted, name, attrs) SAME(wanted, name, TC_TENSORS(x), attrs)
#define TWO(wanted, name, attrs) SAME(wanted, name, TC_TENSORS(x, y), attrs)
#define NONE(wanted, name, attrs) SAME(wanted, name, TC_TENSORS(), attrs)

TEST(every_elementwise_row)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_I32, 3, 4), y = tc_input(ctx, "y", TC_I32, 4);
#define CALL_1(name) SAME(tc_##name(x), #name, TC_TENSORS(x), TC_ATTRS());
#define CALL_2(name)                                                                               \
    SAME(tc_##name(x, y), #name, TC_TENSORS(x, y), TC_ATTRS());                                    \
    SAME(tc_##name(2, y), #name, TC_TENSORS(TC_NONE, y), TC_ATTRS(TC_ATTR("a", 2)));
#define CALL_3(name)                                                                               \
    SAME(tc_##name(x, y, x), #name, TC_TENSORS(x, y, x), TC_ATTRS());                              \
    SAME(tc_##name(x, 2, y), #name, TC_TENSORS(x, TC_NONE, y), TC_ATTRS(TC_ATTR("b", 2)));
#define ROW(id, name, arity, ...) CALL_##arity(name)
    TCI_EW_OPS(ROW)
#undef ROW
    tc_ctx_free(ctx);
}

TEST(built_rows)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 3, 4);
    ONE(tc_elu(x, 1), "elu", TC_ATTRS());
    ONE(tc_elu(x, TC_NONE), "elu", TC_ATTRS(TC_ATTR("alpha", 1)));
    ONE(tc_hardshrink(x, 0.5), "hardshrink", TC_ATTRS());
    ONE(tc_softplus(x, TC_NONE, 2), "softplus", TC_ATTRS(TC_ATTR("threshold", 2)));
    TWO(tc_huber_loss(x, y, 0.5, TC_REDUCE_MEAN), "huber_loss", TC_ATTRS(TC_ATTR("delta", 0.5)));
    TWO(tc_mse_loss(x, y, TC_REDUCE_SUM), "mse_loss", TC_ATTRS(TC_ATTR_TEXT("reduction", "sum")));
    TWO(tc_mse_loss(x, y, TC_REDUCE_NONE), "mse_loss", TC_ATTRS(TC_ATTR_TEXT("reduction", "none")));
    CHECK_HAS(tc_error(tc_op(ctx, "mse_loss", TC_TENSORS(x, y),
                             TC_ATTRS(TC_ATTR_TEXT("reduction", "all")))),
              "'reduction' is the text \"all\"");
    tc_ctx_free(ctx);
}

TEST(made_calls)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 4);
    ONE(tc_clamp(x, 0, TC_NONE), "clamp", TC_ATTRS(TC_ATTR("min", 0)));
    ONE(tc_clamp(x, TC_NONE, y), "clamp", TC_ATTRS(TC_ATTR("max", y)));
    ONE(tc_select(x, 1, -1), "select", TC_ATTRS(TC_ATTR("axis", 1), TC_ATTR("index", -1)));
    ONE(tc_tile(x, 2, 1), "tile", TC_ATTRS(TC_ATTR_LIST("repeats", 2, 1)));
    SAME(tc_stack(TC_TENSORS(y, y), 0), "stack", TC_TENSORS(y, y), TC_ATTRS());
    TWO(tc_tensordot(x, y, TC_AXES(-1), TC_AXES(0)), "tensordot",
        TC_ATTRS(TC_ATTR("axes_a", -1), TC_ATTR("axes_b", 0)));
    ONE(tc_norm(x, 2, TC_ALL, false), "norm", TC_ATTRS());
    ONE(tc_glu(x, -1), "glu", TC_ATTRS());
    TWO(tc_kl_div(x, y, true, TC_REDUCE_SUM), "kl_div",
        TC_ATTRS(TC_ATTR("log_target", true), TC_ATTR_TEXT("reduction", "sum")));
    tc_ctx_free(ctx);
}

TEST(every_reduction)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
#define OVER_SAME(name)                                                                            \
    ONE(tc_##name(x, TC_AXES(1), true), #name,                                                     \
        TC_ATTRS(TC_ATTR("axes", -1), TC_ATTR("keepdims", true)));                                 \
    ONE(tc_##name(x, TC_AXES(1, 0), false), #name, TC_ATTRS(TC_ATTR_LIST("axes", 0, 1)));          \
    ONE(tc_##name(x, TC_ALL, false), #name, TC_ATTRS());
#define OVER_SUM OVER_SAME
#define OVER_BOOL OVER_SAME
#define OVER_FLOAT OVER_SAME
#define OVER_INDEX(name)                                                                           \
    ONE(tc_##name(x, 1, true), #name, TC_ATTRS(TC_ATTR("axis", 1), TC_ATTR("keepdims", 1)));
#define ROW(id, name, rule, ...) OVER_##rule(name)
    TCI_REDUCE_OPS(ROW)
#undef ROW
    tc_ctx_free(ctx);
}

TEST(made_and_drawn)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), key = tc_input(ctx, "key", TC_U64);
    NONE(tc_full(ctx, 0.5, TC_F64, 3, 4), "full",
         TC_ATTRS(TC_ATTR("value", 0.5), TC_ATTR("dtype", TC_F64), TC_ATTR_LIST("sizes", 3, 4)));
    NONE(tc_zeros(ctx, TC_I8, 3), "zeros", TC_ATTRS(TC_ATTR("dtype", TC_I8), TC_ATTR("sizes", 3)));
    NONE(tc_ones(ctx, TC_F32, 3, 4), "ones",
         TC_ATTRS(TC_ATTR("dtype", TC_F32), TC_ATTR_LIST("sizes", 3, 4)));
    NONE(tc_arange(ctx, 1, 9, 2, TC_I16), "arange",
         TC_ATTRS(TC_ATTR("start", 1), TC_ATTR("stop", 9), TC_ATTR("step", 2),
                  TC_ATTR("dtype", TC_I16)));
    SAME(tc_fold_in(key, 2), "fold_in", TC_TENSORS(key), TC_ATTRS(TC_ATTR("number", 2)));
    SAME(tc_rand(ctx, key, TC_F32, 5), "rand", TC_TENSORS(key),
         TC_ATTRS(TC_ATTR("dtype", TC_F32), TC_ATTR("sizes", 5)));
    NONE(tc_randn(ctx, 2, TC_F32, 5, 6), "randn",
         TC_ATTRS(TC_ATTR("key", 2), TC_ATTR("dtype", TC_F32), TC_ATTR_LIST("sizes", 5, 6)));
    SAME(tc_random_bits(ctx, key, TC_U8, 5), "random_bits", TC_TENSORS(key),
         TC_ATTRS(TC_ATTR("dtype", TC_U8), TC_ATTR("sizes", 5)));
    SAME(tc_randint(ctx, key, -1, 2, TC_I8, 5), "randint", TC_TENSORS(key),
         TC_ATTRS(TC_ATTR("low", -1), TC_ATTR("high", 2), TC_ATTR("dtype", TC_I8),
                  TC_ATTR("sizes", 5)));
    SAME(tc_bernoulli(x, key), "bernoulli", TC_TENSORS(x, key), TC_ATTRS());
    ONE(tc_dropout(x, 0.5, key), "dropout", TC_ATTRS(TC_ATTR("p", 0.5), TC_ATTR("key", key)));
    tc_ctx_free(ctx);
}

TEST(over_axes)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 4);
    tc_tensor target = tc_input(ctx, "t", TC_I64, 3), both[2], wanted[2];
    ONE(tc_mean(x, TC_AXES(0), false), "mean", TC_ATTRS(TC_ATTR("axes", 0)));
    ONE(tc_var(x, TC_ALL, 1, false), "var", TC_ATTRS());
    ONE(tc_std(x, TC_AXES(1), 0.5, true), "std",
        TC_ATTRS(TC_ATTR("axes", 1), TC_ATTR("correction", 0.5), TC_ATTR("keepdims", true)));
    CHECK_EQ_INT(tc_op_results(ctx, "var_mean", TC_TENSORS(x), TC_ATTRS(), both, 2), TC_OK);
    tc_var_mean(x, TC_ALL, 1, false, &wanted[0], &wanted[1]);
    check_same(__LINE__, "var of var_mean", both[0], wanted[0]);
    check_same(__LINE__, "mean of var_mean", both[1], wanted[1]);
    ONE(tc_cumsum(x, 1), "cumsum", TC_ATTRS(TC_ATTR("axis", 1)));
    ONE(tc_argsort(x, 1, false), "argsort", TC_ATTRS(TC_ATTR("axis", 1)));
    CHECK_EQ_INT(tc_op_results(ctx, "topk", TC_TENSORS(x),
                               TC_ATTRS(TC_ATTR("axis", 1), TC_ATTR("k", 2)), both, 2),
                 TC_OK);
    tc_topk(x, 1, 2, true, &wanted[0], &wanted[1]);
    check_same(__LINE__, "values of topk", both[0], wanted[0]);
    check_same(__LINE__, "indices of topk", both[1], wanted[1]);
    CHECK_EQ_INT(tc_op_results(ctx, "sort", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", 1)), both, 2),
                 TC_OK);
    tc_sort(x, 1, false, &wanted[0], &wanted[1]);
    check_same(__LINE__, "values of sort", both[0], wanted[0]);
    ONE(tc_softmax(x, 1), "softmax", TC_ATTRS(TC_ATTR("axis", -1)));
    ONE(tc_log_softmax(x, 0), "log_softmax", TC_ATTRS(TC_ATTR("axis", 0)));
    TWO(tc_layer_norm(x, TC_AXES(1), y, TC_NONE, 0.5), "layer_norm",
        TC_ATTRS(TC_ATTR("axes", 1), TC_ATTR("eps", 0.5)));
    SAME(tc_layer_norm(x, TC_AXES(1), TC_NONE, y, 0.5), "layer_norm", TC_TENSORS(x, TC_NONE, y),
         TC_ATTRS(TC_ATTR("axes", 1), TC_ATTR("eps", 0.5)));
    SAME(tc_cross_entropy(x, target), "cross_entropy", TC_TENSORS(x, target), TC_ATTRS());
    tc_ctx_free(ctx);
}

TEST(movement)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 1, 4);
    SAME(tc_where(x, 2, y), "where", TC_TENSORS(x, TC_NONE, y), TC_ATTRS(TC_ATTR("a", 2)));
    ONE(tc_cast(x, TC_BF16), "cast", TC_ATTRS(TC_ATTR("dtype", TC_BF16)));
    ONE(tc_bitcast(x, TC_I32), "bitcast", TC_ATTRS(TC_ATTR("dtype", TC_I32)));
    ONE(tc_reshape(x, 2, -1), "reshape", TC_ATTRS(TC_ATTR_LIST("sizes", 2, -1)));
    ONE(tc_reshape(x, 12), "reshape", TC_ATTRS(TC_ATTR("sizes", 12)));
    ONE(tc_permute(x, 1, 0), "permute", TC_ATTRS(TC_ATTR_LIST("order", 1, 0)));
    ONE(tc_transpose(x, 0, 1), "transpose", TC_ATTRS(TC_ATTR("axis_a", -2), TC_ATTR("axis_b", -1)));
    SAME(tc_expand(y, 5, 4), "expand", TC_TENSORS(y), TC_ATTRS(TC_ATTR_LIST("sizes", 5, -1)));
    SAME(tc_squeeze(y, 0), "squeeze", TC_TENSORS(y), TC_ATTRS(TC_ATTR("axis", 0)));
    ONE(tc_unsqueeze(x, 1), "unsqueeze", TC_ATTRS(TC_ATTR("axis", 1)));
    ONE(tc_slice(x, 1, 1, TC_END, 2), "slice",
        TC_ATTRS(TC_ATTR("axis", 1), TC_ATTR("start", 1), TC_ATTR("step", 2)));
    ONE(tc_flip(x, 1), "flip", TC_ATTRS(TC_ATTR("axis", 1)));
    ONE(tc_pad(x, 1, 2, 0, 0.5), "pad",
        TC_ATTRS(TC_ATTR("axis", 1), TC_ATTR("before", 2), TC_ATTR("value", 0.5)));
    TWO(tc_cat(TC_TENSORS(x, y), 0), "cat", TC_ATTRS(TC_ATTR("axis", 0)));
    ONE(tc_roll(x, 3, 1), "roll", TC_ATTRS(TC_ATTR("shift", 3), TC_ATTR("axis", 1)));
    ONE(tc_pad_mode(x, 1, 2, 0, "reflect"), "pad_mode",
        TC_ATTRS(TC_ATTR("axis", 1), TC_ATTR("before", 2), TC_ATTR_TEXT("mode", "reflect")));
    ONE(tc_diagonal(x, 1, 0, 1), "diagonal", TC_ATTRS(TC_ATTR("offset", 1)));
    ONE(tc_diag_embed(x, 0, -2, -1), "diag_embed", TC_ATTRS());
    TWO(tc_slice_scatter(x, y, 0, 1, 2, 1), "slice_scatter",
        TC_ATTRS(TC_ATTR("start", 1), TC_ATTR("stop", 2)));
    tc_ctx_free(ctx);
}

/* A list of operands between others. */
TEST(lists_of_indices)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4, 5), v = tc_input(ctx, "v", TC_F32, 5);
    tc_tensor i = tc_input(ctx, "i", TC_I64, 2), k = tc_input(ctx, "k", TC_I64, 2), both[2];
    SAME(tc_index(x, TC_TENSORS(i, TC_NONE, k)), "index", TC_TENSORS(x, i, TC_NONE, k), TC_ATTRS());
    SAME(tc_index_put(x, TC_TENSORS(i, k), v, true), "index_put", TC_TENSORS(x, i, k, v),
         TC_ATTRS(TC_ATTR("accumulate", true)));
    SAME(tc_repeat_interleave(x, 3, 1, 0), "repeat_interleave", TC_TENSORS(x),
         TC_ATTRS(TC_ATTR("repeats", 3), TC_ATTR("axis", 1)));
    tc_tensor indices, count;
    tc_nonzero(x, 7, &indices, &count);
    tc_attrs size = TC_ATTRS(TC_ATTR("size", 7));
    CHECK_EQ_INT(tc_op_results(ctx, "nonzero", TC_TENSORS(x), size, both, 2), TC_OK);
    CHECK(both[0].id == indices.id && both[1].id == count.id);
    tc_ctx_free(ctx);
}

TEST(indices_and_products)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 4, 5);
    tc_tensor i = tc_input(ctx, "i", TC_I64, 3, 4), j = tc_input(ctx, "j", TC_I64, 3);
    tc_attrs axis = TC_ATTRS(TC_ATTR("axis", 0));
    SAME(tc_gather(x, 0, i), "gather", TC_TENSORS(x, i), axis);
    SAME(tc_index_select(x, 0, j), "index_select", TC_TENSORS(x, j), axis);
    SAME(tc_scatter(x, 0, i, x), "scatter", TC_TENSORS(x, i, x), axis);
    SAME(tc_scatter_add(x, 0, i, x), "scatter_add", TC_TENSORS(x, i, x), axis);
    SAME(tc_scatter_min(x, 0, i, x), "scatter_min", TC_TENSORS(x, i, x), axis);
    SAME(tc_scatter_max(x, 0, i, x), "scatter_max", TC_TENSORS(x, i, x), axis);
    SAME(tc_index_add(x, 0, j, x), "index_add", TC_TENSORS(x, j, x), axis);
    TWO(tc_matmul(x, y), "matmul", TC_ATTRS());
    tc_tensor a = tc_reshape(x, 1, 3, 4), b = tc_reshape(y, 1, 4, 5);
    SAME(tc_bmm(a, b), "bmm", TC_TENSORS(a, b), TC_ATTRS());
    TWO(tc_einsum("ik,kj->ji", TC_TENSORS(x, y)), "einsum",
        TC_ATTRS(TC_ATTR_TEXT("spec", "ik,kj->ji")));
    tc_ctx_free(ctx);
}

TEST(windows_and_state)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 4, 6, 6);
    tc_tensor y = tc_input(ctx, "y", TC_F32, 8, 2, 3, 3);
    tc_tensor z = tc_input(ctx, "z", TC_F32, 4, 2, 3, 3);
    tc_tensor bias = tc_input(ctx, "bias", TC_F32, 8);
    const tc_conv conv = {.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}, .groups = 2};
    const tc_pool pool = {.kernel = {3, 2},
                          .stride = {1, 1},
                          .padding = {1, 0},
                          .dilation = {1, 1},
                          .ceil_mode = true};
    SAME(tc_conv2d(x, y, bias, &conv), "conv2d", TC_TENSORS(x, y, bias),
         TC_ATTRS(TC_ATTR_LIST("stride", 2, 1), TC_ATTR("padding", 1),
                  TC_ATTR_LIST("dilation", 1, 2), TC_ATTR("groups", 2)));
    TWO(tc_conv2d(x, y, TC_NONE, (&(tc_conv){.groups = 2})), "conv2d",
        TC_ATTRS(TC_ATTR("groups", 2)));
    ONE(tc_max_pool2d(x, &pool), "max_pool2d",
        TC_ATTRS(TC_ATTR_LIST("kernel", 3, 2), TC_ATTR("stride", 1), TC_ATTR_LIST("padding", 1, 0),
                 TC_ATTR("ceil_mode", true)));
    SAME(tc_conv_transpose2d(x, z, TC_NONE,
                             (&(tc_conv){.output_padding = {0, 1}, .stride = {1, 2}})),
         "conv_transpose2d", TC_TENSORS(x, z),
         TC_ATTRS(TC_ATTR_LIST("stride", 1, 2), TC_ATTR_LIST("output_padding", 0, 1)));
    ONE(tc_avg_pool2d(x, &(tc_pool){.kernel = {3, 3}, .exclude_pad = true, .padding = {1, 1}}),
        "avg_pool2d",
        TC_ATTRS(TC_ATTR("kernel", 3), TC_ATTR("padding", 1), TC_ATTR("exclude_pad", true)));
    ONE(tc_adaptive_avg_pool2d(x, 4, 2), "adaptive_avg_pool2d",
        TC_ATTRS(TC_ATTR_LIST("sizes", 4, 2)));
    ONE(tc_interpolate(x, (&(tc_interpolation){.mode = "bilinear", .size = {3, 4}})), "interpolate",
        TC_ATTRS(TC_ATTR_TEXT("mode", "bilinear"), TC_ATTR_LIST("size", 3, 4)));
    ONE(tc_interpolate(x, (&(tc_interpolation){.scale_factor = {1.5, 1.5}})), "interpolate",
        TC_ATTRS(TC_ATTR("scale_factor", 1.5)));
    tc_tensor both[2], values, indices;
    tc_max_pool2d_with_indices(x, &pool, &values, &indices);
    CHECK_EQ_INT(tc_op_results(ctx, "max_pool2d_with_indices", TC_TENSORS(x),
                               TC_ATTRS(TC_ATTR_LIST("kernel", 3, 2), TC_ATTR("stride", 1),
                                        TC_ATTR_LIST("padding", 1, 0), TC_ATTR("ceil_mode", true)),
                               both, 2),
                 TC_OK);
    CHECK(both[0].id == values.id && both[1].id == indices.id);
    float zeros[4] = {0};
    tc_tensor p = tc_param(ctx, zeros, TC_F32, 4);
    CHECK_EQ_INT(tc_eval(tc_op(ctx, "assign", TC_TENSORS(p), TC_ATTRS(TC_ATTR("value", 3.0)))),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_eval(tc_op(ctx, "assign", TC_TENSORS(p, tc_add(p, 3)), TC_ATTRS())), TC_OK);
    CHECK_EQ_INT(tc_read(p, zeros, 4), TC_OK);
    CHECK(zeros[3] == 3);
    tc_ctx_free(ctx);
}

TEST(a_default_that_is_a_fraction)
{
    float data[3] = {1, 2, 4}, by_name[3], wanted[3];
    begin();
    tc_tensor x = tc_copy_in(ctx, data, TC_F32, 3),
              y = tc_op(ctx, "layer_norm", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axes", 0)));
    CHECK_EQ_INT(tc_read(y, by_name, 3), TC_OK);
    CHECK_EQ_INT(tc_read(tc_layer_norm(x, TC_AXES(0), TC_NONE, TC_NONE, 1e-5), wanted, 3), TC_OK);
    CHECK(!memcmp(by_name, wanted, sizeof(wanted)));
    tc_ctx_free(ctx);
}

/* A loader has lists in memory, and names that are known when it runs. */
TEST(lists_in_memory)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    const int64_t sizes[2] = {2, 6};
    tc_attr attr = {.name = "sizes", .n = 2, .items = sizes};
    SAME(tc_reshape(x, 2, 6), "reshape", TC_TENSORS_N(&x, 1), TC_ATTRS_N(&attr, 1));
    tc_attr ends[2] = {{.name = "axis", .value = TC_ARG(1)}, {.name = "stop", .value = TC_ARG(3)}};
    SAME(tc_slice(x, 1, 0, 3, 1), "slice", TC_TENSORS_N(&x, 1), TC_ATTRS_N(ends, 2));
    tc_attr whole = {.name = "correction", .value = {.kind = 2, .i = 2}};
    SAME(tc_var(x, TC_ALL, 2, false), "var", TC_TENSORS_N(&x, 1), TC_ATTRS_N(&whole, 1));
    int64_t ones[100];
    for (int i = 0; i < 100; i++) {
        ones[i] = 1;
    }
    tc_attr many[3] = {{.name = "value", .value = TC_ARG(1)},
                       {.name = "dtype", .value = TC_ARG(TC_F32)},
                       {.name = "sizes", .n = 100, .items = ones}};
    CHECK_EQ_INT(tc_rank(tc_op(ctx, "full", TC_TENSORS(), TC_ATTRS_N(many, 3))), 100);
    many[2].n = 0;
    SAME(tc_full(ctx, 1, TC_F32), "full", TC_TENSORS(), TC_ATTRS_N(many, 3));
    tc_ctx_free(ctx);
}

/* ---- mistakes ---- */

static void check_says(int line, tc_tensor t, tc_status status, const char *text)
{
    char all[512];
    snprintf(all, sizeof(all), "%s:%d: tc_op: %s", __FILE__, line, text);
    CHECK_STR(tc_error(t), all);
    CHECK_EQ_INT(tc_status_of(t), status);
}
/* What is said of the op when given these. */
#define SAYS(text, name, inputs, attrs)                                                            \
    check_says(__LINE__, tc_op(ctx, name, inputs, attrs), TC_ERR_ARGUMENT, text)
#define SOFTMAX ": expected softmax(x: tensor, axis: axis)"

TEST(names_that_are_not_there)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    SAYS("there is no op 'sofmax': softmax is near", "sofmax", TC_TENSORS(x), TC_ATTRS());
    SAYS("there is no op 'Relu': relu is near", "Relu", TC_TENSORS(x), TC_ATTRS());
    SAYS("there is no op 'conv2': conv2d is near", "conv2", TC_TENSORS(x), TC_ATTRS());
    SAYS("there is no op 'contract'", "contract", TC_TENSORS(x), TC_ATTRS());
    SAYS("there is no op ''", "", TC_TENSORS(x), TC_ATTRS());
    SAYS("there is no op '(null)'", NULL, TC_TENSORS(x), TC_ATTRS());
    SAYS("there is no 'dim'" SOFTMAX, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("dim", 1)));
    SAYS("there is no '(null)'" SOFTMAX, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR(NULL, 1)));
    SAYS("'axis' is missing" SOFTMAX, "softmax", TC_TENSORS(x), TC_ATTRS());
    SAYS("'x' is missing" SOFTMAX, "softmax", TC_TENSORS(), TC_ATTRS(TC_ATTR("axis", 1)));
    SAYS("'x' is given twice" SOFTMAX, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("x", x)));
    SAYS("2 inputs are given" SOFTMAX, "softmax", TC_TENSORS(x, x), TC_ATTRS(TC_ATTR("axis", 1)));
    SAYS("1 results of var_mean are asked for: it has 2", "var_mean", TC_TENSORS(x), TC_ATTRS());
    tc_ctx_free(ctx);
}

TEST(values_that_are_of_another_kind)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    SAYS("'axis' is 0.5" SOFTMAX, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", 0.5)));
    SAYS("'axis' is a tensor" SOFTMAX, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", x)));
    SAYS("'axis' is a list of 1" SOFTMAX, "softmax", TC_TENSORS(x),
         TC_ATTRS(TC_ATTR_LIST("axis", 1)));
    SAYS("'axis' is the text \"last\"" SOFTMAX, "softmax", TC_TENSORS(x),
         TC_ATTRS(TC_ATTR_TEXT("axis", "last")));
    SAYS("'x' is 3" SOFTMAX, "softmax", TC_TENSORS(), TC_ATTRS(TC_ATTR("x", 3)));
    SAYS("'dtype' is 99: expected cast(x: tensor, dtype: dtype)", "cast", TC_TENSORS(x),
         TC_ATTRS(TC_ATTR("dtype", 99)));
    SAYS("'keepdims' is 2: expected argmax(x: tensor, axis: axis, keepdims: flag = false)",
         "argmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", 0), TC_ATTR("keepdims", 2)));
    SAYS("'sizes' is 1.5: expected reshape(x: tensor, sizes: sizes)", "reshape", TC_TENSORS(x),
         TC_ATTRS(TC_ATTR("sizes", 1.5)));
    SAYS("'xs' is given twice: expected cat(xs: tensors, axis: axis)", "cat", TC_TENSORS(x),
         TC_ATTRS(TC_ATTR("xs", x)));
    SAYS("'kernel' is a list of 3: expected max_pool2d(x: tensor, kernel: pair, stride: pair = 0, "
         "padding: pair = 0, dilation: pair = 1, ceil_mode: flag = false)",
         "max_pool2d", TC_TENSORS(x), TC_ATTRS(TC_ATTR_LIST("kernel", 1, 2, 3)));
    tc_ctx_free(ctx);
}

/* What the call itself refuses tells of that call, at the same place. */
TEST(values_that_do_not_fit)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    tc_tensor bad = tc_op(ctx, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", 1ll << 40)));
    CHECK_EQ_INT(tc_status_of(bad), TC_ERR_AXIS);
    CHECK_HAS(tc_error(bad), "test_named.c:");
    CHECK_HAS(tc_error(bad), ": tc_softmax: axis 2147483647 is out of range");
    tc_tensor later = tc_op(ctx, "exp", TC_TENSORS(bad), TC_ATTRS());
    CHECK_STR(tc_error(later), tc_error(bad));
    tc_attrs none = {NULL, 3};
    CHECK_HAS(tc_error(tc_op(ctx, "exp", TC_TENSORS(x), none)), "a list of 3 at NULL");
    tc_tensor two[2];
    CHECK_EQ_INT(tc_op_results(ctx, "exp", TC_TENSORS(x), TC_ATTRS(), two, 2), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(two[1]), "2 results of exp are asked for: it has 1");
    CHECK_EQ_INT(tc_op_results(ctx, "exp", TC_TENSORS(x), TC_ATTRS(), NULL, 1), TC_ERR_ARGUMENT);
    tc_ctx *other;
    REQUIRE(tc_ctx_make(&other, NULL) == TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_op(other, "exp", TC_TENSORS(x), TC_ATTRS())), TC_ERR_HANDLE);
    tc_ctx_free(other);
    CHECK_EQ_INT(tc_status_of(tc_op(other, "exp", TC_TENSORS(x), TC_ATTRS())), TC_ERR_HANDLE);
    tc_ctx_free(ctx);
}

/* ---- the rows ---- */

static bool has_row(const char *name, size_t n)
{
    int i = 0;
    while (tc_op_name(i) && (strncmp(tc_op_name(i), name, n) != 0 || tc_op_name(i)[n])) {
        i++;
    }
    return tc_op_name(i) != NULL;
}

/* Macros of api/ops*.h that make no tensors of tensors, or any number of them. */
static bool is_no_op(const char *name, size_t n)
{
    static const char *const others[] = {"next_key",   "range", "param",
                                         "param_from", "named", "param_write",
                                         "grad",       "op",    "op_results",
                                         "vjp",        "jvp",   "vmap",
                                         "meshgrid",   "split", "split_with_sizes",
                                         "chunk",      "unbind"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strlen(others[i]) == n && !strncmp(others[i], name, n)) {
            return true;
        }
    }
    return false;
}

/* Returns how many calls the header declares. */
static int check_rows_of(const char *path)
{
    char line[512];
    int n = 0;
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    while (fgets(line, sizeof(line), f)) {
        if (!strncmp(line, "#define tc_", 11)) {
            size_t length = strcspn(line + 11, "(");
            CHECK_MSG(has_row(line + 11, length) != is_no_op(line + 11, length),
                      "tc_%.*s: a row in src/api/op_signatures.h", (int)length, line + 11);
            n++;
        }
    }
    fclose(f);
    return n;
}

TEST(every_public_op_has_a_row)
{
    static const char *const headers[] = {
        "src/api/ops_elementwise.h", "src/api/ops_creation.h",  "src/api/ops_reduce.h",
        "src/api/ops_shape.h",       "src/api/ops_linalg.h",    "src/api/ops_nn.h",
        "src/api/parameters.h",      "src/api/ops_grad_vmap.h", "src/api/ops.h"};
    int n = 0;
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
        n += check_rows_of(headers[i]);
    }
    CHECK_MSG(n >= 240, "%d calls", n);
    CHECK(!tc_op_name(-1) && !tc_op_params(-1) && !tc_op_params(100000));
}

TEST_MAIN
