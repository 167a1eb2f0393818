/* comm/host_reduce.c - combines the operands of a reduction over ranks in host memory. Elements are
 * taken in blocks that stay in the nearest cache.
 *
 * min and max have the meaning of tc's own: a NaN wins. Integers wrap; bool is 0 or 1. */
#include "host_reduce.h"

#include <string.h>

enum { TCI_COMBINE_BLOCK = 512 };

#define TCI_COMBINE_FUNCTION(name, T, SUM)                                                         \
    static void tci_combine_##name(tc_comm_how how, T *to, const T *from, int64_t n)               \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T a = to[i], b = from[i];                                                              \
            bool keeps = how == TC_COMM_MAX ? a > b || a != a : a < b || a != a;                   \
            to[i] = how == TC_COMM_SUM ? (T)(SUM) : keeps ? a : b;                                 \
        }                                                                                          \
    }
TCI_COMBINE_FUNCTION(f64, double, a + b)
TCI_COMBINE_FUNCTION(f32, float, a + b)
TCI_COMBINE_FUNCTION(u8, uint8_t, a + b)
TCI_COMBINE_FUNCTION(i8, int8_t, (uint8_t)a + (uint8_t)b)
TCI_COMBINE_FUNCTION(u16, uint16_t, a + b)
TCI_COMBINE_FUNCTION(i16, int16_t, (uint16_t)a + (uint16_t)b)
TCI_COMBINE_FUNCTION(u32, uint32_t, a + b)
TCI_COMBINE_FUNCTION(i32, int32_t, (uint32_t)a + (uint32_t)b)
TCI_COMBINE_FUNCTION(u64, uint64_t, a + b)
TCI_COMBINE_FUNCTION(i64, int64_t, (uint64_t)a + (uint64_t)b)
#undef TCI_COMBINE_FUNCTION

static void tci_combine_block(tc_comm_how how, tc_dtype t, void *to, const void *from, int64_t n)
{
    switch (t) {
#define TCI_CASE(id, name) case id: tci_combine_##name(how, to, from, n); break;
        TCI_CASE(TC_BOOL, u8)
        TCI_CASE(TC_U8, u8)
        TCI_CASE(TC_I8, i8)
        TCI_CASE(TC_U16, u16)
        TCI_CASE(TC_I16, i16)
        TCI_CASE(TC_U32, u32)
        TCI_CASE(TC_I32, i32)
        TCI_CASE(TC_U64, u64)
        TCI_CASE(TC_I64, i64)
        TCI_CASE(TC_F32, f32)
        TCI_CASE(TC_F64, f64)
#undef TCI_CASE
    case TC_F16: /* f32 here */
    case TC_BF16:
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
}

/* n elements of dtype t as `wide`, which is t or f32. */
static void tci_combine_load(tc_dtype t, tc_dtype wide, void *to, const char *from, int64_t n)
{
    if (t == wide) {
        memcpy(to, from, (size_t)(n * tc_dtype_size(t)));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        tci_value v = tci_value_load(t, from + i * tc_dtype_size(t));
        tci_value_store(wide, (char *)to + i * tc_dtype_size(wide), tci_value_cast(v, t, wide));
    }
}

TCI_FN void tci_comm_combine(tc_comm_how how, tc_dtype dtype, void *out, const void *in,
                             int64_t stride, int ranks, int64_t n)
{
    double sums[TCI_COMBINE_BLOCK], next[TCI_COMBINE_BLOCK]; /* of any dtype */
    const tc_dtype wide = tci_dtype_is_half(dtype) ? TC_F32 : dtype;
    const int64_t bytes = tc_dtype_size(dtype);
    for (int64_t at = 0; at < n; at += TCI_COMBINE_BLOCK) {
        int64_t m = TCI_MIN(n - at, (int64_t)TCI_COMBINE_BLOCK);
        tci_combine_load(dtype, wide, sums, (const char *)in + at * bytes, m);
        for (int r = 1; r < ranks; r++) {
            const char *from = (const char *)in + r * stride + at * bytes;
            if (wide != dtype) {
                tci_combine_load(dtype, wide, next, from, m);
                from = (const char *)next;
            }
            tci_combine_block(how, wide, sums, from, m);
        }
        tci_combine_load(wide, dtype, (char *)out + at * bytes, (const char *)sums, m);
    }
}
