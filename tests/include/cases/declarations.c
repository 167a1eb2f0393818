/* The declarations alone: every strict warning on, C11, C17 and C++17. */
#include "tc.h"
#include "tc.h"

tc_tensor chain(tc_ctx *ctx);
tc_tensor chain(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4, 5);
    tc_tensor y = tc_add(tc_mul(tc_sin(tc_cos(x)), 2), 0.5f);
    return tc_sum(tc_maximum(y, x), TC_AXES(-1), false);
}

tc_tensor by_name(tc_ctx *ctx, tc_tensor x);
tc_tensor by_name(tc_ctx *ctx, tc_tensor x)
{
    return tc_op(ctx, "conv2d", TC_TENSORS(x, tc_op(ctx, "exp", TC_TENSORS(x), TC_ATTRS())),
                 TC_ATTRS(TC_ATTR("groups", 2), TC_ATTR_LIST("stride", 2, 1)));
}

tc_tensor from_text(tc_ctx *ctx, tc_tensor x, double rate, int n);
tc_tensor from_text(tc_ctx *ctx, tc_tensor x, double rate, int n)
{
    tc_tensor y = TC_EXPR(softmax((x[:, 1:-1]) @ x.T * rate, axis=-1) ** n, x, rate, n);
    return tc_expr(ctx, "x + y // 2", TC_ATTRS(TC_ATTR("x", x), TC_ATTR("y", y)));
}

int run(tc_program *f, const float *in, float *out);
int run(tc_program *f, const float *in, float *out)
{
    return tc_run(f, TC_BUFS(TC_BUF(in, 20)), TC_BUFS(TC_BUF(out, 4))) == TC_OK;
}
