/* onnx/import_elementwise.c - imports elementwise ONNX operators. */
#include "operator_table.h"
#include "user_call_site.h"

#include <string.h>

/* Before opset 7 operand 1 had the axes of operand 0 from `axis` on, and only if `broadcast`. */
static tc_tensor tci_ox_second(const tci_ox_op *o)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1);
    if (o->opset >= 7 || !tci_ox_int(o, "broadcast", 0) || !tci_ox_attr(o, "axis")) {
        return b;
    }
    int rank_a = tc_rank(a), rank_b;
    const int64_t *sizes = tci_ox_sizes(o, b, &rank_b);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank_a);
    int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank_a + 1);
    if (axis + rank_b > rank_a) {
        tci_ox_fail(o, TC_ERR_SHAPE, "operand 1 has more axes than operand 0 from axis %d on",
                    axis);
    }
    for (int i = 0; i < rank_a - axis; i++) {
        wide[i] = i < rank_b ? sizes[i] : 1;
    }
    return tci_ox_shape_as(o, b, rank_a - axis, wide);
}

TCI_OX_MAKE(direct)
{
    tci_ox_out(o, 0, tc_op(o->ctx, o->row->call, TC_TENSORS(tci_ox_in(o, 0)), TC_ATTRS()));
}

TCI_OX_MAKE(binary)
{
    tc_tensor b = tci_ox_second(o);
    tci_ox_out(o, 0, tc_op(o->ctx, o->row->call, TC_TENSORS(tci_ox_in(o, 0), b), TC_ATTRS()));
}

/* Max, Min, Sum: of any number of operands. */
TCI_OX_MAKE(variadic)
{
    tc_tensor x = tci_ox_in(o, 0);
    for (int i = 1; i < o->n_in; i++) {
        x = tc_op(o->ctx, o->row->call, TC_TENSORS(x, tci_ox_in(o, i)), TC_ATTRS());
    }
    tci_ox_out(o, 0, x);
}

TCI_OX_MAKE(mean_of)
{
    tc_tensor x = tci_ox_in(o, 0);
    for (int i = 1; i < o->n_in; i++) {
        x = tc_add(x, tci_ox_in(o, i));
    }
    tci_ox_out(o, 0, tc_div(x, o->n_in));
}

/* Integers truncate. */
TCI_OX_MAKE(div)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_second(o);
    if (tci_ox_is_float(tc_dtype_of(a))) {
        tci_ox_out(o, 0, tc_div(a, b));
    } else {
        tci_ox_out(o, 0, tc_floor_divide(tc_sub(a, tc_fmod(a, b)), b));
    }
}

TCI_OX_MAKE(mod)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1);
    tci_ox_out(o, 0, tci_ox_int(o, "fmod", 0) ? tc_fmod(a, b) : tc_remainder(a, b));
}

/* In the dtype of the base; integers with a fraction in the exponent through f64. */
TCI_OX_MAKE(pow)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_second(o);
    tc_dtype d = tc_dtype_of(a);
    if (!tci_ox_is_float(d) && tci_ox_is_float(tc_dtype_of(b))) {
        tci_ox_out(o, 0, tc_cast(tc_pow(tc_cast(a, TC_F64), tc_cast(b, TC_F64)), d));
    } else {
        tci_ox_out(o, 0, tc_cast(tc_pow(a, tc_cast(b, d)), d));
    }
}

TCI_OX_MAKE(shift)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1);
    bool left = !strcmp(tci_ox_text(o, "direction", ""), "LEFT");
    tci_ox_out(o, 0, left ? tc_bitwise_left_shift(a, b) : tc_bitwise_right_shift(a, b));
}

/* The dtype of attribute `to`, a number or, before opset 6, a name. */
static tc_dtype tci_ox_target(const tci_ox_op *o)
{
    const tci_onnx_attr *a = tci_ox_attr(o, "to");
    for (int i = 1; a && a->kind == TCI_ONNX_STRING && i <= 16; i++) {
        if (!strcmp(tci_onnx_type_name(i), a->s)) {
            return tci_ox_dtype(o, i);
        }
    }
    return tci_ox_dtype(o, tci_ox_int(o, "to", 0));
}

TCI_OX_MAKE(cast)
{
    tci_ox_out(o, 0, tc_cast(tci_ox_in(o, 0), tci_ox_target(o)));
}

TCI_OX_MAKE(cast_like)
{
    tci_ox_out(o, 0, tc_cast(tci_ox_in(o, 0), tc_dtype_of(tci_ox_in(o, 1))));
}

TCI_OX_MAKE(bit_cast)
{
    tc_tensor x = tci_ox_in(o, 0);
    tc_dtype to = tci_ox_target(o);
    x = tc_dtype_of(x) == TC_BOOL ? tc_cast(x, TC_U8) : x;
    x = to == tc_dtype_of(x) ? x
        : to == TC_BOOL      ? tc_ne(tc_bitcast(x, TC_U8), 0)
                             : tc_bitcast(x, to);
    tci_ox_out(o, 0, x);
}

TCI_OX_MAKE(is_inf)
{
    tc_tensor x = tci_ox_in(o, 0), inf = tc_isinf(x);
    if (!tci_ox_int(o, "detect_negative", 1)) {
        inf = tc_logical_and(inf, tc_gt(x, 0));
    }
    if (!tci_ox_int(o, "detect_positive", 1)) {
        inf = tc_logical_and(inf, tc_lt(x, 0));
    }
    tci_ox_out(o, 0, inf);
}

/* ---- activations ---- */

TCI_OX_MAKE(clip)
{
    tc_tensor x = tci_ox_in(o, 0), low = tci_ox_maybe(o, 1), high = tci_ox_maybe(o, 2);
    if (tci_ox_attr(o, "min")) {
        low = tc_full(o->ctx, tci_ox_real(o, "min", 0), tc_dtype_of(x));
    }
    if (tci_ox_attr(o, "max")) {
        high = tc_full(o->ctx, tci_ox_real(o, "max", 0), tc_dtype_of(x));
    }
    low = tci_ox_given(low) ? tc_reshape_at(low, 0, NULL, o->here) : low;
    high = tci_ox_given(high) ? tc_reshape_at(high, 0, NULL, o->here) : high;
    bool any = tci_ox_given(low) || tci_ox_given(high);
    tci_ox_out(o, 0, any ? tc_clamp(x, low, high) : x);
}

TCI_OX_MAKE(leaky_relu)
{
    tci_ox_out(o, 0, tc_leaky_relu(tci_ox_in(o, 0), tci_ox_real(o, "alpha", 0.01)));
}

TCI_OX_MAKE(elu)
{
    tci_ox_out(o, 0, tc_elu(tci_ox_in(o, 0), tci_ox_real(o, "alpha", 1)));
}

TCI_OX_MAKE(celu)
{
    tci_ox_out(o, 0, tc_celu(tci_ox_in(o, 0), tci_ox_real(o, "alpha", 1)));
}

TCI_OX_MAKE(selu)
{
    const double old = o->opset < 6;
    double alpha = tci_ox_real(o, "alpha", old ? 1.6732 : 1.67326319217681884765625);
    double gamma = tci_ox_real(o, "gamma", old ? 1.0507 : 1.05070102214813232421875);
    tci_ox_out(o, 0, tc_mul(tc_elu(tci_ox_in(o, 0), alpha), gamma));
}

TCI_OX_MAKE(thresholded_relu)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_out(o, 0, tc_where(tc_gt(x, tci_ox_real(o, "alpha", 1)), x, 0));
}

TCI_OX_MAKE(hard_sigmoid)
{
    tc_tensor x = tci_ox_in(o, 0);
    x = tc_add(tc_mul(x, tci_ox_real(o, "alpha", 0.2)), tci_ox_real(o, "beta", 0.5));
    tci_ox_out(o, 0, tc_clamp(x, 0, 1));
}

TCI_OX_MAKE(shrink)
{
    tc_tensor x = tci_ox_in(o, 0);
    double bias = tci_ox_real(o, "bias", 0), lambd = tci_ox_real(o, "lambd", 0.5);
    tc_tensor y = tc_where(tc_lt(x, -lambd), tc_add(x, bias),
                           tc_where(tc_gt(x, lambd), tc_sub(x, bias), 0));
    tci_ox_out(o, 0, tc_cast(y, tc_dtype_of(x)));
}

TCI_OX_MAKE(softsign)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_out(o, 0, tc_div(x, tc_add(tc_abs(x), 1)));
}

TCI_OX_MAKE(gelu)
{
    tc_tensor x = tci_ox_in(o, 0);
    bool tanh = !strcmp(tci_ox_text(o, "approximate", "none"), "tanh");
    tci_ox_out(o, 0, tanh ? tc_gelu_tanh(x) : tc_gelu(x));
}

static tc_tensor tci_ox_swish_of(const tci_ox_op *o, tc_tensor x)
{
    double alpha = tci_ox_real(o, "alpha", 1);
    return alpha == 1 ? tc_silu(x) : tc_mul(x, tc_sigmoid(tc_mul(x, alpha)));
}

TCI_OX_MAKE(swish)
{
    tci_ox_out(o, 0, tci_ox_swish_of(o, tci_ox_in(o, 0)));
}

TCI_OX_MAKE(swiglu)
{
    tci_ox_out(o, 0, tc_mul(tci_ox_swish_of(o, tci_ox_in(o, 0)), tci_ox_in(o, 1)));
}

TCI_OX_MAKE(prelu)
{
    tc_tensor x = tci_ox_in(o, 0), slope = tci_ox_in(o, 1);
    int rank = tc_rank(x);
    if (o->opset < 7 && tc_rank(slope) == 1 && rank > 2 && tc_size(slope, 0) != 1) {
        int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int i = 0; i < rank - 1; i++) {
            sizes[i] = i ? 1 : tc_size(slope, 0);
        }
        slope = tci_ox_shape_as(o, slope, rank - 1, sizes);
    }
    tci_ox_out(o, 0, tc_where(tc_lt(x, 0), tc_mul(x, slope), x));
}

TCI_OX_MAKE(where)
{
    tci_ox_out(o, 0, tc_where(tci_ox_in(o, 0), tci_ox_in(o, 1), tci_ox_in(o, 2)));
}

/* ---- along an axis ---- */

/* Before opset 13 a softmax is over all axes from `axis` on, as one. `by` takes a matrix, or the
 * tensor, and the axis. */
static void tci_ox_along(tci_ox_op *o, tc_tensor (*by)(const tci_ox_op *o, tc_tensor x, int axis))
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t axis = tci_ox_int(o, "axis", o->opset < 13 ? 1 : -1), parts[2] = {1, 1};
    if (o->opset >= 13) {
        tci_ox_out(o, 0, by(o, x, tci_ox_axis(o, axis, rank)));
        return;
    }
    axis = axis == rank ? rank : tci_ox_axis(o, axis, rank);
    for (int i = 0; i < rank; i++) {
        parts[i >= axis] = tc_dim_mul(parts[i >= axis], sizes[i]);
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, by(o, tci_ox_shape_as(o, x, 2, parts), 1), rank, sizes));
}

static tc_tensor tci_ox_softmax_by(const tci_ox_op *o, tc_tensor x, int axis)
{
    return tc_softmax(x, axis);
}

static tc_tensor tci_ox_log_softmax_by(const tci_ox_op *o, tc_tensor x, int axis)
{
    return tc_log_softmax(x, axis);
}

static tc_tensor tci_ox_hardmax_by(const tci_ox_op *o, tc_tensor x, int axis)
{
    tc_tensor place = tci_ox_places(o, tc_size(x, axis), tc_rank(x), axis);
    return tc_cast(tc_eq(tc_argmax(x, axis, true), place), tc_dtype_of(x));
}

TCI_OX_MAKE(softmax)
{
    tci_ox_along(o, tci_ox_softmax_by);
}

TCI_OX_MAKE(log_softmax)
{
    tci_ox_along(o, tci_ox_log_softmax_by);
}

TCI_OX_MAKE(hardmax)
{
    tci_ox_along(o, tci_ox_hardmax_by);
}

/* ---- products ---- */

TCI_OX_MAKE(einsum)
{
    const char *from = tci_ox_text(o, "equation", "");
    char *spec = tci_scratch_get(o->s, strlen(from) + 1), *to = spec;
    tc_tensor *xs = TCI_NEW_ARRAY(o->s, tc_tensor, o->n_in + 1);
    for (; *from; from++) {
        *to = *from;
        to += *from != ' ';
    }
    *to = 0;
    for (int i = 0; i < o->n_in; i++) {
        xs[i] = tci_ox_in(o, i);
    }
    tci_ox_out(o, 0, tc_einsum(spec, TC_TENSORS_N(xs, o->n_in)));
}

TCI_OX_MAKE(gemm)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1), c = tci_ox_maybe(o, 2);
    double alpha = tci_ox_real(o, "alpha", 1), beta = tci_ox_real(o, "beta", 1);
    tc_dtype d = tc_dtype_of(a);
    a = tci_ox_int(o, "transA", 0) ? tc_transpose(a, 0, 1) : a;
    b = tci_ox_int(o, "transB", 0) ? tc_transpose(b, 0, 1) : b;
    tc_tensor y = tc_matmul(a, b);
    y = alpha == 1 ? y : tc_mul(y, alpha);
    if (tci_ox_given(c)) {
        y = tc_add(y, beta == 1 ? c : tc_mul(c, beta));
    }
    tci_ox_out(o, 0, tc_cast(y, d));
}
