/* api/reflectors_rotations.c - Householder reflectors, QR and one-sided Jacobi rotations.
 *
 * In: matrices [..., m, n]. Out: what qr_svd_eig.c and eig_divide_conquer.c build factorizations
 * of. All steps for all matrices are one loop (tc_scan), so a program does not grow with n.
 *
 * Design: QR uses Householder reflectors in panels of columns. Rotations make pairs of rows
 * orthogonal; in a round each row is paired with another, and between rounds rows change places as
 * in a round-robin tournament, so a sweep of n - 1 rounds covers all pairs, and a round is
 * arithmetic on halves of all rows. Sweeps end (tc_while) when all pairs are orthogonal up to
 * rounding. */
#include "control_flow.h"
#include "reflectors_rotations.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

enum {
    TCI_FACTOR_SWEEPS = 30,   /* at most; few matrices need more than ten */
    TCI_FACTOR_UNBLOCKED = 48 /* up to this many columns QR is not blocked */
};

TCI_FN double tci_factor_least(tc_tensor x)
{
    return tc_dtype_of(x) == TC_F64 ? 0x1p-960 : 0x1p-100;
}

TCI_FN tc_tensor tci_factor_turned(tc_tensor x, tc_site here)
{
    return tc_transpose(x, -1, -2);
}

TCI_FN tc_tensor tci_factor_places(const tci_made *m, int64_t n)
{
    tc_site here = m->here;
    return tc_unsqueeze(tc_arange(m->ctx->handle, 0, n, 1, TC_I64), 1);
}

TCI_FN tc_tensor tci_factor_one(const tci_made *m, tc_tensor x)
{
    tc_site here = m->here;
    tc_tensor row = tci_factor_places(m, tc_size(x, -2));
    tc_tensor column = tci_factor_turned(tci_factor_places(m, tc_size(x, -1)), here);
    return tci_made_like(tc_cast(tc_eq(row, column), tc_dtype_of(x)), x, here);
}

TCI_FN tc_tensor tci_factor_scale(const tci_made *m, tc_tensor x)
{
    tc_site here = m->here;
    const double most = tc_dtype_of(x) == TC_F64 ? 1022 : 126;
    tc_tensor top = tc_max(tc_abs(tc_stop_gradient(x)), TC_AXES(-2, -1), true);
    top = tc_where(tc_logical_and(tc_gt(top, 0), tc_isfinite(top)), top, 1);
    return tc_exp2(tc_clamp(tc_floor(tc_log2(top)), -most, most));
}

/* ---- reflectors and QR ---- */

/* x less what v, of the weight tau, reflects of it. */
static tc_tensor tci_factor_reflected(tc_tensor x, tc_tensor v, tc_tensor tau, tc_site here)
{
    tc_tensor along = tc_sum(tc_mul(v, x), TC_AXES(-2), true);
    return tc_sub(x, tc_mul(tc_mul(v, tau), along));
}

TCI_FN tc_tensor tci_factor_reflector(const tci_factor *f, tc_tensor column, tc_tensor own,
                                      tc_tensor below, tc_tensor *y)
{
    tc_site here = f->m->here;
    tc_tensor head = tc_sum(tc_where(own, column, 0), TC_AXES(-2), true);
    tc_tensor rest = tc_where(below, column, 0);
    tc_tensor square = tc_sum(tc_square(rest), TC_AXES(-2), true), done = tc_lt(square, f->least);
    if (f->noise.ctx) {
        done = tc_logical_or(done, tc_le(square, f->noise));
    }
    tc_tensor norm = tc_sqrt(tc_where(done, 1, tc_add(square, tc_square(head))));
    tc_tensor beta = tc_where(tc_lt(head, 0), norm, tc_neg(norm)), less = tc_sub(head, beta);
    y[0] = tc_where(own, 1, tc_div(rest, tc_where(done, 1, less)));
    y[1] = tc_where(done, 0, tc_neg(tc_div(less, beta)));
    return tc_where(done, head, beta);
}

/* Step j: column j, which is in front, goes into row j; then it goes to the back. */
static tc_status tci_factor_reflect(void *user, const tc_tensor *carry, const tc_tensor *x,
                                    tc_tensor *next, tc_tensor *y)
{
    const tci_factor *f = (const tci_factor *)user;
    tc_site here = f->m->here;
    tc_tensor column = tc_slice(carry[0], -1, 0, 1, 1), place = tci_factor_places(f->m, f->length);
    tci_factor_reflector(f, column, tc_eq(place, x[0]), tc_gt(place, x[0]), y);
    next[0] = tc_roll(tci_factor_reflected(carry[0], y[0], y[1], here), -1, -1);
    return TC_OK;
}

static tc_status tci_factor_gather(void *user, const tc_tensor *carry, const tc_tensor *x,
                                   tc_tensor *next, tc_tensor *y)
{
    (void)y;
    const tci_factor *f = (const tci_factor *)user;
    next[0] = tci_factor_reflected(carry[0], x[0], x[1], f->m->here);
    return TC_OK;
}

TCI_FN tc_tensor tci_factor_columns(tc_tensor of_steps, tc_site here)
{
    return tc_squeeze(tc_transpose(of_steps, 0, -1), 0);
}

TCI_FN tc_tensor tci_factor_compact(const tci_made *m, tc_tensor v, tc_tensor tau)
{
    tc_site here = m->here;
    tc_tensor inner = tc_triu(tc_matmul(tci_factor_turned(v, here), v), 1);
    tc_tensor one = tci_factor_one(m, inner);
    inner = tc_add(one, tc_mul(tci_factor_turned(tau, here), inner));
    return tc_solve_triangular(inner, tc_mul(one, tau), true, true, true);
}

/* x less v (t (v^T x)): the reflectors of a panel at once. */
static tc_tensor tci_factor_reflected_block(tc_tensor x, tc_tensor v, tc_tensor t, tc_site here)
{
    return tc_sub(x, tc_matmul(v, tc_matmul(t, tc_matmul(tci_factor_turned(v, here), x))));
}

/* A panel of columns, the first of which has the index x[0]; then it goes to the back. y: its
 * reflectors v [..., m, panel], and the triangle t of their compact form. */
static tc_status tci_factor_panel(void *user, const tc_tensor *carry, const tc_tensor *x,
                                  tc_tensor *next, tc_tensor *y)
{
    const tci_factor *f = (const tci_factor *)user;
    tc_site here = f->m->here;
    tc_tensor panel = tc_slice(carry[0], -1, 0, TCI_FACTOR_PANEL, 1), last, reflectors[2];
    tc_tensor places = tc_add(tc_arange(f->m->ctx->handle, 0, TCI_FACTOR_PANEL, 1, TC_I64), x[0]);
    tc_status status = tc_scan(TC_TENSORS(panel), TC_TENSORS(places), 0, false, tci_factor_reflect,
                               user, &last, reflectors, 2);
    tc_tensor v = tci_factor_columns(reflectors[0], here);
    tc_tensor tau = tci_factor_columns(reflectors[1], here);
    y[0] = v;
    y[1] = tci_factor_compact(f->m, v, tau);
    next[0] = tci_factor_reflected_block(carry[0], v, tci_factor_turned(y[1], here), here);
    next[0] = tc_roll(next[0], -TCI_FACTOR_PANEL, -1);
    return status;
}

TCI_FN tc_status tci_factor_gather_block(void *user, const tc_tensor *carry, const tc_tensor *x,
                                         tc_tensor *next, tc_tensor *y)
{
    (void)y;
    const tci_factor *f = (const tci_factor *)user;
    next[0] = tci_factor_reflected_block(carry[0], x[0], x[1], f->m->here);
    return TC_OK;
}

TCI_FN void tci_factor_qr(const tci_made *m, tc_tensor a, tc_tensor *q, tc_tensor *r)
{
    tc_site here = m->here;
    const int64_t rows = tc_size(a, -2), columns = tc_size(a, -1), k = TCI_MIN(rows, columns);
    const bool panels = k > TCI_FACTOR_UNBLOCKED;
    const int64_t width = panels ? TCI_FACTOR_PANEL : 1;
    const int64_t steps = (TCI_MIN(rows - 1, columns) + width - 1) / width * width;
    tci_factor f = {.m = m, .length = rows, .least = tci_factor_least(a)};
    *q = tci_factor_one(m, tc_slice(a, -1, 0, k, 1));
    *r = a;
    if (steps) {
        tc_tensor reflectors[2], places = tc_arange(m->ctx->handle, 0, steps, width, TC_I64);
        a = tc_pad(a, -1, 0, TCI_MAX(steps - columns, 0), 0);
        tc_scan(TC_TENSORS(a), TC_TENSORS(places), 0, false,
                panels ? tci_factor_panel : tci_factor_reflect, &f, r, reflectors, 2);
        *r = tc_slice(tc_roll(*r, steps, -1), -1, 0, columns, 1);
        tc_scan(TC_TENSORS(*q), ((tc_tensors){reflectors, 2}), 0, true,
                panels ? tci_factor_gather_block : tci_factor_gather, &f, q, NULL, 0);
    }
    *r = tc_triu(tc_slice(*r, -2, 0, k, 1), 0);
}

/* ---- rotations ---- */

/* A round: row i of the first half meets row i of the second. carry[2] [..., 1, 1]: the largest
 * cosine between rows that met. */
static tc_status tci_factor_round(void *user, const tc_tensor *carry, const tc_tensor *x,
                                  tc_tensor *next, tc_tensor *y)
{
    (void)x;
    (void)y;
    const tci_factor *f = (const tci_factor *)user;
    tc_site here = f->m->here;
    const int64_t half = tc_size(carry[0], -2);
    tc_tensor a = tc_slice(carry[0], -1, 0, f->length, 1);
    tc_tensor b = tc_slice(carry[1], -1, 0, f->length, 1);
    tc_tensor product = tc_sum(tc_mul(a, b), TC_AXES(-1), true), still, size, zeta;
    tc_tensor aa = tc_sum(tc_square(a), TC_AXES(-1), true);
    tc_tensor bb = tc_sum(tc_square(b), TC_AXES(-1), true);
    still = tc_logical_or(tc_lt(tc_abs(product), f->least), f->done);
    size = tc_where(still, 1, tc_mul(tc_sqrt(aa), tc_sqrt(bb)));
    tc_tensor cosine = tc_where(still, 0, tc_div(tc_abs(product), size));
    next[2] = tc_maximum(carry[2], tc_max(cosine, TC_AXES(-2), true));
    zeta = tc_div(tc_sub(bb, aa), tc_where(still, 1, tc_mul(product, 2)));
    tc_tensor root = tc_add(tc_abs(zeta), tc_sqrt(tc_add(tc_square(zeta), 1)));
    tc_tensor sign = tc_cast(tc_where(tc_lt(zeta, 0), -1, 1), tc_dtype_of(zeta));
    tc_tensor tangent = tc_where(still, 0, tc_div(sign, root));
    cosine = tc_rsqrt(tc_add(tc_square(tangent), 1));
    tc_tensor sine = tc_mul(cosine, tangent);
    a = tc_sub(tc_mul(cosine, carry[0]), tc_mul(sine, carry[1]));
    b = tc_add(tc_mul(sine, carry[0]), tc_mul(cosine, carry[1]));
    next[0] = a;
    next[1] = b;
    if (half > 1) { /* all but the first row of a move on around the two halves */
        next[0] = tc_cat(TC_TENSORS(tc_slice(a, -2, 0, 1, 1), tc_slice(b, -2, 0, 1, 1),
                                    tc_slice(a, -2, 1, half - 1, 1)),
                         -2);
        next[1] = tc_cat(TC_TENSORS(tc_slice(b, -2, 1, TC_END, 1), tc_slice(a, -2, -1, TC_END, 1)),
                         -2);
    }
    return TC_OK;
}

/* True while rows of a matrix met at more than a small cosine in the last sweep. */
static tc_status tci_factor_unfinished(void *user, const tc_tensor *carry, tc_tensor *go)
{
    const tci_factor *f = (const tci_factor *)user;
    tc_site here = f->m->here;
    *go = tc_any(tc_gt(carry[2], f->small), TC_ALL, false);
    return TC_OK;
}

/* A sweep: every row meets every other, and is where it was in the end. */
static tc_status tci_factor_sweep(void *user, const tc_tensor *carry, tc_tensor *next)
{
    tci_factor f = *(const tci_factor *)user;
    tc_site here = f.m->here;
    tc_tensor last[3];
    f.done = tc_le(carry[2], f.small);
    tc_status status = tc_scan(TC_TENSORS(carry[0], carry[1], tc_mul(carry[2], 0)), TC_TENSORS(),
                               2 * tc_size(carry[0], -2) - 1, false, tci_factor_round, &f, last,
                               NULL, 0);
    next[0] = last[0];
    next[1] = last[1];
    next[2] = last[2];
    return status;
}

TCI_FN tc_tensor tci_factor_orthogonal(const tci_made *m, tc_tensor rows, int64_t length)
{
    tc_site here = m->here;
    const int64_t n = tc_size(rows, -2), half = (n + 1) / 2;
    const double epsilon = tc_dtype_of(rows) == TC_F64 ? 0x1p-52 : 0x1p-23;
    tci_factor f = {.m = m,
                    .length = length,
                    .small = 4 * epsilon * sqrt((double)length),
                    .least = tci_factor_least(rows)};
    tc_tensor last[3], first = tc_slice(tc_slice(rows, -1, 0, 1, 1), -2, 0, 1, 1);
    tc_tensor apart = tci_made_like(tc_full(m->ctx->handle, 1, tc_dtype_of(rows)), first, here);
    if (n == 1) {
        return rows;
    }
    rows = tc_pad(rows, -2, 0, 2 * half - n, 0);
    tc_while(TC_TENSORS(tc_slice(rows, -2, 0, half, 1), tc_slice(rows, -2, half, TC_END, 1), apart),
             TCI_FACTOR_SWEEPS, tci_factor_unfinished, tci_factor_sweep, &f, last);
    return tc_slice(tc_cat(TC_TENSORS(last[0], last[1]), -2), -2, 0, n, 1);
}

TCI_FN tc_tensor tci_factor_ordered(tc_tensor rows, tc_tensor order, tc_site here)
{
    return tc_take_along_dim(rows, tc_unsqueeze(order, -1), -2);
}

TCI_FN tc_tensor tci_factor_rotated(const tci_made *m, tc_tensor a)
{
    tc_site here = m->here;
    /* with so much more on the diagonal all values are positive, and rows become multiples of
     * vectors */
    tc_tensor bound = tc_max(tc_sum(tc_abs(a), TC_AXES(-1), true), TC_AXES(-2), true);
    bound = tc_where(tc_eq(bound, 0), 1, tc_mul(bound, 1.5));
    tc_tensor rows = tc_add(a, tc_mul(tci_factor_one(m, a), bound));
    rows = tci_factor_orthogonal(m, rows, tc_size(a, -1));
    return tc_mul(rows, tc_rsqrt(tc_sum(tc_square(rows), TC_AXES(-1), true)));
}

#pragma pop_macro("TC_HERE")
