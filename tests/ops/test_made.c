/* tests/ops/test_made.c - calls made of calls, against values that PyTorch 2.11 and plain loops
 * give: orders without NaN, what is most often, elements by strides, grids, smoothed labels, shared
 * heads, draws, scans of states. */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = 1};
    ctx = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void check_values(int line, tc_tensor t, const double *want, int64_t n)
{
    double got[64];
    tc_tensor wide = tc_cast(t, TC_F64);
    REQUIRE(n <= 64);
    if (tc_read(wide, got, n) != TC_OK) {
        CHECK_MSG(false, "line %d: %s", line, tc_error(wide));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        bool same = isnan(want[i]) ? isnan(got[i]) : fabs(got[i] - want[i]) <= 1e-14;
        CHECK_MSG(same, "line %d: element %d is %.17g, not %.17g", line, (int)i, got[i], want[i]);
    }
}
#define VALUES(t, ...)                                                                             \
    check_values(__LINE__, (t), (const double[]){__VA_ARGS__},                                     \
                 (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

static tc_tensor numbers(const double *x, int rank, const int64_t *sizes)
{
    return tc_copy_in_at(ctx, x, TC_F64, rank, sizes, NULL, TC_HERE);
}
#define NUMBERS(rank, sizes, ...) numbers((const double[]){__VA_ARGS__}, (rank), (sizes))
#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

TEST(middles_and_modes)
{
    tc_tensor values, indices;
    begin();
    tc_tensor x = NUMBERS(2, SIZES(2, 6), 3, NAN, 1, 1, 3, 2, NAN, 5, 4, 5, 7, 7);
    tc_nanmedian(x, 1, false, &values, &indices);
    VALUES(values, 2, 5);
    CHECK_EQ_INT(tc_dtype_of(indices), TC_I64);
    VALUES(indices, 5, 3);
    tc_nanmedian(x, 0, true, &values, NULL);
    CHECK_EQ_INT(tc_rank(values), 2);
    VALUES(values, 3, 5, 1, 1, 3, 2);
    tc_nanmedian(NUMBERS(1, SIZES(2), NAN, NAN), -1, false, &values, &indices);
    VALUES(values, NAN);
    VALUES(indices, 0);
    tc_nanmedian(tc_full(ctx, 4, TC_I32), 0, false, &values, &indices);
    VALUES(values, 4);
    tc_mode(x, 1, false, &values, &indices);
    VALUES(values, 1, 5);
    VALUES(indices, 3, 3);
    tc_mode(x, 0, true, &values, NULL);
    VALUES(values, 3, 5, 1, 1, 3, 2);
    tc_mode(tc_full(ctx, 7, TC_F32), 0, false, &values, &indices);
    VALUES(values, 7);
    VALUES(indices, 0);
    tc_mode(tc_full(ctx, 7, TC_F32, 0), 0, false, &values, NULL);
    CHECK_EQ_INT(tc_status_of(values), TC_ERR_SHAPE);
    tc_nanmedian(tc_full(ctx, 7, TC_F32, 0), 0, false, &values, NULL);
    CHECK_EQ_INT(tc_status_of(values), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

TEST(elements_by_strides)
{
    begin();
    tc_tensor x = tc_reshape(tc_arange(ctx, 0, 12, 1, TC_F32), 3, 4);
    VALUES(tc_as_strided(x, 2, SIZES(2, 3), SIZES(1, 4), 2), 2, 6, 10, 3, 7, 11);
    VALUES(tc_as_strided(x, 2, SIZES(2, 2), SIZES(0, -1), 1), 1, 0, 1, 0);
    VALUES(tc_as_strided(x, 0, NULL, NULL, 5), 5);
    CHECK_EQ_INT(tc_size(tc_as_strided(x, 2, SIZES(0, 3), SIZES(9, 9), 0), 1), 3);
    VALUES(tc_op(ctx, "as_strided", TC_TENSORS(x),
                 TC_ATTRS(TC_ATTR_LIST("sizes", 2), TC_ATTR_LIST("strides", 5))), 0, 5);
    tc_tensor bad = tc_as_strided(x, 1, SIZES(4), SIZES(4), 0);
    CHECK(strstr(tc_error(bad), "tc_as_strided: elements 0 to 12 of an x of 12") != NULL);
    bad = tc_as_strided(x, 1, SIZES(4), SIZES(-1), 2);
    CHECK(strstr(tc_error(bad), "elements -1 to 2") != NULL);
    bad = tc_as_strided(x, 1, SIZES(-4), SIZES(1), 0);
    CHECK_EQ_INT(tc_status_of(bad), TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
}

TEST(grids)
{
    tc_tensor grids[2];
    begin();
    tc_tensor a = tc_arange(ctx, 0, 2, 1, TC_F32), b = tc_arange(ctx, 5, 8, 1, TC_F32);
    tc_meshgrid(TC_TENSORS(a, b), false, grids);
    VALUES(grids[0], 0, 0, 0, 1, 1, 1);
    VALUES(grids[1], 5, 6, 7, 5, 6, 7);
    tc_meshgrid(TC_TENSORS(a, b), true, grids);
    CHECK_EQ_INT(tc_size(grids[0], 0), 3);
    VALUES(grids[0], 0, 1, 0, 1, 0, 1);
    VALUES(grids[1], 5, 5, 6, 6, 7, 7);
    tc_meshgrid(TC_TENSORS(a, tc_full(ctx, 1, TC_F32, 2, 2)), false, grids);
    CHECK(strstr(tc_error(grids[0]), "tc_meshgrid: operand 2 has rank 2") != NULL);
    CHECK_EQ_INT(tc_status_of(grids[1]), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

TEST(smoothed_labels)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(2, 3), 1, -2, 0.5, 0, 3, -1);
    tc_tensor w = NUMBERS(1, SIZES(3), 1, 2, 0.5), p = NUMBERS(2, SIZES(2, 3), .2, .3, .5, 1, 0, 0);
    tc_tensor t = tc_sub(2, tc_mul(tc_arange(ctx, 0, 2, 1, TC_I64), 2));
    VALUES(tc_cross_entropy_loss(x, t, w, -100, TC_REDUCE_MEAN, 0.1), 2.4352801423204538);
    VALUES(tc_cross_entropy_loss(x, t, w, -100, TC_REDUCE_NONE, 0.1), 0.7192715779939607,
           2.9336486354867195);
    VALUES(tc_cross_entropy_loss(x, t, w, 0, TC_REDUCE_SUM, 0.1), 0.7192715779939607);
    VALUES(tc_cross_entropy_loss(x, p, w, -100, TC_REDUCE_MEAN, 0.1), 2.7050978400700556);
    VALUES(tc_sub(tc_cross_entropy_loss(x, t, TC_NONE, -100, TC_REDUCE_MEAN, 0),
                  tc_cross_entropy(x, t)), 0);
    tc_tensor bad = tc_cross_entropy_loss(x, t, w, -100, TC_REDUCE_MEAN, 1.5);
    CHECK(strstr(tc_error(bad), "label_smoothing is 1.5") != NULL);
    tc_ctx_free(ctx);
}

/* Heads of key and value repeated are the same. */
TEST(shared_heads)
{
    begin();
    tc_tensor q = tc_randn(ctx, 1, TC_F64, 2, 6, 5, 4), k = tc_randn(ctx, 2, TC_F64, 2, 2, 7, 4);
    tc_tensor v = tc_randn(ctx, 3, TC_F64, 2, 2, 7, 3), many = tc_randn(ctx, 4, TC_F64, 6, 5, 7);
    tc_tensor one = tc_range(many, 0, 0, 1), masks[] = {TC_NONE, many, one, tc_squeeze(one, 0)};
    for (int i = 0; i < 4; i++) {
        tc_tensor own = tc_scaled_dot_product_attention(q, k, v, masks[i], i == 0, 0);
        tc_tensor all = tc_scaled_dot_product_attention(
            q, tc_repeat_interleave(k, 3, 1, 0), tc_repeat_interleave(v, 3, 1, 0), masks[i], i == 0,
            0);
        VALUES(tc_max(tc_abs(tc_sub(own, all)), TC_ALL, false), 0);
        CHECK_EQ_INT(tc_size(own, 1), 6);
    }
    tc_tensor bad = tc_scaled_dot_product_attention(q, tc_randn(ctx, 2, TC_F64, 2, 4, 7, 4), v,
                                                    TC_NONE, false, 0);
    CHECK_EQ_INT(tc_status_of(bad), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

/* Of halves: scores of 30 that were rounded to bf16 would be off by 0.06. Gradients too are as near
 * to those in f64 as their own rounding lets them be, and have their inputs' dtypes. */
TEST(attention_of_halves)
{
    begin();
    for (int half = 0; half < 2; half++) {
        const tc_dtype t = half ? TC_F16 : TC_BF16;
        tc_tensor x[2][4], y[2], grads[2][3];
        for (int i = 0; i < 4; i++) {
            tc_tensor drawn = tc_randn(ctx, 5 + i, TC_F64, 2, 16, 64);
            x[0][i] = tc_cast(i < 2 ? tc_mul(drawn, 2) : drawn, t);
            x[1][i] = tc_cast(x[0][i], TC_F64);
        }
        for (int i = 0; i < 2; i++) {
            y[i] = tc_scaled_dot_product_attention(x[i][0], x[i][1], x[i][2], TC_NONE, half, 0);
            tc_vjp(((tc_tensors){&y[i], 1}), ((tc_tensors){&x[i][3], 1}), x[i], 3, grads[i]);
        }
        CHECK_EQ_INT(tc_dtype_of(y[0]), t);
        tc_tensor off = tc_max(tc_abs(tc_sub(y[0], y[1])), TC_ALL, false);
        VALUES(tc_cast(tc_lt(off, half ? 2e-3 : 1.5e-2), TC_F64), 1);
        for (int i = 0; i < 3; i++) {
            tc_tensor far = tc_max(tc_abs(tc_sub(grads[0][i], grads[1][i])), TC_ALL, false);
            tc_tensor most = tc_max(tc_abs(grads[1][i]), TC_ALL, false);
            CHECK_EQ_INT(tc_dtype_of(grads[0][i]), t);
            VALUES(tc_cast(tc_lt(far, tc_mul(most, half ? 1e-3 : 8e-3)), TC_F64), 1);
        }
    }
    tc_ctx_free(ctx);
}

TEST(bytes_for_floats)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(2, 4), 0.25, 0.75, -200, 3, 1, -1, NAN, 1e30);
    tc_tensor q = tc_quantize(x, 0.5, 3, -1, TC_U8), byte = tc_quantize(x, 0.5, -1, -1, TC_I8);
    CHECK_EQ_INT(tc_dtype_of(q), TC_U8);
    VALUES(q, 3, 5, 0, 9, 5, 1, 0, 255); /* ties go to even ones */
    VALUES(byte, -1, 1, -128, 5, 1, -3, 0, 127);
    VALUES(tc_dequantize(q, 0.5, 3, -1), 0, 1, -1.5, 3, 1, -1, -1.5, 126);
    /* each channel for itself, along either axis */
    tc_tensor scale = NUMBERS(1, SIZES(2), 0.5, 2), zero = tc_cast(tc_mul(scale, 2), TC_I32);
    q = tc_quantize(x, scale, zero, 0, TC_I8);
    VALUES(tc_slice(q, 1, 0, 2, 1), 1, 3, 4, 4);
    VALUES(tc_slice(tc_dequantize(q, scale, zero, 0), 1, 0, 2, 1), 0, 1, 0, 0);
    tc_tensor wide = tc_quantize(tc_slice(x, 1, 0, 2, 1), scale, 0, 1, TC_I8);
    VALUES(wide, 0, 0, 2, 0);
    CHECK_EQ_INT(tc_status_of(tc_quantize(x, 1, 0, -1, TC_I32)), TC_ERR_DTYPE);
    CHECK_EQ_INT(tc_status_of(tc_quantize(byte, 1, 0, -1, TC_I8)), TC_ERR_DTYPE);
    CHECK_EQ_INT(tc_status_of(tc_dequantize(x, 1, 0, -1)), TC_ERR_DTYPE);
    tc_ctx_free(ctx);
}

TEST(products_of_bytes)
{
    enum { M = 3, K = 70, N = 5 };
    begin();
    tc_tensor a = tc_cast(tc_randint(ctx, 1, 0, 256, TC_I32, 2, M, K), TC_U8);
    tc_tensor b = tc_cast(tc_randint(ctx, 2, -128, 128, TC_I32, K, N), TC_I8);
    tc_tensor by_row = NUMBERS(1, SIZES(M), 0.5, 1, 2);
    tc_tensor by_column = NUMBERS(1, SIZES(N), 1, 2, 4, 8, 1);
    tc_tensor got = tc_qmatmul(a, by_row, 128, b, by_column, tc_cast(by_column, TC_I8));
    tc_tensor left = tc_mul(tc_sub(tc_cast(a, TC_F64), 128), tc_unsqueeze(by_row, 1));
    tc_tensor right = tc_mul(tc_sub(tc_cast(b, TC_F64), by_column), by_column);
    double off;
    tc_tensor most = tc_max(tc_abs(tc_sub(got, tc_matmul(left, right))), TC_ALL, false);
    REQUIRE(tc_read(most, &off, 1) == TC_OK);
    CHECK_EQ_INT(tc_rank(got), 3);
    CHECK(off == 0);
    CHECK_EQ_INT(tc_status_of(tc_qmatmul(a, 1, 0, by_row, 1, 0)), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_status_of(tc_qmatmul(a, 1, 0, right, 1, 0)), TC_ERR_DTYPE);
    tc_ctx_free(ctx);
}

TEST(sparse_products)
{
    begin();
    tc_tensor values = NUMBERS(1, SIZES(4), 2, 3, 5, 7);
    tc_tensor dense = NUMBERS(2, SIZES(3, 2), 1, 10, 100, 1000, 4, 40);
    tc_tensor rows = tc_cast(NUMBERS(1, SIZES(4), 2, 0, 2, 2), TC_I32);
    tc_tensor columns = tc_cast(NUMBERS(1, SIZES(4), 0, 1, 2, 0), TC_I64);
    VALUES(tc_coo_matmul(rows, columns, values, 4, dense), 300, 3000, 0, 0, 29, 290, 0, 0);
    tc_tensor starts = tc_cast(NUMBERS(1, SIZES(5), 0, 1, 1, 4, 4), TC_I32);
    VALUES(tc_csr_matmul(starts, columns, values, dense), 2, 20, 0, 0, 327, 3270, 0, 0);
    CHECK_EQ_INT(tc_status_of(tc_csr_matmul(starts, columns, dense, dense)), TC_ERR_SHAPE);
    tc_tensor far = tc_coo_matmul(rows, tc_add(columns, 2), values, 4, dense);
    CHECK_EQ_INT(tc_eval(far), TC_ERR_INDEX);
    VALUES(tc_one_hot(tc_slice(columns, 0, 1, 3, 1), 4), 0, 1, 0, 0, 0, 0, 1, 0);
    tc_tensor word = tc_reshape(columns, 2, 2);
    VALUES(tc_embedding(word, dense), 1, 10, 100, 1000, 4, 40, 1, 10);
    VALUES(tc_linear(dense, tc_full(ctx, 1, TC_F64, 1, 2), tc_full(ctx, 5, TC_F64, 1)), 16, 1105,
           49);
    CHECK_EQ_INT(tc_status_of(tc_one_hot(values, 4)), TC_ERR_DTYPE);
    tc_ctx_free(ctx);
}

/* How often each place is the first: as often as softmax says; hard ones are 0 and 1. */
TEST(noise_of_gumbel)
{
    enum { DRAWS = 4000 };
    static double got[DRAWS * 3];
    int counts[3] = {0};
    begin();
    tc_tensor p = NUMBERS(1, SIZES(3), 1, 3, 4), logits = tc_expand(tc_log(p), DRAWS, 3);
    REQUIRE(tc_read(tc_gumbel_softmax(logits, 0.5, true, -1, 3), got, DRAWS * 3) == TC_OK);
    for (int i = 0; i < DRAWS * 3; i++) {
        CHECK(got[i] == 0 || got[i] == 1);
        counts[i % 3] += got[i] == 1;
    }
    CHECK_EQ_INT(counts[0] + counts[1] + counts[2], DRAWS);
    for (int k = 0; k < 3; k++) {
        const double want = DRAWS * (k ? k + 2 : 1) / 8.0;
        CHECK_MSG(fabs(counts[k] - want) < 4 * sqrt(want), "%d of %g", counts[k], want);
    }
    CHECK_EQ_INT(tc_status_of(tc_gumbel_softmax(logits, 0, true, -1, 3)), TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
}

TEST(draws_in_proportion)
{
    enum { DRAWS = 4000 };
    static int64_t got[2 * DRAWS];
    int counts[2][4] = {{0}};
    begin();
    tc_tensor p = NUMBERS(2, SIZES(2, 4), 1, 0, 3, 4, 0, 2, 2, 0);
    REQUIRE(tc_read(tc_multinomial(p, DRAWS, true, 7), got, 2 * DRAWS) == TC_OK);
    for (int i = 0; i < 2 * DRAWS; i++) {
        REQUIRE(got[i] >= 0 && got[i] < 4);
        counts[i / DRAWS][got[i]]++;
    }
    static const double share[2][4] = {{1. / 8, 0, 3. / 8, 1. / 2}, {0, 1. / 2, 1. / 2, 0}};
    for (int i = 0; i < 8; i++) {
        double want = share[i / 4][i % 4], seen = (double)counts[i / 4][i % 4] / DRAWS;
        CHECK_MSG(want == 0 ? seen == 0 : fabs(seen - want) < 0.03, "place %d: %g of the draws", i,
                  seen);
    }
    /* without replacement: of rows alike the first draw has the shares, and none comes twice */
    tc_tensor rows = tc_expand(tc_range(p, 0, 0, 1), DRAWS, 4);
    REQUIRE(tc_read(tc_multinomial(rows, 2, false, 7), got, 2 * DRAWS) == TC_OK);
    memset(counts, 0, sizeof(counts));
    for (int i = 0; i < DRAWS; i++) {
        CHECK(got[2 * i] != got[2 * i + 1] && got[2 * i] != 1 && got[2 * i + 1] != 1);
        counts[0][got[2 * i]]++;
    }
    for (int i = 0; i < 4; i++) {
        CHECK(fabs((double)counts[0][i] / DRAWS - share[0][i]) < 0.03);
    }
    CHECK_EQ_INT(tc_status_of(tc_multinomial(p, 5, false, 7)), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_multinomial(tc_cast(p, TC_I32), 1, true, 7)), TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
}

TEST(scans_of_states)
{
    begin();
    tc_tensor u = tc_reshape(tc_linspace(ctx, -1, 1, 20, TC_F64), 2, 5, 2);
    tc_tensor delta = tc_reshape(tc_linspace(ctx, 0.1, 0.9, 20, TC_F64), 2, 5, 2);
    tc_tensor a = NUMBERS(2, SIZES(2, 3), -.5, -1, -2, -1.5, -.2, -.7);
    tc_tensor ramp = tc_reshape(tc_arange(ctx, 0, 30, 1, TC_F64), 2, 5, 3);
    VALUES(tc_ssm_scan(u, delta, a, tc_sin(ramp), tc_cos(ramp), NUMBERS(1, SIZES(2), .3, -.6)),
           -0.3076247465758877, 0.5271474828855057, -0.22100285685631474, 0.4365281926787015,
           -0.18723656844199482, 0.2635721424924703, -0.09802862807505065, 0.1998350151245972,
           -0.057274662335537144, 0.004579909376145601, 0.01705752030243996, -0.09062529700979205,
           0.08413808591599536, -0.24507791552387242, 0.155615238189675, -0.3816237399429063,
           0.2205041357078199, -0.538904020471779, 0.28039909572591015, -0.675675470732784);
    CHECK_EQ_INT(tc_status_of(tc_ssm_scan(u, delta, a, u, a, TC_NONE)), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

TEST_MAIN
