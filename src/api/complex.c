/* api/complex.c - arithmetic of complex numbers stored as pairs (real, imaginary) along a last axis
 * of size 2, the layout of api/fourier.c.
 *
 * In: pairs [..., 2]. Out: pairs, or a real number for each. Parts are slices and results are
 * concatenations, neither of which copies; everything in between is real arithmetic, so fusion,
 * gradients and backends need nothing special. The gradient is that of a real function of the two
 * parts. */
#include "composite_helpers.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

typedef struct tci_pair {
    tc_tensor re, im;
} tci_pair;

/* False: x, operand number `which`, is no list of pairs, and *bad tells it. */
static bool tci_pair_take(const tci_made *m, tc_tensor x, int which, tci_pair *p, tc_tensor *bad)
{
    tc_site here = m->here;
    if (tc_status_of(x)) {
        *bad = tci_made_end(m, tc_neg(x));
        return false;
    }
    if (!tc_rank(x) || tc_size(x, -1) != 2) {
        *bad = tci_made_fail(m, TC_ERR_SHAPE,
                             "operand %d has a last axis of size %s: expected 2, "
                             "real and imaginary parts",
                             which, TCI_DIM_TEXT(tc_rank(x) ? tc_size(x, -1) : 1));
        return false;
    }
    const tc_tensor wide = tci_made_wide(m, x);
    p->re = tc_select(wide, -1, 0);
    p->im = tc_select(wide, -1, 1);
    return true;
}

static bool tci_pair_begin(tci_made *m, const char *name, tc_tensor x, tci_pair *p, tc_site here)
{
    return tci_made_begin(m, name, x, here) && tci_pair_take(m, x, 1, p, &m->bad);
}

/* The result is in the dtype in which the two meet. */
static bool tci_pair_begin_two(tci_made *m, const char *name, tc_tensor a, tc_tensor b, tci_pair *p,
                               tci_pair *q, tc_site here)
{
    if (!tci_pair_begin(m, name, a, p, here)) {
        return false;
    }
    if (!tc_status_of(b) && tci_dtype_is_float(tc_dtype_of(b))) {
        m->dtype = tci_dtype_is_float(tc_dtype_of(a))
                       ? tci_dtype_promote(m->ctx->graph.promotion, m->dtype, tc_dtype_of(b))
                       : tc_dtype_of(b);
    }
    return tci_pair_take(m, b, 2, q, &m->bad);
}

static tc_tensor tci_pair_end(const tci_made *m, tc_tensor re, tc_tensor im)
{
    tc_site here = m->here;
    return tci_made_round(m, tc_stack(TC_TENSORS(re, im), -1));
}

/* ---- parts ---- */

TC_API tc_tensor tc_complex_at(tc_tensor real, tc_tensor imag, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_complex", real, here)) {
        return m.bad;
    }
    tc_tensor re = tci_made_wide(&m, real), im = tci_made_wide(&m, imag), both = tc_add(re, im);
    return tci_pair_end(&m, tci_made_like(re, both, here), tci_made_like(im, both, here));
}

TC_API tc_tensor tc_polar_at(tc_tensor abs, tc_tensor angle, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_polar", abs, here)) {
        return m.bad;
    }
    tc_tensor size = tci_made_wide(&m, abs), turn = tci_made_wide(&m, angle);
    return tci_pair_end(&m, tc_mul(size, tc_cos(turn)), tc_mul(size, tc_sin(turn)));
}

TC_API tc_tensor tc_real_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tci_pair p;
    return tci_pair_begin(&m, "tc_real", x, &p, here) ? tci_made_round(&m, p.re) : m.bad;
}

TC_API tc_tensor tc_imag_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tci_pair p;
    return tci_pair_begin(&m, "tc_imag", x, &p, here) ? tci_made_round(&m, p.im) : m.bad;
}

TC_API tc_tensor tc_conj_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tci_pair p;
    return tci_pair_begin(&m, "tc_conj", x, &p, here) ? tci_pair_end(&m, p.re, tc_neg(p.im))
                                                      : m.bad;
}

/* Where it is 0 so is the gradient. */
static tc_tensor tci_pair_abs(tci_pair p, tc_site here)
{
    tc_tensor none = tc_logical_and(tc_eq(p.re, 0), tc_eq(p.im, 0));
    return tc_where(none, 0, tc_hypot(tc_where(none, 1, p.re), p.im));
}

TC_API tc_tensor tc_complex_abs_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tci_pair p;
    return tci_pair_begin(&m, "tc_complex_abs", x, &p, here)
               ? tci_made_round(&m, tci_pair_abs(p, here))
               : m.bad;
}

TC_API tc_tensor tc_angle_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tci_pair p;
    return tci_pair_begin(&m, "tc_angle", x, &p, here) ? tci_made_round(&m, tc_atan2(p.im, p.re))
                                                       : m.bad;
}

/* ---- arithmetic ---- */

TC_API tc_tensor tc_complex_mul_at(tc_tensor a, tc_tensor b, tc_site here)
{
    tci_made m;
    tci_pair p, q;
    if (!tci_pair_begin_two(&m, "tc_complex_mul", a, b, &p, &q, here)) {
        return m.bad;
    }
    return tci_pair_end(&m, tc_sub(tc_mul(p.re, q.re), tc_mul(p.im, q.im)),
                        tc_add(tc_mul(p.re, q.im), tc_mul(p.im, q.re)));
}

/* The divisor is scaled, so that its square neither overflows nor is lost; where an operand is near
 * the largest number both are made less by a power of 2. The quotient depends on neither. */
TC_API tc_tensor tc_complex_div_at(tc_tensor a, tc_tensor b, tc_site here)
{
    tci_made m;
    tci_pair p, q;
    if (!tci_pair_begin_two(&m, "tc_complex_div", a, b, &p, &q, here)) {
        return m.bad;
    }
    const double far = tc_dtype_of(p.re) == TC_F64 ? 0x1p1020 : 0x1p124;
    tc_tensor scale = tc_stop_gradient(tc_maximum(tc_abs(q.re), tc_abs(q.im)));
    tc_tensor most = tc_maximum(scale, tc_maximum(tc_abs(p.re), tc_abs(p.im)));
    tc_tensor less = tc_where(tc_gt(most, far), tc_full(m.ctx->handle, 0x1p-4, tc_dtype_of(p.re)),
                              1);
    p.re = tc_mul(p.re, less);
    p.im = tc_mul(p.im, less);
    tc_tensor c = tc_div(q.re, scale), d = tc_div(q.im, scale);
    tc_tensor below = tc_mul(tc_add(tc_square(c), tc_square(d)), tc_mul(scale, less));
    tc_tensor re = tc_div(tc_add(tc_mul(p.re, c), tc_mul(p.im, d)), below);
    tc_tensor im = tc_div(tc_sub(tc_mul(p.im, c), tc_mul(p.re, d)), below);
    /* as C11, annex G: a finite number by an infinite one is 0, by 0 both parts by 0 */
    tc_tensor is_zero = tc_eq(scale, 0),
              is_finite = tc_logical_and(tc_isfinite(p.re), tc_isfinite(p.im));
    tc_tensor vanishes = tc_logical_and(tc_isinf(scale), is_finite);
    tc_tensor edge = tc_where(vanishes, 0, re), edge_im = tc_where(vanishes, 0, im);
    edge = tc_where(is_zero, tc_div(p.re, q.re), edge);
    edge_im = tc_where(is_zero, tc_div(p.im, q.re), edge_im);
    return tci_pair_end(&m, tci_made_differentiated(edge, re, here),
                        tci_made_differentiated(edge_im, im, here));
}

TC_API tc_tensor tc_complex_exp_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tci_pair p;
    if (!tci_pair_begin(&m, "tc_complex_exp", x, &p, here)) {
        return m.bad;
    }
    tc_tensor size = tc_exp(p.re), re = tc_mul(size, tc_cos(p.im)), im = tc_mul(size, tc_sin(p.im));
    /* as C11, annex G: the imaginary part stays 0, and -inf gives 0 and inf an infinity even where
     * cosine and sine are NaN */
    tc_tensor is_zero = tc_eq(size, 0), nowhere = tc_logical_not(tc_isfinite(p.im));
    tc_tensor edge = tc_logical_and(tc_eq(p.re, (double)INFINITY), nowhere);
    edge = tc_where(edge, (double)INFINITY, tc_where(is_zero, 0, re));
    tc_tensor edge_im = tc_where(tc_eq(p.im, 0), p.im, tc_where(is_zero, 0, im));
    return tci_pair_end(&m, tci_made_differentiated(edge, re, here),
                        tci_made_differentiated(edge_im, im, here));
}

/* log|p|. Near |p| = 1 it is half of log(1 + s), s = |p|^2 - 1 with what its products round. */
static tc_tensor tci_pair_log(tci_pair p, tc_site here)
{
    tc_tensor size = tci_pair_abs(p, here), log = tc_log(size);
    tc_tensor near = tc_logical_and(tc_gt(size, 0.75), tc_lt(size, 1.25));
    tc_tensor a = tc_where(near, tc_abs(p.re), 1), b = tc_where(near, tc_abs(p.im), 0);
    tc_tensor x = tc_maximum(a, b), y = tc_minimum(a, b), xx = tc_square(x), yy = tc_square(y);
    tc_tensor rest = tc_add(tc_fma(x, x, tc_neg(xx)), tc_fma(y, y, tc_neg(yy)));
    tc_tensor s = tc_add(tc_add(tc_sub(xx, 1), yy), rest);
    return tci_made_differentiated(tc_where(near, tc_mul(tc_log1p(s), 0.5), log), log, here);
}

TC_API tc_tensor tc_complex_log_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tci_pair p;
    if (!tci_pair_begin(&m, "tc_complex_log", x, &p, here)) {
        return m.bad;
    }
    return tci_pair_end(&m, tci_pair_log(p, here), tc_atan2(p.im, p.re));
}

TC_API tc_tensor tc_complex_matmul_at(tc_tensor a, tc_tensor b, tc_site here)
{
    tci_made m;
    tci_pair p, q;
    if (!tci_pair_begin_two(&m, "tc_complex_matmul", a, b, &p, &q, here)) {
        return m.bad;
    }
    return tci_pair_end(&m, tc_sub(tc_matmul(p.re, q.re), tc_matmul(p.im, q.im)),
                        tc_add(tc_matmul(p.re, q.im), tc_matmul(p.im, q.re)));
}

#pragma pop_macro("TC_HERE")
