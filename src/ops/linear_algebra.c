/* ops/linear_algebra.c - linear algebra of batched square matrices: LU, determinant, inverse,
 * solves.
 *
 * In: matrices [..., n, n], n known at compile time (not symbolic). Out: the rows LU, CHOLESKY,
 * SOLVE and SOLVE_TRIANGULAR, in the dtype that they are computed in, and nodes around them;
 * ops/lu_cholesky.c expands these rows. A matrix is factored once, as LU, and all derived results
 * read the factors. */
#include "composite.h"

#include <inttypes.h>

enum { TCI_LINEAR_MOST = 4096 }; /* rows of a matrix */

/* x as square matrices in the dtype that they are computed in; *n: their rows. */
static tci_node *tci_linear_square(tci_graph *g, tci_node *x, int64_t *n)
{
    if (!x) {
        return NULL;
    }
    bool square = x->rank >= 2 && x->shape[x->rank - 1] == x->shape[x->rank - 2];
    if (!square || !tci_dtype_is_float((tc_dtype)x->dtype)) {
        tci_graph_fail(g, square ? TC_ERR_DTYPE : TC_ERR_SHAPE,
                       "given %s of shape %s: expected square matrices [..., n, n] of floats",
                       tci_dtype_get((tc_dtype)x->dtype)->name, TCI_SHAPE_TEXT(x));
        return NULL;
    }
    const tci_dim rows = x->shape[x->rank - 1];
    if (!tci_dim_is_known(rows) || !tci_dim_le(rows, TCI_LINEAR_MOST)) {
        tci_graph_fail(g, TC_ERR_LIMIT, "matrices of %s rows: expected a number of at most %d",
                       TCI_DIM_TEXT(rows), TCI_LINEAR_MOST);
        return NULL;
    }
    *n = tci_dim_known(rows);
    return tci_build_cast(g, x, tci_composite_math(x));
}

/* ---- solutions ---- */

/* x with the axes of `other` before the last two where its own are 1 or missing. */
static tci_node *tci_linear_batch(tci_graph *g, tci_node *x, const tci_node *other)
{
    tci_words w;
    const int rank = TCI_MAX(x->rank, other->rank);
    tci_dim *shape = tci_words_dims(g, &w, rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        int at = i - (rank - x->rank), from = i - (rank - other->rank);
        tci_dim own = at < 0 ? 1 : x->shape[at];
        shape[i] = own == 1 && from >= 0 && i < rank - 2 ? other->shape[from] : own;
    }
    return tci_words_put(g, &w, tci_build_expand(g, x, rank, shape));
}

/* a and b with equal axes before the last two. */
static bool tci_linear_meet(tci_graph *g, tci_node **a, tci_node **b)
{
    const tci_node *first = *a;
    *a = tci_linear_batch(g, *a, *b);
    *b = *a ? tci_linear_batch(g, *b, first) : NULL;
    bool same = *a && *b;
    for (int i = 0; same && i < (*a)->rank - 2; i++) {
        same = (*a)->shape[i] == (*b)->shape[i];
    }
    if (*a && *b && !same) {
        tci_graph_fail(g, TC_ERR_SHAPE, "batches of shapes %s and %s do not broadcast",
                       TCI_SHAPE_TEXT(*a), TCI_SHAPE_TEXT(*b));
    }
    return same;
}

/* m = P' L U as one node [..., n + 1, n]; who solves with it has gradients of its own. */
static tci_node *tci_linear_lu(tci_graph *g, tci_node *m, int64_t n)
{
    tci_words w;
    tci_dim *shape = tci_words_dims(g, &w, m->rank);
    for (int i = 0; shape && i < m->rank; i++) {
        shape[i] = i == m->rank - 2 ? n + 1 : m->shape[i];
    }
    return shape ? tci_words_put(g, &w,
                                 tci_build_node(g, TCI_OP_LU, (tc_dtype)m->dtype, m->rank, shape, 1,
                                                &m, 0, NULL))
                 : NULL;
}

TCI_FN tci_node *tci_build_solved(tci_graph *g, tci_node *a, tci_node *lu, tci_node *b,
                                  bool transposed)
{
    tci_node *in[3] = {a, lu, b};
    const int64_t words[1] = {transposed};
    return b ? tci_build_node(g, TCI_OP_SOLVE, (tc_dtype)b->dtype, b->rank, b->shape, 3, in, 1,
                              words)
             : NULL;
}

TCI_FN tci_node *tci_build_solve(tci_graph *g, tci_node *a, tci_node *b)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, a, &n);
    if (!m || !b) {
        return NULL;
    }
    bool vector = b->rank == 1 || (b->rank == a->rank - 1 &&
                                   tci_build_same_shape(b->rank, b->shape, b->rank, a->shape));
    tci_node *right = vector ? tci_build_unsqueeze(g, b, -1) : b;
    if (!right || b->dtype != a->dtype || right->rank < 2 || right->shape[right->rank - 2] != n) {
        tci_graph_fail(g, b->dtype != a->dtype ? TC_ERR_DTYPE : TC_ERR_SHAPE,
                       "a is %s of shape %s and b %s of shape %s: expected one dtype, [..., n, n] "
                       "and [..., n, k] or [..., n]",
                       tci_dtype_get((tc_dtype)a->dtype)->name, TCI_SHAPE_TEXT(a),
                       tci_dtype_get((tc_dtype)b->dtype)->name, TCI_SHAPE_TEXT(b));
        return NULL;
    }
    right = tci_build_cast(g, right, (tc_dtype)m->dtype);
    tci_node *lu = n ? tci_build_stop_gradient(g, tci_linear_lu(g, m, n)) : m;
    if (!right || !lu || !tci_linear_meet(g, &m, &right)) {
        return NULL;
    }
    lu = n ? tci_linear_batch(g, lu, right) : NULL;
    m = lu ? tci_build_solved(g, m, lu, right, false) : n ? NULL : right;
    m = tci_build_cast(g, m, (tc_dtype)a->dtype);
    return vector ? tci_build_squeeze(g, m, -1) : m;
}

/* Ones on the diagonal of matrices like x. */
static tci_node *tci_linear_one(tci_graph *g, const tci_node *x, int64_t n)
{
    tci_node *same = tci_composite_binary(g, TCI_OP_EQ, tci_composite_ramp(g, n, 2, 0),
                                          tci_composite_ramp(g, n, 2, 1));
    same = tci_build_cast(g, same, (tc_dtype)x->dtype);
    return same ? tci_build_broadcast(g, same, x->rank, x->shape) : NULL;
}

TCI_FN tci_node *tci_build_inv(tci_graph *g, tci_node *x)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, x, &n);
    return m && n ? tci_build_solve(g, x, tci_linear_one(g, x, n)) : m ? x : NULL;
}

/* Whether the rows of a changed places an odd number of times: the pairs that stand in another
 * order, [...]. */
static tci_node *tci_linear_is_odd(tci_graph *g, tci_node *lu, int64_t n)
{
    tci_node *order = tci_build_cast(g, tci_build_slice(g, lu, -2, n, n + 1, 1), TC_I64);
    tci_node *above = tci_build_transpose(g, order, -1, -2);
    tci_node *mask = tci_build_triangle_mask(g, n, n, 1, false);
    above = tci_composite_binary(g, TCI_OP_GT, above, order);
    above = tci_composite_binary(g, TCI_OP_LOGICAL_AND, above, mask);
    if (!above) {
        return NULL;
    }
    int last[2] = {above->rank - 2, above->rank - 1};
    const tc_axes both = {last, 2, false};
    tci_node *count = tci_build_reduce(g, TCI_OP_SUM, above, both, false);
    count = tci_composite_binary(g, TCI_OP_BITWISE_AND, count, tci_composite_whole(g, 1));
    return tci_build_cast(g, count, TC_BOOL);
}

static tci_node *tci_linear_pivots(tci_graph *g, tci_node *lu, int64_t n)
{
    return tci_build_diagonal(g, tci_build_slice(g, lu, -2, 0, n, 1), 0, -2, -1);
}

static tci_node *tci_linear_det(tci_graph *g, tci_node *m, int64_t n, tci_det which)
{
    tci_node *lu = tci_linear_lu(g, m, n), *odd = tci_linear_is_odd(g, lu, n);
    tci_node *own = tci_linear_pivots(g, lu, n);
    int last = m->rank - 2;
    const tc_axes columns = {&last, 1, false};
    if (which == TCI_DET_LOG) {
        own = tci_composite_unary(g, TCI_OP_LOG, tci_composite_unary(g, TCI_OP_ABS, own));
        own = tci_build_reduce(g, TCI_OP_SUM, own, columns, false);
    } else {
        own = which == TCI_DET_SIGN ? tci_composite_unary(g, TCI_OP_SIGN, own) : own;
        own = tci_build_reduce(g, TCI_OP_PROD, own, columns, false);
        own = tci_build_where(g, odd, tci_composite_unary(g, TCI_OP_NEG, own), own);
    }
    return own;
}

/* ---- determinants that can be differentiated where they are 0 ---- */

enum { TCI_LINEAR_LOST = 3 }; /* pivots of 0 whose derivatives are not all 0 */

/* Columns of n elements with rows put back where those of m were: element i to order[i]. */
static tci_node *tci_linear_unordered(tci_graph *g, tci_node *lu, int64_t n, tci_node *columns)
{
    tci_node *order = tci_build_cast(g, tci_build_slice(g, lu, -2, n, n + 1, 1), TC_I64);
    order = tci_build_transpose(g, order, -1, -2);
    tci_node *zero = columns ? tci_composite_number(g, (tc_dtype)columns->dtype, 0) : NULL;
    if (!zero || !order) {
        return NULL;
    }
    order = tci_build_broadcast(g, order, columns->rank, columns->shape);
    zero = tci_build_broadcast(g, zero, columns->rank, columns->shape);
    return tci_build_scatter(g, zero, -2, order, columns, TCI_MODE_SET);
}

static tci_node *tci_linear_minor(tci_graph *g, tci_node *m, const int rows[2],
                                  const int columns[2])
{
    tci_node *part[2];
    for (int i = 0; i < 2; i++) {
        tci_node *at[2];
        for (int k = 0; k < 2; k++) {
            const int row = rows[k], column = columns[i ? 1 - k : k];
            at[k] = tci_build_slice(g, tci_build_slice(g, m, -2, row, row + 1, 1), -1, column,
                                    column + 1, 1);
        }
        part[i] = tci_composite_binary(g, TCI_OP_MUL, at[0], at[1]);
    }
    return tci_composite_binary(g, TCI_OP_SUB, part[0], part[1]);
}

/* Of [..., 3, 3], as a polynomial: [..., 1, 1]. */
static tci_node *tci_linear_small_det(tci_graph *g, tci_node *m)
{
    static const int rows[2] = {1, 2}, columns[3][2] = {{1, 2}, {2, 0}, {0, 1}};
    tci_node *sum = NULL;
    for (int i = 0; i < TCI_LINEAR_LOST; i++) {
        tci_node *at = tci_build_slice(g, tci_build_slice(g, m, -2, 0, 1, 1), -1, i, i + 1, 1);
        at = tci_composite_binary(g, TCI_OP_MUL, at, tci_linear_minor(g, m, rows, columns[i]));
        sum = sum ? tci_composite_binary(g, TCI_OP_ADD, sum, at) : at;
    }
    return sum;
}

/* The largest size of m's elements, [..., 1, 1]; 1 where all are 0. A constant to gradients. */
static tci_node *tci_linear_size(tci_graph *g, tci_node *m)
{
    int last[2] = {m->rank - 2, m->rank - 1};
    const tc_axes both = {last, 2, false};
    tci_node *size = tci_composite_unary(g, TCI_OP_ABS, tci_build_stop_gradient(g, m));
    size = tci_build_reduce(g, TCI_OP_MAX, size, both, true);
    tci_node *zero = tci_composite_number(g, (tc_dtype)m->dtype, 0);
    tci_node *one = tci_composite_number(g, (tc_dtype)m->dtype, 1);
    return tci_build_where(g, tci_composite_binary(g, TCI_OP_EQ, size, zero), one, size);
}

/* Pivots that are 0, or among the TCI_LINEAR_LOST smallest and below 2^-26 (f32: 2^-12) of the
 * matrix's size: [..., n]. *chosen: columns of the identity for the latter, or zeros, [..., n,
 * TCI_LINEAR_LOST]. */
static tci_node *tci_linear_lost(tci_graph *g, tci_node *pivots, tci_node *size, int64_t n,
                                 tci_node **chosen)
{
    const tc_dtype t = pivots ? (tc_dtype)pivots->dtype : TC_F32;
    const int64_t few = TCI_MIN(n, TCI_LINEAR_LOST);
    tci_node *p = tci_composite_unary(g, TCI_OP_ABS, pivots);
    tci_node *least = tci_composite_number(g, t, t == TC_F64 ? 0x1p-26 : 0x1p-12);
    least = tci_composite_binary(g, TCI_OP_MUL, tci_build_squeeze(g, size, -1), least);
    tci_node *small = tci_composite_binary(g, TCI_OP_LE, p, least);
    tci_node *at = tci_build_unsqueeze(g, tci_build_topk(g, p, -1, few, false), -2);
    tci_node *here = tci_composite_binary(g, TCI_OP_EQ, at, tci_composite_ramp(g, n, 2, 0));
    here = tci_composite_binary(g, TCI_OP_LOGICAL_AND, here, tci_build_unsqueeze(g, small, -1));
    if (!here || !p) {
        return NULL;
    }
    int last = here->rank - 1;
    const tc_axes columns = {&last, 1, false};
    small = tci_build_reduce(g, TCI_OP_ANY, here, columns, false);
    tci_node *zero = tci_composite_number(g, t, 0);
    here = tci_build_cast(g, here, t);
    *chosen = tci_build_pad(g, here, -1, 0, TCI_LINEAR_LOST - few, zero);
    return tci_composite_binary(g, TCI_OP_LOGICAL_OR, small,
                                tci_composite_binary(g, TCI_OP_EQ, p, zero));
}

/* The determinant as an expression that is smooth, and computed accurately, where pivots are 0 or
 * nearly so. With m = P' L U and w' = P' L s, s a column of the identity for each lost pivot times
 * the size of the matrix, m + w' has a pivot of that size more, and
 *     det(m) = det(m + w e') det(1 - e' (m + w e')^-1 w)
 * whatever w and e are (the matrix determinant lemma): w and e are constants, and the second factor
 * has as many rows as pivots are lost. Where more than TCI_LINEAR_LOST are 0 the derivatives up to
 * the TCI_LINEAR_LOST-th are 0. */
static tci_node *tci_linear_smooth_det(tci_graph *g, tci_node *m, int64_t n)
{
    tci_node *lu = tci_build_stop_gradient(g, tci_linear_lu(g, m, n)), *chosen = NULL;
    tci_node *size = tci_linear_size(g, m), *pivots = tci_linear_pivots(g, lu, n);
    tci_node *lost = tci_linear_lost(g, pivots, size, n, &chosen);
    tci_node *none = tci_composite_number(g, (tc_dtype)m->dtype, 0);
    tci_node *w = tci_build_triangle(g, tci_build_slice(g, lu, -2, 0, n, 1), -1, true);
    w = tci_composite_binary(g, TCI_OP_ADD, w, tci_linear_one(g, m, n));
    w = tci_composite_binary(g, TCI_OP_MUL, w, size);
    w = tci_build_where(g, tci_build_unsqueeze(g, lost, -2), w, none);
    w = tci_linear_unordered(g, lu, n, w);
    tci_node *regular = tci_composite_binary(g, TCI_OP_ADD, m, w);
    w = tci_build_solve(g, regular, tci_build_matmul(g, w, chosen));
    w = tci_build_matmul(g, tci_build_transpose(g, chosen, -1, -2), w);
    w = w ? tci_composite_binary(g, TCI_OP_SUB, tci_linear_one(g, w, TCI_LINEAR_LOST), w) : NULL;
    w = tci_build_squeeze(g, tci_build_squeeze(g, tci_linear_small_det(g, w), -1), -1);
    tci_node *r = regular ? tci_linear_det(g, regular, n, TCI_DET_VALUE) : NULL;
    r = tci_composite_binary(g, TCI_OP_MUL, r, w);
    tci_node *zeros = tci_composite_binary(g, TCI_OP_EQ, pivots, none);
    if (!zeros) {
        return NULL;
    }
    int last = zeros->rank - 1;
    const tc_axes columns = {&last, 1, false};
    zeros = tci_build_reduce(g, TCI_OP_SUM, zeros, columns, false);
    tci_node *few = tci_composite_binary(g, TCI_OP_LE, zeros,
                                         tci_composite_whole(g, TCI_LINEAR_LOST));
    return tci_build_where(g, few, r, none);
}

TCI_FN tci_node *tci_build_det(tci_graph *g, tci_node *x, tci_det which)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, x, &n);
    if (!m) {
        return NULL;
    }
    if (n == 0) {
        tci_node *none = tci_composite_number(g, (tc_dtype)x->dtype, which == TCI_DET_LOG ? 0 : 1);
        return tci_build_broadcast(g, none, x->rank - 2, x->shape);
    }
    tci_node *r = tci_linear_det(g, m, n, which);
    if (which == TCI_DET_VALUE) {
        r = tci_build_with_derivative(g, tci_linear_smooth_det(g, m, n), r);
    }
    return tci_build_cast(g, r, (tc_dtype)x->dtype);
}

/* ---- factors ---- */

/* Element [i, j] of P is 1 where row i of x is row j of L U. */
static tci_node *tci_linear_permutation(tci_graph *g, tci_node *lu, int64_t n)
{
    tci_node *order = tci_build_cast(g, tci_build_slice(g, lu, -2, n, n + 1, 1), TC_I64);
    tci_node *same = tci_composite_binary(g, TCI_OP_EQ, tci_composite_ramp(g, n, 2, 0), order);
    return tci_build_cast(g, same, lu ? (tc_dtype)lu->dtype : TC_F32);
}

TCI_FN tci_node *tci_build_lu(tci_graph *g, tci_node *x, tci_lu_part part)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, x, &n);
    if (!m || n == 0) {
        return m ? x : NULL;
    }
    tci_node *lu = tci_linear_lu(g, m, n), *factors = tci_build_slice(g, lu, -2, 0, n, 1), *r;
    if (part == TCI_LU_P) {
        r = tci_linear_permutation(g, lu, n);
    } else if (part == TCI_LU_U) {
        r = tci_build_triangle(g, factors, 0, false);
    } else {
        r = tci_composite_binary(g, TCI_OP_ADD, tci_build_triangle(g, factors, -1, true),
                                 tci_linear_one(g, m, n));
    }
    return tci_build_cast(g, r, (tc_dtype)x->dtype);
}

TCI_FN tci_node *tci_build_cholesky(tci_graph *g, tci_node *x, bool upper)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, x, &n);
    if (!m || n == 0) {
        return m ? x : NULL;
    }
    m = tci_composite_binary(g, TCI_OP_ADD, m, tci_build_transpose(g, m, -1, -2));
    m = tci_composite_binary(g, TCI_OP_MUL, m,
                             tci_composite_number(g, m ? (tc_dtype)m->dtype : TC_F32, 0.5));
    m = m ? tci_build_node(g, TCI_OP_CHOLESKY, (tc_dtype)m->dtype, m->rank, m->shape, 1, &m, 0,
                           NULL)
          : NULL;
    m = tci_build_cast(g, m, (tc_dtype)x->dtype);
    return upper ? tci_build_transpose(g, m, -1, -2) : m;
}

TCI_FN tci_node *tci_build_solve_triangular(tci_graph *g, tci_node *a, tci_node *b, bool upper,
                                            bool left, bool unitriangular)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, a, &n);
    if (!m || !b) {
        return NULL;
    }
    if (b->rank < 2 || b->dtype != a->dtype || b->shape[b->rank - (left ? 2 : 1)] != n) {
        tci_graph_fail(g, b->dtype != a->dtype ? TC_ERR_DTYPE : TC_ERR_SHAPE,
                       "a is %s of shape %s and b %s of shape %s: expected one dtype, [..., n, n] "
                       "and %s",
                       tci_dtype_get((tc_dtype)a->dtype)->name, TCI_SHAPE_TEXT(a),
                       tci_dtype_get((tc_dtype)b->dtype)->name, TCI_SHAPE_TEXT(b),
                       left ? "[..., n, k]" : "[..., k, n]");
        return NULL;
    }
    if (!left) { /* x a = b is a^T x^T = b^T */
        tci_node *x = tci_build_solve_triangular(g, tci_build_transpose(g, a, -1, -2),
                                                 tci_build_transpose(g, b, -1, -2), !upper, true,
                                                 unitriangular);
        return tci_build_transpose(g, x, -1, -2);
    }
    tci_node *r = tci_build_cast(g, b, (tc_dtype)m->dtype);
    if (!tci_linear_meet(g, &m, &r)) {
        return NULL;
    }
    if (upper) { /* rows and columns in reverse are those of a lower one */
        m = tci_build_flip(g, tci_build_flip(g, m, -1), -2);
        r = tci_build_flip(g, r, -2);
    }
    if (n) {
        tci_node *in[2] = {m, r};
        const int64_t words[1] = {unitriangular};
        r = tci_build_node(g, TCI_OP_SOLVE_TRIANGULAR, (tc_dtype)r->dtype, r->rank, r->shape, 2, in,
                           1, words);
    }
    r = upper ? tci_build_flip(g, r, -2) : r;
    return tci_build_cast(g, r, (tc_dtype)b->dtype);
}

TCI_FN tci_node *tci_build_matrix_power(tci_graph *g, tci_node *x, int64_t power)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, x, &n), *r = NULL;
    if (!m || power > INT32_MAX || power < -INT32_MAX) {
        return m ? (tci_graph_fail(g, TC_ERR_ARGUMENT, "the power is %" PRId64, power), NULL)
                 : NULL;
    }
    m = power < 0 ? tci_build_inv(g, m) : m;
    for (int64_t left = power < 0 ? -power : power; left; left >>= 1) {
        if (left & 1) {
            r = r ? tci_build_matmul(g, r, m) : m;
        }
        m = left > 1 ? tci_build_matmul(g, m, m) : m;
    }
    return tci_build_cast(g, r ? r : m ? tci_linear_one(g, m, n) : NULL, (tc_dtype)x->dtype);
}
