/* One of three translation units that share an implementation; this one has it. */
#define TC_IMPLEMENTATION
#include "tc.h"

int two_b(tc_ctx *ctx);
int two_c(tc_ctx *ctx);

int main(void)
{
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    int code = two_b(ctx) + 10 * two_c(ctx);
    tc_ctx_free(ctx);
    return code;
}
