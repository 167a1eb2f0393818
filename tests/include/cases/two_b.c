/* The C one that uses it. */
#include "tc.h"

int two_b(tc_ctx *ctx);

int two_b(tc_ctx *ctx)
{
    float out[3] = {0}, in[3] = {1, 2, 3};
    tc_tensor x = tc_copy_in(ctx, in, TC_F32, 3);
    return tc_read(tc_add(x, 1), out, 3) == TC_OK && out[2] == 4.0f ? 0 : 2;
}
