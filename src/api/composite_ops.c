/* api/composite_ops.c - composite ops: public calls that are defined by other public calls (clamp,
 * vector norms, tensordot, distances, attention, embedding, random draws).
 *
 * In: the operands of a public call. Out: a handle to the composition of public ops that defines
 * the op. Design: the body of an op is written as a user would write it. The calls within it are
 * attributed to the outer op and to the caller's source location (tci_made_begin), so that errors
 * and node origins name only the outer op. Bodies need not handle half precision: floats are upcast
 * before and rounded once at the end. Purely elementwise formulas are built rows of ops/table.h. */
#include "composite_helpers.h"

#include <math.h>
#include <string.h>

/* The macros of api/ops.h take the place of the caller's that is called `here`. */
enum { TCI_MADE_RANK = 16 }; /* heads of more axes are not shared */

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

/* ---- elements ---- */

/* x cut at a bound: the larger of both, or the smaller. Where they are equal a tensor takes half
 * of the gradient, and of a number neither takes any. */
static tc_tensor tci_made_bounded(tc_tensor x, tc_arg bound, bool smaller, tc_site here)
{
    tc_arg v = tci_arg_tensor(x);
    tc_tensor cut = smaller ? tc_minimum_at(v, bound, here) : tc_maximum_at(v, bound, here);
    if (bound.kind) {
        tc_tensor in = smaller ? tc_lt_at(v, bound, here) : tc_gt_at(v, bound, here);
        cut = tc_where_at(tci_arg_tensor(in), v, tci_arg_tensor(tc_stop_gradient(cut)), here);
    }
    return cut;
}

TC_API tc_tensor tc_clamp_at(tc_tensor x, tc_arg min, tc_arg max, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_clamp", x, here)) {
        return m.bad;
    }
    if (tci_made_is_left_out(min) && tci_made_is_left_out(max)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "neither min nor max is given");
    }
    tc_arg v = tci_arg_tensor(x);
    tc_tensor f = x;
    if (!tci_made_is_left_out(min)) {
        f = tci_made_bounded(f, min, false, here);
        tc_arg cut = tci_arg_tensor(tc_maximum_at(v, min, here));
        v = tci_arg_tensor(tc_where_at(tci_arg_tensor(tc_ge_at(v, min, here)), v, cut, here));
    }
    if (!tci_made_is_left_out(max)) {
        f = tci_made_bounded(f, max, true, here);
        tc_arg cut = tci_arg_tensor(tc_minimum_at(v, max, here));
        v = tci_arg_tensor(tc_where_at(tci_arg_tensor(tc_le_at(v, max, here)), v, cut, here));
    }
    return tci_made_end(&m, tci_made_differentiated(v.tensor, f, here));
}

TC_API tc_tensor tc_masked_fill_at(tc_tensor x, tc_tensor mask, tc_arg value, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_masked_fill", x, here)) {
        return m.bad;
    }
    const tc_dtype t = tc_dtype_of(x);
    tc_tensor fill = value.kind ? tc_full_at(m.ctx->handle, value, 1, (const int64_t[]){t}, here)
                                : tc_cast(value.tensor, t);
    return tci_made_end(&m, tc_where(mask, fill, x));
}

TC_API tc_tensor tc_nan_to_num_at(tc_tensor x, tc_arg nan, tc_arg posinf, tc_arg neginf,
                                  tc_site here)
{
    static const double largest[] = {0x1.ffcp15, 0x1.fep127, 0x1.fffffep127,
                                     0x1.fffffffffffffp1023}; /* f16, bf16, f32, f64 */
    tci_made m;
    if (!tci_made_begin(&m, "tc_nan_to_num", x, here)) {
        return m.bad;
    }
    if (tc_dtype_of(x) != m.dtype) { /* integers have none */
        return tci_made_end(&m, x);
    }
    double most = largest[m.dtype - TC_F16];
    const double inf = (double)INFINITY;
    nan = tci_made_is_left_out(nan) ? tci_arg_float(0) : nan;
    posinf = tci_made_is_left_out(posinf) ? tci_arg_float(most) : posinf;
    neginf = tci_made_is_left_out(neginf) ? tci_arg_float(-most) : neginf;
    tc_tensor y = tc_where_at(TC_ARG(tc_isnan(x)), nan, tci_arg_tensor(x), here);
    y = tc_where_at(TC_ARG(tc_eq(x, inf)), posinf, tci_arg_tensor(y), here);
    y = tc_where_at(TC_ARG(tc_eq(x, -inf)), neginf, tci_arg_tensor(y), here);
    return tci_made_round(&m, y);
}

/* Sums of pairs, of fours, of eights, and all of these by one product. */
TC_API tc_tensor tc_popcount_at(tc_tensor x, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_popcount", x, here)) {
        return m.bad;
    }
    tc_dtype t = tc_dtype_of(x);
    if (!tci_dtype_is_int(t)) {
        return tci_made_fail(&m, TC_ERR_DTYPE, "x has dtype %s: expected an integer dtype",
                             tci_dtype_get(t)->name);
    }
    int bytes = tci_dtype_get(t)->bytes;
    tc_dtype bits = bytes == 1 ? TC_U8 : bytes == 2 ? TC_U16 : bytes == 4 ? TC_U32 : TC_U64;
    tc_tensor v = tc_cast(tc_bitcast(x, bits), TC_U64);
    v = tc_sub(v, tc_bitwise_and(tc_bitwise_right_shift(v, 1), 0x5555555555555555));
    v = tc_add(tc_bitwise_and(v, 0x3333333333333333),
               tc_bitwise_and(tc_bitwise_right_shift(v, 2), 0x3333333333333333));
    v = tc_bitwise_and(tc_add(v, tc_bitwise_right_shift(v, 4)), 0x0f0f0f0f0f0f0f0f);
    v = tc_bitwise_right_shift(tc_mul(v, 0x0101010101010101), 56);
    return tci_made_end(&m, tc_cast(v, t));
}

TC_API tc_tensor tc_glu_at(tc_tensor x, int axis, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_glu", x, here)) {
        return m.bad;
    }
    tc_tensor wide = tci_made_wide(&m, x);
    int64_t size = tc_rank(x) ? tc_size(x, axis) : 1, half = tc_dim_div(size, 2);
    if (!tci_dim_divides(2, size)) {
        return tci_made_fail(&m, TC_ERR_SHAPE, "axis %d has size %s: expected an even size", axis,
                             TCI_DIM_TEXT(size));
    }
    tc_tensor gate = tc_sigmoid(tc_slice(wide, axis, half, TC_END, 1));
    return tci_made_round(&m, tc_mul(tc_slice(wide, axis, 0, half, 1), gate));
}

TC_API tc_tensor tc_rope_at(tc_tensor x, tc_tensor cosine, tc_tensor sine, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_rope", x, here)) {
        return m.bad;
    }
    int64_t size = tc_rank(x) ? tc_size(x, -1) : 1, half = tc_dim_div(size, 2);
    if (!tci_dim_divides(2, size)) {
        return tci_made_fail(&m, TC_ERR_SHAPE, "the last axis has size %s: expected an even size",
                             TCI_DIM_TEXT(size));
    }
    tc_tensor wide = tci_made_wide(&m, x);
    tc_tensor turned = tc_cat(TC_TENSORS(tc_neg(tc_slice(wide, -1, half, TC_END, 1)),
                                         tc_slice(wide, -1, 0, half, 1)),
                              -1);
    return tci_made_round(&m, tc_add(tc_mul(wide, cosine), tc_mul(turned, sine)));
}

/* ---- approximate equality ---- */

/* Integers and bool are compared in f64. */
static tc_tensor tci_made_close(const tci_made *m, tc_tensor a, tc_arg b, double rtol, double atol,
                                bool equal_nan)
{
    tc_site here = m->here;
    tc_tensor other = b.kind ? tc_full_at(m->ctx->handle, b, 1, (const int64_t[]){TC_F64}, here)
                             : b.tensor;
    const bool floats = tci_dtype_is_float(tc_dtype_of(a)) && !b.kind &&
                        tci_dtype_is_float(tc_dtype_of(other));
    if (!floats) {
        a = tc_cast(a, TC_F64);
        other = tc_cast(other, TC_F64);
    }
    tc_tensor apart = tc_abs(tc_sub(a, other));
    tc_tensor allowed = tc_add(tc_mul(tc_abs(other), rtol), atol);
    tc_tensor near = tc_logical_and(tc_isfinite(apart), tc_le(apart, allowed));
    near = tc_logical_or(tc_eq(a, other), near);
    return equal_nan ? tc_logical_or(near, tc_logical_and(tc_isnan(a), tc_isnan(other))) : near;
}

static tc_tensor tci_made_compare(const char *name, tc_tensor a, tc_arg b, double rtol, double atol,
                                  bool equal_nan, bool all, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, name, a, here)) {
        return m.bad;
    }
    if (!(rtol >= 0 && atol >= 0)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "rtol %g, atol %g: expected 0 or more", rtol,
                             atol);
    }
    tc_tensor close = tci_made_close(&m, a, b, rtol, atol, equal_nan);
    return tci_made_end(&m, all ? tc_all(close, TC_ALL, false) : close);
}

TC_API tc_tensor tc_isclose_at(tc_tensor a, tc_arg b, double rtol, double atol, bool equal_nan,
                               tc_site here)
{
    return tci_made_compare("tc_isclose", a, b, rtol, atol, equal_nan, false, here);
}

TC_API tc_tensor tc_allclose_at(tc_tensor a, tc_arg b, double rtol, double atol, bool equal_nan,
                                tc_site here)
{
    return tci_made_compare("tc_allclose", a, b, rtol, atol, equal_nan, true, here);
}

/* ---- over axes ---- */

/* x with one more element, -infinity, at the end of each of these axes that may have none. */
static tc_tensor tci_made_not_empty(tc_tensor x, tc_axes axes, tc_site here)
{
    for (int i = 0; i < (axes.all ? tc_rank(x) : axes.n); i++) {
        int axis = axes.all ? i : axes.items[i];
        bool some = axis >= tc_rank(x) || axis < -tc_rank(x) || tci_dim_le(1, tc_size(x, axis));
        x = some ? x : tc_pad_at(x, axis, 0, 1, tci_arg_float(-(double)INFINITY), here);
    }
    return x;
}

TC_API tc_tensor tc_logsumexp_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_logsumexp", x, here)) {
        return m.bad;
    }
    tc_tensor wide = tci_made_wide(&m, x);
    if (tc_count(x) == 0) { /* no element is the largest: the logarithms of sums of nothing */
        return tci_made_round(&m, tc_log(tc_sum(tc_exp(wide), axes, keepdims)));
    }
    tc_tensor top = tc_max(tci_made_not_empty(wide, axes, here), axes, true);
    top = tc_where(tc_isfinite(top), top, 0.0);
    tc_tensor sum = tc_sum(tc_exp(tc_sub(wide, top)), axes, keepdims);
    top = keepdims ? top : tc_sum(top, axes, false); /* of one element each */
    return tci_made_round(&m, tc_add(tc_log(sum), top));
}

/* |x|^p summed, to the 1 / p. Where that is 0 so is the gradient, as in PyTorch 2.15, and where
 * 0^p is infinite an element of 0 has the tangent 0 too. Even powers are those of x itself, which
 * are smooth at 0. */
static tc_tensor tci_made_norm(tc_tensor x, double p, tc_axes axes, bool keepdims, tc_site here)
{
    tc_tensor size = tc_abs(x);
    if (p == (double)INFINITY) {
        return tc_max(size, axes, keepdims);
    }
    if (p == -(double)INFINITY) {
        return tc_min(size, axes, keepdims);
    }
    if (p == 0) {
        return tc_cast(tc_sum(tc_ne(x, 0), axes, keepdims), tc_dtype_of(x));
    }
    if (p == 1) {
        return tc_sum(size, axes, keepdims);
    }
    const double of_0 = p < 0 ? (double)INFINITY : 0; /* 0^p and 0^(1 / p) */
    tc_tensor power;
    if (p > 0 && fmod(p, 2) == 0) {
        power = p == 2 ? tc_square(x) : tc_pow(x, p);
    } else {
        tc_tensor none = tc_eq(x, 0);
        power = tc_where(none, of_0, tc_pow(tc_where(none, 1, size), p));
    }
    tc_tensor sum = tc_sum(power, axes, keepdims), empty = tc_eq(sum, 0);
    tc_tensor safe = tc_where(empty, 1, sum);
    return tc_where(empty, of_0, p == 2 ? tc_sqrt(safe) : tc_pow(safe, 1 / p));
}

TC_API tc_tensor tc_norm_at(tc_tensor x, double p, tc_axes axes, bool keepdims, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_norm", x, here)) {
        return m.bad;
    }
    return tci_made_round(&m, tci_made_norm(tci_made_wide(&m, x), p, axes, keepdims, here));
}

TC_API tc_tensor tc_normalize_at(tc_tensor x, double p, int axis, double eps, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_normalize", x, here)) {
        return m.bad;
    }
    tc_tensor wide = tci_made_wide(&m, x);
    tc_tensor norm = tci_made_norm(wide, p, TC_AXES(axis), true, here);
    return tci_made_round(&m, tc_div(wide, tc_maximum(norm, eps)));
}

TC_API tc_tensor tc_renorm_at(tc_tensor x, double p, int axis, double maxnorm, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_renorm", x, here)) {
        return m.bad;
    }
    if (tc_rank(x) < 2 || p <= 0 || maxnorm < 0) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "rank %d, p %g, maxnorm %g: expected at least two axes, a positive p "
                             "and a maxnorm of 0 or more",
                             tc_rank(x), p, maxnorm);
    }
    if (maxnorm == (double)INFINITY) { /* no norm is larger */
        return tci_made_end(&m, tc_cast(x, m.dtype));
    }
    /* the slices as rows */
    tc_tensor wide = tc_transpose(tci_made_wide(&m, x), 0, axis);
    tc_tensor rows = tc_reshape(wide, tc_size(wide, 0), tci_made_others(wide, 0));
    tc_tensor norm = tci_made_norm(rows, p, TC_AXES(1), false, here);
    tc_tensor factor = tc_where(tc_gt(norm, maxnorm), tc_div(maxnorm, tc_add(norm, 1e-7)), 1);
    for (int i = 1; i < tc_rank(x); i++) {
        factor = tc_unsqueeze(factor, -1);
    }
    return tci_made_round(&m, tc_transpose(tc_mul(wide, factor), 0, axis));
}

TC_API tc_tensor tc_diff_at(tc_tensor x, int64_t n, int axis, tc_tensor prepend, tc_tensor append,
                            tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_diff", x, here)) {
        return m.bad;
    }
    if (!tci_dim_is_known(n) || n < 0) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "n is %s: expected a number, 0 or more",
                             TCI_DIM_TEXT(n));
    }
    x = tci_is_none(prepend) || !n ? x : tc_cat(TC_TENSORS(prepend, x), axis);
    x = tci_is_none(append) || !n ? x : tc_cat(TC_TENSORS(x, append), axis);
    const int64_t enough = tc_rank(x) > 0 ? tci_dim_most(tc_size(x, axis)) : 1; /* none is left */
    for (n = TCI_MIN(n, TCI_MAX(enough, 1)); n > 0 && !tc_status_of(x); n--) {
        tc_tensor after = tc_slice(x, axis, 1, TC_END, 1);
        tc_tensor before = tc_slice(x, axis, 0, tc_size(after, axis), 1);
        x = tc_dtype_of(x) == TC_BOOL ? tc_ne(after, before) : tc_sub(after, before);
    }
    return tci_made_end(&m, x);
}

/* The areas of the trapezoids between neighbours, which are x apart, or dx where x is TC_NONE. */
static tc_tensor tci_made_areas(const tci_made *m, tc_tensor y, tc_tensor x, double dx, int axis)
{
    tc_site here = m->here;
    y = tci_made_wide(m, y);
    tc_tensor after = tc_slice(y, axis, 1, TC_END, 1);
    tc_tensor heights = tc_add(after, tc_slice(y, axis, 0, tc_size(after, axis), 1));
    if (tci_is_none(x) || tc_status_of(heights)) {
        return tc_mul(heights, 0.5 * dx);
    }
    int of_x = tc_rank(x) == 1 && tc_rank(y) > 1 ? 0 : axis;
    after = tc_slice(x, of_x, 1, TC_END, 1);
    tc_tensor apart = tc_sub(after, tc_slice(x, of_x, 0, tc_size(after, of_x), 1));
    for (int i = axis < 0 ? axis + tc_rank(y) : axis; tc_rank(x) == 1 && i + 1 < tc_rank(y); i++) {
        apart = tc_unsqueeze(apart, -1);
    }
    return tc_mul(tc_mul(heights, apart), 0.5);
}

TC_API tc_tensor tc_trapezoid_at(tc_tensor y, tc_tensor x, double dx, int axis, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_trapezoid", y, here)) {
        return m.bad;
    }
    return tci_made_round(&m, tc_sum(tci_made_areas(&m, y, x, dx, axis), TC_AXES(axis), false));
}

TC_API tc_tensor tc_cumulative_trapezoid_at(tc_tensor y, tc_tensor x, double dx, int axis,
                                            tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_cumulative_trapezoid", y, here)) {
        return m.bad;
    }
    return tci_made_round(&m, tc_cumsum(tci_made_areas(&m, y, x, dx, axis), axis));
}

/* ---- products and distances ---- */

TC_API tc_tensor tc_cross_at(tc_tensor a, tc_tensor b, int axis, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_cross", a, here)) {
        return m.bad;
    }
    tc_tensor turned[2][2];
    for (int i = 0; i < 2; i++) {
        tc_tensor v = i ? b : a;
        if (!tc_status_of(v) && !(tc_rank(v) && tc_size(v, axis) == 3)) {
            return tci_made_fail(&m, TC_ERR_SHAPE, "axis %d of operand %d does not have size 3",
                                 axis, i + 1);
        }
        for (int k = 0; k < 2; k++) { /* from element 1 on, from element 2 on */
            turned[i][k] = tc_cat(TC_TENSORS(tc_slice(v, axis, k + 1, TC_END, 1),
                                             tc_slice(v, axis, 0, k + 1, 1)),
                                  axis);
        }
    }
    return tci_made_end(&m, tc_sub(tc_mul(turned[0][0], turned[1][1]),
                                   tc_mul(turned[0][1], turned[1][0])));
}

TC_API tc_tensor tc_kron_at(tc_tensor a, tc_tensor b, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_kron", a, here)) {
        return m.bad;
    }
    while (tc_rank(a) < tc_rank(b)) {
        a = tc_unsqueeze(a, 0);
    }
    while (!tc_status_of(b) && tc_rank(b) < tc_rank(a)) {
        b = tc_unsqueeze(b, 0);
    }
    tci_words w;
    int rank = tc_rank(a);
    int64_t *sizes = tci_words_get(&m.ctx->graph, &w, rank);
    for (int i = 0; sizes && i < rank; i++) {
        sizes[i] = tc_dim_mul(tc_size(a, i), tc_size(b, i));
    }
    for (int i = 0; i < rank; i++) { /* [a0, 1, a1, 1] times [1, b0, 1, b1] */
        a = tc_unsqueeze(a, 2 * i + 1);
        b = tc_unsqueeze(b, 2 * i);
    }
    tc_tensor y = tc_mul(a, b);
    y = sizes ? tc_reshape_at(y, rank, sizes, here) : y;
    tci_words_put(&m.ctx->graph, &w, NULL);
    return tci_made_end(&m, y);
}

TC_API tc_tensor tc_outer_at(tc_tensor a, tc_tensor b, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_outer", a, here)) {
        return m.bad;
    }
    if (!tc_status_of(b) && (tc_rank(a) != 1 || tc_rank(b) != 1)) {
        return tci_made_fail(&m, TC_ERR_SHAPE, "ranks %d and %d: expected one axis each",
                             tc_rank(a), tc_rank(b));
    }
    return tci_made_end(&m, tc_mul(tc_unsqueeze(a, 1), b));
}

TC_API tc_tensor tc_dot_at(tc_tensor a, tc_tensor b, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_dot", a, here)) {
        return m.bad;
    }
    if (!tc_status_of(b) &&
        (tc_rank(a) != 1 || tc_rank(b) != 1 || tc_size(a, 0) != tc_size(b, 0))) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "a has shape %s, b %s: expected two vectors of one "
                             "size (tc_matmul multiplies matrices)",
                             tci_made_shape(a).text, tci_made_shape(b).text);
    }
    return tci_made_end(&m, tc_einsum("i,i->", TC_TENSORS(a, b)));
}

/* Letters for the axes of x: from `next` on, but those that are summed have the letter of their
 * position in the list. False: an axis is none of x, or is named twice. */
static bool tci_made_letters(tc_tensor x, tc_axes summed, int next, char *letters)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const int rank = tc_rank(x);
    memset(letters, 0, (size_t)rank + 1);
    for (int i = 0; i < summed.n; i++) {
        const int axis = summed.items[i] + (summed.items[i] < 0 ? rank : 0);
        if (axis < 0 || axis >= rank || letters[axis]) {
            return false;
        }
        letters[axis] = all[i];
    }
    for (int i = 0; i < rank; i++) {
        letters[i] = letters[i] ? letters[i] : all[next++];
    }
    return true;
}

TC_API tc_tensor tc_tensordot_at(tc_tensor a, tc_tensor b, tc_axes axes_a, tc_axes axes_b,
                                 tc_site here)
{
    enum { TCI_MADE_LETTERS = 52 };
    tci_made m;
    char left[TCI_MADE_LETTERS + 1], right[TCI_MADE_LETTERS + 1], spec[5 * TCI_MADE_LETTERS];
    if (!tci_made_begin(&m, "tc_tensordot", a, here)) {
        return m.bad;
    }
    if (tc_status_of(b)) {
        return tci_made_end(&m, tc_neg(b));
    }
    if (!tci_made_list(&m, axes_a.items, axes_a.n, "the axes of a") ||
        !tci_made_list(&m, axes_b.items, axes_b.n, "the axes of b")) {
        return m.bad;
    }
    const int rank_a = tc_rank(a), rank_b = tc_rank(b), n = axes_a.n;
    if (rank_a + rank_b > TCI_MADE_LETTERS) {
        return tci_made_fail(&m, TC_ERR_LIMIT, "ranks %d and %d: expected at most %d axes", rank_a,
                             rank_b, TCI_MADE_LETTERS);
    }
    if (axes_a.all || axes_b.all || n != axes_b.n || n > rank_a || n > rank_b ||
        !tci_made_letters(a, axes_a, n, left) || !tci_made_letters(b, axes_b, rank_a, right)) {
        return tci_made_fail(&m, TC_ERR_AXIS,
                             "%d axes of a rank of %d, %d of %d: expected lists "
                             "of as many, each axis once",
                             n, rank_a, axes_b.n, rank_b);
    }
    for (int i = 0; i < n; i++) {
        if (tc_size(a, axes_a.items[i]) != tc_size(b, axes_b.items[i])) {
            return tci_made_fail(&m, TC_ERR_SHAPE,
                                 "a has shape %s, b %s: axis %d of a and axis %d "
                                 "of b have not one size",
                                 tci_made_shape(a).text, tci_made_shape(b).text, axes_a.items[i],
                                 axes_b.items[i]);
        }
    }
    int at = snprintf(spec, sizeof(spec), "%s,%s->", left, right);
    for (int i = 0; i < rank_a + rank_b; i++) {
        const char letter = i < rank_a ? left[i] : right[i - rank_a];
        if (!memchr(i < rank_a ? right : left, letter, (size_t)(i < rank_a ? rank_b : rank_a))) {
            spec[at++] = letter;
        }
    }
    spec[at] = 0;
    return tci_made_end(&m, tc_einsum(spec, TC_TENSORS(a, b)));
}

TC_API tc_tensor tc_cosine_similarity_at(tc_tensor x1, tc_tensor x2, int axis, double eps,
                                         tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_cosine_similarity", x1, here)) {
        return m.bad;
    }
    tc_tensor a = tci_made_wide(&m, x1), b = tci_made_wide(&m, x2), product = tc_mul(a, b);
    tc_tensor size[2];
    for (int i = 0; i < 2; i++) {
        tc_tensor v = tci_made_like(i ? b : a, product, here);
        size[i] = tc_maximum(tci_made_norm(v, 2, TC_AXES(axis), false, here), eps);
    }
    tc_tensor y = tc_sum(product, TC_AXES(axis), false);
    return tci_made_round(&m, tc_div(y, tc_mul(size[0], size[1])));
}

TC_API tc_tensor tc_pairwise_distance_at(tc_tensor x1, tc_tensor x2, double p, double eps,
                                         bool keepdims, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_pairwise_distance", x1, here)) {
        return m.bad;
    }
    tc_tensor off = tc_add(tc_sub(tci_made_wide(&m, x1), tci_made_wide(&m, x2)), eps);
    return tci_made_round(&m, tci_made_norm(off, p, TC_AXES(-1), keepdims, here));
}

TC_API tc_tensor tc_cdist_at(tc_tensor x1, tc_tensor x2, double p, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_cdist", x1, here)) {
        return m.bad;
    }
    if (!tc_status_of(x2) && (tc_rank(x1) < 2 || tc_rank(x2) < 2)) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "ranks %d and %d: expected [..., n, d] and "
                             "[..., m, d]",
                             tc_rank(x1), tc_rank(x2));
    }
    tc_tensor rows = tc_unsqueeze(tci_made_wide(&m, x1), -2);
    tc_tensor columns = tc_unsqueeze(tci_made_wide(&m, x2), -3);
    tc_tensor off = tc_sub(rows, columns);
    p = tc_size(off, -1) ? p : 1; /* rows of no element are 0 apart, also by the largest */
    return tci_made_round(&m, tci_made_norm(off, p, TC_AXES(-1), false, here));
}

/* Axis -3 of x apart: this many groups of neighbours. */
static tc_tensor tci_made_apart(tc_tensor x, int64_t groups, tc_site here)
{
    const int rank = tc_rank(x);
    int64_t sizes[TCI_MADE_RANK];
    for (int i = 0; i < rank; i++) {
        sizes[i + (i > rank - 3)] = tc_size(x, i);
    }
    sizes[rank - 2] = tc_dim_div(tc_size(x, -3), groups);
    sizes[rank - 3] = groups;
    return tc_reshape_at(x, rank + 1, sizes, here);
}

/* And together again. */
static tc_tensor tci_made_joined(tc_tensor x, tc_site here)
{
    const int rank = tc_rank(x);
    int64_t sizes[TCI_MADE_RANK];
    if (tc_status_of(x)) {
        return x;
    }
    for (int i = 0; i < rank - 1; i++) {
        sizes[i] = tc_size(x, i + (i > rank - 4));
    }
    sizes[rank - 4] = tc_dim_mul(tc_size(x, -4), tc_size(x, -3));
    return tc_reshape_at(x, rank - 1, sizes, here);
}

/* Where key has fewer heads than query, one for each group of neighbours: the groups become an axis
 * of query and mask, along which key and value broadcast. */
static void tci_made_share_heads(tc_tensor *query, tc_tensor *key, tc_tensor *value,
                                 tc_tensor *mask, tc_site here)
{
    const int rank = tc_rank(*query);
    if (rank < 3 || rank >= TCI_MADE_RANK || tc_rank(*mask) >= TCI_MADE_RANK ||
        tc_rank(*key) != rank || tc_rank(*value) != rank) {
        return;
    }
    const int64_t heads = tc_size(*query, -3), shared = tc_size(*key, -3);
    if (shared == 1 || shared == heads || tc_size(*value, -3) != shared ||
        !tci_dim_is_known(shared) || shared < 1 || !tci_dim_divides(shared, heads)) {
        return; /* what does not fit is told by the product */
    }
    *query = tci_made_apart(*query, shared, here);
    *key = tc_unsqueeze(*key, -3);
    *value = tc_unsqueeze(*value, -3);
    if (!tci_is_none(*mask) && tc_rank(*mask) >= 3) {
        *mask = tc_size(*mask, -3) == 1 ? tc_unsqueeze(*mask, -3)
                                        : tci_made_apart(*mask, shared, here);
    }
}

/* False: the axes before the last two cannot broadcast, nor can heads be shared. */
static bool tci_made_heads_fit(tc_tensor query, tc_tensor key)
{
    const int rank = tc_rank(query);
    bool fits = true;
    for (int i = 3; i <= TCI_MIN(rank, tc_rank(key)); i++) {
        const int64_t a = tc_size(query, -i), b = tc_size(key, -i);
        bool known = tci_dim_is_known(a) && tci_dim_is_known(b);
        bool shares = i == 3 && rank == tc_rank(key) && known && b > 0 && a % b == 0;
        fits = fits && (!known || a == b || a == 1 || b == 1 || shares);
    }
    return fits;
}

/* a b, and of f16 and bf16 their sums as they are. */
static tc_tensor tci_made_scores(const tci_made *m, tc_tensor a, tc_tensor b)
{
    tci_frame f = tci_frame_begin(m->name, m->here);
    tci_frame_use(&f, a);
    tci_frame_use(&f, b);
    tci_node *na = tci_frame_node(&f, a, "query"), *nb = tci_frame_node(&f, b, "key");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_matmul_wide(&f.ctx->graph, na, nb));
}

/* The float in which query, key and a mask that is added meet. */
static tc_dtype tci_made_met(const tci_made *m, tc_tensor query, tc_tensor key, tc_tensor mask)
{
    tc_promotion how = m->ctx->graph.promotion;
    bool masks = !tci_is_none(mask);
    if (tc_status_of(query) || tc_status_of(key) || (masks && tc_status_of(mask))) {
        return TC_F32; /* of a mistake, which what follows tells */
    }
    tc_dtype t = tci_dtype_promote(how, tc_dtype_of(query), tc_dtype_of(key));
    bool adds = masks && tc_dtype_of(mask) != TC_BOOL && tc_rank(mask) > 0;
    return tci_dtype_real(how, adds ? tci_dtype_promote(how, t, tc_dtype_of(mask)) : t);
}

/* A mask in which some queries see no key: *seen, [..., q, 1], is true of the others. The mask that
 * is returned lets these queries see every key, so that their scores, weights and gradients are
 * finite; their rows of the result are to become 0. */
static tc_tensor tci_made_unmasked(const tci_made *m, tc_tensor mask, tc_tensor causal,
                                   tc_tensor *seen)
{
    const double inf = (double)INFINITY;
    const bool chosen = tc_dtype_of(mask) == TC_BOOL;
    tc_site here = m->here;
    for (int i = tc_rank(mask); i < 2 && !tc_status_of(mask); i++) {
        mask = tc_unsqueeze_at(mask, 0, here);
    }
    tc_tensor sees = chosen ? mask : tc_ne(mask, -inf);
    sees = tci_is_none(causal) ? sees : tc_logical_and(sees, causal);
    *seen = tc_any(sees, TC_AXES(-1), true);
    return chosen ? tc_logical_or(mask, tc_logical_not(*seen)) : tc_where(*seen, mask, 0);
}

/* For f16 and bf16 scores and softmax are f32, and the weights are rounded. */
TC_API tc_tensor tc_scaled_dot_product_attention_at(tc_tensor query, tc_tensor key, tc_tensor value,
                                                    tc_tensor mask, bool is_causal, double scale,
                                                    tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_scaled_dot_product_attention", query, here)) {
        return m.bad;
    }
    if (tc_rank(query) < 2 || (!tc_status_of(key) && tc_rank(key) < 2)) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "query and key have ranks %d and %d: expected "
                             "[..., rows, width]",
                             tc_rank(query), tc_rank(key));
    }
    if (!tc_status_of(key) && tc_size(query, -1) != tc_size(key, -1)) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "query has shape %s, key %s: expected key [..., "
                             "keys, %s]",
                             tci_made_shape(query).text, tci_made_shape(key).text,
                             TCI_DIM_TEXT(tc_size(query, -1)));
    }
    if (!tc_status_of(key) && !tci_made_heads_fit(query, key)) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "query has shape %s, key %s: expected axes before the last two that "
                             "broadcast, or heads (axis -3) of key that divide those of query",
                             tci_made_shape(query).text, tci_made_shape(key).text);
    }
    const double inf = (double)INFINITY;
    const tc_tensor given = query;
    tci_made_share_heads(&query, &key, &value, &mask, here);
    tc_tensor scores = tci_made_scores(&m, query, tc_transpose(key, -1, -2));
    int64_t width = tc_size(query, -1);
    if (scale == 0 && !tci_dim_is_known(width)) {
        scores = tc_mul(scores, tc_rsqrt(tc_full(m.ctx->handle, width, tc_dtype_of(scores))));
    } else {
        scores = tc_mul(scores, scale == 0 ? 1 / sqrt((double)width) : scale);
    }
    tc_tensor causal = TC_NONE, seen = TC_NONE;
    if (is_causal) {
        tc_tensor row = tc_arange(m.ctx->handle, 0, tc_size(query, -2), 1, TC_I64);
        tc_tensor column = tc_arange(m.ctx->handle, 0, tc_size(key, -2), 1, TC_I64);
        causal = tc_le(column, tc_unsqueeze(row, 1));
        scores = tc_where(causal, scores, -inf);
    }
    if (!tci_is_none(mask)) {
        bool chosen = tc_dtype_of(mask) == TC_BOOL;
        mask = tci_made_unmasked(&m, mask, causal, &seen);
        scores = chosen ? tc_where(mask, scores, -inf) : tc_add(scores, mask);
    }
    tc_tensor weights = tc_cast(tc_softmax(scores, -1), tci_made_met(&m, query, key, mask));
    tc_tensor y = tc_matmul(weights, value);
    const int64_t words[] = {is_causal, !tci_is_none(mask)};
    y = tci_made_named(&m, TCI_NAMED_ATTENTION, y, TC_TENSORS(query, key, value, mask), scale, 2,
                       words);
    y = tci_is_none(seen) ? y : tc_where(seen, y, 0);
    return tci_made_end(&m, tc_rank(query) > tc_rank(given) ? tci_made_joined(y, here) : y);
}

/* ---- elements by their positions ---- */

TC_API tc_tensor tc_as_strided_at(tc_tensor x, int n, const int64_t *sizes, int n_strides,
                                  const int64_t *strides, int64_t offset, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_as_strided", x, here)) {
        return m.bad;
    }
    bool known = n >= 0 && n == n_strides && (!n || (sizes && strides)), empty = false;
    double first = (double)offset, last = first; /* exact where they are inside of x */
    for (int i = 0; known && i < n; i++) {
        known = tci_dim_is_known(sizes[i]) && tci_dim_is_known(strides[i]) && sizes[i] >= 0;
        double reach = known ? (double)strides[i] * (double)(sizes[i] - 1) : 0;
        first += reach < 0 ? reach : 0;
        last += reach > 0 ? reach : 0;
        empty = empty || sizes[i] == 0;
    }
    tc_tensor flat = tc_reshape(x, -1);
    const int64_t count = tc_size(flat, 0);
    if (!known || !tci_dim_is_known(count)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "%d sizes and %d strides of an x of %s elements: "
                             "expected as many, and numbers",
                             n, n_strides, TCI_DIM_TEXT(count));
    }
    if (!empty && (first < 0 || last >= (double)count)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "elements %.0f to %.0f of an x of %s", first,
                             last, TCI_DIM_TEXT(count));
    }
    tc_tensor place = tc_full(m.ctx->handle, offset, TC_I64);
    for (int i = 0; i < n; i++) {
        tc_tensor own = tc_mul(tc_arange(m.ctx->handle, 0, sizes[i], 1, TC_I64), strides[i]);
        place = tc_add(tc_unsqueeze(place, -1), own);
    }
    if (!count) { /* and nothing is read */
        return tci_made_end(&m, tc_cast(tc_reshape_at(place, n, sizes, here), tc_dtype_of(x)));
    }
    tc_tensor y = tc_index_select(flat, 0, tc_reshape(place, -1));
    return tci_made_end(&m, tc_reshape_at(y, n, sizes, here));
}

/* xs.items[own] along its axis of the grid, or why there is none. */
static tc_tensor tci_made_grid(const tci_made *m, tc_tensors xs, bool xy, int own)
{
    tc_site here = m->here;
    tci_words w;
    int64_t *sizes = tci_words_get(&m->ctx->graph, &w, 2 * xs.n), *line = sizes + xs.n;
    tc_tensor bad = TC_NONE, y = TC_NONE;
    for (int i = 0; sizes && i < xs.n && tci_is_none(bad); i++) {
        const int from = xy && xs.n > 1 && i < 2 ? 1 - i : i;
        const tc_tensor x = xs.items[from];
        if (tc_status_of(x)) {
            bad = tc_neg(x);
        } else if (tc_rank(x) > 1) {
            bad = tci_made_fail(m, TC_ERR_SHAPE, "operand %d has rank %d: expected one axis",
                                from + 1, tc_rank(x));
        } else {
            sizes[i] = tc_rank(x) ? tc_size(x, 0) : 1;
            line[i] = from == own ? sizes[i] : 1;
        }
    }
    if (sizes && tci_is_none(bad)) {
        y = tc_reshape_at(xs.items[own], xs.n, line, here);
        y = tc_expand_at(y, xs.n, sizes, here);
    }
    tci_words_put(&m->ctx->graph, &w, NULL);
    return !sizes ? tci_made_fail(m, TC_ERR_MEMORY, "out of memory") : tci_is_none(bad) ? y : bad;
}

TC_API void tc_meshgrid_at(tc_tensors xs, bool xy, tc_tensor *grids, tc_site here)
{
    for (int i = 0; grids && i < xs.n; i++) {
        tci_made m;
        if (!xs.items) {
            grids[i] = tc_cat(xs, 0); /* which tells that there is none */
            continue;
        }
        grids[i] = tci_made_begin(&m, "tc_meshgrid", xs.items[i], here)
                       ? tci_made_end(&m, tci_made_grid(&m, xs, xy, i))
                       : m.bad;
    }
}

/* ---- bags of rows ---- */

/* The bags of an index [B, L], which are its rows, or of one [N] that offsets cut. */
typedef struct tci_made_bags {
    int64_t n, length; /* length: of each, where `bag` is TC_NONE */
    tc_tensor bag;     /* the bag of each element */
} tci_made_bags;

/* The first row of each bag that holds its largest, y: what takes the gradient of y. */
static tc_tensor tci_made_first(const tci_made *m, const tci_made_bags *b, tc_tensor rows,
                                tc_tensor y, tc_site here)
{
    tc_tensor at, none;
    if (tci_is_none(b->bag)) {
        at = tc_argmax(rows, 1, true);
        return tc_reshape(tc_gather(rows, 1, at), b->n, tc_size(rows, 2));
    }
    tc_tensor spread = tci_made_like(tc_unsqueeze(b->bag, 1), rows, here);
    tc_tensor hit = tc_logical_or(tc_eq(rows, tc_gather(y, 0, spread)), tc_isnan(rows));
    tc_tensor last = tc_full(m->ctx->handle, tc_size(rows, 0), TC_I64, tc_size(rows, 0), 1);
    at = tc_unsqueeze(tc_arange(m->ctx->handle, 0, tc_size(rows, 0), 1, TC_I64), 1);
    at = tci_made_like(tc_where(hit, at, last), rows, here);
    none = tc_full(m->ctx->handle, tc_size(rows, 0), TC_I64, b->n, tc_size(rows, 1));
    at = tc_scatter_min(none, 0, spread, at);
    return tc_gather(rows, 0, tc_where(tc_lt(at, tc_size(rows, 0)), at, 0));
}

/* rows [elements, width] added within their bags, or the largest taken. */
static tc_tensor tci_made_fold(const tci_made *m, const tci_made_bags *b, tc_tensor rows,
                               bool largest, tc_site here)
{
    const double start = largest ? -(double)INFINITY : 0.0;
    tc_tensor empty = tc_full(m->ctx->handle, start, tc_dtype_of(rows), b->n, tc_size(rows, 1));
    if (largest && tc_size(rows, 0) == 0) { /* every bag is empty */
        return empty;
    }
    if (tci_is_none(b->bag)) {
        rows = tc_reshape(rows, b->n, b->length, tc_size(rows, 1));
        tc_tensor y = largest ? tc_max(rows, TC_AXES(1), false) : tc_sum(rows, TC_AXES(1), false);
        return largest ? tci_made_differentiated(y, tci_made_first(m, b, rows, y, here), here) : y;
    }
    if (!largest) {
        return tc_index_add(empty, 0, b->bag, rows);
    }
    tc_tensor spread = tci_made_like(tc_unsqueeze(b->bag, 1), rows, here);
    tc_tensor y = tc_scatter_max(empty, 0, spread, rows);
    return tci_made_differentiated(y, tci_made_first(m, b, rows, y, here), here);
}

TC_API tc_tensor tc_embedding_bag_at(tc_tensor index, tc_tensor weight, tc_tensor offsets,
                                     const char *mode, tc_tensor per_sample_weights,
                                     bool include_last_offset, int64_t padding_idx, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_embedding_bag", weight, here)) {
        return m.bad;
    }
    mode = mode ? mode : "mean";
    bool largest = !strcmp(mode, "max"), mean = !strcmp(mode, "mean"), cut = !tci_is_none(offsets);
    if (!largest && !mean && strcmp(mode, "sum")) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "the mode is \"%.40s\": expected sum, mean or max", mode);
    }
    if (tc_rank(weight) != 2 || (!tc_status_of(index) && tc_rank(index) != (cut ? 1 : 2))) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "weight has rank %d, index %d: expected [rows, "
                             "width], and [bags, length] or with offsets one axis",
                             tc_rank(weight), tc_rank(index));
    }
    if (!tci_is_none(per_sample_weights) && strcmp(mode, "sum")) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "per_sample_weights with the mode %s: only "
                             "sums have them",
                             mode);
    }
    tci_made_bags b = {cut ? 0 : tc_size(index, 0), cut ? 0 : tc_size(index, 1), TC_NONE};
    tc_tensor flat = tc_reshape(index, -1);
    if (cut) { /* as many offsets as are not after an element, less one */
        offsets = include_last_offset ? tc_slice(offsets, 0, 0, -1, 1) : offsets;
        tc_tensor place = tc_arange(m.ctx->handle, 0, tc_size(flat, 0), 1, TC_I64);
        b.bag = tc_sub(tc_sum(tc_le(offsets, tc_unsqueeze(place, 1)), TC_AXES(1), false), 1);
        b.n = tc_size(offsets, 0);
    }
    tc_tensor rows = tci_made_wide(&m, tc_index_select(weight, 0, flat));
    if (tc_status_of(rows)) {
        return tci_made_end(&m, rows);
    }
    padding_idx = padding_idx < 0 ? tc_dim_add(tc_size(weight, 0), padding_idx) : padding_idx;
    tc_tensor counts = padding_idx == TC_END ? tc_eq(flat, flat) : tc_ne(flat, padding_idx);
    counts = tc_unsqueeze(counts, 1);
    rows = tc_where(counts, rows, largest ? -(double)INFINITY : 0.0);
    if (!tci_is_none(per_sample_weights)) {
        rows = tc_mul(rows, tc_where(counts, tc_reshape(per_sample_weights, -1, 1), 0));
    }
    tc_tensor y = tci_made_fold(&m, &b, rows, largest, here);
    if (largest || mean) {
        tc_tensor count = tci_made_fold(&m, &b, tc_cast(counts, tc_dtype_of(rows)), false, here);
        y = mean ? tc_div(y, tc_maximum(count, 1)) : tc_where(tc_gt(count, 0), y, 0);
    }
    return tci_made_round(&m, y);
}

/* ---- draws, and running states ---- */

TC_API tc_tensor tc_multinomial_at(tc_tensor p, int64_t samples, bool replacement, tc_arg key,
                                   tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_multinomial", p, here)) {
        return m.bad;
    }
    const int rank = tc_rank(p);
    if (rank < 1 || !tci_dtype_is_float(tc_dtype_of(p)) || samples < 0) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "p is %s of rank %d, and %lld samples: expected "
                             "floats [..., n], and 0 or more",
                             tci_dtype_get(tc_dtype_of(p))->name, rank, (long long)samples);
    }
    tc_tensor wide = tci_made_wide(&m, p);
    tci_words w;
    int64_t *sizes = tci_words_get(&m.ctx->graph, &w, rank + 1);
    for (int i = 0; sizes && i < rank; i++) {
        sizes[0] = tc_dtype_of(wide);
        sizes[i + 1] = replacement && i == rank - 1 ? samples : tc_size(p, i);
    }
    tc_tensor u = sizes ? tc_rand_at(m.ctx->handle, key, rank + 1, sizes, here)
                        : tci_made_fail(&m, TC_ERR_MEMORY, "out of memory");
    tci_words_put(&m.ctx->graph, &w, NULL);
    if (!replacement) { /* whose time, exponential with p as its rate, is first */
        tc_tensor time = tc_div(tc_neg(tc_log1p(tc_neg(u))), wide), indices;
        time = tc_where(tc_gt(wide, 0), time, (double)INFINITY);
        tc_topk(time, -1, samples, false, NULL, &indices);
        return tci_made_end(&m, indices);
    }
    tc_tensor place = tc_arange(m.ctx->handle, 0, tc_size(p, -1), 1, TC_I64);
    tc_tensor sums = tc_cumsum(wide, -1);
    u = tc_mul(u, tc_slice(sums, -1, -1, TC_END, 1));
    /* rounded up to the sum of all, it would be after the last that can be drawn */
    tc_tensor last = tc_max(tc_where(tc_gt(wide, 0), place, 0), TC_AXES(-1), true);
    return tci_made_end(&m, tc_minimum(tc_searchsorted(sums, u, true), last));
}

TC_API tc_tensor tc_ssm_scan_at(tc_tensor u, tc_tensor delta, tc_tensor a, tc_tensor b, tc_tensor c,
                                tc_tensor d, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_ssm_scan", u, here)) {
        return m.bad;
    }
    const tc_tensor all[] = {delta, a, b, c};
    bool fits = tc_rank(u) == 3;
    for (int i = 0; i < TCI_COUNT(all); i++) {
        if (tc_status_of(all[i])) {
            return tci_made_end(&m, tc_neg(all[i]));
        }
        fits = fits && tc_rank(all[i]) == (i == 1 ? 2 : 3);
    }
    if (!fits) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "ranks %d, %d, %d, %d and %d: expected u and delta "
                             "[batch, length, width], a [width, states], b and c [batch, length, "
                             "states]",
                             tc_rank(u), tc_rank(delta), tc_rank(a), tc_rank(b), tc_rank(c));
    }
    tc_tensor wide = tci_made_wide(&m, u), step = tci_made_wide(&m, delta);
    /* [batch, length, width, states]: what a state keeps, and what comes to it */
    tc_tensor keep = tc_exp(tc_mul(tc_unsqueeze(step, -1), tci_made_wide(&m, a)));
    tc_tensor state = tc_mul(tc_unsqueeze(tc_mul(step, wide), -1),
                             tc_unsqueeze(tci_made_wide(&m, b), -2));
    for (int64_t h = 1; !tc_status_of(state) && h < tci_dim_most(tc_size(u, 1)); h *= 2) {
        state = tc_add(state, tc_mul(keep, tc_pad(state, 1, h, -h, 0)));
        keep = tc_mul(keep, tc_pad(keep, 1, h, -h, 1));
    }
    tc_tensor y = tc_sum(tc_mul(state, tc_unsqueeze(tci_made_wide(&m, c), -2)), TC_AXES(-1), false);
    y = tci_is_none(d) ? y : tc_add(y, tc_mul(wide, d));
    return tci_made_round(&m, y);
}

/* The noise is -log(e), e of an exponential distribution, kept from 0. */
TC_API tc_tensor tc_gumbel_softmax_at(tc_tensor logits, double tau, bool hard, int axis, tc_arg key,
                                      tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_gumbel_softmax", logits, here)) {
        return m.bad;
    }
    const int rank = tc_rank(logits);
    if (rank < 1 || !(tau > 0)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "logits of rank %d, tau %g: expected an axis, "
                             "and a tau above 0",
                             rank, tau);
    }
    tc_tensor wide = tci_made_wide(&m, logits);
    tci_words w;
    int64_t *sizes = tci_words_get(&m.ctx->graph, &w, rank + 1);
    for (int i = 0; sizes && i < rank; i++) {
        sizes[0] = tc_dtype_of(wide);
        sizes[i + 1] = tc_size(wide, i);
    }
    tc_tensor u = sizes ? tc_rand_at(m.ctx->handle, key, rank + 1, sizes, here)
                        : tci_made_fail(&m, TC_ERR_MEMORY, "out of memory");
    tci_words_put(&m.ctx->graph, &w, NULL);
    tc_tensor noise = tc_neg(tc_log(tc_maximum(tc_neg(tc_log1p(tc_neg(u))), 0x1p-100)));
    tc_tensor y = tc_softmax(tc_div(tc_add(wide, noise), tau), axis);
    if (hard && !tc_status_of(y)) { /* a value of 0 and 1 with the gradient of y */
        tc_tensor most = tc_argmax(y, axis, true);
        tc_tensor at = tc_arange(m.ctx->handle, 0, tc_size(y, axis), 1, TC_I64);
        for (int i = axis < 0 ? axis + rank : axis; i + 1 < rank; i++) {
            at = tc_unsqueeze(at, -1);
        }
        y = tc_add(tc_cast(tc_eq(at, most), tc_dtype_of(y)), tc_sub(y, tc_stop_gradient(y)));
    }
    return tci_made_round(&m, y);
}

/* ---- short ways ---- */

TC_API tc_tensor tc_linear_at(tc_tensor x, tc_tensor weight, tc_tensor bias, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_linear", x, here)) {
        return m.bad;
    }
    const bool known = !tc_status_of(weight) && tc_rank(x) >= 1;
    if (known && (tc_rank(weight) < 2 || tc_size(weight, -1) != tc_size(x, -1))) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "x has shape %s, weight %s: expected weight [out, "
                             "%s]",
                             tci_made_shape(x).text, tci_made_shape(weight).text,
                             TCI_DIM_TEXT(tc_size(x, -1)));
    }
    tc_tensor y = tc_matmul(x, tc_transpose(weight, -1, -2));
    const int64_t out = tc_size(y, -1);
    if (known && tc_rank(bias) == 1 && tc_size(bias, 0) != out && tc_size(bias, 0) != 1) {
        return tci_made_fail(&m, TC_ERR_SHAPE, "bias has shape %s: expected [%s]",
                             tci_made_shape(bias).text, TCI_DIM_TEXT(out));
    }
    return tci_made_end(&m, tci_is_none(bias) ? y : tc_add(y, bias));
}

TC_API tc_tensor tc_embedding_at(tc_tensor index, tc_tensor weight, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_embedding", index, here)) {
        return m.bad;
    }
    return tci_made_end(&m, tc_index(weight, TC_TENSORS(index)));
}

TC_API tc_tensor tc_one_hot_at(tc_tensor index, int64_t classes, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_one_hot", index, here)) {
        return m.bad;
    }
    if (!tci_dtype_is_int(tc_dtype_of(index))) {
        return tci_made_fail(&m, TC_ERR_DTYPE, "index is %s: expected integers",
                             tci_dtype_get(tc_dtype_of(index))->name);
    }
    if (tci_dim_is_known(classes) && classes < 0) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "%lld classes: expected 0 or more",
                             (long long)classes);
    }
    tc_tensor at = tc_arange(m.ctx->handle, 0, classes, 1, TC_I64);
    return tci_made_end(&m, tc_cast(tc_eq(tc_unsqueeze(index, -1), at), TC_I64));
}

#pragma pop_macro("TC_HERE")
