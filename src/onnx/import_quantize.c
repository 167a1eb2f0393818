/* onnx/import_quantize.c - imports ONNX operators on quantized integers, as arithmetic in f32 and
 * i32. */
#include "operator_table.h"
#include "user_call_site.h"

#include <string.h>

/* A scale or zero point next to x: one element as 0-d; 1-d along an axis; or, in blocks of an axis,
 * each element repeated. */
static tc_tensor tci_ox_along_x(const tci_ox_op *o, tc_tensor x, tc_tensor v)
{
    int rank, rank_v;
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *given = tci_ox_sizes(o, v, &rank_v);
    int64_t block = tci_ox_int(o, "block_size", 0);
    if (rank_v == 0 || (rank_v == 1 && given[0] == 1)) {
        return tc_reshape_at(v, 0, NULL, o->here);
    }
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 1), rank);
    if (rank_v == 1) {
        int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int i = 0; i < rank; i++) {
            wide[i] = i == axis ? given[0] : 1;
        }
        return tci_ox_shape_as(o, v, rank, wide);
    }
    if (block < 1) {
        tci_ox_fail(o, TC_ERR_SHAPE, "a scale of %d axes without blocks", rank_v);
    }
    v = tc_repeat_interleave(v, block, axis, tc_dim_mul(given[axis], block));
    return tc_slice(v, axis, 0, sizes[axis], 1);
}

static tc_tensor tci_ox_saturated(const tci_ox_op *o, tc_tensor x, tc_tensor zero, tc_dtype d)
{
    x = tc_round(x);
    x = tci_ox_given(zero) ? tc_add(x, tc_cast(zero, tc_dtype_of(x))) : x;
    return tc_cast(x, d);
}

TCI_OX_MAKE(quantize)
{
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_along_x(o, x, tci_ox_in(o, 1));
    tc_tensor zero = tci_ox_maybe(o, 2);
    int64_t type = tci_ox_int(o, "output_dtype", 0);
    tc_dtype d = tci_ox_given(zero) ? tc_dtype_of(zero) : type ? tci_ox_dtype(o, type) : TC_U8;
    zero = tci_ox_given(zero) ? tci_ox_along_x(o, x, zero) : zero;
    x = tc_div(tc_cast(x, TC_F32), tc_cast(scale, TC_F32));
    tci_ox_out(o, 0, tci_ox_saturated(o, x, zero, d));
}

TCI_OX_MAKE(dequantize)
{
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), zero = tci_ox_maybe(o, 2);
    int64_t type = tci_ox_int(o, "output_dtype", 0);
    tc_dtype d = type ? tci_ox_dtype(o, type) : tc_dtype_of(scale);
    tc_tensor y = tc_cast(x, TC_I32);
    if (tci_ox_given(zero)) {
        y = tc_sub(y, tc_cast(tci_ox_along_x(o, x, zero), TC_I32));
    }
    y = tc_mul(tc_cast(y, TC_F32), tc_cast(tci_ox_along_x(o, x, scale), TC_F32));
    tci_ox_out(o, 0, tc_cast(y, d));
}

TCI_OX_MAKE(dynamic_quantize)
{
    tc_tensor x = tci_ox_in(o, 0);
    tc_tensor low = tc_minimum(tc_min(x, TC_ALL, false), 0);
    tc_tensor high = tc_maximum(tc_max(x, TC_ALL, false), 0);
    tc_tensor scale = tc_div(tc_sub(high, low), 255);
    tc_tensor zero = tc_cast(tc_round(tc_neg(tc_div(low, scale))), TC_U8);
    tci_ox_out(o, 0, tci_ox_saturated(o, tc_div(x, scale), zero, TC_U8));
    tci_ox_out(o, 1, scale);
    tci_ox_out(o, 2, zero);
}

/* x in i32 less its zero point, operand i: of one element, of each row, or of each column. */
static tc_tensor tci_ox_centred(const tci_ox_op *o, tc_tensor x, int i, bool rows)
{
    tc_tensor wide = tc_cast(x, TC_I32);
    if (!tci_ox_has(o, i)) {
        return wide;
    }
    tc_tensor zero = tc_cast(tci_ox_in(o, i), TC_I32);
    if (rows && tc_rank(zero) == 1 && tc_size(zero, 0) != 1) {
        zero = tc_unsqueeze(zero, -1);
    }
    return tc_sub(wide, zero);
}

TCI_OX_MAKE(matmul_integer)
{
    tc_tensor a = tci_ox_centred(o, tci_ox_in(o, 0), 2, true);
    tci_ox_out(o, 0, tc_matmul(a, tci_ox_centred(o, tci_ox_in(o, 1), 3, false)));
}

TCI_OX_MAKE(qlinear_matmul)
{
    tc_tensor a = tci_ox_centred(o, tci_ox_in(o, 0), 2, true);
    tc_tensor sum = tc_matmul(a, tci_ox_centred(o, tci_ox_in(o, 3), 5, false));
    tc_tensor scale = tci_ox_in(o, 1), zero = tci_ox_in(o, 7);
    if (tc_rank(scale) == 1 && tc_size(scale, 0) != 1) {
        scale = tc_unsqueeze(scale, -1);
    }
    scale = tc_mul(tc_cast(scale, TC_F32), tc_cast(tci_ox_in(o, 4), TC_F32));
    scale = tc_div(scale, tc_cast(tci_ox_in(o, 6), TC_F32));
    tc_tensor y = tc_mul(tc_cast(sum, TC_F32), scale);
    tci_ox_out(o, 0, tci_ox_saturated(o, y, zero, tc_dtype_of(zero)));
}
