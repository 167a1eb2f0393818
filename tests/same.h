/* tests/same.h - what "the same bits" means wherever executors are compared: equal bytes, and any
 * NaN is the same as any other of its dtype. Include behind tc.h and tc_test.h. */
#ifndef TC_TEST_SAME_H
#define TC_TEST_SAME_H

/* Bytes of an element; *infinity its bits, 0 for a dtype without NaN. */
static int same_item(tc_dtype t, uint64_t *infinity)
{
    *infinity = t == TC_F16    ? 0x7c00
                : t == TC_BF16 ? 0x7f80
                : t == TC_F32  ? 0x7f800000
                : t == TC_F64  ? 0x7ff0000000000000
                               : 0;
    switch (t) {
    case TC_BOOL:
    case TC_U8:
    case TC_I8: return 1;
    case TC_U16:
    case TC_I16:
    case TC_F16:
    case TC_BF16: return 2;
    case TC_U32:
    case TC_I32:
    case TC_F32: return 4;
    default: return 8;
    }
}

/* The first of n elements that is not the same, or -1. */
TCT_UNUSED static int64_t same_until(tc_dtype t, const void *a, const void *b, int64_t n)
{
    uint64_t infinity;
    int item = same_item(t, &infinity);
    uint64_t magnitude = UINT64_MAX >> (65 - 8 * item);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = 0, y = 0;
        memcpy(&x, (const char *)a + i * item, (size_t)item);
        memcpy(&y, (const char *)b + i * item, (size_t)item);
        bool nan = infinity && (x & magnitude) > infinity && (y & magnitude) > infinity;
        if (x != y && !nan) {
            return i;
        }
    }
    return -1;
}

TCT_UNUSED static bool same_bits(tc_dtype t, const void *a, const void *b, int64_t n)
{
    return same_until(t, a, b, n) < 0;
}

#endif
