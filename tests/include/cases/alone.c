/* The smallest whole program; also with TC_STATIC, after other headers, and without
 * tc_cpu.h. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define TC_IMPLEMENTATION
#include "tc.h"

int main(void)
{
    tc_ctx *ctx;
    float out[4] = {0}, in[4] = {1, 2, 3, 4};
    if (tc_ctx_make(&ctx, NULL)) {
        return 1;
    }
    tc_tensor x = tc_copy_in(ctx, in, TC_F32, 4);
    tc_status status = tc_read(tc_mul(x, x), out, 4);
    int good = status == TC_OK && out[0] == 1.0f && out[3] == 16.0f;
    if (!good) {
        fprintf(stderr, "%s: %s\n", tc_status_text(status), tc_error(ctx));
    }
    tc_ctx_free(ctx);
    tc_shutdown();
    return good ? 0 : 2;
}
