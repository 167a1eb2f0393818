/* api/eig_divide_conquer.c - eigenvectors of large symmetric matrices: tridiagonal form, divide and
 * conquer.
 *
 * In: symmetric matrices [..., n, n], scaled so that squares neither overflow nor vanish. Out:
 * orthonormal eigenvectors as rows, in any order, without derivatives.
 *
 * Design: Householder reflectors in panels make the matrix tridiagonal; the matrix itself changes
 * once a panel. A column of at most a quarter of epsilon times the Frobenius norm is rounding error
 * and gets no reflector: reflectors of equal rows round in one direction, so hundreds of them are
 * not orthogonal. The tridiagonal matrix is cut into blocks of equal size, which rotations
 * diagonalize (api/reflectors_rotations.c). Then pairs of blocks merge: diag(d) + rho z z^T, where
 * all roots of the secular equation 1 + rho sum z^2 / (d - x) = 0 are found at once by bisection
 * of the distance to the nearer pole, and z is computed again from the roots, so that vectors are
 * orthogonal however close roots are (Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995).
 * Entries with negligible z, or whose values are equal up to rounding, are deflated: they stay in
 * place under a mask, so that sizes do not depend on numbers. All blocks of a level merge in one
 * batch.
 *
 * The last product of matrices of each level has most of the arithmetic. */
#include "control_flow.h"
#include "reflectors_rotations.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

enum { TCI_EIGEN_BLOCK = 64 }; /* rows of the blocks that rotations diagonalize, at most */

/* ---- tridiagonal form ---- */

/* x[0]: a column [..., n, 1] of the matrix as it was before the panel, x[1]: its position, x[2]:
 * its position in the panel. carry: v and w [..., n, panel]; the matrix is now less v w^T + w v^T.
 * y: the reflector and its weight, the diagonal element and the one below it. */
typedef struct tci_eigen_panel {
    tci_factor f;
    tc_tensor a;
} tci_eigen_panel;

static tc_tensor tci_eigen_dot(tc_tensor x, tc_tensor y, tc_site here)
{
    return tc_sum(tc_mul(x, y), TC_AXES(-2), true);
}

static tc_status tci_eigen_reflect(void *user, const tc_tensor *carry, const tc_tensor *x,
                                   tc_tensor *next, tc_tensor *y)
{
    const tci_eigen_panel *p = (const tci_eigen_panel *)user;
    tc_site here = p->f.m->here;
    tc_tensor v = carry[0], w = carry[1], place = tci_factor_places(p->f.m, p->f.length);
    tc_tensor self = tc_cast(tc_eq(place, x[1]), tc_dtype_of(v)), after = tc_add(x[1], 1);
    tc_tensor v_row = tci_factor_turned(tci_eigen_dot(v, self, here), here);
    tc_tensor w_row = tci_factor_turned(tci_eigen_dot(w, self, here), here);
    tc_tensor column = tc_sub(x[0], tc_add(tc_matmul(v, w_row), tc_matmul(w, v_row)));
    y[2] = tci_eigen_dot(column, self, here);
    y[3] = tci_factor_reflector(&p->f, column, tc_eq(place, after), tc_gt(place, after), y);
    tc_tensor image = tc_matmul(p->a, y[0]);
    tc_tensor along_w = tc_matmul(tci_factor_turned(w, here), y[0]);
    tc_tensor along_v = tc_matmul(tci_factor_turned(v, here), y[0]);
    image = tc_sub(image, tc_add(tc_matmul(v, along_w), tc_matmul(w, along_v)));
    image = tc_mul(image, y[1]);
    tc_tensor half = tc_mul(tc_mul(tci_eigen_dot(image, y[0], here), y[1]), 0.5);
    image = tc_sub(image, tc_mul(half, y[0]));
    tc_tensor slot = tc_arange(p->f.m->ctx->handle, 0, TCI_FACTOR_PANEL, 1, TC_I64);
    slot = tc_cast(tc_eq(slot, x[2]), tc_dtype_of(v));
    next[0] = tc_add(v, tc_mul(y[0], slot));
    next[1] = tc_add(w, tc_mul(image, slot));
    return TC_OK;
}

/* A panel of columns. x[0]: their positions. y: v and the triangle t of their reflectors, the
 * elements on the diagonal and those below. */
static tc_status tci_eigen_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                tc_tensor *next, tc_tensor *y)
{
    tci_eigen_panel p = *(const tci_eigen_panel *)user;
    const tci_made *m = p.f.m;
    tc_site here = m->here;
    tc_tensor last[2], of_steps[4];
    tc_tensor slots = tc_arange(m->ctx->handle, 0, TCI_FACTOR_PANEL, 1, TC_I64);
    p.a = carry[0];
    tc_tensor index = tc_minimum(x[0], p.f.length - 1);
    tc_tensor columns = tc_unsqueeze(tc_index_select(p.a, -1, index), 0);
    columns = tc_transpose(columns, 0, -1);
    tc_tensor none = tc_mul(tc_slice(p.a, -1, 0, TCI_FACTOR_PANEL, 1), 0);
    tc_status status = tc_scan(TC_TENSORS(none, none), TC_TENSORS(columns, x[0], slots), 0, false,
                               tci_eigen_reflect, &p, last, of_steps, 4);
    tc_tensor update = tc_matmul(last[0], tci_factor_turned(last[1], here));
    next[0] = tc_sub(p.a, tc_add(update, tci_factor_turned(update, here)));
    y[0] = tci_factor_columns(of_steps[0], here);
    y[1] = tci_factor_compact(m, y[0], tci_factor_columns(of_steps[1], here));
    y[2] = tci_factor_columns(of_steps[2], here);
    y[3] = tci_factor_columns(of_steps[3], here);
    return status;
}

/* Panels [steps, batch, 1, panel] as lines [batch, n]. */
static tc_tensor tci_eigen_lines(tc_tensor of_panels, int64_t n, tc_site here)
{
    const int64_t all = tc_size(of_panels, 0) * tc_size(of_panels, -1);
    tc_tensor lines = tc_transpose(tc_squeeze(of_panels, 2), 0, 1);
    return tc_slice(tc_reshape(lines, -1, all), 1, 0, n, 1);
}

/* ---- merges ---- */

/* All [batch, blocks, ...]: d [.., n], z [.., n], rows [.., n, any], tolerance [.., 1]. */
typedef struct tci_eigen_merge {
    const tci_made *m;
    tc_tensor d, z, rows, rho, tolerance;
    /* of each entry: whether it has a z; the next value that has, and whether there is one; of its
     * root: the nearer pole, and on which side of it */
    tc_tensor kept, next, inner, origin, side;
} tci_eigen_merge;

/* x[0], x[1], x[2]: value, z and row of an entry. carry: those of the last entry with a z. Two
 * whose values are equal up to the tolerance turn so that the first has no z. y: an entry that no
 * later one changes. */
static tc_status tci_eigen_deflate(void *user, const tc_tensor *carry, const tc_tensor *x,
                                   tc_tensor *next, tc_tensor *y)
{
    const tci_eigen_merge *g = (const tci_eigen_merge *)user;
    tc_site here = g->m->here;
    tc_tensor none = tc_eq(x[1], 0), both = tc_logical_and(tc_ne(carry[1], 0), tc_ne(x[1], 0));
    tc_tensor norm = tc_sqrt(tc_add(tc_square(carry[1]), tc_square(x[1])));
    tc_tensor safe = tc_where(both, norm, 1), c = tc_div(x[1], safe), s = tc_div(carry[1], safe);
    tc_tensor change = tc_abs(tc_mul(tc_mul(tc_sub(x[0], carry[0]), c), s));
    tc_tensor turn = tc_logical_and(both, tc_le(change, g->tolerance));
    /* the entry that leaves is first carry + second x, the one that stays -second carry + first x,
     * or the one that does not leave */
    tc_tensor first = tc_where(none, 0, tc_where(turn, c, 1));
    tc_tensor second = tc_where(none, 1, tc_where(turn, tc_neg(s), 0));
    tc_tensor stays = tc_where(none, 1, tc_where(turn, s, 0));
    tc_tensor comes = tc_where(none, 0, tc_where(turn, c, 1));
    y[0] = tc_add(tc_mul(tc_square(first), carry[0]), tc_mul(tc_square(second), x[0]));
    y[1] = tc_where(tc_logical_or(none, turn), 0, carry[1]);
    y[2] = tc_add(tc_mul(first, carry[2]), tc_mul(second, x[2]));
    next[0] = tc_add(tc_mul(tc_square(stays), carry[0]), tc_mul(tc_square(comes), x[0]));
    next[1] = tc_where(none, carry[1], tc_where(turn, norm, x[1]));
    next[2] = tc_add(tc_mul(stays, carry[2]), tc_mul(comes, x[2]));
    return TC_OK;
}

/* Entries of all steps, [n - 1, batch, blocks, any], and the last one, as [batch, blocks, n, any].
 */
static tc_tensor tci_eigen_entries(tc_tensor of_steps, tc_tensor last, tc_site here)
{
    tc_tensor all = tc_cat(TC_TENSORS(of_steps, tc_unsqueeze(last, 0)), 0);
    return tc_permute(all, 1, 2, 0, 3);
}

/* The order of values [.., n], by counting smaller ones: two kernels, fewer than a sort needs. NaNs
 * are last, so that the order is always a permutation. */
static tc_tensor tci_eigen_order(const tci_made *m, tc_tensor values)
{
    tc_site here = m->here;
    values = tc_where(tc_isnan(values), INFINITY, values);
    tc_tensor row = tci_factor_places(m, tc_size(values, -1)),
              column = tci_factor_turned(row, here);
    tc_tensor one = tc_unsqueeze(values, -1), other = tc_unsqueeze(values, -2);
    tc_tensor equal = tc_logical_and(tc_eq(other, one), tc_lt(column, row));
    tc_tensor before = tc_cast(tc_logical_or(tc_lt(other, one), equal), TC_I64);
    tc_tensor rank = tc_sum(before, TC_AXES(-1), true);
    return tc_sum(tc_where(tc_eq(rank, column), row, 0), TC_AXES(-2), false);
}

static void tci_eigen_deflated(tci_eigen_merge *g)
{
    tc_site here = g->m->here;
    tc_tensor order = tci_eigen_order(g->m, g->d), weight, last[3], of_steps[3];
    g->d = tc_take_along_dim(g->d, order, -1);
    g->z = tc_take_along_dim(g->z, order, -1);
    g->rows = tci_factor_ordered(g->rows, order, here);
    weight = tc_abs(tc_mul(g->z, g->rho));
    g->z = tc_where(tc_le(weight, g->tolerance), 0, g->z);
    tc_tensor d = tc_permute(tc_unsqueeze(g->d, -1), 2, 0, 1, 3);
    tc_tensor z = tc_permute(tc_unsqueeze(g->z, -1), 2, 0, 1, 3);
    tc_tensor rows = tc_permute(g->rows, 2, 0, 1, 3);
    tc_tensor first[3] = {tc_squeeze(tc_slice(d, 0, 0, 1, 1), 0),
                          tc_squeeze(tc_slice(z, 0, 0, 1, 1), 0),
                          tc_squeeze(tc_slice(rows, 0, 0, 1, 1), 0)};
    tc_tensor others[3] = {tc_slice(d, 0, 1, TC_END, 1), tc_slice(z, 0, 1, TC_END, 1),
                           tc_slice(rows, 0, 1, TC_END, 1)};
    tc_scan(((tc_tensors){first, 3}), ((tc_tensors){others, 3}), 0, false, tci_eigen_deflate, g,
            last, of_steps, 3);
    g->d = tc_squeeze(tci_eigen_entries(of_steps[0], last[0], here), -1);
    g->z = tc_squeeze(tci_eigen_entries(of_steps[1], last[1], here), -1);
    g->rows = tci_eigen_entries(of_steps[2], last[2], here);
}

/* d of each entry (column) less origin + side * distance of each root (row), [.., n, n]. */
static tc_tensor tci_eigen_differences(const tci_eigen_merge *g, tc_tensor distance)
{
    tc_site here = g->m->here;
    tc_tensor poles = tc_sub(tc_unsqueeze(g->d, -2), tc_unsqueeze(g->origin, -1));
    return tc_sub(poles, tc_unsqueeze(tc_mul(g->side, distance), -1));
}

/* Whether the secular function at origin + side * distance is below 0, of each root. */
static tc_tensor tci_eigen_below(const tci_eigen_merge *g, tc_tensor distance)
{
    tc_site here = g->m->here;
    tc_tensor pole = tc_unsqueeze(g->kept, -2);
    tc_tensor weight = tc_unsqueeze(tc_square(g->z), -2), gap = tci_eigen_differences(g, distance);
    tc_tensor terms = tc_div(weight, tc_where(pole, gap, 1));
    return tc_lt(tc_add(tc_mul(tc_sum(terms, TC_AXES(-1), false), g->rho), 1), 0);
}

/* A step of the bisection in carry: lower and upper bound of the distance. The midpoint is their
 * geometric mean, since a distance may be far smaller than the gap between two poles. */
static tc_status tci_eigen_bisect(void *user, const tc_tensor *carry, const tc_tensor *x,
                                  tc_tensor *next, tc_tensor *y)
{
    (void)x;
    (void)y;
    const tci_eigen_merge *g = (const tci_eigen_merge *)user;
    tc_site here = g->m->here;
    tc_tensor middle = tc_mul(tc_sqrt(carry[0]), tc_sqrt(carry[1]));
    tc_tensor farther = tc_eq(tci_eigen_below(g, middle), tc_gt(g->side, 0));
    next[0] = tc_where(farther, middle, carry[0]);
    next[1] = tc_where(farther, carry[1], middle);
    return TC_OK;
}

/* The distance of each root from its origin, the nearer of the two poles around it. */
static tc_tensor tci_eigen_roots(tci_eigen_merge *g)
{
    tc_site here = g->m->here;
    const bool wide = tc_dtype_of(g->d) == TC_F64;
    tc_tensor row = tci_factor_places(g->m, tc_size(g->d, -1)), last[2];
    g->kept = tc_ne(g->z, 0);
    tc_tensor later = tc_logical_and(tc_unsqueeze(g->kept, -2),
                                     tc_lt(row, tci_factor_turned(row, here)));
    tc_tensor after = tc_min(tc_where(later, tc_unsqueeze(g->d, -2), INFINITY), TC_AXES(-1), false);
    tc_tensor inner = tc_lt(after, INFINITY);
    after = tc_where(inner, after, g->d);
    tc_tensor all = tc_mul(g->rho, tc_sum(tc_square(g->z), TC_AXES(-1), true));
    tc_tensor gap = tc_where(inner, tc_sub(after, g->d), all);
    gap = tc_where(g->kept, gap, 1);
    g->next = after;
    g->inner = inner;
    g->origin = g->d;
    g->side = tc_add(tc_mul(g->d, 0), 1);
    tc_tensor half = tc_mul(gap, 0.5);
    tc_tensor right = tc_logical_and(tci_eigen_below(g, half), inner);
    g->origin = tc_where(right, after, g->d);
    g->side = tc_where(right, -1, g->side);
    tc_tensor most = tc_where(inner, half, gap), least = tc_mul(most, wide ? 0x1p-220 : 0x1p-60);
    tc_scan(TC_TENSORS(least, most), TC_TENSORS(), wide ? 64 : 32, false, tci_eigen_bisect, g, last,
            NULL, 0);
    return tc_mul(tc_sqrt(last[0]), tc_sqrt(last[1]));
}

/* Vectors (rows) of diag(d) + rho z z^T, *values: their values. */
static tc_tensor tci_eigen_secular(tci_eigen_merge *g, tc_tensor *values)
{
    tc_site here = g->m->here;
    const int64_t n = tc_size(g->d, -1);
    tc_tensor distance = tci_eigen_roots(g), gaps = tci_eigen_differences(g, distance);
    *values = tc_where(g->kept, tc_add(g->origin, tc_mul(g->side, distance)), g->d);
    tc_tensor root = tci_factor_places(g->m, n), entry = tci_factor_turned(root, here);
    tc_tensor rows = tc_unsqueeze(g->kept, -1), columns = tc_unsqueeze(g->kept, -2);
    tc_tensor both = tc_logical_and(rows, columns), d = tc_unsqueeze(g->d, -2);
    tc_tensor other = tc_where(tc_lt(root, entry), tc_unsqueeze(g->d, -1),
                               tc_unsqueeze(g->next, -1));
    other = tc_sub(other, d);
    tc_tensor end = tc_logical_and(tc_logical_not(tc_unsqueeze(g->inner, -1)), tc_ge(root, entry));
    other = tc_where(end, tc_unsqueeze(g->rho, -1), other);
    tc_tensor ratio = tc_where(both, tc_div(tc_neg(gaps), tc_where(both, other, 1)), 1);
    tc_tensor z = tc_sqrt(tc_abs(tc_prod(ratio, TC_AXES(-2), true)));
    z = tc_mul(z, tc_where(tc_lt(tc_unsqueeze(g->z, -2), 0), -1, 1));
    tc_tensor vectors = tc_div(z, tc_where(both, gaps, 1));
    tc_tensor alone = tc_cast(tc_eq(root, entry), tc_dtype_of(g->d));
    vectors = tc_where(both, vectors, tc_where(rows, 0, alone));
    vectors = tc_div(vectors, tc_max(tc_abs(vectors), TC_AXES(-1), true));
    return tc_mul(vectors, tc_rsqrt(tc_sum(tc_square(vectors), TC_AXES(-1), true)));
}

/* Every second block, from number `from` on. */
static tc_tensor tci_eigen_blocks(tc_tensor x, int from, tc_site here)
{
    return tc_slice(x, 1, from, TC_END, 2);
}

/* Pairs of blocks become one. values [batch, blocks, n], rows [batch, blocks, n, n], coupling
 * [batch, blocks / 2, 1]: the elements that join them, tolerance [batch, 1, 1]: changes of the
 * whole matrix that rounding makes. */
static void tci_eigen_merged(const tci_made *m, tc_tensor *values, tc_tensor *rows,
                             tc_tensor coupling, tc_tensor tolerance)
{
    tc_site here = m->here;
    const int64_t n = tc_size(*values, -1);
    tc_tensor upper = tci_eigen_blocks(*rows, 0, here), lower = tci_eigen_blocks(*rows, 1, here);
    tc_tensor sign = tc_where(tc_lt(coupling, 0), -1, 1);
    tc_tensor last = tc_squeeze(tc_slice(upper, -1, -1, TC_END, 1), -1);
    tc_tensor first = tc_mul(tc_squeeze(tc_slice(lower, -1, 0, 1, 1), -1), sign);
    tci_eigen_merge g = {.m = m, .tolerance = tolerance};
    g.d = tc_cat(TC_TENSORS(tci_eigen_blocks(*values, 0, here), tci_eigen_blocks(*values, 1, here)),
                 -1);
    g.z = tc_cat(TC_TENSORS(last, first), -1);
    tc_tensor norm = tc_sum(tc_square(g.z), TC_AXES(-1), true);
    g.z = tc_div(g.z, tc_sqrt(norm));
    g.rho = tc_mul(tc_abs(coupling), norm);
    g.rows = tc_cat(TC_TENSORS(tc_pad(upper, -1, 0, n, 0), tc_pad(lower, -1, n, 0, 0)), -2);
    tci_eigen_deflated(&g);
    tc_tensor vectors = tci_eigen_secular(&g, values);
    *rows = tc_matmul(vectors, g.rows);
}

/* Eigenvectors (rows) of tridiagonal matrices, d [batch, n] and off [batch, n]: the elements below
 * the diagonal, the last of which does not count. */
static tc_tensor tci_eigen_tridiagonal(const tci_made *m, tc_tensor d, tc_tensor off)
{
    tc_site here = m->here;
    const int64_t n = tc_size(d, -1);
    int64_t blocks = 1;
    while (n > blocks * TCI_EIGEN_BLOCK) {
        blocks *= 2;
    }
    const int64_t width = (n + blocks - 1) / blocks, all = blocks * width;
    off = tc_pad(tc_slice(off, -1, 0, n - 1, 1), -1, 0, all - n + 1, 0);
    /* elements beyond n are larger than all values, so that theirs are last */
    tc_tensor beyond = tc_max(tc_add(tc_abs(d), tc_mul(tc_slice(tc_abs(off), -1, 0, n, 1), 2)),
                              TC_AXES(-1), true);
    const double epsilon = tc_dtype_of(d) == TC_F64 ? 0x1p-50 : 0x1p-21;
    tc_tensor tolerance = tc_mul(tc_unsqueeze(beyond, -1), epsilon);
    d = tc_pad(d, -1, 0, all - n, 0);
    tc_tensor place = tc_arange(m->ctx->handle, 0, all, 1, TC_I64), in_block;
    d = tc_where(tc_lt(place, n), d, tc_add(tc_mul(beyond, 4), 1));
    tc_tensor joint = tc_eq(tc_remainder(place, width), width - 1);
    tc_tensor cut = tc_where(joint, off, 0);
    d = tc_sub(tc_sub(d, tc_abs(cut)), tc_abs(tc_roll(cut, 1, -1)));
    in_block = tc_where(joint, 0, off);
    d = tc_reshape(d, -1, blocks, width);
    in_block = tc_reshape(in_block, -1, blocks, width);
    cut = tc_slice(tc_reshape(cut, -1, blocks, width), -1, -1, TC_END, 1);
    tc_tensor row = tci_factor_places(m, width), column = tci_factor_turned(row, here);
    tc_tensor below = tc_where(tc_eq(row, tc_add(column, 1)), tc_unsqueeze(in_block, -2), 0);
    tc_tensor matrix = tc_where(tc_eq(row, column), tc_unsqueeze(d, -1), 0);
    matrix = tc_add(matrix, tc_add(below, tci_factor_turned(below, here)));
    tc_tensor rows = tci_factor_rotated(m, tc_div(matrix, tci_factor_scale(m, matrix)));
    tc_tensor values = tc_sum(tc_mul(tc_matmul(rows, matrix), rows), TC_AXES(-1), false);
    for (int64_t step = 1; step < blocks; step *= 2) {
        tci_eigen_merged(m, &values, &rows, tc_slice(cut, 1, step - 1, TC_END, 2 * step),
                         tolerance);
    }
    tc_tensor order = tci_eigen_order(m, tc_squeeze(values, 1));
    rows = tci_factor_ordered(tc_squeeze(rows, 1), tc_slice(order, -1, 0, n, 1), here);
    return tc_slice(rows, -1, 0, n, 1);
}

TCI_FN tc_tensor tci_eigen_vectors(const tci_made *m, tc_tensor a)
{
    tc_site here = m->here;
    const int64_t n = tc_size(a, -1), steps = (n + TCI_FACTOR_PANEL - 1) / TCI_FACTOR_PANEL;
    tc_tensor one = tc_reshape(a, -1, n, n), none, of_panels[4];
    const double quarter = tc_dtype_of(a) == TC_F64 ? 0x1p-54 : 0x1p-25; /* of epsilon */
    tc_tensor squares = tc_sum(tc_square(one), TC_AXES(-2, -1), true);
    tci_eigen_panel p = {.f = {.m = m, .length = n, .least = tci_factor_least(a)}};
    p.f.noise = tc_mul(squares, quarter * quarter);
    tc_tensor places = tc_arange(m->ctx->handle, 0, steps * TCI_FACTOR_PANEL, 1, TC_I64);
    places = tc_reshape(places, steps, TCI_FACTOR_PANEL);
    tc_scan(TC_TENSORS(one), TC_TENSORS(places), 0, false, tci_eigen_step, &p, &none, of_panels, 4);
    tc_tensor d = tci_eigen_lines(of_panels[2], n, here), rows;
    rows = tci_eigen_tridiagonal(m, d, tci_eigen_lines(of_panels[3], n, here));
    tc_tensor columns = tci_factor_turned(rows, here);
    tc_scan(TC_TENSORS(columns), ((tc_tensors){of_panels, 2}), 0, true, tci_factor_gather_block,
            &p.f, &columns, NULL, 0);
    return tci_made_shaped(tci_factor_turned(columns, here), a, here);
}

#pragma pop_macro("TC_HERE")
