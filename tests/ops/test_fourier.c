/* tests/ops/test_fourier.c - transforms of every kind of length against their definition in long
 * double; axes, cut and filled up lengths, norms; the same bits from the interpreter. */
#include "inside.h"

#include "tc_test.h"

#include "same.h"

enum { ROWS = 3, MOST = 2 * ROWS * 1100 };

static tc_ctx *make_ctx(const char *backend)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend, .no_disk_cache = true, .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

/* Pairs [rows, size, 2] and their transform of n points by its definition; real: no pairs. */
static void transform(const double *x, int rows, int size, int n, int sign, double scale, double *y)
{
    const long double turn = 6.28318530717958647692528676655900577L / n;
    for (int b = 0; b < rows; b++) {
        for (int64_t k = 0; k < n; k++) {
            long double re = 0, im = 0;
            for (int64_t j = 0; j < size && j < n; j++) {
                long double c = cosl(turn * (long double)(j * k % n));
                long double s = sign * sinl(turn * (long double)(j * k % n));
                const double *at = x + 2 * (b * size + j);
                re += at[0] * c - at[1] * s;
                im += at[0] * s + at[1] * c;
            }
            y[2 * (b * n + k)] = (double)(re * scale);
            y[2 * (b * n + k) + 1] = (double)(im * scale);
        }
    }
}

static void read_all(tc_tensor t, double *to, int64_t n)
{
    tc_tensor wide = tc_cast(t, TC_F64);
    CHECK_MSG(tc_read(wide, to, n) == TC_OK, "%s", tc_error(wide));
}

/* The largest difference over the largest number. */
static double apart(const double *a, const double *b, int64_t n)
{
    double worst = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, isnan(a[i]) ? INFINITY : fabs(a[i] - b[i]));
        most = fmax(most, fabs(b[i]));
    }
    return most > 0 ? worst / most : worst;
}

static void fill(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = (double)(float)((double)(tct_random() >> 40) / (1 << 23) - 1);
    }
}

static tc_tensor numbers(tc_ctx *ctx, const double *x, tc_dtype t, int rows, int n, bool pairs)
{
    const int64_t sizes[] = {rows, n, 2};
    return tc_cast(tc_copy_in_at(ctx, x, TC_F64, 2 + pairs, sizes, NULL, TC_HERE), t);
}

/* All four of n points; a half transform is the front of a whole one. */
static void check_length(tc_ctx *ctx, tc_dtype t, int n, double bound)
{
    static double x[MOST], want[MOST], got[MOST], line[MOST];
    const int half = n / 2 + 1;
    fill(x, 2 * ROWS * n);
    tc_tensor pairs = numbers(ctx, x, t, ROWS, n, true);
    transform(x, ROWS, n, n, -1, 1, want);
    read_all(tc_fft(pairs, 0, -1, NULL), got, 2 * ROWS * n);
    double fft = apart(got, want, 2 * ROWS * n);
    transform(x, ROWS, n, n, 1, 1.0 / n, want);
    read_all(tc_ifft(pairs, 0, -1, NULL), got, 2 * ROWS * n);
    double ifft = apart(got, want, 2 * ROWS * n);
    for (int i = 0; i < ROWS * n; i++) {
        line[i] = x[2 * i];
        x[2 * i + 1] = 0;
    }
    tc_tensor real = tc_rfft(numbers(ctx, line, t, ROWS, n, false), 0, -1, NULL);
    transform(x, ROWS, n, n, -1, 1, want);
    for (int i = 0; i < ROWS; i++) {
        memmove(want + 2 * i * half, want + 2 * i * n, 2 * (size_t)half * sizeof(*want));
    }
    read_all(real, got, 2 * ROWS * half);
    double rfft = apart(got, want, 2 * ROWS * half);
    read_all(tc_irfft(real, n, -1, NULL), got, ROWS * n);
    double irfft = apart(got, line, ROWS * n);
    CHECK_MSG(fft < bound && ifft < bound && rfft < bound && irfft < bound,
              "%d points of %s: off by %.2g, %.2g, %.2g, %.2g", n, tci_dtype_get(t)->name, fft,
              ifft, rfft, irfft);
}

/* Powers, products, primes that are a radix and primes that are none. */
TEST(every_length)
{
    static const int lengths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,   12,  15,  16, 17,
                                  25, 31, 32, 48, 61, 64, 67, 74, 100, 128, 134, 201};
    tc_ctx *ctx = make_ctx("interp");
    for (int i = 0; i < TCI_COUNT(lengths); i++) {
        check_length(ctx, TC_F32, lengths[i], 1e-6);
        check_length(ctx, TC_F64, lengths[i], 2e-15);
    }
    check_length(ctx, TC_F16, 12, 2e-3);
    check_length(ctx, TC_BF16, 12, 2e-2);
    tc_ctx_free(ctx);
}

TEST(compiled_code_gives_the_same_bits)
{
    static const int lengths[] = {30, 67, 1024};
    static double x[MOST];
    static float got[2][MOST];
    for (int i = 0; i < TCI_COUNT(lengths); i++) {
        const int n = lengths[i];
        fill(x, 2 * ROWS * n);
        for (int k = 0; k < 2; k++) {
            tc_ctx *ctx = make_ctx(k ? "cpu" : "interp");
            tc_tensor y = tc_fft(numbers(ctx, x, TC_F32, ROWS, n, true), 0, -1, NULL);
            CHECK_MSG(tc_read(y, got[k], 2 * ROWS * n) == TC_OK, "%s", tc_error(y));
            tc_ctx_free(ctx);
        }
        CHECK_MSG(same_bits(TC_F32, got[0], got[1], 2 * ROWS * n), "%d points", n);
    }
}

/* Cut or filled up, along another axis, divided elsewhere. */
TEST(lengths_axes_and_norms)
{
    static const int points[] = {4, 6, 9};
    static const struct {
        const char *name;
        double power[2];
    } norms[] = {{"backward", {0, -1}}, {"ortho", {-0.5, -0.5}}, {"forward", {-1, 0}}};
    double x[2 * ROWS * 6], want[2 * ROWS * 9], got[2 * ROWS * 9];
    tc_ctx *ctx = make_ctx("interp");
    fill(x, 2 * ROWS * 6);
    tc_tensor rows = numbers(ctx, x, TC_F64, ROWS, 6, true), turned = tc_permute(rows, 1, 0, 2);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            const int n = points[k];
            for (int inverse = 0; inverse < 2; inverse++) {
                transform(x, ROWS, 6, n, inverse ? 1 : -1, pow(n, norms[i].power[inverse]), want);
                tc_tensor y = inverse ? tc_ifft(rows, n, 1, norms[i].name)
                                      : tc_fft(rows, n, 1, norms[i].name);
                read_all(y, got, 2 * ROWS * n);
                CHECK_MSG(apart(got, want, 2 * ROWS * n) < 1e-15, "%d points, %s", n,
                          norms[i].name);
                y = inverse ? tc_ifft(turned, n, 0, norms[i].name)
                            : tc_fft(turned, n, -2, norms[i].name);
                read_all(tc_permute(y, 1, 0, 2), got, 2 * ROWS * n);
                CHECK_MSG(apart(got, want, 2 * ROWS * n) < 1e-15, "%d points, %s, axis 0", n,
                          norms[i].name);
            }
        }
    }
    /* of few places the others are 0, and the imaginary parts of places 0 and n / 2 do not count */
    tc_tensor all = tc_irfft(rows, 8, -1, "forward"), mask = tc_full(ctx, 0, TC_F64, ROWS, 6, 2);
    mask = tc_select_scatter(mask, tc_full(ctx, 1, TC_F64, ROWS, 2), 1, 0);
    mask = tc_mul(mask, tc_arange(ctx, 0, 2, 1, TC_F64));
    read_all(all, want, ROWS * 8);
    read_all(tc_irfft(tc_add(rows, mask), 8, -1, "forward"), got, ROWS * 8);
    CHECK(apart(got, want, ROWS * 8) == 0);
    read_all(tc_rfft(tc_irfft(tc_range(rows, 1, 0, 4), 10, -1, NULL), 0, -1, NULL), got, 36);
    for (int i = 0; i < 36; i++) {
        const int place = i / 2 % 6;
        double own = place < 4 && !(place == 0 && i % 2) ? x[i / 12 * 12 + i % 12] : 0;
        CHECK_MSG(fabs(got[i] - own) < 1e-14, "place %d: %g, not %g", i, got[i], own);
    }
    tc_ctx_free(ctx);
}

/* A long one takes n log n: matrices and factors, which are memory, are a few times n. */
TEST(a_long_row_takes_memory_as_its_length)
{
    tc_program *f = NULL;
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor x = tc_input(ctx, "x", TC_F32, 10007);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_rfft(x, 0, 0, NULL)), NULL, &f) == TC_OK);
    CHECK(f->code->arena_bytes + f->code->kept_bytes < 16 * 32768 * 4);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
