/* tests/ops/test_linear.c - solutions, triangles and determinants by what they promise, of sizes
 * around those of blocks; what a program of them costs; gradients by identities. Values against
 * plain C: test_ops.c; gradients of small ones by differences: test_grad.c. */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;

static void begin(const char *backend)
{
    tc_options o = {.backend = backend, .no_disk_cache = true, .verify = 1};
    ctx = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* The largest element of |t|; NaN counts as infinite. */
static double most(tc_tensor t)
{
    double v = INFINITY;
    tc_tensor top = tc_max(tc_abs(tc_cast(t, TC_F64)), TC_ALL, false);
    CHECK_MSG(tc_read(top, &v, 1) == TC_OK, "%s", tc_error(top));
    return isnan(v) ? INFINITY : v;
}

static tc_tensor turned(tc_tensor x)
{
    return tc_transpose(x, -1, -2);
}

static tc_tensor ones(tc_tensor like)
{
    return tc_diag(tc_full(ctx, 1, tc_dtype_of(like), tc_size(like, -1)), 0);
}

static tc_tensor random_of(int key, tc_dtype t, int64_t batch, int64_t rows, int64_t columns)
{
    return tc_param_from(tc_randn(ctx, key, t, batch, rows, columns));
}

static void near(const char *what, int64_t n, tc_tensor got, tc_tensor want, double bound)
{
    double off = most(tc_sub(got, want)) / fmax(most(want), 1);
    CHECK_MSG(off < bound, "%s of %lld: off by %.2g", what, (long long)n, off);
}

static void check_size(int64_t n, tc_dtype t)
{
    const double bound = (t == TC_F64 ? 1e-12 : 2e-4) * (double)(n + 4) / 16;
    tc_tensor a = random_of(1, t, 2, n, n), b = random_of(2, t, 2, n, 3), sign, log, twice;
    tc_tensor x = tc_param_from(tc_solve(a, b));
    double size = fmax(most(x), 1);
    near("solve", n, tc_div(tc_matmul(a, x), size), tc_div(b, size), bound);
    tc_tensor gram = tc_param_from(tc_add(tc_matmul(a, turned(a)), ones(a)));
    tc_tensor l = tc_param_from(tc_cholesky(gram, false));
    near("cholesky", n, tc_matmul(l, turned(l)), gram, bound);
    CHECK(most(tc_triu(l, 1)) == 0);
    near("inv", n, tc_matmul(gram, tc_inv(gram)), ones(a), 100 * bound);
    tc_slogdet(a, &sign, &log);
    tc_slogdet(tc_matmul(a, turned(a)), NULL, &twice);
    near("slogdet", n, twice, tc_mul(log, 2), bound);
    CHECK(most(tc_sub(tc_square(sign), 1)) == 0);
    /* what stands on the other side of the diagonal is not read, nor are ones of a unit one */
    tc_tensor tame = tc_add(tc_mul(a, 1 / (double)(n + 1)), tc_mul(ones(a), 2));
    for (int kind = 0; kind < 8; kind++) {
        const bool upper = kind & 1, left = kind & 2, unit = kind & 4;
        tc_tensor half = upper ? tc_triu(tame, unit) : tc_tril(tame, -(int)unit);
        tc_tensor mask = upper ? tc_triu(tc_full(ctx, 1, TC_F32, n, n), unit)
                               : tc_tril(tc_full(ctx, 1, TC_F32, n, n), -(int)unit);
        tc_tensor given = tc_param_from(tc_where(tc_ne(mask, 0), tame, NAN));
        tc_tensor whole = unit ? tc_add(half, ones(a)) : half, right = left ? b : turned(b);
        tc_tensor y = tc_solve_triangular(given, right, upper, left, unit);
        near("solve_triangular", n, left ? tc_matmul(whole, y) : tc_matmul(y, whole), right, bound);
    }
}

TEST(sizes_around_blocks)
{
    static const int sizes[] = {1, 2, 7, 33, 65, 97};
    begin("interp");
    for (int i = 0; i < TCI_COUNT(sizes); i++) {
        check_size(sizes[i], TC_F64);
    }
    tc_ctx_free(ctx);
    begin("cpu");
    check_size(130, TC_F32);
    tc_ctx_free(ctx);
}

/* Nothing is on the diagonal: a cycle of rows, by which right sides only change places. */
TEST(pivots)
{
    begin("interp");
    for (int64_t n = 2; n < 100; n += 67) {
        tc_tensor sign, log, a = tc_roll(tc_diag(tc_full(ctx, 1, TC_F32, n), 0), 1, 0);
        tc_tensor b = random_of(3, TC_F32, 1, n, 2);
        CHECK(most(tc_sub(tc_solve(a, b), tc_roll(b, -1, 1))) == 0);
        tc_slogdet(a, &sign, &log);
        CHECK(most(log) == 0 && most(tc_sub(sign, n % 2 ? 1 : -1)) == 0);
    }
    tc_ctx_free(ctx);
}

TEST(singular_and_empty)
{
    begin("interp");
    for (int64_t n = 3; n < 80; n += 67) {
        float log, sign;
        tc_tensor a = random_of(4, TC_F32, 1, n, n), s, l;
        a = tc_where(tc_eq(tc_arange(ctx, 0, n, 1, TC_I64), 1), 0, a);
        CHECK(most(tc_det(a)) == 0);
        tc_slogdet(a, &s, &l);
        REQUIRE(tc_read(l, &log, 1) == TC_OK && tc_read(s, &sign, 1) == TC_OK);
        CHECK(isinf(log) && log < 0 && sign == 0);
    }
    tc_tensor none = tc_full(ctx, 1, TC_F32, 0, 3, 3), flat = tc_full(ctx, 1, TC_F32, 2, 0, 0);
    CHECK_EQ_INT(tc_read(tc_solve(none, none), (float[1]){0}, 0), TC_OK);
    CHECK_EQ_INT(tc_read(tc_cholesky(flat, false), (float[1]){0}, 0), TC_OK);
    tc_tensor short_one = tc_solve(flat, tc_full(ctx, 1, TC_F32, 2, 0, 4));
    CHECK_EQ_INT(tc_read(short_one, (float[1]){0}, 0), TC_OK);
    CHECK_EQ_INT(tc_read(tc_inv(flat), (float[1]){0}, 0), TC_OK);
    tc_tensor thin = tc_full(ctx, 1, TC_F32, 2, 3, 0), one = ones(tc_full(ctx, 1, TC_F32, 3, 3));
    CHECK_EQ_INT(tc_read(tc_solve(one, thin), (float[1]){0}, 0), TC_OK);
    thin = tc_solve_triangular(one, thin, false, true, false);
    CHECK_EQ_INT(tc_read(thin, (float[1]){0}, 0), TC_OK);
    CHECK_EQ_INT(tc_read(tc_det(none), (float[1]){0}, 0), TC_OK);
    CHECK(most(tc_sub(tc_det(flat), 1)) == 0);
    tc_ctx_free(ctx);
}

TEST(batches_broadcast)
{
    begin("interp");
    tc_tensor a = tc_param_from(tc_randn(ctx, 5, TC_F64, 3, 1, 4, 4));
    tc_tensor b = tc_param_from(tc_randn(ctx, 6, TC_F64, 2, 4, 5));
    near("solve", 4, tc_matmul(a, tc_solve(a, b)), tc_expand(b, 3, 2, 4, 5), 1e-12);
    tc_tensor l = tc_tril(a, 0), x = tc_solve_triangular(l, b, false, true, false);
    near("solve_triangular", 4, tc_matmul(l, x), tc_expand(b, 3, 2, 4, 5), 1e-12);
    tc_ctx_free(ctx);
}

/* A program of more columns is no larger, and all executors give the same bits. */
TEST(cost_and_bits)
{
    static const int sizes[] = {20, 64, 100, 400};
    tc_program_info info[TCI_COUNT(sizes)];
    float got[2][100 * 7];
    begin("interp");
    for (int i = 0; i < TCI_COUNT(sizes); i++) {
        tc_program *f = NULL;
        tc_tensor a = tc_input(ctx, "a", TC_F32, sizes[i], sizes[i]);
        tc_tensor x = tc_matmul(tc_cholesky(a, false), tc_inv(a));
        REQUIRE(tc_compile_fn(TC_TENSORS(a), TC_TENSORS(x), NULL, &f) == TC_OK);
        CHECK_EQ_INT(tc_program_get_info(f, &info[i]), TC_OK);
        tc_program_free(f);
    }
    CHECK_EQ_INT(info[0].n_kernels, info[1].n_kernels);
    CHECK(info[3].n_kernels < info[2].n_kernels + 4); /* of long sums some are in parts */
    CHECK(info[3].n_kernels < 3 * info[0].n_kernels);
    tc_ctx_free(ctx);
    for (int k = 0; k < 2; k++) {
        begin(k ? "cpu" : "interp");
        tc_tensor a = random_of(7, TC_F32, 1, 100, 100), b = random_of(8, TC_F32, 1, 100, 7);
        tc_tensor x = tc_solve(a, b);
        CHECK_MSG(tc_read(x, got[k], 100 * 7) == TC_OK, "%s", tc_error(x));
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(got[0], got[1], sizeof(got[0])));
}

/* Of log |det a| the gradient is the inverse, transposed; of a sum of what solves a x = b it is
 * -w x' with w by the transpose. */
TEST(gradients_of_blocks)
{
    enum { N = 70 };
    begin("interp");
    tc_tensor a = random_of(9, TC_F64, 1, N, N), b = random_of(10, TC_F64, 1, N, 2), log, grad[2];
    tc_slogdet(a, NULL, &log);
    REQUIRE(tc_grad(tc_sum(log, TC_ALL, false), &a, 1, grad) == TC_OK);
    near("slogdet's gradient", N, grad[0], turned(tc_inv(a)), 1e-10);
    tc_tensor x = tc_solve(a, b), of[2] = {a, b};
    REQUIRE(tc_grad(tc_sum(x, TC_ALL, false), of, 2, grad) == TC_OK);
    tc_tensor w = tc_solve(turned(a), tc_full(ctx, 1, TC_F64, 1, N, 2));
    near("solve's gradient", N, grad[1], w, 1e-10);
    near("solve's gradient", N, grad[0], tc_neg(tc_matmul(w, turned(x))), 1e-10);
    /* |l|^2 is the trace of l l' */
    tc_tensor gram = tc_param_from(tc_add(tc_matmul(a, turned(a)), ones(a)));
    tc_tensor square = tc_sum(tc_square(tc_cholesky(gram, false)), TC_ALL, false);
    REQUIRE(tc_grad(square, &gram, 1, grad) == TC_OK);
    near("cholesky's gradient", N, grad[0], ones(a), 1e-10);
    tc_ctx_free(ctx);
}

TEST_MAIN
