/* ops/linear.c - linear algebra of square matrices, batched: their factors and what follows.
 *
 * In: matrices [..., n, n], n a number. Out: the rows LU, CHOLESKY, SOLVE and SOLVE_TRIANGULAR, in
 * the dtype that they are computed in, and nodes around them; ops/eliminate.c expands these rows.
 * The one idea: a matrix is factored once, as LU, and whatever is asked of it reads the factors. */
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
    return shape ? tci_words_put(g, &w, tci_build_node(g, TCI_OP_LU, (tc_dtype)m->dtype, m->rank,
                                                       shape, 1, &m, 0, NULL))
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
    tci_node *lu = tci_linear_lu(g, m, n), *odd = tci_linear_is_odd(g, lu, n);
    tci_node *own = tci_build_diagonal(g, tci_build_slice(g, lu, -2, 0, n, 1), 0, -2, -1);
    int last = x->rank - 2;
    const tc_axes columns = {&last, 1, false};
    if (which == TCI_DET_LOG) {
        own = tci_composite_unary(g, TCI_OP_LOG, tci_composite_unary(g, TCI_OP_ABS, own));
        own = tci_build_reduce(g, TCI_OP_SUM, own, columns, false);
    } else {
        own = which == TCI_DET_SIGN ? tci_composite_unary(g, TCI_OP_SIGN, own) : own;
        own = tci_build_reduce(g, TCI_OP_PROD, own, columns, false);
        own = tci_build_where(g, odd, tci_composite_unary(g, TCI_OP_NEG, own), own);
    }
    return tci_build_cast(g, own, (tc_dtype)x->dtype);
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
    m = tci_composite_binary(g, TCI_OP_MUL, m, tci_composite_number(g, m ? (tc_dtype)m->dtype
                                                                         : TC_F32, 0.5));
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
        r = tci_build_node(g, TCI_OP_SOLVE_TRIANGULAR, (tc_dtype)r->dtype, r->rank, r->shape, 2,
                           in, 1, words);
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
