/* tc.h without tc_cpu.h: everything is interpreted, and whoever looks is told why. Prints what
 * tc_explain says and the log of a context that wants native code. */
#define TC_IMPLEMENTATION
#include "tc.h"

static void say(void *user, const char *topic, const char *text)
{
    (void)user, (void)topic;
    puts(text);
}

static tc_tensor four(tc_ctx *ctx)
{
    return tc_exp(tc_full(ctx, 0.5, TC_F32, 4));
}

int main(void)
{
    tc_ctx *ctx;
    tc_program *f;
    if (tc_ctx_make(&ctx, NULL) || tc_compile(four(ctx), &f)) {
        return 1;
    }
    tc_explain(f, stdout);
    tc_program_free(f);
    tc_ctx_free(ctx);

    tc_options wants = {.backend = "cpu", .log = say};
    tc_status status = tc_ctx_make(&ctx, &wants);

    tc_options refuses = {.fallback = TC_FALLBACK_REFUSE};
    if (tc_ctx_make(&ctx, &refuses)) {
        return 3;
    }
    tc_status refused = tc_compile(four(ctx), &f);
    tc_ctx_free(ctx);
    return status == TC_ERR_BACKEND && refused == TC_ERR_COMPILER ? 0 : 4;
}
