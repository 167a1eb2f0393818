/* api/quantize.c - quantized integers (scale and zero point), and sparse matrix products (COO,
 * CSR).
 *
 * In: tensors, and their scales or the positions of elements. Out: compositions of other public
 * calls.
 *
 * A quantized integer q represents (q - zero_point) * scale. A product of such tensors is an
 * integer product, exact in i32, scaled once at the end. A sparse product gathers the rows that its
 * elements name and scatter-adds them, so no zero is touched, and the gradient has the same form.
 */
#include "composite_ops.h"

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

static bool tci_quantize_is_byte(tc_dtype t)
{
    return t == TC_I8 || t == TC_U8;
}

/* A scale or zero point: 0-d, or of one axis, which comes to lie along `axis` of x. */
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

/* ---- sparse ---- */

/* The elements of one axis, and a dense matrix: else *bad. */
static bool tci_sparse_takes(const tci_made *m, tc_tensor list, tc_tensor columns, tc_tensor values,
                             tc_tensor dense, tc_tensor *bad)
{
    const tc_tensor all[4] = {list, columns, values, dense};
    for (int i = 0; i < 4; i++) {
        if (tc_status_of(all[i])) {
            *bad = tci_made_end(m, all[i]);
            return false;
        }
        if (tc_rank(all[i]) != (i < 3 ? 1 : 2)) {
            *bad = tci_made_fail(m, TC_ERR_SHAPE,
                                 "operand %d has rank %d: expected lists of one "
                                 "axis, and a dense matrix",
                                 i + 1, tc_rank(all[i]));
            return false;
        }
    }
    return true;
}

/* Row i of the result takes in values[e] * dense[columns[e]] for the elements e of row i. */
static tc_tensor tci_sparse_product(const tci_made *m, tc_tensor rows, tc_tensor columns,
                                    tc_tensor values, int64_t n_rows, tc_tensor dense)
{
    tc_site here = m->here;
    const int64_t count = tc_size(values, 0);
    if (tc_size(columns, 0) != count || tc_size(rows, 0) != count) {
        return tci_made_fail(m, TC_ERR_SHAPE,
                             "%s values, %s columns and %s rows: expected as many "
                             "of each",
                             TCI_DIM_TEXT(count), TCI_DIM_TEXT(tc_size(columns, 0)),
                             TCI_DIM_TEXT(tc_size(rows, 0)));
    }
    tc_tensor parts = tc_mul(tc_unsqueeze(values, 1), tc_index_select(dense, 0, columns));
    if (tc_status_of(parts)) {
        return tci_made_end(m, parts);
    }
    tc_tensor zero = tc_full(m->ctx->handle, 0, tc_dtype_of(parts), n_rows, tc_size(dense, 1));
    return tci_made_end(m, tc_index_add(zero, 0, rows, parts));
}

TC_API tc_tensor tc_coo_matmul_at(tc_tensor rows, tc_tensor columns, tc_tensor values,
                                  int64_t n_rows, tc_tensor dense, tc_site here)
{
    tci_made m;
    tc_tensor bad;
    if (!tci_made_begin(&m, "tc_coo_matmul", values, here)) {
        return m.bad;
    }
    return tci_sparse_takes(&m, rows, columns, values, dense, &bad)
               ? tci_sparse_product(&m, rows, columns, values, n_rows, dense)
               : bad;
}

TC_API tc_tensor tc_csr_matmul_at(tc_tensor starts, tc_tensor columns, tc_tensor values,
                                  tc_tensor dense, tc_site here)
{
    tci_made m;
    tc_tensor bad;
    if (!tci_made_begin(&m, "tc_csr_matmul", values, here)) {
        return m.bad;
    }
    if (!tci_sparse_takes(&m, starts, columns, values, dense, &bad)) {
        return bad;
    }
    tc_tensor at = tc_arange(m.ctx->handle, 0, tc_size(values, 0), 1, TC_I64);
    tc_tensor rows = tc_sub(tc_searchsorted(tc_cast(starts, TC_I64), at, true), 1);
    return tci_sparse_product(&m, rows, columns, values, tc_dim_add(tc_size(starts, 0), -1), dense);
}

#pragma pop_macro("TC_HERE")
