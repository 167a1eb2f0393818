/* ops/linear.c - linear algebra of small matrices, batched: elimination, factors, what follows.
 *
 * In: matrices [..., n, n], n a number. Out: for each of n steps the update of what is left of all
 * matrices at once, as elementwise nodes over smaller and smaller parts; rows change places by
 * reading at an index.
 * The one idea: a step is a rank-one update, which needs no loop over elements, and its gradient
 * follows. Elimination takes the largest element of a column as its pivot. */
#include "composite.h"

#include <inttypes.h>

enum { TCI_LINEAR_MOST = 256 }; /* steps: a program has some nodes for each */

/* ---- parts of matrices ---- */

/* Rows from `row` on, and columns from `column` on; so many, or all that are left. */
static tci_node *tci_linear_part(tci_graph *g, tci_node *m, int64_t row, int64_t rows,
                                 int64_t column, int64_t columns)
{
    m = tci_build_slice(g, m, -2, row, rows < 0 ? INT64_MAX : row + rows, 1);
    return tci_build_slice(g, m, -1, column, columns < 0 ? INT64_MAX : column + columns, 1);
}

/* a - b * c */
static tci_node *tci_linear_less(tci_graph *g, tci_node *a, tci_node *b, tci_node *c)
{
    return tci_composite_binary(g, TCI_OP_SUB, a, tci_composite_binary(g, TCI_OP_MUL, b, c));
}

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

/* m with the row that has the largest element in column 0, of those from `first` on, in the place
 * of row `first`. *swapped: whether it is another, [..., 1, 1]. */
static tci_node *tci_linear_pivot(tci_graph *g, tci_node *m, int64_t first, tci_node **swapped)
{
    int rows = m->rank - 2;
    tc_axes axis = {&rows, 1, false};
    tci_node *column = tci_linear_part(g, m, first, -1, 0, 1);
    column = tci_composite_unary(g, TCI_OP_ABS, column);
    tci_node *at = tci_build_reduce(g, TCI_OP_ARGMAX, column, axis, true);
    tci_node *own = tci_composite_whole(g, first);
    at = tci_composite_binary(g, TCI_OP_ADD, at, own);
    tci_node *row = tci_composite_ramp(g, m->shape[rows], m->rank, rows);
    tci_node *other = tci_build_where(g, tci_composite_binary(g, TCI_OP_EQ, row, at), own, row);
    other = tci_build_where(g, tci_composite_binary(g, TCI_OP_EQ, row, own), at, other);
    *swapped = tci_composite_binary(g, TCI_OP_NE, at, own);
    other = other ? tci_build_broadcast(g, other, m->rank, m->shape) : NULL;
    return tci_build_gather(g, m, rows, other);
}

/* ---- elimination ---- */

/* [a | b] reduced to [1 | x], where a x = b: column 0 goes in each step. */
static tci_node *tci_linear_eliminate(tci_graph *g, tci_node *m, int64_t n)
{
    for (int64_t k = 0; m && k < n; k++) {
        tci_node *swapped, *row;
        m = tci_linear_pivot(g, m, k, &swapped);
        if (!m) {
            return NULL;
        }
        tci_node *pivot = tci_linear_part(g, m, k, 1, 0, 1);
        row = tci_linear_part(g, m, k, 1, 1, -1);
        row = tci_composite_binary(g, TCI_OP_DIV, row, pivot);
        tci_node *is_row = tci_composite_ramp(g, n, m->rank, m->rank - 2);
        is_row = tci_composite_binary(g, TCI_OP_EQ, is_row, tci_composite_whole(g, k));
        tci_node *others = tci_linear_less(g, tci_linear_part(g, m, 0, -1, 1, -1),
                                           tci_linear_part(g, m, 0, -1, 0, 1), row);
        m = tci_build_where(g, is_row, row, others);
    }
    return m;
}

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
    if (!tci_linear_meet(g, &m, &right)) {
        return NULL;
    }
    tci_node *both[2] = {m, right};
    m = tci_linear_eliminate(g, tci_build_cat(g, both, 2, m->rank - 1), n);
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

TCI_FN tci_node *tci_build_det(tci_graph *g, tci_node *x, tci_det which)
{
    int64_t n;
    tci_node *m = tci_linear_square(g, x, &n), *r = NULL, *flips = NULL, *swapped;
    if (!m) {
        return NULL;
    }
    if (n == 0) {
        tci_node *none = tci_composite_number(g, (tc_dtype)x->dtype, which == TCI_DET_LOG ? 0 : 1);
        return tci_build_broadcast(g, none, x->rank - 2, x->shape);
    }
    for (int64_t k = 0; m && k < n; k++) {
        m = tci_linear_pivot(g, m, 0, &swapped);
        tci_node *pivot = m ? tci_linear_part(g, m, 0, 1, 0, 1) : NULL, *own = pivot;
        if (!pivot) {
            return NULL;
        }
        if (which == TCI_DET_LOG) {
            own = tci_composite_unary(g, TCI_OP_LOG, tci_composite_unary(g, TCI_OP_ABS, own));
        } else if (which == TCI_DET_SIGN) {
            tci_node *zero = tci_composite_number(g, (tc_dtype)m->dtype, 0);
            tci_node *up = tci_composite_binary(g, TCI_OP_LT, zero, own);
            tci_node *down = tci_composite_binary(g, TCI_OP_LT, own, zero);
            own = tci_composite_binary(g, TCI_OP_SUB, tci_build_cast(g, up, (tc_dtype)m->dtype),
                                       tci_build_cast(g, down, (tc_dtype)m->dtype));
        }
        r = r ? tci_composite_binary(g, which == TCI_DET_LOG ? TCI_OP_ADD : TCI_OP_MUL, r, own)
              : own;
        flips = flips ? tci_composite_binary(g, TCI_OP_NE, flips, swapped) : swapped;
        tci_node *row = tci_composite_binary(g, TCI_OP_DIV, tci_linear_part(g, m, 0, 1, 1, -1),
                                             pivot);
        m = tci_linear_less(g, tci_linear_part(g, m, 1, -1, 1, -1),
                            tci_linear_part(g, m, 1, -1, 0, 1), row);
    }
    if (which != TCI_DET_LOG) {
        r = tci_build_where(g, flips, tci_composite_unary(g, TCI_OP_NEG, r), r);
    }
    r = tci_build_cast(g, r, (tc_dtype)x->dtype);
    return tci_build_reshape(g, r, x->rank - 2, x->shape);
}

/* ---- factors ---- */

TCI_FN tci_node *tci_build_cholesky(tci_graph *g, tci_node *x, bool upper)
{
    int64_t n;
    tci_words w;
    tci_node *m = tci_linear_square(g, x, &n);
    if (!m || n == 0) {
        return m ? x : NULL;
    }
    tci_node **columns = tci_words_nodes(g, &w, (int)n);
    if (!columns) {
        return NULL;
    }
    tci_node *half = tci_composite_number(g, (tc_dtype)m->dtype, 0.5);
    tci_node *zero = tci_composite_number(g, (tc_dtype)m->dtype, 0);
    m = tci_composite_binary(g, TCI_OP_ADD, m, tci_build_transpose(g, m, -1, -2));
    m = tci_composite_binary(g, TCI_OP_MUL, m, half);
    for (int64_t k = 0; k < n; k++) {
        tci_node *root = tci_composite_unary(g, TCI_OP_SQRT, tci_linear_part(g, m, 0, 1, 0, 1));
        tci_node *column = tci_composite_binary(g, TCI_OP_DIV, tci_linear_part(g, m, 0, -1, 0, 1),
                                                root);
        columns[k] = tci_build_pad(g, column, -2, k, 0, zero);
        if (!columns[k]) {
            return tci_words_put(g, &w, NULL);
        }
        column = tci_linear_part(g, column, 1, -1, 0, 1);
        m = tci_linear_less(g, tci_linear_part(g, m, 1, -1, 1, -1), column,
                            tci_build_transpose(g, column, -1, -2));
    }
    tci_node *r = tci_words_put(g, &w, tci_build_cat(g, columns, (int)n, columns[0]->rank - 1));
    r = tci_build_cast(g, r, (tc_dtype)x->dtype);
    return upper ? tci_build_transpose(g, r, -1, -2) : r;
}

/* a x = b, a lower: the first row of what is left gives one of x. */
static tci_node *tci_linear_substitute(tci_graph *g, tci_node *a, tci_node *b, int64_t n,
                                       bool unitriangular)
{
    tci_words w;
    tci_node **rows = tci_words_nodes(g, &w, (int)n);
    if (!rows) {
        return NULL;
    }
    for (int64_t k = 0; k < n; k++) {
        tci_node *row = tci_linear_part(g, b, 0, 1, 0, -1);
        rows[k] = unitriangular ? row
                                : tci_composite_binary(g, TCI_OP_DIV, row,
                                                       tci_linear_part(g, a, k, 1, k, 1));
        if (!rows[k]) {
            return tci_words_put(g, &w, NULL);
        }
        b = tci_linear_less(g, tci_linear_part(g, b, 1, -1, 0, -1),
                            tci_linear_part(g, a, k + 1, -1, k, 1), rows[k]);
    }
    return tci_words_put(g, &w, tci_build_cat(g, rows, (int)n, rows[0]->rank - 2));
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
    r = n ? tci_linear_substitute(g, m, r, n, unitriangular) : r;
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
