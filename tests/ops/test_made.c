/* tests/ops/test_made.c - calls made of calls, against values that PyTorch 2.11 and plain loops
 * give: orders without NaN, what is most often, elements by strides, grids, smoothed labels, shared
 * heads, draws, scans of states, pieces, complex numbers, sequences. */
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
        bool same = isnan(want[i]) ? isnan(got[i])
                                   : got[i] == want[i] || fabs(got[i] - want[i]) <= 1e-14;
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
                 TC_ATTRS(TC_ATTR_LIST("sizes", 2), TC_ATTR_LIST("strides", 5))),
           0, 5);
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
                  tc_cross_entropy(x, t)),
           0);
    /* a target that is ignored does not count, whatever its row and the weight of class 0 are */
    const double inf = (double)INFINITY;
    tc_tensor far = NUMBERS(2, SIZES(2, 2), NAN, 1, 0.5, 0.9), of_0 = NUMBERS(1, SIZES(2), NAN, 2);
    tc_tensor logs = NUMBERS(2, SIZES(2, 2), -inf, NAN, -0.5, -0.9),
              k = tc_arange(ctx, 0, 2, 1, TC_I64);
    VALUES(tc_nll_loss(logs, k, TC_NONE, 0, TC_REDUCE_MEAN), 0.9);
    VALUES(tc_nll_loss(logs, k, of_0, 0, TC_REDUCE_SUM), 1.8);
    VALUES(tc_nll_loss(logs, k, of_0, 0, TC_REDUCE_NONE), 0, 1.8);
    VALUES(tc_cross_entropy_loss(far, k, TC_NONE, 0, TC_REDUCE_MEAN, 0), 0.5130152523999525);
    VALUES(tc_cross_entropy_loss(far, k, TC_NONE, 0, TC_REDUCE_MEAN, 0.1), 0.5330152523999525);
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
        tc_tensor all = tc_scaled_dot_product_attention(q, tc_repeat_interleave(k, 3, 1, 0),
                                                        tc_repeat_interleave(v, 3, 1, 0), masks[i],
                                                        i == 0, 0);
        VALUES(tc_max(tc_abs(tc_sub(own, all)), TC_ALL, false), 0);
        CHECK_EQ_INT(tc_size(own, 1), 6);
    }
    tc_tensor bad = tc_scaled_dot_product_attention(q, tc_randn(ctx, 2, TC_F64, 2, 4, 7, 4), v,
                                                    TC_NONE, false, 0);
    CHECK_EQ_INT(tc_status_of(bad), TC_ERR_SHAPE);
    bad = tc_scaled_dot_product_attention(q, tc_randn(ctx, 2, TC_F64, 2, 2, 7, 3), v, TC_NONE,
                                          false, 0); /* the heads fit, the width does not */
    CHECK_EQ_INT(tc_status_of(bad), TC_ERR_SHAPE);
    tc_tensor deep = many;
    while (tc_rank(deep) < 24) {
        deep = tc_unsqueeze(deep, 0);
    }
    bad = tc_scaled_dot_product_attention(q, k, v, deep, false, 0);
    CHECK_EQ_INT(tc_status_of(bad), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

/* Of halves: scores of 30 that were rounded to bf16 would be off by 0.06. Gradients too are as near
 * to those in f64 as their own rounding lets them be, and have their inputs' dtypes. */
enum { UNSEEN_MOST = 4 * 70 * 150 };

/* Attention of f32 in double, [heads][queries][keys], heads of v shared by `shared`; seen: whether
 * a query sees a key, NULL: bias[query][key] is added. Queries that see no key have rows of 0. */
static void plain_attention(const float *q, const float *k, const float *v, const bool *seen,
                            const float *bias, const int64_t *n, double *y)
{
    enum { D = 8 };
    static double w[UNSEEN_MOST];
    for (int64_t h = 0; h < n[0]; h++) {
        const float *keys = k + h / n[3] * n[2] * D, *values = v + h / n[3] * n[2] * D;
        for (int64_t i = 0; i < n[1]; i++) {
            double most = -INFINITY, sum = 0;
            for (int64_t j = 0; j < n[2]; j++) {
                double s = 0;
                for (int d = 0; d < D; d++) {
                    s += (double)q[(h * n[1] + i) * D + d] * (double)keys[j * D + d];
                }
                s = s / sqrt(D) + (bias ? (double)bias[i * n[2] + j] : 0);
                w[j] = !seen || seen[(h * n[1] + i) * n[2] + j] ? s : -INFINITY;
                most = fmax(most, w[j]);
            }
            for (int64_t j = 0; j < n[2]; j++) {
                w[j] = most == -INFINITY ? 0 : exp(w[j] - most);
                sum += w[j];
            }
            for (int d = 0; d < D; d++) {
                double *to = &y[(h * n[1] + i) * D + d];
                *to = 0;
                for (int64_t j = 0; j < n[2]; j++) {
                    *to += sum > 0 ? w[j] / sum * (double)values[j * D + d] : 0;
                }
            }
        }
    }
}

/* how: 0 a bool mask, 1 a bias of -inf, 2 a bool mask for each head, 3 with shared heads, 4 causal
 * and a bool mask. */
static void check_unseen(tc_ctx *c, int how, int queries, int keys, tc_dtype t)
{
    enum { D = 8 };
    const int heads = 4, shared = how == 3 ? 2 : 4;
    const int64_t n[4] = {heads, queries, keys, heads / shared};
    static float q[UNSEEN_MOST], k[UNSEEN_MOST], v[UNSEEN_MOST], bias[UNSEEN_MOST];
    static float got[UNSEEN_MOST];
    static double want[UNSEEN_MOST];
    static bool seen[UNSEEN_MOST];
    const double bound = t == TC_F32 ? 1e-5 : 5e-3;
    for (int i = 0; i < UNSEEN_MOST; i++) {
        q[i] = (float)tct_random_below(9) / 8 - 0.5f; /* f16 holds it */
        k[i] = (float)tct_random_below(9) / 8 - 0.5f;
        v[i] = (float)tct_random_below(9) / 8 - 0.5f;
    }
    for (int64_t at = 0; at < heads * (int64_t)queries * keys; at++) {
        int64_t row = at / keys % queries, key = at % keys, head = at / keys / queries;
        bool sees = row % 3 != 1 && (at + row) % 4 != 0 && (how != 4 || row > 2 || key > row);
        bool first = head > 0 && how != 2; /* one mask for all heads */
        seen[at] = first ? seen[at - (int64_t)queries * keys] : sees;
        bias[at] = seen[at] ? 0.25f * (float)(key % 3) : -INFINITY;
    }
    tc_tensor x[3] = {tc_cast(tc_copy_in(c, q, TC_F32, heads, queries, D), t),
                      tc_cast(tc_copy_in(c, k, TC_F32, shared, keys, D), t),
                      tc_cast(tc_copy_in(c, v, TC_F32, shared, keys, D), t)};
    tc_tensor mask = how == 1   ? tc_copy_in(c, bias, TC_F32, queries, keys)
                     : how == 2 ? tc_copy_in(c, seen, TC_BOOL, heads, queries, keys)
                                : tc_copy_in(c, seen, TC_BOOL, queries, keys);
    tc_tensor y = tc_scaled_dot_product_attention(x[0], x[1], x[2], mask, how == 4, 0), g[3];
    for (int64_t at = 0; how == 4 && at < heads * (int64_t)queries * keys; at++) {
        seen[at] = seen[at] && at % keys <= at / keys % queries;
    }
    plain_attention(q, k, v, how == 1 ? NULL : seen, how == 1 ? bias : NULL, n, want);
    const int64_t n_y = heads * (int64_t)queries * D;
    CHECK_MSG(!tc_read(tc_cast(y, TC_F32), got, n_y), "%s", tc_error(y));
    int wrong = 0, zeros = 0;
    for (int64_t i = 0; i < n_y; i++) {
        wrong += !(fabs((double)got[i] - want[i]) <= bound);
        zeros += i % D == 0 && want[i] == 0;
    }
    CHECK_MSG(wrong == 0 && zeros >= queries / 3, "mask %d, %d x %d, %s: %d wrong, %d rows of 0",
              how, queries, keys, tci_dtype_get(t)->name, wrong, zeros);
    REQUIRE(!tc_grad(tc_sum(tc_square(tc_cast(y, TC_F32)), TC_ALL, false), x, 3, g));
    for (int i = 0; i < 3; i++) {
        const int64_t count = tc_count(g[i]);
        CHECK_MSG(!tc_read(tc_cast(g[i], TC_F32), got, count), "%s", tc_error(g[i]));
        bool finite = true;
        for (int64_t at = 0; at < count; at++) {
            finite = finite && isfinite(got[at]);
            bool row_is_zero = i == 0 && want[at / D * D] == 0 && want[at / D * D + 1] == 0;
            CHECK(!row_is_zero || got[at] == 0);
        }
        CHECK_MSG(finite, "mask %d, %d x %d: gradient %d is not finite", how, queries, keys, i);
    }
}

TEST(queries_that_see_no_key)
{
    const char *backends[] = {"interp", "cpu"};
    for (int b = 0; b < 2; b++) {
        tc_ctx *c;
        const tc_options o = {.backend = backends[b]};
        if (tc_ctx_make(&c, &o)) {
            continue;
        }
        for (int how = 0; how < 5; how++) {
            check_unseen(c, how, 5, 7, TC_F32);
            if (b == 0 || how < 2) {
                check_unseen(c, how, 70, 150, TC_F32);
            }
        }
        check_unseen(c, 0, 70, 150, TC_F16);
        tc_ctx_free(c);
    }
}

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

/* ---- pieces ---- */

TEST(pieces_along_an_axis)
{
    tc_tensor p[3];
    begin();
    tc_tensor x = tc_reshape(tc_arange(ctx, 0, 10, 1, TC_I32), 2, 5);
    tc_split(x, 2, -1, p, 3);
    VALUES(p[0], 0, 1, 5, 6);
    VALUES(p[2], 4, 9);
    tc_split_with_sizes(x, 3, SIZES(1, 0, 4), 1, p);
    VALUES(p[0], 0, 5);
    CHECK_EQ_INT(tc_size(p[1], 1), 0);
    VALUES(p[2], 1, 2, 3, 4, 6, 7, 8, 9);
    tc_chunk(x, 3, 1, p);
    VALUES(p[1], 2, 3, 7, 8);
    VALUES(p[2], 4, 9);
    tc_chunk(x, 3, 0, p); /* of two rows */
    VALUES(p[1], 5, 6, 7, 8, 9);
    CHECK_EQ_INT(tc_size(p[2], 0), 0);
    tc_unbind(x, 0, p, 2);
    CHECK_EQ_INT(tc_rank(p[1]), 1);
    VALUES(p[1], 5, 6, 7, 8, 9);
    VALUES(tc_select(x, 1, -2), 3, 8);
    tc_split(tc_range(x, 1, 0, 0), 4, 1, p, 1);
    CHECK_EQ_INT(tc_count(p[0]), 0);
    tc_ctx_free(ctx);
}

TEST(pieces_that_do_not_make_up_an_axis)
{
    tc_tensor p[4];
    begin();
    tc_tensor x = tc_reshape(tc_arange(ctx, 0, 10, 1, TC_I32), 2, 5);
    tc_split(x, 2, 1, p, 2);
    CHECK(strstr(tc_error(p[0]), "tc_split: axis 1 has size 5: 2 pieces of 2 do not make") != NULL);
    CHECK_EQ_INT(tc_status_of(p[1]), TC_ERR_ARGUMENT);
    tc_split(x, 2, 1, p, 4);
    CHECK_EQ_INT(tc_status_of(p[3]), TC_ERR_ARGUMENT);
    tc_split(x, 0, 1, p, 1);
    CHECK_EQ_INT(tc_status_of(p[0]), TC_ERR_ARGUMENT);
    tc_split_with_sizes(x, 2, SIZES(6, -1), 1, p);
    CHECK_EQ_INT(tc_status_of(p[1]), TC_ERR_ARGUMENT);
    tc_unbind(x, 1, p, 4);
    CHECK(strstr(tc_error(p[3]), "tc_unbind: axis 1 has size 5: 4 pieces do not") != NULL);
    tc_chunk(x, 2, 2, p);
    CHECK_EQ_INT(tc_status_of(p[1]), TC_ERR_AXIS);
    CHECK(strstr(tc_error(tc_select(x, 0, 2)), "no element 2 of axis 0 of size 2") != NULL);
    CHECK_EQ_INT(tc_status_of(tc_select(x, 0, -3)), TC_ERR_ARGUMENT);
    VALUES(tc_select(x, 0, 0), 0, 1, 2, 3, 4); /* the context is as it was */
    tc_ctx_free(ctx);
}

TEST(pieces_joined)
{
    begin();
    tc_tensor x = tc_arange(ctx, 0, 3, 1, TC_I32), y = tc_add(x, 5);
    VALUES(tc_stack(TC_TENSORS(x, y), 0), 0, 1, 2, 5, 6, 7);
    VALUES(tc_stack(TC_TENSORS(x, y), -1), 0, 5, 1, 6, 2, 7);
    VALUES(tc_tile(tc_stack(TC_TENSORS(x, y), 0), 2), 0, 1, 2, 0, 1, 2, 5, 6, 7, 5, 6, 7);
    VALUES(tc_tile(x, 2, 2), 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2);
    CHECK_EQ_INT(tc_count(tc_tile(x, 4, 0)), 0);
    VALUES(tc_tile(tc_full(ctx, 3, TC_F32), 2), 3, 3);
    CHECK_EQ_INT(tc_status_of(tc_tile(x, -1)), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_stack(TC_TENSORS(x, tc_zeros(ctx, TC_I32, 2)), 0)), TC_ERR_SHAPE);
    VALUES(tc_add(tc_zeros(ctx, TC_F32, 2), tc_ones(ctx, TC_F32, 2)), 1, 1);
    tc_ctx_free(ctx);
}

TEST(products_of_vectors_and_axes)
{
    begin();
    tc_tensor x = tc_arange(ctx, 1, 4, 1, TC_F64), y = tc_arange(ctx, 2, 4, 1, TC_F64);
    tc_tensor a = tc_reshape(tc_arange(ctx, 0, 12, 1, TC_F64), 2, 3, 2);
    tc_tensor b = tc_reshape(tc_arange(ctx, 0, 12, 1, TC_F64), 3, 2, 2);
    VALUES(tc_outer(x, y), 2, 3, 4, 6, 6, 9);
    VALUES(tc_dot(x, x), 14);
    CHECK_EQ_INT(tc_status_of(tc_dot(x, y)), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_status_of(tc_outer(x, a)), TC_ERR_SHAPE);
    VALUES(tc_tensordot(a, b, TC_AXES(1, 0), TC_AXES(0, -1)), 176, 236, 203, 275);
    tc_tensor whole = tc_tensordot(a, x, TC_AXES_N(NULL, 0), TC_AXES_N(NULL, 0));
    CHECK_EQ_INT(tc_rank(whole), 4);
    CHECK_EQ_INT(tc_count(whole), 36);
    CHECK_EQ_INT(tc_status_of(tc_tensordot(a, b, TC_AXES(1, 1), TC_AXES(0, 1))), TC_ERR_AXIS);
    CHECK_EQ_INT(tc_status_of(tc_tensordot(a, b, TC_AXES(1), TC_AXES(0, 1))), TC_ERR_AXIS);
    CHECK_EQ_INT(tc_status_of(tc_tensordot(a, b, TC_AXES(1), TC_AXES(1))), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

/* ---- small results ---- */

/* y / want is 1 within `units` of 2^-53. */
static void check_ratio(int line, tc_tensor y, const double *want, int n, double units)
{
    double got[16];
    REQUIRE(n <= 16 && tc_read(tc_cast(y, TC_F64), got, n) == TC_OK);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(fabs(got[i] / want[i] - 1) <= units * 0x1p-53,
                  "line %d: element %d is %.17g, not %.17g", line, i, got[i], want[i]);
    }
}
#define RATIO(y, units, ...)                                                                       \
    check_ratio(__LINE__, (y), (const double[]){__VA_ARGS__},                                      \
                (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), (units))

/* Values of mpmath 1.3, 40 digits: differences of nearly equal numbers. */
TEST(small_results_keep_their_digits)
{
    begin();
    tc_tensor x = NUMBERS(1, SIZES(8), 4.3e-8, 1e-5, 1e-4, 0.0238, 0.3, 0.7, -0.5, -0.99);
    tc_tensor y = tc_tanhshrink(x);
    RATIO(y, 4, 2.6502333333333313732e-23, 3.333333333200000818e-16, 3.333333320000000054e-13,
          4.4927393891591692097e-6, 0.0086873875484090941818, 0.09563222288283648747,
          -0.037882842739990241498, -0.23263767578347371339);
    RATIO(tc_tanhshrink(tc_cast(x, TC_F32)), 0x1p32, 2.6502333333333313732e-23,
          3.333333333200000818e-16, 3.333333320000000054e-13, 4.4927393891591692097e-6,
          0.0086873875484090941818, 0.09563222288283648747, -0.037882842739990241498,
          -0.23263767578347371339);
    x = NUMBERS(1, SIZES(5), -1, -3, -5, -6, -8);
    RATIO(tc_gelu_tanh(x), 100, -0.15880800939172329522, -0.0036373920817730188378,
          -2.2917961966295060456e-7, -8.4396467007622970837e-11, -3.107782937501111218e-21);
    RATIO(tc_gelu_tanh(tc_cast(x, TC_F32)), 100 * 0x1p29, -0.15880800939172329522,
          -0.0036373920817730188378, -2.2917961966295060456e-7, -8.4396467007622970837e-11,
          -3.107782937501111218e-21);
    tc_tensor a = NUMBERS(1, SIZES(5), -0.7, -1, -0.69314718, -2, -0.6);
    tc_tensor b = NUMBERS(1, SIZES(5), -0.6863434, -0.4586751, -0.69314718, -0.14541346, -0.79);
    RATIO(tc_logaddexp(a, b), 3, -1.2067807702833836483e-6, 2.8690107806644405896e-8,
          5.5994533552996187774e-10, -1.8427223747669911598e-9, 0.0026529092986133093164);
    RATIO(tc_logaddexp(b, a), 3, -1.2067807702833836483e-6, 2.8690107806644405896e-8,
          5.5994533552996187774e-10, -1.8427223747669911598e-9, 0.0026529092986133093164);
    a = NUMBERS(1, SIZES(4), -0.5, -1, -0.25, -3);
    b = NUMBERS(1, SIZES(4), -1.7715533031636, -1.0000001, -2.65100265, -0.19264507794);
    RATIO(tc_logaddexp2(a, b), 3, 3.5257345674763279107e-15, -4.999999916275938213e-8,
          0.00015263948675225507281, 2.0964126283879617011e-12);
    a = tc_cast(NUMBERS(1, SIZES(4), -0.7, -1, -0.693147, -2), TC_F32);
    b = tc_cast(NUMBERS(1, SIZES(4), -0.6863434, -0.4586751, -0.6931474, -0.14541346), TC_F32);
    RATIO(tc_logaddexp(a, b), 0x1p33, -1.1866990268313113808e-6, 3.7224835090901492972e-8,
          -3.1706954927281797726e-8, -4.1370877707920234864e-10);
}

/* ---- complex numbers ---- */

TEST(pairs)
{
    begin();
    tc_tensor a = NUMBERS(2, SIZES(3, 2), 1, 2, -2, 0.5, 0, -3);
    tc_tensor b = NUMBERS(2, SIZES(3, 2), 0.5, -1, 1, 4, -1, 2);
    VALUES(tc_complex_mul(a, b), 2.5, 0, -4, -7.5, 6, 3);
    VALUES(tc_complex_div(a, b), -1.2, 1.6, 0, 0.5, -1.2, 0.6000000000000001);
    VALUES(tc_complex_exp(a), -1.131204383756814, 2.471726672004819, 0.1187678845769458,
           0.06488319105786541, -0.9899924966004454, -0.1411200080598672);
    VALUES(tc_complex_log(a), 0.8047189562170503, 1.10714871779409, 0.7234594914681627,
           2.896613990462929, 1.09861228866811, -1.570796326794897);
    VALUES(tc_complex_abs(a), 2.23606797749979, 2.06155281280883, 3);
    VALUES(tc_angle(a), 1.10714871779409, 2.896613990462929, -1.570796326794897);
    VALUES(tc_conj(a), 1, -2, -2, -0.5, 0, 3);
    VALUES(tc_complex(tc_real(a), tc_imag(a)), 1, 2, -2, 0.5, 0, -3);
    VALUES(tc_polar(tc_complex_abs(a), tc_angle(a)), 1, 2, -2, 0.5, 0, -3);
    VALUES(tc_complex_matmul(tc_unsqueeze(a, 0), tc_unsqueeze(b, 1)), 4.5, -4.5);
    VALUES(tc_complex(tc_ones(ctx, TC_I32, 2), tc_zeros(ctx, TC_I32)), 1, 0, 1, 0);
    tc_tensor far = tc_mul(tc_ones(ctx, TC_F64, 2), 1e300); /* whose square overflows */
    VALUES(tc_complex_div(far, far), 1, 0);
    VALUES(tc_complex_div(NUMBERS(2, SIZES(2, 2), 1e308, 0, 1e308, 1e308),
                          NUMBERS(2, SIZES(2, 2), 1e308, 1e308, 1e308, -1e308)),
           0.5, -0.5, 0, 1);
    /* |z| near 1: values of mpmath 1.3, to a relative 1e-15 */
    tc_tensor near = NUMBERS(2, SIZES(5, 2), 0.6, 0.8, 0.8, 0.6, 1, 1e-5, 0.7071067811865476,
                             0.7071067811865475, -0.28, 0.96);
    tc_tensor times = NUMBERS(1, SIZES(5), 2.2204460492503131548e-17, 2.2204460492503131548e-17,
                              4.999999999750000818e-11, -1.0146536357569520259e-17,
                              -2.6645352591003756694e-17);
    VALUES(tc_div(tc_real(tc_complex_log(near)), times), 1, 1, 1, 1, 1);
    tc_tensor none = tc_zeros(ctx, TC_F64, 2), slope;
    CHECK_EQ_INT(tc_grad(tc_complex_abs(none), &none, 1, &slope), TC_OK);
    VALUES(slope, 0, 0);
    tc_tensor mixed = tc_complex_mul(tc_cast(a, TC_BF16), tc_cast(b, TC_F16));
    CHECK_EQ_INT(tc_dtype_of(mixed), TC_F32);
    CHECK(strstr(tc_error(tc_complex_mul(a, tc_zeros(ctx, TC_F32, 3))),
                 "operand 2 has a last axis of size 3: expected 2") != NULL);
    CHECK_EQ_INT(tc_status_of(tc_real(tc_zeros(ctx, TC_F32))), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

/* Values of C11, annex G. */
TEST(pairs_at_the_ends)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(6, 2), INFINITY, 0, 800, -0.0, NAN, 0, -INFINITY, INFINITY,
                          INFINITY, INFINITY, -INFINITY, NAN);
    VALUES(tc_complex_exp(x), INFINITY, 0, INFINITY, 0, NAN, 0, 0, 0, INFINITY, NAN, 0, 0);
    tc_tensor a = NUMBERS(2, SIZES(5, 2), 0, -1, -1, 1e300, 1e300, 1e-310, 1, 0, INFINITY, 1);
    tc_tensor b = NUMBERS(2, SIZES(5, 2), 1, -INFINITY, -INFINITY, INFINITY, -0.0, 0, 0, 0,
                          INFINITY, 0);
    VALUES(tc_complex_div(a, b), 0, 0, 0, 0, -INFINITY, -INFINITY, INFINITY, NAN, NAN, NAN);
    tc_tensor real = NUMBERS(2, SIZES(2, 2), 1, 0, -2, 0), ones = tc_ones(ctx, TC_F64, 2, 2), slope;
    const double e = 2.718281828459045, e2 = 0.1353352832366127; /* the slopes stay those inside */
    CHECK_EQ_INT(tc_vjp(TC_TENSORS(tc_complex_exp(real)), TC_TENSORS(ones), &real, 1, &slope),
                 TC_OK);
    VALUES(slope, e, e, e2, e2);
    tc_ctx_free(ctx);
}

TEST(bags_of_nothing_are_zero)
{
    static const char *const modes[] = {"sum", "mean", "max"};
    begin();
    tc_tensor weight = tc_ones(ctx, TC_F64, 3, 2), offsets = tc_zeros(ctx, TC_I64, 2), slope;
    for (int i = 0; i < 3; i++) {
        tc_tensor listed = tc_embedding_bag(tc_zeros(ctx, TC_I64, 0), weight, offsets, modes[i],
                                            TC_NONE, false, -1);
        VALUES(listed, 0, 0, 0, 0);
        VALUES(tc_embedding_bag(tc_zeros(ctx, TC_I64, 2, 0), weight, TC_NONE, modes[i], TC_NONE,
                                false, TC_END),
               0, 0, 0, 0);
        CHECK_EQ_INT(tc_grad(tc_sum(listed, TC_ALL, false), &weight, 1, &slope), TC_OK);
        VALUES(slope, 0, 0, 0, 0, 0, 0);
    }
    tc_ctx_free(ctx);
}

TEST(differences_of_nothing)
{
    begin();
    tc_tensor x = NUMBERS(1, SIZES(3), 1, 4, 9), more = NUMBERS(1, SIZES(2), 16, 25);
    VALUES(tc_diff(x, 0, 0, more, more), 1, 4, 9);
    VALUES(tc_diff(x, 1, 0, TC_NONE, more), 3, 5, 7, 9);
    tc_tensor rows = tc_zeros(ctx, TC_F64, 2, 0), others = tc_zeros(ctx, TC_F64, 3, 0);
    VALUES(tc_cdist(rows, others, INFINITY), 0, 0, 0, 0, 0, 0);
    VALUES(tc_cdist(rows, others, 2), 0, 0, 0, 0, 0, 0);
    tc_ctx_free(ctx);
}

/* ---- sequences ---- */

static tc_tensor wave_of(double at, int rank, const int64_t *sizes)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= sizes[i];
    }
    tc_tensor i = tc_arange(ctx, 0, n, 1, TC_F64);
    return tc_reshape_at(tc_sin(tc_add(tc_mul(i, 0.37), at)), rank, sizes, TC_HERE);
}
#define WAVE(at, rank, ...) wave_of((at), (rank), SIZES(__VA_ARGS__))

/* Of cells of two numbers that read two. */
static int weights_of(int gates, int layers, int sides, bool biases, tc_tensor *w)
{
    int n = 0;
    for (int side = 0; side < layers * sides; side++) {
        w[n] = WAVE(n + 1, 2, 2 * gates, side < sides ? 2 : 2 * sides);
        n++;
        w[n] = WAVE(n + 1, 2, 2 * gates, 2);
        n++;
        for (int i = 0; biases && i < 2; i++) {
            w[n] = WAVE(n + 1, 1, 2 * gates);
            n++;
        }
    }
    return n;
}

TEST(long_short_term_memory)
{
    tc_tensor w[16], y, h, c;
    begin();
    int n = weights_of(4, 2, 2, true, w);
    tc_lstm(WAVE(0, 3, 3, 2, 2), WAVE(40, 3, 4, 2, 2), WAVE(41, 3, 4, 2, 2), TC_TENSORS_N(w, n),
            true, false, &y, &h, &c);
    VALUES(y, -0.06728629229920918, 0.09121649925331678, -0.08594566021285358, -0.1008375484842973,
           0.2941066518976635, 0.5058106693929493, -0.09365933252133449, -0.1050325043883963,
           0.03721926459485759, 0.2399659425099843, -0.08977731654194102, -0.09876100968566559,
           0.1588961852528007, 0.3761227529955548, -0.09079176163330559, -0.1076259521971915,
           0.09494463196117697, 0.2926442276743833, -0.06462064960684089, -0.1763036909451239,
           0.130586742745841, 0.3192650234005919, -0.07154740015370455, -0.3085243511157097);
    VALUES(h, -0.1074420335593704, -0.110934160525678, -0.06033520051278269, -0.04965480662799332,
           0.2283225215196065, 0.1068549345591604, 0.112220942847804, 0.07143615604617301,
           0.09494463196117697, 0.2926442276743833, 0.130586742745841, 0.3192650234005919,
           -0.08594566021285358, -0.1008375484842973, -0.09365933252133449, -0.1050325043883963);
    VALUES(c, -0.4622833401016282, -0.3388318687452141, -0.1417366864688237, -0.1558890241611682,
           0.9072366526090057, 0.6988666249459319, 0.4081244130866144, 1.203284866015699,
           0.1080551244565581, 0.3711522354117758, 0.1448138674524072, 0.4211426227676781,
           -0.6479488937616413, -0.4394347301202688, -0.6427635637641274, -0.4553163501384884);
    CHECK_EQ_INT(tc_size(y, 2), 4);
    tc_lstm(WAVE(0, 3, 3, 2, 2), TC_NONE, TC_NONE, TC_TENSORS_N(w, n), true, false, NULL, NULL, &c);
    tc_tensor zero = tc_zeros(ctx, TC_F64, 4, 2, 2), same;
    tc_lstm(WAVE(0, 3, 3, 2, 2), zero, zero, TC_TENSORS_N(w, n), true, false, NULL, NULL, &same);
    VALUES(tc_max(tc_abs(tc_sub(c, same)), TC_ALL, false), 0);
    tc_ctx_free(ctx);
}

TEST(gated_recurrent_units)
{
    tc_tensor w[8], y, h;
    begin();
    int n = weights_of(3, 2, 1, false, w);
    tc_gru(WAVE(0, 3, 2, 3, 2), TC_NONE, TC_TENSORS_N(w, n), false, true, &y, &h);
    VALUES(y, 0.01697758215543495, -0.08095026929423434, 0.02728044629594761, -0.2331361443446009,
           0.02075689140847659, -0.3747482056031834, 0.02032481399192801, -0.1565516664846784,
           -0.01202266357294762, -0.2253849430297568, -0.1560044373751615, -0.006011554211718673);
    VALUES(h, -0.4351739738585974, -0.707930740841748, 0.4572199040882516, 0.07235901291113822,
           0.02075689140847659, -0.3747482056031834, -0.1560044373751615, -0.006011554211718673);
    n = weights_of(3, 1, 2, true, w);
    tc_gru(WAVE(0, 2, 3, 2), WAVE(40, 2, 2, 2), TC_TENSORS_N(w, n), true, false, &y, &h);
    VALUES(y, -0.7811751851501398, -0.8661444708552132, 0.3405225030414985, -0.0777364795525945,
           -0.8761878796624565, -0.9432882397306368, 0.2699048192544075, -0.1455547254812967,
           -0.9204239024827733, -0.9737694741972027, 0.1921229012900126, -0.2069733089489572);
    VALUES(h, -0.9204239024827733, -0.9737694741972027, 0.3405225030414985, -0.0777364795525945);
    CHECK_EQ_INT(tc_rank(y), 2);
    tc_gru(tc_cast(WAVE(0, 2, 3, 2), TC_F16), TC_NONE, TC_TENSORS_N(w, n), true, false, &y, NULL);
    CHECK_EQ_INT(tc_dtype_of(y), TC_F16);
    tc_ctx_free(ctx);
}

TEST(weights_that_are_no_layers)
{
    tc_tensor w[8], y, h, c;
    begin();
    int n = weights_of(3, 1, 2, true, w);
    tc_tensor x = WAVE(0, 2, 3, 2);
    tc_gru(x, TC_NONE, TC_TENSORS_N(w, 3), false, false, &y, &h);
    CHECK(strstr(tc_error(h), "tc_gru: given 3 weights: expected weight_ih") != NULL);
    tc_gru(WAVE(0, 2, 3, 5), TC_NONE, TC_TENSORS_N(w, n), true, false, &y, NULL);
    CHECK(strstr(tc_error(y), "weight_ih of layer 0) has shape [6, 2]: expected [6, 5]") != NULL);
    tc_lstm(x, TC_NONE, TC_NONE, TC_TENSORS_N(w, n), true, false, NULL, NULL, &c);
    CHECK_EQ_INT(tc_status_of(c), TC_ERR_SHAPE);
    tc_gru(WAVE(0, 1, 6), TC_NONE, TC_TENSORS_N(w, n), true, false, &y, NULL);
    CHECK_EQ_INT(tc_status_of(y), TC_ERR_SHAPE);
    tc_gru(x, WAVE(0, 2, 2, 3), TC_TENSORS_N(w, n), true, false, &y, &h);
    CHECK_EQ_INT(tc_status_of(y), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_status_of(h), TC_ERR_SHAPE);
    VALUES(tc_range(x, 0, 0, 1), 0, 0.36161543196496204); /* the context is as it was */
    tc_ctx_free(ctx);
}

/* What PyTorch says at the edges: of nothing, of NaN, of one sample, of integers. */
TEST(edges_as_in_torch)
{
    begin();
    tc_tensor none = tc_full(ctx, 0, TC_F32, 2, 0);
    VALUES(tc_exp(tc_logsumexp(none, TC_AXES(1), false)), 0, 0);
    tc_tensor nan = NUMBERS(1, SIZES(2), NAN, 1), one = NUMBERS(1, SIZES(2), 1, 1);
    VALUES(tc_margin_ranking_loss(nan, one, one, 0.5, TC_REDUCE_NONE), NAN, 0.5);
    VALUES(tc_hinge_embedding_loss(nan, tc_neg(one), 1, TC_REDUCE_NONE), NAN, 0);
    tc_tensor x = NUMBERS(1, SIZES(3), 1, 3, 2.5), own = tc_full(ctx, 1, TC_I64, 1);
    VALUES(tc_multi_margin_loss(x, own, 1, 1, TC_NONE, TC_REDUCE_NONE), 0.5 / 3);
    CHECK_EQ_INT(tc_rank(tc_multi_margin_loss(x, own, 1, 1, TC_NONE, TC_REDUCE_NONE)), 1);
    VALUES(tc_multi_margin_loss(tc_range(x, 0, 0, 2), own, 1, 1, TC_NONE, TC_REDUCE_NONE), 0);
    CHECK_EQ_INT(tc_status_of(tc_multi_margin_loss(x, tc_full(ctx, 1, TC_I64, 2), 1, 1, TC_NONE,
                                                   TC_REDUCE_NONE)),
                 TC_ERR_ARGUMENT);
    VALUES(tc_arange(ctx, 0.1, -7.9, -4.0, TC_I64), 0, -4);
    VALUES(tc_arange(ctx, 0.5, 2, 0.5, TC_I32), 0, 0, 0);
    VALUES(tc_arange(ctx, 0.5, 2, 0.5, TC_F32), 0.5, 1, 1.5);
    tc_tensor small = tc_full(ctx, 100, TC_I8, 3);
    CHECK_EQ_INT(tc_dtype_of(tc_einsum("i->", TC_TENSORS(small))), TC_I8); /* wraps, as in torch */
    VALUES(tc_einsum("i->", TC_TENSORS(small)), 300 - 256);
    CHECK_EQ_INT(tc_dtype_of(tc_einsum("i,i->", TC_TENSORS(small, small))), TC_I8);
    tc_tensor words = tc_full(ctx, 1, TC_U16, 2, 3);
    CHECK_EQ_INT(tc_dtype_of(tc_einsum("ij->j", TC_TENSORS(words))), TC_U16);
    CHECK_EQ_INT(tc_dtype_of(tc_einsum("i->i", TC_TENSORS(small))), TC_I8);
    tc_ctx_free(ctx);
}

/* Coordinates follow from the factor, or from sizes that are recomputed: (i + 1/2) / 1.3 - 1/2. */
TEST(factors_that_leave_the_size)
{
    begin();
    tc_tensor x = NUMBERS(3, SIZES(1, 1, 3), 1, 2, 3);
    tc_interpolation o = {.mode = "linear", .scale_factor = {1.3}};
    VALUES(tc_interpolate(x, &o), 1, 1 + 0.85 / 1.3, 1 + 1.85 / 1.3);
    o.recompute_scale_factor = true;
    VALUES(tc_interpolate(x, &o), 1, 2, 3);
    tc_ctx_free(ctx);
}

/* Elements are x[floor(i / 2.6)], by whole numbers, in every dtype; 39 / 2.6 is 15, and
 * 39 (1 / 2.6) is less in f64. */
TEST(nearest_elements_by_a_factor)
{
    static const int tenths[] = {11, 13, 22, 26, 7};
    begin();
    for (int k = 0; k < 5; k++) {
        tc_interpolation o = {.scale_factor = {tenths[k] / 10.0}};
        tc_tensor x = tc_reshape(tc_arange(ctx, 0, 22, 1, TC_F64), 1, 1, 22);
        double want[64];
        const int n = 22 * tenths[k] / 10;
        for (int i = 0; i < n; i++) {
            want[i] = i * 10 / tenths[k];
        }
        check_values(__LINE__, tc_interpolate(x, &o), want, n);
        check_values(__LINE__, tc_interpolate(tc_cast(x, TC_F32), &o), want, n);
        check_values(__LINE__, tc_interpolate(tc_cast(x, TC_I64), &o), want, n);
        o.mode = "nearest-exact"; /* x[floor((i + 1/2) / 2.6)] */
        for (int i = 0; i < n; i++) {
            want[i] = (i * 10 + 5) / tenths[k];
        }
        check_values(__LINE__, tc_interpolate(x, &o), want, n);
    }
    tc_ctx_free(ctx);
}

/* (f32)(1 / 41) * 41 is less than 1. */
TEST(nearest_elements_by_a_whole_factor)
{
    begin();
    tc_tensor x = tc_reshape(tc_arange(ctx, 0, 5, 1, TC_F32), 1, 1, 5);
    float got[5 * 61];
    for (int k = 41; k <= 61; k += 20) {
        for (int exact = 0; exact < 2; exact++) {
            tc_interpolation o = {.mode = exact ? "nearest-exact" : NULL, .scale_factor = {k}};
            CHECK_EQ_INT(tc_read(tc_interpolate(x, &o), got, (int64_t)5 * k), TC_OK);
            for (int i = 0; i < 5 * k; i++) {
                CHECK_MSG(got[i] == (float)(i / k), "element %d by %d is %g", i, k, (double)got[i]);
            }
        }
    }
    tc_ctx_free(ctx);
}

/* A copy, which reads no neighbor. Along the axis that changes, row 0 has one of weight 0. */
TEST(interpolation_to_the_same_size)
{
    begin();
    const double inf = (double)INFINITY;
    tc_tensor x = NUMBERS(3, SIZES(1, 1, 5), 0, 1, inf, 3, NAN);
    tc_interpolation o = {.mode = "linear", .size = {5}};
    VALUES(tc_interpolate(x, &o), 0, 1, inf, 3, NAN);
    o.align_corners = true;
    VALUES(tc_interpolate(x, &o), 0, 1, inf, 3, NAN);
    o = (tc_interpolation){.mode = "linear", .scale_factor = {1}};
    VALUES(tc_interpolate(x, &o), 0, 1, inf, 3, NAN);
    x = tc_expand(tc_unsqueeze(x, -2), 1, 1, 2, 5);
    o = (tc_interpolation){.mode = "bicubic", .size = {2, 5}};
    VALUES(tc_interpolate(x, &o), 0, 1, inf, 3, NAN, 0, 1, inf, 3, NAN);
    o = (tc_interpolation){.mode = "bilinear", .size = {3, 5}};
    VALUES(tc_interpolate(x, &o), 0, 1, NAN, 3, NAN, 0, 1, inf, 3, NAN, 0, 1, inf, 3, NAN);
    tc_ctx_free(ctx);
}

/* Values of PyTorch 2.15: a tap outside is 0, whatever the element at the edge is. */
TEST(points_outside_of_an_infinite_edge)
{
    begin();
    const double inf = (double)INFINITY;
    tc_tensor x = NUMBERS(4, SIZES(1, 1, 3, 3), inf, 0, 0, 0, 2, 0, 0, 0, NAN);
    tc_tensor at = NUMBERS(4, SIZES(1, 1, 5, 2), -3, -3, 5, 5, -1.2, -1.4, 1.4, 1.2, 1.6, 0.1);
    tc_tensor slopes[2], in[2] = {x, at};
    VALUES(tc_grid_sample(x, at, "nearest", "zeros", false), 0, 0, 0, 0, 0);
    VALUES(tc_grid_sample(x, at, "bicubic", "zeros", false), 0, 0, -inf, NAN, NAN);
    tc_tensor y = tc_grid_sample(x, at, "bilinear", "zeros", false);
    VALUES(y, 0, 0, 0, 0, 0);
    CHECK_EQ_INT(tc_grad(tc_sum(y, TC_ALL, false), in, 2, slopes), TC_OK);
    VALUES(slopes[0], 0, 0, 0, 0, 0, 0, 0, 0, 0);
    VALUES(slopes[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    tc_jvp(TC_TENSORS(y), TC_TENSORS_N(in, 2), TC_TENSORS(tc_add(tc_mul(x, 0), 1), at), &y);
    VALUES(y, 0, 0, 0, 0, 0);
    tc_ctx_free(ctx);
}

/* Values of PyTorch 2.15. Elements that are not filled are x's, bit by bit. */
TEST(integers_filled_where_a_mask_is)
{
    begin();
    static const int64_t in[] = {(1ll << 53) + 1, 5, -(1ll << 53) - 1};
    int64_t got[3];
    tc_tensor x = tc_copy_in(ctx, in, TC_I64, 3), mask = tc_eq(tc_arange(ctx, 0, 3, 1, TC_I32), 1);
    tc_tensor of[] = {tc_masked_fill(x, mask, 7.75),
                      tc_masked_fill(x, mask, tc_full(ctx, 7.75, TC_F32)),
                      tc_masked_fill(x, mask, 7)};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_read(of[i], got, 3), TC_OK);
        CHECK(got[0] == in[0] && got[1] == 7 && got[2] == in[2]);
    }
    VALUES(tc_masked_fill(mask, mask, 0.25), 0, 1, 0);
    VALUES(tc_masked_fill(mask, tc_logical_not(mask), 0), 0, 1, 0);
    VALUES(tc_masked_fill(tc_cast(x, TC_F64), mask, -0.5), (double)in[0], -0.5, (double)in[2]);
    tc_tensor bad = tc_masked_fill(tc_cast(x, TC_I8), mask, 300);
    CHECK_HAS(tc_error(bad), "tc_masked_fill: the value: given 300, expected a number that i8");
    tc_ctx_free(ctx);
}

/* A src without rows: x where no element of the mask is true; where one is, its row is outside. */
TEST(rows_of_an_empty_source)
{
    begin();
    tc_tensor x = NUMBERS(2, SIZES(2, 2), 1, 2, 3, 4), none = tc_full(ctx, 0, TC_F64, 0, 2), y;
    tc_tensor no = tc_gt(tc_sum(x, TC_AXES(1), false), 10), yes = tc_lt(no, 1);
    VALUES(tc_index_put(x, TC_TENSORS(no), none, false), 1, 2, 3, 4);
    VALUES(tc_masked_scatter(x, tc_gt(x, 4), tc_reshape(none, 0)), 1, 2, 3, 4);
    double got[4];
    y = tc_index_put(x, TC_TENSORS(yes), none, false);
    CHECK_EQ_INT(tc_read(y, got, 4), TC_ERR_INDEX);
    CHECK_HAS(tc_error(y), "in tc_index_put");
    tc_ctx_free(ctx);
}

/* exp(x) far from 0 is no difference of expm1(x) and -1. */
TEST(gradients_of_small_exponentials)
{
    begin();
    tc_tensor x = tc_copy_in(ctx, ((float[]){-7.5f, -12.0f}), TC_F32, 2), dx;
    tc_grad(tc_sum(tc_elu(x, 1), TC_ALL, false), &x, 1, &dx);
    float got[2] = {0};
    REQUIRE(tc_read(dx, got, 2) == TC_OK);
    CHECK(fabs(got[0] / exp(-7.5) - 1) < 2e-7 && fabs(got[1] / exp(-12.0) - 1) < 2e-7);
    tc_ctx_free(ctx);
}

TEST_MAIN
