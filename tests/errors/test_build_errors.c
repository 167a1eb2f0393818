/* tests/errors/test_build_errors.c - misuse of the calls that record a graph: each gives a poisoned
 * tensor with the right status, and a text that says what was given, what was expected and where.
 * After every one the context and a program compiled before work as ever. */
#include <math.h>

#include "tc.h"
#include "tc_test.h"

#include <limits.h>

static tc_ctx *ctx;
static tc_tensor x, v, s, w5, i64, boolean,
    image; /* [3, 4], [4], [], [5], [4], [4], [1, 4, 6, 6] */

static tc_program *earlier; /* 2 * v */

static void begin(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    x = tc_input(ctx, "x", TC_F32, 3, 4);
    v = tc_input(ctx, "v", TC_F32, 4);
    s = tc_input(ctx, "s", TC_F32);
    w5 = tc_input(ctx, "w5", TC_F32, 5);
    i64 = tc_input(ctx, "i64", TC_I64, 4);
    boolean = tc_input(ctx, "boolean", TC_BOOL, 4);
    image = tc_input(ctx, "image", TC_F32, 1, 4, 6, 6);
    REQUIRE(tc_compile(tc_mul(v, 2), &earlier) == TC_OK);
}

static void check_earlier(int line)
{
    float in[4] = {1, 2, 3, 4}, out[4] = {0, 0, 0, 0};
    tc_status status = tc_run(earlier, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4)));
    CHECK_MSG(status == TC_OK && out[3] == 8, "after line %d: the earlier program fails", line);
}

/* The graph that was there before still works. */
static void end(void)
{
    float one[3] = {1, 2, 3}, got[3];
    CHECK_EQ_INT(tc_read(tc_mul(tc_copy_in(ctx, one, TC_F32, 3), 2), got, 3), TC_OK);
    CHECK(got[2] == 6);
    CHECK_EQ_INT(tc_status_of(tc_add(x, v)), TC_OK);
    CHECK_STR(tc_error(tc_add(x, v)), "");
    tc_ctx_free(ctx);
    check_earlier(0);
    tc_program_free(earlier);
}

/* Whether text begins with this file, the line and the call. Of a macro call on two lines gcc names
 * the last one and clang the first. */
static bool begins_at(const char *text, int line, const char *call)
{
    size_t n = strlen(__FILE__);
    char *rest = NULL, after[100];
    if (strncmp(text, __FILE__, n) != 0 || text[n] != ':') {
        return false;
    }
    long said = strtol(text + n + 1, &rest, 10);
    snprintf(after, sizeof(after), ": %s: ", call);
    return said <= line && said >= line - 2 && !strncmp(rest, after, strlen(after));
}

/* t has this status; its text begins with this file and line, names the call, and holds `part`. */
static void check_poison(int line, tc_tensor t, const char *call, tc_status status,
                         const char *part)
{
    const char *text = tc_error(t);
    CHECK_MSG(tc_status_of(t) == status, "line %d: status %d, expected %d (%s)", line,
              (int)tc_status_of(t), (int)status, text);
    CHECK_MSG(begins_at(text, line, call), "line %d: \"%s\" does not name it and %s", line, text,
              call);
    CHECK_MSG(strstr(text, part) != NULL, "line %d: \"%s\" lacks \"%s\"", line, text, part);
    CHECK_STR(tc_ctx_error(ctx), text);
    CHECK_EQ_INT(tc_rank(t), -1);
    CHECK_EQ_INT(tc_nbytes(t), -1);
    check_earlier(line);
}
#define POISON(call, name, status, part) check_poison(__LINE__, (call), (name), (status), (part))

TEST(shapes_that_do_not_broadcast)
{
    begin();
    POISON(tc_add(x, w5), "tc_add", TC_ERR_SHAPE,
           "shapes [3, 4] and [5] do not broadcast: axis 1 is 4 against 5");
    POISON(tc_mul(w5, x), "tc_mul", TC_ERR_SHAPE, "shapes [5] and [3, 4]");
    POISON(tc_where(boolean, v, w5), "tc_where", TC_ERR_SHAPE, "do not broadcast");
    POISON(tc_where(tc_lt(w5, 0), 1, v), "tc_where", TC_ERR_SHAPE, "[5]");
    POISON(tc_clamp(v, TC_NONE, TC_NONE), "tc_clamp", TC_ERR_ARGUMENT, "neither min nor max");
    POISON(tc_embedding_bag(v, v, TC_NONE, "least", TC_NONE, false, TC_END), "tc_embedding_bag",
           TC_ERR_ARGUMENT, "mode is \"least\"");
    POISON(tc_glu(w5, 0), "tc_glu", TC_ERR_SHAPE, "even size");
    POISON(tc_fft(w5, 0, -1, NULL), "tc_fft", TC_ERR_SHAPE, "expected pairs");
    POISON(tc_rfft(w5, 0, 1, NULL), "tc_rfft", TC_ERR_AXIS, "axis 1 of numbers of 1 axes");
    POISON(tc_rfft(w5, -3, 0, NULL), "tc_rfft", TC_ERR_ARGUMENT, "a transform of -3 points");
    POISON(tc_rfft(w5, 0, 0, "whole"), "tc_rfft", TC_ERR_ARGUMENT, "the norm is \"whole\"");
    POISON(tc_irfft(tc_rfft(w5, 1, 0, NULL), 0, 0, NULL), "tc_irfft", TC_ERR_ARGUMENT, "0 points");
    POISON(tc_popcount(w5), "tc_popcount", TC_ERR_DTYPE, "integer dtype");
    POISON(tc_norm(w5, 2, TC_AXES(3), false), "tc_norm", TC_ERR_AXIS, "axis 3");
    POISON(tc_cross(w5, w5, 0), "tc_cross", TC_ERR_SHAPE, "size 3");
    POISON(tc_group_norm(w5, 2, TC_NONE, TC_NONE, 1e-5), "tc_group_norm", TC_ERR_SHAPE,
           "expected [N, C, ...]");
    POISON(tc_triplet_margin_loss(v, w5, v, 1, 2, 1e-6, false, TC_REDUCE_MEAN),
           "tc_triplet_margin_loss", TC_ERR_SHAPE, "do not broadcast");
    POISON(tc_lerp(v, w5, 0.5), "tc_lerp", TC_ERR_SHAPE, "do not broadcast");
    POISON(tc_threshold(v, TC_NONE, 1), "tc_threshold", TC_ERR_HANDLE, "TC_NONE stands");
    POISON(tc_mse_loss(v, v, (tc_reduction)3), "tc_mse_loss", TC_ERR_ARGUMENT, "reduction is 3");
    end();
}

#define POISON_SHAPES(call, name) POISON(call, name, TC_ERR_SHAPE, shapes)

/* PyTorch 2.15 raises for these shapes in binary_cross_entropy and its logits form, warns in mse,
 * l1, smooth_l1 and huber, and documents one shape for the others. */
TEST(losses_refuse_input_and_target_of_different_shapes)
{
    begin();
    const char *shapes = "has shape [4], target [4, 1]: expected one shape (tc_reshape drops and";
    tc_tensor column = tc_reshape(v, 4, 1), row = tc_reshape(v, 1, 4),
              number = tc_sum(v, TC_ALL, false);
    POISON_SHAPES(tc_mse_loss(v, column, TC_REDUCE_MEAN), "tc_mse_loss");
    POISON_SHAPES(tc_l1_loss(v, column, TC_REDUCE_SUM), "tc_l1_loss");
    POISON_SHAPES(tc_smooth_l1_loss(v, column, 1, TC_REDUCE_MEAN), "tc_smooth_l1_loss");
    POISON_SHAPES(tc_huber_loss(v, column, 1, TC_REDUCE_NONE), "tc_huber_loss");
    POISON_SHAPES(tc_binary_cross_entropy(v, column, TC_NONE, TC_REDUCE_MEAN),
                  "tc_binary_cross_entropy");
    POISON_SHAPES(tc_binary_cross_entropy_with_logits(v, column, TC_NONE, TC_NONE, TC_REDUCE_MEAN),
                  "tc_binary_cross_entropy_with_logits");
    POISON_SHAPES(tc_soft_margin_loss(v, column, TC_REDUCE_MEAN), "tc_soft_margin_loss");
    POISON_SHAPES(tc_hinge_embedding_loss(v, column, 1, TC_REDUCE_MEAN), "tc_hinge_embedding_loss");
    POISON_SHAPES(tc_multilabel_soft_margin_loss(v, column, TC_NONE, TC_REDUCE_MEAN),
                  "tc_multilabel_soft_margin_loss");
    POISON(tc_margin_ranking_loss(v, v, column, 0, TC_REDUCE_MEAN), "tc_margin_ranking_loss",
           TC_ERR_SHAPE, "input1 has shape [4], target [4, 1]: expected one shape");
    POISON(tc_margin_ranking_loss(1, v, column, 0, TC_REDUCE_MEAN), "tc_margin_ranking_loss",
           TC_ERR_SHAPE, "input2 has shape [4], target [4, 1]");
    POISON(tc_mse_loss(column, row, TC_REDUCE_MEAN), "tc_mse_loss", TC_ERR_SHAPE,
           "input has shape [4, 1], target [1, 4]");
    POISON(tc_cosine_embedding_loss(x, x, tc_full(ctx, 1, TC_F32, 3, 1), 0, TC_REDUCE_MEAN),
           "tc_cosine_embedding_loss", TC_ERR_SHAPE, "x1 has shape [3, 4], target [3, 1]");
    /* numbers, 0-d tensors, weights, and the loss that PyTorch lets broadcast */
    tc_tensor weighed = tc_binary_cross_entropy_with_logits(x, x, v, v, TC_REDUCE_NONE);
    CHECK(!tc_status_of(tc_mse_loss(x, 0.5, TC_REDUCE_MEAN)));
    CHECK(!tc_status_of(tc_mse_loss(number, v, TC_REDUCE_MEAN)));
    CHECK(!tc_status_of(tc_smooth_l1_loss(x, x, v, TC_REDUCE_MEAN)));
    CHECK(!tc_status_of(weighed) && tc_size(weighed, 0) == 3 && tc_size(weighed, 1) == 4);
    CHECK(!tc_status_of(tc_gaussian_nll_loss(x, v, v, 0, 1e-6, TC_REDUCE_MEAN)));
    CHECK(!tc_status_of(tc_cosine_embedding_loss(x, x, number, 0, TC_REDUCE_MEAN)));
    end();
}

/* What memory is of is known where its pointer has a type: as for tc_read. */
TEST(memory_of_another_type)
{
    begin();
    float f[2][3][4] = {{{0}}};
    const double d[4] = {1, 2, 3, 4};
    int whole[4] = {1, 2, 3, 4};
    uint16_t halves[4] = {0x3c00, 0, 0, 0};
    unsigned char bytes[8] = {0};
    const int64_t four[1] = {4}, one[1] = {1};
    POISON(tc_copy_in(ctx, whole, TC_F32, 4), "tc_copy_in", TC_ERR_DTYPE,
           "given memory of i32, expected f32 (a void * is memory of any dtype)");
    POISON(tc_copy_in(ctx, f[0][0], TC_F64, 4), "tc_copy_in", TC_ERR_DTYPE,
           "given memory of f32, expected f64");
    POISON(tc_copy_in(ctx, f[0], TC_F64, 6), "tc_copy_in", TC_ERR_DTYPE, "given memory of f32");
    POISON(tc_borrow(ctx, f, TC_F64, 12), "tc_borrow", TC_ERR_DTYPE, "given memory of f32");
    POISON(tc_borrow(ctx, d, TC_F32, 4), "tc_borrow", TC_ERR_DTYPE, "given memory of f64");
    POISON(tc_borrow_strided(ctx, d, TC_I64, 1, four, one), "tc_borrow", TC_ERR_DTYPE,
           "given memory of f64, expected i64");
    POISON(tc_param(ctx, whole, TC_I64, 2), "tc_param", TC_ERR_DTYPE,
           "given memory of i32, expected i64");
    POISON(tc_param(ctx, halves, TC_I16, 4), "tc_param", TC_ERR_DTYPE,
           "given memory of u16, expected i16");
    static const float still[2][3][4] = {{{0}}};
    static const char text[2][3][4] = {{{0}}};
    CHECK(TC_BUF(f, 24).dtype == TC_F32 && !TC_BUF(f, 24).is_const);
    CHECK(TC_BUF(still, 24).dtype == TC_F32 && TC_BUF(still, 24).is_const);
    CHECK(TC_BUF(text, 24).dtype == -1 && TC_BUF(text, 24).is_const);
    CHECK_EQ_INT(tc_status_of(tc_copy_in(ctx, f, TC_F32, 2, 3, 4)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_copy_in(ctx, d, TC_F64, 4)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_param(ctx, NULL, TC_F32, 4)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_param(ctx, halves, TC_F16, 4)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_param(ctx, halves, TC_BF16, 4)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_copy_in(ctx, bytes, TC_F64, 1)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_copy_in(ctx, (const char *)bytes, TC_F32, 2)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_copy_in(ctx, (const void *)f, TC_F64, 12)), TC_OK);
    end();
}

TEST(axes_out_of_range)
{
    begin();
    POISON(tc_sum(x, TC_AXES(2), 0), "tc_sum", TC_ERR_AXIS,
           "axis 2 is out of range for rank 2: allowed are -2 to 1");
    POISON(tc_max(x, TC_AXES(-3), 0), "tc_max", TC_ERR_AXIS, "axis -3");
    POISON(tc_mean(s, TC_AXES(1), 0), "tc_mean", TC_ERR_AXIS, "axis 1 is out of range for rank 0");
    POISON(tc_sum(x, TC_AXES(0, -2), 0), "tc_sum", TC_ERR_AXIS, "twice");
    POISON(tc_argmax(x, 2, 0), "tc_argmax", TC_ERR_AXIS, "axis 2");
    POISON(tc_var(x, TC_AXES(0), NAN, 0), "tc_var", TC_ERR_ARGUMENT, "a finite number");
    POISON(tc_var(x, TC_AXES(2), 1, 0), "tc_var", TC_ERR_AXIS, "axis 2");
    POISON(tc_std(x, TC_AXES(1, 1), 1, 0), "tc_std", TC_ERR_AXIS, "given twice");
    tc_tensor var, mean;
    POISON((tc_var_mean(x, TC_AXES(-3), 1, 0, &var, &mean), var), "tc_var_mean", TC_ERR_AXIS,
           "axis -3");
    POISON((tc_var_mean(x, TC_AXES(-3), 1, 0, &var, &mean), mean), "tc_var_mean", TC_ERR_AXIS,
           "axis -3");
    POISON(tc_cumsum(x, 2), "tc_cumsum", TC_ERR_AXIS, "axis 2");
    tc_tensor first, at, one = tc_full(ctx, 1, TC_F32);
    POISON((tc_topk(x, 1, 5, true, &first, &at), first), "tc_topk", TC_ERR_ARGUMENT,
           "k is 5: expected 0 to 4, the size of axis 1 of [3, 4]");
    POISON((tc_topk(x, 1, -1, true, &first, &at), at), "tc_topk", TC_ERR_ARGUMENT, "k is -1");
    POISON((tc_topk(x, 2, 1, true, &first, &at), at), "tc_topk", TC_ERR_AXIS, "axis 2");
    POISON((tc_topk(one, 0, 0, true, &first, &at), at), "tc_topk", TC_ERR_ARGUMENT, "1 to 1");
    POISON((tc_sort(x, 2, true, &first, NULL), first), "tc_sort", TC_ERR_AXIS, "axis 2");
    POISON(tc_argsort(x, 2, true), "tc_argsort", TC_ERR_AXIS, "axis 2");
    POISON(tc_softmax(x, -3), "tc_softmax", TC_ERR_AXIS, "axis -3");
    POISON(tc_log_softmax(x, 2), "tc_log_softmax", TC_ERR_AXIS, "axis 2");
    POISON(tc_transpose(x, 0, 2), "tc_transpose", TC_ERR_AXIS, "axis 2");
    POISON(tc_permute(x, 0), "tc_permute", TC_ERR_AXIS, "1 axes are given for shape [3, 4]");
    POISON(tc_permute(x, 1, 1), "tc_permute", TC_ERR_AXIS, "axis 1 is given twice");
    POISON(tc_permute(x, 0, 1ll << 40), "tc_permute", TC_ERR_AXIS, "out of range");
    POISON(tc_squeeze(x, 2), "tc_squeeze", TC_ERR_AXIS, "axis 2");
    POISON(tc_unsqueeze(x, 3), "tc_unsqueeze", TC_ERR_AXIS, "axis 3");
    POISON(tc_slice(x, 2, 0, 1, 1), "tc_slice", TC_ERR_AXIS, "axis 2");
    POISON(tc_slice(s, 0, 0, 1, 1), "tc_slice", TC_ERR_AXIS, "0-d");
    POISON(tc_flip(x, 2), "tc_flip", TC_ERR_AXIS, "axis 2");
    POISON(tc_pad(x, -3, 1, 1, 0), "tc_pad", TC_ERR_AXIS, "axis -3");
    POISON(tc_cat(TC_TENSORS(x, x), 2), "tc_cat", TC_ERR_AXIS, "axis 2");
    POISON(tc_gather(x, 2, i64), "tc_gather", TC_ERR_AXIS, "axis 2");
    POISON(tc_index_select(x, 2, i64), "tc_index_select", TC_ERR_AXIS, "axis 2");
    POISON(tc_scatter_add(x, 2, i64, x), "tc_scatter_add", TC_ERR_AXIS, "axis 2");
    POISON(tc_index_add(x, -3, i64, x), "tc_index_add", TC_ERR_AXIS, "axis -3");
    POISON(tc_layer_norm(x, TC_AXES(2), TC_NONE, TC_NONE, 0), "tc_layer_norm", TC_ERR_AXIS,
           "axis 2");
    POISON(tc_layer_norm(x, TC_AXES(), TC_NONE, TC_NONE, 0), "tc_layer_norm", TC_ERR_AXIS,
           "no axes");
    end();
}

TEST(sizes_that_do_not_fit)
{
    begin();
    POISON(tc_reshape(x, 5, -1), "tc_reshape", TC_ERR_SHAPE,
           "12 elements of shape [3, 4] do not fit");
    POISON(tc_reshape(x, -1, -1), "tc_reshape", TC_ERR_SHAPE, "only one size may be -1");
    POISON(tc_reshape(x, 0, -1), "tc_reshape", TC_ERR_SHAPE, "[0, -1]");
    POISON(tc_reshape(x, -3, -4), "tc_reshape", TC_ERR_SHAPE, "negative");
    POISON(tc_reshape(x, 1ll << 40, 1ll << 40), "tc_reshape", TC_ERR_LIMIT, "more elements");
    POISON(tc_expand(x, 2, 4), "tc_expand", TC_ERR_SHAPE, "axis 0 is 3");
    POISON(tc_expand(x, 4), "tc_expand", TC_ERR_SHAPE, "more axes");
    POISON(tc_expand(s, 1ll << 40, 1ll << 40), "tc_expand", TC_ERR_LIMIT, "more elements");
    POISON(tc_expand(s, -5), "tc_expand", TC_ERR_SHAPE, "negative");
    POISON(tc_pad(x, 1, -3, -2, 0), "tc_pad", TC_ERR_SHAPE, "by -3 before and -2 after");
    POISON(tc_pad(x, 1, INT64_MAX, 1, 0), "tc_pad", TC_ERR_LIMIT, "axis 1");
    POISON(tc_pad(x, 1, 1, 1, v), "tc_pad", TC_ERR_SHAPE, "pad value has shape [4]");
    POISON(tc_cat(TC_TENSORS(x, v), 0), "tc_cat", TC_ERR_SHAPE, "operand 2 of shape [4]");
    POISON(tc_cat(TC_TENSORS(x, tc_input(ctx, "", TC_F32, 3, 5)), 0), "tc_cat", TC_ERR_SHAPE,
           "[3, 5]");
    POISON(tc_cat(TC_TENSORS(s, s), 0), "tc_cat", TC_ERR_SHAPE, "0-d");
    POISON(tc_gather(x, 1, i64), "tc_gather", TC_ERR_SHAPE, "equal ranks");
    POISON(tc_scatter(v, 0, i64, x), "tc_scatter", TC_ERR_SHAPE, "equal ranks");
    POISON(tc_scatter_max(w5, 0, i64, tc_input(ctx, "", TC_F32, 3)), "tc_scatter_max", TC_ERR_SHAPE,
           "index of shape [4] does not fit x of shape [5] and src of shape [3]");
    POISON(tc_scatter_add(tc_input(ctx, "", TC_F32, 0), 0, i64, v), "tc_scatter_add", TC_ERR_SHAPE,
           "size 0");
    POISON(tc_index_add(x, 0, i64, x), "tc_index_add", TC_ERR_SHAPE, "along axis 0 as long as");
    POISON(tc_gather(x, 1, tc_input(ctx, "", TC_I64, 4, 1)), "tc_gather", TC_ERR_SHAPE, "[4, 1]");
    POISON(tc_index_select(x, 0, tc_input(ctx, "", TC_I64, 2, 2)), "tc_index_select", TC_ERR_SHAPE,
           "one axis");
    POISON(tc_max(tc_input(ctx, "", TC_F32, 0, 3), TC_AXES(0), 0), "tc_max", TC_ERR_SHAPE,
           "size 0");
    POISON(tc_argmin(tc_input(ctx, "", TC_F32, 3, 0), 1, 0), "tc_argmin", TC_ERR_SHAPE, "size 0");
    end();
}

TEST(shapes_as_they_were_given)
{
    begin();
    tc_tensor q = tc_input(ctx, "q", TC_F32, 2, 6, 10, 8),
              k = tc_input(ctx, "k", TC_F32, 2, 4, 12, 8);
    POISON(tc_scaled_dot_product_attention(q, k, k, TC_NONE, false, 0),
           "tc_scaled_dot_product_attention", TC_ERR_SHAPE,
           "query has shape [2, 6, 10, 8], key [2, 4, 12, 8]");
    POISON(tc_stack(TC_TENSORS(v, v, w5), 0), "tc_stack", TC_ERR_SHAPE,
           "operand 3 has shape [5] and operand 1 [4]: expected one shape");
    POISON(tc_conv2d(tc_input(ctx, "", TC_F32, 8, 3, 16), tc_input(ctx, "", TC_F32, 4, 3, 3, 3),
                     TC_NONE, NULL),
           "tc_conv2d", TC_ERR_SHAPE,
           "x of shape [8, 3, 16], one image without an axis N, has 8 channels in 1 groups");
    end();
}

TEST(contractions_that_do_not_fit)
{
    begin();
    POISON(tc_matmul(x, x), "tc_matmul", TC_ERR_SHAPE,
           "axis 1 of the first is 4, axis 0 of the second is 3");
    POISON(tc_matmul(s, x), "tc_matmul", TC_ERR_SHAPE, "first operand is 0-d");
    POISON(tc_matmul(x, s), "tc_matmul", TC_ERR_SHAPE, "second operand is 0-d");
    POISON(tc_matmul(tc_input(ctx, "", TC_F32, 2, 3, 4), tc_input(ctx, "", TC_F32, 5, 4, 3)),
           "tc_matmul", TC_ERR_SHAPE, "axis 0 of the first is 2, axis 0 of the second is 5");
    POISON(tc_matmul(boolean, boolean), "tc_matmul", TC_ERR_DTYPE, "bool");
    POISON(tc_bmm(x, x), "tc_bmm", TC_ERR_SHAPE, "expected [n, i, k] and [n, k, j]");
    POISON(tc_einsum("ijk->i", TC_TENSORS(x)), "tc_einsum", TC_ERR_SHAPE, "operand 1 has rank 2");
    POISON(tc_einsum("ij->k", TC_TENSORS(x)), "tc_einsum", TC_ERR_ARGUMENT, "no operand");
    POISON(tc_einsum("ij->ii", TC_TENSORS(x)), "tc_einsum", TC_ERR_ARGUMENT, "twice");
    POISON(tc_einsum("ij,jk", TC_TENSORS(x)), "tc_einsum", TC_ERR_ARGUMENT, "more operands");
    POISON(tc_einsum("ij", TC_TENSORS(x, x)), "tc_einsum", TC_ERR_ARGUMENT,
           "names 1 operands: given 2");
    POISON(tc_einsum("i$->i", TC_TENSORS(x)), "tc_einsum", TC_ERR_ARGUMENT, "at character 2");
    POISON(tc_einsum("ij-i", TC_TENSORS(x)), "tc_einsum", TC_ERR_ARGUMENT, "->");
    POISON(tc_einsum("ij->i,j", TC_TENSORS(x)), "tc_einsum", TC_ERR_ARGUMENT, "character 6");
    POISON(tc_einsum("ii->i", TC_TENSORS(x)), "tc_einsum", TC_ERR_SHAPE, "repeated label");
    POISON(tc_einsum("ij,jk->ik", TC_TENSORS(x, x)), "tc_einsum", TC_ERR_SHAPE,
           "axis 1 of the first is 4");
    POISON(tc_einsum(NULL, TC_TENSORS(x)), "tc_einsum", TC_ERR_ARGUMENT, "NULL");
    end();
}

TEST(images_that_do_not_fit)
{
    begin();
    tc_tensor w = tc_input(ctx, "w", TC_F32, 6, 4, 3, 3), b = tc_input(ctx, "b", TC_F32, 6);
    POISON(tc_conv2d(x, w, TC_NONE, NULL), "tc_conv2d", TC_ERR_SHAPE, "x has shape [3, 4]");
    POISON(tc_conv2d(image, x, TC_NONE, NULL), "tc_conv2d", TC_ERR_SHAPE,
           "weight has shape [3, 4]");
    POISON(tc_conv2d(image, w, w5, NULL), "tc_conv2d", TC_ERR_SHAPE,
           "bias has shape [5]: expected [6]");
    POISON(tc_conv2d(image, w, tc_cast(b, TC_F64), NULL), "tc_conv2d", TC_ERR_DTYPE, "one dtype");
    POISON(tc_conv2d(image, w, b, &(tc_conv){.groups = 3}), "tc_conv2d", TC_ERR_ARGUMENT,
           "groups is 3");
    POISON(tc_conv2d(image, w, b, &(tc_conv){.groups = 2}), "tc_conv2d", TC_ERR_SHAPE, "channels");
    POISON(tc_conv2d(image, w, b, &(tc_conv){.groups = -1}), "tc_conv2d", TC_ERR_ARGUMENT,
           "groups");
    POISON(tc_conv2d(image, w, b, &(tc_conv){.stride = {-1, 1}}), "tc_conv2d", TC_ERR_ARGUMENT,
           "stride");
    POISON(tc_conv2d(image, w, b, &(tc_conv){.padding = {0, -1}}), "tc_conv2d", TC_ERR_ARGUMENT,
           "padding");
    POISON(tc_conv2d(image, w, b, &(tc_conv){.dilation = {4, 4}}), "tc_conv2d", TC_ERR_SHAPE,
           "does not fit axis 2 of size 6");
    POISON(tc_max_pool2d(image, NULL), "tc_max_pool2d", TC_ERR_ARGUMENT, "kernel");
    POISON(tc_max_pool2d(x, &(tc_pool){.kernel = {2, 2}}), "tc_max_pool2d", TC_ERR_SHAPE, "[3, 4]");
    POISON(tc_max_pool2d(image, &(tc_pool){.kernel = {9, 9}}), "tc_max_pool2d", TC_ERR_SHAPE, "9");
    POISON(tc_max_pool2d(image, &(tc_pool){.kernel = {2, 2}, .padding = {2, 0}}), "tc_max_pool2d",
           TC_ERR_ARGUMENT, "half");
    POISON(tc_max_pool2d(tc_input(ctx, "", TC_F32, 2, 1, 10, 0), &(tc_pool){.kernel = {1, 1}}),
           "tc_max_pool2d", TC_ERR_SHAPE, "empty image");
    const int64_t sizes[2] = {4, 4};
    tc_tensor values, indices;
    POISON(tc_conv1d(image, w, TC_NONE, NULL), "tc_conv1d", TC_ERR_SHAPE, "[N, C, L] or [C, L]");
    POISON(tc_conv_transpose2d(image, w, TC_NONE, NULL), "tc_conv_transpose2d", TC_ERR_SHAPE,
           "reads 6 channels: x of shape [1, 4, 6, 6] has 4");
    POISON(tc_conv_transpose2d(tc_input(ctx, "", TC_F32, 6, 4, 4), w, TC_NONE,
                               &(tc_conv){.output_padding = {1, 0}}),
           "tc_conv_transpose2d", TC_ERR_ARGUMENT, "output padding is 1");
    POISON(tc_avg_pool2d(image, &(tc_pool){.kernel = {2, 2}, .dilation = {2, 1}}), "tc_avg_pool2d",
           TC_ERR_ARGUMENT, "dilation");
    POISON(tc_adaptive_avg_pool2d(image, 1, 2, 3), "tc_adaptive_avg_pool2d", TC_ERR_ARGUMENT,
           "3 sizes are given");
    POISON(tc_adaptive_avg_pool2d(image, 2, -3), "tc_adaptive_avg_pool2d", TC_ERR_SHAPE, "-3");
    tc_max_pool3d_with_indices(image, NULL, &values, &indices);
    POISON(indices, "tc_max_pool3d_with_indices", TC_ERR_ARGUMENT, "planes, rows, columns");
    POISON(tc_im2col(image, NULL), "tc_im2col", TC_ERR_ARGUMENT, "kernel");
    POISON(tc_col2im(x, 2, sizes, &(tc_pool){.kernel = {2, 2}}), "tc_col2im", TC_ERR_SHAPE,
           "[N, C * 4, patches]");
    POISON(tc_interpolate(image, &(tc_interpolation){.size = {3, 3}, .mode = "linear"}),
           "tc_interpolate", TC_ERR_ARGUMENT, "\"linear\" for images of 2 axes");
    POISON(tc_interpolate(image, &(tc_interpolation){.size = {3}}), "tc_interpolate",
           TC_ERR_ARGUMENT, "axis 1 of the image has size 0 and factor 0");
    POISON(tc_grid_sample(image, image, NULL, NULL, false), "tc_grid_sample", TC_ERR_SHAPE, "grid");
    POISON(tc_grid_sample(image, tc_input(ctx, "", TC_F32, 1, 2, 2, 2), "cubic", NULL, false),
           "tc_grid_sample", TC_ERR_ARGUMENT, "\"bicubic\"");
    end();
}

TEST(matrices_and_sets_that_do_not_fit)
{
    begin();
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2, 3, 3), b = tc_input(ctx, "b", TC_F32, 4, 3, 1);
    tc_tensor values, count;
    POISON(tc_inv(x), "tc_inv", TC_ERR_SHAPE, "square matrices");
    POISON(tc_det(tc_cast(a, TC_I32)), "tc_det", TC_ERR_DTYPE, "floats");
    POISON(tc_cholesky(tc_input(ctx, "", TC_F32, 5000, 5000), false), "tc_cholesky", TC_ERR_LIMIT,
           "at most 4096");
    POISON(tc_solve(a, w5), "tc_solve", TC_ERR_SHAPE, "[..., n, k]");
    POISON(tc_solve(a, b), "tc_solve", TC_ERR_SHAPE, "shape");
    POISON(tc_solve_triangular(a, b, false, false, false), "tc_solve_triangular", TC_ERR_SHAPE,
           "[..., k, n]");
    tc_kthvalue(x, 5, 1, false, &values, &count);
    POISON(count, "tc_kthvalue", TC_ERR_ARGUMENT, "k is 5");
    POISON(tc_histc(x, 0, 0, 1), "tc_histc", TC_ERR_ARGUMENT, "0 bins");
    POISON(tc_bincount(x, TC_NONE, 4), "tc_bincount", TC_ERR_DTYPE, "integer");
    tc_unique(x, 0, -1, &values, NULL, NULL, &count);
    POISON(values, "tc_unique", TC_ERR_SHAPE, "-1");
    end();
}

TEST(arrangements_that_do_not_fit)
{
    begin();
    tc_tensor i = tc_input(ctx, "i", TC_I64, 2), mask = tc_input(ctx, "m", TC_BOOL, 3, 4);
    tc_tensor values, count;
    POISON(tc_rot90(x, 1, 0, -2), "tc_rot90", TC_ERR_AXIS, "are the same");
    POISON(tc_pad_mode(x, 1, 4, 0, "reflect"), "tc_pad_mode", TC_ERR_SHAPE, "does not fit axis 1");
    POISON(tc_pad_mode(x, 1, 4, 0, "mirror"), "tc_pad_mode", TC_ERR_ARGUMENT, "\"circular\"");
    POISON(tc_pixel_shuffle(image, 3), "tc_pixel_shuffle", TC_ERR_SHAPE, "factor 3");
    POISON(tc_diagonal(x, 0, 1, 1), "tc_diagonal", TC_ERR_AXIS, "two axes");
    POISON(tc_diag(image, 0), "tc_diag", TC_ERR_SHAPE, "[1, 4, 6, 6]");
    POISON(tc_tril(w5, 0), "tc_tril", TC_ERR_SHAPE, "[5]");
    POISON(tc_tril_indices(ctx, -1, 2, 0), "tc_tril_indices", TC_ERR_ARGUMENT, "-1 rows");
    POISON(tc_linspace(ctx, 0, 1, -2, TC_F32), "tc_linspace", TC_ERR_SHAPE, "-2");
    POISON(tc_slice_scatter(x, w5, 0, 0, 1, 1), "tc_slice_scatter", TC_ERR_SHAPE,
           "that of the slice");
    POISON(tc_select_scatter(x, w5, 0, 3), "tc_select_scatter", TC_ERR_SHAPE, "element 3");
    POISON(tc_repeat_interleave(x, i, 1, 5), "tc_repeat_interleave", TC_ERR_SHAPE, "repeats");
    POISON(tc_repeat_interleave(x, 1.5, 1, 5), "tc_repeat_interleave", TC_ERR_DTYPE, "integer");
    POISON(tc_index(x, TC_TENSORS(i, i, i)), "tc_index", TC_ERR_SHAPE, "3 indices");
    POISON(tc_index(x, TC_TENSORS(x)), "tc_index", TC_ERR_DTYPE, "integer");
    POISON(tc_index_put(x, TC_TENSORS(i), tc_cast(x, TC_F64), false), "tc_index_put", TC_ERR_DTYPE,
           "one dtype");
    POISON(tc_index_fill(x, 1, i, w5), "tc_index_fill", TC_ERR_SHAPE, "a number");
    POISON(tc_masked_scatter(x, x, x), "tc_masked_scatter", TC_ERR_DTYPE, "expected bool");
    POISON(tc_searchsorted(x, w5, false), "tc_searchsorted", TC_ERR_SHAPE, "sorted list");
    tc_masked_select(x, mask, -1, &values, &count);
    POISON(values, "tc_masked_select", TC_ERR_SHAPE, "-1");
    end();
}

/* As NumPy 2 has it: a number takes the tensors' dtype, or is refused. */
TEST(numbers_that_a_dtype_does_not_hold)
{
    begin();
    tc_tensor u8 = tc_input(ctx, "u8", TC_U8, 4), i8 = tc_input(ctx, "i8", TC_I8, 4);
    POISON(tc_add(u8, 1000), "tc_add", TC_ERR_DTYPE,
           "operand 2: given 1000, expected a number that u8 holds, 0 to 255");
    POISON(tc_sub(-1, u8), "tc_sub", TC_ERR_DTYPE, "operand 1: given -1, expected");
    POISON(tc_mul(i8, 128), "tc_mul", TC_ERR_DTYPE, "i8 holds, -128 to 127");
    POISON(tc_add(i64, 1ull << 63), "tc_add", TC_ERR_DTYPE, "given 9223372036854775808, expected");
    POISON(tc_where(boolean, u8, 256), "tc_where", TC_ERR_DTYPE, "operand 3: given 256");
    POISON(tc_full(ctx, -1, TC_U16, 2), "tc_full", TC_ERR_DTYPE, "u16 holds, 0 to 65535");
    POISON(tc_pad(u8, 0, 1, 1, 300), "tc_pad", TC_ERR_DTYPE, "the pad value: given 300");
    tc_tensor i32 = tc_input(ctx, "i32", TC_I32, 4);
    POISON(tc_full(ctx, NAN, TC_I32, 2), "tc_full", TC_ERR_DTYPE, "the value: given nan, expected");
    POISON(tc_full(ctx, INFINITY, TC_I64, 2), "tc_full", TC_ERR_DTYPE, "given inf, expected");
    POISON(tc_full(ctx, -1.0, TC_U8, 2), "tc_full", TC_ERR_DTYPE, "given -1, expected");
    POISON(tc_full(ctx, 0x1p63, TC_I64, 2), "tc_full", TC_ERR_DTYPE, "given 9.22337e+18, expected");
    POISON(tc_pad(i32, 0, 1, 1, NAN), "tc_pad", TC_ERR_DTYPE, "the pad value: given nan, expected");
    POISON(tc_pad(i32, 0, 1, 1, -INFINITY), "tc_pad", TC_ERR_DTYPE, "given -inf, expected");
    CHECK_EQ_INT(tc_status_of(tc_full(ctx, -0.5, TC_U8, 2)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_full(ctx, -128.9, TC_I8, 2)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_full(ctx, -0x1p63, TC_I64, 2)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_full(ctx, NAN, TC_BOOL, 2)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_add(u8, 255)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_add(i8, -128)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_add(v, 1ull << 63)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_lt(u8, 1000)), TC_OK); /* exact all the same */
    CHECK_EQ_INT(tc_status_of(tc_full(ctx, UINT64_MAX, TC_U64)), TC_OK);
    CHECK_EQ_INT(tc_status_of(tc_full(ctx, INT64_MIN, TC_I64)), TC_OK);
    end();
}

/* Lists in memory. */
TEST(lists_with_a_count)
{
    begin();
    tc_tensor list[3] = {x, x, x};
    const int axes[2] = {0, 1};
    float in[4] = {1, 2, 3, 4}, out[4];
    tc_buf ins[1] = {TC_BUF(in, 4)};
    CHECK_EQ_INT(tc_size(tc_cat(TC_TENSORS_N(list, 3), 0), 0), 9);
    CHECK_EQ_INT(tc_size(tc_cat(TC_TENSORS(tc_cat(TC_TENSORS_N(list, 2), 0), x), 0), 0), 9);
    CHECK_EQ_INT(tc_rank(tc_sum(x, TC_AXES_N(axes, 2), false)), 0);
    CHECK_EQ_INT(tc_rank(tc_sum(x, TC_AXES_N(axes, 1), false)), 1);
    CHECK_EQ_INT(tc_run(earlier, TC_BUFS_N(ins, 1), TC_BUFS(TC_BUF(out, 4))), TC_OK);
    CHECK(out[3] == 8);
    CHECK_EQ_INT(tc_status_of(tc_cat(TC_TENSORS_N(list, -1), 0)), TC_ERR_ARGUMENT);
    end();
}

/* No size is a dtype, so sizes without one before them are found. */
TEST(dtypes_that_were_forgotten)
{
    float one[4] = {1};
    begin();
    POISON(tc_full(ctx, 1, 3, 4), "tc_full", TC_ERR_DTYPE, "given 3 after the value, which is not");
    POISON(tc_full(ctx, 1, 0, 4), "tc_full", TC_ERR_DTYPE, "given 0 after the value");
    POISON(tc_input(ctx, "n", 12), "tc_input", TC_ERR_DTYPE, "given 12 after the name");
    POISON(tc_borrow(ctx, one, 4), "tc_borrow", TC_ERR_DTYPE, "given 4 after the data");
    POISON(tc_copy_in(ctx, one, 2, 2), "tc_copy_in", TC_ERR_DTYPE, "given 2 after the data");
    POISON(tc_param(ctx, one, 4), "tc_param", TC_ERR_DTYPE, "given 4 after the data");
    POISON(tc_cast(x, (tc_dtype)7), "tc_cast", TC_ERR_DTYPE, "7 is not a dtype");
    POISON(tc_full(ctx, 1, TC_F32, TC_F32), "tc_full", TC_ERR_SHAPE,
           "the size of axis 0 is given as the dtype f32: expected a number");
    POISON(tc_arange(ctx, 0, 4, 1, (tc_dtype)7), "tc_arange", TC_ERR_DTYPE, "expected an integer");
    for (int t = -1; t < 256; t++) {
        CHECK_EQ_INT(tc_status_of(tc_full(ctx, 1, t, 2)), TC_ERR_DTYPE);
    }
    end();
}

TEST(dtypes_that_do_not_fit)
{
    begin();
    POISON(tc_sub(boolean, boolean), "tc_sub", TC_ERR_DTYPE, "bool");
    POISON(tc_neg(boolean), "tc_neg", TC_ERR_DTYPE, "bool");
    POISON(tc_cast(x, (tc_dtype)99), "tc_cast", TC_ERR_DTYPE, "99 is not a dtype");
    POISON(tc_cast(x, (tc_dtype)-1), "tc_cast", TC_ERR_DTYPE, "not a dtype");
    POISON(tc_bitcast(x, (tc_dtype)99), "tc_bitcast", TC_ERR_DTYPE, "99 is not a dtype");
    POISON(tc_bitcast(x, TC_I64), "tc_bitcast", TC_ERR_DTYPE,
           "the bits of f32 (4 bytes) are none of i64 (8 bytes)");
    POISON(tc_bitcast(boolean, TC_U8), "tc_bitcast", TC_ERR_DTYPE, "neither of them bool");
    POISON(tc_gather(v, 0, w5), "tc_gather", TC_ERR_DTYPE, "f32");
    POISON(tc_scatter_add(v, 0, v, v), "tc_scatter_add", TC_ERR_DTYPE, "f32");
    POISON(tc_scatter_min(v, 0, i64, tc_cast(v, TC_F64)), "tc_scatter_min", TC_ERR_DTYPE,
           "x is f32 and src f64");
    POISON(tc_index_select(v, 0, boolean), "tc_index_select", TC_ERR_DTYPE, "bool");
    POISON(tc_cross_entropy(x, tc_input(ctx, "", TC_F32, 3)), "tc_cross_entropy", TC_ERR_DTYPE,
           "f32");
    POISON(tc_cross_entropy(x, i64), "tc_cross_entropy", TC_ERR_SHAPE, "target [4]");
    POISON(tc_cross_entropy(s, i64), "tc_cross_entropy", TC_ERR_SHAPE, "logits have shape []");
    POISON(tc_layer_norm(x, TC_AXES(-1), w5, TC_NONE, 0), "tc_layer_norm", TC_ERR_SHAPE,
           "weight has shape [5]: expected [4]");
    POISON(tc_layer_norm(x, TC_AXES(-1), TC_NONE, w5, 0), "tc_layer_norm", TC_ERR_SHAPE, "bias");
    POISON(tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, v), "tc_layer_norm", TC_ERR_SHAPE,
           "eps");
    end();
}

TEST(leaves_that_cannot_be)
{
    float memory[4] = {0, 0, 0, 0};
    int64_t sizes[2] = {2, 2}, far[2] = {INT64_MAX / 2, 1};
    begin();
    POISON(tc_input(ctx, "x", TC_F32, 3, -1), "tc_input", TC_ERR_SHAPE,
           "size -1 of axis 1 is negative");
    POISON(tc_input(ctx, "x", TC_F32, 1ll << 40, 1ll << 40), "tc_input", TC_ERR_LIMIT,
           "more elements");
    POISON(tc_input(ctx, "x", TC_F32, 0, 1ll << 40, 1ll << 40), "tc_input", TC_ERR_LIMIT, "");
    POISON(tc_input(ctx, "x", 77, 3), "tc_input", TC_ERR_DTYPE,
           "given 77 after the name, which is not a dtype");
    POISON(tc_input(ctx, NULL, TC_F32, 3), "tc_input", TC_ERR_ARGUMENT, "name is NULL");
    POISON(tc_borrow(ctx, NULL, TC_F32, 3), "tc_borrow", TC_ERR_ARGUMENT,
           "NULL: expected 3 elements");
    POISON(tc_copy_in(ctx, NULL, TC_F32, 3), "tc_copy_in", TC_ERR_ARGUMENT, "NULL");
    POISON(tc_copy_in(ctx, memory, TC_F32, -4), "tc_copy_in", TC_ERR_SHAPE, "negative");
    POISON(tc_borrow_strided(ctx, memory, TC_F32, 2, sizes, far), "tc_borrow", TC_ERR_LIMIT,
           "strides");
    POISON(tc_borrow_strided(ctx, memory, TC_F32, 2, NULL, NULL), "tc_borrow", TC_ERR_ARGUMENT,
           "sizes");
    POISON(tc_borrow_strided(ctx, memory, TC_F32, -2, sizes, NULL), "tc_borrow", TC_ERR_ARGUMENT,
           "-2");
    POISON(tc_full(ctx, 1, TC_F32, -1), "tc_full", TC_ERR_SHAPE, "negative");
    POISON(tc_full(ctx, 1, 99, 3), "tc_full", TC_ERR_DTYPE, "dtype");
    POISON(tc_full(ctx, v, TC_F32, 3), "tc_full", TC_ERR_SHAPE, "rank 1");
    POISON(tc_arange(ctx, 0, 10, 0, TC_I64), "tc_arange", TC_ERR_ARGUMENT, "step is 0");
    POISON(tc_arange(ctx, 0, 10, 1, TC_BOOL), "tc_arange", TC_ERR_DTYPE, "integer or float");
    POISON(tc_arange(ctx, 0, INFINITY, 1, TC_F32), "tc_arange", TC_ERR_LIMIT, "too many");
    POISON(tc_arange(ctx, NAN, 1, 1, TC_F32), "tc_arange", TC_ERR_LIMIT, "too many");
    POISON(tc_arange(ctx, s, 1, 1, TC_F32), "tc_arange", TC_ERR_ARGUMENT,
           "given a tensor, expected a number");
    CHECK_EQ_INT(tc_status_of(tc_copy_in(ctx, NULL, TC_F32, 0, 3)), TC_OK);
    CHECK_EQ_INT(tc_touch(x), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(x), "test_build_errors.c:");
    CHECK_HAS(tc_error(x), "tc_touch: expected a tensor of tc_borrow or tc_copy_in: given one");
    end();
}

TEST(handles_that_name_nothing)
{
    tc_tensor zeroed, inner, foreign;
    tc_ctx *other;
    memset(&zeroed, 0, sizeof(zeroed));
    begin();
    REQUIRE(tc_ctx_make(&other, NULL) == TC_OK);
    foreign = tc_input(other, "foreign", TC_F32, 4);
    tc_scope_begin(ctx);
    inner = tc_exp(x);
    tc_scope_end(ctx);
    POISON(tc_exp(inner), "tc_exp", TC_ERR_HANDLE,
           "operand 1: the handle is dead: its scope has ended");
    POISON(tc_add(x, zeroed), "tc_add", TC_ERR_HANDLE, "operand 2: the handle is null");
    POISON(tc_add(zeroed, x), "tc_add", TC_ERR_HANDLE, "operand 1: the handle is null");
    POISON(tc_matmul(x, TC_NONE), "tc_matmul", TC_ERR_HANDLE,
           "TC_NONE stands where a tensor is needed");
    POISON(tc_add(x, foreign), "tc_add", TC_ERR_HANDLE, "operand 2 is foreign");
    POISON(tc_cat(TC_TENSORS(x, zeroed), 0), "tc_cat", TC_ERR_HANDLE,
           "operand 2: the handle is null");
    POISON(tc_cat(TC_TENSORS(zeroed, x), 0), "tc_cat", TC_ERR_HANDLE,
           "operand 1: the handle is null");
    POISON(tc_layer_norm(x, TC_AXES(-1), zeroed, TC_NONE, 0), "tc_layer_norm", TC_ERR_HANDLE,
           "weight");
    POISON(tc_where(1, x, zeroed), "tc_where", TC_ERR_HANDLE, "null");
    tc_ctx_free(other);
    POISON(tc_add(x, foreign), "tc_add", TC_ERR_HANDLE, "context was freed");
    CHECK_EQ_INT(tc_status_of(tc_exp(foreign)), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(tc_exp(foreign)), "context was freed");
    CHECK_HAS(tc_error(tc_exp(tc_exp(zeroed))), "null");
    CHECK_HAS(tc_error(tc_add(1, 2)), "all operands were numbers");
    CHECK_HAS(tc_error(tc_exp(tc_add(1, 2))), "all operands were numbers");
    CHECK_HAS(tc_error(tc_cat(TC_TENSORS(), 0)), "the list of tensors is empty");
    CHECK_HAS(tc_error(tc_input(NULL, "x", TC_F32, 3)), "NULL or freed context");
    CHECK_HAS(tc_error(tc_full(NULL, 1, TC_F32, 3)), "NULL or freed context");
    CHECK_HAS(tc_error(tc_arange(NULL, 0, 1, 1, TC_F32)), "NULL or freed context");
    CHECK_EQ_INT(tc_status_of(tc_keep(zeroed)), TC_ERR_HANDLE);
    tc_tensor unbound = tc_keep(tc_input(ctx, "unbound", TC_F32, 3));
    CHECK_HAS(tc_error(unbound), "the value needs 'unbound', a tc_input placeholder");
    CHECK_EQ_INT(tc_status_of(tc_retain(zeroed)), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_touch(zeroed), TC_ERR_HANDLE);
    end();
}

static void never(const tc_tensor *a, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = a[0];
}

static tc_status no_step(void *user, const tc_tensor *carry, const tc_tensor *a, tc_tensor *next,
                         tc_tensor *y)
{
    (void)user;
    (void)carry;
    (void)a;
    (void)next;
    (void)y;
    return TC_ERR_UNSUPPORTED;
}

static tc_status no_branch(void *user, const tc_tensor *a, tc_tensor *y)
{
    (void)user;
    (void)a;
    (void)y;
    return TC_ERR_UNSUPPORTED;
}

/* What a binding of another language may hand to the functions behind the macros. */
TEST(lists_that_cannot_be)
{
    begin();
    tc_site at = {__FILE__, __LINE__ + 6};
    tc_tensors none = {NULL, 2}, negative = {&x, -3};
    tc_axes no_axes = {NULL, 2, false}, axes_below = {(const int[]){0}, -1, false};
    const int64_t sizes[2] = {4, 3}, f32[1] = {TC_F32};
    tc_tensor g, parts[3];
    check_poison(at.line, tc_reshape_at(x, 2, NULL, at), "tc_reshape", TC_ERR_ARGUMENT,
                 "the sizes: given a list of 2 at NULL");
    check_poison(at.line, tc_reshape_at(tc_full(ctx, 1, TC_F32), -1, sizes, at), "tc_reshape",
                 TC_ERR_ARGUMENT, "given a list of -1");
    check_poison(at.line, tc_reshape_at(x, INT_MIN, sizes, at), "tc_reshape", TC_ERR_ARGUMENT,
                 "given a list of -2147483648");
    check_poison(at.line, tc_expand_at(x, 2, NULL, at), "tc_expand", TC_ERR_ARGUMENT, "at NULL");
    check_poison(at.line, tc_expand_at(x, -1, sizes, at), "tc_expand", TC_ERR_ARGUMENT, "of -1");
    check_poison(at.line, tc_permute_at(x, 2, NULL, at), "tc_permute", TC_ERR_ARGUMENT,
                 "the order: given a list of 2 at NULL");
    check_poison(at.line, tc_permute_at(x, -2, sizes, at), "tc_permute", TC_ERR_ARGUMENT, "of -2");
    check_poison(at.line, tc_sum_at(x, no_axes, false, at), "tc_sum", TC_ERR_ARGUMENT,
                 "the axes: given a list of 2 at NULL");
    check_poison(at.line, tc_sum_at(x, axes_below, false, at), "tc_sum", TC_ERR_ARGUMENT, "of -1");
    check_poison(at.line, tc_mean_at(x, no_axes, false, at), "tc_mean", TC_ERR_ARGUMENT, "at NULL");
    check_poison(at.line, tc_layer_norm_at(x, no_axes, TC_NONE, TC_NONE, TC_ARG(1e-5), at),
                 "tc_layer_norm", TC_ERR_ARGUMENT, "at NULL");
    check_poison(at.line, tc_input_at(ctx, "n", 2, NULL, at), "tc_input", TC_ERR_ARGUMENT,
                 "the dtype is missing after the name");
    check_poison(at.line, tc_input_at(ctx, "n", 0, f32, at), "tc_input", TC_ERR_ARGUMENT,
                 "the dtype is missing");
    check_poison(at.line, tc_full_at(ctx, TC_ARG(1), 2, NULL, at), "tc_full", TC_ERR_ARGUMENT,
                 "the dtype is missing after the value");
    check_poison(at.line, tc_full_at(ctx, TC_ARG(1), -5, f32, at), "tc_full", TC_ERR_ARGUMENT,
                 "the dtype is missing");
    check_poison(at.line, tc_param_at(ctx, &g, 2, NULL, at), "tc_param", TC_ERR_ARGUMENT,
                 "the dtype is missing after the data");
    check_poison(at.line, tc_param_at(ctx, &g, 0, f32, at), "tc_param", TC_ERR_ARGUMENT,
                 "the dtype is missing");
    check_poison(at.line, tc_borrow_at(ctx, &g, TC_F32, 2, NULL, NULL, at), "tc_borrow",
                 TC_ERR_ARGUMENT, "the sizes: given a list of 2 at NULL");
    CHECK_HAS(tc_error(tc_einsum_at("i,i", none, at)), "the list of tensors is empty");
    CHECK_HAS(tc_error(tc_cat_at(none, 0, at)), "the list of tensors is empty");
    CHECK_HAS(tc_error(tc_cat_at(negative, 0, at)), "the list of tensors is empty");
    CHECK_EQ_INT(tc_eval_many(none), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_eval_many(negative), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_grad_at(x, NULL, 2, parts, at), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_grad_at(x, (tc_tensor[]){x, v}, 2, NULL, at), TC_ERR_ARGUMENT);
    parts[0] = x;
    CHECK_EQ_INT(tc_vjp_at(none, none, &x, 1, parts, at), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(parts[0]), "tc_vjp: the results: given a list of 2 at NULL");
    parts[0] = x;
    CHECK_EQ_INT(tc_vmap_at(NULL, NULL, (tc_tensors){&x, 1}, NULL, parts, NULL, 1, at),
                 TC_ERR_ARGUMENT);
    check_poison(at.line, parts[0], "tc_vmap", TC_ERR_ARGUMENT, "given no function");
    CHECK_EQ_INT(tc_vmap_at(never, NULL, none, NULL, parts, NULL, 1, at), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(parts[0]), "the list of tensors is empty");
    for (int i = 0; i < 2; i++) { /* the other list has a context */
        tc_tensors init = i ? none : (tc_tensors){&x, 1}, xs = i ? (tc_tensors){&x, 1} : none;
        CHECK_EQ_INT(tc_scan_at(init, xs, 0, false, no_step, NULL, NULL, parts, 1, at),
                     TC_ERR_ARGUMENT);
        check_poison(at.line, parts[0], "tc_scan", TC_ERR_ARGUMENT, i ? "-1 carries" : "-1 xs");
    }
    CHECK_EQ_INT(tc_while_at(none, 0, NULL, NULL, NULL, parts, at), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_cond_at(tc_full(ctx, 1, TC_BOOL), none, no_branch, no_branch, NULL, parts, 1,
                            at),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_checkpoint_at(none, no_branch, NULL, parts, 1, at), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_barrier_at(none, parts, at), TC_ERR_HANDLE);
    check_poison(at.line, tc_tile_at(x, 2, NULL, at), "tc_tile", TC_ERR_ARGUMENT,
                 "the repeats: given a list of 2 at NULL");
    check_poison(at.line, tc_tile_at(x, -2, sizes, at), "tc_tile", TC_ERR_ARGUMENT, "of -2");
    check_poison(at.line, tc_tensordot_at(x, x, no_axes, axes_below, at), "tc_tensordot",
                 TC_ERR_ARGUMENT, "the axes of a: given a list of 2 at NULL");
    check_poison(at.line, tc_adaptive_avg_pool2d_at(image, 2, NULL, at), "tc_adaptive_avg_pool2d",
                 TC_ERR_ARGUMENT, "2 sizes are given at NULL");
    check_poison(at.line, tc_col2im_at(v, 2, NULL, &(tc_pool){.kernel = {2, 2}}, at), "tc_col2im",
                 TC_ERR_SHAPE, "2 sizes are given at NULL");
    CHECK_HAS(tc_error(tc_stack_at(none, 0, at)), "the list of tensors is empty");
    CHECK_HAS(tc_error(tc_stack_at(negative, 0, at)), "the list of tensors is empty");
    tc_meshgrid_at(none, false, parts, at);
    CHECK_HAS(tc_error(parts[1]), "the list of tensors is empty");
    tc_split_with_sizes_at(x, 2, NULL, 0, parts, at);
    check_poison(at.line, parts[1], "tc_split_with_sizes", TC_ERR_ARGUMENT, "the sizes: given");
    tc_gru_at(image, TC_NONE, none, false, false, &parts[0], &parts[1], at);
    check_poison(at.line, parts[1], "tc_gru", TC_ERR_ARGUMENT, "the weights: given a list of 2");
    tc_meshgrid_at((tc_tensors){&v, 1}, false, NULL, at);
    tc_split_at(x, 1, 0, NULL, 3, at);
    CHECK_HAS(tc_error(ctx), "tc_split: the parts: given a list of 3 at NULL");
    tc_unbind_at(x, 0, NULL, 3, at);
    tc_chunk_at(x, 3, 0, NULL, at);
    CHECK_HAS(tc_error(ctx), "tc_chunk: the parts");
    end();
}

static void nothing(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user, (void)in, (void)n, (void)out;
}

/* Lists without an item, and calls whose text no result holds. */
TEST(lists_without_a_tensor)
{
    begin();
    const tc_tensors none = {NULL, 0};
    tc_custom_op op = {.name = "errors_nothing", .version = 1, .run = nothing};
    tc_tensor g, last, custom = tc_custom(&op, none), cat = tc_cat(none, 0);
    tc_program *f = NULL;
    tc_site at = {__FILE__, __LINE__};
    CHECK_EQ_INT(tc_status_of(cat), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(custom), TC_ERR_ARGUMENT);
    CHECK_STR(tc_error(custom), "the list of tensors is empty: expected at least one");
    CHECK_EQ_INT(tc_scan(none, none, 3, false, no_step, NULL, &last, NULL, 0), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(v), none, NULL, &f), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "tc_compile_fn: given no outputs, expected at least one");
    CHECK_EQ_INT(tc_grad_at(s, NULL, 1, &g, at), TC_ERR_ARGUMENT);
    check_poison(at.line, g, "tc_grad", TC_ERR_ARGUMENT,
                 "the parameters: given a list of 1 at NULL");
    CHECK_EQ_INT(tc_grad_at(s, &s, 1, NULL, at), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "tc_grad: the results: given a list of 1 at NULL");
    CHECK_EQ_INT(tc_vjp_at((tc_tensors){&s, 1}, (tc_tensors){NULL, 1}, &s, 1, &g, at),
                 TC_ERR_ARGUMENT);
    check_poison(at.line, g, "tc_vjp", TC_ERR_ARGUMENT, "the cotangents: given a list of 1");
    end();
}

TEST(writes_to_what_is_no_parameter)
{
    begin();
    float four[4] = {0};
    tc_tensor sum = tc_add(v, 1);
    CHECK_EQ_INT(tc_param_write(sum, four, 4), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(sum),
              "tc_param_write: expected a parameter (tc_param): given one of tc_add");
    CHECK_STR(tc_error(sum), tc_error(ctx));
    CHECK_STR(tc_error(v), "");
    end();
}

/* What calls that are made of others refuse in their own name. */
TEST(calls_made_of_others)
{
    begin();
    tc_tensor empty = tc_input(ctx, "empty", TC_F32, 3, 0), got[3];
    tc_tensor floats = tc_input(ctx, "floats", TC_F32, 2, 3);
    float one;
    POISON(tc_embedding_bag(floats, x, TC_NONE, "sum", TC_NONE, false, TC_END), "tc_embedding_bag",
           TC_ERR_DTYPE, "the index has dtype f32");
    POISON(tc_coo_matmul(i64, i64, w5, 3, x), "tc_coo_matmul", TC_ERR_SHAPE, "5 values");
    POISON(tc_csr_matmul(i64, i64, w5, x), "tc_csr_matmul", TC_ERR_SHAPE, "4 columns");
    POISON(tc_csr_matmul(i64, v, v, x), "tc_csr_matmul", TC_ERR_DTYPE, "the index has dtype f32");
    POISON(tc_one_hot(i64, -1), "tc_one_hot", TC_ERR_ARGUMENT, "-1 classes");
    POISON(tc_histc(v, INT64_MAX, 0, 1), "tc_histc", TC_ERR_LIMIT, "more elements than memory");
    tc_median(empty, 1, false, &got[0], &got[1]);
    CHECK_EQ_INT(tc_status_of(got[0]), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_status_of(got[1]), TC_ERR_SHAPE);
    POISON(tc_ctc_loss(tc_input(ctx, "p", TC_F32, 9, 4, 5), tc_input(ctx, "t", TC_I32, 4, 3), i64,
                       i64, 5, TC_REDUCE_MEAN, false),
           "tc_ctc_loss", TC_ERR_ARGUMENT, "blank is 5: expected one of 5 classes");
    tc_tensor q = tc_full(ctx, 2, TC_I32, 3, 4);
    q = tc_scaled_dot_product_attention(q, q, tc_full(ctx, 3, TC_I32, 3, 4), TC_NONE, false, 0);
    CHECK_EQ_INT(tc_dtype_of(q), TC_F32); /* and its weights are no integers */
    CHECK_EQ_INT(tc_read(tc_max(q, TC_ALL, false), &one, 1), TC_OK);
    CHECK(one == 3);
    tc_tensor steps = tc_input(ctx, "steps", TC_F32, 5, 2, 3);
    tc_tensors weights = TC_TENSORS(tc_input(ctx, "ih", TC_F32, 12, 3),
                                    tc_input(ctx, "hh", TC_F32, 12, 4));
    tc_gru(steps, x, weights, false, false, &got[0], &got[1]);
    POISON(got[0], "tc_gru", TC_ERR_SHAPE,
           "state 1 before the first step has shape [3, 4]: expected [1, 2, 4]");
    tc_gru(steps, tc_exp(tc_cat(TC_TENSORS(), 0)), weights, false, false, &got[0], &got[1]);
    CHECK_HAS(tc_error(got[1]), "the list of tensors is empty");
    end();
}

/* Axes and counts that would take for ever if they were counted up to. */
TEST(far_axes_of_calls_made_of_others)
{
    static const int far[] = {INT_MIN, INT_MIN + 1, -1000000, -3, 2, 1000000, INT_MAX};
    begin();
    for (int i = 0; i < (int)(sizeof(far) / sizeof(far[0])); i++) {
        POISON(tc_trapezoid(x, v, 1, far[i]), "tc_trapezoid", TC_ERR_AXIS, "out of range");
        POISON(tc_quantize(x, v, 0, far[i], TC_I8), "tc_quantize", TC_ERR_AXIS, "out of range");
        POISON(tc_gumbel_softmax(x, 1, true, far[i], 1), "tc_gumbel_softmax", TC_ERR_AXIS,
               "out of range");
        POISON(tc_diff(x, INT64_MAX, far[i], TC_NONE, TC_NONE), "tc_diff", TC_ERR_AXIS,
               "out of range");
    }
    CHECK_EQ_INT(tc_size(tc_diff(x, INT64_MAX, 1, TC_NONE, TC_NONE), 1), 0);
    CHECK_EQ_INT(tc_size(tc_diff(x, 3, 1, TC_NONE, TC_NONE), 1), 1);
    int64_t sizes[41] = {TC_F32};
    for (int i = 1; i < 41; i++) {
        sizes[i] = i == 2 ? 3 : 1;
    }
    tc_tensor deep = tc_input_at(ctx, "deep", 41, sizes, TC_HERE);
    CHECK_EQ_INT(tc_rank(tc_batch_norm(deep, TC_NONE, TC_NONE, TC_NONE, TC_NONE, true, 1e-5)), 40);
    end();
}

TEST(operands_of_no_kind)
{
    static const int kinds[] = {-1, 4, INT_MIN, INT_MAX};
    begin();
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        tc_arg odd = {.kind = kinds[i], .i = 3, .f = 3}, one = TC_ARG(1);
        tc_site at = {__FILE__, __LINE__};
        check_poison(at.line, tc_add_at(TC_ARG(x), odd, at), "tc_add", TC_ERR_ARGUMENT,
                     "operand 2: given a tc_arg of kind");
        check_poison(at.line, tc_where_at(odd, TC_ARG(x), one, at), "tc_where", TC_ERR_ARGUMENT,
                     "operand 1: given a tc_arg of kind");
        check_poison(at.line, tc_pad_at(x, 0, 1, 1, odd, at), "tc_pad", TC_ERR_ARGUMENT,
                     "the pad value: given a tc_arg of kind");
        check_poison(at.line, tc_full_at(ctx, odd, 1, (const int64_t[]){TC_F32}, at), "tc_full",
                     TC_ERR_ARGUMENT, "the value: given a tc_arg of kind");
        check_poison(at.line, tc_arange_at(ctx, one, odd, one, TC_F32, at), "tc_arange",
                     TC_ERR_ARGUMENT, "stop: given a tc_arg of kind");
    }
    end();
}

/* No operand has a live context, so there is none for the numbers either. */
TEST(numbers_next_to_handles_without_a_context)
{
    begin();
    tc_tensor nowhere = tc_input(NULL, "x", TC_F32, 3);
    CHECK_HAS(tc_error(tc_where(1, nowhere, nowhere)), "made on a NULL or freed context");
    CHECK_HAS(tc_error(tc_where(nowhere, 1, 2)), "made on a NULL or freed context");
    CHECK_HAS(tc_error(tc_add(1, nowhere)), "made on a NULL or freed context");
    CHECK_HAS(tc_error(tc_pad(nowhere, 0, 1, 1, 0)), "made on a NULL or freed context");
    CHECK_EQ_INT(tc_status_of(tc_where(1, nowhere, x)), TC_ERR_HANDLE);
    end();
}

TEST(contexts_that_cannot_be)
{
    tc_stats stats;
    begin();
    CHECK_EQ_INT(tc_ctx_make(NULL, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scope_begin(NULL), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_scope_end(NULL), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_scope_end(ctx), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "test_build_errors.c:");
    CHECK_HAS(tc_error(ctx), "tc_scope_end: no scope is open");
    CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    CHECK_EQ_INT(tc_scope_end(ctx), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_stats(ctx, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_stats(NULL, &stats), TC_ERR_HANDLE);
    CHECK_HAS(tc_ctx_error(NULL), "NULL");
    tc_ctx_free(NULL);
    CHECK_STR(tc_status_text(TC_ERR_SHAPE), "shapes do not fit");
    CHECK_STR(tc_status_text((tc_status)1000), "unknown status");
    end();
}

TEST(the_first_cause_wins)
{
    begin();
    tc_tensor bad = tc_add(x, w5);
    check_poison(__LINE__ - 1, bad, "tc_add", TC_ERR_SHAPE, "[5]");
    tc_tensor later = tc_reshape(v, 77);
    CHECK_STR(tc_ctx_error(ctx), tc_error(later)); /* a new failure is the context's last one, */
    tc_tensor worse = tc_sum(tc_matmul(tc_exp(bad), later), TC_AXES(9), 0);
    CHECK_STR(tc_ctx_error(ctx), tc_error(later)); /* what follows from one is none */
    CHECK_STR(tc_error(worse), tc_error(bad));
    CHECK_EQ_INT(tc_status_of(worse), TC_ERR_SHAPE);
    CHECK_STR(tc_error(tc_keep(worse)), tc_error(bad));
    CHECK_STR(tc_error(tc_cat(TC_TENSORS(x, worse), 0)), tc_error(bad));
    tc_tensor second = tc_reshape(x, 7);
    CHECK(strcmp(tc_error(second), tc_error(bad)) != 0);
    CHECK_STR(tc_ctx_error(ctx), tc_error(second)); /* the context's error is the last one */
    CHECK_HAS(tc_error(tc_add(second, bad)), "tc_reshape");
    end();
}

/* More contexts than a first table of them holds, ended in another order. */
TEST(many_contexts_at_once)
{
    enum { N = 200 };
    tc_ctx *all[N];
    tc_tensor first[N];
    for (int i = 0; i < N; i++) {
        tc_options o = {.backend = "interp", .no_disk_cache = true};
        REQUIRE(tc_ctx_make(&all[i], &o) == TC_OK);
        first[i] = tc_full(all[i], i, TC_I32);
    }
    for (int i = 0; i < N; i += 3) {
        tc_ctx_free(all[i]);
    }
    for (int i = 0; i < N; i++) {
        int value = -1;
        CHECK_EQ_INT(tc_read(first[i], &value, 1), i % 3 ? TC_OK : TC_ERR_HANDLE);
        CHECK_EQ_INT(value, i % 3 ? i : -1);
        tc_ctx_free(all[i]);
    }
}

/* A freed context is told from a live one, also once others were made and freed. */
TEST(a_context_after_its_end)
{
    tc_ctx *dead, *next[8];
    tc_stats stats;
    tc_program *f = NULL;
    float out[4];
    begin();
    REQUIRE(tc_ctx_make(&dead, NULL) == TC_OK);
    tc_tensor t = tc_full(dead, 1, TC_F32, 4);
    CHECK_EQ_INT(tc_scope_begin(dead), TC_OK); /* never ended */
    tc_ctx_free(dead);
    for (int i = 0; i < 8; i++) {
        REQUIRE(tc_ctx_make(&next[i], NULL) == TC_OK);
    }
    tc_ctx_free(dead); /* a second time: nothing happens */
    CHECK_EQ_INT(tc_scope_begin(dead), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_scope_end(dead), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_stats(dead, &stats), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(dead), "the context was freed");
    CHECK_EQ_INT(tc_status_of(tc_input(dead, "x", TC_F32, 3)), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_status_of(t), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(t), "its context was freed");
    CHECK_EQ_INT(tc_eval(t), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_read(t, out, 4), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_print(stdout, t), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_touch(t), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_compile(t, &f), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(t), TC_TENSORS(v), NULL, &f), TC_ERR_HANDLE);
    CHECK(!f);
    CHECK_EQ_INT(tc_status_of(tc_keep(t)), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_rank(t), -1);
    for (int i = 0; i < 8; i++) {
        CHECK_EQ_INT(tc_status_of(tc_full(next[i], 1, TC_F32, 4)), TC_OK);
        tc_ctx_free(next[i]);
    }
    for (int i = 0; i < 100; i++) { /* the old handles stay dead, and none ends a new context */
        tc_ctx *again;
        REQUIRE(tc_ctx_make(&again, NULL) == TC_OK);
        CHECK(again != dead);
        tc_full(again, 1, TC_F32, 4);
        tc_ctx_free(dead);
        CHECK_EQ_INT(tc_stats(again, &stats), TC_OK);
        CHECK_EQ_INT(tc_status_of(t), TC_ERR_HANDLE);
        CHECK_EQ_INT(tc_stats(dead, &stats), TC_ERR_HANDLE);
        tc_ctx_free(again);
    }
    end();
}

TEST(a_tensor_after_its_scope)
{
    tc_program *f = NULL;
    float out[4];
    begin();
    CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
    tc_tensor t = tc_full(ctx, 1, TC_F32, 4);
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    CHECK_EQ_INT(tc_eval(t), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_read(t, out, 4), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_print(stdout, t), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_touch(t), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_compile(t, &f), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(t), TC_TENSORS(v), NULL, &f), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(v), TC_TENSORS(v, t), NULL, &f), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(ctx), "dead");
    CHECK_EQ_INT(tc_eval_many(TC_TENSORS(t, v)), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_status_of(tc_keep(t)), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_size(t, 0), -1);
    CHECK_EQ_INT(tc_dtype_of(t), TC_DTYPE_COUNT);
    /* Scopes left open end with the context. */
    for (int i = 0; i < 50; i++) {
        CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
    }
    end();
}

/* ---- values of any size: nothing overflows, and what is refused says why ---- */

static const int64_t extremes[] = {0,
                                   1,
                                   -1,
                                   2,
                                   -2,
                                   3,
                                   5,
                                   1 << 20,
                                   1ll << 31,
                                   -(1ll << 31),
                                   (1ll << 62) - 1,
                                   INT64_MAX - 1,
                                   INT64_MAX,
                                   INT64_MIN + 1,
                                   INT64_MIN};
enum { N_EXTREMES = sizeof(extremes) / sizeof(extremes[0]) };

/* Whatever t is, it is either usable or refused with a text of this file. */
static void check_any(tc_tensor t)
{
    tc_status status = tc_status_of(t);
    bool told = strstr(tc_error(t), "test_build_errors.c:") != NULL;
    CHECK_MSG(status ? told : tc_count(t) >= 0 && tc_nbytes(t) >= 0, "status %d: %s", (int)status,
              tc_error(t));
    CHECK(status != TC_ERR_INTERNAL && status != TC_ERR_MEMORY);
}

static void check_two(int64_t a, int64_t b)
{
    int64_t sizes[2] = {a, b}, one[2] = {1, 1};
    float memory = 0;
    check_any(tc_input(ctx, "", TC_F64, a, b));
    check_any(tc_full(ctx, 1, TC_U8, a, b));
    check_any(tc_reshape(x, a, b));
    check_any(tc_permute(x, a, b));
    check_any(tc_expand(s, a, b));
    check_any(tc_pad(x, 0, a, b, 0));
    check_any(tc_borrow_strided(ctx, &memory, TC_F32, 2, one, sizes));
    check_any(tc_cat(TC_TENSORS(tc_expand(s, a), tc_expand(s, b)), 0));
    check_any(tc_einsum("i,j->ij", TC_TENSORS(tc_expand(s, a), tc_expand(s, b))));
    check_any(tc_arange(ctx, a, b, 1, TC_I64));
    check_any(tc_arange(ctx, a, 1, b, TC_U8));
    check_any(tc_arange(ctx, 0, b, a, TC_F32));
    check_any(tc_arange(ctx, (double)a, (double)b, 0.5, TC_F32));
    check_any(tc_max_pool2d(image, &(tc_pool){.kernel = {a, b}}));
    check_any(tc_max_pool2d(image, &(tc_pool){.kernel = {3, 2}, .stride = {a, b}}));
    check_any(tc_max_pool2d(image, &(tc_pool){.kernel = {3, 2}, .padding = {a, b}}));
    check_any(tc_max_pool2d(
        image,
        &(tc_pool){.kernel = {3, 2}, .stride = {a, 1}, .dilation = {1, b}, .ceil_mode = true}));
    tc_tensor w = tc_expand(s, 2, 4, 2, 2);
    check_any(tc_conv2d(image, w, TC_NONE, &(tc_conv){.stride = {a, b}}));
    check_any(tc_conv2d(image, w, TC_NONE, &(tc_conv){.padding = {a, b}}));
    check_any(tc_conv2d(image, w, TC_NONE, &(tc_conv){.dilation = {a, b}}));
    check_any(tc_conv2d(image, w, TC_NONE, &(tc_conv){.groups = a, .stride = {b, 1}}));
}

TEST(sizes_of_any_value)
{
    begin();
    for (int i = 0; i < N_EXTREMES; i++) {
        tc_scope_begin(ctx);
        for (int j = 0; j < N_EXTREMES; j++) {
            check_two(extremes[i], extremes[j]);
            for (int k = 0; k < N_EXTREMES; k++) {
                check_any(tc_slice(x, 1, extremes[i], extremes[j], extremes[k]));
                check_any(tc_arange(ctx, extremes[i], extremes[j], extremes[k], TC_I32));
            }
        }
        tc_scope_end(ctx);
    }
    check_earlier(__LINE__);
    end();
}

TEST(axes_and_dtypes_of_any_value)
{
    begin();
    for (int i = 0; i < N_EXTREMES; i++) {
        int axis = (int)(uint32_t)extremes[i];
        check_any(tc_sum(x, TC_AXES(axis), 1));
        check_any(tc_mean(x, TC_AXES(axis, 0), 0));
        check_any(tc_argmin(x, axis, 1));
        check_any(tc_cumsum(x, axis));
        check_any(tc_softmax(x, axis));
        check_any(tc_transpose(x, axis, 1));
        check_any(tc_squeeze(x, axis));
        check_any(tc_unsqueeze(x, axis));
        check_any(tc_flip(x, axis));
        check_any(tc_slice(x, axis, 0, TC_END, 1));
        check_any(tc_pad(x, axis, 1, 1, 0));
        check_any(tc_cat(TC_TENSORS(x, x), axis));
        check_any(tc_gather(x, axis, tc_full(ctx, 0, TC_I64, 3, 4)));
        check_any(tc_index_select(x, axis, i64));
        check_any(tc_layer_norm(x, TC_AXES(axis), TC_NONE, TC_NONE, 0));
        check_any(tc_cast(x, (tc_dtype)axis));
        check_any(tc_bitcast(x, (tc_dtype)axis));
        check_any(tc_argsort(x, axis, true));
        tc_tensor taken;
        tc_topk(x, 0, extremes[i], true, &taken, NULL);
        check_any(taken);
        check_any(tc_input(ctx, "", extremes[i], 3));
        check_any(tc_full(ctx, 1, extremes[i], 3));
        check_any(tc_arange(ctx, 0, 3, 1, (tc_dtype)axis));
        CHECK(tc_size(x, axis) >= -1);
    }
    check_earlier(__LINE__);
    end();
}

TEST(errors_of_two_scopes)
{
    begin();
    tc_tensor outer = tc_add(x, w5);
    tc_scope_begin(ctx);
    tc_tensor inner = tc_reshape(x, 7);
    CHECK_EQ_INT(tc_status_of(tc_add(outer, inner)), TC_ERR_SHAPE);
    tc_scope_end(ctx);
    CHECK_HAS(tc_error(inner), "dead");
    CHECK_HAS(tc_error(outer), "tc_add");
    end();
}

TEST_MAIN
