/* api/quantize.c - quantized integers: quantize, dequantize and integer matrix products by scale
 * and zero point.
 *
 * In: tensors, their scales and zero points. Out: compositions of other public calls.
 *
 * A quantized integer q represents (q - zero_point) * scale. A product of such tensors is an
 * integer product, exact in i32, scaled once at the end. */
#include "composite_helpers.h"

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

static bool tci_quantize_is_byte(tc_dtype t)
{
    return t == TC_I8 || t == TC_U8;
}

/* A scale or zero point: 0-d, or of one axis, which is turned along `axis` of x. */
static tc_arg tci_quantize_along(tc_arg a, tc_tensor x, int axis, tc_site here)
{
    if (a.kind || tc_rank(a.tensor) != 1) {
        return a;
    }
    const int rank = tc_rank(x), at = axis < 0 ? axis + rank : axis;
    if (at < 0 || (at && at >= rank)) {
        return tci_arg_tensor(tc_flip(x, axis)); /* which tells that there is no such axis */
    }
    for (int i = at; i + 1 < rank; i++) {
        a.tensor = tc_unsqueeze(a.tensor, -1);
    }
    return a;
}

TC_API tc_tensor tc_quantize_at(tc_tensor x, tc_arg scale, tc_arg zero_point, int axis,
                                tc_dtype dtype, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_quantize", x, here)) {
        return m.bad;
    }
    if (!tci_quantize_is_byte(dtype) || !tci_dtype_is_float(tc_dtype_of(x))) {
        return tci_made_fail(&m, TC_ERR_DTYPE, "from %s to %s: expected floats, and TC_I8 or TC_U8",
                             tci_dtype_get(tc_dtype_of(x))->name,
                             tci_dtype_is_valid(dtype) ? tci_dtype_get(dtype)->name : "none");
    }
    tc_tensor wide = tci_made_wide(&m, x);
    tc_arg steps = tci_arg_tensor(
        tc_div_at(tci_arg_tensor(wide), tci_quantize_along(scale, x, axis, here), here));
    tc_tensor q = tc_add_at(tci_arg_tensor(tc_round_at(steps, here)),
                            tci_quantize_along(zero_point, x, axis, here), here);
    const double least = dtype == TC_I8 ? -128 : 0;
    q = tc_minimum(tc_maximum(tc_where(tc_isnan(q), 0, q), least), least + 255);
    return tci_made_end(&m, tc_cast(q, dtype));
}

/* q less its zero point, in i32: exact. */
static tc_tensor tci_quantize_centred(tc_tensor q, tc_arg zero_point, tc_site here)
{
    return tc_cast(tc_sub_at(tci_arg_tensor(tc_cast(q, TC_I32)), zero_point, here), TC_I32);
}

TC_API tc_tensor tc_dequantize_at(tc_tensor q, tc_arg scale, tc_arg zero_point, int axis,
                                  tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_dequantize", q, here)) {
        return m.bad;
    }
    if (!tci_quantize_is_byte(tc_dtype_of(q))) {
        return tci_made_fail(&m, TC_ERR_DTYPE, "q is %s: expected TC_I8 or TC_U8",
                             tci_dtype_get(tc_dtype_of(q))->name);
    }
    zero_point = tci_quantize_along(zero_point, q, axis, here);
    tc_tensor y = tc_cast(tci_quantize_centred(q, zero_point, here), TC_F32);
    scale = tci_quantize_along(scale, q, axis, here);
    return tci_made_end(&m, tc_mul_at(tci_arg_tensor(y), scale, here));
}

TC_API tc_tensor tc_qmatmul_at(tc_tensor a, tc_arg scale_a, tc_arg zero_a, tc_tensor b,
                               tc_arg scale_b, tc_arg zero_b, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_qmatmul", a, here)) {
        return m.bad;
    }
    const bool known = !tc_status_of(b) && tc_rank(a) >= 2 && tc_rank(b) >= 2;
    if (!known || !tci_quantize_is_byte(tc_dtype_of(a)) || !tci_quantize_is_byte(tc_dtype_of(b))) {
        return tc_status_of(b)
                   ? tci_made_end(&m, b)
                   : tci_made_fail(&m, known ? TC_ERR_DTYPE : TC_ERR_SHAPE,
                                   "a is %s %s, b %s %s: expected TC_I8 or TC_U8, "
                                   "[..., m, k] and [..., k, n]",
                                   tc_dtype_name(tc_dtype_of(a)), tci_made_shape(a).text,
                                   tc_dtype_name(tc_dtype_of(b)), tci_made_shape(b).text);
    }
    /* a's along its rows, b's along its columns */
    tc_tensor left = tci_quantize_centred(a, tci_quantize_along(zero_a, a, -2, here), here);
    tc_tensor right = tci_quantize_centred(b, zero_b, here);
    tc_tensor y = tc_cast(tc_matmul(left, right), TC_F32);
    y = tc_mul_at(tci_arg_tensor(y), tci_quantize_along(scale_a, a, -2, here), here);
    return tci_made_end(&m, tc_mul_at(tci_arg_tensor(y), scale_b, here));
}

#pragma pop_macro("TC_HERE")
