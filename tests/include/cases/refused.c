/* What must not compile, one of them at a time; none: it compiles. */
#include "tc.h"

tc_tensor refused(tc_ctx *ctx, tc_tensor x, float *p, double h);
tc_tensor refused(tc_ctx *ctx, tc_tensor x, float *p, double h)
{
    (void)ctx;
    (void)p;
    (void)h;
#if defined(POINTER)
    return tc_add(x, p);
#elif defined(TEXT)
    return tc_mul("2", x);
#elif defined(FRACTION)
    return tc_reshape(x, 2.5, 4);
#elif defined(FRACTION_BEHIND)
    return tc_input(ctx, "x", TC_F32, 3, h / 2);
#else
    return tc_add(tc_reshape(x, 2, (size_t)3 << 1, (unsigned char)4), 'a');
#endif
}
