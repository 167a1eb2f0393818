/* api/lstsq_pinv_expm.c - linear algebra on top of factorizations: LU, log-determinant, least
 * squares, pseudo-inverse, matrix exponential, block-diagonal matrices.
 *
 * In: matrices [..., m, n] of floats. Out: a handle to the composition of public ops that defines
 * the op. Values come from the most stable factorization (SVD), gradients from closed forms, which
 * do not go through its iterations. */
#include "control_flow.h"
#include "composite_helpers.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

static tc_tensor tci_linalg_turned(tc_tensor x, tc_site here)
{
    return tc_transpose(x, -1, -2);
}

/* The identity of n rows, in dtype t. */
static tc_tensor tci_linalg_identity(const tci_made *m, int64_t n, tc_dtype t)
{
    tc_site here = m->here;
    return tc_diag(tc_full(m->ctx->handle, 1, t, n), 0);
}

/* ---- LU ---- */

TC_API void tc_lu_at(tc_tensor x, tc_tensor *p, tc_tensor *l, tc_tensor *u, tc_site here)
{
    tc_tensor *const wanted[3] = {p, l, u};
    for (int i = 0; i < 3; i++) {
        if (wanted[i]) {
            tci_frame f = tci_frame_begin("tc_lu", here);
            tci_frame_use(&f, x);
            tci_node *n = tci_frame_node(&f, x, "operand 1");
            *wanted[i] = tci_frame_end(&f,
                                       n ? tci_build_lu(&f.ctx->graph, n, (tci_lu_part)i) : NULL);
        }
    }
}

TC_API tc_tensor tc_logdet_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tc_tensor sign, size;
    if (!tci_made_begin(&m, "tc_logdet", x, here)) {
        return m.bad;
    }
    tc_slogdet(x, &sign, &size);
    return tci_made_end(&m, tc_where(tc_lt(sign, 0), (double)NAN, size));
}

/* ---- pseudo-inverse and least squares ---- */

/* The pseudo-inverse's value: V diag(1 / s) U', without the singular values that are at most rcond
 * times the largest. */
static tc_tensor tci_linalg_inverse(tc_tensor a, double rcond, tc_site here)
{
    tc_tensor u, s, vh;
    tc_svd(tc_stop_gradient(a), &u, &s, &vh);
    tc_tensor least = tc_mul(tc_max(s, TC_AXES(-1), true), rcond), kept = tc_gt(s, least);
    tc_tensor inverse = tc_where(kept, tc_div(1, tc_where(kept, s, 1)), 0);
    tc_tensor v = tci_linalg_turned(vh, here), turned = tci_linalg_turned(u, here);
    return tc_matmul(tc_mul(v, tc_unsqueeze(inverse, -2)), turned);
}

/* The derivative of a pseudo-inverse p of a in the direction d, for matrices of constant rank
 * (Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973):
 * -p d p + p p' d' (1 - a p) + (1 - p a) d' p' p. */
static tc_tensor tci_linalg_derivative(tc_tensor p, tc_tensor a, tc_tensor d, tc_site here)
{
    tc_tensor turned = tci_linalg_turned(d, here), pt = tci_linalg_turned(p, here);
    tc_tensor left = tc_matmul(tc_matmul(p, pt), turned), right;
    left = tc_sub(left, tc_matmul(tc_matmul(left, a), p));
    right = tc_matmul(turned, tc_matmul(pt, p));
    right = tc_sub(right, tc_matmul(p, tc_matmul(a, right)));
    return tc_sub(tc_add(left, right), tc_matmul(tc_matmul(p, d), p));
}

/* a is `fixed`, which has no derivative, plus d, which has no value. The derivative at the middle
 * of d makes the second derivative right too. */
static tc_tensor tci_linalg_pinv(tc_tensor a, double rcond, tc_site here)
{
    tc_tensor fixed = tc_stop_gradient(a), d = tc_sub(a, fixed), half = tc_mul(d, 0.5);
    tc_tensor value = tc_stop_gradient(tci_linalg_inverse(a, rcond, here));
    tc_tensor middle = tc_add(value, tci_linalg_derivative(value, fixed, half, here));
    return tc_add(value, tci_linalg_derivative(middle, tc_add(fixed, half), d, here));
}

/* Whether x is matrices; the cut-off that stands for a negative one. */
static bool tci_linalg_takes(tci_made *m, const char *name, tc_tensor x, double *rcond,
                             tc_site here)
{
    if (!tci_made_begin(m, name, x, here)) {
        return false;
    }
    if (tc_rank(x) < 2 || !tci_dtype_is_float(tc_dtype_of(x))) {
        m->bad = tci_made_fail(m, tc_rank(x) < 2 ? TC_ERR_SHAPE : TC_ERR_DTYPE,
                               "given %s of rank %d: expected matrices [..., m, n] of floats",
                               tci_dtype_get(tc_dtype_of(x))->name, tc_rank(x));
        return false;
    }
    const double epsilon = tci_dtype_get(m->dtype)->compute == TC_F64 ? 0x1p-52 : 0x1p-23;
    const int64_t rows = tc_size(x, -2), columns = tc_size(x, -1);
    *rcond = *rcond >= 0 ? *rcond : epsilon * (double)TCI_MAX(rows, columns);
    return true;
}

TC_API tc_tensor tc_pinv_at(tc_tensor x, double rcond, tc_site here)
{
    tci_made m;
    if (!tci_linalg_takes(&m, "tc_pinv", x, &rcond, here)) {
        return m.bad;
    }
    return tci_made_round(&m, tci_linalg_pinv(tci_made_wide(&m, x), rcond, here));
}

TC_API tc_tensor tc_lstsq_at(tc_tensor a, tc_tensor b, double rcond, tc_site here)
{
    tci_made m;
    if (!tci_linalg_takes(&m, "tc_lstsq", a, &rcond, here)) {
        return m.bad;
    }
    if (tc_status_of(b)) {
        return tci_made_end(&m, b);
    }
    const bool vector = tc_rank(b) == tc_rank(a) - 1;
    if ((tc_rank(b) < 2 && !vector) || tc_dtype_of(b) != tc_dtype_of(a) ||
        tc_size(b, vector ? -1 : -2) != tc_size(a, -2)) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "a is %s of %s rows, b %s of rank %d: expected one dtype, and b "
                             "[..., m, k] or [..., m] where a is [..., m, n]",
                             tci_dtype_get(tc_dtype_of(a))->name, TCI_DIM_TEXT(tc_size(a, -2)),
                             tci_dtype_get(tc_dtype_of(b))->name, tc_rank(b));
    }
    tc_tensor right = tci_made_wide(&m, b);
    right = vector ? tc_unsqueeze(right, -1) : right;
    tc_tensor x = tc_matmul(tci_linalg_pinv(tci_made_wide(&m, a), rcond, here), right);
    return tci_made_round(&m, vector ? tc_squeeze(x, -1) : x);
}

/* ---- the matrix exponential: scaling and squaring with a Pade approximant (Higham, SIAM J. Matrix
 * Anal. Appl. 26, 2005): of degree 13 in f64 and 7 in f32, which is exact to the last bit for
 * matrices with a 1-norm of at most `norm` ---- */

enum { TCI_EXPM_SQUARINGS = 32, TCI_EXPM_TERMS = 14 };

typedef struct tci_expm {
    int degree;
    double norm;
    double c[TCI_EXPM_TERMS];
} tci_expm;

static const tci_expm tci_expm_f32 = {7,
                                      3.9257248,
                                      {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}};
static const tci_expm tci_expm_f64 = {
    13,
    5.371920351148152,
    {64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
     10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1}};

/* The approximant's even and odd part: p(x) = even + odd, p(-x) = even - odd. */
static void tci_expm_parts(const tci_expm *e, tc_tensor x, tc_tensor one, tc_tensor *even,
                           tc_tensor *odd, tc_site here)
{
    tc_tensor square = tc_matmul(x, x), power = one;
    *even = tc_mul(one, 1.0);
    *odd = tc_mul(one, e->c[1] / e->c[0]);
    for (int k = 2; k <= e->degree; k += 2) {
        power = k == 2 ? square : tc_matmul(power, square);
        *even = tc_add(*even, tc_mul(power, e->c[k] / e->c[0]));
        *odd = tc_add(*odd, tc_mul(power, e->c[k + 1] / e->c[0]));
    }
    *odd = tc_matmul(x, *odd);
}

/* Step x[0]: the square, for matrices that want more than x[0] of them (carry 1). */
static tc_status tci_expm_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                               tc_tensor *next, tc_tensor *y)
{
    const tc_site here = ((const tci_made *)user)->here;
    (void)y;
    next[0] = tc_where(tc_lt(x[0], carry[1]), tc_matmul(carry[0], carry[0]), carry[0]);
    next[1] = carry[1];
    return TC_OK;
}

TC_API tc_tensor tc_matrix_exp_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tc_tensor even, odd, last[2];
    if (!tci_made_begin(&m, "tc_matrix_exp", x, here)) {
        return m.bad;
    }
    const int rank = tc_rank(x);
    if (rank < 2 || tc_size(x, -1) != tc_size(x, -2) || !tci_dtype_is_float(tc_dtype_of(x))) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "given %s of rank %d: expected square matrices "
                             "[..., n, n] of floats",
                             tci_dtype_get(tc_dtype_of(x))->name, rank);
    }
    tc_tensor wide = tci_made_wide(&m, x);
    const tc_dtype t = tc_dtype_of(wide);
    const tci_expm *e = t == TC_F64 ? &tci_expm_f64 : &tci_expm_f32;
    tc_tensor norm = tc_stop_gradient(tc_sum(tc_abs(wide), TC_AXES(-2), true));
    norm = tc_max(norm, TC_AXES(-1), true);
    tc_tensor count = tc_ceil(tc_log2(tc_div(norm, e->norm)));
    count = tc_clamp(tc_where(tc_eq(norm, 0), 0.0, count), 0.0, (double)TCI_EXPM_SQUARINGS);
    wide = tc_ldexp(wide, tc_neg(count));
    tc_tensor one = tci_made_like(tci_linalg_identity(&m, tc_size(x, -1), t), wide, here);
    tci_expm_parts(e, wide, one, &even, &odd, here);
    tc_tensor y = tc_solve(tc_sub(even, odd), tc_add(even, odd));
    tc_scan(TC_TENSORS(y, count),
            TC_TENSORS(tc_cast(tc_arange(m.ctx->handle, 0, TCI_EXPM_SQUARINGS, 1, TC_I32), t)), 0,
            false, tci_expm_step, &m, last, NULL, 0);
    return tci_made_round(&m, last[0]);
}

/* ---- block-diagonal ---- */

TC_API tc_tensor tc_block_diag_at(tc_tensors xs, tc_site here)
{
    tci_made m;
    if (xs.n < 1 || !xs.items) {
        tci_frame f = tci_frame_begin("tc_block_diag", here);
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "no matrices are given");
        return tci_frame_end(&f, NULL);
    }
    if (!tci_made_begin(&m, "tc_block_diag", xs.items[0], here)) {
        return m.bad;
    }
    int64_t columns = 0, before = 0;
    tc_tensor rows = TC_NONE;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < xs.n; i++) {
            tc_tensor x = xs.items[i];
            if (tc_status_of(x)) {
                return tci_made_end(&m, x);
            }
            if (tc_rank(x) > 2) {
                return tci_made_fail(&m, TC_ERR_SHAPE,
                                     "operand %d has rank %d: expected matrices, "
                                     "rows or numbers",
                                     i + 1, tc_rank(x));
            }
            const int64_t size = tc_rank(x) ? tc_size(x, -1) : 1;
            if (pass == 0) {
                columns = tc_dim_add(columns, size);
                continue;
            }
            while (tc_rank(x) < 2 && !tc_status_of(x)) {
                x = tc_unsqueeze(x, 0);
            }
            x = tc_pad(x, 1, before, tc_dim_sub(tc_dim_sub(columns, before), size), 0);
            rows = i ? tc_cat(TC_TENSORS(rows, x), 0) : x;
            before = tc_dim_add(before, size);
        }
    }
    return tci_made_end(&m, rows);
}

#pragma pop_macro("TC_HERE")
