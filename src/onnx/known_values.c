/* onnx/known_values.c - values known while an ONNX graph is imported: small arrays of numbers and
 * symbolic sizes, and their conversion to tensors. */
#include "import.h"
#include "user_call_site.h"

#include <math.h>
#include <string.h>

TCI_FN tci_ox_known *tci_ox_known_new(tci_scratch *s, tc_dtype dtype, int rank,
                                      const int64_t *sizes)
{
    tci_ox_known *k = TCI_NEW(s, tci_ox_known);
    k->dtype = dtype;
    k->rank = rank;
    k->sizes = tci_scratch_copy(s, sizes, sizeof(*sizes) * (size_t)rank);
    k->n = 1;
    for (int i = 0; i < rank; i++) {
        k->n *= sizes[i];
    }
    k->cells = TCI_NEW_ARRAY(s, tci_ox_cell, k->n);
    return k;
}

TCI_FN tci_ox_known *tci_ox_known_ints(tci_scratch *s, int n, const int64_t *items)
{
    tci_ox_known *k = tci_ox_known_new(s, TC_I64, 1, (const int64_t[]){n});
    for (int i = 0; i < n; i++) {
        k->cells[i].i = items[i];
    }
    return k;
}

TCI_FN tci_ox_cell tci_ox_read_cell(tc_dtype dtype, const char *at)
{
    tci_ox_cell c = {0, 0, 0.0};
    uint16_t half;
    float x;
    memcpy(&half, at, tc_dtype_size(dtype) >= 2 ? 2 : 0);
    switch (dtype) {
    case TC_BOOL: c.i = *at != 0; break;
    case TC_U8: c.i = (unsigned char)*at; break;
    case TC_I8: c.i = (signed char)*at; break;
    case TC_U16: c.i = half; break;
    case TC_I16: c.i = (int16_t)half; break;
    case TC_U32: {
        uint32_t v;
        memcpy(&v, at, 4);
        c.i = v;
        break;
    }
    case TC_I32: {
        int32_t v;
        memcpy(&v, at, 4);
        c.i = v;
        break;
    }
    case TC_U64:
    case TC_I64: memcpy(&c.i, at, 8); break;
    case TC_F16: c.f = (double)tci_f16_bits_to_f32(half); break;
    case TC_BF16: {
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&x, &bits, 4);
        c.f = (double)x;
        break;
    }
    case TC_F32:
        memcpy(&x, at, 4);
        c.f = (double)x;
        break;
    case TC_F64: memcpy(&c.f, at, 8); break;
    default: break;
    }
    return c;
}

TCI_FN tci_ox_known *tci_ox_known_read(tci_scratch *s, tc_dtype dtype, int rank,
                                       const int64_t *sizes, const void *data)
{
    tci_ox_known *k = tci_ox_known_new(s, dtype, rank, sizes);
    for (int64_t i = 0; i < k->n; i++) {
        k->cells[i] = tci_ox_read_cell(dtype, (const char *)data + i * tc_dtype_size(dtype));
    }
    return k;
}

/* ---- as tensors ---- */

static bool tci_ox_is_uniform(const tci_ox_known *k)
{
    for (int64_t i = 1; i < k->n; i++) {
        if (memcmp(&k->cells[i], &k->cells[0], sizeof(k->cells[0]))) {
            return false;
        }
    }
    return k->n > 0;
}

/* One element, 0-d. */
static tc_tensor tci_ox_cell_tensor(const tci_ox_op *o, tc_dtype dtype, tci_ox_cell c)
{
    if (!tci_ox_is_float(dtype)) {
        return tc_cast(tc_full(o->ctx, c.i, TC_I64), dtype);
    }
    if (c.den) {
        return tc_cast(tc_div(tc_cast(tc_full(o->ctx, c.i, TC_I64), TC_F64), (double)c.den), dtype);
    }
    return tc_full(o->ctx, c.f, dtype);
}

TCI_FN tc_tensor tci_ox_known_tensor(const tci_ox_op *o, const tci_ox_known *k)
{
    bool floats = tci_ox_is_float(k->dtype), numbers = true;
    for (int64_t i = 0; i < k->n; i++) {
        numbers = numbers && tci_ox_cell_is_number(k->cells[i]) && !k->cells[i].den;
    }
    if (tci_ox_is_uniform(k)) {
        tc_tensor one = tci_ox_cell_tensor(o, k->dtype, k->cells[0]);
        return k->rank ? tc_expand_at(one, k->rank, k->sizes, o->here) : one;
    }
    if (numbers) {
        int64_t *words = TCI_NEW_ARRAY(o->s, int64_t, k->n + 1);
        for (int64_t i = 0; i < k->n; i++) {
            if (floats) {
                memcpy(&words[i], &k->cells[i].f, 8);
            } else {
                words[i] = k->cells[i].i;
            }
        }
        return tc_cast(tc_copy_in_at(o->ctx, words, floats ? TC_F64 : TC_I64, k->rank, k->sizes,
                                     NULL, o->here),
                       k->dtype);
    }
    tc_tensor *items = TCI_NEW_ARRAY(o->s, tc_tensor, k->n);
    for (int64_t i = 0; i < k->n; i++) {
        items[i] = tci_ox_cell_tensor(o, k->dtype, k->cells[i]);
    }
    return tc_reshape_at(tc_stack(TC_TENSORS_N(items, (int)k->n), 0), k->rank, k->sizes, o->here);
}
