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
#elif defined(BARE_BUFFER)
    return tc_run(NULL, TC_BUFS(TC_BUF(p, 1)), TC_BUFS(p)) ? x : TC_NONE;
#elif defined(BARE_BUFFER_BEHIND)
    return tc_run(NULL, TC_BUFS(TC_BUF(p, 1), p), TC_BUFS()) ? x : TC_NONE;
#elif defined(ARRAY)
    tc_tensor list[2] = {x, x};
    return tc_cat(TC_TENSORS(list), 0);
#else
    float cube[2][3][4] = {{{0}}};
    tc_tensor list[2] = {x, tc_copy_in(ctx, cube, TC_F32, 2, 3, 4)};
    x = tc_cat(TC_TENSORS_N(list, 2), 0);
    x = tc_cat(TC_TENSORS(x, tc_cat(TC_TENSORS(x, tc_param(ctx, NULL, TC_F32, 3)), 0)), 0);
    if (tc_run(NULL, TC_BUFS(), TC_BUFS(TC_BUF(p, 1), TC_BUF(cube, 24)))) {
        return TC_NONE;
    }
    return tc_add(tc_reshape(x, 2, (size_t)3 << 1, (unsigned char)4), 'a');
#endif
}
