/* A program whose implementation is elsewhere: with TC_DYNAMIC_SHAPES in both or in neither. C
 * and C++. */
#include "tc.h"

int main(void)
{
    tc_ctx *ctx;
    int64_t n = 5;
    if (tc_ctx_make(&ctx, NULL) != TC_OK) {
        return 1;
    }
#ifdef TC_DYNAMIC_SHAPES
    n = TC_DIM("n", 0, 64);
#elif defined(CASE_FORGETS)
    n = TC_DIM("n", 0, 64);
#endif
    tc_tensor x = tc_input(ctx, "x", TC_F32, n, 3);
    tc_tensor y = tc_mul(tc_reshape(x, tc_size(x, 0), 3, 1), tc_size(x, 0));
    int code = tc_status_of(y) == TC_OK && tc_size(y, 0) == n ? 0 : 2;
    tc_ctx_free(ctx);
    return code;
}
