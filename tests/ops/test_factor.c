/* tests/ops/test_factor.c - factors by what they promise: their product is the matrix, columns are
 * orthogonal, values are in order; of any shape, of matrices that are singular, zero or have equal
 * values; and the loss of sequences against all their ways. */
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

static double off_orthogonal(tc_tensor q)
{
    tc_tensor one = tc_diag(tc_full(ctx, 1, tc_dtype_of(q), tc_size(q, -1)), 0);
    return most(tc_sub(tc_matmul(turned(q), q), one));
}

static void check_qr(const char *what, tc_tensor x, double bound)
{
    tc_tensor q, r;
    tc_qr(x, &q, &r);
    double size = fmax(most(x), 1e-30), off = most(tc_sub(tc_matmul(q, r), x)) / size;
    double below = most(tc_tril(r, -1)), turn = off_orthogonal(q);
    CHECK_MSG(off < bound && turn < bound && below == 0, "qr of %s: off by %.2g, %.2g, %.2g", what,
              off, turn, below);
}

static void check_svd(const char *what, tc_tensor x, double bound)
{
    tc_tensor u, s, vh;
    tc_svd(x, &u, &s, &vh);
    double size = fmax(most(x), 1e-30);
    double off = most(tc_sub(tc_matmul(tc_mul(u, tc_unsqueeze(s, -2)), vh), x)) / size;
    double left = off_orthogonal(u), right = off_orthogonal(turned(vh));
    double down = tc_size(s, -1) > 1 ? most(tc_relu(tc_diff(s, 1, -1, TC_NONE, TC_NONE))) : 0;
    CHECK_MSG(off < bound && left < bound && right < bound && down == 0,
              "svd of %s: off by %.2g, %.2g, %.2g, %.2g", what, off, left, right, down);
}

static void check_eigh(const char *what, tc_tensor x, double bound)
{
    tc_tensor w, v;
    x = tc_mul(tc_add(x, turned(x)), 0.5);
    tc_eigh(x, &w, &v);
    double size = fmax(most(x), 1e-30);
    double off = most(tc_sub(tc_matmul(x, v), tc_mul(v, tc_unsqueeze(w, -2)))) / size;
    double turn = off_orthogonal(v);
    double up = tc_size(w, -1) > 1 ? most(tc_relu(tc_neg(tc_diff(w, 1, -1, TC_NONE, TC_NONE)))) : 0;
    CHECK_MSG(off < bound && turn < bound && up == 0, "eigh of %s: off by %.2g, %.2g, %.2g", what,
              off, turn, up);
}

TEST(matrices_of_any_shape)
{
    static const int shapes[][2] = {{1, 1}, {1, 4}, {4, 1}, {2, 2},  {3, 3},
                                    {5, 2}, {2, 5}, {8, 8}, {16, 9}, {32, 32}};
    begin("interp");
    for (int i = 0; i < TCI_COUNT(shapes); i++) {
        const int m = shapes[i][0], n = shapes[i][1];
        char what[32];
        for (int wide = 0; wide < 2; wide++) {
            tc_dtype t = wide ? TC_F64 : TC_F32;
            double bound = wide ? 2e-14 : 1e-5;
            tc_tensor x = tc_param_from(tc_randn(ctx, i, t, 2, m, n));
            snprintf(what, sizeof(what), "%s %dx%d", wide ? "f64" : "f32", m, n);
            check_qr(what, x, bound);
            check_svd(what, x, bound);
            if (m == n) {
                check_eigh(what, x, bound);
            }
        }
    }
    tc_ctx_free(ctx);
}

TEST(singular_and_equal)
{
    begin("interp");
    tc_tensor ramp = tc_reshape(tc_arange(ctx, 0, 16, 1, TC_F64), 4, 4);
    tc_tensor one = tc_diag(tc_full(ctx, 1, TC_F64, 4), 0), all = tc_full(ctx, 1, TC_F64, 4, 4);
    tc_tensor far = tc_exp(tc_mul(tc_arange(ctx, 0, 4, 1, TC_F64), -8));
    const struct {
        const char *name;
        tc_tensor x;
    } cases[] = {{"zeros", tc_mul(all, 0)},
                 {"ones", all},
                 {"identity", one},
                 {"a ramp", ramp},
                 {"rank 1", tc_mul(far, tc_unsqueeze(far, 1))},
                 {"far apart", tc_mul(tc_add(ramp, one), far)},
                 {"large", tc_mul(tc_add(one, all), 1e100)},
                 {"negative", tc_neg(tc_add(one, all))}};
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        check_qr(cases[i].name, cases[i].x, 1e-14);
        check_svd(cases[i].name, cases[i].x, 1e-14);
        check_eigh(cases[i].name, cases[i].x, 1e-14);
    }
    tc_tensor w, s;
    tc_eigh(tc_add(one, all), &w, NULL); /* 1, 1, 1 and 5 */
    tc_svd(tc_neg(tc_add(one, all)), NULL, &s, NULL);
    tc_tensor want = tc_add(tc_mul(tc_eq(tc_arange(ctx, 0, 4, 1, TC_I64), 3), 4.0), 1.0);
    CHECK(most(tc_sub(w, want)) < 1e-14 && most(tc_sub(tc_flip(s, 0), want)) < 1e-14);
    tc_ctx_free(ctx);
}

/* Squares of these overflow or vanish; factors of x times a power of two are those of x. */
TEST(factors_do_not_depend_on_the_scale_of_a_matrix)
{
    static const struct {
        tc_dtype dtype;
        int power;
    } cases[] = {{TC_F32, 100},  {TC_F32, 66},  {TC_F32, -66},  {TC_F32, -100},
                 {TC_F64, 1000}, {TC_F64, 530}, {TC_F64, -530}, {TC_F64, -960}};
    begin("interp");
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        tc_tensor one = tc_param_from(tc_randn(ctx, 5, cases[i].dtype, 5, 5));
        tc_tensor x = tc_stack(TC_TENSORS(tc_mul(one, ldexp(1, cases[i].power)), one), 0);
        tc_tensor q, r, u, s, w, v;
        tc_tensor rows = tc_slice(x, -2, 0, 3, 1);
        double bound = cases[i].dtype == TC_F32 ? 5e-6 : 1e-14;
        tc_qr(x, &q, &r);
        tc_svd(rows, &u, &s, NULL);
        tc_eigh(tc_add(x, turned(x)), &w, &v);
        tc_tensor scaled[] = {r, s, w}, same[] = {q, u, v};
        for (int k = 0; k < 3; k++) {
            tc_tensor a = tc_slice(scaled[k], 0, 0, 1, 1), b = tc_slice(scaled[k], 0, 1, 2, 1);
            double off = most(tc_sub(tc_mul(a, ldexp(1, -cases[i].power)), b)) / most(b);
            double turn = most(tc_diff(same[k], 1, 0, TC_NONE, TC_NONE));
            CHECK_MSG(off < bound && turn < bound, "2^%d, factor %d: off by %.2g, %.2g",
                      cases[i].power, k, off, turn);
        }
        check_qr("scaled", tc_mul(one, ldexp(1, cases[i].power / 2)), bound);
    }
    tc_ctx_free(ctx);
}

TEST(compiled_factors)
{
    begin("cpu");
    tc_tensor x = tc_param_from(tc_randn(ctx, 3, TC_F32, 3, 6, 6));
    check_qr("compiled", x, 5e-6);
    check_svd("compiled", x, 5e-6);
    check_eigh("compiled", x, 5e-6);
    tc_ctx_free(ctx);
}

/* QR in panels of columns; singular, and with values far apart. */
TEST(large_matrices)
{
    begin("cpu");
    for (int wide = 0; wide < 2; wide++) {
        tc_dtype t = wide ? TC_F64 : TC_F32;
        double bound = wide ? 1e-13 : 5e-5;
        tc_tensor x = tc_param_from(tc_randn(ctx, 3, t, 2, 80, 64));
        tc_tensor square = tc_param_from(tc_randn(ctx, 4, t, 90, 90));
        tc_tensor few = tc_slice(square, 0, 0, 20, 1), far = tc_arange(ctx, 0, 64, 1, t);
        check_qr("2 of 80x64", x, bound);
        check_qr("64x80", turned(x), bound);
        check_svd("2 of 80x64", x, bound);
        check_svd("values far apart", tc_mul(x, tc_exp(tc_neg(far))), bound);
        check_eigh("90x90", square, bound);
        check_eigh("rank 20", tc_matmul(turned(few), few), bound);
    }
    tc_ctx_free(ctx);
}

enum { ROWS = 150 };
static double matrix[ROWS * ROWS], known[ROWS];

/* A symmetric matrix with known values, ascending in known[]; NULL after the last. */
static const char *large_symmetric(int which)
{
    static const char *const names[] = {"zeros",    "identity",     "ones", "second differences",
                                        "a mirror", "glued blocks", NULL};
    const double turn = 3.14159265358979323846 / (ROWS + 1);
    for (int i = 0; i < ROWS; i++) {
        known[i] = which == 1   ? 1
                   : which == 2 ? ROWS * (i == ROWS - 1)
                   : which == 3 ? 2 - 2 * cos((i + 1) * turn)
                   : which == 4 ? (i ? 1 : -1)
                   : which == 5 ? NAN /* Wilkinson's, almost decoupled */
                                : 0;
        for (int k = 0; k < ROWS; k++) {
            const bool own = i == k, next = abs(i - k) == 1;
            const double glued = TCI_MAX(i, k) % 21 ? 1 : 1e-8;
            matrix[i * ROWS + k] = which == 1   ? own
                                   : which == 2 ? 1
                                   : which == 3 ? 2 * own - next
                                   : which == 4 ? own - 2.0 / ROWS
                                   : which == 5 ? own * abs(i % 21 - 10) + next * glued
                                                : 0;
        }
    }
    return names[which];
}

/* Matrices that divide and conquer takes, most of whose values are equal or close; one program. */
TEST(large_matrices_with_equal_values)
{
    begin("cpu");
    tc_options quick = {.quick_build = true, .no_disk_cache = true};
    tc_tensor x = tc_input(ctx, "x", TC_F64, ROWS, ROWS), w, v, u, s, vh;
    tc_eigh(x, &w, &v);
    tc_svd(x, &u, &s, &vh);
    tc_tensor image = tc_matmul(tc_mul(u, tc_unsqueeze(s, -2)), vh);
    tc_tensor one = tc_diag(tc_full(ctx, 1, TC_F64, ROWS), 0), errors[5];
    errors[0] = tc_sub(tc_matmul(x, v), tc_mul(v, tc_unsqueeze(w, -2)));
    errors[1] = tc_sub(tc_matmul(turned(v), v), one);
    errors[2] = tc_sub(image, x);
    errors[3] = tc_sub(tc_matmul(turned(u), u), one);
    errors[4] = tc_sub(tc_matmul(vh, turned(vh)), one);
    for (int i = 0; i < 5; i++) {
        errors[i] = tc_max(tc_abs(errors[i]), TC_ALL, false);
    }
    tc_program *f;
    tc_tensor out[] = {w, errors[0], errors[1], errors[2], errors[3], errors[4]};
    REQUIRE(tc_compile_fn(TC_TENSORS(x), ((tc_tensors){out, 6}), &quick, &f) == TC_OK);
    const char *name;
    for (int which = 0; (name = large_symmetric(which)) != NULL; which++) {
        double values[ROWS], off[5];
        REQUIRE(tc_run(f, TC_BUFS(TC_BUF(matrix, ROWS * ROWS)),
                       TC_BUFS(TC_BUF(values, ROWS), TC_BUF(&off[0], 1), TC_BUF(&off[1], 1),
                               TC_BUF(&off[2], 1), TC_BUF(&off[3], 1), TC_BUF(&off[4], 1))) ==
                TC_OK);
        for (int i = 0; i < 5; i++) {
            CHECK_MSG(off[i] < 1e-12, "%s: error %d is %.2g", name, i, off[i]);
        }
        for (int i = 0; i < ROWS; i++) {
            CHECK_MSG(isnan(known[i]) || fabs(values[i] - known[i]) < 1e-12,
                      "%s: value %d is %.17g", name, i, values[i]);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Reflectors of equal rows round in one direction; only those of more than rounding error exist. */
TEST(vectors_of_equal_rows_are_orthogonal)
{
    begin("interp");
    tc_tensor w, v, ones = tc_full(ctx, 1, TC_F32, 300, 300);
    tc_eigh(tc_param_from(ones), &w, &v);
    tc_tensor one = tc_diag(tc_full(ctx, 1, TC_F64, 300), 0), wide = tc_cast(v, TC_F64);
    double turn = most(tc_sub(tc_matmul(turned(wide), wide), one));
    CHECK_MSG(turn < 2e-6, "off by %.2g", turn);
    tc_ctx_free(ctx);
}

/* Eigenvalues in a cluster at zero take more sweeps; the triangle of a matrix of rank 2 has
 * columns whose squares have no digits left. */
TEST(clusters_and_vanishing_columns)
{
    begin("cpu");
    tc_tensor i = tc_arange(ctx, 0, 31, 1, TC_F64), k = tc_arange(ctx, 0, 160, 1, TC_F64);
    tc_tensor hilbert = tc_div(1, tc_add(tc_add(i, 1), tc_unsqueeze(i, 1)));
    tc_tensor board = tc_remainder(tc_add(k, tc_unsqueeze(k, 1)), 2);
    check_eigh("Hilbert's matrix of 31", tc_param_from(hilbert), 1e-13);
    check_svd("a board of 160", tc_param_from(board), 1e-12);
    tc_tensor graded = tc_triu(tc_sub(tc_diag(tc_full(ctx, 1.9, TC_F64, 160), 0), 0.9), 0);
    check_svd("a triangle of 160", tc_param_from(graded), 1e-12);
    tc_tensor far = tc_exp2(tc_mul(tc_arange(ctx, 0, 4, 1, TC_F32), -23));
    check_qr("columns far apart", tc_param_from(tc_mul(tc_randn(ctx, 3, TC_F32, 6, 4), far)), 5e-6);
    tc_ctx_free(ctx);
}

TEST(what_has_no_factors)
{
    tc_tensor a, b, c;
    begin("interp");
    tc_eigh(tc_full(ctx, 1, TC_F32, 2, 3), &a, &b);
    CHECK(strstr(tc_error(a), "tc_eigh: given f32 of rank 2: expected square matrices") != NULL);
    CHECK_EQ_INT(tc_status_of(b), TC_ERR_SHAPE);
    tc_svd(tc_full(ctx, 1, TC_F32, 0, 3), &a, &b, &c);
    CHECK_EQ_INT(tc_status_of(c), TC_ERR_LIMIT);
    tc_qr(tc_full(ctx, 1, TC_I32, 3, 3), &a, NULL);
    CHECK_EQ_INT(tc_status_of(a), TC_ERR_DTYPE);
    tc_qr(tc_full(ctx, 1, TC_F32, 5000, 5000), NULL, &a);
    CHECK(strstr(tc_error(a), "5000 rows and 5000 columns") != NULL);
    tc_ctx_free(ctx);
}

/* ---- sequences ---- */

enum { TIMES = 4, CLASSES = 3 };

/* Of all rows of classes those that say the target, by hand. */
static double by_all_ways(const double *logs, int times, const int *target, int n)
{
    double sum = 0;
    int ways = 1;
    for (int i = 0; i < times; i++) {
        ways *= CLASSES;
    }
    for (int way = 0; way < ways; way++) {
        int said = 0, before = 0, rest = way;
        bool right = true;
        double p = 0;
        for (int t = 0; t < times; t++, rest /= CLASSES) {
            int c = rest % CLASSES;
            if (c && c != before) {
                right = right && said < n && target[said] == c;
                said++;
            }
            before = c;
            p += logs[t * CLASSES + c];
        }
        sum += right && said == n ? exp(p) : 0;
    }
    return -log(sum);
}

TEST(sequences)
{
    static const int targets[4][3] = {{1, 2, 1}, {1, 1, 0}, {2, 9, 9}, {1, 1, 1}};
    static const int times[4] = {4, 3, 4, 4}, lengths[4] = {3, 2, 0, 3};
    double logs[TIMES * 4 * CLASSES], got[4], mean;
    begin("interp");
    tc_tensor x = tc_log_softmax(tc_param_from(tc_randn(ctx, 5, TC_F64, TIMES, 4, CLASSES)), -1);
    tc_tensor t = tc_copy_in(ctx, targets, TC_I32, 4, 3);
    tc_tensor n = tc_copy_in(ctx, times, TC_I32, 4), m = tc_copy_in(ctx, lengths, TC_I32, 4);
    REQUIRE(tc_read(x, logs, TIMES * 4 * CLASSES) == TC_OK);
    tc_tensor loss = tc_ctc_loss(x, t, n, m, 0, TC_REDUCE_NONE, false);
    CHECK_MSG(tc_read(loss, got, 4) == TC_OK, "%s", tc_error(loss));
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        double own[TIMES * CLASSES];
        for (int k = 0; k < TIMES * CLASSES; k++) {
            own[k] = logs[(k / CLASSES * 4 + i) * CLASSES + k % CLASSES];
        }
        double want = by_all_ways(own, times[i], targets[i], lengths[i]);
        CHECK_MSG(isinf(want) ? isinf(got[i]) : fabs(got[i] - want) < 1e-13, "sequence %d: %g, %g",
                  i, got[i], want);
        sum += isinf(want) ? 0 : want / (lengths[i] ? lengths[i] : 1);
    }
    CHECK(isinf(got[3])); /* three alike take two blanks between them */
    loss = tc_ctc_loss(x, t, n, m, 0, TC_REDUCE_MEAN, true);
    REQUIRE(tc_read(loss, &mean, 1) == TC_OK);
    CHECK(fabs(mean - sum / 4) < 1e-13);
    CHECK_EQ_INT(tc_status_of(tc_ctc_loss(x, n, n, m, 0, TC_REDUCE_MEAN, true)), TC_ERR_SHAPE);
    tc_ctx_free(ctx);
}

TEST_MAIN
