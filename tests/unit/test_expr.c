/* Expressions as text (src/api/expr.c): precedence and values against Python's parser and NumPy
 * (tests/data/expressions), subscripts against NumPy, every op by its name, and texts that are the
 * very tensors that calls of C make (equal nodes are one). */
#include "tc.h"

#include "tc_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATA "tests/data/expressions/"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    o.promotion = TC_NUMPY;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* The lines of a file, one by one, without their ends. */
static bool next_line(FILE *file, char *line, size_t room)
{
    bool got = fgets(line, (int)room, file) != NULL;
    if (got) {
        line[strcspn(line, "\n")] = 0;
    }
    return got;
}

/* ---- against Python and NumPy ---- */

TEST(precedence_and_values_are_those_of_python)
{
    static const double a[] = {0.5, -1.25, 2.0, 3.5, -0.75, 1.0};
    static const double b[] = {1.5, 2.25, -3.0, 0.25, 4.0, -2.5};
    static const int64_t m[] = {3, -2, 7, 5, 1, -4}, n[] = {2, 5, 1, 3, 4, 6};
    begin();
    tc_attr names[] = {TC_ATTR("a", tc_copy_in(ctx, a, TC_F64, 2, 3)),
                       TC_ATTR("b", tc_copy_in(ctx, b, TC_F64, 2, 3)),
                       TC_ATTR("m", tc_copy_in(ctx, m, TC_I64, 2, 3)),
                       TC_ATTR("n", tc_copy_in(ctx, n, TC_I64, 2, 3))};
    FILE *file = fopen(DATA "values.txt", "r");
    REQUIRE(file != NULL);
    char line[1000];
    int count = 0;
    while (next_line(file, line, sizeof(line))) {
        char *tab = strchr(line, '\t');
        REQUIRE(tab != NULL);
        *tab = 0;
        tc_tensor y = tc_cast(tc_expr(ctx, line, TC_ATTRS_N(names, 4)), TC_F64);
        double got[6] = {0};
        CHECK_MSG(tc_read(y, got, 6) == TC_OK, "%s", tc_error(y));
        for (int i = 0; i < 6; i++) {
            double want = strtod(tab + 1, &tab);
            tab--;
            tab += *tab != ' ';
            CHECK_MSG(fabs(got[i] - want) <= 1e-9 * fabs(want), "%s: element %d: %.17g, not %.17g",
                      line, i, got[i], want);
        }
        count++;
    }
    CHECK_EQ_INT(count, 400);
    fclose(file);
    tc_ctx_free(ctx);
}

TEST(subscripts_are_those_of_numpy)
{
    int64_t x[120], i[] = {3, 0, 1}, j[] = {2, -1}, got[2000];
    begin();
    for (int k = 0; k < 120; k++) {
        x[k] = k;
    }
    tc_attr names[] = {TC_ATTR("x", tc_copy_in(ctx, x, TC_I64, 4, 5, 6)),
                       TC_ATTR("i", tc_copy_in(ctx, i, TC_I64, 3)),
                       TC_ATTR("j", tc_copy_in(ctx, j, TC_I64, 2, 1))};
    FILE *file = fopen(DATA "indices.txt", "r");
    REQUIRE(file != NULL);
    char line[500];
    int count = 0;
    while (next_line(file, line, sizeof(line))) {
        char *tab = strchr(line, '\t');
        REQUIRE(tab != NULL);
        *tab = 0;
        tc_tensor y = tc_expr(ctx, line, TC_ATTRS_N(names, 3));
        int64_t n = tc_count(y), total = 0;
        CHECK_MSG(n >= 0 && n <= 2000, "%s", tc_error(y));
        REQUIRE(n >= 0 && n <= 2000 && tc_read(y, got, n) == TC_OK);
        for (int64_t k = 0; k < n; k++) {
            total += got[k] * (k + 1);
        }
        char *at = tab + 1;
        for (int d = 0; d < tc_rank(y); d++) {
            CHECK_MSG(strtoll(at, &at, 10) == tc_size(y, d), "%s: axis %d has size %lld", line, d,
                      (long long)tc_size(y, d));
        }
        CHECK_MSG(*at == '\t', "%s: rank %d", line, tc_rank(y));
        CHECK_MSG(strtoll(at, NULL, 10) == total, "%s: %lld", line, (long long)total);
        count++;
    }
    CHECK_EQ_INT(count, 150);
    fclose(file);
    tc_ctx_free(ctx);
}

/* ---- the tensors of C ---- */

static void check_same(int line, tc_tensor got, tc_tensor wanted)
{
    CHECK_MSG(!tc_status_of(got) && !tc_status_of(wanted) && got.id == wanted.id,
              "line %d: another tensor %s%s", line, tc_error(got), tc_error(wanted));
}
#define SAME(wanted, ...) check_same(__LINE__, TC_EXPR(__VA_ARGS__), (wanted))

TEST(a_text_is_the_tensor_that_calls_make)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), w = tc_input(ctx, "w", TC_F32, 4, 5);
    tc_tensor b = tc_input(ctx, "b", TC_F32, 5), i = tc_input(ctx, "i", TC_I32, 2), both[2];
    double rate = 0.5;
    int axis = 1;
    SAME(tc_softmax(tc_add(tc_matmul(x, w), b), -1), softmax(x @ w + b, axis=-1), x, w, b);
    SAME(tc_sin(tc_cos(x)), sin(cos(x)), x);
    SAME(tc_mul(x, rate), x * rate, x, rate);
    SAME(tc_sum(x, TC_AXES(1), false), sum(x, axis), x, axis);
    SAME(tc_sum(x, TC_AXES(0, 1), true), x.sum(axis=(0, 1), keepdims=True), x);
    SAME(tc_sum(x, TC_ALL, false), sum(x), x);
    SAME(tc_sum(x, TC_AXES_N(NULL, 0), false), sum(x, axis=()), x);
    SAME(tc_reshape(tc_sum(x, TC_ALL, false), ), reshape(sum(x), ()), x);
    SAME(tc_einsum("", TC_TENSORS(tc_sum(x, TC_ALL, false))), einsum("", sum(x)), x);
    SAME(tc_add(tc_zeros(ctx, TC_F32, 3, 1), x), zeros(f32, 3, 1) + x, x);
    SAME(tc_add(tc_ones(ctx, TC_F32), x), ones(f32, ()) + x, x);
    SAME(tc_add(tc_linspace(ctx, 0, 1, 4, TC_F32), x), linspace(0, 1, 4, f32) + x, x);
    SAME(tc_slice(x, 1, 1, -1, 1), (x[:, 1:-1]), x);
    SAME(tc_unsqueeze(x, 2), (x[..., None]), x);
    SAME(tc_select(tc_select(x, 0, 2), 0, -1), (x[2, -1]), x);
    SAME(tc_index_select(x, 0, i), (x.index_select(0, i)), x, i);
    SAME(tc_index(x, TC_TENSORS(TC_NONE, i)), (x[:, i]), x, i);
    SAME(tc_transpose(x, 0, 1), x.T, x);
    SAME(tc_transpose(x, 0, 1), x.mT, x);
    SAME(tc_reshape(x, 6, 2), x.reshape(6, -1), x);
    SAME(tc_reshape(x, 4, 3), reshape(x, (x.shape[1], x.shape[-2])), x);
    SAME(tc_cat(TC_TENSORS(x, x), 0), cat([x, x], 0), x);
    SAME(tc_cat(TC_TENSORS(x, x), 0), cat((x, x), axis=0), x);
    SAME(tc_stack(TC_TENSORS(b, b), 0), stack(b, b), b);
    SAME(tc_einsum("ij,jk->ki", TC_TENSORS(x, w)), einsum("ij,jk->ki", x, w), x, w);
    SAME(tc_index_put(x, TC_TENSORS(TC_NONE, i), tc_full(ctx, 0, TC_F32), false),
         index_put(x, [None, i], full(0, f32, ())), x, i);
    SAME(tc_mse_loss(x, x, TC_REDUCE_SUM), mse_loss(x, x, reduction='sum'), x);
    SAME(tc_cast(x, TC_BF16), cast(x, bf16), x);
    SAME(tc_clamp(x, 0, TC_NONE), clamp(x, min=0), x);
    SAME(tc_clamp(x, TC_NONE, 1), x.clamp(None, 1), x);
    SAME(tc_neg(tc_pow(x, 2)), -x ** 2, x);
    SAME(tc_mul(2, x), (3 - 1) * x, x);
    tc_topk(x, 1, 2, true, &both[0], &both[1]);
    SAME(both[1], topk(x, 1, 2)[1], x);
    SAME(both[0], x.topk(1, k=2)[-2], x);
    tc_ctx_free(ctx);
}

/* ---- every op ---- */

/* Calls that the parameters alone do not tell how to make. */
static const char *const special_calls[] = {
    "gcd(i, 4)",
    "lcm(i, 4)",
    "bitwise_not(i)",
    "bitwise_and(i, 3)",
    "bitwise_or(i, 3)",
    "bitwise_xor(p, p)",
    "bitwise_left_shift(i, 2)",
    "bitwise_right_shift(i, 2)",
    "mul_high(i, i)",
    "full(0.5, f32, (3, 4))",
    "zeros(f32, 3, 4)",
    "ones(i8, (3, 4))",
    "arange(0, 10, 2, i32)",
    "fold_in(k[0], 3)",
    "random_bits(7, u32, (3, 4))",
    "rand(7, f32, 3, 4)",
    "randn(7, f32, (3, 4))",
    "randint(7, 0, 10, i32, (3, 4))",
    "bernoulli(x, 7)",
    "exponential(x, 7)",
    "geometric(x, key=7)",
    "dropout(x, 0.5, key=7)",
    "var_mean(x, axis=1)[0]",
    "topk(x, 1, 2)[1]",
    "sort(x, 1)[0]",
    "cross_entropy(x, k)",
    "permute(x, 1, 0)",
    "gather(x, 1, i)",
    "index_select(x, 1, k)",
    "scatter_add(x, 1, i, x)",
    "scatter(x, 1, i, x)",
    "scatter_min(x, 1, i, x)",
    "scatter_max(x, 1, i, x)",
    "index_add(x, 0, k, x)",
    "pad_mode(x, 1, 1, 1, 'reflect')",
    "pixel_shuffle(b.reshape(2, 12, 4, 4), 2)",
    "pixel_unshuffle(b, 2)",
    "linspace(0, 1, 5, f32)",
    "logspace(0, 1, 5, dtype=f32)",
    "repeat_interleave(x, 2, 1)",
    "select_scatter(x, v, 0, 1)",
    "diagonal_scatter(x, v[:3])",
    "take_along_dim(x, i, 1)",
    "index(x, [k, None])",
    "index_put(x, [k], x)",
    "index_fill(x, 0, k, 1)",
    "masked_scatter(x, p, x)",
    "masked_select(x, p, 5)[0]",
    "nonzero(x, 5)[1]",
    "cummax(x, 1)[0]",
    "cummin(x, 1)[1]",
    "aminmax(x)[0]",
    "kthvalue(x, 2)[0]",
    "median(x)[0]",
    "nanmedian(x)[1]",
    "mode(x)[0]",
    "bincount(k, size=5)",
    "unique(x, 0, 3)[2]",
    "unique_consecutive(x, 0, 3)[0]",
    "scatter_prod(x, 1, i, x)",
    "solve(s, v)",
    "solve_triangular(s, s, upper=True)",
    "cholesky(s, upper=True)",
    "inv(s)",
    "det(s)",
    "slogdet(s)[1]",
    "matrix_power(s, 3)",
    "matmul(x, s)",
    "bmm(a, a.mT)",
    "einsum('ij,kj->ik', x, x)",
    "conv1d(a, full(1, f32, (5, 3, 3)), padding=1)",
    "conv_transpose1d(a, full(1, f32, (3, 5, 3)))",
    "max_pool1d(a, kernel=2)",
    "max_pool1d_with_indices(a, kernel=2)[1]",
    "avg_pool1d(a, kernel=2)",
    "lp_pool1d(a, 2, kernel=2)",
    "adaptive_avg_pool1d(a, 2)",
    "adaptive_max_pool1d(a, 2)",
    "adaptive_max_pool1d_with_indices(a, 2)[0]",
    "conv2d(b, full(1, f32, (5, 3, 3, 3)), None, (1, 2), padding=1)",
    "conv_transpose2d(b, full(1, f32, (3, 5, 3, 3)), stride=2)",
    "max_pool2d(b, (2, 2), stride=(1, 2))",
    "max_pool2d_with_indices(b, 2)[0]",
    "avg_pool2d(b, 2, exclude_pad=True)",
    "lp_pool2d(b, 2, kernel=2)",
    "adaptive_avg_pool2d(b, (2, 3))",
    "adaptive_max_pool2d(b, 2, 3)",
    "adaptive_max_pool2d_with_indices(b, (2, 3))[1]",
    "conv3d(c, full(1, f32, (5, 3, 3, 3, 3)))",
    "conv_transpose3d(c, full(1, f32, (3, 5, 3, 3, 3)))",
    "max_pool3d(c, kernel=2)",
    "max_pool3d_with_indices(c, kernel=2)[1]",
    "avg_pool3d(c, kernel=(2, 2, 2))",
    "lp_pool3d(c, 2, kernel=2)",
    "adaptive_avg_pool3d(c, (2, 3, 2))",
    "adaptive_max_pool3d(c, (2, 3, 2))",
    "adaptive_max_pool3d_with_indices(c, (2, 3, 2))[0]",
    "im2col(b, kernel=(2, 2))",
    "col2im(im2col(b, 2), (8, 8), 2)",
    "interpolate(b, mode='bilinear', scale_factor=2)",
    "grid_sample(b, full(0, f32, (2, 4, 4, 2)))",
    "assign(q, x)",
    "multinomial(abs(x), 2, True, 7)",
    "gumbel_softmax(x, hard=True, key=7)",
    "embedding(k, s)",
    "one_hot(k, 5)",
    "quantize(x, 0.1, 0, dtype=i8)",
    "dequantize(cast(x, i8), 0.1, 0)",
    "qmatmul(x.cast(i8), 0.1, 0, s.cast(i8), 0.1, 0)",
    "coo_matmul(k, k, v[:3], 5, s)",
    "csr_matmul(k, k[:2], v[:2], s)",
    "as_strided(x, (2, 2), (4, 1), 1)",
    "ssm_scan(a, a, full(1, f32, (8, 5)), full(1, f32, (2, 3, 5)), full(1, f32, (2, 3, 5)))",
    "qr(s)[0]",
    "eigh(full(1, f32, (2, 2)))[1]",
    "svd(full(1, f32, (2, 2)))[2]",
    "ctc_loss(full(-1, f32, (5, 3, 4)), full(1, i64, (3, 2)), k, full(2, i64, (3,)))",
    "quantile(x, 0.5, axis=1)",
    "nanquantile(x, 0.5, interpolation='lower')",
    "segment_reduce(x, 'sum', k)",
    "unravel_index(k, (3, 4))",
    "frexp(x)[1]",
    "polygamma(1, x)",
    "lu(s)[0]",
    "logdet(s)",
    "matrix_exp(full(1, f32, (2, 2)))",
    "stft(v.tile(8), n_fft=8)",
    "istft(stft(v.tile(8), n_fft=8), n_fft=8)",
    "fft(z)",
    "ifft(z, n=4)",
    "irfft(z)",
    "clamp(x, min=0)",
    "popcount(i)",
    "cross(z[:, :1].tile(1, 3), z[:, :1].tile(1, 3))",
    "outer(v, v)",
    "dot(v, v)",
    "lstm(a, None, None, [full(1, f32, (20, 8)), full(1, f32, (20, 5)), full(1, f32, "
    "(20,)), full(1, f32, (20,))])[0]",
    "gru(a, None, [full(1, f32, (15, 8)), full(1, f32, (15, 5)), full(1, f32, "
    "(15,)), full(1, f32, (15,))])[1]",
    "real(z)",
    "imag(z)",
    "complex_abs(z)",
    "angle(z)",
    "conj(z)",
    "complex_mul(z, z)",
    "complex_div(z, z)",
    "complex_exp(z)",
    "complex_log(z)",
    "complex_matmul(z[None], z[:, None])",
    "batch_norm(b, training=True)",
    "instance_norm(b)",
    "local_response_norm(b, 3)",
    "embedding_bag(k[None], s)",
    "nll_loss(x, k)",
    "multi_margin_loss(x, k)",
    "cosine_embedding_loss(x, x, k)",
};

/* The call in special_calls of that op, or NULL. */
static const char *special_call(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof(special_calls) / sizeof(*special_calls); i++) {
        if (!strncmp(special_calls[i], name, n) && special_calls[i][n] == '(') {
            return special_calls[i];
        }
    }
    return NULL;
}

/* "softmax(x, 1)": an argument by its kind for each parameter without a default. */
static void plain_call(const char *name, const char *params, char *text, size_t room)
{
    static const char *const kinds[][2] = {{"tensor", "x"},      {"operand", "x"},
                                           {"axis", "1"},        {"axes", "1"},
                                           {"integer", "1"},     {"real", "0.5"},
                                           {"dtype", "f32"},     {"sizes", "(3, 4)"},
                                           {"tensors", "[x, x]"}};
    size_t n = (size_t)snprintf(text, room, "%s(", name);
    for (const char *at = params; at; at = strstr(at, ", ")) {
        at += *at == ',' ? 2 : 0;
        const char *kind = strchr(at, ':') + 2, *end = strstr(at, ", ");
        size_t length = strcspn(kind, " ,"), all = end ? (size_t)(end - at) : strlen(at);
        bool left_out = memchr(at, '=', all) != NULL;
        for (size_t i = 0; !left_out && i < sizeof(kinds) / sizeof(*kinds); i++) {
            if (strlen(kinds[i][0]) == length && !memcmp(kinds[i][0], kind, length)) {
                n += (size_t)snprintf(text + n, room - n, "%s%s", at == params ? "" : ", ",
                                      kinds[i][1]);
            }
        }
    }
    snprintf(text + n, room - n, ")");
}

TEST(every_op_is_called_by_its_name)
{
    begin();
    tc_attr names[] = {TC_ATTR("x", tc_input(ctx, "x", TC_F32, 3, 4)),
                       TC_ATTR("i", tc_input(ctx, "i", TC_I32, 3, 4)),
                       TC_ATTR("k", tc_input(ctx, "k", TC_I64, 3)),
                       TC_ATTR("s", tc_input(ctx, "s", TC_F32, 4, 4)),
                       TC_ATTR("v", tc_input(ctx, "v", TC_F32, 4)),
                       TC_ATTR("p", tc_input(ctx, "p", TC_BOOL, 3, 4)),
                       TC_ATTR("a", tc_input(ctx, "a", TC_F32, 2, 3, 8)),
                       TC_ATTR("b", tc_input(ctx, "b", TC_F32, 2, 3, 8, 8)),
                       TC_ATTR("c", tc_input(ctx, "c", TC_F32, 2, 3, 8, 8, 8)),
                       TC_ATTR("z", tc_input(ctx, "z", TC_F32, 3, 2)),
                       TC_ATTR("q", tc_param(ctx, NULL, TC_F32, 3, 4))};
    char text[400];
    for (int i = 0; tc_op_name(i); i++) {
        const char *call = special_call(tc_op_name(i));
        if (!call) {
            plain_call(tc_op_name(i), tc_op_params(i), text, sizeof(text));
            call = text;
        }
        tc_tensor y = tc_expr(ctx, call, TC_ATTRS_N(names, 11));
        CHECK_MSG(tc_status_of(y) == TC_OK, "%s", tc_error(y));
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
