/* tests/cuda/test_factor.c - eigenvalues, singular values and least squares of matrices above the
 * limit of rotations (api/eig_divide_conquer.c), planned for blocks of threads: run as CUDA text by
 * the emulation, and by the interpreter. The judge is their definition, in f64. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "planned.h"

enum { ROWS = 140, N = 129, ERRORS = 5 };

/* Elements of a matrix [ROWS, N] of rank 90. */
static double number(int i)
{
    return (double)((i * 7919 + i / 3 * 104729) % 2003 - 1001) / 577;
}

static tc_tensor turned(tc_tensor x)
{
    return tc_transpose(x, -1, -2);
}

/* The largest element of |a - b|, in f64. */
static tc_tensor off(tc_tensor a, tc_tensor b)
{
    return tc_cast(tc_max(tc_abs(tc_sub(a, b)), TC_ALL, false), TC_F64);
}

static tc_tensor off_orthogonal(tc_ctx *ctx, tc_tensor columns)
{
    tc_tensor one = tc_diag(tc_full(ctx, 1, tc_dtype_of(columns), N), 0);
    return off(tc_matmul(turned(columns), columns), one);
}

/* Errors of the factors of x [ROWS, N], and of x^T + x of its first N rows. Returns how many. */
typedef int (*factor_fn)(tc_ctx *ctx, tc_tensor x, tc_tensor errors[ERRORS]);

static int eigenvalues(tc_ctx *ctx, tc_tensor x, tc_tensor errors[ERRORS])
{
    tc_tensor w, v, a = tc_slice(x, 0, 0, N, 1);
    a = tc_add(a, turned(a));
    tc_eigh(a, &w, &v);
    errors[0] = off(tc_matmul(a, v), tc_mul(v, tc_unsqueeze(w, -2)));
    errors[1] = off_orthogonal(ctx, v);
    return 2;
}

/* The sum of s^4 / 4 has the gradient x x^T x. */
static int singular_values(tc_ctx *ctx, tc_tensor x, tc_tensor errors[ERRORS])
{
    tc_tensor u, s, vh, grad;
    tc_svd(x, &u, &s, &vh);
    tc_tensor sum = tc_sum(tc_square(tc_square(s)), TC_ALL, false);
    REQUIRE(tc_grad(tc_mul(sum, 0.25), &x, 1, &grad) == TC_OK);
    errors[0] = off(tc_matmul(tc_mul(u, tc_unsqueeze(s, -2)), vh), x);
    errors[1] = off_orthogonal(ctx, u);
    errors[2] = off_orthogonal(ctx, turned(vh));
    errors[3] = tc_div(off(grad, tc_matmul(x, tc_matmul(turned(x), x))), 1e3);
    return 4;
}

/* What is left of b is orthogonal to the columns of x. */
static int least_squares(tc_ctx *ctx, tc_tensor x, tc_tensor errors[ERRORS])
{
    tc_tensor b = tc_sin(tc_slice(x, -1, 0, 2, 1));
    tc_tensor rest = tc_sub(b, tc_matmul(x, tc_lstsq(x, b, -1)));
    tc_tensor product = tc_matmul(turned(x), rest);
    (void)ctx;
    errors[0] = off(product, tc_mul(product, 0));
    return 1;
}

static void check(const char *backend, tc_dtype dtype, const char *name, factor_fn make,
                  double bound)
{
    static double x[ROWS * N];
    double got[ERRORS];
    tc_tensor errors[ERRORS];
    tc_buf outs[ERRORS];
    register_emulation();
    tc_options o = {.backend = backend, .verify = 1, .no_disk_cache = true};
    o.fallback = strcmp(backend, "planned") ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor in = tc_input(ctx, "x", TC_F64, ROWS, N);
    const int n = make(ctx, tc_cast(in, dtype), errors);
    for (int i = 0; i < n; i++) {
        outs[i] = TC_BUF(&got[i], 1);
    }
    tc_status status = tc_compile_fn(TC_TENSORS(in), TC_TENSORS_N(errors, n), NULL, &f);
    if (status == TC_ERR_COMPILER) {
        tc_ctx_free(ctx);
        SKIP("%s", "no C++ compiler");
    }
    CHECK_MSG(status == TC_OK, "%s: %s", name, tc_ctx_error(ctx));
    for (int nan = 0; status == TC_OK && nan < 2; nan++) {
        for (int i = 0; i < ROWS * N; i++) {
            x[i] = nan && i == N ? NAN : number(i);
        }
        bool whole = nan == 0 || !strcmp(backend, "planned");
        CHECK(!whole || tc_run(f, TC_BUFS(TC_BUF(x, ROWS * N)), TC_BUFS_N(outs, n)) == TC_OK);
        for (int i = 0; i < n && whole; i++) {
            CHECK_MSG(nan ? isnan(got[i]) : got[i] < bound, "%s of %s by %s: error %d is %.3g",
                      name, dtype == TC_F64 ? "f64" : "f32", backend, i, got[i]);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(eigenvalues_of_many_rows_as_cuda)
{
    check("emulated", TC_F32, "eigenvalues", eigenvalues, 2e-4);
}

TEST(factors_of_many_rows_as_planned_for_blocks_of_threads)
{
    check("planned", TC_F64, "eigenvalues", eigenvalues, 1e-12);
    check("planned", TC_F64, "singular values", singular_values, 1e-10);
    check("planned", TC_F64, "least squares", least_squares, 1e-10);
    check("planned", TC_F32, "singular values", singular_values, 1e-4);
}

TEST_MAIN
