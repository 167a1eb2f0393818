/* api/qr_svd_eig.c - QR, eigenvalue and singular value decomposition, and their gradients.
 *
 * In: matrices [..., m, n]. Out: their factors.
 *
 * Design: eigenvectors by Jacobi rotations for matrices of up to TCI_FACTOR_ROTATED rows, by divide
 * and conquer for larger ones. Singular vectors are eigenvectors of x^T x in f64 where x is
 * shorter, else by one-sided Jacobi, which needs few sweeps for triangular matrices (Drmac and
 * Veselic, SIAM J. Matrix Anal. Appl. 29, 2008), or of many rows eigenvectors of the symmetric
 * polar factor.
 *
 * Gradients do not go through these algorithms. A step of Newton's method is added to the factors
 * and its value subtracted again: its derivative is that of the factors, and after two such steps
 * so is the second derivative (refinement of Ogita and Aishima). */
#include "control_flow.h"
#include "reflectors_rotations.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

enum {
    TCI_FACTOR_MOST = 4096,
    TCI_FACTOR_ROTATED = 128 /* rows of matrices that rotations diagonalize */
};

/* Whether x is matrices that are small enough; square: of as many rows as columns. */
static bool tci_factor_takes(const tci_made *m, tc_tensor x, bool square, int64_t most,
                             tc_tensor *bad)
{
    const int rank = tc_rank(x);
    const int64_t rows = rank < 2 ? 0 : tc_size(x, -2), columns = rank < 2 ? 0 : tc_size(x, -1);
    const bool known = tci_dim_is_known(rows) && tci_dim_is_known(columns);
    if (rank < 2 || (square && rows != columns) || !tci_dtype_is_float(tc_dtype_of(x))) {
        *bad = tci_made_fail(m, rank < 2 || square ? TC_ERR_SHAPE : TC_ERR_DTYPE,
                             "given %s of rank %d: expected %smatrices of floats",
                             tci_dtype_get(tc_dtype_of(x))->name, rank, square ? "square " : "");
    } else if (!known || rows < 1 || columns < 1 || TCI_MIN(rows, columns) > most) {
        *bad = tci_made_fail(m, TC_ERR_LIMIT,
                             "matrices of %s rows and %s columns: expected "
                             "numbers of them, the lesser 1 to %d",
                             TCI_DIM_TEXT(rows), TCI_DIM_TEXT(columns), (int)most);
    } else {
        return true;
    }
    return false;
}

/* The value of x with the derivative of y. */
static tc_tensor tci_factor_like(tc_tensor x, tc_tensor y, tc_site here)
{
    return tc_add(x, tc_sub(y, tc_stop_gradient(y)));
}

/* ---- QR ---- */

static void tci_factor_triangle(const tci_made *m, tc_tensor a, tc_tensor *q, tc_tensor *r)
{
    tc_site here = m->here;
    tc_tensor scale = tci_factor_scale(m, a);
    tci_factor_qr(m, tc_div(a, scale), q, r);
    *r = tc_mul(*r, scale);
}

/* Two results of a matrix, either may be unused; square: only square matrices. */
static void tci_factor_two(const char *name, tc_tensor x, bool square,
                           void (*make)(const tci_made *, tc_tensor, tc_tensor *, tc_tensor *),
                           tc_tensor *first, tc_tensor *second, tc_site here)
{
    tci_made m;
    tc_tensor results[2];
    if (!tci_made_begin(&m, name, x, here)) {
        results[0] = results[1] = m.bad;
    } else if (tci_factor_takes(&m, x, square, TCI_FACTOR_MOST, &results[0])) {
        make(&m, tci_made_wide(&m, x), &results[0], &results[1]);
        results[0] = tci_made_round(&m, results[0]);
        results[1] = tci_made_round(&m, results[1]);
    } else {
        results[1] = results[0];
    }
    *(first ? first : &results[0]) = results[0];
    *(second ? second : &results[1]) = results[1];
}

TC_API void tc_qr_at(tc_tensor x, tc_tensor *q, tc_tensor *r, tc_site here)
{
    tci_factor_two("tc_qr", x, false, tci_factor_triangle, q, r, here);
}

/* ---- eigenvalues ---- */

/* v, whose columns are eigenvectors of a with the values w, with the derivatives of one more order
 * than it has; *values: so w. Columns of values that are equal up to rounding of the largest one
 * have none among each other. */
static tc_tensor tci_factor_refined(const tci_made *m, tc_tensor v, tc_tensor w, tc_tensor a,
                                    tc_tensor *values)
{
    tc_site here = m->here;
    const double epsilon = tc_dtype_of(v) == TC_F64 ? 0x1p-50 : 0x1p-21;
    tc_tensor turned = tci_factor_turned(v, here), one = tci_factor_one(m, v);
    tc_tensor inner = tc_matmul(turned, v), s = tc_matmul(turned, tc_matmul(a, v));
    tc_tensor own = tc_div(tc_diagonal(s, 0, -2, -1), tc_diagonal(inner, 0, -2, -1));
    *values = w = tci_factor_like(w, own, here);
    tc_tensor row = tc_unsqueeze(w, -2), column = tc_unsqueeze(w, -1), gap = tc_sub(row, column);
    tc_tensor size = tc_mul(tc_max(tc_abs(row), TC_AXES(-1), true), epsilon);
    tc_tensor equal = tc_le(tc_abs(gap), size);
    tc_tensor off = tc_div(tc_sub(s, tc_mul(inner, row)), tc_where(equal, 1, gap));
    off = tc_where(equal, tc_mul(tc_sub(one, inner), 0.5), off);
    return tci_factor_like(v, tc_matmul(v, off), here);
}

static tc_tensor tci_factor_eigenvectors(const tci_made *m, tc_tensor a)
{
    return tc_size(a, -1) > TCI_FACTOR_ROTATED ? tci_eigen_vectors(m, a) : tci_factor_rotated(m, a);
}

/* Values [..., n] from the least on, and vectors [..., n, n] as columns. */
static void tci_factor_eigen(const tci_made *m, tc_tensor x, tc_tensor *values, tc_tensor *vectors)
{
    tc_site here = m->here;
    tc_tensor order, w, twice, scale = tci_factor_scale(m, x), a = tc_div(x, scale);
    a = tc_mul(tc_add(a, tci_factor_turned(a, here)), 0.5);
    tc_tensor given = tc_stop_gradient(a), rows = tci_factor_eigenvectors(m, given);
    w = tc_sum(tc_mul(tc_matmul(rows, given), rows), TC_AXES(-1), false);
    tc_sort(w, -1, false, &w, &order);
    tc_tensor v = tci_factor_turned(tci_factor_ordered(rows, order, here), here);
    w = tc_stop_gradient(w);
    v = tci_factor_refined(m, tc_stop_gradient(v), w, a, &twice);
    *vectors = tci_factor_refined(m, v, w, a, values);
    *values = tc_mul(*values, tc_squeeze(scale, -1));
}

TC_API void tc_eigh_at(tc_tensor x, tc_tensor *values, tc_tensor *vectors, tc_site here)
{
    tci_factor_two("tc_eigh", x, true, tci_factor_eigen, values, vectors, here);
}

/* ---- singular values ---- */

/* u [..., m, n] that spans rows [..., n, m], which are orthogonal and shorten; those of length 0
 * become rows that are orthogonal to all others. */
static tc_tensor tci_factor_unit_columns(const tci_made *m, tc_tensor rows)
{
    tc_site here = m->here;
    tc_tensor u, r;
    tci_factor_qr(m, tci_factor_turned(rows, here), &u, &r);
    tc_tensor signs = tc_where(tc_lt(tc_diagonal(r, 0, -2, -1), 0), -1.0, 1.0);
    return tc_mul(u, tc_unsqueeze(tc_cast(signs, tc_dtype_of(rows)), -2));
}

enum { TCI_FACTOR_POLAR_STEPS = 6 };

/* x[0] [3]: weights of a step of the iteration that makes the singular values of carry[0] 1. */
static tc_status tci_factor_polar_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                       tc_tensor *next, tc_tensor *y)
{
    (void)y;
    const tci_factor *f = (const tci_factor *)user;
    tc_site here = f->m->here;
    const int64_t n = tc_size(carry[0], -1);
    tc_tensor q, r, weight[3];
    for (int i = 0; i < 3; i++) {
        weight[i] = tc_slice(x[0], 0, i, i + 1, 1);
    }
    tc_tensor one = tci_factor_one(f->m, carry[0]);
    tci_factor_qr(f->m, tc_cat(TC_TENSORS(tc_mul(carry[0], weight[0]), one), -2), &q, &r);
    tc_tensor lower = tci_factor_turned(tc_slice(q, -2, n, TC_END, 1), here);
    tc_tensor product = tc_matmul(tc_slice(q, -2, 0, n, 1), lower);
    next[0] = tc_add(tc_mul(carry[0], weight[1]), tc_mul(product, weight[2]));
    return TC_OK;
}

/* The orthogonal factor of square matrices a (a = it times a symmetric matrix) in f64, by the
 * dynamically weighted Halley iteration (Nakatsukasa, Bai and Gygi, SIAM J. Matrix Anal. Appl. 31,
 * 2010), whose weights do not depend on a but on the least singular value that counts. */
static tc_tensor tci_factor_polar(const tci_made *m, tc_tensor a)
{
    tc_site here = m->here;
    double weights[TCI_FACTOR_POLAR_STEPS][3], least = 0x1p-54;
    for (int i = 0; i < TCI_FACTOR_POLAR_STEPS; i++) {
        const double square = least * least, h = cbrt(4 * (1 - square) / (square * square));
        const double root = sqrt(1 + h);
        const double wa = root + sqrt(8 - 4 * h + 8 * (2 - square) / (square * root)) / 2;
        const double wb = (wa - 1) * (wa - 1) / 4, wc = wa + wb - 1;
        weights[i][0] = sqrt(wc);
        weights[i][1] = wb / wc;
        weights[i][2] = (wa - wb / wc) / sqrt(wc);
        least = fmin(least * (wa + wb * square) / (1 + wc * square), 1);
    }
    tc_tensor norm = tc_sqrt(tc_sum(tc_square(a), TC_AXES(-2, -1), true)), last;
    tc_tensor steps = tc_copy_in(m->ctx->handle, weights, TC_F64, TCI_FACTOR_POLAR_STEPS, 3);
    tci_factor f = {.m = m};
    tc_scan(TC_TENSORS(tc_div(a, tc_where(tc_eq(norm, 0), 1, norm))), TC_TENSORS(steps), 0, false,
            tci_factor_polar_step, &f, &last, NULL, 0);
    return last;
}

/* Orthonormal rows, whose images rows r^T are orthogonal up to some thousand epsilon of the largest
 * singular value, after a step towards images that are orthogonal up to rounding: without it the
 * images of vectors of the value 0 are not. Pairs of rows that turn by more than a small angle have
 * equal values and stay as they are. */
static tc_tensor tci_factor_separated(const tci_made *m, tc_tensor rows, tc_tensor r)
{
    tc_site here = m->here;
    const double most = 0x1p-14; /* its fourth power is rounding error */
    tc_tensor images = tc_matmul(rows, tci_factor_turned(r, here));
    tc_tensor product = tc_matmul(images, tci_factor_turned(images, here));
    tc_tensor square = tc_diagonal(product, 0, -2, -1);
    tc_tensor gap = tc_sub(tc_unsqueeze(square, -1), tc_unsqueeze(square, -2));
    tc_tensor turns = tc_lt(tc_abs(product), tc_mul(tc_abs(gap), most));
    tc_tensor angle = tc_where(turns, tc_div(product, tc_where(turns, gap, 1)), 0);
    rows = tc_add(rows, tc_matmul(angle, rows));
    tc_tensor inner = tc_matmul(rows, tci_factor_turned(rows, here));
    tc_tensor half = tc_mul(tc_sub(tci_factor_one(m, inner), inner), 0.5);
    return tc_add(rows, tc_matmul(half, rows));
}

/* u, s and v of a in f64 that has no fewer rows than columns and many of these, without
 * derivatives: v are the eigenvectors of the symmetric factor. */
static void tci_factor_singular_polar(const tci_made *m, tc_tensor a, tc_tensor *u, tc_tensor *s,
                                      tc_tensor *v)
{
    tc_site here = m->here;
    tc_tensor q, r, order;
    tci_factor_qr(m, a, &q, &r);
    tc_tensor symmetric = tc_matmul(tci_factor_turned(tci_factor_polar(m, r), here), r);
    symmetric = tc_mul(tc_add(symmetric, tci_factor_turned(symmetric, here)), 0.5);
    symmetric = tc_div(symmetric, tci_factor_scale(m, symmetric));
    tc_tensor rows = tci_factor_separated(m, tci_factor_eigenvectors(m, symmetric), r);
    tc_tensor images = tc_matmul(rows, tci_factor_turned(r, here));
    tc_sort(tc_sqrt(tc_sum(tc_square(images), TC_AXES(-1), false)), -1, true, s, &order);
    *u = tc_matmul(q, tci_factor_unit_columns(m, tci_factor_ordered(images, order, here)));
    *v = tci_factor_turned(tci_factor_ordered(rows, order, here), here);
}

/* u, s and v of a in f64 that has no fewer rows than columns, without derivatives. a = q r, and the
 * transpose of r once more so; the rows of that are what the rotations turn. */
static void tci_factor_singular(const tci_made *m, tc_tensor a, tc_tensor *u, tc_tensor *s,
                                tc_tensor *v)
{
    tc_site here = m->here;
    const int64_t n = tc_size(a, -1);
    tc_tensor q, r, other, order, turns;
    tci_factor_qr(m, a, &q, &r);
    tci_factor_qr(m, tci_factor_turned(r, here), &other, &r);
    tc_tensor rows = tc_cat(TC_TENSORS(r, tci_factor_one(m, r)), -1);
    rows = tci_factor_orthogonal(m, rows, n);
    tc_tensor front = tc_slice(rows, -1, 0, n, 1);
    tc_sort(tc_sqrt(tc_sum(tc_square(front), TC_AXES(-1), false)), -1, true, s, &order);
    rows = tci_factor_ordered(rows, order, here);
    turns = tci_factor_turned(tc_slice(rows, -1, n, TC_END, 1), here);
    *v = tc_matmul(other, turns);
    *u = tc_matmul(q, tci_factor_unit_columns(m, tc_slice(rows, -1, 0, n, 1)));
}

/* The same of a whose elements are f32 or shorter, in f64: eigenvectors of its Gram matrix. The
 * square of a value is off by 2^-52 of the largest square, so a value by 2^-26 of the largest value
 * at most, which f32 does not tell from 0. */
static void tci_factor_singular_short(const tci_made *m, tc_tensor a, tc_tensor *u, tc_tensor *s,
                                      tc_tensor *v)
{
    tc_site here = m->here;
    tc_tensor turned = tci_factor_turned(a, here), order;
    tc_tensor rows = tci_factor_eigenvectors(m, tc_matmul(turned, a));
    tc_tensor images = tc_matmul(rows, turned);
    tc_sort(tc_sqrt(tc_sum(tc_square(images), TC_AXES(-1), false)), -1, true, s, &order);
    *u = tci_factor_unit_columns(m, tci_factor_ordered(images, order, here));
    *v = tci_factor_turned(tci_factor_ordered(rows, order, here), here);
}

TC_API void tc_svd_at(tc_tensor x, tc_tensor *u, tc_tensor *s, tc_tensor *vh, tc_site here)
{
    tci_made m;
    tc_tensor results[3], *const to[3] = {u, s, vh};
    if (!tci_made_begin(&m, "tc_svd", x, here)) {
        results[0] = results[1] = results[2] = m.bad;
    } else if (tci_factor_takes(&m, x, false, TCI_FACTOR_MOST, &results[0])) {
        const bool wide = tc_size(x, -2) < tc_size(x, -1);
        /* in f64: of f32 a small value's vectors would have the errors of a large one's */
        tc_tensor a = tc_cast(x, TC_F64), scale = tci_factor_scale(&m, a), left, right, values,
                  squares;
        a = tc_div(wide ? tci_factor_turned(a, here) : a, scale);
        (tc_dtype_of(x) != TC_F64 ? tci_factor_singular_short
         : tc_size(a, -1) <= TCI_FACTOR_ROTATED
             ? tci_factor_singular
             : tci_factor_singular_polar)(&m, tc_stop_gradient(a), &left, &values, &right);
        left = tc_stop_gradient(left);
        values = tc_stop_gradient(values);
        tc_tensor gram = tc_matmul(tci_factor_turned(a, here), a);
        right = tci_factor_refined(&m, tc_stop_gradient(right), tc_square(values), gram, &squares);
        right = tci_factor_refined(&m, right, tc_square(values), gram, &squares);
        tc_tensor image = tc_matmul(a, right);
        tc_tensor norm = tc_sum(tc_square(image), TC_AXES(-2), false), none = tc_eq(norm, 0);
        norm = tc_sqrt(tc_where(none, 1, norm));
        left = tci_factor_like(left, tc_div(image, tc_unsqueeze(norm, -2)), here);
        results[0] = wide ? right : left;
        values = tci_factor_like(values, tc_where(none, 0, norm), here);
        results[1] = tc_mul(values, tc_squeeze(scale, -1));
        results[2] = tci_factor_turned(wide ? left : right, here);
        for (int i = 0; i < 3; i++) {
            results[i] = tci_made_round(&m, results[i]);
        }
    } else {
        results[1] = results[2] = results[0];
    }
    for (int i = 0; i < 3; i++) {
        *(to[i] ? to[i] : &results[i]) = results[i];
    }
}

#pragma pop_macro("TC_HERE")
