/* tests/onnx/test_export.c - graphs of tc as ONNX models, run by onnxruntime, which shares no
 * code with tc. Needs a Python with onnxruntime: TC_TEST_PYTHON, build/venv/bin/python (.ci/run
 * makes it) or python3; else those tests are skipped. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include <math.h>
#include <unistd.h>

#include "elsewhere.h"
#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void end(void)
{
    tc_ctx_free(ctx);
    io_clean();
}

/* What fills an input. */
static tc_tensor numbers(int i, tc_dtype dtype, int rank, const int64_t *sizes)
{
    int64_t words[8] = {TC_F32};
    memcpy(words + 1, sizes, sizeof(*sizes) * (size_t)rank);
    return tc_cast(tc_mul(tc_randn_at(ctx, TC_ARG(7 + i), rank + 1, words, TC_HERE), 1.5), dtype);
}

typedef void (*network)(const tc_tensor *x, tc_tensor *y);

/* y of x, by tc and by onnxruntime: both from the values of `numbers`. sizes[i]: of input i, its
 * rank first; symbolic: axis 0 of all is one TC_DIM in the model. */
static void compare(network build, int n_in, const int64_t (*sizes)[6], int n_out, bool symbolic)
{
    tc_tensor leaves[4], values[4], from_leaves[8] = {{0}}, from_values[8] = {{0}};
    if (!else_python(ELSE_ONNX)) {
        SKIP("no Python with onnxruntime (TC_TEST_PYTHON)");
    }
    begin();
    for (int i = 0; i < n_in; i++) {
        int64_t words[8] = {TC_F32};
        char name[8];
        int rank = (int)sizes[i][0];
        memcpy(words + 1, sizes[i] + 1, sizeof(*words) * (size_t)rank);
        words[1] = symbolic ? TC_DIM("n", 1, 64) : words[1];
        snprintf(name, sizeof(name), "x%d", i);
        leaves[i] = tc_input_at(ctx, name, rank + 1, words, TC_HERE);
        values[i] = numbers(i, TC_F32, rank, sizes[i] + 1);
    }
    build(leaves, from_leaves);
    build(values, from_values);
    else_compare(ctx, ELSE_ONNX, TC_TENSORS_N(leaves, n_in), TC_TENSORS_N(values, n_in),
                 TC_TENSORS_N(from_leaves, n_out), TC_TENSORS_N(from_values, n_out), 1e-4);
    end();
}

/* ---- networks ---- */

static void perceptron(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor w1 = tc_mul(tc_randn(ctx, 1, TC_F32, 12, 16), 0.3);
    tc_tensor w2 = tc_mul(tc_randn(ctx, 2, TC_F32, 16, 5), 0.3), b = tc_randn(ctx, 3, TC_F32, 5);
    REQUIRE(tc_eval_many(TC_TENSORS(w1, w2, b)) == TC_OK);
    tc_tensor h = tc_gelu(tc_matmul(x[0], w1));
    y[0] = tc_softmax(tc_add(tc_matmul(h, w2), b), -1);
    y[1] = tc_log_softmax(tc_silu(h), -1);
}

TEST(a_perceptron_of_any_batch_runs_elsewhere)
{
    compare(perceptron, 1, (const int64_t[][6]){{2, 7, 12}}, 2, true);
}

static void convolutions(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor w = tc_mul(tc_randn(ctx, 1, TC_F32, 8, 3, 3, 3), 0.3);
    tc_tensor v = tc_mul(tc_randn(ctx, 2, TC_F32, 8, 1, 3, 3), 0.3);
    tc_tensor b = tc_randn(ctx, 3, TC_F32, 8);
    REQUIRE(tc_eval_many(TC_TENSORS(w, v, b)) == TC_OK);
    tc_conv strided = {.stride = {2, 2}, .padding = {1, 1}};
    tc_conv deep = {.padding = {1, 1}, .groups = 8};
    tc_tensor h = tc_relu(tc_conv2d(x[0], w, b, &strided));
    h = tc_hardswish(tc_conv2d(h, v, TC_NONE, &deep));
    y[0] = tc_max_pool2d(h, &(tc_pool){.kernel = {2, 2}});
    y[1] = tc_mean(h, TC_AXES(2, 3), false);
    y[2] = tc_flip(tc_pad(h, 3, 1, 2, 0.5), 2);
}

TEST(convolutions_and_pools_run_elsewhere)
{
    compare(convolutions, 1, (const int64_t[][6]){{4, 2, 3, 12, 10}}, 3, false);
}

/* Stride, padding, dilation, groups and output padding of one to three axes. */
static void transposed_convolutions(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor w = tc_randn(ctx, 1, TC_F32, 6, 2, 3, 4), v = tc_randn(ctx, 2, TC_F32, 6, 5, 4);
    tc_tensor u = tc_randn(ctx, 3, TC_F32, 6, 2, 2, 3, 2), b = tc_randn(ctx, 4, TC_F32, 6);
    REQUIRE(tc_eval_many(TC_TENSORS(w, v, u, b)) == TC_OK);
    tc_tensor line = tc_mean(x[0], TC_AXES(3), false), cube = tc_unsqueeze(x[0], 4);
    tc_conv wide = {.stride = {2, 3}, .padding = {1, 2}, .groups = 3, .output_padding = {1, 2}};
    tc_conv spread = {.stride = {1}, .dilation = {3}, .end_padding = {2}};
    tc_conv deep = {.stride = {2, 1, 3}, .dilation = {1, 2, 2}, .output_padding = {0, 0, 2}};
    y[0] = tc_conv_transpose2d(x[0], w, b, &wide);
    y[1] = tc_conv_transpose1d(line, v, TC_NONE, &spread);
    y[2] = tc_conv_transpose3d(cube, u, TC_NONE, &deep);
    y[3] = tc_conv_transpose2d(tc_squeeze(tc_slice(x[0], 0, 0, 1, 1), 0), w, TC_NONE,
                               &(tc_conv){.stride = {2, 2}});
}

static bool holds(const io_bytes *b, const char *word);

TEST(transposed_convolutions_run_elsewhere_as_one_operator)
{
    compare(transposed_convolutions, 1, (const int64_t[][6]){{4, 2, 6, 5, 4}}, 4, false);
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 6, 5, 4), y[4];
    transposed_convolutions(&x, y);
    for (int i = 0; i < 4; i++) {
        CHECK(tc_export_onnx(TC_TENSORS(x), TC_TENSORS(y[i]), NULL, io_path("t.onnx")) == TC_OK);
        io_bytes net = io_slurp(io_path("t.onnx"));
        CHECK(holds(&net, "ConvTranspose") && !holds(&net, "Einsum") && !holds(&net, "Gather"));
        free(net.at);
    }
    end();
}

/* ---- calls by their names ---- */

/* The names of the operators that a graph leaves as, all of them and no others but Identity. */
static void leaves_as(tc_tensors in, tc_tensor y, int opset, const char *operators)
{
    static const char *const others[] = {"Where", "Mul",    "Add",  "Sub",  "Exp",
                                         "Max",   "Min",    "Pow",  "Sqrt", "Expand",
                                         "Pad",   "Gather", "Less", "Log",  "Softmax"};
    char list[64], *word;
    const tc_onnx_export how = {.opset = opset};
    CHECK_MSG(!tc_export_onnx(in, TC_TENSORS(y), &how, io_path("t.onnx")), "%s", tc_error(y));
    io_bytes net = io_slurp(io_path("t.onnx"));
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        CHECK_MSG(!holds(&net, others[i]), "%s has %s", operators, others[i]);
    }
    snprintf(list, sizeof(list), "%s", operators);
    for (word = strtok(list, " "); word; word = strtok(NULL, " ")) {
        CHECK_MSG(holds(&net, word), "no %s", word);
    }
    free(net.at);
}

static void activations(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor v = tc_mul(x[0], 4);
    y[0] = tc_cat(TC_TENSORS(tc_relu6(v), tc_hardtanh(v, -0.5, 1.5), tc_hardsigmoid(v)), 0);
    y[1] = tc_cat(TC_TENSORS(tc_hardswish(v), tc_leaky_relu(v, 0.2), tc_elu(v, 1.5)), 0);
    y[2] = tc_cat(TC_TENSORS(tc_celu(v, 0.7), tc_selu(v), tc_mish(v)), 0);
    y[3] = tc_cat(TC_TENSORS(tc_softplus(v, TC_NONE, TC_NONE), tc_softplus(v, 2, 20)), 0);
    y[4] = tc_cat(TC_TENSORS(tc_gelu_tanh(v), tc_leaky_relu(v, tc_abs(x[0]))), 0);
    CHECK(!tc_grad(tc_sum(tc_square(y[1]), TC_ALL, false), x, 1, &y[5]));
}

TEST(activations_leave_by_their_names)
{
    compare(activations, 1, (const int64_t[][6]){{2, 5, 7}}, 6, false);
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 5, 7);
    leaves_as(TC_TENSORS(x), tc_relu6(x), 0, "Clip");
    leaves_as(TC_TENSORS(x), tc_hardtanh(x, TC_NONE, TC_NONE), 0, "Clip");
    leaves_as(TC_TENSORS(x), tc_hardsigmoid(x), 0, "HardSigmoid");
    leaves_as(TC_TENSORS(x), tc_hardswish(x), 0, "HardSwish");
    leaves_as(TC_TENSORS(x), tc_leaky_relu(x, TC_NONE), 0, "LeakyRelu");
    leaves_as(TC_TENSORS(x), tc_elu(x, TC_NONE), 0, "Elu");
    leaves_as(TC_TENSORS(x), tc_celu(x, TC_NONE), 0, "Celu");
    leaves_as(TC_TENSORS(x), tc_selu(x), 0, "Selu");
    leaves_as(TC_TENSORS(x), tc_mish(x), 0, "Mish");
    leaves_as(TC_TENSORS(x), tc_softplus(x, TC_NONE, TC_NONE), 0, "Softplus");
    leaves_as(TC_TENSORS(x), tc_gelu_tanh(x), 0, "Gelu approximate");
    end();
}

/* A block of MobileNet: a depthwise convolution of stride 2, its norm, its activation; then norms
 * with and without weights, and a convolution along a line. */
static void blocks(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor w = tc_randn(ctx, 1, TC_F32, 6, 1, 3, 3), b = tc_randn(ctx, 2, TC_F32, 6);
    tc_tensor mean = tc_randn(ctx, 3, TC_F32, 6), var = tc_rand(ctx, 4, TC_F32, 6);
    tc_tensor v = tc_randn(ctx, 5, TC_F32, 4, 6, 3);
    REQUIRE(tc_eval_many(TC_TENSORS(w, b, mean, var, v)) == TC_OK);
    tc_conv o = {.stride = {2, 1}, .padding = {1, 0}, .end_padding = {2, 1}, .groups = 6};
    tc_tensor h = tc_conv2d(x[0], w, b, &o);
    y[0] = tc_relu6(tc_batch_norm(h, mean, var, b, TC_NONE, false, 1e-3));
    y[1] = tc_batch_norm(x[0], mean, var, TC_NONE, b, false, 1e-5);
    y[2] = tc_group_norm(x[0], 3, b, mean, 1e-5);
    y[3] = tc_instance_norm(x[0], TC_NONE, mean, 1e-5);
    y[4] = tc_conv1d(tc_mean(x[0], TC_AXES(2), false), v, TC_NONE, &(tc_conv){.dilation = {2}});
}

TEST(layers_leave_by_their_names)
{
    compare(blocks, 1, (const int64_t[][6]){{4, 2, 6, 9, 8}}, 5, false);
    compare(blocks, 1, (const int64_t[][6]){{4, 2, 6, 9, 8}}, 5, true);
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 6, 9, 8), y[5];
    blocks(&x, y);
    leaves_as(TC_TENSORS(x), y[0], 0, "Conv BatchNormalization Clip");
    leaves_as(TC_TENSORS(x), y[1], 0, "BatchNormalization");
    leaves_as(TC_TENSORS(x), y[2], 0, "GroupNormalization");
    leaves_as(TC_TENSORS(x), y[3], 0, "InstanceNormalization");
    leaves_as(TC_TENSORS(x), y[4], 0, "Conv ReduceMean");
    end();
}

/* Rows of a table by indices of two axes, slices by a list of negative ones, one slice, elements by
 * an index of the result's shape; means of images. */
static void selections(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor table = tc_randn(ctx, 1, TC_F32, 6, 7), at;
    REQUIRE(tc_eval(table) == TC_OK);
    at = tc_cast(tc_remainder(tc_mul(x[0], 9), 6), TC_I32);
    y[0] = tc_embedding(at, table);
    y[1] = tc_index_select(x[1], -1, tc_sub(tc_remainder(tc_reshape(at, -1), 3), 3));
    y[2] = tc_index_select(x[1], 1, tc_max(at, TC_ALL, false));
    y[3] = tc_gather(tc_add(x[0], 1), 1, tc_cast(tc_remainder(at, 4), TC_I16));
    y[4] = tc_mean(x[1], TC_AXES(2, 3), true);
    y[5] = tc_mean(x[1], TC_AXES(-1, -2), false);
}

TEST(rows_and_means_of_images_leave_by_their_names)
{
    static const int64_t sizes[][6] = {{2, 2, 4}, {4, 2, 6, 5, 3}};
    static const char *const names[] = {"GatherElements", "GlobalAveragePool"};
    compare(selections, 2, sizes, 6, false);
    compare(selections, 2, sizes, 6, true);
    begin();
    tc_tensor x[2] = {tc_input(ctx, "x", TC_F32, 2, 4), tc_input(ctx, "y", TC_F32, 2, 6, 5, 3)};
    tc_tensor y[6];
    selections(x, y);
    for (int i = 0; i < 6; i++) {
        CHECK(!tc_export_onnx(TC_TENSORS(x[0], x[1]), TC_TENSORS(y[i]), NULL, io_path("t.onnx")));
        io_bytes net = io_slurp(io_path("t.onnx"));
        CHECK(holds(&net, "Gather") == (i < 4) && !holds(&net, "Expand"));
        CHECK(holds(&net, names[0]) == (i == 3) && holds(&net, names[1]) == (i >= 4));
        free(net.at);
    }
    end();
}

/* Causal, scaled, masked by numbers and by truth (one row sees no key), heads that share
 * keys, values of another width, and a mask of columns alone. */
static void attentions(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor mask = tc_randn(ctx, 1, TC_F32, 5, 7), row = tc_arange(ctx, 0, 5, 1, TC_I64);
    tc_tensor blind = tc_logical_and(tc_gt(mask, 0), tc_lt(tc_reshape(row, 5, 1), 4));
    tc_tensor w = tc_rand(ctx, 2, TC_F32, 8), v = tc_slice(x[2], 3, 0, 3, 1), none = TC_NONE;
    tc_tensor padding = tc_gt(tc_randn(ctx, 3, TC_F32, 2, 1, 1, 7), -1);
    REQUIRE(tc_eval_many(TC_TENSORS(mask, blind, w, padding)) == TC_OK);
    y[0] = tc_scaled_dot_product_attention(x[0], x[1], v, none, true, 0);
    y[1] = tc_scaled_dot_product_attention(x[0], x[1], x[2], mask, false, 0.3);
    y[2] = tc_scaled_dot_product_attention(x[0], x[1], x[2], blind, true, 0);
    y[3] = tc_scaled_dot_product_attention(x[0], tc_slice(x[1], 1, 0, 2, 1),
                                           tc_slice(x[2], 1, 0, 2, 1), none, false, 0);
    y[4] = tc_rms_norm(x[0], TC_AXES(-1), w, 1e-5);
    y[5] = tc_rms_norm(x[1], TC_AXES(2, 3), tc_mul(tc_ones(ctx, TC_F32, 7, 8), w), 1e-5);
    y[6] = tc_scaled_dot_product_attention(x[0], x[1], x[2], padding, false, 0);
}

TEST(attention_leaves_by_its_name_where_the_opset_has_it)
{
    static const int64_t sizes[][6] = {{4, 2, 4, 5, 8}, {4, 2, 4, 7, 8}, {4, 2, 4, 7, 8}};
    for (int opset = 0; opset <= 24; opset += 24) {
        else_opset = opset;
        compare(attentions, 3, sizes, 7, false);
    }
    else_opset = 0;
    begin();
    tc_tensor x[3], y[7];
    for (int i = 0; i < 3; i++) {
        x[i] = tc_input(ctx, "x", TC_F32, 2, 4, i ? 7 : 5, 8);
    }
    attentions(x, y);
    leaves_as(TC_TENSORS_N(x, 3), y[3], 23, "Attention Reshape");
    leaves_as(TC_TENSORS_N(x, 3), y[4], 23, "RMSNormalization");
    tc_tensor q = tc_scaled_dot_product_attention(x[0], x[1], x[2], TC_NONE, true, 0);
    leaves_as(TC_TENSORS_N(x, 3), q, 23, "Attention is_causal");
    CHECK(!tc_export_onnx(TC_TENSORS_N(x, 3), TC_TENSORS(q), NULL, io_path("t.onnx")));
    io_bytes net = io_slurp(io_path("t.onnx"));
    CHECK(!holds(&net, "Attention") && holds(&net, "Softmax") && holds(&net, "MatMul"));
    free(net.at);
    CHECK_EQ_INT(tc_export_onnx(TC_TENSORS_N(x, 3), TC_TENSORS(q), &(tc_onnx_export){.opset = 20},
                                io_path("t.onnx")),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "opset 20");
    end();
}

/* Whole numbers made of all bits, so that one wrong bit is a wrong value; odd counts end within a
 * block of the generator. */
static void random_bits(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor key = tc_sum(tc_cast(tc_mul(x[0], 1e9), TC_I64), TC_ALL, false);
    tc_tensor sum = tc_cast(key, TC_U64);
    y[0] = tc_random_bits(ctx, sum, TC_U32, 7, 3);
    y[1] = tc_random_bits(ctx, sum, TC_U64, 5, 3);
    y[2] = tc_rand(ctx, UINT64_C(0xfedcba9876543210), TC_F32, 1001);
    y[3] = tc_randn(ctx, 12, TC_F32, 33, 3);
    y[4] = tc_randint(ctx, 5, -1000000, 1000000, TC_I64, 50);
}

TEST(random_numbers_are_tcs_elsewhere_too)
{
    compare(random_bits, 1, (const int64_t[][6]){{1, 4}}, 5, false);
}

static void special(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor whole = tc_cast(tc_mul(x[0], 500), TC_I64);
    y[0] = tc_lgamma(tc_mul(x[0], 6));
    y[1] = tc_digamma(tc_add(tc_abs(tc_mul(x[0], 6)), 0.1));
    y[2] = tc_erfinv(tc_tanh(x[0]));
    y[3] = tc_atan2(x[0], x[1]);
    y[4] = tc_gcd(whole, tc_cast(tc_mul(x[1], 500), TC_I64));
    y[5] = tc_gcd(tc_cast(whole, TC_I32), 12);
    y[6] = tc_lgamma(tc_cast(tc_mul(x[0], 4), TC_F64));
    tc_tensor zero = tc_mul(x[0], 0); /* -0 where x[0] is below 0 */
    y[7] = tc_where(tc_signbit(zero), tc_logaddexp(x[0], x[1]), tc_logaddexp2(x[0], x[1]));
}

TEST(special_functions_leave_as_their_recipes)
{
    compare(special, 2, (const int64_t[][6]){{2, 9, 11}, {2, 9, 11}}, 8, false);
}

static void attention(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor scale = tc_randn(ctx, 1, TC_F32, 8), bias = tc_randn(ctx, 2, TC_F32, 8);
    REQUIRE(tc_eval_many(TC_TENSORS(scale, bias)) == TC_OK);
    tc_tensor q = tc_layer_norm(x[0], TC_AXES(-1), scale, bias, 1e-5);
    y[0] = tc_scaled_dot_product_attention(q, x[1], x[2], TC_NONE, true, 0);
    y[1] = tc_rms_norm(x[1], TC_AXES(-1), scale, 1e-6);
    y[2] = tc_einsum("bij,bkj->bik", TC_TENSORS(q, x[2]));
}

TEST(attention_and_norms_run_elsewhere)
{
    compare(attention, 3, (const int64_t[][6]){{3, 2, 6, 8}, {3, 2, 6, 8}, {3, 2, 6, 8}}, 3, false);
}

static void places(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor best, at;
    tc_topk(x[0], 1, 3, true, &best, &at);
    y[0] = best;
    y[1] = at;
    y[2] = tc_scatter_add(x[0], 1, at, best);
    y[3] = tc_cumsum(x[0], 1);
    y[4] = tc_argmax(x[0], 1, true);
    y[5] = tc_where(tc_gt(x[0], 0), x[0], tc_expm1(x[0]));
    y[6] = tc_remainder(x[0], 0.7);
    y[7] = tc_cast(tc_mul(x[0], 200), TC_I8);
}

TEST(places_and_choices_run_elsewhere)
{
    compare(places, 1, (const int64_t[][6]){{2, 4, 9}}, 8, false);
}

/* Integers by 0 and by -1, also the least one. */
static void divisions(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor by = tc_sub(tc_remainder(tc_cast(tc_mul(x[0], 100), TC_I32), 4), 1);
    tc_tensor least = tc_full(ctx, INT32_MIN, TC_I32), a = tc_cast(tc_mul(x[0], 1000), TC_I32);
    y[0] = tc_floor_divide(a, by);
    y[1] = tc_remainder(a, by);
    y[2] = tc_floor_divide(least, by);
    y[3] = tc_fmod(least, by);
    y[4] = tc_floor_divide(tc_cast(tc_abs(a), TC_U8), tc_cast(tc_abs(by), TC_U8));
    y[5] = tc_lcm(tc_remainder(a, 3), by); /* of 0 and 0 too */
}

TEST(divisions_by_zero_run_elsewhere)
{
    compare(divisions, 1, (const int64_t[][6]){{1, 64}}, 6, false);
}

/* Forward, backward and the new weights, which leave as outputs. */
static void training(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor w = x[1], grad;
    tc_tensor h = tc_tanh(tc_matmul(x[0], w));
    tc_tensor loss = tc_mean(tc_square(tc_sub(h, 0.5)), TC_ALL, false);
    REQUIRE(tc_grad(loss, &w, 1, &grad) == TC_OK);
    y[0] = loss;
    y[1] = tc_sub(w, tc_mul(grad, 0.1));
}

TEST(a_training_step_runs_elsewhere)
{
    compare(training, 2, (const int64_t[][6]){{2, 8, 6}, {2, 6, 4}}, 2, false);
}

static tc_status step(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                      tc_tensor *y)
{
    (void)user;
    next[0] = tc_tanh(tc_add(tc_mul(carry[0], 0.5), x[0]));
    y[0] = tc_mul(next[0], 2);
    return TC_OK;
}

/* A scan and its gradient, which reads the rows of the carry and runs backwards. */
static void loops(const tc_tensor *x, tc_tensor *y)
{
    tc_tensor in = x[0];
    REQUIRE(tc_scan(TC_TENSORS(x[1]), TC_TENSORS(in), 0, false, step, NULL, &y[0], &y[1], 1) ==
            TC_OK);
    REQUIRE(tc_grad(tc_sum(y[1], TC_ALL, false), &in, 1, &y[2]) == TC_OK);
}

TEST(repetitions_run_elsewhere)
{
    compare(loops, 2, (const int64_t[][6]){{2, 6, 3}, {1, 3}}, 3, false);
}

/* ---- the round trip ---- */

static bool holds(const io_bytes *b, const char *word)
{
    size_t n = strlen(word), at = 0;
    while (at + n <= b->n && memcmp(b->at + at, word, n)) {
        at++;
    }
    return at + n <= b->n;
}

TEST(what_is_exported_is_imported_again_with_the_same_values)
{
    begin();
    tc_tensor in = tc_input(ctx, "x", TC_F32, 2, 3, 8, 8), w = tc_randn(ctx, 1, TC_F32, 4, 3, 3, 3);
    tc_tensor x = tc_randn(ctx, 2, TC_F32, 2, 3, 8, 8), want, got;
    tc_onnx_model *m = NULL;
    tc_program *f = NULL;
    float from[2 * 3 * 8 * 8], to[2 * 4 * 4 * 4], again[2 * 4 * 4 * 4];
    REQUIRE(tc_eval(w) == TC_OK);
    tc_conv same = {.padding = {1, 1}};
    tc_pool half = {.kernel = {2, 2}};
    tc_tensor out = tc_max_pool2d(tc_relu(tc_conv2d(in, w, TC_NONE, &same)), &half);
    CHECK(tc_export_onnx(TC_TENSORS(in), TC_TENSORS(out), NULL, io_path("net.onnx")) == TC_OK);
    io_bytes net = io_slurp(io_path("net.onnx"));
    CHECK(holds(&net, "Conv") && holds(&net, "MaxPool") && !holds(&net, "Gather"));
    CHECK_MSG(tc_onnx_load(ctx, io_path("net.onnx"), NULL, &m) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(m != NULL && tc_read(x, from, 384) == TC_OK);
    got = m->outputs[0];
    REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 1), TC_TENSORS(got), NULL, &f) == TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(from, 384)), TC_BUFS(TC_BUF(again, 128))) == TC_OK);
    want = tc_max_pool2d(tc_relu(tc_conv2d(x, w, TC_NONE, &same)), &half);
    CHECK(tc_read(want, to, 128) == TC_OK && !memcmp(to, again, sizeof(to)));
    free(net.at);
    tc_program_free(f);
    tc_onnx_free(m);
    end();
}

/* ---- reference cases computed by PyTorch ---- */

TEST(reference_cases_run_in_onnxruntime)
{
    else_replay(ELSE_ONNX, "tests/data/opinfo", false, tct_soak ? 1600 : 160);
}

TEST(reference_gradients_run_in_onnxruntime)
{
    else_replay(ELSE_ONNX, "../shared/oracles/opinfo", true, tct_soak ? 600 : 60);
}

/* ---- files ---- */

TEST(weights_go_to_a_file_of_their_own)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 40), w = tc_randn(ctx, 1, TC_F32, 40, 40);
    tc_tensor got, want;
    REQUIRE(tc_eval(w) == TC_OK);
    tc_onnx_export how = {.external = true};
    tc_onnx_model *m = NULL;
    CHECK_MSG(tc_export_onnx(TC_TENSORS(x), TC_TENSORS(tc_matmul(x, w)), &how,
                             io_path("net.onnx")) == TC_OK,
              "%s", tc_error(ctx));
    CHECK_EQ_INT(io_count_files(), 2);
    io_bytes data = io_slurp(io_path("net.onnx.data")), net = io_slurp(io_path("net.onnx"));
    CHECK_EQ_INT(data.n, 40 * 40 * 4);
    CHECK(net.n < 1000);
    CHECK_MSG(tc_onnx_load(ctx, io_path("net.onnx"), NULL, &m) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(m != NULL);
    tc_program *f = NULL;
    float in[80], out[80], expected[80];
    for (int i = 0; i < 80; i++) {
        in[i] = (float)i;
    }
    got = m->outputs[0];
    REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 1), TC_TENSORS(got), NULL, &f) == TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(in, 80)), TC_BUFS(TC_BUF(out, 80))) == TC_OK);
    want = tc_matmul(tc_copy_in(ctx, in, TC_F32, 2, 40), w);
    CHECK(tc_read(want, expected, 80) == TC_OK && !memcmp(out, expected, sizeof(out)));
    free(data.at);
    free(net.at);
    tc_program_free(f);
    tc_onnx_free(m);
    end();
}

TEST(what_has_no_form_is_refused_with_its_place)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4), y = tc_gcd(tc_cast(x, TC_U64), 12);
    CHECK(tc_export_onnx(TC_TENSORS(x), TC_TENSORS(y), NULL, io_path("net.onnx")) ==
          TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "tc_gcd");
    CHECK_HAS(tc_error(ctx), "test_export.c");
    CHECK_EQ_INT(io_count_files(), 0);
    tc_tensor other = tc_input(ctx, "other", TC_F32, 4);
    CHECK(tc_export_onnx(TC_TENSORS(x), TC_TENSORS(tc_add(x, other)), NULL, io_path("net.onnx")) ==
          TC_ERR_UNSUPPORTED);
    CHECK(tc_export_onnx(TC_TENSORS(tc_add(x, 1)), TC_TENSORS(x), NULL, io_path("net.onnx")) ==
          TC_ERR_ARGUMENT);
    CHECK(tc_export_onnx(TC_TENSORS(x), TC_TENSORS(), NULL, io_path("net.onnx")) ==
          TC_ERR_ARGUMENT);
    CHECK(tc_export_onnx(TC_TENSORS(x), TC_TENSORS(tc_add(x, 1)), NULL, NULL) == TC_ERR_ARGUMENT);
    CHECK(tc_export_onnx(TC_TENSORS(x), TC_TENSORS(tc_add(x, 1)), NULL, "/no/such/folder/x.onnx") ==
          TC_ERR_IO);
    end();
}

TEST_MAIN
